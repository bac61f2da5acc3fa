/* What a node decides without I/O: CPU labels, the launch spec of a VMI, what it says in a VMI.
 *
 * Golden files are in tests/golden/node; FERRY_GOLDEN_UPDATE=1 writes them anew. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "api/gen/api_types.h"
#include "api/meta.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "ctl/plan.h"
#include "json/json.h"
#include "lib/torture.h"
#include "virt/migration/host_disks.h"
#include "virt/node/cpulabels.h"
#include "virt/node/vmspec.h"
#include "virt/node/vmsync.h"

#define NOW ((usec_t)1700000000 * USEC_PER_SEC)

static struct vm_facts running(void);

static struct json *read_json(const char *name)
{
	char path[300];
	char *text = NULL;
	size_t n;
	struct json *j = NULL;
	struct err err = {0};

	(void)snprintf(path, sizeof(path), GOLDEN_DIR "/%s", name);
	if (file_read(path, MIB, &text, &n, &err) || js_parse(text, n, &j, &err))
		fail_msg("%s", err.msg);
	mem_free(text);
	return j;
}

static VirtualMachineInstance *read_vmi(const char *name)
{
	struct json *j = read_json(name);
	VirtualMachineInstance *vmi = NULL;

	assert_int_equal(VirtualMachineInstance_decode(j, &vmi, NULL), RC_OK);
	js_unref(j);
	return vmi;
}

static void check_golden(const char *name, const char *text)
{
	char path[300];
	char *wanted = NULL;
	size_t n;

	(void)snprintf(path, sizeof(path), GOLDEN_DIR "/%s", name);
	if (getenv("FERRY_GOLDEN_UPDATE"))
		assert_int_equal(file_write_durable(path, text, strlen(text), 0644, NULL), RC_OK);
	if (file_read(path, MIB, &wanted, &n, NULL))
		fail_msg("'%s' is missing", path);
	assert_string_equal(text, wanted);
	mem_free(wanted);
}

/* --- CPU --- */

static void the_host_model_lacks_the_fewest_features(void **state)
{
	struct json *probe = read_json("probe.json");
	struct cpu_host_model hm;

	(void)state;
	assert_int_equal(cpu_host_model_choose(probe, &hm, NULL), RC_OK);
	/* qemu64 is obsolete and SandyBridge deprecated, though they lack nothing; Haswell is not usable;
	 * Nehalem lacks more; Westmere-v1 lacks as much but has a version. */
	assert_string_equal(hm.name, "Westmere");
	assert_int_equal(hm.n_required, 1);
	assert_string_equal(hm.required[0], "avx2");
	assert_false(hm.is_obsolete);
	cpu_host_model_fini(&hm);
	js_unref(probe);
}

static void labels_are_those_of_the_golden_file(void **state)
{
	struct json *probe = read_json("probe.json");
	CLEANUP(api_map_fini) struct api_map labels = {0};
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(65536);

	(void)state;
	assert_int_equal(cpu_labels(probe, &labels, NULL), RC_OK);
	for (size_t i = 0; i < labels.n; i++) {
		assert_true(cpu_label_is_ours(labels.items[i].key));
		assert_true(api_is_qualified_name(labels.items[i].key));
		sbuf_addf(&b, "%s=%s\n", labels.items[i].key, labels.items[i].value);
	}
	check_golden("labels.txt", sbuf_str(&b));
	js_unref(probe);
}

static void machine_aliases_are_resolved(void **state)
{
	struct json *probe = read_json("probe.json");

	(void)state;
	assert_string_equal(cpu_machine_resolve(probe, "q35"), "pc-q35-10.0");
	assert_string_equal(cpu_machine_resolve(probe, "pc-q35-9.2"), "pc-q35-9.2");
	assert_null(cpu_machine_resolve(probe, "pc-q35-1.0"));
	js_unref(probe);
}

/* --- launch spec --- */

static const struct vmspec_disk disks[] = {
	{.volume = "root", .top_format = IMAGE_RAW, .has_direct_io = true},
	{.volume = "data", .top_format = IMAGE_QCOW2, .moves = true},
	{.volume = "seed", .top_format = IMAGE_RAW, .moves = true},
	{.volume = "image",
	 .top_format = IMAGE_QCOW2,
	 .base_format = IMAGE_RAW,
	 .has_base = true,
	 .moves = true,
	 .has_direct_io = true},
};

static struct vmspec_env make_env(const struct json *probe)
{
	return (struct vmspec_env){.probe = probe,
				   .accel = "tcg",
				   .disks = disks,
				   .n_disks = ARRAY_SIZE(disks),
				   .uid = 200001,
				   .mac = "0a:58:0a:f4:01:02",
				   .mtu = 1450,
				   .pod_uid = "pod-uid"};
}

