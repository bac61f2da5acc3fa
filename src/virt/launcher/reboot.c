#include "base/log.h"
#include "base/str.h"
#include "virt/launcher/launcher_int.h"
#include "virt/launcher/move_int.h"

/* Reboots that somebody outside asks for; QEMU and the VMI stay.
 *
 * A reset is QEMU's.  A soft reboot is its agent's work; without one it is the power button, as the guest knows nothing
 * else: the guest shuts down, QEMU (-action shutdown=pause) stands with it, and here it is reset and goes on:
 *
 *   none --button--> pressed --SHUTDOWN of the guest--> resetting --RESUME--> none
 *
 * What QEMU does while it is being reset is no pause and no end of the VM's.  A guest that does not heed the button in
 * REBOOT_WITHIN has not rebooted: a power-off after that is one.
 */
static const usec_t REBOOT_WITHIN = 180 * USEC_PER_SEC;

static void refuse(struct ipc_call *call, const struct launcher *l, const char *what)
{
	bool is_leaving = l->state == VM_PRE_SWITCHOVER || l->state == VM_POSTMIGRATE ||
			  l->state == VM_INCOMING;

	/* Busy: where the guest is in a moment, the same is asked again. */
	ipc_call_fail(call, is_leaving ? RC_BUSY : RC_CONFLICT, "cannot %s a VM that is %s", what,
		      vm_state_name(l->state));
}

void vm_reset(struct launcher *l, struct ipc_call *call)
{
	struct qmp_call c = {.command = "system_reset", .timeout = QMP_TIMEOUT};
	struct err err = {0};

	if (l->state != VM_RUNNING && l->state != VM_PAUSED && l->state != VM_MIGRATING)
		refuse(call, l, "reset");
	else if (move_is_waiting_target(l))
		ipc_call_fail(call, RC_BUSY,
			      "this VM came by migration and waits for its permission");
	else if (!qmp_is_ready(l->qmp) || qmp_invoke(l->qmp, NULL, &c, &err))
		ipc_call_fail(call, RC_BUSY, "QEMU's monitor is not connected right now");
	else
		ipc_call_done(call, js_new_object(), NULL, 0);
}

void reboot_forget(struct launcher *l)
{
	l->reboot = REBOOT_NONE;
	l->reboot_deadline = ev_src_free(l->reboot_deadline);
}

static void on_late(void *arg)
{
	struct launcher *l = arg;

	log_warn("vm: the guest did not heed the power button, it is not rebooted");
	reboot_forget(l);
}

void vm_press_to_reboot(struct launcher *l, struct ipc_call *call)
{
	struct qmp_call c = {.command = "system_powerdown", .timeout = QMP_TIMEOUT};
	struct err err = {0};

	if (l->state == VM_MIGRATING) {
		/* Whoever has the guest when it shuts down would not know that it is to come again. */
		ipc_call_fail(call, RC_CONFLICT,
			      "the VM is moving, and without its guest agent it can be rebooted "
			      "when the move is over");
	} else if (l->state != VM_RUNNING) {
		refuse(call, l, "reboot");
	} else if (l->spec->acpi_off) {
		ipc_call_fail(call, RC_CONFLICT,
			      "VMI neither have the agent connected nor the ACPI feature enabled");
	} else if (l->grace_end) {
		ipc_call_fail(call, RC_CONFLICT, "the VM is being shut down");
	} else if (!qmp_is_ready(l->qmp)) {
		ipc_call_fail(call, RC_BUSY, "QEMU's monitor is not connected right now");
	} else if ((l->reboot == REBOOT_NONE && ev_timer_after(l->loop, &l->reboot_deadline,
							       REBOOT_WITHIN, on_late, l, &err)) ||
		   qmp_invoke(l->qmp, NULL, &c, &err)) {
		reboot_forget(l);
		ipc_call_fail_err(call, &err);
	} else {
		if (l->reboot == REBOOT_NONE)
			l->reboot = REBOOT_PRESSED;
		ipc_call_done(call, js_new_object(), NULL, 0);
	}
}

void vm_soft_reboot(struct launcher *l, struct ipc_call *call)
{
	if (guest_agent_is_connected(l) && !l->grace_end &&
	    (l->state == VM_RUNNING || l->state == VM_MIGRATING))
		guest_agent_reboot(l, call);
	else
		vm_press_to_reboot(l, call);
}

/* The guest has shut down and cannot be started again: that is its end. */
static void give_up(struct launcher *l, const char *why)
{
	log_error("vm: the guest has shut down for a reboot, and cannot be started again: %s", why);
	reboot_forget(l);
	vm_powered_off(l, "GuestShutdown");
}

static void on_gone_on(const struct qmp_reply *r, void *arg)
{
	struct launcher *l = arg;

	if (r->rc && l->reboot == REBOOT_RESETTING)
		give_up(l, r->desc);
}

static void on_reset(const struct qmp_reply *r, void *arg)
{
	struct launcher *l = arg;
	struct qmp_call c = {.command = "cont", .timeout = QMP_TIMEOUT, .fn = on_gone_on, .arg = l};
	struct err err = {0};

	if (l->reboot != REBOOT_RESETTING)
		return;
	if (r->rc)
		give_up(l, r->desc);
	else if (qmp_invoke(l->qmp, NULL, &c, &err))
		give_up(l, err.msg);
}

bool reboot_takes_shutdown(struct launcher *l)
{
	struct qmp_call c = {
		.command = "system_reset", .timeout = QMP_TIMEOUT, .fn = on_reset, .arg = l};
	struct err err = {0};

	if (l->reboot != REBOOT_PRESSED || l->grace_end || l->spec->reboot_terminates)
		return false;
	l->reboot_deadline = ev_src_free(l->reboot_deadline);
	if (qmp_invoke(l->qmp, NULL, &c, &err)) {
		log_error("vm: the guest cannot be reset: %s", err.msg);
		l->reboot = REBOOT_NONE;
		return false;
	}
	l->reboot = REBOOT_RESETTING;
	return true;
}

bool reboot_owns_run_state(struct launcher *l, bool runs)
{
	if (l->reboot != REBOOT_RESETTING)
		return false;
	if (runs) {
		log_info("vm: the guest was rebooted");
		reboot_forget(l);
	}
	return true;
}
