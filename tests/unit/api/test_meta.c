#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "api/meta.h"
#include "base/mem.h"
#include "base/str.h"
#include "json/json.h"
#include "lib/torture.h"

static void a_condition_keeps_its_time_until_its_status_changes(void **state)
{
	VirtualMachineStatus st = {0};
	struct api_cond c;
	bool changed = true;
	const struct api_cond first = {"Ready", "False", "VMINotExists", "VMI does not exist"};
	const struct api_cond reworded = {"Ready", "False", "Other", NULL};

	(void)state;
	assert_int_equal(API_COND_SET(&st, VirtualMachineCondition, 0, "Ready", "False",
				      "VMINotExists", "VMI does not exist"),
			 RC_OK);
	assert_string_equal(st.conditions[0].lastTransitionTime, "1970-01-01T00:00:00Z");
	assert_int_equal(api_cond_set(&api_type_VirtualMachineCondition, &st.conditions,
				      &st.n_conditions, &first, 9 * USEC_PER_SEC, &changed),
			 RC_OK);
	assert_false(changed);
	assert_int_equal(api_cond_set(&api_type_VirtualMachineCondition, &st.conditions,
				      &st.n_conditions, &reworded, 9 * USEC_PER_SEC, &changed),
			 RC_OK);
	assert_true(changed);
	assert_null(st.conditions[0].message);
	assert_string_equal(st.conditions[0].lastTransitionTime, "1970-01-01T00:00:00Z");
	assert_int_equal(
		API_COND_SET(&st, VirtualMachineCondition, 9 * USEC_PER_SEC, "Ready", "True"),
		RC_OK);
	assert_string_equal(st.conditions[0].lastTransitionTime, "1970-01-01T00:00:09Z");
	assert_true(API_COND_IS(&st, VirtualMachineCondition, "Ready", "True"));
	assert_false(API_COND_IS(&st, VirtualMachineCondition, "Paused", "True"));
	assert_true(API_COND_GET(&st, VirtualMachineCondition, "Ready", &c));
	assert_null(c.reason);
	assert_true(API_COND_DEL(&st, VirtualMachineCondition, "Ready"));
	assert_false(API_COND_DEL(&st, VirtualMachineCondition, "Ready"));
	assert_int_equal(st.n_conditions, 0);
	api_fini(&api_type_VirtualMachineStatus, &st);
}

static void finalizers_and_owners_are_kept_once(void **state)
{
	ObjectMeta m = {0};
	ObjectMeta owner = {.name = (char *)(uintptr_t) "vm", .uid = (char *)(uintptr_t) "u1"};

	(void)state;
	assert_int_equal(api_add_finalizer(&m, "a/b"), RC_OK);
	assert_int_equal(api_add_finalizer(&m, "a/b"), RC_OK);
	assert_int_equal(m.n_finalizers, 1);
	assert_true(api_has_finalizer(&m, "a/b"));
	assert_true(api_del_finalizer(&m, "a/b"));
	assert_false(api_del_finalizer(&m, "a/b"));
	assert_null(api_controller_of(&m));
	for (int i = 0; i < 2; i++)
		assert_int_equal(api_add_owner(&m, &api_kind_VirtualMachine, &owner, true, true),
				 RC_OK);
	assert_int_equal(m.n_ownerReferences, 1);
	assert_string_equal(api_controller_of(&m)->kind, "VirtualMachine");
	assert_string_equal(api_controller_of(&m)->apiVersion, "kubevirt.io/v1");
	assert_true(api_is_owned_by(&m, "u1"));
	assert_false(api_is_owned_by(&m, "u2"));
	assert_false(api_is_owned_by(&m, NULL));
	api_fini(&api_type_ObjectMeta, &m);
}

static void maps_replace_delete_and_compare(void **state)
{
	struct api_map a = {0}, b = {0};

	(void)state;
	assert_int_equal(api_map_set(&a, "x", "1"), RC_OK);
	assert_int_equal(api_map_setf(&a, "y", "%d", 2), RC_OK);
	assert_int_equal(api_map_set(&b, "y", "2"), RC_OK);
	assert_int_equal(api_map_set(&b, "x", "0"), RC_OK);
	assert_false(api_map_equal(&a, &b));
	assert_int_equal(api_map_merge(&b, &a), RC_OK);
	assert_true(api_map_equal(&a, &b));
	assert_string_equal(api_map_get(&b, "x"), "1");
	assert_true(api_map_del(&b, "x"));
	assert_false(api_map_has(&b, "x"));
	assert_false(api_map_del(&b, "x"));
	assert_true(api_map_del(&b, "y"));
	assert_null(b.items);
	api_map_fini(&a);
}

static void names_have_kubernetes_limits(void **state)
{
	static const char *const good[] = {"a", "a/b", "example.com/My_name.1", "A"};
	static const char *const bad[] = {"", "/", "a/", "/a", "a b", "-a", "a-", "A.b/c", "a/b/c"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		assert_true(api_is_qualified_name(good[i]));
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_false(api_is_qualified_name(bad[i]));
	assert_true(api_is_label_value(""));
	assert_false(api_is_label_value("a/b"));
	assert_false(api_is_label_value(NULL));
}

static enum rc set_everything(void)
{
	CLEANUP(VirtualMachine_freep) VirtualMachine *vm = VirtualMachine_new();
	ObjectMeta owner = {.name = (char *)(uintptr_t) "vm", .uid = (char *)(uintptr_t) "u1"};
	enum rc rc = vm ? RC_OK : RC_NOMEM;

	if (!rc)
		rc = api_add_finalizer(&vm->metadata, "a/b");
	if (!rc)
		rc = api_add_owner(&vm->metadata, &api_kind_Pod, &owner, false, false);
	if (!rc)
		rc = API_COND_SET(&vm->status, VirtualMachineCondition, 0, "Ready", "True", "R",
				  "m");
	if (!rc)
		rc = api_map_setf(&vm->metadata.labels, "a", "%s", "b");
	if (!rc)
		rc = api_set_strf(&vm->status.printableStatus, "%s", "Running");
	return rc;
}

static void running_out_of_memory_is_reported(void **state)
{
	(void)state;
	torture(set_everything);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_condition_keeps_its_time_until_its_status_changes),
		cmocka_unit_test(finalizers_and_owners_are_kept_once),
		cmocka_unit_test(maps_replace_delete_and_compare),
		cmocka_unit_test(names_have_kubernetes_limits),
		cmocka_unit_test(running_out_of_memory_is_reported),
	};

	return cmocka_run_group_tests_name("api_meta", tests, NULL, NULL);
}
