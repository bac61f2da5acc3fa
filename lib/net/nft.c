#include "net/nft.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>

#include <libmnl/libmnl.h>
#include <libnftnl/common.h>
#include <libnftnl/expr.h>
#include <libnftnl/rule.h>
#include <libnftnl/set.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <nftables/libnftables.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "net_int.h"
#include "net/ns.h"
#include "nft_int.h"

/* nft's messages quote the line and point at it: the first line says what is wrong. */
static enum rc nft_said(struct nft_ctx *ctx, struct err *err)
{
	const char *said = nft_ctx_get_error_buffer(ctx);
	size_t n = said ? strcspn(said, "\n") : 0;

	return err_set(err, RC_IO, "nftables refuses: %.*s", (int)MIN(n, 300),
		       n ? said : "no reason given");
}

enum rc net_nft_run(int ns_fd, const char *text, struct err *err)
{
	CLEANUP(net_ns_leave)
	int old = -1;
	enum rc rc = net_ns_enter(ns_fd, &old, err);

	if (rc)
		return rc;

	struct nft_ctx *ctx = nft_ctx_new(NFT_CTX_DEFAULT);

	if (!ctx)
		return err_set(err, RC_NOMEM, "no memory for nftables");
	if (nft_ctx_buffer_output(ctx) || nft_ctx_buffer_error(ctx))
		rc = err_set(err, RC_NOMEM, "no memory for nftables");
	else if (nft_run_cmd_from_buffer(ctx, text))
		rc = nft_said(ctx, err);
	nft_ctx_free(ctx);
	return rc;
}

enum rc net_nft_del_table(int ns_fd, const char *family, const char *table, struct err *err)
{
	char text[200];

	/* "add" first: deleting what is missing would fail. */
	snprintf(text, sizeof(text), "add table %s %s\ndelete table %s %s\n", family, table, family,
		 table);
	return net_nft_run(ns_fd, text, err);
}

/* ---- messages of our own ---- */

enum rc net_nft_family(const char *name, uint8_t *out, struct err *err)
{
	static const struct {
		const char *name;
		uint8_t family;
	} known[] = {{"ip", NFPROTO_IPV4},
		     {"inet", NFPROTO_INET},
		     {"bridge", NFPROTO_BRIDGE},
		     {"netdev", NFPROTO_NETDEV}};

	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (str_eq(name, known[i].name)) {
			*out = known[i].family;
			return RC_OK;
		}
	return err_set(err, RC_INVALID, "'%s' is no nftables family here", name);
}

enum rc net_nft_open(int ns_fd, struct nft_sock *s, struct err *err)
{
	s->fd = -1;
	s->seq = (uint32_t)time(NULL);
	return net_netlink_socket(ns_fd, NETLINK_NETFILTER, &s->fd, err);
}

void net_nft_close(struct nft_sock *s)
{
	s->fd = fd_close(s->fd);
}

struct nlmsghdr *net_nft_begin(struct nft_batch *b, uint8_t family, uint16_t type, uint16_t flags)
{
	mnl_nlmsg_batch_next(b->batch);
	return nftnl_nlmsg_build_hdr(mnl_nlmsg_batch_current(b->batch), type, family, flags, 0);
}

enum rc net_nft_batch_start(struct nft_batch *b, char *buf, size_t size, struct err *err)
{
	b->batch = mnl_nlmsg_batch_start(buf, size);
	if (!b->batch)
		return err_set(err, RC_NOMEM, "no memory for an nftables batch");
	nftnl_batch_begin(mnl_nlmsg_batch_current(b->batch), 0);
	return RC_OK;
}

void net_nft_batch_end(struct nft_batch *b)
{
	mnl_nlmsg_batch_next(b->batch);
	nftnl_batch_end(mnl_nlmsg_batch_current(b->batch), 0);
	mnl_nlmsg_batch_next(b->batch);
}

/* Every message gets a number of its own; the last but one (before the batch's end) is
 * acknowledged, and any message that fails reports itself. */
