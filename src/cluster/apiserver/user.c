/* Who asks: copies of users, and asking as somebody else (kubectl --as). */
#include "cluster/apiserver/apisrv_int.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"

#define SA_PREFIX "system:serviceaccount:"
#define ANONYMOUS "system:anonymous"

/* ---- copies ---------------------------------------------------------------------------------------- */

static void list_fini(const char *const *list, size_t n)
{
	for (size_t i = 0; list && i < n; i++)
		mem_free((void *)(uintptr_t)list[i]);
	mem_free((void *)(uintptr_t)list);
}

/* *n counts what is there, also on failure. */
static const char *const *list_copy(const char *const *from, size_t n_from, size_t *n)
{
	const char **list = mem_calloc(n_from + 1, sizeof(*list));

	for (*n = 0; list && *n < n_from; (*n)++) {
		list[*n] = mem_strdup(from[*n]);
		if (!list[*n])
			break;
	}
	return list;
}

static enum rc extra_copy(struct apisrv_user *to, const struct apisrv_user *from)
{
	struct apisrv_extra *list = from->n_extra ? mem_calloc(from->n_extra, sizeof(*list)) : NULL;

	to->extra = list;
	if (from->n_extra && !list)
		return RC_NOMEM;
	for (size_t i = 0; i < from->n_extra; i++) {
		struct apisrv_extra *x = &list[to->n_extra++];

		x->key = mem_strdup(from->extra[i].key);
		x->values = list_copy(from->extra[i].values, from->extra[i].n, &x->n);
		if (!x->key || !x->values || x->n < from->extra[i].n)
			return RC_NOMEM;
	}
	return RC_OK;
}

enum rc user_copy(struct apisrv_user *to, const struct apisrv_user *from)
{
	*to = (struct apisrv_user){.name = mem_strdup(from->name), .uid = mem_strdup(from->uid)};
	to->groups = list_copy(from->groups, from->n_groups, &to->n_groups);
	if (!to->name || (from->uid && !to->uid) || !to->groups || to->n_groups < from->n_groups)
		return RC_NOMEM;
	return extra_copy(to, from);
}

void user_fini(struct apisrv_user *u)
{
	list_fini(u->groups, u->n_groups);
	for (size_t i = 0; i < u->n_extra; i++) {
		mem_free((void *)(uintptr_t)u->extra[i].key);
		list_fini(u->extra[i].values, u->extra[i].n);
	}
	mem_free((void *)(uintptr_t)u->extra);
	mem_free((void *)(uintptr_t)u->uid);
	mem_free((void *)(uintptr_t)u->name);
	*u = (struct apisrv_user){.name = NULL};
}

/* ---- impersonation --------------------------------------------------------------------------------- */

static bool may_be(struct apisrv_call *c, const struct authz_ask *ask)
{
	if (authz_allows(c->srv, &c->user, ask, NULL))
		return true;
	audit_judged(c, false, NULL);
	if (!rbac_is_ready(c->srv->rbac)) {
		call_nomem(c);
		return false;
	}
	char where[320] = "at the cluster scope";

	if (*ask->ns)
		snprintf(where, sizeof(where), "in the namespace \"%.253s\"", ask->ns);
	call_fail(
		c, 403, "Forbidden",
		js_pack("{s:s, s:s*, s:s}", "name", ask->name, "group",
			*ask->group ? ask->group : NULL, "kind", ask->plural),
		"%s%s%s \"%s\" is forbidden: User \"%s\" cannot impersonate resource \"%s%s%s\" in "
		"API group \"%s\" %s",
		ask->plural, *ask->group ? "." : "", ask->group, ask->name, c->user.name,
		ask->plural, *ask->sub ? "/" : "", ask->sub, ask->group, where);
	return false;
}

