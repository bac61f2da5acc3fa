#include "kube/kcache.h"

#include <string.h>

#include "api/api.h"
#include "api/gen/api_types.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"
#include "ev/ev.h"
#include "kube/kcache_int.h"

/* Theory of operation
 *
 * Per source: a map of entries by "ns/name", a list of all of them in order of first appearance, and
 * indexes.  An index maps a value to a bucket, which is a list of references to entries; an entry owns
 * its references.  When an object changes, its references are made anew only if its index values did.
 *
 * Versions decide what enters: never an older version over a newer one of the same name.  An answer to
 * an own write (kcache_feed) enters before the watch brings it, unless the watch is already past its
 * version; from then on the watch's older events for that object are dropped.  An own delete leaves a
 * note (ksource.gone) so that late events do not bring the object back.
 */

enum { INDEX_NS, INDEX_OWNER, INDEX__FIXED };

struct kcache_handler {
	struct list link;
	struct kcache *cache;
	const struct api_kind *kind;
	kcache_event_fn fn;
	void *arg;
};

static void on_synced_deferred(void *arg);

static void free_text(void *p)
{
	mem_free(p);
}

enum rc kcache_new(struct kcache **out, struct loop *loop, struct kube *kube,
		   const struct kcache_opts *opts, struct err *err)
{
	struct kcache *c = mem_alloc(sizeof(*c));
	enum rc rc = RC_OK;

	if (!c)
		return err_set(err, RC_NOMEM, "cannot allocate a cache");
	c->loop = loop;
	c->kube = kube;
	if (opts)
		c->opts = *opts;
	if (!c->opts.backoff_min)
		c->opts.backoff_min = 50 * USEC_PER_MSEC;
	if (!c->opts.backoff_max)
		c->opts.backoff_max = 3 * USEC_PER_SEC;
	if (!c->opts.page)
		c->opts.page = 500;
	c->rand = c->opts.seed ? c->opts.seed : rand_u64() | 1;
	list_init(&c->sources);
	list_init(&c->handlers);
	if (loop)
		rc = ev_timer_after(loop, &c->synced_src, USEC_INFINITY, on_synced_deferred, c,
				    err);
	if (rc) {
		mem_free(c);
		return rc;
	}
	*out = c;
	return RC_OK;
}

/* Entries and their index references */

static void ref_drop(struct kref *r)
{
	if (!r->bucket)
		return;
	list_remove(&r->link);
	if (list_is_empty(&r->bucket->refs))
		map_del(&r->bucket->index->buckets, r->bucket->value);
	r->bucket = NULL;
}

static void refs_free(struct kref *refs, size_t n)
{
	for (size_t i = 0; i < n; i++)
		ref_drop(&refs[i]);
	mem_free(refs);
}

static void entry_destroy(struct kentry *e)
{
	list_remove(&e->link);
	refs_free(e->refs, e->n_refs);
	kobj_unref(e->obj);
	mem_free(e);
}

static void source_free(struct ksource *s)
{
	kreflect_stop(s);
	while (!list_is_empty(&s->all))
		entry_destroy(LIST_ENTRY(s->all.next, struct kentry, link));
	map_fini(&s->entries);
	for (size_t i = 0; i < s->n_indexes; i++) {
		map_fini(&s->indexes[i].buckets);
		mem_free(s->indexes[i].name);
	}
	mem_free(s->indexes);
	map_fini(&s->gone);
	mem_free(s->ns);
	mem_free(s->label_selector);
	mem_free(s->field_selector);
	mem_free(s->continue_);
	mem_free(s->rv_text);
	list_remove(&s->link);
	mem_free(s);
}

struct kcache *kcache_free(struct kcache *c)
{
	if (!c)
		return NULL;
	assert(!c->notifying);
	while (!list_is_empty(&c->sources))
		source_free(LIST_ENTRY(c->sources.next, struct ksource, link));
	LIST_FOREACH(l, &c->handlers)
		LIST_ENTRY(l, struct kcache_handler, link)->cache = NULL;
	while (!list_is_empty(&c->handlers))
		list_pop_head(&c->handlers);
	ev_src_free(c->synced_src);
	return mem_free(c);
}

