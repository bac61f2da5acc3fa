#include "vmnet_int.h"

#include <stdio.h>

#include "base/file.h"
#include "base/str.h"
#include "net/capture.h"
#include "net/nft.h"
#include "net/ns.h"

#define DHCP_NAME "dhcp"
#define DHCP_FAKE_HOST \
	0xa9fe4b0a /* 169.254.75.10: DHCP's own address where the guest is on the segment itself */

/* Offsets in an ICMP error, from its own header: the quoted IP header starts after 8 bytes. */
#define INNER_CSUM  (8 + 10)
#define INNER_SADDR (8 + 12)
#define INNER_DADDR (8 + 16)

static const char *const proto_names[] = {"tcp", "udp", "sctp"};
static_assert(ARRAY_SIZE(proto_names) == VMNET__PROTO_MAX, "name every protocol");

static struct in_addr guest_gateway(const struct vmnet_config *c)
{
	return net_ip4_nth(c->vm_network, c->vm_prefix, 1);
}

static struct in_addr guest_address(const struct vmnet_config *c)
{
	return net_ip4_nth(c->vm_network, c->vm_prefix, 2);
}

static struct net_mac guest_mac(const struct vmnet_config *c)
{
	return net_mac_is_zero(c->guest_mac) ? c->mac : c->guest_mac;
}

static enum rc config_check(const struct vmnet_config *c, struct err *err)
{
	if (net_mac_is_zero(c->mac) || net_ip4_is_none(c->address) || str_is_empty(c->pod_if))
		return err_set(err, RC_INVALID,
			       "a VM's network needs the pod's link, MAC and address");
	if (c->mtu < 576 || c->mtu > 65535)
		return err_set(err, RC_INVALID, "MTU %u is out of range", c->mtu);
	if (c->n_ports > VMNET_PORTS_MAX)
		return err_set(err, RC_INVALID, "at most %d ports", VMNET_PORTS_MAX);
	for (size_t i = 0; i < c->n_ports; i++)
		if (c->ports[i].proto >= VMNET__PROTO_MAX || !c->ports[i].port)
			return err_set(err, RC_INVALID, "port %zu is out of range", i);
	if (c->binding == VMNET_BRIDGE)
		return net_mac_equal(guest_mac(c), c->mac)
			       ? RC_OK
			       : err_set(err, RC_INVALID,
					 "with the bridge binding the guest's MAC is the VM's");
	if (c->vm_prefix > 30 || c->vm_prefix < 8)
		return err_set(
			err, RC_INVALID,
			"VM CIDR subnet is too small, at least 2 host addresses are required: /%u",
			c->vm_prefix);
	if (net_ip4_in(c->address, c->vm_network, c->vm_prefix) ||
	    net_ip4_in(c->gateway, c->vm_network, c->vm_prefix))
		return err_set(err, RC_INVALID, "the guest's network overlaps the cluster network");
	return RC_OK;
}

/* ---- masquerade ---- */

static void render_sets(const struct vmnet_config *c, struct sbuf *out)
{
	/* Kept over a re-render: they hold what the guest opened.  The limit bounds kernel
	 * memory (about 100 bytes each); a guest that opens more flows at once loses the
	 * filter's memory of its oldest-expiring ones. */
	sbuf_adds(out, "table ip vmnet {\n"
		       "\tset flows { type inet_proto . ipv4_addr . inet_service . inet_service; "
		       "size 16384; "
		       "flags dynamic,timeout; timeout 3m; }\n"
		       "\tset peers { type inet_proto . ipv4_addr; size 1024; flags "
		       "dynamic,timeout; timeout 3m; }\n"
		       "\tset ports { type inet_proto . inet_service; }\n");
	static const char *const chains[] = {"inner_in", "inner_out",	 "unknown",   "judge",
					     "remember", "from_segment", "from_guest"};

	for (size_t i = 0; i < ARRAY_SIZE(chains); i++)
		sbuf_addf(out, "\tchain %s { }\n", chains[i]);
	sbuf_adds(out,
		  "\tchain pre { type filter hook prerouting priority raw; policy accept; }\n"
		  "\tchain post { type filter hook postrouting priority raw; policy accept; }\n"
		  "\tchain in { type filter hook input priority filter; policy accept; }\n"
		  "\tchain through { type filter hook forward priority filter; policy accept; }\n"
		  "}\n");
	for (size_t i = 0; i < ARRAY_SIZE(chains); i++)
		sbuf_addf(out, "flush chain ip vmnet %s\n", chains[i]);
	sbuf_adds(out,
		  "flush chain ip vmnet pre\nflush chain ip vmnet post\nflush chain ip vmnet in\n"
		  "flush chain ip vmnet through\nflush set ip vmnet ports\n");
	for (size_t i = 0; i < c->n_ports; i++)
		sbuf_addf(out, "add element ip vmnet ports { %s . %u }\n",
			  proto_names[c->ports[i].proto], c->ports[i].port);
}

