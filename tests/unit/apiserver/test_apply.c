/* Server-side apply: ownership, conflicts, force, removal, lists by key, and updates between applies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "api/gen/api_types.h"
#include "base/mem.h"
#include "base/str.h"
#include "cluster/apiserver/fieldset.h"
#include "fixture.h"

#define CMS  "/api/v1/namespaces/default/configmaps"
#define SVCS "/api/v1/namespaces/default/services"
#define VMS  "/apis/kubevirt.io/v1/namespaces/default/virtualmachines"

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

static struct json *apply_at(int want, const char *target, const char *body)
{
	struct fx_answer a;

	fx_call(&f, &a, &fx_admin, "PATCH", target, "application/apply-patch+yaml", NULL, body);
	if (a.status != want)
		fail_msg("%s: %d instead of %d: %s", target, a.status, want, a.text);
	struct json *j = js_ref(a.json);

	fx_answer_fini(&a);
	return j;
}

/* A ConfigMap's data, as JSON. */
static struct json *apply_cm(int want, const char *manager, const char *more, const char *data)
{
	char target[160], body[512];

	snprintf(target, sizeof(target), CMS "/c?fieldManager=%s%s", manager, more);
	snprintf(
		body, sizeof(body),
		"{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"c\"},\"data\":%s}",
		data);
	return apply_at(want, target, body);
}

/* Compact text of a manager's fields; "" when it has none. */
static char *fields_of(const struct json *obj, const char *manager, const char *operation)
{
	const struct json *list = js_at(obj, "metadata", "managedFields", NULL);

	for (size_t i = 0; i < js_len(list); i++) {
		const struct json *e = js_item(list, i);

		if (str_eq(js_get_str(e, "manager"), manager) &&
		    str_eq(js_get_str(e, "operation"), operation))
			return js_to_text(js_get(e, "fieldsV1"));
	}
	return mem_strdup("");
}

static void assert_fields(const struct json *obj, const char *manager, const char *operation,
			  const char *want)
{
	CLEANUP(mem_freep) char *have = fields_of(obj, manager, operation);

	assert_string_equal(have, want);
}

static void assert_data(const struct json *obj, const char *want)
{
	CLEANUP(mem_freep) char *have = js_to_text(js_get(obj, "data"));

	assert_string_equal(have ? have : "", want);
}

static void applying_twice_writes_once(void **state)
{
	(void)state;
	struct json *a = apply_cm(201, "m", "", "{\"k\":\"1\"}");

	assert_fields(a, "m", "Apply", "{\"f:data\":{\"f:k\":{}}}");
	int64_t rev = store_rev(f.store);
	struct json *b = apply_cm(200, "m", "", "{\"k\":\"1\"}");

	assert_true(js_equal(a, b));
	assert_int_equal(store_rev(f.store), rev);
	js_unref(a);
	js_unref(b);
	js_unref(apply_cm(422, "", "", "{}"));
}

static void what_is_no_longer_applied_goes(void **state)
{
	(void)state;
	js_unref(apply_cm(201, "m", "", "{\"k\":\"1\",\"l\":\"2\",\"n\":\"3\"}"));
	js_unref(apply_cm(200, "o", "", "{\"l\":\"2\"}")); /* the same value: shared */
	struct json *a = apply_cm(200, "m", "", "{\"n\":\"3\"}");

	assert_data(a, "{\"l\":\"2\",\"n\":\"3\"}");
	assert_fields(a, "o", "Apply", "{\"f:data\":{\"f:l\":{}}}");
	js_unref(a);
	a = apply_cm(200, "o", "", "{}");
	assert_data(a, "{\"n\":\"3\"}");
	assert_fields(a, "o", "Apply", "{\"f:data\":{}}");
	js_unref(a);
}

