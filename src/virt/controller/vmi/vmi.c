#include "virt/controller/vmi/vmi.h"

#include "api/api.h"
#include "api/meta.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/try.h"
#include "virt/controller/kit.h"
#include "virt/controller/vmi/alloc.h"
#include "virt/controller/vmi/launcher_pod.h"
#include "virt/controller/vmi/vmi_status.h"
#include "virt/names.h"

#define VMI    (&api_kind_VirtualMachineInstance)
#define UNSEEN (10 * USEC_PER_SEC)
#define TARGET_WINDOW \
	(5 * USEC_PER_SEC) /* a target pod is handed off within it, or told by itself */

/* Writes the wished state; nothing when it is the stored one. */
static enum rc write_vmi(struct vmi_ctx *c)
{
	return plan_update(c->plan, VMI, c->vmi, STEAL(c->next), NULL);
}

static bool is_changed(const struct vmi_ctx *c)
{
	return !VirtualMachineInstance_equal(c->vmi, c->next);
}

/* ---- forwarding record ---- */

static enum rc fill_binding(PortBinding *b, const VirtualMachineInstance *vmi, const Pod *pod)
{
	TRY(api_set_str(&b->metadata.namespace, vmi->metadata.namespace));
	TRY(api_set_str(&b->metadata.name, vmi->metadata.name));
	TRY(api_add_owner(&b->metadata, VMI, &vmi->metadata, true, true));
	TRY(api_set_str(&b->spec.network, "default"));
	TRY(api_set_str(&b->spec.mac, api_annotation(&pod->metadata, ANN_MAC)));
	TRY(api_set_str(&b->spec.address, api_annotation(&pod->metadata, ANN_ADDRESS)));
	TRY(api_set_str(&b->spec.nodeName, pod->spec.nodeName));
	TRY(api_set_str(&b->spec.podName, pod->metadata.name));
	API_SET(&b->spec, epoch, 1);
	return RC_OK;
}

/* Every node programs its forwarding from this.  Later changes are the hand-over's. */
static enum rc ensure_binding(struct vmi_ctx *c, const Pod *pod)
{
	const VirtualMachineInstance *vmi = c->vmi;
	const PortBinding *old =
		view_get(c->v, &api_kind_PortBinding, vmi->metadata.namespace, vmi->metadata.name);

	if (kit_pod_is_final(pod) || str_is_empty(pod->spec.nodeName) ||
	    !api_annotation(&pod->metadata, ANN_ADDRESS))
		return RC_OK;
	if (old && api_is_owned_by(&old->metadata, vmi->metadata.uid))
		return RC_OK;
	if (old) /* of an earlier VMI of this name */
		TRY(plan_delete(c->plan, &api_kind_PortBinding, old->metadata.namespace,
				old->metadata.name, old->metadata.uid, -1, NULL));
	CLEANUP(PortBinding_freep)
	PortBinding *b = PortBinding_new();

	if (!b)
		return RC_NOMEM;
	TRY(fill_binding(b, vmi, pod));
	return plan_create(c->plan, &api_kind_PortBinding, STEAL(b));
}

/* ---- start ---- */

static enum rc plan_pod(struct vmi_ctx *c, const PersistentVolumeClaim *const *claims)
{
	const FerryConfigSpec *settings = kit_ferry_config(c->v);
	struct vm_identity id;
	Pod *pod = NULL;

	/* A VMI that says it has no pod may be an old one, whose first pod has moved away and is gone. */
	if (c->next)
		TRY(plan_confirm(c->plan, VMI, c->vmi));
	enum rc rc = alloc_identity(c->v, c->vmi, c->plan, &id, c->err);

	if (rc)
		return rc;
	struct launcher_pod_in in = {
		.vmi = c->vmi,
		.cfg = kit_config(c->v),
		.seed = c->vmi->metadata.uid,
		.address = id.has_network ? id.address : NULL,
		.mac = id.has_network ? id.mac : NULL,
		.uid = id.uid,
		.cpu_baseline = settings ? settings->cpuBaseline : NULL,
		.devices = vmi_cluster_devices(c->v),
		.claims = claims,
	};

	TRY(launcher_pod_build(&in, &pod, c->err));
	rc = vmi_pin_host_disks(c->v, c->vmi, pod);
	if (rc) {
		Pod_free(pod);
		return rc;
	}
	CLEANUP(mem_freep)
	char *name = mem_strdup(pod->metadata.name);

