#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "ev/ev.h"

struct probe {
	struct loop *loop;
	struct ev_src *a, *b;
	char order[32];
	int status;
};

static void on_a(void *arg)
{
	struct probe *p = arg;

	strcat(p->order, "a");
	p->a = ev_src_free(p->a); /* inside its own callback */
}

static void on_b(void *arg)
{
	struct probe *p = arg;

	strcat(p->order, "b");
	if (strlen(p->order) < 4)
		ev_timer_rearm(p->b, 10 * USEC_PER_SEC);
}

static void virtual_time_jumps_and_keeps_order(void **state)
{
	struct probe p = {0};

	(void)state;
	assert_int_equal(loop_new(&p.loop, LOOP_VIRTUAL, NULL), RC_OK);
	assert_int_equal(ev_timer_after(p.loop, &p.b, 5 * USEC_PER_SEC, on_b, &p, NULL), RC_OK);
	assert_int_equal(ev_timer_after(p.loop, &p.a, 5 * USEC_PER_SEC, on_a, &p, NULL), RC_OK);
	assert_int_equal(loop_run(p.loop, NULL, NULL), RC_OK);
	assert_string_equal(p.order, "babb");
	assert_int_equal(loop_now(p.loop), 25 * USEC_PER_SEC);
	assert_null(p.a);
	ev_src_free(p.b);
	loop_free(p.loop);
}

static void virtual_step_stops_at_the_asked_time(void **state)
{
	struct probe p = {0};
	bool did = true;

	(void)state;
	assert_int_equal(loop_new(&p.loop, LOOP_VIRTUAL, NULL), RC_OK);
	assert_int_equal(ev_timer_after(p.loop, &p.a, USEC_PER_SEC, on_a, &p, NULL), RC_OK);
	assert_int_equal(loop_step(p.loop, 1000, &did, NULL), RC_OK);
	assert_false(did);
	assert_int_equal(loop_now(p.loop), 1000);
	assert_int_equal(loop_step(p.loop, USEC_INFINITY, &did, NULL), RC_OK);
	assert_true(did);
	loop_free(p.loop);
}

static void work(void *arg)
{
	strcat(((struct probe *)arg)->order, "w");
}

static void after(void *arg)
{
	struct probe *p = arg;

	strcat(p->order, "A");
	if (strlen(p->order) == 6)
		loop_quit(p->loop, 3);
}

static void pool_returns_to_the_loop(enum loop_kind kind)
{
	struct probe p = {0};
	int code = 0;

	assert_int_equal(loop_new(&p.loop, kind, NULL), RC_OK);
	for (int i = 0; i < 3; i++)
		assert_int_equal(pool_run_ordered(p.loop, 1, work, after, &p, NULL), RC_OK);
	assert_int_equal(loop_run(p.loop, &code, NULL), RC_OK);
	assert_int_equal(code, 3);
	assert_int_equal(strlen(p.order), 6);
	loop_free(p.loop);
}

static void a_pool_that_ends_does_what_it_has_and_takes_no_more(void **state)
{
	struct probe p = {0};

	(void)state;
	assert_int_equal(loop_new(&p.loop, LOOP_REAL, NULL), RC_OK);
	for (int i = 0; i < 5; i++)
		assert_int_equal(pool_run_ordered(p.loop, 1, work, after, &p, NULL), RC_OK);
	pool_end(p.loop);
	assert_string_equal(p.order, "wwwww"); /* all done, and nobody told */
	assert_int_equal(pool_run(p.loop, work, after, &p, NULL), RC_CLOSED);
	pool_end(p.loop);
	loop_free(p.loop);
	assert_string_equal(p.order, "wwwww");
}

/* Work on storage that hangs. */
struct stuck {
	struct probe *p;
	pthread_barrier_t *begun; /* NULL: nobody waits for its begin */
	sem_t *until;
};

static void hang(void *arg)
{
	struct stuck *s = arg;

	if (s->begun)
		(void)pthread_barrier_wait(s->begun);
	while (sem_wait(s->until) < 0)
		;
}

