#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/api.h"
#include "api/gen/api_types.h"
#include "base/mem.h"
#include "base/str.h"
#include "ev/ev.h"
#include "json/json.h"
#include "kube/kcache.h"
#include "kube/kobj.h"
#include "lib/torture.h"
#include "unit/kube/fake.h"

struct fixture {
	struct loop *loop;
	struct kube *kube;
	struct kcache *cache;
	struct kcache_handler *handler;
	struct fake fake;
	char log[512]; /* "+a -a ~a " */
	unsigned synced;
};

static struct fixture fx;

#define LIST  "GET /api/v1/pods?limit="
#define WATCH "GET /api/v1/pods?watch=true"
#define POD                                                                                       \
	"{\"metadata\":{\"name\":\"%s\",\"namespace\":\"ns\",\"uid\":\"%s\",\"resourceVersion\":" \
	"\"%d\","                                                                                 \
	"\"labels\":{\"app\":\"%s\"}}}"

static void on_change(const struct kobj *old, const struct kobj *new, void *arg)
{
	size_t n = strlen(fx.log);

	assert_ptr_equal(arg, &fx);
	snprintf(fx.log + n, sizeof(fx.log) - n, "%c%s ",
		 !old  ? '+'
		 : new ? '~'
		       : '-',
		 kobj_name(new ? new : old));
}

static void on_synced(void *arg)
{
	(void)arg;
	fx.synced++;
}

static void step(void)
{
	/* What is due now; time stands still. */
	bool did = true;

	while (did)
		assert_int_equal(loop_step(fx.loop, 0, &did, NULL), RC_OK);
}

static void wait_for(const char *prefix)
{
	for (int i = 0; i < 100; i++) {
		for (size_t n = fx.fake.n; n-- > 0;) {
			char line[600];

			snprintf(line, sizeof(line), "%s %s", fx.fake.ops[n].method,
				 fx.fake.ops[n].path);
			if (fx.fake.ops[n].open && str_has_prefix(line, prefix))
				return;
		}
		assert_int_equal(loop_step(fx.loop, USEC_PER_SEC, NULL, NULL), RC_OK);
	}
	fail_msg("'%s' was not asked", prefix);
}

static struct fake_op *want(const char *prefix)
{
	wait_for(prefix);
	return fake_find(&fx.fake, prefix);
}

static void setup_with(const struct kcache_source *src)
{
	const struct kcache_opts opts = {.seed = 3};

	memset(&fx, 0, sizeof(fx));
	assert_int_equal(loop_new(&fx.loop, LOOP_VIRTUAL, NULL), RC_OK);
	assert_int_equal(kube_new_over(&fx.kube, fx.loop, &fake_transport, &fx.fake, NULL), RC_OK);
	assert_int_equal(kcache_new(&fx.cache, fx.loop, fx.kube, &opts, NULL), RC_OK);
	assert_int_equal(kcache_add(fx.cache, src, NULL), RC_OK);
	assert_int_equal(kcache_index_label(fx.cache, &api_kind_Pod, "app", NULL), RC_OK);
	assert_int_equal(kcache_on(fx.cache, &fx.handler, &api_kind_Pod, on_change, &fx, NULL),
			 RC_OK);
	kcache_on_synced(fx.cache, on_synced, &fx);
	assert_int_equal(kcache_start(fx.cache, NULL), RC_OK);
}

static void setup(void)
{
	setup_with(&(struct kcache_source){.kind = &api_kind_Pod});
}

static void teardown(void)
{
	kcache_handler_free(fx.handler);
	kcache_free(fx.cache);
	kube_free(fx.kube);
	assert_int_equal(fake_open(&fx.fake), 0);
	loop_free(fx.loop);
}

/* The log since the last look. */
static void expect_log(const char *text)
{
	assert_string_equal(fx.log, text);
	*fx.log = '\0';
}

static void answer_list(int rv, const char *items)
{
	fake_answer(
		want(LIST), 200,
		"{\"kind\":\"PodList\",\"metadata\":{\"resourceVersion\":\"%d\"},\"items\":[%s]}",
		rv, items);
}

