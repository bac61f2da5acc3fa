#include <stdio.h>
#include <string.h>

#include "base/failpoint.h"
#include "base/log.h"
#include "base/str.h"
#include "virt/launcher/move_int.h"

/* The source of a move.
 *
 *   setup --(disks mirrored and in step)--> memory --> pre-switchover --continueOutgoing--> switching
 *
 * Everything that QEMU does is heard as an event, and then asked for (query-migrate, query-status):
 * commands only ask for it.  Every phase has a deadline except the copying of disks and memory, whose
 * time is the controller's business (cancelOutgoing).
 */

static const usec_t SETUP_TIMEOUT = 15 * USEC_PER_SEC, PROGRESS = USEC_PER_SEC,
		    STALL_TIMEOUT = 10 * USEC_PER_SEC, PASS_GAP = 200 * USEC_PER_MSEC,
		    FIRST_LOOK = USEC_PER_SEC / 10, OLD_POLL = 50 * USEC_PER_MSEC;

/* --- progress --- */

static int64_t pass_ms(const struct move *m)
{
	return m->pass_began ? (int64_t)((loop_now(m->l->loop) - m->pass_began) / USEC_PER_MSEC)
			     : 0;
}

struct forecast_in out_forecast_in(const struct move *m)
{
	return (struct forecast_in){.stats = m->stats,
				    .options = m->options,
				    .written = m->written,
				    .limit_ms = m->downtime_limit_ms,
				    .pass_ms = pass_ms(m),
				    .pass_bytes = m->remaining_before,
				    .since_ms = m->since_ms,
				    .since_bytes = m->since_bytes};
}

/* The verdict is of the last pass' end; how long it still takes is said anew each time. */
static void count_down(struct move *m)
{
	struct forecast_in in = out_forecast_in(m);

	if (m->post_copy_asked)
		m->forecast.left_ms = forecast_post_copy(&in);
	else if (m->phase == MP_MEMORY && m->forecast.verdict == FORECAST_UNKNOWN)
		m->forecast = forecast_of(&in);
	else if (m->phase == MP_MEMORY && m->forecast.verdict == FORECAST_CONVERGES)
		m->forecast.left_ms = forecast_left(&in);
}

/* --- what the guest writes meanwhile --- */

bool move_is_measured(const struct launcher *l)
{
	return l->move && l->move->role == MIG_SOURCE && l->move->phase == MP_MEMORY;
}

static void measure_next(struct move *m)
{
	struct forecast_in in = out_forecast_in(m);
	int64_t seconds =
		m->measured_seconds < 0 ? 0 : forecast_measure_next(&in, m->measured_seconds);

	if (seconds && !m->was_paused)
		meter_measure(m->l, seconds);
}

void move_measured(struct launcher *l, const struct move_writes *w)
{
	struct move *m = l->move;

	if (w->was_asked)
		m->measured_seconds = w->seconds ? w->seconds : -1;
	if (!w->seconds)
		return;
	written_add(&m->written, w->seconds * 1000, w->bytes);
	log_info("move '%s': the guest writes %lld MiB in %lld s", m->uid,
		 (long long)(w->bytes >> 20), (long long)w->seconds);
	count_down(m);
	measure_next(m);
	move_report(m);
}

/* What is left at a pass' end is what was written while it took: QEMU has counted each page. */
static void learn_from_pass(struct move *m)
{
	if (m->judged_pass && m->stats.passes == m->judged_pass + 1)
		written_add(&m->written, pass_ms(m), m->stats.remaining);
}

/* At a pass' end: is the limit on the pause still the right one? */
static void judge_pass(struct move *m)
{
	int64_t next, before;
	struct qmp_call c = {.command = "migrate-set-parameters", .timeout = QMP_TIMEOUT};

	if (m->phase != MP_MEMORY || m->stats.passes == m->judged_pass)
		return;
	learn_from_pass(m);
	if (m->judged_pass || !m->pass_began)
		m->pass_began = loop_now(m->l->loop);
	struct forecast_in in = out_forecast_in(m);

	m->forecast = forecast_of(&in);
	/* what the first pass sent stands for what was left before it */
	before = m->stats.passes == 2 ? m->stats.transferred : m->remaining_before;
	if (!m->is_finishing &&
	    mig_wants_post_copy(&m->options, m->forecast.verdict == FORECAST_DIVERGES,
				m->stats.passes, m->stats.remaining, before))
		pc_start(m);
	next = mig_next_downtime(&m->options, m->downtime_limit_ms, m->stats.passes,
				 m->stats.remaining, m->remaining_before);
	m->judged_pass = m->stats.passes;
	m->remaining_before = m->stats.remaining;
	count_down(m);
	if (next == m->downtime_limit_ms)
		return;
	c.args = js_pack("{s:I}", "downtime-limit", next);
	if (!c.args || qmp_invoke(m->l->qmp, NULL, &c, NULL)) {
		log_warn("move '%s': the limit on the pause stays at %lld ms", m->uid,
			 (long long)m->downtime_limit_ms);
		return;
	}
	log_info("move '%s': pass %lld, %lld MiB left: the pause may take %lld ms", m->uid,
		 (long long)m->stats.passes, (long long)(m->stats.remaining >> 20),
		 (long long)next);
	m->downtime_limit_ms = next;
}

