/* src/virt/node/vmagent.h - what a guest's agent says, in the status of its VMI.
 *
 * Pure.
 */
#ifndef NODE_VMAGENT_H
#define NODE_VMAGENT_H

#include "api/gen/api_types.h"
#include "base/err.h"

struct json;

/* agent: the data of the launcher's event "agent" (docs/internals/launcher.md), or NULL: nothing is known, and what the
 * VMI says stays.  Conditions AgentConnected and AgentVersionNotSupported, guestOSInfo, fsFreezeStatus, ferry.fsThawTime,
 * and of interfaces their names in the guest and those that only the guest knows.  RC_NOMEM. */
MUST_CHECK enum rc vmagent_fill(VirtualMachineInstance *vmi, const struct json *agent, usec_t now);

#endif
