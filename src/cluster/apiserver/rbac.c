#include "cluster/apiserver/rbac.h"

#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"
#include "cluster/apiserver/apisrv_int.h"

enum { MAX_SUBJECT = 1024 + 1, MAX_SUBJECT_KEY = MAX_SUBJECT + LIMIT_NAME_BYTES + 2 };

/* The bindings of one subject in one namespace. */
struct subject {
	size_t n, cap;
	struct rbac_binding **bindings;
};

struct rbac {
	struct store *store;
	struct map roles;    /* key in the store -> struct rbac_role */
	struct map bindings; /* key in the store -> struct rbac_binding */
	struct map subjects; /* "<namespace>/U<name>" -> struct subject */
	bool is_stale;	     /* memory ran out: to be built anew before it is asked again */
};

static void free_block(void *value)
{
	mem_free(value);
}

/* ---- roles ----------------------------------------------------------------------------------------- */

/* A block that is measured first and filled then: rules, pointers to words, words. */
struct filler {
	struct rbac_role *role; /* NULL: only measured */
	const char **words;
	char *text;
	size_t n_words, n_text;
};

static const char *keep_word(struct filler *f, const char *word)
{
	size_t n = strlen(word) + 1;
	char *at = f->text ? f->text + f->n_text : NULL;

	f->n_text += n;
	return at ? memcpy(at, word, n) : NULL;
}

static void keep_words(struct filler *f, struct rbac_words *out, const struct json *list)
{
	const char **at = f->words ? f->words + f->n_words : NULL;
	size_t n = 0;

	for (size_t i = 0; i < js_len(list); i++) {
		const char *word = js_str(js_item(list, i));

		if (!word)
			continue;
		const char *kept = keep_word(f, word);

		if (at)
			at[n] = kept;
		if (out)
			out->any = out->any || strcmp(word, "*") == 0;
		n++;
	}
	f->n_words += n;
	if (out) {
		out->v = at;
		out->n = n;
	}
}

static void keep_rules(struct filler *f, const struct json *rules)
{
	for (size_t i = 0; i < js_len(rules); i++) {
		const struct json *from = js_item(rules, i);
		struct rbac_rule *to = f->role ? &f->role->rules[i] : NULL;

		keep_words(f, to ? &to->verbs : NULL, js_get(from, "verbs"));
		keep_words(f, to ? &to->groups : NULL, js_get(from, "apiGroups"));
		keep_words(f, to ? &to->resources : NULL, js_get(from, "resources"));
		keep_words(f, to ? &to->names : NULL, js_get(from, "resourceNames"));
		keep_words(f, to ? &to->urls : NULL, js_get(from, "nonResourceURLs"));
	}
}

struct rbac_role *rbac_role_new(const struct json *rules)
{
	size_t n = js_is_array(rules) ? js_len(rules) : 0;
	struct filler f = {0};

	keep_rules(&f, n ? rules : NULL);
	size_t head = sizeof(struct rbac_role) + n * sizeof(struct rbac_rule);
	char *block = mem_alloc(head + f.n_words * sizeof(char *) + f.n_text);

	if (!block)
		return NULL;
	struct rbac_role *role = (void *)block;

	role->n = n;
	role->rules = (void *)(block + sizeof(*role));
	f = (struct filler){.role = role,
			    .words = (void *)(block + head),
			    .text = block + head + f.n_words * sizeof(char *)};
	keep_rules(&f, n ? rules : NULL);
	return role;
}

static bool is_among(const struct rbac_words *w, const char *word)
{
	for (size_t i = 0; i < w->n; i++)
		if (strcmp(w->v[i], word) == 0)
			return true;
	return false;
}

static bool has_word(const struct rbac_words *w, const char *word)
{
	return w->any || is_among(w, word);
}

/* Names have no wildcard: "*" would be an object called so. */
static bool has_name(const struct rbac_words *names, const char *name)
{
	return !names->n || (*name && is_among(names, name));
}

