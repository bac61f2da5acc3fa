/* src/cluster/podruntime/nodereg.h - this node's Node object, its address on the segment, its heartbeat.
 *
 * Loop thread only.
 */
#ifndef CLUSTER_NODEREG_H
#define CLUSTER_NODEREG_H

#include "api/map.h"
#include "base/err.h"
#include "net/addr.h"

struct kube;
struct loop;
struct nodereg;

#define NODE_ANN_SEGMENT    "ferry.dev/segment-address"
#define NODE_ANN_AGENT_PORT "ferry.dev/agent-port"
#define NODE_LEASE_NS	    "kube-node-lease"

struct nodereg_config {
	struct loop *loop;
	struct kube *kube;
	const char *name;
	const char *address; /* InternalIP */
	uint16_t agent_port;
	const struct api_map *labels; /* beyond hostname, arch and os */
	bool (*owns_label)(
		const char *key); /* families whose stale members are removed; may be NULL */
	const char *facts;	  /* prefix of the annotations of nodereg_set_facts(); NULL: none */
	const struct api_map
		*resources;	    /* beyond cpu, memory and pods: "devices.kubevirt.io/tun" */
	struct in_addr segment_net; /* 10.244.0.0; node addresses are its 10th to 255th */
	unsigned segment_prefix;
};

/* The node's address on the segment is allocated and the Node object exists. */
typedef void (*nodereg_ready_fn)(struct in_addr segment, void *arg);

MUST_CHECK enum rc nodereg_new(struct nodereg **out, const struct nodereg_config *config,
			       nodereg_ready_fn on_ready, void *arg, struct err *err);
struct nodereg *nodereg_free(struct nodereg *r);
DEFINE_CLEANUP(struct nodereg *, nodereg_free);

/* Condition Ready and label kubevirt.io/schedulable from now on; written at once when it changes. */
void nodereg_set_ready(struct nodereg *r, bool is_ready, const char *reason, const char *message);
/* These annotations, and no others of the prefix, from now on; written at once. */
void nodereg_set_facts(struct nodereg *r, const struct api_map *facts);
/* How long the lease counts (40 s, or less): it is renewed four times in it. */
void nodereg_set_lease(struct nodereg *r, unsigned seconds);
/* The agent goes: schedulable=false, then done. */
void nodereg_stop(struct nodereg *r, void (*done)(void *arg), void *arg);

#endif
