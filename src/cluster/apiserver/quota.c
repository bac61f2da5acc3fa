/* ResourceQuotas: accounts of namespaces, admission, status. */
#include "cluster/apiserver/quota.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "cluster/apiserver/apisrv_int.h"
#include "ev/ev.h"
#include "virt/names.h"

/* Theory of operation
 *
 * An account is made when a namespace with quotas needs one, by looking at all that is there once, and is
 * then kept by quota_newest(), which hears of each write as it is queued.  Whatever makes it doubtful (a
 * quota that changed, a write that was lost, no memory) only marks it: it is made anew when it is needed
 * next.  So admission and status always speak of one and the same number.
 *
 * Pods with the same VM behind them are one unit.  Those that a migration made count together with the
 * others as much as the larger of the two: a target is charged what it needs beyond its source, which is
 * nothing, and when the source has ended the target's own charge remains.
 */

/* One entry of spec.hard. */
struct line {
	char *resource;
	const char *table; /* inside resource, or constant */
	struct api_quantity hard;
	size_t quota; /* whose line it is */
};

struct quota {
	char *name;
	struct json *spec; /* a reference */
	size_t first, n;   /* its lines in the account */
};

struct unit {
	struct list members;
	char *key;
};

/* A pod. */
struct member {
	struct list link;
	struct unit *unit;
	bool moves; /* a migration's target, or what became of it */
	__int128 cost[];
};

struct account {
	struct quotas *all;
	char *ns;
	bool is_stale; /* to be counted anew before it is used */
	bool is_dirty; /* the statuses of its quotas may be old */
	struct quota *quotas;
	size_t n_quotas, cap_quotas;
	struct line *lines;
	size_t n_lines, cap_lines;
	__int128 *used;	    /* by line */
	struct map members; /* by key in the store */
	struct map units;
};

struct quotas {
	struct apisrv *srv;
	struct map accounts;  /* by namespace */
	struct ev_src *timer; /* the statuses that are due */
	bool look_everywhere; /* some status may be old, nobody knows which */
	size_t n_flying;      /* statuses on their way */
};

/* ---- units of pods ----------------------------------------------------------------------------- */

static void unit_free(void *arg)
{
	struct unit *u = arg;

	mem_free(u->key);
	mem_free(u);
}

/* What the unit uses of a line, with one member more (NULL: none). */
static __int128 unit_cost(const struct unit *u, size_t line, const struct member *more)
{
	__int128 others = 0, moving = 0;

	if (more)
		*(more->moves ? &moving : &others) = more->cost[line];
	LIST_FOREACH(it, &u->members) {
		const struct member *m = LIST_ENTRY(it, struct member, link);

		if (m->moves)
			moving = MAX(moving, m->cost[line]);
		else
			others += m->cost[line];
	}
	return MAX(others, moving);
}

static void charge_unit(struct account *a, const struct unit *u, int sign)
{
	for (size_t i = 0; i < a->n_lines; i++)
		a->used[i] += sign * unit_cost(u, i, NULL);
}

/* The VM behind a pod, or the pod itself; owned by the caller. */
static char *unit_key(const char *pod_key, const struct json *pod)
{
	const char *vmi = js_str(js_at(pod, "metadata", "labels", LABEL_CREATED_BY, NULL));

	return str_is_empty(vmi) ? mem_strdup(pod_key) : mem_printf("vmi/%s", vmi);
}

static void remove_member(struct account *a, const char *key)
{
	struct member *m = map_take(&a->members, key);

	if (!m)
		return;
	struct unit *u = m->unit;

	charge_unit(a, u, -1);
	list_remove(&m->link);
	charge_unit(a, u, +1);
	mem_free(m);
	if (list_is_empty(&u->members))
		map_del(&a->units, u->key);
}

static void free_value(void *p)
{
	mem_free(p);
}

static struct unit *unit_of(struct account *a, const char *pod_key, const struct json *pod)
{
	CLEANUP(mem_freep) char *key = unit_key(pod_key, pod);
	struct unit *u = key ? map_get(&a->units, key) : NULL;

	if (u || !key)
		return u;
	u = mem_alloc(sizeof(*u));
	if (!u)
		return NULL;
	list_init(&u->members);
	u->key = STEAL(key);
	if (map_set(&a->units, u->key, u)) {
		unit_free(u);
		return NULL;
	}
	return u;
}

