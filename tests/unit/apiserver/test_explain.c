/* A dry-run create of a migration: where the VM could go, through the whole server, and nothing is written. */
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
#include "virt/admission/admission.h"

#define PODS	    "/api/v1/namespaces/default/pods"
#define NODES	    "/api/v1/nodes"
#define VMIS	    "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances"
#define VMIMS	    "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancemigrations"
#define DRY	    VMIMS "?dryRun=All"
#define DENIED	    "admission webhook \"migration-create-validator.kubevirt.io\" denied the request: "
#define MOVE(spec_) "{\"metadata\":{\"name\":\"m\"},\"spec\":{\"vmiName\":\"v\"" spec_ "}}"

static struct fx f;
static struct apisrv_hooks hooks;

static void add_node(const char *name, const char *memory)
{
	char body[512], path[64];

	snprintf(
		body, sizeof(body),
		"{\"metadata\":{\"name\":\"%s\",\"labels\":{\"kubernetes.io/hostname\":\"%s\",\"kubernetes.io/arch\":\"amd64\","
		"\"kubevirt.io/schedulable\":\"true\",\"machine-type.node.kubevirt.io/q35\":\"true\"}}}",
		name, name);
	js_unref(fx_do(&f, 201, "POST", NODES, body));
	snprintf(path, sizeof(path), NODES "/%s/status", name);
	snprintf(
		body, sizeof(body),
		"{\"status\":{\"allocatable\":{\"cpu\":\"4\",\"memory\":\"%s\",\"pods\":\"9\"},\"conditions\":[{\"type\":\"Ready\","
		"\"status\":\"True\"}]}}",
		memory);
	js_unref(fx_patch(&f, 200, "merge-patch", path, body));
}

static void set_vmi(const char *status)
{
	char body[512];

	snprintf(body, sizeof(body), "{\"status\":%s}", status);
	js_unref(fx_as(&f, &fx_controller, 200, "PATCH", VMIS "/v", body));
}

static void add_vmi(void)
{
	char body[1024];
	struct json *vmi = fx_as(
		&f, &fx_controller, 201, "POST", VMIS,
		"{\"metadata\":{\"name\":\"v\"},\"spec\":{\"architecture\":\"amd64\",\"domain\":{\"machine\":{\"type\":\"q35\"},"
		"\"memory\":{\"guest\":\"64Mi\"},\"devices\":{}}}}");

	snprintf(
		body, sizeof(body),
		"{\"metadata\":{\"name\":\"p\",\"labels\":{\"kubevirt.io\":\"virt-launcher\"},\"ownerReferences\":[{\"apiVersion\":"
		"\"kubevirt.io/v1\",\"kind\":\"VirtualMachineInstance\",\"name\":\"v\",\"uid\":\"%s\",\"controller\":true}]},"
		"\"spec\":{\"nodeName\":\"node-1\",\"containers\":[{\"name\":\"compute\",\"image\":\"x\"}]}}",
		js_str(js_at(vmi, "metadata", "uid", NULL)));
	js_unref(vmi);
	js_unref(fx_as(&f, &fx_controller, 201, "POST", PODS, body));
	js_unref(fx_patch(&f, 200, "merge-patch", PODS "/p/status",
			  "{\"status\":{\"phase\":\"Running\"}}"));
	set_vmi("{\"phase\":\"Running\",\"nodeName\":\"node-1\"}");
}

static void up(void)
{
	hooks = (struct apisrv_hooks){.n_admission = n_virt_admission, .admission = virt_admission};
	fx_up(&f, &hooks);
	add_node("node-1", "8Gi");
	add_node("node-2", "8Gi");
	add_node("node-3", "64Mi");
	add_vmi();
	fx_settle(&f);
}

static int setup(void **state)
{
	(void)state;
	up();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fx_down(&f);
	return 0;
}

static const struct json *placement(const struct json *vmim, size_t i)
{
	return js_item(js_at(vmim, "status", "ferry", "placement", NULL), i);
}

static bool is_whole(const struct json *vmim)
{
	return js_len(js_at(vmim, "status", "ferry", "placement", NULL)) == 3 &&
	       str_eq(js_get_str(placement(vmim, 0), "reason"), "Source") &&
	       js_get_bool(placement(vmim, 1), "allowed", false) &&
	       js_get_bool(placement(vmim, 2), "lasting", false);
}

static size_t count(const char *path)
{
	struct json *list = fx_do(&f, 200, "GET", path, NULL);
	size_t n = js_len(js_get(list, "items"));

	js_unref(list);
	return n;
}

static void a_dry_run_tells_each_node_and_writes_nothing(void **state)
{
	int64_t rev = store_rev(f.store);
	struct fx_answer a;

	(void)state;
	fx_call(&f, &a, &fx_admin, "POST", DRY, NULL, NULL, MOVE());
	assert_int_equal(a.status, 201);
	assert_int_equal(a.n_warnings, 0);
	assert_true(is_whole(a.json));
	assert_path(placement(a.json, 0), "node-1", "node");
	assert_path(placement(a.json, 1), "node-2", "node");
	assert_null(js_get(placement(a.json, 1), "reason"));
	assert_path(placement(a.json, 2), "NodeResourcesFit", "reason");
	assert_path(a.json, "m", "metadata", "name");
	assert_null(js_at(a.json, "status", "phase", NULL));
	fx_answer_fini(&a);
	fx_settle(&f);
	assert_int_equal(store_rev(f.store), rev);
	assert_int_equal(count(VMIMS), 0);
	assert_int_equal(count(PODS), 1);
	assert_int_equal(count("/api/v1/events"), 0);
	assert_int_equal(count("/apis/ferry.dev/v1alpha1/allocations"), 0);
}

