/* events.k8s.io/v1: the events of v1 under other names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "fixture.h"

#define CORE "/api/v1/namespaces/default/events"
#define NEW  "/apis/events.k8s.io/v1/namespaces/default/events"

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

/* As client-go's new recorder writes it. */
static const char fresh[] =
	"{\"apiVersion\":\"events.k8s.io/v1\",\"kind\":\"Event\",\"metadata\":{\"name\":\"a\"},"
	"\"eventTime\":\"2026-01-01T10:00:00.123456Z\",\"reportingController\":\"example.org/c\","
	"\"reportingInstance\":\"c-1\",\"action\":\"Doing\",\"reason\":\"Done\",\"regarding\":"
	"{\"kind\":\"Pod\",\"namespace\":\"default\",\"name\":\"p\"},\"related\":{\"kind\":"
	"\"Node\",\"name\":\"n\"},\"note\":\"it is done\",\"type\":\"Normal\"}";
/* As ours and all old ones do. */
static const char old[] =
	"{\"metadata\":{\"name\":\"b\"},\"involvedObject\":{\"kind\":\"Pod\",\"namespace\":"
	"\"default\",\"name\":\"q\"},\"reason\":\"Started\",\"message\":\"it runs\",\"type\":"
	"\"Normal\",\"source\":{\"component\":\"x\",\"host\":\"h\"},\"firstTimestamp\":"
	"\"2026-01-01T10:00:00Z\",\"lastTimestamp\":\"2026-01-01T10:05:00Z\",\"count\":4,"
	"\"reportingComponent\":\"x\",\"reportingInstance\":\"h\"}";

static void both_forms_show_the_same_events(void **state)
{
	(void)state;
	struct json *a = fx_do(&f, 201, "POST", NEW, fresh);

	assert_path(a, "events.k8s.io/v1", "apiVersion");
	assert_path(a, "it is done", "note");
	drop(a);
	a = fx_do(&f, 200, "GET", CORE "/a", NULL);
	assert_path(a, "v1", "apiVersion");
	assert_path(a, "it is done", "message");
	assert_path(a, "p", "involvedObject", "name");
	assert_path(a, "n", "related", "name");
	assert_path(a, "example.org/c", "reportingComponent");
	assert_path(a, "c-1", "reportingInstance");
	assert_path(a, "Doing", "action");
	assert_path(a, "2026-01-01T10:00:00.123456Z", "eventTime");
	assert_null(js_get(a, "note"));
	assert_null(js_get(a, "regarding"));
	drop(a);
	drop(fx_do(&f, 201, "POST", CORE, old));
	a = fx_do(&f, 200, "GET", NEW "/b", NULL);
	assert_path(a, "events.k8s.io/v1", "apiVersion");
	assert_path(a, "Event", "kind");
	assert_path(a, "b", "metadata", "name");
	assert_path(a, "it runs", "note");
	assert_path(a, "q", "regarding", "name");
	assert_path(a, "x", "reportingController");
	assert_path(a, "x", "deprecatedSource", "component");
	assert_path(a, "2026-01-01T10:00:00Z", "deprecatedFirstTimestamp");
	assert_path(a, "2026-01-01T10:05:00Z", "deprecatedLastTimestamp");
	assert_int_equal(js_get_int(a, "deprecatedCount", 0), 4);
	assert_null(js_get(a, "message"));
	assert_null(js_get(a, "count"));
	drop(a);
	a = fx_do(&f, 200, "GET", NEW, NULL);
	assert_path(a, "EventList", "kind");
	assert_path(a, "events.k8s.io/v1", "apiVersion");
	assert_int_equal(js_len(js_get(a, "items")), 2);
	assert_path(js_item(js_get(a, "items"), 0), "it is done", "note");
	drop(a);
	drop(fx_do(&f, 200, "DELETE", NEW "/b", NULL));
	drop(fx_do(&f, 404, "GET", CORE "/b", NULL));
}

static void selectors_have_the_names_of_the_form(void **state)
{
	(void)state;
	drop(fx_do(&f, 201, "POST", NEW, fresh));
	drop(fx_do(&f, 201, "POST", CORE, old));
	struct json *a = fx_do(
		&f, 200, "GET",
		NEW "?fieldSelector=regarding.name%3Dp,reportingController%3Dexample.org/c", NULL);

	assert_int_equal(js_len(js_get(a, "items")), 1);
	assert_path(js_item(js_get(a, "items"), 0), "a", "metadata", "name");
	drop(a);
	a = fx_do(&f, 400, "GET", NEW "?fieldSelector=involvedObject.name%3Dp", NULL);
	assert_msg(a, "field label not supported: involvedObject.name");
	drop(a);
	a = fx_do(&f, 400, "GET", CORE "?fieldSelector=regarding.name%3Dp", NULL);
	assert_msg(a, "field label not supported: regarding.name");
	drop(a);
}

