/* src/virt/node/vollock.h - QEMU's locks on a disk that all nodes see, looked at and taken from another node.
 *
 * Blocking: pool threads.  QEMU (block/file-posix.c) holds shared locks of its open file on single bytes of an image from
 * 100 on (what it does with it) and from 200 on (what others may not do), while the guest runs or stands, and none once
 * it has given the disk up to the target of a move.  An exclusive lock over all of them is got by nobody while a QEMU
 * writes; and storage that keeps the locks of a client that it has lost has to give them away for it.  No link is
 * followed.
 */
#ifndef NODE_VOLLOCK_H
#define NODE_VOLLOCK_H

#include "base/err.h"

struct vollock {
	const char *root; /* folder of the class, or one that hostDiskPaths allows */
	const char *path; /* of the disk, below it */
};

/* Does anybody hold one?  Nobody notices. */
MUST_CHECK enum rc vollock_look(const struct vollock *d, bool *is_held, struct err *err);
/* Takes the whole of it, or leaves it to who holds it; what was taken is let go at once, since whoever had it before does
 * not get it back by that. */
MUST_CHECK enum rc vollock_take(const struct vollock *d, bool *is_held, struct err *err);

#endif
