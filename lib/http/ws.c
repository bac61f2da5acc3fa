#include "http/ws_int.h"

#include <errno.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"

/* Theory of operation
 *
 * CONNECTING -> OPEN (ws_attach) -> CLOSING (http_ws_close, or the peer's close frame) -> CLOSED
 * (on_close was called).  Any state may go to CLOSED when the connection breaks.
 *
 * wslay keeps the frames; turn() gives it the chance to read and write and then looks where it stands.
 * A send outside the loop's callbacks that fails only marks the endpoint broken and lets the timer end
 * it, so that on_close never runs inside the owner's call.
 *
 * The one timer is the ping interval while open and the deadline while closing.
 *
 * KubeVirt's API server pings once a second and gives up a minute after the last answer.  What finds the dead is the
 * minute; the second would wake both ends of every idle stream for nothing.  A ping each 20 s keeps it open in proxies as
 * well, whose patience is 50 s or more.  Pings are counted, not seconds: a process that was stopped itself has sent none.
 *
 * Who does not read cannot hear.  While paused the peer's kernel is asked for instead, which confirms what is sent: at
 * once if it has room, else when it is probed for room, which TCP does every 120 s at last (TCP_RTO_MAX).
 */
static const usec_t PING_INTERVAL = 20 * USEC_PER_SEC;
enum { UNANSWERED_MAX = 3, UNCONFIRMED_MAX = 9 }; /* 60 s, 180 s, and the rest of an interval */
static const usec_t CLOSE_WAIT = 5 * USEC_PER_SEC;

static void turn(struct http_ws *ws, bool can_read);

/* Memory and callbacks */

static void ws_release(struct http_ws *ws)
{
	ws->src = ev_src_free(ws->src);
	ws->fd = -1;
	if (ws->slot)
		*STEAL(ws->slot) = NULL;
	if (ws->io) {
		const struct ws_io *io = STEAL(ws->io);

		io->drop(ws->io_arg);
	}
}

static void ws_destroy(struct http_ws *ws)
{
	ws_release(ws);
	ev_src_free(ws->timer);
	if (ws->ctx)
		wslay_event_context_free(ws->ctx);
	sbuf_fini(&ws->early);
	mem_free(ws);
}

static void enter(struct http_ws *ws)
{
	ws->depth++;
}

/* False: the object is gone. */
static bool leave(struct http_ws *ws)
{
	if (--ws->depth || !ws->is_freed)
		return true;
	ws_destroy(ws);
	return false;
}

struct http_ws *http_ws_free(struct http_ws *ws)
{
	if (!ws || ws->is_freed)
		return NULL;
	ws->is_freed = true;
	ws->state = WS_CLOSED;
	if (ws->depth == 0)
		ws_destroy(ws);
	return NULL;
}

/* Ends it and tells the owner; the object may be gone afterwards. */
static void finish(struct http_ws *ws, uint16_t code)
{
	if (ws->state == WS_CLOSED)
		return;
	ws->state = WS_CLOSED;
	ev_timer_rearm(ws->timer, USEC_INFINITY);
	enter(ws);
	ws_release(ws);
	if (ws->ops->on_close)
		ws->ops->on_close(ws, code, ws->reason, ws->status, ws->why.rc ? &ws->why : NULL,
				  ws->arg);
	leave(ws);
}

void ws_fail(struct http_ws *ws, int status, const struct err *why)
{
	ws->status = status;
	if (why && !ws->why.rc)
		ws->why = *why;
	finish(ws, HTTP_WS_ABNORMAL);
}

/* wslay's side */

static ssize_t on_recv(wslay_event_context_ptr ctx, uint8_t *buf, size_t n, int flags, void *arg)
{
	struct http_ws *ws = arg;
	ssize_t got;

	(void)flags;
	if (ws->is_paused || ws->is_freed || !ws->io) {
		wslay_event_set_error(ctx, WSLAY_ERR_WOULDBLOCK);
		return -1;
	}
	if (ws->early_off < ws->early.n) {
		got = (ssize_t)MIN(n, ws->early.n - ws->early_off);
		memcpy(buf, ws->early.p + ws->early_off, (size_t)got);
		ws->early_off += (size_t)got;
		return got;
	}
	got = ws->io->recv(ws->io_arg, buf, n);
	if (got > 0) {
		ws->unanswered = 0;
		return got;
	}
	if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
		wslay_event_set_error(ctx, WSLAY_ERR_WOULDBLOCK);
		return -1;
	}
	ws->is_eof = true;
	if (got < 0)
		err_set_sys(&ws->why, errno, "websocket connection broken");
	wslay_event_set_error(ctx, WSLAY_ERR_CALLBACK_FAILURE);
	return -1;
}

