#include "api/quantity.h"

#include <string.h>

#include "base/mem.h"
#include "base/str.h"

#define NANO	 ((__int128)1000000000)
#define MAX_NANO ((__int128)INT64_MAX * NANO)
#define GRAMMAR                                         \
	"quantities must match the regular expression " \
	"'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"

static const struct suffix {
	const char *text;
	int exp10;
	int exp2;
} suffixes[] = {
	{"", 0, 0},    {"n", -9, 0},  {"u", -6, 0},  {"m", -3, 0},  {"k", 3, 0},   {"M", 6, 0},
	{"G", 9, 0},   {"T", 12, 0},  {"P", 15, 0},  {"E", 18, 0},  {"Ki", 0, 10}, {"Mi", 0, 20},
	{"Gi", 0, 30}, {"Ti", 0, 40}, {"Pi", 0, 50}, {"Ei", 0, 60},
};

/* A number as written: digits without the point, and where the point is. */
struct numeral {
	const char *p;
	size_t n;      /* characters, the point included */
	int64_t point; /* digits before the point, after shifting by the exponent */
	bool is_negative;
};

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static enum rc parse_numeral(const char **at, struct numeral *out, struct err *err)
{
	const char *s = *at;
	size_t digits = 0, points = 0;

	*out = (struct numeral){.is_negative = *s == '-'};
	if (*s == '-' || *s == '+')
		s++;
	out->p = s;
	for (; is_digit(*s) || *s == '.'; s++) {
		if (*s == '.') {
			if (points++)
				return err_set(err, RC_INVALID, GRAMMAR);
			continue;
		}
		digits++;
		out->point += !points;
	}
	if (!digits)
		return err_set(err, RC_INVALID, GRAMMAR);
	out->n = (size_t)(s - out->p);
	*at = s;
	return RC_OK;
}

/* Everything after the number: shifts the point, or gives a power of two. */
static enum rc parse_suffix(const char *s, int64_t *exp10, int *exp2,
			    enum api_quantity_format *format, struct err *err)
{
	size_t letters = strspn(s, "eEinumkKMGTP");
	const char *tail = s + letters;

	*exp2 = 0;
	if (*tail == '-' || *tail == '+')
		tail++;
	if (tail[strspn(tail, "0123456789")])
		return err_set(err, RC_INVALID, GRAMMAR);
	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
		if (!str_eq(suffixes[i].text, s))
			continue;
		*exp10 = suffixes[i].exp10;
		*exp2 = suffixes[i].exp2;
		*format = *exp2 ? API_Q_BINARY : API_Q_DECIMAL;
		return RC_OK;
	}
	if ((*s == 'e' || *s == 'E') && letters == 1) {
		const char *number = s + 1 + (s[1] == '+');

		if (is_digit(number[*number == '-']) &&
		    !str_to_i64(number, INT32_MIN, INT32_MAX, exp10, NULL)) {
			*format = API_Q_EXPONENT;
			return RC_OK;
		}
	}
	return err_set(err, RC_INVALID, "unable to parse quantity's suffix");
}

/* Integer part (capped) and 18 digits of fraction; *more: something non-zero follows them. */
static void split(const struct numeral *num, __int128 *whole, __int128 *frac, bool *more)
{
	int64_t pos = 0; /* index of the digit, the point not counted */
	const __int128 enough = (__int128)INT64_MAX * 2;
	int64_t n_frac = 0;

	*whole = *frac = 0;
	*more = false;
	if (num->point < 0)
		n_frac = MIN(-num->point, 18);
	for (size_t i = 0; i < num->n; i++) {
		if (num->p[i] == '.')
			continue;
		int digit = num->p[i] - '0';

		if (pos < num->point) {
			if (*whole < enough)
				*whole = *whole * 10 + digit;
		} else if (n_frac < 18) {
			*frac = *frac * 10 + digit;
			n_frac++;
		} else if (digit) {
			*more = true;
		}
		pos++;
	}
	for (; pos < num->point && *whole && *whole < enough; pos++)
		*whole *= 10;
	for (; n_frac < 18; n_frac++)
		*frac *= 10;
}

enum rc api_quantity_parse(const char *s, struct api_quantity *out, struct err *err)
{
	struct numeral num;
	enum api_quantity_format format = API_Q_DECIMAL;
	__int128 whole, frac, nano = MAX_NANO;
	int64_t exp10 = 0;
	int exp2 = 0;
	bool more;
	enum rc rc;

	if (str_is_empty(s))
		return err_set(err, RC_INVALID, GRAMMAR);
	rc = parse_numeral(&s, &num, err);
	if (!rc)
		rc = parse_suffix(s, &exp10, &exp2, &format, err);
	if (rc)
		return rc;
	num.point += exp10;
	split(&num, &whole, &frac, &more);

