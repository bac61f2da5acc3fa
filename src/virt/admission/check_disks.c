#include <ctype.h>
#include <string.h>

#include "base/str.h"
#include "virt/admission/admission_int.h"
#include "virt/migration/host_disks.h"

/* Disks and volumes: rules 23-33 and 36 of KubeVirt's VMI webhook. */

enum { BLOCK_MIN = 512, BLOCK_MAX = 2 * 1024 * 1024, SERIAL_MAX = 256, CLOUD_INIT_MAX = 2048 };

static const Volume *volume_of(const struct check *c, const char *name)
{
	for (size_t i = 0; i < c->spec->n_volumes; i++)
		if (str_eq(c->spec->volumes[i].name, name))
			return &c->spec->volumes[i];
	return NULL;
}

static const char *bus_of(const Disk *d)
{
	return d->disk ? d->disk->bus : d->lun ? d->lun->bus : d->cdrom ? d->cdrom->bus : NULL;
}

static void check_bus(struct check *c, const Disk *d, size_t i)
{
	static const char *const buses[] = {"virtio", "sata", "scsi", "usb", NULL};
	const char *target = d->disk ? "disk" : d->lun ? "lun" : "cdrom";
	const char *bus = bus_of(d);
	const char *path = at(c, "domain.devices.disks[%zu].%s.bus", i, target);

	if (str_is_empty(bus))
		return;
	if (str_eq(bus, "ide"))
		fe_cause(c->fe, INVALID, path, "IDE bus is not supported");
	else if (!is_one_of(bus, buses))
		fe_cause(c->fe, INVALID, path,
			 "%s is set with an unrecognized bus %s, must be one of: [virtio sata scsi "
			 "usb]",
			 at(c, "domain.devices.disks[%zu]", i), bus);
	else if (d->cdrom && str_eq(bus, "virtio"))
		fe_cause(c->fe, INVALID, path, "Bus type %s is invalid for CD-ROM device", bus);
	if (d->disk && str_eq(bus, "sata") && d->disk->readonly)
		fe_cause(c->fe, INVALID, at(c, "domain.devices.disks[%zu].disk.readonly", i),
			 "%s hard-disks do not support read-only.", bus);
	if (d->dedicatedIOThread && !str_eq(bus, "virtio"))
		fe_cause(c->fe, NOT_SUPPORTED, at(c, "domain.devices.disks[%zu]", i),
			 "IOThreads are not supported for disks on a %s bus", bus);
}

/* "dddd:bb:ss.f" or "bb:ss.f" in hexadecimal. */
static bool is_pci_address(const char *s)
{
	static const char full[] = "xxxx:xx:xx.x";
	const char *shape = strlen(s) == strlen(full) ? full : full + 5;

	if (strlen(s) != strlen(shape))
		return false;
	for (; *s; s++, shape++)
		if (*shape == 'x' ? !isxdigit((unsigned char)*s) : *s != *shape)
			return false;
	return true;
}

static void check_pci(struct check *c, const Disk *d, size_t i)
{
	const char *path = at(c, "domain.devices.disks[%zu].disk.pciAddress", i);

	if (!d->disk || str_is_empty(d->disk->pciAddress))
		return;
	if (!str_eq(d->disk->bus, "virtio"))
		fe_cause(c->fe, INVALID, path,
			 "disk %s - setting a PCI address is only possible with bus type virtio.",
			 d->name);
	else if (!is_pci_address(d->disk->pciAddress))
		fe_cause(c->fe, INVALID, path, "disk %s has malformed PCI address (%s).", d->name,
			 d->disk->pciAddress);
	for (size_t k = 0; k < i; k++) {
		const Disk *other = &c->spec->domain.devices.disks[k];

		if (other->disk && str_eq(other->disk->pciAddress, d->disk->pciAddress))
			fe_cause(c->fe, DUPLICATE, path,
				 "disk %s has the PCI address of disk %s (%s).", d->name,
				 other->name, d->disk->pciAddress);
	}
}