static const Pod *pod(const char *name)
{
	return kobj_typed(kcache_get(fx.cache, &api_kind_Pod, "ns", name));
}

static void start_with_a_at_5(void)
{
	char items[512];

	setup();
	snprintf(items, sizeof(items), POD, "a", "ua", 5, "x");
	answer_list(10, items);
	step();
	expect_log("+a ");
}

static void feed(const char *name, const char *uid, int rv, const char *app)
{
	CLEANUP(js_unrefp) struct json *j = NULL;
	CLEANUP(kobj_unrefp) struct kobj *o = NULL;
	char text[512];

	snprintf(text, sizeof(text), POD, name, uid, rv, app);
	assert_int_equal(js_parse(text, strlen(text), &j, NULL), RC_OK);
	assert_int_equal(kobj_decode(&o, &api_kind_Pod, j, NULL), RC_OK);
	assert_int_equal(kcache_feed(fx.cache, o, NULL), RC_OK);
}

static void a_list_in_pages_then_events(void **state)
{
	struct fake_op *op;
	char item[512];

	(void)state;
	setup();
	snprintf(item, sizeof(item), POD, "a", "ua", 5, "x");
	fake_answer(
		want(LIST), 200,
		"{\"metadata\":{\"resourceVersion\":\"10\",\"continue\":\"tok\"},\"items\":[%s]}",
		item);
	assert_false(kcache_is_synced(fx.cache));
	snprintf(item, sizeof(item), POD, "b", "ub", 6, "y");
	fake_answer(want("GET /api/v1/pods?continue=tok&limit="), 200,
		    "{\"metadata\":{\"resourceVersion\":\"10\"},\"items\":[%s]}", item);
	assert_true(kcache_is_synced(fx.cache));
	assert_int_equal(fx.synced, 0); /* deferred */
	step();
	assert_int_equal(fx.synced, 1);
	op = want(WATCH "&allowWatchBookmarks=true&resourceVersion=10&");
	fake_event(op, "ADDED", POD, "c", "uc", 11, "x");
	fake_event(op, "MODIFIED", POD, "a", "ua", 12, "y");
	fake_event(op, "DELETED", POD, "b", "ub", 13, "y");
	expect_log("+a +b +c ~a -b ");
	assert_non_null(pod("a"));
	assert_null(pod("b"));
	assert_int_equal(kcache_count(fx.cache, &api_kind_Pod), 2);
	teardown();
}

static void indexes_follow_the_objects(void **state)
{
	struct fake_op *op;
	struct kiter it;

	(void)state;
	start_with_a_at_5();
	op = want(WATCH);
	kcache_by(fx.cache, &api_kind_Pod, "app", "x", &it);
	assert_string_equal(kobj_name(kiter_next(&it)), "a");
	assert_null(kiter_next(&it));
	fake_event(op, "MODIFIED", POD, "a", "ua", 11, "z");
	kcache_by(fx.cache, &api_kind_Pod, "app", "x", &it);
	assert_null(kiter_next(&it));
	kcache_by(fx.cache, &api_kind_Pod, "app", "z", &it);
	assert_string_equal(kobj_name(kiter_next(&it)), "a");
	fake_event(op, "ADDED",
		   "{\"metadata\":{\"name\":\"b\",\"namespace\":\"other\",\"uid\":\"ub\","
		   "\"resourceVersion\":"
		   "\"12\",\"ownerReferences\":[{\"uid\":\"o1\",\"kind\":\"K\",\"name\":\"n\"},{"
		   "\"uid\":\"o2\"}]}}");
	kcache_by_owner(fx.cache, &api_kind_Pod, "o2", &it);
	assert_string_equal(kobj_name(kiter_next(&it)), "b");
	kcache_list(fx.cache, &api_kind_Pod, "other", &it);
	assert_string_equal(kobj_name(kiter_next(&it)), "b");
	assert_null(kiter_next(&it));
	kcache_list(fx.cache, &api_kind_Pod, NULL, &it);
	assert_string_equal(kobj_name(kiter_next(&it)), "a");
	assert_string_equal(kobj_name(kiter_next(&it)), "b");
	fake_event(op, "DELETED",
		   "{\"metadata\":{\"name\":\"b\",\"namespace\":\"other\",\"resourceVersion\":"
		   "\"13\"}}");
	kcache_by_owner(fx.cache, &api_kind_Pod, "o1", &it);
	assert_null(kiter_next(&it));
	teardown();
}

