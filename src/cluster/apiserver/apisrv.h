/* src/cluster/apiserver/apisrv.h - Kubernetes' REST API over a store, without sockets.
 *
 * Loop thread only.  http_front.h puts it behind HTTPS; tests and the simulation call it directly.
 */
#ifndef APISERVER_APISRV_H
#define APISERVER_APISRV_H

#include "cluster/apiserver/hooks.h"

#define GROUP_CONTROLLERS "system:ferry:controllers"
#define GROUP_NODES	  "system:nodes"
#define GROUP_MASTERS	  "system:masters"

struct apisrv;
struct apisrv_call; /* a request that is not answered yet */
struct sbuf;
struct store;
struct audit;  /* audit.h */
struct tokens; /* token.h */

enum { APISRV_KEY_BYTES = 32 };

struct apisrv_config {
	struct store *store;		  /* stays the caller's; must outlive the server */
	const struct apisrv_hooks *hooks; /* NULL: none */
	const char *node_port_range;	  /* NULL: "30000-32767" */
	const char *service_cidr;	  /* NULL: "10.96.0.0/16" */
	bool no_bootstrap;		  /* do not make the standard namespaces */
	bool with_roles; /* make and mend the standard roles; without any only certificates of
			    administrators, controllers and nodes have rights */
	uint64_t seed;	 /* uids and generated names follow from it; 0: random */
	/* APISRV_KEY_BYTES that sign the tokens of lists in pages, for tokens that outlive a restart; NULL: one
	 * for this run. */
	const unsigned char *continue_key;
	unsigned requests_max; /* at a time, of others than nodes and controllers; 0: 400 */
	unsigned watches_max;  /* of one user; 0: LIMIT_WATCHERS_USER */
	usec_t event_ttl;      /* how long Events stay; 0: an hour, as kube-apiserver's */
	struct audit *audit;   /* stays the caller's; NULL: nothing is written down */
	struct tokens *tokens; /* stays the caller's; NULL: nobody has a token, none is made */
	/* Appends to what GET /metrics answers; NULL: nothing. */
	void (*more_metrics)(struct sbuf *out, void *arg);
	void *metrics_arg;
};

MUST_CHECK enum rc apisrv_new(struct apisrv **out, struct loop *loop,
			      const struct apisrv_config *config, struct err *err);
/* Ends all watches and forgets all calls (no sink function runs any more). */
struct apisrv *apisrv_free(struct apisrv *s);
DEFINE_CLEANUP(struct apisrv *, apisrv_free);
/* The certificates (PEM) that clients have to trust: published as ConfigMap kube-root-ca.crt. */
MUST_CHECK enum rc apisrv_set_ca(struct apisrv *s, const char *pem);
/* The authority that signs new certificates of nodes (PEM, copied); without one they are not renewed. */
MUST_CHECK enum rc apisrv_set_signer(struct apisrv *s, const char *cert_pem, const char *key_pem);
/* Ends all watches as a server that goes away does; from then on it says that it is not ready. */
void apisrv_drain(struct apisrv *s);

/* All text is borrowed for the time of apisrv_handle(). */
struct apisrv_request {
	const char *method;	  /* "GET" */
	const char *target;	  /* "/api/v1/pods?watch=1", as on the wire */
	const char *accept;	  /* NULL: application/json */
	const char *content_type; /* NULL: application/json */
	const char *source;	  /* address of the client; NULL: unknown */
	const char *user_agent;	  /* "kubectl/v1.33.1 (…)"; NULL: unknown */
	/* "Bearer …": who asks is the token's owner then, and not user; NULL: absent */
	const char *authorization;
	const char *if_none_match; /* entity tags that the client has; NULL: none */
	const char *body;
	size_t n_body;
	const struct apisrv_user *user; /* NULL: anonymous */
	const struct apisrv_user *as;	/* whom user wants to be for this request; NULL: himself */
	struct http_req *http;		/* for websockets; NULL: in-process */
	bool is_inner;			/* of the server to itself: never made to wait */
};

/* Borrowed for the time of the call. */
struct apisrv_answer {
	int status;
	const char *content_type; /* NULL: no body */
	const char *body;
	char **owned; /* when not NULL: *owned is body, from mem_*; take it by setting *owned to NULL */
	size_t n;
	size_t n_warnings; /* values for Warning headers, whole: 299 - "…" */
	const char *const *warnings;
	int retry_after;   /* seconds; 0: none */
	const char *allow; /* value of Allow for 405; NULL: none */
	const char *etag;  /* in quotes; NULL: the answer is not to be kept */
	bool is_immutable; /* with an etag: it never changes at this address */
};

/* Either answer once; or stream_begin, stream_write…, stream_end.  May run inside apisrv_handle().
 * Nothing runs after answer or stream_end, nor after apisrv_cancel(). */
struct apisrv_sink {
	void (*answer)(void *arg, const struct apisrv_answer *a);
	/* At most backlog bytes may wait for the reader at any time. */
	void (*stream_begin)(void *arg, int status, const char *content_type, size_t backlog);
	/* RC_BUSY: the reader is too slow (nothing was taken): the watch will be ended. */
	enum rc (*stream_write)(void *arg, const void *bytes, size_t n);
	/* What was written is what the stream begins with; of what follows only backlog bytes may wait.  NULL:
	 * nothing waits here. */
	void (*stream_settle)(void *arg, size_t backlog);
	void (*stream_end)(void *arg);
	/* A hook took the connection over (http_upgrade_ws).  NULL: nothing to forget. */
	void (*upgraded)(void *arg);
	/* A value for a header Warning of the stream that begins next; borrowed until then.  NULL: nobody
	 * would read it. */
	void (*warn)(void *arg, const char *text);
};

/* NULL: already answered; else to be cancelled when the client leaves. */
struct apisrv_call *apisrv_handle(struct apisrv *s, const struct apisrv_request *req,
				  const struct apisrv_sink *sink, void *arg);
void apisrv_cancel(struct apisrv_call *c);

/* Prometheus text of the core and the store, appended. */
void apisrv_metrics(struct apisrv *s, struct sbuf *out);
/* Who adds to it: one at a time; fn NULL: nobody. */
void apisrv_on_metrics(struct apisrv *s, void (*fn)(struct sbuf *out, void *arg), void *arg);

#endif
