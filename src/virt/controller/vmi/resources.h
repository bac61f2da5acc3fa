/* src/virt/controller/vmi/resources.h - what a virtual machine costs its node.
 *
 * Pure.  Source: KubeVirt v1.9's memory overhead and launcher resources.
 */
#ifndef VIRT_CONTROLLER_VMI_RESOURCES_H
#define VIRT_CONTROLLER_VMI_RESOURCES_H

#include "api/gen/api_types.h"
#include "base/err.h"

/* Guest CPUs: sockets * cores * threads, zeros counting as one; without a cpu section from limits.cpu,
 * else requests.cpu, rounded up; at least one. */
int64_t vmi_vcpus(const VirtualMachineInstanceSpec *spec);
/* Guest memory in bytes: memory.guest, else requests.memory, else limits.memory; 0 when unknown. */
int64_t vmi_guest_memory(const VirtualMachineInstanceSpec *spec);
/* What QEMU and the launcher need beyond the guest's memory, in bytes.  cfg NULL: defaults. */
int64_t vmi_memory_overhead(const VirtualMachineInstanceSpec *spec,
			    const KubeVirtConfiguration *cfg);

struct vmi_devices {
	bool kvm; /* ask for devices.kubevirt.io/kvm */
	bool tun;
};

/* Requests and limits of the container 'compute'. *out is overwritten; on failure it is empty. */
MUST_CHECK enum rc vmi_compute_resources(const VirtualMachineInstanceSpec *spec,
					 const KubeVirtConfiguration *cfg,
					 const struct vmi_devices *dev,
					 PodResourceRequirements *out);

#endif
