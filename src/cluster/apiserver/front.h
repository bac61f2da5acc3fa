/* src/cluster/apiserver/front.h - the API server's HTTPS side: who asks, and bytes in and out.
 *
 * Loop thread only.
 */
#ifndef APISERVER_FRONT_H
#define APISERVER_FRONT_H

#include "base/err.h"

struct apisrv;
struct front;
struct loop;

struct front_config {
	const char *address; /* numeric */
	uint16_t port;	     /* 0: any, see front_port() */
	const char *cert_file, *key_file, *ca_file;
};

/* Listens at once. */
MUST_CHECK enum rc front_new(struct front **out, struct loop *loop, struct apisrv *srv,
			     const struct front_config *config, struct err *err);
struct front *front_free(struct front *f);
DEFINE_CLEANUP(struct front *, front_free);
uint16_t front_port(const struct front *f);
/* Ends watches, lets other requests finish for at most grace, then calls done from the loop. */
void front_stop(struct front *f, usec_t grace, void (*done)(void *arg), void *arg);
/* Reads the certificates again. */
MUST_CHECK enum rc front_reload(struct front *f, struct err *err);

#endif
