#include "virt/node/vm.h"

#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "api/meta.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "base/try.h"
#include "ctl/exec.h"
#include "ctl/plan.h"
#include "json/json.h"
#include "kube/kcache.h"
#include "kube/kobj.h"
#include "virt/migration/arrivals.h"
#include "virt/migration/compat.h"
#include "virt/migration/host_disks.h"
#include "virt/migration/migratable.h"
#include "virt/names.h"
#include "virt/node/migration_int.h"
#include "virt/node/vm_int.h"
#include "virt/node/vmnet.h"

#define WRITE_RETRY_MIN (100 * USEC_PER_MSEC)
#define WRITE_RETRY_MAX (10 * USEC_PER_SEC)
#define GRACE_DEFAULT	30

static const struct vm_pod_ops *pods(const struct vm *vm)
{
	return vm->host->cfg.pods;
}

void vm_log_failed(const struct vm *vm, const char *what, const char *why)
{
	log_error("VM '%s/%s': %s: %s", vm->ns, vm->name, what, why ? why : "");
}

const VirtualMachineInstance *vm_vmi(const struct vm *vm)
{
	const VirtualMachineInstance *vmi = kobj_typed(kcache_get(
		vm->host->cfg.cache, &api_kind_VirtualMachineInstance, vm->ns, vm->name));

	return vmi && (!vm->vmi_uid || str_eq(vmi->metadata.uid, vm->vmi_uid)) ? vmi : NULL;
}

/* --- life of the struct --- */

static struct vm *vm_new(struct vmhost *h, struct podrt_pod *p)
{
	const struct vm_pod_ops *o = h->cfg.pods;
	struct vm *vm = mem_alloc(sizeof(*vm));
	const char *name = o->annotation(p, ANN_DOMAIN);
	const char *uid = o->annotation(p, ANN_UID);

	if (!vm)
		return NULL;
	vm->host = h;
	vm->pod = p;
	vm->kernel_fd = vm->initrd_fd = vm->tap_fd = vm->netns_fd = -1;
	vm->stop_grace = -1;
	vm->ns = mem_strdup(o->ns(p));
	vm->name = mem_strdup(name ? name : o->name(p));
	vm->vmi_uid = mem_strdup(o->label(p, LABEL_CREATED_BY));
	vm->migration_uid = mem_strdup(o->label(p, LABEL_MIGRATION_UID));
	vm->is_target = vm->migration_uid != NULL;
	vm->address = mem_strdup(o->annotation(p, ANN_ADDRESS));
	vm->mac = mem_strdup(o->annotation(p, ANN_MAC));
	if (uid)
		ignore_rc(
			str_to_i64(uid, 1, UINT32_MAX - 1, &vm->uid, NULL)); /* 0: refused later */
	list_push_tail(&h->vms, &vm->link);
	o->set(p, vm);
	return vm;
}

struct vm *vm_of(struct vmhost *h, struct podrt_pod *p)
{
	struct vm *vm = h->cfg.pods->get(p);

	return vm ? vm : vm_new(h, p);
}

static void vm_destroy(struct vm *vm)
{
	vm_close_disks(vm);
	fd_close(vm->tap_fd);
	fd_close(vm->netns_fd);
	launch_spec_free(vm->spec);
	mem_free(vm->ns);
	mem_free(vm->name);
	mem_free(vm->vmi_uid);
	mem_free(vm->migration_uid);
	mem_free(vm->address);
	mem_free(vm->mac);
	mem_free(vm->reason);
	mem_free(vm->accel);
	mem_free(vm->accel_reason);
	mem_free(vm->machine);
	mem_free(vm->qemu_version);
	js_unref(vm->cpu);
	js_unref(vm->agent);
	js_unref(vm->devices);
	js_unref(vm->disks);
	mem_free(vm->vcpus);
	mem_free(vm->sync_error);
	mem_free(vm);
}