/* What a listed set of ports does to new flows from outside. */
static void render_filter(const struct vmnet_config *c, struct sbuf *out)
{
	sbuf_adds(out, "\tchain judge {\n"
		       "\t\tip frag-off & 0x1fff != 0 return\n"
		       "\t\tmeta l4proto icmp return\n"
		       "\t\tmeta l4proto tcp tcp flags & (fin | syn | rst | ack) != syn return\n"
		       "\t\tmeta l4proto . th dport @ports return\n"
		       "\t\tmeta l4proto tcp reject with tcp reset\n"
		       "\t\tmeta l4proto { udp, sctp } meta l4proto . ip saddr . th sport . th "
		       "dport @flows return\n"
		       "\t\tmeta l4proto != { udp, sctp } meta l4proto . ip saddr @peers return\n"
		       "\t\tjump unknown\n"
		       "\t}\n");
	/* Empty while the newest flows of a VM that moves here are still on their way. */
	if (!c->is_incoming)
		sbuf_adds(out, "\tchain unknown {\n\t\treject with icmp port-unreachable\n\t}\n");
	sbuf_adds(out, "\tchain remember {\n"
		       "\t\tmeta l4proto { udp, sctp } update @flows { meta l4proto . ip daddr . "
		       "th dport . th sport }\n"
		       "\t\tmeta l4proto != { tcp, udp, sctp, icmp } update @peers { meta l4proto "
		       ". ip daddr }\n"
		       "\t}\n");
}

