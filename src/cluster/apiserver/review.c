/* "May I?" and "Who am I?": kubectl auth can-i, kubectl auth whoami.  Nothing is stored. */
#include "cluster/apiserver/apisrv_int.h"

#include <string.h>

#include "base/str.h"

static struct resource *resource_of(struct apisrv *s, const char *group, const char *plural)
{
	for (size_t i = 0; i < s->n_resources; i++)
		if (str_eq(s->resources[i].kind->plural, plural) && str_eq(s->resources[i].kind->group, group))
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
		.res = resource_of(c->srv, or_empty(js_get_str(ra, "group")), js_get_str(ra, "resource")),
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
		call_fail(c, 422, "Invalid", NULL,
			  "SelfSubjectAccessReview.authorization.k8s.io \"\" is invalid: "
			  "spec.resourceAttributes: Required value: exactly one of nonResourceAttributes or "
			  "resourceAttributes must be specified");
		return;
	}
	call_answer_json(c, 201,
			 js_pack("{s:s, s:s, s:{s:n}, s:O, s:{s:b}}", "kind", "SelfSubjectAccessReview",
				 "apiVersion", "authorization.k8s.io/v1", "metadata", "creationTimestamp",
				 "spec", spec, "status", "allowed", allows(c, spec)));
}

static void who_am_i(struct apisrv_call *c)
{
	struct json *groups = js_new_array();

	for (size_t i = 0; groups && i < c->user.n_groups; i++)
		if (js_append(groups, js_new_str(c->user.groups[i])))
			groups = js_unref(groups);
	call_answer_json(c, 201,
			 js_pack("{s:s, s:s, s:{s:n}, s:{s:{s:s, s:o}}}", "kind", "SelfSubjectReview",
				 "apiVersion", "authentication.k8s.io/v1", "metadata", "creationTimestamp",
				 "status", "userInfo", "username", c->user.name, "groups", groups));
}

bool serve_review(struct apisrv_call *c)
{
	bool may = strcmp(c->group, "authorization.k8s.io") == 0 &&
		   strcmp(c->plural, "selfsubjectaccessreviews") == 0;
	bool who = strcmp(c->group, "authentication.k8s.io") == 0 && strcmp(c->plural, "selfsubjectreviews") == 0;

	if ((!may && !who) || c->verb != VERB_CREATE || *c->name || *c->ns || strcmp(c->version, "v1") != 0)
		return false;
	if (!parse_body(c))
		return true;
	if (may)
		access_review(c);
	else
		who_am_i(c);
	return true;
}
