/* Specs of VMs that somebody would try: through schema, admission and store, each with its answer.  What is
 * accepted is what can be run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "fixture.h"
#include "virt/admission/admission.h"

#define VMS "/apis/kubevirt.io/v1/namespaces/default/virtualmachines?dryRun=All"
#define T   "spec.template.spec."
#define D   T "domain."

static struct fx f;
static struct apisrv_hooks hooks;

static int up(void **state)
{
	(void)state;
	hooks = (struct apisrv_hooks){.n_admission = n_virt_admission, .admission = virt_admission};
	fx_up(&f, &hooks);
	return 0;
}

static int down(void **state)
{
	(void)state;
	fx_down(&f);
	return 0;
}

/* ' for ", so that JSON stays legible. */
static char *quoted(char *text)
{
	for (char *p = text; *p; p++)
		if (*p == '\'')
			*p = '"';
	return text;
}

/* Creates a VM with these members of its domain, disks, volumes ("" for none); says is a part of the answer. */
static void check_vm(const char *domain, const char *disks, const char *volumes, int want,
		     const char *says)
{
	CLEANUP(mem_freep)
	char *body = mem_printf(
		"{'metadata':{'name':'v'},'spec':{'runStrategy':'Halted','template':{'spec':{'domain':{"
		"%s%s'devices':{'disks':[{'name':'root','disk':{'bus':'virtio'}}%s%s]}},"
		"'volumes':[{'name':'root','emptyDisk':{'capacity':'1Gi'}}%s%s]}}}}",
		domain, *domain ? "," : "", *disks ? "," : "", disks, *volumes ? "," : "", volumes);
	struct fx_answer a;

	fx_call(&f, &a, &fx_admin, "POST", VMS "&fieldValidation=Strict", NULL, NULL, quoted(body));
	if (a.status != want || (says && !strstr(a.text, says)))
		fail_msg("%.200s: %d instead of %d, without '%s': %.1000s", domain, a.status, want,
			 says ? says : "", a.text);
	fx_answer_fini(&a);
}

