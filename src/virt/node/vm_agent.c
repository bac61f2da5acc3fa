/* What a VM's launcher says of the agent in the guest. */
#include "base/file.h"
#include "json/json.h"
#include "virt/node/vm_int.h"

void vm_take_agent(struct vm *vm, const struct json *agent)
{
	if (!agent)
		return;
	js_unref(vm->agent);
	vm->agent = js_ref(agent);
}

void vm_keep_thaw_time(struct vm *vm, const VirtualMachineInstance *vmi)
{
	const FerryVMIStatus *fs = vmi->status.ferry;
	struct err err = {0};
	usec_t at = 0;

	/* Told once: the launcher says "thawAt" from then on. */
	if (vm->is_target || !fs || !fs->fsThawTime || !js_get_bool(vm->agent, "frozen", false) ||
	    js_get(vm->agent, "thawAt") || time_parse(fs->fsThawTime, &at, NULL) || !at)
		return;
	if (vm_call(vm, "guestThawAt", js_pack("{s:I}", "at", (int64_t)at), 0, NULL, NULL, &err))
		vm_log_failed(vm, "its file systems' thaw is not kept", err.msg);
}
