#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/api.h"
#include "api/gen/api_types.h"
#include "api/meta.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "ctl/exec.h"
#include "ctl/plan.h"
#include "ev/ev.h"
#include "json/json.h"
#include "kube/kcache.h"
#include "kube/kobj.h"
#include "unit/kube/fake.h"

struct fixture {
	struct loop *loop;
	struct kube *kube;
	struct kcache *cache;
	struct exec *exec;
	struct exec_run *run;
	struct plan plan;
	struct fake fake;
	unsigned ends;
	enum rc rc;
	char msg[256];
	bool free_in_callback;
};

static struct fixture fx;

#define POD                                                                                    \
	"{\"kind\":\"Pod\",\"metadata\":{\"name\":\"%s\",\"namespace\":\"ns\",\"uid\":\"%s\"," \
	"\"resourceVersion\":\"%d\",\"ownerReferences\":[{\"controller\":true,\"uid\":\"%s\"," \
	"\"name\":\"o\"}]}}"
#define STATUS \
	"{\"kind\":\"Status\",\"reason\":\"%s\",\"message\":\"no\",\"details\":{\"name\":\"%s\"}}"

static void step(void)
{
	bool did = true;

	while (did)
		assert_int_equal(loop_step(fx.loop, 0, &did, NULL), RC_OK);
}

static void setup(void)
{
	struct exec_opts opts = {
		.component = "test", .event_burst = 3, .event_refill = 10 * USEC_PER_SEC};

	memset(&fx, 0, sizeof(fx));
	plan_init(&fx.plan);
	assert_int_equal(loop_new(&fx.loop, LOOP_VIRTUAL, NULL), RC_OK);
	assert_int_equal(kube_new_over(&fx.kube, fx.loop, &fake_transport, &fx.fake, NULL), RC_OK);
	assert_int_equal(
		kcache_new(&fx.cache, fx.loop, fx.kube, &(struct kcache_opts){.seed = 1}, NULL),
		RC_OK);
	assert_int_equal(kcache_add(fx.cache, &(struct kcache_source){.kind = &api_kind_Pod}, NULL),
			 RC_OK);
	assert_int_equal(kcache_start(fx.cache, NULL), RC_OK);
	step();
	fake_answer(fake_find(&fx.fake, "GET /api/v1/pods"), 200,
		    "{\"metadata\":{\"resourceVersion\":\"10\"},\"items\":[" POD "]}", "a", "ua", 5,
		    "w");
	step();
	assert_int_equal(exec_new(&fx.exec, fx.loop, fx.kube, fx.cache, &opts, NULL), RC_OK);
}

static void teardown(void)
{
	exec_run_free(fx.run);
	plan_fini(&fx.plan);
	exec_free(fx.exec);
	kcache_free(fx.cache);
	kube_free(fx.kube);
	assert_int_equal(fake_open(&fx.fake), 0);
	loop_free(fx.loop);
}

static void on_end(enum rc rc, const struct err *err, void *arg)
{
	assert_ptr_equal(arg, &fx);
	fx.ends++;
	fx.rc = rc;
	snprintf(fx.msg, sizeof(fx.msg), "%s", err->msg);
	if (fx.free_in_callback)
		fx.run = exec_run_free(fx.run);
}

static void go(void)
{
	fx.run = exec_run_free(fx.run);
	assert_int_equal(exec_plan(fx.exec, &fx.run, &fx.plan, on_end, &fx, NULL), RC_OK);
	assert_true(plan_is_empty(&fx.plan)); /* taken */
}

static Pod *new_pod(const char *name, const char *owner)
{
	Pod *p = Pod_new();
	OwnerReference *o;

	assert_int_equal(api_set_str(&p->metadata.name, name), RC_OK);
	assert_int_equal(api_set_str(&p->metadata.namespace, "ns"), RC_OK);
	if (!owner)
		return p;
	o = api_append(&p->metadata.ownerReferences, &p->metadata.n_ownerReferences, sizeof(*o));
	API_SET(o, controller, true);
	assert_int_equal(api_set_str(&o->uid, owner), RC_OK);
	return p;
}

static const Pod *cached(const char *name)
{
	return kobj_typed(kcache_get(fx.cache, &api_kind_Pod, "ns", name));
}

static void plan_label(const char *value)
{
	const Pod *old = cached("a");
	Pod *new = Pod_clone(old);

	assert_int_equal(api_map_set(&new->metadata.labels, "x", value), RC_OK);
	assert_int_equal(plan_update(&fx.plan, &api_kind_Pod, old, new, NULL), RC_OK);
}

