#include "virt/controller/vm/vm.h"

#include "api/api.h"
#include "api/meta.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/try.h"
#include "json/json.h"
#include "virt/controller/kit.h"
#include "virt/controller/vm/vm_status.h"
#include "virt/controller/vmi/alloc.h"
#include "virt/controller/vmi/launcher_pod.h"
#include "virt/migration/host_disks.h"
#include "virt/names.h"

#define VM	    (&api_kind_VirtualMachine)
#define VMI	    (&api_kind_VirtualMachineInstance)
#define STEP_WINDOW (2 * USEC_PER_SEC) /* a start or a move that is over by then is one write */

struct vm_ctx {
	const struct view *v;
	const VirtualMachine *vm;
	VirtualMachine *next;		       /* the wished status */
	const VirtualMachineInstance *vmi;     /* the VM's own; NULL: none */
	const VirtualMachineInstance *foreign; /* of the same name, not ours */
	enum vm_strategy strategy;
	enum vm_action action;
	usec_t retry_in; /* a start must wait that long */
	bool starts_paused;
	struct plan *plan;
	struct err *err;
};

/* ---- queued requests ---- */

static bool is_satisfied(const VirtualMachineStateChangeRequest *r,
			 const VirtualMachineInstance *vmi)
{
	bool going = vmi && vmi->metadata.deletionTimestamp;

	if (str_eq(r->action, "Stop"))
		return !vmi || going || (r->uid && !str_eq(r->uid, vmi->metadata.uid));
	return vmi && !going && !kit_vmi_is_final(vmi); /* Start */
}

/* Drops satisfied requests from the front; what follows an unsatisfied one has not had its turn. */
static void trim_requests(struct vm_ctx *c)
{
	VirtualMachineStatus *st = &c->next->status;

	while (st->n_stateChangeRequests && is_satisfied(&st->stateChangeRequests[0], c->vmi))
		api_remove(&api_type_VirtualMachineStateChangeRequest, &st->stateChangeRequests,
			   &st->n_stateChangeRequests, 0);
}

/* To a halted VM only a paused start is queued (any other start writes the strategy).  What else asks for
 * a start was queued under another strategy, perhaps by ourselves: the user's Halted outranks it. */
static void drop_leftover_starts(struct vm_ctx *c)
{
	VirtualMachineStatus *st = &c->next->status;

	if (vm_strategy_of(c->vm) != VM_HALTED)
		return;
	for (size_t i = st->n_stateChangeRequests; i-- > 0;) {
		const VirtualMachineStateChangeRequest *r = &st->stateChangeRequests[i];

		if (str_eq(r->action, "Start") && !str_eq(api_map_get(&r->data, "paused"), "true"))
			api_remove(&api_type_VirtualMachineStateChangeRequest,
				   &st->stateChangeRequests, &st->n_stateChangeRequests, i);
	}
}

static const VirtualMachineStateChangeRequest *first_request(const struct vm_ctx *c)
{
	const VirtualMachineStatus *st = &c->next->status;

	return st->n_stateChangeRequests ? &st->stateChangeRequests[0] : NULL;
}

/* A Start is satisfied by the creation that is planned before the status. */
static void drop_start(struct vm_ctx *c)
{
	VirtualMachineStatus *st = &c->next->status;

	if (st->n_stateChangeRequests && str_eq(st->stateChangeRequests[0].action, "Start"))
		api_remove(&api_type_VirtualMachineStateChangeRequest, &st->stateChangeRequests,
			   &st->n_stateChangeRequests, 0);
}

static enum rc queue_own_start(struct vm_ctx *c)
{
	VirtualMachineStatus *st = &c->next->status;

	for (size_t i = 0; i < st->n_stateChangeRequests; i++)
		if (str_eq(st->stateChangeRequests[i].action, "Start"))
			return RC_OK;
	VirtualMachineStateChangeRequest *r =
		api_append(&st->stateChangeRequests, &st->n_stateChangeRequests, sizeof(*r));

