/* lib/http/ws.h - websocket endpoint: client, or the server side that http_upgrade_ws() gives.
 *
 * Loop thread only.  RFC 6455, wslay underneath, hidden.  Both sides have the same calls.  Pings are
 * answered by themselves.  An endpoint pings its peer every 20 s and gives up (1006, RC_TIMEOUT) once
 * nothing at all has arrived for 60 to 80 s; while it is paused, once the peer's kernel has confirmed
 * nothing for 180 to 200 s.
 *
 * on_close runs exactly once, from the loop, unless http_ws_free() came first; nothing else runs after
 * it.  The object stays the owner's until http_ws_free(), which may be called in any callback.
 */
#ifndef HTTP_WS_H
#define HTTP_WS_H

#include "base/err.h"

struct http_client;
struct http_ws;

enum {
	HTTP_WS_NORMAL = 1000,
	HTTP_WS_GOING_AWAY = 1001,
	HTTP_WS_PROTOCOL = 1002,
	HTTP_WS_NO_STATUS = 1005, /* the peer's close frame had no code */
	HTTP_WS_ABNORMAL = 1006,  /* the connection ended without a close frame */
	HTTP_WS_TOO_BIG = 1009,
	HTTP_WS_INTERNAL = 1011,
};

/* Any member may be NULL. */
struct http_ws_ops {
	/* The handshake is done; protocol is what the server chose (NULL: none). */
	void (*on_open)(struct http_ws *ws, const char *protocol, void *arg);
	/* One whole message, at most LIMIT_WS_BYTES. */
	void (*on_message)(struct http_ws *ws, bool is_text, const uint8_t *bytes, size_t n,
			   void *arg);
	/* The backlog fell to half of HTTP_WS_BACKLOG or less after it had been above (or a send was
	 * refused with RC_BUSY). */
	void (*on_room)(struct http_ws *ws, void *arg);
	/* why is set when there is more to say than the code: failed handshake (why->rc; status is the
	 * HTTP status of a refused one, else 0), broken connection. */
	void (*on_close)(struct http_ws *ws, uint16_t code, const char *reason, int status,
			 const struct err *why, void *arg);
};

enum { HTTP_WS_BACKLOG = 256 * 1024 };

/* url: ws://, wss://, http:// or https://.  protocols: comma-separated, NULL: none.  TLS and identity
 * come from the client's configuration. */
MUST_CHECK enum rc http_ws_connect(struct http_client *c, struct http_ws **out, const char *url,
				   const char *protocols, usec_t timeout,
				   const struct http_ws_ops *ops, void *arg, struct err *err);

/* Queued and sent in the same turn when the socket takes it.  RC_BUSY: HTTP_WS_BACKLOG bytes wait,
 * nothing was queued; RC_CLOSED: closing or closed; RC_TOO_BIG: above LIMIT_WS_BYTES. */
MUST_CHECK enum rc http_ws_send(struct http_ws *ws, bool is_text, const void *bytes, size_t n);
size_t http_ws_backlog(const struct http_ws *ws);
/* Back-pressure: while paused no message is delivered, apart from what is already read (4 KiB). */
void http_ws_pause(struct http_ws *ws, bool paused);
/* Sends what is queued and a close frame, waits at most 5 s for the peer's; on_close follows.  reason
 * (at most 123 bytes) may be NULL. */
void http_ws_close(struct http_ws *ws, uint16_t code, const char *reason);
bool http_ws_is_open(const struct http_ws *ws);
/* Drops the connection; no callback runs any more. NULL is fine; returns NULL. */
struct http_ws *http_ws_free(struct http_ws *ws);
DEFINE_CLEANUP(struct http_ws *, http_ws_free);

#endif
