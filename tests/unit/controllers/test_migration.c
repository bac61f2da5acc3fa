/* Migrations: cancel in every phase, failures with their texts, placement, queue, and the table itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "api/meta.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "cast.h"
#include "virt/controller/migration/migration.h"
#include "virt/controller/migration/table.h"
#include "virt/names.h"

#define assert_at(w_, kind_, name_, pointer_, want_) \
	assert_string_equal(world_at(w_, kind_, NS, name_, pointer_), want_)
#define PHASE "/status/phase"
#define WHY   "/status/migrationState/failureReason"

static void add_move(struct world *w, const char *name, const char *vmi, const char *more)
{
	CLEANUP(mem_freep)
	char *text = mem_printf(
		"{'metadata':{'name':'%s','namespace':'t','labels':{'kubevirt.io/vmi-name':'%s'},"
		"'finalizers':['kubevirt.io/migrationJobFinalize']},'spec':{'vmiName':'%s'%s}}",
		name, vmi, vmi, more);

	world_add(w, KVMIM, text);
}

/* Leads m1 to the named phase. */
static void lead_to(struct world *w, enum mig_state s)
{
	add_move(w, "m1", "tiny", "");
	if (s == MIG_NEW)
		return;
	world_settle(w);
	if (s == MIG_SCHEDULING)
		return;
	cast_pod_runs(w, cast_target(w)->metadata.name);
	world_settle(w);
	if (s == MIG_PREPARING)
		return;
	cast_target_listens(w);
	world_pass(w, 2 * USEC_PER_SEC);
	if (s == MIG_TARGET_READY)
		return;
	cast_source_starts(w);
	world_settle(w);
}

static void a_cancel_before_data_flows_ends_at_once(void **state)
{
	static const enum mig_state states[] = {MIG_NEW, MIG_SCHEDULING, MIG_PREPARING,
						MIG_TARGET_READY};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
		struct world w;

		cast_settled(&w);
		lead_to(&w, states[i]);
		world_delete(&w, KVMIM, NS, "m1", -1);
		world_settle(&w);
		assert_null(world_get(&w, KVMIM, NS, "m1"));
		assert_false(cast_has_live_target(&w));
		assert_true(
			world_saw(&w, "FailedMigration: Migration failed due to being canceled"));
		assert_at(&w, KVMI, "tiny", PHASE, "Running");
		assert_at(&w, KVMI, "tiny", "/metadata/deletionTimestamp", "(none)");
		if (states[i] >= MIG_PREPARING) {
			assert_at(&w, KVMI, "tiny", WHY, "Live migration has been aborted");
			assert_at(&w, KVMI, "tiny", "/status/migrationState/abortStatus",
				  "Succeeded");
		}
		/* the next one starts without waiting */
		if (cast_target(&w))
			cast_pod_gone(&w, cast_target(&w)->metadata.name);
		world_pass(&w, 2 * USEC_PER_SEC);
		add_move(&w, "m2", "tiny", "");
		world_settle(&w);
		assert_at(&w, KVMIM, "m2", PHASE, "Scheduling");
		world_fini(&w);
	}
}

static void a_cancel_while_data_flows_is_the_sources_to_carry_out(void **state)
{
	struct world w;

	(void)state;
	cast_settled(&w);
	lead_to(&w, MIG_RUNNING);
	world_delete(&w, KVMIM, NS, "m1", -1);
	world_settle(&w);
	assert_at(&w, KVMIM, "m1", PHASE, "Running");
	assert_string_equal(world_cond(&w, KVMIM, NS, "m1", "migrationAbortRequested"), "True");
	assert_at(&w, KVMI, "tiny", "/status/migrationState/abortRequested", "true");
	assert_true(world_saw(&w, "SuccessfulAbortMigration: Migration is ready to be canceled by "
				  "virt-handler."));
	assert_true(cast_has_live_target(&w));
	cast_source_fails(&w, "Live migration has been aborted");
	world_settle(&w);
	assert_null(world_get(&w, KVMIM, NS, "m1"));
	assert_false(cast_has_live_target(&w));
	world_fini(&w);
}

#define FINISH	  "{'metadata':{'annotations':{'ferry.dev/finish':'pause'}}}"
#define REQUESTED "/status/ferry/migration/finishRequested"

/* Whenever it was asked for: the source is told once, when it can do something about it. */
static void a_finish_is_passed_on_when_memory_can_go_over(void **state)
{
	static const enum mig_state states[] = {MIG_NEW, MIG_SCHEDULING, MIG_PREPARING,
						MIG_TARGET_READY, MIG_RUNNING};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
		struct world w;

		cast_settled(&w);
		lead_to(&w, states[i]);
		world_patch(&w, KVMIM, NS, "m1", FINISH);
		world_settle(&w);
		assert_at(&w, KVMI, "tiny", REQUESTED,
			  states[i] == MIG_RUNNING ? "true" : "(none)");
		if (states[i] <= MIG_SCHEDULING) {
			cast_pod_runs(&w, cast_target(&w)->metadata.name);
			world_settle(&w);
		}
		if (states[i] <= MIG_PREPARING) {
			cast_target_listens(&w);
			world_pass(&w, 2 * USEC_PER_SEC);
		}
		if (states[i] <= MIG_TARGET_READY) {
			cast_source_starts(&w);
			world_settle(&w);
		}
		assert_at(&w, KVMIM, "m1", PHASE, "Running");
		assert_at(&w, KVMI, "tiny", REQUESTED, "true");
		assert_true(world_saw(&w, "SuccessfulFinishRequest: The source's node is asked to "
					  "finish the migration with a pause."));
		assert_at(&w, KVMI, "tiny", "/status/migrationState/abortRequested", "(none)");
		world_patch(&w, KVMI, NS, "tiny",
			    "{'status':{'migrationState':{'mode':'Paused'}}}");
		world_pass(&w, 3 * USEC_PER_SEC);
		assert_at(&w, KVMIM, "m1", "/status/migrationState/mode", "Paused");
		cast_move_completes(&w);
		world_settle(&w);
		assert_at(&w, KVMIM, "m1", PHASE, "Succeeded");
		assert_at(&w, KVMIM, "m1", "/status/ferry/finishRequested", "true");
		world_fini(&w);
	}
}

