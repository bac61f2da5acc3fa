/* lib/base/textpool.h - texts that many objects have, kept once for all of them.
 *
 * One pool for the process; the thread that shares the first text owns it until the last one is gone.
 */
#ifndef BASE_TEXTPOOL_H
#define BASE_TEXTPOOL_H

#include "base/err.h"

/* *out: the pool's copy of s with a reference for the caller, to be given back by textpool_unref(); NULL when s has not
 * been seen lately, for most such texts come once.  RC_NOMEM leaves *out NULL. */
MUST_CHECK enum rc textpool_share(const char *s, const char **out);
/* One reference more to what textpool_share() gave; returns it. */
char *textpool_ref(const char *shared);
void textpool_unref(const char *shared);

#endif
