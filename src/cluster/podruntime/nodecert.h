/* src/cluster/podruntime/nodecert.h - a node's certificate, renewed before its end while everything runs.
 *
 * Loop thread only; the files are small, and read and written where it stands.  The key never leaves the node:
 * what is sent is a request for a certificate, and the API server gives the names that the old one has.
 */
#ifndef CLUSTER_NODECERT_H
#define CLUSTER_NODECERT_H

#include "base/err.h"

struct kube;
struct loop;
struct nodecert;

struct nodecert_config {
	struct loop *loop;
	struct kube *kube;
	const char *name; /* of the node */
	const char *dir;  /* ca.crt, tls.crt, tls.key */
	/* The files are new ones: read them again. */
	void (*changed)(void *arg);
	void *arg;
};

/* What a crash left of a renewal is finished; before anybody reads the files.  No certificate at all is fine
 * here: whoever needs it says so. */
MUST_CHECK enum rc nodecert_recover(const char *dir, struct err *err);
/* Looks at the certificate and the authorities now and then (at once for the first time), and renews it when a third
 * of its life is left or another authority signs. */
MUST_CHECK enum rc nodecert_new(struct nodecert **out, const struct nodecert_config *config,
				struct err *err);
struct nodecert *nodecert_free(struct nodecert *c);
DEFINE_CLEANUP(struct nodecert *, nodecert_free);

#endif
