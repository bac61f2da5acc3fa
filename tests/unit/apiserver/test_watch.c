/* Lists and watches: versions, pages, selections, bookmarks, slow readers, tables. */
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

#define CM    "/api/v1/namespaces/default/configmaps"
#define VMIS  "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances"
#define TABLE "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"

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

static void make_cm(const char *name, const char *label)
{
	char body[256];

	snprintf(body, sizeof(body), "{\"metadata\":{\"name\":\"%s\",\"labels\":{\"l\":\"%s\"}}}",
		 name, label);
	drop(fx_do(&f, 201, "POST", CM, body));
}

static void relabel(const char *name, const char *label)
{
	char body[256], target[128];

	snprintf(body, sizeof(body), "{\"metadata\":{\"labels\":{\"l\":\"%s\"}}}", label);
	snprintf(target, sizeof(target), CM "/%s", name);
	drop(fx_patch(&f, 200, "merge-patch", target, body));
}

static struct fx_watch *watch(const char *target, const char *accept)
{
	struct fx_watch *w = mem_alloc(sizeof(*w));

	assert_non_null(w);
	fx_watch_start(&f, w, target, accept);
	return w;
}

static void assert_event(struct fx_watch *w, size_t i, const char *type, const char *name)
{
	assert_string_equal(fx_event_type(w, i), type);
	assert_path(fx_event_obj(w, i), name, "metadata", "name");
}

static void watch_begins_with_what_is_there(void **state)
{
	(void)state;
	make_cm("a", "x");
	struct fx_watch *w = watch(CM "?watch=1", NULL);

	assert_int_equal(w->n, 1);
	assert_event(w, 0, "ADDED", "a");
	relabel("a", "y");
	drop(fx_do(&f, 200, "DELETE", CM "/a", NULL));
	assert_int_equal(w->n, 3);
	assert_event(w, 1, "MODIFIED", "a");
	assert_event(w, 2, "DELETED", "a");
	/* A deletion has its own, newest version. */
	int64_t last = 0;

	for (size_t i = 0; i < 3; i++) {
		int64_t rv;

		assert_int_equal(str_to_i64(js_str(js_at(fx_event_obj(w, i), "metadata",
							 "resourceVersion", NULL)),
					    1, INT64_MAX, &rv, NULL),
				 RC_OK);
		assert_true(rv > last);
		last = rv;
	}
	assert_int_equal(last, store_rev(f.store));
	fx_watch_stop(w);
}

static void watch_resumes_after_a_version(void **state)
{
	(void)state;
	make_cm("a", "x");
	char target[128];

	snprintf(target, sizeof(target), CM "?watch=1&resourceVersion=%lld",
		 (long long)store_rev(f.store));
	make_cm("b", "x");
	drop(fx_do(&f, 200, "DELETE", CM "/a", NULL));
	struct fx_watch *w = watch(target, NULL);

	assert_int_equal(w->n, 2);
	assert_event(w, 0, "ADDED", "b");
	assert_event(w, 1, "DELETED", "a");
	fx_watch_stop(w);
}

static void selections_turn_changes_into_arrivals_and_departures(void **state)
{
	(void)state;
	make_cm("a", "no");
	struct fx_watch *w = watch(CM "?watch=1&labelSelector=l%3Dyes", NULL);

	assert_int_equal(w->n, 0);
	relabel("a", "yes");
	relabel("a", "no");
	relabel("a", "never");
	relabel("a", "yes");
	drop(fx_do(&f, 200, "DELETE", CM "/a", NULL));
	assert_int_equal(w->n, 4);
	assert_event(w, 0, "ADDED", "a");
	assert_event(w, 1, "DELETED", "a");
	/* What left is shown as it last matched, under the version of its departure. */
	assert_path(fx_event_obj(w, 1), "yes", "metadata", "labels", "l");
	assert_event(w, 2, "ADDED", "a");
	assert_event(w, 3, "DELETED", "a");
	fx_watch_stop(w);
}

