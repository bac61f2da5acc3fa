/* src/virt/node/jail.h - runs one child program as nobody: no capabilities, no new privileges, its own
 * mount namespace, limits, a deadline; optionally no network.
 *
 * Blocking: pool threads only.  Nothing is shared but the descriptors that the caller names.
 */
#ifndef NODE_JAIL_H
#define NODE_JAIL_H

#include <sys/types.h>

#include "base/err.h"
#include "base/sbuf.h"

enum { JAIL_FDS_MAX = 72, JAIL_FD_FIRST = 3, JAIL_UID = 65534, JAIL_OUTPUT_MAX = 64 * 1024 };

struct jail {
	const char *const *argv; /* argv[0] is an absolute path, argv ends with NULL */
	const char *const *env;	 /* "A=b", ends with NULL; NULL: an empty environment */
	uid_t uid;		 /* also the gid; JAIL_UID unless there is a reason */
	bool has_network;	 /* false: an empty network namespace */
	const char *
		work_dir; /* the agent's own folder; becomes /tmp and the working directory; NULL: none */
	const int *fds; /* appear as 3, 4, … in the child; the caller keeps its own */
	size_t n_fds;
	usec_t timeout;		   /* then SIGKILL and RC_TIMEOUT */
	uint64_t file_bytes_max;   /* RLIMIT_FSIZE; 0: no limit */
	uint64_t memory_bytes_max; /* RLIMIT_AS; 0: no limit */
	struct sbuf *out;	   /* the child's standard output, or NULL: dropped */
};

/* RC_OK only for exit status 0.  Otherwise RC_IO with the last lines of its standard error, or
 * RC_TIMEOUT.  *status (may be NULL) is wait(2)'s when the child ended by itself. */
MUST_CHECK enum rc jail_run(const struct jail *j, int *status, struct err *err);

#endif