void vm_free(struct vm *vm)
{
	if (!vm)
		return;
	list_remove(&vm->link);
	vm->prep = vm_prep_free(vm->prep);
	vm->source = mig_source_free(vm->source);
	vm->target = mig_target_free(vm->target);
	vm->ipc = ipc_client_free(vm->ipc);
	vm->connect_timer = ev_src_free(vm->connect_timer);
	vm->launcher_child = ev_src_free(vm->launcher_child);
	vm->write = exec_run_free(vm->write);
	vm->write_timer = ev_src_free(vm->write_timer);
	vm->tidy_timer = ev_src_free(vm->tidy_timer);
	vm->pod = NULL;
	if (!vm->jobs)
		vm_destroy(vm);
}

bool vm_job_done(struct vm *vm)
{
	vm->jobs--;
	if (vm->pod)
		return true;
	if (!vm->jobs)
		vm_destroy(vm);
	return false;
}

/* --- the VMI's status --- */

/* The label that nodes with an address in it have; NULL: the settings name none.  Owned. */
static enum rc migration_network(const struct kcache *cache, char **out)
{
	struct kiter it;

	*out = NULL;
	kcache_list(cache, &api_kind_KubeVirt, NULL, &it);
	const KubeVirt *kv = kobj_typed(kiter_next(&it));
	const KubeVirtConfiguration *c = kv ? kv->spec.configuration : NULL;

	if (!c || !c->migrations || str_is_empty(c->migrations->network))
		return RC_OK;
	*out = mem_printf(LABEL_MIGRATION_NETWORK "%s", c->migrations->network);
	return *out ? RC_OK : RC_NOMEM;
}

/* Every label of every node is looked at, so it is done again only when one of them or the guest has changed. */
static enum rc look_for_targets(struct vm *vm, const VirtualMachineInstance *vmi,
				const struct migratable_in *in)
{
	const struct vmhost *h = vm->host;
	bool brings = mig_disks_come(vmi, in);
	CLEANUP(mem_freep) char *network = NULL;
	struct kiter it;

	if (vm->targets_of == h->n_node_changes + 1 && vm->targets_brings == brings)
		return RC_OK;
	TRY(migration_network(h->cfg.cache, &network));
	const Node *here =
		kobj_typed(kcache_get(h->cfg.cache, &api_kind_Node, NULL, h->cfg.node_name));
	const struct compat_move move = compat_move_of(network, here, brings);

	vm->targets = (struct compat_summary){0};
	kcache_list(h->cfg.cache, &api_kind_Node, NULL, &it);
	for (const struct kobj *o; (o = kiter_next(&it));)
		if (strcmp(kobj_name(o), h->cfg.node_name) != 0)
			compat_add(&vm->targets, &move, vmi, kobj_typed(o));
	vm->targets_of = h->n_node_changes + 1;
	vm->targets_brings = brings;
	return RC_OK;
}

static enum rc add_migratable(VirtualMachineInstance *vmi, void *arg)
{
	struct vm *vm = arg;
	struct migratable_in in = {.vmi = vmi,
				   .node_name = vm->host->cfg.node_name,
				   .has_host_model = true,
				   .nodes = &vm->targets};
	const char *names[VM_VOLUMES_MAX];

	mig_disks_judge(vm, vmi, names, &in);
	TRY(look_for_targets(vm, vmi, &in));
	return migratable_apply(&in, vmi, loop_realtime(vm->host->cfg.loop));
}

static enum rc add_moves(VirtualMachineInstance *vmi, usec_t now, void *arg)
{
	TRY(mig_source_fill(arg, vmi, now));
	return mig_target_fill(arg, vmi, now);
}

