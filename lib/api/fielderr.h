/* lib/api/fielderr.h - all faults of one object, each with its field path, in Kubernetes' words.
 *
 * Owner's thread only.  Adding never fails visibly: fe->rc is RC_NOMEM when something could not be
 * kept, and findings above LIMIT_FIELD_ERRORS are only counted.
 */
#ifndef API_FIELDERR_H
#define API_FIELDERR_H

#include "base/err.h"
#include "base/sbuf.h"

struct json;

enum fe_type {
	FE_INVALID,	  /* FieldValueInvalid */
	FE_REQUIRED,	  /* FieldValueRequired */
	FE_NOT_SUPPORTED, /* FieldValueNotSupported: not one of the enum's values */
	FE_FORBIDDEN,	  /* FieldValueForbidden */
	FE_DUPLICATE,	  /* FieldValueDuplicate */
	FE_TYPE_INVALID,  /* FieldValueTypeInvalid */
	FE_TOO_LONG,	  /* FieldValueTooLong */
	FE_TOO_MANY,	  /* FieldValueTooMany */
	FE_UNKNOWN,	  /* strict decoding: unknown field "spec.foo" */
	FE_CAUSE,	  /* a ready-made cause: reason and message as given */
	FE__MAX
};

struct field_err {
	enum fe_type type;
	char *field;	  /* "spec.volumes[0].name"; may be "" */
	char *message;	  /* cause message: `Invalid value: "x": why` */
	char *reason;	  /* FE_CAUSE: as given; else NULL (use fe_reason()) */
	bool is_rejected; /* fe_rejected(): by the support level */
};

struct field_errs {
	struct field_err *items;
	size_t n;
	size_t n_lost; /* above the limit */
	char **warnings;
	size_t n_warnings;
	enum rc rc;
};

#define FIELD_ERRS_INIT     \
	{                   \
		.rc = RC_OK \
	}

void fe_fini(struct field_errs *fe);
static inline bool fe_is_ok(const struct field_errs *fe)
{
	return fe->n == 0 && fe->rc == RC_OK;
}

/* Each adds one finding.  value: the offending value as text, quoted in the message ("" is shown). */
void fe_invalid(struct field_errs *fe, const char *field, const char *value, const char *fmt, ...)
	PRINTF_LIKE(4, 5);
void fe_invalid_json(struct field_errs *fe, const char *field, const struct json *value,
		     const char *fmt, ...) PRINTF_LIKE(4, 5);
void fe_required(struct field_errs *fe, const char *field,
		 const char *detail); /* detail may be NULL */
void fe_forbidden(struct field_errs *fe, const char *field, const char *fmt, ...) PRINTF_LIKE(3, 4);
void fe_duplicate(struct field_errs *fe, const char *field, const char *value);
/* values: NULL-terminated. */
void fe_not_supported(struct field_errs *fe, const char *field, const char *value,
		      const char *const *values);
/* "spec.x: not supported by Ferry yet"; with a reason: "spec.x: not supported by Ferry: <why>". */
void fe_rejected(struct field_errs *fe, const char *field, const char *why);
void fe_unknown(struct field_errs *fe, const char *field);
/* KubeVirt's own shape: reason ("FieldValueInvalid"...) and message as they are. */
void fe_cause(struct field_errs *fe, const char *reason, const char *field, const char *fmt, ...)
	PRINTF_LIKE(4, 5);
/* Any type but FE_CAUSE with a ready-made message. */
void fe_add(struct field_errs *fe, enum fe_type type, const char *field, const char *fmt, ...)
	PRINTF_LIKE(4, 5);
void fe_warn(struct field_errs *fe, const char *fmt, ...) PRINTF_LIKE(2, 3);

const char *fe_reason(const struct field_err *e); /* "FieldValueInvalid" */
bool fe_has(const struct field_errs *fe, enum fe_type type);
size_t fe_count(const struct field_errs *fe, enum fe_type type);
/* Findings of one type only (FE__MAX: of every type but FE_UNKNOWN), as Kubernetes joins them:
 * one: `field: message`; several: `[field: message, field: message]`. */
void fe_summary(const struct field_errs *fe, enum fe_type type, struct sbuf *out);
/* `unknown field "a", unknown field "b"`: what follows "strict decoding error: ". */
void fe_unknown_summary(const struct field_errs *fe, struct sbuf *out);
/* [{reason, message, field}] of every finding but FE_UNKNOWN; NULL when out of memory. */
struct json *fe_causes(const struct field_errs *fe);

#endif
