#include "virt/launcher/qemu_cmdline.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "json/json.h"

enum { ARG_MAX_BYTES = 65536, VIDEO_MIB = 16 /* as KubeVirt's vram=16384 */ };

/* --- the growing list --- */

void argv_fini(struct argv *a)
{
	for (size_t i = 0; i < a->n; i++)
		mem_free(a->v[i]);
	mem_free(a->v);
	*a = (struct argv){.n = 0};
}

/* Consumes arg; NULL: out of memory. */
static void add_own(struct argv *a, char *arg)
{
	if (!arg || a->rc || !mem_grow((void **)&a->v, &a->cap, a->n + 1, sizeof(char *))) {
		a->rc = a->rc ? a->rc : RC_NOMEM;
		mem_free(arg);
		return;
	}
	a->v[a->n++] = arg;
	a->v[a->n] = NULL;
}

static void add(struct argv *a, const char *option, const char *value)
{
	add_own(a, mem_strdup(option));
	if (value)
		add_own(a, mem_strdup(value));
}

static void addf(struct argv *a, const char *option, const char *fmt, ...) PRINTF_LIKE(3, 4);
static void addf(struct argv *a, const char *option, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	int n = vsnprintf(text, sizeof(text), fmt, ap);

	va_end(ap);
	assert(n >= 0 && (size_t)n < sizeof(text)); /* only our own words and numbers come here */
	add(a, option, text);
}

/* Consumes j; NULL: out of memory. */
static void add_json(struct argv *a, const char *option, struct json *j)
{
	add_own(a, mem_strdup(option));
	add_own(a, j ? js_to_text(j) : NULL);
	js_unref(j);
}

static void put(struct json *j, const char *key, struct json *value, struct argv *a)
{
	if (js_set(j, key, value))
		a->rc = RC_NOMEM;
}

/* ",key=value" with commas doubled; nothing for an absent value. */
static void opt(struct sbuf *b, const char *key, const char *value)
{
	if (str_is_empty(value))
		return;
	sbuf_addf(b, "%s%s=", b->n ? "," : "", key);
	for (; *value; value++) {
		sbuf_addc(b, *value);
		if (*value == ',')
			sbuf_addc(b, ',');
	}
}

static void add_opts(struct argv *a, const char *option, struct sbuf *b)
{
	if (sbuf_rc(b))
		a->rc = sbuf_rc(b);
	else if (b->n)
		add(a, option, sbuf_str(b));
	sbuf_fini(b);
}

/* --- descriptors --- */

const struct qemu_fd *qemu_fd_find(const struct qemu_fd *fds, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (str_eq(fds[i].name, name))
			return &fds[i];
	return NULL;
}

/* Sets are numbered from 1 in the order of use. */
static unsigned add_fdset(struct argv *a, unsigned *next_set, int fd)
{
	addf(a, "-add-fd", "fd=%d,set=%u", fd, ++*next_set);
	return *next_set;
}

/* --- parts --- */

static void part_machine(struct argv *a, const struct launch_spec *s, const struct qemu_env *env)
{
	struct sbuf name = SBUF_INIT(ARG_MAX_BYTES), machine = SBUF_INIT(4096),
		    cpu = SBUF_INIT(16384);

	opt(&name, "guest", s->name);
	opt(&name, "debug-threads", "on");
	add_opts(a, "-name", &name);
	add(a, "-nodefaults", NULL);
	add(a, "-no-user-config", NULL);
	sbuf_addf(&machine, "%s,dump-guest-core=off,vmport=off", s->machine);
	if (s->acpi_off)
		sbuf_adds(&machine, ",acpi=off");
	if (s->bios_serial)
		sbuf_adds(&machine, ",graphics=off");
	if (s->firmware == LAUNCH_FIRMWARE_EFI)
		sbuf_adds(&machine, ",pflash0=efi-code,pflash1=efi-vars");
	add_opts(a, "-machine", &machine);
	add(a, "-accel", env->kvm ? "kvm" : "tcg");
	sbuf_adds(&cpu, s->cpu_model);
	for (size_t i = 0; i < s->n_features; i++)
		sbuf_addf(&cpu, ",%s=%s", s->features[i].name, s->features[i].on ? "on" : "off");
	add_opts(a, "-cpu", &cpu);
	addf(a, "-smp", "%" PRId64 ",sockets=%" PRId64 ",cores=%" PRId64 ",threads=%" PRId64,
	     s->sockets * s->cores * s->threads, s->sockets, s->cores, s->threads);
	addf(a, "-m", "%" PRId64 "M", s->memory_bytes / (int64_t)MIB);
	add(a, "-uuid", s->smbios.uuid);
	/* Sleep states would need a run state of their own; no VM of Ferry's offers them. */
	add(a, "-global", "ICH9-LPC.disable_s3=1");
	add(a, "-global", "ICH9-LPC.disable_s4=1");
}

