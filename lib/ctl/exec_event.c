#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/gen/api_types.h"
#include "api/type.h"
#include "base/file.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "ctl/exec_int.h"
#include "ev/ev.h"
#include "json/json.h"
#include "kube/kube.h"

/* Theory of operation
 *
 * Equal events (same object, type, reason, message) are one Event object whose name is a hash of them,
 * so that a restarted controller finds its predecessor's and counts on.  The first one is sent at once;
 * repetitions are counted here and written at most once per GAP.  Each object has a bucket of tokens
 * that different events draw from; an empty one drops the event and counts it.
 *
 * Events are told to people, nothing depends on them: a failed write is tried again TRIES times, and
 * the memory is bounded by MAX_NOTES, oldest first.
 */

enum { MAX_NOTES = 2048, MAX_BUCKETS = 2048, TRIES = 3 };
static const usec_t GAP = USEC_PER_SEC;
static const usec_t DEFAULT_REFILL = 60 * USEC_PER_SEC;
static const unsigned DEFAULT_BURST = 25;

struct note {
	struct list link; /* in events.notes, oldest first */
	struct events *e;
	struct kube_call *call;
	struct event_note about;
	const char *key;
	const char *name;   /* of the Event */
	uint64_t count;	    /* ours */
	uint64_t base;	    /* found on the server */
	usec_t first, last; /* realtime */
	usec_t sent_at;	    /* loop_now() */
	unsigned tries;
	bool exists; /* the Event object is known to be there */
	bool is_dirty;
	bool was_sent;
	char texts[]; /* all of them: there are many notes, and most are never needed again */
};

struct bucket {
	struct list link; /* in events.buckets, oldest first */
	double tokens;
	usec_t at;
	char key[];
};

struct events {
	struct exec *x;
	char *component;
	char *host;
	unsigned burst;
	usec_t refill;
	struct map by_key; /* -> struct note */
	struct list notes;
	struct map by_object; /* -> struct bucket */
	struct list buckets;
	struct ev_src *timer;
	uint64_t sent, dropped, failed;
};

static void note_send(struct note *n);
static void on_flush(void *arg);
static void on_created(const struct kube_reply *r, void *arg);
static void on_patched(const struct kube_reply *r, void *arg);
static void on_found(const struct kube_reply *r, void *arg);

static void note_destroy(struct note *n)
{
	map_take(&n->e->by_key, n->key);
	list_remove(&n->link);
	kube_call_free(n->call);
	mem_free(n);
}

struct events *events_free(struct events *e)
{
	if (!e)
		return NULL;
	while (!list_is_empty(&e->notes))
		note_destroy(LIST_ENTRY(e->notes.next, struct note, link));
	map_fini(&e->by_key);
	while (!list_is_empty(&e->buckets))
		mem_free(LIST_ENTRY(list_pop_head(&e->buckets), struct bucket, link));
	map_fini(&e->by_object);
	ev_src_free(e->timer);
	mem_free(e->component);
	mem_free(e->host);
	return mem_free(e);
}

enum rc events_new(struct events **out, struct exec *x, const struct exec_opts *opts,
		   struct err *err)
{
	static const struct exec_opts none;
	struct events *e = mem_alloc(sizeof(*e));
	enum rc rc = RC_OK;

	if (!e)
		return err_set(err, RC_NOMEM, "cannot allocate the event recorder");
	opts = opts ? opts : &none;
	e->x = x;
	e->burst = opts->event_burst ? opts->event_burst : DEFAULT_BURST;
	e->refill = opts->event_refill ? opts->event_refill : DEFAULT_REFILL;
	map_init_borrowing(&e->by_key, NULL);
	map_init_borrowing(&e->by_object, NULL);
	list_init(&e->notes);
	list_init(&e->buckets);
	e->component = mem_strdup(opts->component ? opts->component : "ferry");
	e->host = mem_strdup(opts->host ? opts->host : "");
	if (!e->component || !e->host)
		rc = err_set(err, RC_NOMEM, "cannot allocate the event recorder");
	if (!rc)
		rc = ev_timer_after(x->loop, &e->timer, USEC_INFINITY, on_flush, e, err);
	if (rc) {
		events_free(e);
		return rc;
	}
	*out = e;
	return RC_OK;
}

/* Tokens */

static struct bucket *bucket_get(struct events *e, const char *object)
{
	struct bucket *b = map_get(&e->by_object, object);
	size_t n = strlen(object) + 1;

