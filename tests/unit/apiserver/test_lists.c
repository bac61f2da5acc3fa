/* Lists: what their items consist of, and long ones that are made in several turns of the loop. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "fixture.h"

#define CMS	"/api/v1/namespaces/default/configmaps"
#define EVENTS	"/api/v1/namespaces/default/events"
#define NEWER	"/apis/events.k8s.io/v1/namespaces/default/events"
#define VMS	"/apis/kubevirt.io/v1/namespaces/default/virtualmachines"
#define OLD_VMS "/apis/kubevirt.io/v1alpha3/namespaces/default/virtualmachines"
#define TABLE	"application/json;as=Table;v=v1;g=meta.k8s.io"
#define PARTIAL "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
#define VM                                                                                             \
	"{\"metadata\":{\"name\":\"v\"},\"spec\":{\"runStrategy\":\"Halted\",\"template\":{\"spec\":{" \
	"\"domain\":{\"devices\":{}}}}}}"

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

/* ---- kind and apiVersion ------------------------------------------------------------------------- */

/* Each item is the object itself, with its kind or without. */
static void check_items(const char *path, const char *api_version, const char *kind, bool is_bare)
{
	struct json *list = fx_do(&f, 200, "GET", path, NULL);
	const struct json *items = js_get(list, "items");

	assert_path(list, api_version, "apiVersion");
	assert_true(js_len(items) > 0);
	for (size_t i = 0; i < js_len(items); i++) {
		char one[256];

		snprintf(one, sizeof(one), "%s/%s", path,
			 js_str(js_at(js_item(items, i), "metadata", "name", NULL)));
		struct json *obj = fx_do(&f, 200, "GET", one, NULL);

		assert_path(obj, kind, "kind");
		assert_path(obj, api_version, "apiVersion");
		if (is_bare) {
			js_del(obj, "kind");
			js_del(obj, "apiVersion");
		}
		assert_true(js_equal(js_item(items, i), obj));
		js_unref(obj);
	}
	js_unref(list);
}

/* However the members of what was sent are ordered. */
static void items_of_kubernetes_kinds_have_no_kind(void **state)
{
	static const char *const bodies[] = {
		"{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"a\"}}",
		"{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"b\"},"
		"\"data\":{\"kind\":\"x\",\"apiVersion\":\"y\"}}",
		"{\"data\":{\"kind\":\"x\"},\"metadata\":{\"name\":\"c\",\"labels\":{\"kind\":\"z\"}},"
		"\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\"}",
		"{\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"d\"},\"apiVersion\":\"v1\"}",
		"{\"metadata\":{\"name\":\"e\"}}",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bodies); i++)
		drop(fx_do(&f, 201, "POST", CMS, bodies[i]));
	check_items(CMS, "v1", "ConfigMap", true);
	drop(fx_do(&f, 201, "POST", EVENTS,
		   "{\"metadata\":{\"name\":\"e\"},\"involvedObject\":{\"namespace\":\"default\"},"
		   "\"reason\":\"r\",\"message\":\"m\",\"type\":\"Normal\"}"));
	check_items(EVENTS, "v1", "Event", true);
	check_items(NEWER, "events.k8s.io/v1", "Event", true);
	check_items("/api/v1/namespaces", "v1", "Namespace", true);
	/* A page, and what a selector lets through. */
	check_items(CMS, "v1", "ConfigMap", true);
	struct json *page = fx_do(&f, 200, "GET", CMS "?limit=2&labelSelector=kind%3Dz", NULL);

	assert_int_equal(js_len(js_get(page, "items")), 1);
	assert_null(js_get(js_item(js_get(page, "items"), 0), "kind"));
	js_unref(page);
	/* What a deletion of all answers is a list, too. */
	struct json *gone = fx_do(&f, 200, "DELETE", CMS, NULL);

	assert_int_equal(js_len(js_get(gone, "items")), ARRAY_SIZE(bodies));
	assert_null(js_get(js_item(js_get(gone, "items"), 0), "kind"));
	js_unref(gone);
}

static void items_of_custom_kinds_have_it(void **state)
{
	(void)state;
	drop(fx_do(&f, 201, "POST", VMS, VM));
	check_items(VMS, "kubevirt.io/v1", "VirtualMachine", false);
	check_items(OLD_VMS, "kubevirt.io/v1alpha3", "VirtualMachine", false);
	drop(fx_as(&f, &fx_controller, 201, "POST", "/apis/ferry.dev/v1alpha1/ferryconfigs",
		   "{\"metadata\":{\"name\":\"ferry\"},\"spec\":{}}"));
	check_items("/apis/ferry.dev/v1alpha1/ferryconfigs", "ferry.dev/v1alpha1", "FerryConfig",
		    false);
}