/* While the copies are in step each write of the guest waits for the target's answer.  A target that has
 * died without a word (no reset, no close) would hold them for as long as TCP tries. */
static bool is_stalled(struct move *m)
{
	usec_t now = loop_now(m->l->loop);

	if (!m->n_disks || m->phase != MP_MEMORY || m->stats.transferred != m->seen_bytes ||
	    !m->grew_at) {
		m->seen_bytes = m->stats.transferred;
		m->grew_at = now;
		return false;
	}
	return now - m->grew_at > STALL_TIMEOUT;
}

static void on_stats(const struct qmp_reply *r, void *arg)
{
	struct move *m = arg;

	m->stats_slot = qmp_slot_free(m->stats_slot);
	if (r->rc || move_is_over(m))
		return;
	mig_stats_parse(r->value, &m->stats);
	if (m->phase == MP_MEMORY && !m->since_ms) {
		m->since_ms = m->stats.elapsed_ms;
		m->since_bytes = m->stats.transferred;
	}
	count_down(m);
	if (pc_out_stats(m))
		return;
	if (is_stalled(m)) {
		move_set_failure(
			m, "TargetClosed",
			"the target took no byte for %d s, and the guest's writes wait for it",
			(int)(STALL_TIMEOUT / USEC_PER_SEC));
		out_cancel(m);
		return;
	}
	judge_pass(m);
	if (m->phase == MP_MEMORY)
		measure_next(m);
	if (loop_now(m->l->loop) - m->last_report > PASS_GAP)
		move_report(m);
}

static void on_jobs(const struct qmp_reply *r, void *arg)
{
	struct move *m = arg;

	m->stats_slot = qmp_slot_free(m->stats_slot);
	for (size_t i = 0; !r->rc && i < m->n_disks; i++) {
		struct move_names n = move_disk_names(m, &m->disks[i]);

		for (size_t k = 0; k < js_len(r->value); k++) {
			const struct json *j = js_item(r->value, k);

			if (!str_eq(js_get_str(j, "device"), n.job))
				continue;
			m->disks[i].total = js_get_int(j, "len", 0);
			m->disks[i].copied = js_get_int(j, "offset", 0);
		}
	}
	if (!r->rc && !move_is_over(m))
		move_report(m);
}

static void ask_stats(struct move *m)
{
	bool disks = m->phase == MP_DISKS;
	struct qmp_call c = {.command = disks ? "query-block-jobs" : "query-migrate",
			     .timeout = QMP_TIMEOUT,
			     .fn = disks ? on_jobs : on_stats,
			     .arg = m};

	if (!m->stats_slot && qmp_is_ready(m->l->qmp))
		ignore_rc(qmp_invoke(m->l->qmp, &m->stats_slot, &c,
				     NULL)); /* asked again in a second */
}

static void on_progress(void *arg)
{
	struct move *m = arg;

	if (m->phase == MP_DISKS || m->phase == MP_MEMORY || move_is_split(m))
		ask_stats(m);
	ev_timer_rearm(m->progress, PROGRESS);
}

void out_start_progress(struct move *m)
{
	struct err err = {0};

	if (!m->progress &&
	    ev_timer_after(m->l->loop, &m->progress, m->phase == MP_MEMORY ? FIRST_LOOK : PROGRESS,
			   on_progress, m, &err))
		log_warn("move '%s' shows no progress: %s", m->uid, err.msg);
}

/* --- setting up --- */

static void answer_started(struct move *m)
{
	struct ipc_call *call = STEAL(m->call);

	if (call)
		ipc_call_done(call, js_pack("{s:O}", "parameters", m->parameters), NULL, 0);
}

