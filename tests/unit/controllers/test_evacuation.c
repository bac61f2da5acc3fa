/* Evacuations: who is moved away, who is tried again, and that a cancelled one is over. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "api/meta.h"
#include "base/mem.h"
#include "base/str.h"
#include "cast.h"
#include "virt/names.h"

#define assert_at(w_, kind_, name_, pointer_, want_) \
	assert_string_equal(world_at(w_, kind_, NS, name_, pointer_), want_)
#define PHASE "/status/phase"

static const VirtualMachineInstanceMigration *evacuation(struct world *w)
{
	const VirtualMachineInstanceMigration *found = NULL;
	struct kiter it;

	kcache_list(w->cache, KVMIM, NULL, &it);
	for (const struct kobj *o; (o = kiter_next(&it));)
		if (str_has_prefix(kobj_name(o), "kubevirt-evacuation-"))
			found = kobj_typed(o);
	return found;
}

static void a_marked_vmi_leaves_and_its_mark_goes(void **state)
{
	struct world w;

	(void)state;
	cast_settled(&w);
	world_patch(&w, KVMI, NS, "tiny", "{'status':{'evacuationNodeName':'node-1'}}");
	world_settle(&w);
	assert_int_equal(world_count(&w, KVMIM), 1);
	CLEANUP(mem_freep)
	char *name = mem_strdup(evacuation(&w)->metadata.name);

	assert_at(&w, KVMIM, name, "/spec/priority", "system-critical");
	assert_at(&w, KVMIM, name, "/metadata/annotations/kubevirt.io~1evacuationMigration",
		  "node-1");
	assert_at(&w, KVMIM, name, PHASE, "Scheduling");
	assert_string_equal(world_cond(&w, KVMI, NS, "tiny", "EvictionRequested"),
			    "True EvictionRequested: VMI is marked for eviction");
	assert_string_equal(api_annotation(&cast_source(&w)->metadata, ANN_EVICTION_IN_PROGRESS),
			    "true");
	assert_null(api_annotation(&cast_target(&w)->metadata, ANN_EVICTION_IN_PROGRESS));
	cast_pod_runs(&w, cast_target(&w)->metadata.name);
	world_settle(&w);
	cast_target_listens(&w);
	cast_source_starts(&w);
	world_settle(&w);
	cast_move_completes(&w);
	world_settle(&w);
	world_pass(&w, 5 * USEC_PER_SEC);
	assert_at(&w, KVMIM, name, PHASE, "Succeeded");
	assert_at(&w, KVMI, "tiny", "/status/evacuationNodeName", "(none)");
	assert_string_equal(world_cond(&w, KVMI, NS, "tiny", "EvictionRequested"), "(none)");
	assert_int_equal(world_count(&w, KVMIM), 1);
	world_fini(&w);
}

static void a_drain_without_room_backs_off_and_ends_with_the_taint(void **state)
{
	struct world w;

	(void)state;
	cast_world(&w);
	cast_node(&w, "node-1", "", NULL);
	cast_node(&w, "node-2", "",
		  "'cpu':'4','memory':'100Mi','pods':'110'"); /* can never take it */
	cast_running(&w);
	world_pass(&w, 10 * USEC_PER_SEC);
	world_patch(&w, &api_kind_Node, "", "node-1",
		    "{'spec':{'taints':[{'key':'kubevirt.io/drain','effect':'NoSchedule'}]}}");
	world_settle(&w);
	assert_at(&w, KVMI, "tiny", PHASE, "Running");
	assert_int_equal(cast_moves_in(&w, "Failed"), 1);
	assert_int_equal(cast_moves_in(&w, "Pending"), 1); /* held back */
	assert_true(world_saw(&w, "MigrationBackoff: backoff migrating vmi t/tiny"));
	world_pass(&w, 19 * USEC_PER_SEC);
	assert_int_equal(cast_moves_in(&w, "Failed"), 1);
	world_pass(&w, 2 * USEC_PER_SEC);
	assert_int_equal(cast_moves_in(&w, "Failed"), 2);
	world_pass(&w, 39 * USEC_PER_SEC);
	assert_int_equal(cast_moves_in(&w, "Failed"), 2);
	world_patch(&w, &api_kind_Node, "", "node-1", "{'spec':{'taints':null}}");
	world_settle(&w);
	assert_int_equal(cast_moves_in(&w, "Pending"), 0);
	assert_int_equal(cast_moves_in(&w, "Scheduling"), 0);
	world_pass(&w, 3600 * USEC_PER_SEC);
	assert_int_equal(world_count(&w, KVMIM), 2);
	assert_at(&w, KVMI, "tiny", PHASE, "Running");
	world_fini(&w);
}

