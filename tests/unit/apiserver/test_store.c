/* The store against a model: random histories, reopened files, processes killed in mid-commit. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "cluster/apiserver/store.h"
#include "ev/ev.h"
#include "json/json.h"
#include "lib/torture.h"

enum { KEYS = 12, MAX_REVS = 4000 };

/* What one key looked like after each revision of the run: 0 = absent, else the value. */
struct model {
	int64_t rev_at[MAX_REVS];
	int value[MAX_REVS][KEYS];
	int n;
};

struct fix {
	struct loop *loop;
	struct store *s;
	char dir[64];
	char path[96];
	struct model *m;
	uint64_t seed;
	int acks, fails;
};

static uint64_t rnd(struct fix *f)
{
	f->seed ^= f->seed << 13;
	f->seed ^= f->seed >> 7;
	f->seed ^= f->seed << 17;
	return f->seed;
}

static struct json *body(int value)
{
	return js_pack("{s:{s:s}, s:i}", "metadata", "name", "x", "value", value);
}

static void key_of(int k, char *out, size_t n)
{
	/* Two tables, two namespaces: prefixes and neighbours matter. */
	snprintf(out, n, "%s/%s/obj-%02d", k % 3 ? "pods" : "virtualmachines.kubevirt.io",
		 k % 2 ? "default" : "default-2", k);
}

static int value_of(struct obj *o)
{
	CLEANUP(js_unrefp) struct json *j = obj_json(o);
	char rv[32];

	snprintf(rv, sizeof(rv), "%lld", (long long)obj_rev(o));
	assert_string_equal(js_str(js_at(j, "metadata", "resourceVersion", NULL)), rv);
	return (int)js_get_int(j, "value", -1);
}

static void on_done(void *arg, enum rc rc, struct obj *o, const struct err *err)
{
	struct fix *f = arg;

	(void)err;
	if (rc) {
		f->fails++;
		return;
	}
	assert_non_null(o);
	assert_true(obj_rev(o) <= store_rev(f->s));
	f->acks++;
}

static void settle(struct fix *f)
{
	while (!store_is_idle(f->s))
		assert_int_equal(loop_step(f->loop, USEC_PER_SEC, NULL, NULL), RC_OK);
}

/* One random legal or illegal write; the model takes what must succeed. */
static void random_write(struct fix *f)
{
	struct model *m = f->m;
	int k = (int)(rnd(f) % KEYS), v = 1 + (int)(rnd(f) % 1000);
	int now = m->n ? m->value[m->n - 1][k] : 0;
	char key[96];
	struct err err = {0};

	key_of(k, key, sizeof(key));
	struct obj *cur = store_newest(f->s, key);

	assert_int_equal(cur ? value_of(cur) : 0, now);
	enum store_op op = rnd(f) % 3;
	int64_t expect = cur ? obj_rev(cur) : 0;
	bool stale = rnd(f) % 8 == 0;

	if (stale && expect)
		expect--;
	enum rc want = op == STORE_CREATE ? (cur ? RC_EXISTS : RC_OK)
		       : !cur		  ? RC_NOT_FOUND
		       : stale		  ? RC_CONFLICT
					  : RC_OK;
	enum rc rc = store_write(f->s, op, key, op == STORE_CREATE ? 0 : expect,
				 body(op == STORE_DELETE ? now : v), on_done, f, NULL, &err);

	assert_int_equal(rc, want);
	if (rc)
		return;
	assert_true(m->n < MAX_REVS);
	if (m->n)
		memcpy(m->value[m->n], m->value[m->n - 1], sizeof(m->value[0]));
	else
		memset(m->value[0], 0, sizeof(m->value[0]));
	m->value[m->n][k] = op == STORE_DELETE ? 0 : v;
	m->rev_at[m->n] = obj_rev(store_newest(f->s, key) ? store_newest(f->s, key) : cur);
	if (op == STORE_DELETE)
		m->rev_at[m->n] = m->n ? m->rev_at[m->n - 1] + 1 : 1;
	if (m->n)
		assert_true(m->rev_at[m->n] > m->rev_at[m->n - 1]);
	m->n++;
}

static int model_index(struct model *m, int64_t rev)
{
	int i = m->n - 1;

	while (i >= 0 && m->rev_at[i] > rev)
		i--;
	return i;
}

