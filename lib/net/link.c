#include "net_int.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <linux/if_bridge.h>
#include <linux/if_link.h>
#include <linux/if_tun.h>
#include <linux/veth.h>

#include "base/file.h"
#include "base/str.h"
#include "net/ns.h"

static enum rc name_check(const char *name, struct err *err)
{
	if (str_is_empty(name) || strlen(name) >= NET_IFNAME || strpbrk(name, "/: \t\n"))
		return err_set(err, RC_INVALID, "'%.40s' cannot name a link", name ? name : "");
	return RC_OK;
}

static void link_from_info(const struct nlattr *info, struct net_link *l)
{
	const struct nlattr *a;

	mnl_attr_for_each_nested(a, info) if (mnl_attr_get_type(a) == IFLA_INFO_KIND)
		snprintf(l->kind, sizeof(l->kind), "%s", mnl_attr_get_str(a));
}

static void link_from_msg(const struct nlmsghdr *h, struct net_link *l)
{
	const struct ifinfomsg *ifi = mnl_nlmsg_get_payload(h);
	const struct nlattr *a;

	memset(l, 0, sizeof(*l));
	l->index = ifi->ifi_index;
	l->is_up = ifi->ifi_flags & IFF_UP;
	mnl_attr_for_each(a, h, sizeof(*ifi))
	{
		switch (mnl_attr_get_type(a)) {
		case IFLA_IFNAME:
			snprintf(l->name, sizeof(l->name), "%s", mnl_attr_get_str(a));
			break;
		case IFLA_ADDRESS:
			if (mnl_attr_get_payload_len(a) == 6)
				memcpy(l->mac.b, mnl_attr_get_payload(a), 6);
			break;
		case IFLA_MTU:
			l->mtu = mnl_attr_get_u32(a);
			break;
		case IFLA_TXQLEN:
			l->txqlen = mnl_attr_get_u32(a);
			break;
		case IFLA_MASTER:
			l->master = (int)mnl_attr_get_u32(a);
			break;
		case IFLA_CARRIER:
			l->has_carrier = mnl_attr_get_u8(a);
			break;
		case IFLA_STATS64:
			/* Aligned to four bytes only. */
			memcpy(&l->n_sent,
			       (const char *)mnl_attr_get_payload(a) +
				       offsetof(struct rtnl_link_stats64, tx_packets),
			       sizeof(l->n_sent));
			break;
		case IFLA_LINKINFO:
			link_from_info(a, l);
			break;
		}
	}
}

static enum rc take_link(const struct nlmsghdr *h, void *arg, struct err *err)
{
	(void)err;
	if (h->nlmsg_type == RTM_NEWLINK)
		link_from_msg(h, arg);
	return RC_OK;
}

enum rc net_link_get(struct net *n, const char *name, struct net_link *out, struct err *err)
{
	struct net_msg m;
	struct net_link l = {0};
	enum rc rc = name_check(name, err);

	if (rc)
		return rc;
	net_msg_init(&m, RTM_GETLINK, 0, sizeof(struct ifinfomsg));
	mnl_attr_put_strz(m.nlh, IFLA_IFNAME, name);
	rc = net_ask(n, &m, take_link, &l, err);
	if (rc)
		return net_fail(rc, err, "link '%s'", name);
	*out = l;
	return RC_OK;
}

enum rc net_ifindex(struct net *n, const char *name, int *out, struct err *err)
{
	struct net_link l = {0};
	enum rc rc = net_link_get(n, name, &l, err);

	if (!rc)
		*out = l.index;
	return rc;
}

struct list_arg {
	net_link_fn fn;
	void *arg;
};

static enum rc list_one(const struct nlmsghdr *h, void *arg, struct err *err)
{
	const struct list_arg *la = arg;
	struct net_link l;

	if (h->nlmsg_type != RTM_NEWLINK)
		return RC_OK;
	link_from_msg(h, &l);
	return la->fn(&l, la->arg, err);
}

