#include "base/str.h"
#include "virt/subresources/subres_int.h"

/* The serial console.  KubeVirt's conditions and words. */

static const struct stream_kind console = {
	.name = "console", .family = STREAM_CONSOLES, .path = "console", .follows = true};

void vmi_console(struct hook_call *call)
{
	const struct json *vmi = get_vmi(call);
	const char *phase = js_str(js_at(vmi, "status", "phase", NULL));

	if (!vmi)
		fail_not_found(call, "virtualmachineinstance", hook_call_name(call));
	else if (!js_bool(js_at(vmi, "spec", "domain", "devices", "autoattachSerialConsole", NULL),
			  true))
		fail_bad_request(call, "No serial consoles are present.");
	else if (str_eq(phase, "Failed"))
		fail_conflict(call, "virtualmachineinstance", "VMI is in failed status");
	else if (!vmi_is_running(vmi))
		fail_bad_request(call, "VMI is not running");
	else
		stream_open(call, vmi, &console);
}