static void check_list_at(struct fix *f, int64_t rev, size_t limit)
{
	static const char *const tables[] = {"pods", "virtualmachines.kubevirt.io"};
	int seen[KEYS] = {0}, at = model_index(f->m, rev ? rev : store_rev(f->s));

	for (size_t t = 0; t < 2; t++) {
		char after[96] = "";
		bool more = true;

		while (more) {
			struct obj_list l = {0};
			struct store_page p = {.table = tables[t],
					       .rev = rev,
					       .limit = limit,
					       .after = *after ? after : NULL};
			struct err err = {0};

			assert_int_equal(store_list(f->s, &p, &l, &more, NULL, &err), RC_OK);
			for (size_t i = 0; i < l.n; i++) {
				int k = atoi(strrchr(obj_key(l.items[i]), '-') + 1);

				assert_true(strcmp(obj_rest(l.items[i]), after) > 0);
				snprintf(after, sizeof(after), "%s", obj_rest(l.items[i]));
				seen[k] = value_of(l.items[i]);
			}
			obj_list_fini(&l);
		}
	}
	for (int k = 0; k < KEYS; k++)
		assert_int_equal(seen[k], at < 0 ? 0 : f->m->value[at][k]);
}

struct follower {
	struct fix *f;
	int value[KEYS];
	int64_t last;
};

static void follow(void *arg, const struct store_event *ev)
{
	struct follower *w = arg;
	int k = atoi(strrchr(obj_key(ev->obj), '-') + 1);

	assert_true(ev->rev > w->last);
	w->last = ev->rev;
	assert_int_equal(ev->prev ? value_of(ev->prev) : 0, w->value[k]);
	assert_int_equal(ev->type, ev->type == STORE_DELETED ? STORE_DELETED
				   : ev->prev		     ? STORE_MODIFIED
							     : STORE_ADDED);
	w->value[k] = ev->type == STORE_DELETED ? 0 : value_of(ev->obj);
}

/* A watch that starts at any remembered revision sees every later change, in order, and ends with the
 * present state. */
static void check_replay(struct fix *f, int64_t rev)
{
	static const char *const tables[] = {"pods", "virtualmachines.kubevirt.io"};
	int at = model_index(f->m, rev);
	struct err err = {0};

	for (size_t t = 0; t < 2; t++) {
		struct follower w = {.f = f, .last = rev};

		if (at >= 0)
			memcpy(w.value, f->m->value[at], sizeof(w.value));
		assert_int_equal(store_replay(f->s, tables[t], rev, follow, &w, &err), RC_OK);
		for (int k = 0; k < KEYS; k++)
			if ((k % 3 ? 0u : 1u) == t)
				assert_int_equal(w.value[k], f->m->value[f->m->n - 1][k]);
	}
}

static void check_all(struct fix *f)
{
	struct err err = {0};

	check_list_at(f, 0, 0);
	check_list_at(f, 0, 2);
	for (int i = 0; i < 8; i++) {
		int64_t span = store_rev(f->s) - store_oldest(f->s);
		int64_t rev =
			store_oldest(f->s) + (span ? (int64_t)(rnd(f) % (uint64_t)(span + 1)) : 0);

		if (rev == 0)
			continue;
		check_list_at(f, rev, rnd(f) % 4);
		check_replay(f, rev);
	}
	if (store_oldest(f->s) > 0)
		assert_int_equal(
			store_replay(f->s, "pods", store_oldest(f->s) - 1, follow, NULL, &err),
			RC_EXPIRED);
	assert_int_equal(store_replay(f->s, "pods", store_rev(f->s) + 1, follow, NULL, &err),
			 RC_INVALID);
}

static void open_store(struct fix *f, size_t ring)
{
	struct store_opts o = {
		.path = f->path[0] ? f->path : NULL, .ring_events = ring, .json_cache = 4};
	struct err err = {0};

	if (store_open(&f->s, f->loop, &o, &err))
		fail_msg("%s", err.msg);
}

