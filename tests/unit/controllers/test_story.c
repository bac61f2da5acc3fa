/* Whole lives of one VM, step by step: what is written, by whom, and how often. */
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

static void a_start_takes_at_most_eight_writes(void **state)
{
	struct world w;

	(void)state;
	cast_world(&w);
	cast_nodes(&w);
	w.is_tracing = true;
	cast_vm(&w, "Always");
	world_settle(&w);
	assert_at(&w, KVMI, "tiny", "/status/nodeName", "node-1");
	assert_at(&w, KVMI, "tiny", "/status/phase", "Scheduling");
	w.now += 300 * USEC_PER_MSEC;
	cast_pod_runs(&w, cast_source(&w)->metadata.name);
	cast_guest_runs(&w);
	world_settle(&w);
	while (world_next(&w, 10 * USEC_PER_SEC))
		;
	assert_at(&w, KVM, "tiny", "/status/printableStatus", "Running");
	assert_at(&w, KVM, "tiny", "/status/ready", "true");
	assert_in_range(w.writes, 1, 8);
	golden_check("vm-start.plan", sbuf_str(&w.trace));
	world_fini(&w);
}

static void a_slow_start_is_shown_step_by_step(void **state)
{
	struct world w;

	(void)state;
	cast_world(&w);
	cast_nodes(&w);
	cast_vm(&w, "Always");
	world_settle(&w);
	world_pass(&w, 2 * USEC_PER_SEC);
	assert_at(&w, KVM, "tiny", "/status/printableStatus", "Starting");
	assert_at(&w, KVM, "tiny", "/status/created", "true");
	cast_pod_runs(&w, cast_source(&w)->metadata.name);
	world_settle(&w);
	world_pass(&w, 2 * USEC_PER_SEC);
	assert_at(&w, KVMI, "tiny", "/status/phase", "Scheduled");
	assert_string_equal(world_cond(&w, KVMI, NS, "tiny", "Ready"),
			    "False GuestNotRunning: Guest VM is not reported as running");
	cast_guest_runs(&w);
	world_settle(&w);
	assert_at(&w, KVM, "tiny", "/status/printableStatus", "Running");
	world_fini(&w);
}

static void a_move_takes_at_most_sixteen_writes(void **state)
{
	struct world w;

	(void)state;
	cast_world(&w);
	cast_nodes(&w);
	cast_running(&w);
	world_pass(&w, 10 * USEC_PER_SEC);
	w.writes = 0;
	w.is_tracing = true;
	world_add(
		&w, KVMIM,
		"{'metadata':{'name':'m1','namespace':'t','labels':{'kubevirt.io/vmi-name':'tiny'},"
		"'finalizers':['kubevirt.io/migrationJobFinalize']},'spec':{'vmiName':'tiny'}}");
	world_settle(&w);
	assert_at(&w, KVMIM, "m1", "/status/phase", "Scheduling");
	assert_string_equal(cast_target(&w)->spec.nodeName, "node-2");
	w.now += 200 * USEC_PER_MSEC;
	cast_pod_runs(&w, cast_target(&w)->metadata.name);
	world_settle(&w);
	assert_at(&w, KVMIM, "m1", "/status/phase",
		  "Scheduling"); /* told with the start of the copy */
	assert_at(&w, KVMI, "tiny", "/status/migrationState/targetNode", "node-2");
	cast_target_listens(&w);
	world_settle(&w);
	cast_source_starts(&w);
	world_settle(&w);
	assert_at(&w, KVMIM, "m1", "/status/phase", "Running");
	w.now += 900 * USEC_PER_MSEC;
	cast_move_completes(&w);
	world_settle(&w);
	while (world_next(&w, 10 * USEC_PER_SEC))
		;
	assert_at(&w, KVMIM, "m1", "/status/phase", "Succeeded");
	assert_at(&w, KVMIM, "m1", "/metadata/finalizers", "(none)");
	assert_at(&w, KVMIM, "m1", "/status/migrationState/completed", "true");
	assert_at(&w, KVMI, "tiny", "/status/nodeName", "node-2");
	assert_int_equal(((const VirtualMachineInstance *)world_get(&w, KVMI, NS, "tiny"))
				 ->status.activePods.n,
			 1);
	assert_in_range(w.writes, 1, 16);
	golden_check("move.plan", sbuf_str(&w.trace));
	world_fini(&w);
}