static void part_smbios(struct argv *a, const struct launch_smbios *m)
{
	struct sbuf one = SBUF_INIT(ARG_MAX_BYTES), three = SBUF_INIT(ARG_MAX_BYTES);

	opt(&one, "type", "1");
	opt(&one, "manufacturer", m->manufacturer);
	opt(&one, "product", m->product);
	opt(&one, "version", m->version);
	opt(&one, "serial", m->serial);
	opt(&one, "uuid", m->uuid);
	opt(&one, "sku", m->sku);
	opt(&one, "family", m->family);
	add_opts(a, "-smbios", &one);
	if (!m->chassis_manufacturer && !m->chassis_version && !m->chassis_serial &&
	    !m->chassis_asset && !m->chassis_sku)
		return;
	opt(&three, "type", "3");
	opt(&three, "manufacturer", m->chassis_manufacturer);
	opt(&three, "version", m->chassis_version);
	opt(&three, "serial", m->chassis_serial);
	opt(&three, "asset", m->chassis_asset);
	opt(&three, "sku", m->chassis_sku);
	add_opts(a, "-smbios", &three);
}

static void part_clock(struct argv *a, const struct launch_spec *s, const struct qemu_env *env)
{
	char text[40];
	time_t t = (time_t)(env->realtime / USEC_PER_SEC) + (time_t)s->clock_offset_seconds;
	struct tm tm;

	if (!s->clock_offset_seconds || !gmtime_r(&t, &tm)) {
		add(a, "-rtc", "base=utc");
		return;
	}
	strftime(text, sizeof(text), "base=%Y-%m-%dT%H:%M:%S", &tm);
	add(a, "-rtc", text);
}

static void part_monitors(struct argv *a, const struct launch_spec *s, const struct qemu_env *env,
			  unsigned *next_set)
{
	for (int i = 0; i < 2; i++) {
		addf(a, "-chardev", "socket,id=qmp%d,fd=%d,server=on,wait=off", i, env->qmp_fd[i]);
		addf(a, "-mon", "chardev=qmp%d,mode=control", i);
	}
	if (!s->serial_console)
		return;
	if (s->serial_log && env->serial_log_fd >= 0) {
		unsigned set = add_fdset(a, next_set, env->serial_log_fd);

		addf(a, "-chardev",
		     "socket,id=serial0,fd=%d,server=on,wait=off,logfile=/dev/fdset/"
		     "%u,logappend=on",
		     env->serial_fd, set);
	} else {
		addf(a, "-chardev", "socket,id=serial0,fd=%d,server=on,wait=off", env->serial_fd);
	}
	add(a, "-serial", "chardev:serial0");
}

/* --- disks --- */

void qemu_node_name(size_t disk, size_t layer, char out[16])
{
	snprintf(out, 16, "d%zu-%zu", disk % 1000, layer % 1000);
}

static struct json *file_node(const struct qemu_fd *fd, unsigned set, const char *name,
			      bool read_only, const struct launch_disk *d)
{
	bool direct = d->cache == LAUNCH_CACHE_NONE;
	char filename[32];

	snprintf(filename, sizeof(filename), "/dev/fdset/%u", set);
	return js_pack("{s:s, s:s, s:s, s:b, s:{s:b, s:b}, s:s, s:s}", "driver",
		       fd->is_block ? "host_device" : "file", "node-name", name, "filename",
		       filename, "read-only", read_only, "cache", "direct", direct, "no-flush", 0,
		       "discard", d->discard && !read_only ? "unmap" : "ignore", "aio",
		       d->io == LAUNCH_IO_NATIVE && !read_only ? "native" : "threads");
}

