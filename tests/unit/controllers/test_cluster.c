/* What kube-controller-manager would do: claims and volumes, endpoints, nodes, the installation; and VMs that
 * meet trouble. */
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
#include "json/json.h"
#include "cast.h"
#include "cluster/controllers/controllers.h"
#include "cluster/scheduler/scheduler.h"
#include "virt/controller/migration/migration.h"
#include "virt/controller/vm/vm.h"
#include "virt/controller/vmi/alloc.h"
#include "virt/controller/vmi/vmi.h"

#define KPVC (&api_kind_PersistentVolumeClaim)
#define KPV  (&api_kind_PersistentVolume)
#define assert_at(w_, kind_, ns_, name_, pointer_, want_) \
	assert_string_equal(world_at(w_, kind_, ns_, name_, pointer_), want_)

static void all(struct world *w)
{
	const struct ctl_def *defs[40];
	size_t n = 0;

	defs[n++] = &vm_ctl_def;
	defs[n++] = &vmi_ctl_def;
	defs[n++] = &scheduler_ctl_def;
	defs[n++] = &mig_ctl_def;
	defs[n++] = &alloc_ctl_def;
	defs[n++] = &endpoints_ctl_def;
	defs[n++] = &claim_ctl_def;
	defs[n++] = &volume_ctl_def;
	defs[n++] = &nodelifecycle_ctl_def;
	defs[n++] = &installation_ctl_def;
	for (size_t i = 0; gc_ctl_defs[i]; i++)
		defs[n++] = gc_ctl_defs[i];
	world_init(w, defs, n);
	world_add(w, &api_kind_Namespace, "{'metadata':{'name':'t'}}");
	world_add(w, &api_kind_KubeVirt, "{'metadata':{'name':'kubevirt','namespace':'kubevirt'}}");
	world_settle(w);
}

/* Everything, and "tiny" runs on node-1. */
static void all_running(struct world *w)
{
	all(w);
	cast_nodes(w);
	world_renew(w, "node-1");
	world_renew(w, "node-2");
	cast_running(w);
}

static void take_out_of_service(struct world *w, const char *node)
{
	world_patch(w, &api_kind_Node, "", node,
		    "{'spec':{'taints':[{'key':'node.kubernetes.io/"
		    "out-of-service','effect':'NoExecute'}]}}");
}

/* ---- the installation ---- */

static void the_installation_makes_its_own_objects_and_reports(void **state)
{
	struct world w;

	(void)state;
	all(&w);
	assert_at(&w, &api_kind_StorageClass, "", "shared", "/provisioner", "ferry.dev/shared");
	assert_at(&w, &api_kind_StorageClass, "", "local", "/volumeBindingMode",
		  "WaitForFirstConsumer");
	assert_at(&w, &api_kind_FerryConfig, "", "ferry", "/spec/networks/0/cidr", "10.244.0.0/16");
	assert_at(&w, &api_kind_KubeVirt, "kubevirt", "kubevirt", "/status/phase", "Deployed");
	assert_string_equal(world_cond(&w, &api_kind_KubeVirt, "kubevirt", "kubevirt", "Available"),
			    "True AllComponentsReady: All components are ready.");
	world_add(&w, &api_kind_KubeVirt, "{'metadata':{'name':'other','namespace':'t'}}");
	world_settle(&w);
	assert_string_equal(world_cond(&w, &api_kind_KubeVirt, "t", "other", "Synchronized"),
			    "False ExistingDeployment: There is an active KubeVirt deployment");
	world_fini(&w);
}

/* ---- volumes ---- */

static void a_shared_claim_is_bound_at_once_and_its_volume_goes_with_it(void **state)
{
	struct world w;

	(void)state;
	all(&w);
	world_add(&w, KPVC,
		  "{'metadata':{'name':'c','namespace':'t','uid':'u1'},'spec':{'accessModes':['"
		  "ReadWriteMany'],"
		  "'resources':{'requests':{'storage':'1Gi'}}}}");
	world_settle(&w);
	assert_at(&w, KPVC, "t", "c", "/status/phase", "Bound");
	assert_at(&w, KPVC, "t", "c", "/spec/storageClassName", "shared");
	assert_at(&w, KPV, "", "pvc-u1", "/status/phase", "Bound");
	assert_at(&w, KPV, "", "pvc-u1", "/spec/csi",
		  "{\"driver\":\"ferry.dev/"
		  "shared\",\"volumeHandle\":\"pvc-u1\",\"volumeAttributes\":{\"path\":"
		  "\"pvc-u1\"}}");
	assert_at(&w, KPV, "", "pvc-u1", "/metadata/finalizers", "[\"ferry.dev/pv-data\"]");
	world_pass(&w, 60 * USEC_PER_SEC);
	world_delete(&w, KPVC, "t", "c", -1);
	world_settle(&w);
	assert_null(world_get(&w, KPVC, "t", "c"));
	assert_at(&w, KPV, "", "pvc-u1", "/status/phase", "Released");
	assert_string_not_equal(world_at(&w, KPV, "", "pvc-u1", "/metadata/deletionTimestamp"),
				"(none)");
	world_fini(&w);
}

