/* create, update, patch: decode, system metadata, admission, store. */
#include "cluster/apiserver/managed.h"

#include <stdio.h>
#include <string.h>

#include "api/patch.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"
#include "ev/ev.h"

#define MODIFIED_TEXT \
	"the object has been modified; please apply your changes to the latest version and try again"

void change_fini(struct change *ch)
{
	js_unref(ch->obj);
	js_unref(ch->old);
	js_unref(ch->managed);
	js_unref(ch->sent);
	fe_fini(&ch->fe);
}

bool has_finalizers(const struct json *obj)
{
	return js_len(js_at(obj, "metadata", "finalizers", NULL)) > 0 ||
	       (str_eq(js_get_str(obj, "kind"), "Namespace") &&
		js_len(js_at(obj, "spec", "finalizers", NULL)) > 0);
}

bool is_deleting(const struct json *obj)
{
	return js_str(js_at(obj, "metadata", "deletionTimestamp", NULL)) != NULL;
}

bool bump_generation(struct json *obj)
{
	struct json *meta = js_ensure_object(obj, "metadata");

	return meta && js_set(meta, "generation",
			      js_new_int(js_get_int(meta, "generation", 0) + 1)) == RC_OK;
}

bool change_load(struct change *ch)
{
	struct apisrv_call *c = ch->c;
	CLEANUP(mem_freep) char *key = object_key(ch->res, ch->ns, ch->name);

	ch->cur = key ? store_newest(c->srv->store, key) : NULL;
	if (key && !ch->cur) {
		call_not_found(c, ch->res, ch->name);
		return false;
	}
	ch->old = ch->cur ? obj_json(ch->cur) : NULL;
	if (!ch->old)
		call_nomem(c);
	return ch->old != NULL;
}

/* ---- decode ----------------------------------------------------------------------------------- */

/* apiVersion and kind may be absent: the address tells. */
static bool check_type_meta(struct apisrv_call *c, const struct resource *res, struct json *obj)
{
	const char *kind = js_get_str(obj, "kind"), *version = js_get_str(obj, "apiVersion");

	if (kind && strcmp(kind, res->kind->kind) != 0) {
		call_bad_request(
			c, "the kind of the object (%s) does not match the expected kind (%s)",
			kind, res->kind->kind);
		return false;
	}
	if (version && strcmp(version, call_api_version(c)) != 0) {
		call_bad_request(
			c,
			"the API version in the data (%s) does not match the expected API version (%s)",
			version, call_api_version(c));
		return false;
	}
	if ((!kind && js_set(obj, "kind", js_new_str(res->kind->kind))) ||
	    ((!version || c->alias) &&
	     js_set(obj, "apiVersion", js_new_str(res->kind->api_version)))) {
		call_nomem(c);
		return false;
	}
	return true;
}

static bool check_namespace(struct change *ch, struct json *meta)
{
	const char *ns = js_get_str(meta, "namespace");

	if (!ch->res->kind->is_namespaced) {
		js_del(meta, "namespace");
		return true;
	}
	if (!str_is_empty(ns) && strcmp(ns, ch->ns) != 0) {
		call_bad_request(
			ch->c,
			"the namespace of the provided object does not match the namespace sent on the "
			"request");
		return false;
	}
	if (js_set(meta, "namespace", js_new_str(ch->ns))) {
		call_nomem(ch->c);
		return false;
	}
	return true;
}

/* An object of this kind, with metadata, in the namespace of the address. */
bool change_decode(struct change *ch)
{
	struct apisrv_call *c = ch->c;

	if (!c->json || !js_is_object(c->json)) {
		call_bad_request(c, "%s",
				 c->json ? "the body is not a JSON object" : "the body is empty");
		return false;
	}
	ch->obj = STEAL(c->json);
	json_drop_nulls(ch->obj);
	if (!check_type_meta(c, ch->res, ch->obj))
		return false;
	struct json *meta = js_ensure_object(ch->obj, "metadata");

	if (!meta) {
		call_bad_request(c, "metadata is not an object");
		return false;
	}
	return check_namespace(ch, meta) && view_take(ch);
}

/* ---- into the store ---------------------------------------------------------------------------- */

