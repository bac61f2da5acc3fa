/* delete; namespaces that go; objects that expire. */
#include "cluster/apiserver/apisrv_int.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "ev/ev.h"

struct delete_opts {
	int64_t grace;	      /* seconds; -1: not said */
	const char *policy;   /* NULL: not said */
	const char *uid, *rv; /* preconditions; NULL: none */
};

/* kubectl says it in the body, others in the address; nobody deletes by a word that is not known. */
bool call_parse_dry_run(struct apisrv_call *c, const struct json *body)
{
	const struct json *list = js_get(body, "dryRun");
	const char *bad = call_param(c, "dryRun");

	bad = str_is_empty(bad) || str_eq(bad, "All") ? NULL : bad;
	for (size_t i = 0; i < js_len(list) && !bad; i++) {
		const char *v = js_str(js_item(list, i));

		if (!str_eq(v, "All"))
			bad = v ? v : "";
		c->is_dry_run = true;
	}
	if (!bad && list && !js_is_array(list))
		bad = "";
	if (bad)
		call_fail(c, 422, "Invalid", NULL,
			  "DeleteOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: "
			  "\"%s\": supported values: \"All\"",
			  bad);
	return !bad;
}

static bool parse_opts(struct apisrv_call *c, const struct json *body, struct delete_opts *o)
{
	if (!call_parse_dry_run(c, body))
		return false;
	const char *grace = call_param(c, "gracePeriodSeconds"),
		   *policy = call_param(c, "propagationPolicy");
	const struct json *pre = js_get(body, "preconditions");
	int64_t v;

	o->grace = js_get_int(body, "gracePeriodSeconds", -1);
	o->policy = js_get_str(body, "propagationPolicy");
	o->uid = js_get_str(pre, "uid");
	o->rv = js_get_str(pre, "resourceVersion");
	if (!str_is_empty(grace)) {
		if (str_to_i64(grace, 0, INT32_MAX, &v, NULL)) {
			call_bad_request(c, "gracePeriodSeconds: Invalid value: \"%s\"", grace);
			return false;
		}
		o->grace = v;
	}
	if (!str_is_empty(policy))
		o->policy = policy;
	if (js_bool(js_get(body, "orphanDependents"), false) ||
	    call_param_bool(c, "orphanDependents"))
		o->policy = "Orphan";
	if (o->policy && strcmp(o->policy, "Foreground") != 0 &&
	    strcmp(o->policy, "Background") != 0 && strcmp(o->policy, "Orphan") != 0) {
		call_fail(
			c, 422, "Invalid", NULL,
			"DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: "
			"\"%s\": supported values: \"Background\", \"Foreground\", \"Orphan\"",
			o->policy);
		return false;
	}
	return true;
}

static bool check_preconditions(struct change *ch, const struct delete_opts *o)
{
	const struct json *meta = js_get(ch->old, "metadata");
	const char *uid = js_get_str(meta, "uid"), *rv = js_get_str(meta, "resourceVersion");
	char why[256];

	if (o->uid && !str_eq(o->uid, uid))
		snprintf(
			why, sizeof(why),
			"Precondition failed: UID in precondition: %.64s, UID in object meta: %.64s",
			o->uid, uid ? uid : "");
	else if (o->rv && !str_eq(o->rv, rv))
		snprintf(
			why, sizeof(why),
			"Precondition failed: ResourceVersion in precondition: %.64s, ResourceVersion in object "
			"meta: %.64s",
			o->rv, rv ? rv : "");
	else
		return true;
	call_conflict(ch->c, ch->res, ch->name, why);
	return false;
}

/* ---- finalizers and grace ------------------------------------------------------------------------ */

static enum rc set_finalizer(struct json *meta, const char *name, bool on)
{
	struct json *list = js_get(meta, "finalizers");

	for (size_t i = js_len(list); i-- > 0;)
		if (str_eq(js_str(js_item(list, i)), name)) {
			if (on)
				return RC_OK;
			js_del_item(list, i);
		}
	if (!on) {
		if (list && !js_len(list))
			js_del(meta, "finalizers");
		return RC_OK;
	}
	if (!js_is_array(list)) {
		list = js_new_array();
		if (js_set(meta, "finalizers", list))
			return RC_NOMEM;
	}
	return js_append(list, js_new_str(name));
}

