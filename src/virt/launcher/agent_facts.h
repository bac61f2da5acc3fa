/* src/virt/launcher/agent_facts.h - a guest agent's answers as KubeVirt shows them.
 *
 * Pure.  The values come from a guest: what is not of the right type is left out, texts are made printable and cut, lists
 * have an end.  Each gives a new value; NULL: out of memory.
 *
 * Sources: QEMU docs/interop/qemu-ga-ref.rst; KubeVirt's VirtualMachineInstanceGuestAgentInfo and what it is made of.
 */
#ifndef VIRT_LAUNCHER_AGENT_FACTS_H
#define VIRT_LAUNCHER_AGENT_FACTS_H

#include "base/err.h"

struct json;

/* values: {"guest-info": its return value, "guest-get-osinfo": ..., ...}, each as far as it is there. */

/* What the VMI's status is made of: {"connected": true, "version", "frozen", "lacks": [names], "os": {}, "interfaces":
 * [{"name", "mac", "ips"}]}.  lacks: commands that KubeVirt demands and this agent does not have.  Of a frozen guest, whose
 * agent tells nothing else, only the first three. */
struct json *agent_facts_status(const struct json *values);
/* A VirtualMachineInstanceGuestAgentInfo without kind and version. */
struct json *agent_facts_info(const struct json *values);
/* Lists: {"items": [...]} of VirtualMachineInstanceGuestOSUser, of VirtualMachineInstanceFileSystem. */
struct json *agent_facts_users(const struct json *values);
struct json *agent_facts_filesystems(const struct json *values);
/* guest-info's value: the command is there and switched on. */
bool agent_facts_has(const struct json *info, const char *command);
bool agent_facts_is_frozen(const struct json *values);

#endif
