#include "kube/kube.h"

#include <stdio.h>
#include <string.h>

#include "api/type.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"
#include "http/uri.h"
#include "json/json.h"
#include "kube/kube_int.h"

/* Theory of operation
 *
 * A struct kube_call lives from the start of a request until its handle is freed (or, without a
 * handle, until its callback has returned).  The deadline is kept here, not in the transport: whatever
 * a transport loses, the caller hears RC_TIMEOUT.  A call is `busy` while its callback runs, so that the
 * callback may free the handle.
 */

struct kube_call {
	struct list link;
	struct kube *k; /* NULL: the client is gone */
	void *op;	/* of the transport; NULL: none in flight */
	struct ev_src *timer;
	kube_reply_fn fn;
	void *arg;
	bool is_raw; /* any body will do */
	bool is_done;
	bool is_busy;
	bool is_freed; /* no handle (any more) */
	usec_t began;
	struct kube_seen seen;
};

enum rc kube_new_over(struct kube **out, struct loop *loop, const struct kube_transport *t,
		      void *ctx, struct err *err)
{
	struct kube *k = mem_alloc(sizeof(*k));

	if (!k) {
		if (t->free)
			t->free(ctx);
		return err_set(err, RC_NOMEM, "cannot allocate an API client");
	}
	k->loop = loop;
	k->t = *t;
	k->ctx = ctx;
	k->timeout = KUBE_TIMEOUT;
	list_init(&k->calls);
	list_init(&k->watches);
	*out = k;
	return RC_OK;
}

enum rc kube_new(struct kube **out, struct loop *loop, const struct kube_config *cfg,
		 struct err *err)
{
	void *ctx = NULL;
	enum rc rc = kube_http_new(&ctx, loop, cfg, err);

	if (!rc)
		rc = kube_new_over(out, loop, &kube_http_transport, ctx, err);
	if (!rc && cfg->timeout)
		(*out)->timeout = cfg->timeout;
	if (!rc) {
		const char *host = strstr(cfg->server, "://") + 3; /* kube_http_new() has looked */

		(*out)->server = mem_strndup(host, strcspn(host, "/")); /* NULL: not shown */
	}
	return rc;
}

void kube_observe(struct kube *k, void (*fn)(const struct kube_seen *seen, void *arg), void *arg)
{
	k->seen = fn;
	k->seen_arg = arg;
}

const char *kube_server(const struct kube *k)
{
	return k->server ? k->server : "";
}

void kube_tell(const struct kube *k, struct kube_seen *seen, usec_t began, int status)
{
	if (!k->seen)
		return;
	seen->status = status;
	seen->took = loop_now(k->loop) - began;
	k->seen(seen, k->seen_arg);
}

/* Calls */

static void call_destroy(struct kube_call *c)
{
	list_remove(&c->link);
	ev_src_free(c->timer);
	mem_free(c);
}

/* Nothing of the call runs any more after this. */
static void call_stop(struct kube_call *c)
{
	if (c->op)
		c->k->t.cancel(c->k->ctx, STEAL(c->op));
	c->timer = ev_src_free(c->timer);
	c->is_done = true;
}

struct kube_call *kube_call_free(struct kube_call *c)
{
	if (!c || c->is_freed)
		return NULL;
	if (!c->is_done)
		call_stop(c);
	c->is_freed = true;
	if (!c->is_busy)
		call_destroy(c);
	return NULL;
}

bool kube_call_is_done(const struct kube_call *c)
{
	return !c || c->is_done;
}

struct kube *kube_free(struct kube *k)
{
	if (!k)
		return NULL;
	for (struct list *l; (l = list_pop_head(&k->calls));) {
		struct kube_call *c = LIST_ENTRY(l, struct kube_call, link);

		if (!c->is_done)
			call_stop(c);
		c->k = NULL;
		if (c->is_freed && !c->is_busy)
			call_destroy(c);
	}
	while (!list_is_empty(&k->watches)) {
		struct list *l = list_pop_head(&k->watches);

		/* Takes itself off the list by clearing its link. */
		kube_watch_drop((struct kube_watch *)(void *)l);
	}
	if (k->t.free)
		k->t.free(k->ctx);
	mem_free(k->server);
	return mem_free(k);
}

void kube_decode_status(const struct kube_response *r, const struct json *body,
			struct kube_reply *out)
{
	const char *reason, *message;