enum rc net_nft_send(struct nft_sock *s, void *buf, size_t len, struct err *err)
{
	struct sockaddr_nl a = {.nl_family = AF_NETLINK};
	struct nlmsghdr *h = buf, *last = NULL;
	char answer[4096];
	uint32_t first = s->seq + 1;
	int left = (int)len;

	for (; mnl_nlmsg_ok(h, left); h = mnl_nlmsg_next(h, &left)) {
		h->nlmsg_seq = ++s->seq;
		if (h->nlmsg_type != NFNL_MSG_BATCH_END)
			last = h;
	}
	assert(last); /* a batch has at least its beginning */
	last->nlmsg_flags |= NLM_F_ACK;
	if (sendto(s->fd, buf, len, 0, (struct sockaddr *)&a, sizeof(a)) != (ssize_t)len)
		return err_set_sys(err, errno, "cannot send to nftables");
	for (;;) {
		ssize_t got = recv(s->fd, answer, sizeof(answer), 0);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return err_set_sys(err, errno, "no answer from nftables");
		h = (void *)answer;
		if (!mnl_nlmsg_ok(h, (int)got) || h->nlmsg_type != NLMSG_ERROR ||
		    h->nlmsg_seq < first)
			continue;

		const struct nlmsgerr *e = mnl_nlmsg_get_payload(h);

		if (e->error)
			return err_set_sys(err, -e->error, "nftables refuses");
		if (h->nlmsg_seq == last->nlmsg_seq)
			return RC_OK;
	}
}

/* ---- the rule that text cannot say ---- */

static enum rc rule_add_exprs(struct nftnl_rule *r, unsigned offset, struct in_addr value,
			      unsigned csum_offset, struct err *err)
{
	struct nftnl_expr *imm = nftnl_expr_alloc("immediate");
	struct nftnl_expr *set = nftnl_expr_alloc("payload");

	if (!imm || !set) {
		if (imm)
			nftnl_expr_free(imm);
		if (set)
			nftnl_expr_free(set);
		return err_set(err, RC_NOMEM, "no memory for an nftables rule");
	}
	nftnl_expr_set_u32(imm, NFTNL_EXPR_IMM_DREG, NFT_REG_1);
	nftnl_expr_set(imm, NFTNL_EXPR_IMM_DATA, &value.s_addr, sizeof(value.s_addr));
	nftnl_rule_add_expr(r, imm);
	nftnl_expr_set_u32(set, NFTNL_EXPR_PAYLOAD_BASE, NFT_PAYLOAD_TRANSPORT_HEADER);
	nftnl_expr_set_u32(set, NFTNL_EXPR_PAYLOAD_OFFSET, offset);
	nftnl_expr_set_u32(set, NFTNL_EXPR_PAYLOAD_LEN, sizeof(value.s_addr));
	nftnl_expr_set_u32(set, NFTNL_EXPR_PAYLOAD_SREG, NFT_REG_1);
	nftnl_expr_set_u32(set, NFTNL_EXPR_PAYLOAD_CSUM_TYPE, NFT_PAYLOAD_CSUM_INET);
	nftnl_expr_set_u32(set, NFTNL_EXPR_PAYLOAD_CSUM_OFFSET, csum_offset);
	nftnl_rule_add_expr(r, set);
	return RC_OK;
}

enum rc net_nft_add_inner_rewrite(int ns_fd, const char *table, const char *chain, unsigned offset,
				  struct in_addr value, unsigned csum_offset, struct err *err)
{
	CLEANUP(net_nft_close)
	struct nft_sock s = {.fd = -1};
	struct nft_batch b;
	char buf[4096];
	struct nftnl_rule *r = nftnl_rule_alloc();
	enum rc rc;

