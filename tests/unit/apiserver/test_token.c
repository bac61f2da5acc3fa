/* Tokens of service accounts: who may have one, whose one is, and when it ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/b64.h"
#include "base/mem.h"
#include "base/str.h"
#include "cluster/apiserver/token.h"
#include "fixture.h"
#include "pki/jws.h"
#include "pki/pki.h"

#define NS	 "/api/v1/namespaces/default"
#define SAS	 NS "/serviceaccounts"
#define TOKEN	 SAS "/robot/token"
#define REVIEWS	 "/apis/authentication.k8s.io/v1/tokenreviews"
#define WHOAMI	 "/apis/authentication.k8s.io/v1/selfsubjectreviews"
#define BINDINGS "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings"
#define ROLES	 "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles"

static struct fx f;
static struct tokens *tokens;
static struct pki_pair pairs[3];

static struct pki_jws_key *key(size_t i, bool signs)
{
	struct pki_jws_key *k = NULL;

	assert_int_equal(pki_jws_key_new(&k, pairs[i].cert, signs ? pairs[i].key : NULL, NULL),
			 RC_OK);
	return k;
}

/* The pair at i signs; what the one at before (-1: none) has signed is still good. */
static void use_keys(size_t i, int before)
{
	struct pki_jws_key *keys[TOKEN_KEYS] = {key(i, true)};
	size_t n = 1;

	if (before >= 0)
		keys[n++] = key((size_t)before, false);
	tokens_take_keys(tokens, keys, n);
}

static int make_pairs(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(pairs); i++)
		assert_int_equal(pki_ca_new(&pairs[i], "sa", (usec_t)1767225600 * USEC_PER_SEC,
					    (usec_t)86400 * USEC_PER_SEC, NULL),
				 RC_OK);
	return 0;
}

static int drop_pairs(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(pairs); i++)
		pki_pair_fini(&pairs[i]);
	return 0;
}

static size_t blocks_before;

static int setup(void **state)
{
	(void)state;
	blocks_before = mem_live_blocks();
	assert_int_equal(tokens_new(&tokens, NULL, NULL), RC_OK);
	use_keys(0, -1);
	fx_up_with_tokens(&f, tokens);
	drop(fx_do(&f, 201, "POST", SAS, "{\"metadata\":{\"name\":\"robot\"}}"));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	f.srv = apisrv_free(f.srv);
	f.store = store_close(f.store);
	f.loop = loop_free(f.loop);
	tokens = tokens_free(tokens);
	assert_int_equal(mem_live_blocks(), blocks_before);
	return 0;
}

/* ---- helpers ----------------------------------------------------------------------------------------- */

static char *token_of(const struct json *answer)
{
	const char *text = js_str(js_at(answer, "status", "token", NULL));

	assert_non_null(text);
	return mem_strdup(text);
}

/* The administrator asks for a token of robot; spec: members of it. */
static char *mint(const char *spec)
{
	char body[1024];

	snprintf(body, sizeof(body), "{\"spec\":{%s}}", spec);
	struct json *j = fx_do(&f, 201, "POST", TOKEN, body);
	char *token = token_of(j);

	js_unref(j);
	return token;
}

static struct json *claims_of(const char *token)
{
	struct pki_jws_key *k = key(0, false);
	struct json *claims = NULL;

	assert_int_equal(pki_jws_open(token, &k, 1, &claims, NULL), RC_OK);
	pki_jws_key_free(k);
	return claims;
}

/* What the pair at i signs. */
static char *sign(size_t i, const struct json *claims)
{
	struct pki_jws_key *k = key(i, true);
	char *token = NULL;

	assert_int_equal(pki_jws_sign(k, claims, &token, NULL), RC_OK);
	pki_jws_key_free(k);
	return token;
}

static int status_with(const char *token)
{
	CLEANUP(mem_freep) char *header = mem_printf("Bearer %s", token);
	struct fx_answer a;

	fx_call_token(&f, &a, header, "POST", WHOAMI, "{}");
	int status = a.status;

	if (strlen(token) > 8)
		assert_null(strstr(a.text, token)); /* it is not repeated */
	fx_answer_fini(&a);
	return status;
}

static struct json *whoami(const char *token)
{
	CLEANUP(mem_freep) char *header = mem_printf("Bearer %s", token);
	struct fx_answer a;

	fx_call_token(&f, &a, header, "POST", WHOAMI, "{}");
	assert_int_equal(a.status, 201);
	struct json *j = js_ref(a.json);

	fx_answer_fini(&a);
	return j;
}

static struct json *review(const char *token, const char *audiences)
{
	CLEANUP(mem_freep)
	char *body =
		mem_printf("{\"spec\":{\"token\":\"%s\",\"audiences\":[%s]}}", token, audiences);
	struct json *j = fx_do(&f, 201, "POST", REVIEWS, body);
	struct json *status = js_ref(js_get(j, "status"));

