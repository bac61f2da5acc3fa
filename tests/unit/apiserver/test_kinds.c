/* Kinds without a controller, kinds under several versions, and the subresource scale. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "api/api.h"
#include "base/mem.h"
#include "base/str.h"
#include "fixture.h"

#define VMS	 "/apis/kubevirt.io/v1/namespaces/default/virtualmachines"
#define OLDVMS	 "/apis/kubevirt.io/v1alpha3/namespaces/default/virtualmachines"
#define SNAPS	 "/apis/snapshot.kubevirt.io/v1beta1/namespaces/default/virtualmachinesnapshots"
#define POOLS	 "/apis/pool.kubevirt.io/v1beta1/namespaces/default/virtualmachinepools"
#define OLDPOOLS "/apis/pool.kubevirt.io/v1alpha1/namespaces/default/virtualmachinepools"
#define TOKENS	 "/apis/upload.cdi.kubevirt.io/v1beta1/namespaces/default/uploadtokenrequests"
#define TABLE	 "application/json;as=Table;v=v1;g=meta.k8s.io"
#define OLD	 "kubevirt.io/v1alpha3"
#define GOING \
	"299 - \"kubevirt.io/v1alpha3 is now deprecated and will be removed in a future release.\""
#define SPEC                                                                                    \
	"\"spec\":{\"runStrategy\":\"Halted\",\"template\":{\"spec\":{\"domain\":{\"memory\":{" \
	"\"guest\":\"64Mi\"},\"devices\":{}}}}}"
#define SNAP                                                                                       \
	"\"spec\":{\"source\":{\"apiGroup\":\"kubevirt.io\",\"kind\":\"VirtualMachine\",\"name\":" \
	"\"a\"}}"
#define POOL                                                                            \
	"{\"kind\":\"VirtualMachinePool\",\"apiVersion\":\"pool.kubevirt.io/v1beta1\"," \
	"\"metadata\":{\"name\":\"p\",\"namespace\":\"default\",\"uid\":\"u-1\","       \
	"\"creationTimestamp\":\"2026-01-01T00:00:00Z\",\"generation\":1},"             \
	"\"spec\":{\"replicas\":3,\"selector\":{\"matchLabels\":{\"a\":\"b\"}},"        \
	"\"virtualMachineTemplate\":{" SPEC "}},"                                       \
	"\"status\":{\"replicas\":2,\"readyReplicas\":1,\"labelSelector\":\"a=b\"}}"

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

static void on_put(void *arg, enum rc rc, struct obj *o, const struct err *err)
{
	(void)o;
	(void)err;
	*(enum rc *)arg = rc;
}

/* No request makes such an object: an older or a newer server has left it. */
static void put(struct fx *to, const char *key, const char *text)
{
	struct json *j = NULL;
	struct store_write *w = NULL;
	struct err err = {0};
	enum rc rc = RC_BUSY;

	assert_int_equal(js_parse(text, strlen(text), &j, &err), RC_OK);
	assert_int_equal(store_write(to->store, STORE_CREATE, key, 0, j, on_put, &rc, &w, &err),
			 RC_OK);
	while (rc == RC_BUSY)
		assert_int_equal(loop_step(to->loop, 0, NULL, NULL), RC_OK);
	assert_int_equal(rc, RC_OK);
}

static void put_pool(struct fx *to)
{
	put(to, "virtualmachinepools.pool.kubevirt.io/default/p", POOL);
}

/* ---- refused kinds ---------------------------------------------------------------------------- */

static void assert_refused(struct json *a, const char *message, const char *cause)
{
	const struct json *first = js_item(js_at(a, "details", "causes", NULL), 0);

	assert_msg(a, message);
	assert_path(a, "Invalid", "reason");
	assert_path(first, "kind", "field");
	assert_path(first, "FieldValueForbidden", "reason");
	assert_path(first, cause, "message");
	drop(a);
}

