/* Backups of a store that is written to, restores, and files of another format. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "cluster/apiserver/apisrv.h"
#include "cluster/apiserver/restore.h"
#include "fixture.h"
#include "history.h"

/* One backup: how it ended. */
struct copy {
	char path[160];
	bool done;
	enum rc rc;
	struct err err;
	struct store_file_info info;
	size_t pages, of, n_progress;
};

static void on_progress(void *arg, size_t pages, size_t of)
{
	struct copy *c = arg;

	assert_true(pages <= of);
	c->pages = pages;
	c->of = of;
	c->n_progress++;
}

static void on_copied(void *arg, enum rc rc, const struct store_file_info *info,
		      const struct err *err)
{
	struct copy *c = arg;

	assert_false(c->done);
	c->done = true;
	c->rc = rc;
	if (rc)
		c->err = *err;
	else
		c->info = *info;
}

static struct store_backup *begin(struct history *h, struct copy *c, const char *name)
{
	struct store_backup_opts o = {.progress = on_progress, .done = on_copied, .arg = c};
	struct store_backup *b = NULL;
	struct err err = {0};

	memset(c, 0, sizeof(*c));
	snprintf(c->path, sizeof(c->path), "%s/%s", h->dir, name);
	o.path = c->path;
	if (store_backup(h->s, &o, &b, &err))
		fail_msg("%s", err.msg);
	return b;
}

static void wait_for(struct history *h, struct copy *c)
{
	for (int i = 0; i < 100000 && !c->done; i++)
		assert_int_equal(loop_step(h->loop, USEC_PER_SEC, NULL, NULL), RC_OK);
	assert_true(c->done);
}

/* What was cancelled is over when the pool is through with it. */
static void calm(struct history *h)
{
	bool did = true;

	while (did)
		assert_int_equal(loop_step(h->loop, 0, &did, NULL), RC_OK);
}

static bool exists(const char *path)
{
	return access(path, F_OK) == 0;
}

static void open_history(struct history *h, uint64_t seed, int n)
{
	hist_up(h, seed, NULL);
	assert_int_equal(hist_open(h, NULL, NULL, NULL), RC_OK);
	for (int i = 0; i < n; i++)
		hist_write(h);
	hist_settle(h);
}

/* Fills the store, so that a backup takes many slices. */
static void add_ballast(struct history *h, int n)
{
	char name[64], text[4001];

	memset(text, 'b', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	for (int i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "configmaps/default/ballast-%05d", i);
		assert_int_equal(
			store_write(h->s, STORE_CREATE, name, 0,
				    js_pack("{s:{s:s}, s:s}", "metadata", "name", "x", "pad", text),
				    NULL, NULL, NULL, NULL),
			RC_OK);
	}
	hist_settle(h);
}

static void a_backup_is_one_moment_of_a_store_that_is_written_to(void **state)
{
	(void)state;
	static struct history h, copy;
	struct copy c;

	open_history(&h, 11, 30);
	add_ballast(&h, 1500);
	int64_t before = store_rev(h.s);

	begin(&h, &c, "copy.db");
	int during = 0;

	/* A write with each turn: slices and commits take turns. */
	while (!c.done) {
		hist_write(&h);
		during++;
		assert_int_equal(loop_step(h.loop, USEC_PER_SEC, NULL, NULL), RC_OK);
	}
	assert_int_equal(c.rc, RC_OK);
	hist_settle(&h);
	assert_true(during > 10 && c.n_progress > 10);
	assert_int_equal(h.refused, 0);
	assert_int_equal(c.pages, c.of);
	assert_true(c.info.rev > before && c.info.rev < store_rev(h.s));
	hist_check(&h, 5);
	h.s = store_close(h.s);
	/* The copy is the model at its revision. */
	copy = h;
	copy.s = NULL;
	copy.known = 0;
	assert_int_equal(hist_open(&copy, c.path, NULL, NULL), RC_OK);
	assert_true(store_rev(copy.s) == c.info.rev);
	assert_int_equal(store_count(copy.s, "configmaps"), 1500);
	for (int k = 0; k < HIST_KEYS; k++) {
		char key[96];

		hist_key(k, key);
		struct obj *o = store_get(copy.s, key);

		assert_int_equal(o ? hist_value(o) : 0, h.value[hist_index(&h, c.info.rev)][k]);
	}
	copy.s = store_close(copy.s);
	hist_down(&h);
	assert_int_equal(mem_live_blocks(), 0);
}

