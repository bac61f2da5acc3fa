#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/str.h"
#include "virt/launcher/launcher_int.h"
#include "virt/launcher/move_int.h"

/* The monitor: connecting to one of the two sockets, learning the run state, events, simple commands.
 * QEMU is the truth: a state is entered when QEMU says so, never when we asked for it. */

/* A fresh QEMU greets when it has set everything up, which takes its time on a busy machine; one that is
 * found running greets at once, or its socket is held by somebody else. */
static const usec_t HANDSHAKE_FRESH = 15 * USEC_PER_SEC, HANDSHAKE_FOUND = 2 * USEC_PER_SEC,
		    RETRY = USEC_PER_SEC / 5;

/* --- answering start --- */

static void answer_start(struct launcher *l)
{
	struct ipc_call *call = STEAL(l->start_call);
	char version[32];

	l->start_deadline = ev_src_free(l->start_deadline);
	if (!call)
		return;
	snprintf(version, sizeof(version), "%d.%d.%d", l->version[0], l->version[1], l->version[2]);
	ipc_call_done(call,
		      js_pack("{s:s, s:s, s:s, s:i, s:s}", "accel", l->accel, "accelReason",
			      l->accel_reason, "qemuVersion", version, "pid", (int)l->qemu.pid,
			      "state", vm_state_name(l->state)),
		      NULL, 0);
}

/* --- run states --- */