static void a_vmi_gives_the_golden_spec(void **state)
{
	struct json *probe = read_json("probe.json");
	VirtualMachineInstance *vmi = read_vmi("full.vmi.json");
	struct vmspec_env env = make_env(probe);
	CLEANUP(launch_spec_freep) struct launch_spec *s = NULL;
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(65536);
	struct err err = {0};

	(void)state;
	if (vmspec_build(vmi, &env, &s, &err))
		fail_msg("%s", err.msg);
	struct json *j = launch_spec_encode(s);

	js_print_pretty(j, &b, 2);
	sbuf_addc(&b, '\n');
	check_golden("full.spec.json", sbuf_str(&b));
	js_unref(j);
	VirtualMachineInstance_free(vmi);
	js_unref(probe);
}

static void a_running_vm_keeps_its_cpu_and_machine_where_it_goes(void **state)
{
	struct json *probe = read_json("probe.json");
	VirtualMachineInstance *vmi = read_vmi("full.vmi.json");
	struct vmspec_env env = make_env(probe);
	CLEANUP(launch_spec_freep) struct launch_spec *s = NULL;
	FerryVMIStatus *fs = api_ensure(&api_type_FerryVMIStatus, &vmi->status.ferry);
	Machine *m = api_ensure(&api_type_Machine, &vmi->status.machine);

	(void)state;
	assert_int_equal(api_set_str(&fs->cpuModel, "Nehalem,+aes,-vmx"), RC_OK);
	assert_int_equal(api_set_str(&m->type, "pc-q35-9.2"), RC_OK);
	assert_int_equal(vmspec_build(vmi, &env, &s, NULL), RC_OK);
	assert_string_equal(s->machine, "pc-q35-9.2");
	char *text = vmspec_cpu_text(s);

	assert_string_equal(text, "Nehalem,+aes,-vmx");
	mem_free(text);
	VirtualMachineInstance_free(vmi);
	js_unref(probe);
}

/* fs_video: what stands in the status of one that runs already ("": it has none); NULL: it has not run yet. */
static enum rc build_display(const char *devices, const char *fs_video, struct launch_spec **out,
			     struct err *err)
{
	struct json *probe = read_json("probe.json");
	VirtualMachineInstance *vmi = read_vmi("full.vmi.json");
	struct vmspec_env env = make_env(probe);
	Devices *d = &vmi->spec.domain.devices;
	VideoDevice *video =
		str_is_empty(devices) ? NULL : api_ensure(&api_type_VideoDevice, &d->video);

	if (str_eq(devices, "off")) {
		d->video = api_free(&api_type_VideoDevice, d->video);
		API_SET(d, autoattachGraphicsDevice, false);
	} else if (video) {
		assert_int_equal(api_set_str(&video->type, devices), RC_OK);
	}
	if (fs_video) {
		FerryVMIStatus *fs = api_ensure(&api_type_FerryVMIStatus, &vmi->status.ferry);

		assert_int_equal(api_set_str(&fs->cpuModel, "Nehalem"), RC_OK);
		assert_int_equal(api_set_str(&fs->video, *fs_video ? fs_video : NULL), RC_OK);
	}
	enum rc rc = vmspec_build(vmi, &env, out, err);

	VirtualMachineInstance_free(vmi);
	js_unref(probe);
	return rc;
}

static void a_vm_has_the_card_that_it_was_started_with(void **state)
{
	static const struct {
		const char *devices, *running;
		enum launch_video video;
	} rows[] = {
		{NULL, NULL, LAUNCH_VIDEO_VGA},	       {"off", NULL, LAUNCH_VIDEO_NONE},
		{"virtio", NULL, LAUNCH_VIDEO_VIRTIO}, {"ramfb", NULL, LAUNCH_VIDEO_RAMFB},
		{"cirrus", NULL, LAUNCH_VIDEO_CIRRUS}, {"bochs", NULL, LAUNCH_VIDEO_BOCHS},
		{NULL, "", LAUNCH_VIDEO_NONE}, /* by a Ferry that had no displays */
		{NULL, "vga", LAUNCH_VIDEO_VGA},       {"cirrus", "", LAUNCH_VIDEO_NONE},
		{NULL, "bochs", LAUNCH_VIDEO_BOCHS},
	};
	struct launch_spec *s = NULL;
	struct err err = {0};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		assert_int_equal(build_display(rows[i].devices, rows[i].running, &s, NULL), RC_OK);
		if (s->video != rows[i].video)
			fail_msg("row %zu: %s", i, launch_video_name(s->video));
		s = launch_spec_free(s);
	}
	assert_int_equal(build_display(NULL, "holo", &s, &err), RC_UNSUPPORTED);
	assert_string_equal(err.msg, "graphics card 'holo' is not supported");
}

