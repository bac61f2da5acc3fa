#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "ctl/workq.h"
#include "ev/ev.h"
#include "lib/torture.h"

struct fixture {
	struct loop *loop;
	struct workq *q;
	unsigned wakes;
};

static void on_ready(void *arg)
{
	((struct fixture *)arg)->wakes++;
}

static void setup(struct fixture *f)
{
	static const struct workq_opts opts = {.seed = 7,
					       .now_min = USEC_PER_MSEC,
					       .backoff_min = 100 * USEC_PER_MSEC,
					       .backoff_max = 10 * USEC_PER_SEC};

	memset(f, 0, sizeof(*f));
	assert_int_equal(loop_new(&f->loop, LOOP_VIRTUAL, NULL), RC_OK);
	assert_int_equal(workq_new(&f->q, f->loop, "test", &opts), RC_OK);
	workq_on_ready(f->q, on_ready, f);
}

static void teardown(struct fixture *f)
{
	workq_free(f->q);
	loop_free(f->loop);
}

static void run(struct fixture *f)
{
	assert_int_equal(loop_run(f->loop, NULL, NULL), RC_OK);
}

static void adds_collapse(void **state)
{
	struct fixture f;
	const char *key;

	(void)state;
	setup(&f);
	for (int i = 0; i < 5; i++)
		assert_int_equal(workq_add(f.q, "ns/a"), RC_OK);
	assert_int_equal(workq_depth(f.q), 1);
	assert_int_equal(f.wakes, 0); /* never from inside a call */
	run(&f);
	assert_int_equal(f.wakes, 1);
	key = workq_get(f.q);
	assert_string_equal(key, "ns/a");
	assert_null(workq_get(f.q));
	workq_done(f.q, key, RETRY_NO);
	assert_int_equal(workq_depth(f.q) + workq_busy(f.q) + workq_waiting(f.q), 0);
	teardown(&f);
}

static void a_busy_key_is_not_handed_out_again_until_done(void **state)
{
	struct fixture f;
	const char *key;

	(void)state;
	setup(&f);
	assert_int_equal(workq_add(f.q, "a"), RC_OK);
	key = workq_get(f.q);
	assert_int_equal(workq_add(f.q, "a"), RC_OK);
	assert_int_equal(workq_add_after(f.q, "a", USEC_PER_SEC), RC_OK);
	assert_null(workq_get(f.q));
	workq_done(f.q, key, RETRY_NO);
	key = workq_get(f.q);
	assert_string_equal(key, "a");
	workq_done(f.q, key, RETRY_NO);
	assert_null(workq_get(f.q));
	teardown(&f);
}

static void of_several_delays_the_earliest_counts(void **state)
{
	struct fixture f;

	(void)state;
	setup(&f);
	assert_int_equal(workq_add_after(f.q, "a", 9 * USEC_PER_SEC), RC_OK);
	assert_int_equal(workq_add_after(f.q, "b", 5 * USEC_PER_SEC), RC_OK);
	assert_int_equal(workq_add_after(f.q, "a", 3 * USEC_PER_SEC), RC_OK);
	assert_int_equal(workq_add_after(f.q, "a", 7 * USEC_PER_SEC), RC_OK);
	assert_int_equal(workq_waiting(f.q), 2);
	while (!workq_depth(f.q))
		assert_int_equal(loop_step(f.loop, USEC_INFINITY, NULL, NULL), RC_OK);
	assert_int_equal(loop_now(f.loop), 3 * USEC_PER_SEC);
	assert_string_equal(workq_get(f.q), "a");
	workq_done(f.q, "a", RETRY_NO);
	run(&f);
	assert_int_equal(loop_now(f.loop), 5 * USEC_PER_SEC);
	assert_string_equal(workq_get(f.q), "b");
	workq_done(f.q, "b", RETRY_NO);
	teardown(&f);
}