static void a_lost_watch_resumes_where_it_was(void **state)
{
	(void)state;
	start_with_a_at_5();
	fake_event(want(WATCH), "BOOKMARK", "{\"metadata\":{\"resourceVersion\":\"42\"}}");
	fake_fail(want(WATCH), RC_CLOSED);
	want(WATCH "&allowWatchBookmarks=true&resourceVersion=42&");
	assert_true(loop_now(fx.loop) > 0); /* not at once */
	assert_int_equal(kcache_stats(fx.cache).lists, 1);
	expect_log("");
	teardown();
}

static void failures_in_a_row_back_off(void **state)
{
	usec_t before, wait = 0;

	(void)state;
	setup();
	for (int i = 0; i < 12; i++) {
		before = loop_now(fx.loop);
		fake_fail(want(LIST), RC_CLOSED);
		want(LIST);
		wait = loop_now(fx.loop) - before;
		assert_true(wait <= 3 * USEC_PER_SEC + 100 * USEC_PER_MSEC);
	}
	assert_true(wait >= 1400 * USEC_PER_MSEC);
	answer_list(10, "");
	step();
	assert_int_equal(fx.synced, 1);
	teardown();
}

static void expired_lists_again_and_finds_what_was_missed(void **state)
{
	char items[1024];
	int n;

	(void)state;
	start_with_a_at_5();
	fake_event(want(WATCH), "ERROR", "{\"code\":410,\"reason\":\"Expired\"}");
	n = snprintf(items, sizeof(items), POD ",", "b", "ub", 15, "x");
	snprintf(items + n, sizeof(items) - (size_t)n, POD, "c", "uc", 16, "x");
	answer_list(20, items);
	expect_log("+b +c -a ");
	assert_int_equal(kcache_stats(fx.cache).expired, 1);
	want(WATCH "&allowWatchBookmarks=true&resourceVersion=20&");
	teardown();
}

static void duplicates_are_one_change(void **state)
{
	struct fake_op *op;

	(void)state;
	start_with_a_at_5();
	op = want(WATCH);
	fake_event(op, "MODIFIED", POD, "a", "ua", 11, "y");
	fake_event(op, "MODIFIED", POD, "a", "ua", 11, "y");
	fake_event(op, "ADDED", POD, "a", "ua", 11, "y");
	expect_log("~a ");
	assert_true(op->open);
	teardown();
}

static void a_stream_out_of_order_is_not_trusted(void **state)
{
	struct fake_op *op;
	char items[512];

	(void)state;
	start_with_a_at_5();
	op = want(WATCH);
	fake_event(op, "DELETED", POD, "a", "ua", 13, "x");
	fake_event(op, "MODIFIED", POD, "a", "ua", 12, "x"); /* must not bring it back */
	expect_log("-a ");
	assert_true(op->cancelled);
	snprintf(items, sizeof(items), POD, "b", "ub", 14, "x");
	answer_list(15, items);
	expect_log("+b ");
	teardown();
}

static void an_own_write_is_seen_at_once_and_not_undone(void **state)
{
	struct fake_op *op;

	(void)state;
	start_with_a_at_5();
	op = want(WATCH);
	feed("a", "ua", 15, "new");
	expect_log("~a ");
	fake_event(op, "MODIFIED", POD, "a", "ua", 12, "old"); /* the watch lags behind */
	expect_log("");
	assert_string_equal(api_map_get(&pod("a")->metadata.labels, "app"), "new");
	fake_event(op, "MODIFIED", POD, "a", "ua", 15, "new");
	expect_log("");
	fake_event(op, "MODIFIED", POD, "a", "ua", 16, "newer");
	expect_log("~a ");
	feed("a", "ua", 15, "new"); /* an answer that took its time */
	expect_log("");
	assert_string_equal(api_map_get(&pod("a")->metadata.labels, "app"), "newer");
	teardown();
}

