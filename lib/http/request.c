#include "http/server_int.h"

#include <string.h>
#include <sys/epoll.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"

/* Theory of operation
 *
 * libmicrohttpd calls req_on_uri() with the raw target, req_on_access() once with the head, again for
 * each piece of the body, and again at its end; req_on_completed() when it is done with the request for
 * whatever reason.
 *
 * When a handler does not answer at once the connection is suspended: libmicrohttpd takes it out of its
 * epoll set and does not look at it.  So `hangup` watches the socket in our own loop for the client's
 * leaving.  Answering resumes the connection, and libmicrohttpd calls req_on_access() again, which
 * queues the response.
 *
 * A refused body is read and thrown away up to DRAIN_FACTOR times the limit, so that the client gets to
 * read the answer: closing a socket with unread data would reset it.
 */
enum { DRAIN_FACTOR = 4 };

static struct http_req *req_new(struct http_server *s, struct MHD_Connection *c, const char *uri)
{
	struct http_req *r = mem_alloc(sizeof(*r));

	if (!r)
		return NULL;
	r->server = s;
	r->mhd = c;
	r->conn = conn_of(c);
	r->target = mem_strdup(uri);
	sbuf_init(&r->body, s->body_max);
	if (!r->target || !r->conn)
		return mem_free(r->target), mem_free(r);
	list_push_tail(&s->reqs, &r->link);
	s->n_reqs++;
	r->conn->req = r;
	if (!r->conn->is_stranger)
		guard_phase(r->conn, CONN_HEAD);
	return r;
}

void req_free(struct http_req *r)
{
	struct http_server *s = r->server;

	req_cancel(r);
	if (r->is_ws) {
		s->n_ws--;
		if (r->ws)
			ws_server_detach(r->ws);
	}
	if (r->response)
		MHD_destroy_response(r->response);
	ev_src_free(r->hangup);
	ev_src_free(r->attach);
	sbuf_fini(&r->ws_head);
	guard_give_body(r);
	guard_give_answer(r, r->answer_taken);
	if (r->conn && r->conn->req == r) {
		r->conn->req = NULL;
		guard_phase(r->conn, CONN_IDLE);
	}
	http_uri_fini(&r->uri);
	sbuf_fini(&r->body);
	sbuf_fini(&r->queue);
	mem_free(r->target);
	mem_free(r->ws_protocol);
	list_remove(&r->link);
	s->n_reqs--;
	mem_free(r);
	server_check_stopped(s);
}

void *req_on_uri(void *cls, const char *uri, struct MHD_Connection *c)
{
	return req_new(cls, c, uri);
}

void req_on_completed(void *cls, struct MHD_Connection *c, void **con_cls,
		      enum MHD_RequestTerminationCode why)
{
	struct http_req *r = *con_cls;

	(void)cls;
	(void)c;
	(void)why;
	*con_cls = NULL;
	if (r)
		req_free(r);
}

/* Ending */

void req_disown(struct http_req *r)
{
	if (!r->is_owned)
		return;
	r->is_owned = false;
	r->cancel = NULL;
	if (r->is_stream)
		r->server->n_streams--;
}

void req_cancel(struct http_req *r)
{
	http_cancel_fn fn = r->cancel;
	void *arg = r->cancel_arg;

	if (!r->is_owned)
		return;
	r->is_gone = true;
	req_disown(r);
	r->room = NULL;
	if (fn)
		fn(r, arg);
}

void req_give_up(struct http_req *r)
{
	r->is_gone = true;
	req_cancel(r);
	req_resume(r); /* libmicrohttpd asks again and is told to close */
}

static void on_hangup(uint32_t events, void *arg)
{
	struct http_req *r = arg;

	(void)events;
	r->hangup = ev_src_free(r->hangup);
	req_give_up(r);
}

void req_suspend(struct http_req *r)
{
	if (r->is_suspended)
		return;
	/* Without the watch (out of memory) the client's leaving shows at the next write only. */
	ignore_rc(ev_io(r->server->loop, &r->hangup, r->conn->fd, EPOLLRDHUP, on_hangup, r, NULL));
	MHD_suspend_connection(r->mhd);
	r->is_suspended = true;
}

void req_resume(struct http_req *r)
{
	if (!r->is_suspended)
		return;
	r->hangup = ev_src_free(r->hangup);
	r->is_suspended = false;
	MHD_resume_connection(r->mhd);
	server_kick(r->server);
}

