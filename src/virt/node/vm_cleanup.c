/* The end of a pod: what is left of its processes, its disks and its network goes. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/try.h"
#include "json/json.h"
#include "virt/migration/host_disks.h"
#include "virt/node/host_files.h"
#include "virt/node/vm_int.h"
#include "virt/node/vmnet.h"
#include "virt/node/volumes.h"

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

/* Paths of hostDisks that the guest has elsewhere now. */
struct moved {
	char *paths[VM_VOLUMES_MAX];
	size_t n;
	bool is_undecided; /* where the guest has its files is about to be said */
};

static enum rc sweep(const char *run_dir, const char *local_dir, const char *pod_uid,
		     const struct moved *moved, struct err *err)
{
	CLEANUP(mem_freep) char *path = mem_printf("%s/vm.json", run_dir);
	CLEANUP(mem_freep) char *net = mem_printf("%s/" VMNET_DIR, run_dir);
	CLEANUP(mem_freep) char *text = NULL;
	CLEANUP(js_unrefp) struct json *j = NULL;
	size_t n = 0;

	if (!path || !net)
		return err_set(err, RC_NOMEM, "out of memory");
	if (!file_read(path, LIMIT_FILE_BYTES, &text, &n, NULL) && !js_parse(text, n, &j, NULL))
		kill_recorded(j);
	if (moved->is_undecided)
		return err_set(err, RC_BUSY, "the move from here has not ended yet");
	/* Volumes that came for this pod's guest and were never its own: it did not run, and does not any more. */
	TRY(volume_drop_incoming(local_dir, pod_uid, err));
	TRY(host_files_end(local_dir, pod_uid, moved->paths, moved->n, err));
	return vmnet_down(net, err);
}

enum rc vmhost_sweep(const char *run_dir, const char *local_dir, const char *pod_uid,
		     struct err *err)
{
	static const struct moved none;

	return sweep(run_dir, local_dir, pod_uid, &none, err);
}

/* --- the pod runtime's last step --- */

struct kill_job {
	struct vm *vm;
	char *run_dir, *local_dir, *pod_uid;
	struct moved moved;
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
	mem_free(j->run_dir);
	mem_free(j->local_dir);
	mem_free(j->pod_uid);
	for (size_t i = 0; i < j->moved.n; i++)
		mem_free(j->moved.paths[i]);
	mem_free(j);
}

static void kill_work(void *arg)
{
	struct kill_job *j = arg;

	j->rc = sweep(j->run_dir, j->local_dir, j->pod_uid, &j->moved, &j->err);
	if (!j->rc && j->shuts_way)
		j->rc = j->net.mig_close(j->pod, j->net.arg, &j->err);
	if (!j->rc && j->ends_steering)
		j->rc = vmnet_steering_end(j->net.vxlan, j->mac, &j->err);
}

/* The launcher has nothing left to look after. */
static void on_launcher_left(const struct ipc_reply *r, void *arg)
{
	struct vm *vm = arg;
	char text[256];

	(void)snprintf(text, sizeof(text), "%s", r->message ? r->message : "");
	/* RC_CONFLICT: it has not noticed yet that QEMU is gone; asked again after a back-off. */
	enum rc rc = r->rc == RC_CONFLICT ? r->rc : RC_OK;

	if (rc == RC_OK || !vm->launcher_pid)
		vm->ipc = rc ? vm->ipc : ipc_client_free(vm->ipc);
	vm->host->cfg.pods->cleaned(vm->pod, rc, text);
}

static void kill_after(void *arg)
{
	struct kill_job *j = arg;
	struct vm *vm = j->vm;
	struct err err;

	/* Only an agent that follows the move knows that its end will be said. */
	if (j->rc == RC_BUSY && !vm->source)
		j->rc = RC_CONFLICT;
	if (vm_job_done(vm)) {
		if (j->rc || !vm->ipc)
			vm->host->cfg.pods->cleaned(vm->pod, j->rc, j->err.msg);
		else if (vm_call(vm, "exit", NULL, 2 * USEC_PER_SEC, on_launcher_left, vm, &err))
			vm->host->cfg.pods->cleaned(vm->pod, err.rc, err.msg);
	}
	kill_job_free(j);
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

		if (other != vm && str_eq(other->vmi_uid, vm->vmi_uid) &&
		    (!other->has_exited || other->source))
			return false;
	}
	return true;
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

void vmhost_cleanup(struct vmhost *h, struct podrt_pod *p)
{
	struct vm *vm = vm_of(h, p);
	struct kill_job *j = mem_alloc(sizeof(*j));
	struct err err = {0};

	if (j) {
		j->run_dir = mem_strdup(h->cfg.pods->run_dir(p));
		j->local_dir = mem_strdup(h->local_dir);
		j->pod_uid = mem_strdup(h->cfg.pods->uid(p));
	}
	if (vm) {
		vm->state = vm->state == VM_NONE ? VM_NONE : VM_GONE;
		vm->has_exited = true;
		vm->connect_timer = ev_src_free(vm->connect_timer);
		vm->prep = vm_prep_free(vm->prep);
	}
	bool is_known = vm && j && find_moved(vm, &j->moved) == RC_OK; /* else there is no memory */

	if (is_known) {
		j->vm = vm;
		j->net = h->cfg.net;
		bool is_orphaned = is_left_alone(vm);

		j->shuts_way = (vm->is_target || is_orphaned) && vm->address &&
			       !net_ip4_parse(vm->address, &j->pod, NULL);
		j->ends_steering = is_orphaned && vm->mac && !net_mac_parse(vm->mac, &j->mac, NULL);
	}
	/* On the network's queue: the way is shut before the VM's next move can open it. */
	if (!is_known || !j->run_dir || !j->local_dir || !j->pod_uid ||
	    pool_run_ordered(h->cfg.loop, h->cfg.net_queue, kill_work, kill_after, j, &err)) {
		kill_job_free(j);
		h->cfg.pods->cleaned(p, RC_NOMEM, "out of memory");
		return;
	}
	vm->jobs++;
}