static void memory_in_decimal_units_is_whole_mebibytes(void **state)
{
	static const struct {
		const char *guest;
		int64_t mib;
	} rows[] = {
		{"64M", 62}, {"1024M", 977}, {"128Mi", 128}, {"129Mi", 129}, {"134217729", 129}};
	struct json *probe = read_json("probe.json");
	VirtualMachineInstance *vmi = read_vmi("full.vmi.json");
	struct vmspec_env env = make_env(probe);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		CLEANUP(launch_spec_freep) struct launch_spec *s = NULL;

		assert_int_equal(api_set_str(&vmi->spec.domain.memory->guest, rows[i].guest),
				 RC_OK);
		assert_int_equal(vmspec_build(vmi, &env, &s, NULL), RC_OK);
		assert_int_equal(s->memory_bytes, rows[i].mib * (int64_t)MIB);
	}
	assert_int_equal(api_set_str(&vmi->spec.domain.memory->guest, "9223372036854775807"),
			 RC_OK);
	assert_int_equal(vmspec_memory(vmi),
			 INT64_MAX); /* what no machine has: launch_spec_check() says so */
	VirtualMachineInstance_free(vmi);
	js_unref(probe);
}

static void host_model_stands_for_what_the_pod_says(void **state)
{
	struct json *probe = read_json("probe.json");
	VirtualMachineInstance *vmi = read_vmi("full.vmi.json");
	struct vmspec_env env = make_env(probe);
	struct launch_spec *s = NULL;
	struct err err = {0};

	(void)state;
	env.host_model = "Nehalem";
	assert_int_equal(vmspec_build(vmi, &env, &s, NULL), RC_OK);
	assert_string_equal(s->cpu_model, "Nehalem");
	char *text = vmspec_cpu_text(s);

	assert_string_equal(text, "Nehalem,-vmx,+avx2"); /* only what the VM asked for */
	mem_free(text);
	launch_spec_free(s);
	s = NULL;
	env.host_model = "Haswell"; /* lacks a feature here */
	assert_int_equal(vmspec_build(vmi, &env, &s, &err), RC_UNSUPPORTED);
	assert_non_null(strstr(err.msg, "'Haswell'"));
	VirtualMachineInstance_free(vmi);
	js_unref(probe);
}

/* A guest that came by a move: what stands in its status, and what this node makes of it. */
static enum rc build_moved(const struct json *probe, const char *model, const char *const *seen,
			   size_t n, const char *qemu, char **text, struct err *err)
{
	VirtualMachineInstance *vmi = read_vmi("full.vmi.json");
	struct vmspec_env env = make_env(probe);
	CLEANUP(launch_spec_freep) struct launch_spec *s = NULL;
	FerryVMIStatus *fs = api_ensure(&api_type_FerryVMIStatus, &vmi->status.ferry);
	FerryGuestCPU *cpu = api_ensure(&api_type_FerryGuestCPU, &fs->cpu);

	assert_int_equal(api_set_str(&fs->cpuModel, model), RC_OK);
	assert_int_equal(api_set_str(&fs->qemuVersion, qemu), RC_OK);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(api_append_str(&cpu->features, &cpu->n_features, seen[i]), RC_OK);
	enum rc rc = vmspec_build(vmi, &env, &s, err);

	*text = rc ? NULL : vmspec_cpu_text(s);
	VirtualMachineInstance_free(vmi);
	return rc;
}

static void a_moved_guest_gets_the_cpu_that_it_has_seen_or_a_reason(void **state)
{
	static const char *const small[] = {"aes", "sse4.2"}, *const big[] = {"aes", "avx512f"};
	struct json *probe = read_json("probe.json");
	struct err err = {0};
	char *text;

	(void)state;
	/* This node has avx2 as well: the guest does not get it on the way. */
	assert_int_equal(build_moved(probe, "max", small, 2, "10.0.2", &text, NULL), RC_OK);
	assert_string_equal(text, "max,-avx2");
	mem_free(text);
	assert_int_equal(build_moved(probe, "max", big, 2, "10.0.2", &text, &err), RC_UNSUPPORTED);
	assert_string_equal(err.msg,
			    "this node lacks the CPU feature avx512f, which the guest has");
	assert_int_equal(build_moved(probe, "Haswell", small, 2, "10.0.2", &text, &err),
			 RC_UNSUPPORTED);
	assert_string_equal(err.msg,
			    "this node lacks the CPU feature pcid, which the model Haswell has");
	assert_int_equal(build_moved(probe, "EPYC", small, 2, "10.0.2", &text, &err),
			 RC_UNSUPPORTED);
	assert_string_equal(err.msg, "this node's QEMU has no CPU model 'EPYC'");
	assert_int_equal(build_moved(probe, "max", small, 2, "10.1.0", &text, &err),
			 RC_UNSUPPORTED);
	assert_string_equal(err.msg, "this node has QEMU 10.0.2, older than the guest's 10.1.0");
	js_unref(probe);
}

