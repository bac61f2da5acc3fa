/* lib/ctl/prom_map.h - labels of an object as labels of a metric.
 *
 * Pure.
 */
#ifndef CTL_PROM_MAP_H
#define CTL_PROM_MAP_H

#include "api/map.h"
#include "base/sbuf.h"

/* What is printed of one object, so that nobody's labels make an answer as large as they like: they stand in
 * every sample. */
enum { PROM_MAP_MAX = 64, PROM_MAP_BYTES = 4096 };

/* Adds, as prom_label_add() does, a label for each entry that keep wants (NULL: all), at most PROM_MAP_MAX of them and
 * PROM_MAP_BYTES: prefix and key, with '_' for what the name of a label may not have.  Of several keys that become one
 * name the first counts.  out: of PROM_MAP_BYTES, empty. */
void prom_map_add(struct sbuf *out, const char *prefix, const struct api_map *map,
		  bool (*keep)(const char *key, void *arg), void *arg);

#endif