static void a_backup_that_ends_early_leaves_nothing(void **state)
{
	(void)state;
	static struct history h;
	struct copy c, other;
	struct err err = {0};
	struct store_backup *b;

	open_history(&h, 12, 20);
	add_ballast(&h, 800);
	b = begin(&h, &c, "cancelled.db");
	while (!c.n_progress)
		assert_int_equal(loop_step(h.loop, USEC_PER_SEC, NULL, NULL), RC_OK);
	assert_true(exists(c.path));
	struct store_backup_opts o = {.path = "/nowhere", .done = on_copied, .arg = &other};

	assert_int_equal(store_backup(h.s, &o, &b, &err), RC_BUSY); /* one at a time */
	store_backup_cancel(b);
	calm(&h);
	assert_false(exists(c.path));
	assert_false(c.done);
	/* a name that is taken, a folder that is not there */
	begin(&h, &c, "store.db");
	wait_for(&h, &c);
	assert_int_equal(c.rc, RC_EXISTS);
	assert_true(exists(h.path));
	begin(&h, &c, "no/such/folder.db");
	wait_for(&h, &c);
	assert_int_equal(c.rc, RC_IO);
	/* the store is closed in the middle */
	begin(&h, &c, "closed.db");
	while (!c.n_progress)
		assert_int_equal(loop_step(h.loop, USEC_PER_SEC, NULL, NULL), RC_OK);
	h.s = store_close(h.s);
	assert_false(exists(c.path));
	/* a killed server's leftover goes when the store is opened */
	char left[160];

	snprintf(left, sizeof(left), "%s.backup", h.path);
	assert_int_equal(file_write_durable(left, "x", 1, 0600, NULL), RC_OK);
	assert_int_equal(hist_open(&h, NULL, NULL, NULL), RC_OK);
	assert_false(exists(left));
	hist_down(&h);
	assert_int_equal(mem_live_blocks(), 0);
}

/* A disk that fails in the middle makes SQLite roll back: what it had copied of it must not stay. */
static void a_refused_commit_is_in_no_backup(void **state)
{
	(void)state;
	static struct history h, copy;
	struct copy c;

	hist_up(&h, 13, "fault");
	assert_int_equal(hist_open(&h, NULL, "fault", NULL), RC_OK);
	add_ballast(&h, 800);
	for (int i = 0; i < 20; i++)
		hist_write(&h);
	hist_settle(&h);
	begin(&h, &c, "copy.db");
	for (int round = 0; !c.done; round++) {
		if (round == 4)
			faultvfs_fail(h.v, 4, SQLITE_FULL, false, FAULT_WRITE);
		hist_write(&h);
		hist_settle(&h);
		assert_int_equal(loop_step(h.loop, 0, NULL, NULL), RC_OK);
	}
	assert_true(h.refused > 0);
	assert_int_equal(c.rc, RC_OK);
	copy = h;
	copy.s = NULL;
	copy.v = NULL;
	copy.known = 0;
	assert_int_equal(hist_open(&copy, c.path, NULL, NULL), RC_OK);
	for (int k = 0; k < HIST_KEYS; k++) {
		char key[96];

		hist_key(k, key);
		struct obj *o = store_get(copy.s, key);

		assert_int_equal(o ? hist_value(o) : 0, h.value[hist_index(&h, c.info.rev)][k]);
	}
	copy.s = store_close(copy.s);
	hist_down(&h);
	assert_int_equal(mem_live_blocks(), 0);
}

/* ---- restore ----------------------------------------------------------------------------------------- */

