/* src/virt/node/volumes_int.h - what the files that make and open disks share.
 *
 * Blocking: pool threads.
 */
#ifndef NODE_VOLUMES_INT_H
#define NODE_VOLUMES_INT_H

#include "virt/node/volumes.h"

MUST_CHECK enum rc vol_open_dir(const char *path, int *out, struct err *err);
/* Makes nothing where it is there: storage that hangs for those who write still lets a disk be opened. */
MUST_CHECK enum rc vol_open_or_make_dir(int root, const char *name, bool may_make, int *out,
					struct err *err);
/* Bytes that may still be written there. */
MUST_CHECK enum rc vol_room(int dir, uint64_t *left, struct err *err);
/* For the disk of a running guest, which has its size already: there is room for all of it, or RC_TOO_BIG. */
MUST_CHECK enum rc vol_check_room(int dir, uint64_t bytes, struct err *err);
bool vol_direct_io(int dir_fd, const char *name);
/* A raw disk of so many bytes, or of what is left when that is nearly enough; whole, or not at all. */
MUST_CHECK enum rc vol_make_raw(struct volume *v, int dir, const char *name, uint64_t bytes,
				struct err *err);
/* Opens a raw disk; one that is not there is made by make(). */
MUST_CHECK enum rc vol_open_raw(struct volume *v, int dir, const char *name,
				enum rc (*make)(struct volume *v, int dir, const char *name,
						struct err *err),
				struct err *err);

#endif
