/* Files of one node that are disks of a VM: the VM starts where they are, and what is known of that is not lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "api/meta.h"
#include "base/mem.h"
#include "base/str.h"
#include "cast.h"
#include "json/json.h"
#include "virt/controller/vm/vm.h"
#include "virt/migration/host_disks.h"

#define KNODE (&api_kind_Node)

#define assert_at(w_, kind_, name_, pointer_, want_) \
	assert_string_equal(world_at(w_, kind_, NS, name_, pointer_), want_)

#define VOLUMES(volume_)                                                                        \
	"{'spec':{'template':{'spec':{'domain':{'devices':{'disks':[{'name':'root','disk':{}}," \
	"{'name':'d','disk':{}}]}},'volumes':[{'name':'root','containerDisk':{'image':"         \
	"'registry.test/tiny:v1'}}" volume_ "]}}}}"
#define CDROM                                                                                   \
	"{'spec':{'template':{'spec':{'domain':{'devices':{'disks':[{'name':'root','disk':{}}," \
	"{'name':'d','cdrom':{}}]}},'volumes':[{'name':'root','containerDisk':{'image':"        \
	"'registry.test/tiny:v1'}}" FILE_AT("/d/a.img", "") "]}}}}"
#define FILE_AT(path_, more_) ",{'name':'d','hostDisk':{'path':'" path_ "','type':'Disk'" more_ "}}"

static void runs(struct world *w)
{
	cast_pod_runs(w, cast_source(w)->metadata.name);
	/* in this order: the agent does not let the guest go before the first is written */
	world_patch(w, KVMI, NS, "tiny",
		    "{'status':{'ferry':{'hostDisks':[{'path':'/d/a.img','nodeName':'node-1'}]}}}");
	cast_guest_runs(w);
	world_settle(w);
}

/* VM "tiny" with a file of its own, running on node-1. */
static void begin(struct world *w)
{
	cast_world(w);
	cast_nodes(w);
	cast_vm(w, "Halted");
	world_patch(w, KVM, NS, "tiny", VOLUMES(FILE_AT("/d/a.img", "")));
	world_patch(w, KVM, NS, "tiny", "{'spec':{'runStrategy':'Always'}}");
	world_settle(w);
	assert_string_equal(cast_source(w)->spec.nodeName, "node-1");
	assert_at(w, KVM, "tiny", "/status/ferry/hostDisks", "(none)");
	runs(w);
}

static void stop(struct world *w)
{
	CLEANUP(mem_freep) char *pod = mem_strdup(cast_source(w)->metadata.name);

	world_patch(w, KVM, NS, "tiny", "{'spec':{'runStrategy':'Halted'}}");
	world_settle(w);
	cast_guest_ends(w, "Succeeded");
	world_settle(w);
	if (world_get(w, KPOD, NS, pod))
		cast_pod_gone(w, pod);
	world_settle(w);
	assert_null(world_get(w, KVMI, NS, "tiny"));
}

static void start(struct world *w)
{
	world_patch(w, KVM, NS, "tiny", "{'spec':{'runStrategy':'Always'}}");
	world_settle(w);
	assert_non_null(cast_source(w));
}

#define TERM                                                                                            \
	"/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/" \
	"0/matchExpressions/0"

static void a_vm_starts_where_its_file_is(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	assert_at(&w, KVM, "tiny", "/status/ferry/hostDisks/0/path", "/d/a.img");
	assert_at(&w, KVM, "tiny", "/status/ferry/hostDisks/0/nodeName", "node-1");
	assert_string_equal(world_at(&w, KPOD, NS, cast_source(&w)->metadata.name, TERM "/key"),
			    "(none)"); /* the first start may be anywhere */
	stop(&w);
	assert_at(&w, KVM, "tiny", "/status/ferry/hostDisks/0/nodeName", "node-1");
	world_patch(&w, KNODE, "", "node-1", "{'spec':{'unschedulable':true}}");
	start(&w);
	const char *pod = cast_source(&w)->metadata.name;

	assert_at(&w, KPOD, pod, TERM "/key", "kubernetes.io/hostname");
	assert_at(&w, KPOD, pod, TERM "/operator", "In");
	assert_at(&w, KPOD, pod, TERM "/values/0", "node-1");
	assert_at(&w, KVM, "tiny", "/spec/template/spec/affinity", "(none)");
	world_pass(&w, 2 * USEC_PER_SEC);
	assert_at(&w, KPOD, pod, "/spec/nodeName", "(none)");
	assert_at(&w, KVM, "tiny", "/status/printableStatus", "ErrorUnschedulable");
	const char *why = world_cond(&w, KVMI, NS, "tiny", "PodScheduled");

	assert_non_null(strstr(why, "False Unschedulable: 0/2 nodes are available"));
	assert_non_null(strstr(
		why, "; hostDisk 'd': its file '/d/a.img' is on node 'node-1', which is cordoned"));
	world_patch(&w, KNODE, "", "node-1", "{'spec':{'unschedulable':null}}");
	world_pass(&w, 2 * USEC_PER_SEC);
	assert_string_equal(cast_source(&w)->spec.nodeName, "node-1");
	world_torture(&w);
	world_fini(&w);
}

