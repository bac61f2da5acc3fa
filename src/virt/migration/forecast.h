/* src/virt/migration/forecast.h - will this move end, when, and how long will the guest stand?
 *
 * Pure.  The passes to come are gone through as the launcher will go through them, by the same rules
 * (mig_next_downtime(), mig_wants_post_copy()).  What a pass leaves is what the guest writes while it takes.
 * The verdict is of pass boundaries: within a pass QEMU's figures say how much of it is left, not what the guest
 * does meanwhile.  Only the time that is left is counted down between them.
 */
#ifndef VIRT_FORECAST_H
#define VIRT_FORECAST_H

#include "base/err.h"
#include "virt/migration/mig_qemu.h"
#include "virt/migration/written.h"

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

struct forecast_in {
	struct mig_stats stats;
	struct mig_options options;
	/* Empty: not measured.  Then QEMU's own rate counts, which it tells from the second pass on; before, the
	 * guest is taken to write nothing. */
	struct written written;
	int64_t limit_ms;    /* the pause that QEMU may plan for now */
	int64_t pass_ms;     /* since the last pass began */
	int64_t pass_bytes;  /* that were left when it did */
	int64_t since_ms;    /* the link's rate counts from this moment of the move on… */
	int64_t since_bytes; /* …when so much had gone over: the first bytes only fill buffers */
};

/* At a pass' end. */
struct forecast forecast_of(const struct forecast_in *in);
/* The time until the end, in ms; -1: unknown, or none is in sight. */
int64_t forecast_left(const struct forecast_in *in);
/* The same once post-copy is chosen: each page goes over once more at most. */
int64_t forecast_post_copy(const struct forecast_in *in);
/* How long to measure next what the guest writes, in seconds, after so many the last time; 0: what it would tell
 * comes too late, or is not needed.  Only the first pass is that long that QEMU's figures say nothing of the next. */
int64_t forecast_measure_next(const struct forecast_in *in, int64_t last_seconds);
const char *forecast_name(enum forecast_verdict v);

/* The part of a pause that no byte explains, in ms, smoothed over moves between two nodes: the loading of the
 * devices, the messages, the emulator.  known: what it was so far, -1 for nothing.  bytes went over while the
 * guest stood, at bytes_per_second. */
int64_t pause_fixed_cost(int64_t known, int64_t pause_ms, int64_t bytes, int64_t bytes_per_second);
/* What QEMU may plan for under a declared limit: the limit less the fixed cost, at least 1. */
int64_t pause_budget(int64_t declared_ms, int64_t fixed_ms);

#endif
