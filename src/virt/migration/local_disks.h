/* src/virt/migration/local_disks.h - claims whose data lie on one node, and how they move with the VM.
 *
 * Pure; any thread.  A volume of driver ferry.dev/local is moved by copying its file; its PersistentVolume then
 * names the new node and the new folder, and the copies that are left behind:
 *   spec.nodeAffinity                      the node that holds the data
 *   spec.csi.volumeAttributes.path         their folder there, another one after each move
 *   annotation ferry.dev/left-behind       "node/folder", one for each old copy that is still to be removed
 *   annotation ferry.dev/kept-on           "node/folder" of the copy that a lost move has kept, for people to decide on
 */
#ifndef VIRT_MIGRATION_LOCAL_DISKS_H
#define VIRT_MIGRATION_LOCAL_DISKS_H

#include "api/gen/api_types.h"
#include "base/err.h"

#define LOCAL_DISKS_SETTING \
	"spec.localDiskMoves of the FerryConfig or spec.ferry.localDiskMoves of a MigrationPolicy"

/* May claims like that move?  The policy that a move of the VM would follow decides when it says something, else the
 * FerryConfig; both may be NULL.  The default is no, as in KubeVirt. */
bool local_disks_may_move(const FerryConfigSpec *cfg, const MigrationPolicy *policy);
/* The name of the claim that a volume stands for; NULL: none. */
const char *local_disk_claim(const Volume *v);
/* A claim can be copied while the guest writes it by exactly one disk.  What it only reads, or shares, cannot. */
bool local_disk_can_move(const VirtualMachineInstance *vmi, const Volume *v);

bool local_disk_is_local(const PersistentVolume *pv);
/* The node that holds its data; NULL: none, or the volume says so in another way than Ferry does.  Borrowed. */
const char *local_disk_node(const PersistentVolume *pv);
/* A move has made its folder, so the disk is there, and is never made anew. */
bool local_disk_has_moved(const PersistentVolume *pv);
/* The folder that a move makes for the volume; owned by the caller, NULL: out of memory. */
char *local_disk_folder(const PersistentVolume *pv, const char *migration_uid);
/* The volume as it is once the guest runs at its target.  The old copy is noted as left behind, or, with keeps_old, as
 * kept.  RC_INVALID: it is none that can move. */
MUST_CHECK enum rc local_disk_take(PersistentVolume *pv, const char *from, const char *to,
				   const char *migration_uid, bool keeps_old, struct err *err);
/* The first old copy that the volume has left on this node: its folder, owned by the caller; NULL: none (or out of
 * memory: the next look finds it). */
char *local_disk_left_on(const PersistentVolume *pv, const char *node);
/* Takes it off the list. */
MUST_CHECK enum rc local_disk_forget(PersistentVolume *pv, const char *node, const char *folder);

#endif
