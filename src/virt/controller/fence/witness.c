#include "virt/controller/fence/witness.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "api/meta.h"
#include "base/str.h"
#include "base/try.h"
#include "virt/controller/kit.h"
#include "virt/controller/vmi/vmi.h"
#include "virt/migration/fencing.h"
#include "virt/names.h"

#define VMI	      (&api_kind_VirtualMachineInstance)
#define VMIM	      (&api_kind_VirtualMachineInstanceMigration)
#define NODE	      (&api_kind_Node)
#define WITNESS	      (&api_kind_DiskWitness)
#define LEASE_NS      "kube-node-lease"
#define UNKNOWN_AGAIN (30 * USEC_PER_SEC)

/* One look at a VMI. */
struct look {
	const struct view *v;
	const VirtualMachineInstance *vmi;
	const DiskWitness *w;  /* NULL: none */
	const Pod *pod;	       /* that holds the guest */
	const Lease *lease;    /* of its node */
	usec_t silence, age;   /* from when on a node is silent; how long its own is */
	DiskWitnessSpec *want; /* which pod, node and disks it is about */
	struct plan *plan;
};

static bool is_silent(const struct look *l)
{
	return l->age >= l->silence;
}

/* ---- what is said ---- */

static enum rc tell(struct look *l, const char *status, const char *reason, const char *fmt, ...)
	PRINTF_LIKE(4, 5);
static enum rc tell(struct look *l, const char *status, const char *reason, const char *fmt, ...)
{
	CLEANUP(VirtualMachineInstance_freep)
	VirtualMachineInstance *next = VirtualMachineInstance_clone(l->vmi);
	struct api_cond old = {0};
	char text[1024];
	va_list ap;

	if (!next)
		return RC_NOMEM;
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	bool known = API_COND_GET(&l->vmi->status, VirtualMachineInstanceCondition,
				  COND_LOST_NODE_PROOF, &old) &&
		     str_eq(old.reason, reason) && str_eq(old.message, text);

	if (known)
		return RC_OK;
	TRY(API_COND_SET(&next->status, VirtualMachineInstanceCondition, l->v->now,
			 .type = COND_LOST_NODE_PROOF, .status = status, .reason = reason,
			 .message = text));
	TRY(plan_update(l->plan, VMI, l->vmi, STEAL(next), NULL));
	if (!is_silent(l) || str_eq(status, "True"))
		return RC_OK;
	return plan_event(l->plan, VMI, l->vmi, "Warning", reason, "Not started elsewhere: %s",
			  text);
}

static enum rc drop_record(struct look *l)
{
	return l->w ? plan_delete(l->plan, WITNESS, l->w->metadata.namespace, l->w->metadata.name,
				  l->w->metadata.uid, -1, NULL)
		    : RC_OK;
}

/* The guest has ended, or nobody wants to know any more. */
static enum rc forget(struct look *l)
{
	TRY(drop_record(l));
	CLEANUP(VirtualMachineInstance_freep)
	VirtualMachineInstance *next = VirtualMachineInstance_clone(l->vmi);

	if (!next)
		return RC_NOMEM;
	API_COND_DEL(&next->status, VirtualMachineInstanceCondition, COND_LOST_NODE_PROOF);
	return plan_update(l->plan, VMI, l->vmi, STEAL(next), NULL);
}

/* ---- the disks ---- */

static const PersistentVolume *volume_of(const struct look *l, const Volume *vol)
{
	const char *claim = kit_volume_claim(vol);
	const PersistentVolumeClaim *c = claim ? view_get(l->v, &api_kind_PersistentVolumeClaim,
							  l->vmi->metadata.namespace, claim)
					       : NULL;

	return c && c->spec.volumeName
		       ? view_get(l->v, &api_kind_PersistentVolume, NULL, c->spec.volumeName)
		       : NULL;
}

