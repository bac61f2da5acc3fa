/* src/virt/node/migration_int.h - what both sides of a move share. */
#ifndef NODE_MIGRATION_INT_H
#define NODE_MIGRATION_INT_H

#include "http/client.h"
#include "virt/migration/handoff.h"
#include "virt/node/migration.h"
#include "virt/node/vm_int.h"
#include "virt/node/vmnet.h"

enum { MIG_PORT = 49152, MIG_KEY_HEX = 65, MIG_FLOWS_MAX = 256 * 1024 };

#define MIG_USER	  "ferry"
#define MIG_CALL_DEADLINE (10 * USEC_PER_SEC)
#define MIG_ABORTED	  "Live migration has been aborted"

/* Network work of a move, in the pool, one piece at a time. */
struct mig_net {
	struct vmnet_handover *handover; /* NULL: the VM has no interface */
	bool has_net;
	struct vmnet_handover_config cfg;
	char host_if[64];
	struct in_addr pod, peer; /* peer: where its side of the memory's way is */
	uint16_t ports[2];
	int ns_fd;	       /* of the pod; -1 */
	bool has_ports_filter; /* masquerade with ports: flows are copied */
};

const VirtualMachineInstanceMigrationState *mig_state(const struct vm *vm);
/* The VMI's activePods names this pod alone: that of the move's other side is over (its guest has ended, or its
 * machine was fenced), and nobody is left there to answer. */
bool mig_is_alone(const struct vm *vm);
/* The move's record; NULL: not seen yet. */
const Handover *mig_handover(const struct vm *vm, const char *migration_uid);
/* InternalIP and agent port of a node.  RC_NOT_FOUND. */
MUST_CHECK enum rc mig_node_address(const struct vmhost *h, const char *node, struct in_addr *ip,
				    uint16_t *agent_port, struct err *err);
/* The options that both launchers get; NULL: out of memory.  fixed_ms: what a pause between the two nodes costs
 * beside the bytes, -1 where that is not known (and at the target, which plans nothing). */
struct json *mig_options(const VirtualMachineInstance *vmi, int64_t fixed_ms);
/* migration_pause.c: the declared limit in ms, 0 for none; the fixed cost towards a node, -1 while unknown. */
int64_t mig_pause_declared(const VirtualMachineInstanceMigrationState *s);
/* The limit that ends a move rather than being passed: the declared one, where these nodes can keep it at all.  0:
 * none. */
int64_t mig_pause_enforced(int64_t declared, int64_t fixed_ms);
int64_t mig_pause_fixed(const struct vmhost *h, const char *node);
/* Where memory and disks of this move reach a node: its address in the migration network that the move's settings
 * name, else its InternalIP.  RC_NOT_FOUND. */
MUST_CHECK enum rc mig_data_address(const struct vmhost *h,
				    const VirtualMachineInstanceMigrationState *s, const char *node,
				    struct in_addr *ip, struct err *err);
/* Fills names and addresses; opens nothing.  peer: the other node, to which frames go; data: see above. */
MUST_CHECK enum rc mig_net_init(const struct vm *vm, struct in_addr peer, struct in_addr data,
				struct mig_net *out, struct err *err);
/* Ends what is left of a failed move's connections to the other side.  QEMU 10 begins no other move while one of them waits
 * for an answer, which neither its cancel nor yank ends in a handshake; a peer that is lost would hold it for as long as
 * the kernel tries.  Pool. */
void mig_net_abort(const struct mig_net *net, const char *uid);
void mig_event(struct vm *vm, const char *type, const char *reason, const char *fmt, ...)
	PRINTF_LIKE(4, 5);
/* Best effort: the record's status, off the fast path. */
void mig_write_handover(struct vm *vm, const char *migration_uid, const char *state,
			const char *time_field, const char *reason);
MUST_CHECK enum rc mig_set_time(char **field, usec_t at);
/* "<what>: N MiB are left, the guest changes …" of a launcher's migration event; owned by the caller, NULL:
 * out of memory. */
