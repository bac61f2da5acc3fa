/* Server-side apply: conflicts and the merge.  Who set which field is kept by managed.c. */
#include "cluster/apiserver/managed.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "cluster/apiserver/fieldset.h"
#include "ev/ev.h"

/* ---- conflicts --------------------------------------------------------------------------------------- */

struct conflicts {
	struct json *causes;
	struct sbuf text;
	char who[400];
	size_t n;
	char first[512];
	bool nomem;
};

/* `"kubectl" using v1 at 2026-01-02T03:04:05Z` */
static void print_manager(const struct manager *m, char *out, size_t n)
{
	const char *time = js_get_str(m->entry, "time"), *sub = js_get_str(m->entry, "subresource");
	int k = snprintf(out, n, "\"%.128s\"", js_get_str(m->entry, "manager"));

	if (sub && k > 0 && (size_t)k < n)
		k += snprintf(out + k, n - (size_t)k, " with subresource \"%.32s\"", sub);
	if (str_eq(js_get_str(m->entry, "operation"), "Update") && k > 0 && (size_t)k < n)
		snprintf(out + k, n - (size_t)k, " using %.64s%s%.32s",
			 js_get_str(m->entry, "apiVersion"), time ? " at " : "", time ? time : "");
}

static void add_conflict(void *arg, const char *path)
{
	struct conflicts *x = arg;
	char message[450];

	snprintf(message, sizeof(message), "conflict with %s", x->who);
	if (!x->n++)
		snprintf(x->first, sizeof(x->first), "%s: %.100s", message, path);
	sbuf_addf(&x->text, "\n- %s", path);
	if (js_append(x->causes, js_pack("{s:s, s:s, s:s}", "reason", "FieldManagerConflict",
					 "message", message, "field", path)))
		x->nomem = true;
}

static void answer_conflicts(struct apisrv_call *c, struct conflicts *x)
{
	struct json *details = js_pack("{s:O}", "causes", x->causes);

	if (x->nomem || sbuf_rc(&x->text) || !details) {
		js_unref(details);
		call_nomem(c);
	} else if (x->n == 1) {
		call_fail(c, 409, "Conflict", details, "Apply failed with 1 conflict: %s",
			  x->first);
	} else {
		call_fail(c, 409, "Conflict", details, "Apply failed with %zu conflicts: %s", x->n,
			  sbuf_str(&x->text));
	}
}

/* Takes over what others have differently, or says whose it is.  False: answered. */
static bool resolve_conflicts(struct change *ch, struct managers *m, const struct manager *own,
			      const struct json *config, const struct json *set)
{
	struct conflicts x = {.causes = js_new_array(), .text = SBUF_INIT(64 * KIB)};
	bool force = call_param_bool(ch->c, "force"), ok = x.causes != NULL;

	for (size_t i = 0; ok && i < m->n; i++) {
		struct manager *g = &m->items[i];
		CLEANUP(js_unrefp)
		struct json *both = g == own ? js_new_object() : fieldset_intersect(set, g->set);
		CLEANUP(js_unrefp)
		struct json *differing =
			both ? fieldset_differing(ch->res->kind, ch->old, config, both) : NULL;

		if (!differing) {
			ok = false;
		} else if (force) {
			ok = !manager_set_fields(g, fieldset_subtract(g->set, differing));
		} else if (!fieldset_is_empty(differing)) {
			print_manager(g, x.who, sizeof(x.who));
			sbuf_addf(&x.text, "%sconflicts with %s:", x.text.n ? "\n" : "", x.who);
			fieldset_each(differing, add_conflict, &x);
		}
	}
	if (!ok)
		call_nomem(ch->c);
	else if (x.n)
		answer_conflicts(ch->c, &x);
	js_unref(x.causes);
	sbuf_fini(&x.text);
	return ok && !x.n;
}

/* ---- the merge ----------------------------------------------------------------------------------------- */

/* What all but one set. */
static struct json *fields_of_others(const struct managers *m, const struct manager *own)
{
	struct json *all = js_new_object();

	for (size_t i = 0; all && i < m->n; i++) {
		if (&m->items[i] == own)
			continue;
		struct json *next = fieldset_union(all, m->items[i].set);

		js_unref(all);
		all = next;
	}
	return all;
}

