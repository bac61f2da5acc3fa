/* src/virt/launcher/jail.h - where QEMU lives, and the reaper above it.
 *
 *   launcher --fork, exec--> stage one (joins cgroup and network namespace, makes the others) --fork, exits
 *                              +--> reaper: pid 1 of the new pid namespace; builds the view, pivots into it
 *                                     +--> QEMU: own uid, no capabilities, no_new_privs, clean environment
 *
 * The view is a read-only tmpfs: the libraries and firmware QEMU needs, bound read-only; a /dev with
 * null, zero, urandom, userfaultfd (and kvm when proven), owned by the VM's uid; /creds, bound
 * read-only; /boot with kernel and initrd for kernelBoot.  No /proc, no /sys, no other path.
 *
 * The reaper outlives the launcher.  It does one thing: when QEMU ends it writes exit.json, durably.
 * It kills nothing, but as pid 1 of the namespace its own death takes QEMU along.
 */
#ifndef VIRT_LAUNCHER_JAIL_H
#define VIRT_LAUNCHER_JAIL_H

#include <sys/types.h>

#include "base/err.h"

struct ev_src;
struct jail_start;
struct json;
struct loop;

enum { JAIL_MAX_FDS = 160 };

struct jail_config {
	const char *dir; /* absolute: the VM's runtime folder; root/ and creds/ are made in it */
	int64_t uid, gid;
	int netns_fd;		  /* -1: stay in the caller's network namespace (tests) */
	bool kvm;		  /* /dev/kvm in the view */
	int kernel_fd, initrd_fd; /* -1: none */
	int cgroup_fd;		  /* cgroup.procs of the VM's cgroup; -1: none */
	int stderr_fd;		  /* QEMU's stdout and stderr */
	int64_t oom_score_adj;
	char *const *argv; /* argv[0] is a path inside and outside of the jail */
	const int *keep;   /* descriptors that QEMU inherits */
	size_t n_keep;
};

struct jail_result {
	enum rc rc;
	pid_t reaper, qemu;  /* in the caller's pid namespace; 0 when it did not come that far */
	const char *message; /* failure in words, borrowed */
};
typedef void (*jail_fn)(const struct jail_result *r, void *arg);

/* Starts it.  fn runs once, from the loop: QEMU has been exec'ed, or what failed, or RC_TIMEOUT (then
 * whatever had started has been killed).  All descriptors stay the caller's, who closes them. */
MUST_CHECK enum rc jail_start(struct jail_start **out, struct loop *loop,
			      const struct jail_config *c, usec_t timeout, jail_fn fn, void *arg,
			      struct err *err);
struct jail_start *jail_start_free(
	struct jail_start *j); /* fn does not run; what was started goes on */
DEFINE_CLEANUP(struct jail_start *, jail_start_free);

/* Stage one's main(): the launcher execs itself with "--reaper <config fd>".  Never returns. */
NORETURN void jail_main(int config_fd);

/* <dir>/exit.json, as the reaper writes it. */
MUST_CHECK enum rc jail_read_exit(const char *dir, struct json **out, struct err *err);

#endif