static void a_watch_tells_in_the_names_of_the_form(void **state)
{
	struct fx_watch *w = mem_alloc(sizeof(*w));

	(void)state;
	assert_non_null(w);
	fx_watch_start(&f, w, NEW "?watch=1&fieldSelector=type%3DNormal", NULL);
	drop(fx_do(&f, 201, "POST", CORE, old));
	drop(fx_patch(&f, 200, "merge-patch", CORE "/b", "{\"count\":5}"));
	drop(fx_patch(&f, 200, "merge-patch", CORE "/b", "{\"type\":\"Warning\"}"));
	assert_int_equal(w->n, 3);
	assert_string_equal(fx_event_type(w, 0), "ADDED");
	assert_path(fx_event_obj(w, 0), "it runs", "note");
	assert_string_equal(fx_event_type(w, 1), "MODIFIED");
	assert_int_equal(js_get_int(fx_event_obj(w, 1), "deprecatedCount", 0), 5);
	assert_path(fx_event_obj(w, 1), "events.k8s.io/v1", "apiVersion");
	/* It left the selection. */
	assert_string_equal(fx_event_type(w, 2), "DELETED");
	assert_path(fx_event_obj(w, 2), "it runs", "note");
	fx_watch_stop(w);
}

/* The new recorder's way to tell of repetitions, and the table that shows them. */
static void a_series_is_patched_and_shown(void **state)
{
	struct fx_answer t;

	(void)state;
	drop(fx_do(&f, 201, "POST", NEW, fresh));
	struct json *a = fx_patch(&f, 200, "strategic-merge-patch", NEW "/a",
				  "{\"series\":{\"count\":7,\"lastObservedTime\":"
				  "\"2026-01-01T11:00:00.000000Z\"}}");

	assert_int_equal(js_int(js_at(a, "series", "count", NULL), 0), 7);
	assert_path(a, "it is done", "note");
	drop(a);
	a = fx_patch(&f, 200, "json-patch", NEW "/a",
		     "[{\"op\":\"test\",\"path\":\"/note\",\"value\":\"it is done\"},"
		     "{\"op\":\"replace\",\"path\":\"/series/count\",\"value\":8}]");
	drop(a);
	a = fx_do(&f, 200, "GET", CORE "/a", NULL);
	assert_int_equal(js_int(js_at(a, "series", "count", NULL), 0), 8);
	drop(a);
	fx_call(&f, &t, &fx_admin, "GET", NEW, NULL, "application/json;as=Table;v=v1;g=meta.k8s.io",
		NULL);
	assert_int_equal(t.status, 200);
	assert_non_null(strstr(t.text, "\"it is done\""));
	assert_non_null(strstr(t.text, "\"8\""));
	fx_answer_fini(&t);
}

static void faults_have_the_names_of_the_form(void **state)
{
	static const char *const paths[] = {
		"eventTime", "reportingController", "reportingInstance", "action", "reason",
		"type"};
	struct fx_answer w;

	(void)state;
	struct json *a = fx_do(&f, 422, "POST", NEW, "{\"metadata\":{\"name\":\"c\"}}");
	const struct json *causes = js_at(a, "details", "causes", NULL);

	assert_int_equal(js_len(causes), 6);
	for (size_t i = 0; i < 6; i++)
		assert_path(js_item(causes, i), paths[i], "field");
	drop(a);
	a = fx_do(&f, 422, "POST", NEW,
		  "{\"metadata\":{\"name\":\"c\"},\"note\":7,\"regarding\":[]}");
	assert_path(js_item(js_at(a, "details", "causes", NULL), 0), "note", "field");
	assert_path(js_item(js_at(a, "details", "causes", NULL), 1), "regarding", "field");
	drop(a);
	/* v1's names are unknown here. */
	a = fx_do(&f, 400, "POST", NEW "?fieldValidation=Strict",
		  "{\"metadata\":{\"name\":\"c\"},\"message\":\"m\"}");
	assert_msg(a, "Event in version \"v1\" cannot be handled as a Event: strict decoding "
		      "error: unknown field \"message\"");
	drop(a);
	drop(fx_do(&f, 201, "POST", NEW, fresh));
	a = fx_patch(&f, 422, "merge-patch", NEW "/a", "{\"note\":\"other\",\"reason\":\"Other\"}");
	assert_path(js_item(js_at(a, "details", "causes", NULL), 0), "reason", "field");
	assert_path(js_item(js_at(a, "details", "causes", NULL), 1), "note", "field");
	drop(a);
	fx_call(&f, &w, &fx_admin, "PATCH", NEW "/a?fieldManager=m", "application/apply-patch+yaml",
		NULL, fresh);
	assert_int_equal(w.status, 415);
	assert_msg(w.json, "events of events.k8s.io/v1 cannot be applied: apply them as v1");
	fx_answer_fini(&w);
	/* The other form's version, in the body. */
	drop(fx_do(&f, 400, "POST", CORE, fresh));
}

static void it_is_found(void **state)
{
	(void)state;
	struct json *a = fx_do(&f, 200, "GET", "/apis/events.k8s.io/v1", NULL);
	const struct json *r = js_item(js_get(a, "resources"), 0);

	assert_int_equal(js_len(js_get(a, "resources")), 1);
	assert_path(r, "events", "name");
	assert_path(r, "event", "singularName");
	assert_path(r, "Event", "kind");
	drop(a);
	drop(fx_do(&f, 200, "GET", "/openapi/v3/apis/events.k8s.io/v1", NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(both_forms_show_the_same_events, setup, teardown),
		cmocka_unit_test_setup_teardown(selectors_have_the_names_of_the_form, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_watch_tells_in_the_names_of_the_form, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_series_is_patched_and_shown, setup, teardown),
		cmocka_unit_test_setup_teardown(faults_have_the_names_of_the_form, setup, teardown),
		cmocka_unit_test_setup_teardown(it_is_found, setup, teardown),
	};

	js_use_mem();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