/* "pods", "pods/status", and for any resource the subresource alone: "*" "/scale". */
static bool is_resource(const char *have, const struct authz_ask *ask)
{
	size_t n = strlen(ask->plural);

	if (!*ask->sub)
		return strcmp(have, ask->plural) == 0;
	if (have[0] == '*' && have[1] == '/')
		return strcmp(have + 2, ask->sub) == 0;
	return strncmp(have, ask->plural, n) == 0 && have[n] == '/' &&
	       strcmp(have + n + 1, ask->sub) == 0;
}

static bool has_resource(const struct rbac_words *w, const struct authz_ask *ask)
{
	if (w->any)
		return true;
	for (size_t i = 0; i < w->n; i++)
		if (is_resource(w->v[i], ask))
			return true;
	return false;
}

/* "/healthz", "/healthz/" "*" */
static bool has_path(const struct rbac_words *w, const char *path)
{
	if (w->any)
		return true;
	for (size_t i = 0; i < w->n; i++) {
		size_t n = strlen(w->v[i]);

		if (strcmp(w->v[i], path) == 0)
			return true;
		if (n && w->v[i][n - 1] == '*' && strncmp(w->v[i], path, n - 1) == 0)
			return true;
	}
	return false;
}

bool rbac_rule_allows(const struct rbac_rule *rule, const struct authz_ask *ask)
{
	if (!has_word(&rule->verbs, ask->verb))
		return false;
	if (ask->path)
		return has_path(&rule->urls, ask->path);
	return has_word(&rule->groups, ask->group) && has_resource(&rule->resources, ask) &&
	       has_name(&rule->names, ask->name);
}

/* ---- bindings -------------------------------------------------------------------------------------- */

/* "U" or "G" and the name; a service account is a user.  False: nobody that we know. */
static bool subject_name(const struct json *subject, char out[MAX_SUBJECT])
{
	const char *kind = js_get_str(subject, "kind"), *name = js_get_str(subject, "name");
	const char *ns = js_get_str(subject, "namespace");
	int n = -1;

	if (!name)
		return false;
	if (str_eq(kind, "User"))
		n = snprintf(out, MAX_SUBJECT, "U%s", name);
	else if (str_eq(kind, "Group"))
		n = snprintf(out, MAX_SUBJECT, "G%s", name);
	else if (str_eq(kind, "ServiceAccount") && ns)
		n = snprintf(out, MAX_SUBJECT, "Usystem:serviceaccount:%s:%s", ns, name);
	return n > 0 && n < MAX_SUBJECT;
}

/* ns, name and what the binding points to, in one block. */
static struct rbac_binding *binding_new(const struct json *obj)
{
	const struct json *ref = js_get(obj, "roleRef"), *subjects = js_get(obj, "subjects");
	const char *ns = json_ns(obj), *name = json_name(obj), *role = js_get_str(ref, "name");
	bool is_cluster = str_eq(js_get_str(ref, "kind"), "ClusterRole");
	char subject[MAX_SUBJECT], key[2 * LIMIT_NAME_BYTES + 64];
	size_t n = 0, n_text = 0;

	snprintf(key, sizeof(key), "%s/%s%s%s", is_cluster ? TABLE_CLUSTER_ROLES : TABLE_ROLES,
		 is_cluster ? "" : ns, is_cluster ? "" : "/", role ? role : "");
	for (size_t i = 0; i < js_len(subjects); i++)
		if (subject_name(js_item(subjects, i), subject)) {
			n++;
			n_text += strlen(subject) + 1;
		}
	size_t head = sizeof(struct rbac_binding) + n * sizeof(char *);
	char *block = mem_alloc(head + n_text + strlen(ns) + strlen(name) + strlen(key) + 3);

	if (!block)
		return NULL;
	struct rbac_binding *b = (void *)block;
	const char **list = (void *)(block + sizeof(*b));
	struct filler f = {.text = block + head};

	b->ns = keep_word(&f, ns);
	b->name = keep_word(&f, name);
	b->role_key = keep_word(&f, key);
	b->subjects = list;
	for (size_t i = 0; i < js_len(subjects); i++)
		if (subject_name(js_item(subjects, i), subject))
			list[b->n_subjects++] = keep_word(&f, subject);
	return b;
}

