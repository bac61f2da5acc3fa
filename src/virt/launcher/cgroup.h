/* src/virt/launcher/cgroup.h - the VM's own cgroup (v2 only).  Blocking, short: kernel files. */
#ifndef VIRT_LAUNCHER_CGROUP_H
#define VIRT_LAUNCHER_CGROUP_H

#include "base/err.h"
#include "virt/launcher/launch_spec.h"

/* root: the cgroup mount; NULL: /sys/fs/cgroup if that is a cgroup2 mount, else there is none.  On RC_OK
 * *procs_fd is the group's cgroup.procs, or -1 when there is no cgroup to have (no v2 here, no path
 * given).  A limit that the kernel does not offer there is RC_UNSUPPORTED. */
MUST_CHECK enum rc cgroup_prepare(const char *root, const struct launch_cgroup *c, int *procs_fd,
				  struct err *err);
/* Removes the group; one that still has processes stays (false). */
bool cgroup_remove(const char *root, const struct launch_cgroup *c);

#endif
