#include "virt/node/vmspec.h"

#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "api/quantity.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "base/try.h"
#include "json/json.h"
#include "virt/migration/compat.h"
#include "virt/node/cpulabels.h"

void vmspec_top_name(const char *volume, char out[VMSPEC_NAME_MAX])
{
	(void)snprintf(out, VMSPEC_NAME_MAX, "disk.%s", volume);
}

void vmspec_base_name(const char *volume, char out[VMSPEC_NAME_MAX])
{
	(void)snprintf(out, VMSPEC_NAME_MAX, "base.%s", volume);
}

void vmspec_tap_name(const char *network, char out[VMSPEC_NAME_MAX])
{
	(void)snprintf(out, VMSPEC_NAME_MAX, "tap.%s", network);
}

void vmspec_hostname(const VirtualMachineInstance *vmi, char out[64])
{
	const char *name = vmi->spec.hostname ? vmi->spec.hostname : vmi->metadata.name;

	(void)snprintf(out, 64, "%.*s", (int)MIN(strcspn(name, "."), 63), name);
}

const char *vmspec_uuid(const VirtualMachineInstance *vmi)
{
	const Firmware *f = vmi->spec.domain.firmware;

	return f && f->uuid ? f->uuid : vmi->metadata.uid;
}

int64_t vmspec_memory(const VirtualMachineInstance *vmi)
{
	const DomainSpec *d = &vmi->spec.domain;
	const char *text = d->memory ? d->memory->guest : NULL;

	if (!text && d->resources)
		text = api_map_get(&d->resources->requests, "memory");
	if (!text && d->resources)
		text = api_map_get(&d->resources->limits, "memory");
	int64_t bytes = api_quantity_bytes(text, 0);
	int64_t over = bytes % (int64_t)MIB; /* decimal units ("64M") are hardly ever whole ones */

	return over > 0 && bytes < INT64_MAX - (int64_t)MIB ? bytes - over + (int64_t)MIB : bytes;
}

void vmspec_pod_interface(const VirtualMachineInstance *vmi, const Interface **iface,
			  const Network **net)
{
	const VirtualMachineInstanceSpec *s = &vmi->spec;

	*iface = NULL;
	*net = NULL;
	for (size_t i = 0; i < s->n_networks && !*net; i++)
		if (s->networks[i].pod)
			*net = &s->networks[i];
	for (size_t i = 0; *net && i < s->domain.devices.n_interfaces; i++)
		if (str_eq(s->domain.devices.interfaces[i].name, (*net)->name))
			*iface = &s->domain.devices.interfaces[i];
	if (!*iface)
		*net = NULL;
}

const char *vmspec_mac(const Interface *iface, const char *vm_mac)
{
	return str_is_empty(iface->macAddress) ? vm_mac : iface->macAddress;
}

const Disk *vmspec_disk_of(const VirtualMachineInstance *vmi, const char *volume)
{
	const Devices *d = &vmi->spec.domain.devices;

	for (size_t i = 0; i < d->n_disks; i++)
		if (str_eq(d->disks[i].name, volume))
			return &d->disks[i];
	return NULL;
}

bool vmspec_disk_is_read_only(const Disk *d)
{
	return d && (d->cdrom || (d->disk && API_GET(d->disk, readonly, false)) ||
		     (d->lun && API_GET(d->lun, readonly, false)));
}

/* --- CPU --- */

static enum rc add_feature(struct launch_spec *s, const char *name, bool on)
{
	for (size_t i = 0; i < s->n_features; i++)
		if (str_eq(s->features[i].name, name)) {
			s->features[i].on = on;
			return RC_OK;
		}
	struct launch_feature *f = launch_spec_add_feature(s);

	if (!f)
		return RC_NOMEM;
	f->on = on;
	return api_set_str(&f->name, name);
}

/* What this VM got when it was started: "Model,+a,-b". */
static enum rc cpu_from_text(const char *text, struct launch_spec *s, struct err *err)
{
	struct str rest = str_of(text);
	struct str name = str_split(&rest, ',');

	s->cpu_model = mem_strndup(name.p, name.n);
	while (s->cpu_model && rest.p) {
		struct str f = str_split(&rest, ',');

		if (f.n < 2 || (*f.p != '+' && *f.p != '-'))
			return err_set(err, RC_INVALID, "status.ferry.cpuModel '%s' makes no sense",
				       text);
		CLEANUP(mem_freep) char *feature = mem_strndup(f.p + 1, f.n - 1);

		if (!feature)
			return RC_NOMEM;
		TRY(add_feature(s, feature, *f.p == '+'));
	}
	return s->cpu_model ? RC_OK : err_set(err, RC_NOMEM, "out of memory");
}

