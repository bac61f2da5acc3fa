#include "cluster/podruntime/services.h"

#include <stdio.h>

#include "base/str.h"
#include "net/nft.h"

#define TABLE	 "ferry_svc"
#define TEXT_MAX (8 * MIB)
#define AFFINITY_SEED \
	0x46657272 /* the same on every node: a client lands at the same endpoint everywhere */

static const char *const proto_names[] = {"tcp", "udp", "sctp"};
static_assert(ARRAY_SIZE(proto_names) == SVC__MAX, "name every protocol");

/* Chain of one port of one Service: its address, protocol and port are unique. */
static void chain_name(const struct service *s, const struct svc_port *p, char out[64])
{
	const uint8_t *a = (const void *)&s->cluster_ip.s_addr;

	snprintf(out, 64, "svc_%u_%u_%u_%u_%s_%u", a[0], a[1], a[2], a[3], proto_names[p->proto],
		 p->port);
}

static bool is_served(const struct service *s, const struct svc_port *p)
{
	return !net_ip4_is_none(s->cluster_ip) && p->n_endpoints > 0;
}

/* The API keeps addresses and node ports unique; should two objects claim one all the same (a
 * stale cache), the first has it, and the rest of the table is not held up by it. */
static bool is_taken(const struct services *in, size_t i, size_t k, bool node_ports)
{
	const struct service *s = &in->items[i];
	const struct svc_port *p = &s->ports[k];

	for (size_t a = 0; a <= i; a++)
		for (size_t b = 0; b < (a == i ? k : in->items[a].n_ports); b++) {
			const struct service *o = &in->items[a];
			const struct svc_port *q = &o->ports[b];

			if (!is_served(o, q) || q->proto != p->proto)
				continue;
			if (node_ports ? q->node_port == p->node_port
				       : q->port == p->port &&
						 o->cluster_ip.s_addr == s->cluster_ip.s_addr)
				return true;
		}
	return false;
}

/* One endpoint of n, by hash of the client (affinity) or by chance; one map lookup whatever n. */
static void render_chain(const struct service *s, const struct svc_port *p, struct sbuf *out)
{
	char name[64], a[NET_IP4_TEXT];
	const char *proto = proto_names[p->proto];

	chain_name(s, p, name);
	sbuf_addf(out, "\tchain %s {\n", name);
	if (p->n_endpoints == 1) {
		sbuf_addf(out, "\t\tmeta l4proto %s dnat to %s:%u\n\t}\n", proto,
			  net_ip4_format(p->endpoints[0].address, a), p->endpoints[0].port);
		return;
	}
	sbuf_addf(out, "\t\tmeta l4proto %s dnat to ", proto);
	if (s->affinity_seconds)
		sbuf_addf(out, "jhash ip saddr mod %zu seed 0x%x map {", p->n_endpoints,
			  AFFINITY_SEED);
	else
		sbuf_addf(out, "numgen random mod %zu map {", p->n_endpoints);
	for (size_t i = 0; i < p->n_endpoints; i++)
		sbuf_addf(out, "%s %zu : %s . %u", i ? "," : "", i,
			  net_ip4_format(p->endpoints[i].address, a), p->endpoints[i].port);
	sbuf_adds(out, " }\n\t}\n");
}

static void render_maps(const struct services *in, bool node_ports, struct sbuf *out)
{
	bool any = false;
	char a[NET_IP4_TEXT], name[64];

	sbuf_addf(out, "\tmap %s {\n\t\ttype %sinet_proto . inet_service : verdict\n",
		  node_ports ? "nodeports" : "cluster", node_ports ? "" : "ipv4_addr . ");
	for (size_t i = 0; i < in->n; i++) {
		const struct service *s = &in->items[i];

		for (size_t k = 0; k < s->n_ports; k++) {
			const struct svc_port *p = &s->ports[k];

			if (!is_served(s, p) || (node_ports && !p->node_port) ||
			    is_taken(in, i, k, node_ports))
				continue;
			chain_name(s, p, name);
			sbuf_adds(out, any ? ",\n\t\t\t     " : "\t\telements = { ");
			any = true;
			if (!node_ports)
				sbuf_addf(out, "%s . ", net_ip4_format(s->cluster_ip, a));
			sbuf_addf(out, "%s . %u : goto %s", proto_names[p->proto],
				  node_ports ? p->node_port : p->port, name);
		}
	}
	sbuf_addf(out, "%s\t}\n", any ? " }\n" : "");
}