/* False: they cannot tell; it has been said why. */
static enum rc find_disks(struct look *l, bool *can_tell)
{
	*can_tell = false;
	for (size_t i = 0; i < l->vmi->spec.n_volumes; i++) {
		const Volume *vol = &l->vmi->spec.volumes[i];

		switch (fencing_disk_of(l->vmi, vol, volume_of(l, vol))) {
		case FENCING_DISK_SCRATCH:
			break;
		case FENCING_DISK_SHARED:
			TRY(api_append_str(&l->want->disks, &l->want->n_disks, vol->name));
			break;
		case FENCING_DISK_OWN:
			return tell(
				l, "False", "DiskOfOneNode",
				"disk '%s' is on the node itself, and no other one sees its lock",
				vol->name);
		case FENCING_DISK_UNKNOWN: /* its volume may be about to be seen */
			TRY(plan_requeue_after(l->plan, UNKNOWN_AGAIN));
			return tell(l, "False", "DiskUnknown",
				    "disk '%s' is on storage of which nothing is known", vol->name);
		}
	}
	if (!l->want->n_disks)
		return tell(
			l, "False", "NoSharedDisk",
			"it writes no disk that other nodes see, so there is no lock that tells "
			"whether it runs");
	*can_tell = true;
	return RC_OK;
}

static bool is_same_disks(const DiskWitnessSpec *a, const DiskWitnessSpec *b)
{
	if (a->n_disks != b->n_disks)
		return false;
	for (size_t i = 0; i < a->n_disks; i++)
		if (!str_eq(a->disks[i], b->disks[i]))
			return false;
	return true;
}

static bool is_about_this(const struct look *l)
{
	return l->w && str_eq(l->w->spec.podUID, l->want->podUID) &&
	       str_eq(l->w->spec.nodeName, l->want->nodeName) &&
	       is_same_disks(&l->w->spec, l->want);
}

/* ---- who looks ---- */

static bool can_look(const struct look *l, const Node *n)
{
	const Lease *lease = n ? view_get(l->v, &api_kind_Lease, LEASE_NS, n->metadata.name) : NULL;

	return lease && !str_eq(n->metadata.name, l->pod->spec.nodeName) &&
	       !n->metadata.deletionTimestamp &&
	       API_COND_IS(&n->status, NodeCondition, "Ready", "True") &&
	       kit_age(l->v->now, lease->spec.renewTime) < l->silence;
}

static bool is_there(const struct look *l, const char *node)
{
	return can_look(l, view_get(l->v, NODE, NULL, node));
}

/* The one that looks already, else one by rendezvous hashing; NULL: there is none. */
static const char *choose(const struct look *l)
{
	const char *uid = l->vmi->metadata.uid, *best = NULL;
	uint64_t best_score = 0;
	struct kiter it;

	if (l->w && is_there(l, l->w->spec.witness))
		return l->w->spec.witness;
	view_list(l->v, NODE, NULL, &it);
	for (const Node *n; (n = view_next(&it));) {
		const char *name = n->metadata.name;
		uint64_t pair[2] = {str_hash(name, strlen(name)), str_hash(uid, strlen(uid))};
		uint64_t score = str_hash(pair, sizeof(pair));

		if (can_look(l, n) && (!best || score > best_score)) {
			best = name;
			best_score = score;
		}
	}
	return best;
}

/* ---- the record ---- */

/* The next question; lease NULL: whether the locks are held, else they are to be taken. */
static enum rc ask(struct look *l, const char *witness, const char *lease)
{
	CLEANUP(DiskWitness_freep)
	DiskWitness *next = l->w ? DiskWitness_clone(l->w) : DiskWitness_new();
	CLEANUP(DiskWitnessSpec_freep) DiskWitnessSpec *spec = DiskWitnessSpec_clone(l->want);

