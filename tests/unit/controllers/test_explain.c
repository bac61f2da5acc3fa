/* Where could it go: each verdict with its reason, and that the migration controller finds the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/str.h"
#include "cast.h"
#include "json/json.h"
#include "lib/torture.h"
#include "virt/controller/migration/explain.h"
#include "virt/controller/migration/mig_int.h"

#define KNODE (&api_kind_Node)
#define INTEL ",'cpu-vendor.node.kubevirt.io/Intel':'true'"
#define MODEL ",'cpu-model-migration.node.kubevirt.io/Skylake-Client-v4':'true'"
#define AVX2  ",'cpu-feature.node.kubevirt.io/avx2':'true'"

static struct world w;

static int setup(void **state)
{
	(void)state;
	cast_world(&w);
	cast_node(&w, "source",
		  INTEL ",'host-model-cpu.node.kubevirt.io/Skylake-Client-v4':'true',"
			"'host-model-required-features.node.kubevirt.io/avx2':'true'",
		  NULL);
	cast_running(&w);
	world_pass(&w, 10 * USEC_PER_SEC);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	world_fini(&w);
	return 0;
}

/* A migration as the API server holds it before it would be stored. */
static VirtualMachineInstanceMigration *new_move(const char *key, const char *value)
{
	VirtualMachineInstanceMigration *m = VirtualMachineInstanceMigration_new();
	bool ok = m && !api_set_str(&m->metadata.name, "m1") &&
		  !api_set_str(&m->metadata.namespace, NS) &&
		  !api_set_str(&m->metadata.uid, "00000000-0000-4000-8000-000000000001") &&
		  !api_set_str(&m->spec.vmiName, "tiny") &&
		  (!key || !api_map_set(&m->spec.addedNodeSelector, key, value));

	return ok ? m : (VirtualMachineInstanceMigration_free(m), NULL);
}

static VirtualMachineInstanceMigration *explained(const char *key, const char *value)
{
	VirtualMachineInstanceMigration *m = new_move(key, value);
	struct view v = {.cache = w.cache, .now = w.now};
	struct err err = {0};

	assert_non_null(m);
	if (mig_explain(&v, m, &err))
		fail_msg("%s", err.msg);
	return m;
}

static void add_tricky_nodes(void)
{
	cast_node(&w, "good", INTEL MODEL AVX2, NULL);
	cast_node(&w, "no-model", INTEL AVX2, NULL);
	cast_node(&w, "no-feature", INTEL MODEL, NULL);
	cast_node(&w, "no-vendor", MODEL AVX2, NULL);
	cast_node(&w, "no-machine", INTEL MODEL AVX2, NULL);
	world_patch(&w, KNODE, "", "no-machine",
		    "{'metadata':{'labels':{'machine-type.node.kubevirt.io/q35':null}}}");
	cast_node(&w, "cordoned", INTEL MODEL AVX2, NULL);
	world_patch(&w, KNODE, "", "cordoned", "{'spec':{'unschedulable':true}}");
	cast_node(&w, "tainted", INTEL MODEL AVX2, NULL);
	world_patch(&w, KNODE, "", "tainted",
		    "{'spec':{'taints':[{'key':'only','value':'db','effect':'NoSchedule'}]}}");
	cast_node(&w, "not-ready", INTEL MODEL AVX2, NULL);
	world_patch(&w, KNODE, "", "not-ready",
		    "{'status':{'conditions':[{'type':'Ready','status':'False'}]}}");
	cast_node(&w, "full", INTEL MODEL AVX2, "'cpu':'4','memory':'1Gi','pods':'110'");
	world_add(
		&w, KPOD,
		"{'metadata':{'name':'hog','namespace':'t'},'spec':{'nodeName':'full','containers':"
		"[{'name':'c','resources':{'requests':{'memory':'900Mi'}}}]},"
		"'status':{'phase':'Running'}}");
	cast_node(&w, "small", INTEL MODEL AVX2, "'cpu':'4','memory':'128Mi','pods':'110'");
	cast_node(&w, "shy", INTEL MODEL AVX2, NULL);
	world_add(&w, KPOD,
		  "{'metadata':{'name':'hermit','namespace':'t'},'spec':{'nodeName':'shy',"
		  "'containers':[{'name':'c'}],'affinity':{'podAntiAffinity':{"
		  "'requiredDuringSchedulingIgnoredDuringExecution':[{'labelSelector':"
		  "{'matchLabels':{'app':'tiny'}},'topologyKey':'kubernetes.io/hostname'}]}}},"
		  "'status':{'phase':'Running'}}");
}

