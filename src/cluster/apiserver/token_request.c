/* Subresource "token" of a service account: TokenRequest (authentication.k8s.io/v1), kubectl create token.
 *
 * Nothing is stored: a token is its own record.  Words and order of the checks are Kubernetes'
 * (pkg/registry/core/serviceaccount/storage/token.go).
 */
#include "cluster/apiserver/token_int.h"

#include <stdio.h>
#include <string.h>

#include "api/gen/api_types.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "ev/ev.h"
#include "pki/jws.h"

enum { MAX_AUDIENCES = 32, MAX_AUDIENCE_BYTES = 256 };

#define GROUP "authentication.k8s.io"

static void check_audiences(const TokenRequestSpec *spec, struct field_errs *fe)
{
	char path[64];

	if (spec->n_audiences > MAX_AUDIENCES)
		fe_add(fe, FE_TOO_MANY, "spec.audiences",
		       "Too many: %u: must have at most %d items", spec->n_audiences,
		       MAX_AUDIENCES);
	for (size_t i = 0; i < spec->n_audiences && i < MAX_AUDIENCES; i++) {
		const char *a = spec->audiences[i];

		snprintf(path, sizeof(path), "spec.audiences[%zu]", i);
		if (str_is_empty(a))
			fe_required(fe, path, "must not be empty");
		else if (strlen(a) > MAX_AUDIENCE_BYTES)
			fe_add(fe, FE_TOO_LONG, path, "Too long: may not be more than %d bytes",
			       MAX_AUDIENCE_BYTES);
	}
}

static void check_seconds(int64_t seconds, struct field_errs *fe)
{
	CLEANUP(js_unrefp) struct json *value = js_new_int(seconds);

	if (seconds < TOKEN_MIN_SECONDS)
		fe_invalid_json(fe, "spec.expirationSeconds", value,
				"may not specify a duration less than 10 minutes");
	else if (seconds > UINT32_MAX)
		fe_invalid_json(fe, "spec.expirationSeconds", value,
				"may not specify a duration larger than 2^32 seconds");
}

/* False: answered 422 with all faults. */
static bool check_spec(struct apisrv_call *c, const TokenRequestSpec *spec, int64_t seconds)
{
	struct field_errs fe = FIELD_ERRS_INIT;
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(16384);

	check_audiences(spec, &fe);
	check_seconds(seconds, &fe);
	if (spec->boundObjectRef && str_is_empty(spec->boundObjectRef->name))
		fe_required(&fe, "spec.boundObjectRef.name", NULL);
	bool ok = fe_is_ok(&fe);

	fe_summary(&fe, FE__MAX, &b);
	if (fe.rc)
		call_nomem(c);
	else if (!ok)
		call_fail(c, 422, "Invalid",
			  js_pack("{s:s, s:s, s:s, s:o}", "name", c->name, "group", GROUP, "kind",
				  "TokenRequest", "causes", fe_causes(&fe)),
			  "TokenRequest." GROUP " \"%s\" is invalid: %s", c->name, sbuf_str(&b));
	fe_fini(&fe);
	return ok;
}

/* ---- the object that it is bound to ------------------------------------------------------------------ */

static struct json *ref_of(const struct json *obj)
{
	return js_pack("{s:s, s:s}", "name", json_name(obj), "uid",
		       js_str(js_at(obj, "metadata", "uid", NULL)));
}

/* Where a pod runs; a node that is gone has no uid. */
static enum rc add_node(struct apisrv *s, const struct json *pod, struct json *k8s)
{
	const char *node = js_str(js_at(pod, "spec", "nodeName", NULL));

	if (str_is_empty(node))
		return RC_OK;
	CLEANUP(mem_freep) char *key = mem_printf("nodes/%s", node);
	struct obj *o = key ? store_newest(s->store, key) : NULL;
	CLEANUP(js_unrefp) struct json *obj = o ? obj_json(o) : NULL;

	if (!key || (o && !obj))
		return RC_NOMEM;
	return js_set(k8s, "node", obj ? ref_of(obj) : js_pack("{s:s}", "name", node));
}

static bool is_of_account(struct apisrv_call *c, const struct json *pod)
{
	const char *name = js_str(js_at(pod, "spec", "serviceAccountName", NULL));

	/* Kubernetes gives "default" to a pod that names none. */
	if (str_eq(str_is_empty(name) ? "default" : name, c->name))
		return true;
	call_bad_request(
		c,
		"cannot bind token for serviceaccount \"%s\" to pod running with different "
		"serviceaccount name.",
		c->name);
	return false;
}

