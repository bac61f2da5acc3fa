#include "ctl/exec.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "api/meta.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "ctl/exec_int.h"
#include "ctl/plan.h"
#include "ev/ev.h"
#include "json/json.h"
#include "kube/kcache.h"
#include "kube/kobj.h"
#include "kube/kube.h"

/* Theory of operation
 *
 * A run walks its plan with one request in flight.  Each answer is fed into the cache, then judged:
 *
 *   create  201                 next
 *           409 AlreadyExists   read what is there: same controller, or the very object: next;
 *                               without a controller: look again; another's: failure
 *   patch   200                 next; its resourceVersion replaces the older one in later patches of
 *                               the same object
 *           409, 404            look again
 *   delete  200, 404            next
 *           409                 look again (the name has another object by now)
 *   bind    201                 read the pod, so that the cache knows its node; next
 *
 * "Look again" is RC_CONFLICT.  Events are handed to the recorder when their turn comes.
 */

struct exec_run {
	struct list link;
	struct exec *x; /* NULL: the executor is gone */
	struct plan plan;
	size_t at;  /* the operation in flight */
	char **rvs; /* per operation: the resourceVersion it produced, or NULL */
	struct kube_call *call;
	struct ev_src *later; /* the end, when there is nothing to wait for */
	exec_done_fn fn;
	void *arg;
	struct err err;
	bool is_done;
	bool is_busy;
	bool is_freed;
};

static void on_op(const struct kube_reply *r, void *arg);
static void on_there(const struct kube_reply *r, void *arg);
static void on_bound(const struct kube_reply *r, void *arg);
static void on_later(void *arg);

enum rc exec_new(struct exec **out, struct loop *loop, struct kube *kube, struct kcache *cache,
		 const struct exec_opts *opts, struct err *err)
{
	struct exec *x = mem_alloc(sizeof(*x));
	enum rc rc;

	if (!x)
		return err_set(err, RC_NOMEM, "cannot allocate an executor");
	x->loop = loop;
	x->kube = kube;
	x->cache = cache;
	list_init(&x->runs);
	rc = events_new(&x->events, x, opts, err);
	if (rc) {
		mem_free(x);
		return rc;
	}
	*out = x;
	return RC_OK;
}

static void run_stop(struct exec_run *r)
{
	r->call = kube_call_free(r->call);
	r->later = ev_src_free(r->later);
	r->is_done = true;
}

struct exec *exec_free(struct exec *x)
{
	if (!x)
		return NULL;
	for (struct list *l; (l = list_pop_head(&x->runs));) {
		struct exec_run *r = LIST_ENTRY(l, struct exec_run, link);

		run_stop(r);
		r->x = NULL;
	}
	events_free(x->events);
	mem_free(x->counts);
	return mem_free(x);
}

static void run_destroy(struct exec_run *r)
{
	list_remove(&r->link);
	for (size_t i = 0; r->rvs && i < r->plan.n_ops; i++)
		mem_free(r->rvs[i]);
	mem_free(r->rvs);
	plan_fini(&r->plan);
	mem_free(r);
}

struct exec_run *exec_run_free(struct exec_run *r)
{
	if (!r || r->is_freed)
		return NULL;
	if (!r->is_done)
		run_stop(r);
	r->is_freed = true;
	if (!r->is_busy)
		run_destroy(r);
	return NULL;
}

void exec_count_write(struct exec *x, const struct api_kind *kind, const char *verb)
{
	for (size_t i = 0; i < x->n_counts; i++) {
		if (x->counts[i].kind == kind && x->counts[i].verb == verb) {
			x->counts[i].n++;
			return;
		}
	}
	if (!mem_grow((void **)&x->counts, &x->cap_counts, x->n_counts, sizeof(*x->counts)))
		return;
	x->counts[x->n_counts++] = (struct exec_count){.kind = kind, .verb = verb, .n = 1};
}

/* The walk */

static void run_finish(struct exec_run *r, enum rc rc)
{
	run_stop(r);
	if (rc == RC_CONFLICT || rc == RC_EXPIRED)
		r->x->conflicts++;
	else if (rc)
		r->x->failures++;
	r->is_busy = true;
	r->fn(rc, &r->err, r->arg);
	r->is_busy = false;
	if (r->is_freed)
		run_destroy(r);
}

