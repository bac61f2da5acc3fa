#include "api/meta.h"

#include <string.h>

#include "api/api_int.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"

bool api_has_finalizer(const ObjectMeta *m, const char *finalizer)
{
	for (size_t i = 0; i < m->n_finalizers; i++)
		if (str_eq(m->finalizers[i], finalizer))
			return true;
	return false;
}

enum rc api_add_finalizer(ObjectMeta *m, const char *finalizer)
{
	if (api_has_finalizer(m, finalizer))
		return RC_OK;
	return api_append_str(&m->finalizers, &m->n_finalizers, finalizer);
}

bool api_del_finalizer(ObjectMeta *m, const char *finalizer)
{
	for (size_t i = 0; i < m->n_finalizers; i++) {
		if (!str_eq(m->finalizers[i], finalizer))
			continue;
		mem_free(m->finalizers[i]);
		memmove(&m->finalizers[i], &m->finalizers[i + 1],
			(m->n_finalizers - i - 1) * sizeof(char *));
		m->n_finalizers--;
		return true;
	}
	return false;
}

const OwnerReference *api_controller_of(const ObjectMeta *m)
{
	for (size_t i = 0; i < m->n_ownerReferences; i++)
		if (API_GET(&m->ownerReferences[i], controller, false))
			return &m->ownerReferences[i];
	return NULL;
}

bool api_is_owned_by(const ObjectMeta *m, const char *uid)
{
	for (size_t i = 0; uid && i < m->n_ownerReferences; i++)
		if (str_eq(m->ownerReferences[i].uid, uid))
			return true;
	return false;
}

enum rc api_add_owner(ObjectMeta *m, const struct api_kind *kind, const ObjectMeta *owner,
		      bool is_controller, bool blocks_deletion)
{
	OwnerReference *o = NULL;

	for (size_t i = 0; i < m->n_ownerReferences; i++)
		if (str_eq(m->ownerReferences[i].uid, owner->uid))
			o = &m->ownerReferences[i];
	if (!o)
		o = api_append(&m->ownerReferences, &m->n_ownerReferences, sizeof(*o));
	if (!o)
		return RC_NOMEM;
	enum rc rc = api_set_str(&o->apiVersion, kind->api_version);

	if (!rc)
		rc = api_set_str(&o->kind, kind->kind);
	if (!rc)
		rc = api_set_str(&o->name, owner->name);
	if (!rc)
		rc = api_set_str(&o->uid, owner->uid);
	o->has_controller = is_controller;
	o->controller = is_controller;
	o->has_blockOwnerDeletion = blocks_deletion;
	o->blockOwnerDeletion = blocks_deletion;
	return rc;
}

/* The text field `name` of a condition of type t; NULL when t has none. */
static char **cond_text(const struct api_type *t, void *item, const char *name)
{
	const struct api_field *f = api_field_find(t, name);

	return f && f->base == API_STRING ? api_at(item, f->offset) : NULL;
}

static const char *cond_get_text(const struct api_type *t, const void *item, const char *name)
{
	const struct api_field *f = api_field_find(t, name);

	return f && f->base == API_STRING ? *(char *const *)api_at_const(item, f->offset) : NULL;
}

static size_t cond_find(const struct api_type *t, const void *list, size_t n, const char *type)
{
	for (size_t i = 0; i < n; i++)
		if (str_eq(cond_get_text(t, (const char *)list + i * t->size, "type"), type))
			return i;
	return n;
}

static enum rc cond_put(const struct api_type *t, void *item, const char *name, const char *value,
			bool *changed)
{
	char **at = cond_text(t, item, name);

	if (!at || str_eq(*at, value))
		return RC_OK;
	*changed = true;
	return api_set_str(at, value);
}

enum rc api_cond_set(const struct api_type *t, void *list, uint32_t *n, const struct api_cond *c,
		     usec_t now, bool *changed)
{
	size_t i = cond_find(t, *(void **)list, *n, c->type);
	bool differs = false, moved = false;
	char stamp[32];
	void *item;
	enum rc rc;

	if (i == *n && !api_append(list, n, t->size))
		return RC_NOMEM;
	item = *(char **)list + i * t->size;
	rc = cond_put(t, item, "type", c->type, &differs);
	if (!rc)
		rc = cond_put(t, item, "status", c->status, &moved);
	if (!rc)
		rc = cond_put(t, item, "reason", c->reason, &differs);
	if (!rc)
		rc = cond_put(t, item, "message", c->message, &differs);
	if (!rc && moved) {
		time_rfc3339(now, stamp);
		rc = cond_put(t, item, "lastTransitionTime", stamp, &differs);
	}
	if (!rc && changed)
		*changed = differs || moved;
	return rc;
}

bool api_cond_get(const struct api_type *t, const void *list, size_t n, const char *type,
		  struct api_cond *out)
{
	size_t i = cond_find(t, list, n, type);
	const void *item = (const char *)list + i * t->size;

	if (i == n)
		return false;
	*out = (struct api_cond){
		.type = cond_get_text(t, item, "type"),
		.status = cond_get_text(t, item, "status"),
		.reason = cond_get_text(t, item, "reason"),
		.message = cond_get_text(t, item, "message"),
	};
	return true;
}

bool api_cond_is(const struct api_type *t, const void *list, size_t n, const char *type,
		 const char *status)
{
	struct api_cond c;

	return api_cond_get(t, list, n, type, &c) && str_eq(c.status, status);
}

bool api_cond_del(const struct api_type *t, void *list, uint32_t *n, const char *type)
{
	size_t i = cond_find(t, *(void **)list, *n, type);

	if (i == *n)
		return false;
	api_remove(t, list, n, i);
	return true;
}

static bool is_alnum(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* [A-Za-z0-9] at both ends, [-_.A-Za-z0-9] between, 1 to 63 characters. */
static bool is_name_part(struct str s)
{
	if (!s.n || s.n > 63 || !is_alnum(s.p[0]) || !is_alnum(s.p[s.n - 1]))
		return false;
	for (size_t i = 0; i < s.n; i++)
		if (!is_alnum(s.p[i]) && s.p[i] != '-' && s.p[i] != '_' && s.p[i] != '.')
			return false;
	return true;
}

bool api_is_qualified_name(const char *s)
{
	const char *slash = s ? strchr(s, '/') : NULL;
	char prefix[254];

	if (!s)
		return false;
	if (!slash)
		return is_name_part(str_of(s));
	size_t n = (size_t)(slash - s);

	if (n >= sizeof(prefix))
		return false;
	memcpy(prefix, s, n);
	prefix[n] = '\0';
	return str_is_dns_subdomain(prefix) && is_name_part(str_of(slash + 1));
}

bool api_is_label_value(const char *s)
{
	return s && (!*s || is_name_part(str_of(s)));
}
