/* src/virt/controller/migration/mig_int.h - what the parts of the migration controller share. */
#ifndef VIRT_CONTROLLER_MIGRATION_MIG_INT_H
#define VIRT_CONTROLLER_MIGRATION_MIG_INT_H

#include "api/gen/api_types.h"
#include "ctl/plan.h"
#include "ctl/view.h"
#include "virt/controller/migration/migration.h"
#include "virt/controller/migration/table.h"
#include "virt/controller/vmi/vmi.h"

typedef VirtualMachineInstanceMigration Vmim; /* its full name does not fit into a line of code */
typedef VirtualMachineInstanceMigrationState MigState;

#define MIG_UNSCHEDULABLE_TIMEOUT (300 * USEC_PER_SEC) /* since the target pod's creation */
#define MIG_PENDING_TIMEOUT	  (900 * USEC_PER_SEC)
#define MIG_PREPARE_TIMEOUT	  (120 * USEC_PER_SEC) /* hand-off until the target listens */
#define MIG_START_TIMEOUT	  (120 * USEC_PER_SEC) /* target listens until the source begins */
#define MIG_REPORT_TIMEOUT	  (60 * USEC_PER_SEC) /* abort asked for until somebody reports an end */
#define MIG_UNSEEN		  (5 * USEC_PER_SEC) /* an object may be newer than its kind's list */
#define MIG_SHOW_AFTER		  (2250 * USEC_PER_MSEC) /* progress of a shorter move is shown at its end */
#define MIG_KEEP_FINAL		  5

/* One reconcile. */
struct mig {
	const struct view *v;
	const Vmim *old; /* as stored */
	Vmim *next;	 /* with the wished status */
	enum mig_state state;
	const VirtualMachineInstance *vmi; /* NULL: gone */
	struct vmi_pods pods;
	const Pod *target;	/* this migration's pod; NULL: none in the view */
	char *target_name;	/* owned */
	const char *failure;	/* text of the MIG_EV_FAIL that was observed */
	char failure_text[512]; /* storage for failure when it is composed */
	const char *reason;	/* status.ferry.reason with it; NULL: none */
	Pod *again;	   /* a target pod that the server refused, to be tried once more; owned */
	bool keeps_target; /* the target pod may hold the guest: leave it alone */
	bool has_waited;   /* progress is about to be made: the write may be shared */
	usec_t may_wait;   /* then: for how long */
	struct plan *plan;
	struct err *err;
};

/* migration.c: finds the VMI, its pods and the target pod of m->old. */
MUST_CHECK enum rc mig_set_up(struct mig *m);

/* observe.c: the next thing that happened, MIG_EV_NONE when nothing did. Fills failure and reason. */
MUST_CHECK enum rc mig_observe(struct mig *m, enum mig_event *out);
/* VMI.status.migrationState when it is about this migration. */
const MigState *mig_vmi_state(const struct mig *m);
/* The VMI runs in one pod that is known: only then can its target pod be thought up. */
bool mig_vmi_is_ready(const struct mig *m);
/* status.ferry.stage of m->next. */
MUST_CHECK enum rc mig_show_stage(struct mig *m, const char *stage);
/* When the VMIM entered a phase; NULL: it did not. */
const char *mig_stamp_of(const Vmim *vmim, enum mig_state s);

/* All migrations of one VMI. */
void mig_siblings(const struct view *v, const char *ns, const char *vmi, struct kiter *it);

/* queue.c: may this pending migration take a slot now? */
MUST_CHECK enum rc mig_may_start(const struct mig *m, bool *out);
usec_t mig_retry_delay(const Vmim *vmim);
/* Emits those that the free slots are for: a slot that frees up wakes them, not everybody who waits. */
void mig_wake_next(const struct view *v, ctl_emit_fn emit, void *ctx);
#define MIG_QUEUE_INDEX "migration-queue" /* those that hold a slot, those that wait for one */
void mig_index_queue(const struct kobj *o, kcache_emit_fn emit, void *ctx);
/* Evacuations and workload updates wait after failures: 20 s doubling. 0: no wait. */
usec_t mig_failure_backoff(const struct mig *m);

/* placement.c */
struct mig_placement {
	bool is_hopeless;   /* no waiting can help */
	const char *reason; /* NoCandidate, TargetIsSource, OnlyOneNode */
	char message[512];
};
/* Asks every node; fills status.ferry.placement of m->next. */
MUST_CHECK enum rc mig_place(struct mig *m, const Pod *pod, struct mig_placement *out);

/* target.c: the target pod as it would be created now. RC_BUSY: the source pod is not known yet. */
MUST_CHECK enum rc mig_target_pod(struct mig *m, Pod **out);

/* Do local volumes, or files of the source, come along with this target pod? */
bool mig_brings_disks(const Pod *pod);

/* config.c: the policy that a move of this VMI would follow now; NULL: none. */
const MigrationPolicy *mig_policy_of(const struct view *v, const VirtualMachineInstance *vmi);
/* Defaults of KubeVirt, overlaid by the installation's settings and those of the policy's (NULL: none).
 * Owned by the caller. */
MUST_CHECK enum rc mig_effective_config(const struct view *v, const MigrationPolicy *policy,
					VMIMConfigurationOptions **out);
/* choose.c: how the memory of this move goes over (method.h), for both agents. */
MUST_CHECK enum rc mig_choose_method(const struct mig *m, const VMIMConfigurationOptions *c,
				     FerryMigrationMethod **out);
/* The label that has a node's address in the migration network of the settings; NULL in *out: they name none.  Owned. */
MUST_CHECK enum rc mig_network_label(const struct view *v, char **out);
int64_t mig_limit_cluster(const struct view *v);
int64_t mig_limit_node(const struct view *v);
/* Longest this move of this VMI may take by the settings that it was handed off with and KubeVirt's rule
 * (decimal gigabytes, rounded up); 0: no limit. */
usec_t mig_acceptable_time(const MigState *s, const VirtualMachineInstance *vmi);

/* actions.c */
/* The progress that the agents keep on the VMI is the migration's too, and freezes with it. */
MUST_CHECK enum rc mig_mirror_progress(struct mig *m);
enum rc mig_act_none(struct mig *m);
enum rc mig_act_create_target(struct mig *m);
enum rc mig_act_hand_off(struct mig *m);
enum rc mig_act_succeed(struct mig *m);
enum rc mig_act_request_abort(struct mig *m);
enum rc mig_act_request_finish(struct mig *m);
enum rc mig_act_report(struct mig *m);	    /* says why; part of the others */
enum rc mig_act_drop_target(struct mig *m); /* before the hand-off: delete the target pod */
enum rc mig_act_abandon(struct mig *m); /* handed off, not started: say so on the VMI, delete it */
enum rc mig_act_finish_failed(struct mig *m); /* while running: the agents have ended it */

#endif
