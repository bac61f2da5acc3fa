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

/* "<root>.<name>" */
static const char *under(const char *root, const char *name, char path[128])
{
	(void)snprintf(path, 128, "%s.%s", root, name);
	return path;
}

static void check_run_strategy(const VirtualMachineSpec *s, const char *root, struct field_errs *fe)
{
	static const char *const known[] = {"Always",	      "Halted", "Manual",
					    "RerunOnFailure", "Once",	NULL};
	char path[128];

	if (s->has_running && s->runStrategy)
		fe_cause(fe, INVALID, under(root, "running", path),
			 "Running and RunStrategy are mutually exclusive. Note that Running is "
			 "deprecated, "
			 "please use RunStrategy instead");
	else if (!s->has_running && str_is_empty(s->runStrategy))
		fe_cause(fe, REQUIRED, under(root, "running", path),
			 "RunStrategy must be specified");
	if (!str_is_empty(s->runStrategy) && !is_one_of(s->runStrategy, known))
		fe_cause(fe, INVALID, under(root, "runStrategy", path), "Invalid RunStrategy (%s)",
			 s->runStrategy);
}

enum rc adm_check_vmi_template(struct hook_ctx *ctx, const VirtualMachineInstanceTemplateSpec *t,
			       const char *root, struct field_errs *fe, struct err *err)
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
		adm_check_spec(&vmi->spec, &vmi->metadata, root, &c, fe);
	adm_cluster_fini(&c);
	return rc;
}

enum rc adm_check_vm_spec(struct hook_ctx *ctx, const VirtualMachineSpec *s, const char *root,
			  struct field_errs *fe, struct err *err)
{
	char path[128];

	check_run_strategy(s, root, fe);
	if (s->updateVolumesStrategy && str_eq(s->updateVolumesStrategy, "Migration"))
		fe_cause(fe, NOT_SUPPORTED, under(root, "updateVolumesStrategy", path),
			 "updateVolumesStrategy Migration is not supported by Ferry yet");
	if (s->template)
		return adm_check_vmi_template(ctx, s->template, under(root, "template.spec", path),
					      fe, err);
	fe_cause(fe, REQUIRED, under(root, "template", path), "missing virtual machine template.");
	return RC_OK;
}

enum rc vm_validate(struct hook_ctx *ctx, const void *obj, const void *old, struct field_errs *fe,
		    struct err *err)
{
	const VirtualMachine *vm = obj;

	(void)old;
	/* A VM that is going away must be able to lose its finalizers whatever its spec says. */
	if (ctx->op == HOOK_DELETE || *ctx->subresource || vm->metadata.deletionTimestamp)
		return RC_OK;
	if (vm->spec.has_running)
		hook_warn(ctx, "spec.running is deprecated, please use spec.runStrategy instead.");
	return adm_check_vm_spec(ctx, &vm->spec, "spec", fe, err);
}