static void an_event_does_not_wait_for_the_back_off(void **state)
{
	struct fixture f;
	const char *key;

	(void)state;
	setup(&f);
	assert_int_equal(workq_add(f.q, "a"), RC_OK);
	workq_done(f.q, workq_get(f.q), RETRY_BACKOFF);
	assert_null(workq_get(f.q));
	assert_int_equal(workq_failures(f.q, "a"), 1);
	assert_int_equal(workq_add(f.q, "a"), RC_OK);
	key = workq_get(f.q);
	assert_string_equal(key, "a");
	assert_int_equal(workq_waiting(f.q), 0);
	workq_done(f.q, key, RETRY_NO);
	assert_int_equal(workq_failures(f.q, "a"), 0);
	teardown(&f);
}

/* Delay until the key is due again after one more failure. */
static usec_t fail_once(struct fixture *f, enum retry how)
{
	usec_t start = loop_now(f->loop);

	workq_done(f->q, workq_get(f->q), how);
	run(f);
	assert_int_equal(workq_depth(f->q), 1);
	return loop_now(f->loop) - start;
}

static void back_off_doubles_up_to_its_maximum(void **state)
{
	struct fixture f;
	usec_t want = 100 * USEC_PER_MSEC;

	(void)state;
	setup(&f);
	assert_int_equal(workq_add(f.q, "a"), RC_OK);
	for (int i = 0; i < 12; i++) {
		usec_t got = fail_once(&f, RETRY_BACKOFF);

		assert_in_range(got, want, want + want / 4);
		want = MIN(2 * want, 10 * USEC_PER_SEC);
	}
	workq_done(f.q, workq_get(f.q), RETRY_NO);
	assert_int_equal(workq_add(f.q, "a"), RC_OK);
	assert_in_range(fail_once(&f, RETRY_NOW), USEC_PER_MSEC, 1250); /* forgotten */
	assert_in_range(fail_once(&f, RETRY_NOW), 2 * USEC_PER_MSEC, 2500);
	teardown(&f);
}

/* Against a model: for each key whether it is dirty and busy. */
static void random_use_keeps_the_invariants(void **state)
{
	struct fixture f;
	bool dirty[8] = {0}, busy[8] = {0};

	(void)state;
	setup(&f);
	srandom(42);
	for (int step = 0; step < 200000; step++) {
		unsigned i = (unsigned)random() % 8;
		char key[8];
		const char *got;

		snprintf(key, sizeof(key), "k%u", i);
		switch (random() % 3) {
		case 0:
			assert_int_equal(workq_add(f.q, key), RC_OK);
			dirty[i] = true;
			break;
		case 1:
			got = workq_get(f.q);
			if (!got) {
				for (i = 0; i < 8; i++)
					assert_true(!dirty[i] || busy[i]);
				break;
			}
			i = (unsigned)(got[1] - '0');
			assert_true(dirty[i] && !busy[i]);
			dirty[i] = false;
			busy[i] = true;
			break;
		default:
			if (!busy[i])
				break;
			workq_done(f.q, key, RETRY_NO);
			busy[i] = false;
		}
	}
	teardown(&f);
}

static enum rc use_once(void)
{
	struct loop *loop = NULL;
	struct workq *q = NULL;
	const struct workq_opts opts = {.seed = 1};
	const char *key;
	enum rc rc = loop_new(&loop, LOOP_VIRTUAL, NULL);

	if (!rc)
		rc = workq_new(&q, loop, "t", &opts);
	if (!rc)
		rc = workq_add(q, "a");
	if (!rc)
		rc = workq_add_after(q, "b", 1);
	if (!rc) {
		key = workq_get(q);
		workq_done(q, key, RETRY_BACKOFF);
		rc = loop_run(loop, NULL, NULL);
	}
	workq_free(q);
	loop_free(loop);
	return rc;
}

static void every_allocation_may_fail(void **state)
{
	(void)state;
	torture(use_once);
	assert_null(workq_free(NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(adds_collapse),
		cmocka_unit_test(a_busy_key_is_not_handed_out_again_until_done),
		cmocka_unit_test(of_several_delays_the_earliest_counts),
		cmocka_unit_test(an_event_does_not_wait_for_the_back_off),
		cmocka_unit_test(back_off_doubles_up_to_its_maximum),
		cmocka_unit_test(random_use_keeps_the_invariants),
		cmocka_unit_test(every_allocation_may_fail),
	};

	return cmocka_run_group_tests_name("workq", tests, NULL, NULL);
}
