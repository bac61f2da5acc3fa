/* src/virt/launcher/launcher.h - one VM's launcher: the protocol of docs/internals/launcher.md.
 *
 * Loop thread only; one per process.
 */
#ifndef VIRT_LAUNCHER_LAUNCHER_H
#define VIRT_LAUNCHER_LAUNCHER_H

#include "base/err.h"

struct launcher;
struct loop;

struct launcher_config {
	const char *dir;	 /* absolute, exists */
	const char *qemu;	 /* absolute path of the binary */
	const char *cgroup_root; /* NULL: the machine's */
	const char *kvm_cache;	 /* file that remembers the KVM proof until the next boot */
};

/* Listens on <dir>/launcher.sock, and adopts the VM whose record is in dir, if there is one. */
MUST_CHECK enum rc launcher_new(struct launcher **out, struct loop *loop,
				const struct launcher_config *config, struct err *err);
struct launcher *launcher_free(struct launcher *l); /* the VM goes on */
DEFINE_CLEANUP(struct launcher *, launcher_free);

#endif