	TRY(plan_create(c->plan, &api_kind_Pod, pod));
	return plan_event(c->plan, VMI, c->vmi, "Normal", "SuccessfulCreate",
			  "Created virtual machine pod %s", name ? name : "");
}

/* The server refused the pod: the VMI says why, and the creation is tried again behind it. */
static enum rc tell_refusal(struct vmi_ctx *c)
{
	struct api_cond old;
	bool known = API_COND_GET(&c->vmi->status, VirtualMachineInstanceCondition, "Synchronized",
				  &old) &&
		     str_eq(old.reason, "FailedCreate") && str_eq(old.message, c->v->refused->msg);

	if (known)
		return RC_OK;
	TRY(vmi_set_synchronized(c, "FailedCreate", "%s", c->v->refused->msg));
	TRY(plan_update(c->plan, VMI, c->vmi, STEAL(c->next), NULL));
	return plan_event(c->plan, VMI, c->vmi, "Warning", "FailedCreate", "Error creating pod: %s",
			  c->v->refused->msg);
}

/* No pod yet: what is missing is said, else the pod is made.  Everything else about the VMI is
 * written when the pod has a node, in one go. */
static enum rc start(struct vmi_ctx *c)
{
	CLEANUP(mem_freep)
	const PersistentVolumeClaim **claims = NULL;
	const char *missing, *ns = c->vmi->metadata.namespace;

	TRY(vmi_claims(c->v, c->vmi, &claims, &missing));
	if (missing) {
		struct api_cond old = {0};
		bool known = API_COND_GET(&c->vmi->status, VirtualMachineInstanceCondition,
					  "Synchronized", &old) &&
			     str_eq(old.reason, "FailedPvcNotFound");

		TRY(vmi_set_synchronized(c, "FailedPvcNotFound",
					 "PVC %s/%s does not exist, waiting for it to appear", ns,
					 missing));
		if (str_is_empty(c->next->status.phase))
			TRY(kit_vmi_phase(c->next, "Pending", c->v->now));
		TRY(write_vmi(c));
		if (known)
			return RC_OK;
		return plan_event(c->plan, VMI, c->vmi, "Normal", "FailedPvcNotFound",
				  "PVC %s/%s does not exist, waiting for it to appear", ns,
				  missing);
	}
	if (c->v->refused)
		TRY(tell_refusal(c));
	enum rc rc = plan_pod(c, claims);

	if (rc != RC_BUSY)
		return rc;
	if (!c->next) /* what is told already has gone into the plan */
		return plan_requeue_after(c->plan, 10 * USEC_PER_SEC);
	/* addresses or numbers are used up: say so and try again later */
	TRY(vmi_set_synchronized(c, "FailedAllocation", "%s",
				 c->err ? c->err->msg : "nothing is free"));
	TRY(write_vmi(c));
	return plan_requeue_after(c->plan, 10 * USEC_PER_SEC);
}

/* How long a pod may still be missing only because its kind was listed before it was made. */
static usec_t unseen_left(const struct vmi_ctx *c)
{
	const VirtualMachineInstanceMigrationState *ms = c->vmi->status.migrationState;
	usec_t age = kit_age(c->v->now, c->vmi->metadata.creationTimestamp);

	if (ms && ms->endTimestamp)
		age = MIN(age, kit_age(c->v->now, ms->endTimestamp));
	return age < UNSEEN ? UNSEEN - age : 0;
}

/* The pod that should be there is not: force-deleted, or lost with its node. */
static enum rc pod_lost(struct vmi_ctx *c)
{
	usec_t wait = unseen_left(c);

	if (wait)
		return plan_requeue_after(c->plan, wait);
	c->is_urgent = true;
	api_map_fini(&c->next->status.activePods);
	TRY(api_set_str(&c->next->status.reason, "PodDeleted"));
	TRY(kit_vmi_phase(c->next, "Failed", c->v->now));
	TRY(vmi_status_common(c));
	return write_vmi(c);
}

/* ---- end ---- */

static enum rc delete_pods(struct vmi_ctx *c)
{
	int64_t grace = MAX(API_GET(&c->vmi->spec, terminationGracePeriodSeconds, 30), 1);

	for (size_t i = 0; i < c->pods.n; i++) {
		const Pod *pod = c->pods.all[i];

		if (pod->metadata.deletionTimestamp)
			continue;
		TRY(plan_delete(c->plan, &api_kind_Pod, pod->metadata.namespace, pod->metadata.name,
				pod->metadata.uid, kit_pod_is_final(pod) ? 0 : grace, NULL));
		TRY(plan_event(c->plan, VMI, c->vmi, "Normal", "SuccessfulDelete",
			       "Deleted virtual machine pod %s", pod->metadata.name));
	}
	return RC_OK;
}