static void hung(void *arg)
{
	struct probe *p = ((struct stuck *)arg)->p;

	strcat(p->order, "h");
	if (strlen(p->order) == 9)
		loop_quit(p->loop, 0);
}

static void quit_after(void *arg)
{
	loop_quit(((struct probe *)arg)->loop, 0);
}

static void slow_work_leaves_threads_to_the_rest(void **state)
{
	struct probe p = {0};
	pthread_barrier_t begun;
	sem_t until;

	(void)state;
	assert_int_equal(loop_new(&p.loop, LOOP_REAL, NULL), RC_OK);
	assert_int_equal(pthread_barrier_init(&begun, NULL, 6), 0);
	assert_int_equal(sem_init(&until, 0, 0), 0);
	struct stuck first = {&p, &begun, &until}, more = {&p, NULL, &until};

	/* Three that have a thread each, and two others that stand as well; then more than there are threads. */
	for (unsigned i = 0; i < 5; i++)
		assert_int_equal(pool_run_ordered(p.loop, (i < 3 ? POOL_SLOW : 0) | (i + 1), hang,
						  hung, &first, NULL),
				 RC_OK);
	(void)pthread_barrier_wait(&begun);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(pool_run_ordered(p.loop, POOL_SLOW, hang, hung, &more, NULL),
				 RC_OK);
	assert_int_equal(pool_run(p.loop, work, quit_after, &p, NULL), RC_OK);
	assert_int_equal(loop_run(p.loop, NULL, NULL), RC_OK);
	assert_string_equal(p.order, "w"); /* the others stand still */
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(sem_post(&until), 0);
	assert_int_equal(loop_run(p.loop, NULL, NULL), RC_OK);
	assert_string_equal(p.order, "whhhhhhhh");
	loop_free(p.loop);
	assert_int_equal(sem_destroy(&until), 0);
	assert_int_equal(pthread_barrier_destroy(&begun), 0);
}

static void pool_works_on_both_loops(void **state)
{
	(void)state;
	pool_returns_to_the_loop(LOOP_REAL);
	pool_returns_to_the_loop(LOOP_VIRTUAL);
}

static void on_child(pid_t pid, int status, void *arg)
{
	struct probe *p = arg;

	(void)pid;
	p->status = status;
	loop_quit(p->loop, 0);
}

static void child_status_is_waits(void **state)
{
	struct probe p = {0};

	(void)state;
	assert_int_equal(loop_new(&p.loop, LOOP_REAL, NULL), RC_OK);
	for (int i = 0; i < 2; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			if (i)
				for (;;)
					pause();
			_exit(7);
		}
		assert_int_equal(ev_child(p.loop, &p.a, pid, on_child, &p, NULL), RC_OK);
		if (i)
			kill(pid, SIGKILL);
		assert_int_equal(loop_run(p.loop, NULL, NULL), RC_OK);
		if (i)
			assert_true(WIFSIGNALED(p.status) && WTERMSIG(p.status) == SIGKILL);
		else
			assert_true(WIFEXITED(p.status) && WEXITSTATUS(p.status) == 7);
		p.a = ev_src_free(p.a);
	}
	loop_free(p.loop);
}

static void a_virtual_loop_refuses_descriptors(void **state)
{
	struct probe p = {0};

	(void)state;
	assert_int_equal(loop_new(&p.loop, LOOP_VIRTUAL, NULL), RC_OK);
	assert_int_equal(ev_io(p.loop, &p.a, 0, EPOLLIN, NULL, NULL, NULL), RC_UNSUPPORTED);
	loop_free(p.loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(virtual_time_jumps_and_keeps_order),
		cmocka_unit_test(virtual_step_stops_at_the_asked_time),
		cmocka_unit_test(pool_works_on_both_loops),
		cmocka_unit_test(slow_work_leaves_threads_to_the_rest),
		cmocka_unit_test(a_pool_that_ends_does_what_it_has_and_takes_no_more),
		cmocka_unit_test(child_status_is_waits),
		cmocka_unit_test(a_virtual_loop_refuses_descriptors),
	};

	return cmocka_run_group_tests_name("ev", tests, NULL, NULL);
}
