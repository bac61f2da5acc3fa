/* Whose a token is. */
#include "cluster/apiserver/token_int.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include <gnutls/crypto.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "ev/ev.h"
#include "pki/jws.h"

#define SA_PREFIX "system:serviceaccount:"
/* Kubernetes: what is being deleted may use its token a little longer, to end in order. */
#define DELETED_GRACE (60 * USEC_PER_SEC)
/* A clock that was set back does not refuse what it has just made. */
#define CLOCK_SLACK 60

/* ---- keys ------------------------------------------------------------------------------------------ */

enum rc tokens_new(struct tokens **out, const char *issuer, const char *jwks_url)
{
	CLEANUP(tokens_freep) struct tokens *t = mem_alloc(sizeof(*t));

	if (!t)
		return RC_NOMEM;
	t->issuer = mem_strdup(issuer ? issuer : TOKEN_ISSUER);
	t->jwks_url = jwks_url	  ? mem_strdup(jwks_url)
		      : t->issuer ? mem_printf("%s/openid/v1/jwks", t->issuer)
				  : NULL;
	if (!t->issuer || !t->jwks_url)
		return RC_NOMEM;
	*out = STEAL(t);
	return RC_OK;
}

static void forget_known(struct tokens *t)
{
	for (size_t i = 0; i < TOKEN_CACHE; i++)
		t->known[i].claims = js_unref(t->known[i].claims);
}

static void drop_keys(struct tokens *t)
{
	for (size_t i = 0; i < t->n_keys; i++)
		t->keys[i] = pki_jws_key_free(t->keys[i]);
	t->n_keys = 0;
}

struct tokens *tokens_free(struct tokens *t)
{
	if (!t)
		return NULL;
	forget_known(t);
	drop_keys(t);
	mem_free(t->issuer);
	mem_free(t->jwks_url);
	return mem_free(t);
}

void tokens_take_keys(struct tokens *t, struct pki_jws_key **keys, size_t n)
{
	forget_known(t);
	drop_keys(t);
	for (size_t i = 0; i < n; i++) {
		if (i < TOKEN_KEYS)
			t->keys[t->n_keys++] = keys[i];
		else
			pki_jws_key_free(keys[i]);
	}
}

/* ---- what a token says ----------------------------------------------------------------------------- */

/* The claims of a signed text; a new reference. */
static enum rc open_token(struct tokens *t, const char *text, struct json **claims, struct err *err)
{
	unsigned char hash[TOKEN_HASH_BYTES];
	size_t n = strnlen(text, PKI_JWS_BYTES + 1);

	if (n > PKI_JWS_BYTES || gnutls_hash_fast(GNUTLS_DIG_SHA256, text, n, hash) < 0)
		return err_set(err, RC_UNAUTHORIZED, "it is longer than %d bytes", PKI_JWS_BYTES);
	struct token_known *k = &t->known[hash[0]];

	if (k->claims && memcmp(k->hash, hash, sizeof(hash)) == 0) {
		*claims = js_ref(k->claims);
		return RC_OK;
	}
	enum rc rc = pki_jws_open(text, t->keys, t->n_keys, claims, err);

	if (rc)
		return rc;
	js_unref(k->claims);
	memcpy(k->hash, hash, sizeof(hash));
	k->claims = js_ref(*claims);
	return RC_OK;
}

static enum rc check_times(const struct json *claims, usec_t now, struct err *err)
{
	int64_t seconds = (int64_t)(now / USEC_PER_SEC);
	int64_t end = js_get_int(claims, "exp", -1), begin = js_get_int(claims, "nbf", -1);

	if (end < 0 || begin < 0)
		return err_set(err, RC_UNAUTHORIZED, "it does not say when it is good");
	if (seconds >= end)
		return err_set(err, RC_UNAUTHORIZED, "the token has expired");
	if (begin > seconds + CLOCK_SLACK)
		return err_set(err, RC_UNAUTHORIZED, "the token is not valid yet");
	return RC_OK;
}

bool token_is_for(const struct json *claims, const char *audience)
{
	const struct json *aud = js_get(claims, "aud");

	for (size_t i = 0; i < js_len(aud); i++)
		if (str_eq(js_str(js_item(aud, i)), audience))
			return true;
	return false;
}

