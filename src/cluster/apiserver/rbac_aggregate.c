/* ClusterRoles that are made of others: their rules are those of the roles that their selectors match.
 *
 * After a change of any ClusterRole, once in that turn of the loop.  A role's own rules are left out of
 * what is gathered for it; roles that gather each other come to the same rules and stay there.
 */
#include <string.h>

#include "api/labels.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "cluster/apiserver/apisrv_int.h"
#include "ev/ev.h"
#include "http/uri.h"

enum { MAX_SELECTORS = 64 }; /* as the schema says */

struct selectors {
	struct api_selector *v[MAX_SELECTORS];
	size_t n;
};

static void selectors_fini(struct selectors *s)
{
	for (size_t i = 0; i < s->n; i++)
		api_selector_free(s->v[i]);
}

static enum rc selectors_of(const struct json *role, struct selectors *out)
{
	const struct json *list = js_at(role, "aggregationRule", "clusterRoleSelectors", NULL);

	for (size_t i = 0; i < js_len(list) && out->n < MAX_SELECTORS; i++) {
		LabelSelector *typed = NULL;
		enum rc rc = api_decode(&api_type_LabelSelector, js_item(list, i), (void **)&typed,
					NULL);

		if (!rc)
			rc = api_selector_from(typed, &out->v[out->n], NULL);
		api_free(&api_type_LabelSelector, typed);
		if (rc == RC_NOMEM)
			return rc;
		if (!rc) /* a selector that is none selects nothing */
			out->n++;
	}
	return RC_OK;
}

static bool is_selected(const struct selectors *s, const struct json *role)
{
	const struct json *labels = js_at(role, "metadata", "labels", NULL);

	for (size_t i = 0; i < s->n; i++)
		if (api_selector_matches_json(s->v[i], labels))
			return true;
	return false;
}

static enum rc add_rules(struct json *to, const struct json *from)
{
	for (size_t i = 0; i < js_len(from); i++) {
		bool known = false;

		for (size_t k = 0; k < js_len(to) && !known; k++)
			known = js_equal(js_item(to, k), js_item(from, i));
		if (!known && js_append(to, js_ref(js_item(from, i))))
			return RC_NOMEM;
	}
	return RC_OK;
}

/* NULL: out of memory. */
static struct json *gather(struct apisrv *s, const struct json *role, const struct selectors *sel)
{
	CLEANUP(js_unrefp) struct json *rules = js_new_array();
	struct store_iter it;
	struct obj *o;

	store_iter_init(&it, s->store, TABLE_CLUSTER_ROLES, NULL);
	while (rules && (o = store_iter_next_newest(&it))) {
		CLEANUP(js_unrefp) struct json *other = obj_json(o);

		if (!other)
			return NULL;
		if (is_deleting(other) || str_eq(json_name(other), json_name(role)) ||
		    !is_selected(sel, other))
			continue;
		if (add_rules(rules, js_get(other, "rules")))
			return NULL;
	}
	return STEAL(rules);
}

static void on_written(void *arg, int status, const struct json *obj)
{
	(void)arg;
	if (status >= 400 && status != 404)
		log_warn("rules of a ClusterRole were not gathered: %s; tried again when a "
			 "ClusterRole changes",
			 js_get_str(obj, "message"));
}

static enum rc write_rules(struct apisrv *s, const struct json *role, const struct json *rules,
			   struct err *err)
{
	CLEANUP(sbuf_fini) struct sbuf target = SBUF_INIT(4096);

	sbuf_adds(&target, "/apis/" RBAC_GROUP "/v1/clusterroles/");
	http_uri_escape(&target, json_name(role));
	if (sbuf_rc(&target))
		return err_set(err, RC_NOMEM, "out of memory");
	return apisrv_inner(s, NULL, &apisrv_self, "PATCH", sbuf_str(&target),
			    "application/merge-patch+json", js_pack("{s:O}", "rules", rules),
			    on_written, NULL, err);
}

static enum rc aggregate(struct apisrv *s, const struct json *role, struct err *err)
{
	CLEANUP(selectors_fini) struct selectors sel = {.n = 0};
	CLEANUP(js_unrefp) struct json *rules = NULL;

	if (!selectors_of(role, &sel))
		rules = gather(s, role, &sel);
	if (!rules)
		return err_set(err, RC_NOMEM, "out of memory");
	return js_equal(rules, js_get(role, "rules")) ? RC_OK : write_rules(s, role, rules, err);
}

static void on_defer(void *arg)
{
	struct apisrv *s = arg;
	struct store_iter it;
	struct obj_list found = {0};
	struct obj *o;

	s->aggregate_defer = ev_src_free(s->aggregate_defer);
	store_iter_init(&it, s->store, TABLE_CLUSTER_ROLES, NULL);
	while ((o = store_iter_next_newest(&it)))
		if (mem_grow((void **)&found.items, &found.cap, found.n, sizeof(*found.items)))
			found.items[found.n++] = obj_ref(o);
	for (size_t i = 0; i < found.n; i++) {
		CLEANUP(js_unrefp) struct json *role = obj_json(found.items[i]);
		struct err err = {0};

		if (!role || (js_get(role, "aggregationRule") && !is_deleting(role) &&
			      aggregate(s, role, &err)))
			log_warn("rules of ClusterRole '%s' were not gathered: %s",
				 obj_rest(found.items[i]), role ? err.msg : "out of memory");
	}
	obj_list_fini(&found);
}

void rbac_aggregate_poke(struct apisrv *s)
{
	struct err err = {0};

	if (!s->aggregate_defer && ev_defer(s->loop, &s->aggregate_defer, on_defer, s, &err))
		log_warn("rules of ClusterRoles were not gathered: %s", err.msg);
}
