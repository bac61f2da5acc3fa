#include "virt/launcher/launch_spec.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "json/json.h"
#include "lib/torture.h"
#include "virt/launcher/qemu_cmdline.h"

/* Golden files: <name>.json is the spec, <name>.<mode>.args the command line, one argument a line.
 * GOLDEN_UPDATE=1 writes the latter anew: read the difference before committing it. */

static struct json *read_json(const char *name)
{
	CLEANUP(mem_freep) char *text = NULL;
	struct json *j = NULL;
	char path[512];
	size_t n;

	snprintf(path, sizeof(path), "%s/%s.json", GOLDEN_DIR, name);
	assert_int_equal(file_read(path, 65536, &text, &n, NULL), RC_OK);
	assert_int_equal(js_parse(text, n, &j, NULL), RC_OK);
	return j;
}

static struct launch_spec *read_spec(const char *name)
{
	CLEANUP(js_unrefp) struct json *j = read_json(name);
	struct launch_spec *s = NULL;
	struct err err = {0};

	if (launch_spec_decode(j, &s, &err))
		fail_msg("%s: %s", name, err.msg);
	return s;
}

static char fd_names[][16] = {"kernel", "initrd", "tap:default", "code",   "vars",
			      "root:0", "root:1", "data:0",	 "seed:0", "more:0",
			      "lun:0",	"tap:a",  "tap:b"};

static void make_env(struct qemu_env *env, struct qemu_fd *fds, enum qemu_mode mode, bool kvm)
{
	for (size_t i = 0; i < ARRAY_SIZE(fd_names); i++)
		fds[i] = (struct qemu_fd){fd_names[i], 20 + (int)i,
					  str_eq(fd_names[i], "lun:0") ||
						  str_eq(fd_names[i], "data:0")};
	*env = (struct qemu_env){.mode = mode,
				 .kvm = kvm,
				 .qemu = "/usr/bin/qemu-system-x86_64",
				 .fds = fds,
				 .n_fds = ARRAY_SIZE(fd_names),
				 .qmp_fd = {10, 11},
				 .serial_fd = 12,
				 .agent_fd = 14,
				 .serial_log_fd = 13,
				 .realtime = (usec_t)1767225600 * USEC_PER_SEC};
}

static void golden(const char *name, enum qemu_mode mode, const char *mode_name, bool kvm)
{
	CLEANUP(launch_spec_freep) struct launch_spec *s = read_spec(name);
	CLEANUP(mem_freep) char *want = NULL;
	struct qemu_fd fds[ARRAY_SIZE(fd_names)];
	struct qemu_env env;
	struct argv argv = {0};
	struct sbuf got = SBUF_INIT(1 << 20);
	struct err err = {0};
	char path[512];
	size_t n;

	if (launch_spec_check(s, &err))
		fail_msg("%s: %s", name, err.msg);
	make_env(&env, fds, mode, kvm);
	if (qemu_cmdline(s, &env, &argv, &err))
		fail_msg("%s: %s", name, err.msg);
	for (size_t i = 0; i < argv.n; i++)
		sbuf_addf(&got, "%s\n", argv.v[i]);
	snprintf(path, sizeof(path), "%s/%s.%s.args", GOLDEN_DIR, name, mode_name);
	if (getenv("GOLDEN_UPDATE"))
		assert_int_equal(file_write_durable(path, got.p, got.n, 0644, NULL), RC_OK);
	assert_int_equal(file_read(path, 1 << 20, &want, &n, NULL), RC_OK);
	assert_string_equal(sbuf_str(&got), want);
	sbuf_fini(&got);
	argv_fini(&argv);
}

static void command_lines_are_as_recorded(void **state)
{
	golden("tiny", QEMU_RUN, "run", false);
	golden("tiny", QEMU_INCOMING, "incoming", false);
	golden("full", QEMU_PAUSED, "paused", true);
}

static void a_spec_survives_encoding_and_decoding(void **state)
{
	static const char *const names[] = {"tiny", "full"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		CLEANUP(launch_spec_freep) struct launch_spec *a = read_spec(names[i]), *b = NULL;
		CLEANUP(js_unrefp) struct json *ja = launch_spec_encode(a), *jb = NULL;

		assert_int_equal(launch_spec_decode(ja, &b, NULL), RC_OK);
		jb = launch_spec_encode(b);
		assert_true(js_equal(ja, jb));
	}
}

