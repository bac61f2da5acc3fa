#include "cluster/apiserver/store.h"

#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "cluster/apiserver/store_int.h"
#include "ev/ev.h"
#include "json/json.h"

/* Theory of operation
 *
 * A write takes its revision when it is queued, so order of revisions = order in the queue = order in
 * the log = order of publication.  One commit flies at a time; everything queued meanwhile goes with the
 * next one, so a busy store makes few, large commits and an idle one answers after a single fsync.
 *
 * Publication allocates nothing: whatever it needs is made when the write is queued.  So a commit that
 * is durable always becomes visible.
 *
 * When a commit is refused cleanly (disk full), it and all that waits behind it fail, since they may
 * build on it; their revisions are not given out again.  When its outcome is unknown (I/O error,
 * failed fsync), the store turns unhealthy: only the file, read anew, can tell.
 *
 * Rows are deleted when the history ring forgets the event that made them superfluous: a few with each
 * commit, so there is no compaction pass and no spike.
 */

static void kick(struct store *s);

/* ---- failing and publishing ------------------------------------------------------------------ */

static void write_free(struct store_write *w)
{
	obj_unref(w->obj);
	mem_free(w);
}

/* The write will never be in the log. */
static void write_retract(struct store *s, struct store_write *w)
{
	struct entry *e = w->obj->entry;

	e->pending--;
	e->tail_rev = e->last_rev;
	e->newest = obj_unref(e->newest);
	if (s->newest_listener)
		s->newest_listener(s->newest_arg, e->key, NULL, NULL);
	if (!e->pending && !e->last_rev)
		entry_remove(e);
}

static void run_barriers(struct store *s, bool is_durable)
{
	struct list due;
	struct list *l;

	list_init(&due);
	while (!list_is_empty(&s->barriers)) {
		struct store_barrier *b = LIST_ENTRY(s->barriers.next, struct store_barrier, link);

		if (is_durable && b->rev > s->rev)
			break;
		list_push_tail(&due, list_pop_head(&s->barriers));
	}
	/* They may disarm each other. */
	while ((l = list_pop_head(&due))) {
		struct store_barrier *b = LIST_ENTRY(l, struct store_barrier, link);
		void (*fn)(void *arg, bool durable) = b->fn;

		b->fn = NULL;
		fn(b->arg, is_durable);
	}
}

bool store_barrier_arm(struct store *s, struct store_barrier *b,
		       void (*fn)(void *arg, bool is_durable), void *arg)
{
	if (store_is_idle(s))
		return false;
	*b = (struct store_barrier){.rev = s->next_rev, .fn = fn, .arg = arg};
	list_push_tail(&s->barriers, &b->link);
	return true;
}

void store_barrier_disarm(struct store_barrier *b)
{
	if (b->fn)
		list_remove(&b->link);
	b->fn = NULL;
}

static void fail_all(struct store *s, enum rc rc, const struct err *err)
{
	struct list failed;
	struct list *l;

	list_init(&failed);
	while ((l = list_pop_head(&s->flying)))
		list_push_tail(&failed, l);
	while ((l = list_pop_head(&s->waiting)))
		list_push_tail(&failed, l);
	s->n_waiting = 0;
	/* Callbacks may queue new writes: these must see a store without the failed ones. */
	LIST_FOREACH(it, &failed)
		write_retract(s, LIST_ENTRY(it, struct store_write, link));
	run_barriers(s, false);
	while ((l = list_pop_head(&failed))) {
		struct store_write *w = LIST_ENTRY(l, struct store_write, link);

		s->stats.failed++;
		if (w->done)
			w->done(w->arg, rc, NULL, err);
		write_free(w);
	}
}

static void publish(struct store *s, struct store_write *w)
{
	struct obj *o = w->obj;
	struct entry *e = o->entry;
	struct store_event ev;

	if (--e->pending == 0)
		e->newest = obj_unref(e->newest);
	store_apply(s, obj_ref(o), &ev);
	s->stats.writes++;
	if (s->listener)
		s->listener(s->listener_arg, &ev);
	if (w->done)
		w->done(w->arg, RC_OK, o, NULL);
	write_free(w);
}

