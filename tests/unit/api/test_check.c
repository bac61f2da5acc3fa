#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "api/gen/api_types.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"
#include "json/json.h"
#include "lib/torture.h"

/* Single quotes for readability. */
static struct json *J(const char *text)
{
	CLEANUP(mem_freep) char *copy = mem_strdup(text);
	struct json *j = NULL;
	struct err err;

	for (char *p = copy; *p; p++)
		if (*p == '\'')
			*p = '"';
	if (js_parse(copy, strlen(copy), &j, &err))
		fail_msg("%s: %s", copy, err.msg);
	return j;
}

static bool reports(const struct field_errs *fe, const char *field, const char *message)
{
	for (size_t i = 0; i < fe->n; i++)
		if (str_eq(fe->items[i].field, field) && strstr(fe->items[i].message, message))
			return true;
	return false;
}

static void show(const struct field_errs *fe)
{
	for (size_t i = 0; i < fe->n; i++)
		print_message("  %s | %s\n", fe->items[i].field, fe->items[i].message);
}

/* The whole of a VM's domain and volumes, around one fragment. */
#define VM(spec_)                                                                         \
	"{'apiVersion':'kubevirt.io/v1','kind':'VirtualMachine','metadata':{'name':'a'}," \
	"'spec':{'runStrategy':'Always','template':{'spec':" spec_ "}}}"
#define DOMAIN(domain_) VM("{'domain':" domain_ "}")
#define P		"spec.template.spec."