static const struct {
	const char *node;
	bool allowed, lasting;
	const char *reason, *message;
} verdicts[] = {
	{"source", false, true, "Source", "the virtual machine runs there"},
	{"good", true, false, NULL, NULL},
	{"no-model", false, true, "NodeAffinity",
	 "needs label cpu-model-migration.node.kubevirt.io/Skylake-Client-v4=true, the node has none"},
	{"no-feature", false, true, "NodeAffinity",
	 "needs label cpu-feature.node.kubevirt.io/avx2=true, the node has none"},
	{"no-vendor", false, true, "NodeAffinity",
	 "needs label cpu-vendor.node.kubevirt.io/Intel=true, the node has none"},
	{"no-machine", false, true, "NodeAffinity",
	 "needs label machine-type.node.kubevirt.io/q35=true, the node has none"},
	{"cordoned", false, false, "NodeUnschedulable", "the node is cordoned"},
	{"tainted", false, false, "TaintToleration", "node(s) had untolerated taint {only: db}"},
	{"not-ready", false, false, "TaintToleration", "the node is not ready"},
	{"full", false, false, "NodeResourcesFit", "memory: needs 396Mi, 124Mi free of 1024Mi"},
	{"small", false, true, "NodeResourcesFit", "memory: needs 396Mi, 128Mi free of 128Mi"},
	{"shy", false, false, "InterPodAffinity", "pod 'hermit' does not want it near"},
};

static void every_node_gets_its_verdict(void **state)
{
	(void)state;
	add_tricky_nodes();
	CLEANUP(VirtualMachineInstanceMigration_freep)
	VirtualMachineInstanceMigration *m = explained(NULL, NULL);
	const FerryMigrationStatus *f = m->status.ferry;

	assert_int_equal(f->n_placement, ARRAY_SIZE(verdicts));
	for (size_t i = 0; i < ARRAY_SIZE(verdicts); i++) {
		const FerryPlacement *p = &f->placement[i];

		assert_string_equal(p->node, verdicts[i].node);
		if (p->allowed != verdicts[i].allowed ||
		    API_GET(p, lasting, false) != verdicts[i].lasting ||
		    !str_eq(p->reason, verdicts[i].reason) ||
		    !str_eq(p->message, verdicts[i].message))
			fail_msg("%s: %d %d %s: %s", p->node, p->allowed,
				 API_GET(p, lasting, false), p->reason ? p->reason : "-",
				 p->message ? p->message : "-");
	}
	assert_null(f->reason);
	assert_null(f->stage);
	assert_null(m->status.phase);
}

/* The answer of the dry run is the controller's own: both write the same list. */
static void the_controller_finds_the_same(void **state)
{
	(void)state;
	add_tricky_nodes();
	for (int round = 0; round < 2; round++) { /* a node can take it; then only after waiting */
		CLEANUP(VirtualMachineInstanceMigration_freep)
		VirtualMachineInstanceMigration *m = explained(NULL, NULL);
		CLEANUP(js_unrefp)
		struct json *want = api_encode(&api_type_FerryMigrationStatus, m->status.ferry);
		const char *name = round ? "m2" : "m1";
		CLEANUP(mem_freep)
		char *text = mem_printf(
			"{'metadata':{'name':'%s','namespace':'t','labels':{'kubevirt.io/vmi-name':"
			"'tiny'},'finalizers':['kubevirt.io/migrationJobFinalize']},"
			"'spec':{'vmiName':'tiny'}}",
			name);

		world_add(&w, KVMIM, text);
		world_settle(&w);
		const VirtualMachineInstanceMigration *stored = world_get(&w, KVMIM, NS, name);
		CLEANUP(js_unrefp)
		struct json *got = api_encode(&api_type_FerryMigrationStatus, stored->status.ferry);

		assert_true(js_equal(js_get(got, "placement"), js_get(want, "placement")));
		assert_string_equal(stored->status.phase, "Scheduling");
		world_delete(&w, KVMIM, NS, name, -1);
		world_settle(&w);
		if (cast_target(&w))
			cast_pod_gone(&w, cast_target(&w)->metadata.name);
		world_patch(&w, KNODE, "", "good", "{'spec':{'unschedulable':true}}");
		world_pass(&w, 10 * USEC_PER_SEC);
	}
}