static void check_serial(struct check *c, const Disk *d, size_t i)
{
	static const char ok[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.+-";
	const char *path = at(c, "domain.devices.disks[%zu].serial", i);

	if (!d->serial)
		return;
	if (strlen(d->serial) > SERIAL_MAX)
		fe_cause(c->fe, INVALID, path,
			 "%s must be less than or equal to %d in length, if specified",
			 at(c, "domain.devices.disks[%zu]", i), SERIAL_MAX);
	if (strspn(d->serial, ok) != strlen(d->serial))
		fe_cause(c->fe, INVALID, path,
			 "%s must be made up of the following characters [A-Za-z0-9_.+-], if "
			 "specified",
			 at(c, "domain.devices.disks[%zu]", i));
}

static void check_modes(struct check *c, const Disk *d, size_t i)
{
	static const char *const caches[] = {"none", "writethrough", "writeback", NULL};
	static const char *const ios[] = {"native", "threads", NULL};
	static const char *const policies[] = {"stop", "report", "ignore", NULL};

	if (!str_is_empty(d->cache) && !is_one_of(d->cache, caches))
		fe_cause(c->fe, INVALID, at(c, "domain.devices.disks[%zu].cache", i),
			 "%s has invalid value %s", at(c, "domain.devices.disks[%zu].cache", i),
			 d->cache);
	if (!str_is_empty(d->io) && !is_one_of(d->io, ios))
		fe_cause(c->fe, INVALID, at(c, "domain.devices.disks[%zu].io", i),
			 "Disk IO mode for %s is not supported. Supported modes are: native, "
			 "threads.",
			 at(c, "domain.devices.disks[%zu].io", i));
	if (!str_is_empty(d->errorPolicy) && !is_one_of(d->errorPolicy, policies))
		fe_cause(c->fe, INVALID, at(c, "domain.devices.disks[%zu].errorPolicy", i),
			 "%s has invalid value \"%s\"",
			 at(c, "domain.devices.disks[%zu].errorPolicy", i), d->errorPolicy);
	/* QEMU: native I/O bypasses the page cache, writeback needs it. */
	if (str_eq(d->io, "native") && !str_is_empty(d->cache) && !str_eq(d->cache, "none"))
		fe_cause(c->fe, INVALID, at(c, "domain.devices.disks[%zu].io", i),
			 "%s native needs cache none", at(c, "domain.devices.disks[%zu].io", i));
}

static void check_size(struct check *c, int64_t size, const char *path)
{
	if (size < BLOCK_MIN)
		fe_cause(c->fe, INVALID, path,
			 "Provided size of %lld is less than the supported minimum size of %d",
			 (long long)size, BLOCK_MIN);
	else if (size > BLOCK_MAX)
		fe_cause(c->fe, INVALID, path,
			 "Provided size of %lld is greater than the supported maximum size of %d",
			 (long long)size, BLOCK_MAX);
	else if (size & (size - 1))
		fe_cause(c->fe, INVALID, path, "Provided size of %lld is not a power of 2",
			 (long long)size);
}

static void check_block_size(struct check *c, const Disk *d, size_t i)
{
	const BlockSize *b = d->blockSize;
	const CustomBlockSize *k = b ? b->custom : NULL;
	const char *path = at(c, "domain.devices.disks[%zu].blockSize", i);

	if (!b)
		return;
	if (k && b->matchVolume && API_GET(b->matchVolume, enabled, true))
		fe_cause(c->fe, INVALID, path,
			 "Block size matching can't be enabled together with a custom value");
	if (!k)
		return;
	check_size(c, k->logical, at(c, "domain.devices.disks[%zu].blockSize.custom.logical", i));
	check_size(c, k->physical, at(c, "domain.devices.disks[%zu].blockSize.custom.physical", i));
	if (k->logical > k->physical)
		fe_cause(
			c->fe, INVALID,
			at(c, "domain.devices.disks[%zu].blockSize.custom.logical", i),
			"Logical size %lld must be the same or less than the physical size of %lld",
			(long long)k->logical, (long long)k->physical);
	if (str_eq(bus_of(d), "sata") && k->logical != BLOCK_MIN)
		fe_cause(c->fe, INVALID,
			 at(c, "domain.devices.disks[%zu].blockSize.custom.logical", i),
			 "Logical size %lld must be 512 for SATA devices", (long long)k->logical);
	if (k->has_discardGranularity && k->logical > 0 && k->discardGranularity % k->logical)
		fe_cause(c->fe, INVALID,
			 at(c, "domain.devices.disks[%zu].blockSize.custom.discardGranularity", i),
			 "Discard granularity %lld must be a multiple of the logical size %lld",
			 (long long)k->discardGranularity, (long long)k->logical);
}

static void check_boot_order(struct check *c, const Disk *d, size_t i)
{
	const char *path = at(c, "domain.devices.disks[%zu].bootOrder", i);

	if (!d->has_bootOrder)
		return;
	if (d->bootOrder < 1) {
		fe_cause(c->fe, INVALID, path, "%s must have a boot order > 0, if supplied",
			 at(c, "domain.devices.disks[%zu]", i));
		return;
	}
	for (size_t k = 0; k < i; k++)
		if (c->spec->domain.devices.disks[k].has_bootOrder &&
		    c->spec->domain.devices.disks[k].bootOrder == d->bootOrder)
			fe_cause(c->fe, INVALID, path,
				 "Boot order for %s already set for a different device.", path);
}

static void check_target(struct check *c, const Disk *d, size_t i)
{
	const Volume *v = volume_of(c, d->name);
	const char *path = at(c, "domain.devices.disks[%zu]", i);
	bool may_be_empty = d->cdrom && adm_gate(c->cluster, "DeclarativeHotplugVolumes");

	if (!!d->disk + !!d->lun + !!d->cdrom > 1)
		fe_cause(c->fe, INVALID, path, "%s can only have a single target type defined",
			 path);
	if (!v && d->cdrom && !may_be_empty)
		fe_cause(c->fe, INVALID, at(c, "domain.devices.disks[%zu].name", i),
			 "DeclarativeHotplugVolumes feature gate not enabled, cannot define an "
			 "empty CD-ROM disk");
	else if (!v)
		fe_cause(c->fe, INVALID, at(c, "domain.devices.disks[%zu].name", i),
			 d->cdrom ? "%s.Name '%s' not found: "
				    "an empty CD-ROM disk is not supported by Ferry yet"
				  : "%s.Name '%s' not found.",
			 path, d->name);
	else if (d->lun && !v->dataVolume && !v->persistentVolumeClaim)
		fe_cause(c->fe, INVALID, at(c, "domain.devices.disks[%zu].lun", i),
			 "%s can only be mapped to a DataVolume or PersistentVolumeClaim volume.",
			 at(c, "domain.devices.disks[%zu].lun", i));
}

void check_disks(struct check *c)
{
	const Devices *devs = &c->spec->domain.devices;

	for (size_t i = 0; i < devs->n_disks; i++) {
		const Disk *d = &devs->disks[i];

		for (size_t k = 0; k < i; k++)
			if (str_eq(devs->disks[k].name, d->name))
				fe_cause(c->fe, DUPLICATE,
					 at(c, "domain.devices.disks[%zu].name", i),
					 "%s and %s must not have the same Name.",
					 at(c, "domain.devices.disks[%zu]", k),
					 at(c, "domain.devices.disks[%zu]", i));
		check_target(c, d, i);
		check_bus(c, d, i);
		check_pci(c, d, i);
		check_boot_order(c, d, i);
		check_serial(c, d, i);
		check_modes(c, d, i);
		check_block_size(c, d, i);
	}
}

/* Volumes */

static bool is_base64(const char *s)
{
	static const char ok[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	size_t n = strlen(s), body = strspn(s, ok);

	return n % 4 == 0 && n - body <= 2 && strspn(s + body, "=") == n - body;
}

/* One of the two halves (user data, network data) of a cloud-init volume; true when it is there. */
static bool check_seed(struct check *c, const char *path, const char *half, const char *field,
		       const char *plain, const char *base64, const void *ref,
		       const char *secret_hint)
{
	int n = !str_is_empty(plain) + !str_is_empty(base64) + !!ref;
	size_t size = plain ? strlen(plain) : 0;

	if (n > 1)
		fe_cause(c->fe, INVALID, path, "%s must have only one %sdatasource set.", path,
			 half);
	if (!str_is_empty(base64)) {
		if (!is_base64(base64))
			fe_cause(c->fe, INVALID, path, "%s.%sBase64 is not a valid base64 value.",
				 path, field);
		size = strlen(base64) / 4 * 3;
	}
	if (size > CLOUD_INIT_MAX)
		fe_cause(c->fe, INVALID, path,
			 "%s %sdata exceeds %d byte limit. Should use %s for larger data.", path,
			 half, CLOUD_INIT_MAX, secret_hint);
	return n > 0;
}

static void check_no_cloud(struct check *c, const CloudInitNoCloudSource *s, size_t i)
{
	const char *path = at(c, "volumes[%zu].cloudInitNoCloud", i);
	bool has_user = check_seed(c, path, "user", "userData", s->userData, s->userDataBase64,
				   s->secretRef, "UserDataSecretRef");
	bool has_network =
		check_seed(c, path, "network", "networkData", s->networkData, s->networkDataBase64,
			   s->networkDataSecretRef, "NetworkDataSecretRef");

	if (!has_user && !has_network)
		fe_cause(c->fe, INVALID, path,
			 "%s must have at least one userdatasource or one networkdatasource set.",
			 path);
}

/* Absolute, without "..", not the root itself. */
static void check_path(struct check *c, const char *file_path, const char *path)
{
	if (str_is_empty(file_path))
		return;
	if (str_eq(file_path, "/"))
		fe_cause(c->fe, INVALID, path, "%s must not point to root", path);
	else if (!str_is_plain_path(file_path))
		fe_cause(c->fe, INVALID, path,
			 "%s must be an absolute path to a file without relative components", path);
}

static void check_host_folder(struct check *c, const char *file_path, const char *path)
{
	const struct json *spec = hook_ferry_config(c->cluster->env);
	void *typed = NULL;

	/* What is stored can be read; without it nothing is allowed. */
	if (spec && api_decode(&api_type_FerryConfigSpec, spec, &typed, NULL))
		typed = NULL;
	if (!host_disk_folder(typed, file_path))
		fe_cause(c->fe, NOT_SUPPORTED, path,
			 "%s '%s': not below a folder that " HOST_DISKS_SETTING " allows", path,
			 file_path);
	api_free(&api_type_FerryConfigSpec, typed);
}

/* What KubeVirt asks, and that an administrator has allowed the folder. */
static void check_host_disk(struct check *c, const HostDisk *h, size_t i)
{
	const char *path = at(c, "volumes[%zu].hostDisk.path", i);
	const char *type = at(c, "volumes[%zu].hostDisk.type", i);
	bool may_make = str_eq(h->type, HostDiskType_DiskOrCreate);

	if (!adm_gate(c->cluster, "HostDisk"))
		fe_cause(c->fe, INVALID, at(c, "volumes[%zu].hostDisk", i),
			 "HostDisk feature gate is not enabled");
	if (!may_make && !str_eq(h->type, HostDiskType_Disk))
		fe_cause(c->fe, INVALID, type,
			 "%s has invalid value '%s', allowed are 'Disk' or 'DiskOrCreate'", type,
			 h->type ? h->type : "");
	if (str_is_empty(h->path))
		fe_cause(c->fe, REQUIRED, path, "%s is required for hostDisk volume", path);
	check_path(c, h->path, path);
	if (h->capacity && !may_make)
		fe_cause(c->fe, INVALID, at(c, "volumes[%zu].hostDisk.capacity", i),
			 "%s is allowed to pass only with %s equal to 'DiskOrCreate'",
			 at(c, "volumes[%zu].hostDisk.capacity", i), type);
	if (h->capacity && api_quantity_bytes(h->capacity, 0) < (int64_t)MIB)
		fe_cause(c->fe, INVALID, at(c, "volumes[%zu].hostDisk.capacity", i),
			 "%s '%s': a disk has at least 1Mi",
			 at(c, "volumes[%zu].hostDisk.capacity", i), h->capacity);
	if (c->cluster->env && str_is_plain_path(h->path))
		check_host_folder(c, h->path, path);
}

static int n_sources(const Volume *v)
{
	return !!v->hostDisk + !!v->persistentVolumeClaim + !!v->cloudInitNoCloud +
	       !!v->cloudInitConfigDrive + !!v->sysprep + !!v->containerDisk + !!v->ephemeral +
	       !!v->emptyDisk + !!v->dataVolume + !!v->configMap + !!v->secret + !!v->downwardAPI +
	       !!v->serviceAccount + !!v->downwardMetrics + !!v->memoryDump + !!v->containerPath;
}

static bool is_used(const struct check *c, const Volume *v)
{
	const Devices *devs = &c->spec->domain.devices;

	if (v->memoryDump)
		return true;
	for (size_t i = 0; i < devs->n_disks; i++)
		if (str_eq(devs->disks[i].name, v->name))
			return true;
	for (size_t i = 0; i < devs->n_filesystems; i++)
		if (str_eq(devs->filesystems[i].name, v->name))
			return true;
	return false;
}

static void check_volume(struct check *c, const Volume *v, size_t i)
{
	/* It is also the name of a volume of the launcher's pod, and of a device of QEMU. */
	if (v->name && !str_is_dns_label(v->name))
		fe_cause(
			c->fe, INVALID, at(c, "volumes[%zu].name", i),
			"%s does not conform to the kubernetes DNS_LABEL rules : at most 63 of a-z, "
			"0-9 and '-', a letter or digit first and last",
			at(c, "volumes[%zu].name", i));
	if (n_sources(v) != 1)
		fe_cause(c->fe, INVALID, at(c, "volumes[%zu]", i),
			 "%s must have exactly one source type set", at(c, "volumes[%zu]", i));
	if (v->persistentVolumeClaim && !str_is_empty(v->persistentVolumeClaim->claimName) &&
	    !str_is_dns_subdomain(v->persistentVolumeClaim->claimName))
		fe_cause(c->fe, INVALID, at(c, "volumes[%zu].persistentVolumeClaim.claimName", i),
			 "%s '%s': no claim can have such a name",
			 at(c, "volumes[%zu].persistentVolumeClaim.claimName", i),
			 v->persistentVolumeClaim->claimName);
	if (v->dataVolume && str_is_empty(v->dataVolume->name))
		fe_cause(c->fe, REQUIRED, at(c, "volumes[%zu].name", i),
			 "DataVolume 'name' must be set");
	if (!is_used(c, v))
		fe_cause(c->fe, INVALID, at(c, "domain.volumes[%zu].name", i), "%s '%s' not found.",
			 at(c, "domain.volumes[%zu].name", i), v->name);
	if (v->cloudInitNoCloud)
		check_no_cloud(c, v->cloudInitNoCloud, i);
	if (v->containerDisk)
		check_path(c, v->containerDisk->path, at(c, "volumes[%zu].containerDisk.path", i));
	if (v->hostDisk)
		check_host_disk(c, v->hostDisk, i);
}

void check_volumes(struct check *c)
{
	const VirtualMachineInstanceSpec *s = c->spec;

	for (size_t i = 0; i < s->n_volumes; i++) {
		for (size_t k = 0; k < i; k++)
			if (str_eq(s->volumes[k].name, s->volumes[i].name))
				fe_cause(c->fe, DUPLICATE, at(c, "volumes[%zu].name", i),
					 "%s and %s must not have the same Name.",
					 at(c, "volumes[%zu]", k), at(c, "volumes[%zu]", i));
		check_volume(c, &s->volumes[i], i);
	}
	if (s->domain.firmware && s->domain.firmware->kernelBoot &&
	    s->domain.firmware->kernelBoot->container) {
		const KernelBootContainer *k = s->domain.firmware->kernelBoot->container;

		check_path(c, k->kernelPath,
			   at(c, "domain.firmware.kernelBoot.container.kernelPath"));
		check_path(c, k->initrdPath,
			   at(c, "domain.firmware.kernelBoot.container.initrdPath"));
	}
}
