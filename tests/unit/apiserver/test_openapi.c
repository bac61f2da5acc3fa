/* What the OpenAPI documents say, what discovery tells and what is routed are the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "api/api.h"
#include "base/str.h"
#include "fixture.h"
#include "virt/subresources/subresources.h"

#define GROUP "subresources.kubevirt.io"
#define NONE  "the server could not find the requested resource"

static struct fx f;
static struct apisrv_hooks hooks;

static int setup(void **state)
{
	(void)state;
	hooks = (struct apisrv_hooks){.subres = virt_subres, .n_subres = n_virt_subres};
	fx_up(&f, &hooks);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fx_down(&f);
	return 0;
}

static const char *const methods[] = {"GET", "PUT", "POST", "PATCH", "DELETE"};
static const char *const verbs[] = {"get", "put", "post", "patch", "delete"};

static void every_subresource_of_the_schema_has_one_handler(void **state)
{
	size_t n = 0, of_group = 0;

	(void)state;
	for (size_t i = 0; i < n_virt_subres; i++) {
		bool found = false;

		for (size_t k = 0; k < i; k++)
			assert_ptr_not_equal(virt_subres[k].at, virt_subres[i].at);
		for (n = 0; api_subresources[n]; n++)
			found = found || api_subresources[n] == virt_subres[i].at;
		assert_true(found);
		of_group += strcmp(virt_subres[i].at->group, GROUP) == 0;
	}
	for (n = 0; api_subresources[n]; n++)
		if (strcmp(api_subresources[n]->group, GROUP) == 0)
			of_group--;
	assert_int_equal(of_group, 0);
	assert_true(n > 40);
}

/* A path of a document with something at each of its parameters. */
static void fill(const char *path, char *out, size_t n)
{
	static const char *const with[][2] = {{"{namespace}", "default"},
					      {"{name}", "x"},
					      {"{port}", "22"},
					      {"{protocol}", "tcp"}};
	size_t at = 0;

	while (*path && at + 16 < n) {
		size_t i = 0;

		while (i < ARRAY_SIZE(with) && !str_has_prefix(path, with[i][0]))
			i++;
		if (i < ARRAY_SIZE(with)) {
			at += (size_t)snprintf(out + at, n - at, "%s", with[i][1]);
			path += strlen(with[i][0]);
		} else {
			out[at++] = *path++;
		}
	}
	out[at] = '\0';
	assert_null(strchr(out, '{'));
}

static void is_routed_as_told(const char *path, const char *method, bool is_told)
{
	char target[256];
	struct fx_answer a;

	fill(path, target, sizeof(target));
	fx_call(&f, &a, &fx_admin, method, target, NULL, NULL,
		strcmp(method, "GET") == 0 ? NULL : "{}");
	bool is_there =
		a.status != 405 && !(a.status == 404 && strstr(a.text, "\"message\":\"" NONE));

	if (is_there != is_told)
		fail_msg("%s %s: %stold, and answered %d: %s", method, path, is_told ? "" : "not ",
			 a.status, a.text);
	fx_answer_fini(&a);
}

static void each_method_of_each_path_is_routed_and_no_other(void **state)
{
	struct json *doc = fx_do(&f, 200, "GET", "/openapi/v2", NULL);
	size_t n = 0;

	(void)state;
	JS_FOREACH(it, js_get(doc, "paths")) {
		for (size_t i = 0; i < ARRAY_SIZE(methods); i++)
			is_routed_as_told(it.key, methods[i], js_get(it.value, verbs[i]) != NULL);
		n++;
	}
	assert_true(n > 300);
	js_unref(doc);
}

static size_t count_calls(const struct json *paths)
{
	size_t n = 0;

	JS_FOREACH(it, paths)
		for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
			n += js_get(it.value, verbs[i]) != NULL;
	return n;
}

