/* What `ferry drain` says of each VM, whom it evicts, and when it is over. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "cli/drain_plan.h"
#include "cli/progress.h"
#include "json/json.h"
#include "lib/jsontext.h"
#include "lib/torture.h"

#define VMI(strategy_, migratable_, more_)                                                      \
	"{'spec':{'evictionStrategy':'" strategy_ "'},'status':{'phase':'Running','nodeName':'" \
	"node-1','conditions':[{'type':'LiveMigratable','status':'" migratable_                 \
	"','message':'it has a local disk'}]" more_ "}}"
#define MOVABLE VMI("LiveMigrate", "True", "")
#define MARKED	VMI("LiveMigrate", "True", ",'evacuationNodeName':'node-1'")
#define GIVEN_UP(node_)                                                                           \
	VMI("LiveMigrate", "True",                                                                \
	    ",'evacuationNodeName':'node-1','ferry':{'evacuation':{'node':'" node_ "','reason':'" \
	    "AttemptsExhausted','message':'5 attempts failed'}}")
#define POD	      "{'metadata':{'labels':{}}}"
#define TARGET	      "{'metadata':{'labels':{'kubevirt.io/migrationJobUID':'u-m'}}}"

#define SOURCE	      "{'node':'node-1','allowed':false,'lasting':true,'reason':'Source'}"
#define YES(n_)	      "{'node':'node-" n_ "','allowed':true}"
#define WAIT	      "{'node':'node-3','allowed':false,'message':'the node is cordoned'}"
#define NO	      "{'node':'node-4','allowed':false,'lasting':true,'message':'needs label a=b'}"
#define PLACES(rows_) "{'status':{'ferry':{'placement':[" rows_ "]}}}"
#define OPEN(more_)                                                                           \
	"{'metadata':{'uid':'u-m'},'status':{'phase':'Pending','ferry':{'placement':[" SOURCE \
	"," WAIT "]" more_ "}}}"
#define ENDED(reason_)                                                                          \
	"{'metadata':{'uid':'u-e','annotations':{'kubevirt.io/evacuationMigration':'node-1'}}," \
	"'status':{'phase':'Failed','migrationState':{'failureReason':'it broke'},'ferry':{'"   \
	"reason':'" reason_ "','placement':[" SOURCE "," NO "]}}}"

static const struct {
	const char *pod, *vmi, *open, *ended, *answer, *refusal;
	bool was_asked;
	const char *ended_before;
	enum drain_verdict verdict;
	const char *reason;
	bool asks, evicts, evicts_by_force; /* the dry run; the eviction */
} cases[] = {
	/* going, gone, coming */
	{.pod = POD, .verdict = DRAIN_LEAVES, .reason = "its virtual machine is gone"},
	{.pod = POD,
	 .vmi = "{'metadata':{'deletionTimestamp':'x'},'status':{'nodeName':'node-1'}}",
	 .verdict = DRAIN_LEAVES,
	 .reason = "it is being shut down"},
	{.pod = "{'metadata':{'deletionTimestamp':'x'}}",
	 .vmi = MOVABLE,
	 .verdict = DRAIN_LEAVES,
	 .reason = "it is being shut down"},
	{.pod = POD,
	 .vmi = "{'status':{'phase':'Running','nodeName':'node-2'}}",
	 .verdict = DRAIN_LEAVES,
	 .reason = "it runs on node-2"},
	{.pod = TARGET,
	 .vmi = "{'status':{'phase':'Running','nodeName':'node-2'}}",
	 .open = OPEN(""),
	 .verdict = DRAIN_ARRIVES,
	 .reason = "a move brings it from node-2"},
	/* where it could go */
	{.pod = POD,
	 .vmi = MOVABLE,
	 .answer = PLACES(SOURCE "," YES("2") "," WAIT "," NO),
	 .verdict = DRAIN_MOVES,
	 .reason = "to node-2",
	 .asks = true,
	 .evicts = true},
	{.pod = POD,
	 .vmi = VMI("LiveMigrateIfPossible", "True", ""),
	 .answer = PLACES(SOURCE "," YES("2") "," YES("3")),
	 .verdict = DRAIN_MOVES,
	 .reason = "to one of 2 nodes",
	 .asks = true,
	 .evicts = true},
	{.pod = POD,
	 .vmi = MOVABLE,
	 .answer = PLACES(SOURCE "," WAIT "," NO),
	 .verdict = DRAIN_WAITS,
	 .reason = "node-3: the node is cordoned",
	 .asks = true,
	 .evicts = true},
	{.pod = POD,
	 .vmi = MOVABLE,
	 .answer = PLACES(SOURCE "," NO "," NO),
	 .verdict = DRAIN_STAYS,
	 .reason = "node-4: needs label a=b (and 1 more nodes)",
	 .asks = true},
	{.pod = POD,
	 .vmi = MOVABLE,
	 .answer = PLACES(SOURCE),
	 .verdict = DRAIN_STAYS,
	 .reason = "there is no other node",
	 .asks = true},
	{.pod = POD,
	 .vmi = MOVABLE,
	 .refusal = "no, says a webhook",
	 .verdict = DRAIN_STAYS,
	 .reason = "no, says a webhook",
	 .asks = true},
	{.pod = POD,
	 .vmi = MOVABLE,
	 .answer = "{'status':{'ferry':{'stage':'WaitingForVirtualMachine'}}}",
	 .verdict = DRAIN_WAITS,
	 .reason = "it is not ready to move yet",
	 .asks = true,
	 .evicts = true},
	{.pod = POD,
	 .vmi = MOVABLE,
	 .answer = "{}",
	 .verdict = DRAIN_MOVES,
	 .reason = "the server does not tell where it could go",
	 .asks = true,
	 .evicts = true},
	/* the strategy */
	{.pod = POD,
	 .vmi = VMI("None", "True", ""),
	 .verdict = DRAIN_SHUTDOWN,
	 .reason = "evictionStrategy None",
	 .evicts_by_force = true},
	{.pod = POD,
	 .vmi = "{'spec':{},'status':{'phase':'Running','nodeName':'node-1'}}",
	 .verdict = DRAIN_SHUTDOWN,
	 .reason = "evictionStrategy None",
	 .evicts_by_force = true},
	{.pod = POD,
	 .vmi = VMI("LiveMigrateIfPossible", "False", ""),
	 .verdict = DRAIN_SHUTDOWN,
	 .reason = "evictionStrategy LiveMigrateIfPossible: it has a local disk",
	 .evicts_by_force = true},
	{.pod = POD,
	 .vmi = VMI("LiveMigrate", "False", ""),
	 .verdict = DRAIN_STAYS,
	 .reason = "it has a local disk"},
	{.pod = POD,
	 .vmi = VMI("External", "True", ""),
	 .verdict = DRAIN_WAITS,
	 .reason = "evictionStrategy External: somebody else has to move it",
	 .evicts = true},
	{.pod = POD,
	 .vmi = "{'spec':{'evictionStrategy':'LiveMigrateIfPossible'},'status':{'phase':'Scheduled',"
		"'nodeName':'node-1'}}",
	 .verdict = DRAIN_WAITS,
	 .reason = "it does not run yet"}, /* an eviction would shut it down */
	/* while it is on its way */
	{.pod = POD,
	 .vmi = MOVABLE,
	 .open = OPEN(",'stage':'WaitingForSlot'"),
	 .verdict = DRAIN_MOVES,
	 .reason = "a move is under way",
	 .evicts = true},
	{.pod = POD,
	 .vmi = MARKED,
	 .open = OPEN(",'stage':'WaitingForNode'"),
	 .was_asked = true,
	 .verdict = DRAIN_WAITS,
	 .reason = "node-3: the node is cordoned"},
	{.pod = POD,
	 .vmi = MARKED,
	 .open = OPEN(",'stage':'BackingOff'"),
	 .ended = ENDED("TargetClosed"),
	 .was_asked = true,
	 .verdict = DRAIN_WAITS,
	 .reason = "it is tried again; the last attempt: it broke"},
	{.pod = POD,
	 .vmi = MARKED,
	 .open = OPEN(",'stage':'BackingOff'"),
	 .ended = ENDED("NoCandidate"),
	 .was_asked = true,
	 .verdict = DRAIN_STAYS,
	 .reason = "node-4: needs label a=b"},
	{.pod = POD,
	 .vmi = MARKED,
	 .open = OPEN(",'stage':'BackingOff'"),
	 .ended = ENDED("NoCandidate"),
	 .was_asked = true,
	 .ended_before = "u-e", /* it failed before it was asked now */
	 .verdict = DRAIN_WAITS,
	 .reason = "it is tried again; the last attempt: it broke"},
	{.pod = POD,
	 .vmi = MARKED,
	 .was_asked = true,
	 .verdict = DRAIN_MOVES,
	 .reason = "it was asked to leave"},
	{.pod = POD,
	 .vmi = MOVABLE,
	 .was_asked = true,
	 .verdict = DRAIN_STAYS,
	 .reason = "its evacuation was cancelled"},
	{.pod = POD,
	 .vmi = GIVEN_UP("node-1"),
	 .ended = ENDED("TargetClosed"),
	 .was_asked = true,
	 .verdict = DRAIN_STAYS,
	 .reason = "5 attempts failed (it may be tried anew after 'ferry evacuate-cancel')"},
	{.pod = POD, /* it was of another node */
	 .vmi = GIVEN_UP("node-9"),
	 .was_asked = true,
	 .verdict = DRAIN_MOVES,
	 .reason = "it was asked to leave"},
};

