/* A VM's launcher: started detached, found again by its socket, given its spec and descriptors. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/api.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/try.h"
#include "json/json.h"
#include "net/ns.h"
#include "virt/launcher/launch_spec.h"
#include "virt/names.h"
#include "virt/node/vm_int.h"
#include "virt/node/vmnet.h"
#include "virt/node/vmspec.h"

#define CONNECT_DEADLINE (10 * USEC_PER_SEC)
#define CONNECT_WAIT_MIN (1 * USEC_PER_MSEC)
#define CONNECT_WAIT_MAX (100 * USEC_PER_MSEC)
#define HELLO_DEADLINE	 (5 * USEC_PER_SEC)
#define START_DEADLINE	 (60 * USEC_PER_SEC)
#define CALL_DEADLINE	 (10 * USEC_PER_SEC)
#define LAUNCHER_NAME	 "ferry-node"

extern char **environ;

static void connect_now(struct vm *vm);
static enum rc spawn_launcher(struct vm *vm, struct err *err);

/* --- the process --- */

static void on_launcher_exit(pid_t pid, int status, void *arg)
{
	struct vm *vm = arg;
	struct err err;

	(void)pid;
	vm->launcher_child = ev_src_free(vm->launcher_child);
	vm->launcher_pid = 0;
	if (status && vm->state != VM_GONE)
		log_warn("VM '%s/%s': its launcher ended (status %d)", vm->ns, vm->name, status);
	/* Its socket closed before we heard of its end: the next one was waiting for this. */
	if (vm->wants_launcher && vm->pod && !vm->has_exited && spawn_launcher(vm, &err))
		vm_log_failed(vm, "cannot start a new launcher", err.msg);
	vm->wants_launcher = false;
}

static enum rc spawn_launcher(struct vm *vm, struct err *err)
{
	const char *dir = vm->host->cfg.pods->run_dir(vm->pod);
	const char *argv[] = {
		vm->host->cfg.launcher, "--dir", dir, "--qemu", vm->host->cfg.qemu, "--kvm-cache",
		vm->host->cfg.kvm_file, NULL};
	CLEANUP(mem_freep) char *log = mem_printf("%s/launcher.log", dir);
	posix_spawn_file_actions_t fa;
	posix_spawnattr_t attr;
	sigset_t none;

	if (!log)
		return err_set(err, RC_NOMEM, "out of memory");
	sigemptyset(&none);
	posix_spawn_file_actions_init(&fa);
	posix_spawnattr_init(&attr);
	/* Its own session: it outlives this agent. */
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSID);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&fa, 1, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_addopen(&fa, 2, log, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW,
					 0600);
	int r = posix_spawn(&vm->launcher_pid, argv[0], &fa, &attr, (char *const *)argv, environ);

	posix_spawn_file_actions_destroy(&fa);
	posix_spawnattr_destroy(&attr);
	if (r) {
		vm->launcher_pid = 0;
		return err_set_sys(err, r, "cannot start '%s'", argv[0]);
	}
	return ev_child(vm->host->cfg.loop, &vm->launcher_child, vm->launcher_pid, on_launcher_exit,
			vm, err);
}

/* --- talking to it --- */

static void on_ignored(const struct ipc_reply *r, void *arg)
{
	struct vm *vm = arg;

	if (r->rc)
		vm_log_failed(vm, "the launcher refused a call", r->message);
}

enum rc vm_call(struct vm *vm, const char *method, struct json *params, usec_t timeout,
		ipc_reply_fn fn, void *arg, struct err *err)
{
	if (!vm->ipc) {
		js_unref(params);
		return err_set(err, RC_CLOSED, "the launcher of '%s' cannot be reached", vm->name);
	}
	return ipc_call(vm->ipc, NULL, method, params, NULL, 0, timeout ? timeout : CALL_DEADLINE,
			fn ? fn : on_ignored, fn ? arg : vm, err);
}

