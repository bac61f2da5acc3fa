/* src/virt/launcher/launch_spec.h - everything the launcher must know to run one VM.
 *
 * The node fills it from the VMI, the launcher turns it into QEMU's command line.  No paths: images,
 * taps and namespaces are open descriptors that the node hands over under names of its choice
 * (`fd` members below; methods putFds and start in docs/internals/launcher.md).
 *
 * Plain data.  Strings are owned by the struct; NULL means absent.  The JSON form is camelCase of the
 * member names.
 */
#ifndef VIRT_LAUNCHER_LAUNCH_SPEC_H
#define VIRT_LAUNCHER_LAUNCH_SPEC_H

#include "base/err.h"

struct json;

enum {
	LAUNCH_MAX_DISKS = 24,
	LAUNCH_MAX_NICS = 8,
	LAUNCH_MAX_CHAIN = 4,
	LAUNCH_MAX_FEATURES = 128,
	LAUNCH_MAX_INPUTS = 8
};

enum launch_accel { LAUNCH_ACCEL_AUTO, LAUNCH_ACCEL_KVM, LAUNCH_ACCEL_TCG, LAUNCH_ACCEL__MAX };
enum launch_bus { LAUNCH_BUS_VIRTIO, LAUNCH_BUS_SATA, LAUNCH_BUS_SCSI, LAUNCH_BUS__MAX };
enum launch_disk_kind { LAUNCH_DISK, LAUNCH_CDROM, LAUNCH_LUN, LAUNCH_DISK_KIND__MAX };
enum launch_format { LAUNCH_RAW, LAUNCH_QCOW2, LAUNCH_FORMAT__MAX };
enum launch_cache {
	LAUNCH_CACHE_NONE,
	LAUNCH_CACHE_WRITETHROUGH,
	LAUNCH_CACHE_WRITEBACK,
	LAUNCH_CACHE__MAX
};
enum launch_io { LAUNCH_IO_THREADS, LAUNCH_IO_NATIVE, LAUNCH_IO__MAX };
enum launch_error_policy {
	LAUNCH_ERROR_STOP,
	LAUNCH_ERROR_REPORT,
	LAUNCH_ERROR_IGNORE,
	LAUNCH_ERROR__MAX
};
enum launch_nic_model {
	LAUNCH_NIC_VIRTIO,
	LAUNCH_NIC_E1000E,
	LAUNCH_NIC_E1000,
	LAUNCH_NIC_RTL8139,
	LAUNCH_NIC__MAX
};
enum launch_video {
	LAUNCH_VIDEO_NONE,
	LAUNCH_VIDEO_VGA,
	LAUNCH_VIDEO_CIRRUS,
	LAUNCH_VIDEO_VIRTIO,
	LAUNCH_VIDEO_RAMFB,
	LAUNCH_VIDEO_BOCHS,
	LAUNCH_VIDEO__MAX
};
enum launch_input_bus { LAUNCH_INPUT_USB, LAUNCH_INPUT_VIRTIO, LAUNCH_INPUT_BUS__MAX };
enum launch_firmware { LAUNCH_FIRMWARE_BIOS, LAUNCH_FIRMWARE_EFI, LAUNCH_FIRMWARE__MAX };

/* One file of a backing chain.  QEMU is told format and backing explicitly and never reads either
 * from the image's header. */
struct launch_image {
	char *fd; /* opened O_RDWR if the disk is writable and this is [0], else O_RDONLY */
	enum launch_format format; /* "raw", "qcow2" */
};

struct launch_disk {
	char *name;	     /* the volume's name, unique; shown in errors and progress */
	enum launch_bus bus; /* "virtio", "sata", "scsi" */
	enum launch_disk_kind
		kind; /* "disk", "cdrom", "lun" (scsi pass-through of a block device) */
	bool read_only;
	bool shareable;		 /* other VMs write it too: no image lock, cache must be none */
	bool discard;		 /* "unmap" */
	enum launch_cache cache; /* "none", "writethrough", "writeback" */
	enum launch_io io;	 /* "threads", "native" (needs cache none) */
	enum launch_error_policy error_policy; /* "stop", "report", "ignore" */
	char *serial;			       /* at most 256 bytes (virtio shows the first 20) */
	int64_t boot_order;		       /* 1 = first; 0 = not a boot device */
	int64_t logical_block_size;	       /* 0 = default */
	int64_t physical_block_size;
	bool moves; /* local to the node: copied over NBD when the VM moves */
	size_t n_images;
	struct launch_image
		*images; /* [0] is the top, the last is the base; at most LAUNCH_MAX_CHAIN */
};

struct launch_nic {
	char *name;		     /* the network's name, unique */
	enum launch_nic_model model; /* "virtio", "e1000e", "e1000", "rtl8139" */
	char *mac;		     /* "0a:58:0a:f4:01:02" */
	char *fd;		     /* tap, opened with IFF_NO_PI | IFF_VNET_HDR */
	int64_t mtu;		     /* told to the guest (virtio only); 0 = not told */
	int64_t boot_order;	     /* refused: booting from the network is not supported yet */
};

