/* PersistentVolumeClaims and PersistentVolumes.
 *
 * The controller names volumes and binds them; the data is the node agents' business.  A volume is
 *   spec.csi {driver: ferry.dev/shared | ferry.dev/local, volumeHandle: <name>,
 *             volumeAttributes: {path: <name>, below the root of the class}}
 * and carries the finalizer ferry.dev/pv-data: the agent that removed its data removes the finalizer. */
#include <stdio.h>

#include "api/api.h"
#include "api/meta.h"
#include "api/quantity.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/try.h"
#include "cluster/controllers/controllers.h"
#include "sched/snapshot.h"

#define PVC		   (&api_kind_PersistentVolumeClaim)
#define PV		   (&api_kind_PersistentVolume)
#define ANN_SELECTED_NODE  "volume.kubernetes.io/selected-node"
#define ANN_BOUND	   "pv.kubernetes.io/bind-completed"
#define ANN_BOUND_BY	   "pv.kubernetes.io/bound-by-controller"
#define ANN_PROVISIONED_BY "pv.kubernetes.io/provisioned-by"
#define FIN_PVC		   "kubernetes.io/pvc-protection"
#define FIN_PV_DATA	   "ferry.dev/pv-data"
#define LABEL_HOSTNAME	   "kubernetes.io/hostname"

typedef PersistentVolumeClaim Claim;
typedef PersistentVolume Volume_; /* the name Volume is KubeVirt's */

static bool is_ours(const char *driver)
{
	return str_eq(driver, DRIVER_SHARED) || str_eq(driver, DRIVER_LOCAL);
}

static const char *mode_of(const char *volume_mode)
{
	return volume_mode ? volume_mode : "Filesystem";
}

static bool has_mode(char *const *modes, size_t n, const char *mode)
{
	for (size_t i = 0; i < n; i++)
		if (str_eq(modes[i], mode))
			return true;
	return false;
}

static const char *wanted_size(const Claim *pvc)
{
	const VolumeResourceRequirements *r = pvc->spec.resources;

	return r ? api_map_get(&r->requests, "storage") : NULL;
}

static bool refers_to(const ObjectReference *ref, const Claim *pvc)
{
	return ref && str_eq(ref->name, pvc->metadata.name) &&
	       str_eq(ref->namespace, pvc->metadata.namespace) &&
	       (str_is_empty(ref->uid) || str_eq(ref->uid, pvc->metadata.uid));
}

/* ---- status of a claim ---- */

static enum rc set_status(const Claim *pvc, const char *phase, const Volume_ *pv, struct plan *out)
{
	CLEANUP(PersistentVolumeClaim_freep)
	Claim *next = PersistentVolumeClaim_clone(pvc);

	if (!next)
		return RC_NOMEM;
	PersistentVolumeClaimStatus *st = &next->status;

	TRY(api_set_str(&st->phase, phase));
	if (pv) {
		for (size_t i = 0; i < st->n_accessModes; i++)
			mem_free(st->accessModes[i]);
		st->n_accessModes = 0;
		for (size_t i = 0; i < pv->spec.n_accessModes; i++)
			TRY(api_append_str(&st->accessModes, &st->n_accessModes,
					   pv->spec.accessModes[i]));
		api_map_fini(&st->capacity);
		TRY(api_map_copy(&st->capacity, &pv->spec.capacity));
	}
	return plan_update(out, PVC, pvc, STEAL(next), "status");
}

static enum rc wait_with(const Claim *pvc, struct plan *out, const char *type, const char *reason,
			 const char *message)
{
	TRY(set_status(pvc, "Pending", NULL, out));
	return plan_event(out, PVC, pvc, type, reason, "%s", message);
}

/* ---- bind ---- */

static enum rc claim_volume(const Volume_ *pv, const Claim *pvc, struct plan *out)
{
	CLEANUP(PersistentVolume_freep)
	Volume_ *next = PersistentVolume_clone(pv);
	ObjectReference *ref =
		next ? api_ensure(&api_type_ObjectReference, &next->spec.claimRef) : NULL;

	if (!ref)
		return RC_NOMEM;
	TRY(api_set_str(&ref->apiVersion, "v1"));
	TRY(api_set_str(&ref->kind, "PersistentVolumeClaim"));
	TRY(api_set_str(&ref->namespace, pvc->metadata.namespace));
	TRY(api_set_str(&ref->name, pvc->metadata.name));
	TRY(api_set_str(&ref->uid, pvc->metadata.uid));
	return plan_update(out, PV, pv, STEAL(next), NULL);
}

