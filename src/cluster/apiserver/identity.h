/* src/cluster/apiserver/identity.h - the cluster's CA and the certificates that follow from it.
 *
 * Blocking; at start-up and in `ferry-apiserver issue`.  In <state>/pki:
 *   ca.crt ca.key            the CA (ten years)
 *   server.crt server.key    the API server (also its client identity towards node agents)
 *   tls.crt tls.key          the controllers: what `ferry-controller --pki` reads
 *   sa.crt sa.key            signs tokens of service accounts; sa-previous.crt checks older ones
 *   admin.crt admin.key, admin.kubeconfig     a person with all rights
 * Certificates other than the CA live a year and are made anew at start when a third of that is left,
 * when the CA changed, or when the server's names changed.
 */
#ifndef APISERVER_IDENTITY_H
#define APISERVER_IDENTITY_H

#include "base/err.h"

struct identity_config {
	const char *dir;	  /* <state>/pki; made when missing */
	const char *server;	  /* URL for the kubeconfig */
	const char *const *names; /* the server's further names and addresses */
	size_t n_names;
	usec_t now; /* realtime */
};

/* Makes what is missing and renews what is old. */
MUST_CHECK enum rc identity_prepare(const struct identity_config *config, struct err *err);

struct tokens;
/* Gives tokens the keys of dir (<state>/pki); makes the first one, and the next when one is a year old. */
MUST_CHECK enum rc identity_token_keys(const char *dir, usec_t now, struct tokens *tokens,
				       struct err *err);

/* Another authority, in steps between which certificates of both are good:
 *   prepare  makes ca-next.{crt,key} and puts it behind the old one into ca.crt: it is trusted, and signs nothing
 *   switch   puts it first: certificates are made anew with it, the old one is still trusted
 *   finish   takes the old one away
 * Files alone; a running server is told by SIGHUP, or finds out within a day.  RC_CONFLICT: out of turn. */
MUST_CHECK enum rc identity_rotate_ca(const char *dir, const char *step, usec_t now,
				      struct err *err);

struct identity_issue {
	const char *dir; /* <state>/pki; the CA is made when missing */
	const char *out; /* gets ca.crt, tls.crt, tls.key */
	const char *cn;
	const char *const *orgs;
	size_t n_orgs;
	const char *const *sans;
	size_t n_sans;
	usec_t now;
	usec_t validity; /* 0: a year */
};

/* A certificate for client and server use (a node's agent is both). */
MUST_CHECK enum rc identity_issue(const struct identity_issue *what, struct err *err);

#endif