	return r ? api_set_str(&r->action, "Start") : RC_NOMEM;
}

/* ---- crash loop ---- */

static bool counts_failures(enum vm_strategy s)
{
	return s == VM_ALWAYS || s == VM_RERUN_ON_FAILURE || s == VM_ONCE;
}

static void forget_failures(struct vm_ctx *c)
{
	VirtualMachineStartFailure_free(STEAL(c->next->status.startFailure));
}

/* Counts each VMI that ended without ever running, once. */
static enum rc count_failure(struct vm_ctx *c)
{
	const VirtualMachineInstance *vmi = c->vmi;

	if (!counts_failures(c->strategy) || (vmi && kit_vmi_had_phase(vmi, "Running"))) {
		forget_failures(c);
		return RC_OK;
	}
	if (!vmi || !str_eq(vmi->status.phase, "Failed") || vmi->metadata.deletionTimestamp)
		return RC_OK;
	VirtualMachineStartFailure *f =
		api_ensure(&api_type_VirtualMachineStartFailure, &c->next->status.startFailure);

	if (!f)
		return RC_NOMEM;
	if (str_eq(f->lastFailedVMIUID, vmi->metadata.uid))
		return RC_OK;
	int64_t n = API_GET(f, consecutiveFailCount, 0) + 1;

	API_SET(f, consecutiveFailCount, n);
	TRY(api_set_str(&f->lastFailedVMIUID, vmi->metadata.uid));
	return kit_stamp(&f->retryAfterTimestamp, c->v->now + vm_backoff(c->vm->metadata.uid, n));
}

static usec_t backoff_left(const struct vm_ctx *c)
{
	const VirtualMachineStartFailure *f = c->next->status.startFailure;
	usec_t at;

	if (!f || !f->retryAfterTimestamp || time_parse(f->retryAfterTimestamp, &at, NULL))
		return 0;
	return at > c->v->now ? at - c->v->now : 0;
}

/* ---- create ---- */

static enum rc revision_name(const VirtualMachine *vm, int64_t generation, char **out)
{
	*out = mem_printf("revision-start-vm-%s-%lld", vm->metadata.uid, (long long)generation);
	return *out ? RC_OK : RC_NOMEM;
}

static enum rc plan_revision(struct vm_ctx *c, const char *name)
{
	if (view_get(c->v, &api_kind_ControllerRevision, c->vm->metadata.namespace, name))
		return RC_OK;
	CLEANUP(ControllerRevision_freep)
	ControllerRevision *r = ControllerRevision_new();

	if (!r)
		return RC_NOMEM;
	TRY(api_set_str(&r->metadata.namespace, c->vm->metadata.namespace));
	TRY(api_set_str(&r->metadata.name, name));
	TRY(api_add_owner(&r->metadata, VM, &c->vm->metadata, true, true));
	r->data = js_new_object();
	if (!r->data)
		return RC_NOMEM;
	TRY(js_set(r->data, "spec", api_encode(&api_type_VirtualMachineSpec, &c->vm->spec)));
	API_SET(r, revision, API_GET(&c->vm->metadata, generation, 1));
	return plan_create(c->plan, &api_kind_ControllerRevision, STEAL(r));
}

/* Only the revision of the running VMI is of use. */
static enum rc drop_old_revisions(struct vm_ctx *c, const char *keep)
{
	struct kiter it;

	view_children(c->v, &api_kind_ControllerRevision, c->vm->metadata.uid, &it);
	for (const ControllerRevision *r; (r = view_next(&it));)
		if (str_has_prefix(r->metadata.name, "revision-start-vm-") &&
		    !str_eq(r->metadata.name, keep))
			TRY(plan_delete(c->plan, &api_kind_ControllerRevision,
					r->metadata.namespace, r->metadata.name, r->metadata.uid,
					-1, NULL));
	return RC_OK;
}

/* What a VM's guest keeps over restarts is resolved here, into the VMI: the VM's spec stays the user's. */
static enum rc set_firmware(VirtualMachineInstance *vmi, const VirtualMachine *vm)
{
	Firmware *fw = api_ensure(&api_type_Firmware, &vmi->spec.domain.firmware);

