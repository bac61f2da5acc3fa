#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "virt/launcher/caps.h"
#include "virt/launcher/cgroup.h"
#include "virt/launcher/launcher_int.h"
#include "virt/launcher/move_int.h"

bool vm_is_alive(const struct launcher *l)
{
	return l->state != VM_NONE && l->state != VM_GONE;
}

/* The only function that writes l->state. */
void vm_move(struct launcher *l, enum vm_event e, const char *reason)
{
	enum vm_state from = l->state, next;

	if (!vm_state_next(from, e, &next)) {
		log_debug("vm: '%s' is not allowed in state %s", vm_event_name(e),
			  vm_state_name(from));
		return;
	}
	if (next == from)
		return;
	l->state = next;
	l->since = loop_realtime(l->loop);
	snprintf(l->reason, sizeof(l->reason), "%s", reason);
	log_info("vm '%s': %s -> %s on %s (%s)", l->spec ? l->spec->name : "?", vm_state_name(from),
		 vm_state_name(next), vm_event_name(e), reason);
	assert((l->state == VM_GONE) == (e == VME_EXITS));
	ipc_server_event(l->server, "state",
			 js_pack("{s:s, s:s, s:I, s:O*, s:b}", "state", vm_state_name(next),
				 "reason", l->reason, "since", (int64_t)l->since, "exit", l->exit,
				 "cpuFollows", l->asking_cpu != NULL));
	guest_agent_state(l);
}

void vm_guest_event(struct launcher *l, const char *what, const char *detail)
{
	log_info("vm: guest event '%s'%s%s", what, detail ? ": " : "", detail ? detail : "");
	ipc_server_event(l->server, "guest",
			 js_pack("{s:s, s:s*}", "what", what, "detail", detail));
}

void vm_close_fds(struct launcher *l)
{
	for (size_t i = 0; i < l->n_fds; i++) {
		fd_close(l->fds[i].fd);
		mem_free(l->fds[i].name);
	}
	l->n_fds = 0;
	l->cgroup_fd = fd_close(l->cgroup_fd);
}

/* --- ending --- */

static void send_signal(struct launcher *l, int signo)
{
	if (l->qemu.pidfd >= 0 &&
	    syscall(SYS_pidfd_send_signal, l->qemu.pidfd, signo, NULL, 0) < 0 && errno != ESRCH)
		log_error("vm: cannot signal QEMU: %s", strerror(errno));
}

static void on_kill_late(void *arg)
{
	struct launcher *l = arg;

	log_warn("vm: QEMU did not end when asked, killing it");
	send_signal(l, SIGKILL);
}

/* SIGTERM is QEMU's own orderly end: caches are written, locks given back. */
void vm_kill(struct launcher *l, const char *reason, usec_t after)
{
	struct err err = {0};

	if (!l->killed)
		snprintf(l->kill_reason, sizeof(l->kill_reason), "%s", reason);
	l->killed = true;
	send_signal(l, SIGTERM);
	send_signal(l, SIGCONT); /* a stopped process would not hear the first */
	if (l->kill_timer) {
		ev_timer_rearm(l->kill_timer, after);
	} else if (ev_timer_after(l->loop, &l->kill_timer, after, on_kill_late, l, &err)) {
		log_error("vm: %s; killing QEMU at once", err.msg);
		send_signal(l, SIGKILL);
	}
}

static const char *exit_reason(const struct launcher *l)
{
	if (l->killed)
		return l->kill_reason;
	if (l->state == VM_SHUTDOWN)
		return l->reason;
	return js_get_int(l->exit, "signal", 0) ? "QemuKilled" : "QemuExited";
}

