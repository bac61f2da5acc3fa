/* The launcher's pure and small parts: tables, cgroup, records, sequences. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "json/json.h"
#include "virt/launcher/cgroup.h"
#include "virt/launcher/move_int.h"

/* --- tables --- */

static void gone_is_final_and_every_living_state_can_end(void **state)
{
	enum vm_state next;

	for (int e = 0; e < VM_EVENT__MAX; e++)
		assert_false(vm_state_next(VM_GONE, (enum vm_event)e, &next));
	for (int s = VM_STARTING; s < VM_GONE; s++) {
		assert_true(vm_state_next((enum vm_state)s, VME_EXITS, &next));
		assert_int_equal(next, VM_GONE);
	}
}

static void only_a_standing_vm_becomes_running(void **state)
{
	static const bool may[VM_STATE__MAX] = {
		[VM_STARTING] = true,	 [VM_PRELAUNCH] = true, [VM_INCOMING] = true,
		[VM_PAUSED] = true,	 [VM_MIGRATING] = true, [VM_PRE_SWITCHOVER] = true,
		[VM_POSTMIGRATE] = true, [VM_CRASHED] = true,
	};
	enum vm_state next;

	for (int s = 0; s < VM_STATE__MAX; s++)
		assert_int_equal(vm_state_next((enum vm_state)s, VME_RUNS, &next), may[s]);
}

/* The page must show each edge, and no other: lines "from -> to: event" of its tables. */
static void the_page_draws_the_tables(void **state)
{
	CLEANUP(mem_freep) char *page = NULL;
	size_t n, edges = 0, drawn = 0;
	char line[96];

	assert_int_equal(file_read(LAUNCHER_PAGE, 1 << 20, &page, &n, NULL), RC_OK);
	for (int s = 0; s < VM_STATE__MAX; s++)
		for (int e = 0; e < VM_EVENT__MAX; e++) {
			enum vm_state next;

			if (!vm_state_next((enum vm_state)s, (enum vm_event)e, &next))
				continue;
			edges++;
			snprintf(line, sizeof(line), "\n    %s -> %s: %s\n",
				 vm_state_name((enum vm_state)s), vm_state_name(next),
				 vm_event_name((enum vm_event)e));
			if (!strstr(page, line))
				fail_msg("docs/internals/launcher.md lacks '%s'", line + 1);
		}
	for (int a = 0; a < MP__MAX; a++)
		for (int b = 0; b < MP__MAX; b++) {
			if (!move_phase_next_is_legal((enum move_phase)a, (enum move_phase)b))
				continue;
			edges++;
			snprintf(line, sizeof(line), "\n    %s -> %s\n",
				 move_phase_name((enum move_phase)a),
				 move_phase_name((enum move_phase)b));
			if (!strstr(page, line))
				fail_msg("docs/internals/launcher.md lacks '%s'", line + 1);
		}
	for (const char *p = page; (p = strstr(p, "\n    ")); p++)
		drawn += strstr(p, " -> ") && strstr(p, " -> ") < strchr(p + 1, '\n');
	assert_int_equal(drawn, edges);
}

/* --- what QEMU is told --- */

static void options_have_defaults_and_limits(void **state)
{
	static const struct {
		const char *text;
		enum rc rc;
	} cases[] = {
		{"{}", RC_OK},
		{"{\"downtimeLimitMs\": 900, \"maxBandwidthBytes\": 0, \"multifdChannels\": 8}",
		 RC_OK},
		{"{\"downtimeLimitMs\": 0}", RC_INVALID},
		{"{\"downtimeLimitMs\": \"1\"}", RC_INVALID},
		{"{\"maxBandwidthBytes\": -1}", RC_INVALID},
		{"{\"unknown\": 1}", RC_INVALID},
		{"{\"postCopy\": true}", RC_OK},
		{"{\"postCopy\": 1}", RC_INVALID},
		{"{\"postCopy\": true, \"multifdChannels\": 2}", RC_INVALID},
		{"{\"postCopy\": false}", RC_OK},
		{"{\"multifdChannels\": 2, \"compression\": \"zstd\"}", RC_OK},
		{"{\"multifdChannels\": 0, \"compression\": \"none\"}", RC_OK},
		{"{\"multifdChannels\": 2, \"compression\": \"zlib\"}", RC_INVALID},
		{"{\"compression\": \"zstd\"}", RC_INVALID},
		{"{\"compression\": 1}", RC_INVALID},
		{"{\"xbzrleCacheBytes\": 67108864}", RC_OK},
		{"{\"xbzrleCacheBytes\": 67108864, \"postCopy\": true}", RC_OK},
		{"{\"xbzrleCacheBytes\": 67108865}", RC_INVALID},
		{"{\"xbzrleCacheBytes\": 67108864, \"multifdChannels\": 2}", RC_INVALID},
		{"[]", RC_INVALID},
	};
	struct mig_options o;

	assert_int_equal(mig_options_decode(NULL, &o, NULL), RC_OK);
	assert_int_equal(o.downtime_limit_ms, 300);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct json *j = NULL;

		assert_int_equal(js_parse(cases[i].text, strlen(cases[i].text), &j, NULL), RC_OK);
		assert_int_equal(mig_options_decode(j, &o, NULL), cases[i].rc);
		js_unref(j);
	}
}