static void on_later(void *arg)
{
	struct exec_run *r = arg;

	run_finish(r, r->err.rc);
}

static void run_finish_later(struct exec_run *r)
{
	ev_timer_rearm(r->later, 0);
}

/* The newest version of the same object that this run has produced; NULL: none. */
static const char *newer_version(const struct exec_run *r, const struct plan_op *op)
{
	for (size_t i = r->at; i-- > 0;) {
		const struct plan_op *b = &r->plan.ops[i];

		if (r->rvs[i] && b->kind == op->kind && str_eq(b->ns, op->ns) &&
		    str_eq(b->name, op->name))
			return r->rvs[i];
	}
	return NULL;
}

static enum rc start_patch(struct exec_run *r, const struct plan_op *op, struct err *err)
{
	const char *rv = newer_version(r, op);

	if (rv && js_set(js_get(op->body, "metadata"), "resourceVersion", js_new_str(rv)))
		return err_set(err, RC_NOMEM, "cannot build a patch");
	return kube_patch(r->x->kube, &r->call, op->kind, op->ns, op->name, op->subresource,
			  KUBE_PATCH_MERGE, op->body, on_op, r, err);
}

static enum rc start_op(struct exec_run *r, const struct plan_op *op, struct err *err)
{
	struct kube *k = r->x->kube;
	struct kube_delete_opts del = {
		.grace_seconds = op->grace_seconds, .propagation = op->propagation, .uid = op->uid};

	r->call = kube_call_free(r->call);
	switch (op->type) {
	case PLAN_CREATE:
		return kube_create(k, &r->call, op->kind, op->ns, op->body, on_op, r, err);
	case PLAN_PATCH:
		return start_patch(r, op, err);
	case PLAN_DELETE:
		return kube_delete(k, &r->call, op->kind, op->ns, op->name, &del, on_op, r, err);
	case PLAN_BIND:
		return kube_post(k, &r->call, op->kind, op->ns, op->name, "binding", op->body,
				 on_op, r, err);
	case PLAN_EVENT:
	case PLAN_OP__MAX:
		break;
	}
	return err_set(err, RC_INVALID, "an unknown operation");
}

static void record(struct exec *x, const struct plan_op *op)
{
	const struct event_note n = {.kind = op->kind,
				     .ns = op->ns,
				     .name = op->name,
				     .uid = op->uid,
				     .type = op->event_type,
				     .reason = op->event_reason,
				     .message = op->event_message};

	events_record(x->events, &n);
}

/* Starts the operation at r->at.  False: the run is over (r->err.rc). */
static bool run_start_next(struct exec_run *r)
{
	while (r->at < r->plan.n_ops) {
		const struct plan_op *op = &r->plan.ops[r->at];

		if (op->type != PLAN_EVENT) {
			r->err.rc = start_op(r, op, &r->err);
			return !r->err.rc;
		}
		record(r->x, op);
		r->at++;
	}
	return false;
}

static void run_go_on(struct exec_run *r)
{
	r->at++;
	if (!run_start_next(r))
		run_finish(r, r->err.rc);
}

static void run_fail(struct exec_run *r, enum rc rc, const struct kube_reply *why)
{
	const struct plan_op *op = &r->plan.ops[r->at];
	static const char *const verbs[PLAN_OP__MAX] = {
		[PLAN_CREATE] = "create", [PLAN_PATCH] = "update", [PLAN_DELETE] = "delete",
		[PLAN_BIND] = "bind",	  [PLAN_EVENT] = "event",
	};

	err_set(&r->err, rc, "cannot %s %s '%s/%s': %s", verbs[op->type], op->kind->kind, op->ns,
		op->name ? op->name : "", why->rc ? why->err.msg : "look again");
	run_finish(r, rc);
}

/* Own writes enter the cache now.  For want of memory the watch brings them later. */
static void feed(struct exec_run *r, const struct plan_op *op, const struct json *body)
{
	CLEANUP(kobj_unrefp) struct kobj *o = NULL;

	if (!str_eq(js_get_str(body, "kind"), op->kind->kind))
		return;
	if (r->rvs[r->at] == NULL) {
		const char *rv = js_str(js_at(body, "metadata", "resourceVersion", NULL));

		r->rvs[r->at] = mem_strdup(rv);
	}
	if (!r->x->cache || kobj_decode(&o, op->kind, body, NULL))
		return;
	ignore_rc(kcache_feed(r->x->cache, o, NULL));
}

