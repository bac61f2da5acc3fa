/* src/virt/migration/policy.h - which MigrationPolicy a move follows, and what it changes.
 *
 * KubeVirt's rules as pure functions; any thread.
 */
#ifndef VIRT_MIGRATION_POLICY_H
#define VIRT_MIGRATION_POLICY_H

#include "api/gen/api_types.h"

/* The best policy among those that were considered so far. */
struct mig_policy_pick {
	const struct api_map *vmi_labels, *ns_labels; /* set by the caller; never NULL */
	const MigrationPolicy *best;		      /* borrowed; NULL: none matches */
	size_t n_vmi, n_ns;			      /* labels that best asks for */
};

/* Keeps p when it matches and is better than what was there: more labels in all, then more labels of
 * the VMI, then the first name.  The order of the calls does not matter. */
void mig_policy_consider(struct mig_policy_pick *pick, const MigrationPolicy *p);

/* Writes what the policy sets over o.  Without may_stall (the gate MigrationStallDetection) its
 * maxDowntimeMs does not count. */
MUST_CHECK enum rc mig_policy_apply(const MigrationPolicySpec *p, bool may_stall,
				    VMIMConfigurationOptions *o);

#endif
