/* Kinds that are refused as a whole: what KubeVirt's webhooks say of such an object, one row a text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "api/api.h"
#include "base/mem.h"
#include "base/str.h"
#include "fake_hooks.h"
#include "lib/torture.h"
#include "virt/admission/admission.h"

#define SNAPS	 "virtualmachinesnapshots.snapshot.kubevirt.io"
#define RESTORES "virtualmachinerestores.snapshot.kubevirt.io"
#define EXPORTS	 "virtualmachineexports.export.kubevirt.io"
#define CLONES	 "virtualmachineclones.clone.kubevirt.io"
#define PRESETS	 "virtualmachineinstancepresets.kubevirt.io"
#define TYPES	 "virtualmachineinstancetypes.instancetype.kubevirt.io"
#define CTYPES	 "virtualmachineclusterinstancetypes.instancetype.kubevirt.io"
#define PREFS	 "virtualmachinepreferences.instancetype.kubevirt.io"
#define CPREFS	 "virtualmachineclusterpreferences.instancetype.kubevirt.io"
#define SETS	 "virtualmachineinstancereplicasets.kubevirt.io"
#define POOLS	 "virtualmachinepools.pool.kubevirt.io"

static const struct api_kind *kind_of(const char *resource)
{
	char name[160];

	for (size_t i = 0; api_served[i]; i++) {
		(void)snprintf(name, sizeof(name), "%s.%s", api_served[i]->plural,
			       api_served[i]->group);
		if (str_eq(name, resource))
			return api_served[i];
	}
	fail_msg("no kind '%s'", resource);
	return NULL;
}

static const struct admission_hook *hook_of(const char *resource)
{
	for (size_t i = 0; i < n_virt_admission; i++)
		if (str_eq(virt_admission[i].resource, resource))
			return &virt_admission[i];
	fail_msg("no hook for '%s'", resource);
	return NULL;
}

static enum rc judge(const char *resource, enum hook_op op, const char *spec, struct field_errs *fe)
{
	const struct api_kind *k = kind_of(resource);
	CLEANUP(js_unrefp) struct json *obj = json_of("{'metadata': {'name': 'x'}}");
	struct hook_env env;
	struct hook_ctx ctx = {.env = &env, .op = op, .ns = "default", .subresource = ""};
	void *typed = NULL;

	assert_int_equal(js_set(obj, "spec", json_of(spec)), RC_OK);
	env_init(&env);
	enum rc rc = api_decode(k->type, obj, &typed, NULL);

	if (!rc)
		rc = hook_of(resource)->validate(&ctx, typed, NULL, fe, NULL);
	api_free(k->type, typed);
	env_fini(&env);
	return rc;
}

#define OF_VM(name_)   "'apiGroup': 'kubevirt.io', 'kind': 'VirtualMachine', 'name': '" name_ "'"
#define CLONE(more_)   "{'source': {" OF_VM("a") "}" more_ "}"
#define RESTORE(more_) "{'target': {" OF_VM("a") "}, 'virtualMachineSnapshotName': 's'" more_ "}"
#define VMI_SPEC       "{'domain': {'memory': {'guest': '64Mi'}, 'devices': {}}}"
#define SET(more_) \
	"{'template': {'metadata': {'labels': {'a': 'b'}}, 'spec': " VMI_SPEC "}" more_ "}"
#define POOL(more_)                                                                                \
	"{'selector': {'matchLabels': {'a': 'b'}}, 'virtualMachineTemplate': {'metadata': "        \
	"{'labels': {'a': 'b'}}, 'spec': {'runStrategy': 'Always', 'template': {'spec': " VMI_SPEC \
	"}}}" more_ "}"
#define SPREAD(topology_, across_, ratio_)                                                        \
	"{'cpu': {'preferredCPUTopology': '" topology_ "', 'spreadOptions': {'across': '" across_ \
	"', 'ratio': " ratio_ "}}}"

static const struct row {
	const char *resource, *spec;
	const char *reason, *field, *message; /* NULL: nothing is said */
} rows[] = {
	{SNAPS, "{'source': {" OF_VM("a") "}}", NULL, NULL, NULL},
	{SNAPS, "{'source': {'kind': 'VirtualMachine', 'name': 'a'}}", "FieldValueNotFound",
	 "spec.source.apiGroup", "missing apiGroup"},
	{SNAPS, "{'source': {'apiGroup': 'v1', 'kind': 'VirtualMachine', 'name': 'a'}}",
	 "FieldValueInvalid", "spec.source.apiGroup", "invalid apiGroup"},
	{SNAPS, "{'source': {'apiGroup': 'kubevirt.io', 'kind': 'Pod', 'name': 'a'}}",
	 "FieldValueInvalid", "spec.source.kind", "invalid kind"},
	{SNAPS, "{}", NULL, NULL, NULL}, /* the schema's to tell */

	{RESTORES, RESTORE(""), NULL, NULL, NULL},
	{RESTORES, "{'target': {'kind': 'VirtualMachine', 'name': 'a'}}", "FieldValueNotFound",
	 "spec.target.apiGroup", "missing apiGroup"},
	{RESTORES, "{'target': {'apiGroup': 'x', 'kind': 'VirtualMachine', 'name': 'a'}}",
	 "FieldValueInvalid", "spec.target.apiGroup", "invalid apiGroup"},
	{RESTORES, "{'target': {'apiGroup': 'kubevirt.io', 'kind': 'VM', 'name': 'a'}}",
	 "FieldValueInvalid", "spec.target.kind", "invalid kind"},
	{RESTORES,
	 RESTORE(", 'patches': ['{\\\"op\\\": \\\"add\\\", \\\"path\\\": \\\"/spec/x\\\"}', "
		 "'{\\\"path\\\": \\\"/metadata/labels/x\\\"}', "
		 "'{\\\"path\\\":\\\"/metadata/annotations/x\\\"}']"),
	 NULL, NULL, NULL},
	{RESTORES, RESTORE(", 'patches': ['{\\\"path\\\": \\\"/metadata/name\\\"}']"),
	 "FieldValueInvalid", "spec.patches",
	 "patching is valid only for elements under /spec/ only: \"path\": \"/metadata/name\""},
	{RESTORES, RESTORE(", 'patches': ['{\\\"op\\\"}']"), "FieldValueInvalid", "spec.patches",
	 "patch format is not valid - one \":\" expected in a single key-value json patch: "
	 "\"op\""},
	{RESTORES, RESTORE(", 'patches': ['']"), "FieldValueInvalid", "spec.patches",
	 "patch format is not valid - one \":\" expected in a single key-value json patch: "},
	{RESTORES, RESTORE(", 'volumeRestoreOverrides': [{'restoreName': 'r'}]"),
	 "FieldValueRequired", "spec.volumeRestoreOverrides[0].volumeName",
	 "must provide a volume name"},
	{RESTORES, RESTORE(", 'volumeRestoreOverrides': [{'volumeName': 'v'}]"),
	 "FieldValueRequired", "spec.volumeRestoreOverrides[0]",
	 "must provide at least one overriden field"},
	{RESTORES,
	 RESTORE(", 'volumeRestoreOverrides': [{'volumeName': 'v', 'labels': {'a': 'b'}}]"), NULL,
	 NULL, NULL},

	{EXPORTS, "{'source': {" OF_VM("a") "}}", NULL, NULL, NULL},
	{EXPORTS, "{'source': {" OF_VM("") "}}", "FieldValueInvalid", "spec.source.name",
	 "Virtual Machine name must not be empty"},
	{EXPORTS, "{'source': {'kind': 'VirtualMachine', 'name': 'a'}}", "FieldValueInvalid",
	 "spec.source.APIGroup", "VM API group must be kubevirt.io"},
	{EXPORTS, "{'source': {'kind': 'PersistentVolumeClaim', 'name': 'a'}}", NULL, NULL, NULL},
	{EXPORTS, "{'source': {'kind': 'PersistentVolumeClaim', 'name': ''}}", "FieldValueInvalid",
	 "spec.source.name", "PVC name must not be empty"},
	{EXPORTS, "{'source': {'apiGroup': 'v1', 'kind': 'PersistentVolumeClaim', 'name': 'a'}}",
	 "FieldValueInvalid", "spec.source.APIGroup", "PVC API group must be missing or blank"},
	{EXPORTS,
	 "{'source': {'apiGroup': 'snapshot.kubevirt.io', 'kind': 'VirtualMachineSnapshot', 'name': "
	 "''}}",
	 "FieldValueInvalid", "spec.source.name", "VMSnapshot name must not be empty"},
	{EXPORTS,
	 "{'source': {'apiGroup': 'kubevirt.io', 'kind': 'VirtualMachineSnapshot', 'name': 'a'}}",
	 "FieldValueInvalid", "spec.source.APIGroup",
	 "VMSnapshot API group must be snapshot.kubevirt.io"},
	{EXPORTS, "{'source': {'kind': 'VirtualMachineBackup', 'name': ''}}", NULL, NULL, NULL},
	{EXPORTS, "{'source': {'kind': 'Pod', 'name': 'a'}}", "FieldValueInvalid",
	 "spec.source.kind", "invalid kind"},

	{CLONES, CLONE(""), NULL, NULL, NULL},
	{CLONES, CLONE(", 'annotationFilters': ['*', 'a/*', '!b/*', 'c']"), NULL, NULL, NULL},
	{CLONES, CLONE(", 'annotationFilters': ['!']"), "FieldValueInvalid", "spec.annotations",
	 "a negation character is not a valid filter"},
	{CLONES, CLONE(", 'labelFilters': ['a!b']"), "FieldValueInvalid", "spec.labels",
	 "spec.labels filter a!b is invalid: cannot contain a negation character (!); FilterRules: "
	 "NegationChar can be only used at the beginning of the filter"},
	{CLONES, CLONE(", 'template': {'annotationFilters': ['a*b']}"), "FieldValueInvalid",
	 "spec.template.annotations",
	 "spec.template.annotations filter a*b is invalid: cannot contain a wildcard character (*); "
	 "FilterRules: WildcardChar can be only at the end of the filter"},
	{CLONES, CLONE(", 'template': {'labelFilters': ['*a']}"), "FieldValueInvalid",
	 "spec.template.labels",
	 "spec.template.labels filter *a is invalid: cannot contain a wildcard character (*); "
	 "FilterRules: WildcardChar can be only at the end of the filter"},
	{CLONES, "{'source': {'apiGroup': 'v1', 'kind': 'Pod', 'name': 'a'}}", "FieldValueInvalid",
	 "spec.Source.Kind", "Source kind is not supported"},
	{CLONES, CLONE(", 'target': {'kind': 'Pod', 'name': 'b'}"), "FieldValueInvalid",
	 "spec.Target.Kind", "Target kind is not supported"},
	{CLONES, "{'source': {'kind': 'VirtualMachine', 'name': 'a'}}", "FieldValueInvalid",
	 "spec.Source.APIGroup", "Source's APIGroup cannot be empty"},
	{CLONES, "{'source': {" OF_VM("") "}}", "FieldValueInvalid", "spec.Source.Name",
	 "Source's name cannot be empty"},
	{CLONES, CLONE(", 'target': {" OF_VM("a") "}"), "FieldValueInvalid", "spec.target.name",
	 "Target name cannot be equal to source name when both are VirtualMachines"},
	{CLONES, CLONE(", 'newMacAddresses': {'eth0': '02:00:00:00:00:0g'}"), "FieldValueInvalid",
	 "spec.newMacAddresses.eth0",
	 "interface eth0 has malformed MAC address (02:00:00:00:00:0g)."},
	{CLONES, CLONE(", 'newMacAddresses': {'eth0': '02-00-00-00-00-0A', 'eth1': ''}"), NULL,
	 NULL, NULL},
	{CLONES, CLONE(", 'patches': ['{}', '{']"), "FieldValueInvalid", "spec.patches[1]",
	 "patch is not valid JSON ({)"},

	{PRESETS, "{'domain': {'devices': {}}}", NULL, NULL, NULL},
	{PRESETS, "{}", "FieldValueRequired", "spec.domain", "missing domain."},

	{TYPES, "{'cpu': {'guest': 1}, 'memory': {'guest': '1Gi', 'overcommitPercent': 15}}", NULL,
	 NULL, NULL},
	{TYPES,
	 "{'cpu': {'guest': 1}, 'memory': {'guest': '1Gi', 'overcommitPercent': 15, 'hugepages': "
	 "{'pageSize': '2Mi'}}}",
	 "FieldValueInvalid", "spec.memory.overcommitPercent",
	 "spec.memory.overcommitPercent and spec.memory.hugepages should not be requested together."},
	{CTYPES,
	 "{'cpu': {'guest': 1}, 'memory': {'guest': '1Gi', 'overcommitPercent': 15, 'hugepages': "
	 "{'pageSize': '2Mi'}}}",
	 "FieldValueInvalid", "spec.memory.overcommitPercent",
	 "spec.memory.overcommitPercent and spec.memory.hugepages should not be requested together."},
	{CTYPES, "{}", NULL, NULL, NULL},

	{PREFS, SPREAD("spread", "CoresThreads", "2"), NULL, NULL, NULL},
	{PREFS, SPREAD("spread", "SocketsCores", "4"), NULL, NULL, NULL},
	{PREFS, SPREAD("cores", "CoresThreads", "4"), NULL, NULL, NULL},
	{PREFS, SPREAD("spread", "CoresThreads", "0"), NULL, NULL, NULL}, /* 2, then */
	{PREFS, SPREAD("spread", "CoresThreads", "4"), "FieldValueInvalid",
	 "spec.cpu.spreadOptions.ratio",
	 "only a ratio of 2 (1 core 2 threads) is allowed when spreading vCPUs over cores and threads"},
	{PREFS,
	 "{'preferSpreadSocketToCoreRatio': 3, 'cpu': {'preferredCPUTopology': 'preferSpread', "
	 "'spreadOptions': {'across': 'CoresThreads'}}}",
	 "FieldValueInvalid", "spec.cpu.spreadOptions.ratio",
	 "only a ratio of 2 (1 core 2 threads) is allowed when spreading vCPUs over cores and threads"},
	{CPREFS, SPREAD("spread", "CoresThreads", "4"), "FieldValueInvalid",
	 "spec.cpu.spreadOptions.ratio",
	 "only a ratio of 2 (1 core 2 threads) is allowed when spreading vCPUs over cores and threads"},
	{CPREFS, "{}", NULL, NULL, NULL},

	{SETS, SET(", 'selector': {'matchLabels': {'a': 'b'}}"), NULL, NULL, NULL},
	{SETS, SET(""), NULL, NULL, NULL}, /* the schema's to tell */
	{SETS, SET(", 'selector': {'matchLabels': {'a': 'c'}}"), "FieldValueInvalid",
	 "spec.selector", "selector does not match labels."},
	{SETS, SET(", 'selector': {'matchExpressions': [{'key': 'a', 'operator': 'Is'}]}"),
	 "FieldValueInvalid", "spec.selector", "'Is' is not a valid selector operator"},
	{SETS,
	 "{'selector': {'matchLabels': {}}, 'template': {'spec': {'domain': {'resources': {'requests': "
	 "{'memory': '-5Mi'}}, 'devices': {}}}}}",
	 "FieldValueInvalid", "spec.template.spec.domain.resources.requests.memory",
	 "spec.template.spec.domain.resources.requests.memory '-5Mi': must be greater than or equal to "
	 "0."},

	{POOLS, POOL(""), NULL, NULL, NULL},
	{POOLS,
	 "{'selector': {'matchLabels': {'a': 'c'}}, 'virtualMachineTemplate': {'metadata': {'labels': "
	 "{'a': 'b'}}, 'spec': {'runStrategy': 'Always', 'template': {'spec': " VMI_SPEC "}}}}",
	 "FieldValueInvalid", "spec.selector", "selector does not match labels."},
	{POOLS,
	 "{'selector': {'matchLabels': {}}, 'virtualMachineTemplate': {'spec': {'runStrategy': "
	 "'Ever', 'template': {'spec': " VMI_SPEC "}}}}",
	 "FieldValueInvalid", "spec.virtualMachineTemplate.spec.runStrategy",
	 "Invalid RunStrategy (Ever)"},
	{POOLS,
	 "{'selector': {'matchLabels': {}}, 'virtualMachineTemplate': {'spec': {'runStrategy': "
	 "'Always'}}}",
	 "FieldValueRequired", "spec.virtualMachineTemplate.spec.template",
	 "missing virtual machine template."},
	{POOLS, POOL(", 'maxUnavailable': '25%'"), NULL, NULL, NULL},
	{POOLS, POOL(", 'maxUnavailable': 1"), NULL, NULL, NULL},
	{POOLS, POOL(", 'maxUnavailable': 0"), "FieldValueInvalid", "spec.maxUnavailable",
	 "maxUnavailable must be greater than 0"},
	{POOLS, POOL(", 'maxUnavailable': '25'"), "FieldValueInvalid", "spec.maxUnavailable",
	 "maxUnavailable percentage must end with %"},
	{POOLS, POOL(", 'maxUnavailable': '101%'"), "FieldValueInvalid", "spec.maxUnavailable",
	 "maxUnavailable percentage value 101 must be between 1 and 100"},
	{POOLS, POOL(", 'maxUnavailable': 'x%'"), "FieldValueInvalid", "spec.maxUnavailable",
	 "maxUnavailable percentage value \"x\" is invalid: it is no number"},
};