static void conflicts_are_named_and_can_be_forced(void **state)
{
	(void)state;
	js_unref(apply_cm(201, "m", "", "{\"k\":\"1\",\"l\":\"2\"}"));
	struct json *a = apply_cm(409, "o", "", "{\"k\":\"9\"}");

	assert_msg(a, "Apply failed with 1 conflict: conflict with \"m\": .data.k");
	assert_path(js_item(js_at(a, "details", "causes", NULL), 0), "FieldManagerConflict",
		    "reason");
	assert_path(js_item(js_at(a, "details", "causes", NULL), 0), ".data.k", "field");
	js_unref(a);
	a = apply_cm(409, "o", "", "{\"k\":\"9\",\"l\":\"8\"}");
	assert_msg(a, "Apply failed with 2 conflicts: conflicts with \"m\":\n- .data.k\n- .data.l");
	js_unref(a);
	a = apply_cm(200, "o", "&force=true", "{\"k\":\"9\"}");
	assert_data(a, "{\"k\":\"9\",\"l\":\"2\"}");
	assert_fields(a, "m", "Apply", "{\"f:data\":{\"f:l\":{}}}");
	assert_fields(a, "o", "Apply", "{\"f:data\":{\"f:k\":{}}}");
	js_unref(a);
	/* m has lost it, so leaving it out takes nothing away. */
	a = apply_cm(200, "m", "", "{\"l\":\"2\"}");
	assert_data(a, "{\"k\":\"9\",\"l\":\"2\"}");
	js_unref(a);
}

static void updates_take_fields_over(void **state)
{
	(void)state;
	js_unref(apply_cm(201, "m", "", "{\"k\":\"1\",\"l\":\"2\"}"));
	struct json *a = fx_patch(&f, 200, "merge-patch", CMS "/c?fieldManager=u",
				  "{\"data\":{\"k\":\"5\",\"z\":\"6\",\"l\":null}}");

	assert_fields(a, "m", "Apply", "");
	assert_fields(a, "u", "Update", "{\"f:data\":{\"f:k\":{},\"f:z\":{}}}");
	js_unref(a);
	a = apply_cm(409, "m", "", "{\"k\":\"1\"}");
	assert_non_null(strstr(js_get_str(a, "message"), "conflict with \"u\" using v1 at "));
	js_unref(a);
	/* A write that changes nothing moves nothing. */
	int64_t rev = store_rev(f.store);

	js_unref(fx_patch(&f, 200, "merge-patch", CMS "/c?fieldManager=w",
			  "{\"data\":{\"k\":\"5\"}}"));
	assert_int_equal(store_rev(f.store), rev);
}

#define C_BODY "{\"metadata\":{\"name\":\"c\"},\"data\":{\"k\":\"1\",\"l\":\"2\"}}"

/* What Ferry's own parts make is not tracked until somebody applies it. */
static void what_was_there_before_belongs_to_somebody(void **state)
{
	(void)state;
	struct json *a = fx_as(&f, &fx_controller, 201, "POST", CMS, C_BODY);

	assert_null(js_at(a, "metadata", "managedFields", NULL));
	js_unref(a);
	a = fx_patch(&f, 200, "merge-patch", CMS "/c", "{\"data\":{\"l\":\"3\"}}");
	assert_null(js_at(a, "metadata", "managedFields", NULL));
	js_unref(a);
	a = apply_cm(409, "m", "", "{\"k\":\"9\"}");
	assert_non_null(
		strstr(js_get_str(a, "message"), "conflict with \"before-first-apply\" using v1"));
	js_unref(a);
	a = apply_cm(200, "m", "", "{\"k\":\"1\"}");
	assert_data(a, "{\"k\":\"1\",\"l\":\"3\"}");
	js_unref(a);
	a = apply_cm(200, "m", "", "{}"); /* the other one has it still */
	assert_data(a, "{\"k\":\"1\",\"l\":\"3\"}");
	js_unref(a);
}

