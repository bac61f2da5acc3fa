#include "virt/launcher/launch_spec.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "json/json.h"

/* The JSON form is a table per struct: encoder, decoder and destructor walk the same rows. */

enum field_type { F_STR, F_BOOL, F_INT, F_ENUM, F_INLINE, F_PTR, F_LIST };

struct field {
	const char *name;
	enum field_type type;
	size_t offset;
	const char *const *names; /* F_ENUM */
	size_t n_names;
	const struct table *sub; /* F_INLINE, F_PTR, F_LIST */
	size_t n_offset;	 /* F_LIST: where the count stands */
	size_t max;		 /* F_LIST */
};

struct table {
	size_t size;
	const struct field *fields;
	size_t n;
};

static const char *const accel_names[] = {"auto", "kvm", "tcg"};
static const char *const bus_names[] = {"virtio", "sata", "scsi"};
static const char *const kind_names[] = {"disk", "cdrom", "lun"};
static const char *const format_names[] = {"raw", "qcow2"};
static const char *const cache_names[] = {"none", "writethrough", "writeback"};
static const char *const io_names[] = {"threads", "native"};
static const char *const policy_names[] = {"stop", "report", "ignore"};
static const char *const model_names[] = {"virtio", "e1000e", "e1000", "rtl8139"};
static const char *const firmware_names[] = {"bios", "efi"};
static const char *const video_names[] = {"none", "vga", "cirrus", "virtio", "ramfb", "bochs"};
static const char *const input_bus_names[] = {"usb", "virtio"};

static_assert(ARRAY_SIZE(accel_names) == LAUNCH_ACCEL__MAX, "name every accelerator");
static_assert(ARRAY_SIZE(bus_names) == LAUNCH_BUS__MAX, "name every bus");
static_assert(ARRAY_SIZE(kind_names) == LAUNCH_DISK_KIND__MAX, "name every kind of disk");
static_assert(ARRAY_SIZE(format_names) == LAUNCH_FORMAT__MAX, "name every format");
static_assert(ARRAY_SIZE(cache_names) == LAUNCH_CACHE__MAX, "name every cache mode");
static_assert(ARRAY_SIZE(io_names) == LAUNCH_IO__MAX, "name every I/O mode");
static_assert(ARRAY_SIZE(policy_names) == LAUNCH_ERROR__MAX, "name every error policy");
static_assert(ARRAY_SIZE(model_names) == LAUNCH_NIC__MAX, "name every NIC model");
static_assert(ARRAY_SIZE(firmware_names) == LAUNCH_FIRMWARE__MAX, "name every firmware");
static_assert(ARRAY_SIZE(video_names) == LAUNCH_VIDEO__MAX, "name every graphics card");
static_assert(ARRAY_SIZE(input_bus_names) == LAUNCH_INPUT_BUS__MAX, "name every bus of inputs");

#define STR(t_, m_, n_)                                                      \
	{                                                                    \
		.name = n_, .type = F_STR, .offset = offsetof(struct t_, m_) \
	}
#define BOOL(t_, m_, n_)                                                      \
	{                                                                     \
		.name = n_, .type = F_BOOL, .offset = offsetof(struct t_, m_) \
	}
#define INT(t_, m_, n_)                                                      \
	{                                                                    \
		.name = n_, .type = F_INT, .offset = offsetof(struct t_, m_) \
	}
#define ENUM(t_, m_, n_, names_)                                                                \
	{                                                                                       \
		.name = n_, .type = F_ENUM, .offset = offsetof(struct t_, m_), .names = names_, \
		.n_names = ARRAY_SIZE(names_)                                                   \
	}
#define SUB(t_, m_, n_, type_, table_)                                                       \
	{                                                                                    \
		.name = n_, .type = type_, .offset = offsetof(struct t_, m_), .sub = &table_ \
	}
#define LIST(t_, m_, c_, n_, table_, max_)                                                     \
	{                                                                                      \
		.name = n_, .type = F_LIST, .offset = offsetof(struct t_, m_), .sub = &table_, \
		.n_offset = offsetof(struct t_, c_), .max = max_                               \
	}
