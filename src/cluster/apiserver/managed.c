#include "cluster/apiserver/managed.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"
#include "cluster/apiserver/fieldset.h"
#include "ev/ev.h"

#define ANCIENT "ancient-changes"

/* ---- the list ------------------------------------------------------------------------------------- */

void managers_fini(struct managers *m)
{
	for (size_t i = 0; i < m->n; i++) {
		js_unref(m->items[i].entry);
		js_unref(m->items[i].set);
	}
	m->n = 0;
}

static enum rc add(struct managers *m, struct json *entry, struct json *set, bool changed)
{
	if (m->n == MANAGED_MAX || !entry || !set) {
		js_unref(entry);
		js_unref(set);
		return m->n == MANAGED_MAX ? RC_TOO_BIG : RC_NOMEM;
	}
	m->items[m->n++] = (struct manager){.entry = entry, .set = set, .is_changed = changed};
	return RC_OK;
}

enum rc managers_load(struct managers *m, const struct json *list)
{
	enum rc rc = RC_OK;

	for (size_t i = 0; i < js_len(list) && !rc; i++) {
		struct json *entry = js_item(list, i), *set = js_get(entry, "fieldsV1");

		rc = add(m, js_ref(entry), set ? js_ref(set) : js_new_object(), false);
	}
	return rc;
}

enum rc managers_add(struct managers *m, const char *manager, const char *operation,
		     const char *api_version, const char *sub, struct json *set)
{
	struct json *entry = js_pack("{s:s, s:s, s:s, s:s, s:s*}", "manager", manager, "operation",
				     operation, "apiVersion", api_version, "fieldsType", "FieldsV1",
				     "subresource", str_is_empty(sub) ? NULL : sub);

	return add(m, entry, set, true);
}

static bool is_of(const struct manager *m, const char *operation)
{
	return str_eq(js_get_str(m->entry, "operation"), operation);
}

static bool entry_is(const struct manager *m, const char *manager, const char *operation,
		     const char *version, const char *sub)
{
	const char *have = js_get_str(m->entry, "subresource");

	return str_eq(js_get_str(m->entry, "manager"), manager) && is_of(m, operation) &&
	       str_eq(js_get_str(m->entry, "apiVersion"), version) && str_eq(have ? have : "", sub);
}

enum rc managers_find(struct managers *m, const struct change *ch, const char *name,
		      const char *operation, struct manager **out)
{
	const char *version = ch->res->kind->api_version, *sub = ch->status_only ? "status" : "";

	for (size_t i = 0; i < m->n; i++) {
		if (entry_is(&m->items[i], name, operation, version, sub)) {
			*out = &m->items[i];
			return RC_OK;
		}
	}
	enum rc rc = managers_add(m, name, operation, version, sub, js_new_object());

	if (!rc)
		*out = &m->items[m->n - 1];
	return rc;
}

size_t managers_count(const struct managers *m, const char *operation)
{
	size_t n = 0;

	for (size_t i = 0; i < m->n; i++)
		n += is_of(&m->items[i], operation);
	return n;
}

enum rc manager_set_fields(struct manager *m, struct json *set)
{
	if (!set)
		return RC_NOMEM;
	if (!js_equal(m->set, set))
		m->is_changed = true;
	js_unref(m->set);
	m->set = set;
	return RC_OK;
}

struct json *managers_render(const struct managers *m, usec_t now)
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

/* ---- a bound on those who update ----------------------------------------------------------------------- */

static void drop(struct managers *m, size_t i)
{
	js_unref(m->items[i].entry);
	js_unref(m->items[i].set);
	m->n--;
	memmove(&m->items[i], &m->items[i + 1], (m->n - i) * sizeof(m->items[0]));
}

/* The updater whose last change is the oldest; times of one form compare as texts.  n: none. */
static size_t oldest(const struct managers *m)
{
	const char *first = NULL;
	size_t found = m->n;

	for (size_t i = 0; i < m->n; i++) {
		const char *time = js_get_str(m->items[i].entry, "time");

		if (!is_of(&m->items[i], "Update") ||
		    str_eq(js_get_str(m->items[i].entry, "manager"), ANCIENT))
			continue;
		if (found == m->n || strcmp(time ? time : "", first) < 0) {
			found = i;
			first = time ? time : "";
		}
	}
	return found;
}

/* Gives the fields of one entry to the common one for old changes. */
static enum rc make_ancient(struct managers *m, const struct change *ch, size_t i)
{
	struct json *set = js_ref(m->items[i].set);
	struct change place = {.res = ch->res}; /* the main resource */
	struct manager *bucket = NULL;

	drop(m, i); /* first: there is room for the bucket then */
	enum rc rc = managers_find(m, &place, ANCIENT, "Update", &bucket);

	if (!rc)
		rc = manager_set_fields(bucket, fieldset_union(bucket->set, set));
	js_unref(set);
	return rc;
}

static enum rc cap_updaters(struct managers *m, const struct change *ch)
{
	enum rc rc = RC_OK;

	/* One place is left for who writes now. */
	while (!rc && managers_count(m, "Update") >= MANAGED_MAX_UPDATERS)
		rc = make_ancient(m, ch, oldest(m));
	return rc;
}

/* ---- creates ----------------------------------------------------------------------------------------------- */

/* Kinds that only Ferry's parts write in a normal life: by the thousand, or every few seconds. */
static bool is_tracked(const struct api_kind *k)
{
	static const char *const not [] = {"pods",	  "events",	    "leases",
					   "nodes",	  "endpointslices", "controllerrevisions",
					   "allocations", "portbindings",   "handovers",
					   "nodefences",  "diskwitnesses"};

	for (size_t i = 0; i < ARRAY_SIZE(not ); i++)
		if (strcmp(k->plural, not [i]) == 0)
			return false;
	return true;
}

