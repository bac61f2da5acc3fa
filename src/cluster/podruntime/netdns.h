/* src/cluster/podruntime/netdns.h - the DNS of the cluster network, on the gateway node.
 *
 * One dnsmasq at the gateway's address (guests get it by DHCP; 10.96.0.10 leads to it as well).
 * Names of Services come from a hosts file that it watches; the rest goes to the node's
 * resolvers. Blocking; pool threads.
 */
#ifndef CLUSTER_NETDNS_H
#define CLUSTER_NETDNS_H

#include "cluster/podruntime/services.h"

struct netdns_config {
	int ns_fd; /* the node's namespace, -1: own */
	const char *
		dir; /* <run>/dns, root's own, made if missing; 'nobody' must be able to reach it */
	struct in_addr address;	 /* the gateway's */
	const char *dev;	 /* PODNET_GATEWAY_IF */
	const char *domain;	 /* "cluster.local" */
	const char *resolv_file; /* "/etc/resolv.conf" or NULL */
};
MUST_CHECK enum rc netdns_start(const struct netdns_config *c,
				struct err *err); /* repeated: as it was */
MUST_CHECK enum rc netdns_stop(const struct netdns_config *c, struct err *err);
/* Writes the hosts file if its text changed; dnsmasq notices by itself. */
MUST_CHECK enum rc netdns_update(const struct netdns_config *c, const struct services *s,
				 struct err *err);

#endif