static void render_refused(const struct services *in, struct sbuf *out)
{
	bool any = false;

	sbuf_adds(out, "\tset refused_ports {\n\t\ttype inet_proto . inet_service\n");
	for (size_t i = 0; i < in->n; i++)
		for (size_t k = 0; k < in->items[i].n_ports; k++) {
			const struct svc_port *p = &in->items[i].ports[k];

			if (!p->node_port || is_served(&in->items[i], p))
				continue;
			sbuf_adds(out, any ? ", " : "\t\telements = { ");
			sbuf_addf(out, "%s . %u", proto_names[p->proto], p->node_port);
			any = true;
		}
	sbuf_addf(out, "%s\t}\n", any ? " }\n" : "");
}

static void render_base(const struct services *in, struct sbuf *out)
{
	char net[NET_IP4_TEXT], svc[NET_IP4_TEXT], dns[NET_IP4_TEXT], gw[NET_IP4_TEXT];

	net_ip4_format(in->network, net);
	net_ip4_format(in->service_network, svc);
	net_ip4_format(in->gateway, gw);
	sbuf_adds(out, "\tchain lead {\n");
	if (!net_ip4_is_none(in->dns))
		sbuf_addf(out,
			  "\t\tip daddr %s meta l4proto { tcp, udp } th dport 53 dnat to %s:53\n",
			  net_ip4_format(in->dns, dns), gw);
	/* fib: a node port is served at every address of the node itself, but never on the
	 * segment's behalf. */
	sbuf_adds(out, "\t\tip daddr . meta l4proto . th dport vmap @cluster\n"
		       "\t\tfib daddr type local meta l4proto . th dport vmap @nodeports\n"
		       "\t}\n"
		       "\tchain pre {\n\t\ttype nat hook prerouting priority dstnat; policy "
		       "accept;\n\t\tjump lead\n\t}\n"
		       "\tchain out {\n\t\ttype nat hook output priority -100; policy "
		       "accept;\n\t\tjump lead\n\t}\n");
	/* Answers must come back through the node that translated: flows between two addresses
	 * of the segment (the answer would go straight), and flows from elsewhere that entered
	 * by a node port (the answer would leave by the gateway). A flow to a cluster address
	 * from elsewhere enters by the gateway node and keeps its source. */
	sbuf_addf(out,
		  "\tchain post {\n\t\ttype nat hook postrouting priority srcnat - 1; policy "
		  "accept;\n"
		  "\t\tct status & dnat == 0 accept\n"
		  "\t\tip daddr != %s/%u accept\n"
		  "\t\tip saddr %s/%u fib saddr type local accept\n"
		  "\t\tip saddr %s/%u masquerade\n"
		  "\t\tfib saddr type local masquerade\n"
		  "\t\tct original daddr %s/%u accept\n"
		  "\t\tmasquerade\n"
		  "\t}\n",
		  net, in->prefix, net, in->prefix, net, in->prefix, svc, in->service_prefix);
	/* Still addressed to a Service after translation: nothing is there. */
	sbuf_addf(
		out,
		"\tchain refuse {\n"
		"\t\tmeta l4proto tcp reject with tcp reset\n"
		"\t\treject with icmp port-unreachable\n"
		"\t}\n"
		"\tchain through {\n\t\ttype filter hook forward priority filter; policy accept;\n"
		"\t\tip daddr %s/%u jump refuse\n\t}\n"
		"\tchain through_out {\n\t\ttype filter hook output priority filter; policy "
		"accept;\n"
		"\t\tip daddr %s/%u jump refuse\n\t}\n"
		"\tchain in {\n\t\ttype filter hook input priority filter; policy accept;\n"
		"\t\tmeta l4proto . th dport @refused_ports ct state new jump refuse\n\t}\n",
		svc, in->service_prefix, svc, in->service_prefix);
}

