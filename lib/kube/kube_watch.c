#include <stdio.h>
#include <string.h>

#include "api/type.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"
#include "http/client.h"
#include "json/json.h"
#include "kube/kube_int.h"

/* Theory of operation
 *
 * A watch is one long answer: a line of JSON per event.  Three ends are possible: the server closes the
 * stream (ordinary), an ERROR event arrives (410 in most cases), or the connection fails; each becomes
 * one KUBE_END.  The server was asked to end the stream after timeout_seconds; GRACE later this side
 * ends it, so that a connection that died silently does not hold the informer for ever.
 */

static const usec_t GRACE = 15 * USEC_PER_SEC;
static const size_t MAX_LINE = 2 * (size_t)LIMIT_OBJECT_BYTES;

struct kube_watch {
	struct list link; /* first member: kube_free() relies on it */
	struct kube *k;	  /* NULL: the client is gone */
	void *op;
	struct ev_src *timer;
	struct http_lines lines;
	kube_event_fn fn;
	void *arg;
	bool is_done;
	bool is_busy;
	bool is_freed;
	bool was_told; /* to who counts requests */
	usec_t began;
	struct kube_seen seen;
};

static_assert(offsetof(struct kube_watch, link) == 0, "kube_free() casts a link to its watch");

static void watch_destroy(struct kube_watch *w)
{
	list_remove(&w->link);
	ev_src_free(w->timer);
	http_lines_fini(&w->lines);
	mem_free(w);
}

static void watch_stop(struct kube_watch *w)
{
	if (w->op)
		w->k->t.cancel(w->k->ctx, STEAL(w->op));
	w->timer = ev_src_free(w->timer);
	w->is_done = true;
}

void kube_watch_drop(struct kube_watch *w)
{
	if (!w->is_done)
		watch_stop(w);
	w->k = NULL;
}

struct kube_watch *kube_watch_free(struct kube_watch *w)
{
	if (!w || w->is_freed)
		return NULL;
	if (!w->is_done)
		watch_stop(w);
	w->is_freed = true;
	if (!w->is_busy)
		watch_destroy(w);
	return NULL;
}

/* Calls the owner, who may free w; false: w is stopped, do not go on. */
static bool watch_emit(struct kube_watch *w, const struct kube_event *e)
{
	bool was_busy = w->is_busy;

	w->is_busy = true;
	w->fn(e, w->arg);
	w->is_busy = was_busy;
	return !w->is_done && !w->is_freed;
}

static void watch_end(struct kube_watch *w, const struct kube_event *e)
{
	if (w->is_done)
		return;
	watch_stop(w);
	watch_emit(w, e);
}

static void end_with(struct kube_watch *w, enum rc rc, const char *text)
{
	struct kube_event e = {.type = KUBE_END, .rc = rc};

	err_set(&e.err, rc, "%s", text);
	watch_end(w, &e);
}

static void end_by_status(struct kube_watch *w, const struct json *status)
{
	struct kube_response r = {.status = (int)js_get_int(status, "code", 500)};
	struct kube_reply reply = {0};
	struct kube_event e = {.type = KUBE_END};

	kube_decode_status(&r, status, &reply);
	e.rc = reply.rc ? reply.rc : RC_IO;
	e.retry_after = reply.retry_after;
	e.err = reply.err;
	watch_end(w, &e);
}

static bool on_line(const char *line, size_t n, void *arg)
{
	static const struct {
		const char *name;
		enum kube_event_type type;
	} types[] = {
		{"ADDED", KUBE_ADDED},
		{"MODIFIED", KUBE_MODIFIED},
		{"DELETED", KUBE_DELETED},
		{"BOOKMARK", KUBE_BOOKMARK},
	};
	struct kube_watch *w = arg;
	CLEANUP(js_unrefp) struct json *j = NULL;
	enum rc rc = js_parse(line, n, &j, NULL);
	const char *type = js_get_str(j, "type");
	struct kube_event e = {.object = js_get(j, "object")};

	if (rc == RC_NOMEM) {
		end_with(w, rc, "cannot allocate a watch event");
		return false;
	}
	if (str_eq(type, "ERROR")) {
		end_by_status(w, e.object);
		return false;
	}
	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		if (!str_eq(type, types[i].name) || !js_is_object(e.object))
			continue;
		e.type = types[i].type;
		return watch_emit(w, &e);
	}
	end_with(w, RC_IO, "the watch sent something that is not an event");
	return false;
}

