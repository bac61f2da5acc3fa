#include "virt/migration/policy.h"

#include <string.h>

#include "api/api.h"
#include "base/str.h"
#include "base/try.h"

static bool has_all(const struct api_map *labels, const struct api_map *wanted)
{
	for (size_t i = 0; i < wanted->n; i++)
		if (!str_eq(api_map_get(labels, wanted->items[i].key), wanted->items[i].value))
			return false;
	return true;
}

static bool is_better(const struct mig_policy_pick *a, const struct mig_policy_pick *b)
{
	size_t all_a = a->n_vmi + a->n_ns, all_b = b->n_vmi + b->n_ns;

	if (!b->best || all_a != all_b)
		return !b->best || all_a > all_b;
	if (a->n_vmi != b->n_vmi)
		return a->n_vmi > b->n_vmi;
	return strcmp(a->best->metadata.name, b->best->metadata.name) < 0;
}

void mig_policy_consider(struct mig_policy_pick *pick, const MigrationPolicy *p)
{
	const Selectors *s = p->spec.selectors;
	struct mig_policy_pick with = *pick;

	if (!s)
		return;
	with.best = p;
	with.n_vmi = with.n_ns = 0;
	/* As in KubeVirt, a VMI without any label is asked for none, nor is its namespace. */
	if (pick->vmi_labels->n) {
		if (!has_all(pick->vmi_labels, &s->virtualMachineInstanceSelector) ||
		    !has_all(pick->ns_labels, &s->namespaceSelector))
			return;
		with.n_vmi = s->virtualMachineInstanceSelector.n;
		with.n_ns = s->namespaceSelector.n;
	}
	if (is_better(&with, pick))
		*pick = with;
}

enum rc mig_policy_apply(const MigrationPolicySpec *p, bool may_stall, VMIMConfigurationOptions *o)
{
	if (p->bandwidthPerMigration)
		TRY(api_set_str(&o->bandwidthPerMigration, p->bandwidthPerMigration));
	if (p->experimental && p->experimental->compression) {
		ExperimentalMigrationOptions *x =
			api_ensure(&api_type_ExperimentalMigrationOptions, &o->experimental);

		TRY(x ? api_set_str(&x->compression, p->experimental->compression) : RC_NOMEM);
	}
	if (p->has_allowAutoConverge)
		API_SET(o, allowAutoConverge, p->allowAutoConverge);
	if (p->has_completionTimeoutPerGiB)
		API_SET(o, completionTimeoutPerGiB, p->completionTimeoutPerGiB);
	if (p->has_maxDowntimeMs && may_stall)
		API_SET(o, maxDowntimeMs, p->maxDowntimeMs);
	if (p->has_allowPostCopy) {
		API_SET(o, allowPostCopy, p->allowPostCopy);
		API_SET(o, allowWorkloadDisruption, p->allowPostCopy);
	}
	if (p->has_allowWorkloadDisruption)
		API_SET(o, allowWorkloadDisruption, p->allowWorkloadDisruption);
	return RC_OK;
}