/* A service account is asked for as such: "system:serviceaccount:NAMESPACE:NAME". */
static bool may_be_user(struct apisrv_call *c, const char *name)
{
	struct authz_ask ask = {.verb = "impersonate",
				.group = "",
				.plural = "users",
				.sub = "",
				.ns = "",
				.name = name};
	const char *colon =
		str_has_prefix(name, SA_PREFIX) ? strchr(name + sizeof(SA_PREFIX) - 1, ':') : NULL;

	if (!colon || !colon[1] || strchr(colon + 1, ':'))
		return may_be(c, &ask);
	const char *ns = name + sizeof(SA_PREFIX) - 1;
	CLEANUP(mem_freep) char *copy = mem_strndup(ns, (size_t)(colon - ns));

	if (!copy) {
		call_nomem(c);
		return false;
	}
	ask.plural = "serviceaccounts";
	ask.ns = copy;
	ask.name = colon + 1;
	return may_be(c, &ask);
}

static bool may_have(struct apisrv_call *c, const char *plural, const char *sub, const char *name)
{
	const struct authz_ask ask = {
		.verb = "impersonate",
		.group = strcmp(plural, "groups") == 0 ? "" : "authentication.k8s.io",
		.plural = plural,
		.sub = sub,
		.ns = "",
		.name = name};

	return may_be(c, &ask);
}

static bool may_be_all(struct apisrv_call *c, const struct apisrv_user *as)
{
	if (!may_be_user(c, as->name))
		return false;
	for (size_t i = 0; i < as->n_groups; i++)
		if (!may_have(c, "groups", "", as->groups[i]))
			return false;
	for (size_t i = 0; i < as->n_extra; i++)
		for (size_t k = 0; k < as->extra[i].n; k++)
			if (!may_have(c, "userextras", as->extra[i].key, as->extra[i].values[k]))
				return false;
	return !as->uid || may_have(c, "uids", "", as->uid);
}

enum { STANDARD_GROUPS = 3 };

/* Groups that everybody of his kind has, asked for or not. */
static size_t standard_groups(const struct apisrv_user *as, char *sa_group, size_t size,
			      const char *out[STANDARD_GROUPS])
{
	size_t n = 0;

	if (!as->n_groups && str_has_prefix(as->name, SA_PREFIX)) {
		const char *ns = as->name + sizeof(SA_PREFIX) - 1;

		snprintf(sa_group, size, "system:serviceaccounts:%.*s",
			 (int)MIN(strcspn(ns, ":"), (size_t)63), ns);
		out[n++] = "system:serviceaccounts";
		out[n++] = sa_group;
	}
	const char *last = strcmp(as->name, ANONYMOUS) == 0 ? "system:unauthenticated"
							    : "system:authenticated";

	if (!apisrv_user_in_group(as, last))
		out[n++] = last;
	return n;
}

static enum rc become(struct apisrv_call *c, const struct apisrv_user *as)
{
	struct apisrv_user full = *as, now = {.name = NULL};
	const char *more[STANDARD_GROUPS];
	char sa_group[96];
	size_t n = standard_groups(as, sa_group, sizeof(sa_group), more);
	const char **groups = mem_calloc(as->n_groups + n + 1, sizeof(*groups));

	if (!groups)
		return RC_NOMEM;
	for (size_t i = 0; i < as->n_groups; i++)
		groups[i] = as->groups[i];
	for (size_t i = 0; i < n; i++)
		groups[as->n_groups + i] = more[i];
	full.groups = groups;
	full.n_groups = as->n_groups + n;
	enum rc rc = user_copy(&now, &full);

	mem_free(groups);
	if (rc) {
		user_fini(&now);
		return rc;
	}
	c->by = c->user;
	c->user = now;
	return RC_OK;
}

bool impersonate(struct apisrv_call *c, const struct apisrv_user *as)
{
	if (str_is_empty(as->name)) {
		call_bad_request(
			c,
			"groups, uid and extra fields of a user can only be impersonated together with "
			"his name");
		return false;
	}
	if (!may_be_all(c, as))
		return false;
	if (!become(c, as))
		return true;
	call_nomem(c);
	return false;
}
