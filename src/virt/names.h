/* src/virt/names.h - labels, annotations, finalizers and other fixed names of the KubeVirt API and of
 * Ferry's own group.
 *
 * Constants only.  Source: KubeVirt v1.9 API (kubevirt.io/api/core/v1).
 */
#ifndef VIRT_NAMES_H
#define VIRT_NAMES_H

/* Labels */
#define LABEL_ROLE		  "kubevirt.io" /* pods: its value is the role */
#define ROLE_LAUNCHER		  "virt-launcher"
#define LABEL_CREATED_BY	  "kubevirt.io/created-by"	/* pod: uid of the VMI */
#define LABEL_MIGRATION_UID	  "kubevirt.io/migrationJobUID" /* target pod: uid of the VMIM */
#define LABEL_MIGRATION_TARGET	  "kubevirt.io/migrationTargetNodeName"
#define LABEL_NODE_NAME		  "kubevirt.io/nodeName"
#define LABEL_VMI_NAME		  "kubevirt.io/vmi-name" /* VMIM */
#define LABEL_VM_NAME		  "vm.kubevirt.io/name"
#define LABEL_VMI_ID		  "vmi.kubevirt.io/id"
#define LABEL_SCHEDULABLE	  "kubevirt.io/schedulable"
#define LABEL_CPU_MODEL		  "cpu-model.node.kubevirt.io/"
#define LABEL_CPU_MODEL_MIGRATION "cpu-model-migration.node.kubevirt.io/"
#define LABEL_CPU_FEATURE	  "cpu-feature.node.kubevirt.io/"
#define LABEL_CPU_VENDOR	  "cpu-vendor.node.kubevirt.io/"
#define LABEL_HOST_MODEL_CPU	  "host-model-cpu.node.kubevirt.io/"
#define LABEL_HOST_MODEL_FEATURE  "host-model-required-features.node.kubevirt.io/"
#define LABEL_OBSOLETE_HOST_MODEL "node-labeller.kubevirt.io/obsolete-host-model"
#define LABEL_MACHINE_TYPE	  "machine-type.node.kubevirt.io/"
/* Ferry's, on nodes: "10.0.2", and the same as a number that selectors can compare ("1000"). */
#define LABEL_QEMU	   "ferry.dev/qemu-"
#define LABEL_QEMU_VERSION LABEL_QEMU "version"
#define LABEL_QEMU_LEVEL   LABEL_QEMU "level"
/* Its address in the migration network of that name. */
#define LABEL_MIGRATION_NETWORK "migration-network.ferry.dev/"
/* What QEMU here can do with the memory of a move; an agent that sets them knows how to ask for it. */
#define LABEL_QEMU_MULTIFD LABEL_QEMU "multifd"
#define LABEL_QEMU_ZSTD	   LABEL_QEMU "zstd"
#define LABEL_QEMU_XBZRLE  LABEL_QEMU "xbzrle"
#define LABEL_HOSTNAME	   "kubernetes.io/hostname"
#define LABEL_ARCH	   "kubernetes.io/arch"

/* Annotations */
#define ANN_DOMAIN		  "kubevirt.io/domain"
#define ANN_MIGRATION_NAME	  "kubevirt.io/migrationJobName"
#define ANN_VM_GENERATION	  "kubevirt.io/vm-generation"
#define ANN_MEMORY_OVERHEAD	  "kubevirt.io/memory-overhead-bytes"
#define ANN_TRANSPORT_UNIX	  "kubevirt.io/migrationTransportUnix"
#define ANN_EVACUATION		  "kubevirt.io/evacuationMigration"
#define ANN_WORKLOAD_UPDATE	  "kubevirt.io/workloadUpdateMigration"
#define ANN_ALLOW_POD_BRIDGE	  "kubevirt.io/allow-pod-bridge-network-live-migration"
#define ANN_UNSCHEDULABLE_TIMEOUT "kubevirt.io/migrationUnschedulablePodTimeoutSeconds"
#define ANN_PENDING_TIMEOUT	  "kubevirt.io/migrationPendingPodTimeoutSeconds"
#define ANN_OBSERVED_VERSION	  "kubevirt.io/latest-observed-api-version"
#define ANN_STORAGE_VERSION	  "kubevirt.io/storage-observed-api-version"
#define ANN_EVICT_ONLY		  "descheduler.alpha.kubernetes.io/request-evict-only"
#define ANN_EVICTION_SOURCE \
	"kubevirt.io/eviction-source" /* VMI: who marked it, when that lowers its priority */
