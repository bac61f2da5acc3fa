#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "ev/ev.h"
#include "json/json.h"
#include "kube/kcache_int.h"
#include "api/type.h"

/* Theory of operation
 *
 *   IDLE -> LISTING -> WATCHING -> LISTING …      WAITING: until the back-off timer fires, then list
 *               \         |  ^                    (no resourceVersion) or watch (from it)
 *                \        v  |
 *                 +---> WAITING
 *
 * A list without resourceVersion is the most recent state.  A server that answers with an older one
 * than was seen before is a lagging replica: the answer is thrown away and asked again a few times,
 * because going backwards would undo what the controllers know of their own writes.  If it insists, it
 * was restored from a backup, and its state replaces ours.
 *
 * The back-off grows with failures in a row, and a stream that ends at once is one; an event, or a
 * stream that lived for a second, ends the row.
 */

enum { MAX_OLD_LISTS = 6 };
static const usec_t LIVED = USEC_PER_SEC;

static void on_timer(void *arg);
static void on_event(const struct kube_event *e, void *arg);
static void on_page(const struct kube_reply *r, void *arg);

static const char *const state_names[KSRC__MAX] = {
	[KSRC_IDLE] = "idle",
	[KSRC_LISTING] = "listing",
	[KSRC_WATCHING] = "watching",
	[KSRC_WAITING] = "waiting",
};

/* The only function that writes s->state. */
static void source_move(struct ksource *s, enum ksource_state to, const char *why)
{
	static const bool allowed[KSRC__MAX][KSRC__MAX] = {
		[KSRC_IDLE] = {[KSRC_WAITING] = true},
		[KSRC_WAITING] =
			{[KSRC_LISTING] = true, [KSRC_WATCHING] = true, [KSRC_WAITING] = true},
		[KSRC_LISTING] = {[KSRC_WATCHING] = true, [KSRC_WAITING] = true},
		[KSRC_WATCHING] = {[KSRC_WAITING] = true},
	};

	assert(allowed[s->state][to]);
	log_debug("informer of %s: %s -> %s (%s)", s->kind->plural, state_names[s->state],
		  state_names[to], why);
	s->state = to;
}

enum rc kreflect_init(struct ksource *s, struct err *err)
{
	return ev_timer_after(s->cache->loop, &s->timer, USEC_INFINITY, on_timer, s, err);
}

void kreflect_start(struct ksource *s)
{
	source_move(s, KSRC_WAITING, "start");
	ev_timer_rearm(s->timer, 0);
}

void kreflect_stop(struct ksource *s)
{
	s->list_call = kube_call_free(s->list_call);
	s->watch = kube_watch_free(s->watch);
	s->timer = ev_src_free(s->timer);
}

static uint64_t next_rand(struct kcache *c)
{
	c->rand ^= c->rand << 13;
	c->rand ^= c->rand >> 7;
	c->rand ^= c->rand << 17;
	return c->rand;
}

static void wait_and_go_on(struct ksource *s, usec_t at_least, const char *why)
{
	const struct kcache_opts *o = &s->cache->opts;
	usec_t delay = 0;

	if (s->failures) {
		unsigned shift = MIN(s->failures - 1, 20u);

		delay = o->backoff_min > o->backoff_max >> shift ? o->backoff_max
								 : o->backoff_min << shift;
		/* Half fixed, half random: informers that failed together do not come back together. */
		delay = delay / 2 + next_rand(s->cache) % (delay / 2 + 1);
	}
	source_move(s, KSRC_WAITING, why);
	ev_timer_rearm(s->timer, MAX(delay, at_least));
}

static void failed(struct ksource *s, usec_t retry_after, const char *why)
{
	s->failures++;
	s->cache->stats.failures++;
	wait_and_go_on(s, retry_after, why);
}

static void list_again(struct ksource *s)
{
	s->rv_text = mem_free(s->rv_text);
	s->continue_ = mem_free(s->continue_);
}

/* List */

static enum rc list_page(struct ksource *s, struct err *err)
{
	struct kube_list_opts o = {.label_selector = s->label_selector,
				   .field_selector = s->field_selector,
				   .continue_ = s->continue_,
				   .limit = s->cache->opts.page};

	s->list_call = kube_call_free(s->list_call);
	return kube_list(s->cache->kube, &s->list_call, s->kind, s->ns, &o, on_page, s, err);
}