	out->http_status = r->status;
	out->retry_after = r->retry_after;
	out->reason = "";
	if (r->rc) {
		out->rc = r->rc;
		if (r->err && *r->err->msg)
			out->err = *r->err;
		else
			err_set(&out->err, r->rc, "no answer from the API server (%s)",
				rc_name(r->rc));
		out->err.rc = out->rc;
		return;
	}
	if (r->status >= 200 && r->status < 300)
		return;
	reason = js_get_str(body, "reason");
	message = js_get_str(body, "message");
	if (reason)
		out->reason = reason;
	if (!out->retry_after)
		out->retry_after =
			(usec_t)js_int(js_at(body, "details", "retryAfterSeconds", NULL), 0) *
			USEC_PER_SEC;
	out->rc = rc_from_http(r->status, out->reason);
	if (out->rc == RC_OK) /* 1xx and 3xx are no answers to what we asked */
		out->rc = RC_IO;
	if (message)
		err_set(&out->err, out->rc, "%s", message);
	else
		err_set(&out->err, out->rc, "the API server answered with status %d", r->status);
}

static void call_deliver(struct kube_call *c, const struct kube_response *r)
{
	CLEANUP(js_unrefp) struct json *body = NULL;
	struct kube_reply reply = {
		.text = r->body ? r->body : "", .n_text = r->n_body, .reason = ""};
	enum rc parsed = RC_OK;

	c->op = NULL;
	c->timer = ev_src_free(c->timer);
	c->is_done = true;
	kube_tell(c->k, &c->seen, c->began, r->rc ? 0 : r->status);
	if (!r->rc && r->n_body)
		parsed = js_parse(r->body, r->n_body, &body, NULL);
	kube_decode_status(r, body, &reply);
	reply.body = body;
	if (!reply.rc && parsed == RC_NOMEM)
		reply.rc = err_set(&reply.err, RC_NOMEM, "cannot allocate the decoded answer");
	else if (!reply.rc && (parsed || !body) && !c->is_raw)
		reply.rc = err_set(&reply.err, RC_IO, "the API server's answer is not JSON");
	c->is_busy = true;
	if (c->fn)
		c->fn(&reply, c->arg);
	c->is_busy = false;
	if (c->is_freed)
		call_destroy(c);
}

static void on_done(const struct kube_response *r, void *arg)
{
	call_deliver(arg, r);
}

static void on_deadline(void *arg)
{
	struct kube_call *c = arg;
	struct err err = {0};
	struct kube_response r = {.rc = RC_TIMEOUT, .err = &err};

	err_set(&err, RC_TIMEOUT, "the API server did not answer in time");
	if (c->op)
		c->k->t.cancel(c->k->ctx, STEAL(c->op));
	call_deliver(c, &r);
}

/* What it is, in words that outlive the request. */
static struct kube_seen seen_of(const char *method, const struct api_kind *kind, bool has_name)
{
	static const struct {
		const char *method, *verb, *verb_all;
	} verbs[] = {
		{"GET", "get", "list"},
		{"POST", "create", "create"},
		{"PUT", "update", "update"},
		{"PATCH", "patch", "patch"},
		{"DELETE", "delete", "deletecollection"},
	};
	struct kube_seen seen = {"other", "other", kind ? kind->plural : "", 0, 0};

	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++) {
		if (strcmp(verbs[i].method, method) != 0)
			continue;
		seen.method = verbs[i].method;
		seen.verb = kind && !has_name ? verbs[i].verb_all : verbs[i].verb;
	}
	return seen;
}

/* kind NULL: kube_raw(), any body will do. */
static enum rc call_start(struct kube *k, struct kube_call **out, struct kube_request *rq,
			  const struct api_kind *kind, bool has_name, kube_reply_fn fn, void *arg,
			  struct err *err)
{
	struct kube_call *c = mem_alloc(sizeof(*c));
	enum rc rc;

	if (!c)
		return err_set(err, RC_NOMEM, "cannot allocate a request");
	if (!rq->timeout)
		rq->timeout = k->timeout;
	c->k = k;
	c->fn = fn;
	c->arg = arg;
	c->is_raw = !kind;
	c->seen = seen_of(rq->method, kind, has_name);
	c->began = loop_now(k->loop);
	list_push_tail(&k->calls, &c->link);
	rc = ev_timer_after(k->loop, &c->timer, rq->timeout, on_deadline, c, err);
	if (!rc)
		rc = k->t.request(k->ctx, rq, on_done, c, &c->op, err);
	if (rc) {
		call_destroy(c);
		return rc;
	}
	c->is_freed = !out;
	if (out)
		*out = c;
	return RC_OK;
}

