#include <stdarg.h>
#include <stdio.h>

#include "api/api.h"
#include "api/meta.h"
#include "base/file.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "base/try.h"
#include "virt/controller/kit.h"
#include "virt/controller/migration/mig_int.h"
#include "virt/names.h"

const MigState *mig_vmi_state(const struct mig *m)
{
	const MigState *s = m->vmi ? m->vmi->status.migrationState : NULL;

	return s && str_eq(s->migrationUid, m->old->metadata.uid) ? s : NULL;
}

const char *mig_stamp_of(const Vmim *vmim, enum mig_state s)
{
	const char *phase = mig_state_name(s);

	for (size_t i = 0; i < vmim->status.n_phaseTransitionTimestamps; i++)
		if (str_eq(vmim->status.phaseTransitionTimestamps[i].phase, phase))
			return vmim->status.phaseTransitionTimestamps[i].phaseTransitionTimestamp;
	return NULL;
}

static enum mig_event fail(struct mig *m, const char *text)
{
	m->failure = text;
	return MIG_EV_FAIL;
}

static enum mig_event PRINTF_LIKE(2, 3) failf(struct mig *m, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(m->failure_text, sizeof(m->failure_text), fmt, ap);
	va_end(ap);
	return fail(m, m->failure_text);
}

/* ---- before anything was made ---- */

static const Vmim *rival(const struct mig *m)
{
	struct kiter it;

	mig_siblings(m->v, m->old->metadata.namespace, m->old->spec.vmiName, &it);
	for (const Vmim *o; (o = view_next(&it));) {
		enum mig_state s = mig_state_of(o->status.phase);

		if (o != m->old && s >= MIG_SCHEDULING && s <= MIG_RUNNING)
			return o;
	}
	return NULL;
}

/* A move that the VMI still carries, of another migration. */
static bool is_taken(const struct mig *m)
{
	const MigState *s = m->vmi->status.migrationState;

	return s && !str_eq(s->migrationUid, m->old->metadata.uid) && !s->endTimestamp &&
	       !API_GET(s, completed, false) && !API_GET(s, failed, false);
}

enum rc mig_show_stage(struct mig *m, const char *stage)
{
	FerryMigrationStatus *f =
		api_ensure(&api_type_FerryMigrationStatus, &m->next->status.ferry);

	return f ? api_set_str(&f->stage, stage) : RC_NOMEM;
}

bool mig_vmi_is_ready(const struct mig *m)
{
	return str_eq(m->vmi->status.phase, "Running") && m->vmi->status.activePods.n <= 1 &&
	       m->pods.current;
}

static enum rc consider_start(struct mig *m, enum mig_event *out)
{
	struct api_cond c;
	bool granted;
	usec_t wait;

	*out = MIG_EV_NONE;
	if (rival(m) || is_taken(m)) {
		*out = fail(m,
			    "VMI is not eligible for migration because another migration job is in "
			    "progress.");
		return RC_OK;
	}
	if (API_COND_GET(&m->vmi->status, VirtualMachineInstanceCondition, "LiveMigratable", &c) &&
	    str_eq(c.status, "False")) {
		m->reason = "NotMigratable";
		*out = failf(m, "Cannot migrate VMI, Reason: %s, Message: %s",
			     c.reason ? c.reason : "", c.message ? c.message : "");
		return RC_OK;
	}
	if (!mig_vmi_is_ready(m))
		return mig_show_stage(m, "WaitingForVirtualMachine"); /* its next change wakes us */
	wait = mig_failure_backoff(m);
	if (wait) {
		TRY(mig_show_stage(m, "BackingOff"));
		TRY(plan_event(m->plan, &api_kind_VirtualMachineInstanceMigration, m->old,
			       "Warning", "MigrationBackoff", "backoff migrating vmi %s/%s",
			       m->vmi->metadata.namespace, m->vmi->metadata.name));
		return plan_requeue_after(m->plan, wait);
	}
	TRY(mig_may_start(m, &granted));
	if (!granted) {
		TRY(mig_show_stage(m, "WaitingForSlot"));
		return plan_requeue_after(m->plan, mig_retry_delay(m->old));
	}
	*out = MIG_EV_SLOT;
	return RC_OK;
}

