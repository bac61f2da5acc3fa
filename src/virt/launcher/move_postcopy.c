#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/str.h"
#include "virt/launcher/move_int.h"

/* Post-copy: the guest goes on at the target before its memory is whole; pages follow, those first that it
 * waits for.
 *
 *   source: memory --migrate-start-postcopy--> pre-switchover --continueOutgoing--> switching
 *           --(a page has gone over in post-copy)--> postcopy [released] --> completed
 *   target: loading --(the devices are loaded)--> loaded --resumeIncoming--> postcopy --> resumed
 *   both:   postcopy --(the link is lost)--> postcopy-paused --recover...--> postcopy
 *
 * There is one instant at which the guest's place changes, as in pre-copy: the durable release.  It is
 * written when QEMU's source can no longer fall back to running the guest: its `postcopy-active` alone does
 * not say that (it comes before the devices are sent, and an error then makes the source go on by itself),
 * a page sent in post-copy does.  From then on nothing cancels: what the target lacks is only here.
 *
 * A lost link is no end.  Both QEMUs keep what they have; the target listens anew, on the other one of the
 * move's two ports, and the source connects again with the same one-time key. */

static const usec_t SPLIT_POLL = USEC_PER_MSEC, RELEASE_RETRY = USEC_PER_SEC,
		    LOAD_POLL_LATE = USEC_PER_SEC / 10, SPLIT_STALL = 5 * USEC_PER_SEC,
		    RECOVER_TIMEOUT = 5 * USEC_PER_SEC, HALF_TIMEOUT = USEC_PER_SEC;

enum { LOAD_POLLS = 1000 }; /* then LOAD_POLL_LATE */

bool move_is_split(const struct move *m)
{
	return m->phase == MP_POSTCOPY || m->phase == MP_BROKEN;
}

/* Out of band: a main loop that waits for a page of the guest cannot hold it up. */
static enum rc oob(struct move *m, const char *command, struct json *args, qmp_reply_fn fn,
		   struct qmp_slot **slot, struct err *err)
{
	struct qmp_call c = {.command = command,
			     .args = args,
			     .oob = true,
			     .timeout = RECOVER_TIMEOUT,
			     .fn = fn,
			     .arg = m};

	return qmp_invoke(m->l->qmp, slot, &c, err);
}

/* --- the source: beginning --- */

static void on_asked(const struct qmp_reply *r, void *arg)
{
	struct move *m = arg;

	if (!r->rc || r->rc == RC_CLOSED)
		return;
	log_warn("move '%s': migrate-start-postcopy: %s", m->uid, r->desc);
	if (r->rc != RC_TIMEOUT) { /* a late answer is no refusal: QEMU may begin all the same */
		m->post_copy_asked = false;
	}
}

static enum rc start(struct move *m, struct err *err)
{
	struct qmp_call c = {.command = "migrate-start-postcopy",
			     .timeout = QMP_TIMEOUT,
			     .fn = on_asked,
			     .arg = m};

	if (m->post_copy_asked)
		return RC_OK;
	m->post_copy_asked = true;
	enum rc rc = move_save(m, err); /* a launcher that comes after must not cancel it */

	if (!rc)
		rc = qmp_invoke(m->l->qmp, NULL, &c, err);
	if (rc) {
		m->post_copy_asked = false;
		return rc;
	}
	log_info("move '%s': post-copy after pass %lld, %lld MiB are left", m->uid,
		 (long long)m->stats.passes, (long long)(m->stats.remaining >> 20));
	struct forecast_in in = out_forecast_in(m);

	m->forecast.left_ms = forecast_post_copy(&in);
	move_report(m);
	return RC_OK;
}

void pc_start(struct move *m)
{
	struct err err = {0};

	if (start(m, &err))
		log_warn("move '%s': post-copy cannot begin: %s", m->uid, err.msg);
}

void move_start_post_copy(struct launcher *l, struct ipc_call *call, const struct json *params)
{
	struct move *m = move_named(l, call, params, MIG_SOURCE);
	struct err err = {0};

	if (!m)
		return;
	if (!m->options.post_copy || m->phase != MP_MEMORY) {
		ipc_call_fail(call, RC_CONFLICT, "%s%s",
			      m->options.post_copy
				      ? "the move is in phase "
				      : "post-copy was not allowed when this move began",
			      m->options.post_copy ? move_phase_name(m->phase) : "");
		return;
	}
	if (start(m, &err))
		ipc_call_fail_err(call, &err);
	else
		ipc_call_done(call, js_new_object(), NULL, 0);
}