	if (!fw)
		return RC_NOMEM;
	if (str_is_empty(fw->uuid))
		TRY(api_set_str(&fw->uuid, vm->metadata.uid));
	if (str_is_empty(fw->serial))
		TRY(api_set_str(&fw->serial, vm->metadata.uid));
	return RC_OK;
}

static enum rc fill_vmi_meta(ObjectMeta *m, const VirtualMachine *vm, int64_t generation)
{
	const ObjectMeta *t = &vm->spec.template->metadata;
	CLEANUP(mem_freep)
	char *id = NULL;

	TRY(api_set_str(&m->namespace, vm->metadata.namespace));
	TRY(api_set_str(&m->name, vm->metadata.name));
	TRY(api_map_merge(&m->labels, &t->labels));
	TRY(api_map_merge(&m->annotations, &t->annotations));
	TRY(launcher_label_of(vm->metadata.name, &id));
	TRY(api_map_set(&m->labels, LABEL_VMI_ID, id));
	TRY(api_map_setf(&m->annotations, ANN_VM_GENERATION, "%lld", (long long)generation));
	TRY(api_add_finalizer(m, FIN_VM));
	TRY(api_add_finalizer(m, FIN_VMI));
	return api_add_owner(m, VM, &vm->metadata, true, true);
}

/* The image of this volume in the template; NULL: it has none. */
static const char *image_of(const VirtualMachineInstanceSpec *spec, const char *volume)
{
	const Firmware *fw = spec->domain.firmware;
	const KernelBoot *kb = fw ? fw->kernelBoot : NULL;

	for (size_t i = 0; i < spec->n_volumes; i++)
		if (spec->volumes[i].containerDisk && str_eq(spec->volumes[i].name, volume))
			return spec->volumes[i].containerDisk->image;
	return kb && kb->container && str_eq(volume, VOLUME_KERNEL_BOOT) ? kb->container->image
									 : NULL;
}

/* A VM that starts again gets the images it had, wherever their tags point now; a changed image in the
 * spec is what asks for another. */
static enum rc pin_images(VirtualMachineInstance *vmi, const VirtualMachine *vm)
{
	const FerryVMStatus *kept = vm->status.ferry;
	FerryVMIStatus *f = NULL;

	for (size_t i = 0; kept && i < kept->n_images; i++) {
		const FerryImage *im = &kept->images[i];

		if (!str_eq(image_of(&vmi->spec, im->volumeName), im->image))
			continue;
		f = api_ensure(&api_type_FerryVMIStatus, &vmi->status.ferry);
		FerryImage *to = f ? api_append(&f->images, &f->n_images, sizeof(*to)) : NULL;

		if (!to)
			return RC_NOMEM;
		TRY(api_copy(&api_type_FerryImage, to, im));
	}
	return RC_OK;
}

static bool wants_paused(const struct vm_ctx *c)
{
	const VirtualMachineStateChangeRequest *r = first_request(c);

	return r && str_eq(r->action, "Start") && str_eq(api_map_get(&r->data, "paused"), "true");
}

static enum rc plan_vmi(struct vm_ctx *c, int64_t generation)
{
	CLEANUP(VirtualMachineInstance_freep)
	VirtualMachineInstance *vmi = VirtualMachineInstance_new();

	if (!vmi)
		return RC_NOMEM;
	TRY(fill_vmi_meta(&vmi->metadata, c->vm, generation));
	api_fini(&api_type_VirtualMachineInstanceSpec, &vmi->spec);
	TRY(api_copy(&api_type_VirtualMachineInstanceSpec, &vmi->spec,
		     &c->vm->spec.template->spec));
	TRY(set_firmware(vmi, c->vm));
	TRY(pin_images(vmi, c->vm));
	if (c->starts_paused)
		TRY(api_set_str(&vmi->spec.startStrategy, "Paused"));
	TRY(plan_create(c->plan, VMI, STEAL(vmi)));
	return plan_event(
		c->plan, VM, c->vm, "Normal", "SuccessfulCreate",
		"Started the virtual machine by creating the new virtual machine instance %s",
		c->vm->metadata.name);
}

