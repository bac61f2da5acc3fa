#include "virt/controller/migration/migration.h"

#include <stdio.h>

#include "api/api.h"
#include "api/meta.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/try.h"
#include "virt/controller/kit.h"
#include "virt/controller/migration/mig_int.h"
#include "virt/controller/vmi/launcher_pod.h"
#include "virt/names.h"

#define VMIM (&api_kind_VirtualMachineInstanceMigration)

/* ---- clearing up ---- */

static size_t newer_final(const struct view *v, const Vmim *m)
{
	struct kiter it;
	size_t n = 0;

	mig_siblings(v, m->metadata.namespace, m->spec.vmiName, &it);
	for (const Vmim *o; (o = view_next(&it));) {
		if (o == m || !kit_vmim_is_final(o))
			continue;
		int c = strcmp(o->metadata.creationTimestamp ? o->metadata.creationTimestamp : "",
			       m->metadata.creationTimestamp ? m->metadata.creationTimestamp : "");

		n += c > 0 || (c == 0 && strcmp(o->metadata.name, m->metadata.name) > 0);
	}
	return n;
}

/* Pods that have ended and that only this migration's record explains. */
static enum rc delete_ended_pod(struct mig *m, const char *name)
{
	const Pod *pod =
		name ? view_get(m->v, &api_kind_Pod, m->old->metadata.namespace, name) : NULL;

	if (!pod || !kit_pod_is_final(pod) || pod->metadata.deletionTimestamp)
		return RC_OK;
	return plan_delete(m->plan, &api_kind_Pod, pod->metadata.namespace, name, pod->metadata.uid,
			   0, NULL);
}

static bool is_superfluous(const struct mig *m)
{
	return !m->vmi || newer_final(m->v, m->old) >= MIG_KEEP_FINAL;
}

/* A target that a failed migration left behind, should the first delete have been lost. */
static enum rc sweep_target(struct mig *m)
{
	const Pod *pod = m->target;
	const FerryMigrationStatus *f = m->old->status.ferry;

	if (!pod || !m->vmi || pod == m->pods.current || m->state != MIG_FAILED ||
	    pod->metadata.deletionTimestamp || (f && str_eq(f->reason, "NoReport")) ||
	    str_eq(pod->spec.nodeName, m->vmi->status.nodeName))
		return RC_OK;
	return plan_delete(m->plan, &api_kind_Pod, pod->metadata.namespace, pod->metadata.name,
			   pod->metadata.uid, kit_pod_is_final(pod) ? 0 : 1, NULL);
}

static enum rc drop_finalizer(struct mig *m)
{
	if (!api_has_finalizer(&m->old->metadata, FIN_VMIM))
		return RC_OK;
	CLEANUP(VirtualMachineInstanceMigration_freep)
	Vmim *next = VirtualMachineInstanceMigration_clone(m->old);

	if (!next)
		return RC_NOMEM;
	api_del_finalizer(&next->metadata, FIN_VMIM);
	return plan_update(m->plan, VMIM, m->old, STEAL(next), NULL);
}

static enum rc finish(struct mig *m)
{
	const MigState *s = m->old->status.migrationState;

	TRY(sweep_target(m));
	TRY(drop_finalizer(m));
	if (!is_superfluous(m) || m->old->metadata.deletionTimestamp)
		return RC_OK;
	if (s && m->vmi &&
	    !str_eq(s->sourcePod, m->pods.current ? m->pods.current->metadata.name : NULL))
		TRY(delete_ended_pod(m, s->sourcePod));
	return plan_delete(m->plan, VMIM, m->old->metadata.namespace, m->old->metadata.name,
			   m->old->metadata.uid, -1, NULL);
}

/* ---- one reconcile ---- */

static const char *ready_since(const Pod *pod)
{
	for (size_t i = 0; pod && i < pod->status.n_conditions; i++)
		if (str_eq(pod->status.conditions[i].type, "ContainersReady"))
			return pod->status.conditions[i].lastTransitionTime;
	return NULL;
}

