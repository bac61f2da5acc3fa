/* lib/api/codec.c - typed objects from and to JSON, by the descriptor tables. */
#include <string.h>

#include "api/api.h"
#include "api/api_int.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"
#include "json/json.h"

const struct api_field *api_field_find(const struct api_type *t, const char *name)
{
	size_t lo = 0, hi = t->n_fields;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		const struct api_field *f = &t->fields[t->by_name[mid]];
		int c = strcmp(name, f->name);

		if (c == 0)
			return f;
		if (c < 0)
			hi = mid;
		else
			lo = mid + 1;
	}
	return NULL;
}

const struct api_field *api_field_at(const struct api_type *t, const char *path)
{
	struct str rest = str_of(path);
	const struct api_field *f = NULL;
	char name[128];

	while (rest.p) {
		struct str part = str_split(&rest, '.');

		if (!t || part.n >= sizeof(name))
			return NULL;
		memcpy(name, part.p, part.n);
		name[part.n] = '\0';
		f = api_field_find(t, name);
		if (!f)
			return NULL;
		t = f->type;
	}
	return f;
}

void api_path_print(const struct api_path *p, struct sbuf *out)
{
	if (!p)
		return;
	api_path_print(p->up, out);
	if (p->name)
		sbuf_addf(out, "%s%s", out->n ? "." : "", p->name);
	else if (p->key)
		sbuf_addf(out, "[%s]", p->key);
	else
		sbuf_addf(out, "[%zu]", p->index);
}

/* ---- decode ---- */

static enum rc decode_object(const struct api_type *t, const struct json *j,
			     const struct api_path *path, void *obj, struct err *err);

static enum rc wrong_type(const struct api_path *path, const char *want, const struct json *j,
			  struct err *err)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(4096);

	api_path_print(path, &b);
	return err_set(err, RC_INVALID, "%s must be %s, not %s", b.n ? sbuf_str(&b) : "the body",
		       want, js_type_name(js_type(j)));
}

static enum rc no_memory(struct err *err)
{
	return err_set(err, RC_NOMEM, "out of memory while decoding");
}

/* Text; numbers are taken for quantities, as Kubernetes does. */
static enum rc decode_text(const struct api_field *f, const struct json *j,
			   const struct api_path *path, char **out, struct err *err)
{
	enum js_type type = js_type(j);

	if (type == JS_STRING)
		return api_set_str(out, js_str(j)) ? no_memory(err) : RC_OK;
	if (f->rule->format == API_FMT_QUANTITY && (type == JS_INT || type == JS_REAL)) {
		CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(128);

		js_print(j, &b, false);
		return sbuf_rc(&b) || api_set_str(out, sbuf_str(&b)) ? no_memory(err) : RC_OK;
	}
	return wrong_type(path, "a string", j, err);
}

static enum rc decode_map(const struct api_field *f, const struct json *j,
			  const struct api_path *path, struct api_map *out, struct err *err)
{
	if (!js_is_object(j))
		return wrong_type(path, "an object", j, err);
	JS_FOREACH(it, j) {
		const struct api_path key = {.up = path, .key = it.key};
		CLEANUP(mem_freep) char *text = NULL;
		enum rc rc = RC_OK;

		if (!js_is_null(it.value))
			rc = decode_text(f, it.value, &key, &text, err);
		if (rc)
			return rc;
		if (api_map_set(out, it.key, text))
			return no_memory(err);
	}
	return RC_OK;
}

static enum rc decode_list(const struct api_field *f, const struct json *j,
			   const struct api_path *path, void *obj, struct err *err)
{
	size_t n = js_len(j), size = api_item_size(f);
	char *items;

	if (!js_is_array(j))
		return wrong_type(path, "an array", j, err);
	if (!n)
		return RC_OK;
	items = mem_calloc(n, size);
	if (!items)
		return no_memory(err);
	*(char **)api_at(obj, f->offset) = items;
	*api_count(obj, f) = n;
	for (size_t i = 0; i < n; i++) {
		const struct api_path at = {.up = path, .index = i};
		const struct json *item = js_item(j, i);
		char *to = items + i * size;
		enum rc rc = RC_OK;

		if (f->base == API_STRUCT)
			rc = js_is_object(item) ? decode_object(f->type, item, &at, to, err)
						: wrong_type(&at, "an object", item, err);
		else if (f->base == API_STRING)
			rc = decode_text(f, item, &at, (char **)(void *)to, err);
		else if (js_type(item) == JS_INT)
			*(int64_t *)(void *)to = js_int(item, 0);
		else
			rc = wrong_type(&at, "an integer", item, err);
		if (rc)
			return rc;
	}
	return RC_OK;
}

static enum rc decode_struct(const struct api_field *f, const struct json *j,
			     const struct api_path *path, void *at, struct err *err)
{
	if (!js_is_object(j))
		return wrong_type(path, "an object", j, err);
	if (f->is_inline)
		return decode_object(f->type, j, path, at, err);
	void *child = api_new(f->type);

	if (!child)
		return no_memory(err);
	*(void **)at = child;
	return decode_object(f->type, j, path, child, err);
}

static enum rc decode_number(const struct api_field *f, const struct json *j,
			     const struct api_path *path, void *at, struct err *err)
{
	enum js_type type = js_type(j);

	if (f->base == API_BOOL) {
		if (type != JS_BOOL)
			return wrong_type(path, "a boolean", j, err);
		*(bool *)at = js_bool(j, false);
	} else if (f->base == API_INT) {
		if (type != JS_INT)
			return wrong_type(path, "an integer", j, err);
		*(int64_t *)at = js_int(j, 0);
	} else {
		if (type != JS_INT && type != JS_REAL)
			return wrong_type(path, "a number", j, err);
		*(double *)at = js_real(j, 0);
	}
	return RC_OK;
}

