#include "cluster/apiserver/store_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "json/json.h"

/* ---- objects -------------------------------------------------------------------------------- */

enum rc obj_new(struct obj **out, struct entry *e, char *text, size_t n)
{
	struct obj *o = mem_alloc(sizeof(*o));

	if (!o) {
		mem_free(text);
		return RC_NOMEM;
	}
	o->refs = 1;
	o->entry = e;
	e->refs++;
	o->text = text;
	o->n_text = n;
	*out = o;
	return RC_OK;
}

struct obj *obj_ref(struct obj *o)
{
	o->refs++;
	return o;
}

static void drop_json(struct obj *o)
{
	struct store *s = o->entry->table->store;

	if (!o->json)
		return;
	list_remove(&o->lru);
	s->n_json--;
	s->json_text -= o->n_text;
	o->json = js_unref(o->json);
}

struct obj *obj_unref(struct obj *o)
{
	if (!o || --o->refs)
		return NULL;
	drop_json(o);
	entry_unref(o->entry);
	mem_free(o->text);
	return mem_free(o);
}

void obj_keep_json(struct obj *o, struct json *json)
{
	struct store *s = o->entry->table->store;

	o->json = json;
	list_push_head(&s->lru, &o->lru);
	s->n_json++;
	s->json_text += o->n_text;
	while (s->n_json > s->max_json || (s->json_text > s->max_json_text && s->n_json > 1))
		drop_json(LIST_ENTRY(s->lru.prev, struct obj, lru));
}

struct json *obj_json(struct obj *o)
{
	struct json *j = NULL;

	if (o->json) {
		struct store *s = o->entry->table->store;

		list_remove(&o->lru);
		list_push_head(&s->lru, &o->lru);
		return js_ref(o->json);
	}
	if (js_parse(o->text, o->n_text, &j, NULL))
		return NULL;
	struct json *ref = js_ref(j);

	obj_keep_json(o, j);
	return ref;
}

const char *obj_key(const struct obj *o)
{
	return o->entry->key;
}

const char *obj_rest(const struct obj *o)
{
	return o->entry->key + o->entry->n_table + 1;
}

const char *obj_table(const struct obj *o)
{
	return o->entry->table->name;
}

int64_t obj_rev(const struct obj *o)
{
	return o->rev;
}

usec_t obj_written(const struct obj *o)
{
	return o->written;
}

const char *obj_text(const struct obj *o, size_t *n)
{
	if (n)
		*n = o->n_text;
	return o->text;
}

/* ---- tables --------------------------------------------------------------------------------- */

struct table *store_table(struct store *s, const char *name, size_t n)
{
	char buf[LIMIT_KEY_TABLE];

	if (n >= sizeof(buf))
		return NULL;
	memcpy(buf, name, n);
	buf[n] = '\0';
	return map_get(&s->tables, buf);
}

