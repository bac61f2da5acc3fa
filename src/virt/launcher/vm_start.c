#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "virt/launcher/caps.h"
#include "virt/launcher/cgroup.h"
#include "virt/launcher/launcher_int.h"

/* From `start` to a QEMU that answers:
 *
 *   spec checked -> accelerator proven -> files and sockets -> vm.json -> jail -> pids recorded
 *   -> our copies of all descriptors closed -> QMP ready -> answer
 *
 * Any failure ends in vm_start_failed(): the caller is told, what had started is ended.
 */

struct prepared {
	int qmp_fd[2];
	int serial_fd, agent_fd, serial_log_fd, stderr_fd;
	struct argv argv;
};

struct proof {
	struct launcher *l;
	struct kvm_verdict verdict;
	char cache[PATH_LEN];
};

static void tail_of_log(const struct launcher *l, char *out, size_t n)
{
	CLEANUP(mem_freep) char *text = NULL;
	char path[PATH_LEN];
	size_t len = 0;

	out[0] = '\0';
	path_in(l, "qemu.log", path);
	if (file_read(path, 1 << 20, &text, &len, NULL) || !len)
		return;
	size_t keep = MIN(len, n - 1);

	memcpy(out, text + len - keep, keep);
	out[keep] = '\0';
	for (char *p = out; *p; p++)
		if ((unsigned char)*p < 0x20)
			*p = ' ';
}

void vm_start_failed(struct launcher *l, enum rc rc, const char *why)
{
	struct ipc_call *call = STEAL(l->start_call);
	char tail[300];

	l->start_deadline = ev_src_free(l->start_deadline);
	if (!call)
		return;
	tail_of_log(l, tail, sizeof(tail));
	log_error("vm: cannot start: %s%s%s", why, tail[0] ? "; QEMU said: " : "", tail);
	ipc_call_fail(call, rc, "%s%s%s", why, tail[0] ? "; QEMU said: " : "", tail);
	l->jail = jail_start_free(l->jail);
	if (l->qemu.pidfd >= 0)
		vm_kill(l, "StartFailed", USEC_PER_SEC);
	else if (l->state == VM_STARTING)
		vm_move(l, VME_EXITS, "StartFailed");
	vm_close_fds(l);
}

static void on_start_late(void *arg)
{
	vm_start_failed(arg, RC_TIMEOUT, "QEMU did not answer in time");
}

/* --- files and sockets --- */

static enum rc listen_at(const struct launcher *l, const char *name, int *out, struct err *err)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	char path[PATH_LEN];

	path_in(l, name, path);
	if (strlen(path) >= sizeof(addr.sun_path))
		return err_set(err, RC_INVALID, "socket path '%s' is too long", path);
	memcpy(addr.sun_path, path, strlen(path));
	unlink(path);
	CLEANUP(fd_closep) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || fchmod(fd, 0600) < 0 ||
	    bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 || listen(fd, 4) < 0)
		return err_set_sys(err, errno, "cannot listen at '%s'", path);
	*out = STEAL_FD(fd);
	return RC_OK;
}

static enum rc open_log(const struct launcher *l, const char *name, int *out, struct err *err)
{
	char path[PATH_LEN];

	path_in(l, name, path);
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0640);

	if (fd < 0)
		return err_set_sys(err, errno, "cannot open '%s'", path);
	*out = fd;
	return RC_OK;
}

static enum rc make_folders(const struct launcher *l, struct err *err)
{
	char root[PATH_LEN], creds[PATH_LEN];

	path_in(l, "root", root);
	path_in(l, "creds", creds);
	if (mkdir(root, 0755) < 0 && errno != EEXIST)
		return err_set_sys(err, errno, "cannot make '%s'", root);
	if (mkdir(creds, 0750) < 0 && errno != EEXIST)
		return err_set_sys(err, errno, "cannot make '%s'", creds);
	if (chown(creds, 0, (gid_t)l->spec->gid) < 0 && geteuid() == 0)
		return err_set_sys(err, errno, "cannot own '%s'", creds);
	return RC_OK;
}

