/* src/virt/node/vmnet.h - a VM's network inside its pod, and how it moves.
 *
 * The pod's namespace has a link `eth0` to the segment (made by the pod runtime, with the VM's MAC
 * and address).  vmnet puts the guest's tap behind it:
 *
 *   masquerade   guest 10.0.2.2/24, gateway 10.0.2.1 on the tap; stateless 1:1 rewriting between
 *                the guest's and the VM's address; `ports` filters new flows from outside
 *   bridge       the guest is on the segment itself, with the VM's own address by DHCP
 *
 * Blocking: call from the pool; calls for one VM one at a time.  The kernel holds the state.
 */
#ifndef VIRT_VMNET_H
#define VIRT_VMNET_H

#include <sys/types.h>

#include "base/sbuf.h"
#include "net/addr.h"
#include "net/dnsmasq.h"

enum vmnet_binding { VMNET_MASQUERADE, VMNET_BRIDGE };
enum vmnet_proto { VMNET_TCP, VMNET_UDP, VMNET_SCTP, VMNET__PROTO_MAX };

struct vmnet_port {
	enum vmnet_proto proto;
	uint16_t port;
};

#define VMNET_PORTS_MAX 256
#define VMNET_TAP	"tap0"
#define VMNET_BRIDGE_IF "k6t-eth0"

struct vmnet_config {
	int ns_fd;	    /* the pod's namespace */
	const char *pod_if; /* "eth0" */
	enum vmnet_binding binding;
	struct in_addr address;	  /* the VM's, on the segment */
	unsigned prefix;	  /* of the segment: 16 */
	struct in_addr gateway;	  /* of the segment: 10.244.0.1 */
	struct net_mac mac;	  /* the VM's, on the segment */
	struct net_mac guest_mac; /* the guest's card; zero: mac.  bridge: must be mac */
	struct in_addr
		vm_network; /* masquerade: 10.0.2.0; gateway is its first host, guest its second */
	unsigned vm_prefix; /* 24; at most 30 */
	unsigned mtu;	    /* of the segment */
	const struct vmnet_port *ports; /* masquerade: none listed: all open */
	size_t n_ports;
	uid_t owner;	  /* QEMU's uid */
	bool is_incoming; /* target of a move: see vmnet_settle() */
	/* DHCP */
	const char *dir;      /* root's own folder for dnsmasq's files: <run>/pods/<uid>/net */
	const char *hostname; /* DNS label */
	const char *domain;   /* or NULL */
	const char *search[NET_DNS_SEARCH_MAX];
	struct in_addr dns[NET_DNS_SERVERS_MAX];
};

/* Builds it all and opens the tap; *tap_fd (for QEMU, virtio-net header, one queue) is the
 * caller's, who closes its copy once QEMU has it.  tap_fd NULL: QEMU has it already (an agent
 * that restarted): links, rules and DHCP are checked and mended, traffic goes on. */
MUST_CHECK enum rc vmnet_up(const struct vmnet_config *cfg, int *tap_fd, struct err *err);
/* Ends DHCP; the rest goes with the namespace.  dir: as in the configuration; nothing there is fine. */
MUST_CHECK enum rc vmnet_down(const char *dir, struct err *err);
#define VMNET_DIR "net" /* of it below a pod's run folder */
/* Pure: the nft text of masquerade, for tests and for people. */
MUST_CHECK enum rc vmnet_render(const struct vmnet_config *cfg, struct sbuf *out, struct err *err);

/* The flows that the guest opened itself and that the ports filter lets back in (empty without
 * ports), as text for the target, and the reverse.  Dump once at preparation and once after the
 * switch: loading is additive. */
MUST_CHECK enum rc vmnet_flows_dump(int ns_fd, struct sbuf *out, struct err *err);
MUST_CHECK enum rc vmnet_flows_load(int ns_fd, const char *text, struct err *err);
/* Target, once the last flows are loaded: the filter judges unknown UDP flows from here on
 * (until then it lets them in, because the copy of the newest ones is still on its way; TCP is
 * judged from the start). */
MUST_CHECK enum rc vmnet_settle(int ns_fd, struct err *err);