static void restored_revisions_are_new_to_every_client(void **state)
{
	(void)state;
	static struct history h;
	struct copy c;
	struct store_restore_info info;
	struct err err = {0};
	char key[96];

	open_history(&h, 21, 60);
	hist_set(&h, 3, 4242);
	hist_settle(&h);
	begin(&h, &c, "backup.db");
	wait_for(&h, &c);
	int64_t backup = c.info.rev, seen;
	int at = hist_index(&h, backup);

	assert_true(backup == store_rev(h.s));
	for (int i = 0; i < 50; i++)
		hist_write(&h);
	hist_settle(&h);
	seen = store_rev(h.s);
	/* not beside a server */
	assert_int_equal(store_restore(c.path, h.path, 0, &info, &err), RC_CLOSED);
	assert_non_null(strstr(err.msg, "stop ferry-apiserver first"));
	h.s = store_close(h.s);
	if (store_restore(c.path, h.path, 1796000000 * USEC_PER_SEC, &info, &err))
		fail_msg("%s", err.msg);
	assert_true(info.backup_rev == backup && info.old_rev == seen && info.rev > seen);
	assert_non_null(strstr(info.kept, "store.db.before-restore-2026"));
	assert_true(exists(info.kept));
	h.known = seen; /* clients saw all of the old store */
	assert_int_equal(hist_open(&h, NULL, NULL, NULL), RC_OK);
	assert_true(store_rev(h.s) == info.rev && store_oldest(h.s) == info.rev);
	for (int k = 0; k < HIST_KEYS; k++) {
		hist_key(k, key);
		struct obj *o = store_get(h.s, key);

		assert_int_equal(o ? hist_value(o) : 0, h.value[at][k]);
		assert_true(!o || obj_rev(o) <= backup); /* an object keeps its own */
	}
	/* Whoever watches goes on nowhere in between: not where it was, not in a gap, not ahead. */
	for (int64_t rev = backup - 5; rev < info.rev; rev += rev < seen + 5 ? 1 : 99991)
		assert_int_equal(store_replay(h.s, "pods", rev, NULL, NULL, &err), RC_EXPIRED);
	assert_int_equal(store_replay(h.s, "pods", info.rev, NULL, NULL, &err), RC_OK);
	assert_int_equal(store_replay(h.s, "pods", info.rev + 1, NULL, NULL, &err), RC_INVALID);
	/* A lost revision is no precondition any more; the restored one is. */
	hist_key(3, key);
	struct obj *o = store_get(h.s, key);

	assert_int_equal(
		store_write(h.s, STORE_UPDATE, key, seen, js_new_object(), NULL, NULL, NULL, NULL),
		RC_CONFLICT);
	h.n = at + 1;
	assert_int_equal(hist_set(&h, 3, 777), RC_OK); /* a revision above all that was seen */
	hist_settle(&h);
	assert_true(obj_rev(store_get(h.s, key)) > info.rev);
	(void)o;
	/* and so it is after the next start */
	h.s = store_close(h.s);
	assert_int_equal(hist_open(&h, NULL, NULL, NULL), RC_OK);
	assert_true(store_oldest(h.s) == info.rev);
	/* again, from the same backup: still onward */
	int64_t newest = store_rev(h.s);

	h.s = store_close(h.s);
	assert_int_equal(store_restore(c.path, h.path, 1796000001 * USEC_PER_SEC, &info, &err),
			 RC_OK);
	assert_true(info.rev > newest);
	/* the kept store is whole, with all that was in it */
	hist_down(&h);
	assert_int_equal(mem_live_blocks(), 0);
}

static void write_text(const char *path, const char *text)
{
	assert_int_equal(file_write_durable(path, text, strlen(text), 0600, NULL), RC_OK);
}

static void sql(const char *path, const char *text)
{
	sqlite3 *db = NULL;

	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	if (sqlite3_exec(db, text, NULL, NULL, NULL))
		fail_msg("%s: %s", text, sqlite3_errmsg(db));
	sqlite3_close(db);
}

/* What is no whole store of ours changes nothing. */
static void what_is_no_backup_is_refused_with_its_reason(void **state)
{
	(void)state;
	static struct history h;
	struct copy c;
	struct store_restore_info info;
	struct err err = {0};
	char bad[160];

	open_history(&h, 22, 60);
	begin(&h, &c, "backup.db");
	wait_for(&h, &c);
	int64_t rev = store_rev(h.s);

	h.s = store_close(h.s);
	snprintf(bad, sizeof(bad), "%s/bad.db", h.dir);
	assert_int_equal(store_restore(bad, h.path, 0, &info, &err), RC_NOT_FOUND);
	assert_int_equal(store_restore(h.dir, h.path, 0, &info, &err), RC_INVALID);
	write_text(bad, "");
	assert_int_equal(store_restore(bad, h.path, 0, &info, &err), RC_INVALID);
	assert_non_null(strstr(err.msg, "it is empty"));
	write_text(bad,
		   "This is a letter to somebody, and no database at all, as anybody can see.");
	assert_int_not_equal(store_restore(bad, h.path, 0, &info, &err), RC_OK);
	assert_non_null(strstr(err.msg, "not a database"));
	unlink(bad);
	sql(bad, "CREATE TABLE songs(name TEXT); INSERT INTO songs VALUES('x')");
	assert_int_equal(store_restore(bad, h.path, 0, &info, &err), RC_INVALID);
	assert_non_null(strstr(err.msg, "another program's database"));
	sql(bad, "PRAGMA user_version=99");
	assert_int_equal(store_restore(bad, h.path, 0, &info, &err), RC_UNSUPPORTED);
	assert_non_null(strstr(err.msg, "made by a newer one"));
	/* cut off, and a page of zeros inside */
	char *bytes = NULL;
	size_t n = 0;

	assert_int_equal(file_read(c.path, 64u << 20, &bytes, &n, NULL), RC_OK);
	assert_int_equal(file_write_durable(bad, bytes, n - 4096, 0600, NULL), RC_OK);
	assert_int_not_equal(store_restore(bad, h.path, 0, &info, &err), RC_OK);
	memset(bytes + n - 3 * 4096, 0, 4096);
	assert_int_equal(file_write_durable(bad, bytes, n, 0600, NULL), RC_OK);
	assert_int_not_equal(store_restore(bad, h.path, 0, &info, &err), RC_OK);
	mem_free(bytes);
	/* the store is what it was, and nothing lies about */
	assert_int_equal(hist_open(&h, NULL, NULL, NULL), RC_OK);
	assert_true(store_rev(h.s) == rev);
	hist_check(&h, 5);
	snprintf(bad, sizeof(bad), "%s.restored", h.path);
	assert_false(exists(bad));
	hist_down(&h);
	assert_int_equal(mem_live_blocks(), 0);
}