/* QEMU takes an inherited descriptor only when access mode and O_DIRECT are what it would have opened
 * the file with. */
static enum rc set_mode(const struct launcher *l, const struct launch_disk *d, size_t layer,
			struct err *err)
{
	const struct qemu_fd *f = qemu_fd_find(l->fds, l->n_fds, d->images[layer].fd);
	int want = d->read_only || layer > 0 ? O_RDONLY : O_RDWR;
	int direct = d->cache == LAUNCH_CACHE_NONE ? O_DIRECT : 0;
	int flags = f ? fcntl(f->fd, F_GETFL) : -1;

	if (!f)
		return RC_OK; /* named by qemu_cmdline() */
	if (flags < 0)
		return err_set_sys(err, errno, "disk '%s'", d->name);
	if ((flags & O_ACCMODE) != want)
		return err_set(err, RC_INVALID, "disk '%s': '%s' must be opened for %s", d->name,
			       f->name, want == O_RDONLY ? "reading" : "reading and writing");
	if ((flags & O_DIRECT) != direct && fcntl(f->fd, F_SETFL, (flags & ~O_DIRECT) | direct) < 0)
		return err_set(err, RC_UNSUPPORTED,
			       "disk '%s': its storage cannot do direct I/O, so cache none is not "
			       "possible",
			       d->name);
	return RC_OK;
}

static enum rc set_modes(const struct launcher *l, struct err *err)
{
	enum rc rc = RC_OK;

	for (size_t i = 0; !rc && i < l->spec->n_disks; i++)
		for (size_t k = 0; !rc && k < l->spec->disks[i].n_images; k++)
			rc = set_mode(l, &l->spec->disks[i], k, err);
	return rc;
}

static void prepared_fini(struct prepared *p)
{
	fd_close(p->qmp_fd[0]);
	fd_close(p->qmp_fd[1]);
	fd_close(p->serial_fd);
	fd_close(p->agent_fd);
	fd_close(p->serial_log_fd);
	fd_close(p->stderr_fd);
	argv_fini(&p->argv);
}

static enum rc prepare(struct launcher *l, struct prepared *p, struct err *err)
{
	struct qemu_env env = {.mode = l->mode,
			       .kvm = str_eq(l->accel, "kvm"),
			       .qemu = l->config.qemu,
			       .fds = l->fds,
			       .n_fds = l->n_fds,
			       .realtime = loop_realtime(l->loop)};
	enum rc rc = make_folders(l, err);

	if (!rc)
		rc = set_modes(l, err);
	if (!rc)
		rc = listen_at(l, "qmp0.sock", &p->qmp_fd[0], err);
	if (!rc)
		rc = listen_at(l, "qmp1.sock", &p->qmp_fd[1], err);
	if (!rc && l->spec->serial_console)
		rc = listen_at(l, "serial0.sock", &p->serial_fd, err);
	if (!rc && l->spec->guest_agent)
		rc = listen_at(l, GUEST_AGENT_SOCKET, &p->agent_fd, err);
	if (!rc && l->spec->serial_console && l->spec->serial_log)
		rc = open_log(l, "serial.log", &p->serial_log_fd, err);
	if (!rc)
		rc = open_log(l, "qemu.log", &p->stderr_fd, err);
	if (!rc)
		rc = cgroup_prepare(l->config.cgroup_root, &l->spec->cgroup, &l->cgroup_fd, err);
	if (rc)
		return rc;
	l->cgroup = l->cgroup_fd >= 0;
	env.qmp_fd[0] = p->qmp_fd[0];
	env.qmp_fd[1] = p->qmp_fd[1];
	env.serial_fd = p->serial_fd;
	env.agent_fd = p->agent_fd;
	env.serial_log_fd = p->serial_log_fd;
	return qemu_cmdline(l->spec, &env, &p->argv, err);
}

