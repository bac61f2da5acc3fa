/* lib/http/tls_int.h - the server's certificates and the identity of its peers. */
#ifndef HTTP_TLS_INT_H
#define HTTP_TLS_INT_H

#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>

#include "base/err.h"

enum { TLS_ORGS_MAX = 32, TLS_CHAIN_MAX = 8, TLS_RETIRED_MAX = 8 };

struct tls_store;

/* Identity of one connection's peer, filled on its first request. */
struct tls_peer {
	bool is_known;	     /* looked at */
	unsigned generation; /* of the CA it was checked against */
	usec_t not_after;    /* realtime */
	char *cn;
	char *orgs[TLS_ORGS_MAX];
	size_t n_orgs;
};

/* The files are read now and by tls_store_reload(). */
MUST_CHECK enum rc tls_store_new(struct tls_store **out, const char *cert_file,
				 const char *key_file, const char *ca_file, struct err *err);
MUST_CHECK enum rc tls_store_reload(struct tls_store *t, struct err *err);
struct tls_store *tls_store_free(struct tls_store *t);
const char *tls_store_ca_pem(const struct tls_store *t); /* NULL: none */
/* For gnutls_certificate_retrieve_function2. */
void tls_store_current(struct tls_store *t, gnutls_pcert_st **chain, unsigned *n,
		       gnutls_privkey_t *key);

/* Verifies once per connection and again after the CA changed or the certificate ran out.
 * RC_OK with peer->cn NULL: no certificate was presented.  RC_UNAUTHORIZED says what is wrong. */
MUST_CHECK enum rc tls_peer_check(struct tls_peer *p, struct tls_store *t, gnutls_session_t session,
				  usec_t now_realtime, struct err *err);
void tls_peer_fini(struct tls_peer *p);

#endif