static void fail_write(struct apisrv_call *c, const struct resource *res, const char *name,
		       enum rc rc, const struct err *err)
{
	if (rc == RC_EXISTS)
		call_exists(c, res, name);
	else if (rc == RC_NOT_FOUND)
		call_not_found(c, res, name);
	else if (rc == RC_CONFLICT)
		call_conflict(c, res, name, MODIFIED_TEXT);
	else
		call_fail_rc(c, rc, err);
}

static void on_written(void *arg, enum rc rc, struct obj *o, const struct err *err)
{
	struct apisrv_call *c = arg;

	c->write = NULL;
	c->is_settled = true;
	call_enter(c);
	if (rc)
		call_fail_rc(c, rc, err);
	else if (c->reply)
		call_answer_json(c, c->reply_status, STEAL(c->reply));
	else
		call_answer_stored(c, c->reply_status, o);
	call_leave(c);
}

void change_commit(struct change *ch, enum store_op op, int status, struct json *reply)
{
	struct apisrv_call *c = ch->c;
	struct err err = {0};

	if (call_is_dry_run(c)) {
		if (reply)
			call_answer_json(c, status, reply);
		else
			call_answer_object(c, status, ch->obj);
		return;
	}
	CLEANUP(mem_freep) char *key = object_key(ch->res, ch->ns, ch->name);

	if (!key) {
		js_unref(reply);
		call_nomem(c);
		return;
	}
	js_unref(c->reply);
	c->reply = reply;
	c->reply_status = status;
	enum rc rc = store_write(c->srv->store, op, key, ch->cur ? obj_rev(ch->cur) : 0,
				 STEAL(ch->obj), on_written, c, &c->write, &err);

	if (rc)
		fail_write(c, ch->res, ch->name, rc, &err);
}

/* ---- create ------------------------------------------------------------------------------------ */

static bool namespace_is_open(struct change *ch)
{
	struct apisrv_call *c = ch->c;
	char key[LIMIT_NAME_BYTES + 16];

	if (!ch->res->kind->is_namespaced)
		return true;
	snprintf(key, sizeof(key), "namespaces/%s", ch->ns);
	struct obj *o = store_newest(c->srv->store, key);

	if (!o) {
		call_not_found(c, apisrv_resource(c->srv, "namespaces"), ch->ns);
		return false;
	}
	CLEANUP(js_unrefp) struct json *ns = obj_json(o);

	if (ns && is_deleting(ns)) {
		char why[LIMIT_NAME_BYTES + 100];

		snprintf(
			why, sizeof(why),
			"unable to create new content in namespace %s because it is being terminated",
			ch->ns);
		call_forbidden(c, ch->res, ch->name, why,
			       js_pack("[{s:s, s:s+, s:s}]", "reason", "NamespaceTerminating",
				       "message", "namespace is being terminated: ", ch->ns,
				       "field", "metadata.namespace"));
		return false;
	}
	return true;
}

/* metadata.name, from generateName if need be; ch->name borrows it until the object changes. */
static bool resolve_name(struct change *ch, struct json *meta)
{
	struct apisrv *s = ch->c->srv;
	const char *base = js_get_str(meta, "generateName");
	char name[LIMIT_NAME_BYTES + 16];

	if (str_is_empty(js_get_str(meta, "name")) && !str_is_empty(base)) {
		for (int tries = 0; tries < 8; tries++) {
			char tail[6];

			apisrv_rand_name(s, tail, 5);
			snprintf(name, sizeof(name), "%.58s%s", base, tail);
			CLEANUP(mem_freep) char *key = object_key(ch->res, ch->ns, name);

			if (!key || !store_newest(s->store, key))
				break;
		}
		if (js_set(meta, "name", js_new_str(name))) {
			call_nomem(ch->c);
			return false;
		}
	}
	ch->name = js_get_str(meta, "name");
	if (!ch->name)
		ch->name = "";
	return true;
}

static bool set_system_create(struct change *ch, struct json *meta)
{
	static const char *const own[] = {
		"selfLink",	 "deletionTimestamp", "deletionGracePeriodSeconds",
		"managedFields", "generation",	      "uid"};
	char uid[37], now[32];

	if (!str_is_empty(js_get_str(meta, "resourceVersion"))) {
		call_bad_request(ch->c,
				 "resourceVersion should not be set on objects to be created");
		return false;
	}
	js_del(meta, "resourceVersion");
	for (size_t i = 0; i < ARRAY_SIZE(own); i++)
		js_del(meta, own[i]);
	apisrv_uuid(ch->c->srv, uid);
	time_rfc3339(loop_realtime(ch->c->srv->loop), now);
	enum rc rc = js_set(meta, "uid", js_new_str(uid));

	if (!rc)
		rc = js_set(meta, "creationTimestamp", js_new_str(now));
	if (!rc && ch->res->kind->keeps_generation)
		rc = js_set(meta, "generation", js_new_int(1));
	if (rc)
		call_nomem(ch->c);
	return rc == RC_OK;
}

