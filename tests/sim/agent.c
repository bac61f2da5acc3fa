#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "api/meta.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/try.h"
#include "cluster/podruntime/podstatus.h"
#include "ctl/exec.h"
#include "ctl/plan.h"
#include "ctl/view.h"
#include "ctl/workq.h"
#include "ev/ev.h"
#include "json/json.h"
#include "kube/kube.h"
#include "sim/sim.h"
#include "virt/migration/fencing.h"
#include "virt/migration/migratable.h"
#include "virt/names.h"
#include "virt/node/pvdata.h"
#include "virt/node/vmsync.h"
#include "virt/node/volwork.h"
#include "virt/node/witness.h"

/* Theory of operation
 *
 * What kubelet and virt-handler are to one node.  One key per pod; each look compares the pod, its VMI
 * and the machine's guest, tells the machine what to do, and plans what to write.  Status is computed
 * by the agent's real pure functions (podstatus, vmsync); the hand-over follows the real protocol's
 * writes on VMI.status.migrationState.  A crash loses everything but the machine.
 */

struct run {
	struct list link;
	struct agent *agent;
	struct exec_run *exec;
	char key[];
};

struct agent {
	struct sim *sim;
	struct machine *machine;
	struct kube *kube;
	struct kcache *cache;
	struct kcache_handler *handler;
	struct exec *exec;
	struct workq *q;
	struct list runs;
	struct volwork *volwork; /* outlives crashes: the pool may still come back to it */
	struct witness *witness;
	struct ev_src *restart;
	usec_t restart_at; /* loop time */
	struct ev_src *beat;
	unsigned beats;
	bool is_active;
	bool has_lease, has_node;
};

static void on_ready(void *arg);
static void on_beat(void *arg);

/* One look at one pod. */
struct look {
	struct agent *a;
	const Pod *pod;
	const VirtualMachineInstance *vmi; /* NULL: none, or not a launcher pod */
	struct guest *g;
	struct plan *plan;
	usec_t now;
	bool has_binding; /* the PortBinding is known */
};

typedef VirtualMachineInstanceMigrationState MigState;

static const MigState *move_of(const struct look *l)
{
	return l->vmi ? l->vmi->status.migrationState : NULL;
}

static enum rc stamp(char **field, usec_t now)
{
	char text[32];

	time_rfc3339(now, text);
	return api_set_str(field, text);
}

/* The pod */

static enum rc report_pod(struct look *l)
{
	struct guest *g = l->g;
	struct pod_facts f = {.host_ip = "172.30.77.11",
			      .seen_at = g->seen_at,
			      .started_at = g->started_at,
			      .is_running = g->state > G_POD_STARTING &&
					    g->state<G_ENDED, .is_unpaused = g->state> G_BOOTING &&
					    g->state < G_ENDED,
			      .has_ended = g->state == G_ENDED,
			      .exit_code = g->exit_code};
	const char *address = api_annotation(&l->pod->metadata, ANN_ADDRESS);
	struct err err = {0};
	Pod *next = NULL;
	enum rc rc;

	f.pod_ip = mem_strdup(address ? address : "10.244.0.99");
	rc = podstatus_build(l->pod, &f, l->now, &next, &err);
	pod_facts_fini(&f);
	if (rc)
		return rc;
	return plan_update(l->plan, &api_kind_Pod, l->pod, next, "status");
}

static enum rc finish_pod(struct look *l)
{
	return plan_delete(l->plan, &api_kind_Pod, l->pod->metadata.namespace,
			   l->pod->metadata.name, l->pod->metadata.uid, 0, NULL);
}

/* The proof that this machine was off is younger than the pod: it may run elsewhere by now. */
static bool was_fenced(const struct look *l)
{
	const NodeFence *f = kobj_typed(
		kcache_get(l->a->cache, &api_kind_NodeFence, NULL, machine_name(l->a->machine)));

	return fencing_condemns(f, &l->pod->metadata);
}

static enum rc look_at_pod(struct look *l)
{
	const ObjectMeta *m = &l->pod->metadata;
	bool final =
		str_eq(l->pod->status.phase, "Succeeded") || str_eq(l->pod->status.phase, "Failed");