static void what_a_node_keeps_back_no_guest_gets(void **state)
{
	struct json *probe = read_json("probe.json");
	VirtualMachineInstance *vmi = read_vmi("full.vmi.json"); /* requires avx2, has vmx off */
	struct vmspec_env env = make_env(probe);
	CLEANUP(launch_spec_freep) struct launch_spec *s = NULL;

	(void)state;
	assert_int_equal(js_set(probe, "without", js_pack("[s]", "avx2")), RC_OK);
	assert_int_equal(js_set(js_get(probe, "host"), "avx2", js_new_bool(false)), RC_OK);
	assert_int_equal(api_set_str(&vmi->spec.domain.cpu->model, "host-passthrough"), RC_OK);
	assert_int_equal(vmspec_build(vmi, &env, &s, NULL), RC_OK);
	char *text = vmspec_cpu_text(s);

	assert_non_null(strstr(text, "max,-avx2"));
	assert_null(strstr(text, "+avx2"));
	mem_free(text);
	VirtualMachineInstance_free(vmi);
	js_unref(probe);
}

static void the_guests_cpu_is_told_without_what_says_nothing_of_the_machine(void **state)
{
	VirtualMachineInstance *vmi = read_vmi("full.vmi.json");
	struct vm_facts f = running();
	CLEANUP(plan_fini) struct plan plan = {0};
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(65536);
	struct json *cpu =
		js_pack("{s:s, s:[s, s]}", "model", "max", "features", "avx2", "hypervisor");

	(void)state;
	f.cpu = cpu;
	plan_init(&plan);
	assert_int_equal(api_set_str(&vmi->status.phase, "Scheduled"), RC_OK);
	assert_int_equal(vmsync_plan(vmi, &f, NOW, &plan, NULL), RC_OK);
	plan_print(&plan, &b);
	assert_non_null(
		strstr(sbuf_str(&b), "\"cpu\":{\"model\":\"max\",\"features\":[\"avx2\"]}"));
	js_unref(cpu);
	VirtualMachineInstance_free(vmi);
}

static void what_cannot_be_done_is_refused_by_name(void **state)
{
	struct json *probe = read_json("probe.json");
	VirtualMachineInstance *vmi = read_vmi("full.vmi.json");
	struct vmspec_env env = make_env(probe);
	struct launch_spec *s = NULL;
	struct err err = {0};

	(void)state;
	env.n_disks = 1;
	assert_int_equal(vmspec_build(vmi, &env, &s, &err), RC_INVALID);
	assert_non_null(strstr(err.msg, "disk 'data'"));
	env.n_disks = ARRAY_SIZE(disks);
	assert_int_equal(api_set_str(&vmi->spec.domain.machine->type, "pc-q35-1.0"), RC_OK);
	assert_int_equal(vmspec_build(vmi, &env, &s, &err), RC_UNSUPPORTED);
	assert_non_null(strstr(err.msg, "pc-q35-1.0"));
	assert_int_equal(api_set_str(&vmi->spec.domain.machine->type, "q35,accel=kvm"), RC_OK);
	assert_int_equal(vmspec_build(vmi, &env, &s, &err), RC_UNSUPPORTED);
	VirtualMachineInstance_free(vmi);
	js_unref(probe);
}

static struct json *torture_probe;
static VirtualMachineInstance *torture_vmi;

static enum rc build_once(void)
{
	struct vmspec_env env = make_env(torture_probe);
	CLEANUP(launch_spec_freep) struct launch_spec *s = NULL;

	return vmspec_build(torture_vmi, &env, &s, NULL);
}

static void a_failed_allocation_leaks_nothing(void **state)
{
	(void)state;
	torture_probe = read_json("probe.json");
	torture_vmi = read_vmi("full.vmi.json");
	torture(build_once);
	VirtualMachineInstance_free(torture_vmi);
	js_unref(torture_probe);
}

/* --- the VMI's status --- */