static void first_goes_last(struct field_errs *fe)
{
	struct field_err first = fe->items[0];

	memmove(fe->items, fe->items + 1, (fe->n - 1) * sizeof(first));
	fe->items[fe->n - 1] = first;
}

/* A kind without a controller: an object of it would be taken, and then nothing would come of it.  What else is wrong
 * with the object comes before that; the reason is found first, so that no limit of findings cuts it off. */
static bool kind_can_be_made(struct change *ch)
{
	const char *why = ch->res->kind->refused;

	if (!why)
		return true;
	fe_add(&ch->fe, FE_FORBIDDEN, "kind", "not supported by Ferry yet: %s", why);
	if (!change_find_faults(ch))
		return false;
	if (ch->fe.rc) {
		call_nomem(ch->c);
		return false;
	}
	first_goes_last(&ch->fe);
	call_invalid(ch->c, ch->res, ch->name, &ch->fe, NULL);
	return false;
}

void change_create(struct change *ch)
{
	struct apisrv_call *c = ch->c;
	struct json *meta = js_get(ch->obj, "metadata");

	if (!resolve_name(ch, meta) || !kind_can_be_made(ch) || !set_system_create(ch, meta))
		return;
	/* Admission may rebuild the object, and the store takes it: the name must outlive both. */
	CLEANUP(mem_freep) char *name = mem_strdup(ch->name);

	if (!name) {
		call_nomem(c);
		return;
	}
	ch->name = name;
	audit_named(c, name);
	if (ch->res->kind->subresources & API_SUB_STATUS)
		js_del(ch->obj, "status"); /* its own subresource's */
	if (!namespace_is_open(ch) || !change_admit(ch) || !authorize_change(ch))
		return;
	if (js_len(ch->managed) &&
	    js_set(js_get(ch->obj, "metadata"), "managedFields", js_ref(ch->managed))) {
		call_nomem(c);
		return;
	}
	CLEANUP(mem_freep) char *key = object_key(ch->res, ch->ns, name);

	if (!key)
		call_nomem(c);
	else if (store_newest(c->srv->store, key))
		call_exists(c, ch->res, name);
	else
		change_commit(ch, STORE_CREATE, 201, NULL);
	ch->name = "";
}

void serve_create(struct apisrv_call *c)
{
	CLEANUP(change_fini)
	struct change ch = {.c = c, .res = c->res, .op = HOOK_CREATE, .ns = c->ns, .name = ""};

	if (call_check_options(c, "CreateOptions") && change_decode(&ch))
		change_create(&ch);
}

/* ---- update and patch --------------------------------------------------------------------------- */

static bool check_same_object(struct change *ch)
{
	struct apisrv_call *c = ch->c;
	const struct json *new_ = js_get(ch->obj, "metadata"), *old = js_get(ch->old, "metadata");
	const char *name = js_get_str(new_, "name"), *uid = js_get_str(new_, "uid");
	const char *rv = js_get_str(new_, "resourceVersion"), *old_uid = js_get_str(old, "uid");

	if (!str_eq(name, ch->name)) {
		call_bad_request(
			c, "the name of the object (%s) does not match the name on the URL (%s)",
			name ? name : "", ch->name);
		return false;
	}
	if (!str_is_empty(uid) && !str_eq(uid, old_uid)) {
		char why[256];

		snprintf(
			why, sizeof(why),
			"Precondition failed: UID in precondition: %.64s, UID in object meta: %.64s",
			uid, old_uid ? old_uid : "");
		call_conflict(c, ch->res, ch->name, why);
		return false;
	}
	int64_t number = 0;

	if (!str_is_empty(rv) && str_to_i64(rv, 0, INT64_MAX, &number, NULL)) {
		fe_invalid(&ch->fe, "metadata.resourceVersion", rv, "must be a number");
		call_invalid(c, ch->res, ch->name, &ch->fe, NULL);
		return false;
	}
	if (!number) { /* "0" is any version, as nothing is */
		if (!kind_is_custom(ch->res->kind))
			return true;
		fe_add(&ch->fe, FE_INVALID, "metadata.resourceVersion",
		       "Invalid value: 0x0: must be specified for an update");
		call_invalid(c, ch->res, ch->name, &ch->fe, NULL);
		return false;
	}
	if (!str_eq(rv, js_get_str(old, "resourceVersion"))) {
		call_conflict(c, ch->res, ch->name, MODIFIED_TEXT);
		return false;
	}
	return true;
}

