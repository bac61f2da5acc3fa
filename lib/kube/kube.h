/* lib/kube/kube.h - asynchronous client of a Kubernetes API server.
 *
 * Loop thread only.  Every call has a deadline and completes exactly once, from the loop, never from
 * inside the function that started it.  Dropping the handle cancels: then the callback does not run.
 * Only the semantics of a real kube-apiserver are relied on.
 *
 * How bytes travel is a struct kube_transport: kube_new() uses HTTPS (lib/http), tests and the
 * simulation plug in an API server in the same process, with faults.
 */
#ifndef KUBE_KUBE_H
#define KUBE_KUBE_H

#include "base/err.h"

struct api_kind;
struct json;
struct kube;
struct kube_call;  /* one request in flight */
struct kube_watch; /* one watch stream */
struct loop;
struct sbuf;

/* What to do with the handle that a call gives out: see kube_call_free(). */

struct kube_config {
	const char *server;    /* "https://host:port", optionally with a path prefix */
	const char *ca_file;   /* PEM; NULL: the system's */
	const char *cert_file; /* client certificate and key, PEM; NULL: none */
	const char *key_file;
	const char *token;	/* bearer token; NULL: none */
	const char *user_agent; /* NULL: "ferry/<version>" */
	usec_t timeout;		/* per request; 0: KUBE_TIMEOUT */
};

#define KUBE_TIMEOUT (15 * USEC_PER_SEC)

/* Transport.  Texts in a request are borrowed for the call; the transport copies what it keeps.
 * on_done/on_end run exactly once unless cancelled; on_data any number of times before on_end.
 * None of them runs from inside request()/watch_open(). */
struct kube_request {
	const char *method;	  /* "GET" … */
	const char *path;	  /* absolute, with its query, escaped */
	const char *content_type; /* NULL: no body */
	const char *body;
	size_t n_body;
	usec_t timeout; /* the transport answers RC_TIMEOUT after it; a watch: time to its first byte of head */
};

struct kube_response {
	enum rc rc;	  /* RC_OK: an HTTP answer came (whatever its status), else why none did */
	int status;	  /* HTTP status; 0 without an answer */
	const char *body; /* borrowed for the callback */
	size_t n_body;
	usec_t retry_after;    /* Retry-After, 0: none */
	const struct err *err; /* the text when rc is set; may be NULL */
};

typedef void (*kube_done_fn)(const struct kube_response *r, void *arg);
typedef void (*kube_data_fn)(const char *bytes, size_t n, void *arg);

struct kube_stream_fns {
	kube_data_fn on_data; /* bytes of a 200 answer */
	kube_done_fn
		on_end; /* rc RC_OK and status 200: ended by the server; body: that of an error answer */
};

struct kube_transport {
	enum rc (*request)(void *ctx, const struct kube_request *rq, kube_done_fn fn, void *arg,
			   void **op, struct err *err);
	enum rc (*watch_open)(void *ctx, const struct kube_request *rq,
			      const struct kube_stream_fns *fns, void *arg, void **op,
			      struct err *err);
	/* Also legal from inside op's own callback.  Not called after on_done/on_end returned. */
	void (*cancel)(void *ctx, void *op);
	void (*free)(void *ctx); /* may be NULL */
};

/* Over HTTPS.  RC_INVALID when the configuration makes no sense, RC_IO for unreadable files. */
MUST_CHECK enum rc kube_new(struct kube **out, struct loop *loop, const struct kube_config *cfg,
			    struct err *err);
/* Over the given transport; consumes ctx (calls t->free in kube_free(), and on failure). */
MUST_CHECK enum rc kube_new_over(struct kube **out, struct loop *loop,
				 const struct kube_transport *t, void *ctx, struct err *err);
/* Cancels what is in flight (handles given out stay valid and must still be freed).  Not from inside a
 * callback of this client. */
struct kube *kube_free(struct kube *k);
DEFINE_CLEANUP(struct kube *, kube_free);

/* Answers */
struct kube_reply {
	enum rc rc; /* RC_OK for 2xx; else from the Status' reason, or the transport's failure */
	int http_status; /* 0 when no answer came */
	const struct json
		*body;	  /* the object, list or Status; NULL when empty or not JSON; borrowed */
	const char *text; /* the body as it came (kube_raw() of non-JSON); borrowed */
	size_t n_text;
	const char *reason; /* Status.reason, "" when there is none */
	usec_t retry_after; /* 0: none */
	struct err err;	    /* err.msg: Status.message, or what went wrong on the way */
};
typedef void (*kube_reply_fn)(const struct kube_reply *r, void *arg);

/* What became of a request or, at its first bytes or its end, of a watch. */
struct kube_seen {
	const char *method;   /* "GET" */
	const char *verb;     /* "list", "watch", "deletecollection"; as rights name it */
	const char *resource; /* "pods"; "": kube_raw() */
	int status;	      /* 0: no answer came */
	usec_t took;	      /* a watch: until its first bytes */
};
/* fn sees every request that ends by itself (not those whose handle is freed before); it may not call the
 * client.  One for a client; NULL: nobody. */
void kube_observe(struct kube *k, void (*fn)(const struct kube_seen *seen, void *arg), void *arg);
const char *kube_server(const struct kube *k); /* "host:port"; "" without a network */

/* Cancels a call that has not completed; frees the handle.  Accepts NULL; legal inside the callback;
 * returns NULL.  Every handle given out must be freed, before or after its completion.  A caller that
 * passes call == NULL gets no handle and cannot cancel: its arg must outlive the client. */
