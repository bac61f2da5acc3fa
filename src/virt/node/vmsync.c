#include "virt/node/vmsync.h"

#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "api/meta.h"
#include "api/quantity.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/try.h"
#include "ctl/plan.h"
#include "json/json.h"
#include "virt/migration/host_disks.h"
#include "virt/names.h"
#include "virt/node/cpulabels.h"
#include "virt/node/vmagent.h"

#define SHUT_DOWN "The VirtualMachineInstance was shut down."
#define CRASHED	  "The VirtualMachineInstance crashed."
#define HALF	  "VMI is irrecoverable due to failed post-copy migration"

static const char *const state_names[] = {
	"none",	     "starting",       "prelaunch",   "incoming", "running", "paused",
	"migrating", "pre-switchover", "postmigrate", "shutdown", "crashed", "gone",
};
static_assert(ARRAY_SIZE(state_names) == VM__STATES, "name every state");

enum vm_state vm_state_parse(const char *s)
{
	for (int i = 0; i < VM__STATES; i++)
		if (str_eq(state_names[i], s))
			return (enum vm_state)i;
	return VM_NONE;
}

const char *vm_state_name(enum vm_state s)
{
	return s < VM__STATES ? state_names[s] : "none";
}

static bool is_alive(enum vm_state s)
{
	return s == VM_PRELAUNCH || s == VM_RUNNING || s == VM_PAUSED || s == VM_MIGRATING ||
	       s == VM_PRE_SWITCHOVER;
}

bool vmsync_is_final(const VirtualMachineInstance *vmi)
{
	return str_eq(vmi->status.phase, "Succeeded") || str_eq(vmi->status.phase, "Failed");
}

/* Paused from the start although it should run: the moment between QEMU's start and the go. */
static bool waits_for_go(const VirtualMachineInstance *vmi, const struct vm_facts *f)
{
	return (f->state == VM_PAUSED || f->state == VM_PRELAUNCH) &&
	       str_eq(f->reason, "StartedPaused") && !str_eq(vmi->spec.startStrategy, "Paused");
}

static bool was_forced_off(const struct vm_facts *f)
{
	return str_eq(f->reason, "Killed") || str_eq(f->reason, "GraceExpired");
}

/* The controller has given the VMI to this node.  Scheduled need not have been written yet: it is true, and
 * Running says it too. */
static bool may_run(const VirtualMachineInstance *vmi, const struct vm_facts *f)
{
	const char *phase = vmi->status.phase;

	return str_eq(phase, "Scheduled") || str_eq(phase, "Running") ||
	       (str_eq(phase, "Scheduling") && str_eq(vmi->status.nodeName, f->node));
}

const char *vmsync_phase(const VirtualMachineInstance *vmi, const struct vm_facts *f)
{
	if (vmsync_is_final(vmi) || f->is_source_done || f->is_target)
		return NULL;
	if (is_alive(f->state))
		return waits_for_go(vmi, f) || !may_run(vmi, f) ? NULL : "Running";
	if (f->state == VM_CRASHED)
		return "Failed";
	if (f->state != VM_GONE)
		return NULL;
	if (f->is_half)
		return "Failed"; /* whatever ended QEMU: it is no shutdown of the guest's */
	if (str_eq(f->reason, "GuestShutdown") || str_eq(f->reason, "HostShutdown") ||
	    str_eq(f->reason, "GuestReset"))
		return "Succeeded";
	/* Forced off: a success only where the guest has no way to shut down by itself. */
	const Features *ft = vmi->spec.domain.features;

	if (was_forced_off(f) && ft && ft->acpi && !API_GET(ft->acpi, enabled, true))
		return "Succeeded";
	return "Failed";
}

/* The guest has come back to this node, in another pod. */
static bool is_in_another_pod(const VirtualMachineInstance *vmi, const struct vm_facts *f)
{
	const struct api_map *pods = &vmi->status.activePods;

	return pods->n && f->pod_uid && !api_map_has(pods, f->pod_uid);
}