/* Base first, since a node must exist before another can name it. */
static void disk_nodes(struct argv *a, const struct launch_spec *s, size_t i,
		       const struct qemu_env *env, unsigned *next_set)
{
	const struct launch_disk *d = &s->disks[i];

	for (size_t k = d->n_images; k-- > 0;) {
		const struct qemu_fd *fd = qemu_fd_find(env->fds, env->n_fds, d->images[k].fd);
		bool read_only = d->read_only || k > 0;
		char name[16], file[24], backing[16];
		unsigned set = add_fdset(a, next_set, fd->fd);

		qemu_node_name(i, k, name);
		qemu_node_name(i, k + 1, backing);
		snprintf(file, sizeof(file), "%s-file", name);
		add_json(a, "-blockdev", file_node(fd, set, file, read_only, d));
		if (d->images[k].format == LAUNCH_RAW) {
			add_json(a, "-blockdev",
				 js_pack("{s:s, s:s, s:b, s:s, s:s}", "driver", "raw", "node-name",
					 name, "read-only", read_only, "file", file, "discard",
					 d->discard && !read_only ? "unmap" : "ignore"));
			continue;
		}
		/* "backing" is always said, so that the image's header is never believed. */
		struct json *j = js_pack("{s:s, s:s, s:b, s:s, s:s}", "driver", "qcow2",
					 "node-name", name, "read-only", read_only, "file", file,
					 "discard", d->discard && !read_only ? "unmap" : "ignore");

		put(j, "backing", k + 1 < d->n_images ? js_new_str(backing) : js_new_null(), a);
		add_json(a, "-blockdev", j);
	}
}

static const char *disk_driver(const struct launch_disk *d)
{
	if (d->bus == LAUNCH_BUS_VIRTIO)
		return "virtio-blk-pci-non-transitional";
	if (d->kind == LAUNCH_LUN)
		return "scsi-block";
	if (d->bus == LAUNCH_BUS_SATA)
		return d->kind == LAUNCH_CDROM ? "ide-cd" : "ide-hd";
	return d->kind == LAUNCH_CDROM ? "scsi-cd" : "scsi-hd";
}

static void disk_place(struct argv *a, struct json *j, const struct launch_disk *d, size_t i,
		       unsigned *sata)
{
	char text[24];

	switch (d->bus) {
	case LAUNCH_BUS_VIRTIO:
		/* Eight to a slot: the root complex has too few for one each. */
		snprintf(text, sizeof(text), "0x%zx.%zu", SLOT_DISKS + i / 8, i % 8);
		put(j, "bus", js_new_str("pcie.0"), a);
		put(j, "addr", js_new_str(text), a);
		put(j, "multifunction", js_new_bool(true), a);
		break;
	case LAUNCH_BUS_SATA:
		snprintf(text, sizeof(text), "ide.%u", (*sata)++);
		put(j, "bus", js_new_str(text), a);
		break;
	default:
		put(j, "bus", js_new_str("scsi0.0"), a);
		put(j, "scsi-id", js_new_int((int64_t)i), a);
		put(j, "lun", js_new_int(0), a);
		break;
	}
}

static void disk_device(struct argv *a, const struct launch_spec *s, size_t i, unsigned *sata)
{
	static const char *const policy[] = {"stop", "report", "ignore"};
	const struct launch_disk *d = &s->disks[i];
	char id[16], top[16];

	snprintf(id, sizeof(id), "disk%zu", i);
	qemu_node_name(i, 0, top);
	struct json *j =
		js_pack("{s:s, s:s, s:s}", "driver", disk_driver(d), "id", id, "drive", top);

	if (!j) {
		a->rc = RC_NOMEM;
		return;
	}
	disk_place(a, j, d, i, sata);
	if (d->kind != LAUNCH_LUN) {
		if (d->serial && d->serial[0])
			put(j, "serial", js_new_str(d->serial), a);
		if (d->kind == LAUNCH_DISK)
			put(j, "write-cache",
			    js_new_str(d->cache == LAUNCH_CACHE_WRITETHROUGH ? "off" : "on"), a);
		if (d->logical_block_size)
			put(j, "logical_block_size", js_new_int(d->logical_block_size), a);
		if (d->physical_block_size)
			put(j, "physical_block_size", js_new_int(d->physical_block_size), a);
	}
	put(j, "werror", js_new_str(policy[d->error_policy]), a);
	put(j, "rerror", js_new_str(policy[d->error_policy]), a);
	if (d->shareable)
		put(j, "share-rw", js_new_bool(true), a);
	if (d->boot_order)
		put(j, "bootindex", js_new_int(d->boot_order), a);
	add_json(a, "-device", j);
}

