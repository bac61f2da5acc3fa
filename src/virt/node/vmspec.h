/* src/virt/node/vmspec.h - what the launcher is to run, from a VMI and what was made for it.
 *
 * Pure.  Whatever the VMI leaves open is decided here, the same way on every node of a move: machine
 * type and CPU model of a running VM come from its status.
 */
#ifndef NODE_VMSPEC_H
#define NODE_VMSPEC_H

#include "api/gen/api_types.h"
#include "base/err.h"
#include "virt/launcher/launch_spec.h"
#include "virt/node/qcow2.h"

struct json;

enum { VMSPEC_NAME_MAX = 96 };

struct vmspec_disk { /* a volume that was opened */
	const char *volume;
	enum image_format top_format;
	enum image_format base_format;
	bool has_base;
	bool moves; /* local to this node */
	bool has_direct_io;
	bool is_block;
};

struct vmspec_env {
	const struct json *probe; /* see cpulabels.h */
	const char *accel;	  /* "kvm", "tcg" */
	const char
		*host_model; /* what host-model stands for in this pod; NULL: the node's own best */
	const struct vmspec_disk *disks;
	size_t n_disks;
	int64_t uid;	 /* unix uid of QEMU */
	const char *mac; /* of the VM on the cluster network; an interface's own wins */
	unsigned mtu;
	bool has_initrd;      /* kernelBoot with an initrd file */
	int64_t memory_limit; /* of the pod, bytes; 0: none */
	const char *pod_uid;
};

/* RC_INVALID, RC_UNSUPPORTED with the field that cannot be done.  *out is the caller's. */
MUST_CHECK enum rc vmspec_build(const VirtualMachineInstance *vmi, const struct vmspec_env *env,
				struct launch_spec **out, struct err *err);

/* Names of descriptors. */
void vmspec_top_name(const char *volume, char out[VMSPEC_NAME_MAX]);  /* "disk.<volume>" */
void vmspec_base_name(const char *volume, char out[VMSPEC_NAME_MAX]); /* "base.<volume>" */
void vmspec_tap_name(const char *network, char out[VMSPEC_NAME_MAX]); /* "tap.<network>" */
#define VMSPEC_NETNS  "netns"
#define VMSPEC_KERNEL "kernel"
#define VMSPEC_INITRD "initrd"

/* "Skylake-Client,+avx2,-hle": what goes into status.ferry.cpuModel. Owned by the caller; NULL: out of
 * memory. */
char *vmspec_cpu_text(const struct launch_spec *s);
/* The interface on the pod network and its network; both NULL when there is none. */
void vmspec_pod_interface(const VirtualMachineInstance *vmi, const Interface **iface,
			  const Network **net);
/* The MAC that the guest sees: the interface's own, else the VM's. */
const char *vmspec_mac(const Interface *iface, const char *vm_mac);
/* Guest memory in bytes (facts: memory.guest, else requests, else limits), rounded up to whole MiB, which
 * the launcher takes; 0: none given. */
int64_t vmspec_memory(const VirtualMachineInstance *vmi);
const Disk *vmspec_disk_of(const VirtualMachineInstance *vmi, const char *volume); /* NULL: none */
/* A CD-ROM, or readonly: true; NULL: no. */
bool vmspec_disk_is_read_only(const Disk *d);
/* The guest's host name: cut at the first dot, at most 63 bytes. */
void vmspec_hostname(const VirtualMachineInstance *vmi, char out[64]);
/* firmware.uuid, else the VMI's own uid. */
const char *vmspec_uuid(const VirtualMachineInstance *vmi);

#endif