static void gc_done(struct store *s, bool ok)
{
	struct list *l;

	while ((l = list_pop_head(&s->gc_flying))) {
		struct obj *o = LIST_ENTRY(l, struct obj, gc);
		struct entry *e = o->entry;

		if (!ok) {
			list_push_tail(&s->gc, l);
			continue;
		}
		s->stats.log_rows--;
		if (o->deleted && !e->pending && e->tail_rev == o->rev)
			entry_remove(e);
		obj_unref(o);
	}
}

/* ---- commits --------------------------------------------------------------------------------- */

static void checkpoint_work(void *arg)
{
	struct store *s = arg;

	s->checkpoint_rc = db_checkpoint(s->db, &s->checkpoint_err);
}

static void checkpoint_after(void *arg)
{
	struct store *s = arg;
	bool was_failing = s->checkpoint_failing;

	s->checkpointing = false;
	s->checkpoint_failing = s->checkpoint_rc != RC_OK;
	if (!s->checkpoint_rc) {
		s->stats.checkpoints++;
		return;
	}
	/* Everything is still in the log, and it is tried again after the next commit. */
	snprintf(s->checkpoint_text, sizeof(s->checkpoint_text), "%s", s->checkpoint_err.msg);
	if (!was_failing)
		log_error(
			"the store's log cannot be written to its main file and grows until it can: %s",
			s->checkpoint_err.msg);
	s->stats.checkpoint_failures++;
}

static void maybe_checkpoint(struct store *s)
{
	size_t hard = s->wal_soft * STORE_WAL_HARD;
	bool due = s->wal_pages >= (list_is_empty(&s->waiting) ? s->wal_soft : hard);

	if (!due || s->checkpointing || !s->db || s->broken)
		return;
	s->checkpointing = true;
	if (pool_run_ordered(s->loop, STORE_QUEUE, checkpoint_work, checkpoint_after, s, NULL))
		s->checkpointing = false;
}

static void commit_work(void *arg)
{
	struct store *s = arg;

	s->batch_rc = db_commit(s->db, s->batch, &s->wal_pages, &s->batch_err);
}

static void commit_ok(struct store *s)
{
	usec_t took = loop_now(s->loop) - s->batch_start;
	struct list *l;

	s->stats.commits++;
	prom_hist_add(&s->stats.commit_seconds, &store_commit_buckets, (double)took / 1e6);
	s->stats.commit_max = MAX(s->stats.commit_max, took);
	s->stats.log_rows += s->batch->n_rows;
	gc_done(s, true);
	while ((l = list_pop_head(&s->flying)))
		publish(s, LIST_ENTRY(l, struct store_write, link));
	run_barriers(s, true);
}

static void commit_after(void *arg)
{
	struct store *s = arg;

	if (!s->batch_rc) {
		commit_ok(s);
	} else {
		struct err err = s->batch_err;

		gc_done(s, false);
		if (s->batch_rc != RC_BUSY) {
			s->broken = true;
			err_prepend(&err, "the store failed and must be opened again");
			err.rc = RC_CLOSED;
		} else {
			err_prepend(&err, "the store refused the write");
		}
		log_error("%s", err.msg);
		fail_all(s, s->broken ? RC_CLOSED : RC_IO, &err);
		if (s->broken && s->on_broken)
			s->on_broken(s->broken_arg);
	}
	s->running = false;
	maybe_checkpoint(s);
	kick(s);
}

static void fill_batch(struct store *s)
{
	struct db_batch *b = s->batch;
	struct list *l;

	b->n_rows = b->n_gc = 0;
	while (b->n_rows < STORE_BATCH_ROWS && (l = list_pop_head(&s->waiting))) {
		struct store_write *w = LIST_ENTRY(l, struct store_write, link);
		struct obj *o = w->obj;

		list_push_tail(&s->flying, l);
		s->n_waiting--;
		b->rows[b->n_rows++] = (struct db_row){
			.rev = o->rev,
			.prev = w->prev,
			.key = o->entry->key,
			.deleted = o->deleted,
			.written = o->written,
			.text = o->text,
			.n_text = o->n_text,
		};
	}
	while (b->n_gc < STORE_BATCH_GC && (l = list_pop_head(&s->gc))) {
		list_push_tail(&s->gc_flying, l);
		b->gc[b->n_gc++] = LIST_ENTRY(l, struct obj, gc)->rev;
	}
	b->compact_rev = s->compact_rev;
}

