/* Decisions as tables: strategies, printableStatus, back-off, resources, LiveMigratable, predicates. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "api/quantity.h"
#include "base/mem.h"
#include "base/str.h"
#include "json/json.h"
#include "sched/predicates.h"
#include "virt/controller/vm/vm.h"
#include "virt/controller/vmi/launcher_pod.h"
#include "virt/controller/vmi/resources.h"
#include "virt/migration/migratable.h"
#include "world.h"

/* ---- run strategies ---- */

static const char *action_name(enum vm_action a)
{
	static const char *const names[] = {"keep", "start", "stop", "stop+rerun", "flip"};

	return names[a];
}

static void strategies(void **state)
{
	/* acted on, VMI ("-": none, "del": going), request, expected */
	static const struct {
		const char *strategy, *acted, *vmi, *request, *want;
	} rows[] = {
		{"Always", "", "-", "", "start"},
		{"Always", "Always", "-", "Start", "start"},
		{"Always", "Always", "Running", "", "keep"},
		{"Always", "Always", "Running", "Stop", "stop"},
		{"Always", "Always", "del", "", "keep"},
		{"Always", "Always", "Succeeded", "", "stop"},
		{"Always", "Always", "Failed", "", "stop"},
		{"RerunOnFailure", "", "-", "", "start"},
		{"RerunOnFailure", "Halted", "-", "", "start"},
		{"RerunOnFailure", "RerunOnFailure", "-", "", "keep"},
		{"RerunOnFailure", "RerunOnFailure", "-", "Start", "start"},
		{"RerunOnFailure", "RerunOnFailure", "Running", "", "keep"},
		{"RerunOnFailure", "RerunOnFailure", "Running", "Stop", "stop"},
		{"RerunOnFailure", "RerunOnFailure", "Succeeded", "", "stop"},
		{"RerunOnFailure", "RerunOnFailure", "Failed", "", "stop+rerun"},
		{"Manual", "Manual", "-", "", "keep"},
		{"Manual", "", "-", "", "keep"},
		{"Manual", "Manual", "-", "Start", "start"},
		{"Manual", "Manual", "Running", "", "keep"},
		{"Manual", "Manual", "Running", "Stop", "stop"},
		{"Manual", "Manual", "Succeeded", "", "keep"},
		{"Manual", "Manual", "Failed", "Stop", "stop"},
		{"Halted", "Halted", "-", "", "keep"},
		{"Halted", "Halted", "-", "Start", "flip"},
		{"Halted", "Always", "Running", "", "stop"},
		{"Halted", "Always", "Failed", "", "stop"},
		{"Once", "", "-", "", "start"},
		{"Once", "Once", "-", "", "keep"},
		{"Once", "Once", "Running", "", "keep"},
		{"Once", "Once", "Succeeded", "", "keep"},
		{"Once", "Once", "Failed", "", "keep"},
		{"WaitAsReceiver", "", "-", "", "keep"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		bool is_deleted = strcmp(rows[i].vmi, "del") == 0;
		CLEANUP(mem_freep)
		char *text = mem_printf("{'metadata':{'name':'a'},'spec':{'runStrategy':'%s'},'"
					"status':{'runStrategy':'%s'}}",
					rows[i].strategy, rows[i].acted);
		CLEANUP(mem_freep)
		char *vtext =
			mem_printf("{'metadata':{'name':'a','uid':'u'%s},'status':{'phase':'%s'}}",
				   is_deleted ? ",'deletionTimestamp':'2026-01-01T00:00:00Z'" : "",
				   is_deleted ? "Running" : rows[i].vmi);
		CLEANUP(VirtualMachine_freep)
		VirtualMachine *vm = world_decoded(&api_type_VirtualMachine, text);
		CLEANUP(VirtualMachineInstance_freep)
		VirtualMachineInstance *vmi =
			str_eq(rows[i].vmi, "-")
				? NULL
				: world_decoded(&api_type_VirtualMachineInstance, vtext);
		VirtualMachineStateChangeRequest r = {.action = (char *)(uintptr_t)rows[i].request};
		enum vm_action a = vm_decide(vm, vmi, *rows[i].request ? &r : NULL);

		if (!str_eq(action_name(a), rows[i].want))
			fail_msg("%s, VMI %s, request '%s': %s, not %s", rows[i].strategy,
				 rows[i].vmi, rows[i].request, action_name(a), rows[i].want);
	}
}

/* ---- printableStatus ---- */

static void printable(void **state)
{
	/* VM going, VMI status or NULL, start expected, stop expected, unbound claim, failures, strategy */
	static const struct {
		bool going;
		const char *vmi;
		bool start, stop, unbound;
		int fails;
		enum vm_strategy strategy;
		const char *want;
	} rows[] = {
		{true, NULL, false, false, false, 0, VM_ALWAYS, "Terminating"},
		{true, "'phase':'Running'", false, false, false, 0, VM_ALWAYS, "Terminating"},
		{false, "'phase':'Running'", false, true, false, 0, VM_HALTED, "Stopping"},
		{false,
		 "'phase':'Running','migrationState':{'startTimestamp':'2026-01-01T00:00:00Z'}",
		 false, false, false, 0, VM_ALWAYS, "Migrating"},
		{false,
		 "'phase':'Running','migrationState':{'startTimestamp':'2026-01-01T00:00:00Z',"
		 "'endTimestamp':'2026-01-01T00:00:09Z'}",
		 false, false, false, 0, VM_ALWAYS, "Running"},
		{false, "'phase':'Running','conditions':[{'type':'Paused','status':'True'}]", false,
		 false, false, 0, VM_ALWAYS, "Paused"},
		{false, "'phase':'Running'", false, false, true, 0, VM_ALWAYS, "Running"},
		{false,
		 "'phase':'Pending','conditions':[{'type':'Synchronized','status':'False',"
		 "'reason':'FailedPvcNotFound'}]",
		 false, false, true, 0, VM_ALWAYS, "ErrorPvcNotFound"},
		{false,
		 "'phase':'Scheduling','conditions':[{'type':'PodScheduled','status':'False',"
		 "'reason':'Unschedulable'}]",
		 false, false, true, 0, VM_ALWAYS, "ErrorUnschedulable"},
		{false, "'phase':'Scheduling'", false, false, true, 0, VM_ALWAYS,
		 "WaitingForVolumeBinding"},
		{false, NULL, true, false, true, 0, VM_ALWAYS, "WaitingForVolumeBinding"},
		{false, NULL, false, false, true, 0, VM_RERUN_ON_FAILURE, "Stopped"},
		{false, NULL, false, false, true, 0, VM_HALTED, "Stopped"},
		{false,
		 "'phase':'Scheduling','conditions':[{'type':'Synchronized','status':'False',"
		 "'reason':'ErrImagePull'}]",
		 false, false, false, 0, VM_ALWAYS, "ErrImagePull"},
		{false,
		 "'phase':'Scheduling','conditions':[{'type':'Synchronized','status':'False',"
		 "'reason':'ImagePullBackOff'}]",
		 false, false, false, 0, VM_ALWAYS, "ImagePullBackOff"},
		{false, "'phase':'Scheduled'", false, false, false, 0, VM_ALWAYS, "Starting"},
		{false, "'phase':'Pending'", false, false, false, 0, VM_ALWAYS, "Starting"},
		{false, NULL, true, false, false, 0, VM_ALWAYS, "Starting"},
		{false, NULL, true, false, false, 3, VM_ALWAYS, "Starting"},
		{false, NULL, false, false, false, 3, VM_ALWAYS, "CrashLoopBackOff"},
		{false, NULL, false, false, false, 3, VM_ONCE, "CrashLoopBackOff"},
		{false, NULL, false, false, false, 3, VM_MANUAL, "Stopped"},
		{false, "'phase':'Failed'", false, true, false, 2, VM_ALWAYS, "CrashLoopBackOff"},
		{false, "'phase':'Succeeded'", false, false, false, 0, VM_MANUAL, "Stopped"},
		{false, NULL, false, false, false, 0, VM_HALTED, "Stopped"},
		{false, NULL, false, false, false, 0, VM_WAIT_AS_RECEIVER, "WaitingForReceiver"},
		{false, "'phase':'Unknown'", false, false, false, 0, VM_ALWAYS, "Unknown"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		CLEANUP(VirtualMachine_freep)
		VirtualMachine *vm = world_decoded(
			&api_type_VirtualMachine,
			rows[i].going ? "{'metadata':{'deletionTimestamp':'2026-01-01T00:00:00Z'}}"
				      : "{}");
		CLEANUP(mem_freep)
		char *text = mem_printf("{'status':{%s}}", rows[i].vmi ? rows[i].vmi : "");
		CLEANUP(VirtualMachineInstance_freep)
		VirtualMachineInstance *vmi =
			rows[i].vmi ? world_decoded(&api_type_VirtualMachineInstance, text) : NULL;
		struct vm_facts f = {
			.vm = vm,
			.vmi = vmi,
			.strategy = rows[i].strategy,
			.is_start_expected = rows[i].start,
			.is_stop_expected = rows[i].stop,
			.has_unbound_claim = rows[i].unbound,
			.fail_count = rows[i].fails,
		};

		if (!str_eq(vm_printable_status(&f), rows[i].want))
			fail_msg("row %zu: %s, not %s", i, vm_printable_status(&f), rows[i].want);
	}
}

static void back_off_grows_and_stays_the_same_for_the_same_input(void **state)
{
	(void)state;
	assert_int_equal(vm_backoff("u", 0), 0);
	for (int64_t n = 1; n <= 12; n++) {
		usec_t d = MIN(10 * (usec_t)(n * n), 300) * USEC_PER_SEC,
		       got = vm_backoff("some-uid", n);

		assert_in_range(got, d, MIN(d + d / 2, 300 * USEC_PER_SEC));
		assert_int_equal(got, vm_backoff("some-uid", n));
	}
	assert_int_not_equal(vm_backoff("a", 1), vm_backoff("b", 1));
	assert_int_equal(vm_backoff("a", 100), 300 * USEC_PER_SEC);
}

/* ---- resources ---- */

static void overhead_and_requests(void **state)
{
	static const struct {
		const char *spec;
		int64_t overhead_mi;
		const char *memory, *cpu;
	} rows[] = {
		{"{'domain':{'memory':{'guest':'1Gi'},'devices':{}}}", 268, "1292Mi", "100m"},
		{"{'domain':{'memory':{'guest':'1Gi'},'devices':{'autoattachGraphicsDevice':false}}"
		 "}",
		 236, "1260Mi", "100m"},
		{"{'domain':{'cpu':{'cores':2},'memory':{'guest':'1Gi'},'devices':{}}}", 276,
		 "1300Mi", "200m"},
		{"{'domain':{'cpu':{'sockets':2,'cores':2,'threads':2},'memory':{'guest':'1Gi'},'"
		 "devices':{}}}",
		 324, "1348Mi", "800m"},
		/* 1Gi / 512 = 2Mi of page tables, from requests only */
		{"{'domain':{'resources':{'requests':{'memory':'1Gi'}},'devices':{}}}", 270,
		 "1294Mi", "100m"},
		{"{'domain':{'resources':{'requests':{'memory':'1Gi'},'overcommitGuestOverhead':"
		 "true},'devices':{}}}",
		 270, "1Gi", "100m"},
		{"{'domain':{'resources':{'requests':{'memory':'1Gi','cpu':'2'},'limits':{'memory':"
		 "'1Gi','cpu':'2'}},"
		 "'devices':{}}}",
		 378, "1402Mi", "2"},
		{"{'architecture':'arm64','domain':{'memory':{'guest':'1Gi'},'devices':{}}}", 396,
		 "1420Mi", "100m"},
		{"{'domain':{'memory':{'guest':'1Gi'},'devices':{'tpm':{}}}}", 321, "1345Mi",
		 "100m"},
		{"{'domain':{'memory':{'guest':'1Gi'},'devices':{}},'livenessProbe':{'exec':{'"
		 "command':['a']}},"
		 "'readinessProbe':{'exec':{'command':['a']}}}",
		 388, "1412Mi", "100m"},
	};
	const struct vmi_devices none = {false, false};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		CLEANUP(VirtualMachineInstanceSpec_freep)
		VirtualMachineInstanceSpec *s =
			world_decoded(&api_type_VirtualMachineInstanceSpec, rows[i].spec);
		PodResourceRequirements r;

		assert_int_equal(vmi_memory_overhead(s, NULL), rows[i].overhead_mi * (int64_t)MIB);
		assert_int_equal(vmi_compute_resources(s, NULL, &none, &r), RC_OK);
		assert_string_equal(api_map_get(&r.requests, "memory"), rows[i].memory);
		assert_string_equal(api_map_get(&r.requests, "cpu"), rows[i].cpu);
		assert_string_equal(api_map_get(&r.requests, "ephemeral-storage"), "50M");
		assert_null(api_map_get(&r.requests, "devices.kubevirt.io/kvm"));
		api_fini(&api_type_PodResourceRequirements, &r);
	}
}

/* kubevirt/kubevirt#17879: one place looked at limits only, and took the same two processors for none. */
static void the_same_processors_in_other_words_are_as_many(void **state)
{
	static const char *const specs[] = {
		"{'domain':{'resources':{'limits':{'cpu':'2'}},'devices':{}}}",
		"{'domain':{'resources':{'requests':{'cpu':'2'}},'devices':{}}}",
		"{'domain':{'resources':{'limits':{'cpu':'1500m'}},'devices':{}}}",
		"{'domain':{'cpu':{'cores':2},'devices':{}}}",
		"{'domain':{'cpu':{'sockets':2},'devices':{}}}",
		"{'domain':{'cpu':{'threads':2},'devices':{}}}",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(specs); i++) {
		CLEANUP(VirtualMachineInstanceSpec_freep)
		VirtualMachineInstanceSpec *s =
			world_decoded(&api_type_VirtualMachineInstanceSpec, specs[i]);

		assert_int_equal(vmi_vcpus(s), 2);
	}
}

static void configuration_changes_requests(void **state)
{
	CLEANUP(KubeVirtConfiguration_freep)
	KubeVirtConfiguration *cfg = world_decoded(
		&api_type_KubeVirtConfiguration,
		"{'additionalGuestMemoryOverheadRatio':'2.0','developerConfiguration':"
		"{'memoryOvercommit':200,'cpuAllocationRatio':4}}");
	CLEANUP(VirtualMachineInstanceSpec_freep)
	VirtualMachineInstanceSpec *s =
		world_decoded(&api_type_VirtualMachineInstanceSpec,
			      "{'domain':{'memory':{'guest':'1Gi'},'devices':{}}}");
	const struct vmi_devices both = {true, true};
	PodResourceRequirements r;

	(void)state;
	assert_int_equal(vmi_compute_resources(s, cfg, &both, &r), RC_OK);
	assert_string_equal(api_map_get(&r.requests, "memory"), "1048Mi"); /* 512 + 2 * 268 */
	assert_string_equal(api_map_get(&r.requests, "cpu"), "250m");
	assert_string_equal(api_map_get(&r.requests, "devices.kubevirt.io/kvm"), "1");
	assert_string_equal(api_map_get(&r.limits, "devices.kubevirt.io/tun"), "1");
	api_fini(&api_type_PodResourceRequirements, &r);
}

/* ---- LiveMigratable ---- */

#define POD_NET "'networks':[{'name':'n','pod':{}}]"

static void live_migratable(void **state)
{
	static const char no_net[] =
		"cannot migrate VMI which does not use masquerade or a migratable plugin to "
		"connect to the pod network";
	static const struct {
		const char *annotations, *spec, *status;
		const char *reason, *message, *method;
	} rows[] = {
		{"", "'domain':{'devices':{}}", "", NULL, "", "LiveMigration"},
		{"", POD_NET ",'domain':{'devices':{'interfaces':[{'name':'n','masquerade':{}}]}}",
		 "", NULL, "", "LiveMigration"},
		{"", POD_NET ",'domain':{'devices':{'interfaces':[{'name':'n','bridge':{}}]}}", "",
		 "InterfaceNotLiveMigratable", no_net, "LiveMigration"},
		{"'kubevirt.io/allow-pod-bridge-network-live-migration':''",
		 POD_NET ",'domain':{'devices':{'interfaces':[{'name':'n','bridge':{}}]}}", "",
		 NULL, "", "LiveMigration"},
		{"",
		 POD_NET ",'domain':{'devices':{'interfaces':[{'name':'n','passtBinding':{}}]}}",
		 "", NULL, "", "LiveMigration"},
		{"",
		 POD_NET
		 ",'domain':{'devices':{'interfaces':[{'name':'n','binding':{'name':'good'}}]}}",
		 "", NULL, "", "LiveMigration"},
		{"",
		 POD_NET
		 ",'domain':{'devices':{'interfaces':[{'name':'n','binding':{'name':'bad'}}]}}",
		 "", "InterfaceNotLiveMigratable", no_net, "LiveMigration"},
		{"", "'domain':{'cpu':{'model':'host-model'},'devices':{}}", "",
		 "CPUModeLiveMigratable",
		 "the node \"node-1\" does not allow migration with host-model", "LiveMigration"},
		{"", "'domain':{'devices':{'hostDevices':[{'name':'h'}]}}", "",
		 "HostDeviceNotLiveMigratable",
		 "VMI specifies non-migratable generic PCI host device", "LiveMigration"},
		{"", "'domain':{'devices':{'gpus':[{'name':'g'},{'name':'h'}]}}", "",
		 "HostDeviceNotLiveMigratable", "VMI specifies too many GPUs", "LiveMigration"},
		{"", "'domain':{'devices':{'gpus':[{'name':'g'}]}}", "",
		 "HostDeviceNotLiveMigratable",
		 "VMI specifies a GPU but feature gate VGPULiveMigration is not enabled",
		 "LiveMigration"},
		{"", "'domain':{'launchSecurity':{'sev':{}},'devices':{}}", "",
		 "SEVNotLiveMigratable", "VMI uses SEV", "LiveMigration"},
		{"", "'domain':{'launchSecurity':{'tdx':{}},'devices':{}}", "",
		 "TDXNotLiveMigratable", "VMI uses TDX", "LiveMigration"},
		{"", "'domain':{'features':{'hyperv':{'reenlightenment':{}}},'devices':{}}", "",
		 "NoTSCFrequencyNotLiveMigratable",
		 "HyperV Reenlightenment VMIs cannot migrate when TSC Frequency is not exposed on "
		 "the cluster: "
		 "guest timers might be inconsistent",
		 "LiveMigration"},
		{"", "'domain':{'features':{'hyperv':{'reenlightenment':{}}},'devices':{}}",
		 "'topologyHints':{'tscFrequency':2000000000}", NULL, "", "LiveMigration"},
		{"", "'domain':{'features':{'hypervPassthrough':{'enabled':true}},'devices':{}}",
		 "", "HypervPassthroughNotLiveMigratable", "VMI uses hyperv passthrough",
		 "LiveMigration"},
		{"",
		 "'domain':{'devices':{}},'volumes':[{'name':'v','persistentVolumeClaim':{'"
		 "claimName':'c'}}]",
		 "'volumeStatus':[{'name':'v','persistentVolumeClaimInfo':{'accessModes':['"
		 "ReadWriteMany']}}]",
		 NULL, "", "LiveMigration"},
		{"",
		 "'domain':{'devices':{}},'volumes':[{'name':'v','persistentVolumeClaim':{'"
		 "claimName':'c'}}]",
		 "'volumeStatus':[{'name':'v','persistentVolumeClaimInfo':{'accessModes':['"
		 "ReadWriteOnce']}}]",
		 "DisksNotLiveMigratable",
		 "cannot migrate VMI: PVC c is not shared, live migration requires that all PVCs "
		 "must be shared "
		 "(using ReadWriteMany access mode)",
		 "LiveMigration"},
		{"", "'domain':{'devices':{}},'volumes':[{'name':'v','dataVolume':{'name':'c'}}]",
		 "", "DisksNotLiveMigratable",
		 "cannot migrate VMI: Unable to determine if PVC c is shared, live migration "
		 "requires that all "
		 "PVCs must be shared (using ReadWriteMany access mode)",
		 "LiveMigration"},
		{"",
		 "'domain':{'devices':{}},'volumes':[{'name':'v','hostDisk':{'path':'/"
		 "a','type':'Disk'}}]",
		 "", "DisksNotLiveMigratable", "cannot migrate VMI with non-shared HostDisk",
		 "LiveMigration"},
		{"",
		 "'domain':{'devices':{}},'volumes':[{'name':'v','hostDisk':{'path':'/"
		 "a','type':'Disk',"
		 "'shared':true}}]",
		 "", NULL, "", "LiveMigration"},
		{"",
		 "'domain':{'devices':{}},'volumes':[{'name':'v','containerDisk':{'image':'i'}}]",
		 "", NULL, "", "BlockMigration"},
		{"",
		 "'domain':{'devices':{}},'volumes':[{'name':'v','cloudInitNoCloud':{'userData':'x'"
		 "}}]",
		 "", NULL, "", "BlockMigration"},
		{"",
		 "'domain':{'devices':{}},'volumes':[{'name':'v','emptyDisk':{'capacity':'1Gi'}}]",
		 "", NULL, "", "BlockMigration"},
		{"",
		 "'domain':{'devices':{'disks':[{'name':'v','cdrom':{}}]}},'volumes':[{'name':'v',"
		 "'persistentVolumeClaim':{'claimName':'c'}}]",
		 "", NULL, "", "LiveMigration"},
		{"",
		 "'domain':{'devices':{}},'volumes':[{'name':'v','persistentVolumeClaim':{'"
		 "claimName':'c'}}]",
		 "'migratedVolumes':[{'volumeName':'v'}]", NULL, "", "BlockMigration"},
	};
	CLEANUP(KubeVirtConfiguration_freep)
	KubeVirtConfiguration *cfg =
		world_decoded(&api_type_KubeVirtConfiguration,
			      "{'network':{'binding':{'good':{'migration':{}},'bad':{}}}}");

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		CLEANUP(mem_freep)
		char *text =
			mem_printf("{'metadata':{'annotations':{%s}},'spec':{%s},'status':{%s}}",
				   rows[i].annotations, rows[i].spec, rows[i].status);
		CLEANUP(VirtualMachineInstance_freep)
		VirtualMachineInstance *vmi = world_decoded(&api_type_VirtualMachineInstance, text);
		struct migratable_in in = {.vmi = vmi, .node_name = "node-1", .cfg = cfg};
		struct migratable m;

		migratable_check(&in, &m);
		if (!str_eq(m.reason, rows[i].reason) || !str_eq(m.message, rows[i].message) ||
		    !str_eq(m.method, rows[i].method) || m.ok != !rows[i].reason)
			fail_msg("row %zu: %s, %s, %s", i, m.reason, m.message, m.method);
		assert_int_equal(migratable_apply(&in, vmi, 0), RC_OK);
	}
}