/* Copies key from src, or removes it where src has none. */
static enum rc carry(struct json *dst, const struct json *src, const char *key)
{
	struct json *v = js_get(src, key);

	if (v)
		return js_set(dst, key, js_ref(v));
	js_del(dst, key);
	return RC_OK;
}

/* What no update may touch. */
static enum rc carry_system(struct change *ch)
{
	static const char *const keys[] = {"uid",
					   "creationTimestamp",
					   "generation",
					   "resourceVersion",
					   "deletionTimestamp",
					   "deletionGracePeriodSeconds",
					   "selfLink",
					   "generateName"};
	struct json *meta = js_get(ch->obj, "metadata");
	const struct json *old = js_get(ch->old, "metadata");
	enum rc rc = RC_OK;

	for (size_t i = 0; i < ARRAY_SIZE(keys) && !rc; i++)
		rc = carry(meta, old, keys[i]);
	if (!rc)
		rc = managed_begin_update(ch);
	if (!rc && !ch->status_only && ch->res->kind->subresources & API_SUB_STATUS)
		rc = carry(ch->obj, ch->old, "status");
	return rc;
}

/* Through the status subresource only .status changes. */
static enum rc only_status(struct change *ch)
{
	struct json *whole = js_copy(ch->old);

	if (!whole)
		return RC_NOMEM;
	enum rc rc = carry(whole, ch->obj, "status");

	if (rc) {
		js_unref(whole);
		return rc;
	}
	js_unref(ch->obj);
	ch->obj = whole;
	return RC_OK;
}

static bool content_differs(const struct json *a, const struct json *b)
{
	JS_FOREACH(it, a)
		if (strcmp(it.key, "metadata") != 0 && strcmp(it.key, "status") != 0 &&
		    !js_equal(it.value, js_get(b, it.key)))
			return true;
	JS_FOREACH(it, b)
		if (strcmp(it.key, "metadata") != 0 && strcmp(it.key, "status") != 0 &&
		    !js_get(a, it.key))
			return true;
	return false;
}

static bool check_new_finalizers(struct change *ch)
{
	const struct json *new_ = js_at(ch->obj, "metadata", "finalizers", NULL);
	const struct json *old = js_at(ch->old, "metadata", "finalizers", NULL);

	if (!is_deleting(ch->old))
		return true;
	for (size_t i = 0; i < js_len(new_); i++) {
		bool known = false;

		for (size_t k = 0; k < js_len(old); k++)
			known = known || js_equal(js_item(new_, i), js_item(old, k));
		if (known)
			continue;
		fe_forbidden(
			&ch->fe, "metadata.finalizers",
			"no new finalizers can be added if the object is being deleted, found new finalizers "
			"[]string{\"%s\"}",
			js_str(js_item(new_, i)));
		call_invalid(ch->c, ch->res, ch->name, &ch->fe, NULL);
		return false;
	}
	return true;
}

void change_finish_update(struct change *ch)
{
	struct apisrv_call *c = ch->c;

	if (!change_admit(ch) || !check_new_finalizers(ch) || !authorize_change(ch))
		return;
	if (!ch->status_only && ch->res->kind->keeps_generation &&
	    content_differs(ch->obj, ch->old) && !bump_generation(ch->obj)) {
		call_nomem(c);
		return;
	}
	if (managed_track_update(ch)) {
		call_nomem(c);
		return;
	}
	bool gone = is_deleting(ch->obj) && !has_finalizers(ch->obj) &&
		    js_int(js_at(ch->obj, "metadata", "deletionGracePeriodSeconds", NULL), 0) == 0;

	if (gone)
		change_commit(ch, STORE_DELETE, 200, NULL);
	else if (js_equal(ch->obj, ch->old))
		call_answer_object(c, 200, ch->old); /* nothing changes: nothing is written */
	else
		change_commit(ch, STORE_UPDATE, 200, NULL);
}

