/* The parameters that every write may have (CreateOptions, UpdateOptions, PatchOptions of meta/v1). */
#include "cluster/apiserver/apisrv_int.h"

#include <ctype.h>
#include <string.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"

enum { MANAGER_BYTES = 128 };

static const char *const validations[] = {
	[VALIDATE_WARN] = "Warn",
	[VALIDATE_STRICT] = "Strict",
	[VALIDATE_IGNORE] = "Ignore",
	NULL,
};

enum validation call_validation(const struct apisrv_call *c)
{
	const char *v = call_param(c, "fieldValidation");

	for (int i = 0; v && validations[i]; i++)
		if (strcmp(v, validations[i]) == 0)
			return i;
	return VALIDATE_WARN; /* as kube-apiserver when nothing is said */
}

void call_check_manager(struct field_errs *fe, const char *path, const char *name)
{
	if (strlen(name) > MANAGER_BYTES)
		fe_add(fe, FE_TOO_LONG, path, "Too long: may not be more than %d bytes",
		       MANAGER_BYTES);
	for (const char *p = name; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f) {
			fe_invalid(fe, path, name, "should only contain printable characters");
			return;
		}
}

static void check(const struct apisrv_call *c, struct field_errs *fe)
{
	static const char *const dry[] = {"All", NULL};
	const char *dry_run = call_param(c, "dryRun"), *manager = call_param(c, "fieldManager"),
		   *validation = call_param(c, "fieldValidation");
	bool apply = str_eq(c->content_type, "application/apply-patch+yaml");

	if (!str_is_empty(dry_run) && !str_eq(dry_run, "All"))
		fe_not_supported(fe, "dryRun", dry_run, dry);
	call_check_manager(fe, "fieldManager", manager ? manager : "");
	if (!str_is_empty(validation) && strcmp(validation, validations[call_validation(c)]) != 0)
		fe_not_supported(fe, "fieldValidation", validation, validations);
	if (c->verb != VERB_PATCH)
		return;
	if (apply && str_is_empty(manager))
		fe_required(fe, "fieldManager", "is required for apply patch");
	if (!apply && call_param_bool(c, "force"))
		fe_forbidden(fe, "force", "may not be specified for non-apply patch");
}

bool call_check_options(struct apisrv_call *c, const char *kind)
{
	struct field_errs fe = FIELD_ERRS_INIT;
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(64 * KIB);

	check(c, &fe);
	bool ok = fe_is_ok(&fe);

	if (!ok) {
		struct json *details = js_pack("{s:s, s:s, s:o}", "group", "meta.k8s.io", "kind",
					       kind, "causes", fe_causes(&fe));

		fe_summary(&fe, FE__MAX, &b);
		if (fe.rc || sbuf_rc(&b) || !details) {
			js_unref(details);
			call_nomem(c);
		} else {
			call_fail(c, 422, "Invalid", details, "%s.meta.k8s.io \"\" is invalid: %s",
				  kind, sbuf_str(&b));
		}
	}
	fe_fini(&fe);
	return ok;
}
