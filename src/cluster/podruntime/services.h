/* src/cluster/podruntime/services.h - Services as one nftables table: ClusterIP and NodePort
 * lead to the addresses of VMs.
 *
 * The same table on every node.  It names addresses, never places: a move changes none of it.
 * services_render() is pure.  services_apply() blocks (pool) and replaces the whole table in one
 * transaction; connections that run keep the endpoint they have.
 */
#ifndef CLUSTER_SERVICES_H
#define CLUSTER_SERVICES_H

#include "base/sbuf.h"
#include "net/addr.h"

enum svc_proto { SVC_TCP, SVC_UDP, SVC_SCTP, SVC__MAX };

struct svc_endpoint {
	struct in_addr address;
	uint16_t port;
};
struct svc_port {
	enum svc_proto proto;
	uint16_t port;
	uint16_t node_port; /* 0: none */
	const struct svc_endpoint
		*endpoints; /* ready ones; none: connections are refused at once */
	size_t n_endpoints;
};
struct service {
	const char *ns;
	const char *name;
	struct in_addr cluster_ip; /* none: headless; its name resolves to its endpoints */
	const struct svc_port *ports;
	size_t n_ports;
	uint32_t affinity_seconds; /* sessionAffinity ClientIP: by hash of the client; 0: none */
};
struct services {
	const struct service *items;
	size_t n;
	struct in_addr network; /* the segment: 10.244.0.0/16 */
	unsigned prefix;
	struct in_addr gateway;		/* 10.244.0.1 */
	struct in_addr service_network; /* unknown addresses in it are refused, not sent away */
	unsigned service_prefix;
	struct in_addr dns; /* the DNS' cluster address (10.96.0.10), led to the gateway; or none */
};

/* A complete text for nft: drops and remakes table `ip ferry_svc`. */
MUST_CHECK enum rc services_render(const struct services *s, struct sbuf *out, struct err *err);
MUST_CHECK enum rc services_apply(int ns_fd, const struct services *s, struct err *err);
MUST_CHECK enum rc services_drop(int ns_fd, struct err *err);

/* "address name" lines for the DNS: <svc>.<ns>.svc.<domain>; headless: one line per endpoint. */
MUST_CHECK enum rc services_render_hosts(const struct services *s, const char *domain,
					 struct sbuf *out, struct err *err);

#endif