static struct member *member_new(const struct account *a, const struct json *pod)
{
	struct member *m = mem_alloc(sizeof(*m) + a->n_lines * sizeof(m->cost[0]));

	if (!m)
		return NULL;
	m->moves = js_at(pod, "metadata", "labels", LABEL_MIGRATION_UID, NULL) != NULL;
	for (size_t i = 0; i < a->n_lines; i++)
		if (strcmp(a->lines[i].table, "pods") == 0 &&
		    usage_in_scope(a->quotas[a->lines[i].quota].spec, pod))
			m->cost[i] = usage_of(a->lines[i].resource, pod);
	return m;
}

static enum rc put_member(struct account *a, const char *key, const struct json *pod)
{
	remove_member(a, key);
	struct member *m = member_new(a, pod);
	struct unit *u = m ? unit_of(a, key, pod) : NULL;

	if (!u || map_set(&a->members, key, m)) {
		mem_free(m);
		return RC_NOMEM;
	}
	m->unit = u;
	charge_unit(a, u, -1);
	list_push_tail(&u->members, &m->link);
	charge_unit(a, u, +1);
	return RC_OK;
}

/* ---- accounts ---------------------------------------------------------------------------------- */

static void account_clear(struct account *a)
{
	for (size_t i = 0; i < a->n_quotas; i++) {
		mem_free(a->quotas[i].name);
		js_unref(a->quotas[i].spec);
	}
	for (size_t i = 0; i < a->n_lines; i++)
		mem_free(a->lines[i].resource);
	a->n_quotas = a->n_lines = 0;
	a->used = mem_free(a->used);
	map_fini(&a->members);
	map_fini(&a->units);
}

static void account_free(void *arg)
{
	struct account *a = arg;

	account_clear(a);
	mem_free(a->quotas);
	mem_free(a->lines);
	mem_free(a->ns);
	mem_free(a);
}

static int by_resource(const void *x, const void *y)
{
	const struct line *a = x, *b = y;

	return strcmp(a->resource, b->resource);
}

static enum rc add_line(struct account *a, const char *resource, const char *hard)
{
	struct line l = {.resource = mem_strdup(resource), .quota = a->n_quotas - 1};

	if (!l.resource || !mem_grow((void **)&a->lines, &a->cap_lines, a->n_lines, sizeof(l))) {
		mem_free(l.resource);
		return RC_NOMEM;
	}
	l.table = usage_table(l.resource);
	if (api_quantity_parse(hard ? hard : "0", &l.hard, NULL))
		l.hard = api_quantity_of(0, API_Q_DECIMAL);
	a->lines[a->n_lines++] = l;
	return RC_OK;
}

static enum rc add_quota(struct account *a, const struct json *obj)
{
	struct quota q = {.name = mem_strdup(json_name(obj)),
			  .spec = js_ref(js_get(obj, "spec")),
			  .first = a->n_lines};

	if (!q.name || !mem_grow((void **)&a->quotas, &a->cap_quotas, a->n_quotas, sizeof(q))) {
		mem_free(q.name);
		js_unref(q.spec);
		return RC_NOMEM;
	}
	a->quotas[a->n_quotas++] = q;
	JS_FOREACH(it, js_get(q.spec, "hard"))
		if (add_line(a, it.key, js_str(it.value)))
			return RC_NOMEM;
	a->quotas[a->n_quotas - 1].n = a->n_lines - q.first;
	if (a->n_lines > q.first)
		qsort(a->lines + q.first, a->n_lines - q.first, sizeof(*a->lines), by_resource);
	return RC_OK;
}

static enum rc count_quotas(struct account *a)
{
	struct store_iter it;
	struct obj *o;

	store_iter_in(&it, a->all->srv->store, "resourcequotas", a->ns);
	while ((o = store_iter_next_newest(&it))) {
		CLEANUP(js_unrefp) struct json *quota = obj_json(o);

		if (!quota || add_quota(a, quota))
			return RC_NOMEM;
	}
	a->used = mem_calloc(a->n_lines + 1, sizeof(*a->used));
	return a->used ? RC_OK : RC_NOMEM;
}

/* Adds what obj uses to the lines of its table that are not about pods. */
static void charge_lines(struct account *a, const char *table, const struct json *obj, int sign)
{
	for (size_t i = 0; i < a->n_lines; i++)
		if (strcmp(a->lines[i].table, table) == 0)
			a->used[i] += sign * usage_of(a->lines[i].resource, obj);
}

