/* Addresses, routes, rules, neighbours, forwarding entries. */
#include "net_int.h"

#include <errno.h>
#include <stdio.h>

#include <linux/fib_rules.h>
#include <linux/if_addr.h>
#include <linux/neighbour.h>

#include "base/str.h"

static enum rc addr_build(struct net *n, const char *dev, struct in_addr a, unsigned prefix,
			  bool add, struct net_msg *m, struct err *err)
{
	int index = 0;
	enum rc rc = net_ifindex(n, dev, &index, err);

	if (rc)
		return rc;

	struct ifaddrmsg *ifa = net_msg_init(m, add ? RTM_NEWADDR : RTM_DELADDR,
					     add ? NLM_F_CREATE | NLM_F_REPLACE : 0, sizeof(*ifa));

	ifa->ifa_family = AF_INET;
	ifa->ifa_prefixlen = (uint8_t)prefix;
	ifa->ifa_index = (uint32_t)index;
	net_put_addr(m, IFA_LOCAL, a);
	net_put_addr(m, IFA_ADDRESS, a);
	return RC_OK;
}

enum rc net_addr_add(struct net *n, const char *dev, struct in_addr a, unsigned prefix,
		     struct err *err)
{
	struct net_msg m;
	char text[NET_IP4_TEXT];
	enum rc rc = addr_build(n, dev, a, prefix, true, &m, err);

	if (!rc)
		rc = net_talk(n, &m, err);
	if (rc)
		return net_fail(rc, err, "cannot give '%s' the address %s/%u", dev,
				net_ip4_format(a, text), prefix);
	return RC_OK;
}

enum rc net_addr_del(struct net *n, const char *dev, struct in_addr a, unsigned prefix,
		     struct err *err)
{
	struct net_msg m;
	struct err e = {0};
	char text[NET_IP4_TEXT];
	enum rc rc = addr_build(n, dev, a, prefix, false, &m, &e);

	if (!rc)
		rc = net_talk(n, &m, &e);
	if (!rc || rc == RC_NOT_FOUND || e.sys == EADDRNOTAVAIL)
		return RC_OK;
	err_copy(err, &e);
	return net_fail(rc, err, "cannot take the address %s/%u from '%s'", net_ip4_format(a, text),
			prefix, dev);
}

struct addr_find {
	struct in_addr want;
	int index;
};

static enum rc addr_match(const struct nlmsghdr *h, void *arg, struct err *err)
{
	const struct ifaddrmsg *ifa = mnl_nlmsg_get_payload(h);
	struct addr_find *f = arg;
	const struct nlattr *a;

	(void)err;
	if (h->nlmsg_type != RTM_NEWADDR || ifa->ifa_family != AF_INET)
		return RC_OK;
	mnl_attr_for_each(a, h, sizeof(*ifa)) if (mnl_attr_get_type(a) == IFA_LOCAL &&
						  mnl_attr_get_u32(a) == f->want.s_addr) f->index =
		(int)ifa->ifa_index;
	return RC_OK;
}

struct name_find {
	int index;
	char *name;
};

static enum rc name_match(const struct net_link *l, void *arg, struct err *err)
{
	struct name_find *f = arg;

	(void)err;
	if (l->index == f->index)
		snprintf(f->name, NET_IFNAME, "%s", l->name);
	return RC_OK;
}

enum rc net_addr_find(struct net *n, struct in_addr a, char dev[NET_IFNAME], struct err *err)
{
	struct net_msg m;
	struct addr_find f = {.want = a};
	char text[NET_IP4_TEXT], name[NET_IFNAME] = "";
	struct ifaddrmsg *ifa = net_msg_init(&m, RTM_GETADDR, 0, sizeof(*ifa));

	ifa->ifa_family = AF_INET;

	enum rc rc = net_dump(n, &m, addr_match, &f, err);

	if (!rc && f.index) {
		struct name_find nf = {f.index, name};

		rc = net_link_list(n, name_match, &nf, err);
	}
	if (rc)
		return rc;
	if (!name[0])
		return err_set(err, RC_NOT_FOUND, "no link has the address %s",
			       net_ip4_format(a, text));
	memcpy(dev, name, NET_IFNAME);
	return RC_OK;
}