static void a_claim_in_use_is_protected_and_retain_keeps_the_volume(void **state)
{
	struct world w;

	(void)state;
	all(&w);
	world_add(&w, &api_kind_StorageClass,
		  "{'metadata':{'name':'kept'},'provisioner':'ferry.dev/"
		  "shared','reclaimPolicy':'Retain'}");
	world_add(&w, KPVC,
		  "{'metadata':{'name':'c','namespace':'t','uid':'u1'},'spec':{'storageClassName':'"
		  "kept',"
		  "'accessModes':['ReadWriteOnce'],'resources':{'requests':{'storage':'1Gi'}}}}");
	world_add(&w, KPOD,
		  "{'metadata':{'name':'p','namespace':'t'},'spec':{'nodeName':'x','containers':[{'"
		  "name':'c'}],"
		  "'volumes':[{'name':'v','persistentVolumeClaim':{'claimName':'c'}}]},'status':{'"
		  "phase':'Running'}}");
	world_settle(&w);
	world_pass(&w, 60 * USEC_PER_SEC);
	world_delete(&w, KPVC, "t", "c", -1);
	world_settle(&w);
	assert_non_null(world_get(&w, KPVC, "t", "c"));
	world_erase(&w, KPOD, "t", "p");
	world_settle(&w);
	assert_null(world_get(&w, KPVC, "t", "c"));
	assert_at(&w, KPV, "", "pvc-u1", "/status/phase", "Released");
	assert_at(&w, KPV, "", "pvc-u1", "/metadata/deletionTimestamp", "(none)");
	world_fini(&w);
}

static void a_local_claim_waits_for_its_consumer_and_stays_on_its_node(void **state)
{
	struct world w;

	(void)state;
	all(&w);
	cast_node(&w, "node-1", "", NULL);
	world_renew(&w, "node-1");
	world_add(&w, KPVC,
		  "{'metadata':{'name':'c','namespace':'t','uid':'u1'},'spec':{'storageClassName':'"
		  "local',"
		  "'accessModes':['ReadWriteOnce'],'resources':{'requests':{'storage':'1Gi'}}}}");
	world_settle(&w);
	assert_at(&w, KPVC, "t", "c", "/status/phase", "Pending");
	assert_true(world_saw(
		&w, "WaitForFirstConsumer: waiting for first consumer to be created before "
		    "binding"));
	world_add(&w, KPOD,
		  "{'metadata':{'name':'p','namespace':'t'},'spec':{'containers':[{'name':'c'}],'"
		  "volumes':"
		  "[{'name':'v','persistentVolumeClaim':{'claimName':'c'}}]}}");
	world_settle(&w);
	assert_at(&w, KPVC, "t", "c", "/status/phase", "Bound");
	assert_at(&w, KPOD, "t", "p", "/spec/nodeName", "node-1");
	assert_at(&w, KPV, "", "pvc-u1",
		  "/spec/nodeAffinity/required/nodeSelectorTerms/0/matchExpressions/0/values",
		  "[\"node-1\"]");
	/* a second consumer cannot go elsewhere */
	cast_node(&w, "node-2", "", NULL);
	world_renew(&w, "node-2");
	world_patch(&w, &api_kind_Node, "", "node-1", "{'spec':{'unschedulable':true}}");
	world_add(&w, KPOD,
		  "{'metadata':{'name':'q','namespace':'t'},'spec':{'containers':[{'name':'c'}],'"
		  "volumes':"
		  "[{'name':'v','persistentVolumeClaim':{'claimName':'c'}}]}}");
	world_settle(&w);
	assert_string_equal(
		world_cond(&w, KPOD, "t", "q", "PodScheduled"),
		"False Unschedulable: 0/2 nodes are available: 1 node(s) had volume node affinity "
		"conflict, 1 node(s) were unschedulable.");
	world_fini(&w);
}

