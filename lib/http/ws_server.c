#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "base/mem.h"
#include "base/str.h"
#include "http/server_int.h"
#include "http/ws_int.h"

/* The server side of a websocket: libmicrohttpd hands over the socket (for TLS one end of a pair whose
 * other end it serves itself) and a handle to give it back with. */
struct upgraded {
	int fd;
	struct MHD_UpgradeResponseHandle *urh;
};

static ssize_t up_recv(void *io, void *buf, size_t n)
{
	return recv(((struct upgraded *)io)->fd, buf, n, MSG_DONTWAIT);
}

static ssize_t up_send(void *io, const void *buf, size_t n)
{
	return send(((struct upgraded *)io)->fd, buf, n, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void up_drop(void *io)
{
	struct upgraded *u = io;

	MHD_upgrade_action(u->urh, MHD_UPGRADE_ACTION_CLOSE);
	mem_free(u);
}

static const struct ws_io up_io = {.recv = up_recv, .send = up_send, .drop = up_drop};

static void on_upgraded(void *cls, struct MHD_Connection *c, void *con_cls, const char *early,
			size_t n_early, MHD_socket fd, struct MHD_UpgradeResponseHandle *urh)
{
	struct http_req *r = cls;
	struct upgraded *u = r->ws ? mem_alloc(sizeof(*u)) : NULL;
	struct err why = {0};

	(void)c;
	(void)con_cls;
	if (u) {
		u->fd = fd;
		u->urh = urh;
		ws_attach(r->ws, &up_io, u, fd, early, n_early, r->ws_protocol);
		return;
	}
	MHD_upgrade_action(urh, MHD_UPGRADE_ACTION_CLOSE);
	if (!r->ws)
		return; /* freed by its owner meanwhile */
	err_set(&why, RC_NOMEM, "cannot allocate a websocket");
	ws_fail(r->ws, 0, &why);
}

void ws_server_detach(struct http_ws *ws)
{
	struct err why = {0};

	ws->slot = NULL;
	err_set(&why, RC_CLOSED, "the connection was closed");
	ws_fail(ws, 0, &why);
}

bool http_req_wants_upgrade(const struct http_req *r)
{
	const char *v = http_req_header(r, MHD_HTTP_HEADER_UPGRADE);

	return v && ws_has_token(v, "websocket");
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

static struct MHD_Response *upgrade_response(struct http_req *r, const char *key, const char *protocol)
{
	char accept[29];
	struct MHD_Response *m;

	ws_accept_key(key, accept);
	m = accept[0] ? MHD_create_response_for_upgrade(on_upgraded, r) : NULL;
	if (!m)
		return NULL;
	if (MHD_add_response_header(m, MHD_HTTP_HEADER_UPGRADE, "websocket") != MHD_YES ||
	    MHD_add_response_header(m, "Sec-WebSocket-Accept", accept) != MHD_YES ||
	    (protocol &&
	     MHD_add_response_header(m, "Sec-WebSocket-Protocol", protocol) != MHD_YES)) {
		MHD_destroy_response(m);
		return NULL;
	}
	return m;
}

enum rc http_upgrade_ws(struct http_req *r, const char *protocol, const struct http_ws_ops *ops,
			void *arg, struct http_ws **ws, struct err *err)
{
	struct http_ws *w = NULL;
	struct MHD_Response *m;
	const char *key = NULL;
	enum rc rc = check_handshake(r, &key, err);

	if (!rc)
		rc = ws_new(&w, r->server->loop, true, ops, arg, err);
	if (rc)
		return rc;
	m = upgrade_response(r, key, protocol);
	if (!m || (protocol && !(r->ws_protocol = mem_strdup(protocol)))) {
		if (m)
			MHD_destroy_response(m);
		http_ws_free(w);
		return err_set(err, RC_NOMEM, "cannot allocate a websocket's handshake");
	}
	r->ws = w;
	r->is_ws = true;
	w->slot = &r->ws;
	r->server->n_ws++;
	req_answer(r, m, MHD_HTTP_SWITCHING_PROTOCOLS);
	*ws = w;
	return RC_OK;
}
