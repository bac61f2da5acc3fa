#include <inttypes.h>
#include <string.h>
#include <stdio.h>

#include "base/str.h"
#include "virt/launcher/launch_spec.h"

/* What may stand in a spec.  The command line is built from JSON wherever QEMU takes JSON, and commas are
 * doubled where it does not; these checks are the second wall, and give the member's path. */

static enum rc bad(struct err *err, const char *path, const char *what)
{
	return err_set(err, RC_INVALID, "%s: %s", path, what);
}

/* No control characters, at most max bytes.  Absent is fine. */
static enum rc check_text(const char *s, const char *path, size_t max, struct err *err)
{
	if (!s)
		return RC_OK;
	if (strlen(s) > max)
		return err_set(err, RC_INVALID, "%s: longer than %zu bytes", path, max);
	for (; *s; s++)
		if ((unsigned char)*s < 0x20 || *s == 0x7f)
			return bad(err, path, "has a control character");
	return RC_OK;
}

/* Letters, digits and a few marks: what may be the name of a CPU, a machine, a feature, a descriptor. */
static enum rc check_word(const char *s, const char *path, const char *marks, size_t max,
			  struct err *err)
{
	if (str_is_empty(s))
		return bad(err, path, "is required");
	if (strlen(s) > max)
		return err_set(err, RC_INVALID, "%s: longer than %zu bytes", path, max);
	for (; *s; s++) {
		bool alnum = (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') ||
			     (*s >= '0' && *s <= '9');

		if (!alnum && !strchr(marks, *s))
			return bad(err, path, "has a character that is not allowed here");
	}
	return RC_OK;
}

static enum rc check_range(int64_t v, int64_t min, int64_t max, const char *path, struct err *err)
{
	if (v < min || v > max)
		return err_set(err, RC_INVALID, "%s: %" PRId64 " is not in %" PRId64 "..%" PRId64,
			       path, v, min, max);
	return RC_OK;
}

static enum rc check_mac(const char *mac, const char *path, struct err *err)
{
	unsigned b[6];
	int end = 0;

	if (!mac || strlen(mac) != 17 ||
	    sscanf(mac, "%2x:%2x:%2x:%2x:%2x:%2x%n", &b[0], &b[1], &b[2], &b[3], &b[4], &b[5],
		   &end) != 6 ||
	    end != 17 || strspn(mac, "0123456789abcdefABCDEF:") != 17)
		return bad(err, path, "not a MAC address");
	if (b[0] & 1)
		return bad(err, path, "a multicast MAC address");
	if (!(b[0] | b[1] | b[2] | b[3] | b[4] | b[5]))
		return bad(err, path, "the MAC address is all zero");
	return RC_OK;
}

static enum rc check_uuid(const char *s, const char *path, struct err *err)
{
	bool fine = s && strlen(s) == 36;

	for (size_t i = 0; fine && i < 36; i++)
		fine = (i == 8 || i == 13 || i == 18 || i == 23)
			       ? s[i] == '-'
			       : strchr("0123456789abcdefABCDEF", s[i]) != NULL;
	return fine ? RC_OK : bad(err, path, "not a UUID");
}

static bool is_block_size(int64_t v)
{
	return v == 0 || (v >= 512 && v <= 2 * (int64_t)MIB && (v & (v - 1)) == 0);
}

static enum rc check_disk_place(const struct launch_disk *d, const char *path, struct err *err)
{
	if (d->kind == LAUNCH_LUN && d->bus != LAUNCH_BUS_SCSI)
		return err_set(err, RC_UNSUPPORTED, "%s: a lun needs the bus scsi", path);
	if (d->kind == LAUNCH_LUN && (d->n_images != 1 || d->images[0].format != LAUNCH_RAW))
		return err_set(err, RC_UNSUPPORTED, "%s: a lun is one raw block device", path);
	if (d->kind == LAUNCH_CDROM && d->bus == LAUNCH_BUS_VIRTIO)
		return err_set(err, RC_UNSUPPORTED, "%s: there is no cdrom on the bus virtio",
			       path);
	if (d->kind == LAUNCH_CDROM && !d->read_only)
		return bad(err, path, "a cdrom must be read-only");
	return RC_OK;
}

static enum rc check_disk_modes(const struct launch_disk *d, const char *path, struct err *err)
{
	bool direct = d->cache == LAUNCH_CACHE_NONE;
	enum rc rc = check_disk_place(d, path, err);