static bool check_uid(struct apisrv_call *c, BoundObjectReference *ref, const struct json *obj)
{
	const char *uid = js_str(js_at(obj, "metadata", "uid", NULL));

	if (str_is_empty(ref->uid)) {
		mem_free(ref->uid);
		ref->uid = mem_strdup(uid);
		if (!ref->uid)
			call_nomem(c);
		return ref->uid != NULL;
	}
	if (str_eq(ref->uid, uid))
		return true;
	call_fail(c, 409, "Conflict", js_pack("{s:s, s:s}", "name", ref->name, "kind", ref->kind),
		  "Operation cannot be fulfilled on %s \"%s\": the UID in the bound object "
		  "reference (%s) does not match the UID in record. The object might have been "
		  "deleted and then recreated",
		  ref->kind, ref->name, ref->uid);
	return false;
}

/* Claims about the bound object into k8s; ref gets its uid.  False: answered. */
static bool bind(struct apisrv_call *c, BoundObjectReference *ref, struct json *k8s)
{
	static const struct {
		const char *kind, *table, *claim;
		bool is_namespaced;
	} kinds[] = {{"Pod", "pods", "pod", true},
		     {"Secret", "secrets", "secret", true},
		     {"Node", "nodes", "node", false}};
	size_t i = 0;

	if (str_eq(ref->apiVersion, "v1"))
		while (i < ARRAY_SIZE(kinds) && !str_eq(kinds[i].kind, ref->kind))
			i++;
	else
		i = ARRAY_SIZE(kinds);
	if (i == ARRAY_SIZE(kinds)) {
		call_bad_request(c, "cannot bind token to object of type %s, Kind=%s",
				 ref->apiVersion ? ref->apiVersion : "",
				 ref->kind ? ref->kind : "");
		return false;
	}
	const struct resource *res = apisrv_resource(c->srv, kinds[i].table);
	CLEANUP(mem_freep) char *key = object_key(res, c->ns, ref->name);
	struct obj *o = key ? store_newest(c->srv->store, key) : NULL;
	CLEANUP(js_unrefp) struct json *obj = o ? obj_json(o) : NULL;

	if (key && !o) {
		call_not_found(c, res, ref->name);
		return false;
	}
	if (!obj || js_set(k8s, kinds[i].claim, ref_of(obj))) {
		call_nomem(c);
		return false;
	}
	if (i == 0 && !is_of_account(c, obj))
		return false;
	if (i == 0 && add_node(c->srv, obj, k8s)) {
		call_nomem(c);
		return false;
	}
	return check_uid(c, ref, obj);
}

/* ---- the token --------------------------------------------------------------------------------------- */

static struct json *audiences_json(const struct apisrv *s, const TokenRequestSpec *spec)
{
	struct json *list = js_new_array();

	if (!spec->n_audiences && list && js_append(list, js_new_str(s->tokens->issuer)))
		list = js_unref(list);
	for (size_t i = 0; list && i < spec->n_audiences; i++)
		if (js_append(list, js_new_str(spec->audiences[i])))
			list = js_unref(list);
	return list;
}

/* k8s: what stands below "kubernetes.io"; borrowed. */
static struct json *claims_of(struct apisrv_call *c, const struct json *audiences, struct json *k8s,
			      int64_t now, int64_t seconds)
{
	CLEANUP(mem_freep) char *sub = mem_printf("system:serviceaccount:%s:%s", c->ns, c->name);
	char id[37];

	apisrv_uuid(c->srv, id);
	return sub ? js_pack("{s:O, s:I, s:I, s:s, s:s, s:O, s:I, s:s}", "aud", audiences, "exp",
			     now + seconds, "iat", now, "iss", c->srv->tokens->issuer, "jti", id,
			     "kubernetes.io", k8s, "nbf", now, "sub", sub)
		   : NULL;
}