/* A copy that has ended says how its guest did, unless that lives on elsewhere: an agent that died in between has ended
 * the copy, and the next one finds it so. */
static enum vm_place place_of_ended(const VirtualMachineInstance *vmi, const struct vm_facts *f)
{
	bool is_left = !str_eq(vmi->status.nodeName, f->node) || is_in_another_pod(vmi, f);

	return is_left && !f->is_target && !f->is_source_done ? VM_PLACE_LEFT : VM_PLACE_STAYS;
}

enum vm_place vmsync_place(const VirtualMachineInstance *vmi, const struct vm_facts *f)
{
	const char *node = vmi->status.nodeName;

	if (str_is_empty(node))
		return VM_PLACE_STAYS;
	if (f->state == VM_GONE)
		return place_of_ended(vmi, f);
	/* Pods and VMIs are seen by two watches: the VMI may be older than this pod, and name the node for a stay
	 * before this move.  A copy that still waits for its guest cannot be the one that is meant. */
	if (str_eq(node, f->node))
		return f->state == VM_STARTING || f->state == VM_INCOMING ? VM_PLACE_STAYS
									  : VM_PLACE_OWNS;
	/* It has come by a move and left by another one, which the agent before this one saw: no target any more. */
	if (f->is_source_done || (f->is_target && f->state != VM_POSTMIGRATE) ||
	    f->state == VM_NONE)
		return VM_PLACE_STAYS;
	return VM_PLACE_LEFT;
}

static const char *bus_name(const Disk *d)
{
	const char *bus = d->disk    ? d->disk->bus
			  : d->cdrom ? d->cdrom->bus
			  : d->lun   ? d->lun->bus
				     : NULL;

	return bus ? bus : "sata";
}

void vmsync_disk_target(const VirtualMachineInstance *vmi, const char *volume, char out[16])
{
	const Devices *dev = &vmi->spec.domain.devices;
	int n[2] = {0, 0};

	out[0] = '\0';
	for (size_t i = 0; i < dev->n_disks; i++) {
		bool virtio = strcmp(bus_name(&dev->disks[i]), "virtio") == 0;
		int at = n[virtio]++;

		if (str_eq(dev->disks[i].name, volume)) {
			(void)snprintf(out, 16, "%s%c", virtio ? "vd" : "sd", 'a' + at % 26);
			return;
		}
	}
}

static enum rc cond(VirtualMachineInstance *vmi, const char *type, const char *status,
		    const char *reason, const char *message, usec_t now)
{
	return API_COND_SET(&vmi->status, VirtualMachineInstanceCondition, now, .type = type,
			    .status = status, .reason = reason, .message = message);
}

/* One entry per phase, the first time only. */
static enum rc stamp_phase(VirtualMachineInstanceStatus *s, const char *phase, usec_t now)
{
	char text[32];

	for (size_t i = 0; i < s->n_phaseTransitionTimestamps; i++)
		if (str_eq(s->phaseTransitionTimestamps[i].phase, phase))
			return RC_OK;
	VirtualMachineInstancePhaseTransitionTimestamp *t = api_append(
		&s->phaseTransitionTimestamps, &s->n_phaseTransitionTimestamps, sizeof(*t));

	if (!t)
		return RC_NOMEM;
	time_rfc3339(now, text);
	TRY(api_set_str(&t->phase, phase));
	return api_set_str(&t->phaseTransitionTimestamp, text);
}

static enum rc set_phase(VirtualMachineInstance *vmi, const char *phase, usec_t now)
{
	VirtualMachineInstanceStatus *s = &vmi->status;

	if (!phase || str_eq(s->phase, phase))
		return RC_OK;
	TRY(api_set_str(&s->phase, phase));
	if (strcmp(phase, "Running") == 0)
		TRY(stamp_phase(s, "Scheduled", now));
	return stamp_phase(s, phase, now);
}

/* The pod reports ready in the same moment; the controller keeps the two alike from then on. */
static enum rc set_first_ready(VirtualMachineInstance *vmi, const struct vm_facts *f, usec_t now)
{
	if (f->state != VM_RUNNING)
		return RC_OK;
	return API_COND_SET(&vmi->status, VirtualMachineInstanceCondition, now, .type = "Ready",
			    .status = "True");
}

