#include "ctl/plan.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "api/gen/api_types.h"
#include "api/patch.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "json/json.h"

enum { MAX_OPS = 4096, MAX_MESSAGE = 1024 };

static void op_fini(struct plan_op *op)
{
	mem_free(op->ns);
	mem_free(op->name);
	mem_free(op->uid);
	mem_free(op->subresource);
	js_unref(op->body);
	if (op->obj)
		api_free(op->kind->type, op->obj);
	mem_free(op->propagation);
	mem_free(op->node);
	mem_free(op->event_type);
	mem_free(op->event_reason);
	mem_free(op->event_message);
}

void plan_init(struct plan *p)
{
	*p = (struct plan){.requeue_after = USEC_INFINITY};
}

void plan_fini(struct plan *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < p->n_ops; i++)
		op_fini(&p->ops[i]);
	mem_free(p->ops);
	plan_init(p);
}

void plan_reset(struct plan *p)
{
	plan_fini(p);
}

void plan_take(struct plan *to, struct plan *from)
{
	*to = *from;
	plan_init(from);
}

bool plan_is_empty(const struct plan *p)
{
	return !p->n_ops && p->requeue_after == USEC_INFINITY;
}

static enum rc fail(struct plan *p, enum rc rc, const char *text)
{
	if (!p->rc) {
		p->rc = rc;
		err_set(&p->err, rc, "%s", text);
	}
	return p->rc;
}

static const char *opt(const char *s)
{
	return s ? s : "";
}

/* A new operation about kind ns/name; NULL: the plan has failed. */
static struct plan_op *op_add(struct plan *p, enum plan_op_type type, const struct api_kind *kind,
			      const char *ns, const char *name, const char *uid)
{
	struct plan_op *op;

	if (p->rc)
		return NULL;
	if (p->n_ops >= MAX_OPS) {
		fail(p, RC_TOO_BIG, "the plan has too many operations");
		return NULL;
	}
	if (!mem_grow((void **)&p->ops, &p->cap_ops, p->n_ops, sizeof(*p->ops))) {
		fail(p, RC_NOMEM, "cannot allocate an operation");
		return NULL;
	}
	op = &p->ops[p->n_ops++];
	*op = (struct plan_op){.type = type, .kind = kind, .grace_seconds = -1};
	op->ns = mem_strdup(kind->is_namespaced ? opt(ns) : "");
	op->name = str_is_empty(name) ? NULL : mem_strdup(name);
	op->uid = str_is_empty(uid) ? NULL : mem_strdup(uid);
	if (!op->ns || (!str_is_empty(name) && !op->name) || (!str_is_empty(uid) && !op->uid)) {
		fail(p, RC_NOMEM, "cannot allocate an operation");
		return NULL;
	}
	return op;
}

static bool set_text(struct plan *p, char **field, const char *text)
{
	*field = mem_strdup(text);
	if (!*field && text)
		fail(p, RC_NOMEM, "cannot allocate an operation");
	return !p->rc;
}

enum rc plan_create(struct plan *p, const struct api_kind *kind, void *obj)
{
	const ObjectMeta *m = obj;
	struct plan_op *op;

	if (!obj)
		return fail(p, RC_NOMEM, "no object to create");
	if (str_is_empty(m->name) && str_is_empty(m->generateName))
		fail(p, RC_INVALID, "an object to create has no name");
	else if (kind->is_namespaced && str_is_empty(m->namespace))
		fail(p, RC_INVALID, "an object to create has no namespace");
	op = op_add(p, PLAN_CREATE, kind, m->namespace, m->name, NULL);
	if (!op) {
		api_free(kind->type, obj);
		return p->rc;
	}
	op->obj = obj;
	op->body = api_encode(kind->type, obj);
	return op->body ? RC_OK : fail(p, RC_NOMEM, "cannot encode an object");
}

