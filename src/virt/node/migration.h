/* src/virt/node/migration.h - the node's two sides of a move.
 *
 * Loop thread only.  Decisions are the table of src/virt/migration/handoff.h; docs/internals/handoff.md.
 */
#ifndef NODE_MIGRATION_H
#define NODE_MIGRATION_H

#include "api/gen/api_types.h"
#include "base/err.h"

struct json;
struct kcache;
struct vmhost;

/* body is the receiver's. */
typedef void (*mig_answer_fn)(enum rc rc, const char *message, struct json *body, void *arg);

/* A message of the source node `from` about the move of this VMI: "key" hands out the one-time key,
 * once, only to the source that the VMI's migrationState names; "permission" lets the guest run here.
 * fn runs exactly once, now or later. */
void mig_target_request(struct vmhost *h, const char *vmi_uid, const char *what, const char *from,
			const struct json *body, mig_answer_fn fn, void *arg);

/* Do the settings let local disks of this VMI move?  cache has FerryConfig, policies, Namespaces. */
bool mig_disks_may_move(const struct kcache *cache, const VirtualMachineInstance *vmi);

#endif
