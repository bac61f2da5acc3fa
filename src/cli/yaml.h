/* src/cli/yaml.h - YAML documents to JSON values and back, as kubectl reads and prints them.
 *
 * No state.  YAML 1.1 plain scalars resolve as go-yaml v2 does (yes/no/on/off are booleans).
 */
#ifndef CLI_YAML_H
#define CLI_YAML_H

#include "base/err.h"
#include "base/sbuf.h"

struct json;

/* Every document of the text as one item of a JSON array (empty documents are left out).  JSON is YAML
 * too.  Bounded by LIMIT_YAML_DOCS, LIMIT_YAML_NODES (aliases counted where they are used) and
 * LIMIT_JSON_DEPTH.  RC_BAD_REQUEST with line and column: bad syntax, duplicate keys, keys that are not
 * scalars, unknown anchors. */
MUST_CHECK enum rc yaml_parse(const char *text, size_t n, struct json **out, struct err *err);
/* Block style, two spaces, keys sorted, strings quoted where a reader would take them for something else. */
void yaml_print(const struct json *j, struct sbuf *out);

#endif