/* What no waiting can help ends at once; asked before a pod is made, and again while it has no node. */
static enum rc consider_placement(struct mig *m, const Pod *pod, enum mig_event *out)
{
	struct mig_placement place;

	TRY(mig_place(m, pod, &place));
	if (!place.is_hopeless)
		return RC_OK;
	m->reason = place.reason;
	*out = failf(m, "%s", place.message);
	return RC_OK;
}

/* The server refused the pod (a quota, an admission rule): the migration stays Pending and says why, and
 * the pod is tried again behind that. */
static enum rc wait_refused(struct mig *m, Pod *pod, enum mig_event *out)
{
	const char *why = m->v->refused->msg;
	struct api_cond old;
	bool known = API_COND_GET(&m->old->status, VirtualMachineInstanceMigrationCondition,
				  "migrationRejectedByResourceQuota", &old);

	*out = MIG_EV_NONE;
	m->again = pod;
	if (strstr(why, "exceeded quota"))
		return API_COND_SET(&m->next->status, VirtualMachineInstanceMigrationCondition,
				    m->v->now, .type = "migrationRejectedByResourceQuota",
				    .status = "True", .message = why);
	FerryMigrationStatus *f =
		api_ensure(&api_type_FerryMigrationStatus, &m->next->status.ferry);

	if (!f)
		return RC_NOMEM;
	known = m->old->status.ferry && str_eq(m->old->status.ferry->message, why);
	TRY(api_set_str(&f->message, why));
	if (known)
		return RC_OK;
	return plan_event(m->plan, &api_kind_VirtualMachineInstance, m->vmi, "Warning",
			  "FailedCreate", "Error creating pod: %s", why);
}

static enum rc observe_pending(struct mig *m, enum mig_event *out)
{
	CLEANUP(Pod_freep)
	Pod *pod = NULL;

	if (m->target) { /* made, but its record got lost */
		*out = MIG_EV_SLOT;
		return RC_OK;
	}
	TRY(consider_start(m, out));
	if (*out != MIG_EV_SLOT)
		return RC_OK;
	TRY(mig_target_pod(m, &pod));
	TRY(consider_placement(m, pod, out));
	if (*out == MIG_EV_SLOT && m->v->refused)
		return wait_refused(m, STEAL(pod), out);
	return RC_OK;
}

/* ---- the target pod ---- */

static usec_t timeout_of(const struct mig *m, const char *annotation, usec_t fallback)
{
	const char *text = api_annotation(&m->old->metadata, annotation);
	int64_t seconds;

	if (!text || str_to_i64(text, 0, 7 * 86400, &seconds, NULL))
		return fallback;
	return (usec_t)seconds * USEC_PER_SEC;
}

static enum rc check_timeout(struct mig *m, const char *what, usec_t limit, enum mig_event *out)
{
	usec_t age = kit_age(m->v->now, m->target->metadata.creationTimestamp);

	if (age < limit)
		return plan_requeue_after(m->plan, limit - age);
	*out = failf(m, "%s pod %s/%s timeout period exceeded", what, m->target->metadata.namespace,
		     m->target->metadata.name);
	m->reason = "Timeout";
	return plan_event(m->plan, &api_kind_VirtualMachineInstanceMigration, m->old, "Normal",
			  "SuccessfulDelete", "%s", m->failure_text);
}

static bool is_unschedulable(const Pod *pod)
{
	struct api_cond c;

	return API_COND_GET(&pod->status, PodCondition, "PodScheduled", &c) &&
	       str_eq(c.status, "False") && str_eq(c.reason, "Unschedulable");
}

/* KubeVirt's text does not tell why nothing was found in all that time; the nodes do. */
static enum rc tell_nodes(struct mig *m)
{
	FerryMigrationStatus *f = m->next->status.ferry;
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(4096);

