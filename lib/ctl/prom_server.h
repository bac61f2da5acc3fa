/* lib/ctl/prom_server.h - serves /metrics over HTTPS to those who may know everything.
 *
 * Loop thread only.  A client needs a certificate of the cluster's authority with the group system:masters.
 */
#ifndef CTL_PROM_SERVER_H
#define CTL_PROM_SERVER_H

#include "base/err.h"

struct loop;
struct prom_server;
struct sbuf;

struct prom_server_config {
	const char *listen; /* "ADDRESS:PORT", numeric */
	const char *cert_file, *key_file, *ca_file;
	void (*print)(struct sbuf *out, void *arg);
	void *arg;
};

MUST_CHECK enum rc prom_server_new(struct prom_server **out, struct loop *loop,
				   const struct prom_server_config *config, struct err *err);
struct prom_server *prom_server_free(struct prom_server *s);
DEFINE_CLEANUP(struct prom_server *, prom_server_free);
MUST_CHECK enum rc prom_server_reload_tls(struct prom_server *s, struct err *err);

#endif