void vm_set_state(struct vm *vm, enum vm_state state, const char *reason)
{
	bool changed = state != vm->state || !str_eq(reason, vm->reason);

	if (changed)
		log_info("VM '%s/%s': %s -> %s (%s)", vm->ns, vm->name, vm_state_name(vm->state),
			 vm_state_name(state), reason ? reason : "");
	vm->state = state;
	ignore_rc(api_set_str(&vm->reason,
			      reason)); /* a lost word changes no decision but the text */
}

void vm_take_state(struct vm *vm, const struct json *data)
{
	const struct json *exit = js_get(data, "exit");

	if (js_get_str(data, "accel"))
		ignore_rc(api_set_str(&vm->accel, js_get_str(data, "accel")));
	if (js_get_str(data, "accelReason"))
		ignore_rc(api_set_str(&vm->accel_reason, js_get_str(data, "accelReason")));
	if (js_get_str(data, "qemuVersion"))
		ignore_rc(api_set_str(&vm->qemu_version, js_get_str(data, "qemuVersion")));
	if (js_get_str(data, "machine"))
		ignore_rc(api_set_str(&vm->machine, js_get_str(data, "machine")));
	if (js_get(data, "cpu")) {
		js_unref(vm->cpu);
		vm->cpu = js_ref(js_get(data, "cpu"));
		vm->targets_of = 0;
	}
	if (js_get(data, "cpuFollows"))
		vm->cpu_follows = js_get_bool(data, "cpuFollows", false);
	if (js_get(data, "pid"))
		vm->qemu_pid = (pid_t)js_get_int(data, "pid", 0);
	if (exit)
		vm->exit_code = js_get(exit, "signal") ? 128 + js_get_int(exit, "signal", 9)
						       : js_get_int(exit, "code", 0);
	const char *state = js_get_str(data, "state");
	const char *reason = js_get_str(data, "reason");

	if (!state)
		return;
	/* An answer without a reason adds nothing to what an event told. */
	if (!reason && vm_state_parse(state) == vm->state)
		return;
	vm_set_state(vm, vm_state_parse(state), reason);
}

static void started(struct vm *vm, enum rc rc, const char *reason, const char *message)
{
	if (!vm->is_starting)
		return;
	vm->is_starting = false;
	vm->is_adopting = false;
	vm->host->cfg.pods->started(vm->pod, rc, reason, message);
}

static void close_launch_fds(struct vm *vm)
{
	vm->tap_fd = fd_close(vm->tap_fd);
	vm->netns_fd = fd_close(vm->netns_fd);
	vm->kernel_fd = fd_close(vm->kernel_fd);
	vm->initrd_fd = fd_close(vm->initrd_fd);
	for (size_t i = 0; i < vm->n_volumes; i++) {
		/* Image locks belong to the open file: a copy kept here would block the next start. */
		vm->volumes[i].v.top_fd = fd_close(vm->volumes[i].v.top_fd);
		vm->volumes[i].v.base_fd = fd_close(vm->volumes[i].v.base_fd);
	}
}

static void on_start(const struct ipc_reply *r, void *arg)
{
	struct vm *vm = arg;

	if (r->rc) {
		vm_log_failed(vm, "the VM could not be started", r->message);
		ignore_rc(api_set_str(&vm->sync_error, r->message));
		vm_sync(vm);
		started(vm, r->rc == RC_NOT_FOUND ? RC_IO : r->rc, "RunContainerError", r->message);
		return;
	}
	vm_take_state(vm, r->result);
	started(vm, RC_OK, NULL, NULL);
	vm_kick(vm);
}

struct fd_list {
	const char *names[VM_FDS_MAX];
	char text[VM_FDS_MAX][VMSPEC_NAME_MAX];
	int fds[VM_FDS_MAX];
	size_t n;
};