static enum rc set_paused(VirtualMachineInstance *vmi, const struct vm_facts *f, usec_t now)
{
	if (f->state != VM_PAUSED && f->state != VM_PRELAUNCH) {
		/* While it moves it may stand for a moment: that is no pause of the user's. */
		if (f->state == VM_RUNNING)
			(void)API_COND_DEL(&vmi->status, VirtualMachineInstanceCondition, "Paused");
		return RC_OK;
	}
	if (str_eq(f->reason, "PausedIOError"))
		return cond(vmi, "Paused", "True", "PausedIOError",
			    "VMI was paused, low-level IO error detected", now);
	return cond(vmi, "Paused", "True", "PausedByUser", "VMI was paused by user", now);
}

static enum rc set_accel(VirtualMachineInstance *vmi, const struct vm_facts *f, usec_t now)
{
	if (!f->accel)
		return RC_OK;
	if (str_eq(f->accel, "tcg"))
		return cond(vmi, "SoftwareEmulation", "True", "NoKVM",
			    str_is_empty(f->accel_reason)
				    ? "the node cannot run guests with KVM, so this one is emulated"
				    : f->accel_reason,
			    now);
	(void)API_COND_DEL(&vmi->status, VirtualMachineInstanceCondition, "SoftwareEmulation");
	return RC_OK;
}

static enum rc set_sync_error(VirtualMachineInstance *vmi, const struct vm_facts *f, usec_t now)
{
	if (f->sync_error)
		return cond(vmi, "Synchronized", "False", "Synchronizing with the Domain failed.",
			    f->sync_error, now);
	struct api_cond c;

	if (API_COND_GET(&vmi->status, VirtualMachineInstanceCondition, "Synchronized", &c) &&
	    str_eq(c.reason, "Synchronizing with the Domain failed."))
		(void)API_COND_DEL(&vmi->status, VirtualMachineInstanceCondition, "Synchronized");
	return RC_OK;
}

/* --- interfaces, volumes, machine --- */

static enum rc set_interface(VirtualMachineInstance *vmi, const struct vm_facts *f)
{
	VirtualMachineInstanceStatus *s = &vmi->status;
	const Interface *iface;
	const Network *net;

	vmspec_pod_interface(vmi, &iface, &net);
	if (!iface || !f->pod_ip)
		return RC_OK;
	if (!s->n_interfaces &&
	    !api_append(&s->interfaces, &s->n_interfaces, sizeof(*s->interfaces)))
		return RC_NOMEM;
	VirtualMachineInstanceNetworkInterface *n = &s->interfaces[0];

	TRY(api_set_str(&n->name, net->name));
	TRY(api_set_str(&n->ipAddress, f->pod_ip));
	if (n->n_ipAddresses != 1 || !str_eq(n->ipAddresses[0], f->pod_ip)) {
		for (size_t i = 0; i < n->n_ipAddresses; i++)
			mem_free(n->ipAddresses[i]);
		n->n_ipAddresses = 0;
		TRY(api_append_str(&n->ipAddresses, &n->n_ipAddresses, f->pod_ip));
	}
	TRY(api_set_str(&n->mac, vmspec_mac(iface, f->mac)));
	TRY(api_set_str(&n->podInterfaceName, "eth0"));
	if (str_is_empty(n->infoSource)) /* what the guest's agent adds is vmagent.c's */
		TRY(api_set_str(&n->infoSource, "domain"));
	TRY(api_set_str(&n->linkState, "up"));
	API_SET(n, queueCount, 1);
	return RC_OK;
}

