#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "ev/ev.h"
#include "ipc/ipc.h"
#include "ipc/stream.h"
#include "json/json.h"

enum { BACKLOG = 16, MAX_OPEN_CALLS = 64 };
static const usec_t HELLO_TIMEOUT = 10 * USEC_PER_SEC;

struct ipc_peer {
	struct list link; /* in server->peers */
	struct ipc_server *s;
	struct ipc_stream st;
	struct list calls;
	unsigned n_calls;
	bool said_hello;
	struct ev_src *hello_deadline;
};

struct ipc_call {
	struct list link;      /* in peer->calls */
	struct ipc_peer *peer; /* NULL: the client has gone */
	int64_t id;
};

struct ipc_server {
	struct loop *loop;
	int fd;
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
	struct ev_src *io;
	struct ipc_server_config config;
	const struct ipc_server_ops *ops;
	void *arg;
	struct list peers;
	size_t n_peers;
};

size_t ipc_server_clients(const struct ipc_server *s)
{
	size_t n = 0;

	LIST_FOREACH(it, &s->peers)
		n += LIST_ENTRY(it, struct ipc_peer, link)->said_hello;
	return n;
}

static void peer_free(struct ipc_peer *p)
{
	struct ipc_server *s = p->s;

	for (struct list *it; (it = list_pop_head(&p->calls));)
		LIST_ENTRY(it, struct ipc_call, link)->peer = NULL;
	p->hello_deadline = ev_src_free(p->hello_deadline);
	stream_fini(&p->st);
	if (list_is_linked(&p->link)) {
		list_remove(&p->link);
		s->n_peers--;
	}
	mem_free(p);
}

static void on_peer_end(enum rc rc, const char *why, void *arg)
{
	struct ipc_peer *p = arg;
	struct ipc_server *s = p->s;
	bool counted = p->said_hello;

	log_debug("ipc: a client left: %s", why);
	peer_free(p);
	if (counted && s->ops->on_clients)
		s->ops->on_clients(ipc_server_clients(s), s->arg);
}

static void on_hello_late(void *arg)
{
	struct ipc_peer *p = arg;

	stream_break(&p->st, RC_TIMEOUT, "no hello in time");
}

/* --- answers --- */

static void call_free(struct ipc_call *call)
{
	if (call->peer) {
		list_remove(&call->link);
		call->peer->n_calls--;
	}
	mem_free(call);
}

/* Consumes msg (NULL: out of memory) and fds. */
static void call_answer(struct ipc_call *call, struct json *msg, const int *fds, size_t n_fds)
{
	CLEANUP(js_unrefp) struct json *own = msg;
	struct ipc_frame *f = NULL;
	struct ipc_peer *p = call->peer;

	if (!p || !own) {
		for (size_t i = 0; i < n_fds; i++)
			fd_close(fds[i]);
	} else if (!frame_new(&f, own, fds, n_fds, NULL)) {
		stream_send(&p->st, f);
	}
	if (p && !f) /* an answer that cannot be given must not look like a slow one */
		stream_break(&p->st, RC_NOMEM, "an answer could not be built");
	call_free(call);
}

void ipc_call_done(struct ipc_call *call, struct json *result, const int *fds, size_t n_fds)
{
	struct json *msg = NULL;

	if (result)
		msg = js_pack("{s:I, s:O}", "id", call->id, "result", result);
	js_unref(result);
	call_answer(call, msg, fds, n_fds);
}

static void call_fail(struct ipc_call *call, enum rc rc, const char *text)
{
	call_answer(call,
		    js_pack("{s:I, s:{s:s, s:s}}", "id", call->id, "error", "rc", rc_name(rc),
			    "message", text),
		    NULL, 0);
}

void ipc_call_fail(struct ipc_call *call, enum rc rc, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	call_fail(call, rc, text);
}

void ipc_call_fail_err(struct ipc_call *call, const struct err *err)
{
	call_fail(call, err->rc ? err->rc : RC_IO, err->msg);
}

