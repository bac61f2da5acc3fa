/* Loss of power at every write, and an error of every call: nothing that anybody heard of is lost, no
 * resourceVersion is given twice, and a watch goes on where it was.
 *
 * A run is logged by a fault VFS.  At any point of the log, what a disk may hold then is written into a new
 * folder and opened.  FERRY_TEST_LONG: every point in every way; otherwise a few hundred of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "base/file.h"
#include "base/mem.h"
#include "history.h"
#include "json/json.h"

static bool is_long(void)
{
	return getenv("FERRY_TEST_LONG") != NULL;
}

/* What a crash after the first `length` operations leaves, opened and compared; then one more write. */
static void crash_at(struct history *run, size_t length, enum faultvfs_loss loss, uint64_t seed)
{
	static struct history h; /* large */
	char dir[128], path[160];
	struct err err = {0};
	int64_t known = faultvfs_mark_at(run->v, length);

	snprintf(dir, sizeof(dir), "%s/crash", run->dir);
	snprintf(path, sizeof(path), "%s/store.db", dir);
	hist_clean_dir(dir);
	faultvfs_replay(run->v, length, loss, seed, dir);
	h = *run;
	h.v = NULL;
	h.s = NULL;
	h.seed = seed * 7919 + 1;
	h.known = known;
	h.acks = h.refused = h.broken = 0;
	if (hist_open(&h, path, NULL, &err))
		fail_msg("crash at %zu, loss %d: %s", length, loss, err.msg);
	if (store_rev(h.s) < known)
		fail_msg("crash at %zu, loss %d: revision %lld was known, %lld is left", length,
			 loss, (long long)known, (long long)store_rev(h.s));
	hist_check(&h, is_long() ? 12 : 3);
	hist_rewind(&h, store_rev(h.s));
	hist_write(&h); /* asserts that its revision is new to everybody */
	hist_settle(&h);
	assert_int_equal(h.refused, 0);
	hist_check(&h, 2);
	h.s = store_close(h.s);
}

static void write_history(struct history *h, int n)
{
	struct err err = {0};

	if (hist_open(h, NULL, "fault", &err))
		fail_msg("%s", err.msg);
	for (int i = 0; i < n; i++) {
		hist_write(h);
		if (hist_rnd(h) % 3)
			hist_settle(h);
	}
	hist_settle(h);
	assert_int_equal(h->acks, n);
}

/* Every point, or about so many, evenly; each in every way that differs. */
static void crash_everywhere(struct history *h, size_t from, size_t to, size_t about)
{
	size_t stride = is_long() || to - from <= about ? 1 : (to - from) / about;
	unsigned turn = 0;

	for (size_t at = from; at <= to; at += stride) {
		bool settled = faultvfs_is_settled(h->v, at);

		for (unsigned l = 0; l < LOSS__MAX; l++) {
			if (settled && l)
				break;
			if (!settled && !is_long() && l != turn % LOSS__MAX)
				continue;
			crash_at(h, at, l, at * LOSS__MAX + l);
		}
		turn++;
	}
}

static void nothing_known_is_lost_with_the_power_at_any_write(void **state)
{
	(void)state;
	static struct history h;
	struct store_stats st;

	hist_up(&h, 20261130, "fault");
	write_history(&h, 300);
	store_get_stats(h.s, &st);
	assert_true(st.checkpoints > 10); /* or this would prove little */
	assert_true(store_oldest(h.s) > 0);
	crash_everywhere(&h, 0, faultvfs_length(h.v), 240);
	hist_down(&h);
	assert_int_equal(mem_live_blocks(), 0);
}

/* The end of a run writes as well: the last checkpoint, the log's deletion. */
static void nothing_known_is_lost_while_the_store_closes_and_opens(void **state)
{
	(void)state;
	static struct history h;

	hist_up(&h, 77, "fault");
	write_history(&h, 60);
	size_t from = faultvfs_length(h.v);

	h.s = store_close(h.s);
	assert_int_equal(hist_open(&h, NULL, "fault", NULL), RC_OK);
	for (int i = 0; i < 8; i++) {
		hist_write(&h);
		hist_settle(&h);
	}
	crash_everywhere(&h, from, faultvfs_length(h.v), 80);
	hist_down(&h);
	assert_int_equal(mem_live_blocks(), 0);
}