static void render_rewrite(const struct vmnet_config *c, struct sbuf *out)
{
	char vm[NET_IP4_TEXT], guest[NET_IP4_TEXT], gw[NET_IP4_TEXT];
	static const char errors[] =
		"icmp type { destination-unreachable, time-exceeded, parameter-problem }";

	net_ip4_format(c->address, vm);
	net_ip4_format(guest_address(c), guest);
	net_ip4_format(guest_gateway(c), gw);
	sbuf_addf(out,
		  "\tchain from_segment {\n%s"
		  "\t\t%s @th,160,32 0x%08x jump inner_in\n"
		  "\t\tmeta mark set 0x1 ip daddr set %s notrack\n"
		  "\t}\n",
		  c->n_ports ? "\t\tjump judge\n" : "", errors, ntohl(c->address.s_addr), guest);
	/* 0.0.0.0: DHCP before there is an address.  To its own address: comes back as from
	 * outside. */
	sbuf_addf(out,
		  "\tchain from_guest {\n"
		  "\t\tip saddr 0.0.0.0 udp dport 67 accept\n"
		  "\t\tip saddr != %s drop\n%s"
		  "\t\tip daddr %s ip daddr set %s notrack\n"
		  "\t\tnotrack\n"
		  "\t}\n",
		  guest, c->n_ports ? "\t\tjump remember\n" : "", vm, guest);
	sbuf_addf(out,
		  "\tchain pre {\n"
		  "\t\tiifname \"%s\" ip daddr %s goto from_segment\n"
		  "\t\tiifname \"%s\" goto from_guest\n"
		  "\t}\n",
		  c->pod_if, vm, VMNET_TAP);
	sbuf_addf(out,
		  "\tchain post {\n"
		  "\t\toifname \"%s\" %s @th,192,32 0x%08x jump inner_out\n"
		  "\t\toifname \"%s\" ip saddr %s ip saddr set %s\n"
		  "\t\toifname \"%s\" ip saddr %s ip saddr set %s\n"
		  "\t}\n",
		  c->pod_if, errors, ntohl(guest_address(c).s_addr), c->pod_if, guest, vm,
		  VMNET_TAP, guest, vm);
	/* A frame from the segment that names the guest's inner address itself was not judged: the mark
	 * tells. The namespace itself offers the guest DHCP and a ping, and the segment nothing. */
	sbuf_addf(out,
		  "\tchain in {\n"
		  "\t\tiifname \"%s\" udp dport 67 accept\n"
		  "\t\tiifname \"%s\" icmp type echo-request ip daddr %s accept\n"
		  "\t\tiifname { \"%s\", \"%s\" } drop\n"
		  "\t}\n"
		  "\tchain through {\n"
		  "\t\tiifname \"%s\" oifname \"%s\" meta mark 0x1 accept\n"
		  "\t\tiifname \"%s\" oifname { \"%s\", \"%s\" } accept\n"
		  "\t\tdrop\n"
		  "\t}\n",
		  VMNET_TAP, VMNET_TAP, gw, VMNET_TAP, c->pod_if, c->pod_if, VMNET_TAP, VMNET_TAP,
		  c->pod_if, VMNET_TAP);
}

enum rc vmnet_render(const struct vmnet_config *c, struct sbuf *out, struct err *err)
{
	enum rc rc = config_check(c, err);

	if (rc)
		return rc;
	if (c->binding == VMNET_BRIDGE)
		return vmnet_bridge_render(c, out, err);
	render_sets(c, out);
	sbuf_adds(out, "table ip vmnet {\n");
	render_filter(c, out);
	render_rewrite(c, out);
	sbuf_adds(out, "}\n");
	rc = sbuf_rc(out);
	return rc ? err_set(err, rc, "the VM's rules do not fit") : RC_OK;
}

static enum rc rules_up(const struct vmnet_config *c, struct err *err)
{
	struct sbuf text = SBUF_INIT(128 * KIB);
	enum rc rc = vmnet_render(c, &text, err);

	if (!rc)
		rc = net_nft_run(c->ns_fd, sbuf_str(&text), err);
	sbuf_fini(&text);
	return rc;
}

enum rc vmnet_masquerade_up(const struct vmnet_config *c, struct net *in, struct err *err)
{
	static const struct net_mac gateway_mac = {
		{0x02, 0, 0, 0, 0, 0}}; /* KubeVirt's: the guest sees no change */
	struct net_link_set tap = {.up = NET_ON, .mtu = c->mtu, .mac = &gateway_mac};
	enum rc rc = net_link_set(in, VMNET_TAP, &tap, err);

	if (!rc)
		rc = net_addr_add(in, VMNET_TAP, guest_gateway(c), c->vm_prefix, err);
	/* Never asked for: a guest that stands still (or was never heard yet) must not lose
	 * frames to ARP. */
	if (!rc)
		rc = net_neigh_set(in, VMNET_TAP, guest_address(c), guest_mac(c), err);
	if (!rc)
		rc = rules_up(c, err);
	if (!rc)
		rc = net_nft_add_inner_rewrite(c->ns_fd, VMNET_TABLE, "inner_in", INNER_SADDR,
					       guest_address(c), INNER_CSUM, err);
	if (!rc)
		rc = net_nft_add_inner_rewrite(c->ns_fd, VMNET_TABLE, "inner_out", INNER_DADDR,
					       c->address, INNER_CSUM, err);
	return rc;
}

/* ---- bridge ---- */