/* live with config over it, without what the manager no longer wants and nobody else has. */
static struct json *merged_object(struct change *ch, struct managers *m, const struct manager *own,
				  const struct json *config, const struct json *set)
{
	const struct api_kind *k = ch->res->kind;
	CLEANUP(js_unrefp) struct json *merged = fieldset_merge(k, ch->old, config);
	CLEANUP(js_unrefp) struct json *others = fields_of_others(m, own);
	CLEANUP(js_unrefp) struct json *keep = others ? fieldset_union(set, others) : NULL;
	CLEANUP(js_unrefp) struct json *gone = keep ? fieldset_subtract(own->set, keep) : NULL;

	if (!merged || !gone || fieldset_remove(k, merged, gone, keep))
		return NULL;
	return STEAL(merged);
}

static enum rc load_managers(struct change *ch, struct managers *m)
{
	enum rc rc = managers_load(m, js_at(ch->old, "metadata", "managedFields", NULL));

	if (rc || !ch->old || m->n)
		return rc;
	return managers_add(m, "before-first-apply", "Update", ch->res->kind->api_version, "",
			    fieldset_of(ch->res->kind, ch->old));
}

/* Without what is not this address' to set. */
static struct json *wanted_fields(struct change *ch, struct json *config)
{
	bool has_status = ch->res->kind->subresources & API_SUB_STATUS;

	if (has_status && !ch->status_only)
		js_del(config, "status");
	CLEANUP(js_unrefp) struct json *set = fieldset_of(ch->res->kind, config);

	if (!set || !ch->status_only)
		return STEAL(set);
	struct json *only = js_new_object();

	if (only && js_get(set, "f:status") &&
	    js_set(only, "f:status", js_ref(js_get(set, "f:status"))))
		only = js_unref(only);
	return only;
}

static bool apply_over(struct change *ch, struct json *config)
{
	CLEANUP(managers_fini) struct managers m = {.n = 0};
	CLEANUP(js_unrefp) struct json *set = wanted_fields(ch, config);
	struct manager *own = NULL;
	enum rc rc = set ? load_managers(ch, &m) : RC_NOMEM;

	if (!rc)
		rc = managers_find(&m, ch, call_param(ch->c, "fieldManager"), "Apply", &own);
	if (rc == RC_TOO_BIG || managers_count(&m, "Apply") > MANAGED_MAX_APPLIERS) {
		call_fail(ch->c, 422, "Invalid", NULL,
			  "more than %d field managers apply to the object", MANAGED_MAX_APPLIERS);
		return false;
	}
	if (rc) {
		call_nomem(ch->c);
		return false;
	}
	if (ch->old && !resolve_conflicts(ch, &m, own, config, set))
		return false;
	ch->obj = ch->old ? merged_object(ch, &m, own, config, set) : js_ref(config);
	rc = manager_set_fields(own, js_ref(set));
	ch->managed = rc ? NULL : managers_render(&m, loop_realtime(ch->c->srv->loop));
	if (ch->obj && ch->managed)
		return true;
	call_nomem(ch->c);
	return false;
}

/* ---- the request ------------------------------------------------------------------------------------------ */

static bool check_request(struct change *ch)
{
	struct apisrv_call *c = ch->c;
	const struct json *meta = js_get(ch->obj, "metadata");
	const char *name = js_get_str(meta, "name");

	if (js_len(js_get(meta, "managedFields"))) {
		call_bad_request(c, "metadata.managedFields must be nil");
		return false;
	}
	if (!str_eq(name, ch->name)) {
		call_bad_request(
			c, "the name of the object (%s) does not match the name on the URL (%s)",
			name ? name : "", ch->name);
		return false;
	}
	return true;
}

void serve_apply(struct apisrv_call *c)
{
	CLEANUP(change_fini)
	struct change ch = change_of_update(c);

	if (!js_get_str(c->json, "apiVersion") || !js_get_str(c->json, "kind")) {
		call_bad_request(c, "an applied object needs apiVersion and kind");
		return;
	}
	if (!change_decode(&ch) || !check_request(&ch))
		return;
	CLEANUP(js_unrefp) struct json *config = STEAL(ch.obj);
	CLEANUP(mem_freep) char *key = object_key(ch.res, ch.ns, ch.name);

	if (!key || (c->res->strategy->canonical && c->res->strategy->canonical(config))) {
		call_nomem(c);
		return;
	}
	ch.cur = store_newest(c->srv->store, key);
	if (!ch.cur && ch.status_only) {
		call_not_found(c, ch.res, ch.name);
		return;
	}
	if (ch.cur && !(ch.old = obj_json(ch.cur))) {
		call_nomem(c);
		return;
	}
	ch.op = ch.cur ? HOOK_UPDATE : HOOK_CREATE;
	if (!apply_over(&ch, config))
		return;
	if (ch.cur)
		change_update(&ch);
	else if (authorize_verb(c, "create"))
		change_create(&ch);
}
