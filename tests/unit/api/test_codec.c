#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "api/gen/api_types.h"
#include "base/mem.h"
#include "base/str.h"
#include "json/json.h"
#include "lib/torture.h"

static const char vm_text[] =
	"{\"apiVersion\":\"kubevirt.io/v1\",\"kind\":\"VirtualMachine\","
	"\"metadata\":{\"name\":\"a\",\"namespace\":\"default\",\"labels\":{\"x\":\"y\"},"
	"\"ownerReferences\":[{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"name\":\"p\",\"uid\":\"u\"}]},"
	"\"spec\":{\"runStrategy\":\"Always\",\"template\":{\"metadata\":{\"labels\":{\"k\":\"v\"}},"
	"\"spec\":{\"domain\":{\"resources\":{\"requests\":{\"memory\":\"1Gi\"}},"
	"\"cpu\":{\"cores\":2},\"devices\":{\"disks\":[{\"name\":\"root\","
	"\"bootOrder\":1,\"disk\":{\"bus\":\"virtio\"}},{\"name\":\"seed\",\"cdrom\":{}}],"
	"\"interfaces\":[{\"name\":\"default\",\"masquerade\":{}}]}},"
	"\"terminationGracePeriodSeconds\":0,"
	"\"volumes\":[{\"name\":\"root\",\"persistentVolumeClaim\":{\"claimName\":\"c\"}}],"
	"\"networks\":[{\"name\":\"default\",\"pod\":{}}]}}},"
	"\"status\":{\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}]}}";

static struct json *parse(const char *text)
{
	struct json *j = NULL;

	assert_int_equal(js_parse(text, strlen(text), &j, NULL), RC_OK);
	return j;
}

static void a_vm_comes_back_as_it_went_in(void **state)
{
	CLEANUP(js_unrefp) struct json *j = parse(vm_text);
	CLEANUP(VirtualMachine_freep) VirtualMachine *vm = NULL;
	struct err err = {0};

	assert_int_equal(VirtualMachine_decode(j, &vm, &err), RC_OK);
	assert_string_equal(vm->metadata.name, "a");
	assert_string_equal(vm->spec.template->spec.domain.devices.disks[1].name, "seed");
	assert_non_null(vm->spec.template->spec.networks[0].pod);
	assert_true(vm->spec.template->spec.has_terminationGracePeriodSeconds);

	CLEANUP(js_unrefp) struct json *back = VirtualMachine_encode(vm);
	CLEANUP(mem_freep) char *text = js_to_text(back);

	assert_string_equal(text, vm_text);
}

static void a_clone_is_equal_until_it_is_changed(void **state)
{
	CLEANUP(js_unrefp) struct json *j = parse(vm_text);
	CLEANUP(VirtualMachine_freep) VirtualMachine *vm = NULL;

	assert_int_equal(VirtualMachine_decode(j, &vm, NULL), RC_OK);
	CLEANUP(VirtualMachine_freep) VirtualMachine *copy = VirtualMachine_clone(vm);

	assert_true(VirtualMachine_equal(vm, copy));
	copy->spec.template->spec.domain.cpu->cores = 3;
	assert_false(VirtualMachine_equal(vm, copy));
}

static void a_wrong_type_is_refused_with_its_path(void **state)
{
	CLEANUP(js_unrefp)
	struct json *j = parse("{\"spec\":{\"template\":{\"spec\":{\"volumes\":[{\"name\":1}]}}}}");
	VirtualMachine *vm = NULL;
	struct err err = {0};

	assert_int_equal(VirtualMachine_decode(j, &vm, &err), RC_INVALID);
	assert_null(vm);
	assert_string_equal(err.msg,
			    "spec.template.spec.volumes[0].name must be a string, not integer");
}

static const struct json *parsed; /* jansson's parser itself is not safe when memory runs out */

static enum rc round_trip(void)
{
	CLEANUP(VirtualMachine_freep) VirtualMachine *vm = NULL, *copy = NULL;
	enum rc rc = VirtualMachine_decode(parsed, &vm, NULL);

	if (rc)
		return rc;
	copy = VirtualMachine_clone(vm);
	if (!copy)
		return RC_NOMEM;
	CLEANUP(js_unrefp) struct json *back = VirtualMachine_encode(copy);

	return back ? RC_OK : RC_NOMEM;
}

static void running_out_of_memory_anywhere_leaks_nothing(void **state)
{
	CLEANUP(js_unrefp) struct json *j = parse(vm_text);

	parsed = j;
	torture(round_trip);
}

static void the_tables_are_consistent(void **state)
{
	for (size_t i = 0; api_kinds[i]; i++) {
		const struct api_kind *k = api_kinds[i];

		assert_ptr_equal(api_kind_find(k->group, k->version, k->kind), k);
		assert_ptr_equal(api_kind_by_plural(k->group, k->version, k->plural), k);
		assert_ptr_equal(k->type->kind, k);
		assert_string_equal(k->type->fields[0].name, "metadata");
		assert_int_equal(k->type->fields[0].offset, 0);
		for (uint32_t f = 0; f < k->type->n_fields; f++)
			assert_ptr_equal(api_field_find(k->type, k->type->fields[f].name),
					 &k->type->fields[f]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_vm_comes_back_as_it_went_in),
		cmocka_unit_test(a_clone_is_equal_until_it_is_changed),
		cmocka_unit_test(a_wrong_type_is_refused_with_its_path),
		cmocka_unit_test(running_out_of_memory_anywhere_leaks_nothing),
		cmocka_unit_test(the_tables_are_consistent),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("api_codec", tests, NULL, NULL);
}
