/* Looking at other nodes' locks: what is asked of the disks, what is read afresh, and what is said. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../kube/fake_stage.h"
#include "api/api.h"
#include "api/gen/api_types.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "ev/ev.h"
#include "json/json.h"
#include "kube/kcache.h"
#include "kube/kobj.h"
#include "virt/node/pvdata.h"
#include "virt/node/vollock.h"
#include "virt/node/volwork.h"
#include "virt/node/witness.h"

#define LEASE_A	    "2026-01-01T00:00:00.000000Z"
#define LEASE_B	    "2026-01-01T00:00:09.000000Z"
#define LEASE_PATH  "GET /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/far"
#define STATUS_PATH "PATCH /apis/ferry.dev/v1alpha1/namespaces/t/diskwitnesses/vm/status"

static char dir[64];
static bool is_real;
static witness_ask_fn ask;

static int make_dir(void **state)
{
	char path[100];

	(void)state;
	(void)snprintf(dir, sizeof(dir), "/tmp/ferry-test-locks-XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	for (int i = 1; i <= 2; i++) {
		(void)snprintf(path, sizeof(path), "%s/f-%d", dir, i);
		if (mkdir(path, 0755))
			return -1;
		(void)snprintf(path, sizeof(path), "%s/f-%d/disk.img", dir, i);
		int fd = creat(path, 0600);

		if (fd < 0)
			return -1;
		close(fd);
	}
	return 0;
}

static int drop_dir(void **state)
{
	(void)state;
	return file_remove_tree(dir, NULL) ? -1 : 0;
}

/* What QEMU holds of a disk: shared locks on single bytes. */
static int hold(unsigned disk, off_t byte)
{
	struct flock l = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
	char path[100];

	(void)snprintf(path, sizeof(path), "%s/f-%u/disk.img", dir, disk);
	int fd = open(path, O_RDWR | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(fcntl(fd, F_OFD_SETLK, &l), 0);
	return fd;
}

/* ---- one disk ---- */

static void any_byte_of_qemus_is_seen_and_refuses(void **state)
{
	static const off_t bytes[] = {100, 101, 163, 200, 201, 263};
	const struct vollock d = {.root = dir, .path = "f-1/disk.img"};
	bool is_held;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bytes); i++) {
		int fd = hold(1, bytes[i]);

		assert_int_equal(vollock_look(&d, &is_held, NULL), RC_OK);
		assert_true(is_held);
		assert_int_equal(vollock_take(&d, &is_held, NULL), RC_OK);
		assert_true(is_held);
		close(fd);
		assert_int_equal(vollock_look(&d, &is_held, NULL), RC_OK);
		assert_false(is_held);
		assert_int_equal(vollock_take(&d, &is_held, NULL), RC_OK);
		assert_false(is_held);
	}
	/* nothing is kept */
	assert_int_equal(vollock_look(&d, &is_held, NULL), RC_OK);
	assert_false(is_held);
	int fd = hold(1, 99);

	assert_int_equal(vollock_take(&d, &is_held, NULL), RC_OK);
	assert_false(is_held);
	close(fd);
}

static void what_is_no_plain_file_of_the_folder_is_refused(void **state)
{
	char link[100], fifo[100];
	struct err err = {0};
	bool is_held;

	(void)state;
	(void)snprintf(link, sizeof(link), "%s/link", dir);
	(void)snprintf(fifo, sizeof(fifo), "%s/fifo", dir);
	assert_int_equal(symlink("f-1/disk.img", link), 0);
	assert_int_equal(mkfifo(fifo, 0600), 0);
	const char *const paths[] = {"none", "link", "fifo", "../etc/passwd", "f-1"};

	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		const struct vollock d = {.root = dir, .path = paths[i]};

		assert_int_not_equal(vollock_look(&d, &is_held, &err), RC_OK);
		assert_int_not_equal(vollock_take(&d, &is_held, &err), RC_OK);
	}
	assert_int_equal(unlink(link), 0);
	assert_int_equal(unlink(fifo), 0);
}

