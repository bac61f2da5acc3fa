/* What PodDisruptionBudgets say to an eviction, in Kubernetes' words.
 *
 * A pod that one budget protects is evicted only when that budget allows it: the eviction is first written
 * into its status (with the version that was looked at, so that two evictions never take the same one), then
 * the pod is deleted.
 */
#include <stdio.h>

#include "api/api.h"
#include "api/labels.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/try.h"
#include "http/uri.h"
#include "virt/subresources/subres_int.h"

#define BUDGETS		"poddisruptionbudgets.policy"
#define NOTED_MAX	2000
#define TRIES_MAX	8
#define VIOLATES	"Cannot evict pod as it would violate the pod's disruption budget."
#define RETRY_PROCESSED 10

struct search {
	const struct json *pod;
	struct json *found; /* the first that protects the pod; owned */
	size_t n;
	enum rc rc;
};

static enum rc protects(const struct json *budget, const struct json *pod, bool *out)
{
	CLEANUP(PodDisruptionBudget_freep) PodDisruptionBudget *b = NULL;
	CLEANUP(api_selector_freep) struct api_selector *which = NULL;
	void *typed = NULL;

	TRY(api_decode(&api_type_PodDisruptionBudget, budget, &typed, NULL));
	b = typed;
	TRY(api_selector_from(b->spec.selector, &which, NULL));
	*out = api_selector_matches_json(which, js_at(pod, "metadata", "labels", NULL));
	return RC_OK;
}

static bool consider(const struct json *budget, void *arg)
{
	struct search *s = arg;
	bool yes = false;

	s->rc = protects(budget, s->pod, &yes);
	if (!yes)
		return !s->rc;
	if (!s->n++)
		s->found = js_copy(budget);
	if (!s->found)
		s->rc = RC_NOMEM;
	return !s->rc;
}

/* ---- answers ---- */

static void refuse(struct hook_call *call, int code, const char *message, const char *reason,
		   struct json *details)
{
	struct json *status =
		js_pack("{s:s, s:s, s:{}, s:s, s:s, s:s*, s:o*, s:i}", "kind", "Status",
			"apiVersion", "v1", "metadata", "status", "Failure", "message", message,
			"reason", reason, "details", details, "code", code);

	if (!status) {
		fail_internal(call, "out of memory");
		return;
	}
	op_drop(call);
	hook_call_reply(call, code, status);
}

static void deny(struct hook_call *call, int retry_after, const char *why)
{
	struct json *details =
		js_pack("{s:[{s:s, s:s}]}", "causes", "reason", "DisruptionBudget", "message", why);

	if (details && retry_after && js_set(details, "retryAfterSeconds", js_new_int(retry_after)))
		details = js_unref(details);
	refuse(call, 429, VIOLATES, "TooManyRequests", details);
}

/* ---- what the budget says ---- */

static bool pod_is_ready(const struct json *pod)
{
	return condition_is_true(pod, "Ready");
}

static bool pod_counts_for_nothing(const struct json *pod)
{
	const char *phase = js_str(js_at(pod, "status", "phase", NULL));

	return str_eq(phase, "Succeeded") || str_eq(phase, "Failed") || str_eq(phase, "Pending") ||
	       js_at(pod, "metadata", "deletionTimestamp", NULL);
}

/* A pod that is not ready takes nothing away that the budget counts. */
static bool may_go_unready(const struct json *budget, const struct json *pod)
{
	const char *policy = js_str(js_at(budget, "spec", "unhealthyPodEvictionPolicy", NULL));
	const struct json *st = js_get(budget, "status");
	int64_t desired = js_get_int(st, "desiredHealthy", 0);

	if (pod_is_ready(pod))
		return false;
	return str_eq(policy, "AlwaysAllow") ||
	       (desired > 0 && js_get_int(st, "currentHealthy", 0) >= desired);
}

