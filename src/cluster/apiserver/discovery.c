/* Everything that is not a resource: discovery, version, health.  Its aggregated form is in discovery_agg.c,
 * metrics in metrics.c, OpenAPI in openapi.c. */
#include "cluster/apiserver/discovery_int.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/limits.h"
#include "base/str.h"

#ifndef FERRY_VERSION
#define FERRY_VERSION "0"
#endif

/* ---- groups ------------------------------------------------------------------------------------------ */

/* Groups that clients look for although nothing of theirs is stored here.  Without "policy" kubectl 1.20
 * does not find the eviction of pods, and a drain deletes them. */
struct virtual_resource {
	const char *group, *version;
	const char *name, *kind; /* NULL: only the group */
	bool is_namespaced;
};

static const struct virtual_resource virtuals[] = {
	{"authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview"},
	{"authentication.k8s.io", "v1", "tokenreviews", "TokenReview"},
	{"authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview"},
	{"authorization.k8s.io", "v1", "localsubjectaccessreviews", "LocalSubjectAccessReview",
	 true},
	{"authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview"},
	{"authorization.k8s.io", "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview"},
	{"policy", "v1", NULL, NULL},
};

/* What belongs together stands together. */
static bool seen_before(const struct apisrv *s, size_t i)
{
	const struct api_kind *k = s->served[i].kind, *last = i ? s->served[i - 1].kind : NULL;

	return last && strcmp(last->group, k->group) == 0 && strcmp(last->version, k->version) == 0;
}

static bool has_version(const struct apisrv *s, const char *group, const char *version)
{
	for (size_t i = 0; i < s->n_resources; i++)
		if (strcmp(s->resources[i].kind->group, group) == 0 &&
		    strcmp(s->resources[i].kind->version, version) == 0)
			return true;
	return false;
}

bool discovery_is_virtual(const char *group, const char *version, const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(virtuals); i++)
		if (strcmp(virtuals[i].group, group) == 0 &&
		    strcmp(virtuals[i].version, version) == 0 && str_eq(virtuals[i].name, name))
			return true;
	return false;
}

/* All of that group have the same versions.  NULL: no hook is there. */
static const struct api_subresource *first_subresource(const struct apisrv *s)
{
	for (size_t i = 0; i < s->hooks.n_subres; i++)
		if (strcmp(s->hooks.subres[i].at->group, SUBRES_GROUP) == 0)
			return s->hooks.subres[i].at;
	return NULL;
}

void discovery_each_version(const struct apisrv *s, discovery_version_fn fn, void *arg)
{
	for (size_t i = 0; i < s->n_served; i++) {
		const struct api_kind *k = s->served[i].kind;

		if (!seen_before(s, i) && !fn(arg, k->group, k->version))
			return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(virtuals); i++) {
		bool again = (i && strcmp(virtuals[i - 1].group, virtuals[i].group) == 0) ||
			     has_version(s, virtuals[i].group, virtuals[i].version);

		if (!again && !fn(arg, virtuals[i].group, virtuals[i].version))
			return;
	}
	const struct api_subresource *sub = first_subresource(s);

	for (size_t i = 0; sub && sub->versions[i]; i++)
		if (!fn(arg, SUBRES_GROUP, sub->versions[i]))
			return;
}

static struct json *verbs_of(const struct api_kind *k)
{
	if (k->is_create_only)
		return js_pack("[s]", "create");
	return js_pack("[s, s, s, s, s, s, s, s]", "create", "delete", "deletecollection", "get",
		       "list", "patch", "update", "watch");
}

static struct json *str_list(const char *const *names)
{
	struct json *list = js_new_array();

	for (; list && *names; names++)
		if (js_append(list, js_new_str(*names)))
			return js_unref(list);
	return list;
}

/* ---- APIResourceList ----------------------------------------------------------------------------------- */

static enum rc add_if_any(struct json *obj, const char *key, const char *const *names)
{
	return names && *names ? js_set(obj, key, str_list(names)) : RC_OK;
}

