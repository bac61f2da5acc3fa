/* MigrationPolicies: which one a move follows, what it changes, and where the move says so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/str.h"
#include "cast.h"
#include "json/json.h"
#include "lib/torture.h"
#include "virt/migration/policy.h"

#define KPOLICY (&api_kind_MigrationPolicy)
#define STATE	"/status/migrationState"

/* ---- selection ---- */

#define VMI(labels_) "'virtualMachineInstanceSelector':{" labels_ "}"
#define NSP(labels_) "'namespaceSelector':{" labels_ "}"

struct offer {
	const char *name, *selectors; /* NULL: has none */
};

static const struct selection {
	const char *vmi, *ns; /* labels */
	struct offer offers[4];
	const char *winner; /* NULL: none */
} selections[] = {
	/* every key and value of both maps */
	{"'app':'db'", "", {{NULL, NULL}}, NULL},
	{"'app':'db'", "", {{"a", "{" VMI("'app':'db'") "}"}}, "a"},
	{"'app':'db'", "", {{"a", "{" VMI("'app':'web'") "}"}}, NULL},
	{"'app':'db'", "", {{"a", "{" VMI("'app':''") "}"}}, NULL},
	{"'app':''", "", {{"a", "{" VMI("'app':''") "}"}}, "a"},
	{"'app':'db'", "", {{"a", "{" VMI("'app':'db','tier':'1'") "}"}}, NULL},
	{"'app':'db'", "'team':'x'", {{"a", "{" NSP("'team':'x'") "}"}}, "a"},
	{"'app':'db'", "'team':'x'", {{"a", "{" NSP("'team':'y'") "}"}}, NULL},
	{"'app':'db'",
	 "'team':'x'",
	 {{"a", "{" VMI("'app':'db'") "," NSP("'team':'y'") "}"}},
	 NULL},
	{"'app':'db'",
	 "'team':'x'",
	 {{"a", "{" VMI("'app':'no'") "," NSP("'team':'x'") "}"}},
	 NULL},
	{"'app':'db'", "", {{"a", "{" NSP("'app':'db'") "}"}}, NULL}, /* the maps are not mixed */
	/* {} means every VM, no selectors at all none */
	{"'app':'db'", "", {{"a", "{}"}}, "a"},
	{"'app':'db'", "", {{"a", "{" VMI("") "," NSP("") "}"}}, "a"},
	{"'app':'db'", "", {{"a", NULL}}, NULL},
	{"", "", {{"a", NULL}}, NULL},
	/* the most labels in all */
	{"'app':'db','tier':'1'",
	 "'team':'x'",
	 {{"all", "{}"},
	  {"one", "{" VMI("'app':'db'") "}"},
	  {"two", "{" VMI("'app':'db','tier':'1'") "}"}},
	 "two"},
	{"'app':'db','tier':'1'",
	 "'team':'x'",
	 {{"one", "{" VMI("'app':'db'") "}"},
	  {"two", "{" VMI("'app':'db'") "," NSP("'team':'x'") "}"},
	  {"more", "{" VMI("'app':'db','tier':'2','x':'y'") "}"}},
	 "two"},
	{"'app':'db'",
	 "'team':'x','site':'s'",
	 {{"vmi", "{" VMI("'app':'db'") "}"}, {"ns", "{" NSP("'team':'x','site':'s'") "}"}},
	 "ns"},
	/* as many: the one with more labels of the VMI */
	{"'app':'db'",
	 "'team':'x'",
	 {{"a-ns", "{" NSP("'team':'x'") "}"}, {"b-vmi", "{" VMI("'app':'db'") "}"}},
	 "b-vmi"},
	{"'app':'db','tier':'1'",
	 "'team':'x'",
	 {{"a", "{" VMI("'app':'db'") "," NSP("'team':'x'") "}"},
	  {"b", "{" VMI("'app':'db','tier':'1'") "}"}},
	 "b"},
	/* those too: the first name */
	{"'app':'db','tier':'1'",
	 "",
	 {{"b", "{" VMI("'app':'db'") "}"},
	  {"c", "{" VMI("'app':'db'") "}"},
	  {"a", "{" VMI("'tier':'1'") "}"}},
	 "a"},
	{"'app':'db'", "", {{"a10", "{}"}, {"a9", "{}"}, {"a", "{}"}}, "a"},
	/* KubeVirt's quirk: a VMI without labels matches whatever has selectors, and none counts more */
	{"", "'team':'x'", {{"a", "{" VMI("'app':'db'") "}"}}, "a"},
	{"", "'team':'x'", {{"a", "{" NSP("'team':'y'") "}"}}, "a"},
	{"",
	 "'team':'x'",
	 {{"b", "{" VMI("'app':'db','tier':'1'") "," NSP("'team':'x'") "}"}, {"a", "{}"}},
	 "a"},
};

