/* src/virt/controller/transitions.h - how long instances and migrations took from phase to phase.
 *
 * Loop thread only.  Only what changes while the process runs is counted; times are those that the objects'
 * status has, in whole seconds.
 * Source: KubeVirt v1.9, kubevirt_vmi_phase_transition_time_*, kubevirt_vmi_migration_phase_transition_time_*.
 */
#ifndef VIRT_CONTROLLER_TRANSITIONS_H
#define VIRT_CONTROLLER_TRANSITIONS_H

#include "base/err.h"

struct kcache;
struct kobj;
struct sbuf;
struct virt_transitions;

/* The cache has VirtualMachineInstance and VirtualMachineInstanceMigration; it must outlive it. */
MUST_CHECK enum rc virt_transitions_new(struct virt_transitions **out, struct kcache *cache,
					struct err *err);
struct virt_transitions *virt_transitions_free(struct virt_transitions *t);
DEFINE_CLEANUP(struct virt_transitions *, virt_transitions_free);
void virt_transitions_print(const struct virt_transitions *t, struct sbuf *out);

#endif
