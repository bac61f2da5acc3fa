#include <stdio.h>
#include <string.h>

#include "base/failpoint.h"
#include "base/log.h"
#include "base/str.h"
#include "virt/launcher/move_int.h"

/* How a move ends at its source: completed and released, cancelled, or failed; and the deadlines that
 * see to it that it does. */

static const usec_t CANCEL_TIMEOUT = 2 * USEC_PER_SEC;

static void on_deadline(void *arg);

void out_arm(struct move *m, usec_t delay)
{
	struct err err = {0};

	if (m->deadline)
		ev_timer_rearm(m->deadline, delay);
	else if (ev_timer_after(m->l->loop, &m->deadline, delay, on_deadline, m, &err))
		log_error("move '%s' has no deadline now: %s", m->uid, err.msg);
}

void out_disarm(struct move *m)
{
	if (m->deadline)
		ev_timer_rearm(m->deadline, USEC_INFINITY);
}

/* --- the end without success --- */

static void end_state(struct move *m, bool stands)
{
	const char *reason = m->phase == MP_CANCELLED ? "MigrationCancelled" : "MigrationFailed";

	vm_move(m->l, stands ? VME_STOPS : VME_RUNS, reason);
}

void out_finish(struct move *m, bool stands)
{
	struct err err = {0};
	bool cancelled = m->phase == MP_CANCELLING && !m->fail_reason[0];

	if (!cancelled)
		move_set_failure(m, "Internal", "the move ended without a reason");
	else
		move_set_failure(m, "Cancelled", "%s",
				 m->cancel_reason[0] ? m->cancel_reason : "cancelled");
	move_fail_call(&m->call, RC_IO, m->fail_message);
	move_fail_call(&m->continue_call, RC_CONFLICT, m->fail_message);
	move_step(m, cancelled ? MP_CANCELLED : MP_FAILED);
	end_state(m, stands);
	if (move_save(m, &err))
		log_warn("move '%s': its record is not up to date: %s", m->uid, err.msg);
	move_clean(m);
}

/* Before `migrate` was accepted: QEMU has nothing to undo but what move_clean() removes. */
void out_fail(struct move *m, const char *reason, const char *message)
{
	move_set_failure(m, reason, "%s", message);
	out_finish(m, m->was_paused);
}

/* query-status after failed or cancelled. */
static void on_end_status(const struct qmp_reply *r, void *arg)
{
	struct move *m = arg;
	const char *s = js_get_str(r->value, "status");
	struct qmp_call c = {.command = "cont", .timeout = QMP_TIMEOUT};

	m->stats_slot = qmp_slot_free(m->stats_slot);
	if (r->rc)
		return;
	bool stands = !str_eq(s, "running");

	/* It ran before and stands now, though the move has failed: it goes on here. */
	if (stands && !m->was_paused &&
	    (str_eq(s, "paused") || str_eq(s, "postmigrate") || str_eq(s, "finish-migrate")))
		stands = qmp_invoke(m->l->qmp, NULL, &c, NULL) != RC_OK;
	out_finish(m, stands);
}

/* QEMU has no code for why a move failed; before the first byte of memory its words are all there is. */
static const char *failure_reason(const struct move *m, const char *error)
{
	if (m->phase != MP_SETUP && m->phase != MP_DISKS)
		return "TargetClosed";
	return error && strstr(error, "TLS") ? "TLSFailed" : "ConnectFailed";
}

static void on_end_stats(const struct qmp_reply *r, void *arg)
{
	struct move *m = arg;
	struct qmp_call c = {
		.command = "query-status", .timeout = QMP_TIMEOUT, .fn = on_end_status, .arg = m};
	const char *error = js_get_str(r->value, "error-desc");

	m->stats_slot = qmp_slot_free(m->stats_slot);
	if (r->rc)
		return;
	if (js_get(r->value, "ram")) /* after a failure QEMU tells none: the last ones stay */
		mig_stats_parse(r->value, &m->stats);
	if (m->phase != MP_CANCELLING)
		move_set_failure(m, failure_reason(m, error), "%s",
				 error ? error : "the target closed the connection");
	if (qmp_invoke(m->l->qmp, &m->stats_slot, &c, NULL))
		out_finish(m, m->was_paused);
}

