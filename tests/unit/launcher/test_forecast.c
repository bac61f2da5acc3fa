/* What a guest writes, and how long its move takes: tables. */
#include "virt/migration/forecast.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* --- the curve --- */

struct point {
	int64_t ms, mib;
};

static struct written curve(const struct point *p, size_t n)
{
	struct written w = {0};

	for (size_t i = 0; i < n && p[i].ms; i++)
		written_add(&w, p[i].ms, p[i].mib * MIB);
	return w;
}

static void a_curve_is_straight_between_what_was_measured(void **state)
{
	static const struct {
		struct point known[3];
		int64_t ms, mib;
	} cases[] = {
		{{{0}}, 1000, 0},
		{{{1000, 32}}, 500, 16},
		{{{1000, 32}}, 1000, 32},
		{{{1000, 32}, {2000, 48}}, 1500, 40},
		{{{1000, 32}, {4000, 62}}, 2000, 42},
		/* one point: growth goes on, up to half as much again */
		{{{1000, 32}}, 1500, 48},
		{{{1000, 32}}, 2000, 48},
		{{{1000, 32}}, 60000, 48},
		/* two: as between the last two */
		{{{1000, 32}, {2000, 52}}, 3000, 72},
		{{{1000, 32}, {2000, 52}}, 60000, 78},
		/* it has slowed down to an eighth, and will again: a seventh of the last 7 MiB is to come */
		{{{1000, 56}, {2000, 63}}, 60000, 64},
		{{{1000, 32}, {2000, 64}, {4000, 64}}, 8000, 64},
		{{{1000, 0}}, 60000, 0},
		{{{1000, 32}}, -5, 0},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct written w = curve(cases[i].known, ARRAY_SIZE(cases[i].known));

		assert_in_range(written_in(&w, cases[i].ms) + 1, cases[i].mib * MIB,
				cases[i].mib * MIB + 1);
	}
}

static void the_newest_word_bends_the_others(void **state)
{
	static const struct {
		struct point known[4];
		int64_t ms, mib;
	} cases[] = {
		/* it writes more now: what came before is at least as much, in proportion */
		{{{1000, 8}, {4000, 8}, {1000, 40}}, 4000, 40},
		{{{1000, 8}, {4000, 100}}, 1000, 25},
		/* it has calmed down: no longer time sees more than this goes on for */
		{{{1000, 60}, {4000, 200}, {1000, 10}}, 4000, 40},
		{{{1000, 60}, {4000, 10}}, 1000, 10},
		/* nearly the same time is the same question */
		{{{1000, 60}, {1040, 20}}, 1040, 20},
		{{{1000, 60}, {1000, 0}}, 1000, 0},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct written w = curve(cases[i].known, ARRAY_SIZE(cases[i].known));

		assert_int_equal(written_in(&w, cases[i].ms), cases[i].mib * MIB);
	}
}

/* Whatever comes: within bounds, in order, never falling, never faster than from nothing to a point before. */
static void nonsense_leaves_a_curve(void **state)
{
	static const int64_t odd[] = {
		0, -1, INT64_MIN, INT64_MAX, 1, 3, 1000, (int64_t)1 << 60, INT64_MAX / 2, 7, 60000};
	struct written w = {0};

	(void)state;
	for (size_t i = 0; i < 3000; i++) {
		int64_t ms = i < 121 ? odd[i / 11] : (int64_t)i * 7919 % 90000;
		int64_t bytes = i < 121 ? odd[i % 11] : (int64_t)i * 104729 % 4096 * (int64_t)MIB;

		written_add(&w, ms, bytes);
		assert_in_range(w.n, 0, WRITTEN_POINTS);
		for (size_t k = 0; k < w.n; k++) {
			assert_true(w.at[k].ms > 0 && w.at[k].bytes >= 0);
			assert_true(!k || w.at[k].ms > w.at[k - 1].ms);
			assert_true(!k || w.at[k].bytes >= w.at[k - 1].bytes);
			assert_true(!k || (double)w.at[k].bytes / (double)w.at[k].ms <=
						  (double)w.at[k - 1].bytes /
								  (double)w.at[k - 1].ms *
								  1.000001 +
							  1);
		}
		assert_true(written_in(&w, 5000) >= 0 && written_in(&w, INT64_MAX) >= 0);
	}
}

