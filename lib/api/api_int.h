/* lib/api/api_int.h - how descriptor offsets become pointers; private to lib/api. */
#ifndef API_API_INT_H
#define API_API_INT_H

#include "api/type.h"

static inline void *api_at(void *obj, uint32_t offset)
{
	return (char *)obj + offset;
}

static inline const void *api_at_const(const void *obj, uint32_t offset)
{
	return (const char *)obj + offset;
}

static inline uint32_t *api_count(void *obj, const struct api_field *f)
{
	return api_at(obj, f->aux);
}

static inline const uint32_t *api_count_const(const void *obj, const struct api_field *f)
{
	return api_at_const(obj, f->aux);
}

static inline bool *api_has(void *obj, const struct api_field *f)
{
	return api_at(obj, f->aux);
}

static inline const bool *api_has_const(const void *obj, const struct api_field *f)
{
	return api_at_const(obj, f->aux);
}

size_t api_item_size(const struct api_field *f);

/* Where a value sits, kept on the C stack while walking; rendered only when something is wrong. */
struct api_path {
	const struct api_path *up; /* NULL: root */
	const char *name;	   /* field; NULL for an index or a map key */
	const char *key;	   /* map key; NULL for an index */
	size_t index;
};

struct sbuf;
void api_path_print(const struct api_path *p, struct sbuf *out);

#endif
