#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "ev/ev.h"
#include "ipc/ipc.h"
#include "ipc/stream.h"
#include "json/json.h"

struct ipc_slot {
	struct list link;	 /* in client->calls, until done */
	struct ipc_client *c;	 /* NULL: not in the list */
	struct ipc_frame *frame; /* waits for hello */
	uint64_t id;
	unsigned refs; /* the list's and the caller's */
	bool done;
	char method[48];
	struct ev_src *deadline;
	ipc_reply_fn fn;
	void *arg;
};

struct ipc_client {
	struct loop *loop;
	struct ipc_stream st;
	struct ipc_version speaks;
	bool ready;
	bool closed;
	struct ev_src *handshake;
	struct list calls;
	uint64_t next_id;
	const struct ipc_client_ops *ops;
	void *arg;
	unsigned busy;
	bool freed;
};

static void slot_unref(struct ipc_slot *s)
{
	if (--s->refs)
		return;
	ev_src_free(s->deadline);
	frame_free(s->frame);
	mem_free(s);
}

static void slot_unlist(struct ipc_slot *s)
{
	if (!s->c)
		return;
	list_remove(&s->link);
	s->c = NULL;
	slot_unref(s);
}

struct ipc_slot *ipc_slot_free(struct ipc_slot *s)
{
	if (!s)
		return NULL;
	s->done = true;
	s->fn = NULL;
	s->deadline = ev_src_free(s->deadline);
	slot_unlist(s); /* the answer will be one to nobody */
	slot_unref(s);
	return NULL;
}

/* Unlists s and runs its callback. */
static void slot_finish(struct ipc_slot *s, const struct ipc_reply *r)
{
	s->refs++;
	slot_unlist(s);
	s->deadline = ev_src_free(s->deadline);
	if (!s->done) {
		s->done = true;
		if (s->fn)
			s->fn(r, s->arg);
		else if (r->rc)
			log_debug("ipc: %s: %s", s->method, r->message);
	}
	slot_unref(s);
}

static void client_leave(struct ipc_client *c)
{
	if (--c->busy == 0 && c->freed)
		mem_free(c);
}

static void fail_all(struct ipc_client *c, enum rc rc, const char *why)
{
	while (!list_is_empty(&c->calls)) {
		struct ipc_fds none = {.n = 0};
		struct ipc_reply r = {.rc = rc, .message = why, .fds = &none};

		slot_finish(LIST_ENTRY(c->calls.next, struct ipc_slot, link), &r);
	}
}

static void on_end(enum rc rc, const char *why, void *arg)
{
	struct ipc_client *c = arg;

	if (c->closed)
		return;
	c->closed = true;
	c->ready = false;
	c->handshake = ev_src_free(c->handshake);
	c->busy++;
	fail_all(c, RC_CLOSED, why);
	if (!c->freed && c->ops->on_closed)
		c->ops->on_closed(rc, why, c->arg);
	client_leave(c);
}

static void take_answer(struct ipc_client *c, const struct json *msg, struct ipc_fds *fds)
{
	const struct json *error = js_get(msg, "error");
	struct ipc_reply r = {.result = js_get(msg, "result"), .fds = fds};
	int64_t id = js_get_int(msg, "id", -1);
	struct ipc_slot *s = NULL;

	LIST_FOREACH(it, &c->calls) {
		struct ipc_slot *o = LIST_ENTRY(it, struct ipc_slot, link);

		if (id >= 0 && o->id == (uint64_t)id && !o->frame)
			s = o;
	}
	if (!s) /* past its deadline, or dropped */
		return;
	if (error) {
		const char *name = js_get_str(error, "rc");

		r.message = js_get_str(error, "message");
		r.message = r.message ? r.message : "no reason given";
		r.rc = RC_IO;
		r.result = NULL;
		for (int rc = RC_OK + 1; rc < RC__MAX; rc++)
			if (str_eq(name, rc_name((enum rc)rc)))
				r.rc = (enum rc)rc;
	}
	slot_finish(s, &r);
}

static void on_frame(const struct json *msg, struct ipc_fds *fds, void *arg)
{
	struct ipc_client *c = arg;
	const char *event = js_get_str(msg, "event");

	c->busy++;
	if (event && c->ready && c->ops->on_event)
		c->ops->on_event(event, js_get(msg, "data"), c->arg);
	else if (!event)
		take_answer(c, msg, fds);
	client_leave(c);
}

/* The calls that were made before hello was answered. */
static void send_waiting(struct ipc_client *c)
{
	LIST_FOREACH(it, &c->calls) {
		struct ipc_slot *s = LIST_ENTRY(it, struct ipc_slot, link);

		if (s->frame)
			stream_send(&c->st, STEAL(s->frame));
	}
}

static void on_hello(const struct ipc_reply *r, void *arg)
{
	struct ipc_client *c = arg;
	int64_t version = js_get_int(r->result, "version", -1);

	if (r->rc == RC_CLOSED)
		return;
	if (r->rc) {
		stream_break(&c->st, r->rc, r->message);
		return;
	}
	if (version < (int64_t)c->speaks.min || version > (int64_t)c->speaks.max) {
		stream_break(&c->st, RC_UNSUPPORTED,
			     "the server picked a version that was not offered");
		return;
	}
	c->handshake = ev_src_free(c->handshake);
	c->ready = true;
	send_waiting(c);
	if (c->ops->on_ready)
		c->ops->on_ready((unsigned)version, r->result, c->arg);
}

