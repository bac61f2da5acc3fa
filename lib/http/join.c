#include "http/join.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "ev/ev.h"
#include "http/client.h"
#include "http/server.h"
#include "http/ws.h"

/* Each way has a source of its own, which is there only while something is waited for: an end of the stream would be
 * told of without pause else.  A socket is watched twice therefore, by a duplicate.
 *
 * is_over: the stream has been let go, the websocket's end is waited for.  is_ending: the other way round.  finish()
 * comes last in every path, since the owner may free us there.
 */
enum { CHUNK = 16 * 1024, DATAGRAM = 65536, PIPE_CHUNK = 4096 };

struct http_join {
	struct loop *loop;
	struct http_join_config cfg;
	struct http_ws *ws;
	int in_fd, out_fd;
	struct ev_src *in, *out, *timer;
	struct sbuf waiting; /* for the stream */
	uint8_t *chunk;	     /* what was read last */
	bool is_socket;
	bool has_opened;
	bool is_blocked; /* the peer does not take what comes */
	bool is_deaf;	 /* the stream takes nothing any more, but may have something to say */
	bool is_over, is_ending;
	enum rc rc;
	char text[sizeof(((struct err *)NULL)->msg)];
};

static void on_in(uint32_t revents, void *arg);
static void on_out(uint32_t revents, void *arg);

static void let_go(struct http_join *j)
{
	j->is_over = true;
	j->in = ev_src_free(j->in);
	j->out = ev_src_free(j->out);
	j->timer = ev_src_free(j->timer);
	j->out_fd = fd_close(j->out_fd);
	j->in_fd = fd_close(j->in_fd);
}

static void finish(struct http_join *j)
{
	let_go(j);
	j->cfg.ops->on_end(j, j->rc, j->text, j->cfg.arg);
}

static void leave(struct http_join *j, uint16_t code, const char *reason)
{
	let_go(j);
	if (j->is_ending) {
		finish(j);
		return;
	}
	http_ws_pause(j->ws, false);
	http_ws_close(j->ws, code, reason);
}

/* What on_end is to say. */
static void note(struct http_join *j, enum rc rc, const char *text)
{
	j->rc = rc;
	(void)snprintf(j->text, sizeof(j->text), "%s", text);
}

static void give_up(struct http_join *j, enum rc rc, const char *text)
{
	note(j, rc, text);
	leave(j, HTTP_WS_INTERNAL, text);
}

static enum rc want(struct http_join *j, struct ev_src **src, int fd, bool on, uint32_t what,
		    ev_io_fn fn, struct err *err)
{
	if (!on)
		*src = ev_src_free(*src);
	else if (!*src)
		return ev_io(j->loop, src, fd, what, fn, j, err);
	return RC_OK;
}

static enum rc watch_both(struct http_join *j, struct err *err)
{
	enum rc rc =
		want(j, &j->in, j->in_fd, !j->is_blocked && !j->is_ending, EPOLLIN, on_in, err);

	return rc ? rc : want(j, &j->out, j->out_fd, j->waiting.n > 0, EPOLLOUT, on_out, err);
}

static void watch(struct http_join *j)
{
	struct err err = {0};

	if (j->in_fd >= 0 && watch_both(j, &err))
		give_up(j, err.rc, err.msg);
}

/* --- the stream --- */

static bool is_broken(ssize_t n)
{
	return n < 0 && errno != EAGAIN && errno != EINTR;
}

static void on_in(uint32_t revents, void *arg)
{
	struct http_join *j = arg;
	size_t max = j->cfg.is_datagram ? DATAGRAM : CHUNK;
	ssize_t n = j->is_socket ? recv(j->in_fd, j->chunk, max, MSG_DONTWAIT)
				 : read(j->in_fd, j->chunk, max);

	(void)revents;
	if (is_broken(n) || (n == 0 && !j->cfg.is_datagram)) {
		leave(j, HTTP_WS_NORMAL, j->cfg.bye);
		return;
	}
	/* Never busy: reading stops at half of the backlog. */
	if (n >= 0 && http_ws_send(j->ws, false, j->chunk, (size_t)n) == RC_NOMEM) {
		give_up(j, RC_NOMEM, "out of memory");
		return;
	}
	j->is_blocked = http_ws_backlog(j->ws) > HTTP_WS_BACKLOG / 2;
	watch(j);
}

static void on_out(uint32_t revents, void *arg)
{
	struct http_join *j = arg;
	ssize_t n = j->is_socket ? send(j->out_fd, j->waiting.p, j->waiting.n,
					MSG_NOSIGNAL | MSG_DONTWAIT)
				 /* with room it takes as much without waiting */
				 : write(j->out_fd, j->waiting.p, MIN(j->waiting.n, PIPE_CHUNK));

	(void)revents;
	if (is_broken(n) && !j->is_socket) {
		leave(j, HTTP_WS_NORMAL, j->cfg.bye);
		return;
	}
	if (is_broken(n)) {
		j->is_deaf = true;
		sbuf_reset(&j->waiting);
	} else if (n > 0) {
		sbuf_drop(&j->waiting, (size_t)n);
	}
	if (j->waiting.n <= HTTP_JOIN_WAITING / 4)
		http_ws_pause(j->ws, false);
	if (j->is_ending && !j->waiting.n)
		finish(j);
	else
		watch(j);
}

