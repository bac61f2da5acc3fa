/* lib/sched/snapshot.h - the cluster as a reconciler's view shows it, for the predicates.
 *
 * Pure; what it fills borrows from the view.
 */
#ifndef SCHED_SNAPSHOT_H
#define SCHED_SNAPSHOT_H

#include "ctl/view.h"
#include "sched/predicates.h"

/* Annotation of a pod, "claim,claim": it is the target of a move and brings the data of these claims along. */
#define SCHED_BRINGS_CLAIMS "ferry.dev/brings-claims"

/* Nodes, namespaces and bound pods.  *out is initialized here; the caller calls sched_cluster_fini(),
 * also on failure.  The view must hold Node, Pod and Namespace. */
MUST_CHECK enum rc sched_snapshot(const struct view *v, struct sched_cluster *out);
/* The pod's claims.  *out is the caller's (mem_free()).  The view must hold PersistentVolumeClaim,
 * PersistentVolume and StorageClass. */
MUST_CHECK enum rc sched_pod_volumes(const struct view *v, const Pod *pod,
				     struct sched_volume **out, size_t *n);
/* The class of a claim: by name, else the default one; NULL: none. */
const StorageClass *sched_class_of(const struct view *v, const PersistentVolumeClaim *pvc);

#endif