/* --- the source: the guest leaves --- */

static void poll_again(struct move *m, usec_t delay)
{
	struct err err = {0};

	if (m->poll)
		ev_timer_rearm(m->poll, delay);
	else if (ev_timer_after(m->l->loop, &m->poll, delay, pc_ask_split, m, &err))
		log_error("move '%s': %s", m->uid, err.msg);
}

/* QEMU cannot fall back any more. */
static void split(struct move *m)
{
	struct err err = {0};

	out_disarm(m);
	m->is_split = true;
	m->released = m->epoch >= 0;
	if (!m->released || move_save(m, &err)) {
		/* There is no way back either: it is tried until it is written, and the guest stands. */
		m->released = false;
		log_error("move '%s': released(%lld) cannot be made durable, trying again: %s",
			  m->uid, (long long)m->epoch, m->epoch < 0 ? "no epoch" : err.msg);
		poll_again(m, RELEASE_RETRY);
		return;
	}
	vm_move(m->l, VME_MIGRATED, "MigrationPostCopy");
	m->grew_at = 0;
	move_step(m, m->stats.status == MIGQ_POSTCOPY_ACTIVE ? MP_POSTCOPY : MP_BROKEN);
	out_start_progress(m);
}

static void on_split_stats(const struct qmp_reply *r, void *arg)
{
	struct move *m = arg;

	m->stats_slot = qmp_slot_free(m->stats_slot);
	if (r->rc || m->phase != MP_SWITCHING)
		return; /* a closed monitor is opened again, and QEMU asked again */
	mig_stats_parse(r->value, &m->stats);
	if (mig_is_beyond_return(&m->stats))
		split(m);
	else if (m->stats.status == MIGQ_POSTCOPY_ACTIVE)
		poll_again(m, SPLIT_POLL);
	/* completed, failed: their events come, or have come */
}

void pc_ask_split(void *arg)
{
	struct move *m = arg;
	struct qmp_call c = {
		.command = "query-migrate", .timeout = QMP_TIMEOUT, .fn = on_split_stats, .arg = m};

	if (m->phase != MP_SWITCHING)
		return;
	m->stats_slot = qmp_slot_free(m->stats_slot);
	if (qmp_invoke(m->l->qmp, &m->stats_slot, &c, NULL))
		log_warn("move '%s': cannot ask QEMU now, asking after the next connection",
			 m->uid);
}

/* --- the link --- */

static void mended(struct move *m)
{
	m->grew_at = 0;
	move_step(m, MP_POSTCOPY);
}

static void broken(struct move *m)
{
	if (m->phase == MP_POSTCOPY)
		log_warn("move '%s': the link is lost in post-copy, both halves are kept", m->uid);
	move_step(m, MP_BROKEN);
}

/* At the target its `postcopy-paused` goes on from there. */
static void on_cut(const struct qmp_reply *r, void *arg)
{
	struct move *m = arg;

	if (!r->rc || r->rc == RC_CLOSED || m->phase == MP_BROKEN)
		return;
	log_debug("move '%s': the link is not cut: %s", m->uid, r->desc);
	move_fail_call(&m->recover_call, RC_BUSY, r->desc);
}

static void on_awake(const struct qmp_reply *r, void *arg)
{
	struct move *m = arg;
	struct err err = {0};

	if (r->rc || m->phase == MP_BROKEN)
		on_cut(r, m);
	else if (oob(m, "migrate-pause", NULL, on_cut, NULL, &err))
		move_fail_call(&m->recover_call, RC_BUSY, err.msg);
}

/* QEMU 10 dies of a migrate-pause that it takes up while it notices the lost link by itself.  One that has stood still
 * does exactly that with a command that waits for it, so it has to show first that it is awake, by a command that touches
 * nothing. */
