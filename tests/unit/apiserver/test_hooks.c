/* Admission and subresources as src/virt will use them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "api/fielderr.h"
#include "api/gen/api_types.h"
#include "base/mem.h"
#include "base/str.h"
#include "fixture.h"

#define VMS "/apis/kubevirt.io/v1/namespaces/default/virtualmachines"
#define SUB "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines"
#define VM_BODY(name_)                                                      \
	"{\"metadata\":{\"name\":\"" name_                                  \
	"\"},\"spec\":{\"runStrategy\":\"Halted\",\"template\":{\"spec\":{" \
	"\"domain\":{\"memory\":{\"guest\":\"64Mi\"},\"devices\":{}}}}}}"

static int mutations, cancels;

static enum rc mutate(struct hook_ctx *ctx, struct json *obj, struct err *err)
{
	(void)err;
	mutations++;
	if (*ctx->subresource)
		return RC_OK;
	hook_warn(ctx, "seen \"%s\"", ctx->name);
	return js_set(js_ensure_object(js_get(obj, "metadata"), "annotations"), "seen",
		      js_new_str(ctx->user->name));
}

static enum rc validate(struct hook_ctx *ctx, const void *obj, const void *old,
			struct field_errs *fe, struct err *err)
{
	const VirtualMachine *vm = obj ? obj : old;

	assert_true(ctx->op != HOOK_CREATE || !old);
	assert_true(ctx->op != HOOK_DELETE || !obj);
	if (!vm)
		return err_set(err, RC_INVALID, "neither an old version nor a new one");
	assert_string_equal(vm->metadata.name, ctx->name);
	if (ctx->op == HOOK_DELETE && str_eq(ctx->name, "kept"))
		return err_set(err, RC_FORBIDDEN, "it is kept");
	if (str_eq(ctx->name, "two")) {
		fe_cause(fe, "FieldValueInvalid", "spec.a", "first is wrong");
		fe_cause(fe, "FieldValueInvalid", "spec.b", "second is wrong");
	}
	if (str_eq(ctx->name, "one"))
		return err_set(err, RC_BAD_REQUEST, "no such thing");
	return RC_OK;
}

static void started(struct hook_call *call, int status, const struct json *obj)
{
	if (status == 200)
		hook_call_reply(call, 202, NULL);
	else
		hook_call_reply_status(call, status, obj);
}

static void start(struct hook_call *call)
{
	struct hook_env *env = hook_call_env(call);
	const struct json *vm = hook_get(env, "virtualmachines.kubevirt.io", hook_call_ns(call),
					 hook_call_name(call));
	char target[256];
	struct err err = {0};

	if (!vm) {
		char text[128];

		snprintf(text, sizeof(text), "virtualmachine.kubevirt.io \"%s\" not found",
			 hook_call_name(call));
		hook_call_fail_details(call, RC_NOT_FOUND, "kubevirt.io", "virtualmachine",
				       hook_call_name(call), text);
		return;
	}
	snprintf(target, sizeof(target), VMS "/%s", hook_call_name(call));
	if (hook_call_request(call, HOOK_AS_COMPONENT, "PATCH", target,
			      "application/merge-patch+json",
			      js_pack("{s:{s:s}}", "spec", "runStrategy", "Always"), started, &err))
		hook_call_fail(call, err.rc, "%s", err.msg);
}

static void on_cancelled(struct hook_call *call)
{
	assert_string_equal(hook_call_data(call), "mine");
	cancels++;
}

static void hang(struct hook_call *call)
{
	hook_call_set_data(call, (void *)(uintptr_t) "mine");
	hook_call_on_cancel(call, on_cancelled);
}

static void forward(struct hook_call *call)
{
	hook_call_reply(call, 200,
			js_pack("{s:s, s:s*}", "rest", hook_call_rest(call), "q",
				hook_call_param(call, "q")));
}

static void version(struct hook_call *call)
{
	hook_call_reply_bytes(call, 200, "text/plain", "v", 1);
}

static void evict(struct hook_call *call)
{
	hook_call_fail(call, RC_BUSY, "Eviction triggered evacuation");
}

static const struct admission_hook admission[] = {
	{.resource = "virtualmachines.kubevirt.io",
	 .denied_by = "virtualmachine-validator.kubevirt.io",
	 .mutate = mutate,
	 .validate = validate}};
static const char *const versions[] = {"v1", "v1alpha3", NULL};
static const struct api_subresource hang_at = {.group = "subresources.kubevirt.io",
					       .versions = versions,
					       .resource = "virtualmachines",
					       .path = "hang",
					       .method = "GET",
					       .kind = ""};
static const struct api_subresource version_at = {.group = "subresources.kubevirt.io",
						  .versions = versions,
						  .scope = API_SCOPE_CLUSTER,
						  .resource = "",
						  .path = "version",
						  .method = "GET",
						  .kind = "",
						  .is_public = true};
static const struct subres_hook subres[] = {
	{&api_sub_put_virtualmachines_start, start},
	{&hang_at, hang},
	{&api_sub_get_virtualmachines_portforward, forward},
	{&version_at, version},
	{&api_sub_post_pods_eviction, evict},
};
static const struct apisrv_hooks hooks = {ARRAY_SIZE(admission), admission, ARRAY_SIZE(subres),
					  subres, NULL};
static struct fx f;

static int setup(void **state)
{
	(void)state;
	mutations = cancels = 0;
	fx_up(&f, &hooks);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fx_down(&f);
	return 0;
}

static void admission_changes_warns_and_denies(void **state)
{
	(void)state;
	struct fx_answer a;

	fx_call(&f, &a, &fx_admin, "POST", VMS, NULL, NULL, VM_BODY("ok"));
	assert_int_equal(a.status, 201);
	assert_path(a.json, "admin", "metadata", "annotations", "seen");
	assert_string_equal(a.warnings[0], "299 - \"seen \\\"ok\\\"\"");
	/* what admission added is not the creator's: it would go when he applies without it */
	CLEANUP(mem_freep)
	char *managed = js_to_text(js_at(a.json, "metadata", "managedFields", NULL));

	assert_non_null(strstr(managed, "f:spec"));
	assert_null(strstr(managed, "f:seen"));
	fx_answer_fini(&a);
	struct json *j = fx_do(&f, 422, "POST", VMS, VM_BODY("two"));

	assert_msg(
		j,
		"admission webhook \"virtualmachine-validator.kubevirt.io\" denied the request: first is wrong, second "
		"is wrong");
	assert_int_equal(js_len(js_at(j, "details", "causes", NULL)), 2);
	assert_path(js_item(js_at(j, "details", "causes", NULL), 1), "spec.b", "field");
	js_unref(j);
	j = fx_do(&f, 400, "POST", VMS, VM_BODY("one"));
	assert_msg(
		j,
		"admission webhook \"virtualmachine-validator.kubevirt.io\" denied the request: no such thing");
	js_unref(j);
	js_unref(fx_do(&f, 201, "POST", VMS, VM_BODY("kept")));
	j = fx_do(&f, 403, "DELETE", VMS "/kept", NULL);
	js_unref(j);
	js_unref(fx_do(&f, 200, "DELETE", VMS "/ok", NULL));
}