	if (!l->g) {
		if (m->deletionTimestamp)
			return finish_pod(l);
		if (final)
			return RC_OK;
		l->g = guest_new(l->a->machine, m->namespace, m->name, m->uid);
		if (!l->g)
			return RC_NOMEM;
		if (l->vmi) {
			l->g->vmi_uid = mem_strdup(l->vmi->metadata.uid);
			l->g->vmi_name = mem_strdup(l->vmi->metadata.name);
			l->g->migration_uid = mem_strdup(api_label(m, LABEL_MIGRATION_UID));
			l->g->is_target = l->g->migration_uid != NULL;
		}
		if (was_fenced(l) ||
		    (l->pod->status.n_containerStatuses && str_eq(l->pod->status.phase, "Running")))
			guest_found_dead(l->g);
		else
			guest_start_pod(l->g);
	}
	if (m->deletionTimestamp && l->g->state != G_ENDED) {
		usec_t due = 0;

		if (!time_parse(m->deletionTimestamp, &due, NULL))
			guest_stop(l->g, due > l->now ? due - l->now : 0);
	}
	TRY(report_pod(l));
	return m->deletionTimestamp && l->g->state == G_ENDED ? finish_pod(l) : RC_OK;
}

/* The VM */

static enum vm_state vm_state_of(const struct guest *g)
{
	static const enum vm_state map[G__MAX] = {
		[G_POD_STARTING] = VM_NONE,
		[G_POD_RUNNING] = VM_NONE,
		[G_BOOTING] = VM_STARTING,
		[G_RUNNING] = VM_RUNNING,
		[G_INCOMING] = VM_INCOMING,
		[G_MOVING] = VM_MIGRATING,
		[G_STANDS] = VM_PRE_SWITCHOVER,
		[G_RELEASED] = VM_POSTMIGRATE,
		[G_ENDED] = VM_GONE,
	};

	return map[g->state];
}

static enum rc add_migratable(VirtualMachineInstance *vmi, void *arg)
{
	const struct look *l = arg;
	struct migratable_in in = {
		.vmi = vmi, .node_name = machine_name(l->a->machine), .has_host_model = true};

	return migratable_apply(&in, vmi, l->now);
}

static enum rc report_vm(struct look *l)
{
	CLEANUP(js_unrefp)
	struct json *cpu = js_pack("{s:s, s:[s]}", "model", "EPYC", "features", "avx2");
	struct vm_facts f = {.state = vm_state_of(l->g),
			     .reason = l->g->reason,
			     .node = machine_name(l->a->machine),
			     .is_source_done = l->g->move == MOVE_DONE,
			     .is_target = l->g->is_target,
			     .accel = "kvm",
			     .qemu_version = "10.0.2",
			     .cpu = cpu,
			     .runtime_uid = 200000,
			     .exit_code = l->g->exit_code,
			     .migratable = add_migratable,
			     .migratable_arg = l,
			     .pod_ip = api_annotation(&l->pod->metadata, ANN_ADDRESS),
			     .mac = api_annotation(&l->pod->metadata, ANN_MAC)};
	struct err err = {0};
	enum rc rc = vmsync_plan(l->vmi, &f, l->now, l->plan, &err);

	if (rc)
		sim_trace(l->a->sim, "vmsync: %s", err.msg);
	return rc;
}

/* Moves: the target */

static enum rc move_binding(struct look *l)
{
	const PortBinding *old =
		kobj_typed(kcache_get(l->a->cache, &api_kind_PortBinding,
				      l->vmi->metadata.namespace, l->vmi->metadata.name));
	PortBinding *next;

	l->has_binding = old != NULL; /* else it is not heard of yet */
	if (!old || str_eq(old->spec.nodeName, machine_name(l->a->machine)))
		return RC_OK;
	next = PortBinding_clone(old);
	if (!next)
		return RC_NOMEM;
	TRY(api_set_str(&next->spec.nodeName, machine_name(l->a->machine)));
	TRY(api_set_str(&next->spec.podName, l->pod->metadata.name));
	API_SET(&next->spec, epoch, API_GET(&old->spec, epoch, 1) + 1);
	return plan_update(l->plan, &api_kind_PortBinding, old, next, NULL);
}