/* nodeDrainTaintKey: then the usual one says nothing any more. */
static void the_taint_that_empties_a_node_is_the_settings(void **state)
{
	struct world w;

	(void)state;
	cast_settled(&w);
	world_add(&w, &api_kind_KubeVirt,
		  "{'metadata':{'name':'kubevirt','namespace':'kubevirt'},'spec':{'configuration':{"
		  "'migrations':{'nodeDrainTaintKey':'site/leave'}}}}");
	world_patch(&w, &api_kind_Node, "", "node-1",
		    "{'spec':{'taints':[{'key':'kubevirt.io/drain','effect':'NoSchedule'}]}}");
	world_pass(&w, 60 * USEC_PER_SEC);
	assert_int_equal(world_count(&w, KVMIM), 0);
	world_patch(&w, &api_kind_Node, "", "node-1",
		    "{'spec':{'taints':[{'key':'site/leave','effect':'NoSchedule'}]}}");
	world_settle(&w);
	assert_int_equal(cast_moves_in(&w, "Scheduling"), 1);
	world_fini(&w);
}

/* The mark of an eviction and the taint: each asks for a move, and taking it off cancels that move. */
static void ask_to_leave(struct world *w, bool taint, bool on)
{
	const char *taints =
		on ? "{'spec':{'taints':[{'key':'kubevirt.io/drain','effect':'NoSchedule'}]}}"
		   : "{'spec':{'taints':null}}";

	if (taint)
		world_patch(w, &api_kind_Node, "", "node-1", taints);
	else
		world_patch(w, KVMI, NS, "tiny",
			    on ? "{'status':{'evacuationNodeName':'node-1'}}"
			       : "{'status':{'evacuationNodeName':null}}");
	world_settle(w);
}

/* A move that has got a target pod: that pod runs (1), listens (2), data flows (3). */
static void lead_on(struct world *w, int steps)
{
	if (steps < 1)
		return;
	cast_pod_runs(w, cast_target(w)->metadata.name);
	world_settle(w);
	if (steps < 2)
		return;
	cast_target_listens(w);
	world_pass(w, 2 * USEC_PER_SEC);
	if (steps < 3)
		return;
	cast_source_starts(w);
	world_settle(w);
	assert_int_equal(cast_moves_in(w, "Running"), 1);
}

static void a_cancelled_evacuation_is_over_in_every_phase_and_does_not_come_back(void **state)
{
	(void)state;
	for (int i = 0; i < 8; i++) {
		bool taint = i & 1;
		struct world w;

		cast_settled(&w);
		ask_to_leave(&w, taint, true);
		assert_int_equal(cast_moves_in(&w, "Scheduling"), 1);
		/* admission gives it this */
		world_patch(&w, KVMIM, NS, evacuation(&w)->metadata.name,
			    "{'metadata':{'finalizers':['kubevirt.io/migrationJobFinalize']}}");
		lead_on(&w, i / 2);
		ask_to_leave(&w, taint, false);
		if (i >= 6) {
			assert_at(&w, KVMI, "tiny", "/status/migrationState/abortRequested",
				  "true");
			cast_source_fails(&w, "Live migration has been aborted");
			world_settle(&w);
		}
		assert_at(&w, KVMI, "tiny", "/status/nodeName", "node-1");
		assert_false(cast_has_live_target(&w));
		if (cast_target(&w))
			cast_pod_gone(&w, cast_target(&w)->metadata.name);
		world_pass(&w, 3600 * USEC_PER_SEC);
		assert_int_equal(world_count(&w, KVMIM), 0); /* a cancelled one leaves no record */
		assert_at(&w, KVMI, "tiny", PHASE, "Running");
		assert_string_equal(world_cond(&w, KVMI, NS, "tiny", "EvictionRequested"),
				    "(none)");
		ask_to_leave(&w, taint, true); /* asked anew, it goes */
		assert_int_equal(world_count(&w, KVMIM), 1);
		world_fini(&w);
	}
}

