/* src/virt/node/vm_int.h - the parts of one VM, shared by vm*.c and migration_*.c. */
#ifndef NODE_VM_INT_H
#define NODE_VM_INT_H

#include "api/gen/api_types.h"
#include "base/list.h"
#include "base/map.h"
#include "ev/ev.h"
#include "ipc/ipc.h"
#include "virt/launcher/launch_spec.h"
#include "virt/migration/compat.h"
#include "virt/node/images.h"
#include "virt/node/vm.h"
#include "virt/node/vmmetrics.h"
#include "virt/node/vmsync.h"
#include "virt/node/volumes.h"

struct exec_run;
struct kcache_handler;
struct kobj;
struct kube_call;

enum { VM_VOLUMES_MAX = 32, VM_FDS_MAX = 80 };

struct vmhost {
	struct vmhost_config cfg;
	char *local_dir;
	struct list vms;
	struct kcache_handler *on_vmi, *on_node;
	struct kcache_handler *on_handover, *on_binding;
	struct kcache_handler *on_settings[5]; /* migration_disks.c */
	uint64_t n_moves_out, n_moves_in, n_moves_failed, n_adopted, n_launcher_deaths;
	uint64_t n_pause_overruns; /* moves whose pause was longer than declared */
	struct map pause_costs;	   /* node -> int64_t, ms: a pause towards it, beside the bytes */
	struct ev_src *usage_timer;
	bool is_looking;   /* a job reads what the VMs use */
	usec_t scraped_at; /* somebody asked for metrics, by the loop; 0: nobody has */
	uint64_t n_node_changes;
};

/* The cluster's settings; NULL: there are none yet.  Borrowed. */
const FerryConfigSpec *vmhost_ferry_config(const struct vmhost *h);

/* Something to fetch from the API before disks can be made. */
enum need_kind { NEED_CLAIM, NEED_PV, NEED_SECRET, NEED_VM };

struct vm_volume {
	struct volume v;
	const Volume *spec; /* in the VMI that prep holds */
	struct kobj *claim;
	struct kobj *pv;
	struct kobj *secret, *network_secret;
};

struct vm_prep; /* vm_prepare.c */
struct mig_source;
struct mig_target;

struct vm {
	struct list link;
	struct vmhost *host;
	struct podrt_pod *pod;	   /* NULL: forgotten, only jobs hold it */
	char *ns, *name, *vmi_uid; /* of the VMI */
	bool is_target;		   /* came here by a move that is not over */
	char *migration_uid;	   /* of that move */
	char *address, *mac;
	int64_t uid; /* unix */

	/* Preparation. */
	struct vm_prep *prep;
	struct vm_volume volumes[VM_VOLUMES_MAX];
	size_t n_volumes;
	int kernel_fd, initrd_fd;
	FerryImage images[VM_VOLUMES_MAX];
	size_t n_images;

	/* Launcher. */
	pid_t launcher_pid;
	bool wants_launcher; /* lost the connection before the old one was reaped: start another then */
	struct ev_src *launcher_child;
	struct ipc_client *ipc;
	struct ev_src *connect_timer;
	usec_t connect_until;
	usec_t connect_wait;
	bool is_starting; /* podrt waits for started() */
	bool is_adopting;
	bool has_answered; /* query was answered on this connection */
	struct launch_spec *spec;
	int tap_fd, netns_fd;
	unsigned jobs;

	/* Facts. */
	enum vm_state state;
	char *reason, *accel, *accel_reason, *machine, *qemu_version;
	struct json
		*devices; /* virtio devices, asked for at the begin of a move; NULL: not known */
	bool asks_devices;
	struct compat_summary targets; /* where the guest could go… */
	uint64_t
		targets_of; /* …after so many changes of nodes, and one; 0: to be looked at again */
	bool targets_brings; /* with disks that go along */
	struct json *cpu;    /* what the guest sees, as the launcher tells it; NULL: not known */
	bool cpu_follows;    /* the launcher is asking QEMU for it */
	struct json *agent;  /* what the launcher says of the guest's agent; NULL: not known */
	int64_t exit_code;
	pid_t qemu_pid;	       /* 0: not known */
	struct vm_usage usage; /* looked at now and then, for metrics */
	struct json *disks;    /* what the launcher said to "usage"… */
	usec_t disks_at;       /* …the last time, by the loop; 0: never */
	usec_t disks_after;    /* it is not asked again before */
	struct vm_vcpu *vcpus; /* read with usage */
	size_t n_vcpus;
	usec_t vcpus_at;    /* 0: not read yet */
	int64_t dirty_rate; /* bytes a second, as the launcher tells it now and then… */
	usec_t dirty_at;    /* …the last time, by the loop; 0: never */
	bool has_exited;    /* told the pod runtime */
	bool waits_for_move; /* its end: a move from here has begun, and nobody has said how it went */
	bool is_source_done; /* moved away */
	bool is_half;	     /* post-copy: what the guest lacks is lost; it cannot go on */
	bool go_asked;	     /* unpause was sent */
	int64_t stop_grace;  /* -1: not asked to stop */
	bool stop_again;     /* it was asked of a launcher that has died since */
	bool wants_kill;     /* this copy ends, whatever its launcher went through */
	bool kill_asked;     /* of the launcher that is there now */
	char *sync_error;
	int64_t epoch;
	bool needs_tidy, is_tidying; /* vm_tidy.c */
	struct ev_src *tidy_timer;
	usec_t tidy_wait;