#define NO_SNAPS                                                                                \
	"VirtualMachineSnapshot.snapshot.kubevirt.io \"s\" is invalid: kind: not supported by " \
	"Ferry yet: there is no controller that takes snapshots"
#define NO_SNAPS_CAUSE "not supported by Ferry yet: there is no controller that takes snapshots"

static void a_kind_without_a_controller_is_refused_with_its_reason(void **state)
{
	static const char body[] = "{\"metadata\":{\"name\":\"s\"}," SNAP "}";

	(void)state;
	int64_t rev = store_rev(f.store);

	assert_refused(fx_do(&f, 422, "POST", SNAPS, body), NO_SNAPS, NO_SNAPS_CAUSE);
	assert_refused(fx_do(&f, 422, "POST", SNAPS "?dryRun=All", body), NO_SNAPS, NO_SNAPS_CAUSE);
	/* Nor for the controllers, which may set fields that users may not. */
	assert_refused(fx_as(&f, &fx_controller, 422, "POST", SNAPS, body), NO_SNAPS,
		       NO_SNAPS_CAUSE);
	/* Nor by an apply that would make it. */
	struct fx_answer a;

	fx_call(&f, &a, &fx_admin, "PATCH", SNAPS "/s?fieldManager=m",
		"application/apply-patch+yaml", NULL,
		"{\"apiVersion\":\"snapshot.kubevirt.io/v1beta1\",\"kind\":\"VirtualMachineSnapshot\","
		"\"metadata\":{\"name\":\"s\"}," SNAP "}");
	assert_int_equal(a.status, 422);
	assert_msg(a.json, NO_SNAPS);
	fx_answer_fini(&a);
	assert_int_equal(store_rev(f.store), rev);
	/* It is found and listed all the same. */
	drop(fx_do(&f, 404, "GET", SNAPS "/s", NULL));
	struct json *list = fx_do(&f, 200, "GET", SNAPS, NULL);

	assert_path(list, "VirtualMachineSnapshotList", "kind");
	assert_int_equal(js_len(js_get(list, "items")), 0);
	drop(list);
}

static void what_else_is_wrong_comes_before_the_reason(void **state)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(MIB);

	(void)state;
	struct json *a =
		fx_do(&f, 422, "POST", SNAPS,
		      "{\"metadata\":{\"name\":\"s\"},\"spec\":{\"source\":{\"name\":\"vm\"},"
		      "\"deletionPolicy\":\"Never\",\"nobodyKnows\":1}}");
	const struct json *causes = js_at(a, "details", "causes", NULL);

	assert_int_equal(js_len(causes), 3);
	assert_path(js_item(causes, 0), "spec.source.kind", "field");
	assert_path(js_item(causes, 1), "spec.deletionPolicy", "field");
	assert_path(js_item(causes, 2), "kind", "field");
	assert_path(js_item(causes, 2), NO_SNAPS_CAUSE, "message");
	drop(a);
	/* A type that is wrong. */
	a = fx_do(&f, 422, "POST", SNAPS,
		  "{\"metadata\":{\"name\":\"s\"},\"spec\":{\"source\":7}}");
	causes = js_at(a, "details", "causes", NULL);
	assert_path(js_item(causes, 0), "spec.source", "field");
	assert_path(js_item(causes, js_len(causes) - 1), "kind", "field");
	drop(a);
	/* However much is wrong. */
	sbuf_adds(&b, "{\"metadata\":{\"name\":\"s\"},\"spec\":{\"patches\":[");
	for (int i = 0; i < 400; i++)
		sbuf_addf(&b, "%s7", i ? "," : "");
	sbuf_adds(&b, "]}}");
	a = fx_do(&f, 422, "POST",
		  "/apis/snapshot.kubevirt.io/v1beta1/namespaces/default/virtualmachinerestores",
		  sbuf_str(&b));
	causes = js_at(a, "details", "causes", NULL);
	assert_int_equal(js_len(causes), LIMIT_FIELD_ERRORS);
	assert_path(js_item(causes, LIMIT_FIELD_ERRORS - 1), "kind", "field");
	drop(a);
}

