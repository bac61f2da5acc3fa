/* Tokens of lists in pages.  A token names a key and a moment, so one from elsewhere would show parts of a list
 * that nobody asked for: each is signed for its list, by HMAC-SHA256 (RFC 2104). */
#include "cluster/apiserver/apisrv_int.h"

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <string.h>

#include "base/b64.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"

enum { MAC_BYTES = 32 };

/* Each part with its length, so that no two lists read alike. */
static void add_part(struct sbuf *b, const char *text)
{
	const char *s = text ? text : "";

	sbuf_addf(b, "%zu:%s,", strlen(s), s);
}

/* Hexadecimal.  RC_IO: GnuTLS refused. */
static enum rc sign(const struct apisrv_call *c, int64_t rev, const char *start,
		    char out[2 * MAC_BYTES + 1])
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(4 * LIMIT_URL_BYTES);
	unsigned char mac[MAC_BYTES];

	add_part(&b, c->res->table);
	add_part(&b, c->ns);
	add_part(&b, call_param(c, "labelSelector"));
	add_part(&b, call_param(c, "fieldSelector"));
	sbuf_addf(&b, "%lld,", (long long)rev);
	add_part(&b, start);
	if (sbuf_rc(&b))
		return RC_NOMEM;
	if (gnutls_hmac_fast(GNUTLS_MAC_SHA256, c->srv->continue_key, APISRV_KEY_BYTES, b.p, b.n,
			     mac) < 0)
		return RC_IO;
	str_hex(mac, sizeof(mac), out);
	return RC_OK;
}

char *continue_make(const struct apisrv_call *c, int64_t rev, const char *start)
{
	char mac[2 * MAC_BYTES + 1];

	if (sign(c, rev, start, mac))
		return NULL;
	CLEANUP(js_unrefp)
	struct json *j = js_pack("{s:s, s:I, s:s, s:s}", "v", "meta.k8s.io/v1", "rv",
				 (long long)rev, "start", start, "mac", mac);
	CLEANUP(mem_freep) char *text = j ? js_to_text(j) : NULL;

	return text ? b64_encode(text, strlen(text), true) : NULL;
}

static bool is_same(const char *a, const char *b)
{
	return a && strlen(a) == 2 * MAC_BYTES && gnutls_memcmp(a, b, 2 * MAC_BYTES) == 0;
}

enum rc continue_parse(const struct apisrv_call *c, const char *token, int64_t *rev, char **start)
{
	CLEANUP(mem_freep) char *text = NULL;
	CLEANUP(js_unrefp) struct json *j = NULL;
	char mac[2 * MAC_BYTES + 1];
	size_t n = 0;
	enum rc rc = b64_decode(token, true, &text, &n);

	if (!rc)
		rc = js_parse(text, n, &j, NULL);
	if (rc)
		return rc == RC_NOMEM ? rc : RC_BAD_REQUEST;
	const char *from = js_get_str(j, "start");

	*rev = js_get_int(j, "rv", 0);
	if (!from || !str_eq(js_get_str(j, "v"), "meta.k8s.io/v1"))
		return RC_BAD_REQUEST;
	rc = sign(c, *rev, from, mac);
	if (rc)
		return rc;
	if (!is_same(js_get_str(j, "mac"), mac))
		return RC_BAD_REQUEST;
	*start = mem_strdup(from);
	return *start ? RC_OK : RC_NOMEM;
}