static void operations_go_in_order_and_feed_the_cache(void **state)
{
	(void)state;
	setup();
	plan_create(&fx.plan, &api_kind_Pod, new_pod("b", "w"));
	plan_delete(&fx.plan, &api_kind_Pod, "ns", "a", "ua", -1, NULL);
	go();
	/* The first is on the wire already, without a turn of the loop. */
	fake_answer(fake_find(&fx.fake, "POST /api/v1/namespaces/ns/pods"), 201, POD, "b", "ub", 11,
		    "w");
	assert_non_null(cached("b"));
	assert_int_equal(fx.ends, 0);
	fake_answer(fake_find(&fx.fake, "DELETE /api/v1/namespaces/ns/pods/a"), 200,
		    "{\"kind\":\"Status\",\"status\":\"Success\"}");
	assert_null(cached("a"));
	assert_int_equal(fx.ends, 1);
	assert_int_equal(fx.rc, RC_OK);
	assert_int_equal(exec_writes(fx.exec, &api_kind_Pod), 2);
	assert_int_equal(exec_writes(fx.exec, NULL), 2);
	teardown();
}

static void the_first_failure_stops(void **state)
{
	(void)state;
	setup();
	plan_delete(&fx.plan, &api_kind_Pod, "ns", "a", "ua", -1, NULL);
	plan_create(&fx.plan, &api_kind_Pod, new_pod("b", "w"));
	go();
	fake_answer(fake_find(&fx.fake, "DELETE "), 403, STATUS, "Forbidden", "a");
	assert_int_equal(fx.rc, RC_FORBIDDEN);
	assert_string_equal(fx.msg, "cannot delete Pod 'ns/a': no");
	assert_int_equal(fake_open(&fx.fake), 1); /* the watch */
	teardown();
}

static void a_create_that_exists_already_is_fine_when_it_is_ours(void **state)
{
	(void)state;
	setup();
	plan_create(&fx.plan, &api_kind_Pod, new_pod("b", "w"));
	go();
	fake_answer(fake_find(&fx.fake, "POST "), 409, STATUS, "AlreadyExists", "b");
	fake_answer(fake_find(&fx.fake, "GET /api/v1/namespaces/ns/pods/b"), 200, POD, "b", "ub",
		    11, "w");
	assert_int_equal(fx.rc, RC_OK);
	assert_non_null(cached("b")); /* so that it is not tried again */

	plan_create(&fx.plan, &api_kind_Pod, new_pod("c", "w"));
	go();
	fake_answer(fake_find(&fx.fake, "POST "), 409, STATUS, "AlreadyExists", "c");
	fake_answer(fake_find(&fx.fake, "GET /api/v1/namespaces/ns/pods/c"), 200, POD, "c", "uc",
		    12, "other");
	assert_int_equal(fx.rc, RC_EXISTS);

	/* Without an owner the name is the claim: look again at what holds it. */
	plan_create(&fx.plan, &api_kind_Pod, new_pod("d", NULL));
	go();
	fake_answer(fake_find(&fx.fake, "POST "), 409, STATUS, "AlreadyExists", "d");
	fake_answer(fake_find(&fx.fake, "GET /api/v1/namespaces/ns/pods/d"), 200, POD, "d", "ud",
		    13, "x");
	assert_int_equal(fx.rc, RC_CONFLICT);
	assert_non_null(cached("d"));

	plan_create(&fx.plan, &api_kind_Pod, new_pod("e", "w"));
	go();
	fake_answer(fake_find(&fx.fake, "POST "), 409, STATUS, "AlreadyExists", "e");
	fake_answer(fake_find(&fx.fake, "GET /api/v1/namespaces/ns/pods/e"), 404, STATUS,
		    "NotFound", "e");
	assert_int_equal(fx.rc, RC_CONFLICT);
	teardown();
}

