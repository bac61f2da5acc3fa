#include "base/mem.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static atomic_size_t live;
static atomic_uint fault_in; /* 0: off, 1: the next one fails */
static atomic_bool fault_hit;

static bool fault_now(void)
{
	unsigned n = atomic_load_explicit(&fault_in, memory_order_relaxed);

	if (n == 0)
		return false;
	atomic_store(&fault_in, n - 1);
	if (n > 1)
		return false;
	atomic_store(&fault_hit, true);
	return true;
}

void mem_fault_arm(unsigned nth)
{
	atomic_store(&fault_hit, false);
	atomic_store(&fault_in, nth);
}

bool mem_fault_disarm(void)
{
	atomic_store(&fault_in, 0);
	return atomic_exchange(&fault_hit, false);
}

size_t mem_live_blocks(void)
{
	return atomic_load(&live);
}

void *mem_calloc(size_t n, size_t size)
{
	if (fault_now())
		return NULL;
	void *p = calloc(n ? n : 1, size ? size : 1);

	if (p)
		atomic_fetch_add_explicit(&live, 1, memory_order_relaxed);
	return p;
}

void *mem_alloc(size_t size)
{
	return mem_calloc(1, size);
}

void *mem_realloc(void *p, size_t size)
{
	if (!p)
		return mem_alloc(size);
	if (fault_now())
		return NULL;
	return realloc(p, size ? size : 1);
}

void *mem_realloc_array(void *p, size_t n, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(n, size, &bytes))
		return NULL;
	return mem_realloc(p, bytes);
}

void *mem_dup(const void *p, size_t size)
{
	void *copy = mem_alloc(size);

	if (copy && size)
		memcpy(copy, p, size);
	return copy;
}

char *mem_strndup(const char *s, size_t n)
{
	size_t len = strnlen(s, n);
	char *copy = mem_alloc(len + 1);

	if (copy)
		memcpy(copy, s, len);
	return copy;
}

char *mem_strdup(const char *s)
{
	return s ? mem_dup(s, strlen(s) + 1) : NULL;
}

char *mem_vprintf(const char *fmt, va_list ap)
{
	va_list again;

	va_copy(again, ap);
	int n = vsnprintf(NULL, 0, fmt, ap);
	char *out = n < 0 ? NULL : mem_alloc((size_t)n + 1);

	if (out)
		(void)vsnprintf(out, (size_t)n + 1, fmt, again); /* the size was measured above */
	va_end(again);
	return out;
}

char *mem_printf(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	char *out = mem_vprintf(fmt, ap);

	va_end(ap);
	return out;
}

void *mem_free(void *p)
{
	if (p) {
		atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
		free(p);
	}
	return NULL;
}

bool mem_grow(void **array, size_t *cap, size_t n, size_t item_size)
{
	if (n < *cap)
		return true;
	size_t want = *cap ? *cap * 2 : 4;

	while (want <= n)
		want *= 2;
	void *grown = mem_realloc_array(*array, want, item_size);

	if (!grown)
		return false;
	*array = grown;
	*cap = want;
	return true;
}
