#include <stdio.h>

#include "api/api.h"
#include "api/meta.h"
#include "base/str.h"
#include "base/try.h"
#include "virt/controller/kit.h"
#include "virt/controller/migration/mig_int.h"
#include "virt/controller/vmi/resources.h"
#include "virt/names.h"

#define VMI  (&api_kind_VirtualMachineInstance)
#define VMIM (&api_kind_VirtualMachineInstanceMigration)

enum rc mig_act_none(struct mig *m)
{
	(void)m;
	return RC_OK;
}

/* What the VMIM itself tells about the move before the VMI carries it. */
static MigState *own_state(struct mig *m)
{
	MigState *s = api_ensure(&api_type_VirtualMachineInstanceMigrationState,
				 &m->next->status.migrationState);

	if (!s || api_set_str(&s->migrationUid, m->old->metadata.uid))
		return NULL;
	return s;
}

static enum rc set_source(struct mig *m, MigState *s)
{
	const Pod *pod = m->pods.current;

	TRY(api_set_str(&s->sourceNode, m->vmi->status.nodeName));
	return api_set_str(&s->sourcePod, pod ? pod->metadata.name : NULL);
}

/* ---- the target pod ---- */

enum rc mig_act_create_target(struct mig *m)
{
	MigState *s = own_state(m);
	Pod *pod = NULL;

	if (!s)
		return RC_NOMEM;
	TRY(set_source(m, s));
	TRY(api_set_str(&s->targetPod, m->target_name));
	API_COND_DEL(&m->next->status, VirtualMachineInstanceMigrationCondition,
		     "migrationRejectedByResourceQuota");
	if (m->next->status.ferry) /* no longer what it waited for */
		TRY(api_set_str(&m->next->status.ferry->stage, NULL));
	if (m->target || mig_vmi_state(m))
		return RC_OK;
	TRY(mig_target_pod(m, &pod));
	TRY(plan_create(m->plan, &api_kind_Pod, pod));
	return plan_event(m->plan, VMIM, m->old, "Normal", "SuccessfulCreate",
			  "Created migration target pod %s", m->target_name);
}

static bool holds_guest(const struct mig *m)
{
	if (!m->vmi || !m->target)
		return false;
	const MigState *s = mig_vmi_state(m);

	return (s && API_GET(s, completed, false)) ||
	       (!str_is_empty(m->target->spec.nodeName) &&
		str_eq(m->vmi->status.nodeName, m->target->spec.nodeName));
}

static enum rc delete_target(struct mig *m)
{
	const Pod *pod = m->target;

	if (!pod || pod->metadata.deletionTimestamp || m->keeps_target || holds_guest(m))
		return RC_OK;
	return plan_delete(m->plan, &api_kind_Pod, pod->metadata.namespace, pod->metadata.name,
			   pod->metadata.uid, kit_pod_is_final(pod) ? 0 : 1, NULL);
}

/* ---- hand-off ---- */

static int64_t next_epoch(const struct mig *m)
{
	const PortBinding *b = view_get(m->v, &api_kind_PortBinding, m->vmi->metadata.namespace,
					m->vmi->metadata.name);
	const FerryVMIStatus *f = m->vmi->status.ferry;
	int64_t now = f ? API_GET(f, epoch, 1) : 1;

	if (b)
		now = MAX(now, API_GET(&b->spec, epoch, 1));
	return now + 1;
}

static enum rc fill_handover(const struct mig *m, Handover *h)
{
	TRY(api_set_str(&h->metadata.namespace, m->old->metadata.namespace));
	TRY(api_set_str(&h->metadata.name, m->old->metadata.uid));
	TRY(api_add_owner(&h->metadata, VMIM, &m->old->metadata, true, true));
	TRY(api_set_str(&h->spec.vmiName, m->vmi->metadata.name));
	TRY(api_set_str(&h->spec.vmiUID, m->vmi->metadata.uid));
	TRY(api_set_str(&h->spec.migrationUID, m->old->metadata.uid));
	TRY(api_set_str(&h->spec.sourceNode, m->vmi->status.nodeName));
	TRY(api_set_str(&h->spec.targetNode, m->target->spec.nodeName));
	API_SET(&h->spec, epoch, next_epoch(m));
	return RC_OK;
}

/* The record that decides who may run the guest; the two agents write its status.  It has the migration's uid
 * as its name: a migration that has the name of one that was just deleted must not meet the record of that. */
static enum rc plan_handover(struct mig *m)
{
	if (view_get(m->v, &api_kind_Handover, m->old->metadata.namespace, m->old->metadata.uid))
		return RC_OK;
	CLEANUP(Handover_freep)
	Handover *h = Handover_new();

	if (!h)
		return RC_NOMEM;
	TRY(fill_handover(m, h));
	return plan_create(m->plan, &api_kind_Handover, STEAL(h));
}