static void a_finish_of_one_move_is_none_of_the_next(void **state)
{
	struct world w;

	(void)state;
	cast_settled(&w);
	lead_to(&w, MIG_RUNNING);
	world_patch(&w, KVMIM, NS, "m1", FINISH);
	world_settle(&w);
	assert_at(&w, KVMI, "tiny", REQUESTED, "true");
	cast_source_fails(&w, "the link broke");
	world_settle(&w);
	assert_at(&w, KVMIM, "m1", PHASE, "Failed");
	cast_pod_gone(&w, cast_target(&w)->metadata.name);
	world_settle(&w);
	add_move(&w, "m2", "tiny", "");
	world_settle(&w);
	cast_pod_runs(&w, cast_target(&w)->metadata.name);
	world_settle(&w);
	cast_target_listens(&w);
	world_pass(&w, 2 * USEC_PER_SEC);
	cast_source_starts(&w);
	world_settle(&w);
	assert_at(&w, KVMIM, "m2", PHASE, "Running");
	assert_at(&w, KVMI, "tiny", REQUESTED, "(none)");
	world_fini(&w);
}

static void a_move_that_is_cancelled_is_not_finished(void **state)
{
	struct world w;

	(void)state;
	cast_settled(&w);
	lead_to(&w, MIG_RUNNING);
	world_delete(&w, KVMIM, NS, "m1", -1);
	world_settle(&w);
	world_patch(&w, KVMIM, NS, "m1", FINISH);
	world_settle(&w);
	assert_at(&w, KVMI, "tiny", "/status/migrationState/abortRequested", "true");
	assert_at(&w, KVMI, "tiny", REQUESTED, "(none)");
	world_fini(&w);
}

static void a_source_whose_clock_is_an_hour_behind_is_not_overdue(void **state)
{
	struct world w;
	char then[32];

	(void)state;
	cast_settled(&w);
	lead_to(&w, MIG_RUNNING);
	time_rfc3339(w.now - 3600 * USEC_PER_SEC, then);
	CLEANUP(mem_freep)
	char *text = mem_printf("{'status':{'migrationState':{'startTimestamp':'%s'}}}", then);

	world_patch(&w, KVMI, NS, "tiny", text);
	world_settle(&w);
	assert_at(&w, KVMIM, "m1", PHASE, "Running");
	assert_at(&w, KVMI, "tiny", "/status/migrationState/abortRequested", "(none)");
	world_fini(&w);
}

/* The garbage collector takes the record of a deleted migration a moment later. */
static void a_migration_with_the_name_of_a_deleted_one_gets_its_own_record(void **state)
{
	const VirtualMachineInstanceMigration *m;
	struct world w;

	(void)state;
	cast_settled(&w);
	lead_to(&w, MIG_RUNNING);
	cast_source_fails(&w, "the link broke");
	world_settle(&w);
	world_delete(&w, KVMIM, NS, "m1", -1);
	world_settle(&w);
	assert_null(world_get(&w, KVMIM, NS, "m1"));
	assert_int_equal(world_count(&w, &api_kind_Handover), 1);
	if (cast_target(&w))
		cast_pod_gone(&w, cast_target(&w)->metadata.name);
	lead_to(&w, MIG_PREPARING);
	m = world_get(&w, KVMIM, NS, "m1");
	assert_non_null(m);
	const Handover *h = world_get(&w, &api_kind_Handover, NS, m->metadata.uid);

	assert_non_null(h);
	assert_string_equal(h->spec.migrationUID, m->metadata.uid);
	world_fini(&w);
}

static void progress_is_shown_on_the_migration_and_freezes(void **state)
{
	struct world w;

	(void)state;
	cast_settled(&w);
	world_patch(&w, KVMI, NS, "tiny",
		    "{'status':{'ferry':{'migration':{'percent':77}}}}"); /* an older move's */
	lead_to(&w, MIG_TARGET_READY);
	assert_at(&w, KVMIM, "m1", "/status/ferry/percent", "(none)");
	world_patch(&w, KVMI, NS, "tiny", "{'status':{'ferry':{'migration':null}}}");
	cast_source_starts(&w);
	world_patch(
		&w, KVMI, NS, "tiny",
		"{'status':{'ferry':{'migration':{'percent':40,'memory':{'totalBytes':100}}}}}");
	world_pass(&w, 3 * USEC_PER_SEC);
	assert_at(&w, KVMIM, "m1", "/status/ferry/percent", "40");
	assert_at(&w, KVMIM, "m1", "/status/ferry/placement/1/node", "node-2");
	world_patch(&w, KVMI, NS, "tiny",
		    "{'status':{'ferry':{'migration':{'percent':100,'pauseMs':28}}}}");
	cast_move_completes(&w);
	world_settle(&w);
	assert_at(&w, KVMIM, "m1", "/status/ferry/pauseMs", "28");
	world_patch(&w, KVMI, NS, "tiny",
		    "{'status':{'ferry':{'migration':{'percent':1}}}}"); /* the next one's */
	world_settle(&w);
	assert_at(&w, KVMIM, "m1", "/status/ferry/percent", "100");
	world_fini(&w);
}

