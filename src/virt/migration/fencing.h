/* src/virt/migration/fencing.h - lost nodes: what a fenced one may not start any more, how long one has to be silent, and
 * which disks can tell whether a guest still runs there.
 *
 * Pure.  A proof that a node was off allows whatever was bound to it before to run elsewhere; the node's
 * own agent, when it is back, must not start that again.  docs/internals/fencing.md.
 */
#ifndef VIRT_MIGRATION_FENCING_H
#define VIRT_MIGRATION_FENCING_H

#include "api/gen/api_types.h"

/* The pod is older than the newest proof about its node (f; NULL: none): it must never start there. */
bool fencing_condemns(const NodeFence *f, const ObjectMeta *pod);

/* A node that has not been heard of for so long is asked about; 0: nothing is done by itself (cfg may be NULL). */
int64_t fencing_silence_seconds(const FerryConfigSpec *cfg);

enum fencing_disk {
	FENCING_DISK_SCRATCH, /* nothing that outlives the pod, or nothing that the guest can write */
	FENCING_DISK_SHARED,  /* every node sees it, and QEMU's lock with it */
	FENCING_DISK_OWN,     /* one node has it */
	FENCING_DISK_UNKNOWN, /* no class of Ferry's, or its volume has not been seen */
};
/* pv: of the volume's claim; NULL: not known, or it has no claim. */
enum fencing_disk fencing_disk_of(const VirtualMachineInstance *vmi, const Volume *v,
				  const PersistentVolume *pv);

#endif
