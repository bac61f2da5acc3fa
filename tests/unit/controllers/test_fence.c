/* Lost nodes: which are to be fenced, what a proof allows, and that it allows it for one silence only. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "cast.h"
#include "cluster/controllers/controllers.h"
#include "cluster/scheduler/scheduler.h"
#include "virt/controller/fence/fence.h"
#include "virt/controller/vm/vm.h"
#include "virt/controller/vmi/alloc.h"
#include "virt/controller/vmi/vmi.h"
#include "virt/migration/fencing.h"

#define KNODE  (&api_kind_Node)
#define KFENCE (&api_kind_NodeFence)
#define assert_at(w_, kind_, ns_, name_, pointer_, want_) \
	assert_string_equal(world_at(w_, kind_, ns_, name_, pointer_), want_)

/* "tiny" runs on node-1; nodes are fenced after 20 s of silence. */
static void begin(struct world *w)
{
	const struct ctl_def *defs[40] = {&vm_ctl_def,	  &vmi_ctl_def,	  &scheduler_ctl_def,
					  &alloc_ctl_def, &fence_ctl_def, &nodelifecycle_ctl_def};
	size_t n = 6;

	for (size_t i = 0; gc_ctl_defs[i]; i++)
		defs[n++] = gc_ctl_defs[i];
	world_init(w, defs, n);
	world_add(w, &api_kind_Namespace, "{'metadata':{'name':'t'}}");
	world_add(w, &api_kind_FerryConfig,
		  "{'metadata':{'name':'ferry'},'spec':{'fencing':'Agent','fenceAgent':{'program':"
		  "'plug','silenceSeconds':20}}}");
	cast_nodes(w);
	world_renew(w, "node-1");
	world_renew(w, "node-2");
	cast_running(w);
}

/* Time passes, node-2 is heard of. */
static void pass(struct world *w, unsigned seconds)
{
	w->now += seconds * USEC_PER_SEC;
	world_renew(w, "node-2");
	world_settle(w);
}

static void report(struct world *w, const char *state)
{
	char now[32];

	time_rfc3339(w->now, now);
	CLEANUP(mem_freep)
	char *text = mem_printf("{'status':{'epoch':%s,'state':'%s','attempts':1,'endTime':'%s'}}",
				world_at(w, KFENCE, "", "node-1", "/spec/epoch"), state, now);

	world_patch(w, KFENCE, "", "node-1", text);
	world_settle(w);
}

static bool is_tainted(struct world *w, const char *value)
{
	const Node *n = world_get(w, KNODE, "", "node-1");

	for (size_t i = 0; i < n->spec.n_taints; i++)
		if (str_eq(n->spec.taints[i].key, "node.kubernetes.io/out-of-service") &&
		    str_eq(n->spec.taints[i].value, value))
			return true;
	return false;
}

static char *uid_of_vmi(struct world *w)
{
	return mem_strdup(world_at(w, KVMI, NS, "tiny", "/metadata/uid"));
}

static void a_silent_node_is_fenced_and_its_vm_runs_elsewhere(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	CLEANUP(mem_freep) char *first = uid_of_vmi(&w);

	pass(&w, 19);
	assert_null(world_get(&w, KFENCE, "", "node-1"));
	pass(&w, 2);
	assert_at(&w, KFENCE, "", "node-1", "/spec/epoch", "1");
	assert_at(&w, KFENCE, "", "node-1", "/spec/nodeName", "node-1");
	assert_true(world_saw(&w, "FencingRequested: Node node-1 is silent"));
	assert_null(world_get(&w, KFENCE, "", "node-2"));
	world_torture(&w);
	report(&w, "Running");
	pass(&w, 600);
	assert_at(&w, KVMI, NS, "tiny", "/metadata/uid", first);
	assert_at(&w, KVMI, NS, "tiny", "/status/phase", "Running");
	report(&w, "Proven");
	assert_true(is_tainted(&w, "fenced-1"));
	assert_true(world_saw(&w, "NodeFenced: Node node-1 is proven to be off"));
	CLEANUP(mem_freep) char *second = uid_of_vmi(&w);

	assert_string_not_equal(second, first);
	assert_string_equal(cast_source(&w)->spec.nodeName, "node-2");
	world_torture(&w);
	/* back again: it may be used, and the proof is over */
	world_renew(&w, "node-1");
	world_patch(&w, KNODE, "", "node-1",
		    "{'status':{'conditions':[{'type':'Ready','status':'True'}]}}");
	world_settle(&w);
	assert_false(is_tainted(&w, "fenced-1"));
	assert_true(world_saw(&w, "NodeBack: Node node-1 is heard of again after it was fenced"));
	world_fini(&w);
}

static void what_failed_or_was_withdrawn_allows_nothing(void **state)
{
	static const char *const states[] = {"Running", "Failed", "Withdrawn"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
		struct world w;

		begin(&w);
		CLEANUP(mem_freep) char *first = uid_of_vmi(&w);

		pass(&w, 21);
		report(&w, states[i]);
		pass(&w, 3600);
		assert_at(&w, KVMI, NS, "tiny", "/metadata/uid", first);
		assert_at(&w, KVMI, NS, "tiny", "/status/phase", "Running");
		assert_false(is_tainted(&w, "fenced-1"));
		world_fini(&w);
	}
}

