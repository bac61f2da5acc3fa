#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "fixture.h"

static const char *const masters[] = {"system:masters"};
static const char *const controllers[] = {"system:ferry:controllers"};
static const char *const nodes[] = {"system:nodes", "system:authenticated"};
static const char *const known[] = {"system:authenticated"};
const struct apisrv_user fx_admin = {.name = "admin", .n_groups = 1, .groups = masters};
const struct apisrv_user fx_controller = {.name = "ctl", .n_groups = 1, .groups = controllers};
const struct apisrv_user fx_node1 = {.name = "system:node:node-1", .n_groups = 2, .groups = nodes};
const struct apisrv_user fx_nobody = {.name = "eve", .n_groups = 1, .groups = known};

static void up(struct fx *f, const struct apisrv_hooks *hooks, bool with_roles,
	       struct tokens *tokens)
{
	struct err err = {0};

	memset(f, 0, sizeof(*f));
	assert_int_equal(loop_new(&f->loop, LOOP_VIRTUAL, &err), RC_OK);
	assert_int_equal(store_open(&f->store, f->loop, NULL, &err), RC_OK);
	struct apisrv_config c = {.store = f->store,
				  .hooks = hooks,
				  .seed = 7,
				  .with_roles = with_roles,
				  .tokens = tokens};

	if (apisrv_new(&f->srv, f->loop, &c, &err))
		fail_msg("%s", err.msg);
	fx_settle(f);
}

void fx_up(struct fx *f, const struct apisrv_hooks *hooks)
{
	up(f, hooks, false, NULL);
}

void fx_up_with_roles(struct fx *f, const struct apisrv_hooks *hooks)
{
	up(f, hooks, true, NULL);
}

void fx_up_with_tokens(struct fx *f, struct tokens *tokens)
{
	up(f, NULL, true, tokens);
}

void fx_again(struct fx *f, const struct apisrv_hooks *hooks)
{
	struct apisrv_config c = {
		.store = f->store, .hooks = hooks, .seed = 11, .with_roles = true};

	f->srv = apisrv_free(f->srv);
	assert_int_equal(apisrv_new(&f->srv, f->loop, &c, NULL), RC_OK);
	fx_settle(f);
}

void fx_down(struct fx *f)
{
	f->srv = apisrv_free(f->srv);
	f->store = store_close(f->store);
	f->loop = loop_free(f->loop);
	assert_int_equal(mem_live_blocks(), 0);
}

void fx_settle(struct fx *f)
{
	bool did = true;

	while (did)
		assert_int_equal(loop_step(f->loop, 0, &did, NULL), RC_OK);
}

static void on_sleep(void *arg)
{
	bool *done = arg;

	*done = true;
}

void fx_sleep(struct fx *f, usec_t t)
{
	struct ev_src *timer = NULL;
	bool done = false;

	assert_int_equal(ev_timer_after(f->loop, &timer, t, on_sleep, &done, NULL), RC_OK);
	while (!done)
		assert_int_equal(loop_step(f->loop, USEC_INFINITY, NULL, NULL), RC_OK);
	ev_src_free(timer);
	fx_settle(f);
}

static void on_answer(void *arg, const struct apisrv_answer *a)
{
	struct fx_answer *x = arg;

	if (x->is_armed)
		x->fired = mem_fault_disarm();
	assert_int_equal(x->status, 0);
	x->status = a->status;
	x->retry_after = a->retry_after;
	x->content_type = mem_strdup(a->content_type);
	x->text = mem_strndup(a->n ? a->body : "", a->n);
	x->n = a->n;
	for (size_t i = 0; i < a->n_warnings && i < 8; i++)
		snprintf(x->warnings[x->n_warnings++], 256, "%s", a->warnings[i]);
	if (a->n && a->body[0] == '{')
		assert_int_equal(js_parse(a->body, a->n, &x->json, NULL), RC_OK);
}

static void call(struct fx *f, struct fx_answer *a, const struct apisrv_user *user,
		 const struct apisrv_user *as, const char *method, const char *target,
		 const char *content_type, const char *accept, const char *body);

void fx_call_nth(struct fx *f, struct fx_answer *a, unsigned nth, const char *method,
		 const char *target, const char *content_type, const char *accept, const char *body)
{
	memset(a, 0, sizeof(*a));
	a->is_armed = true;
	mem_fault_arm(nth);
	call(f, a, &fx_admin, NULL, method, target, content_type, accept, body);
}

void fx_call(struct fx *f, struct fx_answer *a, const struct apisrv_user *user, const char *method,
	     const char *target, const char *content_type, const char *accept, const char *body)
{
	memset(a, 0, sizeof(*a));
	call(f, a, user, NULL, method, target, content_type, accept, body);
}

void fx_call_as(struct fx *f, struct fx_answer *a, const struct apisrv_user *user,
		const struct apisrv_user *as, const char *method, const char *target,
		const char *body)
{
	memset(a, 0, sizeof(*a));
	call(f, a, user, as, method, target, NULL, NULL, body);
}

static void send(struct fx *f, struct fx_answer *a, const struct apisrv_request *r);

static void call_token(struct fx *f, struct fx_answer *a, const char *header, const char *method,
		       const char *target, const char *body)
{
	const struct apisrv_request r = {
		.method = method,
		.target = target,
		.body = body,
		.n_body = body ? strlen(body) : 0,
		.authorization = header,
	};

	send(f, a, &r);
}

void fx_call_token(struct fx *f, struct fx_answer *a, const char *header, const char *method,
		   const char *target, const char *body)
{
	memset(a, 0, sizeof(*a));
	call_token(f, a, header, method, target, body);
}