static enum rc name_volume(const Claim *pvc, const char *pv_name, struct plan *out)
{
	CLEANUP(PersistentVolumeClaim_freep)
	Claim *next = PersistentVolumeClaim_clone(pvc);

	if (!next)
		return RC_NOMEM;
	TRY(api_set_str(&next->spec.volumeName, pv_name));
	TRY(api_map_set(&next->metadata.annotations, ANN_BOUND, "yes"));
	TRY(api_map_set(&next->metadata.annotations, ANN_BOUND_BY, "yes"));
	TRY(api_add_finalizer(&next->metadata, FIN_PVC));
	return plan_update(out, PVC, pvc, STEAL(next), NULL);
}

static enum rc bind(const Claim *pvc, const Volume_ *pv, struct plan *out)
{
	if (!pv->spec.claimRef || !str_eq(pv->spec.claimRef->uid, pvc->metadata.uid))
		TRY(claim_volume(pv, pvc, out));
	TRY(name_volume(pvc, pv->metadata.name, out));
	return set_status(pvc, "Bound", pv, out);
}

/* ---- an existing volume that fits ---- */

static bool fits(const Volume_ *pv, const Claim *pvc)
{
	const char *class = pvc->spec.storageClassName ? pvc->spec.storageClassName : "";

	if (pv->metadata.deletionTimestamp || str_eq(pv->status.phase, "Released") ||
	    str_eq(pv->status.phase, "Failed"))
		return false;
	if (pv->spec.claimRef && !refers_to(pv->spec.claimRef, pvc))
		return false;
	if (!str_eq(pv->spec.storageClassName ? pv->spec.storageClassName : "", class) ||
	    !str_eq(mode_of(pv->spec.volumeMode), mode_of(pvc->spec.volumeMode)))
		return false;
	for (size_t i = 0; i < pvc->spec.n_accessModes; i++)
		if (!has_mode(pv->spec.accessModes, pv->spec.n_accessModes,
			      pvc->spec.accessModes[i]))
			return false;
	return api_quantity_bytes(api_map_get(&pv->spec.capacity, "storage"), 0) >=
	       api_quantity_bytes(wanted_size(pvc), 0);
}

/* One that names the claim already, else the smallest. */
static const Volume_ *find_volume(const struct view *v, const Claim *pvc)
{
	const Volume_ *best = NULL;
	int64_t best_size = 0;
	struct kiter it;

	view_list(v, PV, NULL, &it);
	for (const Volume_ *pv; (pv = view_next(&it));) {
		int64_t size = api_quantity_bytes(api_map_get(&pv->spec.capacity, "storage"), 0);

		if (!fits(pv, pvc))
			continue;
		if (pv->spec.claimRef)
			return pv;
		if (!best || size < best_size) {
			best = pv;
			best_size = size;
		}
	}
	return best;
}

/* ---- provision ---- */

static enum rc only_on(Volume_ *pv, const char *node)
{
	VolumeNodeAffinity *va = api_ensure(&api_type_VolumeNodeAffinity, &pv->spec.nodeAffinity);
	NodeSelector *ns = va ? api_ensure(&api_type_NodeSelector, &va->required) : NULL;
	NodeSelectorTerm *t =
		ns ? api_append(&ns->nodeSelectorTerms, &ns->n_nodeSelectorTerms, sizeof(*t))
		   : NULL;
	NodeSelectorRequirement *r =
		t ? api_append(&t->matchExpressions, &t->n_matchExpressions, sizeof(*r)) : NULL;

	if (!r)
		return RC_NOMEM;
	TRY(api_set_str(&r->key, LABEL_HOSTNAME));
	TRY(api_set_str(&r->operator, "In"));
	return api_append_str(&r->values, &r->n_values, node);
}

static enum rc fill_source(Volume_ *pv, const StorageClass *sc, const char *node)
{
	CSIPersistentVolumeSource *csi =
		api_ensure(&api_type_CSIPersistentVolumeSource, &pv->spec.csi);

	if (!csi)
		return RC_NOMEM;
	TRY(api_set_str(&csi->driver, sc->provisioner));
	TRY(api_set_str(&csi->volumeHandle, pv->metadata.name));
	TRY(api_map_set(&csi->volumeAttributes, "path", pv->metadata.name));
	return str_eq(sc->provisioner, DRIVER_LOCAL) ? only_on(pv, node) : RC_OK;
}

static enum rc fill_volume(Volume_ *pv, const Claim *pvc, const StorageClass *sc, const char *node)
{
	ObjectReference *ref;

