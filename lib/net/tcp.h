/* lib/net/tcp.h - TCP connections of a network namespace, ended from outside.
 *
 * Blocking; pool threads.  Needs CAP_NET_ADMIN in the namespace.
 */
#ifndef NET_TCP_H
#define NET_TCP_H

#include <netinet/in.h>

#include "base/err.h"

/* Ends each TCP connection of the namespace (ns_fd -1: the caller's) to peer, in whatever state it is: whoever waits in it
 * is told ECONNABORTED, the peer gets a reset.  *n (may be NULL): how many there were.
 * RC_UNSUPPORTED: this kernel was built without INET_DIAG_DESTROY; then its own time-outs end them.
 * Source: sock_diag(7), SOCK_DESTROY. */
MUST_CHECK enum rc net_tcp_abort(int ns_fd, struct in_addr peer, unsigned *n, struct err *err);

#endif
