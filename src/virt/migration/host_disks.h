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
/* True: outer is inner, or one of the folders that inner lies in.  Both are plain absolute paths. */
bool host_disk_is_within(const char *inner, const char *outer);

/* Its file is one node's own: nobody has said that all nodes see the same there. */
bool host_disk_is_own(const Volume *v);
/* The node that has this file, by a list of status.ferry; NULL: not known.  Borrowed. */
const char *host_disk_node(const FerryHostDisk *list, size_t n, const char *path);
/* On node from now on; a path that is not in the list is added. */
MUST_CHECK enum rc host_disk_note(FerryHostDisk **list, size_t *n, const char *path,
				  const char *node);
/* Are all such files of the VMI noted for this node?  True also when it has none. */
bool host_disks_are_told(const VirtualMachineInstance *vmi, const char *node);

#endif