	pv->metadata.name = mem_printf("pvc-%s", pvc->metadata.uid);
	if (!pv->metadata.name)
		return RC_NOMEM;
	TRY(api_map_set(&pv->metadata.annotations, ANN_PROVISIONED_BY, sc->provisioner));
	TRY(api_add_finalizer(&pv->metadata, FIN_PV_DATA));
	TRY(api_map_set(&pv->spec.capacity, "storage", wanted_size(pvc)));
	for (size_t i = 0; i < pvc->spec.n_accessModes; i++)
		TRY(api_append_str(&pv->spec.accessModes, &pv->spec.n_accessModes,
				   pvc->spec.accessModes[i]));
	TRY(api_set_str(&pv->spec.storageClassName, sc->metadata.name));
	TRY(api_set_str(&pv->spec.volumeMode, mode_of(pvc->spec.volumeMode)));
	TRY(api_set_str(&pv->spec.persistentVolumeReclaimPolicy,
			sc->reclaimPolicy ? sc->reclaimPolicy : "Delete"));
	ref = api_ensure(&api_type_ObjectReference, &pv->spec.claimRef);
	if (!ref)
		return RC_NOMEM;
	TRY(api_set_str(&ref->apiVersion, "v1"));
	TRY(api_set_str(&ref->kind, "PersistentVolumeClaim"));
	TRY(api_set_str(&ref->namespace, pvc->metadata.namespace));
	TRY(api_set_str(&ref->name, pvc->metadata.name));
	TRY(api_set_str(&ref->uid, pvc->metadata.uid));
	return fill_source(pv, sc, node);
}

static enum rc provision(const Claim *pvc, const StorageClass *sc, const char *node,
			 struct plan *out)
{
	CLEANUP(PersistentVolume_freep)
	Volume_ *pv = PersistentVolume_new();
	CLEANUP(PersistentVolume_freep)
	Volume_ *copy = NULL;

	if (!pv)
		return RC_NOMEM;
	TRY(fill_volume(pv, pvc, sc, node));
	copy = PersistentVolume_clone(pv);
	if (!copy)
		return RC_NOMEM;
	TRY(plan_create(out, PV, STEAL(pv)));
	TRY(name_volume(pvc, copy->metadata.name, out));
	TRY(set_status(pvc, "Bound", copy, out));
	return plan_event(out, PVC, pvc, "Normal", "ProvisioningSucceeded",
			  "Successfully provisioned volume %s", copy->metadata.name);
}

/* Why a class of ours cannot make this volume; NULL: it can. */
static const char *refusal(const Claim *pvc, const StorageClass *sc)
{
	if (!pvc->spec.n_accessModes)
		return "the claim names no access mode";
	if (api_quantity_bytes(wanted_size(pvc), 0) <= 0)
		return "the claim asks for no storage";
	if (str_eq(sc->provisioner, DRIVER_LOCAL) &&
	    (has_mode(pvc->spec.accessModes, pvc->spec.n_accessModes, "ReadWriteMany") ||
	     has_mode(pvc->spec.accessModes, pvc->spec.n_accessModes, "ReadOnlyMany")))
		return "a volume on the disk of one node cannot be shared: use ReadWriteOnce, or a "
		       "class of "
		       "provisioner ferry.dev/shared";
	return NULL;
}

static enum rc bind_new(const struct view *v, const Claim *pvc, struct plan *out)
{
	const StorageClass *sc = sched_class_of(v, pvc);
	const char *name = pvc->spec.storageClassName, *node, *why;
	char text[320];

	if (!sc && str_is_empty(name))
		return wait_with(
			pvc, out, "Normal", "FailedBinding",
			"no persistent volumes available for this claim and no storage class is "
			"set");
	if (!sc) {
		snprintf(text, sizeof(text), "storageclass.storage.k8s.io \"%s\" not found", name);
		return wait_with(pvc, out, "Warning", "ProvisioningFailed", text);
	}
	if (!is_ours(sc->provisioner)) {
		snprintf(text, sizeof(text),
			 "waiting for a volume to be created by the external provisioner '%s'",
			 sc->provisioner);
		return wait_with(pvc, out, "Normal", "ExternalProvisioning", text);
	}
	why = refusal(pvc, sc);
	if (why)
		return wait_with(pvc, out, "Warning", "ProvisioningFailed", why);
	node = api_annotation(&pvc->metadata, ANN_SELECTED_NODE);
	if (str_eq(sc->volumeBindingMode, "WaitForFirstConsumer") && !node)
		return wait_with(pvc, out, "Normal", "WaitForFirstConsumer",
				 "waiting for first consumer to be created before binding");
	if (str_eq(sc->provisioner, DRIVER_LOCAL) && !node)
		return wait_with(pvc, out, "Warning", "ProvisioningFailed",
				 "a class of provisioner ferry.dev/local needs volumeBindingMode "
				 "WaitForFirstConsumer");
	return provision(pvc, sc, node, out);
}

