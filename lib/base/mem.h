/* lib/base/mem.h - every allocation of Ferry, with fault injection for tests.
 *
 * Any thread may allocate.  The fault hook is for single-threaded tests only.
 * Failing is an answer (NULL), never an abort: callers report RC_NOMEM.
 */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include <stdarg.h>

#include "base/macro.h"

void *mem_alloc(size_t size);		 /* zeroed; NULL when out of memory */
void *mem_calloc(size_t n, size_t size); /* zeroed; checks n * size */
void *mem_realloc(void *p, size_t size); /* new bytes are not zeroed */
void *mem_realloc_array(void *p, size_t n, size_t size);
void *mem_dup(const void *p, size_t size);
char *mem_strdup(const char *s);	    /* NULL in, NULL out */
char *mem_strndup(const char *s, size_t n); /* copies at most n bytes, always terminated */
char *mem_printf(const char *fmt, ...) PRINTF_LIKE(1, 2); /* NULL when out of memory */
char *mem_vprintf(const char *fmt, va_list ap) PRINTF_LIKE(1, 0);
/* Accepts NULL.  Returns NULL, so `p = mem_free(p)` clears the variable. */
void *mem_free(void *p);

static inline UNUSED void mem_freep(void *p)
{
	mem_free(*(void **)p);
}

/* Grow an array so that it can hold n + 1 items; the capacity doubles.  False: out of memory. */
MUST_CHECK bool mem_grow(void **array, size_t *cap, size_t n, size_t item_size);

/* Tests: let the nth allocation from now fail (1 = the next one). */
void mem_fault_arm(unsigned nth);
/* Stop injecting; true when the fault was delivered. */
bool mem_fault_disarm(void);
/* Blocks allocated and not yet freed, by the whole process. */
size_t mem_live_blocks(void);

#endif