static enum rc fill_sides(const struct mig *m, MigState *s)
{
	VirtualMachineInstanceMigrationSourceState *src =
		api_ensure(&api_type_VirtualMachineInstanceMigrationSourceState, &s->sourceState);
	VirtualMachineInstanceMigrationTargetState *dst =
		api_ensure(&api_type_VirtualMachineInstanceMigrationTargetState, &s->targetState);

	if (!src || !dst)
		return RC_NOMEM;
	TRY(api_set_str(&src->node, s->sourceNode));
	TRY(api_set_str(&src->pod, s->sourcePod));
	TRY(api_set_str(&src->migrationUID, s->migrationUid));
	TRY(api_set_str(&src->virtualMachineInstanceUID, m->vmi->metadata.uid));
	TRY(api_map_copy(&src->nodeSelectors, &m->pods.current->spec.nodeSelector));
	TRY(api_set_str(&dst->node, s->targetNode));
	TRY(api_set_str(&dst->pod, s->targetPod));
	TRY(api_set_str(&dst->migrationUID, s->migrationUid));
	return api_set_str(&dst->virtualMachineInstanceUID, m->vmi->metadata.uid);
}

static enum rc fill_state(const struct mig *m, MigState *s)
{
	const MigrationPolicy *policy = mig_policy_of(m->v, m->vmi);

	TRY(api_set_str(&s->migrationUid, m->old->metadata.uid));
	TRY(api_set_str(&s->sourceNode, m->vmi->status.nodeName));
	TRY(api_set_str(&s->sourcePod, m->pods.current->metadata.name));
	TRY(api_set_str(&s->targetNode, m->target->spec.nodeName));
	TRY(api_set_str(&s->targetPod, m->target->metadata.name));
	TRY(api_set_str(&s->targetMemoryOverhead,
			api_annotation(&m->target->metadata, ANN_MEMORY_OVERHEAD)));
	TRY(api_set_str(&s->migrationPolicyName, policy ? policy->metadata.name : NULL));
	TRY(mig_effective_config(m->v, policy, &s->migrationConfiguration));
	return fill_sides(m, s);
}

/* What the VMI shows of the move before this one goes. */
static enum rc set_method(const struct mig *m, const VMIMConfigurationOptions *c,
			  VirtualMachineInstanceStatus *st)
{
	FerryVMIStatus *f = api_ensure(&api_type_FerryVMIStatus, &st->ferry);

	if (!f)
		return RC_NOMEM;
	FerryMigrationStatus_free(STEAL(f->migration));
	FerryMigrationStatus *fm = api_ensure(&api_type_FerryMigrationStatus, &f->migration);

	return fm ? mig_choose_method(m, c, &fm->method) : RC_NOMEM;
}

static enum rc apply_hand_off(const struct mig *m, VirtualMachineInstance *vmi)
{
	VirtualMachineInstanceStatus *st = &vmi->status;

	VirtualMachineInstanceMigrationState_free(STEAL(st->migrationState));
	MigState *s =
		api_ensure(&api_type_VirtualMachineInstanceMigrationState, &st->migrationState);

	if (!s)
		return RC_NOMEM;
	TRY(fill_state(m, s));
	TRY(set_method(m, s->migrationConfiguration, st));
	TRY(api_map_set(&st->activePods, m->target->metadata.uid, m->target->spec.nodeName));
	return api_map_set(&vmi->metadata.labels, LABEL_MIGRATION_TARGET, m->target->spec.nodeName);
}

enum rc mig_act_hand_off(struct mig *m)
{
	if (m->next->status.ferry)
		TRY(api_set_str(&m->next->status.ferry->stage, NULL));
	if (mig_vmi_state(m))
		return RC_OK;
	if (!m->pods.current)
		return err_set(m->err, RC_BUSY, "the source pod is not known yet");
	CLEANUP(VirtualMachineInstance_freep)
	VirtualMachineInstance *next = VirtualMachineInstance_clone(m->vmi);

	if (!next)
		return RC_NOMEM;
	TRY(apply_hand_off(m, next));
	TRY(plan_handover(m));
	TRY(plan_update(m->plan, VMI, m->vmi, STEAL(next), NULL));
	return plan_event(m->plan, VMIM, m->old, "Normal", "SuccessfulHandOver",
			  "Migration target pod is ready for preparation by virt-handler.");
}

/* ---- ends ---- */

enum rc mig_mirror_progress(struct mig *m)
{
	const MigState *s = mig_vmi_state(m);
	const FerryVMIStatus *f = m->vmi ? m->vmi->status.ferry : NULL;
	FerryMigrationStatus *own = m->next->status.ferry;
	bool ended = s && (API_GET(s, completed, false) || API_GET(s, failed, false));