static void a_cancel_that_comes_too_late_does_no_harm(void **state)
{
	struct world w;

	(void)state;
	cast_settled(&w);
	lead_to(&w, MIG_RUNNING);
	cast_move_completes(&w);
	world_delete(&w, KVMIM, NS, "m1", -1);
	world_settle(&w);
	assert_null(world_get(&w, KVMIM, NS, "m1"));
	assert_true(cast_has_live_target(&w));
	assert_at(&w, KVMI, "tiny", PHASE, "Running");
	assert_at(&w, KVMI, "tiny", "/status/nodeName", "node-2");
	world_fini(&w);
}

static void a_failed_copy_leaves_the_guest_and_takes_the_target(void **state)
{
	struct world w;

	(void)state;
	cast_settled(&w);
	lead_to(&w, MIG_RUNNING);
	cast_source_fails(&w, "Live migration has been aborted");
	world_settle(&w);
	assert_at(&w, KVMIM, "m1", PHASE, "Failed");
	assert_at(&w, KVMIM, "m1", WHY, "Live migration has been aborted");
	assert_at(&w, KVMIM, "m1", "/status/ferry/plane", "data");
	assert_true(world_saw(&w, "FailedMigration: source node reported migration failed"));
	assert_false(cast_has_live_target(&w));
	assert_at(&w, KVMI, "tiny", PHASE, "Running");
	assert_at(&w, KVMI, "tiny", "/status/nodeName", "node-1");
	world_fini(&w);
}

static void a_target_that_dies_before_the_start_fails_the_move(void **state)
{
	static const enum mig_state states[] = {MIG_SCHEDULING, MIG_PREPARING, MIG_TARGET_READY};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
		struct world w;

		cast_settled(&w);
		lead_to(&w, states[i]);
		world_patch(&w, KPOD, NS, cast_target(&w)->metadata.name,
			    "{'status':{'phase':'Failed'}}");
		world_settle(&w);
		assert_at(&w, KVMIM, "m1", PHASE, "Failed");
		assert_true(world_saw(
			&w, "FailedMigration: Migration failed because target pod shutdown "
			    "during migration"));
		assert_string_not_equal(
			world_at(&w, KVMIM, NS, "m1", "/status/migrationState/endTimestamp"),
			"(none)");
		if (states[i] >= MIG_PREPARING) {
			assert_at(&w, KVMI, "tiny", WHY, "Target pod is down");
			assert_true(world_saw(&w, "reason: Target pod is down"));
			assert_at(&w, KVMI, "tiny", "/status/migrationState/migrationUid",
				  ((const ObjectMeta *)world_get(&w, KVMIM, NS, "m1"))->uid);
		}
		assert_at(&w, KVMI, "tiny", PHASE, "Running");
		world_fini(&w);
	}
}

/* Its machine is declared dead: its pods are deleted, and nobody writes how they ended. */
static void a_target_sees_that_its_sources_pod_is_gone(void **state)
{
	struct world w;

	(void)state;
	cast_settled(&w);
	lead_to(&w, MIG_RUNNING);
	world_delete(&w, KPOD, NS, cast_source(&w)->metadata.name, 0);
	world_pass(&w, 10 * USEC_PER_SEC);
	const VirtualMachineInstance *vmi = world_get(&w, KVMI, NS, "tiny");

	assert_int_equal(vmi->status.activePods.n, 1);
	assert_true(api_map_has(&vmi->status.activePods, cast_target(&w)->metadata.uid));
	assert_at(&w, KVMI, "tiny", PHASE,
		  "Running"); /* whether it came over is the target's word */
	world_fini(&w);
}

static void a_target_that_vanishes_while_data_flows_is_aborted_by_the_source(void **state)
{
	struct world w;

	(void)state;
	cast_settled(&w);
	lead_to(&w, MIG_RUNNING);
	cast_pod_gone(&w, cast_target(&w)->metadata.name);
	world_settle(&w);
	assert_at(&w, KVMIM, "m1", PHASE, "Running");
	assert_at(&w, KVMI, "tiny", "/status/migrationState/abortRequested", "true");
	assert_true(world_saw(&w, "Migration target pod was removed during active migration."));
	cast_source_fails(&w, "Live migration has been aborted");
	world_settle(&w);
	assert_at(&w, KVMIM, "m1", PHASE, "Failed");
	world_fini(&w);
}

static void an_agent_that_does_not_answer_has_a_deadline(void **state)
{
	struct world w;

	(void)state;
	cast_settled(&w);
	lead_to(&w, MIG_PREPARING);
	while (world_next(&w, 60 * USEC_PER_SEC))
		;
	world_pass(&w, 121 * USEC_PER_SEC);
	assert_at(&w, KVMIM, "m1", PHASE, "Failed");
	assert_at(&w, KVMIM, "m1", WHY, "the target node did not get ready within 120 s");
	assert_at(&w, KVMIM, "m1", "/status/ferry/reason", "Timeout");
	assert_false(cast_has_live_target(&w));
	world_fini(&w);

	cast_settled(&w);
	lead_to(&w, MIG_TARGET_READY);
	world_pass(&w, 121 * USEC_PER_SEC);
	assert_at(&w, KVMIM, "m1", WHY, "the source node did not begin within 120 s");
	world_fini(&w);
}

static void a_move_that_nobody_ends_is_given_up_without_touching_a_pod(void **state)
{
	struct world w;

	(void)state;
	cast_settled(&w);
	lead_to(&w, MIG_RUNNING);
	world_pass(&w, 421 * USEC_PER_SEC); /* 2 * 150 s + 120 s for 128 MiB */
	assert_at(&w, KVMIM, "m1", PHASE, "Running");
	assert_at(&w, KVMI, "tiny", "/status/migrationState/abortRequested", "true");
	world_pass(&w, 61 * USEC_PER_SEC);
	assert_at(&w, KVMIM, "m1", PHASE, "Failed");
	assert_at(&w, KVMIM, "m1", "/status/ferry/reason", "NoReport");
	assert_true(cast_has_live_target(&w));
	assert_at(&w, KVMI, "tiny", PHASE, "Running");
	world_pass(&w, 600 * USEC_PER_SEC);
	assert_true(cast_has_live_target(&w));
	/* the source's agent is back: the guest has stayed, so what waits for it elsewhere goes */
	cast_source_fails(&w, "x");
	world_settle(&w);
	assert_false(cast_has_live_target(&w));
	assert_at(&w, KVMI, "tiny", PHASE, "Running");
	world_fini(&w);
}

