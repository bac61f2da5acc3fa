#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "api/api.h"
#include "base/mem.h"
#include "base/str.h"
#include "fake_hooks.h"
#include "lib/torture.h"
#include "virt/admission/admission.h"

/* Rules on a VMI's spec.  `spec` is merged over a good one: each key of it replaces. */

static const char good[] = "{'domain': {'memory': {'guest': '64Mi'}, 'devices': {"
			   "    'disks': [{'name': 'root', 'disk': {'bus': 'virtio'}}],"
			   "    'interfaces': [{'name': 'default', 'masquerade': {}}]}},"
			   " 'networks': [{'name': 'default', 'pod': {}}],"
			   " 'volumes': [{'name': 'root', 'containerDisk': {'image': 'a/b:1'}}]}";

static void merge(struct json *into, const struct json *from)
{
	JS_FOREACH(it, from) {
		struct json *have = js_get(into, it.key);

		if (js_is_object(have) && js_is_object(it.value) && js_len(it.value))
			merge(have, it.value);
		else
			assert_int_equal(js_set(into, it.key, js_copy(it.value)), RC_OK);
	}
}

#define LONG130                                                                  \
	"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.bbbbb" \
	"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb.cccc"

struct row {
	const char *spec;  /* merged over the good one */
	const char *field; /* of the one cause; NULL: no fault */
	const char *message;
};

static const struct row rows[] = {
	{"{}", NULL, NULL},
	/* memory */
	{"{'domain': {'resources': {'requests': {'memory': '-5Mi'}}}}",
	 "spec.domain.resources.requests.memory",
	 "spec.domain.resources.requests.memory '-5Mi': must be greater than or equal to 0."},
	{"{'domain': {'resources': {'requests': {'memory': '10k'}}}}",
	 "spec.domain.resources.requests.memory",
	 "spec.domain.resources.requests.memory '10k': must be greater than or equal to 1M."},
	{"{'domain': {'resources': {'requests': {'memory': '128Mi'}, 'limits': {'memory': "
	 "'64Mi'}}}}",
	 "spec.domain.resources.requests.memory",
	 "spec.domain.resources.requests.memory '128Mi' is greater than "
	 "spec.domain.resources.limits.memory '64Mi'"},
	{"{'domain': {'resources': {'requests': {'cpu': '2'}, 'limits': {'cpu': '1500m'}}}}",
	 "spec.domain.resources.requests.cpu",
	 "spec.domain.resources.requests.cpu '2' is greater than spec.domain.resources.limits.cpu "
	 "'1500m'"},
	{"{'domain': {'memory': {'guest': '65Mi'}, 'resources': {'limits': {'memory': '64Mi'}}}}",
	 "spec.domain.memory.guest",
	 "spec.domain.memory.guest '65Mi' must be equal to or less than the memory limit "
	 "spec.domain.resources.limits.memory '64Mi'"},
	{"{'domain': {'memory': {'hugepages': {'pageSize': '2Mi'}},"
	 " 'resources': {'requests': {'memory': '65M'}}}}",
	 "spec.domain.resources.requests.memory",
	 "spec.domain.resources.requests.memory '65M' is not a multiple of the page size "
	 "spec.domain.memory.hugepages.pageSize '2Mi'"},
	/* cpu */
	{"{'domain': {'cpu': {'features': [{'name': 'avx', 'policy': 'maybe'}]}}}",
	 "spec.domain.cpu.features[0].policy",
	 "CPU feature avx uses policy maybe that is not supported."},
	{"{'domain': {'cpu': {'isolateEmulatorThread': true}}}",
	 "spec.domain.cpu.isolateEmulatorThread",
	 "IsolateEmulatorThread should be only set in combination with DedicatedCPUPlacement"},
	{"{'domain': {'cpu': {'model': 'Hasswell'}}}", "spec.domain.cpu.model",
	 "unknown CPU model 'Hasswell'; the nearest names are 'Haswell', 'Haswell-v9', "
	 "'Broadwell'"},
	{"{'domain': {'cpu': {'model': 'Haswell'}}}", NULL, NULL},
	{"{'domain': {'cpu': {'model': 'Skylake-Server-v4'}}}", NULL, NULL},
	{"{'domain': {'cpu': {'model': 'host-passthrough'}}}", NULL, NULL},
	{"{'domain': {'cpu': {'cores': 300}}}", "spec.domain.cpu",
	 "spec.domain.cpu has more than 288 vCPUs in its topology"},
	{"{'domain': {'machine': {'type': 'pc-i440fx-8.0'}}}", "spec.domain.machine.type",
	 "spec.domain.machine.type is not supported: pc-i440fx-8.0 (allowed values: [q35* "
	 "pc-q35*])"},
	{"{'domain': {'machine': {'type': 'pc-q35-10.0'}}}", NULL, NULL},
	/* firmware */
	{"{'domain': {'firmware': {'bootloader': {'bios': {}, 'efi': {'secureBoot': false}}}}}",
	 "spec.domain.firmware.bootloader",
	 "spec.domain.firmware.bootloader has both EFI and BIOS configured, but they are mutually "
	 "exclusive."},
	{"{'domain': {'firmware': {'bootloader': {'efi': {}}}}}", "spec.domain",
	 "spec.domain has EFI SecureBoot enabled. SecureBoot requires SMM, which is currently "
	 "disabled."},
	{"{'domain': {'firmware': {'bootloader': {'efi': {}}}, 'features': {'smm': {'enabled': "
	 "true}}}}",
	 NULL, NULL},
	{"{'domain': {'firmware': {'kernelBoot': {'kernelArgs': 'quiet'}}}}",
	 "spec.domain.firmware.kernelBoot.kernelArgs",
	 "kernel arguments cannot be provided without an external kernel"},
	{"{'domain': {'firmware': {'kernelBoot': {'container': {'image': 'a'}}}}}",
	 "spec.domain.firmware.kernelBoot.container",
	 "spec.domain.firmware.kernelBoot.container must be defined with at least one of the "
	 "following: "
	 "kernelPath, initrdPath"},
	{"{'domain': {'firmware': {'kernelBoot': {'container': {'kernelPath': '/k'}}}}}",
	 "spec.domain.firmware.kernelBoot.container",
	 "spec.domain.firmware.kernelBoot.container must be defined with an image"},
	{"{'domain': {'firmware': {'kernelBoot': {'container': {'image': 'a', 'kernelPath': "
	 "'/a/../k'}}}}}",
	 "spec.domain.firmware.kernelBoot.container.kernelPath",
	 "spec.domain.firmware.kernelBoot.container.kernelPath must be an absolute path to a file "
	 "without "
	 "relative components"},
	/* life-cycle */
	{"{'evictionStrategy': 'Sometimes'}", "spec.evictionStrategy",
	 "spec.evictionStrategy is set with an unrecognized option: Sometimes"},
	{"{'startStrategy': 'Running'}", "spec.startStrategy",
	 "spec.startStrategy is set with an unrecognized option: Running"},
	{"{'startStrategy': 'Paused', 'livenessProbe': {'guestAgentPing': {}}}",
	 "spec.startStrategy",
	 "either spec.startStrategy or spec.livenessProbe should be provided."
	 "Pausing VMI with LivenessProbe is not supported"},
	{"{'hostname': 'Not_a_label'}", "spec.hostname", NULL},
	{"{'subdomain': 'a..b'}", "spec.subdomain", NULL},
	{"{'architecture': 'arm64'}", "spec.architecture", "unsupported architecture: arm64"},
	{"{'dnsPolicy': 'None'}", "spec.dnsConfig",
	 "must provide `dnsConfig` when `dnsPolicy` is None"},
	{"{'readinessProbe': {'tcpSocket': {}, 'exec': {}}}", "spec.readinessProbe",
	 "spec.readinessProbe must have exactly one probe type set"},
	{"{'readinessProbe': {'periodSeconds': 5}}", "spec.readinessProbe",
	 "either spec.readinessProbe.tcpSocket, spec.readinessProbe.exec or "
	 "spec.readinessProbe.httpGet must "
	 "be set if a spec.readinessProbe is specified"},
	/* disks */
	{"{'domain': {'devices': {'disks': [{'name': 'root', 'disk': {}}, {'name': 'root', 'disk': "
	 "{}}]}}}",
	 "spec.domain.devices.disks[1].name",
	 "spec.domain.devices.disks[0] and spec.domain.devices.disks[1] must not have the same "
	 "Name."},
	{"{'domain': {'devices': {'disks': [{'name': 'root', 'disk': {}}, {'name': 'data', 'disk': "
	 "{}}]}}}",
	 "spec.domain.devices.disks[1].name",
	 "spec.domain.devices.disks[1].Name 'data' not found."},
	{"{'domain': {'devices': {'disks': [{'name': 'root', 'disk': {}, 'cdrom': {}}]}}}",
	 "spec.domain.devices.disks[0]",
	 "spec.domain.devices.disks[0] can only have a single target type defined"},
	{"{'domain': {'devices': {'disks': [{'name': 'root', 'lun': {}}]}}}",
	 "spec.domain.devices.disks[0].lun",
	 "spec.domain.devices.disks[0].lun can only be mapped to a DataVolume or "
	 "PersistentVolumeClaim volume."},
	{"{'domain': {'devices': {'disks': [{'name': 'root', 'disk': {'bus': 'ide'}}]}}}",
	 "spec.domain.devices.disks[0].disk.bus", "IDE bus is not supported"},
	{"{'domain': {'devices': {'disks': [{'name': 'root', 'disk': {'bus': 'fancy'}}]}}}",
	 "spec.domain.devices.disks[0].disk.bus",
	 "spec.domain.devices.disks[0] is set with an unrecognized bus fancy, must be one of: "
	 "[virtio sata scsi usb]"},
	{"{'domain': {'devices': {'disks': [{'name': 'root', 'cdrom': {'bus': 'virtio'}}]}}}",
	 "spec.domain.devices.disks[0].cdrom.bus", "Bus type virtio is invalid for CD-ROM device"},
	{"{'domain': {'devices': {'disks': [{'name': 'root', 'disk': {'bus': 'sata', 'readonly': "
	 "true}}]}}}",
	 "spec.domain.devices.disks[0].disk.readonly", "sata hard-disks do not support read-only."},
	{"{'domain': {'devices': {'disks': [{'name': 'root', 'bootOrder': 0, 'disk': {}}]}}}",
	 "spec.domain.devices.disks[0].bootOrder",
	 "spec.domain.devices.disks[0] must have a boot order > 0, if supplied"},
	{"{'domain': {'devices': {'disks': [{'name': 'root', 'serial': 'a,file=/etc/shadow', "
	 "'disk': {}}]}}}",
	 "spec.domain.devices.disks[0].serial",
	 "spec.domain.devices.disks[0] must be made up of the following characters "
	 "[A-Za-z0-9_.+-], "
	 "if specified"},
	{"{'domain': {'devices': {'disks': [{'name': 'root', 'cache': 'fast', 'disk': {}}]}}}",
	 "spec.domain.devices.disks[0].cache",
	 "spec.domain.devices.disks[0].cache has invalid value fast"},
	{"{'domain': {'devices': {'disks': [{'name': 'root', 'io': 'fast', 'disk': {}}]}}}",
	 "spec.domain.devices.disks[0].io",
	 "Disk IO mode for spec.domain.devices.disks[0].io is not supported. "
	 "Supported modes are: native, threads."},
	{"{'domain': {'devices': {'disks': [{'name': 'root', 'disk': {'bus': 'sata',"
	 " 'pciAddress': '0000:00:01.0'}}]}}}",
	 "spec.domain.devices.disks[0].disk.pciAddress",
	 "disk root - setting a PCI address is only possible with bus type virtio."},
	{"{'domain': {'devices': {'disks': [{'name': 'root', 'disk': {'bus': 'virtio',"
	 " 'pciAddress': '0000:00:1.0'}}]}}}",
	 "spec.domain.devices.disks[0].disk.pciAddress",
	 "disk root has malformed PCI address (0000:00:1.0)."},
	{"{'domain': {'devices': {'disks': [{'name': 'root', 'disk': {'bus': 'virtio'},"
	 " 'blockSize': {'custom': {'logical': 512, 'physical': 3000}}}]}}}",
	 "spec.domain.devices.disks[0].blockSize.custom.physical",
	 "Provided size of 3000 is not a power of 2"},
	{"{'domain': {'devices': {'disks': [{'name': 'root', 'disk': {'bus': 'virtio'},"
	 " 'blockSize': {'custom': {'logical': 256, 'physical': 4096}}}]}}}",
	 "spec.domain.devices.disks[0].blockSize.custom.logical",
	 "Provided size of 256 is less than the supported minimum size of 512"},
	{"{'domain': {'devices': {'disks': [{'name': 'root', 'disk': {'bus': 'sata'},"
	 " 'blockSize': {'custom': {'logical': 4096, 'physical': 4096}}}]}}}",
	 "spec.domain.devices.disks[0].blockSize.custom.logical",
	 "Logical size 4096 must be 512 for SATA devices"},
	/* volumes */
	{"{'volumes': [{'name': 'root', 'containerDisk': {'image': 'a'}, 'emptyDisk': {'capacity': "
	 "'1Gi'}}]}",
	 "spec.volumes[0]", "spec.volumes[0] must have exactly one source type set"},
	{"{'volumes': [{'name': 'root'}]}", "spec.volumes[0]",
	 "spec.volumes[0] must have exactly one source type set"},
	{"{'volumes': [{'name': 'root', 'containerDisk': {'image': 'a', 'path': 'disk.img'}}]}",
	 "spec.volumes[0].containerDisk.path",
	 "spec.volumes[0].containerDisk.path must be an absolute path to a file without relative "
	 "components"},
	{"{'volumes': [{'name': 'root', 'containerDisk': {'image': 'a', 'path': '/'}}]}",
	 "spec.volumes[0].containerDisk.path",
	 "spec.volumes[0].containerDisk.path must not point to root"},
	{"{'volumes': [{'name': 'root', 'cloudInitNoCloud': {}}]}",
	 "spec.volumes[0].cloudInitNoCloud",
	 "spec.volumes[0].cloudInitNoCloud must have at least one userdatasource or one "
	 "networkdatasource set."},
	{"{'volumes': [{'name': 'root', 'cloudInitNoCloud': {'userData': 'a', 'userDataBase64': "
	 "'YQ=='}}]}",
	 "spec.volumes[0].cloudInitNoCloud",
	 "spec.volumes[0].cloudInitNoCloud must have only one userdatasource set."},
	{"{'volumes': [{'name': 'root', 'cloudInitNoCloud': {'userDataBase64': 'Y*=='}}]}",
	 "spec.volumes[0].cloudInitNoCloud",
	 "spec.volumes[0].cloudInitNoCloud.userDataBase64 is not a valid base64 value."},
	/* network */
	{"{'domain': {'devices': {'interfaces': [{'name': 'default', 'masquerade': {}},"
	 " {'name': 'blue', 'bridge': {}}]}}}",
	 "spec.domain.devices.interfaces[1].name",
	 "spec.domain.devices.interfaces[1].name 'blue' not found."},
	{"{'networks': [{'name': 'default', 'pod': {}}, {'name': 'blue', 'multus': {'networkName': "
	 "'b'}}]}",
	 "spec.networks[1].name", "spec.networks[1].name 'blue' not found."},
	{"{'domain': {'devices': {'interfaces': [{'name': 'default', 'bridge': {}}]}},"
	 " 'networks': [{'name': 'default'}]}",
	 "spec.networks[0]", "should have a network type"},
	{"{'networks': [{'name': 'default', 'pod': {}, 'multus': {'networkName': 'b'}}]}",
	 "spec.networks[0]", "should have only one network type"},
	{"{'domain': {'devices': {'interfaces': [{'name': 'default'}]}}}",
	 "spec.domain.devices.interfaces[0]",
	 "logical default interface must have exactly one binding method or binding plugin"},
	{"{'domain': {'devices': {'interfaces': [{'name': 'default', 'masquerade': {}, 'bridge': "
	 "{}}]}}}",
	 "spec.domain.devices.interfaces[0]",
	 "logical default interface must have exactly one binding method or binding plugin"},
	{"{'networks': [{'name': 'default', 'multus': {'networkName': 'b'}}]}",
	 "spec.domain.devices.interfaces[0].name",
	 "Masquerade interface only implemented with pod network"},
	{"{'domain': {'devices': {'interfaces': [{'name': 'default', 'masquerade': {},"
	 " 'macAddress': '02:00:00:00:00:00'}]}}}",
	 "spec.domain.devices.interfaces[0].macAddress",
	 "The requested MAC address is reserved for the in-pod bridge. Please choose another one."},
	{"{'domain': {'devices': {'interfaces': [{'name': 'default', 'masquerade': {},"
	 " 'macAddress': '02:00:00:00:zz:01'}]}}}",
	 "spec.domain.devices.interfaces[0].macAddress",
	 "interface default has malformed MAC address (02:00:00:00:zz:01)."},
	{"{'domain': {'devices': {'interfaces': [{'name': 'default', 'masquerade': {},"
	 " 'macAddress': '02:00:00:00:00:01:02'}]}}}",
	 "spec.domain.devices.interfaces[0].macAddress",
	 "interface default has too long MAC address (02:00:00:00:00:01:02)."},
	{"{'domain': {'devices': {'interfaces': [{'name': 'default', 'masquerade': {}, 'model': "
	 "'ne3000'}]}}}",
	 "spec.domain.devices.interfaces[0].model",
	 "interface spec.domain.devices.interfaces[0].name uses model ne3000 that is not "
	 "supported."},
	{"{'domain': {'devices': {'interfaces': [{'name': 'default', 'masquerade': {},"
	 " 'ports': [{'port': 70000}]}]}}}",
	 "spec.domain.devices.interfaces[0].ports[0]",
	 "Port field must be in range 0 < x < 65536."},
	{"{'domain': {'devices': {'interfaces': [{'name': 'default', 'masquerade': {},"
	 " 'ports': [{'name': 'a'}]}]}}}",
	 "spec.domain.devices.interfaces[0].ports[0]", "Port field is mandatory."},
	{"{'domain': {'devices': {'interfaces': [{'name': 'default', 'masquerade': {},"
	 " 'ports': [{'port': 80, 'protocol': 'SCTP'}]}]}}}",
	 "spec.domain.devices.interfaces[0].ports[0].protocol",
	 "Unknown protocol, only TCP or UDP allowed"},
	{"{'domain': {'devices': {'interfaces': [{'name': 'default', 'masquerade': {},"
	 " 'ports': [{'port': 80, 'name': 'w'}, {'port': 81, 'name': 'w'}]}]}}}",
	 "spec.domain.devices.interfaces[0].ports[1].name", "Duplicate name of the port: w"},
	{"{'domain': {'devices': {'interfaces': [{'name': 'default', 'masquerade': {}, 'state': "
	 "'absent'}]}}}",
	 "spec.domain.devices.interfaces[0].state",
	 "\"default\" interface's state \"absent\" is supported only for bridge binding"},
	{"{'domain': {'devices': {'interfaces': [{'name': 'a b', 'masquerade': {}}]}},"
	 " 'networks': [{'name': 'a b', 'pod': {}}]}",
	 "spec.domain.devices.interfaces[0].name",
	 "Network interface name can only contain alphabetical characters, numbers, dashes (-) or "
	 "underscores (_)"},
	{"{'domain': {'devices': {'interfaces': [{'name': 'default', 'slirp': {}}]}}}",
	 "spec.domain.devices.interfaces[0].slirp",
	 "Slirp interface support has been discontinued since v1.3"},
};