static void expect_json(struct json *j, const char *want)
{
	CLEANUP(mem_freep) char *text = js_to_text(j);

	assert_string_equal(text, want);
	js_unref(j);
}

static void arguments_are_as_recorded(void **state)
{
	struct mig_options o;
	struct mig_tls tls = {.user = "ferry", .key = "00", .on = true};

	assert_int_equal(mig_options_decode(NULL, &o, NULL), RC_OK);
	expect_json(mig_capabilities(&o, MIG_SOURCE),
		    "{\"capabilities\":[{\"capability\":\"events\",\"state\":true},"
		    "{\"capability\":\"return-path\",\"state\":true},"
		    "{\"capability\":\"pause-before-switchover\",\"state\":true},"
		    "{\"capability\":\"late-block-activate\",\"state\":true},"
		    "{\"capability\":\"validate-uuid\",\"state\":true},"
		    "{\"capability\":\"rdma-pin-all\",\"state\":false},{\"capability\":\"release-"
		    "ram\",\"state\":false},"
		    "{\"capability\":\"multifd\",\"state\":false},"
		    "{\"capability\":\"xbzrle\",\"state\":false},"
		    "{\"capability\":\"postcopy-preempt\",\"state\":false},"
		    "{\"capability\":\"postcopy-ram\",\"state\":false},"
		    "{\"capability\":\"auto-converge\",\"state\":false}]}");
	expect_json(mig_parameters(&o, MIG_SOURCE, true),
		    "{\"tls-creds\":\"ferry-tls\",\"tls-hostname\":\"\",\"downtime-limit\":8,"
		    "\"max-bandwidth\":0}");
	expect_json(mig_parameters(&o, MIG_TARGET, false),
		    "{\"tls-creds\":\"\",\"tls-hostname\":\"\",\"announce-rounds\":1}");
	expect_json(mig_channels(MIG_SOURCE, "fd00::1", 49152),
		    "{\"channels\":[{\"channel-type\":\"main\",\"addr\":{\"transport\":\"socket\","
		    "\"type\":\"inet\","
		    "\"host\":\"fd00::1\",\"port\":\"49152\",\"keep-alive\":true}}]}");
	expect_json(mig_channels(MIG_TARGET, "10.0.0.2", 49152),
		    "{\"channels\":[{\"channel-type\":\"main\",\"addr\":{\"transport\":\"socket\","
		    "\"type\":\"inet\",\"host\":\"10.0.0.2\",\"port\":\"49152\"}}]}");
	expect_json(mig_recover_uri("10.0.0.2", 49153), "{\"uri\":\"tcp:10.0.0.2:49153\"}");
	expect_json(mig_recover_uri("fd00::1", 49153), "{\"uri\":\"tcp:[fd00::1]:49153\"}");
	expect_json(mig_tls_object("/creds/u", &tls, MIG_SOURCE, true),
		    "{\"qom-type\":\"tls-creds-psk\",\"id\":\"ferry-tls\",\"dir\":\"/creds/"
		    "u\",\"endpoint\":\"client\","
		    "\"username\":\"ferry\",\"priority\":\"NORMAL:-CHACHA20-POLY1305:+CHACHA20-"
		    "POLY1305\"}");
	expect_json(mig_tls_object("/creds/u", &tls, MIG_TARGET, false),
		    "{\"qom-type\":\"tls-creds-psk\",\"id\":\"ferry-tls\",\"dir\":\"/creds/"
		    "u\",\"endpoint\":\"server\"}");
}

