/* Subresource "scale": how many an object keeps, in the same form for every kind.
 *
 * A Scale is a view of spec.replicas, status.replicas and status.labelSelector; what is written to it
 * is written to the object's spec.replicas, with all that an update of the object goes through.
 */
#include "cluster/apiserver/apisrv_int.h"

#include <string.h>

#include "api/gen/api_types.h"
#include "base/str.h"

/* What an object means that does not say how many. */
enum { DEFAULT_REPLICAS = 1 };

bool call_is_scale(const struct apisrv_call *c)
{
	return c->res && c->res->kind->subresources & API_SUB_SCALE && str_eq(c->sub, "scale");
}

struct json *scale_of(const struct json *obj)
{
	const struct json *meta = js_get(obj, "metadata"), *status = js_get(obj, "status");

	return js_pack("{s:s, s:s, s:{s:s*, s:s*, s:s*, s:s*, s:s*}, s:{s:I}, s:{s:I, s:s*}}",
		       "kind", "Scale", "apiVersion", "autoscaling/v1", "metadata", "name",
		       js_get_str(meta, "name"), "namespace", js_get_str(meta, "namespace"), "uid",
		       js_get_str(meta, "uid"), "resourceVersion",
		       js_get_str(meta, "resourceVersion"), "creationTimestamp",
		       js_get_str(meta, "creationTimestamp"), "spec", "replicas",
		       (long long)js_get_int(js_get(obj, "spec"), "replicas", DEFAULT_REPLICAS),
		       "status", "replicas", (long long)js_get_int(status, "replicas", 0),
		       "selector", js_get_str(status, "labelSelector"));
}

/* The Scale that the client wants; NULL: answered. */
static Scale *wanted_scale(struct change *ch)
{
	struct apisrv_call *c = ch->c;
	CLEANUP(js_unrefp) struct json *body = NULL;
	CLEANUP(Scale_freep) Scale *scale = NULL;
	struct err err = {0};

	if (c->verb == VERB_PATCH) {
		CLEANUP(js_unrefp) struct json *now = scale_of(ch->old);

		body = now ? change_patched(c, now) : NULL;
		if (!now)
			call_nomem(c);
		if (!body)
			return NULL;
	} else {
		body = c->json ? js_ref(c->json) : NULL;
	}
	if (!js_is_object(body)) {
		call_bad_request(c, "the body is not a Scale");
		return NULL;
	}
	enum rc rc = Scale_decode(body, &scale, &err);

	if (rc) {
		call_fail_rc(c, rc, &err);
		return NULL;
	}
	if ((scale->kind && !str_eq(scale->kind, "Scale")) ||
	    (scale->apiVersion && !str_eq(scale->apiVersion, "autoscaling/v1"))) {
		call_bad_request(c, "the body is %s of %s, not Scale of autoscaling/v1",
				 scale->kind ? scale->kind : "an object",
				 scale->apiVersion ? scale->apiVersion : "an unknown version");
		return NULL;
	}
	return STEAL(scale);
}

static bool check_scale(struct change *ch, const Scale *scale)
{
	const char *ns = scale->metadata.namespace;

	if (!str_is_empty(ns) && !str_eq(ns, ch->ns)) {
		call_bad_request(
			ch->c,
			"the namespace of the provided object does not match the namespace sent on the "
			"request");
		return false;
	}
	if (scale->spec.replicas >= 0 && scale->spec.replicas <= INT32_MAX)
		return true;
	CLEANUP(js_unrefp) struct json *value = js_new_int(scale->spec.replicas);

	fe_invalid_json(&ch->fe, "spec.replicas", value, "%s",
			scale->spec.replicas < 0 ? "must be greater than or equal to 0"
						 : "must be less than or equal to 2147483647");
	call_invalid(ch->c, ch->res, ch->name, &ch->fe, NULL);
	return false;
}

/* The object with the number that the Scale wants; its name, uid and version are checked as in any
 * update. */
static enum rc put_scale(struct change *ch, const Scale *scale)
{
	ch->obj = js_copy(ch->old);
	struct json *spec = js_ensure_object(ch->obj, "spec");
	struct json *meta = js_ensure_object(ch->obj, "metadata");

	if (!spec || !meta)
		return RC_NOMEM;
	enum rc rc = js_set(spec, "replicas", js_new_int(scale->spec.replicas));

	if (!rc && !str_is_empty(scale->metadata.name))
		rc = js_set(meta, "name", js_new_str(scale->metadata.name));
	if (!rc && !str_is_empty(scale->metadata.uid))
		rc = js_set(meta, "uid", js_new_str(scale->metadata.uid));
	if (!rc && !str_is_empty(scale->metadata.resourceVersion))
		rc = js_set(meta, "resourceVersion", js_new_str(scale->metadata.resourceVersion));
	return rc;
}

static void write_scale(struct apisrv_call *c)
{
	CLEANUP(change_fini)
	struct change ch = change_of_update(c);

	if (!call_check_options(c, "UpdateOptions") || !change_load(&ch))
		return;
	CLEANUP(Scale_freep) Scale *scale = wanted_scale(&ch);

	if (!scale || !check_scale(&ch, scale))
		return;
	if (put_scale(&ch, scale))
		call_nomem(c);
	else
		change_update(&ch);
}

void serve_scale(struct apisrv_call *c)
{
	if (c->verb == VERB_GET)
		serve_get(c);
	else if (c->verb == VERB_UPDATE || c->verb == VERB_PATCH)
		write_scale(c);
	else
		call_fail(c, 405, "MethodNotAllowed", js_new_object(),
			  "the server does not allow this method on the requested resource");
}
