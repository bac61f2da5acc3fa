/* Is a ResourceQuota one that can be kept?  Kubernetes' rules and words. */
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "base/str.h"
#include "cluster/apiserver/apisrv_int.h"
#include "cluster/apiserver/quota.h"

enum { LIMIT_LINES = 1024 }; /* of all quotas of a namespace together */

static void check_line(struct change *ch, const char *name, const struct json *v)
{
	char path[LIMIT_NAME_BYTES * 2 + 16];
	struct api_quantity q;

	snprintf(path, sizeof(path), "spec.hard[%s]", name);
	if (!usage_is_known(name))
		fe_invalid(&ch->fe, path, name,
			   strchr(name, '/') ? "no quota counts such a resource"
					     : "must be a standard resource for quota");
	else if (usage_is_whole(name) && js_str(v) &&
		 api_quantity_parse(js_str(v), &q, NULL) == RC_OK && !api_quantity_is_integral(&q))
		fe_invalid(&ch->fe, path, js_str(v), "must be an integer");
}

static bool is_scope(const char *name)
{
	return str_eq(name, "BestEffort") || str_eq(name, "NotBestEffort") ||
	       str_eq(name, "Terminating") || str_eq(name, "NotTerminating") ||
	       str_eq(name, "PriorityClass");
}

static const struct json *scopes_of(const struct json *spec, bool of_selector)
{
	return of_selector ? js_at(spec, "scopeSelector", "matchExpressions", NULL)
			   : js_get(spec, "scopes");
}

/* Pods only have scopes; what every pod has and none has at once is a mistake. */
static void check_scope(struct change *ch, const char *path, const char *scope, unsigned *seen)
{
	static const char *const pairs[][2] = {{"BestEffort", "NotBestEffort"},
					       {"Terminating", "NotTerminating"}};

	if (!is_scope(scope)) {
		fe_invalid(&ch->fe, path, scope, "unsupported scope");
		return;
	}
	for (unsigned i = 0; i < ARRAY_SIZE(pairs); i++)
		for (unsigned k = 0; k < 2; k++)
			*seen |= str_eq(scope, pairs[i][k]) ? 1u << (2 * i + k) : 0;
	if ((*seen & 3) == 3 || (*seen & 12) == 12)
		fe_invalid(&ch->fe, path, scope, "conflicting scopes");
}

static void check_expression(struct change *ch, const char *path, const struct json *expr)
{
	const char *op = js_get_str(expr, "operator");
	bool is_set = str_eq(op, "In") || str_eq(op, "NotIn");

	if (!str_eq(js_get_str(expr, "scopeName"), "PriorityClass") && !str_eq(op, "Exists"))
		fe_invalid(&ch->fe, path, op ? op : "",
			   "must be 'Exist' when scope is any of ResourceQuotaScopeTerminating, "
			   "ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, "
			   "ResourceQuotaScopeNotBestEffort or "
			   "ResourceQuotaScopeCrossNamespacePodAffinity");
	if (is_set && !js_len(js_get(expr, "values")))
		fe_add(&ch->fe, FE_REQUIRED, path,
		       "Required value: must be at least one value when `operator` is 'In' or "
		       "'NotIn' for scope selector");
	if (!is_set && js_len(js_get(expr, "values")))
		fe_invalid_json(&ch->fe, path, js_get(expr, "values"),
				"must be no value when `operator` is 'Exist' or 'DoesNotExist' for "
				"scope selector");
}

static void check_scopes(struct change *ch, const struct json *spec)
{
	const struct json *plain = scopes_of(spec, false), *exprs = scopes_of(spec, true);
	unsigned seen = 0;
	char path[80];

	for (size_t i = 0; i < js_len(plain); i++) {
		snprintf(path, sizeof(path), "spec.scopes[%zu]", i);
		check_scope(ch, path, js_str(js_item(plain, i)), &seen);
	}
	seen = 0;
	for (size_t i = 0; i < js_len(exprs); i++) {
		snprintf(path, sizeof(path), "spec.scopeSelector.matchExpressions[%zu]", i);
		check_scope(ch, path, js_get_str(js_item(exprs, i), "scopeName"), &seen);
		check_expression(ch, path, js_item(exprs, i));
	}
	if (!js_len(plain) && !js_len(exprs))
		return;
	JS_FOREACH(it, js_get(spec, "hard"))
		if (usage_is_known(it.key) && strcmp(usage_table(it.key), "pods") != 0)
			fe_invalid(&ch->fe, "spec.hard", it.key,
				   "unsupported scope applied to resource");
}

static void check_lines_of_all(struct change *ch)
{
	struct store_iter it;
	size_t n = js_len(js_at(ch->obj, "spec", "hard", NULL));
	struct obj *o;

	store_iter_in(&it, ch->c->srv->store, "resourcequotas", ch->ns);
	while ((o = store_iter_next_newest(&it))) {
		CLEANUP(js_unrefp) struct json *other = obj_json(o);

		if (!other)
			ch->fe.rc = RC_NOMEM;
		else if (!str_eq(json_name(other), ch->name))
			n += js_len(js_at(other, "spec", "hard", NULL));
	}
	if (n > LIMIT_LINES)
		fe_forbidden(&ch->fe, "spec.hard",
			     "all quotas of a namespace together may name %d resources, not %zu",
			     LIMIT_LINES, n);
}

void quota_validate(struct change *ch)
{
	const struct json *spec = js_get(ch->obj, "spec"), *old = js_get(ch->old, "spec");

	if (ch->status_only)
		return;
	JS_FOREACH(it, js_get(spec, "hard"))
		check_line(ch, it.key, it.value);
	check_scopes(ch, spec);
	check_lines_of_all(ch);
	if (ch->op == HOOK_UPDATE &&
	    (!js_equal(scopes_of(spec, false), scopes_of(old, false)) ||
	     !js_equal(js_get(spec, "scopeSelector"), js_get(old, "scopeSelector"))))
		fe_invalid_json(&ch->fe, "spec.scopes", scopes_of(spec, false),
				"field is immutable");
}