/* --- the move --- */

static struct forecast_in on_a_link_of_64(int64_t passes, int64_t remaining_mib)
{
	struct forecast_in in = {.stats = {.total = 1024 * MIB,
					   .rate = 64 * MIB,
					   .passes = passes,
					   .remaining = remaining_mib * MIB},
				 .limit_ms = 300,
				 .pass_bytes = 1024 * MIB};

	assert_int_equal(mig_options_decode(NULL, &in.options, NULL), RC_OK);
	in.options.fixed_pause_ms = 50;
	return in;
}

static void a_forecast_follows_from_rates(void **state)
{
	static const struct {
		int64_t passes, remaining_mib, dirty_mib;
		enum forecast_verdict verdict;
		int64_t pause_ms, left_ms;
	} cases[] = {
		/* the first pass, nothing was measured */
		{1, 1024, 0, FORECAST_CONVERGES, 16050, 16050},
		/* what is left fits into 300 ms: 19.2 MiB */
		{3, 16, 40, FORECAST_CONVERGES, 300, 300},
		/* half of each pass is left: 512, 256, 128, 64, 32, 16 MiB: 992/64 s, and the last in the pause */
		{2, 512, 32, FORECAST_CONVERGES, 8050, 15500 + 250 + 50},
		/* as fast as the link, or nearly */
		{2, 512, 64, FORECAST_DIVERGES, 8050, -1},
		{4, 100, 62, FORECAST_DIVERGES, 1612, -1},
		{9, 512, 500, FORECAST_DIVERGES, 8050, -1},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct forecast_in in = on_a_link_of_64(cases[i].passes, cases[i].remaining_mib);

		in.stats.dirty_rate = cases[i].dirty_mib * MIB;
		struct forecast f = forecast_of(&in);

		assert_int_equal(f.verdict, cases[i].verdict);
		assert_int_equal(f.pause_ms, cases[i].pause_ms);
		assert_int_equal(f.left_ms, cases[i].left_ms);
	}
	struct forecast_in none = on_a_link_of_64(0, 0);

	none.stats.rate = 0;
	assert_int_equal(forecast_of(&none).verdict, FORECAST_UNKNOWN);
	assert_int_equal(forecast_of(&none).pause_ms, -1);
}

/* Of 64 MiB that are written again and again, from the first pass on: 512 MiB of it are left. */
static void a_working_set_is_sent_again(void **state)
{
	static const struct {
		struct point known[3];
		bool post_copy;
		int64_t left_ms;
	} cases[] = {
		{{{1000, 0}}, false, 8050},
		/* 64 MiB, then 32, then 16 in the pause: half the link */
		{{{1000, 32}, {2000, 64}, {4000, 64}}, false, 8000 + 1000 + 500 + 250 + 50},
		{{{1000, 32}, {2000, 64}, {4000, 64}}, true, 8000 + 1000 + 500 + 250 + 50},
		/* only a second is known: 48 MiB at most, 24, 12 in the pause */
		{{{1000, 32}}, false, 8000 + 750 + 375 + 187 + 50},
		/* it will never do; or goes over in post-copy: at the end of the first pass */
		{{{1000, 64}, {2000, 64}}, false, -1},
		{{{1000, 64}, {2000, 64}}, true, 8000 + 1000 + 50},
		/* nearly: when the second pass leaves more than 70 % of the first */
		{{{1000, 56}, {2000, 64}, {4000, 64}}, true, 8000 + 1000 + 875 + 50},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct forecast_in in = on_a_link_of_64(1, 512);

		in.written = curve(cases[i].known, ARRAY_SIZE(cases[i].known));
		in.options.post_copy = cases[i].post_copy;
		assert_int_equal(forecast_left(&in), cases[i].left_ms);
	}
}