/* Each crash's leftovers are the next run's start: old frames in the log, half a checkpoint. */
static void power_fails_again_and_again(void **state)
{
	(void)state;
	static struct history h;
	char next[128];
	struct err err = {0};
	int rounds = is_long() ? 500 : 40;

	hist_up(&h, 31337, "fault");
	for (int round = 0; round < rounds && h.n < HIST_REVS - 100; round++) {
		int64_t before = h.known;

		if (hist_open(&h, NULL, "fault", &err))
			fail_msg("round %d: %s", round, err.msg);
		if (store_rev(h.s) < before)
			fail_msg("round %d: revision %lld was known, %lld is left", round,
				 (long long)before, (long long)store_rev(h.s));
		hist_check(&h, 4);
		hist_rewind(&h, store_rev(h.s));
		int n = 5 + (int)(hist_rnd(&h) % 40);

		for (int i = 0; i < n; i++) {
			hist_write(&h);
			if (hist_rnd(&h) % 3)
				hist_settle(&h);
		}
		size_t all = faultvfs_length(h.v);
		size_t at = all - hist_rnd(&h) % (all / 2 + 1);
		int64_t known = faultvfs_mark_at(h.v, at);

		snprintf(next, sizeof(next), "%s.next", h.dir);
		hist_clean_dir(next);
		faultvfs_replay(h.v, at, hist_rnd(&h) % LOSS__MAX, hist_rnd(&h), next);
		h.s = store_close(h.s);
		faultvfs_free(h.v);
		h.v = faultvfs_new("fault");
		/* The old folder is what the disk was: the new one takes its place. */
		assert_int_equal(file_remove_tree(h.dir, NULL), RC_OK);
		assert_int_equal(rename(next, h.dir), 0);
		faultvfs_adopt(h.v, h.dir);
		h.known = MAX(before, known);
	}
	hist_down(&h);
	assert_int_equal(mem_live_blocks(), 0);
}

/* ---- errors ------------------------------------------------------------------------------------ */

struct fault {
	int code;
	bool sticky;
	enum faultvfs_op only;
	const char *what;
};

/* The nth call fails while forty writes are made.  False: there were not so many calls. */
static bool run_with_fault(struct history *h, const struct fault *f, size_t nth)
{
	struct err err = {0};

	hist_clean_dir(h->dir);
	h->n = h->acks = h->refused = h->broken = 0;
	h->known = 0;
	h->seed = 4711;
	faultvfs_free(h->v);
	h->v = faultvfs_new("fault");
	if (hist_open(h, NULL, "fault", &err))
		fail_msg("%s", err.msg);
	faultvfs_fail(h->v, nth, f->code, f->sticky, f->only);
	for (int i = 0; i < 40 && !h->broken; i++) {
		hist_write(h);
		if (hist_rnd(h) % 3)
			hist_settle(h);
	}
	hist_settle(h);
	if (!faultvfs_has_failed(h->v))
		return false;
	assert_int_equal(h->broken, store_is_healthy(h->s) ? 0 : 1);
	faultvfs_fail(h->v, 0, 0, false, FAULT_OP__MAX);
	if (store_is_healthy(h->s)) { /* a fault that is over is over */
		hist_write(h);
		hist_settle(h);
		assert_true(h->known == h->rev_at[h->n - 1]);
		hist_check(h, 8);
	} else {
		assert_true(h->refused > 0);
		hist_write(h); /* asserts RC_CLOSED */
	}
	return true;
}

/* What the file has is what was known, or (of a broken store) what was on its way. */
static void check_after_fault(struct history *h)
{
	size_t length = faultvfs_length(h->v);
	int64_t known = h->known;
	struct err err = {0};

	for (unsigned l = 0; l < LOSS__MAX; l++)
		crash_at(h, length, l, length + l);
	h->s = store_close(h->s);
	if (hist_open(h, NULL, NULL, &err))
		fail_msg("after a fault: %s", err.msg);
	assert_true(store_rev(h->s) >= known);
	hist_check(h, 8);
	h->s = store_close(h->s);
}