static void fill_facts(struct vm *vm, struct vm_facts *f, struct vm_volume_fact *vols)
{
	*f = (struct vm_facts){
		.state = vm->state,
		.reason = vm->reason,
		.node = vm->host->cfg.node_name,
		.is_source_done = vm->is_source_done || mig_source_is_released(vm),
		.is_target = vm->is_target,
		.is_half = vm->is_half,
		.accel = vm->accel,
		/* The launcher was told which one to use: why is known here. */
		.accel_reason = vm->host->cfg.accel_reason,
		.qemu_version = vm->qemu_version,
		.cpu = vm->cpu,
		.agent = vm->agent,
		.spec = vm->spec,
		.machine = vm->machine,
		.runtime_uid = vm->uid,
		.exit_code = vm->exit_code,
		.pod_ip = vm->address,
		.mac = vm->mac,
		.volumes = vols,
		.n_volumes = vm->n_volumes,
		.images = vm->images,
		.n_images = vm->n_images,
		.epoch = vm->epoch,
		.sync_error = vm->sync_error,
		.migratable = add_migratable,
		.migratable_arg = vm,
		.moves = vm->source || vm->target ? add_moves : NULL,
		.moves_arg = vm,
	};
	for (size_t i = 0; i < vm->n_volumes; i++) {
		const struct vm_volume *v = &vm->volumes[i];

		vols[i] = (struct vm_volume_fact){.name = v->v.name,
						  .bytes = (int64_t)v->v.virtual_bytes,
						  .is_container_disk =
							  v->v.kind == VOL_CONTAINER_DISK,
						  .is_local = v->v.is_local,
						  .claim = kobj_typed(v->claim),
						  .small_expected = v->v.small_expected,
						  .small_found = v->v.small_found};
	}
}

static void on_write_timer(void *arg)
{
	struct vm *vm = arg;

	vm->write_timer = ev_src_free(vm->write_timer);
	vm_sync(vm);
}

static void on_written(enum rc rc, const struct err *err, void *arg)
{
	struct vm *vm = arg;
	struct err why;

	vm->write = exec_run_free(vm->write);
	if (rc && rc != RC_NOT_FOUND) {
		if (rc != RC_CONFLICT)
			log_warn("VM '%s/%s': cannot write its status, retrying: %s", vm->ns,
				 vm->name, err ? err->msg : rc_name(rc));
		vm->write_backoff =
			MIN(MAX(vm->write_backoff * 2, WRITE_RETRY_MIN), WRITE_RETRY_MAX);
		if (ev_timer_after(vm->host->cfg.loop, &vm->write_timer,
				   rc == RC_CONFLICT ? USEC_PER_MSEC : vm->write_backoff,
				   on_write_timer, vm, &why))
			vm_log_failed(vm, "its status cannot be written", why.msg);
		return;
	}
	vm->write_backoff = 0;
	mig_target_written(vm);
	mig_source_written(vm);
	if (vm->wants_write)
		vm_sync(vm);
}

/* That a guest runs and what CPU it sees are told in one write: the launcher says soon, or that it cannot. */
static bool is_about_to_know(const struct vm *vm, const VirtualMachineInstance *vmi)
{
	return vm->cpu_follows && vm->state == VM_RUNNING && !str_eq(vmi->status.phase, "Running");
}

void vm_sync(struct vm *vm)
{
	CLEANUP(plan_fini) struct plan plan = {0};
	const VirtualMachineInstance *vmi = vm_vmi(vm);
	struct vm_volume_fact vols[VM_VOLUMES_MAX];
	struct vm_facts f;
	struct err err = {0};

	if (vm->write || vm->write_timer) {
		vm->wants_write = true;
		return;
	}
	vm->wants_write = false;
	if (!vmi || is_about_to_know(vm, vmi))
		return;
	plan_init(&plan);
	fill_facts(vm, &f, vols);
	enum rc rc = mig_target_plan(vm, &plan);

	if (!rc)
		rc = mig_source_plan(vm, &plan);
	if (!rc)
		rc = vmsync_plan(vmi, &f, loop_realtime(vm->host->cfg.loop), &plan, &err);
	if (!rc && plan_is_empty(&plan)) {
		mig_target_written(vm); /* it says so already */
		return;
	}
	if (!rc)
		rc = exec_plan(vm->host->cfg.exec, &vm->write, &plan, on_written, vm, &err);
	if (rc)
		on_written(rc, &err, vm);
}

/* --- what is due --- */

static void tell(struct vm *vm, const char *reason, const char *text)
{
	const VirtualMachineInstance *vmi = vm_vmi(vm);

	if (vmi)
		exec_event(vm->host->cfg.exec, &api_kind_VirtualMachineInstance, vmi, "Normal",
			   reason, "%s", text);
}

static bool is_up(const struct vm *vm)
{
	return vm->ipc && vm->has_answered && vm->state != VM_NONE && vm->state != VM_GONE;
}