static void subject_free(void *value)
{
	struct subject *s = value;

	mem_free(s->bindings);
	mem_free(s);
}

/* The caller's users and groups may be longer than any subject: those are bound by nothing. */
static bool subject_key(char out[MAX_SUBJECT_KEY], const char *ns, const char *kind,
			const char *name)
{
	int n = snprintf(out, MAX_SUBJECT_KEY, "%s/%s%s", ns, kind, name);

	return n > 0 && n < MAX_SUBJECT_KEY;
}

static void unlink_binding(struct rbac *r, const struct rbac_binding *b)
{
	char key[MAX_SUBJECT_KEY];

	for (size_t i = 0; i < b->n_subjects; i++) {
		struct subject *s = subject_key(key, b->ns, "", b->subjects[i])
					    ? map_get(&r->subjects, key)
					    : NULL;

		for (size_t k = s ? s->n : 0; k-- > 0;)
			if (s->bindings[k] == b)
				s->bindings[k] = s->bindings[--s->n];
		if (s && !s->n)
			map_del(&r->subjects, key);
	}
}

static enum rc link_subject(struct rbac *r, struct rbac_binding *b, const char *name)
{
	char key[MAX_SUBJECT_KEY];

	if (!subject_key(key, b->ns, "", name))
		return RC_OK;
	struct subject *s = map_get(&r->subjects, key);

	if (!s) {
		s = mem_alloc(sizeof(*s));
		if (!s || map_set(&r->subjects, key, s)) {
			mem_free(s);
			return RC_NOMEM;
		}
	}
	for (size_t i = 0; i < s->n; i++)
		if (s->bindings[i] == b) /* named twice */
			return RC_OK;
	if (!mem_grow((void **)&s->bindings, &s->cap, s->n, sizeof(*s->bindings))) {
		if (!s->n)
			map_del(&r->subjects, key);
		return RC_NOMEM;
	}
	s->bindings[s->n++] = b;
	return RC_OK;
}

static enum rc link_binding(struct rbac *r, struct rbac_binding *b)
{
	for (size_t i = 0; i < b->n_subjects; i++)
		if (link_subject(r, b, b->subjects[i]))
			return RC_NOMEM;
	return RC_OK;
}

/* ---- following the store --------------------------------------------------------------------------- */

static void forget(struct rbac *r, const char *key)
{
	struct rbac_binding *b = map_take(&r->bindings, key);

	if (b)
		unlink_binding(r, b);
	mem_free(b);
	map_del(&r->roles, key);
}

static enum rc keep_binding(struct rbac *r, const char *key, const struct json *obj)
{
	struct rbac_binding *b = binding_new(obj);

	if (!b || map_set(&r->bindings, key, b)) {
		mem_free(b);
		return RC_NOMEM;
	}
	return link_binding(r, b);
}

static enum rc keep_role(struct rbac *r, const char *key, const struct json *obj)
{
	struct rbac_role *role = rbac_role_new(js_get(obj, "rules"));

	if (!role || map_set(&r->roles, key, role)) {
		mem_free(role);
		return RC_NOMEM;
	}
	return RC_OK;
}

static bool is_role_table(const char *table)
{
	return strcmp(table, TABLE_ROLES) == 0 || strcmp(table, TABLE_CLUSTER_ROLES) == 0;
}

static bool is_binding_table(const char *table)
{
	return strcmp(table, TABLE_BINDINGS) == 0 || strcmp(table, TABLE_CLUSTER_BINDS) == 0;
}

static enum rc keep(struct rbac *r, struct obj *o)
{
	CLEANUP(js_unrefp) struct json *j = obj_json(o);

	if (!j)
		return RC_NOMEM;
	return is_role_table(obj_table(o)) ? keep_role(r, obj_key(o), j)
					   : keep_binding(r, obj_key(o), j);
}

void rbac_event(struct rbac *r, const struct store_event *ev)
{
	const char *table = obj_table(ev->obj);

	if (!is_role_table(table) && !is_binding_table(table))
		return;
	forget(r, obj_key(ev->obj));
	if (ev->type != STORE_DELETED && keep(r, ev->obj))
		r->is_stale = true;
}

