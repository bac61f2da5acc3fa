/* src/cluster/apiserver/token.h - tokens of service accounts: the keys that sign them, and whose a token is.
 *
 * Loop thread only.  A token is a signed statement; what it says is checked at each use against the clock
 * and the store, so that it ends with its account and with the object that it is bound to.  Nothing
 * here logs, keeps or repeats a token.
 */
#ifndef APISERVER_TOKEN_H
#define APISERVER_TOKEN_H

#include "base/err.h"

struct apisrv;
struct apisrv_call;
struct json;
struct pki_jws_key;
struct tokens;

#define TOKEN_ISSUER "https://kubernetes.default.svc.cluster.local" /* also the audience */

enum {
	TOKEN_KEYS = 2,		      /* the one that signs, and the one before it */
	TOKEN_MIN_SECONDS = 600,      /* as Kubernetes */
	TOKEN_DEFAULT_SECONDS = 3600, /* as Kubernetes */
	TOKEN_MAX_SECONDS =
		365 * 86400 /* a key checks at least this long after the last it signed */
};

/* issuer NULL: TOKEN_ISSUER.  jwks_url: where clients find the keys; NULL: below the issuer.  Without keys
 * no token is made, and none is good. */
MUST_CHECK enum rc tokens_new(struct tokens **out, const char *issuer, const char *jwks_url);
struct tokens *tokens_free(struct tokens *t);
DEFINE_CLEANUP(struct tokens *, tokens_free);
/* Takes over the keys (at most TOKEN_KEYS; the first one signs) in place of those before. */
void tokens_take_keys(struct tokens *t, struct pki_jws_key **keys, size_t n);

#endif