static enum rc start(struct vm_ctx *c)
{
	int64_t generation = API_GET(&c->vm->metadata, generation, 1);
	CLEANUP(mem_freep)
	char *name = NULL;

	TRY(revision_name(c->vm, generation, &name));
	TRY(plan_revision(c, name));
	TRY(drop_old_revisions(c, name));
	return plan_vmi(c, generation);
}

/* ---- stop ---- */

/* Our finalizer on a VMI keeps it until its end was counted. */
static enum rc let_go(struct vm_ctx *c)
{
	const VirtualMachineInstance *vmi = c->vmi;

	if (!vmi || !vmi->metadata.deletionTimestamp || !kit_vmi_is_final(vmi) ||
	    !api_has_finalizer(&vmi->metadata, FIN_VM))
		return RC_OK;
	CLEANUP(VirtualMachineInstance_freep)
	VirtualMachineInstance *next = VirtualMachineInstance_clone(vmi);

	if (!next)
		return RC_NOMEM;
	api_del_finalizer(&next->metadata, FIN_VM);
	return plan_update(c->plan, VMI, vmi, STEAL(next), NULL);
}

static enum rc stop(struct vm_ctx *c)
{
	const ObjectMeta *m = &c->vmi->metadata;

	if (m->deletionTimestamp)
		return RC_OK;
	TRY(plan_delete(c->plan, VMI, m->namespace, m->name, m->uid, -1, "Background"));
	return plan_event(c->plan, VM, c->vm, "Normal", "SuccessfulDelete",
			  "Stopped the virtual machine by deleting the virtual machine instance %s",
			  m->uid);
}

/* ---- the VM's own metadata and spec ---- */

static enum rc write_spec(struct vm_ctx *c)
{
	CLEANUP(VirtualMachine_freep)
	VirtualMachine *next = VirtualMachine_clone(c->vm);

	if (!next)
		return RC_NOMEM;
	TRY(api_add_finalizer(&next->metadata, FIN_VM));
	if (c->action == VM_FLIP) {
		if (!str_is_empty(next->spec.runStrategy))
			TRY(api_set_str(&next->spec.runStrategy, "Always"));
		else
			API_SET(&next->spec, running, true);
	}
	return plan_update(c->plan, VM, c->vm, STEAL(next), NULL);
}

/* Selector, affinity and tolerations of the template count from the next move on. */
static enum rc push_placement(struct vm_ctx *c)
{
	const VirtualMachineInstance *vmi = c->vmi;

	if (!vmi || vmi->metadata.deletionTimestamp || kit_vmi_is_final(vmi) ||
	    !c->vm->spec.template)
		return RC_OK;
	CLEANUP(VirtualMachineInstance_freep)
	VirtualMachineInstance *next = VirtualMachineInstance_clone(vmi);
	CLEANUP(VirtualMachineInstanceSpec_freep)
	VirtualMachineInstanceSpec *t =
		VirtualMachineInstanceSpec_clone(&c->vm->spec.template->spec);

	if (!next || !t)
		return RC_NOMEM;
#define SWAP(field_)                                   \
	do {                                           \
		__auto_type swap_ = next->spec.field_; \
		next->spec.field_ = t->field_;         \
		t->field_ = swap_;                     \
	} while (0)
	SWAP(nodeSelector);
	SWAP(affinity);
	SWAP(tolerations);
	SWAP(n_tolerations);
#undef SWAP
	return plan_update(c->plan, VMI, vmi, STEAL(next), NULL);
}

/* ---- status ---- */