static void every_text_has_its_field_and_reason(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct field_errs fe = FIELD_ERRS_INIT;

		assert_int_equal(judge(rows[i].resource, HOOK_CREATE, rows[i].spec, &fe), RC_OK);
		if (fe.n != (rows[i].field ? 1 : 0))
			fail_msg("row %zu: %zu findings, %s", i, fe.n,
				 fe.n ? fe.items[0].message : "");
		if (rows[i].field && fe.items) {
			assert_string_equal(fe.items[0].field, rows[i].field);
			assert_string_equal(fe_reason(&fe.items[0]), rows[i].reason);
			assert_string_equal(fe.items[0].message, rows[i].message);
		}
		fe_fini(&fe);
	}
}

static void all_faults_come_at_once(void **state)
{
	static const char *const fields[] = {"spec.labels",	 "spec.labels",
					     "spec.Target.Kind", "spec.Source.APIGroup",
					     "spec.Source.Name", "spec.patches[0]"};
	struct field_errs fe = FIELD_ERRS_INIT;

	(void)state;
	assert_int_equal(
		judge(CLONES, HOOK_CREATE,
		      "{'source': {'kind': 'VirtualMachine', 'name': ''}, 'target': {'kind': "
		      "'Pod', 'name': ''}, 'labelFilters': ['a*b!', '!a'], 'patches': ['x']}",
		      &fe),
		RC_OK);
	assert_int_equal(fe.n, ARRAY_SIZE(fields));
	for (size_t i = 0; i < fe.n; i++)
		assert_string_equal(fe.items[i].field, fields[i]);
	fe_fini(&fe);
}

