/* lib/api/quantity.h - Kubernetes quantities, exactly.
 *
 * A value is kept in billionths, as Kubernetes keeps it: finer digits are rounded up (away from
 * zero), values beyond 2^63-1 are capped there.  No state.
 */
#ifndef API_QUANTITY_H
#define API_QUANTITY_H

#include "base/err.h"
#include "base/sbuf.h"

enum api_quantity_format { API_Q_DECIMAL, API_Q_BINARY, API_Q_EXPONENT };

struct api_quantity {
	__int128 nano;
	enum api_quantity_format format; /* as it was written; decides how it is printed */
};

/* Whole string.  RC_INVALID with Kubernetes' text: "quantities must match the regular expression
 * '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'". */
MUST_CHECK enum rc api_quantity_parse(const char *s, struct api_quantity *out, struct err *err);
bool api_quantity_is_valid(const char *s);
/* Whole units (bytes, cores), rounded up. */
int64_t api_quantity_value(const struct api_quantity *q);
/* Thousandths, rounded up, capped. */
int64_t api_quantity_milli(const struct api_quantity *q);
bool api_quantity_is_integral(const struct api_quantity *q);
int api_quantity_cmp(const struct api_quantity *a, const struct api_quantity *b);
struct api_quantity api_quantity_of(int64_t value, enum api_quantity_format format);
struct api_quantity api_quantity_of_milli(int64_t milli);
struct api_quantity api_quantity_add(const struct api_quantity *a, const struct api_quantity *b);
/* Canonical text ("1536Mi", "500m", "1k"), appended. */
void api_quantity_print(const struct api_quantity *q, struct sbuf *out);

/* Text to bytes (or whole units) and to thousandths; NULL or malformed text gives fallback. */
int64_t api_quantity_bytes(const char *s, int64_t fallback);
int64_t api_quantity_to_milli(const char *s, int64_t fallback);
/* Canonical text of a number of bytes in binary units, or of thousandths in decimal ones; owned by
 * the caller, NULL when out of memory. */
char *api_quantity_text_bytes(int64_t bytes);
char *api_quantity_text_milli(int64_t milli);

#endif