/* --- requests --- */

static void answer_hello(struct ipc_peer *p, struct ipc_call *call, const struct json *params)
{
	const struct ipc_version *we = &p->s->config.speaks;
	int64_t min = js_int(js_at(params, "versions", "min", NULL), -1);
	int64_t max = js_int(js_at(params, "versions", "max", NULL), -1);
	int64_t pick = MIN(max, (int64_t)we->max);

	if (min < 0 || max < min) {
		ipc_call_fail(call, RC_INVALID, "hello needs 'versions' with 'min' and 'max'");
		return;
	}
	if (pick < min || pick < (int64_t)we->min) {
		ipc_call_fail(call, RC_UNSUPPORTED, "no common version: %u to %u are spoken here",
			      we->min, we->max);
		return;
	}
	struct json *result = p->s->config.hello ? js_copy(p->s->config.hello) : js_new_object();

	if (js_set(result, "version", js_new_int(pick)) ||
	    js_set(result, "name", js_new_str(p->s->config.name)))
		result = js_unref(result);
	p->said_hello = true;
	p->hello_deadline = ev_src_free(p->hello_deadline);
	log_debug("ipc: '%s' connected",
		  js_get_str(params, "name") ? js_get_str(params, "name") : "?");
	ipc_call_done(call, result, NULL, 0);
}

static void on_peer_frame(const struct json *msg, struct ipc_fds *fds, void *arg)
{
	struct ipc_peer *p = arg;
	struct ipc_server *s = p->s;
	const char *method = js_get_str(msg, "method");
	const struct json *params = js_get(msg, "params");
	int64_t id = js_get_int(msg, "id", -1);
	struct ipc_call *call;

	if (!method || id < 0 || (params && !js_is_object(params)) ||
	    p->n_calls >= MAX_OPEN_CALLS) {
		stream_break(&p->st, RC_BAD_REQUEST, "not a request, or too many unanswered ones");
		return;
	}
	if (!p->said_hello && !str_eq(method, "hello")) {
		stream_break(&p->st, RC_BAD_REQUEST, "a request before hello");
		return;
	}
	call = mem_alloc(sizeof(*call));
	if (!call) {
		stream_break(&p->st, RC_NOMEM, "out of memory");
		return;
	}
	call->peer = p;
	call->id = id;
	list_push_tail(&p->calls, &call->link);
	p->n_calls++;
	if (!str_eq(method, "hello")) {
		s->ops->on_request(call, method, params, fds,
				   s->arg); /* p may be gone afterwards */
		return;
	}
	bool is_new = !p->said_hello;

	answer_hello(p, call, params);
	if (is_new && p->said_hello && s->ops->on_clients)
		s->ops->on_clients(ipc_server_clients(s), s->arg);
}

/* --- listening --- */

static bool may_connect(int fd)
{
	struct ucred cred;
	socklen_t n = sizeof(cred);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) == 0 &&
	       (cred.uid == 0 || cred.uid == geteuid());
}

static enum rc peer_new(struct ipc_server *s, int fd, struct err *err)
{
	CLEANUP(fd_closep) int own = fd;
	struct ipc_peer *p = mem_alloc(sizeof(*p));
	enum rc rc;

	if (!p)
		return err_set(err, RC_NOMEM, "cannot allocate a client");
	p->s = s;
	list_init(&p->calls);
	p->st.fd = -1;
	p->st.on_frame = on_peer_frame;
	p->st.on_end = on_peer_end;
	p->st.arg = p;
	rc = stream_init(&p->st, s->loop, STEAL_FD(own), err);
	if (!rc)
		rc = ev_timer_after(s->loop, &p->hello_deadline, HELLO_TIMEOUT, on_hello_late, p,
				    err);
	if (rc) {
		peer_free(p);
		return rc;
	}
	list_push_tail(&s->peers, &p->link);
	s->n_peers++;
	return RC_OK;
}

