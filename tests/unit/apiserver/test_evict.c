/* Eviction of a VM's pod: KubeVirt's answers, and that no VM is stopped that asked to be moved. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/str.h"
#include "fixture.h"
#include "virt/subresources/subresources.h"

#define PODS "/api/v1/namespaces/default/pods"
#define VMIS "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances"
#define DENIED \
	"admission webhook \"virt-launcher-eviction-interceptor.kubevirt.io\" denied the request: "
#define EVICTION \
	"{\"apiVersion\":\"policy/v1\",\"kind\":\"Eviction\",\"metadata\":{\"name\":\"p\"}}"

static struct fx f;

static int setup(void **state)
{
	struct apisrv_hooks hooks = {.n_subres = n_virt_subres, .subres = virt_subres};

	(void)state;
	fx_up(&f, &hooks);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fx_down(&f);
	return 0;
}

static void make(const char *strategy, bool migratable)
{
	char body[512];

	snprintf(
		body, sizeof(body),
		"{\"metadata\":{\"name\":\"v\"},\"spec\":{\"evictionStrategy\":\"%s\",\"domain\":{\"memory\":{\"guest\":\"64Mi\"},"
		"\"devices\":{}}},\"status\":{\"phase\":\"Running\",\"nodeName\":\"node-1\",\"conditions\":[{\"type\":"
		"\"LiveMigratable\",\"status\":\"%s\"}]}}",
		strategy, migratable ? "True" : "False");
	js_unref(fx_as(&f, &fx_controller, 201, "POST", VMIS, body));
	js_unref(fx_do(
		&f, 201, "POST", PODS,
		"{\"metadata\":{\"name\":\"p\",\"labels\":{\"kubevirt.io\":\"virt-launcher\"},\"annotations\":{\"kubevirt.io/domain\":"
		"\"v\"}},\"spec\":{\"nodeName\":\"node-1\",\"containers\":[{\"name\":\"c\",\"image\":\"x\"}]}}"));
}

/* client-go would wait and ask again by itself, and whoever evicts would hear nothing. */
static void who_evicts_is_told_at_once(void **state)
{
	struct fx_answer a;

	(void)state;
	make("LiveMigrate", true);
	fx_call(&f, &a, &fx_admin, "POST", PODS "/p/eviction", NULL, NULL, EVICTION);
	assert_int_equal(a.status, 429);
	assert_int_equal(a.retry_after, 0);
	fx_answer_fini(&a);
}

static void movable_vms_are_marked_and_stay(void **state)
{
	(void)state;
	make("LiveMigrate", true);
	struct json *j = fx_do(&f, 429, "POST", PODS "/p/eviction?dryRun=All", EVICTION);

	js_unref(j);
	j = fx_do(&f, 200, "GET", VMIS "/v", NULL);
	assert_null(js_at(j, "status", "evacuationNodeName", NULL));
	js_unref(j);
	j = fx_do(&f, 429, "POST", PODS "/p/eviction", EVICTION);
	assert_msg(j, DENIED "Eviction triggered evacuation of VMI \"default/v\"");
	assert_path(j, "TooManyRequests", "reason");
	js_unref(j);
	j = fx_do(&f, 200, "GET", VMIS "/v", NULL);
	assert_path(j, "node-1", "status", "evacuationNodeName");
	js_unref(j);
	j = fx_do(&f, 429, "POST", PODS "/p/eviction", EVICTION);
	assert_msg(j, DENIED
		   "Evacuation in progress: Eviction triggered evacuation of VMI \"default/v\"");
	js_unref(j);
	js_unref(fx_do(&f, 200, "GET", PODS "/p", NULL));
}