/* By hand: then nobody but the VMI knows of it. */
static void a_target_outlives_its_migration_only_until_it_is_known_to_have_failed(void **state)
{
	struct world w;

	(void)state;
	cast_settled(&w);
	lead_to(&w, MIG_RUNNING);
	world_pass(&w, 421 * USEC_PER_SEC);
	world_pass(&w, 61 * USEC_PER_SEC);
	world_delete(&w, KVMIM, NS, "m1", -1);
	world_settle(&w);
	assert_null(world_get(&w, KVMIM, NS, "m1"));
	assert_true(cast_has_live_target(&w));
	cast_source_fails(&w, "x");
	world_settle(&w);
	assert_false(cast_has_live_target(&w));
	assert_at(&w, KVMI, "tiny", PHASE, "Running");
	world_fini(&w);
}

static size_t live_targets(struct world *w)
{
	struct kiter it;
	size_t n = 0;

	kcache_list(w->cache, KPOD, NS, &it);
	for (const struct kobj *o; (o = kiter_next(&it));) {
		const Pod *p = kobj_typed(o);

		n += api_label(&p->metadata, LABEL_MIGRATION_UID) &&
		     !p->metadata.deletionTimestamp && !str_eq(p->status.phase, "Failed");
	}
	return n;
}

/* kubevirt/kubevirt#18087: a target that dies when it is ready left a state that made pods by the thousand. */
static void a_hundred_targets_that_die_never_are_two(void **state)
{
	struct world w;

	(void)state;
	cast_settled(&w);
	for (int i = 0; i < 100; i++) {
		CLEANUP(mem_freep) char *name = mem_printf("m%d", i);
		CLEANUP(mem_freep) char *pod = NULL;

		add_move(&w, name, "tiny", "");
		world_settle(&w);
		assert_at(&w, KVMIM, name, PHASE, "Scheduling");
		assert_int_equal(live_targets(&w), 1);
		pod = mem_strdup(cast_target(&w)->metadata.name);
		cast_pod_runs(&w, pod);
		world_settle(&w);
		if (i % 2)
			cast_target_listens(&w);
		world_pass(&w, 2 * USEC_PER_SEC);
		world_patch(&w, KPOD, NS, pod, "{'status':{'phase':'Failed'}}");
		world_settle(&w);
		assert_at(&w, KVMIM, name, PHASE, "Failed");
		world_pass(&w, 3600 * USEC_PER_SEC); /* and by itself no other one comes */
		assert_int_equal(live_targets(&w), 0);
		cast_pod_gone(&w, pod);
	}
	assert_in_range(world_count(&w, KVMIM), 1, 5);
	assert_in_range(world_count(&w, KPOD), 1, 6);
	assert_at(&w, KVMI, "tiny", PHASE, "Running");
	assert_at(&w, KVMI, "tiny", "/status/nodeName", "node-1");
	world_fini(&w);
}

/* kubevirt/kubevirt#5373: what a cancel leaves at the target is nobody's obstacle, also while it ends. */
static void after_a_cancel_the_next_move_does_not_wait_for_the_old_target(void **state)
{
	static const enum mig_state states[] = {MIG_SCHEDULING, MIG_PREPARING, MIG_TARGET_READY};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
		struct world w;

		cast_settled(&w);
		lead_to(&w, states[i]);
		CLEANUP(mem_freep) char *old = mem_strdup(cast_target(&w)->metadata.name);

		world_delete(&w, KVMIM, NS, "m1", -1);
		add_move(&w, "m2", "tiny", "");
		world_pass(&w, 2 * USEC_PER_SEC);
		assert_null(world_get(&w, KVMIM, NS, "m1"));
		if (world_get(&w, KPOD, NS, old)) { /* its agent has a second for that */
			assert_non_null(((const ObjectMeta *)world_get(&w, KPOD, NS, old))
						->deletionTimestamp);
			cast_pod_gone(&w, old);
		}
		world_pass(&w, 3 * USEC_PER_SEC);
		assert_at(&w, KVMIM, "m2", PHASE, "Scheduling");
		assert_int_equal(live_targets(&w), 1);
		world_fini(&w);
	}
}

/* 10 GB of disks and 128 MiB: eleven times 150 s are acceptable, not once. */
static void disks_that_go_along_have_their_time_too(void **state)
{
	struct world w;

	(void)state;
	cast_settled(&w);
	lead_to(&w, MIG_RUNNING);
	world_patch(&w, KVMI, NS, "tiny",
		    "{'status':{'ferry':{'migration':{'disks':[{'name':'root','totalBytes':"
		    "10000000000}]}}}}");
	world_pass(&w, (2 * 11 * 150 + 119) * USEC_PER_SEC);
	assert_at(&w, KVMI, "tiny", "/status/migrationState/abortRequested", "(none)");
	world_pass(&w, 2 * USEC_PER_SEC);
	assert_at(&w, KVMI, "tiny", "/status/migrationState/abortRequested", "true");
	world_fini(&w);
}

/* ---- placement ---- */

static void no_other_node_fails_at_once(void **state)
{
	struct world w;

	(void)state;
	cast_world(&w);
	cast_node(&w, "node-1", "", NULL);
	cast_running(&w);
	world_pass(&w, 10 * USEC_PER_SEC);
	add_move(&w, "m1", "tiny", "");
	world_settle(&w);
	assert_at(&w, KVMIM, "m1", PHASE, "Failed");
	assert_at(&w, KVMIM, "m1", WHY, "there is no other node");
	assert_at(&w, KVMIM, "m1", "/status/ferry/reason", "OnlyOneNode");
	assert_at(&w, KVMIM, "m1", "/status/ferry/plane", "control");
	assert_null(cast_target(&w));
	world_fini(&w);
}

