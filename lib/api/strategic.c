/* lib/api/strategic.c - Kubernetes' strategic merge patch.
 *
 * Objects merge key by key, null deletes.  A list of objects whose field has a merge key merges item
 * by item on that key; a list of plain values whose field says "merge" becomes the union; every other
 * list is replaced.  Directives in the patch:
 *   $patch: replace | delete | merge	on an object or on a list item
 *   $retainKeys: [k...]		drop all other keys of the object
 *   $setElementOrder/f: [...]		order of the merged list f
 *   $deleteFromPrimitiveList/f: [...]	values to drop from the list f
 */
#include <string.h>

#include "api/patch.h"
#include "base/str.h"

#define ORDER	    "$setElementOrder/"
#define DELETE_FROM "$deleteFromPrimitiveList/"

static enum rc merge_object(const struct api_type *t, const struct json *doc,
			    const struct json *patch, struct json **out, struct err *err);

static enum rc no_memory(struct err *err)
{
	return err_set(err, RC_NOMEM, "out of memory while patching");
}

static bool is_directive(const char *key)
{
	return str_eq(key, "$patch") || str_eq(key, "$retainKeys") || str_has_prefix(key, ORDER) ||
	       str_has_prefix(key, DELETE_FROM);
}

static bool holds(const struct json *list, const struct json *value)
{
	for (size_t i = 0; i < js_len(list); i++)
		if (js_equal(js_item(list, i), value))
			return true;
	return false;
}

static bool holds_text(const struct json *list, const char *text)
{
	for (size_t i = 0; i < js_len(list); i++)
		if (str_eq(js_str(js_item(list, i)), text))
			return true;
	return false;
}

/* ---- lists ---- */

struct list_merge {
	const struct api_field *field;
	const char *key; /* merge key; NULL: plain values */
	const struct json *doc, *patch, *order, *drop;
	struct err *err;
};

/* What identifies an item: the value of its merge key, or itself. */
static const struct json *identity(const struct list_merge *m, const struct json *item)
{
	return m->key ? js_get(item, m->key) : item;
}

static size_t find_item(const struct list_merge *m, const struct json *list, const struct json *id)
{
	for (size_t i = 0; i < js_len(list); i++)
		if (js_equal(identity(m, js_item(list, i)), id))
			return i;
	return SIZE_MAX;
}

static size_t find_in_order(const struct list_merge *m, const struct json *id)
{
	for (size_t i = 0; i < js_len(m->order); i++) {
		const struct json *o = js_item(m->order, i);

		if (js_equal(m->key && js_is_object(o) ? js_get(o, m->key) : o, id))
			return i;
	}
	return SIZE_MAX;
}

static const char *directive_of(const struct json *item)
{
	return js_get_str(item, "$patch");
}

/* One item of the patch into the merged list. */
static enum rc merge_item(const struct list_merge *m, const struct json *item, struct json *list)
{
	const struct json *id = identity(m, item);
	struct json *v = NULL;
	enum rc rc;

	if (js_is_null(id))
		return err_set(m->err, RC_BAD_REQUEST, "an item of '%s' lacks its merge key '%s'",
			       m->field->name, m->key ? m->key : "");
	size_t at = find_item(m, list, id);
	const char *directive = m->key ? directive_of(item) : NULL;

	if (directive && str_eq(directive, "delete")) {
		if (at != SIZE_MAX)
			js_del_item(list, at);
		return RC_OK;
	}
	if (!m->key) {
		if (at != SIZE_MAX)
			return RC_OK;
		v = js_ref(item);
	} else {
		rc = merge_object(m->field->type, at == SIZE_MAX ? NULL : js_item(list, at), item,
				  &v, m->err);
		if (rc)
			return rc;
	}
	rc = at == SIZE_MAX ? js_append(list, v) : js_replace_item(list, at, v);
	return rc ? no_memory(m->err) : RC_OK;
}