/* ---- routes ---- */

static enum rc route_build(struct net *n, const struct net_route *r, bool add, struct net_msg *m,
			   struct err *err)
{
	int index = 0;
	enum rc rc = r->dev ? net_ifindex(n, r->dev, &index, err) : RC_OK;

	if (rc)
		return rc;

	struct rtmsg *rt = net_msg_init(m, add ? RTM_NEWROUTE : RTM_DELROUTE,
					add ? NLM_F_CREATE | NLM_F_REPLACE : 0, sizeof(*rt));
	unsigned table = r->table ? r->table : RT_TABLE_MAIN;

	rt->rtm_family = AF_INET;
	rt->rtm_dst_len = (uint8_t)r->prefix;
	rt->rtm_table = table < 256 ? (uint8_t)table : RT_TABLE_UNSPEC;
	rt->rtm_protocol = RTPROT_STATIC;
	rt->rtm_scope = !add			  ? RT_SCOPE_NOWHERE
			: net_ip4_is_none(r->via) ? RT_SCOPE_LINK
						  : RT_SCOPE_UNIVERSE;
	rt->rtm_type = RTN_UNICAST;
	rt->rtm_flags = r->is_onlink ? RTNH_F_ONLINK : 0;
	mnl_attr_put_u32(m->nlh, RTA_TABLE, table);
	if (r->prefix)
		net_put_addr(m, RTA_DST, r->dst);
	if (!net_ip4_is_none(r->via))
		net_put_addr(m, RTA_GATEWAY, r->via);
	if (!net_ip4_is_none(r->src))
		net_put_addr(m, RTA_PREFSRC, r->src);
	if (index)
		mnl_attr_put_u32(m->nlh, RTA_OIF, (uint32_t)index);
	return RC_OK;
}

enum rc net_route_set(struct net *n, const struct net_route *r, struct err *err)
{
	struct net_msg m;
	char text[NET_IP4_TEXT];
	enum rc rc = route_build(n, r, true, &m, err);

	if (!rc)
		rc = net_talk(n, &m, err);
	if (rc)
		return net_fail(rc, err, "cannot route %s/%u", net_ip4_format(r->dst, text),
				r->prefix);
	return RC_OK;
}

enum rc net_route_del(struct net *n, const struct net_route *r, struct err *err)
{
	struct net_msg m;
	struct err e = {0};
	char text[NET_IP4_TEXT];
	enum rc rc = route_build(n, r, false, &m, &e);

	if (!rc)
		rc = net_talk(n, &m, &e);
	if (!rc || rc == RC_NOT_FOUND)
		return RC_OK;
	err_copy(err, &e);
	return net_fail(rc, err, "cannot remove the route to %s/%u", net_ip4_format(r->dst, text),
			r->prefix);
}

enum rc net_rule_uid_set(struct net *n, uid_t uid, unsigned table, unsigned priority,
			 struct err *err)
{
	struct net_msg m;
	struct fib_rule_uid_range range = {uid, uid};
	struct err e = {0};
	struct fib_rule_hdr *r =
		net_msg_init(&m, RTM_NEWRULE, NLM_F_CREATE | NLM_F_EXCL, sizeof(*r));

	r->family = AF_INET;
	r->table = table < 256 ? (uint8_t)table : RT_TABLE_UNSPEC;
	r->action = FR_ACT_TO_TBL;
	mnl_attr_put_u32(m.nlh, FRA_TABLE, table);
	mnl_attr_put_u32(m.nlh, FRA_PRIORITY, priority);
	mnl_attr_put(m.nlh, FRA_UID_RANGE, sizeof(range), &range);

	enum rc rc = net_talk(n, &m, &e);

	if (!rc || rc == RC_EXISTS)
		return RC_OK;
	err_copy(err, &e);
	return net_fail(rc, err, "cannot add a routing rule for uid %u", uid);
}

/* ---- neighbours ---- */

