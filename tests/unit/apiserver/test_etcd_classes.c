/* The classes of faults that etcd's robustness tests and users found in etcd, each asked of this store.
 *
 * etcd/tests/robustness/README.md lists the bugs; most are about watches over compaction and restarts, about
 * compaction meeting a crash, and about answers that were not durable.  What needs several members (a minority
 * that serves, membership, lost leaders) has no counterpart here; nor have leases and locks of the store's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "base/mem.h"
#include "base/str.h"
#include "cluster/apiserver/restore.h"
#include "fixture.h"
#include "history.h"

#define CMS "/api/v1/namespaces/default/configmaps"

static void count(void *arg, const struct store_event *ev)
{
	size_t *n = arg;

	(void)ev;
	++*n;
}

/* "Watch on a compacted revision gets events from the next one on": it must be an error, with no event before. */
static void a_watch_from_before_the_compaction_gets_an_error_and_no_event(void **state)
{
	(void)state;
	static struct history h;
	size_t n = 0;

	hist_up(&h, 101, NULL);
	h.ring = 20;
	assert_int_equal(hist_open(&h, NULL, NULL, NULL), RC_OK);
	for (int i = 0; i < 100; i++) {
		hist_write(&h);
		hist_settle(&h);
	}
	int64_t oldest = store_oldest(h.s);

	for (int64_t rev = 0; rev < oldest; rev++)
		assert_int_equal(store_replay(h.s, "pods", rev, count, &n, NULL), RC_EXPIRED);
	assert_int_equal(n, 0);
	hist_check(&h, 100);
	hist_down(&h);
	assert_int_equal(mem_live_blocks(), 0);
}

/* "Watch lost events after a restart": the history in memory is empty then.  What the file still has is served;
 * what it has not is refused, though nothing in memory says that there ever was more. */
static void a_watch_over_a_restart_with_an_empty_ring_has_no_gap(void **state)
{
	(void)state;
	static struct history h;

	hist_up(&h, 102, NULL);
	h.ring = 30;
	for (int start = 0; start < 6; start++) {
		h.ring = start % 2 ? 1 : 30; /* 1: all but the last event is forgotten */
		assert_int_equal(hist_open(&h, NULL, NULL, NULL), RC_OK);
		if (h.n)
			hist_check(&h, 40);
		for (int i = 0; i < 25; i++) {
			hist_write(&h);
			hist_settle(&h);
		}
		h.s = store_close(h.s);
	}
	hist_down(&h);
	assert_int_equal(mem_live_blocks(), 0);
}

/* "Revision inconsistency after a crash in compaction": the rows go, the mark does not, or the reverse.  Every
 * write of a commit that forgets rows, with the power lost behind it. */
static void a_crash_in_compaction_forgets_all_or_nothing(void **state)
{
	(void)state;
	static struct history h, after;
	char dir[128], path[160];

	hist_up(&h, 103, "fault");
	h.ring = 10;
	assert_int_equal(hist_open(&h, NULL, "fault", NULL), RC_OK);
	for (int i = 0; i < 40; i++) {
		hist_write(&h);
		hist_settle(&h);
	}
	size_t from = faultvfs_length(h.v);
	struct store_stats before, then;

	store_get_stats(h.s, &before);
	for (int i = 0; i < 3; i++) { /* each forgets what the one before it put out of the ring */
		hist_write(&h);
		hist_settle(&h);
	}
	store_get_stats(h.s, &then);
	assert_true(then.log_rows < before.log_rows + 3); /* rows did go */
	snprintf(dir, sizeof(dir), "%s/crash", h.dir);
	snprintf(path, sizeof(path), "%s/store.db", dir);
	for (size_t at = from; at <= faultvfs_length(h.v); at++)
		for (unsigned l = 0; l < LOSS__MAX; l++) {
			hist_clean_dir(dir);
			faultvfs_replay(h.v, at, l, at * 31 + l, dir);
			after = h;
			after.s = NULL;
			after.v = NULL;
			after.known = faultvfs_mark_at(h.v, at);
			assert_int_equal(hist_open(&after, path, NULL, NULL), RC_OK);
			assert_true(store_rev(after.s) >= after.known);
			hist_check(&after, 12);
			after.s = store_close(after.s);
		}
	hist_down(&h);
	assert_int_equal(mem_live_blocks(), 0);
}

/* "Previous value missing in the event after compaction", "create after delete": a key that is deleted and made
 * again, with the tombstone in the log, going out of it, and gone. */
