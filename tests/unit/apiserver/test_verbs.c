/* Each verb through the in-process core. */
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

#define CM   "/api/v1/namespaces/default/configmaps"
#define VMS  "/apis/kubevirt.io/v1/namespaces/default/virtualmachines"
#define VMIS "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances"
#define VM_SPEC                                                                                 \
	"\"spec\":{\"runStrategy\":\"Halted\",\"template\":{\"spec\":{\"domain\":{\"memory\":{" \
	"\"guest\":"                                                                            \
	"\"64Mi\"},\"devices\":{}}}}}"
#define VMI_SPEC "\"spec\":{\"domain\":{\"memory\":{\"guest\":\"64Mi\"},\"devices\":{}}}"

static struct fx f;

static int setup(void **state)
{
	(void)state;
	fx_up(&f, NULL);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fx_down(&f);
	return 0;
}

static void create_gives_system_metadata(void **state)
{
	(void)state;
	struct json *a =
		fx_do(&f, 201, "POST", CM,
		      "{\"metadata\":{\"name\":\"a\",\"uid\":\"mine\"},\"data\":{\"k\":\"v\"}}");

	assert_path(a, "ConfigMap", "kind");
	assert_path(a, "v1", "apiVersion");
	assert_path(a, "default", "metadata", "namespace");
	assert_string_not_equal(js_str(js_at(a, "metadata", "uid", NULL)), "mine");
	assert_non_null(js_at(a, "metadata", "creationTimestamp", NULL));
	struct json *b = fx_do(&f, 200, "GET", CM "/a", NULL);

	assert_true(js_equal(a, b));
	drop(a);
	drop(b);
	a = fx_do(&f, 409, "POST", CM, "{\"metadata\":{\"name\":\"a\"}}");
	assert_msg(a, "configmaps \"a\" already exists");
	assert_path(a, "AlreadyExists", "reason");
	assert_path(a, "configmaps", "details", "kind");
	drop(a);
	a = fx_do(&f, 404, "GET", VMS "/x", NULL);
	assert_msg(a, "virtualmachines.kubevirt.io \"x\" not found");
	assert_path(a, "kubevirt.io", "details", "group");
	drop(a);
}

static void refusals_say_what_is_wrong(void **state)
{
	(void)state;
	struct json *a = fx_do(&f, 404, "POST", "/api/v1/namespaces/nope/configmaps",
			       "{\"metadata\":{\"name\":\"a\"}}");

	assert_msg(a, "namespaces \"nope\" not found");
	drop(a);
	a = fx_do(&f, 400, "POST", CM, "{\"kind\":\"Pod\",\"metadata\":{\"name\":\"a\"}}");
	drop(a);
	a = fx_do(&f, 400, "POST", CM, "{\"apiVersion\":\"v2\",\"metadata\":{\"name\":\"a\"}}");
	assert_msg(a,
		   "the API version in the data (v2) does not match the expected API version (v1)");
	drop(a);
	a = fx_do(&f, 400, "POST", CM, "{\"metadata\":{\"name\":\"a\",\"namespace\":\"other\"}}");
	assert_msg(a, "the namespace of the provided object does not match the namespace sent on "
		      "the request");
	drop(a);
	a = fx_do(&f, 400, "POST", CM, "[1]");
	drop(a);
	a = fx_do(&f, 400, "POST", CM, "{\"metadata\":");
	drop(a);
	a = fx_do(&f, 400, "POST", CM, NULL);
	drop(a);
	a = fx_do(&f, 422, "POST", CM, "{\"metadata\":{}}");
	assert_msg(a, "ConfigMap \"\" is invalid: metadata.name: Required value: name or "
		      "generateName is required");
	drop(a);
	a = fx_do(&f, 422, "POST", CM, "{\"metadata\":{\"name\":\"Bad_Name\"}}");
	assert_path(js_item(js_at(a, "details", "causes", NULL), 0), "metadata.name", "field");
	drop(a);
	a = fx_do(&f, 405, "PUT", CM, "{}");
	drop(a);
	a = fx_do(&f, 404, "GET", "/api/v1/namespaces/default/frogs", NULL);
	assert_msg(a, "the server could not find the requested resource");
	drop(a);
	a = fx_do(&f, 404, "POST", "/apis/kubevirt.io/v1alpha2/namespaces/default/virtualmachines",
		  "{}");
	assert_msg(
		a,
		"the server could not find the requested resource: kubevirt.io/v1alpha2 is not served, but "
		"kubevirt.io/v1, kubevirt.io/v1alpha3");
	drop(a);
	a = fx_do(&f, 404, "GET", "/apis/kubevirt.io/v1/namespaces/default/frogs", NULL);
	assert_msg(a, "the server could not find the requested resource");
	drop(a);
	a = fx_patch(&f, 415, "apply-patch", CM "/a", "{}");
	drop(a);
	a = fx_patch(&f, 415, "strategic-merge-patch", VMS "/a", "{}");
	drop(a);
}

