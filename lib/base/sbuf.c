#include "base/sbuf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

void sbuf_init(struct sbuf *b, size_t max)
{
	*b = (struct sbuf){.max = max};
}

void sbuf_fini(struct sbuf *b)
{
	mem_free(b->p);
	*b = (struct sbuf){.max = b->max};
}

void sbuf_reset(struct sbuf *b)
{
	b->n = 0;
	b->rc = RC_OK;
	if (b->p)
		b->p[0] = '\0';
}

static bool sbuf_reserve(struct sbuf *b, size_t more)
{
	if (b->rc)
		return false;
	if (more > b->max - b->n) {
		b->rc = RC_TOO_BIG;
		return false;
	}
	size_t need = b->n + more + 1;

	if (need <= b->cap)
		return true;
	size_t cap = b->cap ? b->cap : 128;

	while (cap < need)
		cap *= 2;
	char *p = mem_realloc(b->p, cap);

	if (!p) {
		b->rc = RC_NOMEM;
		return false;
	}
	b->p = p;
	b->cap = cap;
	return true;
}

void sbuf_add(struct sbuf *b, const void *bytes, size_t n)
{
	if (!sbuf_reserve(b, n))
		return;
	if (n)
		memcpy(b->p + b->n, bytes, n);
	b->n += n;
	b->p[b->n] = '\0';
}

void sbuf_adds(struct sbuf *b, const char *s)
{
	sbuf_add(b, s, strlen(s));
}

void sbuf_addc(struct sbuf *b, char c)
{
	sbuf_add(b, &c, 1);
}

void sbuf_addf(struct sbuf *b, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	int n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0) {
		if (!b->rc)
			b->rc = RC_INVALID;
		return;
	}
	if (!sbuf_reserve(b, (size_t)n))
		return;
	va_start(ap, fmt);
	(void)vsnprintf(b->p + b->n, (size_t)n + 1, fmt, ap); /* room was reserved */
	va_end(ap);
	b->n += (size_t)n;
}

void sbuf_drop(struct sbuf *b, size_t n)
{
	if (n > b->n)
		n = b->n;
	if (n == 0)
		return;
	memmove(b->p, b->p + n, b->n - n);
	b->n -= n;
	b->p[b->n] = '\0';
}

enum rc sbuf_rc(const struct sbuf *b)
{
	return b->rc;
}

const char *sbuf_str(const struct sbuf *b)
{
	return b->p && !b->rc ? b->p : "";
}

enum rc sbuf_take(struct sbuf *b, char **out, size_t *n)
{
	if (!sbuf_reserve(b, 0))
		return b->rc;
	b->p[b->n] = '\0';
	*out = b->p;
	if (n)
		*n = b->n;
	*b = (struct sbuf){.max = b->max};
	return RC_OK;
}