static bool has_unbound_claim(const struct vm_ctx *c)
{
	const VirtualMachineInstanceTemplateSpec *t = c->vm->spec.template;

	for (size_t i = 0; t && i < t->spec.n_volumes; i++) {
		const char *claim = kit_volume_claim(&t->spec.volumes[i]);
		const PersistentVolumeClaim *pvc =
			claim ? view_get(c->v, &api_kind_PersistentVolumeClaim,
					 c->vm->metadata.namespace, claim)
			      : NULL;

		if (pvc && !str_eq(pvc->status.phase, "Bound"))
			return true;
	}
	return false;
}

static int64_t vmi_generation(const struct vm_ctx *c)
{
	int64_t current = API_GET(&c->vm->metadata, generation, 1), n;
	const char *text = c->vmi ? api_annotation(&c->vmi->metadata, ANN_VM_GENERATION) : NULL;

	if (!text || str_to_i64(text, 0, INT64_MAX, &n, NULL))
		return current;
	return n;
}

static enum rc restart_required(struct vm_ctx *c, int64_t started, bool *out)
{
	CLEANUP(mem_freep)
	char *name = NULL;
	void *spec = NULL;

	*out = false;
	if (!c->vmi || kit_vmi_is_final(c->vmi) ||
	    started == API_GET(&c->vm->metadata, generation, 1))
		return RC_OK;
	TRY(revision_name(c->vm, started, &name));
	const ControllerRevision *r =
		view_get(c->v, &api_kind_ControllerRevision, c->vm->metadata.namespace, name);

	if (!r || !js_get(r->data, "spec"))
		return RC_OK;
	if (api_decode(&api_type_VirtualMachineSpec, js_get(r->data, "spec"), &spec, c->err))
		return RC_OK; /* kept by an older version: not comparable, so nothing is claimed */
	*out = vm_needs_restart(&c->vm->spec, spec);
	api_free(&api_type_VirtualMachineSpec, spec);
	return RC_OK;
}

static enum rc set_identity(struct vm_ctx *c)
{
	const char *address = alloc_held(c->v, c->vm->metadata.uid, "address");
	const char *mac = alloc_held(c->v, c->vm->metadata.uid, "mac");

	if (!address && !mac)
		return RC_OK;
	FerryVMStatus *f = api_ensure(&api_type_FerryVMStatus, &c->next->status.ferry);

	if (!f)
		return RC_NOMEM;
	TRY(api_set_str(&f->address, address));
	return api_set_str(&f->mac, mac);
}

/* What its guest's images were resolved to: kept for the next start (pin_images()). */
static enum rc keep_images(struct vm_ctx *c)
{
	const FerryVMIStatus *from = c->vmi ? c->vmi->status.ferry : NULL;

	if (!from || !from->n_images)
		return RC_OK;
	FerryVMStatus *f = api_ensure(&api_type_FerryVMStatus, &c->next->status.ferry);

	if (!f)
		return RC_NOMEM;
	while (f->n_images)
		api_remove(&api_type_FerryImage, &f->images, &f->n_images, f->n_images - 1);
	for (size_t i = 0; i < from->n_images; i++) {
		FerryImage *to = api_append(&f->images, &f->n_images, sizeof(*to));

		if (!to)
			return RC_NOMEM;
		TRY(api_copy(&api_type_FerryImage, to, &from->images[i]));
	}
	return RC_OK;
}

static bool names_own_file(const VirtualMachine *vm, const char *path)
{
	const VirtualMachineInstanceTemplateSpec *t = vm->spec.template;

	for (size_t i = 0; t && i < t->spec.n_volumes; i++)
		if (host_disk_is_own(&t->spec, &t->spec.volumes[i]) &&
		    str_eq(t->spec.volumes[i].hostDisk->path, path))
			return true;
	return false;
}

/* Which node has the files of its hostDisks: what its VMI says outlives the VMI here, because this is written before the
 * VMI's finalizer goes (sync()).  A file that the spec does not name any more is none of the VM's. */
static enum rc keep_host_disks(struct vm_ctx *c)
{
	const FerryVMIStatus *from = c->vmi ? c->vmi->status.ferry : NULL;
	FerryVMStatus *f = c->next->status.ferry;