static void an_own_create_survives_an_older_list(void **state)
{
	char items[512];

	(void)state;
	start_with_a_at_5();
	feed("b", "ub", 30, "x");
	expect_log("+b ");
	fake_event(want(WATCH), "ERROR", "{\"code\":410,\"reason\":\"Expired\"}");
	snprintf(items, sizeof(items), POD, "a", "ua", 5, "x");
	answer_list(25, items);
	expect_log("");
	assert_non_null(pod("b"));
	fake_event(want(WATCH), "DELETED", POD, "b", "ub", 31, "x");
	expect_log("-b ");
	/* A list newer than the write decides. */
	feed("c", "uc", 40, "x");
	expect_log("+c ");
	fake_event(want(WATCH), "ERROR", "{\"code\":410,\"reason\":\"Expired\"}");
	answer_list(50, items);
	expect_log("-c ");
	teardown();
}

static void an_own_delete_is_not_undone_by_late_events(void **state)
{
	struct fake_op *op;

	(void)state;
	start_with_a_at_5();
	op = want(WATCH);
	kcache_feed_gone(fx.cache, &api_kind_Pod, "ns", "a", "another");
	expect_log("");
	kcache_feed_gone(fx.cache, &api_kind_Pod, "ns", "a", "ua");
	expect_log("-a ");
	fake_event(op, "MODIFIED", POD, "a", "ua", 12, "x");
	expect_log("");
	/* A successor of the same name is another object. */
	feed("a", "ub", 20, "x");
	expect_log("+a ");
	fake_event(op, "DELETED", POD, "a", "ua", 13, "x");
	expect_log("");
	fake_event(op, "ADDED", POD, "a", "ub", 20, "x");
	fake_event(op, "DELETED", POD, "a", "ub", 21, "x");
	expect_log("-a ");
	teardown();
}

static void an_answer_that_says_deleted_removes(void **state)
{
	(void)state;
	start_with_a_at_5();
	CLEANUP(js_unrefp)
	struct json *j =
		js_pack("{s:{s:s,s:s,s:s,s:s,s:s,s:i}}", "metadata", "name", "a", "namespace", "ns",
			"uid", "ua", "resourceVersion", "20", "deletionTimestamp",
			"2026-01-01T00:00:00Z", "deletionGracePeriodSeconds", 30);
	CLEANUP(kobj_unrefp) struct kobj *going = NULL;
	CLEANUP(kobj_unrefp) struct kobj *gone = NULL;

	assert_int_equal(kobj_decode(&going, &api_kind_Pod, j, NULL), RC_OK);
	assert_int_equal(kcache_feed(fx.cache, going, NULL), RC_OK);
	expect_log("~a "); /* its grace period runs */
	assert_int_equal(js_set(js_get(j, "metadata"), "deletionGracePeriodSeconds", js_new_int(0)),
			 RC_OK);
	assert_int_equal(js_set(js_get(j, "metadata"), "resourceVersion", js_new_str("21")), RC_OK);
	assert_int_equal(kobj_decode(&gone, &api_kind_Pod, j, NULL), RC_OK);
	assert_int_equal(kcache_feed(fx.cache, gone, NULL), RC_OK);
	expect_log("-a ");
	teardown();
}

static void managed_fields_are_not_kept(void **state)
{
	(void)state;
	CLEANUP(js_unrefp)
	struct json *j = js_pack("{s:{s:s,s:s,s:[{s:s,s:s}]}}", "metadata", "name", "a", "uid",
				 "ua", "managedFields", "manager", "m", "operation", "Update");
	CLEANUP(kobj_unrefp) struct kobj *o = NULL;

	assert_int_equal(kobj_decode(&o, &api_kind_Pod, j, NULL), RC_OK);
	assert_string_equal(kobj_meta(o)->uid, "ua");
	assert_null(kobj_meta(o)->managedFields);
}

