#include "cli/wsjoin.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "cli/client.h"
#include "ev/ev.h"
#include "http/uri.h"
#include "http/ws.h"

enum { CHUNK = 16 * 1024, PIPE_CHUNK = 4096, WAITING_MAX = 256 * 1024 };
static const usec_t OPEN_TIMEOUT = 15 * USEC_PER_SEC;

struct wsjoin {
	struct loop *loop;
	const struct wsjoin_ops *ops;
	void *arg;
	char *url;
	struct http_ws *ws;
	bool has_opened;
	int in_fd, out_fd;
	size_t write_max;	 /* that does not wait when there is room */
	struct ev_src *in, *out; /* NULL: nothing is waited for there right now */
	struct sbuf waiting;	 /* for out_fd */
	bool is_blocked;	 /* the server does not take what comes in */
	bool has_left;		 /* the local side: only the good-bye to the server is waited for */
	bool is_ending;		 /* the server: what it has said is still to be passed on */
	bool has_ended;
	char text[128];
};

static void finish(struct wsjoin *j, enum rc rc, const char *text)
{
	if (j->has_ended)
		return;
	j->has_ended = true;
	j->in = ev_src_free(j->in);
	j->out = ev_src_free(j->out);
	j->ops->on_end(j, rc, text, j->arg);
}

static void local_has_left(struct wsjoin *j)
{
	j->has_left = true;
	j->in = ev_src_free(j->in);
	j->out = ev_src_free(j->out);
	if (j->is_ending) {
		finish(j, RC_OK, j->text);
		return;
	}
	http_ws_pause(j->ws, false);
	http_ws_close(j->ws, HTTP_WS_NORMAL, NULL);
}

static void on_in(uint32_t revents, void *arg);
static void on_out(uint32_t revents, void *arg);

static enum rc want(struct wsjoin *j, struct ev_src **src, int fd, bool on, uint32_t what,
		    void (*fn)(uint32_t revents, void *arg), struct err *err)
{
	if (!on)
		*src = ev_src_free(*src);
	else if (!*src)
		return ev_io(j->loop, src, fd, what, fn, j, err);
	return RC_OK;
}

static void watch(struct wsjoin *j)
{
	struct err err = {0};

	if (!wsjoin_is_attached(j) || j->has_left || j->has_ended)
		return;
	enum rc rc =
		want(j, &j->in, j->in_fd, !j->is_blocked && !j->is_ending, EPOLLIN, on_in, &err);

	if (!rc)
		rc = want(j, &j->out, j->out_fd, j->waiting.n > 0, EPOLLOUT, on_out, &err);
	if (rc)
		finish(j, rc, err.msg);
}

static void on_in(uint32_t revents, void *arg)
{
	struct wsjoin *j = arg;
	char chunk[CHUNK];
	ssize_t n = read(j->in_fd, chunk, sizeof(chunk));

	(void)revents;
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
		local_has_left(j);
		return;
	}
	if (n > 0)
		ignore_rc(http_ws_send(j->ws, false, chunk, (size_t)n)); /* there is room */
	j->is_blocked = http_ws_backlog(j->ws) > HTTP_WS_BACKLOG / 2;
	watch(j);
}

static void on_out(uint32_t revents, void *arg)
{
	struct wsjoin *j = arg;
	ssize_t n = write(j->out_fd, j->waiting.p, MIN(j->waiting.n, j->write_max));

	(void)revents;
	if (n < 0 && errno != EAGAIN && errno != EINTR) {
		local_has_left(j);
		return;
	}
	if (n > 0)
		sbuf_drop(&j->waiting, (size_t)n);
	if (j->waiting.n <= WAITING_MAX / 4)
		http_ws_pause(j->ws, false);
	if (j->is_ending && !j->waiting.n)
		finish(j, RC_OK, j->text);
	else
		watch(j);
}

/* --- the server --- */

static void on_open(struct http_ws *ws, const char *protocol, void *arg)
{
	struct wsjoin *j = arg;

	(void)protocol;
	j->has_opened = true;
	http_ws_pause(ws, true);
	j->ops->on_open(j, j->arg);
}

static void on_message(struct http_ws *ws, bool is_text, const uint8_t *bytes, size_t n, void *arg)
{
	struct wsjoin *j = arg;

	if (is_text || j->has_left || j->has_ended)
		return;
	sbuf_add(&j->waiting, bytes, n);
	if (sbuf_rc(&j->waiting)) {
		finish(j, RC_TOO_BIG, "what the server says is not taken here");
		return;
	}
	if (j->waiting.n > WAITING_MAX / 2)
		http_ws_pause(ws, true);
	watch(j);
}

static void on_room(struct http_ws *ws, void *arg)
{
	struct wsjoin *j = arg;

	(void)ws;
	j->is_blocked = false;
	watch(j);
}