static enum rc check_audience(const struct json *claims, const char *const *audiences, size_t n,
			      struct err *err)
{
	for (size_t i = 0; i < n; i++)
		if (token_is_for(claims, audiences[i]))
			return RC_OK;
	return err_set(err, RC_UNAUTHORIZED, "the token is for another audience");
}

/* Is the object still the one that the token means?  ns NULL: of the cluster.  ref: {name, uid}. */
static enum rc check_alive(struct apisrv *s, const char *table, const char *ns,
			   const struct json *ref, const char *what, struct err *err)
{
	const char *name = js_get_str(ref, "name"), *uid = js_get_str(ref, "uid"), *deleted;
	CLEANUP(mem_freep)
	char *key = !name ? NULL
		    : ns  ? mem_printf("%s/%s/%s", table, ns, name)
			  : mem_printf("%s/%s", table, name);
	usec_t since = 0;

	if (str_is_empty(name) || str_is_empty(uid))
		return err_set(err, RC_UNAUTHORIZED, "it names no %s", what);
	if (!key)
		return err_set(err, RC_NOMEM, "out of memory");
	struct obj *o = store_get(s->store, key);
	CLEANUP(js_unrefp) struct json *obj = o ? obj_json(o) : NULL;

	if (o && !obj)
		return err_set(err, RC_NOMEM, "out of memory");
	if (!o)
		return err_set(err, RC_UNAUTHORIZED, "its %s is gone", what);
	if (!str_eq(js_str(js_at(obj, "metadata", "uid", NULL)), uid))
		return err_set(err, RC_UNAUTHORIZED, "its %s is gone, and another has its name",
			       what);
	deleted = js_str(js_at(obj, "metadata", "deletionTimestamp", NULL));
	if (deleted &&
	    (time_parse(deleted, &since, NULL) || since + DELETED_GRACE < loop_realtime(s->loop)))
		return err_set(err, RC_UNAUTHORIZED, "its %s is being deleted", what);
	return RC_OK;
}

static enum rc check_objects(struct apisrv *s, const struct json *k8s, struct err *err)
{
	const char *ns = js_get_str(k8s, "namespace");
	const struct json *pod = js_get(k8s, "pod"), *secret = js_get(k8s, "secret");
	const struct json *node = js_get(k8s, "node");

	if (str_is_empty(ns))
		return err_set(err, RC_UNAUTHORIZED, "it names no service account");
	enum rc rc = check_alive(s, "serviceaccounts", ns, js_get(k8s, "serviceaccount"),
				 "service account", err);

	if (!rc && secret)
		rc = check_alive(s, "secrets", ns, secret, "secret", err);
	if (!rc && pod)
		rc = check_alive(s, "pods", ns, pod, "pod", err);
	/* Beside a pod it only tells where that was. */
	if (!rc && node && !pod)
		rc = check_alive(s, "nodes", NULL, node, "node", err);
	return rc;
}

static enum rc check_claims(struct apisrv *s, const struct json *claims,
			    const char *const *audiences, size_t n_audiences, struct err *err)
{
	if (!str_eq(js_get_str(claims, "iss"), s->tokens->issuer))
		return err_set(err, RC_UNAUTHORIZED, "it is of another issuer");
	enum rc rc = check_times(claims, loop_realtime(s->loop), err);

	if (!rc)
		rc = check_audience(claims, audiences, n_audiences, err);
	return rc ? rc : check_objects(s, js_get(claims, "kubernetes.io"), err);
}

/* ---- the user -------------------------------------------------------------------------------------- */

void token_user_fini(struct token_user *u)
{
	js_unref(u->claims);
	mem_free(u->name);
	mem_free(u->group);
	mem_free(u->credential);
	*u = (struct token_user){.claims = NULL};
}

/* As Kubernetes: pkg/serviceaccount, ServiceAccountInfo.UserInfo(). */
static void add_extra(struct token_user *u, const char *key, const char *value)
{
	size_t n = u->user.n_extra;

	if (str_is_empty(value))
		return;
	u->values[n] = value;
	u->extra[n] = (struct apisrv_extra){.key = key, .n = 1, .values = &u->values[n]};
	u->user.n_extra++;
}

