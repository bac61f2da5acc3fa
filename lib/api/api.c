#include "api/api.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "api/api_int.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"
#include "json/json.h"

size_t api_item_size(const struct api_field *f)
{
	switch (f->base) {
	case API_STRUCT:
		return f->type->size;
	case API_INT:
		return sizeof(int64_t);
	default:
		return sizeof(char *);
	}
}

void *api_new(const struct api_type *t)
{
	return mem_alloc(t->size);
}

/* ---- free ---- */

static void fini_list(const struct api_field *f, void *obj)
{
	char **list = api_at(obj, f->offset);
	size_t n = *api_count(obj, f);

	if (f->base == API_STRUCT) {
		for (size_t i = 0; i < n; i++)
			api_fini(f->type, *list + i * f->type->size);
	} else if (f->base == API_STRING) {
		for (size_t i = 0; i < n; i++)
			mem_free(((char **)(void *)*list)[i]);
	}
	mem_free(*list);
}

static void fini_field(const struct api_field *f, void *obj)
{
	void *at = api_at(obj, f->offset);

	if (f->base == API_JSON)
		js_unref(*(struct json **)at);
	else if (f->base == API_MAP)
		api_map_fini(at);
	else if (f->is_list)
		fini_list(f, obj);
	else if (f->base == API_STRING)
		mem_free(*(char **)at);
	else if (f->base == API_STRUCT && f->is_inline)
		api_fini(f->type, at);
	else if (f->base == API_STRUCT)
		api_free(f->type, *(void **)at);
}

void api_fini(const struct api_type *t, void *obj)
{
	if (!obj)
		return;
	for (uint32_t i = 0; i < t->n_fields; i++)
		fini_field(&t->fields[i], obj);
	memset(obj, 0, t->size);
}

void *api_free(const struct api_type *t, void *obj)
{
	api_fini(t, obj);
	return mem_free(obj);
}

/* ---- clone ---- */

static enum rc copy_list(const struct api_field *f, void *dst, const void *src)
{
	size_t n = *api_count_const(src, f), size = api_item_size(f);
	const char *from = *(char *const *)api_at_const(src, f->offset);
	char *to;

	if (!n)
		return RC_OK;
	to = mem_calloc(n, size);
	if (!to)
		return RC_NOMEM;
	*(char **)api_at(dst, f->offset) = to;
	*api_count(dst, f) = n;
	for (size_t i = 0; i < n; i++) {
		enum rc rc = RC_OK;

		if (f->base == API_STRUCT)
			rc = api_copy(f->type, to + i * size, from + i * size);
		else if (f->base == API_STRING)
			rc = api_set_str((char **)(void *)to + i,
					 ((char *const *)(const void *)from)[i]);
		else
			memcpy(to + i * size, from + i * size, size);
		if (rc)
			return rc;
	}
	return RC_OK;
}

static enum rc copy_struct(const struct api_field *f, void *at, const void *from)
{
	const void *p = *(void *const *)from;

	if (f->is_inline)
		return api_copy(f->type, at, from);
	if (!p)
		return RC_OK;
	*(void **)at = api_clone(f->type, p);
	return *(void **)at ? RC_OK : RC_NOMEM;
}

static enum rc copy_field(const struct api_field *f, void *dst, const void *src)
{
	void *at = api_at(dst, f->offset);
	const void *from = api_at_const(src, f->offset);

	if (f->base == API_JSON) {
		*(struct json **)at = js_ref(*(struct json *const *)from);
		return RC_OK;
	}
	if (f->base == API_MAP)
		return api_map_copy(at, from);
	if (f->is_list)
		return copy_list(f, dst, src);
	switch (f->base) {
	case API_STRING:
		return api_set_str(at, *(char *const *)from);
	case API_STRUCT:
		return copy_struct(f, at, from);
	case API_BOOL:
		*(bool *)at = *(const bool *)from;
		break;
	case API_INT:
		*(int64_t *)at = *(const int64_t *)from;
		break;
	default:
		*(double *)at = *(const double *)from;
	}
	*api_has(dst, f) = *api_has_const(src, f);
	return RC_OK;
}

enum rc api_copy(const struct api_type *t, void *dst, const void *src)
{
	memset(dst, 0, t->size);
	for (uint32_t i = 0; i < t->n_fields; i++) {
		enum rc rc = copy_field(&t->fields[i], dst, src);

		if (rc) {
			api_fini(t, dst);
			return rc;
		}
	}
	return RC_OK;
}