/* How long a step may wait for the next one.  From the hand-off to the start of the copy takes a few
 * hundredths of a second when all goes well: one write tells it, with each phase's own time. */
static usec_t may_wait(const struct mig *m)
{
	enum mig_state old = mig_state_of(m->old->status.phase);

	if (m->old->metadata.deletionTimestamp)
		return 0;
	if (old < MIG_PREPARING && (m->state == MIG_PREPARING || m->state == MIG_TARGET_READY))
		return kit_coalesce_left(m->v->now, ready_since(m->target));
	if (old == MIG_PREPARING && m->state == MIG_TARGET_READY)
		return kit_coalesce_left(m->v->now, mig_stamp_of(m->old, MIG_PREPARING));
	return 0;
}

static enum rc write_status(struct mig *m)
{
	usec_t wait;

	if (api_equal(&api_type_VirtualMachineInstanceMigrationStatus, &m->old->status,
		      &m->next->status))
		return RC_OK;
	wait = may_wait(m);
	if (wait)
		return plan_requeue_after(m->plan, wait);
	return plan_update(m->plan, VMIM, m->old, STEAL(m->next), "status");
}

static enum rc run(struct mig *m)
{
	enum mig_event e;

	for (unsigned steps = 0; steps < MIG_STATE__MAX; steps++) {
		TRY(mig_observe(m, &e));
		if (e == MIG_EV_NONE)
			break;
		size_t planned = m->plan->n_ops;

		TRY(mig_step(m, e));
		if (m->plan->n_ops != planned)
			break; /* what was just planned must be seen first */
	}
	if (m->state == MIG_RUNNING)
		TRY(mig_mirror_progress(m));
	TRY(write_status(m));
	if (m->again)
		return plan_create(m->plan, &api_kind_Pod, STEAL(m->again));
	return mig_is_final(m->state) ? drop_finalizer(m) : RC_OK;
}

enum rc mig_set_up(struct mig *m)
{
	const char *ns = m->old->metadata.namespace;

	m->vmi = view_get(m->v, &api_kind_VirtualMachineInstance, ns, m->old->spec.vmiName);
	m->target_name = launcher_pod_name(m->old->spec.vmiName, m->old->metadata.uid);
	if (!m->target_name)
		return RC_NOMEM;
	m->target = view_get(m->v, &api_kind_Pod, ns, m->target_name);
	if (m->target &&
	    !str_eq(api_label(&m->target->metadata, LABEL_MIGRATION_UID), m->old->metadata.uid))
		m->target = NULL;
	if (m->vmi)
		vmi_find_pods(m->v, m->vmi, &m->pods);
	return RC_OK;
}

static enum rc reconcile(struct mig *m)
{
	TRY(mig_set_up(m));
	if (m->state == MIG_STATE__MAX)
		return RC_OK; /* a decentralized phase: refused at admission */
	return mig_is_final(m->state) ? finish(m) : run(m);
}

enum rc mig_reconcile(const struct view *v, const char *ns, const char *name, struct plan *out,
		      struct err *err)
{
	const Vmim *vmim = view_get(v, VMIM, ns, name);

	if (!vmim || str_is_empty(vmim->spec.vmiName))
		return RC_OK;
	struct mig m = {
		.v = v,
		.old = vmim,
		.next = VirtualMachineInstanceMigration_clone(vmim),
		.state = mig_state_of(vmim->status.phase),
		.plan = out,
		.err = err,
	};

	if (!m.next)
		return err_set(err, RC_NOMEM, "out of memory");
	enum rc rc = reconcile(&m);

	VirtualMachineInstanceMigration_free(m.next); /* NULL once it went into the plan */
	mem_free(m.target_name);
	Pod_free(m.again);
	return kit_fail(err, rc, "cannot reconcile the migration");
}

