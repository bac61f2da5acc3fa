#include "api/fielderr.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"
#include "json/json.h"

enum { MESSAGE_MAX = 16384, VALUE_MAX = 512 };

static const char *const reasons[] = {
	[FE_INVALID] = "FieldValueInvalid",
	[FE_REQUIRED] = "FieldValueRequired",
	[FE_NOT_SUPPORTED] = "FieldValueNotSupported",
	[FE_FORBIDDEN] = "FieldValueForbidden",
	[FE_DUPLICATE] = "FieldValueDuplicate",
	[FE_TYPE_INVALID] = "FieldValueTypeInvalid",
	[FE_TOO_LONG] = "FieldValueTooLong",
	[FE_TOO_MANY] = "FieldValueTooMany",
	[FE_UNKNOWN] = "FieldValueInvalid",
	[FE_CAUSE] = "FieldValueInvalid",
};
static_assert(ARRAY_SIZE(reasons) == FE__MAX, "name every type of field error");

void fe_fini(struct field_errs *fe)
{
	for (size_t i = 0; i < fe->n; i++) {
		mem_free(fe->items[i].field);
		mem_free(fe->items[i].message);
		mem_free(fe->items[i].reason);
	}
	for (size_t i = 0; i < fe->n_warnings; i++)
		mem_free(fe->warnings[i]);
	mem_free(fe->items);
	mem_free(fe->warnings);
	*fe = (struct field_errs)FIELD_ERRS_INIT;
}

/* Takes message over. */
static void put(struct field_errs *fe, enum fe_type type, const char *field, const char *reason,
		char *message)
{
	struct field_err e = {.type = type, .message = message};
	struct field_err *items;

	if (fe->n >= LIMIT_FIELD_ERRORS) {
		fe->n_lost++;
		mem_free(message);
		return;
	}
	e.field = mem_strdup(field ? field : "");
	e.reason = mem_strdup(reason);
	items = mem_realloc_array(fe->items, fe->n + 1, sizeof(*items));
	if (items)
		fe->items = items;
	if (!items || !e.field || !message || (reason && !e.reason)) {
		fe->rc = RC_NOMEM;
		mem_free(e.field);
		mem_free(e.reason);
		mem_free(message);
		return;
	}
	fe->items[fe->n++] = e;
}

static char *format(const char *fmt, va_list ap) PRINTF_LIKE(1, 0);
static char *format(const char *fmt, va_list ap)
{
	va_list again;
	char *text = NULL;

	va_copy(again, ap);
	int n = vsnprintf(NULL, 0, fmt, again);

	va_end(again);
	if (n >= 0)
		text = mem_alloc((size_t)n + 1);
	if (text)
		vsnprintf(text, (size_t)n + 1, fmt, ap);
	return text;
}

/* Text in JSON quotes, cut to a sane length; NULL when out of memory. */
static char *quote(const char *value)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(MESSAGE_MAX);
	size_t n = value ? strlen(value) : 0, cut = MIN(n, (size_t)VALUE_MAX);
	char *text = NULL;

	while (cut < n && cut && ((unsigned char)value[cut] & 0xc0) == 0x80)
		cut--; /* not within a character */
	CLEANUP(js_unrefp) struct json *j = js_new_strn(value ? value : "", cut);

	if (!j)
		return NULL;
	js_print(j, &b, false);
	if (cut < n)
		sbuf_adds(&b, "...");
	return sbuf_take(&b, &text, NULL) ? NULL : text;
}

static void invalid(struct field_errs *fe, const char *field, const char *shown, const char *fmt,
		    va_list ap) PRINTF_LIKE(4, 0);
static void invalid(struct field_errs *fe, const char *field, const char *shown, const char *fmt,
		    va_list ap)
{
	CLEANUP(mem_freep) char *detail = format(fmt, ap);
	char *message = NULL;

	if (shown && detail)
		message = mem_printf("Invalid value: %s: %s", shown, detail);
	put(fe, FE_INVALID, field, NULL, message);
}

void fe_invalid(struct field_errs *fe, const char *field, const char *value, const char *fmt, ...)
{
	CLEANUP(mem_freep) char *shown = quote(value);
	va_list ap;

	va_start(ap, fmt);
	invalid(fe, field, shown, fmt, ap);
	va_end(ap);
}

void fe_invalid_json(struct field_errs *fe, const char *field, const struct json *value,
		     const char *fmt, ...)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(MESSAGE_MAX);
	CLEANUP(mem_freep) char *shown = NULL;
	va_list ap;

	if (js_is_string(value)) {
		shown = quote(js_str(value));
	} else {
		js_print(value, &b, false);
		if (b.n > VALUE_MAX || b.rc == RC_TOO_BIG)
			shown = mem_printf("\"%s\"", js_type_name(js_type(value)));
		else if (!b.rc)
			shown = mem_strdup(sbuf_str(&b));
	}
	va_start(ap, fmt);
	invalid(fe, field, shown, fmt, ap);
	va_end(ap);
}