/* preempt needs postcopy-ram, and neither goes with multifd: the order in the list counts for QEMU. */
static void post_copy_has_its_capabilities(void **state)
{
	struct mig_options o;

	assert_int_equal(mig_options_decode(NULL, &o, NULL), RC_OK);
	o.post_copy = true;
	o.max_bandwidth = 1000;
	for (int role = MIG_SOURCE; role <= MIG_TARGET; role++) {
		struct json *j = mig_capabilities(&o, (enum mig_role)role);
		CLEANUP(mem_freep) char *text = js_to_text(j);
		const char *off = strstr(text, "{\"capability\":\"multifd\",\"state\":false}");
		const char *ram = strstr(text, "{\"capability\":\"postcopy-ram\",\"state\":true}");
		const char *pre =
			strstr(text, "{\"capability\":\"postcopy-preempt\",\"state\":true}");

		assert_true(off && ram && pre && off < ram && ram < pre);
		js_unref(j);
	}
	expect_json(mig_parameters(&o, MIG_SOURCE, false),
		    "{\"tls-creds\":\"\",\"tls-hostname\":\"\",\"downtime-limit\":8,"
		    "\"max-bandwidth\":1000,\"max-postcopy-bandwidth\":1000}");
}

/* Of a pair that QEMU does not combine the one is off before the other is on. */
static void several_connections_and_xbzrle_have_theirs(void **state)
{
	struct mig_options o;

	assert_int_equal(mig_options_decode(NULL, &o, NULL), RC_OK);
	o.multifd_channels = 4;
	o.zstd = true;
	for (int x = 0; x < 2; x++) {
		struct json *j = mig_capabilities(&o, MIG_SOURCE);
		CLEANUP(mem_freep) char *text = js_to_text(j);
		const char *off = strstr(text, x ? "\"multifd\",\"state\":false"
						 : "\"xbzrle\",\"state\":false");
		const char *on = strstr(text, x ? "\"xbzrle\",\"state\":true"
						: "\"multifd\",\"state\":true");

		assert_true(off && on && off < on);
		js_unref(j);
		if (x)
			break;
		expect_json(mig_parameters(&o, MIG_TARGET, false),
			    "{\"tls-creds\":\"\",\"tls-hostname\":\"\",\"multifd-channels\":4,"
			    "\"multifd-compression\":\"zstd\",\"announce-rounds\":1}");
		o = (struct mig_options){.downtime_limit_ms = 300,
					 .initial_downtime_ms = 8,
					 .xbzrle_cache = 67108864};
	}
	expect_json(mig_parameters(&o, MIG_SOURCE, false),
		    "{\"tls-creds\":\"\",\"tls-hostname\":\"\",\"downtime-limit\":8,"
		    "\"max-bandwidth\":0,\"xbzrle-cache-size\":67108864}");
	/* What an earlier move left is said, too. */
	o.xbzrle_cache = 0;
	o.multifd_channels = 2;
	struct json *j = mig_parameters(&o, MIG_SOURCE, false);

	assert_string_equal(js_get_str(j, "multifd-compression"), "none");
	js_unref(j);
}

static void post_copy_begins_when_passes_do_not_shrink(void **state)
{
	struct mig_options o;

	assert_int_equal(mig_options_decode(NULL, &o, NULL), RC_OK);
	assert_false(mig_wants_post_copy(&o, false, 9, 1000, 1000)); /* not allowed */
	o.post_copy = true;
	assert_false(mig_wants_post_copy(&o, false, 1, 1000, 1000)); /* says nothing yet */
	assert_true(
		mig_wants_post_copy(&o, false, 2, 800, 1000)); /* most of what was sent is stale */
	assert_false(mig_wants_post_copy(&o, false, 3, 600, 1000));
	assert_true(mig_wants_post_copy(&o, false, 3, 800, 1000));
	assert_true(
		mig_wants_post_copy(&o, true, 2, 1000, 0)); /* the forecast needs no second look */
	o.auto_converge = true;				    /* throttling has its chance first */
	assert_false(mig_wants_post_copy(&o, true, 3, 1000, 0));
	assert_false(mig_wants_post_copy(&o, false, 6, 1000, 1000));
	assert_true(mig_wants_post_copy(&o, false, 7, 1000, 1000));
}

