/* src/cli/supervise.h - keep one program running, and find it again by its pid file.
 *
 * Blocking; for the small parent processes that `ferry up` leaves behind, not for daemons with a loop.
 */
#ifndef CLI_SUPERVISE_H
#define CLI_SUPERVISE_H

#include <sys/types.h>

#include "base/err.h"

/* Starts argv and starts it again when it ends (after 0.1 s, doubling to 5 s while it keeps dying within
 * 10 s), reaps everything else that becomes our child, and passes SIGTERM on: then waits at most
 * grace for the end, kills, and returns.  Returns an exit code. */
int supervise(char *const argv[], usec_t grace);

/* "<pid> <start time>" so that a pid that was used again is not mistaken. */
MUST_CHECK enum rc pidfile_write(const char *path, pid_t pid, struct err *err);
/* 0 when the file is missing, or that process is gone. */
pid_t pidfile_read(const char *path);
/* SIGTERM, then SIGKILL after grace; waits for the end (of any process, not only a child).
 * False: it is still there. */
bool pidfile_stop(const char *path, usec_t grace);

#endif
