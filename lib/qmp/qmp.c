#include "qmp/qmp.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "ev/ev.h"
#include "json/json.h"

/* Theory of operation
 *
 * A command lives in one list at a time: `waiting` (in-band ones that wait for a place in QEMU's
 * queue), `out` (being written, in order), `sent` (unanswered), or none.  It is counted: one reference
 * is the client's as long as it is in a list, one is the caller's when a slot was asked for.  A command
 * whose callback has run or was dropped stays in `sent` until QEMU answers, because it still takes a
 * place in QEMU's queue.
 *
 * Anything that goes wrong while sending shuts the socket down and leaves the reason in `why`: the end
 * is then met where every other end is met, in the read callback, so that owners hear of it from the
 * loop and never from inside their own call.
 */

enum qmp_state { QMP_GREETING, QMP_NEGOTIATING, QMP_READY, QMP_CLOSED };
enum { READ_CHUNK = 65536, READS_PER_ROUND = 16 };

struct qmp_slot {
	struct list link;
	struct qmp *q; /* NULL: the client is gone */
	uint64_t id;
	char *text;
	size_t n;
	size_t written;
	int fd;
	bool oob;
	bool done;	 /* the callback has run, or must not */
	bool is_waiting; /* in `waiting`: QEMU has not seen it */
	unsigned refs;
	char name[48];
	struct ev_src *deadline;
	qmp_reply_fn fn;
	void *arg;
};

struct qmp {
	struct loop *loop;
	int fd;
	enum qmp_state state;
	struct ev_src *io;
	struct ev_src *handshake;
	const struct qmp_ops *ops;
	void *arg;
	struct sbuf in;
	size_t scanned; /* bytes of `in` known to hold no newline */
	struct list waiting;
	struct list out;
	struct list sent;
	uint64_t next_id;
	unsigned in_band; /* in `out` or `sent` */
	unsigned n_waiting;
	bool has_oob;
	bool want_write;
	int version[3];
	struct json *greeting;
	unsigned busy;
	bool freed;
	enum rc why_rc;
	char why[128];
};

static void cmd_unref(struct qmp_slot *s)
{
	if (--s->refs)
		return;
	ev_src_free(s->deadline);
	fd_close(s->fd);
	mem_free(s->text);
	mem_free(s);
}

/* QEMU never sees it. */
static void leave_waiting(struct qmp_slot *s)
{
	if (!s->is_waiting)
		return;
	s->is_waiting = false;
	list_remove(&s->link);
	s->q->n_waiting--;
	s->q = NULL;
	cmd_unref(s);
}

static void cmd_finish(struct qmp_slot *s, const struct qmp_reply *r)
{
	s->deadline = ev_src_free(s->deadline);
	if (s->done)
		return;
	s->done = true;
	if (s->fn)
		s->fn(r, s->arg);
	else if (r->rc)
		log_debug("qmp: %s: %s", s->name, r->desc);
}

struct qmp_slot *qmp_slot_free(struct qmp_slot *s)
{
	if (!s)
		return NULL;
	s->done = true;
	s->deadline = ev_src_free(s->deadline);
	leave_waiting(s);
	cmd_unref(s);
	return NULL;
}

/* --- ending --- */

static void qmp_destroy(struct qmp *q)
{
	js_unref(q->greeting);
	sbuf_fini(&q->in);
	mem_free(q);
}

static void enter(struct qmp *q)
{
	q->busy++;
}

/* False: the client was freed meanwhile, hands off. */
static bool leave(struct qmp *q)
{
	if (--q->busy || !q->freed)
		return !q->freed;
	qmp_destroy(q);
	return false;
}

static void drop_list(struct list *head, const struct qmp_reply *r)
{
	for (struct list *it; (it = list_pop_head(head));) {
		struct qmp_slot *s = LIST_ENTRY(it, struct qmp_slot, link);

		s->q = NULL;
		s->is_waiting = false;
		if (r)
			cmd_finish(s, r);
		s->deadline = ev_src_free(s->deadline);
		s->done = true;
		cmd_unref(s);
	}
}

static void disconnect(struct qmp *q)
{
	q->state = QMP_CLOSED;
	q->io = ev_src_free(q->io);
	q->handshake = ev_src_free(q->handshake);
	q->fd = fd_close(q->fd);
}

