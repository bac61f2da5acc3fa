#include "virt/launcher/qga.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "ev/ev.h"
#include "json/json.h"

enum { CHUNK = 16384, SENTINEL = 0xff, OUT_MAX = 65536 };

struct command {
	struct list link;
	char *text; /* with its newline */
	usec_t until;
	bool may_be_silent;
	qga_reply_fn fn;
	void *arg;
};

struct qga {
	struct loop *loop;
	int fd;
	struct ev_src *io, *timer, *later;
	const struct qga_ops *ops;
	void *arg;
	struct list queue; /* the first one is on its way */
	unsigned n_queued;
	bool is_asking;	 /* the first one has been sent something of… */
	bool is_in_sync; /* …and its own text, too */
	int64_t number;
	size_t budget; /* bytes that the guest may still say */
	struct sbuf in, to_guest;
	enum rc closed; /* why it ended; RC_OK: it has not */
	const char *closed_why;
	unsigned depth; /* callbacks that run */
	bool is_freed;
};

void qga_printable(const char *s, char *out, size_t n)
{
	size_t at = 0;

	for (; s && *s && at + 1 < n; s++)
		out[at++] = (unsigned char)*s < 0x20 || *s == 0x7f ? ' ' : *s;
	/* A character that was cut in its middle goes. */
	while (s && *s && at && ((unsigned char)*s & 0xc0) == 0x80) {
		s--;
		at--;
	}
	out[at] = '\0';
}

static void destroy(struct qga *q)
{
	ev_src_free(q->io);
	ev_src_free(q->timer);
	ev_src_free(q->later);
	fd_close(q->fd);
	sbuf_fini(&q->in);
	sbuf_fini(&q->to_guest);
	while (!list_is_empty(&q->queue)) {
		struct command *c = LIST_ENTRY(list_pop_head(&q->queue), struct command, link);

		mem_free(c->text);
		mem_free(c);
	}
	mem_free(q);
}

struct qga *qga_free(struct qga *q)
{
	if (!q)
		return NULL;
	q->is_freed = true;
	if (!q->depth)
		destroy(q);
	return NULL;
}

/* Around everything that may call back: false when the client is gone by then. */
static bool leave(struct qga *q)
{
	q->depth--;
	if (!q->is_freed)
		return true;
	if (!q->depth)
		destroy(q);
	return false;
}

static void go_on(struct qga *q);

/* The first command is over. */
static void end_command(struct qga *q, enum rc rc, const struct json *value, const char *desc)
{
	struct command *c = LIST_ENTRY(list_pop_head(&q->queue), struct command, link);
	char text[QGA_DESC_MAX];
	struct qga_reply r = {.rc = rc, .value = value, .desc = rc ? text : NULL};

	qga_printable(desc, text, sizeof(text));
	q->n_queued--;
	q->is_asking = q->is_in_sync = false;
	c->fn(&r, c->arg);
	mem_free(c->text);
	mem_free(c);
}

static void end_all(struct qga *q)
{
	while (!q->is_freed && !list_is_empty(&q->queue))
		end_command(q, q->closed, NULL, q->closed_why);
	if (!q->is_freed)
		q->ops->on_closed(q->closed, q->closed_why, q->arg);
}

/* The channel is over; told from the loop. */
static void on_later(void *arg)
{
	struct qga *q = arg;

	q->later = ev_src_free(q->later);
	q->depth++;
	if (q->closed)
		end_all(q);
	else
		go_on(q);
	leave(q);
}

static void poke(struct qga *q)
{
	struct err err = {0};

	if (!q->later && ev_defer(q->loop, &q->later, on_later, q, &err))
		log_error("guest agent: %s", err.msg);
}

static void end_channel(struct qga *q, enum rc rc, const char *why)
{
	if (q->closed)
		return;
	q->closed = rc;
	q->closed_why = why;
	q->io = ev_src_free(q->io);
	q->timer = ev_src_free(q->timer);
	poke(q);
}

