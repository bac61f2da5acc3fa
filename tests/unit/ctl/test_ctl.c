#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "api/api.h"
#include "api/gen/api_types.h"
#include "api/meta.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "ctl/ctl.h"
#include "ctl/exec.h"
#include "ev/ev.h"
#include "json/json.h"
#include "kube/kube.h"
#include "lib/promcheck.h"
#include "unit/kube/fake.h"

/* A small controller: each ConfigMap with label want=1 shall have a Pod of its name. */

struct fixture {
	struct loop *loop;
	struct kube *kube;
	struct kcache *cache;
	struct ctl *ctl;
	struct fake fake;
	unsigned reconciles;
	unsigned failures;
	unsigned in_a_row;
	enum rc fail_with;
};

static struct fixture fx;

static enum rc reconcile(const struct view *v, const char *ns, const char *name, struct plan *out,
			 struct err *err)
{
	const ConfigMap *cm = view_get(v, &api_kind_ConfigMap, ns, name);
	const Pod *pod = view_get(v, &api_kind_Pod, ns, name);

	fx.reconciles++;
	if (fx.fail_with)
		return err_set(err, fx.fail_with, "told to fail");
	if (!cm || !str_eq(api_label(&cm->metadata, "want"), "1")) {
		if (pod)
			return plan_delete(out, &api_kind_Pod, ns, name, pod->metadata.uid, -1,
					   NULL);
		return RC_OK;
	}
	if (str_eq(api_label(&cm->metadata, "later"), "1"))
		return plan_requeue_after(out, 5 * USEC_PER_SEC);
	if (pod)
		return RC_OK;
	CLEANUP(Pod_freep) Pod *p = Pod_new();

	if (!p || api_set_str(&p->metadata.name, name) || api_set_str(&p->metadata.namespace, ns) ||
	    api_add_owner(&p->metadata, &api_kind_ConfigMap, &cm->metadata, true, false))
		return RC_NOMEM;
	return plan_create(out, &api_kind_Pod, STEAL(p));
}

static const struct ctl_map maps[] = {{&api_kind_Pod, NULL}, {NULL, NULL}};
static const struct ctl_def def = {.name = "small",
				   .primary = &api_kind_ConfigMap,
				   .reconcile = reconcile,
				   .maps = maps,
				   .parallel = 2};

static void on_failure(const struct ctl_def *d, const char *ns, const char *name,
		       const struct err *err, unsigned in_a_row, void *arg)
{
	(void)d;
	(void)ns;
	(void)name;
	(void)err;
	assert_ptr_equal(arg, &fx);
	fx.failures++;
	fx.in_a_row = in_a_row;
}

static void step(void)
{
	bool did = true;

	while (did)
		assert_int_equal(loop_step(fx.loop, 0, &did, NULL), RC_OK);
}

static void start(void)
{
	static const struct ctl_def *const defs[] = {&def};

	assert_int_equal(
		kcache_new(&fx.cache, fx.loop, fx.kube, &(struct kcache_opts){.seed = 1}, NULL),
		RC_OK);
	assert_int_equal(
		ctl_new(&fx.ctl, fx.loop, fx.kube, fx.cache, defs, 1,
			&(struct ctl_opts){
				.component = "t", .seed = 1, .on_failure = on_failure, .arg = &fx},
			NULL),
		RC_OK);
	assert_int_equal(ctl_start(fx.ctl, NULL), RC_OK);
	step();
}

static void setup(void)
{
	memset(&fx, 0, sizeof(fx));
	assert_int_equal(loop_new(&fx.loop, LOOP_VIRTUAL, NULL), RC_OK);
	assert_int_equal(kube_new_over(&fx.kube, fx.loop, &fake_transport, &fx.fake, NULL), RC_OK);
	start();
}

static void stop(void)
{
	fx.ctl = ctl_free(fx.ctl);
	fx.cache = kcache_free(fx.cache);
	assert_int_equal(fake_open(&fx.fake), 0);
}

