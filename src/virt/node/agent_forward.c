#include "virt/node/agent_forward.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "ev/ev.h"
#include "http/server.h"
#include "http/ws.h"
#include "virt/node/agent_answer.h"

enum { CHUNK = 16 * 1024, DATAGRAM = 65536, WAITING_MAX = 128 * 1024 };
static const usec_t DIAL_TIMEOUT = 8 * USEC_PER_SEC, LAST_WORDS = 5 * USEC_PER_SEC;

struct forwards {
	struct loop *loop;
	struct list all;
	uint8_t datagram[DATAGRAM]; /* one at a time: the loop has one thread */
};

struct forward {
	struct list link;
	struct forwards *f;
	struct http_req *req; /* until the upgrade */
	struct http_ws *ws;   /* NULL: not yet, or the client has gone */
	int fd;
	struct ev_src *io, *timer;
	struct sbuf to_guest;
	bool is_udp, is_blocked; /* the client does not read */
	char where[96];
};

static void forward_free(struct forward *w)
{
	list_remove(&w->link);
	ev_src_free(w->io);
	ev_src_free(w->timer);
	fd_close(w->fd);
	http_ws_free(w->ws);
	sbuf_fini(&w->to_guest);
	mem_free(w);
}

/* Before the upgrade. */
static void fail(struct forward *w, const char *why)
{
	char text[256];

	(void)snprintf(text, sizeof(text), "dialing VM: dial %s %s: %s", w->is_udp ? "udp" : "tcp",
		       w->where, why);
	http_req_on_cancel(w->req, NULL, NULL);
	agent_answer(w->req, 500, "InternalError", "%s", text);
	forward_free(w);
}

static void watch(struct forward *w)
{
	if (w->io)
		ev_io_set(w->io, (w->ws && !w->is_blocked ? EPOLLIN : 0u) |
					 (w->to_guest.n ? EPOLLOUT : 0u));
}

static void end(struct forward *w, const char *why)
{
	w->io = ev_src_free(w->io);
	if (w->ws)
		http_ws_close(w->ws, HTTP_WS_NORMAL, why);
	else
		forward_free(w);
}

/* --- to the guest --- */

static void push(struct forward *w)
{
	ssize_t n = send(w->fd, w->to_guest.p, w->to_guest.n, MSG_NOSIGNAL | MSG_DONTWAIT);

	if (n < 0 && errno != EAGAIN && errno != EINTR) {
		end(w, "the guest has closed the connection");
		return;
	}
	if (n > 0)
		sbuf_drop(&w->to_guest, (size_t)n);
	if (w->ws && w->to_guest.n <= WAITING_MAX / 2)
		http_ws_pause(w->ws, false);
	if (!w->ws && !w->to_guest.n)
		forward_free(w); /* the client has gone, and all that it said is there */
	else
		watch(w);
}