/* All pending commands fail, then the owner hears of it.  Only called from the loop. */
static void qmp_close(struct qmp *q, enum rc rc, const char *why)
{
	if (q->state == QMP_CLOSED)
		return;
	if (q->why_rc) {
		rc = q->why_rc;
		why = q->why;
	}
	disconnect(q);
	enter(q);
	struct qmp_reply r = {.rc = RC_CLOSED, .desc = why};

	drop_list(&q->sent, &r);
	drop_list(&q->out, &r);
	drop_list(&q->waiting, &r);
	q->in_band = q->n_waiting = 0;
	if (!q->freed && q->ops->on_closed)
		q->ops->on_closed(rc, why, q->arg);
	leave(q);
}

/* May be called from anywhere: the read callback finds the end of the stream and this reason. */
static void qmp_break(struct qmp *q, enum rc rc, const char *why)
{
	if (q->state == QMP_CLOSED || q->why_rc)
		return;
	q->why_rc = rc;
	snprintf(q->why, sizeof(q->why), "%s", why);
	shutdown(q->fd, SHUT_RDWR);
}

struct qmp *qmp_free(struct qmp *q)
{
	if (!q || q->freed)
		return NULL;
	disconnect(q);
	drop_list(&q->sent, NULL);
	drop_list(&q->out, NULL);
	drop_list(&q->waiting, NULL);
	q->freed = true;
	if (!q->busy)
		qmp_destroy(q);
	return NULL;
}

/* --- writing --- */

static void want_write(struct qmp *q, bool want)
{
	if (want == q->want_write || !q->io)
		return;
	q->want_write = want;
	ev_io_set(q->io, EPOLLIN | (want ? EPOLLOUT : 0u));
}

static ssize_t send_some(struct qmp *q, struct qmp_slot *s)
{
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	struct iovec iov = {s->text + s->written, s->n - s->written};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	if (s->fd >= 0) {
		msg.msg_control = control.buf;
		msg.msg_controllen = sizeof(control.buf);
		struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &s->fd, sizeof(int));
	}
	return sendmsg(q->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void flush(struct qmp *q)
{
	while (!list_is_empty(&q->out) && q->state != QMP_CLOSED) {
		struct qmp_slot *s = LIST_ENTRY(q->out.next, struct qmp_slot, link);
		ssize_t n = send_some(q, s);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
			want_write(q, true);
			return;
		}
		if (n < 0) {
			char why[96];

			snprintf(why, sizeof(why), "cannot write to QEMU: %s", strerror(errno));
			qmp_break(q, RC_CLOSED, why);
			return;
		}
		s->fd = fd_close(s->fd);
		s->written += (size_t)n;
		if (s->written < s->n)
			continue;
		s->text = mem_free(s->text);
		list_remove(&s->link);
		list_push_tail(&q->sent, &s->link);
	}
	want_write(q, false);
}

static void to_out(struct qmp *q, struct qmp_slot *s)
{
	struct list *at = &q->out;

	if (!s->oob)
		q->in_band++;
	else /* overtake what has not begun to leave */
		for (at = q->out.next; at != &q->out; at = at->next) {
			struct qmp_slot *o = LIST_ENTRY(at, struct qmp_slot, link);

			if (!o->oob && !o->written)
				break;
		}
	list_push_tail(at, &s->link);
}

static void pump(struct qmp *q)
{
	while (q->in_band < QMP_MAX_IN_BAND && !list_is_empty(&q->waiting)) {
		struct qmp_slot *s = LIST_ENTRY(list_pop_head(&q->waiting), struct qmp_slot, link);

		q->n_waiting--;
		s->is_waiting = false;
		to_out(q, s);
	}
	flush(q);
}

static void on_deadline(void *arg)
{
	struct qmp_slot *s = arg;
	struct qmp *q = s->q;
	char desc[128];

	snprintf(desc, sizeof(desc), "QEMU did not answer '%s' in time", s->name);
	struct qmp_reply r = {.rc = RC_TIMEOUT, .desc = desc};

	enter(q);
	s->refs++;
	leave_waiting(s);
	cmd_finish(s, &r);
	cmd_unref(s);
	leave(q);
}