static void teardown(void)
{
	stop();
	kube_free(fx.kube);
	loop_free(fx.loop);
}

#define CM                                                                                        \
	"{\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"%s\",\"namespace\":\"ns\",\"uid\":\"u%" \
	"s\","                                                                                    \
	"\"resourceVersion\":\"%d\",\"labels\":{\"%s\":\"1\",\"want\":\"1\"}}}"
#define POD                                                                                     \
	"{\"kind\":\"Pod\",\"metadata\":{\"name\":\"%s\",\"namespace\":\"ns\",\"uid\":\"p%s\"," \
	"\"resourceVersion\":\"%d\",\"ownerReferences\":[{\"controller\":true,\"uid\":\"u%s\"," \
	"\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"name\":\"%s\"}]}}"
#define CMS  "GET /api/v1/configmaps"
#define PODS "GET /api/v1/pods"

static void answer_list(const char *what, const char *items)
{
	fake_answer(fake_find(&fx.fake, what), 200,
		    "{\"metadata\":{\"resourceVersion\":\"10\"},\"items\":[%s]}", items);
	step();
}

static void nothing_is_reconciled_before_the_caches_are_full(void **state)
{
	char items[512];

	(void)state;
	setup();
	snprintf(items, sizeof(items), CM, "a", "a", 5, "x");
	answer_list(CMS, items);
	assert_int_equal(fx.reconciles, 0);
	snprintf(items, sizeof(items), POD, "a", "a", 6, "a", "a");
	answer_list(PODS, items);
	assert_int_equal(fx.reconciles, 1);
	assert_int_equal(fake_open(&fx.fake), 2); /* the watches: nothing to do */
	assert_true(ctl_is_idle(fx.ctl));
	teardown();
}

static void an_event_is_on_the_wire_without_a_timer(void **state)
{
	struct fake_op *op;

	(void)state;
	setup();
	answer_list(CMS, "");
	answer_list(PODS, "");
	fake_event(fake_find(&fx.fake, CMS), "ADDED", CM, "a", "a", 11, "x");
	step();
	assert_int_equal(loop_now(fx.loop), 0);
	op = fake_find(&fx.fake, "POST /api/v1/namespaces/ns/pods");
	/* While the create is in flight the key is not worked on again. */
	fake_event(fake_find(&fx.fake, CMS), "MODIFIED", CM, "a", "a", 12, "y");
	step();
	assert_int_equal(fx.reconciles, 1);
	fake_answer(op, 201, POD, "a", "a", 13, "a", "a");
	step();
	assert_int_equal(fx.reconciles, 2);
	assert_true(ctl_is_idle(fx.ctl)); /* its own write was seen: no second create */
	/* The watch brings it later: nothing new. */
	fake_event(fake_find(&fx.fake, PODS), "ADDED", POD, "a", "a", 13, "a", "a");
	step();
	assert_int_equal(fx.reconciles, 2);
	/* The owner is woken by what happens to its pod. */
	fake_event(fake_find(&fx.fake, PODS), "DELETED", POD, "a", "a", 14, "a", "a");
	step();
	assert_int_equal(loop_now(fx.loop), 0);
	fake_find(&fx.fake, "POST /api/v1/namespaces/ns/pods");
	teardown();
}

static void conflicts_look_again_and_are_not_reported(void **state)
{
	(void)state;
	setup();
	answer_list(CMS, "");
	answer_list(PODS, "");
	fake_event(fake_find(&fx.fake, CMS), "ADDED", CM, "a", "a", 11, "x");
	step();
	for (int i = 0; i < 5; i++) {
		fake_answer(fake_find(&fx.fake, "POST "), 409,
			    "{\"kind\":\"Status\",\"reason\":\"Conflict\"}");
		while (!fake_open(&fx.fake) || fx.reconciles < (unsigned)i + 2)
			assert_int_equal(loop_step(fx.loop, USEC_PER_SEC, NULL, NULL), RC_OK);
	}
	assert_true(loop_now(fx.loop) < USEC_PER_SEC);
	assert_int_equal(fx.failures, 0);
	teardown();
}

