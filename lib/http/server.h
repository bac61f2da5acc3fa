/* lib/http/server.h - HTTP/1.1 server with TLS on the event loop.
 *
 * Loop thread only.  libmicrohttpd and GnuTLS underneath, hidden.
 *
 * A handler gets a complete request and answers it now or later, exactly once, by http_respond(),
 * by http_stream_begin() ... http_stream_end(), or by http_upgrade_ws().  Until then the request is
 * borrowed from the server.  It ends for its owner
 *   - when the owner answers it (http_respond*(), http_stream_end(), http_upgrade_ws()), or
 *   - when the client leaves or the server stops first: then the cancel function runs, once, from the
 *     loop, and the request must not be touched after it returned.
 * A request that is answered inside the handler never calls cancel.
 */
#ifndef HTTP_SERVER_H
#define HTTP_SERVER_H

#include <sys/types.h>

#include "base/err.h"
#include "http/ws.h"

struct loop;
struct http_server;
struct http_req;

/* What is known of the peer.  A certificate that is presented and is not valid (unknown CA, expired,
 * not for clients) never reaches a handler: the server answers 401. */
struct http_peer {
	bool has_cert;		 /* verified against the CA */
	const char *cn;		 /* NULL without a certificate */
	const char *const *orgs; /* every O of the subject, in order */
	size_t n_orgs;
	const char *address; /* "192.0.2.1", "::1", or "unix" */
	uid_t uid;	     /* of a unix socket's peer, else (uid_t)-1 */
	bool is_unix;
};

struct http_header {
	const char *name;
	const char *value;
};

typedef void (*http_handler_fn)(struct http_req *req, void *arg);
typedef void (*http_cancel_fn)(struct http_req *req, void *arg);
typedef void (*http_room_fn)(struct http_req *req, void *arg);
typedef void (*http_stopped_fn)(void *arg);

struct http_server_config {
	/* One of: */
	const char *address; /* numeric, "0.0.0.0", "::"; port 0: any (see http_server_port) */
	uint16_t port;
	const char *unix_path; /* made with mode 0600; an old socket file is removed */
	int listen_fd;	       /* > 0: adopted (also on failure) */

	/* TLS when cert_file is set; all PEM. */
	const char *cert_file; /* chain, own certificate first */
	const char *key_file;
	const char *ca_file; /* clients' CA; NULL: no client certificate is asked for */

	size_t body_max;	  /* 0: LIMIT_BODY_BYTES */
	unsigned connections_max; /* 0: LIMIT_CONNECTIONS */
	/* Who must get in when others do not: a share of connections and of memory is kept for such peers.
	 * NULL: whoever shows a valid certificate. */
	bool (*is_trusted)(const struct http_peer *peer);
	usec_t head_timeout; /* of the handshake and of a head; 0: LIMIT_HEAD_USEC */
	/* Of a body, and of an answer that waits for its reader, beyond LIMIT_RATE_FLOOR; 0: LIMIT_BODY_USEC */
	usec_t body_timeout;
	size_t bodies_max,
		answers_max; /* bytes at any time; 0: LIMIT_BODIES_BYTES, LIMIT_ANSWERS_BYTES */
	usec_t idle_timeout; /* of a connection without traffic and without a request; 0: 180 s */
	http_handler_fn handler;
	void *arg;
};

/* Listens at once. RC_IO, RC_EXISTS (address in use), RC_INVALID (certificates). */
MUST_CHECK enum rc http_server_new(struct http_server **out, struct loop *loop,
				   const struct http_server_config *config, struct err *err);
/* Stops accepting, cancels streams and websockets (close code 1001), lets other requests finish for at
 * most grace, cancels what is left, then calls done from the loop.  Free it there or later. */
void http_server_stop(struct http_server *s, usec_t grace, http_stopped_fn done, void *arg);
/* Cancels everything at once; not from inside a handler. NULL is fine; returns NULL. */
struct http_server *http_server_free(struct http_server *s);
DEFINE_CLEANUP(struct http_server *, http_server_free);

uint16_t http_server_port(const struct http_server *s); /* 0 for a unix socket */
/* Reads the files of the configuration again: new connections get the new certificate, and the CA is
 * used for every request from now on, old connections included.  On failure nothing changes. */
MUST_CHECK enum rc http_server_reload_tls(struct http_server *s, struct err *err);