	if (rc)
		return rc;
	if (d->shareable && !direct)
		return bad(err, path, "shareable needs cache none");
	if (d->shareable && d->images[0].format != LAUNCH_RAW)
		return bad(err, path, "shareable needs a raw image");
	if (d->io == LAUNCH_IO_NATIVE && !direct)
		return bad(err, path, "io native needs cache none");
	if (d->moves && (d->read_only || d->shareable))
		return bad(err, path, "a disk that moves is neither read-only nor shareable");
	if (!is_block_size(d->logical_block_size) || !is_block_size(d->physical_block_size))
		return bad(err, path, "block sizes are powers of two from 512 to 2 MiB");
	if (d->logical_block_size > d->physical_block_size && d->physical_block_size)
		return bad(err, path, "the logical block size exceeds the physical one");
	return RC_OK;
}

static enum rc check_disk(const struct launch_spec *s, size_t i, struct err *err)
{
	const struct launch_disk *d = &s->disks[i];
	char path[64];
	enum rc rc;

	snprintf(path, sizeof(path), "disks[%zu].name", i);
	rc = check_word(d->name, path, "-._", 253, err);
	if (rc)
		return rc;
	for (size_t k = 0; k < i; k++)
		if (str_eq(d->name, s->disks[k].name))
			return bad(err, path, "the name is taken by another disk");
	snprintf(path, sizeof(path), "disks[%zu].serial", i);
	rc = check_text(d->serial, path, 256, err);
	if (rc)
		return rc;
	snprintf(path, sizeof(path), "disks[%zu].bootOrder", i);
	rc = check_range(d->boot_order, 0, 255, path, err);
	if (rc)
		return rc;
	snprintf(path, sizeof(path), "disks[%zu].images", i);
	if (d->n_images == 0 || d->n_images > LAUNCH_MAX_CHAIN)
		return bad(err, path, "one image at least");
	for (size_t k = 0; k < d->n_images; k++) {
		rc = check_word(d->images[k].fd, path, "-._:/", 300, err);
		if (rc)
			return rc;
		if (k + 1 < d->n_images && d->images[k].format != LAUNCH_QCOW2)
			return bad(err, path, "only a qcow2 image can have a base");
	}
	snprintf(path, sizeof(path), "disks[%zu]", i);
	return check_disk_modes(d, path, err);
}

static enum rc check_nic(const struct launch_spec *s, size_t i, struct err *err)
{
	const struct launch_nic *n = &s->nics[i];
	char path[64];
	enum rc rc;

	snprintf(path, sizeof(path), "nics[%zu].name", i);
	rc = check_word(n->name, path, "-._", 253, err);
	for (size_t k = 0; !rc && k < i; k++)
		if (str_eq(n->name, s->nics[k].name))
			rc = bad(err, path, "the name is taken by another interface");
	snprintf(path, sizeof(path), "nics[%zu].mac", i);
	if (!rc)
		rc = check_mac(n->mac, path, err);
	for (size_t k = 0; !rc && k < i; k++)
		if (strcasecmp(n->mac, s->nics[k].mac) == 0)
			rc = bad(err, path, "the address is taken by another interface");
	snprintf(path, sizeof(path), "nics[%zu].fd", i);
	if (!rc)
		rc = check_word(n->fd, path, "-._:/", 300, err);
	snprintf(path, sizeof(path), "nics[%zu].mtu", i);
	if (!rc && n->mtu)
		rc = check_range(n->mtu, 68, 65535, path, err);
	if (!rc && n->boot_order)
		rc = err_set(err, RC_UNSUPPORTED,
			     "nics[%zu].bootOrder: booting from the network is not supported yet",
			     i);
	return rc;
}

static enum rc check_boot_orders(const struct launch_spec *s, struct err *err)
{
	bool seen[256] = {false};

	for (size_t i = 0; i < s->n_disks; i++) {
		int64_t o = s->disks[i].boot_order;

		if (o && seen[o])
			return err_set(err, RC_INVALID, "bootOrder: %" PRId64 " is given twice", o);
		seen[o] = true;
	}
	return RC_OK;
}

static enum rc check_cpu(const struct launch_spec *s, struct err *err)
{
	enum rc rc = check_word(s->cpu_model, "cpuModel", "-._", 64, err);

	if (!rc)
		rc = check_range(s->sockets, 1, 4096, "sockets", err);
	if (!rc)
		rc = check_range(s->cores, 1, 4096, "cores", err);
	if (!rc)
		rc = check_range(s->threads, 1, 64, "threads", err);
	if (!rc)
		rc = check_range(s->sockets * s->cores * s->threads, 1, 4096, "vCPUs", err);
	if (!rc && s->sockets * s->cores * s->threads > 255)
		rc = err_set(err, RC_UNSUPPORTED,
			     "more than 255 vCPUs need an interrupt remapper, which Ferry "
			     "does not set up yet");
	for (size_t i = 0; !rc && i < s->n_features; i++) {
		char path[64];

		snprintf(path, sizeof(path), "features[%zu].name", i);
		rc = check_word(s->features[i].name, path, "-._", 64, err);
	}
	return rc;
}

static enum rc check_smbios(const struct launch_smbios *m, struct err *err)
{
	const struct {
		const char *value, *path;
	} texts[] = {
		{m->manufacturer, "smbios.manufacturer"},
		{m->product, "smbios.product"},
		{m->version, "smbios.version"},
		{m->sku, "smbios.sku"},
		{m->family, "smbios.family"},
		{m->serial, "smbios.serial"},
		{m->chassis_manufacturer, "smbios.chassisManufacturer"},
		{m->chassis_version, "smbios.chassisVersion"},
		{m->chassis_serial, "smbios.chassisSerial"},
		{m->chassis_asset, "smbios.chassisAsset"},
		{m->chassis_sku, "smbios.chassisSku"},
	};
	enum rc rc = check_uuid(m->uuid, "smbios.uuid", err);