static void on_migrate(const struct qmp_reply *r, void *arg)
{
	struct move *m = arg;

	m->migrate_slot = qmp_slot_free(m->migrate_slot);
	if (r->rc == RC_CLOSED)
		return;
	if (r->rc) { /* accepted or refused, nothing more: the outcome comes as events */
		out_fail(m, "ConnectFailed", r->desc);
		return;
	}
	answer_started(m);
}

static void send_migrate(struct move *m)
{
	struct qmp_call c = {.command = "migrate",
			     .timeout = QMP_TIMEOUT,
			     .fn = on_migrate,
			     .arg = m,
			     .args = mig_channels(m->role, m->address, m->port)};
	struct err err = {0};

	out_arm(m, SETUP_TIMEOUT);
	m->migrate_sent = true;
	if (!c.args)
		out_fail(m, "Internal", "out of memory");
	else if (qmp_invoke(m->l->qmp, &m->migrate_slot, &c, &err))
		out_fail(m, "Internal", err.msg);
}

/* A move that was cancelled while it connected is over before QEMU has let go of its connection, and until then it begins
 * no other one; it tells nobody when that is. */
static bool holds_old_connection(const struct json *instances)
{
	for (size_t i = 0; i < js_len(instances); i++)
		if (str_eq(js_get_str(js_item(instances, i), "type"), "migration"))
			return true;
	return false;
}

static void send_when_free(void *arg);

static void on_instances(const struct qmp_seq_result *r, void *arg)
{
	struct move *m = arg;
	struct err err = {0};
	enum rc rc = RC_OK;

	if (r->rc == RC_CLOSED)
		return;
	if (r->rc || !holds_old_connection(r->value)) {
		m->waits_for_old = false;
		send_migrate(m); /* which says why if it cannot be */
		return;
	}
	if (!m->waits_for_old)
		log_info("move '%s': QEMU still closes the connection of an earlier move", m->uid);
	m->waits_for_old = true;
	if (m->old_poll)
		ev_timer_rearm(m->old_poll, OLD_POLL);
	else
		rc = ev_timer_after(m->l->loop, &m->old_poll, OLD_POLL, send_when_free, m, &err);
	if (rc)
		out_fail(m, "Internal", err.msg);
}

static void send_when_free(void *arg)
{
	struct move *m = arg;
	struct qmp_seq *s = NULL;
	struct err err = {0};

	if (m->migrate_sent || m->seq || (m->phase != MP_SETUP && m->phase != MP_DISKS))
		return; /* it has been ended since */
	if (!m->waits_for_old)
		out_arm(m, SETUP_TIMEOUT);
	enum rc rc = qmp_seq_new(&s, QMP_TIMEOUT, &err);

	qmp_seq_add_plain(s, "query-yank", SEQ_MUST);
	if (!rc)
		rc = qmp_seq_run(s, &m->seq, m->l->qmp, on_instances, m, &err);
	if (rc)
		out_fail(m, "Internal", err.msg);
}

/* All mirrors are in step: from now on a write waits for both sides, so that nothing is left to copy
 * when the guest stops. */
static void on_write_blocking(const struct qmp_seq_result *r, void *arg)
{
	struct move *m = arg;

	if (r->rc == RC_CLOSED)
		return;
	send_when_free(m);
}

static void disks_in_step(struct move *m)
{
	struct qmp_seq *s = NULL;
	struct err err = {0};
	enum rc rc = qmp_seq_new(&s, QMP_TIMEOUT, &err);

	for (size_t i = 0; !rc && i < m->n_disks; i++) {
		struct move_names n = move_disk_names(m, &m->disks[i]);

		qmp_seq_add(s, "block-job-change",
			    js_pack("{s:s, s:s, s:s}", "id", n.job, "type", "mirror", "copy-mode",
				    "write-blocking"),
			    SEQ_MAY_FAIL);
	}
	if (!rc)
		rc = qmp_seq_run(s, &m->seq, m->l->qmp, on_write_blocking, m, &err);
	if (rc)
		out_fail(m, "Internal", err.msg);
}

static void go_on_in_step(struct move *m)
{
	for (size_t i = 0; i < m->n_disks; i++)
		if (!m->disks[i].ready)
			return;
	if (m->phase == MP_DISKS && !m->seq && !m->migrate_sent)
		disks_in_step(m);
}

static void on_mirrors(const struct qmp_seq_result *r, void *arg)
{
	struct move *m = arg;

	if (r->rc == RC_CLOSED)
		return;
	if (r->rc) {
		out_fail(m, "DiskCopyFailed", r->desc);
		return;
	}
	answer_started(m);
	go_on_in_step(m); /* small ones were ready before the last answer */
}

static struct json *nbd_node(const struct move *m, const char *node, const char *export_)
{
	char port[8];