/* Replaces the value at one pointer-like path of the full spec, and tells what the checks say. */
static enum rc check_with(const char *a, int index, const char *b, struct json *value,
			  struct err *err)
{
	CLEANUP(js_unrefp) struct json *j = read_json("full");
	CLEANUP(launch_spec_freep) struct launch_spec *s = NULL;
	struct json *at = js_get(j, a);

	if (!b)
		ignore_rc(js_set(j, a, value));
	else
		ignore_rc(js_set(index < 0 ? at : js_item(at, (size_t)index), b,
				 value)); /* out of memory: the test fails */
	enum rc rc = launch_spec_decode(j, &s, err);

	return rc ? rc : launch_spec_check(s, err);
}

static void bad_values_are_refused_with_their_path(void **state)
{
	const struct {
		const char *a;
		int index;
		const char *b;
		struct json *value;
		const char *path;
	} cases[] = {
		{"name", -1, NULL, js_new_str(""), "name"},
		{"name", -1, NULL, js_new_str("a\nb"), "name"},
		{"machine", -1, NULL, js_new_str("pc-q35-9.2,accel=kvm"), "machine"},
		{"machine", -1, NULL, js_new_str("pc-i440fx-9.2"), "machine"},
		{"cpuModel", -1, NULL, js_new_str("host,+x"), "cpuModel"},
		{"memoryBytes", -1, NULL, js_new_int(0), "memoryBytes"},
		{"memoryBytes", -1, NULL, js_new_int(536870913), "memoryBytes"},
		{"memoryBytes", -1, NULL, js_new_int(INT64_MAX), "memoryBytes"},
		{"memoryBytes", -1, NULL, js_new_str("1"), "memoryBytes"},
		{"sockets", -1, NULL, js_new_int(0), "sockets"},
		{"sockets", -1, NULL, js_new_int(4000), "vCPUs"},
		{"uid", -1, NULL, js_new_int(0), "uid"},
		{"firmware", -1, NULL, js_new_str("bios"), "efiCodeFd"},
		{"firmware", -1, NULL, js_new_str("coreboot"), "firmware"},
		{"surprise", -1, NULL, js_new_int(1), "surprise"},
		{"video", -1, NULL, js_new_str("cga"), "video"},
		{"inputs", -1, NULL, js_pack("[{},{},{},{},{},{},{},{},{}]"), "inputs"},
		{"inputs", 0, "bus", js_new_str("ps2"), "inputs[0].bus"},
		{"features", 0, "name", js_new_str("x=on,y"), "features[0].name"},
		{"smbios", -1, "uuid", js_new_str("5d307ca9-b3ef-428c-8861-06e72d69f22,"),
		 "smbios.uuid"},
		{"smbios", -1, "family", js_new_str("a\tb"), "smbios.family"},
		{"cgroup", -1, "path", js_new_str("../../x"), "cgroup.path"},
		{"cgroup", -1, "path", js_new_str("/x"), "cgroup.path"},
		{"nics", 0, "mac", js_new_str("0a:58:0a:f4:01:03"), "nics[1].mac"},
		{"nics", 0, "mac", js_new_str("01:58:0a:f4:01:02"), "nics[0].mac"},
		{"nics", 0, "mac", js_new_str("00:00:00:00:00:00"), "nics[0].mac"},
		{"nics", 0, "mac", js_new_str("0a:58:0a:f4:01:02,x"), "nics[0].mac"},
		{"nics", 0, "mtu", js_new_int(10), "nics[0].mtu"},
		{"nics", 0, "bootOrder", js_new_int(1), "nics[0].bootOrder"},
		{"disks", 1, "bootOrder", js_new_int(1), "bootOrder"},
		{"nics", 1, "name", js_new_str("a"), "nics[1].name"},
		{"disks", 0, "name", js_new_str("disk,file=/etc/shadow"), "disks[0].name"},
		{"disks", 0, "name", js_new_str("data"), "disks[1].name"},
		{"disks", 0, "serial", js_new_str("a\x01"), "disks[0].serial"},
		{"disks", 0, "shareable", js_new_bool(true), "disks[0]"},
		{"disks", 0, "images", js_new_array(), "disks[0].images"},
		{"disks", 0, "format", js_new_str("qcow2"), "disks[0].format"},
		{"disks", 2, "readOnly", js_new_bool(false), "disks[2]"},
		{"disks", 2, "bus", js_new_str("virtio"), "disks[2]"},
		{"disks", 4, "bus", js_new_str("sata"), "disks[4]"},
		{"disks", 1, "cache", js_new_str("writeback"), "disks[1]"},
		{"disks", 1, "logicalBlockSize", js_new_int(513), "disks[1]"},
		{"disks", 1, "bootOrder", js_new_int(-1), "disks[1].bootOrder"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct err err = {0};
		enum rc rc =
			check_with(cases[i].a, cases[i].index, cases[i].b, cases[i].value, &err);

		if ((rc != RC_INVALID && rc != RC_UNSUPPORTED) ||
		    !str_has_prefix(err.msg, cases[i].path))
			fail_msg("case %zu: %s '%s' (expected %s)", i, rc_name(rc), err.msg,
				 cases[i].path);
	}
}

/* What QEMU gets for a card; NULL in the table: no display at all. */
static void every_graphics_card_has_its_device(void **state)
{
	static const char *const devices[] = {
		NULL,
		"{\"driver\":\"VGA\",\"id\":\"video0\",\"bus\":\"pcie.0\",\"addr\":\"0x1\",\"vgamem_mb\":16}",
		"{\"driver\":\"cirrus-vga\",\"id\":\"video0\",\"bus\":\"pcie.0\",\"addr\":\"0x1\"}",
		"{\"driver\":\"virtio-vga\",\"id\":\"video0\",\"bus\":\"pcie.0\",\"addr\":\"0x1\"}",
		"{\"driver\":\"ramfb\",\"id\":\"video0\"}",
		"{\"driver\":\"bochs-display\",\"id\":\"video0\",\"bus\":\"pcie.0\",\"addr\":\"0x1\","
		"\"vgamem\":16777216}",
	};

	for (unsigned v = 0; v < LAUNCH_VIDEO__MAX; v++) {
		CLEANUP(launch_spec_freep) struct launch_spec *s = read_spec("tiny");
		struct qemu_fd fds[ARRAY_SIZE(fd_names)];
		struct argv argv = {0};
		struct qemu_env env;
		unsigned found = 0, vnc = 0;
		enum launch_video again;

		assert_true(launch_video_parse(launch_video_name((enum launch_video)v), &again));
		assert_int_equal(again, v);
		s->video = (enum launch_video)v;
		make_env(&env, fds, QEMU_RUN, false);
		assert_int_equal(qemu_cmdline(s, &env, &argv, NULL), RC_OK);
		for (size_t i = 0; i + 1 < argv.n; i++) {
			found += str_eq(argv.v[i], "-device") && str_eq(argv.v[i + 1], devices[v]);
			if (str_eq(argv.v[i], "-vnc")) {
				assert_string_equal(argv.v[i + 1], "none"); /* it listens nowhere */
				vnc++;
			}
		}
		assert_int_equal(found, v != LAUNCH_VIDEO_NONE);
		assert_int_equal(vnc, v != LAUNCH_VIDEO_NONE);
		argv_fini(&argv);
	}
}

static void a_missing_descriptor_is_named(void **state)
{
	CLEANUP(launch_spec_freep) struct launch_spec *s = read_spec("tiny");
	struct qemu_fd fds[ARRAY_SIZE(fd_names)];
	struct qemu_env env;
	struct argv argv = {0};
	struct err err = {0};

	make_env(&env, fds, QEMU_RUN, false);
	env.n_fds = 2; /* no tap */
	assert_int_equal(qemu_cmdline(s, &env, &argv, &err), RC_INVALID);
	assert_non_null(strstr(err.msg, "'tap:default'"));
	argv_fini(&argv);
}

static struct json *torture_json;

static enum rc whole_way(void)
{
	CLEANUP(launch_spec_freep) struct launch_spec *s = NULL;
	struct qemu_fd fds[ARRAY_SIZE(fd_names)];
	struct argv argv = {0};
	struct qemu_env env;
	enum rc rc = launch_spec_decode(torture_json, &s, NULL);

	make_env(&env, fds, QEMU_RUN, true);
	if (!rc)
		rc = qemu_cmdline(s, &env, &argv, NULL);
	argv_fini(&argv);
	if (!rc) {
		struct json *j = launch_spec_encode(s);

		rc = j ? RC_OK : RC_NOMEM;
		js_unref(j);
	}
	return rc;
}

static void no_memory_leaks_when_allocations_fail(void **state)
{
	torture_json = read_json("full");
	torture(whole_way);
	torture_json = js_unref(torture_json);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(command_lines_are_as_recorded),
		cmocka_unit_test(a_spec_survives_encoding_and_decoding),
		cmocka_unit_test(bad_values_are_refused_with_their_path),
		cmocka_unit_test(every_graphics_card_has_its_device),
		cmocka_unit_test(a_missing_descriptor_is_named),
		cmocka_unit_test(no_memory_leaks_when_allocations_fail),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("launch_spec", tests, NULL, NULL);
}
