/* lib/http/client.h - asynchronous HTTP client with TLS on the event loop.
 *
 * Loop thread only.  libcurl's multi interface underneath, hidden.  Connections are kept alive and
 * shared by all calls of one client.  The certificate files are read again for each new connection, so
 * a rotated one is picked up without a call.
 *
 * A call's done function runs exactly once, from the loop, never from inside http_call().  Freeing the
 * slot cancels: then no function of the call runs any more.  The slot stays the caller's to free, also
 * after done; that may happen inside any of its callbacks.
 */
#ifndef HTTP_CLIENT_H
#define HTTP_CLIENT_H

#include "base/err.h"
#include "base/sbuf.h"

struct loop;
struct http_client;
struct http_slot;

struct http_client_config {
	const char *ca_file;   /* NULL: the system's */
	const char *cert_file; /* client certificate and key, PEM; NULL: none */
	const char *key_file;
	const char *token;	/* bearer token; NULL: none */
	const char *unix_path;	/* connect here whatever the URL's host says; NULL: no */
	const char *user_agent; /* NULL: "ferry/<version>" */
	bool insecure;		/* do not verify the server (a person's explicit choice only) */
	usec_t connect_timeout; /* 0: 5 s */
	/* At most so many connections to one host; further calls wait their turn (their deadlines run).  0:
	 * no limit, for streams.  A handshake costs more than most requests: a burst must not pay for many. */
	unsigned max_connections;
};

/* Text is copied. */
MUST_CHECK enum rc http_client_new(struct http_client **out, struct loop *loop,
				   const struct http_client_config *config, struct err *err);
/* All slots must be gone. NULL is fine; returns NULL. */
struct http_client *http_client_free(struct http_client *c);
DEFINE_CLEANUP(struct http_client *, http_client_free);
/* A new token for the calls from now on (NULL: none). */
MUST_CHECK enum rc http_client_set_token(struct http_client *c, const char *token);
struct loop *http_client_loop(const struct http_client *c);

/* rc tells about the transport only: RC_OK whatever the status.  RC_TIMEOUT, RC_CLOSED (refused, reset,
 * no such host), RC_UNAUTHORIZED (TLS: the server is not who it should be, or refused our certificate),
 * RC_TOO_BIG, RC_IO.  Borrowed: valid during done. */
struct http_result {
	enum rc rc;
	int status;		  /* 0 when there was no answer */
	const char *content_type; /* NULL: none */
	const char *body;	  /* NUL-terminated; "" when it was streamed or empty */
	size_t n;
	const char *retry_after; /* headers that callers need; NULL: absent */
	const char *warning;	 /* all Warning headers, one per line; NULL: none */
	const struct err *err;	 /* text for rc != RC_OK, else NULL */
};

typedef void (*http_done_fn)(const struct http_result *r, void *arg);
/* Bytes of a 2xx answer as they come. */
typedef void (*http_data_fn)(const void *bytes, size_t n, void *arg);

struct http_call {
	const char *method; /* NULL: GET */
	const char *url;    /* whole, escaped */
	const char *content_type;
	const char *accept;
	const void *body; /* copied */
	size_t n_body;
	const char *const *headers; /* more, "Name: value", NULL-terminated; NULL: none */
	usec_t timeout;		    /* whole call; USEC_INFINITY: none (watches); 0: 30 s */
	size_t response_max;	    /* 0: LIMIT_RESPONSE_BYTES; of a streamed body: not counted */
	http_data_fn on_data;	    /* NULL: the body is collected for done */
	http_done_fn done;
	void *arg;
};

MUST_CHECK enum rc http_call(struct http_client *c, struct http_slot **out,
			     const struct http_call *call, struct err *err);
struct http_slot *http_slot_free(struct http_slot *s); /* NULL is fine; returns NULL */
DEFINE_CLEANUP(struct http_slot *, http_slot_free);

/* Lines out of streamed bytes (watch events).  Owner's memory. */
struct http_lines {
	struct sbuf part;
};
typedef bool (*http_line_fn)(const char *line, size_t n, void *arg); /* false: stop */

void http_lines_init(struct http_lines *l, size_t max_line);
void http_lines_fini(struct http_lines *l);
/* Calls fn for each whole line (without '\n', NUL-terminated, borrowed, empty ones left out).
 * RC_TOO_BIG: a line above max_line; RC_CLOSED: fn said stop (l may be gone by then: it is not touched
 * any more); RC_NOMEM. */
MUST_CHECK enum rc http_lines_feed(struct http_lines *l, const void *bytes, size_t n,
				   http_line_fn fn, void *arg);

#endif