static void a_lagging_replica_is_asked_again(void **state)
{
	char old_item[512], item[512];

	(void)state;
	start_with_a_at_5();
	fake_event(want(WATCH), "MODIFIED", POD, "a", "ua", 50, "new");
	fake_event(want(WATCH), "ERROR", "{\"code\":410,\"reason\":\"Expired\"}");
	expect_log("~a ");
	snprintf(old_item, sizeof(old_item), POD, "a", "ua", 5, "x");
	snprintf(item, sizeof(item), POD, "a", "ua", 50, "new");
	answer_list(20, old_item);
	answer_list(21, old_item);
	expect_log("");
	answer_list(60, item);
	expect_log("");
	want(WATCH "&allowWatchBookmarks=true&resourceVersion=60&");
	teardown();
}

static void a_restored_server_wins_in_the_end(void **state)
{
	char items[512];

	(void)state;
	start_with_a_at_5();
	fake_event(want(WATCH), "MODIFIED", POD, "a", "ua", 500, "new");
	fake_fail(want(WATCH), RC_CLOSED);
	fake_event(want(WATCH), "ERROR", "{\"code\":410,\"reason\":\"Expired\"}");
	expect_log("~a ");
	snprintf(items, sizeof(items), POD, "b", "ub", 7, "x");
	for (int i = 0; i < 6; i++)
		answer_list(9, items);
	expect_log("+b -a ");
	want(WATCH "&allowWatchBookmarks=true&resourceVersion=9&");
	teardown();
}

/* Ferry's own server after `ferry restore`: versions go on behind all that was seen, objects keep theirs. */
static void a_restored_server_that_counts_on_is_believed_at_once(void **state)
{
	char items[512];

	(void)state;
	start_with_a_at_5();
	fake_event(want(WATCH), "MODIFIED", POD, "a", "ua", 500, "new");
	expect_log("~a ");
	feed("b", "ub", 501, "x"); /* an own write that the backup does not have */
	expect_log("+b ");
	fake_event(want(WATCH), "ERROR", "{\"code\":410,\"reason\":\"Expired\"}");
	snprintf(items, sizeof(items), POD, "a", "ua", 5, "x");
	answer_list(1000500, items);
	expect_log("~a -b ");
	assert_string_equal(api_map_get(&pod("a")->metadata.labels, "app"), "x");
	want(WATCH "&allowWatchBookmarks=true&resourceVersion=1000500&");
	fake_event(want(WATCH), "MODIFIED", POD, "a", "ua", 1000501, "y");
	expect_log("~a ");
	teardown();
}

static void a_narrowed_source_takes_own_writes_only_for_what_it_holds(void **state)
{
	char items[512];

	(void)state;
	setup_with(&(struct kcache_source){.kind = &api_kind_Pod,
					   .field_selector = "spec.nodeName=n1"});
	snprintf(items, sizeof(items), POD, "a", "ua", 5, "x");
	fake_answer(want("GET /api/v1/pods?fieldSelector=spec.nodeName%3Dn1&limit="), 200,
		    "{\"metadata\":{\"resourceVersion\":\"10\"},\"items\":[%s]}", items);
	expect_log("+a ");
	feed("b", "ub", 20, "x");
	expect_log("");
	feed("a", "ua", 21, "y");
	expect_log("~a ");
	teardown();
}

static void undecodable_objects_are_left_out(void **state)
{
	char items[1024];
	int n;

	(void)state;
	setup();
	n = snprintf(items, sizeof(items), "{\"metadata\":{\"name\":\"bad\",\"labels\":7}},{},");
	snprintf(items + n, sizeof(items) - (size_t)n, POD, "a", "ua", 5, "x");
	answer_list(10, items);
	expect_log("+a ");
	assert_int_equal(kcache_stats(fx.cache).bad, 2);
	teardown();
}

