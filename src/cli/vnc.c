/* src/cli/vnc.c - the guest's screen: a local port for a VNC viewer, and pictures; in virtctl's words. */
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "cli/client.h"
#include "cli/cmd.h"
#include "ev/ev.h"
#include "http/client.h"
#include "http/uri.h"
#include "http/ws.h"

enum { CHUNK = 16 * 1024, TO_VIEWER_MAX = 256 * 1024 };
static const usec_t LISTEN_TIMEOUT = 60 * USEC_PER_SEC; /* for a viewer that we started */

extern char **environ;

/* One session: connected first, so that a refusal is told before anybody waits at the port. */
struct vnc {
	struct client *client;
	struct loop *loop;
	const char *address;
	uint16_t port;
	bool proxy_only;
	char *url;
	struct http_ws *ws;
	bool has_opened;
	int listen_fd, fd;
	struct ev_src *io; /* the port, then the viewer; NULL: neither can go on right now */
	struct ev_src *deadline, *child;
	struct sbuf to_viewer;
	bool is_blocked; /* the server does not take what the viewer says */
	bool has_left;	 /* the viewer: only the good-bye to the server is waited for */
	int exit_code;
	struct err err;
};

static void leave(struct vnc *v, int code)
{
	v->exit_code = code;
	v->io = ev_src_free(v->io);
	loop_quit(v->loop, code);
}

static void fail(struct vnc *v, enum rc rc, const char *text)
{
	(void)err_set(&v->err, rc, "%s", text);
	leave(v, EXIT_FAIL);
}

/* --- the viewer --- */

static void on_viewer(uint32_t revents, void *arg);

static void watch(struct vnc *v)
{
	uint32_t want = (v->is_blocked ? 0 : EPOLLIN) | (v->to_viewer.n ? EPOLLOUT : 0);

	if (v->fd < 0 || v->has_left)
		return;
	if (!want)
		v->io = ev_src_free(v->io);
	else if (v->io)
		ev_io_set(v->io, want);
	else if (ev_io(v->loop, &v->io, v->fd, want, on_viewer, v, &v->err))
		leave(v, EXIT_FAIL);
}

static void on_viewer(uint32_t revents, void *arg)
{
	struct vnc *v = arg;
	char chunk[CHUNK];
	ssize_t n;

	if (v->to_viewer.n && (revents & EPOLLOUT)) {
		n = send(v->fd, v->to_viewer.p, v->to_viewer.n, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n > 0)
			sbuf_drop(&v->to_viewer, (size_t)n);
		else if (n < 0 && errno != EAGAIN && errno != EINTR)
			sbuf_reset(&v->to_viewer); /* its end is read below */
		if (v->to_viewer.n <= TO_VIEWER_MAX / 4)
			http_ws_pause(v->ws, false);
	}
	if (!v->is_blocked && (revents & (EPOLLIN | EPOLLHUP | EPOLLERR))) {
		n = recv(v->fd, chunk, sizeof(chunk), MSG_DONTWAIT);
		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
			v->has_left = true; /* it was closed */
			v->io = ev_src_free(v->io);
			http_ws_pause(v->ws, false);
			http_ws_close(v->ws, HTTP_WS_NORMAL, NULL);
			return;
		}
		if (n > 0)
			ignore_rc(http_ws_send(v->ws, false, chunk, (size_t)n)); /* there is room */
		v->is_blocked = http_ws_backlog(v->ws) > HTTP_WS_BACKLOG / 2;
	}
	watch(v);
}

static void on_port(uint32_t revents, void *arg)
{
	struct vnc *v = arg;

	(void)revents;
	v->fd = accept4(v->listen_fd, NULL, NULL, SOCK_CLOEXEC);
	if (v->fd < 0)
		return;
	v->io = ev_src_free(v->io);
	v->deadline = ev_src_free(v->deadline);
	v->listen_fd = fd_close(v->listen_fd); /* one viewer, as virtctl has it */
	http_ws_pause(v->ws, false);
	watch(v);
}

static void on_late(void *arg)
{
	fail(arg, RC_TIMEOUT, "the viewer has not connected within a minute");
}

static void on_viewer_exit(pid_t pid, int status, void *arg)
{
	struct vnc *v = arg;

	(void)pid;
	v->child = ev_src_free(v->child);
	if (v->fd < 0)
		fail(v, RC_IO, "the viewer ended before it connected");
	else
		leave(v, WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAIL);
}