/* Everything that this node gives, or what is left of it: what is kept back, and what a guest that came from
 * elsewhere has never had, is switched off, so that it sees the same CPU wherever it is. */
static enum rc everything(const struct vmspec_env *env, const FerryGuestCPU *seen,
			  struct launch_spec *s, struct err *err)
{
	const struct json *without = js_get(env->probe, "without");

	TRY(api_set_str(&s->cpu_model, str_eq(env->accel, "kvm") ? "host" : "max"));
	for (size_t i = 0; i < js_len(without); i++)
		TRY(add_feature(s, js_str(js_item(without, i)), false));
	if (!seen)
		return RC_OK;
	JS_FOREACH(it, js_get(env->probe, "host")) {
		bool had = !js_bool(it.value, false) || !cpu_feature_counts(it.key);

		for (size_t i = 0; !had && i < seen->n_features; i++)
			had = str_eq(seen->features[i], it.key);
		if (had)
			continue;
		if (s->n_features == LAUNCH_MAX_FEATURES)
			return err_set(err, RC_UNSUPPORTED,
				       "this node gives too many CPU features that the guest does "
				       "not have");
		TRY(add_feature(s, it.key, false));
	}
	return RC_OK;
}

static enum rc refuse_lacking(const char *what, const char *const *names, size_t n, struct err *err)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(4096);

	compat_print_names(names, n, &b);
	return err_set(err, RC_UNSUPPORTED, "this node lacks the CPU feature%s %s, which %s",
		       n > 1 ? "s" : "", sbuf_str(&b), what);
}

/* A guest that runs already goes on with the CPU that it has seen, or not at all. */
static enum rc check_seen(const struct vmspec_env *env, const FerryGuestCPU *seen, struct err *err)
{
	CLEANUP(mem_freep)
	const char **missing = mem_calloc(seen->n_features + 1, sizeof(*missing));
	size_t n = 0;

	if (!missing)
		return RC_NOMEM;
	for (size_t i = 0; i < seen->n_features; i++)
		if (!cpu_feature_is_given(env->probe, seen->features[i]))
			missing[n++] = seen->features[i];
	return n ? refuse_lacking("the guest has", missing, n, err) : RC_OK;
}

static enum rc check_model(const struct vmspec_env *env, const char *model, struct err *err)
{
	const struct json *lacks = cpu_model_lacks(env->probe, model);
	const char *names[64];
	size_t n = 0;

	if (cpu_model_is_usable(env->probe, model))
		return RC_OK;
	if (!lacks)
		return err_set(err, RC_UNSUPPORTED, "this node's QEMU has no CPU model '%s'",
			       model);
	for (; n < js_len(lacks) && n < ARRAY_SIZE(names); n++)
		names[n] = js_str(js_item(lacks, n));
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(512);

	sbuf_addf(&b, "the model %s has", model);
	return refuse_lacking(sbuf_str(&b), names, n, err);
}

/* The state of a newer QEMU is not taken back by an older one. */
static enum rc check_qemu(const struct vmspec_env *env, const FerryVMIStatus *fs, struct err *err)
{
	const char *ours = js_get_str(env->probe, "version");

	if (!ours || compat_qemu_level(ours) >= compat_qemu_level(fs->qemuVersion))
		return RC_OK;
	return err_set(err, RC_UNSUPPORTED, "this node has QEMU %s, older than the guest's %s",
		       ours, fs->qemuVersion);
}

/* What the target of a move gives. */
static enum rc cpu_as_seen(const FerryVMIStatus *fs, const struct vmspec_env *env,
			   struct launch_spec *s, struct err *err)
{
	TRY(check_qemu(env, fs, err));
	if (fs->cpu)
		TRY(check_seen(env, fs->cpu, err));
	TRY(cpu_from_text(fs->cpuModel, s, err));
	if (!str_eq(s->cpu_model, "max") && !str_eq(s->cpu_model, "host"))
		return check_model(env, s->cpu_model, err);
	return everything(env, fs->cpu, s, err);
}

static enum rc host_model(const struct vmspec_env *env, struct launch_spec *s, struct err *err)
{
	struct cpu_host_model hm = {0};

