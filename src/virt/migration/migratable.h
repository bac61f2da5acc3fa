/* src/virt/migration/migratable.h - the conditions LiveMigratable and StorageLiveMigratable.
 *
 * Pure.  The node's agent calls it for a running VMI and writes the conditions.  Source: KubeVirt v1.9
 * virt-handler; the reason CPUModeLiveMigratable really lacks its "Not".
 */
#ifndef VIRT_MIGRATION_MIGRATABLE_H
#define VIRT_MIGRATION_MIGRATABLE_H

#include "api/gen/api_types.h"
#include "base/err.h"

struct compat_summary;

struct migratable_in {
	const VirtualMachineInstance *vmi; /* volumeStatus carries what is known of its claims */
	const char *node_name;
	bool has_host_model;		    /* the node knows what host-model stands for */
	const KubeVirtConfiguration *cfg;   /* network binding plugins; NULL: none */
	const struct compat_summary *nodes; /* NULL: other nodes are not looked at */
	/* Volumes of the VMI, claims and hostDisks, whose data lie on this node alone, and may they move? */
	const char *const *local_volumes;
	size_t n_local_volumes;
	bool moves_local_disks;
};

struct migratable {
	bool ok;
	const char *reason; /* NULL when ok; constant */
	char message[768];  /* "" when ok */
	const char *method; /* "LiveMigration" or "BlockMigration": what a move would have to do */
};

/* The first check that fails decides. */
void migratable_check(const struct migratable_in *in, struct migratable *out);
/* All checks but the one on disks; every failure is in the message, the reason is NotMigratable. */
void migratable_check_storage(const struct migratable_in *in, struct migratable *out);

/* Writes both conditions and status.migrationMethod into the VMI; with in->nodes also MigrationTargets. */
MUST_CHECK enum rc migratable_apply(const struct migratable_in *in, VirtualMachineInstance *vmi,
				    usec_t now);
/* Event (Warning, reason Migrated) when the eviction strategy wants moves and the VMI cannot; NULL:
 * nothing to say.  Formats into text. */
const char *migratable_event(const VirtualMachineInstance *vmi, const struct migratable *m,
			     char *text, size_t n);

#endif
