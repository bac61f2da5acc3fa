/* A pod's links to the segment and to the migration network. */
#include <stdio.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "net/nft.h"
#include "net/ns.h"
#include "podnet_int.h"

#define QUEUE_LEN 1000

/* ---- the segment ---- */

struct fdb_seek {
	struct net_mac mac;
	bool found;
};

static enum rc fdb_match(const struct net_fdb *f, void *arg, struct err *err)
{
	struct fdb_seek *s = arg;

	(void)err;
	s->found = s->found || (f->kind == NET_FDB_PORT && net_mac_equal(f->mac, s->mac));
	return RC_OK;
}

/* Joined to the bridge.  Silent: frames of unknown place do not come out here, and none come in
 * until the bridge forwards the VM's MAC to this port (it is locked), which is the one thing
 * that a hand-over changes. */
static enum rc port_join(struct podnet *p, const struct podnet_pod *pod, const char *host_if,
			 struct err *err)
{
	struct net_link_set join = {.up = NET_ON, .master = PODNET_BRIDGE};
	struct net_fdb f = {.kind = NET_FDB_PORT, .dev = host_if, .mac = pod->mac};
	struct net_port_set port = {.learning = NET_OFF,
				    .flood = NET_OFF,
				    .bcast_flood = NET_OFF,
				    .mcast_flood = NET_OFF,
				    .locked = NET_ON};
	struct fdb_seek seek = {.mac = pod->mac};
	struct net_link l = {0}, br = {0};
	enum rc rc = net_link_get(p->net, PODNET_BRIDGE, &br, err);

	if (!rc)
		rc = net_link_get(p->net, host_if, &l, err);
	if (!rc && l.master == br.index)
		rc = net_fdb_list(p->net, host_if, fdb_match, &seek, err);
	if (rc)
		return rc;
	rc = podnet_link_quiet(p, host_if, err);
	if (rc)
		return rc;
	if (!pod->is_silent || seek.found)
		port.bcast_flood = port.mcast_flood = NET_ON;
	if (l.master != br.index) {
		/* Its first moment in the bridge is spent down: flags first, then up. */
		struct net_link_set down = {.up = NET_OFF, .master = PODNET_BRIDGE};

		rc = net_link_set(p->net, host_if, &down, err);
	}
	if (!rc)
		rc = net_port_set(p->net, host_if, &port, err);
	if (!rc)
		rc = net_link_set(p->net, host_if, &join, err);
	if (!rc && !pod->is_silent)
		rc = net_fdb_set(p->net, &f, err);
	return rc;
}

static enum rc pod_sysctls(int pod_ns, struct err *err)
{
	static const struct {
		const char *path, *value;
	} want[] = {
		{"ipv4/ip_forward", "1"},
		{"ipv4/conf/all/rp_filter", "0"},
		{"ipv4/conf/default/rp_filter", "0"},
		{"ipv4/conf/all/send_redirects", "0"},
		{"ipv4/conf/default/send_redirects", "0"},
		{"ipv4/conf/default/arp_ignore", "1"},
		{"ipv4/conf/default/accept_redirects", "0"},
		/* QEMU's own connections only, and it cannot cancel one that it is making: 7 s, which
		 * is below the launcher's deadline, instead of two minutes. */
		{"ipv4/tcp_syn_retries", "2"},
		/* And none whose peer is silent: about 25 s, with something on its way or without, instead of
		 * a quarter of an hour or for ever. */
		{"ipv4/tcp_retries2", "6"},
		{"ipv4/tcp_keepalive_time", "10"},
		{"ipv4/tcp_keepalive_intvl", "5"},
		{"ipv4/tcp_keepalive_probes", "3"},
	};
	enum rc rc = RC_OK;

	for (size_t i = 0; i < ARRAY_SIZE(want) && !rc; i++)
		rc = net_sysctl(pod_ns, want[i].path, want[i].value, err);
	return rc;
}

/* The pod's end, unless the VM's binding has it already (then it is a bridge's port and keeps
 * what it was given). */
static enum rc pod_end_up(struct podnet *p, const struct podnet_pod *pod, int pod_ns,
			  struct err *err)
{
	CLEANUP(net_freep) struct net *in = NULL;
	struct net_link l = {0};
	struct net_link_set up = {.up = NET_ON};
	struct net_route def = {.via = p->cfg.gateway, .dev = PODNET_POD_IF};
	enum rc rc = net_open(&in, pod_ns, err);