void out_ended_badly(struct move *m)
{
	struct qmp_call c = {
		.command = "query-migrate", .timeout = QMP_TIMEOUT, .fn = on_end_stats, .arg = m};

	if (move_is_over(m))
		return;
	out_disarm(m);
	m->seq = qmp_seq_free(m->seq);
	m->migrate_slot = qmp_slot_free(m->migrate_slot);
	m->stats_slot = qmp_slot_free(m->stats_slot);
	if (qmp_invoke(m->l->qmp, &m->stats_slot, &c, NULL))
		out_finish(m, m->was_paused);
}

/* --- success --- */

bool out_stood_too_long(struct move *m, const char *when)
{
	usec_t now = loop_realtime(m->l->loop),
	       limit = (usec_t)m->options.max_pause_ms * USEC_PER_MSEC;

	if (!limit || now <= m->stop_at || now - m->stop_at <= limit)
		return false;
	move_set_failure(m, "PauseLimitExceeded",
			 "the guest had stood for %llu ms %s, more than the %lld ms declared",
			 (unsigned long long)((now - m->stop_at) / USEC_PER_MSEC), when,
			 (long long)m->options.max_pause_ms);
	return true;
}

static enum rc save_release(const struct move *m, struct err *err)
{
	if (failpoint_fails("source.release-fails"))
		return err_set(err, RC_IO, "failpoint");
	return move_save(m, err);
}

/* Durable first: from here on the target may run, and this copy never again.  In post-copy that has been written
 * already, and stays so. */
static void release(struct move *m)
{
	struct err err = {0};

	if (m->release_tried)
		return;
	m->release_tried = true;
	failpoint("source.completed");
	/* The last moment at which the guest can stay: nothing is released, and the target has not run. */
	if (!m->was_paused && !m->is_split && m->stop_at &&
	    out_stood_too_long(m, "when all had gone over"))
		m->epoch = -1; /* not released: its agent sees that, and has the guest go on here */
	if (m->epoch >= 0 && !m->released) {
		m->released = true;
		if (save_release(m, &err)) {
			m->released = false;
			log_error("move '%s': released(%lld) cannot be made durable, not "
				  "releasing: %s",
				  m->uid, (long long)m->epoch, err.msg);
		}
	}
	failpoint("source.released");
}

/* QEMU's `completed` is final, and the answers about it take as long as this.  Not of a QEMU that was just found: it may
 * mean an earlier move. */
void out_release_early(struct move *m)
{
	if (m->phase != MP_SWITCHING || m->adopting || m->epoch < 0)
		return;
	out_disarm(m);
	release(m);
}

static void completed(struct move *m)
{
	out_disarm(m);
	release(m);
	m->migrate_slot = qmp_slot_free(m->migrate_slot);
	move_fail_call(&m->continue_call, RC_IO, "the move completed before the answer");
	move_step(m, MP_COMPLETED); /* tells the agent, before it has to look at the VM's state */
	vm_move(m->l, VME_MIGRATED, "MigrationCompleted");
	move_remove_key(m);
}

/* Whoever has moved out does not run, nor stand as before: `completed` is then the last word about the move by which
 * the guest came here, and of the one that the launcher before this one prepared QEMU knows nothing. */
static bool is_of_an_earlier_move(const struct move *m, const char *run_state)
{
	return m->adopting && (str_eq(run_state, "running") || str_eq(run_state, "paused") ||
			       str_eq(run_state, "io-error"));
}

static void on_completed_status(const struct qmp_reply *r, void *arg)
{
	struct move *m = arg;
	struct err err = {0};
	const char *s = js_get_str(r->value, "status");

	m->migrate_slot = qmp_slot_free(m->migrate_slot);
	if (r->rc)
		return;
	if (str_eq(s, "postmigrate")) {
		completed(m);
		return;
	}
	if (is_of_an_earlier_move(m, s)) {
		move_set_failure(m, "Internal", "the launcher changed while the move was prepared");
		out_finish(m, !str_eq(s, "running"));
		return;
	}
	/* QEMU enters postmigrate right after it has told `completed`: no event follows, so it is asked. */
	if (++m->polls > 2000) {
		log_error("move '%s': completed, but QEMU never reached postmigrate", m->uid);
		return;
	}
	if (m->poll)
		ev_timer_rearm(m->poll, USEC_PER_MSEC);
	else if (ev_timer_after(m->l->loop, &m->poll, USEC_PER_MSEC, out_ask_completed, m, &err))
		log_error("move '%s': %s", m->uid, err.msg);
}

