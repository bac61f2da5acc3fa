#include <stdlib.h>

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

/* Everyone who waits sees the same order, so that two of them never take the same slot. */
static int order(const void *a, const void *b)
{
	const Vmim *x = *(const Vmim *const *)a, *y = *(const Vmim *const *)b;
	int c = priority(y) - priority(x);

	if (!c)
		c = strcmp(x->metadata.creationTimestamp ? x->metadata.creationTimestamp : "",
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
	for (const Vmim *other; (other = view_next(&it));)
		if (other != vmim &&
		    (is_active(other) || (is_waiting(other) && order(&other, &vmim) < 0)))
			return false;
	return true;
}

struct slots {
	const struct view *v;
	const Vmim **waiting;
	size_t n_waiting, cap_waiting;
	const char **nodes; /* source node of each taken slot */
	size_t n_nodes, cap_nodes;
};

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

static enum rc collect(struct slots *s)
{
	struct kiter it;

	view_list(s->v, &api_kind_VirtualMachineInstanceMigration, NULL, &it);
	for (const Vmim *m; (m = view_next(&it));) {
		if (is_active(m))
			TRY(take_slot(s, source_node(s->v, m)));
		if (!is_waiting(m))
			continue;
		if (!mem_grow((void **)&s->waiting, &s->cap_waiting, s->n_waiting,
			      sizeof(*s->waiting)))
			return RC_NOMEM;
		s->waiting[s->n_waiting++] = m;
	}
	if (s->n_waiting)
		qsort(s->waiting, s->n_waiting, sizeof(*s->waiting), order);
	return RC_OK;
}

/* Hands the free slots out in order until it is m's turn. */
static enum rc grant(struct slots *s, const struct mig *m, bool *out)
{
	int64_t per_cluster = mig_limit_cluster(s->v), per_node = mig_limit_node(s->v);

	for (size_t i = 0; i < s->n_waiting && (int64_t)s->n_nodes < per_cluster; i++) {
		const Vmim *w = s->waiting[i];
		const char *node = source_node(s->v, w);

		if (!node || !is_first_of_its_vmi(s->v, w) || count_from(s, node) >= per_node)
			continue;
		if (w == m->old) {
			*out = true;
			return RC_OK;
		}
		TRY(take_slot(s, node));
	}
	return RC_OK;
}

enum rc mig_may_start(const struct mig *m, bool *out)
{
	struct slots s = {.v = m->v};

	*out = false;
	enum rc rc = collect(&s);

	if (!rc)
		rc = grant(&s, m, out);
	mem_free(s.waiting);
	mem_free(s.nodes);
	return rc;
}

static const char *end_of(const Vmim *vmim)
{
	const char *s = mig_stamp_of(vmim, MIG_FAILED);

	return s ? s : mig_stamp_of(vmim, MIG_SUCCEEDED);
}

usec_t mig_failure_backoff(const struct mig *m)
{
	const char *last_failure = NULL, *last_success = "";
	unsigned n = 0;
	struct kiter it;

	if (!api_annotation(&m->old->metadata, ANN_EVACUATION) &&
	    !api_annotation(&m->old->metadata, ANN_WORKLOAD_UPDATE))
		return 0;
	mig_siblings(m->v, m->old->metadata.namespace, m->old->spec.vmiName, &it);
	for (const Vmim *o; (o = view_next(&it));)
		if (str_eq(o->status.phase, "Succeeded") && end_of(o) &&
		    strcmp(end_of(o), last_success) > 0)
			last_success = end_of(o);
	mig_siblings(m->v, m->old->metadata.namespace, m->old->spec.vmiName, &it);
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
	usec_t age = kit_age(m->v->now, last_failure);

	return age < delay ? delay - age : 0;
}