static void forget_all(struct rbac *r)
{
	map_fini(&r->subjects);
	map_fini(&r->bindings);
	map_fini(&r->roles);
}

static enum rc load(struct rbac *r)
{
	static const char *const tables[] = {TABLE_ROLES, TABLE_CLUSTER_ROLES, TABLE_BINDINGS,
					     TABLE_CLUSTER_BINDS};

	forget_all(r);
	r->is_stale = true;
	for (size_t i = 0; i < ARRAY_SIZE(tables); i++) {
		struct store_iter it;
		struct obj *o;

		store_iter_init(&it, r->store, tables[i], NULL);
		while ((o = store_iter_next(&it)))
			if (keep(r, o))
				return RC_NOMEM;
	}
	r->is_stale = false;
	return RC_OK;
}

bool rbac_is_ready(struct rbac *r)
{
	return !r->is_stale || load(r) == RC_OK;
}

enum rc rbac_new(struct rbac **out, struct store *store)
{
	CLEANUP(rbac_freep) struct rbac *r = mem_alloc(sizeof(*r));

	if (!r)
		return RC_NOMEM;
	r->store = store;
	map_init(&r->roles, free_block);
	map_init(&r->bindings, free_block);
	map_init(&r->subjects, subject_free);
	if (load(r))
		return RC_NOMEM;
	*out = STEAL(r);
	return RC_OK;
}

struct rbac *rbac_free(struct rbac *r)
{
	if (r)
		forget_all(r);
	return mem_free(r);
}

/* ---- judging --------------------------------------------------------------------------------------- */

/* False: fn has seen enough. */
static bool each_of_subject(struct rbac *r, const char *key, const char *subject, rbac_rule_fn fn,
			    void *arg)
{
	const struct subject *s = map_get(&r->subjects, key);

	for (size_t i = 0; s && i < s->n; i++) {
		const struct rbac_binding *b = s->bindings[i];
		const struct rbac_role *role = map_get(&r->roles, b->role_key);

		for (size_t k = 0; role && k < role->n; k++)
			if (!fn(arg, b, subject, &role->rules[k]))
				return false;
	}
	return true;
}

/* Of the cluster's bindings, and of the namespace's. */
static bool each_of(struct rbac *r, const char *kind, const char *name, const char *ns,
		    rbac_rule_fn fn, void *arg)
{
	char key[MAX_SUBJECT_KEY];

	if (subject_key(key, "", kind, name) && !each_of_subject(r, key, key + 1, fn, arg))
		return false;
	return !*ns || !subject_key(key, ns, kind, name) ||
	       each_of_subject(r, key, key + strlen(ns) + 1, fn, arg);
}

void rbac_each_rule(struct rbac *r, const struct apisrv_user *u, const char *ns, rbac_rule_fn fn,
		    void *arg)
{
	if (!rbac_is_ready(r) || !each_of(r, "U", u->name, ns, fn, arg))
		return;
	for (size_t i = 0; i < u->n_groups; i++)
		if (!each_of(r, "G", u->groups[i], ns, fn, arg))
			return;
}

struct judge {
	const struct authz_ask *ask;
	struct rbac_grant *why;
	bool allowed;
};

static bool judge_rule(void *arg, const struct rbac_binding *b, const char *subject,
		       const struct rbac_rule *rule)
{
	struct judge *j = arg;

	j->allowed = rbac_rule_allows(rule, j->ask);
	if (j->allowed && j->why) {
		j->why->binding = b;
		for (size_t i = 0; i < b->n_subjects; i++) /* outlives the caller's key */
			if (strcmp(b->subjects[i], subject) == 0)
				j->why->subject = b->subjects[i];
	}
	return !j->allowed;
}

bool rbac_allows(struct rbac *r, const struct apisrv_user *u, const struct authz_ask *ask,
		 struct rbac_grant *why)
{
	struct judge j = {.ask = ask, .why = why};

	rbac_each_rule(r, u, ask->path ? "" : ask->ns, judge_rule, &j);
	return j.allowed;
}