static void on_completed_stats(const struct qmp_reply *r, void *arg)
{
	struct move *m = arg;

	m->stats_slot = qmp_slot_free(m->stats_slot);
	if (!r->rc)
		mig_stats_parse(r->value, &m->stats);
	/* Then only a copy that has to go on here needs QEMU's word that it is in postmigrate. */
	if (m->released && m->phase == MP_SWITCHING)
		completed(m);
}

/* Both at once: the answers come in order. */
void out_ask_completed(void *arg)
{
	struct move *m = arg;
	struct qmp_call q = {.command = "query-migrate",
			     .timeout = QMP_TIMEOUT,
			     .fn = on_completed_stats,
			     .arg = m};
	struct qmp_call s = {.command = "query-status",
			     .timeout = QMP_TIMEOUT,
			     .fn = on_completed_status,
			     .arg = m};

	m->stats_slot = qmp_slot_free(m->stats_slot);
	m->migrate_slot = qmp_slot_free(m->migrate_slot);
	ignore_rc(qmp_invoke(m->l->qmp, &m->stats_slot, &q, NULL)); /* figures only */
	if (qmp_invoke(m->l->qmp, &m->migrate_slot, &s, NULL))
		log_warn("move '%s': cannot ask for the end, asking after the next connection",
			 m->uid);
}

/* --- deadlines and cancelling --- */

/* Out of band: answered even when QEMU's main loop waits for the target.  Consumes instance. */
static void yank_one(struct move *m, struct json *instance)
{
	struct qmp_call c = {.command = "yank",
			     .oob = true,
			     .timeout = CANCEL_TIMEOUT,
			     .args = js_pack("{s:[o]}", "instances", instance)};
	struct err err = {0};

	if (!c.args || qmp_invoke(m->l->qmp, NULL, &c, &err))
		log_error("move '%s': cannot yank: %s", m->uid, c.args ? err.msg : "out of memory");
}

static void yank(struct move *m)
{
	log_warn("move '%s': cutting the connection (yank)", m->uid);
	yank_one(m, js_pack("{s:s}", "type", "migration"));
}

/* The guest's writes wait for the target as long as a copy runs: a target that hangs must not hold them. */
static void yank_disks(struct move *m)
{
	for (size_t i = 0; i < m->n_disks; i++)
		if (!m->disks[i].done)
			yank_one(m, js_pack("{s:s, s:s}", "type", "block-node", "node-name",
					    move_disk_names(m, &m->disks[i]).node));
}

static void cancel_memory(struct move *m)
{
	struct qmp_call c = {.command = "migrate_cancel", .timeout = CANCEL_TIMEOUT};

	ignore_rc(
		qmp_invoke(m->l->qmp, NULL, &c, NULL)); /* the deadline yanks if it does not work */
	out_arm(m, CANCEL_TIMEOUT);
}

void out_cancel(struct move *m)
{
	bool memory = m->migrate_sent;

	failpoint("source.cancels");
	move_step(m, MP_CANCELLING);
	yank_disks(m);
	if (memory) {
		cancel_memory(m);
		return;
	}
	m->seq = qmp_seq_free(m->seq); /* disks only, or not even these: move_clean() undoes them */
	out_finish(m, m->was_paused);
}

static void on_deadline(void *arg)
{
	struct move *m = arg;

	switch (m->phase) {
	case MP_SETUP:
	case MP_DISKS:
		if (m->waits_for_old)
			move_set_failure(
				m, "ConnectFailed",
				"QEMU has not closed the connection of an earlier move in time");
		else
			move_set_failure(m, "ConnectFailed", "no connection to %s in time",
					 m->address);
		out_cancel(m);
		break;
	case MP_MEMORY:
		move_set_failure(m, "SwitchoverTimeout",
				 "QEMU stopped the guest and did not get to the switch in time");
		out_cancel(m);
		break;
	case MP_PRE_SWITCHOVER:
		move_set_failure(m, "SwitchoverTimeout", "%s",
				 m->continue_asked ? "the copies of the disks did not end in time"
						   : "nobody allowed the switch in time");
		out_cancel(m);
		break;
	case MP_SWITCHING:
		move_set_failure(m, "SwitchoverTimeout", "the last bytes were not taken in time");
		yank(m);
		out_arm(m, CANCEL_TIMEOUT);
		break;
	case MP_CANCELLING:
		yank(m);
		out_arm(m, CANCEL_TIMEOUT);
		break;
	default:
		break;
	}
}