static void fix_up(struct fix *f, bool file, uint64_t seed)
{
	struct err err = {0};

	memset(f, 0, sizeof(*f));
	f->seed = seed;
	assert_int_equal(loop_new(&f->loop, file ? LOOP_REAL : LOOP_VIRTUAL, &err), RC_OK);
	f->m = mem_alloc(sizeof(*f->m));
	assert_non_null(f->m);
	if (file) {
		snprintf(f->dir, sizeof(f->dir), "/tmp/ferry-test-store-XXXXXX");
		assert_non_null(mkdtemp(f->dir));
		snprintf(f->path, sizeof(f->path), "%s/store.db", f->dir);
	}
}

static void fix_down(struct fix *f)
{
	f->s = store_close(f->s);
	f->loop = loop_free(f->loop);
	mem_free(f->m);
	if (f->dir[0])
		assert_int_equal(file_remove_tree(f->dir, NULL), RC_OK);
}

static void memory_store_agrees_with_the_model(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 10; seed++) {
		struct fix f;

		fix_up(&f, false, seed * 7919);
		open_store(&f, 50);
		for (int i = 0; i < 600; i++) {
			random_write(&f);
			if (rnd(&f) % 5 == 0)
				settle(&f);
			if (i % 50 == 0) {
				settle(&f);
				if (f.m->n)
					check_all(&f);
			}
		}
		settle(&f);
		assert_int_equal(f.acks, f.m->n);
		fix_down(&f);
	}
	assert_int_equal(mem_live_blocks(), 0);
}

static void file_store_agrees_with_the_model_over_reopening(void **state)
{
	(void)state;
	struct fix f;

	fix_up(&f, true, 4242);
	for (int round = 0; round < 8; round++) {
		open_store(&f, round % 2 ? 40 : 90);
		if (f.m->n)
			check_all(&f);
		for (int i = 0; i < 150; i++) {
			random_write(&f);
			if (rnd(&f) % 6 == 0)
				settle(&f);
		}
		settle(&f);
		check_all(&f);
		struct store_stats st;

		store_get_stats(f.s, &st);
		assert_true(st.log_rows < 150 + KEYS + 90 * 2);
		f.s = store_close(f.s);
	}
	assert_int_equal(f.acks, f.m->n);
	assert_int_equal(f.fails, 0);
	fix_down(&f);
	assert_int_equal(mem_live_blocks(), 0);
}

static void writes_queued_during_a_commit_share_the_next_one(void **state)
{
	(void)state;
	struct fix f;
	struct store_stats st;

	fix_up(&f, true, 1);
	open_store(&f, 0);
	for (int i = 0; i < 100; i++) {
		char key[64];

		snprintf(key, sizeof(key), "pods/default/p-%d", i);
		assert_int_equal(
			store_write(f.s, STORE_CREATE, key, 0, body(i), on_done, &f, NULL, NULL),
			RC_OK);
		assert_null(store_get(f.s, key)); /* not visible before it is durable */
		assert_non_null(store_newest(f.s, key));
	}
	assert_int_equal(f.acks, 0);
	settle(&f);
	assert_int_equal(f.acks, 100);
	store_get_stats(f.s, &st);
	assert_int_equal(st.commits, 2);
	fix_down(&f);
}

static void a_second_opener_is_refused(void **state)
{
	(void)state;
	struct fix f;
	struct store *other = NULL;
	struct err err = {0};

	fix_up(&f, true, 1);
	open_store(&f, 0);
	struct store_opts o = {.path = f.path};

	assert_int_equal(store_open(&other, f.loop, &o, &err), RC_CLOSED);
	assert_null(other);
	fix_down(&f);
}

/* Writes without end and reports each acknowledged revision through a pipe. */
struct crasher {
	struct fix f;
	int fd;
	int next;
};

static void crash_done(void *arg, enum rc rc, struct obj *o, const struct err *err)
{
	struct crasher *c = arg;
	int64_t msg[2] = {obj_rev(o), value_of(o)};

	(void)err;
	if (rc || write(c->fd, msg, sizeof(msg)) != sizeof(msg))
		_exit(3);
}