/* query-status' value, met after connecting. */
static void take_run_state(struct launcher *l, const char *s)
{
	static const struct {
		const char *name;
		enum vm_event event;
		const char *reason;
	} map[] = {
		{"running", VME_RUNS, "Started"},
		{"prelaunch", VME_HOLDS, "StartedPaused"},
		{"inmigrate", VME_WAITS, "MigrationIncoming"},
		{"paused", VME_STOPS, "PausedByUser"},
		{"io-error", VME_STOPS, "PausedIOError"},
		{"postmigrate", VME_MIGRATED, "MigrationCompleted"},
		{"finish-migrate", VME_SWITCHES, "MigrationSwitch"},
		{"shutdown", VME_POWEROFF, "GuestShutdown"},
		{"guest-panicked", VME_CRASHES, "GuestPanicked"},
		{"internal-error", VME_CRASHES, "InternalError"},
		{"watchdog", VME_STOPS, "PausedIOError"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(map); i++)
		if (str_eq(s, map[i].name)) {
			vm_move(l, map[i].event, l->adopting ? "Adopted" : map[i].reason);
			return;
		}
	log_warn("vm: QEMU is in the state '%s', which has no name here; going on", s ? s : "?");
}

static void on_status(const struct qmp_seq_result *r, void *arg)
{
	struct launcher *l = arg;

	if (r->rc) {
		log_warn("vm: %s: %s", r->command, r->desc);
		vm_start_failed(l, r->rc, r->desc);
		return; /* a closed monitor is opened again by on_closed */
	}
	const char *s = js_get_str(r->value, "status");

	guest_cpu_ask(l); /* first: whoever hears of the state knows that the CPU follows */
	take_run_state(l, s);
	if (l->adopting)
		move_adopt(l, s);
	l->adopting = false;
	if (l->state == VM_SHUTDOWN) /* found so: nobody is left to end it */
		vm_kill(l, "GuestShutdown", 2 * USEC_PER_SEC);
	answer_start(l);
	meter_start(l);
	guest_agent_start(l);
	methods_go_on(l);
}

static void on_ready(const struct json *greeting, void *arg)
{
	struct launcher *l = arg;
	struct qmp_seq *s = NULL;
	struct err err = {0};
	enum rc rc;

	qmp_version(l->qmp, l->version);
	l->seq = qmp_seq_free(l->seq);
	rc = qmp_seq_new(&s, QMP_TIMEOUT, &err);
	if (!rc) {
		qmp_seq_add_plain(s, "query-status", SEQ_MUST);
		rc = qmp_seq_run(s, &l->seq, l->qmp, on_status, l, &err);
	}
	if (rc)
		vm_start_failed(l, rc, err.msg);
}

/* --- events --- */

static void on_stop(struct launcher *l, usec_t at)
{
	l->last_stop = at ? at : loop_realtime(l->loop);
	if (move_owns_stop(l)) /* the switch of a move: its own events follow */
		return;
	if (reboot_owns_run_state(l, false))
		return;
	if (l->state == VM_SHUTDOWN || l->state == VM_CRASHED)
		return;
	vm_move(l, VME_STOPS, l->io_error ? "PausedIOError" : "PausedByUser");
	l->io_error = false;
}

static void on_resume(struct launcher *l, usec_t at)
{
	l->last_resume = at ? at : loop_realtime(l->loop);
	if (move_owns_resume(l) || reboot_owns_run_state(l, true))
		return;
	vm_move(l, VME_RUNS,
		l->state == VM_STARTING || l->state == VM_PRELAUNCH ? "Started" : "Unpaused");
}

void vm_powered_off(struct launcher *l, const char *reason)
{
	vm_move(l, VME_POWEROFF, reason);
	vm_kill(l, "GuestShutdown", 5 * USEC_PER_SEC);
	snprintf(l->kill_reason, sizeof(l->kill_reason), "%s", l->reason);
}

static void on_shutdown(struct launcher *l, const struct json *data)
{
	const char *reason = js_get_str(data, "reason");

	/* Our own SIGTERM and quit are met as QEMU's end. */
	if (l->killed || str_eq(reason, "host-qmp-quit") || str_eq(reason, "host-signal"))
		return;
	if (str_eq(reason, "guest-shutdown") && reboot_takes_shutdown(l))
		return;
	vm_powered_off(l, str_eq(reason, "guest-reset") ? "GuestReset"
			  : l->grace_end		? "HostShutdown"
							: "GuestShutdown");
}

static void on_io_error(struct launcher *l, const struct json *data)
{
	char detail[160];
	const char *device = js_get_str(data, "node-name"), *op = js_get_str(data, "operation"),
		   *action = js_get_str(data, "action"), *why = js_get_str(data, "reason");

	snprintf(detail, sizeof(detail), "%s on %s, %s: %s", op ? op : "?", device ? device : "?",
		 action ? action : "?", why ? why : "?");
	l->io_error |= str_eq(action, "stop");
	vm_guest_event(l, "ioError", detail);
}

static void on_event(const char *name, const struct json *data, usec_t at, void *arg)
{
	struct launcher *l = arg;

	if (str_eq(name, "STOP"))
		on_stop(l, at);
	else if (str_eq(name, "RESUME"))
		on_resume(l, at);
	else if (str_eq(name, "SHUTDOWN"))
		on_shutdown(l, data);
	else if (str_eq(name, "RESET")) {
		if (l->reboot == REBOOT_PRESSED) /* the guest has done it by itself */
			reboot_forget(l);
		vm_guest_event(l, "reset", js_get_str(data, "reason"));
	} else if (str_eq(name, "VSERPORT_CHANGE"))
		guest_agent_event(l, data);
	else if (str_eq(name, "POWERDOWN"))
		vm_guest_event(l, "powerdown", NULL);
	else if (str_eq(name, "WATCHDOG"))
		vm_guest_event(l, "watchdog", js_get_str(data, "action"));
	else if (str_eq(name, "BLOCK_IO_ERROR"))
		on_io_error(l, data);
	else if (str_eq(name, "GUEST_PANICKED")) {
		vm_guest_event(l, "panicked", js_get_str(data, "action"));
		vm_move(l, VME_CRASHES, "GuestPanicked");
	} else
		move_event(l, name, data, at);
}

/* --- connecting --- */

static void on_retry(void *arg)
{
	vm_connect(arg);
}

static void retry_later(struct launcher *l, const char *why)
{
	struct err err = {0};

	log_debug("vm: monitor %u: %s", l->qmp_index, why);
	l->qmp_index ^= 1;
	if (l->qmp_retry)
		ev_timer_rearm(l->qmp_retry, RETRY);
	else if (ev_timer_after(l->loop, &l->qmp_retry, RETRY, on_retry, l, &err))
		log_error("vm: QEMU can no longer be reached: %s", err.msg);
}

static void on_closed(enum rc rc, const char *why, void *arg)
{
	struct launcher *l = arg;

	l->seq = qmp_seq_free(l->seq);
	l->asking_cpu = guest_cpu_free(l->asking_cpu);
	l->asking_devices = guest_devices_free(l->asking_devices);
	l->asking_usage = usage_free(l->asking_usage);
	l->usage_commands = 0; /* as the monitor counts them */
	meter_lost(l);
	guest_agent_monitor_lost(l);
	l->qmp = qmp_free(l->qmp);
	if (l->reaper.pidfd < 0)
		return;
	if (l->state != VM_STARTING)
		l->adopting = true;	   /* what happened meanwhile is found out by asking */
	if (l->reboot == REBOOT_RESETTING) /* found powered off, or running: that is what counts */
		reboot_forget(l);
	move_monitor_lost(l);
	retry_later(l, why);
}

static const struct qmp_ops qmp_ops = {on_ready, on_event, on_closed};

void vm_connect(struct launcher *l)
{
	char name[16], path[PATH_LEN];
	struct err err = {0};

	snprintf(name, sizeof(name), "qmp%u.sock", l->qmp_index);
	path_in(l, name, path);
	if (!l->qmp && qmp_open(&l->qmp, l->loop, path,
				l->adopting ? HANDSHAKE_FOUND : HANDSHAKE_FRESH, &qmp_ops, l, &err))
		retry_later(l, err.msg);
}

/* --- pause, unpause --- */

static void answer(struct ipc_call **slot, const struct qmp_reply *r)
{
	struct ipc_call *call = STEAL(*slot);

	if (!call)
		return;
	if (r->rc)
		ipc_call_fail(call, r->rc, "%s", r->desc);
	else
		ipc_call_done(call, js_new_object(), NULL, 0);
}

static void on_paused(const struct qmp_reply *r, void *arg)
{
	struct launcher *l = arg;

	l->pause_slot = qmp_slot_free(l->pause_slot);
	answer(&l->pause_call, r);
}

static void on_unpaused(const struct qmp_reply *r, void *arg)
{
	struct launcher *l = arg;

	l->unpause_slot = qmp_slot_free(l->unpause_slot);
	answer(&l->unpause_call, r);
}

/* Sends a plain command whose answer is a call's answer; consumes call. */
static void simple(struct launcher *l, const char *command, struct qmp_slot **slot,
		   struct ipc_call **call_slot, qmp_reply_fn fn, struct ipc_call *call)
{
	struct qmp_call c = {.command = command, .timeout = QMP_TIMEOUT, .fn = fn, .arg = l};
	struct err err = {0};

	if (*call_slot) {
		ipc_call_fail(call, RC_CONFLICT, "the same is under way already");
		return;
	}
	if (!qmp_is_ready(l->qmp)) {
		ipc_call_fail(call, RC_BUSY, "QEMU's monitor is not connected right now");
		return;
	}
	if (qmp_invoke(l->qmp, slot, &c, &err))
		ipc_call_fail_err(call, &err);
	else
		*call_slot = call;
}

static void refuse(struct ipc_call *call, const struct launcher *l, const char *what)
{
	ipc_call_fail(call, RC_CONFLICT, "cannot %s a VM that is %s", what,
		      vm_state_name(l->state));
}

void vm_pause(struct launcher *l, struct ipc_call *call)
{
	if (l->state == VM_RUNNING)
		simple(l, "stop", &l->pause_slot, &l->pause_call, on_paused, call);
	else if (l->state == VM_PAUSED)
		ipc_call_done(call, js_new_object(), NULL, 0);
	else
		refuse(call, l, "pause");
}

void vm_unpause(struct launcher *l, struct ipc_call *call)
{
	/* The target of a move waits for its permission, which is another method. */
	if (move_is_waiting_target(l))
		ipc_call_fail(call, RC_CONFLICT,
			      "this VM came by migration and waits for its permission");
	else if (l->state == VM_PAUSED || l->state == VM_PRELAUNCH)
		simple(l, "cont", &l->unpause_slot, &l->unpause_call, on_unpaused, call);
	else if (l->state == VM_RUNNING)
		ipc_call_done(call, js_new_object(), NULL, 0);
	else
		refuse(call, l, "unpause");
}

/* --- shutdown --- */

static void on_grace(void *arg)
{
	struct launcher *l = arg;
	struct qmp_call c = {.command = "system_powerdown", .timeout = QMP_TIMEOUT};
	usec_t now = loop_now(l->loop);

	if (now >= l->grace_end) {
		log_warn("vm: the guest did not shut down in time, ending it");
		vm_kill(l, "GraceExpired", 2 * USEC_PER_SEC);
		return;
	}
	if (qmp_is_ready(l->qmp))
		ignore_rc(qmp_invoke(l->qmp, NULL, &c,
				     NULL)); /* tried again in five seconds, then killed */
	ev_timer_rearm(l->grace_timer, MIN(5 * USEC_PER_SEC, l->grace_end - now));
}

void vm_powerdown(struct launcher *l, usec_t grace)
{
	struct err err = {0};
	usec_t end = loop_now(l->loop) + grace;

	if (!grace) {
		vm_kill(l, "Killed", 2 * USEC_PER_SEC);
		return;
	}
	if (l->reboot == REBOOT_PRESSED) /* it shuts down for good, then */
		reboot_forget(l);
	if (!l->grace_end || end < l->grace_end) /* a later call may only shorten */
		l->grace_end = end;
	/* A guest that stands cannot react to a button. */
	if (l->state == VM_PAUSED || l->state == VM_PRELAUNCH || l->state == VM_CRASHED) {
		vm_kill(l, "HostShutdown", 2 * USEC_PER_SEC);
		return;
	}
	if (!l->grace_timer && ev_timer_after(l->loop, &l->grace_timer, 0, on_grace, l, &err)) {
		log_error("vm: %s; ending it at once", err.msg);
		vm_kill(l, "Killed", 2 * USEC_PER_SEC);
		return;
	}
	ev_timer_rearm(l->grace_timer, 0);
}

void vm_fail_waiting(struct launcher *l, enum rc rc, const char *why)
{
	struct qmp_reply r = {.rc = rc, .desc = why};

	l->pause_slot = qmp_slot_free(l->pause_slot);
	l->unpause_slot = qmp_slot_free(l->unpause_slot);
	answer(&l->pause_call, &r);
	answer(&l->unpause_call, &r);
}
