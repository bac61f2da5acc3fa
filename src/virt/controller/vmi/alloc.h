/* src/virt/controller/vmi/alloc.h - what a VM keeps for its life: address, MAC, unix uid.
 *
 * Pure.  A value is taken by creating an Allocation named after it: the create is the compare-and-swap.
 * Candidates come from a hash of the owner's uid, with linear probing over what the view shows as
 * taken; a collision that the view does not show yet fails the create, and the next look probes on.
 */
#ifndef VIRT_CONTROLLER_VMI_ALLOC_H
#define VIRT_CONTROLLER_VMI_ALLOC_H

#include "api/gen/api_types.h"
#include "base/err.h"
#include "ctl/ctl.h"
#include "ctl/plan.h"
#include "ctl/view.h"

#define ALLOC_INDEX "allocation-owner" /* Allocations by spec.owner.uid */

struct vm_identity {
	bool has_network; /* the VM has an interface on the pod network */
	char address[48];
	char mac[24];
	int64_t uid;
};

/* Who owns the allocations of a VMI: the VM that controls it, else the VMI. Borrowed texts. */
struct alloc_owner {
	const char *kind;
	const char *ns;
	const char *name;
	const char *uid;
};
struct alloc_owner alloc_owner_of(const VirtualMachineInstance *vmi);

/* Finds what the owner holds and plans the creation of what is missing. RC_BUSY: nothing is free. */
MUST_CHECK enum rc alloc_identity(const struct view *v, const VirtualMachineInstance *vmi,
				  struct plan *plan, struct vm_identity *out, struct err *err);
/* "address-10-244-1-5" */
MUST_CHECK enum rc alloc_name(const char *type, const char *value, char **out);
/* The value of this type that the owner holds; NULL: none. Borrowed from the view. */
const char *alloc_held(const struct view *v, const char *owner_uid, const char *type);

void alloc_index(const struct kobj *o, kcache_emit_fn emit, void *ctx);
/* Controller "allocation": releases what belongs to VMs and VMIs that are gone. */
extern const struct ctl_def alloc_ctl_def;

#endif
