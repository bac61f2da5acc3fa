/* src/virt/migration/progress.h - does a move still get on, and how long may it take?
 *
 * Pure.  Bytes that are left are a saw tooth: each pass over memory begins with what the guest wrote during the one
 * before.  So passes are compared by what they begin with, and a falling number counts only within the smallest one
 * so far; looking at it at any other moment calls moves stuck that are not, and does not notice those that are.  The
 * copying of disks comes before the first pass and is a pass of its own.
 */
#ifndef VIRT_MIGRATION_PROGRESS_H
#define VIRT_MIGRATION_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/macro.h"

/* All zero: nothing was noted yet. */
struct mig_progress {
	usec_t at; /* when it last got on */
	int64_t pass, left;
	int64_t smallest; /* what the best pass began with */
	bool counts;	  /* this is the best one */
};

/* pass: 0 while disks are copied, then as QEMU counts them; left: bytes of the disks, then of memory. */
void mig_progress_note(struct mig_progress *p, int64_t pass, int64_t left, usec_t now);
/* Nothing noted: false. */
bool mig_progress_is_stalled(const struct mig_progress *p, usec_t limit, usec_t now);

/* How fast something grows, as a mean of a second or so.  All zero: nothing was noted yet. */
struct mig_rate {
	usec_t at;
	int64_t done;
	int64_t per_second; /* 0: not known yet */
};

void mig_rate_note(struct mig_rate *r, int64_t done, usec_t now);

/* What KubeVirt multiplies completionTimeoutPerGiB with: decimal gigabytes, rounded up, at least 1. */
int64_t mig_gigabytes(int64_t memory_bytes, int64_t disk_bytes);

#endif