/* The class's name becomes part of a claim that left it out, as Kubernetes does. */
static enum rc set_class(const struct view *v, const Claim *pvc, struct plan *out, bool *did)
{
	const StorageClass *sc = pvc->spec.storageClassName ? NULL : sched_class_of(v, pvc);

	*did = false;
	if (!sc)
		return RC_OK;
	CLEANUP(PersistentVolumeClaim_freep)
	Claim *next = PersistentVolumeClaim_clone(pvc);

	if (!next)
		return RC_NOMEM;
	TRY(api_set_str(&next->spec.storageClassName, sc->metadata.name));
	*did = true;
	return plan_update(out, PVC, pvc, STEAL(next), NULL);
}

/* ---- a claim that is going ---- */

static bool is_in_use(const struct view *v, const Claim *pvc)
{
	struct kiter it;

	view_list(v, &api_kind_Pod, pvc->metadata.namespace, &it);
	for (const Pod *pod; (pod = view_next(&it));) {
		if (sched_pod_is_final(pod))
			continue;
		for (size_t i = 0; i < pod->spec.n_volumes; i++) {
			const PodPersistentVolumeClaimVolumeSource *s =
				pod->spec.volumes[i].persistentVolumeClaim;

			if (s && str_eq(s->claimName, pvc->metadata.name))
				return true;
		}
	}
	return false;
}

static enum rc release_claim(const struct view *v, const Claim *pvc, struct plan *out)
{
	if (!api_has_finalizer(&pvc->metadata, FIN_PVC) || is_in_use(v, pvc))
		return RC_OK;
	CLEANUP(PersistentVolumeClaim_freep)
	Claim *next = PersistentVolumeClaim_clone(pvc);

	if (!next)
		return RC_NOMEM;
	api_del_finalizer(&next->metadata, FIN_PVC);
	return plan_update(out, PVC, pvc, STEAL(next), NULL);
}

static enum rc claim_sync(const struct view *v, const Claim *pvc, struct plan *out)
{
	const Volume_ *pv;
	bool did;

	if (pvc->metadata.deletionTimestamp)
		return release_claim(v, pvc, out);
	if (!str_is_empty(pvc->spec.volumeName)) {
		pv = view_get(v, PV, NULL, pvc->spec.volumeName);
		if (pv && (!pv->spec.claimRef || refers_to(pv->spec.claimRef, pvc)))
			return bind(pvc, pv, out);
		if (!pv && cc_age(v->now, pvc->metadata.creationTimestamp) < CC_UNSEEN)
			return plan_requeue_after(out, CC_UNSEEN);
		return set_status(pvc,
				  str_eq(pvc->status.phase, "Bound") || pv ? "Lost" : "Pending",
				  NULL, out);
	}
	pv = find_volume(v, pvc);
	if (pv)
		return bind(pvc, pv, out);
	TRY(set_class(v, pvc, out, &did));
	return did ? RC_OK : bind_new(v, pvc, out); /* its own change wakes us */
}

static enum rc claim_reconcile(const struct view *v, const char *ns, const char *name,
			       struct plan *out, struct err *err)
{
	const Claim *pvc = view_get(v, PVC, ns, name);
	enum rc rc = pvc ? claim_sync(v, pvc, out) : RC_OK;

	return rc ? err_set(err, rc, "cannot bind claim '%s'", name) : RC_OK;
}

/* ---- volumes ---- */

static enum rc set_volume_phase(const Volume_ *pv, const char *phase, struct plan *out)
{
	CLEANUP(PersistentVolume_freep)
	Volume_ *next = PersistentVolume_clone(pv);

	if (!next)
		return RC_NOMEM;
	TRY(api_set_str(&next->status.phase, phase));
	return plan_update(out, PV, pv, STEAL(next), "status");
}

static enum rc volume_sync(const struct view *v, const Volume_ *pv, struct plan *out)
{
	const ObjectReference *ref = pv->spec.claimRef;