/* group, version: of kind; told where they are not those of the list. */
static enum rc list_sub(struct json *list, const struct api_kind *k, const char *sub,
			const char *kind, const char *group, const char *version,
			const char *verbs_text)
{
	char name[160];
	struct json *verbs = js_new_array();
	struct str rest = str_of(verbs_text);
	bool is_same = strcmp(group, k->group) == 0 && strcmp(version, k->version) == 0;

	snprintf(name, sizeof(name), "%s/%s", k->plural, sub);
	while (verbs && rest.p) {
		struct str v = str_split(&rest, ',');

		if (js_append(verbs, js_new_strn(v.p, v.n)))
			verbs = js_unref(verbs);
	}
	return js_append(list, js_pack("{s:s, s:s, s:b, s:s*, s:s*, s:s, s:o}", "name", name,
				       "singularName", "", "namespaced", k->is_namespaced, "group",
				       is_same ? NULL : group, "version", is_same ? NULL : version,
				       "kind", kind, "verbs", verbs));
}

static const char *verb_of_method(const char *method)
{
	return strcmp(method, "GET") == 0   ? "get"
	       : strcmp(method, "PUT") == 0 ? "update"
					    : "create";
}

/* Those of the schema that are a kind's own. */
static enum rc list_own_subs(struct json *list, const struct api_kind *k)
{
	for (size_t i = 0; api_subresources[i]; i++) {
		const struct api_subresource *at = api_subresources[i];

		if (at->is_hidden || strcmp(at->group, k->group) != 0 ||
		    strcmp(at->resource, k->plural) != 0)
			continue;
		if (list_sub(list, k, at->path, at->kind, at->kind_group, at->kind_version,
			     verb_of_method(at->method)))
			return RC_NOMEM;
	}
	return RC_OK;
}

static enum rc list_kind(struct json *list, const struct api_kind *k)
{
	struct json *r =
		js_pack("{s:s, s:s, s:b, s:s, s:o}", "name", k->plural, "singularName", k->singular,
			"namespaced", k->is_namespaced, "kind", k->kind, "verbs", verbs_of(k));
	enum rc rc = r ? add_if_any(r, "shortNames", k->short_names) : RC_NOMEM;

	if (!rc)
		rc = add_if_any(r, "categories", k->categories);
	if (rc) {
		js_unref(r);
		return rc;
	}
	rc = js_append(list, r);
	if (!rc && k->subresources & API_SUB_STATUS)
		rc = list_sub(list, k, "status", k->kind, k->group, k->version, "get,patch,update");
	if (!rc && k->subresources & API_SUB_SCALE)
		rc = list_sub(list, k, "scale", "Scale", "autoscaling", "v1", "get,patch,update");
	return rc ? rc : list_own_subs(list, k);
}

static enum rc list_hooks(const struct apisrv *s, struct json *list)
{
	for (size_t i = 0; i < s->hooks.n_subres; i++) {
		const struct api_subresource *at = s->hooks.subres[i].at;
		char name[160];

		if (strcmp(at->group, SUBRES_GROUP) != 0 || at->is_hidden)
			continue;
		snprintf(name, sizeof(name), "%s%s%s", at->resource, *at->resource ? "/" : "",
			 at->path);
		if (js_append(list,
			      js_pack("{s:s, s:s, s:b, s:s, s:[s]}", "name", name, "singularName",
				      "", "namespaced", at->scope != API_SCOPE_CLUSTER, "kind",
				      at->kind, "verbs", verb_of_method(at->method))))
			return RC_NOMEM;
	}
	return RC_OK;
}

static enum rc list_virtuals(struct json *list, const char *group, const char *version, bool *found)
{
	for (size_t i = 0; i < ARRAY_SIZE(virtuals); i++) {
		const struct virtual_resource *v = &virtuals[i];

		if (strcmp(v->group, group) != 0 || strcmp(v->version, version) != 0)
			continue;
		*found = true;
		if (v->name &&
		    js_append(list, js_pack("{s:s, s:s, s:b, s:s, s:[s]}", "name", v->name,
					    "singularName", "", "namespaced", v->is_namespaced,
					    "kind", v->kind, "verbs", "create")))
			return RC_NOMEM;
	}
	return RC_OK;
}

