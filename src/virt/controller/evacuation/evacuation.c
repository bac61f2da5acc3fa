#include "virt/controller/evacuation/evacuation.h"

#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "api/meta.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/try.h"
#include "virt/controller/kit.h"
#include "virt/controller/migration/migration.h"
#include "virt/names.h"

#define VMI	 (&api_kind_VirtualMachineInstance)
#define VMIM	 (&api_kind_VirtualMachineInstanceMigration)
#define HOUR	 (3600 * USEC_PER_SEC)
#define ATTEMPTS 5 /* FerryConfig.spec.evacuationAttempts */

typedef VirtualMachineInstanceMigration Vmim;
typedef VirtualMachineInstanceMigrationState MigState;

struct evac {
	const struct view *v;
	const VirtualMachineInstance *vmi;
	const Vmim *open;	 /* a migration that has not ended; NULL: none */
	const Vmim *last_ended;	 /* the newest that has; NULL: none */
	const Vmim *last_failed; /* the newest of this evacuation that failed; NULL: none */
	struct plan *plan;
};

typedef FerryEvacuationStatus Count; /* what the VMI's status keeps of it */

/* ---- who is to leave ---- */

static const char *drain_key(const struct view *v)
{
	const KubeVirtConfiguration *cfg = kit_config(v);
	const char *key = cfg && cfg->migrations ? cfg->migrations->nodeDrainTaintKey : NULL;

	return key ? key : TAINT_DRAIN;
}

/* Only the effect NoSchedule counts; the value does not matter. */
static bool is_draining(const struct view *v, const char *node)
{
	const Node *n = view_get(v, &api_kind_Node, NULL, node);
	const char *key = drain_key(v);

	for (size_t i = 0; n && i < n->spec.n_taints; i++)
		if (str_eq(n->spec.taints[i].key, key) &&
		    str_eq(n->spec.taints[i].effect, "NoSchedule"))
			return true;
	return false;
}

static bool is_marked(const struct evac *e)
{
	const VirtualMachineInstanceStatus *st = &e->vmi->status;

	return !str_is_empty(st->nodeName) &&
	       (str_eq(st->evacuationNodeName, st->nodeName) || is_draining(e->v, st->nodeName));
}

static bool can_leave(const struct evac *e)
{
	const VirtualMachineInstance *vmi = e->vmi;
	const char *strategy = vmi->spec.evictionStrategy;

	if (kit_vmi_is_final(vmi) || vmi->metadata.deletionTimestamp ||
	    !str_eq(vmi->status.phase, "Running") || vmi->status.activePods.n > 1)
		return false;
	if (!str_eq(strategy, "LiveMigrate") && !str_eq(strategy, "LiveMigrateIfPossible"))
		return false; /* None is shut down, External is somebody else's */
	return API_COND_IS(&vmi->status, VirtualMachineInstanceCondition, "LiveMigratable", "True");
}

/* ---- its migrations ---- */

static const char *end_of(const Vmim *m)
{
	for (size_t i = m->status.n_phaseTransitionTimestamps; i-- > 0;)
		if (str_eq(m->status.phaseTransitionTimestamps[i].phase, m->status.phase))
			return m->status.phaseTransitionTimestamps[i].phaseTransitionTimestamp;
	return m->metadata.creationTimestamp ? m->metadata.creationTimestamp : "";
}

/* By their ends: one that fails at once and the next one are made within a second. */
static bool is_newer(const Vmim *a, const Vmim *b)
{
	int c = strcmp(end_of(a), end_of(b));

	return c > 0 || (c == 0 && strcmp(a->metadata.name, b->metadata.name) > 0);
}

static bool is_own(const struct evac *e, const Vmim *m)
{
	const char *from = api_annotation(&m->metadata, ANN_EVACUATION);

	return from && str_eq(from, e->vmi->status.nodeName);
}

static void find_migrations(struct evac *e)
{
	char key[512];
	struct kiter it;

	snprintf(key, sizeof(key), "%s/%s", e->vmi->metadata.namespace, e->vmi->metadata.name);
	view_by(e->v, VMIM, MIG_INDEX, key, &it);
	for (const Vmim *m; (m = view_next(&it));) {
		if (!kit_vmim_is_final(m))
			e->open = m;
		else if (!e->last_ended || is_newer(m, e->last_ended))
			e->last_ended = m;
		if (is_own(e, m) && str_eq(m->status.phase, "Failed") &&
		    (!e->last_failed || is_newer(m, e->last_failed)))
			e->last_failed = m;
	}
}

/* ---- tries are counted, and bounded ---- */

static const Count *count_of(const struct evac *e)
{
	const FerryVMIStatus *f = e->vmi->status.ferry;

	return f ? f->evacuation : NULL;
}

