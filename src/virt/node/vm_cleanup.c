/* The end of a pod: what is left of its processes, its disks and its network goes. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/try.h"
#include "json/json.h"
#include "sched/snapshot.h"
#include "virt/migration/host_disks.h"
#include "virt/names.h"
#include "virt/node/host_files.h"
#include "virt/node/vm_int.h"
#include "virt/node/vmnet.h"
#include "virt/node/volumes.h"
#include "virt/node/volwork.h"

/* --- ending what is left of a pod, without its launcher's help --- */

/* vm.json names the processes: "pid" and "reaperPid" with their start times, so that a number that was
 * given to another process is not killed. */
static bool start_time_is(pid_t pid, int64_t wanted)
{
	char path[64];
	CLEANUP(mem_freep) char *text = NULL;
	size_t n = 0;
	int64_t got = 0;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (file_read(path, 4096, &text, &n, NULL))
		return false;
	char *p = strrchr(text, ')');

	for (int field = 2; p && field < 22; field++)
		p = strchr(p + 1, ' ');
	if (!p)
		return false;
	char *end = strchr(p + 1, ' ');

	if (end)
		*end = '\0';
	return !str_to_i64(p + 1, 0, INT64_MAX, &got, NULL) && got == wanted;
}

static void kill_if_same(int64_t pid, int64_t start)
{
	if (pid <= 1 || pid > INT32_MAX)
		return;
	int fd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);

	if (fd < 0)
		return;
	if (start_time_is((pid_t)pid, start)) {
		log_info("process %lld of a VM that is not wanted any more is ended",
			 (long long)pid);
		(void)syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
	}
	close(fd);
}

/* After a reboot the numbers mean nothing. */
static bool is_this_boot(const struct json *j)
{
	CLEANUP(mem_freep) char *boot = NULL;
	const char *was = js_get_str(j, "bootId");
	size_t n = 0;

	if (!was || file_read("/proc/sys/kernel/random/boot_id", 256, &boot, &n, NULL))
		return false;
	return strncmp(boot, was, strcspn(boot, "\n")) == 0;
}

static void kill_recorded(const struct json *j)
{
	static const char *const names[] = {"qemu", "reaper"};

	for (size_t i = 0; is_this_boot(j) && i < ARRAY_SIZE(names); i++) {
		const struct json *p = js_get(j, names[i]);

		kill_if_same(js_get_int(p, "pid", 0), js_get_int(p, "start", -1));
	}
}

static enum rc end_processes(const char *run_dir, struct err *err)
{
	CLEANUP(mem_freep) char *path = mem_printf("%s/vm.json", run_dir);
	CLEANUP(mem_freep) char *text = NULL;
	CLEANUP(js_unrefp) struct json *j = NULL;
	size_t n = 0;

	if (!path)
		return err_set(err, RC_NOMEM, "out of memory");
	if (!file_read(path, LIMIT_FILE_BYTES, &text, &n, NULL) && !js_parse(text, n, &j, NULL))
		kill_recorded(j);
	return RC_OK;
}

static enum rc end_dhcp(const char *run_dir, struct err *err)
{
	CLEANUP(mem_freep) char *net = mem_printf("%s/" VMNET_DIR, run_dir);

	return net ? vmnet_down(net, err) : err_set(err, RC_NOMEM, "out of memory");
}

/* --- what a pod has on storage --- */

/* Paths of hostDisks that the guest has elsewhere now. */
struct moved {
	char *paths[VM_VOLUMES_MAX];
	size_t n;
	bool is_undecided; /* where the guest has its files is about to be said */
};

/* Each storage has its own workers, and may hang for as long as it likes: nobody else waits for it.  First what lies
 * where local volumes do, which also says in which folders there are files of the pod's; then these, one by one. */
struct disks_end {
	struct vmhost *host;
	char *pod_uid;
	struct moved moved;
	char *folder; /* whose turn it is; NULL: the local volumes' */
	char *next;   /* the job's answer: a folder, or NULL: nothing is left */
	struct ev_src *late_timer;
	vmhost_swept_fn done;
	void *arg;
	enum rc rc;
	struct err err;
};