static void add_fd(struct fd_list *l, const char *name, int *fd)
{
	if (*fd < 0 || l->n == VM_FDS_MAX)
		return;
	(void)snprintf(l->text[l->n], VMSPEC_NAME_MAX, "%s", name);
	l->fds[l->n++] = STEAL_FD(*fd);
}

static void collect_fds(struct vm *vm, struct fd_list *l)
{
	char name[VMSPEC_NAME_MAX];

	l->n = 0;
	add_fd(l, VMSPEC_NETNS, &vm->netns_fd);
	add_fd(l, VMSPEC_KERNEL, &vm->kernel_fd);
	add_fd(l, VMSPEC_INITRD, &vm->initrd_fd);
	for (size_t i = 0; i < vm->spec->n_nics; i++)
		add_fd(l, vm->spec->nics[i].fd, &vm->tap_fd);
	for (size_t i = 0; i < vm->n_volumes; i++) {
		struct volume *v = &vm->volumes[i].v;

		vmspec_top_name(v->name, name);
		add_fd(l, name, &v->top_fd);
		vmspec_base_name(v->name, name);
		add_fd(l, name, &v->base_fd);
	}
}

/* At most LIMIT_IPC_FDS descriptors go with one message. */
static enum rc put_fds(struct vm *vm, struct fd_list *l, struct err *err)
{
	enum rc rc = RC_OK;

	for (size_t at = 0; at < l->n; at += LIMIT_IPC_FDS) {
		size_t n = MIN(l->n - at, LIMIT_IPC_FDS);
		struct json *names = js_new_array();

		for (size_t i = 0; !rc && i < n; i++)
			rc = js_append(names, js_new_str(l->text[at + i]));
		struct json *params = js_pack("{s:o}", "names", names);

		if (rc) {
			js_unref(params);
			for (size_t i = at; i < l->n; i++)
				fd_close(l->fds[i]);
			return err_set(err, rc, "out of memory");
		}
		rc = ipc_call(vm->ipc, NULL, "putFds", params, l->fds + at, n, CALL_DEADLINE,
			      on_ignored, vm, err);
		if (rc) {
			for (size_t i = at + n; i < l->n; i++)
				fd_close(l->fds[i]);
			return rc;
		}
	}
	return RC_OK;
}

static enum rc send_start(struct vm *vm, struct err *err)
{
	struct fd_list *l = mem_alloc(sizeof(*l));

	if (!l)
		return err_set(err, RC_NOMEM, "out of memory");
	collect_fds(vm, l);
	close_launch_fds(vm); /* what the spec does not use */
	enum rc rc = put_fds(vm, l, err);

	mem_free(l);
	if (rc)
		return rc;
	struct json *params = js_pack("{s:o, s:s}", "spec", launch_spec_encode(vm->spec), "mode",
				      vm->is_target ? "incoming" : "paused");

	return vm_call(vm, "start", params, START_DEADLINE, on_start, vm, err);
}

static void fail_start(struct vm *vm, const char *what, const struct err *err)
{
	vm_log_failed(vm, what, err->msg);
	ignore_rc(api_set_str(&vm->sync_error, err->msg));
	vm_sync(vm);
	started(vm, err->rc == RC_NOT_FOUND ? RC_IO : err->rc, "RunContainerError", err->msg);
}

/* What the launcher knows decides: nothing (start it), or a VM that is there (go on with it). */
static void on_query(const struct ipc_reply *r, void *arg)
{
	struct vm *vm = arg;
	struct err err = {0};

	if (r->rc) {
		vm_log_failed(vm, "the launcher does not tell its state", r->message);
		return; /* the connection ends, and is made again */
	}
	enum vm_state was = vm_state_parse(js_get_str(r->result, "state"));

	if (was == VM_NONE && vm->is_starting) {
		vm->has_answered = true;
		if (vm->is_adopting) {
			started(vm, RC_NOT_FOUND, NULL, NULL);
			return;
		}
		if (vm->spec && send_start(vm, &err))
			fail_start(vm, "the VM could not be started", &err);
		return;
	}
	vm_take_state(vm, r->result);
	vm_take_agent(vm, js_get(r->result, "agent"));
	if (js_get(r->result, "migration")) {
		mig_source_event(vm, "migration", js_get(r->result, "migration"));
		mig_target_event(vm, "migration", js_get(r->result, "migration"));
	}
	vm->has_answered = true; /* a move that was under way is known by now */
	if (was != VM_GONE)
		started(vm, RC_OK, NULL, NULL);
	vm_kick(vm);
}