static void each_fault_is_named_with_its_path(void **state)
{
	static const struct {
		const struct api_kind *kind;
		const char *text, *field, *message;
	} cases[] = {
		{&api_kind_VirtualMachine, DOMAIN("{'devices':{'disks':[{'name':1}]}}"),
		 P "domain.devices.disks[0].name",
		 "Invalid value: \"integer\": " P
		 "domain.devices.disks[0].name in body must be of type "
		 "string: \"integer\""},
		{&api_kind_VirtualMachine, DOMAIN("{'devices':{'disks':[{}]}}"),
		 P "domain.devices.disks[0].name", "Required value"},
		{&api_kind_VirtualMachine, DOMAIN("{}"), P "domain.devices", "Required value"},
		{&api_kind_VirtualMachine, VM("{}"), P "domain", "Required value"},
		{&api_kind_VirtualMachine, DOMAIN("{'devices':{},'memory':{'guest':'10Gx'}}"),
		 P "domain.memory.guest",
		 "Invalid value: \"10Gx\": quantities must match the regular"},
		{&api_kind_VirtualMachine, DOMAIN("{'devices':{},'memory':{'guest':'1m'}}"),
		 P "domain.memory.guest",
		 "fractional byte value \"1m\" is invalid, must be an integer"},
		{&api_kind_VirtualMachine, DOMAIN("{'devices':{},'memory':{'guest':'-5Mi'}}"),
		 P "domain.memory.guest",
		 "Invalid value: \"-5Mi\": must be greater than or equal to 1Mi"},
		{&api_kind_VirtualMachine, DOMAIN("{'devices':{},'cpu':{'cores':600}}"),
		 P "domain.cpu.cores", "must be between 0 and 512, inclusive"},
		{&api_kind_VirtualMachine, DOMAIN("{'devices':{},'cpu':{'cores':1.5}}"),
		 P "domain.cpu.cores", "must be of type integer"},
		{&api_kind_VirtualMachine, DOMAIN("{'devices':{'foo':{}}}"), P "domain.devices.foo",
		 "unknown field \"" P "domain.devices.foo\""},
		{&api_kind_VirtualMachine, DOMAIN("{'devices':{'gpus':[{'name':'a'}]}}"),
		 P "domain.devices.gpus", "not supported by Ferry yet"},
		{&api_kind_VirtualMachine, DOMAIN("{'devices':{'tpm':{}}}"), P "domain.devices.tpm",
		 "not supported by Ferry yet"},
		/* with the reason, where it is not that it is still to come */
		{&api_kind_KubeVirt,
		 "{'metadata':{'name':'a'},'spec':{'configuration':{'network':"
		 "{'permitSlirpInterface':true}}}}",
		 "spec.configuration.network.permitSlirpInterface",
		 "not supported by Ferry: KubeVirt has discontinued slirp"},
		{&api_kind_KubeVirt,
		 "{'metadata':{'name':'a'},'spec':{'configuration':{'migrations':"
		 "{'parallelMigrationsPerCluster':0}}}}",
		 "spec.configuration.migrations.parallelMigrationsPerCluster",
		 "must be between 1 and"},
		{&api_kind_VirtualMachine,
		 DOMAIN("{'devices':{},'resources':{'requests':{'memory':'1Gi','-bad':'1'}}}"),
		 P "domain.resources.requests[-bad]", "name part must consist of"},
		{&api_kind_VirtualMachine,
		 VM("{'domain':{'devices':{}},'affinity':{'nodeAffinity':"
		    "{'requiredDuringSchedulingIgnoredDuringExecution':"
		    "{'nodeSelectorTerms':[{'matchExpressions':[{'key':'a',"
		    "'operator':'Is'}]}]}}}}"),
		 P "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution."
		   "nodeSelectorTerms[0].matchExpressions[0].operator",
		 "Unsupported value: \"Is\": supported values: \"In\", \"NotIn\", \"Exists\""},
		{&api_kind_Pod, "{'metadata':{'name':'A_b'},'spec':{'containers':[{'name':'a'}]}}",
		 "metadata.name",
		 "Invalid value: \"A_b\": a lowercase RFC 1123 subdomain must consist of"},
		{&api_kind_Service, "{'metadata':{'name':'1a'},'spec':{}}", "metadata.name",
		 "a DNS-1035 label must consist of"},
		{&api_kind_Pod, "{'metadata':{},'spec':{'containers':[{'name':'a'}]}}",
		 "metadata.name", "Required value: name or generateName is required"},
		{&api_kind_Pod, "{'metadata':{'name':'a','labels':{'a b':'c'}},'spec':{}}",
		 "metadata.labels", "Invalid value: \"a b\": name part must consist"},
		{&api_kind_Pod, "{'metadata':{'name':'a','labels':{'a':'-'}},'spec':{}}",
		 "metadata.labels",
		 "Invalid value: \"-\": a valid label must be an empty string or"},
		{&api_kind_Pod, "{'metadata':{'name':'a'},'spec':{'containers':[]}}",
		 "spec.containers", "Required value"},
		{&api_kind_Pod,
		 "{'metadata':{'name':'a'},'spec':{'containers':[{'name':'c'},{'name':'c'}]}}",
		 "spec.containers[1].name", "Duplicate value: \"c\""},
		{&api_kind_Pod,
		 "{'metadata':{'name':'a'},'spec':{'containers':[{'name':'c','resources':"
		 "{'requests':{'memory':'-1'}}}]}}",
		 "spec.containers[0].resources.requests[memory]",
		 "must be greater than or equal to 0"},
		{&api_kind_Service, "{'metadata':{'name':'a'},'spec':{'ports':[{'port':70000}]}}",
		 "spec.ports[0].port",
		 "Invalid value: 70000: must be between 1 and 65535, inclusive"},
		{&api_kind_Service,
		 "{'metadata':{'name':'a'},'spec':{'ports':[{'port':1,'targetPort':[]}]}}",
		 "spec.ports[0].targetPort", "must be of type integer or string"},
		{&api_kind_Secret, "{'metadata':{'name':'a'},'data':{'k':'***'}}", "data[k]",
		 "must be base64"},
		{&api_kind_Node, "{'metadata':{'name':'a'},'spec':{'podCIDR':'10.0.0.0'}}",
		 "spec.podCIDR", "must be a valid CIDR value"},
		{&api_kind_Lease, "{'metadata':{'name':'a'},'spec':{'renewTime':'soon'}}",
		 "spec.renewTime", "RFC 3339"},
		{&api_kind_KubeVirt,
		 "{'metadata':{'name':'a'},'spec':{'configuration':{'migrations':"
		 "{'parallelMigrationsPerCluster':0}}}}",
		 "spec.configuration.migrations.parallelMigrationsPerCluster",
		 "must be between 1 and"},
		{&api_kind_KubeVirt,
		 "{'metadata':{'name':'a'},'spec':{'configuration':"
		 "{'obsoleteCPUModels':{'486':'yes'}}}}",
		 "spec.configuration.obsoleteCPUModels[486]", "must be of type boolean"},
		{&api_kind_Pod, "[]", "", "must be of type object"},
		{&api_kind_PortBinding,
		 "{'metadata':{'name':'a'},'spec':{'network':'d','mac':'0a:58','address':'10.0.0.300',"
		 "'nodeName':'n','epoch':1}}",
		 "spec.mac", "must be a MAC address"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(js_unrefp) struct json *j = J(cases[i].text);
		CLEANUP(js_unrefp) struct json *before = js_copy(j);
		CLEANUP(fe_fini) struct field_errs fe = FIELD_ERRS_INIT;

		api_check(cases[i].kind, j, 0, &fe);
		if (!reports(&fe, cases[i].field, cases[i].message)) {
			show(&fe);
			fail_msg("%s: no '%s' at '%s'", cases[i].text, cases[i].message,
				 cases[i].field);
		}
		assert_true(js_equal(j, before));
	}
}

static void all_faults_come_at_once(void **state)
{
	CLEANUP(js_unrefp)
	struct json *j = J(VM("{'domain':{'devices':{'disks':[{'name':1},{'foo':2}],'tpm':{}},"
			      "'memory':{'guest':'x'}},'bar':1}"));
	CLEANUP(fe_fini) struct field_errs fe = FIELD_ERRS_INIT;
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(4096);
	CLEANUP(js_unrefp) struct json *causes = NULL;

	(void)state;
	api_check(&api_kind_VirtualMachine, j, 0, &fe);
	assert_int_equal(fe.n, 6);
	assert_int_equal(fe_count(&fe, FE_UNKNOWN), 2);
	fe_unknown_summary(&fe, &b);
	assert_string_equal(sbuf_str(&b), "unknown field \"" P "domain.devices.disks[1].foo\", "
					  "unknown field \"" P "bar\"");
	causes = fe_causes(&fe);
	assert_int_equal(js_len(causes), 4);
	assert_string_equal(js_get_str(js_item(causes, 0), "reason"), "FieldValueTypeInvalid");
}

static void the_number_of_faults_is_bounded(void **state)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(1 << 20);
	CLEANUP(js_unrefp) struct json *j = NULL;
	CLEANUP(fe_fini) struct field_errs fe = FIELD_ERRS_INIT;

	(void)state;
	sbuf_adds(&b, "{\"metadata\":{\"name\":\"a\"},\"data\":{");
	for (int i = 0; i < 2000; i++)
		sbuf_addf(&b, "%s\"k%d\":1", i ? "," : "", i);
	sbuf_adds(&b, "}}");
	assert_int_equal(js_parse(b.p, b.n, &j, NULL), RC_OK);
	api_check(&api_kind_ConfigMap, j, 0, &fe);
	assert_int_equal(fe.n, LIMIT_FIELD_ERRORS);
	assert_int_equal(fe.n_lost, 2000 - LIMIT_FIELD_ERRORS);
}

