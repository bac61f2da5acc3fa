#include <string.h>

#include "virt/subresources/subres_int.h"

/* Paths whose function is not there yet.  What KubeVirt looks at first is looked at, so that a wrong call hears what is
 * wrong with it; a right one hears that this is not supported. */

static bool has_vm(struct hook_call *call)
{
	if (get_vm(call))
		return true;
	fail_not_found(call, "virtualmachine", hook_call_name(call));
	return false;
}

static bool has_vmi(struct hook_call *call)
{
	if (get_vmi(call))
		return true;
	fail_not_found(call, "virtualmachineinstance", hook_call_name(call));
	return false;
}

static bool lists(const struct json *names, const char *name)
{
	for (size_t i = 0; i < js_len(names); i++)
		if (str_eq(js_str(js_item(names, i)), name))
			return true;
	return false;
}

/* DeclarativeHotplugVolumes is on unless it was switched off, HotplugVolumes the other way round. */
static bool has_hotplug_gate(struct hook_call *call, bool *has_legacy)
{
	const struct json *dev =
		js_get(hook_kubevirt_config(hook_call_env(call)), "developerConfiguration");
	const struct json *on = js_get(dev, "featureGates"),
			  *off = js_get(dev, "disabledFeatureGates");

	*has_legacy = lists(on, "HotplugVolumes") && !lists(off, "HotplugVolumes");
	if (*has_legacy || !lists(off, "DeclarativeHotplugVolumes"))
		return true;
	fail_bad_request(call, "Enable DeclarativeHotplugVolumes or HotplugVolumes feature gate to "
			       "use this API.");
	return false;
}

/* False: the call has been answered. */
static bool read_body(struct hook_call *call, struct json **out)
{
	size_t n = 0;

	(void)hook_call_body(call, &n);
	if (n)
		return read_options(call, out);
	fail_bad_request(call, "Can not unmarshal Request body to struct, error: EOF");
	return false;
}

static const struct json *volume_named(const struct json *spec, const char *name)
{
	const struct json *list = js_get(spec, "volumes");

	for (size_t i = 0; i < js_len(list); i++)
		if (str_eq(js_get_str(js_item(list, i), "name"), name))
			return js_item(list, i);
	return NULL;
}

static bool is_hotpluggable(const struct json *volume)
{
	return js_bool(js_at(volume, "persistentVolumeClaim", "hotpluggable", NULL), false) ||
	       js_bool(js_at(volume, "dataVolume", "hotpluggable", NULL), false);
}

static void add_volume(struct hook_call *call, const char *kind, const struct json *spec)
{
	CLEANUP(js_unrefp) struct json *options = NULL;

	if (!read_body(call, &options))
		return;
	const char *name = js_get_str(options, "name");

	if (str_is_empty(name))
		fail_bad_request(call, "AddVolumeOptions requires name to be set");
	else if (!js_is_object(js_get(options, "disk")))
		fail_bad_request(call, "AddVolumeOptions requires disk to not be nil");
	else if (!js_is_object(js_get(options, "volumeSource")))
		fail_bad_request(call, "AddVolumeOptions requires VolumeSource to not be nil");
	else if (volume_named(spec, name))
		fail_conflict(call, kind,
			      "Unable to add volume [%s] because volume with that name already "
			      "exists",
			      name);
	else
		refuse_unsupported(call);
}

static void remove_volume(struct hook_call *call, const char *kind, const struct json *spec)
{
	CLEANUP(js_unrefp) struct json *options = NULL;

	if (!read_body(call, &options))
		return;
	const char *name = js_get_str(options, "name");
	const struct json *volume = volume_named(spec, name);

	if (str_is_empty(name))
		fail_bad_request(call, "RemoveVolumeOptions requires name to be set");
	else if (!volume)
		fail_conflict(call, kind, "Unable to remove volume [%s] because it does not exist",
			      name);
	else if (!is_hotpluggable(volume))
		fail_conflict(call, kind,
			      "Unable to remove volume [%s] because it is not hotpluggable", name);
	else
		refuse_unsupported(call);
}

static const struct json *template_spec(struct hook_call *call)
{
	return js_at(get_vm(call), "spec", "template", "spec", NULL);
}

void vm_add_volume(struct hook_call *call)
{
	bool has_legacy;

	if (has_hotplug_gate(call, &has_legacy) && has_vm(call))
		add_volume(call, "virtualmachine", template_spec(call));
}

void vm_remove_volume(struct hook_call *call)
{
	bool has_legacy;

	if (has_hotplug_gate(call, &has_legacy) && has_vm(call))
		remove_volume(call, "virtualmachine", template_spec(call));
}

/* A VMI's volumes are its VM's business, if it has one. */
static bool may_change_vmi(struct hook_call *call)
{
	const struct json *owners;
	bool has_legacy;

	if (!has_hotplug_gate(call, &has_legacy) || !has_vmi(call))
		return false;
	owners = js_at(get_vmi(call), "metadata", "ownerReferences", NULL);
	for (size_t i = 0; !has_legacy && i < js_len(owners); i++)
		if (str_eq(js_get_str(js_item(owners, i), "kind"), "VirtualMachine")) {
			fail_bad_request(call, "VMI %s/%s is owned by a VM", hook_call_ns(call),
					 hook_call_name(call));
			return false;
		}
	return true;
}

void vmi_add_volume(struct hook_call *call)
{
	if (may_change_vmi(call))
		add_volume(call, "virtualmachineinstance", js_get(get_vmi(call), "spec"));
}

void vmi_remove_volume(struct hook_call *call)
{
	if (may_change_vmi(call))
		remove_volume(call, "virtualmachineinstance", js_get(get_vmi(call), "spec"));
}

void vm_memory_dump(struct hook_call *call)
{
	CLEANUP(js_unrefp) struct json *options = NULL;

	if (has_vm(call) && read_body(call, &options))
		refuse_unsupported(call);
}

void vm_not_yet(struct hook_call *call)
{
	if (has_vm(call))
		refuse_unsupported(call);
}

void vmi_not_yet(struct hook_call *call)
{
	if (has_vmi(call))
		refuse_unsupported(call);
}

/* What KubeVirt's handler does: for a VMI that is on its way to a guest, or has one. */
void vmi_handler_not_yet(struct hook_call *call)
{
	const char *phase = js_str(js_at(get_vmi(call), "status", "phase", NULL));

	if (!has_vmi(call))
		return;
	if (str_eq(phase, "Running") || str_eq(phase, "Scheduled"))
		refuse_unsupported(call);
	else
		fail_bad_request(call,
				 "Unable to connect to VirtualMachineInstance because phase is %s "
				 "instead of Running or Scheduled",
				 phase ? phase : "");
}