static struct ksource *source_of(const struct kcache *c, const struct api_kind *kind)
{
	LIST_FOREACH(l, &c->sources) {
		struct ksource *s = LIST_ENTRY(l, struct ksource, link);

		if (s->kind == kind)
			return s;
	}
	return NULL;
}

/* References of one object, collected while its index functions emit. */
struct collect {
	struct ksource *source;
	struct kindex *index;
	struct kref *refs;
	size_t n;
	size_t cap;
	enum rc rc;
};

static struct kbucket *bucket_of(struct kindex *ix, const char *value)
{
	struct kbucket *b = map_get(&ix->buckets, value);
	size_t n = strlen(value) + 1;

	if (b)
		return b;
	b = mem_alloc(sizeof(*b) + n);
	if (!b)
		return NULL;
	list_init(&b->refs);
	b->index = ix;
	memcpy(b->value, value, n);
	if (map_set(&ix->buckets, b->value, b))
		return mem_free(b);
	return b;
}

static void collect_emit(void *ctx, const char *value)
{
	struct collect *c = ctx;
	struct kbucket *b;

	if (c->rc || !value)
		return;
	b = bucket_of(c->index, value);
	for (size_t i = 0; b && i < c->n; i++)
		if (c->refs[i].bucket == b)
			return; /* emitted twice */
	if (!b || !mem_grow((void **)&c->refs, &c->cap, c->n, sizeof(*c->refs))) {
		if (b && list_is_empty(&b->refs))
			map_del(&c->index->buckets, b->value);
		c->rc = RC_NOMEM;
		return;
	}
	c->refs[c->n++] = (struct kref){.bucket = b};
}

static void index_owners(const struct kobj *o, kcache_emit_fn emit, void *ctx)
{
	const ObjectMeta *m = kobj_meta(o);

	for (size_t i = 0; i < m->n_ownerReferences; i++)
		emit(ctx, m->ownerReferences[i].uid);
}

static void index_ns(const struct kobj *o, kcache_emit_fn emit, void *ctx)
{
	if (*kobj_ns(o))
		emit(ctx, kobj_ns(o));
}

static void collect_free(struct collect *c)
{
	for (size_t i = 0; i < c->n; i++) {
		struct kbucket *b = c->refs[i].bucket;

		/* One reference per bucket: no bucket is looked at after it was freed. */
		if (list_is_empty(&b->refs))
			map_del(&b->index->buckets, b->value);
	}
	mem_free(c->refs);
}

static enum rc collect_refs(struct ksource *s, const struct kobj *o, struct collect *c)
{
	*c = (struct collect){.source = s};
	for (size_t i = 0; i < s->n_indexes && !c->rc; i++) {
		c->index = &s->indexes[i];
		if (c->index->fn)
			c->index->fn(o, collect_emit, c);
		else
			collect_emit(c, api_map_get(&kobj_meta(o)->labels, c->index->name));
	}
	return c->rc;
}

static bool same_refs(const struct kentry *e, const struct collect *c)
{
	if (e->n_refs != c->n)
		return false;
	for (size_t i = 0; i < c->n; i++)
		if (e->refs[i].bucket != c->refs[i].bucket)
			return false;
	return true;
}

/* They are kept for long: without the room that was for more of them. */
static enum rc fit(struct collect *c)
{
	struct kref *refs = c->n ? mem_realloc_array(c->refs, c->n, sizeof(*c->refs)) : NULL;

	if (refs)
		c->refs = refs;
	return refs || !c->n ? RC_OK : RC_NOMEM;
}

/* e: the object's entry; NULL: it has none.  *is_same: its references can stay. */
static enum rc find_refs(struct ksource *s, const struct kobj *o, const struct kentry *e,
			 struct collect *c, bool *is_same)
{
	enum rc rc = collect_refs(s, o, c);

	*is_same = !rc && e && same_refs(e, c);
	return rc || *is_same ? rc : fit(c);
}