/* kubevirt/kubevirt#2196: while it moves there are two pods, and neither is to be had. */
static void neither_pod_of_a_move_is_evicted(void **state)
{
	(void)state;
	make("LiveMigrate", true);
	js_unref(fx_do(
		&f, 201, "POST", PODS,
		"{\"metadata\":{\"name\":\"q\",\"labels\":{\"kubevirt.io\":\"virt-launcher\"},\"annotations\":{\"kubevirt.io/domain\":"
		"\"v\"}},\"spec\":{\"nodeName\":\"node-2\",\"containers\":[{\"name\":\"c\",\"image\":\"x\"}]}}"));
	for (int i = 0; i < 5; i++) {
		js_unref(fx_do(&f, 429, "POST", PODS "/p/eviction", EVICTION));
		struct json *j = fx_do(
			&f, 429, "POST", PODS "/q/eviction",
			"{\"apiVersion\":\"policy/v1\",\"kind\":\"Eviction\",\"metadata\":{\"name\":\"q\"}}");

		assert_msg(j, DENIED "Eviction request for target Pod");
		js_unref(j);
	}
	js_unref(fx_do(&f, 200, "GET", PODS "/p", NULL));
	js_unref(fx_do(&f, 200, "GET", PODS "/q", NULL));
}

static void a_descheduler_is_told_apart(void **state)
{
	(void)state;
	make("LiveMigrate", true);
	js_unref(fx_do(
		&f, 429, "POST", PODS "/p/eviction",
		"{\"apiVersion\":\"policy/v1\",\"kind\":\"Eviction\",\"metadata\":{\"name\":\"p\","
		"\"annotations\":{\"requested-by\":\"sigs.k8s.io/descheduler\"}}}"));
	struct json *j = fx_do(&f, 200, "GET", VMIS "/v", NULL);

	assert_path(j, "node-1", "status", "evacuationNodeName");
	assert_path(j, "descheduler", "metadata", "annotations", "kubevirt.io/eviction-source");
	js_unref(j);
}

static void immovable_vms_that_ask_to_move_stay(void **state)
{
	(void)state;
	make("LiveMigrate", false);
	struct json *j = fx_do(&f, 429, "POST", PODS "/p/eviction", EVICTION);

	assert_msg(j, DENIED
		   "VMI v is configured with an eviction strategy but is not live-migratable");
	js_unref(j);
}

static void others_are_shut_down(void **state)
{
	(void)state;
	make("LiveMigrateIfPossible", false);
	struct json *j = fx_do(&f, 201, "POST", PODS "/p/eviction", EVICTION);

	assert_path(j, "Success", "status");
	js_unref(j);
	j = fx_do(&f, 200, "GET", PODS "/p", NULL);
	assert_non_null(js_at(j, "metadata", "deletionTimestamp", NULL));
	js_unref(j);
	js_unref(fx_do(&f, 404, "POST", PODS "/q/eviction", EVICTION));
}

static void an_unknown_vmi_is_no_reason_to_delete(void **state)
{
	(void)state;
	make("None", true);
	js_unref(fx_do(&f, 200, "DELETE", VMIS "/v", NULL));
	js_unref(fx_do(&f, 429, "POST", PODS "/p/eviction", EVICTION));
}

#define CANCEL                                                                                     \
	"/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/v/evacuate/" \
	"cancel"

static void cancel_takes_the_mark_off_that_it_names(void **state)
{
	(void)state;
	make("LiveMigrate", true);
	js_unref(fx_do(&f, 201, "POST", "/api/v1/nodes", "{\"metadata\":{\"name\":\"node-1\"}}"));
	js_unref(fx_do(&f, 429, "POST", PODS "/p/eviction", EVICTION));
	js_unref(fx_do(&f, 500, "PUT", CANCEL, "{\"evacuationNodeName\":\"node-2\"}"));
	js_unref(fx_do(&f, 200, "PUT", CANCEL, "{\"dryRun\":[\"All\"]}"));
	struct json *j = fx_do(&f, 200, "GET", VMIS "/v", NULL);

	assert_path(j, "node-1", "status", "evacuationNodeName");
	js_unref(j);
	js_unref(fx_do(&f, 200, "PUT", CANCEL, "{}"));
	j = fx_do(&f, 200, "GET", VMIS "/v", NULL);
	assert_null(js_at(j, "status", "evacuationNodeName", NULL));
	js_unref(j);
	js_unref(fx_do(&f, 200, "PUT", CANCEL, "{}")); /* nothing left to cancel */
}

