/* src/virt/node/agent_forward.h - port-forward: a websocket of the agent's, joined to a port of a guest.
 *
 * Loop thread only.  The caller has let the peer in (system:masters) and names the address, which is the VMI's own.
 * TCP is a stream, nothing of which is lost to a slow side: the other one waits.  UDP is one datagram a message.
 */
#ifndef NODE_AGENT_FORWARD_H
#define NODE_AGENT_FORWARD_H

#include "base/err.h"

struct forwards;
struct http_req;
struct loop;

/* NULL: out of memory. */
struct forwards *forwards_new(struct loop *loop);
struct forwards *forwards_free(struct forwards *f); /* ends all of them */
DEFINE_CLEANUP(struct forwards *, forwards_free);

/* Answers the request, now or later: a websocket once the guest has taken the connection, 500 "dialing VM: ..." when it
 * does not.  port: "1" to "65535", protocol: "tcp", "udp"; else 400. */
void forward_open(struct forwards *f, struct http_req *req, const char *address, const char *port,
		  const char *protocol);

#endif
