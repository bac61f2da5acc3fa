#include "http/client_int.h"

#include <signal.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/try.h"
#include "ev/ev.h"

/* Theory of operation
 *
 * libcurl tells which sockets and which time to wait for (on_socket, on_timeout); we tell it what
 * happened and then collect the finished transfers.  While libcurl is on the stack (`depth`) a transfer
 * may be neither added nor removed: such wishes wait in `adding` and `dying` until it has returned.
 *
 * The sockets are in an epoll set of the client's own, which is one source of the loop: the loop asks the kernel
 * anew for each source that it serves, and with a thousand sockets ready at once that is most of the work.
 */
enum { IDLE_HANDLES = 16, EVENTS_MAX = 64 };

struct http_client {
	struct loop *loop;
	CURLM *multi;
	struct ev_src *timer;
	int sockets; /* epoll set */
	struct ev_src *io;
	struct list transfers, adding, dying;
	unsigned depth;
	bool has_starved;
	CURL *idle[IDLE_HANDLES];
	size_t n_idle;

	char *ca_file, *cert_file, *key_file, *token, *unix_path, *user_agent;
	bool insecure;
	usec_t connect_timeout;
};

struct http_slot {
	struct transfer t;
	struct curl_slist *headers;
	char *body_out;
	size_t response_max;
	http_data_fn on_data;
	http_done_fn done;
	void *arg;
	struct sbuf body;
	struct sbuf warning;
	bool is_dropped; /* no callback any more */
	bool is_done;
	bool is_over;  /* the answer was above response_max */
	bool is_busy;  /* done is on the stack */
	bool is_freed; /* by its owner while busy */
};

static void reap(struct http_client *c);
static void finish(struct transfer *t, CURLcode code);
static void collect(struct http_client *c);

/* Sockets and time */

static void act(struct http_client *c, curl_socket_t fd, int mask)
{
	int running;

	c->depth++;
	curl_multi_socket_action(c->multi, fd, mask, &running);
	c->depth--;
	if (c->depth == 0) {
		reap(c);
		collect(c);
	}
}

static int select_mask(uint32_t events)
{
	int mask = 0;

	if (events & EPOLLIN)
		mask |= CURL_CSELECT_IN;
	if (events & EPOLLOUT)
		mask |= CURL_CSELECT_OUT;
	if (events & (EPOLLERR | EPOLLHUP))
		mask |= CURL_CSELECT_ERR;
	return mask;
}

/* A socket that an earlier one of the batch has closed may be a new one by now: libcurl tries it and waits again. */
static void on_io(uint32_t events, void *arg)
{
	struct http_client *c = arg;
	struct epoll_event ready[EVENTS_MAX];
	int n = epoll_wait(c->sockets, ready, EVENTS_MAX, 0);

	for (int i = 0; i < n; i++)
		act(c, ready[i].data.fd, select_mask(ready[i].events));
}

/* Returning an error from a callback would end all transfers of the multi handle, for ever: only this
 * one ends, as soon as libcurl has returned. */
static void starve(struct http_client *c, CURL *easy)
{
	struct transfer *t = NULL;

	curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&t);
	if (!t)
		return;
	t->is_starved = true;
	c->has_starved = true;
	ev_timer_rearm(c->timer, 0); /* wherever we are: the loop comes back */
}

/* With the first socket: a client of a loop that has only time never has one. */
static bool has_set(struct http_client *c)
{
	if (c->sockets < 0)
		c->sockets = epoll_create1(EPOLL_CLOEXEC);
	return c->sockets >= 0 &&
	       (c->io || !ev_io(c->loop, &c->io, c->sockets, EPOLLIN, on_io, c, NULL));
}

