#include "virt/controller/fence/fence.h"

#include "api/api.h"
#include "api/meta.h"
#include "base/str.h"
#include "base/try.h"
#include "virt/controller/kit.h"
#include "virt/names.h"

#define NODE	   (&api_kind_Node)
#define FENCE	   (&api_kind_NodeFence)
#define LEASE_NS   "kube-node-lease"
#define RETRY_STEP (5 * USEC_PER_SEC)
#define RETRY_MAX  (300 * USEC_PER_SEC)
#define DEAF_AGAIN (2 * USEC_PER_SEC) /* until any node is heard of again */
#define WITHDRAWN_REST \
	(60 * USEC_PER_SEC) /* a node whose clock is wrong looks silent at each renewal */

const FerryFenceAgent *fence_agent_of(const FerryConfigSpec *cfg)
{
	return cfg && str_eq(cfg->fencing, FencingPolicy_Agent) ? cfg->fenceAgent : NULL;
}

usec_t fence_silence(const FerryFenceAgent *a)
{
	return (usec_t)API_GET(a, silenceSeconds, 40) * USEC_PER_SEC;
}

usec_t fence_timeout(const FerryFenceAgent *a)
{
	return (usec_t)API_GET(a, timeoutSeconds, 60) * USEC_PER_SEC;
}

bool fence_has_state(const NodeFence *f, const char *state)
{
	return API_GET(&f->status, epoch, 0) == API_GET(&f->spec, epoch, 1) &&
	       str_eq(f->status.state, state);
}

usec_t fence_retry_delay(int64_t attempts)
{
	return MIN(RETRY_STEP << MIN(MAX(attempts, 1) - 1, 10), RETRY_MAX);
}

/* One look at a node. */
struct look {
	const struct view *v;
	const Node *node;
	const Lease *lease;	/* never NULL */
	const NodeFence *fence; /* NULL: none */
	struct plan *plan;
};

/* The record is about this silence of this node: the lease has not been renewed since. */
static bool is_current(const struct look *l)
{
	return l->fence && str_eq(l->fence->spec.nodeUID, l->node->metadata.uid) &&
	       str_eq(l->fence->spec.lease, l->lease->spec.renewTime);
}

/* A launcher pod that has not ended: a guest may run there. */
static bool may_run_guests(const struct look *l)
{
	struct kiter it;

	view_list(l->v, &api_kind_Pod, NULL, &it);
	for (const Pod *pod; (pod = view_next(&it));)
		if (str_eq(pod->spec.nodeName, l->node->metadata.name) && !kit_pod_is_final(pod) &&
		    str_eq(api_label(&pod->metadata, LABEL_ROLE), ROLE_LAUNCHER))
			return true;
	return false;
}

/* Some other node is heard of: then it is not we who are deaf, and there is a place to start guests at. */
static bool is_any_other_heard(const struct look *l, const FerryFenceAgent *agent)
{
	struct kiter it;

	view_list(l->v, NODE, NULL, &it);
	for (const Node *n; (n = view_next(&it));) {
		const Lease *lease = view_get(l->v, &api_kind_Lease, LEASE_NS, n->metadata.name);

		if (n != l->node && lease &&
		    kit_age(l->v->now, lease->spec.renewTime) < fence_silence(agent))
			return true;
	}
	return false;
}

/* ---- the record ---- */

static enum rc fill(const struct look *l, NodeFence *f, int64_t epoch)
{
	const char *name = l->node->metadata.name;

	TRY(api_set_str(&f->metadata.name, name));
	TRY(api_set_str(&f->spec.nodeName, name));
	TRY(api_set_str(&f->spec.nodeUID, l->node->metadata.uid));
	TRY(api_set_str(&f->spec.lease, l->lease->spec.renewTime));
	API_SET(&f->spec, epoch, epoch);
	return kit_stamp(&f->spec.requestedTime, l->v->now);
}

static enum rc tell_request(struct look *l)
{
	return plan_event(l->plan, NODE, l->node, "Warning", "FencingRequested",
			  "Node %s is silent and may run virtual machines: it is to be fenced",
			  l->node->metadata.name);
}

/* The next epoch: whatever was proven before is of no use any more. */
static enum rc request(struct look *l)
{
	const NodeFence *old = l->fence;
	CLEANUP(NodeFence_freep) NodeFence *f = old ? NodeFence_clone(old) : NodeFence_new();

	if (!f)
		return RC_NOMEM;
	TRY(fill(l, f, old ? API_GET(&old->spec, epoch, 1) + 1 : 1));
	if (!old)
		TRY(plan_create(l->plan, FENCE, STEAL(f)));
	else
		TRY(plan_update(l->plan, FENCE, old, STEAL(f), NULL));
	return tell_request(l);
}

/* ---- the taint ---- */

static Taint *find_taint(const Node *node)
{
	for (size_t i = 0; i < node->spec.n_taints; i++)
		if (str_eq(node->spec.taints[i].key, TAINT_OUT_OF_SERVICE))
			return &node->spec.taints[i];
	return NULL;
}

static bool is_ours(const Taint *t)
{
	return t && str_has_prefix(t->value, TAINT_VALUE_FENCED);
}

/* From here on its pods are over; Kubernetes' own name for it, so that whoever clears pods out knows it. */
static enum rc declare_dead(struct look *l)
{
	CLEANUP(Node_freep) Node *next = Node_clone(l->node);
	Taint *t = next ? find_taint(next) : NULL;