/* First entry whose rest is >= rest (after: > rest). */
size_t table_lower_bound(const struct table *t, const char *rest, bool after)
{
	size_t lo = 0, hi = t->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		int c = strcmp(t->entries[mid]->key + t->entries[mid]->n_table + 1, rest);

		if (c < 0 || (after && c == 0))
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

struct entry *table_find(const struct table *t, const char *key)
{
	size_t n_table = strlen(t->name);
	size_t i = table_lower_bound(t, key + n_table + 1, false);

	if (i < t->n && strcmp(t->entries[i]->key, key) == 0)
		return t->entries[i];
	return NULL;
}

static struct entry *find(struct store *s, const char *key)
{
	const char *slash = strchr(key, '/');
	struct table *t = slash ? store_table(s, key, (size_t)(slash - key)) : NULL;

	return t ? table_find(t, key) : NULL;
}

static enum rc make_table(struct store *s, const char *key, size_t n, struct table **out)
{
	struct table *t = mem_alloc(sizeof(*t));

	if (!t)
		return RC_NOMEM;
	t->store = s;
	t->name = mem_strndup(key, n);
	if (!t->name || map_set(&s->tables, t->name, t)) {
		mem_free(t->name);
		mem_free(t);
		return RC_NOMEM;
	}
	*out = t;
	return RC_OK;
}

enum rc store_entry(struct store *s, const char *key, struct entry **out, struct err *err)
{
	const char *slash = strchr(key, '/');
	size_t n = slash ? (size_t)(slash - key) : 0;

	if (!n || n >= LIMIT_KEY_TABLE || !slash[1])
		return err_set(err, RC_INVALID, "key '%s' has no table", key);
	struct table *t = store_table(s, key, n);
	enum rc rc = t ? RC_OK : make_table(s, key, n, &t);

	if (rc)
		return err_set(err, rc, "out of memory");
	size_t i = table_lower_bound(t, slash + 1, false);

	if (i < t->n && strcmp(t->entries[i]->key, key) == 0) {
		*out = t->entries[i];
		return RC_OK;
	}
	size_t n_key = strlen(key) + 1;
	struct entry *e = mem_alloc(sizeof(*e) + n_key);

	if (!e || !mem_grow((void **)&t->entries, &t->cap, t->n, sizeof(struct entry *))) {
		mem_free(e);
		return err_set(err, RC_NOMEM, "out of memory");
	}
	e->refs = 1;
	e->table = t;
	e->n_table = n;
	memcpy(e->key, key, n_key);
	memmove(t->entries + i + 1, t->entries + i, (t->n - i) * sizeof(struct entry *));
	t->entries[i] = e;
	t->n++;
	*out = e;
	return RC_OK;
}

struct entry *entry_unref(struct entry *e)
{
	if (--e->refs)
		return NULL;
	return mem_free(e);
}

void entry_remove(struct entry *e)
{
	struct table *t = e->table;
	size_t i = table_lower_bound(t, e->key + e->n_table + 1, false);

	assert(i < t->n && t->entries[i] == e);
	memmove(t->entries + i, t->entries + i + 1, (t->n - i - 1) * sizeof(struct entry *));
	t->n--;
	entry_unref(e);
}

/* ---- reading -------------------------------------------------------------------------------- */

int64_t store_rev(const struct store *s)
{
	return s->rev;
}

int64_t store_oldest(const struct store *s)
{
	return s->compact_rev;
}

struct obj *store_get(struct store *s, const char *key)
{
	struct entry *e = find(s, key);

	return e ? e->cur : NULL;
}

static struct obj *newest(const struct entry *e)
{
	struct obj *o = e->pending ? e->newest : e->cur;

	return o && !o->deleted ? o : NULL;
}

struct obj *store_newest(struct store *s, const char *key)
{
	struct entry *e = find(s, key);

	return e ? newest(e) : NULL;
}

size_t store_count(struct store *s, const char *table)
{
	struct table *t = map_get(&s->tables, table);

	return t ? t->live : 0;
}

void store_iter_init(struct store_iter *it, struct store *s, const char *table, const char *prefix)
{
	const struct table *t = map_get(&s->tables, table);

	*it = (struct store_iter){.store = s, .table = t, .prefix = prefix ? prefix : ""};
	if (t)
		it->at = table_lower_bound(t, it->prefix, false);
}

void store_iter_in(struct store_iter *it, struct store *s, const char *table, const char *ns)
{
	char prefix[sizeof(it->room)];

	snprintf(prefix, sizeof(prefix), "%s%s", ns ? ns : "", str_is_empty(ns) ? "" : "/");
	store_iter_init(it, s, table, prefix);
	memcpy(it->room, prefix, sizeof(prefix));
	it->prefix = it->room;
}

static const struct entry *iter_entry(struct store_iter *it)
{
	const struct table *t = it->table;

	if (!t || it->at >= t->n)
		return NULL;
	const struct entry *e = t->entries[it->at];

	if (!str_has_prefix(e->key + e->n_table + 1, it->prefix))
		return NULL;
	it->at++;
	return e;
}

struct obj *store_iter_next(struct store_iter *it)
{
	const struct entry *e;

	while ((e = iter_entry(it)))
		if (e->cur)
			return e->cur;
	return NULL;
}

struct obj *store_iter_next_newest(struct store_iter *it)
{
	const struct entry *e;

	while ((e = iter_entry(it)))
		if (newest(e))
			return newest(e);
	return NULL;
}

/* ---- history -------------------------------------------------------------------------------- */

enum rc ring_init(struct ring *r, size_t cap, size_t max_bytes)
{
	r->items = mem_calloc(cap, sizeof(*r->items));
	r->cap = cap;
	r->max_bytes = max_bytes;
	return r->items ? RC_OK : RC_NOMEM;
}

const struct store_event *ring_at(const struct ring *r, size_t i)
{
	return &r->items[(r->first + i) % r->cap];
}

size_t ring_after(const struct ring *r, int64_t rev)
{
	size_t lo = 0, hi = r->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (ring_at(r, mid)->rev <= rev)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static size_t event_bytes(const struct store_event *ev)
{
	return (ev->prev ? ev->prev->n_text : 0) + (ev->obj->deleted ? ev->obj->n_text : 0);
}

/* The row may go with the next commit.  Consumes the reference. */
static void condemn(struct store *s, struct obj *o)
{
	drop_json(o);
	list_push_tail(&s->gc, &o->gc);
}

static void ring_evict(struct store *s)
{
	struct ring *r = &s->ring;
	struct store_event *ev = &r->items[r->first];

	r->bytes -= event_bytes(ev);
	s->compact_rev = ev->rev;
	if (ev->prev)
		condemn(s, ev->prev);
	if (ev->obj->deleted)
		condemn(s, ev->obj);
	else
		obj_unref(ev->obj);
	r->first = (r->first + 1) % r->cap;
	r->n--;
}

void store_forget_before(struct store *s, int64_t rev)
{
	while (s->ring.n && ring_at(&s->ring, 0)->rev <= rev)
		ring_evict(s);
	s->compact_rev = MAX(s->compact_rev, rev);
}

void ring_fini(struct store *s)
{
	struct ring *r = &s->ring;

	for (size_t i = 0; i < r->n; i++) {
		obj_unref(ring_at(r, i)->obj);
		obj_unref(ring_at(r, i)->prev);
	}
	r->n = 0;
	r->items = mem_free(r->items);
}

void store_apply(struct store *s, struct obj *o, struct store_event *ev)
{
	struct entry *e = o->entry;
	struct ring *r = &s->ring;
	struct obj *prev = e->cur;

	assert(o->rev > s->rev);
	s->rev = o->rev;
	e->last_rev = o->rev;
	e->cur = o->deleted ? NULL : obj_ref(o);
	if (e->cur && !prev)
		e->table->live++;
	else if (!e->cur && prev)
		e->table->live--;
	*ev = (struct store_event){
		.rev = o->rev,
		.type = o->deleted ? STORE_DELETED
			: prev	   ? STORE_MODIFIED
				   : STORE_ADDED,
		.obj = o,
		.prev = prev,
	};
	if (prev)
		drop_json(prev);
	if (r->n == r->cap)
		ring_evict(s);
	r->items[(r->first + r->n++) % r->cap] = *ev;
	r->bytes += event_bytes(ev);
	while (r->bytes > r->max_bytes && r->n > 1)
		ring_evict(s);
}

void store_listen(struct store *s, store_event_fn fn, void *arg)
{
	s->listener = fn;
	s->listener_arg = arg;
}

void store_listen_newest(struct store *s, store_newest_fn fn, void *arg)
{
	s->newest_listener = fn;
	s->newest_arg = arg;
}

static enum rc check_rev(const struct store *s, int64_t rev, struct err *err)
{
	if (rev < s->compact_rev)
		return err_set(err, RC_EXPIRED, "too old resource version: %lld (%lld)",
			       (long long)rev, (long long)s->compact_rev);
	if (rev > s->rev)
		return err_set(err, RC_INVALID, "Too large resource version: %lld, current: %lld",
			       (long long)rev, (long long)s->rev);
	return RC_OK;
}

enum rc store_replay(struct store *s, const char *table, int64_t rev, store_event_fn fn, void *arg,
		     struct err *err)
{
	enum rc rc = check_rev(s, rev, err);

	if (rc)
		return rc;
	for (size_t i = ring_after(&s->ring, rev); i < s->ring.n; i++) {
		const struct store_event *ev = ring_at(&s->ring, i);

		if (strcmp(ev->obj->entry->table->name, table) == 0)
			fn(arg, ev);
	}
	return RC_OK;
}

/* ---- lists ---------------------------------------------------------------------------------- */

/* A key whose state at the wanted revision is not its present one. */
struct undo {
	const struct entry *entry;
	int64_t rev;
	struct obj *was; /* NULL: did not exist */
};

static int undo_cmp(const void *a, const void *b)
{
	const struct undo *x = a, *y = b;

	if (x->entry != y->entry)
		return x->entry < y->entry ? -1 : 1;
	return x->rev < y->rev ? -1 : x->rev > y->rev;
}

/* For each key changed after rev: the version that its first later event replaced. */
static enum rc collect_undo(struct store *s, const struct table *t, int64_t rev, struct undo **out,
			    size_t *n_out)
{
	struct ring *r = &s->ring;
	size_t first = ring_after(r, rev), n = 0;
	struct undo *u = mem_calloc(r->n - first + 1, sizeof(*u));

	if (!u)
		return RC_NOMEM;
	for (size_t i = first; i < r->n; i++) {
		const struct store_event *ev = ring_at(r, i);

		if (ev->obj->entry->table == t)
			u[n++] = (struct undo){ev->obj->entry, ev->rev, ev->prev};
	}
	qsort(u, n, sizeof(*u), undo_cmp);
	size_t kept = 0;

	for (size_t i = 0; i < n; i++)
		if (!kept || u[kept - 1].entry != u[i].entry)
			u[kept++] = u[i];
	*out = u;
	*n_out = kept;
	return RC_OK;
}

static struct obj *version_at(const struct entry *e, const struct undo *u, size_t n)
{
	size_t lo = 0, hi = n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (u[mid].entry == e)
			return u[mid].was;
		if (u[mid].entry < e)
			lo = mid + 1;
		else
			hi = mid;
	}
	return e->cur;
}

static enum rc list_add(struct obj_list *l, struct obj *o)
{
	if (!mem_grow((void **)&l->items, &l->cap, l->n, sizeof(*l->items)))
		return RC_NOMEM;
	l->items[l->n++] = obj_ref(o);
	return RC_OK;
}

void obj_list_fini(struct obj_list *l)
{
	for (size_t i = 0; i < l->n; i++)
		obj_unref(l->items[i]);
	l->items = mem_free(l->items);
	l->n = l->cap = 0;
}

static enum rc fill_page(const struct store_page *p, const struct table *t, const struct undo *u,
			 size_t n_undo, struct obj_list *out, bool *more, size_t *remaining)
{
	const char *prefix = p->prefix ? p->prefix : "";
	size_t i = table_lower_bound(t, p->after ? p->after : prefix, p->after != NULL);
	size_t taken = 0;

	for (; i < t->n; i++) {
		const struct entry *e = t->entries[i];

		if (!str_has_prefix(e->key + e->n_table + 1, prefix))
			break;
		struct obj *o = n_undo ? version_at(e, u, n_undo) : e->cur;

		if (!o || (p->keep && !p->keep(o, p->keep_arg)))
			continue;
		if (p->limit && taken == p->limit) {
			*more = true;
			++*remaining;
			if (p->keep)
				break;
			continue;
		}
		if (list_add(out, o))
			return RC_NOMEM;
		taken++;
	}
	return RC_OK;
}

enum rc store_list(struct store *s, const struct store_page *p, struct obj_list *out, bool *more,
		   size_t *remaining, struct err *err)
{
	const struct table *t = map_get(&s->tables, p->table);
	CLEANUP(mem_freep) struct undo *u = NULL;
	size_t n_undo = 0, left = 0;
	enum rc rc = p->rev ? check_rev(s, p->rev, err) : RC_OK;

	*more = false;
	if (remaining)
		*remaining = 0;
	if (rc || !t)
		return rc;
	if (p->rev && p->rev < s->rev)
		rc = collect_undo(s, t, p->rev, &u, &n_undo);
	if (!rc)
		rc = fill_page(p, t, u, n_undo, out, more, &left);
	if (rc)
		return err_set(err, rc, "out of memory");
	if (remaining)
		*remaining = left;
	return RC_OK;
}