/* Whatever is refused is refused under every version, and nothing else is. */
static void every_refused_kind_is_refused(void **state)
{
	size_t refused = 0;

	(void)state;
	for (size_t i = 0; api_served[i]; i++) {
		const struct api_kind *k = api_served[i];
		char path[256], body[256];

		if (!k->refused)
			continue;
		refused++;
		snprintf(path, sizeof(path), "/apis/%s/%s%s", k->api_version,
			 k->is_namespaced ? "namespaces/default/" : "", k->plural);
		snprintf(body, sizeof(body),
			 "{\"apiVersion\":\"%s\",\"kind\":\"%s\",\"metadata\":{\"name\":\"x\"}}",
			 k->api_version, k->kind);
		struct json *a = fx_do(&f, 422, "POST", path, body);

		if (!strstr(js_get_str(a, "message"), k->refused))
			fail_msg("%s: %s", k->kind, js_get_str(a, "message"));
		drop(a);
	}
	assert_int_equal(refused, 34);
}

static void what_is_there_can_be_read_watched_and_deleted(void **state)
{
	struct fx_answer a;
	struct fx_watch *w = mem_alloc(sizeof(*w)); /* fx_watch_stop() frees it */

	(void)state;
	assert_non_null(w);
	put_pool(&f);
	fx_watch_start(&f, w, POOLS "?watch=1", NULL);
	fx_settle(&f);
	assert_int_equal(w->n, 1);
	assert_string_equal(fx_event_type(w, 0), "ADDED");
	fx_call(&f, &a, &fx_admin, "GET", POOLS, NULL, TABLE, NULL);
	const struct json *cells = js_get(js_item(js_get(a.json, "rows"), 0), "cells");

	assert_string_equal(js_str(js_item(cells, 0)), "p");
	assert_int_equal(js_int(js_item(cells, 1), 0), 3);
	assert_int_equal(js_int(js_item(cells, 2), 0), 2);
	assert_int_equal(js_int(js_item(cells, 3), 0), 1);
	fx_answer_fini(&a);
	/* A kind that names no columns has its age, as custom resources of Kubernetes. */
	fx_call(&f, &a, &fx_admin, "GET", "/apis/cdi.kubevirt.io/v1beta1/storageprofiles", NULL,
		TABLE, NULL);
	assert_int_equal(js_len(js_get(a.json, "columnDefinitions")), 2);
	assert_path(js_item(js_get(a.json, "columnDefinitions"), 1), "Age", "name");
	fx_answer_fini(&a);
	/* What it was made with does not hold up a change of the rest. */
	drop(fx_patch(&f, 200, "merge-patch", POOLS "/p",
		      "{\"metadata\":{\"labels\":{\"l\":\"m\"}}}"));
	drop(fx_do(&f, 200, "DELETE", POOLS "/p", NULL));
	fx_settle(&f);
	assert_int_equal(w->n, 3);
	assert_string_equal(fx_event_type(w, 2), "DELETED");
	fx_watch_stop(w);
}

static void a_request_that_is_never_stored_can_only_be_made(void **state)
{
	(void)state;
	drop(fx_do(&f, 405, "GET", TOKENS, NULL));
	drop(fx_do(&f, 405, "GET", TOKENS "/t", NULL));
	drop(fx_do(&f, 405, "DELETE", TOKENS "/t", NULL));
	struct json *a = fx_do(&f, 422, "POST", TOKENS,
			       "{\"metadata\":{\"name\":\"t\"},\"spec\":{\"pvcName\":\"c\"}}");

	assert_refused(a,
		       "UploadTokenRequest.upload.cdi.kubevirt.io \"t\" is invalid: kind: not "
		       "supported by Ferry yet: nothing takes uploads",
		       "not supported by Ferry yet: nothing takes uploads");
	a = fx_do(&f, 200, "GET", "/apis/upload.cdi.kubevirt.io/v1beta1", NULL);
	const struct json *verbs = js_get(js_item(js_get(a, "resources"), 0), "verbs");

	assert_int_equal(js_len(verbs), 1);
	assert_string_equal(js_str(js_item(verbs, 0)), "create");
	drop(a);
}

