/* lib/net/link.h - links, addresses, routes, neighbours and forwarding entries of one namespace.
 *
 * A struct net is one rtnetlink socket, opened inside the namespace and good from any thread,
 * one call at a time.  Blocking (the kernel answers at once); pool threads.  Every "add" and
 * "set" may be repeated, every "del" of something missing succeeds, and an error names the link
 * and what was asked.
 */
#ifndef NET_LINK_H
#define NET_LINK_H

#include <sys/types.h>

#include "net/addr.h"

#define NET_IFNAME 16

struct net;

/* ns_fd -1: the calling thread's namespace.  The descriptor stays the caller's. */
MUST_CHECK enum rc net_open(struct net **out, int ns_fd, struct err *err);
struct net *net_free(struct net *n);
DEFINE_CLEANUP(struct net *, net_free);

/* ---- links ---- */

struct net_link {
	int index;
	char name[NET_IFNAME];
	char kind[16]; /* "veth", "bridge", "vxlan", "tun", "" for hardware */
	struct net_mac mac;
	unsigned mtu;
	unsigned txqlen;
	int master; /* index of the bridge, 0: none */
	bool is_up;
	bool has_carrier;
	uint64_t n_sent; /* frames sent; of a tap: taken by its reader */
};

MUST_CHECK enum rc net_link_get(struct net *n, const char *name, struct net_link *out,
				struct err *err);
typedef enum rc (*net_link_fn)(const struct net_link *l, void *arg, struct err *err);
MUST_CHECK enum rc net_link_list(struct net *n, net_link_fn fn, void *arg, struct err *err);
MUST_CHECK enum rc net_link_del(struct net *n, const char *name, struct err *err);

enum net_onoff { NET_KEEP, NET_OFF, NET_ON };

/* Zero means "leave as it is" everywhere. */
struct net_link_set {
	enum net_onoff up;
	unsigned mtu;
	unsigned txqlen;
	const struct net_mac *mac;
	const char *master; /* a bridge's name; "": take it out of its bridge */
	const char *new_name;
};
MUST_CHECK enum rc net_link_set(struct net *n, const char *name, const struct net_link_set *s,
				struct err *err);

/* A pair: `name` here, `peer` in peer_ns_fd (-1: here too).  Both ends down, MTU and MACs as
 * given (a zero MAC: the kernel chooses).  When `name` exists with its peer in that place, both
 * are brought to the given values instead; a broken half is replaced. */
struct net_veth {
	const char *name;
	const char *peer;
	int peer_ns_fd;
	struct net_mac mac;
	struct net_mac peer_mac;
	unsigned mtu;
	unsigned txqlen;
};
MUST_CHECK enum rc net_veth_add(struct net *n, const struct net_veth *v, struct err *err);
/* No spanning tree, no multicast snooping, forward delay 0. */
MUST_CHECK enum rc net_bridge_add(struct net *n, const char *name, struct net_mac mac, unsigned mtu,
				  struct err *err);
/* A VXLAN port without learning and without a default remote: it sends only where it was told
 * to. One that exists with other id, port or local address is replaced. */
struct net_vxlan {
	const char *name;
	uint32_t id;
	uint16_t port;
	struct in_addr local;
	const char *dev; /* underlay device; NULL: by route */
	struct net_mac mac;
	unsigned mtu;
};
MUST_CHECK enum rc net_vxlan_add(struct net *n, const struct net_vxlan *v, struct err *err);
/* A tap with virtio-net headers, one queue; *fd is attached to it (carrier is on while it is
 * open, and it may be handed to QEMU).  keep: the link outlives the descriptor.  owner: the uid
 * that may open it again. */
MUST_CHECK enum rc net_tap_open(int ns_fd, const char *name, uid_t owner, bool keep,
				unsigned txqlen, int *fd, struct err *err);

/* A port of a bridge. */
struct net_port_set {
	enum net_onoff learning;
	enum net_onoff flood;	    /* unknown unicast goes out here */
	enum net_onoff bcast_flood; /* broadcast goes out here */
	enum net_onoff mcast_flood;
	enum net_onoff isolated;
	enum net_onoff
		answers_arp; /* the bridge answers for neighbours (of its own link) behind this port */
	enum net_onoff hairpin;
	enum net_onoff
		locked; /* frames come in only from a MAC that the bridge forwards to this port */
};
MUST_CHECK enum rc net_port_set(struct net *n, const char *name, const struct net_port_set *s,
				struct err *err);