static void on_ready(unsigned version, const struct json *hello, void *arg)
{
	struct vm *vm = arg;
	struct err err;

	(void)version;
	(void)hello;
	vm->connect_timer = ev_src_free(vm->connect_timer);
	vm->connect_until = 0;
	if (vm_call(vm, "query", NULL, CALL_DEADLINE, on_query, vm, &err))
		vm_log_failed(vm, "cannot ask the launcher", err.msg);
}

static void on_event(const char *name, const struct json *data, void *arg)
{
	struct vm *vm = arg;

	if (str_eq(name, "dirtyRate")) { /* changes nothing but a metric */
		vm_dirty_take(vm, data);
		return;
	}
	if (str_eq(name, "cpu"))
		vm->cpu_follows = false;
	if (str_eq(name, "state") || str_eq(name, "cpu"))
		vm_take_state(vm, data);
	if (str_eq(name, "agent"))
		vm_take_agent(vm, data);
	mig_source_event(vm, name, data);
	mig_target_event(vm, name, data);
	vm_kick(vm);
}

static void on_connect_timer(void *arg)
{
	struct vm *vm = arg;

	vm->connect_timer = ev_src_free(vm->connect_timer);
	connect_now(vm);
}

static void connect_later(struct vm *vm, const struct err *why)
{
	usec_t now = loop_now(vm->host->cfg.loop);
	struct err err = {0};

	if (now >= vm->connect_until && vm->is_starting) {
		err_copy(&err, why);
		fail_start(vm, "its launcher cannot be reached", &err);
		return;
	}
	if (now >= vm->connect_until) { /* its guest runs: this goes on, with another launcher */
		vm_log_failed(vm, "its launcher cannot be reached, going on trying", why->msg);
		vm->connect_until = now + CONNECT_DEADLINE;
		if (!vm->launcher_pid && spawn_launcher(vm, &err))
			vm_log_failed(vm, "cannot start a new launcher", err.msg);
	}
	vm->connect_wait = MIN(MAX(vm->connect_wait * 2, CONNECT_WAIT_MIN), CONNECT_WAIT_MAX);
	if (ev_timer_after(vm->host->cfg.loop, &vm->connect_timer, vm->connect_wait,
			   on_connect_timer, vm, &err))
		fail_start(vm, "its launcher cannot be reached", &err);
}

/* The launcher died or was never there: a new one finds QEMU by itself. */
static void on_closed(enum rc rc, const char *why, void *arg)
{
	struct vm *vm = arg;
	struct err err = {0};

	(void)rc;
	vm->ipc = ipc_client_free(vm->ipc);
	vm->has_answered = false;
	vm->cpu_follows = false;
	/* What it was asked, it may not have done; the next one knows nothing of it. */
	vm->kill_asked = false;
	vm->stop_again = vm->stop_grace >= 0;
	if (!vm->pod || vm->has_exited)
		return;
	log_warn("VM '%s/%s': lost its launcher (%s), starting another", vm->ns, vm->name,
		 why ? why : "");
	vm->host->n_launcher_deaths++;
	vm->connect_until = loop_now(vm->host->cfg.loop) + CONNECT_DEADLINE;
	vm->connect_wait = 0;
	vm->wants_launcher = vm->launcher_pid != 0;
	if (!vm->launcher_pid && spawn_launcher(vm, &err))
		vm_log_failed(vm, "cannot start a new launcher", err.msg);
	connect_now(vm);
}

