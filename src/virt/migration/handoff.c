#include "virt/migration/handoff.h"

static const char *const src_states[] = {
	"Idle",	     "Preparing", "Starting",	"Moving", "Switching", "Released",
	"Streaming", "Given",	  "Cancelling", "Failed", "Lost",
};
static const char *const src_events[] = {
	"Begin",  "Ready", "Accepted", "Stands",  "Released", "Taken",
	"Shared", "Sent",  "Broken",   "Refused", "Cancel",   "Ended",
};
static const char *const dst_states[] = {
	"Idle",	   "Preparing", "Listening", "Keyed",  "Permitted",
	"Running", "Fetching",	"Done",	     "Failed",
};
static const char *const dst_events[] = {
	"Begin", "Listens", "Key", "Permission", "Resumed", "Written", "Named", "Whole", "Failed",
};
static_assert(ARRAY_SIZE(src_states) == SRC__STATES, "name every state");
static_assert(ARRAY_SIZE(src_events) == SRC__EVENTS, "name every event");
static_assert(ARRAY_SIZE(dst_states) == DST__STATES, "name every state");
static_assert(ARRAY_SIZE(dst_events) == DST__EVENTS, "name every event");

/* next + 1; 0 refuses. */
#define S(next_) (SRC_##next_ + 1)
#define D(next_) (DST_##next_ + 1)

static const unsigned char src_edges[SRC__STATES][SRC__EVENTS] = {
	[SRC_IDLE] = {[SRCEV_BEGIN] = S(PREPARING), [SRCEV_ENDED] = S(FAILED)},
	[SRC_PREPARING] = {[SRCEV_READY] = S(STARTING),
			   [SRCEV_CANCEL] = S(FAILED),
			   [SRCEV_ENDED] = S(FAILED)},
	/* A cancel before QEMU has answered waits for the answer. */
	[SRC_STARTING] = {[SRCEV_ACCEPTED] = S(MOVING),
			  [SRCEV_ENDED] = S(FAILED),
			  [SRCEV_STANDS] = S(SWITCHING)},
	[SRC_MOVING] = {[SRCEV_STANDS] = S(SWITCHING),
			[SRCEV_CANCEL] = S(CANCELLING),
			[SRCEV_RELEASED] = S(RELEASED),
			[SRCEV_ENDED] = S(FAILED)},
	[SRC_SWITCHING] = {[SRCEV_RELEASED] = S(RELEASED),
			   [SRCEV_CANCEL] = S(CANCELLING),
			   [SRCEV_ENDED] = S(FAILED)},
	/* The cancel came too late: what QEMU reports counts. */
	[SRC_CANCELLING] = {[SRCEV_RELEASED] = S(RELEASED),
			    [SRCEV_STANDS] = S(CANCELLING),
			    [SRCEV_ENDED] = S(FAILED)},
	[SRC_RELEASED] = {[SRCEV_TAKEN] = S(GIVEN),
			  [SRCEV_SHARED] = S(STREAMING),
			  [SRCEV_BROKEN] = S(LOST),
			  [SRCEV_REFUSED] = S(LOST)},
	/* Only a dead QEMU ends it: a lost link is mended for as long as it takes. */
	[SRC_STREAMING] = {[SRCEV_SENT] = S(GIVEN), [SRCEV_BROKEN] = S(LOST)},
};

static const unsigned char dst_edges[DST__STATES][DST__EVENTS] = {
	[DST_IDLE] = {[DSTEV_BEGIN] = D(PREPARING)},
	[DST_PREPARING] = {[DSTEV_LISTENS] = D(LISTENING), [DSTEV_FAILED] = D(FAILED)},
	[DST_LISTENING] = {[DSTEV_KEY] = D(KEYED), [DSTEV_FAILED] = D(FAILED)},
	[DST_KEYED] = {[DSTEV_PERMISSION] = D(PERMITTED), [DSTEV_FAILED] = D(FAILED)},
	/* Asked again when the first try timed out. */
	[DST_PERMITTED] = {[DSTEV_PERMISSION] = D(PERMITTED),
			   [DSTEV_RESUMED] = D(RUNNING),
			   [DSTEV_FAILED] = D(FAILED)},
	[DST_RUNNING] = {[DSTEV_WRITTEN] = D(DONE),
			 [DSTEV_NAMED] = D(FETCHING),
			 [DSTEV_FAILED] = D(FAILED)},
	[DST_FETCHING] = {[DSTEV_WHOLE] = D(RUNNING), [DSTEV_FAILED] = D(FAILED)},
};

bool src_next(enum src_state s, enum src_event e, enum src_state *next)
{
	assert(s < SRC__STATES && e < SRC__EVENTS);
	if (!src_edges[s][e])
		return false;
	*next = (enum src_state)(src_edges[s][e] - 1);
	return true;
}

bool dst_next(enum dst_state s, enum dst_event e, enum dst_state *next)
{
	assert(s < DST__STATES && e < DST__EVENTS);
	if (!dst_edges[s][e])
		return false;
	*next = (enum dst_state)(dst_edges[s][e] - 1);
	return true;
}

const char *src_state_name(enum src_state s)
{
	return s < SRC__STATES ? src_states[s] : "?";
}

const char *src_event_name(enum src_event e)
{
	return e < SRC__EVENTS ? src_events[e] : "?";
}

const char *dst_state_name(enum dst_state s)
{
	return s < DST__STATES ? dst_states[s] : "?";
}

const char *dst_event_name(enum dst_event e)
{
	return e < DST__EVENTS ? dst_events[e] : "?";
}

bool src_may_run(enum src_state s)
{
	return s < SRC_RELEASED || s == SRC_CANCELLING || s == SRC_FAILED;
}

bool dst_may_run(enum dst_state s)
{
	return s == DST_PERMITTED || s == DST_RUNNING || s == DST_FETCHING || s == DST_DONE;
}
