/* src/virt/migration/written.h - how much distinct memory a guest writes in a given time.
 *
 * Pure.  A guest that rewrites the same 64 MiB for a minute has 64 MiB to be sent again, not a minute's worth
 * of writing, so one rate is not enough: a curve is kept, of a few points that were measured.  Between them it
 * is straight, before the first it comes from nothing.  It never falls, and never grows faster than from
 * nothing to a point before.
 */
#ifndef VIRT_WRITTEN_H
#define VIRT_WRITTEN_H

#include "base/err.h"

enum { WRITTEN_POINTS = 12 };

struct written {
	size_t n;
	struct written_point {
		int64_t ms, bytes;
	} at[WRITTEN_POINTS]; /* by ms */
};

/* The newest word counts: points that contradict it are bent to it.  Nonsense (no time, less than nothing) is
 * let go. */
void written_add(struct written *w, int64_t ms, int64_t bytes);
/* What is written in so many ms; 0 when nothing was measured.
 *
 * Beyond the last point, an assumption: growth goes on as between the last two, up to half as much again as the last one
 * saw; where it had slowed down, it goes on slowing down by the same share for each time that is as long, and its sum is
 * the most.
 */
int64_t written_in(const struct written *w, int64_t ms);

#endif
