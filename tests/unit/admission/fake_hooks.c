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

const struct json *hook_get(struct hook_env *e, const char *resource, const char *ns, const char *name)
{
	const struct json *list = js_get(e->objects, resource);

	for (size_t i = 0; i < js_len(list); i++) {
		const struct json *meta = js_get(js_item(list, i), "metadata");
		const char *have = js_get_str(meta, "namespace");

		if (str_eq(js_get_str(meta, "name"), name) && str_eq(have ? have : "", ns ? ns : ""))
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
