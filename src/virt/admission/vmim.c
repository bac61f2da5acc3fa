#include <string.h>

#include "api/meta.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/try.h"
#include "json/json.h"
#include "virt/admission/admission_int.h"
#include "virt/names.h"

/* VirtualMachineInstanceMigration: one at a time for a VMI that can move. */

static bool is_final(const char *phase)
{
	return str_eq(phase, "Succeeded") || str_eq(phase, "Failed");
}

enum rc vmim_mutate(struct hook_ctx *ctx, struct json *obj, struct err *err)
{
	const char *vmi = js_str(js_at(obj, "spec", "vmiName", NULL));
	struct json *meta, *labels;

	if (ctx->op != HOOK_CREATE)
		return RC_OK;
	meta = js_ensure_object(obj, "metadata");
	labels = meta ? js_ensure_object(meta, "labels") : NULL;
	if (!labels || (vmi && js_set(labels, LABEL_VMI_NAME, js_new_str(vmi))))
		return err_set(err, RC_NOMEM, "cannot label a migration");
	TRY(adm_add_finalizer(obj, FIN_VMIM, err));
	return ctx->dry_run ? vmim_dry_run(ctx, obj, err) : RC_OK;
}

/* Another migration of the same VMI that has not ended. */
struct in_flight {
	const char *vmi;
	const char *own_name;
	const char *uid;
};

static bool look_for_in_flight(const struct json *obj, void *arg)
{
	struct in_flight *f = arg;

	if (!str_eq(js_str(js_at(obj, "spec", "vmiName", NULL)), f->vmi) ||
	    is_final(js_str(js_at(obj, "status", "phase", NULL))) ||
	    str_eq(js_str(js_at(obj, "metadata", "name", NULL)), f->own_name))
		return true;
	f->uid = js_str(js_at(obj, "metadata", "uid", NULL));
	return false;
}

static const struct json *condition(const struct json *obj, const char *type)
{
	const struct json *list = js_at(obj, "status", "conditions", NULL);

	for (size_t i = 0; i < js_len(list); i++)
		if (str_eq(js_get_str(js_item(list, i), "type"), type))
			return js_item(list, i);
	return NULL;
}

/* No node fits: a dry run is asked in order to hear why, node by node. */
static bool is_answered_by_the_matrix(const struct hook_ctx *ctx, const struct json *can)
{
	return ctx->dry_run && str_eq(js_get_str(can, "reason"), REASON_NO_NODE_FITS);
}

static enum rc check_vmi(struct hook_ctx *ctx, const char *name, struct err *err)
{
	const struct json *vmi =
		hook_get(ctx->env, "virtualmachineinstances.kubevirt.io", ctx->ns, name);
	const struct json *can = condition(vmi, "LiveMigratable");
	struct in_flight f = {.vmi = name, .own_name = ctx->name};
	const char *reason, *message;

	if (!vmi)
		return err_set(err, RC_BAD_REQUEST, "the VMI \"%s/%s\" does not exist", ctx->ns,
			       name);
	if (is_final(js_str(js_at(vmi, "status", "phase", NULL))))
		return err_set(err, RC_BAD_REQUEST, "Cannot migrate VMI in finalized state.");
	if (str_eq(js_get_str(can, "status"), "False") && !is_answered_by_the_matrix(ctx, can)) {
		reason = js_get_str(can, "reason");
		message = js_get_str(can, "message");
		return err_set(err, RC_BAD_REQUEST, "Cannot migrate VMI, Reason: %s, Message: %s",
			       reason ? reason : "", message ? message : "");
	}
	hook_each(ctx->env, "virtualmachineinstancemigrations.kubevirt.io", ctx->ns,
		  look_for_in_flight, &f);
	if (f.uid)
		return err_set(err, RC_BAD_REQUEST,
			       "in-flight migration detected. Active migration job (%s) is "
			       "currently already "
			       "in progress for VMI %s.",
			       f.uid, name);
	return RC_OK;
}

/* "Finish it now, I accept the pause": a wish of a migration that has not ended, which cannot be taken back once its
 * source has been told. */