static void a_key_is_made_again_behind_its_tombstone(void **state)
{
	(void)state;
	static struct history h;

	hist_up(&h, 104, NULL);
	h.ring = 6;
	for (int round = 0; round < 12; round++) {
		assert_int_equal(hist_open(&h, NULL, NULL, NULL), RC_OK);
		assert_int_equal(hist_set(&h, 1, 100 + round), RC_OK);
		hist_settle(&h);
		assert_int_equal(hist_set(&h, 1, 0), RC_OK);
		if (round % 2) /* in one commit with the deletion */
			assert_int_equal(hist_set(&h, 1, 500 + round), RC_OK);
		hist_settle(&h);
		for (int i = 0; i < round;
		     i++) { /* the tombstone moves through the ring and out of the log */
			assert_int_equal(hist_set(&h, 2, 1 + round * 100 + i), RC_OK);
			hist_settle(&h);
		}
		hist_check(&h, 20);
		if (round % 2) {
			assert_int_equal(hist_set(&h, 1, 0), RC_OK);
			hist_settle(&h);
		}
		if (round % 3 == 0) {
			h.s = store_close(h.s);
			assert_int_equal(hist_open(&h, NULL, NULL, NULL), RC_OK);
			hist_check(&h, 20);
		}
		h.s = store_close(h.s);
	}
	hist_down(&h);
	assert_int_equal(mem_live_blocks(), 0);
}

/* "Events travel back in time": a refused write's number is never delivered, later numbers are greater.
 * history.c asserts for each event that it is newer than all before; here writes are refused in between. */
static void events_never_travel_back_over_refused_writes_and_restarts(void **state)
{
	(void)state;
	static struct history h;

	hist_up(&h, 105, "fault");
	for (int start = 0; start < 5; start++) {
		assert_int_equal(hist_open(&h, NULL, "fault", NULL), RC_OK);
		for (int i = 0; i < 30; i++) {
			if (i % 7 == 3)
				faultvfs_fail(h.v, 1 + (size_t)(i % 3), SQLITE_FULL, false,
					      FAULT_WRITE);
			hist_write(&h);
			if (i % 2)
				hist_settle(&h);
		}
		hist_settle(&h);
		hist_check(&h, 20);
		h.s = store_close(h.s);
	}
	assert_true(h.refused > 5);
	hist_down(&h);
	assert_int_equal(mem_live_blocks(), 0);
}

/* "Watch from a future revision starts at once after a restore": revisions of a life that is undone. */
static void a_watch_from_a_life_that_a_restore_undid_is_told(void **state)
{
	(void)state;
	static struct history h;
	struct store_restore_info info;
	size_t n = 0;
	char copy[160];

	hist_up(&h, 106, NULL);
	assert_int_equal(hist_open(&h, NULL, NULL, NULL), RC_OK);
	for (int i = 0; i < 20; i++)
		hist_write(&h);
	hist_settle(&h);
	h.s = store_close(h.s);
	snprintf(copy, sizeof(copy), "%s/copy.db", h.dir);
	assert_int_equal(rename(h.path, copy), 0);
	assert_int_equal(store_restore(copy, h.path, 1, &info, NULL), RC_OK);
	/* A fresh machine knows nothing of what clients saw: whatever they saw is behind. */
	assert_int_equal(hist_open(&h, NULL, NULL, NULL), RC_OK);
	for (int64_t rev = 1; rev < 100000000000LL; rev *= 7)
		assert_int_equal(store_replay(h.s, "pods", rev, count, &n, NULL), RC_EXPIRED);
	assert_int_equal(n, 0);
	hist_down(&h);
	assert_int_equal(mem_live_blocks(), 0);
}

/* "Progress notification ahead of its events": a bookmark says that all before it was delivered. */
static void a_bookmark_never_overtakes_an_event(void **state)
{
	(void)state;
	struct fx f;
	struct fx_watch *w = mem_alloc(sizeof(*w));

	assert_non_null(w);
	fx_up(&f, NULL);
	fx_watch_start(&f, w, CMS "?watch=1&allowWatchBookmarks=true", NULL);
	for (int i = 0; i < 20; i++) {
		char body[160];

		snprintf(
			body, sizeof(body),
			"{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"c%d\"}}",
			i);
		js_unref(fx_do(&f, 201, "POST", CMS, body));
		if (i % 3)
			continue;
		/* something that this watch does not show: only a bookmark tells of it */
		snprintf(
			body, sizeof(body),
			"{\"kind\":\"Secret\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"s%d\"}}",
			i);
		js_unref(fx_do(&f, 201, "POST", "/api/v1/namespaces/default/secrets", body));
		fx_sleep(&f, 61 * USEC_PER_SEC);
	}
	fx_settle(&f);
	int64_t last = 0;
	size_t bookmarks = 0, events = 0;

	for (size_t i = 0; i < w->n; i++) {
		bool is_bookmark = str_eq(fx_event_type(w, i), "BOOKMARK");
		int64_t rev = 0;

		assert_int_equal(str_to_i64(js_str(js_at(fx_event_obj(w, i), "metadata",
							 "resourceVersion", NULL)),
					    0, INT64_MAX, &rev, NULL),
				 RC_OK);
		assert_true(is_bookmark ? rev >= last : rev > last);
		last = rev;
		bookmarks += is_bookmark;
		events += !is_bookmark;
	}
	assert_int_equal(events, 20);
	assert_true(bookmarks >= 5);
	fx_watch_stop(w);
	fx_down(&f);
}

