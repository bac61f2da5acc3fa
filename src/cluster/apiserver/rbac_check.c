/* Roles and bindings that are written: their form, and whether their writer may give such rights. */
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"
#include "cluster/apiserver/apisrv_int.h"

/* Single rights (verb on resource of group, by name) that one role may give: each is looked for among the
 * writer's own. */
enum { MAX_RIGHTS = 20000, MAX_TOLD = 20, MAX_VERBS_TOLD = 32 };

static bool is_binding(const struct resource *res)
{
	return strcmp(res->table, TABLE_BINDINGS) == 0 ||
	       strcmp(res->table, TABLE_CLUSTER_BINDS) == 0;
}

static bool is_role(const struct resource *res)
{
	return strcmp(res->table, TABLE_ROLES) == 0 || strcmp(res->table, TABLE_CLUSTER_ROLES) == 0;
}

/* ---- defaults -------------------------------------------------------------------------------------- */

static enum rc default_group(struct json *of, const char *group)
{
	if (!js_is_object(of) || !str_is_empty(js_get_str(of, "apiGroup")) || !*group)
		return RC_OK;
	return js_set(of, "apiGroup", js_new_str(group));
}

enum rc rbac_prepare(struct change *ch, struct err *err)
{
	struct json *subjects = js_get(ch->obj, "subjects");
	enum rc rc = default_group(js_get(ch->obj, "roleRef"), RBAC_GROUP);

	(void)err;
	for (size_t i = 0; i < js_len(subjects) && !rc; i++) {
		struct json *s = js_item(subjects, i);
		const char *kind = js_get_str(s, "kind");

		rc = default_group(s,
				   str_eq(kind, "User") || str_eq(kind, "Group") ? RBAC_GROUP : "");
	}
	return rc;
}

/* ---- form ------------------------------------------------------------------------------------------ */

/* Combinations of its words: what a comparison has to look at. */
static size_t count_rights(const struct json *rule)
{
	static const char *const lists[] = {"apiGroups", "resources", "resourceNames"};
	size_t verbs = js_len(js_get(rule, "verbs")), n = verbs;

	for (size_t i = 0; i < ARRAY_SIZE(lists) && n <= MAX_RIGHTS; i++) {
		size_t words = js_len(js_get(rule, lists[i]));

		n *= words ? words : 1;
	}
	return MIN(n + verbs * js_len(js_get(rule, "nonResourceURLs")), (size_t)MAX_RIGHTS + 1);
}

static void check_rule(struct change *ch, const struct json *rule, size_t i)
{
	bool in_ns = ch->res->kind->is_namespaced;
	size_t urls = js_len(js_get(rule, "nonResourceURLs"));
	size_t groups = js_len(js_get(rule, "apiGroups")), res = js_len(js_get(rule, "resources"));
	char at[64];

	snprintf(at, sizeof(at), "rules[%zu].verbs", i);
	if (!js_len(js_get(rule, "verbs")))
		fe_required(&ch->fe, at, "verbs must contain at least one value");
	snprintf(at, sizeof(at), "rules[%zu].nonResourceURLs", i);
	if (urls && in_ns)
		fe_invalid_json(&ch->fe, at, js_get(rule, "nonResourceURLs"),
				"namespaced rules cannot apply to non-resource URLs");
	else if (urls && (groups || res || js_len(js_get(rule, "resourceNames"))))
		fe_invalid_json(
			&ch->fe, at, js_get(rule, "nonResourceURLs"),
			"rules cannot apply to both regular resources and non-resource URLs");
	if (urls)
		return;
	snprintf(at, sizeof(at), "rules[%zu].apiGroups", i);
	if (!groups)
		fe_required(&ch->fe, at, "resource rules must supply at least one api group");
	snprintf(at, sizeof(at), "rules[%zu].resources", i);
	if (!res)
		fe_required(&ch->fe, at, "resource rules must supply at least one resource");
}