static enum rc apply_policy(struct json *meta, const char *policy)
{
	if (!policy)
		return RC_OK;
	enum rc rc = set_finalizer(meta, "foregroundDeletion", strcmp(policy, "Foreground") == 0);

	return rc ? rc : set_finalizer(meta, "orphan", strcmp(policy, "Orphan") == 0);
}

static enum rc mark_deleting(struct change *ch, int64_t grace)
{
	struct json *meta = js_get(ch->obj, "metadata");
	const struct strategy *st = ch->res->strategy;
	int64_t had = js_get_int(meta, "deletionGracePeriodSeconds", 0);
	bool first = !is_deleting(ch->obj);
	char when[32];

	if (!first && grace >= had)
		return RC_OK;
	time_rfc3339(loop_realtime(ch->c->srv->loop) + (usec_t)grace * USEC_PER_SEC, when);
	enum rc rc = js_set(meta, "deletionTimestamp", js_new_str(when));

	if (!rc)
		rc = js_set(meta, "deletionGracePeriodSeconds", js_new_int(grace));
	if (!rc && first && js_get(meta, "generation") && !bump_generation(ch->obj))
		rc = RC_NOMEM;
	if (!rc && first && st->mark_deleted)
		rc = st->mark_deleted(ch->obj);
	return rc;
}

static struct json *success(const struct change *ch)
{
	const char *group = *ch->res->kind->group ? ch->res->kind->group : NULL;

	return js_pack("{s:s, s:s, s:{}, s:s, s:{s:s, s:s*, s:s, s:s*}}", "kind", "Status",
		       "apiVersion", "v1", "metadata", "status", "Success", "details", "name",
		       ch->name, "group", group, "kind", ch->res->kind->plural, "uid",
		       js_str(js_at(ch->old, "metadata", "uid", NULL)));
}

static void delete_loaded(struct change *ch, const struct delete_opts *o, struct json *reply)
{
	struct apisrv_call *c = ch->c;
	const struct strategy *st = ch->res->strategy;
	int64_t grace = st->grace ? st->grace(ch->old, o->grace) : 0;

	ch->obj = js_copy(ch->old);
	struct json *meta = js_get(ch->obj, "metadata");

	if (!meta || apply_policy(meta, o->policy) || mark_deleting(ch, grace)) {
		js_unref(reply);
		call_nomem(c);
		return;
	}
	bool gone =
		!has_finalizers(ch->obj) && js_get_int(meta, "deletionGracePeriodSeconds", 0) == 0;

	if (gone && !reply && !st->returns_deleted) {
		reply = success(ch);
		if (!reply) {
			call_nomem(c);
			return;
		}
	}
	if (gone)
		change_commit(ch, STORE_DELETE, 200, reply);
	else if (!js_equal(ch->obj, ch->old))
		change_commit(ch, STORE_UPDATE, 200, reply);
	else if (reply)
		call_answer_json(c, 200, reply);
	else
		call_answer_object(c, 200, ch->old);
}

void serve_delete_with(struct apisrv_call *c, const struct json *options, struct json *reply)
{
	CLEANUP(change_fini)
	struct change ch = {.c = c, .res = c->res, .op = HOOK_DELETE, .ns = c->ns, .name = c->name};
	struct delete_opts o;
	const struct strategy *st = c->res->strategy;

	if (!parse_opts(c, options, &o) || !change_load(&ch) || !check_preconditions(&ch, &o) ||
	    (st->may_delete && !st->may_delete(&ch)) || !authorize_change(&ch) ||
	    !change_admit(&ch)) {
		js_unref(reply);
		return;
	}
	delete_loaded(&ch, &o, reply);
}

void serve_delete(struct apisrv_call *c)
{
	serve_delete_with(c, c->json, NULL);
}

/* ---- namespaces that go --------------------------------------------------------------------------- */

