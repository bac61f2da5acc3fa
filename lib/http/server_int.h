/* lib/http/server_int.h - what server.c, request.c, stream.c and ws_server.c share. */
#ifndef HTTP_SERVER_INT_H
#define HTTP_SERVER_INT_H

#include <microhttpd.h>

#include "base/limits.h"
#include "base/list.h"
#include "base/sbuf.h"
#include "ev/ev.h"
#include "http/server.h"
#include "http/tls_int.h"
#include "http/uri.h"

struct conn;

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
};

struct http_req {
	struct list link;
	struct http_server *server;
	struct conn *conn;
	struct MHD_Connection *mhd;
	enum req_state state;
	bool is_begun;	   /* the head was looked at */
	bool is_owned;	   /* a handler's owner still has it */
	bool is_suspended; /* parked: libmicrohttpd does not look at it */
	bool is_gone;	   /* the client left, or the server gave up on it */
	bool must_close;   /* answer, then close the connection */

	char *target;
	const char *method; /* libmicrohttpd's, for the life of the request */
	struct http_uri uri;
	struct sbuf body;
	size_t drained; /* bytes of a refused body that were thrown away */
	int reject;	/* status of an answer that was decided before the body came; 0: none */
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

/* ws_server.c: the request of an upgraded connection is over. */
void ws_server_detach(struct http_ws *ws);

/* server.c */
struct conn *conn_of(struct MHD_Connection *c);
/* Something was resumed or closed outside libmicrohttpd's loop: run it in this turn of ours. */
void server_kick(struct http_server *s);
/* The number of requests changed: a stop may be complete. */
void server_check_stopped(struct http_server *s);

#endif