static void each_vm_has_its_verdict_and_is_evicted_only_if_that_moves_it(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(js_unrefp) struct json *pod = json_of(cases[i].pod);
		CLEANUP(js_unrefp)
		struct json *vmi = cases[i].vmi ? json_of(cases[i].vmi) : NULL;
		CLEANUP(js_unrefp)
		struct json *open = cases[i].open ? json_of(cases[i].open) : NULL;
		CLEANUP(js_unrefp)
		struct json *ended = cases[i].ended ? json_of(cases[i].ended) : NULL;
		CLEANUP(js_unrefp)
		struct json *answer = cases[i].answer ? json_of(cases[i].answer) : NULL;
		const struct drain_facts f = {
			.node = "node-1",
			.pod = pod,
			.vmi = vmi,
			.open = open,
			.ended = ended,
			.answer = answer,
			.refusal = cases[i].refusal,
			.was_asked = cases[i].was_asked,
			.ended_before = cases[i].ended_before,
		};
		struct drain_row row = {.ns = "t", .name = "v"};
		bool evicts = cases[i].evicts;

		drain_judge(&f, &row);
		if (row.verdict != cases[i].verdict || !str_eq(row.reason, cases[i].reason))
			fail_msg("case %zu: %s, %s", i, drain_verdict_name(row.verdict),
				 row.reason);
		if (drain_wants_answer(&f) != cases[i].asks)
			fail_msg("case %zu: asks", i);
		if (drain_may_evict(&f, &row, false) != evicts ||
		    drain_may_evict(&f, &row, true) != (evicts || cases[i].evicts_by_force))
			fail_msg("case %zu: evicts", i);
	}
}

