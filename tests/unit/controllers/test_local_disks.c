/* Claims whose data lie on one node: when they may move, what a move makes of their volumes, and how the target's pod
 * is placed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/str.h"
#include "cast.h"
#include "json/json.h"
#include "lib/torture.h"
#include "virt/migration/local_disks.h"
#include "virt/migration/migratable.h"

#define KPV	(&api_kind_PersistentVolume)
#define KPVC	(&api_kind_PersistentVolumeClaim)
#define KCONFIG (&api_kind_FerryConfig)
#define KPOLICY (&api_kind_MigrationPolicy)
#define LEFT	"ferry.dev/left-behind"
#define KEPT	"ferry.dev/kept-on"

#define assert_at(w_, kind_, name_, pointer_, want_) \
	assert_string_equal(world_at(w_, kind_, NS, name_, pointer_), want_)

/* ---- the settings ---- */

static void a_policy_decides_before_the_cluster_does(void **state)
{
	static const struct {
		const char *cfg, *policy; /* specs; NULL: there is none */
		bool may;
	} t[] = {
		{NULL, NULL, false},
		{"{}", NULL, false},
		{"{'localDiskMoves':false}", NULL, false},
		{"{'localDiskMoves':true}", NULL, true},
		{"{'localDiskMoves':true}", "{'selectors':{}}", true},
		{"{'localDiskMoves':true}", "{'selectors':{},'ferry':{}}", true},
		{"{'localDiskMoves':true}", "{'selectors':{},'ferry':{'localDiskMoves':false}}",
		 false},
		{"{}", "{'selectors':{},'ferry':{'localDiskMoves':true}}", true},
		{NULL, "{'selectors':{},'ferry':{'localDiskMoves':true}}", true},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		CLEANUP(FerryConfigSpec_freep)
		FerryConfigSpec *cfg =
			t[i].cfg ? world_decoded(&api_type_FerryConfigSpec, t[i].cfg) : NULL;
		MigrationPolicySpec *spec =
			t[i].policy ? world_decoded(&api_type_MigrationPolicySpec, t[i].policy)
				    : NULL;
		CLEANUP(MigrationPolicy_freep) MigrationPolicy *policy = NULL;

		if (spec) {
			policy = MigrationPolicy_new();
			policy->spec = *spec;
			mem_free(spec);
		}
		if (local_disks_may_move(cfg, policy) != t[i].may)
			fail_msg("case %zu", i);
	}
}

/* ---- which of them can, and what is said of the others ---- */

#define VMI(disks_, volume_)                                                                      \
	"{'metadata':{'name':'v','namespace':'t'},'spec':{'domain':{'devices':{'disks':[" disks_  \
	"]}},'volumes':[{'name':'d'," volume_                                                     \
	"}]},'status':{'volumeStatus':[{'name':'d','target':'vda','persistentVolumeClaimInfo':{'" \
	"claimName':'c','accessModes':['ReadWriteOnce']}}]}}"
#define CLAIM	  "'persistentVolumeClaim':{'claimName':'c'}"
#define FILE_	  "'hostDisk':{'path':'/d/a.img','type':'Disk'}"
#define HOST_DISK "cannot migrate VMI with non-shared HostDisk"
#define SHARED                                                                                 \
	"cannot migrate VMI: PVC c is not shared, live migration requires that all PVCs must " \
	"be shared (using ReadWriteMany access mode)"
#define HINT                                                                            \
	"; its data lie on this node, and go along only if spec.localDiskMoves of the " \
	"FerryConfig or spec.ferry.localDiskMoves of a MigrationPolicy says so"
#define CANNOT                                                                                   \
	"; its data lie on this node and cannot go along, because no disk writes them, or more " \
	"than one may"