	snprintf(port, sizeof(port), "%d", m->nbd_port);
	return js_pack("{s:s, s:s, s:{s:s, s:s, s:s}, s:s, s:s*}", "driver", "nbd", "node-name",
		       node, "server", "type", "inet", "host", m->address, "port", port, "export",
		       export_, "tls-creds", m->tls.on ? MIG_TLS_ID : NULL);
}

static void start_mirrors(struct move *m)
{
	struct qmp_seq *s = NULL;
	struct err err = {0};
	enum rc rc = qmp_seq_new(&s, SETUP_TIMEOUT, &err);

	move_step(m, MP_DISKS);
	for (size_t i = 0; !rc && i < m->n_disks; i++) {
		const struct launch_disk *d = &m->l->spec->disks[m->disks[i].index];
		struct move_names n = move_disk_names(m, &m->disks[i]);
		char top[16];

		qemu_node_name(m->disks[i].index, 0, top);
		qmp_seq_add(s, "blockdev-add", nbd_node(m, n.node, n.export), SEQ_MUST);
		/* "top" copies the overlay only: the base is the same on both nodes. */
		qmp_seq_add(s, "blockdev-mirror",
			    js_pack("{s:s, s:s, s:s, s:s, s:b}", "job-id", n.job, "device", top,
				    "target", n.node, "sync", d->n_images > 1 ? "top" : "full",
				    "auto-dismiss", 1),
			    SEQ_MUST);
	}
	if (!rc)
		rc = qmp_seq_run(s, &m->seq, m->l->qmp, on_mirrors, m, &err);
	if (rc)
		out_fail(m, "Internal", err.msg);
	else
		out_start_progress(m);
}

static void on_set_up(const struct qmp_seq_result *r, void *arg)
{
	struct move *m = arg;

	if (r->rc == RC_CLOSED)
		return;
	if (r->rc) {
		out_fail(m, str_eq(r->command, "object-add") ? "TLSFailed" : "Internal", r->desc);
		return;
	}
	m->parameters = js_ref(r->value);
	if (m->n_disks)
		start_mirrors(m);
	else
		send_when_free(m);
}

static enum rc set_up(struct move *m, struct err *err)
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
	if (m->tls.on) {
		qmp_seq_add(s, "object-del", js_pack("{s:s}", "id", MIG_TLS_ID), SEQ_MAY_FAIL);
		qmp_seq_add(s, "object-add",
			    mig_tls_object(dir, &m->tls, MIG_SOURCE, move_has_fast_aes()),
			    SEQ_MUST);
	}
	qmp_seq_add(s, "migrate-set-capabilities", mig_capabilities(&m->options, MIG_SOURCE),
		    SEQ_MUST);
	qmp_seq_add(s, "migrate-set-parameters", mig_parameters(&m->options, MIG_SOURCE, m->tls.on),
		    SEQ_MUST);
	qmp_seq_add_plain(s, "query-migrate-parameters", SEQ_MUST);
	return qmp_seq_run(s, &m->seq, m->l->qmp, on_set_up, m, err);
}

static enum rc may_start(const struct launcher *l, struct err *err)
{
	if (l->state != VM_RUNNING && l->state != VM_PAUSED)
		return err_set(err, RC_CONFLICT, "cannot move a VM that is %s",
			       vm_state_name(l->state));
	if (l->move && !move_is_over(l->move))
		return err_set(err, RC_CONFLICT, "the move '%s' is under way", l->move->uid);
	if (!qmp_is_ready(l->qmp))
		return err_set(err, RC_BUSY, "QEMU's monitor is not connected right now");
	if (str_eq(l->accel, "tcg") && l->version[0] < 10)
		return err_set(err, RC_UNSUPPORTED,
			       "QEMU %d.%d can corrupt an emulated guest while it moves; QEMU 10 "
			       "or newer is needed",
			       l->version[0], l->version[1]);
	return RC_OK;
}

void move_start_outgoing(struct launcher *l, struct ipc_call *call, const struct json *params)
{
	struct move *m = NULL;
	struct err err = {0};
	enum rc rc = may_start(l, &err);

	if (!rc)
		rc = move_new(l, MIG_SOURCE, params, &m, &err);
	if (rc) {
		ipc_call_fail_err(call, &err);
		return;
	}
	failpoint("source.starts");
	m->was_paused = l->state == VM_PAUSED;
	m->downtime_limit_ms = MIN(m->options.initial_downtime_ms, m->options.downtime_limit_ms);
	m->call = call;
	move_free(l->move);
	l->move = m;
	vm_move(l, VME_MIGRATES, "MigrationStarted");
	move_report(m);
	rc = set_up(m, &err);
	if (rc)
		out_fail(m, "Internal", err.msg);
}

