/* src/cluster/podruntime/netsync.h - keeps this node's forwarding, services and DNS as the API says.
 *
 * Loop thread only.  Reads Nodes, PortBindings, Services and EndpointSlices from the cache; one pool
 * job at a time brings the kernel up to date; changes meanwhile are taken together in the next one.
 */
#ifndef CLUSTER_NETSYNC_H
#define CLUSTER_NETSYNC_H

#include "base/err.h"
#include "net/addr.h"

struct kcache;
struct loop;
struct netsync;
struct podnet;

struct netsync_config {
	struct loop *loop;
	struct kcache *cache;
	struct podnet *net;
	unsigned queue;
	const char *node_name;
	struct in_addr network, gateway, service_network, dns;
	unsigned prefix, service_prefix;
	const char *dns_dir; /* <run>/dns */
	const char *dns_dev;
	void (*on_ready)(void *arg); /* once: the first job has succeeded */
	void *arg;
};

MUST_CHECK enum rc netsync_new(struct netsync **out, const struct netsync_config *config,
			       struct err *err);
struct netsync *netsync_free(struct netsync *s); /* the kernel's state stays */
DEFINE_CLEANUP(struct netsync *, netsync_free);
void netsync_poke(struct netsync *s);

#endif