/* ---- a witness and a scripted server ---- */

struct stage {
	struct fake_stage api;
	struct volwork *volwork;
	struct witness *witness;
};

static void put_volume(struct stage *s, const char *claim, const char *folder)
{
	char text[500];

	(void)snprintf(
		text, sizeof(text),
		"{'metadata':{'name':'pv-%s','uid':'%s','resourceVersion':'1'},'spec':{'csi':{"
		"'driver':'ferry.dev/shared','volumeHandle':'h','volumeAttributes':{'path':'%s'"
		"}},'claimRef':{'namespace':'t','name':'%s'}},'status':{'phase':'Bound'}}",
		claim, claim, folder, claim);
	fake_stage_put(&s->api, &api_kind_PersistentVolume, text);
}

static void begin_at(struct stage *s, const char *shared)
{
	static const struct api_kind *const kinds[] = {
		&api_kind_DiskWitness, &api_kind_VirtualMachineInstance, &api_kind_PersistentVolume,
		&api_kind_FerryConfig};

	memset(s, 0, sizeof(*s));
	fake_stage_init(&s->api, is_real ? LOOP_REAL : LOOP_VIRTUAL, kinds, ARRAY_SIZE(kinds));
	assert_int_equal(pvdata_index(s->api.cache, NULL), RC_OK);
	const struct volwork_config vc = {
		.loop = s->api.loop, .node_name = "near", .shared_dir = shared};
	struct witness_config wc = {.loop = s->api.loop,
				    .kube = s->api.kube,
				    .cache = s->api.cache,
				    .node_name = "near",
				    .shared_dir = shared,
				    .retry = USEC_PER_SEC,
				    .late_after = is_real ? 20 * USEC_PER_MSEC : 0,
				    .ask = ask};

	assert_int_equal(volwork_new(&s->volwork, &vc, NULL), RC_OK);
	wc.volwork = s->volwork;
	assert_int_equal(witness_new(&s->witness, &wc, NULL), RC_OK);
	fake_stage_put(
		&s->api, &api_kind_VirtualMachineInstance,
		"{'metadata':{'namespace':'t','name':'vm','uid':'vmi','resourceVersion':'1'},'spec':{"
		"'volumes':[{'name':'a','persistentVolumeClaim':{'claimName':'ca'}},{'name':'b',"
		"'persistentVolumeClaim':{'claimName':'cb'}}]}}");
	put_volume(s, "ca", "f-1");
	put_volume(s, "cb", "f-2");
}

static void begin(struct stage *s)
{
	begin_at(s, dir);
}

static void end(struct stage *s)
{
	witness_free(s->witness);
	volwork_free(s->volwork);
	fake_stage_fini(&s->api);
}

/* status NULL: no answer yet. */
static void put_record(struct stage *s, int epoch, const char *more, struct json *status)
{
	CLEANUP(js_unrefp) struct json *j = NULL;
	struct kobj *o = NULL;
	struct err err = {0};
	char text[700];

	(void)snprintf(text, sizeof(text),
		       "{'metadata':{'namespace':'t','name':'vm','uid':'w','resourceVersion':'%d'},"
		       "'spec':{'vmiUID':'vmi','podUID':'p','nodeName':'far','disks':['a','b'],"
		       "'epoch':%d%s}}",
		       ++s->api.version, epoch, more);
	for (char *p = text; *p; p++)
		if (*p == '\'')
			*p = '"';
	if (js_parse(text, strlen(text), &j, &err) || (status && js_set(j, "status", status)) ||
	    kobj_decode(&o, &api_kind_DiskWitness, j, &err) || kcache_put(s->api.cache, o, &err))
		fail_msg("%s in %s", err.msg, text);
	fake_stage_settle(&s->api);
}

#define LOOK ",'witness':'near'"
#define TAKE LOOK ",'lease':'" LEASE_A "'"
#define ELSE ",'witness':'else'"

