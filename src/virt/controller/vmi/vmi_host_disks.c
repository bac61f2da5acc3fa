/* A hostDisk of one node: the VM starts where its file is, and says so when it cannot. */
#include "api/api.h"
#include "api/meta.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "base/try.h"
#include "virt/controller/kit.h"
#include "virt/controller/vmi/launcher_pod.h"
#include "virt/controller/vmi/vmi.h"
#include "virt/migration/host_disks.h"
#include "virt/names.h"

/* What its VM keeps beyond KubeVirt's status; NULL: nothing, or it has no VM. */
static const FerryVMStatus *kept_by_owner(const struct view *v, const VirtualMachineInstance *vmi)
{
	const OwnerReference *o = api_controller_of(&vmi->metadata);

	if (!o || !str_eq(o->kind, "VirtualMachine"))
		return NULL;
	const VirtualMachine *vm =
		view_get(v, &api_kind_VirtualMachine, vmi->metadata.namespace, o->name);

	return vm && str_eq(vm->metadata.uid, o->uid) ? vm->status.ferry : NULL;
}

/* The node that has this volume's file; NULL: any may. */
static const char *pin_of(const FerryVMStatus *kept, const VirtualMachineInstance *vmi,
			  const Volume *v)
{
	return kept && host_disk_is_own(&vmi->spec, v)
		       ? host_disk_node(kept->hostDisks, kept->n_hostDisks, v->hostDisk->path)
		       : NULL;
}

enum rc vmi_pin_host_disks(const struct view *v, const VirtualMachineInstance *vmi, Pod *pod)
{
	const FerryVMStatus *kept = kept_by_owner(v, vmi);

	for (size_t i = 0; i < vmi->spec.n_volumes; i++) {
		const char *node = pin_of(kept, vmi, &vmi->spec.volumes[i]);

		if (node)
			TRY(launcher_pod_require(pod, LABEL_HOSTNAME, "In", node));
	}
	return RC_OK;
}

/* The user's own words against it: the label that the node does not have as they ask. */
static const struct api_map_item *contradiction(const VirtualMachineInstance *vmi, const Node *node)
{
	const struct api_map *sel = &vmi->spec.nodeSelector;

	for (size_t i = 0; i < sel->n; i++)
		if (!str_eq(api_label(&node->metadata, sel->items[i].key), sel->items[i].value))
			return &sel->items[i];
	return NULL;
}

static void tell_one(const struct view *v, const VirtualMachineInstance *vmi, const Volume *vol,
		     const char *name, struct sbuf *out)
{
	const Node *node = view_get(v, &api_kind_Node, NULL, name);
	const struct api_map_item *no = node ? contradiction(vmi, node) : NULL;

	sbuf_addf(out, "; hostDisk '%s': its file '%s' is on node '%s'", vol->name,
		  vol->hostDisk->path, name);
	if (!node)
		sbuf_adds(out, ", which is not in the cluster");
	else if (no)
		sbuf_addf(out, ", which the VM's own nodeSelector does not allow (%s=%s)", no->key,
			  no->value);
	else if (API_GET(&node->spec, unschedulable, false))
		sbuf_adds(out, ", which is cordoned");
	else if (!API_COND_IS(&node->status, NodeCondition, "Ready", "True"))
		sbuf_adds(out, ", which is not ready");
}

void vmi_tell_host_disks(const struct view *v, const VirtualMachineInstance *vmi, struct sbuf *out)
{
	const FerryVMStatus *kept = kept_by_owner(v, vmi);

	for (size_t i = 0; i < vmi->spec.n_volumes; i++) {
		const char *node = pin_of(kept, vmi, &vmi->spec.volumes[i]);

		if (node)
			tell_one(v, vmi, &vmi->spec.volumes[i], node, out);
	}
}