static MigrationPolicy *policy(const struct offer *o)
{
	CLEANUP(mem_freep)
	char *text =
		mem_printf("{'metadata':{'name':'%s'},'spec':{%s%s}}", o->name,
			   o->selectors ? "'selectors':" : "", o->selectors ? o->selectors : "");

	return world_decoded(&api_type_MigrationPolicy, text);
}

static Namespace *bearer(const char *labels)
{
	CLEANUP(mem_freep) char *text = mem_printf("{'metadata':{'labels':{%s}}}", labels);

	return world_decoded(&api_type_Namespace, text);
}

static void check_selection(const struct selection *s, bool backwards)
{
	MigrationPolicy *have[ARRAY_SIZE(s->offers)] = {NULL};
	Namespace *vmi = bearer(s->vmi), *ns = bearer(s->ns);
	struct mig_policy_pick pick = {.vmi_labels = &vmi->metadata.labels,
				       .ns_labels = &ns->metadata.labels};
	size_t n = 0;

	for (; n < ARRAY_SIZE(have) && s->offers[n].name; n++)
		have[n] = policy(&s->offers[n]);
	for (size_t i = 0; i < n; i++)
		mig_policy_consider(&pick, have[backwards ? n - 1 - i : i]);
	if (!str_eq(pick.best ? pick.best->metadata.name : NULL, s->winner))
		fail_msg("row %zu: %s instead of %s", (size_t)(s - selections),
			 pick.best ? pick.best->metadata.name : "none",
			 s->winner ? s->winner : "none");
	for (size_t i = 0; i < n; i++)
		MigrationPolicy_free(have[i]);
	Namespace_free(vmi);
	Namespace_free(ns);
}

static void the_policy_with_the_most_labels_is_chosen_in_whatever_order_they_come(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(selections); i++) {
		check_selection(&selections[i], false);
		check_selection(&selections[i], true);
	}
}

/* ---- overlay ---- */