static enum rc neigh_build(struct net *n, const char *dev, struct in_addr a,
			   const struct net_mac *mac, struct net_msg *m, struct err *err)
{
	int index = 0;
	enum rc rc = net_ifindex(n, dev, &index, err);

	if (rc)
		return rc;

	struct ndmsg *nd = net_msg_init(m, mac ? RTM_NEWNEIGH : RTM_DELNEIGH,
					mac ? NLM_F_CREATE | NLM_F_REPLACE : 0, sizeof(*nd));

	nd->ndm_family = AF_INET;
	nd->ndm_ifindex = index;
	nd->ndm_state = NUD_PERMANENT;
	net_put_addr(m, NDA_DST, a);
	if (mac)
		net_put_mac(m, NDA_LLADDR, *mac);
	return RC_OK;
}

enum rc net_neigh_set(struct net *n, const char *dev, struct in_addr a, struct net_mac mac,
		      struct err *err)
{
	struct net_msg m;
	char text[NET_IP4_TEXT];
	enum rc rc = neigh_build(n, dev, a, &mac, &m, err);

	if (!rc)
		rc = net_talk(n, &m, err);
	return rc ? net_fail(rc, err, "cannot set neighbour %s on '%s'", net_ip4_format(a, text),
			     dev)
		  : RC_OK;
}

enum rc net_neigh_del(struct net *n, const char *dev, struct in_addr a, struct err *err)
{
	struct net_msg m;
	struct err e = {0};
	char text[NET_IP4_TEXT];
	enum rc rc = neigh_build(n, dev, a, NULL, &m, &e);

	if (!rc)
		rc = net_talk(n, &m, &e);
	if (!rc || rc == RC_NOT_FOUND)
		return RC_OK;
	err_copy(err, &e);
	return net_fail(rc, err, "cannot remove neighbour %s on '%s'", net_ip4_format(a, text),
			dev);
}

struct neigh_list {
	int index;
	net_neigh_fn fn;
	void *arg;
};

static enum rc neigh_one(const struct nlmsghdr *h, void *arg, struct err *err)
{
	const struct neigh_list *l = arg;
	const struct ndmsg *nd = mnl_nlmsg_get_payload(h);
	const struct nlattr *a;
	struct in_addr dst = {0};
	struct net_mac mac = {0};

	if (h->nlmsg_type != RTM_NEWNEIGH || nd->ndm_ifindex != l->index ||
	    !(nd->ndm_state & NUD_PERMANENT))
		return RC_OK;
	mnl_attr_for_each(a, h, sizeof(*nd))
	{
		if (mnl_attr_get_type(a) == NDA_DST && mnl_attr_get_payload_len(a) == 4)
			memcpy(&dst, mnl_attr_get_payload(a), 4);
		if (mnl_attr_get_type(a) == NDA_LLADDR && mnl_attr_get_payload_len(a) == 6)
			memcpy(mac.b, mnl_attr_get_payload(a), 6);
	}
	return l->fn(dst, mac, l->arg, err);
}

enum rc net_neigh_list(struct net *n, const char *dev, net_neigh_fn fn, void *arg, struct err *err)
{
	struct net_msg m;
	struct neigh_list l = {.fn = fn, .arg = arg};
	enum rc rc = net_ifindex(n, dev, &l.index, err);

	if (rc)
		return rc;

	struct ndmsg *nd = net_msg_init(&m, RTM_GETNEIGH, 0, sizeof(*nd));

	nd->ndm_family = AF_INET;
	rc = net_dump(n, &m, neigh_one, &l, err);
	return rc ? net_fail(rc, err, "cannot list neighbours of '%s'", dev) : RC_OK;
}

/* ---- forwarding entries ---- */

enum rc net_fdb_build(struct net *n, const struct net_fdb *f, bool add, struct net_msg *m,
		      struct err *err)
{
	int index = 0;
	enum rc rc = net_ifindex(n, f->dev, &index, err);
	/* FLOOD: one MAC (zero) with several nodes; the others: one entry that is moved. */
	uint16_t how = f->kind == NET_FDB_FLOOD ? NLM_F_APPEND : NLM_F_REPLACE;

	if (rc)
		return rc;

