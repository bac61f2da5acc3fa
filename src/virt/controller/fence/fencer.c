#include "virt/controller/fence/fencer.h"

#include <stdio.h>

#include "api/api.h"
#include "base/file.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "ev/ev.h"
#include "json/json.h"
#include "kube/kcache.h"
#include "kube/kobj.h"
#include "kube/kube.h"
#include "virt/controller/fence/fence.h"
#include "virt/controller/kit.h"

#define FENCE	 (&api_kind_NodeFence)
#define LEASE	 (&api_kind_Lease)
#define LEASE_NS "kube-node-lease"
#define AGAIN	 USEC_PER_SEC /* a request that failed is made again */

/* Theory of operation
 *
 *   Idle -> Asking (fresh lease) -> Noting (state Running) -> Running (the agent) -> Telling (outcome) -> Idle
 *             | heard of: Withdrawn                                                    ^ again until written
 *             +------------------------------------------------------------------------+
 *
 * What it knows is in the record; a fencer that starts anew runs the agent again where the record says
 * Running.  The one thing that it keeps is when it saw each lease change last.
 */

enum phase { PH_IDLE, PH_ASKING, PH_NOTING, PH_RUNNING, PH_TELLING };

/* A node whose lease has been seen. */
struct target {
	struct list link;
	struct fencer *fencer;
	char *name;
	char *lease;	/* its last renewal, as text */
	usec_t seen_at; /* loop time */
	enum phase phase;
	int64_t epoch; /* of the run */
	int64_t attempts;
	char *version;	      /* resourceVersion that the next write carries */
	struct json *outcome; /* status to be written */
	struct kube_call *call;
	struct ev_src *timer;
	void *op;
};

struct fencer {
	struct loop *loop;
	struct kube *kube;
	struct kcache *cache;
	const struct fence_ops *ops;
	void *ctx;
	struct kcache_handler *on_lease, *on_fence, *on_config;
	struct list targets;
	usec_t heard_at; /* any lease changed; loop time */
};

static void consider(struct target *t);
static void tell(struct target *t);

static void target_free(struct target *t)
{
	list_remove(&t->link);
	kube_call_free(t->call);
	ev_src_free(t->timer);
	if (t->op)
		t->fencer->ops->free(t->op);
	js_unref(t->outcome);
	mem_free(t->name);
	mem_free(t->lease);
	mem_free(t->version);
	mem_free(t);
}

static struct target *find(struct fencer *f, const char *name)
{
	LIST_FOREACH(l, &f->targets) {
		struct target *t = LIST_ENTRY(l, struct target, link);

		if (str_eq(t->name, name))
			return t;
	}
	return NULL;
}

static void on_timer(void *arg)
{
	struct target *t = arg;

	if (t->phase == PH_TELLING)
		tell(t);
	else
		consider(t);
}

static void look_again(struct target *t, usec_t delay)
{
	ev_timer_rearm(t->timer, delay);
}

static void go_idle(struct target *t, usec_t again)
{
	t->phase = PH_IDLE;
	t->outcome = js_unref(t->outcome);
	look_again(t, again);
}

static const FerryFenceAgent *agent_of(const struct fencer *f)
{
	const FerryConfig *cfg =
		kobj_typed(kcache_get(f->cache, &api_kind_FerryConfig, NULL, "ferry"));

	return cfg ? fence_agent_of(&cfg->spec) : NULL;
}

static const NodeFence *record_of(const struct target *t)
{
	return kobj_typed(kcache_get(t->fencer->cache, FENCE, NULL, t->name));
}

/* What the server answered is seen before the watch tells it: else the next look is at an older record. */
static void feed(struct target *t, const struct json *body)
{
	CLEANUP(kobj_unrefp) struct kobj *o = NULL;

	if (!kobj_decode(&o, FENCE, body, NULL))
		ignore_rc(kcache_feed(t->fencer->cache, o, NULL)); /* the watch tells it */
}

/* ---- the outcome ---- */

static void on_told(const struct kube_reply *r, void *arg)
{
	struct target *t = arg;

	t->call = kube_call_free(t->call);
	if (!r->rc) {
		feed(t, r->body);
		go_idle(t, 0);
		return;
	}
	if (r->rc == RC_CONFLICT || r->rc == RC_NOT_FOUND) {
		log_warn(
			"node '%s': its fencing record was changed meanwhile, the outcome of epoch "
			"%lld is dropped",
			t->name, (long long)t->epoch);
		go_idle(t, AGAIN);
		return;
	}
	log_warn("node '%s': the outcome of its fencing is not written yet: %s", t->name,
		 r->err.msg);
	look_again(t, AGAIN);
}

static enum rc patch(struct target *t, struct json *status, kube_reply_fn fn)
{
	CLEANUP(js_unrefp)
	struct json *body = js_pack("{s:{s:s}, s:O}", "metadata", "resourceVersion", t->version,
				    "status", status);
	struct err err = {0};

	if (!body)
		return RC_NOMEM;
	return kube_patch(t->fencer->kube, &t->call, FENCE, NULL, t->name, "status",
			  KUBE_PATCH_MERGE, body, fn, t, &err);
}