static void subresources_write_through_the_server(void **state)
{
	(void)state;
	struct fx_answer a;

	js_unref(fx_do(&f, 201, "POST", VMS, VM_BODY("v")));
	fx_call(&f, &a, &fx_admin, "PUT", SUB "/v/start", NULL, NULL, NULL);
	assert_int_equal(a.status, 202);
	assert_int_equal(a.n, 0);
	fx_answer_fini(&a);
	struct json *j = fx_do(&f, 200, "GET", VMS "/v", NULL);

	assert_path(j, "Always", "spec", "runStrategy");
	js_unref(j);
	j = fx_do(&f, 404, "PUT", SUB "/w/start", NULL);
	assert_msg(j, "virtualmachine.kubevirt.io \"w\" not found");
	js_unref(j);
	js_unref(fx_do(&f, 405, "GET", SUB "/v/start", NULL));
	js_unref(fx_do(&f, 404, "GET", SUB "/v/nothing", NULL));
	js_unref(fx_as(&f, &fx_nobody, 401, "PUT", SUB "/v/start", NULL));
	j = fx_do(&f, 200, "GET", SUB "/v/portforward/22/tcp?q=%2Fx", NULL);
	assert_path(j, "22/tcp", "rest");
	assert_path(j, "/x", "q");
	js_unref(j);
	js_unref(fx_as(&f, NULL, 200, "GET", "/apis/subresources.kubevirt.io/v1alpha3/version",
		       NULL));
	js_unref(fx_do(&f, 404, "GET", "/apis/subresources.kubevirt.io/v2/version", NULL));
	j = fx_do(&f, 200, "GET", "/apis/subresources.kubevirt.io/v1", NULL);
	assert_int_equal(js_len(js_get(j, "resources")), 3); /* start, hang, version */
	js_unref(j);
}

