#include <stdio.h>
#include <string.h>

#include "api/map.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "virt/admission/admission_int.h"

/* The defaults of KubeVirt's VMI webhook.  Each function writes one subject and leaves what is set.
 * Not written: cpu.maxSockets and memory.maxGuest (CPU and memory hot-plug do not exist in Ferry yet), a
 * CD-ROM's tray (always closed, and a user may not set it yet), status.runtimeUser (the VM's own uid, from
 * its controller),
 * terminationGracePeriodSeconds (KubeVirt does not either; everybody treats absence as 30). */

static enum rc set_default(char **field, const char *value)
{
	return *field && **field ? RC_OK : api_set_str(field, value);
}

static void set_bool(bool *has, bool *field, bool value)
{
	if (*has)
		return;
	*has = true;
	*field = value;
}

static enum rc default_machine(DomainSpec *d, const struct adm_cluster *c)
{
	const ArchConfiguration *arch = c->config->architectureConfiguration;
	const char *type = arch && arch->amd64 ? arch->amd64->machineType : NULL;
	Machine *m = api_ensure(&api_type_Machine, &d->machine);

	if (str_is_empty(type))
		type = c->config->machineType;
	return m ? set_default(&m->type, str_is_empty(type) ? "q35" : type) : RC_NOMEM;
}

/* Whole CPUs of a resource list, rounded up; 0: absent. */
static int64_t cpus_of(const struct api_map *list)
{
	int64_t milli = api_quantity_to_milli(api_map_get(list, "cpu"), 0);

	return milli > 0 ? (milli + 999) / 1000 : 0;
}

static enum rc default_cpu(DomainSpec *d, const struct adm_cluster *c)
{
	const char *model = c->config->cpuModel;
	CPU *cpu = api_ensure(&api_type_CPU, &d->cpu);

	if (!cpu)
		return RC_NOMEM;
	if (!cpu->cores && !cpu->sockets && !cpu->threads) {
		int64_t n = d->resources ? cpus_of(&d->resources->limits) : 0;

		if (!n && d->resources)
			n = cpus_of(&d->resources->requests);
		API_SET(cpu, sockets, n ? n : 1);
		API_SET(cpu, cores, 1);
		API_SET(cpu, threads, 1);
	}
	return set_default(&cpu->model, str_is_empty(model) ? "host-model" : model);
}

static enum rc default_memory(DomainSpec *d)
{
	const char *guest = d->resources ? api_map_get(&d->resources->requests, "memory") : NULL;

	if (!guest && d->resources)
		guest = api_map_get(&d->resources->limits, "memory");
	if (!guest && d->memory && d->memory->hugepages)
		guest = d->memory->hugepages->pageSize;
	if (!guest)
		return RC_OK; /* a fault, reported by the rules */
	Memory *m = api_ensure(&api_type_Memory, &d->memory);

	return m ? set_default(&m->guest, guest) : RC_NOMEM;
}

static enum rc default_requests(DomainSpec *d, const struct adm_cluster *c)
{
	const char *config = c->config->cpuRequest;
	const char *limit = d->resources ? api_map_get(&d->resources->limits, "cpu") : NULL;

	if (d->resources && api_map_get(&d->resources->requests, "cpu"))
		return RC_OK;
	if (!limit && (str_is_empty(config) || str_eq(config, "100m")))
		return RC_OK;
	ResourceRequirements *r = api_ensure(&api_type_ResourceRequirements, &d->resources);

	return r ? api_map_set(&r->requests, "cpu", limit ? limit : config) : RC_NOMEM;
}

static enum rc default_networks(VirtualMachineInstanceSpec *s, const struct adm_cluster *c)
{
	Devices *devs = &s->domain.devices;
	const char *binding =
		c->config->network ? c->config->network->defaultNetworkInterface : NULL;
	Network *n;
	Interface *i;
	bool wants_masquerade = str_eq(binding, "masquerade");

