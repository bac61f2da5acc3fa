/* Running the fence agent: what comes before a run, what is recorded, and the program itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "api/api.h"
#include "api/gen/api_types.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "ev/ev.h"
#include "json/json.h"
#include "kube/kcache.h"
#include "kube/kobj.h"
#include "../kube/fake_stage.h"
#include "virt/controller/fence/fence_exec.h"
#include "virt/controller/fence/fencer.h"

/* ---- a fencer, a scripted server, an agent that waits for its cue ---- */

struct stage {
	struct fake_stage api;
	struct fencer *fencer;
	unsigned starts, frees;
	struct fence_job job;
	fence_done_fn done;
	void *arg;
};

static enum rc on_start(void *ctx, const struct fence_job *job, fence_done_fn done, void *arg,
			void **op, struct err *err)
{
	struct stage *s = ctx;

	(void)err;
	s->starts++;
	s->job = *job;
	s->done = done;
	s->arg = arg;
	*op = s;
	return RC_OK;
}

static void on_free(void *op)
{
	((struct stage *)op)->frees++;
}

static const struct fence_ops ops = {.start = on_start, .free = on_free};

#define LEASE_A "2026-01-01T00:00:00.000000Z"
#define LEASE_B "2026-01-01T00:00:09.000000Z"

static void put_lease(struct stage *s, const char *renewed)
{
	fake_stage_put_lease(&s->api, "n", renewed);
}

static void put_fence(struct stage *s, const char *status)
{
	char text[500];

	snprintf(text, sizeof(text),
		 "{'metadata':{'name':'n','uid':'f','resourceVersion':'%d'},'spec':{'nodeName':'n',"
		 "'nodeUID':'u','epoch':3,'lease':'" LEASE_A "'}%s}",
		 ++s->api.version, status);
	fake_stage_put(&s->api, &api_kind_NodeFence, text);
	fake_stage_settle(&s->api);
}

static void begin(struct stage *s)
{
	static const struct api_kind *const kinds[] = {&api_kind_Node, &api_kind_Lease,
						       &api_kind_NodeFence, &api_kind_FerryConfig};

	memset(s, 0, sizeof(*s));
	fake_stage_init(&s->api, LOOP_VIRTUAL, kinds, ARRAY_SIZE(kinds));
	fake_stage_put(
		&s->api, &api_kind_FerryConfig,
		"{'metadata':{'name':'ferry','uid':'c','resourceVersion':'1'},'spec':{'fencing':'Agent',"
		"'fenceAgent':{'program':'plug','silenceSeconds':10,'timeoutSeconds':7}}}");
	fake_stage_put(
		&s->api, &api_kind_Node,
		"{'metadata':{'name':'n','uid':'u','resourceVersion':'1'},'status':{'addresses':[{"
		"'type':'InternalIP','address':'192.0.2.7'}]}}");
	assert_int_equal(
		fencer_new(&s->fencer, s->api.loop, s->api.kube, s->api.cache, &ops, s, NULL),
		RC_OK);
	put_lease(s, LEASE_A);
}

static void end(struct stage *s)
{
	fencer_free(s->fencer);
	fake_stage_fini(&s->api);
}

#define STATUS_PATH "PATCH /apis/ferry.dev/v1alpha1/nodefences/n/status"

/* The write that is open says this; it is stored. */
static void expect_write(struct stage *s, const char *state, int attempts, int version)
{
	struct fake_op *op = fake_find(&s->api.fake, STATUS_PATH);
	char text[64];

	snprintf(text, sizeof(text), "\"state\":\"%s\"", state);
	assert_non_null(strstr(op->body, text));
	snprintf(text, sizeof(text), "\"resourceVersion\":\"%d\"", version);
	assert_non_null(strstr(op->body, text));
	assert_non_null(strstr(op->body, "\"epoch\":3"));
	char now[32], status[200];

	time_rfc3339(loop_realtime(s->api.loop), now);
	snprintf(status, sizeof(status),
		 ",'status':{'epoch':3,'state':'%s','attempts':%d,'endTime':'%s'}", state, attempts,
		 now);
	put_fence(s, status);
	fake_answer(op, 200, "{\"kind\":\"NodeFence\",\"metadata\":{\"resourceVersion\":\"%d\"}}",
		    s->api.version);
	fake_stage_settle(&s->api);
}