	/* VMI. */
	struct exec_run *write;
	struct ev_src *write_timer;
	usec_t write_backoff;
	bool wants_write;
	bool said_migratable;

	struct mig_source *source;
	struct mig_target *target;
};

/* The VMI of this VM; NULL: not there, or another one of the same name. Borrowed. */
const VirtualMachineInstance *vm_vmi(const struct vm *vm);
/* That of the pod, made where there is none yet; NULL: out of memory. */
struct vm *vm_of(struct vmhost *h, struct podrt_pod *p);
/* Look at everything again: commands that are due, the VMI's status. */
void vm_kick(struct vm *vm);
/* Ends this copy of the guest; asked again of each new launcher until it is gone. */
void vm_end_copy(struct vm *vm);
/* Only the status. */
void vm_sync(struct vm *vm);
void vm_free(struct vm *vm);
/* A pool job ends: false when the VM is gone (and now freed if this was the last). */
bool vm_job_done(struct vm *vm);
void vm_log_failed(const struct vm *vm, const char *what, const char *why);

/* vm_prepare.c */
void vm_prepare(struct vm *vm);
struct vm_prep *vm_prep_free(struct vm_prep *p);
void vm_close_disks(struct vm *vm);
void vm_poke_prepare(struct vm *vm); /* the VMI has come */

/* vm_launch.c */
void vm_start(struct vm *vm);
void vm_adopt(struct vm *vm);
void vm_launcher_gone(struct vm *vm);
/* One call to the launcher; consumes params. fn may be NULL (failures are logged). */
MUST_CHECK enum rc vm_call(struct vm *vm, const char *method, struct json *params, usec_t timeout,
			   ipc_reply_fn fn, void *arg, struct err *err);
void vm_take_state(struct vm *vm, const struct json *data);
void vm_set_state(struct vm *vm, enum vm_state state, const char *reason);
struct vmnet_config;
MUST_CHECK enum rc vm_net_config(const struct vm *vm, struct vmnet_config *out, struct err *err);

/* vm_agent.c */
void vm_take_agent(struct vm *vm,
		   const struct json *agent); /* the launcher's word; NULL: it said nothing */
/* A freeze that came with the guest from another node is to end when it was to end there. */
void vm_keep_thaw_time(struct vm *vm, const VirtualMachineInstance *vmi);

/* vm_tidy.c */
/* What moves that are over have left in the network is put away, if it is due (needs_tidy). */
void vm_tidy(struct vm *vm);
/* A move from or to here of this pod's goes on. */
bool vm_is_moving(const struct vm *vm);

/* vm_usage.c: every few seconds one job reads what each VM uses, whether somebody scrapes or not. */
MUST_CHECK enum rc vm_usage_start(struct vmhost *h, struct err *err);
/* NULL: never looked, or too long ago. */
const struct vm_usage *vm_usage_of(const struct vm *vm);
/* Somebody scrapes: from the next look on launchers are asked, too, until nobody has for a while. */
void vm_usage_wanted(struct vmhost *h);
/* Fills what is known of disks and vCPUs and is not too old. */
void vm_usage_fill(const struct vm *vm, struct vm_metrics_in *in);
/* How fast the guest writes: data is the launcher's word. */
void vm_dirty_take(struct vm *vm, const struct json *data);
int64_t vm_dirty_rate_of(const struct vm *vm); /* -1: not known, or too old to be shown */

/* migration_source.c, migration_target.c */
void mig_source_kick(struct vm *vm);
/* This VM comes back to this node: what an ended move of it still holds of the network goes now. */
void mig_source_make_way(struct vm *vm);
/* Of a target whose pod has ended, or which the VM's next move replaces, the same. */
void mig_target_make_way(struct vm *vm);
/* Released, and the target has not answered yet: this node's copy never runs again, whatever becomes of it. */
bool mig_source_is_released(const struct vm *vm);
/* There is a move from here (to here) that is not over. */
bool mig_source_is_active(const struct vm *vm);
bool mig_target_is_active(const struct vm *vm);
/* Post-copy: the guest runs at the target, and what it lacks is still in this copy. */
bool mig_source_is_streaming(const struct vm *vm);
/* Such a copy is to end: the guest shuts down at the target, and needs its pages for that, but not longer than
 * grace seconds. False: it is no such copy. */
bool mig_source_end_within(struct vm *vm, int64_t grace);
void mig_source_event(struct vm *vm, const char *name, const struct json *data);
/* The launcher's last report of a move from here that runs; NULL: none does. Borrowed. */
const struct json *mig_source_report(const struct vm *vm);
struct mig_source *mig_source_free(struct mig_source *m);
void mig_target_kick(struct vm *vm);
void mig_target_event(struct vm *vm, const char *name, const struct json *data);
struct mig_target *mig_target_free(struct mig_target *m);

#endif