enum rc net_link_list(struct net *n, net_link_fn fn, void *arg, struct err *err)
{
	struct net_msg m;
	struct list_arg la = {fn, arg};

	net_msg_init(&m, RTM_GETLINK, 0, sizeof(struct ifinfomsg));

	enum rc rc = net_dump(n, &m, list_one, &la, err);

	return rc ? net_fail(rc, err, "cannot list links") : RC_OK;
}

enum rc net_link_del(struct net *n, const char *name, struct err *err)
{
	struct net_msg m;
	struct err e = {0};
	enum rc rc = name_check(name, err);

	if (rc)
		return rc;
	net_msg_init(&m, RTM_DELLINK, 0, sizeof(struct ifinfomsg));
	mnl_attr_put_strz(m.nlh, IFLA_IFNAME, name);
	rc = net_talk(n, &m, &e);
	if (!rc || rc == RC_NOT_FOUND)
		return RC_OK;
	err_copy(err, &e);
	return net_fail(rc, err, "cannot remove link '%s'", name);
}

enum rc net_link_set(struct net *n, const char *name, const struct net_link_set *s, struct err *err)
{
	struct net_msg m;
	int index = 0, master = 0;
	enum rc rc = net_ifindex(n, name, &index, err);

	if (!rc && !str_is_empty(s->master))
		rc = net_ifindex(n, s->master, &master, err);
	if (!rc && s->new_name)
		rc = name_check(s->new_name, err);
	if (rc)
		return rc;

	struct ifinfomsg *ifi = net_msg_init(&m, RTM_NEWLINK, 0, sizeof(*ifi));

	ifi->ifi_index = index;
	if (s->new_name)
		mnl_attr_put_strz(m.nlh, IFLA_IFNAME, s->new_name);
	if (s->up != NET_KEEP) {
		ifi->ifi_change = IFF_UP;
		ifi->ifi_flags = s->up == NET_ON ? IFF_UP : 0;
	}
	if (s->mtu)
		mnl_attr_put_u32(m.nlh, IFLA_MTU, s->mtu);
	if (s->txqlen)
		mnl_attr_put_u32(m.nlh, IFLA_TXQLEN, s->txqlen);
	if (s->mac)
		net_put_mac(&m, IFLA_ADDRESS, *s->mac);
	if (s->master)
		mnl_attr_put_u32(m.nlh, IFLA_MASTER, (uint32_t)master);
	rc = net_talk(n, &m, err);
	return rc ? net_fail(rc, err, "cannot change link '%s'", name) : RC_OK;
}

/* ---- kinds ---- */

static struct nlattr *info_begin(struct net_msg *m, const char *kind)
{
	struct nlattr *info = mnl_attr_nest_start(m->nlh, IFLA_LINKINFO);

	mnl_attr_put_strz(m->nlh, IFLA_INFO_KIND, kind);
	return info;
}

static void put_basics(struct net_msg *m, const char *name, struct net_mac mac, unsigned mtu,
		       unsigned txqlen)
{
	mnl_attr_put_strz(m->nlh, IFLA_IFNAME, name);
	if (!net_mac_is_zero(mac))
		net_put_mac(m, IFLA_ADDRESS, mac);
	if (mtu)
		mnl_attr_put_u32(m->nlh, IFLA_MTU, mtu);
	if (txqlen)
		mnl_attr_put_u32(m->nlh, IFLA_TXQLEN, txqlen);
}

/* The existing link, if any, must be of this kind. */
static enum rc existing(struct net *n, const char *name, const char *kind, struct net_link *l,
			bool *found, struct err *err)
{
	struct err e = {0};

	*l = (struct net_link){0};
	enum rc rc = net_link_get(n, name, l, &e);

	*found = !rc;
	if (rc == RC_NOT_FOUND)
		return RC_OK;
	if (rc)
		return err_copy(err, &e);
	if (!str_eq(l->kind, kind))
		return err_set(err, RC_EXISTS, "link '%s' exists and is no %s (%s)", name, kind,
			       l->kind[0] ? l->kind : "a hardware link");
	return RC_OK;
}