static struct json *answer_of(struct apisrv_call *c, const TokenRequestSpec *spec,
			      const struct json *audiences, int64_t seconds, const char *token,
			      const char *end)
{
	const BoundObjectReference *ref = spec->boundObjectRef;
	char now[32];

	time_rfc3339(loop_realtime(c->srv->loop), now);
	CLEANUP(js_unrefp)
	struct json *j = js_pack("{s:s, s:s, s:{s:s, s:s, s:s}, s:{s:O, s:I}, s:{s:s, s:s}}",
				 "kind", "TokenRequest", "apiVersion", GROUP "/v1", "metadata",
				 "name", c->name, "namespace", c->ns, "creationTimestamp", now,
				 "spec", "audiences", audiences, "expirationSeconds", seconds,
				 "status", "token", token, "expirationTimestamp", end);

	if (j && ref &&
	    js_set(js_get(j, "spec"), "boundObjectRef",
		   js_pack("{s:s, s:s, s:s, s:s}", "kind", ref->kind, "apiVersion", ref->apiVersion,
			   "name", ref->name, "uid", ref->uid)))
		return NULL;
	return STEAL(j);
}

static void mint(struct apisrv_call *c, const TokenRequestSpec *spec, struct json *k8s,
		 int64_t seconds)
{
	struct apisrv *s = c->srv;
	int64_t now = (int64_t)(loop_realtime(s->loop) / USEC_PER_SEC);
	CLEANUP(js_unrefp) struct json *audiences = audiences_json(s, spec);
	CLEANUP(js_unrefp)
	struct json *claims = audiences ? claims_of(c, audiences, k8s, now, seconds) : NULL;
	CLEANUP(mem_freep) char *token = NULL;
	struct err err = {0};
	char end[32];

	if (!claims) {
		call_nomem(c);
		return;
	}
	enum rc rc = pki_jws_sign(s->tokens->keys[0], claims, &token, &err);

	if (rc) {
		call_fail_rc(c, rc == RC_NOMEM ? rc : RC_IO, &err);
		return;
	}
	time_rfc3339((usec_t)(now + seconds) * USEC_PER_SEC, end);
	call_answer_json(c, 201, answer_of(c, spec, audiences, seconds, token, end));
}

static TokenRequest *decode(struct apisrv_call *c)
{
	CLEANUP(TokenRequest_freep) TokenRequest *req = NULL;
	struct err err = {0};

	if (!js_is_object(c->json)) {
		call_bad_request(c, "the body is not a TokenRequest");
		return NULL;
	}
	json_drop_nulls(c->json);
	enum rc rc = TokenRequest_decode(c->json, &req, &err);

	if (rc) {
		call_fail_rc(c, rc, &err);
		return NULL;
	}
	if ((req->kind && !str_eq(req->kind, "TokenRequest")) ||
	    (req->apiVersion && !str_eq(req->apiVersion, GROUP "/v1"))) {
		call_bad_request(c, "the body is %s of %s, not TokenRequest of " GROUP "/v1",
				 req->kind ? req->kind : "an object",
				 req->apiVersion ? req->apiVersion : "an unknown version");
		return NULL;
	}
	if ((!str_is_empty(req->metadata.name) && !str_eq(req->metadata.name, c->name)) ||
	    (!str_is_empty(req->metadata.namespace) && !str_eq(req->metadata.namespace, c->ns))) {
		call_bad_request(c, "the name or namespace of the TokenRequest is not that of the "
				    "address");
		return NULL;
	}
	return STEAL(req);
}

void serve_token(struct apisrv_call *c)
{
	CLEANUP(change_fini)
	struct change ch = {.c = c, .res = c->res, .op = HOOK_UPDATE, .ns = c->ns, .name = c->name};

	if (!c->srv->tokens || !c->srv->tokens->n_keys) {
		call_fail(c, 501, "NotImplemented", NULL, "this server has no keys for tokens");
		return;
	}
	if (!call_check_options(c, "CreateOptions") || !change_load(&ch))
		return;
	CLEANUP(TokenRequest_freep) TokenRequest *req = decode(c);

	if (!req)
		return;
	int64_t seconds = API_GET(&req->spec, expirationSeconds, TOKEN_DEFAULT_SECONDS);

	if (!check_spec(c, &req->spec, seconds))
		return;
	if (seconds > TOKEN_MAX_SECONDS) {
		char text[128];

		snprintf(text, sizeof(text),
			 "requested expiration of %lld seconds shortened to %d seconds",
			 (long long)seconds, TOKEN_MAX_SECONDS);
		call_warn(c, text);
		seconds = TOKEN_MAX_SECONDS;
	}
	CLEANUP(js_unrefp)
	struct json *k8s =
		js_pack("{s:s, s:o}", "namespace", c->ns, "serviceaccount", ref_of(ch.old));

	if (!k8s)
		call_nomem(c);
	else if (!req->spec.boundObjectRef || bind(c, req->spec.boundObjectRef, k8s))
		mint(c, &req->spec, k8s, seconds);
}