static void tell(struct target *t)
{
	t->phase = PH_TELLING;
	if (patch(t, t->outcome, on_told))
		look_again(t, AGAIN);
}

static void set_outcome(struct target *t, const char *state, int exit_code, const char *text)
{
	char now[32];

	time_rfc3339(loop_realtime(t->fencer->loop), now);
	js_unref(t->outcome);
	t->outcome = js_pack("{s:I, s:s, s:I, s:s, s:i, s:s}", "epoch", t->epoch, "state", state,
			     "attempts", t->attempts, "endTime", now, "exitCode", exit_code,
			     "message", text);
	if (t->outcome)
		tell(t);
	else
		go_idle(t, AGAIN); /* the record says Running: it is run again */
}

static void on_done(int exit_code, const char *text, void *arg)
{
	struct target *t = arg;

	t->fencer->ops->free(t->op);
	t->op = NULL;
	if (!exit_code)
		log_info("node '%s' is fenced, epoch %lld: it is off", t->name,
			 (long long)t->epoch);
	else
		log_warn("node '%s' could not be fenced, epoch %lld, exit code %d: %s", t->name,
			 (long long)t->epoch, exit_code, text);
	set_outcome(t, exit_code ? FenceState_Failed : FenceState_Proven, exit_code, text);
}

/* ---- the run ---- */

static const char *address_of(const struct target *t)
{
	const Node *n = kobj_typed(kcache_get(t->fencer->cache, &api_kind_Node, NULL, t->name));

	for (size_t i = 0; n && i < n->status.n_addresses; i++)
		if (str_eq(n->status.addresses[i].type, "InternalIP"))
			return n->status.addresses[i].address;
	return "";
}

static void run_agent(struct target *t)
{
	const FerryFenceAgent *a = agent_of(t->fencer);
	const struct fence_job job = {
		.program = a ? a->program : NULL,
		.node = t->name,
		.address = address_of(t),
		.epoch = t->epoch,
		.timeout = a ? fence_timeout(a) : 0,
	};
	struct err err = {0};

	if (!a) {
		set_outcome(t, FenceState_Withdrawn, -1, "fencing by an agent was turned off");
		return;
	}
	t->phase = PH_RUNNING;
	log_warn("node '%s' is silent: fencing it with '%s', epoch %lld, attempt %lld", t->name,
		 a->program, (long long)t->epoch, (long long)t->attempts);
	if (t->fencer->ops->start(t->fencer->ctx, &job, on_done, t, &t->op, &err)) {
		log_warn("node '%s': the fence agent cannot be run: %s", t->name, err.msg);
		set_outcome(t, FenceState_Failed, -1, err.msg);
	}
}

static void take_version(struct target *t, const struct json *obj)
{
	const char *rv = js_str(js_at(obj, "metadata", "resourceVersion", NULL));

	mem_free(t->version);
	t->version = mem_strdup(rv ? rv : "");
}

static void on_noted(const struct kube_reply *r, void *arg)
{
	struct target *t = arg;

	t->call = kube_call_free(t->call);
	if (r->rc) { /* somebody else is at it, or nothing is known: nothing was run */
		go_idle(t, AGAIN);
		return;
	}
	take_version(t, r->body);
	feed(t, r->body);
	run_agent(t);
}

/* It is in the record before it is done. */
static void note(struct target *t)
{
	CLEANUP(js_unrefp) struct json *status = NULL;
	char now[32];

	time_rfc3339(loop_realtime(t->fencer->loop), now);
	status = js_pack("{s:I, s:s, s:I, s:s, s:n, s:n, s:n}", "epoch", t->epoch, "state",
			 FenceState_Running, "attempts", t->attempts, "startTime", now, "endTime",
			 "exitCode", "message");
	t->phase = PH_NOTING;
	if (!status || patch(t, status, on_noted))
		go_idle(t, AGAIN);
}

static void on_fresh_lease(const struct kube_reply *r, void *arg)
{
	struct target *t = arg;
	const NodeFence *f = record_of(t);
	const char *renewed = js_str(js_at(r->body, "spec", "renewTime", NULL));

	t->call = kube_call_free(t->call);
	if (r->rc || !f || API_GET(&f->spec, epoch, 1) != t->epoch) {
		go_idle(t, AGAIN);
		return;
	}
	mem_free(t->version);
	t->version = mem_strdup(f->metadata.resourceVersion);
	if (str_eq(renewed, f->spec.lease))
		note(t);
	else
		set_outcome(t, FenceState_Withdrawn, -1, "the node was heard of again");
}

/* ---- when ---- */

static usec_t retry_left(const struct target *t, const NodeFence *f)
{
	usec_t delay = fence_retry_delay(API_GET(&f->status, attempts, 1));
	usec_t age = kit_age(loop_realtime(t->fencer->loop), f->status.endTime);

	return age < delay ? delay - age : 0;
}

