/* Does a move get on?  Passes are a saw tooth, disks come before memory; what of it the VMI shows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

#include "api/api.h"
#include "base/str.h"
#include "json/json.h"
#include "lib/jsontext.h"
#include "lib/torture.h"
#include "virt/migration/progress.h"
#include "virt/node/migration_int.h"

#define MB    (1000 * 1000LL)
#define LIMIT (150 * USEC_PER_SEC) /* KubeVirt's progressTimeout */

/* Each pass as a falling line, looked at each second, as the agent does.  The second at which nothing has got on for
 * LIMIT, -1: never. */
static int64_t stalls_at(const int64_t *passes, size_t n, int64_t first, int64_t mb_per_second)
{
	struct mig_progress p = {0};
	usec_t now = USEC_PER_SEC;

	for (size_t i = 0; i < n; i++)
		for (int64_t left = passes[i] * MB; left > 0;
		     left -= mb_per_second * MB, now += USEC_PER_SEC) {
			mig_progress_note(&p, first + (int64_t)i, left, now);
			if (mig_progress_is_stalled(&p, LIMIT, now))
				return (int64_t)(now / USEC_PER_SEC);
		}
	return -1;
}

/* VEP 248 and Nova: sampled by the clock, each of these was called stuck at one time or another: the end of the first
 * pass has nearly nothing left, and no moment of a later one beats that. */
static void a_series_that_shrinks_is_never_stalled(void **state)
{
	static const int64_t slowly[] = {8000, 5000, 4600, 4200, 3900, 3600, 3300, 3000, 2500, 900},
			     noisy[] = {8000, 4000, 4100, 3700, 3750, 3300, 3400, 2900, 2000, 500},
			     one[] = {100000};

	(void)state;
	assert_int_equal(stalls_at(slowly, ARRAY_SIZE(slowly), 1, 40), -1); /* 100 s each */
	assert_int_equal(stalls_at(noisy, ARRAY_SIZE(noisy), 1, 40), -1);
	assert_int_equal(stalls_at(one, 1, 1, 40), -1); /* longer than the limit by far */
}

static void a_flat_series_is_called_so_within_three_passes(void **state)
{
	static const int64_t flat[] = {8000, 4000, 4000, 4000, 4000, 4000},
			     nearly[] = {8000, 4000, 3950, 3900, 3870, 3860},
			     all_again[] = {8000, 8000, 8000, 8000};

	(void)state;
	/* The second pass is the best one and ends after 300 s: from then on nothing gets on. */
	assert_in_range(stalls_at(flat, ARRAY_SIZE(flat), 1, 40), 300 + 150, 300 + 152);
	assert_in_range(stalls_at(nearly, ARRAY_SIZE(nearly), 1, 40), 300 + 150, 300 + 152);
	assert_in_range(stalls_at(all_again, ARRAY_SIZE(all_again), 1, 40), 200 + 150, 200 + 152);
}

static void a_link_that_carries_nothing_is_noticed_in_any_pass(void **state)
{
	(void)state;
	for (int64_t pass = 0; pass < 3; pass++) {
		struct mig_progress p = {0};

		mig_progress_note(&p, pass, 500 * MB, USEC_PER_SEC);
		mig_progress_note(&p, pass, 400 * MB, 2 * USEC_PER_SEC);
		mig_progress_note(&p, pass, 400 * MB, 2 * USEC_PER_SEC + LIMIT);
		assert_false(mig_progress_is_stalled(&p, LIMIT, 2 * USEC_PER_SEC + LIMIT));
		mig_progress_note(&p, pass, 400 * MB, 3 * USEC_PER_SEC + LIMIT);
		assert_true(mig_progress_is_stalled(&p, LIMIT, 3 * USEC_PER_SEC + LIMIT));
	}
	assert_false(mig_progress_is_stalled(&(struct mig_progress){0}, LIMIT, 9 * LIMIT));
}

