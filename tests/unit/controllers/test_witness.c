/* Lost nodes told by the locks of disks: what is asked, what gives a VM up, and all that does not. */
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
#include "virt/controller/fence/witness.h"
#include "virt/controller/vm/vm.h"
#include "virt/controller/vmi/alloc.h"
#include "virt/controller/vmi/vmi.h"
#include "virt/migration/fencing.h"

#define KNODE	 (&api_kind_Node)
#define KWITNESS (&api_kind_DiskWitness)
#define KCONFIG	 (&api_kind_FerryConfig)
#define KPV	 (&api_kind_PersistentVolume)
#define assert_at(w_, kind_, ns_, name_, pointer_, want_) \
	assert_string_equal(world_at(w_, kind_, ns_, name_, pointer_), want_)
#define assert_asked(w_, epoch_, witness_, lease_)                              \
	do {                                                                    \
		assert_at(w_, KWITNESS, NS, "tiny", "/spec/epoch", epoch_);     \
		assert_at(w_, KWITNESS, NS, "tiny", "/spec/witness", witness_); \
		assert_at(w_, KWITNESS, NS, "tiny", "/spec/lease", lease_);     \
	} while (0)

#define TWO_DISKS(volume_)                                                                      \
	"{'spec':{'template':{'spec':{'domain':{'devices':{'disks':[{'name':'root','disk':{}}," \
	"{'name':'data','disk':{}}]}},'volumes':[{'name':'root','containerDisk':{'image':"      \
	"'registry.test/tiny:v1'}},{'name':'data'," volume_ "}]}}}}"
#define CLAIM TWO_DISKS("'persistentVolumeClaim':{'claimName':'data'}")

/* "tiny" runs on node-1 with these disks; locks are asked for after 20 s of silence. */
static void begin_with(struct world *w, const char *driver, const char *disks)
{
	const struct ctl_def *defs[40] = {&vm_ctl_def,	  &vmi_ctl_def,	    &scheduler_ctl_def,
					  &alloc_ctl_def, &witness_ctl_def, &nodelifecycle_ctl_def};
	CLEANUP(mem_freep)
	char *pv = mem_printf(
		"{'metadata':{'name':'pv-1'},'spec':{'csi':{'driver':'%s','volumeHandle':"
		"'pv-1'},'claimRef':{'namespace':'t','name':'data'}},'status':{'phase':"
		"'Bound'}}",
		driver);
	size_t n = 6;

	for (size_t i = 0; gc_ctl_defs[i]; i++)
		defs[n++] = gc_ctl_defs[i];
	world_init(w, defs, n);
	world_add(w, &api_kind_Namespace, "{'metadata':{'name':'t'}}");
	world_add(w, KCONFIG,
		  "{'metadata':{'name':'ferry'},'spec':{'fencing':'StorageLock','storageLock':{"
		  "'silenceSeconds':20}}}");
	world_add(w, KPV, pv);
	world_add(w, &api_kind_PersistentVolumeClaim,
		  "{'metadata':{'name':'data','namespace':'t'},'spec':{'volumeName':'pv-1'},"
		  "'status':{'phase':'Bound'}}");
	cast_nodes(w);
	world_renew(w, "node-1");
	world_renew(w, "node-2");
	cast_vm(w, "Halted");
	world_patch(w, KVM, NS, "tiny", disks);
	world_patch(w, KVM, NS, "tiny", "{'spec':{'runStrategy':'Always'}}");
	world_settle(w);
	assert_null(world_get(w, KWITNESS, NS, "tiny")); /* no guest runs yet */
	cast_pod_runs(w, cast_source(w)->metadata.name);
	cast_guest_runs(w);
	world_settle(w);
	assert_string_equal(cast_source(w)->spec.nodeName, "node-1");
}

static void begin(struct world *w)
{
	begin_with(w, "ferry.dev/shared", CLAIM);
}

/* Time passes; these are heard of. */
static void pass(struct world *w, unsigned seconds, const char *one, const char *other)
{
	w->now += seconds * USEC_PER_SEC;
	if (one)
		world_renew(w, one);
	if (other)
		world_renew(w, other);
	world_settle(w);
}