static void a_user_owns_what_he_makes_from_the_first_write(void **state)
{
	(void)state;
	struct json *a = fx_do(&f, 201, "POST", CMS "?fieldManager=u", C_BODY);

	assert_fields(a, "u", "Update", "{\"f:data\":{\"f:k\":{},\"f:l\":{}}}");
	js_unref(a);
	a = apply_cm(409, "m", "", "{\"k\":\"9\"}");
	assert_non_null(strstr(js_get_str(a, "message"), "conflict with \"u\" using v1"));
	js_unref(a);
	a = fx_patch(&f, 200, "merge-patch", CMS "/c?fieldManager=w", "{\"data\":{\"k\":\"5\"}}");
	assert_fields(a, "u", "Update", "{\"f:data\":{\"f:l\":{}}}");
	assert_fields(a, "w", "Update", "{\"f:data\":{\"f:k\":{}}}");
	js_unref(a);
	/* an object without any content of its own has no owner to name */
	a = fx_do(&f, 201, "POST", CMS, "{\"metadata\":{\"name\":\"d\"}}");
	assert_null(js_at(a, "metadata", "managedFields", NULL));
	js_unref(a);
	/* written by the thousand, and by Ferry: not tracked, whoever writes one */
	a = fx_do(
		&f, 201, "POST", "/api/v1/namespaces/default/pods",
		"{\"metadata\":{\"name\":\"p\",\"labels\":{\"a\":\"b\"}},\"spec\":{\"containers\":[{\"name\":\"c\",\"image\":\"x\"}]}}");
	assert_null(js_at(a, "metadata", "managedFields", NULL));
	js_unref(a);
}

/* Reports of Ferry's parts move nothing; what they change beside status does. */
static void reports_are_not_tracked(void **state)
{
	(void)state;
	static const char vm[] =
		"{\"metadata\":{\"name\":\"v\",\"labels\":{\"a\":\"b\"}},\"spec\":{\"runStrategy\":\"Halted\",\"template\":{\"spec\":"
		"{\"domain\":{\"memory\":{\"guest\":\"64Mi\"},\"devices\":{}}}}}}";
	struct json *a = fx_do(&f, 201, "POST", VMS "?fieldManager=u", vm);
	struct json *before = js_copy(js_at(a, "metadata", "managedFields", NULL));

	assert_int_equal(js_len(before), 1);
	js_unref(a);
	a = fx_as(&f, &fx_controller, 200, "PATCH", VMS "/v/status",
		  "{\"status\":{\"ready\":true}}");
	assert_true(js_bool(js_at(a, "status", "ready", NULL), false));
	assert_true(js_equal(js_at(a, "metadata", "managedFields", NULL), before));
	js_unref(a);
	a = fx_as(&f, &fx_controller, 200, "PATCH", VMS "/v?fieldManager=ctl",
		  "{\"metadata\":{\"labels\":{\"a\":\"c\"}}}");
	assert_fields(a, "ctl", "Update", "{\"f:metadata\":{\"f:labels\":{\"f:a\":{}}}}");
	js_unref(a);
	a = fx_patch(&f, 200, "merge-patch", VMS "/v/status?fieldManager=s",
		     "{\"status\":{\"created\":true}}");
	assert_fields(a, "s", "Update", "{\"f:status\":{\"f:created\":{}}}");
	js_unref(a);
	js_unref(before);
}

static void managed_fields_can_be_edited_and_cleared(void **state)
{
	(void)state;
	js_unref(fx_do(&f, 201, "POST", CMS "?fieldManager=u", C_BODY));
	/* as kubectl does when it goes over to server-side apply */
	struct json *a = fx_patch(
		&f, 200, "json-patch", CMS "/c",
		"[{\"op\":\"replace\",\"path\":\"/metadata/managedFields/0/operation\",\"value\":\"Apply\"},"
		"{\"op\":\"replace\",\"path\":\"/metadata/managedFields/0/manager\",\"value\":\"k\"}]");

	assert_fields(a, "k", "Apply", "{\"f:data\":{\"f:k\":{},\"f:l\":{}}}");
	assert_fields(a, "u", "Update", "");
	js_unref(a);
	a = apply_cm(200, "k", "", "{\"k\":\"1\"}");
	assert_data(a, "{\"k\":\"1\"}");
	js_unref(a);
	/* leaving them out is not clearing them; neither is an empty list */
	a = fx_do(&f, 200, "PUT", CMS "/c",
		  "{\"metadata\":{\"name\":\"c\"},\"data\":{\"k\":\"1\"}}");
	assert_int_equal(js_len(js_at(a, "metadata", "managedFields", NULL)), 1);
	js_unref(a);
	a = fx_patch(&f, 200, "merge-patch", CMS "/c", "{\"metadata\":{\"managedFields\":[]}}");
	assert_int_equal(js_len(js_at(a, "metadata", "managedFields", NULL)), 1);
	js_unref(a);
	a = fx_patch(&f, 200, "merge-patch", CMS "/c", "{\"metadata\":{\"managedFields\":[{}]}}");
	assert_null(js_at(a, "metadata", "managedFields", NULL));
	js_unref(a);
	a = fx_patch(&f, 200, "merge-patch", CMS "/c", "{\"data\":{\"k\":\"2\"}}");
	assert_null(js_at(a, "metadata", "managedFields", NULL));
	js_unref(a);
}