/* known: not NULL for sockets that are in the set. */
static int on_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *known)
{
	struct http_client *c = arg;
	struct epoll_event ev = {.data.fd = fd};

	if (what == CURL_POLL_REMOVE) {
		curl_multi_assign(c->multi, fd, NULL);
		(void)epoll_ctl(c->sockets, EPOLL_CTL_DEL, fd, NULL);
		return 0;
	}
	if (what & CURL_POLL_IN)
		ev.events |= EPOLLIN;
	if (what & CURL_POLL_OUT)
		ev.events |= EPOLLOUT;
	if (!has_set(c) || epoll_ctl(c->sockets, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &ev))
		starve(c, easy);
	else
		curl_multi_assign(c->multi, fd, c);
	return 0;
}

static int on_timeout(CURLM *multi, long ms, void *arg)
{
	struct http_client *c = arg;

	(void)multi;
	ev_timer_rearm(c->timer, ms < 0 ? USEC_INFINITY : (usec_t)ms * USEC_PER_MSEC);
	return 0;
}

static void on_timer(void *arg)
{
	act(arg, CURL_SOCKET_TIMEOUT, 0);
}

static void finish(struct transfer *t, CURLcode code)
{
	if (t->is_over)
		return;
	t->is_over = true;
	t->done(t, code);
}

static void end_starved(struct http_client *c)
{
	bool again = c->has_starved;

	c->has_starved = false;
	while (again) { /* from the start each time: done may drop any of them */
		again = false;
		LIST_FOREACH(it, &c->transfers) {
			struct transfer *t = LIST_ENTRY(it, struct transfer, link);

			if (!t->is_starved || t->is_over)
				continue;
			finish(t, CURLE_OUT_OF_MEMORY);
			again = true;
			break;
		}
	}
}

/* Calls done for what has finished.  done may add and drop transfers, this one too. */
static void collect(struct http_client *c)
{
	CURLMsg *m;
	int left;

	end_starved(c);
	while ((m = curl_multi_info_read(c->multi, &left))) {
		struct transfer *t = NULL;
		CURLcode code = m->data.result;

		if (m->msg != CURLMSG_DONE)
			continue;
		curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&t);
		if (t)
			finish(t, code);
	}
}

/* Client */

static enum rc copy_text(char **out, const char *text)
{
	*out = mem_strdup(text);
	return text && !*out ? RC_NOMEM : RC_OK;
}

static enum rc copy_config(struct http_client *c, const struct http_client_config *config)
{
	enum rc rc = copy_text(&c->ca_file, config->ca_file);

	rc = rc ? rc : copy_text(&c->cert_file, config->cert_file);
	rc = rc ? rc : copy_text(&c->key_file, config->key_file);
	rc = rc ? rc : copy_text(&c->token, config->token);
	rc = rc ? rc : copy_text(&c->unix_path, config->unix_path);
	rc = rc ? rc
		: copy_text(&c->user_agent,
			    config->user_agent ? config->user_agent : "ferry/" FERRY_VERSION);
	c->insecure = config->insecure;
	c->connect_timeout = config->connect_timeout ? config->connect_timeout : 5 * USEC_PER_SEC;
	return rc;
}

