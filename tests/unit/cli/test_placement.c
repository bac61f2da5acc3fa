/* What `ferry explain migration` prints: a row per node, a sentence, and whether there is room. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/sbuf.h"
#include "cli/placement.h"
#include "json/json.h"
#include "lib/torture.h"

#define SOURCE \
	"{'node':'node-1','allowed':false,'lasting':true,'reason':'Source','message':'it runs there'}"
#define YES "{'node':'node-2','allowed':true}"
#define NO                                                                                   \
	"{'node':'node-3','allowed':false,'lasting':true,'reason':'NodeAffinity','message':" \
	"'needs label a=b'}"
#define WAIT                                                                                        \
	"{'node':'the-fourth','allowed':false,'reason':'NodeUnschedulable','message':'the node is " \
	"cordoned'}"

static struct json *vmim_of(const char *placement)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(4096);
	struct json *j = NULL;
	struct err err = {0};

	sbuf_addf(&b, "{'status':{'ferry':{'placement':[%s]}}}", placement);
	for (size_t i = 0; i < b.n; i++)
		if (b.p[i] == '\'')
			b.p[i] = '"';
	if (js_parse(sbuf_str(&b), b.n, &j, &err))
		fail_msg("%s", err.msg);
	return j;
}

static const struct {
	const char *placement, *node, *text;
	bool has_room;
} cases[] = {
	{SOURCE "," YES "," NO "," WAIT, NULL,
	 "NODE         VERDICT   REASON              MESSAGE\n"
	 "node-1       Source    Source              it runs there\n"
	 "node-2       Yes\n"
	 "node-3       No        NodeAffinity        needs label a=b\n"
	 "the-fourth   Wait      NodeUnschedulable   the node is cordoned\n"
	 "\n"
	 "VM v can move now: 1 of 3 other nodes can take it.\n",
	 true},
	{SOURCE "," NO "," WAIT, NULL,
	 "NODE         VERDICT   REASON              MESSAGE\n"
	 "node-1       Source    Source              it runs there\n"
	 "node-3       No        NodeAffinity        needs label a=b\n"
	 "the-fourth   Wait      NodeUnschedulable   the node is cordoned\n"
	 "\n"
	 "VM v cannot move now: a move would wait for 1 of 2 other nodes.\n",
	 false},
	{SOURCE "," NO, NULL,
	 "NODE     VERDICT   REASON         MESSAGE\n"
	 "node-1   Source    Source         it runs there\n"
	 "node-3   No        NodeAffinity   needs label a=b\n"
	 "\n"
	 "VM v cannot move: none of 1 other nodes can take it, and no waiting helps.\n",
	 false},
	{SOURCE, NULL,
	 "NODE     VERDICT   REASON   MESSAGE\n"
	 "node-1   Source    Source   it runs there\n"
	 "\n"
	 "VM v cannot move: there is no other node.\n",
	 false},
	/* --to */
	{SOURCE "," YES "," WAIT, "node-2",
	 "NODE     VERDICT   REASON   MESSAGE\n"
	 "node-2   Yes\n"
	 "\n"
	 "VM v can move to node-2 now.\n",
	 true},
	{SOURCE "," YES "," WAIT, "the-fourth",
	 "NODE         VERDICT   REASON              MESSAGE\n"
	 "the-fourth   Wait      NodeUnschedulable   the node is cordoned\n"
	 "\n"
	 "VM v cannot move to the-fourth now; a move would wait for it.\n",
	 false},
	{YES "," NO, "node-3",
	 "NODE     VERDICT   REASON         MESSAGE\n"
	 "node-3   No        NodeAffinity   needs label a=b\n"
	 "\n"
	 "VM v cannot move to node-3, and no waiting helps.\n",
	 false},
	{SOURCE "," YES, "node-1",
	 "NODE     VERDICT   REASON   MESSAGE\n"
	 "node-1   Source    Source   it runs there\n"
	 "\n"
	 "VM v runs on node-1 already.\n",
	 false},
	{SOURCE "," YES, "node-9", "VM v cannot move to node-9: there is no such node.\n", false},
	/* another server than Ferry's */
	{"", NULL, "The server does not tell where VM v could go.\n", false},
};

static void each_verdict_has_its_row_and_its_sentence(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(js_unrefp) struct json *vmim = vmim_of(cases[i].placement);
		CLEANUP(sbuf_fini) struct sbuf out = SBUF_INIT(1 << 16);

		assert_int_equal(placement_print(vmim, "v", cases[i].node, &out),
				 cases[i].has_room);
		assert_string_equal(sbuf_str(&out), cases[i].text);
	}
}

static void a_vm_that_does_not_run_yet_has_a_sentence_of_its_own(void **state)
{
	CLEANUP(js_unrefp)
	struct json *vmim =
		js_pack("{s:{s:{s:s}}}", "status", "ferry", "stage", "WaitingForVirtualMachine");
	CLEANUP(sbuf_fini) struct sbuf out = SBUF_INIT(1 << 16);

	(void)state;
	assert_false(placement_print(vmim, "v", NULL, &out));
	assert_string_equal(sbuf_str(&out),
			    "VM v does not run yet: which nodes could take it is known then.\n");
}

static struct json *whole;

static enum rc print_once(void)
{
	CLEANUP(sbuf_fini) struct sbuf out = SBUF_INIT(1 << 16);

	(void)placement_print(whole, "v", NULL, &out);
	return sbuf_rc(&out);
}

static void running_out_of_memory_is_said(void **state)
{
	(void)state;
	whole = vmim_of(cases[0].placement);
	torture(print_once);
	whole = js_unref(whole);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_verdict_has_its_row_and_its_sentence),
		cmocka_unit_test(a_vm_that_does_not_run_yet_has_a_sentence_of_its_own),
		cmocka_unit_test(running_out_of_memory_is_said),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("placement", tests, NULL, NULL);
}
