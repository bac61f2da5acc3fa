/* src/virt/migration/host_disks.h - which files of a node a hostDisk volume may be (spec.hostDiskPaths of the FerryConfig).
 *
 * Pure; any thread.  The rule is asked twice: when a VM is created or changed, and by the node's agent before it opens
 * the file; there the folder must also be root's own.
 */
#ifndef VIRT_MIGRATION_HOST_DISKS_H
#define VIRT_MIGRATION_HOST_DISKS_H

#include "api/gen/api_types.h"

#define HOST_DISKS_SETTING "spec.hostDiskPaths of the FerryConfig"

/* The allowed folder below which path lies, the deepest one; NULL: none (cfg NULL: nothing is allowed).  Borrowed. */
const char *host_disk_folder(const FerryConfigSpec *cfg, const char *path);
/* True: outer is inner, or one of the folders that inner lies in.  Both are plain absolute paths. */
bool host_disk_is_within(const char *inner, const char *outer);

#endif
