/* src/virt/node/vmsync.h - what a node says about its VM in the VMI.
 *
 * Pure.  Facts of one VM (from its launcher and from what was made for it) and the VMI as it is give a
 * new VMI and the events to tell.  Everything known at one time goes into one write.
 */
#ifndef NODE_VMSYNC_H
#define NODE_VMSYNC_H

#include "api/gen/api_types.h"
#include "base/err.h"
#include "virt/node/vmspec.h"

struct json;
struct plan;

/* docs/internals/launcher.md, States. */
enum vm_state {
	VM_NONE,
	VM_STARTING,
	VM_PRELAUNCH,
	VM_INCOMING,
	VM_RUNNING,
	VM_PAUSED,
	VM_MIGRATING,
	VM_PRE_SWITCHOVER,
	VM_POSTMIGRATE,
	VM_SHUTDOWN,
	VM_CRASHED,
	VM_GONE,
	VM__STATES,
};

enum vm_state vm_state_parse(const char *s); /* VM_NONE for anything unknown */
const char *vm_state_name(enum vm_state s);

struct vm_volume_fact {
	char *name;
	int64_t bytes; /* as the guest sees it */
	bool is_container_disk;
	bool is_local;			      /* a claim whose data lie on this node alone */
	const PersistentVolumeClaim *claim;   /* borrowed; NULL: none or not known any more */
	uint64_t small_expected, small_found; /* see volumes.h; event once */
};

struct vm_facts {
	enum vm_state state;
	const char *reason; /* launcher's word: "GuestShutdown" … */
	const char *node;
	const char *pod_uid; /* of the copy; NULL: whatever pod the VMI names is this one */
	bool is_source_done; /* it has moved away: nothing may be said any more */
	bool is_half;	     /* post-copy: a part of its memory is lost */
	bool is_target;	     /* not here yet: nothing may be said yet */
	const char *accel;   /* "kvm", "tcg"; NULL: not known */
	const char *accel_reason;
	const char *qemu_version;
	const struct json *cpu;	  /* {"model", "features"} that the guest sees; NULL: not known */
	const struct json *agent; /* vmagent.h; NULL: not known */
	const struct launch_spec *spec; /* NULL: adopted without it: what stands in the VMI stays */
	const char *machine;		/* as the launcher reports it */
	int64_t runtime_uid;
	int64_t exit_code; /* state gone */
	const char *pod_ip;
	const char *mac;
	const struct vm_volume_fact *volumes;
	size_t n_volumes;
	const FerryImage *images; /* with digests */
	size_t n_images;
	int64_t epoch;		/* of this copy; 0: not known */
	const char *sync_error; /* something could not be done; NULL: fine */
	/* LiveMigratable, from src/virt/migration/migratable.h, computed by the caller when running. */
	enum rc (*migratable)(VirtualMachineInstance *vmi, void *arg);
	void *migratable_arg;
	/* What this node has to say about a move, as source or target; NULL: nothing. */
	enum rc (*moves)(VirtualMachineInstance *vmi, usec_t now, void *arg);
	void *moves_arg;
};

/* Plans the update of the VMI (nothing when it says all this already) and its events. */
MUST_CHECK enum rc vmsync_plan(const VirtualMachineInstance *vmi, const struct vm_facts *f,
			       usec_t now, struct plan *plan, struct err *err);
bool vmsync_is_final(const VirtualMachineInstance *vmi); /* Succeeded or Failed */
/* Running, Succeeded, Failed or NULL: as it is. */
const char *vmsync_phase(const VirtualMachineInstance *vmi, const struct vm_facts *f);
/* What the node and the pods that the VMI names make of a copy.  Of f: node, pod_uid, state, is_target, is_source_done. */
enum vm_place {
	VM_PLACE_STAYS, /* nothing follows */
	VM_PLACE_OWNS,	/* the guest is here: no target any more */
	VM_PLACE_LEFT,	/* it runs elsewhere: this copy has nothing to run */
};
enum vm_place vmsync_place(const VirtualMachineInstance *vmi, const struct vm_facts *f);
/* "vda", "sdb": the n-th disk of its bus. */
void vmsync_disk_target(const VirtualMachineInstance *vmi, const char *volume, char out[16]);

#endif