/* Why a connection was closed, or a request refused, for the sake of others. */
enum http_refusal {
	HTTP_REFUSED_SLOW_HEAD,	  /* no whole head in time */
	HTTP_REFUSED_SLOW_BODY,	  /* nor body */
	HTTP_REFUSED_SLOW_READER, /* does not take its answer */
	HTTP_REFUSED_STRANGERS,	  /* too many before their first request: the oldest goes */
	HTTP_REFUSED_ADDRESS,	  /* too many of one address: the oldest goes, or the new one */
	HTTP_REFUSED_USER,	  /* 429 */
	HTTP_REFUSED_CONNECTIONS, /* an idle one goes, or 429 */
	HTTP_REFUSED_BODIES,	  /* 503 */
	HTTP_REFUSED_ANSWERS,	  /* 503; the end of a stream */
	HTTP_REFUSED__MAX
};
const char *http_refusal_name(enum http_refusal why); /* "slow-head" */

struct http_server_stats {
	uint64_t requests; /* since the start */
	uint64_t refused[HTTP_REFUSED__MAX];
	size_t body_bytes, answer_bytes;     /* held now */
	unsigned strangers, trusted, others; /* of the connections */
	unsigned open_requests;		     /* not yet fully answered, streams included */
	unsigned open_streams;
	unsigned open_websockets;
	unsigned connections;
};
void http_server_stats(const struct http_server *s, struct http_server_stats *out);

/* The request.  Everything returned is borrowed until the request ends. */
const char *http_req_method(const struct http_req *r); /* as sent: "GET" */
const char *http_req_path(const struct http_req *r);   /* decoded, without the query */
const char *http_req_target(const struct http_req *r); /* as sent, for logs */
const char *http_req_param(const struct http_req *r, const char *name); /* first; NULL: absent */
size_t http_req_n_params(const struct http_req *r);
const char *http_req_param_at(const struct http_req *r, size_t i,
			      const char **value); /* its name */
const char *http_req_header(const struct http_req *r,
			    const char *name); /* any case; NULL: absent */
/* Every header line, in order, until fn returns false. */
typedef bool (*http_header_fn)(void *arg, const char *name, const char *value);
void http_req_each_header(const struct http_req *r, http_header_fn fn, void *arg);
const char *http_req_body(const struct http_req *r, size_t *n); /* NUL-terminated; "" when empty */
const struct http_peer *http_req_peer(const struct http_req *r);
usec_t http_req_received(const struct http_req *r); /* loop_now() when it was complete */
struct loop *http_req_loop(const struct http_req *r);

/* Who hears that the client left before the answer.  May be set again (or to NULL) at any time. */
void http_req_on_cancel(struct http_req *r, http_cancel_fn fn, void *arg);

/* The whole answer; ends the request.  content_type NULL: none.  HEAD sends no body by itself. */
void http_respond(struct http_req *r, int status, const char *content_type, const void *body,
		  size_t n, const struct http_header *extra, size_t n_extra);
/* The same; body comes from mem_* (sbuf_take) and is taken over. */
void http_respond_take(struct http_req *r, int status, const char *content_type, char *body,
		       size_t n, const struct http_header *extra, size_t n_extra);

/* A body of unknown length (chunked).  The head is sent at once.  At most max_backlog bytes wait for a
 * slow client.  The request goes on until http_stream_end() or cancel. */
void http_stream_begin(struct http_req *r, int status, const char *content_type, size_t max_backlog,
		       const struct http_header *extra, size_t n_extra);
/* On the wire in the same turn of the loop when the socket takes it.  RC_BUSY: the backlog is full and
 * nothing was added (end the stream: a watcher resumes by itself); RC_NOMEM. */
MUST_CHECK enum rc http_stream_write(struct http_req *r, const void *bytes, size_t n);
/* What was written so far is what the stream begins with: of what follows, only max_backlog bytes may wait (and
 * no more than http_stream_begin() allowed in all). */
void http_stream_settle(struct http_req *r, size_t max_backlog);
size_t http_stream_backlog(const struct http_req *r); /* bytes not yet given to the socket */
/* fn runs from the loop each time the backlog falls to at most low bytes after it had been above. */
void http_stream_on_room(struct http_req *r, size_t low, http_room_fn fn, void *arg);
void http_stream_end(struct http_req *r); /* after what is queued; ends the request */
/* Breaks the connection so that the client sees a truncated answer; ends the request. */
void http_stream_abort(struct http_req *r);

/* Is this a websocket handshake?  True also for a broken one. */
bool http_req_wants_upgrade(const struct http_req *r);
/* The offered subprotocol (in the client's order) that is in the NULL-terminated list; NULL: none. */
const char *http_req_ws_protocol(const struct http_req *r, const char *const *supported);
/* Accepts the handshake; ends the request on RC_OK.  *ws is usable at once: messages wait until the
 * upgrade went out.  protocol may be NULL.  RC_BAD_REQUEST: not a correct handshake; the request is
 * still the caller's to answer. */
MUST_CHECK enum rc http_upgrade_ws(struct http_req *r, const char *protocol,
				   const struct http_ws_ops *ops, void *arg, struct http_ws **ws,
				   struct err *err);

#endif