/* ---- hand-over ----
 *
 *   source agent                                   target agent
 *   vmnet_source_open()   (move starts)            vmnet_target_open()   (before QEMU listens)
 *   QEMU STOP, pre-switchover:
 *   vmnet_source_switch(stop time)  frames --->    they wait in the tap's queue
 *   migrate-continue ... completed, released       permission: vmnet_target_activate(), then `cont`
 *   vmnet_source_finish()                          vmnet_settle(), vmnet_target_close()
 *   all nodes know: vmnet_source_close()
 *
 * A failed move: vmnet_source_abort(), then `cont` at the source; vmnet_target_close() at the
 * target, whose pod goes.  All of it is also right in a process that did not see the beginning:
 * open, then call what is due. */
struct vmnet_handover; /* one side of one move */

struct vmnet_handover_config {
	int node_ns_fd;	     /* the node's namespace, -1: own; borrowed for the open */
	const char *host_if; /* node's end of the pod's link */
	const char *bridge;  /* "fbr0" */
	const char *vxlan;   /* "fvx0" */
	struct net_mac mac;
	struct in_addr peer; /* underlay address of the other node */
	int pod_ns_fd;	     /* source: the pod's, to see what QEMU has not read; 0, -1: unknown */
	size_t ring_bytes;   /* 0: 4 MiB */
	usec_t slack;	     /* how far before STOP captured frames are sent again; 0: 5 ms, without
			      * pod_ns_fd 20 ms */
};
struct vmnet_switch_stats {
	uint64_t n_resent;  /* frames sent on so far; grows until vmnet_source_finish() */
	uint64_t n_overrun; /* frames lost to capture: the guest may miss some */
	uint64_t n_unread;  /* frames that waited in the source's tap at the switch */
	usec_t took;	    /* the call itself */
};

MUST_CHECK enum rc vmnet_source_open(struct vmnet_handover **out,
				     const struct vmnet_handover_config *cfg, struct err *err);
/* stop: QEMU's STOP event, realtime microseconds.  When it returns, no further frame reaches the
 * source. May be called from the loop thread: it does not wait (well under a millisecond). */
MUST_CHECK enum rc vmnet_source_switch(struct vmnet_handover *h, usec_t stop,
				       struct vmnet_switch_stats *stats, struct err *err);
/* The figures now; took stays the switch's. */
void vmnet_source_stats(struct vmnet_handover *h, struct vmnet_switch_stats *stats);
/* Back to the source, with what had been sent on since the switch. */
MUST_CHECK enum rc vmnet_source_abort(struct vmnet_handover *h, struct err *err);
/* The source is gone for good: capture ends, frames are still sent on. */
MUST_CHECK enum rc vmnet_source_finish(struct vmnet_handover *h, struct err *err);
/* This node steers nothing for the MAC any more, whoever began it and has died since: a VM that starts here, or is
 * gone from here, must not have its frames sent where a move once wanted them. */
MUST_CHECK enum rc vmnet_steering_end(const char *vxlan, struct net_mac mac, struct err *err);
/* The guest runs or stands here, and no move of it goes on: this node's frames go to it, its port speaks for it alone,
 * and nothing is steered.  Whoever began what is undone may have died since; of cfg: host_if, vxlan, mac. */
MUST_CHECK enum rc vmnet_reclaim(const struct vmnet_handover_config *cfg, struct err *err);
/* All nodes have the new place: frames need no sending on.  Also frees; NULL is fine. */
MUST_CHECK enum rc vmnet_source_close(struct vmnet_handover *h, struct err *err);

MUST_CHECK enum rc vmnet_target_open(struct vmnet_handover **out,
				     const struct vmnet_handover_config *cfg, struct err *err);
/* From here on the VM is here: the pod's link speaks and this node's frames go to it.  Does not
 * wait. */
MUST_CHECK enum rc vmnet_target_activate(struct vmnet_handover *h, struct err *err);
MUST_CHECK enum rc vmnet_target_close(struct vmnet_handover *h,
				      struct err *err); /* frees; NULL is fine */

/* For an owner that goes away: memory, sockets and threads only. */
struct vmnet_handover *vmnet_handover_free(struct vmnet_handover *h);
DEFINE_CLEANUP(struct vmnet_handover *, vmnet_handover_free);

#endif
