/* An agent's start: pods that are not in the API any more, also when the storage that they have something on hangs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "cluster/podruntime/podruntime.h"
#include "cluster/podruntime/podsweep.h"
#include "ev/ev.h"

enum { PODS_MAX = 4 };

struct world {
	char base[64], state[80], run[80];
	struct loop *loop;
	struct podrt_config cfg;
	struct podrt_gone *waiting[PODS_MAX]; /* for storage */
	unsigned n_ended, n_waiting, n_removals;
	bool has_begun;
};

static enum rc sweep(const char *uid, const char *run_dir, void *arg, struct err *err)
{
	struct world *w = arg;

	(void)err;
	assert_int_equal(strncmp(run_dir, w->run, strlen(w->run)), 0);
	assert_string_not_equal(uid, "lives");
	w->n_ended++;
	return RC_OK;
}

static enum rc sweep_disks(struct podrt_gone *g, const char *uid, void *arg, struct err *err)
{
	struct world *w = arg;

	assert_string_not_equal(uid, "lives");
	if (strcmp(uid, "refused") == 0)
		return err_set(err, RC_TIMEOUT, "no storage");
	w->waiting[w->n_waiting++] = g;
	return RC_OK;
}

static enum rc on_storage(bool is_removal, pool_fn work, pool_fn after, void *job, void *arg,
			  struct err *err)
{
	struct world *w = arg;

	assert_true(is_removal);
	w->n_removals++;
	return pool_run(w->loop, work, after, job, err);
}

static const struct podrt_workload workload = {
	.sweep = sweep, .sweep_disks = sweep_disks, .on_storage = on_storage};

static void make(const char *base, const char *uid)
{
	char path[200];

	(void)snprintf(path, sizeof(path), "%s/pods/%s", base, uid);
	assert_int_equal(file_mkdir_p(path, 0755, NULL), RC_OK);
}

static bool is_there(const char *base, const char *uid)
{
	char path[200];

	(void)snprintf(path, sizeof(path), "%s/pods/%s", base, uid);
	return access(path, F_OK) == 0;
}

static void begin(struct world *w)
{
	*w = (struct world){.base = "/tmp/test-podsweep-XXXXXX"};
	assert_non_null(mkdtemp(w->base));
	(void)snprintf(w->state, sizeof(w->state), "%s/state", w->base);
	(void)snprintf(w->run, sizeof(w->run), "%s/run", w->base);
	assert_int_equal(loop_new(&w->loop, LOOP_VIRTUAL, NULL), RC_OK);
	w->cfg = (struct podrt_config){.loop = w->loop,
				       .state_dir = w->state,
				       .run_dir = w->run,
				       .net_queue = 1,
				       .workload = &workload,
				       .arg = w};
}

static void end(struct world *w)
{
	loop_free(w->loop);
	assert_int_equal(file_remove_tree(w->base, NULL), RC_OK);
}

static void begins(void *arg)
{
	((struct world *)arg)->has_begun = true;
}

static void start(struct world *w)
{
	struct podsweep *s = NULL;

	assert_int_equal(podsweep_new(&s, &w->cfg, NULL), RC_OK);
	Pod pod = {.metadata = {.uid = (char *)"lives"}};

	assert_int_equal(podsweep_spare(s, &pod, NULL), RC_OK);
	assert_int_equal(podsweep_run(s, begins, w, NULL), RC_OK);
	assert_int_equal(loop_run(w->loop, NULL, NULL), RC_OK);
}

static void storage_that_hangs_holds_up_no_start(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	for (const char *const *uid = (const char *const[]){"lives", "gone", NULL}; *uid; uid++) {
		make(w.state, *uid);
		make(w.run, *uid);
	}
	make(w.state, "older"); /* of before the machine's last boot */
	start(&w);
	assert_true(w.has_begun);
	assert_int_equal(w.n_ended, 1);
	assert_int_equal(w.n_waiting, 2);
	assert_true(is_there(w.run, "lives") && is_there(w.state, "lives"));
	assert_false(is_there(w.run, "gone"));
	/* what says that there is something left goes last */
	assert_true(is_there(w.state, "gone") && is_there(w.state, "older"));
	for (unsigned i = 0; i < w.n_waiting; i++)
		podrt_swept(w.waiting[i], RC_OK, NULL);
	assert_int_equal(loop_run(w.loop, NULL, NULL), RC_OK);
	assert_false(is_there(w.state, "gone") || is_there(w.state, "older"));
	assert_int_equal(w.n_removals, 2); /* each where it may hang */
	assert_true(is_there(w.run, "lives") && is_there(w.state, "lives"));
	end(&w);
}

static void what_could_not_be_removed_is_the_next_agents(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	make(w.state, "gone");
	make(w.state, "refused");
	start(&w);
	assert_true(w.has_begun);
	assert_int_equal(w.n_waiting, 1);
	podrt_swept(w.waiting[0], RC_IO, "an error");
	assert_int_equal(loop_run(w.loop, NULL, NULL), RC_OK);
	assert_true(is_there(w.state, "gone") && is_there(w.state, "refused"));
	w.n_waiting = 0;
	start(&w);
	assert_int_equal(w.n_waiting, 1);
	podrt_swept(w.waiting[0], RC_OK, NULL);
	assert_int_equal(loop_run(w.loop, NULL, NULL), RC_OK);
	assert_true(!is_there(w.state, "gone") && is_there(w.state, "refused"));
	end(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(storage_that_hangs_holds_up_no_start),
		cmocka_unit_test(what_could_not_be_removed_is_the_next_agents),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