static void on_deadline(void *arg)
{
	struct ipc_slot *s = arg;
	struct ipc_fds none = {.n = 0};
	char why[96];

	snprintf(why, sizeof(why), "no answer to '%s' in time", s->method);
	struct ipc_reply r = {.rc = RC_TIMEOUT, .message = why, .fds = &none};

	slot_finish(s, &r);
}

static void on_handshake_late(void *arg)
{
	struct ipc_client *c = arg;

	stream_break(&c->st, RC_TIMEOUT, "the server did not answer hello in time");
}

static enum rc call_new(struct ipc_client *c, struct ipc_slot **out, const char *method,
			struct json *params, const int *fds, size_t n_fds, usec_t timeout,
			ipc_reply_fn fn, void *arg, struct err *err)
{
	CLEANUP(js_unrefp) struct json *msg = NULL;
	struct ipc_slot *s = mem_alloc(sizeof(*s));
	enum rc rc = RC_NOMEM;

	msg = js_pack("{s:I, s:s, s:O*}", "id", (int64_t)c->next_id, "method", method, "params",
		      params);
	if (!s || !msg) {
		for (size_t i = 0; i < n_fds; i++)
			fd_close(fds[i]);
		mem_free(s);
		return err_set(err, rc, "cannot build the call '%s'", method);
	}
	s->refs = 1;
	s->id = c->next_id++;
	s->fn = fn;
	s->arg = arg;
	snprintf(s->method, sizeof(s->method), "%s", method);
	rc = frame_new(&s->frame, msg, fds, n_fds, err);
	if (!rc && timeout)
		rc = ev_timer_after(c->loop, &s->deadline, timeout, on_deadline, s, err);
	if (rc) {
		slot_unref(s);
		return rc;
	}
	s->c = c;
	list_push_tail(&c->calls, &s->link);
	*out = s;
	return RC_OK;
}

enum rc ipc_call(struct ipc_client *c, struct ipc_slot **slot, const char *method,
		 struct json *params, const int *fds, size_t n_fds, usec_t timeout, ipc_reply_fn fn,
		 void *arg, struct err *err)
{
	CLEANUP(js_unrefp) struct json *own = params;
	struct ipc_slot *s = NULL;

	assert(timeout && (!slot || !*slot));
	if (c->closed || c->freed) {
		for (size_t i = 0; i < n_fds; i++)
			fd_close(fds[i]);
		return err_set(err, RC_CLOSED, "the connection is closed");
	}
	enum rc rc = call_new(c, &s, method, own, fds, n_fds, timeout, fn, arg, err);

	if (rc)
		return rc;
	assert(s);
	if (slot) {
		*slot = s;
		s->refs++;
	}
	if (c->ready)
		stream_send(&c->st, STEAL(s->frame));
	return RC_OK;
}

static enum rc say_hello(struct ipc_client *c, const char *name, struct err *err)
{
	CLEANUP(js_unrefp) struct json *params = NULL;
	struct ipc_slot *s = NULL;

	params = js_pack("{s:s, s:{s:i, s:i}}", "name", name, "versions", "min", (int)c->speaks.min,
			 "max", (int)c->speaks.max);
	if (!params)
		return err_set(err, RC_NOMEM, "cannot build hello");
	/* Its deadline is the handshake timer's. */
	enum rc rc = call_new(c, &s, "hello", params, NULL, 0, 0, on_hello, c, err);

	if (rc)
		return rc;
	assert(s);
	stream_send(&c->st, STEAL(s->frame));
	return RC_OK;
}

enum rc ipc_client_new(struct ipc_client **out, struct loop *loop, int fd, const char *name,
		       struct ipc_version speaks, usec_t handshake,
		       const struct ipc_client_ops *ops, void *arg, struct err *err)
{
	CLEANUP(fd_closep) int own = fd;
	CLEANUP(ipc_client_freep) struct ipc_client *c = mem_alloc(sizeof(*c));
	enum rc rc;

	if (!c)
		return err_set(err, RC_NOMEM, "cannot allocate the client");
	c->loop = loop;
	c->ops = ops;
	c->arg = arg;
	c->speaks = speaks;
	list_init(&c->calls);
	c->st.fd = -1;
	c->st.on_frame = on_frame;
	c->st.on_end = on_end;
	c->st.arg = c;
	rc = stream_init(&c->st, loop, STEAL_FD(own), err);
	if (!rc)
		rc = ev_timer_after(loop, &c->handshake, handshake, on_handshake_late, c, err);
	if (!rc)
		rc = say_hello(c, name, err);
	if (rc)
		return rc;
	*out = STEAL(c);
	return RC_OK;
}

enum rc ipc_client_open(struct ipc_client **out, struct loop *loop, const char *path,
			const char *name, struct ipc_version speaks, usec_t handshake,
			const struct ipc_client_ops *ops, void *arg, struct err *err)
{
	CLEANUP(fd_closep) int fd = -1;
	enum rc rc = file_connect_unix(path, &fd, err);

	return rc ? rc
		  : ipc_client_new(out, loop, STEAL_FD(fd), name, speaks, handshake, ops, arg, err);
}

struct ipc_client *ipc_client_free(struct ipc_client *c)
{
	if (!c || c->freed)
		return NULL;
	c->closed = true;
	c->ready = false;
	c->freed = true;
	c->handshake = ev_src_free(c->handshake);
	stream_fini(&c->st);
	while (!list_is_empty(&c->calls)) {
		struct ipc_slot *s = LIST_ENTRY(c->calls.next, struct ipc_slot, link);

		s->done = true;
		s->deadline = ev_src_free(s->deadline);
		slot_unlist(s);
	}
	if (!c->busy)
		mem_free(c);
	return NULL;
}

bool ipc_client_is_ready(const struct ipc_client *c)
{
	return c && c->ready;
}