/* Operation ids differ by version only where KubeVirt's do, so they are compared as they are. */
static void both_forms_of_the_documents_have_the_same_calls(void **state)
{
	struct json *v2 = fx_do(&f, 200, "GET", "/openapi/v2", NULL);
	struct json *index = fx_do(&f, 200, "GET", "/openapi/v3", NULL);
	size_t n = 0;

	(void)state;
	JS_FOREACH(row, js_get(index, "paths")) {
		struct json *v3 =
			fx_do(&f, 200, "GET", js_get_str(row.value, "serverRelativeURL"), NULL);

		JS_FOREACH(it, js_get(v3, "paths")) {
			const struct json *same = js_get(js_get(v2, "paths"), it.key);

			for (size_t i = 0; i < ARRAY_SIZE(verbs); i++) {
				const char *a =
					js_get_str(js_get(it.value, verbs[i]), "operationId");
				const char *b = js_get_str(js_get(same, verbs[i]), "operationId");

				if (!str_eq(a, b))
					fail_msg("%s %s: %s in v3, %s in v2", verbs[i], it.key,
						 a ? a : "absent", b ? b : "absent");
			}
		}
		n += count_calls(js_get(v3, "paths"));
		js_unref(v3);
	}
	assert_int_equal(n, count_calls(js_get(v2, "paths")));
	js_unref(v2);
	js_unref(index);
}

/* ---- discovery -------------------------------------------------------------------------------- */

/* "get" of "pods/status" -> GET /api/v1/namespaces/{namespace}/pods/{name}/status, or NULL. */
static const struct json *call_of(const struct json *paths, const char *base, const struct json *r,
				  const char *verb)
{
	static const struct {
		const char *verb, *method;
		bool on_all;
	} how[] = {{"get", "get", false},	{"list", "get", true},
		   {"watch", "get", true},	{"create", "post", true},
		   {"update", "put", false},	{"patch", "patch", false},
		   {"delete", "delete", false}, {"deletecollection", "delete", true}};
	const char *name = js_get_str(r, "name"), *sub = strchr(name, '/');
	bool is_call = strcmp(base, "/apis/" GROUP "/v1") == 0 ||
		       strcmp(base, "/apis/" GROUP "/v1alpha3") == 0;
	size_t i = 0;
	char path[256];

	while (i < ARRAY_SIZE(how) && strcmp(how[i].verb, verb) != 0)
		i++;
	assert_true(i < ARRAY_SIZE(how));
	bool has_name = sub || (!how[i].on_all && !is_call);

	snprintf(path, sizeof(path), "%s%s/%.*s%s%s%s", base,
		 js_get_bool(r, "namespaced", false) ? "/namespaces/{namespace}" : "",
		 (int)(sub ? sub - name : (ptrdiff_t)strlen(name)), name, has_name ? "/{name}" : "",
		 sub ? sub : "", sub && strcmp(sub, "/portforward") == 0 ? "/{port}" : "");
	return js_get(js_get(paths, path), how[i].method);
}

/* Reviews are bodies that nothing describes: see docs/limits.md. */
static bool is_review(const char *base)
{
	return strcmp(base, "/apis/authentication.k8s.io/v1") == 0 ||
	       strcmp(base, "/apis/authorization.k8s.io/v1") == 0;
}

static size_t compare(const struct json *paths, const char *base)
{
	struct json *list = fx_do(&f, 200, "GET", base, NULL);
	const struct json *all = js_get(list, "resources");
	size_t n = 0;

	for (size_t i = 0; i < js_len(all); i++) {
		const struct json *r = js_item(all, i), *can = js_get(r, "verbs");

		for (size_t k = 0; k < js_len(can) && !is_review(base); k++, n++)
			if (!call_of(paths, base, r, js_str(js_item(can, k))))
				fail_msg("%s: %s of %s is in discovery alone", base,
					 js_str(js_item(can, k)), js_get_str(r, "name"));
	}
	js_unref(list);
	return n;
}

static void whatever_discovery_tells_is_described(void **state)
{
	struct json *doc = fx_do(&f, 200, "GET", "/openapi/v2", NULL);
	struct json *all = fx_do(&f, 200, "GET", "/apis", NULL);
	const struct json *paths = js_get(doc, "paths");
	size_t n = compare(paths, "/api/v1");
	char base[160];

	(void)state;
	for (size_t i = 0; i < js_len(js_get(all, "groups")); i++) {
		const struct json *versions = js_get(js_item(js_get(all, "groups"), i), "versions");

		for (size_t k = 0; k < js_len(versions); k++) {
			snprintf(base, sizeof(base), "/apis/%s",
				 js_get_str(js_item(versions, k), "groupVersion"));
			n += compare(paths, base);
		}
	}
	assert_true(n > 500);
	js_unref(doc);
	js_unref(all);
}

/* ---- single operations ------------------------------------------------------------------------- */

static const struct json *op(const struct json *doc, const char *path, const char *verb)
{
	const struct json *o = js_get(js_get(js_get(doc, "paths"), path), verb);

	if (!o)
		fail_msg("%s %s is not described", verb, path);
	return o;
}

