/* src/virt/migration/forecast.h - will this move end, when, and how long will the guest stand?
 *
 * Pure.  Judged at pass boundaries: within a pass QEMU's figures say how much of it is left, not what the guest
 * does meanwhile.  Only the time that is left is counted down between them.
 */
#ifndef VIRT_FORECAST_H
#define VIRT_FORECAST_H

#include "base/err.h"
#include "virt/migration/mig_qemu.h"

enum forecast_verdict {
	FORECAST_UNKNOWN,   /* nothing has gone over yet */
	FORECAST_CONVERGES, /* each pass leaves less, until the rest fits into the pause */
	FORECAST_DIVERGES,  /* the guest writes at least as fast as the link carries */
};

struct forecast {
	enum forecast_verdict verdict;
	int64_t pause_ms; /* if the guest stood now, until all had gone over; -1: unknown */
	int64_t left_ms;  /* until the end, the pause included; -1: unknown, or never */
};

/* limit_ms: the pause that may be planned for; fixed_ms: what a pause costs beside the bytes.  The dirty rate
 * is known from the second pass on; before, the guest is taken to write nothing. */
struct forecast forecast_of(const struct mig_stats *s, int64_t limit_ms, int64_t fixed_ms);
/* The time until the end, in ms, pass_ms after the last pass began; -1: unknown. */
int64_t forecast_left(const struct mig_stats *s, int64_t pass_ms, int64_t limit_ms,
		      int64_t fixed_ms);
/* The same once post-copy is chosen: each page goes over once more at most. */
int64_t forecast_post_copy(const struct mig_stats *s);
const char *forecast_name(enum forecast_verdict v);

/* The part of a pause that no byte explains, in ms, smoothed over moves between two nodes: the loading of the
 * devices, the messages, the emulator.  known: what it was so far, -1 for nothing.  bytes went over while the
 * guest stood, at bytes_per_second. */
int64_t pause_fixed_cost(int64_t known, int64_t pause_ms, int64_t bytes, int64_t bytes_per_second);
/* What QEMU may plan for under a declared limit: the limit less the fixed cost, at least 1. */
int64_t pause_budget(int64_t declared_ms, int64_t fixed_ms);

#endif