static void storage_live_migratable_collects_everything(void **state)
{
	CLEANUP(VirtualMachineInstance_freep)
	VirtualMachineInstance *vmi = world_decoded(
		&api_type_VirtualMachineInstance, "{'spec':{'domain':{'launchSecurity':{'sev':{}},'"
						  "features':{'hypervPassthrough':{'enabled':"
						  "true}},'devices':{'disks':[{'name':'l','lun':{'"
						  "reservation':true}}]}},'volumes':[{'name':'l',"
						  "'persistentVolumeClaim':{'claimName':'c'}}]}}");
	struct migratable_in in = {.vmi = vmi, .node_name = "n", .has_host_model = true};
	struct migratable m;

	(void)state;
	migratable_check_storage(&in, &m);
	assert_string_equal(m.reason, "NotMigratable");
	assert_string_equal(
		m.message,
		"SEVNotLiveMigratable: VMI uses SEV, HypervPassthroughNotLiveMigratable: VMI uses "
		"hyperv passthrough, PersistentReservationNotLiveMigratable: VMI uses SCSI "
		"persistent "
		"reservation");
}

/* ---- predicates ---- */

#define READY "'conditions':[{'type':'Ready','status':'True'}]"
#define ROOM  "'allocatable':{'cpu':'2','memory':'1Gi','pods':'2','devices.kubevirt.io/kvm':'1'}"
#define ASK   "'containers':[{'name':'c','resources':{'requests':{'cpu':'500m','memory':'512Mi'}}}]"

