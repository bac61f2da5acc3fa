#include "virt/controller/vmi/vmi.h"

#include "api/api.h"
#include "api/meta.h"
#include "api/quantity.h"
#include "base/mem.h"
#include "base/str.h"
#include "virt/controller/kit.h"
#include "virt/names.h"

static int order(const Pod *a, const Pod *b)
{
	const char *x = a->metadata.creationTimestamp ? a->metadata.creationTimestamp : "";
	const char *y = b->metadata.creationTimestamp ? b->metadata.creationTimestamp : "";
	int c = strcmp(x, y); /* RFC 3339 in UTC sorts as text */

	return c ? c : strcmp(a->metadata.name, b->metadata.name);
}

static void insert(struct vmi_pods *out, const Pod *pod)
{
	size_t i = out->n;

	if (out->n == VMI_MAX_PODS) {
		size_t drop = 0; /* forget the oldest one that has ended */

		while (drop < out->n && !kit_pod_is_final(out->all[drop]))
			drop++;
		if (drop == out->n)
			return;
		memmove(&out->all[drop], &out->all[drop + 1],
			(out->n - drop - 1) * sizeof(out->all[0]));
		i = --out->n;
	}
	while (i > 0 && order(pod, out->all[i - 1]) < 0) {
		out->all[i] = out->all[i - 1];
		i--;
	}
	out->all[i] = pod;
	out->n++;
}

static bool is_target_of_completed(const VirtualMachineInstance *vmi, const Pod *pod)
{
	const VirtualMachineInstanceMigrationState *ms = vmi->status.migrationState;

	return ms && API_GET(ms, completed, false) && !API_GET(ms, failed, false) &&
	       str_eq(ms->targetPod, pod->metadata.name);
}

/* The guest is where status.nodeName says; before that it is in the pod that no migration made. */
static const Pod *find_current(const VirtualMachineInstance *vmi, const struct vmi_pods *pods)
{
	const char *node = vmi->status.nodeName;
	const Pod *best = NULL;

	for (size_t i = 0; i < pods->n; i++) {
		const Pod *pod = pods->all[i];
		bool is_target = api_label(&pod->metadata, LABEL_MIGRATION_UID) != NULL;

		if (is_target_of_completed(vmi, pod))
			return pod;
		if (!str_is_empty(node) ? !str_eq(pod->spec.nodeName, node) : is_target)
			continue;
		/* live ones before ended ones, then the newest; a target that never got the guest cannot
		 * be on the guest's node, because of its anti-affinity */
		if (!best || kit_pod_is_final(best) || !kit_pod_is_final(pod))
			best = pod;
	}
	return best;
}

void vmi_find_pods(const struct view *v, const VirtualMachineInstance *vmi, struct vmi_pods *out)
{
	struct kiter it;

	memset(out, 0, sizeof(*out));
	view_children(v, &api_kind_Pod, vmi->metadata.uid, &it);
	for (const Pod *pod; (pod = view_next(&it));)
		if (str_eq(api_label(&pod->metadata, LABEL_ROLE), ROLE_LAUNCHER))
			insert(out, pod);
	out->current = find_current(vmi, out);
}

enum rc vmi_claims(const struct view *v, const VirtualMachineInstance *vmi,
		   const PersistentVolumeClaim ***out, const char **missing)
{
	size_t n = vmi->spec.n_volumes;
	const PersistentVolumeClaim **claims = mem_calloc(n ? n : 1, sizeof(*claims));

	*missing = NULL;
	if (!claims)
		return RC_NOMEM;
	for (size_t i = 0; i < n; i++) {
		const char *claim = kit_volume_claim(&vmi->spec.volumes[i]);

		if (!claim)
			continue;
		claims[i] = view_get(v, &api_kind_PersistentVolumeClaim, vmi->metadata.namespace,
				     claim);
		if (!claims[i] && !*missing)
			*missing = claim;
	}
	*out = claims;
	return RC_OK;
}

struct vmi_devices vmi_cluster_devices(const struct view *v)
{
	const KubeVirtConfiguration *cfg = kit_config(v);
	const DeveloperConfiguration *dc = cfg ? cfg->developerConfiguration : NULL;
	struct vmi_devices out = {false, false};
	struct kiter it;

	view_list(v, &api_kind_Node, NULL, &it);
	for (const Node *n; (n = view_next(&it));) {
		const struct api_map *has = &n->status.allocatable;

		if (api_quantity_bytes(api_map_get(has, "devices.kubevirt.io/kvm"), 0) > 0)
			out.kvm = true;
		if (api_quantity_bytes(api_map_get(has, "devices.kubevirt.io/tun"), 0) > 0)
			out.tun = true;
	}
	if (dc && API_GET(dc, useEmulation, false))
		out.kvm = false;
	return out;
}