/* A tablet: what points at the display with absolute positions. */
struct launch_input {
	enum launch_input_bus bus; /* "usb", "virtio" */
};

struct launch_feature {
	char *name; /* QEMU's property name: "avx2", "vmx" */
	bool on;
};

struct launch_kernel {
	char *kernel_fd; /* readable by the VM's uid: it is bound read-only into the jail */
	char *initrd_fd; /* NULL = none */
	char *args;
};

struct launch_smbios {
	char *manufacturer, *product, *version, *sku, *family; /* type 1 */
	char *serial;					       /* firmware.serial */
	char *uuid;					       /* firmware.uuid; required */
	char *chassis_manufacturer, *chassis_version, *chassis_serial, *chassis_asset,
		*chassis_sku; /* type 3 */
};

/* Only where the machine has cgroup v2; ignored (and reported as "none" by query) elsewhere. */
struct launch_cgroup {
	char *path; /* below the cgroup mount: "ferry.slice/vm-<uid>.scope"; NULL = no cgroup */
	int64_t memory_max;   /* bytes; 0 = no limit */
	int64_t cpu_weight;   /* 1..10000; 0 = default */
	int64_t cpu_quota_us; /* per 100 ms; 0 = no limit */
};

struct launch_spec {
	char *name; /* "<namespace>/<vmi>": shown as QEMU's guest name and in logs */
	char *vmi_uid;
	enum launch_accel
		accel;	 /* "auto": KVM when proven, else TCG; "kvm": refuse without; "tcg" */
	char *machine;	 /* versioned ("pc-q35-10.0"); an alias ("q35") only for a first start */
	char *cpu_model; /* "max", "host", or a name from query-cpu-definitions */
	size_t n_features;
	struct launch_feature *features;
	int64_t sockets, cores, threads; /* each at least 1 */
	int64_t memory_bytes;
	enum launch_firmware firmware;	 /* "bios", "efi" */
	char *efi_code_fd, *efi_vars_fd; /* efi only; vars opened O_RDWR */
	bool bios_serial;		 /* firmware messages on the serial console */
	bool boot_menu;			 /* 10 s */
	struct launch_kernel *kernel;	 /* NULL = boot from disk */
	struct launch_smbios smbios;
	size_t n_disks;
	struct launch_disk *disks;
	size_t n_nics;
	struct launch_nic *nics;
	enum launch_video video; /* "none", "vga", ...; without one there is no VNC server */
	size_t n_inputs;
	struct launch_input *inputs;
	bool serial_console;
	bool serial_log; /* written by QEMU to <dir>/serial.log */
	bool rng;
	bool balloon;
	bool guest_agent;	/* a channel to an agent in the guest (org.qemu.guest_agent.0) */
	bool panic_device;	/* isa pvpanic: guest panics are events */
	bool acpi_off;		/* no ACPI: graceful shutdown is not possible */
	bool reboot_terminates; /* rebootPolicy Terminate: a guest reset ends the VM */
	int64_t clock_offset_seconds; /* RTC against UTC */
	/* The jail. */
	int64_t uid, gid; /* of QEMU; never 0 */
	char *netns_fd;	  /* the pod's network namespace */
	struct launch_cgroup cgroup;
	int64_t oom_score_adj; /* of QEMU, -1000..1000 */
};

struct launch_spec *launch_spec_new(void); /* sockets, cores, threads 1; NULL: out of memory */
struct launch_spec *launch_spec_free(struct launch_spec *s);
DEFINE_CLEANUP(struct launch_spec *, launch_spec_free);
/* Grow by one zeroed item and return it (borrowed until the next one); NULL: out of memory or limit. */
struct launch_disk *launch_spec_add_disk(struct launch_spec *s);
struct launch_image *launch_disk_add_image(struct launch_disk *d);
struct launch_nic *launch_spec_add_nic(struct launch_spec *s);
struct launch_feature *launch_spec_add_feature(struct launch_spec *s);
struct launch_input *launch_spec_add_input(struct launch_spec *s);
/* KubeVirt's names of them (devices.video.type), also in the JSON form; "none". */
const char *launch_video_name(enum launch_video v);
/* False: there is no such model. */
bool launch_video_parse(const char *name, enum launch_video *out);

/* Strict: an unknown member, a wrong type or an unknown enum value is RC_INVALID with its path. */
MUST_CHECK enum rc launch_spec_decode(const struct json *j, struct launch_spec **out,
				      struct err *err);
/* NULL: out of memory.  Members at their zero value are left out. */
struct json *launch_spec_encode(const struct launch_spec *s);
/* Ranges, required members, unique names, combinations that QEMU cannot do, and no character anywhere
 * that could leave its option; RC_INVALID with the member's path, RC_UNSUPPORTED with the reason. */
MUST_CHECK enum rc launch_spec_check(const struct launch_spec *s, struct err *err);

#endif