static void entry_set_refs(struct kentry *e, struct collect *c)
{
	struct kref *old = e->refs;
	size_t n_old = e->n_refs;

	e->refs = c->refs;
	e->n_refs = (uint32_t)c->n;
	for (size_t i = 0; i < e->n_refs; i++) {
		e->refs[i].entry = e;
		list_push_tail(&e->refs[i].bucket->refs, &e->refs[i].link);
	}
	refs_free(old, n_old); /* after: a bucket that both use stays alive */
}

static void notify(struct kcache *c, const struct api_kind *kind, const struct kobj *old,
		   const struct kobj *new)
{
	c->notifying++;
	LIST_FOREACH(l, &c->handlers) {
		struct kcache_handler *h = LIST_ENTRY(l, struct kcache_handler, link);

		if (!h->kind || h->kind == kind)
			h->fn(old, new, h->arg);
	}
	c->notifying--;
}

static void key_of(char *buf, size_t n, const char *ns, const char *name)
{
	size_t a = ns ? strnlen(ns, LIMIT_NAME_BYTES) : 0, b = strnlen(name, LIMIT_NAME_BYTES);

	assert(a + b + 2 <= n);
	if (a)
		memcpy(buf, ns, a);
	buf[a] = '/';
	memcpy(buf + a + 1, name, b);
	buf[a + 1 + b] = '\0';
}

enum { KEY_BYTES = 2 * LIMIT_NAME_BYTES + 2 };

struct kentry *ksource_find(const struct ksource *s, const char *ns, const char *name)
{
	char key[KEY_BYTES];

	key_of(key, sizeof(key), ns, name);
	return map_get(&s->entries, key);
}

static enum rc entry_add(struct ksource *s, const char *key, struct kobj *o, struct kentry **out)
{
	size_t n = strlen(key) + 1;
	struct kentry *e = mem_alloc(sizeof(*e) + n);

	if (!e)
		return RC_NOMEM;
	memcpy(e->key, key, n);
	if (map_set(&s->entries, e->key, e)) {
		mem_free(e);
		return RC_NOMEM;
	}
	e->obj = kobj_ref(o);
	list_push_tail(&s->all, &e->link);
	s->cache->stats.objects++;
	*out = e;
	return RC_OK;
}

/* An own delete of just this object was answered; what still arrives of it is old. */
static bool is_noted_gone(struct ksource *s, const char *key, const struct kobj *o)
{
	struct kgone *g = map_get(&s->gone, key);

	if (!g || strcmp(g->uid, kobj_uid(o)) != 0)
		return false;
	g->list_run = s->list_run;
	return true;
}

enum rc ksource_put(struct ksource *s, struct kobj *o, bool is_fed, bool force)
{
	CLEANUP(kobj_unrefp) struct kobj *old = NULL;
	struct collect c;
	char key[KEY_BYTES];
	struct kentry *e;
	bool is_same;
	enum rc rc;

	assert(!s->cache->notifying);
	key_of(key, sizeof(key), kobj_ns(o), kobj_name(o));
	e = map_get(&s->entries, key);
	if (!force &&
	    (is_noted_gone(s, key, o) || (e && kobj_rv(o) && kobj_rv(o) < kobj_rv(e->obj)))) {
		s->cache->stats.stale++;
		if (e)
			e->list_run = s->list_run;
		return RC_OK;
	}
	if (!force && e && kobj_rv(o) && kobj_rv(o) == kobj_rv(e->obj)) {
		e->list_run = s->list_run;
		e->is_fed = e->is_fed && is_fed;
		return RC_OK;
	}
	rc = find_refs(s, o, e, &c, &is_same);
	if (!rc && !e) {
		rc = entry_add(s, key, o, &e);
	} else if (!rc) {
		old = e->obj;
		e->obj = kobj_ref(o);
	}
	if (rc) {
		collect_free(&c);
		return rc;
	}
	if (is_same)
		mem_free(c.refs);
	else
		entry_set_refs(e, &c);
	e->list_run = s->list_run;
	e->is_fed = is_fed;
	notify(s->cache, s->kind, old, o);
	return RC_OK;
}

