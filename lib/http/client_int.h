/* lib/http/client_int.h - transfers on libcurl's multi handle; client.c and ws_client.c share them. */
#ifndef HTTP_CLIENT_INT_H
#define HTTP_CLIENT_INT_H

#include <curl/curl.h>

#include "base/list.h"
#include "http/client.h"

/* One easy handle in the multi.  Embedded. */
struct transfer {
	struct list link; /* in client->transfers, ->adding or ->dying */
	struct http_client *client;
	CURL *easy;
	bool is_added;
	bool is_starved; /* a socket of it cannot be watched: out of memory */
	bool is_over;	 /* done was called */
	/* From the loop; the transfer is still added. */
	void (*done)(struct transfer *t, CURLcode code);
	/* After transfer_drop(): nothing of libcurl uses it any more; frees what embeds it. */
	void (*gone)(struct transfer *t);
	char error[CURL_ERROR_SIZE];
};

/* An easy handle with the client's TLS, timeouts and limits.  RC_INVALID for a bad URL. */
MUST_CHECK enum rc transfer_init(struct transfer *t, struct http_client *c, const char *url,
				 struct err *err);
/* Starts it, now or, inside one of libcurl's callbacks, right after. */
MUST_CHECK enum rc transfer_start(struct transfer *t, struct err *err);
/* Removes and closes it, now or right after; then calls gone.  No done follows. */
void transfer_drop(struct transfer *t);
/* The text and the class of a failure. */
enum rc transfer_error(const struct transfer *t, CURLcode code, struct err *err);
const char *client_token(const struct http_client *c);

#endif