static void part_disks(struct argv *a, const struct launch_spec *s, const struct qemu_env *env,
		       unsigned *next_set)
{
	unsigned sata = 0;
	bool scsi = false;

	for (size_t i = 0; i < s->n_disks; i++)
		scsi |= s->disks[i].bus == LAUNCH_BUS_SCSI;
	if (scsi) {
		char addr[8];

		snprintf(addr, sizeof(addr), "0x%x", (unsigned)SLOT_SCSI);
		add_json(a, "-device",
			 js_pack("{s:s, s:s, s:s, s:s}", "driver",
				 "virtio-scsi-pci-non-transitional", "id", "scsi0", "bus", "pcie.0",
				 "addr", addr));
	}
	for (size_t i = 0; i < s->n_disks; i++) {
		disk_nodes(a, s, i, env, next_set);
		disk_device(a, s, i, &sata);
	}
}

static void part_efi(struct argv *a, const struct launch_spec *s, const struct qemu_env *env,
		     unsigned *next_set)
{
	const struct {
		const char *fd, *node;
		bool read_only;
	} parts[] = {{s->efi_code_fd, "efi-code", true}, {s->efi_vars_fd, "efi-vars", false}};

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		const struct qemu_fd *fd = qemu_fd_find(env->fds, env->n_fds, parts[i].fd);
		char file[24], filename[32];

		snprintf(file, sizeof(file), "%s-file", parts[i].node);
		snprintf(filename, sizeof(filename), "/dev/fdset/%u",
			 add_fdset(a, next_set, fd->fd));
		add_json(a, "-blockdev",
			 js_pack("{s:s, s:s, s:s, s:b}", "driver", "file", "node-name", file,
				 "filename", filename, "read-only", parts[i].read_only));
		add_json(a, "-blockdev",
			 js_pack("{s:s, s:s, s:s, s:b}", "driver", "raw", "node-name",
				 parts[i].node, "file", file, "read-only", parts[i].read_only));
	}
}

/* --- network and the rest --- */

static void part_nics(struct argv *a, const struct launch_spec *s, const struct qemu_env *env)
{
	static const char *const drivers[] = {"virtio-net-pci-non-transitional", "e1000e", "e1000",
					      "rtl8139"};

	for (size_t i = 0; i < s->n_nics; i++) {
		const struct launch_nic *n = &s->nics[i];
		char net[16], id[16], addr[8], fd[16];

		snprintf(net, sizeof(net), "net%zu", i);
		snprintf(id, sizeof(id), "nic%zu", i);
		snprintf(addr, sizeof(addr), "0x%zx", SLOT_NICS + i);
		snprintf(fd, sizeof(fd), "%d", qemu_fd_find(env->fds, env->n_fds, n->fd)->fd);
		add_json(a, "-netdev",
			 js_pack("{s:s, s:s, s:s, s:b}", "type", "tap", "id", net, "fd", fd,
				 "vhost", 0));
		struct json *j = js_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "driver",
					 drivers[n->model], "id", id, "netdev", net, "mac", n->mac,
					 "bus", "pcie.0", "addr", addr, "romfile", "");

		if (j && n->mtu && n->model == LAUNCH_NIC_VIRTIO)
			put(j, "host_mtu", js_new_int(n->mtu), a);
		/* Where a guest's address is, nodes are told by the hand-over; a guest that announces itself
		 * does so in its first milliseconds on the target, when every instruction is dear. */
		if (j && n->model == LAUNCH_NIC_VIRTIO)
			put(j, "guest_announce", js_new_bool(false), a);
		add_json(a, "-device", j);
	}
}