	if (env->host_model && !cpu_model_is_usable(env->probe, env->host_model))
		return err_set(
			err, RC_UNSUPPORTED,
			"the CPU model '%s', which host-model stands for in this cluster, is "
			"not usable on this node",
			env->host_model);
	if (env->host_model)
		return api_set_str(&s->cpu_model, env->host_model);
	enum rc rc = cpu_host_model_choose(env->probe, &hm, err);

	if (!rc && !hm.name)
		rc = err_set(err, RC_UNSUPPORTED,
			     "no named CPU model is usable on this node for host-model");
	if (!rc)
		rc = api_set_str(&s->cpu_model, hm.name);
	for (size_t i = 0; !rc && i < hm.n_required; i++)
		rc = add_feature(s, hm.required[i], true);
	cpu_host_model_fini(&hm);
	return rc;
}

static enum rc user_features(const CPU *cpu, const struct vmspec_env *env, struct launch_spec *s)
{
	for (size_t i = 0; cpu && i < cpu->n_features; i++) {
		const CPUFeature *f = &cpu->features[i];
		const char *policy = str_is_empty(f->policy) ? "require" : f->policy;
		bool off = str_eq(policy, "disable") || str_eq(policy, "forbid");

		/* "force" asks for what the machine may not have; what is kept back counts as that. */
		if (!off && cpu_feature_is_kept_back(env->probe, f->name))
			continue;
		if (str_eq(policy, "optional") &&
		    !js_get_bool(js_get(env->probe, "host"), f->name, false))
			continue;
		TRY(add_feature(s, f->name, !off));
	}
	return RC_OK;
}

static enum rc set_cpu(const VirtualMachineInstance *vmi, const struct vmspec_env *env,
		       struct launch_spec *s, struct err *err)
{
	const CPU *cpu = vmi->spec.domain.cpu;
	const char *model = cpu ? cpu->model : NULL;
	enum rc rc;

	if (cpu) {
		s->sockets = MAX(API_GET(cpu, sockets, 1), 1);
		s->cores = MAX(API_GET(cpu, cores, 1), 1);
		s->threads = MAX(API_GET(cpu, threads, 1), 1);
	}
	if (vmi->status.ferry && vmi->status.ferry->cpuModel)
		return cpu_as_seen(vmi->status.ferry, env, s, err);
	if (str_eq(model, "host-passthrough"))
		rc = everything(env, NULL, s, err);
	else if (!model || str_eq(model, "host-model"))
		rc = host_model(env, s, err);
	else
		rc = api_set_str(&s->cpu_model, model);
	if (!rc)
		rc = user_features(cpu, env, s);
	return rc;
}

char *vmspec_cpu_text(const struct launch_spec *s)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(64 * 1024);
	char *out = NULL;
	size_t n;

	sbuf_adds(&b, s->cpu_model);
	for (size_t i = 0; i < s->n_features; i++)
		sbuf_addf(&b, ",%c%s", s->features[i].on ? '+' : '-', s->features[i].name);
	return sbuf_take(&b, &out, &n) ? NULL : out;
}

/* --- disks --- */

static enum launch_bus bus_of(const char *bus)
{
	if (str_eq(bus, "virtio"))
		return LAUNCH_BUS_VIRTIO;
	return str_eq(bus, "scsi") ? LAUNCH_BUS_SCSI : LAUNCH_BUS_SATA;
}

static enum rc set_target(const Disk *d, struct launch_disk *out, struct err *err)
{
	const char *bus;

	if (d->cdrom) {
		out->kind = LAUNCH_CDROM;
		bus = d->cdrom->bus;
	} else if (d->lun) {
		out->kind = LAUNCH_LUN;
		bus = d->lun->bus;
	} else {
		out->kind = LAUNCH_DISK;
		bus = d->disk ? d->disk->bus : NULL;
	}
	out->read_only = vmspec_disk_is_read_only(d);
	if (str_eq(bus, "usb"))
		return err_set(err, RC_UNSUPPORTED, "disk '%s': bus usb is not supported", d->name);
	out->bus = bus_of(bus);
	return RC_OK;
}

