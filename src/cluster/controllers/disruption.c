/* PodDisruptionBudgets: how many of a set of pods may be evicted now.
 *
 * Computed from the pods each time; the eviction subresource takes from what is written here and notes the
 * pod, so that two evictions do not count on the same one.  A noted pod counts as gone until it is, or for
 * two minutes.  A share, or a number of pods that may be missing, needs the number that there should be:
 * owners tell it by their subresource scale.  VMs have none (as in KubeVirt), so nothing may be evicted
 * then, and the condition says why.
 */
#include <stdio.h>

#include "api/api.h"
#include "api/labels.h"
#include "api/meta.h"
#include "base/file.h"
#include "base/str.h"
#include "base/try.h"
#include "cluster/controllers/controllers.h"
#include "json/json.h"

#define BUDGET (&api_kind_PodDisruptionBudget)
#define DELETION_LIMIT \
	(120 * USEC_PER_SEC) /* an eviction that has not deleted its pod by then has not happened */

struct count {
	const struct view *v;
	const PodDisruptionBudget *old;
	PodDisruptionBudget *next;
	struct api_selector *which;
	int64_t pods, healthy;
	const char
		*scaleless; /* resource of an owner that does not tell how many there should be */
	struct plan *plan;
};

/* ---- noted evictions ---- */

static usec_t noted_left(const struct count *c, const char *pod)
{
	const char *stamp = api_map_get(&c->old->status.disruptedPods, pod);
	usec_t age = stamp ? cc_age(c->v->now, stamp) : USEC_INFINITY;

	return age < DELETION_LIMIT ? DELETION_LIMIT - age : 0;
}

static enum rc keep_note(struct count *c, const char *pod)
{
	usec_t left = noted_left(c, pod);

	if (!left)
		return RC_OK;
	TRY(api_map_set(&c->next->status.disruptedPods, pod,
			api_map_get(&c->old->status.disruptedPods, pod)));
	return plan_requeue_after(c->plan, left);
}

/* ---- pods ---- */

static const char *owner_resource(const Pod *pod)
{
	const OwnerReference *o = api_controller_of(&pod->metadata);

	if (!o)
		return NULL;
	return str_eq(o->kind, "VirtualMachineInstance") ? "virtualmachineinstances.kubevirt.io"
							 : o->kind;
}

static enum rc count_pod(struct count *c, const Pod *pod)
{
	c->pods++;
	if (owner_resource(pod))
		c->scaleless = owner_resource(pod);
	if (pod->metadata.deletionTimestamp)
		return RC_OK;
	if (noted_left(c, pod->metadata.name))
		return keep_note(c, pod->metadata.name);
	c->healthy += API_COND_IS(&pod->status, PodCondition, "Ready", "True");
	return RC_OK;
}

static enum rc count_pods(struct count *c)
{
	struct kiter it;

	api_map_fini(&c->next->status.disruptedPods);
	view_list(c->v, &api_kind_Pod, c->old->metadata.namespace, &it);
	for (const Pod *pod; (pod = view_next(&it));)
		if (api_selector_matches(c->which, &pod->metadata.labels))
			TRY(count_pod(c, pod));
	return RC_OK;
}

/* ---- what it comes to ---- */

static enum rc set_allowed(struct count *c, bool is_allowed, const char *reason,
			   const char *message)
{
	PodDisruptionBudgetStatus *st = &c->next->status;
	Condition *cond = st->n_conditions ? &st->conditions[0] : NULL;
	const char *status = is_allowed ? "True" : "False";

	if (!cond)
		cond = api_append(&st->conditions, &st->n_conditions, sizeof(*cond));
	if (!cond)
		return RC_NOMEM;
	if (!str_eq(cond->status, status)) {
		char now[32];

		time_rfc3339(c->v->now, now);
		TRY(api_set_str(&cond->lastTransitionTime, now));
	}
	TRY(api_set_str(&cond->type, "DisruptionAllowed"));
	TRY(api_set_str(&cond->status, status));
	TRY(api_set_str(&cond->reason, reason));
	TRY(api_set_str(&cond->message, message));
	API_SET(cond, observedGeneration, c->old->metadata.generation);
	return RC_OK;
}

