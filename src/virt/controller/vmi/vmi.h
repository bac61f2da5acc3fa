/* src/virt/controller/vmi/vmi.h - the VirtualMachineInstance controller.
 *
 * Pure reconciler: gives a VMI its launcher pod, its identity (address, MAC, uid) and its forwarding
 * record, and reports what the pod says as phases and conditions.  The node agent writes Running and
 * the guest's end; nothing here ever stops a guest unless the VMI was deleted or is final.
 * docs/internals/vmi.md draws the states.
 */
#ifndef VIRT_CONTROLLER_VMI_VMI_H
#define VIRT_CONTROLLER_VMI_VMI_H

#include "api/gen/api_types.h"
#include "ctl/ctl.h"
#include "virt/controller/vmi/resources.h"

struct sbuf;

enum rc vmi_reconcile(const struct view *v, const char *ns, const char *name, struct plan *out,
		      struct err *err);

/* Launcher pods of one VMI. */
#define VMI_MAX_PODS 16
struct vmi_pods {
	const Pod *all[VMI_MAX_PODS]; /* oldest first; live ones are never cut off */
	size_t n;
	const Pod *current; /* the one that holds the guest; NULL: none */
};
void vmi_find_pods(const struct view *v, const VirtualMachineInstance *vmi, struct vmi_pods *out);

/* Claims behind the volumes, in their order.  *missing: name of the first that does not exist. */
MUST_CHECK enum rc vmi_claims(const struct view *v, const VirtualMachineInstance *vmi,
			      const PersistentVolumeClaim ***out, const char **missing);
/* Which devices the nodes of this cluster offer at all. */
struct vmi_devices vmi_cluster_devices(const struct view *v);

/* Files of its hostDisks that a node has, by its VM's record (vmi_host_disks.c).  The pod is to start there: one more
 * requirement for each. */
MUST_CHECK enum rc vmi_pin_host_disks(const struct view *v, const VirtualMachineInstance *vmi,
				      Pod *pod);
/* Why a pod that has no node yet waits for those nodes, appended: "; hostDisk 'data': ...".  Nothing without any. */
void vmi_tell_host_disks(const struct view *v, const VirtualMachineInstance *vmi, struct sbuf *out);

extern const struct ctl_def vmi_ctl_def;

#endif
