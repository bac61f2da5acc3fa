/* What the command line makes of nodes' labels and of another QEMU's answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/mem.h"
#include "base/sbuf.h"
#include "cli/cpu_models.h"
#include "cli/upgrade.h"
#include "json/json.h"
#include "lib/jsontext.h"

/* --- cpu-models --- */

#define NODES                                                                                    \
	"[{'metadata':{'name':'a','labels':{'cpu-model.node.kubevirt.io/Westmere':'true',"       \
	"'cpu-model.node.kubevirt.io/Nehalem':'true','cpu-feature.node.kubevirt.io/aes':'true'," \
	"'cpu-model-migration.node.kubevirt.io/qemu64':'true'}}},"                               \
	"{'metadata':{'name':'b','labels':{'cpu-model.node.kubevirt.io/Nehalem':'true'}}},"      \
	"{'metadata':{'name':'c'}}]"

static void common_models_are_listed_and_what_tells_nodes_apart(void **state)
{
	struct json *items = json_of(NODES);
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(4096);
	char a[] = "a", b_[] = "b";
	char *names[] = {a, b_};
	size_t n = 0;

	(void)state;
	assert_int_equal(cpu_models_print(items, names, 2, false, &b, &n, NULL), RC_OK);
	assert_int_equal(n, 1);
	assert_string_equal(sbuf_str(&b), "MODEL      NODES\n"
					  "Nehalem    2/2\n"
					  "\nFeatures that not all have:\n"
					  "  aes   not b\n");
	sbuf_reset(&b);
	assert_int_equal(cpu_models_print(items, names, 2, true, &b, &n, NULL), RC_OK);
	assert_non_null(strstr(sbuf_str(&b), "Westmere   1/2   not b\n"));
	js_unref(items);
}

static void without_a_common_model_it_says_so(void **state)
{
	struct json *items = json_of(NODES);
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(4096);
	char nine[] = "nine";
	char *names[] = {nine};
	struct err err = {0};
	size_t n = 7;

	(void)state;
	assert_int_equal(cpu_models_print(items, NULL, 0, false, &b, &n, NULL), RC_OK);
	assert_int_equal(n, 0);
	assert_int_equal(cpu_models_print(items, names, 1, false, &b, &n, &err), RC_NOT_FOUND);
	assert_string_equal(err.msg, "there is no node 'nine'");
	js_unref(items);
}

/* --- doctor --upgrade --- */

#define PROBE                                                                    \
	"{'version':'10.0.2','machines':[{'name':'pc-q35-10.0','alias':'q35'}]," \
	"'definitions':[{'name':'max'},{'name':'Nehalem'}],'host':{'sse4.2':true,'aes':false}}"

static void judged(const char *status, const char *wanted)
{
	struct json *probe = json_of(PROBE), *vmi = json_of(status);
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(4096);

	upgrade_judge(vmi, probe, &b);
	assert_string_equal(sbuf_str(&b), wanted);
	js_unref(probe);
	js_unref(vmi);
}

static void another_qemu_is_judged_by_all_that_a_guest_has(void **state)
{
	(void)state;
	judged("{'status':{}}", "");
	judged("{'status':{'machine':{'type':'pc-q35-10.0'},'ferry':{'qemuVersion':'10.0.9',"
	       "'cpuModel':'Nehalem,+x','cpu':{'features':['sse4.2']}}}}",
	       "");
	judged("{'status':{'machine':{'type':'pc-q35-9.2'}}}", "it has no machine type pc-q35-9.2");
	judged("{'status':{'ferry':{'qemuVersion':'10.1.0'}}}",
	       "the guest has run under QEMU 10.1.0, which is newer");
	judged("{'status':{'ferry':{'cpuModel':'Neha,+x'}}}", "it has no CPU model Neha");
	judged("{'status':{'ferry':{'cpu':{'features':['aes','avx2','sse4.2']}}}}",
	       "it lacks the CPU features aes, avx2");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(common_models_are_listed_and_what_tells_nodes_apart),
		cmocka_unit_test(without_a_common_model_it_says_so),
		cmocka_unit_test(another_qemu_is_judged_by_all_that_a_guest_has),
	};

	js_use_mem();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
