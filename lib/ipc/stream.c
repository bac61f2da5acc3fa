#include "ipc/stream.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/file.h"
#include "base/mem.h"
#include "ev/ev.h"
#include "json/json.h"

/* Descriptors come with the first byte of their frame, and the kernel never hands out bytes of two
 * sends with descriptors in one recvmsg(): so `got` is in the order of the frames, and a frame claims
 * as many as its "fds" member says.
 */

enum { HEADER = 4, CHUNK = 65536, OUT_MAX = 4 * LIMIT_IPC_BYTES };

int ipc_fds_take(struct ipc_fds *fds, size_t i)
{
	if (i >= fds->n)
		return -1;
	return STEAL_FD(fds->fd[i]);
}

void ipc_fds_close(struct ipc_fds *fds)
{
	for (size_t i = 0; i < fds->n; i++)
		fds->fd[i] = fd_close(fds->fd[i]);
	fds->n = 0;
}

void frame_free(struct ipc_frame *f)
{
	if (!f)
		return;
	for (size_t i = 0; i < f->n_fds; i++)
		fd_close(f->fds[i]);
	mem_free(f->bytes);
	mem_free(f);
}

enum rc frame_new(struct ipc_frame **out, struct json *msg, const int *fds, size_t n_fds,
		  struct err *err)
{
	struct ipc_frame *f = n_fds <= LIMIT_IPC_FDS ? mem_alloc(sizeof(*f)) : NULL;
	struct sbuf b = SBUF_INIT(LIMIT_IPC_BYTES + HEADER);
	enum rc rc;

	if (!f) {
		for (size_t i = 0; i < n_fds; i++)
			fd_close(fds[i]);
		return n_fds <= LIMIT_IPC_FDS
			       ? err_set(err, RC_NOMEM, "cannot allocate a message")
			       : err_set(err, RC_TOO_BIG, "more than %d descriptors in a message",
					 LIMIT_IPC_FDS);
	}
	for (size_t i = 0; i < n_fds; i++)
		f->fds[f->n_fds++] = fds[i];
	sbuf_add(&b, "\0\0\0\0", HEADER);
	rc = n_fds ? js_set(msg, "fds", js_new_int((int64_t)n_fds)) : RC_OK;
	js_print(msg, &b, false);
	if (!rc)
		rc = sbuf_take(&b, &f->bytes, &f->n);
	sbuf_fini(&b);
	if (rc) {
		frame_free(f);
		return err_set(err, rc, "cannot print a message");
	}
	uint32_t be = htonl((uint32_t)(f->n - HEADER));

	memcpy(f->bytes, &be, HEADER);
	*out = f;
	return RC_OK;
}

static void stream_end(struct ipc_stream *st, enum rc rc, const char *why)
{
	char text[sizeof(st->why)];

	if (st->why_rc) {
		rc = st->why_rc;
		why = st->why;
	}
	snprintf(text, sizeof(text), "%s", why);
	stream_fini(st);
	st->on_end(rc, text, st->arg); /* may free the owner */
}

void stream_break(struct ipc_stream *st, enum rc rc, const char *why)
{
	if (st->fd < 0 || st->why_rc)
		return;
	st->why_rc = rc;
	snprintf(st->why, sizeof(st->why), "%s", why);
	shutdown(st->fd, SHUT_RDWR);
}

/* --- writing --- */