#define TABLE(name_, t_, rows_) \
	static const struct table name_ = {sizeof(struct t_), rows_, ARRAY_SIZE(rows_)}

static const struct field image_rows[] = {
	STR(launch_image, fd, "fd"),
	ENUM(launch_image, format, "format", format_names),
};
TABLE(image_table, launch_image, image_rows);

static const struct field disk_rows[] = {
	STR(launch_disk, name, "name"),
	ENUM(launch_disk, bus, "bus", bus_names),
	ENUM(launch_disk, kind, "kind", kind_names),
	BOOL(launch_disk, read_only, "readOnly"),
	BOOL(launch_disk, shareable, "shareable"),
	BOOL(launch_disk, discard, "discard"),
	ENUM(launch_disk, cache, "cache", cache_names),
	ENUM(launch_disk, io, "io", io_names),
	ENUM(launch_disk, error_policy, "errorPolicy", policy_names),
	STR(launch_disk, serial, "serial"),
	INT(launch_disk, boot_order, "bootOrder"),
	INT(launch_disk, logical_block_size, "logicalBlockSize"),
	INT(launch_disk, physical_block_size, "physicalBlockSize"),
	BOOL(launch_disk, moves, "moves"),
	LIST(launch_disk, images, n_images, "images", image_table, LAUNCH_MAX_CHAIN),
};
TABLE(disk_table, launch_disk, disk_rows);

static const struct field nic_rows[] = {
	STR(launch_nic, name, "name"), ENUM(launch_nic, model, "model", model_names),
	STR(launch_nic, mac, "mac"),   STR(launch_nic, fd, "fd"),
	INT(launch_nic, mtu, "mtu"),   INT(launch_nic, boot_order, "bootOrder"),
};
TABLE(nic_table, launch_nic, nic_rows);

static const struct field input_rows[] = {
	ENUM(launch_input, bus, "bus", input_bus_names),
};
TABLE(input_table, launch_input, input_rows);

static const struct field feature_rows[] = {
	STR(launch_feature, name, "name"),
	BOOL(launch_feature, on, "on"),
};
TABLE(feature_table, launch_feature, feature_rows);

static const struct field kernel_rows[] = {
	STR(launch_kernel, kernel_fd, "kernelFd"),
	STR(launch_kernel, initrd_fd, "initrdFd"),
	STR(launch_kernel, args, "args"),
};
TABLE(kernel_table, launch_kernel, kernel_rows);

static const struct field smbios_rows[] = {
	STR(launch_smbios, manufacturer, "manufacturer"),
	STR(launch_smbios, product, "product"),
	STR(launch_smbios, version, "version"),
	STR(launch_smbios, sku, "sku"),
	STR(launch_smbios, family, "family"),
	STR(launch_smbios, serial, "serial"),
	STR(launch_smbios, uuid, "uuid"),
	STR(launch_smbios, chassis_manufacturer, "chassisManufacturer"),
	STR(launch_smbios, chassis_version, "chassisVersion"),
	STR(launch_smbios, chassis_serial, "chassisSerial"),
	STR(launch_smbios, chassis_asset, "chassisAsset"),
	STR(launch_smbios, chassis_sku, "chassisSku"),
};
TABLE(smbios_table, launch_smbios, smbios_rows);

static const struct field cgroup_rows[] = {
	STR(launch_cgroup, path, "path"),
	INT(launch_cgroup, memory_max, "memoryMax"),
	INT(launch_cgroup, cpu_weight, "cpuWeight"),
	INT(launch_cgroup, cpu_quota_us, "cpuQuotaUs"),
};
TABLE(cgroup_table, launch_cgroup, cgroup_rows);