	for (size_t i = 0; f && i < f->n_placement; i++) {
		const FerryPlacement *p = &f->placement[i];

		if (!p->allowed && !str_eq(p->node, m->vmi->status.nodeName))
			sbuf_addf(&b, "%s%s: %s", b.n ? "; " : "", p->node,
				  p->message ? p->message : "");
	}
	return b.n ? api_set_strf(&f->message, "no node could take the virtual machine in time: %s",
				  sbuf_str(&b))
		   : RC_OK;
}

static enum rc observe_unschedulable(struct mig *m, enum mig_event *out)
{
	bool first = !m->old->status.ferry || !m->old->status.ferry->n_placement ||
		     !str_eq(m->old->status.ferry->stage, "WaitingForNode");

	TRY(consider_placement(m, m->target, out));
	if (*out == MIG_EV_FAIL)
		return RC_OK;
	TRY(mig_show_stage(m, "WaitingForNode"));
	if (first)
		TRY(plan_event(m->plan, &api_kind_VirtualMachineInstanceMigration, m->old,
			       "Warning", "migrationTargetPodUnschedulable",
			       "Migration target pod for VMI [%s/%s] is currently unschedulable.",
			       m->vmi->metadata.namespace, m->vmi->metadata.name));
	TRY(check_timeout(m, "unschedulable",
			  timeout_of(m, ANN_UNSCHEDULABLE_TIMEOUT, MIG_UNSCHEDULABLE_TIMEOUT),
			  out));
	return *out == MIG_EV_FAIL ? tell_nodes(m) : RC_OK;
}

/* A pod that was made a moment ago may not be in the view yet, right after a restart. */
static bool target_is_unseen(const struct mig *m)
{
	return !m->target && kit_age(m->v->now, mig_stamp_of(m->next, MIG_SCHEDULING)) < MIG_UNSEEN;
}

static bool target_is_down(const struct mig *m)
{
	if (target_is_unseen(m))
		return false;
	return !m->target || kit_pod_is_final(m->target) || m->target->metadata.deletionTimestamp;
}

/* KubeVirt's text does not tell why; the pod does, in its node's words. */
static enum rc target_failed(struct mig *m, enum mig_event *out)
{
	const char *why = m->target ? m->target->status.message : NULL;
	FerryMigrationStatus *f;

	*out = fail(m, "Migration failed because target pod shutdown during migration");
	if (str_is_empty(why))
		return RC_OK;
	f = api_ensure(&api_type_FerryMigrationStatus, &m->next->status.ferry);
	m->reason = "TargetFailed";
	return f ? api_set_strf(&f->message, "node %s: %s", m->target->spec.nodeName, why)
		 : RC_NOMEM;
}

static enum rc observe_scheduling(struct mig *m, enum mig_event *out)
{
	if (target_is_down(m))
		return target_failed(m, out);
	if (!m->target)
		return plan_requeue_after(m->plan, MIG_UNSEEN);
	if (!str_is_empty(m->target->spec.nodeName) && kit_pod_containers_ready(m->target)) {
		*out = MIG_EV_POD_READY;
		return RC_OK;
	}
	if (str_is_empty(m->target->spec.nodeName) && is_unschedulable(m->target))
		return observe_unschedulable(m, out);
	return check_timeout(m, "pending", timeout_of(m, ANN_PENDING_TIMEOUT, MIG_PENDING_TIMEOUT),
			     out);
}

static enum rc observe_scheduled(struct mig *m, enum mig_event *out)
{
	if (mig_vmi_state(m)) { /* handed off, but its record got lost */
		*out = MIG_EV_HANDOFF;
	} else if (target_is_down(m)) {
		return target_failed(m, out);
	} else if (is_taken(m)) {
		*out = fail(m,
			    "VMI is not eligible for migration because another migration job is in "
			    "progress.");
	} else if (!str_eq(m->vmi->status.phase, "Running")) {
		*out = fail(m, "Migration failed vmi shutdown during migration.");
	} else if (!m->target) {
		return plan_requeue_after(m->plan, MIG_UNSEEN);
	} else {
		*out = MIG_EV_HANDOFF;
	}
	return RC_OK;
}

/* ---- handed off ---- */