static void start_list(struct ksource *s)
{
	struct err err = {0};

	s->list_run++;
	s->list_rv = 0;
	s->continue_ = mem_free(s->continue_);
	source_move(s, KSRC_LISTING, "list");
	if (list_page(s, &err))
		failed(s, 0, err.msg);
}

static void start_watch(struct ksource *s)
{
	struct kube_watch_opts o = {.label_selector = s->label_selector,
				    .field_selector = s->field_selector,
				    .resource_version = s->rv_text,
				    .timeout_seconds = s->cache->opts.watch_seconds};
	struct err err = {0};

	s->watch = kube_watch_free(s->watch);
	source_move(s, KSRC_WATCHING, "watch");
	s->watch_since = loop_now(s->cache->loop);
	s->cache->stats.watches++;
	if (kube_watch(s->cache->kube, &s->watch, s->kind, s->ns, &o, on_event, s, &err))
		failed(s, 0, err.msg);
}

static void on_timer(void *arg)
{
	struct ksource *s = arg;

	if (s->rv_text)
		start_watch(s);
	else
		start_list(s);
}

/* A version that is not a number is kept as text only; nothing is compared with it then. */
static enum rc set_rv(struct ksource *s, const char *rv)
{
	char *copy = mem_strdup(rv);

	if (!copy)
		return RC_NOMEM;
	mem_free(s->rv_text);
	s->rv_text = copy;
	if (str_to_u64(rv, UINT64_MAX, &s->rv, NULL))
		s->rv = 0;
	return RC_OK;
}

/* A list that is at least as new as what is here shows an older version of it: the server went back to a backup
 * (and let its versions go on behind ours, so that the list itself is none too old). */
static bool is_undone(const struct ksource *s, const struct kobj *o)
{
	const struct kentry *e = ksource_find(s, kobj_ns(o), kobj_name(o));

	return e && kobj_rv(o) && kobj_rv(o) < kobj_rv(e->obj) && kobj_rv(e->obj) <= s->list_rv;
}

static enum rc take_object(struct ksource *s, const struct json *j, bool is_listed)
{
	CLEANUP(kobj_unrefp) struct kobj *o = NULL;
	struct err err = {0};
	enum rc rc = kobj_decode(&o, s->kind, j, &err);

	if (rc == RC_NOMEM)
		return rc;
	if (rc || str_is_empty(kobj_name(o))) {
		s->cache->stats.bad++;
		log_debug("informer of %s: left out '%s': %s", s->kind->plural,
			  js_str(js_at(j, "metadata", "name", NULL))
				  ? js_str(js_at(j, "metadata", "name", NULL))
				  : "",
			  rc ? err.msg : "no name");
		return RC_OK;
	}
	return ksource_put(s, o, false, is_listed && (s->is_reset || is_undone(s, o)));
}

static void drop_unseen(struct ksource *s)
{
	LIST_FOREACH_SAFE(l, tmp, &s->all) {
		struct kentry *e = LIST_ENTRY(l, struct kentry, link);

		if (e->list_run == s->list_run)
			continue;
		/* An own write newer than the list: its event is still to come. */
		if (e->is_fed && !s->is_reset && kobj_rv(e->obj) > s->list_rv)
			continue;
		ksource_remove(s, e);
	}
	for (size_t i = s->gone.n; i-- > 0;) {
		const struct kgone *g = s->gone.items[i].value;

		if (g->list_run != s->list_run || s->is_reset)
			map_del(&s->gone, s->gone.items[i].key);
	}
}

static void list_done(struct ksource *s, const char *rv)
{
	if (set_rv(s, rv)) {
		failed(s, 0, "out of memory");
		return;
	}
	drop_unseen(s);
	s->is_reset = false;
	s->old_lists = 0;
	s->cache->stats.lists++;
	if (!s->is_synced)
		ksource_synced(s);
	start_watch(s);
}

/* False: thrown away. */
static bool accept_version(struct ksource *s, const char *rv)
{
	uint64_t n = 0;

	if (str_to_u64(rv, UINT64_MAX, &n, NULL))
		n = 0;
	s->list_rv = n;
	s->is_reset = false;
	if (!n || n >= s->rv)
		return true;
	if (++s->old_lists < MAX_OLD_LISTS)
		return false;
	s->is_reset = true;
	return true;
}

