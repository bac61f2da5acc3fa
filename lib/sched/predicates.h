/* lib/sched/predicates.h - can this pod run on that node, and if not, why.
 *
 * Pure functions over Nodes, Pods and claims; nothing is kept.  The texts are kube-scheduler's, so that
 * messages read the same with and without a Kubernetes control plane.  Used by Ferry's scheduler and by
 * the migration controller, which must know whether waiting could ever help.
 *
 * All objects are borrowed and must outlive the cluster snapshot.
 */
#ifndef SCHED_PREDICATES_H
#define SCHED_PREDICATES_H

#include "api/api.h"
#include "api/gen/api_types.h"
#include "base/err.h"
#include "base/sbuf.h"

#define SCHED_MAX_EXTENDED 16
#define SCHED_MAX_REASONS  8

/* What a pod asks for, or a node has: thousandths of a core, bytes, pods, and counted devices. */
struct sched_extended {
	const char *name; /* borrowed: "devices.kubevirt.io/kvm" */
	int64_t n;
};

struct sched_res {
	int64_t milli_cpu;
	int64_t memory;
	int64_t storage;
	int64_t pods;
	size_t n_extended;
	struct sched_extended extended[SCHED_MAX_EXTENDED];
};

/* The scheduler's sum over containers; init containers count with their maximum, those that keep
 * running (restartPolicy Always) like ordinary ones. */
void sched_pod_requests(const Pod *pod, struct sched_res *out);
bool sched_pod_is_final(const Pod *pod); /* Succeeded or Failed */

struct sched_node {
	const Node *node;
	struct sched_res allocatable;
	struct sched_res used;
	const Pod **pods; /* bound here and not final */
	size_t n_pods;
	size_t cap_pods;
};

struct sched_cluster {
	struct sched_node *nodes;
	size_t n_nodes;
	size_t cap_nodes;
	const Namespace **namespaces;
	size_t n_namespaces;
	size_t cap_namespaces;
};

void sched_cluster_init(struct sched_cluster *c);
void sched_cluster_fini(struct sched_cluster *c);
MUST_CHECK enum rc sched_cluster_add_node(struct sched_cluster *c, const Node *node);
/* For namespaceSelector of pod affinity. */
MUST_CHECK enum rc sched_cluster_add_namespace(struct sched_cluster *c, const Namespace *ns);
/* After all nodes.  A pod without a node, on an unknown node, or final is not counted. */
MUST_CHECK enum rc sched_cluster_add_pod(struct sched_cluster *c, const Pod *pod);
/* As if pod ran on node (a placement that the caller assumes). */
MUST_CHECK enum rc sched_cluster_assume(struct sched_cluster *c, struct sched_node *node,
					const Pod *pod);
struct sched_node *sched_cluster_node(struct sched_cluster *c,
				      const char *name); /* NULL: unknown */

/* A claim of the pod, resolved. */
struct sched_volume {
	const char *claim;
	const PersistentVolumeClaim *pvc; /* NULL: missing */
	const PersistentVolume *pv;	  /* NULL: not bound */
	bool waits_for_consumer;	  /* the class binds when the pod has a node */
	bool comes_along; /* the pod brings the data: it does not matter where they lie */
};

struct sched_reason {
	bool is_lasting;    /* only another spec, label or machine would help; waiting does not */
	const char *plugin; /* kube-scheduler's name for the predicate; constant */
	char text[192];	    /* as kube-scheduler words it */
	char detail[256];   /* with names and figures, for people */
};

struct sched_verdict {
	size_t n; /* 0: it fits */
	struct sched_reason reasons[SCHED_MAX_REASONS];
};

enum sched_depth {
	SCHED_FIRST, /* stop at the first predicate that refuses, as kube-scheduler does */
	SCHED_ALL,   /* ask all of them */
};

/* RC_NOMEM, or RC_INVALID when the pod's own selectors cannot be parsed. */
MUST_CHECK enum rc sched_check(const struct sched_cluster *c, const struct sched_node *n,
			       const Pod *pod, const struct sched_volume *vols, size_t n_vols,
			       enum sched_depth depth, struct sched_verdict *out, struct err *err);
bool sched_verdict_is_lasting(const struct sched_verdict *v); /* any reason is */

/* Higher is better; only meaningful between nodes that fit. */
MUST_CHECK enum rc sched_score(const struct sched_cluster *c, const struct sched_node *n,
			       const Pod *pod, int64_t *out, struct err *err);

/* "0/3 nodes are available: 1 Insufficient memory, 2 node(s) were unschedulable." */
void sched_summary(const struct sched_verdict *verdicts, size_t n, struct sbuf *out);

#endif