static void failures_back_off_and_are_reported_with_their_row(void **state)
{
	(void)state;
	setup();
	answer_list(CMS, "");
	answer_list(PODS, "");
	fx.fail_with = RC_INVALID; /* even what retrying seems not to help */
	fake_event(fake_find(&fx.fake, CMS), "ADDED", CM, "a", "a", 11, "x");
	while (fx.failures < 8)
		assert_int_equal(loop_step(fx.loop, USEC_PER_SEC, NULL, NULL), RC_OK);
	assert_int_equal(fx.in_a_row, 8);
	assert_true(loop_now(fx.loop) > 5 * USEC_PER_SEC);
	fx.fail_with = RC_OK;
	while (fx.reconciles < 9)
		assert_int_equal(loop_step(fx.loop, USEC_PER_SEC, NULL, NULL), RC_OK);
	fake_find(&fx.fake, "POST ");
	teardown();
}

static void a_plan_may_ask_to_be_woken(void **state)
{
	(void)state;
	setup();
	answer_list(CMS, "");
	answer_list(PODS, "");
	fake_event(fake_find(&fx.fake, CMS), "ADDED", CM, "a", "a", 11, "later");
	step();
	assert_int_equal(fx.reconciles, 1);
	while (fx.reconciles < 3)
		assert_int_equal(loop_step(fx.loop, 60 * USEC_PER_SEC, NULL, NULL), RC_OK);
	assert_int_equal(loop_now(fx.loop), 10 * USEC_PER_SEC);
	teardown();
}

static void the_number_of_plans_in_flight_is_bounded(void **state)
{
	(void)state;
	setup();
	answer_list(CMS, "");
	answer_list(PODS, "");
	for (int i = 0; i < 4; i++) {
		char name[2] = {(char)('a' + i), '\0'};

		fake_event(fake_find(&fx.fake, CMS), "ADDED", CM, name, name, 11 + i, "x");
	}
	step();
	assert_int_equal(fake_open(&fx.fake), 2 + 2);
	fake_answer(fake_find(&fx.fake, "POST "), 201, POD, "b", "b", 20, "b", "b");
	step();
	assert_int_equal(fake_open(&fx.fake), 2 + 2);
	teardown();
}

static void a_crash_in_the_middle_is_clean_and_repeats_nothing(void **state)
{
	char items[512];

	(void)state;
	setup();
	answer_list(CMS, "");
	answer_list(PODS, "");
	fake_event(fake_find(&fx.fake, CMS), "ADDED", CM, "a", "a", 11, "x");
	step();
	stop(); /* the create was sent; its answer is lost */
	start();
	snprintf(items, sizeof(items), CM, "a", "a", 11, "x");
	answer_list(CMS, items);
	answer_list(PODS, ""); /* stale: the pod is there */
	fake_answer(fake_find(&fx.fake, "POST "), 409,
		    "{\"kind\":\"Status\",\"reason\":\"AlreadyExists\"}");
	fake_answer(fake_find(&fx.fake, "GET /api/v1/namespaces/ns/pods/a"), 200, POD, "a", "a", 12,
		    "a", "a");
	step();
	assert_true(ctl_is_idle(fx.ctl));
	assert_int_equal(fx.failures, 0);
	teardown();
}

