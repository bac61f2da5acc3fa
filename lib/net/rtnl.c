#include "net_int.h"

#include <errno.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <linux/netlink.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "net/ns.h"

enum rc net_fail(enum rc rc, struct err *err, const char *fmt, ...)
{
	char text[200];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	err_prepend(err, "%s", text);
	return rc;
}

enum rc net_netlink_socket(int ns_fd, int protocol, int *fd, struct err *err)
{
	CLEANUP(net_ns_leave)
	int old = -1;
	CLEANUP(fd_closep)
	int s = -1;
	struct sockaddr_nl a = {.nl_family = AF_NETLINK};
	/* The kernel answers at once; a bound all the same, so that no thread hangs for ever. */
	struct timeval tv = {.tv_sec = 10};
	int one = 1;
	enum rc rc = net_ns_enter(ns_fd, &old, err);

	if (rc)
		return rc;
	s = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);
	if (s < 0)
		return err_set_sys(err, errno, "cannot open a netlink socket");
	if (bind(s, (struct sockaddr *)&a, sizeof(a)) < 0)
		return err_set_sys(err, errno, "cannot bind a netlink socket");
	if (setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)) < 0 ||
	    setsockopt(s, SOL_NETLINK, NETLINK_EXT_ACK, &one, sizeof(one)) < 0 ||
	    setsockopt(s, SOL_NETLINK, NETLINK_CAP_ACK, &one, sizeof(one)) < 0)
		return err_set_sys(err, errno, "cannot set up a netlink socket");
	*fd = STEAL_FD(s);
	return RC_OK;
}

enum rc net_open_protocol(struct net **out, int ns_fd, int protocol, struct err *err)
{
	CLEANUP(net_freep)
	struct net *n = mem_alloc(sizeof(*n));

	if (!n)
		return err_set(err, RC_NOMEM, "no memory for a netlink handle");
	n->fd = -1;
	n->recv_buf = mem_alloc(NET_RECV_BYTES);
	if (!n->recv_buf)
		return err_set(err, RC_NOMEM, "no memory for a netlink handle");

	enum rc rc = net_netlink_socket(ns_fd, protocol, &n->fd, err);

	if (rc)
		return rc;
	*out = STEAL(n);
	return RC_OK;
}

enum rc net_open(struct net **out, int ns_fd, struct err *err)
{
	return net_open_protocol(out, ns_fd, NETLINK_ROUTE, err);
}

struct net *net_free(struct net *n)
{
	if (!n)
		return NULL;
	fd_close(n->fd);
	mem_free(n->recv_buf);
	return mem_free(n);
}

void *net_msg_init(struct net_msg *m, uint16_t type, uint16_t flags, size_t header_bytes)
{
	memset(m->buf, 0, sizeof(m->buf));
	m->nlh = mnl_nlmsg_put_header(m->buf);
	m->nlh->nlmsg_type = type;
	m->nlh->nlmsg_flags = (uint16_t)(NLM_F_REQUEST | flags);
	return mnl_nlmsg_put_extra_header(m->nlh, header_bytes);
}

void net_put_addr(struct net_msg *m, uint16_t type, struct in_addr a)
{
	mnl_attr_put(m->nlh, type, sizeof(a.s_addr), &a.s_addr);
}

void net_put_mac(struct net_msg *m, uint16_t type, struct net_mac mac)
{
	mnl_attr_put(m->nlh, type, sizeof(mac.b), mac.b);
}

/* The kernel's own words about a refusal, when it has some. */
static const char *ack_text(const struct nlmsghdr *h, const struct nlmsgerr *e)
{
	size_t skip = sizeof(*h) + sizeof(*e);
	const struct nlattr *a;

	if (!(h->nlmsg_flags & NLM_F_ACK_TLVS))
		return NULL;
	if (!(h->nlmsg_flags & NLM_F_CAPPED))
		skip += e->msg.nlmsg_len - sizeof(e->msg);
	if (skip >= h->nlmsg_len)
		return NULL;
	for (a = (const void *)((const char *)h + skip);
	     mnl_attr_ok(a, (int)((const char *)h + h->nlmsg_len - (const char *)a));
	     a = mnl_attr_next(a))
		if (mnl_attr_get_type(a) == NLMSGERR_ATTR_MSG)
			return mnl_attr_get_str(a);
	return NULL;
}

static enum rc ack_rc(const struct nlmsghdr *h, struct err *err)
{
	const struct nlmsgerr *e = mnl_nlmsg_get_payload(h);

	if (e->error == 0)
		return RC_OK;

	const char *text = ack_text(h, e);

	if (text)
		return err_set_sys(err, -e->error, "the kernel says '%s'", text);
	return err_set_sys(err, -e->error, "the kernel refuses");
}

static enum rc net_send_bytes(struct net *n, const void *p, size_t len, struct err *err)
{
	struct sockaddr_nl a = {.nl_family = AF_NETLINK};

	if (sendto(n->fd, p, len, 0, (struct sockaddr *)&a, sizeof(a)) != (ssize_t)len)
		return err_set_sys(err, errno, "cannot send to the kernel");
	return RC_OK;
}

