/* What the source's agent says of a move in the VMI: its begin, its progress, and how it ended. */
#include "api/api.h"
#include "base/str.h"
#include "base/try.h"
#include "virt/migration/host_disks.h"
#include "virt/node/migration_source_int.h"
#include "virt/node/vmspec.h"

/* Beside KubeVirt's text: why, for programs and for people. */
static enum rc publish_reason(struct mig_source *m, VirtualMachineInstance *vmi)
{
	FerryVMIStatus *fs = api_ensure(&api_type_FerryVMIStatus, &vmi->status.ferry);
	FerryMigrationStatus *fm =
		fs ? api_ensure(&api_type_FerryMigrationStatus, &fs->migration) : NULL;

	if (!fm)
		return RC_NOMEM;
	TRY(api_set_str(&fm->plane, "data"));
	TRY(api_set_str(&fm->reason, m->reason));
	return api_set_str(&fm->message, m->detail ? m->detail : m->failure);
}

/* A target that may have run the guest has the newer files, as it has the newer volumes (mig_source_plan()). */
static enum rc give_host_disks(const struct mig_source *m, VirtualMachineInstance *vmi)
{
	if (m->state != SRC_LOST || !m->may_have_run)
		return RC_OK;
	FerryVMIStatus *fs = api_ensure(&api_type_FerryVMIStatus, &vmi->status.ferry);

	for (size_t i = 0; fs && i < vmi->spec.n_volumes; i++)
		if (host_disk_is_own(&vmi->spec, &vmi->spec.volumes[i]))
			TRY(host_disk_note(&fs->hostDisks, &fs->n_hostDisks,
					   vmi->spec.volumes[i].hostDisk->path, m->target_node));
	return fs ? RC_OK : RC_NOMEM;
}

static enum rc publish_end(struct mig_source *m, VirtualMachineInstance *vmi, usec_t now)
{
	VirtualMachineInstanceMigrationState *s = vmi->status.migrationState;

	TRY(give_host_disks(m, vmi));
	if (API_GET(s, failed, false) || API_GET(s, completed, false))
		return RC_OK;
	API_SET(s, failed, true);
	TRY(api_set_str(&s->failureReason, m->failure));
	TRY(publish_reason(m, vmi));
	if (m->state == SRC_FAILED && (m->is_aborted_by_user || m->cancel_sent))
		TRY(api_set_str(&s->abortStatus, MigrationAbortStatus_Succeeded));
	return mig_set_time(&s->endTimestamp, now);
}

static enum rc publish_progress(struct mig_source *m, VirtualMachineInstance *vmi)
{
	FerryVMIStatus *fs = api_ensure(&api_type_FerryVMIStatus, &vmi->status.ferry);
	FerryMigrationStatus *fm =
		fs ? api_ensure(&api_type_FerryMigrationStatus, &fs->migration) : NULL;

	if (mig_source_is_split(m))
		TRY(api_set_str(&vmi->status.migrationState->mode, MigrationMode_PostCopy));
	else if (mig_is_finishing(m->last))
		TRY(api_set_str(&vmi->status.migrationState->mode, MigrationMode_Paused));
	if (!fm)
		return RC_NOMEM;
	TRY(mig_fill_stats(fm, m->last, vmspec_memory(vmi),
			   loop_now(m->host->cfg.loop) - m->last_at));
	if (str_eq(fm->stage, "disks") && m->disk_rate.per_second)
		API_SET(fm, linkBytesPerSecond, m->disk_rate.per_second);
	return RC_OK;
}

/* How this one goes over was written with the hand-off, and stays. */
static enum rc forget_last(FerryMigrationStatus **fm)
{
	FerryMigrationStatus *old = *fm;
	FerryMigrationMethod *method = STEAL(old->method);

	*fm = api_free(&api_type_FerryMigrationStatus, old);
	if (!method)
		return RC_OK;
	FerryMigrationStatus *next = api_ensure(&api_type_FerryMigrationStatus, fm);

	if (!next) {
		FerryMigrationMethod_free(method);
		return RC_NOMEM;
	}
	next->method = method;
	return RC_OK;
}

/* A new move forgets what the last one showed. */
static enum rc publish_begin(struct mig_source *m, VirtualMachineInstance *vmi)
{
	VirtualMachineInstanceMigrationState *s = vmi->status.migrationState;

	if (s->startTimestamp || API_GET(s, failed, false))
		return RC_OK;
	if (vmi->status.ferry && vmi->status.ferry->migration)
		TRY(forget_last(&vmi->status.ferry->migration));
	TRY(api_set_str(&s->mode, MigrationMode_PreCopy));
	return mig_set_time(&s->startTimestamp, m->begun_at);
}

enum rc mig_source_fill(struct vm *vm, VirtualMachineInstance *vmi, usec_t now)
{
	struct mig_source *m = vm->source;
	VirtualMachineInstanceMigrationState *s = vmi->status.migrationState;

	if (!m || !s || !str_eq(s->migrationUid, m->uid))
		return RC_OK;
	switch (m->state) {
	case SRC_PREPARING:
		return publish_begin(m, vmi);
	case SRC_MOVING:
	case SRC_CANCELLING:
		return m->shows_progress && m->last ? publish_progress(m, vmi) : RC_OK;
	case SRC_SWITCHING: /* a pause that nobody asked for is over before it could be shown */
		return mig_is_finishing(m->last) ? publish_progress(m, vmi) : RC_OK;
	case SRC_STREAMING:
		return m->last ? publish_progress(m, vmi) : RC_OK;
	case SRC_FAILED:
	case SRC_LOST:
		return publish_end(m, vmi, now);
	default:
		return RC_OK;
	}
}

/* A target that may have run the guest has the newer disks, also when it is not there any more.  What is here stays,
 * for people to decide on. */
enum rc mig_source_plan(struct vm *vm, struct plan *plan)
{
	const struct mig_source *m = vm->source;

	if (!m || m->state != SRC_LOST || !m->may_have_run)
		return RC_OK;
	return mig_disks_take(vm, vm->host->cfg.node_name, m->target_node, m->uid, true, plan);
}

const struct json *mig_source_report(const struct vm *vm)
{
	const struct mig_source *m = vm->source;

	return m && (m->state == SRC_MOVING || m->state == SRC_CANCELLING) ? m->last : NULL;
}

bool mig_source_is_released(const struct vm *vm)
{
	return vm->source && vm->source->state == SRC_RELEASED;
}