static void tell(struct kube_watch *w, int status)
{
	if (w->k && !w->was_told)
		kube_tell(w->k, &w->seen, w->began, status);
	w->was_told = true;
}

static void on_data(const char *bytes, size_t n, void *arg)
{
	struct kube_watch *w = arg;
	enum rc rc;

	tell(w, 200);
	/* Held, so that a callback that frees the watch leaves the line buffer alone. */
	assert(!w->is_busy);
	w->is_busy = true;
	rc = http_lines_feed(&w->lines, bytes, n, on_line, w);
	if (rc && rc != RC_CLOSED)
		end_with(w, rc,
			 rc == RC_TOO_BIG ? "a watch event is too big"
					  : "cannot buffer a watch event");
	w->is_busy = false;
	if (w->is_freed)
		watch_destroy(w);
}

static void on_end(const struct kube_response *r, void *arg)
{
	struct kube_watch *w = arg;
	CLEANUP(js_unrefp) struct json *body = NULL;
	struct kube_reply reply = {0};
	struct kube_event e = {.type = KUBE_END};

	w->op = NULL;
	tell(w, r->rc ? 0 : r->status);
	if (!r->rc && r->status != 200 && r->n_body)
		ignore_rc(js_parse(r->body, r->n_body, &body,
				   NULL)); /* a proxy's page: the status is enough */
	kube_decode_status(r, body, &reply);
	e.rc = reply.rc;
	e.retry_after = reply.retry_after;
	e.err = reply.err;
	w->is_busy = true;
	watch_end(w, &e);
	w->is_busy = false;
	if (w->is_freed)
		watch_destroy(w);
}

static void on_silent(void *arg)
{
	struct kube_watch *w = arg;

	w->is_busy = true;
	end_with(w, RC_TIMEOUT, "the watch outlived its own time limit");
	w->is_busy = false;
	if (w->is_freed)
		watch_destroy(w);
}

enum rc kube_watch(struct kube *k, struct kube_watch **out, const struct api_kind *kind,
		   const char *ns, const struct kube_watch_opts *opts, kube_event_fn fn, void *arg,
		   struct err *err)
{
	static const struct kube_stream_fns fns = {.on_data = on_data, .on_end = on_end};
	static const struct kube_watch_opts none;
	CLEANUP(sbuf_fini) struct sbuf path = SBUF_INIT(LIMIT_URL_BYTES);
	struct kube_watch *w;
	unsigned seconds;
	char num[16];
	enum rc rc;

	opts = opts ? opts : &none;
	seconds = opts->timeout_seconds ? opts->timeout_seconds : KUBE_WATCH_SECONDS;
	snprintf(num, sizeof(num), "%u", seconds);
	kube_path(&path, kind, ns, NULL, NULL);
	sbuf_adds(&path, "?watch=true&allowWatchBookmarks=true");
	kube_query_add(&path, "labelSelector", opts->label_selector);
	kube_query_add(&path, "fieldSelector", opts->field_selector);
	kube_query_add(&path, "resourceVersion", opts->resource_version);
	kube_query_add(&path, "timeoutSeconds", num);
	rc = sbuf_rc(&path);
	if (rc)
		return err_set(err, rc, "cannot build the path of a watch");

	w = mem_alloc(sizeof(*w));
	if (!w)
		return err_set(err, RC_NOMEM, "cannot allocate a watch");
	w->k = k;
	w->fn = fn;
	w->arg = arg;
	w->seen = (struct kube_seen){"GET", "watch", kind->plural, 0, 0};
	w->began = loop_now(k->loop);
	http_lines_init(&w->lines, MAX_LINE);
	list_push_tail(&k->watches, &w->link);
	rc = ev_timer_after(k->loop, &w->timer, seconds * USEC_PER_SEC + GRACE, on_silent, w, err);
	if (!rc)
		rc = k->t.watch_open(k->ctx,
				     &(struct kube_request){.method = "GET",
							    .path = sbuf_str(&path),
							    .timeout = k->timeout},
				     &fns, w, &w->op, err);
	if (rc) {
		watch_destroy(w);
		return rc;
	}
	*out = w;
	return RC_OK;
}