static enum rc take_over(struct look *l)
{
	const char *node = machine_name(l->a->machine);
	VirtualMachineInstance *next = VirtualMachineInstance_clone(l->vmi);
	MigState *ms;

	if (!next)
		return RC_NOMEM;
	ms = next->status.migrationState;
	TRY(api_set_str(&next->status.nodeName, node));
	TRY(api_map_set(&next->metadata.labels, LABEL_NODE_NAME, node));
	TRY(api_set_str(&next->status.evacuationNodeName, NULL));
	if (ms && str_eq(ms->migrationUid, l->g->migration_uid) && !API_GET(ms, completed, false)) {
		API_SET(ms, completed, true);
		API_SET(ms, targetNodeDomainDetected, true);
		TRY(stamp(&ms->targetNodeDomainReadyTimestamp, l->now));
		TRY(stamp(&ms->endTimestamp, l->now));
	}
	size_t before = l->plan->n_ops;

	TRY(plan_update(l->plan, &api_kind_VirtualMachineInstance, l->vmi, next, NULL));
	TRY(move_binding(l));
	if (l->plan->n_ops == before && l->has_binding)
		move_written(l->g);
	return RC_OK;
}

static enum rc listen_for_move(struct look *l)
{
	VirtualMachineInstance *next = VirtualMachineInstance_clone(l->vmi);
	MigState *ms;

	if (!next)
		return RC_NOMEM;
	move_listen(l->g);
	ms = next->status.migrationState;
	TRY(api_set_str(&ms->targetNodeAddress, "172.30.77.12"));
	return plan_update(l->plan, &api_kind_VirtualMachineInstance, l->vmi, next, NULL);
}

static enum rc look_at_target(struct look *l)
{
	const MigState *ms = move_of(l);

	/* It may have moved on since. */
	if (l->g->took_over)
		return l->g->move == MOVE_DONE ? RC_OK : take_over(l);
	if (l->g->state == G_INCOMING && ms && str_eq(ms->migrationUid, l->g->migration_uid) &&
	    !API_GET(ms, failed, false) && !API_GET(ms, completed, false) && !ms->targetNodeAddress)
		return listen_for_move(l);
	/* The source's pod is over, and nobody is left to give the permission. */
	if (l->g->state == G_INCOMING && ms && str_eq(ms->migrationUid, l->g->migration_uid) &&
	    ms->startTimestamp && l->vmi->status.activePods.n == 1 &&
	    api_map_has(&l->vmi->status.activePods, l->pod->metadata.uid))
		guest_end(l->g, 1, "MigrationFailed");
	return RC_OK;
}

/* Moves: the source */

static enum rc begin_move(struct look *l)
{
	VirtualMachineInstance *next = VirtualMachineInstance_clone(l->vmi);

	if (!next)
		return RC_NOMEM;
	TRY(stamp(&next->status.migrationState->startTimestamp, l->now));
	TRY(api_set_str(&next->status.migrationState->mode, "PreCopy"));
	return plan_update(l->plan, &api_kind_VirtualMachineInstance, l->vmi, next, NULL);
}

static enum rc report_failure(struct look *l, bool aborted)
{
	VirtualMachineInstance *next = VirtualMachineInstance_clone(l->vmi);
	MigState *ms;

	if (!next)
		return RC_NOMEM;
	ms = next->status.migrationState;
	API_SET(ms, failed, true);
	TRY(stamp(&ms->endTimestamp, l->now));
	if (API_GET(ms, abortRequested, false) && aborted)
		TRY(api_set_str(&ms->abortStatus, "Succeeded"));
	TRY(api_set_str(&ms->failureReason,
			aborted ? "Live migration aborted" : "the stream broke"));
	return plan_update(l->plan, &api_kind_VirtualMachineInstance, l->vmi, next, NULL);
}