	if (!next)
		return RC_NOMEM;
	if (t && !is_ours(t))
		return RC_OK; /* somebody has said so already */
	if (!t)
		t = api_append(&next->spec.taints, &next->spec.n_taints, sizeof(*t));
	if (!t)
		return RC_NOMEM;
	TRY(api_set_str(&t->key, TAINT_OUT_OF_SERVICE));
	TRY(api_set_str(&t->effect, "NoExecute"));
	TRY(api_set_strf(&t->value, TAINT_VALUE_FENCED "%lld",
			 (long long)API_GET(&l->fence->spec, epoch, 1)));
	size_t before = l->plan->n_ops;

	TRY(plan_update(l->plan, NODE, l->node, STEAL(next), NULL));
	if (l->plan->n_ops == before)
		return RC_OK;
	return plan_event(l->plan, NODE, l->node, "Warning", "NodeFenced",
			  "Node %s is proven to be off: its virtual machines may start elsewhere",
			  l->node->metadata.name);
}

/* It is heard of again: what was proven is over. */
static enum rc let_in(struct look *l)
{
	CLEANUP(Node_freep) Node *next = Node_clone(l->node);

	if (!next)
		return RC_NOMEM;
	for (size_t i = next->spec.n_taints; i-- > 0;)
		if (str_eq(next->spec.taints[i].key, TAINT_OUT_OF_SERVICE) &&
		    is_ours(&next->spec.taints[i]))
			api_remove(&api_type_Taint, &next->spec.taints, &next->spec.n_taints, i);
	TRY(plan_update(l->plan, NODE, l->node, STEAL(next), NULL));
	return plan_event(l->plan, NODE, l->node, "Normal", "NodeBack",
			  "Node %s is heard of again after it was fenced", l->node->metadata.name);
}

/* ---- one look ---- */

/* Its agent looked right before it would have fenced, and the node had been heard of. */
static usec_t withdrawn_rest(const struct look *l)
{
	if (!l->fence || !fence_has_state(l->fence, FenceState_Withdrawn))
		return 0;
	usec_t age = kit_age(l->v->now, l->fence->status.endTime);

	return age < WITHDRAWN_REST ? WITHDRAWN_REST - age : 0;
}

static enum rc look_at_silent(struct look *l, const FerryFenceAgent *agent)
{
	usec_t rest;

	if (is_current(l))
		return fence_has_state(l->fence, FenceState_Proven) ? declare_dead(l) : RC_OK;
	if (!may_run_guests(l))
		return RC_OK; /* nothing to start elsewhere */
	if (!is_any_other_heard(l, agent))
		return plan_requeue_after(l->plan, DEAF_AGAIN);
	rest = withdrawn_rest(l);
	return rest ? plan_requeue_after(l->plan, rest) : request(l);
}

static enum rc look(struct look *l, const FerryFenceAgent *agent)
{
	usec_t silent = kit_age(l->v->now, l->lease->spec.renewTime);

	if (is_ours(find_taint(l->node)) && !is_current(l))
		return let_in(l);
	if (!agent)
		return RC_OK;
	if (silent < fence_silence(agent))
		return plan_requeue_after(l->plan, fence_silence(agent) - silent);
	return look_at_silent(l, agent);
}

enum rc fence_reconcile(const struct view *v, const char *ns, const char *name, struct plan *out,
			struct err *err)
{
	struct look l = {
		.v = v,
		.node = view_get(v, NODE, ns, name),
		.lease = view_get(v, &api_kind_Lease, LEASE_NS, name),
		.fence = view_get(v, FENCE, NULL, name),
		.plan = out,
	};

	/* A node that never renewed its lease has never been given a pod. */
	if (!l.node || l.node->metadata.deletionTimestamp || !l.lease || !l.lease->spec.renewTime)
		return RC_OK;
	return kit_fail(err, look(&l, fence_agent_of(kit_ferry_config(v))),
			"cannot judge the silence of the node");
}

/* ---- what wakes it ---- */

static void map_lease(const struct view *v, const struct kobj *obj, ctl_emit_fn emit, void *ctx)
{
	(void)v;
	if (str_eq(kobj_ns(obj), LEASE_NS))
		emit(ctx, NULL, kobj_name(obj));
}

static void map_config(const struct view *v, const struct kobj *obj, ctl_emit_fn emit, void *ctx)
{
	(void)obj;
	ctl_emit_all(v, NODE, emit, ctx);
}

/* One that was bound before its node fell silent, and is seen only now. */
static void map_pod(const struct view *v, const struct kobj *obj, ctl_emit_fn emit, void *ctx)
{
	const Pod *pod = kobj_typed(obj);
	const Lease *lease = str_is_empty(pod->spec.nodeName)
				     ? NULL
				     : view_get(v, &api_kind_Lease, LEASE_NS, pod->spec.nodeName);
	const FerryFenceAgent *agent = fence_agent_of(kit_ferry_config(v));

	if (lease && agent && kit_age(v->now, lease->spec.renewTime) >= fence_silence(agent))
		emit(ctx, NULL, pod->spec.nodeName);
}

static const struct ctl_map maps[] = {
	{&api_kind_Lease, map_lease},
	{&api_kind_NodeFence, ctl_map_name},
	{&api_kind_FerryConfig, map_config},
	{&api_kind_Pod, map_pod},
	{NULL, NULL},
};

const struct ctl_def fence_ctl_def = {
	.name = "fence",
	.primary = NODE,
	.reconcile = fence_reconcile,
	.maps = maps,
};