enum rc http_client_new(struct http_client **out, struct loop *loop,
			const struct http_client_config *config, struct err *err)
{
	static bool is_global_done;
	CLEANUP(http_client_freep) struct http_client *c = mem_alloc(sizeof(*c));

	if (!is_global_done) {
		signal(SIGPIPE, SIG_IGN); /* a write to a closed connection is an error code */
		if (curl_global_init(CURL_GLOBAL_DEFAULT))
			return mem_free(STEAL(c)), err_set(err, RC_IO, "cannot set up libcurl");
		is_global_done = true;
	}
	if (!c)
		return err_set(err, RC_NOMEM, "cannot allocate an HTTP client");
	c->loop = loop;
	c->sockets = -1;
	list_init(&c->transfers);
	list_init(&c->adding);
	list_init(&c->dying);
	if (copy_config(c, config) || !(c->multi = curl_multi_init()))
		return err_set(err, RC_NOMEM, "cannot allocate an HTTP client");
	TRY(ev_timer_after(loop, &c->timer, USEC_INFINITY, on_timer, c, err));
	curl_multi_setopt(c->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
	curl_multi_setopt(c->multi, CURLMOPT_SOCKETDATA, c);
	curl_multi_setopt(c->multi, CURLMOPT_TIMERFUNCTION, on_timeout);
	curl_multi_setopt(c->multi, CURLMOPT_TIMERDATA, c);
	curl_multi_setopt(c->multi, CURLMOPT_MAXCONNECTS,
			  config->max_connections ? (long)config->max_connections : 256L);
	curl_multi_setopt(c->multi, CURLMOPT_MAX_HOST_CONNECTIONS, (long)config->max_connections);
	*out = STEAL(c);
	return RC_OK;
}

struct http_client *http_client_free(struct http_client *c)
{
	if (!c)
		return NULL;
	assert(c->depth == 0);
	if (c->multi)
		reap(c);
	assert(list_is_empty(&c->transfers) && list_is_empty(&c->adding));
	for (size_t i = 0; i < c->n_idle; i++)
		curl_easy_cleanup(c->idle[i]);
	if (c->multi)
		curl_multi_cleanup(c->multi);
	ev_src_free(c->timer);
	ev_src_free(c->io);
	fd_close(c->sockets);
	mem_free(c->ca_file);
	mem_free(c->cert_file);
	mem_free(c->key_file);
	mem_free(c->token);
	mem_free(c->unix_path);
	mem_free(c->user_agent);
	return mem_free(c);
}

enum rc http_client_set_token(struct http_client *c, const char *token)
{
	char *copy = NULL;
	enum rc rc = copy_text(&copy, token);

	if (rc)
		return rc;
	mem_free(c->token);
	c->token = copy;
	return RC_OK;
}

struct loop *http_client_loop(const struct http_client *c)
{
	return c->loop;
}

const char *client_token(const struct http_client *c)
{
	return c->token;
}

/* Transfers */

static void set_tls(CURL *e, const struct http_client *c)
{
	if (c->ca_file) {
		curl_easy_setopt(e, CURLOPT_CAINFO, c->ca_file);
		/* Only this authority: Debian's curl also trusts /etc/ssl/certs unless told otherwise (and
		 * keeps its 140 certificates in memory for every connection). */
		curl_easy_setopt(e, CURLOPT_CAPATH, NULL);
	}
	if (c->cert_file) {
		curl_easy_setopt(e, CURLOPT_SSLCERT, c->cert_file);
		curl_easy_setopt(e, CURLOPT_SSLKEY, c->key_file);
	}
	curl_easy_setopt(e, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	if (c->insecure) {
		curl_easy_setopt(e, CURLOPT_SSL_VERIFYPEER, 0L);
		curl_easy_setopt(e, CURLOPT_SSL_VERIFYHOST, 0L);
	}
}

enum rc transfer_init(struct transfer *t, struct http_client *c, const char *url, struct err *err)
{
	CURL *e = c->n_idle ? c->idle[--c->n_idle] : curl_easy_init();

	if (!e)
		return err_set(err, RC_NOMEM, "cannot allocate a request");
	t->client = c;
	t->easy = e;
	curl_easy_setopt(e, CURLOPT_PRIVATE, (char *)t);
	curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(e, CURLOPT_ERRORBUFFER, t->error);
	curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS);
	curl_easy_setopt(e, CURLOPT_USERAGENT, c->user_agent);
	curl_easy_setopt(e, CURLOPT_PROXY, ""); /* the control plane is never behind one */
	curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, (long)(c->connect_timeout / USEC_PER_MSEC));
	curl_easy_setopt(e, CURLOPT_TCP_NODELAY, 1L);
	curl_easy_setopt(e, CURLOPT_TCP_KEEPALIVE, 1L);
	curl_easy_setopt(e, CURLOPT_TCP_KEEPIDLE, 15L);
	curl_easy_setopt(e, CURLOPT_TCP_KEEPINTVL, 5L);
	if (c->unix_path)
		curl_easy_setopt(e, CURLOPT_UNIX_SOCKET_PATH, c->unix_path);
	set_tls(e, c);
	if (curl_easy_setopt(e, CURLOPT_URL, url)) {
		curl_easy_cleanup(e);
		t->easy = NULL;
		return err_set(err, RC_INVALID, "bad URL '%s'", url);
	}
	return RC_OK;
}