static void metrics_name_every_controller(void **state)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(65536);

	(void)state;
	setup();
	answer_list(CMS, "");
	answer_list(PODS, "");
	assert_int_equal(ctl_wake(fx.ctl, "small", "ns", "zz", NULL), RC_OK);
	assert_int_equal(ctl_wake(fx.ctl, "none", "ns", "zz", NULL), RC_NOT_FOUND);
	step();
	ctl_metrics(fx.ctl, &b);
	assert_int_equal(sbuf_rc(&b), RC_OK);
	assert_non_null(
		strstr(sbuf_str(&b), "ferry_ctl_reconciles_total{controller=\"small\"} 1\n"));
	assert_non_null(strstr(sbuf_str(&b), "ferry_cache_events_total{what=\"list\"} 2\n"));
	assert_non_null(strstr(sbuf_str(&b), "\nworkqueue_adds_total{name=\"small\"} 1\n"));
	assert_non_null(strstr(sbuf_str(&b),
			       "\nworkqueue_work_duration_seconds_count{name=\"small\"} 1\n"));
	/* Both lists; their watches have not said anything yet. */
	assert_non_null(strstr(sbuf_str(&b), "\nrest_client_requests_total{code=\"200\",host=\"\","
					     "method=\"GET\"} 2\n"));
	assert_non_null(strstr(sbuf_str(&b),
			       "\nkubevirt_rest_client_requests_total{code=\"200\",host=\"\","
			       "method=\"GET\",resource=\"pods\",verb=\"list\"} 1\n"));
	prom_golden("ctl", sbuf_str(&b));
	teardown();
}

static bool is_created(void)
{
	for (size_t k = 0; k < fx.fake.n; k++)
		if (fx.fake.ops[k].open && str_eq(fx.fake.ops[k].method, "POST"))
			return true;
	return false;
}

/* What a server does with lists and with watches from before the event. */
static void serve(void)
{
	for (size_t k = 0; k < fx.fake.n; k++) {
		struct fake_op *op = &fx.fake.ops[k];
		bool is_cm = strstr(op->path, "configmaps") != NULL;

		if (!op->open || !str_eq(op->method, "GET"))
			continue;
		if (op->data && is_cm && strstr(op->path, "resourceVersion=10&") && !*op->type) {
			snprintf(op->type, sizeof(op->type), "served");
			fake_event(op, "ADDED", CM, "a", "a", 11, "x");
		} else if (!op->data && is_cm) {
			fake_answer(op, 200,
				    "{\"metadata\":{\"resourceVersion\":\"12\"},\"items\":[" CM
				    "]}",
				    "a", "a", 11, "x");
		} else if (!op->data) {
			fake_answer(op, 200,
				    "{\"metadata\":{\"resourceVersion\":\"12\"},\"items\":[]}");
		}
	}
}

/* One story, during which the nth allocation fails.  Whatever that hits, nothing crashes or leaks, and
 * in the end the pod is wanted. */
static void story(unsigned nth, bool *fired)
{
	setup();
	answer_list(CMS, "");
	answer_list(PODS, "");
	mem_fault_arm(nth);
	for (int i = 0; i < 100 && !is_created(); i++) {
		serve();
		assert_int_equal(loop_step(fx.loop, USEC_PER_SEC, NULL, NULL), RC_OK);
	}
	*fired = mem_fault_disarm();
	if (!is_created())
		fail_msg("allocation %u failed: the pod is never created", nth);
	teardown();
}

static void failed_allocations_delay_and_never_lose(void **state)
{
	bool fired = true;

	(void)state;
	for (unsigned nth = 1; fired; nth++) {
		size_t before = mem_live_blocks();

		story(nth, &fired);
		if (mem_live_blocks() != before)
			fail_msg("allocation %u failed: %zu blocks leaked", nth,
				 mem_live_blocks() - before);
		assert_true(nth < 2000);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_reconciled_before_the_caches_are_full),
		cmocka_unit_test(an_event_is_on_the_wire_without_a_timer),
		cmocka_unit_test(conflicts_look_again_and_are_not_reported),
		cmocka_unit_test(failures_back_off_and_are_reported_with_their_row),
		cmocka_unit_test(a_plan_may_ask_to_be_woken),
		cmocka_unit_test(the_number_of_plans_in_flight_is_bounded),
		cmocka_unit_test(a_crash_in_the_middle_is_clean_and_repeats_nothing),
		cmocka_unit_test(metrics_name_every_controller),
		cmocka_unit_test(failed_allocations_delay_and_never_lose),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("ctl", tests, NULL, NULL);
}