/* Nova's progress timeout watched memory only: block migrations always looked stuck.  Here 4 GiB of disk take longer
 * than the limit, and the memory that follows is larger than what was left of the disk. */
static void a_disk_that_is_copied_gets_on_and_memory_begins_anew(void **state)
{
	struct mig_progress p = {0};
	usec_t now = USEC_PER_SEC;

	(void)state;
	for (int64_t left = 4295 * MB; left > 0; left -= 20 * MB, now += USEC_PER_SEC) {
		mig_progress_note(&p, 0, left, now);
		assert_false(mig_progress_is_stalled(&p, LIMIT, now));
	}
	assert_true(now > LIMIT);
	for (int64_t left = 8000 * MB; left > 0; left -= 20 * MB, now += USEC_PER_SEC) {
		mig_progress_note(&p, 1, left, now);
		assert_false(mig_progress_is_stalled(&p, LIMIT, now));
	}
}

static void the_rate_of_the_disks_is_bytes_by_time(void **state)
{
	struct mig_rate r = {0};

	(void)state;
	mig_rate_note(&r, 0, 10 * USEC_PER_SEC);
	assert_int_equal(r.per_second, 0);
	mig_rate_note(&r, 30 * MB, 11 * USEC_PER_SEC);
	assert_int_equal(r.per_second, 30 * MB);
	mig_rate_note(&r, 31 * MB, 11 * USEC_PER_SEC + USEC_PER_MSEC); /* too soon to say */
	assert_int_equal(r.per_second, 30 * MB);
	mig_rate_note(&r, 130 * MB, 13 * USEC_PER_SEC);
	assert_int_equal(r.per_second, 50 * MB);
	mig_rate_note(&r, 100 * MB, 14 * USEC_PER_SEC); /* a new launcher counts anew */
	assert_int_equal(r.per_second, 50 * MB);
}

static void data_are_counted_in_whole_gigabytes_with_the_disks(void **state)
{
	(void)state;
	assert_int_equal(mig_gigabytes(0, 0), 1);
	assert_int_equal(mig_gigabytes(128 << 20, 0), 1);
	assert_int_equal(mig_gigabytes(1 << 30, 0), 2); /* as KubeVirt counts */
	assert_int_equal(mig_gigabytes(1 << 30, 10000 * MB), 12);
	assert_int_equal(mig_gigabytes(500 * MB, 500 * MB), 1);
}

/* --- what the VMI shows --- */

static FerryMigrationStatus *fill(FerryMigrationStatus *out, const char *text)
{
	struct json *data = json_of(text);

	assert_int_equal(mig_fill_stats(out, data, 1000, 0), RC_OK);
	js_unref(data);
	return out;
}

#define DISKS(done_)                                                                      \
	"'stats':{'memory':{'total':0,'remaining':0,'passes':0},'disks':[{'name':'root'," \
	"'total':3000,'done':" done_ "}]}"
#define MEMORY(left_, pass_)                                                                      \
	"'stats':{'memory':{'total':1000,'remaining':" left_ ",'transferred':700,'passes':" pass_ \
	",'dirtyBytesPerSecond':60,'bytesPerSecond':64,'throttlePercent':20},'disks':["           \
	"{'name':'root','total':3000,'done':3000}]}"

static void the_percentage_is_of_all_that_goes_over_and_never_falls(void **state)
{
	static const struct {
		const char *data;
		int64_t percent;
	} steps[] = {
		{"{'phase':'disks'," DISKS("0") "}", 0},
		{"{'phase':'disks'," DISKS("1500") "}", 37},
		{"{'phase':'disks'," DISKS("2900") "}", 72},
		{"{'phase':'memory'," MEMORY("1000", "1") "}", 75},
		{"{'phase':'memory'," MEMORY("200", "1") "}", 95},
		{"{'phase':'memory'," MEMORY("600", "2") "}", 95}, /* what the guest wrote */
		{"{'phase':'memory'," MEMORY("0", "2") "}", 99},   /* 100 is the end's */
	};
	FerryMigrationStatus *s = FerryMigrationStatus_new();

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		fill(s, steps[i].data);
		if (s->percent != steps[i].percent)
			fail_msg("step %zu: %lld", i, (long long)s->percent);
	}
	assert_int_equal(s->n_disks, 1);
	assert_int_equal(s->disks[0].remainingBytes, 0);
	FerryMigrationStatus_free(s);
}