static const struct admission_hook *hook_of(const char *resource)
{
	for (size_t i = 0; i < n_virt_admission; i++)
		if (str_eq(virt_admission[i].resource, resource))
			return &virt_admission[i];
	return NULL;
}

/* Runs the hooks as an API server does; *fe and the return value are the outcome. */
static enum rc admit(struct hook_env *env, const char *resource, const struct api_type *t,
		     enum hook_op op, const char *group, struct json *obj, const struct json *old,
		     struct field_errs *fe, struct err *err)
{
	const struct admission_hook *h = hook_of(resource);
	const char *const groups[] = {group};
	const char *ns = js_str(js_at(obj, "metadata", "namespace", NULL));
	const char *name = js_str(js_at(obj, "metadata", "name", NULL));
	struct apisrv_user user = {.name = group && strcmp(group, "system:nodes") == 0
						   ? "system:node:node-1"
						   : "alice",
				   .n_groups = group ? 1 : 0,
				   .groups = groups};
	struct hook_ctx ctx = {.env = env,
			       .user = &user,
			       .op = op,
			       .ns = ns ? ns : "",
			       .name = name,
			       .subresource = "",
			       .obj = obj,
			       .old = old};
	void *typed = NULL, *typed_old = NULL;
	enum rc rc = obj && h->mutate ? h->mutate(&ctx, obj, err) : RC_OK;

	if (!rc && obj)
		rc = api_decode(t, obj, &typed, err);
	if (!rc && old)
		rc = api_decode(t, old, &typed_old, err);
	if (!rc)
		rc = h->validate(&ctx, typed, typed_old, fe, err);
	api_free(t, typed);
	api_free(t, typed_old);
	return rc;
}

static void dump(const struct field_errs *fe, size_t row)
{
	for (size_t i = 0; i < fe->n; i++)
		print_error("row %zu: %s | %s\n", row, fe->items[i].field, fe->items[i].message);
}

static void check_row(struct hook_env *env, const struct row *r, size_t i)
{
	CLEANUP(js_unrefp)
	struct json *vmi =
		json_of("{'apiVersion': 'kubevirt.io/v1', 'kind': 'VirtualMachineInstance',"
			" 'metadata': {'name': 'a', 'namespace': 'default'}}");
	CLEANUP(js_unrefp) struct json *over = json_of(r->spec);
	struct field_errs fe = FIELD_ERRS_INIT;
	struct err err = {0};

	assert_int_equal(js_set(vmi, "spec", json_of(good)), RC_OK);
	merge(js_get(vmi, "spec"), over);
	assert_int_equal(admit(env, "virtualmachineinstances.kubevirt.io",
			       &api_type_VirtualMachineInstance, HOOK_CREATE, NULL, vmi, NULL, &fe,
			       &err),
			 RC_OK);
	if (fe.n != (r->field ? 1 : 0)) {
		dump(&fe, i);
		fail_msg("row %zu: %zu faults", i, fe.n);
	}
	if (r->field) {
		assert_string_equal(fe.items[0].field, r->field);
		if (r->message)
			assert_string_equal(fe.items[0].message, r->message);
	}
	fe_fini(&fe);
}