static const struct {
	const char *vmi;
	bool is_local, may_move;
	const char *message; /* "": migratable */
} judged[] = {
	{VMI("{'name':'d','disk':{}}", CLAIM), true, true, ""},
	{VMI("{'name':'d'}", CLAIM), true, true, ""},
	{VMI("{'name':'d','disk':{}}", "'dataVolume':{'name':'c'}"), true, true, ""},
	/* KubeVirt's text is the default, with what allows it */
	{VMI("{'name':'d','disk':{}}", CLAIM), true, false, SHARED HINT},
	/* another volume that is not shared: nothing of ours would help */
	{VMI("{'name':'d','disk':{}}", CLAIM), false, true, SHARED},
	{VMI("{'name':'d','disk':{}}", CLAIM), false, false, SHARED},
	/* nobody could copy what is only read, nor two at once */
	{VMI("{'name':'d','disk':{'readonly':true}}", CLAIM), true, true, SHARED CANNOT},
	{VMI("{'name':'d','disk':{},'shareable':true}", CLAIM), true, true, SHARED CANNOT},
	{VMI("{'name':'d','lun':{}}", CLAIM), true, true, SHARED CANNOT},
	{VMI("{'name':'d','disk':{}}", "'persistentVolumeClaim':{'claimName':'c','readOnly':true}"),
	 true, true, SHARED CANNOT},
	{VMI("", CLAIM), true, false, SHARED CANNOT},
	/* the same for a file of the node */
	{VMI("{'name':'d','disk':{}}", FILE_), true, true, ""},
	{VMI("{'name':'d','disk':{}}", FILE_), true, false, HOST_DISK HINT},
	{VMI("{'name':'d','disk':{}}", FILE_), false, true,
	 HOST_DISK}, /* its folder is not allowed */
	{VMI("{'name':'d','disk':{'readonly':true}}", FILE_), true, true, HOST_DISK CANNOT},
};

static void kubevirts_refusal_is_the_default_and_names_the_setting(void **state)
{
	static const char *const local[] = {"d"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(judged); i++) {
		CLEANUP(VirtualMachineInstance_freep)
		VirtualMachineInstance *vmi =
			world_decoded(&api_type_VirtualMachineInstance, judged[i].vmi);
		struct migratable_in in = {.vmi = vmi,
					   .node_name = "n",
					   .has_host_model = true,
					   .local_volumes = local,
					   .n_local_volumes = judged[i].is_local,
					   .moves_local_disks = judged[i].may_move};
		struct migratable out;

		migratable_check(&in, &out);
		if (strcmp(out.message, judged[i].message) != 0)
			fail_msg("case %zu: '%s'", i, out.message);
		assert_int_equal(out.ok, !*judged[i].message);
		if (!out.ok)
			assert_string_equal(out.reason, "DisksNotLiveMigratable");
		else
			assert_string_equal(out.method, "BlockMigration");
	}
}

/* ---- the volume ---- */

#define AFFINITY(node_)                                                                 \
	"'nodeAffinity':{'required':{'nodeSelectorTerms':[{'matchExpressions':[{'key':" \
	"'kubernetes.io/hostname','operator':'In','values':['" node_ "']}]}]}}"
#define PV(driver_, more_)                                                                  \
	"{'metadata':{'name':'pvc-1'},'spec':{'capacity':{'storage':'1Gi'},'accessModes':[" \
	"'ReadWriteOnce'],'csi':{'driver':'" driver_ "','volumeHandle':'pvc-1',"            \
	"'volumeAttributes':{'path':'pvc-1'}}" more_ "}}"

static const char *note(const PersistentVolume *pv, const char *name)
{
	const char *v = api_map_get(&pv->metadata.annotations, name);

	return v ? v : "";
}