enum rc vmnet_bridge_render(const struct vmnet_config *c, struct sbuf *out, struct err *err)
{
	char vm[NET_IP4_TEXT], mac[NET_MAC_TEXT];

	net_ip4_format(c->address, vm);
	net_mac_format(c->mac, mac);
	/* The guest speaks with its own addresses only; its DHCP stays in the pod. */
	sbuf_addf(out,
		  "add table bridge vmnet\ndelete table bridge vmnet\n"
		  "table bridge vmnet {\n"
		  "\tchain through {\n"
		  "\t\ttype filter hook forward priority filter; policy accept;\n"
		  "\t\tether type ip udp dport { 67, 68 } drop\n"
		  "\t\tiifname \"%s\" ether saddr != %s drop\n"
		  "\t\tiifname \"%s\" ether type arp arp saddr ip { 0.0.0.0, %s } accept\n"
		  "\t\tiifname \"%s\" ether type ip ip saddr %s accept\n"
		  "\t\tiifname \"%s\" drop\n"
		  "\t}\n"
		  "\tchain out {\n"
		  "\t\ttype filter hook output priority filter; policy accept;\n"
		  "\t\toifname \"%s\" drop\n"
		  "\t}\n"
		  "\tchain in {\n"
		  "\t\ttype filter hook input priority filter; policy accept;\n"
		  "\t\tiifname \"%s\" ether type ip udp dport 67 accept\n"
		  "\t\tiifname \"%s\" ether type arp accept\n"
		  "\t\tdrop\n"
		  "\t}\n"
		  "}\n",
		  VMNET_TAP, mac, VMNET_TAP, vm, VMNET_TAP, vm, VMNET_TAP, c->pod_if, VMNET_TAP,
		  VMNET_TAP);

	enum rc rc = sbuf_rc(out);

	return rc ? err_set(err, rc, "the VM's rules do not fit") : RC_OK;
}

static struct net_mac derived_mac(const struct vmnet_config *c, uint8_t second)
{
	struct net_mac m = net_mac_of_ip4(c->address);

	m.b[0] = 0x0e;
	m.b[1] = second;
	return m;
}

enum rc vmnet_bridge_up(const struct vmnet_config *c, struct net *in, struct err *err)
{
	struct net_mac pod_mac = derived_mac(
		c, 0x5b); /* the VM's own MAC must not be the port's: it is the guest's */
	struct net_link_set pod = {.up = NET_ON, .mac = &pod_mac, .master = VMNET_BRIDGE_IF};
	struct net_link_set tap = {.up = NET_ON, .mtu = c->mtu, .master = VMNET_BRIDGE_IF};
	struct net_link_set up = {.up = NET_ON};
	struct net_port_set to_segment = {.learning = NET_OFF, .flood = NET_ON};
	struct net_port_set to_guest = {.learning = NET_OFF, .flood = NET_OFF};
	struct net_fdb guest = {.kind = NET_FDB_PORT, .dev = VMNET_TAP, .mac = c->mac};
	struct in_addr own = {htonl(DHCP_FAKE_HOST)};
	struct net_route to_client = {
		.dst = c->address, .prefix = 32, .dev = VMNET_BRIDGE_IF, .src = own};
	enum rc rc = net_addr_del(in, c->pod_if, c->address, c->prefix, err);

	if (!rc)
		rc = rules_up(c, err);
	if (!rc)
		rc = net_bridge_add(in, VMNET_BRIDGE_IF, derived_mac(c, 0x5d), c->mtu, err);
	if (!rc)
		rc = net_link_set(in, c->pod_if, &pod, err);
	if (!rc)
		rc = net_link_set(in, VMNET_TAP, &tap, err);
	if (!rc)
		rc = net_port_set(in, c->pod_if, &to_segment, err);
	if (!rc)
		rc = net_port_set(in, VMNET_TAP, &to_guest, err);
	if (!rc)
		rc = net_fdb_set(in, &guest, err);
	if (!rc)
		rc = net_link_set(in, VMNET_BRIDGE_IF, &up, err);
	if (!rc)
		rc = net_addr_add(in, VMNET_BRIDGE_IF, own, 32, err);
	if (!rc)
		rc = net_route_set(in, &to_client, err);
	return rc;
}