/* The word alone comes before the devices are sent, and QEMU can still fall back then. */
static void a_page_sent_in_post_copy_is_beyond_return(void **state)
{
	static const struct {
		const char *text;
		bool beyond;
	} cases[] = {
		{"{\"status\": \"active\", \"ram\": {\"postcopy-bytes\": 0}}", false},
		{"{\"status\": \"postcopy-active\", \"ram\": {\"postcopy-bytes\": 0}}", false},
		{"{\"status\": \"postcopy-active\"}", false},
		{"{\"status\": \"postcopy-active\", \"ram\": {\"postcopy-bytes\": 4096}}", true},
		{"{\"status\": \"postcopy-paused\"}", true},
		{"{\"status\": \"postcopy-recover\"}", true},
		{"{\"status\": \"postcopy-recover-setup\"}", true},
		{"{\"status\": \"failed\", \"ram\": {\"postcopy-bytes\": 4096}}", false},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct json *j = NULL;
		struct mig_stats s;

		assert_int_equal(js_parse(cases[i].text, strlen(cases[i].text), &j, NULL), RC_OK);
		mig_stats_parse(j, &s);
		assert_int_equal(mig_is_beyond_return(&s), cases[i].beyond);
		js_unref(j);
	}
}

static void the_pause_limit_follows_the_passes(void **state)
{
	struct mig_options o;

	assert_int_equal(mig_options_decode(NULL, &o, NULL), RC_OK);
	assert_int_equal(mig_next_downtime(&o, 20, 1, 1000, 0), 20);
	assert_int_equal(mig_next_downtime(&o, 20, 2, 1000, 1000), 20);
	assert_int_equal(mig_next_downtime(&o, 20, 3, 100, 1000), 40);
	assert_int_equal(mig_next_downtime(&o, 160, 6, 10, 100),
			 300); /* never above the declared one */
	assert_int_equal(mig_next_downtime(&o, 20, 3, 900, 1000), 300); /* shrinks no more */
	assert_int_equal(mig_next_downtime(&o, 300, 9, 10, 1000), 300);
}

static void statistics_are_read(void **state)
{
	static const char text[] =
		"{\"status\": \"active\", \"total-time\": 5, \"expected-downtime\": 9, "
		"\"cpu-throttle-percentage\": 30, \"ram\": "
		"{\"total\": 100, \"transferred\": 7, \"remaining\": 3, \"page-size\": 4096, "
		"\"dirty-pages-rate\": 2, \"mbps\": 8.0, \"dirty-sync-count\": 4}}";
	CLEANUP(js_unrefp) struct json *j = NULL;
	struct mig_stats s;

	assert_int_equal(js_parse(text, strlen(text), &j, NULL), RC_OK);
	mig_stats_parse(j, &s);
	assert_int_equal(s.status, MIGQ_ACTIVE);
	assert_int_equal(s.dirty_rate, 8192);
	assert_int_equal(s.rate, 1000000);
	assert_int_equal(s.passes, 4);
	assert_int_equal(s.downtime_ms, -1);
	assert_int_equal(s.throttle_percent, 30);
	mig_stats_parse(NULL, &s);
	assert_int_equal(s.status, MIGQ_NONE);
}

static void a_measurement_looks_at_so_many_pages_whatever_the_size(void **state)
{
	const int64_t gib = (int64_t)1 << 30;
	static const struct {
		int64_t gib_64ths, pages;
		const char *want;
	} cases[] = {
		{32, 2048, "4096"},	   {64, 2048, "2048"},
		{64 * 64, 16384, "256"},   {8, 16384, "16384"}, /* QEMU takes no more of a GiB */
		{64 * 1024, 16384, "128"},			/* and no fewer */
		{0, 16384, "16384"},
	};
	char want[120];

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		snprintf(want, sizeof(want),
			 "{\"calc-time\":4,\"sample-pages\":%s,\"mode\":\"page-sampling\"}",
			 cases[i].want);
		expect_json(mig_measure(4, cases[i].gib_64ths * gib / 64, cases[i].pages), want);
	}
}

