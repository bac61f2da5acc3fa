#include "api/api.h"
#include "api/meta.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/try.h"
#include "virt/controller/kit.h"
#include "virt/controller/migration/mig_int.h"
#include "virt/names.h"

#define BACKOFF_STEP (20 * USEC_PER_SEC)
#define BACKOFF_MAX  (5 * 60 * USEC_PER_SEC)

static int priority(const Vmim *vmim)
{
	const char *p = vmim->spec.priority;

	if (str_eq(p, "system-critical"))
		return 100;
	if (str_eq(p, "user-triggered"))
		return 50;
	return str_eq(p, "system-maintenance") ? 20 : 0;
}

usec_t mig_retry_delay(const Vmim *vmim)
{
	int p = priority(vmim);

	return (p >= 100 ? 1 : p >= 50 ? 3 : 5) * USEC_PER_SEC;
}

static bool is_active(const Vmim *vmim)
{
	enum mig_state s = mig_state_of(vmim->status.phase);

	return s >= MIG_SCHEDULING && s <= MIG_RUNNING;
}

static bool is_waiting(const Vmim *vmim)
{
	enum mig_state s = mig_state_of(vmim->status.phase);

	return (s == MIG_NEW || s == MIG_PENDING) && !vmim->metadata.deletionTimestamp;
}

#define QUEUE_ACTIVE  "active"
#define QUEUE_WAITING "waiting"

void mig_index_queue(const struct kobj *o, kcache_emit_fn emit, void *ctx)
{
	const Vmim *m = kobj_typed(o);

	if (is_active(m))
		emit(ctx, QUEUE_ACTIVE);
	else if (is_waiting(m))
		emit(ctx, QUEUE_WAITING);
}

/* ---- the order ---- */

/* What people ask for comes first, then what empties a node, then what renews workloads, then what only
 * tidies up.  What the server refused before is tried when nobody else can use the slot. */
enum { RANK_REFUSED, RANK_TIDY, RANK_UPDATE, RANK_EVACUATION, RANK_USER };

static int rank(const Vmim *m)
{
	const char *p = m->spec.priority;

	if (API_COND_IS(&m->status, VirtualMachineInstanceMigrationCondition,
			"migrationRejectedByResourceQuota", "True"))
		return RANK_REFUSED;
	if (str_eq(p, "system-maintenance"))
		return RANK_TIDY;
	if (api_annotation(&m->metadata, ANN_WORKLOAD_UPDATE))
		return str_eq(p, "user-triggered") ? RANK_USER : RANK_UPDATE;
	if (api_annotation(&m->metadata, ANN_EVACUATION) || str_eq(p, "system-critical"))
		return RANK_EVACUATION;
	return RANK_USER;
}

static int older_first(const Vmim *x, const Vmim *y)
{
	int c = strcmp(x->metadata.creationTimestamp ? x->metadata.creationTimestamp : "",
		       y->metadata.creationTimestamp ? y->metadata.creationTimestamp : "");

	if (!c)
		c = strcmp(x->metadata.namespace, y->metadata.namespace);
	return c ? c : strcmp(x->metadata.name, y->metadata.name);
}

static const char *source_node(const struct view *v, const Vmim *vmim)
{
	const VirtualMachineInstance *vmi = view_get(v, &api_kind_VirtualMachineInstance,
						     vmim->metadata.namespace, vmim->spec.vmiName);

	if (!vmi || !str_eq(vmi->status.phase, "Running"))
		return NULL;
	return vmi->status.nodeName;
}

static bool is_first_of_its_vmi(const struct view *v, const Vmim *vmim)
{
	struct kiter it;

	mig_siblings(v, vmim->metadata.namespace, vmim->spec.vmiName, &it);
	for (const Vmim *other; (other = view_next(&it));) {
		if (other == vmim)
			continue;
		if (is_active(other))
			return false;
		int c = is_waiting(other) ? rank(other) - rank(vmim) : -1;

		if (c > 0 || (c == 0 && older_first(other, vmim) < 0))
			return false;
	}
	return true;
}

/* ---- slots ---- */

static usec_t backoff_left(const struct view *v, const Vmim *vmim);

struct slots {
	const struct view *v;
	int64_t per_cluster, per_node;
	const char **nodes; /* source node of each taken slot; NULL: not known any more */
	size_t n_nodes, cap_nodes;
	const Vmim **granted;
	size_t n_granted, cap_granted;
};

static void slots_fini(struct slots *s)
{
	mem_free(s->nodes);
	mem_free(s->granted);
}

static enum rc take_slot(struct slots *s, const char *node)
{
	if (!mem_grow((void **)&s->nodes, &s->cap_nodes, s->n_nodes, sizeof(*s->nodes)))
		return RC_NOMEM;
	s->nodes[s->n_nodes++] = node;
	return RC_OK;
}

static int64_t count_from(const struct slots *s, const char *node)
{
	int64_t n = 0;

	for (size_t i = 0; i < s->n_nodes; i++)
		n += str_eq(s->nodes[i], node);
	return n;
}

static enum rc slots_init(struct slots *s, const struct view *v)
{
	struct kiter it;

	*s = (struct slots){
		.v = v, .per_cluster = mig_limit_cluster(v), .per_node = mig_limit_node(v)};
	view_by(v, &api_kind_VirtualMachineInstanceMigration, MIG_QUEUE_INDEX, QUEUE_ACTIVE, &it);
	for (const Vmim *m; (m = view_next(&it));)
		TRY(take_slot(s, source_node(v, m)));
	return RC_OK;
}

