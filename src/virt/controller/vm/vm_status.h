/* src/virt/controller/vm/vm_status.h - a VM's conditions, computed from its VMI.
 *
 * Pure; private to the VM controller.
 */
#ifndef VIRT_CONTROLLER_VM_VM_STATUS_H
#define VIRT_CONTROLLER_VM_VM_STATUS_H

#include "virt/controller/vm/vm.h"

/* Ready, and every condition of the VMI but Ready, Failure and RestartRequired; vanished ones go. */
MUST_CHECK enum rc vm_mirror_conditions(VirtualMachineStatus *st, const VirtualMachineInstance *vmi,
					usec_t now);
/* Has the template changed in a way that a running VMI cannot take up?  started: the VM's spec when the
 * VMI was created. */
bool vm_needs_restart(const VirtualMachineSpec *now, const VirtualMachineSpec *started);
/* RestartRequired, only while True. */
MUST_CHECK enum rc vm_set_restart_required(VirtualMachineStatus *st, bool is_required, usec_t now);

#endif