void ksource_remove(struct ksource *s, struct kentry *e)
{
	CLEANUP(kobj_unrefp) struct kobj *old = kobj_ref(e->obj);

	assert(!s->cache->notifying);
	map_take(&s->entries, e->key);
	entry_destroy(e);
	s->cache->stats.objects--;
	notify(s->cache, s->kind, old, NULL);
}

/* Sources and indexes */

static enum rc index_add(struct ksource *s, const char *name, kcache_index_fn fn)
{
	struct kindex *more = mem_realloc_array(s->indexes, s->n_indexes + 1, sizeof(*more));

	if (!more)
		return RC_NOMEM;
	s->indexes = more;
	more[s->n_indexes] = (struct kindex){.name = mem_strdup(name), .fn = fn};
	if (!more[s->n_indexes].name)
		return RC_NOMEM;
	map_init_borrowing(&more[s->n_indexes].buckets, free_text);
	s->n_indexes++;
	return RC_OK;
}

static enum rc dup_opt(char **out, const char *text)
{
	if (str_is_empty(text))
		return RC_OK;
	*out = mem_strdup(text);
	return *out ? RC_OK : RC_NOMEM;
}

static bool same_text(const char *have, const char *want)
{
	return str_eq(have, str_is_empty(want) ? NULL : want);
}

enum rc kcache_add(struct kcache *c, const struct kcache_source *src, struct err *err)
{
	struct ksource *s = source_of(c, src->kind);
	enum rc rc;

	if (s) {
		if (same_text(s->ns, src->ns) &&
		    same_text(s->label_selector, src->label_selector) &&
		    same_text(s->field_selector, src->field_selector))
			return RC_OK;
		return err_set(err, RC_EXISTS, "the cache has another selection of %s already",
			       src->kind->plural);
	}
	assert(!c->is_started);
	s = mem_alloc(sizeof(*s));
	if (!s)
		return err_set(err, RC_NOMEM, "cannot allocate an informer");
	s->cache = c;
	s->kind = src->kind;
	list_init(&s->all);
	map_init_borrowing(&s->entries, NULL);
	map_init(&s->gone, free_text);
	list_push_tail(&c->sources, &s->link);
	rc = dup_opt(&s->ns, src->ns);
	if (!rc)
		rc = dup_opt(&s->label_selector, src->label_selector);
	if (!rc)
		rc = dup_opt(&s->field_selector, src->field_selector);
	if (!rc)
		rc = index_add(s, "", index_ns);
	if (!rc)
		rc = index_add(s, "", index_owners);
	if (!rc && c->loop)
		rc = kreflect_init(s, err);
	if (!rc)
		return RC_OK;
	source_free(s);
	return err_set(err, rc, "cannot allocate an informer");
}

enum rc kcache_index(struct kcache *c, const struct api_kind *kind, const char *index,
		     kcache_index_fn fn, struct err *err)
{
	struct ksource *s = source_of(c, kind);
	enum rc rc;

	if (!s)
		return err_set(err, RC_NOT_FOUND, "the cache has no %s to index", kind->plural);
	for (size_t i = INDEX__FIXED; i < s->n_indexes; i++) {
		if (!str_eq(s->indexes[i].name, index))
			continue;
		if (s->indexes[i].fn == fn)
			return RC_OK;
		return err_set(err, RC_EXISTS, "index '%s' of %s has another function", index,
			       kind->plural);
	}
	assert(!c->is_started && list_is_empty(&s->all));
	rc = index_add(s, index, fn);
	return rc ? err_set(err, rc, "cannot allocate index '%s'", index) : RC_OK;
}

enum rc kcache_index_label(struct kcache *c, const struct api_kind *kind, const char *label,
			   struct err *err)
{
	return kcache_index(c, kind, label, NULL, err);
}

enum rc kcache_start(struct kcache *c, struct err *err)
{
	if (c->is_started)
		return RC_OK;
	if (!c->kube)
		return err_set(err, RC_INVALID, "this cache has no API server to ask");
	c->is_started = true;
	LIST_FOREACH(l, &c->sources)
		kreflect_start(LIST_ENTRY(l, struct ksource, link));
	if (list_is_empty(&c->sources))
		ev_timer_rearm(c->synced_src, 0);
	return RC_OK;
}