static void set_cache(const Disk *d, const struct vmspec_disk *in, struct launch_disk *out)
{
	if (str_eq(d->cache, "none"))
		out->cache = LAUNCH_CACHE_NONE;
	else if (str_eq(d->cache, "writethrough"))
		out->cache = LAUNCH_CACHE_WRITETHROUGH;
	else if (str_eq(d->cache, "writeback"))
		out->cache = LAUNCH_CACHE_WRITEBACK;
	else
		out->cache = in->has_direct_io ? LAUNCH_CACHE_NONE : LAUNCH_CACHE_WRITETHROUGH;
	out->io = str_eq(d->io, "native") ||
				  (!d->io && in->is_block && out->cache == LAUNCH_CACHE_NONE)
			  ? LAUNCH_IO_NATIVE
			  : LAUNCH_IO_THREADS;
	if (str_eq(d->errorPolicy, "ignore"))
		out->error_policy = LAUNCH_ERROR_IGNORE;
	else if (str_eq(d->errorPolicy, "report"))
		out->error_policy = LAUNCH_ERROR_REPORT;
	else
		out->error_policy = LAUNCH_ERROR_STOP;
}

static enum rc add_images(const struct vmspec_disk *in, struct launch_disk *out)
{
	char name[VMSPEC_NAME_MAX];
	struct launch_image *im = launch_disk_add_image(out);

	if (!im)
		return RC_NOMEM;
	vmspec_top_name(in->volume, name);
	im->format = in->top_format == IMAGE_QCOW2 ? LAUNCH_QCOW2 : LAUNCH_RAW;
	TRY(api_set_str(&im->fd, name));
	if (!in->has_base)
		return RC_OK;
	im = launch_disk_add_image(out);
	if (!im)
		return RC_NOMEM;
	vmspec_base_name(in->volume, name);
	im->format = in->base_format == IMAGE_QCOW2 ? LAUNCH_QCOW2 : LAUNCH_RAW;
	return api_set_str(&im->fd, name);
}

static const struct vmspec_disk *find_disk(const struct vmspec_env *env, const char *volume)
{
	for (size_t i = 0; i < env->n_disks; i++)
		if (str_eq(env->disks[i].volume, volume))
			return &env->disks[i];
	return NULL;
}

static enum rc add_disk(const Disk *d, const struct vmspec_env *env, struct launch_spec *s,
			struct err *err)
{
	const struct vmspec_disk *in = find_disk(env, d->name);

	if (!in)
		return err_set(err, RC_INVALID, "disk '%s' has no volume that can be attached",
			       d->name);
	struct launch_disk *out = launch_spec_add_disk(s);

	if (!out && s->n_disks < LAUNCH_MAX_DISKS)
		return RC_NOMEM;
	if (!out)
		return err_set(err, RC_TOO_BIG, "the VM has more than %d disks", LAUNCH_MAX_DISKS);
	TRY(set_target(d, out, err));
	set_cache(d, in, out);
	TRY(api_set_str(&out->name, d->name));
	TRY(api_set_str(&out->serial, d->serial));
	out->shareable = API_GET(d, shareable, false);
	out->discard = out->kind != LAUNCH_CDROM && !out->read_only;
	out->boot_order = API_GET(d, bootOrder, 0);
	out->moves = in->moves && !out->read_only &&
		     !out->shareable; /* what nobody writes is made again */
	if (d->blockSize && d->blockSize->custom) {
		out->logical_block_size = API_GET(d->blockSize->custom, logical, 0);
		out->physical_block_size = API_GET(d->blockSize->custom, physical, 0);
	}
	return add_images(in, out);
}

static enum rc set_disks(const VirtualMachineInstance *vmi, const struct vmspec_env *env,
			 struct launch_spec *s, struct err *err)
{
	const Devices *dev = &vmi->spec.domain.devices;
	bool ordered = false;

	for (size_t i = 0; i < dev->n_disks; i++) {
		TRY(add_disk(&dev->disks[i], env, s, err));
		ordered = ordered || dev->disks[i].has_bootOrder;
	}
	for (size_t i = 0; i < dev->n_interfaces; i++)
		ordered = ordered || dev->interfaces[i].has_bootOrder;
	if (!ordered && s->n_disks)
		s->disks[0].boot_order = 1;
	return RC_OK;
}

/* --- network --- */

static enum rc set_nic(const VirtualMachineInstance *vmi, const struct vmspec_env *env,
		       struct launch_spec *s, struct err *err)
{
	const Interface *iface;
	const Network *net;
	char name[VMSPEC_NAME_MAX];

	vmspec_pod_interface(vmi, &iface, &net);
	if (!iface)
		return RC_OK;
	struct launch_nic *n = launch_spec_add_nic(s);