void fe_required(struct field_errs *fe, const char *field, const char *detail)
{
	put(fe, FE_REQUIRED, field, NULL,
	    detail ? mem_printf("Required value: %s", detail) : mem_strdup("Required value"));
}

void fe_forbidden(struct field_errs *fe, const char *field, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	CLEANUP(mem_freep) char *detail = format(fmt, ap);

	va_end(ap);
	put(fe, FE_FORBIDDEN, field, NULL, detail ? mem_printf("Forbidden: %s", detail) : NULL);
}

void fe_duplicate(struct field_errs *fe, const char *field, const char *value)
{
	CLEANUP(mem_freep) char *shown = quote(value);

	put(fe, FE_DUPLICATE, field, NULL, shown ? mem_printf("Duplicate value: %s", shown) : NULL);
}

void fe_not_supported(struct field_errs *fe, const char *field, const char *value,
		      const char *const *values)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(MESSAGE_MAX);
	CLEANUP(mem_freep) char *shown = quote(value);
	char *message = NULL;

	if (shown)
		sbuf_addf(&b, "Unsupported value: %s: supported values: ", shown);
	for (size_t i = 0; values[i]; i++)
		sbuf_addf(&b, "%s\"%s\"", i ? ", " : "", values[i]);
	if (!shown || sbuf_take(&b, &message, NULL))
		message = NULL;
	put(fe, FE_NOT_SUPPORTED, field, NULL, message);
}

void fe_rejected(struct field_errs *fe, const char *field, const char *why)
{
	size_t n = fe->n;

	put(fe, FE_FORBIDDEN, field, NULL,
	    why ? mem_printf("not supported by Ferry: %s", why)
		: mem_strdup("not supported by Ferry yet"));
	if (fe->n > n)
		fe->items[n].is_rejected = true;
}

void fe_unknown(struct field_errs *fe, const char *field)
{
	put(fe, FE_UNKNOWN, field, NULL, mem_printf("unknown field \"%s\"", field));
}

void fe_cause(struct field_errs *fe, const char *reason, const char *field, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	put(fe, FE_CAUSE, field, reason, format(fmt, ap));
	va_end(ap);
}

void fe_add(struct field_errs *fe, enum fe_type type, const char *field, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	put(fe, type, field, NULL, format(fmt, ap));
	va_end(ap);
}

void fe_warn(struct field_errs *fe, const char *fmt, ...)
{
	va_list ap;

	if (fe->n_warnings >= LIMIT_FIELD_ERRORS)
		return;
	va_start(ap, fmt);
	char *text = format(fmt, ap);

	va_end(ap);
	char **list =
		text ? mem_realloc_array(fe->warnings, fe->n_warnings + 1, sizeof(char *)) : NULL;

	if (!list) {
		fe->rc = RC_NOMEM;
		mem_free(text);
		return;
	}
	fe->warnings = list;
	list[fe->n_warnings++] = text;
}

const char *fe_reason(const struct field_err *e)
{
	return e->reason ? e->reason : reasons[e->type];
}

size_t fe_count(const struct field_errs *fe, enum fe_type type)
{
	size_t n = 0;

	for (size_t i = 0; i < fe->n; i++)
		n += fe->items[i].type == type;
	return n;
}

bool fe_has(const struct field_errs *fe, enum fe_type type)
{
	return fe_count(fe, type) != 0;
}

static bool is_wanted(const struct field_err *e, enum fe_type type)
{
	return type == FE__MAX ? e->type != FE_UNKNOWN : e->type == type;
}

void fe_summary(const struct field_errs *fe, enum fe_type type, struct sbuf *out)
{
	size_t n = 0, shown = 0;

	for (size_t i = 0; i < fe->n; i++)
		n += is_wanted(&fe->items[i], type);
	if (n > 1)
		sbuf_addc(out, '[');
	for (size_t i = 0; i < fe->n; i++) {
		const struct field_err *e = &fe->items[i];

		if (!is_wanted(e, type))
			continue;
		if (shown++)
			sbuf_adds(out, ", ");
		if (*e->field && e->type != FE_CAUSE)
			sbuf_addf(out, "%s: ", e->field);
		sbuf_adds(out, e->message);
	}
	if (n > 1)
		sbuf_addc(out, ']');
}

void fe_unknown_summary(const struct field_errs *fe, struct sbuf *out)
{
	bool first = true;

	for (size_t i = 0; i < fe->n; i++) {
		if (fe->items[i].type != FE_UNKNOWN)
			continue;
		sbuf_addf(out, "%s%s", first ? "" : ", ", fe->items[i].message);
		first = false;
	}
}

struct json *fe_causes(const struct field_errs *fe)
{
	CLEANUP(js_unrefp) struct json *list = js_new_array();

	for (size_t i = 0; list && i < fe->n; i++) {
		const struct field_err *e = &fe->items[i];

		if (e->type == FE_UNKNOWN)
			continue;
		if (js_append(list, js_pack("{s:s,s:s,s:s}", "reason", fe_reason(e), "message",
					    e->message, "field", e->field)))
			return NULL;
	}
	return STEAL(list);
}
