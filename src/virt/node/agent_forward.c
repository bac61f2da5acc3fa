#include "virt/node/agent_forward.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/file.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/str.h"
#include "ev/ev.h"
#include "http/join.h"
#include "http/server.h"
#include "virt/node/agent_answer.h"

static const usec_t DIAL_TIMEOUT = 8 * USEC_PER_SEC, LAST_WORDS = 5 * USEC_PER_SEC;
/* A guest that is off, or has gone without a word, answers no probe: 150 s, as at KubeVirt (Go's defaults).  A move's
 * pause is far less. */
enum { PROBE_SECONDS = 15, PROBES = 9 };

struct forwards {
	struct loop *loop;
	struct list all;
};

struct forward {
	struct list link;
	struct forwards *f;
	struct http_req *req;	/* until the guest has answered */
	struct http_join *join; /* from then on */
	int fd;
	struct ev_src *io, *timer;
	bool is_udp;
	char where[96];
};

static void forward_free(struct forward *w)
{
	list_remove(&w->link);
	ev_src_free(w->io);
	ev_src_free(w->timer);
	fd_close(w->fd);
	http_join_free(w->join);
	mem_free(w);
}

static void fail(struct forward *w, const char *why)
{
	char text[256];

	(void)snprintf(text, sizeof(text), "dialing VM: dial %s %s: %s", w->is_udp ? "udp" : "tcp",
		       w->where, why);
	http_req_on_cancel(w->req, NULL, NULL);
	agent_answer(w->req, 500, "InternalError", "%s", text);
	forward_free(w);
}

static void on_end(struct http_join *j, enum rc rc, const char *text, void *arg)
{
	(void)j;
	(void)rc;
	(void)text;
	forward_free(arg);
}

static void on_dialled(uint32_t revents, void *arg)
{
	static const struct http_join_ops ops = {.on_end = on_end};
	struct forward *w = arg;
	const struct http_join_config config = {.ops = &ops,
						.arg = w,
						.protocol = "plain.kubevirt.io",
						.bye = "the guest has closed the connection",
						.last_words = LAST_WORDS,
						.is_datagram = w->is_udp};
	struct http_req *req = w->req;
	int error = 0;
	socklen_t len = sizeof(error);
	struct err err = {0};

	(void)revents;
	if (getsockopt(w->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
		error = errno;
	w->timer = ev_src_free(w->timer);
	w->io = ev_src_free(w->io);
	if (error) {
		fail(w, strerror(error));
		return;
	}
	http_req_on_cancel(req, NULL, NULL);
	if (http_join_upgrade(req, &w->join, STEAL_FD(w->fd), &config, &err)) {
		agent_answer(req, 400, "BadRequest", "%s", err.msg);
		forward_free(w);
		return;
	}
	w->req = NULL;
}

static void on_late(void *arg)
{
	fail(arg, "i/o timeout");
}

static void on_cancel(struct http_req *req, void *arg)
{
	(void)req;
	forward_free(arg);
}

static void set_options(int fd)
{
	static const struct {
		int level, name, value;
	} options[] = {
		{IPPROTO_TCP, TCP_NODELAY, 1},
		{SOL_SOCKET, SO_KEEPALIVE, 1},
		{IPPROTO_TCP, TCP_KEEPIDLE, PROBE_SECONDS},
		{IPPROTO_TCP, TCP_KEEPINTVL, PROBE_SECONDS},
		{IPPROTO_TCP, TCP_KEEPCNT, PROBES},
	};

	for (size_t i = 0; i < ARRAY_SIZE(options); i++)
		(void)setsockopt(fd, options[i].level, options[i].name, &options[i].value,
				 sizeof(options[i].value));
}

static void dial(struct forward *w, const struct sockaddr_in *to)
{
	struct err err = {0};

	w->fd = socket(AF_INET,
		       (w->is_udp ? SOCK_DGRAM : SOCK_STREAM) | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (w->fd < 0 || (connect(w->fd, (const struct sockaddr *)to, sizeof(*to)) < 0 &&
			  errno != EINPROGRESS)) {
		fail(w, strerror(errno));
		return;
	}
	if (!w->is_udp)
		set_options(w->fd);
	if (ev_io(w->f->loop, &w->io, w->fd, EPOLLOUT, on_dialled, w, &err) ||
	    ev_timer_after(w->f->loop, &w->timer, DIAL_TIMEOUT, on_late, w, &err))
		fail(w, err.msg);
}

void forward_open(struct forwards *f, struct http_req *req, const char *address, const char *port,
		  const char *protocol)
{
	struct sockaddr_in to = {.sin_family = AF_INET};
	struct forward *w;
	int64_t number = 0;

	if (str_to_i64(port, 1, 65535, &number, NULL) ||
	    (strcmp(protocol, "tcp") != 0 && strcmp(protocol, "udp") != 0)) {
		agent_answer(req, 400, "BadRequest", "a port in 1..65535, then tcp or udp");
		return;
	}
	if (!address || inet_pton(AF_INET, address, &to.sin_addr) != 1) {
		agent_answer(req, 400, "BadRequest", "no network interfaces are present");
		return;
	}
	to.sin_port = htons((uint16_t)number);
	w = mem_alloc(sizeof(*w));
	if (!w) {
		agent_answer(req, 500, "InternalError", "out of memory");
		return;
	}
	w->f = f;
	w->req = req;
	w->fd = -1;
	w->is_udp = strcmp(protocol, "udp") == 0;
	(void)snprintf(w->where, sizeof(w->where), "%s:%u", address, (unsigned)number);
	list_push_tail(&f->all, &w->link);
	http_req_on_cancel(req, on_cancel, w);
	dial(w, &to);
}

struct forwards *forwards_new(struct loop *loop)
{
	struct forwards *f = mem_alloc(sizeof(*f));

	if (!f)
		return NULL;
	f->loop = loop;
	list_init(&f->all);
	return f;
}

struct forwards *forwards_free(struct forwards *f)
{
	if (!f)
		return NULL;
	LIST_FOREACH_SAFE(it, tmp, &f->all) {
		struct forward *w = LIST_ENTRY(it, struct forward, link);

		if (w->req)
			http_req_on_cancel(w->req, NULL, NULL);
		forward_free(w);
	}
	return mem_free(f);
}