static ssize_t on_send(wslay_event_context_ptr ctx, const uint8_t *buf, size_t n, int flags,
		       void *arg)
{
	struct http_ws *ws = arg;
	ssize_t put = ws->io ? ws->io->send(ws->io_arg, buf, n) : (errno = EAGAIN, -1);

	(void)flags;
	if (put >= 0)
		return put;
	if (errno == EAGAIN || errno == EINTR) {
		wslay_event_set_error(ctx, WSLAY_ERR_WOULDBLOCK);
		return -1;
	}
	err_set_sys(&ws->why, errno, "websocket connection broken");
	wslay_event_set_error(ctx, WSLAY_ERR_CALLBACK_FAILURE);
	return -1;
}

static int on_mask(wslay_event_context_ptr ctx, uint8_t *buf, size_t n, void *arg)
{
	(void)ctx;
	(void)arg;
	rand_bytes(buf, n);
	return 0;
}

static void on_msg(wslay_event_context_ptr ctx, const struct wslay_event_on_msg_recv_arg *m,
		   void *arg)
{
	struct http_ws *ws = arg;

	(void)ctx;
	if (m->opcode == WSLAY_CONNECTION_CLOSE) {
		size_t n = m->msg_length > 2 ? MIN(m->msg_length - 2, sizeof(ws->reason) - 1) : 0;

		ws->peer_code = m->status_code ? m->status_code : HTTP_WS_NO_STATUS;
		if (n)
			memcpy(ws->reason, m->msg + 2, n);
		ws->reason[n] = '\0';
		return;
	}
	if (m->opcode != WSLAY_TEXT_FRAME && m->opcode != WSLAY_BINARY_FRAME)
		return;
	if (ws->state == WS_OPEN && ws->ops->on_message)
		ws->ops->on_message(ws, m->opcode == WSLAY_TEXT_FRAME, m->msg, m->msg_length,
				    ws->arg);
}

/* Turns */

static void update_mask(struct http_ws *ws)
{
	uint32_t events = 0;

	if (!ws->src)
		return;
	if (!ws->is_paused && wslay_event_want_read(ws->ctx))
		events |= EPOLLIN;
	if (wslay_event_want_write(ws->ctx) || ws->look_again)
		events |= EPOLLOUT;
	ev_io_set(ws->src, events);
}

static void check_room(struct http_ws *ws)
{
	if (!ws->room_due || ws->state != WS_OPEN || http_ws_backlog(ws) > HTTP_WS_BACKLOG / 2)
		return;
	ws->room_due = false;
	if (ws->ops->on_room)
		ws->ops->on_room(ws, ws->arg);
}

static void begin_closing(struct http_ws *ws)
{
	if (ws->state != WS_OPEN)
		return;
	ws->state = WS_CLOSING;
	ev_timer_rearm(ws->timer, CLOSE_WAIT);
}

/* What did the last reads and writes lead to?  May end the endpoint. */
static void judge(struct http_ws *ws, bool is_ok)
{
	uint16_t code = ws->peer_code;

	if (ws->is_freed || ws->state == WS_CLOSED)
		return;
	if (ws->peer_code || wslay_event_get_close_sent(ws->ctx))
		begin_closing(ws);
	if (!is_ok || ws->is_eof || ws->is_broken) {
		if (!code)
			code = HTTP_WS_ABNORMAL;
		finish(ws, code);
	} else if (ws->peer_code && wslay_event_get_close_sent(ws->ctx)) {
		finish(ws, code);
	} else if (wslay_event_get_close_sent(ws->ctx) && !wslay_event_get_read_enabled(ws->ctx)) {
		finish(ws, wslay_event_get_status_code_sent(ws->ctx)); /* we refused what it sent */
	} else {
		check_room(ws);
		if (!ws->is_freed && ws->state != WS_CLOSED)
			update_mask(ws);
	}
}

