#include "api/map.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/mem.h"
#include "base/str.h"

static struct api_map_item *find(const struct api_map *m, const char *key)
{
	for (size_t i = 0; i < m->n; i++)
		if (str_eq(m->items[i].key, key))
			return &m->items[i];
	return NULL;
}

const char *api_map_get(const struct api_map *m, const char *key)
{
	const struct api_map_item *it = find(m, key);

	return it ? it->value : NULL;
}

bool api_map_has(const struct api_map *m, const char *key)
{
	return find(m, key) != NULL;
}

/* Consumes value. */
static enum rc put(struct api_map *m, const char *key, char *value)
{
	CLEANUP(mem_freep) char *v = value;
	struct api_map_item *it = find(m, key);

	if (!v)
		return RC_NOMEM;
	if (!it) {
		CLEANUP(mem_freep) char *k = mem_strdup(key);
		struct api_map_item *items =
			k ? mem_realloc_array(m->items, m->n + 1, sizeof(*items)) : NULL;

		if (!items)
			return RC_NOMEM;
		m->items = items;
		it = &items[m->n++];
		*it = (struct api_map_item){.key = STEAL(k)};
	}
	mem_free(it->value);
	it->value = STEAL(v);
	return RC_OK;
}

enum rc api_map_set(struct api_map *m, const char *key, const char *value)
{
	return put(m, key, mem_strdup(value ? value : ""));
}

enum rc api_map_setf(struct api_map *m, const char *key, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	char *text = mem_vprintf(fmt, ap);

	va_end(ap);
	return put(m, key, text);
}

bool api_map_del(struct api_map *m, const char *key)
{
	struct api_map_item *it = find(m, key);

	if (!it)
		return false;
	mem_free(it->key);
	mem_free(it->value);
	size_t after = (size_t)(m->items + m->n - it) - 1;

	memmove(it, it + 1, after * sizeof(*it));
	if (!--m->n)
		m->items = mem_free(m->items);
	return true;
}

enum rc api_map_merge(struct api_map *m, const struct api_map *src)
{
	for (size_t i = 0; i < src->n; i++) {
		enum rc rc = api_map_set(m, src->items[i].key, src->items[i].value);

		if (rc)
			return rc;
	}
	return RC_OK;
}

bool api_map_equal(const struct api_map *a, const struct api_map *b)
{
	if (a->n != b->n)
		return false;
	for (size_t i = 0; i < a->n; i++)
		if (!str_eq(a->items[i].value, api_map_get(b, a->items[i].key)))
			return false;
	return true;
}

enum rc api_map_copy(struct api_map *dst, const struct api_map *src)
{
	*dst = (struct api_map){0};
	enum rc rc = api_map_merge(dst, src);

	if (rc)
		api_map_fini(dst);
	return rc;
}

void api_map_fini(struct api_map *m)
{
	for (size_t i = 0; i < m->n; i++) {
		mem_free(m->items[i].key);
		mem_free(m->items[i].value);
	}
	mem_free(m->items);
	*m = (struct api_map){0};
}
