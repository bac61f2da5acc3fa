/* src/virt/node/qcow2.h - reads the header of a disk image that nobody has vouched for, and writes
 * the header of an empty one.
 *
 * No state; blocking (pool threads and jailed children).  Only the fixed header and its extensions
 * are read: bounded, no allocation, nothing is followed.
 */
#ifndef NODE_QCOW2_H
#define NODE_QCOW2_H

#include "base/err.h"

enum image_format { IMAGE_RAW, IMAGE_QCOW2 };

struct image_info {
	enum image_format format;
	uint64_t virtual_bytes; /* what the guest sees */
};

enum { QCOW2_PROBE_BYTES = 4096, QCOW2_CLUSTER_BYTES = 65536 };

const char *image_format_name(enum image_format f); /* "raw", "qcow2": QEMU's driver names */

/* Judges the first n bytes (at most QCOW2_PROBE_BYTES are looked at) of a file of file_bytes.
 * Anything without the magic number is raw.  RC_INVALID with a sentence for a header that is broken,
 * that names a backing file or an external data file, is encrypted, or has unknown incompatible
 * features (docs/interop/qcow2.txt of QEMU). */
MUST_CHECK enum rc image_judge(const uint8_t *head, size_t n, uint64_t file_bytes,
			       struct image_info *out, struct err *err);
/* The same for an open file; refuses anything but a regular file with one link. */
MUST_CHECK enum rc image_probe(int fd, struct image_info *out, struct err *err);

/* Makes fd (an empty regular file, written from offset 0) an empty qcow2 version 3 image of
 * virtual_bytes (a multiple of 512).  It records no backing file: who opens it names the base. */
MUST_CHECK enum rc qcow2_format(int fd, uint64_t virtual_bytes, struct err *err);

#endif