static void on_close(struct http_ws *ws, uint16_t code, const char *reason, int status,
		     const struct err *why, void *arg)
{
	struct wsjoin *j = arg;

	(void)ws;
	(void)status;
	if (!j->has_opened) {
		finish(j, why ? why->rc : RC_IO, why ? why->msg : "Can't connect to websocket");
		return;
	}
	if (j->has_left) {
		finish(j, RC_OK, "");
		return;
	}
	if (code == HTTP_WS_ABNORMAL) {
		finish(j, RC_CLOSED, "the connection was lost");
		return;
	}
	(void)snprintf(j->text, sizeof(j->text), "%s", reason ? reason : "");
	j->is_ending = true;
	if (!j->waiting.n || !wsjoin_is_attached(j))
		finish(j, RC_OK, j->text);
	else
		watch(j); /* the rest is for whoever is slow here */
}

static const struct http_ws_ops ws_ops = {
	.on_open = on_open, .on_message = on_message, .on_room = on_room, .on_close = on_close};

enum rc wsjoin_url(const struct client *c, const char *plural, const char *ns, const char *name,
		   const char *path, char **out, struct err *err)
{
	struct sbuf b = SBUF_INIT(LIMIT_URL_BYTES);
	size_t n;

	sbuf_addf(&b, "%s/apis/subresources.kubevirt.io/v1/namespaces/", client_server(c));
	http_uri_escape(&b, ns ? ns : client_ns(c));
	sbuf_addf(&b, "/%s/", plural);
	http_uri_escape(&b, name);
	sbuf_adds(&b, path);
	enum rc rc = sbuf_take(&b, out, &n);

	return rc ? err_set(err, rc, "cannot make the URL") : RC_OK;
}

enum rc wsjoin_new(struct wsjoin **out, struct client *c, const char *plural, const char *ns,
		   const char *name, const char *path, const struct wsjoin_ops *ops, void *arg,
		   struct err *err)
{
	struct wsjoin *j = mem_alloc(sizeof(*j));

	if (!j)
		return err_set(err, RC_NOMEM, "out of memory");
	j->loop = client_loop(c);
	j->ops = ops;
	j->arg = arg;
	j->in_fd = j->out_fd = -1;
	sbuf_init(&j->waiting, 2 * WAITING_MAX);
	enum rc rc = wsjoin_url(c, plural, ns, name, path, &j->url, err);

	if (!rc)
		rc = http_ws_connect(client_http(c), &j->ws, j->url, "plain.kubevirt.io",
				     OPEN_TIMEOUT, &ws_ops, j, err);
	if (rc) {
		wsjoin_free(j);
		return rc;
	}
	*out = j;
	return RC_OK;
}

enum rc wsjoin_attach(struct wsjoin *j, int in_fd, int out_fd, struct err *err)
{
	/* A socket is watched twice, for each way by itself; a pipe with room takes as much as this without waiting. */
	j->write_max = in_fd == out_fd ? SIZE_MAX : PIPE_CHUNK;
	j->in_fd = in_fd;
	j->out_fd = in_fd == out_fd ? fcntl(in_fd, F_DUPFD_CLOEXEC, 0) : out_fd;
	if (j->out_fd < 0)
		return err_set_sys(err, errno, "cannot watch the connection");
	enum rc rc = want(j, &j->in, in_fd, true, EPOLLIN, on_in, err);

	if (!rc)
		http_ws_pause(j->ws, false);
	return rc;
}

bool wsjoin_is_attached(const struct wsjoin *j)
{
	return j->in_fd >= 0;
}

struct wsjoin *wsjoin_free(struct wsjoin *j)
{
	if (!j)
		return NULL;
	ev_src_free(j->in);
	ev_src_free(j->out);
	http_ws_free(j->ws);
	fd_close(j->out_fd);
	fd_close(j->in_fd);
	sbuf_fini(&j->waiting);
	mem_free(j->url);
	return mem_free(j);
}

enum rc wsjoin_listen(const char *address, uint16_t *port, int *fd, struct err *err)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(*port)};
	CLEANUP(fd_closep) int s = -1;
	socklen_t n = sizeof(a);
	int on = 1;

	if (inet_pton(AF_INET, address, &a.sin_addr) != 1)
		return err_set(err, RC_INVALID, "--address: '%s' is not an IPv4 address", address);
	s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (s < 0 || setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
	    bind(s, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(s, 64) < 0 ||
	    getsockname(s, (struct sockaddr *)&a, &n) < 0)
		return err_set_sys(err, errno, "cannot listen at %s:%u", address, *port);
	*port = ntohs(a.sin_port);
	*fd = STEAL_FD(s);
	return RC_OK;
}