static bool counts_content(const struct account *a, const char *table)
{
	for (size_t i = 0; i < a->n_lines; i++)
		if (strcmp(a->lines[i].table, table) == 0 &&
		    usage_needs_content(a->lines[i].resource))
			return true;
	return false;
}

static enum rc count_table(struct account *a, const char *table)
{
	bool are_pods = strcmp(table, "pods") == 0, parse = counts_content(a, table);
	struct store_iter it;
	struct obj *o;

	store_iter_in(&it, a->all->srv->store, table, a->ns);
	while ((o = store_iter_next_newest(&it))) {
		CLEANUP(js_unrefp) struct json *obj = parse ? obj_json(o) : NULL;

		if (parse && !obj)
			return RC_NOMEM;
		if (!are_pods)
			charge_lines(a, table, obj, +1);
		else if (put_member(a, obj_key(o), obj))
			return RC_NOMEM;
	}
	return RC_OK;
}

/* Counts the namespace anew. */
static enum rc account_count(struct account *a)
{
	enum rc rc;

	account_clear(a);
	rc = count_quotas(a);
	for (size_t i = 0; i < a->n_lines && !rc; i++) {
		bool seen = false;

		for (size_t k = 0; k < i && !seen; k++)
			seen = strcmp(a->lines[k].table, a->lines[i].table) == 0;
		if (!seen)
			rc = count_table(a, a->lines[i].table);
	}
	a->is_stale = rc != RC_OK;
	return rc;
}

/* The account of a namespace, made when there is none; what it holds may be stale.  NULL: no memory. */
static struct account *account_of(struct quotas *q, const char *ns)
{
	struct account *a = map_get(&q->accounts, ns);

	if (a)
		return a;
	a = mem_alloc(sizeof(*a));
	if (!a)
		return NULL;
	a->all = q;
	a->is_stale = true;
	map_init(&a->members, free_value);
	map_init(&a->units, unit_free);
	a->ns = mem_strdup(ns);
	if (!a->ns || map_set(&q->accounts, a->ns, a)) {
		account_free(a);
		return NULL;
	}
	return a;
}

static bool has_quotas(struct quotas *q, const char *ns)
{
	struct store_iter it;

	store_iter_in(&it, q->srv->store, "resourcequotas", ns);
	return store_iter_next_newest(&it) != NULL;
}

/* ---- what the store tells ------------------------------------------------------------------------ */

static void publish_soon(struct quotas *q);

static void mark(struct account *a, bool is_stale)
{
	a->is_stale = a->is_stale || is_stale;
	a->is_dirty = true;
	publish_soon(a->all);
}

static bool same_spec(struct obj *was, struct obj *is)
{
	CLEANUP(js_unrefp) struct json *a = was ? obj_json(was) : NULL;
	CLEANUP(js_unrefp) struct json *b = is ? obj_json(is) : NULL;

	return a && b && js_equal(js_get(a, "spec"), js_get(b, "spec"));
}

/* A write of an object of the account's namespace; false: what it uses is not known. */
static bool account_follow(struct account *a, const char *table, const char *key, struct obj *was,
			   struct obj *is)
{
	bool parse = counts_content(a, table);
	CLEANUP(js_unrefp) struct json *new_ = parse && is ? obj_json(is) : NULL;

	if (parse && is && !new_)
		return false;
	if (strcmp(table, "pods") == 0) {
		if (is && parse)
			return put_member(a, key, new_) == RC_OK;
		remove_member(a, key);
		return true;
	}
	CLEANUP(js_unrefp) struct json *old = parse && was ? obj_json(was) : NULL;

	if (parse && was && !old)
		return false;
	if (was)
		charge_lines(a, table, old, -1);
	if (is)
		charge_lines(a, table, new_, +1);
	return true;
}

static bool counts(const struct account *a, const char *table)
{
	for (size_t i = 0; i < a->n_lines; i++)
		if (strcmp(a->lines[i].table, table) == 0)
			return true;
	return false;
}

/* Every account is counted anew, and every status looked at. */
static void doubt_everything(struct quotas *q)
{
	q->look_everywhere = true;
	MAP_FOREACH(it, &q->accounts)
		((struct account *)it->value)->is_stale = true;
	publish_soon(q);
}