static void a_client_that_leaves_cancels_its_call(void **state)
{
	(void)state;
	static const struct apisrv_sink sink = {0};
	struct apisrv_request r = {.method = "GET", .target = SUB "/v/hang", .user = &fx_admin};
	struct apisrv_call *c = apisrv_handle(f.srv, &r, &sink, NULL);

	assert_non_null(c);
	apisrv_cancel(c);
	assert_int_equal(cancels, 1);
	/* And one that the server still holds when it ends. */
	assert_non_null(apisrv_handle(f.srv, &r, &sink, NULL));
}

static void no_answer(void *arg, const struct apisrv_answer *a)
{
	(void)arg;
	(void)a;
}

/* Ended with requests in the middle: of clients, and to itself on their behalf. */
static void the_server_may_end_at_any_moment(void **state)
{
	(void)state;
	static const struct apisrv_sink sink = {.answer = no_answer};
	struct apisrv_request start_it = {
		.method = "PUT", .target = SUB "/v/start", .user = &fx_admin};
	struct apisrv_request make = {.method = "POST",
				      .target = VMS,
				      .user = &fx_admin,
				      .body = VM_BODY("w"),
				      .n_body = sizeof(VM_BODY("w")) - 1};
	struct apisrv_request drop = {.method = "DELETE", .target = VMS, .user = &fx_admin};

	js_unref(fx_do(&f, 201, "POST", VMS, VM_BODY("v")));
	assert_non_null(apisrv_handle(f.srv, &start_it, &sink, NULL));
	assert_non_null(apisrv_handle(f.srv, &make, &sink, NULL));
	assert_non_null(apisrv_handle(f.srv, &drop, &sink, NULL));
	/* A server that was only just made has its own writes on their way: the standard namespaces. */
	struct apisrv *other = NULL;
	struct store *store = NULL;

	assert_int_equal(store_open(&store, f.loop, NULL, NULL), RC_OK);
	struct apisrv_config config = {.store = store};

	assert_int_equal(apisrv_new(&other, f.loop, &config, NULL), RC_OK);
	apisrv_free(other);
	store_close(store);
}

static void a_cancelled_start_still_writes_and_answers_nobody(void **state)
{
	(void)state;
	static const struct apisrv_sink sink = {0};
	struct apisrv_request r = {.method = "PUT", .target = SUB "/v/start", .user = &fx_admin};

	js_unref(fx_do(&f, 201, "POST", VMS, VM_BODY("v")));
	struct apisrv_call *c = apisrv_handle(f.srv, &r, &sink, NULL);

	assert_non_null(c);
	apisrv_cancel(c);
	fx_settle(&f);
	struct json *j = fx_do(&f, 200, "GET", VMS "/v", NULL);

	assert_path(j, "Always", "spec", "runStrategy");
	js_unref(j);
}