/* 10 % of what was looked through was empty: so is the rest, of the first pass only. */
static void empty_pages_take_no_time(void **state)
{
	struct forecast_in in = on_a_link_of_64(1, 512);

	(void)state;
	in.stats.normal_pages = 900;
	in.stats.zero_pages = 100;
	assert_int_equal(forecast_left(&in), 7200 + 50);
	in.stats.passes = 2;
	assert_int_equal(forecast_left(&in), 8000 + 50);
	in.stats.passes = 1;
	in.stats.normal_pages = 0; /* nothing else so far: that says little */
	assert_int_equal(forecast_left(&in), 8000 + 50);
}

/* The limit on the pause is doubled while passes shrink, so what fits is known only later. */
static void the_limit_of_the_pause_grows_with_the_passes(void **state)
{
	struct forecast_in in = on_a_link_of_64(1, 512);

	(void)state;
	in.written = curve((struct point[]){{1000, 32}, {2000, 64}, {4000, 64}}, 3);
	in.limit_ms = 8;
	/* 64, 32, 16, 8, 4 MiB; the last in 62 ms, which is less than 64 */
	assert_int_equal(forecast_left(&in), 8000 + 1000 + 500 + 250 + 125 + 62 + 50);
}

/* Figures of a guest of which each second of writing touches 8 MiB. */
static void the_time_that_is_left_is_counted_down_within_a_pass(void **state)
{
	struct forecast_in in = on_a_link_of_64(1, 512);

	(void)state;
	assert_int_equal(forecast_left(&in), 8050);
	in.stats.remaining = 256 * MIB;
	in.pass_ms = 4000;
	assert_int_equal(forecast_left(&in), 4050); /* it is taken to write nothing */
	in.stats.passes = 2;
	in.stats.dirty_rate = 8 * MIB;
	in.stats.remaining = 64 * MIB;
	in.pass_ms = 0;
	/* a second; the 8 MiB of it go over in the pause */
	assert_int_equal(forecast_left(&in), 1000 + 125 + 50);
	/* two seconds in, the last 8 MiB of the pass: what was written since its beginning comes after it */
	in.stats.remaining = 8 * MIB;
	in.pass_ms = 2000;
	assert_int_equal(forecast_left(&in), 125 + 265 + 50);
	/* post-copy: only what is left */
	assert_int_equal(forecast_post_copy(&in), 125);
	in.stats.rate = 0;
	assert_int_equal(forecast_left(&in), -1);
	assert_int_equal(forecast_post_copy(&in), -1);
}

/* QEMU's rate is of the last moments: a low one after a short pass is not the link's. */
static void a_moment_of_a_slow_link_is_no_verdict(void **state)
{
	struct forecast_in in = on_a_link_of_64(5, 24);

	(void)state;
	in.stats.rate = 31 * MIB;
	in.stats.dirty_rate = 34 * MIB;
	in.stats.transferred = 640 * MIB;
	in.stats.elapsed_ms = 10500;
	in.stats.setup_ms = 500;
	assert_int_equal(forecast_of(&in).verdict, FORECAST_CONVERGES);
	assert_int_equal(forecast_of(&in).pause_ms, 425);
	in.stats.transferred = 320 * MIB; /* the whole move was that slow */
	assert_int_equal(forecast_of(&in).verdict, FORECAST_DIVERGES);
}

/* What fills buffers in the first moment says nothing of the link; a link that has become faster counts. */
static void the_first_moment_is_not_the_links_rate(void **state)
{
	static const struct {
		int64_t elapsed_ms, transferred_mib, now_mib, post_copy_ms;
	} cases[] = {
		{1500, 94, 70, 1000}, /* 80 in the last 1250 ms */
		{1500, 94, 60, 1000},
		{1500, 94, 128, 500},
		{600, 34, 34, 640000 / 566}, /* too early: as before */
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct forecast_in in = on_a_link_of_64(1, 64);

		in.since_ms = 250;
		in.since_bytes = 14 * MIB;
		in.stats.elapsed_ms = cases[i].elapsed_ms;
		in.stats.transferred = cases[i].transferred_mib * MIB;
		in.stats.rate = cases[i].now_mib * MIB;
		assert_in_range(forecast_post_copy(&in), cases[i].post_copy_ms - 2,
				cases[i].post_copy_ms + 2);
	}
}

