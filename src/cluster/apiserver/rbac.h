/* src/cluster/apiserver/rbac.h - rights by roles and bindings (rbac.authorization.k8s.io), kept as an index.
 *
 * Loop thread only.  The index follows the store's events, so that judging a request parses nothing: a
 * user's bindings are found by his name and groups, and their rules are compiled.  It shows what is
 * visible in the store; a role that waits for its commit gives nothing yet.
 */
#ifndef APISERVER_RBAC_H
#define APISERVER_RBAC_H

#include "base/err.h"

struct apisrv;
struct apisrv_user;
struct authz_ask;
struct change;
struct json;
struct store;
struct store_event;

#define RBAC_GROUP	    "rbac.authorization.k8s.io"
#define TABLE_ROLES	    "roles." RBAC_GROUP
#define TABLE_BINDINGS	    "rolebindings." RBAC_GROUP
#define TABLE_CLUSTER_ROLES "clusterroles." RBAC_GROUP
#define TABLE_CLUSTER_BINDS "clusterrolebindings." RBAC_GROUP

struct rbac_words {
	const char *const *v;
	size_t n;
	bool any; /* "*" is one of them */
};

struct rbac_rule {
	struct rbac_words verbs, groups, resources, names, urls;
};

/* The rules of a Role or ClusterRole, in one block of memory. */
struct rbac_role {
	size_t n;
	struct rbac_rule *rules;
};

/* NULL: out of memory.  rules: the member of that name of a role; anything that is no text is left out.
 * Freed with mem_free(). */
struct rbac_role *rbac_role_new(const struct json *rules);

struct rbac_binding {
	const char *ns;	      /* "": a ClusterRoleBinding */
	const char *name;     /* its own */
	const char *role_key; /* key of the role in the store */
	size_t n_subjects;
	const char *const *subjects; /* "U<name>", "G<name>" */
};

struct rbac;
MUST_CHECK enum rc rbac_new(struct rbac **out, struct store *store);
struct rbac *rbac_free(struct rbac *r); /* NULL is fine; returns NULL */
DEFINE_CLEANUP(struct rbac *, rbac_free);
/* What the store tells; other tables than those of RBAC are ignored. */
void rbac_event(struct rbac *r, const struct store_event *ev);
/* False: memory ran out while the index was kept, again now; nobody has rights by it meanwhile. */
MUST_CHECK bool rbac_is_ready(struct rbac *r);

/* A user's rules in ns ("": those of the whole cluster only), one by one until fn returns false.
 * subject: the "U<name>" or "G<name>" that the binding names. */
typedef bool (*rbac_rule_fn)(void *arg, const struct rbac_binding *b, const char *subject,
			     const struct rbac_rule *rule);
void rbac_each_rule(struct rbac *r, const struct apisrv_user *u, const char *ns, rbac_rule_fn fn,
		    void *arg);
/* Also of a rule's own words, as one role's rules are compared with a user's: "*" as a verb, group or
 * resource is only matched by "*". */
bool rbac_rule_allows(const struct rbac_rule *rule, const struct authz_ask *ask);

/* Which binding allowed it; borrowed until the loop goes on. */
struct rbac_grant {
	const struct rbac_binding *binding; /* NULL: none does */
	const char *subject;
};
bool rbac_allows(struct rbac *r, const struct apisrv_user *u, const struct authz_ask *ask,
		 struct rbac_grant *why);

/* Kind strategies (rbac_check.c). */
MUST_CHECK enum rc rbac_prepare(struct change *ch, struct err *err);
void rbac_validate(struct change *ch);
/* May the caller give the rights that this role or binding gives?  For creations and updates that were
 * admitted.  False: answered. */
bool rbac_may_grant(struct change *ch);

/* rbac_aggregate.c: rules of ClusterRoles that gather others are written anew when one of those changed. */
void rbac_aggregate_poke(struct apisrv *s);
/* rbac_bootstrap.c: makes the standard roles and bindings, and mends those that lack something. */
MUST_CHECK enum rc rbac_bootstrap(struct apisrv *s, struct err *err);

#endif
