#include "fake_hooks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/str.h"

struct json *json_of(const char *text)
{
	char *copy = mem_strdup(text);
	struct json *j = NULL;
	struct err err = {0};

	for (char *p = copy; *p; p++)
		if (*p == '\'')
			*p = '"';
	if (js_parse(copy, strlen(copy), &j, &err))
		fail_msg("%s in %s", err.msg, text);
	mem_free(copy);
	return j;
}

void env_init(struct hook_env *e)
{
	memset(e, 0, sizeof(*e));
	e->objects = js_new_object();
	e->now = (usec_t)1767225600 * USEC_PER_SEC;
}

void env_fini(struct hook_env *e)
{
	js_unref(e->objects);
	js_unref(e->config);
}

void env_add(struct hook_env *e, const char *resource, const char *object)
{
	if (!js_get(e->objects, resource))
		assert_int_equal(js_set(e->objects, resource, js_new_array()), RC_OK);
	assert_int_equal(js_append(js_get(e->objects, resource), json_of(object)), RC_OK);
}

bool apisrv_user_in_group(const struct apisrv_user *u, const char *group)
{
	for (size_t i = 0; i < u->n_groups; i++)
		if (str_eq(u->groups[i], group))
			return true;
	return false;
}

bool apisrv_user_is_component(const struct apisrv_user *u)
{
	return apisrv_user_in_group(u, "system:ferry:controllers") ||
	       apisrv_user_in_group(u, "system:nodes");
}

const struct json *hook_get(struct hook_env *e, const char *resource, const char *ns,
			    const char *name)
{
	const struct json *list = js_get(e->objects, resource);

	for (size_t i = 0; i < js_len(list); i++) {
		const struct json *meta = js_get(js_item(list, i), "metadata");
		const char *have = js_get_str(meta, "namespace");

		if (str_eq(js_get_str(meta, "name"), name) &&
		    str_eq(have ? have : "", ns ? ns : ""))
			return js_item(list, i);
	}
	return NULL;
}

void hook_each(struct hook_env *e, const char *resource, const char *ns, hook_each_fn fn, void *arg)
{
	const struct json *list = js_get(e->objects, resource);

	for (size_t i = 0; i < js_len(list); i++) {
		const struct json *o = js_item(list, i);

		if (ns && !str_eq(js_str(js_at(o, "metadata", "namespace", NULL)), ns))
			continue;
		if (!fn(o, arg))
			return;
	}
}

const struct json *hook_kubevirt_config(struct hook_env *e)
{
	return e->config;
}

const struct json *hook_ferry_config(struct hook_env *e)
{
	return js_get(js_item(js_get(e->objects, "ferryconfigs.ferry.dev"), 0), "spec");
}

usec_t hook_now(struct hook_env *e)
{
	return e->now;
}

void hook_warn(struct hook_ctx *ctx, const char *fmt, ...)
{
	char *w = ctx->env->warnings;
	size_t n = strlen(w);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(w + n, sizeof(ctx->env->warnings) - n, fmt, ap);
	va_end(ap);
}

/* Calls */

void *hook_arg(struct hook_env *e)
{
	return e->arg;
}

struct hook_env *hook_call_env(struct hook_call *call)
{
	return call->env;
}

const char *hook_call_ns(const struct hook_call *call)
{
	return call->ns;
}

const char *hook_call_rest(const struct hook_call *call)
{
	return call->rest ? call->rest : "";
}

const char *hook_call_name(const struct hook_call *call)
{
	return call->name;
}

const char *hook_call_param(const struct hook_call *call, const char *name)
{
	size_t n = strlen(name);

	if (!call->query || strncmp(call->query, name, n) != 0 || call->query[n] != '=')
		return NULL;
	return call->query + n + 1;
}

const struct json *hook_call_json(const struct hook_call *call)
{
	(void)call;
	return NULL;
}

const char *hook_call_body(const struct hook_call *call, size_t *n)
{
	if (n)
		*n = call->body ? strlen(call->body) : 0;
	return call->body ? call->body : "";
}

struct http_req *hook_call_http(struct hook_call *call)
{
	return call->http;
}

void hook_call_set_data(struct hook_call *call, void *data)
{
	call->data = data;
}

void *hook_call_data(const struct hook_call *call)
{
	return call->data;
}

void hook_call_on_cancel(struct hook_call *call, void (*fn)(struct hook_call *call))
{
	call->cancel = fn;
}

static void answer(struct hook_call *call, int status, const char *text)
{
	assert_false(call->is_answered);
	assert_null(call->data); /* nothing is forgotten */
	call->is_answered = true;
	call->status = status;
	snprintf(call->text, sizeof(call->text), "%s", text);
}

void hook_call_reply(struct hook_call *call, int status, struct json *body)
{
	char *text = body ? js_to_text(body) : mem_strdup("");

	answer(call, status, text);
	mem_free(text);
	js_unref(body);
}

void hook_call_reply_status(struct hook_call *call, int status, const struct json *obj)
{
	hook_call_reply(call, status, obj ? js_copy(obj) : NULL);
}

void hook_call_reply_bytes(struct hook_call *call, int status, const char *content_type,
			   const void *bytes, size_t n)
{
	char text[64];

	snprintf(text, sizeof(text), "%s %.*s", content_type, (int)MIN(n, (size_t)8),
		 (const char *)bytes);
	call->n_bytes = n;
	answer(call, status, text);
}

void hook_call_fail(struct hook_call *call, enum rc rc, const char *fmt, ...)
{
	char text[2048];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	answer(call, rc_http(rc), text);
}

void hook_call_fail_details(struct hook_call *call, enum rc rc, const char *group, const char *kind,
			    const char *name, const char *message)
{
	assert_string_equal(group, "kubevirt.io");
	assert_non_null(kind);
	assert_string_equal(name, call->name);
	answer(call, rc_http(rc), message);
}

void hook_call_upgraded(struct hook_call *call)
{
	assert_false(call->is_answered);
	call->is_answered = call->is_upgraded = true;
}

enum rc hook_call_request(struct hook_call *call, enum hook_as as, const char *method,
			  const char *target, const char *content_type, struct json *body,
			  hook_then_fn then, struct err *err)
{
	char *text = js_to_text(body);

	(void)content_type;
	(void)err;
	assert_int_equal(as, HOOK_AS_COMPONENT);
	assert_null(call->then);
	assert_true(call->env->n_requests < 16);
	snprintf(call->env->requests[call->env->n_requests++], sizeof(call->env->requests[0]),
		 "%s %s %s", method, target, text);
	mem_free(text);
	js_unref(body);
	call->then = then;
	return RC_OK;
}

void call_deliver(struct hook_call *call, int status, const char *body)
{
	hook_then_fn then = call->then;
	struct json *j = body ? json_of(body) : NULL;

	assert_non_null(then);
	call->then = NULL;
	then(call, status, j);
	js_unref(j);
}