static bool is_finish_requested(const VirtualMachineInstance *vmi)
{
	const FerryVMIStatus *f = vmi->status.ferry;

	return f && f->migration && API_GET(f->migration, finishRequested, false);
}

static enum rc look_at_source(struct look *l)
{
	const MigState *ms = move_of(l);
	struct guest *g = l->g;

	if (!ms || API_GET(ms, failed, false) || API_GET(ms, completed, false) ||
	    !str_eq(ms->sourceNode, machine_name(l->a->machine)) ||
	    !str_eq(ms->sourcePod, l->pod->metadata.name))
		return RC_OK;
	switch (guest_move_result(g, ms->migrationUid)) {
	case MOVE_FAILED:
	case MOVE_ABORTED:
		return report_failure(l, g->move == MOVE_ABORTED);
	case MOVE_RUNNING:
		if (API_GET(ms, abortRequested, false))
			move_cancel(g);
		else if (is_finish_requested(l->vmi))
			move_finish(g);
		return RC_OK;
	case MOVE_DONE:
		return RC_OK; /* the target tells */
	case MOVE_NONE:
		break;
	}
	if (g->state != G_RUNNING)
		return g->state == G_ENDED && ms->startTimestamp ? report_failure(l, false) : RC_OK;
	if (ms->startTimestamp && API_GET(ms, abortRequested, false))
		return report_failure(l, true);
	if (ms->startTimestamp)
		move_begin(g, ms->migrationUid);
	else if (ms->targetNodeAddress && !g->is_stopping && !l->vmi->metadata.deletionTimestamp)
		return begin_move(l);
	return RC_OK;
}

static enum rc look_at_vm(struct look *l)
{
	size_t before = l->plan->n_ops;

	if (!l->vmi || !l->g)
		return RC_OK;
	if (l->g->state == G_POD_RUNNING && !l->g->is_stopping)
		guest_boot(l->g);
	if (l->g->is_target || l->g->took_over)
		TRY(look_at_target(l));
	if (!l->g->is_target)
		TRY(look_at_source(l));
	/* One change of the VMI at a time: the next look adds what is still missing. */
	return l->plan->n_ops > before ? RC_OK : report_vm(l);
}

/* The pod is not in the API any more: nothing may be left of it. */
static void sweep(struct agent *a, const char *ns, const char *name, const char *keep_uid)
{
	LIST_FOREACH_SAFE(l, tmp, machine_guests(a->machine)) {
		struct guest *g = LIST_ENTRY(l, struct guest, link);

		if (!str_eq(g->ns, ns) || !str_eq(g->pod_name, name) ||
		    str_eq(g->pod_uid, keep_uid))
			continue;
		if (g->state == G_RELEASED)
			continue; /* its last act is on its way */
		if (g->state != G_ENDED)
			guest_kill(g);
		guest_free(g);
	}
}

static const VirtualMachineInstance *vmi_of(const struct agent *a, const Pod *pod)
{
	const OwnerReference *o = api_controller_of(&pod->metadata);
	const VirtualMachineInstance *vmi;

	if (!o || !str_eq(o->kind, "VirtualMachineInstance"))
		return NULL;
	vmi = kobj_typed(kcache_get(a->cache, &api_kind_VirtualMachineInstance,
				    pod->metadata.namespace, o->name));
	return vmi && str_eq(vmi->metadata.uid, o->uid) ? vmi : NULL;
}

/* Its data is removed here, and the finalizer with it: of a local volume by its node, of a shared one by
 * whoever comes first. */
static enum rc look_at_volume(struct agent *a, const char *name, struct plan *plan)
{
	const PersistentVolume *pv =
		kobj_typed(kcache_get(a->cache, &api_kind_PersistentVolume, NULL, name));
	PersistentVolume *next;

	if (!pv || !pv->metadata.deletionTimestamp ||
	    !api_has_finalizer(&pv->metadata, FIN_PV_DATA))
		return RC_OK;
	if (pv->spec.nodeAffinity && !str_eq(pv->spec.nodeAffinity->required->nodeSelectorTerms[0]
						     .matchExpressions[0]
						     .values[0],
					     machine_name(a->machine)))
		return RC_OK;
	next = PersistentVolume_clone(pv);
	if (!next)
		return RC_NOMEM;
	api_del_finalizer(&next->metadata, FIN_PV_DATA);
	return plan_update(plan, &api_kind_PersistentVolume, pv, next, NULL);
}

