/* lib/ctl/ctl.h - runs controllers: events -> keys -> reconcile (pure) -> plan -> execute.
 *
 * Loop thread only.  A key of one controller has at most one plan in flight.  A reconcile runs in the
 * same loop turn as the event that woke it or in the next one; no timer is between them.
 */
#ifndef CTL_CTL_H
#define CTL_CTL_H

#include "base/err.h"
#include "ctl/plan.h"
#include "ctl/view.h"

struct api_kind;
struct ctl;
struct exec;
struct kcache;
struct kobj;
struct kube;
struct loop;
struct sbuf;

/* Pure: reads the view, fills the plan, does no I/O, keeps no state; any order, any number of times.
 * A failure is told to ctl_opts.on_failure and retried with back-off. */
typedef enum rc (*ctl_reconcile_fn)(const struct view *v, const char *ns, const char *name,
				    struct plan *out, struct err *err);

/* Emits the keys of the primary kind that a change of obj concerns.  Called for the old and for the new
 * state of an object; NULL ns means a cluster-scoped key. */
typedef void (*ctl_emit_fn)(void *ctx, const char *ns, const char *name);
typedef void (*ctl_map_fn)(const struct view *v, const struct kobj *obj, ctl_emit_fn emit,
			   void *ctx);

/* Two that more than one controller needs: the cluster-wide key of the object's own name; and all of a kind. */
void ctl_map_name(const struct view *v, const struct kobj *obj, ctl_emit_fn emit, void *ctx);
void ctl_emit_all(const struct view *v, const struct api_kind *kind, ctl_emit_fn emit, void *ctx);

struct ctl_map {
	const struct api_kind *kind;
	ctl_map_fn map; /* NULL: the controlling ownerReference of the primary kind */
};

struct ctl_index {
	const struct api_kind *kind;
	const char *name; /* fn NULL: a label of this name */
	kcache_index_fn fn;
};

struct ctl_def {
	const char *name; /* "virtualmachine" */
	const struct api_kind *primary;
	ctl_reconcile_fn reconcile;
	const struct ctl_map *maps;	 /* ends with {NULL}; NULL: none */
	const struct ctl_index *indexes; /* ends with {NULL}; NULL: none */
	const struct api_kind *const
		*reads;	   /* kinds it reads without waking on them; ends with NULL */
	unsigned parallel; /* plans in flight; 0: 32.  1: each reconcile sees all earlier writes */
};

struct ctl_opts {
	const char *component; /* "virt-controller" */
	uint64_t seed;	       /* of the back-off jitter; 0: random */
	/* Sees each plan before it is carried out (traces, simulation); may be NULL. */
	void (*on_plan)(const struct ctl_def *def, const char *ns, const char *name,
			const struct plan *plan, void *arg);
	/* A reconcile or a plan failed (never RC_CONFLICT or RC_EXPIRED: those just look again).  in_a_row
	 * is 1 for the first failure since a success of the key: log that one at warn.  May be NULL. */
	void (*on_failure)(const struct ctl_def *def, const char *ns, const char *name,
			   const struct err *err, unsigned in_a_row, void *arg);
	/* The caches have been filled for the first time; may be NULL. */
	void (*on_synced)(void *arg);
	void *arg;
};

/* Adds sources and indexes for every kind that the definitions name (unless the cache has one).
 * ctl_start() starts the cache; reconciling begins once it is synced.  kube and cache must outlive it;
 * it takes the cache's kcache_on_synced(). */
MUST_CHECK enum rc ctl_new(struct ctl **out, struct loop *loop, struct kube *kube,
			   struct kcache *cache, const struct ctl_def *const *defs, size_t n_defs,
			   const struct ctl_opts *opts, struct err *err);
MUST_CHECK enum rc ctl_start(struct ctl *c, struct err *err);
struct ctl *ctl_free(struct ctl *c); /* drops what is in flight, like a crash would */
DEFINE_CLEANUP(struct ctl *, ctl_free);

/* Wake a key by hand. */
MUST_CHECK enum rc ctl_wake(struct ctl *c, const char *def_name, const char *ns, const char *name,
			    struct err *err);
bool ctl_is_idle(const struct ctl *c); /* synced, no key ready or busy (delayed ones may wait) */
struct exec *ctl_exec(struct ctl *c);
/* ferry_ctl_*, the executor's counters, workqueue_* and rest_client_*, Prometheus text. */
void ctl_metrics(const struct ctl *c, struct sbuf *out);
/* The queues alone, under another prefix than "workqueue": KubeVirt's is "kubevirt_workqueue". */
void ctl_queue_metrics(const struct ctl *c, const char *prefix, struct sbuf *out);

#endif