	if (s->n_networks || devs->n_interfaces || !API_GET(devs, autoattachPodInterface, true))
		return RC_OK;
	n = api_append(&s->networks, &s->n_networks, sizeof(*n));
	i = api_append(&devs->interfaces, &devs->n_interfaces, sizeof(*i));
	if (!n || !i || api_set_str(&n->name, "default") || api_set_str(&i->name, "default") ||
	    !api_ensure(&api_type_PodNetwork, &n->pod))
		return RC_NOMEM;
	return (wants_masquerade ? api_ensure(&api_type_InterfaceMasquerade, &i->masquerade)
				 : api_ensure(&api_type_InterfaceBridge, &i->bridge))
		       ? RC_OK
		       : RC_NOMEM;
}

static bool has_disk(const Devices *devs, const char *name)
{
	for (size_t i = 0; i < devs->n_disks; i++)
		if (str_eq(devs->disks[i].name, name))
			return true;
	for (size_t i = 0; i < devs->n_filesystems; i++)
		if (str_eq(devs->filesystems[i].name, name))
			return true;
	return false;
}

/* A volume that nothing refers to becomes a disk. */
static enum rc default_volume_disks(VirtualMachineInstanceSpec *s)
{
	Devices *devs = &s->domain.devices;

	for (size_t i = 0; i < s->n_volumes; i++) {
		Disk *d;

		if (s->volumes[i].memoryDump || has_disk(devs, s->volumes[i].name))
			continue;
		d = api_append(&devs->disks, &devs->n_disks, sizeof(*d));
		if (!d || api_set_str(&d->name, s->volumes[i].name))
			return RC_NOMEM;
	}
	return RC_OK;
}

static enum rc default_disk(Disk *d)
{
	if (!d->disk && !d->lun && !d->cdrom && !api_ensure(&api_type_DiskTarget, &d->disk))
		return RC_NOMEM;
	if (d->disk)
		return set_default(&d->disk->bus, "sata");
	if (d->lun)
		return set_default(&d->lun->bus, "sata");
	set_bool(&d->cdrom->has_readonly, &d->cdrom->readonly, true);
	return set_default(&d->cdrom->bus, "sata");
}

/* Always for ":latest" and for no tag at all; a digest pins the image. */
static const char *pull_policy_of(const char *image)
{
	const char *slash = strrchr(image, '/');
	const char *tag = strrchr(slash ? slash : image, ':');

	if (strchr(image, '@'))
		return "IfNotPresent";
	return !tag || str_eq(tag, ":latest") ? "Always" : "IfNotPresent";
}

static enum rc default_images(VirtualMachineInstanceSpec *s)
{
	enum rc rc = RC_OK;

	for (size_t i = 0; i < s->n_volumes && !rc; i++) {
		ContainerDiskSource *cd = s->volumes[i].containerDisk;

		if (cd && cd->image)
			rc = set_default(&cd->imagePullPolicy, pull_policy_of(cd->image));
	}
	if (!rc && s->domain.firmware && s->domain.firmware->kernelBoot) {
		KernelBootContainer *k = s->domain.firmware->kernelBoot->container;

		if (k && k->image)
			rc = set_default(&k->imagePullPolicy, pull_policy_of(k->image));
	}
	return rc;
}

static enum rc default_firmware(DomainSpec *d)
{
	Firmware *f = api_ensure(&api_type_Firmware, &d->firmware);
	char uuid[37];

	if (!f)
		return RC_NOMEM;
	if (!str_is_empty(f->uuid))
		return RC_OK;
	rand_uuid(uuid);
	return api_set_str(&f->uuid, uuid);
}

static enum rc default_features(DomainSpec *d)
{
	Features *f = api_ensure(&api_type_Features, &d->features);
	FeatureState *acpi = f ? api_ensure(&api_type_FeatureState, &f->acpi) : NULL;