static void connect_now(struct vm *vm)
{
	static const struct ipc_client_ops ops = {
		.on_ready = on_ready, .on_event = on_event, .on_closed = on_closed};
	CLEANUP(mem_freep)
	char *path = mem_printf("%s/launcher.sock", vm->host->cfg.pods->run_dir(vm->pod));
	struct err err = {0};
	enum rc rc =
		path ? ipc_client_open(&vm->ipc, vm->host->cfg.loop, path, LAUNCHER_NAME,
				       (struct ipc_version){1, 1}, HELLO_DEADLINE, &ops, vm, &err)
		     : err_set(&err, RC_NOMEM, "out of memory");

	if (rc)
		connect_later(vm, &err);
}

/* --- network, then start --- */

struct net_up {
	struct vm *vm;
	struct vmnet_config cfg;
	struct vmnet_port ports[VMNET_PORTS_MAX];
	char *netns_dir, *dir;
	char ns_name[64];
	char hostname[64];
	char domain[256];
	bool has_iface;
	bool keeps_tap; /* QEMU has the tap already */
	const char *vxlan;
	int ns_fd, tap_fd;
	enum rc rc;
	struct err err;
};

static enum rc set_ports(struct net_up *u, const Interface *iface, struct err *err)
{
	for (size_t i = 0; i < iface->n_ports; i++) {
		const Port *p = &iface->ports[i];

		if (i == VMNET_PORTS_MAX)
			return err_set(err, RC_TOO_BIG, "more than %d ports", VMNET_PORTS_MAX);
		u->ports[i].port = (uint16_t)API_GET(p, port, 0);
		u->ports[i].proto = p->protocol && strcasecmp(p->protocol, "udp") == 0 ? VMNET_UDP
				    : p->protocol && strcasecmp(p->protocol, "sctp") == 0
					    ? VMNET_SCTP
					    : VMNET_TCP;
	}
	u->cfg.ports = u->ports;
	u->cfg.n_ports = iface->n_ports;
	return RC_OK;
}

static enum rc set_net(struct net_up *u, const VirtualMachineInstance *vmi, struct err *err)
{
	struct vm *vm = u->vm;
	const Interface *iface;
	const Network *net;
	struct vmnet_config *c = &u->cfg;

	vmspec_pod_interface(vmi, &iface, &net);
	u->has_iface = iface != NULL;
	if (!iface)
		return RC_OK;
	if (!vm->address || !vm->mac)
		return err_set(err, RC_INVALID, "the pod has no address for interface '%s'",
			       iface->name);
	c->pod_if = "eth0";
	c->binding = iface->bridge ? VMNET_BRIDGE : VMNET_MASQUERADE;
	if (!iface->bridge && !iface->masquerade)
		return err_set(err, RC_UNSUPPORTED,
			       "interface '%s': only masquerade and bridge are supported",
			       iface->name);
	TRY(net_ip4_parse(vm->address, &c->address, err));
	TRY(net_mac_parse(vm->mac, &c->mac, err));
	TRY(net_mac_parse(vmspec_mac(iface, vm->mac), &c->guest_mac, err));
	c->prefix = vm->host->cfg.segment_prefix;
	c->gateway = vm->host->cfg.gateway;
	c->mtu = vm->host->cfg.mtu;
	c->vm_prefix = 24;
	TRY(net_cidr_parse(net->pod->vmNetworkCIDR ? net->pod->vmNetworkCIDR : "10.0.2.0/24",
			   &c->vm_network, &c->vm_prefix, err));
	c->owner = (uid_t)vm->uid;
	c->is_incoming = vm->is_target;
	c->dns[0] = vm->host->cfg.gateway;
	vmspec_hostname(vmi, u->hostname);
	(void)snprintf(u->domain, sizeof(u->domain), "%s.svc.cluster.local", vm->ns);
	c->hostname = u->hostname;
	c->domain = u->domain;
	c->search[0] = u->domain;
	c->search[1] = "svc.cluster.local";
	c->search[2] = "cluster.local";
	return set_ports(u, iface, err);
}

