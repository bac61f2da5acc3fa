/* src/virt/node/iso.h - writes a small ISO 9660 image with Joliet names, as guests expect of
 * cloud-init's seed.
 *
 * No state, no clock: the same files give the same bytes.  ECMA-119, and Joliet (UCS-2 level 3).
 */
#ifndef NODE_ISO_H
#define NODE_ISO_H

#include "base/err.h"
#include "base/sbuf.h"

enum { ISO_FILES_MAX = 8, ISO_SECTOR = 2048, ISO_BYTES_MAX = 8 * 1024 * 1024 };

struct iso_file {
	const char *name; /* Joliet name, ASCII, at most 60 characters */
	const void *bytes;
	size_t n;
};

/* All files lie in the root folder.  label: at most 16 ASCII characters.  RC_INVALID, RC_TOO_BIG. */
MUST_CHECK enum rc iso_write(const char *label, const struct iso_file *files, size_t n,
			     struct sbuf *out, struct err *err);

#endif