static void names_are_generated(void **state)
{
	(void)state;
	struct json *a = fx_do(&f, 201, "POST", CM, "{\"metadata\":{\"generateName\":\"pre-\"}}");
	struct json *b = fx_do(&f, 201, "POST", CM, "{\"metadata\":{\"generateName\":\"pre-\"}}");
	const char *x = js_str(js_at(a, "metadata", "name", NULL));
	const char *y = js_str(js_at(b, "metadata", "name", NULL));

	assert_true(str_has_prefix(x, "pre-") && strlen(x) == 9);
	assert_string_not_equal(x, y);
	drop(a);
	drop(b);
}

static void dry_run_stores_nothing(void **state)
{
	(void)state;
	struct json *a =
		fx_do(&f, 201, "POST", CM "?dryRun=All", "{\"metadata\":{\"name\":\"a\"}}");

	assert_path(a, "a", "metadata", "name");
	drop(a);
	drop(fx_do(&f, 404, "GET", CM "/a", NULL));
	drop(fx_do(&f, 201, "POST", CM, "{\"metadata\":{\"name\":\"a\"}}"));
	drop(fx_patch(&f, 200, "merge-patch", CM "/a?dryRun=All", "{\"data\":{\"x\":\"y\"}}"));
	drop(fx_do(&f, 200, "DELETE", CM "/a?dryRun=All", NULL));
	a = fx_do(&f, 200, "GET", CM "/a", NULL);
	assert_null(js_get(a, "data"));
	drop(a);
	drop(fx_do(&f, 422, "POST", CM "?dryRun=Some", "{\"metadata\":{\"name\":\"b\"}}"));
}

static void update_checks_the_version(void **state)
{
	(void)state;
	struct json *a = fx_do(&f, 201, "POST", CM,
			       "{\"metadata\":{\"name\":\"a\"},\"data\":{\"k\":\"1\"}}");
	char body[512];

	snprintf(
		body, sizeof(body),
		"{\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"%s\"},\"data\":{\"k\":\"2\"}}",
		js_str(js_at(a, "metadata", "resourceVersion", NULL)));
	struct json *b = fx_do(&f, 200, "PUT", CM "/a", body);

	assert_path(b, "2", "data", "k");
	assert_path(b, js_str(js_at(a, "metadata", "uid", NULL)), "metadata", "uid");
	drop(a);
	a = fx_do(&f, 409, "PUT", CM "/a", body);
	assert_msg(a, "Operation cannot be fulfilled on configmaps \"a\": the object has been "
		      "modified; please apply "
		      "your changes to the latest version and try again");
	assert_path(a, "Conflict", "reason");
	drop(a);
	/* Built-in kinds may be written unconditionally, custom ones may not. */
	drop(fx_do(&f, 200, "PUT", CM "/a",
		   "{\"metadata\":{\"name\":\"a\"},\"data\":{\"k\":\"3\"}}"));
	a = fx_do(&f, 409, "PUT", CM "/a", "{\"metadata\":{\"name\":\"a\",\"uid\":\"other\"}}");
	drop(a);
	a = fx_do(&f, 400, "PUT", CM "/a", "{\"metadata\":{\"name\":\"b\"}}");
	assert_msg(a, "the name of the object (b) does not match the name on the URL (a)");
	drop(a);
	drop(b);
	drop(fx_do(&f, 201, "POST", VMS, "{\"metadata\":{\"name\":\"v\"}," VM_SPEC "}"));
	a = fx_do(&f, 422, "PUT", VMS "/v", "{\"metadata\":{\"name\":\"v\"}," VM_SPEC "}");
	assert_msg(a, "VirtualMachine.kubevirt.io \"v\" is invalid: metadata.resourceVersion: "
		      "Invalid value: 0x0: must be "
		      "specified for an update");
	drop(a);
}