/* Paths */

void kube_path(struct sbuf *out, const struct api_kind *kind, const char *ns, const char *name,
	       const char *subresource)
{
	if (*kind->group)
		sbuf_addf(out, "/apis/%s/%s", kind->group, kind->version);
	else
		sbuf_addf(out, "/api/%s", kind->version);
	if (kind->is_namespaced && !str_is_empty(ns)) {
		sbuf_adds(out, "/namespaces/");
		http_uri_escape(out, ns);
	}
	sbuf_addf(out, "/%s", kind->plural);
	if (name) {
		sbuf_addc(out, '/');
		http_uri_escape(out, name);
	}
	if (subresource)
		sbuf_addf(out, "/%s", subresource);
}

void kube_query_add(struct sbuf *path, const char *name, const char *value)
{
	if (str_is_empty(value))
		return;
	sbuf_addc(path, memchr(sbuf_str(path), '?', path->n) ? '&' : '?');
	sbuf_addf(path, "%s=", name);
	http_uri_escape(path, value);
}

static void list_query(struct sbuf *path, const struct kube_list_opts *o)
{
	char num[16];

	if (!o)
		return;
	kube_query_add(path, "labelSelector", o->label_selector);
	kube_query_add(path, "fieldSelector", o->field_selector);
	kube_query_add(path, "resourceVersion", o->resource_version);
	kube_query_add(path, "continue", o->continue_);
	if (o->limit) {
		snprintf(num, sizeof(num), "%u", o->limit);
		kube_query_add(path, "limit", num);
	}
}

struct typed {
	const char *method;
	const struct api_kind *kind;
	const char *ns, *name, *subresource;
	const struct kube_list_opts *query;
	const char *content_type;
	const struct json *body;
};

static enum rc typed_call(struct kube *k, struct kube_call **out, const struct typed *t,
			  kube_reply_fn fn, void *arg, struct err *err)
{
	CLEANUP(sbuf_fini) struct sbuf path = SBUF_INIT(LIMIT_URL_BYTES);
	CLEANUP(sbuf_fini) struct sbuf body = SBUF_INIT(LIMIT_BODY_BYTES);
	struct kube_request rq = {.method = t->method};
	enum rc rc;

	if (t->name && !*t->name)
		return err_set(err, RC_INVALID, "a %s needs a name", t->kind->kind);
	kube_path(&path, t->kind, t->ns, t->name, t->subresource);
	list_query(&path, t->query);
	if (t->body) {
		js_print(t->body, &body, false);
		rq.content_type = t->content_type ? t->content_type : "application/json";
		rq.body = sbuf_str(&body);
		rq.n_body = body.n;
	}
	rc = sbuf_rc(&path);
	if (!rc)
		rc = sbuf_rc(&body);
	if (rc)
		return err_set(err, rc, "cannot build the request for %s '%s'", t->kind->kind,
			       t->name ? t->name : "");
	rq.path = sbuf_str(&path);
	return call_start(k, out, &rq, t->kind, t->name != NULL, fn, arg, err);
}

enum rc kube_get(struct kube *k, struct kube_call **call, const struct api_kind *kind,
		 const char *ns, const char *name, kube_reply_fn fn, void *arg, struct err *err)
{
	return typed_call(k, call,
			  &(struct typed){.method = "GET", .kind = kind, .ns = ns, .name = name},
			  fn, arg, err);
}

enum rc kube_list(struct kube *k, struct kube_call **call, const struct api_kind *kind,
		  const char *ns, const struct kube_list_opts *opts, kube_reply_fn fn, void *arg,
		  struct err *err)
{
	return typed_call(k, call,
			  &(struct typed){.method = "GET", .kind = kind, .ns = ns, .query = opts},
			  fn, arg, err);
}

enum rc kube_create(struct kube *k, struct kube_call **call, const struct api_kind *kind,
		    const char *ns, const struct json *body, kube_reply_fn fn, void *arg,
		    struct err *err)
{
	return typed_call(k, call,
			  &(struct typed){.method = "POST", .kind = kind, .ns = ns, .body = body},
			  fn, arg, err);
}

enum rc kube_post(struct kube *k, struct kube_call **call, const struct api_kind *kind,
		  const char *ns, const char *name, const char *subresource,
		  const struct json *body, kube_reply_fn fn, void *arg, struct err *err)
{
	return typed_call(k, call,
			  &(struct typed){.method = "POST",
					  .kind = kind,
					  .ns = ns,
					  .name = name,
					  .subresource = subresource,
					  .body = body},
			  fn, arg, err);
}

