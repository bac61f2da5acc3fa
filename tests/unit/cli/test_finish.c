/* What `ferry migrate finish` asks for, and what it says of a move in each of its phases. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/sbuf.h"
#include "cli/finish.h"
#include "cli/progress.h"
#include "json/json.h"
#include "lib/jsontext.h"
#include "lib/torture.h"

#define VMIM(phase, more) "{'metadata':{'uid':'u1'" more "},'status':{'phase':'" phase "'}}"
#define ASKED		  ",'annotations':{'ferry.dev/finish':'pause'}"
#define VMI(uid, mode, ferry)                                                 \
	"{'status':{'migrationState':{'migrationUid':'" uid "','mode':'" mode \
	"'},'ferry':{'migration':{" ferry "}}}}"
#define MEMORY                                                                       \
	"'stage':'memory','linkBytesPerSecond':33554432,'memory':{'remainingBytes':" \
	"268435457}"

static const struct {
	const char *vmim, *vmi, *text;
	enum rc rc;
} cases[] = {
	{VMIM("", ""), NULL,
	 "the guest is paused as soon as its memory begins to go over; the move is Pending now",
	 RC_OK},
	{VMIM("Scheduling", ""), "{'status':{'phase':'Running'}}",
	 "the guest is paused as soon as its memory begins to go over; the move is Scheduling now",
	 RC_OK},
	{VMIM("Running", ""), VMI("u1", "PreCopy", "'stage':'disks'"),
	 "the guest is paused as soon as its memory begins to go over; its disks are copied now",
	 RC_OK},
	{VMIM("Running", ""), VMI("u1", "PreCopy", MEMORY),
	 "the guest is paused while the rest of its memory goes over: 256 MiB are left, about 9 s "
	 "at the present rate",
	 RC_OK},
	{VMIM("Running", ""), VMI("u1", "PreCopy", ""),
	 "the guest is paused while the rest of its memory goes over", RC_OK},
	/* what the VMI shows is of the move before */
	{VMIM("Scheduled", ""), VMI("u0", "PostCopy", MEMORY),
	 "the guest is paused as soon as its memory begins to go over; the move is Scheduled now",
	 RC_OK},
	{VMIM("Scheduling", ASKED), NULL,
	 "it was asked for before: the guest is paused as soon as its memory begins to go over; the move is "
	 "Scheduling now",
	 RC_EXISTS},
	{VMIM("Running", ASKED), VMI("u1", "Paused", MEMORY),
	 "nothing to do: the guest is being switched over already", RC_EXISTS},
	{VMIM("Running", ""), VMI("u1", "PreCopy", "'stage':'switching'"),
	 "nothing to do: the guest is being switched over already", RC_EXISTS},
	{VMIM("Running", ""), VMI("u1", "PostCopy", "'stage':'postcopy'"),
	 "nothing to do: post-copy has begun, the guest is at the target", RC_EXISTS},
	{VMIM("Running", ",'deletionTimestamp':'2026-01-01T00:00:00Z'"),
	 VMI("u1", "PreCopy", MEMORY), "its move is being canceled", RC_CONFLICT},
};

static void each_phase_has_its_own_words(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(sbuf_fini) struct sbuf out = SBUF_INIT(1024);
		CLEANUP(js_unrefp) struct json *vmim = json_of(cases[i].vmim);
		CLEANUP(js_unrefp) struct json *vmi = cases[i].vmi ? json_of(cases[i].vmi) : NULL;

		assert_int_equal(finish_look(vmim, vmi, &out), cases[i].rc);
		assert_string_equal(sbuf_str(&out), cases[i].text);
	}
}

static struct json *whole[2];

static enum rc look_once(void)
{
	CLEANUP(sbuf_fini) struct sbuf out = SBUF_INIT(1024);
	enum rc rc = finish_look(whole[0], whole[1], &out);

	return sbuf_rc(&out) ? sbuf_rc(&out) : rc;
}

static void running_out_of_memory_is_said(void **state)
{
	(void)state;
	whole[0] = json_of(VMIM("Running", ""));
	whole[1] = json_of(VMI("u1", "PreCopy", MEMORY));
	torture(look_once);
	whole[0] = js_unref(whole[0]);
	whole[1] = js_unref(whole[1]);
}

#define PROGRESS(phase)                                                                                 \
	"{'status':{'phase':'" phase "','migrationState':{'mode':'Paused'},'ferry':{'stage':"           \
	"'memory','percent':50,'passes':3,'linkBytesPerSecond':1048576,'memory':{'totalBytes':2097152," \
	"'remainingBytes':1048576,'transferredBytes':4194304}}}}"

static void a_guest_is_shown_to_stand_while_it_does(void **state)
{
	CLEANUP(sbuf_fini) struct sbuf out = SBUF_INIT(1024);
	CLEANUP(js_unrefp) struct json *during = json_of(PROGRESS("Running"));
	CLEANUP(js_unrefp) struct json *after = json_of(PROGRESS("Succeeded"));

	(void)state;
	progress_print(during, &out);
	assert_string_equal(sbuf_str(&out),
			    "Running           50 %      4.0 MiB sent     1.0 MiB/s  pass 3  the "
			    "guest is paused while the rest goes over");
	sbuf_reset(&out);
	progress_print(after, &out);
	assert_string_equal(sbuf_str(&out),
			    "Succeeded         50 %      4.0 MiB sent     1.0 MiB/s  pass 3");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_phase_has_its_own_words),
		cmocka_unit_test(running_out_of_memory_is_said),
		cmocka_unit_test(a_guest_is_shown_to_stand_while_it_does),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
