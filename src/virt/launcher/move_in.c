#include <stdio.h>
#include <string.h>

#include "base/failpoint.h"
#include "base/log.h"
#include "base/str.h"
#include "virt/launcher/move_int.h"

/* How long a `cont` that QEMU refuses is tried again. */
#define CONT_REFUSED_FOR (30 * USEC_PER_SEC)

/* The target of a move: it listens, loads, and stands until it is told that the source has been released.
 * That it has loaded everything is no permission.
 */

void in_fail(struct move *m, const char *reason, const char *message)
{
	move_set_failure(m, reason, "%s", message);
	move_fail_call(&m->call, RC_IO, message);
	move_fail_call(&m->resume_call, RC_IO, message);
	m->resume_deadline = ev_src_free(m->resume_deadline);
	move_step(m, MP_FAILED);
	move_clean(m);
}

/* --- preparing --- */

static struct json *prepared(const struct move *m)
{
	struct json *disks = js_new_array();

	for (size_t i = 0; disks && i < m->n_disks; i++)
		if (js_append(disks, js_new_str(m->l->spec->disks[m->disks[i].index].name)))
			disks = js_unref(disks);
	return js_pack("{s:s, s:i, s:i, s:o}", "address", m->address, "port", m->port, "nbdPort",
		       m->nbd_port, "disks", disks);
}

static void listens(struct move *m)
{
	struct ipc_call *call = STEAL(m->call);
	struct err err = {0};

	failpoint("target.listens");
	move_step(m, MP_LISTENING);
	if (move_save(m, &err))
		log_warn("move '%s': its record is not up to date: %s", m->uid, err.msg);
	if (call)
		ipc_call_done(call, prepared(m), NULL, 0);
}

static void send_incoming(struct move *m, bool stay);

static void on_listening(const struct qmp_reply *r, void *arg)
{
	struct move *m = arg;

	m->migrate_slot = qmp_slot_free(m->migrate_slot);
	if (r->rc == RC_CLOSED)
		return;
	if (!r->rc)
		listens(m);
	else if (m->tried_stay)
		in_fail(m, "ConnectFailed", r->desc);
	else
		send_incoming(m, false);
}

/* stay: QEMU is to stay after a failed load and tell why.  One that does not know this refuses the
 * argument, and is asked again without it: cheaper than its schema, whose printing takes 70 ms. */
static void send_incoming(struct move *m, bool stay)
{
	struct qmp_call c = {.command = "migrate-incoming",
			     .timeout = QMP_TIMEOUT,
			     .fn = on_listening,
			     .arg = m,
			     .args = mig_channels(m->role, m->address, m->port)};
	struct err err = {0};

	m->tried_stay = !stay;
	if (c.args && stay && js_set(c.args, "exit-on-error", js_new_bool(false)))
		c.args = js_unref(c.args);
	if (!c.args)
		in_fail(m, "Internal", "out of memory");
	else if (qmp_invoke(m->l->qmp, &m->migrate_slot, &c, &err))
		in_fail(m, "Internal", err.msg);
}

static void on_prepared(const struct qmp_seq_result *r, void *arg)
{
	struct move *m = arg;

	if (r->rc == RC_CLOSED)
		return;
	if (r->rc) {
		in_fail(m, str_eq(r->command, "object-add") ? "TLSFailed" : "Internal", r->desc);
		return;
	}
	send_incoming(m, true);
}

static void add_exports(struct move *m, struct qmp_seq *s)
{
	char port[8];

	snprintf(port, sizeof(port), "%d", m->nbd_port);
	qmp_seq_add(s, "nbd-server-start",
		    js_pack("{s:{s:s, s:{s:s, s:s}}, s:s*, s:i}", "addr", "type", "inet", "data",
			    "host", m->address, "port", port, "tls-creds",
			    m->tls.on ? MIG_TLS_ID : NULL, "max-connections", (int)m->n_disks),
		    SEQ_MUST);
	for (size_t i = 0; i < m->n_disks; i++) {
		struct move_names n = move_disk_names(m, &m->disks[i]);
		char top[16];

		qemu_node_name(m->disks[i].index, 0, top);
		qmp_seq_add(s, "block-export-add",
			    js_pack("{s:s, s:s, s:s, s:s, s:b}", "type", "nbd", "id", n.export,
				    "node-name", top, "name", n.export, "writable", 1),
			    SEQ_MUST);
	}
}