static enum rc transfer_add(struct transfer *t, struct err *err)
{
	struct http_client *c = t->client;
	CURLMcode code;

	list_remove(&t->link);
	list_push_tail(&c->transfers, &t->link);
	c->depth++;
	code = curl_multi_add_handle(c->multi, t->easy);
	c->depth--;
	t->is_added = code == CURLM_OK;
	return t->is_added ? RC_OK
			   : err_set(err, RC_NOMEM, "cannot start a request: %s",
				     curl_multi_strerror(code));
}

enum rc transfer_start(struct transfer *t, struct err *err)
{
	if (t->client->depth) {
		list_push_tail(&t->client->adding, &t->link);
		return RC_OK;
	}
	return transfer_add(t, err);
}

static void transfer_close(struct transfer *t)
{
	struct http_client *c = t->client;

	list_remove(&t->link);
	if (t->easy) {
		c->depth++;
		if (t->is_added)
			curl_multi_remove_handle(c->multi, t->easy);
		if (c->n_idle < IDLE_HANDLES) {
			curl_easy_reset(t->easy); /* keeps its buffers for the next request */
			c->idle[c->n_idle++] = t->easy;
		} else {
			curl_easy_cleanup(t->easy);
		}
		c->depth--;
		t->easy = NULL;
	}
	t->gone(t);
}

void transfer_drop(struct transfer *t)
{
	t->done = NULL;
	if (t->client->depth) {
		list_remove(&t->link);
		list_push_tail(&t->client->dying, &t->link);
		return;
	}
	transfer_close(t);
}

static void reap(struct http_client *c)
{
	struct list *it;

	while ((it = list_pop_head(&c->dying)))
		transfer_close(LIST_ENTRY(it, struct transfer, link));
	while ((it = list_pop_head(&c->adding))) {
		struct transfer *t = LIST_ENTRY(it, struct transfer, link);

		if (transfer_add(t, NULL))
			finish(t, CURLE_OUT_OF_MEMORY);
	}
}

static enum rc rc_of_code(CURLcode code)
{
	switch (code) {
	case CURLE_OK:
		return RC_OK;
	case CURLE_OPERATION_TIMEDOUT:
		return RC_TIMEOUT;
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_COULDNT_CONNECT:
	case CURLE_GOT_NOTHING:
	case CURLE_SEND_ERROR:
	case CURLE_RECV_ERROR:
	case CURLE_PARTIAL_FILE:
	case CURLE_HTTP2:
	case CURLE_HTTP2_STREAM:
		return RC_CLOSED;
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CONNECT_ERROR:
	case CURLE_SSL_CERTPROBLEM:
	case CURLE_SSL_CACERT_BADFILE:
	case CURLE_SSL_ISSUER_ERROR:
		return RC_UNAUTHORIZED;
	case CURLE_OUT_OF_MEMORY:
		return RC_NOMEM;
	case CURLE_URL_MALFORMAT:
	case CURLE_UNSUPPORTED_PROTOCOL:
		return RC_INVALID;
	default:
		return RC_IO;
	}
}

enum rc transfer_error(const struct transfer *t, CURLcode code, struct err *err)
{
	const char *host = NULL;

	if (code == CURLE_OK)
		return RC_OK;
	curl_easy_getinfo(t->easy, CURLINFO_EFFECTIVE_URL, (char **)&host);
	return err_set(err, rc_of_code(code), "%s: %s", host ? host : "request",
		       t->error[0] ? t->error : curl_easy_strerror(code));
}

/* Calls */

static void slot_gone(struct transfer *t)
{
	struct http_slot *s = CONTAINER_OF(t, struct http_slot, t);

	curl_slist_free_all(s->headers);
	sbuf_fini(&s->body);
	sbuf_fini(&s->warning);
	mem_free(s->body_out);
	mem_free(s);
}