static void a_write_that_changes_nothing_writes_nothing(void **state)
{
	(void)state;
	drop(fx_do(&f, 201, "POST", CM, "{\"metadata\":{\"name\":\"a\"},\"data\":{\"k\":\"1\"}}"));
	int64_t rev = store_rev(f.store);

	drop(fx_patch(&f, 200, "merge-patch", CM "/a", "{\"data\":{\"k\":\"1\"}}"));
	drop(fx_patch(&f, 200, "strategic-merge-patch", CM "/a", "{\"data\":{\"k\":\"1\"}}"));
	drop(fx_patch(&f, 200, "json-patch", CM "/a",
		      "[{\"op\":\"test\",\"path\":\"/data/k\",\"value\":\"1\"}]"));
	drop(fx_do(&f, 200, "PUT", CM "/a",
		   "{\"metadata\":{\"name\":\"a\"},\"data\":{\"k\":\"1\"}}"));
	assert_int_equal(store_rev(f.store), rev);
}

static void patches_apply(void **state)
{
	(void)state;
	drop(fx_do(&f, 201, "POST", CM,
		   "{\"metadata\":{\"name\":\"a\"},\"data\":{\"k\":\"1\",\"l\":\"2\"}}"));
	struct json *a =
		fx_patch(&f, 200, "merge-patch", CM "/a", "{\"data\":{\"k\":null,\"m\":\"3\"}}");

	assert_null(js_at(a, "data", "k", NULL));
	assert_path(a, "3", "data", "m");
	drop(a);
	a = fx_patch(&f, 200, "json-patch", CM "/a",
		     "[{\"op\":\"replace\",\"path\":\"/data/m\",\"value\":\"4\"}]");
	assert_path(a, "4", "data", "m");
	drop(a);
	drop(fx_patch(&f, 422, "json-patch", CM "/a",
		      "[{\"op\":\"test\",\"path\":\"/data/m\",\"value\":\"5\"}]"));
	drop(fx_patch(&f, 409, "merge-patch", CM "/a",
		      "{\"metadata\":{\"resourceVersion\":\"1\"},\"data\":{\"z\":\"1\"}}"));
	drop(fx_patch(&f, 404, "merge-patch", CM "/none", "{}"));
	/* What was stored before must not have been touched through shared parts. */
	a = fx_do(&f, 200, "GET", CM "/a", NULL);
	assert_path(a, "4", "data", "m");
	drop(a);
}

static void spec_and_status_are_separate(void **state)
{
	(void)state;
	struct json *a =
		fx_do(&f, 201, "POST", VMS,
		      "{\"metadata\":{\"name\":\"v\"}," VM_SPEC ",\"status\":{\"ready\":true}}");

	assert_null(js_get(a, "status"));
	assert_int_equal(js_int(js_at(a, "metadata", "generation", NULL), 0), 1);
	drop(a);
	a = fx_patch(&f, 200, "merge-patch", VMS "/v",
		     "{\"status\":{\"ready\":true},\"spec\":{\"runStrategy\":\"Always\"}}");
	assert_null(js_get(a, "status"));
	assert_int_equal(js_int(js_at(a, "metadata", "generation", NULL), 0), 2);
	drop(a);
	a = fx_patch(&f, 200, "merge-patch", VMS "/v/status",
		     "{\"status\":{\"ready\":true},\"spec\":{\"runStrategy\":\"Halted\"}}");
	assert_true(js_bool(js_at(a, "status", "ready", NULL), false));
	assert_path(a, "Always", "spec", "runStrategy");
	assert_int_equal(js_int(js_at(a, "metadata", "generation", NULL), 0), 2);
	drop(a);
	drop(fx_do(&f, 404, "PUT", VMIS "/v/status", "{}"));
}