static void predicates(void **state)
{
	static const struct {
		const char *node, *pod, *other;
		const char *text;
		bool lasting;
	} rows[] = {
		{"'status':{" ROOM "," READY "}", ASK, NULL, "", false},
		{"'spec':{'unschedulable':true},'status':{" ROOM "," READY "}", ASK, NULL,
		 "node(s) were unschedulable", false},
		{"'spec':{'taints':[{'key':'k','value':'v','effect':'NoSchedule'}]},'status':{" ROOM
		 "," READY "}",
		 ASK, NULL, "node(s) had untolerated taint {k: v}", false},
		{"'spec':{'taints':[{'key':'k','value':'v','effect':'NoSchedule'}]},'status':{" ROOM
		 "," READY "}",
		 ASK ",'tolerations':[{'key':'k','operator':'Exists'}]", NULL, "", false},
		{"'spec':{'taints':[{'key':'k','effect':'PreferNoSchedule'}]},'status':{" ROOM
		 "," READY "}",
		 ASK, NULL, "", false},
		{"'status':{" ROOM "}", ASK, NULL,
		 "node(s) had untolerated taint {node.kubernetes.io/not-ready: }", false},
		{"'status':{" ROOM "," READY "}", ASK ",'nodeSelector':{'disk':'ssd'}", NULL,
		 "node(s) didn't match Pod's node affinity/selector", true},
		{"'metadata':{'name':'n','labels':{'disk':'ssd'}},'status':{" ROOM "," READY "}",
		 ASK ",'nodeSelector':{'disk':'ssd'}", NULL, "", false},
		{"'status':{" ROOM "," READY "}",
		 ASK
		 ",'affinity':{'nodeAffinity':{'requiredDuringSchedulingIgnoredDuringExecution':"
		 "{'nodeSelectorTerms':[{'matchExpressions':[{'key':'zone','operator':'In','values'"
		 ":['a','b']}]}]}}}",
		 NULL, "node(s) didn't match Pod's node affinity/selector", true},
		{"'metadata':{'name':'n','labels':{'zone':'b'}},'status':{" ROOM "," READY "}",
		 ASK
		 ",'affinity':{'nodeAffinity':{'requiredDuringSchedulingIgnoredDuringExecution':"
		 "{'nodeSelectorTerms':[{'matchExpressions':[{'key':'zone','operator':'In','values'"
		 ":['a','b']}]}]}}}",
		 NULL, "", false},
		{"'status':{" ROOM "," READY "}",
		 "'containers':[{'name':'c','resources':{'requests':{'memory':'2Gi'}}}]", NULL,
		 "Insufficient memory", true},
		{"'status':{" ROOM "," READY "}", ASK,
		 "{'metadata':{'name':'o','namespace':'t'},'spec':{'nodeName':'n','containers':[{'"
		 "name':'c',"
		 "'resources':{'requests':{'memory':'600Mi'}}}]}}",
		 "Insufficient memory", false},
		{"'status':{" ROOM "," READY "}", ASK,
		 "{'metadata':{'name':'o','namespace':'t'},'spec':{'nodeName':'n','containers':[{'"
		 "name':'c',"
		 "'resources':{'requests':{'memory':'600Mi'}}}]},'status':{'phase':'Succeeded'}}",
		 "", false},
		{"'status':{" ROOM "," READY "}",
		 "'containers':[{'name':'c','resources':{'requests':{'devices.kubevirt.io/"
		 "kvm':'2'}}}]",
		 NULL, "Insufficient devices.kubevirt.io/kvm", true},
		{"'metadata':{'name':'n','labels':{'kubernetes.io/hostname':'n'}},'status':{" ROOM
		 "," READY "}",
		 ASK ",'affinity':{'podAntiAffinity':{'"
		     "requiredDuringSchedulingIgnoredDuringExecution':[{"
		     "'labelSelector':{'matchLabels':{'a':'b'}},'topologyKey':'kubernetes.io/"
		     "hostname'}]}}",
		 "{'metadata':{'name':'o','namespace':'t','labels':{'a':'b'}},'spec':{'nodeName':'"
		 "n','containers':[]}}",
		 "node(s) didn't match pod anti-affinity rules", false},
		{"'metadata':{'name':'n','labels':{'kubernetes.io/hostname':'n'}},'status':{" ROOM
		 "," READY "}",
		 ASK ",'affinity':{'podAntiAffinity':{'"
		     "requiredDuringSchedulingIgnoredDuringExecution':[{"
		     "'labelSelector':{'matchLabels':{'a':'b'}},'topologyKey':'kubernetes.io/"
		     "hostname'}]}}",
		 "{'metadata':{'name':'o','namespace':'elsewhere','labels':{'a':'b'}},'spec':{'"
		 "nodeName':'n',"
		 "'containers':[]}}",
		 "", false},
		{"'metadata':{'name':'n','labels':{'kubernetes.io/hostname':'n'}},'status':{" ROOM
		 "," READY "}",
		 ASK
		 ",'affinity':{'podAffinity':{'requiredDuringSchedulingIgnoredDuringExecution':[{"
		 "'labelSelector':{'matchLabels':{'a':'b'}},'topologyKey':'kubernetes.io/"
		 "hostname'}]}}",
		 NULL, "node(s) didn't match pod affinity rules", false},
		{"'metadata':{'name':'n','labels':{'kubernetes.io/hostname':'n'}},'status':{" ROOM
		 "," READY "}",
		 ASK,
		 "{'metadata':{'name':'o','namespace':'t'},'spec':{'nodeName':'n','containers':[],'"
		 "affinity':"
		 "{'podAntiAffinity':{'requiredDuringSchedulingIgnoredDuringExecution':[{'"
		 "labelSelector':{},"
		 "'topologyKey':'kubernetes.io/hostname'}]}}}}",
		 "node(s) didn't satisfy existing pods anti-affinity rules", false},
		{"'status':{" ROOM "," READY "}",
		 ASK ",'topologySpreadConstraints':[{'maxSkew':1,'topologyKey':'zone','"
		     "whenUnsatisfiable':"
		     "'DoNotSchedule','labelSelector':{}}]",
		 NULL,
		 "node(s) didn't match pod topology spread constraints (missing required label)",
		 true},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		CLEANUP(mem_freep)
		char *node_text = mem_printf(
			"{%s%s}",
			strstr(rows[i].node, "metadata") ? "" : "'metadata':{'name':'n'},",
			rows[i].node);
		CLEANUP(mem_freep)
		char *pod_text = mem_printf("{'metadata':{'name':'p','namespace':'t'},'spec':{%s}}",
					    rows[i].pod);
		CLEANUP(Node_freep)
		Node *node = world_decoded(&api_type_Node, node_text);
		CLEANUP(Pod_freep)
		Pod *pod = world_decoded(&api_type_Pod, pod_text);
		CLEANUP(Pod_freep)
		Pod *other = rows[i].other ? world_decoded(&api_type_Pod, rows[i].other) : NULL;
		struct sched_cluster c;
		struct sched_verdict v;

		sched_cluster_init(&c);
		assert_int_equal(sched_cluster_add_node(&c, node), RC_OK);
		if (other)
			assert_int_equal(sched_cluster_add_pod(&c, other), RC_OK);
		assert_int_equal(sched_check(&c, &c.nodes[0], pod, NULL, 0, SCHED_FIRST, &v, NULL),
				 RC_OK);
		if (!str_eq(v.n ? v.reasons[0].text : "", rows[i].text) ||
		    sched_verdict_is_lasting(&v) != rows[i].lasting)
			fail_msg("row %zu: '%s' lasting %d", i, v.n ? v.reasons[0].text : "",
				 sched_verdict_is_lasting(&v));
		sched_cluster_fini(&c);
	}
}

