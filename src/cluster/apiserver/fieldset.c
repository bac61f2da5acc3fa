#include "cluster/apiserver/fieldset.h"

#include <string.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"

/* ---- what the schema says of a value ------------------------------------------------------------ */

enum shape { LEAF, FIELDS, ITEMS, VALUES };

/* A value's place in the schema.  type NULL: free-form, where objects go by key and lists are whole. */
struct place {
	const struct api_type *type; /* of the value, or of its items, when they are structs */
	const struct api_rule *rule; /* of a list */
	bool is_list;
};

static struct place place_of(const struct place *parent, const char *key)
{
	const struct api_field *f = parent->type ? api_field_find(parent->type, key) : NULL;

	if (!f)
		return (struct place){0};
	return (struct place){
		.type = f->base == API_STRUCT || (f->base == API_JSON && f->is_json_map) ? f->type
											 : NULL,
		.rule = f->rule,
		.is_list = f->is_list,
	};
}

static enum shape shape_of(const struct place *p, const struct json *v)
{
	if (js_is_object(v))
		return FIELDS;
	if (!js_is_array(v) || !p->is_list || !p->rule)
		return LEAF;
	if (p->rule->list == API_LIST_MAP && p->rule->list_keys)
		return ITEMS;
	return p->rule->list == API_LIST_SET ? VALUES : LEAF;
}

static struct place item_place(const struct place *list)
{
	return (struct place){.type = list->type};
}

/* `k:{"port":80,"protocol":"TCP"}`; key fields that are absent have the schema's default. */
static char *item_key(const struct place *list, const struct json *item)
{
	CLEANUP(js_unrefp) struct json *key = js_new_object();
	const char *const *names = list->rule->list_keys;

	for (; key && *names; names++) {
		struct json *v = js_ref(js_get(item, *names));
		const struct api_field *f = list->type ? api_field_find(list->type, *names) : NULL;

		if (!v && f && f->rule->default_ &&
		    js_parse(f->rule->default_, strlen(f->rule->default_), &v, NULL))
			return NULL;
		if (v && js_set(key, *names, v))
			return NULL;
	}
	struct sbuf b = SBUF_INIT(LIMIT_OBJECT_BYTES);
	char *text = NULL;

	sbuf_adds(&b, "k:");
	js_print(key, &b, true);
	if (!key || sbuf_take(&b, &text, NULL)) {
		sbuf_fini(&b);
		return NULL;
	}
	return text;
}

static char *value_key(const struct json *v)
{
	CLEANUP(mem_freep) char *text = js_to_text(v);

	return text ? mem_printf("v:%s", text) : NULL;
}

/* The item of a list that has this key; *i is its index. */
static struct json *find_item(const struct place *list, const struct json *arr, const char *key,
			      size_t *i)
{
	enum shape shape = shape_of(list, arr);
	bool by_value = str_has_prefix(key, "v:");

	/* A set that was stored under another schema: the list had keys then, or has them only now. */
	if (shape != (by_value ? VALUES : ITEMS))
		return NULL;
	for (size_t k = 0; k < js_len(arr); k++) {
		struct json *item = js_item(arr, k);
		CLEANUP(mem_freep) char *have = by_value ? value_key(item) : item_key(list, item);

		if (str_eq(have, key)) {
			*i = k;
			return item;
		}
	}
	return NULL;
}

/* ---- sets of a value ------------------------------------------------------------------------------- */

static struct json *set_of(const struct place *p, const struct json *v);

static enum rc add_child(struct json *set, const char *key, struct json *child)
{
	return key ? js_set(set, key, child) : (js_unref(child), RC_NOMEM);
}

static enum rc add_field(struct json *set, const struct place *p, const char *name,
			 const struct json *v)
{
	struct place child = place_of(p, name);
	CLEANUP(mem_freep) char *key = mem_printf("f:%s", name);

	return add_child(set, key, set_of(&child, v));
}

static enum rc add_item(struct json *set, const struct place *list, const struct json *item)
{
	struct place child = item_place(list);
	CLEANUP(mem_freep) char *key = item_key(list, item);
	struct json *sub = set_of(&child, item);