static const struct field spec_rows[] = {
	STR(launch_spec, name, "name"),
	STR(launch_spec, vmi_uid, "vmiUid"),
	ENUM(launch_spec, accel, "accel", accel_names),
	STR(launch_spec, machine, "machine"),
	STR(launch_spec, cpu_model, "cpuModel"),
	LIST(launch_spec, features, n_features, "features", feature_table, LAUNCH_MAX_FEATURES),
	INT(launch_spec, sockets, "sockets"),
	INT(launch_spec, cores, "cores"),
	INT(launch_spec, threads, "threads"),
	INT(launch_spec, memory_bytes, "memoryBytes"),
	ENUM(launch_spec, firmware, "firmware", firmware_names),
	STR(launch_spec, efi_code_fd, "efiCodeFd"),
	STR(launch_spec, efi_vars_fd, "efiVarsFd"),
	BOOL(launch_spec, bios_serial, "biosSerial"),
	BOOL(launch_spec, boot_menu, "bootMenu"),
	SUB(launch_spec, kernel, "kernel", F_PTR, kernel_table),
	SUB(launch_spec, smbios, "smbios", F_INLINE, smbios_table),
	LIST(launch_spec, disks, n_disks, "disks", disk_table, LAUNCH_MAX_DISKS),
	LIST(launch_spec, nics, n_nics, "nics", nic_table, LAUNCH_MAX_NICS),
	ENUM(launch_spec, video, "video", video_names),
	LIST(launch_spec, inputs, n_inputs, "inputs", input_table, LAUNCH_MAX_INPUTS),
	BOOL(launch_spec, serial_console, "serialConsole"),
	BOOL(launch_spec, serial_log, "serialLog"),
	BOOL(launch_spec, rng, "rng"),
	BOOL(launch_spec, balloon, "balloon"),
	BOOL(launch_spec, guest_agent, "guestAgent"),
	BOOL(launch_spec, panic_device, "panicDevice"),
	BOOL(launch_spec, acpi_off, "acpiOff"),
	BOOL(launch_spec, reboot_terminates, "rebootTerminates"),
	INT(launch_spec, clock_offset_seconds, "clockOffsetSeconds"),
	INT(launch_spec, uid, "uid"),
	INT(launch_spec, gid, "gid"),
	STR(launch_spec, netns_fd, "netnsFd"),
	SUB(launch_spec, cgroup, "cgroup", F_INLINE, cgroup_table),
	INT(launch_spec, oom_score_adj, "oomScoreAdj"),
};
TABLE(spec_table, launch_spec, spec_rows);

#define AT(type_, obj_, f_)  ((type_ *)(void *)((char *)(obj_) + (f_)->offset))
#define COUNT(obj_, f_)	     ((size_t *)(void *)((char *)(obj_) + (f_)->n_offset))
#define CAT(type_, obj_, f_) ((type_ const *)(const void *)((const char *)(obj_) + (f_)->offset))
#define CCOUNT(obj_, f_)     (*(size_t const *)(const void *)((const char *)(obj_) + (f_)->n_offset))

/* Nesting is as deep as the tables are: spec, disk, image. */

static void fini(const struct table *t, void *obj)
{
	for (size_t i = 0; i < t->n; i++) {
		const struct field *f = &t->fields[i];
		void **p = AT(void *, obj, f);

		if (f->type == F_INLINE) {
			fini(f->sub, p);
		} else if (f->type == F_PTR && *p) {
			fini(f->sub, *p);
			*p = mem_free(*p);
		} else if (f->type == F_LIST) {
			for (size_t k = 0; k < *COUNT(obj, f); k++)
				fini(f->sub, *(char **)p + k * f->sub->size);
			*p = mem_free(*p);
		} else if (f->type == F_STR) {
			*p = mem_free(*p);
		}
	}
}

struct launch_spec *launch_spec_new(void)
{
	struct launch_spec *s = mem_alloc(sizeof(*s));

	if (s)
		s->sockets = s->cores = s->threads = 1;
	return s;
}

struct launch_spec *launch_spec_free(struct launch_spec *s)
{
	if (!s)
		return NULL;
	fini(&spec_table, s);
	return mem_free(s);
}