static void a_restore_replaces_a_store_that_cannot_be_opened_or_is_not_there(void **state)
{
	(void)state;
	static struct history h;
	struct copy c;
	struct store_restore_info info;
	struct err err = {0};
	char wal[160], kept[600];

	open_history(&h, 23, 60);
	begin(&h, &c, "backup.db");
	wait_for(&h, &c);
	h.s = store_close(h.s);
	write_text(h.path,
		   "a disk wrote here what it pleased to write, and now this is no database");
	snprintf(wal, sizeof(wal), "%s-wal", h.path);
	write_text(wal, "and its log is beside it");
	if (store_restore(c.path, h.path, 1, &info, &err))
		fail_msg("%s", err.msg);
	/* Nobody knows what clients saw of it: a large step. */
	assert_int_equal(info.old_rev, 0);
	assert_true(info.rev > 1000000000000LL);
	snprintf(kept, sizeof(kept), "%s-wal", info.kept);
	assert_true(exists(info.kept) && exists(kept) && !exists(wal));
	assert_int_equal(hist_open(&h, NULL, NULL, NULL), RC_OK);
	assert_true(store_rev(h.s) == info.rev);
	h.s = store_close(h.s);
	/* a new machine */
	unlink(h.path);
	if (store_restore(c.path, h.path, 2, &info, &err))
		fail_msg("%s", err.msg);
	assert_string_equal(info.kept, "");
	assert_int_equal(hist_open(&h, NULL, NULL, NULL), RC_OK);
	hist_down(&h);
	assert_int_equal(mem_live_blocks(), 0);
}

/* ---- formats ------------------------------------------------------------------------------------------ */

static void copy_to(const char *from, const char *to)
{
	char *bytes = NULL;
	size_t n = 0;

	assert_int_equal(file_read(from, 64u << 20, &bytes, &n, NULL), RC_OK);
	assert_int_equal(file_write_durable(to, bytes, n, 0600, NULL), RC_OK);
	mem_free(bytes);
}

/* Made by the last Ferry of format 1; what is in it is told by the test below. */
static void place_format1(struct history *h)
{
	char from[512];
	const char *here = __FILE__, *slash = strrchr(here, '/');

	/* relative to the build folder, where tests run; or to the tree's top, when one is started by hand */
	if (access(here, F_OK) != 0)
		while (str_has_prefix(here, "../"))
			here += 3;
	snprintf(from, sizeof(from), "%.*s/data/format1.db", (int)(slash - here), here);
	copy_to(from, h->path);
}

static void check_format1_content(struct store *s)
{
	assert_true(store_rev(s) == 10 && store_oldest(s) == 0);
	assert_int_equal(store_count(s, "namespaces"), 5);
	assert_int_equal(store_count(s, "configmaps"), 2);
	assert_true(obj_rev(store_get(s, "configmaps/default/changed")) == 9);
	CLEANUP(js_unrefp) struct json *j = obj_json(store_get(s, "configmaps/default/changed"));

	assert_string_equal(js_str(js_at(j, "data", "a", NULL)), "2");
	assert_null(store_get(s, "configmaps/default/gone"));
}

static int64_t pragma(const char *path, const char *name)
{
	sqlite3 *db = NULL;
	sqlite3_stmt *st = NULL;
	char text[64];

	snprintf(text, sizeof(text), "PRAGMA %s", name);
	assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_prepare_v2(db, text, -1, &st, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_step(st), SQLITE_ROW);
	int64_t v = sqlite3_column_int64(st, 0);

	sqlite3_finalize(st);
	sqlite3_close(db);
	return v;
}

