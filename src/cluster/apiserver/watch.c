/* Watches.
 *
 * A watcher is a filter and a stream.  Each visible event is offered to the watchers of its resource;
 * what an event means to a watcher depends on whether the object matched before and matches now, so
 * that an object that leaves the selection is DELETED for it and one that enters is ADDED.  The stream
 * bounds what waits for a slow reader: when it refuses a frame, the watch ends, and the client resumes
 * by resourceVersion.
 */
#include "cluster/apiserver/apisrv_int.h"

#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "ev/ev.h"

struct watcher {
	struct list link; /* in resource.watchers */
	struct apisrv_call *call;
	struct filter filter;
	bool wants_bookmarks, failed;
	int64_t sent_rev; /* last revision that the client knows of */
	struct ev_src *timer;
};

/* Bytes of events that may wait for one reader beyond what its watch began with. */
enum { BACKLOG = 4 * 1024 * 1024 };

static const char *const event_names[] = {
	[STORE_ADDED] = "ADDED",
	[STORE_MODIFIED] = "MODIFIED",
	[STORE_DELETED] = "DELETED",
};

struct watcher *watcher_free(struct watcher *w)
{
	if (!w)
		return NULL;
	list_remove(&w->link);
	w->call->srv->n_watchers--;
	ev_src_free(w->timer);
	filter_fini(&w->filter);
	return mem_free(w);
}

void watcher_end(struct watcher *w)
{
	struct apisrv_call *c = w->call;

	call_enter(c);
	c->watch = watcher_free(w);
	if (!c->done) {
		c->done = true;
		c->status = 200;
		if (c->sink)
			c->sink->stream_end(c->arg);
	}
	call_leave(c);
}

/* ---- frames ----------------------------------------------------------------------------------- */

static void send_bytes(struct watcher *w, const struct sbuf *b)
{
	struct apisrv_call *c = w->call;

	if (w->failed || c->done)
		return;
	if (sbuf_rc(b) || c->sink->stream_write(c->arg, b->p, b->n)) {
		log_debug("watch of %s by %s: the reader is too slow", c->res->table, c->user.name);
		c->res->watched->slow++;
		w->failed = true;
	}
}

static void send_text(struct watcher *w, const char *type, const char *text, size_t n)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(2 * LIMIT_OBJECT_BYTES);

	sbuf_addf(&b, "{\"type\":\"%s\",\"object\":", type);
	sbuf_add(&b, text, n);
	sbuf_adds(&b, "}\n");
	send_bytes(w, &b);
	metrics_count_event(w->call->res, b.n);
}

static void send_json(struct watcher *w, const char *type, const struct json *j)
{
	CLEANUP(mem_freep) char *text = j ? js_to_text(j) : NULL;

	if (text)
		send_text(w, type, text, strlen(text));
	else
		w->failed = true;
}

/* Under another version than the stored one. */
static void send_alias(struct watcher *w, const char *type, const char *text, size_t n)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(2 * LIMIT_OBJECT_BYTES);

	version_add_text(w->call, text, n, &b);
	if (sbuf_rc(&b))
		w->failed = true;
	else
		send_text(w, type, b.p, b.n);
}

/* The object in the form that the client asked for. */
static void send_object(struct watcher *w, const char *type, struct obj *o)
{
	struct apisrv_call *c = w->call;

	if (c->out.as == OUT_OBJECT) {
		size_t n;
		const char *text = obj_text(o, &n);

		if (c->alias)
			send_alias(w, type, text, n);
		else
			send_text(w, type, text, n);
		return;
	}
	CLEANUP(js_unrefp) struct json *j = obj_json(o);
	CLEANUP(js_unrefp)
	struct json *shown = !j			      ? NULL
			     : c->out.as == OUT_TABLE ? render_table_one(c, j)
						      : render_partial(j, c->out.meta_version);

	send_json(w, type, shown);
}

/* It left the selection: its last matching version, under the revision of the event. */
static void send_left(struct watcher *w, const struct store_event *ev)
{
	CLEANUP(js_unrefp) struct json *j = obj_json(ev->prev);
	CLEANUP(js_unrefp) struct json *copy = js_copy(j);
	CLEANUP(js_unrefp) struct json *shown = NULL;
	struct apisrv_call *c = w->call;
	char rv[24];

	snprintf(rv, sizeof(rv), "%lld", (long long)ev->rev);
	if (copy &&
	    js_set(js_ensure_object(copy, "metadata"), "resourceVersion", js_new_str(rv)) == RC_OK)
		shown = c->out.as == OUT_TABLE	   ? render_table_one(c, copy)
			: c->out.as == OUT_PARTIAL ? render_partial(copy, c->out.meta_version)
						   : version_as_asked(c, copy);
	send_json(w, "DELETED", shown);
}