void req_answer(struct http_req *r, struct MHD_Response *response, int status)
{
	assert(r->is_owned && r->state == REQ_OWNED);
	r->response = response; /* NULL: out of memory, the connection is closed */
	r->status = status;
	r->state = REQ_ANSWERED;
	if (!response)
		r->is_gone = true;
	if (!r->is_stream)
		req_disown(r);
	req_resume(r);
}

/* The head */

struct head_scan {
	unsigned n;
	unsigned n_length;
	bool has_te, has_other_te;
	bool has_nul;
};

static enum MHD_Result on_header(void *cls, enum MHD_ValueKind kind, const char *key, size_t key_n,
				 const char *value, size_t value_n)
{
	struct head_scan *scan = cls;

	(void)kind;
	scan->n++;
	if (strlen(key) != key_n || (value && strlen(value) != value_n))
		scan->has_nul = true;
	if (!strcasecmp(key, MHD_HTTP_HEADER_CONTENT_LENGTH))
		scan->n_length++;
	if (!strcasecmp(key, MHD_HTTP_HEADER_TRANSFER_ENCODING)) {
		scan->has_te = true;
		if (!value || strcasecmp(value, "chunked") != 0)
			scan->has_other_te = true;
	}
	return MHD_YES;
}

static void reject(struct http_req *r, int status, bool must_close)
{
	if (!r->reject)
		r->reject = status;
	r->must_close |= must_close;
}

static void check_framing(struct http_req *r)
{
	struct head_scan scan = {0};
	const char *length;
	uint64_t n = 0;

	MHD_get_connection_values_n(r->mhd, MHD_HEADER_KIND, on_header, &scan);
	if (scan.n > LIMIT_HEADERS) {
		err_set(&r->why, RC_BAD_REQUEST, "more than %d header lines", LIMIT_HEADERS);
		reject(r, 431, true);
	} else if (scan.has_nul) {
		err_set(&r->why, RC_BAD_REQUEST, "a header line has a NUL");
		reject(r, 400, true);
	} else if (scan.n_length > 1 || (scan.n_length && scan.has_te)) {
		err_set(&r->why, RC_BAD_REQUEST,
			"the length of the body is given twice (Content-Length, "
			"Transfer-Encoding)");
		reject(r, 400, true);
	} else if (scan.has_te && r->is_http10) {
		err_set(&r->why, RC_BAD_REQUEST, "HTTP/1.0 has no Transfer-Encoding");
		reject(r, 400, true);
	} else if (scan.has_other_te) {
		/* libmicrohttpd would take everything up to the end of the connection for the body */
		err_set(&r->why, RC_UNSUPPORTED, "the only Transfer-Encoding is chunked");
		reject(r, 501, true);
	}
	length = MHD_lookup_connection_value(r->mhd, MHD_HEADER_KIND,
					     MHD_HTTP_HEADER_CONTENT_LENGTH);
	if (r->reject || !length)
		return;
	if (str_to_u64(length, UINT64_MAX, &n, NULL)) {
		err_set(&r->why, RC_BAD_REQUEST, "bad Content-Length");
		reject(r, 400, true);
	} else if (n > r->server->body_max) {
		err_set(&r->why, RC_TOO_BIG,
			"the request's body has %llu bytes, at most %zu are taken",
			(unsigned long long)n, r->server->body_max);
		reject(r, 413, n > (uint64_t)r->server->body_max * DRAIN_FACTOR);
	}
}

static void check_peer(struct http_req *r)
{
	struct conn *c = r->conn;
	const union MHD_ConnectionInfo *info;
	enum rc rc;

	if (!r->server->tls)
		return;
	info = MHD_get_connection_info(r->mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION);
	rc = info ? tls_peer_check(&c->id, r->server->tls, (gnutls_session_t)info->tls_session,
				   loop_realtime(r->server->loop), &r->why)
		  : err_set(&r->why, RC_IO, "no TLS session");
	c->peer.has_cert = !rc && c->id.cn;
	c->peer.cn = rc ? NULL : c->id.cn;
	c->peer.orgs = (const char *const *)c->id.orgs;
	c->peer.n_orgs = rc ? 0 : c->id.n_orgs;
	if (rc)
		/* closed: on the next connection the client shows the certificate that it has by then */
		reject(r, rc == RC_UNAUTHORIZED ? 401 : 500, true);
}

/* With the first request it shows whose connection it is, and whether he may have one more. */
static void check_share(struct http_req *r)
{
	enum rc rc = guard_identify(r->conn, &r->why);

	if (rc)
		reject(r, rc == RC_BUSY ? 429 : 500, true);
}