/* ---- what wakes it ---- */

void mig_siblings(const struct view *v, const char *ns, const char *vmi, struct kiter *it)
{
	char key[512];

	snprintf(key, sizeof(key), "%s/%s", ns, vmi);
	view_by(v, VMIM, MIG_INDEX, key, it);
}

static void emit_of_vmi(const struct view *v, const char *ns, const char *vmi, ctl_emit_fn emit,
			void *ctx)
{
	struct kiter it;

	mig_siblings(v, ns, vmi, &it);
	for (const Vmim *m; (m = view_next(&it));)
		emit(ctx, m->metadata.namespace, m->metadata.name);
}

static void map_vmi(const struct view *v, const struct kobj *obj, ctl_emit_fn emit, void *ctx)
{
	emit_of_vmi(v, kobj_ns(obj), kobj_name(obj), emit, ctx);
}

/* A slot that becomes free wakes those whose turn it is; an end wakes older records to be counted. */
static void map_sibling(const struct view *v, const struct kobj *obj, ctl_emit_fn emit, void *ctx)
{
	const Vmim *changed = kobj_typed(obj);

	if (!kit_vmim_is_final(changed) && !kobj_is_going(obj))
		return;
	if (changed->spec.vmiName)
		emit_of_vmi(v, kobj_ns(obj), changed->spec.vmiName, emit, ctx);
	mig_wake_next(v, emit, ctx);
}

static void map_pod(const struct view *v, const struct kobj *obj, ctl_emit_fn emit, void *ctx)
{
	const Pod *pod = kobj_typed(obj);
	const char *vmim = api_annotation(&pod->metadata, ANN_MIGRATION_NAME);

	(void)v;
	if (vmim)
		emit(ctx, pod->metadata.namespace, vmim);
}

/* A node that changes may settle the question of those that wait for one. */
static void map_node(const struct view *v, const struct kobj *obj, ctl_emit_fn emit, void *ctx)
{
	struct kiter it;

	(void)obj;
	view_list(v, VMIM, NULL, &it);
	for (const Vmim *m; (m = view_next(&it));)
		if (mig_state_of(m->status.phase) <= MIG_SCHEDULING)
			emit(ctx, m->metadata.namespace, m->metadata.name);
}

void mig_index_vmi(const struct kobj *o, kcache_emit_fn emit, void *ctx)
{
	const Vmim *m = kobj_typed(o);
	char key[512];

	if (str_is_empty(m->spec.vmiName))
		return;
	snprintf(key, sizeof(key), "%s/%s", kobj_ns(o), m->spec.vmiName);
	emit(ctx, key);
}

static const struct ctl_map maps[] = {
	{&api_kind_VirtualMachineInstance, map_vmi},
	{&api_kind_VirtualMachineInstanceMigration, map_sibling},
	{&api_kind_Pod, map_pod},
	{&api_kind_Node, map_node},
	{NULL, NULL},
};

static const struct ctl_index indexes[] = {
	{&api_kind_VirtualMachineInstanceMigration, MIG_INDEX, mig_index_vmi},
	{&api_kind_VirtualMachineInstanceMigration, MIG_QUEUE_INDEX, mig_index_queue},
	{NULL, NULL, NULL},
};

static const struct api_kind *const reads[] = {
	&api_kind_PersistentVolumeClaim,
	&api_kind_PersistentVolume,
	&api_kind_StorageClass,
	&api_kind_Namespace,
	&api_kind_PortBinding,
	&api_kind_Handover,
	&api_kind_KubeVirt,
	&api_kind_FerryConfig,
	&api_kind_MigrationPolicy,
	NULL,
};

const struct ctl_def mig_ctl_def = {
	.name = "virtualmachineinstancemigration",
	.primary = &api_kind_VirtualMachineInstanceMigration,
	.reconcile = mig_reconcile,
	.maps = maps,
	.indexes = indexes,
	.reads = reads,
};