/* The part of an object that one update may write: everything but (or only) .status. */
static enum rc part_of(const struct api_kind *kind, const void *obj, bool only_status,
		       bool no_status, struct json **out)
{
	CLEANUP(js_unrefp) struct json *all = api_encode(kind->type, obj);
	CLEANUP(js_unrefp) struct json *part = NULL;

	if (!all)
		return RC_NOMEM;
	if (!only_status) {
		struct json *meta = js_get(all, "metadata");

		if (no_status)
			js_del(all, "status");
		js_del(meta, "resourceVersion");
		js_del(meta, "generation");
		js_del(meta, "managedFields");
		*out = STEAL(all);
		return RC_OK;
	}
	part = js_new_object();
	if (!part)
		return RC_NOMEM;
	if (js_get(all, "status") && js_set(part, "status", js_ref(js_get(all, "status"))))
		return RC_NOMEM;
	*out = STEAL(part);
	return RC_OK;
}

static enum rc difference(const struct api_kind *kind, const void *old, const void *new_,
			  const char *subresource, struct json **out)
{
	CLEANUP(js_unrefp) struct json *a = NULL;
	CLEANUP(js_unrefp) struct json *b = NULL;
	bool only_status = subresource != NULL;
	bool no_status = !subresource && (kind->subresources & API_SUB_STATUS);
	enum rc rc = part_of(kind, old, only_status, no_status, &a);

	if (!rc)
		rc = part_of(kind, new_, only_status, no_status, &b);
	if (!rc)
		rc = api_merge_diff(a, b, out);
	return rc;
}

/* So that a stale view conflicts: the object must be the one, in the state, that was looked at. */
static enum rc add_preconditions(struct json *patch, const ObjectMeta *m)
{
	CLEANUP(js_unrefp) struct json *meta = js_copy(js_get(patch, "metadata"));
	enum rc rc;

	if (!meta)
		meta = js_new_object();
	if (!meta)
		return RC_NOMEM;
	rc = str_is_empty(m->uid) ? RC_OK : js_set(meta, "uid", js_new_str(m->uid));
	if (!rc && !str_is_empty(m->resourceVersion))
		rc = js_set(meta, "resourceVersion", js_new_str(m->resourceVersion));
	return rc ? rc : js_set(patch, "metadata", js_ref(meta));
}

/* Consumes obj, the wished state, also on failure, and *patch.  NULL: p->rc says why. */
static struct plan_op *add_patch(struct plan *p, const struct api_kind *kind, const ObjectMeta *m,
				 void *obj, struct json **patch)
{
	struct plan_op *op = op_add(p, PLAN_PATCH, kind, m->namespace, m->name, m->uid);

	if (!op) {
		api_free(kind->type, obj);
		return NULL;
	}
	op->obj = obj;
	op->body = STEAL(*patch);
	return op;
}

enum rc plan_update(struct plan *p, const struct api_kind *kind, const void *old, void *new_,
		    const char *subresource)
{
	CLEANUP(js_unrefp) struct json *patch = NULL;
	const ObjectMeta *m = old;
	enum rc rc;

	if (!new_)
		return fail(p, RC_NOMEM, "no new state to write");
	if (subresource && !str_eq(subresource, "status"))
		fail(p, RC_INVALID, "only the status subresource can be updated");
	rc = p->rc ? p->rc : difference(kind, old, new_, subresource, &patch);
	if (!rc && !js_len(patch)) {
		api_free(kind->type, new_);
		return RC_OK;
	}
	if (!rc)
		rc = add_preconditions(patch, m);
	if (rc) {
		api_free(kind->type, new_);
		return fail(p, rc, "cannot compare two states of an object");
	}
	struct plan_op *op = add_patch(p, kind, m, new_, &patch);

	if (op && subresource)
		set_text(p, &op->subresource, subresource);
	return p->rc;
}

enum rc plan_confirm(struct plan *p, const struct api_kind *kind, const void *obj)
{
	CLEANUP(js_unrefp) struct json *patch = js_new_object();
	const ObjectMeta *m = obj;
	void *same = api_clone(kind->type, obj);

	if (!patch || !same || add_preconditions(patch, m)) {
		api_free(kind->type, same);
		return fail(p, RC_NOMEM, "cannot ask whether an object is as it was");
	}
	struct plan_op *op = add_patch(p, kind, m, same, &patch);

