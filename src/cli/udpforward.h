/* src/cli/udpforward.h - a UDP port of a guest at a local one: a websocket of its own for each local peer.
 *
 * Loop thread only.  As virtctl has it, one datagram is one binary message, either way.  A peer (address and port) has its
 * stream from its first datagram on, until neither side has said anything for a while.  What cannot be passed on is
 * lost, as datagrams are; nobody waits.
 */
#ifndef CLI_UDPFORWARD_H
#define CLI_UDPFORWARD_H

#include "base/err.h"

struct http_client;
struct udpforward;

struct udpforward_config {
	struct http_client *client;
	const char *url; /* of the guest's port; the caller's, has to last */
	int fd;		 /* a bound UDP socket (IPv4) */
	/* Beyond, the one that has been silent for longest goes, if that is "interval". */
	unsigned peers_max;
	usec_t idle;
	usec_t interval; /* a peer's stream is made at most once in this time */
	void (*on_peer)(void *arg);
	/* A stream has ended, or was not made: why; "there are too many" once in an interval. */
	void (*on_error)(const char *text, void *arg);
	void *arg;
};

/* Copied.  The socket is taken over, also on failure. */
MUST_CHECK enum rc udpforward_new(struct udpforward **out, const struct udpforward_config *config,
				  struct err *err);
/* Ends all streams.  NULL is fine; returns NULL. */
struct udpforward *udpforward_free(struct udpforward *u);

#endif