static enum rc cut_link(struct move *m, struct err *err)
{
	struct qmp_call c = {.command = "query-yank",
			     .oob = true,
			     .timeout = HALF_TIMEOUT,
			     .fn = on_awake,
			     .arg = m};

	return qmp_invoke(m->l->qmp, NULL, &c, err);
}

/* A link that swallows everything without a word: nothing has gone over for a while, though there is
 * something to send or an answer to come. */
static bool is_silent(struct move *m)
{
	usec_t now = loop_now(m->l->loop);

	if (!m->grew_at || m->stats.transferred != m->seen_bytes) {
		m->seen_bytes = m->stats.transferred;
		m->grew_at = now;
		return false;
	}
	return now - m->grew_at > SPLIT_STALL;
}

bool pc_out_stats(struct move *m)
{
	struct err err = {0};

	if (!move_is_split(m))
		return false;
	if (m->stats.status == MIGQ_POSTCOPY_PAUSED)
		broken(m);
	else if (m->stats.status == MIGQ_POSTCOPY_ACTIVE && m->phase == MP_BROKEN)
		mended(m);
	else if (m->stats.status == MIGQ_POSTCOPY_ACTIVE && is_silent(m)) {
		log_warn("move '%s': nothing has gone over for %d s, cutting the link", m->uid,
			 (int)(SPLIT_STALL / USEC_PER_SEC));
		m->grew_at = 0;
		if (cut_link(m, &err))
			log_warn("move '%s': the link is not cut: %s", m->uid, err.msg);
	}
	move_report(m);
	return true;
}

bool pc_out_event(struct move *m, enum mig_status status)
{
	switch (status) {
	case MIGQ_POSTCOPY_ACTIVE:
		if (m->phase == MP_SWITCHING)
			pc_ask_split(m);
		else if (m->phase == MP_BROKEN)
			mended(m);
		return true;
	case MIGQ_POSTCOPY_PAUSED:
		if (m->phase == MP_SWITCHING)
			pc_ask_split(m);
		else
			broken(m);
		return true;
	case MIGQ_POSTCOPY_RECOVER:
		return true;
	case MIGQ_CANCELLED:
	case MIGQ_FAILED:
		/* The halves do not know a failure; a QEMU that dies is met by itself. */
		return move_is_split(m);
	default:
		return false;
	}
}

void pc_out_adopt(struct move *m)
{
	m->post_copy_asked = true;
	if (move_is_split(m)) {
		vm_move(m->l, VME_MIGRATED, "MigrationPostCopy");
		if (m->stats.status == MIGQ_POSTCOPY_ACTIVE)
			mended(m);
		else
			broken(m);
		out_start_progress(m);
		move_report(m);
		return;
	}
	vm_move(m->l, VME_SWITCHES, "MigrationSwitch");
	move_step(m, MP_SWITCHING);
	out_arm(m, (usec_t)m->options.switchover_timeout_ms * USEC_PER_MSEC);
	pc_ask_split(m);
}

/* --- the target: the devices are loaded --- */

static void ask_loaded(void *arg);

static void on_run_state(const struct qmp_reply *r, void *arg)
{
	struct move *m = arg;
	const char *s = js_get_str(r->value, "status");
	struct err err = {0};

	m->stats_slot = qmp_slot_free(m->stats_slot);
	if (r->rc == RC_CLOSED || m->phase != MP_LOADING)
		return;
	if (!r->rc && str_eq(s, "paused")) {
		in_loaded(m);
		return;
	}
	/* Milliseconds at most, unless the link is lost with the devices on their way. */
	usec_t delay = ++m->polls < LOAD_POLLS ? SPLIT_POLL : LOAD_POLL_LATE;

	if (m->poll)
		ev_timer_rearm(m->poll, delay);
	else if (ev_timer_after(m->l->loop, &m->poll, delay, ask_loaded, m, &err))
		log_error("move '%s': %s", m->uid, err.msg);
}

/* No event says that the devices are loaded: QEMU goes from `inmigrate` to `paused`. */
static void ask_loaded(void *arg)
{
	struct move *m = arg;
	struct qmp_call c = {
		.command = "query-status", .timeout = QMP_TIMEOUT, .fn = on_run_state, .arg = m};

	if (m->phase != MP_LOADING)
		return;
	m->stats_slot = qmp_slot_free(m->stats_slot);
	if (qmp_invoke(m->l->qmp, &m->stats_slot, &c, NULL))
		log_warn("move '%s': cannot ask QEMU now, asking after the next connection",
			 m->uid);
}

