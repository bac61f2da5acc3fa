#include <stdio.h>

#include "base/mem.h"
#include "base/str.h"
#include "base/try.h"
#include "json/json.h"
#include "virt/admission/admission_int.h"
#include "virt/controller/migration/explain.h"

/* Answers before anything moves: a dry-run create of a migration tells where the VM could go.  The
 * rules are the migration controller's own; here the stored objects are only put before them. */

#define VMI (&api_kind_VirtualMachineInstance)

struct filling {
	struct kcache *cache;
	const struct api_kind *kind;
	enum rc rc;
};

/* As for an informer, what cannot be decoded is not there. */
static bool put(const struct json *obj, void *arg)
{
	struct filling *f = arg;
	struct kobj *o = NULL;

	f->rc = kobj_decode(&o, f->kind, obj, NULL);
	if (!f->rc)
		f->rc = kcache_put(f->cache, o, NULL);
	if (f->rc != RC_NOMEM)
		f->rc = RC_OK;
	return !f->rc;
}

/* As kubectl names it, which is how hooks name it too. */
static void resource_name(const struct api_kind *kind, char *out, size_t size)
{
	bool is_core = str_is_empty(kind->group);

	snprintf(out, size, "%s%s%s", kind->plural, is_core ? "" : ".", is_core ? "" : kind->group);
}

static enum rc fill_kind(struct hook_ctx *ctx, struct kcache *cache, const struct api_kind *kind)
{
	struct filling f = {.cache = cache, .kind = kind};
	/* a VM's claims are in its namespace; its rivals for room are in all */
	const char *ns = kind == &api_kind_PersistentVolumeClaim ? ctx->ns : NULL;
	char resource[128];

	TRY(kcache_add(cache, &(struct kcache_source){.kind = kind}, NULL));
	resource_name(kind, resource, sizeof(resource));
	hook_each(ctx->env, resource, ns, put, &f);
	return f.rc;
}

static enum rc fill(struct hook_ctx *ctx, struct kcache *cache, const char *vmi)
{
	struct filling f = {.cache = cache, .kind = VMI};
	char resource[128];

	for (size_t i = 0; mig_explain_reads[i]; i++)
		TRY(fill_kind(ctx, cache, mig_explain_reads[i]));
	TRY(kcache_add(cache, &(struct kcache_source){.kind = VMI}, NULL));
	resource_name(VMI, resource, sizeof(resource));
	const struct json *obj = hook_get(ctx->env, resource, ctx->ns, vmi);

	if (!obj) /* it was there a moment ago */
		return RC_NOMEM;
	put(obj, &f);
	return f.rc;
}

static enum rc show(struct hook_ctx *ctx, const FerryMigrationStatus *f, struct json *obj)
{
	struct json *status = js_ensure_object(obj, "status");

	if (!status || js_set(status, "ferry", api_encode(&api_type_FerryMigrationStatus, f)))
		return RC_NOMEM;
	if (f->reason)
		hook_warn(ctx, "the migration would fail at once: %s", f->message);
	else if (f->stage)
		hook_warn(ctx, "the migration would wait until the virtual machine runs; the nodes "
			       "that could take it are known then");
	return RC_OK;
}

static enum rc explain(struct hook_ctx *ctx, VirtualMachineInstanceMigration *m, struct json *obj,
		       struct err *err)
{
	CLEANUP(kcache_freep) struct kcache *cache = NULL;
	enum rc rc = kcache_new(&cache, NULL, NULL, NULL, err);
	struct view v = {.cache = cache, .now = hook_now(ctx->env)};

	if (!rc)
		rc = fill(ctx, cache, m->spec.vmiName);
	if (rc)
		return err_set(err, rc, "cannot look at the cluster");
	TRY(mig_explain(&v, m, err));
	rc = m->status.ferry ? show(ctx, m->status.ferry, obj) : RC_OK;
	return rc ? err_set(err, rc, "cannot show where the virtual machine could go") : RC_OK;
}

/* Will validation take it?  RC_NOMEM: nobody knows. */
static enum rc ask(struct hook_ctx *ctx, const VirtualMachineInstanceMigration *m, bool *ok,
		   struct err *err)
{
	struct field_errs fe = FIELD_ERRS_INIT;
	enum rc rc = vmim_check_create(ctx, m, &fe, NULL);

	*ok = rc == RC_OK && fe_is_ok(&fe);
	if (fe.rc)
		rc = fe.rc;
	fe_fini(&fe);
	return rc == RC_NOMEM ? err_set(err, rc, "cannot look at the migration") : RC_OK;
}

enum rc vmim_dry_run(struct hook_ctx *ctx, struct json *obj, struct err *err)
{
	void *m = NULL;

	TRY(api_decode(&api_type_VirtualMachineInstanceMigration, obj, &m, err));
	/* What validation is about to refuse goes nowhere. */
	bool ok = false;
	enum rc rc = ask(ctx, m, &ok, err);

	if (!rc && ok)
		rc = explain(ctx, m, obj, err);
	api_free(&api_type_VirtualMachineInstanceMigration, m);
	return rc;
}