static void on_page(const struct kube_reply *r, void *arg)
{
	struct ksource *s = arg;
	struct json *items = js_get(r->body, "items");
	const char *rv = js_str(js_at(r->body, "metadata", "resourceVersion", NULL));
	const char *more = js_str(js_at(r->body, "metadata", "continue", NULL));
	bool first = !s->continue_;

	s->list_call = kube_call_free(s->list_call);
	if (r->rc == RC_EXPIRED) {
		s->cache->stats.expired++;
		list_again(s);
	}
	if (r->rc) {
		failed(s, r->retry_after, r->err.msg);
		return;
	}
	if (str_is_empty(rv)) {
		failed(s, 0, "the list has no resourceVersion");
		return;
	}
	if (first && !accept_version(s, rv)) {
		failed(s, 0, "the list is older than what was seen before");
		return;
	}
	for (size_t i = 0; i < js_len(items); i++) {
		if (take_object(s, js_item(items, i), true)) {
			failed(s, 0, "out of memory");
			return;
		}
	}
	s->continue_ = mem_free(s->continue_);
	if (str_is_empty(more)) {
		list_done(s, rv);
		return;
	}
	s->continue_ = mem_strdup(more);
	struct err err = {0};

	if (!s->continue_ || list_page(s, &err))
		failed(s, 0, s->continue_ ? err.msg : "out of memory");
}

/* Watch */

static void take_delete(struct ksource *s, const struct json *j)
{
	const char *ns = js_str(js_at(j, "metadata", "namespace", NULL));
	const char *name = js_str(js_at(j, "metadata", "name", NULL));
	const char *uid = js_str(js_at(j, "metadata", "uid", NULL));
	const char *rv_text = js_str(js_at(j, "metadata", "resourceVersion", NULL));
	struct kentry *e = str_is_empty(name) ? NULL : ksource_find(s, ns, name);
	uint64_t rv = 0;

	if (rv_text && str_to_u64(rv_text, UINT64_MAX, &rv, NULL))
		rv = 0;
	for (size_t i = s->gone.n; uid && i-- > 0;)
		if (strcmp(((const struct kgone *)s->gone.items[i].value)->uid, uid) == 0)
			map_del(&s->gone, s->gone.items[i].key);
	if (!e)
		return;
	if (rv && rv < kobj_rv(e->obj)) {
		s->cache->stats.stale++; /* of a predecessor of the same name */
		return;
	}
	ksource_remove(s, e);
}

static void watch_ended(struct ksource *s, const struct kube_event *e)
{
	bool lived = loop_now(s->cache->loop) - s->watch_since >= LIVED;

	s->watch = kube_watch_free(s->watch);
	if (lived)
		s->failures = 0;
	if (e->rc == RC_EXPIRED) {
		s->cache->stats.expired++;
		list_again(s);
		if (!s->failures) {
			wait_and_go_on(s, 0, "the resourceVersion is too old");
			s->failures = 1; /* the next one in a row waits */
			return;
		}
	}
	if (!e->rc && lived) {
		wait_and_go_on(s, e->retry_after, "the server closed the watch");
		return;
	}
	failed(s, e->retry_after, e->rc ? e->err.msg : "the server closed the watch at once");
}

/* Versions only rise within a watch.  True: e is old. */
static bool out_of_order(struct ksource *s, const struct kube_event *e, const char *rv)
{
	uint64_t n = 0;

	if (str_is_empty(rv) || str_to_u64(rv, UINT64_MAX, &n, NULL) || !n || n > s->rv)
		return false;
	if (n == s->rv) { /* the same event again */
		if (e->type != KUBE_BOOKMARK)
			s->cache->stats.stale++;
		return true;
	}
	/* What else has this stream mixed up?  Ask for the whole truth. */
	s->cache->stats.stale++;
	s->watch = kube_watch_free(s->watch);
	list_again(s);
	failed(s, 0, "the watch sent events out of order");
	return true;
}

static void on_event(const struct kube_event *e, void *arg)
{
	struct ksource *s = arg;
	const char *rv = js_str(js_at(e->object, "metadata", "resourceVersion", NULL));
	enum rc rc = RC_OK;

	if (e->type == KUBE_END) {
		watch_ended(s, e);
		return;
	}
	if (out_of_order(s, e, rv))
		return;
	s->failures = 0;
	if (e->type == KUBE_DELETED)
		take_delete(s, e->object);
	else if (e->type != KUBE_BOOKMARK)
		rc = take_object(s, e->object, false);
	if (e->type != KUBE_BOOKMARK)
		s->cache->stats.events++;
	if (!rc && !str_is_empty(rv))
		rc = set_rv(s, rv);
	if (rc) {
		/* The event is lost to us: resume from the version before it. */
		s->watch = kube_watch_free(s->watch);
		failed(s, 0, "out of memory");
	}
}
