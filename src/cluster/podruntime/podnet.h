/* src/cluster/podruntime/podnet.h - a node's share of the cluster network, and its pods' links
 * to it.
 *
 * One bridge per node, joined by VXLAN.  Who is where is told from outside (PortBindings and
 * Nodes): nothing is learned.  The gateway to the outside lives on one node and does not depend
 * on where a VM is.
 *
 * Blocking: call from the pool, one call at a time per struct podnet (pool_run_ordered).  The
 * kernel holds all state: everything may be repeated, and a new process finds what an old one
 * made.
 */
#ifndef CLUSTER_PODNET_H
#define CLUSTER_PODNET_H

#include <sys/types.h>

#include "net/addr.h"
#include "net/link.h"

#define PODNET_BRIDGE	  "fbr0"
#define PODNET_VXLAN	  "fvx0"
#define PODNET_GATEWAY_IF "fgw0"
#define PODNET_VNI	  4096
#define PODNET_PORT	  8472
#define PODNET_POD_IF	  "eth0" /* the pod's end of its link */
#define PODNET_MIG_IF	  "mig0" /* the pod's link to the migration network */

struct podnet;

struct podnet_config {
	int ns_fd; /* the node's namespace; -1: the process' own. Borrowed for the call */
	const char *pod_ns_dir; /* where pods' namespaces are named: <run>/netns */
	struct in_addr
		underlay; /* this node's address that other nodes send VXLAN to; must be up */
	struct in_addr migration; /* its address that moves go to beside that one; 0.0.0.0: none */
	struct in_addr segment;	  /* this node's address on the segment (10.244.0.10 and up) */
	struct in_addr network;	  /* 10.244.0.0 */
	unsigned prefix;	  /* 16 */
	struct in_addr gateway;	  /* 10.244.0.1 */
	struct net_mac gateway_mac;	/* 0a:58:0a:f4:00:01; zero: net_mac_of_ip4(gateway) */
	struct in_addr service_network; /* 10.96.0.0 */
	unsigned service_prefix;	/* 16 */
	bool is_gateway;		/* this node is the network's gateway now */
	unsigned mtu;			/* of the segment; 0: the underlay's less 50 */
	uint32_t vni;			/* 0: PODNET_VNI */
	uint16_t port;			/* 0: PODNET_PORT */
};

/* The address on the migration link of the pod that has this address on the segment (QEMU
 * listens there). */
struct in_addr podnet_mig_address(struct in_addr pod_address);

/* Brings the node's part up (or to these values) and takes it over.  A gateway that is at work stays so
 * whatever cfg says: an agent that restarts knows only later whether it still is the gateway. */
MUST_CHECK enum rc podnet_up(struct podnet **out, const struct podnet_config *cfg, struct err *err);
/* Whether this node is the gateway now (also one that an agent before us left at work). */
bool podnet_is_gateway(const struct podnet *p);
/* Gateway changes hands: gives the gateway up or takes it. */
MUST_CHECK enum rc podnet_set_gateway(struct podnet *p, bool is_gateway, struct err *err);
/* Leaves nothing: links, tables, routes, pods' namespaces; also after a crash, without a
 * podnet_up(). */
MUST_CHECK enum rc podnet_down(const struct podnet_config *cfg, struct err *err);
/* Only the memory; the network stays. */
struct podnet *podnet_free(struct podnet *p);
DEFINE_CLEANUP(struct podnet *, podnet_free);
unsigned podnet_mtu(const struct podnet *p);

/* ---- who is where ---- */

struct podnet_peer { /* another node */
	struct in_addr underlay;
	struct in_addr segment;
	bool is_gateway;
};
struct podnet_binding { /* a PortBinding; those of this node too (underlay = ours) */
	struct net_mac mac;
	struct in_addr address;
	struct in_addr underlay; /* of the node that has it */
	int64_t epoch;
};
/* Makes forwarding exactly this; whatever else stood there goes.  A binding that is older
 * (epoch) than what podnet_place() was told is ignored: a late watch event must not undo a
 * hand-over.  A VM that is here is left alone: podnet_attach() and the hand-over forward to it. */
