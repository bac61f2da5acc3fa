#include "ctl/prom_map.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "ctl/prom.h"

/* A label's key is a name of at most 63 characters behind a domain of at most 253. */
enum { NAME_BYTES = 64 + 253 + 64 };

/* "app.kubernetes.io/name" -> "<prefix>app_kubernetes_io_name"; false: it does not fit. */
static bool name_of(const char *prefix, const char *key, char out[NAME_BYTES])
{
	int n = snprintf(out, NAME_BYTES, "%s%s", prefix, key);

	for (char *p = out; *p; p++)
		if (!isalnum((unsigned char)*p))
			*p = '_';
	return n >= 0 && n < NAME_BYTES;
}

void prom_map_add(struct sbuf *out, const char *prefix, const struct api_map *map,
		  bool (*keep)(const char *key, void *arg), void *arg)
{
	char names[PROM_MAP_MAX][NAME_BYTES];
	size_t n = 0;

	for (size_t i = 0; map && i < map->n && n < PROM_MAP_MAX; i++) {
		bool is_new = (!keep || keep(map->items[i].key, arg)) &&
			      name_of(prefix, map->items[i].key, names[n]);
		/* A value may double by what has to be escaped. */
		size_t most = is_new ? strlen(names[n]) + 2 * strlen(map->items[i].value) + 4 : 0;

		is_new = is_new && out->n + most < PROM_MAP_BYTES;

		for (size_t k = 0; is_new && k < n; k++)
			is_new = strcmp(names[k], names[n]) != 0;
		if (is_new)
			prom_label_add(out, names[n++], map->items[i].value);
	}
}