/* Nothing says it there but the object itself. */
static void events_rows_and_metadata_have_it(void **state)
{
	struct fx_watch *w = mem_alloc(sizeof(*w));
	struct fx_answer a;

	(void)state;
	drop(fx_do(&f, 201, "POST", CMS, "{\"metadata\":{\"name\":\"a\"}}"));
	fx_watch_start(&f, w, CMS "?watch=true&resourceVersion=0", NULL);
	drop(fx_do(&f, 201, "POST", CMS, "{\"metadata\":{\"name\":\"b\"}}"));
	drop(fx_do(&f, 200, "DELETE", CMS "/a", NULL));
	fx_settle(&f);
	assert_int_equal(w->n, 3);
	for (size_t i = 0; i < w->n; i++) {
		assert_path(fx_event_obj(w, i), "ConfigMap", "kind");
		assert_path(fx_event_obj(w, i), "v1", "apiVersion");
	}
	fx_watch_stop(w);
	fx_call(&f, &a, &fx_admin, "GET", CMS "?includeObject=Object", NULL, TABLE, NULL);
	assert_path(js_item(js_get(a.json, "rows"), 0), "ConfigMap", "object", "kind");
	fx_answer_fini(&a);
	fx_call(&f, &a, &fx_admin, "GET", CMS, NULL, PARTIAL, NULL);
	assert_path(a.json, "PartialObjectMetadataList", "kind");
	assert_path(js_item(js_get(a.json, "items"), 0), "PartialObjectMetadata", "kind");
	fx_answer_fini(&a);
}

/* ---- in several turns -------------------------------------------------------------------------------- */

enum { SLICE = 64, MANY = 10 * SLICE }; /* as slices.c has it */

static void make_maps(unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		char body[64];

		snprintf(body, sizeof(body), "{\"metadata\":{\"name\":\"m%03u\"}}", i);
		drop(fx_as(&f, &fx_controller, 201, "POST", CMS, body));
	}
	fx_sleep(&f, USEC_PER_SEC); /* nobody owes anything */
}

static const char *const masters[] = {"system:masters"};
static const struct apisrv_user anna = {.name = "anna", .n_groups = 1, .groups = masters};
static const struct apisrv_user ben = {.name = "ben", .n_groups = 1, .groups = masters};

struct ask {
	int status;
	unsigned turn; /* the how manieth answer; 0: none */
	struct apisrv_call *call;
	struct json *json;
};
static unsigned answers;

static void on_answer(void *arg, const struct apisrv_answer *a)
{
	struct ask *k = arg;

	assert_int_equal(k->status, 0);
	k->status = a->status;
	k->turn = ++answers;
	k->call = NULL;
	assert_int_equal(js_parse(a->body, a->n, &k->json, NULL), RC_OK);
}

static void ask(struct ask *k, const struct apisrv_user *user, const char *method,
		const char *target, const char *accept)
{
	static const struct apisrv_sink sink = {.answer = on_answer};
	struct apisrv_request r = {
		.method = method, .target = target, .accept = accept, .user = user};

	memset(k, 0, sizeof(*k));
	struct apisrv_call *c = apisrv_handle(f.srv, &r, &sink, k);

	if (!k->turn)
		k->call = c;
}

static size_t rows_of(const struct ask *k, const char *what)
{
	assert_int_equal(k->status, 200);
	return js_len(js_get(k->json, what));
}

static void others_are_answered_between_the_slices(void **state)
{
	static const struct {
		const char *path, *accept, *items;
	} lists[] = {{CMS, TABLE, "rows"}, {CMS, PARTIAL, "items"}};

	(void)state;
	make_maps(MANY);
	for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
		struct ask list, other;
		unsigned n = 0;

		fx_sleep(&f, USEC_PER_SEC);
		ask(&list, &anna, "GET", lists[i].path, lists[i].accept);
		while (!list.status) {
			assert_true(n++ < MANY);
			ask(&other, &ben, "GET", CMS "/m001", NULL);
			assert_int_equal(other.status, 200); /* at once */
			js_unref(other.json);
			assert_int_equal(loop_step(f.loop, 0, NULL, NULL), RC_OK);
		}
		assert_in_range(n, MANY / SLICE - 1, MANY / SLICE + 1);
		assert_int_equal(rows_of(&list, lists[i].items), MANY);
		js_unref(list.json);
	}
}

