#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/meta.h"
#include "api/patch.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "json/json.h"
#include "world.h"

#define START	   ((usec_t)1767225600 * USEC_PER_SEC) /* 2026-01-01T00:00:00Z */
#define ROUNDS_MAX 60

static void must(enum rc rc, const char *what)
{
	if (rc)
		fail_msg("%s: %s", what, rc_name(rc));
}

/* ---- sources ---- */

static void add_kind(struct world *w, const struct api_kind *kind)
{
	must(kcache_add(w->cache, &(struct kcache_source){.kind = kind}, NULL), "add a source");
}

static void add_def(struct world *w, const struct ctl_def *d)
{
	w->defs[w->n_defs++] = d;
	add_kind(w, d->primary);
	for (const struct ctl_map *m = d->maps; m && m->kind; m++)
		add_kind(w, m->kind);
	for (const struct api_kind *const *k = d->reads; k && *k; k++)
		add_kind(w, *k);
	for (const struct ctl_index *i = d->indexes; i && i->kind; i++) {
		add_kind(w, i->kind);
		must(i->fn ? kcache_index(w->cache, i->kind, i->name, i->fn, NULL)
			   : kcache_index_label(w->cache, i->kind, i->name, NULL),
		     "add an index");
	}
}

void world_init(struct world *w, const struct ctl_def *const *defs, size_t n_defs)
{
	memset(w, 0, sizeof(*w));
	w->now = START;
	w->rv = 1;
	w->next_uid = 1;
	w->next_look = USEC_INFINITY;
	sbuf_init(&w->trace, 4 << 20);
	sbuf_init(&w->events, 4 << 20);
	must(kcache_new(&w->cache, NULL, NULL, NULL, NULL), "make a cache");
	for (size_t i = 0; i < n_defs; i++)
		add_def(w, defs[i]);
	add_kind(w, &api_kind_Node);
	add_kind(w, &api_kind_Pod);
	add_kind(w, &api_kind_Namespace);
}

void world_fini(struct world *w)
{
	sbuf_fini(&w->trace);
	sbuf_fini(&w->events);
	kcache_free(w->cache);
}

/* ---- storing ---- */

static bool is_counted(const struct api_kind *k)
{
	return k == &api_kind_VirtualMachine || k == &api_kind_VirtualMachineInstance ||
	       k == &api_kind_VirtualMachineInstanceMigration || k == &api_kind_Pod;
}

static void store(struct world *w, const struct api_kind *kind, void *obj)
{
	ObjectMeta *m = obj;
	struct kobj *o = NULL;

	must(api_set_strf(&m->resourceVersion, "%llu", (unsigned long long)++w->rv), "set version");
	must(kobj_new(&o, kind, obj), "make an object");
	must(kcache_put(w->cache, o, NULL), "store an object");
}

static void stamp(char **field, usec_t now)
{
	char text[32];

	time_rfc3339(now, text);
	must(api_set_str(field, text), "stamp");
}

static void create(struct world *w, const struct api_kind *kind, void *obj)
{
	ObjectMeta *m = obj;

	if (!m->uid)
		must(api_set_strf(&m->uid, "%08llx-0000-4000-8000-000000000000",
				  (unsigned long long)w->next_uid++),
		     "set uid");
	if (!m->creationTimestamp)
		stamp(&m->creationTimestamp, w->now);
	if (kind->keeps_generation)
		API_SET(m, generation, 1);
	store(w, kind, obj);
}

static struct json *parse(const char *text)
{
	CLEANUP(mem_freep)
	char *copy = mem_strdup(text);
	struct json *j = NULL;
	struct err err = {0};

	for (char *p = copy; *p; p++)
		if (*p == '\'')
			*p = '"';
	if (js_parse(copy, strlen(copy), &j, &err))
		fail_msg("%s in %s", err.msg, copy);
	return j;
}

void *world_decoded(const struct api_type *type, const char *text)
{
	CLEANUP(js_unrefp) struct json *j = parse(text);
	struct err err = {0};
	void *obj = NULL;

	if (api_decode(type, j, &obj, &err))
		fail_msg("%s in %s", err.msg, text);
	return obj;
}

