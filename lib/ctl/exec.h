/* lib/ctl/exec.h - carries plans out against the API server, and counts what it wrote.
 *
 * Loop thread only.  The first request leaves inside exec_run(), without any timer.  Answers are fed
 * into the cache (kcache_feed()) before the next step, so the next reconcile sees its own writes.
 */
#ifndef CTL_EXEC_H
#define CTL_EXEC_H

#include "base/err.h"

struct api_kind;
struct exec;
struct exec_run;
struct kcache;
struct kube;
struct loop;
struct plan;
struct sbuf;

struct exec_opts {
	const char *component; /* Event.source.component, e.g. "virt-controller" */
	const char *host;      /* Event.source.host; NULL: none */
	unsigned event_burst;  /* events per object before the rate counts; 0: 25 */
	usec_t event_refill;   /* one more event per object each; 0: 60 s */
};

/* cache may be NULL (nothing is fed). */
MUST_CHECK enum rc exec_new(struct exec **out, struct loop *loop, struct kube *kube,
			    struct kcache *cache, const struct exec_opts *opts, struct err *err);
struct exec *exec_free(
	struct exec *x); /* drops what is in flight; runs given out must be freed first */
DEFINE_CLEANUP(struct exec *, exec_free);

/* The outcome of a plan: RC_OK, or the failure of the operation that stopped it.  "Look again"
 * (RC_CONFLICT, RC_EXPIRED) is an ordinary outcome, not an error to report. */
typedef void (*exec_done_fn)(enum rc rc, const struct err *err, void *arg);
/* Takes the plan's content.  fn runs exactly once, from the loop, unless the run is freed before. */
MUST_CHECK enum rc exec_plan(struct exec *x, struct exec_run **out, struct plan *plan,
			     exec_done_fn fn, void *arg, struct err *err);
struct exec_run *exec_run_free(
	struct exec_run *r); /* legal inside fn; accepts NULL; returns NULL */
DEFINE_CLEANUP(struct exec_run *, exec_run_free);

/* An Event outside any plan (agents). obj is a typed object of kind. */
void exec_event(struct exec *x, const struct api_kind *kind, const void *obj, const char *type,
		const char *reason, const char *fmt, ...) PRINTF_LIKE(6, 7);

/* Writes answered 2xx since the start; kind NULL: all kinds but Event. */
uint64_t exec_writes(const struct exec *x, const struct api_kind *kind);
/* ferry_api_writes_total{kind="…",verb="…"} and friends, Prometheus text. */
void exec_metrics(const struct exec *x, struct sbuf *out);

#endif