/* Admission wrote it, the schema refuses it: an update that leaves it alone must pass. */
static void old_faults_do_not_hold_up_an_update(void **state)
{
	(void)state;
	struct json *j;

	js_unref(fx_do(&f, 201, "POST", VMS, VM_BODY("v")));
	/* Components may write what users may not. */
	js_unref(fx_as(
		&f, &fx_controller, 200, "PATCH", VMS "/v",
		"{\"spec\":{\"template\":{\"spec\":{\"domain\":{\"features\":{\"acpi\":{}}}}}}}"));
	j = fx_patch(&f, 200, "merge-patch", VMS "/v", "{\"metadata\":{\"labels\":{\"a\":\"b\"}}}");
	js_unref(j);
	js_unref(fx_patch(
		&f, 422, "merge-patch", VMS "/v",
		"{\"spec\":{\"template\":{\"spec\":{\"domain\":{\"launchSecurity\":{\"sev\":{}}}}}}}"));
}

static void eviction_goes_to_the_hook(void **state)
{
	(void)state;
	js_unref(fx_do(
		&f, 201, "POST", "/api/v1/namespaces/default/pods",
		"{\"metadata\":{\"name\":\"p\"},\"spec\":{\"containers\":[{\"name\":\"c\",\"image\":\"x\"}]}}"));
	struct json *j = fx_do(
		&f, 429, "POST", "/api/v1/namespaces/default/pods/p/eviction",
		"{\"apiVersion\":\"policy/v1\",\"kind\":\"Eviction\",\"metadata\":{\"name\":\"p\"}}");

	assert_msg(j, "Eviction triggered evacuation");
	js_unref(j);
}

static const struct json *named(const struct json *list, const char *key, const char *name)
{
	for (size_t i = 0; i < js_len(list); i++) {
		const char *have = js_get_str(js_item(list, i), key);

		if (have && strcmp(have, name) == 0)
			return js_item(list, i);
	}
	return NULL;
}

/* kubectl takes nothing but the aggregated form when it is offered: what is missing there does not exist. */
static void aggregated_discovery_knows_the_hooks(void **state)
{
	(void)state;
	struct fx_answer a;

	fx_call(&f, &a, &fx_admin, "GET", "/apis", NULL,
		"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", NULL);
	const struct json *group = NULL, *items = js_get(a.json, "items");

	for (size_t i = 0; i < js_len(items); i++)
		if (strcmp(js_str(js_at(js_item(items, i), "metadata", "name", NULL)),
			   "subresources.kubevirt.io") == 0)
			group = js_item(items, i);
	assert_int_equal(js_len(js_get(group, "versions")), 2);
	for (size_t i = 0; i < js_len(items); i++)
		if (strcmp(js_str(js_at(js_item(items, i), "metadata", "name", NULL)), "policy") ==
		    0)
			assert_int_equal(js_len(js_get(js_item(items, i), "versions")), 1);
	const struct json *v1 = js_item(js_get(group, "versions"), 0);
	const struct json *vms = named(js_get(v1, "resources"), "resource", "virtualmachines");
	const struct json *start = named(js_get(vms, "subresources"), "subresource", "start");

	assert_path(vms, "Namespaced", "scope");
	assert_string_equal(js_str(js_item(js_get(start, "verbs"), 0)), "update");
	assert_path(start, "subresources.kubevirt.io", "responseKind", "group");
	assert_non_null(named(js_get(v1, "resources"), "resource", "version"));
	fx_answer_fini(&a);
}

int main(void)
{
#define T(fn_) cmocka_unit_test_setup_teardown(fn_, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(admission_changes_warns_and_denies),
		T(subresources_write_through_the_server),
		T(a_client_that_leaves_cancels_its_call),
		T(the_server_may_end_at_any_moment),
		T(a_cancelled_start_still_writes_and_answers_nobody),
		T(old_faults_do_not_hold_up_an_update),
		T(eviction_goes_to_the_hook),
		T(aggregated_discovery_knows_the_hooks),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("hooks", tests, NULL, NULL);
}