static void kill_if_due(struct vm *vm)
{
	struct err err = {0};

	if (!vm->wants_kill || vm->kill_asked || !is_up(vm))
		return;
	vm->kill_asked = !vm_call(vm, "kill", NULL, 0, NULL, NULL, &err);
	if (!vm->kill_asked)
		vm_log_failed(vm, "its copy of the guest cannot be ended yet", err.msg);
}

void vm_end_copy(struct vm *vm)
{
	vm->wants_kill = true;
	kill_if_due(vm);
}

/* Whose guest is it?  A pod that came by a move is its owner once the VMI says so, and one that the VMI
 * has left has nothing to run. */
static void judge_place(struct vm *vm, const VirtualMachineInstance *vmi)
{
	const struct vm_facts f = {.node = vm->host->cfg.node_name,
				   .pod_uid = pods(vm)->uid(vm->pod),
				   .state = vm->state,
				   .is_target = vm->is_target,
				   .is_source_done = vm->is_source_done};
	enum vm_place place = vm->target || vm->source ? VM_PLACE_STAYS : vmsync_place(vmi, &f);

	if (place == VM_PLACE_STAYS)
		return;
	vm->is_target = false;
	if (place == VM_PLACE_OWNS)
		return;
	log_info("VM '%s/%s': it runs on node '%s' now, the copy here %s", vm->ns, vm->name,
		 vmi->status.nodeName, vm->state == VM_GONE ? "has ended" : "is ended");
	vm->is_source_done = true;
	if (vm->state != VM_GONE)
		vm_end_copy(vm);
}

/* Shut down within grace seconds; a later call may only shorten it. */
static void stop_within(struct vm *vm, int64_t grace)
{
	struct err err;

	if (vm->stop_grace >= 0 && grace >= vm->stop_grace)
		return;
	if (!is_up(vm))
		return; /* asked again when the launcher has answered */
	if (grace && mig_source_end_within(vm, grace))
		return;
	if (vm->stop_grace < 0 && !vm->is_target && !vm->is_source_done)
		tell(vm, grace ? "ShuttingDown" : "Deleted",
		     grace ? "Signaled Graceful Shutdown" : "VirtualMachineInstance stopping");
	vm->stop_grace = grace;
	/* A target that never ran has no guest to ask. */
	const char *method = vm->is_target || vm->is_source_done ? "kill" : "shutdown";
	struct json *params = vm->is_target || vm->is_source_done
				      ? NULL
				      : js_pack("{s:I}", "graceSeconds", grace);

	if (vm_call(vm, method, params, 0, NULL, NULL, &err)) {
		vm->stop_grace = -1;
		vm_log_failed(vm, "cannot be shut down", err.msg);
	}
}

/* The launcher died with the order: a guest that does not heed the power button would never end. */
static void stop_again(struct vm *vm)
{
	int64_t grace = vm->stop_grace;

	if (!vm->stop_again || !is_up(vm))
		return;
	vm->stop_again = false;
	vm->stop_grace = -1;
	stop_within(vm, grace);
}

static void on_go(const struct ipc_reply *r, void *arg)
{
	struct vm *vm = arg;

	if (!r->rc)
		return; /* the state event follows */
	vm->go_asked = false;
	vm_log_failed(vm, "the guest could not be started", r->message);
	ignore_rc(api_set_str(&vm->sync_error, r->message));
	vm_sync(vm);
}

/* The controller has handed the VMI over: QEMU stands ready, the guest may run. */
static void go_if_due(struct vm *vm, const VirtualMachineInstance *vmi)
{
	struct err err;

	if (vm->is_target || vm->go_asked || vm->stop_grace >= 0 ||
	    (vm->state != VM_PRELAUNCH && vm->state != VM_PAUSED) ||
	    !str_eq(vm->reason, "StartedPaused") || str_eq(vmi->spec.startStrategy, "Paused"))
		return;
	/* nodeName is the hand-over.  Scheduled is about to be written, or comes with Running: nothing to wait
	 * for. */
	if (!str_eq(vmi->status.nodeName, vm->host->cfg.node_name) ||
	    !(str_eq(vmi->status.phase, "Scheduling") || str_eq(vmi->status.phase, "Scheduled") ||
	      str_eq(vmi->status.phase, "Running")))
		return;
	if (!host_disks_are_told(vmi, vm->host->cfg.node_name))
		return; /* about to be written: nothing of it may be lost */
	vm->go_asked = true;
	if (vm_call(vm, "unpause", NULL, 0, on_go, vm, &err)) {
		vm->go_asked = false;
		vm_log_failed(vm, "the guest could not be started", err.msg);
	}
}

