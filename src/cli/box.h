/* src/cli/box.h - one node of a one-machine cluster: a set of namespaces with ferry-node inside.
 *
 * A box has its own network, mount, pid, UTS and IPC namespaces.  It sees the machine's files read-only,
 * except: its own state folder, the folder of the `shared` storage class, and memory file systems at
 * /run, /tmp, /var/tmp and /dev/shm.  The cluster's folder is covered, so that no socket or file of
 * another node can be reached.  When pid 1 of the box ends, the kernel ends everything in it.
 */
#ifndef CLI_BOX_H
#define CLI_BOX_H

#include "base/err.h"

/* Where things are inside every box. */
#define BOX_STATE  "/run/ferry/state"
#define BOX_SHARED "/run/ferry/shared"
#define BOX_RUN	   "/run/ferry/run"

#define BOX_BRIDGE "ferry0" /* the underlay, in the machine's own namespace */

struct box {
	const char *name;    /* node name, host name */
	const char *bin;     /* folder of the program to run; stays visible, read-only */
	const char *state;   /* folder of this node, made when missing */
	const char *shared;  /* folder of the shared class */
	const char *cover;   /* folder that the box must not see (may contain the two above) */
	const char *link;    /* the machine's end of the box's cable */
	const char *address; /* "172.30.77.11/24" */
	const char *gateway; /* "172.30.77.1" */
};

/* Makes the namespaces around the calling process and goes on as pid 1 in them; the process that called
 * stays outside, writes its child's pid to pidfile, passes SIGTERM on, and exits with the box. */
MUST_CHECK enum rc box_enter(const struct box *b, const char *pidfile, struct err *err);

#endif
