/* src/virt/node/oci.h - reads index and manifest of an OCI image layout, from any origin.
 *
 * No state.  Every value is checked before use: digests by their form, sizes by a limit.
 */
#ifndef NODE_OCI_H
#define NODE_OCI_H

#include "base/err.h"
#include "json/json.h"

enum { OCI_LAYERS_MAX = 64, OCI_JSON_MAX = 4 * 1024 * 1024 };

struct oci_descriptor {
	char digest[72]; /* "sha256:…" */
	uint64_t bytes;
	bool is_index; /* of further manifests, not a manifest */
};

struct oci_manifest {
	struct oci_descriptor layers[OCI_LAYERS_MAX]; /* lowest first */
	size_t n_layers;
};

/* Chooses the image in an index (index.json or an image index blob).  digest and tag may be NULL.
 * With a digest: that manifest.  With a tag: the one with this org.opencontainers.image.ref.name.
 * Neither: the only one.  Several platforms: linux on this machine's architecture ("amd64").
 * RC_NOT_FOUND names what is there instead. */
MUST_CHECK enum rc oci_choose(const struct json *index, const char *tag, const char *digest,
			      struct oci_descriptor *out, struct err *err);
MUST_CHECK enum rc oci_manifest_read(const struct json *manifest, struct oci_manifest *out,
				     struct err *err);
/* "blobs/sha256/<hex>"; digest has been checked by the readers above. */
void oci_blob_path(const char *digest, char out[96]);

#endif