static void req_begin(struct http_req *r, const char *method, const char *version)
{
	enum rc rc;

	r->is_begun = true;
	r->is_http10 = strcmp(version, "HTTP/1.1") != 0;
	r->method = method;
	r->server->n_requests++;
	guard_phase(r->conn, CONN_BODY);
	check_framing(r);
	if (!r->reject) {
		rc = http_uri_parse(&r->uri, r->target, strlen(r->target), &r->why);
		if (rc)
			reject(r, rc == RC_TOO_BIG ? 414 : rc_http(rc), false);
		else
			check_peer(r);
	}
	if (r->conn->is_stranger)
		check_share(r);
}

/* The server's own refusals are Status objects, as everything else that Kubernetes clients read.  The
 * texts hold nothing of the request, so there is nothing to escape beyond quotes. */
static void answer_rejected(struct http_req *r)
{
	struct sbuf b = SBUF_INIT(4096);
	char *text = NULL;
	size_t n = 0;
	static const struct http_header later = {"Retry-After", "5"};
	bool is_full = r->reject == 429 || r->reject == 503;
	const char *reason = r->reject == 413	? "RequestEntityTooLarge"
			     : r->reject == 429 ? "TooManyRequests"
			     : r->reject == 503 ? "ServiceUnavailable"
			     : r->reject == 501 ? "NotImplemented"
			     : r->reject == 401 ? "Unauthorized"
			     : r->reject == 500 ? "InternalError"
						: "BadRequest";

	for (char *p = r->why.msg; *p; p++)
		if (*p == '"' || *p == '\\' || (unsigned char)*p < 0x20)
			*p = '\'';
	sbuf_addf(
		&b,
		"{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\","
		"\"message\":\"%s\",\"reason\":\"%s\",\"code\":%d}\n",
		r->why.msg, reason, r->reject);
	log_debug("http: %s %s from %s: %d, %s", r->method, r->uri.path ? r->uri.path : "?",
		  r->conn->address, r->reject, r->why.msg);
	if (sbuf_take(&b, &text, &n))
		text = NULL;
	r->is_owned = true;
	r->state = REQ_OWNED;
	if (text)
		http_respond_take(r, r->reject, "application/json", text, n, &later, is_full);
	else
		req_answer(r, NULL, 0);
}

/* The body */

static enum MHD_Result take_body(struct http_req *r, const char *bytes, size_t *n)
{
	enum rc rc = RC_OK;

	if (!r->reject && r->body.n + *n > r->server->body_max) {
		err_set(&r->why, RC_TOO_BIG, "the request's body has more than %zu bytes",
			r->server->body_max);
		reject(r, 413, false);
	}
	r->n_received += *n;
	if (!r->reject && guard_take_body(r, *n, &r->why))
		reject(r, 503, true);
	if (!r->reject) {
		sbuf_add(&r->body, bytes, *n);
		rc = sbuf_rc(&r->body);
	} else {
		sbuf_fini(&r->body);
		guard_give_body(r);
		r->drained += *n;
	}
	*n = 0;
	return rc || r->drained > r->server->body_max * DRAIN_FACTOR ? MHD_NO : MHD_YES;
}

/* Gives libmicrohttpd what there is: the response, a closed connection, or "later". */
static enum MHD_Result deliver(struct http_req *r)
{
	enum MHD_Result ok;

	if (r->is_gone)
		return MHD_NO;
	if (r->state != REQ_ANSWERED) {
		req_suspend(r);
		return MHD_YES;
	}
	if (r->must_close || r->server->stopping)
		ignore_rc(MHD_add_response_header(r->response, MHD_HTTP_HEADER_CONNECTION,
						  "close") == MHD_YES
				  ? RC_OK
				  : RC_NOMEM);
	r->state = REQ_QUEUED;
	guard_phase(r->conn, CONN_ANSWER);
	ok = MHD_queue_response(r->mhd, (unsigned)r->status, r->response);
	MHD_destroy_response(r->response); /* our reference; libmicrohttpd has its own */
	r->response = NULL;
	return ok;
}

