/* PodDisruptionBudgets: what they allow, and that a granted eviction counts until its pod is gone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "api/meta.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "cast.h"
#include "cluster/controllers/controllers.h"

#define KPDB (&api_kind_PodDisruptionBudget)

static const struct ctl_def *const defs[] = {&disruption_ctl_def};

static void add_pod(struct world *w, const char *name, const char *ready, const char *owner)
{
	CLEANUP(mem_freep)
	char *text = mem_printf(
		"{'metadata':{'name':'%s','namespace':'t','labels':{'app':'a'}%s},'spec':{"
		"'nodeName':'node-1','containers':[{'name':'c'}]},'status':{'phase':"
		"'Running','conditions':[{'type':'Ready','status':'%s'}]}}",
		name, owner, ready);

	world_add(w, KPOD, text);
}

static void add_budget(struct world *w, const char *spec)
{
	CLEANUP(mem_freep)
	char *text = mem_printf("{'metadata':{'name':'b','namespace':'t'},'spec':{%s,'selector':{"
				"'matchLabels':{'app':'a'}}}}",
				spec);

	world_add(w, KPDB, text);
	world_settle(w);
}

#define assert_budget(w_, field_, want_) \
	assert_string_equal(world_at(w_, KPDB, NS, "b", "/status/" field_), want_)
#define VMI_OWNER                                                                               \
	",'ownerReferences':[{'apiVersion':'kubevirt.io/v1','kind':'VirtualMachineInstance','n" \
	"ame':'v','uid':'u','controller':true}]"

static void it_allows_what_is_healthy_beyond_the_minimum(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, defs, 1);
	add_pod(&w, "p1", "True", "");
	add_pod(&w, "p2", "True", VMI_OWNER);
	add_pod(&w, "p3", "False", "");
	add_budget(&w, "'minAvailable':1");
	assert_budget(&w, "currentHealthy", "2");
	assert_budget(&w, "desiredHealthy", "1");
	assert_budget(&w, "expectedPods", "3");
	assert_budget(&w, "disruptionsAllowed", "1");
	assert_budget(&w, "observedGeneration", "1");
	assert_string_equal(world_cond(&w, KPDB, NS, "b", "DisruptionAllowed"),
			    "True SufficientPods: ");
	world_patch(&w, KPOD, NS, "p1",
		    "{'status':{'conditions':[{'type':'Ready','status':'False'}]}}");
	world_settle(&w);
	assert_budget(&w, "disruptionsAllowed", "0");
	assert_string_equal(world_cond(&w, KPDB, NS, "b", "DisruptionAllowed"),
			    "False InsufficientPods: ");
	world_torture(&w);
	world_fini(&w);
}

static void a_granted_eviction_counts_until_the_pod_is_gone_or_two_minutes_are_over(void **state)
{
	struct world w;
	char now[32];

	(void)state;
	world_init(&w, defs, 1);
	add_pod(&w, "p1", "True", "");
	add_pod(&w, "p2", "True", "");
	add_budget(&w, "'minAvailable':1");
	time_rfc3339(w.now, now);
	CLEANUP(mem_freep)
	char *granted = mem_printf("{'status':{'disruptionsAllowed':0,'disruptedPods':{'p1':'%s',"
				   "'gone':'%s'}}}",
				   now, now);

	world_patch(&w, KPDB, NS, "b", granted);
	world_settle(&w);
	assert_budget(&w, "disruptionsAllowed", "0");
	assert_budget(&w, "disruptedPods/p1", now);
	assert_budget(&w, "disruptedPods/gone", "(none)");
	world_pass(&w, 121 * USEC_PER_SEC);
	assert_budget(&w, "disruptedPods/p1", "(none)");
	assert_budget(&w, "disruptionsAllowed", "1");
	world_fini(&w);
}

/* As in Kubernetes with KubeVirt: a VM has no scale, so nobody knows how many there should be. */
static void what_needs_a_scale_allows_nothing_of_vms_and_says_why(void **state)
{
	static const char *const specs[] = {"'maxUnavailable':1", "'minAvailable':'50%'"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(specs); i++) {
		struct world w;

		world_init(&w, defs, 1);
		add_pod(&w, "p1", "True", VMI_OWNER);
		add_budget(&w, specs[i]);
		assert_budget(&w, "disruptionsAllowed", "0");
		assert_string_equal(
			world_cond(&w, KPDB, NS, "b", "DisruptionAllowed"),
			"False SyncFailed: virtualmachineinstances.kubevirt.io does not "
			"implement the scale subresource");
		assert_true(world_saw(
			&w, "CalculateExpectedPodCountFailed: Failed to calculate the "
			    "number of expected pods: virtualmachineinstances.kubevirt.io "
			    "does not implement the scale subresource"));
		world_fini(&w);
	}
}

static void without_pods_nothing_is_allowed(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, defs, 1);
	add_budget(&w, "'minAvailable':0");
	assert_budget(&w, "disruptionsAllowed", "0");
	assert_true(world_saw(&w, "NoPods: No matching pods found"));
	world_fini(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_allows_what_is_healthy_beyond_the_minimum),
		cmocka_unit_test(
			a_granted_eviction_counts_until_the_pod_is_gone_or_two_minutes_are_over),
		cmocka_unit_test(what_needs_a_scale_allows_nothing_of_vms_and_says_why),
		cmocka_unit_test(without_pods_nothing_is_allowed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