static enum rc veth_adopt(struct net *n, const struct net_veth *v, bool *ok, struct err *err)
{
	CLEANUP(net_freep)
	struct net *other = NULL;
	struct net_link peer;
	struct net_link_set s = {.mtu = v->mtu, .txqlen = v->txqlen};
	bool found = false;
	enum rc rc = v->peer_ns_fd >= 0 ? net_open(&other, v->peer_ns_fd, err) : RC_OK;
	struct net *there = v->peer_ns_fd >= 0 ? other : n;

	*ok = false;
	if (!rc)
		rc = existing(there, v->peer, "veth", &peer, &found, err);
	if (rc || !found)
		return rc;
	s.mac = net_mac_is_zero(v->mac) ? NULL : &v->mac;
	rc = net_link_set(n, v->name, &s, err);
	s.mac = net_mac_is_zero(v->peer_mac) ? NULL : &v->peer_mac;
	if (!rc)
		rc = net_link_set(there, v->peer, &s, err);
	*ok = !rc;
	return rc;
}

enum rc net_veth_add(struct net *n, const struct net_veth *v, struct err *err)
{
	struct net_msg m;
	struct net_link l;
	bool found = false, ok = false;
	enum rc rc = name_check(v->name, err);

	if (!rc)
		rc = name_check(v->peer, err);
	if (!rc)
		rc = existing(n, v->name, "veth", &l, &found, err);
	if (!rc && found)
		rc = veth_adopt(n, v, &ok, err);
	if (rc || ok)
		return rc;
	if (found) {
		rc = net_link_del(n, v->name, err);
		if (rc)
			return rc;
	}

	net_msg_init(&m, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, sizeof(struct ifinfomsg));
	put_basics(&m, v->name, v->mac, v->mtu, v->txqlen);

	struct nlattr *info = info_begin(&m, "veth");
	struct nlattr *data = mnl_attr_nest_start(m.nlh, IFLA_INFO_DATA);
	struct nlattr *peer = mnl_attr_nest_start(m.nlh, VETH_INFO_PEER);

	mnl_nlmsg_put_extra_header(m.nlh, sizeof(struct ifinfomsg));
	put_basics(&m, v->peer, v->peer_mac, v->mtu, v->txqlen);
	if (v->peer_ns_fd >= 0)
		mnl_attr_put_u32(m.nlh, IFLA_NET_NS_FD, (uint32_t)v->peer_ns_fd);
	mnl_attr_nest_end(m.nlh, peer);
	mnl_attr_nest_end(m.nlh, data);
	mnl_attr_nest_end(m.nlh, info);
	rc = net_talk(n, &m, err);
	return rc ? net_fail(rc, err, "cannot make link '%s'", v->name) : RC_OK;
}

enum rc net_bridge_add(struct net *n, const char *name, struct net_mac mac, unsigned mtu,
		       struct err *err)
{
	struct net_msg m;
	struct net_link l;
	bool found = false;
	enum rc rc = existing(n, name, "bridge", &l, &found, err);

	if (rc)
		return rc;
	net_msg_init(&m, RTM_NEWLINK, found ? 0 : NLM_F_CREATE | NLM_F_EXCL,
		     sizeof(struct ifinfomsg));
	put_basics(&m, name, mac, mtu, 0);

	struct nlattr *info = info_begin(&m, "bridge");
	struct nlattr *data = mnl_attr_nest_start(m.nlh, IFLA_INFO_DATA);

	mnl_attr_put_u32(m.nlh, IFLA_BR_STP_STATE, 0);
	mnl_attr_put_u32(m.nlh, IFLA_BR_FORWARD_DELAY, 0);
	mnl_attr_put_u8(m.nlh, IFLA_BR_MCAST_SNOOPING, 0);
	mnl_attr_nest_end(m.nlh, data);
	mnl_attr_nest_end(m.nlh, info);
	rc = net_talk(n, &m, err);
	return rc ? net_fail(rc, err, "cannot make bridge '%s'", name) : RC_OK;
}