static void on_ns_step(void *arg, int status, const struct json *obj)
{
	(void)arg;
	if (status >= 400 && status != 404 && status != 409)
		log_warn("namespace deletion: %s; tried again on the next change",
			 js_get_str(obj, "message"));
}

static void ns_request(struct apisrv *s, const char *method, const char *type, char *target,
		       struct json *body)
{
	struct err err = {0};

	if (!target ||
	    apisrv_inner(s, NULL, &apisrv_self, method, target, type, body, on_ns_step, NULL, &err))
		log_warn("namespace deletion: %s; tried again on the next change",
			 target ? err.msg : "out of memory");
	mem_free(target);
}

/* What stays in a namespace that goes: deleted, and held by finalizers or a grace period. */
struct held {
	struct sbuf content; /* "pods. has 1 resource instances, …" */
	/* Their names, with how many objects each holds; NULL: out of memory. */
	struct json *finalizers;
	size_t left;
};

/* As Kubernetes' namespace controller words it. */
static void add_held(struct held *h, const struct resource *res, size_t n)
{
	const struct api_kind *k = res->kind;

	if (n)
		sbuf_addf(&h->content, "%s%s.%s has %zu resource instances",
			  h->content.n ? ", " : "", k->plural, k->group, n);
}

static void add_finalizers(struct held *h, const struct json *obj)
{
	const struct json *list = js_at(obj, "metadata", "finalizers", NULL);

	for (size_t i = 0; i < js_len(list) && h->finalizers; i++) {
		const char *name = js_str(js_item(list, i));

		if (name &&
		    js_set(h->finalizers, name, js_new_int(js_get_int(h->finalizers, name, 0) + 1)))
			h->finalizers = js_unref(h->finalizers);
	}
}

/* Deletes what is left in ns. */
static void empty_resource(struct apisrv *s, const struct resource *res, const char *ns,
			   struct held *held)
{
	struct store_iter it;
	struct obj_list left = {0};
	struct obj *o;
	size_t n = 0;

	store_iter_in(&it, s->store, res->table, ns);
	while ((o = store_iter_next_newest(&it))) {
		held->left++;
		if (mem_grow((void **)&left.items, &left.cap, left.n, sizeof(*left.items)))
			left.items[left.n++] = obj_ref(o);
	}
	for (size_t i = 0; i < left.n; i++) {
		CLEANUP(js_unrefp) struct json *obj = obj_json(left.items[i]);
		const char *group = res->kind->group;

		if (obj && is_deleting(obj)) {
			n++;
			add_finalizers(held, obj);
		} else if (obj) {
			ns_request(s, "DELETE", NULL,
				   mem_printf("%s%s/%s/namespaces/%s/%s/%s",
					      *group ? "/apis/" : "/api", group, res->kind->version,
					      ns, res->kind->plural, json_name(obj)),
				   NULL);
		}
	}
	add_held(held, res, n);
	obj_list_fini(&left);
}

/* A condition that is there already keeps its time. */
static struct json *ns_condition(const struct json *ns, const char *type, const char *reason,
				 const char *head, struct sbuf *text, const char *now)
{
	const struct json *have = js_at(ns, "status", "conditions", NULL);
	CLEANUP(mem_freep) char *message = mem_printf("%s%s", head, sbuf_str(text));
	const char *since = now;

	for (size_t i = 0; i < js_len(have); i++)
		if (str_eq(js_get_str(js_item(have, i), "type"), type))
			since = js_get_str(js_item(have, i), "lastTransitionTime");
	if (sbuf_rc(text) || !message)
		return NULL;
	return js_pack("{s:s, s:s, s:s, s:s, s:s}", "type", type, "status", "True", "reason",
		       reason, "message", message, "lastTransitionTime", since ? since : now);
}