static void vmi_status_belongs_to_components(void **state)
{
	(void)state;
	drop(fx_do(&f, 201, "POST", VMIS,
		   "{\"metadata\":{\"name\":\"v\"}," VMI_SPEC
		   ",\"status\":{\"phase\":\"Running\"}}"));
	struct json *a = fx_do(&f, 200, "GET", VMIS "/v", NULL);

	assert_null(js_get(a, "status"));
	drop(a);
	a = fx_as(&f, &fx_controller, 200, "PATCH", VMIS "/v",
		  "{\"status\":{\"phase\":\"Running\",\"nodeName\":\"node-1\"}}");
	assert_path(a, "Running", "status", "phase");
	drop(a);
	a = fx_patch(&f, 200, "merge-patch", VMIS "/v",
		     "{\"metadata\":{\"labels\":{\"a\":\"b\"}},\"status\":{\"phase\":\"Failed\"}}");
	assert_path(a, "Running", "status", "phase");
	assert_path(a, "b", "metadata", "labels", "a");
	drop(a);
	a = fx_patch(&f, 422, "merge-patch", VMIS "/v",
		     "{\"spec\":{\"domain\":{\"memory\":{\"guest\":\"128Mi\"}}}}");
	assert_non_null(strstr(js_get_str(a, "message"), "update of VMI object is restricted"));
	drop(a);
}

static void unknown_fields_are_told(void **state)
{
	(void)state;
	struct fx_answer a;
	static const char body[] = "{\"metadata\":{\"name\":\"a\"},\"datta\":{\"k\":\"1\"}}";

	fx_call(&f, &a, &fx_admin, "POST", CM "?fieldValidation=Strict", NULL, NULL, body);
	assert_int_equal(a.status, 400);
	assert_msg(a.json, "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict "
			   "decoding error: unknown "
			   "field \"datta\"");
	fx_answer_fini(&a);
	fx_call(&f, &a, &fx_admin, "POST", CM, NULL, NULL, body);
	assert_int_equal(a.status, 201);
	assert_int_equal(a.n_warnings, 1);
	assert_string_equal(a.warnings[0], "299 - \"unknown field \\\"datta\\\"\"");
	assert_null(js_get(a.json, "datta"));
	fx_answer_fini(&a);
	fx_call(&f, &a, &fx_admin, "PUT", CM "/a?fieldValidation=Ignore", NULL, NULL, body);
	assert_int_equal(a.status, 200);
	assert_int_equal(a.n_warnings, 0);
	fx_answer_fini(&a);
}

static void delete_honours_finalizers_and_preconditions(void **state)
{
	(void)state;
	struct json *a = fx_do(&f, 201, "POST", CM,
			       "{\"metadata\":{\"name\":\"a\",\"finalizers\":[\"x.dev/f\"]}}");

	drop(a);
	a = fx_do(&f, 409, "DELETE", CM "/a", "{\"preconditions\":{\"uid\":\"other\"}}");
	drop(a);
	a = fx_do(&f, 200, "DELETE", CM "/a", NULL);
	assert_path(a, "ConfigMap", "kind");
	assert_non_null(js_at(a, "metadata", "deletionTimestamp", NULL));
	int64_t rev = store_rev(f.store);

	drop(a);
	drop(fx_do(&f, 200, "DELETE", CM "/a", NULL)); /* again: nothing new */
	assert_int_equal(store_rev(f.store), rev);
	a = fx_patch(&f, 422, "merge-patch", CM "/a",
		     "{\"metadata\":{\"finalizers\":[\"x.dev/f\",\"y.dev/g\"]}}");
	drop(a);
	drop(fx_patch(&f, 200, "merge-patch", CM "/a", "{\"metadata\":{\"finalizers\":null}}"));
	drop(fx_do(&f, 404, "GET", CM "/a", NULL));
	drop(fx_do(&f, 201, "POST", CM, "{\"metadata\":{\"name\":\"b\"}}"));
	a = fx_do(&f, 200, "DELETE", CM "/b", NULL);
	assert_path(a, "Success", "status");
	assert_path(a, "b", "details", "name");
	drop(a);
	drop(fx_do(&f, 404, "DELETE", CM "/b", NULL));
}

static void delete_sets_the_propagation_finalizer(void **state)
{
	(void)state;
	drop(fx_do(&f, 201, "POST", CM, "{\"metadata\":{\"name\":\"a\"}}"));
	struct json *a = fx_do(&f, 200, "DELETE", CM "/a?propagationPolicy=Foreground", NULL);

	assert_string_equal(js_str(js_item(js_at(a, "metadata", "finalizers", NULL), 0)),
			    "foregroundDeletion");
	drop(a);
	a = fx_do(&f, 200, "DELETE", CM "/a", "{\"propagationPolicy\":\"Orphan\"}");
	assert_string_equal(js_str(js_item(js_at(a, "metadata", "finalizers", NULL), 0)), "orphan");
	drop(a);
	drop(fx_do(&f, 422, "DELETE", CM "/a?propagationPolicy=Sideways", NULL));
	drop(fx_do(&f, 200, "DELETE", CM "/a?propagationPolicy=Background", NULL));
	drop(fx_do(&f, 404, "GET", CM "/a", NULL));
}