	if (!rc)
		rc = net_link_get(in, PODNET_POD_IF, &l, err);
	if (rc || l.master)
		return rc;
	/* Answers of a VM that has just moved here go out at once and all together: until the bridge's
	 * ARP answer is in they wait, and the usual 208 KiB hold some 270. More would let a guest that
	 * sends to addresses that nobody has fill the node's memory (1,024 neighbours at most). */
	rc = net_sysctl(pod_ns, "ipv4/neigh/" PODNET_POD_IF "/unres_qlen_bytes", "1048576", err);
	if (!rc)
		rc = net_link_set(in, PODNET_POD_IF, &up, err);
	if (!rc)
		rc = net_addr_add(in, PODNET_POD_IF, pod->address, p->cfg.prefix, err);
	if (!rc)
		rc = net_route_set(in, &def, err);
	return rc;
}

static enum rc veth_up(struct podnet *p, const struct podnet_pod *pod, const char *host_if,
		       int pod_ns, struct err *err)
{
	CLEANUP(net_freep) struct net *in = NULL;
	struct net_veth v = {.name = host_if,
			     .peer = PODNET_POD_IF,
			     .peer_ns_fd = pod_ns,
			     .peer_mac = pod->mac,
			     .mtu = p->cfg.mtu,
			     .txqlen = QUEUE_LEN};
	struct net_mac mac = net_mac_of_ip4(pod->address);
	struct net_link there;
	struct net_link here;
	enum rc rc = net_open(&in, pod_ns, err);

	if (rc)
		return rc;
	if (!net_link_get(in, PODNET_POD_IF, &there, NULL) && there.master &&
	    !net_link_get(p->net, host_if, &here, NULL))
		return RC_OK;
	mac.b[0] = 0x0e;
	mac.b[1] = 0x5c; /* the node's end needs some MAC that is nobody's */
	v.mac = mac;
	return net_veth_add(p->net, &v, err);
}

static enum rc pod_check(const struct podnet *p, const struct podnet_pod *pod, struct err *err)
{
	if (str_is_empty(pod->uid) || strlen(pod->uid) > 63 || !str_is_dns_subdomain(pod->uid))
		return err_set(err, RC_INVALID, "'%.80s' is no pod uid", pod->uid ? pod->uid : "");
	if (!net_ip4_in(pod->address, p->cfg.network, p->cfg.prefix))
		return err_set(err, RC_INVALID, "the pod's address is not in the cluster network");
	if (net_mac_is_zero(pod->mac) || (pod->mac.b[0] & 1))
		return err_set(err, RC_INVALID, "the pod's MAC is no unicast address");
	return RC_OK;
}

enum rc podnet_attach(struct podnet *p, const struct podnet_pod *pod, struct podnet_attached *out,
		      struct err *err)
{
	CLEANUP(fd_closep) int pod_ns = -1;
	struct podnet_attached a;
	enum rc rc = pod_check(p, pod, err);

	if (rc)
		return rc;
	podnet_names(pod->uid, &a);
	rc = net_ns_create(p->pod_ns_dir, a.ns_name, &pod_ns, err);
	if (!rc)
		rc = pod_sysctls(pod_ns, err);
	if (!rc)
		rc = veth_up(p, pod, a.host_if, pod_ns, err);
	if (!rc)
		rc = port_join(p, pod, a.host_if, err);
	if (!rc)
		rc = pod_end_up(p, pod, pod_ns, err);
	if (!rc && pod->qemu_uid)
		rc = podnet_mig_attach(p, pod, &a, pod_ns, err);
	if (rc) {
		err_prepend(err, "network of pod '%s'", pod->uid);
		return rc;
	}
	if (pod->qemu_uid)
		a.mig_address = podnet_mig_address(pod->address);
	else
		a.host_mig_if[0] = '\0';
	*out = a;
	return RC_OK;
}

enum rc podnet_detach(struct podnet *p, const char *pod_uid, struct err *err)
{
	struct podnet_attached a;

	podnet_names(pod_uid, &a);

	enum rc rc = net_link_del(p->net, a.host_if, err);

	if (!rc)
		rc = net_link_del(p->net, a.host_mig_if, err);
	if (!rc)
		rc = net_ns_delete(p->pod_ns_dir, a.ns_name, err);
	if (rc)
		err_prepend(err, "network of pod '%s'", pod_uid);
	return rc;
}

/* ---- the migration link ---- */