static void what_no_waiting_can_help_names_every_node_and_its_reason(void **state)
{
	struct world w;

	(void)state;
	cast_settled(&w);
	add_move(&w, "m1", "tiny", ",'addedNodeSelector':{'zone':'nowhere'}");
	world_settle(&w);
	assert_at(&w, KVMIM, "m1", PHASE, "Failed");
	assert_at(&w, KVMIM, "m1", WHY,
		  "no node can ever take the virtual machine: node-2: needs label zone=nowhere, "
		  "the node has "
		  "none");
	assert_at(
		&w, KVMIM, "m1", "/status/ferry/placement",
		"[{\"node\":\"node-1\",\"allowed\":false,\"lasting\":true,\"reason\":\"Source\","
		"\"message\":\"the virtual machine runs there\"},{\"node\":\"node-2\",\"allowed\":"
		"false,\"lasting\":true,\"reason\":\"NodeAffinity\",\"message\":\"needs label "
		"zone=nowhere, the node has none\"}]");
	assert_null(cast_target(&w));
	world_fini(&w);
}

static void a_selector_that_only_the_source_has_says_so(void **state)
{
	struct world w;

	(void)state;
	cast_settled(&w);
	add_move(&w, "m1", "tiny", ",'addedNodeSelector':{'kubernetes.io/hostname':'node-1'}");
	world_settle(&w);
	assert_at(&w, KVMIM, "m1", "/status/ferry/reason", "TargetIsSource");
	world_fini(&w);
}

static void the_vms_own_selector_wins_over_the_added_one(void **state)
{
	struct world w;

	(void)state;
	cast_settled(&w);
	add_move(&w, "m1", "tiny", ",'addedNodeSelector':{'kubernetes.io/arch':'arm64'}");
	world_settle(&w);
	assert_at(&w, KVMIM, "m1", PHASE, "Scheduling");
	assert_at(&w, KPOD, cast_target(&w)->metadata.name,
		  "/spec/nodeSelector/kubernetes.io~1arch", "amd64");
	world_fini(&w);
}

static void the_source_vendor_and_host_model_are_asked_of_the_target(void **state)
{
	struct world w;

	(void)state;
	cast_world(&w);
	cast_node(&w, "node-1",
		  ",'cpu-vendor.node.kubevirt.io/Intel':'true',"
		  "'host-model-cpu.node.kubevirt.io/Skylake-Client-v4':'true',"
		  "'host-model-required-features.node.kubevirt.io/rfds-clear':'true'",
		  NULL);
	cast_node(&w, "node-2",
		  ",'cpu-vendor.node.kubevirt.io/Intel':'true',"
		  "'cpu-model-migration.node.kubevirt.io/Skylake-Client-v4':'true'",
		  NULL);
	cast_running(&w);
	world_pass(&w, 10 * USEC_PER_SEC);
	add_move(&w, "m1", "tiny", "");
	world_settle(&w);
	assert_at(&w, KVMIM, "m1", PHASE, "Failed");
	assert_at(&w, KVMIM, "m1", WHY,
		  "no node can ever take the virtual machine: node-2: needs label "
		  "cpu-feature.node.kubevirt.io/rfds-clear=true, the node has none");
	world_patch(&w, &api_kind_Node, "", "node-2",
		    "{'metadata':{'labels':{'cpu-feature.node.kubevirt.io/rfds-clear':'true'}}}");
	add_move(&w, "m2", "tiny", "");
	world_settle(&w);
	assert_at(&w, KVMIM, "m2", PHASE, "Scheduling");
	assert_at(&w, KPOD, cast_target(&w)->metadata.name,
		  "/spec/nodeSelector/cpu-vendor.node.kubevirt.io~1Intel", "true");
	world_fini(&w);
}

static void want_of_room_waits_with_the_reason_shown_and_ends_in_time(void **state)
{
	struct world w;

	(void)state;
	cast_world(&w);
	cast_node(&w, "node-1", "", NULL);
	cast_node(&w, "node-2", "", "'cpu':'4','memory':'1Gi','pods':'110'");
	cast_running(&w);
	world_add(&w, KPOD,
		  "{'metadata':{'name':'hog','namespace':'t'},'spec':{'nodeName':'node-2','"
		  "containers':"
		  "[{'name':'c','resources':{'requests':{'memory':'900Mi'}}}]},'status':{'phase':'"
		  "Running'}}");
	world_pass(&w, 10 * USEC_PER_SEC);
	add_move(&w, "m1", "tiny", "");
	world_settle(&w);
	assert_at(&w, KVMIM, "m1", PHASE, "Scheduling");
	assert_at(&w, KVMIM, "m1", "/status/ferry/stage", "WaitingForNode");
	assert_at(&w, KVMIM, "m1", "/status/ferry/placement/1/message",
		  "memory: needs 396Mi, 124Mi free of 1024Mi");
	assert_string_equal(
		world_cond(&w, KPOD, NS, cast_target(&w)->metadata.name, "PodScheduled"),
		"False Unschedulable: 0/2 nodes are available: 1 Insufficient memory, 1 node(s) "
		"didn't match pod anti-affinity rules.");
	assert_true(world_saw(
		&w, "migrationTargetPodUnschedulable: Migration target pod for VMI [t/tiny] is "
		    "currently unschedulable."));
	world_pass(&w, 299 * USEC_PER_SEC);
	assert_at(&w, KVMIM, "m1", PHASE, "Scheduling");
	world_pass(&w, 2 * USEC_PER_SEC);
	assert_at(&w, KVMIM, "m1", PHASE, "Failed");
	assert_true(world_saw(&w, "timeout period exceeded"));
	assert_at(&w, KVMIM, "m1", "/status/ferry/message",
		  "no node could take the virtual machine in time: node-2: memory: needs 396Mi, "
		  "124Mi free of 1024Mi");
	assert_false(cast_has_live_target(&w));
	world_fini(&w);
}

