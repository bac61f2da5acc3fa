/* lib/base/str.h - views into text, whole-string number parsers, small tests.
 *
 * No state.  struct str borrows: it is valid as long as what it points into.
 */
#ifndef BASE_STR_H
#define BASE_STR_H

#include <string.h>

#include "base/err.h"

struct str {
	const char *p;
	size_t n;
};

static inline struct str str_of(const char *s)
{
	return (struct str){s, s ? strlen(s) : 0};
}

static inline bool str_eq(const char *a, const char *b) /* NULL equals only NULL */
{
	return a == b || (a && b && strcmp(a, b) == 0);
}

static inline bool str_view_eq(struct str a, const char *b)
{
	return b && strlen(b) == a.n && memcmp(a.p, b, a.n) == 0;
}

static inline bool str_is_empty(const char *s) /* NULL or "" */
{
	return !s || !*s;
}

bool str_has_prefix(const char *s, const char *prefix);
bool str_has_suffix(const char *s, const char *suffix);
/* Cut *rest at the first sep: returns the part before it, *rest is what follows (p NULL at the end). */
struct str str_split(struct str *rest, char sep);
struct str str_trim(struct str s);
/* Is word one of those that sep separates in list (NULL: none)? */
bool str_list_has(const char *list, char sep, const char *word);

/* Whole string, no blanks, range checked; RC_INVALID with the text quoted otherwise. */
MUST_CHECK enum rc str_to_i64(const char *s, int64_t min, int64_t max, int64_t *out,
			      struct err *err);
MUST_CHECK enum rc str_to_u64(const char *s, uint64_t max, uint64_t *out, struct err *err);
/* A duration as Go writes it ("90s", "1h30m", "1.5s", "0"; units h, m, s, ms, us or µs, ns), without a sign, of at most
 * max microseconds; what is less than one of them is one.  RC_INVALID with the text quoted otherwise.
 * Source: Go's time.ParseDuration, in which Kubernetes' Duration is written. */
MUST_CHECK enum rc str_to_duration(const char *s, usec_t max, usec_t *out, struct err *err);

/* An absolute path that names something below the root, without "", "." or ".." in it. */
bool str_is_plain_path(const char *s);
bool str_is_dns_label(const char *s);	  /* RFC 1123 label, at most 63 */
bool str_is_dns_subdomain(const char *s); /* RFC 1123 subdomain, at most 253 */
/* Length of the well-formed UTF-8 sequence at s, of which n >= 1 bytes are there; 0 when it is none: cut,
 * overlong, a surrogate, above U+10FFFF (Unicode, table 3-7). */
size_t str_utf8_len(const char *s, size_t n);
int str_hex_digit(char c); /* 0 to 15, -1: none */
/* Lower-case hex digits of n bytes: out has room for 2 * n + 1. */
void str_hex(const void *bytes, size_t n, char *out);
/* Levenshtein distance, capped at 64; for "did you mean" lists. */
unsigned str_distance(const char *a, const char *b);
/* FNV-1a, for hash tables and stable names; not for security. */
uint64_t str_hash(const void *p, size_t n);

#endif