	if (sub && js_set(sub, ".", js_new_object()))
		sub = js_unref(sub);
	return add_child(set, key, sub);
}

static struct json *set_of(const struct place *p, const struct json *v)
{
	CLEANUP(js_unrefp) struct json *set = js_new_object();
	enum shape shape = shape_of(p, v);
	enum rc rc = set ? RC_OK : RC_NOMEM;

	if (shape == FIELDS) {
		JS_FOREACH(it, v)
			if (!rc)
				rc = add_field(set, p, it.key, it.value);
	}
	for (size_t i = 0; i < js_len(v) && !rc && (shape == ITEMS || shape == VALUES); i++) {
		if (shape == ITEMS) {
			rc = add_item(set, p, js_item(v, i));
		} else {
			CLEANUP(mem_freep) char *key = value_key(js_item(v, i));

			rc = add_child(set, key, js_new_object());
		}
	}
	return rc ? NULL : STEAL(set);
}

struct json *fieldset_of(const struct api_kind *k, const struct json *obj)
{
	static const char *const given[] = {
		"f:name",	  "f:namespace",	 "f:uid",
		"f:generation",	  "f:resourceVersion",	 "f:creationTimestamp",
		"f:selfLink",	  "f:deletionTimestamp", "f:deletionGracePeriodSeconds",
		"f:managedFields"};
	struct place p = {.type = k->type};
	struct json *set = set_of(&p, obj);
	struct json *meta = js_get(set, "f:metadata");

	js_del(set, "f:apiVersion");
	js_del(set, "f:kind");
	for (size_t i = 0; i < ARRAY_SIZE(given); i++)
		if (meta)
			js_del(meta, given[i]);
	if (meta && !js_len(meta))
		js_del(set, "f:metadata");
	return set;
}

/* ---- algebra ------------------------------------------------------------------------------------------ */

/* Is the node itself a member (not only what is below it)? */
static bool is_member(const struct json *node)
{
	return node && (!js_len(node) || js_get(node, "."));
}

bool fieldset_is_empty(const struct json *a)
{
	return !js_len(a);
}

/* Marks a node that has got its children; a node without any is a member by being empty. */
static enum rc mark(struct json *node, bool member)
{
	return member && js_len(node) ? js_set(node, ".", js_new_object()) : RC_OK;
}

static struct json *node_union(const struct json *a, const struct json *b)
{
	CLEANUP(js_unrefp) struct json *out = js_new_object();
	enum rc rc = out ? RC_OK : RC_NOMEM;

	JS_FOREACH(it, a) {
		const struct json *other = js_get(b, it.key);

		if (!rc && strcmp(it.key, ".") != 0)
			rc = js_set(out, it.key,
				    other ? node_union(it.value, other) : js_copy(it.value));
	}
	JS_FOREACH(it, b)
		if (!rc && strcmp(it.key, ".") != 0 && !js_get(a, it.key))
			rc = js_set(out, it.key, js_copy(it.value));
	if (!rc)
		rc = mark(out, is_member(a) || is_member(b));
	return rc ? NULL : STEAL(out);
}

struct json *fieldset_union(const struct json *a, const struct json *b)
{
	if (fieldset_is_empty(a))
		return b ? js_copy(b) : js_new_object();
	return fieldset_is_empty(b) ? js_copy(a) : node_union(a, b);
}

/* *out is NULL when nothing is left.  The root is never a member. */
static enum rc node_pick(const struct json *a, const struct json *b, bool both, struct json **out)
{
	CLEANUP(js_unrefp) struct json *node = js_new_object();
	enum rc rc = node ? RC_OK : RC_NOMEM;
	bool member = is_member(a) && (both ? is_member(b) : !is_member(b));

	*out = NULL;
	JS_FOREACH(it, a) {
		const struct json *other = js_get(b, it.key);
		struct json *sub = NULL;

		if (rc || strcmp(it.key, ".") == 0)
			continue;
		if (other)
			rc = node_pick(it.value, other, both, &sub);
		else if (!both && !(sub = js_copy(it.value)))
			rc = RC_NOMEM;
		if (!rc && sub)
			rc = js_set(node, it.key, sub);
	}
	if (!rc)
		rc = mark(node, member);
	if (!rc && (member || js_len(node)))
		*out = STEAL(node);
	return rc;
}