static enum rc decode_field(const struct api_field *f, const struct json *j,
			    const struct api_path *path, void *obj, struct err *err)
{
	void *at = api_at(obj, f->offset);
	enum rc rc;

	if (f->base == API_JSON) {
		*(struct json **)at = js_ref(j);
		return RC_OK;
	}
	if (f->base == API_MAP)
		return decode_map(f, j, path, at, err);
	if (f->is_list)
		return decode_list(f, j, path, obj, err);
	if (f->base == API_STRING)
		return decode_text(f, j, path, at, err);
	if (f->base == API_STRUCT)
		return decode_struct(f, j, path, at, err);
	rc = decode_number(f, j, path, at, err);
	if (!rc)
		*api_has(obj, f) = true;
	return rc;
}

/* The depth is that of the schema, which the JSON parser's limit bounds too. */
static enum rc decode_object(const struct api_type *t, const struct json *j,
			     const struct api_path *path, void *obj, struct err *err)
{
	JS_FOREACH(it, j) {
		const struct api_field *f = api_field_find(t, it.key);

		if (!f || js_is_null(it.value))
			continue;
		const struct api_path at = {.up = path, .name = f->name};
		enum rc rc = decode_field(f, it.value, &at, obj, err);

		if (rc)
			return rc;
	}
	return RC_OK;
}

enum rc api_decode(const struct api_type *t, const struct json *j, void **out, struct err *err)
{
	void *obj;
	enum rc rc;

	if (!js_is_object(j))
		return wrong_type(NULL, "an object", j, err);
	obj = api_new(t);
	if (!obj)
		return no_memory(err);
	rc = decode_object(t, j, NULL, obj, err);
	if (rc) {
		api_free(t, obj);
		return rc;
	}
	*out = obj;
	return RC_OK;
}

/* ---- encode ---- */

static enum rc encode_object(const struct api_type *t, const void *obj, struct json *to);

/* js_set() and js_append() consume the value and report a NULL one as RC_NOMEM. */
static struct json *encode_map(const struct api_map *m)
{
	CLEANUP(js_unrefp) struct json *j = js_new_object();

	for (size_t i = 0; j && i < m->n; i++)
		if (js_set(j, m->items[i].key, js_new_str(m->items[i].value)))
			return NULL;
	return STEAL(j);
}

static struct json *encode_sub(const struct api_type *t, const void *obj)
{
	CLEANUP(js_unrefp) struct json *j = js_new_object();

	if (!j || encode_object(t, obj, j))
		return NULL;
	return STEAL(j);
}

static struct json *encode_list(const struct api_field *f, const void *obj)
{
	CLEANUP(js_unrefp) struct json *j = js_new_array();
	size_t n = *api_count_const(obj, f), size = api_item_size(f);
	const char *items = *(char *const *)api_at_const(obj, f->offset);

	for (size_t i = 0; j && i < n; i++) {
		const void *at = items + i * size;
		struct json *v;

		if (f->base == API_STRUCT)
			v = encode_sub(f->type, at);
		else if (f->base == API_STRING)
			v = js_new_str(*(char *const *)at ? *(char *const *)at : "");
		else
			v = js_new_int(*(const int64_t *)at);
		if (js_append(j, v))
			return NULL;
	}
	return STEAL(j);
}

/* Is there anything to write?  Inline objects are looked at after they are encoded. */
static bool is_present(const struct api_field *f, const void *obj)
{
	const void *at = api_at_const(obj, f->offset);

	if (f->base == API_MAP)
		return ((const struct api_map *)at)->n != 0;
	if (f->is_list && f->base != API_JSON)
		return *api_count_const(obj, f) != 0;
	if (f->base == API_BOOL || f->base == API_INT || f->base == API_REAL)
		return *api_has_const(obj, f);
	return f->is_inline || *(void *const *)at;
}

static struct json *encode_value(const struct api_field *f, const void *obj)
{
	const void *at = api_at_const(obj, f->offset);

	if (f->base == API_JSON)
		return js_ref(*(struct json *const *)at);
	if (f->base == API_MAP)
		return encode_map(at);
	if (f->is_list)
		return encode_list(f, obj);
	switch (f->base) {
	case API_STRING:
		return js_new_str(*(char *const *)at);
	case API_BOOL:
		return js_new_bool(*(const bool *)at);
	case API_INT:
		return js_new_int(*(const int64_t *)at);
	case API_REAL:
		return js_new_real(*(const double *)at);
	default:
		return encode_sub(f->type, f->is_inline ? at : *(void *const *)at);
	}
}

static enum rc encode_object(const struct api_type *t, const void *obj, struct json *to)
{
	for (uint32_t i = 0; i < t->n_fields; i++) {
		const struct api_field *f = &t->fields[i];

		if (!is_present(f, obj))
			continue;
		struct json *v = encode_value(f, obj);

		if (v && f->is_inline && !f->is_required && !js_len(v)) {
			js_unref(v);
			continue;
		}
		enum rc rc = js_set(to, f->name, v);

		if (rc)
			return rc;
	}
	return RC_OK;
}

struct json *api_encode(const struct api_type *t, const void *obj)
{
	CLEANUP(js_unrefp) struct json *j = js_new_object();

	if (!j || !obj)
		return NULL;
	if (t->kind && (js_set(j, "apiVersion", js_new_str(t->kind->api_version)) ||
			js_set(j, "kind", js_new_str(t->kind->kind))))
		return NULL;
	if (encode_object(t, obj, j))
		return NULL;
	return STEAL(j);
}
