/* Nodes that fall silent.
 *
 * A lease that runs out only marks: condition Ready=Unknown and a taint that keeps new pods away.  Nothing
 * is evicted and nothing is started elsewhere.  Only the taint node.kubernetes.io/out-of-service, which
 * says that the machine has been switched off (by an operator, or by what fences it), removes the pods of
 * a node that is not ready; then each VM's run strategy decides.  FerryConfig.spec.fencing None: not even
 * the taint does; pods of a dead node stay until they are deleted by hand.
 *
 * Ages are taken from the lease's own time: the clocks of the machines must agree within seconds. */
#include <stdio.h>

#include "api/api.h"
#include "api/meta.h"
#include "base/str.h"
#include "base/try.h"
#include "cluster/controllers/controllers.h"
#include "virt/names.h"

#define NODE		    (&api_kind_Node)
#define CONFIG		    (&api_kind_FerryConfig)
#define FENCE		    (&api_kind_NodeFence)
#define LEASE_NS	    "kube-node-lease"
#define GRACE		    (40 * USEC_PER_SEC)
#define UNSCHEDULABLE_AFTER (300 * USEC_PER_SEC)
#define LABEL_SCHEDULABLE   "kubevirt.io/schedulable"

static const Lease *lease_of(const struct view *v, const Node *node)
{
	return view_get(v, &api_kind_Lease, LEASE_NS, node->metadata.name);
}

static usec_t silence(const struct view *v, const Node *node)
{
	const Lease *l = lease_of(v, node);

	if (l && l->spec.renewTime)
		return cc_age(v->now, l->spec.renewTime);
	return cc_age(v->now, node->metadata.creationTimestamp);
}

/* How long a node has to be silent before something is done by itself; 0: never is. */
static int64_t silence_seconds(const FerryConfigSpec *cfg)
{
	if (str_eq(cfg->fencing, FencingPolicy_Agent) && cfg->fenceAgent)
		return API_GET(cfg->fenceAgent, silenceSeconds, 40);
	if (str_eq(cfg->fencing, FencingPolicy_StorageLock))
		return cfg->storageLock ? API_GET(cfg->storageLock, silenceSeconds, 40) : 40;
	return 0;
}

/* Where lost nodes are fenced, one is silent as soon as that may begin.  Not before the node knows how often it is to be
 * heard of, which its lease tells: a setting that was just made shorter makes nobody late. */
static usec_t grace(const struct view *v, const Node *node)
{
	const FerryConfig *cfg = view_get(v, CONFIG, NULL, "ferry");

	int64_t seconds = cfg ? silence_seconds(&cfg->spec) : 0;

	if (!seconds)
		return GRACE;
	const Lease *l = lease_of(v, node);
	int64_t told = l ? API_GET(&l->spec, leaseDurationSeconds, 0) : 0;

	return MIN(GRACE, (usec_t)MAX(seconds, told) * USEC_PER_SEC);
}

static bool has_taint(const Node *node, const char *key)
{
	for (size_t i = 0; i < node->spec.n_taints; i++)
		if (str_eq(node->spec.taints[i].key, key))
			return true;
	return false;
}

static enum rc add_taint(Node *node, const char *key)
{
	if (has_taint(node, key))
		return RC_OK;
	Taint *t = api_append(&node->spec.taints, &node->spec.n_taints, sizeof(*t));

	if (!t)
		return RC_NOMEM;
	TRY(api_set_str(&t->key, key));
	return api_set_str(&t->effect, "NoSchedule");
}

static void del_taint(Node *node, const char *key)
{
	for (size_t i = node->spec.n_taints; i-- > 0;)
		if (str_eq(node->spec.taints[i].key, key))
			api_remove(&api_type_Taint, &node->spec.taints, &node->spec.n_taints, i);
}

/* ---- silent ---- */

static enum rc mark_unknown(const struct view *v, const Node *node, struct plan *out)
{
	CLEANUP(Node_freep) Node *next = Node_clone(node);

	if (!next)
		return RC_NOMEM;
	if (API_COND_IS(&node->status, NodeCondition, "Ready", "Unknown"))
		return RC_OK;
	TRY(API_COND_SET(&next->status, NodeCondition, v->now, .type = "Ready", .status = "Unknown",
			 .reason = "NodeStatusUnknown",
			 .message = "The agent of the node stopped posting node status."));
	TRY(plan_update(out, NODE, node, STEAL(next), "status"));
	TRY(plan_event(out, NODE, node, "Normal", "NodeNotReady",
		       "Node %s status is now: NodeNotReady", node->metadata.name));
	return plan_event(out, NODE, node, "Normal", "NodeUnresponsive",
			  "virt-handler is not responsive, marking node as unresponsive");
}

static enum rc mark_away(const Node *node, usec_t silent, struct plan *out)
{
	CLEANUP(Node_freep) Node *next = Node_clone(node);

	if (!next)
		return RC_NOMEM;
	TRY(add_taint(next, TAINT_UNREACHABLE));
	if (silent >= UNSCHEDULABLE_AFTER)
		TRY(api_map_set(&next->metadata.labels, LABEL_SCHEDULABLE, "false"));
	return plan_update(out, NODE, node, STEAL(next), NULL);
}

