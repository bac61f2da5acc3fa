/* lib/ctl/plan.h - what a reconciler wants done: writes in order, events, when to look again.
 *
 * Owner's thread only.  A plan is filled by a pure function and carried out by lib/ctl/exec.h, in
 * order, stopping at the first failure.  Errors are sticky: append freely, every function also
 * returns the plan's state so far (RC_OK, RC_NOMEM, RC_INVALID for a bug in the caller).
 */
#ifndef CTL_PLAN_H
#define CTL_PLAN_H

#include "base/err.h"

struct api_kind;
struct json;
struct sbuf;

enum plan_op_type { PLAN_CREATE, PLAN_PATCH, PLAN_DELETE, PLAN_BIND, PLAN_EVENT, PLAN_OP__MAX };

struct plan_op {
	enum plan_op_type type;
	const struct api_kind *kind; /* PLAN_EVENT: of the object it is about */
	char *ns;		     /* "" for cluster-scoped kinds */
	char *name;		     /* of the object; NULL: generateName */
	char *uid;		     /* PATCH, DELETE, BIND, EVENT: of the object; may be NULL */
	char *subresource;	     /* PATCH; NULL: the object itself */
	struct json *body;	     /* CREATE: object; PATCH: merge patch; BIND: Binding */
	void *obj;		     /* CREATE: the typed object; PATCH: the wished new state */
	bool confirms;		     /* PATCH that changes nothing: plan_confirm() */
	int64_t grace_seconds;	     /* DELETE; -1: default */
	char *propagation;	     /* DELETE; NULL: default */
	char *node;		     /* BIND */
	char *event_type;	     /* EVENT: "Normal", "Warning" */
	char *event_reason;
	char *event_message;
};

struct plan {
	struct plan_op *ops;
	size_t n_ops;
	size_t cap_ops;
	usec_t requeue_after; /* USEC_INFINITY: none */
	enum rc rc;
	struct err err;
};

void plan_init(struct plan *p);
/* Frees all; accepts NULL and a zeroed plan.  For locals: CLEANUP(plan_fini) struct plan p; */
void plan_fini(struct plan *p);
void plan_reset(struct plan *p);
/* Moves the content of *from (which becomes empty) into *to, which is overwritten. */
void plan_take(struct plan *to, struct plan *from);
bool plan_is_empty(const struct plan *p); /* neither an operation nor a requeue */

/* Create obj (consumed, also on failure).  Give it a deterministic name: an object of that name that
 * already exists with the same controller (ownerReference uid) counts as created. */
enum rc plan_create(struct plan *p, const struct api_kind *kind, void *obj);

/* Change old (the cached one, with its resourceVersion) into new_ (consumed, also on failure), which
 * starts as api_clone() of it.  Becomes a JSON merge patch of the difference that carries uid and
 * resourceVersion, so a stale view conflicts instead of overwriting.  No difference: no operation.
 * subresource "status": only .status is compared and sent; NULL: everything but .status where the kind
 * has a status subresource, everything where it has none.  Two updates of one object in one plan are
 * fine: the second gets the version that the first produced. */
enum rc plan_update(struct plan *p, const struct api_kind *kind, const void *old, void *new_,
		    const char *subresource);

/* Go on only if obj (the cached one) is still as it was looked at: an update that changes nothing, which the server answers
 * with a conflict when the view is stale, and does not store.  For operations on other objects that follow from what obj
 * says, which their own versions do not protect. */
enum rc plan_confirm(struct plan *p, const struct api_kind *kind, const void *obj);

/* grace_seconds -1 and propagation NULL ask for the kind's default.  uid (recommended) protects a
 * successor of the same name.  An object that is gone already counts as deleted. */
enum rc plan_delete(struct plan *p, const struct api_kind *kind, const char *ns, const char *name,
		    const char *uid, int64_t grace_seconds, const char *propagation);

/* POST pods/<name>/binding. */
enum rc plan_bind(struct plan *p, const char *ns, const char *pod, const char *uid,
		  const char *node);

/* An Event about obj (a typed object of kind).  type: "Normal" or "Warning".  Sent without waiting,
 * after the operations before it succeeded; equal ones are counted, floods are cut. */
enum rc plan_event(struct plan *p, const struct api_kind *kind, const void *obj, const char *type,
		   const char *reason, const char *fmt, ...) PRINTF_LIKE(6, 7);

/* Look at this key again after delay even if nothing changes; the shortest of several counts. */
enum rc plan_requeue_after(struct plan *p, usec_t delay);

/* One line per operation, stable, for golden tests and traces. */
void plan_print(const struct plan *p, struct sbuf *out);

#endif
