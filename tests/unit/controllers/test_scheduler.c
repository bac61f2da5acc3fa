/* Who is placed first, when many pods wait for the room of few. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "api/gen/api_types.h"
#include "base/mem.h"
#include "cluster/scheduler/scheduler.h"
#include "ctl/plan.h"
#include "ctl/view.h"
#include "json/json.h"
#include "lib/jsontext.h"

enum { PODS = 400, ROOM = 100 };

struct waiting {
	char name[16];
	unsigned priority, second;
};

static void put(struct kcache *cache, const struct api_kind *kind, const char *text)
{
	struct json *j = json_of(text);
	struct kobj *o = NULL;

	assert_int_equal(kobj_decode(&o, kind, j, NULL), RC_OK);
	assert_int_equal(kcache_put(cache, o, NULL), RC_OK);
	js_unref(j);
}

static struct kcache *cluster(void)
{
	const struct api_kind *kinds[] = {&api_kind_Pod,
					  &api_kind_Node,
					  &api_kind_Namespace,
					  &api_kind_PersistentVolumeClaim,
					  &api_kind_PersistentVolume,
					  &api_kind_StorageClass};
	struct kcache *c = NULL;

	assert_int_equal(kcache_new(&c, NULL, NULL, NULL, NULL), RC_OK);
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		assert_int_equal(kcache_add(c, &(struct kcache_source){.kind = kinds[i]}, NULL),
				 RC_OK);
	return c;
}

/* Before q: a higher priority, an older pod, its name. */
static bool is_before(const struct waiting *p, const struct waiting *q)
{
	if (p->priority != q->priority)
		return p->priority > q->priority;
	if (p->second != q->second)
		return p->second < q->second;
	return strcmp(p->name, q->name) < 0;
}

static void add_waiting(struct kcache *c, const struct waiting *w)
{
	CLEANUP(mem_freep)
	char *text =
		mem_printf("{'metadata':{'name':'%s','namespace':'t','uid':'u-%s',"
			   "'creationTimestamp':'2026-01-01T00:00:%02uZ'},'spec':{'priority':%u,"
			   "'containers':[{'name':'c'}]}}",
			   w->name, w->name, w->second, w->priority);

	put(c, &api_kind_Pod, text);
}

/* There is room for a hundred of four hundred: each of them is bound exactly if it is among the first hundred, whatever the
 * order in which the cache has them. */
static void the_first_in_order_get_the_room(void **state)
{
	struct kcache *c = cluster();
	struct waiting w[PODS];
	unsigned seed = 7, bound = 0;
	char node[128];

	(void)snprintf(node, sizeof(node),
		       "{'metadata':{'name':'n'},'status':{'allocatable':{'pods':'%d'},"
		       "'conditions':[{'type':'Ready','status':'True'}]}}",
		       ROOM);
	put(c, &api_kind_Node, node);
	for (unsigned i = 0; i < PODS; i++) {
		seed = seed * 1103515245u + 12345u;
		w[i] = (struct waiting){.priority = (seed >> 16) % 3, .second = (seed >> 20) % 50};
		(void)snprintf(w[i].name, sizeof(w[i].name), "p-%u", i);
		add_waiting(c, &w[i]);
	}
	for (unsigned i = 0; i < PODS; i++) {
		const struct view v = {.cache = c, .now = USEC_PER_SEC};
		struct plan plan;
		unsigned rank = 0;
		bool is_bound = false;

		plan_init(&plan);
		for (unsigned k = 0; k < PODS; k++)
			rank += is_before(&w[k], &w[i]);
		assert_int_equal(scheduler_reconcile(&v, "t", w[i].name, &plan, NULL), RC_OK);
		for (size_t k = 0; k < plan.n_ops; k++)
			is_bound = is_bound || plan.ops[k].type == PLAN_BIND;
		assert_int_equal(is_bound, rank < ROOM);
		bound += is_bound;
		plan_fini(&plan);
	}
	assert_int_equal(bound, ROOM);
	kcache_free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_first_in_order_get_the_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
