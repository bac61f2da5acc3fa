/* pods/eviction: what KubeVirt's webhook says about the pod of a VM, and the deletion of any other.
 *
 * A VM whose strategy asks for it is never stopped by an eviction: it is marked, and whoever evicts is
 * told to come back (429; kubectl drain tries again every five seconds).
 */
#include <stdio.h>

#include "base/mem.h"
#include "http/uri.h"
#include "virt/names.h"
#include "virt/subresources/subres_int.h"

#define WEBHOOK "virt-launcher-eviction-interceptor.kubevirt.io"

/* As of a webhook: without a Retry-After.  At one client-go asks again by itself, and whoever evicts
 * hears nothing until his VM is elsewhere. */
static void deny(struct hook_call *call, const char *text)
{
	char message[1024];

	snprintf(message, sizeof(message),
		 "admission webhook \"" WEBHOOK "\" denied the request: %s", text);
	struct json *status = js_pack("{s:s, s:s, s:{}, s:s, s:s, s:s, s:i}", "kind", "Status",
				      "apiVersion", "v1", "metadata", "status", "Failure",
				      "message", message, "reason", "TooManyRequests", "code", 429);

	if (status)
		hook_call_reply(call, 429, status);
	else
		hook_call_fail(call, RC_NOMEM, "Internal error occurred: out of memory");
}

bool pod_eviction_is_dry(struct hook_call *call)
{
	const struct json *options = js_get(hook_call_json(call), "deleteOptions");

	return !str_is_empty(hook_call_param(call, "dryRun")) ||
	       js_len(js_get(options, "dryRun")) > 0;
}

static void reply_evicted(struct hook_call *call)
{
	hook_call_reply(call, 201,
			js_pack("{s:s, s:s, s:{}, s:s, s:i}", "kind", "Status", "apiVersion", "v1",
				"metadata", "status", "Success", "code", 201));
}

static void on_deleted(struct hook_call *call, int status, const struct json *obj)
{
	if (status < 300)
		reply_evicted(call);
	else
		hook_call_reply_status(call, status, obj);
}

void pod_delete_evicted(struct hook_call *call)
{
	struct sbuf target = SBUF_INIT(2048);
	struct json *options = js_copy(js_get(hook_call_json(call), "deleteOptions"));
	struct err err = {0};

	sbuf_adds(&target, "/api/v1/namespaces/");
	http_uri_escape(&target, hook_call_ns(call));
	sbuf_adds(&target, "/pods/");
	http_uri_escape(&target, hook_call_name(call));
	if (pod_eviction_is_dry(call))
		sbuf_adds(&target, "?dryRun=All");
	if (sbuf_rc(&target)) {
		js_unref(options);
		hook_call_fail(call, RC_NOMEM, "Internal error occurred: out of memory");
	} else if (hook_call_request(call, HOOK_AS_COMPONENT, "DELETE", sbuf_str(&target), NULL,
				     options, on_deleted, &err)) {
		hook_call_fail(call, err.rc, "Internal error occurred: %s", err.msg);
	}
	sbuf_fini(&target);
}

static void say_triggered(struct hook_call *call, const char *prefix, const char *vmi)
{
	char text[700];

	snprintf(text, sizeof(text), "%sEviction triggered evacuation of VMI \"%s/%s\"", prefix,
		 hook_call_ns(call), vmi);
	deny(call, text);
}

static void on_marked(struct hook_call *call, int status, const struct json *vmi)
{
	char text[512];

	if (status < 300) {
		say_triggered(call, "", js_str(js_at(vmi, "metadata", "name", NULL)));
		return;
	}
	snprintf(text, sizeof(text), "kubevirt failed marking the vmi for eviction: %s",
		 js_get_str(vmi, "message") ? js_get_str(vmi, "message") : "no reason given");
	deny(call, text);
}

/* What the evacuation controller keeps of failed tries; NULL: nothing. */
static const struct json *tries_of(const struct json *vmi)
{
	return js_at(vmi, "status", "ferry", "evacuation", NULL);
}

/* One that only rebalances may wait behind those that empty a node. */
static bool is_by_descheduler(struct hook_call *call)
{
	return str_eq(js_str(js_at(hook_call_json(call), "metadata", "annotations", "requested-by",
				   NULL)),
		      "sigs.k8s.io/descheduler");
}

/* Who asks anew starts from nought: the count of an evacuation that was given up goes with the new mark. */
static struct json *mark_patch(struct hook_call *call, const struct json *vmi, const char *node)
{
	struct json *body = tries_of(vmi)
				    ? js_pack("{s:{s:s, s:{s:{s:n, s:n, s:n}}}}", "status",
					      "evacuationNodeName", node, "ferry", "evacuation",
					      "failedTimes", "reason", "message")
				    : js_pack("{s:{s:s}}", "status", "evacuationNodeName", node);