	js_unref(j);
	return status;
}

/* The reason that a review gives; the caller's. */
static char *why(const char *token)
{
	struct json *st = review(token, "");

	assert_false(js_get_bool(st, "authenticated", false));
	char *text = mem_strdup(js_get_str(st, "error"));

	assert_non_null(text);
	js_unref(st);
	return text;
}

static void assert_refused(const char *token, const char *reason)
{
	CLEANUP(mem_freep) char *text = why(token);

	assert_int_equal(status_with(token), 401);
	assert_true(str_has_prefix(text, "invalid bearer token, "));
	assert_string_equal(text + strlen("invalid bearer token, "), reason);
}

/* ---- whose it is --------------------------------------------------------------------------------------- */

static void a_token_says_what_kubernetes_tokens_say(void **state)
{
	(void)state;
	struct json *sa = fx_do(&f, 200, "GET", SAS "/robot", NULL);
	const char *uid = js_str(js_at(sa, "metadata", "uid", NULL));
	struct json *answer = fx_do(&f, 201, "POST", TOKEN, "{\"spec\":{\"audiences\":[]}}");
	CLEANUP(mem_freep) char *token = token_of(answer);
	struct json *claims = claims_of(token);
	const struct json *k8s = js_get(claims, "kubernetes.io");

	assert_string_equal(js_get_str(claims, "iss"), TOKEN_ISSUER);
	assert_string_equal(js_str(js_item(js_get(claims, "aud"), 0)), TOKEN_ISSUER);
	assert_int_equal(js_len(js_get(claims, "aud")), 1);
	assert_string_equal(js_get_str(claims, "sub"), "system:serviceaccount:default:robot");
	assert_int_equal(js_get_int(claims, "exp", 0) - js_get_int(claims, "iat", 0), 3600);
	assert_int_equal(js_get_int(claims, "nbf", 0), js_get_int(claims, "iat", 0));
	assert_int_equal(strlen(js_get_str(claims, "jti")), 36);
	assert_string_equal(js_get_str(k8s, "namespace"), "default");
	assert_path(k8s, "robot", "serviceaccount", "name");
	assert_path(k8s, uid, "serviceaccount", "uid");
	assert_int_equal(js_get_int(js_get(answer, "spec"), "expirationSeconds", 0), 3600);
	assert_path(answer, "robot", "metadata", "name");
	assert_non_null(js_str(js_at(answer, "status", "expirationTimestamp", NULL)));

	struct json *me = whoami(token);
	const struct json *info = js_at(me, "status", "userInfo", NULL);
	CLEANUP(mem_freep) char *jti = mem_printf("JTI=%s", js_get_str(claims, "jti"));
	CLEANUP(mem_freep) char *groups = js_to_text(js_get(info, "groups"));

	assert_string_equal(js_get_str(info, "username"), "system:serviceaccount:default:robot");
	assert_string_equal(js_get_str(info, "uid"), uid);
	assert_string_equal(groups,
			    "[\"system:serviceaccounts\",\"system:serviceaccounts:default\","
			    "\"system:authenticated\"]");
	assert_string_equal(
		js_str(js_item(
			js_at(info, "extra", "authentication.kubernetes.io/credential-id", NULL),
			0)),
		jti);
	drop(me);
	drop(claims);
	drop(answer);
	drop(sa);
}

static void a_pods_token_tells_of_pod_and_node(void **state)
{
	(void)state;
	drop(fx_do(&f, 201, "POST", "/api/v1/nodes", "{\"metadata\":{\"name\":\"n1\"}}"));
	drop(fx_do(&f, 201, "POST", NS "/pods",
		   "{\"metadata\":{\"name\":\"p\"},\"spec\":{\"nodeName\":\"n1\","
		   "\"serviceAccountName\":\"robot\",\"containers\":[{\"name\":\"c\",\"image\":"
		   "\"i\"}]}}"));
	CLEANUP(mem_freep)
	char *token = mint("\"boundObjectRef\":{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"name\":"
			   "\"p\"}");
	struct json *me = whoami(token);
	const struct json *extra = js_at(me, "status", "userInfo", "extra", NULL);
	static const char *const keys[] = {"pod-name", "pod-uid", "node-name", "node-uid",
					   "credential-id"};
	char name[64];

	assert_int_equal(js_len(extra), ARRAY_SIZE(keys));
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		snprintf(name, sizeof(name), "authentication.kubernetes.io/%s", keys[i]);
		assert_int_equal(js_len(js_get(extra, name)), 1);
	}
	assert_string_equal(
		js_str(js_item(js_get(extra, "authentication.kubernetes.io/node-name"), 0)), "n1");
	drop(me);
}

