#include "virt/controller/transitions.h"

#include "api/api.h"
#include "api/gen/api_types.h"
#include "api/meta.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "ctl/prom.h"
#include "kube/kcache.h"
#include "kube/kobj.h"
#include "virt/controller/kit.h"

typedef VirtualMachineInstanceMigration Vmim; /* its full name does not fit into a line of code */

/* Phases are few; more than these nobody but a stranger has written. */
enum { MAX_SERIES = 256 };

/* KubeVirt's, of all its phase transitions. */
static const struct prom_buckets seconds = {
	18, {0.5, 1, 2, 5, 10, 20, 30, 40, 50, 60, 90, 120, 180, 300, 600, 1200, 1800, 3600}};

struct virt_transitions {
	struct kcache_handler *vmis, *moves;
	struct prom_family between, from_creation, from_deletion, of_moves;
};

static void see(struct prom_family *f, const char *phase, const char *last, const char *from,
		const char *to)
{
	const struct prom_label labels[] = {{"phase", phase}, {"last_phase", last}};
	usec_t a, b;

	if (str_is_empty(from) || str_is_empty(to) || time_parse(from, &a, NULL) ||
	    time_parse(to, &b, NULL) || b < a)
		return;
	prom_family_add(f, labels, last ? 2 : 1, (double)(b - a) / 1e6);
}

static const char *entered(const VirtualMachineInstance *vmi, const char *phase)
{
	for (size_t i = 0; i < vmi->status.n_phaseTransitionTimestamps; i++)
		if (str_eq(vmi->status.phaseTransitionTimestamps[i].phase, phase))
			return vmi->status.phaseTransitionTimestamps[i].phaseTransitionTimestamp;
	return NULL;
}

static bool is_other(const ObjectMeta *a, const ObjectMeta *b)
{
	return !str_eq(a->uid, b->uid);
}

static void on_vmi(const struct kobj *was, const struct kobj *is, void *arg)
{
	struct virt_transitions *t = arg;

	if (!was || !is || is_other(kobj_meta(was), kobj_meta(is)))
		return;
	const VirtualMachineInstance *a = kobj_typed(was), *b = kobj_typed(is);
	const char *phase = b->status.phase, *at;

	if (str_is_empty(phase) || str_eq(a->status.phase, phase))
		return;
	at = entered(b, phase);
	if (!str_is_empty(a->status.phase))
		see(&t->between, phase, a->status.phase, entered(b, a->status.phase), at);
	see(&t->from_creation, phase, NULL, b->metadata.creationTimestamp, at);
	if (kit_vmi_is_final(b))
		see(&t->from_deletion, phase, NULL, b->metadata.deletionTimestamp, at);
}

static void on_move(const struct kobj *was, const struct kobj *is, void *arg)
{
	struct virt_transitions *t = arg;

	if (!was || !is || is_other(kobj_meta(was), kobj_meta(is)))
		return;
	const Vmim *a = kobj_typed(was), *b = kobj_typed(is);

	if (str_is_empty(b->status.phase) || str_eq(a->status.phase, b->status.phase))
		return;
	for (size_t i = 0; i < b->status.n_phaseTransitionTimestamps; i++)
		if (str_eq(b->status.phaseTransitionTimestamps[i].phase, b->status.phase))
			see(&t->of_moves, b->status.phase, NULL, b->metadata.creationTimestamp,
			    b->status.phaseTransitionTimestamps[i].phaseTransitionTimestamp);
}

enum rc virt_transitions_new(struct virt_transitions **out, struct kcache *cache, struct err *err)
{
	CLEANUP(virt_transitions_freep) struct virt_transitions *t = mem_alloc(sizeof(*t));

	if (!t)
		return err_set(err, RC_NOMEM, "out of memory");
	prom_family_init(&t->between, "kubevirt_vmi_phase_transition_time_seconds",
			 "From one phase of an instance to the next.", &seconds, MAX_SERIES);
	prom_family_init(&t->from_creation,
			 "kubevirt_vmi_phase_transition_time_from_creation_seconds",
			 "From an instance's creation to a phase.", &seconds, MAX_SERIES);
	prom_family_init(&t->from_deletion,
			 "kubevirt_vmi_phase_transition_time_from_deletion_seconds",
			 "From an instance's deletion to its last phase.", &seconds, MAX_SERIES);
	prom_family_init(&t->of_moves,
			 "kubevirt_vmi_migration_phase_transition_time_from_creation_seconds",
			 "From a migration's creation to a phase.", &seconds, MAX_SERIES);
	enum rc rc = kcache_on(cache, &t->vmis, &api_kind_VirtualMachineInstance, on_vmi, t, err);

	if (!rc)
		rc = kcache_on(cache, &t->moves, &api_kind_VirtualMachineInstanceMigration, on_move,
			       t, err);
	if (!rc)
		*out = STEAL(t);
	return rc;
}

struct virt_transitions *virt_transitions_free(struct virt_transitions *t)
{
	if (!t)
		return NULL;
	kcache_handler_free(t->vmis);
	kcache_handler_free(t->moves);
	prom_family_fini(&t->between);
	prom_family_fini(&t->from_creation);
	prom_family_fini(&t->from_deletion);
	prom_family_fini(&t->of_moves);
	return mem_free(t);
}

void virt_transitions_print(const struct virt_transitions *t, struct sbuf *out)
{
	prom_family_print(&t->between, out);
	prom_family_print(&t->from_creation, out);
	prom_family_print(&t->from_deletion, out);
	prom_family_print(&t->of_moves, out);
}