static struct vm_facts running(void)
{
	return (struct vm_facts){.state = VM_RUNNING,
				 .reason = "Started",
				 .node = "node-1",
				 .accel = "tcg",
				 .accel_reason = "no KVM here",
				 .qemu_version = "10.0.2",
				 .machine = "pc-q35-10.0",
				 .runtime_uid = 200001,
				 .pod_ip = "10.244.1.2",
				 .mac = "0a:58:0a:f4:01:02"};
}

static void a_start_is_one_write_with_all_facts(void **state)
{
	VirtualMachineInstance *vmi = read_vmi("full.vmi.json");
	struct vm_facts f = running();
	char root[] = "root", data[] = "data";
	struct vm_volume_fact vols[] = {{.name = root}, {.name = data, .bytes = 1 << 30}};
	char volume[] = "image", image[] = "a/b", digest[] = "sha256:1";
	FerryImage images[] = {{.volumeName = volume, .image = image, .digest = digest}};
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(65536);
	struct plan plan;

	(void)state;
	f.volumes = vols;
	f.n_volumes = 2;
	f.images = images;
	f.n_images = 1;
	plan_init(&plan);
	assert_int_equal(vmsync_plan(vmi, &f, NOW, &plan, NULL), RC_OK);
	plan_print(&plan, &b);
	check_golden("start.plan.txt", sbuf_str(&b));
	plan_fini(&plan);
	VirtualMachineInstance_free(vmi);
}

/* Said with the CPU, once: the target of a move adds nothing to what the guest was started with. */
static void the_card_of_a_guest_is_said_once(void **state)
{
	static const enum launch_video cards[] = {LAUNCH_VIDEO_VIRTIO, LAUNCH_VIDEO_NONE};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cards); i++) {
		VirtualMachineInstance *vmi = read_vmi("full.vmi.json");
		CLEANUP(launch_spec_freep) struct launch_spec *s = launch_spec_new();
		struct vm_facts f = running();
		struct plan plan;

		assert_int_equal(api_set_str(&s->cpu_model, "max"), RC_OK);
		s->video = cards[i];
		f.spec = s;
		for (int again = 0; again < 2; again++) {
			plan_init(&plan);
			assert_int_equal(vmsync_plan(vmi, &f, NOW, &plan, NULL), RC_OK);
			assert_int_equal(plan_is_empty(&plan), again);
			if (!again) {
				VirtualMachineInstance_free(vmi);
				vmi = VirtualMachineInstance_clone(plan.ops[0].obj);
			}
			plan_fini(&plan);
			assert_string_equal(vmi->status.ferry->cpuModel, "max");
			if (cards[i])
				assert_string_equal(vmi->status.ferry->video, "virtio");
			else
				assert_null(vmi->status.ferry->video);
			s->video = LAUNCH_VIDEO_VGA; /* whatever a target makes of it */
		}
		VirtualMachineInstance_free(vmi);
	}
}

static struct json *agent_of(const char *text)
{
	struct json *j = NULL;

	assert_int_equal(js_parse(text, strlen(text), &j, NULL), RC_OK);
	return j;
}

/* What the VMI says after the launcher has said this of the agent; false: as before, nothing is written. */
static bool after_agent(VirtualMachineInstance **vmi, const struct json *agent)
{
	struct vm_facts f = running();
	struct plan plan;

	f.agent = agent;
	plan_init(&plan);
	assert_int_equal(vmsync_plan(*vmi, &f, NOW, &plan, NULL), RC_OK);
	bool writes = !plan_is_empty(&plan);

	if (writes) {
		assert_int_equal(plan.ops[0].type, PLAN_PATCH);
		VirtualMachineInstance_free(*vmi);
		*vmi = VirtualMachineInstance_clone(plan.ops[0].obj);
	}
	plan_fini(&plan);
	return writes;
}