static enum rc prepare(struct move *m, struct err *err)
{
	struct qmp_seq *s = NULL;
	char dir[80];
	enum rc rc = move_save(m, err);

	if (!rc && m->tls.on)
		rc = move_write_key(m, dir, err);
	if (!rc)
		rc = qmp_seq_new(&s, QMP_TIMEOUT, err);
	if (rc)
		return rc;
	if (m->tls.on)
		qmp_seq_add(s, "object-add",
			    mig_tls_object(dir, &m->tls, MIG_TARGET, move_has_fast_aes()),
			    SEQ_MUST);
	qmp_seq_add(s, "migrate-set-capabilities", mig_capabilities(&m->options, MIG_TARGET),
		    SEQ_MUST);
	qmp_seq_add(s, "migrate-set-parameters", mig_parameters(&m->options, MIG_TARGET, m->tls.on),
		    SEQ_MUST);
	if (m->n_disks)
		add_exports(m, s);
	return qmp_seq_run(s, &m->seq, m->l->qmp, on_prepared, m, err);
}

void move_prepare_incoming(struct launcher *l, struct ipc_call *call, const struct json *params)
{
	struct move *m = l->move;
	struct err err = {0};
	enum rc rc = RC_OK;

	if (m && m->phase == MP_LISTENING && str_eq(m->uid, js_get_str(params, "migrationUid"))) {
		ipc_call_done(call, prepared(m), NULL, 0);
		return;
	}
	if (l->state != VM_INCOMING || m)
		rc = err_set(&err, RC_CONFLICT,
			     m ? "this target belongs to the move '%s'"
			       : "this VM was not started as the target of a move%s",
			     m ? m->uid : "");
	else if (!qmp_is_ready(l->qmp))
		rc = err_set(&err, RC_BUSY, "QEMU's monitor is not connected right now");
	if (!rc)
		rc = move_new(l, MIG_TARGET, params, &m, &err);
	if (rc) {
		ipc_call_fail_err(call, &err);
		return;
	}
	m->call = call;
	l->move = m;
	rc = prepare(m, &err);
	if (rc)
		in_fail(m, "Internal", err.msg);
}

/* --- the permission --- */

static void on_announced(const struct qmp_reply *r, void *arg)
{
	(void)arg;
	if (r->rc)
		log_warn("the guest could not announce itself: %s", r->desc);
}

static void announce(struct move *m)
{
	struct qmp_call c = {.command = "announce-self",
			     .timeout = QMP_TIMEOUT,
			     .fn = on_announced,
			     .args = js_pack("{s:i, s:i, s:i, s:i}", "initial", 50, "max", 550,
					     "rounds", 5, "step", 100)};

	if (!c.args || qmp_invoke(m->l->qmp, NULL, &c, NULL))
		log_warn("move '%s': the guest is not announced", m->uid);
}

static struct json *resumed_json(const struct move *m)
{
	return js_pack("{s:I, s:I, s:b}", "resumeAt", (int64_t)m->resume_at, "waitedUs",
		       (int64_t)m->waited_us, "postCopy", (int)(m->is_split && !m->is_whole));
}

/* QEMU takes the disks with `cont`, and refuses it while somebody else holds one of them, or cannot read it.  All that
 * there is of the guest is here by now, so that is no final word for a while. */
static enum rc refused(struct move *m, const struct qmp_seq_result *r)
{
	usec_t now = loop_now(m->l->loop);

	if (r->rc == RC_CLOSED || r->rc == RC_TIMEOUT)
		return r->rc;
	if (!m->refused_since)
		m->refused_since = now;
	if (now - m->refused_since < CONT_REFUSED_FOR) {
		log_warn("move '%s': QEMU does not go on, it is asked again: %s", m->uid, r->desc);
		return RC_BUSY;
	}
	log_error("move '%s': the guest does not go on: %s", m->uid, r->desc);
	return RC_IO;
}