static bool replaces_all(const struct list_merge *m)
{
	for (size_t i = 0; m->key && i < js_len(m->patch); i++)
		if (str_eq(directive_of(js_item(m->patch, i)), "replace"))
			return true;
	return false;
}

/* The next item of list from *at on that is (or is not) named in the wanted order. */
static const struct json *next_item(const struct list_merge *m, const struct json *list, size_t *at,
				    bool is_named)
{
	for (; *at < js_len(list); (*at)++) {
		const struct json *item = js_item(list, *at);

		if ((find_in_order(m, identity(m, item)) != SIZE_MAX) == is_named)
			return item;
	}
	return NULL;
}

/* The named items stand in the wanted order; each other item stays before the named ones that
 * followed it in the stored list. */
static enum rc reorder(const struct list_merge *m, const struct json *merged, struct json **out)
{
	CLEANUP(js_unrefp) struct json *to = js_new_array();
	size_t other = 0, n_order = js_len(m->order);
	enum rc rc = to ? RC_OK : RC_NOMEM;

	for (size_t i = 0; !rc && i < n_order; i++) {
		const struct json *o = js_item(m->order, i);
		const struct json *id = m->key && js_is_object(o) ? js_get(o, m->key) : o;
		size_t at = find_item(m, merged, id), stored = find_item(m, m->doc, id);
		const struct json *rest;

		if (at == SIZE_MAX || find_item(m, to, id) != SIZE_MAX)
			continue;
		while (!rc && stored != SIZE_MAX && (rest = next_item(m, merged, &other, false)) &&
		       find_item(m, m->doc, identity(m, rest)) < stored) {
			rc = js_append(to, js_ref(rest));
			other++;
		}
		if (!rc)
			rc = js_append(to, js_ref(js_item(merged, at)));
	}
	for (const struct json *rest; !rc && (rest = next_item(m, merged, &other, false)); other++)
		rc = js_append(to, js_ref(rest));
	if (rc)
		return no_memory(m->err);
	*out = STEAL(to);
	return RC_OK;
}

static enum rc merge_list(const struct list_merge *m, struct json **out)
{
	CLEANUP(js_unrefp) struct json *list = js_new_array();
	bool fresh = replaces_all(m);

	if (!list)
		return no_memory(m->err);
	for (size_t i = 0; !fresh && i < js_len(m->doc); i++) {
		const struct json *item = js_item(m->doc, i);

		if (!holds(m->drop, item) && js_append(list, js_ref(item)))
			return no_memory(m->err);
	}
	for (size_t i = 0; i < js_len(m->patch); i++) {
		const struct json *item = js_item(m->patch, i);

		if (fresh && str_eq(directive_of(item), "replace"))
			continue; /* the marker itself */
		enum rc rc = merge_item(m, item, list);

		if (rc)
			return rc;
	}
	if (m->order)
		return reorder(m, list, out);
	*out = STEAL(list);
	return RC_OK;
}

/* ---- objects ---- */

static bool merges(const struct api_field *f)
{
	return f && f->is_list && (f->rule->merge_key || f->rule->merge == API_MERGE_MERGE);
}

/* The directive `prefix` for the list f; NULL: none. */
static const struct json *list_directive(const struct json *patch, const char *prefix,
					 const struct api_field *f)
{
	JS_FOREACH(it, patch)
		if (str_has_prefix(it.key, prefix) && str_eq(it.key + strlen(prefix), f->name))
			return it.value;
	return NULL;
}

static enum rc merge_value(const struct api_field *f, const struct json *doc,
			   const struct json *patch, const struct json *all, struct json **out,
			   struct err *err)
{
	if (js_is_object(patch)) {
		if (f && f->rule->merge == API_MERGE_REPLACE)
			doc = NULL;
		return merge_object(f && f->base == API_STRUCT ? f->type : NULL,
				    js_is_object(doc) ? doc : NULL, patch, out, err);
	}
	if (!js_is_array(patch) || !f || !merges(f)) {
		*out = js_ref(patch);
		return RC_OK;
	}
	struct list_merge m = {.field = f,
			       .key = f->rule->merge_key,
			       .doc = doc,
			       .patch = patch,
			       .order = list_directive(all, ORDER, f),
			       .drop = list_directive(all, DELETE_FROM, f),
			       .err = err};