struct in_addr podnet_mig_network(void)
{
	return (struct in_addr){htonl(0xc6120000)}; /* 198.18.0.0 */
}

struct in_addr podnet_mig_address(struct in_addr pod_address)
{
	return net_ip4_nth(podnet_mig_network(), PODNET_MIG_PREFIX,
			   ntohl(pod_address.s_addr) & 0xffff);
}

enum rc podnet_mig_render(const struct podnet_config *c, struct sbuf *out, struct err *err)
{
	char net[NET_IP4_TEXT], under[NET_IP4_TEXT], own[NET_IP4_TEXT], here[2 * NET_IP4_TEXT + 8];
	bool has_own = !net_ip4_is_none(c->migration);

	net_ip4_format(podnet_mig_network(), net);
	net_ip4_format(c->underlay, under);
	net_ip4_format(c->migration, own);
	(void)snprintf(here, sizeof(here), has_own ? "{ %s, %s }" : "%s", under, own);
	/* A reset, not silence, for a target that has gone between its word and the first packet: QEMU does
	 * not give up a connection that it is still making, and cannot begin the next move before.
	 * No "delete": a move that runs while the agent restarts keeps its openings. */
	sbuf_addf(out,
		  "table ip %s {\n"
		  "\tmap listen { type ipv4_addr . inet_service : ipv4_addr; }\n"
		  "\tset incoming { type ipv4_addr . ipv4_addr . inet_service; }\n"
		  "\tset outgoing { type ipv4_addr . ipv4_addr . inet_service; }\n"
		  "\tchain pre { type nat hook prerouting priority dstnat; policy accept; }\n"
		  "\tchain post { type nat hook postrouting priority srcnat; policy accept; }\n"
		  "\tchain through { type filter hook forward priority filter; policy accept; }\n"
		  "\tchain in { type filter hook input priority filter; policy accept; }\n"
		  "}\n",
		  PODNET_MIG_TABLE);
	sbuf_addf(out,
		  "flush chain ip %s pre\nflush chain ip %s post\nflush chain ip %s through\nflush "
		  "chain ip %s in\n",
		  PODNET_MIG_TABLE, PODNET_MIG_TABLE, PODNET_MIG_TABLE, PODNET_MIG_TABLE);
	sbuf_addf(out,
		  "table ip %s {\n"
		  "\tchain pre {\n"
		  "\t\tip daddr %s dnat to ip saddr . tcp dport map @listen\n"
		  "\t}\n"
		  "\tchain post {\n"
		  "\t\tip saddr %s/%u masquerade\n"
		  "\t}\n"
		  "\tchain through {\n"
		  "\t\tip daddr %s/%u ip daddr . ip saddr . tcp dport @incoming accept\n"
		  "\t\tip saddr %s/%u ip saddr . ip daddr . tcp sport @incoming accept\n"
		  "\t\tip saddr %s/%u ip saddr . ip daddr . tcp dport @outgoing accept\n"
		  "\t\tip daddr %s/%u ip daddr . ip saddr . tcp sport @outgoing accept\n"
		  "\t\tip saddr %s/%u drop\n"
		  "\t\tip daddr %s/%u meta l4proto tcp reject with tcp reset\n"
		  "\t\tip daddr %s/%u drop\n"
		  "\t}\n"
		  "\tchain in {\n"
		  "\t\tip saddr %s/%u drop\n"
		  "\t}\n"
		  "}\n",
		  PODNET_MIG_TABLE, here, net, PODNET_MIG_PREFIX, net, PODNET_MIG_PREFIX, net,
		  PODNET_MIG_PREFIX, net, PODNET_MIG_PREFIX, net, PODNET_MIG_PREFIX, net,
		  PODNET_MIG_PREFIX, net, PODNET_MIG_PREFIX, net, PODNET_MIG_PREFIX, net,
		  PODNET_MIG_PREFIX);

	enum rc rc = sbuf_rc(out);

	return rc ? err_set(err, rc, "the migration network's rules do not fit") : RC_OK;
}

enum rc podnet_mig_up(struct podnet *p, struct err *err)
{
	struct sbuf text = SBUF_INIT(64 * KIB);
	enum rc rc = podnet_mig_render(&p->cfg, &text, err);

	if (!rc)
		rc = net_nft_run(p->ns_fd, sbuf_str(&text), err);
	sbuf_fini(&text);
	if (rc)
		err_prepend(err, "migration network");
	return rc;
}