/* The write that is open says this; it is stored and answered. */
static void expect(struct stage *s, int epoch, const char *more, const char *state,
		   const char *disk, const char *words)
{
	struct fake_op *op = fake_find(&s->api.fake, STATUS_PATH);
	char text[400];

	(void)snprintf(text, sizeof(text), "\"state\":\"%s\"", state);
	assert_non_null(strstr(op->body, text));
	(void)snprintf(text, sizeof(text), "\"disk\":\"%s\"", disk);
	assert_non_null(strstr(op->body, text));
	(void)snprintf(text, sizeof(text), "\"epoch\":%d", epoch);
	assert_non_null(strstr(op->body, text));
	(void)snprintf(text, sizeof(text), "\"resourceVersion\":\"%d\"", s->api.version);
	assert_non_null(strstr(op->body, text));
	assert_non_null(strstr(op->body, words));
	CLEANUP(js_unrefp) struct json *j = NULL;

	assert_int_equal(js_parse(op->body, strlen(op->body), &j, NULL), RC_OK);
	put_record(s, epoch, more, js_copy(js_get(j, "status")));
	fake_answer(op, 200, "{\"kind\":\"DiskWitness\",\"metadata\":{\"resourceVersion\":\"%d\"}}",
		    s->api.version);
	fake_stage_settle(&s->api);
}

static void held_is_said_when_each_disk_is(void **state)
{
	struct stage s;

	(void)state;
	begin(&s);
	int a = hold(1, 101);

	put_record(&s, 1, LOOK, NULL);
	expect(&s, 1, LOOK, "Free", "b", "is not locked, or its storage does not show the locks");
	int b = hold(2, 201);

	fake_stage_wait(&s.api, 2 * USEC_PER_SEC);
	expect(&s, 1, LOOK, "Held", "", "all its disks are locked");
	/* that is all that was wanted */
	close(a);
	fake_stage_wait(&s.api, 60 * USEC_PER_SEC);
	assert_int_equal(fake_open(&s.api.fake), 0);
	close(b);
	end(&s);
}

static void taken_is_said_when_all_are_and_the_lease_is_the_same(void **state)
{
	struct stage s;

	(void)state;
	begin(&s);
	int b = hold(2, 100);

	put_record(&s, 2, TAKE, NULL);
	expect(&s, 2, TAKE, "Held", "b", "is locked");
	/* the same again is no news */
	fake_stage_wait(&s.api, 3 * USEC_PER_SEC);
	assert_int_equal(fake_open(&s.api.fake), 0);
	close(b);
	fake_stage_wait(&s.api, 2 * USEC_PER_SEC);
	fake_answer(fake_find(&s.api.fake, LEASE_PATH), 500,
		    "{\"kind\":\"Status\",\"message\":\"no\"}");
	fake_stage_settle(&s.api);
	expect(&s, 2, TAKE, "Unknown", "", "the lease of its node cannot be read");
	fake_stage_wait(&s.api, 2 * USEC_PER_SEC);
	fake_stage_answer_lease(&s.api, "far", LEASE_B);
	expect(&s, 2, TAKE, "Unknown", "", "its node was heard of again");
	fake_stage_wait(&s.api, 2 * USEC_PER_SEC);
	fake_stage_answer_lease(&s.api, "far", LEASE_A);
	expect(&s, 2, TAKE, "Free", "", "the locks of all its disks were taken");
	fake_stage_wait(&s.api, 60 * USEC_PER_SEC);
	assert_int_equal(fake_open(&s.api.fake), 0);
	end(&s);
}

