/* "May I?" and "Who am I?": kubectl auth can-i, kubectl auth whoami.  Nothing is stored. */
#include "cluster/apiserver/apisrv_int.h"

#include <string.h>

#include "base/str.h"

static struct resource *resource_of(struct apisrv *s, const char *group, const char *plural)
{
	for (size_t i = 0; i < s->n_resources; i++)
		if (str_eq(s->resources[i].kind->plural, plural) &&
		    str_eq(s->resources[i].kind->group, group))
			return &s->resources[i];
	return NULL;
}

static const char *or_empty(const char *s)
{
	return s ? s : "";
}

static bool allows(struct apisrv_call *c, const struct json *spec)
{
	const struct json *ra = js_get(spec, "resourceAttributes");
	const struct json *path = js_get(spec, "nonResourceAttributes");

	if (path)
		return is_public_path(or_empty(js_get_str(path, "path"))) ||
		       strcmp(c->user.name, "system:anonymous") != 0;
	const struct authz_ask ask = {
		.verb = verb_of(js_get_str(ra, "verb")),
		.res = resource_of(c->srv, or_empty(js_get_str(ra, "group")),
				   js_get_str(ra, "resource")),
		.sub = or_empty(js_get_str(ra, "subresource")),
		.ns = or_empty(js_get_str(ra, "namespace")),
		.name = or_empty(js_get_str(ra, "name")),
	};

	if (ask.verb == VERB__MAX) /* "*" and verbs that only administrators have */
		return apisrv_user_in_group(&c->user, GROUP_MASTERS);
	return authz_allows(c->srv, &c->user, &ask);
}

static void access_review(struct apisrv_call *c)
{
	struct json *spec = js_get(c->json, "spec");

	if (!js_get(spec, "resourceAttributes") && !js_get(spec, "nonResourceAttributes")) {
		call_fail(
			c, 422, "Invalid", NULL,
			"SelfSubjectAccessReview.authorization.k8s.io \"\" is invalid: "
			"spec.resourceAttributes: Required value: exactly one of nonResourceAttributes or "
			"resourceAttributes must be specified");
		return;
	}
	call_answer_json(c, 201,
			 js_pack("{s:s, s:s, s:{s:n}, s:O, s:{s:b}}", "kind",
				 "SelfSubjectAccessReview", "apiVersion", "authorization.k8s.io/v1",
				 "metadata", "creationTimestamp", "spec", spec, "status", "allowed",
				 allows(c, spec)));
}

static void who_am_i(struct apisrv_call *c)
{
	struct json *groups = js_new_array();

	for (size_t i = 0; groups && i < c->user.n_groups; i++)
		if (js_append(groups, js_new_str(c->user.groups[i])))
			groups = js_unref(groups);
	call_answer_json(c, 201,
			 js_pack("{s:s, s:s, s:{s:n}, s:{s:{s:s, s:o}}}", "kind",
				 "SelfSubjectReview", "apiVersion", "authentication.k8s.io/v1",
				 "metadata", "creationTimestamp", "status", "userInfo", "username",
				 c->user.name, "groups", groups));
}

/* The verbs that the user has on a resource, as a rule; NULL: none (or out of memory: *rc). */
static struct json *rule_of(struct apisrv_call *c, const struct resource *res, const char *ns,
			    enum rc *rc)
{
	CLEANUP(js_unrefp) struct json *verbs = js_new_array();

	for (int v = 0; v < VERB__MAX && !*rc; v++) {
		const struct authz_ask ask = {
			.verb = v, .res = res, .sub = "", .ns = ns, .name = ""};

		if (authz_allows(c->srv, &c->user, &ask))
			*rc = js_append(verbs, js_new_str(verb_name(v)));
	}
	if (*rc || !js_len(verbs))
		return NULL;
	return js_pack("{s:O, s:[s], s:[s]}", "verbs", verbs, "apiGroups", res->kind->group,
		       "resources", res->kind->plural);
}

static struct json *rules_of(struct apisrv_call *c, const char *ns)
{
	CLEANUP(js_unrefp) struct json *rules = js_new_array();
	enum rc rc = rules ? RC_OK : RC_NOMEM;

	if (apisrv_user_in_group(&c->user, GROUP_MASTERS))
		return js_pack("[{s:[s], s:[s], s:[s]}]", "verbs", "*", "apiGroups", "*",
			       "resources", "*");
	for (size_t i = 0; i < c->srv->n_resources && !rc; i++) {
		struct json *rule = rule_of(c, &c->srv->resources[i], ns, &rc);

		if (rule)
			rc = js_append(rules, rule);
	}
	return rc ? NULL : STEAL(rules);
}

static void rules_review(struct apisrv_call *c)
{
	const char *ns = js_str(js_at(c->json, "spec", "namespace", NULL));

	call_answer_json(
		c, 201,
		js_pack("{s:s, s:s, s:{s:n}, s:{s:s}, s:{s:o, s:[{s:[s], s:[s, s, s, s]}], s:b}}",
			"kind", "SelfSubjectRulesReview", "apiVersion", "authorization.k8s.io/v1",
			"metadata", "creationTimestamp", "spec", "namespace", or_empty(ns),
			"status", "resourceRules", rules_of(c, or_empty(ns)), "nonResourceRules",
			"verbs", "get", "nonResourceURLs", "/api*", "/openapi*", "/version",
			"/healthz", "incomplete", 0));
}

static const struct review {
	const char *group, *plural;
	void (*serve)(struct apisrv_call *c);
} reviews[] = {
	{"authorization.k8s.io", "selfsubjectaccessreviews", access_review},
	{"authorization.k8s.io", "selfsubjectrulesreviews", rules_review},
	{"authentication.k8s.io", "selfsubjectreviews", who_am_i},
};

bool serve_review(struct apisrv_call *c)
{
	if (c->verb != VERB_CREATE || *c->name || *c->ns || strcmp(c->version, "v1") != 0)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(reviews); i++) {
		if (strcmp(reviews[i].group, c->group) != 0 ||
		    strcmp(reviews[i].plural, c->plural) != 0)
			continue;
		if (parse_body(c))
			reviews[i].serve(c);
		return true;
	}
	return false;
}