static enum rc cmd_text(struct qmp_slot *s, const struct qmp_call *call, struct json *args,
			struct err *err)
{
	CLEANUP(js_unrefp) struct json *j = NULL;
	struct sbuf b = SBUF_INIT(LIMIT_QMP_BYTES);
	enum rc rc;

	j = js_pack("{s:s, s:O*, s:I}", call->oob ? "exec-oob" : "execute", call->command,
		    "arguments", args, "id", (int64_t)s->id);
	if (!j)
		return err_set(err, RC_NOMEM, "cannot build the command '%s'", call->command);
	js_print(j, &b, false);
	sbuf_addc(&b, '\n');
	rc = sbuf_take(&b, &s->text, &s->n);
	sbuf_fini(&b);
	if (rc)
		return err_set(err, rc, "cannot print the command '%s'", call->command);
	return RC_OK;
}

static enum rc cmd_new(struct qmp *q, struct qmp_slot **out, const struct qmp_call *call,
		       struct json *args, struct err *err)
{
	struct qmp_slot *s = mem_alloc(sizeof(*s));
	enum rc rc;

	if (!s)
		return err_set(err, RC_NOMEM, "cannot allocate the command '%s'", call->command);
	s->q = q;
	s->id = ++q->next_id;
	s->fd = -1;
	s->oob = call->oob;
	s->refs = 1;
	s->fn = call->fn;
	s->arg = call->arg;
	snprintf(s->name, sizeof(s->name), "%s", call->command);
	rc = cmd_text(s, call, args, err);
	if (!rc)
		rc = ev_timer_after(q->loop, &s->deadline, call->timeout, on_deadline, s, err);
	if (rc) {
		cmd_unref(s);
		return rc;
	}
	*out = s;
	return RC_OK;
}

enum rc qmp_invoke(struct qmp *q, struct qmp_slot **slot, const struct qmp_call *call,
		   struct err *err)
{
	CLEANUP(js_unrefp) struct json *args = call->args;
	CLEANUP(fd_closep) int fd = call->fd > 0 ? call->fd : -1;
	struct qmp_slot *s = NULL;
	enum rc rc;

	assert(call->timeout && (!slot || !*slot));
	if (!q || q->state == QMP_CLOSED || q->freed)
		return err_set(err, RC_CLOSED, "QEMU's monitor is closed");
	if (call->oob && !q->has_oob)
		return err_set(err, RC_UNSUPPORTED, "QEMU's monitor has no out-of-band commands");
	if (q->n_waiting >= QMP_MAX_QUEUED)
		return err_set(err, RC_BUSY, "%u commands wait for QEMU already", q->n_waiting);
	rc = cmd_new(q, &s, call, args, err);
	if (rc)
		return rc;
	assert(s);
	s->fd = STEAL_FD(fd);
	if (slot) {
		*slot = s;
		s->refs++;
	}
	if (s->oob && q->state == QMP_READY) {
		to_out(q, s);
	} else {
		list_push_tail(&q->waiting, &s->link);
		s->is_waiting = true;
		q->n_waiting++;
	}
	if (q->state == QMP_READY)
		pump(q);
	return RC_OK;
}

/* --- reading --- */

static enum rc class_rc(const char *class_)
{
	static const struct {
		const char *name;
		enum rc rc;
	} classes[] = {
		{"CommandNotFound", RC_UNSUPPORTED},
		{"DeviceNotActive", RC_CONFLICT},
		{"DeviceNotFound", RC_NOT_FOUND},
		{"KVMMissingCap", RC_UNSUPPORTED},
	};

	for (size_t i = 0; i < ARRAY_SIZE(classes); i++)
		if (str_eq(class_, classes[i].name))
			return classes[i].rc;
	return RC_IO;
}