	__int128 scale = (__int128)1 << exp2;

	/* whole <= 2^64 * 10, scale <= 2^60: no overflow below */
	if (whole <= INT64_MAX && whole * scale <= INT64_MAX) {
		__int128 f = frac * scale; /* in 10^-18 */

		nano = whole * scale * NANO + f / NANO + (f % NANO || more);
		nano = MIN(nano, MAX_NANO);
	}
	*out = (struct api_quantity){num.is_negative ? -nano : nano, format};
	return RC_OK;
}

bool api_quantity_is_valid(const char *s)
{
	struct api_quantity q;

	return api_quantity_parse(s, &q, NULL) == RC_OK;
}

/* Division rounding away from zero. */
static __int128 div_up(__int128 v, __int128 by)
{
	__int128 q = v / by;

	if (v % by)
		q += v < 0 ? -1 : 1;
	return q;
}

int64_t api_quantity_value(const struct api_quantity *q)
{
	return (int64_t)div_up(q->nano, NANO);
}

int64_t api_quantity_milli(const struct api_quantity *q)
{
	__int128 v = div_up(q->nano, 1000000);

	return (int64_t)(v > INT64_MAX ? INT64_MAX : v < INT64_MIN ? INT64_MIN : v);
}

bool api_quantity_is_integral(const struct api_quantity *q)
{
	return q->nano % NANO == 0;
}

int api_quantity_cmp(const struct api_quantity *a, const struct api_quantity *b)
{
	return (a->nano > b->nano) - (a->nano < b->nano);
}

struct api_quantity api_quantity_of(int64_t value, enum api_quantity_format format)
{
	return (struct api_quantity){value * NANO, format};
}

struct api_quantity api_quantity_of_milli(int64_t milli)
{
	return (struct api_quantity){(__int128)milli * 1000000, API_Q_DECIMAL};
}

struct api_quantity api_quantity_add(const struct api_quantity *a, const struct api_quantity *b)
{
	__int128 sum = a->nano + b->nano;

	sum = MIN(sum, MAX_NANO);
	return (struct api_quantity){MAX(sum, -MAX_NANO), a->nano ? a->format : b->format};
}

static void print_int(__int128 v, struct sbuf *out)
{
	char text[48], *p = text + sizeof(text);
	bool negative = v < 0;

	*--p = '\0';
	do {
		int digit = (int)(v % 10);

		*--p = (char)('0' + (digit < 0 ? -digit : digit));
		v /= 10;
	} while (v);
	if (negative)
		*--p = '-';
	sbuf_adds(out, p);
}

static void print_binary(__int128 v, struct sbuf *out)
{
	static const char *const names[] = {"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"};
	size_t i = 0;

	while (i + 1 < ARRAY_SIZE(names) && v % 1024 == 0) {
		v /= 1024;
		i++;
	}
	print_int(v, out);
	sbuf_adds(out, names[i]);
}

void api_quantity_print(const struct api_quantity *q, struct sbuf *out)
{
	static const char *const names[] = {"n", "u", "m", "", "k", "M", "G", "T", "P", "E"};
	__int128 v = q->nano;
	size_t i = 0;

	if (!v) {
		sbuf_addc(out, '0');
		return;
	}
	if (q->format == API_Q_BINARY && v % NANO == 0 && (v / NANO >= 1024 || v / NANO <= -1024)) {
		print_binary(v / NANO, out);
		return;
	}
	while (i + 1 < ARRAY_SIZE(names) && v % 1000 == 0) {
		v /= 1000;
		i++;
	}
	print_int(v, out);
	if (q->format != API_Q_EXPONENT)
		sbuf_adds(out, names[i]);
	else if (i != 3)
		sbuf_addf(out, "e%d", ((int)i - 3) * 3);
}

int64_t api_quantity_bytes(const char *s, int64_t fallback)
{
	struct api_quantity q;

	return api_quantity_parse(s, &q, NULL) ? fallback : api_quantity_value(&q);
}

int64_t api_quantity_to_milli(const char *s, int64_t fallback)
{
	struct api_quantity q;

	return api_quantity_parse(s, &q, NULL) ? fallback : api_quantity_milli(&q);
}

static char *to_text(const struct api_quantity *q)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(64);
	char *text = NULL;

	api_quantity_print(q, &b);
	return sbuf_take(&b, &text, NULL) ? NULL : text;
}

char *api_quantity_text_bytes(int64_t bytes)
{
	struct api_quantity q = api_quantity_of(bytes, API_Q_BINARY);

	return to_text(&q);
}

char *api_quantity_text_milli(int64_t milli)
{
	struct api_quantity q = api_quantity_of_milli(milli);

	return to_text(&q);
}
