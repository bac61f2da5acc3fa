/* lib/kube/kube_int.h - what the files of the client share.  Private to lib/kube. */
#ifndef KUBE_KUBE_INT_H
#define KUBE_KUBE_INT_H

#include "base/list.h"
#include "base/sbuf.h"
#include "ev/ev.h"
#include "kube/kube.h"

struct kube {
	struct loop *loop;
	struct kube_transport t;
	void *ctx;
	usec_t timeout;
	struct list calls; /* in flight, and done ones that were not freed yet */
	struct list watches;
	char *server; /* NULL: not over the network */
	void (*seen)(const struct kube_seen *seen, void *arg);
	void *seen_arg;
};

void kube_tell(const struct kube *k, struct kube_seen *seen, usec_t began, int status);

/* The transport over lib/http; consumes nothing. */
MUST_CHECK enum rc kube_http_new(void **ctx, struct loop *loop, const struct kube_config *cfg,
				 struct err *err);
extern const struct kube_transport kube_http_transport;

/* Fills rc, reason, retry_after and err of *out from an answer's head and decoded body. */
void kube_decode_status(const struct kube_response *r, const struct json *body,
			struct kube_reply *out);
/* "?a=b" or "&a=b"; nothing when value is NULL or "". */
void kube_query_add(struct sbuf *path, const char *name, const char *value);
/* Ends the stream without a callback; the handle stays its owner's. */
void kube_watch_drop(struct kube_watch *w);

#endif