/* Its tries are used up: whoever evicts is told so; asked anew after a cancel, it counts from nought. */
static void an_evacuation_that_was_given_up_says_so(void **state)
{
	(void)state;
	make("LiveMigrate", true);
	js_unref(fx_do(&f, 201, "POST", "/api/v1/nodes", "{\"metadata\":{\"name\":\"node-1\"}}"));
	js_unref(fx_do(&f, 429, "POST", PODS "/p/eviction", EVICTION));
	js_unref(
		fx_as(&f, &fx_controller, 200, "PATCH", VMIS "/v",
		      "{\"status\":{\"ferry\":{\"evacuation\":{\"node\":\"node-1\",\"last\":\"u\","
		      "\"failedTimes\":[\"2026-01-01T00:00:00Z\"],\"reason\":\"AttemptsExhausted\","
		      "\"message\":\"1 attempts failed\"}}}}"));
	struct json *j = fx_do(&f, 429, "POST", PODS "/p/eviction", EVICTION);

	assert_msg(j, DENIED "Evacuation of VMI \"default/v\" is blocked: 1 attempts failed");
	js_unref(j);
	js_unref(fx_do(&f, 200, "PUT", CANCEL, "{}"));
	j = fx_do(&f, 429, "POST", PODS "/p/eviction", EVICTION);
	assert_msg(j, DENIED "Eviction triggered evacuation of VMI \"default/v\"");
	js_unref(j);
	j = fx_do(&f, 200, "GET", VMIS "/v", NULL);
	assert_null(js_at(j, "status", "ferry", "evacuation", "reason", NULL));
	assert_null(js_at(j, "status", "ferry", "evacuation", "failedTimes", NULL));
	assert_path(j, "u", "status", "ferry", "evacuation", "last");
	js_unref(j);
}

/* ---- budgets ---- */

#define PDBS   "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
#define BUDGET "Cannot evict pod as it would violate the pod's disruption budget."

static void add_budget(const char *name, const char *policy, int healthy, int desired, int allowed)
{
	char body[512];

	snprintf(body, sizeof(body),
		 "{\"metadata\":{\"name\":\"%s\"},\"spec\":{\"minAvailable\":%d,%s\"selector\":"
		 "{\"matchLabels\":{\"kubevirt.io\":\"virt-launcher\"}}}}",
		 name, desired, policy);
	js_unref(fx_do(&f, 201, "POST", PDBS, body));
	snprintf(
		body, sizeof(body),
		"{\"status\":{\"observedGeneration\":1,\"currentHealthy\":%d,\"desiredHealthy\":%d,"
		"\"disruptionsAllowed\":%d,\"expectedPods\":%d}}",
		healthy, desired, allowed, healthy);
	char path[128];

	snprintf(path, sizeof(path), PDBS "/%s/status", name);
	js_unref(fx_as(&f, &fx_controller, 200, "PATCH", path, body));
}

static void set_pod(const char *phase, const char *ready)
{
	char body[256];

	snprintf(
		body, sizeof(body),
		"{\"status\":{\"phase\":\"%s\",\"conditions\":[{\"type\":\"Ready\",\"status\":\"%s\"}]}}",
		phase, ready);
	js_unref(fx_as(&f, &fx_controller, 200, "PATCH", PODS "/p/status", body));
}

static void assert_evicts(int status)
{
	js_unref(fx_do(&f, status, "POST", PODS "/p/eviction", EVICTION));
}

static void a_budget_that_is_used_up_refuses_in_kubernetes_words(void **state)
{
	(void)state;
	make("None", true);
	set_pod("Running", "True");
	add_budget("b", "", 1, 1, 0);
	struct json *j = fx_do(&f, 429, "POST", PODS "/p/eviction", EVICTION);

	assert_msg(j, BUDGET);
	assert_path(j, "TooManyRequests", "reason");
	const struct json *cause = js_item(js_at(j, "details", "causes", NULL), 0);

	assert_string_equal(js_get_str(cause, "reason"), "DisruptionBudget");
	assert_string_equal(js_get_str(cause, "message"),
			    "The disruption budget b needs 1 healthy pods and has 1 currently");
	js_unref(j);
	j = fx_do(&f, 200, "GET", PODS "/p", NULL);
	assert_null(js_at(j, "metadata", "deletionTimestamp", NULL));
	js_unref(j);
}

