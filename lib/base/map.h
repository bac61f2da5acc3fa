/* lib/base/map.h - hash table from string keys to pointers.
 *
 * Owner's thread only.  Keys are copied, or stand in their values.  Values are borrowed unless a free function is given.
 * Iteration order is insertion order with holes closed by moves: do not rely on it.
 */
#ifndef BASE_MAP_H
#define BASE_MAP_H

#include "base/err.h"

struct map_item {
	char *key;
	void *value;
	uint64_t hash;
};

struct map {
	struct map_item *items;
	size_t n;
	size_t cap;
	uint32_t *slots; /* 0: empty, else index + 1 */
	size_t n_slots;
	void (*free_value)(void *value); /* NULL: values are borrowed */
	bool borrows_keys;
};

void map_init(struct map *m, void (*free_value)(void *value));
/* Keys are not copied: each stands in its value, which must not change it nor go before map_take() or map_del(). */
void map_init_borrowing(struct map *m, void (*free_value)(void *value));
void map_fini(struct map *m);			     /* frees keys (and values); usable again */
void *map_get(const struct map *m, const char *key); /* NULL: absent */
/* Replaces (and frees) an older value.  On RC_NOMEM the value stays the caller's. */
MUST_CHECK enum rc map_set(struct map *m, const char *key, void *value);
void *map_take(struct map *m,
	       const char *key);	      /* removes without freeing the value; NULL: absent */
bool map_del(struct map *m, const char *key); /* removes and frees the value */

/* The body must not change the map. */
#define MAP_FOREACH(it_, m_) \
	for (struct map_item *it_ = (m_)->items; it_ && it_ < (m_)->items + (m_)->n; it_++)

#endif
