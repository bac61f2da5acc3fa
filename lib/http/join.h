/* lib/http/join.h - a websocket joined to a local stream: a socket, or a pair of pipes.
 *
 * Loop thread only.  Binary messages on the one side, bytes on the other; text messages are no part of it.  Either side
 * makes the other wait: the stream is not read while more than half of HTTP_WS_BACKLOG waits for the websocket's peer,
 * the websocket not while more than HTTP_JOIN_WAITING / 2 bytes wait for the stream.  Nothing is lost, no queue grows.
 *
 * The protocol (plain.kubevirt.io) has no half-close: the stream's end is a close frame, after all that was read; the
 * websocket's end is the stream's, after all that waits for it and can be taken within last_words.  A peer that dies is
 * found by http/ws.h's pings.  Without memory it ends with 1011 (HTTP_WS_INTERNAL): a stream cannot miss a part.
 */
#ifndef HTTP_JOIN_H
#define HTTP_JOIN_H

#include "base/err.h"

struct http_client;
struct http_join;
struct http_req;

enum { HTTP_JOIN_WAITING = 256 * 1024 };

struct http_join_ops {
	/* As a client only: the server has let us in; http_join_attach() may follow, now or later.  May be NULL. */
	void (*on_open)(struct http_join *j, void *arg);
	/* Both sides are over; once, unless http_join_free() came first, which it may call.  RC_OK: one of them has closed,
	 * text (may be empty) is what the peer said then.  Else text is why it did not begin, or broke; RC_CLOSED: the
	 * connection ended without a close frame. */
	void (*on_end)(struct http_join *j, enum rc rc, const char *text, void *arg);
};

/* Copied; the texts stay the caller's and have to last. */
struct http_join_config {
	const struct http_join_ops *ops;
	void *arg;
	const char *protocol; /* the one that is offered or accepted */
	const char *bye;      /* reason of the close frame when the stream has ended; may be NULL */
	usec_t last_words; /* from the websocket's end on; USEC_INFINITY: as long as the stream is there */
	/* The socket's: one datagram a message, empty ones too.  What the network does not take is lost; what is no datagram
	 * (of UDP: more than 65507 bytes) ends it with 1009. */
	bool is_datagram;
};

/* As a client, url and timeout as http_ws_connect() has them.  Nothing of what the server says is taken before
 * http_join_attach(). */
MUST_CHECK enum rc http_join_connect(struct http_client *c, struct http_join **out, const char *url,
				     usec_t timeout, const struct http_join_config *config,
				     struct err *err);
/* The same descriptor twice is a socket; two are a pipe to read from and one to write to.  They are taken over, also on
 * failure.  Once, between on_open and on_end. */
MUST_CHECK enum rc http_join_attach(struct http_join *j, int in_fd, int out_fd, struct err *err);
/* As the server, with a socket, which is taken over, also on failure; then the request is still to be answered. */
MUST_CHECK enum rc http_join_upgrade(struct http_req *req, struct http_join **out, int fd,
				     const struct http_join_config *config, struct err *err);
/* Neither side has ended. */
bool http_join_is_live(const struct http_join *j);
/* Lets the stream go at once and says good-bye to the peer; on_end follows, within 5 s.  Only if http_join_is_live(). */
void http_join_close(struct http_join *j, uint16_t code, const char *reason);
/* Drops both; no callback runs any more.  NULL is fine; returns NULL. */
struct http_join *http_join_free(struct http_join *j);

#endif