/* --- the websocket --- */

static void on_open(struct http_ws *ws, const char *protocol, void *arg)
{
	struct http_join *j = arg;

	(void)protocol;
	if (j->has_opened) /* we are the server */
		return;
	j->has_opened = true;
	http_ws_pause(ws, true);
	if (j->cfg.ops->on_open)
		j->cfg.ops->on_open(j, j->cfg.arg);
}

static void on_message(struct http_ws *ws, bool is_text, const uint8_t *bytes, size_t n, void *arg)
{
	struct http_join *j = arg;

	if (is_text || j->is_over || j->is_deaf)
		return;
	if (j->cfg.is_datagram) {
		if (send(j->out_fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno == EMSGSIZE)
			leave(j, HTTP_WS_TOO_BIG, "the message is too large for a datagram");
		return;
	}
	sbuf_add(&j->waiting, bytes, n);
	if (sbuf_rc(&j->waiting)) {
		give_up(j, sbuf_rc(&j->waiting), "out of memory");
		return;
	}
	if (j->waiting.n > HTTP_JOIN_WAITING / 2)
		http_ws_pause(ws, true);
	watch(j);
}

static void on_room(struct http_ws *ws, void *arg)
{
	struct http_join *j = arg;

	(void)ws;
	j->is_blocked = false;
	watch(j);
}

static void on_late(void *arg)
{
	finish(arg);
}

static void on_close(struct http_ws *ws, uint16_t code, const char *reason, int status,
		     const struct err *why, void *arg)
{
	struct http_join *j = arg;

	(void)ws;
	(void)status;
	j->is_ending = true;
	if (!j->has_opened)
		note(j, why ? why->rc : RC_IO, why ? why->msg : "Can't connect to websocket");
	else if (!j->is_over && code == HTTP_WS_ABNORMAL)
		note(j, RC_CLOSED, "the connection was lost");
	else if (!j->is_over)
		note(j, RC_OK, reason);
	if (j->in_fd < 0 || !j->waiting.n || !j->cfg.last_words ||
	    ev_timer_after(j->loop, &j->timer, j->cfg.last_words, on_late, j, NULL))
		finish(j);
	else
		watch(j); /* the rest is for whoever is slow here */
}

static const struct http_ws_ops ws_ops = {
	.on_open = on_open, .on_message = on_message, .on_room = on_room, .on_close = on_close};

/* --- the owner's calls --- */

static struct http_join *join_new(struct loop *loop, const struct http_join_config *config)
{
	struct http_join *j = mem_alloc(sizeof(*j));

	if (!j)
		return NULL;
	j->loop = loop;
	j->cfg = *config;
	j->in_fd = j->out_fd = -1;
	sbuf_init(&j->waiting, 2 * HTTP_JOIN_WAITING);
	j->chunk = mem_alloc(config->is_datagram ? DATAGRAM : CHUNK);
	return j->chunk ? j : http_join_free(j);
}

static enum rc take_fds(struct http_join *j, int in_fd, int out_fd, struct err *err)
{
	j->is_socket = in_fd == out_fd;
	j->in_fd = in_fd;
	j->out_fd = j->is_socket ? fcntl(in_fd, F_DUPFD_CLOEXEC, 3) : out_fd;
	return j->out_fd < 0 ? err_set_sys(err, errno, "cannot watch the stream")
			     : watch_both(j, err);
}

enum rc http_join_connect(struct http_client *c, struct http_join **out, const char *url,
			  usec_t timeout, const struct http_join_config *config, struct err *err)
{
	struct http_join *j = join_new(http_client_loop(c), config);

	if (!j)
		return err_set(err, RC_NOMEM, "out of memory");
	enum rc rc = http_ws_connect(c, &j->ws, url, config->protocol, timeout, &ws_ops, j, err);

	if (rc)
		http_join_free(j);
	else
		*out = j;
	return rc;
}

enum rc http_join_attach(struct http_join *j, int in_fd, int out_fd, struct err *err)
{
	enum rc rc = take_fds(j, in_fd, out_fd, err);

	if (!rc)
		http_ws_pause(j->ws, j->waiting.n > HTTP_JOIN_WAITING / 2);
	return rc;
}

enum rc http_join_upgrade(struct http_req *req, struct http_join **out, int fd,
			  const struct http_join_config *config, struct err *err)
{
	const char *const protocols[] = {config->protocol, NULL};
	struct http_join *j = join_new(http_req_loop(req), config);

	if (!j) {
		fd_close(fd);
		return err_set(err, RC_NOMEM, "out of memory");
	}
	j->has_opened = true;
	enum rc rc = take_fds(j, fd, fd, err);

	if (!rc)
		rc = http_upgrade_ws(req, http_req_ws_protocol(req, protocols), &ws_ops, j, &j->ws,
				     err);
	if (rc)
		http_join_free(j);
	else
		*out = j;
	return rc;
}

bool http_join_is_live(const struct http_join *j)
{
	return !j->is_over && !j->is_ending;
}

void http_join_close(struct http_join *j, uint16_t code, const char *reason)
{
	leave(j, code, reason);
}

struct http_join *http_join_free(struct http_join *j)
{
	if (!j)
		return NULL;
	let_go(j);
	http_ws_free(j->ws);
	sbuf_fini(&j->waiting);
	mem_free(j->chunk);
	return mem_free(j);
}
