/* src/cluster/podruntime/podnet_int.h - what the files of podnet share. */
#ifndef CLUSTER_PODNET_INT_H
#define CLUSTER_PODNET_INT_H

#include <pthread.h>

#include "base/map.h"
#include "base/sbuf.h"
#include "cluster/podruntime/podnet.h"

#define PODNET_GATEWAY_PORT    "fgw0p" /* the bridge's end of the gateway's link */
#define PODNET_TABLE	       "ferry_net"
#define PODNET_MIG_TABLE       "ferry_mig"
#define PODNET_MIG_PREFIX      16
#define PODNET_MIG_ROUTE_TABLE 100
#define PODNET_VXLAN_BYTES     50

struct podnet_place { /* what a hand-over told */
	struct in_addr underlay;
	int64_t epoch;
};

struct podnet {
	struct podnet_config cfg; /* completed; ns_fd is ours, the folder's name too */
	char *pod_ns_dir;
	int ns_fd; /* -1: own */
	struct net *net;
	bool is_gateway_set;	     /* cfg.is_gateway is what the kernel has */
	pthread_mutex_t places_lock; /* podnet_place() comes from any thread, when a VM moves */
	struct map places;	     /* MAC text -> struct podnet_place */
};

/* A link of ours: no IPv6, answers ARP only for the addresses that it has itself. */
MUST_CHECK enum rc podnet_link_quiet(struct podnet *p, const char *dev, struct err *err);
/* 198.18.0.0/15 is set aside for tests of networks: no site routes it. */
struct in_addr podnet_mig_network(void);
MUST_CHECK enum rc podnet_mig_up(struct podnet *p, struct err *err);
MUST_CHECK enum rc podnet_mig_attach(struct podnet *p, const struct podnet_pod *pod,
				     const struct podnet_attached *names, int pod_ns,
				     struct err *err);
/* nft text of the node's own table and of the migration table; pure. */
MUST_CHECK enum rc podnet_render(const struct podnet_config *cfg, struct sbuf *out,
				 struct err *err);
MUST_CHECK enum rc podnet_mig_render(const struct podnet_config *cfg, struct sbuf *out,
				     struct err *err);

/* Openings of moves for addresses of pods that are not in the list go. */
MUST_CHECK enum rc podnet_mig_sweep(struct podnet *p, const struct podnet_live *pods, size_t n,
				    struct err *err);

#endif