bool kcache_is_synced(const struct kcache *c)
{
	LIST_FOREACH(l, &c->sources)
		if (!LIST_ENTRY(l, struct ksource, link)->is_synced)
			return false;
	return c->is_started || !c->kube;
}

bool kcache_has_kind(const struct kcache *c, const struct api_kind *kind)
{
	return source_of(c, kind) != NULL;
}

static void on_synced_deferred(void *arg)
{
	struct kcache *c = arg;

	if (c->told_synced || !c->on_synced || !kcache_is_synced(c))
		return;
	c->told_synced = true;
	c->on_synced(c->on_synced_arg);
}

void ksource_synced(struct ksource *s)
{
	s->is_synced = true;
	if (kcache_is_synced(s->cache))
		ev_timer_rearm(s->cache->synced_src, 0);
}

void kcache_on_synced(struct kcache *c, void (*fn)(void *arg), void *arg)
{
	c->on_synced = fn;
	c->on_synced_arg = arg;
	c->told_synced = false;
	if (fn && c->synced_src && kcache_is_synced(c))
		ev_timer_rearm(c->synced_src, 0);
}

/* Handlers */

enum rc kcache_on(struct kcache *c, struct kcache_handler **out, const struct api_kind *kind,
		  kcache_event_fn fn, void *arg, struct err *err)
{
	struct kcache_handler *h = mem_alloc(sizeof(*h));

	assert(!c->notifying);
	if (!h)
		return err_set(err, RC_NOMEM, "cannot allocate a handler");
	h->cache = c;
	h->kind = kind;
	h->fn = fn;
	h->arg = arg;
	list_push_tail(&c->handlers, &h->link);
	*out = h;
	c->notifying++;
	LIST_FOREACH(l, &c->sources) {
		struct ksource *s = LIST_ENTRY(l, struct ksource, link);

		if (kind && s->kind != kind)
			continue;
		LIST_FOREACH(le, &s->all)
			fn(NULL, LIST_ENTRY(le, struct kentry, link)->obj, arg);
	}
	c->notifying--;
	return RC_OK;
}

struct kcache_handler *kcache_handler_free(struct kcache_handler *h)
{
	if (!h)
		return NULL;
	assert(!h->cache || !h->cache->notifying);
	list_remove(&h->link);
	return mem_free(h);
}

/* Look-ups */

const struct kobj *kcache_get(const struct kcache *c, const struct api_kind *kind, const char *ns,
			      const char *name)
{
	const struct ksource *s = source_of(c, kind);
	const struct kentry *e;

	assert(s);
	e = str_is_empty(name) ? NULL : ksource_find(s, kind->is_namespaced ? ns : NULL, name);
	return e ? e->obj : NULL;
}

const struct kobj *kiter_next(struct kiter *it)
{
	const struct list *l = it->at;

	if (!l || l == it->head)
		return NULL;
	it->at = l->next;
	if (it->is_ref)
		return LIST_ENTRY(l, struct kref, link)->entry->obj;
	return LIST_ENTRY(l, struct kentry, link)->obj;
}

static void iter_bucket(const struct kindex *ix, const char *value, struct kiter *it)
{
	const struct kbucket *b = value ? map_get(&ix->buckets, value) : NULL;

	*it = (struct kiter){.is_ref = true};
	if (!b)
		return;
	it->head = &b->refs;
	it->at = b->refs.next;
}

void kcache_list(const struct kcache *c, const struct api_kind *kind, const char *ns,
		 struct kiter *it)
{
	const struct ksource *s = source_of(c, kind);

	assert(s);
	if (ns && kind->is_namespaced)
		iter_bucket(&s->indexes[INDEX_NS], ns, it);
	else
		*it = (struct kiter){.head = &s->all, .at = s->all.next};
}

void kcache_by_owner(const struct kcache *c, const struct api_kind *kind, const char *owner_uid,
		     struct kiter *it)
{
	const struct ksource *s = source_of(c, kind);

