/* "May he?" and "Who am I?": kubectl auth can-i, kubectl auth whoami.  Nothing is stored.
 *
 * Rights are told by what judges requests (authz_allows), so that no answer differs from what happens.
 */
#include "cluster/apiserver/apisrv_int.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"

static const char *or_empty(const char *s)
{
	return s ? s : "";
}

/* ---- whom it is about ------------------------------------------------------------------------------ */

/* A user that a review names; the text is borrowed from the review. */
struct subject {
	struct apisrv_user user;
	const char **groups;
	struct apisrv_extra *extra;
};

static void subject_fini(struct subject *s)
{
	for (size_t i = 0; i < s->user.n_extra; i++)
		mem_free((void *)(uintptr_t)s->extra[i].values);
	mem_free(s->extra);
	mem_free(s->groups);
}

static const char **words_of(const struct json *list, size_t *n)
{
	const char **words = mem_calloc(js_len(list) + 1, sizeof(*words));

	for (size_t i = 0; words && i < js_len(list); i++)
		if (js_str(js_item(list, i)))
			words[(*n)++] = js_str(js_item(list, i));
	return words;
}

static enum rc subject_of(const struct json *spec, struct subject *out)
{
	const struct json *extra = js_get(spec, "extra");

	out->user.name = or_empty(js_get_str(spec, "user"));
	out->user.uid = js_get_str(spec, "uid");
	out->groups = words_of(js_get(spec, "groups"), &out->user.n_groups);
	out->extra = mem_calloc(js_len(extra) + 1, sizeof(*out->extra));
	if (!out->groups || !out->extra)
		return RC_NOMEM;
	out->user.groups = out->groups;
	out->user.extra = out->extra;
	JS_FOREACH(it, extra) {
		struct apisrv_extra *x = &out->extra[out->user.n_extra++];

		x->key = it.key;
		x->values = words_of(it.value, &x->n);
		if (!x->values)
			return RC_NOMEM;
	}
	return RC_OK;
}

/* ---- access reviews -------------------------------------------------------------------------------- */

static struct authz_ask ask_of(const struct json *spec)
{
	const struct json *ra = js_get(spec, "resourceAttributes");
	const struct json *path = js_get(spec, "nonResourceAttributes");

	return (struct authz_ask){
		.verb = or_empty(js_get_str(path ? path : ra, "verb")),
		.group = or_empty(js_get_str(ra, "group")),
		.plural = or_empty(js_get_str(ra, "resource")),
		.sub = or_empty(js_get_str(ra, "subresource")),
		.ns = or_empty(js_get_str(ra, "namespace")),
		.name = or_empty(js_get_str(ra, "name")),
		.path = path ? or_empty(js_get_str(path, "path")) : NULL,
	};
}

char *rbac_reason(const struct rbac_grant *why)
{
	const struct rbac_binding *b = why ? why->binding : NULL;

	if (!b || !why->subject)
		return NULL;
	bool is_cluster_role = str_has_prefix(b->role_key, TABLE_CLUSTER_ROLES "/");

	return mem_printf("RBAC: allowed by %sRoleBinding \"%s%s%s\" of %sRole \"%s\" to %s \"%s\"",
			  *b->ns ? "" : "Cluster", b->ns, *b->ns ? "/" : "", b->name,
			  is_cluster_role ? "Cluster" : "", strrchr(b->role_key, '/') + 1,
			  *why->subject == 'U' ? "User" : "Group", why->subject + 1);
}

static void answer_access(struct apisrv_call *c, const struct apisrv_user *user, const char *kind)
{
	struct json *spec = js_get(c->json, "spec");
	const struct authz_ask ask = ask_of(spec);
	struct rbac_grant why = {0};
	bool allowed = authz_allows(c->srv, user, &ask, &why);
	CLEANUP(mem_freep) char *reason = allowed ? rbac_reason(&why) : NULL;

	if (!rbac_is_ready(c->srv->rbac)) {
		call_nomem(c);
		return;
	}
	call_answer_json(c, 201,
			 js_pack("{s:s, s:s, s:{s:n, s:s*}, s:O, s:{s:b, s:s*}}", "kind", kind,
				 "apiVersion", "authorization.k8s.io/v1", "metadata",
				 "creationTimestamp", "namespace", *c->ns ? c->ns : NULL, "spec",
				 spec, "status", "allowed", allowed, "reason", reason));
}

static void answer_faults(struct apisrv_call *c, const char *kind, const struct field_errs *fe)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(16384);

	fe_summary(fe, FE__MAX, &b);
	call_fail(c, 422, "Invalid",
		  js_pack("{s:s, s:s, s:o}", "group", "authorization.k8s.io", "kind", kind,
			  "causes", fe_causes(fe)),
		  "%s.authorization.k8s.io \"\" is invalid: %s", kind, sbuf_str(&b));
}

