/* src/cluster/apiserver/flow.h - fairness between those who ask.
 *
 * Loop thread only.  What Ferry's own parts ask (nodes, controllers, the server itself) is never made to wait.  Of
 * everybody else, so many requests run at a time, by class and by user; the rest waits in a queue of its user, bounded
 * in length and time, and the queues are served in turn.  Beyond: 429.
 */
#ifndef APISERVER_FLOW_H
#define APISERVER_FLOW_H

#include "base/err.h"
#include "base/list.h"

struct apisrv;
struct apisrv_call;
struct flow;
struct flow_user;
struct sbuf;

enum { FLOW_QUEUE = 256, FLOW_SEATS = 400 };

/* Objects that cost as much as a small request: sent as they are stored, or read and made into another form. */
enum { TEXTS_PER_UNIT = 64, FORMS_PER_UNIT = 8 };

typedef void (*flow_fn)(struct apisrv_call *c, const char *accept);

/* A call's place; embedded there. */
struct flow_place {
	struct list link;	/* in its user's queue */
	struct flow_user *user; /* NULL: never limited, or not there yet */
	flow_fn go;
	char *accept; /* while it waits */
	usec_t since;
	unsigned units; /* of work beyond the first one */
	usec_t took;	/* in all its turns so far */
	bool has_seat, is_watching;
};

/* seats: requests of others than Ferry's parts at a time (0: FLOW_SEATS); watches: of one user (0:
 * LIMIT_WATCHERS_USER). */
MUST_CHECK enum rc flow_new(struct flow **out, struct apisrv *s, unsigned seats, unsigned watches);
struct flow *flow_free(struct flow *f); /* every call has left; NULL is fine; returns NULL */

/* Calls go now, later from the loop, or answers 429.  From inside the call (call_enter()). */
void flow_enter(struct apisrv_call *c, const char *accept, flow_fn go);
void flow_leave(struct apisrv_call *c); /* the call is over */
/* The work was more than one small request's: so many of these. */
void flow_charge(struct apisrv_call *c, size_t units);
/* The call was served outside of its turn for so long: that is charged as in it. */
void flow_worked(struct apisrv_call *c, usec_t took);
/* When its user was last given one of the turns that long lists are made in: a number that grows; Ferry's own parts 0. */
uint64_t flow_last_turn(const struct apisrv_call *c);
void flow_take_turn(struct apisrv_call *c);
/* May he open one more watch?  True: it counts until the call is over.  False: answered 429. */
bool flow_may_watch(struct apisrv_call *c);
void flow_metrics(const struct flow *f, struct sbuf *out);

#endif