static void feed_gone(struct exec_run *r, const struct plan_op *op)
{
	if (r->x->cache && op->uid)
		kcache_feed_gone(r->x->cache, op->kind, op->ns, op->name, op->uid);
}

/* 404 about this very object, not about an unknown path. */
static bool says_gone(const struct kube_reply *reply, const struct plan_op *op)
{
	return reply->rc == RC_NOT_FOUND &&
	       str_eq(js_str(js_at(reply->body, "details", "name", NULL)), op->name);
}

static void after_create(struct exec_run *r, const struct plan_op *op,
			 const struct kube_reply *reply)
{
	if (reply->rc == RC_EXISTS && op->name) {
		r->call = kube_call_free(r->call);
		r->err.rc = kube_get(r->x->kube, &r->call, op->kind, op->ns, op->name, on_there, r,
				     &r->err);
		if (r->err.rc)
			run_finish(r, r->err.rc);
		return;
	}
	if (reply->rc) {
		run_fail(r, reply->rc, reply);
		return;
	}
	exec_count_write(r->x, op->kind, "create");
	feed(r, op, reply->body);
	run_go_on(r);
}

/* What holds the name that a create wanted. */
static void on_there(const struct kube_reply *reply, void *arg)
{
	struct exec_run *r = arg;
	const struct plan_op *op = &r->plan.ops[r->at];
	const OwnerReference *want = api_controller_of(op->obj);
	CLEANUP(kobj_unrefp) struct kobj *o = NULL;
	const OwnerReference *have;

	if (reply->rc || kobj_decode(&o, op->kind, reply->body, NULL)) {
		run_fail(r, reply->rc == RC_NOT_FOUND || !reply->rc ? RC_CONFLICT : reply->rc,
			 reply);
		return;
	}
	feed(r, op, reply->body);
	have = api_controller_of(kobj_meta(o));
	if (!want) {
		run_fail(r, RC_CONFLICT, reply);
		return;
	}
	if (!have || !str_eq(have->uid, want->uid)) {
		struct kube_reply why = {.rc = RC_EXISTS};

		err_set(&why.err, RC_EXISTS, "it exists and belongs to %s",
			have && have->name ? have->name : "nobody");
		run_fail(r, RC_EXISTS, &why);
		return;
	}
	run_go_on(r);
}

static void after_patch(struct exec_run *r, const struct plan_op *op,
			const struct kube_reply *reply)
{
	if (says_gone(reply, op)) {
		feed_gone(r, op);
		run_fail(r, RC_CONFLICT, reply);
		return;
	}
	if (reply->rc) {
		run_fail(r, reply->rc, reply);
		return;
	}
	if (!op->confirms)
		exec_count_write(r->x, op->kind, op->subresource ? "patch_status" : "patch");
	feed(r, op, reply->body);
	run_go_on(r);
}

static void after_delete(struct exec_run *r, const struct plan_op *op,
			 const struct kube_reply *reply)
{
	if (reply->rc && !says_gone(reply, op)) {
		run_fail(r, reply->rc == RC_EXISTS ? RC_CONFLICT : reply->rc, reply);
		return;
	}
	if (!reply->rc)
		exec_count_write(r->x, op->kind, "delete");
	if (str_eq(js_get_str(reply->body, "kind"), op->kind->kind))
		feed(r, op, reply->body);
	else
		feed_gone(r, op);
	run_go_on(r);
}

static void after_bind(struct exec_run *r, const struct plan_op *op, const struct kube_reply *reply)
{
	if (reply->rc) {
		if (says_gone(reply, op))
			feed_gone(r, op);
		run_fail(r,
			 reply->rc == RC_NOT_FOUND || reply->rc == RC_EXISTS ? RC_CONFLICT
									     : reply->rc,
			 reply);
		return;
	}
	exec_count_write(r->x, op->kind, "bind");
	if (!r->x->cache) {
		run_go_on(r);
		return;
	}
	r->call = kube_call_free(r->call);
	r->err.rc =
		kube_get(r->x->kube, &r->call, op->kind, op->ns, op->name, on_bound, r, &r->err);
	if (r->err.rc)
		run_finish(r, r->err.rc);
}