static void what_no_waiting_can_help_has_a_reason(void **state)
{
	static const struct {
		const char *key, *value, *reason, *message;
	} cases[] = {
		{"zone", "nowhere", "NoCandidate",
		 "no node can ever take the virtual machine: good: needs label zone=nowhere, the "
		 "node has none"},
		{"kubernetes.io/hostname", "source", "TargetIsSource",
		 "addedNodeSelector selects only the node that the virtual machine runs on"},
		{"kubernetes.io/hostname", "good", NULL, NULL},
	};

	(void)state;
	CLEANUP(VirtualMachineInstanceMigration_freep)
	VirtualMachineInstanceMigration *alone = explained(NULL, NULL);

	assert_string_equal(alone->status.ferry->reason, "OnlyOneNode");
	assert_string_equal(alone->status.ferry->message, "there is no other node");
	cast_node(&w, "good", INTEL MODEL AVX2, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(VirtualMachineInstanceMigration_freep)
		VirtualMachineInstanceMigration *m = explained(cases[i].key, cases[i].value);
		const FerryMigrationStatus *f = m->status.ferry;

		assert_int_equal(f->n_placement, 2);
		assert_true(str_eq(f->reason, cases[i].reason));
		assert_true(str_eq(f->message, cases[i].message));
		assert_int_equal(f->placement[1].allowed, !cases[i].reason);
	}
}

#define WITH_NETWORK                                                                      \
	"{'metadata':{'name':'kubevirt','namespace':'kubevirt'},'spec':{'configuration':" \
	"{'migrations':{'network':'fast'}}}}"
#define FAST "'migration-network.ferry.dev/fast':"

/* Both sides need an address in it, and each node that has none says so. */
static void a_node_without_the_migration_network_says_so(void **state)
{
	static const struct {
		const char *patch, *node, *message; /* message NULL: it can go there */
	} cases[] = {
		{NULL, "good", "has no address in the migration network 'fast'"},
		{"good", "good",
		 "cannot be reached: the node that the guest runs on has no address in the migration "
		 "network 'fast'"},
		{"source", "good", NULL},
	};

	(void)state;
	cast_node(&w, "good", INTEL MODEL AVX2, NULL);
	world_add(&w, &api_kind_KubeVirt, WITH_NETWORK);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		if (cases[i].patch)
			world_patch(&w, KNODE, "", cases[i].patch,
				    "{'metadata':{'labels':{" FAST "'10.99.0.1'}}}");
		CLEANUP(VirtualMachineInstanceMigration_freep)
		VirtualMachineInstanceMigration *m = explained(NULL, NULL);
		const FerryPlacement *p = &m->status.ferry->placement[1];

		assert_string_equal(p->node, cases[i].node);
		assert_int_equal(p->allowed, !cases[i].message);
		assert_true(str_eq(p->message, cases[i].message));
		assert_true(str_eq(p->reason, cases[i].message ? "MigrationNetwork" : NULL));
		assert_int_equal(p->lasting, cases[i].message != NULL);
	}
	/* and whoever places the pod keeps to it */
	struct view v = {.cache = w.cache, .now = w.now};
	CLEANUP(mem_freep)
	char *label = NULL;

	assert_int_equal(mig_network_label(&v, &label), RC_OK);
	assert_string_equal(label, "migration-network.ferry.dev/fast");
}

static void a_vm_that_does_not_run_has_no_places_yet(void **state)
{
	(void)state;
	world_patch(&w, KVMI, NS, "tiny", "{'status':{'phase':'Scheduled'}}");
	CLEANUP(VirtualMachineInstanceMigration_freep)
	VirtualMachineInstanceMigration *m = explained(NULL, NULL);

	assert_string_equal(m->status.ferry->stage, "WaitingForVirtualMachine");
	assert_int_equal(m->status.ferry->n_placement, 0);
	world_erase(&w, KVMI, NS, "tiny");
	CLEANUP(VirtualMachineInstanceMigration_freep)
	VirtualMachineInstanceMigration *gone = explained(NULL, NULL);

	assert_null(gone->status.ferry);
}

static enum rc explain_once(void)
{
	struct view v = {.cache = w.cache, .now = w.now};
	CLEANUP(VirtualMachineInstanceMigration_freep)
	VirtualMachineInstanceMigration *m = new_move("zone", "nowhere");

	return m ? mig_explain(&v, m, NULL) : RC_NOMEM;
}

static void running_out_of_memory_is_said(void **state)
{
	(void)state;
	add_tricky_nodes();
	world_add(&w, &api_kind_KubeVirt, WITH_NETWORK);
	torture(explain_once);
}

int main(void)
{
#define T(fn_) cmocka_unit_test_setup_teardown(fn_, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(every_node_gets_its_verdict),
		T(the_controller_finds_the_same),
		T(what_no_waiting_can_help_has_a_reason),
		T(a_node_without_the_migration_network_says_so),
		T(a_vm_that_does_not_run_has_no_places_yet),
		T(running_out_of_memory_is_said),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("explain", tests, NULL, NULL);
}