static struct json *pick(const struct json *a, const struct json *b, bool both)
{
	struct json *out = NULL;

	if (fieldset_is_empty(a) || (both && fieldset_is_empty(b)))
		return js_new_object();
	if (fieldset_is_empty(b))
		return js_copy(a);
	if (node_pick(a, b, both, &out))
		return NULL;
	return out ? out : js_new_object();
}

struct json *fieldset_subtract(const struct json *a, const struct json *b)
{
	return pick(a, b, false);
}

struct json *fieldset_intersect(const struct json *a, const struct json *b)
{
	return pick(a, b, true);
}

/* ---- sets and objects ----------------------------------------------------------------------------------- */

/* The value that a set's key names inside v, and its place. */
static struct json *step(const struct place *p, const struct json *v, const char *key,
			 struct place *child, size_t *index)
{
	if (str_has_prefix(key, "f:")) {
		*child = place_of(p, key + 2);
		return js_get(v, key + 2);
	}
	*child = item_place(p);
	return find_item(p, v, key, index);
}

/* *out is NULL when nothing differs. */
static enum rc node_differing(const struct place *p, const struct json *a, const struct json *b,
			      const struct json *set, struct json **out)
{
	CLEANUP(js_unrefp) struct json *node = js_new_object();
	enum rc rc = node ? RC_OK : RC_NOMEM;

	*out = NULL;
	JS_FOREACH(it, set) {
		struct place child;
		struct json *sub = NULL;
		size_t i;

		if (rc || strcmp(it.key, ".") == 0)
			continue;
		const struct json *x = step(p, a, it.key, &child, &i),
				  *y = step(p, b, it.key, &child, &i);

		if (js_len(it.value))
			rc = node_differing(&child, x, y, it.value, &sub);
		else if (!(x == y || (x && y && js_equal(x, y))) && !(sub = js_new_object()))
			rc = RC_NOMEM;
		if (!rc && sub)
			rc = js_set(node, it.key, sub);
	}
	if (!rc && js_len(node))
		*out = STEAL(node);
	return rc;
}

struct json *fieldset_differing(const struct api_kind *k, const struct json *a,
				const struct json *b, const struct json *set)
{
	struct place p = {.type = k->type};
	struct json *out = NULL;

	if (node_differing(&p, a, b, set, &out))
		return NULL;
	return out ? out : js_new_object();
}

static struct json *merge(const struct place *p, const struct json *live,
			  const struct json *config);

static struct json *merge_fields(const struct place *p, const struct json *live,
				 const struct json *config)
{
	CLEANUP(js_unrefp) struct json *out = js_is_object(live) ? js_copy(live) : js_new_object();
	enum rc rc = out ? RC_OK : RC_NOMEM;

	JS_FOREACH(it, config) {
		struct place child = place_of(p, it.key);

		if (!rc)
			rc = js_set(out, it.key, merge(&child, js_get(live, it.key), it.value));
	}
	return rc ? NULL : STEAL(out);
}

/* Items stay where they are; new ones follow in the order of config. */
static struct json *merge_list(const struct place *p, enum shape shape, const struct json *live,
			       const struct json *config)
{
	CLEANUP(js_unrefp) struct json *out = js_is_array(live) ? js_copy(live) : js_new_array();
	struct place child = item_place(p);
	enum rc rc = out ? RC_OK : RC_NOMEM;

	for (size_t i = 0; i < js_len(config) && !rc; i++) {
		const struct json *item = js_item(config, i);
		CLEANUP(mem_freep) char *key = shape == ITEMS ? item_key(p, item) : value_key(item);
		size_t at = 0;

		if (!key)
			return NULL;
		const struct json *have = find_item(p, out, key, &at);

		if (!have)
			rc = js_append(out, js_copy(item));
		else if (shape == ITEMS)
			rc = js_replace_item(out, at, merge(&child, have, item));
	}
	return rc ? NULL : STEAL(out);
}