static void room_that_appears_is_taken(void **state)
{
	struct world w;

	(void)state;
	cast_settled(&w);
	world_patch(&w, &api_kind_Node, "", "node-2", "{'spec':{'unschedulable':true}}");
	add_move(&w, "m1", "tiny", "");
	world_settle(&w);
	assert_at(&w, KVMIM, "m1", PHASE, "Scheduling");
	assert_at(&w, KVMIM, "m1", "/status/ferry/placement/1/reason", "NodeUnschedulable");
	world_patch(&w, &api_kind_Node, "", "node-2", "{'spec':{'unschedulable':null}}");
	world_settle(&w);
	assert_string_equal(cast_target(&w)->spec.nodeName, "node-2");
	world_fini(&w);
}

static void a_pod_that_stays_pending_has_its_own_timeout(void **state)
{
	struct world w;

	(void)state;
	cast_settled(&w);
	add_move(&w, "m1", "tiny", "");
	world_settle(&w);
	world_pass(&w, 899 * USEC_PER_SEC);
	assert_at(&w, KVMIM, "m1", PHASE, "Scheduling");
	world_pass(&w, 2 * USEC_PER_SEC);
	assert_at(&w, KVMIM, "m1", PHASE, "Failed");
	assert_true(world_saw(&w, "SuccessfulDelete: pending pod t/virt-launcher-tiny-"));
	world_fini(&w);

	cast_settled(&w);
	world_add(&w, KVMIM,
		  "{'metadata':{'name':'m1','namespace':'t','annotations':"
		  "{'kubevirt.io/"
		  "migrationPendingPodTimeoutSeconds':'7'}},'spec':{'vmiName':'tiny'}}");
	world_settle(&w);
	world_pass(&w, 8 * USEC_PER_SEC);
	assert_at(&w, KVMIM, "m1", PHASE, "Failed");
	world_fini(&w);
}

/* ---- refusals ---- */

static void what_cannot_move_is_told_why(void **state)
{
	struct world w;

	(void)state;
	cast_settled(&w);
	add_move(&w, "m1", "ghost", "");
	world_settle(&w);
	assert_true(world_saw(&w, "FailedMigration: Migration failed because vmi does not exist."));
	world_patch(&w, KVMI, NS, "tiny",
		    "{'status':{'conditions':[{'type':'Ready','status':'True'},{'type':'"
		    "LiveMigratable',"
		    "'status':'False','reason':'DisksNotLiveMigratable','message':'because'}]}}");
	add_move(&w, "m2", "tiny", "");
	world_settle(&w);
	assert_at(&w, KVMIM, "m2", PHASE, "Failed");
	assert_at(&w, KVMIM, "m2", WHY,
		  "Cannot migrate VMI, Reason: DisksNotLiveMigratable, Message: because");
	world_fini(&w);
}

static void a_quota_makes_it_wait_and_say_so(void **state)
{
	struct world w;

	(void)state;
	cast_settled(&w);
	w.refuses = KPOD;
	w.refusal = "pods \"x\" is forbidden: exceeded quota: small";
	add_move(&w, "m1", "tiny", "");
	world_settle(&w);
	assert_at(&w, KVMIM, "m1", PHASE, "Pending");
	assert_string_equal(world_cond(&w, KVMIM, NS, "m1", "migrationRejectedByResourceQuota"),
			    "True: pods \"x\" is forbidden: exceeded quota: small");
	w.refusal = "admission webhook \"y\" denied the request: no";
	world_settle(&w);
	assert_true(
		world_saw(&w, "FailedCreate: Error creating pod: admission webhook \"y\" denied"));
	w.refuses = NULL;
	world_settle(&w);
	assert_at(&w, KVMIM, "m1", PHASE, "Scheduling");
	assert_string_equal(world_cond(&w, KVMIM, NS, "m1", "migrationRejectedByResourceQuota"),
			    "(none)");
	world_fini(&w);
}

static void a_second_migration_of_one_vmi_is_refused(void **state)
{
	struct world w;

	(void)state;
	cast_settled(&w);
	lead_to(&w, MIG_PREPARING);
	add_move(&w, "m2", "tiny", "");
	world_settle(&w);
	assert_at(&w, KVMIM, "m2", PHASE, "Failed");
	assert_true(world_saw(&w,
			      "FailedMigration: VMI is not eligible for migration because another "
			      "migration job is in progress."));
	world_pass(&w, 2 * USEC_PER_SEC);
	assert_at(&w, KVMIM, "m1", PHASE, "PreparingTarget");
	world_fini(&w);
}

static void a_guest_that_ends_during_the_move_ends_it(void **state)
{
	struct world w;

	(void)state;
	cast_settled(&w);
	lead_to(&w, MIG_SCHEDULING);
	cast_guest_ends(&w, "Failed");
	world_settle(&w);
	assert_at(&w, KVMIM, "m1", PHASE, "Failed");
	assert_true(
		world_saw(&w, "FailedMigration: Migration failed vmi shutdown during migration."));
	world_fini(&w);
}

/* ---- queue and records ---- */

