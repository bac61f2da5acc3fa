/* A pod's own folder lies on storage that may hang: neither making nor removing it holds up other pods' networks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../kube/fake_stage.h"
#include "api/gen/api_types.h"
#include "base/file.h"
#include "base/str.h"
#include "cluster/podruntime/podruntime.h"
#include "ctl/exec.h"

enum { NET_QUEUE = 1 };

struct held {
	pool_fn work, after;
	void *job;
};

struct world {
	struct fake_stage api;
	struct exec *exec;
	struct podrt *rt;
	char base[64], state[80], run[80];
	bool removals_hang, is_late;
	struct held held;
	unsigned n_prepared, n_started, n_stored;
	struct podrt_pod *last;
	char order[200]; /* what was asked of the workload */
};

static void note(struct world *w, const char *what, const struct podrt_pod *p)
{
	strncat(w->order, what, sizeof(w->order) - strlen(w->order) - 1);
	strncat(w->order, podrt_pod_uid(p), sizeof(w->order) - strlen(w->order) - 1);
	strncat(w->order, " ", sizeof(w->order) - strlen(w->order) - 1);
}

static const char *refuse(const Pod *pod, void *arg)
{
	(void)pod;
	(void)arg;
	return NULL;
}

static void prepare(struct podrt_pod *p, void *arg)
{
	struct world *w = arg;

	w->n_prepared++;
	w->last = p;
}

static void start(struct podrt_pod *p, void *arg)
{
	struct world *w = arg;

	w->n_started++;
	w->last = p;
}

static void adopt(struct podrt_pod *p, void *arg)
{
	note(arg, "adopt:", p);
	start(p, arg);
}

static void cleanup(struct podrt_pod *p, void *arg)
{
	struct world *w = arg;

	note(w, "cleanup:", p);
	w->last = p;
}

static enum rc on_storage(bool is_removal, pool_fn work, pool_fn after, void *job, void *arg,
			  struct err *err)
{
	struct world *w = arg;

	w->n_stored++;
	if (!is_removal && w->is_late)
		return err_set(err, RC_TIMEOUT, "the storage has not answered for 7 s");
	if (!is_removal || !w->removals_hang)
		return pool_run(w->api.loop, work, after, job, err);
	w->held = (struct held){work, after, job};
	return RC_OK;
}

static const struct podrt_workload workload = {
	.refuse = refuse,
	.prepare = prepare,
	.start = start,
	.adopt = adopt,
	.cleanup = cleanup,
	.on_storage = on_storage,
};

static void put_pod_in(struct world *w, const char *name, const char *phase)
{
	char text[300];

	(void)snprintf(
		text, sizeof(text),
		"{'metadata':{'name':'%s','namespace':'t','uid':'%s','resourceVersion':'%d'},"
		"'spec':{'nodeName':'near'},'status':{'phase':'%s'}}",
		name, name, ++w->api.version, phase);
	fake_stage_put(&w->api, &api_kind_Pod, text);
	fake_stage_settle(&w->api);
}

static void put_pod(struct world *w, const char *name)
{
	put_pod_in(w, name, "Pending");
}

static void begin_agent(struct world *w)
{
	const struct podrt_config pc = {.loop = w->api.loop,
					.exec = w->exec,
					.cache = w->api.cache,
					.node_name = "near",
					.host_ip = "192.0.2.1",
					.state_dir = w->state,
					.run_dir = w->run,
					.net_queue = NET_QUEUE,
					.workload = &workload,
					.arg = w};

	assert_int_equal(podrt_new(&w->rt, &pc, NULL), RC_OK);
	assert_int_equal(podrt_start(w->rt, NULL), RC_OK);
	fake_stage_settle(&w->api);
}

static void begin(struct world *w)
{
	static const struct api_kind *const kinds[] = {&api_kind_Pod};
	const struct exec_opts eo = {.component = "near"};

	memset(w, 0, sizeof(*w));
	(void)snprintf(w->base, sizeof(w->base), "/tmp/test-podrt-XXXXXX");
	assert_non_null(mkdtemp(w->base));
	(void)snprintf(w->state, sizeof(w->state), "%s/state", w->base);
	(void)snprintf(w->run, sizeof(w->run), "%s/run", w->base);
	fake_stage_init(&w->api, LOOP_VIRTUAL, kinds, ARRAY_SIZE(kinds));
	assert_int_equal(exec_new(&w->exec, w->api.loop, w->api.kube, w->api.cache, &eo, NULL),
			 RC_OK);
	begin_agent(w);
}

static void end(struct world *w)
{
	podrt_free(w->rt);
	exec_free(w->exec);
	fake_stage_fini(&w->api);
	assert_int_equal(file_remove_tree(w->base, NULL), RC_OK);
}