/* Viewers that people have, and how each is told a port. */
static void run_viewer(struct vnc *v)
{
	static const char *const viewers[] = {"remote-viewer", "vncviewer", "xtigervncviewer"};
	char where[96];
	pid_t pid = 0;
	int r = ENOENT;

	for (size_t i = 0; i < ARRAY_SIZE(viewers) && r; i++) {
		const char *argv[] = {viewers[i], where, NULL};

		if (str_eq(viewers[i], "remote-viewer"))
			(void)snprintf(where, sizeof(where), "vnc://%s:%u", v->address, v->port);
		else
			(void)snprintf(where, sizeof(where), "%s::%u", v->address, v->port);
		r = posix_spawnp(&pid, argv[0], NULL, NULL, (char *const *)argv, environ);
	}
	if (r)
		fail(v, RC_NOT_FOUND,
		     "no viewer found (remote-viewer, vncviewer, xtigervncviewer): use --proxy-only and "
		     "connect one to the port that is printed");
	else if (ev_child(v->loop, &v->child, pid, on_viewer_exit, v, &v->err) ||
		 ev_timer_after(v->loop, &v->deadline, LISTEN_TIMEOUT, on_late, v, &v->err))
		leave(v, EXIT_FAIL);
}

static enum rc listen_at_port(struct vnc *v, struct err *err)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(v->port)};
	socklen_t n = sizeof(a);
	int on = 1;

	if (inet_pton(AF_INET, v->address, &a.sin_addr) != 1)
		return err_set(err, RC_INVALID, "--address: '%s' is not an IPv4 address",
			       v->address);
	v->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (v->listen_fd < 0 ||
	    setsockopt(v->listen_fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
	    bind(v->listen_fd, (struct sockaddr *)&a, sizeof(a)) < 0 ||
	    listen(v->listen_fd, 1) < 0 || getsockname(v->listen_fd, (struct sockaddr *)&a, &n) < 0)
		return err_set_sys(err, errno, "cannot listen at %s:%u", v->address, v->port);
	v->port = ntohs(a.sin_port);
	return ev_io(v->loop, &v->io, v->listen_fd, EPOLLIN, on_port, v, err);
}

/* --- the server --- */

static void on_open(struct http_ws *ws, const char *protocol, void *arg)
{
	struct vnc *v = arg;

	(void)protocol;
	v->has_opened = true;
	http_ws_pause(ws, true); /* until somebody looks */
	if (listen_at_port(v, &v->err)) {
		leave(v, EXIT_FAIL);
		return;
	}
	if (!v->proxy_only) {
		run_viewer(v);
		return;
	}
	printf("{\"port\":%u}\n", v->port);
	if (fflush(stdout))
		fail(v, RC_IO, "cannot print the port");
}

static void on_message(struct http_ws *ws, bool is_text, const uint8_t *bytes, size_t n, void *arg)
{
	struct vnc *v = arg;

	if (is_text || v->has_left)
		return;
	sbuf_add(&v->to_viewer, bytes, n);
	if (sbuf_rc(&v->to_viewer)) {
		fail(v, RC_TOO_BIG, "the viewer does not take what the guest shows");
		return;
	}
	if (v->to_viewer.n > TO_VIEWER_MAX / 2)
		http_ws_pause(ws, true);
	watch(v);
}

static void on_room(struct http_ws *ws, void *arg)
{
	struct vnc *v = arg;

	(void)ws;
	v->is_blocked = false;
	watch(v);
}

static void on_close(struct http_ws *ws, uint16_t code, const char *reason, int status,
		     const struct err *why, void *arg)
{
	struct vnc *v = arg;

	(void)ws;
	(void)status;
	if (!v->has_opened)
		fail(v, why ? why->rc : RC_IO, why ? why->msg : "Can't connect to websocket");
	else if (v->has_left)
		leave(v, EXIT_OK);
	else if (code == HTTP_WS_ABNORMAL)
		fail(v, RC_CLOSED, "the connection was lost");
	else {
		if (!str_is_empty(reason))
			fprintf(stderr, "%s\n", reason);
		leave(v, EXIT_OK);
	}
}

static const struct http_ws_ops ops = {
	.on_open = on_open, .on_message = on_message, .on_room = on_room, .on_close = on_close};

static enum rc make_url(const struct client *c, const char *name, const char *rest, char **out,
			struct err *err)
{
	struct sbuf b = SBUF_INIT(LIMIT_URL_BYTES);
	size_t n;

	sbuf_addf(&b, "%s/apis/subresources.kubevirt.io/v1/namespaces/", client_server(c));
	http_uri_escape(&b, client_ns(c));
	sbuf_adds(&b, "/virtualmachineinstances/");
	http_uri_escape(&b, name);
	sbuf_adds(&b, rest);
	enum rc rc = sbuf_take(&b, out, &n);

	return rc ? err_set(err, rc, "cannot make the URL") : RC_OK;
}