static bool is_unpaused(const struct vm *vm)
{
	const VirtualMachineInstance *vmi = vm_vmi(vm);

	if (vm->state == VM_PRELAUNCH && vmi && str_eq(vmi->spec.startStrategy, "Paused"))
		return false;
	return !vm->is_target && !vm->is_source_done && vm->state != VM_PAUSED &&
	       vm->state != VM_GONE && vm->state != VM_SHUTDOWN && vm->state != VM_CRASHED &&
	       vm->state != VM_NONE;
}

/* How the pod ends: a guest that shut down, or was moved away, is a success. */
static void report_exit(struct vm *vm)
{
	const VirtualMachineInstance *vmi = vm_vmi(vm);
	struct vm_volume_fact vols[VM_VOLUMES_MAX];
	struct vm_facts f;

	if (vm->has_exited)
		return;
	vm->has_exited = true;
	if (vm->is_source_done) {
		pods(vm)->exited(vm->pod, 0, NULL, NULL);
		return;
	}
	fill_facts(vm, &f, vols);
	const char *phase = vmi ? vmsync_phase(vmi, &f) : NULL;
	bool ok =
		phase ? str_eq(phase, "Succeeded") : vmi && str_eq(vmi->status.phase, "Succeeded");

	/* The VMI's last word is written from what is known here: before the pod is cleaned up. */
	pods(vm)->exited(vm->pod, ok ? 0 : 1, ok ? NULL : "GuestFailed",
			 ok	      ? NULL
			 : vm->reason ? vm->reason
				      : "the guest has ended");
}

void vm_kick(struct vm *vm)
{
	const VirtualMachineInstance *vmi = vm_vmi(vm);

	if (!vm->pod)
		return;
	kill_if_due(vm);
	stop_again(vm);
	/* Whoever needed the pages of this copy has ended. */
	if (mig_source_is_streaming(vm) && (!vmi || vmsync_is_final(vmi)))
		stop_within(vm, 0);
	if (vmi && vm->state == VM_GONE)
		judge_place(vm, vmi);
	if (vmi && is_up(vm)) {
		judge_place(vm, vmi);
		if (vmi->metadata.deletionTimestamp && !vm->is_target)
			stop_within(vm, API_GET(&vmi->spec, terminationGracePeriodSeconds,
						GRACE_DEFAULT));
		go_if_due(vm, vmi);
		vm_keep_thaw_time(vm, vmi);
	}
	mig_source_kick(vm);
	mig_target_kick(vm);
	vm_tidy(vm);
	/* A copy that is ending is told of once, when it has ended. */
	if (!vm->is_source_done && vm->state != VM_GONE && vm->state != VM_SHUTDOWN &&
	    vm->state != VM_POSTMIGRATE)
		pods(vm)->unpaused(vm->pod, is_unpaused(vm));
	vm_sync(vm);
	/* Released: the permission is still to be given, and the pod stays until it has been. */
	if (vm->state == VM_GONE && !mig_source_is_released(vm))
		report_exit(vm);
}

/* --- the pod runtime's steps --- */

void vmhost_prepare(struct vmhost *h, struct podrt_pod *p)
{
	struct vm *vm = vm_of(h, p);

	if (!vm) {
		log_error("pod '%s': out of memory", h->cfg.pods->name(p));
		return;
	}
	vm_prepare(vm);
}

void vmhost_start(struct vmhost *h, struct podrt_pod *p)
{
	vm_start(h->cfg.pods->get(p));
}

void vmhost_adopt(struct vmhost *h, struct podrt_pod *p)
{
	struct vm *vm = vm_of(h, p);

	if (vm)
		vm_adopt(vm);
	else
		log_error("pod '%s': out of memory", h->cfg.pods->name(p));
}