static void answer(struct world *w, const char *state)
{
	CLEANUP(mem_freep)
	char *text = mem_printf("{'status':{'epoch':%s,'state':'%s','disk':'data','message':'so'}}",
				world_at(w, KWITNESS, NS, "tiny", "/spec/epoch"), state);

	world_patch(w, KWITNESS, NS, "tiny", text);
	world_settle(w);
}

static const char *reason(struct world *w)
{
	const VirtualMachineInstance *vmi = world_get(w, KVMI, NS, "tiny");

	for (size_t i = 0; i < vmi->status.n_conditions; i++)
		if (str_eq(vmi->status.conditions[i].type, "LostNodeProof"))
			return vmi->status.conditions[i].reason;
	return "(none)";
}

static char *uid_of_vmi(struct world *w)
{
	return mem_strdup(world_at(w, KVMI, NS, "tiny", "/metadata/uid"));
}

static void assert_left_alone(struct world *w, const char *uid, const char *why)
{
	assert_at(w, KVMI, NS, "tiny", "/metadata/uid", uid);
	assert_at(w, KVMI, NS, "tiny", "/status/phase", "Running");
	assert_string_equal(cast_source(w)->spec.nodeName, "node-1");
	assert_string_equal(reason(w), why);
}

/* Seen while it is heard of, then silent and asked. */
static void fall_silent(struct world *w)
{
	answer(w, "Held");
	pass(w, 21, "node-2", NULL);
}

static void locks_that_were_seen_and_are_free_give_the_vm_up(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	CLEANUP(mem_freep) char *first = uid_of_vmi(&w);
	CLEANUP(mem_freep)
	char *lease = mem_strdup(
		world_at(&w, &api_kind_Lease, "kube-node-lease", "node-1", "/spec/renewTime"));

	assert_asked(&w, "1", "node-2", "(none)");
	assert_at(&w, KWITNESS, NS, "tiny", "/spec/nodeName", "node-1");
	assert_at(&w, KWITNESS, NS, "tiny", "/spec/disks/0", "data");
	assert_at(&w, KWITNESS, NS, "tiny", "/spec/disks/1", "(none)");
	answer(&w, "Held");
	assert_string_equal(reason(&w), "LocksSeen");
	pass(&w, 19, "node-2", NULL);
	assert_asked(&w, "1", "node-2", "(none)");
	pass(&w, 2, "node-2", NULL);
	assert_asked(&w, "2", "node-2", lease);
	assert_left_alone(&w, first, "LocksAskedFor");
	world_torture(&w);
	answer(&w, "Held");
	pass(&w, 600, "node-2", NULL);
	assert_left_alone(&w, first, "DiskStillLocked");
	assert_true(world_saw(
		&w, "DiskStillLocked: Not started elsewhere: node 'node-1' is silent, but "
		    "its disk 'data' is still locked"));
	answer(&w, "Unknown");
	assert_left_alone(&w, first, "StorageUnknown");
	answer(&w, "Free");
	assert_true(
		world_saw(&w, "DiskLocksTaken: Node node-1 is silent and node node-2 has taken"));
	assert_string_not_equal(world_at(&w, KVMI, NS, "tiny", "/metadata/uid"), first);
	assert_string_equal(cast_source(&w)->spec.nodeName, "node-2");
	const Node *n = world_get(&w, KNODE, "", "node-1");

	for (size_t i = 0; i < n->spec.n_taints; i++)
		assert_string_not_equal(n->spec.taints[i].key, "node.kubernetes.io/out-of-service");
	world_torture(&w);
	world_fini(&w);
}

/* Free means nothing on storage that has never shown a lock: each node may see its own only. */
static void what_was_never_seen_as_held_proves_nothing(void **state)
{
	static const char *const seen[] = {NULL, "Free", "Unknown"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(seen); i++) {
		struct world w;

		begin(&w);
		CLEANUP(mem_freep) char *first = uid_of_vmi(&w);

		if (seen[i]) {
			answer(&w, seen[i]);
			assert_string_equal(reason(&w), str_eq(seen[i], "Free") ? "LocksNotSeen"
										: "StorageUnknown");
		}
		pass(&w, 21, "node-2", NULL);
		assert_asked(&w, "1", "node-2", "(none)");
		assert_left_alone(&w, first, "LocksNotSeen");
		answer(&w, "Free");
		pass(&w, 600, "node-2", NULL);
		assert_left_alone(&w, first, "LocksNotSeen");
		world_fini(&w);
	}
}

