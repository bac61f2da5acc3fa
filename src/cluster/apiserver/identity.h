/* src/cluster/apiserver/identity.h - the cluster's CA and the certificates that follow from it.
 *
 * Blocking; at start-up and in `ferry-apiserver issue`.  In <state>/pki:
 *   ca.crt ca.key            the CA (ten years)
 *   server.crt server.key    the API server (also its client identity towards node agents)
 *   tls.crt tls.key          the controllers: what `ferry-controller --pki` reads
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

struct identity_issue {
	const char *dir; /* <state>/pki; the CA is made when missing */
	const char *out; /* gets ca.crt, tls.crt, tls.key */
	const char *cn;
	const char *const *orgs;
	size_t n_orgs;
	const char *const *sans;
	size_t n_sans;
	usec_t now;
};

/* A certificate for client and server use (a node's agent is both). */
MUST_CHECK enum rc identity_issue(const struct identity_issue *what, struct err *err);

#endif