static void add_guest(struct world *w, int i)
{
	CLEANUP(mem_freep)
	char *vmi = mem_printf(
		"{'metadata':{'name':'vm-%d','namespace':'t'},'spec':{'domain':{'memory':{'guest':'"
		"64Mi'},"
		"'devices':{}}},'status':{'phase':'Running','nodeName':'node-%d','conditions':"
		"[{'type':'Ready','status':'True'}]}}",
		i, i % 6 + 1);

	world_add(w, KVMI, vmi);
	CLEANUP(mem_freep)
	char *name = mem_printf("vm-%d", i);
	const ObjectMeta *m = world_get(w, KVMI, NS, name);
	CLEANUP(mem_freep)
	char *pod = mem_printf(
		"{'metadata':{'name':'launcher-%d','namespace':'t','labels':{'kubevirt.io':'virt-"
		"launcher',"
		"'kubevirt.io/created-by':'%s'},'annotations':{'ferry.dev/"
		"uid':'%d'},'ownerReferences':"
		"[{'apiVersion':'kubevirt.io/"
		"v1','kind':'VirtualMachineInstance','name':'%s','uid':'%s',"
		"'controller':true}]},'spec':{'nodeName':'node-%d','containers':[{'name':'compute'}"
		"]},"
		"'status':{'phase':'Running','conditions':[{'type':'Ready','status':'True'}]}}",
		i, m->uid, 200000 + i, m->name, m->uid, i % 6 + 1);

	world_add(w, KPOD, pod);
}

static void exactly_the_configured_number_runs_at_once(void **state)
{
	static const int limits[] = {1, 2, 5};

	(void)state;
	for (size_t k = 0; k < ARRAY_SIZE(limits); k++) {
		struct world w;
		CLEANUP(mem_freep)
		char *kv = mem_printf("{'metadata':{'name':'kubevirt','namespace':'kubevirt'},'"
				      "spec':{'configuration':"
				      "{'migrations':{'parallelMigrationsPerCluster':%d}}}}",
				      limits[k]);

		cast_world(&w);
		for (int i = 1; i <= 6; i++) {
			CLEANUP(mem_freep)
			char *name = mem_printf("node-%d", i);

			cast_node(&w, name, "", NULL);
		}
		world_add(&w, &api_kind_KubeVirt, kv);
		for (int i = 0; i < 12; i++)
			add_guest(&w, i);
		world_settle(&w);
		for (int i = 0; i < 12; i++) {
			CLEANUP(mem_freep)
			char *name = mem_printf("m%d", i);
			CLEANUP(mem_freep)
			char *vmi = mem_printf("vm-%d", i);

			add_move(&w, name, vmi, "");
		}
		world_settle(&w);
		assert_int_equal(cast_moves_in(&w, "Scheduling"), limits[k]);
		assert_int_equal(cast_moves_in(&w, "Pending"), 12 - limits[k]);
		/* an end makes room for exactly one more */
		world_delete(&w, KVMIM, NS, "m0", -1);
		world_settle(&w);
		assert_int_equal(cast_moves_in(&w, "Scheduling"), limits[k]);
		world_fini(&w);
	}
}

static void one_node_sends_two_at_once_or_as_many_as_is_set(void **state)
{
	static const struct {
		const char *setting;
		int n;
	} cases[] = {{"", 2},
		     {"'parallelOutboundMigrationsPerNode':1", 1},
		     {"'parallelOutboundMigrationsPerNode':3", 3}};

	(void)state;
	for (size_t k = 0; k < ARRAY_SIZE(cases); k++) {
		struct world w;
		CLEANUP(mem_freep)
		char *kv = mem_printf("{'metadata':{'name':'kubevirt','namespace':'kubevirt'},'"
				      "spec':{'configuration':{'migrations':{%s}}}}",
				      cases[k].setting);

		cast_world(&w);
		cast_nodes(&w);
		world_add(&w, &api_kind_KubeVirt, kv);
		for (int i = 0; i < 24; i += 6) /* all on node-1 */
			add_guest(&w, i);
		world_settle(&w);
		for (int i = 0; i < 24; i += 6) {
			CLEANUP(mem_freep)
			char *name = mem_printf("m%d", i);
			CLEANUP(mem_freep)
			char *vmi = mem_printf("vm-%d", i);

			add_move(&w, name, vmi, "");
		}
		world_settle(&w);
		assert_int_equal(cast_moves_in(&w, "Scheduling"), cases[k].n);
		world_fini(&w);
	}
}