struct json *discovery_resource_list(const struct apisrv *s, const char *group, const char *version)
{
	CLEANUP(js_unrefp) struct json *list = js_new_array();
	char gv[160];
	const struct api_subresource *sub = first_subresource(s);
	bool found = strcmp(group, SUBRES_GROUP) == 0 && sub && api_subresource_is_in(sub, version);

	if (!list || (found && list_hooks(s, list)) || list_virtuals(list, group, version, &found))
		return NULL;
	for (size_t i = 0; i < s->n_served; i++) {
		const struct api_kind *k = s->served[i].kind;

		if (strcmp(k->group, group) != 0 || strcmp(k->version, version) != 0)
			continue;
		found = true;
		if (list_kind(list, k))
			return NULL;
	}
	snprintf(gv, sizeof(gv), "%s%s%s", group, *group ? "/" : "", version);
	return js_pack("{s:s, s:s, s:s, s:o}", "kind", "APIResourceList", "apiVersion", "v1",
		       "groupVersion", found ? gv : "", "resources", STEAL(list));
}

/* ---- APIGroupList ---------------------------------------------------------------------------------------- */

struct groups {
	struct json *list;
	bool failed;
};

static struct json *find_group(struct json *list, const char *name)
{
	for (size_t i = 0; i < js_len(list); i++)
		if (str_eq(js_get_str(js_item(list, i), "name"), name))
			return js_item(list, i);
	return NULL;
}

static bool add_version(void *arg, const char *group, const char *version)
{
	struct groups *g = arg;
	char gv[160];

	if (!*group)
		return true;
	snprintf(gv, sizeof(gv), "%s/%s", group, version);
	struct json *item = find_group(g->list, group);
	enum rc rc;

	if (item)
		rc = js_append(js_get(item, "versions"),
			       js_pack("{s:s, s:s}", "groupVersion", gv, "version", version));
	else
		rc = js_append(g->list,
			       js_pack("{s:s, s:[{s:s, s:s}], s:{s:s, s:s}}", "name", group,
				       "versions", "groupVersion", gv, "version", version,
				       "preferredVersion", "groupVersion", gv, "version", version));
	g->failed = rc != RC_OK;
	return !g->failed;
}

static struct json *group_list(const struct apisrv *s)
{
	struct groups g = {.list = js_new_array()};

	if (g.list)
		discovery_each_version(s, add_version, &g);
	return g.failed ? js_unref(g.list) : g.list;
}

/* ---- single documents ---------------------------------------------------------------------------------------- */

static void serve_version(struct apisrv_call *c)
{
	struct utsname u;
	char platform[96] = "linux/amd64";

	if (uname(&u) == 0 && strcmp(u.machine, "x86_64") != 0)
		snprintf(platform, sizeof(platform), "linux/%s",
			 strcmp(u.machine, "aarch64") == 0 ? "arm64" : u.machine);
	call_answer_json(c, 200,
			 js_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "major", "1",
				 "minor", "33", "gitVersion", "v1.33.0-ferry-" FERRY_VERSION,
				 "gitCommit", "", "gitTreeState", "clean", "buildDate",
				 "1970-01-01T00:00:00Z", "goVersion", "none", "compiler", "gcc",
				 "platform", platform));
}

static void serve_api(struct apisrv_call *c, const char *accept)
{
	const char *v = discovery_wants_aggregated(accept);

	if (v)
		serve_aggregated(c, true, v);
	else
		call_answer_cached_json(c, js_pack("{s:s, s:[s], s:[{s:s, s:s}]}", "kind",
						   "APIVersions", "versions", "v1",
						   "serverAddressByClientCIDRs", "clientCIDR",
						   "0.0.0.0/0", "serverAddress", ""));
}