void world_add(struct world *w, const struct api_kind *kind, const char *text)
{
	CLEANUP(js_unrefp)
	struct json *j = parse(text);
	struct err err = {0};
	void *obj = NULL;

	if (api_decode(kind->type, j, &obj, &err))
		fail_msg("%s", err.msg);
	w->writes += is_counted(kind);
	create(w, kind, obj);
}

const void *world_get(struct world *w, const struct api_kind *kind, const char *ns,
		      const char *name)
{
	return kobj_typed(kcache_get(w->cache, kind, ns, name));
}

/* ---- changes ---- */

static bool spec_differs(const struct json *a, const struct json *b)
{
	return !js_equal(js_get(a, "spec"), js_get(b, "spec"));
}

static bool is_over(const struct api_kind *kind, const void *obj)
{
	const ObjectMeta *m = obj;
	const Pod *pod = kind == &api_kind_Pod ? obj : NULL;

	if (!m->deletionTimestamp || m->n_finalizers)
		return false;
	/* a pod on a node goes when its agent says so */
	return !pod || str_is_empty(pod->spec.nodeName) ||
	       (m->has_deletionGracePeriodSeconds && m->deletionGracePeriodSeconds == 0);
}

/* sub: "status", NULL for all the rest (or everything where a kind has no status subresource). */
static void merge(struct world *w, const struct api_kind *kind, const char *ns, const char *name,
		  const struct json *patch, const char *sub)
{
	const void *old = world_get(w, kind, ns, name);

	if (!old)
		fail_msg("%s %s is gone", kind->kind, name);
	CLEANUP(js_unrefp)
	struct json *before = api_encode(kind->type, old);
	CLEANUP(js_unrefp)
	struct json *p = js_copy(patch);
	CLEANUP(js_unrefp)
	struct json *after = NULL;
	struct err err = {0};
	void *obj = NULL;

	if (sub)
		js_del(p, "metadata");
	else if (kind->subresources & API_SUB_STATUS)
		js_del(p, "status");
	if (sub)
		js_del(p, "spec");
	js_del(js_get(p, "metadata"), "resourceVersion");
	js_del(js_get(p, "metadata"), "uid");
	must(api_patch_merge(before, p, &after, &err), "merge");
	if (api_decode(kind->type, after, &obj, &err))
		fail_msg("%s", err.msg);
	ObjectMeta *m = obj;

	if (kind->keeps_generation && spec_differs(before, after))
		m->generation++;
	if (is_over(kind, obj)) {
		api_free(kind->type, obj);
		kcache_remove(w->cache, kind, ns, name);
		return;
	}
	store(w, kind, obj);
}

void world_patch(struct world *w, const struct api_kind *kind, const char *ns, const char *name,
		 const char *text)
{
	CLEANUP(js_unrefp)
	struct json *p = parse(text);
	bool split = (kind->subresources & API_SUB_STATUS) && js_get(p, "status");

	w->writes += is_counted(kind);
	if (split)
		merge(w, kind, ns, name, p, "status");
	if (!split || js_len(p) > 1)
		merge(w, kind, ns, name, p, NULL);
}

void world_erase(struct world *w, const struct api_kind *kind, const char *ns, const char *name)
{
	kcache_remove(w->cache, kind, ns, name);
}

void world_delete(struct world *w, const struct api_kind *kind, const char *ns, const char *name,
		  int64_t grace)
{
	const void *old = world_get(w, kind, ns, name);

	if (!old)
		return;
	void *obj = api_clone(kind->type, old);
	ObjectMeta *m = obj;
	const Pod *pod = kind == &api_kind_Pod ? old : NULL;

	w->writes += is_counted(kind);
	if (!m->deletionTimestamp)
		stamp(&m->deletionTimestamp, w->now);
	if (pod && (str_eq(pod->status.phase, "Succeeded") || str_eq(pod->status.phase, "Failed")))
		grace = 0;
	if (pod)
		API_SET(m, deletionGracePeriodSeconds,
			grace >= 0 ? grace
				   : API_GET(&pod->spec, terminationGracePeriodSeconds, 30));
	if (is_over(kind, obj)) {
		api_free(kind->type, obj);
		kcache_remove(w->cache, kind, ns, name);
		return;
	}
	store(w, kind, obj);
}