static void summary_counts_and_sorts(void **state)
{
	struct sched_verdict v[3] = {
		{.n = 1, .reasons = {{.text = "node(s) were unschedulable"}}},
		{.n = 2,
		 .reasons = {{.text = "Insufficient cpu"}, {.text = "Insufficient memory"}}},
		{.n = 1, .reasons = {{.text = "Insufficient memory"}}},
	};
	struct sbuf b = SBUF_INIT(4096);

	(void)state;
	sched_summary(v, 3, &b);
	assert_string_equal(sbuf_str(&b),
			    "0/3 nodes are available: 1 Insufficient cpu, 1 node(s) were "
			    "unschedulable, 2 Insufficient memory.");
	sbuf_fini(&b);
}

static void names(void **state)
{
	CLEANUP(mem_freep)
	char *a = launcher_pod_name("tiny", "uid-1");
	CLEANUP(mem_freep)
	char *b = launcher_pod_name("tiny", "uid-1");
	CLEANUP(mem_freep)
	char *c = launcher_pod_name("tiny", "uid-2");
	CLEANUP(mem_freep)
	char *id = NULL;

	(void)state;
	assert_string_equal(a, b);
	assert_string_not_equal(a, c);
	assert_true(str_has_prefix(a, "virt-launcher-tiny-"));
	assert_int_equal(strlen(a), strlen("virt-launcher-tiny-") + 5);
	assert_int_equal(
		launcher_label_of(
			"0123456789012345678901234567890123456789012345678901234567890123456789",
			&id),
		RC_OK);
	assert_int_equal(strlen(id), 63);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(strategies),
		cmocka_unit_test(printable),
		cmocka_unit_test(back_off_grows_and_stays_the_same_for_the_same_input),
		cmocka_unit_test(overhead_and_requests),
		cmocka_unit_test(the_same_processors_in_other_words_are_as_many),
		cmocka_unit_test(configuration_changes_requests),
		cmocka_unit_test(live_migratable),
		cmocka_unit_test(storage_live_migratable_collects_everything),
		cmocka_unit_test(predicates),
		cmocka_unit_test(summary_counts_and_sorts),
		cmocka_unit_test(names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
