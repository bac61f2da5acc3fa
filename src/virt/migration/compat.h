/* src/virt/migration/compat.h - can a node's QEMU take over what a running guest has?
 *
 * Pure, over the VMI's status (machine type, QEMU, the CPU that the guest really sees) and the labels of the
 * node.  The same rules three times: in the target pod's selectors (so that any scheduler keeps them), in the
 * verdicts that people read, and in the conditions of the VMI.  None of it passes by waiting, but what says so.
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
#define COMPAT_NETWORK	"MigrationNetwork"
#define COMPAT_DISKS	"LocalDisks"

struct compat {
	const char *reason; /* NULL: the node can take it; constant */
	bool may_pass;	    /* waiting helps */
	char message[400];  /* a phrase about the node: "lacks the CPU features avx2, bmi2, …" */
};

/* What is not known of the guest (it has not run yet) is not asked for. */
void compat_check(const VirtualMachineInstance *vmi, const Node *node, struct compat *out);

/* What a move needs of a node beside that, and what an administrator can change while the guest runs. */
struct compat_move {
	const char *network; /* the label of the migration network; NULL: the settings name none */
	bool source_has_network;
	bool brings_disks; /* local volumes, files of a node */
};
/* source: the node that the guest runs on; NULL: not known.  network is borrowed. */
struct compat_move compat_move_of(const char *network, const Node *source, bool brings_disks);
void compat_check_move(const struct compat_move *move, const VirtualMachineInstance *vmi,
		       const Node *node, struct compat *out);

/* Of the nodes that it could move to. */
struct compat_summary {
	size_t n_others;
	size_t n_fit;	   /* of them */
	size_t n_suitable; /* fit, or would if an administrator changed what a move needs */
	char text[600];	   /* "node-2 lacks …; node-3 …" of those that do not fit */
};

/* compat_check(), and before it the nodeSelector of the VM itself: a VM that is held at its node by name can go nowhere.
 * (For a move the scheduler's predicates judge that, and node affinity.) */
void compat_add(struct compat_summary *s, const struct compat_move *move,
		const VirtualMachineInstance *vmi, const Node *node);

/* The named model that the guest was given ("Skylake-Client-v4"); false: none, or everything that its node had
 * (host, max).  Borrowed: n bytes of the status. */
bool compat_model(const VirtualMachineInstance *vmi, const char **name, size_t *n);
/* "10.0.2" -> 1000; 0: makes no sense. */
int64_t compat_qemu_level(const char *version);
/* Names, separated by commas; of many the first and how many more. */
void compat_print_names(const char *const *names, size_t n, struct sbuf *out);

#endif
