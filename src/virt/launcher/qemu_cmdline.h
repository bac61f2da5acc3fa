/* src/virt/launcher/qemu_cmdline.h - QEMU's command line from a launch spec: a pure function.
 *
 * No value of the spec can leave its option: -blockdev, -device, -netdev and -object take JSON; where
 * QEMU reads key=value lists, commas are doubled; names are checked by launch_spec_check() before.
 * Images are named /dev/fdset/N only, never a path.
 */
#ifndef VIRT_LAUNCHER_QEMU_CMDLINE_H
#define VIRT_LAUNCHER_QEMU_CMDLINE_H

#include "base/err.h"
#include "virt/launcher/launch_spec.h"

enum qemu_mode { QEMU_RUN, QEMU_PAUSED, QEMU_INCOMING, QEMU_MODE__MAX };

/* Where the jail shows what has no descriptor form. */
#define QEMU_JAIL_KERNEL "/boot/kernel"
#define QEMU_JAIL_INITRD "/boot/initrd"
#define QEMU_JAIL_CREDS	 "/creds"

/* The guest agent's channel, as events and queries name it. */
#define QEMU_AGENT_CHARDEV "agent0"
#define QEMU_AGENT_PORT	   "agent-port0"

/* PCI slots on the root complex; fixed, so that both sides of a move agree. */
enum {
	SLOT_VIDEO = 1,
	SLOT_RNG = 2,
	SLOT_BALLOON = 3,
	SLOT_SCSI = 4,
	SLOT_AGENT = 5,
	SLOT_NICS = 8,
	SLOT_DISKS = 16,
	SLOT_INPUTS = 24, /* as functions of one */
	SLOT_USB = 25,
	SATA_PORTS = 6
};

/* A descriptor that QEMU inherits. */
struct qemu_fd {
	char *name;
	int fd;
	bool is_block; /* a block device: driver host_device */
};

struct qemu_env {
	enum qemu_mode mode;
	bool kvm;
	const char *qemu;	   /* path of the binary inside the jail */
	const struct qemu_fd *fds; /* looked up by the names in the spec */
	size_t n_fds;
	int qmp_fd[2];	   /* listening */
	int serial_fd;	   /* listening; -1: no serial console */
	int agent_fd;	   /* listening; -1: no guest agent */
	int serial_log_fd; /* opened for appending; -1: no log */
	usec_t realtime;   /* only for clock_offset_seconds */
};

struct argv {
	char **v; /* NULL-terminated after argv_rc() */
	size_t n;
	size_t cap;
	enum rc rc; /* sticky */
};
void argv_fini(struct argv *a);

/* fd of a name, or -1. */
const struct qemu_fd *qemu_fd_find(const struct qemu_fd *fds, size_t n, const char *name);
/* out must be zeroed; its owner calls argv_fini(), also on failure.  RC_INVALID when the spec names a
 * descriptor that is not there; RC_UNSUPPORTED for what QEMU cannot do. */
MUST_CHECK enum rc qemu_cmdline(const struct launch_spec *s, const struct qemu_env *env,
				struct argv *out, struct err *err);
/* Node name of a disk's top image ("d0-0"), as the command line calls it. */
void qemu_node_name(size_t disk, size_t layer, char out[16]);

#endif