/* A shorter grace given after the delete (a forced stop) counts from now on. */
static enum rc hasten_pods(struct vmi_ctx *c)
{
	int64_t grace = MAX(API_GET(&c->vmi->spec, terminationGracePeriodSeconds, 30), 1);

	for (size_t i = 0; i < c->pods.n; i++) {
		const ObjectMeta *m = &c->pods.all[i]->metadata;

		if (m->deletionTimestamp && m->has_deletionGracePeriodSeconds &&
		    m->deletionGracePeriodSeconds > grace)
			TRY(plan_delete(c->plan, &api_kind_Pod, m->namespace, m->name, m->uid,
					grace, NULL));
	}
	return RC_OK;
}

static bool has_living_owner(const struct vmi_ctx *c)
{
	const OwnerReference *o = api_controller_of(&c->vmi->metadata);

	if (!o || !str_eq(o->kind, "VirtualMachine"))
		return false;
	const VirtualMachine *vm =
		view_get(c->v, &api_kind_VirtualMachine, c->vmi->metadata.namespace, o->name);

	return vm && str_eq(vm->metadata.uid, o->uid);
}

static enum rc release(struct vmi_ctx *c)
{
	if (!kit_vmi_is_final(c->next)) {
		TRY(kit_vmi_phase(c->next,
				  kit_vmi_had_phase(c->vmi, "Running") ? "Failed" : "Succeeded",
				  c->v->now));
		api_map_fini(&c->next->status.activePods);
	}
	api_del_finalizer(&c->next->metadata, FIN_VMI);
	if (!has_living_owner(c))
		api_del_finalizer(&c->next->metadata, FIN_VM);
	return write_vmi(c);
}

static enum rc go(struct vmi_ctx *c)
{
	if (!c->pods.n)
		return release(c);
	if (c->pods.current)
		TRY(vmi_status_from_pod(c));
	TRY(write_vmi(c));
	TRY(delete_pods(c));
	return hasten_pods(c);
}

/* ---- the steady course ---- */

/* Only Ready differs although the guest has just started: the pod's own status is on its way. */
static bool only_ready_lags(const struct vmi_ctx *c)
{
	return str_eq(c->vmi->status.phase, "Running") &&
	       API_COND_IS(&c->vmi->status, VirtualMachineInstanceCondition, "Ready", "True");
}

static const char *stamp_of(const VirtualMachineInstance *vmi, const char *phase)
{
	for (size_t i = 0; i < vmi->status.n_phaseTransitionTimestamps; i++)
		if (str_eq(vmi->status.phaseTransitionTimestamps[i].phase, phase))
			return vmi->status.phaseTransitionTimestamps[i].phaseTransitionTimestamp;
	return NULL;
}

/* A migration target that was made just now: the hand-off is about to write about it. */
static usec_t young_target(const struct vmi_ctx *c)
{
	usec_t left = 0;

	for (size_t i = 0; i < c->pods.n; i++) {
		const ObjectMeta *m = &c->pods.all[i]->metadata;

		if (c->pods.all[i] != c->pods.current && api_label(m, LABEL_MIGRATION_UID))
			left = MAX(left,
				   kit_window_left(c->v->now, m->creationTimestamp, TARGET_WINDOW));
	}
	return left;
}

static const char *ready_since(const Pod *pod)
{
	for (size_t i = 0; i < pod->status.n_conditions; i++)
		if (str_eq(pod->status.conditions[i].type, "ContainersReady"))
			return pod->status.conditions[i].lastTransitionTime;
	return pod->status.startTime;
}

/* How long a change may wait for the facts that are about to join it; 0: write now. */
static usec_t may_wait(const struct vmi_ctx *c)
{
	const Pod *pod = c->pods.current;

	if (c->is_urgent)
		return 0;
	if (young_target(c))
		return young_target(c);
	if (str_is_empty(
		    pod->spec.nodeName)) /* the scheduler answers at once, one way or the other */
		return kit_coalesce_left(c->v->now, pod->metadata.creationTimestamp);
	if (str_eq(c->next->status.phase, "Scheduled")) /* the agent is about to write Running */
		return kit_coalesce_left(c->v->now, ready_since(pod));
	if (only_ready_lags(c))
		return kit_coalesce_left(c->v->now, stamp_of(c->vmi, "Running"));
	return 0;
}