static const struct row host_disks[] = {
#define HOST_DISK(rest) "{'volumes': [{'name': 'root', 'hostDisk': {" rest "}}]}"
#define AT		"spec.volumes[0].hostDisk."
	{HOST_DISK("'path': '/disks/a/b.img', 'type': 'Disk'"), NULL, NULL},
	{HOST_DISK("'path': '/disks/b.img', 'type': 'Disk', 'shared': true"), NULL, NULL},
	{HOST_DISK("'path': '/disks/b.img', 'type': 'DiskOrCreate', 'capacity': '1Gi'"), NULL,
	 NULL},
	{HOST_DISK("'path': '', 'type': 'Disk'"), AT "path",
	 AT "path is required for hostDisk volume"},
	{HOST_DISK("'path': '/', 'type': 'Disk'"), AT "path", AT "path must not point to root"},
	{HOST_DISK("'path': '/disks/../etc/shadow', 'type': 'Disk'"), AT "path",
	 AT "path must be an absolute path to a file without relative components"},
	{HOST_DISK("'path': 'disks/b.img', 'type': 'Disk'"), AT "path",
	 AT "path must be an absolute path to a file without relative components"},
	{HOST_DISK("'path': '/etc/shadow', 'type': 'Disk'"), AT "path",
	 AT "path '/etc/shadow': not below a folder that spec.hostDiskPaths of the FerryConfig "
	    "allows"},
	{HOST_DISK("'path': '/disks2/b.img', 'type': 'Disk'"), AT "path", NULL},
	{HOST_DISK("'path': '/disks', 'type': 'Disk'"), AT "path", NULL},
	{HOST_DISK("'path': '/disks/b.img', 'type': 'Disk', 'capacity': '1Gi'"), AT "capacity",
	 AT "capacity is allowed to pass only with " AT "type equal to 'DiskOrCreate'"},
	{HOST_DISK("'path': '/disks/b.img', 'type': 'DiskOrCreate', 'capacity': '1000'"),
	 AT "capacity", AT "capacity '1000': a disk has at least 1Mi"},
#undef AT
#undef HOST_DISK
};

static void a_host_disk_lies_where_an_administrator_allows_it(void **state)
{
	static const struct row no_gate = {
		"{'volumes': [{'name': 'root', 'hostDisk': {'path': '/disks/b.img', 'type': 'Disk'}}]}",
		"spec.volumes[0].hostDisk", "HostDisk feature gate is not enabled"};
	struct hook_env env;

	(void)state;
	env_init(&env);
	env_add(&env, "ferryconfigs.ferry.dev",
		"{'metadata': {'name': 'ferry'}, 'spec': {'hostDiskPaths': ['/disks', '/x/y']}}");
	check_row(&env, &no_gate, 0);
	js_unref(env.config);
	env.config = json_of("{'developerConfiguration': {'featureGates': ['HostDisk']}}");
	for (size_t i = 0; i < ARRAY_SIZE(host_disks); i++)
		check_row(&env, &host_disks[i], i);
	env_fini(&env);
}

/* devices as a user writes them, and the inputs that the VMI has then. */
static void a_tablet_is_added_when_it_is_asked_for_and_missing(void **state)
{
	static const struct {
		const char *devices, *inputs;
	} cases[] = {
		{"{}", NULL},
		{"{'autoattachInputDevice': false}", NULL},
		{"{'autoattachInputDevice': true}",
		 "[{'bus': 'usb', 'type': 'tablet', 'name': 'default-0'}]"},
		{"{'autoattachInputDevice': true, 'inputs': [{'name': 'a', 'bus': 'virtio', 'type': "
		 "'tablet'}]}",
		 "[{'bus': 'virtio', 'type': 'tablet', 'name': 'a'}]"},
		{"{'inputs': [{'name': 'a', 'type': 'tablet'}], 'video': {'type': 'virtio'}}",
		 "[{'bus': 'usb', 'type': 'tablet', 'name': 'a'}]"},
	};
	struct hook_env env;

	(void)state;
	env_init(&env);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(js_unrefp)
		struct json *vmi =
			json_of("{'apiVersion': 'kubevirt.io/v1', 'kind': 'VirtualMachineInstance',"
				" 'metadata': {'name': 'a', 'namespace': 'default'}}");
		CLEANUP(js_unrefp)
		struct json *want = cases[i].inputs ? json_of(cases[i].inputs) : NULL;
		CLEANUP(js_unrefp) struct json *devices = json_of(cases[i].devices);
		struct field_errs fe = FIELD_ERRS_INIT;

		assert_int_equal(js_set(vmi, "spec", json_of(good)), RC_OK);
		merge(js_at(vmi, "spec", "domain", "devices", NULL), devices);
		assert_int_equal(admit(&env, "virtualmachineinstances.kubevirt.io",
				       &api_type_VirtualMachineInstance, HOOK_CREATE, NULL, vmi,
				       NULL, &fe, NULL),
				 RC_OK);
		dump(&fe, i);
		assert_int_equal(fe.n, 0);
		const struct json *got = js_at(vmi, "spec", "domain", "devices", "inputs", NULL);

		if (want ? !js_equal(got, want) : got != NULL)
			fail_msg("row %zu", i);
		fe_fini(&fe);
	}
	env_fini(&env);
}

static void add_nodes(struct hook_env *env)
{
	env_add(env, "nodes",
		"{'metadata': {'name': 'n1', 'labels': {"
		"'cpu-model.node.kubevirt.io/Haswell-v9': 'true',"
		"'cpu-model.node.kubevirt.io/Cascadelake': 'true'}}}");
}

static void every_rule_says_its_own_text(void **state)
{
	struct hook_env env;

	(void)state;
	env_init(&env);
	add_nodes(&env);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		check_row(&env, &rows[i], i);
	env_fini(&env);
}

