#include "podnet_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "net/nft.h"
#include "net/ns.h"
#include "net/steer.h"

/* ---- pure parts ---- */

static struct podnet_config completed(const struct podnet_config *cfg)
{
	struct podnet_config c = *cfg;

	if (net_mac_is_zero(c.gateway_mac))
		c.gateway_mac = net_mac_of_ip4(c.gateway);
	if (!c.vni)
		c.vni = PODNET_VNI;
	if (!c.port)
		c.port = PODNET_PORT;
	return c;
}

static enum rc config_check(const struct podnet_config *c, struct err *err)
{
	if (net_ip4_is_none(c->underlay) || net_ip4_is_none(c->segment) ||
	    net_ip4_is_none(c->gateway))
		return err_set(err, RC_INVALID,
			       "the node's network needs underlay, segment and gateway addresses");
	if (c->prefix < 8 || c->prefix > 30 || c->service_prefix < 8 || c->service_prefix > 30)
		return err_set(err, RC_INVALID, "prefixes of the cluster network must be 8 to 30");
	if (!net_ip4_in(c->segment, c->network, c->prefix) ||
	    !net_ip4_in(c->gateway, c->network, c->prefix))
		return err_set(err, RC_INVALID,
			       "segment and gateway addresses must be in the cluster network");
	if (net_ip4_in(c->underlay, c->network, c->prefix))
		return err_set(err, RC_INVALID,
			       "the underlay address must not be in the cluster network");
	if (net_ip4_in(c->service_network, c->network, c->prefix) ||
	    net_ip4_in(c->network, c->service_network, c->service_prefix))
		return err_set(err, RC_INVALID,
			       "the Services' network must not overlap the cluster network");
	if (str_is_empty(c->pod_ns_dir) || c->pod_ns_dir[0] != '/')
		return err_set(err, RC_INVALID,
			       "the folder of pods' namespaces must be an absolute path");
	return RC_OK;
}

enum rc podnet_render(const struct podnet_config *c, struct sbuf *out, struct err *err)
{
	char net[NET_IP4_TEXT];

	net_ip4_format(c->network, net);
	sbuf_addf(out, "add table ip %s\ndelete table ip %s\ntable ip %s {\n", PODNET_TABLE,
		  PODNET_TABLE, PODNET_TABLE);
	/* What leaves the segment by the gateway gets the gateway node's address; what came in
	 * from outside keeps both addresses (its answers belong to a connection that was not
	 * translated). */
	sbuf_adds(
		out,
		"\tchain post {\n\t\ttype nat hook postrouting priority srcnat; policy accept;\n");
	if (c->is_gateway)
		sbuf_addf(out,
			  "\t\tip saddr %s/%u ip daddr != %s/%u oifname != \"%s\" masquerade\n",
			  net, c->prefix, net, c->prefix, PODNET_BRIDGE);
	sbuf_adds(out, "\t}\n");
	/* The two directions of a flow may cross this node one without the other (a VM answers a
	 * node directly): nothing is dropped for being out of state. */
	sbuf_adds(out, "}\n");

	enum rc rc = sbuf_rc(out);

	return rc ? err_set(err, rc, "the node's rules do not fit") : RC_OK;
}

void podnet_names(const char *pod_uid, struct podnet_attached *out)
{
	uint64_t h = str_hash(pod_uid, strlen(pod_uid)) & 0xffffffffffULL;

	memset(out, 0, sizeof(*out));
	snprintf(out->ns_name, sizeof(out->ns_name), "%.63s", pod_uid);
	snprintf(out->host_if, sizeof(out->host_if), "fv%010llx", (unsigned long long)h);
	snprintf(out->host_mig_if, sizeof(out->host_mig_if), "fm%010llx", (unsigned long long)h);
}

/* ---- up ---- */

