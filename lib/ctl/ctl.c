#include "ctl/ctl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/meta.h"
#include "base/limits.h"
#include "base/list.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "ctl/exec.h"
#include "ctl/prom.h"
#include "ctl/restmetrics.h"
#include "ctl/workq.h"
#include "ev/ev.h"
#include "kube/kube.h"

/* Theory of operation
 *
 *   cache change -> keys (primary, maps) -> workq -> reconcile -> plan -> executor -> workq_done
 *
 * One cache handler serves all controllers.  Each controller has its own queue and at most `parallel`
 * plans in flight; a key is busy from workq_get() until its plan's end, so it never has two.  Nothing is
 * reconciled before the caches are full: an object that is not seen yet would look deleted.
 */

enum { DEFAULT_PARALLEL = 32, KEY_BYTES = 2 * LIMIT_NAME_BYTES + 2 };

static const usec_t RESYNC_AFTER = USEC_PER_SEC;

struct runner;

struct run {
	struct list link; /* in runner.runs */
	struct runner *runner;
	struct exec_run *exec;
	char key[];
};

struct runner {
	struct ctl *ctl;
	const struct ctl_def *def;
	struct workq *q;
	struct list runs;
	unsigned n_runs;
	unsigned parallel;
	struct map refused; /* key -> struct err: the refusal that stopped its last plan */
	uint64_t reconciles, plans, errors;
	usec_t busy_time; /* spent inside reconcile functions */
};

struct ctl {
	struct loop *loop;
	struct kcache *cache;
	struct exec *exec;
	struct rest_metrics *rest;
	struct ctl_opts opts;
	struct kcache_handler *handler;
	struct runner *runners;
	size_t n_runners;
	bool is_active;	       /* caches are full */
	uint64_t lost_keys;    /* adds that failed for want of memory */
	struct ev_src *resync; /* armed after one */
};

static void on_ready(void *arg);
static void on_synced(void *arg);
static void on_change(const struct kobj *old, const struct kobj *new, void *arg);
static void on_resync(void *arg);

/* Set-up */

static enum rc add_source(struct kcache *cache, const struct api_kind *kind, struct err *err)
{
	if (kcache_has_kind(cache, kind))
		return RC_OK;
	return kcache_add(cache, &(struct kcache_source){.kind = kind}, err);
}

static enum rc add_sources(struct kcache *cache, const struct ctl_def *d, struct err *err)
{
	enum rc rc = add_source(cache, d->primary, err);

	for (const struct ctl_map *m = d->maps; !rc && m && m->kind; m++)
		rc = add_source(cache, m->kind, err);
	for (const struct api_kind *const *k = d->reads; !rc && k && *k; k++)
		rc = add_source(cache, *k, err);
	for (const struct ctl_index *x = d->indexes; !rc && x && x->kind; x++) {
		rc = add_source(cache, x->kind, err);
		if (!rc)
			rc = kcache_index(cache, x->kind, x->name, x->fn, err);
	}
	return rc;
}

static void free_refusal(void *p)
{
	mem_free(p);
}

static enum rc runner_init(struct runner *r, struct ctl *c, const struct ctl_def *d, size_t i)
{
	struct workq_opts o = {.seed = c->opts.seed ? c->opts.seed + i : 0};
	enum rc rc;

	r->ctl = c;
	r->def = d;
	list_init(&r->runs);
	map_init(&r->refused, free_refusal);
	r->parallel = d->parallel ? d->parallel : DEFAULT_PARALLEL;
	rc = workq_new(&r->q, c->loop, d->name, &o);
	if (!rc)
		workq_on_ready(r->q, on_ready, r);
	return rc;
}

enum rc ctl_new(struct ctl **out, struct loop *loop, struct kube *kube, struct kcache *cache,
		const struct ctl_def *const *defs, size_t n_defs, const struct ctl_opts *opts,
		struct err *err)
{
	CLEANUP(ctl_freep) struct ctl *c = mem_alloc(sizeof(*c));
	enum rc rc = RC_OK;

