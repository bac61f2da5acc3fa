/* MigrationPolicy: KubeVirt's webhook, and what the schema refuses before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "api/api.h"
#include "base/str.h"
#include "fake_hooks.h"
#include "lib/torture.h"
#include "virt/admission/admission.h"

#define POLICIES "migrationpolicies.migrations.kubevirt.io"
#define NO_GATE \
	"maxDowntimeMs cannot be modified without enabling the MigrationStallDetection feature gate"

static struct json *policy_of(const char *spec)
{
	struct json *obj = json_of("{'metadata': {'name': 'p'}}");

	assert_int_equal(js_set(obj, "spec", json_of(spec)), RC_OK);
	return obj;
}

static enum rc admit(struct hook_env *env, enum hook_op op, const struct json *obj,
		     const struct json *old, struct field_errs *fe)
{
	struct hook_ctx ctx = {.env = env, .op = op, .ns = "", .subresource = ""};
	const struct admission_hook *h = NULL;
	void *typed = NULL, *typed_old = NULL;
	enum rc rc = RC_OK;

	for (size_t i = 0; i < n_virt_admission; i++)
		if (str_eq(virt_admission[i].resource, POLICIES))
			h = &virt_admission[i];
	assert_non_null(h);
	assert_string_equal(h->denied_by, "migration-policy-validator.kubevirt.io");
	if (obj)
		rc = api_decode(&api_type_MigrationPolicy, obj, &typed, NULL);
	if (!rc && old)
		rc = api_decode(&api_type_MigrationPolicy, old, &typed_old, NULL);
	if (!rc)
		rc = h->validate(&ctx, typed, typed_old, fe, NULL);
	MigrationPolicy_free(typed);
	MigrationPolicy_free(typed_old);
	return rc;
}

static void every_rule_says_its_own_text(void **state)
{
	static const char gate[] =
		"{'developerConfiguration': {'featureGates': ['MigrationStallDetection']}}";
	static const struct {
		const char *config, *spec, *old; /* old NULL: a create */
		const char *field, *message;	 /* NULL: accepted */
	} cases[] = {
		{NULL,
		 "{'selectors': {}, 'completionTimeoutPerGiB': 0, 'bandwidthPerMigration': '0', "
		 "'allowAutoConverge': true}",
		 NULL, NULL, NULL},
		{NULL, "{'selectors': {}, 'completionTimeoutPerGiB': -1}", NULL,
		 "spec.completionTimeoutPerGiB", "must not be negative"},
		{NULL, "{'selectors': {}, 'bandwidthPerMigration': '-1Mi'}", NULL,
		 "spec.bandwidthPerMigration", "must not be negative"},
		{NULL, "{'selectors': {}, 'bandwidthPerMigration': '-1m'}", NULL,
		 "spec.bandwidthPerMigration", "must not be negative"},
		{NULL, "{'selectors': {}, 'maxDowntimeMs': 50}", NULL, "spec.maxDowntimeMs",
		 NO_GATE},
		{NULL, "{'selectors': {}, 'maxDowntimeMs': 50}", "{'selectors': {}}",
		 "spec.maxDowntimeMs", NO_GATE},
		{NULL, "{'selectors': {}, 'maxDowntimeMs': 50}",
		 "{'selectors': {}, 'maxDowntimeMs': 60}", "spec.maxDowntimeMs", NO_GATE},
		/* from the time of the gate */
		{NULL, "{'selectors': {'namespaceSelector': {'a': 'b'}}, 'maxDowntimeMs': 50}",
		 "{'selectors': {}, 'maxDowntimeMs': 50}", NULL, NULL},
		{NULL, "{'selectors': {}}", "{'selectors': {}, 'maxDowntimeMs': 50}", NULL, NULL},
		{gate, "{'selectors': {}, 'maxDowntimeMs': 50}", NULL, NULL, NULL},
	};
	struct field_errs fe = FIELD_ERRS_INIT;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(js_unrefp) struct json *obj = policy_of(cases[i].spec);
		CLEANUP(js_unrefp)
		struct json *old = cases[i].old ? policy_of(cases[i].old) : NULL;
		struct hook_env env;

		env_init(&env);
		if (cases[i].config)
			env.config = json_of(cases[i].config);
		assert_int_equal(admit(&env, old ? HOOK_UPDATE : HOOK_CREATE, obj, old, &fe),
				 RC_OK);
		assert_int_equal(fe.n, cases[i].field ? 1 : 0);
		if (cases[i].field) {
			assert_string_equal(fe.items[0].field, cases[i].field);
			assert_string_equal(fe.items[0].message, cases[i].message);
		}
		fe_fini(&fe);
		env_fini(&env);
	}
}