/* How long a run has to wait; USEC_INFINITY: none is wanted. */
static usec_t wait_for_run(const struct target *t, const NodeFence *f, const FerryFenceAgent *a)
{
	usec_t quiet = loop_now(t->fencer->loop) - t->seen_at;
	usec_t wait = quiet < fence_silence(a) ? fence_silence(a) - quiet : 0;

	if (fence_has_state(f, FenceState_Proven) || fence_has_state(f, FenceState_Withdrawn) ||
	    !str_eq(f->spec.lease, t->lease))
		return USEC_INFINITY;
	if (fence_has_state(f, FenceState_Failed))
		wait = MAX(wait, retry_left(t, f));
	return wait;
}

static void consider(struct target *t)
{
	const FerryFenceAgent *a = agent_of(t->fencer);
	const NodeFence *f = record_of(t);
	struct err err = {0};

	if (t->phase != PH_IDLE || !a || !f)
		return;
	usec_t wait = wait_for_run(t, f, a);

	if (wait) {
		look_again(t, wait);
		return;
	}
	t->epoch = API_GET(&f->spec, epoch, 1);
	t->attempts = API_GET(&f->status, epoch, 0) == t->epoch
			      ? API_GET(&f->status, attempts, 0) + 1
			      : 1;
	t->phase = PH_ASKING;
	if (kube_get(t->fencer->kube, &t->call, LEASE, LEASE_NS, t->name, on_fresh_lease, t, &err))
		go_idle(t, AGAIN);
}

/* ---- what it sees ---- */

static struct target *target_new(struct fencer *f, const char *name)
{
	struct target *t = mem_alloc(sizeof(*t));

	if (!t || ev_timer_after(f->loop, &t->timer, USEC_INFINITY, on_timer, t, NULL)) {
		mem_free(t);
		return NULL;
	}
	t->fencer = f;
	t->name = mem_strdup(name);
	list_push_tail(&f->targets, &t->link);
	if (!t->name) {
		target_free(t);
		return NULL;
	}
	return t;
}

/* Nothing at all was heard of anybody for a good part of the silence: it was we who were deaf (the API server
 * was away, our network was cut), and whoever was silent meanwhile begins anew. */
static void hear(struct fencer *f)
{
	const FerryFenceAgent *a = agent_of(f);
	usec_t now = loop_now(f->loop);

	if (a && now - f->heard_at > fence_silence(a) / 2)
		LIST_FOREACH(l, &f->targets)
			LIST_ENTRY(l, struct target, link)->seen_at = now;
	f->heard_at = now;
}

static void on_lease(const struct kobj *old, const struct kobj *new, void *arg)
{
	struct fencer *f = arg;
	const Lease *l = kobj_typed(new);
	struct target *t;

	(void)old;
	if (!l || !str_eq(l->metadata.namespace, LEASE_NS) || !l->spec.renewTime)
		return;
	t = find(f, l->metadata.name);
	if (!t)
		t = target_new(f, l->metadata.name);
	if (!t || str_eq(t->lease, l->spec.renewTime))
		return;
	hear(f);
	char *lease = mem_strdup(l->spec.renewTime);

	if (!lease)
		return; /* the older text never equals the record's: nothing is fenced by it */
	mem_free(t->lease);
	t->lease = lease;
	t->seen_at = loop_now(f->loop);
}

/* From the loop, after the cache's event is through. */
static void wake(struct target *t)
{
	if (t->phase == PH_IDLE)
		look_again(t, 0);
}

static void on_fence(const struct kobj *old, const struct kobj *new, void *arg)
{
	struct target *t = new ? find(arg, kobj_name(new)) : NULL;

	(void)old;
	if (t)
		wake(t);
}

static void on_config(const struct kobj *old, const struct kobj *new, void *arg)
{
	struct fencer *f = arg;

	(void)old;
	(void)new;
	LIST_FOREACH(l, &f->targets)
		wake(LIST_ENTRY(l, struct target, link));
}

enum rc fencer_new(struct fencer **out, struct loop *loop, struct kube *kube, struct kcache *cache,
		   const struct fence_ops *ops, void *ctx, struct err *err)
{
	struct fencer *f = mem_alloc(sizeof(*f));

	if (!f)
		return err_set(err, RC_NOMEM, "out of memory");
	f->loop = loop;
	f->kube = kube;
	f->cache = cache;
	f->ops = ops;
	f->ctx = ctx;
	list_init(&f->targets);
	enum rc rc = kcache_on(cache, &f->on_lease, LEASE, on_lease, f, err);

	if (!rc)
		rc = kcache_on(cache, &f->on_fence, FENCE, on_fence, f, err);
	if (!rc)
		rc = kcache_on(cache, &f->on_config, &api_kind_FerryConfig, on_config, f, err);
	if (rc)
		fencer_free(f);
	else
		*out = f;
	return rc;
}

struct fencer *fencer_free(struct fencer *f)
{
	if (!f)
		return NULL;
	kcache_handler_free(f->on_lease);
	kcache_handler_free(f->on_fence);
	kcache_handler_free(f->on_config);
	while (!list_is_empty(&f->targets))
		target_free(LIST_ENTRY(f->targets.next, struct target, link));
	return mem_free(f);
}
