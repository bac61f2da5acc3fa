#include "virt/node/agent_display.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "ev/ev.h"
#include "http/server.h"
#include "virt/node/agent_answer.h"
#include "virt/node/vm.h"

enum { CHUNK = 16 * 1024, TO_GUEST_MAX = 256 * 1024 };

struct agent_display {
	struct loop *loop;
	struct list sessions, waits;
};

/* A websocket on one side, QEMU's VNC server on the other. */
struct session {
	struct list link;
	struct agent_display *d;
	char *vm; /* "ns/name" */
	struct http_ws *ws;
	int fd;
	struct ev_src *io; /* NULL: nothing can be done for now */
	struct sbuf to_guest;
	bool is_blocked; /* the client does not read */
	bool has_ended;	 /* or was replaced: only the websocket's end is waited for */
};

/* A request that waits for the launcher. */
struct wait {
	struct list link;
	struct agent_display *d; /* NULL: freed */
	struct http_req *req;	 /* NULL: the client has left */
	char *vm;
	bool is_picture, preserves;
};

/* --- a session --- */

static void session_free(struct session *s)
{
	list_remove(&s->link);
	ev_src_free(s->io);
	fd_close(s->fd);
	http_ws_free(s->ws);
	sbuf_fini(&s->to_guest);
	mem_free(s->vm);
	mem_free(s);
}

/* QEMU loses its client at once; the websocket takes as long as its peer needs to say good-bye. */
static void session_end(struct session *s, uint16_t code, const char *reason)
{
	if (s->has_ended)
		return;
	s->has_ended = true;
	s->io = ev_src_free(s->io);
	s->fd = fd_close(s->fd);
	http_ws_close(s->ws, code, reason);
}

static void on_guest(uint32_t revents, void *arg);

/* A source that waits for nothing is taken away: an end of the other side would be told of without pause. */
static void session_watch(struct session *s)
{
	uint32_t want = (s->is_blocked ? 0 : EPOLLIN) | (s->to_guest.n ? EPOLLOUT : 0);
	struct err err = {0};

	if (s->has_ended)
		return;
	if (!want)
		s->io = ev_src_free(s->io);
	else if (s->io)
		ev_io_set(s->io, want);
	else if (ev_io(s->d->loop, &s->io, s->fd, want, on_guest, s, &err))
		session_end(s, HTTP_WS_INTERNAL, err.msg);
}