	return merge_list(&m, out);
}

/* Lists that only a directive names: order or deletions without new items. */
static enum rc apply_list_directives(const struct api_type *t, const struct json *doc,
				     const struct json *patch, struct json *to, struct err *err)
{
	CLEANUP(js_unrefp) struct json *none = js_new_array();

	if (!none)
		return no_memory(err);
	JS_FOREACH(it, patch) {
		const char *name = str_has_prefix(it.key, ORDER) ? it.key + strlen(ORDER)
				   : str_has_prefix(it.key, DELETE_FROM)
					   ? it.key + strlen(DELETE_FROM)
					   : NULL;
		const struct api_field *f = name && t ? api_field_find(t, name) : NULL;
		struct json *v = NULL;

		if (!name || js_get(patch, name) || !js_is_array(js_get(doc, name)))
			continue;
		if (!merges(f))
			return err_set(err, RC_BAD_REQUEST,
				       "'%.100s': the list '%.100s' does not merge", it.key, name);
		enum rc rc = merge_value(f, js_get(to, name), none, patch, &v, err);

		if (rc)
			return rc;
		if (js_set(to, name, v))
			return no_memory(err);
	}
	return RC_OK;
}

/* What stays of doc before the patch's keys are looked at. */
static enum rc copy_kept(const struct json *doc, const struct json *patch, struct json *to)
{
	const struct json *retain = js_get(patch, "$retainKeys");

	JS_FOREACH(it, doc) {
		const struct json *p = js_get(patch, it.key);

		if ((retain && !holds_text(retain, it.key)) || (p && js_is_null(p)))
			continue;
		if (js_set(to, it.key, js_ref(it.value)))
			return RC_NOMEM;
	}
	return RC_OK;
}

static enum rc check_directive(const char *directive, struct err *err)
{
	if (!directive || str_eq(directive, "replace") || str_eq(directive, "delete") ||
	    str_eq(directive, "merge"))
		return RC_OK;
	return err_set(err, RC_BAD_REQUEST, "unknown patch directive '%.40s'", directive);
}

static enum rc merge_object(const struct api_type *t, const struct json *doc,
			    const struct json *patch, struct json **out, struct err *err)
{
	CLEANUP(js_unrefp) struct json *to = js_new_object();
	const char *directive = directive_of(patch);
	enum rc rc = check_directive(directive, err);

	if (rc)
		return rc;
	if (!to)
		return no_memory(err);
	if (str_eq(directive, "replace") || str_eq(directive, "delete"))
		doc = NULL;
	if (copy_kept(doc, patch, to))
		return no_memory(err);
	JS_FOREACH(it, patch) {
		struct json *v = NULL;

		if (is_directive(it.key) || js_is_null(it.value) || str_eq(directive, "delete"))
			continue;
		rc = merge_value(t ? api_field_find(t, it.key) : NULL, js_get(doc, it.key),
				 it.value, patch, &v, err);
		if (rc)
			return rc;
		if (js_set(to, it.key, v))
			return no_memory(err);
	}
	rc = apply_list_directives(t, doc, patch, to, err);
	if (rc)
		return rc;
	*out = STEAL(to);
	return RC_OK;
}

enum rc api_patch_strategic(const struct api_type *t, const struct json *doc,
			    const struct json *patch, struct json **out, struct err *err)
{
	if (!js_is_object(patch))
		return err_set(err, RC_BAD_REQUEST, "a strategic merge patch must be an object");
	return merge_object(t, doc, patch, out, err);
}
