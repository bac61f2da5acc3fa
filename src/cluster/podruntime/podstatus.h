/* src/cluster/podruntime/podstatus.h - a pod's status from what is known of it here.
 *
 * Pure: the status is computed anew from facts each time; only times of conditions are kept.
 */
#ifndef CLUSTER_PODSTATUS_H
#define CLUSTER_PODSTATUS_H

#include "api/gen/api_types.h"
#include "base/err.h"

enum { POD_IMAGES_MAX = 32 };

struct pod_image {
	char *name;  /* "volume<name of the volume>" */
	char *image; /* as asked for */
	char *id;    /* "place@sha256:…" */
};

/* Owned texts: pod_facts_fini(). */
struct pod_facts {
	const char *host_ip; /* borrowed */
	char *pod_ip;	     /* NULL: no network */
	usec_t seen_at;	     /* realtime: this node took it up */
	usec_t started_at;   /* 0: not started */
	bool is_running;     /* its containers run */
	bool is_unpaused;    /* readiness gate kubevirt.io/virtual-machine-unpaused */
	bool has_ended;
	int exit_code;
	char *reason; /* waiting: ErrImagePull …; ended: of the pod */
	char *message;
	struct pod_image images[POD_IMAGES_MAX];
	size_t n_images;
};

void pod_facts_fini(struct pod_facts *f);
MUST_CHECK enum rc pod_facts_why(struct pod_facts *f, const char *reason, const char *message);
/* Replaces the images. */
MUST_CHECK enum rc pod_facts_add_image(struct pod_facts *f, const char *name, const char *image,
				       const char *id);

/* A copy of pod with its status replaced; the caller's. */
MUST_CHECK enum rc podstatus_build(const Pod *pod, const struct pod_facts *f, usec_t now, Pod **out,
				   struct err *err);

#endif