void fx_call_token_nth(struct fx *f, struct fx_answer *a, unsigned nth, const char *header,
		       const char *method, const char *target, const char *body)
{
	memset(a, 0, sizeof(*a));
	a->is_armed = true;
	mem_fault_arm(nth);
	call_token(f, a, header, method, target, body);
}

static void call(struct fx *f, struct fx_answer *a, const struct apisrv_user *user,
		 const struct apisrv_user *as, const char *method, const char *target,
		 const char *content_type, const char *accept, const char *body)
{
	const struct apisrv_request r = {
		.method = method,
		.target = target,
		.content_type = content_type,
		.accept = accept,
		.body = body,
		.n_body = body ? strlen(body) : 0,
		.user = user,
		.as = as,
	};

	send(f, a, &r);
}

static void send(struct fx *f, struct fx_answer *a, const struct apisrv_request *r)
{
	static const struct apisrv_sink sink = {.answer = on_answer};

	apisrv_handle(f->srv, r, &sink, a);
	for (int i = 0; i < 10000 && !a->status; i++)
		assert_int_equal(loop_step(f->loop, 0, NULL, NULL), RC_OK);
	if (!a->status)
		fail_msg("no answer to %s %s", r->method, r->target);
}

void fx_answer_fini(struct fx_answer *a)
{
	mem_free(a->content_type);
	mem_free(a->text);
	js_unref(a->json);
	memset(a, 0, sizeof(*a));
}

static struct json *call_json(struct fx *f, const struct apisrv_user *user, int want,
			      const char *method, const char *target, const char *type,
			      const char *body)
{
	struct fx_answer a;

	fx_call(f, &a, user, method, target, type, NULL, body);
	if (a.status != want)
		fail_msg("%s %s: %d instead of %d: %s", method, target, a.status, want, a.text);
	struct json *j = js_ref(a.json);

	fx_answer_fini(&a);
	return j;
}

struct json *fx_do(struct fx *f, int want, const char *method, const char *target, const char *body)
{
	return call_json(f, &fx_admin, want, method, target, NULL, body);
}

struct json *fx_as(struct fx *f, const struct apisrv_user *user, int want, const char *method,
		   const char *target, const char *body)
{
	const char *type = strcmp(method, "PATCH") == 0 ? "application/merge-patch+json" : NULL;

	return call_json(f, user, want, method, target, type, body);
}

struct json *fx_patch(struct fx *f, int want, const char *kind, const char *target,
		      const char *body)
{
	char type[64];

	snprintf(type, sizeof(type), "application/%s+json", kind);
	return call_json(f, &fx_admin, want, "PATCH", target, type, body);
}

/* ---- watches -------------------------------------------------------------------------------------------- */

static void watch_answer(void *arg, const struct apisrv_answer *a)
{
	struct fx_watch *w = arg;

	w->status = a->status;
	w->ended = true;
	assert_int_equal(js_parse(a->body, a->n, &w->refusal, NULL), RC_OK);
}

static void watch_begin(void *arg, int status, const char *type, size_t backlog)
{
	struct fx_watch *w = arg;

	assert_int_equal(status, 200);
	assert_string_equal(type, "application/json");
	assert_true(backlog > 0);
	w->status = status;
	w->begun = true;
}

static enum rc watch_write(void *arg, const void *bytes, size_t n)
{
	struct fx_watch *w = arg;
	const char *p = bytes;

	assert_true(w->begun && !w->ended);
	if (w->max_frames && w->n >= w->max_frames)
		return RC_BUSY;
	for (size_t i = 0; i < n; i++) {
		if (p[i] != '\n') {
			assert_true(w->n_part < sizeof(w->part));
			w->part[w->n_part++] = p[i];
			continue;
		}
		assert_true(w->n < 256);
		assert_int_equal(js_parse(w->part, w->n_part, &w->events[w->n++], NULL), RC_OK);
		w->n_part = 0;
	}
	return RC_OK;
}

static void watch_end(void *arg)
{
	struct fx_watch *w = arg;

	assert_false(w->ended);
	w->ended = true;
	w->call = NULL;
}

static void watch_warn(void *arg, const char *text)
{
	struct fx_watch *w = arg;

	assert_false(w->begun);
	assert_true(w->n_warnings < ARRAY_SIZE(w->warnings));
	snprintf(w->warnings[w->n_warnings++], sizeof(w->warnings[0]), "%s", text);
}

void fx_watch_start(struct fx *f, struct fx_watch *w, const char *target, const char *accept)
{
	static const struct apisrv_sink sink = {
		.answer = watch_answer,
		.stream_begin = watch_begin,
		.stream_write = watch_write,
		.stream_end = watch_end,
		.warn = watch_warn,
	};
	struct apisrv_request r = {
		.method = "GET", .target = target, .accept = accept, .user = &fx_admin};
	struct apisrv_call *call = apisrv_handle(f->srv, &r, &sink, w);

	w->call = w->ended ? NULL : call;
}

void fx_watch_stop(struct fx_watch *w)
{
	if (w->call)
		apisrv_cancel(w->call);
	for (size_t i = 0; i < w->n; i++)
		js_unref(w->events[i]);
	js_unref(w->refusal);
	mem_free(w);
}

const char *fx_event_type(const struct fx_watch *w, size_t i)
{
	assert_true(i < w->n);
	return js_get_str(w->events[i], "type");
}

const struct json *fx_event_obj(const struct fx_watch *w, size_t i)
{
	assert_true(i < w->n);
	return js_get(w->events[i], "object");
}