/* ---- bad tokens ------------------------------------------------------------------------------------------ */

/* The token with another head or other claims, and its old signature. */
static char *swap_part(const char *token, int part, const char *json)
{
	CLEANUP(mem_freep) char *b64 = b64_encode(json, strlen(json), true);
	const char *dot = strchr(token, '.'), *dot2 = strchr(dot + 1, '.');

	return part == 0 ? mem_printf("%s%s", b64, dot)
			 : mem_printf("%.*s.%s%s", (int)(dot - token), token, b64, dot2);
}

static void forged_tokens_are_refused(void **state)
{
	(void)state;
	CLEANUP(mem_freep) char *token = mint("");
	struct json *claims = claims_of(token);
	struct pki_jws_key *own = key(0, false);
	const char *kid = pki_jws_key_id(own);
	CLEANUP(mem_freep)
	char *other_head = mem_printf("{\"alg\":\"ES256\",\"kid\":\"%s\",\"x\":1}", kid);
	CLEANUP(mem_freep)
	char *crit = mem_printf("{\"alg\":\"ES256\",\"kid\":\"%s\",\"crit\":[]}", kid);
	CLEANUP(mem_freep) char *hs = mem_printf("{\"alg\":\"HS256\",\"kid\":\"%s\"}", kid);
	CLEANUP(mem_freep)
	char *twice = mem_printf("{\"alg\":\"ES256\",\"alg\":\"none\",\"kid\":\"%s\"}", kid);
	CLEANUP(mem_freep) char *unsigned_ = swap_part(token, 0, "{\"alg\":\"none\"}");

	*strrchr(unsigned_, '.') = '\0'; /* as libraries that take "none" want it */
	struct {
		char *token;
		const char *reason;
	} rows[] = {
		{sign(1, claims), "it is signed with a key that is not in use"},
		{swap_part(token, 0, "{\"alg\":\"none\"}"), "it is not signed with ES256"},
		{mem_printf("%s.", unsigned_), "it is not a JSON Web Token"},
		{swap_part(token, 0, hs), "it is not signed with ES256"},
		{swap_part(token, 0, "{\"alg\":\"ES256\"}"),
		 "it is signed with a key that is not in use"},
		{swap_part(token, 0, crit), "it asks for extensions that nobody knows"},
		{swap_part(token, 0, other_head), "its signature does not fit"},
		{swap_part(token, 0, twice), "its head is not JSON"},
		{swap_part(token, 0, "[]"), "its head is not JSON"},
		{swap_part(token, 1, "{\"sub\":\"system:serviceaccount:kube-system:root\"}"),
		 "its signature does not fit"},
		{mem_printf("%.*s", (int)strlen(token) - 4, token), "its signature is not one"},
		{mem_printf("%s=", token), "it is not a JSON Web Token"},
		{mem_printf("%s.x", token), "it is not a JSON Web Token"},
		{mem_printf("%s x", token), "it is not a JSON Web Token"},
		{mem_strdup("abc"), "it is not a JSON Web Token"},
		{mem_strdup("a.b.c"), "its head is not JSON"},
		{mem_strdup(".."), "it is not a JSON Web Token"},
		{mem_printf("%016384d", 0), "it is not a JSON Web Token"},
		{mem_printf("%016385d", 0), "it is longer than 16384 bytes"},
		{mem_printf("%01000000d", 0), "it is longer than 16384 bytes"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		assert_refused(rows[i].token, rows[i].reason);
		mem_free(rows[i].token);
	}
	assert_int_equal(status_with(token), 201); /* the one that they were made from */
	pki_jws_key_free(own);
	drop(claims);
}

/* Our own key signed it, and it says something that cannot be. */
static void what_a_token_says_is_checked(void **state)
{
	(void)state;
	CLEANUP(mem_freep) char *token = mint("");
	struct json *good = claims_of(token);
	int64_t now = js_get_int(good, "iat", 0);
	const struct {
		const char *claim;
		struct json *value;
		const char *reason;
	} rows[] = {
		{"exp", js_new_int(now), "the token has expired"},
		{"exp", js_new_str("never"), "it does not say when it is good"},
		{"exp", js_new_real(1e300), "it does not say when it is good"},
		{"exp", NULL, "it does not say when it is good"},
		{"nbf", js_new_int(now + 61), "the token is not valid yet"},
		{"nbf", NULL, "it does not say when it is good"},
		{"aud", js_pack("[s]", "vault"), "the token is for another audience"},
		{"aud", js_new_str(TOKEN_ISSUER), "the token is for another audience"},
		{"aud", NULL, "the token is for another audience"},
		{"iss", js_new_str("https://elsewhere"), "it is of another issuer"},
		{"iss", NULL, "it is of another issuer"},
		{"kubernetes.io", NULL, "it names no service account"},
		{"kubernetes.io", js_pack("{s:s}", "namespace", "default"),
		 "it names no service account"},
		{"kubernetes.io",
		 js_pack("{s:s, s:{s:s, s:s}}", "namespace", "default", "serviceaccount", "name",
			 "robot", "uid", "another"),
		 "its service account is gone, and another has its name"},
		{"kubernetes.io",
		 js_pack("{s:s, s:{s:s, s:s}}", "namespace", "kube-system", "serviceaccount",
			 "name", "robot", "uid", "x"),
		 "its service account is gone"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct json *bad = js_copy(good);

		if (rows[i].value)
			assert_int_equal(js_set(bad, rows[i].claim, rows[i].value), RC_OK);
		else
			js_del(bad, rows[i].claim);
		CLEANUP(mem_freep) char *text = sign(0, bad);

		assert_refused(text, rows[i].reason);
		js_unref(bad);
	}
	drop(good);
}

static void only_bearer_tokens_are_taken(void **state)
{
	(void)state;
	CLEANUP(mem_freep) char *token = mint("");
	const struct {
		const char *fmt;
		int status;
	} rows[] = {
		{"Bearer %s", 201},  {"bearer %s", 201}, {"BEARER   %s", 201},
		{"Basic %s", 401},   {"%s", 401},	 {"Bearer%s", 401},
		{"Bearer %s ", 401}, {"Bearer ", 401},	 {"", 401},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct fx_answer a;
		char header[2048];
		const char *at = strstr(rows[i].fmt, "%s");

		snprintf(header, sizeof(header), "%.*s%s%s",
			 at ? (int)(at - rows[i].fmt) : (int)strlen(rows[i].fmt), rows[i].fmt,
			 at ? token : "", at ? at + 2 : "");
		fx_call_token(&f, &a, header, "POST", WHOAMI, "{}");
		assert_int_equal(a.status, rows[i].status);
		if (a.status == 401) {
			assert_msg(a.json, "Unauthorized");
			assert_string_equal(js_get_str(a.json, "reason"), "Unauthorized");
		}
		fx_answer_fini(&a);
	}
	/* a bad one is not nobody: health is everybody's, and still refused */
	struct fx_answer a;

	fx_call_token(&f, &a, "Bearer x", "GET", "/healthz", NULL);
	assert_int_equal(a.status, 401);
	fx_answer_fini(&a);
}

static void a_token_ends_when_it_says(void **state)
{
	(void)state;
	CLEANUP(mem_freep) char *token = mint("\"expirationSeconds\":600");

	fx_sleep(&f, 599 * USEC_PER_SEC);
	assert_int_equal(status_with(token), 201);
	fx_sleep(&f, USEC_PER_SEC);
	assert_refused(token, "the token has expired");
}

/* ---- what it is bound to --------------------------------------------------------------------------------- */

static void a_token_ends_with_its_account(void **state)
{
	(void)state;
	CLEANUP(mem_freep) char *token = mint("");

	assert_int_equal(status_with(token), 201);
	drop(fx_do(&f, 200, "DELETE", SAS "/robot", NULL));
	assert_refused(token, "its service account is gone");
	drop(fx_do(&f, 201, "POST", SAS, "{\"metadata\":{\"name\":\"robot\"}}"));
	assert_refused(token, "its service account is gone, and another has its name");
	CLEANUP(mem_freep) char *again = mint("");

	assert_int_equal(status_with(again), 201);
}

static void an_account_on_its_way_out_has_a_minute(void **state)
{
	(void)state;
	CLEANUP(mem_freep) char *token = mint("");

	drop(fx_patch(&f, 200, "merge-patch", SAS "/robot",
		      "{\"metadata\":{\"finalizers\":[\"example.org/x\"]}}"));
	drop(fx_do(&f, 200, "DELETE", SAS "/robot", NULL));
	assert_int_equal(status_with(token), 201);
	fx_sleep(&f, 62 * USEC_PER_SEC);
	assert_refused(token, "its service account is being deleted");
}

static void a_token_ends_with_what_it_is_bound_to(void **state)
{
	(void)state;
	static const struct {
		const char *kind, *list, *body, *gone, *other;
	} rows[] = {
		{"Pod", NS "/pods",
		 "{\"metadata\":{\"name\":\"x\"},\"spec\":{\"serviceAccountName\":\"robot\","
		 "\"containers\":[{\"name\":\"c\",\"image\":\"i\"}]}}",
		 "its pod is gone", "its pod is gone, and another has its name"},
		{"Secret", NS "/secrets", "{\"metadata\":{\"name\":\"x\"}}", "its secret is gone",
		 "its secret is gone, and another has its name"},
		{"Node", "/api/v1/nodes", "{\"metadata\":{\"name\":\"x\"}}", "its node is gone",
		 "its node is gone, and another has its name"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char spec[256], path[128];

		drop(fx_do(&f, 201, "POST", rows[i].list, rows[i].body));
		snprintf(
			spec, sizeof(spec),
			"\"boundObjectRef\":{\"kind\":\"%s\",\"apiVersion\":\"v1\",\"name\":\"x\"}",
			rows[i].kind);
		CLEANUP(mem_freep) char *token = mint(spec);

		assert_int_equal(status_with(token), 201);
		snprintf(path, sizeof(path), "%s/x", rows[i].list);
		drop(fx_do(&f, 200, "DELETE", path, NULL));
		assert_refused(token, rows[i].gone);
		drop(fx_do(&f, 201, "POST", rows[i].list, rows[i].body));
		assert_refused(token, rows[i].other);
		drop(fx_do(&f, 200, "DELETE", path, NULL));
	}
}

static void requests_are_checked(void **state)
{
	(void)state;
	drop(fx_do(&f, 201, "POST", NS "/pods",
		   "{\"metadata\":{\"name\":\"p\"},\"spec\":{\"containers\":[{\"name\":\"c\","
		   "\"image\":\"i\"}]}}"));
#define BOUND(more_) "{\"spec\":{\"boundObjectRef\":{" more_ "}}}"
	static const struct {
		const char *path, *body;
		int status;
		const char *message;
	} rows[] = {
		{TOKEN, "{\"spec\":{\"expirationSeconds\":599}}", 422,
		 "TokenRequest.authentication.k8s.io \"robot\" is invalid: spec.expirationSeconds: "
		 "Invalid value: 599: may not specify a duration less than 10 minutes"},
		{TOKEN, "{\"spec\":{\"expirationSeconds\":-1}}", 422, NULL},
		{TOKEN, "{\"spec\":{\"expirationSeconds\":4294967296}}", 422,
		 "TokenRequest.authentication.k8s.io \"robot\" is invalid: spec.expirationSeconds: "
		 "Invalid value: 4294967296: may not specify a duration larger than 2^32 seconds"},
		{TOKEN, "{\"spec\":{\"audiences\":[\"\"],\"expirationSeconds\":1}}", 422,
		 "TokenRequest.authentication.k8s.io \"robot\" is invalid: [spec.audiences[0]: "
		 "Required value: must not be empty, spec.expirationSeconds: Invalid value: 1: may "
		 "not specify a duration less than 10 minutes]"},
		{TOKEN, BOUND("\"kind\":\"Pod\",\"apiVersion\":\"v1\""), 422, NULL},
		{TOKEN, BOUND("\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"name\":\"none\""), 404,
		 "pods \"none\" not found"},
		{TOKEN, BOUND("\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"name\":\"p\""), 400,
		 "cannot bind token for serviceaccount \"robot\" to pod running with different "
		 "serviceaccount name."},
		{TOKEN, BOUND("\"kind\":\"Service\",\"apiVersion\":\"v1\",\"name\":\"p\""), 400,
		 "cannot bind token to object of type v1, Kind=Service"},
		{TOKEN, BOUND("\"kind\":\"Pod\",\"name\":\"p\""), 400, NULL},
		{SAS "/none/token", "{\"spec\":{}}", 404, "serviceaccounts \"none\" not found"},
		{TOKEN, "{\"metadata\":{\"name\":\"other\"},\"spec\":{}}", 400, NULL},
		{TOKEN, "{\"metadata\":{\"namespace\":\"other\"},\"spec\":{}}", 400, NULL},
		{TOKEN, "{\"kind\":\"TokenReview\",\"spec\":{}}", 400, NULL},
		{TOKEN, "{\"apiVersion\":\"authentication.k8s.io/v2\",\"spec\":{}}", 400, NULL},
		{TOKEN, "{\"spec\":{\"audiences\":\"x\"}}", 422,
		 "spec.audiences must be an array, not string"},
		{TOKEN, "[]", 400, "the body is not a TokenRequest"},
		{TOKEN, NULL, 400, "the body is not a TokenRequest"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct json *j = fx_do(&f, rows[i].status, "POST", rows[i].path, rows[i].body);

		if (rows[i].message)
			assert_msg(j, rows[i].message);
		js_unref(j);
	}
}

static void an_identity_that_does_not_match_is_a_conflict(void **state)
{
	(void)state;
	drop(fx_do(&f, 201, "POST", NS "/secrets", "{\"metadata\":{\"name\":\"s\"}}"));
	struct json *j = fx_do(
		&f, 409, "POST", TOKEN,
		BOUND("\"kind\":\"Secret\",\"apiVersion\":\"v1\",\"name\":\"s\",\"uid\":\"u\""));

	assert_msg(j, "Operation cannot be fulfilled on Secret \"s\": the UID in the bound object "
		      "reference (u) does not match the UID in record. The object might have been "
		      "deleted and then recreated");
	drop(j);
	drop(fx_do(&f, 405, "GET", TOKEN, NULL));
	drop(fx_do(&f, 405, "DELETE", TOKEN, NULL));
}

static void too_long_a_life_is_shortened_and_said(void **state)
{
	(void)state;
	struct fx_answer a;

	fx_call(&f, &a, &fx_admin, "POST", TOKEN, NULL, NULL,
		"{\"spec\":{\"expirationSeconds\":31536001}}");
	assert_int_equal(a.status, 201);
	assert_int_equal(a.n_warnings, 1);
	assert_non_null(strstr(a.warnings[0], "requested expiration of 31536001 seconds shortened "
					      "to 31536000 seconds"));
	assert_int_equal(js_get_int(js_get(a.json, "spec"), "expirationSeconds", 0), 31536000);
	fx_answer_fini(&a);
}

/* ---- audiences, reviews, keys ------------------------------------------------------------------------------ */

static void a_review_tells_whose_it_is_and_for_whom(void **state)
{
	(void)state;
	CLEANUP(mem_freep) char *vault = mint("\"audiences\":[\"vault\",\"other\"]");

	assert_int_equal(status_with(vault), 401); /* it is not for this server */
	struct json *st = review(vault, "\"vault\",\"x\"");

	assert_true(js_get_bool(st, "authenticated", false));
	assert_path(st, "system:serviceaccount:default:robot", "user", "username");
	assert_int_equal(js_len(js_get(st, "audiences")), 1);
	assert_string_equal(js_str(js_item(js_get(st, "audiences"), 0)), "vault");
	drop(st);
	st = review(vault, "");
	assert_false(js_get_bool(st, "authenticated", false));
	assert_string_equal(js_get_str(st, "error"),
			    "invalid bearer token, the token is for another audience");
	drop(st);
	drop(fx_do(&f, 400, "POST", REVIEWS, "{\"spec\":{}}"));
	drop(fx_do(&f, 400, "POST", REVIEWS, "{\"spec\":{\"token\":\"x\",\"audiences\":[1]}}"));
	drop(fx_do(&f, 400, "POST", REVIEWS, "{\"spec\":{\"token\":\"x\",\"audiences\":{}}}"));
	drop(fx_as(&f, &fx_nobody, 403, "POST", REVIEWS, "{\"spec\":{\"token\":\"x\"}}"));
}

static void keys_turn_and_tokens_live_on(void **state)
{
	(void)state;
	CLEANUP(mem_freep) char *first = mint("");

	assert_int_equal(status_with(first), 201);
	use_keys(1, 0);
	CLEANUP(mem_freep) char *second = mint("");

	assert_int_equal(status_with(first), 201);
	assert_int_equal(status_with(second), 201);
	use_keys(2, 1);
	assert_refused(first, "it is signed with a key that is not in use");
	assert_int_equal(status_with(second), 201);
	tokens_take_keys(tokens, NULL, 0);
	assert_refused(second, "this server has no keys for tokens");
	drop(fx_do(&f, 501, "POST", TOKEN, "{\"spec\":{}}"));
	drop(fx_do(&f, 404, "GET", "/openid/v1/jwks", NULL));
}

static void others_can_find_the_keys(void **state)
{
	(void)state;
	CLEANUP(mem_freep) char *token = mint("");
	CLEANUP(mem_freep) char *header = mem_printf("Bearer %s", token);
	struct pki_jws_key *k = key(0, false);
	struct fx_answer a;

	fx_call_token(&f, &a, header, "GET", "/.well-known/openid-configuration", NULL);
	assert_int_equal(a.status, 200);
	assert_string_equal(js_get_str(a.json, "issuer"), TOKEN_ISSUER);
	assert_string_equal(js_get_str(a.json, "jwks_uri"), TOKEN_ISSUER "/openid/v1/jwks");
	fx_answer_fini(&a);
	fx_call_token(&f, &a, header, "GET", "/openid/v1/jwks", NULL);
	assert_int_equal(a.status, 200);
	assert_string_equal(a.content_type, "application/jwk-set+json");
	const struct json *jwk = js_item(js_get(a.json, "keys"), 0);

	assert_string_equal(js_get_str(jwk, "kid"), pki_jws_key_id(k));
	assert_string_equal(js_get_str(jwk, "crv"), "P-256");
	assert_int_equal(strlen(js_get_str(jwk, "x")), 43);
	assert_int_equal(strlen(js_get_str(jwk, "y")), 43);
	assert_null(js_get(jwk, "d"));
	fx_answer_fini(&a);
	pki_jws_key_free(k);
	drop(fx_as(&f, &fx_nobody, 403, "GET", "/openid/v1/jwks", NULL)); /* accounts only */
}

/* ---- rights -------------------------------------------------------------------------------------------------- */

static void give(const char *role_rules, const char *user)
{
	char body[1024];

	snprintf(body, sizeof(body), "{\"metadata\":{\"name\":\"r\"},\"rules\":[%s]}", role_rules);
	drop(fx_do(&f, 201, "POST", ROLES, body));
	snprintf(body, sizeof(body),
		 "{\"metadata\":{\"name\":\"b\"},\"subjects\":[%s],\"roleRef\":{\"apiGroup\":"
		 "\"rbac.authorization.k8s.io\",\"kind\":\"Role\",\"name\":\"r\"}}",
		 user);
	drop(fx_do(&f, 201, "POST", BINDINGS, body));
}

static void a_tenant_has_tokens_only_of_accounts_that_he_may(void **state)
{
	(void)state;
	drop(fx_do(&f, 201, "POST", SAS, "{\"metadata\":{\"name\":\"strong\"}}"));
	drop(fx_do(&f, 201, "POST", "/api/v1/namespaces/kube-system/serviceaccounts",
		   "{\"metadata\":{\"name\":\"robot\"}}"));
	drop(fx_as(&f, &fx_nobody, 403, "POST", TOKEN, "{\"spec\":{}}"));
	give("{\"verbs\":[\"*\"],\"apiGroups\":[\"\"],\"resources\":[\"serviceaccounts\"]},"
	     "{\"verbs\":[\"create\"],\"apiGroups\":[\"\"],\"resources\":[\"serviceaccounts/token\"],"
	     "\"resourceNames\":[\"robot\"]}",
	     "{\"kind\":\"User\",\"name\":\"eve\",\"apiGroup\":\"rbac.authorization.k8s.io\"}");
	drop(fx_as(&f, &fx_nobody, 201, "POST", TOKEN, "{\"spec\":{}}"));
	/* all rights on accounts themselves are none on their tokens */
	struct json *j = fx_as(&f, &fx_nobody, 403, "POST", SAS "/strong/token", "{\"spec\":{}}");

	assert_msg(j, "serviceaccounts \"strong\" is forbidden: User \"eve\" cannot create "
		      "resource \"serviceaccounts/token\" in API group \"\" in the namespace "
		      "\"default\"");
	drop(j);
	drop(fx_as(&f, &fx_nobody, 403, "POST",
		   "/api/v1/namespaces/kube-system/serviceaccounts/robot/token", "{\"spec\":{}}"));
	drop(fx_as(&f, &fx_node1, 403, "POST", TOKEN, "{\"spec\":{}}"));
}

static int with_token(const char *token, const char *method, const char *target, const char *body)
{
	CLEANUP(mem_freep) char *header = mem_printf("Bearer %s", token);
	struct fx_answer a;

	fx_call_token(&f, &a, header, method, target, body);
	int status = a.status;

	fx_answer_fini(&a);
	return status;
}

static void an_account_has_the_rights_that_are_bound_to_it(void **state)
{
	(void)state;
	CLEANUP(mem_freep) char *token = mint("");

	assert_int_equal(with_token(token, "GET", NS "/configmaps", NULL), 403);
	give("{\"verbs\":[\"get\",\"list\",\"create\"],\"apiGroups\":[\"\"],\"resources\":["
	     "\"configmaps\"]}",
	     "{\"kind\":\"ServiceAccount\",\"name\":\"robot\",\"namespace\":\"default\"}");
	assert_int_equal(with_token(token, "GET", NS "/configmaps", NULL), 200);
	assert_int_equal(
		with_token(token, "POST", NS "/configmaps", "{\"metadata\":{\"name\":\"c\"}}"),
		201);
	assert_int_equal(with_token(token, "DELETE", NS "/configmaps/c", NULL), 403);
	assert_int_equal(
		with_token(token, "GET", "/api/v1/namespaces/kube-system/configmaps", NULL), 403);
	/* nor does it mint tokens, its own included */
	assert_int_equal(with_token(token, "POST", TOKEN, "{\"spec\":{}}"), 403);
	drop(fx_do(&f, 200, "DELETE", BINDINGS "/b", NULL));
	assert_int_equal(with_token(token, "GET", NS "/configmaps", NULL), 403);
}

static void secrets_with_tokens_are_refused(void **state)
{
	(void)state;
	struct json *j = fx_do(&f, 422, "POST", NS "/secrets",
			       "{\"metadata\":{\"name\":\"s\",\"annotations\":{"
			       "\"kubernetes.io/service-account.name\":\"robot\"}},\"type\":"
			       "\"kubernetes.io/service-account-token\"}");

	assert_non_null(strstr(js_get_str(j, "message"),
			       "type: Invalid value: \"kubernetes.io/service-account-token\": not "
			       "supported by Ferry: a token in a Secret never ends"));
	drop(j);
}

static void discovery_names_what_is_served(void **state)
{
	(void)state;
	struct json *j = fx_do(&f, 200, "GET", "/api/v1", NULL);
	CLEANUP(mem_freep) char *text = js_to_text(j);

	assert_non_null(strstr(text, "{\"name\":\"serviceaccounts/token\",\"singularName\":\"\","
				     "\"namespaced\":true,\"group\":\"authentication.k8s.io\","
				     "\"version\":\"v1\",\"kind\":\"TokenRequest\",\"verbs\":["
				     "\"create\"]}"));
	drop(j);
	j = fx_do(&f, 200, "GET", "/apis/authentication.k8s.io/v1", NULL);
	CLEANUP(mem_freep) char *group = js_to_text(j);

	assert_non_null(strstr(group, "\"tokenreviews\""));
	drop(j);
}

/* ---- the authority ---------------------------------------------------------------------------------------------- */

#define CA_MAP "/api/v1/namespaces/kube-system/configmaps/kube-root-ca.crt"

static void the_authority_is_published_and_stays(void **state)
{
	(void)state;
	assert_int_equal(apisrv_set_ca(f.srv, "one"), RC_OK);
	fx_settle(&f);
	struct json *j = fx_do(&f, 200, "GET", CA_MAP, NULL);

	assert_path(j, "one", "data", "ca.crt");
	drop(j);
	drop(fx_do(&f, 200, "DELETE", CA_MAP, NULL));
	fx_settle(&f);
	drop(fx_do(&f, 200, "GET", CA_MAP, NULL));
	drop(fx_patch(&f, 200, "merge-patch", CA_MAP, "{\"data\":{\"ca.crt\":\"mine\"}}"));
	fx_settle(&f);
	j = fx_do(&f, 200, "GET", CA_MAP, NULL);
	assert_path(j, "one", "data", "ca.crt");
	drop(j);
	assert_int_equal(apisrv_set_ca(f.srv, "one\ntwo"), RC_OK);
	fx_settle(&f);
	j = fx_do(&f, 200, "GET", CA_MAP, NULL);
	assert_path(j, "one\ntwo", "data", "ca.crt");
	drop(j);
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

static void running_out_of_memory_is_told(void **state)
{
	unsigned failed = 0;

	(void)state;
	for (unsigned nth = 1; nth < 2000; nth++) {
		struct fx_answer a;

		fx_call_nth(&f, &a, nth, "POST", TOKEN, NULL, NULL,
			    "{\"spec\":{\"audiences\":[\"a\",\"b\"]}}");
		bool done = !a.fired;

		if (a.status != 201) {
			assert_int_equal(a.status, 500);
			failed++;
		}
		fx_answer_fini(&a);
		if (done)
			break;
	}
	assert_true(failed > 10);
}

static void a_token_is_checked_wholly_or_not(void **state)
{
	CLEANUP(mem_freep) char *token = mint("");
	CLEANUP(mem_freep) char *header = mem_printf("Bearer %s", token);
	unsigned failed = 0;

	(void)state;
	for (unsigned nth = 1; nth < 2000; nth++) {
		struct fx_answer a;

		use_keys(0, -1); /* forgets what was checked before */
		fx_call_token_nth(&f, &a, nth, header, "POST", WHOAMI, "{}");
		bool done = !a.fired;

		assert_true(a.status == 201 || a.status == 500);
		failed += a.status == 500;
		fx_answer_fini(&a);
		if (done)
			break;
	}
	assert_true(failed > 10);
}

int main(void)
{
#define T(fn_) cmocka_unit_test_setup_teardown(fn_, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(a_token_says_what_kubernetes_tokens_say),
		T(a_pods_token_tells_of_pod_and_node),
		T(forged_tokens_are_refused),
		T(what_a_token_says_is_checked),
		T(only_bearer_tokens_are_taken),
		T(a_token_ends_when_it_says),
		T(a_token_ends_with_its_account),
		T(an_account_on_its_way_out_has_a_minute),
		T(a_token_ends_with_what_it_is_bound_to),
		T(requests_are_checked),
		T(an_identity_that_does_not_match_is_a_conflict),
		T(too_long_a_life_is_shortened_and_said),
		T(a_review_tells_whose_it_is_and_for_whom),
		T(keys_turn_and_tokens_live_on),
		T(others_can_find_the_keys),
		T(a_tenant_has_tokens_only_of_accounts_that_he_may),
		T(an_account_has_the_rights_that_are_bound_to_it),
		T(secrets_with_tokens_are_refused),
		T(discovery_names_what_is_served),
		T(the_authority_is_published_and_stays),
		T(running_out_of_memory_is_told),
		T(a_token_is_checked_wholly_or_not),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("token", tests, make_pairs, drop_pairs);
}