	if (body && is_by_descheduler(call) &&
	    js_set(body, "metadata",
		   js_pack("{s:{s:s}}", "annotations", ANN_EVICTION_SOURCE, "descheduler")))
		body = js_unref(body);
	return body;
}

static void mark(struct hook_call *call, const struct json *obj, const char *node)
{
	const char *vmi = js_str(js_at(obj, "metadata", "name", NULL));
	struct sbuf target = SBUF_INIT(2048);
	struct json *body = mark_patch(call, obj, node);
	struct err err = {0};

	sbuf_adds(&target, "/apis/kubevirt.io/v1/namespaces/");
	http_uri_escape(&target, hook_call_ns(call));
	sbuf_adds(&target, "/virtualmachineinstances/");
	http_uri_escape(&target, vmi);
	if (pod_eviction_is_dry(call))
		sbuf_adds(&target, "?dryRun=All");
	if (!body || sbuf_rc(&target)) {
		js_unref(body);
		hook_call_fail(call, RC_NOMEM, "Internal error occurred: out of memory");
	} else if (hook_call_request(call, HOOK_AS_COMPONENT, "PATCH", sbuf_str(&target),
				     "application/merge-patch+json", body, on_marked, &err)) {
		hook_call_fail(call, err.rc, "Internal error occurred: %s", err.msg);
	}
	sbuf_fini(&target);
}

/* It was marked before.  Ferry's tries are bounded: when they are over, whoever asks is told so. */
static void say_in_progress(struct hook_call *call, const struct json *vmi, const char *name)
{
	const struct json *tries = tries_of(vmi);
	char text[1024];

	if (!js_get_str(tries, "reason")) {
		say_triggered(call, "Evacuation in progress: ", name);
		return;
	}
	snprintf(text, sizeof(text), "Evacuation of VMI \"%s/%s\" is blocked: %s",
		 hook_call_ns(call), name,
		 js_get_str(tries, "message") ? js_get_str(tries, "message") : "");
	deny(call, text);
}

/* The VMI's strategy allows that its pod is simply deleted. */
static bool may_be_stopped(const struct json *vmi)
{
	const char *strategy = js_str(js_at(vmi, "spec", "evictionStrategy", NULL));

	if (str_is_empty(strategy) || str_eq(strategy, "None"))
		return true;
	return str_eq(strategy, "LiveMigrateIfPossible") &&
	       !condition_is_true(vmi, "LiveMigratable");
}

static void evict_vm(struct hook_call *call, const struct json *pod, const struct json *vmi)
{
	const char *name = js_str(js_at(vmi, "metadata", "name", NULL));
	const char *node = js_str(js_at(vmi, "status", "nodeName", NULL));
	const char *strategy = js_str(js_at(vmi, "spec", "evictionStrategy", NULL));
	char text[512];

	if (may_be_stopped(vmi)) {
		pod_evict_within_budget(call);
	} else if (str_eq(strategy, "LiveMigrate") && !condition_is_true(vmi, "LiveMigratable")) {
		snprintf(
			text, sizeof(text),
			"VMI %s is configured with an eviction strategy but is not live-migratable",
			name);
		deny(call, text);
	} else if (!node || !str_eq(js_str(js_at(pod, "spec", "nodeName", NULL)), node)) {
		deny(call, "Eviction request for target Pod");
	} else if (str_eq(js_str(js_at(vmi, "status", "evacuationNodeName", NULL)), node)) {
		say_in_progress(call, vmi, name);
	} else {
		mark(call, vmi, node);
	}
}

void pod_evict(struct hook_call *call)
{
	const char *ns = hook_call_ns(call), *name = hook_call_name(call);
	const struct json *pod = hook_get(hook_call_env(call), "pods", ns, name);
	const char *phase = js_str(js_at(pod, "status", "phase", NULL));
	const char *role = js_str(js_at(pod, "metadata", "labels", LABEL_ROLE, NULL));
	const char *domain = js_str(js_at(pod, "metadata", "annotations", ANN_DOMAIN, NULL));
	const struct json *vmi = NULL;
	char text[512];

	if (!pod) {
		snprintf(text, sizeof(text), "pods \"%s\" not found", name);
		hook_call_fail_details(call, RC_NOT_FOUND, "", "pods", name, text);
		return;
	}
	if (str_eq(role, "virt-launcher") && domain && !str_eq(phase, "Succeeded") &&
	    !str_eq(phase, "Failed")) {
		vmi = hook_get(hook_call_env(call), VMI_RESOURCE, ns, domain);
		if (!vmi) {
			snprintf(
				text, sizeof(text),
				"kubevirt failed getting the vmi: virtualmachineinstance.kubevirt.io \"%s\" not found",
				domain);
			deny(call, text);
			return;
		}
	}
	if (vmi)
		evict_vm(call, pod, vmi);
	else
		pod_evict_within_budget(call);
}