static size_t on_body(char *bytes, size_t size, size_t n, void *arg)
{
	struct http_slot *s = arg;
	long status = 0;

	n *= size;
	if (s->is_dropped || s->t.is_over)
		return 0; /* makes libcurl give up */
	curl_easy_getinfo(s->t.easy, CURLINFO_RESPONSE_CODE, &status);
	if (s->on_data && status / 100 == 2) {
		s->on_data(bytes, n, s->arg);
		return s->is_dropped ? 0 : n;
	}
	sbuf_add(&s->body, bytes, n);
	if (sbuf_rc(&s->body)) {
		s->is_over = sbuf_rc(&s->body) == RC_TOO_BIG;
		return 0;
	}
	return n;
}

static const char *header_of(const struct http_slot *s, const char *name, size_t index)
{
	struct curl_header *h = NULL;

	return curl_easy_header(s->t.easy, name, index, CURLH_HEADER, -1, &h) == CURLHE_OK
		       ? h->value
		       : NULL;
}

static void add_warnings(struct http_slot *s, struct http_result *r)
{
	const char *text;

	sbuf_init(&s->warning, 64 * 1024);
	for (size_t i = 0; (text = header_of(s, "Warning", i)); i++) {
		if (i)
			sbuf_addc(&s->warning, '\n');
		sbuf_adds(&s->warning, text);
	}
	if (s->warning.n && sbuf_rc(&s->warning) == RC_OK)
		r->warning = sbuf_str(&s->warning);
}

static void slot_done(struct transfer *t, CURLcode code)
{
	struct http_slot *s = CONTAINER_OF(t, struct http_slot, t);
	struct err err = {0};
	struct http_result r = {.body = ""};
	long status = 0;
	char *type = NULL;

	if (s->is_over)
		r.rc = err_set(&err, RC_TOO_BIG, "the answer has more than %zu bytes",
			       s->response_max);
	else if (sbuf_rc(&s->body))
		r.rc = err_set(&err, RC_NOMEM, "cannot keep the answer");
	else
		r.rc = transfer_error(t, code, &err);
	r.err = r.rc ? &err : NULL;
	curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
	curl_easy_getinfo(t->easy, CURLINFO_CONTENT_TYPE, &type);
	r.status = (int)status;
	r.content_type = type;
	if (!r.rc) {
		r.body = sbuf_str(&s->body);
		r.n = s->body.n;
	}
	if (status) {
		r.retry_after = header_of(s, "Retry-After", 0);
		add_warnings(s, &r);
	}
	s->is_done = true;
	s->is_busy = true;
	s->done(&r, s->arg);
	s->is_busy = false;
	if (s->is_freed)
		transfer_drop(t);
}

/* value NULL: name is the whole line. */
static enum rc add_header(struct http_slot *s, const char *name, const char *value)
{
	CLEANUP(mem_freep) char *line = value ? mem_printf("%s %s", name, value) : mem_strdup(name);
	struct curl_slist *l = line ? curl_slist_append(s->headers, line) : NULL;

	if (!l)
		return RC_NOMEM;
	s->headers = l;
	return RC_OK;
}

static enum rc slot_headers(struct http_slot *s, const struct http_call *call, struct err *err)
{
	enum rc rc = add_header(s, "Expect:", NULL); /* no extra round trip for large bodies */

	if (!rc && call->accept)
		rc = add_header(s, "Accept:", call->accept);
	if (!rc && call->body)
		rc = call->content_type ? add_header(s, "Content-Type:", call->content_type)
					: add_header(s, "Content-Type:", NULL);
	if (!rc && s->t.client->token)
		rc = add_header(s, "Authorization: Bearer", s->t.client->token);
	for (size_t i = 0; !rc && call->headers && call->headers[i]; i++)
		rc = add_header(s, call->headers[i], NULL);
	if (rc)
		return err_set(err, rc, "cannot allocate a request's headers");
	curl_easy_setopt(s->t.easy, CURLOPT_HTTPHEADER, s->headers);
	return RC_OK;
}