static const struct json *body_of(const struct json *o)
{
	const struct json *params = js_get(o, "parameters");

	for (size_t i = 0; i < js_len(params); i++)
		if (str_eq(js_get_str(js_item(params, i), "in"), "body"))
			return js_item(params, i);
	return NULL;
}

static void calls_are_named_as_kubernetes_and_kubevirt_do(void **state)
{
#define IN "/namespaces/{namespace}"
#define VM "/apis/" GROUP "/v1" IN "/virtualmachines/{name}"
#define P  "/api/v1" IN "/pods/{name}/"
	static const struct {
		const char *path, *verb, *id, *tag, *action, *kind;
	} rows[] = {
		{"/api/v1/pods", "get", "listCoreV1PodForAllNamespaces", "core_v1", "list", "Pod"},
		{"/api/v1" IN "/pods", "delete", "deleteCoreV1CollectionNamespacedPod", "core_v1",
		 "deletecollection", "Pod"},
		{"/api/v1/nodes/{name}/status", "put", "replaceCoreV1NodeStatus", "core_v1", "put",
		 "Node"},
		{P "eviction", "post", "createCoreV1NamespacedPodEviction", "core_v1", "post",
		 "Eviction"},
		{P "binding", "post", "createCoreV1NamespacedPodBinding", "core_v1", "post",
		 "Binding"},
		{"/api/v1" IN "/serviceaccounts/{name}/token", "post",
		 "createCoreV1NamespacedServiceAccountToken", "core_v1", "post", "TokenRequest"},
		{"/apis/rbac.authorization.k8s.io/v1/clusterroles", "post",
		 "createRbacAuthorizationV1ClusterRole", "rbacAuthorization_v1", "post",
		 "ClusterRole"},
		{"/apis/kubevirt.io/v1alpha3" IN "/virtualmachineinstancereplicasets/{name}/scale",
		 "patch", "patchKubevirtIoV1alpha3NamespacedVirtualMachineInstanceReplicaSetScale",
		 "kubevirtIo_v1alpha3", "patch", "Scale"},
		{VM "/start", "put", "v1Start", "subresourcesKubevirtIo_v1", NULL, NULL},
		{"/apis/" GROUP "/v1alpha3" IN "/virtualmachines/{name}/start", "put",
		 "v1alpha3Start", "subresourcesKubevirtIo_v1alpha3", NULL, NULL},
		{VM "/portforward/{port}/{protocol}", "get", "v1vm-PortForwardWithProtocol",
		 "subresourcesKubevirtIo_v1", NULL, NULL},
		{"/apis/" GROUP "/v1" IN "/expand-vm-spec", "put", "v1ExpandSpec",
		 "subresourcesKubevirtIo_v1", NULL, NULL},
	};
	struct json *doc = fx_do(&f, 200, "GET", "/openapi/v2", NULL);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct json *o = op(doc, rows[i].path, rows[i].verb);
		const char *action = js_get_str(o, "x-kubernetes-action");
		const struct json *gvk = js_get(o, "x-kubernetes-group-version-kind");

		assert_string_equal(js_get_str(o, "operationId"), rows[i].id);
		assert_string_equal(js_str(js_item(js_get(o, "tags"), 0)), rows[i].tag);
		assert_true(rows[i].action ? str_eq(action, rows[i].action) : !action);
		assert_true(rows[i].kind ? str_eq(js_get_str(gvk, "kind"), rows[i].kind) : !gvk);
	}
	const struct json *start = body_of(op(doc, VM "/start", "put"));

	assert_path(start, "#/definitions/io.kubevirt.v1.StartOptions", "schema", "$ref");
	assert_false(js_get_bool(start, "required", true));
	assert_non_null(js_at(op(doc, VM "/start", "put"), "responses", "202", NULL));
	assert_true(js_get_bool(body_of(op(doc, VM "/addvolume", "put")), "required", false));
	assert_path(op(doc, P "eviction", "post"), "#/definitions/io.k8s.api.policy.v1.Eviction",
		    "responses", "201", "schema", "$ref");
	js_unref(doc);
}

int main(void)
{
#define T(fn_) cmocka_unit_test_setup_teardown(fn_, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(every_subresource_of_the_schema_has_one_handler),
		T(each_method_of_each_path_is_routed_and_no_other),
		T(both_forms_of_the_documents_have_the_same_calls),
		T(whatever_discovery_tells_is_described),
		T(calls_are_named_as_kubernetes_and_kubevirt_do),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("openapi", tests, NULL, NULL);
}
