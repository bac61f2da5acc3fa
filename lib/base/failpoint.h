/* lib/base/failpoint.h - named points at which a test holds a process, or lets one step fail.
 *
 * Any thread: a point that is held blocks the one that got there, as SIGSTOP would at exactly this place.  In the pool
 * that is a queue, and the rest of the process goes on.
 *
 * Off, and then nothing but the test of a flag, unless the environment variable FERRY_FAILPOINTS named a
 * folder when the process started.  The folder must be its user's own (root's, for the daemons), and nobody
 * else may write there.  Whoever wants the point NAME listens on the UNIX socket DIR/NAME: the process
 * connects, and its connection is the event; SO_PEERCRED says who it is.  Closing it lets the process go on, a
 * byte 'f' lets the step fail.  A test that dies closes its sockets, so it holds nobody for ever.
 */
#ifndef BASE_FAILPOINT_H
#define BASE_FAILPOINT_H

#include "base/err.h"

#define FAILPOINT_ENV "FERRY_FAILPOINTS"

extern bool failpoint_is_on; /* written by failpoint_setup() only */

/* Reads the environment.  RC_OK also when it names nothing; RC_FORBIDDEN: the folder is not only its user's;
 * RC_INVALID: no absolute path, or too long; RC_NOT_FOUND and others: it cannot be looked at. */
MUST_CHECK enum rc failpoint_setup(struct err *err);
/* Blocks while somebody holds the point, at most five minutes.  True: the step is to fail. */
bool failpoint_hit(const char *name);

static inline bool failpoint_fails(const char *name)
{
	return failpoint_is_on && failpoint_hit(name);
}

/* Where nothing can fail: only to be held, or to die, here. */
static inline void failpoint(const char *name)
{
	if (failpoint_is_on)
		(void)failpoint_hit(name);
}

#endif
