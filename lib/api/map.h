/* lib/api/map.h - map[string]string of API objects: small, ordered by insertion.
 *
 * Owner's thread only.
 */
#ifndef API_MAP_H
#define API_MAP_H

#include "base/err.h"

struct api_map_item {
	char *key;
	char *value;
};

struct api_map {
	size_t n;
	struct api_map_item *items;
};

const char *api_map_get(const struct api_map *m, const char *key); /* borrowed; NULL: absent */
bool api_map_has(const struct api_map *m, const char *key);
/* Copies both; replaces an older value.  value NULL is stored as "". */
MUST_CHECK enum rc api_map_set(struct api_map *m, const char *key, const char *value);
MUST_CHECK enum rc api_map_setf(struct api_map *m, const char *key, const char *fmt, ...)
	PRINTF_LIKE(3, 4);
bool api_map_del(struct api_map *m, const char *key); /* false: was absent */
/* Adds (replacing) every item of src. */
MUST_CHECK enum rc api_map_merge(struct api_map *m, const struct api_map *src);
/* Same keys and values, in any order. */
bool api_map_equal(const struct api_map *a, const struct api_map *b);
MUST_CHECK enum rc api_map_copy(struct api_map *dst,
				const struct api_map *src); /* dst is overwritten */
void api_map_fini(struct api_map *m);

#endif
