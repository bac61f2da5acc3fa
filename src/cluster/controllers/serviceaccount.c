/* What each namespace has from its beginning: the ServiceAccount "default", and the ConfigMap kube-root-ca.crt, a
 * copy of kube-system's, which the API server writes.  As kube-controller-manager's serviceaccount and
 * root-ca-cert-publisher controllers.
 */
#include "api/api.h"
#include "api/meta.h"
#include "base/str.h"
#include "base/try.h"
#include "cluster/controllers/controllers.h"

#define NS	(&api_kind_Namespace)
#define ACCOUNT (&api_kind_ServiceAccount)
#define MAP	(&api_kind_ConfigMap)
#define SOURCE	"kube-system"
#define CA_NAME "kube-root-ca.crt"
#define CA_KEY	"ca.crt"
#define CA_NOTE "kubernetes.io/description"
#define CA_WORDS \
	"The authority that signs the API server's certificate, for clients in this namespace."

static enum rc make_account(const struct view *v, const char *ns, struct plan *out)
{
	if (view_get(v, ACCOUNT, ns, "default"))
		return RC_OK;
	CLEANUP(ServiceAccount_freep) ServiceAccount *sa = ServiceAccount_new();

	if (!sa)
		return RC_NOMEM;
	TRY(api_set_str(&sa->metadata.namespace, ns));
	TRY(api_set_str(&sa->metadata.name, "default"));
	return plan_create(out, ACCOUNT, STEAL(sa));
}

static enum rc make_map(const char *ns, const char *ca, struct plan *out)
{
	CLEANUP(ConfigMap_freep) ConfigMap *cm = ConfigMap_new();

	if (!cm)
		return RC_NOMEM;
	TRY(api_set_str(&cm->metadata.namespace, ns));
	TRY(api_set_str(&cm->metadata.name, CA_NAME));
	TRY(api_map_set(&cm->metadata.annotations, CA_NOTE, CA_WORDS));
	TRY(api_map_set(&cm->data, CA_KEY, ca));
	return plan_create(out, MAP, STEAL(cm));
}

static enum rc copy_ca(const struct view *v, const char *ns, struct plan *out)
{
	const ConfigMap *source = view_get(v, MAP, SOURCE, CA_NAME);
	const ConfigMap *old = view_get(v, MAP, ns, CA_NAME);
	const char *ca = source ? api_map_get(&source->data, CA_KEY) : NULL;

	if (!ca || str_eq(ns, SOURCE))
		return RC_OK;
	if (!old)
		return make_map(ns, ca, out);
	if (old->metadata.deletionTimestamp || str_eq(api_map_get(&old->data, CA_KEY), ca))
		return RC_OK;
	CLEANUP(ConfigMap_freep) ConfigMap *next = ConfigMap_clone(old);

	if (!next)
		return RC_NOMEM;
	TRY(api_map_set(&next->data, CA_KEY, ca));
	return plan_update(out, MAP, old, STEAL(next), NULL);
}

static enum rc sync(const struct view *v, const char *name, struct plan *out)
{
	const Namespace *ns = view_get(v, NS, NULL, name);

	if (!ns || ns->metadata.deletionTimestamp)
		return RC_OK;
	TRY(make_account(v, name, out));
	return copy_ca(v, name, out);
}

static enum rc account_reconcile(const struct view *v, const char *ns, const char *name,
				 struct plan *out, struct err *err)
{
	(void)ns;
	enum rc rc = sync(v, name, out);

	return rc ? err_set(err, rc, "cannot settle what each namespace has") : RC_OK;
}

static void map_account(const struct view *v, const struct kobj *obj, ctl_emit_fn emit, void *ctx)
{
	(void)v;
	if (str_eq(kobj_name(obj), "default"))
		emit(ctx, NULL, kobj_ns(obj));
}

static void map_ca(const struct view *v, const struct kobj *obj, ctl_emit_fn emit, void *ctx)
{
	if (!str_eq(kobj_name(obj), CA_NAME))
		return;
	if (str_eq(kobj_ns(obj), SOURCE))
		ctl_emit_all(v, NS, emit, ctx);
	else
		emit(ctx, NULL, kobj_ns(obj));
}

static const struct ctl_map maps[] = {
	{ACCOUNT, map_account},
	{MAP, map_ca},
	{NULL, NULL},
};

const struct ctl_def account_ctl_def = {
	.name = "serviceaccount",
	.primary = NS,
	.reconcile = account_reconcile,
	.maps = maps,
};
