/* Who moves next: the order, fairness between nodes, and a thousand that wait. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "cast.h"
#include "virt/controller/migration/mig_int.h"

#define assert_at(w_, kind_, name_, pointer_, want_) \
	assert_string_equal(world_at(w_, kind_, NS, name_, pointer_), want_)
#define PHASE "/status/phase"

static void add_nodes(struct world *w, int n)
{
	cast_world(w);
	for (int i = 1; i <= n; i++) {
		CLEANUP(mem_freep) char *name = mem_printf("node-%d", i);

		cast_node(w, name, "", "'cpu':'64','memory':'256Gi','pods':'2000'");
	}
}

/* VMI vm-<i> and its pod, on the node. */
static void add_guest(struct world *w, int i, int node)
{
	CLEANUP(mem_freep)
	char *vmi = mem_printf(
		"{'metadata':{'name':'vm-%d','namespace':'t'},'spec':{'domain':{'memory':{'guest':'"
		"64Mi'},'devices':{}}},'status':{'phase':'Running','nodeName':'node-%d',"
		"'conditions':[{'type':'Ready','status':'True'}]}}",
		i, node);

	world_add(w, KVMI, vmi);
	CLEANUP(mem_freep) char *name = mem_printf("vm-%d", i);
	const ObjectMeta *m = world_get(w, KVMI, NS, name);
	CLEANUP(mem_freep)
	char *pod = mem_printf(
		"{'metadata':{'name':'launcher-%d','namespace':'t','labels':{'kubevirt.io':'virt-"
		"launcher','kubevirt.io/created-by':'%s'},'annotations':{'ferry.dev/uid':'%d'},"
		"'ownerReferences':[{'apiVersion':'kubevirt.io/v1','kind':'VirtualMachineInstance',"
		"'name':'%s','uid':'%s','controller':true}]},'spec':{'nodeName':'node-%d',"
		"'containers':[{'name':'compute'}]},'status':{'phase':'Running','conditions':"
		"[{'type':'Ready','status':'True'}]}}",
		i, m->uid, 200000 + i, m->name, m->uid, node);

	world_add(w, KPOD, pod);
}

static void add_move(struct world *w, int i, const char *annotation, const char *priority)
{
	CLEANUP(mem_freep)
	char *text = mem_printf(
		"{'metadata':{'name':'m%d','namespace':'t','labels':{'kubevirt.io/vmi-name':'vm-%d'},"
		"'finalizers':['kubevirt.io/migrationJobFinalize'],'annotations':{%s}},"
		"'spec':{'vmiName':'vm-%d'%s}}",
		i, i, annotation, i, priority);

	world_add(w, KVMIM, text);
}

#define EVACUATION "'kubevirt.io/evacuationMigration':'elsewhere'"
#define UPDATE	   "'kubevirt.io/workloadUpdateMigration':''"
#define CRITICAL   ",'priority':'system-critical'"

static void set_cluster_limit(struct world *w, int n)
{
	CLEANUP(mem_freep)
	char *kv =
		mem_printf("{'metadata':{'name':'kubevirt','namespace':'kubevirt'},'spec':{"
			   "'configuration':{'migrations':{'parallelMigrationsPerCluster':%d}}}}",
			   n);

	world_add(w, &api_kind_KubeVirt, kv);
}

static const char *phase_of(struct world *w, int i)
{
	CLEANUP(mem_freep) char *name = mem_printf("m%d", i);

	return world_at(w, KVMIM, NS, name, PHASE);
}

/* The one that runs leaves, and its slot is free. */
static void end_move(struct world *w, int i)
{
	CLEANUP(mem_freep) char *name = mem_printf("m%d", i);

	world_delete(w, KVMIM, NS, name, -1);
	world_settle(w);
}

static void people_come_before_evacuations_before_updates(void **state)
{
	/* made in this order, and let go in that of rank */
	static const struct {
		const char *annotation, *priority;
		int turn;
	} moves[] = {
		{"", ",'priority':'system-maintenance'", 5},
		{UPDATE, CRITICAL, 4},
		{EVACUATION, ",'priority':'system-maintenance'", 6},
		{EVACUATION, CRITICAL, 2},
		{EVACUATION, CRITICAL, 3},
		{"", "", 0},
		{UPDATE, ",'priority':'user-triggered'", 1},
	};
	struct world w;

	(void)state;
	add_nodes(&w, 8);
	set_cluster_limit(&w, 1);
	for (int i = 0; i < (int)ARRAY_SIZE(moves); i++)
		add_guest(&w, i, i + 1);
	for (int i = 0; i < (int)ARRAY_SIZE(moves); i++) {
		add_move(&w, i, moves[i].annotation, moves[i].priority);
		w.now += USEC_PER_SEC;
	}
	world_settle(&w);
	for (int turn = 0; turn < (int)ARRAY_SIZE(moves); turn++) {
		for (int i = 0; i < (int)ARRAY_SIZE(moves); i++)
			if (moves[i].turn == turn) {
				assert_string_equal(phase_of(&w, i), "Scheduling");
				assert_int_equal(cast_moves_in(&w, "Scheduling"), 1);
				end_move(&w, i);
			}
	}
	world_fini(&w);
}