static void good_objects_pass(void **state)
{
	static const struct {
		const struct api_kind *kind;
		const char *text;
	} cases[] = {
		{&api_kind_VirtualMachine,
		 VM("{'domain':{'cpu':{'cores':2,'model':'host-model'},'memory':{'guest':'1Gi'},"
		    "'resources':{'requests':{'memory':1073741824}},'machine':{'type':'q35'},"
		    "'devices':{'disks':[{'name':'d','disk':{'bus':'virtio'},'bootOrder':1},"
		    "{'name':'c','cdrom':{'bus':'sata'}}],'interfaces':[{'name':'default',"
		    "'masquerade':{},'ports':[{'port':80}]}],'rng':{},'blockMultiQueue':false}},"
		    "'evictionStrategy':'LiveMigrate','networks':[{'name':'default','pod':{}}],"
		    "'volumes':[{'name':'d','persistentVolumeClaim':{'claimName':'x'}},"
		    "{'name':'c','cloudInitNoCloud':{'userData':'#cloud-config'}}]}")},
		{&api_kind_Pod,
		 "{'apiVersion':'v1','kind':'Pod','metadata':{'generateName':'a-',"
		 "'creationTimestamp':null},'spec':{'containers':[{'name':'c','image':'i'}],"
		 "'hostNetwork':false,'nodeName':''}}"},
		{&api_kind_Namespace, "{'metadata':{'name':'a'}}"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(js_unrefp) struct json *j = J(cases[i].text);
		CLEANUP(fe_fini) struct field_errs fe = FIELD_ERRS_INIT;

		api_check(cases[i].kind, j, 0, &fe);
		if (!fe_is_ok(&fe)) {
			show(&fe);
			fail_msg("%s was refused", cases[i].kind->kind);
		}
	}
}

static void a_field_without_effect_gets_a_warning_that_says_why(void **state)
{
	CLEANUP(js_unrefp) struct json *j = J(DOMAIN("{'devices':{'disableHotplug':true}}"));
	CLEANUP(fe_fini) struct field_errs fe = FIELD_ERRS_INIT;

	(void)state;
	api_check(&api_kind_VirtualMachine, j, 0, &fe);
	assert_true(fe_is_ok(&fe));
	assert_int_equal(fe.n_warnings, 1);
	assert_string_equal(fe.warnings[0],
			    P "domain.devices.disableHotplug: has no effect here: there is "
			      "no hot-plug yet, so it is always off");
}

static void flags_choose_what_is_looked_at(void **state)
{
	CLEANUP(js_unrefp)
	struct json *j = J(
		"{'metadata':{'name':'a'},'spec':{'foo':1,'receive':{'migrationID':'x'}},"
		"'status':{'bar':1,'migrationState':{'migrationConfiguration':{'network':'x'}}}}");
	const struct api_kind *k = &api_kind_VirtualMachineInstanceMigration;
	CLEANUP(fe_fini)
	struct field_errs all = FIELD_ERRS_INIT, status = FIELD_ERRS_INIT, rest = FIELD_ERRS_INIT,
			  lax = FIELD_ERRS_INIT;

	(void)state;
	api_check(k, j, 0, &all);
	assert_true(reports(&all, "spec.foo", "unknown") && reports(&all, "status.bar", "unknown"));
	assert_true(reports(&all, "spec.receive", "not supported"));
	assert_int_equal(all.n, 3); /* support levels do not count below status */
	api_check(k, j, API_CHECK_ONLY_STATUS, &status);
	assert_int_equal(status.n, 1);
	api_check(k, j, API_CHECK_SKIP_STATUS, &rest);
	assert_int_equal(rest.n, 2);
	api_check(k, j, API_CHECK_NO_SUPPORT, &lax);
	assert_int_equal(lax.n, 2);
}

static void immutable_fields_stay(void **state)
{
	CLEANUP(js_unrefp)
	struct json *old =
		J("{'metadata':{'name':'a'},'provisioner':'p','reclaimPolicy':'Delete'}");
	CLEANUP(js_unrefp)
	struct json *new_ = J("{'metadata':{'name':'a','labels':{'x':'y'}},'provisioner':'q'}");
	CLEANUP(fe_fini) struct field_errs fe = FIELD_ERRS_INIT;

	(void)state;
	api_check_update(&api_kind_StorageClass, old, new_, &fe);
	assert_int_equal(fe.n, 2);
	assert_true(reports(&fe, "provisioner", "Invalid value: \"q\": field is immutable"));
	assert_true(reports(&fe, "reclaimPolicy", "field is immutable"));
}

static void defaults_are_written_for_core_kinds_only(void **state)
{
	CLEANUP(js_unrefp) struct json *svc = J("{'spec':{'ports':[{'port':80}]}}");
	CLEANUP(js_unrefp) struct json *vm = J(DOMAIN("{'devices':{}}")), *before = js_copy(vm);

	(void)state;
	assert_int_equal(api_set_defaults(&api_kind_Service, svc), RC_OK);
	assert_string_equal(js_str(js_at(svc, "spec", "type", NULL)), "ClusterIP");
	assert_string_equal(js_get_str(js_item(js_at(svc, "spec", "ports", NULL), 0), "protocol"),
			    "TCP");
	assert_int_equal(api_set_defaults(&api_kind_VirtualMachine, vm), RC_OK);
	assert_true(js_equal(vm, before));
}

static void pruning_drops_only_what_is_unknown(void **state)
{
	CLEANUP(js_unrefp)
	struct json *j = J(
		"{'apiVersion':'v1','kind':'Pod','x':1,'metadata':{'name':'a','y':2,'labels':{'z':'1'}},"
		"'spec':{'containers':[{'name':'c','w':{}}],'q':[]}}");
	CLEANUP(js_unrefp)
	struct json *want =
		J("{'apiVersion':'v1','kind':'Pod','metadata':{'name':'a','labels':{'z':'1'}},"
		  "'spec':{'containers':[{'name':'c'}]}}");

	(void)state;
	assert_int_equal(api_prune(&api_kind_Pod, j), RC_OK);
	assert_true(js_equal(j, want));
}

static void summaries_read_as_kubernetes_writes_them(void **state)
{
	CLEANUP(fe_fini) struct field_errs one = FIELD_ERRS_INIT, two = FIELD_ERRS_INIT;
	CLEANUP(sbuf_fini) struct sbuf a = SBUF_INIT(1024), b = SBUF_INIT(1024);

	(void)state;
	fe_required(&one, "spec.a", NULL);
	fe_summary(&one, FE__MAX, &a);
	assert_string_equal(sbuf_str(&a), "spec.a: Required value");
	fe_required(&two, "spec.a", "why");
	fe_invalid(&two, "spec.b", "x\"y", "is %s", "odd");
	fe_unknown(&two, "spec.c");
	fe_cause(&two, "FieldValueInvalid", "spec.d", "text as it is");
	fe_summary(&two, FE__MAX, &b);
	assert_string_equal(sbuf_str(&b), "[spec.a: Required value: why, spec.b: Invalid value: "
					  "\"x\\\"y\": is odd, text as it is]");
}

static const struct json *t_vm;

static enum rc check_everything(void)
{
	CLEANUP(fe_fini) struct field_errs fe = FIELD_ERRS_INIT;
	CLEANUP(js_unrefp) struct json *copy = js_copy(t_vm);

	if (!copy)
		return RC_NOMEM;
	api_check(&api_kind_VirtualMachine, copy, 0, &fe);
	if (fe.rc)
		return fe.rc;
	return api_prune(&api_kind_VirtualMachine, copy);
}

static void running_out_of_memory_is_reported(void **state)
{
	CLEANUP(js_unrefp)
	struct json *j = J(VM(
		"{'domain':{'devices':{'disks':[{'name':1},{'foo':2}],'tpm':{},'disableHotplug':true},"
		"'memory':{'guest':'x'}},'evictionStrategy':3,'bar':1}"));

	(void)state;
	t_vm = j;
	torture(check_everything);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_fault_is_named_with_its_path),
		cmocka_unit_test(all_faults_come_at_once),
		cmocka_unit_test(the_number_of_faults_is_bounded),
		cmocka_unit_test(good_objects_pass),
		cmocka_unit_test(a_field_without_effect_gets_a_warning_that_says_why),
		cmocka_unit_test(flags_choose_what_is_looked_at),
		cmocka_unit_test(immutable_fields_stay),
		cmocka_unit_test(defaults_are_written_for_core_kinds_only),
		cmocka_unit_test(pruning_drops_only_what_is_unknown),
		cmocka_unit_test(summaries_read_as_kubernetes_writes_them),
		cmocka_unit_test(running_out_of_memory_is_reported),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("api_check", tests, NULL, NULL);
}