	if (b)
		return b;
	if (e->by_object.n >= MAX_BUCKETS) {
		struct bucket *old = LIST_ENTRY(list_pop_head(&e->buckets), struct bucket, link);

		map_take(&e->by_object, old->key);
		mem_free(old);
	}
	b = mem_alloc(sizeof(*b) + n);
	if (!b)
		return NULL;
	memcpy(b->key, object, n);
	b->tokens = e->burst;
	b->at = loop_now(e->x->loop);
	if (map_set(&e->by_object, b->key, b))
		return mem_free(b);
	list_push_tail(&e->buckets, &b->link);
	return b;
}

static bool may_send(struct events *e, const char *object)
{
	struct bucket *b = bucket_get(e, object);
	usec_t now = loop_now(e->x->loop);

	if (!b)
		return false;
	b->tokens += (double)(now - b->at) / (double)e->refill;
	b->tokens = MIN(b->tokens, (double)e->burst);
	b->at = now;
	if (b->tokens < 1)
		return false;
	b->tokens -= 1;
	return true;
}

/* Notes */

static const char *event_ns(const struct note *n)
{
	return str_is_empty(n->about.ns) ? "default" : n->about.ns;
}

static size_t size_of(const char *s)
{
	return s ? strlen(s) + 1 : 0;
}

/* Copies s to *at, which moves behind it; NULL stays NULL. */
static const char *place(char **at, const char *s)
{
	size_t n = size_of(s);

	if (!n)
		return NULL;
	memcpy(*at, s, n);
	*at += n;
	return *at - n;
}

static struct note *note_alloc(const struct event_note *n, const char *key)
{
	char name[256];

	(void)snprintf(name, sizeof(name), "%.230s.%016" PRIx64, n->name,
		       str_hash(key, strlen(key)));
	struct note *to = mem_alloc(sizeof(*to) + size_of(key) + size_of(name) + size_of(n->ns) +
				    size_of(n->name) + size_of(n->uid) + size_of(n->type) +
				    size_of(n->reason));

	if (!to)
		return NULL;
	char *at = to->texts;

	to->key = place(&at, key);
	to->name = place(&at, name);
	to->about = (struct event_note){.kind = n->kind,
					.ns = place(&at, n->ns),
					.name = place(&at, n->name),
					.uid = place(&at, n->uid),
					.type = place(&at, n->type),
					.reason = place(&at, n->reason),
					/* the key ends with it */
					.message = to->key + strlen(key) - strlen(n->message)};
	return to;
}

static struct note *note_new(struct events *e, const struct event_note *n, const char *key)
{
	struct note *to;

	if (e->by_key.n >= MAX_NOTES)
		note_destroy(LIST_ENTRY(e->notes.next, struct note, link));
	to = note_alloc(n, key);
	if (!to || map_set(&e->by_key, to->key, to))
		return mem_free(to);
	to->e = e;
	to->first = loop_realtime(e->x->loop);
	list_push_tail(&e->notes, &to->link);
	return to;
}

void events_record(struct events *e, const struct event_note *n)
{
	CLEANUP(mem_freep) char *object = NULL;
	CLEANUP(mem_freep) char *key = NULL;
	struct note *to;

	if (str_is_empty(n->name) || !n->type || !n->reason || !n->message)
		return;
	object = mem_printf("%s/%s/%s/%s", n->kind->kind, n->ns, n->name, n->uid ? n->uid : "");
	key = object ? mem_printf("%s/%s/%s/%s", object, n->type, n->reason, n->message) : NULL;
	to = key ? map_get(&e->by_key, key) : NULL;
	if (key && !to && may_send(e, object))
		to = note_new(e, n, key);
	if (!to) {
		e->dropped++;
		return;
	}
	to->count++;
	to->last = loop_realtime(e->x->loop);
	to->is_dirty = true;
	to->tries = 0;
	if (!to->was_sent && !to->call)
		note_send(to);
	else if (!ev_timer_is_armed(e->timer))
		ev_timer_rearm(e->timer, GAP);
}

static struct json *counts_of(const struct note *n)
{
	char first[32], last[32];

	time_rfc3339(n->first, first);
	time_rfc3339(n->last, last);
	return js_pack("{s:I, s:s, s:s}", "count", (int64_t)(n->base + n->count), "firstTimestamp",
		       first, "lastTimestamp", last);
}

static struct json *event_of(const struct note *n)
{
	const struct event_note *a = &n->about;
	const struct events *e = n->e;
	const char *host = *e->host ? e->host : NULL;
	char first[32], last[32];

