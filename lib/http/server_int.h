/* lib/http/server_int.h - what server.c, request.c, stream.c and ws_server.c share. */
#ifndef HTTP_SERVER_INT_H
#define HTTP_SERVER_INT_H

#include <microhttpd.h>

#include "base/limits.h"
#include "base/list.h"
#include "base/map.h"
#include "base/sbuf.h"
#include "ev/ev.h"
#include "http/server.h"
#include "http/tls_int.h"
#include "http/uri.h"

struct conn;
struct sockaddr;

enum { GUARD_KEY = 64, GUARD_SMALL = 65536 };

/* What a connection does. */
enum conn_phase {
	CONN_NEW,    /* handshake, and the head of its first request */
	CONN_HEAD,   /* of a later one, from its second line on */
	CONN_BODY,   /* until a handler has the request */
	CONN_BUSY,   /* a handler has it */
	CONN_ANSWER, /* the answer is being sent */
	CONN_IDLE,   /* kept open */
	CONN__MAX
};

struct guard_entry {
	unsigned n;		/* connections */
	size_t bodies, answers; /* bytes; of a user's */
};

struct guard {
	struct list phases[CONN__MAX]; /* each in the order of its beginning */
	struct map addresses,
		users; /* guard_entry; addresses: strangers and peers that are not trusted */
	struct ev_src *timer;
	bool is_fast;
	usec_t tick, head_timeout, body_timeout, idle_timeout;
	unsigned strangers_max, others_max, user_max, address_max;
	unsigned n_strangers, n_others, n_trusted;
	size_t bodies_max, answers_max, bodies, answers;
	bool (*is_trusted)(const struct http_peer *peer);
	uint64_t refused[HTTP_REFUSED__MAX];
};

/* A request goes READING -> OWNED -> ANSWERED -> QUEUED and is freed when libmicrohttpd says that it is
 * complete.  Streams stay owned until their end. */
enum req_state { REQ_READING, REQ_OWNED, REQ_ANSWERED, REQ_QUEUED };

struct http_server {
	struct loop *loop;
	struct MHD_Daemon *mhd;
	struct ev_src *epoll_src;
	struct ev_src *kick;  /* run libmicrohttpd soon */
	struct ev_src *timer; /* libmicrohttpd's own time-outs */
	usec_t timer_due;
	struct ev_src *stop_timer; /* end of the grace period, and the deferred end */
	int listen_fd;		   /* ours again after quiescing; -1 while the daemon has it */
	char *unix_path;
	uint16_t port;
	struct tls_store *tls; /* NULL: plain */

	struct guard guard;

	size_t body_max;
	http_handler_fn handler;
	void *arg;

	struct list reqs;
	unsigned n_reqs, n_streams, n_ws, n_conns;
	uint64_t n_requests;

	unsigned in_mhd; /* depth of calls into libmicrohttpd's loop */
	bool stopping;
	http_stopped_fn stopped;
	void *stopped_arg;
};

/* One per connection; libmicrohttpd keeps the pointer as its socket context. */
struct conn {
	struct http_server *server;
	struct http_req *req; /* the one in progress */
	int fd;
	char address[64];
	struct tls_peer id; /* empty for plain connections */
	struct http_peer peer;

	/* guard.c */
	struct list link; /* in guard.phases; unlinked: dropped */
	enum conn_phase phase;
	usec_t since; /* of the phase */
	bool is_stranger, is_trusted, is_dropped;
	char key[GUARD_KEY];		/* of the address */
	char *user;			/* NULL: not known yet */
	struct guard_entry *of_address; /* NULL: not counted there */
	struct guard_entry *of_user;
	usec_t mark_at; /* since when, and from which byte on, the reader's rate is looked at; 0: not */
	uint64_t mark;
};

struct http_req {
	struct list link;
	struct http_server *server;
	struct conn *conn;
	struct MHD_Connection *mhd;
	enum req_state state;
	bool is_begun;	   /* the head was looked at */
	bool is_http10;	   /* or older */
	bool is_owned;	   /* a handler's owner still has it */
	bool is_suspended; /* parked: libmicrohttpd does not look at it */
	bool is_gone;	   /* the client left, or the server gave up on it */
	bool must_close;   /* answer, then close the connection */