/* What store_newest() answers has changed: see store_listen_newest(). */
static void quota_newest(void *arg, const char *key, struct obj *was, struct obj *is)
{
	struct quotas *q = arg;
	const char *ns = strchr(key, '/'), *name = ns ? strchr(ns + 1, '/') : NULL;
	char table[LIMIT_NAME_BYTES + 1], space[LIMIT_NAME_BYTES + 1];
	bool is_quota = str_has_prefix(key, "resourcequotas/");

	if (!name || (!is_quota && !q->accounts.n))
		return; /* of no namespace, or nobody counts */
	snprintf(table, sizeof(table), "%.*s", (int)(ns - key), key);
	snprintf(space, sizeof(space), "%.*s", (int)(name - ns - 1), ns + 1);
	struct account *a = is_quota ? account_of(q, space) : map_get(&q->accounts, space);

	if (!a) {
		if (is_quota)
			doubt_everything(q);
		return;
	}
	bool is_lost = !was && !is;

	if (is_lost || (is_quota && !same_spec(was, is)))
		mark(a, true);
	else if (!a->is_stale && (is_quota || counts(a, table))) /* a quota: its status */
		mark(a, !account_follow(a, table, key, was, is));
}

/* ---- admission ----------------------------------------------------------------------------------- */

static bool is_compute(const char *resource, const char **name, bool *limit)
{
	*limit = str_has_prefix(resource, "limits.");
	*name = *limit					? resource + strlen("limits.")
		: str_has_prefix(resource, "requests.") ? resource + strlen("requests.")
							: resource;
	return str_eq(*name, "cpu") || str_eq(*name, "memory");
}

static void add_silent(const struct json *containers, bool limit, const char *name,
		       struct sbuf *out)
{
	for (size_t i = 0; i < js_len(containers); i++) {
		const struct json *k = js_item(containers, i);

		if (!usage_asked(k, limit, name))
			sbuf_addf(out, "%s%s", out->n ? "," : "", js_get_str(k, "name"));
	}
}

/* What the quota limits must be said by each container: "limits.cpu for: a,b; ..." */
static void add_missing(const struct account *a, const struct quota *q, const struct json *pod,
			struct sbuf *out)
{
	for (size_t i = q->first; i < q->first + q->n; i++) {
		CLEANUP(sbuf_fini) struct sbuf silent = SBUF_INIT(64 * KIB);
		const char *name;
		bool limit;

		if (!is_compute(a->lines[i].resource, &name, &limit))
			continue;
		add_silent(js_at(pod, "spec", "containers", NULL), limit, name, &silent);
		add_silent(js_at(pod, "spec", "initContainers", NULL), limit, name, &silent);
		if (silent.n)
			sbuf_addf(out, "%s%s for: %s", out->n ? "; " : "", a->lines[i].resource,
				  sbuf_str(&silent));
	}
}

static void add_amount(struct sbuf *out, const struct line *l, __int128 nano)
{
	struct api_quantity v = {.nano = nano, .format = l->hard.format};

	sbuf_addf(out, "%s%s=", out->n ? "," : "", l->resource);
	api_quantity_print(&v, out);
}

/* Where quota q would be exceeded by more: the reason, else nothing. */
static void add_exceeded(const struct account *a, const struct quota *q, const __int128 *more,
			 struct sbuf *out)
{
	CLEANUP(sbuf_fini) struct sbuf asked = SBUF_INIT(64 * KIB);
	CLEANUP(sbuf_fini) struct sbuf used = SBUF_INIT(64 * KIB);
	CLEANUP(sbuf_fini) struct sbuf limited = SBUF_INIT(64 * KIB);

	for (size_t i = q->first; i < q->first + q->n; i++) {
		const struct line *l = &a->lines[i];

		if (more[i] <= 0 || a->used[i] + more[i] <= l->hard.nano)
			continue;
		add_amount(&asked, l, more[i]);
		add_amount(&used, l, a->used[i]);
		add_amount(&limited, l, l->hard.nano);
	}
	if (asked.n)
		sbuf_addf(out, "exceeded quota: %s, requested: %s, used: %s, limited: %s", q->name,
			  sbuf_str(&asked), sbuf_str(&used), sbuf_str(&limited));
}

/* What a new pod adds to each line.  *is_further: it is one more of a VM that has one. */
static enum rc more_of_pod(const struct account *a, const struct change *ch, __int128 *more,
			   bool *is_further)
{
	CLEANUP(mem_freep) char *pod = object_key(ch->res, ch->ns, ch->name);
	CLEANUP(mem_freep) char *key = pod ? unit_key(pod, ch->obj) : NULL;
	CLEANUP(mem_freep) struct member *m = key ? member_new(a, ch->obj) : NULL;

	if (!m)
		return RC_NOMEM;
	const struct unit *u = map_get(&a->units, key);

	for (size_t i = 0; i < a->n_lines; i++)
		more[i] = u ? unit_cost(u, i, m) - unit_cost(u, i, NULL) : m->cost[i];
	*is_further = u && m->moves;
	return RC_OK;
}