void vmhost_stop(struct vmhost *h, struct podrt_pod *p, int64_t grace)
{
	struct vm *vm = h->cfg.pods->get(p);

	(void)h;
	if (is_up(vm)) {
		stop_within(vm, grace);
	} else if (vm->state == VM_GONE) {
		report_exit(vm);
	} else if (!vm->is_starting) {
		/* No launcher answers: cleaning up ends whatever is left. */
		vm->has_exited = true;
		pods(vm)->exited(p, 1, "Killed", "its launcher did not answer");
	}
	/* While it starts: the answer of the start comes first, then this is asked again. */
}

void vmhost_forget(struct vmhost *h, struct podrt_pod *p)
{
	struct vm *vm = h->cfg.pods->get(p);

	if (!vm)
		return;
	h->cfg.pods->set(p, NULL);
	vm_free(vm);
}

/* --- the host --- */

static void on_vmi(const struct kobj *old, const struct kobj *new, void *arg)
{
	struct vmhost *h = arg;
	const struct kobj *o = new ? new : old;

	LIST_FOREACH_SAFE(it, tmp, &h->vms) {
		struct vm *vm = LIST_ENTRY(it, struct vm, link);

		if (strcmp(vm->ns, kobj_ns(o)) != 0 || strcmp(vm->name, kobj_name(o)) != 0)
			continue;
		if (vm->prep)
			vm_poke_prepare(vm);
		else
			vm_kick(vm);
		/* Only the end of a move from here may be what its cleanup waits for. */
		if (vm->pod && vm->has_exited && (vm->source || vm->waits_for_move))
			pods(vm)->retry(vm->pod);
	}
}

static void on_binding(const struct kobj *old, const struct kobj *new, void *arg)
{
	struct vmhost *h = arg;

	(void)old;
	LIST_FOREACH(it, &h->vms) {
		struct vm *vm = LIST_ENTRY(it, struct vm, link);

		if (new &&str_eq(vm->ns, kobj_ns(new)) && str_eq(vm->name, kobj_name(new)) &&
		    mig_target_awaits_binding(vm))
			vm_sync(vm);
	}
}

static bool is_ready(const Node *n)
{
	return API_COND_IS(&n->status, NodeCondition, "Ready", "True");
}

/* What other nodes can give says where each VM could go. */
static void on_node(const struct kobj *old, const struct kobj *new, void *arg)
{
	struct vmhost *h = arg;
	const Node *was = old ? kobj_typed(old) : NULL, *is = new ? kobj_typed(new) : NULL;

	if (was && is && api_map_equal(&was->metadata.labels, &is->metadata.labels) &&
	    arrivals_equal(was, is) && is_ready(was) == is_ready(is))
		return;
	h->n_node_changes++;
	LIST_FOREACH(it, &h->vms) {
		struct vm *vm = LIST_ENTRY(it, struct vm, link);

		if (vm->pod && !vm->is_target && !vm->is_source_done)
			vm_sync(vm);
	}
}

static void on_handover(const struct kobj *old, const struct kobj *new, void *arg)
{
	struct vmhost *h = arg;
	const Handover *o = kobj_typed(new);

	(void)old;
	LIST_FOREACH_SAFE(it, tmp, &h->vms) {
		struct vm *vm = LIST_ENTRY(it, struct vm, link);

		if (o && str_eq(vm->vmi_uid, o->spec.vmiUID) && (vm->source || vm->target))
			vm_kick(vm);
	}
}

const FerryConfigSpec *vmhost_ferry_config(const struct vmhost *h)
{
	const FerryConfig *c =
		kobj_typed(kcache_get(h->cfg.cache, &api_kind_FerryConfig, NULL, "ferry"));

	return c ? &c->spec : NULL;
}

struct vm *vmhost_find(const struct vmhost *h, const char *ns, const char *name)
{
	LIST_FOREACH(it, &h->vms) {
		struct vm *vm = LIST_ENTRY(it, struct vm, link);

		if (!vm->is_target && !vm->is_source_done && !vm->has_exited &&
		    strcmp(vm->ns, ns) == 0 && strcmp(vm->name, name) == 0)
			return vm;
	}
	return NULL;
}