static void turn(struct http_ws *ws, bool can_read)
{
	bool is_ok = true;

	enter(ws);
	if (can_read)
		ws->look_again = false;
	if (can_read && wslay_event_want_read(ws->ctx))
		is_ok = wslay_event_recv(ws->ctx) == 0;
	/* Even after an error: a close frame with its code may be waiting. */
	if (!ws->is_freed && ws->io && wslay_event_want_write(ws->ctx))
		is_ok &= wslay_event_send(ws->ctx) == 0;
	judge(ws, is_ok);
	leave(ws);
}

static void on_io(uint32_t events, void *arg)
{
	struct http_ws *ws = arg;

	/* A hang-up while reading is paused must not spin; what is in flight is lost with it. */
	if ((events & (EPOLLHUP | EPOLLERR)) && ws->is_paused) {
		ws->is_eof = true;
		turn(ws, false);
		return;
	}
	turn(ws, true);
}

static bool has_confirmed(const struct http_ws *ws)
{
	struct tcp_info info = {0};
	socklen_t len = sizeof(info);

	/* Of a unix socket, whose peer does not die unnoticed, there is no such thing. */
	return getsockopt(ws->fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0 ||
	       info.tcpi_last_ack_recv * USEC_PER_MSEC <= loop_now(ws->loop) - ws->pinged;
}

static void on_timer(void *arg)
{
	struct http_ws *ws = arg;
	struct wslay_event_msg ping = {.opcode = WSLAY_PING};

	if (ws->is_broken) {
		finish(ws, HTTP_WS_ABNORMAL);
		return;
	}
	if (ws->state == WS_CLOSING) {
		/* The peer does not answer our close frame; it may have answered before. */
		finish(ws, ws->peer_code ? ws->peer_code : HTTP_WS_ABNORMAL);
		return;
	}
	if (ws->state != WS_OPEN)
		return;
	unsigned max = ws->is_paused ? UNCONFIRMED_MAX : UNANSWERED_MAX;

	if (ws->is_paused && has_confirmed(ws))
		ws->unanswered = 0;
	if (ws->unanswered >= max) {
		err_set(&ws->why, RC_TIMEOUT, "the websocket's peer has been silent for %u s",
			(unsigned)(max * ws->ping_interval / USEC_PER_SEC));
		finish(ws, HTTP_WS_ABNORMAL);
		return;
	}
	ws->unanswered++;
	ws->pinged = loop_now(ws->loop);
	ev_timer_rearm(ws->timer, ws->ping_interval);
	if (wslay_event_queue_msg(ws->ctx, &ping) == 0)
		turn(ws, false);
}

enum rc ws_new(struct http_ws **out, struct loop *loop, bool is_server,
	       const struct http_ws_ops *ops, void *arg, struct err *err)
{
	struct wslay_event_callbacks cb = {.recv_callback = on_recv,
					   .send_callback = on_send,
					   .genmask_callback = on_mask,
					   .on_msg_recv_callback = on_msg};
	struct http_ws *ws = mem_alloc(sizeof(*ws));
	enum rc rc;

	if (!ws)
		return err_set(err, RC_NOMEM, "cannot allocate a websocket");
	ws->loop = loop;
	ws->ops = ops;
	ws->arg = arg;
	ws->fd = -1;
	ws->ping_interval = PING_INTERVAL;
	sbuf_init(&ws->early, LIMIT_WS_BYTES);
	rc = ev_timer_after(loop, &ws->timer, USEC_INFINITY, on_timer, ws, err);
	if (!rc && (is_server ? wslay_event_context_server_init(&ws->ctx, &cb, ws)
			      : wslay_event_context_client_init(&ws->ctx, &cb, ws)) < 0)
		rc = err_set(err, RC_NOMEM, "cannot allocate a websocket");
	if (rc) {
		ws_destroy(ws);
		return rc;
	}
	wslay_event_config_set_max_recv_msg_length(ws->ctx, LIMIT_WS_BYTES);
	*out = ws;
	return RC_OK;
}

void ws_attach(struct http_ws *ws, const struct ws_io *io, void *io_arg, int fd, const void *early,
	       size_t n_early, const char *protocol)
{
	bool closing = ws->state == WS_CLOSING;

	ws->io = io;
	ws->io_arg = io_arg;
	ws->fd = fd;
	sbuf_add(&ws->early, early, n_early);
	if (sbuf_rc(&ws->early) ||
	    ev_io(ws->loop, &ws->src, fd, EPOLLIN | EPOLLOUT, on_io, ws, &ws->why)) {
		finish(ws, HTTP_WS_ABNORMAL);
		return;
	}
	enter(ws);
	if (!closing) {
		ws->state = WS_OPEN;
		ev_timer_rearm(ws->timer, ws->ping_interval);
		if (ws->ops->on_open)
			ws->ops->on_open(ws, protocol, ws->arg);
	}
	if (!ws->is_freed)
		turn(ws, true);
	leave(ws);
}

/* The owner's calls */

enum rc http_ws_send(struct http_ws *ws, bool is_text, const void *bytes, size_t n)
{
	struct wslay_event_msg m = {.opcode = is_text ? WSLAY_TEXT_FRAME : WSLAY_BINARY_FRAME,
				    .msg = bytes,
				    .msg_length = n};
	size_t waiting = http_ws_backlog(ws);

	if (ws->state > WS_OPEN || ws->is_broken)
		return RC_CLOSED;
	if (n > LIMIT_WS_BYTES)
		return RC_TOO_BIG;
	if (waiting && waiting + n > HTTP_WS_BACKLOG) {
		ws->room_due = true;
		return RC_BUSY;
	}
	switch (wslay_event_queue_msg(ws->ctx, &m)) {
	case 0:
		ws->room_due |= waiting + n > HTTP_WS_BACKLOG / 2;
		break;
	case WSLAY_ERR_NO_MORE_MSG:
		return RC_CLOSED;
	default:
		return RC_NOMEM;
	}
	if (ws->state == WS_CONNECTING || ws->depth)
		return RC_OK; /* goes out with the turn that is running, or after the handshake */
	if (wslay_event_send(ws->ctx) != 0) {
		ws->is_broken = true;
		ev_timer_rearm(ws->timer, 0);
		return RC_OK;
	}
	update_mask(ws);
	return RC_OK;
}

size_t http_ws_backlog(const struct http_ws *ws)
{
	return wslay_event_get_queued_msg_length(ws->ctx);
}

void http_ws_pause(struct http_ws *ws, bool paused)
{
	if (ws->is_paused == paused)
		return;
	ws->is_paused = paused;
	ws->unanswered = 0;
	/* Bytes may wait inside wslay or TLS, where the socket does not tell. */
	ws->look_again = !paused;
	if (ws->state != WS_CLOSED && ws->depth == 0)
		update_mask(ws);
}

void http_ws_close(struct http_ws *ws, uint16_t code, const char *reason)
{
	size_t n = reason ? MIN(strlen(reason), (size_t)123) : 0;

	if (ws->state > WS_OPEN)
		return;
	if (wslay_event_queue_close(ws->ctx, code, (const uint8_t *)reason, n) < 0)
		ws->is_broken = true;
	ws->state = WS_CLOSING;
	ws->is_paused = false; /* the peer's close frame must be seen */
	ev_timer_rearm(ws->timer, ws->is_broken ? 0 : CLOSE_WAIT);
	if (ws->src && ws->depth == 0)
		update_mask(ws); /* the turn that sends it runs from the loop */
}

bool http_ws_is_open(const struct http_ws *ws)
{
	return ws->state == WS_OPEN;
}

/* Handshake helpers */

void ws_accept_key(const char *key, char out[29])
{
	static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
	CLEANUP(mem_freep) char *text = mem_printf("%s%s", key, guid);
	unsigned char digest[20];
	gnutls_datum_t in = {digest, sizeof(digest)}, b64 = {0};

	out[0] = '\0';
	if (!text || gnutls_hash_fast(GNUTLS_DIG_SHA1, text, strlen(text), digest) < 0 ||
	    gnutls_base64_encode2(&in, &b64) < 0)
		return;
	if (b64.size == 28) {
		memcpy(out, b64.data, 28);
		out[28] = '\0';
	}
	gnutls_free(b64.data);
}

bool ws_has_token(const char *value, const char *word)
{
	struct str rest = str_of(value);

	while (rest.p) {
		struct str item = str_trim(str_split(&rest, ','));

		if (item.n == strlen(word) && !strncasecmp(item.p, word, item.n))
			return true;
	}
	return false;
}