/* Twenty of node-1 are older than the one of node-2 and that of node-3: nobody waits for all of them. */
static void no_node_waits_for_the_whole_of_another(void **state)
{
	struct world w;

	(void)state;
	add_nodes(&w, 4);
	set_cluster_limit(&w, 2);
	for (int i = 0; i < 22; i++) {
		add_guest(&w, i, i < 20 ? 1 : i == 20 ? 2 : 3);
		add_move(&w, i, EVACUATION, CRITICAL);
		w.now += USEC_PER_SEC;
	}
	world_settle(&w);
	assert_string_equal(phase_of(&w, 0), "Scheduling");
	assert_string_equal(phase_of(&w, 20), "Scheduling");
	end_move(&w, 20);
	assert_string_equal(phase_of(&w, 21), "Scheduling");
	end_move(&w, 21);
	assert_string_equal(phase_of(&w, 1), "Scheduling");
	end_move(&w, 0);
	assert_string_equal(phase_of(&w, 2), "Scheduling");
	assert_int_equal(cast_moves_in(&w, "Scheduling"), 2);
	world_fini(&w);
}

/* One that waits after a failure has no use for the slot: the next one does. */
static void who_backs_off_holds_no_slot(void **state)
{
	struct world w;
	char now[32];

	(void)state;
	add_nodes(&w, 3);
	set_cluster_limit(&w, 1);
	add_guest(&w, 0, 1);
	add_guest(&w, 1, 2);
	time_rfc3339(w.now, now);
	CLEANUP(mem_freep)
	char *failed = mem_printf(
		"{'metadata':{'name':'f','namespace':'t'},'spec':{'vmiName':'vm-0'},'status':{"
		"'phase':'Failed','phaseTransitionTimestamps':[{'phase':'Failed',"
		"'phaseTransitionTimestamp':'%s'}]}}",
		now);

	world_add(&w, KVMIM, failed);
	add_move(&w, 0, EVACUATION, CRITICAL);
	add_move(&w, 1, UPDATE, CRITICAL);
	world_settle(&w);
	assert_at(&w, KVMIM, "m0", "/status/ferry/stage", "BackingOff");
	assert_string_equal(phase_of(&w, 1), "Scheduling");
	world_pass(&w, 21 * USEC_PER_SEC);
	assert_at(&w, KVMIM, "m0", "/status/ferry/stage", "WaitingForSlot");
	end_move(&w, 1);
	assert_string_equal(phase_of(&w, 0), "Scheduling");
	world_fini(&w);
}

/* ---- a thousand ---- */

static void count_key(void *ctx, const char *ns, const char *name)
{
	(void)ns;
	(void)name;
	++*(size_t *)ctx;
}

/* How many keys of migrations an end of m<i> wakes. */
static size_t keys_woken_by(struct world *w, int i)
{
	CLEANUP(mem_freep) char *name = mem_printf("m%d", i);
	struct view v = {.cache = w->cache, .now = w->now};
	size_t n = 0;

	for (const struct ctl_map *m = mig_ctl_def.maps; m->kind; m++)
		if (m->kind == KVMIM)
			m->map(&v, kcache_get(w->cache, KVMIM, NS, name), count_key, &n);
	return n;
}

static void a_thousand_that_wait_cost_those_that_run_nothing(void **state)
{
	struct timespec a, b;
	struct world w;

	(void)state;
	add_nodes(&w, 6);
	for (int i = 0; i < 1000; i++) {
		add_guest(&w, i, i % 6 + 1);
		add_move(&w, i, i % 2 ? EVACUATION : "", i % 2 ? CRITICAL : "");
	}
	world_settle(&w);
	assert_int_equal(cast_moves_in(&w, "Scheduling"), 5);
	assert_int_equal(cast_moves_in(&w, "Pending"), 995);
	/* an end wakes itself and whose turn it is, not everybody */
	int ended = 0;

	while (!str_eq(phase_of(&w, ended), "Scheduling"))
		ended++;
	CLEANUP(mem_freep) char *name = mem_printf("m%d", ended);

	world_patch(&w, KVMIM, NS, name, "{'status':{'phase':'Failed'}}");
	assert_int_equal(keys_woken_by(&w, ended), 2);
	world_settle(&w);
	assert_int_equal(cast_moves_in(&w, "Scheduling"), 5);
	/* and a look of one that waits does not look at the others */
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
	for (int i = 0; i < 1000; i++) {
		CLEANUP(mem_freep) char *each = mem_printf("m%d", i);

		mem_free(world_plan(&w, &mig_ctl_def, NS, each));
	}
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
	double seconds = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9;

	print_message("1000 looks: %.0f ms of CPU\n", seconds * 1000);
	assert_true(seconds < 2); /* sanitizer builds included */
	world_fini(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(people_come_before_evacuations_before_updates),
		cmocka_unit_test(no_node_waits_for_the_whole_of_another),
		cmocka_unit_test(who_backs_off_holds_no_slot),
		cmocka_unit_test(a_thousand_that_wait_cost_those_that_run_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