	if (from && from->n_hostDisks && !f)
		f = api_ensure(&api_type_FerryVMStatus, &c->next->status.ferry);
	if (!f)
		return from && from->n_hostDisks ? RC_NOMEM : RC_OK;
	for (size_t i = 0; from && i < from->n_hostDisks; i++)
		TRY(host_disk_note(&f->hostDisks, &f->n_hostDisks, from->hostDisks[i].path,
				   from->hostDisks[i].nodeName));
	for (size_t i = f->n_hostDisks; i-- > 0;)
		if (!names_own_file(c->vm, f->hostDisks[i].path))
			api_remove(&api_type_FerryHostDisk, &f->hostDisks, &f->n_hostDisks, i);
	return RC_OK;
}

static enum rc set_failure(struct vm_ctx *c)
{
	VirtualMachineStatus *st = &c->next->status;

	if (c->foreign && !c->foreign->metadata.deletionTimestamp && c->action == VM_START)
		return API_COND_SET(st, VirtualMachineCondition, c->v->now, .type = "Failure",
				    .status = "True", .reason = "FailedCreate",
				    .message = "a virtual machine instance of this name exists and "
					       "belongs to somebody else");
	if (c->v->refused && c->action == VM_START)
		return API_COND_SET(st, VirtualMachineCondition, c->v->now, .type = "Failure",
				    .status = "True", .reason = "FailedCreate",
				    .message = c->v->refused->msg);
	API_COND_DEL(st, VirtualMachineCondition, "Failure");
	return RC_OK;
}

static enum rc compute_status(struct vm_ctx *c)
{
	VirtualMachineStatus *st = &c->next->status;
	bool starts = c->action == VM_START && !c->retry_in && !c->foreign;
	const VirtualMachineStartFailure *sf = st->startFailure;
	struct vm_facts f = {
		.vm = c->vm,
		.vmi = c->vmi,
		.strategy = c->strategy,
		.is_start_expected = starts || c->action == VM_FLIP,
		.is_stop_expected = c->action == VM_STOP || c->action == VM_STOP_AND_RERUN,
		.has_unbound_claim = has_unbound_claim(c),
		.fail_count = sf ? API_GET(sf, consecutiveFailCount, 0) : 0,
	};
	int64_t started = vmi_generation(c);
	bool restart;

	API_SET(st, created, c->vmi != NULL || starts);
	API_SET(st, ready,
		c->vmi && API_COND_IS(&c->vmi->status, VirtualMachineInstanceCondition, "Ready",
				      "True"));
	TRY(api_set_str(&st->printableStatus, vm_printable_status(&f)));
	TRY(vm_mirror_conditions(st, c->vmi, c->v->now));
	TRY(set_failure(c));
	TRY(restart_required(c, started, &restart));
	TRY(vm_set_restart_required(st, restart, c->v->now));
	API_SET(st, desiredGeneration, API_GET(&c->vm->metadata, generation, 1));
	API_SET(st, observedGeneration, started);
	if (c->action != VM_START || starts) /* a start that must wait has not been acted on */
		TRY(api_set_str(&st->runStrategy, vm_strategy_name(c->strategy)));
	TRY(keep_images(c));
	TRY(keep_host_disks(c));
	return set_identity(c);
}

/* ---- sharing writes ---- */

static const char *running_since(const VirtualMachineInstance *vmi)
{
	for (size_t i = 0; i < vmi->status.n_phaseTransitionTimestamps; i++)
		if (str_eq(vmi->status.phaseTransitionTimestamps[i].phase, "Running"))
			return vmi->status.phaseTransitionTimestamps[i].phaseTransitionTimestamp;
	return NULL;
}

static bool is_harmless(const char *printable)
{
	return str_eq(printable, "Starting") || str_eq(printable, "WaitingForVolumeBinding") ||
	       str_eq(printable, "Running") || str_eq(printable, "Migrating");
}

