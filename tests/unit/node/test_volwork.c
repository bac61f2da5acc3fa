/* Storage that hangs: how many threads it holds, and what is begun meanwhile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "virt/node/volwork.h"

#define LATE (20 * USEC_PER_MSEC)

struct world {
	struct loop *loop;
	struct volwork *w;
	pthread_mutex_t lock;
	unsigned n_inside, most_inside; /* on the storage that hangs */
	sem_t until;			/* it answers */
	unsigned n_hung, n_done, n_wanted;
};

static void begin(struct world *t)
{
	*t = (struct world){0};
	assert_int_equal(loop_new(&t->loop, LOOP_REAL, NULL), RC_OK);
	const struct volwork_config c = {.loop = t->loop,
					 .node_name = "n1",
					 .shared_dir = "/shared",
					 .local_dir = "/local",
					 .late_after = LATE};

	assert_int_equal(volwork_new(&t->w, &c, NULL), RC_OK);
	assert_int_equal(pthread_mutex_init(&t->lock, NULL), 0);
	assert_int_equal(sem_init(&t->until, 0, 0), 0);
}

static void end(struct world *t)
{
	pool_end(t->loop);
	volwork_free(t->w);
	loop_free(t->loop);
	assert_int_equal(pthread_mutex_destroy(&t->lock), 0);
	assert_int_equal(sem_destroy(&t->until), 0);
}

static void hang(void *arg)
{
	struct world *t = arg;

	(void)pthread_mutex_lock(&t->lock);
	t->n_inside++;
	t->most_inside = MAX(t->most_inside, t->n_inside);
	(void)pthread_mutex_unlock(&t->lock);
	while (sem_wait(&t->until) < 0)
		;
	(void)pthread_mutex_lock(&t->lock);
	t->n_inside--;
	(void)pthread_mutex_unlock(&t->lock);
}

static void hung(void *arg)
{
	struct world *t = arg;

	if (++t->n_hung == t->n_wanted)
		loop_quit(t->loop, 0);
}

static void nothing(void *arg)
{
	(void)arg;
}

static void done(void *arg)
{
	struct world *t = arg;

	if (++t->n_done == 3)
		loop_quit(t->loop, 0);
}

/* Ten claims, ten volumes to remove; the agent's other work goes on, and so does that of other storage. */
static void storage_that_hangs_holds_two_threads(void **state)
{
	struct world t;

	(void)state;
	begin(&t);
	for (unsigned i = 0; i < 10; i++) {
		assert_int_equal(volwork_run(t.w, "/shared", hang, hung, &t, NULL), RC_OK);
		assert_int_equal(volwork_remove(t.w, "/shared", hang, hung, &t, NULL), RC_OK);
	}
	assert_int_equal(pool_run_ordered(t.loop, 1, nothing, done, &t, NULL), RC_OK);
	assert_int_equal(volwork_run(t.w, "/local", nothing, done, &t, NULL), RC_OK);
	assert_int_equal(volwork_run(t.w, NULL, nothing, done, &t, NULL), RC_OK);
	assert_int_equal(loop_run(t.loop, NULL, NULL), RC_OK);
	assert_int_equal(t.n_done, 3);
	assert_int_equal(t.n_hung, 0);
	t.n_wanted = 20;
	for (unsigned i = 0; i < t.n_wanted; i++)
		assert_int_equal(sem_post(&t.until), 0);
	assert_int_equal(loop_run(t.loop, NULL, NULL), RC_OK);
	assert_int_equal(t.n_hung, 20);
	assert_true(t.most_inside <= 2);
	end(&t);
}

/* However many storages hang. */
static void one_thread_is_left_by_all(void **state)
{
	struct world t;

	(void)state;
	begin(&t);
	for (unsigned i = 0; i < 8; i++) {
		char root[16];

		(void)snprintf(root, sizeof(root), "/disks%u", i);
		assert_int_equal(volwork_run(t.w, root, hang, hung, &t, NULL), RC_OK);
		assert_int_equal(volwork_remove(t.w, root, hang, hung, &t, NULL), RC_OK);
	}
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(pool_run_ordered(t.loop, 1, nothing, done, &t, NULL), RC_OK);
	assert_int_equal(loop_run(t.loop, NULL, NULL), RC_OK);
	assert_int_equal(t.n_done, 3);
	t.n_wanted = 16;
	for (unsigned i = 0; i < t.n_wanted; i++)
		assert_int_equal(sem_post(&t.until), 0);
	assert_int_equal(loop_run(t.loop, NULL, NULL), RC_OK);
	assert_true(t.most_inside <= 3);
	end(&t);
}

static void on_time(void *arg)
{
	loop_quit(arg, 0);
}

/* Real time, since the pool has threads on a real loop only. */
static void what_does_not_answer_is_asked_no_more(void **state)
{
	struct world t;
	struct ev_src *timer = NULL;
	struct err err = {0};

	(void)state;
	begin(&t);
	t.n_wanted = 3;
	assert_int_equal(volwork_run(t.w, "/shared", hang, hung, &t, NULL), RC_OK);
	assert_string_equal(volwork_name(t.w, "/shared"), "the shared storage of node 'n1'");
	assert_null(volwork_name(t.w, "/disks"));
	assert_int_equal(
		ev_timer_after(t.loop, &timer, LATE + USEC_PER_MSEC, on_time, t.loop, NULL), RC_OK);
	assert_int_equal(loop_run(t.loop, NULL, NULL), RC_OK);
	assert_int_equal(volwork_run(t.w, "/shared", nothing, hung, &t, &err), RC_TIMEOUT);
	assert_string_equal(err.msg, "the shared storage of node 'n1' has not answered for 0 s");
	assert_int_equal(volwork_run(t.w, "/disks", nothing, hung, &t, NULL), RC_OK);
	assert_string_equal(volwork_name(t.w, "/disks"), "folder '/disks' of node 'n1'");
	assert_int_equal(volwork_remove(t.w, "/shared", nothing, hung, &t, NULL), RC_OK);
	assert_int_equal(sem_post(&t.until), 0);
	assert_int_equal(loop_run(t.loop, NULL, NULL), RC_OK);
	t.n_wanted = 4;
	assert_int_equal(volwork_run(t.w, "/shared", nothing, hung, &t, NULL), RC_OK);
	assert_int_equal(loop_run(t.loop, NULL, NULL), RC_OK);
	assert_int_equal(t.n_hung, 4);
	ev_src_free(timer);
	end(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(storage_that_hangs_holds_two_threads),
		cmocka_unit_test(one_thread_is_left_by_all),
		cmocka_unit_test(what_does_not_answer_is_asked_no_more),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
