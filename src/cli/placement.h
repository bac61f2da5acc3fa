/* src/cli/placement.h - a migration's status.ferry.placement as a table, and what follows from it.
 *
 * Pure.
 */
#ifndef CLI_PLACEMENT_H
#define CLI_PLACEMENT_H

#include "base/err.h"

struct json;
struct sbuf;

/* One row per node (node NULL: all of them), then one sentence of conclusion, into out.  Returns whether a
 * row says that its node can take the VM now.  A node without a row, or a migration without placement,
 * is said in the sentence. */
bool placement_print(const struct json *vmim, const char *vm, const char *node, struct sbuf *out);
#endif
