/* src/virt/node/images.h - container images on this node: fetched once, kept by content.
 *
 * image_fetch() blocks: pool threads.  Two fetches of one image must not run at the same time (the
 * caller gives them the same pool queue: image_queue()).
 *
 *   <dir>/sha256-<hex of the manifest>/<key>/   f0, f1 … (root's, 0444) and files.json, made by rename
 *   <dir>/refs/<hash of the reference>          the digest that a tag had when it was last resolved
 *   <dir>/tmp-…                                 work in progress; removed at start
 */
#ifndef NODE_IMAGES_H
#define NODE_IMAGES_H

#include "base/err.h"

enum { IMAGE_FILES_MAX = 16 };

struct image_store {
	char *dir;
	char *self_exe; /* runs imgunpack_main() when called with IMAGE_UNPACK_ARG */
	char *oci_root; /* 'oci:' folders must lie below it; NULL: refused */
	const char *const
		*insecure; /* registry hosts that may be plain HTTP; NULL-terminated or NULL */
	const char *const *allowed; /* registry hosts; NULL: all */
	uint64_t bytes_max;	    /* of one image's files */
	usec_t timeout;		    /* of one pull */
};

#define IMAGE_UNPACK_ARG "unpack-image"

enum image_policy { IMAGE_IF_NOT_PRESENT, IMAGE_ALWAYS, IMAGE_NEVER };

struct image_want {
	const char *ref;
	enum image_policy policy;
	const char *const *wanted; /* as unpack_layers(); NULL-terminated */
	const char *auth_json;	   /* docker config.json for the registry; NULL: anonymous */
};

struct image_file {
	char *path;  /* in the image: "disk/fedora.qcow2" */
	char *local; /* absolute */
	uint64_t bytes;
};

struct image_got {
	char digest[72];
	char *id; /* "place@sha256:…" */
	struct image_file files[IMAGE_FILES_MAX];
	size_t n_files;
};

/* Makes the folders, removes leftovers of a crash. */
MUST_CHECK enum rc image_store_open(const struct image_store *s, struct err *err);
/* RC_INVALID: the reference or the image is at fault; RC_FORBIDDEN: policy; RC_NOT_FOUND: no such
 * image or tag; RC_IO, RC_TIMEOUT: the registry or the disk. */
MUST_CHECK enum rc image_fetch(const struct image_store *s, const struct image_want *w,
			       struct image_got *out, struct err *err);
void image_got_fini(struct image_got *g);
unsigned image_queue(const char *ref);
/* The policy that Kubernetes takes: as named, else Always for ':latest', else IfNotPresent. */
enum image_policy image_policy_of(const char *name, const char *ref);

/* The one disk of a containerDisk: the only file below /disk, or `path`.  Texts as KubeVirt's. */
MUST_CHECK enum rc image_pick_disk(const struct image_got *g, const char *path,
				   const struct image_file **out, struct err *err);

#endif
