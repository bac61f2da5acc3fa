#include "virt/launcher/qmp_seq.h"

#include <stdio.h>

#include "base/mem.h"
#include "json/json.h"

enum { SEQ_MAX = 160 };

struct qmp_seq {
	struct {
		char command[40];
		struct json *args;
		enum qmp_seq_flags flags;
	} step[SEQ_MAX];
	size_t n, at;
	enum rc rc; /* of building */
	usec_t timeout;
	struct qmp *q;
	struct qmp_slot *slot;
	struct qmp_seq **owner;
	qmp_seq_fn done;
	void *arg;
};

enum rc qmp_seq_new(struct qmp_seq **out, usec_t timeout_each, struct err *err)
{
	struct qmp_seq *s = mem_alloc(sizeof(*s));

	if (!s)
		return err_set(err, RC_NOMEM, "cannot allocate a sequence of commands");
	s->timeout = timeout_each;
	*out = s;
	return RC_OK;
}

struct qmp_seq *qmp_seq_free(struct qmp_seq *s)
{
	if (!s)
		return NULL;
	s->slot = qmp_slot_free(s->slot);
	for (size_t i = 0; i < s->n; i++)
		js_unref(s->step[i].args);
	return mem_free(s);
}

static void push(struct qmp_seq *s, const char *command, struct json *args,
		 enum qmp_seq_flags flags)
{
	if (s->n == SEQ_MAX || s->rc) {
		s->rc = s->rc ? s->rc : RC_TOO_BIG;
		js_unref(args);
		return;
	}
	snprintf(s->step[s->n].command, sizeof(s->step[s->n].command), "%s", command);
	s->step[s->n].args = args;
	s->step[s->n++].flags = flags;
}

void qmp_seq_add(struct qmp_seq *s, const char *command, struct json *args,
		 enum qmp_seq_flags flags)
{
	if (!args)
		s->rc = RC_NOMEM;
	push(s, command, args, flags);
}

void qmp_seq_add_plain(struct qmp_seq *s, const char *command, enum qmp_seq_flags flags)
{
	push(s, command, NULL, flags);
}

static void seq_done(struct qmp_seq *s, const struct qmp_seq_result *r)
{
	qmp_seq_fn done = s->done;
	void *arg = s->arg;

	*s->owner = NULL;
	done(r, arg); /* r points into s and the reply */
	qmp_seq_free(s);
}

static enum rc send_next(struct qmp_seq *s, struct err *err);

static void on_reply(const struct qmp_reply *r, void *arg)
{
	struct qmp_seq *s = arg;
	size_t at = s->at++;
	struct err err = {0};
	struct qmp_seq_result result = {.rc = r->rc, .value = r->value};

	s->slot = qmp_slot_free(s->slot);
	if (r->rc && (s->step[at].flags == SEQ_MUST || r->rc == RC_CLOSED || r->rc == RC_TIMEOUT)) {
		result.command = s->step[at].command;
		result.desc = r->desc;
		seq_done(s, &result);
		return;
	}
	if (s->at == s->n) {
		result.rc = RC_OK;
		seq_done(s, &result);
		return;
	}
	enum rc rc = send_next(s, &err);

	if (rc) {
		result = (struct qmp_seq_result){
			.rc = rc, .command = s->step[s->at].command, .desc = err.msg};
		seq_done(s, &result);
	}
}

static enum rc send_next(struct qmp_seq *s, struct err *err)
{
	struct qmp_call call = {
		.command = s->step[s->at].command, .timeout = s->timeout, .fn = on_reply, .arg = s};

	call.args = STEAL(s->step[s->at].args);
	return qmp_invoke(s->q, &s->slot, &call, err);
}

enum rc qmp_seq_run(struct qmp_seq *s, struct qmp_seq **slot, struct qmp *q, qmp_seq_fn done,
		    void *arg, struct err *err)
{
	CLEANUP(qmp_seq_freep) struct qmp_seq *own = s;

	assert(!*slot && s->n);
	if (s->rc)
		return err_set(err, s->rc, "cannot build the commands for QEMU");
	if (!q)
		return err_set(err, RC_CLOSED, "QEMU's monitor is not connected");
	s->q = q;
	s->owner = slot;
	s->done = done;
	s->arg = arg;
	enum rc rc = send_next(s, err);

	if (rc)
		return rc;
	*slot = STEAL(own);
	return RC_OK;
}