	if (!r)
		return err_set(err, RC_NOMEM, "no memory for an nftables rule");
	nftnl_rule_set_u32(r, NFTNL_RULE_FAMILY, NFPROTO_IPV4);
	nftnl_rule_set_str(r, NFTNL_RULE_TABLE, table);
	nftnl_rule_set_str(r, NFTNL_RULE_CHAIN, chain);
	rc = rule_add_exprs(r, offset, value, csum_offset, err);
	if (!rc)
		rc = net_nft_open(ns_fd, &s, err);
	if (!rc)
		rc = net_nft_batch_start(&b, buf, sizeof(buf), err);
	if (!rc) {
		nftnl_rule_nlmsg_build_payload(net_nft_begin(&b, NFPROTO_IPV4, NFT_MSG_NEWRULE,
							     NLM_F_CREATE | NLM_F_APPEND),
					       r);
		net_nft_batch_end(&b);
		rc = net_nft_send(&s, mnl_nlmsg_batch_head(b.batch), mnl_nlmsg_batch_size(b.batch),
				  err);
		mnl_nlmsg_batch_stop(b.batch);
		if (rc)
			net_fail(rc, err, "cannot add the rewriting of inner headers to '%s %s'",
				 table, chain);
	}
	nftnl_rule_free(r);
	return rc;
}

/* ---- sets ---- */

struct set_walk {
	net_nft_elem_fn fn;
	void *arg;
	struct err *err;
	enum rc rc;
};

static int set_elem(struct nftnl_set_elem *e, void *arg)
{
	struct set_walk *w = arg;
	struct net_nft_elem out = {0};
	uint32_t n = 0;
	const void *key = nftnl_set_elem_get(e, NFTNL_SET_ELEM_KEY, &n);

	if (!key || n > sizeof(out.key))
		return 0;
	memcpy(out.key, key, n);
	out.n_key = n;
	if (nftnl_set_elem_is_set(e, NFTNL_SET_ELEM_TIMEOUT))
		out.timeout_ms = nftnl_set_elem_get_u64(e, NFTNL_SET_ELEM_TIMEOUT);
	if (nftnl_set_elem_is_set(e, NFTNL_SET_ELEM_EXPIRATION))
		out.expires_ms = nftnl_set_elem_get_u64(e, NFTNL_SET_ELEM_EXPIRATION);
	w->rc = w->fn(&out, w->arg, w->err);
	return w->rc ? -1 : 0;
}

static enum rc set_answer(const struct nlmsghdr *h, struct set_walk *w)
{
	struct nftnl_set *s = nftnl_set_alloc();

	if (!s)
		return err_set(w->err, RC_NOMEM, "no memory for a set");
	if (nftnl_set_elems_nlmsg_parse(h, s) == 0)
		nftnl_set_elem_foreach(s, set_elem, w);
	nftnl_set_free(s);
	return w->rc;
}

static struct nftnl_set *set_named(const char *table, const char *set)
{
	struct nftnl_set *s = nftnl_set_alloc();

	if (s) {
		nftnl_set_set_str(s, NFTNL_SET_TABLE, table);
		nftnl_set_set_str(s, NFTNL_SET_NAME, set);
	}
	return s;
}

static enum rc set_read(struct nft_sock *s, uint32_t seq, struct set_walk *w)
{
	CLEANUP(mem_freep)
	char *buf = mem_alloc(NET_RECV_BYTES);

	if (!buf)
		return err_set(w->err, RC_NOMEM, "no memory for a set");
	for (;;) {
		ssize_t got = recv(s->fd, buf, NET_RECV_BYTES, 0);
		int left = (int)got;

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return err_set_sys(w->err, errno, "no answer from nftables");
		for (const struct nlmsghdr *h = (const void *)buf; mnl_nlmsg_ok(h, left);
		     h = mnl_nlmsg_next(h, &left)) {
			if (h->nlmsg_seq != seq)
				continue;
			if (h->nlmsg_type == NLMSG_DONE)
				return w->rc;
			if (h->nlmsg_type == NLMSG_ERROR) {
				const struct nlmsgerr *e = mnl_nlmsg_get_payload(h);

				return e->error ? err_set_sys(w->err, -e->error,
							      "cannot list the set")
						: w->rc;
			}
			if (!w->rc)
				w->rc = set_answer(h, w);
		}
	}
}