static void part_small_devices(struct argv *a, const struct launch_spec *s)
{
	char addr[8];

	if (s->rng) {
		snprintf(addr, sizeof(addr), "0x%x", (unsigned)SLOT_RNG);
		add_json(a, "-object",
			 js_pack("{s:s, s:s}", "qom-type", "rng-builtin", "id", "rng0"));
		add_json(a, "-device",
			 js_pack("{s:s, s:s, s:s, s:s, s:s}", "driver",
				 "virtio-rng-pci-non-transitional", "id", "rng-dev0", "rng", "rng0",
				 "bus", "pcie.0", "addr", addr));
	}
	if (s->balloon) {
		snprintf(addr, sizeof(addr), "0x%x", (unsigned)SLOT_BALLOON);
		add_json(a, "-device",
			 js_pack("{s:s, s:s, s:s, s:s, s:b}", "driver",
				 "virtio-balloon-pci-non-transitional", "id", "balloon0", "bus",
				 "pcie.0", "addr", addr, "free-page-reporting", 1));
	}
	if (s->panic_device)
		add_json(a, "-device", js_pack("{s:s, s:s}", "driver", "pvpanic", "id", "panic0"));
}

/* The VNC server listens nowhere: each of its clients is a descriptor that the monitor hands over. */
static void part_video(struct argv *a, const struct launch_spec *s)
{
	static const char *const drivers[] = {NULL,	    "VGA",   "cirrus-vga",
					      "virtio-vga", "ramfb", "bochs-display"};
	char addr[8];

	static_assert(ARRAY_SIZE(drivers) == LAUNCH_VIDEO__MAX, "a device for every card");
	if (s->video == LAUNCH_VIDEO_NONE)
		return;
	add(a, "-vnc", "none");
	struct json *j = js_pack("{s:s, s:s}", "driver", drivers[s->video], "id", "video0");

	if (j && s->video != LAUNCH_VIDEO_RAMFB) { /* which is no PCI device */
		snprintf(addr, sizeof(addr), "0x%x", (unsigned)SLOT_VIDEO);
		put(j, "bus", js_new_str("pcie.0"), a);
		put(j, "addr", js_new_str(addr), a);
	}
	if (j && s->video == LAUNCH_VIDEO_VGA)
		put(j, "vgamem_mb", js_new_int(VIDEO_MIB), a);
	if (j && s->video == LAUNCH_VIDEO_BOCHS)
		put(j, "vgamem", js_new_int(VIDEO_MIB * (int64_t)MIB), a);
	add_json(a, "-device", j);
}

static void part_inputs(struct argv *a, const struct launch_spec *s)
{
	unsigned n_virtio = 0; /* as functions of one slot: the first of them has to be there */
	bool has_usb = false;
	char addr[16], id[16];

	for (size_t i = 0; i < s->n_inputs; i++)
		has_usb |= s->inputs[i].bus == LAUNCH_INPUT_USB;
	if (has_usb) {
		snprintf(addr, sizeof(addr), "0x%x", (unsigned)SLOT_USB);
		add_json(a, "-device",
			 js_pack("{s:s, s:s, s:s, s:s, s:i}", "driver", "qemu-xhci", "id", "usb0",
				 "bus", "pcie.0", "addr", addr, "p2", LAUNCH_MAX_INPUTS));
	}
	for (size_t i = 0; i < s->n_inputs; i++) {
		bool usb = s->inputs[i].bus == LAUNCH_INPUT_USB;

		snprintf(id, sizeof(id), "input%zu", i);
		snprintf(addr, sizeof(addr), "0x%x.%u", (unsigned)SLOT_INPUTS, n_virtio);
		n_virtio += !usb;
		add_json(a, "-device",
			 usb ? js_pack("{s:s, s:s, s:s}", "driver", "usb-tablet", "id", id, "bus",
				       "usb0.0")
			     : js_pack("{s:s, s:s, s:s, s:s, s:b}", "driver", "virtio-tablet-pci",
				       "id", id, "bus", "pcie.0", "addr", addr, "multifunction",
				       1));
	}
}

