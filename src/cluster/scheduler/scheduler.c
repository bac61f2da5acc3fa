#include "cluster/scheduler/scheduler.h"

#include <string.h>

#include "api/api.h"
#include "api/meta.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/try.h"
#include "sched/snapshot.h"

#define ANN_SELECTED_NODE "volume.kubernetes.io/selected-node"
/* How many pods before this one are placed in thought; beyond it their order no longer matters. */
#define THINK_MAX 256

static bool is_ours(const Pod *pod)
{
	return str_is_empty(pod->spec.nodeName) && !pod->metadata.deletionTimestamp &&
	       !sched_pod_is_final(pod) &&
	       (str_is_empty(pod->spec.schedulerName) ||
		str_eq(pod->spec.schedulerName, SCHEDULER_NAME));
}

/* ---- one pod ---- */

struct choice {
	struct sched_node *node;	/* NULL: none fits */
	struct sched_verdict *verdicts; /* one per node, in their order */
};

static enum rc choose(struct sched_cluster *c, const struct view *v, const Pod *pod,
		      struct choice *out, struct err *err)
{
	CLEANUP(mem_freep) struct sched_volume *vols = NULL;
	size_t n_vols;
	int64_t best = 0;

	out->node = NULL;
	TRY(sched_pod_volumes(v, pod, &vols, &n_vols));
	for (size_t i = 0; i < c->n_nodes; i++) {
		int64_t score;

		TRY(sched_check(c, &c->nodes[i], pod, vols, n_vols, SCHED_FIRST, &out->verdicts[i],
				err));
		if (out->verdicts[i].n)
			continue;
		TRY(sched_score(c, &c->nodes[i], pod, &score, err));
		if (!out->node || score > best ||
		    (score == best && c->nodes[i].n_pods < out->node->n_pods)) {
			out->node = &c->nodes[i];
			best = score;
		}
	}
	return RC_OK;
}

/* ---- those before it ---- */

static int order(const void *a, const void *b)
{
	const Pod *x = *(const Pod *const *)a, *y = *(const Pod *const *)b;
	int64_t px = API_GET(&x->spec, priority, 0), py = API_GET(&y->spec, priority, 0);
	int c = py > px ? 1 : py < px ? -1 : 0;

	if (!c)
		c = strcmp(x->metadata.creationTimestamp ? x->metadata.creationTimestamp : "",
			   y->metadata.creationTimestamp ? y->metadata.creationTimestamp : "");
	if (!c)
		c = strcmp(x->metadata.namespace, y->metadata.namespace);
	return c ? c : strcmp(x->metadata.name, y->metadata.name);
}

/* The first THINK_MAX of them, in order.  Returns how many. */
static size_t collect_before(const struct view *v, const Pod *pod, const Pod **first)
{
	size_t n = 0;
	struct kiter it;

	view_list(v, &api_kind_Pod, NULL, &it);
	for (const Pod *p; (p = view_next(&it));) {
		size_t from = 0, to = n;

		if (p == pod || !is_ours(p) || order(&p, &pod) > 0)
			continue;
		if (n == THINK_MAX && order(&p, &first[n - 1]) > 0)
			continue; /* most of a long queue: it is read about in its order */
		while (from < to) {
			size_t mid = (from + to) / 2;

			if (order(&p, &first[mid]) > 0)
				from = mid + 1;
			else
				to = mid;
		}
		n += n < THINK_MAX;
		memmove(first + from + 1, first + from, (n - from - 1) * sizeof(*first));
		first[from] = p;
	}
	return n;
}

static enum rc place_before(struct sched_cluster *c, const struct view *v, const Pod *pod,
			    struct choice *scratch)
{
	const Pod *before[THINK_MAX];
	size_t n = c->n_nodes ? collect_before(v, pod, before) : 0;

	for (size_t i = 0; i < n; i++) {
		if (choose(c, v, before[i], scratch, NULL) || !scratch->node)
			continue; /* its own turn says why */
		TRY(sched_cluster_assume(c, scratch->node, before[i]));
	}
	return RC_OK;
}

/* ---- the outcome ---- */

static enum rc say_no(const struct view *v, const Pod *pod, const struct choice *c, size_t n_nodes,
		      struct plan *out)
{
	CLEANUP(Pod_freep) Pod *next = Pod_clone(pod);
	struct sbuf text = SBUF_INIT(8192);
	struct api_cond old;
	bool known;

	if (!next)
		return RC_NOMEM;
	sched_summary(c->verdicts, n_nodes, &text);
	known = API_COND_GET(&pod->status, PodCondition, "PodScheduled", &old) &&
		str_eq(old.message, sbuf_str(&text));
	enum rc rc = API_COND_SET(&next->status, PodCondition, v->now, .type = "PodScheduled",
				  .status = "False", .reason = "Unschedulable",
				  .message = sbuf_str(&text));