static enum rc services_check(const struct services *in, struct err *err)
{
	for (size_t i = 0; i < in->n; i++) {
		const struct service *s = &in->items[i];

		if (!str_is_dns_label(s->ns) || !str_is_dns_label(s->name))
			return err_set(err, RC_INVALID, "service '%.63s/%.63s' has a bad name",
				       s->ns ? s->ns : "", s->name ? s->name : "");
		for (size_t k = 0; k < s->n_ports; k++)
			if (s->ports[k].proto >= SVC__MAX || !s->ports[k].port)
				return err_set(err, RC_INVALID, "service '%s/%s' has a bad port",
					       s->ns, s->name);
	}
	return RC_OK;
}

enum rc services_render(const struct services *in, struct sbuf *out, struct err *err)
{
	enum rc rc = services_check(in, err);

	if (rc)
		return rc;
	sbuf_adds(out, "add table ip " TABLE "\ndelete table ip " TABLE "\ntable ip " TABLE " {\n");
	for (size_t i = 0; i < in->n; i++)
		for (size_t k = 0; k < in->items[i].n_ports; k++)
			if (is_served(&in->items[i], &in->items[i].ports[k]) &&
			    !is_taken(in, i, k, false))
				render_chain(&in->items[i], &in->items[i].ports[k], out);
	render_maps(in, false, out);
	render_maps(in, true, out);
	render_refused(in, out);
	render_base(in, out);
	sbuf_adds(out, "}\n");
	rc = sbuf_rc(out);
	return rc ? err_set(err, rc, "the rules of %zu services do not fit", in->n) : RC_OK;
}

enum rc services_apply(int ns_fd, const struct services *in, struct err *err)
{
	struct sbuf text = SBUF_INIT(TEXT_MAX);
	enum rc rc = services_render(in, &text, err);

	if (!rc)
		rc = net_nft_run(ns_fd, sbuf_str(&text), err);
	sbuf_fini(&text);
	if (rc)
		err_prepend(err, "services");
	return rc;
}

enum rc services_drop(int ns_fd, struct err *err)
{
	return net_nft_del_table(ns_fd, "ip", TABLE, err);
}

/* A headless Service's name has each endpoint's address once, whatever its ports. */
static bool seen_before(const struct service *s, size_t port, size_t endpoint)
{
	struct in_addr a = s->ports[port].endpoints[endpoint].address;

	for (size_t k = 0; k <= port; k++)
		for (size_t e = 0; e < (k == port ? endpoint : s->ports[k].n_endpoints); e++)
			if (s->ports[k].endpoints[e].address.s_addr == a.s_addr)
				return true;
	return false;
}

enum rc services_render_hosts(const struct services *in, const char *domain, struct sbuf *out,
			      struct err *err)
{
	char a[NET_IP4_TEXT];
	enum rc rc = services_check(in, err);

	if (rc)
		return rc;
	if (!str_is_dns_subdomain(domain))
		return err_set(err, RC_INVALID, "'%.80s' is no DNS domain", domain);
	for (size_t i = 0; i < in->n; i++) {
		const struct service *s = &in->items[i];

		if (!net_ip4_is_none(s->cluster_ip)) {
			sbuf_addf(out, "%s %s.%s.svc.%s\n", net_ip4_format(s->cluster_ip, a),
				  s->name, s->ns, domain);
			continue;
		}
		for (size_t k = 0; k < s->n_ports; k++)
			for (size_t e = 0; e < s->ports[k].n_endpoints; e++)
				if (!seen_before(s, k, e))
					sbuf_addf(
						out, "%s %s.%s.svc.%s\n",
						net_ip4_format(s->ports[k].endpoints[e].address, a),
						s->name, s->ns, domain);
	}
	rc = sbuf_rc(out);
	return rc ? err_set(err, rc, "the names of %zu services do not fit", in->n) : RC_OK;
}