void *api_clone(const struct api_type *t, const void *obj)
{
	void *copy = obj ? api_new(t) : NULL;

	if (copy && api_copy(t, copy, obj))
		copy = mem_free(copy);
	return copy;
}

/* ---- equal ---- */

static bool lists_equal(const struct api_field *f, const void *a, const void *b)
{
	size_t n = *api_count_const(a, f), size = api_item_size(f);
	const char *pa = *(char *const *)api_at_const(a, f->offset);
	const char *pb = *(char *const *)api_at_const(b, f->offset);

	if (n != *api_count_const(b, f))
		return false;
	for (size_t i = 0; i < n; i++) {
		const char *ia = pa + i * size, *ib = pb + i * size;
		bool same;

		if (f->base == API_STRUCT)
			same = api_equal(f->type, ia, ib);
		else if (f->base == API_STRING)
			same = str_eq(*(char *const *)(const void *)ia,
				      *(char *const *)(const void *)ib);
		else
			same = memcmp(ia, ib, size) == 0;
		if (!same)
			return false;
	}
	return true;
}

static bool scalars_equal(const struct api_field *f, const void *a, const void *b)
{
	const void *pa = api_at_const(a, f->offset), *pb = api_at_const(b, f->offset);

	if (*api_has_const(a, f) != *api_has_const(b, f))
		return false;
	if (!*api_has_const(a, f))
		return true;
	if (f->base == API_BOOL)
		return *(const bool *)pa == *(const bool *)pb;
	if (f->base == API_INT)
		return *(const int64_t *)pa == *(const int64_t *)pb;
	return memcmp(pa, pb, sizeof(double)) == 0;
}

static bool fields_equal(const struct api_field *f, const void *a, const void *b)
{
	const void *pa = api_at_const(a, f->offset), *pb = api_at_const(b, f->offset);

	if (f->base == API_JSON)
		return js_equal(*(struct json *const *)pa, *(struct json *const *)pb);
	if (f->base == API_MAP)
		return api_map_equal(pa, pb);
	if (f->is_list)
		return lists_equal(f, a, b);
	if (f->base == API_STRING)
		return str_eq(*(char *const *)pa, *(char *const *)pb);
	if (f->base == API_STRUCT)
		return f->is_inline ? api_equal(f->type, pa, pb)
				    : api_equal(f->type, *(void *const *)pa, *(void *const *)pb);
	return scalars_equal(f, a, b);
}

bool api_equal(const struct api_type *t, const void *a, const void *b)
{
	if (a == b)
		return true;
	if (!a || !b)
		return false;
	for (uint32_t i = 0; i < t->n_fields; i++)
		if (!fields_equal(&t->fields[i], a, b))
			return false;
	return true;
}

/* ---- small setters ---- */

enum rc api_set_str(char **field, const char *v)
{
	char *copy = mem_strdup(v);

	if (v && !copy)
		return RC_NOMEM;
	mem_free(*field);
	*field = copy;
	return RC_OK;
}

enum rc api_set_strf(char **field, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	char *text = mem_vprintf(fmt, ap);

	va_end(ap);
	if (!text)
		return RC_NOMEM;
	mem_free(*field);
	*field = text;
	return RC_OK;
}

void *api_append(void *list, uint32_t *n, size_t item_size)
{
	char **at = list;
	char *grown = mem_realloc_array(*at, *n + 1, item_size);

	if (!grown)
		return NULL;
	*at = grown;
	memset(grown + *n * item_size, 0, item_size);
	return grown + (*n)++ * item_size;
}

enum rc api_append_str(char ***list, uint32_t *n, const char *v)
{
	char *copy = mem_strdup(v);
	char **slot = copy ? api_append(list, n, sizeof(char *)) : NULL;

	if (!slot) {
		mem_free(copy);
		return RC_NOMEM;
	}
	*slot = copy;
	return RC_OK;
}

void api_remove(const struct api_type *t, void *list, uint32_t *n, size_t i)
{
	char *items = *(char **)list;

	if (i >= *n)
		return;
	api_fini(t, items + i * t->size);
	memmove(items + i * t->size, items + (i + 1) * t->size, (*n - i - 1) * t->size);
	(*n)--;
}

void *api_ensure(const struct api_type *t, void *field)
{
	void **at = field;

	if (!*at)
		*at = api_new(t);
	return *at;
}
