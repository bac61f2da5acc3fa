/* Server-side apply: who set which field, conflicts, and the merge.
 *
 * managedFields are kept for objects that were applied at least once: the first apply of an object that
 * others wrote before gives what is there to the manager "before-first-apply", as Kubernetes does.  From
 * then on every write moves fields between managers.  Objects that are never applied carry none: they
 * stay small, and their writes stay quick.
 */
#include "cluster/apiserver/apisrv_int.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "cluster/apiserver/fieldset.h"
#include "ev/ev.h"

enum { MAX_MANAGERS = 64 };

/* One entry of metadata.managedFields. */
struct manager {
	struct json *entry; /* as it stands in the object; a reference */
	struct json *set;   /* its fields, replaced when they change */
	bool is_changed;
};

struct managers {
	struct manager items[MAX_MANAGERS];
	size_t n;
};

static void managers_fini(struct managers *m)
{
	for (size_t i = 0; i < m->n; i++) {
		js_unref(m->items[i].entry);
		js_unref(m->items[i].set);
	}
	m->n = 0;
}

static enum rc add_manager(struct managers *m, struct json *entry, struct json *set, bool changed)
{
	if (m->n == MAX_MANAGERS || !entry || !set) {
		js_unref(entry);
		js_unref(set);
		return m->n == MAX_MANAGERS ? RC_TOO_BIG : RC_NOMEM;
	}
	m->items[m->n++] = (struct manager){.entry = entry, .set = set, .is_changed = changed};
	return RC_OK;
}

static enum rc managers_load(struct managers *m, const struct json *obj)
{
	const struct json *list = js_at(obj, "metadata", "managedFields", NULL);
	enum rc rc = RC_OK;

	for (size_t i = 0; i < js_len(list) && !rc; i++) {
		struct json *entry = js_item(list, i), *set = js_get(entry, "fieldsV1");

		rc = add_manager(m, js_ref(entry), set ? js_ref(set) : js_new_object(), false);
	}
	return rc;
}

static struct json *new_entry(const char *manager, const char *operation, const char *api_version,
			      const char *sub)
{
	return js_pack("{s:s, s:s, s:s, s:s, s:s*}", "manager", manager, "operation", operation,
		       "apiVersion", api_version, "fieldsType", "FieldsV1", "subresource",
		       str_is_empty(sub) ? NULL : sub);
}

static bool entry_is(const struct manager *m, const char *manager, const char *operation,
		     const char *version, const char *sub)
{
	const char *have = js_get_str(m->entry, "subresource");

	return str_eq(js_get_str(m->entry, "manager"), manager) &&
	       str_eq(js_get_str(m->entry, "operation"), operation) &&
	       str_eq(js_get_str(m->entry, "apiVersion"), version) && str_eq(have ? have : "", sub);
}

/* The entry of a writer, made when absent. */
static enum rc find_manager(struct managers *m, const struct change *ch, const char *name,
			    const char *operation, struct manager **out)
{
	const char *version = ch->res->kind->api_version, *sub = ch->status_only ? "status" : "";

	for (size_t i = 0; i < m->n; i++) {
		if (entry_is(&m->items[i], name, operation, version, sub)) {
			*out = &m->items[i];
			return RC_OK;
		}
	}
	enum rc rc =
		add_manager(m, new_entry(name, operation, version, sub), js_new_object(), true);

	if (!rc)
		*out = &m->items[m->n - 1];
	return rc;
}

/* set is consumed. */
static enum rc set_fields(struct manager *m, struct json *set)
{
	if (!set)
		return RC_NOMEM;
	if (!js_equal(m->set, set))
		m->is_changed = true;
	js_unref(m->set);
	m->set = set;
	return RC_OK;
}

/* The list for the object; entries without fields are gone, changed ones get the time. */
static struct json *managers_render(const struct managers *m, usec_t now)
{
	CLEANUP(js_unrefp) struct json *list = js_new_array();
	char time[32];