static bool is_given_up(const struct evac *e)
{
	const Count *c = count_of(e);

	return c && c->reason && str_eq(c->node, e->vmi->status.nodeName);
}

static bool has_uncounted_failure(const struct evac *e)
{
	const Count *c = count_of(e);

	return e->last_failed && !(c && str_eq(c->last, e->last_failed->metadata.uid));
}

static const char *why_failed(const Vmim *m)
{
	const FerryMigrationStatus *f = m->status.ferry;
	const MigState *s = m->status.migrationState;

	if (f && f->message)
		return f->message;
	return s && s->failureReason ? s->failureReason : "no reason given";
}

static void drop_old_failures(Count *c, usec_t now)
{
	for (size_t i = c->n_failedTimes; i-- > 0;) {
		if (kit_age(now, c->failedTimes[i]) < HOUR)
			continue;
		mem_free(c->failedTimes[i]);
		memmove(&c->failedTimes[i], &c->failedTimes[i + 1],
			(--c->n_failedTimes - i) * sizeof(c->failedTimes[0]));
	}
}

static enum rc add_failure(const struct evac *e, Count *c)
{
	char now[32];

	drop_old_failures(c, e->v->now);
	time_rfc3339(e->v->now, now);
	TRY(api_set_str(&c->node, e->vmi->status.nodeName));
	TRY(api_set_str(&c->last, e->last_failed->metadata.uid));
	return api_append_str(&c->failedTimes, &c->n_failedTimes, now);
}

/* From now on it stays: said once, and on the VMI for as long as it is so. */
static enum rc give_up(const struct evac *e, Count *c)
{
	const char *why = why_failed(e->last_failed);

	TRY(api_set_str(&c->reason, "AttemptsExhausted"));
	TRY(api_set_strf(&c->message, "%u attempts within an hour failed; the last one: %s",
			 c->n_failedTimes, why));
	return plan_event(e->plan, VMI, e->vmi, "Warning", "EvacuationBlocked",
			  "No further attempt to move it off node %s is made: %s",
			  e->vmi->status.nodeName, c->message);
}

/* A failure that counts is written before anything is tried again: a controller that restarts does not
 * begin at nought. */
static enum rc count_failure(struct evac *e)
{
	const FerryConfigSpec *cfg = kit_ferry_config(e->v);
	int64_t limit = cfg ? API_GET(cfg, evacuationAttempts, ATTEMPTS) : ATTEMPTS;
	CLEANUP(VirtualMachineInstance_freep)
	VirtualMachineInstance *next = VirtualMachineInstance_clone(e->vmi);

	if (!next)
		return RC_NOMEM;
	FerryVMIStatus *f = api_ensure(&api_type_FerryVMIStatus, &next->status.ferry);

	if (f && f->evacuation && !str_eq(f->evacuation->node, e->vmi->status.nodeName))
		f->evacuation = FerryEvacuationStatus_free(f->evacuation);
	Count *c = f ? api_ensure(&api_type_FerryEvacuationStatus, &f->evacuation) : NULL;

	if (!c)
		return RC_NOMEM;
	TRY(add_failure(e, c));
	if ((int64_t)c->n_failedTimes >= limit)
		TRY(give_up(e, c));
	return plan_update(e->plan, VMI, e->vmi, STEAL(next), NULL);
}

/* Nobody asks any more: whoever asks again starts from nought.  What was counted last is kept while the VM
 * is where it is, so that it does not count again. */
static enum rc forget_failures(struct evac *e)
{
	const Count *old = count_of(e);
	bool is_here = old && str_eq(old->node, e->vmi->status.nodeName);

	if (!old || (is_here && !old->n_failedTimes && !old->reason))
		return RC_OK;
	CLEANUP(VirtualMachineInstance_freep)
	VirtualMachineInstance *next = VirtualMachineInstance_clone(e->vmi);

	if (!next)
		return RC_NOMEM;
	FerryVMIStatus *f = next->status.ferry;
	CLEANUP(mem_freep) char *last = STEAL(f->evacuation->last);

	f->evacuation = FerryEvacuationStatus_free(f->evacuation);
	if (is_here) {
		Count *c = api_ensure(&api_type_FerryEvacuationStatus, &f->evacuation);

		if (!c)
			return RC_NOMEM;
		TRY(api_set_str(&c->node, e->vmi->status.nodeName));
		c->last = STEAL(last);
	}
	return plan_update(e->plan, VMI, e->vmi, STEAL(next), NULL);
}

/* ---- ask, and take back ---- */

/* A name for each attempt: the same view gives the same one. */
static enum rc attempt_name(const struct evac *e, char **out)
{
	CLEANUP(mem_freep)
	char *seed = mem_printf("%s/%s/%s", e->vmi->metadata.uid, e->vmi->status.nodeName,
				e->last_ended ? e->last_ended->metadata.uid : "");
	char suffix[6];