	if (!n)
		return err_set(err, RC_NOMEM, "out of memory");
	if (str_is_empty(iface->model) || str_eq(iface->model, "virtio"))
		n->model = LAUNCH_NIC_VIRTIO;
	else if (str_eq(iface->model, "e1000e"))
		n->model = LAUNCH_NIC_E1000E;
	else if (str_eq(iface->model, "e1000"))
		n->model = LAUNCH_NIC_E1000;
	else if (str_eq(iface->model, "rtl8139"))
		n->model = LAUNCH_NIC_RTL8139;
	else
		return err_set(err, RC_UNSUPPORTED, "interface '%s': model %s is not supported",
			       iface->name, iface->model);
	vmspec_tap_name(net->name, name);
	n->mtu = n->model == LAUNCH_NIC_VIRTIO ? (int64_t)env->mtu : 0;
	n->boot_order = API_GET(iface, bootOrder, 0);
	TRY(api_set_str(&n->name, net->name));
	TRY(api_set_str(&n->fd, name));
	return api_set_str(&n->mac, vmspec_mac(iface, env->mac));
}

/* --- the rest --- */

static enum rc set_firmware(const VirtualMachineInstance *vmi, const struct vmspec_env *env,
			    struct launch_spec *s, struct err *err)
{
	const Firmware *f = vmi->spec.domain.firmware;
	const Chassis *c = vmi->spec.domain.chassis;

	TRY(api_set_str(&s->smbios.uuid, vmspec_uuid(vmi)));
	TRY(api_set_str(&s->smbios.manufacturer, "KubeVirt"));
	TRY(api_set_str(&s->smbios.product, "None"));
	TRY(api_set_str(&s->smbios.family, "KubeVirt"));
	if (c) {
		TRY(api_set_str(&s->smbios.chassis_manufacturer, c->manufacturer));
		TRY(api_set_str(&s->smbios.chassis_version, c->version));
		TRY(api_set_str(&s->smbios.chassis_serial, c->serial));
		TRY(api_set_str(&s->smbios.chassis_asset, c->asset));
		TRY(api_set_str(&s->smbios.chassis_sku, c->sku));
	}
	if (!f)
		return RC_OK;
	TRY(api_set_str(&s->smbios.serial, f->serial));
	if (f->bootloader && f->bootloader->efi)
		return err_set(err, RC_UNSUPPORTED, "firmware.bootloader.efi is not supported yet");
	if (f->bootloader && f->bootloader->bios)
		s->bios_serial = API_GET(f->bootloader->bios, useSerial, false);
	if (!f->kernelBoot)
		return RC_OK;
	if (!f->kernelBoot->container)
		return err_set(err, RC_INVALID, "firmware.kernelBoot has no container");
	s->kernel = mem_alloc(sizeof(*s->kernel));
	if (!s->kernel)
		return RC_NOMEM;
	TRY(api_set_str(&s->kernel->kernel_fd, VMSPEC_KERNEL));
	if (env->has_initrd)
		TRY(api_set_str(&s->kernel->initrd_fd, VMSPEC_INITRD));
	return api_set_str(&s->kernel->args, f->kernelBoot->kernelArgs);
}

static enum rc set_machine(const VirtualMachineInstance *vmi, const struct vmspec_env *env,
			   struct launch_spec *s, struct err *err)
{
	const Machine *m = vmi->status.machine && vmi->status.machine->type
				   ? vmi->status.machine
				   : vmi->spec.domain.machine;
	const char *type = m && !str_is_empty(m->type) ? m->type : "q35";
	const char *full = cpu_machine_resolve(env->probe, type);

	if (!full)
		return err_set(err, RC_UNSUPPORTED,
			       "machine type '%s' is not known to this node's QEMU", type);
	return api_set_str(&s->machine, full);
}

/* A guest that runs already goes on with the devices that it was started with: they are part of its state. */
static bool has_agent_channel(const VirtualMachineInstance *vmi)
{
	const FerryVMIStatus *fs = vmi->status.ferry;

	return fs && fs->cpuModel ? API_GET(fs, guestAgentChannel, false) : true;
}