/* The spec that its VM had when it was created; the server drops what a create says about status. */
static enum rc name_revision(struct vmi_ctx *c)
{
	const OwnerReference *o = api_controller_of(&c->vmi->metadata);
	const char *generation = api_annotation(&c->vmi->metadata, ANN_VM_GENERATION);

	if (c->next->status.virtualMachineRevisionName || !generation || !o ||
	    !str_eq(o->kind, "VirtualMachine"))
		return RC_OK;
	return api_set_strf(&c->next->status.virtualMachineRevisionName, "revision-start-vm-%s-%s",
			    o->uid, generation);
}

/* A descheduler leaves a pod alone whose VM is on its way already. */
static enum rc tell_pod_of_eviction(struct vmi_ctx *c, const Pod *pod)
{
	const VirtualMachineInstanceStatus *st = &c->vmi->status;
	bool is_marked = !str_is_empty(st->nodeName) &&
			 str_eq(st->evacuationNodeName, st->nodeName) &&
			 str_eq(pod->spec.nodeName, st->nodeName);
	bool says = api_annotation(&pod->metadata, ANN_EVICTION_IN_PROGRESS) != NULL;

	if (is_marked == says || kit_pod_is_final(pod) || pod->metadata.deletionTimestamp)
		return RC_OK;
	CLEANUP(Pod_freep) Pod *next = Pod_clone(pod);

	if (!next)
		return RC_NOMEM;
	if (is_marked)
		TRY(api_map_set(&next->metadata.annotations, ANN_EVICTION_IN_PROGRESS, "true"));
	else
		(void)api_map_del(&next->metadata.annotations, ANN_EVICTION_IN_PROGRESS);
	return plan_update(c->plan, &api_kind_Pod, pod, STEAL(next), NULL);
}

/* The target's pod of a move that has failed goes with its migration.  One that was given up without a word from either node
 * keeps it, as the guest may have come over; when the VMI says at last that it has not, nobody else is left to do it. */
static enum rc sweep_target(struct vmi_ctx *c)
{
	const VirtualMachineInstanceMigrationState *s = c->vmi->status.migrationState;

	for (size_t i = 0; s && API_GET(s, failed, false) && i < c->pods.n; i++) {
		const ObjectMeta *m = &c->pods.all[i]->metadata;
		const char *name = api_annotation(m, ANN_MIGRATION_NAME);
		const VirtualMachineInstanceMigration *vmim =
			name ? view_get(c->v, &api_kind_VirtualMachineInstanceMigration,
					m->namespace, name)
			     : NULL;

		if (c->pods.all[i] == c->pods.current || m->deletionTimestamp || !s->migrationUid ||
		    !str_eq(api_label(m, LABEL_MIGRATION_UID), s->migrationUid) ||
		    str_eq(c->pods.all[i]->spec.nodeName, c->vmi->status.nodeName) ||
		    (vmim && str_eq(vmim->metadata.uid, s->migrationUid) &&
		     !kit_vmim_is_final(vmim)))
			continue;
		TRY(plan_delete(c->plan, &api_kind_Pod, m->namespace, m->name, m->uid,
				kit_pod_is_final(c->pods.all[i]) ? 0 : 1, NULL));
	}
	return RC_OK;
}

static enum rc keep(struct vmi_ctx *c)
{
	const Pod *pod = c->pods.current;
	CLEANUP(mem_freep)
	const PersistentVolumeClaim **claims = NULL;
	const char *missing;

	TRY(vmi_status_from_pod(c));
	TRY(vmi_status_common(c));
	TRY(name_revision(c));
	if (!str_is_empty(c->next->status.nodeName)) {
		TRY(vmi_claims(c->v, c->vmi, &claims, &missing));
		TRY(vmi_volume_status(c, claims));
	}
	TRY(api_add_finalizer(&c->next->metadata, FIN_VMI));
	TRY(ensure_binding(c, pod));
	TRY(tell_pod_of_eviction(c, pod));
	TRY(sweep_target(c));
	if (!is_changed(c))
		return RC_OK;
	usec_t wait = may_wait(c);

	return wait ? plan_requeue_after(c->plan, wait) : write_vmi(c);
}

/* The source's pod is gone, with its machine or by force.  Whether the guest came over is the target's agent's to tell, and
 * that has to see that nobody is left at the source. */
