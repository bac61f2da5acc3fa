#include "sched/snapshot.h"

#include "api/meta.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/try.h"

#define ANN_DEFAULT_CLASS "storageclass.kubernetes.io/is-default-class"

enum rc sched_snapshot(const struct view *v, struct sched_cluster *out)
{
	struct kiter it;

	sched_cluster_init(out);
	view_list(v, &api_kind_Node, NULL, &it);
	for (const Node *n; (n = view_next(&it));)
		TRY(sched_cluster_add_node(out, n));
	view_list(v, &api_kind_Namespace, NULL, &it);
	for (const Namespace *ns; (ns = view_next(&it));)
		TRY(sched_cluster_add_namespace(out, ns));
	view_list(v, &api_kind_Pod, NULL, &it);
	for (const Pod *p; (p = view_next(&it));)
		TRY(sched_cluster_add_pod(out, p));
	return RC_OK;
}

const StorageClass *sched_class_of(const struct view *v, const PersistentVolumeClaim *pvc)
{
	const StorageClass *best = NULL;
	struct kiter it;

	if (pvc->spec.storageClassName)
		return *pvc->spec.storageClassName ? view_get(v, &api_kind_StorageClass, NULL,
							      pvc->spec.storageClassName)
						   : NULL;
	view_list(v, &api_kind_StorageClass, NULL, &it);
	for (const StorageClass *sc; (sc = view_next(&it));) {
		if (!str_eq(api_annotation(&sc->metadata, ANN_DEFAULT_CLASS), "true"))
			continue;
		/* of several, the newest, as Kubernetes does */
		if (!best ||
		    strcmp(sc->metadata.creationTimestamp ? sc->metadata.creationTimestamp : "",
			   best->metadata.creationTimestamp ? best->metadata.creationTimestamp
							    : "") > 0)
			best = sc;
	}
	return best;
}

static void resolve(const struct view *v, const Pod *pod, const char *claim,
		    struct sched_volume *out)
{
	const StorageClass *sc;

	out->claim = claim;
	out->comes_along =
		str_list_has(api_annotation(&pod->metadata, SCHED_BRINGS_CLAIMS), ',', claim);
	out->pvc = view_get(v, &api_kind_PersistentVolumeClaim, pod->metadata.namespace, claim);
	if (!out->pvc)
		return;
	if (str_eq(out->pvc->status.phase, "Bound") && !str_is_empty(out->pvc->spec.volumeName))
		out->pv = view_get(v, &api_kind_PersistentVolume, NULL, out->pvc->spec.volumeName);
	sc = sched_class_of(v, out->pvc);
	out->waits_for_consumer =
		!out->pv && sc && str_eq(sc->volumeBindingMode, "WaitForFirstConsumer");
}

enum rc sched_pod_volumes(const struct view *v, const Pod *pod, struct sched_volume **out,
			  size_t *n)
{
	struct sched_volume *vols =
		mem_calloc(pod->spec.n_volumes ? pod->spec.n_volumes : 1, sizeof(*vols));
	size_t k = 0;

	if (!vols)
		return RC_NOMEM;
	for (size_t i = 0; i < pod->spec.n_volumes; i++)
		if (pod->spec.volumes[i].persistentVolumeClaim)
			resolve(v, pod, pod->spec.volumes[i].persistentVolumeClaim->claimName,
				&vols[k++]);
	*out = vols;
	*n = k;
	return RC_OK;
}