static void an_older_file_is_brought_up_to_date_and_a_copy_stays(void **state)
{
	(void)state;
	static struct history h;
	char kept[160];
	struct err err = {0};

	hist_up(&h, 31, NULL);
	place_format1(&h);
	assert_int_equal(pragma(h.path, "user_version"), 1);
	if (hist_open(&h, NULL, NULL, &err))
		fail_msg("%s", err.msg);
	check_format1_content(h.s);
	h.s = store_close(h.s);
	assert_int_equal(pragma(h.path, "user_version"), 2);
	assert_int_equal(pragma(h.path, "application_id"), 0x46727279);
	snprintf(kept, sizeof(kept), "%s.format1", h.path);
	assert_int_equal(pragma(kept, "user_version"), 1);
	/* once: the next start changes nothing */
	unlink(kept);
	assert_int_equal(hist_open(&h, NULL, NULL, NULL), RC_OK);
	check_format1_content(h.s);
	assert_false(exists(kept));
	h.s = store_close(h.s);
	/* a newer one is refused, and left alone */
	sql(h.path, "PRAGMA user_version=3");
	assert_int_equal(hist_open(&h, NULL, NULL, &err), RC_UNSUPPORTED);
	assert_non_null(strstr(
		err.msg,
		"the store has format 3 and this Ferry knows 2: it was made by a newer one"));
	assert_int_equal(pragma(h.path, "user_version"), 3);
	hist_down(&h);
	assert_int_equal(mem_live_blocks(), 0);
}

static void an_old_backup_can_be_restored(void **state)
{
	(void)state;
	static struct history h;
	struct store_restore_info info;
	struct err err = {0};
	char from[160];

	hist_up(&h, 32, NULL);
	place_format1(&h);
	snprintf(from, sizeof(from), "%s/old.db", h.dir);
	assert_int_equal(rename(h.path, from), 0);
	if (store_restore(from, h.path, 1, &info, &err))
		fail_msg("%s", err.msg);
	assert_true(info.backup_rev == 10 && info.objects == 7);
	assert_int_equal(pragma(from, "user_version"), 1); /* the backup itself stays as it is */
	assert_int_equal(pragma(h.path, "user_version"), 2);
	/* and so does an old store that is replaced, or not even that */
	copy_to(from, h.path);
	assert_int_not_equal(store_restore("/no/such.db", h.path, 2, &info, &err), RC_OK);
	assert_int_equal(pragma(h.path, "user_version"), 1);
	assert_int_equal(store_restore(from, h.path, 2, &info, &err), RC_OK);
	assert_int_equal(info.old_rev, 10);
	assert_int_equal(pragma(info.kept, "user_version"), 1);
	assert_int_equal(hist_open(&h, NULL, NULL, NULL), RC_OK);
	assert_int_equal(store_count(h.s, "configmaps"), 2);
	hist_down(&h);
	assert_int_equal(mem_live_blocks(), 0);
}

static void power_may_fail_while_the_format_changes(void **state)
{
	(void)state;
	static struct history h, after;
	char dir[128], path[160];
	struct err err = {0};

	hist_up(&h, 33, "fault");
	place_format1(&h);
	faultvfs_adopt(h.v, h.dir);
	size_t from = faultvfs_length(h.v);

	assert_int_equal(hist_open(&h, NULL, "fault", NULL), RC_OK);
	size_t to = faultvfs_length(h.v);

	assert_true(to > from + 3);
	snprintf(dir, sizeof(dir), "%s/crash", h.dir);
	snprintf(path, sizeof(path), "%s/store.db", dir);
	for (size_t at = from; at <= to; at++)
		for (unsigned l = 0; l < LOSS__MAX; l++) {
			hist_clean_dir(dir);
			faultvfs_replay(h.v, at, l, at * 7 + l, dir);
			after = h;
			after.s = NULL;
			after.v = NULL;
			if (hist_open(&after, path, NULL, &err))
				fail_msg("crash at %zu, loss %u: %s", at, l, err.msg);
			check_format1_content(after.s);
			after.s = store_close(after.s);
			assert_int_equal(pragma(path, "user_version"), 2);
		}
	hist_down(&h);
	assert_int_equal(mem_live_blocks(), 0);
}

/* ---- the endpoint ------------------------------------------------------------------------------------- */

struct stream {
	int status;
	char text[512]; /* of a refusal */
	bool ended;
	char *bytes;
	size_t n, cap;
	size_t max; /* refuse more: a reader that left; 0: never */
};

static void s_answer(void *arg, const struct apisrv_answer *a)
{
	struct stream *x = arg;

	x->status = a->status;
	snprintf(x->text, sizeof(x->text), "%.*s", (int)a->n, a->body);
	x->ended = true;
}

static void s_begin(void *arg, int status, const char *type, size_t backlog)
{
	struct stream *x = arg;

	assert_string_equal(type, "application/octet-stream");
	assert_true(backlog > 0);
	x->status = status;
}

static enum rc s_write(void *arg, const void *bytes, size_t n)
{
	struct stream *x = arg;