/* ---- versions ---------------------------------------------------------------------------------- */

static void an_object_is_the_same_under_each_version(void **state)
{
	struct fx_answer a;

	(void)state;
	fx_call(&f, &a, &fx_admin, "POST", OLDVMS, NULL, NULL,
		"{\"apiVersion\":\"" OLD
		"\",\"kind\":\"VirtualMachine\",\"metadata\":{\"name\":\"a\"}," SPEC "}");
	assert_int_equal(a.status, 201);
	assert_path(a.json, OLD, "apiVersion");
	assert_int_equal(a.n_warnings, 1);
	assert_string_equal(a.warnings[0], GOING);
	fx_answer_fini(&a);
	fx_call(&f, &a, &fx_admin, "GET", VMS "/a", NULL, NULL, NULL);
	assert_int_equal(a.n_warnings, 0);
	assert_path(a.json, "kubevirt.io/v1", "apiVersion");
	struct json *old = fx_do(&f, 200, "GET", OLDVMS "/a", NULL);

	assert_path(old, OLD, "apiVersion");
	assert_int_equal(js_set(old, "apiVersion", js_new_str("kubevirt.io/v1")), RC_OK);
	assert_true(js_equal(old, a.json)); /* and nothing else differs */
	drop(old);
	fx_answer_fini(&a);
	/* What one version calls itself is not taken under the other. */
	struct json *no =
		fx_do(&f, 400, "POST", VMS,
		      "{\"apiVersion\":\"" OLD
		      "\",\"kind\":\"VirtualMachine\",\"metadata\":{\"name\":\"b\"}," SPEC "}");

	assert_msg(no, "the API version in the data (kubevirt.io/v1alpha3) does not match the "
		       "expected API version (kubevirt.io/v1)");
	drop(no);
	no = fx_do(&f, 400, "POST", OLDVMS,
		   "{\"apiVersion\":\"kubevirt.io/v1\",\"kind\":\"VirtualMachine\",\"metadata\":{"
		   "\"name\":\"b\"}," SPEC "}");
	assert_msg(no, "the API version in the data (kubevirt.io/v1) does not match the expected "
		       "API version (kubevirt.io/v1alpha3)");
	drop(no);
	drop(fx_do(&f, 404, "GET", "/apis/kubevirt.io/v1alpha2/namespaces/default/virtualmachines",
		   NULL));
}

static void lists_and_tables_are_under_the_version_asked_for(void **state)
{
	struct fx_answer a;

	(void)state;
	for (int i = 0; i < 3; i++) {
		char body[512];

		snprintf(
			body, sizeof(body),
			"{\"metadata\":{\"name\":\"v%d\",\"annotations\":{\"apiVersion\":\"x\"}}," SPEC
			"}",
			i);
		drop(fx_do(&f, 201, "POST", VMS, body));
	}
	struct json *list = fx_do(&f, 200, "GET", OLDVMS "?limit=2", NULL);

	assert_path(list, OLD, "apiVersion");
	assert_path(list, "VirtualMachineList", "kind");
	assert_int_equal(js_len(js_get(list, "items")), 2);
	for (size_t i = 0; i < 2; i++) {
		assert_path(js_item(js_get(list, "items"), i), OLD, "apiVersion");
		assert_path(js_item(js_get(list, "items"), i), "x", "metadata", "annotations",
			    "apiVersion");
	}
	assert_non_null(js_at(list, "metadata", "continue", NULL));
	drop(list);
	list = fx_do(&f, 200, "GET", VMS, NULL);
	assert_path(js_item(js_get(list, "items"), 2), "kubevirt.io/v1", "apiVersion");
	drop(list);
	list = fx_do(&f, 200, "GET", "/apis/kubevirt.io/v1alpha3/virtualmachineinstances", NULL);
	assert_int_equal(js_len(js_get(list, "items")), 0);
	drop(list);
	fx_call(&f, &a, &fx_admin, "GET", OLDVMS "?includeObject=Object", NULL, TABLE, NULL);
	assert_path(js_item(js_get(a.json, "rows"), 0), OLD, "object", "apiVersion");
	assert_string_equal(js_get_str(js_item(js_get(a.json, "columnDefinitions"), 2), "name"),
			    "Status");
	fx_answer_fini(&a);
}