static void check_role(struct change *ch)
{
	const struct json *rules = js_get(ch->obj, "rules");
	const struct json *selectors =
		js_at(ch->obj, "aggregationRule", "clusterRoleSelectors", NULL);
	size_t n = 0;

	for (size_t i = 0; i < js_len(rules); i++) {
		check_rule(ch, js_item(rules, i), i);
		n += count_rights(js_item(rules, i));
	}
	if (n > MAX_RIGHTS)
		fe_add(&ch->fe, FE_TOO_MANY, "rules",
		       "Too many: a role gives at most %d single rights (verbs times groups times "
		       "resources times names)",
		       MAX_RIGHTS);
	if (js_get(ch->obj, "aggregationRule") && !js_len(selectors))
		fe_required(&ch->fe, "aggregationRule.clusterRoleSelectors",
			    "at least one clusterRoleSelector required if aggregationRule is "
			    "non-nil");
}

static void check_subject(struct change *ch, const struct json *s, size_t i)
{
	static const char *const kinds[] = {"ServiceAccount", "User", "Group", NULL};
	static const char *const no_group[] = {"", NULL}, *const rbac_group[] = {RBAC_GROUP, NULL};
	const char *kind = js_get_str(s, "kind"), *group = js_get_str(s, "apiGroup");
	bool is_account = str_eq(kind, "ServiceAccount");
	char at[64];

	snprintf(at, sizeof(at), "subjects[%zu].name", i);
	if (str_is_empty(js_get_str(s, "name")))
		fe_required(&ch->fe, at, NULL);
	snprintf(at, sizeof(at), "subjects[%zu].kind", i);
	if (!is_account && !str_eq(kind, "User") && !str_eq(kind, "Group")) {
		fe_not_supported(&ch->fe, at, kind ? kind : "", kinds);
		return;
	}
	snprintf(at, sizeof(at), "subjects[%zu].apiGroup", i);
	if (is_account ? !str_is_empty(group) : !str_eq(group, RBAC_GROUP))
		fe_not_supported(&ch->fe, at, group ? group : "",
				 is_account ? no_group : rbac_group);
	snprintf(at, sizeof(at), "subjects[%zu].namespace", i);
	if (is_account && str_is_empty(js_get_str(s, "namespace")))
		fe_required(&ch->fe, at, NULL);
}

static void check_binding(struct change *ch)
{
	static const char *const in_ns[] = {"Role", "ClusterRole", NULL},
				 *const everywhere[] = {"ClusterRole", NULL},
				 *const groups[] = {RBAC_GROUP, NULL};
	const struct json *ref = js_get(ch->obj, "roleRef"), *had = js_get(ch->old, "roleRef");
	const struct json *subjects = js_get(ch->obj, "subjects");
	const char *kind = js_get_str(ref, "kind"), *name = js_get_str(ref, "name");
	bool may_be_role = ch->res->kind->is_namespaced;

	if (!str_eq(js_get_str(ref, "apiGroup"), RBAC_GROUP))
		fe_not_supported(&ch->fe, "roleRef.apiGroup", js_get_str(ref, "apiGroup"), groups);
	if (!str_eq(kind, "ClusterRole") && (!may_be_role || !str_eq(kind, "Role")))
		fe_not_supported(&ch->fe, "roleRef.kind", kind ? kind : "",
				 may_be_role ? in_ns : everywhere);
	if (str_is_empty(name))
		fe_required(&ch->fe, "roleRef.name", NULL);
	if (had && !js_equal(ref, had))
		fe_invalid_json(&ch->fe, "roleRef", ref, "cannot change roleRef");
	for (size_t i = 0; i < js_len(subjects); i++)
		check_subject(ch, js_item(subjects, i), i);
}

void rbac_validate(struct change *ch)
{
	if (is_binding(ch->res))
		check_binding(ch);
	else
		check_role(ch);
}

/* ---- escalation ------------------------------------------------------------------------------------ */