	if (x->max && x->n + n > x->max)
		return RC_BUSY;
	while (x->n + n > x->cap) {
		x->cap = x->cap ? x->cap * 2 : 1 << 20;
		x->bytes = mem_realloc(x->bytes, x->cap);
		assert_non_null(x->bytes);
	}
	memcpy(x->bytes + x->n, bytes, n);
	x->n += n;
	return RC_OK;
}

static void s_end(void *arg)
{
	struct stream *x = arg;

	x->ended = true;
}

static const struct apisrv_sink stream_sink = {
	.answer = s_answer, .stream_begin = s_begin, .stream_write = s_write, .stream_end = s_end};

static struct apisrv_call *ask(struct apisrv *srv, struct stream *x, const struct apisrv_user *user,
			       const char *method)
{
	struct apisrv_request r = {.method = method, .target = "/ferry/v1/backup", .user = user};

	memset(x, 0, sizeof(*x));
	return apisrv_handle(srv, &r, &stream_sink, x);
}

static void run_until_end(struct history *h, struct stream *x)
{
	for (int i = 0; i < 100000 && !x->ended; i++)
		assert_int_equal(loop_step(h->loop, 0, NULL, NULL), RC_OK);
	assert_true(x->ended);
}

static void administrators_get_the_file_as_a_stream(void **state)
{
	(void)state;
	static struct history h, copy;
	struct apisrv *srv = NULL;
	struct stream x, y;
	char place[160], path[160];

	open_history(&h, 41, 40);
	struct apisrv_config config = {.store = h.s, .no_bootstrap = true, .seed = 7};

	assert_int_equal(apisrv_new(&srv, h.loop, &config, NULL), RC_OK);
	add_ballast(&h, 900);
	snprintf(place, sizeof(place), "%s.backup", h.path);
	assert_null(ask(srv, &x, &fx_node1, "POST"));
	assert_int_equal(x.status, 403);
	assert_null(ask(srv, &x, &fx_controller, "POST"));
	assert_int_equal(x.status, 403);
	assert_null(ask(srv, &x, NULL, "POST"));
	assert_int_equal(x.status, 403);
	assert_null(ask(srv, &x, &fx_admin, "GET"));
	assert_int_equal(x.status, 405);
	assert_false(exists(place));

	ask(srv, &x, &fx_admin, "POST");
	assert_null(ask(srv, &y, &fx_admin, "POST")); /* one at a time */
	assert_int_equal(y.status, 429);
	assert_non_null(strstr(y.text, "another backup is being made"));
	run_until_end(&h, &x);
	assert_int_equal(x.status, 200);
	assert_false(exists(place));
	/* lines, bytes, the last line */
	x.bytes[x.n - 1] = '\0';
	char *file = strstr(x.bytes, "{\"type\":\"file\",\"bytes\":");

	assert_non_null(file);
	assert_true(str_has_prefix(x.bytes, "{\"type\":\"progress\""));
	size_t bytes = strtoul(file + strlen("{\"type\":\"file\",\"bytes\":"), NULL, 10);
	char *from = strchr(file, '\n') + 1;
	char *done = from + bytes + 1;

	assert_true(done < x.bytes + x.n && done[-1] == '\n');
	assert_true(str_has_prefix(done, "{\"type\":\"done\",\"sha256\":\""));
	snprintf(path, sizeof(path), "%s/got.db", h.dir);
	assert_int_equal(file_write_durable(path, from, bytes, 0600, NULL), RC_OK);
	mem_free(x.bytes);
	int64_t rev = store_rev(h.s);

	/* the client leaves: while it is copied, and while it is sent */
	for (int turns = 1; turns < 60; turns += 7) {
		struct apisrv_call *call = ask(srv, &x, &fx_admin, "POST");

		for (int i = 0; i < turns && !x.ended; i++)
			assert_int_equal(loop_step(h.loop, 0, NULL, NULL), RC_OK);
		if (!x.ended)
			apisrv_cancel(call);
		calm(&h);
		assert_false(exists(place));
		mem_free(x.bytes);
	}
	/* a reader that takes no more */
	ask(srv, &x, &fx_admin, "POST");
	x.max = 1 << 20;
	run_until_end(&h, &x);
	assert_true(x.n <= x.max);
	assert_false(exists(place));
	mem_free(x.bytes);
	calm(&h);
	/* the server ends in the middle */
	ask(srv, &x, &fx_admin, "POST");
	for (int i = 0; i < 5; i++)
		assert_int_equal(loop_step(h.loop, 0, NULL, NULL), RC_OK);
	assert_false(x.ended);
	srv = apisrv_free(srv);
	mem_free(x.bytes);
	h.s = store_close(h.s);
	assert_false(exists(place));

	copy = h;
	copy.s = NULL;
	copy.known = 0;
	assert_int_equal(hist_open(&copy, path, NULL, NULL), RC_OK);
	assert_true(store_rev(copy.s) == rev);
	assert_int_equal(store_count(copy.s, "configmaps"), 900);
	copy.s = store_close(copy.s);
	hist_down(&h);
	assert_int_equal(mem_live_blocks(), 0);
}

