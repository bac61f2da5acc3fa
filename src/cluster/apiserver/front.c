#include "cluster/apiserver/front.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "cluster/apiserver/apisrv.h"
#include "ctl/prom.h"
#include "http/server.h"

struct front {
	struct apisrv *srv;
	struct http_server *http;
};

/* One request between the HTTP server and the core. */
enum { MAX_STREAM_WARNINGS = 4 };

struct exchange {
	struct http_req *req;
	struct apisrv_call *call; /* NULL while inside apisrv_handle() */
	bool inside, over;
	const char *warnings[MAX_STREAM_WARNINGS]; /* of the stream that begins */
	size_t n_warnings;
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
	struct http_header extra[LIMIT_FIELD_ERRORS + 8];
	struct http_req *req = x->req;
	size_t n = 0;
	char retry[16];

	for (size_t i = 0; i < a->n_warnings && i < LIMIT_FIELD_ERRORS; i++)
		extra[n++] = (struct http_header){"Warning", a->warnings[i]};
	extra[n++] = (struct http_header){"Cache-Control",
					  a->is_immutable ? "public, max-age=31536000, immutable"
							  : "no-cache, private"};
	if (a->etag) {
		extra[n++] = (struct http_header){"ETag", a->etag};
		extra[n++] = (struct http_header){"Vary", "Accept"};
	}
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

static void on_stream_warn(void *arg, const char *text)
{
	struct exchange *x = arg;

	if (x->n_warnings < MAX_STREAM_WARNINGS)
		x->warnings[x->n_warnings++] = text;
}

static void on_stream_begin(void *arg, int status, const char *content_type, size_t backlog)
{
	struct http_header extra[MAX_STREAM_WARNINGS + 1];
	struct exchange *x = arg;
	size_t n = 0;

	extra[n++] = (struct http_header){"Cache-Control", "no-cache, private"};
	for (size_t i = 0; i < x->n_warnings; i++)
		extra[n++] = (struct http_header){"Warning", x->warnings[i]};
	x->n_warnings = 0;
	http_stream_begin(x->req, status, content_type, backlog, extra, n);
}

static enum rc on_stream_write(void *arg, const void *bytes, size_t n)
{
	struct exchange *x = arg;