static void late_handlers_hear_of_what_is_there(void **state)
{
	struct kcache_handler *late = NULL;

	(void)state;
	start_with_a_at_5();
	assert_int_equal(kcache_on(fx.cache, &late, NULL, on_change, &fx, NULL), RC_OK);
	expect_log("+a ");
	kcache_handler_free(late);
	teardown();
}

static void freeing_everything_in_any_state_is_clean(void **state)
{
	(void)state;
	setup();
	teardown(); /* not begun */
	setup();
	want(LIST);
	teardown(); /* listing */
	start_with_a_at_5();
	want(WATCH);
	teardown(); /* watching */
	setup();
	fake_fail(want(LIST), RC_CLOSED);
	teardown(); /* waiting */
	assert_null(kcache_free(NULL));
}

/* Random truth, random faults; the cache must hold the truth in the end. */
struct truth {
	int rv;
	int obj_rv[6]; /* 0: absent */
	int uid[6];
	char history[400][400]; /* event lines by version */
};

static struct truth truth;
static uint64_t seed;

static unsigned pick(unsigned n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (unsigned)(seed % n);
}

static void truth_step(void)
{
	unsigned i = pick(6);
	char obj[300], name[2] = {(char)('a' + i), '\0'}, uid[16];
	const char *type = "ADDED";

	if (truth.rv >= 399)
		return;
	truth.rv++;
	if (!truth.obj_rv[i])
		truth.uid[i]++;
	else
		type = pick(3) ? "MODIFIED" : "DELETED";
	snprintf(uid, sizeof(uid), "u%u-%d", i, truth.uid[i]);
	truth.obj_rv[i] = *type == 'D' ? 0 : truth.rv;
	snprintf(obj, sizeof(obj), POD, name, uid, truth.rv, "x");
	snprintf(truth.history[truth.rv], sizeof(truth.history[0]),
		 "{\"type\":\"%s\",\"object\":%s}\n", type, obj);
	/* Half of the writes are our own: the answer comes before the event, or gets lost. */
	if (pick(2) && kcache_is_synced(fx.cache)) {
		if (*type == 'D')
			kcache_feed_gone(fx.cache, &api_kind_Pod, "ns", name, uid);
		else
			feed(name, uid, truth.rv, "x");
	}
}

static void serve(bool faults)
{
	for (size_t k = 0; k < fx.fake.n; k++) {
		struct fake_op *op = &fx.fake.ops[k];
		const char *from = strstr(op->path, "resourceVersion=");

		if (!op->open)
			continue;
		if (faults && !pick(6)) {
			fake_fail(op, RC_CLOSED);
		} else if (!op->data) {
			char items[4096] = "";
			size_t n = 0;

			for (unsigned i = 0; i < 6; i++) {
				char name[2] = {(char)('a' + i), '\0'}, uid[16];

				snprintf(uid, sizeof(uid), "u%u-%d", i, truth.uid[i]);
				if (truth.obj_rv[i])
					n += (size_t)snprintf(items + n, sizeof(items) - n,
							      "%s" POD, n ? "," : "", name, uid,
							      truth.obj_rv[i], "x");
			}
			fake_answer(op, 200,
				    "{\"metadata\":{\"resourceVersion\":\"%d\"},\"items\":[%s]}",
				    truth.rv, items);
		} else if (from) {
			/* The type field remembers how far this stream was served. */
			int at = *op->type ? atoi(op->type) : atoi(from + 16);

			if (faults && !pick(8)) {
				fake_event(op, "ERROR", "{\"code\":410,\"reason\":\"Expired\"}");
				continue;
			}
			while (op->open && at < truth.rv && (!faults || pick(4))) {
				fake_bytes(op, truth.history[++at]);
				if (op->open && faults && !pick(6))
					fake_bytes(op, truth.history[at]);
				snprintf(op->type, sizeof(op->type), "%d", at);
			}
		}
	}
}

static void compact(void)
{
	size_t n = 0;

	for (size_t i = 0; i < fx.fake.n; i++)
		n += fx.fake.ops[i].open;
	if (!n)
		fx.fake.n = 0;
}

