#include "cli/udpforward.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/str.h"
#include "ev/ev.h"
#include "http/client.h"
#include "http/ws.h"

enum { BURST = 64 }; /* datagrams in a turn of the loop */
static const usec_t OPEN_TIMEOUT = 15 * USEC_PER_SEC;

struct peer {
	struct list link;
	struct udpforward *u;
	struct sockaddr_in address;
	struct http_ws *ws; /* NULL: it has ended; the next datagram makes another one */
	bool has_opened;
	usec_t last, next_dial;
};

struct udpforward {
	struct udpforward_config cfg;
	struct loop *loop;
	struct ev_src *io, *timer;
	struct list peers; /* the one that has been silent for longest comes first */
	unsigned n_peers;
	usec_t next_full; /* when it may be told again that there are too many */
	uint8_t datagram[LIMIT_WS_BYTES];
};

static void peer_free(struct peer *p)
{
	list_remove(&p->link);
	p->u->n_peers--;
	http_ws_free(p->ws);
	mem_free(p);
}

static void touch(struct peer *p)
{
	p->last = loop_now(p->u->loop);
	list_remove(&p->link);
	list_push_tail(&p->u->peers, &p->link);
}

static void on_idle(void *arg)
{
	struct udpforward *u = arg;

	while (!list_is_empty(&u->peers)) {
		struct peer *oldest = LIST_ENTRY(u->peers.next, struct peer, link);
		usec_t end = oldest->last + u->cfg.idle, now = loop_now(u->loop);

		if (end > now) {
			ev_timer_rearm(u->timer, end - now);
			return;
		}
		peer_free(oldest);
	}
}

/* --- from the guest --- */

static void on_open(struct http_ws *ws, const char *protocol, void *arg)
{
	struct peer *p = arg;

	(void)ws;
	(void)protocol;
	p->has_opened = true;
}

static void on_message(struct http_ws *ws, bool is_text, const uint8_t *bytes, size_t n, void *arg)
{
	struct peer *p = arg;
	char text[96];

	(void)ws;
	if (is_text)
		return;
	touch(p);
	if (sendto(p->u->cfg.fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL,
		   (const struct sockaddr *)&p->address, sizeof(p->address)) < 0 &&
	    errno == EMSGSIZE) {
		(void)snprintf(text, sizeof(text), "%zu bytes of the server's are no datagram", n);
		p->u->cfg.on_error(text, p->u->cfg.arg);
	}
}

static void on_close(struct http_ws *ws, uint16_t code, const char *reason, int status,
		     const struct err *why, void *arg)
{
	struct peer *p = arg;
	const char *text = p->has_opened && code != HTTP_WS_ABNORMAL ? reason
			   : why				     ? why->msg
								     : "the connection was lost";

	(void)status;
	p->ws = http_ws_free(ws);
	if (!str_is_empty(text))
		p->u->cfg.on_error(text, p->u->cfg.arg);
}

/* --- to the guest --- */

/* False: not now, or not at all; the latter has been told. */
static bool dial(struct peer *p)
{
	static const struct http_ws_ops ops = {
		.on_open = on_open, .on_message = on_message, .on_close = on_close};
	struct udpforward *u = p->u;
	usec_t now = loop_now(u->loop);
	struct err err = {0};

	if (now < p->next_dial)
		return false;
	/* One that ends at once is not made for each datagram. */
	p->next_dial = now + u->cfg.interval;
	p->has_opened = false;
	u->cfg.on_peer(u->cfg.arg);
	if (!http_ws_connect(u->cfg.client, &p->ws, u->cfg.url, "plain.kubevirt.io", OPEN_TIMEOUT,
			     &ops, p, &err))
		return true;
	u->cfg.on_error(err.msg, u->cfg.arg);
	return false;
}

static bool is_full(struct udpforward *u)
{
	usec_t now = loop_now(u->loop);
	struct peer *oldest = LIST_ENTRY(u->peers.next, struct peer, link);
	char text[96];

	if (u->n_peers < u->cfg.peers_max)
		return false;
	if (now - oldest->last >= u->cfg.interval) {
		peer_free(oldest);
		return false;
	}
	if (now >= u->next_full) {
		u->next_full = now + u->cfg.interval;
		(void)snprintf(text, sizeof(text), "%u peers are talking already",
			       u->cfg.peers_max);
		u->cfg.on_error(text, u->cfg.arg);
	}
	return true;
}

static struct peer *peer_of(struct udpforward *u, const struct sockaddr_in *from)
{
	LIST_FOREACH(it, &u->peers) {
		struct peer *p = LIST_ENTRY(it, struct peer, link);

		if (p->address.sin_addr.s_addr == from->sin_addr.s_addr &&
		    p->address.sin_port == from->sin_port)
			return p;
	}
	if (is_full(u))
		return NULL;
	struct peer *p = mem_alloc(sizeof(*p));

	if (!p) {
		u->cfg.on_error("out of memory", u->cfg.arg);
		return NULL;
	}
	p->u = u;
	p->address = *from;
	list_push_tail(&u->peers, &p->link);
	if (!u->n_peers++)
		ev_timer_rearm(u->timer, u->cfg.idle);
	return p;
}

static void pass_on(struct udpforward *u, const struct sockaddr_in *from, size_t n)
{
	struct peer *p = peer_of(u, from);

	if (!p)
		return;
	touch(p);
	/* Busy, or no memory: this one is lost. */
	if (p->ws && http_ws_send(p->ws, false, u->datagram, n) != RC_CLOSED)
		return;
	p->ws = http_ws_free(p->ws);
	if (dial(p))
		ignore_rc(http_ws_send(p->ws, false, u->datagram, n)); /* waits for the handshake */
}

static void on_port(uint32_t revents, void *arg)
{
	struct udpforward *u = arg;
	struct sockaddr_in from;

	(void)revents;
	for (int i = 0; i < BURST; i++) {
		socklen_t len = sizeof(from);
		ssize_t n = recvfrom(u->cfg.fd, u->datagram, sizeof(u->datagram), MSG_DONTWAIT,
				     (struct sockaddr *)&from, &len);

		if (n < 0)
			return;
		pass_on(u, &from, (size_t)n);
	}
}

/* --- */

enum rc udpforward_new(struct udpforward **out, const struct udpforward_config *config,
		       struct err *err)
{
	struct udpforward *u = mem_alloc(sizeof(*u));

	if (!u) {
		fd_close(config->fd);
		return err_set(err, RC_NOMEM, "out of memory");
	}
	u->cfg = *config;
	u->loop = http_client_loop(config->client);
	list_init(&u->peers);
	enum rc rc = ev_timer_after(u->loop, &u->timer, USEC_INFINITY, on_idle, u, err);

	if (!rc)
		rc = ev_io(u->loop, &u->io, u->cfg.fd, EPOLLIN, on_port, u, err);
	if (rc)
		udpforward_free(u);
	else
		*out = u;
	return rc;
}

struct udpforward *udpforward_free(struct udpforward *u)
{
	if (!u)
		return NULL;
	while (!list_is_empty(&u->peers))
		peer_free(LIST_ENTRY(u->peers.next, struct peer, link));
	ev_src_free(u->io);
	ev_src_free(u->timer);
	fd_close(u->cfg.fd);
	return mem_free(u);
}