	if (op)
		op->confirms = true;
	return p->rc;
}

enum rc plan_delete(struct plan *p, const struct api_kind *kind, const char *ns, const char *name,
		    const char *uid, int64_t grace_seconds, const char *propagation)
{
	struct plan_op *op = op_add(p, PLAN_DELETE, kind, ns, name, uid);

	if (!op)
		return p->rc;
	if (!op->name)
		return fail(p, RC_INVALID, "an object to delete has no name");
	op->grace_seconds = grace_seconds;
	set_text(p, &op->propagation, propagation);
	return p->rc;
}

enum rc plan_bind(struct plan *p, const char *ns, const char *pod, const char *uid,
		  const char *node)
{
	struct plan_op *op = op_add(p, PLAN_BIND, &api_kind_Pod, ns, pod, uid);

	if (!op)
		return p->rc;
	if (!op->name || str_is_empty(node))
		return fail(p, RC_INVALID, "a binding needs a pod and a node");
	set_text(p, &op->node, node);
	op->body = js_pack("{s:s, s:s, s:{s:s, s:s, s:s*}, s:{s:s, s:s, s:s}}", "apiVersion", "v1",
			   "kind", "Binding", "metadata", "name", pod, "namespace", opt(ns), "uid",
			   op->uid, "target", "apiVersion", "v1", "kind", "Node", "name", node);
	return op->body ? p->rc : fail(p, RC_NOMEM, "cannot build a binding");
}

enum rc plan_event(struct plan *p, const struct api_kind *kind, const void *obj, const char *type,
		   const char *reason, const char *fmt, ...)
{
	const ObjectMeta *m = obj;
	struct plan_op *op = op_add(p, PLAN_EVENT, kind, m->namespace, m->name, m->uid);
	char text[MAX_MESSAGE];
	va_list ap;

	if (!op)
		return p->rc;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (set_text(p, &op->event_type, type) && set_text(p, &op->event_reason, reason))
		set_text(p, &op->event_message, text);
	return p->rc;
}

enum rc plan_requeue_after(struct plan *p, usec_t delay)
{
	p->requeue_after = MIN(p->requeue_after, delay);
	return p->rc;
}

void plan_print(const struct plan *p, struct sbuf *out)
{
	static const char *const verbs[PLAN_OP__MAX] = {
		[PLAN_CREATE] = "create", [PLAN_PATCH] = "patch", [PLAN_DELETE] = "delete",
		[PLAN_BIND] = "bind",	  [PLAN_EVENT] = "event",
	};

	for (size_t i = 0; i < p->n_ops; i++) {
		const struct plan_op *op = &p->ops[i];

		sbuf_addf(out, "%s %s %s%s%s", op->confirms ? "confirm" : verbs[op->type],
			  op->kind->kind, op->ns, *op->ns ? "/" : "", opt(op->name));
		if (op->subresource)
			sbuf_addf(out, " (%s)", op->subresource);
		if (op->type == PLAN_DELETE && op->grace_seconds >= 0)
			sbuf_addf(out, " grace=%lld", (long long)op->grace_seconds);
		if (op->propagation)
			sbuf_addf(out, " propagation=%s", op->propagation);
		if (op->type == PLAN_BIND) {
			sbuf_addf(out, " node=%s", op->node);
		} else if (op->type == PLAN_EVENT) {
			sbuf_addf(out, " %s %s: %s", op->event_type, op->event_reason,
				  op->event_message);
		} else if (op->body && !op->confirms) {
			sbuf_addc(out, ' ');
			js_print(op->body, out, false);
		}
		sbuf_addc(out, '\n');
	}
	if (p->requeue_after != USEC_INFINITY)
		sbuf_addf(out, "requeue after %llu ms\n",
			  (unsigned long long)(p->requeue_after / USEC_PER_MSEC));
	if (p->rc)
		sbuf_addf(out, "failed: %s: %s\n", rc_name(p->rc), p->err.msg);
}
