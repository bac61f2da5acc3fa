/* src/virt/node/imgref.h - parses what a manifest calls an image.
 *
 * No state.  Two transports: a registry ("docker://host/name:tag", or without the scheme, as
 * everywhere in Kubernetes) and a folder in OCI image layout ("oci:folder:tag").
 */
#ifndef NODE_IMGREF_H
#define NODE_IMGREF_H

#include "base/err.h"

enum imgref_kind { IMGREF_REGISTRY, IMGREF_FOLDER };

struct imgref {
	enum imgref_kind kind;
	char *place; /* registry: "host/path" without tag; folder: the path as written */
	char *host;  /* registry host with port; NULL for a folder */
	char *tag;   /* "latest" when a registry reference has neither tag nor digest; NULL: none */
	char *digest; /* "sha256:<64 hex>" or NULL */
};

/* Fills *out (owned by the caller: imgref_fini).  RC_INVALID with what is wrong.  A registry name
 * without a host part belongs to docker.io, as container tools have it. */
MUST_CHECK enum rc imgref_parse(const char *text, struct imgref *out, struct err *err);
void imgref_fini(struct imgref *r);

/* "place@sha256:…": what a pod status calls imageID, and what pins the image. Owned by the caller;
 * NULL when out of memory.  A folder keeps its "oci:". */
char *imgref_pinned(const struct imgref *r, const char *digest);
/* "docker://place:tag" or "docker://place@digest" for skopeo; NULL when out of memory. */
char *imgref_skopeo_source(const struct imgref *r);
bool imgref_is_digest(const char *s); /* sha256: and 64 lower-case hex digits */

#endif
