#include "virt/controller/vm/vm_status.h"

#include "api/api.h"
#include "api/meta.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/try.h"
#include "virt/controller/kit.h"

static bool vmi_cond(const VirtualMachineInstance *vmi, const char *type, const char *status,
		     const char *reason)
{
	struct api_cond c;

	if (!vmi || !API_COND_GET(&vmi->status, VirtualMachineInstanceCondition, type, &c))
		return false;
	return str_eq(c.status, status) && (!reason || str_eq(c.reason, reason));
}

static bool is_live(const VirtualMachineInstance *vmi)
{
	return vmi && !kit_vmi_is_final(vmi);
}

static bool in_phase(const VirtualMachineInstance *vmi, const char *phase)
{
	return vmi && str_eq(vmi->status.phase ? vmi->status.phase : "", phase);
}

static bool is_terminating(const struct vm_facts *f)
{
	return f->vm->metadata.deletionTimestamp != NULL;
}

static bool is_stopping(const struct vm_facts *f)
{
	return is_live(f->vmi) && (f->vmi->metadata.deletionTimestamp || f->is_stop_expected);
}

static bool is_migrating(const struct vm_facts *f)
{
	const VirtualMachineInstanceMigrationState *ms =
		f->vmi ? f->vmi->status.migrationState : NULL;

	return is_live(f->vmi) && ms && ms->startTimestamp && !ms->endTimestamp;
}

static bool is_paused(const struct vm_facts *f)
{
	return in_phase(f->vmi, "Running") && vmi_cond(f->vmi, "Paused", "True", NULL);
}

static bool is_running(const struct vm_facts *f)
{
	return in_phase(f->vmi, "Running");
}

static bool lacks_claim(const struct vm_facts *f)
{
	return is_live(f->vmi) && vmi_cond(f->vmi, "Synchronized", "False", "FailedPvcNotFound");
}

static bool is_unschedulable(const struct vm_facts *f)
{
	return is_live(f->vmi) && vmi_cond(f->vmi, "PodScheduled", "False", "Unschedulable");
}

/* Set to start: one question, asked in one place, whatever the strategy. */
static bool is_set_to_start(const struct vm_facts *f)
{
	return f->vmi ? is_live(f->vmi) : f->is_start_expected;
}

static bool waits_for_volume(const struct vm_facts *f)
{
	return is_set_to_start(f) && f->has_unbound_claim;
}

static bool cannot_pull(const struct vm_facts *f)
{
	return is_live(f->vmi) && vmi_cond(f->vmi, "Synchronized", "False", "ErrImagePull");
}

static bool backs_off_pulling(const struct vm_facts *f)
{
	return is_live(f->vmi) && vmi_cond(f->vmi, "Synchronized", "False", "ImagePullBackOff");
}

static bool is_starting(const struct vm_facts *f)
{
	return is_set_to_start(f) &&
	       (!f->vmi || in_phase(f->vmi, "") || in_phase(f->vmi, "Pending") ||
		in_phase(f->vmi, "Scheduling") || in_phase(f->vmi, "Scheduled"));
}

static bool is_crash_looping(const struct vm_facts *f)
{
	bool retries = f->strategy == VM_ALWAYS || f->strategy == VM_RERUN_ON_FAILURE ||
		       f->strategy == VM_ONCE;

	return !is_live(f->vmi) && !f->is_start_expected && f->fail_count > 0 && retries;
}

static bool is_stopped(const struct vm_facts *f)
{
	return (!f->vmi && !f->is_start_expected && f->strategy != VM_WAIT_AS_RECEIVER) ||
	       (f->vmi && kit_vmi_is_final(f->vmi));
}

static bool waits_for_receiver(const struct vm_facts *f)
{
	return f->strategy == VM_WAIT_AS_RECEIVER &&
	       (!f->vmi || in_phase(f->vmi, "WaitingForSync"));
}