static void all_faults_come_at_once(void **state)
{
	CLEANUP(js_unrefp)
	struct json *obj = policy_of("{'selectors': {}, 'completionTimeoutPerGiB': -1, "
				     "'bandwidthPerMigration': '-1Mi', 'maxDowntimeMs': 50}");
	struct field_errs fe = FIELD_ERRS_INIT;
	struct hook_env env;

	(void)state;
	env_init(&env);
	assert_int_equal(admit(&env, HOOK_CREATE, obj, NULL, &fe), RC_OK);
	assert_int_equal(fe.n, 3); /* in KubeVirt's order */
	assert_string_equal(fe.items[0].field, "spec.completionTimeoutPerGiB");
	assert_string_equal(fe.items[1].field, "spec.maxDowntimeMs");
	assert_string_equal(fe.items[2].field, "spec.bandwidthPerMigration");
	fe_fini(&fe);
	/* what is stored may go, whatever is wrong with it */
	assert_int_equal(admit(&env, HOOK_DELETE, NULL, obj, &fe), RC_OK);
	assert_int_equal(fe.n, 0);
	env_fini(&env);
}

/* Refused by name until Ferry does it; asking for nothing is granted. */
static void what_ferry_lacks_is_refused_by_name(void **state)
{
	static const struct {
		const char *spec, *field; /* NULL: accepted */
	} cases[] = {
		{"{'selectors': {}}", NULL},
		{"{'selectors': {}, 'allowPostCopy': false}", NULL},
		{"{'selectors': {}, 'allowPostCopy': true}", NULL},
		{"{'selectors': {}, 'experimental': {'compression': 'zstd'}}", NULL},
		{"{'selectors': {}, 'experimental': {'compression': 'lz4'}}",
		 "spec.experimental.compression"},
		{"{'selectors': {}, 'experimental': {'stallDetector': {'stallMargin': 5}}}",
		 "spec.experimental.stallDetector"},
		{"{'selectors': {}, 'maxDowntimeMs': 0}", "spec.maxDowntimeMs"},
		{"{'selectors': {}, 'maxDowntimeMs': 2000001}", "spec.maxDowntimeMs"},
		{"{}", "spec.selectors"},
		/* these are the webhook's */
		{"{'selectors': {}, 'completionTimeoutPerGiB': -1}", NULL},
		{"{'selectors': {}, 'bandwidthPerMigration': '-1'}", NULL},
	};
	struct field_errs fe = FIELD_ERRS_INIT;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(js_unrefp) struct json *obj = policy_of(cases[i].spec);

		api_check(&api_kind_MigrationPolicy, obj, 0, &fe);
		assert_int_equal(fe.n, cases[i].field ? 1 : 0);
		if (cases[i].field)
			assert_string_equal(fe.items[0].field, cases[i].field);
		fe_fini(&fe);
	}
}

static struct hook_env env_once;
static struct json *obj_once;

static enum rc validate_once(void)
{
	struct field_errs fe = FIELD_ERRS_INIT;
	enum rc rc = admit(&env_once, HOOK_CREATE, obj_once, NULL, &fe);

	rc = rc ? rc : fe.rc;
	fe_fini(&fe);
	return rc;
}

static void running_out_of_memory_is_said(void **state)
{
	(void)state;
	env_init(&env_once);
	env_once.config = json_of("{'developerConfiguration': {'featureGates': ['Other']}}");
	obj_once = policy_of("{'selectors': {'namespaceSelector': {'a': 'b'}}, 'maxDowntimeMs': 5, "
			     "'bandwidthPerMigration': '-1'}");
	torture(validate_once);
	js_unref(obj_once);
	env_fini(&env_once);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_rule_says_its_own_text),
		cmocka_unit_test(all_faults_come_at_once),
		cmocka_unit_test(what_ferry_lacks_is_refused_by_name),
		cmocka_unit_test(running_out_of_memory_is_said),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("migrationpolicy", tests, NULL, NULL);
}