static enum rc look(struct agent *a, const char *ns, const char *name, struct plan *plan)
{
	struct look l = {.a = a, .plan = plan, .now = loop_realtime(a->sim->loop)};

	if (!*ns)
		return look_at_volume(a, name, plan);
	l.pod = kobj_typed(kcache_get(a->cache, &api_kind_Pod, ns, name));
	sweep(a, ns, name, l.pod ? l.pod->metadata.uid : NULL);
	if (!l.pod)
		return RC_OK;
	l.vmi = vmi_of(a, l.pod);
	l.g = guest_find(a->machine, l.pod->metadata.uid);
	/* A launcher pod whose VMI is not seen yet waits for it. */
	if (!l.g && !l.vmi && !l.pod->metadata.deletionTimestamp &&
	    str_eq(api_label(&l.pod->metadata, LABEL_ROLE), ROLE_LAUNCHER))
		return plan_requeue_after(plan, USEC_PER_SEC);
	TRY(look_at_pod(&l));
	return look_at_vm(&l);
}

/* The queue */

void agent_wake(struct agent *a, const char *ns, const char *pod)
{
	char key[2 * LIMIT_NAME_BYTES + 2];

	if (!a->q)
		return;
	snprintf(key, sizeof(key), "%s/%s", ns, pod);
	if (workq_add(a->q, key))
		sim_fail(a->sim, "out of memory in an agent");
}

static void on_executed(enum rc rc, const struct err *err, void *arg)
{
	struct run *r = arg;
	struct agent *a = r->agent;

	(void)err;
	list_remove(&r->link);
	exec_run_free(r->exec);
	workq_done(a->q, r->key,
		   !rc			       ? RETRY_NO
		   : rc_retry(rc) == RETRY_NOW ? RETRY_NOW
					       : RETRY_BACKOFF);
	mem_free(r);
	on_ready(a);
}

static void work(struct agent *a, const char *key)
{
	CLEANUP(plan_fini)
	struct plan plan;
	const char *slash = strchr(key, '/');
	char ns[LIMIT_NAME_BYTES + 1];
	struct run *r;
	enum rc rc;

	plan_init(&plan);
	snprintf(ns, sizeof(ns), "%.*s", (int)(slash - key), key);
	rc = look(a, ns, slash + 1, &plan);
	if (!rc)
		rc = plan.rc;
	if (rc) {
		sim_fail(a->sim, "agent %s: %s: %s %s", machine_name(a->machine), key, rc_name(rc),
			 plan.err.msg);
		workq_done(a->q, key, RETRY_BACKOFF);
		return;
	}
	if (plan.requeue_after != USEC_INFINITY)
		ignore_rc(workq_add_after(a->q, key, plan.requeue_after)); /* a known key */
	if (!plan.n_ops) {
		workq_done(a->q, key, RETRY_NO);
		return;
	}
	r = mem_alloc(sizeof(*r) + strlen(key) + 1);
	memcpy(r->key, key, strlen(key) + 1);
	r->agent = a;
	list_push_tail(&a->runs, &r->link);
	if (exec_plan(a->exec, &r->exec, &plan, on_executed, r, NULL))
		sim_fail(a->sim, "out of memory in an agent");
}

static void on_ready(void *arg)
{
	struct agent *a = arg;
	const char *key;

	while (a->is_active && (key = workq_get(a->q)))
		work(a, key);
}