static void the_longest_pause_counts_with_its_gate(void **state)
{
	static const struct {
		const char *config, *effective;
	} cases[] = {
		{"'migrations':{'maxDowntimeMs':10}", "(none)"},
		{"'migrations':{'maxDowntimeMs':10},'developerConfiguration':{'featureGates':["
		 "'MigrationStallDetection']}",
		 "10"},
		{"'developerConfiguration':{'featureGates':['MigrationStallDetection']}", "900"},
		{"'developerConfiguration':{'featureGates':['MigrationStallDetection'],"
		 "'disabledFeatureGates':['MigrationStallDetection']}",
		 "(none)"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct world w;
		CLEANUP(mem_freep)
		char *kv = mem_printf("{'metadata':{'name':'kubevirt','namespace':'kubevirt'},"
				      "'spec':{'configuration':{%s}}}",
				      cases[i].config);

		cast_settled(&w);
		world_add(&w, &api_kind_KubeVirt, kv);
		lead_to(&w, MIG_RUNNING);
		assert_at(&w, KVMIM, "m1", PHASE, "Running");
		assert_at(&w, KVMI, "tiny",
			  "/status/migrationState/migrationConfiguration/maxDowntimeMs",
			  cases[i].effective);
		world_fini(&w);
	}
}

static void the_newest_five_records_are_kept(void **state)
{
	struct world w;

	(void)state;
	cast_settled(&w);
	for (int i = 0; i < 8; i++) {
		CLEANUP(mem_freep)
		char *name = mem_printf("m%d", i);

		add_move(&w, name, "tiny", ",'addedNodeSelector':{'zone':'nowhere'}");
		world_pass(&w, 2 * USEC_PER_SEC);
	}
	assert_int_equal(world_count(&w, KVMIM), 5);
	assert_null(world_get(&w, KVMIM, NS, "m2"));
	assert_non_null(world_get(&w, KVMIM, NS, "m3"));
	world_fini(&w);
}

static void a_vm_moves_there_and_back_again(void **state)
{
	struct world w;

	(void)state;
	cast_settled(&w);
	for (int i = 0; i < 6; i++) {
		CLEANUP(mem_freep)
		char *name = mem_printf("m%d", i);
		const char *to = i % 2 ? "node-1" : "node-2";

		add_move(&w, name, "tiny", "");
		world_settle(&w);
		assert_string_equal(cast_target(&w)->spec.nodeName, to);
		cast_pod_runs(&w, cast_target(&w)->metadata.name);
		world_settle(&w);
		cast_target_listens(&w);
		cast_source_starts(&w);
		world_settle(&w);
		cast_move_completes(&w);
		world_settle(&w);
		assert_at(&w, KVMIM, name, PHASE, "Succeeded");
		assert_at(&w, KVMI, "tiny", "/status/nodeName", to);
		assert_at(&w, KVMI, "tiny", PHASE, "Running");
		world_pass(&w, 10 * USEC_PER_SEC);
	}
	/* ended source pods go with the records that explain them */
	assert_in_range(world_count(&w, KPOD), 1, 7);
	world_fini(&w);
}

/* ---- the table ---- */

static void the_table_is_what_the_page_says(void **state)
{
	struct sbuf b = SBUF_INIT(1 << 16);
	CLEANUP(mem_freep)
	char *page = NULL;
	struct err err = {0};

	(void)state;
	if (file_read(DOCS_DIR "/internals/migration.md", 1 << 20, &page, NULL, &err))
		fail_msg("%s", err.msg);
	for (enum mig_state s = 0; s < MIG_STATE__MAX; s++) {
		for (enum mig_event e = 0; e < MIG_EV__MAX; e++) {
			const struct mig_edge *edge = mig_edge(s, e);

			if (!edge->act)
				continue;
			sbuf_reset(&b);
			sbuf_addf(&b, "| `%s` | %s | `%s` | %s |", mig_state_name(s),
				  mig_event_name(e), mig_state_name(edge->next), edge->act_name);
			if (!strstr(page, sbuf_str(&b)))
				fail_msg("docs/internals/migration.md lacks the row\n%s",
					 sbuf_str(&b));
		}
	}
	/* and no more rows than that */
	size_t rows = 0, edges = 0;

	for (const char *p = page; (p = strstr(p, "\n| `")); p++)
		rows++;
	for (enum mig_state s = 0; s < MIG_STATE__MAX; s++)
		for (enum mig_event e = 0; e < MIG_EV__MAX; e++)
			edges += mig_edge(s, e)->act != NULL;
	assert_int_equal(rows, edges);
	sbuf_fini(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_cancel_before_data_flows_ends_at_once),
		cmocka_unit_test(a_cancel_while_data_flows_is_the_sources_to_carry_out),
		cmocka_unit_test(a_migration_with_the_name_of_a_deleted_one_gets_its_own_record),
		cmocka_unit_test(a_finish_is_passed_on_when_memory_can_go_over),
		cmocka_unit_test(a_finish_of_one_move_is_none_of_the_next),
		cmocka_unit_test(a_move_that_is_cancelled_is_not_finished),
		cmocka_unit_test(a_source_whose_clock_is_an_hour_behind_is_not_overdue),
		cmocka_unit_test(progress_is_shown_on_the_migration_and_freezes),
		cmocka_unit_test(a_cancel_that_comes_too_late_does_no_harm),
		cmocka_unit_test(a_failed_copy_leaves_the_guest_and_takes_the_target),
		cmocka_unit_test(a_target_that_dies_before_the_start_fails_the_move),
		cmocka_unit_test(a_target_sees_that_its_sources_pod_is_gone),
		cmocka_unit_test(a_target_that_vanishes_while_data_flows_is_aborted_by_the_source),
		cmocka_unit_test(an_agent_that_does_not_answer_has_a_deadline),
		cmocka_unit_test(a_move_that_nobody_ends_is_given_up_without_touching_a_pod),
		cmocka_unit_test(
			a_target_outlives_its_migration_only_until_it_is_known_to_have_failed),
		cmocka_unit_test(disks_that_go_along_have_their_time_too),
		cmocka_unit_test(a_hundred_targets_that_die_never_are_two),
		cmocka_unit_test(after_a_cancel_the_next_move_does_not_wait_for_the_old_target),
		cmocka_unit_test(no_other_node_fails_at_once),
		cmocka_unit_test(what_no_waiting_can_help_names_every_node_and_its_reason),
		cmocka_unit_test(a_selector_that_only_the_source_has_says_so),
		cmocka_unit_test(the_vms_own_selector_wins_over_the_added_one),
		cmocka_unit_test(the_source_vendor_and_host_model_are_asked_of_the_target),
		cmocka_unit_test(want_of_room_waits_with_the_reason_shown_and_ends_in_time),
		cmocka_unit_test(room_that_appears_is_taken),
		cmocka_unit_test(a_pod_that_stays_pending_has_its_own_timeout),
		cmocka_unit_test(what_cannot_move_is_told_why),
		cmocka_unit_test(a_quota_makes_it_wait_and_say_so),
		cmocka_unit_test(a_second_migration_of_one_vmi_is_refused),
		cmocka_unit_test(a_guest_that_ends_during_the_move_ends_it),
		cmocka_unit_test(exactly_the_configured_number_runs_at_once),
		cmocka_unit_test(one_node_sends_two_at_once_or_as_many_as_is_set),
		cmocka_unit_test(the_longest_pause_counts_with_its_gate),
		cmocka_unit_test(the_newest_five_records_are_kept),
		cmocka_unit_test(a_vm_moves_there_and_back_again),
		cmocka_unit_test(the_table_is_what_the_page_says),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