static void set_devices(const VirtualMachineInstance *vmi, struct launch_spec *s)
{
	const DomainSpec *d = &vmi->spec.domain;
	const Devices *dev = &d->devices;

	s->serial_console = API_GET(dev, autoattachSerialConsole, true);
	s->serial_log = s->serial_console && API_GET(dev, logSerialConsole, true);
	s->rng = dev->rng != NULL;
	s->balloon = API_GET(dev, autoattachMemBalloon, true);
	s->guest_agent = has_agent_channel(vmi);
	s->panic_device = dev->n_panicDevices > 0;
	s->acpi_off =
		d->features && d->features->acpi && !API_GET(d->features->acpi, enabled, true);
	s->reboot_terminates = str_eq(d->rebootPolicy, "Terminate");
	if (d->clock && d->clock->utc)
		s->clock_offset_seconds = API_GET(d->clock->utc, offsetSeconds, 0);
}

/* A guest that runs already goes on with the graphics card that it was started with, or without one: what it has is
 * part of its state.  Before it ran the VMI decides. */
static enum rc set_video(const VirtualMachineInstance *vmi, struct launch_spec *s, struct err *err)
{
	const FerryVMIStatus *fs = vmi->status.ferry;
	const Devices *dev = &vmi->spec.domain.devices;
	const char *model = dev->video ? dev->video->type : NULL;

	if (fs && fs->cpuModel)
		model = str_is_empty(fs->video) ? "none" : fs->video;
	else if (!API_GET(dev, autoattachGraphicsDevice, true))
		model = "none";
	else if (str_is_empty(model))
		model = "vga";
	if (!launch_video_parse(model, &s->video))
		return err_set(err, RC_UNSUPPORTED, "graphics card '%s' is not supported", model);
	return RC_OK;
}

static enum rc set_inputs(const VirtualMachineInstance *vmi, struct launch_spec *s, struct err *err)
{
	const Devices *dev = &vmi->spec.domain.devices;

	if (dev->n_inputs > LAUNCH_MAX_INPUTS)
		return err_set(err, RC_TOO_BIG, "the VM has more than %d inputs",
			       LAUNCH_MAX_INPUTS);
	for (size_t i = 0; i < dev->n_inputs; i++) {
		struct launch_input *in = launch_spec_add_input(s);

		if (!in)
			return RC_NOMEM;
		in->bus = str_eq(dev->inputs[i].bus, "virtio") ? LAUNCH_INPUT_VIRTIO
							       : LAUNCH_INPUT_USB;
	}
	return RC_OK;
}

static enum rc set_jail(const struct vmspec_env *env, struct launch_spec *s)
{
	s->uid = env->uid;
	s->gid = env->uid;
	s->cgroup.memory_max = env->memory_limit;
	s->cgroup.path = mem_printf("ferry.slice/vm-%s.scope", env->pod_uid);
	TRY(s->cgroup.path ? RC_OK : RC_NOMEM);
	return api_set_str(&s->netns_fd, VMSPEC_NETNS);
}

static enum rc build(const VirtualMachineInstance *vmi, const struct vmspec_env *env,
		     struct launch_spec *s, struct err *err)
{
	s->name = mem_printf("%s/%s", vmi->metadata.namespace, vmi->metadata.name);
	TRY(s->name ? RC_OK : RC_NOMEM);
	TRY(api_set_str(&s->vmi_uid, vmi->metadata.uid));
	s->accel = str_eq(env->accel, "kvm") ? LAUNCH_ACCEL_KVM : LAUNCH_ACCEL_TCG;
	s->memory_bytes = vmspec_memory(vmi);
	TRY(set_machine(vmi, env, s, err));
	TRY(set_cpu(vmi, env, s, err));
	TRY(set_firmware(vmi, env, s, err));
	TRY(set_disks(vmi, env, s, err));
	TRY(set_nic(vmi, env, s, err));
	set_devices(vmi, s);
	TRY(set_video(vmi, s, err));
	TRY(set_inputs(vmi, s, err));
	TRY(set_jail(env, s));
	return launch_spec_check(s, err);
}

enum rc vmspec_build(const VirtualMachineInstance *vmi, const struct vmspec_env *env,
		     struct launch_spec **out, struct err *err)
{
	CLEANUP(launch_spec_freep) struct launch_spec *s = launch_spec_new();

	if (!s)
		return err_set(err, RC_NOMEM, "out of memory");
	struct err why = {0};
	enum rc rc = build(vmi, env, s, &why);

	if (rc)
		return why.rc ? err_copy(err, &why) : err_set(err, rc, "out of memory");
	*out = STEAL(s);
	return RC_OK;
}
