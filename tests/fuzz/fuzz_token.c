/* Bearer tokens.  The first byte says what the rest is:
 *   T  the value of the header Authorization
 *   J  "head\nclaims", made a token with a signature of zeroes
 *   C  claims, which the server's own key signs; $UID is that of the one account, $NOW its clock
 * Nobody is let in but by C, and then only when the claims say what they have to.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/b64.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "cluster/apiserver/apisrv.h"
#include "cluster/apiserver/store.h"
#include "cluster/apiserver/token.h"
#include "ev/ev.h"
#include "fuzz.h"
#include "json/json.h"
#include "pki/jws.h"
#include "pki/pki.h"

static struct loop *loop;
static struct store *store;
static struct tokens *tokens;
static struct apisrv *srv;
static struct pki_jws_key *signer;
static char uid[64];

static void must(bool ok)
{
	if (!ok)
		abort();
}

struct reply {
	int status;
	struct json *json;
};

static void on_answer(void *arg, const struct apisrv_answer *a)
{
	struct reply *r = arg;

	must(!r->status);
	r->status = a->status;
	if (a->n && a->body[0] == '{')
		must(js_parse(a->body, a->n, &r->json, NULL) == RC_OK);
}

static struct reply ask(const char *header, const struct apisrv_user *user, const char *target,
			const char *body)
{
	static const struct apisrv_sink sink = {.answer = on_answer};
	struct reply r = {0};
	const struct apisrv_request q = {.method = "POST",
					 .target = target,
					 .authorization = header,
					 .user = user,
					 .body = body,
					 .n_body = strlen(body)};

	apisrv_handle(srv, &q, &sink, &r);
	for (int i = 0; i < 10000 && !r.status; i++)
		must(loop_step(loop, 0, NULL, NULL) == RC_OK);
	must(r.status != 0);
	return r;
}

static void up(void)
{
	static const char *const masters[] = {"system:masters"};
	static const struct apisrv_user admin = {.name = "a", .n_groups = 1, .groups = masters};
	struct pki_pair pair = {0};
	struct pki_jws_key *own = NULL;

	must(!pki_ca_new(&pair, "sa", (usec_t)1767225600 * USEC_PER_SEC,
			 (usec_t)86400 * USEC_PER_SEC, NULL));
	must(!pki_jws_key_new(&own, pair.cert, pair.key, NULL));
	must(!pki_jws_key_new(&signer, pair.cert, pair.key, NULL));
	pki_pair_fini(&pair);
	must(!tokens_new(&tokens, NULL, NULL));
	tokens_take_keys(tokens, &own, 1);
	must(!loop_new(&loop, LOOP_VIRTUAL, NULL) && !store_open(&store, loop, NULL, NULL));
	const struct apisrv_config config = {
		.store = store, .seed = 7, .with_roles = true, .tokens = tokens};

	must(!apisrv_new(&srv, loop, &config, NULL));
	struct reply r = ask(NULL, &admin, "/api/v1/namespaces/default/serviceaccounts",
			     "{\"metadata\":{\"name\":\"robot\"}}");

	must(r.status == 201);
	snprintf(uid, sizeof(uid), "%s", js_str(js_at(r.json, "metadata", "uid", NULL)));
	js_unref(r.json);
}

static struct reply who_am_i(const char *header)
{
	return ask(header, NULL, "/apis/authentication.k8s.io/v1/selfsubjectreviews", "{}");
}

static void refused(const char *header)
{
	struct reply r = who_am_i(header);

	must(r.status == 401);
	js_unref(r.json);
}

static void try_parts(char *head)
{
	char *claims = strchr(head, '\n');

	if (!claims)
		return;
	*claims++ = '\0';
	CLEANUP(mem_freep) char *a = b64_encode(head, strlen(head), true);
	CLEANUP(mem_freep) char *b = b64_encode(claims, strlen(claims), true);
	CLEANUP(mem_freep) char *header = mem_printf("Bearer %s.%s.%086d", a, b, 0);

	refused(header);
}

static char *filled(const char *text)
{
	struct sbuf b = SBUF_INIT(1 << 20);
	char *out = NULL;
	size_t n;

	for (; *text; text++) {
		if (str_has_prefix(text, "$UID")) {
			sbuf_adds(&b, uid);
			text += 3;
		} else if (str_has_prefix(text, "$NOW")) {
			sbuf_addf(&b, "%lld", (long long)(loop_realtime(loop) / USEC_PER_SEC));
			text += 3;
		} else {
			sbuf_addc(&b, *text);
		}
	}
	must(!sbuf_take(&b, &out, &n));
	return out;
}

static bool is_good(const struct json *claims)
{
	const struct json *k8s = js_get(claims, "kubernetes.io"), *aud = js_get(claims, "aud");
	int64_t now = (int64_t)(loop_realtime(loop) / USEC_PER_SEC);
	bool for_us = false;

	for (size_t i = 0; i < js_len(aud); i++)
		for_us = for_us || str_eq(js_str(js_item(aud, i)), TOKEN_ISSUER);
	return for_us && js_get_int(claims, "exp", 0) > now &&
	       str_eq(js_get_str(claims, "iss"), TOKEN_ISSUER) &&
	       str_eq(js_get_str(k8s, "namespace"), "default") &&
	       str_eq(js_str(js_at(k8s, "serviceaccount", "name", NULL)), "robot") &&
	       str_eq(js_str(js_at(k8s, "serviceaccount", "uid", NULL)), uid);
}

static void try_claims(const char *text)
{
	CLEANUP(mem_freep) char *json = filled(text);
	CLEANUP(js_unrefp) struct json *claims = NULL;
	CLEANUP(mem_freep) char *token = NULL;

	if (js_parse(json, strlen(json), &claims, NULL) ||
	    pki_jws_sign(signer, claims, &token, NULL))
		return;
	CLEANUP(mem_freep) char *header = mem_printf("Bearer %s", token);
	struct reply r = who_am_i(header);

	if (r.status == 201) {
		must(is_good(claims));
		must(str_eq(js_str(js_at(r.json, "status", "userInfo", "username", NULL)),
			    "system:serviceaccount:default:robot"));
	} else {
		must(r.status == 401);
	}
	js_unref(r.json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	if (!srv)
		up();
	if (n < 1 || memchr(data, 0, n))
		return 0;
	CLEANUP(mem_freep) char *text = mem_strndup((const char *)data + 1, n - 1);

	if (data[0] == 'T')
		refused(text);
	else if (data[0] == 'J')
		try_parts(text);
	else if (data[0] == 'C')
		try_claims(text);
	return 0;
}
