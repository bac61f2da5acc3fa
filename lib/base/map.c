#include "base/map.h"

#include <string.h>

#include "base/mem.h"
#include "base/str.h"

void map_init(struct map *m, void (*free_value)(void *value))
{
	*m = (struct map){.free_value = free_value};
}

void map_init_borrowing(struct map *m, void (*free_value)(void *value))
{
	*m = (struct map){.free_value = free_value, .borrows_keys = true};
}

static void key_free(const struct map *m, struct map_item *it)
{
	if (!m->borrows_keys)
		mem_free(it->key);
}

static void item_fini(struct map *m, struct map_item *it)
{
	key_free(m, it);
	if (m->free_value && it->value)
		m->free_value(it->value);
}

void map_fini(struct map *m)
{
	for (size_t i = 0; i < m->n; i++)
		item_fini(m, &m->items[i]);
	mem_free(m->items);
	mem_free(m->slots);
	*m = (struct map){.free_value = m->free_value, .borrows_keys = m->borrows_keys};
}

/* The slot that holds key, or the empty one where it would go. */
static size_t slot_of(const struct map *m, const char *key, uint64_t hash)
{
	size_t i = (size_t)hash & (m->n_slots - 1);

	while (m->slots[i]) {
		const struct map_item *it = &m->items[m->slots[i] - 1];

		if (it->hash == hash && strcmp(it->key, key) == 0)
			break;
		i = (i + 1) & (m->n_slots - 1);
	}
	return i;
}

void *map_get(const struct map *m, const char *key)
{
	if (!m->n)
		return NULL;
	size_t s = slot_of(m, key, str_hash(key, strlen(key)));

	return m->slots[s] ? m->items[m->slots[s] - 1].value : NULL;
}

static bool rehash(struct map *m, size_t n_slots)
{
	uint32_t *slots = mem_calloc(n_slots, sizeof(*slots));

	if (!slots)
		return false;
	mem_free(m->slots);
	m->slots = slots;
	m->n_slots = n_slots;
	for (size_t i = 0; i < m->n; i++)
		m->slots[slot_of(m, m->items[i].key, m->items[i].hash)] = (uint32_t)i + 1;
	return true;
}

enum rc map_set(struct map *m, const char *key, void *value)
{
	uint64_t hash = str_hash(key, strlen(key));

	if (m->n) {
		size_t s = slot_of(m, key, hash);

		if (m->slots[s]) {
			struct map_item *it = &m->items[m->slots[s] - 1];

			if (m->free_value && it->value && it->value != value)
				m->free_value(it->value);
			it->value = value;
			if (m->borrows_keys)
				it->key = (char *)key;
			return RC_OK;
		}
	}
	if (!mem_grow((void **)&m->items, &m->cap, m->n, sizeof(*m->items)))
		return RC_NOMEM;
	if ((m->n + 1) * 4 > m->n_slots * 3 && !rehash(m, m->n_slots ? m->n_slots * 2 : 8))
		return RC_NOMEM;
	char *mine = m->borrows_keys ? (char *)key : mem_strdup(key);

	if (!mine)
		return RC_NOMEM;
	m->items[m->n] = (struct map_item){mine, value, hash};
	m->slots[slot_of(m, mine, hash)] = (uint32_t)m->n + 1;
	m->n++;
	return RC_OK;
}

/* Linear probing without tombstones: shift back what followed the hole. */
static void slot_clear(struct map *m, size_t hole)
{
	size_t mask = m->n_slots - 1;

	m->slots[hole] = 0;
	for (size_t i = (hole + 1) & mask; m->slots[i]; i = (i + 1) & mask) {
		size_t home = (size_t)m->items[m->slots[i] - 1].hash & mask;

		if (((i - home) & mask) >= ((i - hole) & mask)) {
			m->slots[hole] = m->slots[i];
			m->slots[i] = 0;
			hole = i;
		}
	}
}

static bool take(struct map *m, const char *key, struct map_item *out)
{
	if (!m->n)
		return false;
	size_t s = slot_of(m, key, str_hash(key, strlen(key)));

	if (!m->slots[s])
		return false;
	size_t at = m->slots[s] - 1;

	*out = m->items[at];
	slot_clear(m, s);
	if (at != m->n - 1) {
		size_t moved = slot_of(m, m->items[m->n - 1].key, m->items[m->n - 1].hash);

		m->items[at] = m->items[m->n - 1];
		m->slots[moved] = (uint32_t)at + 1;
	}
	m->n--;
	return true;
}

void *map_take(struct map *m, const char *key)
{
	struct map_item it;

	if (!take(m, key, &it))
		return NULL;
	key_free(m, &it);
	return it.value;
}

bool map_del(struct map *m, const char *key)
{
	struct map_item it;

	if (!take(m, key, &it))
		return false;
	item_fini(m, &it);
	return true;
}