enum MHD_Result req_on_access(void *cls, struct MHD_Connection *c, const char *url,
			      const char *method, const char *version, const char *upload,
			      size_t *upload_size, void **con_cls)
{
	struct http_req *r = *con_cls;

	(void)cls;
	(void)c;
	(void)url;
	if (!r)
		return MHD_NO; /* out of memory in req_on_uri() */
	if (!r->is_begun) {
		req_begin(r, method, version);
		if (!r->must_close)
			return MHD_YES;
		answer_rejected(r); /* before the body */
		return deliver(r);
	}
	if (*upload_size)
		return take_body(r, upload, upload_size);
	if (r->state == REQ_READING) {
		r->received = loop_now(r->server->loop);
		if (r->reject) {
			answer_rejected(r);
		} else {
			r->state = REQ_OWNED;
			r->is_owned = true;
			guard_phase(r->conn, CONN_BUSY);
			r->server->handler(r, r->server->arg);
		}
	}
	return deliver(r);
}

/* What a handler sees */

const char *http_req_method(const struct http_req *r)
{
	return r->method;
}

const char *http_req_path(const struct http_req *r)
{
	return r->uri.path;
}

const char *http_req_target(const struct http_req *r)
{
	return r->target;
}

const char *http_req_param(const struct http_req *r, const char *name)
{
	return http_uri_param(&r->uri, name);
}

size_t http_req_n_params(const struct http_req *r)
{
	return r->uri.n_params;
}

const char *http_req_param_at(const struct http_req *r, size_t i, const char **value)
{
	assert(i < r->uri.n_params);
	*value = r->uri.params[i].value;
	return r->uri.params[i].name;
}

const char *http_req_header(const struct http_req *r, const char *name)
{
	return MHD_lookup_connection_value(r->mhd, MHD_HEADER_KIND, name);
}

struct each_header {
	http_header_fn fn;
	void *arg;
};

static enum MHD_Result on_each_header(void *cls, enum MHD_ValueKind kind, const char *key,
				      const char *value)
{
	struct each_header *e = cls;

	(void)kind;
	return e->fn(e->arg, key, value ? value : "") ? MHD_YES : MHD_NO;
}

void http_req_each_header(const struct http_req *r, http_header_fn fn, void *arg)
{
	struct each_header e = {fn, arg};

	MHD_get_connection_values(r->mhd, MHD_HEADER_KIND, on_each_header, &e);
}

const char *http_req_body(const struct http_req *r, size_t *n)
{
	if (n)
		*n = r->body.n;
	return sbuf_str(&r->body);
}

const struct http_peer *http_req_peer(const struct http_req *r)
{
	return &r->conn->peer;
}

usec_t http_req_received(const struct http_req *r)
{
	return r->received;
}

struct loop *http_req_loop(const struct http_req *r)
{
	return r->server->loop;
}

void http_req_on_cancel(struct http_req *r, http_cancel_fn fn, void *arg)
{
	assert(r->is_owned);
	r->cancel = fn;
	r->cancel_arg = arg;
}

/* Whole answers */

enum rc response_headers(struct MHD_Response *m, const char *content_type,
			 const struct http_header *extra, size_t n_extra)
{
	if (content_type &&
	    MHD_add_response_header(m, MHD_HTTP_HEADER_CONTENT_TYPE, content_type) != MHD_YES)
		return RC_NOMEM;
	for (size_t i = 0; i < n_extra; i++)
		if (MHD_add_response_header(m, extra[i].name, extra[i].value) != MHD_YES)
			return RC_NOMEM; /* or a line break in the value: a bug of the caller */
	return RC_OK;
}

static void free_body(void *cls)
{
	mem_free(cls);
}

void http_respond_take(struct http_req *r, int status, const char *content_type, char *body,
		       size_t n, const struct http_header *extra, size_t n_extra)
{
	struct MHD_Response *m = NULL;

	if (n > GUARD_SMALL && !r->reject && guard_take_answer(r, n, &r->why)) {
		mem_free(body);
		reject(r, 503, true);
		answer_rejected(r);
		return;
	}
	if (body && n)
		m = MHD_create_response_from_buffer_with_free_callback(n, body, free_body);
	else
		m = MHD_create_response_from_buffer(0, (void *)(uintptr_t) "",
						    MHD_RESPMEM_PERSISTENT);
	if (!m || !n)
		mem_free(body);
	if (m && response_headers(m, content_type, extra, n_extra)) {
		MHD_destroy_response(m);
		m = NULL;
	}
	req_answer(r, m, status);
}

void http_respond(struct http_req *r, int status, const char *content_type, const void *body,
		  size_t n, const struct http_header *extra, size_t n_extra)
{
	char *copy = n ? mem_dup(body, n) : NULL;

	if (n && !copy)
		req_answer(r, NULL, 0);
	else
		http_respond_take(r, status, content_type, copy, n, extra, n_extra);
}