/* The same, where a fault seldom comes alone: one cause of several has this path and text. */
static const struct row says[] = {
#define D	       "spec.domain."
#define CPU(rest)      "{'domain': {'cpu': {" rest "}}}"
#define RES(cpu, rest) "{'domain': {'cpu': {" cpu "}, 'resources': {" rest "}}}"
#define DISK(rest)     "{'domain': {'devices': {'disks': [{'name': 'root', " rest "}]}}}"
#define NIC(rest)      "{'domain': {'devices': {'interfaces': [{'name': 'default', " rest "}]}}}"
#define NET(rest)      "{'networks': [{'name': 'default', " rest "}]}"
#define VOLS(rest)     "{'volumes': [{'name': 'root', 'containerDisk': {'image': 'a'}}, " rest "]}"
#define DEV(rest)      "{'domain': {'devices': {" rest "}}}"
	/* memory */
	{"{'domain': {'memory': {'hugepages': {'pageSize': '2Gi'}},"
	 " 'resources': {'requests': {'memory': '1Gi'}}}}",
	 D "resources.requests.memory",
	 D "resources.requests.memory '1Gi' must be equal to or larger than page size " D
	   "memory.hugepages.pageSize '2Gi'"},
	/* dedicated processors */
	{RES("'dedicatedCpuPlacement': true",
	     "'requests': {'memory': '64Mi'}, 'limits': {'memory': '65Mi'}"),
	 D "resources.requests.memory",
	 D "resources.requests.memory must be equal to " D "resources.limits.memory"},
	{RES("'dedicatedCpuPlacement': true", "'limits': {'cpu': '1500m'}"),
	 D "resources.limits.cpu", "provided resources CPU limits must be an interger"},
	{RES("'dedicatedCpuPlacement': true", "'requests': {'cpu': '1500m'}"),
	 D "resources.requests.cpu", "provided resources CPU requests must be an interger"},
	{RES("'dedicatedCpuPlacement': true", "'requests': {'cpu': '1'}, 'limits': {'cpu': '2'}"),
	 D "cpu.dedicatedCpuPlacement",
	 D "resources.requests.cpu or " D "resources.limits.cpu must be equal when "
	   "DedicatedCPUPlacement is true "},
	{RES("'dedicatedCpuPlacement': true, 'cores': 2", "'limits': {'cpu': '2'}"),
	 D "cpu.dedicatedCpuPlacement",
	 D "resources.requests.cpu or " D "resources.limits.cpu must not be provided at the same "
	   "time with " D "cpu.cores when DedicatedCPUPlacement is true "},
	{CPU("'dedicatedCpuPlacement': true, 'threads': 3"), D "cpu.threads",
	 "Not more than two threads must be provided at " D
	 "cpu.threads (got 3) when DedicatedCPUPlacement is true"},
	{CPU("'numa': {'guestMappingPassthrough': {}}"), D "cpu.numa.guestMappingPassthrough",
	 D "cpu.dedicatedCpuPlacement must be set to true when NUMA topology strategy is set in " D
	   "cpu.numa.guestMappingPassthrough"},
	{CPU("'numa': {'guestMappingPassthrough': {}}"), D "cpu.numa.guestMappingPassthrough",
	 D "memory.hugepages must be requested when NUMA topology strategy is set in " D
	   "cpu.numa.guestMappingPassthrough"},
	{CPU("'realtime': {}"), D "cpu.dedicatedCpuPlacement",
	 D "cpu.dedicatedCpuPlacement must be set to true when " D "cpu.realtime is used"},
	{CPU("'realtime': {}"), D "cpu.numa.guestMappingPassthrough",
	 D "cpu.numa.guestMappingPassthrough must be defined when " D "cpu.realtime is used"},
	{CPU("'sockets': 4, 'maxSockets': 2"), D "cpu.sockets",
	 "Number of sockets in CPU topology is greater than the maximum sockets allowed"},
	/* firmware */
	{"{'domain': {'firmware': {'acpi': {}}}}", D "firmware.acpi",
	 "ACPI was set but no SLIC nor MSDM volume reference was set"},
	{"{'domain': {'firmware': {'acpi': {'slicNameRef': 'x'}}}}", D "firmware.acpi.slicNameRef",
	 D "firmware.acpi.slicNameRef does not have a matching Volume."},
	{"{'domain': {'firmware': {'acpi': {'msdmNameRef': 'root'}}}}",
	 D "firmware.acpi.msdmNameRef",
	 D "firmware.acpi.msdmNameRef refers to Volume of unsupported type."},
	/* launch security */
	{"{'domain': {'launchSecurity': {'sev': {}, 'snp': {}}}}", D "launchSecurity",
	 "One and only one launchSecurity type can be set"},
	{"{'domain': {'launchSecurity': {'tdx': {}}}}", D "launchSecurity",
	 "WorkloadEncryptionTDX feature gate is not enabled in kubevirt-config"},
	{"{'domain': {'launchSecurity': {'sev': {}}}}", D "launchSecurity",
	 "SEV requires OVMF (UEFI)"},
	{"{'domain': {'launchSecurity': {'snp': {}}, 'firmware': {'bootloader': {'efi': {}}}}}",
	 D "launchSecurity", "SEV does not work along with SecureBoot"},
	{"{'domain': {'launchSecurity': {'sev': {}}, 'firmware': {'bootloader': {'efi': "
	 "{'persistent': true}}}}}",
	 D "launchSecurity", "SEV does not work along with Persistent EFI variables"},
	{"{'domain': {'launchSecurity': {'tdx': {}}, 'features': {'smm': {}}}}", D "launchSecurity",
	 "TDX does not work along with SMM"},
	{"{'domain': {'launchSecurity': {'sev': {'attestation': {}}}}}", D "launchSecurity",
	 "SEV attestation requires VMI StartStrategy 'Paused'"},
	{"{'domain': {'launchSecurity': {'sev': {}}, 'devices': {'interfaces': [{'name': 'default',"
	 " 'masquerade': {}, 'bootOrder': 1}]}}}",
	 D "launchSecurity", "SEV does not work with bootable NICs: default"},
	{"{'architecture': 'arm64', 'domain': {'launchSecurity': {'sev': {}}}}", D "launchSecurity",
	 "No launchSecurity support for architecture: arm64"},
	/* Hyper-V */
	{"{'domain': {'features': {'hypervPassthrough': {}, 'hyperv': {}}}}", D "features.hyperv",
	 "Cannot explicitly set hyperV features if HypervPassthrough is being used. Please use "
	 "either HyperV or HypervPassthrough."},
	{"{'domain': {'features': {'hyperv': {'evmcs': {}}}}}", D "cpu.features",
	 "vmx cpu feature is required when evmcs is set"},
	{"{'domain': {'features': {'hyperv': {'evmcs': {}}}, 'cpu': {'features': [{'name': 'vmx', "
	 "'policy': 'optional'}]}}}",
	 D "cpu.features[0].policy", "vmx cpu feature has to be set to require policy"},
	/* life-cycle */
	{"{'hostname': 'Not_a_label'}", "spec.hostname",
	 "spec.hostname does not conform to the kubernetes DNS_LABEL rules : a lowercase RFC 1123 "
	 "label must consist of lower case alphanumeric characters or '-', and must start and end "
	 "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation "
	 "is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"},
	{"{'subdomain': 'a..b'}", "spec.subdomain",
	 "spec.subdomain does not conform to the kubernetes DNS_SUBDOMAIN rules : a lowercase RFC "
	 "1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
	 "start and end with an alphanumeric character (e.g. 'example.com', regex used for "
	 "validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"},
	{"{'dnsPolicy': 'Sometimes'}", "spec.dnsPolicy",
	 "DNSPolicy: Sometimes is not supported, valid values: [ClusterFirstWithHostNet "
	 "ClusterFirst Default None ]"},
	{"{'dnsConfig': {'nameservers': ['1.1.1.1', '1.1.1.2', '1.1.1.3', '1.1.1.4']}}",
	 "spec.dnsConfig.nameservers", "must not have more than 3 nameservers: 4"},
	{"{'dnsConfig': {'searches': ['a', 'b', 'c', 'd', 'e', 'f', 'g']}}",
	 "spec.dnsConfig.searches", "must not have more than 6 search paths"},
	{"{'dnsConfig': {'searches': ['" LONG130 "', '" LONG130 "']}}", "spec.dnsConfig.searches",
	 "must not have more than 256 characters (including spaces) in the search list"},
	{"{'networks': [{'name': 'default', 'multus': {'networkName': 'x'}}], 'readinessProbe': "
	 "{'httpGet': {'port': 80}}}",
	 "spec.readinessProbe.httpGet",
	 "spec.readinessProbe.httpGet is only allowed if the Pod Network is attached"},
	{"{'networks': [{'name': 'default', 'multus': {'networkName': 'x'}}], 'livenessProbe': "
	 "{'tcpSocket': {'port': 80}}}",
	 "spec.livenessProbe.tcpSocket",
	 "spec.livenessProbe.tcpSocket is only allowed if the Pod Network is attached"},
	/* disks */
	{DISK("'disk': {'bus': 'scsi'}, 'dedicatedIOThread': true"), D "devices.disks[0]",
	 "IOThreads are not supported for disks on a scsi bus"},
	{"{'domain': {'devices': {'disks': [{'name': 'root', 'disk': {}, 'bootOrder': 1}, {'name': "
	 "'two', 'disk': {}, 'bootOrder': 1}]}}}",
	 D "devices.disks[1].bootOrder",
	 "Boot order for " D "devices.disks[1].bootOrder already set for a different device."},
	{DISK("'disk': {}, 'serial': '" LONG130 LONG130 "'"), D "devices.disks[0].serial",
	 D "devices.disks[0] must be less than or equal to 256 in length, if specified"},
	{DISK("'disk': {}, 'errorPolicy': 'shrug'"), D "devices.disks[0].errorPolicy",
	 D "devices.disks[0].errorPolicy has invalid value \"shrug\""},
	{"{'domain': {'devices': {'disks': [{'name': 'root', 'disk': {'bus': 'virtio', "
	 "'pciAddress': '0000:00:05.0'}}, {'name': 'b', 'disk': {'bus': 'virtio', 'pciAddress': "
	 "'0000:00:05.0'}}]}}}",
	 D "devices.disks[1].disk.pciAddress",
	 "disk b has the PCI address of disk root (0000:00:05.0)."},
	{DISK("'disk': {}, 'io': 'native', 'cache': 'writeback'"), D "devices.disks[0].io",
	 D "devices.disks[0].io native needs cache none"},
	{DISK("'disk': {}, 'blockSize': {'custom': {'logical': 512, 'physical': 4194304}}"),
	 D "devices.disks[0].blockSize.custom.physical",
	 "Provided size of 4194304 is greater than the supported maximum size of 2097152"},
	{DISK("'disk': {'bus': 'virtio'}, 'blockSize': {'custom': {'logical': 1024, 'physical': "
	      "512}}"),
	 D "devices.disks[0].blockSize.custom.logical",
	 "Logical size 1024 must be the same or less than the physical size of 512"},
	{DISK("'disk': {}, 'blockSize': {'matchVolume': {}, 'custom': {'logical': 512, 'physical': "
	      "512}}"),
	 D "devices.disks[0].blockSize",
	 "Block size matching can't be enabled together with a custom value"},
	{DISK("'disk': {'bus': 'virtio'}, 'blockSize': {'custom': {'logical': 512, 'physical': "
	      "512, 'discardGranularity': 700}}"),
	 D "devices.disks[0].blockSize.custom.discardGranularity",
	 "Discard granularity 700 must be a multiple of the logical size 512"},
	{"{'domain': {'devices': {'disks': [{'name': 'root', 'disk': {}}, {'name': 'cd', 'cdrom': "
	 "{}}]}}}",
	 D "devices.disks[1].name",
	 D "devices.disks[1].Name 'cd' not found: an empty CD-ROM disk is not supported by Ferry "
	   "yet"},
	{DISK("'lun': {'reservation': true}"), D "devices.disks[0].lun.reservation",
	 "persistent reservation is not enabled in kubevirt config"},
	/* volumes */
	{VOLS("{'name': 'root', 'emptyDisk': {'capacity': '1Gi'}}"), "spec.volumes[1].name",
	 "spec.volumes[0] and spec.volumes[1] must not have the same Name."},
	{VOLS("{'name': 'd', 'dataVolume': {}}"), "spec.volumes[1].name",
	 "DataVolume 'name' must be set"},
	{VOLS("{'name': 'd', 'hostDisk': {'path': '/d/a', 'type': 'Odd'}}"),
	 "spec.volumes[1].hostDisk.type",
	 "spec.volumes[1].hostDisk.type has invalid value 'Odd', allowed are 'Disk' or "
	 "'DiskOrCreate'"},
	{VOLS("{'name': 'n', 'cloudInitNoCloud': {'networkData': 'a', 'networkDataBase64': "
	      "'YQ=='}}"),
	 "spec.volumes[1].cloudInitNoCloud",
	 "spec.volumes[1].cloudInitNoCloud must have only one networkdatasource set."},
	{VOLS("{'name': 'a', 'serviceAccount': {}}, {'name': 'b', 'serviceAccount': {}}"),
	 "spec.volumes", "spec.volumes must have max one serviceAccount volume set"},
	{VOLS("{'name': 'a', 'downwardMetrics': {}}, {'name': 'b', 'downwardMetrics': {}}"),
	 "spec.volumes", "spec.volumes must have max one downwardMetric volume set"},
	{VOLS("{'name': 'a', 'downwardMetrics': {}}"), "spec.volumes",
	 "downwardMetrics disks are not allowed: DownwardMetrics feature gate is not enabled."},
	{VOLS("{'name': 'a', 'memoryDump': {'claimName': 'x'}}, {'name': 'b', 'memoryDump': "
	      "{'claimName': 'y'}}"),
	 "spec.volumes", "spec.volumes must have max one memory dump volume set"},
	{"{'serviceAccountName': 'one', 'volumes': [{'name': 'root', 'serviceAccount': "
	 "{'serviceAccountName': 'two'}}]}",
	 "spec.serviceAccountName",
	 "spec.serviceAccountName \"one\" and serviceAccount volume \"two\" must reference the same "
	 "service account"},
	{"{'volumes': [{'name': 'root', 'persistentVolumeClaim': {'claimName': 'x'}}], 'domain': "
	 "{'devices': {'disks': [], 'filesystems': [{'name': 'root', 'virtiofs': {}}]}}}",
	 D "devices.filesystems",
	 "virtiofs is not allowed: virtiofs feature gate is not enabled for PVC"},
	/* networks */
	{"{'networks': [{'name': 'default', 'pod': {}}, {'name': 'default', 'pod': {}}]}",
	 "spec.networks[1].name",
	 "Network with name \"default\" already exists, every network must have a unique name"},
	{"{'domain': {'devices': {'interfaces': [{'name': 'default', 'masquerade': {}}, {'name': "
	 "'default', 'masquerade': {}}]}}}",
	 D "devices.interfaces[1].name",
	 "Only one interface can be connected to one specific network"},
	{"{'networks': [{'name': 'default', 'pod': {}}, {'name': 'b', 'pod': {}}]}",
	 D "devices.interfaces",
	 "more than one interface is connected to a pod network in " D "devices.interfaces"},
	{NET("'multus': {}"), "spec.networks[0]", "CNI delegating plugin must have a networkName"},
	{"{'networks': [{'name': 'default', 'multus': {'networkName': 'a', 'default': true}}, "
	 "{'name': 'b', 'multus': {'networkName': 'b', 'default': true}}]}",
	 "spec.networks", "Multus CNI should only have one default network"},
	{"{'networks': [{'name': 'default', 'pod': {}}, {'name': 'b', 'multus': {'networkName': "
	 "'b', 'default': true}}]}",
	 "spec.networks", "Pod network cannot be defined when Multus default network is defined"},
	{NIC("'passt': {}"), D "devices.interfaces[0].passt",
	 "Passt network binding has been discontinued since v1.3"},
	{NIC("'macvtap': {}"), D "devices.interfaces[0].macvtap",
	 "Macvtap network binding has been discontinued since v1.3"},
	{"{'networks': [{'name': 'default', 'multus': {'networkName': 'x'}}], 'domain': {'devices': "
	 "{'interfaces': [{'name': 'default', 'passtBinding': {}}]}}}",
	 D "devices.interfaces[0].name",
	 "PasstBinding interface only implemented with pod network"},
	{NIC("'masquerade': {}, 'ports': [{'port': 80, 'name': 'Not_one'}]"),
	 D "devices.interfaces[0].ports[0].name", "Invalid name of the port: Not_one"},
	{NIC("'masquerade': {}, 'dhcpOptions': {'privateOptions': [{'option': 3, 'value': 'a'}]}"),
	 D "devices.interfaces[0].dhcpOptions.privateOptions",
	 "provided DHCPPrivateOptions are out of range, must be in range 224 to 254"},
	{NIC("'masquerade': {}, 'dhcpOptions': {'privateOptions': [{'option': 230, 'value': 'a'}, "
	     "{'option': 230, 'value': 'b'}]}"),
	 D "devices.interfaces[0].dhcpOptions.privateOptions",
	 "Found Duplicates: you have provided duplicate DHCPPrivateOptions"},
	{NIC("'masquerade': {}, 'dhcpOptions': {'ntpServers': ['127.0.0.1', 'fd00::1']}"),
	 D "devices.interfaces[0].dhcpOptions.ntpServers",
	 "NTP servers must be a list of valid IPv4 addresses."},
	{NIC("'masquerade': {}, 'state': 'sideways'"), D "devices.interfaces[0].state",
	 "logical default interface state value is unsupported: sideways"},
	{NIC("'bridge': {}, 'state': 'absent'"), D "devices.interfaces[0].state",
	 "\"default\" interface's state \"absent\" is not supported on default networks"},
	{NIC("'sriov': {}, 'state': 'down'"), D "devices.interfaces[0].state",
	 "\"default\" interface's state \"down\" is not supported for SR-IOV NICs"},
	{NIC("'masquerade': {}, 'macAddress': '01:00:5e:00:00:01'"),
	 D "devices.interfaces[0].macAddress",
	 "interface default has a multicast MAC address (01:00:5e:00:00:01)."},
	{NIC("'masquerade': {}, 'macAddress': '00:00:00:00:00:00'"),
	 D "devices.interfaces[0].macAddress",
	 "interface default has an empty MAC address (00:00:00:00:00:00)."},
	{NIC("'masquerade': {}, 'bootOrder': 0"), D "devices.interfaces[0].bootOrder",
	 D "devices.interfaces[0] must have a boot order > 0, if supplied"},
	/* devices */
	{DEV("'inputs': [{'name': 'i', 'bus': 'ps2', 'type': 'tablet'}]"),
	 D "devices.inputs[0].bus", "Input device can have only virtio or usb bus."},
	{DEV("'inputs': [{'name': 'i', 'bus': 'usb', 'type': 'mouse'}]"),
	 D "devices.inputs[0].type", "Input device can have only tablet type."},
	{DEV("'sound': {'name': 's', 'model': 'loud'}"), D "devices.sound",
	 "Sound device type is not supported. Options: 'ich9' or 'ac97'"},
	{DEV("'sound': {}"), D "devices.sound", "Sound device requires a name field."},
	{"{'domain': {'ioThreadsPolicy': 'many'}}", D "ioThreadsPolicy",
	 "Invalid IOThreadsPolicy (many)"},
	{"{'domain': {'ioThreadsPolicy': 'supplementalPool'}}", D "ioThreads",
	 "the number of iothreads needs to be set and positive for the dedicated policy"},
	{DEV("'video': {'type': 'cga'}"), D "devices.video.type",
	 "video model 'cga' is not supported on amd64 architecture"},
	{DEV("'video': {'type': 'vga'}, 'autoattachGraphicsDevice': false"), D "devices.video",
	 "Video configuration is not allowed when autoattachGraphicsDevice is set to false"},
	{DEV("'panicDevices': [{'model': 'calm'}]"), D "devices.panicDevices[0].model",
	 "invalid PanicDeviceModel(calm)"},
	{DEV("'watchdog': {'name': 'w', 'diag288': {}}"), D "devices.watchdog",
	 "amd64 only supports I6300ESB watchdog device"},
	{DEV("'hostDevices': [{'name': 'h', 'deviceName': 'x/y'}]"), D "devices.hostDevices",
	 "Host Devices feature gate is not enabled in kubevirt-config"},
	{DEV("'autoattachVSOCK': true"), D "devices.autoattachVSOCK",
	 "VSOCK feature gate is not enabled in kubevirt-config"},
	/* credentials */
	{"{'accessCredentials': [{}]}", "spec.accessCredentials[0]",
	 "spec.accessCredentials[0] must have exactly one access credential type set"},
#define SSH(rest)                                                                              \
	"{'accessCredentials': [{'sshPublicKey': {'source': {'secret': {'secretName': 's'}}, " \
	"'propagationMethod': {" rest "}}}]}"
	{"{'accessCredentials': [{'sshPublicKey': {'source': {}, 'propagationMethod': {}}}]}",
	 "spec.accessCredentials[0].sshPublicKey",
	 "spec.accessCredentials[0].sshPublicKey must have exactly one source set"},
	{SSH("'noCloud': {}, 'configDrive': {}"), "spec.accessCredentials[0].sshPublicKey",
	 "spec.accessCredentials[0].sshPublicKey must have exactly one propagationMethod set"},
	{SSH("'noCloud': {}"), "spec.accessCredentials[0].sshPublicKey",
	 "spec.accessCredentials[0].sshPublicKey requires a noCloud volume to exist when the noCloud "
	 "propagationMethod is in use."},
	{SSH("'configDrive': {}"), "spec.accessCredentials[0].sshPublicKey",
	 "spec.accessCredentials[0].sshPublicKey requires a configDrive volume to exist when the "
	 "configDrive propagationMethod is in use."},
	{SSH("'qemuGuestAgent': {'users': []}"), "spec.accessCredentials[0].sshPublicKey",
	 "spec.accessCredentials[0].sshPublicKey requires at least one user to be present in the users "
	 "list"},
	{"{'accessCredentials': [{'userPassword': {}}]}", "spec.accessCredentials[0].userPassword",
	 "spec.accessCredentials[0].userPassword must have exactly one source set"},
	{"{'accessCredentials': [{'userPassword': {}}]}", "spec.accessCredentials[0].userPassword",
	 "spec.accessCredentials[0].userPassword must have exactly one propagationMethod set"},
#undef SSH
#undef DEV
#undef VOLS
#undef NET
#undef NIC
#undef DISK
#undef RES
#undef CPU
#undef D
};