/* The number itself; -1: a share. */
static int64_t plain_number(const struct json *value)
{
	return js_type(value) == JS_INT ? js_int(value, 0) : -1;
}

static bool needs_scale(const PodDisruptionBudgetSpec *s)
{
	return s->maxUnavailable || (s->minAvailable && plain_number(s->minAvailable) < 0);
}

static enum rc cannot_tell(struct count *c)
{
	char why[256];

	(void)snprintf(why, sizeof(why), "%s does not implement the scale subresource",
		       c->scaleless);
	API_SET(&c->next->status, disruptionsAllowed, 0);
	TRY(set_allowed(c, false, "SyncFailed", why));
	if (c->old->status.n_conditions && str_eq(c->old->status.conditions[0].message, why))
		return RC_OK;
	return plan_event(c->plan, BUDGET, c->old, "Warning", "CalculateExpectedPodCountFailed",
			  "Failed to calculate the number of expected pods: %s", why);
}

static enum rc judge(struct count *c)
{
	PodDisruptionBudgetStatus *st = &c->next->status;
	const PodDisruptionBudgetSpec *spec = &c->old->spec;
	int64_t wanted = 0, allowed;

	API_SET(st, observedGeneration, c->old->metadata.generation);
	API_SET(st, currentHealthy, c->healthy);
	if (needs_scale(spec) && c->scaleless)
		return cannot_tell(c);
	/* pods without an owner count for nothing where a scale is asked for */
	if (!needs_scale(spec) && spec->minAvailable)
		wanted = plain_number(spec->minAvailable);
	int64_t expected = spec->minAvailable && !needs_scale(spec) ? c->pods : 0;

	allowed = expected > 0 ? MAX(c->healthy - wanted, 0) : 0;
	API_SET(st, expectedPods, expected);
	API_SET(st, desiredHealthy, wanted);
	API_SET(st, disruptionsAllowed, allowed);
	return set_allowed(c, allowed > 0, allowed > 0 ? "SufficientPods" : "InsufficientPods", "");
}

static enum rc sync(struct count *c, struct err *err)
{
	TRY(api_selector_from(c->old->spec.selector, &c->which, err));
	TRY(count_pods(c));
	TRY(judge(c));
	if (!c->pods && !API_GET(&c->old->status, observedGeneration, 0))
		TRY(plan_event(c->plan, BUDGET, c->old, "Normal", "NoPods",
			       "No matching pods found"));
	return plan_update(c->plan, BUDGET, c->old, STEAL(c->next), "status");
}

static enum rc disruption_reconcile(const struct view *v, const char *ns, const char *name,
				    struct plan *out, struct err *err)
{
	const PodDisruptionBudget *old = view_get(v, BUDGET, ns, name);

	if (!old || old->metadata.deletionTimestamp)
		return RC_OK;
	struct count c = {.v = v, .old = old, .next = PodDisruptionBudget_clone(old), .plan = out};
	enum rc rc = c.next ? sync(&c, err) : RC_NOMEM;

	PodDisruptionBudget_free(c.next);
	api_selector_free(c.which);
	if (rc == RC_NOMEM)
		return err_set(err, rc, "out of memory");
	return rc;
}

static void map_pod(const struct view *v, const struct kobj *obj, ctl_emit_fn emit, void *ctx)
{
	struct kiter it;

	view_list(v, BUDGET, kobj_ns(obj), &it);
	for (const PodDisruptionBudget *b; (b = view_next(&it));)
		emit(ctx, b->metadata.namespace, b->metadata.name);
}

static const struct ctl_map maps[] = {
	{&api_kind_Pod, map_pod},
	{NULL, NULL},
};

const struct ctl_def disruption_ctl_def = {
	.name = "disruption",
	.primary = BUDGET,
	.reconcile = disruption_reconcile,
	.maps = maps,
};