/* In the pod: only QEMU's uid is routed this way, and nothing but this link reaches its address. */
static enum rc mig_pod_rules(const struct podnet_pod *pod, struct in_addr mig, int pod_ns,
			     struct err *err)
{
	char addr[NET_IP4_TEXT], text[1024];

	net_ip4_format(mig, addr);
	snprintf(text, sizeof(text),
		 "add table ip ferry_pod\ndelete table ip ferry_pod\n"
		 "table ip ferry_pod {\n"
		 "\tchain in {\n\t\ttype filter hook input priority filter; policy accept;\n"
		 "\t\tip daddr %s iifname != \"%s\" drop\n"
		 "\t\tiifname \"%s\" ip daddr != %s drop\n\t}\n"
		 "\tchain through {\n\t\ttype filter hook forward priority filter; policy accept;\n"
		 "\t\tiifname \"%s\" drop\n\t\toifname \"%s\" drop\n\t}\n"
		 "\tchain out {\n\t\ttype filter hook output priority filter; policy accept;\n"
		 "\t\tmeta skuid %u oifname != \"%s\" drop\n\t}\n"
		 "}\n",
		 addr, PODNET_MIG_IF, PODNET_MIG_IF, addr, PODNET_MIG_IF, PODNET_MIG_IF,
		 (unsigned)pod->qemu_uid, PODNET_MIG_IF);
	return net_nft_run(pod_ns, text, err);
}

static enum rc mig_pod_end(const struct podnet_pod *pod, struct in_addr mig,
			   struct net_mac host_mac, int pod_ns, struct err *err)
{
	struct in_addr router = {htonl(0xa9fe0101)}; /* 169.254.1.1: exists on this link only */
	CLEANUP(net_freep) struct net *in = NULL;
	struct net_link_set up = {.up = NET_ON};
	struct net_route def = {.via = router,
				.dev = PODNET_MIG_IF,
				.src = mig,
				.table = PODNET_MIG_ROUTE_TABLE,
				.is_onlink = true};
	enum rc rc = net_open(&in, pod_ns, err);

	if (!rc)
		rc = net_link_set(in, PODNET_MIG_IF, &up, err);
	if (!rc)
		rc = net_addr_add(in, PODNET_MIG_IF, mig, 32, err);
	if (!rc)
		rc = net_neigh_set(in, PODNET_MIG_IF, router, host_mac, err);
	if (!rc)
		rc = net_route_set(in, &def, err);
	if (!rc)
		rc = net_rule_uid_set(in, pod->qemu_uid, PODNET_MIG_ROUTE_TABLE, 100, err);
	if (!rc)
		rc = mig_pod_rules(pod, mig, pod_ns, err);
	return rc;
}

enum rc podnet_mig_attach(struct podnet *p, const struct podnet_pod *pod,
			  const struct podnet_attached *names, int pod_ns, struct err *err)
{
	struct in_addr mig = podnet_mig_address(pod->address);
	struct net_mac pod_mac = net_mac_of_ip4(mig), host_mac = pod_mac;
	struct net_link_set up = {.up = NET_ON};
	struct net_route to_pod = {.dst = mig, .prefix = 32, .dev = names->host_mig_if};
	struct net_veth v = {.name = names->host_mig_if,
			     .peer = PODNET_MIG_IF,
			     .peer_ns_fd = pod_ns,
			     .mtu = p->cfg.mtu + PODNET_VXLAN_BYTES};
	enum rc rc;

	host_mac.b[0] = 0x0e;
	v.mac = host_mac;
	v.peer_mac = pod_mac;
	rc = net_veth_add(p->net, &v, err);
	if (!rc)
		rc = podnet_link_quiet(p, names->host_mig_if, err);
	if (!rc)
		rc = net_link_set(p->net, names->host_mig_if, &up, err);
	if (!rc)
		rc = net_route_set(p->net, &to_pod, err);
	if (!rc)
		rc = net_neigh_set(p->net, names->host_mig_if, mig, pod_mac, err);
	if (!rc)
		rc = mig_pod_end(pod, mig, host_mac, pod_ns, err);
	if (rc)
		err_prepend(err, "migration link");
	return rc;
}

static enum rc mig_open(struct podnet *p, const char *set, struct in_addr pod_address,
			struct in_addr peer, const uint16_t *ports, size_t n, bool listen,
			struct err *err)
{
	struct sbuf t = SBUF_INIT(4096);
	char mig[NET_IP4_TEXT], from[NET_IP4_TEXT];

