/* src/virt/controller/migration/table.h - every legal step of a migration, and the one mover.
 *
 * Pure; private to the migration controller.  docs/internals/migration.md draws it, and a test walks
 * this table and compares.
 */
#ifndef VIRT_CONTROLLER_MIGRATION_TABLE_H
#define VIRT_CONTROLLER_MIGRATION_TABLE_H

#include "base/err.h"

struct mig;

/* X(code, phase as the API writes it) */
#define MIG_STATE_MAP(X)                    \
	X(MIG_NEW, "")                      \
	X(MIG_PENDING, "Pending")           \
	X(MIG_SCHEDULING, "Scheduling")     \
	X(MIG_SCHEDULED, "Scheduled")       \
	X(MIG_PREPARING, "PreparingTarget") \
	X(MIG_TARGET_READY, "TargetReady")  \
	X(MIG_RUNNING, "Running")           \
	X(MIG_SUCCEEDED, "Succeeded")       \
	X(MIG_FAILED, "Failed")

/* X(code, name, what happened) */
#define MIG_EVENT_MAP(X)                                                             \
	X(MIG_EV_SEEN, "seen", "the VMI exists")                                     \
	X(MIG_EV_SLOT, "slot", "a slot is free and a node could take the VM")        \
	X(MIG_EV_POD_READY, "pod-ready", "the target pod runs")                      \
	X(MIG_EV_HANDOFF, "hand-off", "the VMI can carry this migration")            \
	X(MIG_EV_LISTENING, "listening", "the target's agent published its address") \
	X(MIG_EV_STARTED, "started", "the source's agent began")                     \
	X(MIG_EV_COMPLETED, "completed", "the guest runs on the target")             \
	X(MIG_EV_CANCEL, "cancel", "the migration object is being deleted")          \
	X(MIG_EV_ABORT, "abort", "it must end, and only the agents can end it")      \
	X(MIG_EV_FINISH, "finish", "somebody accepts a pause so that it ends")       \
	X(MIG_EV_FAIL, "fail", "it cannot go on")

#define MIG_ENUM(code, ...) code,
enum mig_state { MIG_STATE_MAP(MIG_ENUM) MIG_STATE__MAX };
enum mig_event { MIG_EVENT_MAP(MIG_ENUM) MIG_EV__MAX, MIG_EV_NONE = MIG_EV__MAX };
#undef MIG_ENUM

typedef enum rc (*mig_act_fn)(struct mig *m);
struct mig_edge {
	enum mig_state next;
	mig_act_fn act; /* NULL: the event is refused in this state */
	const char *act_name;
};

const struct mig_edge *mig_edge(enum mig_state s, enum mig_event e);
const char *mig_state_name(enum mig_state s);
const char *mig_event_name(enum mig_event e);
/* MIG_STATE__MAX: a phase that this controller does not move (decentralized moves). */
enum mig_state mig_state_of(const char *phase);
static inline bool mig_is_final(enum mig_state s)
{
	return s == MIG_SUCCEEDED || s == MIG_FAILED;
}

/* The only function that changes the phase.  Acts, moves, stamps the time, checks. */
MUST_CHECK enum rc mig_step(struct mig *m, enum mig_event e);

#endif
