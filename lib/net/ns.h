/* lib/net/ns.h - network namespaces: named by a bind mount under a folder of the caller's.
 *
 * Blocking; pool threads.  The folder must belong to root and be writable by nobody else.  A
 * namespace lives as long as its name, a descriptor, or a process in it.
 */
#ifndef NET_NS_H
#define NET_NS_H

#include <sys/types.h>

#include "base/err.h"

/* Makes namespace `name` under dir (created 0755 if missing) with loopback up and IPv6 off.  One
 * that is already there is opened instead.  *fd (may be NULL): an open descriptor, the caller's. */
MUST_CHECK enum rc net_ns_create(const char *dir, const char *name, int *fd, struct err *err);
/* RC_NOT_FOUND when there is no such name or it is not a namespace (left by a crash half-way). */
MUST_CHECK enum rc net_ns_open(const char *dir, const char *name, int *fd, struct err *err);
/* Takes the name away; a missing one is fine.  Its links go when the last user goes. */
MUST_CHECK enum rc net_ns_delete(const char *dir, const char *name, struct err *err);
/* The namespace of the calling thread. */
MUST_CHECK enum rc net_ns_self(int *fd, struct err *err);

/* Moves the calling thread into a namespace; *old brings it back through net_ns_leave().  ns_fd
 * -1: stays where it is (then *old is -1 and leaving does nothing). */
MUST_CHECK enum rc net_ns_enter(int ns_fd, int *old, struct err *err);
/* Closes *old.  A thread that cannot come back must not go on: aborts. */
void net_ns_leave(int *old);

/* Writes /proc/sys/net/<path> as seen in the namespace, e.g. ("ipv4/ip_forward", "1").
 * RC_NOT_FOUND when the kernel has no such knob. */
MUST_CHECK enum rc net_sysctl(int ns_fd, const char *path, const char *value, struct err *err);

/* Runs a program in the namespace, without a shell, with an empty environment (PATH only), stdin
 * from and stdout to /dev/null, and waits for its end at most timeout.  What it wrote to stderr
 * (its first 400 bytes) goes into err when it fails.  argv[0] is a path or a name looked up in
 * the system's folders. */
MUST_CHECK enum rc net_ns_run(int ns_fd, const char *const argv[], usec_t timeout, struct err *err);

#endif