static void an_answer_is_of_no_use_for_the_next_silence(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	CLEANUP(mem_freep) char *first = uid_of_vmi(&w);

	fall_silent(&w);
	world_renew(&w, "node-1"); /* it is heard of while its disks are asked */
	answer(&w, "Free");
	assert_asked(&w, "3", "node-2", "(none)");
	assert_left_alone(&w, first, "LocksAskedFor");
	answer(&w, "Held");
	assert_left_alone(&w, first, "LocksSeen");
	pass(&w, 21, "node-2", NULL);
	CLEANUP(mem_freep)
	char *lease = mem_strdup(
		world_at(&w, &api_kind_Lease, "kube-node-lease", "node-1", "/spec/renewTime"));

	assert_asked(&w, "4", "node-2", lease);
	/* a late word about an earlier question */
	world_patch(&w, KWITNESS, NS, "tiny", "{'status':{'epoch':2,'state':'Free'}}");
	world_settle(&w);
	assert_left_alone(&w, first, "LocksAskedFor");
	/* heard of and silent again, before anybody has looked: the question is another one */
	world_renew(&w, "node-1");
	w.now += 21 * USEC_PER_SEC;
	world_renew(&w, "node-2");
	world_patch(&w, KWITNESS, NS, "tiny", "{'status':{'epoch':4,'state':'Free'}}");
	world_settle(&w);
	assert_at(&w, KWITNESS, NS, "tiny", "/spec/epoch", "5");
	assert_left_alone(&w, first, "LocksAskedFor");
	answer(&w, "Free");
	assert_string_not_equal(world_at(&w, KVMI, NS, "tiny", "/metadata/uid"), first);
	world_fini(&w);
}

static void a_witness_that_is_silent_too_is_not_believed(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	CLEANUP(mem_freep) char *first = uid_of_vmi(&w);

	cast_node(&w, "node-3", "", NULL);
	world_renew(&w, "node-3");
	answer(&w, "Held");
	w.now += 21 * USEC_PER_SEC;
	world_renew(&w, "node-3");
	world_settle(&w);
	answer(&w, "Free");
	assert_left_alone(&w, first, "NoWitness");
	/* nor is another one asked, which has seen nothing */
	assert_at(&w, KWITNESS, NS, "tiny", "/spec/witness", "node-2");
	world_fini(&w);
}

static void another_node_looks_when_the_witness_is_lost(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	answer(&w, "Held");
	cast_node(&w, "node-3", "", NULL);
	pass(&w, 21, "node-1", "node-3");
	assert_asked(&w, "2", "node-3", "(none)");
	world_fini(&w);
}

/* In a move there is a moment when neither copy holds a lock. */
static void a_vm_in_a_move_waits_for_other_proofs(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	CLEANUP(mem_freep) char *first = uid_of_vmi(&w);

	answer(&w, "Held");
	world_add(&w, KVMIM,
		  "{'metadata':{'name':'m','namespace':'t'},'spec':{'vmiName':'tiny'},'status':{"
		  "'phase':'Running'}}");
	pass(&w, 21, "node-2", NULL);
	assert_left_alone(&w, first, "MoveUnderWay");
	assert_asked(&w, "1", "node-2", "(none)");
	world_patch(&w, KVMIM, NS, "m", "{'status':{'phase':'Failed'}}");
	world_settle(&w);
	assert_left_alone(&w, first, "LocksAskedFor");
	/* one that begins while the answer is on its way */
	world_add(&w, KVMIM, "{'metadata':{'name':'n','namespace':'t'},'spec':{'vmiName':'tiny'}}");
	answer(&w, "Free");
	assert_left_alone(&w, first, "MoveUnderWay");
	world_fini(&w);
}