static void *add_item(void **items, size_t *n, size_t size, size_t max)
{
	if (*n >= max)
		return NULL;
	void *grown = mem_realloc_array(*items, *n + 1, size);

	if (!grown)
		return NULL;
	*items = grown;
	memset((char *)grown + *n * size, 0, size);
	return (char *)grown + (*n)++ * size;
}

struct launch_disk *launch_spec_add_disk(struct launch_spec *s)
{
	return add_item((void **)&s->disks, &s->n_disks, sizeof(*s->disks), LAUNCH_MAX_DISKS);
}

struct launch_image *launch_disk_add_image(struct launch_disk *d)
{
	return add_item((void **)&d->images, &d->n_images, sizeof(*d->images), LAUNCH_MAX_CHAIN);
}

struct launch_nic *launch_spec_add_nic(struct launch_spec *s)
{
	return add_item((void **)&s->nics, &s->n_nics, sizeof(*s->nics), LAUNCH_MAX_NICS);
}

struct launch_feature *launch_spec_add_feature(struct launch_spec *s)
{
	return add_item((void **)&s->features, &s->n_features, sizeof(*s->features),
			LAUNCH_MAX_FEATURES);
}

struct launch_input *launch_spec_add_input(struct launch_spec *s)
{
	return add_item((void **)&s->inputs, &s->n_inputs, sizeof(*s->inputs), LAUNCH_MAX_INPUTS);
}

const char *launch_video_name(enum launch_video v)
{
	return video_names[v];
}

bool launch_video_parse(const char *name, enum launch_video *out)
{
	for (unsigned i = 0; i < LAUNCH_VIDEO__MAX; i++)
		if (str_eq(name, video_names[i])) {
			*out = (enum launch_video)i;
			return true;
		}
	return false;
}

/* --- encoding --- */

static struct json *encode(const struct table *t, const void *obj);

static struct json *encode_list(const struct field *f, const void *obj)
{
	struct json *arr = js_new_array();
	const char *items = *CAT(char *, obj, f);

	for (size_t k = 0; arr && k < CCOUNT(obj, f); k++)
		if (js_append(arr, encode(f->sub, items + k * f->sub->size)))
			arr = js_unref(arr);
	return arr;
}

/* *skip: the member is at its zero value. */
static struct json *encode_field(const struct field *f, const void *obj, bool *skip)
{
	const void *p = CAT(void *, obj, f);
	struct json *j;

	switch (f->type) {
	case F_STR:
		*skip = !*(char *const *)p;
		return *skip ? NULL : js_new_str(*(char *const *)p);
	case F_BOOL:
		*skip = !*(const bool *)p;
		return *skip ? NULL : js_new_bool(true);
	case F_INT:
		*skip = !*(const int64_t *)p;
		return *skip ? NULL : js_new_int(*(const int64_t *)p);
	case F_ENUM:
		*skip = *(const unsigned *)p == 0;
		return *skip ? NULL : js_new_str(f->names[*(const unsigned *)p]);
	case F_INLINE:
		j = encode(f->sub, p);
		*skip = j && js_len(j) == 0;
		return *skip ? js_unref(j) : j;
	case F_PTR:
		*skip = !*(void *const *)p;
		return *skip ? NULL : encode(f->sub, *(void *const *)p);
	case F_LIST:
		*skip = CCOUNT(obj, f) == 0;
		return *skip ? NULL : encode_list(f, obj);
	}
	return NULL;
}

static struct json *encode(const struct table *t, const void *obj)
{
	struct json *j = js_new_object();

	for (size_t i = 0; j && i < t->n; i++) {
		bool skip = false;
		struct json *v = encode_field(&t->fields[i], obj, &skip);

		if (!skip && js_set(j, t->fields[i].name, v))
			j = js_unref(j);
	}
	return j;
}

struct json *launch_spec_encode(const struct launch_spec *s)
{
	return encode(&spec_table, s);
}

/* --- decoding --- */

static enum rc decode(const struct table *t, const struct json *j, void *obj, const char *path,
		      struct err *err);

static enum rc wrong(struct err *err, const char *path, const char *name, const char *what)
{
	return err_set(err, RC_INVALID, "%s%s%s: %s", path, *path ? "." : "", name, what);
}