static void unfill_batch(struct store *s)
{
	while (!list_is_empty(&s->flying)) {
		struct list *l = s->flying.prev;

		list_remove(l);
		list_push_head(&s->waiting, l);
		s->n_waiting++;
	}
	gc_done(s, false);
}

static void kick(struct store *s)
{
	if (s->running || s->broken || list_is_empty(&s->waiting))
		return;
	fill_batch(s);
	s->running = true;
	s->batch_start = loop_now(s->loop);
	s->batch_rc = RC_OK;
	if (!s->db) {
		ev_timer_rearm(s->timer, 0);
		return;
	}
	if (pool_run_ordered(s->loop, STORE_QUEUE, commit_work, commit_after, s, NULL)) {
		s->running = false;
		unfill_batch(s);
		ev_timer_rearm(s->timer, 10 * USEC_PER_MSEC);
	}
}

static void on_timer(void *arg)
{
	struct store *s = arg;

	if (s->db)
		kick(s);
	else if (s->running)
		commit_after(s);
}

/* ---- writing --------------------------------------------------------------------------------- */

static enum rc check_expect(struct store *s, enum store_op op, const char *key, int64_t expect,
			    struct err *err)
{
	struct obj *cur = store_newest(s, key);

	if (op == STORE_CREATE && cur)
		return err_set(err, RC_EXISTS, "'%s' already exists", key);
	if (op != STORE_CREATE && !cur)
		return err_set(err, RC_NOT_FOUND, "'%s' not found", key);
	if (op != STORE_CREATE && cur->rev != expect)
		return err_set(err, RC_CONFLICT, "'%s' is at revision %lld, not %lld", key,
			       (long long)cur->rev, (long long)expect);
	return RC_OK;
}

/* Kind and apiVersion stand first, as Kubernetes has them: lists of Kubernetes' kinds leave them out, and find them
 * there (text_add_item()).  A new reference; NULL: out of memory. */
static struct json *in_order(const struct json *body)
{
	static const char *const first[] = {"kind", "apiVersion"};
	struct js_iter it = js_iter_first(body);
	size_t i = 0;

	for (; i < ARRAY_SIZE(first) && it.key && strcmp(it.key, first[i]) == 0; i++)
		js_iter_next(&it);
	if (i == ARRAY_SIZE(first) || !js_get(body, first[0]) || !js_get(body, first[1]))
		return js_ref(body);
	CLEANUP(js_unrefp) struct json *out = js_new_object();

	for (i = 0; out && i < ARRAY_SIZE(first); i++)
		if (js_set(out, first[i], js_ref(js_get(body, first[i]))))
			return NULL;
	JS_FOREACH(m, body)
		if (out && !js_get(out, m.key) && js_set(out, m.key, js_ref(m.value)))
			return NULL;
	return STEAL(out);
}

static enum rc render(struct json *body, int64_t rev, char **text, size_t *n, struct err *err)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(LIMIT_OBJECT_BYTES);
	struct json *meta = js_ensure_object(body, "metadata");
	char rv[24];

	snprintf(rv, sizeof(rv), "%lld", (long long)rev);
	if (!meta || js_set(meta, "resourceVersion", js_new_str(rv)))
		return err_set(err, RC_NOMEM, "out of memory");
	CLEANUP(js_unrefp) struct json *ordered = in_order(body);

	if (!ordered)
		return err_set(err, RC_NOMEM, "out of memory");
	js_print(ordered, &b, false);
	enum rc rc = sbuf_take(&b, text, n);

	if (rc == RC_TOO_BIG)
		return err_set(err, rc, "the object is larger than %u bytes", LIMIT_OBJECT_BYTES);
	return rc ? err_set(err, rc, "out of memory") : RC_OK;
}

static void queue(struct store *s, struct store_write *w)
{
	struct entry *e = w->obj->entry;
	struct obj *was = store_newest(s, e->key);

	if (s->newest_listener)
		s->newest_listener(s->newest_arg, e->key, was, w->obj->deleted ? NULL : w->obj);
	w->prev = e->tail_rev;
	e->tail_rev = w->obj->rev;
	e->pending++;
	obj_unref(e->newest);
	e->newest = obj_ref(w->obj);
	s->next_rev = w->obj->rev;
	list_push_tail(&s->waiting, &w->link);
	s->n_waiting++;
	kick(s);
}

