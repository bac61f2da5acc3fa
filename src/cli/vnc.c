/* src/cli/vnc.c - the guest's screen: a local port for a VNC viewer, and pictures; in virtctl's words. */
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
#include "base/str.h"
#include "cli/client.h"
#include "cli/cmd.h"
#include "cli/wsjoin.h"
#include "ev/ev.h"
#include "http/client.h"
#include "http/join.h"

static const usec_t LISTEN_TIMEOUT = 60 * USEC_PER_SEC; /* for a viewer that we started */

#define VMIS "virtualmachineinstances"

extern char **environ;

/* One session: connected first, so that a refusal is told before anybody waits at the port. */
struct vnc {
	struct client *client;
	struct loop *loop;
	const char *address;
	uint16_t port;
	bool proxy_only;
	struct http_join *join;
	int listen_fd;
	struct ev_src *io; /* the port */
	struct ev_src *deadline, *child;
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

static void on_port(uint32_t revents, void *arg)
{
	struct vnc *v = arg;
	int fd = accept4(v->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	(void)revents;
	if (fd < 0)
		return;
	v->io = ev_src_free(v->io);
	v->deadline = ev_src_free(v->deadline);
	v->listen_fd = fd_close(v->listen_fd); /* one viewer, as virtctl has it */
	if (http_join_attach(v->join, fd, fd, &v->err))
		leave(v, EXIT_FAIL);
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
	if (v->listen_fd >= 0)
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
	enum rc rc = wsjoin_listen(SOCK_STREAM, v->address, &v->port, &v->listen_fd, err);

	return rc ? rc : ev_io(v->loop, &v->io, v->listen_fd, EPOLLIN, on_port, v, err);
}

/* --- the server --- */

static void on_open(struct http_join *j, void *arg)
{
	struct vnc *v = arg;

	(void)j;
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

static void on_end(struct http_join *j, enum rc rc, const char *text, void *arg)
{
	struct vnc *v = arg;

	(void)j;
	if (rc) {
		fail(v, rc, text);
		return;
	}
	if (!str_is_empty(text))
		fprintf(stderr, "%s\n", text);
	leave(v, EXIT_OK);
}

static const struct http_join_ops ops = {.on_open = on_open, .on_end = on_end};

static int vnc_session(struct vnc *v, const char *name, bool preserves)
{
	v->loop = client_loop(v->client);
	v->listen_fd = -1;
	enum rc rc =
		wsjoin_connect(&v->join, v->client, VMIS, NULL, name,
			       preserves ? "/vnc?preserveSession=true" : "/vnc", &ops, v, &v->err);

	if (!rc)
		rc = loop_run(v->loop, NULL, &v->err);
	ev_src_free(v->io);
	ev_src_free(v->deadline);
	ev_src_free(v->child);
	http_join_free(v->join);
	fd_close(v->listen_fd);
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
	enum rc rc = wsjoin_url(c, VMIS, NULL, name,
				moves ? "/vnc/screenshot?moveCursor=true" : "/vnc/screenshot", &url,
				&p.err);
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
