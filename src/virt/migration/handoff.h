/* src/virt/migration/handoff.h - who may run the guest during a move: the two agents' tables.
 *
 * Pure.  docs/internals/handoff.md draws them and says what each step relies on.
 *
 * The rules they keep: the source's `completed` is the only word that counts, never the target's; the
 * release is durable before it is told to anybody; after it the source never resumes; the target runs
 * only with the permission that follows the release.
 */
#ifndef VIRT_HANDOFF_H
#define VIRT_HANDOFF_H

#include "base/err.h"

enum src_state {
	SRC_IDLE,
	SRC_PREPARING, /* key, network, the start written to the VMI */
	SRC_STARTING,  /* QEMU was told to begin */
	SRC_MOVING,
	SRC_SWITCHING, /* the guest stands, its frames are sent on, QEMU goes on */
	SRC_RELEASED,  /* durable: never resumes; the permission is on its way */
	SRC_STREAMING, /* post-copy: the target runs it, pages are still here */
	SRC_GIVEN,     /* the target runs it, and has all of it */
	SRC_CANCELLING,
	SRC_FAILED, /* the guest runs here, or never left */
	SRC_LOST,   /* released, and the target cannot run it */
	SRC__STATES,
};

enum src_event {
	SRCEV_BEGIN, /* the VMI names this node as source, and the target listens */
	SRCEV_READY,
	SRCEV_ACCEPTED, /* QEMU has begun */
	SRCEV_STANDS,	/* pre-switchover */
	SRCEV_RELEASED, /* completed, or in post-copy for good, and released durably */
	SRCEV_TAKEN,	/* the target answered the permission, and has all pages */
	SRCEV_SHARED,	/* post-copy: it answered, and pages are still here */
	SRCEV_SENT,	/* post-copy: the last page has gone over */
	SRCEV_BROKEN,	/* post-copy: one half has died */
	SRCEV_REFUSED,	/* the target says that it cannot run the guest */
	SRCEV_CANCEL,
	SRCEV_ENDED, /* failed or cancelled: the guest is here */
	SRC__EVENTS,
};

enum dst_state {
	DST_IDLE,
	DST_PREPARING,
	DST_LISTENING, /* published */
	DST_KEYED,     /* the one-time key was given to the source */
	DST_PERMITTED, /* permission came; the guest is being let go */
	DST_RUNNING,   /* it runs here; the VMI has still to say so */
	DST_FETCHING,  /* post-copy: the VMI says so, pages are still at the source */
	DST_DONE,
	DST_FAILED,
	DST__STATES,
};

enum dst_event {
	DSTEV_BEGIN,
	DSTEV_LISTENS,
	DSTEV_KEY,
	DSTEV_PERMISSION,
	DSTEV_RESUMED,
	DSTEV_WRITTEN, /* VMI and PortBinding name this node, and the move is completed */
	DSTEV_NAMED,   /* post-copy: they name this node, the move is not completed */
	DSTEV_WHOLE,   /* post-copy: the last page has come */
	DSTEV_FAILED,
	DST__EVENTS,
};

/* False: the event is refused in this state. */
bool src_next(enum src_state s, enum src_event e, enum src_state *next);
bool dst_next(enum dst_state s, enum dst_event e, enum dst_state *next);

const char *src_state_name(enum src_state s);
const char *src_event_name(enum src_event e);
const char *dst_state_name(enum dst_state s);
const char *dst_event_name(enum dst_event e);

/* May the guest's vCPUs run at this side in this state?  At most one side of a move says yes. */
bool src_may_run(enum src_state s);
bool dst_may_run(enum dst_state s);

#endif
