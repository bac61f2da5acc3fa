/* tests/unit/apiserver/history.h - a store that is written to, and a model of what it must look like.
 *
 * The store runs on virtual time (so a run follows from its seed) over a fault VFS in a folder of its own.
 * A revision counts as known as soon as a writer or a watcher heard of it; the VFS's marks say when.
 */
#ifndef TESTS_APISERVER_HISTORY_H
#define TESTS_APISERVER_HISTORY_H

#include "cluster/apiserver/store.h"
#include "ev/ev.h"
#include "lib/faultvfs.h"

enum { HIST_KEYS = 9, HIST_REVS = 3000 };

struct history {
	struct loop *loop;
	struct store *s;
	struct faultvfs *v; /* NULL: the system's VFS */
	char dir[96], path[128];
	size_t ring, wal_pages;
	size_t least_ring; /* of all openings so far: what that forgot stays forgotten */
	uint64_t seed;
	/* The model: the value of each key after each revision; 0: absent. */
	int64_t rev_at[HIST_REVS];
	int value[HIST_REVS][HIST_KEYS];
	int n;
	int64_t known; /* newest revision that somebody heard of */
	int acks, refused, broken;
};

uint64_t hist_rnd(struct history *h);
void hist_up(struct history *h, uint64_t seed, const char *vfs); /* vfs: a name, or NULL */
void hist_down(struct history *h);
/* Opens the store at path (NULL: h->path); the result is store_open()'s. */
enum rc hist_open(struct history *h, const char *path, const char *vfs, struct err *err);
void hist_settle(struct history *h); /* until no write is under way */
/* One random write that must be accepted (unless the store is broken); the model follows. */
void hist_write(struct history *h);
/* A certain one: value 0 deletes. */
enum rc hist_set(struct history *h, int key, int value);
void hist_key(int k, char out[96]);
int hist_value(struct obj *o);
/* Index of the model's row at a revision; -1: before the first. */
int hist_index(const struct history *h, int64_t rev);
/* Forgets what was never known: the store lost it with the power. */
void hist_rewind(struct history *h, int64_t rev);

/* The store that is open now must be the model as it was at the store's revision; lists at up to n_revs past
 * revisions and watches from them too, and nothing that is too old or lies ahead is answered. */
void hist_check(struct history *h, int n_revs);
void hist_clean_dir(const char *dir); /* there, and empty */

#endif
