#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <gnutls/gnutls.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"
#include "ev/ev.h"
#include "http/client_int.h"
#include "http/ws_int.h"
#include "json/json.h"

/* The client side of a websocket.  libcurl makes the connection (names, TLS, identity) and then only
 * carries bytes; the handshake is ours.
 *
 * It owns the endpoint's connection: http_ws_free() drops it through ws_io.drop in every phase.
 */
enum { HEAD_MAX = 16 * 1024, REFUSAL_MAX = 64 * 1024 };

enum phase { PHASE_CONNECT, PHASE_SEND, PHASE_ANSWER, PHASE_OPEN };

struct dial {
	struct transfer t;
	struct http_ws *ws; /* NULL once it let go of us */
	enum phase phase;
	struct sbuf out; /* the handshake; what is left to send */
	struct sbuf in;	 /* the answer so far */
	int fd;		 /* a duplicate: libcurl may still have the original in the loop */
	struct ev_src *src;
	struct ev_src *deadline;
	char *protocols;
	char accept[29];
	int status;
	size_t body_at;
};

static ssize_t dial_recv(void *io, void *buf, size_t n)
{
	struct dial *d = io;
	size_t got = 0;
	CURLcode code = curl_easy_recv(d->t.easy, buf, n, &got);

	if (code == CURLE_OK)
		return (ssize_t)got;
	errno = code == CURLE_AGAIN ? EAGAIN : ECONNRESET;
	return -1;
}

static ssize_t dial_send(void *io, const void *buf, size_t n)
{
	struct dial *d = io;
	size_t put = 0;
	CURLcode code = curl_easy_send(d->t.easy, buf, n, &put);

	if (code == CURLE_OK)
		return (ssize_t)put;
	errno = code == CURLE_AGAIN ? EAGAIN : EPIPE;
	return -1;
}

static void dial_gone(struct transfer *t)
{
	struct dial *d = CONTAINER_OF(t, struct dial, t);

	ev_src_free(d->src);
	ev_src_free(d->deadline);
	fd_close(d->fd);
	sbuf_fini(&d->out);
	sbuf_fini(&d->in);
	mem_free(d->protocols);
	mem_free(d);
}

static void dial_drop(void *io)
{
	struct dial *d = io;

	d->ws = NULL;
	d->src = ev_src_free(d->src);
	d->deadline = ev_src_free(d->deadline);
	transfer_drop(&d->t);
}

static const struct ws_io dial_io = {.recv = dial_recv, .send = dial_send, .drop = dial_drop};

/* Ends the endpoint, which drops the dial. */
static void dial_fail(struct dial *d, const struct err *why)
{
	ws_fail(d->ws, d->status, why);
}

static void dial_failf(struct dial *d, enum rc rc, const char *text)
{
	struct err why = {0};

	err_set(&why, rc, "websocket handshake: %s", text);
	dial_fail(d, &why);
}

/* The answer */

/* Value of a header in a NUL-terminated head, as fresh text; NULL when absent (or out of memory). */
static char *head_value(const char *head, const char *name)
{
	size_t n = strlen(name);

	for (const char *line = head; line; line = strstr(line, "\r\n")) {
		if (line != head)
			line += 2;
		if (strncasecmp(line, name, n) != 0 || line[n] != ':')
			continue;
		const char *v = line + n + 1;
		struct str value = str_trim((struct str){v, strcspn(v, "\r")});

		return mem_strndup(value.p, value.n);
	}
	return NULL;
}

/* "HTTP/1.1 101 ..."; 0: not a status line. */
static int status_of(const char *head)
{
	char digits[4] = "";
	int64_t status = 0;

	if (strncmp(head, "HTTP/1.1 ", 9) != 0 || strlen(head) < 12)
		return 0;
	memcpy(digits, head + 9, 3);
	return str_to_i64(digits, 100, 599, &status, NULL) ? 0 : (int)status;
}

static void refuse(struct dial *d)
{
	struct json *body = NULL;
	const char *text = d->in.p + d->body_at, *message = NULL, *reason = NULL;
	struct err why = {0};

	if (js_parse(text, d->in.n - d->body_at, &body, NULL) == RC_OK) {
		message = js_get_str(body, "message");
		reason = js_get_str(body, "reason");
	}
	err_set(&why, rc_from_http(d->status, reason), "%s",
		message		       ? message
		: d->in.n > d->body_at ? text
				       : "the server refused the websocket");
	js_unref(body);
	dial_fail(d, &why);
}

static bool refusal_is_whole(const struct dial *d, const char *head)
{
	CLEANUP(mem_freep)
	char *length = head_value(head, "Content-Length");
	uint64_t n = 0;

	return length && str_to_u64(length, REFUSAL_MAX, &n, NULL) == RC_OK &&
	       d->in.n - d->body_at >= n;
}

