/* Post-copy as the two agents see it: the guest runs at the target, its memory is at both sides, and the link
 * between them may be lost and made again. */
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "json/json.h"
#include "virt/node/migration_source_int.h"
#include "virt/node/migration_target_int.h"

#define MEND_FIRST    (200 * USEC_PER_MSEC)
#define MEND_MAX      (5 * USEC_PER_SEC)
#define GONE_AFTER    (10 * USEC_PER_SEC)
#define IRRECOVERABLE "VMI is irrecoverable due to failed post-copy migration"
#define HALF_LOOK     (500 * USEC_PER_MSEC)
#define HALF_LOOK_MAX (8 * USEC_PER_SEC)

/* --- the source --- */

static bool is_phase(const struct mig_source *m, const char *phase)
{
	return str_eq(js_get_str(m->last, "phase"), phase);
}

bool mig_source_is_split(const struct mig_source *m)
{
	return is_phase(m, "postcopy") || is_phase(m, "postcopy-paused");
}

static void on_asked(const struct ipc_reply *r, void *arg)
{
	struct vm *vm = arg;

	if (!r->rc || !vm->source)
		return;
	log_warn("move %s: post-copy cannot begin: %s", vm->source->uid, r->message);
	/* a launcher that came in the middle does not know that it is allowed */
	vm->source->cannot_split = r->rc == RC_CONFLICT;
	vm->source->post_copy_asked = false; /* the watch asks again, or finds another way */
}

/* The second port that the target publishes is for disks. */
static bool moves_disks(const VirtualMachineInstanceMigrationState *s)
{
	return js_len(s->targetDirectMigrationNodePorts) > 1;
}

static bool is_allowed(const VirtualMachineInstanceMigrationState *s)
{
	return s && s->migrationConfiguration &&
	       API_GET(s->migrationConfiguration, allowPostCopy, false);
}

void mig_source_say_mode(struct mig_source *m)
{
	const VirtualMachineInstanceMigrationState *s = mig_state(m->vm);

	if (is_allowed(s) && moves_disks(s))
		mig_event(m->vm, "Normal", "Migrating",
			  "Post-copy is not used: disks move with the VM.");
}

bool mig_source_ask_split(struct mig_source *m, const char *why)
{
	const VirtualMachineInstanceMigrationState *s = mig_state(m->vm);
	struct err err = {0};

	if (!is_allowed(s) || moves_disks(s) || m->cannot_split)
		return false;
	struct json *params = js_pack("{s:s}", "migrationUid", m->uid);

	if (!params ||
	    vm_call(m->vm, "startPostCopy", params, MIG_CALL_DEADLINE, on_asked, m->vm, &err)) {
		log_warn("move %s: post-copy cannot begin: %s", m->uid,
			 params ? err.msg : "out of memory");
		return false;
	}
	m->post_copy_asked = true;
	log_warn("move %s: %s: post-copy", m->uid, why);
	return true;
}

/* The launcher decides it by itself too, when the passes do not shrink. */
static void say_split(struct mig_source *m)
{
	if (m->said_split || !js_get_bool(m->last, "postCopy", false))
		return;
	m->said_split = m->post_copy_asked = true;
	CLEANUP(mem_freep)
	char *text = mig_figures("the guest writes faster than its memory can be copied", m->last);

	mig_event(m->vm, "Normal", "Migrating", "Switching to post-copy: %s.", text ? text : "");
}

static void mend(struct mig_source *m);

static void on_mend_timer(void *arg)
{
	struct mig_source *m = arg;

	m->timer = ev_src_free(m->timer);
	mend(m);
}

static void mend_later(struct mig_source *m)
{
	struct err err = {0};

	m->backoff = MIN(MAX(m->backoff * 2, MEND_FIRST), MEND_MAX);
	if (!m->timer &&
	    ev_timer_after(m->host->cfg.loop, &m->timer, m->backoff, on_mend_timer, m, &err))
		log_error("move %s: %s", m->uid, err.msg);
}

static void on_reconnecting(const struct ipc_reply *r, void *arg)
{
	struct vm *vm = arg;

	if (vm->source && r->rc)
		log_warn("move %s: the source does not connect: %s", vm->source->uid, r->message);
	if (vm->source && vm->source->state == SRC_STREAMING)
		mend_later(vm->source); /* looks whether it has worked */
}

static void on_listening(const struct http_result *r, void *arg)
{
	struct mig_source *m = arg;
	CLEANUP(js_unrefp) struct json *j = NULL;
	struct err err = {0};
	char why[400];

	m->http = http_slot_free(m->http);
	if (!r->rc && r->status == 409) { /* its QEMU has died: there is nothing to join any more */
		mig_source_lost(m, SRCEV_BROKEN, IRRECOVERABLE);
		return;
	}
	if (r->rc || r->status != 200 || js_parse(r->body, r->n, &j, NULL)) {
		mig_source_answer_text(r, why, sizeof(why));
		log_warn("move %s: the target does not listen yet: %s", m->uid, why);
		mend_later(m);
		return;
	}
	struct json *params =
		js_pack("{s:s, s:I}", "migrationUid", m->uid, "port", js_get_int(j, "port", 0));

	if (!params || vm_call(m->vm, "recoverOutgoing", params, MIG_CALL_DEADLINE, on_reconnecting,
			       m->vm, &err)) {
		log_warn("move %s: %s", m->uid, params ? err.msg : "out of memory");
		mend_later(m);
	}
}