static void crash_child(const char *path, int fd)
{
	struct crasher c = {.fd = fd};

	if (loop_new(&c.f.loop, LOOP_REAL, NULL))
		_exit(4);
	snprintf(c.f.path, sizeof(c.f.path), "%s", path);
	struct store_opts o = {.path = path, .ring_events = 64};

	if (store_open(&c.f.s, c.f.loop, &o, NULL))
		_exit(5);
	for (;;) {
		for (int i = 0; i < 5; i++) {
			char key[64];
			int v = ++c.next;

			snprintf(key, sizeof(key), "pods/default/k-%d", v % 50);
			struct obj *cur = store_newest(c.f.s, key);

			if (store_write(c.f.s, cur ? STORE_UPDATE : STORE_CREATE, key,
					cur ? obj_rev(cur) : 0,
					body((int)(store_rev(c.f.s) * 100) + v % 50), crash_done,
					&c, NULL, NULL))
				_exit(6);
		}
		if (loop_step(c.f.loop, USEC_PER_SEC, NULL, NULL))
			_exit(7);
	}
}

static void nothing_acknowledged_is_lost_when_killed(void **state)
{
	(void)state;
	struct fix f;
	int64_t last_acked = 0;
	static int64_t acked_rev[50];
	static int64_t acked_value[50];

	fix_up(&f, true, 99);
	for (int round = 0; round < 12; round++) {
		int fds[2];

		assert_int_equal(pipe(fds), 0);
		pid_t pid = fork();

		assert_true(pid >= 0);
		if (pid == 0) {
			close(fds[0]);
			crash_child(f.path, fds[1]);
		}
		close(fds[1]);
		int64_t msg[2], first = 0;
		int n = 0, kill_after = 20 + (int)(rnd(&f) % 200);

		while (read(fds[0], msg, sizeof(msg)) == sizeof(msg)) {
			if (!first) {
				first = msg[0];
				assert_true(first > last_acked); /* no revision twice */
			}
			assert_true(msg[0] > last_acked);
			last_acked = msg[0];
			acked_rev[msg[1] % 100 % 50] = msg[0];
			acked_value[msg[1] % 100 % 50] = msg[1];
			if (++n == kill_after)
				kill(pid, SIGKILL);
		}
		close(fds[0]);
		int status;

		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status));
		open_store(&f, 64);
		assert_true(store_rev(f.s) >= last_acked);
		for (int k = 0; k < 50; k++) {
			char key[64];

			snprintf(key, sizeof(key), "pods/default/k-%d", k);
			struct obj *o = store_get(f.s, key);

			if (!acked_rev[k])
				continue;
			assert_non_null(o);
			assert_true(obj_rev(o) >= acked_rev[k]);
			if (obj_rev(o) == acked_rev[k])
				assert_int_equal(value_of(o), acked_value[k]);
		}
		last_acked = store_rev(f.s);
		f.s = store_close(f.s);
	}
	fix_down(&f);
}

static void backup_done(void *arg, enum rc rc, const struct store_file_info *info,
			const struct err *err)
{
	struct store_file_info *out = arg;

	if (rc)
		fail_msg("%s", err->msg);
	*out = *info;
}

static void backup_opens_as_a_store(void **state)
{
	(void)state;
	struct fix f;
	char copy[128];

	fix_up(&f, true, 5);
	open_store(&f, 0);
	for (int i = 0; i < 40; i++)
		random_write(&f);
	settle(&f);
	snprintf(copy, sizeof(copy), "%s/copy.db", f.dir);
	struct store_file_info info = {0};
	struct store_backup_opts opts = {.path = copy, .done = backup_done, .arg = &info};
	struct store_backup *b = NULL;

	assert_int_equal(store_backup(f.s, &opts, &b, NULL), RC_OK);
	while (!info.rev)
		assert_int_equal(loop_step(f.loop, USEC_PER_SEC, NULL, NULL), RC_OK);
	int64_t rev = store_rev(f.s);

	assert_int_equal(info.rev, rev);
	f.s = store_close(f.s);
	snprintf(f.path, sizeof(f.path), "%s", copy);
	open_store(&f, 0);
	assert_int_equal(store_rev(f.s), rev);
	check_all(&f);
	fix_down(&f);
}

static void copy_file(const char *from, const char *to, size_t n_max)
{
	char *bytes = NULL;
	size_t n = 0;

	assert_int_equal(file_read(from, 64u << 20, &bytes, &n, NULL), RC_OK);
	assert_int_equal(file_write_durable(to, bytes, n < n_max ? n : n_max, 0600, NULL), RC_OK);
	mem_free(bytes);
}