	time_rfc3339(now, time);
	for (size_t i = 0; list && i < m->n; i++) {
		const struct manager *g = &m->items[i];
		struct json *entry;

		if (fieldset_is_empty(g->set))
			continue;
		entry = js_copy(g->entry);
		if (!entry || (g->is_changed && (js_set(entry, "time", js_new_str(time)) ||
						 js_set(entry, "fieldsV1", js_copy(g->set))))) {
			js_unref(entry);
			return NULL;
		}
		if (js_append(list, entry))
			return NULL;
	}
	return STEAL(list);
}

/* ---- updates of objects that have managers ---------------------------------------------------------- */

/* Everything that the two versions have differently, gone fields included. */
static struct json *changed_fields(const struct change *ch)
{
	CLEANUP(js_unrefp) struct json *is = fieldset_of(ch->res->kind, ch->obj);
	CLEANUP(js_unrefp) struct json *was = fieldset_of(ch->res->kind, ch->old);
	CLEANUP(js_unrefp) struct json *all = is && was ? fieldset_union(is, was) : NULL;

	return all ? fieldset_differing(ch->res->kind, ch->old, ch->obj, all) : NULL;
}

static enum rc move_fields(struct managers *m, struct manager *own, const struct json *changed,
			   const struct json *present)
{
	for (size_t i = 0; i < m->n; i++) {
		struct manager *g = &m->items[i];
		CLEANUP(js_unrefp) struct json *left = fieldset_subtract(g->set, changed);
		enum rc rc = left ? set_fields(g, fieldset_intersect(left, present)) : RC_NOMEM;

		if (rc)
			return rc;
	}
	CLEANUP(js_unrefp) struct json *gained = fieldset_intersect(changed, present);

	return gained ? set_fields(own, fieldset_union(own->set, gained)) : RC_NOMEM;
}

enum rc apply_track_update(struct change *ch)
{
	CLEANUP(managers_fini) struct managers m = {.n = 0};
	struct manager *own = NULL;

	if (ch->managed || !js_len(js_at(ch->old, "metadata", "managedFields", NULL)))
		return RC_OK;
	CLEANUP(js_unrefp) struct json *changed = changed_fields(ch);
	CLEANUP(js_unrefp) struct json *present = fieldset_of(ch->res->kind, ch->obj);

	if (!changed || !present)
		return RC_NOMEM;
	if (fieldset_is_empty(changed))
		return RC_OK;
	enum rc rc = managers_load(&m, ch->old);

	if (!rc)
		rc = find_manager(&m, ch, call_manager(ch->c), "Update", &own);
	if (!rc)
		rc = move_fields(&m, own, changed, present);
	if (rc == RC_TOO_BIG) /* nobody is told of more than 64 managers */
		return RC_OK;
	struct json *list = rc ? NULL : managers_render(&m, loop_realtime(ch->c->srv->loop));

	return rc ? rc : js_set(js_get(ch->obj, "metadata"), "managedFields", list);
}

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
			ok = !set_fields(g, fieldset_subtract(g->set, differing));
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
	enum rc rc = managers_load(m, ch->old);

	if (rc || !ch->old || m->n)
		return rc;
	return add_manager(
		m, new_entry("before-first-apply", "Update", ch->res->kind->api_version, ""),
		fieldset_of(ch->res->kind, ch->old), true);
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
		rc = find_manager(&m, ch, call_param(ch->c, "fieldManager"), "Apply", &own);
	if (rc == RC_TOO_BIG) {
		call_fail(ch->c, 422, "Invalid", NULL, "the object has more than %d field managers",
			  MAX_MANAGERS);
		return false;
	}
	if (rc) {
		call_nomem(ch->c);
		return false;
	}
	if (ch->old && !resolve_conflicts(ch, &m, own, config, set))
		return false;
	ch->obj = ch->old ? merged_object(ch, &m, own, config, set) : js_ref(config);
	rc = set_fields(own, js_ref(set));
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

	if (str_is_empty(call_param(c, "fieldManager"))) {
		call_fail(
			c, 422, "Invalid", NULL,
			"PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required "
			"for apply patch");
		return false;
	}
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