static enum rc make_write(struct store *s, enum store_op op, const char *key, struct json *body,
			  struct store_write **out, struct err *err)
{
	struct store_write *w = mem_alloc(sizeof(*w));
	struct entry *e = NULL;
	char *text = NULL;
	size_t n = 0;
	enum rc rc = w ? render(body, s->next_rev + 1, &text, &n, err)
		       : err_set(err, RC_NOMEM, "out of memory");

	if (!rc) {
		rc = store_entry(s, key, &e, err);
		if (rc)
			mem_free(text);
		else if (obj_new(&w->obj, e, text, n))
			rc = err_set(err, RC_NOMEM, "out of memory");
	}
	if (rc) {
		if (e && !e->pending && !e->last_rev)
			entry_remove(e);
		mem_free(w);
		return rc;
	}
	w->obj->rev = s->next_rev + 1;
	w->obj->deleted = op == STORE_DELETE;
	w->obj->written = loop_realtime(s->loop);
	*out = w;
	return RC_OK;
}

enum rc store_write(struct store *s, enum store_op op, const char *key, int64_t expect,
		    struct json *body, store_done_fn done, void *arg, struct store_write **out,
		    struct err *err)
{
	struct store_write *w = NULL;
	enum rc rc = RC_OK;

	if (s->broken)
		rc = err_set(err, RC_CLOSED, "the store failed and must be opened again");
	else if (s->n_waiting >= STORE_MAX_WAITING)
		rc = err_set(err, RC_BUSY, "%zu writes wait for the disk", s->n_waiting);
	if (!rc)
		rc = check_expect(s, op, key, expect, err);
	if (!rc)
		rc = make_write(s, op, key, body, &w, err);
	if (rc) {
		js_unref(body);
		return rc;
	}
	obj_keep_json(w->obj, body);
	w->done = done;
	w->arg = arg;
	queue(s, w);
	if (out)
		*out = w;
	return RC_OK;
}

void store_write_forget(struct store_write *w)
{
	w->done = NULL;
}

/* ---- open and close -------------------------------------------------------------------------- */

static void table_free(void *arg)
{
	struct table *t = arg;

	for (size_t i = 0; i < t->n; i++) {
		obj_unref(t->entries[i]->cur);
		obj_unref(t->entries[i]->newest);
		entry_unref(t->entries[i]);
	}
	mem_free(t->entries);
	mem_free(t->name);
	mem_free(t);
}

static enum rc load_row(void *arg, const struct db_row *row, struct err *err)
{
	struct store *s = arg;
	struct entry *e = NULL;
	struct obj *o = NULL;
	struct store_event ev;

	if (row->rev <= s->rev)
		return err_set(err, RC_IO, "revision %lld of the store is damaged",
			       (long long)row->rev);
	enum rc rc = store_entry(s, row->key, &e, err);

	if (rc)
		return rc;
	char *text = mem_strndup(row->text, row->n_text);

	if (!text || obj_new(&o, e, text, row->n_text))
		return err_set(err, RC_NOMEM, "out of memory");
	o->rev = row->rev;
	o->deleted = row->deleted;
	o->written = row->written;
	e->tail_rev = row->rev;
	if (row->prev != e->last_rev && row->prev != 0 && e->last_rev != 0)
		log_warn(
			"store: revision %lld of '%s' follows %lld, but the log has %lld before it",
			(long long)row->rev, row->key, (long long)row->prev,
			(long long)e->last_rev);
	store_apply(s, o, &ev);
	s->stats.log_rows++;
	return RC_OK;
}

/* Everything at or before the compaction mark may not be promised to watchers: it is not in the ring.
 * store_apply() moves the mark, so remember what the file says. */
static enum rc load(struct store *s, int64_t compact_rev, struct err *err)
{
	enum rc rc = db_load(s->db, load_row, s, err);

	if (rc)
		return rc;
	s->rev = MAX(s->rev, compact_rev);
	s->next_rev = s->rev;
	store_forget_before(s, compact_rev);
	return RC_OK;
}

