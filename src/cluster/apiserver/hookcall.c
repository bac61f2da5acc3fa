/* The hooks' side of the server: lookups, subresource calls, requests to ourselves, eviction. */
#include "cluster/apiserver/apisrv_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "ev/ev.h"

static struct apisrv *S(struct hook_env *env)
{
	return (struct apisrv *)env;
}

static struct apisrv_call *C(struct hook_call *call)
{
	return (struct apisrv_call *)call;
}

static const struct apisrv_call *CC(const struct hook_call *call)
{
	return (const struct apisrv_call *)call;
}

/* ---- lookups -------------------------------------------------------------------------------------- */

static void release_borrowed(struct apisrv *s)
{
	for (size_t i = 0; i < s->n_borrowed; i++)
		js_unref(s->borrowed[i]);
	s->n_borrowed = 0;
}

static void on_borrow_end(void *arg)
{
	struct apisrv *s = arg;

	s->borrow_defer = ev_src_free(s->borrow_defer);
	release_borrowed(s);
}

/* Keeps j alive until the loop goes on; NULL: there was no memory for it. */
static const struct json *lend(struct apisrv *s, struct json *j)
{
	if (!j) {
		s->lookup_failed = true;
		return NULL;
	}
	if (!mem_grow((void **)&s->borrowed, &s->cap_borrowed, s->n_borrowed,
		      sizeof(*s->borrowed))) {
		js_unref(j);
		s->lookup_failed = true;
		return NULL;
	}
	s->borrowed[s->n_borrowed++] = j;
	if (!s->borrow_defer && ev_defer(s->loop, &s->borrow_defer, on_borrow_end, s, NULL))
		log_debug("borrowed objects wait for the next lookup");
	return j;
}

void hook_borrow_fini(struct apisrv *s)
{
	s->borrow_defer = ev_src_free(s->borrow_defer);
	release_borrowed(s);
	s->borrowed = mem_free(s->borrowed);
	s->cap_borrowed = 0;
}

const struct json *hook_get(struct hook_env *env, const char *resource, const char *ns,
			    const char *name)
{
	CLEANUP(mem_freep)
	char *key = str_is_empty(ns) ? mem_printf("%s/%s", resource, name)
				     : mem_printf("%s/%s/%s", resource, ns, name);
	struct obj *o = key ? store_newest(S(env)->store, key) : NULL;

	if (!key)
		S(env)->lookup_failed = true;
	return o ? lend(S(env), obj_json(o)) : NULL;
}

void hook_each(struct hook_env *env, const char *resource, const char *ns, hook_each_fn fn,
	       void *arg)
{
	struct store_iter it;
	struct obj *o;

	store_iter_in(&it, S(env)->store, resource, ns);
	while ((o = store_iter_next_newest(&it))) {
		CLEANUP(js_unrefp) struct json *j = obj_json(o);

		if (!j)
			S(env)->lookup_failed = true;
		else if (!fn(j, arg))
			break;
	}
}

static const struct json *first_of(struct hook_env *env, const char *table)
{
	struct store_iter it;

	store_iter_init(&it, S(env)->store, table, NULL);
	struct obj *o = store_iter_next_newest(&it);

	return o ? lend(S(env), obj_json(o)) : NULL;
}

const struct json *hook_kubevirt_config(struct hook_env *env)
{
	return js_at(first_of(env, "kubevirts.kubevirt.io"), "spec", "configuration", NULL);
}

const struct json *hook_ferry_config(struct hook_env *env)
{
	return js_get(first_of(env, "ferryconfigs.ferry.dev"), "spec");
}

usec_t hook_now(struct hook_env *env)
{
	return loop_realtime(S(env)->loop);
}

struct loop *hook_loop(struct hook_env *env)
{
	return S(env)->loop;
}

void *hook_arg(struct hook_env *env)
{
	return S(env)->hooks.arg;
}

void hook_warn(struct hook_ctx *ctx, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	call_warn(ctx->warnings, text);
}

/* ---- requests to ourselves ------------------------------------------------------------------------- */

struct inner {
	struct list link;
	struct apisrv *srv;
	struct apisrv_call *call;  /* NULL: answered */
	struct apisrv_call *owner; /* NULL: nobody's */
	inner_fn then;
	void *arg;
	hook_then_fn hook_then;
	bool inside;
	int status;
	struct json *answer;
	struct ev_src *defer;
};

static void inner_free(struct inner *in)
{
	list_remove(&in->link);
	ev_src_free(in->defer);
	js_unref(in->answer);
	mem_free(in);
}