static void what_a_budget_grants_is_noted_before_the_pod_goes(void **state)
{
	(void)state;
	make("None", true);
	set_pod("Running", "True");
	add_budget("b", "", 2, 1, 1);
	js_unref(fx_do(&f, 201, "POST", PODS "/p/eviction?dryRun=All", EVICTION));
	struct json *j = fx_do(&f, 200, "GET", PDBS "/b", NULL);

	assert_int_equal(js_int(js_at(j, "status", "disruptionsAllowed", NULL), -1), 1);
	js_unref(j);
	assert_evicts(201);
	j = fx_do(&f, 200, "GET", PDBS "/b", NULL);
	assert_int_equal(js_int(js_at(j, "status", "disruptionsAllowed", NULL), -1), 0);
	assert_non_null(js_at(j, "status", "disruptedPods", "p", NULL));
	js_unref(j);
	j = fx_do(&f, 200, "GET", PODS "/p", NULL);
	assert_non_null(js_at(j, "metadata", "deletionTimestamp", NULL));
	js_unref(j);
}

static void a_changed_budget_is_waited_for_and_two_are_too_many(void **state)
{
	(void)state;
	make("None", true);
	set_pod("Running", "True");
	add_budget("b", "", 2, 1, 1);
	js_unref(fx_as(&f, &fx_admin, 200, "PATCH", PDBS "/b", "{\"spec\":{\"minAvailable\":2}}"));
	struct json *j = fx_do(&f, 429, "POST", PODS "/p/eviction", EVICTION);

	assert_string_equal(js_get_str(js_item(js_at(j, "details", "causes", NULL), 0), "message"),
			    "The disruption budget b is still being processed by the server.");
	assert_int_equal(js_int(js_at(j, "details", "retryAfterSeconds", NULL), 0), 10);
	js_unref(j);
	add_budget("c", "", 2, 1, 1);
	j = fx_do(&f, 500, "POST", PODS "/p/eviction", EVICTION);
	assert_msg(j,
		   "This pod has more than one PodDisruptionBudget, which the eviction subresource "
		   "does not support.");
	js_unref(j);
}

static void pods_that_do_not_count_may_go(void **state)
{
	static const struct {
		const char *phase, *ready, *policy;
		int healthy, status;
	} rows[] = {
		{"Pending", "False", "", 0, 201},
		{"Running", "False", "", 1, 201},
		{"Running", "False", "", 0, 429}, /* the budget itself is not met */
		{"Running", "False", "\"unhealthyPodEvictionPolicy\":\"AlwaysAllow\",", 0, 201},
		{"Running", "True", "\"unhealthyPodEvictionPolicy\":\"AlwaysAllow\",", 1, 429},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		if (i) {
			teardown(state);
			setup(state);
		}
		make("None", true);
		set_pod(rows[i].phase, rows[i].ready);
		add_budget("b", rows[i].policy, rows[i].healthy, 1, 0);
		assert_evicts(rows[i].status);
	}
}

/* The webhook of KubeVirt stands before the budgets: a VM that moves is asked to, whatever they say. */
static void vms_that_move_are_asked_to_whatever_a_budget_says(void **state)
{
	(void)state;
	make("LiveMigrate", true);
	set_pod("Running", "True");
	add_budget("b", "", 1, 1, 0);
	struct json *j = fx_do(&f, 429, "POST", PODS "/p/eviction", EVICTION);

	assert_msg(j, DENIED "Eviction triggered evacuation of VMI \"default/v\"");
	js_unref(j);
}

int main(void)
{
#define T(fn_) cmocka_unit_test_setup_teardown(fn_, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(who_evicts_is_told_at_once),
		T(movable_vms_are_marked_and_stay),
		T(neither_pod_of_a_move_is_evicted),
		T(a_descheduler_is_told_apart),
		T(immovable_vms_that_ask_to_move_stay),
		T(others_are_shut_down),
		T(cancel_takes_the_mark_off_that_it_names),
		T(an_unknown_vmi_is_no_reason_to_delete),
		T(an_evacuation_that_was_given_up_says_so),
		T(a_budget_that_is_used_up_refuses_in_kubernetes_words),
		T(what_a_budget_grants_is_noted_before_the_pod_goes),
		T(a_changed_budget_is_waited_for_and_two_are_too_many),
		T(pods_that_do_not_count_may_go),
		T(vms_that_move_are_asked_to_whatever_a_budget_says),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("evict", tests, NULL, NULL);
}