static void measurements_are_read(void **state)
{
	static const struct {
		const char *text;
		bool is_done, goes_on;
		int64_t rate;
	} cases[] = {
		{"{\"status\": \"measured\", \"dirty-rate\": 32, \"calc-time\": 1}", true, false,
		 32 << 20},
		{"{\"status\": \"measured\", \"dirty-rate\": 0, \"calc-time\": 4}", true, false, 0},
		{"{\"status\": \"measuring\", \"calc-time\": 1}", false, true, 0},
		{"{\"status\": \"unstarted\", \"calc-time\": 1}", false, false, 0},
		{"{\"status\": \"measured\", \"calc-time\": 1}", false, false, 0},
		{"{\"status\": \"measured\", \"dirty-rate\": -1, \"calc-time\": 1}", false, false,
		 0},
		{"{\"status\": \"measured\", \"dirty-rate\": 9223372036854775807, \"calc-time\": 1}",
		 false, false, 0},
		{"{\"status\": \"measured\", \"dirty-rate\": 5, \"calc-time\": 0}", false, false,
		 0},
		{"{}", false, false, 0},
		{"[1]", false, false, 0},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct json *j = NULL;
		struct mig_measured m;

		assert_int_equal(js_parse(cases[i].text, strlen(cases[i].text), &j, NULL), RC_OK);
		mig_measured_parse(j, &m);
		assert_int_equal(m.is_done, cases[i].is_done);
		assert_int_equal(m.goes_on, cases[i].goes_on);
		assert_int_equal(m.bytes_per_second, cases[i].rate);
		js_unref(j);
	}
}

static void only_literal_addresses_are_addresses(void **state)
{
	assert_true(mig_is_address("10.0.0.1"));
	assert_true(mig_is_address("fe80::1"));
	assert_false(mig_is_address("localhost"));
	assert_false(mig_is_address("10.0.0.1,ipv6=on"));
	assert_false(mig_is_address(""));
	assert_false(mig_is_address(NULL));
}

/* --- cgroup: a fake tree of plain files --- */

static void put_file(const char *root, const char *name, const char *text)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", root, name);
	assert_int_equal(file_write_durable(path, text, strlen(text), 0644, NULL), RC_OK);
}

static void expect_file(const char *root, const char *name, const char *want)
{
	CLEANUP(mem_freep) char *text = NULL;
	char path[256];
	size_t n;

	snprintf(path, sizeof(path), "%s/%s", root, name);
	assert_int_equal(file_read(path, 4096, &text, &n, NULL), RC_OK);
	assert_true(str_has_prefix(text, want));
}

static void limits_are_written_where_the_kernel_offers_them(void **state)
{
	char root[] = "/tmp/test_cgroup.XXXXXX", dir[128], path[] = "ferry.slice/vm-1.scope";
	struct launch_cgroup c = {
		.path = path, .memory_max = 1000, .cpu_weight = 50, .cpu_quota_us = 20000};
	struct err err = {0};
	int fd = -1;

	assert_non_null(mkdtemp(root));
	/* the kernel would make these files with the folders */
	snprintf(dir, sizeof(dir), "%s/ferry.slice", root);
	assert_int_equal(mkdir(dir, 0755), 0);
	put_file(root, "cgroup.subtree_control", "");
	put_file(dir, "cgroup.subtree_control", "");
	assert_int_equal(cgroup_prepare(root, &c, &fd, &err), RC_UNSUPPORTED);
	assert_non_null(strstr(err.msg, "memory.max"));
	assert_int_equal(fd, -1);
	snprintf(dir, sizeof(dir), "%s/ferry.slice/vm-1.scope", root);
	put_file(dir, "memory.max", "max\n");
	put_file(dir, "cpu.weight", "100\n");
	put_file(dir, "cpu.max", "max 100000\n");
	put_file(dir, "cgroup.procs", "");
	assert_int_equal(cgroup_prepare(root, &c, &fd, &err), RC_OK);
	assert_true(fd >= 0);
	close(fd);
	expect_file(dir, "memory.max", "1000\n");
	expect_file(dir, "cpu.weight", "50\n");
	expect_file(dir, "cpu.max", "20000 100000\n");
	expect_file(root, "cgroup.subtree_control", "+");
	assert_int_equal(file_remove_tree(dir, NULL), RC_OK);
	assert_true(cgroup_remove(root, &c)); /* gone already is fine */
	c.path = NULL;
	assert_int_equal(cgroup_prepare(root, &c, &fd, &err), RC_OK);
	assert_int_equal(fd, -1);
	assert_int_equal(file_remove_tree(root, NULL), RC_OK);
}

