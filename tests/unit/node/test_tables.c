/* The tables of the node: a pod's life, the two sides of a hand-over, and a pod's status from facts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

#include "api/api.h"
#include "api/meta.h"
#include "base/mem.h"
#include "base/str.h"
#include "cluster/podruntime/podlife.h"
#include "cluster/podruntime/podstatus.h"
#include "lib/torture.h"
#include "virt/migration/handoff.h"

#define NOW ((usec_t)1700000000 * USEC_PER_SEC)

/* --- a pod's life --- */

static void every_pod_state_leads_to_done(void **state)
{
	bool reaches[POD__STATES] = {[POD_DONE] = true};

	(void)state;
	for (int round = 0; round < POD__STATES; round++)
		for (int s = 0; s < POD__STATES; s++)
			for (int e = 0; e < POD__EVENTS; e++) {
				struct pod_edge x = pod_edge((enum pod_state)s, (enum pod_event)e);

				if (x.act != PODACT_REFUSED && reaches[x.next])
					reaches[s] = true;
			}
	for (int s = 0; s < POD__STATES; s++)
		if (!reaches[s])
			fail_msg("%s never ends", pod_state_name((enum pod_state)s));
}

static void deletion_is_allowed_in_every_pod_state(void **state)
{
	(void)state;
	for (int s = 0; s < POD__STATES; s++)
		if (pod_edge((enum pod_state)s, PODEV_DELETED).act == PODACT_REFUSED)
			fail_msg("%s refuses deletion", pod_state_name((enum pod_state)s));
}

static void nothing_starts_after_the_deletion(void **state)
{
	static const enum pod_state after[] = {POD_ABORTING, POD_STOPPING, POD_CLEANING, POD_DONE};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(after); i++)
		for (int e = 0; e < POD__EVENTS; e++) {
			enum pod_act a = pod_edge(after[i], (enum pod_event)e).act;

			assert_true(a != PODACT_START && a != PODACT_ADOPT && a != PODACT_PREPARE);
		}
}

/* --- the hand-over: all orders of events, both sides together --- */

struct pair {
	enum src_state s;
	enum dst_state d;
};

static bool seen[SRC__STATES][DST__STATES];
static unsigned n_seen;

/* Explores every pair that the two agents can reach.  The target's key and permission come from the
 * source only; everything else may happen at any time. */
static void walk(struct pair p)
{
	if (seen[p.s][p.d])
		return;
	seen[p.s][p.d] = true;
	n_seen++;
	if (src_may_run(p.s) && dst_may_run(p.d))
		fail_msg("the guest may run twice: %s and %s", src_state_name(p.s),
			 dst_state_name(p.d));
	for (int e = 0; e < SRC__EVENTS; e++) {
		struct pair next = p;
		/* Taken, Shared and Refused are the target's answers. */
		bool runs = p.d == DST_RUNNING || p.d == DST_FETCHING || p.d == DST_DONE;
		bool possible = (e != SRCEV_TAKEN && e != SRCEV_SHARED) || runs;

		possible = possible && (e != SRCEV_REFUSED || p.d == DST_FAILED || p.d == DST_IDLE);
		if (possible && src_next(p.s, (enum src_event)e, &next.s))
			walk(next);
	}
	for (int e = 0; e < DST__EVENTS; e++) {
		struct pair next = p;
		bool possible = e != DSTEV_KEY || p.s == SRC_PREPARING;

		possible = possible && (e != DSTEV_PERMISSION || p.s == SRC_RELEASED);
		if (possible && dst_next(p.d, (enum dst_event)e, &next.d))
			walk(next);
	}
}

static void the_guest_never_runs_twice(void **state)
{
	(void)state;
	memset(seen, 0, sizeof(seen));
	n_seen = 0;
	walk((struct pair){SRC_IDLE, DST_IDLE});
	assert_true(n_seen > 20);
	assert_true(seen[SRC_GIVEN][DST_DONE]); /* and it can end well */
	assert_true(seen[SRC_STREAMING][DST_FETCHING]);
	assert_true(seen[SRC_FAILED][DST_FAILED]);
}