enum rc kube_update(struct kube *k, struct kube_call **call, const struct api_kind *kind,
		    const char *ns, const char *name, const char *subresource,
		    const struct json *body, kube_reply_fn fn, void *arg, struct err *err)
{
	return typed_call(k, call,
			  &(struct typed){.method = "PUT",
					  .kind = kind,
					  .ns = ns,
					  .name = name,
					  .subresource = subresource,
					  .body = body},
			  fn, arg, err);
}

enum rc kube_patch(struct kube *k, struct kube_call **call, const struct api_kind *kind,
		   const char *ns, const char *name, const char *subresource, enum kube_patch type,
		   const struct json *body, kube_reply_fn fn, void *arg, struct err *err)
{
	static const char *const types[] = {
		[KUBE_PATCH_MERGE] = "application/merge-patch+json",
		[KUBE_PATCH_JSON] = "application/json-patch+json",
		[KUBE_PATCH_STRATEGIC] = "application/strategic-merge-patch+json",
	};

	return typed_call(k, call,
			  &(struct typed){.method = "PATCH",
					  .kind = kind,
					  .ns = ns,
					  .name = name,
					  .subresource = subresource,
					  .content_type = types[type],
					  .body = body},
			  fn, arg, err);
}

static struct json *delete_body(const struct kube_delete_opts *o)
{
	struct json *j = js_pack("{s:s, s:s}", "apiVersion", "v1", "kind", "DeleteOptions");
	enum rc rc = j ? RC_OK : RC_NOMEM;

	if (!rc && o->grace_seconds >= 0)
		rc = js_set(j, "gracePeriodSeconds", js_new_int(o->grace_seconds));
	if (!rc && o->propagation)
		rc = js_set(j, "propagationPolicy", js_new_str(o->propagation));
	if (!rc && (!str_is_empty(o->uid) || !str_is_empty(o->resource_version))) {
		struct json *pre = js_ensure_object(j, "preconditions");

		rc = pre ? RC_OK : RC_NOMEM;
		if (!rc && !str_is_empty(o->uid))
			rc = js_set(pre, "uid", js_new_str(o->uid));
		if (!rc && !str_is_empty(o->resource_version))
			rc = js_set(pre, "resourceVersion", js_new_str(o->resource_version));
	}
	return rc ? js_unref(j) : j;
}

enum rc kube_delete(struct kube *k, struct kube_call **call, const struct api_kind *kind,
		    const char *ns, const char *name, const struct kube_delete_opts *opts,
		    kube_reply_fn fn, void *arg, struct err *err)
{
	CLEANUP(js_unrefp) struct json *body = NULL;
	const struct kube_delete_opts none = KUBE_DELETE_OPTS_INIT;

	body = delete_body(opts ? opts : &none);
	if (!body)
		return err_set(err, RC_NOMEM, "cannot build DeleteOptions");
	return typed_call(
		k, call,
		&(struct typed){
			.method = "DELETE", .kind = kind, .ns = ns, .name = name, .body = body},
		fn, arg, err);
}

enum rc kube_delete_collection(struct kube *k, struct kube_call **call, const struct api_kind *kind,
			       const char *ns, const struct kube_list_opts *which,
			       const struct kube_delete_opts *opts, kube_reply_fn fn, void *arg,
			       struct err *err)
{
	CLEANUP(js_unrefp) struct json *body = NULL;
	const struct kube_delete_opts none = KUBE_DELETE_OPTS_INIT;

	body = delete_body(opts ? opts : &none);
	if (!body)
		return err_set(err, RC_NOMEM, "cannot build DeleteOptions");
	return typed_call(
		k, call,
		&(struct typed){
			.method = "DELETE", .kind = kind, .ns = ns, .query = which, .body = body},
		fn, arg, err);
}

enum rc kube_raw(struct kube *k, struct kube_call **call, const char *method, const char *path,
		 const char *content_type, const char *body, size_t n_body, usec_t timeout,
		 kube_reply_fn fn, void *arg, struct err *err)
{
	struct kube_request rq = {.method = method,
				  .path = path,
				  .content_type = content_type,
				  .body = body,
				  .n_body = n_body,
				  .timeout = timeout};

	return call_start(k, call, &rq, NULL, false, fn, arg, err);
}
