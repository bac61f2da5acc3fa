#include "api/quantity.h"
#include "base/try.h"
#include "virt/admission/admission_int.h"

/* MigrationPolicy: figures that a move can be held to. */

static void check_spec(const struct adm_cluster *c, const MigrationPolicySpec *s,
		       const MigrationPolicySpec *old, struct field_errs *fe)
{
	struct api_quantity q, zero = api_quantity_of(0, API_Q_DECIMAL);

	if (API_GET(s, completionTimeoutPerGiB, 0) < 0)
		fe_cause(fe, INVALID, "spec.completionTimeoutPerGiB", "must not be negative");
	adm_check_max_downtime(c, "spec.maxDowntimeMs",
			       s->has_maxDowntimeMs ? &s->maxDowntimeMs : NULL,
			       old && old->has_maxDowntimeMs ? &old->maxDowntimeMs : NULL, fe);
	if (s->bandwidthPerMigration && !api_quantity_parse(s->bandwidthPerMigration, &q, NULL) &&
	    api_quantity_cmp(&q, &zero) < 0)
		fe_cause(fe, INVALID, "spec.bandwidthPerMigration", "must not be negative");
}

enum rc migrationpolicy_validate(struct hook_ctx *ctx, const void *obj, const void *old,
				 struct field_errs *fe, struct err *err)
{
	const MigrationPolicy *p = obj, *was = old;
	struct adm_cluster c = {0};

	if (ctx->op == HOOK_DELETE || *ctx->subresource)
		return RC_OK;
	TRY(adm_cluster_init(&c, ctx->env, hook_kubevirt_config(ctx->env), err));
	check_spec(&c, &p->spec, was ? &was->spec : NULL, fe);
	adm_cluster_fini(&c);
	return RC_OK;
}