/* A word about the question before never gets into the record of the next. */
static void a_question_that_changed_is_begun_anew(void **state)
{
	struct stage s;

	(void)state;
	begin(&s);
	put_record(&s, 2, TAKE, NULL);
	struct fake_op *lease = fake_find(&s.api.fake, LEASE_PATH);

	put_record(&s, 3, LOOK, NULL);
	fake_answer(lease, 200, "{\"kind\":\"Lease\",\"spec\":{\"renewTime\":\"" LEASE_A "\"}}");
	fake_stage_settle(&s.api);
	expect(&s, 3, LOOK, "Free", "a", "is not locked");
	/* nor does a write that comes too late */
	put_record(&s, 4, TAKE, NULL);
	fake_stage_answer_lease(&s.api, "far", LEASE_A);
	struct fake_op *op = fake_find(&s.api.fake, STATUS_PATH);

	put_record(&s, 5, TAKE, NULL);
	fake_answer(op, 409, "{\"kind\":\"Status\",\"reason\":\"Conflict\"}");
	fake_stage_settle(&s.api);
	fake_stage_answer_lease(&s.api, "far", LEASE_A);
	expect(&s, 5, TAKE, "Free", "", "were taken");
	end(&s);
}

static void what_cannot_be_written_is_found_and_told_again(void **state)
{
	struct stage s;

	(void)state;
	begin(&s);
	put_record(&s, 2, TAKE, NULL);
	fake_stage_answer_lease(&s.api, "far", LEASE_A);
	fake_fail(fake_find(&s.api.fake, STATUS_PATH), RC_TIMEOUT);
	fake_stage_settle(&s.api);
	int a = hold(1, 100); /* it is there again meanwhile */

	fake_stage_wait(&s.api, 2 * USEC_PER_SEC);
	expect(&s, 2, TAKE, "Held", "a", "is locked");
	close(a);
	end(&s);
}

static void what_cannot_be_asked_is_said(void **state)
{
	struct stage s;

	(void)state;
	begin(&s);
	put_volume(&s, "cb", "missing");
	int a = hold(1, 100);

	put_record(&s, 1, LOOK, NULL);
	expect(&s, 1, LOOK, "Unknown", "b", "missing");
	fake_stage_put(
		&s.api, &api_kind_VirtualMachineInstance,
		"{'metadata':{'namespace':'t','name':'vm','uid':'other','resourceVersion':'2'}}");
	put_record(&s, 2, TAKE, NULL);
	expect(&s, 2, TAKE, "Unknown", "", "the VM is not known to node 'near' yet");
	close(a);
	end(&s);
	begin_at(&s, NULL);
	put_record(&s, 1, TAKE, NULL);
	expect(&s, 1, TAKE, "Unknown", "", "has no storage of class 'shared'");
	end(&s);
}

static void a_shared_file_of_the_nodes_is_asked_too(void **state)
{
	struct stage s;
	char text[500];

	(void)state;
	begin(&s);
	(void)snprintf(
		text, sizeof(text),
		"{'metadata':{'namespace':'t','name':'vm','uid':'vmi','resourceVersion':'2'},"
		"'spec':{'volumes':[{'name':'a','hostDisk':{'path':'%s/f-1/disk.img','type':"
		"'Disk','shared':true}},{'name':'b','hostDisk':{'path':'%s/f-2/disk.img','type':"
		"'Disk','shared':true}}]}}",
		dir, dir);
	fake_stage_put(&s.api, &api_kind_VirtualMachineInstance, text);
	int a = hold(1, 100), b = hold(2, 100);

	put_record(&s, 1, LOOK, NULL);
	expect(&s, 1, LOOK, "Unknown", "", "is not below a folder that");
	(void)snprintf(text, sizeof(text),
		       "{'metadata':{'name':'ferry','uid':'c','resourceVersion':'1'},'spec':{"
		       "'hostDiskPaths':['%s']}}",
		       dir);
	fake_stage_put(&s.api, &api_kind_FerryConfig, text);
	fake_stage_wait(&s.api, 2 * USEC_PER_SEC);
	expect(&s, 1, LOOK, "Held", "", "all its disks are locked");
	close(a);
	close(b);
	end(&s);
}

/* ---- storage that hangs ---- */

static sem_t until;