	if (!next || !spec)
		return RC_NOMEM;
	TRY(api_set_str(&spec->witness, witness));
	TRY(api_set_str(&spec->lease, lease));
	API_SET(spec, epoch, l->w ? API_GET(&l->w->spec, epoch, 1) + 1 : 1);
	TRY(kit_stamp(&spec->requestedTime, l->v->now));
	const DiskWitnessSpec old = next->spec;

	next->spec = *spec;
	*spec = old; /* is freed */
	if (l->w)
		return plan_update(l->plan, WITNESS, l->w, STEAL(next), NULL);
	TRY(api_set_str(&next->metadata.namespace, l->vmi->metadata.namespace));
	TRY(api_set_str(&next->metadata.name, l->vmi->metadata.name));
	TRY(api_add_owner(&next->metadata, VMI, &l->vmi->metadata, true, false));
	return plan_create(l->plan, WITNESS, STEAL(next));
}

static bool has_answer(const struct look *l, const char *state)
{
	const DiskWitness *w = l->w;

	return API_GET(&w->status, epoch, 0) == API_GET(&w->spec, epoch, 1) &&
	       (!state || str_eq(w->status.state, state));
}

static const char *words(const struct look *l)
{
	return l->w->status.message ? l->w->status.message : "";
}

/* ---- its node is heard of ---- */

static enum rc tell_what_was_seen(struct look *l)
{
	const DiskWitnessSpec *s = &l->w->spec;

	if (!has_answer(l, NULL))
		return RC_OK; /* in a moment */
	if (has_answer(l, WitnessState_Held))
		return tell(
			l, "True", "LocksSeen",
			"node '%s' sees the locks of its disks: by them it is known whether the "
			"guest still runs should node '%s' be lost",
			s->witness, s->nodeName);
	return tell(l, "False",
		    has_answer(l, WitnessState_Free) ? "LocksNotSeen" : "StorageUnknown",
		    "node '%s' cannot tell by the locks of its disks whether it runs: %s",
		    s->witness, words(l));
}

static enum rc look_at_heard(struct look *l)
{
	const char *witness = choose(l);

	TRY(plan_requeue_after(l->plan, l->silence - l->age));
	if (!witness)
		return tell(l, "False", "NoWitness",
			    "no other node is ready, so none can look at the locks of its disks");
	if (!is_about_this(l) || l->w->spec.lease || !str_eq(witness, l->w->spec.witness))
		return ask(l, witness, NULL);
	return tell_what_was_seen(l);
}

/* ---- its node is silent ---- */

/* What a move has not ended has two copies, and for a moment neither holds a lock. */
static bool is_moving(const struct look *l)
{
	const VirtualMachineInstance *vmi = l->vmi;
	struct kiter it;

	view_list(l->v, VMIM, vmi->metadata.namespace, &it);
	for (const VirtualMachineInstanceMigration *m; (m = view_next(&it));)
		if (!kit_vmim_is_final(m) && str_eq(m->spec.vmiName, vmi->metadata.name))
			return true;
	view_children(l->v, &api_kind_Pod, vmi->metadata.uid, &it);
	for (const Pod *pod; (pod = view_next(&it));)
		if (pod != l->pod && !kit_pod_is_final(pod) &&
		    str_eq(api_label(&pod->metadata, LABEL_ROLE), ROLE_LAUNCHER))
			return true;
	const VirtualMachineInstanceMigrationState *ms = vmi->status.migrationState;

	return ms && ms->startTimestamp && !API_GET(ms, completed, false) &&
	       !API_GET(ms, failed, false);
}

/* From here on the pod is over, and the VM's run strategy decides. */
static enum rc give_up(struct look *l)
{
	TRY(plan_delete(l->plan, &api_kind_Pod, l->pod->metadata.namespace, l->pod->metadata.name,
			l->pod->metadata.uid, 0, NULL));
	return plan_event(l->plan, VMI, l->vmi, "Warning", "DiskLocksTaken",
			  "Node %s is silent and node %s has taken the locks of its disks: it may "
			  "start elsewhere",
			  l->w->spec.nodeName, l->w->spec.witness);
}