/* ---- both ---- */

static enum rc dhcp_up(const struct vmnet_config *c, struct err *err)
{
	struct sbuf text = SBUF_INIT(16 * KIB);
	bool bridge = c->binding == VMNET_BRIDGE;
	struct net_dhcp d = {
		.dev = bridge ? VMNET_BRIDGE_IF : VMNET_TAP,
		.mac = guest_mac(c),
		.address = bridge ? c->address : guest_address(c),
		.prefix = bridge ? c->prefix : c->vm_prefix,
		.router = bridge ? c->gateway : guest_gateway(c),
		.shared = {bridge ? htonl(DHCP_FAKE_HOST) : 0},
		.mtu = c->mtu,
		.hostname = c->hostname,
		.domain = c->domain,
	};
	enum rc rc;

	memcpy(d.search, c->search, sizeof(d.search));
	memcpy(d.dns, c->dns, sizeof(d.dns));
	rc = net_dhcp_render(&d, &text, err);
	if (!rc)
		rc = net_dnsmasq_start(c->ns_fd, c->dir, DHCP_NAME, sbuf_str(&text), err);
	sbuf_fini(&text);
	return rc;
}

/* A QEMU that is not running takes one frame from the tap and keeps it in front of the card;
 * each time the card is reset (it is, when the incoming state is loaded) that frame is thrown
 * away and the next one taken.  So that these are not the first frames that a source sends on,
 * frames of a kind that no guest listens to go first. */
static enum rc feed_stopped_qemu(const struct vmnet_config *c, struct err *err)
{
	enum { ETHERTYPE_LOCAL = 0x88b5, N_FRAMES = 4 };
	struct {
		struct net_mac dest, source;
		uint16_t type;
		uint8_t zero[46];
	} frame = {.dest = guest_mac(c), .source = {{0x02}}, .type = htons(ETHERTYPE_LOCAL)};

	static_assert(sizeof(frame) == 60, "the smallest Ethernet frame");
	return net_frame_send(c->ns_fd, VMNET_TAP, &frame, sizeof(frame), N_FRAMES, err);
}

enum rc vmnet_up(const struct vmnet_config *c, int *tap_fd, struct err *err)
{
	CLEANUP(net_freep)
	struct net *in = NULL;
	CLEANUP(fd_closep)
	int fd = -1;
	enum rc rc = config_check(c, err);

	if (!rc)
		rc = net_open(&in, c->ns_fd, err);
	if (!rc && tap_fd)
		rc = net_tap_open(c->ns_fd, VMNET_TAP, c->owner, true, VMNET_TAP_QUEUE, &fd, err);
	if (!rc)
		rc = c->binding == VMNET_BRIDGE ? vmnet_bridge_up(c, in, err)
						: vmnet_masquerade_up(c, in, err);
	if (!rc && tap_fd && c->is_incoming)
		rc = feed_stopped_qemu(c, err);
	if (!rc)
		rc = dhcp_up(c, err);
	if (rc) {
		err_prepend(err, "the VM's network");
		return rc;
	}
	if (tap_fd)
		*tap_fd = STEAL_FD(fd);
	return RC_OK;
}

enum rc vmnet_down(const char *dir, struct err *err)
{
	return net_dnsmasq_stop(dir, DHCP_NAME, err);
}

enum rc vmnet_settle(int ns_fd, struct err *err)
{
	struct err e = {0};
	enum rc rc = net_nft_run(ns_fd,
				 "flush chain ip vmnet unknown\n"
				 "add rule ip vmnet unknown reject with icmp port-unreachable\n",
				 &e);

	/* The bridge binding has no filter. */
	if (rc && strstr(e.msg, "No such file"))
		return RC_OK;
	return rc ? err_copy(err, &e) : RC_OK;
}
