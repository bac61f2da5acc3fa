#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "api/meta.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "cast.h"
#include "cluster/controllers/controllers.h"
#include "cluster/scheduler/scheduler.h"
#include "virt/controller/evacuation/evacuation.h"
#include "virt/controller/migration/migration.h"
#include "virt/controller/vm/vm.h"
#include "virt/controller/vmi/alloc.h"
#include "virt/controller/vmi/vmi.h"
#include "virt/names.h"

void cast_world(struct world *w)
{
	const struct ctl_def *defs[40];
	size_t n = 0;

	defs[n++] = &vm_ctl_def;
	defs[n++] = &vmi_ctl_def;
	defs[n++] = &scheduler_ctl_def;
	defs[n++] = &mig_ctl_def;
	defs[n++] = &alloc_ctl_def;
	defs[n++] = &evacuation_ctl_def;
	for (size_t i = 0; gc_ctl_defs[i]; i++)
		defs[n++] = gc_ctl_defs[i];
	world_init(w, defs, n);
	world_add(w, &api_kind_Namespace, "{'metadata':{'name':'t'}}");
	w->writes = 0;
}

void cast_node(struct world *w, const char *name, const char *labels, const char *allocatable)
{
	CLEANUP(mem_freep)
	char *text = mem_printf(
		"{'metadata':{'name':'%s','labels':{'kubernetes.io/hostname':'%s','kubernetes.io/"
		"arch':'amd64',"
		"'kubevirt.io/schedulable':'true','machine-type.node.kubevirt.io/q35':'true'%s}},"
		"'status':{'allocatable':{%s},'conditions':[{'type':'Ready','status':'True'}]}}",
		name, name, labels,
		allocatable ? allocatable : "'cpu':'4','memory':'8Gi','pods':'110'");

	world_add(w, &api_kind_Node, text);
}

void cast_nodes(struct world *w)
{
	cast_node(w, "node-1", "", NULL);
	cast_node(w, "node-2", "", NULL);
}

void cast_vm(struct world *w, const char *strategy)
{
	CLEANUP(mem_freep)
	char *text = mem_printf(
		"{'metadata':{'name':'tiny','namespace':'t',"
		"'finalizers':['kubevirt.io/virtualMachineControllerFinalize']},"
		"'spec':{'runStrategy':'%s','template':{'metadata':{'labels':{'app':'tiny'}},"
		"'spec':{'architecture':'amd64','evictionStrategy':'LiveMigrate',"
		"'terminationGracePeriodSeconds':5,'domain':{'machine':{'type':'q35'},"
		"'memory':{'guest':'128Mi'},'devices':{'disks':[{'name':'root','disk':{'bus':'"
		"virtio'}}],"
		"'interfaces':[{'name':'default','masquerade':{}}]}},"
		"'networks':[{'name':'default','pod':{}}],"
		"'volumes':[{'name':'root','containerDisk':{'image':'registry.test/tiny:v1'}}]}}}}",
		strategy);

	world_add(w, KVM, text);
}

static const Pod *find_pod(struct world *w, bool target)
{
	const Pod *best = NULL;
	struct kiter it;

	kcache_list(w->cache, KPOD, NS, &it);
	for (const struct kobj *o; (o = kiter_next(&it));) {
		const Pod *p = kobj_typed(o);
		bool is_target = api_label(&p->metadata, LABEL_MIGRATION_UID) != NULL;

		if (is_target == target && api_label(&p->metadata, LABEL_ROLE))
			best = p; /* the newest */
	}
	return best;
}

const Pod *cast_source(struct world *w)
{
	return find_pod(w, false);
}

const Pod *cast_target(struct world *w)
{
	return find_pod(w, true);
}

void cast_pod_runs(struct world *w, const char *pod)
{
	CLEANUP(mem_freep)
	char *name = mem_strdup(pod);
	CLEANUP(mem_freep)
	char *ip =
		mem_strdup(world_at(w, KPOD, NS, name, "/metadata/annotations/ferry.dev~1address"));
	char now[32];

	time_rfc3339(w->now, now);
	CLEANUP(mem_freep)
	char *text = mem_printf(
		"{'status':{'phase':'Running','podIP':'%s','startTime':'%s','conditions':["
		"{'type':'PodScheduled','status':'True'},"
		"{'type':'ContainersReady','status':'True','lastTransitionTime':'%s'},"
		"{'type':'Ready','status':'True'}]}}",
		ip, now, now);

	world_patch(w, KPOD, NS, name, text);
}

