/* src/cluster/controllers/controllers.h - what kube-controller-manager would do for Ferry.
 *
 * Pure reconcilers, run only where there is no Kubernetes control plane.
 * docs/internals/cluster-controllers.md describes them.
 */
#ifndef CLUSTER_CONTROLLERS_CONTROLLERS_H
#define CLUSTER_CONTROLLERS_CONTROLLERS_H

#include "ctl/ctl.h"

/* Garbage collection: one definition per kind, each object both as dependant and as owner. */
extern const struct ctl_def *const gc_ctl_defs[]; /* ends with NULL */

extern const struct ctl_def endpoints_ctl_def;	   /* EndpointSlices of Services */
extern const struct ctl_def claim_ctl_def;	   /* PersistentVolumeClaims: provision and bind */
extern const struct ctl_def volume_ctl_def;	   /* PersistentVolumes: release */
extern const struct ctl_def nodelifecycle_ctl_def; /* leases, taints, out-of-service nodes */
extern const struct ctl_def disruption_ctl_def;	   /* PodDisruptionBudgets */
extern const struct ctl_def account_ctl_def;	   /* what each namespace has: an account, the CA */
extern const struct ctl_def installation_ctl_def;  /* KubeVirt and its status, default objects */

/* Volume drivers, also the provisioners of the default StorageClasses. */
#define DRIVER_SHARED "ferry.dev/shared" /* a folder that every node sees: ReadWriteMany */
#define DRIVER_LOCAL  "ferry.dev/local"	 /* a folder of one node: ReadWriteOnce */

/* Names of the objects that the installation makes for itself. */
#define INSTALLATION_NS	  "kubevirt"
#define INSTALLATION_NAME "kubevirt"

/* Five characters of Kubernetes' name alphabet from a text. */
void cc_suffix(const char *text, char out[6]);
/* Since an API time; 0 for the future, USEC_INFINITY when absent or malformed. */
usec_t cc_age(usec_t now, const char *stamp);
/* An object younger than this may refer to one that the view does not show yet. */
#define CC_UNSEEN (10 * USEC_PER_SEC)

#endif
