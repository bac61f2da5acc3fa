/* src/virt/migration/fencing.h - what a fenced node may not start any more.
 *
 * Pure.  A proof that a node was off allows whatever was bound to it before to run elsewhere; the node's
 * own agent, when it is back, must not start that again.  docs/internals/fencing.md.
 */
#ifndef VIRT_MIGRATION_FENCING_H
#define VIRT_MIGRATION_FENCING_H

#include "api/gen/api_types.h"

/* The pod is older than the newest proof about its node (f; NULL: none): it must never start there. */
bool fencing_condemns(const NodeFence *f, const ObjectMeta *pod);

#endif