static int vnc_session(struct vnc *v, const char *name, bool preserves)
{
	enum rc rc = make_url(v->client, name, preserves ? "/vnc?preserveSession=true" : "/vnc",
			      &v->url, &v->err);

	v->loop = client_loop(v->client);
	v->listen_fd = v->fd = -1;
	sbuf_init(&v->to_viewer, 2 * TO_VIEWER_MAX);
	if (!rc)
		rc = http_ws_connect(client_http(v->client), &v->ws, v->url, "plain.kubevirt.io",
				     10 * USEC_PER_SEC, &ops, v, &v->err);
	if (!rc)
		rc = loop_run(v->loop, NULL, &v->err);
	ev_src_free(v->io);
	ev_src_free(v->deadline);
	ev_src_free(v->child);
	http_ws_free(v->ws);
	fd_close(v->listen_fd);
	fd_close(v->fd);
	sbuf_fini(&v->to_viewer);
	mem_free(v->url);
	return rc || v->err.rc ? cmd_fail(&v->err) : v->exit_code;
}

/* --- pictures --- */

struct picture {
	struct loop *loop;
	const char *file;
	bool done;
	enum rc rc;
	struct err err;
};

static void on_picture(const struct http_result *r, void *arg)
{
	struct picture *p = arg;

	p->done = true;
	if (r->rc)
		p->rc = err_copy(&p->err, r->err);
	else if (r->status / 100 != 2)
		p->rc = client_status_err(r, &p->err);
	else if (str_eq(p->file, "-"))
		p->rc = file_write_all(STDOUT_FILENO, r->body, r->n, &p->err);
	else
		p->rc = file_write_durable(p->file, r->body, r->n, 0644, &p->err);
	loop_quit(p->loop, 0);
}

static int screenshot(struct client *c, const char *name, const char *file, bool moves)
{
	CLEANUP(http_slot_freep) struct http_slot *slot = NULL;
	CLEANUP(mem_freep) char *url = NULL;
	struct picture p = {.loop = client_loop(c), .file = file};
	enum rc rc =
		make_url(c, name, moves ? "/vnc/screenshot?moveCursor=true" : "/vnc/screenshot",
			 &url, &p.err);
	const struct http_call call = {
		.url = url, .response_max = LIMIT_PICTURE_BYTES + 1, .done = on_picture, .arg = &p};

	if (!rc)
		rc = http_call(client_http(c), &slot, &call, &p.err);
	if (!rc)
		rc = loop_run(p.loop, NULL, &p.err);
	return rc || p.rc ? cmd_fail(&p.err) : EXIT_OK;
}

/* --- the command --- */

struct vnc_args {
	struct client_flags flags;
	const char *address, *port, *file;
	bool proxy_only, preserves, moves;
};

static int run(const struct cmd *c, const struct vnc_args *a, bool is_picture, const char *name)
{
	struct vnc v = {.address = a->address, .proxy_only = a->proxy_only};
	uint64_t port = 0;
	struct err err = {0};
	int code;

	if (is_picture != (a->file != NULL))
		return cmd_usage(c, is_picture ? "--file is needed ('-': standard output)"
					       : "--file is for 'vnc screenshot'");
	if (str_to_u64(a->port, 65535, &port, &err))
		return cmd_usage(c, "--port: %s", err.msg);
	if (client_open(&v.client, &a->flags, &err))
		return cmd_fail(&err);
	v.port = (uint16_t)port;
	code = is_picture ? screenshot(v.client, name, a->file, a->moves)
			  : vnc_session(&v, name, a->preserves);
	client_free(v.client);
	return code;
}

static int vnc_run(const struct cmd *c, int argc, char **argv)
{
	struct vnc_args a = {.address = "127.0.0.1", .port = "0"};
	const struct opt opts[] = {
		{.name = "--kubeconfig", .value = &a.flags.kubeconfig},
		{.name = "--namespace", .letter = 'n', .value = &a.flags.ns},
		{.name = "--proxy-only", .is_flag = true, .flag = &a.proxy_only},
		{.name = "--address", .value = &a.address},
		{.name = "--port", .value = &a.port},
		{.name = "--preserve-session", .is_flag = true, .flag = &a.preserves},
		{.name = "--file", .letter = 'f', .value = &a.file},
		{.name = "--move-cursor", .letter = 'm', .is_flag = true, .flag = &a.moves},
		{0},
	};
	int n;
	bool help;

	if (!cmd_parse(c, argc, argv, opts, &n, &help))
		return help ? EXIT_OK : EXIT_USAGE;
	bool is_picture = n == 2 && str_eq(argv[0], "screenshot");

	if (n != 1 && !is_picture)
		return cmd_usage(c, "one VMI is needed");
	return run(c, &a, is_picture, argv[n - 1]);
}

const struct cmd cmd_vnc = {
	.name = "vnc",
	.args = "VMI [--proxy-only] [--address A] [--port N] [--preserve-session] | "
		"screenshot VMI --file F [--move-cursor]",
	.summary = "Show a guest's screen, or take a picture of it.",
	.help = "A viewer (remote-viewer, vncviewer) is started at a local port. With --proxy-only the\n"
		"port is printed as {\"port\":N}, and one viewer may connect to it. The session ends when\n"
		"the guest moves to another node: connect again.\n",
	.run = vnc_run,
};