static void conflicts_and_lost_objects_mean_look_again(void **state)
{
	(void)state;
	setup();
	plan_label("1");
	go();
	fake_answer(fake_find(&fx.fake, "PATCH "), 409, STATUS, "Conflict", "a");
	assert_int_equal(fx.rc, RC_CONFLICT);
	plan_label("1");
	go();
	fake_answer(fake_find(&fx.fake, "PATCH "), 404, STATUS, "NotFound", "a");
	assert_int_equal(fx.rc, RC_CONFLICT);
	assert_null(cached("a"));
	plan_delete(&fx.plan, &api_kind_Pod, "ns", "b", "ub", -1, NULL);
	go();
	fake_answer(fake_find(&fx.fake, "DELETE "), 404, STATUS, "NotFound", "b");
	assert_int_equal(fx.rc, RC_OK); /* gone is what we wanted */
	plan_delete(&fx.plan, &api_kind_Pod, "ns", "b", "ub", -1, NULL);
	go();
	fake_answer(fake_find(&fx.fake, "DELETE "), 409, STATUS, "Conflict", "b");
	assert_int_equal(fx.rc, RC_CONFLICT);
	/* An unknown path is not an object that is gone. */
	plan_delete(&fx.plan, &api_kind_Pod, "ns", "b", "ub", -1, NULL);
	go();
	fake_answer(fake_find(&fx.fake, "DELETE "), 404,
		    "{\"kind\":\"Status\",\"reason\":\"NotFound\"}");
	assert_int_equal(fx.rc, RC_NOT_FOUND);
	teardown();
}

static void two_updates_of_one_object_chain_their_versions(void **state)
{
	struct fake_op *op;

	(void)state;
	setup();
	plan_label("1");
	plan_label("2");
	go();
	op = fake_find(&fx.fake, "PATCH ");
	assert_string_equal(op->body, "{\"metadata\":{\"labels\":{\"x\":\"1\"},\"uid\":\"ua\","
				      "\"resourceVersion\":\"5\"}}");
	fake_answer(op, 200, POD, "a", "ua", 11, "w");
	op = fake_find(&fx.fake, "PATCH ");
	assert_string_equal(op->body, "{\"metadata\":{\"labels\":{\"x\":\"2\"},\"uid\":\"ua\","
				      "\"resourceVersion\":\"11\"}}");
	fake_answer(op, 200, POD, "a", "ua", 12, "w");
	assert_int_equal(fx.rc, RC_OK);
	assert_string_equal(cached("a")->metadata.resourceVersion, "12");
	teardown();
}

static void a_bind_reads_the_pod_back(void **state)
{
	(void)state;
	setup();
	plan_bind(&fx.plan, "ns", "a", "ua", "n1");
	go();
	fake_answer(fake_find(&fx.fake, "POST /api/v1/namespaces/ns/pods/a/binding"), 201,
		    "{\"kind\":\"Status\",\"status\":\"Success\"}");
	fake_answer(fake_find(&fx.fake, "GET /api/v1/namespaces/ns/pods/a"), 200,
		    "{\"kind\":\"Pod\",\"metadata\":{\"name\":\"a\",\"namespace\":\"ns\",\"uid\":"
		    "\"ua\","
		    "\"resourceVersion\":\"11\"},\"spec\":{\"nodeName\":\"n1\"}}");
	assert_int_equal(fx.rc, RC_OK);
	assert_string_equal(cached("a")->spec.nodeName, "n1");
	teardown();
}

static void a_plan_without_requests_ends_from_the_loop(void **state)
{
	(void)state;
	setup();
	go();
	assert_int_equal(fx.ends, 0);
	step();
	assert_int_equal(fx.ends, 1);
	assert_int_equal(fx.rc, RC_OK);
	fx.free_in_callback = true;
	go();
	step();
	assert_null(fx.run);
	/* A request that cannot even start. */
	fx.free_in_callback = false;
	fx.fake.refuse = 1;
	plan_delete(&fx.plan, &api_kind_Pod, "ns", "a", "ua", -1, NULL);
	go();
	assert_int_equal(fx.ends, 2);
	step();
	assert_int_equal(fx.ends, 3);
	assert_int_equal(fx.rc, RC_NOMEM);
	teardown();
}

static void dropping_a_run_cancels(void **state)
{
	(void)state;
	setup();
	plan_delete(&fx.plan, &api_kind_Pod, "ns", "a", "ua", -1, NULL);
	go();
	fx.run = exec_run_free(fx.run);
	assert_int_equal(fake_open(&fx.fake), 1);
	fx.free_in_callback = true;
	plan_delete(&fx.plan, &api_kind_Pod, "ns", "a", "ua", -1, NULL);
	go();
	fake_answer(fake_find(&fx.fake, "DELETE "), 404, STATUS, "NotFound", "a");
	assert_null(fx.run);
	plan_delete(&fx.plan, &api_kind_Pod, "ns", "a", "ua", -1, NULL);
	go();
	fx.exec = exec_free(fx.exec); /* the executor goes first */
	assert_int_equal(fx.ends, 1);
	teardown();
}