/* The proof is of the silence that it was made in.  What is left of it says nothing about the next one. */
static void an_old_proof_is_of_no_use_for_the_next_silence(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	CLEANUP(mem_freep) char *first = uid_of_vmi(&w);

	pass(&w, 21);
	world_renew(&w, "node-1"); /* it is heard of while the agent runs */
	report(&w, "Proven");
	assert_false(is_tainted(&w, "fenced-1"));
	/* and a taint that was left is not believed */
	world_patch(
		&w, KNODE, "", "node-1",
		"{'spec':{'taints':[{'key':'node.kubernetes.io/out-of-service','value':'fenced-1',"
		"'effect':'NoExecute'}]}}");
	w.now += 21 * USEC_PER_SEC;
	world_renew(&w, "node-2");
	assert_string_equal(world_at(&w, KVMI, NS, "tiny", "/metadata/uid"), first);
	CLEANUP(mem_freep) char *plan = world_plan(&w, &nodelifecycle_ctl_def, "", "node-1");

	assert_null(strstr(plan, "delete Pod"));
	world_settle(&w);
	assert_at(&w, KFENCE, "", "node-1", "/spec/epoch", "2");
	assert_at(&w, KVMI, NS, "tiny", "/metadata/uid", first);
	report(&w, "Proven");
	assert_true(is_tainted(&w, "fenced-2"));
	assert_string_not_equal(world_at(&w, KVMI, NS, "tiny", "/metadata/uid"), first);
	world_fini(&w);
}

static void nothing_is_fenced_without_need_or_without_an_agent(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	/* no VM on it: there is nothing to start elsewhere */
	w.now += 30 * USEC_PER_SEC;
	world_renew(&w, "node-1");
	world_settle(&w);
	assert_null(world_get(&w, KFENCE, "", "node-2"));
	world_patch(&w, &api_kind_FerryConfig, "", "ferry",
		    "{'spec':{'fencing':'OutOfServiceTaint'}}");
	pass(&w, 600);
	assert_null(world_get(&w, KFENCE, "", "node-1"));
	assert_at(&w, KVMI, NS, "tiny", "/status/phase", "Running");
	world_patch(&w, &api_kind_FerryConfig, "", "ferry", "{'spec':{'fencing':'Agent'}}");
	world_settle(&w);
	assert_non_null(world_get(&w, KFENCE, "", "node-1"));
	world_fini(&w);
}

/* When nobody is heard of it is the cluster's own ears, and there is no place to start anything at. */
static void when_all_are_silent_nobody_is_fenced(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	world_pass(&w, 300 * USEC_PER_SEC);
	assert_null(world_get(&w, KFENCE, "", "node-1"));
	pass(&w, 1);
	world_pass(&w, 2 * USEC_PER_SEC);
	assert_non_null(world_get(&w, KFENCE, "", "node-1"));
	world_fini(&w);
}

static void a_failure_is_tried_again_with_pauses(void **state)
{
	(void)state;
	assert_int_equal(fence_retry_delay(1), 5 * USEC_PER_SEC);
	assert_int_equal(fence_retry_delay(2), 10 * USEC_PER_SEC);
	assert_int_equal(fence_retry_delay(7), 300 * USEC_PER_SEC);
	assert_int_equal(fence_retry_delay(INT64_MAX), 300 * USEC_PER_SEC);
}

static void pods_older_than_the_proof_never_start_there(void **state)
{
	NodeFenceStatus st = {.state = (char *)(uintptr_t) "Proven",
			      .endTime = (char *)(uintptr_t) "2026-01-01T00:10:00Z"};
	NodeFence f = {.status = st};
	ObjectMeta pod = {.creationTimestamp = (char *)(uintptr_t) "2026-01-01T00:00:00Z"};

	(void)state;
	assert_true(fencing_condemns(&f, &pod));
	assert_false(fencing_condemns(NULL, &pod));
	pod.creationTimestamp = (char *)(uintptr_t) "2026-01-01T00:10:06Z";
	assert_false(fencing_condemns(&f, &pod));
	pod.creationTimestamp = (char *)(uintptr_t) "2026-01-01T00:00:00Z";
	f.status.state = (char *)(uintptr_t) "Failed";
	assert_false(fencing_condemns(&f, &pod));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_silent_node_is_fenced_and_its_vm_runs_elsewhere),
		cmocka_unit_test(what_failed_or_was_withdrawn_allows_nothing),
		cmocka_unit_test(an_old_proof_is_of_no_use_for_the_next_silence),
		cmocka_unit_test(nothing_is_fenced_without_need_or_without_an_agent),
		cmocka_unit_test(when_all_are_silent_nobody_is_fenced),
		cmocka_unit_test(a_failure_is_tried_again_with_pauses),
		cmocka_unit_test(pods_older_than_the_proof_never_start_there),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
