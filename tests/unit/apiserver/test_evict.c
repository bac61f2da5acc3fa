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

int main(void)
{
#define T(fn_) cmocka_unit_test_setup_teardown(fn_, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(movable_vms_are_marked_and_stay),
		T(immovable_vms_that_ask_to_move_stay),
		T(others_are_shut_down),
		T(cancel_takes_the_mark_off_that_it_names),
		T(an_unknown_vmi_is_no_reason_to_delete),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("evict", tests, NULL, NULL);
}
