/* tests/lib/faultvfs.h - an SQLite VFS that remembers what was written, fails on demand, and loses power.
 *
 * It passes everything on to the system's VFS, and logs each write, truncation, sync and deletion with its
 * data.  faultvfs_replay() then makes the folder as a loss of power at any point of the log may leave
 * it: what was synced is there; of what was not, everything, nothing, some, or torn pieces of 512 bytes.
 *
 * What is taken for granted (as SQLite does, SQLITE_IOCAP_POWERSAFE_OVERWRITE): bytes beside a write are not
 * damaged by it, and syncing a new file makes its name durable.  A write that a failed sync was asked for is
 * never made durable by a later one: the kernel forgets it (and the page cache still shows it).
 *
 * Any thread may do I/O; everything else belongs to the test's thread.
 */
#ifndef TESTS_FAULTVFS_H
#define TESTS_FAULTVFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct faultvfs;

enum faultvfs_op {
	FAULT_CREATE,
	FAULT_WRITE,
	FAULT_TRUNCATE,
	FAULT_SYNC,
	FAULT_DELETE,
	FAULT_OP__MAX
};

/* Registered with SQLite under this name (not copied) until it is freed.  Aborts when out of memory. */
struct faultvfs *faultvfs_new(const char *name);
/* Files that are there before the first open, as a loss of power left them: all of them is on disk. */
void faultvfs_adopt(struct faultvfs *v, const char *dir);
struct faultvfs *faultvfs_free(struct faultvfs *v);

size_t faultvfs_length(struct faultvfs *v); /* of the log so far */
enum faultvfs_op faultvfs_op_at(struct faultvfs *v, size_t i);
/* Remembers that this became known to somebody when the log was as long as it is now. */
void faultvfs_mark(struct faultvfs *v, int64_t what);
/* The last mark made when the log was at most so long; 0: none. */
int64_t faultvfs_mark_at(struct faultvfs *v, size_t length);

/* The nth (from 1) logged operation from now on fails with this code of SQLite's, having been done by half;
 * sticky: all later ones too.  only: FAULT_OP__MAX, or the kind that counts.  n 0: no more faults. */
void faultvfs_fail(struct faultvfs *v, size_t n, int code, bool sticky, enum faultvfs_op only);
bool faultvfs_has_failed(struct faultvfs *v);

enum faultvfs_loss { LOSS_NOTHING, LOSS_UNSYNCED, LOSS_SOME, LOSS_TORN, LOSS__MAX };
/* Writes what is left after the first length operations into dir (there, empty). */
void faultvfs_replay(struct faultvfs *v, size_t length, enum faultvfs_loss loss, uint64_t seed,
		     const char *dir);
/* Is anything unsynced at this point?  If not, all losses are the same. */
bool faultvfs_is_settled(struct faultvfs *v, size_t length);

#endif