static void each_phase_keeps_its_own_time(void **state)
{
	static const char *const phases[] = {"Pending",		"Scheduling",  "Scheduled",
					     "PreparingTarget", "TargetReady", "Running",
					     "Succeeded"};
	struct world w;

	(void)state;
	cast_world(&w);
	cast_nodes(&w);
	cast_running(&w);
	world_pass(&w, 10 * USEC_PER_SEC);
	world_add(&w, KVMIM,
		  "{'metadata':{'name':'m1','namespace':'t'},'spec':{'vmiName':'tiny'}}");
	world_settle(&w);
	w.now += USEC_PER_SEC;
	cast_pod_runs(&w, cast_target(&w)->metadata.name);
	world_settle(&w);
	cast_target_listens(&w);
	world_pass(&w, 2 * USEC_PER_SEC);
	assert_at(&w, KVMIM, "m1", "/status/phase", "TargetReady");
	cast_source_starts(&w);
	world_settle(&w);
	w.now += USEC_PER_SEC;
	cast_move_completes(&w);
	world_settle(&w);
	const VirtualMachineInstanceMigration *m = world_get(&w, KVMIM, NS, "m1");

	assert_int_equal(m->status.n_phaseTransitionTimestamps, ARRAY_SIZE(phases));
	for (size_t i = 0; i < ARRAY_SIZE(phases); i++) {
		assert_string_equal(m->status.phaseTransitionTimestamps[i].phase, phases[i]);
		assert_non_null(m->status.phaseTransitionTimestamps[i].phaseTransitionTimestamp);
	}
	assert_true(world_saw(&w, "SuccessfulMigration: Source node reported migration succeeded"));
	assert_true(world_saw(
		&w, "SuccessfulHandOver: Migration target pod is ready for preparation by "
		    "virt-handler."));
	world_fini(&w);
}

/* A tag that points elsewhere by the next start changes nothing; an image that the spec changes does. */
static void a_vm_keeps_its_images_digest_over_a_restart(void **state)
{
	struct world w;

	(void)state;
	cast_world(&w);
	cast_nodes(&w);
	cast_running(&w);
	world_patch(&w, KVMI, NS, "tiny",
		    "{'status':{'ferry':{'images':[{'volumeName':'root','image':'registry.test/"
		    "tiny:v1','digest':'sha256:aa'}]}}}");
	world_settle(&w);
	world_pass(&w, 5 * USEC_PER_SEC);
	assert_at(&w, KVM, "tiny", "/status/ferry/images/0/digest", "sha256:aa");
	for (int n = 0; n < 2; n++) {
		CLEANUP(mem_freep)
		char *first = mem_strdup(world_at(&w, KVMI, NS, "tiny", "/metadata/uid"));

		if (n == 1)
			world_patch(&w, KVM, NS, "tiny",
				    "{'spec':{'template':{'spec':{'volumes':[{'name':'root',"
				    "'containerDisk':{'image':'registry.test/tiny:v2'}}]}}}}");
		cast_guest_ends(&w, "Succeeded");
		world_settle(&w);
		while (!world_get(&w, KVMI, NS, "tiny") ||
		       str_eq(world_at(&w, KVMI, NS, "tiny", "/metadata/uid"), first))
			assert_true(world_next(&w, 300 * USEC_PER_SEC));
		assert_at(&w, KVMI, "tiny", "/status/ferry/images/0/digest",
			  n == 0 ? "sha256:aa" : "(none)");
		cast_pod_runs(&w, cast_source(&w)->metadata.name);
		cast_guest_runs(&w);
		world_settle(&w);
	}
	world_fini(&w);
}

