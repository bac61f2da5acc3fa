/* lib/kube/kcache_int.h - the two halves of the informers: store (kcache.c), list and watch
 * (kreflect.c).  Private to lib/kube.
 */
#ifndef KUBE_KCACHE_INT_H
#define KUBE_KCACHE_INT_H

#include "base/list.h"
#include "base/map.h"
#include "kube/kcache.h"
#include "kube/kobj.h"
#include "kube/kube.h"

struct ev_src;

struct kindex {
	char *name;
	kcache_index_fn fn; /* NULL: the label `name` */
	struct map buckets; /* value -> struct kbucket */
};

/* One object's place in one bucket. */
struct kref {
	struct list link;
	struct kentry *entry;
	struct kbucket *bucket;
};

struct kbucket {
	struct list refs;
	struct kindex *index;
	char value[];
};

struct kentry {
	struct list link; /* in ksource.all */
	struct kobj *obj;
	struct kref *refs;
	uint64_t list_run; /* the list run that saw it last */
	uint32_t n_refs;
	bool is_fed; /* came from kcache_feed(), not yet confirmed by list or watch */
	char key[];  /* "ns/name" */
};

/* A note that an own delete was answered while its DELETED event is still to come. */
struct kgone {
	uint64_t list_run; /* the list run that still had the object */
	char uid[];
};

enum ksource_state { KSRC_IDLE, KSRC_LISTING, KSRC_WATCHING, KSRC_WAITING, KSRC__MAX };

struct ksource {
	struct list link; /* in kcache.sources */
	struct kcache *cache;
	const struct api_kind *kind;
	char *ns;
	char *label_selector;
	char *field_selector;
	struct map entries; /* key -> struct kentry */
	struct list all;
	struct kindex *indexes; /* [0] namespace, [1] owner, then those asked for */
	size_t n_indexes;
	struct map gone; /* key -> struct kgone */

	enum ksource_state state;
	struct kube_call *list_call;
	struct kube_watch *watch;
	struct ev_src *timer;
	char *continue_;
	char *rv_text;	  /* where the watch stands; NULL: list first */
	uint64_t rv;	  /* the same as a number */
	uint64_t list_rv; /* of the list run in progress */
	uint64_t list_run;
	usec_t watch_since;
	unsigned failures;  /* in a row */
	unsigned old_lists; /* in a row: lists older than what was seen before */
	bool is_synced;
	bool is_reset; /* this list run replaces whatever is there */
};

struct kcache {
	struct loop *loop;
	struct kube *kube;
	struct kcache_opts opts;
	uint64_t rand;
	struct list sources;
	struct list handlers;
	struct kcache_stats stats;
	void (*on_synced)(void *arg);
	void *on_synced_arg;
	struct ev_src *synced_src;
	bool is_started;
	bool told_synced;
	unsigned notifying;
};

/* Puts o (referenced) under its key; handlers run.  Older than what is there: ignored, unless force. */
MUST_CHECK enum rc ksource_put(struct ksource *s, struct kobj *o, bool is_fed, bool force);
void ksource_remove(struct ksource *s, struct kentry *e);
struct kentry *ksource_find(const struct ksource *s, const char *ns, const char *name);
void ksource_synced(struct ksource *s); /* first list done */

/* Starts listing (deferred). Never fails: a failure to start is retried with back-off. */
void kreflect_start(struct ksource *s);
void kreflect_stop(struct ksource *s);
MUST_CHECK enum rc kreflect_init(struct ksource *s, struct err *err);

#endif
