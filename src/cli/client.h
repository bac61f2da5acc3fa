/* src/cli/client.h - the command line's way to the API server: kubeconfig, and calls that wait.
 *
 * One thread; a call runs the loop until its answer is there.
 */
#ifndef CLI_CLIENT_H
#define CLI_CLIENT_H

#include "base/err.h"

struct client;
struct json;
struct loop;

struct client_flags {
	const char
		*kubeconfig; /* --kubeconfig; NULL: $KUBECONFIG, then the places of client_open() */
	const char *ns;	     /* -n; NULL: the context's namespace, else "default" */
};

/* Looks at flags->kubeconfig, $KUBECONFIG, $FERRY_STATE/control/pki/admin.kubeconfig,
 * /var/lib/ferry/control/pki/admin.kubeconfig and ~/.kube/config, in this order.
 * RC_NOT_FOUND names the places when there is none. */
MUST_CHECK enum rc client_open(struct client **out, const struct client_flags *flags,
			       struct err *err);
struct client *client_free(struct client *c);
DEFINE_CLEANUP(struct client *, client_free);

/* Warnings of the server are not printed. */
void client_set_quiet(struct client *c, bool is_quiet);
const char *client_ns(const struct client *c);
const char *client_server(const struct client *c); /* "https://host:port" */
struct loop *client_loop(struct client *c);
struct http_client *client_http(struct client *c);

struct answer {
	int status;
	char *text;	   /* the body */
	struct json *json; /* NULL when it is not JSON */
};
void answer_fini(struct answer *a);

/* Waits at most timeout.  RC_OK only for 2xx; otherwise err->msg is the Status' message (or the text, or
 * what went wrong on the way) and *out still holds the answer.  Warning headers go to standard error. */
MUST_CHECK enum rc client_call(struct client *c, const char *method, const char *path,
			       const char *accept, const char *content_type, const char *body,
			       usec_t timeout, struct answer *out, struct err *err);
/* What an answer that is not 2xx says: its Status' message, or its text. */
struct http_result;
enum rc client_status_err(const struct http_result *r, struct err *err);
/* GET with JSON. */
MUST_CHECK enum rc client_get(struct client *c, const char *path, struct json **out,
			      struct err *err);
/* Body as JSON; *out may be NULL. */
MUST_CHECK enum rc client_send(struct client *c, const char *method, const char *path,
			       const char *content_type, const struct json *body, struct json **out,
			       struct err *err);

/* Lines of a watch until fn returns false, the stream ends (RC_OK both), or the time is over
 * (RC_TIMEOUT).  The path has its query. */
typedef bool (*client_watch_fn)(const char *type, const struct json *object, void *arg);
MUST_CHECK enum rc client_watch(struct client *c, const char *path, usec_t timeout,
				client_watch_fn fn, void *arg, struct err *err);

#endif