static enum rc judge(struct look *l)
{
	const DiskWitnessSpec *s = &l->w->spec;

	if (!is_there(l, s->witness))
		return tell(l, "False", "NoWitness",
			    "node '%s' is silent, and so is node '%s', which has seen the locks of "
			    "its disks",
			    s->nodeName, s->witness);
	if (!has_answer(l, NULL))
		return tell(l, "False", "LocksAskedFor",
			    "node '%s' is silent, node '%s' is to take the locks of its disks",
			    s->nodeName, s->witness);
	if (has_answer(l, WitnessState_Free))
		return give_up(l);
	if (has_answer(l, WitnessState_Held))
		return tell(l, "False", "DiskStillLocked",
			    "node '%s' is silent, but its disk '%s' is still locked: the old copy "
			    "runs, or the storage does not know yet that its machine is gone",
			    s->nodeName, l->w->status.disk ? l->w->status.disk : "");
	return tell(l, "False", "StorageUnknown",
		    "node '%s' is silent, and node '%s' cannot take the locks of its disks: %s",
		    s->nodeName, s->witness, words(l));
}

static enum rc look_at_silent(struct look *l)
{
	const char *lease = l->lease->spec.renewTime;

	if (is_moving(l))
		return tell(l, "False", "MoveUnderWay",
			    "node '%s' is silent in a move, when locks tell nothing",
			    l->want->nodeName);
	/* A storage is believed that its lock is free only where it was seen to be held. */
	if (!is_about_this(l) || !(l->w->spec.lease || has_answer(l, WitnessState_Held)))
		return tell(
			l, "False", "LocksNotSeen",
			"node '%s' is silent, and no other node had seen the locks of its disks "
			"before: they prove nothing",
			l->want->nodeName);
	if (!str_eq(l->w->spec.lease, lease))
		TRY(ask(l, l->w->spec.witness, lease));
	else
		TRY(judge(l));
	return RC_OK;
}

/* ---- one look ---- */

static enum rc look_at_running(struct look *l)
{
	bool can_tell;

	l->want = DiskWitnessSpec_new();
	if (!l->want)
		return RC_NOMEM;
	TRY(api_set_str(&l->want->vmiUID, l->vmi->metadata.uid));
	TRY(api_set_str(&l->want->podUID, l->pod->metadata.uid));
	TRY(api_set_str(&l->want->nodeName, l->pod->spec.nodeName));
	TRY(find_disks(l, &can_tell));
	if (!can_tell)
		return drop_record(l);
	return is_silent(l) ? look_at_silent(l) : look_at_heard(l);
}

static enum rc look(struct look *l)
{
	struct vmi_pods pods;

	if (!l->silence || kit_vmi_is_final(l->vmi))
		return forget(l);
	if (l->w && !str_eq(l->w->spec.vmiUID, l->vmi->metadata.uid))
		return drop_record(l); /* of an earlier one of this name */
	vmi_find_pods(l->v, l->vmi, &pods);
	l->pod = pods.current;
	/* Where no guest has run yet, nobody holds a lock, and that is no sign of anything. */
	if (!l->pod || kit_pod_is_final(l->pod) || !str_eq(l->vmi->status.phase, "Running") ||
	    !str_eq(l->pod->spec.nodeName, l->vmi->status.nodeName))
		return RC_OK;
	l->lease = view_get(l->v, &api_kind_Lease, LEASE_NS, l->pod->spec.nodeName);
	if (!l->lease || !l->lease->spec.renewTime)
		return RC_OK;
	/* Not before the node knows how often it is to be heard of. */
	l->silence = MAX(l->silence,
			 (usec_t)API_GET(&l->lease->spec, leaseDurationSeconds, 0) * USEC_PER_SEC);
	l->age = kit_age(l->v->now, l->lease->spec.renewTime);
	if (l->vmi->metadata.deletionTimestamp && !is_silent(l))
		return RC_OK;
	return look_at_running(l);
}