	if (!rc)
		rc = plan_update(out, &api_kind_Pod, pod, STEAL(next), "status");
	if (!rc && !known)
		rc = plan_event(out, &api_kind_Pod, pod, "Warning", "FailedScheduling", "%s",
				sbuf_str(&text));
	sbuf_fini(&text);
	return rc;
}

/* Claims that are made when their consumer has a node are told the node now; the pod is bound once they
 * are.  *waits: the pod must wait for that. */
static enum rc select_volumes(const struct view *v, const Pod *pod, const char *node,
			      struct plan *out, bool *waits)
{
	CLEANUP(mem_freep) struct sched_volume *vols = NULL;
	size_t n;

	*waits = false;
	TRY(sched_pod_volumes(v, pod, &vols, &n));
	for (size_t i = 0; i < n; i++) {
		const PersistentVolumeClaim *pvc = vols[i].pvc;

		if (!vols[i].waits_for_consumer)
			continue;
		*waits = true;
		CLEANUP(PersistentVolumeClaim_freep)
		PersistentVolumeClaim *next = PersistentVolumeClaim_clone(pvc);

		if (!next)
			return RC_NOMEM;
		TRY(api_map_set(&next->metadata.annotations, ANN_SELECTED_NODE, node));
		TRY(plan_update(out, &api_kind_PersistentVolumeClaim, pvc, STEAL(next), NULL));
	}
	return RC_OK;
}

static enum rc bind(const struct view *v, const Pod *pod, const struct sched_node *n,
		    struct plan *out)
{
	const char *node = n->node->metadata.name;
	bool waits;

	TRY(select_volumes(v, pod, node, out, &waits));
	if (waits)
		return RC_OK; /* the claim's change wakes us */
	TRY(plan_bind(out, pod->metadata.namespace, pod->metadata.name, pod->metadata.uid, node));
	return plan_event(out, &api_kind_Pod, pod, "Normal", "Scheduled",
			  "Successfully assigned %s/%s to %s", pod->metadata.namespace,
			  pod->metadata.name, node);
}

static enum rc schedule(const struct view *v, const Pod *pod, struct sched_cluster *c,
			struct plan *out, struct err *err)
{
	TRY(sched_snapshot(v, c));
	CLEANUP(mem_freep)
	struct sched_verdict *verdicts = mem_calloc(c->n_nodes ? c->n_nodes : 1, sizeof(*verdicts));
	struct choice choice = {.verdicts = verdicts};

	if (!verdicts)
		return RC_NOMEM;
	TRY(place_before(c, v, pod, &choice));
	TRY(choose(c, v, pod, &choice, err));
	return choice.node ? bind(v, pod, choice.node, out)
			   : say_no(v, pod, &choice, c->n_nodes, out);
}

enum rc scheduler_reconcile(const struct view *v, const char *ns, const char *name,
			    struct plan *out, struct err *err)
{
	const Pod *pod = view_get(v, &api_kind_Pod, ns, name);
	struct sched_cluster c;

	if (!pod || !is_ours(pod))
		return RC_OK;
	enum rc rc = schedule(v, pod, &c, out, err);

	sched_cluster_fini(&c);
	if (rc == RC_NOMEM)
		return err_set(err, rc, "out of memory");
	return rc;
}

/* ---- what wakes it ---- */

static void wake_pending(const struct view *v, ctl_emit_fn emit, void *ctx)
{
	struct kiter it;

	view_list(v, &api_kind_Pod, NULL, &it);
	for (const Pod *p; (p = view_next(&it));)
		if (is_ours(p))
			emit(ctx, p->metadata.namespace, p->metadata.name);
}

static void map_any(const struct view *v, const struct kobj *obj, ctl_emit_fn emit, void *ctx)
{
	(void)obj;
	wake_pending(v, emit, ctx);
}

/* Room that a pod leaves (or takes) matters to those that wait. */
static void map_pod(const struct view *v, const struct kobj *obj, ctl_emit_fn emit, void *ctx)
{
	const Pod *pod = kobj_typed(obj);

	if (sched_pod_is_final(pod) || pod->metadata.deletionTimestamp || pod->spec.nodeName)
		wake_pending(v, emit, ctx);
}

static const struct ctl_map maps[] = {
	{&api_kind_Pod, map_pod},
	{&api_kind_Node, map_any},
	{&api_kind_PersistentVolumeClaim, map_any},
	{&api_kind_PersistentVolume, map_any},
	{NULL, NULL},
};

static const struct api_kind *const reads[] = {&api_kind_StorageClass, &api_kind_Namespace, NULL};

const struct ctl_def scheduler_ctl_def = {
	.name = "scheduler",
	.primary = &api_kind_Pod,
	.reconcile = scheduler_reconcile,
	.maps = maps,
	.reads = reads,
	.parallel = 8,
};