static void the_reason_says_what_keeps_it_from_its_file(void **state)
{
	static const struct {
		const char *vm, *node; /* patches; NULL: none; "": the node is gone */
		const char *why;
	} t[] = {
		{NULL, "", ", which is not in the cluster"},
		{NULL,
		 "{'status':{'conditions':[{'type':'Ready','status':'Unknown'}]},'spec':{"
		 "'taints':[{'key':'node.kubernetes.io/unreachable','effect':'NoSchedule'}]}}",
		 ", which is not ready"},
		{"{'spec':{'template':{'spec':{'nodeSelector':{'kubernetes.io/hostname':'node-2'}}}}}",
		 NULL,
		 ", which the VM's own nodeSelector does not allow (kubernetes.io/hostname=node-2)"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct world w;

		begin(&w);
		stop(&w);
		if (t[i].vm)
			world_patch(&w, KVM, NS, "tiny", t[i].vm);
		if (t[i].node && *t[i].node)
			world_patch(&w, KNODE, "", "node-1", t[i].node);
		else if (t[i].node)
			world_erase(&w, KNODE, "", "node-1");
		start(&w);
		world_pass(&w, 2 * USEC_PER_SEC);
		assert_null(cast_source(&w)->spec.nodeName);
		const char *why = world_cond(&w, KVMI, NS, "tiny", "PodScheduled");

		if (!strstr(why, "hostDisk 'd': its file '/d/a.img' is on node 'node-1'") ||
		    !strstr(why, t[i].why))
			fail_msg("case %zu: %s", i, why);
		world_fini(&w);
	}
}

/* The agent's word and the guest's end come in one look, and the finalizer goes in the same plan: behind it. */
static void the_record_is_written_before_the_vmi_may_go(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	world_patch(&w, KVM, NS, "tiny", "{'spec':{'runStrategy':'Halted'}}");
	world_settle(&w);
	CLEANUP(mem_freep) char *pod = mem_strdup(cast_source(&w)->metadata.name);

	cast_pod_gone(&w, pod);
	world_patch(&w, KVMI, NS, "tiny",
		    "{'status':{'phase':'Succeeded','ferry':{'hostDisks':[{'path':'/d/a.img',"
		    "'nodeName':'node-2'}]}}}");
	CLEANUP(mem_freep) char *plan = world_plan(&w, &vm_ctl_def, NS, "tiny");
	const char *record = strstr(plan, "\"nodeName\":\"node-2\"");
	const char *finalizer = strstr(plan, "finalizers");

	if (!record || !finalizer || record > finalizer)
		fail_msg("%s", plan);
	world_settle(&w);
	assert_null(world_get(&w, KVMI, NS, "tiny"));
	assert_at(&w, KVM, "tiny", "/status/ferry/hostDisks/0/nodeName", "node-2");
	world_fini(&w);
}

static void what_the_spec_does_not_name_any_more_is_forgotten(void **state)
{
	static const struct {
		const char *spec, *left;
	} t[] = {
		{VOLUMES(FILE_AT("/d/a.img", "")), "/d/a.img"},
		{VOLUMES(FILE_AT("/d/b.img", "")), "(none)"},
		{VOLUMES(FILE_AT("/d/a.img", ",'shared':true")), "(none)"},
		{VOLUMES(""), "(none)"},
		{CDROM, "(none)"}, /* the same image may lie on many nodes */
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct world w;

		begin(&w);
		stop(&w);
		world_patch(&w, KVM, NS, "tiny", t[i].spec);
		world_settle(&w);
		assert_at(&w, KVM, "tiny", "/status/ferry/hostDisks/0/path", t[i].left);
		world_patch(&w, KNODE, "", "node-1", "{'spec':{'unschedulable':true}}");
		start(&w);
		assert_int_equal(cast_source(&w)->spec.nodeName == NULL,
				 strcmp(t[i].left, "(none)") != 0);
		world_fini(&w);
	}
}

/* Whoever has moved the file of a stopped VM says so in the record: another node, or none. */
static void a_person_corrects_the_record_of_a_stopped_vm(void **state)
{
	static const char *const said[] = {
		"{'status':{'ferry':{'hostDisks':[{'path':'/d/a.img','nodeName':'node-2'}]}}}",
		"{'status':{'ferry':{'hostDisks':null}}}",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(said); i++) {
		struct world w;

		begin(&w);
		stop(&w);
		world_patch(&w, KNODE, "", "node-1", "{'spec':{'unschedulable':true}}");
		world_patch(&w, KVM, NS, "tiny", said[i]);
		world_settle(&w);
		start(&w);
		assert_string_equal(cast_source(&w)->spec.nodeName, "node-2");
		world_fini(&w);
	}
}

static void a_guest_that_never_ran_pins_nothing(void **state)
{
	struct world w;

	(void)state;
	cast_world(&w);
	cast_nodes(&w);
	cast_vm(&w, "Halted");
	world_patch(&w, KVM, NS, "tiny", VOLUMES(FILE_AT("/d/a.img", "")));
	world_patch(&w, KVM, NS, "tiny", "{'spec':{'runStrategy':'Always'}}");
	world_settle(&w);
	assert_string_equal(cast_source(&w)->spec.nodeName, "node-1"); /* no such file there */
	stop(&w);
	assert_at(&w, KVM, "tiny", "/status/ferry/hostDisks", "(none)");
	world_fini(&w);
}

/* ---- where local disks may move ---- */

#define KCONFIG (&api_kind_FerryConfig)

static void moves(struct world *w, const char *config)
{
	begin(w);
	world_add(w, KCONFIG, config);
	world_pass(w, 10 * USEC_PER_SEC);
	world_add(w, KVMIM,
		  "{'metadata':{'name':'m1','namespace':'t','finalizers':["
		  "'kubevirt.io/migrationJobFinalize']},'spec':{'vmiName':'tiny'}}");
	world_settle(w);
}

static void the_targets_pod_brings_the_file_to_another_node(void **state)
{
	struct world w;

	(void)state;
	moves(&w, "{'metadata':{'name':'ferry'},'spec':{'localDiskMoves':true}}");
	assert_non_null(cast_target(&w));
	assert_string_equal(cast_target(&w)->spec.nodeName, "node-2");
	assert_string_equal(
		api_annotation(&cast_target(&w)->metadata, "ferry.dev/brings-host-disks"), "d");
	/* the record follows the guest, and with it the next start */
	world_patch(&w, KVMI, NS, "tiny",
		    "{'status':{'ferry':{'hostDisks':[{'path':'/d/a.img','nodeName':'node-2'}]}}}");
	world_settle(&w);
	assert_at(&w, KVM, "tiny", "/status/ferry/hostDisks/0/nodeName", "node-2");
	world_fini(&w);
}

static void without_the_setting_no_pod_brings_it(void **state)
{
	struct world w;

	(void)state;
	moves(&w, "{'metadata':{'name':'ferry'},'spec':{}}");
	if (cast_target(&w))
		assert_null(
			api_annotation(&cast_target(&w)->metadata, "ferry.dev/brings-host-disks"));
	world_fini(&w);
}

/* Three nodes: the one whose place is taken gets no pod, although it comes first. */
static void a_node_that_has_no_place_for_the_file_gets_no_pod(void **state)
{
	static const struct {
		const char *two, *three; /* answers */
		const char *node;	 /* NULL: the move fails before a pod is made */
	} t[] = {
		{"yes", "no: it is full", "node-2"},
		{"no: it is full", "yes", "node-3"},
		{"no: it is full", "later: wait", "node-3"},
		{"no: it is full", "no: there is a file", NULL},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		const char *const answers[] = {t[i].two, t[i].three};
		struct world w;

		begin(&w);
		cast_node(&w, "node-3", "", NULL);
		const VirtualMachineInstance *vmi = world_get(&w, KVMI, NS, "tiny");

		for (size_t k = 0; k < 2; k++) {
			CLEANUP(mem_freep)
			char *text = mem_printf(
				"{'metadata':{'annotations':{'arrivals.ferry.dev/looks':'true',"
				"'arrivals.ferry.dev/%s':'%s'}},'status':{'conditions':[{'type':"
				"'Ready','status':'True'}]}}",
				vmi->metadata.uid, answers[k]);

			world_patch(&w, KNODE, "", k ? "node-3" : "node-2", text);
		}
		world_add(&w, KCONFIG,
			  "{'metadata':{'name':'ferry'},'spec':{'localDiskMoves':true}}");
		world_pass(&w, 10 * USEC_PER_SEC);
		world_add(&w, KVMIM,
			  "{'metadata':{'name':'m1','namespace':'t','finalizers':["
			  "'kubevirt.io/migrationJobFinalize']},'spec':{'vmiName':'tiny'}}");
		world_settle(&w);
		if (t[i].node) {
			assert_non_null(cast_target(&w));
			assert_string_equal(cast_target(&w)->spec.nodeName, t[i].node);
			/* what passes is told and does not keep a move from being made */
			bool waits = str_eq(t[i].three, "later: wait");

			assert_at(&w, KVMIM, "m1", "/status/ferry/placement/2/message",
				  waits ? "has no place yet for the disks that go along: wait"
				  : i	? "(none)"
					: "has no place for the disks that go along: it is full");
			assert_at(&w, KVMIM, "m1", "/status/ferry/placement/2/lasting",
				  i ? "(none)" : "true");
		} else {
			assert_null(cast_target(&w));
			assert_at(
				&w, KVMIM, "m1", "/status/ferry/message",
				"no node can ever take the virtual machine: node-2: has no place "
				"for the disks that go along: it is full; node-3: has no place for "
				"the disks that go along: there is a file");
		}
		world_fini(&w);
	}
}

static void an_old_copy_goes_when_it_is_written_down_that_the_guest_has_another(void **state)
{
	static const struct {
		const char *at, *state, *phase;
		enum host_disk_fate fate;
	} t[] = {
#define MOVE_  "'sourcePod':'p','sourceNode':'a','targetPod':'q','targetNode':'b'"
#define BEGUN_ MOVE_ ",'startTimestamp':'2026-01-01T00:00:00Z'"
		{NULL, NULL, "Running", HOST_DISK_STAYS},
		{"a", NULL, "Running", HOST_DISK_STAYS},
		{"a", BEGUN_, "Running", HOST_DISK_UNDECIDED},
		{"a", BEGUN_, "Failed", HOST_DISK_STAYS},
		{"a", MOVE_, "Running", HOST_DISK_STAYS}, /* not begun */
		{"a", BEGUN_ ",'failed':true", "Running", HOST_DISK_STAYS},
		{"b", BEGUN_ ",'completed':true", "Running", HOST_DISK_MOVED},
		{"b", BEGUN_ ",'completed':true", "Succeeded", HOST_DISK_MOVED},
		{"b", BEGUN_ ",'failed':true", "Failed", HOST_DISK_STAYS}, /* lost: for people */
		/* moves after that one, also back to here */
		{"c", "'sourcePod':'q','sourceNode':'b','targetPod':'r','targetNode':'c'",
		 "Running", HOST_DISK_MOVED},
		{"b",
		 "'sourcePod':'q','sourceNode':'b','targetPod':'r','targetNode':'a','failed':true",
		 "Running", HOST_DISK_MOVED},
		/* this pod was to take the guest, and may have run it */
		{"b", "'sourcePod':'q','sourceNode':'b','targetPod':'p','targetNode':'a'",
		 "Running", HOST_DISK_STAYS},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		CLEANUP(mem_freep)
		char *text = mem_printf(
			"{'phase':'%s'%s%s%s%s%s%s}", t[i].phase,
			t[i].state ? ",'migrationState':{" : "", t[i].state ? t[i].state : "",
			t[i].state ? "}" : "",
			t[i].at ? ",'ferry':{'hostDisks':[{'path':'/d/a.img','nodeName':'" : "",
			t[i].at ? t[i].at : "", t[i].at ? "'}]}" : "");
		VirtualMachineInstanceStatus *st =
			world_decoded(&api_type_VirtualMachineInstanceStatus, text);
		CLEANUP(VirtualMachineInstance_freep)
		VirtualMachineInstance *vmi = VirtualMachineInstance_new();

		vmi->status = *st;
		mem_free(st);
		if (host_disk_fate(vmi, "/d/a.img", "a", "p") != t[i].fate)
			fail_msg("case %zu", i);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_vm_starts_where_its_file_is),
		cmocka_unit_test(the_reason_says_what_keeps_it_from_its_file),
		cmocka_unit_test(the_record_is_written_before_the_vmi_may_go),
		cmocka_unit_test(what_the_spec_does_not_name_any_more_is_forgotten),
		cmocka_unit_test(a_person_corrects_the_record_of_a_stopped_vm),
		cmocka_unit_test(a_guest_that_never_ran_pins_nothing),
		cmocka_unit_test(the_targets_pod_brings_the_file_to_another_node),
		cmocka_unit_test(without_the_setting_no_pod_brings_it),
		cmocka_unit_test(a_node_that_has_no_place_for_the_file_gets_no_pod),
		cmocka_unit_test(
			an_old_copy_goes_when_it_is_written_down_that_the_guest_has_another),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("host disks", tests, NULL, NULL);
}
