/* src/virt/controller/vmi/launcher_pod.h - the pod that a virtual machine runs in.
 *
 * Pure.  Source: KubeVirt v1.9's launch manifest; what Ferry adds are three annotations
 * (ferry.dev/address, mac, uid): the things a VM keeps wherever it runs.
 */
#ifndef VIRT_CONTROLLER_VMI_LAUNCHER_POD_H
#define VIRT_CONTROLLER_VMI_LAUNCHER_POD_H

#include "api/gen/api_types.h"
#include "base/err.h"
#include "virt/controller/vmi/resources.h"

#define VM_UID_FIRST 200000 /* unix uids of virtual machines */
#define VM_UID_COUNT 65536

struct launcher_pod_in {
	const VirtualMachineInstance *vmi;
	const KubeVirtConfiguration *cfg; /* NULL: defaults */
	const char *seed;    /* of the pod's name suffix: uid of the VMI, or of the migration */
	const char *address; /* NULL: no pod network */
	const char *mac;
	int64_t uid;
	const char *cpu_baseline; /* model that host-model stands for; NULL: the node's own best */
	struct vmi_devices devices;
	const PersistentVolumeClaim *const
		*claims; /* per volume of the VMI; NULL items: no claim */
};

/* "virt-launcher-<vmi>-<5 characters>", owned by the caller; NULL when out of memory. */
char *launcher_pod_name(const char *vmi_name, const char *seed);
MUST_CHECK enum rc launcher_pod_build(const struct launcher_pod_in *in, Pod **out, struct err *err);

/* Was the pod made for another version's launcher?  KubeVirt compares the image of the container compute, too. */
bool launcher_pod_is_outdated(const Pod *pod);

/* One more requirement in every term of the pod's required node affinity. */
MUST_CHECK enum rc launcher_pod_require(Pod *pod, const char *key, const char *op,
					const char *value);
/* The value of labels that are limited to 63 characters: name, or its start and a hash. */
MUST_CHECK enum rc launcher_label_of(const char *name, char **out);

#endif