static void on_resumed(const struct qmp_seq_result *r, void *arg)
{
	struct move *m = arg;
	struct ipc_call *call = STEAL(m->resume_call);

	m->resume_deadline = ev_src_free(m->resume_deadline);
	if (r->rc) {
		enum rc rc = refused(m, r);

		if (call)
			ipc_call_fail(call, rc, "QEMU does not go on: %s", r->desc);
		return;
	}
	failpoint("target.runs");
	if (!m->resume_at)
		m->resume_at = loop_realtime(m->l->loop);
	if (call)
		ipc_call_done(call, resumed_json(m), NULL, 0);
	if (!m->stay_paused)
		announce(m);
	struct err err = {0};

	if (m->is_split && !m->is_whole) {
		move_step(m, MP_POSTCOPY);
		if (m->is_cut) /* told before the guest ran: it is not told again */
			move_step(m, MP_BROKEN);
	} else {
		move_step(m, MP_RESUMED);
		move_clean(m);
	}

	if (move_save(m, &err))
		log_warn("move '%s': its record is not up to date: %s", m->uid, err.msg);
}

static void resume(struct move *m)
{
	struct qmp_seq *s = NULL;
	struct err err = {0};
	enum rc rc;

	failpoint("target.permitted");
	m->resumed =
		true; /* written before it happens: whoever finds the record knows that it may run */
	rc = move_save(m, &err);
	failpoint("target.recorded");
	if (!rc)
		rc = qmp_seq_new(&s, QMP_TIMEOUT, &err);
	if (!rc) {
		if (m->n_disks)
			qmp_seq_add_plain(s, "nbd-server-stop", SEQ_MAY_FAIL);
		/* A guest that stood stands on: it takes its images when it is unpaused. */
		qmp_seq_add_plain(s, m->stay_paused ? "query-status" : "cont", SEQ_MUST);
		rc = qmp_seq_run(s, &m->seq, m->l->qmp, on_resumed, m, &err);
	}
	if (rc) /* QEMU was told nothing: it can be asked again */
		move_fail_call(&m->resume_call, RC_BUSY, err.msg);
}

static void on_resume_late(void *arg)
{
	struct move *m = arg;

	m->resume_deadline = ev_src_free(m->resume_deadline);
	move_fail_call(&m->resume_call, RC_TIMEOUT, "the state has not been loaded in time");
}

void move_resume_incoming(struct launcher *l, struct ipc_call *call, const struct json *params)
{
	struct move *m = move_named(l, call, params, MIG_TARGET);
	int64_t timeout = js_get_int(params, "timeoutMs", 5000);
	struct err err = {0};

	if (!m)
		return;
	if (m->phase == MP_RESUMED || move_is_split(m)) { /* said again: answered again */
		ipc_call_done(call, resumed_json(m), NULL, 0);
		return;
	}
	if (m->phase == MP_FAILED) {
		ipc_call_fail(call, RC_IO, "%s", m->fail_message);
		return;
	}
	if (timeout < 1 || timeout > 3600000) {
		ipc_call_fail(call, RC_INVALID, "timeoutMs: must be in 1..3600000");
		return;
	}
	/* Asked by an agent that is dead, or asked again too early: it may still end well, so it is no refusal. */
	if (m->resume_call || m->seq) {
		ipc_call_fail(call, RC_BUSY, "a permission is being carried out");
		return;
	}
	if (js_get_int(params, "epoch", -1) >= 0)
		m->epoch = js_get_int(params, "epoch", -1);
	m->stay_paused = js_get_bool(params, "paused", false);
	m->resume_call = call;
	if (m->phase == MP_LOADED)
		resume(m);
	else if (ev_timer_after(l->loop, &m->resume_deadline, (usec_t)timeout * USEC_PER_MSEC,
				on_resume_late, m, &err))
		move_fail_call(&m->resume_call, err.rc, err.msg);
}

void move_abort_incoming(struct launcher *l, struct ipc_call *call, const struct json *params)
{
	struct move *m = move_named(l, call, params, MIG_TARGET);
	const char *reason = js_get_str(params, "reason");

	if (!m)
		return;
	if (m->phase == MP_BROKEN) {
		pc_end_half(m, call);
		return;
	}
	if (m->resumed) {
		ipc_call_fail(call, RC_CONFLICT, "the guest has been told to run here");
		return;
	}
	ipc_call_done(call, js_new_object(), NULL, 0);
	if (!move_is_over(m))
		in_fail(m, "Cancelled", reason ? reason : "aborted");
	vm_kill(l, "MigrationFailed", USEC_PER_SEC);
}