static enum rc sysctls(struct podnet *p, struct err *err)
{
	static const struct {
		const char *path, *value;
	} want[] = {
		{"ipv4/ip_forward", "1"},
		/* The way by the gateway is meant, and a redirect would also eat the allowance
		 * for real errors. */
		{"ipv4/conf/all/send_redirects", "0"},
		{"ipv4/conf/all/rp_filter", "0"},
		{"ipv4/conf/default/rp_filter", "0"},
		/* Bridged frames are no business of the node's IP rules. */
		{"bridge/bridge-nf-call-iptables", "0"},
		{"bridge/bridge-nf-call-ip6tables", "0"},
		{"bridge/bridge-nf-call-arptables", "0"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
		struct err e = {0};
		enum rc rc = net_sysctl(p->ns_fd, want[i].path, want[i].value, &e);

		if (rc && rc != RC_NOT_FOUND)
			return err_copy(err, &e);
	}
	return RC_OK;
}

enum rc podnet_link_quiet(struct podnet *p, const char *dev, struct err *err)
{
	static const struct {
		const char *fmt, *value;
	} want[] = {
		{"ipv6/conf/%s/disable_ipv6", "1"},   {"ipv4/conf/%s/arp_ignore", "1"},
		{"ipv4/conf/%s/arp_announce", "2"},   {"ipv4/conf/%s/rp_filter", "0"},
		{"ipv4/conf/%s/send_redirects", "0"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
		char path[80];
		struct err e = {0};

		snprintf(path, sizeof(path), "%.*s%s%s",
			 (int)(strstr(want[i].fmt, "%s") - want[i].fmt), want[i].fmt, dev,
			 strstr(want[i].fmt, "%s") + 2);

		enum rc rc = net_sysctl(p->ns_fd, path, want[i].value, &e);

		if (rc && rc != RC_NOT_FOUND)
			return err_copy(err, &e);
	}
	return RC_OK;
}

static enum rc find_mtu(struct podnet *p, struct err *err)
{
	char dev[NET_IFNAME];
	struct net_link l;
	enum rc rc = net_addr_find(p->net, p->cfg.underlay, dev, err);

	if (!rc)
		rc = net_link_get(p->net, dev, &l, err);
	if (rc) {
		err_prepend(err, "underlay");
		return rc;
	}
	if (!p->cfg.mtu)
		p->cfg.mtu = l.mtu - PODNET_VXLAN_BYTES;
	if (p->cfg.mtu < 576 || p->cfg.mtu > 65000 || p->cfg.mtu + PODNET_VXLAN_BYTES > l.mtu)
		return err_set(err, RC_INVALID,
			       "MTU %u of the segment does not fit into the underlay's %u",
			       p->cfg.mtu, l.mtu);
	return RC_OK;
}

static enum rc bridge_up(struct podnet *p, struct err *err)
{
	const struct podnet_config *c = &p->cfg;
	struct net_link_set up = {.up = NET_ON};
	struct net_route svc = {.dst = c->service_network,
				.prefix = c->service_prefix,
				.dev = PODNET_BRIDGE,
				.src = c->segment};
	/* Its own MAC, which the VXLAN port must not share: that port drops frames from its own
	 * MAC as a loop. */
	enum rc rc = net_bridge_add(p->net, PODNET_BRIDGE, net_mac_of_ip4(c->segment), c->mtu, err);

	if (!rc)
		rc = podnet_link_quiet(p, PODNET_BRIDGE, err);
	if (!rc)
		rc = net_link_set(p->net, PODNET_BRIDGE, &up, err);
	if (!rc)
		rc = net_addr_add(p->net, PODNET_BRIDGE, c->segment, c->prefix, err);
	/* For this node's own clients of Services: the address they speak from is chosen here. */
	if (!rc)
		rc = net_route_set(p->net, &svc, err);
	return rc;
}

static enum rc vxlan_up(struct podnet *p, struct err *err)
{
	const struct podnet_config *c = &p->cfg;
	struct net_mac mac = net_mac_of_ip4(c->segment);
	struct net_vxlan v = {.name = PODNET_VXLAN,
			      .id = c->vni,
			      .port = c->port,
			      .local = c->underlay,
			      .mtu = c->mtu};
	struct net_link_set up = {.up = NET_ON, .master = PODNET_BRIDGE};
	/* Who has an address elsewhere is answered here, from the bridge's permanent neighbours: a pod that
	 * has just taken a VM over knows nobody yet, and must not wait for a broadcast's way and back. */
	struct net_port_set port = {.learning = NET_OFF,
				    .flood = NET_OFF,
				    .bcast_flood = NET_ON,
				    .mcast_flood = NET_ON,
				    .answers_arp = NET_ON};
	enum rc rc;