static void patches_and_applies_come_under_the_version_of_their_address(void **state)
{
	struct fx_answer a;

	(void)state;
	drop(fx_do(&f, 201, "POST", VMS, "{\"metadata\":{\"name\":\"a\"}," SPEC "}"));
	struct json *j =
		fx_patch(&f, 200, "merge-patch", OLDVMS "/a",
			 "{\"apiVersion\":\"" OLD "\",\"metadata\":{\"labels\":{\"l\":\"m\"}}}");

	assert_path(j, OLD, "apiVersion");
	assert_path(j, "m", "metadata", "labels", "l");
	drop(j);
	j = fx_patch(&f, 200, "json-patch", OLDVMS "/a",
		     "[{\"op\":\"test\",\"path\":\"/apiVersion\",\"value\":\"" OLD
		     "\"},{\"op\":\"add\",\"path\":\"/metadata/labels/n\",\"value\":\"o\"}]");
	assert_path(j, OLD, "apiVersion");
	drop(j);
	for (int i = 0; i < 2; i++) {
		fx_call(&f, &a, &fx_admin, "PATCH", OLDVMS "/a?fieldManager=m&force=true",
			"application/apply-patch+yaml", NULL,
			"{\"apiVersion\":\"" OLD
			"\",\"kind\":\"VirtualMachine\",\"metadata\":{\"name\":\"a\",\"labels\":{"
			"\"p\":\"q\"}}," SPEC "}");
		assert_int_equal(a.status, 200);
		assert_path(a.json, OLD, "apiVersion");
		assert_path(a.json, "q", "metadata", "labels", "p");
		fx_answer_fini(&a);
	}
	/* A change of nothing, said under another version, is no change. */
	int64_t rev = store_rev(f.store);

	j = fx_do(&f, 200, "GET", OLDVMS "/a", NULL);
	char *text = js_to_text(j);

	drop(j);
	j = fx_do(&f, 200, "PUT", OLDVMS "/a", text);
	assert_path(j, OLD, "apiVersion");
	drop(j);
	mem_free(text);
	assert_int_equal(store_rev(f.store), rev);
	j = fx_do(&f, 200, "GET", VMS "/a", NULL);
	assert_path(j, "kubevirt.io/v1", "apiVersion");
	assert_path(j, "o", "metadata", "labels", "n");
	drop(j);
}

static void watches_are_under_the_version_asked_for(void **state)
{
	struct fx_watch *w = mem_alloc(sizeof(*w)); /* fx_watch_stop() frees it */

	(void)state;
	drop(fx_do(&f, 201, "POST", VMS,
		   "{\"metadata\":{\"name\":\"a\",\"labels\":{\"l\":\"m\"}}," SPEC "}"));
	fx_watch_start(&f, w,
		       OLDVMS "?watch=1&labelSelector=l&allowWatchBookmarks=true&"
			      "sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
		       NULL);
	drop(fx_patch(&f, 200, "merge-patch", VMS "/a",
		      "{\"metadata\":{\"labels\":{\"n\":\"o\"}}}"));
	/* It leaves the selection. */
	drop(fx_patch(&f, 200, "merge-patch", VMS "/a",
		      "{\"metadata\":{\"labels\":{\"l\":null}}}"));
	fx_settle(&f);
	assert_int_equal(w->n_warnings, 1);
	assert_string_equal(w->warnings[0], GOING);
	static const char *const want[] = {"ADDED", "BOOKMARK", "MODIFIED", "DELETED"};

	assert_int_equal(w->n, ARRAY_SIZE(want));
	for (size_t i = 0; i < w->n; i++) {
		assert_string_equal(fx_event_type(w, i), want[i]);
		assert_path(fx_event_obj(w, i), OLD, "apiVersion");
	}
	fx_watch_stop(w);
}