static void disks_that_cannot_tell_are_named(void **state)
{
	static const struct {
		const char *driver, *disks, *reason;
	} t[] = {
		{"ferry.dev/shared", TWO_DISKS("'emptyDisk':{'capacity':'1Mi'}"), "NoSharedDisk"},
		{"ferry.dev/shared",
		 TWO_DISKS("'persistentVolumeClaim':{'claimName':'data','readOnly':true}"),
		 "NoSharedDisk"},
		{"ferry.dev/local", CLAIM, "DiskOfOneNode"},
		{"ferry.dev/shared", TWO_DISKS("'hostDisk':{'path':'/d/a.img','type':'Disk'}"),
		 "DiskOfOneNode"},
		{"example.com/other", CLAIM, "DiskUnknown"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct world w;

		begin_with(&w, t[i].driver, t[i].disks);
		CLEANUP(mem_freep) char *first = uid_of_vmi(&w);

		assert_string_equal(reason(&w), t[i].reason);
		pass(&w, 600, "node-2", NULL);
		assert_null(world_get(&w, KWITNESS, NS, "tiny"));
		assert_left_alone(&w, first, t[i].reason);
		world_fini(&w);
	}
}

static void a_shared_host_disk_can_tell(void **state)
{
	struct world w;

	(void)state;
	begin_with(&w, "ferry.dev/shared",
		   TWO_DISKS("'hostDisk':{'path':'/d/a.img','type':'Disk','shared':true}"));
	assert_at(&w, KWITNESS, NS, "tiny", "/spec/disks/0", "data");
	world_fini(&w);
}

/* The setting was just made shorter. */
static void a_node_that_does_not_know_its_pace_yet_is_not_late(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	answer(&w, "Held");
	world_patch(&w, &api_kind_Lease, "kube-node-lease", "node-1",
		    "{'spec':{'leaseDurationSeconds':40}}");
	pass(&w, 39, "node-2", NULL);
	assert_asked(&w, "1", "node-2", "(none)");
	assert_string_equal(reason(&w), "LocksSeen");
	pass(&w, 2, "node-2", NULL);
	assert_string_equal(reason(&w), "LocksAskedFor");
	world_fini(&w);
}

static void another_setting_forgets_it(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	CLEANUP(mem_freep) char *first = uid_of_vmi(&w);

	fall_silent(&w);
	world_patch(&w, KCONFIG, "", "ferry", "{'spec':{'fencing':'OutOfServiceTaint'}}");
	world_settle(&w);
	assert_null(world_get(&w, KWITNESS, NS, "tiny"));
	assert_left_alone(&w, first, "(none)");
	world_fini(&w);
}

static void the_silence_that_counts_is_the_settings(void **state)
{
	static const struct {
		const char *cfg;
		int64_t seconds;
	} t[] = {
		{"{}", 0},
		{"{'fencing':'None'}", 0},
		{"{'fencing':'OutOfServiceTaint','storageLock':{'silenceSeconds':7}}", 0},
		{"{'fencing':'Agent','fenceAgent':{'program':'p','silenceSeconds':5}}", 5},
		{"{'fencing':'StorageLock'}", 40},
		{"{'fencing':'StorageLock','storageLock':{}}", 40},
		{"{'fencing':'StorageLock','storageLock':{'silenceSeconds':7}}", 7},
	};

	(void)state;
	assert_int_equal(fencing_silence_seconds(NULL), 0);
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		CLEANUP(FerryConfigSpec_freep)
		FerryConfigSpec *cfg = world_decoded(&api_type_FerryConfigSpec, t[i].cfg);

		assert_int_equal(fencing_silence_seconds(cfg), t[i].seconds);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(locks_that_were_seen_and_are_free_give_the_vm_up),
		cmocka_unit_test(what_was_never_seen_as_held_proves_nothing),
		cmocka_unit_test(an_answer_is_of_no_use_for_the_next_silence),
		cmocka_unit_test(a_witness_that_is_silent_too_is_not_believed),
		cmocka_unit_test(another_node_looks_when_the_witness_is_lost),
		cmocka_unit_test(a_vm_in_a_move_waits_for_other_proofs),
		cmocka_unit_test(disks_that_cannot_tell_are_named),
		cmocka_unit_test(a_shared_host_disk_can_tell),
		cmocka_unit_test(a_node_that_does_not_know_its_pace_yet_is_not_late),
		cmocka_unit_test(another_setting_forgets_it),
		cmocka_unit_test(the_silence_that_counts_is_the_settings),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