	return http_stream_write(x->req, bytes, n);
}

static void on_stream_settle(void *arg, size_t backlog)
{
	struct exchange *x = arg;

	http_stream_settle(x->req, backlog);
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
	.stream_settle = on_stream_settle,
	.stream_end = on_stream_end,
	.upgraded = on_upgraded,
	.warn = on_stream_warn,
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

/* Whom a request wants to be: the headers Impersonate-*.  Everything is borrowed from the request but
 * the keys. */
struct wanted {
	struct apisrv_user user; /* name NULL: no name was given */
	bool any;		 /* one of the headers is there */
	enum rc rc;
	const char *groups[LIMIT_HEADERS];
	struct apisrv_extra extra[LIMIT_HEADERS];
	const char *values[LIMIT_HEADERS]; /* of extra, those of one key together */
	char *keys[LIMIT_HEADERS];	   /* of values */
	size_t n_values;
};

/* "Impersonate-Extra-Example.org%2Fscopes" -> "example.org/scopes" */
static char *extra_key(const char *text)
{
	char *key = mem_strdup(text), *out = key;

	for (const char *p = text; key && *p; p++) {
		int hi = *p == '%' ? str_hex_digit(p[1]) : -1;
		int lo = hi >= 0 ? str_hex_digit(p[2]) : -1;
		char ch = *p;

		if (lo >= 0 && (hi || lo)) {
			ch = (char)(hi << 4 | lo);
			p += 2;
		}
		*out++ = (char)tolower((unsigned char)ch);
	}
	if (key)
		*out = '\0';
	return key;
}

static bool want_extra(struct wanted *w, const char *key, const char *value)
{
	size_t at = w->n_values;

	if (at >= LIMIT_HEADERS)
		return false;
	w->keys[at] = extra_key(key);
	if (!w->keys[at]) {
		w->rc = RC_NOMEM;
		return false;
	}
	w->values[at] = value;
	w->n_values++;
	return true;
}

static bool on_header(void *arg, const char *name, const char *value)
{
	static const char prefix[] = "Impersonate-", extra[] = "Extra-";
	struct wanted *w = arg;

	if (strncasecmp(name, prefix, sizeof(prefix) - 1) != 0)
		return true;
	name += sizeof(prefix) - 1;
	w->any = true;
	if (strcasecmp(name, "User") == 0)
		w->user.name = w->user.name ? w->user.name : value;
	else if (strcasecmp(name, "Uid") == 0)
		w->user.uid = w->user.uid ? w->user.uid : value;
	else if (strcasecmp(name, "Group") == 0 && w->user.n_groups < LIMIT_HEADERS)
		w->groups[w->user.n_groups++] = value;
	else if (strncasecmp(name, extra, sizeof(extra) - 1) == 0)
		return want_extra(w, name + sizeof(extra) - 1, value);
	return true;
}

/* Values of one key stand together in extra; the lines of the request may be in any order. */
static void sort_extra(struct wanted *w)
{
	for (size_t n = 0; n < w->n_values;) {
		struct apisrv_extra *x = &w->extra[w->user.n_extra++];

		*x = (struct apisrv_extra){.key = w->keys[n], .values = &w->values[n]};
		for (size_t i = n; i < w->n_values; i++) {
			if (strcmp(w->keys[i], x->key) != 0)
				continue;
			char *key = w->keys[n];
			const char *value = w->values[n];

			w->keys[n] = w->keys[i];
			w->values[n] = w->values[i];
			w->keys[i] = key;
			w->values[i] = value;
			n++;
			x->n++;
		}
	}
}

static void wanted_fini(struct wanted *w)
{
	for (size_t i = 0; i < w->n_values; i++)
		mem_free(w->keys[i]);
}

static enum rc wanted_read(struct wanted *w, const struct http_req *req)
{
	http_req_each_header(req, on_header, w);
	sort_extra(w);
	w->user.groups = w->groups;
	w->user.extra = w->extra;
	return w->rc;
}

/* Nothing is unpacked here: a small body must not become a large one. */
static bool refuse_encoding(struct http_req *req)
{
	const char *encoding = http_req_header(req, "Content-Encoding");

	if (str_is_empty(encoding) || strcasecmp(encoding, "identity") == 0)
		return false;
	refuse(req, 415, "UnsupportedMediaType",
	       "a body with a Content-Encoding is not accepted: send it as it is");
	return true;
}

/* The groups of a certificate's subject and the standard one. */
static void identify(const struct http_peer *peer, struct apisrv_user *u,
		     const char *groups[MAX_GROUPS])
{
	size_t n = 0;

	*u = (struct apisrv_user){.groups = groups};
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

/* Whose connections and memory others cannot take. */
static bool is_trusted(const struct http_peer *peer)
{
	static const char *const groups[] = {GROUP_NODES, GROUP_CONTROLLERS, GROUP_MASTERS};

	for (size_t i = 0; peer->has_cert && i < peer->n_orgs; i++)
		for (size_t k = 0; k < ARRAY_SIZE(groups); k++)
			if (strcmp(peer->orgs[i], groups[k]) == 0)
				return true;
	return false;
}

static void on_request(struct http_req *req, void *arg)
{
	struct front *f = arg;
	const struct http_peer *peer = http_req_peer(req);
	const char *groups[MAX_GROUPS];
	struct apisrv_user user;

	CLEANUP(wanted_fini) struct wanted as = {.rc = RC_OK};

	if (refuse_encoding(req))
		return;
	if (wanted_read(&as, req)) {
		refuse(req, 500, "InternalError", "out of memory");
		return;
	}
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
		.source = peer->is_unix ? NULL : peer->address,
		.user_agent = http_req_header(req, "User-Agent"),
		.authorization = http_req_header(req, "Authorization"),
		.if_none_match = http_req_header(req, "If-None-Match"),
		.user = &user,
		.as = as.any ? &as.user : NULL,
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

/* ---- metrics ---------------------------------------------------------------------------------------- */

static void sample(struct sbuf *out, const char *name, const char *label, const char *what,
		   double value)
{
	prom_sample(out, name, &(struct prom_label){label, what}, 1, NULL, value);
}

static void on_metrics(struct sbuf *out, void *arg)
{
	static const char refused[] = "ferry_http_refused_total",
			  connections[] = "ferry_http_connections",
			  held[] = "ferry_http_held_bytes";
	const struct front *f = arg;
	struct http_server_stats st;

	http_server_stats(f->http, &st);
	prom_head(out, refused, "counter",
		  "Connections closed and requests refused for the sake of others.");
	for (int i = 0; i < HTTP_REFUSED__MAX; i++)
		sample(out, refused, "reason", http_refusal_name(i), (double)st.refused[i]);
	prom_head(out, connections, "gauge", "Open connections by who has them.");
	sample(out, connections, "of", "unknown", st.strangers);
	sample(out, connections, "of", "trusted", st.trusted);
	sample(out, connections, "of", "others", st.others);
	prom_head(out, held, "gauge", "Bytes of requests and of answers on their way.");
	sample(out, held, "what", "requests", (double)st.body_bytes);
	sample(out, held, "what", "answers", (double)st.answer_bytes);
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
		.is_trusted = is_trusted,
		.handler = on_request,
		.arg = f,
	};
	enum rc rc = http_server_new(&f->http, loop, &hc, err);

	if (rc) {
		mem_free(f);
		return rc;
	}
	apisrv_on_metrics(srv, on_metrics, f);
	*out = f;
	return RC_OK;
}

struct front *front_free(struct front *f)
{
	if (!f)
		return NULL;
	apisrv_on_metrics(f->srv, NULL, NULL);
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