static void a_create_in_earnest_is_as_before(void **state)
{
	(void)state;
	struct fx_answer a;

	fx_call(&f, &a, &fx_admin, "POST", VMIMS, NULL, NULL,
		MOVE(",\"addedNodeSelector\":{\"no\":\"where\"}"));
	assert_int_equal(a.status, 201);
	assert_int_equal(a.n_warnings, 0);
	assert_null(js_get(a.json, "status"));
	fx_answer_fini(&a);
	assert_int_equal(count(VMIMS), 1);
}

static void what_would_fail_at_once_is_a_warning(void **state)
{
	static const struct {
		const char *body, *warning, *reason;
	} cases[] = {
		{MOVE(",\"addedNodeSelector\":{\"no\":\"where\"}"),
		 "299 - \"the migration would fail at once: no node can ever take the virtual machine: "
		 "node-2: needs label no=where, the node has none; node-3: needs label no=where, the "
		 "node has none\"",
		 "NoCandidate"},
		{MOVE(",\"addedNodeSelector\":{\"kubernetes.io/hostname\":\"node-1\"}"),
		 "299 - \"the migration would fail at once: addedNodeSelector selects only the node "
		 "that the virtual machine runs on\"",
		 "TargetIsSource"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct fx_answer a;

		fx_call(&f, &a, &fx_admin, "POST", DRY, NULL, NULL, cases[i].body);
		assert_int_equal(a.status, 201);
		assert_int_equal(a.n_warnings, 1);
		assert_string_equal(a.warnings[0], cases[i].warning);
		assert_path(a.json, cases[i].reason, "status", "ferry", "reason");
		fx_answer_fini(&a);
	}
}

static void a_vm_that_does_not_run_yet_is_waited_for(void **state)
{
	struct fx_answer a;

	(void)state;
	set_vmi("{\"phase\":\"Scheduling\"}");
	fx_call(&f, &a, &fx_admin, "POST", DRY, NULL, NULL, MOVE());
	assert_int_equal(a.status, 201);
	assert_path(a.json, "WaitingForVirtualMachine", "status", "ferry", "stage");
	assert_null(js_at(a.json, "status", "ferry", "placement", NULL));
	assert_string_equal(a.warnings[0],
			    "299 - \"the migration would wait until the virtual machine runs; the "
			    "nodes that could take it are known then\"");
	fx_answer_fini(&a);
}

/* The same words with and without dryRun, and no warning beside them. */
static void refusals_stay_what_they_are(void **state)
{
	static const struct {
		const char *vmi, *body, *message;
		int status;
	} cases[] = {
		{NULL, "{\"metadata\":{\"name\":\"m\"},\"spec\":{\"vmiName\":\"w\"}}",
		 DENIED "the VMI \"default/w\" does not exist", 400},
		{NULL, "{\"metadata\":{\"name\":\"m\"},\"spec\":{}}", DENIED "vmiName is missing",
		 422},
		{"{\"conditions\":[{\"type\":\"LiveMigratable\",\"status\":\"False\",\"reason\":"
		 "\"DisksNotLiveMigratable\",\"message\":\"no\"}]}",
		 MOVE(), DENIED "Cannot migrate VMI, Reason: DisksNotLiveMigratable, Message: no",
		 400},
		{"{\"phase\":\"Failed\"}", MOVE(), DENIED "Cannot migrate VMI in finalized state.",
		 400},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		if (cases[i].vmi)
			set_vmi(cases[i].vmi);
		for (int dry = 0; dry < 2; dry++) {
			struct fx_answer a;

			fx_call(&f, &a, &fx_admin, "POST", dry ? DRY : VMIMS, NULL, NULL,
				cases[i].body);
			assert_int_equal(a.status, cases[i].status);
			assert_msg(a.json, cases[i].message);
			assert_int_equal(a.n_warnings, 0);
			fx_answer_fini(&a);
		}
	}
}

/* Whatever allocation fails: the whole answer or "internal error", never a part of the nodes. */
static void running_out_of_memory_is_said(void **state)
{
	bool fired = true;

	(void)state;
	for (unsigned nth = 1; fired; nth++) {
		struct fx_answer a;

		assert_true(nth < 20000);
		up();
		int64_t rev = store_rev(f.store);

		fx_call_nth(&f, &a, nth, "POST", DRY, NULL, NULL, MOVE());
		fired = a.fired;
		if (a.status != 500 && (a.status != 201 || !is_whole(a.json)))
			fail_msg("allocation %u failed, the answer was %d: %s", nth, a.status,
				 a.text);
		assert_true(fired || a.status == 201);
		fx_answer_fini(&a);
		fx_settle(&f);
		assert_int_equal(store_rev(f.store), rev);
		fx_down(&f);
	}
}

int main(void)
{
#define T(fn_) cmocka_unit_test_setup_teardown(fn_, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(a_dry_run_tells_each_node_and_writes_nothing),
		T(a_create_in_earnest_is_as_before),
		T(what_would_fail_at_once_is_a_warning),
		T(a_vm_that_does_not_run_yet_is_waited_for),
		T(refusals_stay_what_they_are),
		cmocka_unit_test(running_out_of_memory_is_said),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("explain", tests, NULL, NULL);
}