struct kube_call *kube_call_free(struct kube_call *c);
DEFINE_CLEANUP(struct kube_call *, kube_call_free);
bool kube_call_is_done(const struct kube_call *c);

enum kube_patch { KUBE_PATCH_MERGE, KUBE_PATCH_JSON, KUBE_PATCH_STRATEGIC };

struct kube_list_opts {
	const char *label_selector; /* NULL: all */
	const char *field_selector;
	const char *resource_version; /* NULL: most recent */
	const char *continue_;	      /* token of the page before */
	unsigned limit;		      /* 0: no limit */
};

struct kube_delete_opts {
	int64_t grace_seconds;	 /* -1: the kind's default */
	const char *propagation; /* "Background", "Foreground", "Orphan"; NULL: default */
	const char *uid;	 /* preconditions; NULL: none */
	const char *resource_version;
};
#define KUBE_DELETE_OPTS_INIT       \
	{                           \
		.grace_seconds = -1 \
	}

/* ns is ignored for cluster-scoped kinds; for list and watch NULL means all namespaces.
 * subresource may be NULL.  body is referenced, not changed, and may be dropped after the call. */
MUST_CHECK enum rc kube_get(struct kube *k, struct kube_call **call, const struct api_kind *kind,
			    const char *ns, const char *name, kube_reply_fn fn, void *arg,
			    struct err *err);
MUST_CHECK enum rc kube_list(struct kube *k, struct kube_call **call, const struct api_kind *kind,
			     const char *ns, const struct kube_list_opts *opts, kube_reply_fn fn,
			     void *arg, struct err *err);
MUST_CHECK enum rc kube_create(struct kube *k, struct kube_call **call, const struct api_kind *kind,
			       const char *ns, const struct json *body, kube_reply_fn fn, void *arg,
			       struct err *err);
/* POST to <kind>/<name>/<subresource> ("binding", "eviction"). */
MUST_CHECK enum rc kube_post(struct kube *k, struct kube_call **call, const struct api_kind *kind,
			     const char *ns, const char *name, const char *subresource,
			     const struct json *body, kube_reply_fn fn, void *arg, struct err *err);
MUST_CHECK enum rc kube_update(struct kube *k, struct kube_call **call, const struct api_kind *kind,
			       const char *ns, const char *name, const char *subresource,
			       const struct json *body, kube_reply_fn fn, void *arg,
			       struct err *err);
MUST_CHECK enum rc kube_patch(struct kube *k, struct kube_call **call, const struct api_kind *kind,
			      const char *ns, const char *name, const char *subresource,
			      enum kube_patch type, const struct json *body, kube_reply_fn fn,
			      void *arg, struct err *err);
MUST_CHECK enum rc kube_delete(struct kube *k, struct kube_call **call, const struct api_kind *kind,
			       const char *ns, const char *name,
			       const struct kube_delete_opts *opts, kube_reply_fn fn, void *arg,
			       struct err *err);
MUST_CHECK enum rc kube_delete_collection(struct kube *k, struct kube_call **call,
					  const struct api_kind *kind, const char *ns,
					  const struct kube_list_opts *which,
					  const struct kube_delete_opts *opts, kube_reply_fn fn,
					  void *arg, struct err *err);
/* Any method and path (absolute, escaped by the caller, with its query); body text may be NULL. */
MUST_CHECK enum rc kube_raw(struct kube *k, struct kube_call **call, const char *method,
			    const char *path, const char *content_type, const char *body,
			    size_t n_body, usec_t timeout, kube_reply_fn fn, void *arg,
			    struct err *err);

/* Watch */
enum kube_event_type {
	KUBE_ADDED,
	KUBE_MODIFIED,
	KUBE_DELETED,
	KUBE_BOOKMARK,
	KUBE_END, /* the last one: rc RC_OK (closed by the server), RC_EXPIRED (list again), or a failure */
};

struct kube_event {
	enum kube_event_type type;
	const struct json *object; /* borrowed; NULL for KUBE_END */
	enum rc rc;		   /* KUBE_END only */
	usec_t retry_after;	   /* KUBE_END only; 0: none */
	struct err err;		   /* KUBE_END only */
};
typedef void (*kube_event_fn)(const struct kube_event *e, void *arg);

struct kube_watch_opts {
	const char *label_selector;
	const char *field_selector;
	const char *resource_version; /* NULL: from now, with synthetic ADDED events first */
	unsigned timeout_seconds;     /* the server ends it then; 0: KUBE_WATCH_SECONDS */
};

#define KUBE_WATCH_SECONDS 300

/* Bookmarks are asked for.  fn gets KUBE_END exactly once unless the handle is freed before.  A stream
 * that stays open past its own timeout is ended from here with RC_TIMEOUT. */
MUST_CHECK enum rc kube_watch(struct kube *k, struct kube_watch **out, const struct api_kind *kind,
			      const char *ns, const struct kube_watch_opts *opts, kube_event_fn fn,
			      void *arg, struct err *err);
/* Ends it without a further callback; accepts NULL; legal inside the callback; returns NULL. */
struct kube_watch *kube_watch_free(struct kube_watch *w);
DEFINE_CLEANUP(struct kube_watch *, kube_watch_free);

/* "/apis/kubevirt.io/v1/namespaces/ns/virtualmachines/name/status": appended, escaped.  ns, name and
 * subresource may be NULL.  Exposed for the command line and tests. */
void kube_path(struct sbuf *out, const struct api_kind *kind, const char *ns, const char *name,
	       const char *subresource);

#endif
