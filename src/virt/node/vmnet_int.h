/* src/virt/node/vmnet_int.h - what the files of vmnet share. */
#ifndef VIRT_VMNET_INT_H
#define VIRT_VMNET_INT_H

#include "net/link.h"
#include "net/nft.h"
#include "virt/node/vmnet.h"

#define VMNET_TABLE "vmnet"
#define VMNET_FLOW_KEY \
	16 /* protocol . remote address . remote port . own port, each padded to four bytes */
#define VMNET_PEER_KEY 8 /* protocol . remote address */
/* Frames that wait for a guest that stands still: four seconds of 4,000 a second.  Costs 128 KiB of
 * pointers per tap; what waits is bounded by senders' windows, or 40 MB of small datagrams. */
#define VMNET_TAP_QUEUE 16384

#define VMNET_FLOW_MS	180000 /* as the sets' "timeout 3m" */

enum vmnet_flow_set { VMNET_FLOWS, VMNET_PEERS, VMNET_FLOW_SET__MAX };
/* The lines of one set; *out is the caller's (NULL when there are none).  RC_BAD_REQUEST, RC_TOO_BIG. */
MUST_CHECK enum rc vmnet_flows_parse(const char *text, enum vmnet_flow_set set,
				     struct net_nft_elem **out, size_t *n, struct err *err);

/* The tap's two ways behind the pod's link; `in` is the pod's namespace. */
MUST_CHECK enum rc vmnet_masquerade_up(const struct vmnet_config *c, struct net *in,
				       struct err *err);
MUST_CHECK enum rc vmnet_bridge_up(const struct vmnet_config *c, struct net *in, struct err *err);
MUST_CHECK enum rc vmnet_bridge_render(const struct vmnet_config *c, struct sbuf *out,
				       struct err *err);

#endif