static void listen_anew(struct move *m);

bool pc_in_event(struct move *m, enum mig_status status)
{
	switch (status) {
	case MIGQ_POSTCOPY_ACTIVE:
		m->is_split = true;
		m->is_cut = false;
		if (m->phase == MP_LISTENING)
			move_step(m, MP_LOADING);
		if (m->phase == MP_LOADING)
			ask_loaded(m);
		else if (m->phase == MP_BROKEN)
			mended(m);
		return true;
	case MIGQ_POSTCOPY_PAUSED:
		m->is_split = m->is_cut = true;
		if (m->phase == MP_LISTENING) /* a launcher that has just come */
			move_step(m, MP_LOADING);
		if (move_is_split(m))
			broken(m);
		else if (m->phase == MP_LOADING)
			ask_loaded(m);
		if (m->recover_call)
			listen_anew(m);
		return true;
	case MIGQ_POSTCOPY_RECOVER:
		m->is_split = true;
		return true;
	case MIGQ_COMPLETED:
		if (!m->is_split)
			return false;
		if (m->phase == MP_LOADING)
			in_loaded(m);
		in_completed(m);
		return true;
	default:
		return false;
	}
}

/* --- mending: the target listens anew, the source connects --- */

/* What QEMU says to a command of mending is the call's answer; consumes result. */
static void answer_recover(struct move *m, const struct qmp_reply *r, const char *command,
			   struct json *result)
{
	struct ipc_call *call = STEAL(m->recover_call);
	bool is_asked_again = r->rc == RC_CLOSED || r->rc == RC_TIMEOUT;

	m->recover_slot = qmp_slot_free(m->recover_slot);
	if (call && !r->rc) {
		ipc_call_done(call, result, NULL, 0);
		return;
	}
	js_unref(result);
	if (call)
		ipc_call_fail(call, is_asked_again ? r->rc : RC_BUSY, "%s: %s", command, r->desc);
}

static void on_listening(const struct qmp_reply *r, void *arg)
{
	struct move *m = arg;

	answer_recover(m, r, "migrate-recover", js_pack("{s:i}", "port", m->recover_port));
}

static void listen_anew(struct move *m)
{
	struct json *uri = mig_recover_uri(m->address, m->recover_port);
	struct err err = {0};

	if (m->recover_slot)
		return;
	if (!uri)
		move_fail_call(&m->recover_call, RC_BUSY, "out of memory");
	else if (oob(m, "migrate-recover", uri, on_listening, &m->recover_slot, &err))
		move_fail_call(&m->recover_call, RC_BUSY, err.msg);
}

static enum rc port_of(const struct json *params, int *port, struct err *err)
{
	int64_t n = js_get_int(params, "port", 0);

	if (n < 1 || n > 65535)
		return err_set(err, RC_INVALID, "port: must be in 1..65535");
	*port = (int)n;
	return RC_OK;
}

void move_recover_incoming(struct launcher *l, struct ipc_call *call, const struct json *params)
{
	struct move *m = move_named(l, call, params, MIG_TARGET);
	struct err err = {0};
	int port = 0;

	if (!m)
		return;
	if (port_of(params, &port, &err)) {
		ipc_call_fail_err(call, &err);
		return;
	}
	if (m->phase == MP_FAILED || !m->is_split || m->is_whole) {
		ipc_call_fail(call, RC_CONFLICT, "the move is in phase %s",
			      move_phase_name(m->phase));
		return;
	}
	if (m->recover_call) {
		ipc_call_fail(call, RC_BUSY, "it is being mended");
		return;
	}
	m->recover_call = call;
	m->recover_port = port;
	if (m->phase == MP_BROKEN)
		listen_anew(m);
	else if (cut_link(m, &err)) /* this side still believes in the link */
		move_fail_call(&m->recover_call, RC_BUSY, err.msg);
}

static void on_reconnecting(const struct qmp_reply *r, void *arg)
{
	answer_recover(arg, r, "migrate", js_new_object());
}

