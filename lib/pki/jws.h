/* lib/pki/jws.h - JSON with a signature, as text: RFC 7515 compact form, ES256 (RFC 7518 section 3.4) alone.
 *
 * No state but the keys; nothing blocks.  GnuTLS underneath, hidden.
 */
#ifndef PKI_JWS_H
#define PKI_JWS_H

#include "base/err.h"

struct json;
struct pki_jws_key;

enum { PKI_JWS_BYTES = 16384 }; /* the longest text that is looked at */

/* A key of curve P-256 from a certificate, which gives the public half, and its private key, both PEM; key_pem
 * NULL: it only checks.  RC_INVALID: it is of another kind. */
MUST_CHECK enum rc pki_jws_key_new(struct pki_jws_key **out, const char *cert_pem,
				   const char *key_pem, struct err *err);
struct pki_jws_key *pki_jws_key_free(struct pki_jws_key *k);
DEFINE_CLEANUP(struct pki_jws_key *, pki_jws_key_free);
/* base64url of the SHA-256 of the public key (DER), as Kubernetes names its keys.  Borrowed. */
const char *pki_jws_key_id(const struct pki_jws_key *k);
/* The public half as a JSON Web Key (RFC 7517, RFC 7518 section 6.2); the caller's; NULL: out of memory. */
struct json *pki_jws_key_public(const struct pki_jws_key *k);

/* The signed text of claims, the caller's. */
MUST_CHECK enum rc pki_jws_sign(const struct pki_jws_key *k, const struct json *claims, char **out,
				struct err *err);
/* What one of the keys has signed: an object, the caller's.  RC_UNAUTHORIZED with the reason, which has
 * nothing of the text: it is none, of another algorithm ("none" included), of a key that is not here, forged. */
MUST_CHECK enum rc pki_jws_open(const char *text, struct pki_jws_key *const *keys, size_t n_keys,
				struct json **claims, struct err *err);

#endif