/* ---- plans ---- */

static bool already_there(struct world *w, const struct plan_op *op)
{
	const void *old = world_get(w, op->kind, op->ns, op->name);

	if (!old)
		return false;
	const OwnerReference *a = api_controller_of(old), *b = api_controller_of(op->obj);

	if (!a || !b || !str_eq(a->uid, b->uid))
		fail_msg("%s %s exists and is somebody else's", op->kind->kind, op->name);
	return true;
}

static void apply_patch(struct world *w, const struct plan_op *op, bool *touched)
{
	const ObjectMeta *m = world_get(w, op->kind, op->ns, op->name);
	const char *rv = js_str(js_at(op->body, "metadata", "resourceVersion", NULL));

	if (!m)
		fail_msg("patch of %s %s, which is gone", op->kind->kind, op->name);
	/* a second patch of one object in one plan carries the version of the first */
	if (!*touched && !str_eq(rv, m->resourceVersion))
		fail_msg("conflict on %s %s", op->kind->kind, op->name);
	if (op->confirms)
		return;
	*touched = true;
	merge(w, op->kind, op->ns, op->name, op->body, op->subresource);
}

static void apply_bind(struct world *w, const struct plan_op *op)
{
	CLEANUP(mem_freep)
	char *spec = mem_printf("{'spec':{'nodeName':'%s'}}", op->node);
	CLEANUP(js_unrefp)
	struct json *p = parse(spec);
	CLEANUP(js_unrefp)
	struct json *s =
		parse("{'status':{'conditions':[{'type':'PodScheduled','status':'True'}]}}");

	merge(w, &api_kind_Pod, op->ns, op->name, p, NULL);
	merge(w, &api_kind_Pod, op->ns, op->name, s, "status");
}

static void apply_op(struct world *w, const struct plan_op *op, bool *touched)
{
	switch (op->type) {
	case PLAN_CREATE:
		if (already_there(w, op))
			return;
		w->writes += is_counted(op->kind);
		create(w, op->kind, api_clone(op->kind->type, op->obj));
		return;
	case PLAN_PATCH:
		w->writes += is_counted(op->kind) && !op->confirms;
		apply_patch(w, op, touched);
		return;
	case PLAN_DELETE:
		world_delete(w, op->kind, op->ns, op->name, op->grace_seconds);
		return;
	case PLAN_BIND:
		w->writes++;
		apply_bind(w, op);
		return;
	case PLAN_EVENT:
		sbuf_addf(&w->events, "%s: %s\n", op->event_reason, op->event_message);
		return;
	case PLAN_OP__MAX:
		break;
	}
	fail_msg("an unknown operation");
}

/* Whoever creates what is refused learns of it at the next look, as from the real runner. */
static const struct err *refusal_for(const struct world *w, const struct ctl_def *def,
				     struct err *buf)
{
	bool concerns = (w->refuses == &api_kind_Pod &&
			 str_has_prefix(def->name, "virtualmachineinstance")) ||
			(w->refuses == &api_kind_VirtualMachineInstance &&
			 str_eq(def->name, "virtualmachine"));

	if (!w->refuses || !concerns)
		return NULL;
	ignore_rc(err_set(buf, RC_FORBIDDEN, "%s", w->refusal));
	return buf;
}

static void run_reconcile(struct world *w, const struct ctl_def *def, const char *ns,
			  const char *name, struct plan *out)
{
	struct err refusal = {0};
	struct view v = {
		.cache = w->cache, .now = w->now, .refused = refusal_for(w, def, &refusal)};
	struct err err = {0};
	enum rc rc;

	plan_init(out);
	rc = def->reconcile(&v, ns, name, out, &err);
	if (rc)
		fail_msg("%s %s/%s: %s: %s", def->name, ns, name, rc_name(rc), err.msg);
	if (out->rc)
		fail_msg("%s %s/%s: plan: %s", def->name, ns, name, out->err.msg);
}

static char *printed(const struct plan *p)
{
	struct sbuf b = SBUF_INIT(1 << 20);
	char *text = NULL;

	plan_print(p, &b);
	must(sbuf_take(&b, &text, NULL), "print a plan");
	return text;
}