void move_recover_outgoing(struct launcher *l, struct ipc_call *call, const struct json *params)
{
	struct move *m = move_named(l, call, params, MIG_SOURCE);
	struct err err = {0};
	int port = 0;

	if (!m)
		return;
	if (m->phase != MP_BROKEN || m->recover_call) {
		ipc_call_fail(call, m->recover_call ? RC_BUSY : RC_CONFLICT,
			      "the move is in phase %s", move_phase_name(m->phase));
		return;
	}
	if (port_of(params, &port, &err)) {
		ipc_call_fail_err(call, &err);
		return;
	}
	struct qmp_call c = {.command = "migrate",
			     .timeout = RECOVER_TIMEOUT,
			     .fn = on_reconnecting,
			     .arg = m,
			     .args = mig_channels(m->role, m->address, port)};

	if (c.args && js_set(c.args, "resume", js_new_bool(true)))
		c.args = js_unref(c.args);
	if (!c.args || qmp_invoke(l->qmp, &m->recover_slot, &c, &err)) {
		ipc_call_fail(call, RC_BUSY, "%s", c.args ? err.msg : "out of memory");
		return;
	}
	m->recover_call = call;
}

/* --- the end of a half --- */

static void give_up_half(struct move *m)
{
	struct ipc_call *call = STEAL(m->call);

	if (call)
		ipc_call_done(call, js_new_object(), NULL, 0);
	in_fail(m, "QemuDied", "the source has ended, and what the guest lacks with it");
	vm_kill(m->l, "MigrationFailed", USEC_PER_SEC);
}

static void on_half_flushed(const struct qmp_reply *r, void *arg)
{
	struct move *m = arg;

	m->stats_slot = qmp_slot_free(m->stats_slot);
	if (r->rc == RC_CLOSED || r->rc == RC_TIMEOUT)
		move_fail_call(&m->call, RC_BUSY, r->desc);
	else if (!r->rc || m->phase != MP_BROKEN)
		move_fail_call(&m->call, RC_CONFLICT, "the link is not lost");
	else
		give_up_half(m);
}

/* The main loop does not answer: it may itself wait for a page that will never come.  What it said last is that
 * its half is paused, from which only a migrate-recover leads away; an answer out of band comes after all
 * the events before it, so that nothing else is under way. */
static void ask_half_out_of_band(struct move *m)
{
	struct err err = {0};

	if (oob(m, "migrate-pause", NULL, on_half_flushed, &m->stats_slot, &err))
		move_fail_call(&m->call, RC_BUSY, err.msg);
}

static void on_half_stats(const struct qmp_reply *r, void *arg)
{
	struct move *m = arg;
	struct mig_stats now;

	m->stats_slot = qmp_slot_free(m->stats_slot);
	if (!m->call)
		return;
	mig_stats_parse(r->value, &now);
	if (r->rc == RC_TIMEOUT && m->phase == MP_BROKEN)
		ask_half_out_of_band(m);
	else if (r->rc)
		move_fail_call(&m->call, RC_BUSY, r->desc);
	else if (m->phase != MP_BROKEN ||
		 (now.status != MIGQ_POSTCOPY_PAUSED && now.status != MIGQ_POSTCOPY_RECOVER))
		move_fail_call(&m->call, RC_CONFLICT, "the link is not lost");
	else
		give_up_half(m);
}

/* QEMU itself is asked: the last page may have come while nobody listened.  It may be listening for the source
 * meanwhile: that ends with it. */
void pc_end_half(struct move *m, struct ipc_call *call)
{
	struct qmp_call c = {
		.command = "query-migrate", .timeout = HALF_TIMEOUT, .fn = on_half_stats, .arg = m};
	struct err err = {0};

	if (m->call || m->stats_slot)
		ipc_call_fail(call, RC_BUSY, "it is being asked");
	else if (qmp_invoke(m->l->qmp, &m->stats_slot, &c, &err))
		ipc_call_fail(call, RC_BUSY, "%s", err.msg);
	else
		m->call = call;
}

void pc_monitor_lost(struct move *m)
{
	m->recover_slot = qmp_slot_free(m->recover_slot);
	move_fail_call(&m->recover_call, RC_CLOSED, "QEMU's monitor closed");
}