static void the_agents_word_stands_until_there_is_another(void **state)
{
	VirtualMachineInstance *vmi = read_vmi("full.vmi.json");
	struct json *said = agent_of(
		"{\"connected\": true, \"version\": \"7.2.0\", \"lacks\": [], \"os\": {\"id\": "
		"\"debian\", \"kernelRelease\": \"6.1\"}, \"interfaces\": [{\"name\": \"docker0\", "
		"\"mac\": \"02:42:00:00:00:01\", \"ips\": [\"172.17.0.1\", \"fe80::1\"]}], \"frozen\": "
		"true, \"thawAt\": 1767225600000000}");
	struct json *less =
		agent_of("{\"connected\": true, \"lacks\": [\"guest-ping\"], \"os\": {}, "
			 "\"interfaces\": [], \"frozen\": false}");
	struct json *gone = agent_of("{\"connected\": false}");
	struct json *held = agent_of("{\"connected\": true, \"frozen\": true}");
	struct api_cond c = {0};

	(void)state;
	assert_true(after_agent(&vmi, said));
	size_t n = vmi->status.n_interfaces;
	const VirtualMachineInstanceNetworkInterface *own = &vmi->status.interfaces[n - 1];

	assert_true(API_COND_IS(&vmi->status, VirtualMachineInstanceCondition, "AgentConnected",
				"True"));
	assert_string_equal(vmi->status.guestOSInfo->id, "debian");
	assert_string_equal(vmi->status.fsFreezeStatus, "frozen");
	assert_string_equal(vmi->status.ferry->fsThawTime, "2026-01-01T00:00:00Z");
	assert_string_equal(own->interfaceName, "docker0");
	assert_string_equal(own->infoSource, "guest-agent");
	assert_string_equal(own->ipAddresses[1], "fe80::1");
	assert_false(after_agent(&vmi, said)); /* twice is nothing new */
	assert_false(after_agent(&vmi, NULL)); /* nothing is known here yet: it stays */
	assert_false(after_agent(&vmi, held)); /* a target's first look: all else stays */
	assert_true(after_agent(&vmi, less));
	assert_int_equal(vmi->status.n_interfaces, n - 1);
	assert_null(vmi->status.fsFreezeStatus);
	assert_null(vmi->status.ferry->fsThawTime);
	assert_true(API_COND_GET(&vmi->status, VirtualMachineInstanceCondition,
				 "AgentVersionNotSupported", &c));
	assert_string_equal(c.reason, "the guest agent lacks guest-ping");
	assert_true(after_agent(&vmi, gone));
	assert_false(
		API_COND_GET(&vmi->status, VirtualMachineInstanceCondition, "AgentConnected", &c));
	assert_false(API_COND_GET(&vmi->status, VirtualMachineInstanceCondition,
				  "AgentVersionNotSupported", &c));
	VirtualMachineInstance_free(vmi);
	js_unref(said);
	js_unref(less);
	js_unref(gone);
	js_unref(held);
}

/* A guest that runs keeps the devices that it was started with, wherever it goes. */
static void the_agents_channel_goes_with_the_guest(void **state)
{
	static const struct {
		bool runs, has, want;
	} rows[] = {{false, false, true}, {true, false, false}, {true, true, true}};
	struct json *probe = read_json("probe.json");
	struct vmspec_env env = make_env(probe);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		VirtualMachineInstance *vmi = read_vmi("full.vmi.json");
		struct launch_spec *s = NULL;
		FerryVMIStatus *fs = api_ensure(&api_type_FerryVMIStatus, &vmi->status.ferry);

		assert_non_null(fs);
		if (rows[i].runs)
			assert_int_equal(api_set_str(&fs->cpuModel, "Nehalem,+aes"), RC_OK);
		if (rows[i].has)
			API_SET(fs, guestAgentChannel, true);
		assert_int_equal(vmspec_build(vmi, &env, &s, NULL), RC_OK);
		assert_int_equal(s->guest_agent, rows[i].want);
		launch_spec_free(s);
		VirtualMachineInstance_free(vmi);
	}
	js_unref(probe);
}

static void nothing_is_said_twice(void **state)
{
	VirtualMachineInstance *vmi = read_vmi("full.vmi.json");
	struct vm_facts f = running();
	struct plan plan;

	(void)state;
	for (int i = 0; i < 2; i++) {
		plan_init(&plan);
		assert_int_equal(vmsync_plan(vmi, &f, NOW + (usec_t)i, &plan, NULL), RC_OK);
		if (i) {
			assert_true(plan_is_empty(&plan));
		} else {
			assert_int_equal(plan.ops[0].type, PLAN_PATCH);
			VirtualMachineInstance_free(vmi);
			vmi = VirtualMachineInstance_clone(plan.ops[0].obj);
		}
		plan_fini(&plan);
	}
	VirtualMachineInstance_free(vmi);
}

static void the_end_follows_kubevirts_phases(void **state)
{
	static const struct {
		enum vm_state state;
		const char *reason;
		bool acpi_off;
		const char *phase;
	} t[] = {
		{VM_GONE, "GuestShutdown", false, "Succeeded"},
		{VM_GONE, "HostShutdown", false, "Succeeded"},
		{VM_GONE, "Killed", false, "Failed"},
		{VM_GONE, "GraceExpired", false, "Failed"},
		{VM_GONE, "Killed", true, "Succeeded"},
		{VM_GONE, "QemuKilled", false, "Failed"},
		{VM_CRASHED, "GuestPanicked", false, "Failed"},
		{VM_SHUTDOWN, "GuestShutdown", false, NULL},
		{VM_POSTMIGRATE, "MigrationCompleted", false, NULL},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		VirtualMachineInstance *vmi = read_vmi("full.vmi.json");
		struct vm_facts f = running();

		assert_int_equal(api_set_str(&vmi->status.phase, "Running"), RC_OK);
		f.state = t[i].state;
		f.reason = t[i].reason;
		if (t[i].acpi_off) {
			Features *ft = api_ensure(&api_type_Features, &vmi->spec.domain.features);
			FeatureState *acpi = api_ensure(&api_type_FeatureState, &ft->acpi);

			API_SET(acpi, enabled, false);
		}
		const char *got = vmsync_phase(vmi, &f);

		if (!str_eq(got, t[i].phase))
			fail_msg("case %zu: %s", i, got ? got : "(none)");
		f.is_source_done = true;
		assert_null(vmsync_phase(vmi, &f));
		VirtualMachineInstance_free(vmi);
	}
}