/* --- the switch --- */

static bool disks_done(const struct move *m)
{
	for (size_t i = 0; i < m->n_disks; i++)
		if (!m->disks[i].done)
			return false;
	return true;
}

static void on_continued(const struct qmp_reply *r, void *arg)
{
	struct move *m = arg;
	struct ipc_call *call = STEAL(m->continue_call);

	m->migrate_slot = qmp_slot_free(m->migrate_slot);
	if (r->rc && r->rc != RC_CLOSED)
		log_warn("move '%s': migrate-continue: %s", m->uid,
			 r->desc); /* the deadline decides */
	if (!call)
		return;
	if (r->rc)
		ipc_call_fail(call, r->rc, "%s", r->desc);
	else
		ipc_call_done(call, js_new_object(), NULL, 0);
}

static void go_on(struct move *m)
{
	struct qmp_call c = {.command = "migrate-continue",
			     .timeout = QMP_TIMEOUT,
			     .fn = on_continued,
			     .arg = m,
			     .args = js_pack("{s:s}", "state", "pre-switchover")};
	struct err err = {0};

	if (!c.args || qmp_invoke(m->l->qmp, &m->migrate_slot, &c, &err))
		move_fail_call(&m->continue_call, RC_BUSY, c.args ? err.msg : "out of memory");
	else
		move_step(m, MP_SWITCHING);
}

static void on_mirrors_ended(const struct qmp_seq_result *r, void *arg)
{
	struct move *m = arg;

	if (r->rc && r->rc != RC_CLOSED) {
		move_set_failure(m, "DiskCopyFailed", "%s", r->desc);
		out_cancel(m);
	}
}

/* The guest stands, so each mirror ends with both sides equal. */
static void end_mirrors(struct move *m)
{
	struct qmp_seq *s = NULL;
	struct err err = {0};
	enum rc rc = qmp_seq_new(&s, QMP_TIMEOUT, &err);

	for (size_t i = 0; !rc && i < m->n_disks; i++) {
		struct move_names n = move_disk_names(m, &m->disks[i]);

		qmp_seq_add(s, "block-job-cancel", js_pack("{s:s}", "device", n.job), SEQ_MUST);
	}
	if (!rc)
		rc = qmp_seq_run(s, &m->seq, m->l->qmp, on_mirrors_ended, m, &err);
	if (rc) {
		move_set_failure(m, "DiskCopyFailed", "%s", err.msg);
		out_cancel(m);
	}
}

/* First of all: the guest stands until the agent has heard this. */
static void tell_it_stands(struct move *m)
{
	m->stands_told = true;
	failpoint("source.stands");
	ipc_server_event(
		m->l->server, "preSwitchover",
		js_pack("{s:s, s:I}", "migrationUid", m->uid, "stopAt", (int64_t)m->stop_at));
	out_arm(m, (usec_t)m->options.switchover_timeout_ms * USEC_PER_MSEC);
}

/* QEMU is about a millisecond away from pre-switchover: the agent's work and its answer fit into that. */
void out_stands(struct move *m)
{
	if (m->phase == MP_MEMORY && !m->was_paused && !m->stands_told)
		tell_it_stands(m);
}

static void pre_switchover(struct move *m, usec_t at)
{
	if (!m->stop_at || m->was_paused)
		m->stop_at = at ? at : loop_realtime(m->l->loop);
	if (!m->stands_told)
		tell_it_stands(m);
	vm_move(m->l, VME_SWITCHES, "MigrationSwitch");
	move_step(m, MP_PRE_SWITCHOVER);
	if (m->n_disks)
		end_mirrors(m);
	else if (m->continue_asked)
		go_on(m);
}

void move_continue(struct launcher *l, struct ipc_call *call, const struct json *params)
{
	struct move *m = move_named(l, call, params, MIG_SOURCE);
	struct err err = {0};

	if (!m)
		return;
	if ((m->phase != MP_PRE_SWITCHOVER && !(m->phase == MP_MEMORY && m->stands_told)) ||
	    m->continue_asked) {
		ipc_call_fail(call, RC_CONFLICT, "the move is in phase %s%s",
			      move_phase_name(m->phase),
			      m->continue_asked ? ", and was told to go on" : "");
		return;
	}
	if (out_stood_too_long(m, "before the switch")) {
		ipc_call_fail(call, RC_CONFLICT, "%s", m->fail_message);
		out_cancel(m);
		return;
	}
	m->epoch = js_get_int(params, "epoch", -1);
	if (move_save(m, &err)) { /* a launcher that comes after must know the epoch */
		m->epoch = -1;
		ipc_call_fail_err(call, &err);
		return;
	}
	failpoint("source.continues");
	m->continue_asked = true;
	m->continue_call = call;
	if (m->phase == MP_PRE_SWITCHOVER && disks_done(m))
		go_on(m);
}

