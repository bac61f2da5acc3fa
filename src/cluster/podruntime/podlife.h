/* src/cluster/podruntime/podlife.h - the life of a pod on this node, as a table.
 *
 * Pure.  docs/internals/podruntime.md draws it.
 */
#ifndef CLUSTER_PODLIFE_H
#define CLUSTER_PODLIFE_H

#include "base/err.h"

enum pod_state {
	POD_NEW,
	POD_PREPARING, /* network, volumes, images */
	POD_WAITING,   /* something is missing; tried again after a back-off */
	POD_ABORTING,  /* deleted while a step was under way */
	POD_STARTING,
	POD_RUNNING,
	POD_STOPPING,
	POD_CLEANING,
	POD_DONE, /* nothing of it is left here but its record */
	POD__STATES,
};

enum pod_event {
	PODEV_SEEN,  /* bound to this node, never started here */
	PODEV_FOUND, /* started by an earlier process of this agent */
	PODEV_PREPARED,
	PODEV_MISSING, /* a step failed in a way that may pass; or nothing was found of an earlier start */
	PODEV_FAILED, /* for good */
	PODEV_RETRY,  /* the back-off is over */
	PODEV_STARTED,
	PODEV_EXITED,
	PODEV_DELETED, /* deletion was asked for, or the object is gone */
	PODEV_CLEANED,
	POD__EVENTS,
};

enum pod_act {
	PODACT_REFUSED, /* the event is not allowed in this state */
	PODACT_NONE,
	PODACT_PREPARE,
	PODACT_WAIT,
	PODACT_START,
	PODACT_ADOPT,
	PODACT_REPORT,
	PODACT_STOP,
	PODACT_CLEAN,
	PODACT_FINISH,
	POD__ACTS,
};

struct pod_edge {
	enum pod_state next;
	enum pod_act act;
};

struct pod_edge pod_edge(enum pod_state s, enum pod_event e);
const char *pod_state_name(enum pod_state s);
const char *pod_event_name(enum pod_event e);

#endif