const char *vm_address(const struct vm *vm)
{
	return vm->address;
}

struct vm *vmhost_find_target(const struct vmhost *h, const char *vmi_uid)
{
	LIST_FOREACH(it, &h->vms) {
		struct vm *vm = LIST_ENTRY(it, struct vm, link);

		if (vm->target && str_eq(vm->vmi_uid, vmi_uid))
			return vm;
	}
	return NULL;
}

static void free_cost(void *ms)
{
	mem_free(ms);
}

enum rc vmhost_new(struct vmhost **out, const struct vmhost_config *config, struct err *err)
{
	CLEANUP(vmhost_freep) struct vmhost *h = mem_alloc(sizeof(*h));

	if (!h)
		return err_set(err, RC_NOMEM, "out of memory");
	h->cfg = *config;
	list_init(&h->vms);
	map_init(&h->pause_costs, free_cost);
	h->local_dir = mem_printf("%s/local", config->state_dir);
	if (!h->local_dir)
		return err_set(err, RC_NOMEM, "out of memory");
	TRY(file_mkdir_p(h->local_dir, 0711, err));
	TRY(kcache_on(config->cache, &h->on_vmi, &api_kind_VirtualMachineInstance, on_vmi, h, err));
	TRY(kcache_on(config->cache, &h->on_handover, &api_kind_Handover, on_handover, h, err));
	TRY(kcache_on(config->cache, &h->on_binding, &api_kind_PortBinding, on_binding, h, err));
	TRY(kcache_on(config->cache, &h->on_node, &api_kind_Node, on_node, h, err));
	TRY(mig_disks_watch(h, err));
	TRY(vm_usage_start(h, err));
	*out = STEAL(h);
	return RC_OK;
}

struct vmhost *vmhost_free(struct vmhost *h)
{
	if (!h)
		return NULL;
	kcache_handler_free(h->on_vmi);
	kcache_handler_free(h->on_handover);
	kcache_handler_free(h->on_binding);
	kcache_handler_free(h->on_node);
	for (size_t i = 0; i < ARRAY_SIZE(h->on_settings); i++)
		kcache_handler_free(h->on_settings[i]);
	map_fini(&h->pause_costs);
	ev_src_free(h->usage_timer);
	mem_free(h->local_dir);
	return mem_free(h);
}

static bool is_running_here(const struct vm *vm)
{
	return !vm->is_target && !vm->is_source_done &&
	       (vm->state == VM_RUNNING || vm->state == VM_PAUSED || vm->state == VM_MIGRATING ||
		vm->state == VM_PRE_SWITCHOVER);
}

static struct vm_metrics_in metrics_of(const struct vm *vm)
{
	const VirtualMachineInstance *vmi = vm_vmi(vm);
	const Interface *iface = NULL;
	const Network *net;

	if (vmi)
		vmspec_pod_interface(vmi, &iface, &net);
	struct vm_metrics_in in = {.ns = vm->ns,
				   .name = vm->name,
				   .labels = vmi ? &vmi->metadata.labels : NULL,
				   .network = iface ? iface->name : NULL,
				   .runs_here = is_running_here(vm),
				   .memory_bytes = vmi ? vmspec_memory(vmi) : 0,
				   .usage = vm_usage_of(vm),
				   .dirty_rate = vm_dirty_rate_of(vm),
				   .move = mig_source_report(vm)};

	vm_usage_fill(vm, &in);
	return in;
}

static void kubevirt_metrics(const struct vmhost *h, struct sbuf *out)
{
	size_t n = 0, at = 0;

	LIST_FOREACH(it, &h->vms)
		n++;
	CLEANUP(mem_freep) struct vm_metrics_in *vms = mem_calloc(n + 1, sizeof(*vms));

	LIST_FOREACH(it, &h->vms)
		if (vms)
			vms[at++] = metrics_of(LIST_ENTRY(it, struct vm, link));
	vm_metrics_print(h->cfg.node_name, vms, at, out);
	vm_metrics_print_node(h->cfg.node_name, h->cfg.probe, out);
}