static struct disks_end *disks_end_free(struct disks_end *d)
{
	if (!d)
		return NULL;
	d->late_timer = ev_src_free(d->late_timer);
	for (size_t i = 0; i < d->moved.n; i++)
		mem_free(d->moved.paths[i]);
	mem_free(d->folder);
	mem_free(d->next);
	mem_free(d->pod_uid);
	return mem_free(d);
}

static void local_work(void *arg)
{
	struct disks_end *d = arg;
	const char *local = d->host->local_dir;

	failpoint("agent.drops-disks");
	/* The VMI may be gone before this is done: what it has said stands here from now on. */
	d->rc = host_files_note_moved(local, d->pod_uid, d->moved.paths, d->moved.n, &d->err);
	/* Volumes that came for this pod's guest and were never its own: it did not run, and does not any more. */
	if (!d->rc)
		d->rc = volume_drop_incoming(local, d->pod_uid, &d->err);
	if (!d->rc)
		d->rc = host_files_next(local, d->pod_uid, &d->next, &d->err);
}

static void folder_work(void *arg)
{
	struct disks_end *d = arg;

	d->rc = host_files_end(d->host->local_dir, d->pod_uid, d->folder, &d->err);
}

static const char *storage_of(const struct disks_end *d)
{
	return d->folder ? d->folder : d->host->local_dir;
}

/* Said, not ended: nothing can take away from there what hangs. */
static void on_late(void *arg)
{
	struct disks_end *d = arg;
	const char *where = volwork_name(d->host->cfg.volwork, storage_of(d));

	d->late_timer = ev_src_free(d->late_timer);
	log_warn("pod %s: what is to be removed with it waits for %s, which does not answer",
		 d->pod_uid, where ? where : storage_of(d));
}

static enum rc disks_begin(struct disks_end *d, struct err *err);

static void disks_after(void *arg)
{
	struct disks_end *d = arg;
	bool is_over = d->rc || (!d->folder && !d->next);
	struct err err = {0};

	d->late_timer = ev_src_free(d->late_timer);
	mem_free(d->folder);
	d->folder = STEAL(d->next);
	if (!is_over && disks_begin(d, &err)) {
		d->rc = err.rc;
		d->err = err;
		is_over = true;
	}
	if (!is_over)
		return;
	d->done(d->rc, d->err.msg, d->arg);
	disks_end_free(d);
}

static enum rc disks_begin(struct disks_end *d, struct err *err)
{
	const struct vmhost *h = d->host;

	TRY(volwork_remove(h->cfg.volwork, storage_of(d), d->folder ? folder_work : local_work,
			   disks_after, d, err));
	ignore_rc(ev_timer_after(h->cfg.loop, &d->late_timer, VOLWORK_LATE_AFTER, on_late, d,
				 NULL)); /* nobody is told, then */
	return RC_OK;
}

/* NULL: out of memory. */
static struct disks_end *disks_end_new(struct vmhost *h, const char *pod_uid, vmhost_swept_fn done,
				       void *arg)
{
	struct disks_end *d = mem_alloc(sizeof(*d));

	if (!d)
		return NULL;
	*d = (struct disks_end){
		.host = h, .pod_uid = mem_strdup(pod_uid), .done = done, .arg = arg};
	return d->pod_uid ? d : disks_end_free(d);
}

/* --- pods that are not in the API any more --- */

enum rc vmhost_sweep(const char *run_dir, struct err *err)
{
	TRY(end_processes(run_dir, err));
	return end_dhcp(run_dir, err);
}

enum rc vmhost_sweep_disks(struct vmhost *h, const char *pod_uid, vmhost_swept_fn fn, void *arg,
			   struct err *err)
{
	struct disks_end *d = disks_end_new(h, pod_uid, fn, arg);

	if (!d)
		return err_set(err, RC_NOMEM, "out of memory");
	if (disks_begin(d, err)) {
		disks_end_free(d);
		return err->rc;
	}
	return RC_OK;
}

/* --- the pod runtime's last step --- */

/* Processes first, so that nothing uses any more what goes after them.  Then what the VM's next move, which may come to
 * this node before storage has answered, is to find gone.  Then storage. */