/* --- to the guest --- */

static void watch(struct qga *q)
{
	if (q->io)
		ev_io_set(q->io, EPOLLIN | (q->to_guest.n ? EPOLLOUT : 0u));
}

static void push(struct qga *q)
{
	ssize_t n = q->to_guest.n
			    ? send(q->fd, q->to_guest.p, q->to_guest.n, MSG_NOSIGNAL | MSG_DONTWAIT)
			    : 0;

	if (n > 0)
		sbuf_drop(&q->to_guest, (size_t)n);
	else if (n < 0 && errno != EAGAIN && errno != EINTR)
		end_channel(q, RC_CLOSED, "the channel has ended");
	watch(q);
}

static void say(struct qga *q, const char *text)
{
	sbuf_adds(&q->to_guest, text);
	if (sbuf_rc(&q->to_guest)) /* the guest takes nothing, for many commands */
		end_channel(q, RC_TOO_BIG, "the guest agent does not take what it is asked");
	else
		push(q);
}

static void on_late(void *arg)
{
	struct qga *q = arg;
	struct command *c = LIST_ENTRY(q->queue.next, struct command, link);

	q->timer = ev_src_free(q->timer);
	q->depth++;
	if (c->may_be_silent && q->is_in_sync)
		end_command(q, RC_OK, NULL, NULL);
	else
		end_command(q, RC_TIMEOUT, NULL, "the guest agent does not answer");
	if (!q->is_freed)
		go_on(q);
	leave(q);
}

/* Starts the first command, if none is on its way. */
static void go_on(struct qga *q)
{
	char sync[96];
	struct err err = {0};

	if (q->closed || q->is_asking || list_is_empty(&q->queue))
		return;
	struct command *c = LIST_ENTRY(q->queue.next, struct command, link);
	usec_t now = loop_now(q->loop);

	q->is_asking = true;
	q->is_in_sync = false;
	q->number++;
	q->budget = LIMIT_QGA_BYTES;
	q->timer = ev_src_free(q->timer);
	if (ev_timer_after(q->loop, &q->timer, c->until > now ? c->until - now : 0, on_late, q,
			   &err)) {
		end_channel(q, RC_NOMEM, "out of memory");
		return;
	}
	/* The byte ends whatever the agent has read so far: it is in no JSON. */
	snprintf(sync, sizeof(sync),
		 "\xff{\"execute\":\"guest-sync-delimited\",\"arguments\":{\"id\":%lld}}\n",
		 (long long)q->number);
	say(q, sync);
}

bool qga_was_sent(const struct qga *q)
{
	return q && q->is_in_sync;
}

/* --- from the guest --- */

static void take_error(struct qga *q, const struct json *error)
{
	const char *desc = js_get_str(error, "desc");
	bool is_unknown = str_eq(js_get_str(error, "class"), "CommandNotFound");

	end_command(q, is_unknown ? RC_NOT_FOUND : RC_REFUSED_BY_AGENT, NULL,
		    desc ? desc : "the guest agent refuses");
}

static void on_line(struct qga *q, const char *line, size_t n)
{
	CLEANUP(js_unrefp) struct json *j = NULL;
	enum rc rc = js_parse(line, n, &j, NULL);

	if (!q->is_asking)
		return; /* nobody has asked */
	const struct json *value = js_get(j, "return"), *error = js_get(j, "error");

	if (!q->is_in_sync) {
		/* Anything else is left of an earlier command, or made up. */
		if (js_type(value) != JS_INT || js_int(value, 0) != q->number)
			return;
		q->is_in_sync = true;
		say(q, LIST_ENTRY(q->queue.next, struct command, link)->text);
		return;
	}
	q->timer = ev_src_free(q->timer);
	if (rc || (!value && !js_is_object(error)))
		end_command(q, rc == RC_NOMEM ? rc : RC_INVALID, NULL,
			    "the guest agent's answer makes no sense");
	else if (value)
		end_command(q, RC_OK, value, NULL);
	else
		take_error(q, error);
	if (!q->is_freed)
		poke(q);
}