struct vxlan_seen {
	uint32_t id;
	uint16_t port;
	struct in_addr local;
	int link;
	bool is_learning;
};

static void vxlan_from_data(const struct nlattr *data, struct vxlan_seen *v)
{
	const struct nlattr *a;

	mnl_attr_for_each_nested(a, data)
	{
		switch (mnl_attr_get_type(a)) {
		case IFLA_VXLAN_ID:
			v->id = mnl_attr_get_u32(a);
			break;
		case IFLA_VXLAN_PORT:
			v->port = ntohs(mnl_attr_get_u16(a));
			break;
		case IFLA_VXLAN_LOCAL:
			v->local.s_addr = mnl_attr_get_u32(a);
			break;
		case IFLA_VXLAN_LINK:
			v->link = (int)mnl_attr_get_u32(a);
			break;
		case IFLA_VXLAN_LEARNING:
			v->is_learning = mnl_attr_get_u8(a);
			break;
		}
	}
}

static enum rc take_vxlan(const struct nlmsghdr *h, void *arg, struct err *err)
{
	const struct nlattr *a, *b;

	(void)err;
	if (h->nlmsg_type != RTM_NEWLINK)
		return RC_OK;
	mnl_attr_for_each(a, h, sizeof(struct ifinfomsg))
	{
		if (mnl_attr_get_type(a) != IFLA_LINKINFO)
			continue;
		mnl_attr_for_each_nested(b, a) if (mnl_attr_get_type(b) == IFLA_INFO_DATA)
			vxlan_from_data(b, arg);
	}
	return RC_OK;
}

static enum rc vxlan_fits(struct net *n, const struct net_vxlan *v, int link, bool *fits,
			  struct err *err)
{
	struct net_msg m;
	struct vxlan_seen seen = {0};

	net_msg_init(&m, RTM_GETLINK, 0, sizeof(struct ifinfomsg));
	mnl_attr_put_strz(m.nlh, IFLA_IFNAME, v->name);

	enum rc rc = net_ask(n, &m, take_vxlan, &seen, err);

	*fits = seen.id == v->id && seen.port == v->port && seen.local.s_addr == v->local.s_addr &&
		seen.link == link && !seen.is_learning;
	return rc;
}

enum rc net_vxlan_add(struct net *n, const struct net_vxlan *v, struct err *err)
{
	struct net_msg m;
	struct net_link l;
	bool found = false, fits = false;
	int link = 0;
	enum rc rc = existing(n, v->name, "vxlan", &l, &found, err);

	if (!rc && v->dev)
		rc = net_ifindex(n, v->dev, &link, err);
	if (!rc && found)
		rc = vxlan_fits(n, v, link, &fits, err);
	if (rc)
		return rc;
	if (fits) {
		struct net_link_set s = {.mtu = v->mtu, .mac = &v->mac};

		return net_link_set(n, v->name, &s, err);
	}
	if (found) {
		rc = net_link_del(n, v->name, err);
		if (rc)
			return rc;
	}
	net_msg_init(&m, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, sizeof(struct ifinfomsg));
	put_basics(&m, v->name, v->mac, v->mtu, 0);

	struct nlattr *info = info_begin(&m, "vxlan");
	struct nlattr *data = mnl_attr_nest_start(m.nlh, IFLA_INFO_DATA);

	mnl_attr_put_u32(m.nlh, IFLA_VXLAN_ID, v->id);
	mnl_attr_put_u16(m.nlh, IFLA_VXLAN_PORT, htons(v->port));
	mnl_attr_put_u32(m.nlh, IFLA_VXLAN_LOCAL, v->local.s_addr);
	if (link)
		mnl_attr_put_u32(m.nlh, IFLA_VXLAN_LINK, (uint32_t)link);
	mnl_attr_put_u8(m.nlh, IFLA_VXLAN_LEARNING, 0);
	mnl_attr_nest_end(m.nlh, data);
	mnl_attr_nest_end(m.nlh, info);
	rc = net_talk(n, &m, err);
	return rc ? net_fail(rc, err, "cannot make VXLAN link '%s' (id %u, port %u)", v->name,
			     v->id, v->port)
		  : RC_OK;
}

