/* src/virt/controller/fence/witness.h - lost nodes told by the locks of disks (fencing StorageLock).
 *
 * Pure reconciler over VMIs: another node's agent looks at the locks of the guest's disks while its node is heard of, and
 * takes them when it has fallen silent; what came of it gives that one VM up, or says why not.  docs/internals/fencing.md.
 */
#ifndef VIRT_CONTROLLER_FENCE_WITNESS_H
#define VIRT_CONTROLLER_FENCE_WITNESS_H

#include "ctl/ctl.h"

enum rc witness_reconcile(const struct view *v, const char *ns, const char *name, struct plan *out,
			  struct err *err);
extern const struct ctl_def witness_ctl_def;

#endif