enum rc managed_begin_create(struct change *ch)
{
	CLEANUP(managers_fini) struct managers m = {.n = 0};

	/* What was applied is tracked whoever applied it. */
	if (ch->managed || !is_tracked(ch->res->kind) || apisrv_user_is_component(&ch->c->user))
		return RC_OK;
	enum rc rc = managers_add(&m, call_manager(ch->c), "Update", ch->res->kind->api_version, "",
				  fieldset_of(ch->res->kind, ch->obj));

	ch->managed = rc ? NULL : managers_render(&m, loop_realtime(ch->c->srv->loop));
	return ch->managed ? RC_OK : RC_NOMEM;
}

/* ---- lists that a client edits ------------------------------------------------------------------------- */

static void check_entry(struct field_errs *fe, const struct json *e, size_t i)
{
	const char *op = js_get_str(e, "operation"), *type = js_get_str(e, "fieldsType");
	const char *manager = js_get_str(e, "manager");
	const struct json *fields = js_get(e, "fieldsV1");
	char path[64];

#define AT(name_) (snprintf(path, sizeof(path), "metadata.managedFields[%zu]" name_, i), path)
	if (!js_is_object(e)) {
		fe_add(fe, FE_TYPE_INVALID, AT(""), "Invalid value: must be an object");
		return;
	}
	if (!str_eq(op, "Apply") && !str_eq(op, "Update"))
		fe_invalid(fe, AT(".operation"), op ? op : "", "must be `Apply` or `Update`");
	if (type && !str_eq(type, "FieldsV1"))
		fe_invalid(fe, AT(".fieldsType"), type, "must be `FieldsV1`");
	call_check_manager(fe, AT(".manager"), manager ? manager : "");
	if (fields && !fieldset_is_valid(fields))
		fe_add(fe, FE_INVALID, AT(".fieldsV1"), "Invalid value: not a set of fields");
#undef AT
}

static void check_list(struct field_errs *fe, const struct json *list)
{
	if (js_len(list) > MANAGED_MAX) {
		fe_add(fe, FE_TOO_MANY, "metadata.managedFields",
		       "Too many: %zu: must have at most %d items", js_len(list), MANAGED_MAX);
		return;
	}
	for (size_t i = 0; i < js_len(list); i++)
		check_entry(fe, js_item(list, i), i);
}

/* [{}]: how a client says that it wants none. */
static bool is_reset(const struct json *list)
{
	const struct json *only = js_item(list, 0);

	return js_len(list) == 1 && js_is_object(only) && !js_len(only);
}

enum rc managed_begin_update(struct change *ch)
{
	struct json *meta = js_get(ch->obj, "metadata"), *list = js_get(meta, "managedFields");
	struct json *old = js_at(ch->old, "metadata", "managedFields", NULL);

	if (ch->managed)
		return js_set(meta, "managedFields", js_ref(ch->managed));
	if (is_reset(list)) {
		js_del(meta, "managedFields");
		return RC_OK;
	}
	/* A client that does not know them must not delete them by leaving them out. */
	if (!js_len(list)) {
		js_del(meta, "managedFields");
		return old ? js_set(meta, "managedFields", js_ref(old)) : RC_OK;
	}
	if (!js_equal(list, old))
		check_list(&ch->fe, list);
	return RC_OK;
}

/* ---- updates ----------------------------------------------------------------------------------------------- */

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
		enum rc rc =
			left ? manager_set_fields(g, fieldset_intersect(left, present)) : RC_NOMEM;

		if (rc)
			return rc;
	}
	CLEANUP(js_unrefp) struct json *gained = fieldset_intersect(changed, present);

	return gained ? manager_set_fields(own, fieldset_union(own->set, gained)) : RC_NOMEM;
}

static bool differs_beside_status(const struct json *a, const struct json *b)
{
	JS_FOREACH(it, a)
		if (strcmp(it.key, "status") != 0 && !js_equal(it.value, js_get(b, it.key)))
			return true;
	return false;
}

static bool was_applied(const struct json *list)
{
	for (size_t i = 0; i < js_len(list); i++)
		if (str_eq(js_get_str(js_item(list, i), "operation"), "Apply"))
			return true;
	return false;
}

/* Parts of Ferry report status all the time, and nobody else writes it: who set it need not be kept. */
static bool is_report(const struct change *ch, const struct json *list)
{
	return apisrv_user_is_component(&ch->c->user) && !was_applied(list) &&
	       !differs_beside_status(ch->obj, ch->old) && !differs_beside_status(ch->old, ch->obj);
}

enum rc managed_track_update(struct change *ch)
{
	CLEANUP(managers_fini) struct managers m = {.n = 0};
	struct json *meta = js_get(ch->obj, "metadata");
	const struct json *before = js_get(meta, "managedFields");
	struct manager *own = NULL;

	if (ch->managed || !js_len(before) || js_equal(ch->obj, ch->old) || is_report(ch, before))
		return RC_OK;
	CLEANUP(js_unrefp) struct json *changed = changed_fields(ch);
	CLEANUP(js_unrefp) struct json *present = fieldset_of(ch->res->kind, ch->obj);

	if (!changed || !present)
		return RC_NOMEM;
	if (fieldset_is_empty(changed))
		return RC_OK;
	enum rc rc = managers_load(&m, before);

	if (!rc)
		rc = cap_updaters(&m, ch);
	if (!rc)
		rc = managers_find(&m, ch, call_manager(ch->c), "Update", &own);
	if (!rc)
		rc = move_fields(&m, own, changed, present);
	struct json *list = rc ? NULL : managers_render(&m, loop_realtime(ch->c->srv->loop));

	return rc ? rc : js_set(meta, "managedFields", list);
}
