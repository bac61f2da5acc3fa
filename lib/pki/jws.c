#include "pki/jws.h"

#include <string.h>

#include <gnutls/abstract.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>

#include "base/b64.h"
#include "base/mem.h"
#include "base/str.h"
#include "json/json.h"
#include "pki/pki.h"

enum { HALF = 32, SIG_BYTES = 2 * HALF, HASH_BYTES = 32 };

#define ALPHABET "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
#define ALG	 GNUTLS_SIGN_ECDSA_SHA256

struct pki_jws_key {
	gnutls_privkey_t private; /* NULL: it only checks */
	gnutls_pubkey_t public;
	char *id;
	char *x, *y; /* base64url of the point */
};

static enum rc tls_rc(int r, const char *what, struct err *err)
{
	if (r >= 0)
		return RC_OK;
	return err_set(err, r == GNUTLS_E_MEMORY_ERROR ? RC_NOMEM : RC_INVALID, "%s: %s", what,
		       gnutls_strerror(r));
}

struct pki_jws_key *pki_jws_key_free(struct pki_jws_key *k)
{
	if (!k)
		return NULL;
	if (k->private)
		gnutls_privkey_deinit(k->private);
	if (k->public)
		gnutls_pubkey_deinit(k->public);
	mem_free(k->id);
	mem_free(k->x);
	mem_free(k->y);
	return mem_free(k);
}

/* ---- keys ------------------------------------------------------------------------------------------ */

static int import_public(struct pki_jws_key *k, const char *pem)
{
	gnutls_datum_t d = {(unsigned char *)(uintptr_t)pem, (unsigned)strlen(pem)};
	gnutls_x509_crt_t crt = NULL;
	int r = gnutls_x509_crt_init(&crt);

	if (r < 0)
		return r;
	r = gnutls_x509_crt_import(crt, &d, GNUTLS_X509_FMT_PEM);
	if (r >= 0)
		r = gnutls_pubkey_init(&k->public);
	if (r >= 0)
		r = gnutls_pubkey_import_x509(k->public, crt, 0);
	gnutls_x509_crt_deinit(crt);
	return r;
}

static int import_private(struct pki_jws_key *k, const char *pem)
{
	gnutls_datum_t d = {(unsigned char *)(uintptr_t)pem, (unsigned)strlen(pem)};
	int r = gnutls_privkey_init(&k->private);

	return r < 0 ? r
		     : gnutls_privkey_import_x509_raw(k->private, &d, GNUTLS_X509_FMT_PEM, NULL, 0);
}

/* A coordinate is as long as the curve's field, whatever it begins with. */
static char *coordinate(const gnutls_datum_t *d)
{
	unsigned char bytes[HALF] = {0};

	if (d->size > HALF)
		return NULL;
	if (d->size)
		memcpy(bytes + HALF - d->size, d->data, d->size);
	return b64_encode(bytes, HALF, true);
}

static enum rc describe(struct pki_jws_key *k, struct err *err)
{
	gnutls_datum_t x = {0}, y = {0}, der = {0};
	gnutls_ecc_curve_t curve = GNUTLS_ECC_CURVE_INVALID;
	unsigned char hash[HASH_BYTES];
	int r = gnutls_pubkey_export_ecc_raw2(k->public, &curve, &x, &y, GNUTLS_EXPORT_FLAG_NO_LZ);

	if (r >= 0 && curve != GNUTLS_ECC_CURVE_SECP256R1)
		r = GNUTLS_E_ECC_UNSUPPORTED_CURVE;
	if (r >= 0)
		r = gnutls_pubkey_export2(k->public, GNUTLS_X509_FMT_DER, &der);
	if (r >= 0)
		r = gnutls_hash_fast(GNUTLS_DIG_SHA256, der.data, der.size, hash);
	enum rc rc = tls_rc(r, "not a key of curve P-256", err);

	if (!rc) {
		k->id = b64_encode(hash, sizeof(hash), true);
		k->x = coordinate(&x);
		k->y = coordinate(&y);
		if (!k->id || !k->x || !k->y)
			rc = err_set(err, RC_NOMEM, "out of memory");
	}
	gnutls_free(x.data);
	gnutls_free(y.data);
	gnutls_free(der.data);
	return rc;
}

