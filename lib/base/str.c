#include "base/str.h"

#include <errno.h>
#include <stdlib.h>

bool str_has_prefix(const char *s, const char *prefix)
{
	return s && strncmp(s, prefix, strlen(prefix)) == 0;
}

bool str_has_suffix(const char *s, const char *suffix)
{
	size_t n = s ? strlen(s) : 0;
	size_t m = strlen(suffix);

	return s && n >= m && memcmp(s + n - m, suffix, m) == 0;
}

struct str str_split(struct str *rest, char sep)
{
	struct str head = *rest;
	const char *at = rest->p ? memchr(rest->p, sep, rest->n) : NULL;

	if (!at) {
		*rest = (struct str){NULL, 0};
		return head;
	}
	head.n = (size_t)(at - rest->p);
	rest->p = at + 1;
	rest->n -= head.n + 1;
	return head;
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

bool str_list_has(const char *list, char sep, const char *word)
{
	struct str rest = str_of(list);

	while (rest.p)
		if (str_view_eq(str_split(&rest, sep), word))
			return true;
	return false;
}

bool str_is_plain_path(const char *s)
{
	struct str rest = s && *s == '/' ? str_of(s + 1) : (struct str){0};
	bool is_ok = rest.p;

	while (rest.p && is_ok) {
		struct str part = str_split(&rest, '/');

		is_ok = part.n && !str_view_eq(part, ".") && !str_view_eq(part, "..");
	}
	return is_ok;
}

struct str str_trim(struct str s)
{
	while (s.n && is_blank(s.p[0])) {
		s.p++;
		s.n--;
	}
	while (s.n && is_blank(s.p[s.n - 1]))
		s.n--;
	return s;
}

enum rc str_to_i64(const char *s, int64_t min, int64_t max, int64_t *out, struct err *err)
{
	char *end = NULL;

	if (str_is_empty(s) || !((*s >= '0' && *s <= '9') || (*s == '-' && s[1])))
		return err_set(err, RC_INVALID, "'%s' is not a whole number", s ? s : "");
	errno = 0;
	long long v = strtoll(s, &end, 10);

	if (*end)
		return err_set(err, RC_INVALID, "'%s' is not a whole number", s);
	if (errno || v < min || v > max)
		return err_set(err, RC_INVALID, "%s is outside %lld to %lld", s, (long long)min,
			       (long long)max);
	*out = v;
	return RC_OK;
}

enum rc str_to_u64(const char *s, uint64_t max, uint64_t *out, struct err *err)
{
	char *end = NULL;

	if (str_is_empty(s) || *s < '0' || *s > '9')
		return err_set(err, RC_INVALID, "'%s' is not a whole number", s ? s : "");
	errno = 0;
	unsigned long long v = strtoull(s, &end, 10);

	if (*end)
		return err_set(err, RC_INVALID, "'%s' is not a whole number", s);
	if (errno || v > max)
		return err_set(err, RC_INVALID, "%s is more than %llu", s, (unsigned long long)max);
	*out = v;
	return RC_OK;
}

#define NSEC_PER_USEC ((uint64_t)1000)

/* The unit that s begins with, in nanoseconds, and where it ends; 0: none. */
static uint64_t duration_unit(const char *s, const char **end)
{
	static const struct {
		const char *name;
		uint64_t nsec;
	} units[] = {{"ns", 1},	      {"us", 1000},	 {"µs", 1000},	     {"μs", 1000},
		     {"ms", 1000000}, {"s", 1000000000}, {"m", 60000000000}, {"h", 3600000000000}};

	for (size_t i = 0; i < ARRAY_SIZE(units); i++)
		if (str_has_prefix(s, units[i].name)) {
			*end = s + strlen(units[i].name);
			return units[i].nsec;
		}
	return 0;
}

/* One number with its unit, added to *nsec; *text goes on behind it. */
static bool add_duration(const char **text, uint64_t *nsec)
{
	uint64_t whole = 0, part = 0, scale = 1, sum;
	const char *s = *text;
	size_t digits = 0;

	for (; *s >= '0' && *s <= '9'; s++, digits++)
		if (__builtin_mul_overflow(whole, 10, &whole) ||
		    __builtin_add_overflow(whole, (uint64_t)(*s - '0'), &whole))
			return false;
	if (*s == '.')
		for (s++; *s >= '0' && *s <= '9'; s++, digits++)
			if (scale < 1000000000) { /* the rest: under 4 us of an hour */
				part = part * 10 + (uint64_t)(*s - '0');
				scale *= 10;
			}
	uint64_t unit = digits ? duration_unit(s, text) : 0;

	if (!unit || __builtin_mul_overflow(whole, unit, &sum) ||
	    __builtin_add_overflow(sum, (uint64_t)((double)part * ((double)unit / (double)scale)),
				   &sum))
		return false;
	return !__builtin_add_overflow(*nsec, sum, nsec);
}

enum rc str_to_duration(const char *s, usec_t max, usec_t *out, struct err *err)
{
	const char *text = s ? s : "";
	uint64_t nsec = 0;
	bool good = !str_is_empty(s);