static bool is_broken(ssize_t n)
{
	return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

static void on_guest(uint32_t revents, void *arg)
{
	struct session *s = arg;
	char chunk[CHUNK];
	ssize_t n;

	if (s->to_guest.n && (revents & (EPOLLOUT | EPOLLHUP | EPOLLERR))) {
		n = send(s->fd, s->to_guest.p, s->to_guest.n, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n > 0)
			sbuf_drop(&s->to_guest, (size_t)n);
		else if (is_broken(n))
			sbuf_reset(&s->to_guest); /* what it still has to say is read below */
		if (s->to_guest.n <= TO_GUEST_MAX / 4)
			http_ws_pause(s->ws, false);
	}
	if (!s->is_blocked && (revents & (EPOLLIN | EPOLLHUP | EPOLLERR))) {
		n = recv(s->fd, chunk, sizeof(chunk), MSG_DONTWAIT);
		if (is_broken(n)) {
			session_end(s, HTTP_WS_NORMAL, "the display has ended");
			return;
		}
		/* Never busy: reading stops at half of the backlog. */
		if (n > 0)
			ignore_rc(http_ws_send(s->ws, false, chunk, (size_t)n));
		s->is_blocked = http_ws_backlog(s->ws) > HTTP_WS_BACKLOG / 2;
	}
	session_watch(s);
}

static void on_message(struct http_ws *ws, bool is_text, const uint8_t *bytes, size_t n, void *arg)
{
	struct session *s = arg;

	if (s->has_ended || is_text) /* text messages are no part of the stream */
		return;
	sbuf_add(&s->to_guest, bytes, n);
	if (sbuf_rc(&s->to_guest)) {
		session_end(s, HTTP_WS_TOO_BIG, "the guest does not take what is sent");
		return;
	}
	if (s->to_guest.n > TO_GUEST_MAX / 2)
		http_ws_pause(ws, true);
	session_watch(s);
}

static void on_room(struct http_ws *ws, void *arg)
{
	struct session *s = arg;

	(void)ws;
	s->is_blocked = false;
	session_watch(s);
}

static void on_close(struct http_ws *ws, uint16_t code, const char *reason, int status,
		     const struct err *why, void *arg)
{
	(void)ws;
	(void)code;
	(void)reason;
	(void)status;
	(void)why;
	session_free(arg);
}

static const struct http_ws_ops session_ops = {
	.on_message = on_message, .on_room = on_room, .on_close = on_close};

static struct session *active(struct agent_display *d, const char *vm)
{
	LIST_FOREACH(it, &d->sessions) {
		struct session *s = LIST_ENTRY(it, struct session, link);

		if (!s->has_ended && str_eq(s->vm, vm))
			return s;
	}
	return NULL;
}

static void refuse_second(struct http_req *req)
{
	agent_answer_rc(req, RC_CLOSED, "Active VNC connection. Request denied.");
}

void agent_display_attach(struct agent_display *d, struct http_req *req, const char *vm_name,
			  int fd, bool preserves)
{
	static const char *const protocols[] = {"plain.kubevirt.io", NULL};
	struct session *old = active(d, vm_name);
	struct session *s;
	struct err err = {0};

	if (old && preserves) {
		fd_close(fd);
		refuse_second(req);
		return;
	}
	s = mem_alloc(sizeof(*s));
	if (!s) {
		fd_close(fd);
		agent_answer_rc(req, RC_NOMEM, "out of memory");
		return;
	}
	s->d = d;
	s->fd = fd;
	sbuf_init(&s->to_guest, 2 * TO_GUEST_MAX);
	s->vm = mem_strdup(vm_name);
	list_push_tail(&d->sessions, &s->link);
	enum rc rc = s->vm ? http_upgrade_ws(req, http_req_ws_protocol(req, protocols),
					     &session_ops, s, &s->ws, &err)
			   : err_set(&err, RC_NOMEM, "out of memory");

	if (rc) {
		session_free(s);
		agent_answer_rc(req, rc, err.msg);
		return;
	}
	if (old) {
		log_info("display of '%s': a new session replaces the old one", vm_name);
		session_end(old, HTTP_WS_NORMAL, "replaced by another session");
	}
	session_watch(s);
}

/* --- a picture --- */

void agent_display_picture(struct http_req *req, int fd)
{
	CLEANUP(fd_closep) int from = fd;
	struct stat st;

	if (fstat(from, &st) < 0 || st.st_size <= 0 || st.st_size > LIMIT_PICTURE_BYTES) {
		agent_answer_rc(req, RC_TOO_BIG, "the picture is empty or larger than 16 MiB");
		return;
	}
	CLEANUP(mem_freep) char *png = mem_alloc((size_t)st.st_size);
	ssize_t n = png ? pread(from, png, (size_t)st.st_size, 0) : -1;

	if (n > 0)
		http_respond_take(req, 200, "image/png", STEAL(png), (size_t)n, NULL, 0);
	else
		agent_answer_rc(req, png ? RC_IO : RC_NOMEM, "the picture cannot be read");
}

/* --- waiting for the launcher --- */

static void wait_free(struct wait *w)
{
	list_remove(&w->link);
	mem_free(w->vm);
	mem_free(w);
}

static void on_cancel(struct http_req *req, void *arg)
{
	struct wait *w = arg;

	(void)req;
	w->req = NULL;
}

static void on_done(enum rc rc, const char *message, int fd, void *arg)
{
	struct wait *w = arg;

	if (w->req && w->d) {
		http_req_on_cancel(w->req, NULL, NULL);
		if (rc || fd < 0)
			agent_answer_rc(w->req, rc ? rc : RC_IO, message);
		else if (w->is_picture)
			agent_display_picture(w->req, STEAL_FD(fd));
		else
			agent_display_attach(w->d, w->req, w->vm, STEAL_FD(fd), w->preserves);
	}
	fd_close(fd);
	wait_free(w);
}

static bool is_asked(const struct http_req *req, const char *param)
{
	return str_eq(http_req_param(req, param), "true");
}

static struct wait *wait_new(struct agent_display *d, struct http_req *req, const char *vm_name)
{
	struct wait *w = mem_alloc(sizeof(*w));

	if (w)
		w->vm = mem_strdup(vm_name);
	if (!w || !w->vm) {
		mem_free(w);
		agent_answer_rc(req, RC_NOMEM, "out of memory");
		return NULL;
	}
	w->d = d;
	w->req = req;
	list_push_tail(&d->waits, &w->link);
	http_req_on_cancel(req, on_cancel, w);
	return w;
}

static void wait_failed(struct wait *w, const struct err *err)
{
	struct http_req *req = w->req;

	http_req_on_cancel(req, NULL, NULL);
	wait_free(w);
	agent_answer_rc(req, err->rc, err->msg);
}

void agent_display_vnc(struct agent_display *d, struct http_req *req, struct vm *vm,
		       const char *vm_name)
{
	bool preserves = is_asked(req, "preserveSession");
	struct err err = {0};
	struct wait *w;

	if (preserves && active(d, vm_name)) {
		refuse_second(req);
		return;
	}
	w = wait_new(d, req, vm_name);
	if (!w)
		return;
	w->preserves = preserves;
	if (vm_display_open(vm, on_done, w, &err))
		wait_failed(w, &err);
}

void agent_display_screenshot(struct agent_display *d, struct http_req *req, struct vm *vm,
			      const char *vm_name)
{
	struct err err = {0};
	struct wait *w = wait_new(d, req, vm_name);

	if (!w)
		return;
	w->is_picture = true;
	if (vm_screenshot(vm, is_asked(req, "moveCursor"), on_done, w, &err))
		wait_failed(w, &err);
}

struct agent_display *agent_display_new(struct loop *loop)
{
	struct agent_display *d = mem_alloc(sizeof(*d));

	if (!d)
		return NULL;
	d->loop = loop;
	list_init(&d->sessions);
	list_init(&d->waits);
	return d;
}

struct agent_display *agent_display_free(struct agent_display *d)
{
	if (!d)
		return NULL;
	while (!list_is_empty(&d->sessions))
		session_free(LIST_ENTRY(d->sessions.next, struct session, link));
	/* Answers of launchers that are still to come find nobody. */
	LIST_FOREACH_SAFE(it, tmp, &d->waits) {
		struct wait *w = LIST_ENTRY(it, struct wait, link);

		list_remove(&w->link);
		w->d = NULL;
		w->req = NULL;
	}
	return mem_free(d);
}