	struct ndmsg *nd = net_msg_init(m, add ? RTM_NEWNEIGH : RTM_DELNEIGH,
					add ? (uint16_t)(NLM_F_CREATE | how) : 0, sizeof(*nd));

	nd->ndm_family = AF_BRIDGE;
	nd->ndm_ifindex = index;
	nd->ndm_flags = f->kind == NET_FDB_PORT ? NTF_MASTER : NTF_SELF;
	nd->ndm_state = f->kind == NET_FDB_PORT ? NUD_NOARP : NUD_NOARP | NUD_PERMANENT;
	net_put_mac(m, NDA_LLADDR, f->mac);
	if (f->kind != NET_FDB_PORT && (add || f->kind == NET_FDB_FLOOD))
		net_put_addr(m, NDA_DST, f->dst);
	return RC_OK;
}

static enum rc fdb_fail(enum rc rc, const struct net_fdb *f, const char *verb, struct err *err)
{
	char mac[NET_MAC_TEXT];

	return net_fail(rc, err, "cannot %s forwarding of %s on '%s'", verb,
			net_mac_format(f->mac, mac), f->dev);
}

enum rc net_fdb_set(struct net *n, const struct net_fdb *f, struct err *err)
{
	struct net_msg m;
	enum rc rc = net_fdb_build(n, f, true, &m, err);

	if (!rc)
		rc = net_talk(n, &m, err);
	return rc ? fdb_fail(rc, f, "set", err) : RC_OK;
}

enum rc net_fdb_del(struct net *n, const struct net_fdb *f, struct err *err)
{
	struct net_msg m;
	struct err e = {0};
	enum rc rc = net_fdb_build(n, f, false, &m, &e);

	if (!rc)
		rc = net_talk(n, &m, &e);
	if (!rc || rc == RC_NOT_FOUND)
		return RC_OK;
	err_copy(err, &e);
	return fdb_fail(rc, f, "remove", err);
}

struct fdb_list {
	int index;
	const char *dev;
	net_fdb_fn fn;
	void *arg;
};

static enum rc fdb_one(const struct nlmsghdr *h, void *arg, struct err *err)
{
	const struct fdb_list *l = arg;
	const struct ndmsg *nd = mnl_nlmsg_get_payload(h);
	struct net_fdb f = {.dev = l->dev, .kind = NET_FDB_PORT};
	const struct nlattr *a;

	if (h->nlmsg_type != RTM_NEWNEIGH || nd->ndm_family != AF_BRIDGE ||
	    nd->ndm_ifindex != l->index)
		return RC_OK;
	mnl_attr_for_each(a, h, sizeof(*nd))
	{
		if (mnl_attr_get_type(a) == NDA_DST && mnl_attr_get_payload_len(a) == 4)
			memcpy(&f.dst, mnl_attr_get_payload(a), 4);
		if (mnl_attr_get_type(a) == NDA_LLADDR && mnl_attr_get_payload_len(a) == 6)
			memcpy(f.mac.b, mnl_attr_get_payload(a), 6);
	}
	if (nd->ndm_flags & NTF_SELF) {
		if (net_ip4_is_none(f.dst))
			return RC_OK; /* a multicast address that the link listens to */
		f.kind = net_mac_is_zero(f.mac) ? NET_FDB_FLOOD : NET_FDB_REMOTE;
	} else if (nd->ndm_state & NUD_PERMANENT) {
		return RC_OK; /* the port's own MAC */
	}
	return l->fn(&f, l->arg, err);
}

enum rc net_fdb_list(struct net *n, const char *dev, net_fdb_fn fn, void *arg, struct err *err)
{
	struct net_msg m;
	struct fdb_list l = {.dev = dev, .fn = fn, .arg = arg};
	enum rc rc = net_ifindex(n, dev, &l.index, err);

	if (rc)
		return rc;

	struct ifinfomsg *ifi = net_msg_init(&m, RTM_GETNEIGH, 0, sizeof(*ifi));

	ifi->ifi_family = AF_BRIDGE;
	rc = net_dump(n, &m, fdb_one, &l, err);
	return rc ? net_fail(rc, err, "cannot list forwarding of '%s'", dev) : RC_OK;
}