/* What is made, changed and deleted meanwhile is not seen. */
static void a_list_shows_one_moment(void **state)
{
	struct ask list;
	char rv[24];

	(void)state;
	make_maps(MANY);
	snprintf(rv, sizeof(rv), "%lld", (long long)store_rev(f.store));
	ask(&list, &anna, "GET", CMS "?includeObject=Object", TABLE);
	assert_int_equal(list.status, 0);
	drop(fx_as(&f, &fx_controller, 200, "DELETE", CMS "/m639", NULL));
	drop(fx_as(&f, &fx_controller, 200, "PATCH", CMS "/m638", "{\"data\":{\"a\":\"b\"}}"));
	drop(fx_as(&f, &fx_controller, 201, "POST", CMS, "{\"metadata\":{\"name\":\"m640\"}}"));
	assert_int_equal(list.status, 0); /* all of it while the list is made */
	fx_settle(&f);
	const struct json *rows = js_get(list.json, "rows");

	assert_int_equal(rows_of(&list, "rows"), MANY);
	assert_path(list.json, rv, "metadata", "resourceVersion");
	assert_path(js_item(rows, 639), "m639", "object", "metadata", "name");
	assert_path(js_item(rows, 638), "m638", "object", "metadata", "name");
	assert_null(js_at(js_item(rows, 638), "object", "data", NULL));
	js_unref(list.json);
}

static void whoever_leaves_takes_his_list_along(void **state)
{
	struct ask a, b;

	(void)state;
	make_maps(MANY);
	ask(&a, &anna, "GET", CMS, TABLE);
	ask(&b, &ben, "GET", CMS, TABLE);
	assert_int_equal(loop_step(f.loop, 0, NULL, NULL), RC_OK);
	apisrv_cancel(a.call);
	fx_settle(&f);
	assert_int_equal(a.status, 0);
	assert_int_equal(rows_of(&b, "rows"), MANY);
	js_unref(b.json);
	/* The last of all; and one that the server still has when it ends. */
	ask(&a, &anna, "GET", CMS, TABLE);
	apisrv_cancel(a.call);
	fx_sleep(&f, USEC_PER_SEC);
	ask(&a, &ben, "GET", CMS, TABLE);
	assert_int_equal(a.status, 0);
}

/* One of a user at a time, users in turn: however many somebody asks for. */
static void users_get_their_lists_in_turn(void **state)
{
	struct ask a[6], b;

	(void)state;
	make_maps(MANY);
	answers = 0;
	for (size_t i = 0; i < ARRAY_SIZE(a); i++)
		ask(&a[i], &anna, "GET", CMS, TABLE);
	ask(&b, &ben, "GET", CMS, TABLE);
	fx_settle(&f);
	assert_in_range(b.turn, 1, 2);
	for (size_t i = 0; i < ARRAY_SIZE(a); i++) {
		assert_true(i == 0 || a[i].turn > a[i - 1].turn);
		assert_int_equal(rows_of(&a[i], "rows"), MANY);
		js_unref(a[i].json);
	}
	js_unref(b.json);
}

static void print(const char *text, struct sbuf *out)
{
	CLEANUP(js_unrefp) struct json *j = NULL;

	assert_int_equal(js_parse(text, strlen(text), &j, NULL), RC_OK);
	js_print_pretty(j, out, 2);
	assert_int_equal(sbuf_rc(out), RC_OK);
}

/* The parts that a list is made of stand as if it were printed at once. */
static void the_text_is_that_of_the_whole(void **state)
{
	static const char *const targets[] = {CMS "?limit=1&pretty=true", CMS "?pretty=true",
					      CMS "?pretty=true&labelSelector=no"};
	static const char *const forms[] = {TABLE, PARTIAL};

	(void)state;
	make_maps(SLICE + 3);
	for (size_t i = 0; i < ARRAY_SIZE(targets) * ARRAY_SIZE(forms); i++) {
		CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(1 << 20);
		struct fx_answer a;

		fx_call(&f, &a, &fx_admin, "GET", targets[i / 2], NULL, forms[i % 2], NULL);
		assert_int_equal(a.status, 200);
		print(a.text, &b);
		assert_string_equal(a.text, b.p);
		fx_answer_fini(&a);
	}
}

/* Whole or "internal error": never a part of the rows. */
static void running_out_of_memory_is_said(void **state)
{
	bool fired = true;

	(void)state;
	make_maps(SLICE + 3);
	for (unsigned nth = 1; fired; nth += nth < 200 ? 1 : 97) {
		struct fx_answer a;

		fx_call_nth(&f, &a, nth, "GET", CMS, NULL, TABLE, NULL);
		fired = a.fired;
		if (a.status != 500 &&
		    (a.status != 200 || js_len(js_get(a.json, "rows")) != SLICE + 3))
			fail_msg("allocation %u failed, the answer was %d: %s", nth, a.status,
				 a.text);
		assert_true(fired || a.status == 200);
		fx_answer_fini(&a);
	}
}

int main(void)
{
#define T(fn_) cmocka_unit_test_setup_teardown(fn_, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(items_of_kubernetes_kinds_have_no_kind),
		T(items_of_custom_kinds_have_it),
		T(events_rows_and_metadata_have_it),
		T(others_are_answered_between_the_slices),
		T(a_list_shows_one_moment),
		T(whoever_leaves_takes_his_list_along),
		T(users_get_their_lists_in_turn),
		T(the_text_is_that_of_the_whole),
		T(running_out_of_memory_is_said),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("lists", tests, NULL, NULL);
}