/* Says in the namespace's status what holds it; a status that is so already is no write. */
static void tell_held(struct apisrv *s, const char *ns, const struct json *obj, struct held *h)
{
	CLEANUP(js_unrefp) struct json *list = js_new_array();
	CLEANUP(sbuf_fini) struct sbuf finalizers = SBUF_INIT(16 * KIB);
	enum rc rc = list && h->finalizers ? RC_OK : RC_NOMEM;
	char now[32];

	JS_FOREACH(it, h->finalizers)
		if (finalizers.n < 8 * KIB) /* enough to go on with */
			sbuf_addf(&finalizers, "%s%s in %lld resource instances",
				  finalizers.n ? ", " : "", it.key, (long long)js_int(it.value, 0));

	time_rfc3339(loop_realtime(s->loop), now);
	if (!rc && h->content.n)
		rc = js_append(list,
			       ns_condition(obj, "NamespaceContentRemaining", "SomeResourcesRemain",
					    "Some resources are remaining: ", &h->content, now));
	if (!rc && finalizers.n)
		rc = js_append(
			list,
			ns_condition(obj, "NamespaceFinalizersRemaining", "SomeFinalizersRemain",
				     "Some content in the namespace has finalizers remaining: ",
				     &finalizers, now));
	if (rc)
		log_warn("namespace deletion: out of memory; tried again on the next change");
	else
		ns_request(s, "PATCH", "application/merge-patch+json",
			   mem_printf("/api/v1/namespaces/%s/status", ns),
			   js_pack("{s:{s:O}}", "status", "conditions", list));
}

static void empty_namespace(struct apisrv *s, const char *ns, const struct json *obj)
{
	struct held held = {.content = SBUF_INIT(16 * KIB), .finalizers = js_new_object()};

	for (size_t i = 0; i < s->n_resources; i++)
		if (s->resources[i].kind->is_namespaced)
			empty_resource(s, &s->resources[i], ns, &held);
	if (!held.left)
		ns_request(s, "PATCH", "application/merge-patch+json",
			   mem_printf("/api/v1/namespaces/%s", ns),
			   js_pack("{s:{s:n}}", "spec", "finalizers"));
	else if (held.content.n)
		tell_held(s, ns, obj, &held);
	sbuf_fini(&held.content);
	js_unref(held.finalizers);
}

static void on_ns_defer(void *arg)
{
	struct apisrv *s = arg;
	struct store_iter it;
	struct obj *o;
	struct obj_list going = {0};

	s->ns_defer = ev_src_free(s->ns_defer);
	store_iter_init(&it, s->store, "namespaces", NULL);
	while ((o = store_iter_next_newest(&it))) {
		CLEANUP(js_unrefp) struct json *ns = obj_json(o);

		if (ns && is_deleting(ns) && js_len(js_at(ns, "spec", "finalizers", NULL)) &&
		    mem_grow((void **)&going.items, &going.cap, going.n, sizeof(*going.items)))
			going.items[going.n++] = obj_ref(o);
	}
	for (size_t i = 0; i < going.n; i++) {
		CLEANUP(js_unrefp) struct json *ns = obj_json(going.items[i]);

		if (ns)
			empty_namespace(s, obj_rest(going.items[i]), ns);
	}
	obj_list_fini(&going);
}

void namespaces_poke(struct apisrv *s)
{
	struct err err = {0};

	if (!s->ns_defer && ev_defer(s->loop, &s->ns_defer, on_ns_defer, s, &err))
		log_warn("namespace deletion: %s; tried again on the next change", err.msg);
}

/* ---- objects that expire ---------------------------------------------------------------------------- */

void ttl_sweep(struct apisrv *s)
{
	usec_t now = loop_realtime(s->loop);
	struct obj_list old = {0};
	struct store_iter it;
	struct obj *o;

	store_iter_init(&it, s->store, "events", NULL);
	while ((o = store_iter_next_newest(&it)))
		if (obj_written(o) + s->event_ttl < now &&
		    mem_grow((void **)&old.items, &old.cap, old.n, sizeof(*old.items)))
			old.items[old.n++] = obj_ref(o);
	for (size_t i = 0; i < old.n; i++) {
		CLEANUP(js_unrefp) struct json *j = obj_json(old.items[i]);

		if (j)
			ignore_rc(store_write(s->store, STORE_DELETE, obj_key(old.items[i]),
					      obj_rev(old.items[i]), js_copy(j), NULL, NULL, NULL,
					      NULL)); /* tried again in a minute */
	}
	obj_list_fini(&old);
}
