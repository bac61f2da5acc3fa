#include <stdio.h>
#include <string.h>

#include "api/labels.h"
#include "base/str.h"
#include "json/json.h"
#include "virt/admission/admission_int.h"

/* Sets and pools, which Ferry refuses as a whole: their templates are judged as the VMIs and VMs that they would make, and
 * what KubeVirt's webhooks say of the rest.  Source: KubeVirt v1.9's validators of both kinds. */

/* A selector that is missing is the schema's to tell. */
static enum rc check_selector(const LabelSelector *s, const ObjectMeta *meta, struct field_errs *fe)
{
	static const struct api_map none;
	CLEANUP(api_selector_freep) struct api_selector *sel = NULL;
	struct err why = {0};
	enum rc rc = s ? api_selector_from(s, &sel, &why) : RC_OK;

	if (rc == RC_NOMEM)
		return rc;
	if (rc)
		fe_cause(fe, INVALID, "spec.selector", "%s", why.msg);
	else if (sel && !api_selector_matches(sel, meta ? &meta->labels : &none))
		fe_cause(fe, INVALID, "spec.selector", "selector does not match labels.");
	return RC_OK;
}

enum rc replicaset_validate(struct hook_ctx *ctx, const void *obj, const void *old,
			    struct field_errs *fe, struct err *err)
{
	const VirtualMachineInstanceReplicaSet *set = obj;

	if (ctx->op != HOOK_CREATE || *ctx->subresource || !set->spec.template)
		return RC_OK;
	const VirtualMachineInstanceReplicaSetSpec *s = &set->spec;
	enum rc rc = adm_check_vmi_template(ctx, s->template, "spec.template.spec", fe, err);

	return rc ? rc : check_selector(s->selector, &s->template->metadata, fe);
}

static void check_max_unavailable(const struct json *max, struct field_errs *fe)
{
	static const char path[] = "spec.maxUnavailable";
	const char *text = js_str(max);
	char digits[16];
	int64_t n;

	if (!max)
		return;
	if (!text) {
		if (js_int(max, 1) <= 0)
			fe_cause(fe, INVALID, path, "maxUnavailable must be greater than 0");
		return;
	}
	size_t len = strlen(text);

	if (!len || text[len - 1] != '%') {
		fe_cause(fe, INVALID, path, "maxUnavailable percentage must end with %%");
		return;
	}
	(void)snprintf(digits, sizeof(digits), "%.*s", (int)MIN(len - 1, (size_t)15), text);
	if (len > sizeof(digits) || str_to_i64(digits, INT64_MIN, INT64_MAX, &n, NULL))
		fe_cause(fe, INVALID, path,
			 "maxUnavailable percentage value \"%s\" is invalid: it is no number",
			 digits);
	else if (n <= 0 || n > 100)
		fe_cause(fe, INVALID, path,
			 "maxUnavailable percentage value %lld must be between 1 and 100",
			 (long long)n);
}

enum rc pool_validate(struct hook_ctx *ctx, const void *obj, const void *old, struct field_errs *fe,
		      struct err *err)
{
	const VirtualMachinePool *pool = obj;
	enum rc rc = RC_OK;

	if (ctx->op != HOOK_CREATE || *ctx->subresource || !pool->spec.virtualMachineTemplate)
		return RC_OK;
	const VirtualMachinePoolSpec *s = &pool->spec;
	const VirtualMachineTemplateSpec *t = s->virtualMachineTemplate;

	if (t->spec)
		rc = adm_check_vm_spec(ctx, t->spec, "spec.virtualMachineTemplate.spec", fe, err);
	if (!rc)
		rc = check_selector(s->selector, t->metadata, fe);
	if (!rc)
		check_max_unavailable(s->maxUnavailable, fe);
	return rc;
}