/* --- events --- */

static void on_error_query(const struct qmp_reply *r, void *arg)
{
	struct move *m = arg;

	m->stats_slot = qmp_slot_free(m->stats_slot);
	if (r->rc == RC_CLOSED || move_is_over(m))
		return;
	if (!r->rc)
		mig_stats_parse(r->value, &m->stats);
	in_fail(m, "LoadFailed",
		m->stats.error[0] ? m->stats.error : "the state could not be loaded");
}

void in_loaded(struct move *m)
{
	if (m->phase == MP_LOADED)
		return;
	vm_move(m->l, VME_LOADED, "MigrationCompleted");
	move_step(m, MP_LOADED);
	if (m->resume_call)
		resume(m);
}

void in_completed(struct move *m)
{
	struct err err = {0};

	m->is_whole = true;
	if (!move_is_split(m))
		return; /* the permission is still to come, and ends it */
	move_step(m, MP_RESUMED);
	move_clean(m);
	if (move_save(m, &err))
		log_warn("move '%s': its record is not up to date: %s", m->uid, err.msg);
}

void in_event(struct move *m, const char *name, const struct json *data, usec_t at)
{
	struct qmp_call c = {
		.command = "query-migrate", .timeout = QMP_TIMEOUT, .fn = on_error_query, .arg = m};

	if (!str_eq(name, "MIGRATION") || move_is_over(m))
		return;
	enum mig_status status = mig_status_parse(js_get_str(data, "status"));

	if (pc_in_event(m, status))
		return;
	switch (status) {
	case MIGQ_ACTIVE:
		if (m->phase == MP_LISTENING)
			move_step(m, MP_LOADING);
		break;
	case MIGQ_COMPLETED:
		m->waits_at = at;
		in_loaded(m);
		break;
	case MIGQ_FAILED:
		m->stats_slot = qmp_slot_free(m->stats_slot);
		if (qmp_invoke(m->l->qmp, &m->stats_slot, &c, NULL))
			in_fail(m, "LoadFailed", "the state could not be loaded");
		break;
	default:
		break;
	}
}

/* The launcher before this one had told it to run, and died before it could say so. */
static void adopt_running_half(struct move *m)
{
	m->resume_at = m->resume_at ? m->resume_at : loop_realtime(m->l->loop);
	move_step(m, MP_LOADED);
	move_step(m, MP_POSTCOPY);
	if (m->is_whole)
		in_completed(m);
	else if (m->is_cut)
		move_step(m, MP_BROKEN);
}

void in_adopt(struct move *m, const struct json *query, const char *run_state)
{
	(void)query;
	if (pc_in_event(m, m->stats.status)) {
		if (m->resumed && m->l->state == VM_RUNNING && !move_is_split(m))
			adopt_running_half(m);
		return;
	}
	if (m->l->state == VM_RUNNING && m->resumed) {
		if (!m->resume_at)
			m->resume_at = loop_realtime(m->l->loop);
		if (m->phase == MP_PREPARING || m->phase == MP_LISTENING ||
		    m->phase == MP_LOADING) {
			move_step(m, m->phase == MP_PREPARING ? MP_LISTENING : m->phase);
			move_step(m, MP_LOADED);
		}
		move_step(m, MP_RESUMED);
		move_clean(m);
		return;
	}
	if (m->phase == MP_PREPARING) {
		in_fail(m, "Internal", "the launcher changed while the target was prepared");
		return;
	}
	if (m->stats.status == MIGQ_COMPLETED)
		in_loaded(m);
	else if (m->stats.status == MIGQ_FAILED)
		in_fail(m, "LoadFailed",
			m->stats.error[0] ? m->stats.error : "the state could not be loaded");
	else if (m->stats.status == MIGQ_ACTIVE && m->phase == MP_LISTENING)
		move_step(m, MP_LOADING);
	log_info("move '%s': found in phase %s, the VM is %s", m->uid, move_phase_name(m->phase),
		 run_state);
}
