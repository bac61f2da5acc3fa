/* Whose is this token?  TokenReview (authentication.k8s.io/v1), and what others need to check tokens
 * themselves: OpenID's discovery document and the keys.
 */
#include "cluster/apiserver/token_int.h"

#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "pki/jws.h"

enum { MAX_AUDIENCES = 64 };

/* NULL: out of memory. */
static struct json *found_of(const struct json *claims, const char *const *audiences, size_t n)
{
	struct json *list = js_new_array();

	for (size_t i = 0; list && i < n; i++)
		if (token_is_for(claims, audiences[i]) && js_append(list, js_new_str(audiences[i])))
			list = js_unref(list);
	return list;
}

/* spec.audiences; none: this server's.  False: answered. */
static bool wanted_audiences(struct apisrv_call *c, const char *out[MAX_AUDIENCES], size_t *n)
{
	const struct json *list = js_at(c->json, "spec", "audiences", NULL);

	if (list && !js_is_array(list)) {
		call_bad_request(c, "spec.audiences is not a list");
		return false;
	}
	if (js_len(list) > MAX_AUDIENCES) {
		call_bad_request(c, "spec.audiences has more than %d items", MAX_AUDIENCES);
		return false;
	}
	for (*n = 0; *n < js_len(list); (*n)++) {
		out[*n] = js_str(js_item(list, *n));
		if (!out[*n]) {
			call_bad_request(c, "spec.audiences[%zu] is not a text", *n);
			return false;
		}
	}
	if (!*n)
		out[(*n)++] = c->srv->tokens ? c->srv->tokens->issuer : TOKEN_ISSUER;
	return true;
}

static struct json *status_of(struct apisrv *s, const char *token, const char *const *audiences,
			      size_t n)
{
	CLEANUP(token_user_fini) struct token_user u = {.claims = NULL};
	struct err err = {0};
	enum rc rc = token_check(s, token, audiences, n, &u, &err);

	if (rc == RC_NOMEM)
		return NULL;
	if (rc)
		return js_pack("{s:{}, s:s+}", "user", "error", "invalid bearer token, ", err.msg);
	return js_pack("{s:b, s:o, s:o}", "authenticated", true, "user", user_info(&u.user),
		       "audiences", found_of(u.claims, audiences, n));
}

void token_review(struct apisrv_call *c)
{
	const char *audiences[MAX_AUDIENCES];
	struct json *spec = js_get(c->json, "spec");
	const char *token = js_get_str(spec, "token");
	size_t n = 0;

	if (str_is_empty(token)) {
		call_bad_request(c, "token is required for TokenReview in authentication");
		return;
	}
	if (!wanted_audiences(c, audiences, &n))
		return;
	CLEANUP(js_unrefp) struct json *status = status_of(c->srv, token, audiences, n);

	if (!status) {
		call_nomem(c);
		return;
	}
	call_answer_json(c, 201,
			 js_pack("{s:s, s:s, s:{s:n}, s:O, s:O}", "kind", "TokenReview",
				 "apiVersion", "authentication.k8s.io/v1", "metadata",
				 "creationTimestamp", "spec", spec, "status", status));
}

/* ---- for others who check tokens ------------------------------------------------------------------- */

/* j is consumed. */
static void send(struct apisrv_call *c, const char *type, struct json *j)
{
	CLEANUP(mem_freep) char *text = j ? js_to_text(j) : NULL;

	js_unref(j);
	if (text)
		call_answer(c, 200, type, text, strlen(text));
	else
		call_nomem(c);
}

/* OpenID Connect Discovery 1.0, section 3: as much of it as Kubernetes has. */
static void serve_configuration(struct apisrv_call *c, const struct tokens *t)
{
	send(c, "application/json",
	     js_pack("{s:s, s:s, s:[s], s:[s], s:[s]}", "issuer", t->issuer, "jwks_uri",
		     t->jwks_url, "response_types_supported", "id_token", "subject_types_supported",
		     "public", "id_token_signing_alg_values_supported", "ES256"));
}

static void serve_keys(struct apisrv_call *c, const struct tokens *t)
{
	struct json *keys = js_new_array();

	for (size_t i = 0; keys && i < t->n_keys; i++)
		if (js_append(keys, pki_jws_key_public(t->keys[i])))
			keys = js_unref(keys);
	send(c, "application/jwk-set+json", js_pack("{s:o}", "keys", keys));
}

bool serve_openid(struct apisrv_call *c, const char *path)
{
	const struct tokens *t = c->srv->tokens;

	if (!t || !t->n_keys)
		return false;
	if (strcmp(path, OPENID_CONFIGURATION) == 0)
		serve_configuration(c, t);
	else if (strcmp(path, OPENID_KEYS) == 0)
		serve_keys(c, t);
	else
		return false;
	return true;
}