/* A launcher that has read this in the record, and has not asked QEMU yet, cannot know how far it got. */
static bool is_told_to_go_on(const struct move *m)
{
	return m->phase == MP_SWITCHING || (m->phase == MP_PRE_SWITCHOVER && m->epoch >= 0);
}

void move_cancel(struct launcher *l, struct ipc_call *call, const struct json *params)
{
	struct move *m = move_named(l, call, params, MIG_SOURCE);
	const char *reason = js_get_str(params, "reason");

	if (!m)
		return;
	if (move_is_over(m)) {
		ipc_call_fail(call, RC_CONFLICT, "the move has ended: %s",
			      move_phase_name(m->phase));
		return;
	}
	/* QEMU would be told to drop the only whole copy: what the target lacks is here. */
	if (move_is_split(m) || (m->post_copy_asked && is_told_to_go_on(m))) {
		ipc_call_fail(
			call, RC_CONFLICT,
			"post-copy has begun: the guest is at the target, and cannot come back");
		return;
	}
	snprintf(m->cancel_reason, sizeof(m->cancel_reason), "%s", reason ? reason : "");
	ipc_call_done(call, js_new_object(), NULL, 0);
	if (m->phase != MP_CANCELLING)
		out_cancel(m);
}

static void on_finishing(const struct qmp_reply *r, void *arg)
{
	struct ipc_call *call = arg;

	if (r->rc)
		ipc_call_fail(call, r->rc, "%s", r->desc);
	else
		ipc_call_done(call, js_new_object(), NULL, 0);
}

/* No pause is too long for QEMU's switch any more: it stops the guest at once, and what is left goes over by
 * the same steps as at any switch, with the same ways back. */
static enum rc tell_qemu_to_finish(struct move *m, qmp_reply_fn fn, void *arg, struct err *err)
{
	struct qmp_call c = {.command = "migrate-set-parameters",
			     .timeout = QMP_TIMEOUT,
			     .fn = fn,
			     .arg = arg,
			     .args = js_pack("{s:i}", "downtime-limit", MIG_DOWNTIME_MAX_MS)};

	return c.args ? qmp_invoke(m->l->qmp, NULL, &c, err)
		      : err_set(err, RC_NOMEM, "out of memory");
}

/* In the record first: a launcher that comes after goes on with it.  Asked again, it is the same again. */
static enum rc begin_finish(struct move *m, int64_t timeout, struct ipc_call *call, struct err *err)
{
	const struct mig_options options = m->options;
	const int64_t limit = m->downtime_limit_ms;
	const bool was_finishing = m->is_finishing;

	move_set_finishing(m, MAX(m->options.switchover_timeout_ms, timeout));
	enum rc rc = move_save(m, err);

	failpoint("source.finishes");
	if (!rc)
		rc = tell_qemu_to_finish(m, on_finishing, call, err);
	if (rc) {
		m->options = options;
		m->downtime_limit_ms = limit;
		m->is_finishing = was_finishing;
		ignore_rc(move_save(m, NULL)); /* at worst the next launcher does what was asked */
	}
	return rc;
}

void move_finish(struct launcher *l, struct ipc_call *call, const struct json *params)
{
	struct move *m = move_named(l, call, params, MIG_SOURCE);
	struct err err = {0};

	if (!m)
		return;
	if (m->phase != MP_MEMORY || m->post_copy_asked) {
		ipc_call_fail(call, RC_CONFLICT, "%s%s",
			      m->post_copy_asked ? "post-copy was begun" : "the move is in phase ",
			      m->post_copy_asked ? "" : move_phase_name(m->phase));
		return;
	}
	if (begin_finish(m, js_get_int(params, "timeoutMs", 0), call, &err)) {
		ipc_call_fail_err(call, &err);
		return;
	}
	log_info("move '%s': %lld MiB are left, and go over while the guest stands", m->uid,
		 (long long)(m->stats.remaining >> 20));
	move_report(m);
}