/* Whoever lets the VMI go next counts on it. */
static bool has_new_place(const FerryVMStatus *old, const FerryVMStatus *new)
{
	size_t n = new ? new->n_hostDisks : 0;

	if ((old ? old->n_hostDisks : 0) != n)
		return true;
	for (size_t i = 0; i < n; i++)
		if (!api_equal(&api_type_FerryHostDisk, &old->hostDisks[i], &new->hostDisks[i]))
			return true;
	return false;
}

/* How long the status may wait for facts that are about to join it: a VM that starts or moves as
 * expected is not worth a write for each step.  Anything else is written at once. */
static usec_t may_wait(const struct vm_ctx *c)
{
	const VirtualMachineStatus *old = &c->vm->status, *new = &c->next->status;
	const VirtualMachineInstance *vmi = c->vmi;

	if (old->n_stateChangeRequests != new->n_stateChangeRequests || c->action == VM_FLIP ||
	    !is_harmless(new->printableStatus) || has_new_place(old->ferry, new->ferry) ||
	    (old->startFailure != NULL) != (new->startFailure != NULL))
		return 0;
	if (!vmi)
		return STEP_WINDOW; /* its creation is in this plan */
	if (str_eq(new->printableStatus, "Migrating"))
		return kit_window_left(c->v->now, vmi->status.migrationState->startTimestamp,
				       STEP_WINDOW);
	if (str_eq(new->printableStatus, "Running"))
		return API_GET(new, ready, false)
			       ? 0
			       : kit_coalesce_left(c->v->now, running_since(vmi));
	return kit_window_left(c->v->now, vmi->metadata.creationTimestamp, STEP_WINDOW);
}

static enum rc write_status(struct vm_ctx *c)
{
	usec_t wait;

	if (api_equal(&api_type_VirtualMachineStatus, &c->vm->status, &c->next->status))
		return RC_OK;
	wait = may_wait(c);
	if (wait)
		return plan_requeue_after(c->plan, wait);
	return plan_update(c->plan, VM, c->vm, STEAL(c->next), "status");
}

/* ---- the two courses ---- */

/* --cascade=orphan: the VMI goes on by itself. */
static enum rc set_free(struct vm_ctx *c)
{
	CLEANUP(VirtualMachineInstance_freep)
	VirtualMachineInstance *next = VirtualMachineInstance_clone(c->vmi);

	if (!next)
		return RC_NOMEM;
	for (size_t i = next->metadata.n_ownerReferences; i-- > 0;)
		if (str_eq(next->metadata.ownerReferences[i].uid, c->vm->metadata.uid))
			api_remove(&api_type_OwnerReference, &next->metadata.ownerReferences,
				   &next->metadata.n_ownerReferences, i);
	api_del_finalizer(&next->metadata, FIN_VM);
	return plan_update(c->plan, VMI, c->vmi, STEAL(next), NULL);
}

static enum rc go(struct vm_ctx *c)
{
	if (c->vmi && api_has_finalizer(&c->vm->metadata, FIN_ORPHAN)) {
		TRY(set_free(c));
	} else if (c->vmi) {
		c->action = VM_STOP;
		TRY(compute_status(c));
		TRY(write_status(c));
		TRY(let_go(c));
		return stop(c);
	}
	CLEANUP(VirtualMachine_freep)
	VirtualMachine *next = VirtualMachine_clone(c->vm);

	if (!next)
		return RC_NOMEM;
	api_del_finalizer(&next->metadata, FIN_VM);
	return plan_update(c->plan, VM, c->vm, STEAL(next), NULL);
}

/* The server refused the VMI: the VM says why, and the creation is tried again behind it. */
static enum rc start_again(struct vm_ctx *c)
{
	struct api_cond old;
	bool known = API_COND_GET(&c->vm->status, VirtualMachineCondition, "Failure", &old) &&
		     str_eq(old.message, c->v->refused->msg);