/* False: denied, and the call has been answered. */
static bool has_room(struct hook_call *call, const struct json *budget)
{
	const struct json *st = js_get(budget, "status");
	const char *name = js_str(js_at(budget, "metadata", "name", NULL));
	char why[512];

	if (js_get_int(st, "observedGeneration", 0) <
	    js_int(js_at(budget, "metadata", "generation", NULL), 0)) {
		snprintf(why, sizeof(why),
			 "The disruption budget %s is still being processed by the server.", name);
		deny(call, RETRY_PROCESSED, why);
		return false;
	}
	if (js_len(js_get(st, "disruptedPods")) > NOTED_MAX) {
		op_drop(call);
		hook_call_fail(call, RC_FORBIDDEN,
			       "poddisruptionbudgets.policy \"%s\" is forbidden: DisruptedPods map "
			       "too big - too many evictions not confirmed by PDB controller",
			       name);
		return false;
	}
	if (js_get_int(st, "disruptionsAllowed", 0) > 0)
		return true;
	snprintf(why, sizeof(why),
		 "The disruption budget %s needs %lld healthy pods and has %lld currently", name,
		 (long long)js_get_int(st, "desiredHealthy", 0),
		 (long long)js_get_int(st, "currentHealthy", 0));
	deny(call, 0, why);
	return false;
}

/* ---- taking from it ---- */

static enum rc take_one(struct hook_call *call, struct json *budget)
{
	struct json *st = js_get(budget, "status");
	struct json *noted = js_ensure_object(st, "disruptedPods");
	char now[32];

	time_rfc3339(hook_now(hook_call_env(call)), now);
	TRY(js_set(noted, hook_call_name(call), js_new_str(now)));
	return js_set(st, "disruptionsAllowed",
		      js_new_int(js_get_int(st, "disruptionsAllowed", 0) - 1));
}

static void on_noted(struct hook_call *call, int status, const struct json *obj)
{
	struct op *op = op_of(call);

	if (!op)
		return;
	if (status == 409 && ++op->tries < TRIES_MAX) {
		pod_evict_within_budget(call);
	} else if (status < 300) {
		op_drop(call);
		pod_delete_evicted(call);
	} else {
		reply_as_is(call, status, obj);
	}
}

static void note(struct hook_call *call, struct json *budget)
{
	struct sbuf target = SBUF_INIT(2048);
	struct err err = {0};

	sbuf_adds(&target, "/apis/policy/v1/namespaces/");
	http_uri_escape(&target, hook_call_ns(call));
	sbuf_adds(&target, "/poddisruptionbudgets/");
	http_uri_escape(&target, js_str(js_at(budget, "metadata", "name", NULL)));
	sbuf_adds(&target, pod_eviction_is_dry(call) ? "/status?dryRun=All" : "/status");
	if (sbuf_rc(&target) || take_one(call, budget)) {
		js_unref(budget);
		fail_internal(call, "out of memory");
	} else if (hook_call_request(call, HOOK_AS_COMPONENT, "PUT", sbuf_str(&target), NULL,
				     budget, on_noted, &err)) {
		fail_internal(call, "%s", err.msg);
	}
	sbuf_fini(&target);
}

void pod_evict_within_budget(struct hook_call *call)
{
	const struct json *pod =
		hook_get(hook_call_env(call), "pods", hook_call_ns(call), hook_call_name(call));
	struct search s = {.pod = pod};

	if (pod && !pod_counts_for_nothing(pod))
		hook_each(hook_call_env(call), BUDGETS, hook_call_ns(call), consider, &s);
	CLEANUP(js_unrefp) struct json *budget = s.found;

	if (s.rc)
		fail_internal(call, "cannot read the disruption budgets: %s", rc_name(s.rc));
	else if (s.n > 1)
		refuse(call, 500,
		       "This pod has more than one PodDisruptionBudget, which the eviction "
		       "subresource does not support.",
		       NULL, NULL);
	else if (!s.n || may_go_unready(budget, pod)) {
		op_drop(call);
		pod_delete_evicted(call);
	} else if (has_room(call, budget))
		note(call, STEAL(budget));
}