static void a_server_in_memory_has_no_backup(void **state)
{
	(void)state;
	struct fx f;
	struct stream x;

	fx_up(&f, NULL);
	assert_null(ask(f.srv, &x, &fx_admin, "POST"));
	assert_int_equal(x.status, 501);
	fx_down(&f);
}

static void readiness_tells_of_a_failing_checkpoint(void **state)
{
	(void)state;
	static struct history h;
	struct fx f = {0};
	struct fx_answer a;
	struct apisrv_config config = {.no_bootstrap = true, .seed = 7};

	hist_up(&h, 42, "fault");
	h.wal_pages = 1;
	assert_int_equal(hist_open(&h, NULL, "fault", NULL), RC_OK);
	config.store = h.s;
	assert_int_equal(apisrv_new(&f.srv, h.loop, &config, NULL), RC_OK);
	store_listen(h.s, NULL, NULL);
	f.loop = h.loop;
	f.store = h.s;
	fx_call(&f, &a, &fx_nobody, "GET", "/readyz", NULL, NULL, NULL);
	assert_int_equal(a.status, 200);
	fx_answer_fini(&a);
	faultvfs_fail(h.v, 2, SQLITE_IOERR_FSYNC, false, FAULT_SYNC);
	while (!store_checkpoint_error(h.s)) {
		assert_int_equal(store_write(h.s, STORE_CREATE, "pods/default/x", 0,
					     js_new_object(), NULL, NULL, NULL, NULL),
				 RC_OK);
		fx_settle(&f);
		assert_true(store_is_healthy(h.s));
		if (store_checkpoint_error(h.s))
			break;
		assert_int_equal(store_write(h.s, STORE_DELETE, "pods/default/x",
					     obj_rev(store_get(h.s, "pods/default/x")),
					     js_new_object(), NULL, NULL, NULL, NULL),
				 RC_OK);
		fx_settle(&f);
	}
	fx_call(&f, &a, &fx_nobody, "GET", "/readyz", NULL, NULL, NULL);
	assert_int_equal(a.status, 500);
	assert_non_null(strstr(a.text, "the store's log cannot be written back: checkpoint:"));
	fx_answer_fini(&a);
	fx_call(&f, &a, &fx_nobody, "GET", "/livez", NULL, NULL, NULL);
	assert_int_equal(a.status, 200);
	fx_answer_fini(&a);
	fx_call(&f, &a, &fx_admin, "GET", "/metrics", NULL, NULL, NULL);
	assert_non_null(strstr(a.text, "\nferry_store_checkpoint_failures_total 1\n"));
	fx_answer_fini(&a);
	f.srv = apisrv_free(f.srv);
	hist_down(&h);
	assert_int_equal(mem_live_blocks(), 0);
}

/* ---- what a backup costs ------------------------------------------------------------------------------ */

struct probe {
	struct store *s;
	usec_t began;
	usec_t took[20000];
	size_t n;
	int64_t rev;
	bool waiting;
};

static void probe_done(void *arg, enum rc rc, struct obj *o, const struct err *err)
{
	struct probe *p = arg;

	(void)err;
	assert_int_equal(rc, RC_OK);
	p->took[p->n++] = clock_monotonic() - p->began;
	p->rev = obj_rev(o);
	p->waiting = false;
}

static void probe_write(struct probe *p)
{
	bool first = p->rev == 0;

	p->began = clock_monotonic();
	p->waiting = true;
	assert_int_equal(store_write(p->s, first ? STORE_CREATE : STORE_UPDATE,
				     "pods/default/probe", p->rev,
				     js_pack("{s:{s:s}}", "metadata", "name", "probe"), probe_done,
				     p, NULL, NULL),
			 RC_OK);
}

static int cmp_usec(const void *a, const void *b)
{
	usec_t x = *(const usec_t *)a, y = *(const usec_t *)b;

	return x < y ? -1 : x > y;
}

static double at_permille(const struct probe *p, size_t permille)
{
	size_t i = p->n * permille / 1000;

	return (double)p->took[i < p->n ? i : p->n - 1] / 1e3;
}

static void tell(const char *what, struct probe *p)
{
	assert_true(p->n > 0);
	qsort(p->took, p->n, sizeof(*p->took), cmp_usec);
	printf("  %s: %zu writes, p50 %.2f ms, p99 %.2f ms, p99.9 %.2f ms, longest %.2f ms\n", what,
	       p->n, at_permille(p, 500), at_permille(p, 990), at_permille(p, 999),
	       at_permille(p, 1000));
}