/* The VMI no longer carries this migration although it was handed off. */
static enum mig_event observe_lost_state(struct mig *m)
{
	m->keeps_target = m->state == MIG_RUNNING;
	if (m->vmi->status.migrationState)
		return fail(m,
			    "VMI's migration state was taken over by another migration job during "
			    "active migration.");
	return fail(m, "VMI's migration state was cleared during the active migration.");
}

static enum rc check_deadline(struct mig *m, enum mig_state since, usec_t limit, const char *what,
			      enum mig_event *out)
{
	usec_t age = kit_age(m->v->now, mig_stamp_of(m->next, since));

	if (age < limit)
		return plan_requeue_after(m->plan, limit - age);
	m->reason = "Timeout";
	*out = failf(m, "%s within %llu s", what, (unsigned long long)(limit / USEC_PER_SEC));
	return RC_OK;
}

static bool wants_follow_up(const VirtualMachineInstance *vmi)
{
	static const char *const types[] = {"HotVCPUChange", "HotMemoryChange",
					    "MigrationRequired"};

	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		if (API_COND_IS(&vmi->status, VirtualMachineInstanceCondition, types[i], "True"))
			return true;
	return false;
}

static bool is_done(const struct mig *m, const MigState *s)
{
	return API_GET(s, completed, false) && !API_GET(s, failed, false) &&
	       !wants_follow_up(m->vmi);
}

static const char *failed_text(const MigState *s)
{
	if (str_eq(s->failureReason, "Target pod is down"))
		return "Migration failed because target pod shutdown during migration";
	return "source node reported migration failed";
}

/* Handed off, not yet moving.  The steps that follow are taken one after the other in one reconcile. */
static enum rc observe_handed_off(struct mig *m, enum mig_event *out)
{
	const MigState *s = mig_vmi_state(m);

	if (!s) {
		*out = observe_lost_state(m);
	} else if (API_GET(s, failed, false)) {
		*out = fail(m, failed_text(s));
	} else if (s->startTimestamp || is_done(m, s)) {
		*out = m->state == MIG_PREPARING ? MIG_EV_LISTENING : MIG_EV_STARTED;
	} else if (target_is_down(m)) {
		*out = fail(m, "Migration failed because target pod shutdown during migration");
		m->reason = "TargetDown";
	} else if (m->state == MIG_PREPARING && s->targetNodeAddress) {
		*out = MIG_EV_LISTENING;
	} else if (m->state == MIG_PREPARING) {
		return check_deadline(m, MIG_PREPARING, MIG_PREPARE_TIMEOUT,
				      "the target node did not get ready", out);
	} else {
		return check_deadline(m, MIG_TARGET_READY, MIG_START_TIMEOUT,
				      "the source node did not begin", out);
	}
	return RC_OK;
}

/* Safety net: the source's agent keeps the real time.  Counted from the phase, which has this process' clock, and not
 * from startTimestamp, which has the agent's.  The agent is asked to abort first; only when nobody
 * reports an end is the migration given up, and then nothing is deleted. */
static enum rc observe_overdue(struct mig *m, const MigState *s, enum mig_event *out)
{
	usec_t acceptable = mig_acceptable_time(s, m->vmi);
	usec_t age = kit_age(m->v->now, mig_stamp_of(m->next, MIG_RUNNING));
	usec_t limit = 2 * acceptable + 2 * MIG_REPORT_TIMEOUT;

	if (!acceptable)
		return RC_OK; /* the installation asked for no limit */
	if (str_eq(s->mode, MigrationMode_PostCopy))
		return RC_OK; /* the guest is at the target, and a lost link is waited for */
	if (age < limit)
		return plan_requeue_after(m->plan, limit - age);
	if (!API_GET(s, abortRequested, false)) {
		*out = MIG_EV_ABORT;
		return RC_OK;
	}
	if (age < limit + MIG_REPORT_TIMEOUT)
		return plan_requeue_after(m->plan, limit + MIG_REPORT_TIMEOUT - age);
	m->keeps_target = true;
	m->reason = "NoReport";
	*out = fail(m, "neither node reported the end of the migration in time");
	return RC_OK;
}

