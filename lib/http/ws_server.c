#include <errno.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include <gnutls/gnutls.h>

#include "base/mem.h"
#include "base/str.h"
#include "http/server_int.h"
#include "http/ws_int.h"

/* The server side of a websocket.
 *
 * The request stays suspended for the websocket's whole life, so libmicrohttpd leaves its socket and its
 * TLS session alone, and we use both: first for the answer 101, then for frames.  (libmicrohttpd's own
 * upgrade serves TLS through a pair of sockets, and in 0.9.75 with an external loop it neither tells
 * the end of the connection nor goes on after back-pressure.)  At the end the request is resumed and
 * refused, and libmicrohttpd closes the connection.
 */
struct upgraded {
	struct http_req *req;
	gnutls_session_t tls; /* NULL: plain */
	int fd;
	bool is_flushing; /* GnuTLS holds a record that the socket did not take */
};

static ssize_t result(ssize_t r)
{
	if (r >= 0)
		return r;
	errno = r == GNUTLS_E_AGAIN || r == GNUTLS_E_INTERRUPTED ? EAGAIN : ECONNRESET;
	return -1;
}

static ssize_t up_recv(void *io, void *buf, size_t n)
{
	struct upgraded *u = io;

	if (!u->tls)
		return recv(u->fd, buf, n, MSG_DONTWAIT);
	ssize_t r = gnutls_record_recv(u->tls, buf, n);

	return r == GNUTLS_E_PREMATURE_TERMINATION ? 0 : result(r);
}

static ssize_t up_send(void *io, const void *buf, size_t n)
{
	struct upgraded *u = io;
	ssize_t r;

	if (!u->tls)
		return send(u->fd, buf, n, MSG_DONTWAIT | MSG_NOSIGNAL);
	/* A record that waits is what the last call was about, and the caller repeats itself. */
	r = u->is_flushing ? gnutls_record_send(u->tls, NULL, 0)
			   : gnutls_record_send(u->tls, buf, n);
	u->is_flushing = r == GNUTLS_E_AGAIN || r == GNUTLS_E_INTERRUPTED;
	return result(r > 0 ? MIN(r, (ssize_t)n) : r);
}

static void up_drop(void *io)
{
	struct upgraded *u = io;

	u->req->ws = NULL;
	u->req->is_gone = true;
	req_resume(u->req);
	mem_free(u);
}

static const struct ws_io up_io = {.recv = up_recv, .send = up_send, .drop = up_drop};

static void fail(struct http_req *r, enum rc rc, const char *text)
{
	struct err why = {0};

	err_set(&why, rc, "%s", text);
	ws_fail(r->ws, 0, &why);
	req_give_up(r);
}

/* From the loop, after the handler: libmicrohttpd has let go of the connection. */
static void attach(void *arg)
{
	struct http_req *r = arg;
	struct upgraded *u;
	const union MHD_ConnectionInfo *info;

	r->attach = ev_src_free(r->attach);
	if (!r->ws) { /* freed by its owner meanwhile */
		req_give_up(r);
		return;
	}
	u = mem_alloc(sizeof(*u));
	if (!u) {
		fail(r, RC_NOMEM, "cannot allocate a websocket");
		return;
	}
	r->hangup = ev_src_free(r->hangup); /* the endpoint watches the same socket */
	u->req = r;
	u->fd = r->conn->fd;
	if (r->server->tls) {
		info = MHD_get_connection_info(r->mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION);
		u->tls = info ? (gnutls_session_t)info->tls_session : NULL;
	}
	/* Fits into the empty buffer of a socket that has just been read from. */
	ssize_t put = up_send(u, r->ws_head.p, r->ws_head.n);

	if (put != (ssize_t)r->ws_head.n) {
		mem_free(u);
		fail(r, RC_CLOSED, "the connection was closed");
		return;
	}
	sbuf_fini(&r->ws_head);
	ws_attach(r->ws, &up_io, u, u->fd, NULL, 0, r->ws_protocol);
}

void ws_server_detach(struct http_ws *ws)
{
	struct err why = {0};

	err_set(&why, RC_CLOSED, "the connection was closed");
	ws_fail(ws, 0, &why);
}

bool http_req_wants_upgrade(const struct http_req *r)
{
	const char *v = http_req_header(r, MHD_HTTP_HEADER_UPGRADE);

	return v && !r->is_http10 && ws_has_token(v, "websocket"); /* RFC 9110, 7.8 */
}

const char *http_req_ws_protocol(const struct http_req *r, const char *const *supported)
{
	struct str rest = str_of(http_req_header(r, "Sec-WebSocket-Protocol"));

	while (rest.p) {
		struct str item = str_trim(str_split(&rest, ','));

		for (const char *const *s = supported; *s; s++)
			if (str_view_eq(item, *s))
				return *s;
	}
	return NULL;
}

static enum rc check_handshake(const struct http_req *r, const char **key, struct err *err)
{
	const char *connection = http_req_header(r, MHD_HTTP_HEADER_CONNECTION);
	const char *version = http_req_header(r, "Sec-WebSocket-Version");

	*key = http_req_header(r, "Sec-WebSocket-Key");
	if (!str_eq(r->method, "GET") || !http_req_wants_upgrade(r) || !connection ||
	    !ws_has_token(connection, "upgrade"))
		return err_set(err, RC_BAD_REQUEST, "not a websocket handshake");
	if (!str_eq(version, "13"))
		return err_set(err, RC_BAD_REQUEST, "websocket version 13 is needed");
	if (!*key || strlen(*key) != 24)
		return err_set(err, RC_BAD_REQUEST, "bad Sec-WebSocket-Key");
	return RC_OK;
}

static enum rc write_head(struct http_req *r, const char *key, const char *protocol)
{
	char accept[29];

	ws_accept_key(key, accept);
	sbuf_init(&r->ws_head, 1024);
	sbuf_addf(
		&r->ws_head,
		"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
		"Sec-WebSocket-Accept: %s\r\n",
		accept);
	if (protocol)
		sbuf_addf(&r->ws_head, "Sec-WebSocket-Protocol: %s\r\n", protocol);
	sbuf_adds(&r->ws_head, "\r\n");
	return accept[0] ? sbuf_rc(&r->ws_head) : RC_NOMEM;
}

enum rc http_upgrade_ws(struct http_req *r, const char *protocol, const struct http_ws_ops *ops,
			void *arg, struct http_ws **ws, struct err *err)
{
	struct http_ws *w = NULL;
	const char *key = NULL;
	enum rc rc = check_handshake(r, &key, err);

	if (!rc)
		rc = ws_new(&w, r->server->loop, true, ops, arg, err);
	if (rc)
		return rc;
	if (write_head(r, key, protocol) || (protocol && !(r->ws_protocol = mem_strdup(protocol))))
		rc = err_set(err, RC_NOMEM, "cannot allocate a websocket's handshake");
	if (!rc)
		rc = ev_defer(r->server->loop, &r->attach, attach, r, err);
	if (rc) {
		sbuf_fini(&r->ws_head);
		http_ws_free(w);
		return rc;
	}
	r->ws = w;
	r->is_ws = true;
	w->slot = &r->ws;
	r->server->n_ws++;
	req_disown(r);
	*ws = w;
	return RC_OK;
}