	if (!c)
		return err_set(err, RC_NOMEM, "cannot allocate the controllers");
	c->loop = loop;
	c->cache = cache;
	if (opts)
		c->opts = *opts;
	c->runners = mem_calloc(n_defs ? n_defs : 1, sizeof(*c->runners));
	if (!c->runners)
		return err_set(err, RC_NOMEM, "cannot allocate the controllers");
	for (size_t i = 0; i < n_defs; i++) {
		rc = add_sources(cache, defs[i], err);
		if (rc)
			return err_prepend(err, "controller '%s'", defs[i]->name), rc;
		c->n_runners++;
		if (runner_init(&c->runners[i], c, defs[i], i))
			return err_set(err, RC_NOMEM, "cannot allocate the controllers");
	}
	rc = ev_timer_after(loop, &c->resync, USEC_INFINITY, on_resync, c, err);
	if (rc)
		return rc;
	if (rest_metrics_new(&c->rest, kube))
		return err_set(err, RC_NOMEM, "cannot allocate the controllers");
	rc = exec_new(&c->exec, loop, kube, cache,
		      &(struct exec_opts){.component = c->opts.component}, err);
	if (rc)
		return rc;
	*out = STEAL(c);
	return RC_OK;
}

enum rc ctl_start(struct ctl *c, struct err *err)
{
	enum rc rc = kcache_on(c->cache, &c->handler, NULL, on_change, c, err);

	if (rc)
		return rc;
	kcache_on_synced(c->cache, on_synced, c);
	return kcache_start(c->cache, err);
}

struct ctl *ctl_free(struct ctl *c)
{
	if (!c)
		return NULL;
	if (c->handler)
		kcache_on_synced(c->cache, NULL, NULL);
	kcache_handler_free(c->handler);
	for (size_t i = 0; i < c->n_runners; i++) {
		struct runner *r = &c->runners[i];

		while (r->runs.next && !list_is_empty(&r->runs)) {
			struct run *run = LIST_ENTRY(list_pop_head(&r->runs), struct run, link);

			exec_run_free(run->exec);
			mem_free(run);
		}
		workq_free(r->q);
		map_fini(&r->refused);
	}
	exec_free(c->exec);
	rest_metrics_free(c->rest);
	ev_src_free(c->resync);
	mem_free(c->runners);
	return mem_free(c);
}

/* Changes -> keys */

static void wake(void *ctx, const char *ns, const char *name)
{
	struct runner *r = ctx;
	char key[KEY_BYTES];

	if (str_is_empty(name))
		return;
	snprintf(key, sizeof(key), "%.*s/%.*s", LIMIT_NAME_BYTES, ns ? ns : "", LIMIT_NAME_BYTES,
		 name);
	if (workq_add(r->q, key) == RC_OK)
		return;
	/* Which key it was is not remembered: a moment later all are looked at. */
	r->ctl->lost_keys++;
	ev_timer_rearm(r->ctl->resync, RESYNC_AFTER);
}

static void wake_owner(struct runner *r, const struct kobj *o)
{
	const OwnerReference *owner = api_controller_of(kobj_meta(o));

	if (owner && str_eq(owner->kind, r->def->primary->kind) &&
	    str_eq(owner->apiVersion, r->def->primary->api_version))
		wake(r, kobj_ns(o), owner->name);
}

static void map_one(struct runner *r, const struct view *v, const struct kobj *o)
{
	if (kobj_kind(o) == r->def->primary)
		wake(r, kobj_ns(o), kobj_name(o));
	for (const struct ctl_map *m = r->def->maps; m && m->kind; m++) {
		if (m->kind != kobj_kind(o))
			continue;
		if (m->map)
			m->map(v, o, wake, r);
		else
			wake_owner(r, o);
	}
}

static void on_change(const struct kobj *old, const struct kobj *new, void *arg)
{
	struct ctl *c = arg;
	struct view v = {.cache = c->cache, .now = loop_realtime(c->loop)};

	for (size_t i = 0; i < c->n_runners; i++) {
		if (old)
			map_one(&c->runners[i], &v, old);
		if (new)
			map_one(&c->runners[i], &v, new);
	}
}

static void on_resync(void *arg)
{
	struct ctl *c = arg;

	for (size_t i = 0; i < c->n_runners; i++) {
		struct runner *r = &c->runners[i];
		struct kiter it;

		kcache_list(c->cache, r->def->primary, NULL, &it);
		for (const struct kobj *o; (o = kiter_next(&it));)
			wake(r, kobj_ns(o), kobj_name(o)); /* arms the timer again when it fails */
	}
}

/* Keys -> plans */