static void what_cannot_be_provisioned_says_why(void **state)
{
	static const struct {
		const char *spec, *event;
	} rows[] = {
		{"'storageClassName':'nosuch','accessModes':['ReadWriteOnce'],'resources':{'"
		 "requests':{'storage':'1Gi'}}",
		 "ProvisioningFailed: storageclass.storage.k8s.io \"nosuch\" not found"},
		{"'storageClassName':'','accessModes':['ReadWriteOnce'],'resources':{'requests':{'"
		 "storage':'1Gi'}}",
		 "FailedBinding: no persistent volumes available for this claim and no storage "
		 "class is set"},
		{"'storageClassName':'local','accessModes':['ReadWriteMany'],'resources':{'"
		 "requests':{'storage':'1Gi'}}",
		 "ProvisioningFailed: a volume on the disk of one node cannot be shared"},
		{"'storageClassName':'shared','accessModes':['ReadWriteMany']",
		 "ProvisioningFailed: the claim asks for no storage"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		CLEANUP(mem_freep)
		char *text = mem_printf("{'metadata':{'name':'c','namespace':'t'},'spec':{%s}}",
					rows[i].spec);
		struct world w;

		all(&w);
		world_add(&w, KPVC, text);
		world_settle(&w);
		assert_at(&w, KPVC, "t", "c", "/status/phase", "Pending");
		if (!world_saw(&w, rows[i].event))
			fail_msg("row %zu: %s", i, sbuf_str(&w.events));
		world_fini(&w);
	}
}

static void a_volume_made_by_hand_is_taken(void **state)
{
	struct world w;

	(void)state;
	all(&w);
	world_add(&w, KPV,
		  "{'metadata':{'name':'big'},'spec':{'capacity':{'storage':'9Gi'},'accessModes':['"
		  "ReadWriteOnce'],"
		  "'storageClassName':'hand'}}");
	world_add(&w, KPV,
		  "{'metadata':{'name':'fits'},'spec':{'capacity':{'storage':'2Gi'},'accessModes':["
		  "'ReadWriteOnce'],"
		  "'storageClassName':'hand'}}");
	world_settle(&w);
	assert_at(&w, KPV, "", "fits", "/status/phase", "Available");
	world_add(&w, KPVC,
		  "{'metadata':{'name':'c','namespace':'t'},'spec':{'storageClassName':'hand','"
		  "accessModes':"
		  "['ReadWriteOnce'],'resources':{'requests':{'storage':'1Gi'}}}}");
	world_settle(&w);
	assert_at(&w, KPVC, "t", "c", "/spec/volumeName", "fits");
	assert_at(&w, KPVC, "t", "c", "/status/capacity/storage", "2Gi");
	assert_at(&w, KPV, "", "fits", "/status/phase", "Bound");
	world_fini(&w);
}

/* ---- endpoints ---- */

static size_t slice(struct world *w, char out[4096])
{
	struct kiter it;
	size_t n = 0;

	out[0] = '\0';
	kcache_list(w->cache, &api_kind_EndpointSlice, "t", &it);
	for (const struct kobj *o; (o = kiter_next(&it)); n++) {
		snprintf(out, 2048, "%s",
			 world_at(w, &api_kind_EndpointSlice, "t", kobj_name(o), "/endpoints"));
		strncat(out, world_at(w, &api_kind_EndpointSlice, "t", kobj_name(o), "/ports"),
			2000);
	}
	return n;
}

static void a_move_does_not_touch_the_endpoint_slice(void **state)
{
	char before[4096], now[4096];
	struct world w;

	(void)state;
	all(&w);
	cast_nodes(&w);
	world_renew(&w, "node-1");
	world_renew(&w, "node-2");
	world_add(&w, &api_kind_Service,
		  "{'metadata':{'name':'svc','namespace':'t'},'spec':{'selector':{'app':'tiny'},'"
		  "ports':"
		  "[{'name':'ssh','port':22,'targetPort':2222}]}}");
	cast_running(&w);
	assert_int_equal(slice(&w, before), 1);
	assert_non_null(strstr(before, "\"ready\":true"));
	assert_non_null(strstr(before, "\"kind\":\"VirtualMachineInstance\""));
	assert_non_null(strstr(before, "\"port\":2222"));
	assert_null(strstr(before, "nodeName"));
	CLEANUP(mem_freep)
	char *rv = NULL;
	struct kiter it;

	kcache_list(w.cache, &api_kind_EndpointSlice, "t", &it);
	rv = mem_printf("%llu", (unsigned long long)kobj_rv(kiter_next(&it)));
	world_pass(&w, 5 * USEC_PER_SEC);
	world_add(&w, KVMIM,
		  "{'metadata':{'name':'m1','namespace':'t'},'spec':{'vmiName':'tiny'}}");
	world_settle(&w);
	cast_pod_runs(&w, cast_target(&w)->metadata.name);
	world_settle(&w);
	cast_target_listens(&w);
	cast_source_starts(&w);
	world_settle(&w);
	cast_move_completes(&w);
	world_settle(&w);
	assert_at(&w, KVMI, "t", "tiny", "/status/nodeName", "node-2");
	slice(&w, now);
	assert_string_equal(before, now);
	kcache_list(w.cache, &api_kind_EndpointSlice, "t", &it);
	CLEANUP(mem_freep)
	char *rv2 = mem_printf("%llu", (unsigned long long)kobj_rv(kiter_next(&it)));

	assert_string_equal(rv, rv2);
	world_fini(&w);
}

static void endpoints_follow_readiness_and_named_ports(void **state)
{
	char now[4096];
	struct world w;

	(void)state;
	all(&w);
	world_add(&w, &api_kind_Service,
		  "{'metadata':{'name':'svc','namespace':'t'},'spec':{'selector':{'a':'b'},'ports':"
		  "[{'port':80,'targetPort':'web'}]}}");
	world_add(&w, KPOD,
		  "{'metadata':{'name':'p','namespace':'t','labels':{'a':'b'}},'spec':{'nodeName':'"
		  "n','containers':"
		  "[{'name':'c','ports':[{'name':'web','containerPort':8080}]}]},'status':{'phase':"
		  "'Running',"
		  "'podIP':'10.244.1.9','conditions':[{'type':'Ready','status':'False'}]}}");
	world_settle(&w);
	slice(&w, now);
	assert_non_null(strstr(now, "\"ready\":false"));
	assert_non_null(strstr(now, "\"nodeName\":\"n\""));
	assert_non_null(strstr(now, "\"port\":8080"));
	world_patch(&w, KPOD, "t", "p",
		    "{'status':{'conditions':[{'type':'Ready','status':'True'}]}}");
	world_settle(&w);
	slice(&w, now);
	assert_non_null(strstr(now, "\"ready\":true"));
	world_patch(&w, KPOD, "t", "p", "{'status':{'phase':'Succeeded'}}");
	world_settle(&w);
	slice(&w, now);
	assert_null(strstr(now, "10.244.1.9"));
	world_delete(&w, &api_kind_Service, "t", "svc", -1);
	world_pass(&w, 30 * USEC_PER_SEC);
	assert_int_equal(slice(&w, now), 0);
	world_fini(&w);
}

/* ---- nodes ---- */

static void a_silent_node_is_marked_and_nothing_else(void **state)
{
	struct world w;

	(void)state;
	all_running(&w);
	world_pass(&w, 39 * USEC_PER_SEC);
	world_renew(&w, "node-2");
	assert_string_equal(world_cond(&w, &api_kind_Node, "", "node-1", "Ready"), "True");
	world_pass(&w, 2 * USEC_PER_SEC);
	assert_string_equal(
		world_cond(&w, &api_kind_Node, "", "node-1", "Ready"),
		"Unknown NodeStatusUnknown: The agent of the node stopped posting node status.");
	assert_at(&w, &api_kind_Node, "", "node-1", "/spec/taints/0/key",
		  "node.kubernetes.io/unreachable");
	assert_at(&w, &api_kind_Node, "", "node-1", "/spec/taints/0/effect", "NoSchedule");
	assert_at(&w, KVMI, "t", "tiny", "/status/phase", "Running");
	assert_at(&w, KVMI, "t", "tiny", "/status/reason", "NodeUnresponsive");
	assert_string_equal(world_cond(&w, KVMI, "t", "tiny", "Ready"),
			    "Unknown NodeUnresponsive: the agent of the node is not responsive");
	world_pass(&w, 300 * USEC_PER_SEC);
	assert_at(&w, &api_kind_Node, "", "node-1", "/metadata/labels/kubevirt.io~1schedulable",
		  "false");
	world_pass(&w, 86400 * USEC_PER_SEC);
	assert_int_equal(world_count(&w, KPOD), 1);
	assert_null(cast_source(&w)->metadata.deletionTimestamp);
	assert_at(&w, KVMI, "t", "tiny", "/status/phase", "Running");
	/* it comes back: its agent says Ready, the taint and the mark go */
	world_renew(&w, "node-1");
	world_patch(&w, &api_kind_Node, "", "node-1",
		    "{'status':{'conditions':[{'type':'Ready','status':'True'}]}}");
	world_settle(&w);
	assert_at(&w, &api_kind_Node, "", "node-1", "/spec/taints", "(none)");
	assert_at(&w, KVMI, "t", "tiny", "/status/reason", "(none)");
	world_fini(&w);
}

/* Its lease still promises the old pace when the setting is changed: nobody is late because of that. */
static void a_shorter_silence_counts_once_the_node_knows_it(void **state)
{
	struct world w;

	(void)state;
	all_running(&w);
	for (int i = 1; i <= 2; i++)
		world_patch(&w, &api_kind_Lease, "kube-node-lease", i == 1 ? "node-1" : "node-2",
			    "{'spec':{'leaseDurationSeconds':40}}");
	world_pass(&w, 9 * USEC_PER_SEC);
	world_add(&w, &api_kind_FerryConfig,
		  "{'metadata':{'name':'ferry'},'spec':{'fencing':'Agent','fenceAgent':"
		  "{'program':'plug','silenceSeconds':5}}}");
	world_settle(&w);
	assert_string_equal(world_cond(&w, &api_kind_Node, "", "node-1", "Ready"), "True");
	assert_at(&w, &api_kind_Node, "", "node-1", "/spec/taints", "(none)");
	world_renew(&w, "node-1");
	world_patch(&w, &api_kind_Lease, "kube-node-lease", "node-1",
		    "{'spec':{'leaseDurationSeconds':5}}");
	world_pass(&w, 4 * USEC_PER_SEC);
	assert_string_equal(world_cond(&w, &api_kind_Node, "", "node-1", "Ready"), "True");
	world_pass(&w, 2 * USEC_PER_SEC);
	assert_non_null(strstr(world_cond(&w, &api_kind_Node, "", "node-1", "Ready"), "Unknown"));
	assert_string_equal(world_cond(&w, &api_kind_Node, "", "node-2", "Ready"), "True");
	world_fini(&w);
}

static void only_a_fenced_node_gives_its_vms_up(void **state)
{
	struct world w;

	(void)state;
	all_running(&w);
	CLEANUP(mem_freep)
	char *first = mem_strdup(world_at(&w, KVMI, "t", "tiny", "/metadata/uid"));

	/* not believed of a node that answers */
	take_out_of_service(&w, "node-1");
	world_pass(&w, 20 * USEC_PER_SEC);
	world_renew(&w, "node-2");
	assert_at(&w, KVMI, "t", "tiny", "/status/phase", "Running");
	world_pass(&w, 30 * USEC_PER_SEC);
	world_renew(&w, "node-2");
	world_settle(&w);
	/* cold start elsewhere, by the run strategy */
	assert_string_not_equal(world_at(&w, KVMI, "t", "tiny", "/metadata/uid"), first);
	assert_string_equal(cast_source(&w)->spec.nodeName, "node-2");
	world_fini(&w);
}

static void where_fencing_is_off_the_taint_changes_nothing(void **state)
{
	struct world w;

	(void)state;
	all_running(&w);
	world_patch(&w, &api_kind_FerryConfig, "", "ferry", "{'spec':{'fencing':'None'}}");
	CLEANUP(mem_freep)
	char *first = mem_strdup(world_at(&w, KVMI, "t", "tiny", "/metadata/uid"));

	take_out_of_service(&w, "node-1");
	world_pass(&w, 50 * USEC_PER_SEC);
	world_renew(&w, "node-2");
	world_settle(&w);
	assert_at(&w, KVMI, "t", "tiny", "/metadata/uid", first);
	/* the policy counts, not when it was set */
	world_patch(&w, &api_kind_FerryConfig, "", "ferry",
		    "{'spec':{'fencing':'OutOfServiceTaint'}}");
	world_settle(&w);
	assert_string_not_equal(world_at(&w, KVMI, "t", "tiny", "/metadata/uid"), first);
	world_fini(&w);
}

/* ---- VMs in trouble ---- */

static void a_crash_loop_backs_off_is_shown_and_can_be_stopped(void **state)
{
	struct world w;

	(void)state;
	all(&w);
	cast_nodes(&w);
	world_renew(&w, "node-1");
	world_renew(&w, "node-2");
	cast_vm(&w, "Always");
	for (int n = 1; n <= 3; n++) {
		CLEANUP(mem_freep)
		char *count = mem_printf("%d", n);

		world_settle(&w);
		world_pass(&w, 2 * USEC_PER_SEC);
		world_renew(&w, "node-1");
		world_renew(&w, "node-2");
		assert_non_null(cast_source(&w));
		world_patch(&w, KPOD, "t", cast_source(&w)->metadata.name,
			    "{'status':{'phase':'Failed'}}");
		world_settle(&w);
		assert_null(world_get(&w, KVMI, "t", "tiny"));
		assert_at(&w, KVM, "t", "tiny", "/status/printableStatus", "CrashLoopBackOff");
		assert_at(&w, KVM, "t", "tiny", "/status/startFailure/consecutiveFailCount", count);
		if (n == 3)
			break;
		while (!world_get(&w, KVMI, "t", "tiny") && world_next(&w, 300 * USEC_PER_SEC)) {
			world_renew(&w, "node-1");
			world_renew(&w, "node-2");
			world_settle(&w);
		}
	}
	world_patch(&w, KVM, "t", "tiny", "{'spec':{'runStrategy':'Halted'}}");
	world_settle(&w);
	assert_at(&w, KVM, "t", "tiny", "/status/printableStatus", "Stopped");
	assert_at(&w, KVM, "t", "tiny", "/status/startFailure", "(none)");
	world_pass(&w, 600 * USEC_PER_SEC);
	assert_null(world_get(&w, KVMI, "t", "tiny"));
	world_fini(&w);
}

static void rerun_on_failure_restarts_after_failure_only(void **state)
{
	static const char *const ends[] = {"Failed", "Succeeded"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
		struct world w;

		all(&w);
		cast_nodes(&w);
		world_renew(&w, "node-1");
		world_renew(&w, "node-2");
		cast_vm(&w, "RerunOnFailure");
		world_settle(&w);
		cast_pod_runs(&w, cast_source(&w)->metadata.name);
		cast_guest_runs(&w);
		world_settle(&w);
		CLEANUP(mem_freep)
		char *first = mem_strdup(world_at(&w, KVMI, "t", "tiny", "/metadata/uid"));

		world_pass(&w, 10 * USEC_PER_SEC);
		cast_guest_ends(&w, ends[i]);
		world_settle(&w);
		if (str_eq(ends[i], "Failed")) {
			assert_string_not_equal(world_at(&w, KVMI, "t", "tiny", "/metadata/uid"),
						first);
			assert_non_null(world_get(&w, KVMI, "t", "tiny"));
		} else {
			assert_null(world_get(&w, KVMI, "t", "tiny"));
			assert_at(&w, KVM, "t", "tiny", "/status/printableStatus", "Stopped");
		}
		world_fini(&w);
	}
}

static void a_restart_request_stops_and_starts_once(void **state)
{
	struct world w;

	(void)state;
	all_running(&w);
	CLEANUP(mem_freep)
	char *uid = mem_strdup(world_at(&w, KVMI, "t", "tiny", "/metadata/uid"));
	CLEANUP(mem_freep)
	char *pod = mem_strdup(cast_source(&w)->metadata.name);
	CLEANUP(mem_freep)
	char *text = mem_printf("{'status':{'stateChangeRequests':[{'action':'Stop','uid':'%s'},{'"
				"action':'Start'}]}}",
				uid);

	world_patch(&w, KVM, "t", "tiny", text);
	world_settle(&w);
	assert_at(&w, KVM, "t", "tiny", "/status/printableStatus", "Stopping");
	cast_guest_ends(&w, "Succeeded");
	cast_pod_gone(&w, pod);
	world_settle(&w);
	assert_string_not_equal(world_at(&w, KVMI, "t", "tiny", "/metadata/uid"), uid);
	assert_at(&w, KVM, "t", "tiny", "/status/stateChangeRequests", "(none)");
	world_fini(&w);
}

static void a_missing_claim_is_named_and_waited_for(void **state)
{
	struct world w;

	(void)state;
	all(&w);
	cast_nodes(&w);
	world_renew(&w, "node-1");
	world_renew(&w, "node-2");
	cast_vm(&w, "Always");
	world_patch(
		&w, KVM, "t", "tiny",
		"{'spec':{'template':{'spec':{'volumes':[{'name':'root','persistentVolumeClaim':"
		"{'claimName':'disk'}}]}}}}");
	world_settle(&w);
	assert_string_equal(
		world_cond(&w, KVMI, "t", "tiny", "Synchronized"),
		"False FailedPvcNotFound: PVC t/disk does not exist, waiting for it to appear");
	assert_at(&w, KVM, "t", "tiny", "/status/printableStatus", "ErrorPvcNotFound");
	world_add(&w, KPVC,
		  "{'metadata':{'name':'disk','namespace':'t'},'spec':{'accessModes':['"
		  "ReadWriteMany'],"
		  "'resources':{'requests':{'storage':'1Gi'}}}}");
	world_settle(&w);
	assert_string_equal(world_cond(&w, KVMI, "t", "tiny", "Synchronized"), "(none)");
	assert_string_equal(cast_source(&w)->spec.nodeName, "node-1");
	assert_at(&w, KVMI, "t", "tiny",
		  "/status/volumeStatus/0/persistentVolumeClaimInfo/claimName", "disk");
	assert_at(&w, KVMI, "t", "tiny",
		  "/status/volumeStatus/0/persistentVolumeClaimInfo/accessModes",
		  "[\"ReadWriteMany\"]");
	world_fini(&w);
}

static void no_room_is_shown_on_the_vm(void **state)
{
	struct world w;

	(void)state;
	all(&w);
	cast_node(&w, "node-1", "", "'cpu':'4','memory':'256Mi','pods':'110'");
	world_renew(&w, "node-1");
	cast_vm(&w, "Always");
	world_settle(&w);
	assert_at(&w, KVM, "t", "tiny", "/status/printableStatus", "ErrorUnschedulable");
	assert_string_equal(world_cond(&w, KVM, "t", "tiny", "PodScheduled"),
			    "False Unschedulable: 0/1 nodes are available: 1 Insufficient memory.");
	world_patch(&w, &api_kind_Node, "", "node-1",
		    "{'status':{'allocatable':{'memory':'8Gi'}}}");
	world_settle(&w);
	assert_string_equal(cast_source(&w)->spec.nodeName, "node-1");
	world_fini(&w);
}

static void what_the_server_refuses_is_told_and_tried_again(void **state)
{
	struct world w;

	(void)state;
	all(&w);
	cast_nodes(&w);
	world_renew(&w, "node-1");
	world_renew(&w, "node-2");
	w.refuses = KVMI;
	w.refusal = "admission webhook \"x\" denied the request: no";
	cast_vm(&w, "Always");
	world_settle(&w);
	assert_string_equal(world_cond(&w, KVM, "t", "tiny", "Failure"),
			    "True FailedCreate: admission webhook \"x\" denied the request: no");
	assert_at(&w, KVM, "t", "tiny", "/status/created", "false");
	assert_true(
		world_saw(&w, "FailedCreate: Error creating virtual machine instance: admission"));
	w.refuses = KPOD;
	w.refusal = "exceeded quota: small";
	world_settle(&w);
	world_pass(&w, 2 * USEC_PER_SEC);
	assert_string_equal(world_cond(&w, KVM, "t", "tiny", "Failure"), "(none)");
	assert_string_equal(world_cond(&w, KVMI, "t", "tiny", "Synchronized"),
			    "False FailedCreate: exceeded quota: small");
	assert_true(world_saw(&w, "FailedCreate: Error creating pod: exceeded quota: small"));
	w.refuses = NULL;
	world_settle(&w);
	assert_string_equal(world_cond(&w, KVMI, "t", "tiny", "Synchronized"), "(none)");
	assert_non_null(cast_source(&w));
	world_fini(&w);
}

static void no_failed_allocation_is_overlooked_or_leaks(void **state)
{
	struct world w;

	(void)state;
	all(&w);
	cast_nodes(&w);
	world_renew(&w, "node-1");
	world_renew(&w, "node-2");
	world_add(&w, &api_kind_Service,
		  "{'metadata':{'name':'svc','namespace':'t'},'spec':{'selector':{'app':'tiny'},'"
		  "ports':"
		  "[{'name':'ssh','port':22}]}}");
	world_add(&w, KPVC,
		  "{'metadata':{'name':'c','namespace':'t','uid':'u1'},'spec':{'storageClassName':'"
		  "shared',"
		  "'accessModes':['ReadWriteMany'],'resources':{'requests':{'storage':'1Gi'}}}}");
	world_add(
		&w, &api_kind_MigrationPolicy,
		"{'metadata':{'name':'slow'},'spec':{'selectors':{},'bandwidthPerMigration':'64Mi'"
		"}}");
	cast_vm(&w, "Always");
	world_torture(&w); /* a claim to provision, a VM to start */
	world_settle(&w);
	world_torture(&w);
	cast_pod_runs(&w, cast_source(&w)->metadata.name);
	cast_guest_runs(&w);
	world_torture(&w);
	world_settle(&w);
	world_pass(&w, 5 * USEC_PER_SEC);
	world_add(&w, KVMIM,
		  "{'metadata':{'name':'m1','namespace':'t'},'spec':{'vmiName':'tiny'}}");
	world_torture(&w); /* placement and the target pod */
	world_settle(&w);
	cast_pod_runs(&w, cast_target(&w)->metadata.name);
	world_torture(&w); /* hand-off */
	world_settle(&w);
	cast_target_listens(&w);
	cast_source_starts(&w);
	world_settle(&w);
	cast_move_completes(&w);
	world_torture(&w);
	world_settle(&w);
	world_delete(&w, KVM, "t", "tiny", -1);
	world_torture(&w);
	world_fini(&w);
}

static void a_vmi_without_vm_owns_its_identity(void **state)
{
	struct world w;

	(void)state;
	all(&w);
	cast_nodes(&w);
	world_renew(&w, "node-1");
	world_renew(&w, "node-2");
	world_add(&w, KVMI,
		  "{'metadata':{'name':'tiny','namespace':'t'},'spec':{'domain':{'memory':{'guest':"
		  "'64Mi'},"
		  "'devices':{'interfaces':[{'name':'d','masquerade':{},'macAddress':'02:00:00:00:"
		  "00:05'}]}},"
		  "'networks':[{'name':'d','pod':{}}]}}");
	world_settle(&w);
	assert_at(&w, KPOD, "t", cast_source(&w)->metadata.name,
		  "/metadata/annotations/ferry.dev~1mac", "02:00:00:00:00:05");
	assert_int_equal(world_count(&w, &api_kind_Allocation), 2);
	CLEANUP(mem_freep)
	char *pod = mem_strdup(cast_source(&w)->metadata.name);

	world_pass(&w, 60 * USEC_PER_SEC);
	world_delete(&w, KVMI, "t", "tiny", -1);
	world_settle(&w);
	cast_pod_gone(&w, pod);
	world_settle(&w);
	assert_null(world_get(&w, KVMI, "t", "tiny"));
	assert_int_equal(world_count(&w, &api_kind_Allocation), 0);
	world_fini(&w);
}

static void a_changed_template_asks_for_a_restart(void **state)
{
	struct world w;

	(void)state;
	all_running(&w);
	world_patch(&w, KVM, "t", "tiny",
		    "{'spec':{'template':{'spec':{'domain':{'memory':{'guest':'256Mi'}}}}}}");
	world_settle(&w);
	assert_string_equal(world_cond(&w, KVM, "t", "tiny", "RestartRequired"),
			    "True: a non-live-updatable field was changed in the template spec");
	world_patch(&w, KVM, "t", "tiny",
		    "{'spec':{'template':{'spec':{'domain':{'memory':{'guest':'128Mi'}}}}}}");
	world_settle(&w);
	assert_string_equal(world_cond(&w, KVM, "t", "tiny", "RestartRequired"), "(none)");
	world_patch(&w, KVM, "t", "tiny",
		    "{'spec':{'template':{'spec':{'nodeSelector':{'zone':'a'}}}}}");
	world_settle(&w);
	assert_string_equal(world_cond(&w, KVM, "t", "tiny", "RestartRequired"), "(none)");
	assert_at(&w, KVMI, "t", "tiny", "/spec/nodeSelector/zone", "a");
	world_fini(&w);
}

/* ---- garbage ---- */

#define KCM &api_kind_ConfigMap

static void an_owner_in_another_namespace_is_none_and_that_is_told(void **state)
{
	struct world w;

	(void)state;
	all(&w);
	world_add(&w, KCM, "{'metadata':{'name':'o','namespace':'u','uid':'ou'}}");
	world_add(
		&w, KCM,
		"{'metadata':{'name':'d','namespace':'t','uid':'du','ownerReferences':[{'apiVersion':'v1',"
		"'kind':'ConfigMap','name':'o','uid':'ou'}]}}");
	world_add(
		&w, KCM,
		"{'metadata':{'name':'e','namespace':'u','uid':'eu','ownerReferences':[{'apiVersion':'v1',"
		"'kind':'ConfigMap','name':'o','uid':'ou'}]}}");
	world_settle(&w);
	while (world_next(&w, 60 * USEC_PER_SEC))
		;
	assert_null(world_get(&w, KCM, "t", "d"));
	assert_non_null(world_get(&w, KCM, "u", "o"));
	assert_non_null(world_get(&w, KCM, "u", "e"));
	assert_true(world_saw(
		&w,
		"OwnerRefInvalidNamespace: ownerRef [v1/ConfigMap, namespace: t, name: o, uid: ou] does not "
		"exist in namespace \"t\""));
	world_fini(&w);
}

static void owners_of_each_other_do_not_wait_for_each_other(void **state)
{
	struct world w;

	(void)state;
	all(&w);
	static const char one[] =
		"{'metadata':{'name':'%s','namespace':'t','uid':'%su','finalizers':['foregroundDeletion'],"
		"'ownerReferences':[{'apiVersion':'v1','kind':'ConfigMap','name':'%s','uid':'%su',"
		"'blockOwnerDeletion':true}]}}";
	static const char *const pairs[][2] = {{"a", "b"}, {"b", "c"}, {"c", "a"}, {"s", "s"}};

	for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
		char text[400];

		snprintf(text, sizeof(text), one, pairs[i][0], pairs[i][0], pairs[i][1],
			 pairs[i][1]);
		world_add(&w, KCM, text);
	}
	world_settle(&w);
	world_delete(&w, KCM, "t", "a", -1);
	world_delete(&w, KCM, "t", "s", -1);
	world_settle(&w);
	while (world_next(&w, 60 * USEC_PER_SEC))
		;
	assert_int_equal(world_count(&w, KCM), 0);
	world_fini(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_owner_in_another_namespace_is_none_and_that_is_told),
		cmocka_unit_test(owners_of_each_other_do_not_wait_for_each_other),
		cmocka_unit_test(the_installation_makes_its_own_objects_and_reports),
		cmocka_unit_test(a_shared_claim_is_bound_at_once_and_its_volume_goes_with_it),
		cmocka_unit_test(a_claim_in_use_is_protected_and_retain_keeps_the_volume),
		cmocka_unit_test(a_local_claim_waits_for_its_consumer_and_stays_on_its_node),
		cmocka_unit_test(what_cannot_be_provisioned_says_why),
		cmocka_unit_test(a_volume_made_by_hand_is_taken),
		cmocka_unit_test(a_move_does_not_touch_the_endpoint_slice),
		cmocka_unit_test(endpoints_follow_readiness_and_named_ports),
		cmocka_unit_test(a_silent_node_is_marked_and_nothing_else),
		cmocka_unit_test(a_shorter_silence_counts_once_the_node_knows_it),
		cmocka_unit_test(where_fencing_is_off_the_taint_changes_nothing),
		cmocka_unit_test(only_a_fenced_node_gives_its_vms_up),
		cmocka_unit_test(a_crash_loop_backs_off_is_shown_and_can_be_stopped),
		cmocka_unit_test(rerun_on_failure_restarts_after_failure_only),
		cmocka_unit_test(a_restart_request_stops_and_starts_once),
		cmocka_unit_test(a_missing_claim_is_named_and_waited_for),
		cmocka_unit_test(no_room_is_shown_on_the_vm),
		cmocka_unit_test(what_the_server_refuses_is_told_and_tried_again),
		cmocka_unit_test(no_failed_allocation_is_overlooked_or_leaks),
		cmocka_unit_test(a_vmi_without_vm_owns_its_identity),
		cmocka_unit_test(a_changed_template_asks_for_a_restart),
	};

	js_use_mem();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