static void an_error_of_any_call_loses_nothing_that_is_known(void **state)
{
	(void)state;
	static const struct fault faults[] = {
		{SQLITE_IOERR_WRITE, false, FAULT_WRITE, "write"},
		{SQLITE_IOERR_FSYNC, false, FAULT_SYNC, "sync"},
		{SQLITE_IOERR_TRUNCATE, false, FAULT_TRUNCATE, "truncate"},
		{SQLITE_FULL, false, FAULT_WRITE, "full once"},
		{SQLITE_FULL, true, FAULT_WRITE, "full"},
		{SQLITE_IOERR, true, FAULT_OP__MAX, "dead disk"},
	};
	static struct history h;

	for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++) {
		size_t step = is_long() ? 1 : faults[i].only == FAULT_SYNC ? 3 : 17, nth = 1;

		hist_up(&h, 1, "fault");
		while (run_with_fault(&h, &faults[i], nth)) {
			if (faults[i].code == SQLITE_FULL)
				assert_int_equal(h.broken, 0); /* a full disk is no damage */
			check_after_fault(&h);
			nth += step;
		}
		assert_true(nth > 1 || faults[i].only == FAULT_TRUNCATE);
		hist_down(&h);
	}
	assert_int_equal(mem_live_blocks(), 0);
}

/* A main file that cannot be written: the log has everything, and it is told. */
static void a_failing_checkpoint_is_counted_and_told(void **state)
{
	(void)state;
	static struct history h;
	struct store_stats st;

	hist_up(&h, 5, "fault");
	h.wal_pages = 1000000;
	assert_int_equal(hist_open(&h, NULL, "fault", NULL), RC_OK);
	for (int i = 0; i < 30; i++)
		hist_write(&h);
	hist_settle(&h);
	assert_null(store_checkpoint_error(h.s));
	h.s = store_close(h.s);
	h.wal_pages = 1; /* a checkpoint behind each commit */
	assert_int_equal(hist_open(&h, NULL, "fault", NULL), RC_OK);
	/* the second sync from now is the main file's: the commit's own comes first */
	faultvfs_fail(h.v, 3, SQLITE_IOERR_FSYNC, false, FAULT_SYNC);
	while (!faultvfs_has_failed(h.v)) {
		hist_write(&h);
		hist_settle(&h);
	}
	while (!store_checkpoint_error(h.s) && store_is_healthy(h.s))
		assert_int_equal(loop_step(h.loop, 0, NULL, NULL), RC_OK);
	assert_true(store_is_healthy(h.s));
	assert_non_null(strstr(store_checkpoint_error(h.s), "checkpoint"));
	store_get_stats(h.s, &st);
	assert_int_equal(st.checkpoint_failures, 1);
	/* What the failed sync lost is written again. */
	crash_at(&h, faultvfs_length(h.v), LOSS_UNSYNCED, 1);
	hist_write(&h);
	hist_settle(&h);
	bool did = true;

	while (did)
		assert_int_equal(loop_step(h.loop, 0, &did, NULL), RC_OK);
	assert_null(store_checkpoint_error(h.s));
	crash_at(&h, faultvfs_length(h.v), LOSS_UNSYNCED, 1);
	hist_down(&h);
	assert_int_equal(mem_live_blocks(), 0);
}

int main(void)
{
	js_use_mem();
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_known_is_lost_with_the_power_at_any_write),
		cmocka_unit_test(nothing_known_is_lost_while_the_store_closes_and_opens),
		cmocka_unit_test(power_fails_again_and_again),
		cmocka_unit_test(an_error_of_any_call_loses_nothing_that_is_known),
		cmocka_unit_test(a_failing_checkpoint_is_counted_and_told),
	};

	return cmocka_run_group_tests_name("power", tests, NULL, NULL);
}