static struct json *merge(const struct place *p, const struct json *live, const struct json *config)
{
	enum shape shape = shape_of(p, config);

	if (shape == FIELDS)
		return merge_fields(p, live, config);
	if (shape == LEAF)
		return js_copy(config);
	return merge_list(p, shape, live, config);
}

struct json *fieldset_merge(const struct api_kind *k, const struct json *live,
			    const struct json *config)
{
	struct place p = {.type = k->type};

	return merge(&p, live, config);
}

static void remove_at(struct json *v, const char *key, size_t i)
{
	if (str_has_prefix(key, "f:"))
		js_del(v, key + 2);
	else
		js_del_item(v, i);
}

static enum rc node_remove(const struct place *p, struct json *v, const struct json *set,
			   const struct json *keep)
{
	enum rc rc = RC_OK;

	JS_FOREACH(it, set) {
		struct place child;
		size_t i = 0;

		if (rc || strcmp(it.key, ".") == 0)
			continue;
		const struct json *kept = js_get(keep, it.key);
		struct json *sub = step(p, v, it.key, &child, &i);

		if (!sub)
			continue;
		if (is_member(it.value) && !kept) {
			remove_at(v, it.key, i);
			continue;
		}
		rc = node_remove(&child, sub, it.value, kept);
		/* An object that became empty and that nobody owns goes with its last field. */
		if (!rc && !kept && js_is_object(sub) && !js_len(sub) &&
		    str_has_prefix(it.key, "f:"))
			remove_at(v, it.key, i);
	}
	return rc;
}

enum rc fieldset_remove(const struct api_kind *k, struct json *obj, const struct json *set,
			const struct json *keep)
{
	struct place p = {.type = k->type};

	return node_remove(&p, obj, set, keep);
}

/* ---- sets that a client sent ----------------------------------------------------------------------------- */

static bool key_is_valid(const char *key)
{
	CLEANUP(js_unrefp) struct json *j = NULL;

	if (str_has_prefix(key, "f:"))
		return key[2] != '\0';
	if (!str_has_prefix(key, "k:") && !str_has_prefix(key, "v:"))
		return strcmp(key, ".") == 0;
	if (js_parse(key + 2, strlen(key + 2), &j, NULL))
		return false;
	return key[0] == 'v' || (js_is_object(j) && js_len(j));
}

bool fieldset_is_valid(const struct json *set)
{
	if (!js_is_object(set))
		return false;
	JS_FOREACH(it, set)
		if (!key_is_valid(it.key) || !fieldset_is_valid(it.value) ||
		    (it.key[0] == '.' && js_len(it.value)))
			return false;
	return true;
}

/* ---- text ------------------------------------------------------------------------------------------------ */

static void add_key(struct sbuf *path, const char *key)
{
	if (str_has_prefix(key, "f:")) {
		sbuf_addf(path, ".%s", key + 2);
		return;
	}
	if (key[0] == 'v') {
		sbuf_addf(path, "[=%s]", key + 2);
		return;
	}
	CLEANUP(js_unrefp) struct json *j = NULL;
	const char *sep = "[";

	if (js_parse(key + 2, strlen(key + 2), &j, NULL))
		return;
	JS_FOREACH(it, j) {
		CLEANUP(mem_freep) char *text = js_to_text(it.value);

		sbuf_addf(path, "%s%s=%s", sep, it.key, text ? text : "?");
		sep = ",";
	}
	sbuf_addc(path, ']');
}

static void each(const struct json *set, const char *prefix, fieldset_fn fn, void *arg)
{
	JS_FOREACH(it, set) {
		struct sbuf path = SBUF_INIT(64 * KIB);

		if (strcmp(it.key, ".") == 0)
			continue;
		sbuf_adds(&path, prefix);
		add_key(&path, it.key);
		if (!sbuf_rc(&path)) {
			if (is_member(it.value))
				fn(arg, sbuf_str(&path));
			each(it.value, sbuf_str(&path), fn, arg);
		}
		sbuf_fini(&path);
	}
}

void fieldset_each(const struct json *set, fieldset_fn fn, void *arg)
{
	each(set, "", fn, arg);
}