/* The first quota that the change breaks, in words; empty: none. */
static enum rc judge(const struct account *a, const struct change *ch, struct sbuf *why)
{
	CLEANUP(mem_freep) __int128 *more = mem_calloc(a->n_lines + 1, sizeof(*more));
	bool is_pod = strcmp(ch->res->table, "pods") == 0, is_further = false;

	if (!more || (is_pod && more_of_pod(a, ch, more, &is_further)))
		return RC_NOMEM;
	for (size_t i = 0; !is_pod && i < a->n_lines; i++)
		if (strcmp(a->lines[i].table, ch->res->table) == 0)
			more[i] = usage_of(a->lines[i].resource, ch->obj) -
				  (ch->old ? usage_of(a->lines[i].resource, ch->old) : 0);
	for (size_t i = 0; i < a->n_quotas && !why->n; i++) {
		const struct quota *q = &a->quotas[i];
		CLEANUP(sbuf_fini) struct sbuf missing = SBUF_INIT(64 * KIB);

		/* A VM that moves brings nothing new: what it may be was settled when it started. */
		if (is_pod && !is_further && usage_in_scope(q->spec, ch->obj))
			add_missing(a, q, ch->obj, &missing);
		if (missing.n)
			sbuf_addf(why, "failed quota: %s: must specify %s", q->name,
				  sbuf_str(&missing));
		else
			add_exceeded(a, q, more, why);
		if (missing.rc)
			return missing.rc;
	}
	return sbuf_rc(why);
}

/* A create of what is there is a conflict, whatever a quota says. */
static bool is_there(struct change *ch, enum rc *rc)
{
	CLEANUP(mem_freep) char *key = object_key(ch->res, ch->ns, ch->name);

	*rc = key ? RC_OK : RC_NOMEM;
	return key && ch->op == HOOK_CREATE && store_newest(ch->c->srv->store, key);
}

bool quota_admit(struct change *ch)
{
	struct quotas *q = ch->c->srv->quotas;
	CLEANUP(sbuf_fini) struct sbuf why = SBUF_INIT(256 * KIB);
	bool may_grow = strcmp(ch->res->table, "services") == 0 ||
			strcmp(ch->res->table, "persistentvolumeclaims") == 0;

	if (!ch->res->kind->is_namespaced || ch->status_only ||
	    (ch->op == HOOK_UPDATE && !may_grow) || !has_quotas(q, ch->ns))
		return true;
	enum rc rc;

	if (is_there(ch, &rc))
		return true;
	struct account *a = account_of(q, ch->ns);

	if (rc || !a || (a->is_stale && account_count(a)) || judge(a, ch, &why)) {
		call_nomem(ch->c);
		return false;
	}
	if (why.n)
		call_forbidden(ch->c, ch->res, ch->name, sbuf_str(&why), NULL);
	return !why.n;
}

/* ---- the status of quotas -------------------------------------------------------------------------- */

static struct json *used_by(const struct account *a, const struct quota *q)
{
	CLEANUP(js_unrefp) struct json *used = js_new_object();

	for (size_t i = q->first; i < q->first + q->n; i++) {
		struct api_quantity v = {.nano = a->used[i], .format = a->lines[i].hard.format};
		CLEANUP(sbuf_fini) struct sbuf text = SBUF_INIT(128);

		api_quantity_print(&v, &text);
		if (sbuf_rc(&text) ||
		    js_set(used, a->lines[i].resource, js_new_str(sbuf_str(&text))))
			return NULL;
	}
	return STEAL(used);
}

static struct account *next_dirty(struct quotas *q)
{
	MAP_FOREACH(it, &q->accounts) {
		struct account *a = it->value;

		if (a->is_dirty)
			return a;
	}
	return NULL;
}

static void on_published(void *arg, int status, const struct json *obj)
{
	struct quotas *q = arg;

	q->n_flying--;
	if (status >= 400 && status != 404) {
		const char *why = js_get_str(obj, "message");

		log_warn("quota: %s; its status is tried again", why ? why : "out of memory");
		q->look_everywhere = true;
	}
	if (q->look_everywhere || next_dirty(q))
		publish_soon(q);
}

