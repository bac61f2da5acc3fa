/* lib/api/defaults.c - defaults of stored objects, and what the schema does not know. */
#include <string.h>

#include "api/api.h"
#include "base/mem.h"
#include "base/str.h"
#include "json/json.h"

static enum rc set_defaults(const struct api_type *t, struct json *j, bool is_root);

static enum rc set_below(const struct api_field *f, struct json *v)
{
	enum rc rc = RC_OK;

	if (f->base != API_STRUCT)
		return RC_OK;
	if (!f->is_list)
		return js_is_object(v) ? set_defaults(f->type, v, false) : RC_OK;
	for (size_t i = 0; !rc && i < js_len(v); i++)
		if (js_is_object(js_item(v, i)))
			rc = set_defaults(f->type, js_item(v, i), false);
	return rc;
}

static enum rc set_defaults(const struct api_type *t, struct json *j, bool is_root)
{
	for (uint32_t i = 0; i < t->n_fields; i++) {
		const struct api_field *f = &t->fields[i];
		struct json *v = js_get(j, f->name);
		enum rc rc = RC_OK;

		if (is_root && (str_eq(f->name, "metadata") || str_eq(f->name, "status")))
			continue;
		if (!js_is_null(v)) {
			rc = set_below(f, v);
		} else if (f->rule->default_ && f->rule->support == API_WORKS) {
			struct json *d = NULL;

			rc = js_parse(f->rule->default_, strlen(f->rule->default_), &d, NULL);
			if (!rc)
				rc = js_set(j, f->name, d);
		}
		if (rc)
			return RC_NOMEM;
	}
	return RC_OK;
}

enum rc api_set_defaults(const struct api_kind *k, struct json *obj)
{
	return k->has_defaults ? set_defaults(k->type, obj, true) : RC_OK;
}

static enum rc prune(const struct api_type *t, struct json *j, bool is_root);

static enum rc prune_below(const struct api_field *f, struct json *v)
{
	enum rc rc = RC_OK;

	if (!f->type)
		return RC_OK;
	if (f->is_json_map) {
		JS_FOREACH(it, v) {
			if (!rc && js_is_object(it.value))
				rc = prune(f->type, it.value, false);
		}
		return rc;
	}
	if (!f->is_list)
		return js_is_object(v) ? prune(f->type, v, false) : RC_OK;
	for (size_t i = 0; !rc && i < js_len(v); i++)
		if (js_is_object(js_item(v, i)))
			rc = prune(f->type, js_item(v, i), false);
	return rc;
}

static enum rc prune(const struct api_type *t, struct json *j, bool is_root)
{
	CLEANUP(mem_freep) const char **unknown = mem_calloc(js_len(j) + 1, sizeof(char *));
	size_t n = 0;

	if (!unknown)
		return RC_NOMEM;
	JS_FOREACH(it, j) {
		const struct api_field *f = api_field_find(t, it.key);

		if (f) {
			enum rc rc = prune_below(f, it.value);

			if (rc)
				return rc;
		} else if (!is_root || (!str_eq(it.key, "apiVersion") && !str_eq(it.key, "kind"))) {
			unknown[n++] = it.key;
		}
	}
	for (size_t i = 0; i < n; i++)
		js_del(j, unknown[i]);
	return RC_OK;
}

enum rc api_prune(const struct api_kind *k, struct json *obj)
{
	return prune(k->type, obj, true);
}