/* Prints what writes feel of a backup of 8,000 objects of 2 KiB; that they go on is what is asserted. */
static void writes_go_on_while_eight_thousand_objects_are_copied(void **state)
{
	(void)state;
	static struct probe quiet, busy;
	struct loop *loop = NULL;
	struct store *s = NULL;
	char dir[] = "/tmp/ferry-test-backup-XXXXXX", path[64], name[64], pad[2001];
	int rounds = getenv("FERRY_TEST_LONG") ? 40 : 4;

	memset(pad, 'p', sizeof(pad) - 1);
	pad[sizeof(pad) - 1] = '\0';
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/store.db", dir);
	assert_int_equal(loop_new(&loop, LOOP_REAL, NULL), RC_OK);
	struct store_opts o = {.path = path};

	assert_int_equal(store_open(&s, loop, &o, NULL), RC_OK);
	for (int i = 0; i < 8000; i++) {
		snprintf(name, sizeof(name), "virtualmachineinstances.kubevirt.io/default/vm-%05d",
			 i);
		assert_int_equal(
			store_write(s, STORE_CREATE, name, 0,
				    js_pack("{s:{s:s}, s:s}", "metadata", "name", "x", "pad", pad),
				    NULL, NULL, NULL, NULL),
			RC_OK);
	}
	while (!store_is_idle(s))
		assert_int_equal(loop_step(loop, USEC_PER_SEC, NULL, NULL), RC_OK);
	quiet = (struct probe){.s = s};
	busy = (struct probe){.s = s};
	usec_t in_backup = 0;

	for (int round = 0; round < rounds; round++) {
		struct copy c = {0};
		struct store_backup *b = NULL;
		struct store_backup_opts bo = {
			.progress = on_progress, .done = on_copied, .arg = &c};

		for (int i = 0; i < 500 && quiet.n < 19000; i++) {
			probe_write(&quiet);
			while (quiet.waiting)
				assert_int_equal(loop_step(loop, USEC_PER_SEC, NULL, NULL), RC_OK);
		}
		busy.rev = quiet.rev;
		snprintf(c.path, sizeof(c.path), "%s/copy-%d.db", dir, round);
		bo.path = c.path;
		usec_t began = clock_monotonic();

		assert_int_equal(store_backup(s, &bo, &b, NULL), RC_OK);
		while (!c.done) {
			if (!busy.waiting && busy.n < 19000)
				probe_write(&busy);
			assert_int_equal(loop_step(loop, USEC_PER_SEC, NULL, NULL), RC_OK);
		}
		in_backup += clock_monotonic() - began;
		while (busy.waiting)
			assert_int_equal(loop_step(loop, USEC_PER_SEC, NULL, NULL), RC_OK);
		quiet.rev = busy.rev;
		assert_int_equal(c.rc, RC_OK);
		assert_int_equal(c.info.objects, 8001);
		unlink(c.path);
	}
	printf("  backups of 8,001 objects: %d, %.0f ms each\n", rounds,
	       (double)in_backup / 1e3 / rounds);
	assert_true(busy.n > (size_t)rounds * 5);
	tell("without a backup", &quiet);
	tell("during a backup ", &busy);
	store_close(s);
	loop_free(loop);
	assert_int_equal(file_remove_tree(dir, NULL), RC_OK);
	assert_int_equal(mem_live_blocks(), 0);
}

int main(void)
{
	js_use_mem();
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_backup_is_one_moment_of_a_store_that_is_written_to),
		cmocka_unit_test(a_backup_that_ends_early_leaves_nothing),
		cmocka_unit_test(a_refused_commit_is_in_no_backup),
		cmocka_unit_test(restored_revisions_are_new_to_every_client),
		cmocka_unit_test(what_is_no_backup_is_refused_with_its_reason),
		cmocka_unit_test(a_restore_replaces_a_store_that_cannot_be_opened_or_is_not_there),
		cmocka_unit_test(an_older_file_is_brought_up_to_date_and_a_copy_stays),
		cmocka_unit_test(an_old_backup_can_be_restored),
		cmocka_unit_test(power_may_fail_while_the_format_changes),
		cmocka_unit_test(administrators_get_the_file_as_a_stream),
		cmocka_unit_test(a_server_in_memory_has_no_backup),
		cmocka_unit_test(readiness_tells_of_a_failing_checkpoint),
		cmocka_unit_test(writes_go_on_while_eight_thousand_objects_are_copied),
	};

	return cmocka_run_group_tests_name("backup", tests, NULL, NULL);
}