static void field_selectors_fix_one_object(void **state)
{
	(void)state;
	make_cm("a", "x");
	make_cm("ab", "x");
	struct fx_watch *w = watch(CM "?watch=1&fieldSelector=metadata.name%3Da", NULL);
	struct json *l = fx_do(&f, 200, "GET", CM "?fieldSelector=metadata.name%3Da", NULL);

	assert_int_equal(js_len(js_get(l, "items")), 1);
	drop(l);
	relabel("ab", "y");
	assert_int_equal(w->n, 1);
	relabel("a", "y");
	assert_int_equal(w->n, 2);
	fx_watch_stop(w);
	l = fx_do(&f, 400, "GET", CM "?fieldSelector=spec.x%3Da", NULL);
	assert_non_null(strstr(js_get_str(l, "message"), "field label not supported"));
	drop(l);
	drop(fx_do(&f, 400, "GET", CM "?labelSelector=a%3D%3D%3Db", NULL));
}

static void too_old_versions_expire(void **state)
{
	(void)state;
	make_cm("a", "x");
	for (int i = 0; i < 5000; i++) {
		char label[16];

		snprintf(label, sizeof(label), "v%d", i);
		relabel("a", label);
	}
	struct fx_watch *w = watch(CM "?watch=1&resourceVersion=1", NULL);

	assert_int_equal(w->n, 1);
	assert_string_equal(fx_event_type(w, 0), "ERROR");
	assert_int_equal(js_get_int(fx_event_obj(w, 0), "code", 0), 410);
	assert_path(fx_event_obj(w, 0), "Expired", "reason");
	assert_true(w->ended);
	fx_watch_stop(w);
	drop(fx_do(&f, 410, "GET", CM "?resourceVersion=1&resourceVersionMatch=Exact", NULL));
	drop(fx_do(&f, 504, "GET", CM "?resourceVersion=999999", NULL));
}

static void bookmarks_and_initial_events(void **state)
{
	(void)state;
	make_cm("a", "x");
	struct fx_watch *w = watch(CM "?watch=1&allowWatchBookmarks=true&sendInitialEvents=true&"
				      "resourceVersionMatch=NotOlderThan",
				   NULL);

	assert_int_equal(w->n, 2);
	assert_event(w, 0, "ADDED", "a");
	assert_string_equal(fx_event_type(w, 1), "BOOKMARK");
	assert_path(fx_event_obj(w, 1), "true", "metadata", "annotations",
		    "k8s.io/initial-events-end");
	assert_path(fx_event_obj(w, 1), "ConfigMap", "kind");
	/* Something else changes: after a minute the idle watcher learns the version. */
	drop(fx_do(&f, 201, "POST", "/api/v1/namespaces", "{\"metadata\":{\"name\":\"n\"}}"));
	fx_sleep(&f, 61 * USEC_PER_SEC);
	assert_int_equal(w->n, 3);
	assert_string_equal(fx_event_type(w, 2), "BOOKMARK");
	char rv[24];

	snprintf(rv, sizeof(rv), "%lld", (long long)store_rev(f.store));
	assert_path(fx_event_obj(w, 2), rv, "metadata", "resourceVersion");
	fx_sleep(&f, 61 * USEC_PER_SEC);
	assert_int_equal(w->n, 3); /* nothing changed: nothing said */
	fx_watch_stop(w);
	w = watch(CM "?watch=1&sendInitialEvents=true", NULL);
	assert_int_equal(w->status, 400);
	fx_watch_stop(w);
}

static void watches_end_in_time(void **state)
{
	(void)state;
	struct fx_watch *w = watch(CM "?watch=1&timeoutSeconds=5", NULL);

	fx_sleep(&f, 4 * USEC_PER_SEC);
	assert_false(w->ended);
	fx_sleep(&f, 2 * USEC_PER_SEC);
	assert_true(w->ended);
	fx_watch_stop(w);
}

static void a_slow_reader_is_let_go_and_delays_nobody(void **state)
{
	(void)state;
	struct fx_watch *slow = watch(CM "?watch=1", NULL), *quick = watch(CM "?watch=1", NULL);

	slow->max_frames = 2;
	for (int i = 0; i < 5; i++) {
		char name[16];

		snprintf(name, sizeof(name), "c%d", i);
		make_cm(name, "x");
	}
	assert_true(slow->ended);
	assert_int_equal(slow->n, 2);
	assert_false(quick->ended);
	assert_int_equal(quick->n, 5);
	fx_watch_stop(slow);
	fx_watch_stop(quick);
}