struct kill_job {
	struct vm *vm;
	char *run_dir;
	struct disks_end *disks;
	bool has_disks; /* …or may have */
	struct vm_net_ops net;
	struct in_addr pod;
	bool shuts_way;	    /* the move's way through the firewall */
	bool ends_steering; /* of the VM's frames */
	struct net_mac mac;
	enum rc rc;
	struct err err;
};

static void kill_job_free(struct kill_job *j)
{
	if (!j)
		return;
	disks_end_free(j->disks);
	mem_free(j->run_dir);
	mem_free(j);
}

static void kill_work(void *arg)
{
	struct kill_job *j = arg;

	j->rc = end_processes(j->run_dir, &j->err);
	if (!j->rc && j->disks->moved.is_undecided)
		j->rc = err_set(&j->err, RC_BUSY, "the move from here has not ended yet");
	if (!j->rc)
		j->rc = end_dhcp(j->run_dir, &j->err);
	if (!j->rc && j->shuts_way)
		j->rc = j->net.mig_close(j->pod, j->net.arg, &j->err);
	if (!j->rc && j->ends_steering)
		j->rc = vmnet_steering_end(j->net.vxlan, j->mac, &j->err);
}

/* A launcher that this agent has started, and cannot ask: the last one died while the pod ended, or it stands still.  Its
 * QEMU is gone, so it looks after nothing. */
static void kill_launcher(struct vm *vm)
{
	if (!vm->launcher_pid)
		return;
	log_info("VM '%s/%s': its launcher (process %d) is ended with its pod", vm->ns, vm->name,
		 (int)vm->launcher_pid);
	(void)kill(vm->launcher_pid,
		   SIGKILL); /* a child that has not been waited for: it is this one */
}

/* The launcher has nothing left to look after. */
static void on_launcher_left(const struct ipc_reply *r, void *arg)
{
	struct vm *vm = arg;
	char text[256];

	(void)snprintf(text, sizeof(text), "%s", r->message ? r->message : "");
	/* RC_CONFLICT: it has not noticed yet that QEMU is gone; asked again after a back-off. */
	enum rc rc = r->rc == RC_CONFLICT ? r->rc : RC_OK;

	if (!rc)
		vm->ipc = ipc_client_free(vm->ipc);
	if (!rc && r->rc)
		kill_launcher(vm);
	vm->host->cfg.pods->cleaned(vm->pod, rc, text);
}

static void ended(struct vm *vm, enum rc rc, const char *why)
{
	struct err err;

	if (!rc && !vm->ipc)
		kill_launcher(vm);
	if (rc || !vm->ipc)
		vm->host->cfg.pods->cleaned(vm->pod, rc, why);
	else if (vm_call(vm, "exit", NULL, 2 * USEC_PER_SEC, on_launcher_left, vm, &err))
		vm->host->cfg.pods->cleaned(vm->pod, err.rc, err.msg);
}

static void on_disks_ended(enum rc rc, const char *why, void *arg)
{
	struct vm *vm = arg;

	if (vm_job_done(vm))
		ended(vm, rc, why);
}

static void kill_after(void *arg)
{
	struct kill_job *j = arg;
	struct vm *vm = j->vm;

	/* Only an agent that follows the move knows that its end will be said. */
	if (j->rc == RC_BUSY && !vm->source)
		j->rc = RC_CONFLICT;
	bool has_disks = !j->rc && j->has_disks && vm->pod;

	vm->waits_for_move = j->disks->moved.is_undecided;
	if (has_disks)
		j->rc = disks_begin(j->disks, &j->err);
	if (has_disks && !j->rc)
		j->disks = NULL; /* it goes on, and the VM's job with it */
	else if (vm_job_done(vm))
		ended(vm, has_disks && j->rc == RC_BUSY ? RC_TIMEOUT : j->rc, j->err.msg);
	kill_job_free(j);
}

static bool is_other_of(const struct vm *other, const struct vm *vm)
{
	return other != vm && str_eq(other->vmi_uid, vm->vmi_uid);
}

/* What a move made in the kernel may be of an agent that has died since: then nobody but the pod's end undoes it.
 * Not while this agent's own move sends frames on, nor when another pod of the VM lives here: of several that are over
 * the last one does it. */
static bool is_left_alone(const struct vm *vm)
{
	if (vm->source)
		return false;
	LIST_FOREACH(it, &vm->host->vms) {
		const struct vm *other = LIST_ENTRY(it, struct vm, link);

		if (is_other_of(other, vm) && (!other->has_exited || other->source))
			return false;
	}
	return true;
}