/* The launcher before this one was told to, and may have died before QEMU was. */
static void go_on_finishing(struct move *m)
{
	struct err err = {0};

	if (m->is_finishing && tell_qemu_to_finish(m, NULL, NULL, &err))
		log_warn("move '%s': cannot be finished now: %s", m->uid, err.msg);
}

void move_release(struct launcher *l, struct ipc_call *call, const struct json *params)
{
	struct move *m = move_named(l, call, params, MIG_SOURCE);
	int64_t epoch = js_get_int(params, "epoch", -1), old;
	struct err err = {0};

	if (!m)
		return;
	if (m->phase != MP_COMPLETED || epoch < 0 || epoch < m->epoch || m->resume_call) {
		ipc_call_fail(call, RC_CONFLICT,
			      "cannot release epoch %lld in phase %s (epoch %lld)",
			      (long long)epoch, move_phase_name(m->phase), (long long)m->epoch);
		return;
	}
	old = m->epoch;
	m->epoch = epoch;
	m->released = true;
	if (move_save(m, &err)) {
		m->epoch = old;
		m->released = false;
		ipc_call_fail_err(call, &err);
		return;
	}
	ipc_call_done(call, js_pack("{s:I}", "at", (int64_t)loop_realtime(l->loop)), NULL, 0);
}

/* A release whose writing failed in its last step may stand in the record all the same. */
static enum rc forget_release(const struct move *m, struct err *err)
{
	CLEANUP(js_unrefp) struct json *j = NULL;

	if (record_read(m->l, "migration.json", &j, NULL) || !js_get_bool(j, "released", false))
		return RC_OK;
	return move_save(m, err);
}

static void on_source_resumed(const struct qmp_seq_result *r, void *arg)
{
	struct move *m = arg;
	struct ipc_call *call = STEAL(m->resume_call);
	struct err err = {0};

	if (r->rc) {
		if (call)
			ipc_call_fail(call, r->rc, "QEMU does not go on: %s", r->desc);
		return;
	}
	m->resume_at = m->l->last_resume;
	move_set_failure(m, "Cancelled", "resumed on the source before it was released");
	move_step(m, MP_FAILED);
	if (move_save(m, &err))
		log_warn("move '%s': its record is not up to date: %s", m->uid, err.msg);
	move_clean(m);
	if (call)
		ipc_call_done(call, js_pack("{s:I}", "resumeAt", (int64_t)m->resume_at), NULL, 0);
}

void move_resume_source(struct launcher *l, struct ipc_call *call, const struct json *params)
{
	struct move *m = move_named(l, call, params, MIG_SOURCE);
	struct qmp_seq *s = NULL;
	struct err err = {0};
	enum rc rc;

	if (!m)
		return;
	if (m->released) {
		ipc_call_fail(call, RC_CONFLICT,
			      "released with epoch %lld: this copy never runs again",
			      (long long)m->epoch);
		return;
	}
	if (m->phase != MP_COMPLETED || l->state != VM_POSTMIGRATE || m->resume_call || m->seq) {
		ipc_call_fail(call, RC_CONFLICT, "the move is in phase %s, the VM is %s",
			      move_phase_name(m->phase), vm_state_name(l->state));
		return;
	}
	rc = forget_release(m, &err);
	if (!rc)
		rc = qmp_seq_new(&s, QMP_TIMEOUT, &err);
	if (!rc) {
		qmp_seq_add_plain(s, "cont", SEQ_MUST);
		rc = qmp_seq_run(s, &m->seq, l->qmp, on_source_resumed, m, &err);
	}
	if (rc)
		ipc_call_fail_err(call, &err);
	else
		m->resume_call = call;
}

/* --- events --- */

static void on_status_event(struct move *m, enum mig_status status, usec_t at)
{
	if (pc_out_event(m, status))
		return;
	switch (status) {
	case MIGQ_ACTIVE:
		if (m->phase == MP_SETUP || m->phase == MP_DISKS) {
			out_disarm(m);
			m->pass_began = loop_now(m->l->loop);
			m->written = meter_written(m->l);
			move_step(m, MP_MEMORY);
			out_start_progress(m);
			failpoint("source.copies");
		}
		break;
	case MIGQ_PRE_SWITCHOVER:
		m->waits_at = at;
		if (m->phase == MP_MEMORY)
			pre_switchover(m, at);
		break;
	case MIGQ_DEVICE:
		move_waited(m, at);
		break;
	case MIGQ_COMPLETED:
		m->polls = 0;
		out_ask_completed(m);
		out_release_early(m);
		break;
	case MIGQ_FAILED:
	case MIGQ_CANCELLED:
		out_ended_badly(m);
		break;
	case MIGQ_CANCELLING:
		if (m->phase != MP_CANCELLING)
			move_step(m, MP_CANCELLING);
		break;
	default:
		break;
	}
}