static ssize_t send_some(struct ipc_stream *st, struct ipc_frame *f)
{
	union {
		char buf[CMSG_SPACE(LIMIT_IPC_FDS * sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	struct iovec iov = {f->bytes + f->written, f->n - f->written};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	if (f->n_fds) {
		msg.msg_control = control.buf;
		msg.msg_controllen = CMSG_SPACE(f->n_fds * sizeof(int));
		struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(f->n_fds * sizeof(int));
		memcpy(CMSG_DATA(c), f->fds, f->n_fds * sizeof(int));
	}
	return sendmsg(st->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void want_write(struct ipc_stream *st, bool want)
{
	if (want != st->want_write)
		ev_io_set(st->io, EPOLLIN | (want ? EPOLLOUT : 0u));
	st->want_write = want;
}

static void flush(struct ipc_stream *st)
{
	while (!list_is_empty(&st->out)) {
		struct ipc_frame *f = LIST_ENTRY(st->out.next, struct ipc_frame, link);
		ssize_t n = send_some(st, f);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
			want_write(st, true);
			return;
		}
		if (n < 0) {
			stream_break(st, RC_CLOSED, strerror(errno));
			return;
		}
		for (size_t i = 0; i < f->n_fds; i++)
			fd_close(f->fds[i]);
		f->n_fds = 0;
		f->written += (size_t)n;
		if (f->written < f->n)
			continue;
		st->out_bytes -= f->n;
		list_remove(&f->link);
		frame_free(f);
	}
	want_write(st, false);
}

void stream_send(struct ipc_stream *st, struct ipc_frame *f)
{
	if (st->fd < 0 || st->why_rc) {
		frame_free(f);
		return;
	}
	if (st->out_bytes + f->n > OUT_MAX) {
		frame_free(f);
		stream_break(st, RC_TOO_BIG, "the peer does not read");
		return;
	}
	st->out_bytes += f->n;
	list_push_tail(&st->out, &f->link);
	if (!st->want_write)
		flush(st);
}

/* --- reading --- */

/* Claims the frame's descriptors and hands it over.  False: the stream is gone. */
static bool deliver(struct ipc_stream *st, const char *text, size_t n)
{
	CLEANUP(js_unrefp) struct json *msg = NULL;
	struct ipc_fds fds = {.n = 0};
	enum rc rc = js_parse(text, n, &msg, NULL);
	int64_t want = js_get_int(msg, "fds", 0);
	bool gone = false;

	if (rc || !js_is_object(msg) || want < 0 ||
	    want > (int64_t)MIN(st->n_got, (size_t)LIMIT_IPC_FDS)) {
		stream_end(st, rc == RC_NOMEM ? rc : RC_BAD_REQUEST,
			   rc == RC_NOMEM ? "out of memory" : "the peer sent a broken message");
		return false;
	}
	fds.n = (size_t)want;
	memcpy(fds.fd, st->got, fds.n * sizeof(int));
	st->n_got -= fds.n;
	memmove(st->got, st->got + fds.n, st->n_got * sizeof(int));
	/* Cleared below, or by stream_fini(). */
	/* cppcheck-suppress autoVariables */
	st->gone = &gone;
	st->on_frame(msg, &fds, st->arg);
	ipc_fds_close(&fds);
	if (!gone)
		st->gone = NULL;
	return !gone;
}

/* False: the stream is gone. */
static bool take_frames(struct ipc_stream *st)
{
	while (st->in.n >= HEADER) {
		uint32_t be;

		memcpy(&be, st->in.p, HEADER);
		size_t n = ntohl(be);

		if (n > LIMIT_IPC_BYTES) {
			stream_end(st, RC_TOO_BIG, "the peer's message is too long");
			return false;
		}
		if (st->in.n < HEADER + n)
			break;
		/* Out of the buffer first: the callback may end the stream. */
		char *text = mem_dup(st->in.p + HEADER, n + 1);

		if (!text) {
			stream_end(st, RC_NOMEM, "out of memory");
			return false;
		}
		sbuf_drop(&st->in, HEADER + n);
		bool alive = deliver(st, text, n);

		mem_free(text);
		if (!alive)
			return false;
	}
	return true;
}

/* False: more than may wait, or a truncated control message. */
static bool take_descriptors(struct ipc_stream *st, struct msghdr *msg)
{
	bool fits = !(msg->msg_flags & MSG_CTRUNC);

	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
			if (st->n_got < ARRAY_SIZE(st->got)) {
				st->got[st->n_got++] = fd;
			} else {
				fd_close(fd);
				fits = false;
			}
		}
	}
	return fits;
}

/* One read.  False: nothing more to do now. */
static bool read_some(struct ipc_stream *st)
{
	char chunk[CHUNK];
	union {
		char buf[CMSG_SPACE(LIMIT_IPC_FDS * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = {chunk, sizeof(chunk)};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control.buf,
			     .msg_controllen = sizeof(control.buf)};
	ssize_t n = recvmsg(st->fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (n < 0 && errno == EINTR)
		return true;
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		return false;
	if (n <= 0) {
		stream_end(st, RC_CLOSED, n ? strerror(errno) : "the peer closed the connection");
		return false;
	}
	if (!take_descriptors(st, &msg)) {
		stream_end(st, RC_TOO_BIG, "the peer sent too many descriptors");
		return false;
	}
	sbuf_add(&st->in, chunk, (size_t)n);
	if (sbuf_rc(&st->in)) {
		stream_end(st, sbuf_rc(&st->in), "out of memory");
		return false;
	}
	return take_frames(st);
}

static void on_io(uint32_t revents, void *arg)
{
	struct ipc_stream *st = arg;

	if (revents & EPOLLOUT)
		flush(st);
	if (revents & (EPOLLIN | EPOLLHUP | EPOLLERR))
		for (int i = 0; i < 16 && read_some(st); i++)
			;
}

enum rc stream_init(struct ipc_stream *st, struct loop *loop, int fd, struct err *err)
{
	st->fd = fd;
	list_init(&st->out);
	sbuf_init(&st->in, 2 * LIMIT_IPC_BYTES + CHUNK);
	enum rc rc = ev_io(loop, &st->io, fd, EPOLLIN, on_io, st, err);

	if (rc)
		stream_fini(st);
	return rc;
}

void stream_fini(struct ipc_stream *st)
{
	if (st->gone)
		*st->gone = true;
	st->gone = NULL;
	st->io = ev_src_free(st->io);
	if (st->out.next)
		for (struct list *it; (it = list_pop_head(&st->out));)
			frame_free(LIST_ENTRY(it, struct ipc_frame, link));
	for (size_t i = 0; i < st->n_got; i++)
		fd_close(st->got[i]);
	st->n_got = 0;
	sbuf_fini(&st->in);
	st->fd = fd_close(st->fd);
}