static VolumeStatus *volume_status(VirtualMachineInstanceStatus *s, const char *name)
{
	for (size_t i = 0; i < s->n_volumeStatus; i++)
		if (str_eq(s->volumeStatus[i].name, name))
			return &s->volumeStatus[i];
	VolumeStatus *v = api_append(&s->volumeStatus, &s->n_volumeStatus, sizeof(*v));

	if (!v || api_set_str(&v->name, name))
		return NULL;
	/* Sorted by name, as KubeVirt has it. */
	for (size_t i = s->n_volumeStatus - 1;
	     i > 0 && strcmp(s->volumeStatus[i - 1].name, s->volumeStatus[i].name) > 0; i--) {
		VolumeStatus t = s->volumeStatus[i];

		s->volumeStatus[i] = s->volumeStatus[i - 1];
		s->volumeStatus[i - 1] = t;
		v = &s->volumeStatus[i - 1];
	}
	return v;
}

static enum rc set_claim_info(VolumeStatus *v, const PersistentVolumeClaim *c)
{
	if (v->persistentVolumeClaimInfo)
		return RC_OK; /* the controller has written it */
	PersistentVolumeClaimInfo *i =
		api_ensure(&api_type_PersistentVolumeClaimInfo, &v->persistentVolumeClaimInfo);
	bool is_block = str_eq(c->spec.volumeMode, "Block");

	if (!i)
		return RC_NOMEM;
	TRY(api_set_str(&i->claimName, c->metadata.name));
	TRY(api_set_str(&i->volumeMode, is_block ? "Block" : "Filesystem"));
	TRY(api_set_str(&i->filesystemOverhead, is_block ? "0" : "0.055"));
	for (size_t k = 0; k < c->spec.n_accessModes; k++)
		TRY(api_append_str(&i->accessModes, &i->n_accessModes, c->spec.accessModes[k]));
	TRY(api_map_merge(&i->capacity, &c->status.capacity));
	return c->spec.resources ? api_map_merge(&i->requests, &c->spec.resources->requests)
				 : RC_OK;
}

static enum rc set_volumes(VirtualMachineInstance *vmi, const struct vm_facts *f)
{
	for (size_t i = 0; i < f->n_volumes; i++) {
		const struct vm_volume_fact *in = &f->volumes[i];
		VolumeStatus *v = volume_status(&vmi->status, in->name);
		char target[16];

		if (!v)
			return RC_NOMEM;
		vmsync_disk_target(vmi, in->name, target);
		TRY(api_set_str(&v->target, target));
		if (in->bytes &&
		    (!in->claim || in->is_local)) /* where a move has to make it anew */
			API_SET(v, size, in->bytes);
		if (in->claim)
			TRY(set_claim_info(v, in->claim));
	}
	return RC_OK;
}

static enum rc set_machine(VirtualMachineInstance *vmi, const struct vm_facts *f)
{
	VirtualMachineInstanceStatus *s = &vmi->status;
	const char *type = f->machine ? f->machine : f->spec ? f->spec->machine : NULL;

	if (type) {
		Machine *m = api_ensure(&api_type_Machine, &s->machine);

		TRY(m ? api_set_str(&m->type, type) : RC_NOMEM);
	}
	API_SET(s, runtimeUser, f->runtime_uid);
	TRY(api_set_str(&s->selinuxContext, "none"));
	if (!f->spec)
		return RC_OK;
	CPUTopology *t = api_ensure(&api_type_CPUTopology, &s->currentCPUTopology);
	MemoryStatus *mem = t ? api_ensure(&api_type_MemoryStatus, &s->memory) : NULL;
	CLEANUP(mem_freep) char *text = api_quantity_text_bytes(f->spec->memory_bytes);

	if (!t || !mem || !text)
		return RC_NOMEM;
	API_SET(t, cores, f->spec->cores);
	API_SET(t, sockets, f->spec->sockets);
	API_SET(t, threads, f->spec->threads);
	TRY(api_set_str(&mem->guestAtBoot, text));
	TRY(api_set_str(&mem->guestCurrent, text));
	return api_set_str(&mem->guestRequested, text);
}