/* ---- addresses, routes, rules, neighbours ---- */

MUST_CHECK enum rc net_addr_add(struct net *n, const char *dev, struct in_addr a, unsigned prefix,
				struct err *err);
MUST_CHECK enum rc net_addr_del(struct net *n, const char *dev, struct in_addr a, unsigned prefix,
				struct err *err);
/* Which link has the address; RC_NOT_FOUND. */
MUST_CHECK enum rc net_addr_find(struct net *n, struct in_addr a, char dev[NET_IFNAME],
				 struct err *err);

struct net_route {
	struct in_addr dst;
	unsigned prefix;    /* 0 with dst 0.0.0.0: the default route */
	struct in_addr via; /* none: on the link */
	struct in_addr src; /* none: the kernel chooses */
	const char *dev;    /* NULL: found by via */
	unsigned table;	    /* 0: main */
	bool is_onlink;	    /* via need not be in a network of dev */
};
MUST_CHECK enum rc net_route_set(struct net *n, const struct net_route *r,
				 struct err *err); /* replaces */
MUST_CHECK enum rc net_route_del(struct net *n, const struct net_route *r, struct err *err);
/* What sockets of this uid send is routed by `table`. */
MUST_CHECK enum rc net_rule_uid_set(struct net *n, uid_t uid, unsigned table, unsigned priority,
				    struct err *err);

/* Permanent entries: never asked for, never aged. */
MUST_CHECK enum rc net_neigh_set(struct net *n, const char *dev, struct in_addr a,
				 struct net_mac mac, struct err *err);
MUST_CHECK enum rc net_neigh_del(struct net *n, const char *dev, struct in_addr a, struct err *err);

/* ---- forwarding entries ---- */

enum net_fdb_kind {
	NET_FDB_PORT,	/* a bridge sends frames for mac out of port dev (static) */
	NET_FDB_REMOTE, /* a VXLAN device sends frames for mac to the node at dst */
	NET_FDB_FLOOD,	/* a VXLAN device sends broadcasts to dst, among others (mac is zero) */
};
struct net_fdb {
	enum net_fdb_kind kind;
	const char *dev;
	struct net_mac mac;
	struct in_addr dst;
};
/* Replaces the entry for this MAC whatever port or node it named (FLOOD: adds). */
MUST_CHECK enum rc net_fdb_set(struct net *n, const struct net_fdb *f, struct err *err);
MUST_CHECK enum rc net_fdb_del(struct net *n, const struct net_fdb *f, struct err *err);
/* Entries of PORT kind that point at dev, then of REMOTE and FLOOD kind that dev has; permanent
 * ones (the link's own MAC) are left out. */
typedef enum rc (*net_fdb_fn)(const struct net_fdb *f, void *arg, struct err *err);
MUST_CHECK enum rc net_fdb_list(struct net *n, const char *dev, net_fdb_fn fn, void *arg,
				struct err *err);
typedef enum rc (*net_neigh_fn)(struct in_addr a, struct net_mac mac, void *arg, struct err *err);
/* Permanent neighbours of dev. */
MUST_CHECK enum rc net_neigh_list(struct net *n, const char *dev, net_neigh_fn fn, void *arg,
				  struct err *err);

/* ---- batches: what must be fast is built beforehand ---- */

/* Messages put together once and sent with one system call, as often as wanted.  Link indexes
 * are looked up while it is built: a batch is for links that stay. */
struct net_batch;
MUST_CHECK enum rc net_batch_new(struct net_batch **out, struct net *n,
				 struct err *err); /* borrows n */
struct net_batch *net_batch_free(struct net_batch *b);
DEFINE_CLEANUP(struct net_batch *, net_batch_free);
MUST_CHECK enum rc net_batch_fdb_set(struct net_batch *b, const struct net_fdb *f, struct err *err);
MUST_CHECK enum rc net_batch_fdb_del(struct net_batch *b, const struct net_fdb *f, struct err *err);
MUST_CHECK enum rc net_batch_port_set(struct net_batch *b, const char *name,
				      const struct net_port_set *s, struct err *err);
/* All messages are tried; the first failure (other than deleting what is missing) is reported. */
MUST_CHECK enum rc net_batch_send(struct net_batch *b, struct err *err);

#endif
