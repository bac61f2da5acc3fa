#include "cluster/apiserver/front.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "cluster/apiserver/apisrv.h"
#include "http/server.h"

struct front {
	struct apisrv *srv;
	struct http_server *http;
};

/* One request between the HTTP server and the core. */
struct exchange {
	struct http_req *req;
	struct apisrv_call *call; /* NULL while inside apisrv_handle() */
	bool inside, over;
};

static void exchange_end(struct exchange *x)
{
	x->over = true;
	if (x->inside)
		return; /* on_request() frees it */
	http_req_on_cancel(x->req, NULL, NULL);
	mem_free(x);
}

static void on_answer(void *arg, const struct apisrv_answer *a)
{
	struct exchange *x = arg;
	struct http_header extra[LIMIT_FIELD_ERRORS + 4];
	struct http_req *req = x->req;
	size_t n = 0;
	char retry[16];

	for (size_t i = 0; i < a->n_warnings && i < LIMIT_FIELD_ERRORS; i++)
		extra[n++] = (struct http_header){"Warning", a->warnings[i]};
	extra[n++] = (struct http_header){"Cache-Control", "no-cache, private"};
	if (a->retry_after) {
		snprintf(retry, sizeof(retry), "%d", a->retry_after);
		extra[n++] = (struct http_header){"Retry-After", retry};
	}
	if (a->allow)
		extra[n++] = (struct http_header){"Allow", a->allow};
	exchange_end(x);
	if (a->owned)
		http_respond_take(req, a->status, a->content_type, STEAL(*a->owned), a->n, extra,
				  n);
	else
		http_respond(req, a->status, a->content_type, a->body, a->n, extra, n);
}

static void on_stream_begin(void *arg, int status, const char *content_type, size_t backlog)
{
	static const struct http_header extra[] = {{"Cache-Control", "no-cache, private"}};
	struct exchange *x = arg;

	http_stream_begin(x->req, status, content_type, backlog, extra, ARRAY_SIZE(extra));
}

static enum rc on_stream_write(void *arg, const void *bytes, size_t n)
{
	struct exchange *x = arg;

	return http_stream_write(x->req, bytes, n);
}

static void on_stream_end(void *arg)
{
	struct exchange *x = arg;
	struct http_req *req = x->req;

	exchange_end(x);
	http_stream_end(req);
}

static void on_upgraded(void *arg)
{
	struct exchange *x = arg;

	x->over = true; /* the request is gone already */
	if (!x->inside)
		mem_free(x);
}

static const struct apisrv_sink sink = {
	.answer = on_answer,
	.stream_begin = on_stream_begin,
	.stream_write = on_stream_write,
	.stream_end = on_stream_end,
	.upgraded = on_upgraded,
};

static void on_cancel(struct http_req *req, void *arg)
{
	struct exchange *x = arg;

	(void)req;
	if (x->call)
		apisrv_cancel(x->call);
	mem_free(x);
}

/* ---- who asks ---------------------------------------------------------------------------------------- */

enum { MAX_GROUPS = 32 };

/* A Status, before anybody knows who asks; the texts need no escapes. */
static void refuse(struct http_req *req, int code, const char *reason, const char *message)
{
	char text[256];
	int n = snprintf(text, sizeof(text),
			 "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},"
			 "\"status\":\"Failure\",\"message\":\"%s\",\"reason\":\"%s\",\"code\":%d}",
			 message, reason, code);

	assert(n > 0 && (size_t)n < sizeof(text));
	http_respond(req, code, "application/json", text, (size_t)n, NULL, 0);
}

/* "kubectl --as": who asks for fewer rights must not be answered with all of their own. */
static bool refuse_impersonation(struct http_req *req)
{
	static const char *const headers[] = {"Impersonate-User", "Impersonate-Group",
					      "Impersonate-Uid"};

	for (size_t i = 0; i < ARRAY_SIZE(headers); i++)
		if (http_req_header(req, headers[i])) {
			refuse(req, 403, "Forbidden",
			       "impersonation is not supported by Ferry yet");
			return true;
		}
	return false;
}

/* The groups of a certificate's subject and the standard one. */
static void identify(const struct http_peer *peer, struct apisrv_user *u,
		     const char *groups[MAX_GROUPS])
{
	size_t n = 0;

	u->groups = groups;
	if (!peer->has_cert || str_is_empty(peer->cn)) {
		u->name = "system:anonymous";
		groups[n++] = "system:unauthenticated";
	} else {
		u->name = peer->cn;
		for (size_t i = 0; i < peer->n_orgs && n + 1 < MAX_GROUPS; i++)
			groups[n++] = peer->orgs[i];
		groups[n++] = "system:authenticated";
	}
	u->n_groups = n;
}

static void on_request(struct http_req *req, void *arg)
{
	struct front *f = arg;
	const struct http_peer *peer = http_req_peer(req);
	const char *groups[MAX_GROUPS];
	struct apisrv_user user;

	if (!peer->has_cert && http_req_header(req, "Authorization")) {
		/* no bearer tokens yet: a wrong one must not pass for nobody */
		refuse(req, 401, "Unauthorized", "Unauthorized");
		return;
	}
	if (refuse_impersonation(req))
		return;
	struct exchange *x = mem_alloc(sizeof(*x));

	if (!x) {
		http_respond(req, 500, "text/plain", "out of memory", 13, NULL, 0);
		return;
	}
	identify(peer, &user, groups);
	struct apisrv_request r = {
		.method = http_req_method(req),
		.target = http_req_target(req),
		.accept = http_req_header(req, "Accept"),
		.content_type = http_req_header(req, "Content-Type"),
		.user_agent = http_req_header(req, "User-Agent"),
		.user = &user,
		.http = req,
	};

	r.body = http_req_body(req, &r.n_body);
	x->req = req;
	http_req_on_cancel(req, on_cancel, x);
	x->inside = true;
	x->call = apisrv_handle(f->srv, &r, &sink, x);
	x->inside = false;
	if (x->over)
		mem_free(x);
}

/* ---- the server ---------------------------------------------------------------------------------------- */

enum rc front_new(struct front **out, struct loop *loop, struct apisrv *srv,
		  const struct front_config *config, struct err *err)
{
	struct front *f = mem_alloc(sizeof(*f));

	if (!f)
		return err_set(err, RC_NOMEM, "out of memory");
	f->srv = srv;
	struct http_server_config hc = {
		.address = config->address,
		.port = config->port,
		.cert_file = config->cert_file,
		.key_file = config->key_file,
		.ca_file = config->ca_file,
		.handler = on_request,
		.arg = f,
	};
	enum rc rc = http_server_new(&f->http, loop, &hc, err);

	if (rc) {
		mem_free(f);
		return rc;
	}
	*out = f;
	return RC_OK;
}

struct front *front_free(struct front *f)
{
	if (!f)
		return NULL;
	http_server_free(f->http);
	return mem_free(f);
}

uint16_t front_port(const struct front *f)
{
	return http_server_port(f->http);
}

void front_stop(struct front *f, usec_t grace, void (*done)(void *arg), void *arg)
{
	apisrv_drain(f->srv);
	http_server_stop(f->http, grace, done, arg);
}

enum rc front_reload(struct front *f, struct err *err)
{
	return http_server_reload_tls(f->http, err);
}