static void inner_deliver(struct inner *in)
{
	struct apisrv_call *owner = in->owner;

	list_remove(&in->link); /* the owner may end in what follows */
	if (owner)
		call_enter(owner);
	if (in->hook_then)
		in->hook_then((struct hook_call *)owner, in->status, in->answer);
	else if (in->then)
		in->then(in->arg, in->status, in->answer);
	if (owner)
		call_leave(owner);
	inner_free(in);
}

static void on_inner_defer(void *arg)
{
	inner_deliver(arg);
}

static void inner_answer(void *arg, const struct apisrv_answer *a)
{
	struct inner *in = arg;

	in->call = NULL;
	in->status = a->status;
	if (a->n)
		ignore_rc(js_parse(a->body, a->n, &in->answer, NULL)); /* not JSON: no object */
	if (!in->inside)
		inner_deliver(in);
}

static const struct apisrv_sink inner_sink = {.answer = inner_answer};

static struct inner *inner_new(struct apisrv *s, struct apisrv_call *owner)
{
	struct inner *in = mem_alloc(sizeof(*in));

	if (!in)
		return NULL;
	in->srv = s;
	in->owner = owner;
	list_push_tail(owner ? &owner->inner : &s->inner, &in->link);
	return in;
}

static enum rc inner_start(struct inner *in, const struct apisrv_user *user, const char *method,
			   const char *target, const char *content_type, struct json *body,
			   struct err *err)
{
	CLEANUP(mem_freep) char *text = body ? js_to_text(body) : NULL;

	if (body && !text) {
		js_unref(body);
		inner_free(in);
		return err_set(err, RC_NOMEM, "out of memory");
	}
	js_unref(body);
	struct apisrv_request req = {
		.method = method,
		.target = target,
		.content_type = content_type,
		.user_agent = "ferry-apiserver",
		.body = text,
		.n_body = text ? strlen(text) : 0,
		.user = user,
		.is_inner = true,
	};

	in->inside = true;
	in->call = apisrv_handle(in->srv, &req, &inner_sink, in);
	in->inside = false;
	/* Never from inside the call that made it. */
	if (!in->call && ev_defer(in->srv->loop, &in->defer, on_inner_defer, in, err)) {
		inner_free(in);
		return err_set(err, RC_NOMEM, "out of memory");
	}
	return RC_OK;
}

enum rc apisrv_inner(struct apisrv *s, struct apisrv_call *owner, const struct apisrv_user *user,
		     const char *method, const char *target, const char *content_type,
		     struct json *body, inner_fn then, void *arg, struct err *err)
{
	struct inner *in = inner_new(s, owner);

	if (!in) {
		js_unref(body);
		return err_set(err, RC_NOMEM, "out of memory");
	}
	in->then = then;
	in->arg = arg;
	return inner_start(in, user, method, target, content_type, body, err);
}

void inner_cancel_all(struct list *head)
{
	while (!list_is_empty(head)) {
		struct inner *in = LIST_ENTRY(head->next, struct inner, link);

		if (in->call)
			apisrv_cancel(in->call);
		inner_free(in);
	}
}

/* ---- calls ------------------------------------------------------------------------------------------ */

struct hook_env *hook_call_env(struct hook_call *call)
{
	return (struct hook_env *)C(call)->srv;
}

const struct apisrv_user *hook_call_user(const struct hook_call *call)
{
	return &CC(call)->user;
}

const char *hook_call_ns(const struct hook_call *call)
{
	return CC(call)->ns;
}

const char *hook_call_name(const struct hook_call *call)
{
	return CC(call)->name;
}

const char *hook_call_rest(const struct hook_call *call)
{
	return CC(call)->rest;
}

const char *hook_call_version(const struct hook_call *call)
{
	return CC(call)->version;
}

const char *hook_call_param(const struct hook_call *call, const char *name)
{
	return call_param(CC(call), name);
}

const char *hook_call_body(const struct hook_call *call, size_t *n)
{
	if (n)
		*n = CC(call)->n_body;
	return CC(call)->body ? CC(call)->body : "";
}

const struct json *hook_call_json(const struct hook_call *call)
{
	return CC(call)->json;
}

const char *hook_call_content_type(const struct hook_call *call)
{
	return CC(call)->content_type;
}

struct http_req *hook_call_http(struct hook_call *call)
{
	return C(call)->http;
}

void hook_call_set_data(struct hook_call *call, void *data)
{
	C(call)->hook_data = data;
}

void *hook_call_data(const struct hook_call *call)
{
	return CC(call)->hook_data;
}

void hook_call_on_cancel(struct hook_call *call, void (*fn)(struct hook_call *call))
{
	C(call)->hook_cancel = fn;
}

void hook_call_dropped(struct apisrv_call *c)
{
	void (*fn)(struct hook_call *) = c->hook_cancel;

	c->hook_cancel = NULL;
	if (fn)
		fn((struct hook_call *)c);
}