static void a_run_is_recorded_before_and_after(void **state)
{
	struct stage s;

	(void)state;
	begin(&s);
	put_fence(&s, "");
	fake_stage_wait(&s.api, 9 * USEC_PER_SEC);
	assert_int_equal(fake_open(&s.api.fake), 0); /* its own clock has not seen enough silence */
	fake_stage_wait(&s.api, USEC_PER_SEC);
	fake_stage_answer_lease(&s.api, "n", LEASE_A);
	assert_int_equal(s.starts, 0);
	expect_write(&s, "Running", 1, 2);
	assert_int_equal(s.starts, 1);
	assert_string_equal(s.job.node, "n");
	assert_string_equal(s.job.program, "plug");
	assert_string_equal(s.job.address, "192.0.2.7");
	assert_int_equal(s.job.epoch, 3);
	assert_int_equal(s.job.timeout, 7 * USEC_PER_SEC);
	fake_stage_wait(&s.api, 5 * USEC_PER_SEC);
	assert_int_equal(fake_open(&s.api.fake), 0); /* one at a time */
	s.done(0, "off", s.arg);
	fake_stage_settle(&s.api);
	assert_int_equal(s.frees, 1);
	/* the answer gets lost: written again until it is there */
	fake_fail(fake_find(&s.api.fake, STATUS_PATH), RC_TIMEOUT);
	fake_stage_wait(&s.api, USEC_PER_SEC);
	expect_write(&s, "Proven", 1, 3);
	fake_stage_wait(&s.api, 3600 * USEC_PER_SEC);
	assert_int_equal(fake_open(&s.api.fake), 0);
	assert_int_equal(s.starts, 1);
	end(&s);
}

static void a_node_that_is_heard_of_is_left_alone(void **state)
{
	struct stage s;

	(void)state;
	begin(&s);
	put_fence(&s, "");
	fake_stage_wait(&s.api, 9 * USEC_PER_SEC);
	put_lease(&s, LEASE_B); /* the record is about another silence now */
	fake_stage_wait(&s.api, 3600 * USEC_PER_SEC);
	assert_int_equal(fake_open(&s.api.fake), 0);
	end(&s);

	begin(&s);
	put_fence(&s, "");
	fake_stage_wait(&s.api, 10 * USEC_PER_SEC);
	fake_stage_answer_lease(&s.api, "n",
				LEASE_B); /* it was renewed, and the watch does not tell */
	expect_write(&s, "Withdrawn", 1, 2);
	assert_int_equal(s.starts, 0);
	end(&s);
}

/* The API server was away: nothing was heard of anybody.  Who is late to be heard of again is not dead. */
static void a_silence_of_all_counts_for_nobody(void **state)
{
	struct stage s;
	char renewed[40];

	(void)state;
	begin(&s);
	fake_stage_put_lease(&s.api, "other", LEASE_A);
	put_fence(&s, "");
	fake_stage_wait(&s.api, 9 * USEC_PER_SEC);
	for (int i = 0; i < 5; i++) {
		snprintf(renewed, sizeof(renewed), "2026-01-01T00:01:%02d.000000Z", i);
		fake_stage_put_lease(&s.api, "other", renewed);
		fake_stage_wait(&s.api, 1900 * USEC_PER_MSEC);
		assert_int_equal(fake_open(&s.api.fake), 0);
	}
	fake_stage_put_lease(&s.api, "other", LEASE_B);
	fake_stage_wait(&s.api, USEC_PER_SEC);
	fake_stage_answer_lease(&s.api, "n", LEASE_A);
	expect_write(&s, "Running", 1, 3);
	end(&s);
}

#define CONFLICT "{\"kind\":\"Status\",\"reason\":\"Conflict\",\"message\":\"no\",\"code\":409}"

static void who_is_not_first_in_the_record_does_not_run(void **state)
{
	struct stage s;

	(void)state;
	begin(&s);
	put_fence(&s, "");
	fake_stage_wait(&s.api, 10 * USEC_PER_SEC);
	fake_stage_answer_lease(&s.api, "n", LEASE_A);
	fake_answer(fake_find(&s.api.fake, STATUS_PATH), 409, CONFLICT);
	fake_stage_settle(&s.api);
	assert_int_equal(s.starts, 0);
	/* and an outcome that nobody waits for any more is dropped */
	fake_stage_wait(&s.api, USEC_PER_SEC);
	fake_stage_answer_lease(&s.api, "n", LEASE_A);
	expect_write(&s, "Running", 1, 2);
	s.done(0, "off", s.arg);
	fake_stage_settle(&s.api);
	fake_answer(fake_find(&s.api.fake, STATUS_PATH), 409, CONFLICT);
	fake_stage_settle(&s.api);
	assert_int_equal(fake_open(&s.api.fake), 0);
	end(&s);
}

static void a_failure_is_tried_again_and_a_crash_too(void **state)
{
	struct stage s;

	(void)state;
	begin(&s);
	/* what the fencer before this one had begun */
	put_fence(&s, ",'status':{'epoch':3,'state':'Running','attempts':1}");
	fake_stage_wait(&s.api, 10 * USEC_PER_SEC);
	fake_stage_answer_lease(&s.api, "n", LEASE_A);
	expect_write(&s, "Running", 2, 2);
	s.done(4, "no contact", s.arg);
	fake_stage_settle(&s.api);
	struct fake_op *op = fake_find(&s.api.fake, STATUS_PATH);

	assert_non_null(strstr(op->body, "\"attempts\":2"));
	assert_non_null(strstr(op->body, "\"exitCode\":4"));
	assert_non_null(strstr(op->body, "no contact"));
	expect_write(&s, "Failed", 2, 3);
	fake_stage_wait(&s.api, 8 * USEC_PER_SEC);
	assert_int_equal(fake_open(&s.api.fake), 0);
	fake_stage_wait(&s.api, 3 * USEC_PER_SEC);
	fake_stage_answer_lease(&s.api, "n", LEASE_A);
	expect_write(&s, "Running", 3, 4);
	end(&s); /* in the middle of a run */
	assert_int_equal(s.starts, 2);
	assert_int_equal(s.frees, 2);
}