enum rc pki_jws_key_new(struct pki_jws_key **out, const char *cert_pem, const char *key_pem,
			struct err *err)
{
	CLEANUP(pki_jws_key_freep) struct pki_jws_key *k = mem_alloc(sizeof(*k));

	if (!k)
		return err_set(err, RC_NOMEM, "out of memory");
	enum rc rc = tls_rc(import_public(k, cert_pem), "cannot read a certificate", err);

	if (!rc && key_pem)
		rc = tls_rc(import_private(k, key_pem), "cannot read a key", err);
	if (!rc)
		rc = describe(k, err);
	if (rc)
		return rc;
	*out = STEAL(k);
	return RC_OK;
}

const char *pki_jws_key_id(const struct pki_jws_key *k)
{
	return k->id;
}

struct json *pki_jws_key_public(const struct pki_jws_key *k)
{
	return js_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "use", "sig", "kty", "EC", "kid",
		       k->id, "crv", "P-256", "alg", "ES256", "x", k->x, "y", k->y);
}

/* ---- signing --------------------------------------------------------------------------------------- */

/* NULL: out of memory. */
static char *part_of(const struct json *j)
{
	CLEANUP(mem_freep) char *text = j ? js_to_text(j) : NULL;

	return text ? b64_encode(text, strlen(text), true) : NULL;
}

/* The two numbers of a signature, each of full length. */
static enum rc raw_signature(const gnutls_datum_t *sig, unsigned char out[SIG_BYTES],
			     struct err *err)
{
	gnutls_datum_t r = {0}, s = {0};
	enum rc rc = tls_rc(gnutls_decode_rs_value(sig, &r, &s), "cannot sign", err);
	const gnutls_datum_t *half[] = {&r, &s};

	memset(out, 0, SIG_BYTES);
	for (size_t i = 0; !rc && i < ARRAY_SIZE(half); i++) {
		const unsigned char *p = half[i]->data;
		size_t n = half[i]->size;

		while (n > HALF && !*p) {
			p++; /* a sign's leading zero */
			n--;
		}
		if (n > HALF)
			rc = err_set(err, RC_INVALID, "cannot sign: the numbers are too large");
		else
			memcpy(out + i * HALF + HALF - n, p, n);
	}
	gnutls_free(r.data);
	gnutls_free(s.data);
	return rc;
}

static enum rc sign(const struct pki_jws_key *k, const char *text, unsigned char out[SIG_BYTES],
		    struct err *err)
{
	gnutls_datum_t d = {(unsigned char *)(uintptr_t)text, (unsigned)strlen(text)}, sig = {0};
	enum rc rc =
		tls_rc(gnutls_privkey_sign_data2(k->private, ALG, 0, &d, &sig), "cannot sign", err);

	if (!rc)
		rc = raw_signature(&sig, out, err);
	gnutls_free(sig.data);
	return rc;
}

enum rc pki_jws_sign(const struct pki_jws_key *k, const struct json *claims, char **out,
		     struct err *err)
{
	CLEANUP(js_unrefp) struct json *head = js_pack("{s:s, s:s}", "alg", "ES256", "kid", k->id);
	CLEANUP(mem_freep) char *first = part_of(head);
	CLEANUP(mem_freep) char *second = part_of(claims);
	CLEANUP(mem_freep)
	char *text = first && second ? mem_printf("%s.%s", first, second) : NULL;
	unsigned char raw[SIG_BYTES];

	if (!text)
		return err_set(err, RC_NOMEM, "out of memory");
	if (!k->private)
		return err_set(err, RC_INVALID, "this key only checks");
	enum rc rc = sign(k, text, raw, err);

	if (rc)
		return rc;
	CLEANUP(mem_freep) char *third = b64_encode(raw, sizeof(raw), true);

	*out = third ? mem_printf("%s.%s", text, third) : NULL;
	return *out ? RC_OK : err_set(err, RC_NOMEM, "out of memory");
}

/* ---- checking -------------------------------------------------------------------------------------- */

/* Three parts of the URL alphabet with dots in between; *second, *third: where the later ones begin. */
static bool split(const char *text, const char **second, const char **third)
{
	size_t n = strspn(text, ALPHABET);

	if (!n || text[n] != '.')
		return false;
	*second = text + n + 1;
	n = strspn(*second, ALPHABET);
	if (!n || (*second)[n] != '.')
		return false;
	*third = *second + n + 1;
	n = strspn(*third, ALPHABET);
	return n && !(*third)[n];
}

