#include "virt/node/vmagent.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "api/api.h"
#include "api/meta.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/try.h"
#include "json/json.h"

static enum rc set_conditions(VirtualMachineInstance *vmi, const struct json *agent, usec_t now)
{
	const struct json *lacks = js_get(agent, "lacks");
	char text[512] = "the guest agent lacks ";

	if (!js_get_bool(agent, "connected", false)) {
		(void)API_COND_DEL(&vmi->status, VirtualMachineInstanceCondition, "AgentConnected");
		(void)API_COND_DEL(&vmi->status, VirtualMachineInstanceCondition,
				   "AgentVersionNotSupported");
		return RC_OK;
	}
	TRY(API_COND_SET(&vmi->status, VirtualMachineInstanceCondition, now,
			 .type = "AgentConnected", .status = "True"));
	if (!lacks) /* it does not tell while file systems are frozen */
		return RC_OK;
	if (!js_len(lacks)) {
		(void)API_COND_DEL(&vmi->status, VirtualMachineInstanceCondition,
				   "AgentVersionNotSupported");
		return RC_OK;
	}
	for (size_t i = 0; i < js_len(lacks); i++)
		(void)snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s",
			       i ? ", " : "", js_str(js_item(lacks, i)));
	return API_COND_SET(&vmi->status, VirtualMachineInstanceCondition, now,
			    .type = "AgentVersionNotSupported", .status = "True", .reason = text);
}

static enum rc set_os(VirtualMachineInstance *vmi, const struct json *os)
{
	VirtualMachineInstanceGuestOSInfo *to;

	if (!js_len(os))
		return RC_OK;
	to = api_ensure(&api_type_VirtualMachineInstanceGuestOSInfo, &vmi->status.guestOSInfo);
	if (!to)
		return RC_NOMEM;
	TRY(api_set_str(&to->name, js_get_str(os, "name")));
	TRY(api_set_str(&to->kernelRelease, js_get_str(os, "kernelRelease")));
	TRY(api_set_str(&to->version, js_get_str(os, "version")));
	TRY(api_set_str(&to->prettyName, js_get_str(os, "prettyName")));
	TRY(api_set_str(&to->versionId, js_get_str(os, "versionId")));
	TRY(api_set_str(&to->kernelVersion, js_get_str(os, "kernelVersion")));
	TRY(api_set_str(&to->machine, js_get_str(os, "machine")));
	return api_set_str(&to->id, js_get_str(os, "id"));
}

static enum rc set_freeze(VirtualMachineInstance *vmi, const struct json *agent)
{
	FerryVMIStatus *fs = vmi->status.ferry;
	bool is_frozen = js_get_bool(agent, "frozen", false);
	int64_t at = js_get_int(agent, "thawAt", 0);
	char text[32];

	if (!js_get_bool(agent, "connected", false))
		return RC_OK; /* as it was: nobody has thawed it */
	TRY(api_set_str(&vmi->status.fsFreezeStatus, is_frozen ? "frozen" : NULL));
	if (!is_frozen)
		return fs ? api_set_str(&fs->fsThawTime, NULL) : RC_OK;
	if (at <= 0)
		return RC_OK; /* what another node has said stays */
	fs = api_ensure(&api_type_FerryVMIStatus, &vmi->status.ferry);
	if (!fs)
		return RC_NOMEM;
	time_rfc3339((usec_t)at, text);
	return api_set_str(&fs->fsThawTime, text);
}

/* --- interfaces --- */

static void clear_addresses(VirtualMachineInstanceNetworkInterface *n)
{
	for (size_t i = 0; i < n->n_ipAddresses; i++)
		mem_free(n->ipAddresses[i]);
	n->n_ipAddresses = 0;
}

/* Those that only the guest knows have no name of a network. */
static bool is_guests_own(const VirtualMachineInstanceNetworkInterface *n)
{
	return str_is_empty(n->name) && str_eq(n->infoSource, "guest-agent");
}

static enum rc set_own(VirtualMachineInstanceStatus *s, const struct json *nic)
{
	const struct json *ips = js_get(nic, "ips");
	VirtualMachineInstanceNetworkInterface *n =
		api_append(&s->interfaces, &s->n_interfaces, sizeof(*n));

	if (!n)
		return RC_NOMEM;
	TRY(api_set_str(&n->infoSource, "guest-agent"));
	TRY(api_set_str(&n->interfaceName, js_get_str(nic, "name")));
	TRY(api_set_str(&n->mac, js_get_str(nic, "mac")));
	TRY(api_set_str(&n->ipAddress, js_str(js_item(ips, 0))));
	for (size_t i = 0; i < js_len(ips); i++)
		TRY(api_append_str(&n->ipAddresses, &n->n_ipAddresses, js_str(js_item(ips, i))));
	return RC_OK;
}

static void drop_last(VirtualMachineInstanceStatus *s)
{
	VirtualMachineInstanceNetworkInterface *n = &s->interfaces[s->n_interfaces - 1];

	clear_addresses(n);
	mem_free(n->ipAddresses);
	mem_free(n->infoSource);
	mem_free(n->interfaceName);
	mem_free(n->mac);
	mem_free(n->ipAddress);
	mem_free(n->name);
	mem_free(n->linkState);
	mem_free(n->podInterfaceName);
	memset(n, 0, sizeof(*n));
	s->n_interfaces--;
}

static VirtualMachineInstanceNetworkInterface *nic_with(VirtualMachineInstanceStatus *s, size_t n,
							const char *mac)
{
	for (size_t i = 0; mac && i < n; i++)
		if (s->interfaces[i].mac && strcasecmp(s->interfaces[i].mac, mac) == 0)
			return &s->interfaces[i];
	return NULL;
}

static enum rc set_interfaces(VirtualMachineInstanceStatus *s, const struct json *agent)
{
	const struct json *nics = js_get(agent, "interfaces");
	bool is_connected = js_get_bool(agent, "connected", false);
	size_t n_ours;

	if (is_connected && !nics)
		return RC_OK;
	while (s->n_interfaces && is_guests_own(&s->interfaces[s->n_interfaces - 1]))
		drop_last(s);
	n_ours = s->n_interfaces;
	for (size_t i = 0; i < n_ours; i++) {
		TRY(api_set_str(&s->interfaces[i].infoSource, "domain"));
		TRY(api_set_str(&s->interfaces[i].interfaceName, NULL));
	}
	for (size_t i = 0; is_connected && i < js_len(nics); i++) {
		const struct json *nic = js_item(nics, i);
		VirtualMachineInstanceNetworkInterface *n =
			nic_with(s, n_ours, js_get_str(nic, "mac"));

		if (!n) {
			TRY(set_own(s, nic));
			continue;
		}
		TRY(api_set_str(&n->infoSource, "domain, guest-agent"));
		TRY(api_set_str(&n->interfaceName, js_get_str(nic, "name")));
	}
	return RC_OK;
}

enum rc vmagent_fill(VirtualMachineInstance *vmi, const struct json *agent, usec_t now)
{
	if (!agent)
		return RC_OK;
	TRY(set_conditions(vmi, agent, now));
	TRY(set_os(vmi, js_get(agent, "os")));
	TRY(set_freeze(vmi, agent));
	return set_interfaces(&vmi->status, agent);
}