static struct move_disk *disk_of_job(struct move *m, const char *device)
{
	for (size_t i = 0; i < m->n_disks; i++) {
		struct move_names n = move_disk_names(m, &m->disks[i]);

		if (str_eq(device, n.job))
			return &m->disks[i];
	}
	return NULL;
}

/* The copy's job has ended after the move did: its node can go now. */
static void drop_node(struct move *m, const struct move_disk *d)
{
	struct qmp_call c = {.command = "blockdev-del",
			     .timeout = QMP_TIMEOUT,
			     .args = js_pack("{s:s}", "node-name", move_disk_names(m, d).node)};

	if (!c.args || qmp_invoke(m->l->qmp, NULL, &c, NULL))
		log_warn("move '%s': an unused connection to the target stays", m->uid);
}

static void on_job_event(struct move *m, const char *name, const struct json *data)
{
	struct move_disk *d = disk_of_job(m, js_get_str(data, "device"));
	const char *error = js_get_str(data, "error");

	if (!d)
		return;
	if (move_is_over(m) || m->phase == MP_CANCELLING) {
		if (!str_eq(name, "BLOCK_JOB_READY") && m->phase != MP_COMPLETED)
			drop_node(m, d);
		return;
	}
	d->total = js_get_int(data, "len", d->total);
	d->copied = js_get_int(data, "offset", d->copied);
	if (str_eq(name, "BLOCK_JOB_READY")) {
		d->ready = true;
		go_on_in_step(m);
		return;
	}
	if (m->phase == MP_PRE_SWITCHOVER && !error) { /* ended as asked: both sides are equal */
		d->done = true;
		if (m->continue_asked && disks_done(m))
			go_on(m);
		return;
	}
	move_set_failure(m, "DiskCopyFailed", "disk '%s': %s", m->l->spec->disks[d->index].name,
			 error ? error : "the copy ended early");
	if (m->phase == MP_DISKS || m->phase == MP_SETUP)
		out_finish(m, m->was_paused);
	else
		out_cancel(m);
}

void out_event(struct move *m, const char *name, const struct json *data, usec_t at)
{
	if (str_eq(name, "MIGRATION")) {
		if (!move_is_over(m))
			on_status_event(m, mig_status_parse(js_get_str(data, "status")), at);
	} else if (str_eq(name, "MIGRATION_PASS")) {
		if (m->phase == MP_MEMORY)
			ask_stats(m);
	} else if (str_eq(name, "BLOCK_JOB_READY") || str_eq(name, "BLOCK_JOB_COMPLETED") ||
		   str_eq(name, "BLOCK_JOB_CANCELLED")) {
		on_job_event(m, name, data);
	}
}

/* A new launcher, or a new connection: what QEMU says now decides. */
void out_adopt(struct move *m, const struct json *query, const char *run_state)
{
	m->migrate_sent = true;
	if (m->phase == MP_COMPLETED) {
		if (m->l->state != VM_POSTMIGRATE)
			log_warn("move '%s' was completed, yet the VM is %s", m->uid, run_state);
		return;
	}
	switch (m->stats.status) {
	case MIGQ_SETUP:
	case MIGQ_ACTIVE:
		vm_move(m->l, VME_MIGRATES, "MigrationStarted");
		move_step(m, MP_MEMORY);
		out_start_progress(m);
		go_on_finishing(m);
		break;
	case MIGQ_POSTCOPY_ACTIVE:
	case MIGQ_POSTCOPY_PAUSED:
	case MIGQ_POSTCOPY_RECOVER:
		pc_out_adopt(m);
		break;
	case MIGQ_PRE_SWITCHOVER: /* nobody is left who would let it go on: decided at once */
		vm_move(m->l, VME_SWITCHES, "MigrationSwitch");
		move_set_failure(m, "SwitchoverTimeout",
				 "the launcher changed while the guest stood");
		out_cancel(m);
		break;
	case MIGQ_DEVICE:
		vm_move(m->l, VME_SWITCHES, "MigrationSwitch");
		move_step(m, MP_SWITCHING);
		out_arm(m, (usec_t)m->options.switchover_timeout_ms * USEC_PER_MSEC);
		break;
	case MIGQ_COMPLETED:
		out_ask_completed(m);
		break;
	default:
		move_set_failure(m, "Internal", "the launcher changed while the move was prepared");
		out_finish(m, m->l->state == VM_PAUSED);
		break;
	}
}
