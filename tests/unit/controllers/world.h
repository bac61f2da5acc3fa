/* tests/unit/controllers/world.h - a cluster in memory: objects, reconcilers, and time that stands still.
 *
 * Plans are applied as an API server would: versions are compared, merge patches merged, finalizers and
 * graces kept.  Every reconcile runs twice on the same snapshot and must plan the same; after settling,
 * one more round must plan nothing.
 */
#ifndef TESTS_CONTROLLERS_WORLD_H
#define TESTS_CONTROLLERS_WORLD_H

#include "api/api.h"
#include "api/gen/api_types.h"
#include "base/sbuf.h"
#include "ctl/ctl.h"

struct world {
	struct kcache *cache;
	usec_t now;
	uint64_t rv;
	uint64_t next_uid;
	const struct ctl_def *defs[40];
	size_t n_defs;
	unsigned writes;    /* of VirtualMachine, VMI, VMIM and Pod objects */
	usec_t next_look;   /* earliest requeue of the last settling; USEC_INFINITY: none */
	struct sbuf trace;  /* plans of watched definitions, printed */
	const char *traced; /* name of the traced definition; NULL: all */
	bool is_tracing;
	struct sbuf events;		/* "reason: message" lines */
	const struct api_kind *refuses; /* creations of this kind are refused… */
	const char *refusal;		/* …with this text */
};

/* An object of a type, owned by the caller, from JSON with single quotes for double ones. */
void *world_decoded(const struct api_type *type, const char *text);

void world_init(struct world *w, const struct ctl_def *const *defs, size_t n_defs);
void world_fini(struct world *w);

/* From JSON with single quotes for double ones; gets uid, version and time. */
void world_add(struct world *w, const struct api_kind *kind, const char *text);
const void *world_get(struct world *w, const struct api_kind *kind, const char *ns,
		      const char *name);
/* A merge patch by somebody else (an agent, a user); counted as a write. */
void world_patch(struct world *w, const struct api_kind *kind, const char *ns, const char *name,
		 const char *text);
void world_delete(struct world *w, const struct api_kind *kind, const char *ns, const char *name,
		  int64_t grace);
/* The object is gone, whatever its finalizers say. */
void world_erase(struct world *w, const struct api_kind *kind, const char *ns, const char *name);

/* Reconciles everything until nothing is planned any more. */
void world_settle(struct world *w);
/* Lets time pass, then settles. */
void world_pass(struct world *w, usec_t delay);
/* To the next requeue, if there is one within limit; false otherwise. */
bool world_next(struct world *w, usec_t limit);
/* One reconcile of one key; its plan is printed, not applied. Owned by the caller. */
char *world_plan(struct world *w, const struct ctl_def *def, const char *ns, const char *name);

/* Every reconcile of every key, with each of its allocations failing once: it must report RC_NOMEM (or
 * get by without) and leak nothing.  Nothing is applied. */
void world_torture(struct world *w);

/* The value at a JSON pointer of an object, as text; "(none)" when absent. Valid until the next call. */
const char *world_at(struct world *w, const struct api_kind *kind, const char *ns, const char *name,
		     const char *pointer);
/* Status of a condition, or "(none)". */
const char *world_cond(struct world *w, const struct api_kind *kind, const char *ns,
		       const char *name, const char *type);
/* The node renews its lease now; the first time it is made. */
void world_renew(struct world *w, const char *node);
size_t world_count(struct world *w, const struct api_kind *kind);
bool world_saw(struct world *w, const char *event); /* "reason: message" was an event */

/* Compares text with tests/golden/controllers/<name>; GOLDEN_UPDATE=1 writes it anew. */
void golden_check(const char *name, const char *text);

#endif
