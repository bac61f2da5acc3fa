/* tests/unit/controllers/cast.h - the usual objects, and what node agents would write. */
#ifndef TESTS_CONTROLLERS_CAST_H
#define TESTS_CONTROLLERS_CAST_H

#include "world.h"

/* Two nodes that are alike, node-1 and node-2. */
void cast_nodes(struct world *w);
void cast_node(struct world *w, const char *name, const char *labels, const char *allocatable);
/* VM "tiny" in namespace t: 128Mi, masquerade, containerDisk. */
void cast_vm(struct world *w, const char *strategy);
/* A world with every reconciler of virtual machines, the scheduler and the collector. */
void cast_world(struct world *w);

/* The first launcher pod that is not a migration target / that is one; NULL: none. */
const Pod *cast_source(struct world *w);
const Pod *cast_target(struct world *w);
/* The agent of the pod's node: the pod runs and is ready. */
void cast_pod_runs(struct world *w, const char *pod);
/* The guest runs (phase, Ready, LiveMigratable in one write). */
void cast_guest_runs(struct world *w);
/* The guest of "tiny" ended; phase Succeeded or Failed; its pod too. */
void cast_guest_ends(struct world *w, const char *phase);
/* A pod that is being deleted is gone from its node. */
void cast_pod_gone(struct world *w, const char *pod);
/* VM "tiny" up to a running guest on node-1. */
void cast_running(struct world *w);

/* Two nodes, and "tiny" has been running for a while. */
void cast_settled(struct world *w);
bool cast_has_live_target(struct world *w);
/* Migrations in this phase. */
size_t cast_moves_in(struct world *w, const char *phase);

/* The two agents of a move, step by step. */
void cast_target_listens(struct world *w);
void cast_source_starts(struct world *w);
void cast_source_fails(struct world *w, const char *why);
void cast_move_completes(struct world *w);

#define NS    "t"
#define KVM   (&api_kind_VirtualMachine)
#define KVMI  (&api_kind_VirtualMachineInstance)
#define KVMIM (&api_kind_VirtualMachineInstanceMigration)
#define KPOD  (&api_kind_Pod)

#endif