static const struct drain_row rows[] = {
	{"default", "web", DRAIN_MOVES, "to node-2"},
	{"default", "database", DRAIN_STAYS, "it has a local disk"},
	{"t", "x", DRAIN_SHUTDOWN, "evictionStrategy None"},
	{"t", "y", DRAIN_WAITS, "node-3: the node is cordoned"},
};

static void the_table_names_each_vm(void **state)
{
	CLEANUP(sbuf_fini) struct sbuf out = SBUF_INIT(1 << 16);

	(void)state;
	drain_print(rows, ARRAY_SIZE(rows), false, &out);
	assert_string_equal(
		sbuf_str(&out),
		"VM                 WHAT       WHY\n"
		"default/web        Moves      to node-2\n"
		"default/database   Stays      it has a local disk\n"
		"t/x                ShutDown   evictionStrategy None (it is left alone: only with "
		"--force)\n"
		"t/y                Waits      node-3: the node is cordoned\n");
	sbuf_reset(&out);
	drain_print(rows + 2, 1, true, &out);
	assert_string_equal(sbuf_str(&out), "VM    WHAT       WHY\n"
					    "t/x   ShutDown   evictionStrategy None\n");
}

static void it_ends_when_nothing_is_left_or_nothing_that_is_left_can_go(void **state)
{
	(void)state;
	assert_int_equal(drain_end_of(rows, 0, false), DRAIN_EMPTY);
	assert_int_equal(drain_end_of(rows, 4, false), DRAIN_GOES_ON);
	assert_int_equal(drain_end_of(rows + 1, 2, false), DRAIN_BLOCKED);
	assert_int_equal(drain_end_of(rows + 1, 2, true), DRAIN_GOES_ON); /* x is shut down */
	assert_int_equal(drain_end_of(rows + 1, 1, true), DRAIN_BLOCKED);
	assert_int_equal(drain_end_of(rows + 3, 1, false), DRAIN_GOES_ON);
	assert_true(drain_can_go(&rows[0], false));
	assert_false(drain_can_go(&rows[1], true));
	assert_false(drain_can_go(&rows[2], false));
	assert_int_equal(drain_width(rows, 4), strlen("default/database"));
	assert_true(drain_all_can_go(rows, 0, false));
	assert_true(drain_all_can_go(rows, 1, false));
	assert_false(drain_all_can_go(rows, 2, true));
	assert_false(drain_all_can_go(rows + 2, 1, false));
	assert_true(drain_all_can_go(rows + 2, 1, true));
	assert_false(drain_all_can_go(rows + 3, 1, true)); /* not now */
}