static void on_bound(const struct kube_reply *reply, void *arg)
{
	struct exec_run *r = arg;

	/* Bound it is; that we cannot see it yet only delays the next look. */
	if (!reply->rc)
		feed(r, &r->plan.ops[r->at], reply->body);
	run_go_on(r);
}

static void on_op(const struct kube_reply *reply, void *arg)
{
	struct exec_run *r = arg;
	const struct plan_op *op = &r->plan.ops[r->at];

	switch (op->type) {
	case PLAN_CREATE:
		after_create(r, op, reply);
		return;
	case PLAN_PATCH:
		after_patch(r, op, reply);
		return;
	case PLAN_DELETE:
		after_delete(r, op, reply);
		return;
	case PLAN_BIND:
		after_bind(r, op, reply);
		return;
	case PLAN_EVENT:
	case PLAN_OP__MAX:
		break;
	}
	assert(!"an answer to an operation that sends nothing");
}

enum rc exec_plan(struct exec *x, struct exec_run **out, struct plan *plan, exec_done_fn fn,
		  void *arg, struct err *err)
{
	struct exec_run *r;
	enum rc rc;

	if (plan->rc)
		return err_copy(err, &plan->err), plan->rc;
	r = mem_alloc(sizeof(*r));
	if (!r)
		return err_set(err, RC_NOMEM, "cannot allocate a run of a plan");
	r->x = x;
	r->fn = fn;
	r->arg = arg;
	plan_take(&r->plan, plan);
	list_push_tail(&x->runs, &r->link);
	r->rvs = r->plan.n_ops ? mem_calloc(r->plan.n_ops, sizeof(*r->rvs)) : NULL;
	rc = r->plan.n_ops && !r->rvs ? err_set(err, RC_NOMEM, "cannot allocate a run of a plan")
				      : RC_OK;
	if (!rc)
		rc = ev_timer_after(x->loop, &r->later, USEC_INFINITY, on_later, r, err);
	if (rc) {
		ev_src_free(r->later);
		run_destroy(r);
		return rc;
	}
	if (!run_start_next(r))
		run_finish_later(r);
	*out = r;
	return RC_OK;
}

void exec_event(struct exec *x, const struct api_kind *kind, const void *obj, const char *type,
		const char *reason, const char *fmt, ...)
{
	const ObjectMeta *m = obj;
	struct event_note n = {.kind = kind,
			       .ns = m->namespace ? m->namespace : "",
			       .name = m->name,
			       .uid = m->uid,
			       .type = type,
			       .reason = reason};
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	n.message = text;
	events_record(x->events, &n);
}

uint64_t exec_writes(const struct exec *x, const struct api_kind *kind)
{
	uint64_t n = 0;

	for (size_t i = 0; i < x->n_counts; i++)
		if (kind ? x->counts[i].kind == kind
			 : strcmp(x->counts[i].kind->kind, "Event") != 0)
			n += x->counts[i].n;
	return n;
}

void exec_metrics(const struct exec *x, struct sbuf *out)
{
	sbuf_adds(out, "# HELP ferry_api_writes_total Writes that the API server acknowledged.\n"
		       "# TYPE ferry_api_writes_total counter\n");
	for (size_t i = 0; i < x->n_counts; i++)
		sbuf_addf(out, "ferry_api_writes_total{kind=\"%s\",verb=\"%s\"} %" PRIu64 "\n",
			  x->counts[i].kind->kind, x->counts[i].verb, x->counts[i].n);
	sbuf_addf(out,
		  "# HELP ferry_api_plan_conflicts_total Plans that met a newer state and looked "
		  "again.\n"
		  "# TYPE ferry_api_plan_conflicts_total counter\n"
		  "ferry_api_plan_conflicts_total %" PRIu64 "\n"
		  "# HELP ferry_api_plan_failures_total Plans that failed and were retried.\n"
		  "# TYPE ferry_api_plan_failures_total counter\n"
		  "ferry_api_plan_failures_total %" PRIu64 "\n",
		  x->conflicts, x->failures);
	events_metrics(x->events, out);
}