static void check_finish(const VirtualMachineInstanceMigration *m,
			 const VirtualMachineInstanceMigration *old, struct field_errs *fe)
{
	static const char path[] = "metadata.annotations[" ANN_FINISH "]";
	const char *now = api_annotation(&m->metadata, ANN_FINISH);
	const char *was = old ? api_annotation(&old->metadata, ANN_FINISH) : NULL;
	const char *phase = old ? old->status.phase : NULL;

	if (str_eq(now, was))
		return;
	if (now && !str_eq(now, FINISH_PAUSE))
		fe_cause(fe, INVALID, path, "must be \"" FINISH_PAUSE "\"");
	else if (now && is_final(phase))
		fe_cause(fe, INVALID, path, "the migration is over: %s", phase);
	else if (now && old && old->metadata.deletionTimestamp)
		fe_cause(fe, INVALID, path, "the migration is being canceled");
	else if (!now && str_eq(phase, "Running"))
		fe_cause(fe, INVALID, path,
			 "cannot be taken back while the migration runs; it can be canceled by "
			 "deleting it");
}

enum rc vmim_check_create(struct hook_ctx *ctx, const VirtualMachineInstanceMigration *m,
			  struct field_errs *fe, struct err *err)
{
	struct adm_cluster c = {0};

	TRY(adm_cluster_init(&c, ctx->env, hook_kubevirt_config(ctx->env), err));
	bool has_gate = adm_gate(&c, "DecentralizedLiveMigration");

	adm_cluster_fini(&c);
	if (str_is_empty(m->spec.vmiName))
		fe_cause(fe, REQUIRED, "spec.vmiName", "vmiName is missing");
	if (m->spec.priority && !apisrv_user_is_component(ctx->user))
		fe_cause(fe, INVALID, "spec.priority",
			 "Migration priority queue, only virt-controller is allowed to set "
			 "priority field");
	/* With the gate on, the schema says that Ferry has no moves between clusters. */
	if ((m->spec.sendTo || m->spec.receive) && !has_gate)
		fe_cause(fe, INVALID, "spec",
			 "DecentralizedLiveMigration feature gate is not enabled in kubevirt "
			 "resource");
	if (m->spec.sendTo && m->spec.receive &&
	    !str_eq(m->spec.sendTo->migrationID, m->spec.receive->migrationID))
		fe_cause(fe, INVALID, "spec",
			 "sendTo migrationID %s does not match receive migrationID %s",
			 m->spec.sendTo->migrationID ? m->spec.sendTo->migrationID : "",
			 m->spec.receive->migrationID ? m->spec.receive->migrationID : "");
	check_finish(m, NULL, fe);
	return fe_is_ok(fe) ? check_vmi(ctx, m->spec.vmiName, err) : RC_OK;
}

static void check_update(const VirtualMachineInstanceMigration *m,
			 const VirtualMachineInstanceMigration *old, struct field_errs *fe)
{
	const char *label = api_map_get(&m->metadata.labels, LABEL_VMI_NAME);
	const char *before = api_map_get(&old->metadata.labels, LABEL_VMI_NAME);

	if (!api_equal(&api_type_VirtualMachineInstanceMigrationSpec, &m->spec, &old->spec))
		fe_cause(fe, NOT_SUPPORTED, "", "update of Migration object's spec is restricted");
	check_finish(m, old, fe);
	if (is_final(old->status.phase) || !before || str_eq(label, before))
		return;
	fe_cause(fe, NOT_SUPPORTED, "",
		 label ? "selector label can't be modified on an in-flight migration"
		       : "selector label can't be removed from an in-flight migration");
}

enum rc vmim_validate(struct hook_ctx *ctx, const void *obj, const void *old, struct field_errs *fe,
		      struct err *err)
{
	if (ctx->op == HOOK_CREATE)
		return vmim_check_create(ctx, obj, fe, err);
	if (ctx->op == HOOK_UPDATE && !*ctx->subresource)
		check_update(obj, old, fe);
	return RC_OK;
}
