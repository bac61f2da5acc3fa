#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "http/uri.h"
#include "virt/subresources/subres_int.h"

/* Subresources of a VirtualMachineInstance that its node answers. */

#define AGENT_PORT "ferry.dev/agent-port"

static const char *internal_ip(const struct json *node)
{
	const struct json *list = js_at(node, "status", "addresses", NULL);

	for (size_t i = 0; i < js_len(list); i++)
		if (str_eq(js_get_str(js_item(list, i), "type"), "InternalIP"))
			return js_get_str(js_item(list, i), "address");
	return NULL;
}

enum rc agent_url(struct hook_env *env, const struct json *vmi, const char *what, char **out,
		  struct err *err)
{
	const char *name = js_str(js_at(vmi, "status", "nodeName", NULL));
	const struct json *node = name ? hook_get(env, "nodes", NULL, name) : NULL;
	const char *address = internal_ip(node);
	const char *port = js_str(js_at(node, "metadata", "annotations", AGENT_PORT, NULL));
	bool is_v6 = address && strchr(address, ':');
	struct sbuf url = SBUF_INIT(2048);
	size_t n;

	if (!address)
		return err_set(err, RC_CLOSED, "the address of node '%s' is not known",
			       name ? name : "");
	sbuf_addf(&url, "https://%s%s%s:%s/v1/namespaces/", is_v6 ? "[" : "", address,
		  is_v6 ? "]" : "", port ? port : "8186");
	http_uri_escape(&url, js_str(js_at(vmi, "metadata", "namespace", NULL)));
	sbuf_adds(&url, "/virtualmachineinstances/");
	http_uri_escape(&url, js_str(js_at(vmi, "metadata", "name", NULL)));
	sbuf_addf(&url, "/%s", what);
	enum rc rc = sbuf_take(&url, out, &n);

	return rc ? err_set(err, rc, "cannot allocate a URL") : RC_OK;
}

static bool is_paused(const struct json *vmi)
{
	return condition_is_true(vmi, "Paused");
}

void vmi_pause(struct hook_call *call)
{
	CLEANUP(js_unrefp) struct json *options = NULL;
	const struct json *vmi = get_vmi(call);
	const struct json *probe = js_at(vmi, "spec", "livenessProbe", NULL);
	char text[512];

	if (!vmi) {
		fail_not_found(call, "virtualmachineinstance", hook_call_name(call));
	} else if (!vmi_is_running(vmi)) {
		fail_conflict(call, "virtualmachineinstance", "VMI is not running");
	} else if (probe && !js_get(probe, "guestAgentPing")) {
		snprintf(text, sizeof(text),
			 "virtualmachineinstance.kubevirt.io \"%s\" is forbidden: Pausing VMIs "
			 "with a "
			 "non-GuestAgentPing LivenessProbe is not supported",
			 hook_call_name(call));
		hook_call_fail_details(call, RC_FORBIDDEN, "kubevirt.io", "virtualmachineinstance",
				       hook_call_name(call), text);
	} else if (is_paused(vmi)) {
		fail_conflict(call, "virtualmachineinstance", "VMI is already paused");
	} else if (read_options(call, &options)) {
		if (is_dry_run(options))
			reply_empty(call, 200);
		else
			node_ask(call, &(struct node_ask){.what = "pause"}, NULL);
	}
}

void vmi_unpause(struct hook_call *call)
{
	CLEANUP(js_unrefp) struct json *options = NULL;
	const struct json *vmi = get_vmi(call);

	if (!vmi) {
		fail_not_found(call, "virtualmachineinstance", hook_call_name(call));
	} else if (!vmi_is_running(vmi)) {
		fail_conflict(call, "virtualmachineinstance", "VMI is not running");
	} else if (!is_paused(vmi)) {
		fail_conflict(call, "virtualmachineinstance", "VMI is not paused");
	} else if (read_options(call, &options)) {
		if (is_dry_run(options))
			reply_empty(call, 200);
		else
			node_ask(call, &(struct node_ask){.what = "unpause"}, NULL);
	}
}

/* Devices that no VMI of Ferry has yet: KubeVirt's answers for a VMI without them. */

static bool has_vmi(struct hook_call *call)
{
	if (get_vmi(call))
		return true;
	fail_not_found(call, "virtualmachineinstance", hook_call_name(call));
	return false;
}

void vmi_no_usb(struct hook_call *call)
{
	if (has_vmi(call))
		fail_bad_request(call, "Not configured with USB Redirection");
}

void vmi_no_vsock(struct hook_call *call)
{
	if (has_vmi(call))
		fail_bad_request(call, "VSOCK is not attached.");
}

/* Cluster paths */

#define KUBEVIRT_VERSION "v1.9.0+ferry." FERRY_VERSION

void get_version(struct hook_call *call)
{
	hook_call_reply(call, 200,
			js_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "gitVersion",
				KUBEVIRT_VERSION, "gitCommit", "", "gitTreeState", "clean",
				"buildDate", "", "goVersion", "", "compiler", "gcc", "platform",
				"linux/amd64"));
}

void get_healthz(struct hook_call *call)
{
	/* Served by the API server itself: that it answers is the connectivity. */
	hook_call_reply(call, 200,
			js_pack("{s:{s:s, s:s}}", "apiserver", "connectivity", "ok", "version",
				KUBEVIRT_VERSION));
}