char *world_plan(struct world *w, const struct ctl_def *def, const char *ns, const char *name)
{
	CLEANUP(plan_fini)
	struct plan p;

	run_reconcile(w, def, ns, name, &p);
	return printed(&p);
}

static bool step(struct world *w, const struct ctl_def *def, const char *ns, const char *name)
{
	CLEANUP(plan_fini)
	struct plan p;
	CLEANUP(plan_fini)
	struct plan again;

	run_reconcile(w, def, ns, name, &p);
	run_reconcile(w, def, ns, name, &again);
	CLEANUP(mem_freep)
	char *a = printed(&p);
	CLEANUP(mem_freep)
	char *b = printed(&again);
	bool writes = false;

	assert_string_equal(a, b);
	if (p.requeue_after != USEC_INFINITY)
		w->next_look = MIN(w->next_look, w->now + p.requeue_after);
	for (size_t i = 0; i < p.n_ops; i++) {
		bool touched = false;

		for (size_t k = 0; k < i; k++)
			touched |= p.ops[k].kind == p.ops[i].kind &&
				   str_eq(p.ops[k].name, p.ops[i].name) &&
				   p.ops[k].type == PLAN_PATCH && !p.ops[k].confirms;
		if (p.ops[i].type == PLAN_CREATE && p.ops[i].kind == w->refuses)
			break;
		writes |= p.ops[i].type != PLAN_EVENT && p.ops[i].kind != &api_kind_Allocation &&
			  !p.ops[i].confirms;
		apply_op(w, &p.ops[i], &touched);
	}
	if (p.n_ops && w->is_tracing && (!w->traced || str_eq(w->traced, def->name)))
		sbuf_addf(&w->trace, "# %s %s%s%s\n%s", def->name, ns, *ns ? "/" : "", name, a);
	return writes;
}

struct keys {
	char **items;
	size_t n, cap;
};

static void collect(struct world *w, const struct api_kind *kind, struct keys *out)
{
	struct kiter it;
	const struct kobj *o;

	kcache_list(w->cache, kind, NULL, &it);
	while ((o = kiter_next(&it))) {
		assert_true(mem_grow((void **)&out->items, &out->cap, out->n, sizeof(*out->items)));
		out->items[out->n++] = mem_printf("%s/%s", kobj_ns(o), kobj_name(o));
	}
}

static bool round_of(struct world *w)
{
	bool did = false;

	for (size_t d = 0; d < w->n_defs; d++) {
		struct keys keys = {0};

		collect(w, w->defs[d]->primary, &keys);
		for (size_t i = 0; i < keys.n; i++) {
			char *slash = strchr(keys.items[i], '/');

			*slash = '\0';
			did |= step(w, w->defs[d], keys.items[i], slash + 1);
			mem_free(keys.items[i]);
		}
		mem_free(keys.items);
	}
	return did;
}

void world_settle(struct world *w)
{
	for (int i = 0; i < ROUNDS_MAX; i++) {
		w->next_look = USEC_INFINITY;
		if (!round_of(w))
			return;
	}
	fail_msg("the reconcilers do not come to rest:\n%s", sbuf_str(&w->trace));
}

void world_pass(struct world *w, usec_t delay)
{
	w->now += delay;
	world_settle(w);
}

bool world_next(struct world *w, usec_t limit)
{
	if (w->next_look == USEC_INFINITY || w->next_look > w->now + limit)
		return false;
	w->now = MAX(w->now, w->next_look);
	world_settle(w);
	return true;
}

/* ---- out of memory ---- */

#define TORTURE_MAX 3000

static void torture_key(struct world *w, const struct ctl_def *def, const char *ns,
			const char *name)
{
	struct view v = {.cache = w->cache, .now = w->now};
	bool delivered = true;

	for (unsigned n = 1; delivered && n < TORTURE_MAX; n++) {
		size_t before = mem_live_blocks();
		struct err err = {0};
		struct plan p;

		plan_init(&p);
		mem_fault_arm(n);
		enum rc rc = def->reconcile(&v, ns, name, &p, &err);

		delivered = mem_fault_disarm();
		if (rc && rc != RC_NOMEM)
			fail_msg("%s %s/%s, allocation %u: %s: %s", def->name, ns, name, n,
				 rc_name(rc), err.msg);
		if (rc && !delivered)
			fail_msg("%s %s/%s: no memory without a fault", def->name, ns, name);
		plan_fini(&p);
		if (mem_live_blocks() != before)
			fail_msg("%s %s/%s, allocation %u: %zu blocks leaked", def->name, ns, name,
				 n, mem_live_blocks() - before);
	}
}

