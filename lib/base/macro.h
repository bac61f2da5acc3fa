/* lib/base/macro.h - compiler helpers that every file may use.
 *
 * No state, no functions with side effects; safe to include anywhere.
 */
#ifndef BASE_MACRO_H
#define BASE_MACRO_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MUST_CHECK		 __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt_, args_) __attribute__((format(printf, fmt_, args_)))
#define UNUSED			 __attribute__((unused))
#define NORETURN		 __attribute__((noreturn))

#define ARRAY_SIZE(a_)		 (sizeof(a_) / sizeof((a_)[0]))
#define CONTAINER_OF(ptr_, type_, member_) \
	((type_ *)(void *)((char *)(ptr_)-offsetof(type_, member_)))

/* Run fn_ on the variable's address when it leaves scope. */
#define CLEANUP(fn_) __attribute__((cleanup(fn_)))

/* Make namep(): a cleanup for variables of pointer type_ that calls fn_(), which accepts NULL. */
#define DEFINE_CLEANUP(type_, fn_)                 \
	static inline UNUSED void fn_##p(type_ *v) \
	{                                          \
		if (*v)                            \
			fn_(*v);                   \
	}                                          \
	struct base_swallow_semicolon_

/* Hand the value of an owned pointer over; the variable becomes NULL. */
#define STEAL(p_)                          \
	__extension__({                    \
		__auto_type steal_ = (p_); \
		(p_) = NULL;               \
		steal_;                    \
	})

/* The same for a file descriptor; the variable becomes -1. */
#define STEAL_FD(fd_)               \
	__extension__({             \
		int steal_ = (fd_); \
		(fd_) = -1;         \
		steal_;             \
	})

#define MIN(a_, b_) ((a_) < (b_) ? (a_) : (b_))
#define MAX(a_, b_) ((a_) > (b_) ? (a_) : (b_))

/* Instants and durations are microseconds unless a name says otherwise. */
typedef uint64_t usec_t;
#define USEC_PER_MSEC ((usec_t)1000)
#define USEC_PER_SEC  ((usec_t)1000000)
#define USEC_INFINITY UINT64_MAX

#define KIB	      ((uint64_t)1024)
#define MIB	      (KIB * 1024)
#define GIB	      (MIB * 1024)

#endif