/* Its pod is gone from the API, since somebody has said that its machine is off, and it has been silent for a while: what
 * the API showed for a moment only, after it was away, ends no guest. */
static bool target_is_gone(const struct mig_source *m)
{
	return m->broken_since && mig_is_alone(m->vm) &&
	       loop_now(m->host->cfg.loop) - m->broken_since >= GONE_AFTER;
}

/* Asked for as long as it takes: both halves wait, and giving up would be the guest's end. */
static void mend(struct mig_source *m)
{
	struct err err = {0};

	if (m->state != SRC_STREAMING || !is_phase(m, "postcopy-paused") || m->http || m->timer)
		return;
	if (target_is_gone(m)) {
		mig_source_lost(m, SRCEV_BROKEN, IRRECOVERABLE);
		return;
	}
	if (mig_source_post(m, "recover", js_pack("{s:s}", "migrationUid", m->uid),
			    MIG_CALL_DEADLINE, on_listening, &err)) {
		log_warn("move %s: %s", m->uid, err.msg);
		mend_later(m);
	}
}

static void say_link(struct mig_source *m)
{
	usec_t now = loop_now(m->host->cfg.loop);

	if (is_phase(m, "postcopy-paused") && !m->broken_since) {
		m->broken_since = now;
		mig_event(m->vm, "Warning", "Migrating",
			  "The migration link was lost in post-copy. Both halves of the guest are "
			  "kept, and joined again as soon as the nodes reach each other.");
	} else if (is_phase(m, "postcopy") && m->broken_since) {
		log_info("move %s: the link is back after %llu ms", m->uid,
			 (unsigned long long)((now - m->broken_since) / USEC_PER_MSEC));
		mig_event(m->vm, "Normal", "Migrating", "The migration link is back.");
		m->broken_since = 0;
		m->backoff = 0;
	}
}

bool mig_source_phase_split(struct mig_source *m)
{
	say_split(m);
	if (mig_source_is_split(m))
		say_link(m);
	/* All has gone over; or QEMU has died here, and the target, which knows what it lacks, says what that means
	 * (mig_target_end_half()). */
	if (m->state == SRC_STREAMING && (is_phase(m, "completed") || is_phase(m, "failed"))) {
		mig_source_given(m, SRCEV_SENT);
		return true;
	}
	if (m->state == SRC_STREAMING && mig_source_is_split(m)) {
		mend(m);
		return true;
	}
	return false;
}

bool mig_source_kick_split(struct mig_source *m, const VirtualMachineInstanceMigrationState *s)
{
	if (m->state != SRC_STREAMING)
		return false;
	/* The target is whole, and the link broke before QEMU heard of it here. */
	if (API_GET(s, completed, false)) {
		mig_source_given(m, SRCEV_SENT);
		return true;
	}
	if (!API_GET(s, failed, false))
		return false;
	/* The target has said so, and may know nothing of the move any more. */
	mig_source_lost(m, SRCEV_BROKEN,
			s->failureReason ? s->failureReason : "the target has failed");
	return true;
}

static void on_end_timer(void *arg)
{
	struct mig_source *m = arg;

	m->end_timer = ev_src_free(m->end_timer);
	log_warn(
		"move %s: the pages that are left of '%s/%s' are dropped: its time to shut down is over",
		m->uid, m->vm->ns, m->vm->name);
	vm_end_copy(m->vm);
}

bool mig_source_end_within(struct vm *vm, int64_t grace)
{
	struct mig_source *m = vm->source;
	struct err err = {0};

	if (!mig_source_is_streaming(vm))
		return false;
	return m->end_timer || !ev_timer_after(m->host->cfg.loop, &m->end_timer,
					       (usec_t)grace * USEC_PER_SEC, on_end_timer, m, &err);
}

/* --- the target --- */

void mig_target_phase_split(struct mig_target *t, const char *phase)
{
	t->is_broken = str_eq(phase, "postcopy-paused");
	if (str_eq(phase, "resumed") && t->is_split && !t->is_whole) {
		t->is_whole = true;
		mig_target_step(t, DSTEV_WHOLE); /* or not named yet: then both are said at once */
	}
	if (str_eq(phase, "failed") && t->is_split && !t->is_whole && t->state != DST_FAILED &&
	    t->state >= DST_PERMITTED) {
		t->is_lost = t->vm->is_half = true;
		mig_target_failed(t, IRRECOVERABLE);
	}
}