static void net_work(void *arg)
{
	struct net_up *u = arg;

	u->rc = net_ns_open(u->netns_dir, u->ns_name, &u->ns_fd, &u->err);
	if (u->rc || !u->has_iface)
		return;
	u->cfg.ns_fd = u->ns_fd;
	u->cfg.dir = u->dir;
	u->rc = vmnet_up(&u->cfg, u->keeps_tap ? NULL : &u->tap_fd, &u->err);
	if (!u->rc && !u->keeps_tap && !u->cfg.is_incoming)
		u->rc = vmnet_steering_end(u->vxlan, u->cfg.mac, &u->err);
}

static void net_free(struct net_up *u)
{
	fd_close(u->ns_fd);
	fd_close(u->tap_fd);
	mem_free(u->netns_dir);
	mem_free(u->dir);
	mem_free(u);
}

/* Everything that is known now makes the spec; the launcher gets it when it is connected. */
static enum rc make_spec(struct vm *vm, struct err *err)
{
	const VirtualMachineInstance *vmi = vm_vmi(vm);
	struct vmspec_disk disks[VM_VOLUMES_MAX];
	struct vmspec_env env = {.probe = vm->host->cfg.probe,
				 .accel = vm->host->cfg.accel,
				 .host_model =
					 vm->host->cfg.pods->annotation(vm->pod, ANN_CPU_MODEL),
				 .disks = disks,
				 .n_disks = vm->n_volumes,
				 .uid = vm->uid,
				 .mac = vm->mac,
				 .mtu = vm->host->cfg.mtu,
				 .has_initrd = vm->initrd_fd >= 0,
				 .memory_limit = vm->host->cfg.pods->memory_limit(vm->pod),
				 .pod_uid = vm->host->cfg.pods->uid(vm->pod)};

	if (!vmi)
		return err_set(err, RC_CONFLICT, "the VMI is gone");
	for (size_t i = 0; i < vm->n_volumes; i++) {
		const struct volume *v = &vm->volumes[i].v;

		disks[i] = (struct vmspec_disk){.volume = v->name,
						.top_format = v->top_format,
						.base_format = v->base_format,
						.has_base = v->base_fd >= 0,
						.moves = volume_moves(v),
						.has_direct_io = v->has_direct_io,
						.is_block = v->is_block};
	}
	vm->spec = launch_spec_free(vm->spec);
	return vmspec_build(vmi, &env, &vm->spec, err);
}

static void net_after(void *arg)
{
	struct net_up *u = arg;
	struct vm *vm = u->vm;
	struct err err = {0};

	if (!vm_job_done(vm)) {
		net_free(u);
		return;
	}
	if (u->rc) {
		fail_start(vm, "its network could not be made", &u->err);
		net_free(u);
		return;
	}
	if (!u->keeps_tap) {
		vm->netns_fd = STEAL_FD(u->ns_fd);
		vm->tap_fd = STEAL_FD(u->tap_fd);
		if (make_spec(vm, &err))
			fail_start(vm, "the VM cannot be described", &err);
		else
			connect_now(vm);
	}
	net_free(u);
}

static enum rc start_net(struct vm *vm, bool keeps_tap, struct err *err)
{
	struct net_up *u = mem_alloc(sizeof(*u));
	const VirtualMachineInstance *vmi = vm_vmi(vm);
	struct vm_pod_net pn;

