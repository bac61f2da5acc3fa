/* A move under way at its source: progress each second, KubeVirt's limits, and what is asked of the launcher when
 * they are over. */
#include <stdio.h>

#include "api/api.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "json/json.h"
#include "virt/node/migration_source_int.h"
#include "virt/node/vmspec.h"

#define WATCH_EVERY		 (1 * USEC_PER_SEC)
#define CUT_AFTER		 (5 * USEC_PER_SEC)
#define DEFAULT_PER_GB		 150
#define DEFAULT_PROGRESS_SECONDS 150
#define SWITCHES		 "the guest is being switched over already"

void mig_source_ask_cancel(struct mig_source *m, const char *reason)
{
	struct json *params = js_pack("{s:s, s:s}", "migrationUid", m->uid, "reason", reason);
	struct err err;

	failpoint("source-agent.cancels");
	m->cancel_sent = true;
	m->cancel_at = m->cancel_at ? m->cancel_at : loop_now(m->host->cfg.loop);
	m->cancel_reason = reason;
	if (vm_call(m->vm, "cancelOutgoing", params, MIG_CALL_DEADLINE, NULL, NULL, &err))
		log_warn("move %s: cannot be cancelled: %s", m->uid, err.msg);
}

static void on_back(const struct ipc_reply *r, void *arg)
{
	struct vm *vm = arg;

	if (!r->rc || !vm->source)
		return; /* the launcher's event follows */
	log_warn("move %s: the guest does not go on here: %s", vm->source->uid, r->message);
	vm->source->resume_asked = false; /* the watch asks again */
}

/* The release could not be written down: nothing was given away, so the guest goes on here. */
void mig_source_ask_back(struct mig_source *m)
{
	enum src_state next;
	struct err err;

	if (m->resume_asked || !src_next(m->state, SRCEV_RELEASED, &next))
		return;
	struct json *params = js_pack("{s:s}", "migrationUid", m->uid);

	m->resume_asked = !vm_call(m->vm, "resumeSource", params, 2 * MIG_CALL_DEADLINE, on_back,
				   m->vm, &err);
	if (!m->resume_asked)
		log_warn("move %s: the guest cannot be asked to go on here: %s", m->uid, err.msg);
}

bool mig_source_is_unreleased(const struct json *data)
{
	return str_eq(js_get_str(data, "phase"), "completed") &&
	       !js_get_bool(data, "released", false);
}

/* --- watching it: KubeVirt's completion and progress limits (facts 6.3) --- */

static void give_up(struct mig_source *m, const char *reason, const char *what)
{
	if (m->cancel_sent)
		return;
	m->reason = mem_strdup(reason);
	m->detail = mig_figures(what, m->last);
	log_warn("move %s: %s", m->uid, m->detail ? m->detail : what);
	mig_source_step(m, SRCEV_CANCEL);
	mig_source_ask_cancel(m, what);
}

static int64_t memory_left(const struct mig_source *m)
{
	return js_get_int(js_at(m->last, "stats", "memory", NULL), "remaining", 0);
}

static void say_asked(struct mig_source *m)
{
	int64_t left = memory_left(m);

	log_info("move %s: asked for: the guest stands while the last %lld MiB go over", m->uid,
		 (long long)(left >> 20));
	mig_event(m->vm, "Normal", "Migrating",
		  "The guest is paused while the last %lld MiB go over, as was asked for.",
		  (long long)(left >> 20));
	vm_sync(m->vm); /* the mode is Paused */
}

/* Somebody waits for an answer, and nobody but this agent knows it. */
static void say_too_late(struct mig_source *m, const char *why)
{
	m->said_finish = true;
	log_info("move %s: asked to finish it with a pause: %s", m->uid, why);
	mig_event(m->vm, "Normal", "Migrating",
		  "There is nothing to do to finish the migration with a pause: %s.", why);
}

static void on_finishing(const struct ipc_reply *r, void *arg)
{
	struct vm *vm = arg;
	struct mig_source *m = vm->source;

	if (!m)
		return;
	if (!r->rc) {
		if (m->finish_asked)
			say_asked(m);
		return;
	}
	/* It is past the memory, or another launcher that does not know yet where QEMU is: its next word tells. */
	log_warn("move %s: cannot be finished now: %s", m->uid, r->message);
	m->finish_by = 0;
}

static enum rc tell_finish(struct mig_source *m)
{
	int64_t timeout = mig_finish_timeout(m->last);
	struct json *params = js_pack("{s:s, s:I}", "migrationUid", m->uid, "timeoutMs", timeout);
	struct err err = {0};

	failpoint("source-agent.finishes");
	if (!params || vm_call(m->vm, "finishOutgoing", params, MIG_CALL_DEADLINE, on_finishing,
			       m->vm, &err)) {
		log_warn("move %s: cannot be finished now: %s", m->uid,
			 params ? err.msg : "out of memory");
		return RC_BUSY;
	}
	m->finish_by = loop_now(m->host->cfg.loop) + (usec_t)timeout * USEC_PER_MSEC;
	return RC_OK;
}

