/* The installation's own objects: KubeVirt and its status, FerryConfig, the default StorageClasses.
 *
 * Missing ones are made when the controller starts (it wakes the one key) and whenever the KubeVirt
 * object changes; what is there is left as it is. */
#include "api/api.h"
#include "api/meta.h"
#include "base/str.h"
#include "base/try.h"
#include "cluster/controllers/controllers.h"

#define KV		 (&api_kind_KubeVirt)
#define KUBEVIRT_VERSION "v1.9.0" /* the API that is served */

static enum rc make_namespace(const struct view *v, const char *name, struct plan *out)
{
	if (view_get(v, &api_kind_Namespace, NULL, name))
		return RC_OK;
	CLEANUP(Namespace_freep) Namespace *ns = Namespace_new();

	if (!ns)
		return RC_NOMEM;
	TRY(api_set_str(&ns->metadata.name, name));
	return plan_create(out, &api_kind_Namespace, STEAL(ns));
}

static enum rc make_class(const struct view *v, const char *name, const char *driver,
			  bool is_default, const char *binding, struct plan *out)
{
	if (view_get(v, &api_kind_StorageClass, NULL, name))
		return RC_OK;
	CLEANUP(StorageClass_freep) StorageClass *sc = StorageClass_new();

	if (!sc)
		return RC_NOMEM;
	TRY(api_set_str(&sc->metadata.name, name));
	if (is_default)
		TRY(api_map_set(&sc->metadata.annotations,
				"storageclass.kubernetes.io/is-default-class", "true"));
	TRY(api_set_str(&sc->provisioner, driver));
	TRY(api_set_str(&sc->reclaimPolicy, "Delete"));
	TRY(api_set_str(&sc->volumeBindingMode, binding));
	return plan_create(out, &api_kind_StorageClass, STEAL(sc));
}

static enum rc make_config(const struct view *v, struct plan *out)
{
	if (view_get(v, &api_kind_FerryConfig, NULL, "ferry"))
		return RC_OK;
	CLEANUP(FerryConfig_freep) FerryConfig *cfg = FerryConfig_new();

	if (!cfg)
		return RC_NOMEM;
	TRY(api_set_str(&cfg->metadata.name, "ferry"));
	TRY(api_set_str(&cfg->spec.fencing, "OutOfServiceTaint"));
	FerryNetwork *n = api_append(&cfg->spec.networks, &cfg->spec.n_networks, sizeof(*n));

	if (!n)
		return RC_NOMEM;
	TRY(api_set_str(&n->name, "default"));
	TRY(api_set_str(&n->cidr, "10.244.0.0/16"));
	TRY(api_set_str(&n->gateway, "10.244.0.1"));
	API_SET(n, vni, 4096);
	return plan_create(out, &api_kind_FerryConfig, STEAL(cfg));
}

static enum rc make_kubevirt(struct plan *out)
{
	CLEANUP(KubeVirt_freep) KubeVirt *kv = KubeVirt_new();

	if (!kv)
		return RC_NOMEM;
	TRY(api_set_str(&kv->metadata.namespace, INSTALLATION_NS));
	TRY(api_set_str(&kv->metadata.name, INSTALLATION_NAME));
	return plan_create(out, KV, STEAL(kv));
}

static enum rc make_missing(const struct view *v, struct plan *out)
{
	TRY(make_class(v, "shared", DRIVER_SHARED, true, "Immediate", out));
	TRY(make_class(v, "local", DRIVER_LOCAL, false, "WaitForFirstConsumer", out));
	return make_config(v, out);
}

/* ---- status ---- */

static enum rc set(KubeVirtStatus *st, usec_t now, const char *type, const char *status,
		   const char *reason, const char *message)
{
	return API_COND_SET(st, KubeVirtCondition, now, .type = type, .status = status,
			    .reason = reason, .message = message);
}

static enum rc fill_status(KubeVirtStatus *st, const KubeVirt *kv, usec_t now)
{
	static const char ready[] = "All components are ready.";

	TRY(api_set_str(&st->phase, "Deployed"));
	TRY(set(st, now, "Created", "True", "AllResourcesCreated", "All resources were created."));
	TRY(set(st, now, "Available", "True", "AllComponentsReady", ready));
	TRY(set(st, now, "Progressing", "False", "AllComponentsReady", ready));
	TRY(set(st, now, "Degraded", "False", "AllComponentsReady", ready));
	TRY(api_set_str(&st->operatorVersion, "ferry-" FERRY_VERSION));
	TRY(api_set_str(&st->targetKubeVirtVersion, KUBEVIRT_VERSION));
	TRY(api_set_str(&st->observedKubeVirtVersion, KUBEVIRT_VERSION));
	TRY(api_set_str(&st->defaultArchitecture, "amd64"));
	API_SET(st, observedGeneration, API_GET(&kv->metadata, generation, 1));
	return RC_OK;
}

static bool is_the_one(const KubeVirt *kv)
{
	return str_eq(kv->metadata.namespace, INSTALLATION_NS) &&
	       str_eq(kv->metadata.name, INSTALLATION_NAME);
}

/* Of several, the one of the fixed name counts; without it, the first. */
static bool is_active(const struct view *v, const KubeVirt *kv)
{
	struct kiter it;

	if (is_the_one(kv))
		return true;
	if (view_get(v, KV, INSTALLATION_NS, INSTALLATION_NAME))
		return false;
	view_list(v, KV, NULL, &it);
	return view_next(&it) == kv;
}

static enum rc report(const struct view *v, const KubeVirt *kv, struct plan *out)
{
	CLEANUP(KubeVirt_freep) KubeVirt *next = KubeVirt_clone(kv);

	if (!next)
		return RC_NOMEM;
	if (is_active(v, kv))
		TRY(fill_status(&next->status, kv, v->now));
	else
		TRY(set(&next->status, v->now, "Synchronized", "False", "ExistingDeployment",
			"There is an active KubeVirt deployment"));
	return plan_update(out, KV, kv, STEAL(next), "status");
}

static enum rc sync(const struct view *v, const char *ns, const char *name, struct plan *out)
{
	const KubeVirt *kv = view_get(v, KV, ns, name);
	struct kiter it;

	if (str_eq(ns, INSTALLATION_NS) && str_eq(name, INSTALLATION_NAME)) {
		TRY(make_namespace(v, INSTALLATION_NS, out));
		TRY(make_missing(v, out));
		view_list(v, KV, NULL, &it);
		if (!kv && !view_next(&it))
			TRY(make_kubevirt(out));
	}
	return kv && !kv->metadata.deletionTimestamp ? report(v, kv, out) : RC_OK;
}

static enum rc installation_reconcile(const struct view *v, const char *ns, const char *name,
				      struct plan *out, struct err *err)
{
	enum rc rc = sync(v, ns, name, out);

	return rc ? err_set(err, rc, "cannot settle the installation's objects") : RC_OK;
}

static const struct api_kind *const reads[] = {
	&api_kind_Namespace,
	&api_kind_StorageClass,
	&api_kind_FerryConfig,
	NULL,
};

const struct ctl_def installation_ctl_def = {
	.name = "installation",
	.primary = &api_kind_KubeVirt,
	.reconcile = installation_reconcile,
	.reads = reads,
};