void change_update(struct change *ch)
{
	if (!check_same_object(ch))
		return;
	enum rc rc = ch->status_only ? only_status(ch) : RC_OK;

	if (!rc)
		rc = carry_system(ch);
	if (rc)
		call_nomem(ch->c);
	else
		change_finish_update(ch);
}

struct change change_of_update(struct apisrv_call *c)
{
	return (struct change){.c = c,
			       .res = c->res,
			       .op = HOOK_UPDATE,
			       .ns = c->ns,
			       .name = c->name,
			       .status_only = str_eq(c->sub, "status")};
}

void serve_update(struct apisrv_call *c)
{
	CLEANUP(change_fini)
	struct change ch = change_of_update(c);

	if (call_check_options(c, "UpdateOptions") && change_decode(&ch) && change_load(&ch))
		change_update(&ch);
}

enum patch_kind { PATCH_JSON, PATCH_MERGE, PATCH_STRATEGIC, PATCH_UNKNOWN };

static enum patch_kind patch_kind_of(const struct apisrv_call *c)
{
	const char *t = c->content_type;

	if (str_eq(t, "application/json-patch+json"))
		return PATCH_JSON;
	if (str_eq(t, "application/merge-patch+json"))
		return PATCH_MERGE;
	if (str_eq(t, "application/strategic-merge-patch+json") &&
	    c->res->kind->has_strategic_patch)
		return PATCH_STRATEGIC;
	return PATCH_UNKNOWN;
}

static void fail_patch_kind(struct apisrv_call *c)
{
	call_fail(
		c, 415, "UnsupportedMediaType", NULL,
		"the body of the request was in an unknown format - accepted media types include: "
		"application/json-patch+json, application/merge-patch+json%s%s",
		c->res->kind->has_strategic_patch ? ", application/strategic-merge-patch+json" : "",
		call_is_scale(c) ? "" : ", application/apply-patch+yaml");
}

struct json *change_patched(struct apisrv_call *c, const struct json *base)
{
	enum patch_kind kind = patch_kind_of(c);
	struct err err = {0};
	CLEANUP(js_unrefp) struct json *patched = NULL;
	enum rc rc;

	if (kind == PATCH_UNKNOWN) {
		fail_patch_kind(c);
		return NULL;
	}
	if (!c->json) {
		call_bad_request(c, "the patch is empty");
		return NULL;
	}
	if (kind == PATCH_JSON)
		rc = api_patch_json(base, c->json, &patched, &err);
	else if (kind == PATCH_MERGE)
		rc = api_patch_merge(base, c->json, &patched, &err);
	else
		rc = api_patch_strategic(c->alias ? c->alias->type : c->res->kind->type, base,
					 c->json, &patched, &err);
	if (rc) {
		call_fail_rc(c, rc, &err);
		return NULL;
	}
	/* It may share parts with the stored version, which nobody may change. */
	struct json *copy = js_copy(patched);

	if (!copy)
		call_nomem(c);
	return copy;
}

static bool apply_patch(struct change *ch)
{
	struct apisrv_call *c = ch->c;
	CLEANUP(js_unrefp) struct json *base = version_as_asked(c, ch->old);

	if (!base) {
		call_nomem(c);
		return false;
	}
	ch->obj = change_patched(c, base);
	if (!ch->obj)
		return false;
	if (!js_is_object(ch->obj) || !js_ensure_object(ch->obj, "metadata")) {
		call_bad_request(c, "the patched object is not an object with metadata");
		return false;
	}
	json_drop_nulls(ch->obj);
	return check_type_meta(c, ch->res, ch->obj) &&
	       check_namespace(ch, js_get(ch->obj, "metadata")) && view_take(ch);
}

void serve_patch(struct apisrv_call *c)
{
	CLEANUP(change_fini)
	struct change ch = change_of_update(c);

	if (str_eq(c->content_type, "application/apply-patch+yaml")) {
		if (call_is_view(c))
			call_fail(c, 415, "UnsupportedMediaType", NULL,
				  "events of %s cannot be applied: apply them as v1",
				  c->alias->api_version);
		else if (call_check_options(c, "PatchOptions"))
			serve_apply(c);
	} else if (patch_kind_of(c) == PATCH_UNKNOWN) {
		fail_patch_kind(c);
	} else if (call_check_options(c, "PatchOptions") && change_load(&ch) && apply_patch(&ch)) {
		change_update(&ch);
	}
}