	/* a move that is over soon is not worth a second write for each step */
	if (s && !ended && kit_window_left(m->v->now, s->startTimestamp, MIG_SHOW_AFTER))
		return RC_OK;
	/* before the start the VMI may still show the move before this one */
	if (!s || !s->startTimestamp || !f || !f->migration)
		return RC_OK;
	FerryMigrationStatus *copy = FerryMigrationStatus_clone(f->migration);

	if (!copy)
		return RC_NOMEM;
	if (own && !copy->n_placement) {
		copy->placement = STEAL(own->placement);
		copy->n_placement = own->n_placement;
		own->n_placement = 0;
	}
	FerryMigrationStatus_free(own);
	m->next->status.ferry = copy;
	MigState *shown = own_state(m);

	return shown ? api_set_str(&shown->mode, s->mode) : RC_NOMEM;
}

/* Status freezes: the VMI's record of this move becomes the migration's own. */
static enum rc freeze_state(struct mig *m)
{
	const MigState *s = mig_vmi_state(m);

	if (s) {
		VirtualMachineInstanceMigrationState_free(STEAL(m->next->status.migrationState));
		m->next->status.migrationState = VirtualMachineInstanceMigrationState_clone(s);
		if (!m->next->status.migrationState)
			return RC_NOMEM;
	}
	return mig_mirror_progress(m);
}

enum rc mig_act_succeed(struct mig *m)
{
	TRY(freeze_state(m));
	return plan_event(m->plan, VMIM, m->old, "Normal", "SuccessfulMigration",
			  "Source node reported migration succeeded");
}

static enum rc explain(struct mig *m)
{
	FerryMigrationStatus *f =
		api_ensure(&api_type_FerryMigrationStatus, &m->next->status.ferry);
	MigState *s = own_state(m);

	if (!f || !s)
		return RC_NOMEM;
	API_SET(s, failed, true);
	if (!s->failureReason)
		TRY(api_set_str(&s->failureReason, m->failure));
	if (!s->endTimestamp)
		TRY(kit_stamp(&s->endTimestamp, m->v->now));
	if (!f->plane)
		TRY(api_set_str(&f->plane, m->state == MIG_RUNNING ? "data" : "control"));
	if (!f->reason)
		TRY(api_set_str(&f->reason, m->reason ? m->reason : "Failed"));
	if (!f->message)
		TRY(api_set_str(&f->message, s->failureReason));
	return RC_OK;
}

/* CPU requirements as a Go map, which is how KubeVirt prints them. */
static void cpu_requirements(const Pod *pod, struct sbuf *out)
{
	bool any = false;

	sbuf_adds(out, "map[");
	for (size_t i = 0; i < pod->spec.nodeSelector.n; i++) {
		const struct api_map_item *s = &pod->spec.nodeSelector.items[i];

		if (!str_has_prefix(s->key, LABEL_CPU_MODEL_MIGRATION) &&
		    !str_has_prefix(s->key, LABEL_CPU_FEATURE))
			continue;
		sbuf_addf(out, "%s%s:%s", any ? " " : "", s->key, s->value);
		any = true;
	}
	sbuf_addc(out, ']');
}

static enum rc tell_host_model(struct mig *m)
{
	const CPU *cpu = m->vmi ? m->vmi->spec.domain.cpu : NULL;
	CLEANUP(Pod_freep)
	Pod *pod = NULL;
	struct sbuf text = SBUF_INIT(2048);

	if (!str_eq(m->reason, "NoCandidate") || !cpu || !str_eq(cpu->model, "host-model") ||
	    !m->pods.current)
		return RC_OK;
	TRY(mig_target_pod(m, &pod));
	cpu_requirements(pod, &text);
	enum rc rc =
		plan_event(m->plan, VMI, m->vmi, "Warning", "NoSuitableNodesForHostModelMigration",
			   "Migration cannot proceed since no node is suitable to run the required "
			   "CPU model / required features: %s",
			   sbuf_str(&text));

	sbuf_fini(&text);
	return rc;
}

enum rc mig_act_report(struct mig *m)
{
	TRY(freeze_state(m));
	TRY(explain(m));
	TRY(tell_host_model(m));
	return plan_event(m->plan, VMIM, m->old, "Warning", "FailedMigration", "%s", m->failure);
}

enum rc mig_act_drop_target(struct mig *m)
{
	TRY(delete_target(m));
	if (m->target && m->old->metadata.deletionTimestamp)
		TRY(plan_event(m->plan, VMIM, m->old, "Normal", "SuccessfulDelete",
			       "migration canceled and pod %s/%s is deleted",
			       m->target->metadata.namespace, m->target->metadata.name));
	return mig_act_report(m);
}

static bool is_cancel(const struct mig *m)
{
	return str_eq(m->reason, "Canceled");
}