/* --- records --- */

static void a_reused_pid_is_not_the_same_process(void **state)
{
	pid_t pid = fork();

	if (pid == 0)
		for (;;)
			pause();
	struct proc p = {.pid = pid, .pidfd = -1};

	assert_true(proc_identify(&p));
	assert_int_equal(proc_open(&p, NULL), RC_OK);
	proc_close(&p);
	p.start++;
	assert_int_equal(proc_open(&p, NULL), RC_NOT_FOUND);
	p.start--;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	assert_int_equal(proc_open(&p, NULL), RC_NOT_FOUND);
	p.pid = 0;
	assert_int_equal(proc_open(&p, NULL), RC_NOT_FOUND);
}

static void records_survive_and_pids_of_another_boot_do_not(void **state)
{
	char dir[] = "/tmp/test_record.XXXXXX", path[64];
	char name[] = "default/vm", uid[] = "u", machine[] = "pc-q35-10.0";
	struct launch_spec spec = {.name = name,
				   .vmi_uid = uid,
				   .machine = machine,
				   .sockets = 1,
				   .cores = 2,
				   .threads = 1};
	struct launcher a = {.config.dir = dir,
			     .spec = &spec,
			     .mode = QEMU_INCOMING,
			     .accel = "tcg",
			     .reaper = {11, 12, -1},
			     .qemu = {13, 14, -1}};
	struct launcher b = {.config.dir = dir}, c = {.config.dir = dir};
	char *text = NULL, *boot;
	size_t n;

	assert_non_null(mkdtemp(dir));
	assert_int_equal(record_load(&b, NULL), RC_NOT_FOUND);
	assert_int_equal(record_save(&a, NULL), RC_OK);
	assert_int_equal(record_load(&b, NULL), RC_OK);
	assert_int_equal(b.mode, QEMU_INCOMING);
	assert_int_equal(b.reaper.pid, 11);
	assert_int_equal(b.qemu.start, 14);
	assert_int_equal(b.spec->cores, 2);
	launch_spec_free(b.spec);

	snprintf(path, sizeof(path), "%s/vm.json", dir);
	assert_int_equal(file_read(path, 8192, &text, &n, NULL), RC_OK);
	boot = strstr(text, "\"bootId\":\"") + strlen("\"bootId\":\"");
	boot[0] = boot[0] == '0' ? '1' : '0';
	assert_int_equal(file_write_durable(path, text, n, 0600, NULL), RC_OK);
	assert_int_equal(record_load(&c, NULL), RC_OK);
	assert_int_equal(c.reaper.pid, 0);
	launch_spec_free(c.spec);
	mem_free(text);
	assert_int_equal(file_remove_tree(dir, NULL), RC_OK);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gone_is_final_and_every_living_state_can_end),
		cmocka_unit_test(only_a_standing_vm_becomes_running),
		cmocka_unit_test(the_page_draws_the_tables),
		cmocka_unit_test(options_have_defaults_and_limits),
		cmocka_unit_test(arguments_are_as_recorded),
		cmocka_unit_test(post_copy_has_its_capabilities),
		cmocka_unit_test(several_connections_and_xbzrle_have_theirs),
		cmocka_unit_test(post_copy_begins_when_passes_do_not_shrink),
		cmocka_unit_test(a_page_sent_in_post_copy_is_beyond_return),
		cmocka_unit_test(the_pause_limit_follows_the_passes),
		cmocka_unit_test(statistics_are_read),
		cmocka_unit_test(a_measurement_looks_at_so_many_pages_whatever_the_size),
		cmocka_unit_test(measurements_are_read),
		cmocka_unit_test(only_literal_addresses_are_addresses),
		cmocka_unit_test(limits_are_written_where_the_kernel_offers_them),
		cmocka_unit_test(a_reused_pid_is_not_the_same_process),
		cmocka_unit_test(records_survive_and_pids_of_another_boot_do_not),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("launcher_parts", tests, NULL, NULL);
}