static void on_message(struct http_ws *ws, bool is_text, const uint8_t *bytes, size_t n, void *arg)
{
	struct forward *w = arg;

	if (is_text || !w->io)
		return;
	if (w->is_udp) { /* what the network does not take is lost, as datagrams are */
		(void)!send(w->fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
		return;
	}
	sbuf_add(&w->to_guest, bytes, n);
	if (sbuf_rc(&w->to_guest)) {
		end(w, "out of memory");
		return;
	}
	if (w->to_guest.n > WAITING_MAX)
		http_ws_pause(ws, true);
	watch(w);
}

static void on_room(struct http_ws *ws, void *arg)
{
	struct forward *w = arg;

	(void)ws;
	w->is_blocked = false;
	watch(w);
}

static void on_last_words(void *arg)
{
	forward_free(arg);
}

static void on_close(struct http_ws *ws, uint16_t code, const char *reason, int status,
		     const struct err *why, void *arg)
{
	struct forward *w = arg;

	(void)code;
	(void)reason;
	(void)status;
	(void)why;
	w->ws = http_ws_free(ws);
	if (!w->io || !w->to_guest.n ||
	    ev_timer_after(w->f->loop, &w->timer, LAST_WORDS, on_last_words, w, NULL))
		forward_free(w);
	else
		watch(w);
}

/* --- from the guest --- */

static void pull(struct forward *w)
{
	ssize_t n = recv(w->fd, w->f->datagram, w->is_udp ? DATAGRAM : CHUNK, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n < 0 || (n == 0 && !w->is_udp)) {
		end(w, "the guest has closed the connection");
		return;
	}
	/* Busy cannot be for a stream: reading stops at half of the backlog. */
	if (w->ws && n > 0 && http_ws_send(w->ws, false, w->f->datagram, (size_t)n) == RC_OK &&
	    http_ws_backlog(w->ws) > HTTP_WS_BACKLOG / 2)
		w->is_blocked = true;
	watch(w);
}

static void on_io(uint32_t revents, void *arg)
{
	struct forward *w = arg;

	if ((revents & EPOLLOUT) && w->to_guest.n)
		push(w);
	else if (revents & (EPOLLIN | EPOLLHUP | EPOLLERR))
		pull(w);
}

/* --- beginning --- */

static void on_dialled(uint32_t revents, void *arg)
{
	static const char *const protocols[] = {"plain.kubevirt.io", NULL};
	static const struct http_ws_ops ops = {
		.on_message = on_message, .on_room = on_room, .on_close = on_close};
	struct forward *w = arg;
	struct http_req *req = w->req;
	int error = 0;
	socklen_t len = sizeof(error);
	struct err err = {0};

	(void)revents;
	if (getsockopt(w->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
		error = errno;
	w->timer = ev_src_free(w->timer);
	w->io = ev_src_free(w->io);
	if (error) {
		fail(w, strerror(error));
		return;
	}
	if (ev_io(w->f->loop, &w->io, w->fd, EPOLLIN, on_io, w, &err)) {
		fail(w, err.msg);
		return;
	}
	http_req_on_cancel(req, NULL, NULL);
	if (http_upgrade_ws(req, http_req_ws_protocol(req, protocols), &ops, w, &w->ws, &err)) {
		agent_answer(req, 400, "BadRequest", "%s", err.msg);
		forward_free(w);
		return;
	}
	w->req = NULL;
}

static void on_late(void *arg)
{
	fail(arg, "i/o timeout");
}

static void on_cancel(struct http_req *req, void *arg)
{
	(void)req;
	forward_free(arg);
}

static void dial(struct forward *w, const struct sockaddr_in *to)
{
	int one = 1;
	struct err err = {0};

	w->fd = socket(AF_INET,
		       (w->is_udp ? SOCK_DGRAM : SOCK_STREAM) | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (w->fd < 0 || (connect(w->fd, (const struct sockaddr *)to, sizeof(*to)) < 0 &&
			  errno != EINPROGRESS)) {
		fail(w, strerror(errno));
		return;
	}
	if (!w->is_udp)
		(void)setsockopt(w->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (ev_io(w->f->loop, &w->io, w->fd, EPOLLOUT, on_dialled, w, &err) ||
	    ev_timer_after(w->f->loop, &w->timer, DIAL_TIMEOUT, on_late, w, &err))
		fail(w, err.msg);
}

void forward_open(struct forwards *f, struct http_req *req, const char *address, const char *port,
		  const char *protocol)
{
	struct sockaddr_in to = {.sin_family = AF_INET};
	struct forward *w;
	int64_t number = 0;

	if (str_to_i64(port, 1, 65535, &number, NULL) ||
	    (strcmp(protocol, "tcp") != 0 && strcmp(protocol, "udp") != 0)) {
		agent_answer(req, 400, "BadRequest", "a port in 1..65535, then tcp or udp");
		return;
	}
	if (!address || inet_pton(AF_INET, address, &to.sin_addr) != 1) {
		agent_answer(req, 400, "BadRequest", "no network interfaces are present");
		return;
	}
	to.sin_port = htons((uint16_t)number);
	w = mem_alloc(sizeof(*w));
	if (!w) {
		agent_answer(req, 500, "InternalError", "out of memory");
		return;
	}
	w->f = f;
	w->req = req;
	w->fd = -1;
	w->is_udp = strcmp(protocol, "udp") == 0;
	sbuf_init(&w->to_guest, 4 * WAITING_MAX);
	(void)snprintf(w->where, sizeof(w->where), "%s:%u", address, (unsigned)number);
	list_push_tail(&f->all, &w->link);
	http_req_on_cancel(req, on_cancel, w);
	dial(w, &to);
}

struct forwards *forwards_new(struct loop *loop)
{
	struct forwards *f = mem_alloc(sizeof(*f));

	if (!f)
		return NULL;
	f->loop = loop;
	list_init(&f->all);
	return f;
}

struct forwards *forwards_free(struct forwards *f)
{
	if (!f)
		return NULL;
	LIST_FOREACH_SAFE(it, tmp, &f->all) {
		struct forward *w = LIST_ENTRY(it, struct forward, link);

		if (w->req)
			http_req_on_cancel(w->req, NULL, NULL);
		forward_free(w);
	}
	return mem_free(f);
}