#define PODS "/api/v1/namespaces/default/pods"
#define POD                                                                               \
	"{\"metadata\":{\"name\":\"p\"},\"spec\":{\"containers\":[{\"name\":\"compute\"," \
	"\"image\":\"x\"}]}}"

static void pods_bind_once_and_go_gracefully(void **state)
{
	(void)state;
	struct json *a = fx_do(&f, 201, "POST", PODS, POD);

	assert_path(a, "Pending", "status", "phase");
	assert_path(a, "BestEffort", "status", "qosClass");
	drop(a);
	a = fx_do(&f, 201, "POST", PODS "/p/binding",
		  "{\"target\":{\"kind\":\"Node\",\"name\":\"node-1\"}}");
	assert_path(a, "Success", "status");
	drop(a);
	a = fx_do(&f, 409, "POST", PODS "/p/binding",
		  "{\"target\":{\"kind\":\"Node\",\"name\":\"node-2\"}}");
	assert_msg(a, "Operation cannot be fulfilled on pods \"p\": pod p is already assigned to "
		      "node \"node-1\"");
	drop(a);
	a = fx_patch(&f, 422, "merge-patch", PODS "/p", "{\"spec\":{\"nodeName\":\"node-2\"}}");
	drop(a);
	a = fx_do(&f, 200, "DELETE", PODS "/p", NULL);
	assert_int_equal(js_int(js_at(a, "metadata", "deletionGracePeriodSeconds", NULL), -1), 30);
	drop(a);
	a = fx_as(&f, &fx_node1, 200, "PATCH", PODS "/p/status",
		  "{\"status\":{\"phase\":\"Succeeded\"}}");
	drop(a);
	drop(fx_as(&f, &fx_node1, 200, "DELETE", PODS "/p?gracePeriodSeconds=0", NULL));
	drop(fx_do(&f, 404, "GET", PODS "/p", NULL));
	/* Never bound: nothing to wait for. */
	drop(fx_do(&f, 201, "POST", PODS, POD));
	drop(fx_do(&f, 200, "DELETE", PODS "/p", NULL));
	drop(fx_do(&f, 404, "GET", PODS "/p", NULL));
}

static void deletecollection_takes_what_the_selector_names(void **state)
{
	(void)state;
	for (int i = 0; i < 6; i++) {
		char body[128];

		snprintf(body, sizeof(body),
			 "{\"metadata\":{\"name\":\"a%d\",\"labels\":{\"odd\":\"%d\"}}}", i, i % 2);
		drop(fx_do(&f, 201, "POST", CM, body));
	}
	struct json *a = fx_do(&f, 200, "DELETE", CM "?labelSelector=odd%3D1", NULL);

	assert_int_equal(js_len(js_get(a, "items")), 3);
	drop(a);
	a = fx_do(&f, 200, "GET", CM, NULL);
	assert_int_equal(js_len(js_get(a, "items")), 3);
	drop(a);
	a = fx_do(&f, 200, "DELETE", CM, NULL);
	drop(a);
	a = fx_do(&f, 200, "DELETE", CM, NULL); /* nothing left */
	assert_int_equal(js_len(js_get(a, "items")), 0);
	drop(a);
}