	mac.b[0] = 0x0e; /* differs from every MAC that net_mac_of_ip4() makes */
	v.mac = mac;
	rc = net_vxlan_add(p->net, &v, err);
	if (!rc)
		rc = podnet_link_quiet(p, PODNET_VXLAN, err);
	if (!rc)
		rc = net_link_set(p->net, PODNET_VXLAN, &up, err);
	if (!rc)
		rc = net_port_set(p->net, PODNET_VXLAN, &port, err);
	/* Steering of a hand-over that runs is kept (a new agent takes it over); the entries
	 * expire by themselves. */
	if (!rc)
		rc = net_steer_init(p->ns_fd, PODNET_VXLAN, false, err);
	return rc;
}

static enum rc gateway_up(struct podnet *p, struct err *err)
{
	const struct podnet_config *c = &p->cfg;
	struct net_veth v = {.name = PODNET_GATEWAY_PORT,
			     .peer = PODNET_GATEWAY_IF,
			     .peer_ns_fd = -1,
			     .peer_mac = c->gateway_mac,
			     .mtu = c->mtu};
	struct net_link_set up = {.up = NET_ON};
	struct net_link_set join = {.up = NET_ON, .master = PODNET_BRIDGE};
	struct net_port_set port = {.learning = NET_OFF, .flood = NET_OFF, .bcast_flood = NET_ON};
	struct net_fdb f = {
		.kind = NET_FDB_PORT, .dev = PODNET_GATEWAY_PORT, .mac = c->gateway_mac};
	enum rc rc = net_veth_add(p->net, &v, err);

	if (!rc)
		rc = podnet_link_quiet(p, PODNET_GATEWAY_IF, err);
	if (!rc)
		rc = podnet_link_quiet(p, PODNET_GATEWAY_PORT, err);
	if (!rc)
		rc = net_neigh_del(p->net, PODNET_BRIDGE, c->gateway, err);
	if (!rc)
		rc = net_link_set(p->net, PODNET_GATEWAY_IF, &up, err);
	if (!rc)
		rc = net_addr_add(p->net, PODNET_GATEWAY_IF, c->gateway, 32, err);
	if (!rc)
		rc = net_link_set(p->net, PODNET_GATEWAY_PORT, &join, err);
	if (!rc)
		rc = net_port_set(p->net, PODNET_GATEWAY_PORT, &port, err);
	if (!rc)
		rc = net_fdb_set(p->net, &f, err);
	return rc;
}

static enum rc rules_up(struct podnet *p, struct err *err)
{
	struct sbuf text = SBUF_INIT(64 * KIB);
	enum rc rc = podnet_render(&p->cfg, &text, err);

	if (!rc)
		rc = net_nft_run(p->ns_fd, sbuf_str(&text), err);
	sbuf_fini(&text);
	return rc;
}

bool podnet_is_gateway(const struct podnet *p)
{
	return p->cfg.is_gateway;
}

enum rc podnet_set_gateway(struct podnet *p, bool is_gateway, struct err *err)
{
	if (p->is_gateway_set && p->cfg.is_gateway == is_gateway)
		return RC_OK;
	p->cfg.is_gateway = is_gateway;
	p->is_gateway_set = false;

	enum rc rc =
		is_gateway ? gateway_up(p, err) : net_link_del(p->net, PODNET_GATEWAY_PORT, err);