/* Is there a fault of this path with this text?  r->message NULL: none of this path. */
static void check_says(struct hook_env *env, const struct row *r, size_t i, const char *annotations)
{
	CLEANUP(js_unrefp)
	struct json *vmi =
		json_of("{'apiVersion': 'kubevirt.io/v1', 'kind': 'VirtualMachineInstance',"
			" 'metadata': {'name': 'a', 'namespace': 'default'}}");
	CLEANUP(js_unrefp) struct json *over = json_of(r->spec);
	struct field_errs fe = FIELD_ERRS_INIT;
	struct err err = {0};
	bool found = false;

	assert_int_equal(js_set(vmi, "spec", json_of(good)), RC_OK);
	merge(js_get(vmi, "spec"), over);
	if (annotations)
		assert_int_equal(
			js_set(js_get(vmi, "metadata"), "annotations", json_of(annotations)),
			RC_OK);
	assert_int_equal(admit(env, "virtualmachineinstances.kubevirt.io",
			       &api_type_VirtualMachineInstance, HOOK_CREATE, NULL, vmi, NULL, &fe,
			       &err),
			 RC_OK);
	for (size_t k = 0; k < fe.n; k++)
		found = found || (str_eq(fe.items[k].field, r->field) &&
				  (!r->message || str_eq(fe.items[k].message, r->message)));
	if (found != (r->message != NULL)) {
		dump(&fe, i);
		fail_msg("row %zu: '%s' of '%s'", i, r->message ? r->message : "something",
			 r->field);
	}
	fe_fini(&fe);
}

static void every_rule_speaks_also_among_others(void **state)
{
	struct hook_env env;

	(void)state;
	env_init(&env);
	add_nodes(&env);
	for (size_t i = 0; i < ARRAY_SIZE(says); i++)
		check_says(&env, &says[i], i, NULL);
	env_fini(&env);
}

/* A gate that is on silences KubeVirt's words about it; one that is off wakes them. */
static void gates_decide_about_words(void **state)
{
	static const struct row on[] = {
		{"{'domain': {'devices': {'hostDevices': [{'name': 'h', 'deviceName': 'x/y'}]}}}",
		 "spec.domain.devices.hostDevices", NULL},
		{"{'domain': {'devices': {'autoattachVSOCK': true}}}",
		 "spec.domain.devices.autoattachVSOCK", NULL},
		{"{'domain': {'devices': {'disks': [{'name': 'root', 'lun': {'reservation': true}}]}}}",
		 "spec.domain.devices.disks[0].lun.reservation", NULL},
	};
	static const struct row off[] = {
		{"{'domain': {'devices': {'disks': [{'name': 'root', 'disk': {}}, {'name': 'cd', "
		 "'cdrom': {}}]}}}",
		 "spec.domain.devices.disks[1].name",
		 "DeclarativeHotplugVolumes feature gate not enabled, cannot define an empty CD-ROM "
		 "disk"},
		{"{'domain': {'launchSecurity': {'sev': {}}}}", "spec.domain.launchSecurity",
		 "WorkloadEncryptionSEV feature gate is not enabled in kubevirt-config"},
		{"{'domain': {'devices': {'interfaces': [{'name': 'default', 'bridge': {}}]}}}",
		 "spec.domain.devices.interfaces[0].name",
		 "Bridge on pod network configuration is not enabled under kubevirt-config"},
	};
#define PATH "metadata.annotations[hooks.kubevirt.io/hookSidecars]"
	static const char sidecars[] = "{'hooks.kubevirt.io/hookSidecars': '[]'}";
	static const struct row no_sidecar = {
		"{}", PATH,
		"sidecar feature gate is not enabled in kubevirt-config, invalid entry " PATH};
	static const struct row no_support = {"{}", PATH,
					      "hook sidecars are not supported by Ferry yet"};
#undef PATH
	struct hook_env env;

	(void)state;
	env_init(&env);
	check_says(&env, &no_sidecar, 0, sidecars);
	js_unref(env.config);
	env.config =
		json_of("{'developerConfiguration': {'featureGates': ['HostDevices', 'VSOCK', "
			"'Sidecar']}, 'persistentReservationConfiguration': {'enabled': true}}");
	for (size_t i = 0; i < ARRAY_SIZE(on); i++)
		check_says(&env, &on[i], i, NULL);
	check_says(&env, &no_support, 0, sidecars);
	js_unref(env.config);
	env.config = json_of(
		"{'developerConfiguration': {'disabledFeatureGates': ['DeclarativeHotplugVolumes', "
		"'WorkloadEncryptionSEV']}, 'network': {'permitBridgeInterfaceOnPodNetwork': false}}");
	for (size_t i = 0; i < ARRAY_SIZE(off); i++)
		check_says(&env, &off[i], i, NULL);
	env_fini(&env);
}

static void all_faults_come_at_once_and_a_vms_paths_start_at_its_template(void **state)
{
	struct hook_env env;
	struct field_errs fe = FIELD_ERRS_INIT;
	struct err err = {0};
	CLEANUP(js_unrefp)
	struct json *vm = json_of(
		"{'metadata': {'name': 'a', 'namespace': 'default'}, 'spec': {'running': true,"
		" 'runStrategy': 'Always', 'template': {'spec': {'evictionStrategy': 'x',"
		" 'domain': {'devices': {'disks': [{'name': 'a', 'disk': {}}]}}}}}}");

	(void)state;
	env_init(&env);
	assert_int_equal(admit(&env, "virtualmachines.kubevirt.io", &api_type_VirtualMachine,
			       HOOK_CREATE, NULL, vm, NULL, &fe, &err),
			 RC_OK);
	assert_int_equal(fe.n, 3);
	assert_string_equal(
		fe.items[0].message,
		"Running and RunStrategy are mutually exclusive. Note that Running is deprecated, "
		"please use RunStrategy instead");
	assert_string_equal(fe.items[1].field, "spec.template.spec.evictionStrategy");
	assert_string_equal(fe.items[2].message,
			    "spec.template.spec.domain.devices.disks[0].Name 'a' not found.");
	assert_string_equal(env.warnings,
			    "spec.running is deprecated, please use spec.runStrategy instead.");
	fe_fini(&fe);
	env_fini(&env);
}