/* The reaper has ended: what it wrote, if anything, is the last word. */
static void on_reaper_gone(uint32_t revents, void *arg)
{
	struct launcher *l = arg;
	struct err err = {0};
	char reason[32];

	l->reaper_io = ev_src_free(l->reaper_io);
	l->exit = js_unref(l->exit);
	if (jail_read_exit(l->config.dir, &l->exit, &err))
		l->exit = js_pack("{s:s}", "unknown", "the reaper was killed, and QEMU with it");
	proc_close(&l->reaper);
	proc_close(&l->qemu);
	l->grace_timer = ev_src_free(l->grace_timer);
	l->kill_timer = ev_src_free(l->kill_timer);
	l->qmp_retry = ev_src_free(l->qmp_retry);
	reboot_forget(l);
	snprintf(reason, sizeof(reason), "%s", exit_reason(l));
	if (l->cgroup && !cgroup_remove(l->config.cgroup_root, &l->spec->cgroup))
		log_warn("vm: its cgroup could not be removed, leaving it");
	move_qemu_gone(l);
	vm_start_failed(l, RC_IO, "QEMU ended while it started");
	l->seq = qmp_seq_free(l->seq);
	l->asking_cpu = guest_cpu_free(l->asking_cpu);
	l->asking_devices = guest_devices_free(l->asking_devices);
	l->asking_usage = usage_free(l->asking_usage);
	l->meter = meter_free(l->meter);
	l->qmp = qmp_free(l->qmp);
	vm_fail_waiting(l, RC_CLOSED, "QEMU has ended");
	display_end(l, "QEMU has ended");
	console_free(l);
	vm_move(l, VME_EXITS, reason);
	launcher_check_idle(l);
	methods_go_on(l);
}

void vm_watch(struct launcher *l)
{
	struct err err = {0};

	if (ev_io(l->loop, &l->reaper_io, l->reaper.pidfd, EPOLLIN, on_reaper_gone, l, &err))
		log_error("vm: cannot watch QEMU, its end will go unnoticed: %s", err.msg);
	console_watch_log(l);
}

/* --- adoption --- */

void vm_adopt(struct launcher *l)
{
	struct err err = {0};
	enum rc rc = record_load(l, &err);

	if (rc == RC_NOT_FOUND)
		return;
	if (rc) {
		log_error("cannot read the record of this VM, looking after nothing: %s", err.msg);
		l->spec = launch_spec_free(l->spec);
		return;
	}
	move_load(l);
	vm_move(l, VME_LAUNCH, "Adopted");
	l->adopting = true;
	rc = proc_open(&l->reaper, &err);
	if (!rc)
		rc = proc_open(&l->qemu, &err);
	if (rc) {
		/* It ended while nobody looked (or never came to life): exit.json tells how, if the reaper lived. */
		log_info("vm '%s' has ended: %s", l->spec->name, err.msg);
		on_reaper_gone(0, l);
		return;
	}
	rc = record_save(l, &err); /* the pids may have been missing */
	if (rc)
		log_warn("vm: its record stays as it was: %s", err.msg);
	if (caps_enter(STAGE_RUN, &err))
		log_warn("vm: keeping more privileges than needed: %s", err.msg);
	vm_watch(l);
	vm_connect(l);
}

/* --- query --- */

struct json *vm_describe(const struct launcher *l)
{
	static const char *const modes[] = {"run", "paused", "incoming"};
	char version[32] = "";
	const struct launch_spec *s = l->spec;

	if (l->version[0])
		snprintf(version, sizeof(version), "%d.%d.%d", l->version[0], l->version[1],
			 l->version[2]);
	struct json *j = js_pack(
		"{s:s, s:s, s:I, s:i, s:i, s:O*, s:o*, s:O*, s:b, s:I, s:o*, s:I, s:I, s:o*}",
		"state", vm_state_name(l->state), "reason", l->reason, "since", (int64_t)l->since,
		"pid", (int)l->qemu.pid, "reaperPid", (int)l->reaper.pid, "exit", l->exit,
		"migration", move_describe(l), "cpu", l->cpu, "cpuFollows", l->asking_cpu != NULL,
		"qmpCommands", (int64_t)(l->qmp ? qmp_n_commands(l->qmp) : 0), "dirtyRate",
		meter_json(l), "meterCommands", meter_commands(l), "usageCommands",
		l->usage_commands, "agent", guest_agent_json(l));

	if (!j || !s)
		return j;
	if (js_set(j, "mode", js_new_str(modes[l->mode])) ||
	    js_set(j, "accel", js_new_str(l->accel)) ||
	    js_set(j, "accelReason", js_new_str(l->accel_reason)) ||
	    js_set(j, "machine", js_new_str(l->machine)) ||
	    js_set(j, "qemuVersion", js_new_str(version)) ||
	    js_set(j, "vmiUid", js_new_str(s->vmi_uid)) || js_set(j, "name", js_new_str(s->name)) ||
	    js_set(j, "cgroup", js_new_str(l->cgroup && s->cgroup.path ? s->cgroup.path : "none")))
		return js_unref(j);
	return j;
}