static void on_change(const struct kobj *old, const struct kobj *new, void *arg)
{
	struct agent *a = arg;
	const struct kobj *o = new ? new : old;

	if (kobj_kind(o) == &api_kind_Pod || kobj_kind(o) == &api_kind_PersistentVolume) {
		agent_wake(a, kobj_ns(o), kobj_name(o));
		return;
	}
	if (kobj_kind(o) != &api_kind_VirtualMachineInstance &&
	    kobj_kind(o) != &api_kind_PortBinding)
		return;
	LIST_FOREACH(l, machine_guests(a->machine)) {
		struct guest *g = LIST_ENTRY(l, struct guest, link);

		if (kobj_kind(o) == &api_kind_PortBinding
			    ? g->took_over && str_eq(g->vmi_name, kobj_name(o))
			    : str_eq(g->vmi_uid, kobj_uid(o)))
			agent_wake(a, g->ns, g->pod_name);
	}
}

/* The node object and its lease */

/* The next beat tries again; what turned out to be missing is made anew. */
static void on_lease(const struct kube_reply *r, void *arg)
{
	struct agent *a = arg;

	a->has_lease = r->rc != RC_NOT_FOUND && (a->has_lease || !r->rc || r->rc == RC_EXISTS);
}

static void on_node(const struct kube_reply *r, void *arg)
{
	struct agent *a = arg;

	a->has_node = r->rc != RC_NOT_FOUND && (a->has_node || !r->rc || r->rc == RC_EXISTS);
}

static void beat_lease(struct agent *a)
{
	const char *name = machine_name(a->machine);
	char now[40], path[128];
	CLEANUP(js_unrefp)
	struct json *lease = NULL;

	time_rfc3339_micro(loop_realtime(a->sim->loop), now);
	lease = js_pack("{s:s, s:s, s:{s:s, s:s}, s:{s:s, s:i, s:s}}", "apiVersion",
			"coordination.k8s.io/v1", "kind", "Lease", "metadata", "name", name,
			"namespace", "kube-node-lease", "spec", "holderIdentity", name,
			"leaseDurationSeconds",
			a->sim->opts.storage_lock ? (int)a->sim->silence : 40, "renewTime", now);
	snprintf(path, sizeof(path), "%s", name);
	if (!a->has_lease)
		ignore_rc(kube_create(a->kube, NULL, &api_kind_Lease, "kube-node-lease", lease,
				      on_lease, a, NULL)); /* the next beat tries again */
	else
		ignore_rc(kube_patch(a->kube, NULL, &api_kind_Lease, "kube-node-lease", path, NULL,
				     KUBE_PATCH_MERGE, lease, on_lease, a,
				     NULL)); /* the next beat tries again */
}

static struct json *node_object(const char *name)
{
	return js_pack(
		"{s:s, s:s, s:{s:s, s:{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s}, "
		"s:{s:s, s:s}}}",
		"apiVersion", "v1", "kind", "Node", "metadata", "name", name, "labels",
		LABEL_HOSTNAME, name, LABEL_SCHEDULABLE, "true", LABEL_ARCH, "amd64",
		"kubernetes.io/os", "linux", LABEL_CPU_MODEL "EPYC", "true",
		LABEL_CPU_MODEL_MIGRATION "EPYC", "true", LABEL_HOST_MODEL_CPU "EPYC", "true",
		LABEL_CPU_VENDOR "AMD", "true", LABEL_MACHINE_TYPE "q35", "true",
		LABEL_CPU_FEATURE "avx2", "true", LABEL_QEMU_VERSION, "10.0.2", LABEL_QEMU_LEVEL,
		"1000", "annotations", "ferry.dev/agent-port", "8186", "ferry.dev/segment-address",
		"10.244.0.11");
}