static void tell_failure(struct runner *r, const char *key, const struct err *err)
{
	const char *slash = strchr(key, '/');
	char ns[LIMIT_NAME_BYTES + 1];

	r->errors++;
	if (!r->ctl->opts.on_failure)
		return;
	snprintf(ns, sizeof(ns), "%.*s", (int)(slash - key), key);
	r->ctl->opts.on_failure(r->def, ns, slash + 1, err, workq_failures(r->q, key) + 1,
				r->ctl->opts.arg);
}

static enum retry retry_of(enum rc rc)
{
	if (rc == RC_OK)
		return RETRY_NO;
	/* Whatever is wrong now may be right later: controllers never give up on a key. */
	return rc_retry(rc) == RETRY_NOW ? RETRY_NOW : RETRY_BACKOFF;
}

static bool is_refusal(enum rc rc)
{
	return rc == RC_INVALID || rc == RC_BAD_REQUEST || rc == RC_FORBIDDEN ||
	       rc == RC_UNSUPPORTED || rc == RC_TOO_BIG;
}

/* Kept for the key's next reconcile; without memory it is only not told. */
static void keep_refusal(struct runner *r, const char *key, enum rc rc, const struct err *err)
{
	if (rc == RC_OK)
		map_del(&r->refused, key);
	if (!is_refusal(rc) || !err)
		return;
	struct err *copy = mem_dup(err, sizeof(*err));

	if (copy && map_set(&r->refused, key, copy))
		mem_free(copy);
}

static void key_done(struct runner *r, const char *key, enum rc rc, const struct err *err)
{
	if (rc && rc != RC_CONFLICT && rc != RC_EXPIRED)
		tell_failure(r, key, err);
	keep_refusal(r, key, rc, err);
	workq_done(r->q, key, retry_of(rc));
}

static void on_executed(enum rc rc, const struct err *err, void *arg)
{
	struct run *run = arg;
	struct runner *r = run->runner;

	list_remove(&run->link);
	r->n_runs--;
	exec_run_free(run->exec);
	key_done(r, run->key, rc, err);
	mem_free(run);
	on_ready(r);
}

static enum rc carry_out(struct runner *r, const char *key, struct plan *plan, struct err *err)
{
	size_t n = strlen(key) + 1;
	struct run *run = mem_alloc(sizeof(*run) + n);
	enum rc rc;

	if (!run)
		return err_set(err, RC_NOMEM, "cannot allocate a run");
	memcpy(run->key, key, n);
	run->runner = r;
	rc = exec_plan(r->ctl->exec, &run->exec, plan, on_executed, run, err);
	if (rc) {
		mem_free(run);
		return rc;
	}
	list_push_tail(&r->runs, &run->link);
	r->n_runs++;
	r->plans++;
	return RC_OK;
}

static void reconcile_key(struct runner *r, const char *key)
{
	struct ctl *c = r->ctl;
	struct view v = {.cache = c->cache,
			 .now = loop_realtime(c->loop),
			 .refused = map_get(&r->refused, key)};
	CLEANUP(plan_fini) struct plan plan;
	const char *slash = strchr(key, '/');
	char ns[LIMIT_NAME_BYTES + 1];
	usec_t start = loop_now(c->loop);
	struct err err = {0};
	enum rc rc;

	snprintf(ns, sizeof(ns), "%.*s", (int)(slash - key), key);
	plan_init(&plan);
	rc = r->def->reconcile(&v, ns, slash + 1, &plan, &err);
	r->reconciles++;
	r->busy_time += loop_now(c->loop) - start;
	if (!rc && plan.rc)
		rc = err_copy(&err, &plan.err);
	if (rc) {
		key_done(r, key, rc, &err);
		return;
	}
	if (c->opts.on_plan)
		c->opts.on_plan(r->def, ns, slash + 1, &plan, c->opts.arg);
	if (plan.requeue_after != USEC_INFINITY)
		ignore_rc(workq_add_after(r->q, key,
					  plan.requeue_after)); /* known key: cannot fail */
	if (!plan.n_ops) {
		key_done(r, key, RC_OK, NULL);
		return;
	}
	rc = carry_out(r, key, &plan, &err);
	if (rc)
		key_done(r, key, rc, &err);
}

static void on_ready(void *arg)
{
	struct runner *r = arg;
	const char *key;

	if (!r->ctl->is_active)
		return;
	while (r->n_runs < r->parallel && (key = workq_get(r->q)))
		reconcile_key(r, key);
}