static void odd_managed_fields_are_refused(void **state)
{
	(void)state;
	static const char *const odd[][2] = {
		{"\"x\"", "metadata.managedFields[0]"},
		{"{\"operation\":\"Steal\"}", "metadata.managedFields[0].operation"},
		{"{\"operation\":\"Apply\",\"fieldsType\":\"V9\"}",
		 "metadata.managedFields[0].fieldsType"},
		{"{\"operation\":\"Apply\",\"manager\":\"a\\nb\"}",
		 "metadata.managedFields[0].manager"},
		{"{\"operation\":\"Apply\",\"fieldsV1\":{\"v\":{}}}",
		 "metadata.managedFields[0].fieldsV1"},
		{"{\"operation\":\"Apply\",\"fieldsV1\":{\"f:a\":1}}",
		 "metadata.managedFields[0].fieldsV1"},
		{"{\"operation\":\"Apply\",\"fieldsV1\":{\"f:a\":{\"k:[]\":{}}}}",
		 "metadata.managedFields[0].fieldsV1"},
		{"{\"operation\":\"Apply\",\"fieldsV1\":{\"f:a\":{\".\":{\"f:b\":{}}}}}",
		 "metadata.managedFields[0].fieldsV1"},
	};

	js_unref(fx_do(&f, 201, "POST", CMS, C_BODY));
	for (size_t i = 0; i < ARRAY_SIZE(odd); i++) {
		char body[256];

		snprintf(body, sizeof(body), "{\"metadata\":{\"managedFields\":[%s]}}", odd[i][0]);
		struct json *a = fx_patch(&f, 422, "merge-patch", CMS "/c", body);

		assert_path(js_item(js_at(a, "details", "causes", NULL), 0), odd[i][1], "field");
		js_unref(a);
	}
}

static size_t count_of(const struct json *obj, const char *operation)
{
	const struct json *list = js_at(obj, "metadata", "managedFields", NULL);
	size_t n = 0;

	for (size_t i = 0; i < js_len(list); i++)
		n += str_eq(js_get_str(js_item(list, i), "operation"), operation);
	return n;
}

static void many_managers_are_joined_or_refused(void **state)
{
	(void)state;
	struct json *a = fx_do(&f, 201, "POST", CMS "?fieldManager=u", C_BODY);

	for (int i = 0; i < 100; i++) {
		char target[120], body[64];

		js_unref(a);
		snprintf(target, sizeof(target), CMS "/c?fieldManager=u%d", i);
		snprintf(body, sizeof(body), "{\"data\":{\"n%d\":\"1\"}}", i);
		a = fx_patch(&f, 200, "merge-patch", target, body);
	}
	assert_int_equal(count_of(a, "Update"), 10);
	CLEANUP(mem_freep) char *old = fields_of(a, "ancient-changes", "Update");

	assert_non_null(strstr(old, "\"f:k\":{}"));
	assert_non_null(strstr(old, "\"f:n0\":{}"));
	js_unref(a);
	for (int i = 0; i <= 50; i++) {
		char manager[8];

		snprintf(manager, sizeof(manager), "m%d", i);
		a = apply_cm(i < 50 ? 200 : 422, manager, "", "{\"k\":\"1\"}");
		if (i < 50)
			js_unref(a);
	}
	assert_msg(a, "more than 50 field managers apply to the object");
	js_unref(a);
	/* and yet whoever updates finds a place */
	a = fx_patch(&f, 200, "merge-patch", CMS "/c?fieldManager=z", "{\"data\":{\"z\":\"1\"}}");
	assert_fields(a, "z", "Update", "{\"f:data\":{\"f:z\":{}}}");
	js_unref(a);
}