/* --- the jail --- */

static void on_jailed(const struct jail_result *r, void *arg)
{
	struct launcher *l = arg;
	struct err err = {0};
	enum rc rc = r->rc;

	l->reaper.pid = r->reaper;
	l->qemu.pid = r->qemu;
	snprintf(err.msg, sizeof(err.msg), "%s", r->message);
	vm_close_fds(l); /* QEMU has its own now; image locks must be its alone */
	l->jail = jail_start_free(l->jail);
	if (!rc && !(proc_identify(&l->reaper) && proc_identify(&l->qemu)))
		rc = err_set(&err, RC_IO, "QEMU ended at once");
	if (!rc)
		rc = proc_open(&l->reaper, &err);
	if (!rc)
		rc = proc_open(&l->qemu, &err);
	if (!rc)
		rc = record_save(l, &err);
	if (rc) {
		if (r->reaper > 0 && l->qemu.pidfd < 0)
			kill(r->reaper,
			     SIGKILL); /* as pid 1 of its namespace it takes QEMU along */
		vm_start_failed(l, rc, err.msg);
		return;
	}
	if (caps_enter(STAGE_RUN, &err))
		log_warn("vm: keeping more privileges than needed: %s", err.msg);
	vm_watch(l);
	vm_connect(l);
}

static size_t keep_list(const struct launcher *l, const struct prepared *p, int *keep)
{
	const int own[] = {p->qmp_fd[0], p->qmp_fd[1], p->serial_fd, p->agent_fd, p->serial_log_fd};
	const struct launch_spec *s = l->spec;
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(own); i++)
		if (own[i] >= 0)
			keep[n++] = own[i];
	for (size_t i = 0; i < l->n_fds; i++) {
		const char *name = l->fds[i].name;
		bool jails = str_eq(name, s->netns_fd) ||
			     (s->kernel && (str_eq(name, s->kernel->kernel_fd) ||
					    str_eq(name, s->kernel->initrd_fd)));

		if (!jails)
			keep[n++] = l->fds[i].fd;
	}
	return n;
}

static int fd_named(const struct launcher *l, const char *name)
{
	const struct qemu_fd *fd = name ? qemu_fd_find(l->fds, l->n_fds, name) : NULL;

	return fd ? fd->fd : -1;
}

static enum rc launch(struct launcher *l, struct err *err)
{
	struct prepared p = {{-1, -1}, -1, -1, -1, -1, {0}};
	int keep[JAIL_MAX_FDS];
	enum rc rc = prepare(l, &p, err);

	if (!rc)
		rc = record_save(l, err);
	if (!rc) {
		struct jail_config c = {
			.dir = l->config.dir,
			.uid = l->spec->uid,
			.gid = l->spec->gid,
			.netns_fd = fd_named(l, l->spec->netns_fd),
			.kvm = str_eq(l->accel, "kvm"),
			.kernel_fd =
				fd_named(l, l->spec->kernel ? l->spec->kernel->kernel_fd : NULL),
			.initrd_fd =
				fd_named(l, l->spec->kernel ? l->spec->kernel->initrd_fd : NULL),
			.cgroup_fd = l->cgroup_fd,
			.stderr_fd = p.stderr_fd,
			.oom_score_adj = l->spec->oom_score_adj,
			.argv = p.argv.v,
			.keep = keep,
			.n_keep = keep_list(l, &p, keep),
		};

		rc = jail_start(&l->jail, l->loop, &c, START_TIMEOUT / 2, on_jailed, l, err);
	}
	/* The log stays open here to be kept short (console.c); everything else is QEMU's by now. */
	l->serial_log_fd = STEAL_FD(p.serial_log_fd);
	prepared_fini(&p);
	return rc;
}

/* --- the accelerator --- */

