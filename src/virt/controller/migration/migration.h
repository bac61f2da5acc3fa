/* src/virt/controller/migration/migration.h - the VirtualMachineInstanceMigration controller.
 *
 * Pure reconciler.  It chooses and makes the target pod, hands the move over to the two node agents by
 * writing VMI.status.migrationState, follows what they report, and clears up.  It never touches a
 * running guest: where the guest runs is the hand-over record's business.
 */
#ifndef VIRT_CONTROLLER_MIGRATION_MIGRATION_H
#define VIRT_CONTROLLER_MIGRATION_MIGRATION_H

#include "ctl/ctl.h"

enum rc mig_reconcile(const struct view *v, const char *ns, const char *name, struct plan *out,
		      struct err *err);
extern const struct ctl_def mig_ctl_def;

#define MIG_INDEX "migration-vmi" /* VMIMs by "<namespace>/<vmiName>" */
void mig_index_vmi(const struct kobj *o, kcache_emit_fn emit, void *ctx);

#endif