static void part_agent(struct argv *a, const struct launch_spec *s, const struct qemu_env *env)
{
	char addr[8];

	if (!s->guest_agent)
		return;
	addf(a, "-chardev", "socket,id=" QEMU_AGENT_CHARDEV ",fd=%d,server=on,wait=off",
	     env->agent_fd);
	snprintf(addr, sizeof(addr), "0x%x", (unsigned)SLOT_AGENT);
	add_json(a, "-device",
		 js_pack("{s:s, s:s, s:s, s:s, s:i}", "driver",
			 "virtio-serial-pci-non-transitional", "id", "serial-bus0", "bus", "pcie.0",
			 "addr", addr, "max_ports", 2));
	add_json(a, "-device",
		 js_pack("{s:s, s:s, s:s, s:i, s:s, s:s}", "driver", "virtserialport", "id",
			 QEMU_AGENT_PORT, "bus", "serial-bus0.0", "nr", 1, "chardev",
			 QEMU_AGENT_CHARDEV, "name", "org.qemu.guest_agent.0"));
}

static void part_boot(struct argv *a, const struct launch_spec *s)
{
	add(a, "-boot", s->boot_menu ? "strict=on,menu=on,splash-time=10000" : "strict=on");
	if (!s->kernel)
		return;
	add(a, "-kernel", QEMU_JAIL_KERNEL);
	if (s->kernel->initrd_fd)
		add(a, "-initrd", QEMU_JAIL_INITRD);
	if (!str_is_empty(s->kernel->args))
		add(a, "-append", s->kernel->args);
}

/* --- the whole --- */

static enum rc need_fd(const struct qemu_env *env, const char *name, const char *what,
		       struct err *err)
{
	if (!name || qemu_fd_find(env->fds, env->n_fds, name))
		return RC_OK;
	return err_set(err, RC_INVALID, "%s: no descriptor named '%s' was handed over", what, name);
}

static enum rc need_fds(const struct launch_spec *s, const struct qemu_env *env, struct err *err)
{
	enum rc rc = need_fd(env, s->efi_code_fd, "efiCodeFd", err);
	unsigned sata = 0;

	if (!rc)
		rc = need_fd(env, s->efi_vars_fd, "efiVarsFd", err);
	if (!rc && s->kernel)
		rc = need_fd(env, s->kernel->kernel_fd, "kernel.kernelFd", err);
	if (!rc && s->kernel)
		rc = need_fd(env, s->kernel->initrd_fd, "kernel.initrdFd", err);
	for (size_t i = 0; !rc && i < s->n_nics; i++)
		rc = need_fd(env, s->nics[i].fd, s->nics[i].name, err);
	for (size_t i = 0; !rc && i < s->n_disks; i++) {
		sata += s->disks[i].bus == LAUNCH_BUS_SATA;
		for (size_t k = 0; !rc && k < s->disks[i].n_images; k++)
			rc = need_fd(env, s->disks[i].images[k].fd, s->disks[i].name, err);
	}
	if (!rc && sata > SATA_PORTS)
		rc = err_set(err, RC_UNSUPPORTED, "disks: %u on the bus sata, which has %d ports",
			     sata, SATA_PORTS);
	return rc;
}

enum rc qemu_cmdline(const struct launch_spec *s, const struct qemu_env *env, struct argv *out,
		     struct err *err)
{
	enum rc rc = need_fds(s, env, err);
	unsigned next_set = 0;

	if (rc)
		return rc;
	add(out, env->qemu, NULL);
	part_machine(out, s, env);
	part_smbios(out, &s->smbios);
	part_clock(out, s, env);
	add(out, "-display", "none");
	add(out, "-msg", "timestamp=on");
	addf(out, "-action", "shutdown=pause,panic=pause,reboot=%s",
	     s->reboot_terminates ? "shutdown" : "reset");
	part_monitors(out, s, env, &next_set);
	if (s->firmware == LAUNCH_FIRMWARE_EFI)
		part_efi(out, s, env, &next_set);
	part_boot(out, s);
	part_disks(out, s, env, &next_set);
	part_nics(out, s, env);
	part_small_devices(out, s);
	part_video(out, s);
	part_inputs(out, s);
	part_agent(out, s, env);
	add(out, "-sandbox",
	    "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny");
	if (env->mode != QEMU_RUN)
		add(out, "-S", NULL);
	if (env->mode == QEMU_INCOMING)
		add(out, "-incoming", "defer");
	if (out->rc)
		return err_set(err, out->rc, "cannot build QEMU's command line");
	return RC_OK;
}