static enum rc await_target(struct vmi_ctx *c)
{
	usec_t wait = unseen_left(c);

	if (wait)
		return plan_requeue_after(c->plan, wait);
	TRY(vmi_set_active_pods(c));
	return is_changed(c) ? write_vmi(c) : RC_OK;
}

static bool has_live_pod(const struct vmi_ctx *c)
{
	for (size_t i = 0; i < c->pods.n; i++)
		if (!kit_pod_is_final(c->pods.all[i]) &&
		    !c->pods.all[i]->metadata.deletionTimestamp)
			return true;
	return false;
}

static enum rc sync(struct vmi_ctx *c)
{
	const VirtualMachineInstanceStatus *st = &c->vmi->status;

	if (c->vmi->metadata.deletionTimestamp)
		return go(c);
	if (kit_vmi_is_final(c->vmi)) {
		if (c->pods.current)
			TRY(vmi_status_from_pod(c));
		else
			api_map_fini(&c->next->status.activePods);
		TRY(write_vmi(c));
		return delete_pods(c);
	}
	if (c->pods.current)
		return keep(c);
	if (vmi_is_moving(c->vmi) && has_live_pod(c))
		return await_target(c);
	if (st->activePods.n || !str_is_empty(st->nodeName))
		return pod_lost(c);
	return start(c);
}

enum rc vmi_reconcile(const struct view *v, const char *ns, const char *name, struct plan *out,
		      struct err *err)
{
	const VirtualMachineInstance *vmi = view_get(v, VMI, ns, name);

	if (!vmi)
		return RC_OK; /* its pods, allocations and bindings go by their owner */
	struct vmi_ctx c = {.v = v,
			    .vmi = vmi,
			    .next = VirtualMachineInstance_clone(vmi),
			    .plan = out,
			    .err = err};

	if (!c.next)
		return err_set(err, RC_NOMEM, "out of memory");
	vmi_find_pods(v, vmi, &c.pods);
	enum rc rc = sync(&c);

	VirtualMachineInstance_free(c.next); /* NULL once it went into the plan */
	return kit_fail(err, rc, "cannot reconcile the virtual machine instance");
}

/* ---- what wakes it ---- */

static void map_pod(const struct view *v, const struct kobj *obj, ctl_emit_fn emit, void *ctx)
{
	const Pod *pod = kobj_typed(obj);
	const OwnerReference *o = api_controller_of(&pod->metadata);

	(void)v;
	if (o && str_eq(o->kind, "VirtualMachineInstance"))
		emit(ctx, pod->metadata.namespace, o->name);
}

static void map_claim(const struct view *v, const struct kobj *obj, ctl_emit_fn emit, void *ctx)
{
	struct kiter it;

	view_list(v, VMI, kobj_ns(obj), &it);
	for (const VirtualMachineInstance *vmi; (vmi = view_next(&it));) {
		for (size_t i = 0; i < vmi->spec.n_volumes; i++) {
			const char *claim = kit_volume_claim(&vmi->spec.volumes[i]);

			if (claim && str_eq(claim, kobj_name(obj)))
				emit(ctx, vmi->metadata.namespace, vmi->metadata.name);
		}
	}
}

static void map_node(const struct view *v, const struct kobj *obj, ctl_emit_fn emit, void *ctx)
{
	struct kiter it;

	view_list(v, VMI, NULL, &it);
	for (const VirtualMachineInstance *vmi; (vmi = view_next(&it));)
		if (str_eq(vmi->status.nodeName, kobj_name(obj)))
			emit(ctx, vmi->metadata.namespace, vmi->metadata.name);
}

static const struct ctl_map maps[] = {
	{&api_kind_Pod, map_pod},
	{&api_kind_PersistentVolumeClaim, map_claim},
	{&api_kind_Node, map_node},
	{NULL, NULL},
};

static const struct ctl_index indexes[] = {
	{&api_kind_Allocation, ALLOC_INDEX, alloc_index},
	{NULL, NULL, NULL},
};

static const struct api_kind *const reads[] = {
	&api_kind_VirtualMachine,
	&api_kind_PortBinding,
	&api_kind_KubeVirt,
	&api_kind_FerryConfig,
	NULL,
};

const struct ctl_def vmi_ctl_def = {
	.name = "virtualmachineinstance",
	.primary = &api_kind_VirtualMachineInstance,
	.reconcile = vmi_reconcile,
	.maps = maps,
	.indexes = indexes,
	.reads = reads,
};