static void on_synced(void *arg)
{
	struct ctl *c = arg;

	if (c->is_active)
		return;
	c->is_active = true;
	if (c->opts.on_synced)
		c->opts.on_synced(c->opts.arg);
	for (size_t i = 0; i < c->n_runners; i++)
		on_ready(&c->runners[i]);
}

/* Outside */

enum rc ctl_wake(struct ctl *c, const char *def_name, const char *ns, const char *name,
		 struct err *err)
{
	char key[KEY_BYTES];

	for (size_t i = 0; i < c->n_runners; i++) {
		if (!str_eq(c->runners[i].def->name, def_name))
			continue;
		snprintf(key, sizeof(key), "%.*s/%.*s", LIMIT_NAME_BYTES, ns ? ns : "",
			 LIMIT_NAME_BYTES, name);
		if (workq_add(c->runners[i].q, key))
			return err_set(err, RC_NOMEM, "cannot queue '%s'", key);
		return RC_OK;
	}
	return err_set(err, RC_NOT_FOUND, "there is no controller '%s'", def_name);
}

bool ctl_is_idle(const struct ctl *c)
{
	if (!c->is_active)
		return false;
	for (size_t i = 0; i < c->n_runners; i++)
		if (workq_depth(c->runners[i].q) || workq_busy(c->runners[i].q))
			return false;
	return true;
}

struct exec *ctl_exec(struct ctl *c)
{
	return c->exec;
}

static void runner_metric(const struct ctl *c, struct sbuf *out, const char *name, size_t offset)
{
	for (size_t i = 0; i < c->n_runners; i++) {
		const struct runner *r = &c->runners[i];
		uint64_t v;

		memcpy(&v, (const char *)r + offset, sizeof(v));
		sbuf_addf(out, "%s{controller=\"%s\"} %" PRIu64 "\n", name, r->def->name, v);
	}
}

/* One number of each queue. */
static void queue_numbers(const struct ctl *c, const char *prefix, const char *rest,
			  const char *type, const char *help,
			  double (*of)(const struct workq *q, const struct workq_stats *st),
			  struct sbuf *out)
{
	char name[64];

	snprintf(name, sizeof(name), "%s_%s", prefix, rest);
	prom_head(out, name, type, help);
	for (size_t i = 0; i < c->n_runners; i++) {
		const struct prom_label label = {"name", c->runners[i].def->name};
		struct workq_stats st;

		workq_get_stats(c->runners[i].q, &st);
		prom_sample(out, name, &label, 1, NULL, of(c->runners[i].q, &st));
	}
}

static void queue_times(const struct ctl *c, const char *prefix, const char *rest, const char *help,
			size_t offset, struct sbuf *out)
{
	char name[64];

	snprintf(name, sizeof(name), "%s_%s", prefix, rest);
	prom_head(out, name, "histogram", help);
	for (size_t i = 0; i < c->n_runners; i++) {
		CLEANUP(sbuf_fini) struct sbuf label = SBUF_INIT(512);
		struct workq_stats st;

		prom_label_add(&label, "name", c->runners[i].def->name);
		workq_get_stats(c->runners[i].q, &st);
		prom_hist_print(
			out, name, &label, &workq_buckets,
			(const struct prom_hist *)(const void *)((const char *)&st + offset));
	}
}

static double depth_of(const struct workq *q, const struct workq_stats *st)
{
	(void)st;
	return (double)workq_depth(q);
}

static double adds_of(const struct workq *q, const struct workq_stats *st)
{
	(void)q;
	return (double)st->adds;
}

static double retries_of(const struct workq *q, const struct workq_stats *st)
{
	(void)q;
	return (double)st->retries;
}

static double unfinished_of(const struct workq *q, const struct workq_stats *st)
{
	(void)q;
	return (double)st->unfinished / 1e6;
}

static double longest_of(const struct workq *q, const struct workq_stats *st)
{
	(void)q;
	return (double)st->longest / 1e6;
}