static void amounts_have_bounds(void **state)
{
	static const struct {
		const char *memory;
		int status;
		const char *says;
	} rows[] = {
		{"64Mi", 201, NULL},
		{"0", 422, D "memory.guest"},
		{"1", 422, D "memory.guest"},
		{"-1", 422, D "memory.guest"},
		{"0.5", 422, D "memory.guest"},
		{"2147483648", 201, NULL},
		{"9223372036854775808", 422, "a guest has at most 64Ti"},
		{"3Mi", 422, "a guest has at least 4Mi"},
		{"1e9Ti", 422, D "memory.guest"},
		{"1e30", 422, D "memory.guest"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char domain[128];

		snprintf(domain, sizeof(domain), "'memory':{'guest':'%s'}", rows[i].memory);
		check_vm(domain, "", "", rows[i].status, rows[i].says);
	}
	check_vm("'resources':{'requests':{'cpu':'-1'}}", "", "", 422, D "resources.requests");
	check_vm("'resources':{'requests':{'cpu':'0.5m'}}", "", "", 201, NULL);
	check_vm("'cpu':{'cores':9223372036854775807}", "", "", 422, D "cpu");
	check_vm("'cpu':{'cores':9223372036854775808}", "", "", 400, NULL);
	check_vm("'cpu':{'cores':-1}", "", "", 422, D "cpu.cores");
}

static void texts_go_to_qemu_as_texts(void **state)
{
	static const struct {
		const char *domain, *says;
	} rows[] = {
		{"'firmware':{'serial':'a\\u0000b'}", ""},
		{"'firmware':{'serial':'a\\nb'}",
		 D "firmware.serial must not have control characters"},
		{"'firmware':{'serial':'\\u001b[2J'}",
		 D "firmware.serial must not have control characters"},
		{"'firmware':{'uuid':'x,y=z'}", D "firmware.uuid"},
		{"'chassis':{'serial':'a\\nb','asset':'\\u007f'}",
		 D "chassis.asset must not have control characters"},
		{"'cpu':{'model':'host,+x'}", D "cpu.model"},
		{"'cpu':{'features':[{'name':'avx,file=/etc/shadow'}]}", D "cpu.features[0].name"},
		{"'machine':{'type':'q35,accel=kvm'}", D "machine.type"},
		{"'firmware':{'kernelBoot':{'kernelArgs':'a\\nb','container':{'image':'i','kernelPath':"
		 "'/k'}}}",
		 D "firmware.kernelBoot.kernelArgs must not have control characters"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		check_vm(rows[i].domain, "", "", *rows[i].says ? 422 : 400, rows[i].says);
	/* A comma is a character like others: the launcher writes it as text. */
	check_vm("'firmware':{'serial':'a,file=/etc/shadow'}", "", "", 201, NULL);
}

static void long_texts_are_told_their_length(void **state)
{
	CLEANUP(mem_freep) char *args = mem_alloc(64 * KIB + 1);
	CLEANUP(mem_freep) char *data = mem_alloc(2 * MIB + 1);

	(void)state;
	memset(args, 'a', 64 * KIB);
	memset(data, 'a', 2 * MIB);
	CLEANUP(mem_freep)
	char *boot =
		mem_printf("'firmware':{'kernelBoot':{'kernelArgs':'%s','container':{'image':'i',"
			   "'kernelPath':'/k'}}}",
			   args);
	CLEANUP(mem_freep)
	char *seed = mem_printf("{'name':'c','cloudInitNoCloud':{'userData':'%s'}}", data);
	CLEANUP(mem_freep) char *serial = mem_printf("'firmware':{'serial':'%.300s'}", args);
	CLEANUP(mem_freep) char *sku = mem_printf("'chassis':{'sku':'%.300s'}", args);

	check_vm(boot, "", "", 422,
		 D "firmware.kernelBoot.kernelArgs must be at most 2048 bytes long");
	check_vm("", "", seed, 422,
		 T "volumes[1].cloudInitNoCloud userdata exceeds 2048 byte limit. Should use "
		   "UserDataSecretRef for larger data.");
	check_vm(serial, "", "", 422, D "firmware.serial");
	check_vm(sku, "", "", 422, D "chassis.sku must be at most 256 bytes long");
}

static void a_thousand_disks_are_too_many(void **state)
{
	CLEANUP(sbuf_fini) struct sbuf disks = SBUF_INIT(MIB);
	CLEANUP(sbuf_fini) struct sbuf volumes = SBUF_INIT(MIB);

	(void)state;
	for (int i = 0; i < 1000; i++) {
		sbuf_addf(&disks, "%s{'name':'d%d','disk':{'bus':'virtio'}}", i ? "," : "", i);
		sbuf_addf(&volumes, "%s{'name':'d%d','emptyDisk':{'capacity':'1Mi'}}", i ? "," : "",
			  i);
	}
	check_vm("", sbuf_str(&disks), sbuf_str(&volumes), 422,
		 D "devices.disks: Too many: 1001: must have at most 256 items");
}

static void what_two_devices_cannot_share(void **state)
{
	(void)state;
	check_vm("", "{'name':'root','disk':{}}", "", 422, "must not have the same Name");
	check_vm("", "{'name':'b','disk':{},'bootOrder':1},{'name':'c','disk':{},'bootOrder':1}",
		 "{'name':'b','emptyDisk':{'capacity':'1Mi'}},{'name':'c','emptyDisk':{'capacity':"
		 "'1Mi'}}",
		 422, "already set for a different device");
	/* Addresses are not supported; two that are the same are KubeVirt's fault first. */
	check_vm("",
		 "{'name':'b','disk':{'bus':'virtio','pciAddress':'0000:00:05.0'}},"
		 "{'name':'c','disk':{'bus':'virtio','pciAddress':'0000:00:05.0'}}",
		 "{'name':'b','emptyDisk':{'capacity':'1Mi'}},{'name':'c','emptyDisk':{'capacity':"
		 "'1Mi'}}",
		 422, "disk c has the PCI address of disk b (0000:00:05.0).");
}

static void names_and_paths_stay_inside(void **state)
{
	static const struct {
		const char *volume, *says;
	} rows[] = {
		{"{'name':'a,b','emptyDisk':{'capacity':'1Mi'}}", T "volumes[1].name"},
		{"{'name':'a=b','emptyDisk':{'capacity':'1Mi'}}", T "volumes[1].name"},
		{"{'name':'a\\nb','emptyDisk':{'capacity':'1Mi'}}", T "volumes[1].name"},
		{"{'name':'..','emptyDisk':{'capacity':'1Mi'}}", T "volumes[1].name"},
		{"{'name':'c','hostDisk':{'path':'/../../etc/shadow','type':'DiskOrCreate'}}",
		 T "volumes[1].hostDisk"},
		{"{'name':'c','containerDisk':{'image':'i','path':'/disk/../../x'}}",
		 T "volumes[1].containerDisk.path"},
		{"{'name':'c','containerPath':{'path':'/etc'}}", T "volumes[1].containerPath"},
		{"{'name':'c','downwardMetrics':{}},{'name':'d','downwardMetrics':{}}",
		 "max one downwardMetric volume set"},
		{"{'name':'c','persistentVolumeClaim':{'claimName':'../other/claim'}}",
		 T "volumes[1].persistentVolumeClaim.claimName"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		check_vm("", "", rows[i].volume, 422, rows[i].says);
}

/* KubeVirt's words where its webhook has some, the support level's where it would let it pass. */
static void kubevirts_words_come_first_and_alone(void **state)
{
	struct fx_answer a;
	static const char vm[] =
		"{\"metadata\":{\"name\":\"v\"},\"spec\":{\"runStrategy\":\"Halted\",\"template\":{\"spec\":{"
		"\"domain\":{\"devices\":{%s}}}}}}";
	char body[1024];

	(void)state;
	snprintf(body, sizeof(body), vm, "\"sound\":{\"model\":\"loud\",\"name\":\"s\"}");
	fx_call(&f, &a, &fx_admin, "POST", VMS, NULL, NULL, body);
	assert_int_equal(a.status, 422);
	assert_msg(a.json,
		   "admission webhook \"virtualmachine-validator.kubevirt.io\" denied the request: "
		   "Sound device type is not supported. Options: 'ich9' or 'ac97'");
	fx_answer_fini(&a);
	snprintf(body, sizeof(body), vm, "\"sound\":{\"model\":\"ich9\",\"name\":\"s\"}");
	fx_call(&f, &a, &fx_admin, "POST", VMS, NULL, NULL, body);
	assert_int_equal(a.status, 422);
	assert_msg(a.json, "VirtualMachine.kubevirt.io \"v\" is invalid: " D
			   "devices.sound: not supported by Ferry yet");
	fx_answer_fini(&a);
	fx_call(&f, &a, &fx_admin, "POST", VMS, NULL, NULL,
		"{\"metadata\":{\"name\":\"v\"},\"spec\":{\"runStrategy\":\"Halted\"}}");
	assert_int_equal(a.status, 422);
	assert_non_null(strstr(a.text, "spec.template"));
	fx_answer_fini(&a);
	/* Faults of different fields come together. */
	snprintf(body, sizeof(body), vm,
		 "\"sound\":{\"model\":\"loud\",\"name\":\"s\"},\"tpm\":{}");
	fx_call(&f, &a, &fx_admin, "POST", VMS, NULL, NULL, body);
	assert_int_equal(js_len(js_at(a.json, "details", "causes", NULL)), 2);
	fx_answer_fini(&a);
}

#define IN_SERVER(test) cmocka_unit_test_setup_teardown(test, up, down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_SERVER(amounts_have_bounds),
		IN_SERVER(texts_go_to_qemu_as_texts),
		IN_SERVER(long_texts_are_told_their_length),
		IN_SERVER(a_thousand_disks_are_too_many),
		IN_SERVER(what_two_devices_cannot_share),
		IN_SERVER(names_and_paths_stay_inside),
		IN_SERVER(kubevirts_words_come_first_and_alone),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("badspec", tests, NULL, NULL);
}