static enum rc describe(struct token_user *u)
{
	const struct json *k8s = js_get(u->claims, "kubernetes.io"), *pod = js_get(k8s, "pod");
	const struct json *node = js_get(k8s, "node"), *sa = js_get(k8s, "serviceaccount");
	const char *ns = js_get_str(k8s, "namespace"), *id = js_get_str(u->claims, "jti");

	u->name = mem_printf(SA_PREFIX "%s:%s", ns, js_get_str(sa, "name"));
	u->group = mem_printf("system:serviceaccounts:%s", ns);
	u->credential = id ? mem_printf("JTI=%s", id) : NULL;
	if (!u->name || !u->group || (id && !u->credential))
		return RC_NOMEM;
	u->groups[0] = "system:serviceaccounts";
	u->groups[1] = u->group;
	u->groups[2] = "system:authenticated";
	u->user = (struct apisrv_user){.name = u->name,
				       .uid = js_get_str(sa, "uid"),
				       .n_groups = ARRAY_SIZE(u->groups),
				       .groups = u->groups,
				       .extra = u->extra};
	add_extra(u, "authentication.kubernetes.io/credential-id", u->credential);
	add_extra(u, "authentication.kubernetes.io/node-name", js_get_str(node, "name"));
	add_extra(u, "authentication.kubernetes.io/node-uid", js_get_str(node, "uid"));
	add_extra(u, "authentication.kubernetes.io/pod-name", js_get_str(pod, "name"));
	add_extra(u, "authentication.kubernetes.io/pod-uid", js_get_str(pod, "uid"));
	return RC_OK;
}

enum rc token_check(struct apisrv *s, const char *text, const char *const *audiences,
		    size_t n_audiences, struct token_user *out, struct err *err)
{
	struct json *claims = NULL;

	if (!s->tokens || !s->tokens->n_keys)
		return err_set(err, RC_UNAUTHORIZED, "this server has no keys for tokens");
	enum rc rc = open_token(s->tokens, text, &claims, err);

	if (!rc)
		rc = check_claims(s, claims, audiences, n_audiences, err);
	if (rc) {
		js_unref(claims);
		return rc;
	}
	*out = (struct token_user){.claims = claims};
	if (!describe(out))
		return RC_OK;
	token_user_fini(out);
	return err_set(err, RC_NOMEM, "out of memory");
}

/* ---- requests -------------------------------------------------------------------------------------- */

/* The token of "Bearer TOKEN"; NULL: it is of another kind. */
static const char *bearer_of(const char *header)
{
	static const char word[] = "Bearer ";

	if (strncasecmp(header, word, sizeof(word) - 1) != 0)
		return NULL;
	header += sizeof(word) - 1;
	return header + strspn(header, " ");
}

static enum rc log_in(struct apisrv_call *c, const char *header, struct err *err)
{
	CLEANUP(token_user_fini) struct token_user u = {.claims = NULL};
	const char *token = bearer_of(header);

	if (!token)
		return err_set(err, RC_UNAUTHORIZED, "the header Authorization is no bearer token");
	const char *audience = c->srv->tokens ? c->srv->tokens->issuer : TOKEN_ISSUER;
	enum rc rc = token_check(c->srv, token, &audience, 1, &u, err);

	if (rc)
		return rc;
	struct apisrv_user now;

	if (user_copy(&now, &u.user)) {
		user_fini(&now);
		return err_set(err, RC_NOMEM, "out of memory");
	}
	user_fini(&c->user);
	c->user = now;
	return RC_OK;
}

bool token_login(struct apisrv_call *c, const char *header)
{
	struct err err = {0};
	enum rc rc = log_in(c, header, &err);

	if (!rc)
		return true;
	log_debug("a token was refused: %s", err.msg);
	if (rc == RC_NOMEM)
		call_nomem(c);
	else
		call_fail(c, 401, "Unauthorized", NULL, "Unauthorized");
	return false;
}