void world_torture(struct world *w)
{
	for (size_t d = 0; d < w->n_defs; d++) {
		struct keys keys = {0};

		collect(w, w->defs[d]->primary, &keys);
		for (size_t i = 0; i < keys.n; i++) {
			char *slash = strchr(keys.items[i], '/');

			*slash = '\0';
			torture_key(w, w->defs[d], keys.items[i], slash + 1);
			mem_free(keys.items[i]);
		}
		mem_free(keys.items);
	}
}

/* ---- looking ---- */

const char *world_at(struct world *w, const struct api_kind *kind, const char *ns, const char *name,
		     const char *pointer)
{
	static char text[4096];
	const void *obj = world_get(w, kind, ns, name);
	CLEANUP(js_unrefp)
	struct json *j = obj ? api_encode(kind->type, obj) : NULL;
	struct json *at = NULL;

	if (!obj || js_pointer_get(j, pointer, &at, NULL))
		return "(none)";
	if (js_str(at)) {
		snprintf(text, sizeof(text), "%s", js_str(at));
	} else {
		CLEANUP(mem_freep)
		char *t = js_to_text(at);

		snprintf(text, sizeof(text), "%s", t);
	}
	return text;
}

const char *world_cond(struct world *w, const struct api_kind *kind, const char *ns,
		       const char *name, const char *type)
{
	static char text[1024];
	const void *obj = world_get(w, kind, ns, name);
	CLEANUP(js_unrefp)
	struct json *j = obj ? api_encode(kind->type, obj) : NULL;
	const struct json *list = js_at(j, "status", "conditions", NULL);

	for (size_t i = 0; i < js_len(list); i++) {
		const struct json *c = js_item(list, i);

		if (!str_eq(js_get_str(c, "type"), type))
			continue;
		snprintf(text, sizeof(text), "%s%s%s%s%s", js_get_str(c, "status"),
			 js_get(c, "reason") ? " " : "",
			 js_get(c, "reason") ? js_get_str(c, "reason") : "",
			 js_get(c, "message") ? ": " : "",
			 js_get(c, "message") ? js_get_str(c, "message") : "");
		return text;
	}
	return "(none)";
}

size_t world_count(struct world *w, const struct api_kind *kind)
{
	return kcache_count(w->cache, kind);
}

bool world_saw(struct world *w, const char *event)
{
	return strstr(sbuf_str(&w->events), event) != NULL;
}

void golden_check(const char *name, const char *text)
{
	CLEANUP(mem_freep)
	char *path = mem_printf("%s/%s", GOLDEN_DIR, name);
	CLEANUP(mem_freep)
	char *want = NULL;
	struct err err = {0};

	if (getenv("GOLDEN_UPDATE")) {
		must(file_write_durable(path, text, strlen(text), 0644, &err),
		     "write a golden file");
		return;
	}
	if (file_read(path, 4 << 20, &want, NULL, &err))
		fail_msg("%s (GOLDEN_UPDATE=1 writes it)", err.msg);
	assert_string_equal(text, want);
}

void world_renew(struct world *w, const char *node)
{
	char now[40];

	time_rfc3339_micro(w->now, now);
	CLEANUP(mem_freep)
	char *text = mem_printf("{'spec':{'renewTime':'%s'}}", now);

	if (!world_get(w, &api_kind_Lease, "kube-node-lease", node)) {
		CLEANUP(mem_freep)
		char *lease = mem_printf("{'metadata':{'name':'%s','namespace':'kube-node-lease'}}",
					 node);

		world_add(w, &api_kind_Lease, lease);
	}
	world_patch(w, &api_kind_Lease, "kube-node-lease", node, text);
}