/* Reads answers to seq until its acknowledgement (or the end of the dump). */
static enum rc net_receive(struct net *n, uint32_t seq, net_answer_fn fn, void *arg,
			   struct err *err)
{
	enum rc failed = RC_OK;

	for (;;) {
		ssize_t got = recv(n->fd, n->recv_buf, NET_RECV_BYTES, 0);
		int left = (int)got;

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return err_set_sys(err, errno, "no answer from the kernel");
		for (const struct nlmsghdr *h = (const void *)n->recv_buf; mnl_nlmsg_ok(h, left);
		     h = mnl_nlmsg_next(h, &left)) {
			if (h->nlmsg_seq != seq)
				continue; /* of an earlier call that timed out */
			if (h->nlmsg_type == NLMSG_ERROR) {
				enum rc rc = failed ? failed : ack_rc(h, err);

				return rc;
			}
			if (h->nlmsg_type == NLMSG_DONE)
				return failed;
			if (fn && !failed)
				failed = fn(h, arg, err);
		}
	}
}

enum rc net_ask(struct net *n, struct net_msg *m, net_answer_fn fn, void *arg, struct err *err)
{
	m->nlh->nlmsg_flags |= NLM_F_ACK;
	m->nlh->nlmsg_seq = ++n->seq;

	enum rc rc = net_send_bytes(n, m->nlh, m->nlh->nlmsg_len, err);

	return rc ? rc : net_receive(n, m->nlh->nlmsg_seq, fn, arg, err);
}

enum rc net_talk(struct net *n, struct net_msg *m, struct err *err)
{
	return net_ask(n, m, NULL, NULL, err);
}

enum rc net_dump(struct net *n, struct net_msg *m, net_answer_fn fn, void *arg, struct err *err)
{
	m->nlh->nlmsg_flags |= NLM_F_DUMP;
	m->nlh->nlmsg_seq = ++n->seq;

	enum rc rc = net_send_bytes(n, m->nlh, m->nlh->nlmsg_len, err);

	return rc ? rc : net_receive(n, m->nlh->nlmsg_seq, fn, arg, err);
}

/* ---- batches ---- */

#define BATCH_MSGS 16

struct net_batch {
	struct net *net;
	size_t n_msgs;
	size_t n_bytes;
	bool is_del[BATCH_MSGS];
	char buf[BATCH_MSGS * 256];
};

enum rc net_batch_new(struct net_batch **out, struct net *n, struct err *err)
{
	struct net_batch *b = mem_alloc(sizeof(*b));

	if (!b)
		return err_set(err, RC_NOMEM, "no memory for a netlink batch");
	b->net = n;
	*out = b;
	return RC_OK;
}

struct net_batch *net_batch_free(struct net_batch *b)
{
	return mem_free(b);
}

static enum rc batch_add(struct net_batch *b, const struct net_msg *m, bool is_del, struct err *err)
{
	size_t len = MNL_ALIGN(m->nlh->nlmsg_len);

	if (b->n_msgs == BATCH_MSGS || b->n_bytes + len > sizeof(b->buf))
		return err_set(err, RC_TOO_BIG, "netlink batch is full");
	memcpy(b->buf + b->n_bytes, m->nlh, m->nlh->nlmsg_len);

	struct nlmsghdr *h = (void *)(b->buf + b->n_bytes);

	h->nlmsg_flags |= NLM_F_ACK;
	b->is_del[b->n_msgs++] = is_del;
	b->n_bytes += len;
	return RC_OK;
}

enum rc net_batch_fdb_set(struct net_batch *b, const struct net_fdb *f, struct err *err)
{
	struct net_msg m;
	enum rc rc = net_fdb_build(b->net, f, true, &m, err);

	return rc ? rc : batch_add(b, &m, false, err);
}

enum rc net_batch_fdb_del(struct net_batch *b, const struct net_fdb *f, struct err *err)
{
	struct net_msg m;
	enum rc rc = net_fdb_build(b->net, f, false, &m, err);

	return rc ? rc : batch_add(b, &m, true, err);
}

enum rc net_batch_port_set(struct net_batch *b, const char *name, const struct net_port_set *s,
			   struct err *err)
{
	struct net_msg m;
	enum rc rc = net_port_build(b->net, name, s, &m, err);

	return rc ? rc : batch_add(b, &m, false, err);
}

enum rc net_batch_send(struct net_batch *b, struct err *err)
{
	struct nlmsghdr *h = (void *)b->buf;
	uint32_t first = b->net->seq + 1;
	enum rc rc, failed = RC_OK;

	for (size_t i = 0; i < b->n_msgs; i++) {
		h->nlmsg_seq = ++b->net->seq;
		h = (void *)((char *)h + MNL_ALIGN(h->nlmsg_len));
	}
	rc = net_send_bytes(b->net, b->buf, b->n_bytes, err);
	if (rc)
		return rc;
	for (size_t i = 0; i < b->n_msgs; i++) {
		struct err e = {0};

		rc = net_receive(b->net, first + (uint32_t)i, NULL, NULL, &e);
		if (!rc || (b->is_del[i] && rc == RC_NOT_FOUND) || failed)
			continue;
		failed = rc;
		err_copy(err, &e);
	}
	return failed;
}
