/* Aggregated discovery: all groups with their resources in one document. */
#include "cluster/apiserver/discovery_int.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"

/* What one entry of an APIResourceList answers with. */
static struct json *response_kind(const struct json *r, const char *group, const char *version)
{
	const char *g = js_get_str(r, "group"), *v = js_get_str(r, "version");

	return js_pack("{s:s, s:s, s:s}", "group", g ? g : group, "version", v ? v : version,
		       "kind", js_get_str(r, "kind"));
}

static struct json *find_resource(struct json *list, const char *name, size_t n)
{
	for (size_t i = 0; i < js_len(list); i++) {
		struct json *r = js_item(list, i);
		const char *have = js_get_str(r, "resource");

		if (strlen(have) == n && memcmp(have, name, n) == 0)
			return r;
	}
	return NULL;
}

static const char *scope_of(const struct json *r)
{
	return js_get_bool(r, "namespaced", false) ? "Namespaced" : "Cluster";
}

/* A resource that has subresources and no verbs of its own (subresources.kubevirt.io). */
static struct json *add_bare(struct json *list, const struct json *sub, const char *name, size_t n)
{
	struct json *r =
		js_pack("{s:o, s:{s:s, s:s, s:s}, s:s, s:s, s:[]}", "resource",
			js_new_strn(name, n), "responseKind", "group", "", "version", "", "kind",
			"", "scope", scope_of(sub), "singularResource", "", "verbs");

	return js_append(list, r) ? NULL : r;
}

static enum rc add_sub(struct json *list, const struct json *r, const char *name, const char *group,
		       const char *version)
{
	size_t n = strcspn(name, "/");
	struct json *owner = find_resource(list, name, n);

	if (!owner)
		owner = add_bare(list, r, name, n);
	if (!owner)
		return RC_NOMEM;
	struct json *subs = js_get(owner, "subresources");

	if (!subs) {
		subs = js_new_array();
		if (js_set(owner, "subresources", subs))
			return RC_NOMEM;
	}
	return js_append(subs,
			 js_pack("{s:s, s:o, s:O}", "subresource", name + n + 1, "responseKind",
				 response_kind(r, group, version), "verbs", js_get(r, "verbs")));
}

static enum rc add_resource(struct json *list, const struct json *r, const char *group,
			    const char *version)
{
	const char *name = js_get_str(r, "name");

	if (strchr(name, '/'))
		return add_sub(list, r, name, group, version);
	struct json *out =
		js_pack("{s:s, s:o, s:s, s:O, s:O}", "resource", name, "responseKind",
			response_kind(r, group, version), "scope", scope_of(r), "singularResource",
			js_get(r, "singularName"), "verbs", js_get(r, "verbs"));
	static const char *const more[] = {"shortNames", "categories"};
	enum rc rc = out ? RC_OK : RC_NOMEM;

	for (size_t i = 0; i < ARRAY_SIZE(more) && !rc; i++)
		if (js_get(r, more[i]))
			rc = js_set(out, more[i], js_ref(js_get(r, more[i])));
	if (rc) {
		js_unref(out);
		return rc;
	}
	return js_append(list, out);
}

/* The same resources as in the old form, subresources below theirs. */
static struct json *agg_version(const struct apisrv *s, const char *group, const char *version)
{
	CLEANUP(js_unrefp) struct json *old = discovery_resource_list(s, group, version);
	CLEANUP(js_unrefp) struct json *list = old ? js_new_array() : NULL;
	const struct json *all = js_get(old, "resources");

	for (size_t i = 0; list && i < js_len(all); i++)
		if (add_resource(list, js_item(all, i), group, version))
			return NULL;
	return js_pack("{s:s, s:O, s:s}", "version", version, "resources", list, "freshness",
		       "Current");
}

struct agg {
	const struct apisrv *s;
	struct json *items;
	bool core, failed;
};

static struct json *find_agg(struct json *items, const char *group)
{
	for (size_t i = 0; i < js_len(items); i++) {
		const char *name = js_str(js_at(js_item(items, i), "metadata", "name", NULL));

		if (str_eq(name ? name : "", group))
			return js_item(items, i);
	}
	return NULL;
}

static bool add_agg(void *arg, const char *group, const char *version)
{
	struct agg *a = arg;

	if (a->core != !*group)
		return true;
	struct json *item = find_agg(a->items, group);
	enum rc rc;

	if (item)
		rc = js_append(js_get(item, "versions"), agg_version(a->s, group, version));
	else
		rc = js_append(a->items, js_pack("{s:{s:s*, s:n}, s:[o]}", "metadata", "name",
						 *group ? group : NULL, "creationTimestamp",
						 "versions", agg_version(a->s, group, version)));
	a->failed = rc != RC_OK;
	return !a->failed;
}

void serve_aggregated(struct apisrv_call *c, bool core, const char *version)
{
	struct agg a = {.s = c->srv, .items = js_new_array(), .core = core};
	CLEANUP(mem_freep) char *text = NULL;
	char type[96], api_version[48];

	if (a.items)
		discovery_each_version(c->srv, add_agg, &a);
	snprintf(api_version, sizeof(api_version), "apidiscovery.k8s.io/%s", version);
	CLEANUP(js_unrefp)
	struct json *doc = js_pack("{s:s, s:s, s:{}, s:o*}", "kind", "APIGroupDiscoveryList",
				   "apiVersion", api_version, "metadata", "items", a.items);

	if (doc && !a.failed)
		text = js_to_text(doc);
	if (!text) {
		call_nomem(c);
		return;
	}
	snprintf(type, sizeof(type),
		 "application/json;g=apidiscovery.k8s.io;v=%s;as=APIGroupDiscoveryList", version);
	call_answer_cached(c, type, text, strlen(text), false);
}

const char *discovery_wants_aggregated(const char *accept)
{
	struct str rest = str_of(accept);

	while (accept && rest.p) {
		struct str one = str_split(&rest, ',');
		CLEANUP(mem_freep) char *text = mem_strndup(one.p, one.n);

		if (!text)
			return NULL;
		if (!strstr(text, "APIGroupDiscoveryList")) {
			if (strstr(text, "application/json") && !strstr(text, ";as="))
				return NULL;
			continue;
		}
		return strstr(text, "v=v2beta1") ? "v2beta1" : "v2";
	}
	return NULL;
}