static void beat_node(struct agent *a)
{
	const char *name = machine_name(a->machine);
	CLEANUP(js_unrefp)
	struct json *node = node_object(name);
	CLEANUP(js_unrefp)
	struct json *status = NULL;
	char now[32];

	time_rfc3339(loop_realtime(a->sim->loop), now);
	status = js_pack("{s:{s:{s:s,s:s,s:s,s:s,s:s}, s:{s:s,s:s,s:s,s:s,s:s}, "
			 "s:[{s:s,s:s,s:s,s:s,s:s}], s:[{s:s,s:s}]}}",
			 "status", "capacity", "cpu", "8", "memory", "32Gi", "pods", "110",
			 "devices.kubevirt.io/kvm", "1000", "devices.kubevirt.io/tun", "1000",
			 "allocatable", "cpu", "8", "memory", "32Gi", "pods", "110",
			 "devices.kubevirt.io/kvm", "1000", "devices.kubevirt.io/tun", "1000",
			 "conditions", "type", "Ready", "status", "True", "reason", "AgentReady",
			 "lastHeartbeatTime", now, "lastTransitionTime", "2026-01-01T00:00:00Z",
			 "addresses", "type", "InternalIP", "address", "172.30.77.11");
	/* Taken away while it was silent; back with its agent. */
	CLEANUP(js_unrefp)
	struct json *label =
		js_pack("{s:{s:{s:s}}}", "metadata", "labels", LABEL_SCHEDULABLE, "true");

	if (a->has_node)
		ignore_rc(kube_patch(a->kube, NULL, &api_kind_Node, NULL, name, NULL,
				     KUBE_PATCH_MERGE, label, on_node, a, NULL)); /* as below */
	if (!a->has_node)
		ignore_rc(kube_create(a->kube, NULL, &api_kind_Node, NULL, node, on_node, a, NULL));
	else
		ignore_rc(kube_patch(a->kube, NULL, &api_kind_Node, NULL, name, "status",
				     KUBE_PATCH_MERGE, status, on_node, a,
				     NULL)); /* both: the next beat tries again */
	/* its labels too, as the real agent does: kubevirt.io/schedulable was taken away in a long silence */
	if (a->has_node)
		ignore_rc(kube_patch(a->kube, NULL, &api_kind_Node, NULL, name, NULL,
				     KUBE_PATCH_MERGE, node, on_node, a, NULL));
}

/* As the real agent: four times in the silence that is waited for. */
static usec_t pace(const struct sim *s)
{
	return s->silence ? s->silence * USEC_PER_SEC / 4 : 10 * USEC_PER_SEC;
}

static void on_beat(void *arg)
{
	struct agent *a = arg;

	if (a->beats < 3 || a->beats % 6 == 0 || !a->has_node)
		beat_node(a);
	beat_lease(a);
	ev_timer_rearm(a->beat,
		       a->beats < 3 || !a->has_node || !a->has_lease ? USEC_PER_SEC : pace(a->sim));
	a->beats++;
}

/* Life */

static void on_synced(void *arg)
{
	struct agent *a = arg;

	a->is_active = true;
	checker_guests(a->sim->checker); /* something is about to happen */
	LIST_FOREACH(l, machine_guests(a->machine)) {
		struct guest *g = LIST_ENTRY(l, struct guest, link);

		agent_wake(a, g->ns, g->pod_name);
	}
	on_ready(a);
}

/* The real one, with locks of our own. */
static enum rc start_witness(struct agent *a)
{
	const struct witness_config c = {.loop = a->sim->loop,
					 .kube = a->kube,
					 .cache = a->cache,
					 .node_name = machine_name(a->machine),
					 .shared_dir = "/shared",
					 .volwork = a->volwork,
					 .ask = sim_ask_lock,
					 .ask_arg = a->sim};

	if (!a->sim->opts.storage_lock)
		return RC_OK;
	TRY(kcache_add(a->cache, &(struct kcache_source){.kind = &api_kind_DiskWitness}, NULL));
	TRY(kcache_add(a->cache, &(struct kcache_source){.kind = &api_kind_FerryConfig}, NULL));
	TRY(pvdata_index(a->cache, NULL));
	return witness_new(&a->witness, &c, NULL);
}

static enum rc agent_start(struct agent *a)
{
	struct sim *s = a->sim;
	char user[64], field[64];
	struct kcache_opts co = {.seed = sim_rand(s) | 1};
	struct workq_opts wo = {.seed = sim_rand(s) | 1};

