#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "json/json.h"
#include "virt/admission/admission_int.h"

/* PodDisruptionBudget: what kube-apiserver refuses. */

static bool is_share(const char *text, int64_t *percent)
{
	size_t n = text ? strspn(text, "0123456789") : 0;
	char digits[16];

	if (!n || n >= sizeof(digits) || !str_eq(text + n, "%"))
		return false;
	(void)snprintf(digits, sizeof(digits), "%.*s", (int)n, text);
	return !str_to_i64(digits, 0, INT64_MAX, percent, NULL);
}

static void check_number(const char *path, const struct json *value, struct field_errs *fe)
{
	int64_t percent = 0;

	if (!value)
		return;
	if (js_type(value) == JS_INT) {
		if (js_int(value, 0) < 0)
			fe_cause(fe, INVALID, path, "%s: must be greater than or equal to 0", path);
		return;
	}
	if (!is_share(js_str(value), &percent))
		fe_cause(fe, INVALID, path,
			 "%s: a valid percent string must be a numeric string followed by an "
			 "ending '%%'",
			 path);
	else if (percent > 100)
		fe_cause(fe, INVALID, path, "%s: must not be greater than 100%%", path);
}

enum rc budget_validate(struct hook_ctx *ctx, const void *obj, const void *old,
			struct field_errs *fe, struct err *err)
{
	const PodDisruptionBudget *b = obj;

	(void)old;
	(void)err;
	if (ctx->op == HOOK_DELETE || *ctx->subresource)
		return RC_OK;
	if (b->spec.minAvailable && b->spec.maxUnavailable)
		fe_cause(fe, INVALID, "spec",
			 "spec: minAvailable and maxUnavailable cannot be both set");
	check_number("spec.minAvailable", b->spec.minAvailable, fe);
	check_number("spec.maxUnavailable", b->spec.maxUnavailable, fe);
	return RC_OK;
}