/* ---- the program ---- */

struct outcome {
	struct loop *loop;
	bool over;
	int code;
	char text[500];
};

static void on_outcome(int code, const char *text, void *arg)
{
	struct outcome *o = arg;

	o->over = true;
	o->code = code;
	snprintf(o->text, sizeof(o->text), "%s", text);
	loop_quit(o->loop, 0);
}

static char folder[] = "/tmp/ferry-fence-XXXXXX";

static void add_program(const char *name, const char *script, mode_t mode)
{
	CLEANUP(mem_freep) char *path = mem_printf("%s/%s", folder, name);
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fprintf(f, "#!/bin/sh\n%s\n", script);
	fclose(f);
	assert_int_equal(chmod(path, mode), 0);
}

static enum rc run_program(const char *name, struct outcome *o, struct err *err)
{
	struct fence_exec x = {.loop = o->loop, .folder = folder};
	const struct fence_job job = {.program = name,
				      .node = "node-7",
				      .address = "192.0.2.7",
				      .epoch = 5,
				      .timeout = USEC_PER_SEC};
	void *op = NULL;
	enum rc rc = fence_exec_ops.start(&x, &job, on_outcome, o, &op, err);
	int code;

	if (rc)
		return rc;
	assert_int_equal(loop_run(o->loop, &code, NULL), RC_OK);
	assert_true(o->over);
	fence_exec_ops.free(op);
	return RC_OK;
}

static void the_exit_code_is_what_counts(void **state)
{
	static const struct {
		const char *script;
		int code;
		const char *text;
	} rows[] = {
		{"echo $1 $FERRY_NODE $FERRY_NODE_ADDRESS $FERRY_FENCE_EPOCH; exit 0", 0,
		 "node-7 node-7 192.0.2.7 5"},
		{"echo it is off; echo no contact >&2; exit 3", 3, "it is off no contact"},
		{"kill -9 $$", -1, "killed by signal 9"},
		{"sleep 60 & sleep 60; exit 0", -1, "it took too long and was killed"},
		{"sleep 60 & exit 0", 0, ""}, /* who holds the pipe does not hold us */
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct outcome o = {0};
		struct err err = {0};

		assert_int_equal(loop_new(&o.loop, LOOP_REAL, NULL), RC_OK);
		add_program("plug", rows[i].script, 0755);
		if (run_program("plug", &o, &err))
			fail_msg("%s", err.msg);
		assert_int_equal(o.code, rows[i].code);
		assert_string_equal(o.text, rows[i].text);
		loop_free(o.loop);
	}
}

static void only_programs_of_the_folder_that_nobody_else_writes_are_run(void **state)
{
	static const struct {
		const char *name;
		enum rc rc;
		const char *why;
	} rows[] = {
		{"../../bin/true", RC_INVALID, "is no name of a file"},
		{".hidden", RC_INVALID, "is no name of a file"},
		{"absent", RC_NOT_FOUND, "cannot find the fence agent"},
		{"plain", RC_INVALID, "is no program"},
		{"shared", RC_FORBIDDEN, "can be written by others"},
	};
	struct outcome o = {0};

	(void)state;
	assert_int_equal(loop_new(&o.loop, LOOP_REAL, NULL), RC_OK);
	add_program("plain", "exit 0", 0644);
	add_program("shared", "exit 0", 0775);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct err err = {0};

		assert_int_equal(run_program(rows[i].name, &o, &err), rows[i].rc);
		assert_non_null(strstr(err.msg, rows[i].why));
	}
	loop_free(o.loop);
}

static int make_folder(void **state)
{
	(void)state;
	return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
	static const char *const names[] = {"plug", "plain", "shared"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		CLEANUP(mem_freep) char *path = mem_printf("%s/%s", folder, names[i]);

		(void)unlink(path);
	}
	return rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_run_is_recorded_before_and_after),
		cmocka_unit_test(a_node_that_is_heard_of_is_left_alone),
		cmocka_unit_test(a_silence_of_all_counts_for_nobody),
		cmocka_unit_test(who_is_not_first_in_the_record_does_not_run),
		cmocka_unit_test(a_failure_is_tried_again_and_a_crash_too),
		cmocka_unit_test(the_exit_code_is_what_counts),
		cmocka_unit_test(only_programs_of_the_folder_that_nobody_else_writes_are_run),
	};

	js_use_mem();
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