static void run_strategy_rules(void **state)
{
	static const struct {
		const char *spec, *message;
	} cases[] = {
		{"{}", "RunStrategy must be specified"},
		{"{'runStrategy': 'Sometimes'}", "Invalid RunStrategy (Sometimes)"},
		{"{'runStrategy': 'Once'}", NULL},
		{"{'running': false}", NULL},
	};
	struct hook_env env;

	(void)state;
	env_init(&env);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct field_errs fe = FIELD_ERRS_INIT;
		struct err err = {0};
		struct json *vm = json_of("{'metadata': {'name': 'a', 'namespace': 'default'}}");
		struct json *template = js_new_object();

		assert_int_equal(js_set(vm, "spec", json_of(cases[i].spec)), RC_OK);
		assert_int_equal(js_set(template, "spec", json_of(good)), RC_OK);
		assert_int_equal(js_set(js_get(vm, "spec"), "template", template), RC_OK);
		char *before = js_to_text(js_get(vm, "spec"));

		assert_int_equal(admit(&env, "virtualmachines.kubevirt.io",
				       &api_type_VirtualMachine, HOOK_CREATE, NULL, vm, NULL, &fe,
				       &err),
				 RC_OK);
		char *after = js_to_text(js_get(vm, "spec"));

		assert_string_equal(before, after); /* a user's spec belongs to the user */
		assert_int_equal(fe.n, cases[i].message ? 1 : 0);
		if (cases[i].message)
			assert_string_equal(fe.items[0].message, cases[i].message);
		mem_free(before);
		mem_free(after);
		fe_fini(&fe);
		js_unref(vm);
	}
	env_fini(&env);
}

static void a_vm_needs_a_template(void **state)
{
	struct hook_env env;
	struct field_errs fe = FIELD_ERRS_INIT;
	struct err err = {0};
	CLEANUP(js_unrefp)
	struct json *vm = json_of("{'metadata': {'name': 'a', 'namespace': 'default'}, 'spec': "
				  "{'runStrategy': 'Halted'}}");

	(void)state;
	env_init(&env);
	assert_int_equal(admit(&env, "virtualmachines.kubevirt.io", &api_type_VirtualMachine,
			       HOOK_CREATE, NULL, vm, NULL, &fe, &err),
			 RC_OK);
	assert_int_equal(fe.n, 1);
	assert_string_equal(fe.items[0].field, "spec.template");
	assert_string_equal(fe.items[0].message, "missing virtual machine template.");
	fe_fini(&fe);
	env_fini(&env);
}

/* Defaults */

static void vmi_gets_kubevirts_defaults(void **state)
{
	struct hook_env env;
	struct field_errs fe = FIELD_ERRS_INIT;
	struct err err = {0};
	CLEANUP(js_unrefp)
	struct json *vmi =
		json_of("{'metadata': {'name': 'a', 'namespace': 'default'}, 'status': {'phase': "
			"'Running'},"
			" 'spec': {'domain': {'resources': {'requests': {'memory': '64Mi'}, "
			"'limits': {'cpu': '1500m'}},"
			"  'devices': {'disks': [{'name': 'cd', 'cdrom': {}}]}},"
			"  'volumes': [{'name': 'cd', 'containerDisk': {'image': 'reg:5000/a'}},"
			"              {'name': 'x', 'emptyDisk': {'capacity': '1Gi'}}]}}");

	(void)state;
	env_init(&env);
	assert_int_equal(admit(&env, "virtualmachineinstances.kubevirt.io",
			       &api_type_VirtualMachineInstance, HOOK_CREATE, NULL, vmi, NULL, &fe,
			       &err),
			 RC_OK);
	dump(&fe, 0);
	assert_int_equal(fe.n, 0);
	const struct json *d = js_at(vmi, "spec", "domain", NULL);

	assert_string_equal(js_str(js_at(d, "machine", "type", NULL)), "q35");
	assert_string_equal(js_str(js_at(d, "cpu", "model", NULL)), "host-model");
	assert_int_equal(js_int(js_at(d, "cpu", "sockets", NULL), 0), 2);
	assert_int_equal(js_int(js_at(d, "cpu", "cores", NULL), 0), 1);
	assert_string_equal(js_str(js_at(d, "memory", "guest", NULL)), "64Mi");
	assert_string_equal(js_str(js_at(d, "resources", "requests", "cpu", NULL)), "1500m");
	assert_int_equal(strlen(js_str(js_at(d, "firmware", "uuid", NULL))), 36);
	assert_true(js_bool(js_at(d, "features", "acpi", "enabled", NULL), false));
	const struct json *disks = js_at(d, "devices", "disks", NULL);

	assert_int_equal(js_len(disks), 2);
	assert_string_equal(js_str(js_at(js_item(disks, 0), "cdrom", "bus", NULL)), "sata");
	assert_true(js_bool(js_at(js_item(disks, 0), "cdrom", "readonly", NULL), false));
	assert_string_equal(js_get_str(js_item(disks, 1), "name"), "x");
	assert_string_equal(js_str(js_at(js_item(disks, 1), "disk", "bus", NULL)), "sata");
	assert_string_equal(js_str(js_at(js_item(js_at(vmi, "spec", "volumes", NULL), 0),
					 "containerDisk", "imagePullPolicy", NULL)),
			    "Always");
	assert_non_null(js_at(js_item(js_at(d, "devices", "interfaces", NULL), 0), "bridge", NULL));
	assert_non_null(js_at(js_item(js_at(vmi, "spec", "networks", NULL), 0), "pod", NULL));
	assert_string_equal(js_str(js_at(vmi, "spec", "evictionStrategy", NULL)), "None");
	assert_string_equal(js_str(js_at(vmi, "spec", "architecture", NULL)), "amd64");
	assert_null(js_at(vmi, "spec", "terminationGracePeriodSeconds", NULL));
	assert_string_equal(js_str(js_at(vmi, "status", "phase", NULL)), "Pending");
	assert_string_equal(js_str(js_at(vmi, "status", "memory", "guestAtBoot", NULL)), "64Mi");
	assert_string_equal(js_str(js_at(vmi, "metadata", "annotations",
					 "kubevirt.io/pci-topology-version", NULL)),
			    "v3");
	fe_fini(&fe);
	env_fini(&env);
}

static void same_manifest_twice_is_no_change(void **state)
{
	static const char manifest[] =
		"{'metadata': {'name': 'a', 'namespace': 'default'}, 'spec': {'domain': {'memory': "
		"{'guest': '64Mi'}, 'devices': {'disks': [{'name': 'cd', 'cdrom': {}}]}},"
		" 'volumes': [{'name': 'cd', 'containerDisk': {'image': 'a/b:1'}}]}}";
	CLEANUP(js_unrefp) struct json *stored = json_of(manifest), *again = json_of(manifest);
	struct hook_env env;
	struct field_errs fe = FIELD_ERRS_INIT;

	(void)state;
	env_init(&env);
	assert_int_equal(admit(&env, "virtualmachineinstances.kubevirt.io",
			       &api_type_VirtualMachineInstance, HOOK_CREATE, NULL, stored, NULL,
			       &fe, NULL),
			 RC_OK);
	/* As a merge patch leaves it: objects are merged, lists are replaced. */
	CLEANUP(js_unrefp) struct json *next = js_copy(stored);

	merge(next, again);
	assert_int_equal(admit(&env, "virtualmachineinstances.kubevirt.io",
			       &api_type_VirtualMachineInstance, HOOK_UPDATE, NULL, next, stored,
			       &fe, NULL),
			 RC_OK);
	assert_int_equal(fe.n, 0);
	assert_true(js_equal(js_get(next, "spec"), js_get(stored, "spec")));
	fe_fini(&fe);
	env_fini(&env);
}

static void configuration_changes_the_defaults(void **state)
{
	struct hook_env env;
	struct field_errs fe = FIELD_ERRS_INIT;
	struct err err = {0};
	CLEANUP(js_unrefp)
	struct json *vmi = json_of("{'metadata': {'name': 'a', 'namespace': 'default'},"
				   " 'spec': {'domain': {'cpu': {'cores': 2}, 'memory': {'guest': "
				   "'64Mi'}, 'devices': {}}}}");

	(void)state;
	env_init(&env);
	env.config = json_of("{'cpuModel': 'Haswell', 'evictionStrategy': 'LiveMigrate',"
			     " 'network': {'defaultNetworkInterface': 'masquerade'},"
			     " 'machineType': 'pc-q35-10.0', 'cpuRequest': '250m'}");
	assert_int_equal(admit(&env, "virtualmachineinstances.kubevirt.io",
			       &api_type_VirtualMachineInstance, HOOK_CREATE, NULL, vmi, NULL, &fe,
			       &err),
			 RC_OK);
	const struct json *d = js_at(vmi, "spec", "domain", NULL);

	assert_int_equal(fe.n, 0);
	assert_string_equal(js_str(js_at(d, "cpu", "model", NULL)), "Haswell");
	assert_null(js_at(d, "cpu", "sockets", NULL)); /* only when all three are absent */
	assert_string_equal(js_str(js_at(d, "machine", "type", NULL)), "pc-q35-10.0");
	assert_string_equal(js_str(js_at(d, "resources", "requests", "cpu", NULL)), "250m");
	assert_string_equal(js_str(js_at(vmi, "spec", "evictionStrategy", NULL)), "LiveMigrate");
	assert_non_null(
		js_at(js_item(js_at(d, "devices", "interfaces", NULL), 0), "masquerade", NULL));
	fe_fini(&fe);
	env_fini(&env);
}

static void vmi_without_memory_is_refused(void **state)
{
	struct hook_env env;
	struct field_errs fe = FIELD_ERRS_INIT;
	CLEANUP(js_unrefp)
	struct json *vmi = json_of("{'metadata': {'name': 'a', 'namespace': 'default'}, 'spec': "
				   "{'domain': {'devices': {}}}}");

	(void)state;
	env_init(&env);
	assert_int_equal(admit(&env, "virtualmachineinstances.kubevirt.io",
			       &api_type_VirtualMachineInstance, HOOK_CREATE, NULL, vmi, NULL, &fe,
			       NULL),
			 RC_OK);
	assert_int_equal(fe.n, 1);
	assert_string_equal(fe.items[0].message,
			    "no memory requested, at least one of 'spec.domain.memory.guest', "
			    "'spec.domain.memory.hugepages.pageSize' or "
			    "'spec.domain.resources.requests.memory' must be set");
	fe_fini(&fe);
	env_fini(&env);
}

/* Who may change a VMI */