	if (!u)
		return err_set(err, RC_NOMEM, "out of memory");
	u->vm = vm;
	u->ns_fd = u->tap_fd = -1;
	u->keeps_tap = keeps_tap;
	u->vxlan = vm->host->cfg.net.vxlan;
	vm->host->cfg.pods->net(vm->pod, &pn);
	(void)snprintf(u->ns_name, sizeof(u->ns_name), "%s", pn.ns_name);
	u->netns_dir = mem_printf("%s/netns", vm->host->cfg.run_dir);
	u->dir = mem_printf("%s/" VMNET_DIR, vm->host->cfg.pods->run_dir(vm->pod));
	enum rc rc = u->netns_dir && u->dir ? RC_OK : err_set(err, RC_NOMEM, "out of memory");

	if (!rc)
		rc = vmi ? set_net(u, vmi, err) : err_set(err, RC_CONFLICT, "the VMI is gone");
	/* A start is not followed by a cleanup before it has been answered, and starts need not wait for each other.  A
	 * pod that is found may end at once: what is made for it here must come before what cleaning up undoes. */
	if (!rc)
		rc = keeps_tap ? pool_run_ordered(vm->host->cfg.loop, vm->host->cfg.net_queue,
						  net_work, net_after, u, err)
			       : pool_run(vm->host->cfg.loop, net_work, net_after, u, err);
	if (rc)
		net_free(u);
	else
		vm->jobs++;
	return rc;
}

void vm_start(struct vm *vm)
{
	struct err err = {0};

	vm->is_starting = true;
	vm->is_adopting = false;
	vm->needs_tidy = false; /* it starts anew */
	vm->connect_until = loop_now(vm->host->cfg.loop) + CONNECT_DEADLINE;
	vm->connect_wait = 0;
	/* The launcher starts while the network is made. */
	enum rc rc = vm->launcher_pid || vm->ipc ? RC_OK : spawn_launcher(vm, &err);

	if (!rc)
		rc = start_net(vm, false, &err);
	if (rc)
		fail_start(vm, "the VM could not be started", &err);
}

static bool has_socket(const struct vm *vm)
{
	CLEANUP(mem_freep)
	char *path = mem_printf("%s/launcher.sock", vm->host->cfg.pods->run_dir(vm->pod));
	struct stat st;

	return path && lstat(path, &st) == 0;
}

static void adopt_later(void *arg)
{
	struct vm *vm = arg;
	struct err err = {0};

	vm->connect_timer = ev_src_free(vm->connect_timer);
	if (!has_socket(vm)) {
		started(vm, RC_NOT_FOUND, NULL, NULL);
		return;
	}
	vm->host->n_adopted++;
	vm->connect_until = loop_now(vm->host->cfg.loop) + CONNECT_DEADLINE;
	vm->connect_wait = 0;
	static const struct ipc_client_ops ops = {
		.on_ready = on_ready, .on_event = on_event, .on_closed = on_closed};
	CLEANUP(mem_freep)
	char *path = mem_printf("%s/launcher.sock", vm->host->cfg.pods->run_dir(vm->pod));

	if (!path || ipc_client_open(&vm->ipc, vm->host->cfg.loop, path, LAUNCHER_NAME,
				     (struct ipc_version){1, 1}, HELLO_DEADLINE, &ops, vm, &err)) {
		/* Its launcher died while no agent was there: a new one finds QEMU, if there is one. */
		if (spawn_launcher(vm, &err)) {
			fail_start(vm, "cannot start a new launcher", &err);
			return;
		}
		connect_now(vm);
	}
	if (vm_vmi(vm) && start_net(vm, true, &err))
		vm_log_failed(vm, "its network could not be checked", err.msg);
}

void vm_adopt(struct vm *vm)
{
	struct err err;

	vm->is_starting = true;
	vm->is_adopting = true;
	vm->needs_tidy = true;
	if (ev_defer(vm->host->cfg.loop, &vm->connect_timer, adopt_later, vm, &err))
		log_error("VM '%s/%s': %s", vm->ns, vm->name, err.msg);
}