/* Events */

static void say(const char *reason, const char *text)
{
	exec_event(fx.exec, &api_kind_Pod, cached("a"), "Normal", reason, "%s", text);
}

static int64_t count_in(const struct fake_op *op)
{
	CLEANUP(js_unrefp) struct json *j = NULL;

	assert_int_equal(js_parse(op->body, strlen(op->body), &j, NULL), RC_OK);
	return js_get_int(j, "count", -1);
}

static void equal_events_are_counted(void **state)
{
	struct fake_op *op;

	(void)state;
	setup();
	say("R", "m");
	op = fake_find(&fx.fake, "POST /api/v1/namespaces/ns/events");
	assert_int_equal(count_in(op), 1);
	say("R", "m");
	say("R", "m");
	fake_answer(op, 201, "{\"kind\":\"Event\"}");
	assert_int_equal(fake_open(&fx.fake), 1); /* not at once */
	assert_int_equal(loop_step(fx.loop, 2 * USEC_PER_SEC, NULL, NULL), RC_OK);
	op = fake_find(&fx.fake, "PATCH /api/v1/namespaces/ns/events/a.");
	assert_int_equal(count_in(op), 3);
	fake_answer(op, 200, "{\"kind\":\"Event\"}");
	assert_int_equal(exec_writes(fx.exec, &api_kind_Event), 2);
	assert_int_equal(exec_writes(fx.exec, NULL), 0);
	teardown();
}

static void a_predecessors_event_is_counted_on(void **state)
{
	struct fake_op *op;

	(void)state;
	setup();
	say("R", "m");
	fake_answer(fake_find(&fx.fake, "POST "), 409, STATUS, "AlreadyExists", "a.1");
	fake_answer(fake_find(&fx.fake, "GET /api/v1/namespaces/ns/events/a."), 200,
		    "{\"kind\":\"Event\",\"count\":7}");
	op = fake_find(&fx.fake, "PATCH /api/v1/namespaces/ns/events/a.");
	assert_int_equal(count_in(op), 8);
	fake_answer(op, 404, STATUS, "NotFound", "a.1"); /* expired meanwhile */
	assert_int_equal(loop_step(fx.loop, 2 * USEC_PER_SEC, NULL, NULL), RC_OK);
	assert_int_equal(count_in(fake_find(&fx.fake, "POST ")), 1);
	teardown();
}

static void floods_are_cut_and_counted(void **state)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(65536);
	char text[16];

	(void)state;
	setup();
	for (int i = 0; i < 10; i++) {
		snprintf(text, sizeof(text), "m%d", i);
		say("R", text);
	}
	assert_int_equal(fake_open(&fx.fake), 1 + 3); /* the watch and the burst */
	exec_metrics(fx.exec, &b);
	assert_non_null(strstr(sbuf_str(&b), "ferry_events_total{outcome=\"cut\"} 7\n"));
	assert_int_equal(loop_step(fx.loop, 10 * USEC_PER_SEC, NULL, NULL), RC_OK);
	say("R", "later");
	fake_find(&fx.fake, "POST /api/v1/namespaces/ns/events");
	teardown();
}

static void a_plan_does_not_wait_for_its_events(void **state)
{
	(void)state;
	setup();
	plan_event(&fx.plan, &api_kind_Pod, cached("a"), "Warning", "R", "m");
	go();
	step();
	assert_int_equal(fx.ends, 1);
	fake_find(&fx.fake, "POST /api/v1/namespaces/ns/events");
	teardown();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(operations_go_in_order_and_feed_the_cache),
		cmocka_unit_test(the_first_failure_stops),
		cmocka_unit_test(a_create_that_exists_already_is_fine_when_it_is_ours),
		cmocka_unit_test(conflicts_and_lost_objects_mean_look_again),
		cmocka_unit_test(two_updates_of_one_object_chain_their_versions),
		cmocka_unit_test(a_bind_reads_the_pod_back),
		cmocka_unit_test(a_plan_without_requests_ends_from_the_loop),
		cmocka_unit_test(dropping_a_run_cancels),
		cmocka_unit_test(equal_events_are_counted),
		cmocka_unit_test(a_predecessors_event_is_counted_on),
		cmocka_unit_test(floods_are_cut_and_counted),
		cmocka_unit_test(a_plan_does_not_wait_for_its_events),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("exec", tests, NULL, NULL);
}