	if (n > PODNET_MIG_PORTS)
		return err_set(err, RC_INVALID, "at most %d migration ports", PODNET_MIG_PORTS);
	net_ip4_format(podnet_mig_address(pod_address), mig);
	net_ip4_format(peer, from);
	for (size_t i = 0; i < n; i++) {
		sbuf_addf(&t, "add element ip %s %s { %s . %s . %u }\n", PODNET_MIG_TABLE, set, mig,
			  from, ports[i]);
		if (listen)
			sbuf_addf(&t, "add element ip %s listen { %s . %u : %s }\n",
				  PODNET_MIG_TABLE, from, ports[i], mig);
	}

	enum rc rc = sbuf_rc(&t);

	if (!rc)
		rc = net_nft_run(p->ns_fd, sbuf_str(&t), err);
	sbuf_fini(&t);
	if (rc)
		err_prepend(err, "cannot open the migration link to %s", from);
	return rc;
}

enum rc podnet_mig_listen(struct podnet *p, struct in_addr pod_address, struct in_addr peer,
			  const uint16_t *ports, size_t n_ports, struct err *err)
{
	return mig_open(p, "incoming", pod_address, peer, ports, n_ports, true, err);
}

enum rc podnet_mig_connect(struct podnet *p, struct in_addr pod_address, struct in_addr peer,
			   const uint16_t *ports, size_t n_ports, struct err *err)
{
	return mig_open(p, "outgoing", pod_address, peer, ports, n_ports, false, err);
}

struct mig_close {
	struct in_addr mig; /* this one's; none: of all that are not kept */
	const struct podnet_live *keep;
	size_t n_keep;
	const char *set;
	struct sbuf *text;
};

static bool is_to_close(const struct mig_close *c, struct in_addr mig)
{
	if (!net_ip4_is_none(c->mig))
		return mig.s_addr == c->mig.s_addr;
	for (size_t i = 0; i < c->n_keep; i++)
		if (!net_ip4_is_none(c->keep[i].address) &&
		    podnet_mig_address(c->keep[i].address).s_addr == mig.s_addr)
			return false;
	return true;
}

/* Keys as the kernel stores them: pod, peer, port (each padded to four bytes). */
static enum rc mig_close_one(const struct net_nft_elem *e, void *arg, struct err *err)
{
	const struct mig_close *c = arg;
	struct in_addr mig, peer;
	char m[NET_IP4_TEXT], q[NET_IP4_TEXT];
	uint16_t port;

	(void)err;
	if (e->n_key < 10)
		return RC_OK;
	memcpy(&mig, e->key, 4);
	memcpy(&peer, e->key + 4, 4);
	memcpy(&port, e->key + 8, 2);
	if (!is_to_close(c, mig))
		return RC_OK;
	net_ip4_format(mig, m);
	net_ip4_format(peer, q);
	sbuf_addf(c->text, "delete element ip %s %s { %s . %s . %u }\n", PODNET_MIG_TABLE, c->set,
		  m, q, ntohs(port));
	if (str_eq(c->set, "incoming"))
		sbuf_addf(c->text, "delete element ip %s listen { %s . %u : %s }\n",
			  PODNET_MIG_TABLE, q, ntohs(port), m);
	return RC_OK;
}

static enum rc mig_close(struct podnet *p, const struct mig_close *which, struct err *err)
{
	static const char *const sets[] = {"incoming", "outgoing"};
	struct sbuf t = SBUF_INIT(1024 * KIB);
	struct mig_close c = *which;
	enum rc rc = RC_OK;

	c.text = &t;
	for (size_t i = 0; i < ARRAY_SIZE(sets) && !rc; i++) {
		c.set = sets[i];
		rc = net_nft_set_list(p->ns_fd, "ip", PODNET_MIG_TABLE, sets[i], mig_close_one, &c,
				      err);
	}
	if (!rc)
		rc = sbuf_rc(&t);
	if (!rc && t.n)
		rc = net_nft_run(p->ns_fd, sbuf_str(&t), err);
	sbuf_fini(&t);
	return rc;
}

enum rc podnet_mig_close(struct podnet *p, struct in_addr pod_address, struct err *err)
{
	struct mig_close c = {.mig = podnet_mig_address(pod_address)};

	return mig_close(p, &c, err);
}

enum rc podnet_mig_sweep(struct podnet *p, const struct podnet_live *pods, size_t n,
			 struct err *err)
{
	struct mig_close c = {.keep = pods, .n_keep = n};

	return mig_close(p, &c, err);
}