static void take_answer(struct qmp *q, const struct json *msg)
{
	int64_t id = js_get_int(msg, "id", -1);
	const struct json *error = js_get(msg, "error");
	struct qmp_slot *found = NULL;
	struct qmp_reply r = {.value = js_get(msg, "return")};

	LIST_FOREACH(it, &q->sent) {
		struct qmp_slot *s = LIST_ENTRY(it, struct qmp_slot, link);

		if (id >= 0 && s->id == (uint64_t)id)
			found = s;
	}
	if (error) {
		r.error_class = js_get_str(error, "class");
		r.desc = js_get_str(error, "desc");
		r.desc = r.desc ? r.desc : "QEMU gave no reason";
		r.rc = class_rc(r.error_class);
		r.value = NULL;
	}
	if (!found) { /* an error without id answers something that QEMU could not parse */
		log_debug("qmp: answer to nobody (id %" PRId64 "): %s", id, r.desc ? r.desc : "ok");
		return;
	}
	list_remove(&found->link);
	found->q = NULL;
	if (!found->oob)
		q->in_band--;
	cmd_finish(found, &r);
	cmd_unref(found);
	if (!q->freed && q->state == QMP_READY)
		pump(q);
}

static void take_event(struct qmp *q, const struct json *msg)
{
	const struct json *t = js_get(msg, "timestamp");
	int64_t sec = js_get_int(t, "seconds", -1);
	int64_t us = js_get_int(t, "microseconds", -1);
	usec_t at = sec >= 0 && us >= 0 ? (usec_t)sec * USEC_PER_SEC + (usec_t)us : 0;

	if (q->state == QMP_READY && q->ops->on_event)
		q->ops->on_event(js_get_str(msg, "event"), js_get(msg, "data"), at, q->arg);
}

static void on_negotiated(const struct qmp_reply *r, void *arg)
{
	struct qmp *q = arg;

	if (r->rc == RC_CLOSED)
		return;
	if (r->rc) {
		char why[120];

		snprintf(why, sizeof(why), "negotiation failed: %s", r->desc);
		qmp_break(q, r->rc, why);
		return;
	}
	q->handshake = ev_src_free(q->handshake);
	q->state = QMP_READY;
	if (q->ops->on_ready)
		q->ops->on_ready(q->greeting, q->arg);
}