void ctl_queue_metrics(const struct ctl *c, const char *prefix, struct sbuf *out)
{
	queue_numbers(c, prefix, "depth", "gauge", "Keys that are due.", depth_of, out);
	queue_numbers(c, prefix, "adds_total", "counter", "Keys that became due.", adds_of, out);
	queue_times(c, prefix, "queue_duration_seconds", "How long keys were due.",
		    offsetof(struct workq_stats, waited), out);
	queue_times(c, prefix, "work_duration_seconds",
		    "How long keys were worked on: reconcile and all its writes.",
		    offsetof(struct workq_stats, worked), out);
	queue_numbers(c, prefix, "unfinished_work_seconds", "gauge",
		      "How long the keys in work are so, summed.", unfinished_of, out);
	queue_numbers(c, prefix, "longest_running_processor_seconds", "gauge",
		      "How long the oldest key in work is so.", longest_of, out);
	queue_numbers(c, prefix, "retries_total", "counter", "Keys put back for later.", retries_of,
		      out);
}

void ctl_metrics(const struct ctl *c, struct sbuf *out)
{
	struct kcache_stats s = kcache_stats(c->cache);

	prom_head(out, "ferry_ctl_reconciles_total", "counter", "Calls of reconcile functions.");
	runner_metric(c, out, "ferry_ctl_reconciles_total", offsetof(struct runner, reconciles));
	prom_head(out, "ferry_ctl_plans_total", "counter", "Plans with something to do.");
	runner_metric(c, out, "ferry_ctl_plans_total", offsetof(struct runner, plans));
	prom_head(out, "ferry_ctl_failures_total", "counter", "Failed reconciles and plans.");
	runner_metric(c, out, "ferry_ctl_failures_total", offsetof(struct runner, errors));
	prom_head(out, "ferry_ctl_reconcile_microseconds_total", "counter",
		  "Time spent inside reconcile functions.");
	runner_metric(c, out, "ferry_ctl_reconcile_microseconds_total",
		      offsetof(struct runner, busy_time));
	prom_head(out, "ferry_ctl_queue_keys", "gauge", "Keys by where they stand.");
	for (size_t i = 0; i < c->n_runners; i++) {
		const struct runner *r = &c->runners[i];

		sbuf_addf(out,
			  "ferry_ctl_queue_keys{controller=\"%s\",state=\"ready\"} %zu\n"
			  "ferry_ctl_queue_keys{controller=\"%s\",state=\"busy\"} %zu\n"
			  "ferry_ctl_queue_keys{controller=\"%s\",state=\"waiting\"} %zu\n",
			  r->def->name, workq_depth(r->q), r->def->name, workq_busy(r->q),
			  r->def->name, workq_waiting(r->q));
	}
	prom_head(
		out, "ferry_ctl_lost_keys_total", "counter",
		"Keys that could not be queued for want of memory; all keys were looked at again.");
	sbuf_addf(out, "ferry_ctl_lost_keys_total %" PRIu64 "\n", c->lost_keys);
	prom_head(out, "ferry_cache_objects", "gauge", "Objects in the local copies.");
	sbuf_addf(out, "ferry_cache_objects %zu\n", s.objects);
	prom_head(out, "ferry_cache_events_total", "counter", "What the informers met.");
	sbuf_addf(out,
		  "ferry_cache_events_total{what=\"event\"} %" PRIu64 "\n"
		  "ferry_cache_events_total{what=\"list\"} %" PRIu64 "\n"
		  "ferry_cache_events_total{what=\"watch\"} %" PRIu64 "\n"
		  "ferry_cache_events_total{what=\"expired\"} %" PRIu64 "\n"
		  "ferry_cache_events_total{what=\"stale\"} %" PRIu64 "\n"
		  "ferry_cache_events_total{what=\"undecodable\"} %" PRIu64 "\n"
		  "ferry_cache_events_total{what=\"failure\"} %" PRIu64 "\n",
		  s.events, s.lists, s.watches, s.expired, s.stale, s.bad, s.failures);
	exec_metrics(c->exec, out);
	ctl_queue_metrics(c, "workqueue", out);
	rest_metrics_print(c->rest, out);
}

/* --- maps --- */

void ctl_map_name(const struct view *v, const struct kobj *obj, ctl_emit_fn emit, void *ctx)
{
	(void)v;
	emit(ctx, NULL, kobj_name(obj));
}

void ctl_emit_all(const struct view *v, const struct api_kind *kind, ctl_emit_fn emit, void *ctx)
{
	struct kiter it;

	kcache_list(v->cache, kind, NULL, &it);
	for (const struct kobj *o; (o = kiter_next(&it));)
		emit(ctx, *kobj_ns(o) ? kobj_ns(o) : NULL, kobj_name(o));
}