	assert(s);
	iter_bucket(&s->indexes[INDEX_OWNER], owner_uid, it);
}

void kcache_by(const struct kcache *c, const struct api_kind *kind, const char *index,
	       const char *value, struct kiter *it)
{
	const struct ksource *s = source_of(c, kind);

	assert(s);
	for (size_t i = INDEX__FIXED; i < s->n_indexes; i++) {
		if (str_eq(s->indexes[i].name, index)) {
			iter_bucket(&s->indexes[i], value, it);
			return;
		}
	}
	assert(!"no such index"); /* declare it in the controller's definition */
}

size_t kcache_count(const struct kcache *c, const struct api_kind *kind)
{
	const struct ksource *s = source_of(c, kind);

	return s ? s->entries.n : 0;
}

struct kcache_stats kcache_stats(const struct kcache *c)
{
	return c->stats;
}

/* Own writes */

static bool is_narrowed(const struct ksource *s)
{
	return s->label_selector || s->field_selector;
}

/* Deletion is complete: nothing holds the object any more. */
static bool is_gone(const struct kobj *o)
{
	const ObjectMeta *m = kobj_meta(o);

	return m->deletionTimestamp && !m->n_finalizers &&
	       (!m->has_deletionGracePeriodSeconds || m->deletionGracePeriodSeconds == 0);
}

enum rc kcache_feed(struct kcache *c, const struct kobj *o, struct err *err)
{
	struct ksource *s = source_of(c, kobj_kind(o));
	enum rc rc;

	if (!s || !s->is_synced || !kobj_rv(o))
		return RC_OK;
	if (s->ns && strcmp(s->ns, kobj_ns(o)) != 0)
		return RC_OK;
	if (is_narrowed(s) && !ksource_find(s, kobj_ns(o), kobj_name(o)))
		return RC_OK;
	if (kobj_rv(o) <= s->rv) {
		c->stats.stale++; /* the watch has brought this or something later */
		return RC_OK;
	}
	if (is_gone(o)) {
		kcache_feed_gone(c, kobj_kind(o), kobj_ns(o), kobj_name(o), kobj_uid(o));
		return RC_OK;
	}
	rc = ksource_put(s, (struct kobj *)o, true, false);
	return rc ? err_set(err, rc, "cannot store %s '%s'", s->kind->kind, kobj_name(o)) : RC_OK;
}

void kcache_feed_gone(struct kcache *c, const struct api_kind *kind, const char *ns,
		      const char *name, const char *uid)
{
	struct ksource *s = source_of(c, kind);
	struct kentry *e = s ? ksource_find(s, kind->is_namespaced ? ns : NULL, name) : NULL;
	struct kgone *note;

	if (!e || str_is_empty(uid) || strcmp(kobj_uid(e->obj), uid) != 0)
		return;
	note = mem_alloc(sizeof(*note) + strlen(uid) + 1);
	if (note)
		memcpy(note->uid, uid, strlen(uid) + 1);
	if (!note || map_set(&s->gone, e->key, note)) {
		mem_free(note); /* the watch will tell, later */
		return;
	}
	ksource_remove(s, e);
}

enum rc kcache_put(struct kcache *c, struct kobj *o, struct err *err)
{
	CLEANUP(kobj_unrefp) struct kobj *mine = o;
	struct ksource *s;
	enum rc rc;

	if (!mine)
		return err_set(err, RC_NOMEM, "no object to put");
	s = source_of(c, kobj_kind(o));
	assert(s && !c->kube);
	rc = ksource_put(s, o, false, true);
	return rc ? err_set(err, rc, "cannot store %s '%s'", s->kind->kind, kobj_name(o)) : RC_OK;
}

void kcache_remove(struct kcache *c, const struct api_kind *kind, const char *ns, const char *name)
{
	struct ksource *s = source_of(c, kind);
	struct kentry *e = s ? ksource_find(s, kind->is_namespaced ? ns : NULL, name) : NULL;

	assert(!c->kube);
	if (e)
		ksource_remove(s, e);
}