/* What all three have in common; own: the rest of one kind (may be NULL). */
static bool check_access(struct apisrv_call *c, const char *kind,
			 void (*own)(const struct apisrv_call *c, struct field_errs *fe))
{
	const struct json *spec = js_get(c->json, "spec");
	bool on_resource = js_is_object(js_get(spec, "resourceAttributes"));
	bool on_path = js_is_object(js_get(spec, "nonResourceAttributes"));
	struct field_errs fe = FIELD_ERRS_INIT;

	if (on_resource && on_path)
		fe_invalid(&fe, "spec.nonResourceAttributes", "",
			   "cannot be specified in combination with resourceAttributes");
	else if (!on_resource && !on_path)
		fe_invalid(&fe, "spec.resourceAttributes", "",
			   "exactly one of nonResourceAttributes or resourceAttributes must be "
			   "specified");
	if (own)
		own(c, &fe);
	bool ok = fe_is_ok(&fe);

	if (fe.rc)
		call_nomem(c);
	else if (!ok)
		answer_faults(c, kind, &fe);
	fe_fini(&fe);
	return ok;
}

static void self_access_review(struct apisrv_call *c)
{
	static const char kind[] = "SelfSubjectAccessReview";

	if (check_access(c, kind, NULL))
		answer_access(c, &c->user, kind);
}

static void need_subject(const struct apisrv_call *c, struct field_errs *fe)
{
	const struct json *spec = js_get(c->json, "spec");

	if (str_is_empty(js_get_str(spec, "user")) && !js_len(js_get(spec, "groups")))
		fe_invalid(fe, "spec.user", "", "at least one of user or group must be specified");
}

static void answer_for_subject(struct apisrv_call *c, const char *kind)
{
	CLEANUP(subject_fini) struct subject who = {0};

	if (subject_of(js_get(c->json, "spec"), &who))
		call_nomem(c);
	else
		answer_access(c, &who.user, kind);
}

static void subject_access_review(struct apisrv_call *c)
{
	static const char kind[] = "SubjectAccessReview";

	if (check_access(c, kind, need_subject))
		answer_for_subject(c, kind);
}

static void need_local_subject(const struct apisrv_call *c, struct field_errs *fe)
{
	const struct json *spec = js_get(c->json, "spec");
	const char *ns = js_str(js_at(spec, "resourceAttributes", "namespace", NULL));

	need_subject(c, fe);
	if (js_get(spec, "nonResourceAttributes"))
		fe_invalid(fe, "spec.nonResourceAttributes", "",
			   "disallowed on this kind of request");
	else if (!str_eq(or_empty(ns), c->ns))
		fe_invalid(fe, "spec.resourceAttributes.namespace", or_empty(ns),
			   "must match metadata.namespace");
	if (!str_is_empty(json_ns(c->json)) && strcmp(json_ns(c->json), c->ns) != 0)
		fe_invalid(fe, "metadata.namespace", json_ns(c->json),
			   "must be the namespace of the request");
}

static void local_access_review(struct apisrv_call *c)
{
	static const char kind[] = "LocalSubjectAccessReview";

	if (check_access(c, kind, need_local_subject))
		answer_for_subject(c, kind);
}

/* ---- oneself --------------------------------------------------------------------------------------- */

/* NULL: out of memory. */
static struct json *list_json(const char *const *words, size_t n)
{
	struct json *list = js_new_array();

	for (size_t i = 0; list && i < n; i++)
		if (js_append(list, js_new_str(words[i])))
			list = js_unref(list);
	return list;
}

static struct json *extra_json(const struct apisrv_user *u)
{
	struct json *extra = js_new_object();

	for (size_t i = 0; extra && i < u->n_extra; i++)
		if (js_set(extra, u->extra[i].key, list_json(u->extra[i].values, u->extra[i].n)))
			extra = js_unref(extra);
	return extra;
}

struct json *user_info(const struct apisrv_user *u)
{
	struct json *info = js_pack("{s:s, s:s*, s:o}", "username", u->name, "uid", u->uid,
				    "groups", list_json(u->groups, u->n_groups));

	if (info && u->n_extra && js_set(info, "extra", extra_json(u)))
		info = js_unref(info);
	return info;
}

static void who_am_i(struct apisrv_call *c)
{
	call_answer_json(c, 201,
			 js_pack("{s:s, s:s, s:{s:n}, s:{s:o}}", "kind", "SelfSubjectReview",
				 "apiVersion", "authentication.k8s.io/v1", "metadata",
				 "creationTimestamp", "status", "userInfo", user_info(&c->user)));
}

/* ---- all of one's rules ---------------------------------------------------------------------------- */

struct listing {
	struct json *resources, *paths;
	bool is_incomplete; /* rules of a node, which look at the object, too */
	enum rc rc;
};

