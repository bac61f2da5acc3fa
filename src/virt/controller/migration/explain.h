/* src/virt/controller/migration/explain.h - where could this virtual machine go now, node by node?
 *
 * The answer that the migration controller would come to, without a migration: pure, any process that
 * can show the objects may ask.
 */
#ifndef VIRT_CONTROLLER_MIGRATION_EXPLAIN_H
#define VIRT_CONTROLLER_MIGRATION_EXPLAIN_H

#include "api/gen/api_types.h"
#include "ctl/view.h"

/* The kinds that the view must hold beside the VirtualMachineInstance; ends with NULL. */
extern const struct api_kind *const mig_explain_reads[];

/* m: a migration as it would be stored, with its uid.  Its status.ferry is filled as the controller
 * would before it makes the target pod:
 *   placement         each node with its reason;
 *   reason, message   only where no node can ever take the VM: the migration would fail at once;
 *   stage             only where the nodes cannot be asked yet: WaitingForVirtualMachine.
 * The VMI may be absent from the view (nothing is filled then).  Slots and back-off are not looked at:
 * they say when a move begins, not where it can go.  RC_NOMEM, or RC_INVALID as sched_check(). */
MUST_CHECK enum rc mig_explain(const struct view *v, VirtualMachineInstanceMigration *m,
			       struct err *err);

#endif
