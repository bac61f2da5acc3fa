/* src/virt/launcher/kvm_probe.h - does /dev/kvm really run guests here?
 *
 * A device that opens proves nothing: nested and software KVMs exist that hang ordinary guests.  The
 * proof runs a small guest program (real, protected and long mode, paging, exceptions, a timer interrupt,
 * user mode and back, model-specific registers as QEMU sets them) and checks what it did.
 */
#ifndef VIRT_LAUNCHER_KVM_PROBE_H
#define VIRT_LAUNCHER_KVM_PROBE_H

#include "base/err.h"

struct kvm_verdict {
	bool works;
	char reason[160]; /* a phrase, in both cases */
};

/* Blocks, at most about two seconds (the program runs in a child with a deadline). */
void kvm_probe(struct kvm_verdict *out);
/* Only what is remembered; false: nothing is. */
bool kvm_probe_remembered(const char *cache_path, struct kvm_verdict *out);
/* kvm_probe(), remembered in the file until the next boot.  An unreadable or unwritable cache only costs time. */
void kvm_probe_cached(const char *cache_path, struct kvm_verdict *out);

#endif