/* The log as a crash may leave it: its tail torn off anywhere.  What opens is a state that was. */
static void a_torn_log_opens_as_an_earlier_moment(void **state)
{
	(void)state;
	struct fix f;
	char wal[128], copy[128], copy_wal[140];

	fix_up(&f, true, 77);
	open_store(&f, 0);
	for (int i = 0; i < 120; i++) {
		random_write(&f);
		if (i % 3 == 0)
			settle(&f);
	}
	settle(&f);
	snprintf(wal, sizeof(wal), "%s-wal", f.path);
	snprintf(copy, sizeof(copy), "%s/torn.db", f.dir);
	snprintf(copy_wal, sizeof(copy_wal), "%s-wal", copy);
	char *all = NULL;
	size_t n = 0;
	int64_t newest = store_rev(f.s);

	assert_int_equal(file_read(wal, 64u << 20, &all, &n, NULL), RC_OK);
	mem_free(all);
	for (int i = 0; i < 40; i++) {
		struct store_opts o = {.path = copy};
		struct store *whole = f.s;
		struct err err = {0};

		copy_file(f.path, copy, SIZE_MAX);
		copy_file(wal, copy_wal, i ? (size_t)(rnd(&f) % n) : n);
		/* Torn before the tables were made: an empty store. */
		if (store_open(&f.s, f.loop, &o, &err))
			fail_msg("%s", err.msg);
		if (i == 0)
			assert_int_equal(store_rev(f.s), newest);
		assert_true(store_rev(f.s) <= newest);
		check_list_at(&f, 0, 0);
		f.s = store_close(f.s);
		f.s = whole;
		unlink(copy);
		unlink(copy_wal);
	}
	fix_down(&f);
}

static void files_that_are_no_store_are_refused(void **state)
{
	(void)state;
	struct fix f;
	struct store *s = NULL;
	struct err err = {0};

	fix_up(&f, true, 1);
	struct store_opts o = {.path = f.path};

	assert_int_equal(file_write_durable(
				 f.path,
				 "this is no database, but long enough to be looked at by one "
				 "................................................................",
				 120, 0600, NULL),
			 RC_OK);
	assert_int_equal(store_open(&s, f.loop, &o, &err), RC_IO);
	assert_non_null(strstr(err.msg, "not a database"));
	o.path = "/nonexistent/folder/store.db";
	assert_int_equal(store_open(&s, f.loop, &o, &err), RC_IO);
	assert_null(s);
	fix_down(&f);
}

static enum rc torture_body(void)
{
	CLEANUP(loop_freep) struct loop *loop = NULL;
	CLEANUP(store_closep) struct store *s = NULL;
	enum rc rc = loop_new(&loop, LOOP_VIRTUAL, NULL);

	if (!rc)
		rc = store_open(&s, loop, NULL, NULL);
	for (int i = 0; i < 3 && !rc; i++) {
		char key[64];
		struct json *b = body(i);

		snprintf(key, sizeof(key), "pods/default/p-%d", i);
		if (!b)
			return RC_NOMEM;
		int64_t before = store_rev(s);

		rc = store_write(s, STORE_CREATE, key, 0, b, NULL, NULL, NULL, NULL);
		if (rc) {
			assert_null(store_newest(s, key));
			assert_int_equal(store_rev(s), before);
		}
		while (!rc && !store_is_idle(s))
			rc = loop_step(loop, USEC_PER_SEC, NULL, NULL);
	}
	if (!rc) {
		struct obj_list l = {0};
		struct store_page p = {.table = "pods", .rev = 1};
		bool more;

		rc = store_list(s, &p, &l, &more, NULL, NULL);
		obj_list_fini(&l);
	}
	return rc;
}

static void running_out_of_memory_loses_nothing(void **state)
{
	(void)state;
	torture(torture_body);
}

int main(void)
{
	js_use_mem();
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_store_agrees_with_the_model),
		cmocka_unit_test(file_store_agrees_with_the_model_over_reopening),
		cmocka_unit_test(writes_queued_during_a_commit_share_the_next_one),
		cmocka_unit_test(a_second_opener_is_refused),
		cmocka_unit_test(nothing_acknowledged_is_lost_when_killed),
		cmocka_unit_test(backup_opens_as_a_store),
		cmocka_unit_test(a_torn_log_opens_as_an_earlier_moment),
		cmocka_unit_test(files_that_are_no_store_are_refused),
		cmocka_unit_test(running_out_of_memory_loses_nothing),
	};

	return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