MUST_CHECK enum rc podnet_program(struct podnet *p, const struct podnet_peer *peers, size_t n_peers,
				  const struct podnet_binding *bindings, size_t n_bindings,
				  struct err *err);
/* A hand-over has put this MAC there (its own netlink batch did the work): remember the epoch.
 * Overwrites what was told before; a hand-over that was given up puts it back.  From any thread, and
 * at once: between the activation at the target and this call, podnet_program() would still believe
 * the older binding. */
MUST_CHECK enum rc podnet_place(struct podnet *p, struct net_mac mac, struct in_addr underlay,
				int64_t epoch, struct err *err);

/* ---- pods ---- */

struct podnet_pod {
	const char *uid; /* pod uid: names of links and of the namespace come from it */
	struct in_addr address;
	struct net_mac mac;
	bool is_silent; /* target of a move: in the bridge, but neither hears nor speaks until
			 * vmnet_target_activate() */
	uid_t qemu_uid; /* whose sockets may use the migration link; 0: no such link */
};
struct podnet_attached {
	char ns_name[64];	      /* in pod_ns_dir */
	char host_if[NET_IFNAME];     /* the node's end */
	char host_mig_if[NET_IFNAME]; /* the node's end of the migration link, "" without */
	struct in_addr mig_address;   /* the pod's address on it */
};
/* Namespace, veth pair (eth0 with address, MAC, MTU, routes), migration link.  Repeated: what is
 * missing is mended; a pod that speaks already is not silenced; not silent: this node's frames
 * for the MAC lead to it. */
MUST_CHECK enum rc podnet_attach(struct podnet *p, const struct podnet_pod *pod,
				 struct podnet_attached *out, struct err *err);
/* The names alone, computed; nothing is asked. */
void podnet_names(const char *pod_uid, struct podnet_attached *out);
/* Links and namespace go; missing ones are fine. */
MUST_CHECK enum rc podnet_detach(struct podnet *p, const char *pod_uid, struct err *err);
/* After a crash: everything of pods that are not in the list goes, what moves have opened and steer for their addresses
 * too.  address, mac: those that the pod is to have; none: it has none yet. */
struct podnet_live {
	const char *uid;
	struct in_addr address;
	struct net_mac mac;
};
MUST_CHECK enum rc podnet_sweep(struct podnet *p, const struct podnet_live *pods, size_t n,
				struct err *err);

/* ---- the migration link: shut except for the time of a move ---- */

/* Target: what peer sends to our underlay address at these ports reaches the pod's QEMU.  Source
 * (n_ports those of the target): QEMU may connect to peer at these ports.  Both until
 * podnet_mig_close(). */
#define PODNET_MIG_PORTS 4
MUST_CHECK enum rc podnet_mig_listen(struct podnet *p, struct in_addr pod_address,
				     struct in_addr peer, const uint16_t *ports, size_t n_ports,
				     struct err *err);
MUST_CHECK enum rc podnet_mig_connect(struct podnet *p, struct in_addr pod_address,
				      struct in_addr peer, const uint16_t *ports, size_t n_ports,
				      struct err *err);
/* All of this pod's openings; none is fine. */
MUST_CHECK enum rc podnet_mig_close(struct podnet *p, struct in_addr pod_address, struct err *err);

/* ---- machines outside: the control-plane box ---- */

/* Routes to the segment and to the services' addresses by the gateway node's underlay address;
 * via 0.0.0.0: takes them away.  ns_fd -1: the process' own namespace. */
MUST_CHECK enum rc podnet_client_routes(int ns_fd, const struct podnet_config *cfg,
					struct in_addr via, struct err *err);

#endif