enum rc net_nft_set_list(int ns_fd, const char *family, const char *table, const char *set,
			 net_nft_elem_fn fn, void *arg, struct err *err)
{
	CLEANUP(net_nft_close)
	struct nft_sock s = {.fd = -1};
	struct set_walk w = {.fn = fn, .arg = arg, .err = err};
	struct sockaddr_nl a = {.nl_family = AF_NETLINK};
	char buf[1024];
	uint8_t fam;
	enum rc rc = net_nft_family(family, &fam, err);

	if (!rc)
		rc = net_nft_open(ns_fd, &s, err);
	if (rc)
		return rc;

	struct nftnl_set *q = set_named(table, set);
	struct nlmsghdr *h =
		nftnl_nlmsg_build_hdr(buf, NFT_MSG_GETSETELEM, fam, NLM_F_DUMP, ++s.seq);

	if (!q)
		return err_set(err, RC_NOMEM, "no memory for a set");
	nftnl_set_elems_nlmsg_build_payload(h, q);
	nftnl_set_free(q);
	if (sendto(s.fd, h, h->nlmsg_len, 0, (struct sockaddr *)&a, sizeof(a)) < 0)
		return err_set_sys(err, errno, "cannot ask nftables for a set");
	rc = set_read(&s, s.seq, &w);
	return rc ? net_fail(rc, err, "set '%s'", set) : RC_OK;
}

static bool set_fill(struct nftnl_set *s, const struct net_nft_elem *elems, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct nftnl_set_elem *e = nftnl_set_elem_alloc();

		if (!e)
			return false;
		nftnl_set_elem_set(e, NFTNL_SET_ELEM_KEY, elems[i].key, (uint32_t)elems[i].n_key);
		if (elems[i].timeout_ms)
			nftnl_set_elem_set_u64(e, NFTNL_SET_ELEM_TIMEOUT, elems[i].timeout_ms);
		if (elems[i].expires_ms)
			nftnl_set_elem_set_u64(e, NFTNL_SET_ELEM_EXPIRATION, elems[i].expires_ms);
		nftnl_set_elem_add(s, e);
	}
	return true;
}

#define SET_ADD_STEP 128 /* elements per message */

static enum rc set_add_some(struct nft_sock *s, uint8_t fam, const char *table, const char *set,
			    const struct net_nft_elem *elems, size_t n, struct err *err)
{
	struct nft_batch b;
	CLEANUP(mem_freep)
	char *buf = mem_alloc(NET_RECV_BYTES);
	struct nftnl_set *q = buf ? set_named(table, set) : NULL;
	enum rc rc;

	if (!q || !set_fill(q, elems, n)) {
		if (q)
			nftnl_set_free(q);
		return err_set(err, RC_NOMEM, "no memory for a set");
	}
	rc = net_nft_batch_start(&b, buf, NET_RECV_BYTES, err);
	if (!rc) {
		nftnl_set_elems_nlmsg_build_payload(
			net_nft_begin(&b, fam, NFT_MSG_NEWSETELEM, NLM_F_CREATE), q);
		net_nft_batch_end(&b);
		rc = net_nft_send(s, mnl_nlmsg_batch_head(b.batch), mnl_nlmsg_batch_size(b.batch),
				  err);
		mnl_nlmsg_batch_stop(b.batch);
	}
	nftnl_set_free(q);
	return rc;
}

enum rc net_nft_set_add(int ns_fd, const char *family, const char *table, const char *set,
			const struct net_nft_elem *elems, size_t n, struct err *err)
{
	CLEANUP(net_nft_close)
	struct nft_sock s = {.fd = -1};
	uint8_t fam;
	enum rc rc = net_nft_family(family, &fam, err);

	if (!rc)
		rc = net_nft_open(ns_fd, &s, err);
	for (size_t i = 0; !rc && i < n; i += SET_ADD_STEP)
		rc = set_add_some(&s, fam, table, set, elems + i, MIN(n - i, (size_t)SET_ADD_STEP),
				  err);
	return rc ? net_fail(rc, err, "set '%s'", set) : RC_OK;
}