static enum rc alloc_parts(struct store *s, const struct store_opts *o, struct err *err)
{
	s->batch = mem_alloc(sizeof(*s->batch));
	if (!s->batch || ring_init(&s->ring, o->ring_events ? o->ring_events : 4096,
				   o->ring_bytes ? o->ring_bytes : 8 * MIB))
		return err_set(err, RC_NOMEM, "out of memory");
	enum rc rc = ev_timer_after(s->loop, &s->timer, USEC_INFINITY, on_timer, s, err);

	return rc;
}

enum rc store_open(struct store **out, struct loop *loop, const struct store_opts *opts,
		   struct err *err)
{
	static const struct store_opts none = {0};
	const struct store_opts *o = opts ? opts : &none;
	CLEANUP(store_closep) struct store *s = mem_alloc(sizeof(*s));
	int64_t compact_rev = 0;

	if (!s)
		return err_set(err, RC_NOMEM, "out of memory");
	s->loop = loop;
	s->wal_soft = o->wal_pages ? o->wal_pages : STORE_WAL_SOFT;
	s->max_json = o->json_cache ? o->json_cache : 256;
	s->max_json_text = o->json_text ? o->json_text : 512 * KIB;
	s->on_broken = o->on_broken;
	s->broken_arg = o->arg;
	map_init(&s->tables, table_free);
	list_init(&s->waiting);
	list_init(&s->flying);
	list_init(&s->gc);
	list_init(&s->gc_flying);
	list_init(&s->barriers);
	list_init(&s->lru);
	enum rc rc = alloc_parts(s, o, err);

	if (!rc && o->path && !(s->path = mem_strdup(o->path)))
		rc = err_set(err, RC_NOMEM, "out of memory");
	if (!rc && o->path)
		rc = db_open(&s->db, o->path, o->vfs, 0, &compact_rev, err);
	if (!rc && o->path && store_backup_sweep(s))
		rc = err_set(err, RC_NOMEM, "out of memory");
	if (!rc && o->path)
		rc = load(s, compact_rev, err);
	if (rc)
		return rc;
	*out = STEAL(s);
	return RC_OK;
}

static void drop_writes(struct list *head)
{
	struct list *l;

	while ((l = list_pop_head(head)))
		write_free(LIST_ENTRY(l, struct store_write, link));
}

static void drop_gc(struct list *head)
{
	struct list *l;

	while ((l = list_pop_head(head)))
		obj_unref(LIST_ENTRY(l, struct obj, gc));
}

struct store *store_close(struct store *s)
{
	if (!s)
		return NULL;
	s->listener = NULL;
	s->on_broken = NULL;
	LIST_FOREACH(it, &s->flying)
		LIST_ENTRY(it, struct store_write, link)->done = NULL;
	LIST_FOREACH(it, &s->waiting)
		LIST_ENTRY(it, struct store_write, link)->done = NULL;
	while (!list_is_empty(&s->barriers))
		store_barrier_disarm(LIST_ENTRY(s->barriers.next, struct store_barrier, link));
	store_backup_end(s);
	while (s->running || s->checkpointing || s->backup)
		if (loop_step(s->loop, USEC_PER_SEC, NULL, NULL))
			break;
	ev_src_free(s->timer);
	drop_writes(&s->waiting);
	drop_writes(&s->flying);
	ring_fini(s);
	drop_gc(&s->gc);
	drop_gc(&s->gc_flying);
	map_fini(&s->tables);
	db_close(s->db);
	mem_free(s->path);
	mem_free(s->batch);
	return mem_free(s);
}

bool store_is_idle(const struct store *s)
{
	return !s->running && list_is_empty(&s->waiting);
}

bool store_is_healthy(const struct store *s)
{
	return !s->broken;
}

const char *store_path(const struct store *s)
{
	return s->path;
}

const char *store_checkpoint_error(const struct store *s)
{
	return s->checkpoint_failing ? s->checkpoint_text : NULL;
}

/* As etcd's for its log. */
const struct prom_buckets store_commit_buckets = {14,
						  {0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064,
						   0.128, 0.256, 0.512, 1.024, 2.048, 4.096,
						   8.192}};

void store_get_stats(const struct store *s, struct store_stats *out)
{
	*out = s->stats;
	out->waiting = s->n_waiting;
	out->ring = s->ring.n;
	out->wal_pages = s->wal_pages;
	MAP_FOREACH(it, &s->tables) {
		const struct table *t = it->value;

		out->objects += t->live;
	}
	out->text_bytes = s->ring.bytes;
}