void hook_call_reply(struct hook_call *call, int status, struct json *body)
{
	struct apisrv_call *c = C(call);

	call_enter(c);
	if (body)
		call_answer_json(c, status, body);
	else
		call_answer(c, status, NULL, "", 0);
	call_leave(c);
}

void hook_call_reply_bytes(struct hook_call *call, int status, const char *content_type,
			   const void *bytes, size_t n)
{
	struct apisrv_call *c = C(call);

	call_enter(c);
	call_answer(c, status, content_type, bytes, n);
	call_leave(c);
}

void hook_call_fail(struct hook_call *call, enum rc rc, const char *fmt, ...)
{
	struct apisrv_call *c = C(call);
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	call_enter(c);
	call_fail(c, rc_http(rc), rc_reason(rc), NULL, "%s", text);
	call_leave(c);
}

void hook_call_fail_details(struct hook_call *call, enum rc rc, const char *group, const char *kind,
			    const char *name, const char *message)
{
	struct apisrv_call *c = C(call);

	call_enter(c);
	call_fail(c, rc_http(rc), rc_reason(rc),
		  js_pack("{s:s*, s:s*, s:s*}", "name", name, "group",
			  str_is_empty(group) ? NULL : group, "kind", kind),
		  "%s", message);
	call_leave(c);
}

void hook_call_upgraded(struct hook_call *call)
{
	struct apisrv_call *c = C(call);

	call_enter(c);
	c->done = true;
	c->status = 101;
	/* The request is the websocket's now: the sink only forgets it. */
	if (c->sink && c->sink->upgraded)
		c->sink->upgraded(c->arg);
	call_leave(c);
}

enum rc hook_call_request(struct hook_call *call, enum hook_as as, const char *method,
			  const char *target, const char *content_type, struct json *body,
			  hook_then_fn then, struct err *err)
{
	struct apisrv_call *c = C(call);
	struct inner *in = inner_new(c->srv, c);

	if (!in) {
		js_unref(body);
		return err_set(err, RC_NOMEM, "out of memory");
	}
	in->hook_then = then;
	return inner_start(in, as == HOOK_AS_COMPONENT ? &apisrv_self : &c->user, method, target,
			   content_type, body, err);
}

void hook_call_reply_status(struct hook_call *call, int status, const struct json *obj)
{
	hook_call_reply(call, status, obj ? js_copy(obj) : NULL);
}

/* ---- dispatch ----------------------------------------------------------------------------------------- */

/* The tail of sub behind path, or NULL: no match. */
static const char *match_path(const struct api_subresource *at, const char *sub)
{
	size_t n = strlen(at->path);

	if (strcmp(sub, at->path) == 0)
		return "";
	if (at->takes_rest && str_has_prefix(sub, at->path) && sub[n] == '/')
		return sub + n + 1;
	return NULL;
}

static const char *match(const struct api_subresource *at, const struct apisrv_call *c)
{
	if (strcmp(at->group, c->group) != 0 || !api_subresource_is_in(at, c->version))
		return NULL;
	switch (at->scope) {
	case API_SCOPE_OBJECT:
		return strcmp(at->resource, c->plural) == 0 && *c->name && *c->sub
			       ? match_path(at, c->sub)
			       : NULL;
	case API_SCOPE_NAMESPACE:
		return *c->ns && !*c->name ? match_path(at, c->plural) : NULL;
	case API_SCOPE_CLUSTER:
		return !*c->ns && !*c->name ? match_path(at, c->plural) : NULL;
	default:
		return NULL;
	}
}

const struct subres_hook *subres_find(struct apisrv_call *c, bool *other_method)
{
	const struct apisrv_hooks *hooks = &c->srv->hooks;

	for (size_t i = 0; i < hooks->n_subres; i++) {
		const struct api_subresource *at = hooks->subres[i].at;
		const char *rest = match(at, c);

		if (!rest)
			continue;
		if (strcmp(at->method, c->method) != 0) {
			*other_method = true;
			continue;
		}
		c->rest = rest;
		return &hooks->subres[i];
	}
	return NULL;
}

void serve_subres(struct apisrv_call *c)
{
	if (c->res && !parse_body(c))
		return;
	c->subres->handle((struct hook_call *)c);
}

/* Without a hook, which knows disruption budgets, an eviction is a deletion. */
void serve_eviction(struct apisrv_call *c)
{
	const struct json *options = js_get(c->json, "deleteOptions");

	serve_delete_with(c, options,
			  js_pack("{s:s, s:s, s:{}, s:s, s:i}", "kind", "Status", "apiVersion",
				  "v1", "metadata", "status", "Success", "code", 201));
}