/* An object that an older server left can be changed and deleted. */
static void nothing_is_said_of_a_change(void **state)
{
	struct field_errs fe = FIELD_ERRS_INIT;
	struct hook_env env;
	struct hook_ctx ctx = {.env = &env, .op = HOOK_DELETE, .ns = "default", .subresource = ""};

	(void)state;
	env_init(&env);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		assert_int_equal(judge(rows[i].resource, HOOK_UPDATE, rows[i].spec, &fe), RC_OK);
		assert_int_equal(hook_of(rows[i].resource)->validate(&ctx, NULL, NULL, &fe, NULL),
				 RC_OK);
	}
	assert_int_equal(fe.n, 0);
	env_fini(&env);
}

static void a_long_text_is_cut(void **state)
{
	CLEANUP(mem_freep) char *text = mem_alloc(100001);
	struct field_errs fe = FIELD_ERRS_INIT;

	(void)state;
	memset(text, 'a', 100000);
	CLEANUP(mem_freep) char *spec = mem_printf(CLONE(", 'patches': ['%s']"), text);

	assert_int_equal(judge(CLONES, HOOK_CREATE, spec, &fe), RC_OK);
	assert_int_equal(fe.n, 1);
	assert_non_null(fe.items);
	assert_true(fe.items && strlen(fe.items[0].message) < 300);
	fe_fini(&fe);
}