/* kubevirt/kubevirt#3504: at the end of the first pass it is known that it will not end by itself, and what is done. */
static void a_guest_that_outruns_the_link_is_told_with_figures_and_remedy(void **state)
{
	FerryMigrationStatus *s = FerryMigrationStatus_new();

	(void)state;
	fill(s,
	     "{'phase':'memory','downtimeLimitMs':300,'forecast':{'verdict':'Diverges','pauseMs':"
	     "9000,'leftMs':-1}," MEMORY("600", "2") "}");
	assert_string_equal(s->forecast, "Diverges");
	assert_int_equal(s->passes, 2);
	assert_int_equal(s->dirtyBytesPerSecond, 60);
	assert_int_equal(s->linkBytesPerSecond, 64);
	assert_int_equal(s->throttlePercent, 20);
	assert_int_equal(s->pauseLimitMs, 300);
	assert_int_equal(s->expectedPauseMs, 9000);
	assert_false(s->has_secondsLeft);
	FerryMigrationStatus_free(s);
}

/* Twice what the rate promises and ten seconds, but no more rate than the limit allows, and no more than ten minutes. */
static void a_pause_may_take_twice_what_is_left(void **state)
{
	static const struct {
		const char *data;
		int64_t ms;
	} cases[] = {
		{"{}", 10000},
		{"{'stats':{'memory':{'remaining':104857600,'bytesPerSecond':10485760}}}", 30000},
		{"{'maxBandwidthBytes':0,'stats':{'memory':{'remaining':104857600,"
		 "'bytesPerSecond':10485760}}}",
		 30000},
		{"{'maxBandwidthBytes':5242880,'stats':{'memory':{'remaining':104857600,"
		 "'bytesPerSecond':10485760}}}",
		 50000},
		{"{'stats':{'memory':{'remaining':104857600,'bytesPerSecond':0}}}", 210000},
		{"{'stats':{'memory':{'remaining':1099511627776,'bytesPerSecond':10485760}}}",
		 600000},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(js_unrefp) struct json *data = json_of(cases[i].data);

		assert_int_equal(mig_finish_timeout(data), cases[i].ms);
	}
}

static enum rc fill_once(void)
{
	struct json *data = js_pack("{s:s, s:{s:[{s:s, s:i}]}}", "phase", "disks", "stats", "disks",
				    "name", "root", "total", 3000);
	FerryMigrationStatus *s = FerryMigrationStatus_new();
	enum rc rc = data && s ? mig_fill_stats(s, data, 1000, 0) : RC_NOMEM;

	FerryMigrationStatus_free(s);
	js_unref(data);
	return rc;
}

static void running_out_of_memory_is_said(void **state)
{
	(void)state;
	torture(fill_once);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_series_that_shrinks_is_never_stalled),
		cmocka_unit_test(a_flat_series_is_called_so_within_three_passes),
		cmocka_unit_test(a_link_that_carries_nothing_is_noticed_in_any_pass),
		cmocka_unit_test(a_disk_that_is_copied_gets_on_and_memory_begins_anew),
		cmocka_unit_test(the_rate_of_the_disks_is_bytes_by_time),
		cmocka_unit_test(data_are_counted_in_whole_gigabytes_with_the_disks),
		cmocka_unit_test(the_percentage_is_of_all_that_goes_over_and_never_falls),
		cmocka_unit_test(a_guest_that_outruns_the_link_is_told_with_figures_and_remedy),
		cmocka_unit_test(a_pause_may_take_twice_what_is_left),
		cmocka_unit_test(running_out_of_memory_is_said),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("progress", tests, NULL, NULL);
}
