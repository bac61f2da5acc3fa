#include "ctl/workq.h"

#include <string.h>

#include "base/file.h"
#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"
#include "ev/ev.h"

/* Theory of operation
 *
 * A key that the queue knows is one struct item in the map.  Two bits say where it stands: dirty (must
 * be worked on) and busy (is being worked on).  An item is in q->ready exactly when it is dirty and
 * not busy.  Delayed items are in q->delayed, sorted by due time, whatever their other state; one
 * timer serves the earliest.  An item that is neither dirty, busy, delayed nor failed is dropped.
 */

static const usec_t DEFAULT_NOW_MIN = 2 * USEC_PER_MSEC;
static const usec_t DEFAULT_BACKOFF_MIN = 50 * USEC_PER_MSEC;
static const usec_t DEFAULT_BACKOFF_MAX = 30 * USEC_PER_SEC;

struct item {
	struct list ready;   /* in q->ready */
	struct list working; /* in q->working */
	struct list delayed; /* in q->delayed */
	usec_t due;
	usec_t since; /* when it became dirty; while busy: when it was handed out */
	usec_t again; /* when a busy one became dirty */
	unsigned failures;
	bool dirty;
	bool busy;
	char key[];
};

struct workq {
	struct loop *loop;
	char *name;
	struct map items; /* key -> struct item */
	struct list ready;
	struct list working; /* busy ones, the longest first */
	struct list delayed;
	size_t n_ready;
	size_t n_delayed;
	size_t n_busy;
	struct ev_src *timer;
	struct ev_src *wake;
	bool waking;
	void (*on_ready)(void *arg);
	void *arg;
	struct workq_opts opts;
	uint64_t rand;
	uint64_t adds, retries;
	struct prom_hist waited, worked;
};

const struct prom_buckets workq_buckets = {
	12, {1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1, 10, 100, 1000}};

static void on_timer(void *arg);
static void on_wake(void *arg);

static void item_free(void *p)
{
	mem_free(p);
}

enum rc workq_new(struct workq **out, struct loop *loop, const char *name,
		  const struct workq_opts *opts)
{
	CLEANUP(workq_freep) struct workq *q = mem_alloc(sizeof(*q));
	enum rc rc;

	if (!q)
		return RC_NOMEM;
	q->loop = loop;
	map_init_borrowing(&q->items, item_free);
	list_init(&q->ready);
	list_init(&q->working);
	list_init(&q->delayed);
	if (opts)
		q->opts = *opts;
	if (!q->opts.now_min)
		q->opts.now_min = DEFAULT_NOW_MIN;
	if (!q->opts.backoff_min)
		q->opts.backoff_min = DEFAULT_BACKOFF_MIN;
	if (!q->opts.backoff_max)
		q->opts.backoff_max = DEFAULT_BACKOFF_MAX;
	q->rand = q->opts.seed ? q->opts.seed : rand_u64() | 1;
	q->name = mem_strdup(name);
	if (!q->name)
		return RC_NOMEM;
	/* Both sources exist from the start, so that a wake-up can never fail. */
	rc = ev_timer_after(loop, &q->timer, USEC_INFINITY, on_timer, q, NULL);
	if (!rc)
		rc = ev_timer_after(loop, &q->wake, USEC_INFINITY, on_wake, q, NULL);
	if (rc)
		return rc;
	*out = STEAL(q);
	return RC_OK;
}

struct workq *workq_free(struct workq *q)
{
	if (!q)
		return NULL;
	ev_src_free(q->timer);
	ev_src_free(q->wake);
	map_fini(&q->items);
	mem_free(q->name);
	return mem_free(q);
}

static void on_wake(void *arg)
{
	struct workq *q = arg;

	q->waking = false;
	if (q->n_ready && q->on_ready)
		q->on_ready(q->arg);
}

static void wake_up(struct workq *q)
{
	if (q->waking || !q->on_ready)
		return;
	q->waking = true;
	ev_timer_rearm(q->wake, 0);
}

void workq_on_ready(struct workq *q, void (*fn)(void *arg), void *arg)
{
	q->on_ready = fn;
	q->arg = arg;
	if (q->n_ready)
		wake_up(q);
}

static void item_check(const struct item *it)
{
	assert(!it->busy || !list_is_linked(&it->ready));
	assert(list_is_linked(&it->ready) == (it->dirty && !it->busy));
}

static enum rc items_intern(struct workq *q, const char *key, struct item **out)
{
	struct item *it = map_get(&q->items, key);
	size_t n = strlen(key) + 1;

	if (it) {
		*out = it;
		return RC_OK;
	}
	it = mem_alloc(sizeof(*it) + n);
	if (!it)
		return RC_NOMEM;
	memcpy(it->key, key, n);
	if (map_set(&q->items, it->key, it)) {
		mem_free(it);
		return RC_NOMEM;
	}
	*out = it;
	return RC_OK;
}

static void item_make_ready(struct workq *q, struct item *it)
{
	list_push_tail(&q->ready, &it->ready);
	q->n_ready++;
	wake_up(q);
}

static void item_undelay(struct workq *q, struct item *it)
{
	if (!list_is_linked(&it->delayed))
		return;
	list_remove(&it->delayed);
	q->n_delayed--;
}