static void feed(struct qga *q, const char *bytes, size_t n)
{
	if (n > q->budget) {
		end_channel(q, RC_TOO_BIG, "the guest agent says too much");
		return;
	}
	q->budget -= n;
	for (size_t at = 0; at < n && !q->is_freed && !q->closed; at++) {
		if ((unsigned char)bytes[at] == SENTINEL) {
			sbuf_reset(&q->in);
		} else if (bytes[at] != '\n') {
			sbuf_addc(&q->in, bytes[at]);
		} else {
			if (sbuf_rc(&q->in))
				end_channel(q, RC_NOMEM, "out of memory");
			else if (q->in.n)
				on_line(q, q->in.p, q->in.n);
			if (!q->is_freed)
				sbuf_reset(&q->in);
		}
	}
}

static void on_io(uint32_t revents, void *arg)
{
	struct qga *q = arg;
	char bytes[CHUNK];

	q->depth++;
	if (revents & EPOLLOUT)
		push(q);
	if (!q->closed && (revents & (EPOLLIN | EPOLLHUP | EPOLLERR))) {
		ssize_t n = recv(q->fd, bytes, sizeof(bytes), MSG_DONTWAIT);

		if (n > 0)
			feed(q, bytes, (size_t)n);
		else if (n == 0 || (errno != EAGAIN && errno != EINTR))
			end_channel(q, RC_CLOSED, "the channel has ended");
	}
	leave(q);
}

/* --- the client --- */

enum rc qga_new(struct qga **out, struct loop *loop, int fd, uint64_t seed,
		const struct qga_ops *ops, void *arg, struct err *err)
{
	struct qga *q = mem_alloc(sizeof(*q));

	if (!q) {
		fd_close(fd);
		return err_set(err, RC_NOMEM, "out of memory");
	}
	q->loop = loop;
	q->fd = fd;
	q->ops = ops;
	q->arg = arg;
	q->number = (int64_t)(seed & 0xfffffffffffff); /* what every JSON parser reads as it is */
	q->budget = LIMIT_QGA_BYTES;
	list_init(&q->queue);
	sbuf_init(&q->in, LIMIT_QGA_BYTES + 1);
	sbuf_init(&q->to_guest, OUT_MAX);
	enum rc rc = ev_io(loop, &q->io, fd, EPOLLIN, on_io, q, err);

	if (rc) {
		destroy(q);
		return rc;
	}
	*out = q;
	return RC_OK;
}

static char *text_of(const char *command, struct json *args)
{
	CLEANUP(js_unrefp)
	struct json *j = js_pack("{s:s, s:o*}", "execute", command, "arguments", args);
	CLEANUP(mem_freep) char *text = j ? js_to_text(j) : NULL;

	return text ? mem_printf("%s\n", text) : NULL;
}

enum rc qga_invoke(struct qga *q, const struct qga_call *call, struct err *err)
{
	struct command *c;

	assert(call->timeout);
	if (q->closed || q->n_queued >= QGA_MAX_QUEUED) {
		js_unref(call->args);
		return q->closed ? err_set(err, RC_CLOSED, "the channel has ended")
				 : err_set(err, RC_BUSY, "too much is asked of the guest agent");
	}
	c = mem_alloc(sizeof(*c));
	if (!c) {
		js_unref(call->args);
		return err_set(err, RC_NOMEM, "out of memory");
	}
	*c = (struct command){.text = text_of(call->command, call->args),
			      .until = loop_now(q->loop) + call->timeout,
			      .may_be_silent = call->may_be_silent,
			      .fn = call->fn,
			      .arg = call->arg};
	if (!c->text) {
		mem_free(c);
		return err_set(err, RC_NOMEM, "out of memory");
	}
	list_push_tail(&q->queue, &c->link);
	q->n_queued++;
	poke(q);
	return RC_OK;
}