static enum rc decode_enum(const struct field *f, const struct json *j, void *p, const char *path,
			   struct err *err)
{
	const char *s = js_str(j);

	for (unsigned i = 0; s && i < f->n_names; i++)
		if (str_eq(s, f->names[i])) {
			*(unsigned *)p = i;
			return RC_OK;
		}
	return wrong(err, path, f->name, "not a known value");
}

static enum rc decode_list(const struct field *f, const struct json *j, void *obj, const char *path,
			   struct err *err)
{
	size_t n = js_len(j);

	if (!js_is_array(j))
		return wrong(err, path, f->name, "must be an array");
	if (n > f->max)
		return wrong(err, path, f->name, "too many items");
	if (n == 0)
		return RC_OK;
	char *items = mem_calloc(n, f->sub->size);

	if (!items)
		return err_set(err, RC_NOMEM, "out of memory");
	*AT(void *, obj, f) = items;
	*COUNT(obj, f) = n;
	for (size_t k = 0; k < n; k++) {
		char sub[160];

		snprintf(sub, sizeof(sub), "%s%s%s[%zu]", path, *path ? "." : "", f->name, k);
		enum rc rc = decode(f->sub, js_item(j, k), items + k * f->sub->size, sub, err);

		if (rc)
			return rc;
	}
	return RC_OK;
}

static enum rc decode_sub(const struct field *f, const struct json *j, void *p, const char *path,
			  struct err *err)
{
	char sub[160];

	snprintf(sub, sizeof(sub), "%s%s%s", path, *path ? "." : "", f->name);
	if (f->type == F_PTR) {
		void *fresh = mem_alloc(f->sub->size);

		if (!fresh)
			return err_set(err, RC_NOMEM, "out of memory");
		*(void **)p = fresh;
		p = fresh;
	}
	return decode(f->sub, j, p, sub, err);
}

static enum rc decode_field(const struct field *f, const struct json *j, void *obj,
			    const char *path, struct err *err)
{
	void *p = AT(void, obj, f);

	switch (f->type) {
	case F_STR:
		if (!js_is_string(j))
			return wrong(err, path, f->name, "must be a string");
		*(char **)p = mem_strdup(js_str(j));
		return *(char **)p ? RC_OK : err_set(err, RC_NOMEM, "out of memory");
	case F_BOOL:
		if (js_type(j) != JS_BOOL)
			return wrong(err, path, f->name, "must be a boolean");
		*(bool *)p = js_bool(j, false);
		return RC_OK;
	case F_INT:
		if (js_type(j) != JS_INT)
			return wrong(err, path, f->name, "must be an integer");
		*(int64_t *)p = js_int(j, 0);
		return RC_OK;
	case F_ENUM:
		return decode_enum(f, j, p, path, err);
	case F_LIST:
		return decode_list(f, j, obj, path, err);
	case F_INLINE:
	case F_PTR:
		return decode_sub(f, j, p, path, err);
	}
	return RC_OK;
}

static enum rc decode(const struct table *t, const struct json *j, void *obj, const char *path,
		      struct err *err)
{
	if (!js_is_object(j))
		return wrong(err, path, "", "must be an object");
	JS_FOREACH(it, j) {
		const struct field *f = NULL;

		for (size_t i = 0; i < t->n && !f; i++)
			if (str_eq(it.key, t->fields[i].name))
				f = &t->fields[i];
		if (!f)
			return wrong(err, path, it.key, "unknown member");
		enum rc rc = decode_field(f, it.value, obj, path, err);

		if (rc)
			return rc;
	}
	return RC_OK;
}

enum rc launch_spec_decode(const struct json *j, struct launch_spec **out, struct err *err)
{
	CLEANUP(launch_spec_freep) struct launch_spec *s = launch_spec_new();

	if (!s)
		return err_set(err, RC_NOMEM, "out of memory");
	enum rc rc = decode(&spec_table, j, s, "", err);

	if (rc)
		return rc;
	*out = STEAL(s);
	return RC_OK;
}