static void a_moved_volume_names_its_node_its_folder_and_the_old_copies(void **state)
{
	CLEANUP(PersistentVolume_freep)
	PersistentVolume *pv =
		world_decoded(&api_type_PersistentVolume, PV("ferry.dev/local", "," AFFINITY("a")));

	(void)state;
	assert_false(local_disk_has_moved(pv));
	assert_int_equal(local_disk_take(pv, "a", "b", "u1", false, NULL), RC_OK);
	assert_true(local_disk_has_moved(pv));
	assert_string_equal(local_disk_node(pv), "b");
	assert_string_equal(api_map_get(&pv->spec.csi->volumeAttributes, "path"), "pvc-1.u1");
	assert_string_equal(note(pv, LEFT), "a/pvc-1");
	/* taken already: a second time changes nothing */
	assert_int_equal(local_disk_take(pv, "a", "b", "u1", false, NULL), RC_INVALID);
	/* on it goes before the first copy was removed, and back */
	assert_int_equal(local_disk_take(pv, "b", "c", "u2", false, NULL), RC_OK);
	assert_int_equal(local_disk_take(pv, "c", "a", "u3", false, NULL), RC_OK);
	assert_string_equal(note(pv, LEFT), "a/pvc-1 b/pvc-1.u1 c/pvc-1.u2");
	CLEANUP(mem_freep) char *left = local_disk_left_on(pv, "b");

	assert_string_equal(left, "pvc-1.u1");
	assert_null(local_disk_left_on(pv, "d"));
	assert_int_equal(local_disk_forget(pv, "b", "pvc-1.u1"), RC_OK);
	assert_string_equal(note(pv, LEFT), "a/pvc-1 c/pvc-1.u2");
	assert_int_equal(local_disk_forget(pv, "a", "other"), RC_OK);
	assert_int_equal(local_disk_forget(pv, "a", "pvc-1"), RC_OK);
	assert_int_equal(local_disk_forget(pv, "c", "pvc-1.u2"), RC_OK);
	assert_false(api_map_has(&pv->metadata.annotations, LEFT));
}

static void a_lost_move_keeps_the_old_copy(void **state)
{
	CLEANUP(PersistentVolume_freep)
	PersistentVolume *pv =
		world_decoded(&api_type_PersistentVolume, PV("ferry.dev/local", "," AFFINITY("a")));

	(void)state;
	assert_int_equal(local_disk_take(pv, "a", "b", "u1", true, NULL), RC_OK);
	assert_string_equal(local_disk_node(pv), "b");
	assert_string_equal(note(pv, KEPT), "a/pvc-1");
	assert_null(local_disk_left_on(pv, "a"));
}

static void only_a_volume_that_lies_there_is_taken(void **state)
{
	static const char *const pvs[] = {
		PV("ferry.dev/local", "," AFFINITY("b")),
		PV("ferry.dev/local", "," AFFINITY("a','b")),
		PV("ferry.dev/local", ""),
		PV("ferry.dev/shared", "," AFFINITY("a")),
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(pvs); i++) {
		CLEANUP(PersistentVolume_freep)
		PersistentVolume *pv = world_decoded(&api_type_PersistentVolume, pvs[i]);

		if (local_disk_take(pv, "a", "c", "u", false, NULL) != RC_INVALID)
			fail_msg("volume %zu was taken", i);
		assert_false(local_disk_has_moved(pv));
	}
}

static void rubbish_in_the_list_names_nothing(void **state)
{
	static const char *const lists[] = {"", " ", "a", "a/", "/x", " / ", "a b", "b/pvc-1"};
	CLEANUP(PersistentVolume_freep)
	PersistentVolume *pv =
		world_decoded(&api_type_PersistentVolume, PV("ferry.dev/local", "," AFFINITY("a")));

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
		assert_int_equal(api_map_set(&pv->metadata.annotations, LEFT, lists[i]), RC_OK);
		assert_null(local_disk_left_on(pv, "a"));
	}
}

static enum rc take_once(void)
{
	CLEANUP(PersistentVolume_freep) PersistentVolume *pv = PersistentVolume_new();
	CLEANUP(mem_freep) char *left = NULL;
	enum rc rc = RC_NOMEM;

	if (!pv)
		return rc;
	pv->metadata.name = mem_strdup("pvc-1");
	CSIPersistentVolumeSource *csi =
		api_ensure(&api_type_CSIPersistentVolumeSource, &pv->spec.csi);
	VolumeNodeAffinity *va = api_ensure(&api_type_VolumeNodeAffinity, &pv->spec.nodeAffinity);
	NodeSelector *ns = va ? api_ensure(&api_type_NodeSelector, &va->required) : NULL;
	NodeSelectorTerm *t =
		ns ? api_append(&ns->nodeSelectorTerms, &ns->n_nodeSelectorTerms, sizeof(*t))
		   : NULL;
	NodeSelectorRequirement *r =
		t ? api_append(&t->matchExpressions, &t->n_matchExpressions, sizeof(*r)) : NULL;

