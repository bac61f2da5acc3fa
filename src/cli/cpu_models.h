/* src/cli/cpu_models.h - what CPU models nodes have in common. */
#ifndef CLI_CPU_MODELS_H
#define CLI_CPU_MODELS_H

#include "base/err.h"

struct json;
struct sbuf;

/* items: Nodes as the API lists them; names: those to look at (n 0: all).  The table goes to out: models that
 * all of them can give, with all also the others and who lacks them.  RC_NOT_FOUND: no such node. */
MUST_CHECK enum rc cpu_models_print(const struct json *items, char *const *names, size_t n,
				    bool all, struct sbuf *out, size_t *n_common, struct err *err);

#endif