/* KubeVirt's allowWorkloadDisruption: a move that will not end by itself may cost a pause. */
static void finish(struct mig_source *m, const char *why)
{
	int64_t left = memory_left(m);

	if (tell_finish(m))
		return;
	log_warn("move %s: %s: the guest stands while the last %lld MiB go over", m->uid, why,
		 (long long)(left >> 20));
	mig_event(m->vm, "Warning", "Migrating",
		  "%s; the guest is paused while the last %lld MiB go over, as "
		  "allowWorkloadDisruption permits",
		  why, (long long)(left >> 20));
}

static bool is_switching(const struct mig_source *m)
{
	const char *phase = js_get_str(m->last, "phase");

	return m->state == SRC_SWITCHING || m->state == SRC_RELEASED ||
	       str_eq(phase, "pre-switchover") || str_eq(phase, "switching") ||
	       str_eq(phase, "completed");
}

void mig_source_finish(struct mig_source *m)
{
	const struct json *memory = js_at(m->last, "stats", "memory", NULL);
	bool post_copy = js_get_bool(m->last, "postCopy", false);

	if (!m->finish_asked || m->said_finish || m->finish_by || m->cancel_sent ||
	    mig_is_finishing(m->last))
		return;
	if (mig_source_is_split(m) || is_switching(m))
		say_too_late(m, post_copy ? "post-copy has begun" : SWITCHES);
	/* without its figures nobody can tell how long the guest will stand */
	else if (m->state == SRC_MOVING && !post_copy && js_get_int(memory, "total", 0) &&
		 str_eq(js_get_str(m->last, "phase"), "memory"))
		ignore_rc(tell_finish(m)); /* its next word asks again */
}

/* The limit is over: end the move with a pause where that is allowed, else give it up. */
static void overdue(struct mig_source *m, bool may_pause, const char *reason, const char *what)
{
	if (m->finish_by || m->cancel_sent || m->post_copy_asked)
		return;
	if (may_pause && mig_source_ask_split(m, what))
		return;
	if (may_pause)
		finish(m, what);
	else
		give_up(m, reason, what);
}

static void on_watch(void *arg)
{
	struct mig_source *m = arg;
	const VirtualMachineInstanceMigrationState *s = mig_state(m->vm);
	const VirtualMachineInstance *vmi = vm_vmi(m->vm);
	const VMIMConfigurationOptions *c = s ? s->migrationConfiguration : NULL;
	int64_t per_gb = c ? API_GET(c, completionTimeoutPerGiB, DEFAULT_PER_GB) : DEFAULT_PER_GB;
	int64_t progress = c ? API_GET(c, progressTimeout, DEFAULT_PROGRESS_SECONDS)
			     : DEFAULT_PROGRESS_SECONDS;
	int64_t gb = mig_gigabytes(vmi ? vmspec_memory(vmi) : 0, m->disk_bytes);
	usec_t now = loop_now(m->host->cfg.loop);

	m->shows_progress = true;
	if (mig_source_is_unreleased(m->last))
		mig_source_ask_back(m);
	if (m->state == SRC_MOVING) {
		usec_t limit = (usec_t)(per_gb * gb) * USEC_PER_SEC;
		usec_t taken = now - m->since;
		bool may_pause = c && API_GET(c, allowWorkloadDisruption, false);

		if (m->finish_by && now > m->finish_by)
			give_up(m, "FinishTimeout", "the guest did not stand in time");
		/* KubeVirt's second limit is twice the first */
		if (limit && taken > limit)
			overdue(m, may_pause && taken < 2 * limit, "CompletionTimeout",
				"the move did not end within completionTimeoutPerGiB");
		else if (progress && mig_progress_is_stalled(&m->progress,
							     (usec_t)progress * USEC_PER_SEC, now))
			overdue(m, may_pause, "ProgressTimeout", "no progress for progressTimeout");
	}
	/* A QEMU that waits for the other's part of the handshake hears of no cancel, and yank does not reach that
	 * connection either (QEMU 10.0).  The other one may stand still for ever. */
	if (m->state == SRC_CANCELLING && m->cancel_at && !m->is_cut &&
	    now - m->cancel_at > CUT_AFTER)
		mig_source_cut(m);
	ev_timer_rearm(m->watch, WATCH_EVERY);
	vm_sync(m->vm);
}

static void note_progress(struct mig_source *m)
{
	const struct json *memory = js_at(m->last, "stats", "memory", NULL);
	struct mig_transfer disks = mig_disks_of(m->last);
	int64_t pass = js_get_int(memory, "passes", 0);
	usec_t now = loop_now(m->host->cfg.loop);

	mig_progress_note(&m->progress, pass,
			  pass ? js_get_int(memory, "remaining", 0) : disks.left, now);
	mig_rate_note(&m->disk_rate, disks.total - disks.left, now);
	m->disk_bytes = MAX(m->disk_bytes, disks.total);
}

/* The agent before this one, or the launcher's record, told it to finish: then this one keeps the time. */
static void note_finish(struct mig_source *m)
{
	if (m->state == SRC_MOVING && !m->finish_by && mig_is_finishing(m->last))
		m->finish_by = loop_now(m->host->cfg.loop) +
			       (usec_t)mig_finish_timeout(m->last) * USEC_PER_MSEC;
}

void mig_source_watch(struct mig_source *m)
{
	struct err err = {0};

	note_progress(m);
	note_finish(m);
	if (!m->watch &&
	    ev_timer_after(m->host->cfg.loop, &m->watch, WATCH_EVERY, on_watch, m, &err))
		log_warn("move %s: %s", m->uid, err.msg);
}