static void accepted(struct dial *d, const char *head)
{
	CLEANUP(mem_freep)
	char *upgrade = head_value(head, "Upgrade");
	CLEANUP(mem_freep)
	char *connection = head_value(head, "Connection");
	CLEANUP(mem_freep)
	char *accept = head_value(head, "Sec-WebSocket-Accept");
	CLEANUP(mem_freep)
	char *protocol = head_value(head, "Sec-WebSocket-Protocol");

	if (!upgrade || !ws_has_token(upgrade, "websocket") || !connection ||
	    !ws_has_token(connection, "upgrade") || !str_eq(accept, d->accept)) {
		dial_failf(d, RC_IO, "the answer is not a websocket's");
		return;
	}
	if (protocol && !(d->protocols && ws_has_token(d->protocols, protocol))) {
		dial_failf(d, RC_IO, "the server chose a subprotocol that was not offered");
		return;
	}
	d->phase = PHASE_OPEN;
	d->src = ev_src_free(d->src);
	d->deadline = ev_src_free(d->deadline);
	ws_attach(d->ws, &dial_io, d, d->fd, d->in.p + d->body_at, d->in.n - d->body_at, protocol);
}

/* False: the handshake is over, and d may be gone. */
static bool look_at_answer(struct dial *d, bool is_eof)
{
	char *end = d->in.p ? strstr(d->in.p, "\r\n\r\n") : NULL;
	CLEANUP(mem_freep)
	char *head = NULL;

	if (!end && is_eof)
		return dial_failf(d, RC_CLOSED, "the server closed the connection"), false;
	if (!end && d->in.n > HEAD_MAX)
		return dial_failf(d, RC_TOO_BIG, "the answer's head is too long"), false;
	if (!end)
		return true;
	d->body_at = (size_t)(end - d->in.p) + 4;
	head = mem_strndup(d->in.p, d->body_at - 2);
	if (!head)
		return dial_failf(d, RC_NOMEM, "out of memory"), false;
	d->status = status_of(head);
	if (!d->status)
		return dial_failf(d, RC_IO, "the answer is not HTTP"), false;
	if (d->status == 101)
		return accepted(d, head), false;
	if (is_eof || d->in.n >= REFUSAL_MAX || refusal_is_whole(d, head))
		return refuse(d), false;
	return true; /* until the refusal's body is here */
}

static void read_answer(struct dial *d)
{
	char buf[4096];

	for (;;) {
		ssize_t n = dial_recv(d, buf, sizeof(buf));

		if (n < 0 && errno == EAGAIN)
			return;
		if (n > 0)
			sbuf_add(&d->in, buf, (size_t)n);
		if (sbuf_rc(&d->in)) {
			dial_failf(d, sbuf_rc(&d->in), "the answer is too long");
			return;
		}
		if (!look_at_answer(d, n <= 0))
			return;
	}
}

static void send_request(struct dial *d)
{
	while (d->out.n) {
		ssize_t n = dial_send(d, d->out.p, d->out.n);

		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0) {
			dial_failf(d, RC_CLOSED, "the connection broke");
			return;
		}
		sbuf_drop(&d->out, (size_t)n);
	}
	d->phase = PHASE_ANSWER;
	ev_io_set(d->src, EPOLLIN);
	read_answer(d);
}

static void on_io(uint32_t events, void *arg)
{
	struct dial *d = arg;

	(void)events;
	if (d->phase == PHASE_SEND)
		send_request(d);
	else
		read_answer(d);
}

static void on_deadline(void *arg)
{
	dial_failf(arg, RC_TIMEOUT, "no answer in time");
}

static void on_connected(struct transfer *t, CURLcode code)
{
	struct dial *d = CONTAINER_OF(t, struct dial, t);
	curl_socket_t fd = CURL_SOCKET_BAD;
	struct err why = {0};

	if (transfer_error(t, code, &why)) {
		dial_fail(d, &why);
		return;
	}
	if (curl_easy_getinfo(t->easy, CURLINFO_ACTIVESOCKET, &fd) || fd == CURL_SOCKET_BAD) {
		dial_failf(d, RC_CLOSED, "no connection");
		return;
	}
	d->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (d->fd < 0) {
		err_set_sys(&why, errno, "cannot duplicate a socket");
		dial_fail(d, &why);
		return;
	}
	if (ev_io(d->ws->loop, &d->src, d->fd, EPOLLOUT, on_io, d, &why)) {
		dial_fail(d, &why);
		return;
	}
	d->phase = PHASE_SEND;
	send_request(d);
}

