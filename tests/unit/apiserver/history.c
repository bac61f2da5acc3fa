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

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "history.h"
#include "json/json.h"

static const char *const tables[] = {"pods", "virtualmachines.kubevirt.io"};

uint64_t hist_rnd(struct history *h)
{
	h->seed ^= h->seed << 13;
	h->seed ^= h->seed >> 7;
	h->seed ^= h->seed << 17;
	return h->seed;
}

static size_t table_of(int k)
{
	return k % 3 ? 0 : 1;
}

void hist_key(int k, char out[96])
{
	snprintf(out, 96, "%s/default/obj-%02d", tables[table_of(k)], k);
}

/* From a few bytes to several pages of the file, by value. */
static struct json *body(int value)
{
	static char pad[6001];
	size_t n = value % 11 == 0 ? 6000 : (size_t)(value % 5) * 300;

	memset(pad, 'x', sizeof(pad) - 1);
	return js_pack("{s:{s:s}, s:i, s:s}", "metadata", "name", "x", "value", value, "pad",
		       pad + sizeof(pad) - 1 - n);
}

static int key_of(const struct obj *o)
{
	int64_t k = -1;

	assert_int_equal(str_to_i64(strrchr(obj_key(o), '-') + 1, 0, HIST_KEYS, &k, NULL), RC_OK);
	return (int)k;
}

int hist_value(struct obj *o)
{
	CLEANUP(js_unrefp) struct json *j = obj_json(o);
	char rv[32];

	snprintf(rv, sizeof(rv), "%lld", (long long)obj_rev(o));
	assert_string_equal(js_str(js_at(j, "metadata", "resourceVersion", NULL)), rv);
	return (int)js_get_int(j, "value", -1);
}

static void heard(struct history *h, int64_t rev)
{
	if (rev <= h->known)
		return;
	h->known = rev;
	if (h->v)
		faultvfs_mark(h->v, rev);
}

static void on_event(void *arg, const struct store_event *ev)
{
	struct history *h = arg;

	assert_true(ev->rev > h->known); /* to nobody twice, and never backwards */
	heard(h, ev->rev);
}

static void on_broken(void *arg)
{
	struct history *h = arg;

	h->broken++;
}

static void on_done(void *arg, enum rc rc, struct obj *o, const struct err *err)
{
	struct history *h = arg;

	if (!rc) {
		assert_int_equal(obj_rev(o), h->known); /* watchers before writers */
		h->acks++;
		return;
	}
	assert_true(err->msg[0] != '\0');
	h->refused++;
	/* Refused: it must never show up.  Broken: only the file knows. */
	if (store_is_healthy(h->s))
		hist_rewind(h, h->known);
}

void hist_clean_dir(const char *dir)
{
	assert_int_equal(file_remove_tree(dir, NULL), RC_OK);
	assert_int_equal(mkdir(dir, 0700), 0);
}