static void namespaces_take_their_content_with_them(void **state)
{
	(void)state;
	struct json *a;

	drop(fx_do(&f, 201, "POST", "/api/v1/namespaces", "{\"metadata\":{\"name\":\"n\"}}"));
	drop(fx_do(&f, 201, "POST", "/api/v1/namespaces/n/configmaps",
		   "{\"metadata\":{\"name\":\"a\",\"finalizers\":[\"x.dev/f\"]}}"));
	drop(fx_do(&f, 201, "POST", "/api/v1/namespaces/n/configmaps",
		   "{\"metadata\":{\"name\":\"b\"}}"));
	a = fx_do(&f, 200, "DELETE", "/api/v1/namespaces/n", NULL);
	assert_path(a, "Terminating", "status", "phase");
	drop(a);
	fx_settle(&f);
	drop(fx_do(&f, 404, "GET", "/api/v1/namespaces/n/configmaps/b", NULL));
	drop(fx_do(&f, 200, "GET", "/api/v1/namespaces/n/configmaps/a", NULL));
	a = fx_do(&f, 200, "GET", "/api/v1/namespaces/n", NULL);
	const struct json *conds = js_at(a, "status", "conditions", NULL);

	assert_int_equal(js_len(conds), 2);
	assert_path(js_item(conds, 0), "NamespaceContentRemaining", "type");
	assert_path(js_item(conds, 0),
		    "Some resources are remaining: configmaps. has 1 resource instances",
		    "message");
	assert_path(js_item(conds, 1), "NamespaceFinalizersRemaining", "type");
	assert_path(js_item(conds, 1),
		    "Some content in the namespace has finalizers remaining: x.dev/f in 1 resource "
		    "instances",
		    "message");
	drop(a);
	int64_t rev = store_rev(f.store);

	fx_sleep(&f, 120 * USEC_PER_SEC); /* said once */
	assert_int_equal(store_rev(f.store), rev);
	a = fx_do(&f, 403, "POST", "/api/v1/namespaces/n/configmaps",
		  "{\"metadata\":{\"name\":\"c\"}}");
	assert_msg(a, "configmaps \"c\" is forbidden: unable to create new content in namespace n "
		      "because it is being "
		      "terminated");
	drop(a);
	drop(fx_patch(&f, 200, "merge-patch", "/api/v1/namespaces/n/configmaps/a",
		      "{\"metadata\":{\"finalizers\":[]}}"));
	fx_settle(&f);
	drop(fx_do(&f, 404, "GET", "/api/v1/namespaces/n", NULL));
	a = fx_do(&f, 403, "DELETE", "/api/v1/namespaces/default", NULL);
	assert_msg(a, "namespaces \"default\" is forbidden: this namespace may not be deleted");
	drop(a);
}

#define SVCS "/api/v1/namespaces/default/services"

static void services_get_addresses_and_ports(void **state)
{
	(void)state;
	struct json *a =
		fx_do(&f, 201, "POST", SVCS,
		      "{\"metadata\":{\"name\":\"a\"},\"spec\":{\"ports\":[{\"port\":80}]}}");

	assert_path(a, "10.96.1.0", "spec", "clusterIP");
	drop(a);
	a = fx_do(&f, 201, "POST", SVCS,
		  "{\"metadata\":{\"name\":\"b\"},\"spec\":{\"type\":\"NodePort\",\"clusterIP\":"
		  "\"10.96.0.10\",\"ports\":[{\"port\":80,"
		  "\"nodePort\":30080}]}}");
	assert_path(a, "10.96.0.10", "spec", "clusterIP");
	drop(a);
	a = fx_do(&f, 422, "POST", SVCS,
		  "{\"metadata\":{\"name\":\"c\"},\"spec\":{\"type\":\"NodePort\",\"clusterIP\":"
		  "\"10.96.0.10\",\"ports\":[{\"port\":80,"
		  "\"nodePort\":30080}]}}");
	assert_int_equal(js_len(js_at(a, "details", "causes", NULL)), 2);
	drop(a);
	a = fx_do(&f, 422, "POST", SVCS,
		  "{\"metadata\":{\"name\":\"c\"},\"spec\":{\"clusterIP\":\"10.97.0.1\",\"ports\":["
		  "{\"port\":80}]}}");
	drop(a);
	a = fx_patch(&f, 422, "merge-patch", SVCS "/a", "{\"spec\":{\"clusterIP\":\"10.96.3.3\"}}");
	drop(a);
	/* Left out: kept. */
	a = fx_do(&f, 200, "PUT", SVCS "/b",
		  "{\"metadata\":{\"name\":\"b\"},\"spec\":{\"type\":\"NodePort\",\"ports\":[{"
		  "\"port\":80}]}}");
	assert_path(a, "10.96.0.10", "spec", "clusterIP");
	assert_int_equal(js_get_int(js_item(js_at(a, "spec", "ports", NULL), 0), "nodePort", 0),
			 30080);
	drop(a);
	a = fx_do(&f, 422, "POST", SVCS,
		  "{\"metadata\":{\"name\":\"d\"},\"spec\":{\"type\":\"LoadBalancer\",\"ports\":[{"
		  "\"port\":80}]}}");
	drop(a);
	a = fx_do(&f, 201, "POST", SVCS,
		  "{\"metadata\":{\"name\":\"h\"},\"spec\":{\"clusterIP\":\"None\",\"ports\":[{"
		  "\"port\":80}]}}");
	assert_path(a, "None", "spec", "clusterIP");
	drop(a);
	drop(fx_do(&f, 200, "DELETE", SVCS "/a", NULL));
	a = fx_do(&f, 201, "POST", SVCS,
		  "{\"metadata\":{\"name\":\"e\"},\"spec\":{\"ports\":[{\"port\":80}]}}");
	assert_path(a, "10.96.1.0", "spec", "clusterIP"); /* free again */
	drop(a);
}

