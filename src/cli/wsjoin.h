/* src/cli/wsjoin.h - a websocket of the API server's, joined to a local connection (or a pair of pipes).
 *
 * Loop thread only.  Bytes go both ways, binary messages the one and a stream the other; a side that does not take them
 * makes the other wait, so nothing is lost and no queue grows.
 */
#ifndef CLI_WSJOIN_H
#define CLI_WSJOIN_H

#include "base/err.h"

struct client;
struct wsjoin;

struct wsjoin_ops {
	/* The server has let us in; nothing of what it says is read before wsjoin_attach(). */
	void (*on_open)(struct wsjoin *j, void *arg);
	/* Exactly once, unless wsjoin_free() came first.  rc RC_OK: either side has closed; text (may be empty) is what the
	 * server said then.  Else why it did not begin, or broke. */
	void (*on_end)(struct wsjoin *j, enum rc rc, const char *text, void *arg);
};

/* path: below the VMI's (or VM's) subresource, "/vnc"; plural: "virtualmachineinstances".  ns NULL: the client's. */
MUST_CHECK enum rc wsjoin_new(struct wsjoin **out, struct client *c, const char *plural,
			      const char *ns, const char *name, const char *path,
			      const struct wsjoin_ops *ops, void *arg, struct err *err);
/* Both may be the same, then a socket that does not block.  They are wsjoin's from here on, also on failure.  Once, after
 * on_open. */
MUST_CHECK enum rc wsjoin_attach(struct wsjoin *j, int in_fd, int out_fd, struct err *err);
bool wsjoin_is_attached(const struct wsjoin *j);
/* May be called in on_end.  NULL is fine; returns NULL. */
struct wsjoin *wsjoin_free(struct wsjoin *j);

/* A socket that listens at an IPv4 address for those that are to be joined; *port 0: any that is free, which is then told. */
MUST_CHECK enum rc wsjoin_listen(const char *address, uint16_t *port, int *fd, struct err *err);
/* The URL of a subresource; the caller's. */
MUST_CHECK enum rc wsjoin_url(const struct client *c, const char *plural, const char *ns,
			      const char *name, const char *path, char **out, struct err *err);

#endif