static enum rc once(void)
{
	struct field_errs fe = FIELD_ERRS_INIT;
	const struct api_kind *k = kind_of(POOLS);
	struct json *obj = NULL;
	void *typed = NULL;
	struct hook_env env;
	struct hook_ctx ctx = {.env = &env, .op = HOOK_CREATE, .ns = "default", .subresource = ""};
	static const char text[] =
		"{\"spec\":{\"selector\":{\"matchLabels\":{\"a\":\"c\"}},\"virtualMachineTemplate\":"
		"{\"metadata\":{\"labels\":{\"a\":\"b\"}},\"spec\":{\"runStrategy\":\"Ever\","
		"\"template\":{\"spec\":{\"domain\":{\"devices\":{}}}}}}}}";
	enum rc rc = js_parse(text, sizeof(text) - 1, &obj, NULL);

	memset(&env, 0, sizeof(env));
	if (!rc)
		rc = api_decode(k->type, obj, &typed, NULL);
	if (!rc)
		rc = hook_of(POOLS)->validate(&ctx, typed, NULL, &fe, NULL);
	rc = rc ? rc : fe.rc;
	api_free(k->type, typed);
	js_unref(obj);
	fe_fini(&fe);
	return rc;
}

static void a_failed_allocation_is_an_error_and_leaks_nothing(void **state)
{
	(void)state;
	torture(once);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_text_has_its_field_and_reason),
		cmocka_unit_test(all_faults_come_at_once),
		cmocka_unit_test(nothing_is_said_of_a_change),
		cmocka_unit_test(a_long_text_is_cut),
		cmocka_unit_test(a_failed_allocation_is_an_error_and_leaks_nothing),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("admission/refused", tests, NULL, NULL);
}