static bool may_fence(const struct view *v)
{
	const FerryConfig *cfg = view_get(v, CONFIG, NULL, "ferry");

	return !cfg || !str_eq(cfg->spec.fencing, "None");
}

/* A fence agent's proof is of one silence: the lease must not have been renewed since.  A taint that was
 * left from an earlier one says nothing about this one. */
static bool is_proven(const struct view *v, const Node *node, const char *taint)
{
	const NodeFence *f = view_get(v, FENCE, NULL, node->metadata.name);
	const Lease *l = lease_of(v, node);
	char value[40];

	if (!f || !l)
		return false;
	(void)snprintf(value, sizeof(value), TAINT_VALUE_FENCED "%lld",
		       (long long)API_GET(&f->spec, epoch, 1));
	return str_eq(taint, value) && str_eq(f->spec.nodeUID, node->metadata.uid) &&
	       str_eq(f->spec.lease, l->spec.renewTime) &&
	       API_GET(&f->status, epoch, 0) == API_GET(&f->spec, epoch, 1) &&
	       str_eq(f->status.state, FenceState_Proven);
}

static bool is_declared_dead(const struct view *v, const Node *node)
{
	for (size_t i = 0; i < node->spec.n_taints; i++) {
		const Taint *t = &node->spec.taints[i];

		if (str_eq(t->key, TAINT_OUT_OF_SERVICE) &&
		    (!str_has_prefix(t->value, TAINT_VALUE_FENCED) || is_proven(v, node, t->value)))
			return true;
	}
	return false;
}

/* The machine is off, somebody says: its pods are over.  Not believed of a node that answers. */
static enum rc clear_out(const struct view *v, const Node *node, struct plan *out)
{
	struct kiter it;

	if (!may_fence(v) || !is_declared_dead(v, node))
		return RC_OK;
	view_list(v, &api_kind_Pod, NULL, &it);
	for (const Pod *pod; (pod = view_next(&it));)
		if (str_eq(pod->spec.nodeName, node->metadata.name))
			TRY(plan_delete(out, &api_kind_Pod, pod->metadata.namespace,
					pod->metadata.name, pod->metadata.uid, 0, NULL));
	return RC_OK;
}

static enum rc silent(const struct view *v, const Node *node, usec_t age, struct plan *out)
{
	TRY(mark_unknown(v, node, out));
	TRY(mark_away(node, age, out));
	TRY(clear_out(v, node, out));
	return age < UNSCHEDULABLE_AFTER ? plan_requeue_after(out, UNSCHEDULABLE_AFTER - age)
					 : RC_OK;
}

/* ---- back, or never away ---- */

static enum rc alive(const struct view *v, const Node *node, usec_t age, struct plan *out)
{
	TRY(plan_requeue_after(out, grace(v, node) - age));
	/* Ready and the label are the agent's to set again; the taint is ours */
	if (!has_taint(node, TAINT_UNREACHABLE) ||
	    !API_COND_IS(&node->status, NodeCondition, "Ready", "True"))
		return RC_OK;
	CLEANUP(Node_freep) Node *next = Node_clone(node);

	if (!next)
		return RC_NOMEM;
	del_taint(next, TAINT_UNREACHABLE);
	TRY(plan_update(out, NODE, node, STEAL(next), NULL));
	return plan_event(out, NODE, node, "Normal", "NodeReady",
			  "Node %s status is now: NodeReady", node->metadata.name);
}

static enum rc node_reconcile(const struct view *v, const char *ns, const char *name,
			      struct plan *out, struct err *err)
{
	const Node *node = view_get(v, NODE, ns, name);

	if (!node || node->metadata.deletionTimestamp)
		return RC_OK;
	usec_t age = silence(v, node);
	enum rc rc = age >= grace(v, node) ? silent(v, node, age, out) : alive(v, node, age, out);

	return rc ? err_set(err, rc, "cannot judge node '%s'", name) : RC_OK;
}

static void map_lease(const struct view *v, const struct kobj *obj, ctl_emit_fn emit, void *ctx)
{
	(void)v;
	if (str_eq(kobj_ns(obj), LEASE_NS))
		emit(ctx, NULL, kobj_name(obj));
}

/* New pods of a machine that is off. */
static void map_pod(const struct view *v, const struct kobj *obj, ctl_emit_fn emit, void *ctx)
{
	const Pod *pod = kobj_typed(obj);
	const Node *node = str_is_empty(pod->spec.nodeName)
				   ? NULL
				   : view_get(v, NODE, NULL, pod->spec.nodeName);

	if (node && has_taint(node, TAINT_OUT_OF_SERVICE))
		emit(ctx, NULL, pod->spec.nodeName);
}

/* The policy has changed: for every node, since it also says when one is silent. */
static void map_config(const struct view *v, const struct kobj *obj, ctl_emit_fn emit, void *ctx)
{
	(void)obj;
	ctl_emit_all(v, NODE, emit, ctx);
}

static const struct ctl_map maps[] = {
	{CONFIG, map_config},	  {FENCE, ctl_map_name}, {&api_kind_Lease, map_lease},
	{&api_kind_Pod, map_pod}, {NULL, NULL},
};

const struct ctl_def nodelifecycle_ctl_def = {
	.name = "nodelifecycle",
	.primary = &api_kind_Node,
	.reconcile = node_reconcile,
	.maps = maps,
};