static void send_bookmark(struct watcher *w, bool initial_end)
{
	const struct api_kind *k = w->call->res->kind;
	const char *api_version = call_api_version(w->call), *kind = k->kind;
	char rv[24];

	if (w->call->out.as == OUT_TABLE) {
		kind = "Table";
		api_version = w->call->out.meta_version;
	} else if (w->call->out.as == OUT_PARTIAL) {
		kind = "PartialObjectMetadata";
		api_version = w->call->out.meta_version;
	}
	snprintf(rv, sizeof(rv), "%lld", (long long)store_rev(w->call->srv->store));
	CLEANUP(js_unrefp)
	struct json *j =
		js_pack("{s:s, s:s, s:{s:s, s:n}}", "kind", kind, "apiVersion", api_version,
			"metadata", "resourceVersion", rv, "creationTimestamp");

	if (j && initial_end &&
	    js_set(js_ensure_object(js_get(j, "metadata"), "annotations"),
		   "k8s.io/initial-events-end", js_new_str("true")))
		w->failed = true;
	send_json(w, "BOOKMARK", j);
	w->sent_rev = store_rev(w->call->srv->store);
}

/* ---- events ----------------------------------------------------------------------------------- */

static void offer(void *arg, const struct store_event *ev)
{
	struct watcher *w = arg;
	bool was = ev->prev && filter_matches(&w->filter, ev->prev);
	bool is = ev->type != STORE_DELETED && filter_matches(&w->filter, ev->obj);

	if (w->filter.nomem) {
		w->failed = true; /* it resumes by itself and misses nothing */
		return;
	}
	if (!was && !is)
		return;
	if (is)
		send_object(w, was ? "MODIFIED" : "ADDED", ev->obj);
	else if (ev->type == STORE_DELETED)
		send_object(w, event_names[STORE_DELETED], ev->obj);
	else
		send_left(w, ev);
	w->sent_rev = ev->rev;
}

void watch_event(struct apisrv *s, const struct store_event *ev)
{
	struct resource *res = apisrv_resource(s, obj_table(ev->obj));

	if (!res)
		return;
	LIST_FOREACH_SAFE(it, tmp, &res->watchers) {
		struct watcher *w = LIST_ENTRY(it, struct watcher, link);

		offer(w, ev);
		if (w->failed)
			watcher_end(w);
	}
}

void watch_bookmarks(struct apisrv *s)
{
	for (size_t i = 0; i < s->n_resources; i++) {
		LIST_FOREACH_SAFE(it, tmp, &s->resources[i].watchers) {
			struct watcher *w = LIST_ENTRY(it, struct watcher, link);

			if (w->wants_bookmarks && w->sent_rev < store_rev(s->store))
				send_bookmark(w, false);
			if (w->failed)
				watcher_end(w);
		}
	}
}

/* ---- start ------------------------------------------------------------------------------------ */

struct watch_opts {
	bool initial;	  /* begin with everything as ADDED */
	bool initial_end; /* and mark its end */
	int64_t rev;	  /* else: events after this one */
	usec_t timeout;
};

static bool parse_start(struct apisrv_call *c, struct watch_opts *o)
{
	const char *rv = call_param(c, "resourceVersion"),
		   *match = call_param(c, "resourceVersionMatch");
	const char *initial = call_param(c, "sendInitialEvents");
	int64_t now = store_rev(c->srv->store);

	if (!str_is_empty(rv) && str_to_i64(rv, 0, INT64_MAX, &o->rev, NULL)) {
		call_bad_request(
			c, "resourceVersion: Invalid value: \"%s\": must be a non-negative number",
			rv);
		return false;
	}
	if (str_is_empty(initial)) {
		if (!str_is_empty(match)) {
			call_bad_request(
				c,
				"resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden "
				"for watch unless sendInitialEvents is provided");
			return false;
		}
		o->initial = o->rev == 0;
		return true;
	}
	if (!str_eq(match, "NotOlderThan")) {
		call_bad_request(
			c, "resourceVersionMatch: Forbidden: sendInitialEvents requires setting "
			   "resourceVersionMatch to NotOlderThan");
		return false;
	}
	o->initial = o->initial_end = str_eq(initial, "true") || str_eq(initial, "1");
	if (o->initial && o->rev > now) {
		call_too_large_rev(c, o->rev);
		return false;
	}
	if (!o->initial && o->rev == 0)
		o->rev = now;
	return true;
}

static bool parse_opts(struct apisrv_call *c, struct watch_opts *o)
{
	const char *timeout = call_param(c, "timeoutSeconds");
	uint64_t seconds = 0;

	if (!str_is_empty(timeout) && str_to_u64(timeout, UINT32_MAX, &seconds, NULL)) {
		call_bad_request(
			c, "timeoutSeconds: Invalid value: \"%s\": must be a non-negative number",
			timeout);
		return false;
	}
	/* As kube-apiserver: half an hour to an hour, spread so that not all clients come back at once. */
	if (!seconds)
		seconds = 1800 + (uint64_t)(loop_now(c->srv->loop) % 1800);
	o->timeout = seconds * USEC_PER_SEC;
	return parse_start(c, o);
}