	time_rfc3339(n->first, first);
	time_rfc3339(n->last, last);
	return js_pack("{s:s, s:s, s:{s:s, s:s}, s:{s:s, s:s*, s:s, s:s*, s:s}, s:s, s:s, s:s, "
		       "s:{s:s, s:s*}, s:s, s:s, s:I, s:s, s:s}",
		       "apiVersion", "v1", "kind", "Event", "metadata", "name", n->name,
		       "namespace", event_ns(n), "involvedObject", "kind", a->kind->kind,
		       "namespace", str_is_empty(a->ns) ? NULL : a->ns, "name", a->name, "uid",
		       a->uid, "apiVersion", a->kind->api_version, "reason", a->reason, "message",
		       a->message, "type", a->type, "source", "component", e->component, "host",
		       host, "reportingComponent", e->component, "reportingInstance",
		       host ? host : e->component, "count", (int64_t)(n->base + n->count),
		       "firstTimestamp", first, "lastTimestamp", last);
}

static void note_send(struct note *n)
{
	struct kube *k = n->e->x->kube;
	CLEANUP(js_unrefp) struct json *body = n->exists ? counts_of(n) : event_of(n);
	enum rc rc = body ? RC_OK : RC_NOMEM;

	n->call = kube_call_free(n->call);
	n->is_dirty = false;
	n->was_sent = true;
	n->sent_at = loop_now(n->e->x->loop);
	if (!rc && n->exists) {
		if (n->base)
			js_del(body, "firstTimestamp"); /* the predecessor's stands */
		rc = kube_patch(k, &n->call, &api_kind_Event, event_ns(n), n->name, NULL,
				KUBE_PATCH_MERGE, body, on_patched, n, NULL);
	} else if (!rc) {
		rc = kube_create(k, &n->call, &api_kind_Event, event_ns(n), body, on_created, n,
				 NULL);
	}
	if (rc)
		n->e->failed++; /* told again by its next repetition */
}

static void note_settled(struct note *n, const char *verb)
{
	n->e->sent++;
	n->tries = 0;
	n->exists = true;
	exec_count_write(n->e->x, &api_kind_Event, verb);
}

static void note_failed(struct note *n)
{
	n->e->failed++;
	if (++n->tries >= TRIES)
		return;
	n->is_dirty = true;
	if (!ev_timer_is_armed(n->e->timer))
		ev_timer_rearm(n->e->timer, GAP);
}

static void on_created(const struct kube_reply *r, void *arg)
{
	struct note *n = arg;

	n->call = kube_call_free(n->call);
	if (!r->rc) {
		note_settled(n, "create");
		return;
	}
	/* A predecessor of this process told the same: count on from there. */
	if (r->rc == RC_EXISTS && !kube_get(n->e->x->kube, &n->call, &api_kind_Event, event_ns(n),
					    n->name, on_found, n, NULL))
		return;
	note_failed(n);
}

static void on_found(const struct kube_reply *r, void *arg)
{
	struct note *n = arg;

	n->call = kube_call_free(n->call);
	if (r->rc) {
		note_failed(n);
		return;
	}
	n->exists = true;
	n->base = (uint64_t)MAX(js_get_int(r->body, "count", 1), (int64_t)1);
	note_send(n);
}

static void on_patched(const struct kube_reply *r, void *arg)
{
	struct note *n = arg;

	n->call = kube_call_free(n->call);
	if (!r->rc) {
		note_settled(n, "patch");
		return;
	}
	if (r->rc == RC_NOT_FOUND) { /* expired on the server: a new row of repetitions begins */
		n->exists = false;
		n->base = 0;
	}
	note_failed(n);
}

static void on_flush(void *arg)
{
	struct events *e = arg;
	usec_t now = loop_now(e->x->loop);
	usec_t next = USEC_INFINITY;

	LIST_FOREACH(l, &e->notes) {
		struct note *n = LIST_ENTRY(l, struct note, link);

		if (!n->is_dirty)
			continue;
		if (!n->call && now - n->sent_at >= GAP)
			note_send(n);
		else
			next = GAP;
	}
	ev_timer_rearm(e->timer, next);
}

void events_metrics(const struct events *e, struct sbuf *out)
{
	sbuf_addf(out,
		  "# HELP ferry_events_total Events by what became of them.\n"
		  "# TYPE ferry_events_total counter\n"
		  "ferry_events_total{outcome=\"written\"} %" PRIu64 "\n"
		  "ferry_events_total{outcome=\"cut\"} %" PRIu64 "\n"
		  "ferry_events_total{outcome=\"failed\"} %" PRIu64 "\n",
		  e->sent, e->dropped, e->failed);
}