static void options_of_writes_are_checked_all_at_once(void **state)
{
	(void)state;
	char target[400], name[130];
	struct json *a;

	js_unref(fx_do(&f, 201, "POST", CMS, C_BODY));
	memset(name, 'm', 129);
	name[129] = '\0';
	snprintf(target, sizeof(target), CMS "/c?fieldManager=%s&force=true&dryRun=x", name);
	a = fx_patch(&f, 422, "merge-patch", target, "{}");
	assert_msg(
		a,
		"PatchOptions.meta.k8s.io \"\" is invalid: [dryRun: Unsupported value: \"x\": supported "
		"values: \"All\", fieldManager: Too long: may not be more than 128 bytes, force: Forbidden: "
		"may not be specified for non-apply patch]");
	js_unref(a);
	a = fx_do(&f, 422, "POST", CMS "?fieldManager=a%0Ab", C_BODY);
	assert_path(js_item(js_at(a, "details", "causes", NULL), 0), "fieldManager", "field");
	js_unref(a);
	a = fx_do(&f, 422, "PUT", CMS "/c?fieldValidation=Maybe", C_BODY);
	assert_non_null(strstr(js_get_str(a, "message"), "UpdateOptions.meta.k8s.io"));
	js_unref(a);
	name[128] = '\0';
	snprintf(target, sizeof(target), CMS "/c?fieldManager=%s", name);
	js_unref(fx_do(&f, 200, "PUT", target, C_BODY));
}

static struct json *apply_svc(int want, const char *manager, const char *ports)
{
	char target[160], body[512];

	snprintf(target, sizeof(target), SVCS "/s?fieldManager=%s", manager);
	snprintf(
		body, sizeof(body),
		"{\"apiVersion\":\"v1\",\"kind\":\"Service\",\"metadata\":{\"name\":\"s\"},\"spec\":{\"ports\":%s}}",
		ports);
	return apply_at(want, target, body);
}

static void lists_are_merged_by_their_keys(void **state)
{
	(void)state;
	struct json *a = apply_svc(201, "m", "[{\"name\":\"a\",\"port\":80}]");

	assert_fields(
		a, "m", "Apply",
		"{\"f:spec\":{\"f:ports\":{\"k:{\\\"port\\\":80,\\\"protocol\\\":\\\"TCP\\\"}\":{\"f:name\":{},\"f:port\":{},\".\":{}}}}}");
	js_unref(a);
	a = apply_svc(
		200, "o",
		"[{\"name\":\"b\",\"port\":81},{\"name\":\"c\",\"port\":80,\"protocol\":\"UDP\"}]");
	assert_int_equal(js_len(js_at(a, "spec", "ports", NULL)), 3);
	js_unref(a);
	a = apply_svc(200, "m", "[]");
	const struct json *ports = js_at(a, "spec", "ports", NULL);

	assert_int_equal(js_len(ports), 2);
	assert_path(js_item(ports, 0), "b", "name");
	assert_path(js_item(ports, 1), "UDP", "protocol");
	js_unref(a);
	a = apply_svc(409, "m", "[{\"name\":\"x\",\"port\":81}]");
	assert_msg(
		a,
		"Apply failed with 1 conflict: conflict with \"o\": .spec.ports[port=81,protocol=\"TCP\"].name");
	js_unref(a);
}