	snprintf(user, sizeof(user), "system:node:%s", machine_name(a->machine));
	snprintf(field, sizeof(field), "spec.nodeName=%s", machine_name(a->machine));
	TRY(kube_new_over(&a->kube, s->loop, &net_transport,
			  net_client_new(s->net, user, "system:nodes", NET_FAULTY), NULL));
	TRY(kcache_new(&a->cache, s->loop, a->kube, &co, NULL));
	TRY(kcache_add(a->cache,
		       &(struct kcache_source){.kind = &api_kind_Pod, .field_selector = field},
		       NULL));
	TRY(kcache_add(a->cache, &(struct kcache_source){.kind = &api_kind_VirtualMachineInstance},
		       NULL));
	TRY(kcache_add(a->cache, &(struct kcache_source){.kind = &api_kind_PortBinding}, NULL));
	TRY(kcache_add(a->cache, &(struct kcache_source){.kind = &api_kind_PersistentVolume},
		       NULL));
	TRY(kcache_add(a->cache, &(struct kcache_source){.kind = &api_kind_NodeFence}, NULL));
	TRY(start_witness(a));
	TRY(exec_new(
		&a->exec, s->loop, a->kube, a->cache,
		&(struct exec_opts){.component = "virt-handler", .host = machine_name(a->machine)},
		NULL));
	TRY(workq_new(&a->q, s->loop, "agent", &wo));
	workq_on_ready(a->q, on_ready, a);
	TRY(kcache_on(a->cache, &a->handler, NULL, on_change, a, NULL));
	kcache_on_synced(a->cache, on_synced, a);
	a->beats = 0;
	a->has_lease = a->has_node = false;
	TRY(ev_timer_after(s->loop, &a->beat, sim_between(s, 0, 100 * USEC_PER_MSEC), on_beat, a,
			   NULL));
	machine_set_agent(a->machine, a);
	return kcache_start(a->cache, NULL);
}

static void agent_stop(struct agent *a)
{
	machine_set_agent(a->machine, NULL);
	a->is_active = false;
	while (!list_is_empty(&a->runs)) {
		struct run *r = LIST_ENTRY(list_pop_head(&a->runs), struct run, link);

		exec_run_free(r->exec);
		mem_free(r);
	}
	a->beat = ev_src_free(a->beat);
	a->witness = witness_free(a->witness);
	a->handler = kcache_handler_free(a->handler);
	a->q = workq_free(a->q);
	a->exec = exec_free(a->exec);
	a->cache = kcache_free(a->cache);
	a->kube = kube_free(a->kube);
}

static void on_restart(void *arg)
{
	struct agent *a = arg;

	sim_trace(a->sim, "%s: agent starts", machine_name(a->machine));
	if (agent_start(a))
		sim_fail(a->sim, "cannot start an agent");
}

enum rc agent_new(struct agent **out, struct sim *s, struct machine *m)
{
	struct agent *a = mem_alloc(sizeof(*a));

	if (!a)
		return RC_NOMEM;
	a->sim = s;
	a->machine = m;
	list_init(&a->runs);
	*out = a;
	TRY(volwork_new(&a->volwork,
			&(struct volwork_config){.loop = s->loop,
						 .node_name = machine_name(m),
						 .shared_dir = "/shared"},
			NULL));
	return ev_timer_after(s->loop, &a->restart, 0, on_restart, a, NULL);
}

struct agent *agent_free(struct agent *a)
{
	if (!a)
		return NULL;
	if (a->kube)
		agent_stop(a);
	ev_src_free(a->restart);
	volwork_free(a->volwork);
	return mem_free(a);
}

void agent_crash(struct agent *a, usec_t down)
{
	usec_t delay = down + sim_between(a->sim, 100 * USEC_PER_MSEC, 4 * USEC_PER_SEC);
	usec_t at = loop_now(a->sim->loop) + delay;

	if (!a->kube) { /* down already, maybe for longer now */
		if (at > a->restart_at) {
			a->restart_at = at;
			ev_timer_rearm(a->restart, delay);
		}
		return;
	}
	sim_trace(a->sim, "%s: agent crashes", machine_name(a->machine));
	a->sim->result->crashes++;
	agent_stop(a);
	a->restart_at = at;
	ev_timer_rearm(a->restart, delay);
}

bool agent_is_up(const struct agent *a)
{
	return a->is_active;
}