static void a_vm_that_waits_for_the_go_is_not_running(void **state)
{
	VirtualMachineInstance *vmi = read_vmi("full.vmi.json");
	struct vm_facts f = running();

	(void)state;
	f.state = VM_PRELAUNCH;
	f.reason = "StartedPaused";
	assert_null(vmsync_phase(vmi, &f));
	assert_int_equal(api_set_str(&vmi->spec.startStrategy, "Paused"), RC_OK);
	assert_string_equal(vmsync_phase(vmi, &f), "Running");
	VirtualMachineInstance_free(vmi);
}

/* The guest is let go when this stands in the VMI: host_disks_are_told(). */
static void where_a_file_is_is_told_before_the_guest_runs(void **state)
{
	static const struct {
		enum vm_state state;
		const char *node; /* of the VMI */
		bool is_target, is_shared, is_told;
	} t[] = {
		{VM_PRELAUNCH, "node-1", false, false, true},
		{VM_RUNNING, "node-1", false, false, true},
		{VM_PRELAUNCH, "node-1", false, true, false},
		{VM_PRELAUNCH, NULL, false, false, false}, /* not handed over yet */
		{VM_RUNNING, "node-2", false, false, false},
		{VM_STARTING, "node-1", false, false, false}, /* may not get its disks */
		{VM_INCOMING, "node-1", true, false, false},
		{VM_GONE, "node-1", false, false, false},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		VirtualMachineInstance *vmi = read_vmi("full.vmi.json");
		struct vm_facts f = running();
		struct plan plan;

		f.state = t[i].state;
		f.reason = "StartedPaused";
		f.is_target = t[i].is_target;
		Volume *v = &vmi->spec.volumes[0];

		HostDisk *d = api_ensure(&api_type_HostDisk, &v->hostDisk);

		assert_int_equal(api_set_str(&d->path, "/d/a.img"), RC_OK);
		if (t[i].is_shared)
			API_SET(d, shared, true);
		assert_int_equal(api_set_str(&vmi->status.nodeName, t[i].node), RC_OK);
		assert_int_equal(host_disks_are_told(vmi, "node-1"), t[i].is_shared);
		plan_init(&plan);
		assert_int_equal(vmsync_plan(vmi, &f, NOW, &plan, NULL), RC_OK);
		const VirtualMachineInstance *next = plan.n_ops ? plan.ops[0].obj : NULL;
		const FerryVMIStatus *fs = next ? next->status.ferry : NULL;

		if ((fs && fs->n_hostDisks == 1 && str_eq(fs->hostDisks[0].path, "/d/a.img") &&
		     str_eq(fs->hostDisks[0].nodeName, "node-1")) != t[i].is_told)
			fail_msg("case %zu", i);
		if (t[i].is_told)
			assert_true(host_disks_are_told(next, "node-1"));
		plan_fini(&plan);
		VirtualMachineInstance_free(vmi);
	}
}

static void targets_are_named_by_bus(void **state)
{
	VirtualMachineInstance *vmi = read_vmi("full.vmi.json");
	char target[16];

	(void)state;
	vmsync_disk_target(vmi, "root", target);
	assert_string_equal(target, "vda");
	vmsync_disk_target(vmi, "data", target);
	assert_string_equal(target, "sda");
	vmsync_disk_target(vmi, "image", target);
	assert_string_equal(target, "sdc");
	vmsync_disk_target(vmi, "none", target);
	assert_string_equal(target, "");
	VirtualMachineInstance_free(vmi);
}

