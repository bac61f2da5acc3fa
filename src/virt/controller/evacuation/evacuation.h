/* src/virt/controller/evacuation/evacuation.h - asks for the moves that empty a node.
 *
 * Pure reconciler over VMIs: a VMI that is marked (status.evacuationNodeName names its node, or the node
 * has the drain taint) and that its eviction strategy moves gets one migration at a time.  When the mark
 * goes, that migration is cancelled.  docs/internals/evacuation.md.
 */
#ifndef VIRT_CONTROLLER_EVACUATION_EVACUATION_H
#define VIRT_CONTROLLER_EVACUATION_EVACUATION_H

#include "ctl/ctl.h"

enum rc evacuation_reconcile(const struct view *v, const char *ns, const char *name,
			     struct plan *out, struct err *err);
extern const struct ctl_def evacuation_ctl_def;

#endif