static void what_a_policy_sets_goes_over_and_the_rest_stays(void **state)
{
	static const struct {
		const char *policy;
		bool may_stall;
		const char *before, *after;
	} cases[] = {
		{"", true, "'allowAutoConverge':true,'maxDowntimeMs':900",
		 "'allowAutoConverge':true,'maxDowntimeMs':900"},
		{"'bandwidthPerMigration':'64Mi'", false,
		 "'bandwidthPerMigration':'0Mi','progressTimeout':150",
		 "'bandwidthPerMigration':'64Mi','progressTimeout':150"},
		{"'bandwidthPerMigration':'0'", false, "'bandwidthPerMigration':'64Mi'",
		 "'bandwidthPerMigration':'0'"},
		{"'completionTimeoutPerGiB':0", false, "'completionTimeoutPerGiB':150",
		 "'completionTimeoutPerGiB':0"},
		{"'allowAutoConverge':false", false, "'allowAutoConverge':true",
		 "'allowAutoConverge':false"},
		/* the longest pause counts with its gate */
		{"'maxDowntimeMs':50", true, "'maxDowntimeMs':900", "'maxDowntimeMs':50"},
		{"'maxDowntimeMs':50", false, "", ""},
		/* allowPostCopy takes allowWorkloadDisruption along, unless that is set as well */
		{"'allowPostCopy':true", false,
		 "'allowPostCopy':false,'allowWorkloadDisruption':false",
		 "'allowPostCopy':true,'allowWorkloadDisruption':true"},
		{"'allowPostCopy':false", false,
		 "'allowPostCopy':false,'allowWorkloadDisruption':true",
		 "'allowPostCopy':false,'allowWorkloadDisruption':false"},
		{"'allowPostCopy':false,'allowWorkloadDisruption':true", false,
		 "'allowPostCopy':true,'allowWorkloadDisruption':false",
		 "'allowPostCopy':false,'allowWorkloadDisruption':true"},
		{"'allowWorkloadDisruption':true", false,
		 "'allowPostCopy':false,'allowWorkloadDisruption':false",
		 "'allowPostCopy':false,'allowWorkloadDisruption':true"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(mem_freep) char *p = mem_printf("{%s}", cases[i].policy);
		CLEANUP(mem_freep) char *before = mem_printf("{%s}", cases[i].before);
		CLEANUP(mem_freep) char *after = mem_printf("{%s}", cases[i].after);
		MigrationPolicySpec *spec = world_decoded(&api_type_MigrationPolicySpec, p);
		VMIMConfigurationOptions *have =
			world_decoded(&api_type_VMIMConfigurationOptions, before);
		VMIMConfigurationOptions *want =
			world_decoded(&api_type_VMIMConfigurationOptions, after);

		assert_int_equal(mig_policy_apply(spec, cases[i].may_stall, have), RC_OK);
		if (!api_equal(&api_type_VMIMConfigurationOptions, have, want))
			fail_msg("'%s' over '%s' is not '%s'", cases[i].policy, cases[i].before,
				 cases[i].after);
		MigrationPolicySpec_free(spec);
		VMIMConfigurationOptions_free(have);
		VMIMConfigurationOptions_free(want);
	}
}

static MigrationPolicySpec *given;

static enum rc apply_once(void)
{
	CLEANUP(VMIMConfigurationOptions_freep)
	VMIMConfigurationOptions *o = VMIMConfigurationOptions_new();

	return o ? mig_policy_apply(given, true, o) : RC_NOMEM;
}

static void running_out_of_memory_is_said(void **state)
{
	(void)state;
	given = world_decoded(&api_type_MigrationPolicySpec,
			      "{'bandwidthPerMigration':'64Mi','maxDowntimeMs':50}");
	torture(apply_once);
	MigrationPolicySpec_free(given);
}

/* ---- in a move ---- */

#define CONFIG(field_) world_at(&w, KVMI, NS, "tiny", STATE "/migrationConfiguration/" field_)
#define POLICY	       world_at(&w, KVMI, NS, "tiny", STATE "/migrationPolicyName")

/* A VM labelled app=tiny in namespace t, labelled team=x, whose move is about to be handed off. */
static void set_up(struct world *w, const char *kubevirt)
{
	CLEANUP(mem_freep)
	char *kv = mem_printf("{'metadata':{'name':'kubevirt','namespace':'kubevirt'},"
			      "'spec':{'configuration':{%s}}}",
			      kubevirt);

	cast_world(w);
	cast_nodes(w);
	world_add(w, &api_kind_KubeVirt, kv);
	world_patch(w, &api_kind_Namespace, "", NS, "{'metadata':{'labels':{'team':'x'}}}");
	cast_running(w);
	world_pass(w, 10 * USEC_PER_SEC);
	world_add(w, KVMIM,
		  "{'metadata':{'name':'m1','namespace':'t','labels':{'kubevirt.io/vmi-name':"
		  "'tiny'},'finalizers':['kubevirt.io/migrationJobFinalize']},"
		  "'spec':{'vmiName':'tiny'}}");
	world_settle(w);
}

static void hand_off(struct world *w)
{
	cast_pod_runs(w, cast_target(w)->metadata.name);
	world_settle(w);
	assert_string_equal(world_at(w, KVMI, NS, "tiny", STATE "/targetNode"), "node-2");
}

static void a_move_follows_its_policy_over_the_installations_settings(void **state)
{
	struct world w;

	(void)state;
	set_up(&w, "'migrations':{'allowAutoConverge':true,'completionTimeoutPerGiB':10,"
		   "'progressTimeout':7}");
	/* The target pod is there already: what counts are the policies of the hand-off. */
	world_add(&w, KPOLICY,
		  "{'metadata':{'name':'namespace'},'spec':{'selectors':{'namespaceSelector':{"
		  "'team':'x'}},'bandwidthPerMigration':'1Mi'}}");
	world_add(&w, KPOLICY,
		  "{'metadata':{'name':'patient'},'spec':{'selectors':{'namespaceSelector':{'team':"
		  "'x'},'virtualMachineInstanceSelector':{'app':'tiny'}},"
		  "'allowAutoConverge':false,'allowWorkloadDisruption':true,'maxDowntimeMs':5,"
		  "'completionTimeoutPerGiB':9223372036854775807}}");
	hand_off(&w);
	assert_string_equal(POLICY, "patient");
	assert_string_equal(CONFIG("allowAutoConverge"), "false");
	assert_string_equal(CONFIG("allowWorkloadDisruption"), "true");
	assert_string_equal(CONFIG("completionTimeoutPerGiB"), "2147483647"); /* bounded */
	assert_string_equal(CONFIG("maxDowntimeMs"), "(none)");		      /* no gate */
	assert_string_equal(CONFIG("bandwidthPerMigration"), "0Mi"); /* one policy, not both */
	assert_string_equal(CONFIG("progressTimeout"), "7");
	/* Later changes are for later moves. */
	world_delete(&w, KPOLICY, "", "patient", -1);
	world_settle(&w);
	assert_string_equal(POLICY, "patient");
	cast_target_listens(&w);
	cast_source_starts(&w);
	world_settle(&w);
	cast_move_completes(&w);
	world_settle(&w);
	assert_string_equal(world_at(&w, KVMIM, NS, "m1", STATE "/migrationPolicyName"), "patient");
	world_fini(&w);
}

static void a_move_that_no_policy_matches_names_none(void **state)
{
	struct world w;

	(void)state;
	set_up(&w, "'developerConfiguration':{'featureGates':['MigrationStallDetection']}");
	world_add(&w, KPOLICY,
		  "{'metadata':{'name':'others'},'spec':{'selectors':{"
		  "'virtualMachineInstanceSelector':{'app':'other'}},'maxDowntimeMs':5}}");
	hand_off(&w);
	assert_string_equal(POLICY, "(none)");
	assert_string_equal(CONFIG("maxDowntimeMs"), "900");
	world_fini(&w);
}

/* The controller's net is stretched with the policy's time: by 128 MiB, which count as one gigabyte. */
static void the_time_that_a_move_may_take_is_its_policys(void **state)
{
	struct world w;

	(void)state;
	set_up(&w, "'migrations':{'completionTimeoutPerGiB':10}");
	world_add(&w, KPOLICY,
		  "{'metadata':{'name':'slow'},'spec':{'selectors':{},"
		  "'completionTimeoutPerGiB':1000}}");
	hand_off(&w);
	cast_target_listens(&w);
	cast_source_starts(&w);
	world_settle(&w);			   /* seen: from now on it is counted */
	world_delete(&w, KPOLICY, "", "slow", -1); /* it was recorded */
	world_pass(&w, (2 * 1000 + 119) * USEC_PER_SEC);
	assert_string_equal(world_at(&w, KVMI, NS, "tiny", STATE "/abortRequested"), "(none)");
	world_pass(&w, 2 * USEC_PER_SEC);
	assert_string_equal(world_at(&w, KVMI, NS, "tiny", STATE "/abortRequested"), "true");
	world_fini(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			the_policy_with_the_most_labels_is_chosen_in_whatever_order_they_come),
		cmocka_unit_test(what_a_policy_sets_goes_over_and_the_rest_stays),
		cmocka_unit_test(running_out_of_memory_is_said),
		cmocka_unit_test(a_move_follows_its_policy_over_the_installations_settings),
		cmocka_unit_test(a_move_that_no_policy_matches_names_none),
		cmocka_unit_test(the_time_that_a_move_may_take_is_its_policys),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("policy", tests, NULL, NULL);
}