static enum rc publish_quota(struct account *a, const struct quota *q)
{
	struct apisrv *s = a->all->srv;
	CLEANUP(mem_freep) char *key = mem_printf("resourcequotas/%s/%s", a->ns, q->name);
	CLEANUP(mem_freep)
	char *target = mem_printf("/api/v1/namespaces/%s/resourcequotas/%s/status", a->ns, q->name);
	struct obj *o = key ? store_newest(s->store, key) : NULL;
	CLEANUP(js_unrefp) struct json *stored = o ? obj_json(o) : NULL;
	struct json *used = used_by(a, q);
	const struct json *hard = js_get(q->spec, "hard");
	CLEANUP(js_unrefp)
	struct json *status = js_pack("{s:O*, s:o}", "hard", hard, "used", used);

	if (!key || !target || !status || (o && !stored))
		return RC_NOMEM;
	if (!o || is_deleting(stored) || js_equal(js_get(stored, "status"), status))
		return RC_OK;
	struct json *patch =
		js_pack("[{s:s, s:s, s:O}]", "op", "add", "path", "/status", "value", status);

	if (!patch)
		return RC_NOMEM;
	a->all->n_flying++;
	enum rc rc = apisrv_inner(s, NULL, &apisrv_self, "PATCH", target,
				  "application/json-patch+json", patch, on_published, a->all, NULL);

	if (rc)
		a->all->n_flying--;
	return rc;
}

static enum rc publish_account(struct account *a)
{
	enum rc rc = a->is_stale ? account_count(a) : RC_OK;

	for (size_t i = 0; i < a->n_quotas && !rc; i++)
		rc = publish_quota(a, &a->quotas[i]);
	return rc;
}

/* Accounts for all quotas that there are. */
static enum rc look_everywhere(struct quotas *q)
{
	struct store_iter it;
	struct obj *o;

	store_iter_init(&it, q->srv->store, "resourcequotas", NULL);
	while ((o = store_iter_next_newest(&it))) {
		char ns[LIMIT_NAME_BYTES + 1];
		const char *rest = obj_rest(o);

		snprintf(ns, sizeof(ns), "%.*s", (int)strcspn(rest, "/"), rest);
		struct account *a = account_of(q, ns);

		if (!a)
			return RC_NOMEM;
		a->is_dirty = true;
	}
	q->look_everywhere = false;
	return RC_OK;
}

static void on_publish(void *arg)
{
	struct quotas *q = arg;
	struct account *a;

	if (q->n_flying)
		return; /* the last of them looks again */
	enum rc rc = q->look_everywhere ? look_everywhere(q) : RC_OK;

	while (!rc && (a = next_dirty(q))) {
		a->is_dirty = false;
		rc = publish_account(a);
		a->is_dirty = rc != RC_OK;
		if (!rc && !a->n_quotas)
			map_del(&q->accounts, a->ns);
	}
	if (rc) {
		log_warn("quota: out of memory; the status of quotas is tried again");
		ev_timer_rearm(q->timer, USEC_PER_SEC);
	}
}

/* Not while statuses are on their way: a storm of creates writes one after the other, not one each. */
static void publish_soon(struct quotas *q)
{
	if (!q->n_flying && !ev_timer_is_armed(q->timer))
		ev_timer_rearm(q->timer, q->look_everywhere ? USEC_PER_SEC : 0);
}

/* ---- life ------------------------------------------------------------------------------------------ */

enum rc quotas_new(struct quotas **out, struct apisrv *s, struct err *err)
{
	struct quotas *q = mem_alloc(sizeof(*q));

	if (!q)
		return err_set(err, RC_NOMEM, "out of memory");
	q->srv = s;
	map_init(&q->accounts, account_free);
	enum rc rc = ev_timer_after(s->loop, &q->timer, USEC_INFINITY, on_publish, q, err);

	if (rc) {
		mem_free(q);
		return rc;
	}
	store_listen_newest(s->store, quota_newest, q);
	if (store_count(s->store, "resourcequotas")) {
		q->look_everywhere = true;
		ev_timer_rearm(q->timer, 0);
	}
	*out = q;
	return RC_OK;
}

struct quotas *quotas_free(struct quotas *q)
{
	if (!q)
		return NULL;
	store_listen_newest(q->srv->store, NULL, NULL);
	ev_src_free(q->timer);
	map_fini(&q->accounts);
	return mem_free(q);
}
