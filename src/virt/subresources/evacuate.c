#include <stdio.h>

#include "virt/names.h"
#include "virt/subresources/subres_int.h"

/* evacuate/cancel of a VirtualMachine and of a VirtualMachineInstance: takes the mark of an eviction off.
 *
 * The evacuation controller does the rest: without its mark the evacuation's own migration is cancelled
 * and no other is made.  While the node has the drain taint nothing can be cancelled: the taint is a mark
 * of its own, and taking it off is how that one ends.
 */

static const struct json *vmi_of_vm(struct hook_call *call)
{
	const struct json *vm = get_vm(call), *vmi = get_vmi(call);
	const char *uid = js_str(js_at(vm, "metadata", "uid", NULL));
	const struct json *owners = js_at(vmi, "metadata", "ownerReferences", NULL);

	if (!vm) {
		fail_not_found(call, "virtualmachine", hook_call_name(call));
		return NULL;
	}
	if (!js_bool(js_at(vm, "status", "created", NULL), false)) {
		fail_conflict(call, "virtualmachine", "VMI is not started");
		return NULL;
	}
	if (!vmi) {
		fail_not_found(call, "virtualmachineinstance", hook_call_name(call));
		return NULL;
	}
	for (size_t i = 0; i < js_len(owners); i++)
		if (uid && str_eq(js_get_str(js_item(owners, i), "uid"), uid))
			return vmi;
	fail_internal(call, "unable to retrieve vmi [%s] for vm: <nil>", hook_call_name(call));
	return NULL;
}

static bool has_taint(const struct json *node, const char *key)
{
	const struct json *taints = js_at(node, "spec", "taints", NULL);

	for (size_t i = 0; i < js_len(taints); i++)
		if (str_eq(js_get_str(js_item(taints, i), "key"), key) &&
		    str_eq(js_get_str(js_item(taints, i), "effect"), "NoSchedule"))
			return true;
	return false;
}

/* Of the node that is to be left, or else of the one where the VMI runs. */
static bool refuse_tainted(struct hook_call *call, const struct json *vmi)
{
	const char *name = js_str(js_at(vmi, "status", "evacuationNodeName", NULL));
	const char *key = js_str(js_at(hook_kubevirt_config(hook_call_env(call)), "migrations",
				       "nodeDrainTaintKey", NULL));
	const struct json *node;

	if (str_is_empty(name))
		name = js_str(js_at(vmi, "status", "nodeName", NULL));
	if (str_is_empty(name))
		return false; /* it is nowhere yet */
	node = hook_get(hook_call_env(call), "nodes", NULL, name);
	if (!node)
		fail_internal(call, "nodes \"%s\" not found", name);
	else if (has_taint(node, key ? key : TAINT_DRAIN))
		fail_bad_request(call, "Node \"%s\" has NodeDrainTaintKey \"%s:NoSchedule\"", name,
				 key ? key : TAINT_DRAIN);
	else
		return false;
	return true;
}

static void on_unmarked(struct hook_call *call, int status, const struct json *obj)
{
	const char *text = js_get_str(obj, "message");

	if (status / 100 == 2)
		reply_empty(call, 200);
	else
		fail_internal(call, "%s", text ? text : "the mark could not be taken off");
}

/* Only the mark that was seen, or that the caller names: another eviction is another matter. */
static void cancel(struct hook_call *call, const struct json *vmi)
{
	static const char path[] = "/status/evacuationNodeName";
	CLEANUP(js_unrefp) struct json *options = NULL;
	const char *mark = js_str(js_at(vmi, "status", "evacuationNodeName", NULL));
	const char *wanted;

	if (refuse_tainted(call, vmi))
		return;
	if (str_is_empty(mark)) {
		reply_empty(call, 200);
		return;
	}
	if (!read_options(call, &options))
		return;
	wanted = js_get_str(options, "evacuationNodeName");
	json_patch(call, "virtualmachineinstances", is_dry_run(options),
		   js_pack("[{s:s, s:s, s:s}, {s:s, s:s}]", "op", "test", "path", path, "value",
			   str_is_empty(wanted) ? mark : wanted, "op", "remove", "path", path),
		   on_unmarked);
}

void vm_evacuate_cancel(struct hook_call *call)
{
	const struct json *vmi = vmi_of_vm(call);

	if (vmi)
		cancel(call, vmi);
}

void vmi_evacuate_cancel(struct hook_call *call)
{
	const struct json *vmi = get_vmi(call);

	if (vmi)
		cancel(call, vmi);
	else
		fail_not_found(call, "virtualmachineinstance", hook_call_name(call));
}