static void serve_apis(struct apisrv_call *c, const char *accept)
{
	const char *v = discovery_wants_aggregated(accept);

	if (v)
		serve_aggregated(c, false, v);
	else
		call_answer_cached_json(c,
					js_pack("{s:s, s:s, s:o}", "kind", "APIGroupList",
						"apiVersion", "v1", "groups", group_list(c->srv)));
}

static void not_a_page(struct apisrv_call *c)
{
	static const char text[] = "404 page not found\n";

	call_answer(c, 404, "text/plain; charset=utf-8", text, sizeof(text) - 1);
}

static void serve_group(struct apisrv_call *c, const char *group)
{
	CLEANUP(js_unrefp) struct json *all = group_list(c->srv);
	struct json *one = find_group(all, group);

	if (!all)
		call_nomem(c);
	else if (!one)
		not_a_page(c);
	else if (js_set(one, "kind", js_new_str("APIGroup")) ||
		 js_set(one, "apiVersion", js_new_str("v1")))
		call_nomem(c);
	else
		call_answer_cached_json(c, js_ref(one));
}

static void serve_group_version(struct apisrv_call *c, const char *group, const char *version)
{
	CLEANUP(js_unrefp) struct json *list = discovery_resource_list(c->srv, group, version);

	if (!list)
		call_nomem(c);
	else if (str_is_empty(js_get_str(list, "groupVersion")))
		not_a_page(c);
	else
		call_answer_cached_json(c, js_ref(list));
}

static void serve_metrics(struct apisrv_call *c)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(16 * MIB);

	if (c->srv->more_metrics)
		c->srv->more_metrics(&b, c->srv->metrics_arg);
	apisrv_metrics(c->srv, &b);
	if (sbuf_rc(&b))
		call_nomem(c);
	else
		call_answer(c, 200, "text/plain; version=0.0.4; charset=utf-8", b.p, b.n);
}

static void serve_root(struct apisrv_call *c)
{
	call_answer_json(c, 200,
			 js_pack("{s:[s, s, s, s, s, s, s, s, s, s]}", "paths", "/api", "/api/v1",
				 "/apis", "/healthz", "/livez", "/metrics", "/openapi/v2",
				 "/openapi/v3", "/readyz", "/version"));
}

bool is_public_path(const char *path)
{
	return str_eq(path, "/version") || str_eq(path, "/healthz") || str_eq(path, "/livez") ||
	       str_eq(path, "/readyz") || str_has_prefix(path, "/healthz/") ||
	       str_has_prefix(path, "/livez/") || str_has_prefix(path, "/readyz/");
}

static void serve_apis_below(struct apisrv_call *c, char *rest)
{
	char *slash = strchr(rest, '/');

	if (slash)
		*slash = '\0';
	if (!slash || !slash[1])
		serve_group(c, rest);
	else
		serve_group_version(c, rest, slash + 1);
}

void serve_discovery(struct apisrv_call *c, const char *accept)
{
	char *path = c->uri.path;
	size_t n = strlen(path);

	if (n > 1 && path[n - 1] == '/')
		path[n - 1] = '\0';
	if (!authorize_path(c, path))
		return;
	if (strcmp(c->method, "GET") != 0)
		call_fail(c, 405, "MethodNotAllowed", js_new_object(),
			  "the server does not allow this method on the requested resource");
	else if (strcmp(path, "/version") == 0)
		serve_version(c);
	else if (is_public_path(path))
		serve_health(c);
	else if (strcmp(path, "/api") == 0)
		serve_api(c, accept);
	else if (strcmp(path, "/apis") == 0)
		serve_apis(c, accept);
	else if (strcmp(path, "/api/v1") == 0)
		serve_group_version(c, "", "v1");
	else if (str_has_prefix(path, "/apis/"))
		serve_apis_below(c, path + 6);
	else if (strcmp(path, "/metrics") == 0)
		serve_metrics(c);
	else if (strcmp(path, "/") == 0)
		serve_root(c);
	else if (str_has_prefix(path, "/openapi/"))
		serve_openapi(c, path + 9, accept);
	else if (!serve_openid(c, path))
		not_a_page(c);
}