/* ---- answers that were not durable --------------------------------------------------------------------- */

struct late {
	int status;
	char text[400];
	bool answered;
};

static void late_answer(void *arg, const struct apisrv_answer *a)
{
	struct late *x = arg;

	assert_false(x->answered);
	x->answered = true;
	x->status = a->status;
	snprintf(x->text, sizeof(x->text), "%.*s", (int)a->n, a->body);
}

static const struct apisrv_sink late_sink = {.answer = late_answer};

static void ask(struct apisrv *srv, struct late *x, const char *method, const char *target,
		const char *body)
{
	struct apisrv_request r = {.method = method,
				   .target = target,
				   .body = body,
				   .n_body = body ? strlen(body) : 0,
				   .user = &fx_admin};

	memset(x, 0, sizeof(*x));
	apisrv_handle(srv, &r, &late_sink, x);
}

static void run_until(struct history *h, const struct late *x)
{
	for (int i = 0; i < 1000 && !x->answered; i++)
		assert_int_equal(loop_step(h->loop, 0, NULL, NULL), RC_OK);
	assert_true(x->answered);
}

/* "Read of a value that was lost afterwards": also a refusal tells something, and so does an update that changes
 * nothing.  Neither is told before it is durable; and when the write that it looked at fails, it is void. */
static void a_refusal_waits_until_what_it_saw_is_durable(void **state)
{
	(void)state;
	static struct history h;
	struct apisrv *srv = NULL;
	struct late made, again, gone, same;
	static const char body[] =
		"{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"a\"}}";

	hist_up(&h, 107, "fault");
	assert_int_equal(hist_open(&h, NULL, "fault", NULL), RC_OK);
	struct apisrv_config config = {.store = h.s, .seed = 7};

	assert_int_equal(apisrv_new(&srv, h.loop, &config, NULL), RC_OK);
	while (!store_is_idle(h.s))
		assert_int_equal(loop_step(h.loop, 0, NULL, NULL), RC_OK);
	ask(srv, &made, "POST", CMS, body);
	ask(srv, &again, "POST", CMS, body);
	ask(srv, &same, "PUT", CMS "/a", body);
	assert_false(made.answered || again.answered || same.answered);
	run_until(&h, &again);
	run_until(&h, &same);
	assert_true(made.answered);
	assert_int_equal(made.status, 201);
	assert_int_equal(again.status, 409);
	assert_int_equal(same.status, 200);
	/* at once, when nothing is under way */
	ask(srv, &again, "POST", CMS, body);
	assert_true(again.answered);
	/* what is deleted, but not on disk yet */
	ask(srv, &made, "DELETE", CMS "/a", NULL);
	ask(srv, &gone, "DELETE", CMS "/a", NULL);
	assert_false(gone.answered);
	run_until(&h, &gone);
	assert_int_equal(gone.status, 404);
	/* the disk is full: there is nothing that exists already */
	faultvfs_fail(h.v, 2, SQLITE_FULL, false, FAULT_WRITE);
	ask(srv, &made, "POST", CMS, body);
	ask(srv, &again, "POST", CMS, body);
	run_until(&h, &made);
	run_until(&h, &again);
	assert_int_equal(made.status, 500);
	assert_int_equal(again.status, 503);
	assert_non_null(
		strstr(again.text, "a write that this answer depended on failed: try again"));
	/* a client that leaves meanwhile, a server that ends meanwhile */
	ask(srv, &made, "POST", CMS, body);
	struct apisrv_request r = {.method = "POST",
				   .target = CMS,
				   .body = body,
				   .n_body = strlen(body),
				   .user = &fx_admin};

	memset(&again, 0, sizeof(again));
	struct apisrv_call *call = apisrv_handle(srv, &r, &late_sink, &again);

	assert_non_null(call);
	apisrv_cancel(call);
	run_until(&h, &made);
	assert_false(again.answered);
	ask(srv, &made, "DELETE", CMS "/a", NULL);
	ask(srv, &gone, "DELETE", CMS "/a", NULL);
	srv = apisrv_free(srv);
	assert_false(gone.answered);
	hist_down(&h);
	assert_int_equal(mem_live_blocks(), 0);
}

int main(void)
{
	js_use_mem();
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_watch_from_before_the_compaction_gets_an_error_and_no_event),
		cmocka_unit_test(a_watch_over_a_restart_with_an_empty_ring_has_no_gap),
		cmocka_unit_test(a_crash_in_compaction_forgets_all_or_nothing),
		cmocka_unit_test(a_key_is_made_again_behind_its_tombstone),
		cmocka_unit_test(events_never_travel_back_over_refused_writes_and_restarts),
		cmocka_unit_test(a_watch_from_a_life_that_a_restore_undid_is_told),
		cmocka_unit_test(a_bookmark_never_overtakes_an_event),
		cmocka_unit_test(a_refusal_waits_until_what_it_saw_is_durable),
	};

	return cmocka_run_group_tests_name("etcd_classes", tests, NULL, NULL);
}