char *mig_figures(const char *what, const struct json *data);
/* How long the guest may stand while what is left goes over, in milliseconds: twice what the rate promises. */
int64_t mig_finish_timeout(const struct json *data);
/* It is told to end with a pause: no pause is too long for QEMU's switch any more. */
bool mig_is_finishing(const struct json *data);
/* The disks of a launcher's migration event, together. */
struct mig_transfer {
	int64_t total, left;
};
struct mig_transfer mig_disks_of(const struct json *data);
/* Moved bytes, passes, pause of a launcher's migration event into status.ferry.migration.  memory_bytes: the guest's;
 * while disks are copied QEMU does not know it.  age: of data. */
MUST_CHECK enum rc mig_fill_stats(FerryMigrationStatus *out, const struct json *data,
				  int64_t memory_bytes, usec_t age);

/* The last look before any byte moves: this QEMU shows its guest less than the guest has seen so far.  False also
 * when QEMU does not tell. */
bool mig_cpu_lacks(const struct vm *vm, char *why, size_t size);

/* migration_proof.c: are claims that nobody copies really the same on both nodes? */
struct mig_proof;
typedef void (*mig_proof_fn)(void *arg, enum rc rc, const char *why);
/* Claims of class "shared" and shared hostDisks, [{claim, root, folder, token}] (claim: or the volume's name; root: only
 * of a hostDisk); *out is the caller's.  RC_BUSY: not all volumes are known. */
MUST_CHECK enum rc mig_proof_claims(const struct vm *vm, bool has_tokens, struct json **out,
				    struct err *err);
/* fn runs once, from the loop; freeing the slot's proof drops it. */
MUST_CHECK enum rc mig_proof_write(struct mig_proof **slot, const struct vm *vm, const char *uid,
				   const struct json *claims, mig_proof_fn fn, void *arg,
				   struct err *err);
struct mig_proof_told {
	const char *source;
	const struct json *claims,
		*theirs; /* this node's, and what the source says; NULL: nothing */
};
MUST_CHECK enum rc mig_proof_check(struct mig_proof **slot, const struct vm *vm, const char *uid,
				   const struct mig_proof_told *told, mig_proof_fn fn, void *arg,
				   struct err *err);
/* The tokens have done their work. */
void mig_proof_drop(const struct vm *vm, const char *uid, const struct json *claims);
struct mig_proof *mig_proof_free(struct mig_proof *p);

/* migration_devices.c: asks the launcher; then vm->devices is there (unless it cannot be known), asks_devices is false
 * again, and the VM is kicked. */
void mig_devices_ask(struct vm *vm);
/* ours: what the target's QEMU offers (NULL: not known); theirs: what the guest has taken at the source. */
bool mig_devices_lack(const struct json *ours, const struct json *theirs, const char *node,
		      char *why, size_t size);

/* migration_disks.c: which of the VMI's claims lie on this node alone, and may they move?  names is the caller's, and
 * has to live as long as *in. */
struct migratable_in;
void mig_disks_judge(const struct vm *vm, const VirtualMachineInstance *vmi,
		     const char *names[VM_VOLUMES_MAX], struct migratable_in *in);
/* By that answer: would any go along with a move? */
bool mig_disks_come(const VirtualMachineInstance *vmi, const struct migratable_in *in);
bool mig_disks_any(const struct vm *vm);
/* Whatever changes that answer is told to the VMIs. */
MUST_CHECK enum rc mig_disks_watch(struct vmhost *h, struct err *err);
/* The volumes that have gone along lie on node `to` from now on.  Volumes that are there already are left alone.
 * RC_BUSY: not all of them are known yet. */
struct plan;
MUST_CHECK enum rc mig_disks_take(const struct vm *vm, const char *from, const char *to,
				  const char *uid, bool keeps_old, struct plan *plan);

/* Hooks of the VMI's one writer (vm.c). */
MUST_CHECK enum rc mig_source_fill(struct vm *vm, VirtualMachineInstance *vmi, usec_t now);
MUST_CHECK enum rc mig_target_fill(struct vm *vm, VirtualMachineInstance *vmi, usec_t now);
/* Further operations that go before the VMI's update: volumes that have come along, the PortBinding. */
MUST_CHECK enum rc mig_source_plan(struct vm *vm, struct plan *plan);
MUST_CHECK enum rc mig_target_plan(struct vm *vm, struct plan *plan);
/* The VMI was written. */
void mig_source_written(struct vm *vm);
void mig_target_written(struct vm *vm);
/* The guest runs here, and its PortBinding, which has to say so, is not known yet. */
bool mig_target_awaits_binding(const struct vm *vm);

#endif
