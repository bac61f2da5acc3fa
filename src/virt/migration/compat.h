/* src/virt/migration/compat.h - can a node's QEMU take over what a running guest has?
 *
 * Pure, over the VMI's status (machine type, QEMU, the CPU that the guest really sees) and the labels of the
 * node.  The same rules three times: in the target pod's selectors (so that any scheduler keeps them), in the
 * verdicts that people read, and in the conditions of the VMI.  None of it passes by waiting.
 *
 * Source of the labels: KubeVirt v1.9's node labeller; ferry.dev/qemu-level is Ferry's own.
 */
#ifndef VIRT_MIGRATION_COMPAT_H
#define VIRT_MIGRATION_COMPAT_H

#include "api/gen/api_types.h"
#include "base/err.h"

struct sbuf;

#define COMPAT_MACHINE	"MachineType"
#define COMPAT_QEMU	"QEMUVersion"
#define COMPAT_MODEL	"CPUModel"
#define COMPAT_FEATURES "CPUFeatures"
#define COMPAT_SELECTOR "NodeSelector"

struct compat {
	const char *reason; /* NULL: the node can take it; constant */
	char message[400];  /* a phrase about the node: "lacks the CPU features avx2, bmi2, …" */
};

/* What is not known of the guest (it has not run yet) is not asked for. */
void compat_check(const VirtualMachineInstance *vmi, const Node *node, struct compat *out);

/* Of the nodes that it could move to. */
struct compat_summary {
	size_t n_others, n_fit;
	char text[600]; /* "node-2 lacks …; node-3 …" of those that do not fit */
};

/* compat_check(), and before it the nodeSelector of the VM itself: a VM that is held at its node by name can go nowhere.
 * (For a move the scheduler's predicates judge that, and node affinity.) */
void compat_add(struct compat_summary *s, const VirtualMachineInstance *vmi, const Node *node);

/* The named model that the guest was given ("Skylake-Client-v4"); false: none, or everything that its node had
 * (host, max).  Borrowed: n bytes of the status. */
bool compat_model(const VirtualMachineInstance *vmi, const char **name, size_t *n);
/* "10.0.2" -> 1000; 0: makes no sense. */
int64_t compat_qemu_level(const char *version);
/* Names, separated by commas; of many the first and how many more. */
void compat_print_names(const char *const *names, size_t n, struct sbuf *out);

#endif
