#include "net/tcp.h"

#include <errno.h>

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>

#include "base/mem.h"
#include "net_int.h"

struct found {
	struct in_addr peer;
	struct inet_diag_sockid *ids;
	size_t n, cap;
};

static void put_request(struct net_msg *m, uint16_t type, const struct inet_diag_sockid *id)
{
	struct inet_diag_req_v2 *req = net_msg_init(m, type, 0, sizeof(*req));

	req->sdiag_family = AF_INET;
	req->sdiag_protocol = IPPROTO_TCP;
	req->idiag_states = UINT32_MAX;
	if (id)
		req->id = *id;
}

static enum rc on_connection(const struct nlmsghdr *h, void *arg, struct err *err)
{
	const struct inet_diag_msg *msg = mnl_nlmsg_get_payload(h);
	struct found *f = arg;

	if (mnl_nlmsg_get_payload_len(h) < sizeof(*msg) || msg->id.idiag_dst[0] != f->peer.s_addr)
		return RC_OK;
	if (!mem_grow((void **)&f->ids, &f->cap, f->n, sizeof(*f->ids)))
		return err_set(err, RC_NOMEM, "out of memory");
	f->ids[f->n++] = msg->id;
	return RC_OK;
}

static enum rc destroy(struct net *n, const struct inet_diag_sockid *id, struct err *err)
{
	struct net_msg m;
	struct err why = {0};

	put_request(&m, SOCK_DESTROY, id);
	enum rc rc = net_talk(n, &m, &why);

	if (!rc || why.sys == ENOENT) /* it has ended by itself since */
		return RC_OK;
	if (why.sys == EOPNOTSUPP)
		return err_set(err, RC_UNSUPPORTED,
			       "this kernel lets nobody end a connection (INET_DIAG_DESTROY)");
	err_copy(err, &why);
	return rc;
}

enum rc net_tcp_abort(int ns_fd, struct in_addr peer, unsigned *n, struct err *err)
{
	CLEANUP(net_freep) struct net *diag = NULL;
	struct found f = {.peer = peer};
	struct net_msg m;
	enum rc rc = net_open_protocol(&diag, ns_fd, NETLINK_SOCK_DIAG, err);

	put_request(&m, SOCK_DIAG_BY_FAMILY, NULL);
	if (!rc)
		rc = net_dump(diag, &m, on_connection, &f, err);
	for (size_t i = 0; i < f.n && !rc; i++)
		rc = destroy(diag, &f.ids[i], err);
	mem_free(f.ids);
	if (n)
		*n = rc ? 0 : (unsigned)f.n;
	return rc ? net_fail(rc, err, "cannot end TCP connections") : RC_OK;
}