static void the_cpu_baseline_is_what_host_model_stands_for(void **state)
{
	struct world w;

	(void)state;
	cast_world(&w);
	world_add(&w, &api_kind_FerryConfig,
		  "{'metadata':{'name':'ferry'},'spec':{'cpuBaseline':'Nehalem'}}");
	cast_node(&w, "node-1", "", NULL);
	cast_node(&w, "node-2", ",'cpu-model-migration.node.kubevirt.io/Nehalem':'true'", NULL);
	cast_vm(&w, "Always");
	world_settle(&w);
	assert_string_equal(cast_source(&w)->spec.nodeName, "node-2");
	assert_string_equal(api_annotation(&cast_source(&w)->metadata, ANN_CPU_MODEL), "Nehalem");
	/* it sticks: the guest has seen that CPU */
	world_patch(&w, &api_kind_FerryConfig, "", "ferry", "{'spec':{'cpuBaseline':'Westmere'}}");
	cast_pod_runs(&w, cast_source(&w)->metadata.name);
	cast_guest_runs(&w);
	world_settle(&w);
	world_add(&w, KVMIM,
		  "{'metadata':{'name':'m1','namespace':'t'},'spec':{'vmiName':'tiny'}}");
	world_settle(&w);
	const Pod *target = cast_target(&w);

	if (target) { /* no node but the source's has it */
		assert_true(api_map_has(&target->spec.nodeSelector,
					"cpu-model-migration.node.kubevirt.io/Nehalem"));
		assert_false(api_map_has(&target->spec.nodeSelector,
					 "cpu-model-migration.node.kubevirt.io/Westmere"));
	}
	assert_at(&w, KVMI, "tiny", "/status/nodeName", "node-2");
	world_fini(&w);
}

/* What tells a node how to run a pod is the controller's, not the user's, to say. */
static void a_users_annotation_of_ferry_does_not_reach_the_pod(void **state)
{
	struct world w;

	(void)state;
	cast_world(&w);
	cast_nodes(&w);
	cast_vm(&w, "Halted");
	world_patch(&w, KVM, NS, "tiny",
		    "{'spec':{'runStrategy':'Always','template':{'metadata':{'annotations':{"
		    "'ferry.dev/cpu-model':'Nehalem','ferry.dev/uid':'0','own':'kept'}}}}}");
	world_settle(&w);
	const ObjectMeta *m = &cast_source(&w)->metadata;

	assert_string_equal(api_annotation(m, "own"), "kept");
	assert_null(api_annotation(m, ANN_CPU_MODEL));
	assert_string_not_equal(api_annotation(m, ANN_UID), "0");
	world_fini(&w);
}

static void stopping_deletes_the_pod_within_its_grace_and_keeps_the_identity(void **state)
{
	struct world w;

	(void)state;
	cast_world(&w);
	cast_nodes(&w);
	cast_running(&w);
	CLEANUP(mem_freep)
	char *pod = mem_strdup(cast_source(&w)->metadata.name);
	CLEANUP(mem_freep)
	char *address =
		mem_strdup(world_at(&w, KPOD, NS, pod, "/metadata/annotations/ferry.dev~1address"));

	world_pass(&w, 10 * USEC_PER_SEC);
	world_patch(&w, KVM, NS, "tiny", "{'spec':{'runStrategy':'Halted'}}");
	world_settle(&w);
	assert_at(&w, KVM, "tiny", "/status/printableStatus", "Stopping");
	assert_at(&w, KPOD, pod, "/metadata/deletionGracePeriodSeconds", "5");
	cast_guest_ends(&w, "Succeeded");
	cast_pod_gone(&w, pod);
	world_settle(&w);
	assert_null(world_get(&w, KVMI, NS, "tiny"));
	assert_at(&w, KVM, "tiny", "/status/printableStatus", "Stopped");
	world_pass(&w, 100 * USEC_PER_SEC);
	assert_int_equal(world_count(&w, &api_kind_Allocation), 3);
	world_patch(&w, KVM, NS, "tiny", "{'spec':{'runStrategy':'Always'}}");
	world_settle(&w);
	pod = (mem_free(pod), mem_strdup(cast_source(&w)->metadata.name));
	assert_at(&w, KPOD, pod, "/metadata/annotations/ferry.dev~1address", address);
	assert_int_equal(world_count(&w, &api_kind_Allocation), 3);
	world_fini(&w);
}

