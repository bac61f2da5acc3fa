#include <stdio.h>

#include "base/str.h"
#include "virt/admission/admission_int.h"
#include "virt/names.h"

/* VirtualMachine: nothing is written into its spec; its template is judged as the VMI that it will
 * become. */

/* The controller's finalizer comes with the object: one write less at every start. */
enum rc vm_mutate(struct hook_ctx *ctx, struct json *obj, struct err *err)
{
	return ctx->op == HOOK_CREATE ? adm_add_finalizer(obj, FIN_VM, err) : RC_OK;
}

static void check_run_strategy(struct hook_ctx *ctx, const VirtualMachineSpec *s,
			       struct field_errs *fe)
{
	static const char *const known[] = {"Always",	      "Halted", "Manual",
					    "RerunOnFailure", "Once",	NULL};

	if (s->has_running)
		hook_warn(ctx, "spec.running is deprecated, please use spec.runStrategy instead.");
	if (s->has_running && s->runStrategy)
		fe_cause(fe, INVALID, "spec.running",
			 "Running and RunStrategy are mutually exclusive. Note that Running is "
			 "deprecated, "
			 "please use RunStrategy instead");
	else if (!s->has_running && str_is_empty(s->runStrategy))
		fe_cause(fe, REQUIRED, "spec.running", "RunStrategy must be specified");
	if (!str_is_empty(s->runStrategy) && !is_one_of(s->runStrategy, known))
		fe_cause(fe, INVALID, "spec.runStrategy", "Invalid RunStrategy (%s)",
			 s->runStrategy);
}

static enum rc check_template(struct hook_ctx *ctx, const VirtualMachineInstanceTemplateSpec *t,
			      struct field_errs *fe, struct err *err)
{
	CLEANUP(VirtualMachineInstance_freep)
	VirtualMachineInstance *vmi = VirtualMachineInstance_new();
	struct adm_cluster c = {0};
	enum rc rc;

	if (!vmi)
		return err_set(err, RC_NOMEM, "cannot allocate a VMI");
	rc = adm_cluster_init(&c, ctx->env, hook_kubevirt_config(ctx->env), err);
	if (!rc)
		rc = api_copy(&api_type_ObjectMeta, &vmi->metadata, &t->metadata);
	if (!rc)
		rc = api_copy(&api_type_VirtualMachineInstanceSpec, &vmi->spec, &t->spec);
	if (!rc)
		rc = adm_vmi_defaults(vmi, &c, err);
	if (!rc)
		adm_check_spec(&vmi->spec, &vmi->metadata, "spec.template.spec", &c, fe);
	adm_cluster_fini(&c);
	return rc;
}

static void check_update_strategy(const VirtualMachineSpec *s, struct field_errs *fe)
{
	if (s->updateVolumesStrategy && str_eq(s->updateVolumesStrategy, "Migration"))
		fe_cause(fe, NOT_SUPPORTED, "spec.updateVolumesStrategy",
			 "updateVolumesStrategy Migration is not supported by Ferry yet");
}

enum rc vm_validate(struct hook_ctx *ctx, const void *obj, const void *old, struct field_errs *fe,
		    struct err *err)
{
	const VirtualMachine *vm = obj;

	(void)old;
	/* A VM that is going away must be able to lose its finalizers whatever its spec says. */
	if (ctx->op == HOOK_DELETE || *ctx->subresource || vm->metadata.deletionTimestamp)
		return RC_OK;
	check_run_strategy(ctx, &vm->spec, fe);
	check_update_strategy(&vm->spec, fe);
	if (!vm->spec.template) {
		fe_cause(fe, REQUIRED, "spec.template", "missing virtual machine template.");
		return RC_OK;
	}
	return check_template(ctx, vm->spec.template, fe, err);
}
