/* PodDisruptionBudgets as kube-apiserver refuses them; FerryConfig's fencing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "api/api.h"
#include "api/fielderr.h"
#include "base/str.h"
#include "fake_hooks.h"
#include "virt/admission/admission.h"

#define BUDGETS "poddisruptionbudgets.policy"
#define CONFIGS "ferryconfigs.ferry.dev"

struct row {
	const char *spec, *field, *message; /* field NULL: accepted */
};

static void check(const char *resource, const struct api_type *type, const char *name,
		  const struct row *rows, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct hook_env env;
		struct hook_ctx ctx = {.env = &env, .op = HOOK_CREATE, .ns = "", .subresource = ""};
		CLEANUP(js_unrefp) struct json *obj = json_of("{'metadata': {}}");
		struct field_errs fe = FIELD_ERRS_INIT;
		void *typed = NULL;

		env_init(&env);
		assert_int_equal(js_set(js_get(obj, "metadata"), "name", js_new_str(name)), RC_OK);
		assert_int_equal(js_set(obj, "spec", json_of(rows[i].spec)), RC_OK);
		assert_int_equal(api_decode(type, obj, &typed, NULL), RC_OK);
		for (size_t k = 0; k < n_virt_admission; k++)
			if (str_eq(virt_admission[k].resource, resource))
				assert_int_equal(
					virt_admission[k].validate(&ctx, typed, NULL, &fe, NULL),
					RC_OK);
		if (!rows[i].field) {
			if (fe.n)
				fail_msg("row %zu: %s", i, fe.items[0].message);
		} else if (!fe.n || !str_eq(fe.items[0].field, rows[i].field) ||
			   !strstr(fe.items[0].message, rows[i].message)) {
			fail_msg("row %zu: %s: %s", i, fe.n ? fe.items[0].field : "accepted",
				 fe.n ? fe.items[0].message : "");
		}
		fe_fini(&fe);
		api_free(type, typed);
		env_fini(&env);
	}
}

static void budgets_have_one_limit_and_a_sound_one(void **state)
{
	static const struct row rows[] = {
		{"{'minAvailable': 1}", NULL, NULL},
		{"{'minAvailable': '50%'}", NULL, NULL},
		{"{'maxUnavailable': '100%'}", NULL, NULL},
		{"{'minAvailable': 1, 'maxUnavailable': 1}", "spec", "cannot be both set"},
		{"{'minAvailable': -1}", "spec.minAvailable", "greater than or equal to 0"},
		{"{'maxUnavailable': '101%'}", "spec.maxUnavailable", "greater than 100%"},
		{"{'minAvailable': 'half'}", "spec.minAvailable", "a valid percent string"},
		{"{'minAvailable': '5'}", "spec.minAvailable", "a valid percent string"},
	};

	(void)state;
	check(BUDGETS, &api_type_PodDisruptionBudget, "b", rows, ARRAY_SIZE(rows));
}

static void a_fence_agent_is_named_and_is_no_path(void **state)
{
	static const struct row rows[] = {
		{"{'fencing': 'Agent', 'fenceAgent': {'program': 'power-off_2.sh'}}", NULL, NULL},
		{"{'fencing': 'OutOfServiceTaint', 'fenceAgent': {'program': 'p'}}", NULL, NULL},
		{"{'fencing': 'Agent'}", "spec.fenceAgent", "needs the program"},
		{"{'fencing': 'Agent', 'fenceAgent': {'program': '../sh'}}",
		 "spec.fenceAgent.program", "not a path"},
		{"{'fencing': 'None', 'fenceAgent': {'program': '.hidden'}}",
		 "spec.fenceAgent.program", "not a path"},
		{"{'fencing': 'Agent', 'fenceAgent': {'program': '-rf'}}",
		 "spec.fenceAgent.program", "not a path"},
		{"{'fencing': 'Agent', 'fenceAgent': {'program': 'a b'}}",
		 "spec.fenceAgent.program", "not a path"},
	};

	(void)state;
	check(CONFIGS, &api_type_FerryConfig, "ferry", rows, ARRAY_SIZE(rows));
}

static void a_migration_network_has_a_name_that_labels_can_have(void **state)
{
	static const struct row rows[] = {
		{"{'configuration': {'migrations': {'network': 'fast-1'}}}", NULL, NULL},
		{"{'configuration': {'migrations': {'network': ''}}}", NULL, NULL},
		{"{'configuration': {'migrations': {'network': 'ns/fast'}}}",
		 "spec.configuration.migrations.network", "'ns/fast' is not a name"},
		{"{'configuration': {'migrations': {'network': 'Fast'}}}",
		 "spec.configuration.migrations.network", "is not a name"},
	};

	(void)state;
	check("kubevirts.kubevirt.io", &api_type_KubeVirt, "kubevirt", rows, ARRAY_SIZE(rows));
}

static void a_folder_of_host_disks_is_a_plain_path(void **state)
{
	static const struct row rows[] = {
		{"{'hostDiskPaths': ['/srv/disks', '/a']}", NULL, NULL},
		{"{'hostDiskPaths': ['/a', '/']}", "spec.hostDiskPaths[1]", "other than the root"},
		{"{'hostDiskPaths': ['a']}", "spec.hostDiskPaths[0]", "absolute path"},
		{"{'hostDiskPaths': ['/a/']}", "spec.hostDiskPaths[0]", "trailing slashes"},
		{"{'hostDiskPaths': ['/a/../b']}", "spec.hostDiskPaths[0]", "'..'"},
	};

	(void)state;
	check(CONFIGS, &api_type_FerryConfig, "ferry", rows, ARRAY_SIZE(rows));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(budgets_have_one_limit_and_a_sound_one),
		cmocka_unit_test(a_folder_of_host_disks_is_a_plain_path),
		cmocka_unit_test(a_fence_agent_is_named_and_is_no_path),
		cmocka_unit_test(a_migration_network_has_a_name_that_labels_can_have),
	};

	js_use_mem();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