	if (!known) {
		c->retry_in = 1; /* nothing was created: the status must not claim it */
		TRY(compute_status(c));
		TRY(plan_update(c->plan, VM, c->vm, STEAL(c->next), "status"));
		TRY(plan_event(c->plan, VM, c->vm, "Warning", "FailedCreate",
			       "Error creating virtual machine instance: %s", c->v->refused->msg));
	}
	return start(c);
}

static enum rc sync(struct vm_ctx *c)
{
	drop_leftover_starts(c);
	trim_requests(c);
	TRY(count_failure(c));
	c->action = vm_decide(c->vm, c->vmi, first_request(c));
	c->starts_paused = wants_paused(c);
	if (c->action == VM_STOP_AND_RERUN)
		TRY(queue_own_start(c));
	if (c->action == VM_START) {
		c->retry_in = backoff_left(c);
		if (c->retry_in)
			TRY(plan_requeue_after(c->plan, c->retry_in));
	}
	TRY(write_spec(c));
	bool starts = c->action == VM_START && !c->retry_in && !c->foreign;

	if (starts && c->v->refused)
		return start_again(c);
	if (starts) {
		TRY(start(c));
		drop_start(c);
	}
	TRY(compute_status(c));
	TRY(write_status(c));
	TRY(let_go(c));
	if (c->action == VM_STOP || c->action == VM_STOP_AND_RERUN)
		return stop(c);
	return push_placement(c);
}

enum rc vm_reconcile(const struct view *v, const char *ns, const char *name, struct plan *out,
		     struct err *err)
{
	const VirtualMachine *vm = view_get(v, VM, ns, name);

	if (!vm)
		return RC_OK;
	const VirtualMachineInstance *vmi = view_get(v, VMI, ns, name);
	bool ours = vmi && api_is_owned_by(&vmi->metadata, vm->metadata.uid);
	struct vm_ctx c = {
		.v = v,
		.vm = vm,
		.next = VirtualMachine_clone(vm), /* a plan may take it */
		.vmi = ours ? vmi : NULL,
		.foreign = ours ? NULL : vmi,
		.strategy = vm_strategy_of(vm),
		.plan = out,
		.err = err,
	};

	if (!c.next)
		return err_set(err, RC_NOMEM, "out of memory");
	enum rc rc = vm->metadata.deletionTimestamp ? go(&c) : sync(&c);

	VirtualMachine_free(c.next);
	return kit_fail(err, rc, "cannot reconcile the virtual machine");
}

/* ---- what wakes it ---- */

static void map_same_name(const struct view *v, const struct kobj *obj, ctl_emit_fn emit, void *ctx)
{
	if (view_get(v, VM, kobj_ns(obj), kobj_name(obj)))
		emit(ctx, kobj_ns(obj), kobj_name(obj));
}

static void map_claim(const struct view *v, const struct kobj *obj, ctl_emit_fn emit, void *ctx)
{
	struct kiter it;

	view_list(v, VM, kobj_ns(obj), &it);
	for (const VirtualMachine *vm; (vm = view_next(&it));) {
		const VirtualMachineInstanceTemplateSpec *t = vm->spec.template;

		for (size_t i = 0; t && i < t->spec.n_volumes; i++) {
			const char *claim = kit_volume_claim(&t->spec.volumes[i]);

			if (claim && str_eq(claim, kobj_name(obj)))
				emit(ctx, vm->metadata.namespace, vm->metadata.name);
		}
	}
}

static const struct ctl_map maps[] = {
	{&api_kind_VirtualMachineInstance, map_same_name},
	{&api_kind_PersistentVolumeClaim, map_claim},
	{NULL, NULL},
};

static const struct ctl_index indexes[] = {
	{&api_kind_Allocation, ALLOC_INDEX, alloc_index},
	{NULL, NULL, NULL},
};

static const struct api_kind *const reads[] = {&api_kind_ControllerRevision, NULL};

const struct ctl_def vm_ctl_def = {
	.name = "virtualmachine",
	.primary = &api_kind_VirtualMachine,
	.reconcile = vm_reconcile,
	.maps = maps,
	.indexes = indexes,
	.reads = reads,
};