	if (!pv->metadata.name || !csi || !r || api_set_str(&csi->driver, "ferry.dev/local") ||
	    api_set_str(&r->key, "kubernetes.io/hostname") || api_set_str(&r->operator, "In") ||
	    api_append_str(&r->values, &r->n_values, "a"))
		return RC_NOMEM;
	rc = local_disk_take(pv, "a", "b", "u", false, NULL);
	if (!rc)
		rc = local_disk_take(pv, "b", "c", "w", false, NULL);
	if (!rc)
		rc = local_disk_forget(pv, "a", "pvc-1");
	if (rc)
		return rc;
	left = local_disk_left_on(pv, "b");
	return left ? RC_OK : RC_NOMEM;
}

static void every_allocation_may_fail(void **state)
{
	(void)state;
	torture(take_once);
}

/* ---- the target's pod ---- */

static void with_claim(struct world *w, const char *config)
{
	cast_settled(w);
	world_add(
		w, KPVC,
		"{'metadata':{'name':'c','namespace':'t'},'spec':{'accessModes':['ReadWriteOnce'],"
		"'storageClassName':'local','volumeName':'pvc-1'},'status':{'phase':'Bound'}}");
	world_add(w, KPV, PV("ferry.dev/local", "," AFFINITY("node-1")));
	world_patch(w, KVMI, NS, "tiny",
		    "{'spec':{'domain':{'devices':{'disks':[{'name':'root','disk':{}},{'name':'d',"
		    "'disk':{}}]}},'volumes':[{'name':'root','containerDisk':{'image':"
		    "'registry.test/tiny:v1'}},{'name':'d'," CLAIM "}]}}");
	world_add(w, KCONFIG, config);
	world_settle(w);
	world_add(w, KVMIM,
		  "{'metadata':{'name':'m1','namespace':'t','finalizers':["
		  "'kubevirt.io/migrationJobFinalize']},'spec':{'vmiName':'tiny'}}");
	world_settle(w);
}

static void the_targets_pod_brings_the_claim_to_another_node(void **state)
{
	struct world w;

	(void)state;
	with_claim(&w, "{'metadata':{'name':'ferry'},'spec':{'localDiskMoves':true}}");
	assert_non_null(cast_target(&w));
	assert_string_equal(
		api_map_get(&cast_target(&w)->metadata.annotations, "ferry.dev/brings-claims"),
		"c");
	assert_string_equal(cast_target(&w)->spec.nodeName, "node-2");
	world_fini(&w);
}

static void without_the_setting_the_volume_holds_it_back(void **state)
{
	struct world w;

	(void)state;
	with_claim(&w, "{'metadata':{'name':'ferry'},'spec':{}}");
	assert_null(cast_target(&w));
	assert_at(&w, KVMIM, "m1", "/status/phase", "Failed");
	assert_at(&w, KVMIM, "m1", "/status/migrationState/failureReason",
		  "no node can ever take the virtual machine: node-2: the volume of claim 'c' is "
		  "not reachable from this node");
	world_fini(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_policy_decides_before_the_cluster_does),
		cmocka_unit_test(kubevirts_refusal_is_the_default_and_names_the_setting),
		cmocka_unit_test(a_moved_volume_names_its_node_its_folder_and_the_old_copies),
		cmocka_unit_test(a_lost_move_keeps_the_old_copy),
		cmocka_unit_test(only_a_volume_that_lies_there_is_taken),
		cmocka_unit_test(rubbish_in_the_list_names_nothing),
		cmocka_unit_test(every_allocation_may_fail),
		cmocka_unit_test(the_targets_pod_brings_the_claim_to_another_node),
		cmocka_unit_test(without_the_setting_the_volume_holds_it_back),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("local disks", tests, NULL, NULL);
}
