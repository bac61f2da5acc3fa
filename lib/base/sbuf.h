/* lib/base/sbuf.h - growable byte buffer that cannot exist without a maximum.
 *
 * Owner's thread only.  Errors are sticky: append freely, check sbuf_rc() once.
 * The content is always followed by a NUL that is not counted.
 */
#ifndef BASE_SBUF_H
#define BASE_SBUF_H

#include "base/err.h"

struct sbuf {
	char *p; /* NULL while empty; use sbuf_str() for a string */
	size_t n;
	size_t cap;
	size_t max; /* more than this fails with RC_TOO_BIG */
	enum rc rc;
};

#define SBUF_INIT(max_)       \
	{                     \
		.max = (max_) \
	}

void sbuf_init(struct sbuf *b, size_t max);
void sbuf_fini(struct sbuf *b);	 /* frees; the buffer is empty and usable again */
void sbuf_reset(struct sbuf *b); /* empties, keeps the memory, clears the error */
void sbuf_add(struct sbuf *b, const void *bytes, size_t n);
void sbuf_adds(struct sbuf *b, const char *s);
void sbuf_addc(struct sbuf *b, char c);
void sbuf_addf(struct sbuf *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
void sbuf_drop(struct sbuf *b, size_t n); /* removes n bytes from the front */
MUST_CHECK enum rc sbuf_rc(const struct sbuf *b);
const char *sbuf_str(const struct sbuf *b); /* borrowed; "" when empty or failed */
/* Hands the content over (never NULL on RC_OK) and empties the buffer. */
MUST_CHECK enum rc sbuf_take(struct sbuf *b, char **out, size_t *n);

#endif
