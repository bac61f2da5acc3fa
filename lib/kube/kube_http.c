#include <string.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"
#include "http/client.h"
#include "kube/kube_int.h"

/* The transport over lib/http.  Deadlines are kube.c's; the client's own are set later than those. */

static const usec_t SLACK = 5 * USEC_PER_SEC;

/* Requests share few connections, streams have one each: with one pool for both, a burst of requests would
 * open and close connections beside the streams, and handshakes would be most of its cost. */
enum { MAX_CONNECTIONS = 8 };

struct http_ctx {
	struct http_client *client;  /* requests */
	struct http_client *streams; /* watches */
	char *server;		     /* without a trailing slash */
	struct list ops;
};

struct http_op {
	struct list link;
	struct http_slot *slot;
	kube_done_fn done;
	kube_data_fn data; /* NULL: not a watch */
	void *arg;
	bool busy;
	bool cancelled;
};

static void op_destroy(struct http_op *op)
{
	list_remove(&op->link);
	http_slot_free(op->slot);
	mem_free(op);
}

static void http_cancel(void *ctx, void *p)
{
	struct http_op *op = p;

	(void)ctx;
	op->cancelled = true;
	if (!op->busy)
		op_destroy(op);
}

static void on_http_done(const struct http_result *r, void *arg)
{
	struct http_op *op = arg;
	struct kube_response out = {
		.rc = r->rc, .status = r->status, .body = r->body, .n_body = r->n, .err = r->err};
	uint64_t seconds;

	/* An HTTP date is allowed too: then the caller's own back-off decides. */
	if (r->retry_after && !str_to_u64(r->retry_after, 86400, &seconds, NULL))
		out.retry_after = seconds * USEC_PER_SEC;
	op->busy = true;
	op->done(&out, op->arg);
	op_destroy(op);
}

static void on_http_data(const void *bytes, size_t n, void *arg)
{
	struct http_op *op = arg;

	op->busy = true;
	op->data(bytes, n, op->arg);
	op->busy = false;
	if (op->cancelled)
		op_destroy(op);
}

static enum rc start(struct http_ctx *ctx, const struct kube_request *rq, struct http_op proto,
		     void **out, struct err *err)
{
	CLEANUP(mem_freep) char *url = mem_printf("%s%s", ctx->server, rq->path);
	struct http_op *op = url ? mem_dup(&proto, sizeof(proto)) : NULL;
	struct http_call call = {.method = rq->method,
				 .url = url,
				 .content_type = rq->content_type,
				 .accept = "application/json",
				 .body = rq->body,
				 .n_body = rq->n_body,
				 .timeout = proto.data ? USEC_INFINITY : rq->timeout + SLACK,
				 .on_data = proto.data ? on_http_data : NULL,
				 .done = on_http_done,
				 .arg = op};
	enum rc rc;

	if (!op)
		return err_set(err, RC_NOMEM, "cannot allocate a request");
	list_push_tail(&ctx->ops, &op->link);
	rc = http_call(proto.data ? ctx->streams : ctx->client, &op->slot, &call, err);
	if (rc) {
		op_destroy(op);
		return rc;
	}
	*out = op;
	return RC_OK;
}

static enum rc http_request(void *ctx, const struct kube_request *rq, kube_done_fn fn, void *arg,
			    void **op, struct err *err)
{
	return start(ctx, rq, (struct http_op){.done = fn, .arg = arg}, op, err);
}

static enum rc http_watch_open(void *ctx, const struct kube_request *rq,
			       const struct kube_stream_fns *fns, void *arg, void **op,
			       struct err *err)
{
	return start(ctx, rq,
		     (struct http_op){.done = fns->on_end, .data = fns->on_data, .arg = arg}, op,
		     err);
}

static void http_ctx_free(void *p)
{
	struct http_ctx *ctx = p;

	if (!ctx)
		return;
	LIST_FOREACH_SAFE(l, tmp, &ctx->ops)
		op_destroy(LIST_ENTRY(l, struct http_op, link));
	http_client_free(ctx->client);
	http_client_free(ctx->streams);
	mem_free(ctx->server);
	mem_free(ctx);
}

enum rc kube_http_new(void **out, struct loop *loop, const struct kube_config *cfg, struct err *err)
{
	struct http_client_config hc = {.ca_file = cfg->ca_file,
					.cert_file = cfg->cert_file,
					.key_file = cfg->key_file,
					.token = cfg->token,
					.user_agent = cfg->user_agent};
	struct http_ctx *ctx;
	size_t n;
	enum rc rc;

	if (!str_has_prefix(cfg->server, "https://") && !str_has_prefix(cfg->server, "http://"))
		return err_set(err, RC_INVALID,
			       "the API server's address '%s' is not a https:// URL",
			       cfg->server ? cfg->server : "");
	if (!cfg->cert_file != !cfg->key_file)
		return err_set(err, RC_INVALID,
			       "a client certificate needs both its certificate and its key");
	ctx = mem_alloc(sizeof(*ctx));
	if (!ctx)
		return err_set(err, RC_NOMEM, "cannot allocate an API client");
	list_init(&ctx->ops);
	n = strlen(cfg->server);
	while (n && cfg->server[n - 1] == '/')
		n--;
	ctx->server = mem_strndup(cfg->server, n);
	rc = ctx->server ? http_client_new(&ctx->streams, loop, &hc, err)
			 : err_set(err, RC_NOMEM, "cannot allocate an API client");
	hc.max_connections = MAX_CONNECTIONS;
	if (!rc)
		rc = http_client_new(&ctx->client, loop, &hc, err);
	if (rc) {
		http_ctx_free(ctx);
		return rc;
	}
	*out = ctx;
	return RC_OK;
}

const struct kube_transport kube_http_transport = {
	.request = http_request,
	.watch_open = http_watch_open,
	.cancel = http_cancel,
	.free = http_ctx_free,
};
