/* src/cluster/scheduler/scheduler.h - places pods on nodes, where there is no kube-scheduler.
 *
 * Pure reconciler over pods without a node.  Filters and texts: lib/sched/predicates.h.  It keeps no
 * assumed state: pods that stand before this one in the queue are placed first, in thought, so that two
 * of them never count on the same free memory while the view lags.
 */
#ifndef CLUSTER_SCHEDULER_SCHEDULER_H
#define CLUSTER_SCHEDULER_SCHEDULER_H

#include "ctl/ctl.h"

#define SCHEDULER_NAME "default-scheduler"

enum rc scheduler_reconcile(const struct view *v, const char *ns, const char *name,
			    struct plan *out, struct err *err);
extern const struct ctl_def scheduler_ctl_def;

#endif