static void a_kind_that_goes_is_named_in_the_warning(void **state)
{
	struct fx_answer a;

	(void)state;
	fx_call(&f, &a, &fx_admin, "GET", "/apis/kubevirt.io/v1/virtualmachineinstancepresets",
		NULL, NULL, NULL);
	assert_int_equal(a.n_warnings, 1);
	assert_string_equal(a.warnings[0],
			    "299 - \"kubevirt.io/v1 VirtualMachineInstancePreset is now deprecated "
			    "and will be removed in a future release.\"");
	fx_answer_fini(&a);
	/* A further version that does not go away is no reason to warn. */
	fx_call(&f, &a, &fx_admin, "GET", OLDPOOLS, NULL, NULL, NULL);
	assert_int_equal(a.status, 200);
	assert_int_equal(a.n_warnings, 0);
	fx_answer_fini(&a);
}

static const struct json *named(const struct json *list, const char *key, const char *name)
{
	for (size_t i = 0; i < js_len(list); i++)
		if (str_eq(js_get_str(js_item(list, i), key), name))
			return js_item(list, i);
	return NULL;
}

static void discovery_prefers_the_stored_version(void **state)
{
	static const char *const groups[][3] = {
		{"kubevirt.io", "v1", "v1alpha3"},
		{"snapshot.kubevirt.io", "v1beta1", "v1alpha1"},
		{"export.kubevirt.io", "v1", "v1beta1"},
		{"pool.kubevirt.io", "v1beta1", "v1alpha1"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(groups); i++) {
		char path[64];

		snprintf(path, sizeof(path), "/apis/%s", groups[i][0]);
		struct json *g = fx_do(&f, 200, "GET", path, NULL);

		assert_path(g, groups[i][1], "preferredVersion", "version");
		assert_int_equal(js_len(js_get(g, "versions")), 2);
		assert_path(js_item(js_get(g, "versions"), 1), groups[i][2], "version");
		drop(g);
	}
	struct json *a = fx_do(&f, 200, "GET", "/apis/pool.kubevirt.io/v1alpha1", NULL);
	const struct json *scale =
		named(js_get(a, "resources"), "name", "virtualmachinepools/scale");

	assert_path(a, "pool.kubevirt.io/v1alpha1", "groupVersion");
	assert_path(scale, "autoscaling", "group");
	assert_path(scale, "v1", "version");
	assert_path(scale, "Scale", "kind");
	assert_int_equal(js_len(js_get(scale, "verbs")), 3);
	assert_non_null(js_item(
		js_get(named(js_get(a, "resources"), "name", "virtualmachinepools"), "shortNames"),
		1));
	drop(a);
}

/* ---- scale ------------------------------------------------------------------------------------- */

static void a_scale_is_read_and_written(void **state)
{
	(void)state;
	drop(fx_do(&f, 404, "GET", POOLS "/p/scale", NULL));
	put_pool(&f);
	struct json *s = fx_do(&f, 200, "GET", POOLS "/p/scale", NULL);

	assert_path(s, "Scale", "kind");
	assert_path(s, "autoscaling/v1", "apiVersion");
	assert_path(s, "p", "metadata", "name");
	assert_path(s, "default", "metadata", "namespace");
	assert_path(s, "u-1", "metadata", "uid");
	assert_path(s, "2026-01-01T00:00:00Z", "metadata", "creationTimestamp");
	assert_int_equal(js_int(js_at(s, "spec", "replicas", NULL), 0), 3);
	assert_int_equal(js_int(js_at(s, "status", "replicas", NULL), 0), 2);
	assert_path(s, "a=b", "status", "selector");
	char rv[32];

	snprintf(rv, sizeof(rv), "%s", js_str(js_at(s, "metadata", "resourceVersion", NULL)));
	drop(s);
	/* kubectl scale */
	s = fx_patch(&f, 200, "merge-patch", POOLS "/p/scale", "{\"spec\":{\"replicas\":5}}");
	assert_path(s, "Scale", "kind");
	assert_int_equal(js_int(js_at(s, "spec", "replicas", NULL), 0), 5);
	assert_string_not_equal(js_str(js_at(s, "metadata", "resourceVersion", NULL)), rv);
	drop(s);
	s = fx_do(&f, 200, "GET", POOLS "/p", NULL);
	assert_int_equal(js_int(js_at(s, "spec", "replicas", NULL), 0), 5);
	assert_int_equal(js_int(js_at(s, "metadata", "generation", NULL), 0), 2);
	assert_path(s, "b", "spec", "selector", "matchLabels", "a");
	assert_int_equal(js_int(js_at(s, "status", "replicas", NULL), 0), 2);
	drop(s);
	/* kubectl scale --resource-version, with the version of before */
	char body[256];

	snprintf(
		body, sizeof(body),
		"{\"metadata\":{\"name\":\"p\",\"resourceVersion\":\"%s\"},\"spec\":{\"replicas\":7}}",
		rv);
	drop(fx_do(&f, 409, "PUT", POOLS "/p/scale", body));
	s = fx_do(
		&f, 200, "PUT", POOLS "/p/scale",
		"{\"kind\":\"Scale\",\"apiVersion\":\"autoscaling/v1\",\"metadata\":{\"name\":\"p\"},"
		"\"spec\":{}}");
	assert_int_equal(js_int(js_at(s, "spec", "replicas", NULL), -1), 0);
	drop(s);
	/* Checked, not stored. */
	s = fx_patch(&f, 200, "json-patch", OLDPOOLS "/p/scale?dryRun=All",
		     "[{\"op\":\"replace\",\"path\":\"/spec/replicas\",\"value\":9}]");
	assert_path(s, "autoscaling/v1", "apiVersion");
	assert_int_equal(js_int(js_at(s, "spec", "replicas", NULL), -1), 9);
	drop(s);
	s = fx_do(&f, 200, "GET", OLDPOOLS "/p/scale", NULL);
	assert_int_equal(js_int(js_at(s, "spec", "replicas", NULL), -1), 0);
	drop(s);
}

static void a_wrong_scale_is_refused(void **state)
{
	static const struct {
		int status;
		const char *body;
		const char *message;
	} rows[] = {
		{422, "{\"spec\":{\"replicas\":-1}}",
		 "VirtualMachinePool.pool.kubevirt.io \"p\" is invalid: spec.replicas: Invalid value: "
		 "-1: must be greater than or equal to 0"},
		{422, "{\"spec\":{\"replicas\":2147483648}}",
		 "VirtualMachinePool.pool.kubevirt.io \"p\" is invalid: spec.replicas: Invalid value: "
		 "2147483648: must be less than or equal to 2147483647"},
		{400, "{\"kind\":\"Pod\",\"spec\":{\"replicas\":1}}",
		 "the body is Pod of an unknown version, not Scale of autoscaling/v1"},
		{400, "{\"apiVersion\":\"autoscaling/v2\",\"spec\":{\"replicas\":1}}",
		 "the body is an object of autoscaling/v2, not Scale of autoscaling/v1"},
		{400, "{\"metadata\":{\"name\":\"q\"},\"spec\":{\"replicas\":1}}",
		 "the name of the object (q) does not match the name on the URL (p)"},
		{400, "{\"metadata\":{\"namespace\":\"q\"},\"spec\":{\"replicas\":1}}",
		 "the namespace of the provided object does not match the namespace sent on the "
		 "request"},
		{400, "[]", "the body is not a Scale"},
		{400, NULL, "the body is not a Scale"},
	};

	(void)state;
	put_pool(&f);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct json *a = fx_do(&f, rows[i].status, "PUT", POOLS "/p/scale", rows[i].body);

		assert_msg(a, rows[i].message);
		drop(a);
	}
	struct json *a = fx_do(&f, 409, "PUT", POOLS "/p/scale",
			       "{\"metadata\":{\"uid\":\"u-2\"},\"spec\":{\"replicas\":1}}");

	drop(a);
	a = fx_do(&f, 422, "PUT", POOLS "/p/scale", "{\"spec\":{\"replicas\":\"x\"}}");
	assert_non_null(strstr(js_get_str(a, "message"), "spec.replicas"));
	drop(a);
	drop(fx_patch(&f, 415, "strategic-merge-patch", POOLS "/p/scale", "{}"));
	drop(fx_do(&f, 405, "DELETE", POOLS "/p/scale", NULL));
	drop(fx_do(&f, 404, "PATCH", POOLS "/nope/scale", "{}"));
	/* Kinds that keep no number have none. */
	drop(fx_do(&f, 404, "GET", VMS "/x/scale", NULL));
	a = fx_do(&f, 200, "GET", POOLS "/p", NULL);
	assert_int_equal(js_int(js_at(a, "spec", "replicas", NULL), 0), 3);
	drop(a);
}