#define ANN_EVICTION_IN_PROGRESS "descheduler.alpha.kubernetes.io/eviction-in-progress"
/* Ferry's, on migrations: finish it now, the guest may stand for as long as that takes. */
#define ANN_FINISH   "ferry.dev/finish"
#define FINISH_PAUSE "pause"
/* Ferry's, on launcher pods: what the VM keeps wherever it runs. */
#define ANN_ADDRESS "ferry.dev/address"
#define ANN_MAC	    "ferry.dev/mac"
#define ANN_UID	    "ferry.dev/uid"
/* Of a target's pod: hostDisk volumes, "name,name", whose files it brings along. */
#define ANN_BRINGS_HOST_DISKS "ferry.dev/brings-host-disks"
/* Of a node: "yes", "later: …" or "no: …" for each VMI (by its uid) whose disks a move would bring there. */
#define ANN_ARRIVALS "arrivals.ferry.dev/"
/* Of a launcher pod: what host-model stands for in it (FerryConfig.spec.cpuBaseline when it was made). */
#define ANN_CPU_MODEL "ferry.dev/cpu-model"

/* PersistentVolumes of Ferry's classes; an annotation names the copies that moves have left behind. */
#define PV_DRIVER_SHARED "ferry.dev/shared"
#define PV_DRIVER_LOCAL	 "ferry.dev/local"
#define ANN_LEFT_BEHIND	 "ferry.dev/left-behind"
#define ANN_KEPT_ON	 "ferry.dev/kept-on"

/* The name that the image of kernelBoot goes by, beside those of volumes. */
#define VOLUME_KERNEL_BOOT "kernel-boot"

/* The cluster network where FerryConfig names none. */
#define NETWORK_DEFAULT "10.244.0.0/16"

/* Finalizers */
#define FIN_VM	       "kubevirt.io/virtualMachineControllerFinalize" /* VM and VMI */
#define FIN_VMI	       "kubevirt.io/foregroundDeleteVirtualMachine"
#define FIN_VMIM       "kubevirt.io/migrationJobFinalize"
#define FIN_ORPHAN     "orphan"
#define FIN_FOREGROUND "foregroundDeletion"
#define FIN_PV_DATA    "ferry.dev/pv-data" /* the data of a PersistentVolume is still there */

/* Taints */
#define TAINT_DRAIN	     "kubevirt.io/drain"
#define TAINT_UNREACHABLE    "node.kubernetes.io/unreachable"
#define TAINT_NOT_READY	     "node.kubernetes.io/not-ready"
#define TAINT_UNSCHEDULABLE  "node.kubernetes.io/unschedulable"
#define TAINT_OUT_OF_SERVICE "node.kubernetes.io/out-of-service"
#define TAINT_VALUE_FENCED \
	"fenced-" /* its value when the fence agent is the reason; the epoch follows */

/* Conditions of a VMI: Ferry's own, and the reason that it adds to KubeVirt's for LiveMigratable. */
#define COND_MIGRATION_TARGETS "MigrationTargets"
#define COND_LOST_NODE_PROOF \
	"LostNodeProof" /* fencing StorageLock: what the locks of its disks can tell */
#define REASON_NO_NODE_FITS "NodesNotLiveMigratable"

/* The launcher pod */
#define CONTAINER_COMPUTE "compute"
#define GATE_UNPAUSED	  "kubevirt.io/virtual-machine-unpaused"

/* Where the installation's own objects live. */
#define KUBEVIRT_NS   "kubevirt"
#define KUBEVIRT_NAME "kubevirt"

#endif