static enum rc set_images(FerryVMIStatus *fs, const struct vm_facts *f)
{
	for (size_t i = 0; i < f->n_images; i++) {
		FerryImage *im = NULL;

		for (size_t k = 0; k < fs->n_images; k++)
			if (str_eq(fs->images[k].volumeName, f->images[i].volumeName))
				im = &fs->images[k];
		if (!im)
			im = api_append(&fs->images, &fs->n_images, sizeof(*im));
		if (!im)
			return RC_NOMEM;
		TRY(api_set_str(&im->volumeName, f->images[i].volumeName));
		TRY(api_set_str(&im->image, f->images[i].image));
		TRY(api_set_str(&im->digest, f->images[i].digest));
	}
	return RC_OK;
}

/* Without what says nothing of the machine; the order is the launcher's. */
static enum rc fill_cpu(FerryGuestCPU *c, const struct json *cpu)
{
	const struct json *list = js_get(cpu, "features");

	TRY(api_set_str(&c->model, js_get_str(cpu, "model")));
	for (size_t i = 0; i < js_len(list); i++)
		if (cpu_feature_counts(js_str(js_item(list, i))))
			TRY(api_append_str(&c->features, &c->n_features, js_str(js_item(list, i))));
	return RC_OK;
}

static enum rc set_cpu(FerryVMIStatus *fs, const struct vm_facts *f)
{
	if (!f->cpu)
		return RC_OK;
	fs->cpu = api_free(&api_type_FerryGuestCPU, fs->cpu);
	FerryGuestCPU *c = api_ensure(&api_type_FerryGuestCPU, &fs->cpu);

	return c ? fill_cpu(c, f->cpu) : RC_NOMEM;
}

static enum rc set_ferry(VirtualMachineInstance *vmi, const struct vm_facts *f)
{
	FerryVMIStatus *fs = api_ensure(&api_type_FerryVMIStatus, &vmi->status.ferry);

	if (!fs)
		return RC_NOMEM;
	if (f->accel)
		TRY(api_set_str(&fs->accelerator, f->accel));
	if (f->qemu_version)
		TRY(api_set_str(&fs->qemuVersion, f->qemu_version));
	if (f->spec && !fs->cpuModel) {
		if (f->spec->guest_agent)
			API_SET(fs, guestAgentChannel, true);
		fs->cpuModel = vmspec_cpu_text(f->spec);
		if (!fs->cpuModel)
			return RC_NOMEM;
		if (f->spec->video)
			TRY(api_set_str(&fs->video, launch_video_name(f->spec->video)));
	}
	TRY(set_cpu(fs, f));
	if (f->epoch && f->epoch > API_GET(fs, epoch, 0))
		API_SET(fs, epoch, f->epoch);
	return set_images(fs, f);
}

/* Its files are open here.  The guest is let go only when this stands in the VMI (host_disks_are_told()), so whatever
 * it writes to one of them, it is known which node has it. */
static enum rc set_host_disks(VirtualMachineInstance *vmi, const struct vm_facts *f)
{
	if (!is_alive(f->state) || !str_eq(vmi->status.nodeName, f->node) ||
	    host_disks_are_told(vmi, f->node))
		return RC_OK;
	FerryVMIStatus *fs = api_ensure(&api_type_FerryVMIStatus, &vmi->status.ferry);

	if (!fs)
		return RC_NOMEM;
	for (size_t i = 0; i < vmi->spec.n_volumes; i++)
		if (host_disk_is_own(&vmi->spec, &vmi->spec.volumes[i]))
			TRY(host_disk_note(&fs->hostDisks, &fs->n_hostDisks,
					   vmi->spec.volumes[i].hostDisk->path, f->node));
	return RC_OK;
}

static enum rc apply(VirtualMachineInstance *vmi, const struct vm_facts *f, usec_t now)
{
	if (f->moves)
		TRY(f->moves(vmi, now, f->moves_arg));
	if (f->is_source_done || f->is_target)
		return RC_OK;
	const char *phase = vmsync_phase(vmi, f);