static void on_accept(uint32_t revents, void *arg)
{
	struct ipc_server *s = arg;

	for (int i = 0; i < BACKLOG; i++) {
		struct err err = {0};
		CLEANUP(fd_closep)
		int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0)
			return;
		if (!may_connect(fd) || s->n_peers >= s->config.max_clients) {
			log_debug("ipc: a client was refused");
			continue;
		}
		if (peer_new(s, STEAL_FD(fd), &err))
			log_debug("ipc: a client was refused: %s", err.msg);
	}
}

/* RC_EXISTS: somebody answers there. */
static enum rc clear_stale(const struct sockaddr_un *addr, struct err *err)
{
	CLEANUP(fd_closep) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return err_set_sys(err, errno, "cannot make a socket");
	if (connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) == 0 || errno == EAGAIN)
		return err_set(err, RC_EXISTS, "'%s' is served by a running process",
			       addr->sun_path);
	if (errno == ECONNREFUSED && unlink(addr->sun_path) < 0 && errno != ENOENT)
		return err_set_sys(err, errno, "cannot remove the stale socket '%s'",
				   addr->sun_path);
	return RC_OK;
}

static enum rc server_listen(struct ipc_server *s, const char *path, struct err *err)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	enum rc rc;

	if (strlen(path) >= sizeof(addr.sun_path))
		return err_set(err, RC_INVALID, "socket path '%s' is too long", path);
	memcpy(addr.sun_path, path, strlen(path));
	rc = clear_stale(&addr, err);
	if (rc)
		return rc;
	s->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (s->fd < 0)
		return err_set_sys(err, errno, "cannot make a socket");
	/* On an unbound socket's descriptor: bind() then makes the file with this mode at once. */
	if (fchmod(s->fd, s->config.mode) < 0 ||
	    bind(s->fd, (struct sockaddr *)&addr, sizeof(addr)) < 0)
		return err_set_sys(err, errno, "cannot bind '%s'", path);
	memcpy(s->path, addr.sun_path, sizeof(s->path));
	if (listen(s->fd, BACKLOG) < 0)
		return err_set_sys(err, errno, "cannot listen on '%s'", path);
	return ev_io(s->loop, &s->io, s->fd, EPOLLIN, on_accept, s, err);
}

enum rc ipc_server_new(struct ipc_server **out, struct loop *loop, const char *path,
		       const struct ipc_server_config *config, const struct ipc_server_ops *ops,
		       void *arg, struct err *err)
{
	CLEANUP(ipc_server_freep) struct ipc_server *s = mem_alloc(sizeof(*s));
	enum rc rc;

	if (!s)
		return err_set(err, RC_NOMEM, "cannot allocate the server");
	s->loop = loop;
	s->fd = -1;
	s->config = *config;
	s->ops = ops;
	s->arg = arg;
	list_init(&s->peers);
	rc = server_listen(s, path, err);
	if (rc)
		return rc;
	*out = STEAL(s);
	return RC_OK;
}

struct ipc_server *ipc_server_free(struct ipc_server *s)
{
	if (!s)
		return NULL;
	while (!list_is_empty(&s->peers))
		peer_free(LIST_ENTRY(s->peers.next, struct ipc_peer, link));
	s->io = ev_src_free(s->io);
	if (s->path[0])
		unlink(s->path);
	fd_close(s->fd);
	return mem_free(s);
}

void ipc_server_event(struct ipc_server *s, const char *name, struct json *data)
{
	CLEANUP(js_unrefp) struct json *msg = js_pack("{s:s, s:o}", "event", name, "data", data);

	LIST_FOREACH(it, &s->peers) {
		struct ipc_peer *p = LIST_ENTRY(it, struct ipc_peer, link);
		struct ipc_frame *f = NULL;

		if (!p->said_hello)
			continue;
		if (!msg || frame_new(&f, msg, NULL, 0, NULL))
			stream_break(
				&p->st, RC_NOMEM,
				"an event could not be built"); /* it looks again after reconnecting */
		else
			stream_send(&p->st, f);
	}
}