enum rc net_tap_open(int ns_fd, const char *name, uid_t owner, bool keep, unsigned txqlen, int *fd,
		     struct err *err)
{
	CLEANUP(net_ns_leave)
	int old = -1;
	CLEANUP(fd_closep)
	int f = -1;
	CLEANUP(fd_closep)
	int s = -1;
	struct ifreq r = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR};
	int header = 12; /* struct virtio_net_hdr_v1, as virtio-net in QEMU expects */
	enum rc rc = name_check(name, err);

	if (!rc)
		rc = net_ns_enter(ns_fd, &old, err);
	if (rc)
		return rc;
	f = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (f < 0)
		return err_set_sys(err, errno, "cannot open '/dev/net/tun'");
	memcpy(r.ifr_name, name, strlen(name) + 1);
	if (ioctl(f, TUNSETIFF, &r) < 0)
		return err_set_sys(err, errno, "cannot open tap '%s'", name);
	if (ioctl(f, TUNSETOWNER, owner) < 0 || ioctl(f, TUNSETPERSIST, keep ? 1 : 0) < 0 ||
	    ioctl(f, TUNSETVNETHDRSZ, &header) < 0)
		return err_set_sys(err, errno, "cannot set up tap '%s'", name);
	s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (s < 0)
		return err_set_sys(err, errno, "cannot open a socket");
	r.ifr_qlen = (int)txqlen;
	if (txqlen && ioctl(s, SIOCSIFTXQLEN, &r) < 0)
		return err_set_sys(err, errno, "cannot set the queue length of tap '%s'", name);
	*fd = STEAL_FD(f);
	return RC_OK;
}

static void put_flag(struct net_msg *m, uint16_t type, enum net_onoff v)
{
	if (v != NET_KEEP)
		mnl_attr_put_u8(m->nlh, type, v == NET_ON);
}

enum rc net_port_build(struct net *n, const char *name, const struct net_port_set *s,
		       struct net_msg *m, struct err *err)
{
	int index = 0;
	enum rc rc = net_ifindex(n, name, &index, err);

	if (rc)
		return rc;

	struct ifinfomsg *ifi = net_msg_init(m, RTM_SETLINK, 0, sizeof(*ifi));

	ifi->ifi_family = AF_BRIDGE;
	ifi->ifi_index = index;

	struct nlattr *p = mnl_attr_nest_start(m->nlh, IFLA_PROTINFO);

	put_flag(m, IFLA_BRPORT_LEARNING, s->learning);
	put_flag(m, IFLA_BRPORT_UNICAST_FLOOD, s->flood);
	put_flag(m, IFLA_BRPORT_BCAST_FLOOD, s->bcast_flood);
	put_flag(m, IFLA_BRPORT_MCAST_FLOOD, s->mcast_flood);
	put_flag(m, IFLA_BRPORT_ISOLATED, s->isolated);
	put_flag(m, IFLA_BRPORT_NEIGH_SUPPRESS, s->answers_arp);
	put_flag(m, IFLA_BRPORT_MODE, s->hairpin);
	put_flag(m, IFLA_BRPORT_LOCKED, s->locked);
	mnl_attr_nest_end(m->nlh, p);
	return RC_OK;
}

enum rc net_port_set(struct net *n, const char *name, const struct net_port_set *s, struct err *err)
{
	struct net_msg m;
	enum rc rc = net_port_build(n, name, s, &m, err);

	if (!rc)
		rc = net_talk(n, &m, err);
	return rc ? net_fail(rc, err, "cannot change bridge port '%s'", name) : RC_OK;
}