	if (str_eq(phase, "Running") && !str_eq(vmi->status.phase, "Running"))
		TRY(set_first_ready(vmi, f, now));
	TRY(set_phase(vmi, phase, now));
	TRY(set_sync_error(vmi, f, now));
	TRY(set_host_disks(vmi, f));
	if (!is_alive(f->state) || !str_eq(vmi->status.phase, "Running"))
		return RC_OK;
	TRY(set_paused(vmi, f, now));
	TRY(set_accel(vmi, f, now));
	TRY(set_interface(vmi, f));
	TRY(set_volumes(vmi, f));
	TRY(set_machine(vmi, f));
	TRY(set_ferry(vmi, f));
	TRY(vmagent_fill(vmi, f->agent, now));
	return f->migratable ? f->migratable(vmi, f->migratable_arg) : RC_OK;
}

/* --- events --- */

static enum rc tell(struct plan *p, const VirtualMachineInstance *vmi, const char *type,
		    const char *reason, const char *text)
{
	return plan_event(p, &api_kind_VirtualMachineInstance, vmi, type, reason, "%s", text);
}

static enum rc tell_start(struct plan *p, const VirtualMachineInstance *vmi,
			  const struct vm_facts *f)
{
	TRY(tell(p, vmi, "Normal", "Created", "VirtualMachineInstance defined."));
	TRY(tell(p, vmi, "Normal", "Started", "VirtualMachineInstance started."));
	if (str_eq(f->accel, "tcg"))
		TRY(plan_event(p, &api_kind_VirtualMachineInstance, vmi, "Warning",
			       "SoftwareEmulation", "The guest is emulated (TCG): %s",
			       str_is_empty(f->accel_reason) ? "KVM is not usable on this node"
							     : f->accel_reason));
	for (size_t i = 0; i < f->n_volumes; i++)
		if (f->volumes[i].small_expected)
			TRY(plan_event(p, &api_kind_VirtualMachineInstance, vmi, "Normal",
				       "ToleratedSmallPV",
				       "PV size too small: expected %llu B, found %llu B. Using it "
				       "anyway, it "
				       "is within 10 %% toleration",
				       (unsigned long long)f->volumes[i].small_expected,
				       (unsigned long long)f->volumes[i].small_found));
	return RC_OK;
}

static enum rc tell_end(struct plan *p, const VirtualMachineInstance *vmi, const struct vm_facts *f,
			const char *phase)
{
	bool ok = strcmp(phase, "Succeeded") == 0;

	return tell(p, vmi, ok ? "Normal" : "Warning", "Stopped",
		    ok		 ? SHUT_DOWN
		    : f->is_half ? HALF
				 : CRASHED);
}

enum rc vmsync_plan(const VirtualMachineInstance *vmi, const struct vm_facts *f, usec_t now,
		    struct plan *plan, struct err *err)
{
	const char *phase = vmsync_phase(vmi, f);
	bool changes = phase && !str_eq(vmi->status.phase, phase);
	struct api_cond c = {0};
	bool was_told =
		API_COND_GET(&vmi->status, VirtualMachineInstanceCondition, "Synchronized", &c) &&
		str_eq(c.message, f->sync_error);

	if (vmsync_is_final(vmi))
		return RC_OK;
	VirtualMachineInstance *wanted = VirtualMachineInstance_clone(vmi);

	if (!wanted)
		return err_set(err, RC_NOMEM, "out of memory");
	enum rc rc = apply(wanted, f, now);

	if (rc) {
		VirtualMachineInstance_free(wanted);
		return err_set(err, rc, "cannot compute the status of '%s'", vmi->metadata.name);
	}
	rc = plan_update(plan, &api_kind_VirtualMachineInstance, vmi, wanted, NULL);
	if (!rc && f->sync_error && !was_told && !f->is_target && !f->is_source_done)
		rc = tell(plan, vmi, "Warning", "SyncFailed", f->sync_error);
	if (!rc && changes && strcmp(phase, "Running") == 0)
		rc = tell_start(plan, vmi, f);
	else if (!rc && changes)
		rc = tell_end(plan, vmi, f, phase);
	return rc ? err_set(err, rc, "cannot plan the status of '%s'", vmi->metadata.name) : RC_OK;
}