	if (!acpi)
		return RC_NOMEM;
	set_bool(&acpi->has_enabled, &acpi->enabled, true);
	if (f->apic)
		set_bool(&f->apic->has_enabled, &f->apic->enabled, true);
	if (f->smm)
		set_bool(&f->smm->has_enabled, &f->smm->enabled, true);
	return RC_OK;
}

static void default_timers(DomainSpec *d)
{
	Timer *t = d->clock ? d->clock->timer : NULL;

	if (!t)
		return;
	if (t->hpet)
		set_bool(&t->hpet->has_present, &t->hpet->present, true);
	if (t->kvm)
		set_bool(&t->kvm->has_present, &t->kvm->present, true);
	if (t->pit)
		set_bool(&t->pit->has_present, &t->pit->present, true);
	if (t->rtc)
		set_bool(&t->rtc->has_present, &t->rtc->present, true);
	if (t->hyperv)
		set_bool(&t->hyperv->has_present, &t->hyperv->present, true);
}

/* KubeVirt's VM controller does this; here a VMI of its own has it, too. */
static enum rc default_input(Devices *devs)
{
	Input *in;

	if (!API_GET(devs, autoattachInputDevice, false) || devs->n_inputs)
		return RC_OK;
	in = api_append(&devs->inputs, &devs->n_inputs, sizeof(*in));
	return in ? api_set_str(&in->name, "default-0") : RC_NOMEM;
}

static enum rc default_devices(Devices *devs)
{
	enum rc rc = RC_OK;

	for (size_t i = 0; i < devs->n_disks && !rc; i++)
		rc = default_disk(&devs->disks[i]);
	rc = rc ? rc : default_input(devs);
	for (size_t i = 0; i < devs->n_inputs && !rc; i++) {
		rc = set_default(&devs->inputs[i].bus, "usb");
		if (!rc)
			rc = set_default(&devs->inputs[i].type, "tablet");
	}
	if (!rc && devs->watchdog && !devs->watchdog->diag288) {
		I6300ESBWatchdog *w =
			api_ensure(&api_type_I6300ESBWatchdog, &devs->watchdog->i6300esb);

		rc = w ? set_default(&w->action, "reset") : RC_NOMEM;
	}
	return rc;
}

static void default_int(bool *has, int64_t *field, int64_t value)
{
	if (*has && *field > 0)
		return;
	*has = true;
	*field = value;
}

static void default_probe(Probe *p)
{
	if (!p)
		return;
	default_int(&p->has_timeoutSeconds, &p->timeoutSeconds, 1);
	default_int(&p->has_periodSeconds, &p->periodSeconds, 10);
	default_int(&p->has_successThreshold, &p->successThreshold, 1);
	default_int(&p->has_failureThreshold, &p->failureThreshold, 3);
}

enum rc adm_vmi_defaults(VirtualMachineInstance *vmi, const struct adm_cluster *c, struct err *err)
{
	VirtualMachineInstanceSpec *s = &vmi->spec;
	const char *evict = c->config->evictionStrategy;
	enum rc rc = set_default(&s->architecture, "amd64");

	rc = rc ? rc : default_machine(&s->domain, c);
	rc = rc ? rc : default_cpu(&s->domain, c);
	rc = rc ? rc : default_memory(&s->domain);
	rc = rc ? rc : default_requests(&s->domain, c);
	rc = rc ? rc : set_default(&s->evictionStrategy, str_is_empty(evict) ? "None" : evict);
	rc = rc ? rc : default_networks(s, c);
	rc = rc ? rc : default_volume_disks(s);
	rc = rc ? rc : default_devices(&s->domain.devices);
	rc = rc ? rc : default_images(s);
	rc = rc ? rc : default_firmware(&s->domain);
	rc = rc ? rc : default_features(&s->domain);
	if (rc)
		return err_set(err, RC_NOMEM, "cannot allocate the defaults");
	default_timers(&s->domain);
	default_probe(s->livenessProbe);
	default_probe(s->readinessProbe);
	return RC_OK;
}