static void pages_show_one_moment(void **state)
{
	(void)state;
	for (int i = 0; i < 7; i++) {
		char name[16];

		snprintf(name, sizeof(name), "c%d", i);
		make_cm(name, "x");
	}
	struct json *p = fx_do(&f, 200, "GET", CM "?limit=3", NULL);
	CLEANUP(mem_freep)
	char *rv = mem_strdup(js_str(js_at(p, "metadata", "resourceVersion", NULL)));
	char target[512];

	assert_int_equal(js_len(js_get(p, "items")), 3);
	assert_int_equal(js_int(js_at(p, "metadata", "remainingItemCount", NULL), 0), 4);
	/* Meanwhile: one gone, one new, one changed. */
	drop(fx_do(&f, 200, "DELETE", CM "/c4", NULL));
	make_cm("c33", "x");
	relabel("c5", "changed");
	size_t seen = 3;

	for (;;) {
		const char *token = js_str(js_at(p, "metadata", "continue", NULL));

		if (!token)
			break;
		snprintf(target, sizeof(target), CM "?limit=3&continue=%s", token);
		drop(p);
		p = fx_do(&f, 200, "GET", target, NULL);
		assert_path(p, rv, "metadata", "resourceVersion");
		for (size_t i = 0; i < js_len(js_get(p, "items")); i++) {
			char name[16];

			snprintf(name, sizeof(name), "c%zu", seen++);
			assert_path(js_item(js_get(p, "items"), i), name, "metadata", "name");
			assert_path(js_item(js_get(p, "items"), i), "x", "metadata", "labels", "l");
		}
	}
	assert_int_equal(seen, 7);
	drop(p);
	drop(fx_do(&f, 400, "GET", CM "?limit=3&continue=rubbish", NULL));
	drop(fx_do(&f, 400, "GET", CM "?limit=-1", NULL));
	snprintf(target, sizeof(target), CM "?resourceVersion=%s&resourceVersionMatch=Exact", rv);
	p = fx_do(&f, 200, "GET", target, NULL);
	assert_int_equal(js_len(js_get(p, "items")), 7);
	drop(p);
}

static void an_old_page_can_go_on_inconsistently(void **state)
{
	(void)state;
	make_cm("a", "x");
	make_cm("b", "x");
	struct json *p = fx_do(&f, 200, "GET", CM "?limit=1", NULL);
	char target[512];

	for (int i = 0; i < 5000; i++) {
		char label[16];

		snprintf(label, sizeof(label), "v%d", i);
		relabel("a", label);
	}
	snprintf(target, sizeof(target), CM "?limit=1&continue=%s",
		 js_str(js_at(p, "metadata", "continue", NULL)));
	drop(p);
	p = fx_do(&f, 410, "GET", target, NULL);
	snprintf(target, sizeof(target), CM "?limit=1&continue=%s",
		 js_str(js_at(p, "metadata", "continue", NULL)));
	drop(p);
	p = fx_do(&f, 200, "GET", target, NULL);
	assert_path(js_item(js_get(p, "items"), 0), "b", "metadata", "name");
	drop(p);
}

static void tables_have_columns_and_rows(void **state)
{
	(void)state;
	struct fx_answer a;

	drop(fx_do(
		&f, 201, "POST", VMIS,
		"{\"metadata\":{\"name\":\"v\"},\"spec\":{\"domain\":{\"memory\":{\"guest\":\"64Mi\"},"
		"\"devices\":{}}}}"));
	drop(fx_as(
		&f, &fx_controller, 200, "PATCH", VMIS "/v",
		"{\"status\":{\"phase\":\"Running\",\"nodeName\":\"node-1\",\"interfaces\":[{\"ipAddress\":\"10.244.1.2\"}],"
		"\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}]}}"));
	fx_sleep(&f, 75 * USEC_PER_SEC);
	fx_call(&f, &a, &fx_admin, "GET", VMIS "?includeObject=Object", NULL, TABLE, NULL);
	assert_int_equal(a.status, 200);
	assert_path(a.json, "Table", "kind");
	const struct json *defs = js_get(a.json, "columnDefinitions");
	const struct json *cells = js_get(js_item(js_get(a.json, "rows"), 0), "cells");
	static const char *const want[][2] = {{"Name", "v"},	      {"Age", "75s"},
					      {"Phase", "Running"},   {"IP", "10.244.1.2"},
					      {"NodeName", "node-1"}, {"Ready", "True"}};

	for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
		assert_string_equal(js_get_str(js_item(defs, i), "name"), want[i][0]);
		assert_string_equal(js_str(js_item(cells, i)), want[i][1]);
	}
	assert_path(js_item(js_get(a.json, "rows"), 0), "VirtualMachineInstance", "object", "kind");
	fx_answer_fini(&a);
	fx_call(&f, &a, &fx_admin, "GET", VMIS "/v", NULL, TABLE, NULL);
	assert_path(js_item(js_get(a.json, "rows"), 0), "PartialObjectMetadata", "object", "kind");
	fx_answer_fini(&a);
	fx_call(&f, &a, &fx_admin, "GET", VMIS, NULL,
		"application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", NULL);
	assert_path(a.json, "PartialObjectMetadataList", "kind");
	assert_null(js_get(js_item(js_get(a.json, "items"), 0), "spec"));
	fx_answer_fini(&a);
	fx_call(&f, &a, &fx_admin, "GET", VMIS, NULL, "application/vnd.kubernetes.protobuf", NULL);
	assert_int_equal(a.status, 200); /* JSON all the same */
	fx_answer_fini(&a);
	fx_call(&f, &a, &fx_admin, "GET", VMIS, NULL, "text/html", NULL);
	assert_int_equal(a.status, 406);
	fx_answer_fini(&a);
}

