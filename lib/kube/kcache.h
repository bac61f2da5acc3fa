/* lib/kube/kcache.h - informers: local, typed, indexed copies of API objects.
 *
 * Loop thread only.  Per source (a kind, optionally narrowed by namespace and selectors): list in
 * pages, then watch from the list's resourceVersion; bookmarks move it on; a lost stream is resumed
 * with back-off and jitter; 410 lists again.  The copy is eventually consistent: it may lag, it never
 * goes backwards for one object, and it includes every write that was fed to it (kcache_feed()).
 *
 * Only the typed form of an object is kept.
 */
#ifndef KUBE_KCACHE_H
#define KUBE_KCACHE_H

#include "base/err.h"
#include "base/list.h"

struct api_kind;
struct kcache;
struct kcache_handler;
struct kobj;
struct kube;
struct loop;

struct kcache_source {
	const struct api_kind *kind;
	const char *ns;		    /* NULL: all */
	const char *label_selector; /* NULL: all */
	const char *field_selector;
};

struct kcache_opts {
	uint64_t seed;	    /* of the jitter; 0: random */
	usec_t backoff_min; /* first reconnect delay; 0: 50 ms */
	usec_t backoff_max; /* 0: 3 s: what is asked for in an outage is seen so soon after it */
	unsigned page;	    /* objects per list page; 0: 500 */
	unsigned watch_seconds; /* 0: KUBE_WATCH_SECONDS */
};

/* kube may be NULL: a cache that only kcache_put()/kcache_remove() fill (tests of reconcilers).
 * loop may be NULL together with kube.  opts may be NULL.  kube must outlive the cache. */
MUST_CHECK enum rc kcache_new(struct kcache **out, struct loop *loop, struct kube *kube,
			      const struct kcache_opts *opts, struct err *err);
struct kcache *kcache_free(struct kcache *c);
DEFINE_CLEANUP(struct kcache *, kcache_free);

/* One source per kind, added before kcache_start(); adding the same one again is fine, another
 * narrowing of the same kind is RC_EXISTS. */
MUST_CHECK enum rc kcache_add(struct kcache *c, const struct kcache_source *src, struct err *err);
MUST_CHECK enum rc kcache_start(struct kcache *c, struct err *err);

/* All sources have completed their first list. */
bool kcache_is_synced(const struct kcache *c);
bool kcache_has_kind(const struct kcache *c, const struct api_kind *kind);

/* fn(old, new): added (old NULL), changed, deleted (new NULL; old is the last known state).  Both are
 * borrowed for the call.  Called from the loop; the cache already shows the new state.  A relist may
 * collapse several changes, and a delete with a re-create of the same name, into one call.  kind NULL:
 * all kinds.  What the cache holds already is reported as added from inside kcache_on().
 * Handlers may not add or remove handlers, nor change the cache. */
typedef void (*kcache_event_fn)(const struct kobj *old, const struct kobj *new, void *arg);
MUST_CHECK enum rc kcache_on(struct kcache *c, struct kcache_handler **out,
			     const struct api_kind *kind, kcache_event_fn fn, void *arg,
			     struct err *err);
struct kcache_handler *kcache_handler_free(
	struct kcache_handler *h); /* accepts NULL; returns NULL */
DEFINE_CLEANUP(struct kcache_handler *, kcache_handler_free);
/* Called once, when kcache_is_synced() turns true (deferred when it already is). One per cache. */
void kcache_on_synced(struct kcache *c, void (*fn)(void *arg), void *arg);

/* Indexes.  Always there: by namespace, by each ownerReference's uid.  More, before kcache_start():
 * by the value of a label, or by what fn emits for an object (borrowed texts; any number of times). */
typedef void (*kcache_emit_fn)(void *ctx, const char *value);
typedef void (*kcache_index_fn)(const struct kobj *o, kcache_emit_fn emit, void *ctx);
MUST_CHECK enum rc kcache_index_label(struct kcache *c, const struct api_kind *kind,
				      const char *label,
				      struct err *err); /* the index's name is the label */
MUST_CHECK enum rc kcache_index(struct kcache *c, const struct api_kind *kind, const char *index,
				kcache_index_fn fn,
				struct err *err); /* same name again: same fn, fine */

/* Look-ups: borrowed, valid until the cache changes (not during a reconcile or a handler). ns is ""
 * or NULL for cluster-scoped kinds.  A kind without a source has no objects (asserts: a bug). */
const struct kobj *kcache_get(const struct kcache *c, const struct api_kind *kind, const char *ns,
			      const char *name);

/* Iteration in order of first appearance:
 *   struct kiter it;
 *   kcache_list(c, &api_kind_Pod, ns, &it);
 *   for (const struct kobj *o; (o = kiter_next(&it));) … */
struct kiter {
	const struct list *head;
	const struct list *at;
	bool is_ref; /* links are index references, not entries */
};
const struct kobj *kiter_next(struct kiter *it);
void kcache_list(const struct kcache *c, const struct api_kind *kind, const char *ns,
		 struct kiter *it);
void kcache_by_owner(const struct kcache *c, const struct api_kind *kind, const char *owner_uid,
		     struct kiter *it);
void kcache_by(const struct kcache *c, const struct api_kind *kind, const char *index,
	       const char *value, struct kiter *it);
size_t kcache_count(const struct kcache *c, const struct api_kind *kind);

/* Read-your-writes: the answer to one's own write enters the cache at once, unless the watch is
 * already past it; older watch events for the object are then ignored.  Handlers run.
 * Sources narrowed by a selector take it only for objects they already hold. Consumes nothing. */
MUST_CHECK enum rc kcache_feed(struct kcache *c, const struct kobj *o, struct err *err);
/* The object with this uid is gone (an own delete was answered so). */
void kcache_feed_gone(struct kcache *c, const struct api_kind *kind, const char *ns,
		      const char *name, const char *uid);

/* Caches without kube: put (consumes o, also on failure) and remove. Handlers run. */
MUST_CHECK enum rc kcache_put(struct kcache *c, struct kobj *o, struct err *err);
void kcache_remove(struct kcache *c, const struct api_kind *kind, const char *ns, const char *name);

struct kcache_stats {
	uint64_t lists;	   /* completed list runs */
	uint64_t watches;  /* streams opened */
	uint64_t expired;  /* 410 answers */
	uint64_t failures; /* lists and streams that failed */
	uint64_t events;   /* watch events taken */
	uint64_t stale;	   /* events and answers older than what the cache held */
	uint64_t bad;	   /* objects that could not be decoded (left out) */
	size_t objects;
};
struct kcache_stats kcache_stats(const struct kcache *c);

#endif