static bool is_there(const char *base, const char *uid, const char *file)
{
	char path[200];

	(void)snprintf(path, sizeof(path), "%s/pods/%s/%s", base, uid, file);
	return access(path, F_OK) == 0;
}

static void prepared(struct world *w, const char *uid)
{
	struct podrt_pod *p = podrt_find(w->rt, uid);

	assert_ptr_equal(w->last, p);
	podrt_prepared(p, RC_OK, false, NULL, NULL);
	fake_stage_settle(&w->api);
}

static void a_folder_that_cannot_be_removed_yet_holds_up_no_network(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	put_pod(&w, "a");
	/* the record is there before anything else is, and only then the pod begins */
	assert_true(is_there(w.state, "a", "pod.json") && is_there(w.run, "a", ""));
	prepared(&w, "a");
	assert_int_equal(w.n_started, 1);
	struct podrt_pod *a = podrt_find(w.rt, "a");

	podrt_started(a, RC_OK, NULL, NULL);
	fake_stage_settle(&w.api);
	podrt_exited(a, 0, NULL, NULL);
	assert_int_equal(podrt_pod_state(a), POD_CLEANING);
	w.removals_hang = true;
	podrt_cleaned(a, RC_OK, NULL);
	fake_stage_settle(&w.api);
	/* what does not hang is gone; the folder by which the next agent finds the rest goes last */
	assert_false(is_there(w.run, "a", ""));
	assert_true(is_there(w.state, "a", "pod.json"));
	assert_int_equal(podrt_pod_state(a), POD_CLEANING);
	put_pod(&w, "b");
	prepared(&w, "b");
	assert_int_equal(w.n_started, 2);
	assert_int_equal(podrt_pod_state(a), POD_CLEANING);
	assert_non_null(w.held.work);
	w.held.work(w.held.job);
	w.held.after(w.held.job);
	fake_stage_settle(&w.api);
	assert_false(is_there(w.state, "a", ""));
	assert_int_equal(podrt_pod_state(a), POD_DONE);
	end(&w);
}

static void a_pod_whose_folder_cannot_be_made_waits_and_says_why(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	w.is_late = true;
	put_pod(&w, "a");
	struct podrt_pod *a = podrt_find(w.rt, "a");

	prepared(&w, "a");
	assert_int_equal(podrt_pod_state(a), POD_WAITING);
	assert_string_equal(podrt_pod_facts(a)->reason, "CreateContainerError");
	assert_string_equal(podrt_pod_facts(a)->message, "the storage has not answered for 7 s");
	assert_int_equal(w.n_started, 0);
	w.is_late = false;
	fake_stage_wait(&w.api, USEC_PER_SEC);
	assert_int_equal(w.n_prepared, 2);
	prepared(&w, "a");
	assert_int_equal(w.n_started, 1);
	end(&w);
}

static void a_pod_that_leaves_the_api_meanwhile_is_forgotten_after_it(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	put_pod(&w, "a");
	prepared(&w, "a");
	struct podrt_pod *a = podrt_find(w.rt, "a");

	podrt_started(a, RC_OK, NULL, NULL);
	podrt_exited(a, 0, NULL, NULL);
	w.removals_hang = true;
	podrt_cleaned(a, RC_OK, NULL);
	fake_stage_settle(&w.api);
	kcache_remove(w.api.cache, &api_kind_Pod, "t", "a");
	fake_stage_wait(&w.api, 60 * USEC_PER_SEC); /* it is said once that it waits */
	assert_int_equal(podrt_count(w.rt), 1);
	w.held.work(w.held.job);
	w.held.after(w.held.job);
	fake_stage_settle(&w.api);
	assert_int_equal(podrt_count(w.rt), 0);
	assert_false(is_there(w.state, "a", ""));
	end(&w);
}

/* An ended pod's clean-up asks who else of its VM is here: a move that is under way, for example, is not to lose its way. */
static void pods_that_live_are_taken_up_before_those_that_ended(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	put_pod_in(&w, "ended", "Failed");
	podrt_cleaned(podrt_find(w.rt, "ended"), RC_OK, NULL);
	fake_stage_settle(&w.api);
	put_pod(&w, "lives");
	prepared(&w, "lives");
	podrt_started(podrt_find(w.rt, "lives"), RC_OK, NULL, NULL);
	fake_stage_settle(&w.api);
	w.rt = podrt_free(w.rt);
	w.order[0] = '\0';
	begin_agent(&w);
	assert_string_equal(w.order, "adopt:lives cleanup:ended ");
	end(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pods_that_live_are_taken_up_before_those_that_ended),
		cmocka_unit_test(a_folder_that_cannot_be_removed_yet_holds_up_no_network),
		cmocka_unit_test(a_pod_whose_folder_cannot_be_made_waits_and_says_why),
		cmocka_unit_test(a_pod_that_leaves_the_api_meanwhile_is_forgotten_after_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