static void on_listens(const struct ipc_reply *r, void *arg)
{
	struct vm *vm = arg;
	struct mig_target *t = vm->target;
	mig_answer_fn fn = t ? t->recover_answer : NULL;

	if (!fn)
		return;
	t->recover_answer = NULL;
	if (r->rc)
		fn(r->rc == RC_CONFLICT ? RC_BUSY : r->rc, r->message, NULL, t->recover_arg);
	else
		fn(RC_OK, NULL, js_pack("{s:I}", "port", js_get_int(r->result, "port", 0)),
		   t->recover_arg);
}

void mig_target_recover(struct mig_target *t, mig_answer_fn fn, void *arg)
{
	struct err err = {0};

	if (t->state == DST_FAILED) { /* the one clear no */
		fn(RC_CONFLICT, t->failure ? t->failure : "the target has failed", NULL, arg);
		return;
	}
	if (t->recover_answer || !t->is_split || t->is_whole) {
		fn(RC_BUSY, t->recover_answer ? "it is being mended" : "there is nothing to mend",
		   NULL, arg);
		return;
	}
	/* QEMU may still hold the port of the try before: the other one of the pair. */
	int64_t port = t->n_recover++ % 2 ? t->port : t->nbd_port;
	struct json *params = js_pack("{s:s, s:I}", "migrationUid", t->uid, "port", port);

	t->recover_answer = fn;
	t->recover_arg = arg;
	if (params &&
	    !vm_call(t->vm, "recoverIncoming", params, MIG_CALL_DEADLINE, on_listens, t->vm, &err))
		return;
	t->recover_answer = NULL;
	fn(RC_BUSY, params ? err.msg : "out of memory", NULL, arg);
}

static void on_checked(const struct ipc_reply *r, void *arg)
{
	struct vm *vm = arg;

	/* Refused: it is whole, which its event says.  Else its half is paused now, which its event says. */
	if (!vm->target)
		return;
	vm->target->is_checking = false;
	if (r->rc && r->rc != RC_CONFLICT)
		log_warn("move %s: its link cannot be cut here, trying again: %s", vm->target->uid,
			 r->message);
	if (!r->rc)
		vm_kick(vm);
}

static void on_look(void *arg)
{
	struct mig_target *t = arg;

	t->look_timer = ev_src_free(t->look_timer);
	mig_target_end_half(t);
}

/* No answer and no event of QEMU is the last word here: it is looked again until the half has an end. */
static void look_again(struct mig_target *t)
{
	struct err err = {0};

	if (t->look_timer)
		return;
	t->look_wait = MIN(MAX(2 * t->look_wait, HALF_LOOK), HALF_LOOK_MAX);
	if (ev_timer_after(t->host->cfg.loop, &t->look_timer, t->look_wait, on_look, t, &err))
		log_error("move %s: %s", t->uid, err.msg);
}

/* A link that swallows everything hides the other half's end: cut at this side, QEMU says what it has. */
static void check_half(struct mig_target *t)
{
	struct json *params = js_pack("{s:s, s:I}", "migrationUid", t->uid, "port", t->port);
	struct err err = {0};

	if (t->is_checking || t->recover_answer || !params) {
		js_unref(params);
		return;
	}
	t->is_checking = !vm_call(t->vm, "recoverIncoming", params, MIG_CALL_DEADLINE, on_checked,
				  t->vm, &err);
	if (!t->is_checking)
		log_warn("move %s: %s", t->uid, err.msg);
}

static void on_half_ended(const struct ipc_reply *r, void *arg)
{
	struct vm *vm = arg;
	struct mig_target *t = vm->target;

	if (!t)
		return;
	t->is_half_asked = false;
	t->is_lost |= r->rc == RC_OK; /* else the link is not lost, or it is asked again */
	vm->is_half = t->is_lost;
	if (r->rc) {
		log_warn("move %s: cannot be given up yet: %s", t->uid, r->message);
		return;
	}
	log_error(
		"move %s: the source's copy of '%s/%s' has ended, and what the guest lacks with it",
		t->uid, vm->ns, vm->name);
	if (t->state != DST_FAILED)
		mig_target_failed(t, IRRECOVERABLE);
}

void mig_target_end_half(struct mig_target *t)
{
	struct err err = {0};

	if (t->is_lost || t->is_whole || t->state != DST_FETCHING || !mig_is_alone(t->vm))
		return;
	look_again(t);
	if (t->is_half_asked)
		return;
	if (!t->is_broken) {
		check_half(t);
		return;
	}
	struct json *params = js_pack("{s:s, s:s}", "migrationUid", t->uid, "reason",
				      "the guest's other half has ended");

	/* What was heard may be old: the launcher asks QEMU, and refuses where the last page has come. */
	t->is_half_asked = t->vm->is_half = true;
	if (params &&
	    !vm_call(t->vm, "abortIncoming", params, MIG_CALL_DEADLINE, on_half_ended, t->vm, &err))
		return;
	t->is_half_asked = t->vm->is_half = false;
	log_warn("move %s: cannot be given up: %s", t->uid, params ? err.msg : "out of memory");
}