static void discovery_lists_what_is_served(void **state)
{
	(void)state;
	struct json *a = fx_do(&f, 200, "GET", "/apis", NULL);
	bool found = false;

	for (size_t i = 0; i < js_len(js_get(a, "groups")); i++)
		found = found ||
			str_eq(js_get_str(js_item(js_get(a, "groups"), i), "name"), "kubevirt.io");
	assert_true(found);
	drop(a);
	a = fx_do(&f, 200, "GET", "/apis/kubevirt.io/v1", NULL);
	assert_path(a, "kubevirt.io/v1", "groupVersion");
	drop(a);
	a = fx_do(&f, 200, "GET", "/apis/kubevirt.io", NULL);
	assert_path(a, "APIGroup", "kind");
	drop(a);
	struct fx_answer x;

	fx_call(&f, &x, &fx_admin, "GET", "/apis", NULL,
		"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
		NULL);
	assert_string_equal(x.content_type,
			    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList");
	assert_path(x.json, "APIGroupDiscoveryList", "kind");
	fx_answer_fini(&x);
	fx_call(&f, &x, &fx_admin, "GET", "/nothing/here", NULL, NULL, NULL);
	assert_int_equal(x.status, 404);
	fx_answer_fini(&x);
	fx_call(&f, &x, &fx_admin, "GET", "/apis/frog.dev/v1", NULL, NULL, NULL);
	assert_int_equal(x.status, 404);
	fx_answer_fini(&x);
}

static void rubbish_is_answered(void **state)
{
	(void)state;
	static const char *const targets[] = {"",
					      "x",
					      "//",
					      "/api/v1//",
					      "/api/v1/namespaces//pods",
					      "/apis/a/b/c/d/e/f/g/h/i/j/k/l",
					      "/api/v1/namespaces/default/pods/p/q/r/s",
					      "/%zz",
					      "/api/v1/pods?limit=%",
					      "/api/v1/../secrets",
					      "/apis//v1/x"};

	for (size_t i = 0; i < ARRAY_SIZE(targets); i++) {
		struct fx_answer a;

		fx_call(&f, &a, &fx_admin, "GET", targets[i], NULL, NULL, NULL);
		assert_true(a.status >= 200 && a.status < 500);
		fx_answer_fini(&a);
		fx_call(&f, &a, &fx_admin, "BREW", targets[i], NULL, NULL, NULL);
		assert_true(a.status >= 200 && a.status < 500);
		fx_answer_fini(&a);
	}
}

int main(void)
{
#define T(fn_) cmocka_unit_test_setup_teardown(fn_, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(watch_begins_with_what_is_there),
		T(watch_resumes_after_a_version),
		T(selections_turn_changes_into_arrivals_and_departures),
		T(field_selectors_fix_one_object),
		T(too_old_versions_expire),
		T(bookmarks_and_initial_events),
		T(watches_end_in_time),
		T(a_slow_reader_is_let_go_and_delays_nobody),
		T(pages_show_one_moment),
		T(an_old_page_can_go_on_inconsistently),
		T(tables_have_columns_and_rows),
		T(discovery_lists_what_is_served),
		T(rubbish_is_answered),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("watch", tests, NULL, NULL);
}