/* Room for one more that leaves this node. */
static bool has_room(const struct slots *s, const char *node)
{
	return (int64_t)s->n_nodes < s->per_cluster && count_from(s, node) < s->per_node;
}

static bool was_granted(const struct slots *s, const Vmim *m)
{
	for (size_t i = 0; i < s->n_granted; i++)
		if (s->granted[i] == m)
			return true;
	return false;
}

/* Of two of a rank the one goes first whose node has fewer under way, so that no node that is emptied waits
 * for the whole of another one; then the older one. */
static bool goes_before(const struct slots *s, const Vmim *a, const Vmim *b)
{
	int c = rank(b) - rank(a);

	if (!c) {
		int64_t x = count_from(s, source_node(s->v, a));
		int64_t y = count_from(s, source_node(s->v, b));

		c = x < y ? -1 : x > y;
	}
	return (c ? c : older_first(a, b)) < 0;
}

/* One pod: the move before it is over and done with. */
static bool is_settled(const struct view *v, const Vmim *m)
{
	const VirtualMachineInstance *vmi = view_get(v, &api_kind_VirtualMachineInstance,
						     m->metadata.namespace, m->spec.vmiName);

	return vmi && vmi->status.activePods.n <= 1;
}

/* One that backs off, or that cannot go yet, must not hold a slot that it does not use. */
static const Vmim *next_in_turn(const struct slots *s)
{
	const Vmim *best = NULL;
	struct kiter it;

	view_by(s->v, &api_kind_VirtualMachineInstanceMigration, MIG_QUEUE_INDEX, QUEUE_WAITING,
		&it);
	for (const Vmim *w; (w = view_next(&it));) {
		const char *node = source_node(s->v, w);

		if (!node || !has_room(s, node) || (best && !goes_before(s, w, best)) ||
		    was_granted(s, w) || !is_settled(s->v, w) || backoff_left(s->v, w) ||
		    !is_first_of_its_vmi(s->v, w))
			continue;
		best = w;
	}
	return best;
}

/* Everyone who waits hands the free slots out in the same order, so that no two take the same one.  NULL:
 * none is left, or nobody can use it. */
static enum rc grant_next(struct slots *s, const Vmim **out)
{
	*out = (int64_t)s->n_nodes < s->per_cluster ? next_in_turn(s) : NULL;
	if (!*out)
		return RC_OK;
	if (!mem_grow((void **)&s->granted, &s->cap_granted, s->n_granted, sizeof(*s->granted)))
		return RC_NOMEM;
	s->granted[s->n_granted++] = *out;
	return take_slot(s, source_node(s->v, *out));
}

/* Without a free slot for it the others need not be looked at: however many wait, one look is cheap. */
static enum rc may_start(struct slots *s, const struct mig *m, bool *out)
{
	const char *node = source_node(m->v, m->old);
	const Vmim *next = NULL;

	TRY(slots_init(s, m->v));
	if (!node || !has_room(s, node))
		return RC_OK;
	do
		TRY(grant_next(s, &next));
	while (next && next != m->old);
	*out = next != NULL;
	return RC_OK;
}

enum rc mig_may_start(const struct mig *m, bool *out)
{
	struct slots s = {0};

	*out = false;
	enum rc rc = may_start(&s, m, out);

	slots_fini(&s);
	return rc;
}

static enum rc wake_next(struct slots *s, const struct view *v, ctl_emit_fn emit, void *ctx)
{
	const Vmim *next;

	TRY(slots_init(s, v));
	do {
		TRY(grant_next(s, &next));
		if (next)
			emit(ctx, next->metadata.namespace, next->metadata.name);
	} while (next);
	return RC_OK;
}

void mig_wake_next(const struct view *v, ctl_emit_fn emit, void *ctx)
{
	struct slots s = {0};

	ignore_rc(wake_next(&s, v, emit,
			    ctx)); /* out of memory: each that waits looks again by itself */
	slots_fini(&s);
}

/* ---- back-off ---- */

static const char *end_of(const Vmim *vmim)
{
	const char *s = mig_stamp_of(vmim, MIG_FAILED);

	return s ? s : mig_stamp_of(vmim, MIG_SUCCEEDED);
}

static usec_t backoff_left(const struct view *v, const Vmim *vmim)
{
	const char *last_failure = NULL, *last_success = "";
	unsigned n = 0;
	struct kiter it;

	if (!api_annotation(&vmim->metadata, ANN_EVACUATION) &&
	    !api_annotation(&vmim->metadata, ANN_WORKLOAD_UPDATE))
		return 0;
	mig_siblings(v, vmim->metadata.namespace, vmim->spec.vmiName, &it);
	for (const Vmim *o; (o = view_next(&it));)
		if (str_eq(o->status.phase, "Succeeded") && end_of(o) &&
		    strcmp(end_of(o), last_success) > 0)
			last_success = end_of(o);
	mig_siblings(v, vmim->metadata.namespace, vmim->spec.vmiName, &it);
	for (const Vmim *o; (o = view_next(&it));) {
		if (!str_eq(o->status.phase, "Failed") || !end_of(o) ||
		    strcmp(end_of(o), last_success) <= 0)
			continue;
		n++;
		if (!last_failure || strcmp(end_of(o), last_failure) > 0)
			last_failure = end_of(o);
	}
	if (!n)
		return 0;
	usec_t delay = MIN(BACKOFF_STEP << MIN(n - 1, 10u), BACKOFF_MAX);
	usec_t age = kit_age(v->now, last_failure);

	return age < delay ? delay - age : 0;
}

usec_t mig_failure_backoff(const struct mig *m)
{
	return backoff_left(m->v, m->old);
}