static enum rc decode_object(const char *part, size_t n, struct json **out)
{
	CLEANUP(mem_freep) char *b64 = mem_strndup(part, n);
	CLEANUP(mem_freep) char *text = NULL;
	CLEANUP(js_unrefp) struct json *j = NULL;
	size_t len = 0;
	enum rc rc = b64 ? b64_decode(b64, true, &text, &len) : RC_NOMEM;

	if (!rc)
		rc = js_parse(text, len, &j, NULL);
	if (rc)
		return rc == RC_NOMEM ? rc : RC_UNAUTHORIZED;
	if (!js_is_object(j))
		return RC_UNAUTHORIZED;
	*out = STEAL(j);
	return RC_OK;
}

static enum rc find_key(const struct json *head, struct pki_jws_key *const *keys, size_t n_keys,
			const struct pki_jws_key **out, struct err *err)
{
	const char *id = js_get_str(head, "kid");

	/* The algorithm is ours to choose, not the sender's. */
	if (!str_eq(js_get_str(head, "alg"), "ES256"))
		return err_set(err, RC_UNAUTHORIZED, "it is not signed with ES256");
	if (js_get(head, "crit"))
		return err_set(err, RC_UNAUTHORIZED, "it asks for extensions that nobody knows");
	for (size_t i = 0; id && i < n_keys; i++)
		if (strcmp(keys[i]->id, id) == 0) {
			*out = keys[i];
			return RC_OK;
		}
	return err_set(err, RC_UNAUTHORIZED, "it is signed with a key that is not in use");
}

/* text: n bytes, signed; part: the signature. */
static enum rc check_signature(const struct pki_jws_key *k, const char *text, size_t n,
			       const char *part, struct err *err)
{
	CLEANUP(mem_freep) char *raw = NULL;
	gnutls_datum_t d = {(unsigned char *)(uintptr_t)text, (unsigned)n}, sig = {0};
	size_t n_raw = 0;
	enum rc rc = b64_decode(part, true, &raw, &n_raw);

	if (rc == RC_NOMEM)
		return err_set(err, rc, "out of memory");
	if (rc || n_raw != SIG_BYTES)
		return err_set(err, RC_UNAUTHORIZED, "its signature is not one");
	gnutls_datum_t r = {(unsigned char *)raw, HALF}, s = {(unsigned char *)raw + HALF, HALF};
	int ret = gnutls_encode_rs_value(&sig, &r, &s);

	if (ret >= 0)
		ret = gnutls_pubkey_verify_data2(k->public, ALG, 0, &d, &sig);
	gnutls_free(sig.data);
	if (ret == GNUTLS_E_MEMORY_ERROR)
		return err_set(err, RC_NOMEM, "out of memory");
	return ret < 0 ? err_set(err, RC_UNAUTHORIZED, "its signature does not fit") : RC_OK;
}

enum rc pki_jws_open(const char *text, struct pki_jws_key *const *keys, size_t n_keys,
		     struct json **claims, struct err *err)
{
	CLEANUP(js_unrefp) struct json *head = NULL;
	const struct pki_jws_key *k = NULL;
	const char *second, *third;

	if (strnlen(text, PKI_JWS_BYTES + 1) > PKI_JWS_BYTES)
		return err_set(err, RC_UNAUTHORIZED, "it is longer than %d bytes", PKI_JWS_BYTES);
	if (!split(text, &second, &third))
		return err_set(err, RC_UNAUTHORIZED, "it is not a JSON Web Token");
	enum rc rc = decode_object(text, (size_t)(second - text) - 1, &head);

	if (rc)
		return err_set(err, rc, rc == RC_NOMEM ? "out of memory" : "its head is not JSON");
	rc = find_key(head, keys, n_keys, &k, err);
	if (!rc)
		rc = check_signature(k, text, (size_t)(third - text) - 1, third, err);
	if (rc)
		return rc;
	rc = decode_object(second, (size_t)(third - second) - 1, claims);
	return rc ? err_set(err, rc,
			    rc == RC_NOMEM ? "out of memory" : "its claims are not a JSON object")
		  : RC_OK;
}