	for (size_t i = 0; !rc && i < ARRAY_SIZE(texts); i++)
		rc = check_text(texts[i].value, texts[i].path, 256, err);
	return rc;
}

static enum rc check_boot(const struct launch_spec *s, struct err *err)
{
	enum rc rc = RC_OK;

	if (s->firmware == LAUNCH_FIRMWARE_EFI) {
		rc = check_word(s->efi_code_fd, "efiCodeFd", "-._:/", 300, err);
		if (!rc)
			rc = check_word(s->efi_vars_fd, "efiVarsFd", "-._:/", 300, err);
	} else if (s->efi_code_fd || s->efi_vars_fd) {
		rc = bad(err, "efiCodeFd", "only with firmware efi");
	}
	if (!rc && s->kernel) {
		rc = check_word(s->kernel->kernel_fd, "kernel.kernelFd", "-._:/", 300, err);
		if (!rc && s->kernel->initrd_fd)
			rc = check_word(s->kernel->initrd_fd, "kernel.initrdFd", "-._:/", 300, err);
		if (!rc)
			rc = check_text(s->kernel->args, "kernel.args", 2048, err);
	}
	return rc;
}

static enum rc check_jail(const struct launch_spec *s, struct err *err)
{
	enum rc rc = check_range(s->uid, 1, UINT32_MAX - 1, "uid", err);

	if (!rc)
		rc = check_range(s->gid, 1, UINT32_MAX - 1, "gid", err);
	if (!rc)
		rc = check_word(s->netns_fd, "netnsFd", "-._:/", 300, err);
	if (!rc)
		rc = check_range(s->oom_score_adj, -1000, 1000, "oomScoreAdj", err);
	if (!rc && s->cgroup.path) {
		rc = check_word(s->cgroup.path, "cgroup.path", "-._/:@", 255, err);
		if (!rc && (s->cgroup.path[0] == '/' || strstr(s->cgroup.path, "..")))
			rc = bad(err, "cgroup.path", "must stay below the cgroup mount");
	}
	if (!rc)
		rc = check_range(s->cgroup.memory_max, 0, INT64_MAX, "cgroup.memoryMax", err);
	if (!rc && s->cgroup.cpu_weight)
		rc = check_range(s->cgroup.cpu_weight, 1, 10000, "cgroup.cpuWeight", err);
	if (!rc && s->cgroup.cpu_quota_us)
		rc = check_range(s->cgroup.cpu_quota_us, 1000, INT64_MAX, "cgroup.cpuQuotaUs", err);
	return rc;
}

enum rc launch_spec_check(const struct launch_spec *s, struct err *err)
{
	enum rc rc = str_is_empty(s->name) ? bad(err, "name", "is required")
					   : check_text(s->name, "name", 320, err);

	if (!rc)
		rc = check_word(s->vmi_uid, "vmiUid", "-", 64, err);
	if (!rc)
		rc = check_word(s->machine, "machine", "-._", 64, err);
	if (!rc && !str_eq(s->machine, "q35") && !str_has_prefix(s->machine, "pc-q35-"))
		rc = err_set(err, RC_UNSUPPORTED, "machine: '%s' is not a q35 machine", s->machine);
	if (!rc)
		rc = check_cpu(s, err);
	if (!rc)
		rc = check_range(s->memory_bytes, 4 * (int64_t)MIB, (int64_t)1 << 46, "memoryBytes",
				 err);
	if (!rc && s->memory_bytes % (int64_t)MIB)
		rc = bad(err, "memoryBytes", "must be a multiple of 1 MiB");
	if (!rc)
		rc = check_boot(s, err);
	if (!rc)
		rc = check_smbios(&s->smbios, err);
	for (size_t i = 0; !rc && i < s->n_disks; i++)
		rc = check_disk(s, i, err);
	for (size_t i = 0; !rc && i < s->n_nics; i++)
		rc = check_nic(s, i, err);
	if (!rc)
		rc = check_boot_orders(s, err);
	if (!rc)
		rc = check_range(s->clock_offset_seconds, -((int64_t)1 << 33), (int64_t)1 << 33,
				 "clockOffsetSeconds", err);
	if (!rc)
		rc = check_jail(s, err);
	return rc;
}