static void nonsense_is_no_forecast_and_no_end(void **state)
{
	static const int64_t odd[] = {0, -1, INT64_MIN / 2, INT64_MAX / 2, 1, (int64_t)1 << 50};
	const size_t n = ARRAY_SIZE(odd);

	(void)state;
	for (size_t i = 0; i < n * n * n * n; i++) {
		struct forecast_in in = on_a_link_of_64(odd[i % n] % 100, 0);

		in.stats.remaining = odd[i % n];
		in.stats.total = odd[i / n % n];
		in.stats.rate = odd[i / n / n % n];
		in.stats.dirty_rate = in.pass_bytes = odd[i / n / n / n % n];
		in.stats.elapsed_ms = in.pass_ms = odd[i / n % n] / 1000000;
		in.options.post_copy = i & 1;
		written_add(&in.written, 1000, (i & 2) ? odd[i % n] : -1);
		struct forecast f = forecast_of(&in);

		assert_true(f.verdict <= FORECAST_DIVERGES);
		(void)forecast_left(&in);
		(void)forecast_post_copy(&in);
		assert_in_range(forecast_measure_next(&in, 1), 0, 60);
	}
}

static void it_is_measured_as_long_as_the_first_pass_is(void **state)
{
	static const struct {
		int64_t passes, remaining_mib, pass_ms, last, next;
	} cases[] = {
		{1, 1024, 0, 0, 1},	  /* nothing has gone over: perhaps it takes long */
		{1, 768, 1000, 0, 1},	  /* three more seconds */
		{1, 768, 1000, 1, 2},	  /* of which two */
		{1, 768, 1000, 2, 2},	  /* four are too many */
		{1, 256, 300, 0, 0},	  /* over in a moment */
		{1, 1000, 10000, 1, 4},	  /* there is time for much more */
		{1, 1000, 10000, 32, 60}, /* QEMU measures a minute at most */
		{1, 1000, 10000, 60, 60}, /* and again, as long as it goes on */
		{1, 512, 15000, 8, 12},	  /* what there is time for */
		{2, 768, 1000, 1, 0},	  {1, 0, 1000, 0, 0},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct forecast_in in = on_a_link_of_64(cases[i].passes, cases[i].remaining_mib);

		in.pass_ms = cases[i].pass_ms;
		assert_int_equal(forecast_measure_next(&in, cases[i].last), cases[i].next);
	}
}

static void a_pause_is_planned_below_the_declared_limit(void **state)
{
	int64_t fixed = pause_fixed_cost(-1, 70, 1000000, 100000000); /* 10 ms of it were bytes */

	(void)state;
	assert_int_equal(fixed, 60);
	assert_int_equal(pause_fixed_cost(60, 30, 0, 100), 53); /* a quarter of the way to 30 */
	assert_int_equal(pause_fixed_cost(-1, 5, 1000000, 100000000), 0); /* never below nothing */
	assert_int_equal(pause_fixed_cost(-1, 5, 1000, 0), 5);
	assert_int_equal(pause_budget(300, fixed), 240);
	assert_int_equal(pause_budget(300, -1), 300);
	assert_int_equal(pause_budget(50, fixed),
			 1); /* below the floor: QEMU plans for nothing, nearly */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_curve_is_straight_between_what_was_measured),
		cmocka_unit_test(the_newest_word_bends_the_others),
		cmocka_unit_test(nonsense_leaves_a_curve),
		cmocka_unit_test(a_forecast_follows_from_rates),
		cmocka_unit_test(a_working_set_is_sent_again),
		cmocka_unit_test(empty_pages_take_no_time),
		cmocka_unit_test(the_limit_of_the_pause_grows_with_the_passes),
		cmocka_unit_test(the_time_that_is_left_is_counted_down_within_a_pass),
		cmocka_unit_test(a_moment_of_a_slow_link_is_no_verdict),
		cmocka_unit_test(the_first_moment_is_not_the_links_rate),
		cmocka_unit_test(nonsense_is_no_forecast_and_no_end),
		cmocka_unit_test(it_is_measured_as_long_as_the_first_pass_is),
		cmocka_unit_test(a_pause_is_planned_below_the_declared_limit),
	};

	return cmocka_run_group_tests_name("launcher_forecast", tests, NULL, NULL);
}