static void progress_has_the_figures_or_why_it_waits(void **state)
{
	static const struct {
		const char *vmim, *text;
	} lines[] = {
		{"{}", "Pending"},
		{"{'status':{'phase':'Pending','ferry':{'stage':'WaitingForSlot'}}}",
		 "Pending          WaitingForSlot"},
		{"{'status':{'phase':'TargetReady','ferry':{'stage':'x'}}}", "TargetReady"},
		{"{'status':{'phase':'Running','ferry':{'stage':'disks','percent':12,'disks':[{"
		 "'totalBytes':4194304,'remainingBytes':3145728},{'totalBytes':1048576,"
		 "'remainingBytes':524288}]}}}",
		 "Running           12 %      1.5 of 5.0 MiB of disks"},
		/* of memory and disks together, and it does not fall when a pass begins anew */
		{"{'status':{'phase':'Running','ferry':{'percent':37,'passes':2,"
		 "'linkBytesPerSecond':1572864,'memory':{'totalBytes':4194304,'remainingBytes':"
		 "1048576,'transferredBytes':3145728}}}}",
		 "Running           37 %      3.0 MiB sent     1.5 MiB/s  pass 2"},
		{"{'status':{'phase':'Running','ferry':{'percent':37,'passes':3,"
		 "'linkBytesPerSecond':1572864,'memory':{'totalBytes':4194304,'remainingBytes':"
		 "4194304,'transferredBytes':3145728}}}}",
		 "Running           37 %      3.0 MiB sent     1.5 MiB/s  pass 3"},
		{"{'status':{'phase':'Running','ferry':{'percent':99,'passes':2,'secondsLeft':7,"
		 "'forecast':'Converges','memory':{'totalBytes':1048576}}}}",
		 "Running           99 %      0.0 MiB sent     0.0 MiB/s  pass 2  about 7 s left"},
		{"{'status':{'phase':'Running','ferry':{'percent':99,'passes':2,'forecast':"
		 "'Diverges','memory':{'totalBytes':1048576}}}}",
		 "Running           99 %      0.0 MiB sent     0.0 MiB/s  pass 2  writes faster "
		 "than the link"},
		{"{'status':{'phase':'Running','ferry':{'percent':99,'passes':2,'stage':"
		 "'postcopy-paused','memory':{'totalBytes':1048576}}}}",
		 "Running           99 %      0.0 MiB sent     0.0 MiB/s  pass 2  post-copy: the "
		 "link is lost"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		CLEANUP(js_unrefp) struct json *vmim = json_of(lines[i].vmim);
		CLEANUP(sbuf_fini) struct sbuf out = SBUF_INIT(1024);

		progress_print(vmim, &out);
		assert_string_equal(sbuf_str(&out), lines[i].text);
	}
}

static enum rc print_once(void)
{
	CLEANUP(sbuf_fini) struct sbuf out = SBUF_INIT(1 << 16);

	drain_print(rows, ARRAY_SIZE(rows), false, &out);
	return sbuf_rc(&out);
}

static void running_out_of_memory_is_said(void **state)
{
	(void)state;
	torture(print_once);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_vm_has_its_verdict_and_is_evicted_only_if_that_moves_it),
		cmocka_unit_test(the_table_names_each_vm),
		cmocka_unit_test(it_ends_when_nothing_is_left_or_nothing_that_is_left_can_go),
		cmocka_unit_test(progress_has_the_figures_or_why_it_waits),
		cmocka_unit_test(running_out_of_memory_is_said),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("drain_plan", tests, NULL, NULL);
}
