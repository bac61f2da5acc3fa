/* src/virt/controller/vmi/vmi_status.h - what a VMI's status says, computed from its pod and node.
 *
 * Pure; private to the VMI controller.
 */
#ifndef VIRT_CONTROLLER_VMI_VMI_STATUS_H
#define VIRT_CONTROLLER_VMI_VMI_STATUS_H

#include "virt/controller/vmi/vmi.h"

struct vmi_ctx {
	const struct view *v;
	const VirtualMachineInstance *vmi; /* as stored */
	VirtualMachineInstance *next;	   /* as it should be */
	struct vmi_pods pods;
	struct plan *plan;
	struct err *err;
	bool is_urgent; /* the change must be written now, whatever else is about to become true */
};

/* Phase, node, active pods, conditions and volumes from the current pod. */
MUST_CHECK enum rc vmi_status_from_pod(struct vmi_ctx *c);
/* Pods that have not ended and hold some of the guest, with their nodes. */
MUST_CHECK enum rc vmi_set_active_pods(struct vmi_ctx *c);
/* Conditions that hold whether there is a pod or not. */
MUST_CHECK enum rc vmi_status_common(struct vmi_ctx *c);
/* Synchronized is present only while False. reason NULL: the controller has nothing to say. */
MUST_CHECK enum rc vmi_set_synchronized(struct vmi_ctx *c, const char *reason, const char *fmt, ...)
	PRINTF_LIKE(3, 4);
MUST_CHECK enum rc vmi_volume_status(struct vmi_ctx *c, const PersistentVolumeClaim *const *claims);
/* A move is under way: the ends of its pods are the node agents' business until it has ended. */
bool vmi_is_moving(const VirtualMachineInstance *vmi);
/* Is the node's agent silent?  Marked by the node lifecycle controller. */
bool vmi_node_is_silent(const struct view *v, const char *node);

#endif