	if (good && strcmp(s, "0") == 0)
		text = "0s";
	while (good && *text)
		good = add_duration(&text, &nsec);
	if (!good)
		return err_set(err, RC_INVALID,
			       "'%s' is not a duration such as 500ms, 30s or 1h30m", s ? s : "");
	usec_t usec = nsec / NSEC_PER_USEC + (nsec % NSEC_PER_USEC ? 1 : 0);

	if (usec > max)
		return err_set(err, RC_INVALID, "%s is more than %.9gs", s,
			       (double)max / (double)USEC_PER_SEC);
	*out = usec;
	return RC_OK;
}

static bool is_alnum_lower(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

static bool label_ok(struct str s)
{
	if (s.n == 0 || s.n > 63 || !is_alnum_lower(s.p[0]) || !is_alnum_lower(s.p[s.n - 1]))
		return false;
	for (size_t i = 0; i < s.n; i++)
		if (!is_alnum_lower(s.p[i]) && s.p[i] != '-')
			return false;
	return true;
}

bool str_is_dns_label(const char *s)
{
	return s && label_ok(str_of(s));
}

bool str_is_dns_subdomain(const char *s)
{
	struct str rest = str_of(s);

	if (rest.n == 0 || rest.n > 253)
		return false;
	while (rest.p) {
		struct str part = str_split(&rest, '.');

		/* A subdomain's parts have no length limit of their own (apimachinery). */
		if (part.n == 0 || !is_alnum_lower(part.p[0]) ||
		    !is_alnum_lower(part.p[part.n - 1]))
			return false;
		for (size_t i = 0; i < part.n; i++)
			if (!is_alnum_lower(part.p[i]) && part.p[i] != '-')
				return false;
	}
	return true;
}

unsigned str_distance(const char *a, const char *b)
{
	enum { CAP = 64 };
	unsigned row[CAP + 1];
	size_t n = strnlen(a, CAP);
	size_t m = strnlen(b, CAP);

	for (size_t j = 0; j <= m; j++)
		row[j] = (unsigned)j;
	for (size_t i = 1; i <= n; i++) {
		unsigned diag = row[0];

		row[0] = (unsigned)i;
		for (size_t j = 1; j <= m; j++) {
			unsigned best = diag + (a[i - 1] != b[j - 1]);

			diag = row[j];
			best = MIN(best, row[j] + 1);
			row[j] = MIN(best, row[j - 1] + 1);
		}
	}
	return row[m];
}

uint64_t str_hash(const void *p, size_t n)
{
	const unsigned char *s = p;
	uint64_t h = 0xcbf29ce484222325u;

	for (size_t i = 0; i < n; i++)
		h = (h ^ s[i]) * 0x100000001b3u;
	return h;
}

size_t str_utf8_len(const char *s, size_t n)
{
	const unsigned char *p = (const unsigned char *)s;
	static const struct {
		unsigned char lead_min, lead_max, second_min, second_max, len;
	} rows[] = {
		{0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
		{0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3},
		{0xee, 0xef, 0x80, 0xbf, 3}, {0xf0, 0xf0, 0x90, 0xbf, 4},
		{0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
	};

	if (p[0] < 0x80)
		return 1;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		if (p[0] < rows[i].lead_min || p[0] > rows[i].lead_max)
			continue;
		if (n < rows[i].len || p[1] < rows[i].second_min || p[1] > rows[i].second_max)
			return 0;
		for (size_t k = 2; k < rows[i].len; k++)
			if (p[k] < 0x80 || p[k] > 0xbf)
				return 0;
		return rows[i].len;
	}
	return 0;
}

void str_hex(const void *bytes, size_t n, char *out)
{
	static const char digits[] = "0123456789abcdef";
	const unsigned char *p = bytes;

	for (size_t i = 0; i < n; i++) {
		*out++ = digits[p[i] >> 4];
		*out++ = digits[p[i] & 15];
	}
	*out = '\0';
}

int str_hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}