static void choose_accel(struct launcher *l, const struct kvm_verdict *v)
{
	struct err err = {0};
	enum rc rc;

	if (l->spec->accel == LAUNCH_ACCEL_KVM && !v->works) {
		snprintf(err.msg, sizeof(err.msg), "KVM is demanded but not proven here: %s",
			 v->reason);
		vm_start_failed(l, RC_UNSUPPORTED, err.msg);
		return;
	}
	snprintf(l->accel, sizeof(l->accel), "%s", v->works ? "kvm" : "tcg");
	snprintf(l->accel_reason, sizeof(l->accel_reason), "%s", v->reason);
	rc = launch(l, &err);
	if (rc)
		vm_start_failed(l, rc, err.msg);
}

static void proof_work(void *arg)
{
	struct proof *p = arg;

	kvm_probe_cached(p->cache, &p->verdict);
}

static void proof_after(void *arg)
{
	struct proof *p = arg;
	struct launcher *l = p->l;

	if (l->start_call)
		choose_accel(l, &p->verdict);
	mem_free(p);
}

static enum rc find_accel(struct launcher *l, struct err *err)
{
	if (l->spec->accel == LAUNCH_ACCEL_TCG) {
		struct kvm_verdict v = {.works = false, .reason = "the spec asks for emulation"};

		choose_accel(l, &v);
		return RC_OK;
	}
	struct kvm_verdict remembered;

	if (kvm_probe_remembered(l->config.kvm_cache, &remembered)) {
		choose_accel(l, &remembered);
		return RC_OK;
	}
	struct proof *p = mem_alloc(sizeof(*p));

	if (!p)
		return err_set(err, RC_NOMEM, "out of memory");
	p->l = l;
	snprintf(p->cache, sizeof(p->cache), "%s", l->config.kvm_cache);
	enum rc rc = pool_run(l->loop, proof_work, proof_after, p, err);

	if (rc)
		mem_free(p);
	return rc;
}

/* --- start --- */

static enum rc take_spec(struct launcher *l, const struct json *params, struct err *err)
{
	static const char *const modes[] = {"run", "paused", "incoming"};
	const char *mode = js_get_str(params, "mode");
	enum rc rc;

	l->mode = QEMU_MODE__MAX;
	for (size_t i = 0; i < ARRAY_SIZE(modes); i++)
		if (str_eq(mode, modes[i]))
			l->mode = (enum qemu_mode)i;
	if (l->mode == QEMU_MODE__MAX)
		return err_set(err, RC_INVALID, "mode: must be run, paused or incoming");
	l->spec = launch_spec_free(l->spec);
	rc = launch_spec_decode(js_get(params, "spec"), &l->spec, err);
	if (!rc)
		rc = launch_spec_check(l->spec, err);
	if (rc)
		return err_prepend(err, "spec");
	if (l->mode == QEMU_INCOMING && str_eq(l->spec->machine, "q35"))
		return err_set(err, RC_INVALID,
			       "spec: machine: the target of a move needs the versioned type");
	if (fd_named(l, l->spec->netns_fd) < 0)
		return err_set(err, RC_INVALID, "netnsFd: no descriptor named '%s' was handed over",
			       l->spec->netns_fd);
	snprintf(l->machine, sizeof(l->machine), "%s", l->spec->machine);
	return RC_OK;
}

void vm_start(struct launcher *l, struct ipc_call *call, const struct json *params,
	      struct ipc_fds *fds)
{
	struct err err = {0};
	enum rc rc;

	if (l->state != VM_NONE || l->start_call) {
		ipc_call_fail(call, RC_CONFLICT, "this launcher's VM has been started already");
		return;
	}
	rc = take_spec(l, params, &err);
	if (!rc)
		rc = ev_timer_after(l->loop, &l->start_deadline, START_TIMEOUT, on_start_late, l,
				    &err);
	if (rc) {
		ipc_call_fail_err(call, &err);
		return;
	}
	l->start_call = call;
	vm_move(l, VME_LAUNCH, "Starting");
	rc = find_accel(l, &err);
	if (rc)
		vm_start_failed(l, rc, err.msg);
}