const char *vm_printable_status(const struct vm_facts *f)
{
	/* DataVolumeError and Provisioning stand between these in KubeVirt; DataVolumes are refused by
	 * name until there is an importer. */
	static const struct {
		const char *name;
		bool (*matches)(const struct vm_facts *f);
	} table[] = {
		{"Terminating", is_terminating},
		{"Stopping", is_stopping},
		{"Migrating", is_migrating},
		{"Paused", is_paused},
		{"Running", is_running},
		{"ErrorPvcNotFound", lacks_claim},
		{"ErrorUnschedulable", is_unschedulable},
		{"WaitingForVolumeBinding", waits_for_volume},
		{"ErrImagePull", cannot_pull},
		{"ImagePullBackOff", backs_off_pulling},
		{"Starting", is_starting},
		{"CrashLoopBackOff", is_crash_looping},
		{"Stopped", is_stopped},
		{"WaitingForReceiver", waits_for_receiver},
	};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		if (table[i].matches(f))
			return table[i].name;
	return "Unknown";
}

/* ---- conditions ---- */

static bool is_own(const char *type)
{
	return str_eq(type, "Ready") || str_eq(type, "Failure") ||
	       str_eq(type, "RestartRequired") || str_eq(type, "ManualRecoveryRequired");
}

static enum rc set_ready(VirtualMachineStatus *st, const VirtualMachineInstance *vmi, usec_t now)
{
	struct api_cond c;

	if (!vmi)
		return API_COND_SET(st, VirtualMachineCondition, now, .type = "Ready",
				    .status = "False", .reason = "VMINotExists",
				    .message = "VMI does not exist");
	if (!API_COND_GET(&vmi->status, VirtualMachineInstanceCondition, "Ready", &c))
		return API_COND_SET(st, VirtualMachineCondition, now, .type = "Ready",
				    .status = "False", .reason = "VMIConditionMissing",
				    .message = "VMI is missing the Ready condition");
	return API_COND_SET(st, VirtualMachineCondition, now, .type = "Ready", .status = c.status,
			    .reason = c.reason, .message = c.message);
}

static bool vmi_has(const VirtualMachineInstance *vmi, const char *type)
{
	struct api_cond c;

	return vmi && API_COND_GET(&vmi->status, VirtualMachineInstanceCondition, type, &c);
}

enum rc vm_mirror_conditions(VirtualMachineStatus *st, const VirtualMachineInstance *vmi,
			     usec_t now)
{
	TRY(set_ready(st, vmi, now));
	for (size_t i = st->n_conditions; i-- > 0;)
		if (!is_own(st->conditions[i].type) && !vmi_has(vmi, st->conditions[i].type))
			api_remove(&api_type_VirtualMachineCondition, &st->conditions,
				   &st->n_conditions, i);
	for (size_t i = 0; vmi && i < vmi->status.n_conditions; i++) {
		const VirtualMachineInstanceCondition *c = &vmi->status.conditions[i];

		if (is_own(c->type))
			continue;
		TRY(API_COND_SET(st, VirtualMachineCondition, now, .type = c->type,
				 .status = c->status, .reason = c->reason, .message = c->message));
	}
	return RC_OK;
}

/* ---- restart required ---- */

bool vm_needs_restart(const VirtualMachineSpec *now, const VirtualMachineSpec *started)
{
	if (!now->template || !started->template)
		return now->template != started->template;
	/* what can be taken up while running is left out: it is placed at the next move */
	VirtualMachineInstanceSpec x = now->template->spec, y = started->template->spec;

	x.affinity = y.affinity = NULL;
	x.nodeSelector = y.nodeSelector = (struct api_map){0};
	x.n_tolerations = y.n_tolerations = 0;
	x.tolerations = y.tolerations = NULL;
	return !api_equal(&api_type_VirtualMachineInstanceSpec, &x, &y);
}

enum rc vm_set_restart_required(VirtualMachineStatus *st, bool is_required, usec_t now)
{
	if (!is_required) {
		API_COND_DEL(st, VirtualMachineCondition, "RestartRequired");
		return RC_OK;
	}
	return API_COND_SET(
		st, VirtualMachineCondition, now, .type = "RestartRequired", .status = "True",
		.message = "a non-live-updatable field was changed in the template spec");
}