static void a_released_source_never_goes_back(void **state)
{
	(void)state;
	static const enum src_state from[] = {SRC_RELEASED, SRC_STREAMING, SRC_GIVEN, SRC_LOST};

	for (size_t i = 0; i < ARRAY_SIZE(from); i++)
		for (int e = 0; e < SRC__EVENTS; e++) {
			enum src_state next = from[i];

			if (src_next(from[i], (enum src_event)e, &next))
				assert_false(src_may_run(next));
		}
}

/* --- a pod's status --- */

static Pod *make_pod(void)
{
	Pod *p = Pod_new();
	Container *c = api_append(&p->spec.containers, &p->spec.n_containers, sizeof(*c));
	PodReadinessGate *g =
		api_append(&p->spec.readinessGates, &p->spec.n_readinessGates, sizeof(*g));

	assert_int_equal(api_set_str(&p->metadata.name, "virt-launcher-x"), RC_OK);
	assert_int_equal(api_set_str(&c->name, "compute"), RC_OK);
	assert_int_equal(api_set_str(&g->conditionType, "kubevirt.io/virtual-machine-unpaused"),
			 RC_OK);
	return p;
}

static void a_paused_vm_is_running_but_not_ready(void **state)
{
	Pod *pod = make_pod(), *out = NULL;
	struct pod_facts f = {
		.host_ip = "172.30.77.11", .seen_at = NOW, .started_at = NOW, .is_running = true};

	(void)state;
	assert_int_equal(podstatus_build(pod, &f, NOW, &out, NULL), RC_OK);
	assert_string_equal(out->status.phase, "Running");
	assert_true(API_COND_IS(&out->status, PodCondition, "ContainersReady", "True"));
	assert_true(API_COND_IS(&out->status, PodCondition, "Ready", "False"));
	Pod_free(out);
	f.is_unpaused = true;
	assert_int_equal(podstatus_build(pod, &f, NOW, &out, NULL), RC_OK);
	assert_true(API_COND_IS(&out->status, PodCondition, "Ready", "True"));
	Pod_free(out);
	Pod_free(pod);
}

static void waiting_shows_its_reason_and_the_end_its_code(void **state)
{
	Pod *pod = make_pod(), *out = NULL, *again = NULL;
	struct pod_facts f = {.host_ip = "172.30.77.11", .seen_at = NOW};

	(void)state;
	assert_int_equal(pod_facts_why(&f, "ErrImagePull", "no such image"), RC_OK);
	assert_int_equal(podstatus_build(pod, &f, NOW, &out, NULL), RC_OK);
	assert_string_equal(out->status.phase, "Pending");
	assert_string_equal(out->status.containerStatuses[0].state->waiting->reason,
			    "ErrImagePull");
	Pod_free(out);
	f.has_ended = true;
	f.exit_code = 1;
	assert_int_equal(podstatus_build(pod, &f, NOW, &out, NULL), RC_OK);
	assert_string_equal(out->status.phase, "Failed");
	assert_int_equal(out->status.containerStatuses[0].state->terminated->exitCode, 1);
	/* The time of the end stays. */
	assert_int_equal(podstatus_build(out, &f, NOW + 5 * USEC_PER_SEC, &again, NULL), RC_OK);
	assert_true(Pod_equal(out, again));
	Pod_free(again);
	Pod_free(out);
	Pod_free(pod);
	pod_facts_fini(&f);
}

static enum rc build_once(void)
{
	static Pod pod;
	struct pod_facts f = {
		.host_ip = "172.30.77.11", .seen_at = NOW, .started_at = NOW, .is_running = true};
	Pod *out = NULL;
	enum rc rc = podstatus_build(&pod, &f, NOW, &out, NULL);

	Pod_free(out);
	return rc;
}

static void a_failed_allocation_leaks_nothing(void **state)
{
	(void)state;
	torture(build_once);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_pod_state_leads_to_done),
		cmocka_unit_test(deletion_is_allowed_in_every_pod_state),
		cmocka_unit_test(nothing_starts_after_the_deletion),
		cmocka_unit_test(the_guest_never_runs_twice),
		cmocka_unit_test(a_released_source_never_goes_back),
		cmocka_unit_test(a_paused_vm_is_running_but_not_ready),
		cmocka_unit_test(waiting_shows_its_reason_and_the_end_its_code),
		cmocka_unit_test(a_failed_allocation_leaks_nothing),
	};

	return cmocka_run_group_tests_name("node tables", tests, NULL, NULL);
}