/* ---- out of memory ------------------------------------------------------------------------------- */

struct step {
	const char *method, *target, *type, *accept, *body;
};

static const struct step steps[] = {
	{"GET", POOLS "/p/scale", NULL, NULL, NULL},
	{"PUT", POOLS "/p/scale", NULL, NULL, "{\"spec\":{\"replicas\":1}}"},
	{"PATCH", POOLS "/p/scale", "application/merge-patch+json", NULL,
	 "{\"spec\":{\"replicas\":1}}"},
	{"GET", OLDPOOLS "/p", NULL, NULL, NULL},
	{"GET", OLDPOOLS, NULL, NULL, NULL},
	{"GET", OLDPOOLS "?includeObject=Object", NULL, TABLE, NULL},
	{"PATCH", OLDPOOLS "/p", "application/merge-patch+json", NULL,
	 "{\"metadata\":{\"labels\":{\"l\":\"m\"}}}"},
};

static bool run(const struct step *s, unsigned nth)
{
	struct fx one;
	struct fx_answer a;

	fx_up(&one, NULL);
	put_pool(&one);
	fx_call_nth(&one, &a, nth, s->method, s->target, s->type, s->accept, s->body);
	bool fired = a.fired;

	if (a.status != 200 && (a.status != 500 || !fired))
		fail_msg("%s %s: allocation %u: %d: %s", s->method, s->target, nth, a.status,
			 a.text);
	fx_answer_fini(&a);
	fx_settle(&one);
	js_unref(fx_do(&one, 200, "GET", OLDPOOLS "/p", NULL));
	fx_down(&one);
	return fired;
}

static void running_out_of_memory_is_said(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++)
		for (unsigned nth = 1; run(&steps[i], nth); nth++)
			assert_true(nth < 20000);
}

int main(void)
{
#define T(fn_) cmocka_unit_test_setup_teardown(fn_, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(a_kind_without_a_controller_is_refused_with_its_reason),
		T(what_else_is_wrong_comes_before_the_reason),
		T(every_refused_kind_is_refused),
		T(what_is_there_can_be_read_watched_and_deleted),
		T(a_request_that_is_never_stored_can_only_be_made),
		T(an_object_is_the_same_under_each_version),
		T(lists_and_tables_are_under_the_version_asked_for),
		T(patches_and_applies_come_under_the_version_of_their_address),
		T(watches_are_under_the_version_asked_for),
		T(a_kind_that_goes_is_named_in_the_warning),
		T(discovery_prefers_the_stored_version),
		T(a_scale_is_read_and_written),
		T(a_wrong_scale_is_refused),
		cmocka_unit_test(running_out_of_memory_is_said),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("kinds", tests, NULL, NULL);
}