static void secrets_fold_plain_text(void **state)
{
	(void)state;
	struct json *a = fx_do(&f, 201, "POST", "/api/v1/namespaces/default/secrets",
			       "{\"metadata\":{\"name\":\"s\"},\"stringData\":{\"k\":\"hello\"}}");

	assert_path(a, "aGVsbG8=", "data", "k");
	assert_path(a, "Opaque", "type");
	assert_null(js_get(a, "stringData"));
	drop(a);
}

static void make_event(struct fx *fx)
{
	drop(fx_do(fx, 201, "POST", "/api/v1/namespaces/default/events",
		   "{\"metadata\":{\"name\":\"e\"},\"involvedObject\":{\"kind\":\"Pod\",\"name\":"
		   "\"p\",\"namespace\":\"default\"},"
		   "\"reason\":\"X\",\"type\":\"Normal\"}"));
}

static void events_expire(void **state)
{
	(void)state;
	make_event(&f);
	fx_sleep(&f, 3500 * USEC_PER_SEC);
	drop(fx_do(&f, 200, "GET", "/api/v1/namespaces/default/events/e", NULL));
	fx_sleep(&f, 300 * USEC_PER_SEC);
	drop(fx_do(&f, 404, "GET", "/api/v1/namespaces/default/events/e", NULL));
}

static void events_stay_as_long_as_was_said(void **state)
{
	struct fx one = {0};

	(void)state;
	assert_int_equal(loop_new(&one.loop, LOOP_VIRTUAL, NULL), RC_OK);
	assert_int_equal(store_open(&one.store, one.loop, NULL, NULL), RC_OK);
	const struct apisrv_config c = {
		.store = one.store, .seed = 7, .event_ttl = 90 * USEC_PER_SEC};

	assert_int_equal(apisrv_new(&one.srv, one.loop, &c, NULL), RC_OK);
	fx_settle(&one);
	make_event(&one);
	fx_sleep(&one, 80 * USEC_PER_SEC);
	drop(fx_do(&one, 200, "GET", "/api/v1/namespaces/default/events/e", NULL));
	fx_sleep(&one, 80 * USEC_PER_SEC);
	drop(fx_do(&one, 404, "GET", "/api/v1/namespaces/default/events/e", NULL));
	fx_down(&one);
}

/* A taken port ends the server before its loop ran once: what it asked of itself is still under way. */
static void ends_before_it_began(void **state)
{
	struct err err = {0};
	struct fx one = {0};

	(void)state;
	assert_int_equal(loop_new(&one.loop, LOOP_VIRTUAL, &err), RC_OK);
	assert_int_equal(store_open(&one.store, one.loop, NULL, &err), RC_OK);
	struct apisrv_config c = {.store = one.store, .seed = 7};

	assert_int_equal(apisrv_new(&one.srv, one.loop, &c, &err), RC_OK);
	fx_down(&one);
}

int main(void)
{
#define T(fn_) cmocka_unit_test_setup_teardown(fn_, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(create_gives_system_metadata),
		T(refusals_say_what_is_wrong),
		T(names_are_generated),
		T(dry_run_stores_nothing),
		T(update_checks_the_version),
		T(a_write_that_changes_nothing_writes_nothing),
		T(patches_apply),
		T(spec_and_status_are_separate),
		T(vmi_status_belongs_to_components),
		T(unknown_fields_are_told),
		T(delete_honours_finalizers_and_preconditions),
		T(delete_sets_the_propagation_finalizer),
		T(pods_bind_once_and_go_gracefully),
		T(deletecollection_takes_what_the_selector_names),
		T(namespaces_take_their_content_with_them),
		T(services_get_addresses_and_ports),
		T(secrets_fold_plain_text),
		cmocka_unit_test(ends_before_it_began),
		T(events_expire),
		cmocka_unit_test(events_stay_as_long_as_was_said),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("verbs", tests, NULL, NULL);
}
