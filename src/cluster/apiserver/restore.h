/* src/cluster/apiserver/restore.h - puts a backup in the place of a store that nobody serves.
 *
 * Blocking; needs no loop.  docs/ops/guide.md ("Backup and restore") tells what it means for what runs.
 */
#ifndef APISERVER_RESTORE_H
#define APISERVER_RESTORE_H

#include "base/err.h"

struct store_restore_info {
	int64_t backup_rev; /* newest revision in the backup */
	int64_t old_rev; /* of the store that was replaced; 0: there was none, or it is unreadable */
	int64_t rev;	 /* where the restored store goes on */
	size_t objects;
	char kept[512]; /* the old store's new name; "": there was none */
};

/* file: what `ferry backup` wrote, or a copy of a stopped server's store.db (with its -wal beside it).
 * store: ".../store.db".  now: wall clock, for the old store's name.
 *
 * Uids and everything else in the objects stay as they were.  The revision goes on behind everything that
 * any client can have seen, and what lies before is marked as compacted: a watch from there is answered 410
 * and its client lists again.  The store is the old one or the restored one at any moment.
 * RC_CLOSED: a server has the store open; RC_INVALID, RC_UNSUPPORTED: the file is no whole store, or of a
 * newer format. */
MUST_CHECK enum rc store_restore(const char *file, const char *store, usec_t now,
				 struct store_restore_info *info, struct err *err);

#endif