static void vmi_update_rules(void **state)
{
	static const struct {
		const char *group, *patch, *message, *err;
	} cases[] = {
		{NULL, "{'spec': {'hostname': 'b'}}", "update of VMI object is restricted", NULL},
		{NULL, "{'metadata': {'labels': {'team': 'x'}}}", NULL, NULL},
		{NULL, "{'metadata': {'labels': {'kubevirt.io/nodeName': 'x'}}}",
		 "modification of the following reserved kubevirt.io/ labels on a VMI object is "
		 "prohibited",
		 NULL},
		{NULL, "{'status': {'phase': 'Failed'}}", NULL, NULL},
		{"system:ferry:controllers", "{'spec': {'hostname': 'b'}}", NULL, NULL},
		{"system:ferry:controllers", "{'spec': {'domain': {'cpu': {'maxSockets': 9}}}}",
		 "CPU topology maxSockets changed", NULL},
		{"system:nodes", "{'status': {'phase': 'Failed'}}", NULL,
		 "Node restriction, virt-handler is only allowed to modify VMIs it owns"},
	};
	struct hook_env env;

	(void)state;
	env_init(&env);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct field_errs fe = FIELD_ERRS_INIT;
		struct err err = {0};
		struct json *old =
			json_of("{'metadata': {'name': 'a', 'namespace': 'default'},"
				" 'status': {'phase': 'Running', 'nodeName': 'node-2'}}");

		assert_int_equal(js_set(old, "spec", json_of(good)), RC_OK);
		struct json *obj = js_copy(old), *patch = json_of(cases[i].patch);

		merge(obj, patch);
		enum rc rc = admit(&env, "virtualmachineinstances.kubevirt.io",
				   &api_type_VirtualMachineInstance, HOOK_UPDATE, cases[i].group,
				   obj, old, &fe, &err);

		assert_int_equal(rc, cases[i].err ? RC_BAD_REQUEST : RC_OK);
		if (cases[i].err)
			assert_string_equal(err.msg, cases[i].err);
		assert_int_equal(fe.n, cases[i].message ? 1 : 0);
		if (cases[i].message)
			assert_string_equal(fe.items[0].message, cases[i].message);
		if (!cases[i].group)
			assert_string_equal(js_str(js_at(obj, "status", "phase", NULL)), "Running");
		fe_fini(&fe);
		js_unref(patch);
		js_unref(obj);
		js_unref(old);
	}
	env_fini(&env);
}

/* Migrations */

static void migration_create_rules(void **state)
{
	static const struct {
		const char *spec, *vmi, *other, *message, *err;
	} cases[] = {
		{"{}", NULL, NULL, "vmiName is missing", NULL},
		{"{'vmiName': 'vm', 'priority': 'user-triggered'}", "{}", NULL,
		 "Migration priority queue, only virt-controller is allowed to set priority field",
		 NULL},
		{"{'vmiName': 'vm', 'receive': {'migrationID': 'x'}}", "{}", NULL,
		 "DecentralizedLiveMigration feature gate is not enabled in kubevirt resource",
		 NULL},
		{"{'vmiName': 'vm', 'sendTo': {'migrationID': 'a', 'connectURL': 'x'}, 'receive': "
		 "{'migrationID': 'b'}}",
		 "{}", "gate", "sendTo migrationID a does not match receive migrationID b", NULL},
		{"{'vmiName': 'vm'}", NULL, NULL, NULL, "the VMI \"default/vm\" does not exist"},
		{"{'vmiName': 'vm'}", "{'phase': 'Succeeded'}", NULL, NULL,
		 "Cannot migrate VMI in finalized state."},
		{"{'vmiName': 'vm'}",
		 "{'phase': 'Running', 'conditions': [{'type': 'LiveMigratable', 'status': 'False',"
		 " 'reason': 'DisksNotLiveMigratable', 'message': 'no'}]}",
		 NULL, NULL, "Cannot migrate VMI, Reason: DisksNotLiveMigratable, Message: no"},
		{"{'vmiName': 'vm'}", "{'phase': 'Running'}", "{'phase': 'Running'}", NULL,
		 "in-flight migration detected. Active migration job (u-1) is currently already in "
		 "progress "
		 "for VMI vm."},
		{"{'vmiName': 'vm'}", "{'phase': 'Running'}", "{'phase': 'Failed'}", NULL, NULL},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct hook_env env;
		struct field_errs fe = FIELD_ERRS_INIT;
		struct err err = {0};
		char text[512];
		struct json *m = json_of("{'metadata': {'name': 'm', 'namespace': 'default'}}");

		env_init(&env);
		if (cases[i].vmi) {
			snprintf(text, sizeof(text),
				 "{'metadata': {'name': 'vm', 'namespace': 'default'}, 'status': "
				 "%s}",
				 cases[i].vmi);
			env_add(&env, "virtualmachineinstances.kubevirt.io", text);
		}
		bool has_gate = cases[i].other && strcmp(cases[i].other, "gate") == 0;

		if (has_gate) {
			js_unref(env.config);
			env.config = json_of("{'developerConfiguration': {'featureGates': "
					     "['DecentralizedLiveMigration']}}");
		}
		if (cases[i].other && !has_gate) {
			snprintf(text, sizeof(text),
				 "{'metadata': {'name': 'o', 'namespace': 'default', 'uid': 'u-1'},"
				 " 'spec': {'vmiName': 'vm'}, 'status': %s}",
				 cases[i].other);
			env_add(&env, "virtualmachineinstancemigrations.kubevirt.io", text);
		}
		assert_int_equal(js_set(m, "spec", json_of(cases[i].spec)), RC_OK);
		enum rc rc = admit(&env, "virtualmachineinstancemigrations.kubevirt.io",
				   &api_type_VirtualMachineInstanceMigration, HOOK_CREATE, NULL, m,
				   NULL, &fe, &err);

		assert_int_equal(rc, cases[i].err ? RC_BAD_REQUEST : RC_OK);
		if (cases[i].err)
			assert_string_equal(err.msg, cases[i].err);
		assert_int_equal(fe.n, cases[i].message ? 1 : 0);
		if (cases[i].message)
			assert_string_equal(fe.items[0].message, cases[i].message);
		assert_string_equal(js_str(js_item(js_at(m, "metadata", "finalizers", NULL), 0)),
				    "kubevirt.io/migrationJobFinalize");
		fe_fini(&fe);
		js_unref(m);
		env_fini(&env);
	}
}

static void migration_update_rules(void **state)
{
	static const struct {
		const char *obj, *message;
	} cases[] = {
		{"{'metadata': {'name': 'm', 'labels': {'kubevirt.io/vmi-name': 'vm'}},"
		 " 'spec': {'vmiName': 'other'}}",
		 "update of Migration object's spec is restricted"},
		{"{'metadata': {'name': 'm'}, 'spec': {'vmiName': 'vm'}}",
		 "selector label can't be removed from an in-flight migration"},
		{"{'metadata': {'name': 'm', 'labels': {'kubevirt.io/vmi-name': 'x'}},"
		 " 'spec': {'vmiName': 'vm'}}",
		 "selector label can't be modified on an in-flight migration"},
	};
	struct hook_env env;

	(void)state;
	env_init(&env);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct field_errs fe = FIELD_ERRS_INIT;
		struct json *old = json_of(
			"{'metadata': {'name': 'm', 'labels': {'kubevirt.io/vmi-name': 'vm'}},"
			" 'spec': {'vmiName': 'vm'}, 'status': {'phase': 'Running'}}");
		struct json *obj = json_of(cases[i].obj);

		assert_int_equal(admit(&env, "virtualmachineinstancemigrations.kubevirt.io",
				       &api_type_VirtualMachineInstanceMigration, HOOK_UPDATE, NULL,
				       obj, old, &fe, NULL),
				 RC_OK);
		assert_int_equal(fe.n, 1);
		assert_string_equal(fe.items[0].message, cases[i].message);
		fe_fini(&fe);
		js_unref(obj);
		js_unref(old);
	}
	env_fini(&env);
}

/* "Finish it now, I accept the pause". */
static void a_finish_is_asked_of_what_has_not_ended(void **state)
{
	static const char over[] = "the migration is over: Succeeded",
			  unknown[] = "must be \"pause\"",
			  no_way_back[] =
				  "cannot be taken back while the migration runs; it can be "
				  "canceled by deleting it";
	static const struct {
		const char *was, *now, *status, *gone, *message;
	} cases[] = {
		{NULL, "pause", "{'phase': 'Running'}", NULL, NULL},
		{NULL, "pause", "{'phase': 'Scheduling'}", NULL, NULL},
		{NULL, "pause", "{}", NULL, NULL},
		{"pause", "pause", "{'phase': 'Running'}", NULL, NULL}, /* twice */
		{NULL, "now", "{'phase': 'Running'}", NULL, unknown},
		{NULL, "", "{'phase': 'Running'}", NULL, unknown},
		{"pause", "stop", "{'phase': 'Running'}", NULL, unknown},
		{NULL, "pause", "{'phase': 'Succeeded'}", NULL, over},
		{"pause", "pause", "{'phase': 'Succeeded'}", NULL, NULL}, /* its finalizer goes */
		{"pause", NULL, "{'phase': 'Succeeded'}", NULL, NULL},
		{"pause", NULL, "{'phase': 'Scheduling'}", NULL, NULL},
		{"pause", NULL, "{'phase': 'Running'}", NULL, no_way_back},
		{NULL, "pause", "{'phase': 'Running'}", "2026-01-01T00:00:00Z",
		 "the migration is being canceled"},
	};
	struct hook_env env;

	(void)state;
	env_init(&env);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct field_errs fe = FIELD_ERRS_INIT;
		struct json *objs[2];

		for (int k = 0; k < 2; k++) {
			const char *value = k ? cases[i].now : cases[i].was;

			objs[k] = json_of(
				"{'metadata': {'name': 'm', 'labels': {'kubevirt.io/vmi-name':"
				" 'vm'}, 'annotations': {}}, 'spec': {'vmiName': 'vm'}}");
			struct json *meta = js_get(objs[k], "metadata");

			if (value)
				assert_int_equal(js_set(js_get(meta, "annotations"),
							"ferry.dev/finish", js_new_str(value)),
						 RC_OK);
			if (cases[i].gone)
				assert_int_equal(js_set(meta, "deletionTimestamp",
							js_new_str(cases[i].gone)),
						 RC_OK);
			assert_int_equal(js_set(objs[k], "status", json_of(cases[i].status)),
					 RC_OK);
		}
		assert_int_equal(admit(&env, "virtualmachineinstancemigrations.kubevirt.io",
				       &api_type_VirtualMachineInstanceMigration, HOOK_UPDATE, NULL,
				       objs[1], objs[0], &fe, NULL),
				 RC_OK);
		assert_int_equal(fe.n, cases[i].message ? 1 : 0);
		if (cases[i].message) {
			assert_string_equal(fe.items[0].message, cases[i].message);
			assert_string_equal(fe.items[0].field,
					    "metadata.annotations[ferry.dev/finish]");
		}
		fe_fini(&fe);
		js_unref(objs[0]);
		js_unref(objs[1]);
	}
	env_fini(&env);
}

/* KubeVirt */