	if (!rc)
		rc = rules_up(p, err);
	if (rc)
		err_prepend(err, "gateway");
	else
		p->is_gateway_set = true;
	return rc;
}

static void place_free(void *v)
{
	mem_free(v);
}

static enum rc podnet_new(struct podnet **out, const struct podnet_config *cfg, struct err *err)
{
	CLEANUP(podnet_freep) struct podnet *p = mem_alloc(sizeof(*p));

	if (!p)
		return err_set(err, RC_NOMEM, "no memory for the node's network");
	p->ns_fd = -1;
	pthread_mutex_init(&p->places_lock, NULL);
	map_init(&p->places, place_free);
	p->cfg = completed(cfg);
	p->pod_ns_dir = mem_strdup(cfg->pod_ns_dir);
	if (!p->pod_ns_dir)
		return err_set(err, RC_NOMEM, "no memory for the node's network");
	p->cfg.pod_ns_dir = p->pod_ns_dir;
	if (cfg->ns_fd >= 0) {
		p->ns_fd = fcntl(cfg->ns_fd, F_DUPFD_CLOEXEC, 3);
		if (p->ns_fd < 0)
			return err_set_sys(err, errno, "cannot keep the node's namespace");
	}
	p->cfg.ns_fd = p->ns_fd;

	enum rc rc = net_open(&p->net, p->ns_fd, err);

	if (rc)
		return rc;
	*out = STEAL(p);
	return RC_OK;
}

enum rc podnet_up(struct podnet **out, const struct podnet_config *cfg, struct err *err)
{
	CLEANUP(podnet_freep) struct podnet *p = NULL;
	struct net_link port;
	enum rc rc = config_check(cfg, err);

	if (!rc)
		rc = podnet_new(&p, cfg, err);
	if (!rc)
		rc = find_mtu(p, err);
	if (!rc)
		rc = sysctls(p, err);
	if (!rc)
		rc = bridge_up(p, err);
	if (!rc)
		rc = vxlan_up(p, err);
	if (!rc && net_link_get(p->net, PODNET_GATEWAY_PORT, &port, NULL) == RC_OK)
		p->cfg.is_gateway = true;
	if (!rc)
		rc = podnet_set_gateway(p, p->cfg.is_gateway, err);
	if (!rc)
		rc = podnet_mig_up(p, err);
	if (rc)
		return rc;
	*out = STEAL(p);
	return RC_OK;
}

struct podnet *podnet_free(struct podnet *p)
{
	if (!p)
		return NULL;
	net_free(p->net);
	map_fini(&p->places);
	pthread_mutex_destroy(&p->places_lock);
	mem_free(p->pod_ns_dir);
	fd_close(p->ns_fd);
	return mem_free(p);
}

unsigned podnet_mtu(const struct podnet *p)
{
	return p->cfg.mtu;
}

/* ---- down ---- */

#define DOWN_MAX 4096

struct doomed {
	size_t n;
	char (*names)[NET_IFNAME];
};

static bool is_pod_link(const char *name)
{
	return strlen(name) == 12 && name[0] == 'f' && (name[1] == 'v' || name[1] == 'm') &&
	       strspn(name + 2, "0123456789abcdef") == 10;
}

static enum rc doom_link(const struct net_link *l, void *arg, struct err *err)
{
	struct doomed *d = arg;

	if (!str_eq(l->kind, "veth") || !is_pod_link(l->name))
		return RC_OK;
	if (d->n == DOWN_MAX)
		return err_set(err, RC_TOO_BIG, "more than %d links of pods", DOWN_MAX);
	memcpy(d->names[d->n++], l->name, NET_IFNAME);
	return RC_OK;
}

/* Every pod link whose name is not among the kept (n 0: all). */
static enum rc drop_pod_links(struct net *n, const struct podnet_attached *keep, size_t n_keep,
			      struct err *err)
{
	struct doomed d = {0};
	enum rc rc;