static void timer_set(struct workq *q)
{
	usec_t now = loop_now(q->loop);

	if (list_is_empty(&q->delayed)) {
		ev_timer_rearm(q->timer, USEC_INFINITY);
		return;
	}
	const struct item *first = LIST_ENTRY(q->delayed.next, struct item, delayed);

	ev_timer_rearm(q->timer, first->due > now ? first->due - now : 0);
}

static void item_delay(struct workq *q, struct item *it, usec_t delay)
{
	usec_t now = loop_now(q->loop);
	usec_t due = delay > USEC_INFINITY - 1 - now ? USEC_INFINITY - 1 : now + delay;
	struct list *after;

	if (list_is_linked(&it->delayed) && it->due <= due)
		return;
	item_undelay(q, it);
	it->due = due;
	after = q->delayed.prev;
	while (after != &q->delayed && LIST_ENTRY(after, struct item, delayed)->due > due)
		after = after->prev;
	list_push_head(after, &it->delayed);
	q->n_delayed++;
	timer_set(q);
}

static void item_dirty(struct workq *q, struct item *it)
{
	item_undelay(q, it);
	if (it->dirty)
		return; /* already due: adds collapse */
	it->dirty = true;
	q->adds++;
	*(it->busy ? &it->again : &it->since) = loop_now(q->loop);
	if (!it->busy)
		item_make_ready(q, it); /* else workq_done() queues it */
	item_check(it);
}

static void on_timer(void *arg)
{
	struct workq *q = arg;
	usec_t now = loop_now(q->loop);

	while (!list_is_empty(&q->delayed)) {
		struct item *it = LIST_ENTRY(q->delayed.next, struct item, delayed);

		if (it->due > now)
			break;
		item_dirty(q, it);
	}
	timer_set(q);
}

enum rc workq_add(struct workq *q, const char *key)
{
	struct item *it = NULL;
	enum rc rc = items_intern(q, key, &it);

	if (rc)
		return rc;
	item_dirty(q, it);
	return RC_OK;
}

enum rc workq_add_after(struct workq *q, const char *key, usec_t delay)
{
	struct item *it = NULL;
	enum rc rc;

	if (!delay)
		return workq_add(q, key);
	rc = items_intern(q, key, &it);
	if (rc)
		return rc;
	q->retries++;
	if (!it->dirty)
		item_delay(q, it, delay);
	return RC_OK;
}

static double seconds_since(usec_t then, usec_t now)
{
	return (double)(now - then) / 1e6;
}

const char *workq_get(struct workq *q)
{
	struct list *l = list_pop_head(&q->ready);
	usec_t now = loop_now(q->loop);
	struct item *it;

	if (!l)
		return NULL;
	it = LIST_ENTRY(l, struct item, ready);
	assert(it->dirty && !it->busy);
	q->n_ready--;
	q->n_busy++;
	it->dirty = false;
	it->busy = true;
	prom_hist_add(&q->waited, &workq_buckets, seconds_since(it->since, now));
	it->since = now;
	list_push_tail(&q->working, &it->working);
	item_check(it);
	return it->key;
}

/* xorshift64: good enough to spread retries, and repeatable from its seed. */
static uint64_t next_rand(struct workq *q)
{
	q->rand ^= q->rand << 13;
	q->rand ^= q->rand >> 7;
	q->rand ^= q->rand << 17;
	return q->rand;
}

static usec_t backoff(struct workq *q, const struct item *it, enum retry how)
{
	usec_t base = how == RETRY_NOW ? q->opts.now_min : q->opts.backoff_min;
	unsigned shift = MIN(it->failures - 1, 30u);
	usec_t delay = base > q->opts.backoff_max >> shift ? q->opts.backoff_max : base << shift;

	return delay + next_rand(q) % (delay / 4 + 1);
}

void workq_done(struct workq *q, const char *key, enum retry how)
{
	struct item *it = map_get(&q->items, key);

	assert(it && it->busy && !list_is_linked(&it->ready)); /* busy items are never ready */
	it->busy = false;
	q->n_busy--;
	prom_hist_add(&q->worked, &workq_buckets, seconds_since(it->since, loop_now(q->loop)));
	it->since = it->again;
	list_remove(&it->working);
	if (how == RETRY_NO)
		it->failures = 0;
	else
		it->failures++;
	q->retries += how != RETRY_NO;
	if (it->dirty)
		item_make_ready(q, it); /* changed while we worked on it */
	else if (how != RETRY_NO)
		item_delay(q, it, backoff(q, it, how));
	item_check(it);
	if (!it->dirty && !it->failures && !list_is_linked(&it->delayed))
		map_del(&q->items, it->key);
}

size_t workq_depth(const struct workq *q)
{
	return q->n_ready;
}

size_t workq_waiting(const struct workq *q)
{
	return q->n_delayed;
}

size_t workq_busy(const struct workq *q)
{
	return q->n_busy;
}

unsigned workq_failures(const struct workq *q, const char *key)
{
	const struct item *it = map_get(&q->items, key);

	return it ? it->failures : 0;
}

void workq_get_stats(const struct workq *q, struct workq_stats *out)
{
	usec_t now = loop_now(q->loop);

	*out = (struct workq_stats){
		.adds = q->adds, .retries = q->retries, .waited = q->waited, .worked = q->worked};
	LIST_FOREACH(l, &q->working) {
		usec_t age = now - LIST_ENTRY(l, struct item, working)->since;

		out->unfinished += age;
		out->longest = MAX(out->longest, age);
	}
}