void hist_up(struct history *h, uint64_t seed, const char *vfs)
{
	memset(h, 0, sizeof(*h));
	h->seed = seed;
	h->ring = 40;
	h->wal_pages = 25;
	assert_int_equal(loop_new(&h->loop, LOOP_VIRTUAL, NULL), RC_OK);
	/* A thousand crashes make a thousand folders: in memory where there is such a place. */
	snprintf(h->dir, sizeof(h->dir), "%s/ferry-test-store-XXXXXX",
		 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
	assert_non_null(mkdtemp(h->dir));
	snprintf(h->path, sizeof(h->path), "%s/store.db", h->dir);
	h->v = vfs ? faultvfs_new(vfs) : NULL;
}

void hist_down(struct history *h)
{
	h->s = store_close(h->s);
	h->v = faultvfs_free(h->v);
	h->loop = loop_free(h->loop);
	assert_int_equal(file_remove_tree(h->dir, NULL), RC_OK);
}

enum rc hist_open(struct history *h, const char *path, const char *vfs, struct err *err)
{
	struct store_opts o = {.path = path ? path : h->path,
			       .vfs = vfs,
			       .ring_events = h->ring,
			       .json_cache = 4,
			       .wal_pages = h->wal_pages,
			       .on_broken = on_broken,
			       .arg = h};
	enum rc rc = store_open(&h->s, h->loop, &o, err);

	h->least_ring = h->least_ring && h->least_ring < h->ring ? h->least_ring : h->ring;
	if (!rc)
		store_listen(h->s, on_event, h);
	return rc;
}

void hist_settle(struct history *h)
{
	while (!store_is_idle(h->s) && store_is_healthy(h->s))
		assert_int_equal(loop_step(h->loop, USEC_PER_SEC, NULL, NULL), RC_OK);
}

static void remember(struct history *h, int key, int value, int64_t rev)
{
	assert_true(h->n < HIST_REVS);
	assert_true(!h->n || rev > h->rev_at[h->n - 1]);
	assert_true(rev > h->known); /* nobody saw this number before */
	if (h->n)
		memcpy(h->value[h->n], h->value[h->n - 1], sizeof(h->value[0]));
	else
		memset(h->value[0], 0, sizeof(h->value[0]));
	h->value[h->n][key] = value;
	h->rev_at[h->n++] = rev;
}

/* A tombstone's revision shows in no store_newest(): the text that the write takes along has it. */
static int64_t rev_in(const struct json *b)
{
	int64_t rev = 0;

	assert_int_equal(str_to_i64(js_str(js_at(b, "metadata", "resourceVersion", NULL)), 1,
				    INT64_MAX, &rev, NULL),
			 RC_OK);
	return rev;
}

enum rc hist_set(struct history *h, int k, int value)
{
	char key[96];
	int now = h->n ? h->value[h->n - 1][k] : 0;
	int n_before;

	hist_key(k, key);
	struct obj *cur = store_newest(h->s, key);
	CLEANUP(js_unrefp) struct json *b = body(value ? value : now);
	enum store_op op = value == 0 ? STORE_DELETE : cur ? STORE_UPDATE : STORE_CREATE;

	if (store_is_healthy(h->s)) /* else what was on its way may be in the file, or not */
		assert_int_equal(cur ? hist_value(cur) : 0, now);
	if (!value && !cur)
		return RC_NOT_FOUND;
	n_before = h->n;
	enum rc rc = store_write(h->s, op, key, cur ? obj_rev(cur) : 0, js_ref(b), on_done, h, NULL,
				 NULL);

	assert_int_equal(h->n, n_before); /* done runs from the loop alone */
	if (!rc)
		remember(h, k, value, rev_in(b));
	return rc;
}

void hist_write(struct history *h)
{
	int k = (int)(hist_rnd(h) % HIST_KEYS);
	int v = hist_rnd(h) % 4 ? 1 + (int)(hist_rnd(h) % 100000) : 0;
	enum rc rc = hist_set(h, k, v);

	if (rc == RC_NOT_FOUND)
		rc = hist_set(h, k, 1 + (int)(hist_rnd(h) % 100000));
	assert_int_equal(rc, store_is_healthy(h->s) ? RC_OK : RC_CLOSED);
}

int hist_index(const struct history *h, int64_t rev)
{
	int i = h->n - 1;

	while (i >= 0 && h->rev_at[i] > rev)
		i--;
	return i;
}

void hist_rewind(struct history *h, int64_t rev)
{
	h->n = hist_index(h, rev) + 1;
}

/* ---- checks ------------------------------------------------------------------------------------ */

static void check_list(struct history *h, int64_t rev, int at)
{
	int seen[HIST_KEYS] = {0};
	struct err err = {0};

	for (size_t t = 0; t < 2; t++) {
		struct obj_list l = {0};
		struct store_page p = {.table = tables[t], .rev = rev};
		bool more = false;

		if (store_list(h->s, &p, &l, &more, NULL, &err))
			fail_msg("list at %lld: %s", (long long)rev, err.msg);
		for (size_t i = 0; i < l.n; i++)
			seen[key_of(l.items[i])] = hist_value(l.items[i]);
		obj_list_fini(&l);
	}
	for (int k = 0; k < HIST_KEYS; k++)
		if (seen[k] != (at < 0 ? 0 : h->value[at][k]))
			fail_msg("at revision %lld key %d is %d instead of %d", (long long)rev, k,
				 seen[k], at < 0 ? 0 : h->value[at][k]);
}

struct follower {
	struct history *h;
	int64_t last;
	int at; /* the model's row that the next event must make, or a later one of this table */
	int value[HIST_KEYS];
	size_t table;
	int n;
};

static void follow(void *arg, const struct store_event *ev)
{
	struct follower *w = arg;
	int k = key_of(ev->obj);

	assert_int_equal(table_of(k), w->table);
	assert_true(ev->rev > w->last);
	/* No event between the last one and this. */
	int was = hist_index(w->h, w->last), at = hist_index(w->h, ev->rev);

	assert_true(at >= 0 && w->h->rev_at[at] == ev->rev);
	for (int i = was + 1; i < at; i++)
		for (int j = 0; j < HIST_KEYS; j++)
			if (table_of(j) == w->table)
				assert_int_equal(w->h->value[i][j], i ? w->h->value[i - 1][j] : 0);
	w->last = ev->rev;
	/* A deletion tells what it deleted, also after a crash. */
	assert_int_equal(ev->prev ? hist_value(ev->prev) : 0, w->value[k]);
	if (ev->type == STORE_DELETED)
		assert_int_equal(hist_value(ev->obj), w->value[k]);
	w->value[k] = ev->type == STORE_DELETED ? 0 : hist_value(ev->obj);
	assert_int_equal(w->value[k], w->h->value[at][k]);
	w->n++;
}

static void check_watch(struct history *h, int64_t rev)
{
	int at = hist_index(h, rev), end = hist_index(h, store_rev(h->s));
	struct err err = {0};

	for (size_t t = 0; t < 2; t++) {
		struct follower w = {.h = h, .last = rev, .table = t};

		if (at >= 0)
			memcpy(w.value, h->value[at], sizeof(w.value));
		if (store_replay(h->s, tables[t], rev, follow, &w, &err))
			fail_msg("watch from %lld: %s", (long long)rev, err.msg);
		for (int k = 0; k < HIST_KEYS; k++)
			if (table_of(k) == t)
				assert_int_equal(w.value[k], end < 0 ? 0 : h->value[end][k]);
	}
}

void hist_check(struct history *h, int n_revs)
{
	int64_t rev = store_rev(h->s), oldest = store_oldest(h->s);
	int end = hist_index(h, rev);

	assert_true(end < 0 ? rev == 0 : h->rev_at[end] == rev);
	check_list(h, 0, end);
	/* Not more is forgotten than the ring had to. */
	if (end >= 0 && (size_t)end < h->least_ring)
		assert_int_equal(oldest, 0);
	else if (end >= 0)
		assert_true(oldest <= h->rev_at[(size_t)end - h->least_ring]);
	int from = hist_index(h, oldest), span = end - from;

	for (int i = 0; i < n_revs && i <= span; i++) {
		int at =
			n_revs > span ? from + i : from + (int)(hist_rnd(h) % (uint64_t)(span + 1));
		int64_t r = at < 0 ? 0 : h->rev_at[at];

		r = r < oldest ? oldest : r;
		if (r)
			check_list(h, r, hist_index(h, r));
		check_watch(h, r);
	}
	if (oldest > 0)
		assert_int_equal(store_replay(h->s, "pods", oldest - 1, follow, NULL, NULL),
				 RC_EXPIRED);
	assert_int_equal(store_replay(h->s, "pods", rev + 1, follow, NULL, NULL), RC_INVALID);
}
