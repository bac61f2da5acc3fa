/* lib/base/b64.h - base64 (RFC 4648). */
#ifndef BASE_B64_H
#define BASE_B64_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/* The text of n bytes, the caller's; NULL: out of memory.  url: the alphabet for URLs, without padding. */
char *b64_encode(const void *p, size_t n, bool url);
/* *out: the caller's bytes.  Padding may be missing.  RC_INVALID: another character. */
MUST_CHECK enum rc b64_decode(const char *s, bool url, char **out, size_t *n);

#endif