static void kubevirt_rules(void **state)
{
	struct hook_env env;
	struct field_errs fe = FIELD_ERRS_INIT;
	struct err err = {0};
	CLEANUP(js_unrefp)
	struct json *old = json_of("{'metadata': {'name': 'kubevirt', 'namespace': 'kubevirt'},"
				   " 'spec': {'uninstallStrategy': "
				   "'BlockUninstallIfWorkloadsExist', 'configuration': {}}}");
	CLEANUP(js_unrefp) struct json *obj = js_copy(old);
	CLEANUP(js_unrefp)
	struct json *change = json_of(
		"{'spec': {'configuration': {'migrations': {'maxDowntimeMs': 100},"
		" 'additionalGuestMemoryOverheadRatio': '0.5',"
		" 'tlsConfiguration': {'ciphers': ['TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256', "
		"'ROT13']},"
		" 'developerConfiguration': {'featureGates': ['A'], "
		"'disabledFeatureGates': ['A']}},"
		" 'infra': {'replicas': 0}, 'customizeComponents': {'patches': [{'patch': "
		"'{}'}, {'patch': '{x'}]}}}");

	(void)state;
	env_init(&env);
	merge(obj, change);
	assert_int_equal(admit(&env, "kubevirts.kubevirt.io", &api_type_KubeVirt, HOOK_UPDATE, NULL,
			       obj, old, &fe, &err),
			 RC_OK);
	assert_int_equal(fe.n, 7);
	assert_string_equal(fe.items[0].field, "spec.infra.replicas");
	assert_string_equal(fe.items[0].message, "infra replica count can't be 0");
	assert_string_equal(fe.items[1].field, "spec.customizeComponents.patches[1].patch");
	assert_string_equal(fe.items[1].message, "patch \"{x\" is not valid JSON");
	assert_string_equal(fe.items[2].field, "spec.configuration.tlsConfiguration.ciphers[1]");
	assert_string_equal(fe.items[2].message, "ROT13 is not a valid cipher");
	assert_string_equal(
		fe.items[3].message,
		"You cannot specify ciphers when spec.configuration.tlsConfiguration.minTLSVersion is "
		"empty or VersionTLS13");
	assert_string_equal(
		fe.items[4].message,
		"feature gate \"A\" exists on both \"FeatureGates\" and \"DisabledFeatureGates\"");
	assert_string_equal(
		fe.items[5].message,
		"maxDowntimeMs cannot be modified without enabling the MigrationStallDetection "
		"feature gate");
	assert_string_equal(fe.items[6].message, "ratio provided, 0.5, cannot be smaller than 1.0");
	fe_fini(&fe);

	env_add(&env, "kubevirts.kubevirt.io",
		"{'metadata': {'name': 'kubevirt', 'namespace': 'kubevirt'}}");
	env_add(&env, "virtualmachines.kubevirt.io",
		"{'metadata': {'name': 'a', 'namespace': 'x'}}");
	assert_int_equal(admit(&env, "kubevirts.kubevirt.io", &api_type_KubeVirt, HOOK_CREATE, NULL,
			       obj, NULL, &fe, &err),
			 RC_BAD_REQUEST);
	assert_string_equal(err.msg, "Kubevirt is already created");
	assert_int_equal(admit(&env, "kubevirts.kubevirt.io", &api_type_KubeVirt, HOOK_DELETE, NULL,
			       NULL, old, &fe, &err),
			 RC_BAD_REQUEST);
	assert_string_equal(
		err.msg,
		"Rejecting the uninstall request, since there are still Virtual Machines present. "
		"Either delete all KubeVirt related workloads or change the uninstall strategy "
		"before uninstalling KubeVirt.");
	env_fini(&env);
}

/* FerryConfig */

static void ferryconfig_rules(void **state)
{
	static const struct {
		const char *spec, *field, *message; /* NULL: accepted */
	} cases[] = {
		{"{'networks': [{'name': 'default', 'cidr': '10.20.0.0/16'}]}", NULL, NULL},
		{"{'networks': [{'name': 'default', 'cidr': '10.20.4.0/22', 'gateway': "
		 "'10.20.4.9'}], 'cpuBaseline': 'Nehalem'}",
		 NULL, NULL},
		{"{'networks': [{'name': 'default', 'cidr': '10.0.0.0/8'}]}",
		 "spec.networks[0].cidr",
		 "spec.networks[0].cidr '10.0.0.0/8': must be an IPv4 network of /16 to /22, as in "
		 "10.244.0.0/16"},
		{"{'networks': [{'name': 'default', 'cidr': 'fd00::/64'}]}",
		 "spec.networks[0].cidr",
		 "spec.networks[0].cidr 'fd00::/64': must be an IPv4 network of /16 to /22, as in "
		 "10.244.0.0/16"},
		{"{'networks': [{'name': 'default', 'cidr': '10.20.1.0/16'}]}",
		 "spec.networks[0].cidr",
		 "spec.networks[0].cidr '10.20.1.0/16': must not have bits set beyond its prefix"},
		{"{'networks': [{'name': 'default', 'cidr': '10.96.0.0/16'}]}",
		 "spec.networks[0].cidr",
		 "spec.networks[0].cidr '10.96.0.0/16': must not overlap the Services' network "
		 "10.96.0.0/16"},
		{"{'networks': [{'name': 'default', 'cidr': '10.20.0.0/16', 'gateway': "
		 "'10.20.0.10'}]}",
		 "spec.networks[0].gateway",
		 "spec.networks[0].gateway '10.20.0.10': must be one of the first 9 addresses of "
		 "10.20.0.0/16"},
		{"{'networks': [{'name': 'lan', 'cidr': '10.20.0.0/16'}]}", "spec.networks[0].name",
		 "spec.networks[0].name 'lan': not supported by Ferry yet; the one network is "
		 "named 'default'"},
		{"{'cpuBaseline': 'host-model'}", "spec.cpuBaseline",
		 "spec.cpuBaseline 'host-model': must be a named CPU model, the same on every "
		 "node"},
		{"{'cpuBaseline': 'Nehalen'}", "spec.cpuBaseline",
		 "unknown CPU model 'Nehalen'; the nearest names are 'Nehalem', 'athlon', "
		 "'Penryn'"},
	};
	struct field_errs fe = FIELD_ERRS_INIT;
	struct hook_env env;
	struct err err = {0};

	(void)state;
	env_init(&env);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(js_unrefp) struct json *obj = json_of("{'metadata': {'name': 'ferry'}}");

		assert_int_equal(js_set(obj, "spec", json_of(cases[i].spec)), RC_OK);
		assert_int_equal(admit(&env, "ferryconfigs.ferry.dev", &api_type_FerryConfig,
				       HOOK_CREATE, NULL, obj, NULL, &fe, &err),
				 RC_OK);
		assert_int_equal(fe.n, cases[i].field ? 1 : 0);
		if (cases[i].field) {
			assert_string_equal(fe.items[0].field, cases[i].field);
			assert_string_equal(fe.items[0].message, cases[i].message);
		}
		fe_fini(&fe);
	}
	env_fini(&env);
}

static void ferryconfig_of_a_cluster_with_nodes(void **state)
{
	CLEANUP(js_unrefp)
	struct json *old = json_of("{'metadata': {'name': 'ferry'}, 'spec': {'networks': "
				   "[{'name': 'default', 'cidr': '10.20.0.0/16'}]}}");
	CLEANUP(js_unrefp)
	struct json *obj = json_of("{'metadata': {'name': 'ferry'}, 'spec': {'networks': "
				   "[{'name': 'default', 'cidr': '10.21.0.0/16'}]}}");
	CLEANUP(js_unrefp)
	struct json *other = json_of("{'metadata': {'name': 'second'}, 'spec': {}}");
	struct field_errs fe = FIELD_ERRS_INIT;
	struct hook_env env;
	struct err err = {0};

	(void)state;
	env_init(&env);
	assert_int_equal(admit(&env, "ferryconfigs.ferry.dev", &api_type_FerryConfig, HOOK_UPDATE,
			       NULL, obj, old, &fe, &err),
			 RC_OK);
	assert_int_equal(fe.n, 0);
	env_add(&env, "nodes", "{'metadata': {'name': 'node-1'}}");
	assert_int_equal(admit(&env, "ferryconfigs.ferry.dev", &api_type_FerryConfig, HOOK_UPDATE,
			       NULL, obj, old, &fe, &err),
			 RC_OK);
	assert_int_equal(fe.n, 1);
	assert_string_equal(fe.n ? fe.items[0].message : "",
			    "spec.networks: field is immutable while the cluster has nodes");
	fe_fini(&fe);
	assert_int_equal(admit(&env, "ferryconfigs.ferry.dev", &api_type_FerryConfig, HOOK_CREATE,
			       NULL, other, NULL, &fe, &err),
			 RC_OK);
	assert_int_equal(fe.n, 1);
	assert_string_equal(fe.items[0].field, "metadata.name");
	fe_fini(&fe);
	assert_int_equal(admit(&env, "ferryconfigs.ferry.dev", &api_type_FerryConfig, HOOK_DELETE,
			       NULL, NULL, old, &fe, &err),
			 RC_BAD_REQUEST);
	env_fini(&env);
}

/* Memory */

static const char torture_vmi[] = "{\"metadata\":{\"name\":\"a\"},\"spec\":{\"domain\":{\"memory\":"
				  "{\"guest\":\"64Mi\"},\"devices\":"
				  "{\"disks\":[{\"name\":\"a\",\"cdrom\":{}}]}},\"volumes\":[{"
				  "\"name\":\"a\",\"containerDisk\":"
				  "{\"image\":\"x\"}}]}}";

static enum rc defaults_once(void)
{
	struct adm_cluster c = {0};
	struct json *j = NULL;
	void *vmi = NULL;
	enum rc rc = js_parse(torture_vmi, strlen(torture_vmi), &j, NULL);

	if (!rc)
		rc = adm_cluster_init(&c, NULL, NULL, NULL);
	if (!rc)
		rc = api_decode(&api_type_VirtualMachineInstance, j, &vmi, NULL);
	if (!rc)
		rc = adm_vmi_defaults(vmi, &c, NULL);
	VirtualMachineInstance_free(vmi);
	adm_cluster_fini(&c);
	js_unref(j);
	return rc;
}

static void defaults_survive_every_failed_allocation(void **state)
{
	(void)state;
	torture(defaults_once);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_rule_says_its_own_text),
		cmocka_unit_test(a_tablet_is_added_when_it_is_asked_for_and_missing),
		cmocka_unit_test(every_rule_speaks_also_among_others),
		cmocka_unit_test(gates_decide_about_words),
		cmocka_unit_test(a_host_disk_lies_where_an_administrator_allows_it),
		cmocka_unit_test(all_faults_come_at_once_and_a_vms_paths_start_at_its_template),
		cmocka_unit_test(run_strategy_rules),
		cmocka_unit_test(a_vm_needs_a_template),
		cmocka_unit_test(vmi_gets_kubevirts_defaults),
		cmocka_unit_test(same_manifest_twice_is_no_change),
		cmocka_unit_test(configuration_changes_the_defaults),
		cmocka_unit_test(vmi_without_memory_is_refused),
		cmocka_unit_test(vmi_update_rules),
		cmocka_unit_test(migration_create_rules),
		cmocka_unit_test(migration_update_rules),
		cmocka_unit_test(a_finish_is_asked_of_what_has_not_ended),
		cmocka_unit_test(kubevirt_rules),
		cmocka_unit_test(ferryconfig_rules),
		cmocka_unit_test(ferryconfig_of_a_cluster_with_nodes),
		cmocka_unit_test(defaults_survive_every_failed_allocation),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("admission", tests, NULL, NULL);
}