/* The right to do this with a role itself: "escalate" its rules, "bind" it. */
static bool may_with_role(struct change *ch, const char *verb, const char *plural, const char *name)
{
	const struct authz_ask ask = {.verb = verb,
				      .group = RBAC_GROUP,
				      .plural = plural,
				      .sub = "",
				      .ns = ch->ns,
				      .name = name};

	return authz_allows(ch->c->srv, &ch->c->user, &ask, NULL);
}

/* Rights that the writer lacks, as Kubernetes tells them. */
struct lack {
	struct change *ch;
	struct sbuf told;
	size_t n;
	size_t in_row; /* verbs told of one resource */
};

static bool has_right(const struct lack *l, const struct authz_ask *ask)
{
	return rbac_allows(l->ch->c->srv->rbac, &l->ch->c->user, ask, NULL);
}

static void tell(struct lack *l, const struct authz_ask *ask)
{
	if (l->in_row++) {
		if (l->in_row <= MAX_VERBS_TOLD)
			sbuf_addf(&l->told, ", \"%.64s\"", ask->verb);
		return;
	}
	if (++l->n > MAX_TOLD)
		return;
	if (ask->path)
		sbuf_addf(&l->told, "\n{NonResourceURLs:[\"%.256s\"], ", ask->path);
	else
		sbuf_addf(&l->told, "\n{APIGroups:[\"%.256s\"], Resources:[\"%.256s%s%.256s\"], ",
			  ask->group, ask->plural, *ask->sub ? "/" : "", ask->sub);
	if (*ask->name)
		sbuf_addf(&l->told, "ResourceNames:[\"%.256s\"], ", ask->name);
	sbuf_addf(&l->told, "Verbs:[\"%.64s\"", ask->verb);
}

static void look_at_verbs(struct lack *l, const struct rbac_rule *rule, struct authz_ask *ask)
{
	l->in_row = 0;
	for (size_t i = 0; i < rule->verbs.n && l->n <= MAX_TOLD; i++) {
		ask->verb = rule->verbs.v[i];
		if (!has_right(l, ask))
			tell(l, ask);
	}
	if (l->in_row && l->n <= MAX_TOLD)
		sbuf_adds(&l->told, "]}");
}

static void look_at_names(struct lack *l, const struct rbac_rule *rule, struct authz_ask *ask)
{
	ask->name = "";
	if (!rule->names.n)
		look_at_verbs(l, rule, ask);
	for (size_t i = 0; i < rule->names.n; i++) {
		ask->name = rule->names.v[i];
		look_at_verbs(l, rule, ask);
	}
}

static void look_at_rule(struct lack *l, const struct rbac_rule *rule)
{
	struct authz_ask ask = {.sub = "", .ns = l->ch->ns, .name = "", .group = "", .plural = ""};

	for (size_t i = 0; i < rule->urls.n; i++) {
		ask.path = rule->urls.v[i];
		look_at_verbs(l, rule, &ask);
	}
	ask.path = NULL;
	for (size_t g = 0; g < rule->groups.n; g++) {
		for (size_t r = 0; r < rule->resources.n; r++) {
			/* "pods/status" is a word here: only the same word or "*" gives it */
			ask.group = rule->groups.v[g];
			ask.plural = rule->resources.v[r];
			CLEANUP(mem_freep) char *copy = NULL;
			const char *slash = strchr(ask.plural, '/');

			ask.sub = slash ? slash + 1 : "";
			if (slash) {
				copy = mem_strndup(ask.plural, (size_t)(slash - ask.plural));
				if (!copy) {
					l->told.rc = RC_NOMEM;
					return;
				}
				ask.plural = copy;
			}
			look_at_names(l, rule, &ask);
		}
	}
}