static enum rc slot_setup(struct http_slot *s, const struct http_call *call, struct err *err)
{
	CURL *e = s->t.easy;
	const char *method = call->method ? call->method : "GET";
	usec_t timeout = call->timeout ? call->timeout : 30 * USEC_PER_SEC;

	if (call->body || call->n_body) {
		s->body_out =
			mem_dup(call->n_body ? call->body : "", call->n_body ? call->n_body : 1);
		if (!s->body_out)
			return err_set(err, RC_NOMEM, "cannot allocate a request's body");
		curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->n_body);
		curl_easy_setopt(e, CURLOPT_POSTFIELDS, s->body_out);
	} else if (str_eq(method, "POST") || str_eq(method, "PUT") || str_eq(method, "PATCH")) {
		curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)0);
		curl_easy_setopt(e, CURLOPT_POSTFIELDS, "");
	}
	if (str_eq(method, "HEAD"))
		curl_easy_setopt(e, CURLOPT_NOBODY, 1L);
	else
		curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, method);
	if (timeout != USEC_INFINITY)
		curl_easy_setopt(e, CURLOPT_TIMEOUT_MS,
				 (long)MAX(timeout / USEC_PER_MSEC, (usec_t)1));
	curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(e, CURLOPT_WRITEDATA, s);
	return slot_headers(s, call, err);
}

enum rc http_call(struct http_client *c, struct http_slot **out, const struct http_call *call,
		  struct err *err)
{
	struct http_slot *s = mem_alloc(sizeof(*s));
	enum rc rc;

	assert(call->done);
	if (!s)
		return err_set(err, RC_NOMEM, "cannot allocate a request");
	s->t.done = slot_done;
	s->t.gone = slot_gone;
	s->on_data = call->on_data;
	s->done = call->done;
	s->arg = call->arg;
	s->response_max = call->response_max ? call->response_max : LIMIT_RESPONSE_BYTES;
	sbuf_init(&s->body, s->response_max);
	rc = transfer_init(&s->t, c, call->url, err);
	if (!rc)
		rc = slot_setup(s, call, err);
	if (!rc)
		rc = transfer_start(&s->t, err);
	if (rc) {
		if (s->t.easy)
			transfer_drop(&s->t);
		else
			slot_gone(&s->t);
		return rc;
	}
	*out = s;
	return RC_OK;
}

struct http_slot *http_slot_free(struct http_slot *s)
{
	if (!s)
		return NULL;
	s->is_dropped = true;
	if (s->is_busy)
		s->is_freed = true; /* its result is still borrowed */
	else
		transfer_drop(&s->t);
	return NULL;
}

/* Lines */

void http_lines_init(struct http_lines *l, size_t max_line)
{
	sbuf_init(&l->part, max_line);
}

void http_lines_fini(struct http_lines *l)
{
	sbuf_fini(&l->part);
}

enum rc http_lines_feed(struct http_lines *l, const void *bytes, size_t n, http_line_fn fn,
			void *arg)
{
	struct str rest = {bytes, n};

	while (rest.n) {
		const char *end = memchr(rest.p, '\n', rest.n);
		size_t take = end ? (size_t)(end - rest.p) : rest.n;
		char *line = NULL;
		size_t line_n = 0;
		enum rc rc;

		sbuf_add(&l->part, rest.p, take);
		rest.p += take;
		rest.n -= take;
		if (sbuf_rc(&l->part))
			return sbuf_rc(&l->part);
		if (!end)
			return RC_OK;
		rest.p++;
		rest.n--;
		if (l->part.n == 0)
			continue;
		/* Taken out first: fn may free l. */
		rc = sbuf_take(&l->part, &line, &line_n);
		if (rc)
			return rc;
		bool go_on = fn(line, line_n, arg);

		mem_free(line);
		if (!go_on)
			return RC_CLOSED;
	}
	return RC_OK;
}