static void add_rule(struct listing *l, struct json *to, const struct rbac_rule *r, bool is_path)
{
	struct json *j = js_pack("{s:o}", "verbs", list_json(r->verbs.v, r->verbs.n));
	enum rc rc = j ? RC_OK : RC_NOMEM;

	if (!rc && is_path)
		rc = js_set(j, "nonResourceURLs", list_json(r->urls.v, r->urls.n));
	else if (!rc)
		rc = js_set(j, "apiGroups", list_json(r->groups.v, r->groups.n));
	if (!rc && !is_path)
		rc = js_set(j, "resources", list_json(r->resources.v, r->resources.n));
	if (!rc && !is_path && r->names.n)
		rc = js_set(j, "resourceNames", list_json(r->names.v, r->names.n));
	if (rc)
		js_unref(j);
	else
		rc = js_append(to, j);
	l->rc = l->rc ? l->rc : rc;
}

static bool list_rule(void *arg, const struct rbac_binding *b, const char *subject,
		      const struct rbac_rule *rule)
{
	struct listing *l = arg;

	(void)subject;
	if (rule->groups.n)
		add_rule(l, l->resources, rule, false);
	if (rule->urls.n && !*b->ns)
		add_rule(l, l->paths, rule, true);
	return l->rc == RC_OK;
}

/* Whoever may do all has it from his certificate, not from a role. */
static void list_everything(struct listing *l)
{
	static const char *const star[] = {"*"};
	const struct rbac_words all = {star, 1, true};
	const struct rbac_rule rule = {.verbs = all, .groups = all, .resources = all, .urls = all};

	add_rule(l, l->resources, &rule, false);
	add_rule(l, l->paths, &rule, true);
}

static void list_node_rules(struct apisrv_call *c, struct listing *l)
{
	for (size_t i = 0; i < c->srv->n_resources && !l->rc; i++) {
		const struct resource *res = &c->srv->resources[i];
		unsigned may = authz_node_verbs(&c->user, res);
		const char *verbs[VERB__MAX];
		size_t n = 0;

		for (int v = 0; v < VERB__MAX; v++)
			if (may & 1u << v)
				verbs[n++] = verb_name(v);
		const struct rbac_rule rule = {.verbs = {verbs, n, false},
					       .groups = {&res->kind->group, 1, false},
					       .resources = {&res->kind->plural, 1, false}};

		if (!n)
			continue;
		l->is_incomplete = true;
		add_rule(l, l->resources, &rule, false);
	}
}

static void rules_review(struct apisrv_call *c)
{
	const char *ns = js_str(js_at(c->json, "spec", "namespace", NULL));
	struct listing l = {.resources = js_new_array(), .paths = js_new_array()};

	if (str_is_empty(ns)) {
		js_unref(l.resources);
		js_unref(l.paths);
		call_bad_request(c, "no namespace on request");
		return;
	}
	if (!l.resources || !l.paths || !rbac_is_ready(c->srv->rbac))
		l.rc = RC_NOMEM;
	if (!l.rc && authz_may_do_all(&c->user))
		list_everything(&l);
	if (!l.rc)
		list_node_rules(c, &l);
	if (!l.rc)
		rbac_each_rule(c->srv->rbac, &c->user, ns, list_rule, &l);
	if (!l.rc)
		call_answer_json(
			c, 201,
			js_pack("{s:s, s:s, s:{s:n}, s:{s:s}, s:{s:O, s:O, s:b, s:s*}}", "kind",
				"SelfSubjectRulesReview", "apiVersion", "authorization.k8s.io/v1",
				"metadata", "creationTimestamp", "spec", "namespace", ns, "status",
				"resourceRules", l.resources, "nonResourceRules", l.paths,
				"incomplete", l.is_incomplete, "evaluationError",
				l.is_incomplete ? "what a node may do depends on the object, too"
						: NULL));
	js_unref(l.resources);
	js_unref(l.paths);
	if (l.rc)
		call_nomem(c);
}

/* ---- dispatch -------------------------------------------------------------------------------------- */

static const struct review {
	const char *group, *plural;
	bool is_namespaced;
	void (*serve)(struct apisrv_call *c);
} reviews[] = {
	{"authorization.k8s.io", "subjectaccessreviews", false, subject_access_review},
	{"authorization.k8s.io", "localsubjectaccessreviews", true, local_access_review},
	{"authorization.k8s.io", "selfsubjectaccessreviews", false, self_access_review},
	{"authorization.k8s.io", "selfsubjectrulesreviews", false, rules_review},
	{"authentication.k8s.io", "selfsubjectreviews", false, who_am_i},
	{"authentication.k8s.io", "tokenreviews", false, token_review},
};

bool serve_review(struct apisrv_call *c)
{
	if (c->verb != VERB_CREATE || *c->name || strcmp(c->version, "v1") != 0)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(reviews); i++) {
		if (strcmp(reviews[i].group, c->group) != 0 ||
		    strcmp(reviews[i].plural, c->plural) != 0 ||
		    !*c->ns == reviews[i].is_namespaced)
			continue;
		if (authorize(c) && parse_body(c))
			reviews[i].serve(c);
		return true;
	}
	return false;
}