void cast_guest_runs(struct world *w)
{
	char now[32];

	time_rfc3339(w->now, now);
	CLEANUP(mem_freep)
	char *text = mem_printf(
		"{'status':{'phase':'Running','conditions':[{'type':'Ready','status':'True',"
		"'lastTransitionTime':'%s'},{'type':'LiveMigratable','status':'True'}],"
		"'phaseTransitionTimestamps':[{'phase':'Scheduling','phaseTransitionTimestamp':'%s'"
		"},"
		"{'phase':'Scheduled','phaseTransitionTimestamp':'%s'},"
		"{'phase':'Running','phaseTransitionTimestamp':'%s'}]}}",
		now, now, now, now);

	world_patch(w, KVMI, NS, "tiny", text);
}

void cast_guest_ends(struct world *w, const char *phase)
{
	CLEANUP(mem_freep)
	char *pod = mem_strdup(cast_source(w)->metadata.name);
	CLEANUP(mem_freep)
	char *text = mem_printf("{'status':{'phase':'%s'}}", phase);

	world_patch(w, KPOD, NS, pod, text);
	world_patch(w, KVMI, NS, "tiny", text);
}

void cast_pod_gone(struct world *w, const char *pod)
{
	world_erase(w, KPOD, NS, pod);
}

void cast_running(struct world *w)
{
	cast_vm(w, "Always");
	world_settle(w);
	cast_pod_runs(w, cast_source(w)->metadata.name);
	cast_guest_runs(w);
	world_settle(w);
}

/* ---- a move ---- */

void cast_target_listens(struct world *w)
{
	world_patch(w, KVMI, NS, "tiny",
		    "{'status':{'migrationState':{'targetNodeAddress':'172.30.77.12',"
		    "'targetDirectMigrationNodePorts':{'49152':49152}}}}");
}

void cast_source_starts(struct world *w)
{
	char now[32];

	time_rfc3339(w->now, now);
	CLEANUP(mem_freep)
	char *text = mem_printf(
		"{'status':{'migrationState':{'startTimestamp':'%s','mode':'PreCopy'}}}", now);

	world_patch(w, KVMI, NS, "tiny", text);
}

void cast_source_fails(struct world *w, const char *why)
{
	char now[32];

	time_rfc3339(w->now, now);
	CLEANUP(mem_freep)
	char *text = mem_printf("{'status':{'migrationState':{'endTimestamp':'%s',"
				"'failed':true,'failureReason':'%s'}}}",
				now, why);

	world_patch(w, KVMI, NS, "tiny", text);
}

void cast_move_completes(struct world *w)
{
	CLEANUP(mem_freep)
	char *source =
		mem_strdup(world_at(w, KVMI, NS, "tiny", "/status/migrationState/sourcePod"));
	CLEANUP(mem_freep)
	char *target =
		mem_strdup(world_at(w, KVMI, NS, "tiny", "/status/migrationState/targetPod"));
	CLEANUP(mem_freep)
	char *node = mem_strdup(world_at(w, KVMI, NS, "tiny", "/status/migrationState/targetNode"));
	const Pod *s = world_get(w, KPOD, NS, source);
	char now[32];

	time_rfc3339(w->now, now);
	CLEANUP(mem_freep)
	char *text = mem_printf(
		"{'metadata':{'labels':{'kubevirt.io/nodeName':'%s'}},'status':{'nodeName':'%s',"
		"'activePods':{'%s':null},"
		"'migrationState':{'endTimestamp':'%s','completed':true,"
		"'targetNodeDomainReadyTimestamp':'%s','targetNodeDomainDetected':true}}}",
		node, node, s->metadata.uid, now, now);

	world_patch(w, KVMI, NS, "tiny", text);
	world_patch(w, KPOD, NS, source, "{'status':{'phase':'Succeeded'}}");
	(void)target;
}

void cast_settled(struct world *w)
{
	cast_world(w);
	cast_nodes(w);
	cast_running(w);
	world_pass(w, 10 * USEC_PER_SEC);
}

bool cast_has_live_target(struct world *w)
{
	const Pod *t = cast_target(w);

	return t && !t->metadata.deletionTimestamp;
}

size_t cast_moves_in(struct world *w, const char *phase)
{
	struct kiter it;
	size_t n = 0;

	kcache_list(w->cache, KVMIM, NULL, &it);
	for (const struct kobj *o; (o = kiter_next(&it));)
		n += str_eq(((const VirtualMachineInstanceMigration *)kobj_typed(o))->status.phase,
			    phase);
	return n;
}
