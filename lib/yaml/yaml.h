/* lib/yaml/yaml.h - YAML documents to JSON values and back, as kubectl reads and prints them.
 *
 * No state; any thread.  YAML 1.1 plain scalars resolve as go-yaml v2 does (yes/no/on/off are booleans).
 */
#ifndef YAML_YAML_H
#define YAML_YAML_H

#include "base/err.h"
#include "base/sbuf.h"

struct js_dups;
struct json;

/* Every document of the text as one item of a JSON array (empty documents are left out).  JSON is YAML
 * too.  Bounded by LIMIT_YAML_DOCS, LIMIT_YAML_NODES (aliases counted where they are used) and
 * LIMIT_JSON_DEPTH.  "<<" merges the mapping (or each of a list of them) behind it.  RC_BAD_REQUEST with line
 * and column: bad syntax, duplicate keys, keys that are not scalars, unknown anchors, tags of one's own. */
MUST_CHECK enum rc yaml_parse(const char *text, size_t n, struct json **out, struct err *err);
/* The same, but the last of several equal keys is taken, and dups told (NULL: they are refused). */
MUST_CHECK enum rc yaml_parse_dups(const char *text, size_t n, struct json **out,
				   struct js_dups *dups, struct err *err);
/* Block style, two spaces, keys sorted, strings quoted where a reader would take them for something else. */
void yaml_print(const struct json *j, struct sbuf *out);

#endif
