/* src/virt/node/agent_session.h - the websockets of one sort (consoles, displays) that a node has open: at most one of each VM.
 *
 * Loop thread only.  A new one replaces the old one, as virt-handler does.
 */
#ifndef NODE_AGENT_SESSION_H
#define NODE_AGENT_SESSION_H

#include "base/list.h"

struct http_req;

struct agent_sessions {
	const char *what; /* "console": for the log */
	const char *bye;  /* what the client hears when the guest's side has ended */
	struct list all;
};

/* The texts stay the caller's and have to last. */
void agent_sessions_init(struct agent_sessions *s, const char *what, const char *bye);
void agent_sessions_fini(struct agent_sessions *s);
/* vm: "ns/name". */
bool agent_sessions_has(const struct agent_sessions *s, const char *vm);
/* Joins the request's websocket with the socket fd, which is taken over.  The request is answered in any case. */
void agent_sessions_open(struct agent_sessions *s, struct http_req *req, const char *vm, int fd);

#endif
