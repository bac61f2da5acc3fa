#include "cluster/podruntime/podlife.h"

static const char *const state_names[] = {
	"New",	   "Preparing", "Waiting",  "Aborting", "Starting",
	"Running", "Stopping",	"Cleaning", "Done",
};
static const char *const event_names[] = {
	"Seen",	 "Found",   "Prepared", "Missing", "Failed",
	"Retry", "Started", "Exited",	"Deleted", "Cleaned",
};
static_assert(ARRAY_SIZE(state_names) == POD__STATES, "name every state");
static_assert(ARRAY_SIZE(event_names) == POD__EVENTS, "name every event");

#define TO(next_, act_)                                   \
	{                                                 \
		.next = POD_##next_, .act = PODACT_##act_ \
	}

/* Every legal move; an empty cell refuses the event. */
static const struct pod_edge edges[POD__STATES][POD__EVENTS] = {
	[POD_NEW] = {[PODEV_SEEN] = TO(PREPARING, PREPARE),
		     [PODEV_FOUND] = TO(STARTING, ADOPT),
		     [PODEV_FAILED] = TO(CLEANING, CLEAN),
		     [PODEV_DELETED] = TO(CLEANING, CLEAN)},
	[POD_PREPARING] = {[PODEV_PREPARED] = TO(STARTING, START),
			   [PODEV_MISSING] = TO(WAITING, WAIT),
			   [PODEV_FAILED] = TO(CLEANING, CLEAN),
			   [PODEV_DELETED] = TO(ABORTING, NONE)},
	[POD_WAITING] =
		{[PODEV_RETRY] = TO(PREPARING, PREPARE), [PODEV_DELETED] = TO(CLEANING, CLEAN)},
	[POD_ABORTING] = {[PODEV_PREPARED] = TO(CLEANING, CLEAN),
			  [PODEV_MISSING] = TO(CLEANING, CLEAN),
			  [PODEV_FAILED] = TO(CLEANING, CLEAN),
			  [PODEV_DELETED] = TO(ABORTING, NONE)},
	[POD_STARTING] = {[PODEV_STARTED] = TO(RUNNING, REPORT),
			  [PODEV_MISSING] = TO(PREPARING, PREPARE),
			  [PODEV_FAILED] = TO(CLEANING, CLEAN),
			  [PODEV_EXITED] = TO(CLEANING, CLEAN),
			  [PODEV_DELETED] = TO(STOPPING, STOP)},
	[POD_RUNNING] =
		{[PODEV_EXITED] = TO(CLEANING, CLEAN), [PODEV_DELETED] = TO(STOPPING, STOP)},
	[POD_STOPPING] = {[PODEV_STARTED] = TO(STOPPING, STOP),
			  [PODEV_MISSING] = TO(CLEANING, CLEAN),
			  [PODEV_FAILED] = TO(CLEANING, CLEAN),
			  [PODEV_EXITED] = TO(CLEANING, CLEAN),
			  [PODEV_DELETED] = TO(STOPPING, STOP)},
	[POD_CLEANING] = {[PODEV_CLEANED] = TO(DONE, FINISH),
			  [PODEV_MISSING] = TO(CLEANING, WAIT),
			  [PODEV_RETRY] = TO(CLEANING, CLEAN),
			  [PODEV_DELETED] = TO(CLEANING, NONE)},
	[POD_DONE] = {[PODEV_DELETED] = TO(DONE, FINISH)},
};
#undef TO

struct pod_edge pod_edge(enum pod_state s, enum pod_event e)
{
	assert(s < POD__STATES && e < POD__EVENTS);
	return edges[s][e];
}

const char *pod_state_name(enum pod_state s)
{
	return s < POD__STATES ? state_names[s] : "?";
}

const char *pod_event_name(enum pod_event e)
{
	return e < POD__EVENTS ? event_names[e] : "?";
}
