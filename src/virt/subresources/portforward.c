#include <stdio.h>
#include <string.h>

#include "http/server.h"
#include "virt/subresources/subres_int.h"

/* A port of a guest as a websocket.  KubeVirt's API server dials the guest itself; here the agent of the VMI's node does,
 * which reaches it, and dials no other address than the VMI's own. */

/* "22", "22/tcp", "53/udp".  False: the call has been answered. */
static bool check_port(struct hook_call *call)
{
	const char *rest = hook_call_rest(call), *slash = strchr(rest, '/');
	size_t n = slash ? (size_t)(slash - rest) : strlen(rest);
	char port[8];
	int64_t value;

	if (!n) {
		fail_bad_request(call, "port must not be empty");
		return false;
	}
	memcpy(port, rest, MIN(n, sizeof(port) - 1));
	port[MIN(n, sizeof(port) - 1)] = '\0';
	if (n >= sizeof(port) || str_to_i64(port, 1, 65535, &value, NULL)) {
		fail_bad_request(call, "port must be a number in 1..65535");
		return false;
	}
	if (slash && !str_eq(slash + 1, "tcp") && !str_eq(slash + 1, "udp")) {
		fail_bad_request(call, "protocol must be tcp or udp");
		return false;
	}
	return true;
}

/* The agent's path names the protocol always: "portforward/22/tcp". */
static void dial(struct hook_call *call, const struct json *vmi)
{
	const char *rest = hook_call_rest(call);
	char path[64];

	(void)snprintf(path, sizeof(path), "portforward/%s%s", rest,
		       strchr(rest, '/') ? "" : "/tcp");
	stream_open(call, vmi,
		    &(struct stream_kind){.name = "port",
					  .family = STREAM_PORTS,
					  .path = path,
					  .is_told_by_agent = true});
}

void vmi_port_forward(struct hook_call *call)
{
	const struct json *vmi = get_vmi(call);
	const struct json *nics = js_at(vmi, "status", "interfaces", NULL);

	if (!vmi) {
		fail_not_found(call, "virtualmachineinstance", hook_call_name(call));
		return;
	}
	if (!check_port(call))
		return;
	if (condition_is_true(vmi, "Paused"))
		fail_conflict(call, "virtualmachineinstance", "VMI is paused");
	else if (str_is_empty(js_get_str(js_item(nics, 0), "ipAddress")))
		fail_bad_request(call, "no network interfaces are present");
	else if (!vmi_is_running(vmi))
		fail_bad_request(call, "VMI is not running");
	else
		dial(call, vmi);
}

void vm_port_forward(struct hook_call *call)
{
	if (!get_vm(call))
		fail_not_found(call, "virtualmachine", hook_call_name(call));
	else if (!js_bool(js_at(get_vm(call), "status", "created", NULL), false))
		fail_conflict(call, "virtualmachine", "VMI is not started");
	else
		vmi_port_forward(call);
}