/* Asked for, and not yet passed on: also when that was before memory was copied. */
static bool is_finish_due(const struct mig *m)
{
	const FerryVMIStatus *f = m->vmi->status.ferry;

	return str_eq(api_annotation(&m->old->metadata, ANN_FINISH), FINISH_PAUSE) &&
	       !(f && f->migration && API_GET(f->migration, finishRequested, false));
}

static enum rc observe_running(struct mig *m, enum mig_event *out)
{
	const MigState *s = mig_vmi_state(m);

	if (!s) {
		*out = observe_lost_state(m);
	} else if (is_done(m, s)) {
		*out = MIG_EV_COMPLETED;
	} else if (API_GET(s, failed, false)) {
		*out = fail(m, failed_text(s));
	} else if (m->old->metadata.deletionTimestamp && !API_GET(s, abortRequested, false)) {
		*out = MIG_EV_CANCEL;
	} else if (!m->target && !API_GET(s, completed, false) &&
		   !API_GET(s, abortRequested, false)) {
		*out = MIG_EV_ABORT;
	} else if (is_finish_due(m) && !API_GET(s, abortRequested, false)) {
		*out = MIG_EV_FINISH;
	} else {
		return observe_overdue(m, s, out);
	}
	return RC_OK;
}

/* ---- all states ---- */

static bool vmi_is_down(const struct mig *m)
{
	return kit_vmi_is_final(m->vmi) || m->vmi->metadata.deletionTimestamp;
}

/* The VMI carries the move although its own record says less (its write is waiting, or got lost): what was
 * true is told first, so that a cancel or a failure ends a move that was handed off, not one that was not. */
static enum mig_event catch_up(const struct mig *m)
{
	static const enum mig_event events[] = {
		[MIG_NEW] = MIG_EV_SEEN,
		[MIG_PENDING] = MIG_EV_SLOT,
		[MIG_SCHEDULING] = MIG_EV_POD_READY,
		[MIG_SCHEDULED] = MIG_EV_HANDOFF,
	};

	return mig_vmi_state(m) && m->state < ARRAY_SIZE(events) ? events[m->state] : MIG_EV_NONE;
}

enum rc mig_observe(struct mig *m, enum mig_event *out)
{
	*out = MIG_EV_NONE;
	if (mig_is_final(m->state))
		return RC_OK;
	if (!m->vmi) {
		*out = fail(m, "Migration failed because vmi does not exist.");
		return RC_OK;
	}
	*out = catch_up(m);
	if (*out != MIG_EV_NONE)
		return RC_OK;
	if (m->state == MIG_RUNNING && mig_vmi_state(m) && is_done(m, mig_vmi_state(m))) {
		*out = MIG_EV_COMPLETED;
		return RC_OK;
	}
	if (vmi_is_down(m)) {
		m->keeps_target = true; /* the VMI's own end takes its pods along */
		*out = fail(m, "Migration failed vmi shutdown during migration.");
		return RC_OK;
	}
	const MigState *s = mig_vmi_state(m);
	bool moves = s && (s->startTimestamp || API_GET(s, completed, false));

	if (m->old->metadata.deletionTimestamp && m->state != MIG_RUNNING && !moves) {
		m->failure = "Migration failed due to being canceled";
		m->reason = "Canceled";
		*out = MIG_EV_CANCEL;
		return RC_OK;
	}
	switch (m->state) {
	case MIG_NEW:
		*out = MIG_EV_SEEN;
		return RC_OK;
	case MIG_PENDING:
		return observe_pending(m, out);
	case MIG_SCHEDULING:
		return observe_scheduling(m, out);
	case MIG_SCHEDULED:
		return observe_scheduled(m, out);
	case MIG_PREPARING:
	case MIG_TARGET_READY:
		return observe_handed_off(m, out);
	case MIG_RUNNING:
		return observe_running(m, out);
	case MIG_SUCCEEDED:
	case MIG_FAILED:
	case MIG_STATE__MAX:
		break;
	}
	return RC_OK;
}
