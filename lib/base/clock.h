/* lib/base/clock.h - the machine's clocks, in microseconds.
 *
 * For code without an event loop; what runs on a loop asks loop_now() and loop_realtime() (lib/ev), which
 * the simulation can turn.  Safe between fork and exec.
 */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <time.h>

#include "base/macro.h"

static inline UNUSED usec_t clock_usec(const struct timespec *t)
{
	return (usec_t)t->tv_sec * USEC_PER_SEC + (usec_t)t->tv_nsec / 1000;
}

/* Since some moment before the machine's start; never set back, stands still in suspension. */
static inline UNUSED usec_t clock_monotonic(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return clock_usec(&t);
}

/* Since 1970-01-01 UTC; may jump either way. */
static inline UNUSED usec_t clock_realtime(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return clock_usec(&t);
}

#endif
