/* src/virt/controller/fence/fence.h - decides which silent nodes are fenced, and what a proof allows.
 *
 * Pure reconciler over Nodes; the agent itself is run by fencer.h.  docs/internals/fencing.md.
 */
#ifndef VIRT_CONTROLLER_FENCE_FENCE_H
#define VIRT_CONTROLLER_FENCE_FENCE_H

#include "api/gen/api_types.h"
#include "ctl/ctl.h"

enum rc fence_reconcile(const struct view *v, const char *ns, const char *name, struct plan *out,
			struct err *err);
extern const struct ctl_def fence_ctl_def;

/* The settings when nodes are fenced by an agent, else NULL. */
const FerryFenceAgent *fence_agent_of(const FerryConfigSpec *cfg);
usec_t fence_silence(const FerryFenceAgent *a);
usec_t fence_timeout(const FerryFenceAgent *a);
/* status is about spec's epoch and says this. */
bool fence_has_state(const NodeFence *f, const char *state);
/* After so many failures in a row: 5 s doubling, at most five minutes. */
usec_t fence_retry_delay(int64_t attempts);

#endif