	if (!seed)
		return RC_NOMEM;
	kit_suffix(seed, suffix);
	*out = mem_printf("kubevirt-evacuation-%s", suffix);
	return *out ? RC_OK : RC_NOMEM;
}

static enum rc fill(const struct evac *e, Vmim *m)
{
	bool rebalance =
		str_eq(api_annotation(&e->vmi->metadata, ANN_EVICTION_SOURCE), "descheduler");

	TRY(attempt_name(e, &m->metadata.name));
	TRY(api_set_str(&m->metadata.namespace, e->vmi->metadata.namespace));
	TRY(api_map_set(&m->metadata.annotations, ANN_EVACUATION, e->vmi->status.nodeName));
	TRY(api_set_str(&m->spec.vmiName, e->vmi->metadata.name));
	return api_set_str(&m->spec.priority, rebalance ? "system-maintenance" : "system-critical");
}

static enum rc ask(struct evac *e)
{
	CLEANUP(VirtualMachineInstanceMigration_freep)
	Vmim *m = VirtualMachineInstanceMigration_new();
	CLEANUP(mem_freep)
	char *name = NULL;

	if (!m)
		return RC_NOMEM;
	TRY(fill(e, m));
	name = mem_strdup(m->metadata.name);
	if (!name)
		return RC_NOMEM;
	TRY(plan_create(e->plan, VMIM, STEAL(m)));
	return plan_event(e->plan, VMI, e->vmi, "Normal", "SuccessfulCreate",
			  "Created Migration %s", name);
}

/* Nobody asks any more that the VMI leaves (its mark was taken off, or the node's taint): the evacuation's
 * own move is cancelled, also one that is under way.  One that is over goes on to its record: then the VMI
 * names another node. */
static enum rc take_back(struct evac *e)
{
	const Vmim *m = e->open;
	const MigState *s = e->vmi->status.migrationState;
	bool is_over = s && str_eq(s->migrationUid, m->metadata.uid) &&
		       (API_GET(s, completed, false) || API_GET(s, failed, false));

	if (!is_own(e, m) || m->metadata.deletionTimestamp || is_over)
		return RC_OK;
	return plan_delete(e->plan, VMIM, m->metadata.namespace, m->metadata.name, m->metadata.uid,
			   -1, NULL);
}

static enum rc sync(struct evac *e)
{
	find_migrations(e);
	if (!is_marked(e)) {
		TRY(forget_failures(e));
		return e->open ? take_back(e) : RC_OK;
	}
	if (e->open || !can_leave(e))
		return RC_OK;
	if (has_uncounted_failure(e))
		return count_failure(e);
	return is_given_up(e) ? RC_OK : ask(e);
}

enum rc evacuation_reconcile(const struct view *v, const char *ns, const char *name,
			     struct plan *out, struct err *err)
{
	struct evac e = {.v = v, .vmi = view_get(v, VMI, ns, name), .plan = out};

	return kit_fail(err, e.vmi ? sync(&e) : RC_OK,
			"cannot evacuate the virtual machine instance");
}

/* ---- what wakes it ---- */

static void map_migration(const struct view *v, const struct kobj *obj, ctl_emit_fn emit, void *ctx)
{
	const Vmim *m = kobj_typed(obj);

	(void)v;
	if (!str_is_empty(m->spec.vmiName))
		emit(ctx, kobj_ns(obj), m->spec.vmiName);
}

static void map_node(const struct view *v, const struct kobj *obj, ctl_emit_fn emit, void *ctx)
{
	struct kiter it;

	view_list(v, VMI, NULL, &it);
	for (const VirtualMachineInstance *vmi; (vmi = view_next(&it));)
		if (str_eq(vmi->status.nodeName, kobj_name(obj)))
			emit(ctx, vmi->metadata.namespace, vmi->metadata.name);
}

static const struct ctl_map maps[] = {
	{&api_kind_VirtualMachineInstanceMigration, map_migration},
	{&api_kind_Node, map_node},
	{NULL, NULL},
};

static const struct ctl_index indexes[] = {
	{&api_kind_VirtualMachineInstanceMigration, MIG_INDEX, mig_index_vmi},
	{NULL, NULL, NULL},
};

static const struct api_kind *const reads[] = {&api_kind_KubeVirt, &api_kind_FerryConfig, NULL};

const struct ctl_def evacuation_ctl_def = {
	.name = "evacuation",
	.primary = &api_kind_VirtualMachineInstance,
	.reconcile = evacuation_reconcile,
	.maps = maps,
	.indexes = indexes,
	.reads = reads,
};