	char *target;
	const char *method; /* libmicrohttpd's, for the life of the request */
	struct http_uri uri;
	struct sbuf body;
	uint64_t n_received;		 /* bytes of the body */
	size_t body_taken, answer_taken; /* of the server's memory: guard_take_*() */
	size_t drained;			 /* bytes of a refused body that were thrown away */
	int reject; /* status of an answer that was decided before the body came; 0: none */
	struct err why;
	usec_t received;

	struct ev_src *hangup; /* watches the socket while suspended */
	http_cancel_fn cancel;
	void *cancel_arg;

	struct MHD_Response *response;
	int status;

	bool is_stream;
	bool is_ended; /* http_stream_end() was called */
	struct sbuf queue;
	size_t queue_off; /* bytes at the front that were sent */
	size_t queue_max; /* as many may wait */
	size_t queue_first; /* of what the stream began with, what waits still; does not count against queue_max */
	http_room_fn room;
	void *room_arg;
	size_t room_low;
	bool room_due;

	struct http_ws
		*ws; /* of an upgraded request; NULL again once it let go of the connection */
	char *ws_protocol;
	struct sbuf ws_head; /* the answer 101, until it is sent */
	struct ev_src *attach;
	bool is_ws;
};

/* request.c */
enum MHD_Result req_on_access(void *cls, struct MHD_Connection *c, const char *url,
			      const char *method, const char *version, const char *upload,
			      size_t *upload_size, void **con_cls);
void *req_on_uri(void *cls, const char *uri, struct MHD_Connection *c);
void req_on_completed(void *cls, struct MHD_Connection *c, void **con_cls,
		      enum MHD_RequestTerminationCode why);
/* Tells the owner that the request is over (if there is one). */
void req_cancel(struct http_req *r);
/* The owner has nothing to do with it any more. */
void req_disown(struct http_req *r);
/* As if the client had left: cancel, then let libmicrohttpd close the connection. */
void req_give_up(struct http_req *r);
void req_suspend(struct http_req *r);
void req_resume(struct http_req *r);
void req_free(struct http_req *r);
/* Takes the response; ends the request for its owner unless it is a stream. */
void req_answer(struct http_req *r, struct MHD_Response *response, int status);
enum rc response_headers(struct MHD_Response *m, const char *content_type,
			 const struct http_header *extra, size_t n_extra);

/* guard.c: deadlines, shares of connections and of memory. */
MUST_CHECK enum rc guard_init(struct http_server *s, const struct http_server_config *config,
			      unsigned max, usec_t idle, struct err *err);
void guard_fini(struct http_server *s);
bool guard_accepts(struct http_server *s, const struct sockaddr *sa);
void guard_enter(struct conn *k, const struct sockaddr *sa);
void guard_leave(struct conn *k);
/* The first request's peer is known.  RC_BUSY: he has too many connections, or there are too many. */
MUST_CHECK enum rc guard_identify(struct conn *k, struct err *err);
void guard_phase(struct conn *k, enum conn_phase phase);
/* n more bytes of a body are kept, or of an answer.  RC_BUSY: not now. */
MUST_CHECK enum rc guard_take_body(struct http_req *r, size_t n, struct err *err);
MUST_CHECK enum rc guard_take_answer(struct http_req *r, size_t n, struct err *err);
void guard_give_body(struct http_req *r); /* all of it */
void guard_give_answer(struct http_req *r, size_t n);

/* ws_server.c: the request of an upgraded connection is over. */
void ws_server_detach(struct http_ws *ws);

/* server.c */
struct conn *conn_of(struct MHD_Connection *c);
/* Something was resumed or closed outside libmicrohttpd's loop: run it in this turn of ours. */
void server_kick(struct http_server *s);
/* The number of requests changed: a stop may be complete. */
void server_check_stopped(struct http_server *s);

#endif