void vmhost_metrics(struct vmhost *h, struct sbuf *out)
{
	size_t n[VM__STATES] = {0};

	vm_usage_wanted(h);
	LIST_FOREACH(it, &h->vms)
		n[LIST_ENTRY(it, struct vm, link)->state]++;
	sbuf_adds(out, "# TYPE ferry_vms gauge\n");
	for (int s = 0; s < VM__STATES; s++)
		if (n[s])
			sbuf_addf(out, "ferry_vms{state=\"%s\"} %zu\n",
				  vm_state_name((enum vm_state)s), n[s]);
	sbuf_addf(out,
		  "# TYPE ferry_moves_total counter\nferry_moves_total{side=\"source\"} %llu\n"
		  "ferry_moves_total{side=\"target\"} %llu\nferry_moves_failed_total %llu\n"
		  "ferry_vms_adopted_total %llu\nferry_launcher_deaths_total %llu\n"
		  "# TYPE ferry_pause_overruns_total counter\nferry_pause_overruns_total %llu\n",
		  (unsigned long long)h->n_moves_out, (unsigned long long)h->n_moves_in,
		  (unsigned long long)h->n_moves_failed, (unsigned long long)h->n_adopted,
		  (unsigned long long)h->n_launcher_deaths,
		  (unsigned long long)h->n_pause_overruns);
	kubevirt_metrics(h, out);
}

/* --- commands from outside --- */

struct command {
	vm_answer_fn fn;
	void *arg;
	char method[24];
	struct vmhost *host;
	char *ns, *name;
};

static void tell_of_command(struct vm *vm, const char *method)
{
	static const struct {
		const char *method, *reason, *text;
	} told[] = {
		{"pause", "Paused", "VirtualMachineInstance paused"},
		{"unpause", "Unpaused", "VirtualMachineInstance unpaused"},
		{"reset", "Reset", "VirtualMachineInstance reset"},
		{"softReboot", "SoftRebooted", "VirtualMachineInstance soft rebooted"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(told); i++)
		if (strcmp(method, told[i].method) == 0)
			tell(vm, told[i].reason, told[i].text);
}

static void tell_freeze_failed(struct vm *vm, const char *why)
{
	const VirtualMachineInstance *vmi = vm_vmi(vm);

	if (vmi)
		exec_event(vm->host->cfg.exec, &api_kind_VirtualMachineInstance, vmi, "Warning",
			   "FreezeError", "Failed to freeze VMI: %s", why ? why : "");
}

static void on_command(const struct ipc_reply *r, void *arg)
{
	struct command *c = arg;
	struct vm *vm = vmhost_find(c->host, c->ns, c->name);
	int fd = r->rc ? -1 : ipc_fds_take(r->fds, 0);

	if (!r->rc && vm)
		tell_of_command(vm, c->method);
	else if (vm && strcmp(c->method, "guestFreeze") == 0)
		tell_freeze_failed(vm, r->message);
	c->fn(r->rc, r->message, r->rc ? NULL : r->result, fd, c->arg);
	mem_free(c->ns);
	mem_free(c->name);
	mem_free(c);
}

enum rc vm_command(struct vm *vm, const char *method, struct json *params, usec_t timeout,
		   vm_answer_fn fn, void *arg, struct err *err)
{
	struct command *c = mem_alloc(sizeof(*c));

	if (!c) {
		js_unref(params);
		return err_set(err, RC_NOMEM, "out of memory");
	}
	*c = (struct command){.fn = fn,
			      .arg = arg,
			      .host = vm->host,
			      .ns = mem_strdup(vm->ns),
			      .name = mem_strdup(vm->name)};
	(void)snprintf(c->method, sizeof(c->method), "%s", method);
	enum rc rc = RC_OK;

	if (c->ns && c->name) {
		rc = vm_call(vm, method, params, timeout, on_command, c, err);
	} else {
		js_unref(params);
		rc = err_set(err, RC_NOMEM, "out of memory");
	}
	if (rc) {
		mem_free(c->ns);
		mem_free(c->name);
		mem_free(c);
	}
	return rc;
}
