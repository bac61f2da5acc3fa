#include "net/steer.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>

#include <libnftnl/common.h>
#include <libnftnl/set.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "net/nft.h"
#include "net_int.h"
#include "nft_int.h"

#define STEER_MSG_BYTES 1024

struct steer {
	struct nft_sock sock;
	size_t n_on, n_off;
	char on[STEER_MSG_BYTES];
	char off[STEER_MSG_BYTES];
};

static void table_name(const char *dev, char out[32])
{
	snprintf(out, 32, "ferry_%s", dev);
}

enum rc net_steer_init(int ns_fd, const char *dev, bool reset, struct err *err)
{
	char t[32], text[700];

	table_name(dev, t);
	/* The chain is made anew each time, so that it hangs on the device that has the name
	 * now. */
	snprintf(text, sizeof(text),
		 "add table netdev %s\n%s%s%s"
		 "table netdev %s {\n"
		 "\tmap steer { type ether_addr : iface_index; flags timeout; }\n"
		 "\tchain in {\n"
		 "\t\ttype filter hook ingress device \"%s\" priority 0; policy accept;\n"
		 "\t}\n"
		 "}\n"
		 "flush chain netdev %s in\n"
		 "add rule netdev %s in fwd to ether daddr map @steer\n",
		 t, reset ? "delete table netdev " : "", reset ? t : "", reset ? "\n" : "", t, dev,
		 t, t);

	enum rc rc = net_nft_run(ns_fd, text, err);

	return rc ? net_fail(rc, err, "steering on '%s'", dev) : RC_OK;
}

enum rc net_steer_drop(int ns_fd, const char *dev, struct err *err)
{
	char t[32];

	table_name(dev, t);
	return net_nft_del_table(ns_fd, "netdev", t, err);
}

struct steer_sweep {
	const char *table;
	bool (*keep)(struct net_mac mac, void *arg);
	void *arg;
	struct sbuf text;
};

static enum rc sweep_one(const struct net_nft_elem *e, void *arg, struct err *err)
{
	struct steer_sweep *s = arg;
	struct net_mac mac;
	char text[NET_MAC_TEXT];

	(void)err;
	if (e->n_key < sizeof(mac.b))
		return RC_OK;
	memcpy(mac.b, e->key, sizeof(mac.b));
	if (!s->keep(mac, s->arg))
		sbuf_addf(&s->text, "delete element netdev %s steer { %s }\n", s->table,
			  net_mac_format(mac, text));
	return RC_OK;
}

enum rc net_steer_sweep(int ns_fd, const char *dev, bool (*keep)(struct net_mac mac, void *arg),
			void *arg, struct err *err)
{
	struct steer_sweep s = {.keep = keep, .arg = arg, .text = SBUF_INIT(1024 * KIB)};
	struct err why = {0};
	char t[32];

	table_name(dev, t);
	s.table = t;
	enum rc rc = net_nft_set_list(ns_fd, "netdev", t, "steer", sweep_one, &s, &why);

	if (!rc)
		rc = sbuf_rc(&s.text);
	if (!rc && s.text.n)
		rc = net_nft_run(ns_fd, sbuf_str(&s.text), &why);
	sbuf_fini(&s.text);
	if (!rc || rc == RC_NOT_FOUND)
		return RC_OK;
	err_copy(err, &why);
	return net_fail(rc, err, "steering on '%s'", dev);
}

static enum rc steer_build(const char *table, struct net_mac mac, uint32_t out, uint64_t ttl_ms,
			   bool on, char *buf, size_t *n, struct err *err)
{
	struct nft_batch b;
	struct nftnl_set *s = nftnl_set_alloc();
	struct nftnl_set_elem *e = nftnl_set_elem_alloc();
	enum rc rc = RC_OK;

	if (!s || !e) {
		if (s)
			nftnl_set_free(s);
		if (e)
			nftnl_set_elem_free(e);
		return err_set(err, RC_NOMEM, "no memory for steering");
	}
	nftnl_set_set_str(s, NFTNL_SET_TABLE, table);
	nftnl_set_set_str(s, NFTNL_SET_NAME, "steer");
	nftnl_set_elem_set(e, NFTNL_SET_ELEM_KEY, mac.b, sizeof(mac.b));
	if (on) {
		nftnl_set_elem_set(e, NFTNL_SET_ELEM_DATA, &out, sizeof(out));
		if (ttl_ms)
			nftnl_set_elem_set_u64(e, NFTNL_SET_ELEM_TIMEOUT, ttl_ms);
	}
	nftnl_set_elem_add(s, e);
	rc = net_nft_batch_start(&b, buf, STEER_MSG_BYTES, err);
	if (!rc) {
		struct nlmsghdr *h = net_nft_begin(&b, NFPROTO_NETDEV,
						   on ? NFT_MSG_NEWSETELEM : NFT_MSG_DELSETELEM,
						   on ? NLM_F_CREATE : 0);

		nftnl_set_elems_nlmsg_build_payload(h, s);
		net_nft_batch_end(&b);
		*n = mnl_nlmsg_batch_size(b.batch);
		mnl_nlmsg_batch_stop(b.batch);
	}
	nftnl_set_free(s);
	return rc;
}

enum rc net_steer_new(struct steer **out, int ns_fd, const char *dev, struct net_mac mac,
		      const char *out_dev, usec_t ttl, struct err *err)
{
	CLEANUP(net_freep)
	struct net *n = NULL;
	CLEANUP(net_steer_freep)
	struct steer *s = mem_alloc(sizeof(*s));
	char t[32];
	int index = 0;
	enum rc rc;

	if (!s)
		return err_set(err, RC_NOMEM, "no memory for steering");
	s->sock.fd = -1;
	table_name(dev, t);
	rc = net_open(&n, ns_fd, err);
	if (!rc)
		rc = net_ifindex(n, out_dev, &index, err);
	if (!rc)
		rc = net_nft_open(ns_fd, &s->sock, err);
	if (!rc)
		rc = steer_build(t, mac, (uint32_t)index, ttl / 1000, true, s->on, &s->n_on, err);
	if (!rc)
		rc = steer_build(t, mac, 0, 0, false, s->off, &s->n_off, err);
	if (rc)
		return rc;
	*out = STEAL(s);
	return RC_OK;
}

struct steer *net_steer_free(struct steer *s)
{
	if (!s)
		return NULL;
	net_nft_close(&s->sock);
	return mem_free(s);
}

enum rc net_steer_off(struct steer *s, struct err *err)
{
	struct err e = {0};
	enum rc rc = net_nft_send(&s->sock, s->off, s->n_off, &e);

	if (!rc || rc == RC_NOT_FOUND)
		return RC_OK;
	err_copy(err, &e);
	return net_fail(rc, err, "cannot end steering");
}

enum rc net_steer_on(struct steer *s, struct err *err)
{
	struct err e = {0};
	enum rc rc = net_nft_send(&s->sock, s->on, s->n_on, &e);

	if (rc == RC_EXISTS || e.sys == EBUSY) {
		/* Another way out stands there (an earlier move's): the new one takes its place. */
		err_clear(&e);
		rc = net_steer_off(s, &e);
		if (!rc)
			rc = net_nft_send(&s->sock, s->on, s->n_on, &e);
	}
	if (!rc)
		return RC_OK;
	err_copy(err, &e);
	return net_fail(rc, err, "cannot steer frames");
}