static void take_greeting(struct qmp *q, const struct json *msg)
{
	static const char *const parts[] = {"major", "minor", "micro"};
	const struct json *caps = js_at(msg, "QMP", "capabilities", NULL);
	const struct json *version = js_at(msg, "QMP", "version", "qemu", NULL);
	struct json *args = NULL;
	struct qmp_slot *s = NULL;

	if (!js_is_object(js_get(msg, "QMP"))) {
		qmp_close(q, RC_BAD_REQUEST, "the first message is not QMP's greeting");
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
		q->version[i] = (int)js_get_int(version, parts[i], 0);
	for (size_t i = 0; i < js_len(caps); i++)
		q->has_oob |= str_eq(js_str(js_item(caps, i)), "oob");
	q->greeting = js_ref(msg);
	q->state = QMP_NEGOTIATING;
	args = q->has_oob ? js_pack("{s:[s]}", "enable", "oob") : js_new_object();
	if (!args) {
		qmp_close(q, RC_NOMEM, "out of memory");
		return;
	}
	/* Its deadline is the handshake's; the one given here only has to be later. */
	struct qmp_call call = {.command = "qmp_capabilities",
				.timeout = 3600 * USEC_PER_SEC,
				.fn = on_negotiated,
				.arg = q};
	enum rc rc = cmd_new(q, &s, &call, args, NULL);

	js_unref(args);
	if (rc) {
		qmp_close(q, rc, "cannot negotiate");
		return;
	}
	assert(s);
	to_out(q, s);
	flush(q);
}

static void take_message(struct qmp *q, const char *text, size_t n)
{
	CLEANUP(js_unrefp) struct json *msg = NULL;
	struct err err = {0};
	enum rc rc = js_parse(text, n, &msg, &err);

	if (rc) {
		qmp_close(q, rc,
			  rc == RC_NOMEM ? "out of memory"
					 : "QEMU's monitor sent what is not JSON");
		return;
	}
	if (!js_is_object(msg))
		qmp_close(q, RC_BAD_REQUEST, "QEMU's monitor sent what is not an object");
	else if (q->state == QMP_GREETING)
		take_greeting(q, msg);
	else if (js_is_string(js_get(msg, "event")))
		take_event(q, msg);
	else if (js_get(msg, "return") || js_is_object(js_get(msg, "error")))
		take_answer(q, msg);
	else
		log_debug("qmp: a message of no known kind was ignored");
}

/* False: closed or freed meanwhile. */
static bool take_lines(struct qmp *q)
{
	size_t start = 0;

	enter(q);
	while (q->state != QMP_CLOSED && !q->freed) {
		size_t from = MAX(start, q->scanned);
		char *nl = q->in.n > from ? memchr(q->in.p + from, '\n', q->in.n - from) : NULL;

		if (!nl)
			break;
		size_t n = (size_t)(nl - (q->in.p + start));

		if (n > 0 && !(n == 1 && q->in.p[start] == '\r'))
			take_message(q, q->in.p + start, n);
		start += n + 1;
	}
	if (!q->freed) {
		sbuf_drop(&q->in, start);
		q->scanned = q->in.n;
	}
	bool alive = q->state != QMP_CLOSED;

	return leave(q) && alive;
}

static void on_readable(struct qmp *q)
{
	char chunk[READ_CHUNK];

	for (int i = 0; i < READS_PER_ROUND; i++) {
		ssize_t n = recv(q->fd, chunk, sizeof(chunk), MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return;
		if (n <= 0) {
			qmp_close(q, RC_CLOSED, n ? strerror(errno) : "QEMU closed the connection");
			return;
		}
		sbuf_add(&q->in, chunk, (size_t)n);
		enum rc rc = sbuf_rc(&q->in);

		if (rc) {
			qmp_close(q, rc,
				  rc == RC_TOO_BIG ? "QEMU's message is too long"
						   : "out of memory");
			return;
		}
		if (!take_lines(q) || (size_t)n < sizeof(chunk))
			return;
	}
}

static void on_io(uint32_t revents, void *arg)
{
	struct qmp *q = arg;

	enter(q);
	if ((revents & EPOLLOUT) && q->state != QMP_CLOSED)
		flush(q);
	if ((revents & (EPOLLIN | EPOLLHUP | EPOLLERR)) && q->state != QMP_CLOSED && !q->freed)
		on_readable(q);
	leave(q);
}

static void on_handshake_late(void *arg)
{
	struct qmp *q = arg;

	qmp_close(q, RC_TIMEOUT,
		  q->state == QMP_GREETING
			  ? "QEMU's monitor sent no greeting (another client may hold it)"
			  : "QEMU's monitor did not answer the negotiation");
}

/* --- opening --- */

enum rc qmp_new(struct qmp **out, struct loop *loop, int fd, usec_t handshake,
		const struct qmp_ops *ops, void *arg, struct err *err)
{
	CLEANUP(fd_closep) int own = fd;
	CLEANUP(qmp_freep) struct qmp *q = mem_alloc(sizeof(*q));
	enum rc rc;

	if (!q)
		return err_set(err, RC_NOMEM, "cannot allocate the QMP client");
	q->loop = loop;
	q->ops = ops;
	q->arg = arg;
	q->fd = STEAL_FD(own);
	sbuf_init(&q->in, LIMIT_QMP_BYTES);
	list_init(&q->waiting);
	list_init(&q->out);
	list_init(&q->sent);
	rc = ev_io(loop, &q->io, q->fd, EPOLLIN, on_io, q, err);
	if (!rc)
		rc = ev_timer_after(loop, &q->handshake, handshake, on_handshake_late, q, err);
	if (rc)
		return rc;
	*out = STEAL(q);
	return RC_OK;
}

enum rc qmp_open(struct qmp **out, struct loop *loop, const char *path, usec_t handshake,
		 const struct qmp_ops *ops, void *arg, struct err *err)
{
	CLEANUP(fd_closep) int fd = -1;
	enum rc rc = file_connect_unix(path, &fd, err);

	return rc ? rc : qmp_new(out, loop, STEAL_FD(fd), handshake, ops, arg, err);
}

bool qmp_is_ready(const struct qmp *q)
{
	return q && q->state == QMP_READY;
}

bool qmp_has_oob(const struct qmp *q)
{
	return q->has_oob;
}

uint64_t qmp_n_commands(const struct qmp *q)
{
	return q->next_id;
}

void qmp_version(const struct qmp *q, int out[3])
{
	memcpy(out, q->version, sizeof(q->version));
}