static void a_users_own_move_is_not_the_evacuations_to_cancel(void **state)
{
	struct world w;

	(void)state;
	cast_settled(&w);
	world_add(
		&w, KVMIM,
		"{'metadata':{'name':'m1','namespace':'t','labels':{'kubevirt.io/vmi-name':'tiny'},"
		"'finalizers':['kubevirt.io/migrationJobFinalize']},'spec':{'vmiName':'tiny'}}");
	world_settle(&w);
	lead_on(&w, 3);
	ask_to_leave(&w, false, true);
	ask_to_leave(&w, false, false);
	assert_at(&w, KVMIM, "m1", PHASE, "Running");
	assert_at(&w, KVMIM, "m1", "/metadata/deletionTimestamp", "(none)");
	assert_at(&w, KVMI, "tiny", "/status/migrationState/abortRequested", "(none)");
	world_fini(&w);
}

static void only_those_that_ask_for_it_are_moved(void **state)
{
	static const struct {
		const char *strategy, *migratable;
		size_t moves;
	} rows[] = {
		{"LiveMigrate", "True", 1},
		{"LiveMigrate", "False", 0},
		{"LiveMigrateIfPossible", "True", 1},
		{"LiveMigrateIfPossible", "False", 0},
		{"None", "True", 0},
		{"External", "True", 0},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct world w;
		CLEANUP(mem_freep)
		char *text = mem_printf("{'spec':{'evictionStrategy':'%s'},'status':{'"
					"evacuationNodeName':'node-1','conditions':"
					"[{'type':'Ready','status':'True'},{'type':'LiveMigratable'"
					",'status':'%s'}]}}",
					rows[i].strategy, rows[i].migratable);

		cast_settled(&w);
		world_patch(&w, KVMI, NS, "tiny", text);
		world_settle(&w);
		assert_int_equal(world_count(&w, KVMIM), rows[i].moves);
		world_fini(&w);
	}
}

static void add_node_mark(struct world *w, bool on)
{
	world_patch(w, KVMI, NS, "tiny",
		    on ? "{'status':{'evacuationNodeName':'node-1'}}"
		       : "{'status':{'evacuationNodeName':null}}");
	world_settle(w);
}

/* node-2 can never take it: each try fails at once. */
static void no_room(struct world *w)
{
	cast_world(w);
	cast_node(w, "node-1", "", NULL);
	cast_node(w, "node-2", "", "'cpu':'4','memory':'100Mi','pods':'110'");
	cast_running(w);
	world_pass(w, 10 * USEC_PER_SEC);
}

#define REASON "/status/ferry/evacuation/reason"

