/* src/cli/wsjoin.h - streams of VMIs through the API server, joined to local ends (http/join.h).  Loop thread only. */
#ifndef CLI_WSJOIN_H
#define CLI_WSJOIN_H

#include "base/err.h"

struct client;
struct http_join;
struct http_join_ops;

/* path: below the VMI's (or VM's) subresource, "/vnc"; plural: "virtualmachineinstances".  ns NULL: the client's. */
MUST_CHECK enum rc wsjoin_connect(struct http_join **out, struct client *c, const char *plural,
				  const char *ns, const char *name, const char *path,
				  const struct http_join_ops *ops, void *arg, struct err *err);
/* A socket (SOCK_STREAM, SOCK_DGRAM) at an IPv4 address for those that are to be joined; *port 0: any that is free, which
 * is then told. */
MUST_CHECK enum rc wsjoin_listen(int type, const char *address, uint16_t *port, int *fd,
				 struct err *err);
/* The URL of a subresource; the caller's. */
MUST_CHECK enum rc wsjoin_url(const struct client *c, const char *plural, const char *ns,
			      const char *name, const char *path, char **out, struct err *err);

#endif