static void on_timeout(void *arg)
{
	struct watcher *w = arg;

	if (w->wants_bookmarks && w->sent_rev < store_rev(w->call->srv->store))
		send_bookmark(w, false);
	watcher_end(w);
}

static void add_size(void *arg, const struct store_event *ev)
{
	size_t *bytes = arg, n;

	obj_text(ev->obj, &n);
	*bytes += n + 64;
}

/* What the watch may begin with, at most, and the events of a bad moment; stream_settle() keeps of it what was
 * really written. */
static size_t backlog_of(struct apisrv *s, const struct apisrv_call *c, const struct filter *f,
			 const struct watch_opts *o)
{
	size_t bytes = BACKLOG, n;
	struct store_iter it;
	struct obj *obj;

	if (!o->initial) {
		/* Too old, or from the future: answered with an error, which fits. */
		ignore_rc(store_replay(s->store, c->res->table, o->rev, add_size, &bytes, NULL));
		return c->out.as == OUT_TABLE ? bytes * 2 : bytes;
	}
	store_iter_init(&it, s->store, c->res->table, f->prefix);
	while ((obj = store_iter_next(&it))) {
		obj_text(obj, &n);
		bytes += n + 64;
	}
	/* A table row carries its column definitions with it. */
	return c->out.as == OUT_TABLE ? bytes * 2 : bytes;
}

static void send_initial(struct watcher *w, bool mark_end)
{
	struct apisrv *s = w->call->srv;
	struct store_iter it;
	struct obj *o;
	size_t n = 0;

	store_iter_init(&it, s->store, w->call->res->table, w->filter.prefix);
	for (; !w->failed && (o = store_iter_next(&it)); n++)
		if (filter_matches(&w->filter, o))
			send_object(w, "ADDED", o);
	flow_charge(w->call, n / (w->call->out.as == OUT_OBJECT ? TEXTS_PER_UNIT : FORMS_PER_UNIT));
	w->failed = w->failed || w->filter.nomem;
	w->sent_rev = store_rev(s->store);
	if (mark_end)
		send_bookmark(w, true);
}

static void send_error(struct watcher *w, enum rc rc, const struct err *err)
{
	CLEANUP(js_unrefp) struct json *st = status_new(rc_http(rc), rc_reason(rc), err->msg, NULL);

	send_json(w, "ERROR", st);
	w->failed = true;
}

static struct watcher *watcher_new(struct apisrv_call *c, const struct watch_opts *o)
{
	struct watcher *w = mem_alloc(sizeof(*w));

	if (!w)
		return NULL;
	w->call = c;
	list_push_tail(&((struct resource *)(uintptr_t)c->res)->watchers, &w->link);
	if (!c->srv->n_watchers++)
		ev_timer_rearm(c->srv->bookmark_timer, 60 * USEC_PER_SEC);
	w->wants_bookmarks = call_param_bool(c, "allowWatchBookmarks");
	if (ev_timer_after(c->srv->loop, &w->timer, o->timeout, on_timeout, w, NULL))
		return watcher_free(w);
	return w;
}

void serve_watch(struct apisrv_call *c)
{
	struct watch_opts o = {0};
	struct filter filter;
	struct err err = {0};

	if (!c->sink->stream_begin) {
		call_bad_request(c, "this client cannot watch");
		return;
	}
	if (!flow_may_watch(c) || !filter_parse(c, &filter))
		return;
	/* "watch one object": GET …/<name>?watch=true */
	if (*c->name) {
		filter.is_exact = true;
		mem_free(filter.prefix);
		filter.prefix = c->res->kind->is_namespaced ? mem_printf("%s/%s", c->ns, c->name)
							    : mem_strdup(c->name);
	}
	struct watcher *w = filter.prefix && parse_opts(c, &o) ? watcher_new(c, &o) : NULL;

	if (!w) {
		filter_fini(&filter);
		call_nomem(c); /* no effect when parse_opts() answered */
		return;
	}
	w->filter = filter;
	c->watch = w;
	for (size_t i = 0; c->sink->warn && i < c->n_warnings; i++)
		c->sink->warn(c->arg, c->warnings[i]);
	c->sink->stream_begin(c->arg, 200, "application/json",
			      backlog_of(c->srv, c, &w->filter, &o));
	if (o.initial) {
		send_initial(w, o.initial_end && w->wants_bookmarks);
	} else {
		enum rc rc = store_replay(c->srv->store, c->res->table, o.rev, offer, w, &err);

		w->sent_rev = MAX(w->sent_rev, o.rev);
		if (rc == RC_INVALID)
			rc = RC_TIMEOUT; /* from the future: the client retries */
		if (rc)
			send_error(w, rc, &err);
	}
	if (w->failed)
		watcher_end(w);
	else if (c->sink->stream_settle)
		c->sink->stream_settle(c->arg, BACKLOG);
}