static void tries_are_bounded_and_asked_anew_it_is_tried_again(void **state)
{
	struct world w;

	(void)state;
	no_room(&w);
	world_add(&w, &api_kind_FerryConfig,
		  "{'metadata':{'name':'ferry'},'spec':{'evacuationAttempts':3}}");
	add_node_mark(&w, true);
	assert_at(&w, KVMI, "tiny", REASON, "(none)");
	world_pass(&w, 21 * USEC_PER_SEC);
	world_pass(&w, 41 * USEC_PER_SEC);
	assert_int_equal(cast_moves_in(&w, "Failed"), 3);
	assert_at(&w, KVMI, "tiny", REASON, "AttemptsExhausted");
	assert_true(
		str_has_prefix(world_at(&w, KVMI, NS, "tiny", "/status/ferry/evacuation/message"),
			       "3 attempts within an hour failed; the last one: "));
	assert_true(world_saw(&w,
			      "EvacuationBlocked: No further attempt to move it off node node-1 "
			      "is made: 3 attempts within an hour failed"));
	for (int i = 0; i < 5; i++) /* not with time either */
		world_pass(&w, 3600 * USEC_PER_SEC);
	assert_int_equal(world_count(&w, KVMIM), 3);
	assert_at(&w, KVMI, "tiny", PHASE, "Running");
	add_node_mark(&w, false);
	assert_at(&w, KVMI, "tiny", REASON, "(none)");
	assert_null(api_annotation(&cast_source(&w)->metadata, ANN_EVICTION_IN_PROGRESS));
	add_node_mark(&w, true);
	assert_int_equal(cast_moves_in(&w, "Failed"), 4);
	assert_at(&w, KVMI, "tiny", REASON, "(none)"); /* what failed before counts no more */
	world_pass(&w, 3600 * USEC_PER_SEC);
	world_pass(&w, 3600 * USEC_PER_SEC);
	assert_at(&w, KVMI, "tiny", "/status/ferry/evacuation/failedTimes/1", "(none)");
	world_fini(&w);
}

static void failures_of_another_hour_do_not_add_up(void **state)
{
	struct world w;

	(void)state;
	no_room(&w);
	world_add(&w, &api_kind_FerryConfig,
		  "{'metadata':{'name':'ferry'},'spec':{'evacuationAttempts':2}}");
	add_node_mark(&w, true);
	assert_int_equal(cast_moves_in(&w, "Failed"), 1);
	w.now += 3700 * USEC_PER_SEC; /* the controller was away */
	world_settle(&w);
	assert_int_equal(cast_moves_in(&w, "Failed"), 2);
	assert_at(&w, KVMI, "tiny", REASON, "(none)");
	world_pass(&w, 60 * USEC_PER_SEC);
	assert_int_equal(cast_moves_in(&w, "Failed"), 3);
	assert_at(&w, KVMI, "tiny", REASON, "AttemptsExhausted");
	world_fini(&w);
}

/* What was counted is in the VMI: a record that is deleted, or a controller that starts anew, changes nothing. */
static void a_given_up_evacuation_stays_so_when_its_records_go(void **state)
{
	struct world w;

	(void)state;
	no_room(&w);
	world_add(&w, &api_kind_FerryConfig,
		  "{'metadata':{'name':'ferry'},'spec':{'evacuationAttempts':1}}");
	add_node_mark(&w, true);
	assert_at(&w, KVMI, "tiny", REASON, "AttemptsExhausted");
	world_erase(&w, KVMIM, NS, evacuation(&w)->metadata.name);
	world_pass(&w, 3600 * USEC_PER_SEC);
	assert_int_equal(world_count(&w, KVMIM), 0);
	world_torture(&w);
	world_fini(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_marked_vmi_leaves_and_its_mark_goes),
		cmocka_unit_test(a_drain_without_room_backs_off_and_ends_with_the_taint),
		cmocka_unit_test(the_taint_that_empties_a_node_is_the_settings),
		cmocka_unit_test(
			a_cancelled_evacuation_is_over_in_every_phase_and_does_not_come_back),
		cmocka_unit_test(a_users_own_move_is_not_the_evacuations_to_cancel),
		cmocka_unit_test(only_those_that_ask_for_it_are_moved),
		cmocka_unit_test(tries_are_bounded_and_asked_anew_it_is_tried_again),
		cmocka_unit_test(failures_of_another_hour_do_not_add_up),
		cmocka_unit_test(a_given_up_evacuation_stays_so_when_its_records_go),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