	if (pv->metadata.deletionTimestamp)
		return RC_OK;
	if (!ref || str_is_empty(ref->uid))
		return set_volume_phase(pv, "Available", out);
	const Claim *pvc = view_get(v, PVC, ref->namespace, ref->name);

	if (pvc && str_eq(pvc->metadata.uid, ref->uid))
		return str_eq(pvc->spec.volumeName, pv->metadata.name)
			       ? set_volume_phase(pv, "Bound", out)
			       : RC_OK;
	usec_t age = cc_age(v->now, pv->metadata.creationTimestamp);

	if (age < CC_UNSEEN)
		return plan_requeue_after(out, CC_UNSEEN - age);
	TRY(set_volume_phase(pv, "Released", out));
	if (!str_eq(pv->spec.persistentVolumeReclaimPolicy, "Delete") || !pv->spec.csi ||
	    !is_ours(pv->spec.csi->driver))
		return RC_OK;
	return plan_delete(out, PV, NULL, pv->metadata.name, pv->metadata.uid, -1, NULL);
}

static enum rc volume_reconcile(const struct view *v, const char *ns, const char *name,
				struct plan *out, struct err *err)
{
	const Volume_ *pv = view_get(v, PV, ns, name);
	enum rc rc = pv ? volume_sync(v, pv, out) : RC_OK;

	return rc ? err_set(err, rc, "cannot settle volume '%s'", name) : RC_OK;
}

/* ---- what wakes them ---- */

static void map_volume_to_claim(const struct view *v, const struct kobj *obj, ctl_emit_fn emit,
				void *ctx)
{
	const Volume_ *pv = kobj_typed(obj);
	struct kiter it;

	if (pv->spec.claimRef) {
		emit(ctx, pv->spec.claimRef->namespace, pv->spec.claimRef->name);
		return;
	}
	view_list(v, PVC, NULL, &it); /* a free volume: whoever waits may take it */
	for (const Claim *pvc; (pvc = view_next(&it));)
		if (str_is_empty(pvc->spec.volumeName))
			emit(ctx, pvc->metadata.namespace, pvc->metadata.name);
}

static void map_class(const struct view *v, const struct kobj *obj, ctl_emit_fn emit, void *ctx)
{
	struct kiter it;

	(void)obj;
	view_list(v, PVC, NULL, &it);
	for (const Claim *pvc; (pvc = view_next(&it));)
		if (str_is_empty(pvc->spec.volumeName))
			emit(ctx, pvc->metadata.namespace, pvc->metadata.name);
}

/* The end of a pod may free a claim that is going. */
static void map_pod(const struct view *v, const struct kobj *obj, ctl_emit_fn emit, void *ctx)
{
	const Pod *pod = kobj_typed(obj);

	for (size_t i = 0; i < pod->spec.n_volumes; i++) {
		const PodPersistentVolumeClaimVolumeSource *s =
			pod->spec.volumes[i].persistentVolumeClaim;
		const struct kobj *pvc =
			s ? kcache_get(v->cache, PVC, kobj_ns(obj), s->claimName) : NULL;

		if (pvc && kobj_is_going(pvc))
			emit(ctx, kobj_ns(obj), s->claimName);
	}
}

static void map_claim_to_volume(const struct view *v, const struct kobj *obj, ctl_emit_fn emit,
				void *ctx)
{
	const Claim *pvc = kobj_typed(obj);
	char name[64];

	(void)v;
	if (!str_is_empty(pvc->spec.volumeName)) {
		emit(ctx, NULL, pvc->spec.volumeName);
		return;
	}
	/* Provisioned, but the claim went before it was told. */
	(void)snprintf(name, sizeof(name), "pvc-%s", kobj_uid(obj));
	emit(ctx, NULL, name);
}

static const struct ctl_map claim_maps[] = {
	{&api_kind_PersistentVolume, map_volume_to_claim},
	{&api_kind_StorageClass, map_class},
	{&api_kind_Pod, map_pod},
	{NULL, NULL},
};

static const struct ctl_map volume_maps[] = {
	{&api_kind_PersistentVolumeClaim, map_claim_to_volume},
	{NULL, NULL},
};

const struct ctl_def claim_ctl_def = {
	.name = "persistentvolumeclaim",
	.primary = &api_kind_PersistentVolumeClaim,
	.reconcile = claim_reconcile,
	.maps = claim_maps,
};

const struct ctl_def volume_ctl_def = {
	.name = "persistentvolume",
	.primary = &api_kind_PersistentVolume,
	.reconcile = volume_reconcile,
	.maps = volume_maps,
};
