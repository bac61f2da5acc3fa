#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "http/client.h"
#include "virt/subresources/subres_int.h"

/* What a guest is asked through its VMI: to reboot (the VMI stays), and what only its agent knows or does. */

void vmi_reset(struct hook_call *call)
{
	static const struct node_ask ask = {.what = "reset"};
	const struct json *vmi = get_vmi(call);
	const char *phase = js_str(js_at(vmi, "status", "phase", NULL));

	if (!vmi)
		fail_not_found(call, "virtualmachineinstance", hook_call_name(call));
	else if (!vmi_is_running(vmi))
		fail_internal(call,
			      "Failed to reset non-running VMI with phase %s: Unable to connect to "
			      "VirtualMachineInstance because phase is %s instead of Running or "
			      "Scheduled",
			      phase ? phase : "", phase ? phase : "");
	else
		node_ask(call, &ask, NULL);
}

static bool has_acpi_off(const struct json *vmi)
{
	const struct json *acpi = js_at(vmi, "spec", "domain", "features", "acpi", NULL);

	return acpi && !js_get_bool(acpi, "enabled", true);
}

void vmi_soft_reboot(struct hook_call *call)
{
	static const struct node_ask ask = {.what = "softreboot"};
	const struct json *vmi = get_vmi(call);

	if (!vmi)
		fail_not_found(call, "virtualmachineinstance", hook_call_name(call));
	else if (!vmi_is_running(vmi))
		fail_conflict(call, "virtualmachineinstance", "VM is not running");
	else if (condition_is_true(vmi, "Paused"))
		fail_conflict(call, "virtualmachineinstance", "VMI is paused");
	else if (!condition_is_true(vmi, "AgentConnected") && has_acpi_off(vmi))
		fail_conflict(call, "virtualmachineinstance",
			      "VMI neither have the agent connected nor the ACPI feature enabled");
	else
		node_ask(call, &ask, NULL);
}

/* --- the guest's agent --- */

/* NULL: the call has been answered. */
static const struct json *vmi_with_agent(struct hook_call *call)
{
	const struct json *vmi = get_vmi(call);

	if (!vmi)
		fail_not_found(call, "virtualmachineinstance", hook_call_name(call));
	else if (!vmi_is_running(vmi) || !condition_is_true(vmi, "AgentConnected"))
		fail_conflict(call, "virtualmachineinstance",
			      "VMI does not have guest agent connected");
	else
		return vmi;
	return NULL;
}

/* The node's answer, as an object of this kind. */
static void reply_kind(struct hook_call *call, const struct http_result *r, const char *kind,
		       bool is_list)
{
	struct json *obj = NULL;
	enum rc rc = js_parse(r->body, r->n, &obj, NULL);

	if (!rc)
		rc = js_set(obj, "kind", js_new_str(kind));
	if (!rc)
		rc = js_set(obj, "apiVersion", js_new_str("kubevirt.io/v1"));
	if (!rc && is_list)
		rc = js_set(obj, "metadata", js_new_object());
	if (rc) {
		js_unref(obj);
		fail_internal(call, "the node's agent gave no object");
		return;
	}
	op_drop(call);
	hook_call_reply(call, 200, obj);
}

static void on_info(struct hook_call *call, const struct http_result *r)
{
	reply_kind(call, r, "VirtualMachineInstanceGuestAgentInfo", false);
}

static void on_users(struct hook_call *call, const struct http_result *r)
{
	reply_kind(call, r, "VirtualMachineInstanceGuestOSUserList", true);
}

static void on_filesystems(struct hook_call *call, const struct http_result *r)
{
	reply_kind(call, r, "VirtualMachineInstanceFileSystemList", true);
}

static void get_from_agent(struct hook_call *call, const struct node_ask *ask)
{
	if (vmi_with_agent(call))
		node_ask(call, ask, NULL);
}

void vmi_guest_os_info(struct hook_call *call)
{
	static const struct node_ask ask = {.what = "guestosinfo",
					    .method = "GET",
					    .timeout = 45 * USEC_PER_SEC,
					    .done = on_info};

	get_from_agent(call, &ask);
}

void vmi_user_list(struct hook_call *call)
{
	static const struct node_ask ask = {.what = "userlist", .method = "GET", .done = on_users};

	get_from_agent(call, &ask);
}

void vmi_filesystem_list(struct hook_call *call)
{
	static const struct node_ask ask = {
		.what = "filesystemlist", .method = "GET", .done = on_filesystems};

	get_from_agent(call, &ask);
}

/* In seconds; a part of one is one, since 0 is for ever.  False: it is no duration. */
static bool duration_seconds(const char *text, int64_t *out)
{
	usec_t usec = 0;

	if (str_to_duration(text, 1000000 * USEC_PER_SEC, &usec, NULL))
		return false;
	*out = (int64_t)((usec + USEC_PER_SEC - 1) / USEC_PER_SEC);
	return true;
}

/* FreezeUnfreezeTimeout.  False: the call has been answered. */
static bool read_thaw_timeout(struct hook_call *call, int64_t *seconds)
{
	CLEANUP(js_unrefp) struct json *options = NULL;
	const struct json *value;
	const char *why = NULL;
	size_t n = 0;

	(void)hook_call_body(call, &n);
	if (!n) {
		fail_bad_request(call, "Can not unmarshal Request body to struct, error: EOF");
		return false;
	}
	if (!read_options(call, &options))
		return false;
	value = js_get(options, "unfreezeTimeout");
	if (!value)
		why = "is required";
	else if (!js_str(value) || str_is_empty(js_str(value)) ||
		 !duration_seconds(js_str(value), seconds))
		why = "must be a duration such as \"5m0s\", of at most 1000000 seconds";
	if (why)
		fail_bad_request(
			call,
			"Can not unmarshal Request body to struct, error: unfreezeTimeout: %s",
			why);
	return !why;
}

void vmi_freeze(struct hook_call *call)
{
	static const struct node_ask ask = {.what = "freeze", .timeout = 140 * USEC_PER_SEC};
	const struct json *vmi = get_vmi(call);
	int64_t seconds = 0;

	if (!vmi)
		fail_not_found(call, "virtualmachineinstance", hook_call_name(call));
	else if (!read_thaw_timeout(call, &seconds))
		return;
	else if (!vmi_is_running(vmi))
		fail_conflict(call, "virtualmachineinstance", "VM is not running");
	else if (vmi_with_agent(call))
		node_ask(call, &ask, js_pack("{s:I}", "unfreezeTimeoutSeconds", seconds));
}

void vmi_unfreeze(struct hook_call *call)
{
	static const struct node_ask ask = {.what = "unfreeze", .timeout = 80 * USEC_PER_SEC};
	const struct json *vmi = get_vmi(call);

	if (!vmi)
		fail_not_found(call, "virtualmachineinstance", hook_call_name(call));
	else if (!vmi_is_running(vmi))
		fail_conflict(call, "virtualmachineinstance", "VMI is not running");
	else if (vmi_with_agent(call))
		node_ask(call, &ask, NULL);
}