/* Longer than most refusals. */
static void refuse_grant(struct change *ch, const struct lack *l)
{
	const struct apisrv_user *u = &ch->c->user;
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(256 * KIB);
	CLEANUP(mem_freep) char *text = NULL;
	size_t n;

	sbuf_addf(&b, "%s \"%s\" is forbidden: user \"%s\" (groups=[", ch->res->table, ch->name,
		  u->name);
	for (size_t i = 0; i < u->n_groups; i++)
		sbuf_addf(&b, "%s\"%s\"", i ? " " : "", u->groups[i]);
	sbuf_addf(&b, "]) is attempting to grant RBAC permissions not currently held:%s%s",
		  sbuf_str(&l->told), l->n > MAX_TOLD ? "\n…" : "");
	if (sbuf_rc(&l->told) || sbuf_take(&b, &text, &n)) {
		call_nomem(ch->c);
		return;
	}
	text_clean(text);
	call_answer_json(
		ch->c, 403,
		status_new(403, "Forbidden", text, status_details(ch->res, ch->name, false)));
}

/* False: answered. */
static bool has_all_of(struct change *ch, const struct rbac_role *role)
{
	struct lack l = {.ch = ch, .told = SBUF_INIT(128 * KIB)};
	bool ok = rbac_is_ready(ch->c->srv->rbac);

	for (size_t i = 0; ok && i < role->n && l.n <= MAX_TOLD; i++)
		look_at_rule(&l, &role->rules[i]);
	if (!ok || l.told.rc)
		call_nomem(ch->c);
	else if (l.n)
		refuse_grant(ch, &l);
	ok = ok && !l.told.rc && !l.n;
	sbuf_fini(&l.told);
	return ok;
}

/* All that is in its rules.  obj NULL: there was no memory for it. */
static bool has_all_in(struct change *ch, const struct json *obj)
{
	struct rbac_role *role = obj ? rbac_role_new(js_get(obj, "rules")) : NULL;

	if (!role) {
		call_nomem(ch->c);
		return false;
	}
	bool ok = has_all_of(ch, role);

	mem_free(role);
	return ok;
}

static bool may_have_rules(struct change *ch)
{
	static const char *const everything[] = {"*"};
	static struct rbac_rule all[] = {
		{.verbs = {everything, 1, true},
		 .groups = {everything, 1, true},
		 .resources = {everything, 1, true}},
		{.verbs = {everything, 1, true}, .urls = {everything, 1, true}}};
	static const struct rbac_role admin = {ARRAY_SIZE(all), all};

	if (may_with_role(ch, "escalate", ch->res->kind->plural, ch->name))
		return true;
	/* Whatever is labelled so later comes into it. */
	if ((js_get(ch->obj, "aggregationRule") || js_get(ch->old, "aggregationRule")) &&
	    !has_all_of(ch, &admin))
		return false;
	return has_all_in(ch, ch->obj);
}

/* The rules are those of the newest version, which may be on its way to the disk. */
static bool may_bind(struct change *ch)
{
	struct apisrv *s = ch->c->srv;
	const struct json *ref = js_get(ch->obj, "roleRef");
	const char *name = js_get_str(ref, "name");
	bool is_cluster = str_eq(js_get_str(ref, "kind"), "ClusterRole");
	const struct resource *res =
		apisrv_resource(s, is_cluster ? TABLE_CLUSTER_ROLES : TABLE_ROLES);

	if (may_with_role(ch, "bind", res->kind->plural, name))
		return true;
	CLEANUP(mem_freep) char *key = object_key(res, ch->ns, name);
	struct obj *o = key ? store_newest(s->store, key) : NULL;

	if (key && !o) {
		call_not_found(ch->c, res, name);
		return false;
	}
	CLEANUP(js_unrefp) struct json *obj = o ? obj_json(o) : NULL;

	return has_all_in(ch, obj);
}

bool rbac_may_grant(struct change *ch)
{
	if (ch->op == HOOK_DELETE)
		return true;
	if (is_role(ch->res))
		return may_have_rules(ch);
	return !is_binding(ch->res) || may_bind(ch);
}