static void deleting_a_vm_leaves_nothing(void **state)
{
	struct world w;

	(void)state;
	cast_world(&w);
	cast_nodes(&w);
	cast_running(&w);
	world_pass(&w, 60 * USEC_PER_SEC);
	CLEANUP(mem_freep)
	char *pod = mem_strdup(cast_source(&w)->metadata.name);

	world_delete(&w, KVM, NS, "tiny", -1);
	world_settle(&w);
	assert_at(&w, KVM, "tiny", "/status/printableStatus", "Terminating");
	cast_guest_ends(&w, "Succeeded");
	cast_pod_gone(&w, pod);
	world_settle(&w);
	while (world_next(&w, 60 * USEC_PER_SEC))
		;
	assert_int_equal(world_count(&w, KVM), 0);
	assert_int_equal(world_count(&w, KVMI), 0);
	assert_int_equal(world_count(&w, KPOD), 0);
	assert_int_equal(world_count(&w, &api_kind_Allocation), 0);
	assert_int_equal(world_count(&w, &api_kind_PortBinding), 0);
	assert_int_equal(world_count(&w, &api_kind_ControllerRevision), 0);
	world_fini(&w);
}

static void a_vm_made_anew_under_the_old_name_is_not_confused_with_it(void **state)
{
	struct world w;

	(void)state;
	cast_world(&w);
	cast_nodes(&w);
	cast_running(&w);
	world_pass(&w, 60 * USEC_PER_SEC);
	CLEANUP(mem_freep)
	char *old = mem_strdup(world_at(&w, KVMI, NS, "tiny", "/metadata/uid"));

	world_erase(&w, KVM, NS, "tiny"); /* forced, without its finalizer */
	cast_vm(&w, "Always");
	world_settle(&w);
	assert_at(&w, KVMI, "tiny", "/metadata/uid", old); /* the old one goes first */
	assert_string_not_equal(world_at(&w, KVMI, NS, "tiny", "/metadata/deletionTimestamp"),
				"(none)");
	cast_pod_gone(&w, cast_source(&w)->metadata.name);
	world_settle(&w);
	assert_string_not_equal(world_at(&w, KVMI, NS, "tiny", "/metadata/uid"), old);
	assert_at(&w, &api_kind_PortBinding, "tiny", "/metadata/ownerReferences/0/uid",
		  ((const ObjectMeta *)world_get(&w, KVMI, NS, "tiny"))->uid);
	world_fini(&w);
}

static void orphaning_leaves_the_guest_alone(void **state)
{
	struct world w;

	(void)state;
	cast_world(&w);
	cast_nodes(&w);
	cast_running(&w);
	world_pass(&w, 60 * USEC_PER_SEC);
	world_patch(&w, KVM, NS, "tiny",
		    "{'metadata':{'finalizers':['kubevirt.io/"
		    "virtualMachineControllerFinalize','orphan']}}");
	world_delete(&w, KVM, NS, "tiny", -1);
	world_settle(&w);
	assert_null(world_get(&w, KVM, NS, "tiny"));
	assert_at(&w, KVMI, "tiny", "/metadata/ownerReferences", "(none)");
	assert_at(&w, KVMI, "tiny", "/status/phase", "Running");
	assert_at(&w, KVMI, "tiny", "/metadata/deletionTimestamp", "(none)");
	assert_null(cast_source(&w)->metadata.deletionTimestamp);
	world_fini(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_start_takes_at_most_eight_writes),
		cmocka_unit_test(a_slow_start_is_shown_step_by_step),
		cmocka_unit_test(a_move_takes_at_most_sixteen_writes),
		cmocka_unit_test(each_phase_keeps_its_own_time),
		cmocka_unit_test(a_vm_keeps_its_images_digest_over_a_restart),
		cmocka_unit_test(the_cpu_baseline_is_what_host_model_stands_for),
		cmocka_unit_test(a_users_annotation_of_ferry_does_not_reach_the_pod),
		cmocka_unit_test(stopping_deletes_the_pod_within_its_grace_and_keeps_the_identity),
		cmocka_unit_test(deleting_a_vm_leaves_nothing),
		cmocka_unit_test(a_vm_made_anew_under_the_old_name_is_not_confused_with_it),
		cmocka_unit_test(orphaning_leaves_the_guest_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