	d.names = mem_calloc(DOWN_MAX, NET_IFNAME);
	if (!d.names)
		return err_set(err, RC_NOMEM, "no memory for a list of links");
	rc = net_link_list(n, doom_link, &d, err);
	for (size_t i = 0; i < d.n && !rc; i++) {
		bool kept = false;

		for (size_t k = 0; k < n_keep && !kept; k++)
			kept = str_eq(keep[k].host_if, d.names[i]) ||
			       str_eq(keep[k].host_mig_if, d.names[i]);
		if (!kept)
			rc = net_link_del(n, d.names[i], err);
	}
	mem_free(d.names);
	return rc;
}

struct ns_sweep {
	const char *dir;
	const struct podnet_live *keep;
	size_t n_keep;
};

static enum rc sweep_ns(const char *name, void *arg, struct err *err)
{
	const struct ns_sweep *s = arg;

	for (size_t i = 0; i < s->n_keep; i++)
		if (str_eq(s->keep[i].uid, name))
			return RC_OK;
	return net_ns_delete(s->dir, name, err);
}

static bool is_steered(struct net_mac mac, void *arg)
{
	const struct ns_sweep *s = arg;

	for (size_t i = 0; i < s->n_keep; i++)
		if (net_mac_equal(s->keep[i].mac, mac))
			return true;
	return false;
}

enum rc podnet_sweep(struct podnet *p, const struct podnet_live *pods, size_t n, struct err *err)
{
	struct ns_sweep s = {p->pod_ns_dir, pods, n};
	struct podnet_attached *keep = n ? mem_calloc(n, sizeof(*keep)) : NULL;

	if (n && !keep)
		return err_set(err, RC_NOMEM, "no memory for a list of pods");
	for (size_t i = 0; i < n; i++)
		podnet_names(pods[i].uid, &keep[i]);

	enum rc rc = drop_pod_links(p->net, keep, n, err);

	if (!rc)
		rc = file_each(p->pod_ns_dir, sweep_ns, &s, err);
	if (!rc)
		rc = net_steer_sweep(p->ns_fd, PODNET_VXLAN, is_steered, &s, err);
	if (!rc)
		rc = podnet_mig_sweep(p, pods, n, err);
	mem_free(keep);
	return rc;
}

enum rc podnet_down(const struct podnet_config *cfg, struct err *err)
{
	static const char *const links[] = {PODNET_GATEWAY_PORT, PODNET_GATEWAY_IF, PODNET_VXLAN,
					    PODNET_BRIDGE};
	static const char *const tables[] = {PODNET_TABLE, PODNET_MIG_TABLE, "ferry_svc"};
	struct ns_sweep s = {cfg->pod_ns_dir, NULL, 0};
	CLEANUP(net_freep) struct net *n = NULL;
	enum rc rc = net_open(&n, cfg->ns_fd, err);

	if (!rc)
		rc = drop_pod_links(n, NULL, 0, err);
	if (!rc)
		rc = file_each(cfg->pod_ns_dir, sweep_ns, &s, err);
	if (!rc)
		rc = net_steer_drop(cfg->ns_fd, PODNET_VXLAN, err);
	for (size_t i = 0; i < ARRAY_SIZE(links) && !rc; i++)
		rc = net_link_del(n, links[i],
				  err); /* addresses, routes and neighbours go with them */
	for (size_t i = 0; i < ARRAY_SIZE(tables) && !rc; i++)
		rc = net_nft_del_table(cfg->ns_fd, "ip", tables[i], err);
	return rc;
}

enum rc podnet_client_routes(int ns_fd, const struct podnet_config *cfg, struct in_addr via,
			     struct err *err)
{
	CLEANUP(net_freep) struct net *n = NULL;
	struct net_route r[] = {
		{.dst = cfg->network, .prefix = cfg->prefix, .via = via},
		{.dst = cfg->service_network, .prefix = cfg->service_prefix, .via = via},
	};
	enum rc rc = net_open(&n, ns_fd, err);

	for (size_t i = 0; i < ARRAY_SIZE(r) && !rc; i++)
		rc = net_ip4_is_none(via) ? net_route_del(n, &r[i], err)
					  : net_route_set(n, &r[i], err);
	return rc;
}
