/* src/virt/migration/arrivals.h - what a node says of the disks that a move would bring it, before anything moves.
 *
 * Pure; any thread.  Each agent looks at its own storage for every VM elsewhere whose disks would come along, and says what
 * it found in annotations of its Node: "arrivals.ferry.dev/<VMI's uid>".  So whoever wants to know reads an object, and no
 * node is asked anything.
 */
#ifndef VIRT_MIGRATION_ARRIVALS_H
#define VIRT_MIGRATION_ARRIVALS_H

#include "api/gen/api_types.h"
#include "base/err.h"

struct compat;

enum arrival {
	ARRIVAL_YES,
	ARRIVAL_LATER, /* waiting helps */
	ARRIVAL_NO,    /* only somebody who does something there helps */
	ARRIVAL__MAX
};

/* Adds the answer to the annotations; text is a phrase, only for LATER and NO. */
MUST_CHECK enum rc arrivals_note(struct api_map *facts, const char *vmi_uid, enum arrival a,
				 const char *text);
/* That this agent looks at all; of one that does not say so (an older one) nothing is expected. */
MUST_CHECK enum rc arrivals_note_looks(struct api_map *facts);
/* Do both nodes say the same of everybody? */
bool arrivals_equal(const Node *a, const Node *b);

/* For a VM whose disks come along: COMPAT_DISKS when the node has said no, later, or nothing yet. */
void arrivals_check(const VirtualMachineInstance *vmi, const Node *node, struct compat *out);

/* The size that a volume has where the VM runs; 0: not known. */
uint64_t arrivals_bytes(const VirtualMachineInstance *vmi, const char *volume);

#endif
