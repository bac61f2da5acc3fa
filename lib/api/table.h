/* lib/api/table.h - cells of `kubectl get` tables: JSON paths and the computed columns of core kinds.
 *
 * Pure.
 */
#ifndef API_TABLE_H
#define API_TABLE_H

#include "api/type.h"
#include "json/json.h"

/* The cell of column c for obj (string, integer, or null when there is nothing to show).  Dates
 * become an age ("5m") relative to now (realtime).  NULL when out of memory. */
struct json *api_table_cell(const struct api_column *c, const struct json *obj, usec_t now);
/* Is there a computed column of this name?  (The schema test asks.) */
bool api_table_is_computed(const char *fn);
/* The first value at a JSON path of the subset `.a.b[0].c`, `.x[?(@.type=="Ready")].status`,
 * `.labels.app\.kubernetes\.io/name`; borrowed, NULL when absent or malformed. */
const struct json *api_path_get(const struct json *obj, const char *path);
bool api_path_is_valid(const char *path);
/* "5s", "3m20s", "2h", "5d4h", "2y10d": as kubectl prints ages.  seconds may be negative: "<invalid>". */
void api_age_print(int64_t seconds, char out[24]);

#endif