static void random_faults_end_in_the_truth(void **state)
{
	(void)state;
	for (uint64_t round = 1; round <= 200; round++) {
		seed = round * 0x9e3779b97f4a7c15ull | 1;
		memset(&truth, 0, sizeof(truth));
		truth.rv = 1;
		setup();
		for (int i = 0; i < 120; i++) {
			if (pick(2))
				truth_step();
			assert_int_equal(loop_step(fx.loop, 10 * USEC_PER_MSEC, NULL, NULL), RC_OK);
			serve(true);
			compact();
			*fx.log = '\0';
		}
		for (int i = 0; i < 60; i++) {
			assert_int_equal(loop_step(fx.loop, 15 * USEC_PER_SEC, NULL, NULL), RC_OK);
			serve(false);
			compact();
		}
		for (unsigned i = 0; i < 6; i++) {
			const Pod *p = pod((char[]){(char)('a' + i), '\0'});

			if (!truth.obj_rv[i] != !p ||
			    (p && atoi(p->metadata.resourceVersion) != truth.obj_rv[i]))
				fail_msg("round %d: %c is %s, should be %d", (int)round, 'a' + i,
					 p ? p->metadata.resourceVersion : "absent",
					 truth.obj_rv[i]);
		}
		teardown();
	}
}

static enum rc use_once(void)
{
	CLEANUP(js_unrefp) struct json *j = NULL;
	struct kcache *c = NULL;
	struct kobj *o = NULL;
	char text[512];
	enum rc rc = kcache_new(&c, NULL, NULL, NULL, NULL);

	snprintf(text, sizeof(text), POD, "a", "ua", 1, "x");
	if (!rc)
		rc = kcache_add(c, &(struct kcache_source){.kind = &api_kind_Pod}, NULL);
	if (!rc)
		rc = kcache_index_label(c, &api_kind_Pod, "app", NULL);
	if (!rc)
		rc = js_parse(text, strlen(text), &j, NULL);
	if (!rc)
		rc = kobj_decode(&o, &api_kind_Pod, j, NULL);
	if (!rc)
		rc = kcache_put(c, o, NULL);
	if (!rc)
		rc = kobj_decode(&o, &api_kind_Pod, j, NULL);
	if (!rc)
		rc = kcache_put(c, o, NULL);
	kcache_free(c);
	return rc;
}

static void every_allocation_may_fail(void **state)
{
	(void)state;
	torture(use_once);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_list_in_pages_then_events),
		cmocka_unit_test(indexes_follow_the_objects),
		cmocka_unit_test(a_lost_watch_resumes_where_it_was),
		cmocka_unit_test(failures_in_a_row_back_off),
		cmocka_unit_test(expired_lists_again_and_finds_what_was_missed),
		cmocka_unit_test(duplicates_are_one_change),
		cmocka_unit_test(a_stream_out_of_order_is_not_trusted),
		cmocka_unit_test(an_own_write_is_seen_at_once_and_not_undone),
		cmocka_unit_test(an_own_create_survives_an_older_list),
		cmocka_unit_test(an_own_delete_is_not_undone_by_late_events),
		cmocka_unit_test(an_answer_that_says_deleted_removes),
		cmocka_unit_test(a_lagging_replica_is_asked_again),
		cmocka_unit_test(a_restored_server_that_counts_on_is_believed_at_once),
		cmocka_unit_test(a_restored_server_wins_in_the_end),
		cmocka_unit_test(a_narrowed_source_takes_own_writes_only_for_what_it_holds),
		cmocka_unit_test(undecodable_objects_are_left_out),
		cmocka_unit_test(late_handlers_hear_of_what_is_there),
		cmocka_unit_test(freeing_everything_in_any_state_is_clean),
		cmocka_unit_test(managed_fields_are_not_kept),
		cmocka_unit_test(random_faults_end_in_the_truth),
		cmocka_unit_test(every_allocation_may_fail),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("kcache", tests, NULL, NULL);
}
