/* src/virt/migration/host_disks.h - which files of a node a hostDisk volume may be (spec.hostDiskPaths of the FerryConfig),
 * and which node has the file (status.ferry.hostDisks of VMI and VM).
 *
 * Pure; any thread.  The rule on paths is asked twice: when a VM is created or changed, and by the node's agent before
 * it opens the file; there the folder must also be root's own.
 */
#ifndef VIRT_MIGRATION_HOST_DISKS_H
#define VIRT_MIGRATION_HOST_DISKS_H

#include "api/gen/api_types.h"
#include "base/err.h"

#define HOST_DISKS_SETTING "spec.hostDiskPaths of the FerryConfig"

/* The allowed folder below which path lies, the deepest one; NULL: none (cfg NULL: nothing is allowed).  Borrowed. */
const char *host_disk_folder(const FerryConfigSpec *cfg, const char *path);
/* The same, as a node may open it: never a folder that has the node's own files in it (shared NULL: it has no such class).
 * RC_FORBIDDEN. */
MUST_CHECK enum rc host_disk_place(const FerryConfigSpec *cfg, const char *path, const char *state,
				   const char *shared, const char **folder, struct err *err);
/* True: outer is inner, or one of the folders that inner lies in.  Both are plain absolute paths. */
bool host_disk_is_within(const char *inner, const char *outer);

/* Its only use is a CD-ROM that cannot be written. */
bool host_disk_is_cdrom(const VirtualMachineInstanceSpec *spec, const char *volume);
/* Its file is one node's own: nobody has said that all nodes see the same there, and it is not only read from a CD-ROM, as
 * the same image may lie on many nodes. */
bool host_disk_is_own(const VirtualMachineInstanceSpec *spec, const Volume *v);
/* The node that has this file, by a list of status.ferry; NULL: not known.  Borrowed. */
const char *host_disk_node(const FerryHostDisk *list, size_t n, const char *path);
/* On node from now on; a path that is not in the list is added. */
MUST_CHECK enum rc host_disk_note(FerryHostDisk **list, uint32_t *n, const char *path,
				  const char *node);
/* Are all such files of the VMI noted for this node?  True also when it has none. */
bool host_disks_are_told(const VirtualMachineInstance *vmi, const char *node);

/* What becomes of a file of this node when a pod of the VMI ends here, whose guest has used it. */
enum host_disk_fate {
	HOST_DISK_STAYS,
	HOST_DISK_MOVED, /* the guest has it on another node now, and that is written down: this one is an old copy */
	HOST_DISK_UNDECIDED, /* a move from here is under way */
};
enum host_disk_fate host_disk_fate(const VirtualMachineInstance *vmi, const char *path,
				   const char *node, const char *pod);

#endif