/* The way is the VM's, not the pod's: one that another pod's move uses, or may use, stays for that one's end. */
static bool is_way_anothers(const struct vm *vm)
{
	LIST_FOREACH(it, &vm->host->vms) {
		const struct vm *other = LIST_ENTRY(it, struct vm, link);

		if (is_other_of(other, vm) && !other->has_exited &&
		    (vm_is_moving(other) || !other->has_answered))
			return true;
	}
	return false;
}

/* Old copies go with the pod whose guest has used them.  The VMI is there as long as one of its pods is; without it nobody
 * knows, and they stay. */
static enum rc find_moved(const struct vm *vm, struct moved *out)
{
	const VirtualMachineInstance *vmi = vm_vmi(vm);

	for (size_t i = 0; vmi && i < vmi->spec.n_volumes && out->n < VM_VOLUMES_MAX; i++) {
		const Volume *v = &vmi->spec.volumes[i];
		enum host_disk_fate fate =
			host_disk_is_own(&vmi->spec, v)
				? host_disk_fate(vmi, v->hostDisk->path, vm->host->cfg.node_name,
						 vm->host->cfg.pods->name(vm->pod))
				: HOST_DISK_STAYS;

		out->is_undecided |= fate == HOST_DISK_UNDECIDED;
		if (fate != HOST_DISK_MOVED)
			continue;
		out->paths[out->n] = mem_strdup(v->hostDisk->path);
		if (!out->paths[out->n])
			return RC_NOMEM;
		out->n++;
	}
	return RC_OK;
}

/* A pod that has never had any does not wait for a storage that hangs. */
static bool may_have_disks(const struct vm *vm)
{
	const struct vm_pod_ops *pods = vm->host->cfg.pods;
	const VirtualMachineInstance *vmi = vm_vmi(vm);

	if (!vmi || pods->annotation(vm->pod, SCHED_BRINGS_CLAIMS) ||
	    pods->annotation(vm->pod, ANN_BRINGS_HOST_DISKS))
		return true;
	for (size_t i = 0; i < vmi->spec.n_volumes; i++)
		if (vmi->spec.volumes[i].hostDisk)
			return true;
	return false;
}

static struct kill_job *kill_job_new(struct vm *vm)
{
	struct vmhost *h = vm->host;
	struct kill_job *j = mem_alloc(sizeof(*j));

	if (!j)
		return NULL;
	j->vm = vm;
	j->net = h->cfg.net;
	j->run_dir = mem_strdup(h->cfg.pods->run_dir(vm->pod));
	j->disks = disks_end_new(h, h->cfg.pods->uid(vm->pod), on_disks_ended, vm);
	if (!j->run_dir || !j->disks || find_moved(vm, &j->disks->moved)) {
		kill_job_free(j);
		return NULL;
	}
	bool is_orphaned = is_left_alone(vm);

	j->has_disks = may_have_disks(vm);
	j->shuts_way = (vm->is_target || is_orphaned) && !is_way_anothers(vm) && vm->address &&
		       !net_ip4_parse(vm->address, &j->pod, NULL);
	j->ends_steering = is_orphaned && vm->mac && !net_mac_parse(vm->mac, &j->mac, NULL);
	return j;
}

void vmhost_cleanup(struct vmhost *h, struct podrt_pod *p)
{
	struct vm *vm = vm_of(h, p);
	struct kill_job *j = NULL;
	struct err err = {0};

	if (vm) {
		vm->state = vm->state == VM_NONE ? VM_NONE : VM_GONE;
		vm->has_exited = true;
		vm->connect_timer = ev_src_free(vm->connect_timer);
		vm->prep = vm_prep_free(vm->prep);
		mig_target_make_way(vm);
		j = kill_job_new(vm);
	}
	/* On the network's queue: the way is shut before the VM's next move can open it. */
	if (!j || pool_run_ordered(h->cfg.loop, h->cfg.net_queue, kill_work, kill_after, j, &err)) {
		kill_job_free(j);
		h->cfg.pods->cleaned(p, RC_NOMEM, "out of memory");
		return;
	}
	vm->jobs++;
}