static enum rc mark_failed(struct mig *m, MigState *s)
{
	API_SET(s, failed, true);
	TRY(kit_stamp(&s->endTimestamp, m->v->now));
	if (is_cancel(m)) {
		API_SET(s, abortRequested, true);
		TRY(api_set_str(&s->abortStatus, "Succeeded"));
		return api_set_str(&s->failureReason, "Live migration has been aborted");
	}
	if (str_eq(m->reason, "TargetDown"))
		return api_set_str(&s->failureReason, "Target pod is down");
	return api_set_str(&s->failureReason, m->failure);
}

/* The source has not begun: taking the move off the VMI first means that it never will (the update
 * carries the VMI's version, so a source that begins meanwhile wins and we look again). */
static enum rc take_back(struct mig *m)
{
	const MigState *s = mig_vmi_state(m);

	if (!s || API_GET(s, failed, false) || API_GET(s, completed, false) || m->keeps_target)
		return RC_OK;
	CLEANUP(VirtualMachineInstance_freep)
	VirtualMachineInstance *next = VirtualMachineInstance_clone(m->vmi);

	if (!next)
		return RC_NOMEM;
	TRY(mark_failed(m, next->status.migrationState));
	VirtualMachineInstanceMigrationState_free(STEAL(m->next->status.migrationState));
	m->next->status.migrationState =
		VirtualMachineInstanceMigrationState_clone(next->status.migrationState);
	if (!m->next->status.migrationState)
		return RC_NOMEM;
	TRY(plan_update(m->plan, VMI, m->vmi, STEAL(next), NULL));
	if (!str_eq(m->reason, "TargetDown"))
		return RC_OK;
	return plan_event(
		m->plan, VMI, m->vmi, "Warning", "FailedMigration",
		"VirtualMachineInstance migration uid %s failed. reason: Target pod is down",
		m->old->metadata.uid);
}

enum rc mig_act_abandon(struct mig *m)
{
	const MigState *s = mig_vmi_state(m);

	if (s && API_GET(s, failed, false))
		TRY(freeze_state(m));
	else
		TRY(take_back(m));
	TRY(delete_target(m));
	if (m->target && m->old->metadata.deletionTimestamp)
		TRY(plan_event(m->plan, VMIM, m->old, "Normal", "SuccessfulDelete",
			       "migration canceled and pod %s/%s is deleted",
			       m->target->metadata.namespace, m->target->metadata.name));
	TRY(explain(m));
	return plan_event(m->plan, VMIM, m->old, "Warning", "FailedMigration", "%s", m->failure);
}

/* Data flows: only the source's agent can end it.  Asked once; its answer comes on the VMI. */
enum rc mig_act_request_abort(struct mig *m)
{
	const MigState *s = mig_vmi_state(m);
	CLEANUP(VirtualMachineInstance_freep)
	VirtualMachineInstance *next = VirtualMachineInstance_clone(m->vmi);

	if (!next)
		return RC_NOMEM;
	if (!s || API_GET(s, abortRequested, false))
		return RC_OK;
	API_SET(next->status.migrationState, abortRequested, true);
	TRY(plan_update(m->plan, VMI, m->vmi, STEAL(next), NULL));
	if (!m->target)
		TRY(plan_event(m->plan, VMIM, m->old, "Warning", "FailedMigration",
			       "Migration target pod was removed during active migration."));
	TRY(API_COND_SET(&m->next->status, VirtualMachineInstanceMigrationCondition, m->v->now,
			 .type = "migrationAbortRequested", .status = "True"));
	return plan_event(m->plan, VMIM, m->old, "Normal", "SuccessfulAbortMigration",
			  "Migration is ready to be canceled by virt-handler.");
}

/* Only the source's agent can do it, and it alone knows whether it is too late; asked once, like a cancel. */
enum rc mig_act_request_finish(struct mig *m)
{
	CLEANUP(VirtualMachineInstance_freep)
	VirtualMachineInstance *next = VirtualMachineInstance_clone(m->vmi);

	if (!next)
		return RC_NOMEM;
	FerryVMIStatus *f = api_ensure(&api_type_FerryVMIStatus, &next->status.ferry);
	FerryMigrationStatus *fm =
		f ? api_ensure(&api_type_FerryMigrationStatus, &f->migration) : NULL;

	if (!fm)
		return RC_NOMEM;
	API_SET(fm, finishRequested, true);
	TRY(plan_update(m->plan, VMI, m->vmi, STEAL(next), NULL));
	return plan_event(m->plan, VMIM, m->old, "Normal", "SuccessfulFinishRequest",
			  "The source's node is asked to finish the migration with a pause.");
}

enum rc mig_act_finish_failed(struct mig *m)
{
	TRY(freeze_state(m));
	TRY(delete_target(m));
	TRY(explain(m));
	return plan_event(m->plan, VMIM, m->old, "Warning", "FailedMigration", "%s", m->failure);
}