static enum rc hang(const struct vollock *d, bool takes, bool *is_held, void *arg, struct err *err)
{
	(void)d;
	(void)takes;
	(void)arg;
	(void)err;
	while (sem_wait(&until) < 0)
		;
	*is_held = true;
	return RC_OK;
}

static void nothing(void *arg)
{
	(void)arg;
}

static void on_time(void *arg)
{
	*(bool *)arg = true;
}

static struct fake_op *wait_for_write(struct stage *s)
{
	while (!fake_open(&s->api.fake))
		assert_int_equal(loop_step(s->api.loop, USEC_INFINITY, NULL, NULL), RC_OK);
	return fake_find(&s->api.fake, STATUS_PATH);
}

/* Real time, since the pool has threads on a real loop only. */
static void storage_that_hangs_is_said_to_and_waited_for(void **state)
{
	struct stage s;

	(void)state;
	assert_int_equal(sem_init(&until, 0, 0), 0);
	is_real = true;
	ask = hang;
	begin(&s);
	ask = NULL;
	is_real = false;
	put_record(&s, 1, LOOK, NULL);
	struct fake_op *op = wait_for_write(&s);

	assert_non_null(strstr(op->body, "\"state\":\"Unknown\""));
	assert_non_null(strstr(op->body, "the storage of the disk does not answer"));
	fake_answer(op, 200, "{}");
	assert_int_equal(sem_post(&until), 0);
	assert_int_equal(sem_post(&until), 0);
	op = wait_for_write(&s);
	assert_non_null(strstr(op->body, "\"state\":\"Held\""));
	fake_fail(op, RC_CLOSED);
	/* one that is freed while the pool is at it */
	put_record(&s, 2, LOOK, NULL);
	s.witness = witness_free(s.witness);
	bool over = false;

	assert_int_equal(volwork_run(s.volwork, dir, nothing, on_time, &over, NULL), RC_OK);
	assert_int_equal(sem_post(&until), 0);
	while (!over)
		assert_int_equal(loop_step(s.api.loop, USEC_INFINITY, NULL, NULL), RC_OK);
	pool_end(s.api.loop);
	end(&s);
	assert_int_equal(sem_destroy(&until), 0);
}

static void records_of_others_are_left_alone(void **state)
{
	struct stage s;

	(void)state;
	begin(&s);
	put_record(&s, 1, ELSE, NULL);
	fake_stage_wait(&s.api, 60 * USEC_PER_SEC);
	assert_int_equal(fake_open(&s.api.fake), 0);
	/* it becomes this node's, another's, and goes */
	put_record(&s, 2, LOOK, NULL);
	assert_non_null(fake_find(&s.api.fake, STATUS_PATH));
	put_record(&s, 3, ELSE, NULL);
	fake_fail(fake_find(&s.api.fake, STATUS_PATH), RC_FORBIDDEN);
	fake_stage_settle(&s.api);
	fake_stage_wait(&s.api, 60 * USEC_PER_SEC);
	assert_int_equal(fake_open(&s.api.fake), 0);
	put_record(&s, 4, LOOK, NULL);
	kcache_remove(s.api.cache, &api_kind_DiskWitness, "t", "vm");
	fake_stage_settle(&s.api);
	end(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_byte_of_qemus_is_seen_and_refuses),
		cmocka_unit_test(what_is_no_plain_file_of_the_folder_is_refused),
		cmocka_unit_test(held_is_said_when_each_disk_is),
		cmocka_unit_test(taken_is_said_when_all_are_and_the_lease_is_the_same),
		cmocka_unit_test(a_question_that_changed_is_begun_anew),
		cmocka_unit_test(what_cannot_be_written_is_found_and_told_again),
		cmocka_unit_test(what_cannot_be_asked_is_said),
		cmocka_unit_test(a_shared_file_of_the_nodes_is_asked_too),
		cmocka_unit_test(storage_that_hangs_is_said_to_and_waited_for),
		cmocka_unit_test(records_of_others_are_left_alone),
	};

	return cmocka_run_group_tests(tests, make_dir, drop_dir);
}