static void status_is_applied_at_its_own_address(void **state)
{
	(void)state;
	static const char vm[] =
		"{\"apiVersion\":\"kubevirt.io/v1\",\"kind\":\"VirtualMachine\",\"metadata\":{\"name\":\"v\"},\"spec\":{\"runStrategy\":"
		"\"Halted\",\"template\":{\"spec\":{\"domain\":{\"memory\":{\"guest\":\"64Mi\"},\"devices\":{}}}}},\"status\":{\"ready\":true}}";
	struct json *a = apply_at(201, VMS "/v?fieldManager=m", vm);

	assert_null(js_get(a, "status"));
	js_unref(a);
	a = apply_at(200, VMS "/v/status?fieldManager=s", vm);
	assert_true(js_bool(js_at(a, "status", "ready", NULL), false));
	assert_fields(a, "s", "Apply", "{\"f:status\":{\"f:ready\":{}}}");
	js_unref(a);
	js_unref(apply_at(
		404, VMS "/w/status?fieldManager=s",
		"{\"apiVersion\":\"kubevirt.io/v1\",\"kind\":\"VirtualMachine\",\"metadata\":{\"name\":\"w\"}}"));
	a = apply_at(200, VMS "/v?fieldManager=m&dryRun=All", vm);
	js_unref(a);
}

static void requests_that_make_no_sense_are_refused(void **state)
{
	(void)state;
	js_unref(apply_at(400, CMS "/c?fieldManager=m", "{\"metadata\":{\"name\":\"c\"}}"));
	js_unref(apply_at(
		400, CMS "/c?fieldManager=m",
		"{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"d\"}}"));
	js_unref(apply_at(
		400, CMS "/c?fieldManager=m",
		"{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"c\",\"managedFields\":[{\"manager\":\"x\"}]}}"));
	js_unref(apply_at(
		400, CMS "/c?fieldManager=m&fieldValidation=Strict",
		"{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"c\"},\"frog\":1}"));
	js_unref(apply_at(
		422, VMS "/v?fieldManager=m",
		"{\"apiVersion\":\"kubevirt.io/v1\",\"kind\":\"VirtualMachine\",\"metadata\":{\"name\":\"v\"},\"spec\":\"x\"}"));
}

/* As an older or a newer schema may have stored it: a map's field as a list with keys, and a list as a set. */
static void what_another_schema_stored_names_nothing(void **state)
{
	(void)state;
	struct json *cm = js_pack("{s:{s:s}, s:[s]}", "data", "a", "1", "immutable", "x");
	struct json *svc =
		js_pack("{s:{s:[{s:i, s:s}]}}", "spec", "ports", "port", 80, "protocol", "TCP");
	struct json *odd = js_pack("{s:{s:{}, s:{}}, s:{s:{}}}", "f:data", "k:{\"a\":\"1\"}", "v:1",
				   "f:immutable", "k:{}");
	struct json *odd_svc = js_pack("{s:{s:{s:{}}}}", "f:spec", "f:ports", "v:{\"port\":80}");
	struct json *was = js_copy(cm), *svc_was = js_copy(svc);

	assert_true(cm && svc && odd && odd_svc && was && svc_was);
	assert_int_equal(fieldset_remove(&api_kind_ConfigMap, cm, odd, NULL), RC_OK);
	assert_true(js_equal(cm, was));
	assert_int_equal(fieldset_remove(&api_kind_Service, svc, odd_svc, NULL), RC_OK);
	assert_true(js_equal(svc, svc_was));
	struct json *differing = fieldset_differing(&api_kind_ConfigMap, cm, svc, odd);

	assert_true(differing && fieldset_is_empty(differing));
	js_unref(differing);
	js_unref(cm);
	js_unref(svc);
	js_unref(odd);
	js_unref(odd_svc);
	js_unref(was);
	js_unref(svc_was);
}

int main(void)
{
#define T(fn_) cmocka_unit_test_setup_teardown(fn_, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(applying_twice_writes_once),
		T(what_is_no_longer_applied_goes),
		T(conflicts_are_named_and_can_be_forced),
		T(updates_take_fields_over),
		T(what_was_there_before_belongs_to_somebody),
		T(a_user_owns_what_he_makes_from_the_first_write),
		T(reports_are_not_tracked),
		T(managed_fields_can_be_edited_and_cleared),
		T(odd_managed_fields_are_refused),
		T(many_managers_are_joined_or_refused),
		T(options_of_writes_are_checked_all_at_once),
		T(lists_are_merged_by_their_keys),
		T(status_is_applied_at_its_own_address),
		T(requests_that_make_no_sense_are_refused),
		T(what_another_schema_stored_names_nothing),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("apply", tests, NULL, NULL);
}