static usec_t silence_of(const struct view *v)
{
	const FerryConfigSpec *cfg = kit_ferry_config(v);

	return cfg && str_eq(cfg->fencing, FencingPolicy_StorageLock)
		       ? (usec_t)fencing_silence_seconds(cfg) * USEC_PER_SEC
		       : 0;
}

enum rc witness_reconcile(const struct view *v, const char *ns, const char *name, struct plan *out,
			  struct err *err)
{
	struct look l = {
		.v = v,
		.vmi = view_get(v, VMI, ns, name),
		.w = view_get(v, WITNESS, ns, name),
		.silence = silence_of(v),
		.plan = out,
	};

	if (!l.vmi)
		return RC_OK; /* the record goes by its owner */
	enum rc rc = look(&l);

	DiskWitnessSpec_free(l.want);
	return kit_fail(err, rc, "cannot judge by the locks of its disks");
}

/* ---- what wakes it ---- */

static void map_record(const struct view *v, const struct kobj *obj, ctl_emit_fn emit, void *ctx)
{
	(void)v;
	emit(ctx, kobj_ns(obj), kobj_name(obj));
}

static void map_vmim(const struct view *v, const struct kobj *obj, ctl_emit_fn emit, void *ctx)
{
	const VirtualMachineInstanceMigration *m = kobj_typed(obj);

	if (silence_of(v) && m->spec.vmiName)
		emit(ctx, m->metadata.namespace, m->spec.vmiName);
}

/* Those that run there, and those that it looks at. */
static void map_node(const struct view *v, const struct kobj *obj, ctl_emit_fn emit, void *ctx)
{
	struct kiter it;

	if (!silence_of(v))
		return;
	view_list(v, VMI, NULL, &it);
	for (const VirtualMachineInstance *vmi; (vmi = view_next(&it));) {
		const DiskWitness *w =
			view_get(v, WITNESS, vmi->metadata.namespace, vmi->metadata.name);

		if (str_eq(vmi->status.nodeName, kobj_name(obj)) || !w ||
		    str_eq(w->spec.witness, kobj_name(obj)))
			emit(ctx, vmi->metadata.namespace, vmi->metadata.name);
	}
}

/* A renewal counts where locks are to be taken: of all others the time of the next look is known. */
static void map_lease(const struct view *v, const struct kobj *obj, ctl_emit_fn emit, void *ctx)
{
	struct kiter it;

	if (!silence_of(v) || !str_eq(kobj_ns(obj), LEASE_NS))
		return;
	view_list(v, WITNESS, NULL, &it);
	for (const DiskWitness *w; (w = view_next(&it));)
		if (w->spec.lease && str_eq(w->spec.nodeName, kobj_name(obj)))
			emit(ctx, w->metadata.namespace, w->metadata.name);
}

static void map_config(const struct view *v, const struct kobj *obj, ctl_emit_fn emit, void *ctx)
{
	(void)obj;
	ctl_emit_all(v, VMI, emit, ctx);
}

static const struct ctl_map maps[] = {
	{&api_kind_Pod, NULL},
	{&api_kind_DiskWitness, map_record},
	{&api_kind_VirtualMachineInstanceMigration, map_vmim},
	{&api_kind_Node, map_node},
	{&api_kind_Lease, map_lease},
	{&api_kind_FerryConfig, map_config},
	{NULL, NULL},
};

static const struct api_kind *const reads[] = {
	&api_kind_PersistentVolumeClaim,
	&api_kind_PersistentVolume,
	NULL,
};

const struct ctl_def witness_ctl_def = {
	.name = "witness",
	.primary = VMI,
	.reconcile = witness_reconcile,
	.maps = maps,
	.reads = reads,
};