/* The request */

static void set_key(struct dial *d, char key[25])
{
	unsigned char nonce[16];
	gnutls_datum_t in = {nonce, sizeof(nonce)}, b64 = {0};

	key[0] = '\0';
	rand_bytes(nonce, sizeof(nonce));
	if (gnutls_base64_encode2(&in, &b64) < 0)
		return;
	if (b64.size == 24) {
		memcpy(key, b64.data, 24);
		key[24] = '\0';
		ws_accept_key(key, d->accept);
	}
	gnutls_free(b64.data);
}

static enum rc write_request(struct dial *d, CURLU *u, struct err *err)
{
	char *host = NULL, *port = NULL, *path = NULL, *query = NULL, key[25];
	const char *token = client_token(d->t.client);

	set_key(d, key);
	if (curl_url_get(u, CURLUPART_HOST, &host, 0) ||
	    curl_url_get(u, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) ||
	    curl_url_get(u, CURLUPART_PATH, &path, 0) || !d->accept[0]) {
		curl_free(host);
		curl_free(port);
		curl_free(path);
		return err_set(err, RC_INVALID, "bad websocket URL");
	}
	curl_url_get(u, CURLUPART_QUERY, &query, 0);
	sbuf_addf(&d->out, "GET %s%s%s HTTP/1.1\r\nHost: %s:%s\r\n", path, query ? "?" : "",
		  query ? query : "", host, port);
	sbuf_addf(&d->out,
		  "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
		  "Sec-WebSocket-Key: %s\r\n",
		  key);
	if (d->protocols)
		sbuf_addf(&d->out, "Sec-WebSocket-Protocol: %s\r\n", d->protocols);
	if (token)
		sbuf_addf(&d->out, "Authorization: Bearer %s\r\n", token);
	sbuf_adds(&d->out, "\r\n");
	curl_free(host);
	curl_free(port);
	curl_free(path);
	curl_free(query);
	return sbuf_rc(&d->out) ? err_set(err, sbuf_rc(&d->out), "the handshake is too long")
				: RC_OK;
}

static enum rc dial_setup(struct dial *d, struct http_client *c, const char *url, usec_t timeout,
			  struct err *err)
{
	CLEANUP(mem_freep)
	char *http = mem_printf("%s%s", str_has_prefix(url, "ws") ? "http" : "",
				str_has_prefix(url, "ws") ? url + 2 : url);
	CURLU *u = curl_url();
	enum rc rc = RC_OK;

	if (!http || !u)
		rc = err_set(err, RC_NOMEM, "cannot allocate a websocket");
	else if (curl_url_set(u, CURLUPART_URL, http, 0))
		rc = err_set(err, RC_INVALID, "bad websocket URL '%s'", url);
	if (!rc)
		rc = transfer_init(&d->t, c, http, err);
	if (!rc)
		rc = write_request(d, u, err);
	if (!rc)
		rc = ev_timer_after(http_client_loop(c), &d->deadline, timeout, on_deadline, d,
				    err);
	curl_url_cleanup(u);
	if (rc)
		return rc;
	curl_easy_setopt(d->t.easy, CURLOPT_CONNECT_ONLY, 1L);
	curl_easy_setopt(d->t.easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(d->t.easy, CURLOPT_FRESH_CONNECT, 1L);
	return transfer_start(&d->t, err);
}

enum rc http_ws_connect(struct http_client *c, struct http_ws **out, const char *url,
			const char *protocols, usec_t timeout, const struct http_ws_ops *ops,
			void *arg, struct err *err)
{
	struct dial *d = mem_alloc(sizeof(*d));
	enum rc rc;

	if (!d)
		return err_set(err, RC_NOMEM, "cannot allocate a websocket");
	d->t.done = on_connected;
	d->t.gone = dial_gone;
	d->t.client = c;
	d->fd = -1;
	sbuf_init(&d->out, HEAD_MAX);
	sbuf_init(&d->in, HEAD_MAX + REFUSAL_MAX + 4096);
	d->protocols = mem_strdup(protocols);
	if (protocols && !d->protocols)
		rc = err_set(err, RC_NOMEM, "cannot allocate a websocket");
	else
		rc = ws_new(&d->ws, http_client_loop(c), false, ops, arg, err);
	if (rc) {
		dial_gone(&d->t);
		return rc;
	}
	/* From here the endpoint owns the dial. */
	d->ws->io = &dial_io;
	d->ws->io_arg = d;
	rc = dial_setup(d, c, url, timeout ? timeout : 10 * USEC_PER_SEC, err);
	if (rc)
		http_ws_free(d->ws);
	else
		*out = d->ws;
	return rc;
}
