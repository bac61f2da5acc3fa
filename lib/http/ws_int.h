/* lib/http/ws_int.h - the endpoint behind both sides; ws.c, ws_client.c and ws_server.c share it. */
#ifndef HTTP_WS_INT_H
#define HTTP_WS_INT_H

#include <sys/types.h>
#include <wslay/wslay.h>

#include "base/sbuf.h"
#include "ev/ev.h"
#include "http/ws.h"

enum ws_state { WS_CONNECTING, WS_OPEN, WS_CLOSING, WS_CLOSED };

/* Where the bytes go.  recv and send behave as recv(2) and send(2) on a non-blocking socket: -1 with
 * errno, EAGAIN included.  drop gives the connection back; it is called once. */
struct ws_io {
	ssize_t (*recv)(void *io, void *buf, size_t n);
	ssize_t (*send)(void *io, const void *buf, size_t n);
	void (*drop)(void *io);
};

struct http_ws {
	struct loop *loop;
	enum ws_state state;
	const struct http_ws_ops *ops;
	void *arg;

	const struct ws_io *io; /* NULL: none yet, or given back */
	void *io_arg;
	wslay_event_context_ptr ctx;
	struct http_ws **slot; /* the server's pointer to us, cleared when we let go; may be NULL */
	int fd;		       /* borrowed; -1: not connected */
	struct ev_src *src;
	struct ev_src *timer;
	usec_t ping_interval; /* PING_INTERVAL; tests have less time */
	struct sbuf early;    /* came together with the handshake */
	size_t early_off;

	bool is_paused;
	bool look_again; /* unpaused: read once even if the socket stays quiet */
	bool room_due;
	bool is_eof;
	bool is_broken; /* to be closed from the loop */
	unsigned depth; /* callbacks on the stack */
	bool is_freed;
	usec_t pinged;	     /* when the last one was sent */
	unsigned unanswered; /* pings since anything was heard of the peer */

	uint16_t peer_code; /* of the peer's close frame; 0: none came */
	char reason[124];
	int status; /* of a refused handshake */
	struct err why;
};

/* A new endpoint without a connection. */
MUST_CHECK enum rc ws_new(struct http_ws **out, struct loop *loop, bool is_server,
			  const struct http_ws_ops *ops, void *arg, struct err *err);
/* The handshake is done.  fd is watched, not owned; early bytes are copied.  io is dropped by the
 * endpoint from now on, also on failure. */
void ws_attach(struct http_ws *ws, const struct ws_io *io, void *io_arg, int fd, const void *early,
	       size_t n_early, const char *protocol);
/* It never came to a connection, or the connection went away under us: on_close follows at once.  From
 * the loop only. */
void ws_fail(struct http_ws *ws, int status, const struct err *why);
/* Sec-WebSocket-Accept for a key (RFC 6455, 4.2.2); out has room for 29 bytes. */
void ws_accept_key(const char *key, char out[29]);
/* Is word one of the comma-separated tokens of a header's value, in any case? */
bool ws_has_token(const char *value, const char *word);

#endif
