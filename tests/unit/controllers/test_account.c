/* What each namespace has: the ServiceAccount "default", and the cluster's authority. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "api/meta.h"
#include "base/mem.h"
#include "base/str.h"
#include "cast.h"
#include "cluster/controllers/controllers.h"
#include "json/json.h"

#define KNS  (&api_kind_Namespace)
#define KSA  (&api_kind_ServiceAccount)
#define KMAP (&api_kind_ConfigMap)
#define CA   "kube-root-ca.crt"

static const struct ctl_def *const defs[] = {&account_ctl_def};

static void publish(struct world *w)
{
	world_add(w, KMAP,
		  "{'metadata':{'name':'" CA
		  "','namespace':'kube-system'},'data':{'ca.crt':'one'}}");
}

static void a_namespace_gets_an_account_and_the_authority(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, defs, 1);
	world_add(&w, KNS, "{'metadata':{'name':'t'}}");
	world_settle(&w);
	assert_true(world_get(&w, KSA, "t", "default") != NULL);
	assert_false(world_get(&w, KMAP, "t", CA) != NULL); /* nobody has said yet who it is */
	world_add(&w, KNS, "{'metadata':{'name':'kube-system'}}");
	publish(&w);
	world_settle(&w);
	assert_string_equal(world_at(&w, KMAP, "t", CA, "/data/ca.crt"), "one");
	assert_string_equal(world_at(&w, KMAP, "kube-system", CA, "/data/ca.crt"), "one");
	world_torture(&w);
	world_fini(&w);
}

static void what_is_changed_or_taken_away_comes_back(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, defs, 1);
	world_add(&w, KNS, "{'metadata':{'name':'t'}}");
	publish(&w);
	world_settle(&w);
	world_patch(&w, KMAP, "t", CA, "{'data':{'ca.crt':'mine'}}");
	world_settle(&w);
	assert_string_equal(world_at(&w, KMAP, "t", CA, "/data/ca.crt"), "one");
	world_patch(&w, KMAP, "kube-system", CA, "{'data':{'ca.crt':'two'}}");
	world_settle(&w);
	assert_string_equal(world_at(&w, KMAP, "t", CA, "/data/ca.crt"), "two");
	world_erase(&w, KMAP, "t", CA);
	world_erase(&w, KSA, "t", "default");
	world_settle(&w);
	assert_true(world_get(&w, KSA, "t", "default") != NULL);
	assert_true(world_get(&w, KMAP, "t", CA) != NULL);
	world_fini(&w);
}

static void a_namespace_on_its_way_out_is_left_alone(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, defs, 1);
	publish(&w);
	world_add(&w, KNS, "{'metadata':{'name':'t','deletionTimestamp':'2026-01-01T00:00:00Z'}}");
	world_settle(&w);
	assert_false(world_get(&w, KSA, "t", "default") != NULL);
	assert_false(world_get(&w, KMAP, "t", CA) != NULL);
	world_fini(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_namespace_gets_an_account_and_the_authority),
		cmocka_unit_test(what_is_changed_or_taken_away_comes_back),
		cmocka_unit_test(a_namespace_on_its_way_out_is_left_alone),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("account", tests, NULL, NULL);
}