static void a_copy_that_waits_is_no_owner_by_the_word_of_an_older_vmi(void **state)
{
	static const struct {
		const char *node;
		enum vm_state state;
		bool is_target, is_source_done;
		enum vm_place place;
	} rows[] = {
		/* what a VMI says that is older than the pod: of a stay before this move */
		{"node-1", VM_STARTING, true, false, VM_PLACE_STAYS},
		{"node-1", VM_INCOMING, true, false, VM_PLACE_STAYS},
		{"node-2", VM_INCOMING, true, false, VM_PLACE_STAYS},
		/* an agent that comes after the move */
		{"node-1", VM_RUNNING, true, false, VM_PLACE_OWNS},
		{"node-1", VM_PAUSED, true, false, VM_PLACE_OWNS},
		{"node-2", VM_POSTMIGRATE, true, false, VM_PLACE_LEFT},
		/* one that started here */
		{"node-1", VM_RUNNING, false, false, VM_PLACE_OWNS},
		{"node-2", VM_RUNNING, false, false, VM_PLACE_LEFT},
		{"node-2", VM_POSTMIGRATE, false, false, VM_PLACE_LEFT},
		{"node-2", VM_POSTMIGRATE, false, true, VM_PLACE_STAYS},
		/* found when it had ended: how that guest did is not this pod's to say */
		{"node-2", VM_GONE, false, false, VM_PLACE_LEFT},
		{"node-2", VM_GONE, false, true, VM_PLACE_STAYS},
		{"node-2", VM_GONE, true, false, VM_PLACE_STAYS},
		{"node-1", VM_GONE, false, false, VM_PLACE_STAYS},
		{"node-1", VM_GONE, true, false, VM_PLACE_STAYS},
		{NULL, VM_GONE, false, false, VM_PLACE_STAYS},
		{NULL, VM_RUNNING, false, false, VM_PLACE_STAYS},
	};
	VirtualMachineInstance *vmi = read_vmi("full.vmi.json");

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct vm_facts f = {.node = "node-1",
				     .state = rows[i].state,
				     .is_target = rows[i].is_target,
				     .is_source_done = rows[i].is_source_done};

		assert_int_equal(api_set_str(&vmi->status.nodeName, rows[i].node), RC_OK);
		assert_int_equal(vmsync_place(vmi, &f), rows[i].place);
	}
	/* it has come back to this node in another pod, and the old one is not cleaned up yet */
	struct vm_facts old = {.node = "node-1", .pod_uid = "old", .state = VM_GONE};

	assert_int_equal(api_set_str(&vmi->status.nodeName, "node-1"), RC_OK);
	api_map_fini(&vmi->status.activePods);
	assert_int_equal(vmsync_place(vmi, &old), VM_PLACE_STAYS);
	assert_int_equal(api_map_set(&vmi->status.activePods, "new", "node-1"), RC_OK);
	assert_int_equal(vmsync_place(vmi, &old), VM_PLACE_LEFT);
	old.pod_uid = "new";
	assert_int_equal(vmsync_place(vmi, &old), VM_PLACE_STAYS);
	VirtualMachineInstance_free(vmi);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_host_model_lacks_the_fewest_features),
		cmocka_unit_test(labels_are_those_of_the_golden_file),
		cmocka_unit_test(machine_aliases_are_resolved),
		cmocka_unit_test(a_vmi_gives_the_golden_spec),
		cmocka_unit_test(memory_in_decimal_units_is_whole_mebibytes),
		cmocka_unit_test(a_running_vm_keeps_its_cpu_and_machine_where_it_goes),
		cmocka_unit_test(a_vm_has_the_card_that_it_was_started_with),
		cmocka_unit_test(host_model_stands_for_what_the_pod_says),
		cmocka_unit_test(a_moved_guest_gets_the_cpu_that_it_has_seen_or_a_reason),
		cmocka_unit_test(what_a_node_keeps_back_no_guest_gets),
		cmocka_unit_test(the_guests_cpu_is_told_without_what_says_nothing_of_the_machine),
		cmocka_unit_test(what_cannot_be_done_is_refused_by_name),
		cmocka_unit_test(a_failed_allocation_leaks_nothing),
		cmocka_unit_test(a_start_is_one_write_with_all_facts),
		cmocka_unit_test(the_card_of_a_guest_is_said_once),
		cmocka_unit_test(the_agents_word_stands_until_there_is_another),
		cmocka_unit_test(the_agents_channel_goes_with_the_guest),
		cmocka_unit_test(nothing_is_said_twice),
		cmocka_unit_test(the_end_follows_kubevirts_phases),
		cmocka_unit_test(a_vm_that_waits_for_the_go_is_not_running),
		cmocka_unit_test(where_a_file_is_is_told_before_the_guest_runs),
		cmocka_unit_test(targets_are_named_by_bus),
		cmocka_unit_test(a_copy_that_waits_is_no_owner_by_the_word_of_an_older_vmi),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("node", tests, NULL, NULL);
}
