/* src/cluster/apiserver/store.h - every object of the cluster: read from memory, written durably.
 *
 * Loop thread only.  One append-only log of revisions in SQLite (WAL, synchronous=FULL, exactly one
 * connection, used from one ordered queue of the pool); all current objects in memory.  A write is
 * checked against the newest state (pending writes included), joins the next commit, and becomes
 * visible - to readers, to watchers, to its caller - only after that commit is durable, in the order
 * of revisions.  A revision is an object's resourceVersion; none is ever given twice.
 *
 * Keys are "<table>/<rest>": the table is the resource ("virtualmachines.kubevirt.io"), the rest is
 * "<namespace>/<name>" or "<name>".  docs/internals/store.md draws the picture.
 */
#ifndef APISERVER_STORE_H
#define APISERVER_STORE_H

#include "base/err.h"
#include "base/limits.h"
#include "base/list.h"
#include "ctl/prom.h"

struct json;
struct loop;
struct obj; /* one version of one object: immutable, counted */
struct store;
struct store_write; /* a write that is not durable yet */

/* ---- objects -------------------------------------------------------------------------------- */

struct obj *obj_ref(struct obj *o);
struct obj *obj_unref(struct obj *o); /* NULL is fine; returns NULL */
DEFINE_CLEANUP(struct obj *, obj_unref);
const char *obj_key(const struct obj *o);  /* "<table>/<rest>" */
const char *obj_rest(const struct obj *o); /* behind the table */
const char *obj_table(const struct obj *o);
int64_t obj_rev(const struct obj *o);
usec_t obj_written(const struct obj *o);	      /* wall clock of the write */
const char *obj_text(const struct obj *o, size_t *n); /* serialised; n may be NULL */
/* A new reference to the parsed form (js_unref it; never change it); NULL: out of memory.
 * Parsed when needed; the store keeps the most recently used ones. */
struct json *obj_json(struct obj *o);

/* ---- store ---------------------------------------------------------------------------------- */

struct store_opts {
	const char *path; /* NULL: memory only; commits still complete from the loop, not at once */
	const char *vfs;  /* SQLite's VFS by name; NULL: the system's */
	size_t ring_events; /* history kept for watches; 0: 4096 */
	size_t ring_bytes;  /* ceiling of superseded text kept for it; 0: 8 MiB */
	size_t json_cache;  /* parsed objects kept; 0: 256 */
	size_t json_text;   /* ceiling of their text; parsed it is ten times that; 0: 512 KiB */
	size_t wal_pages;   /* checkpoint at so many pages when nothing waits, at eight times that
			     * in any case; 0: 1000 */
	void (*on_broken)(void *arg); /* once, from the loop, when store_is_healthy() turns false */
	void *arg;
};

/* Opens (or makes) the file and loads it; one of an older format is brought up to date first, and a copy
 * of it stays behind as "<path>.format<N>".  RC_CLOSED: another process has it open; RC_UNSUPPORTED: made
 * by a newer Ferry; RC_INVALID: another program's database; RC_IO: damaged or unreadable.  All references to objects must be gone before
 * store_close(), which lets a running commit end and forgets the callbacks of unfinished writes. */
MUST_CHECK enum rc store_open(struct store **out, struct loop *loop, const struct store_opts *opts,
			      struct err *err);
struct store *store_close(struct store *s);
DEFINE_CLEANUP(struct store *, store_close);

int64_t store_rev(const struct store *s); /* newest visible revision; 0: nothing was ever written */
int64_t store_oldest(
	const struct store *s); /* watches and lists may start at this revision or later */
bool store_is_idle(const struct store *s); /* no write waits or runs */
/* False after a commit failed in a way that leaves the file's state unknown: every write is refused
 * with RC_CLOSED, and the process should end and start again from the file. */
bool store_is_healthy(const struct store *s);

/* Borrowed until the loop goes on. */
struct obj *store_get(struct store *s, const char *key);    /* visible version; NULL: none */
struct obj *store_newest(struct store *s, const char *key); /* pending ones included; NULL: none */
size_t store_count(struct store *s, const char *table);	    /* visible objects of a table */

/* Objects of a table in key order; nothing may be written meanwhile (writes from other loop turns). */
struct store_iter {
	struct store *store;
	const void *table;
	size_t at;
	const char *prefix;
	char room[LIMIT_NAME_BYTES + 2]; /* of store_iter_in(): the iterator stays where it is */
};
/* prefix: of the rest ("default/", "" or NULL for all); borrowed. */
void store_iter_init(struct store_iter *it, struct store *s, const char *table, const char *prefix);
/* The objects of one namespace; ns "" or NULL: all. */
void store_iter_in(struct store_iter *it, struct store *s, const char *table, const char *ns);
struct obj *store_iter_next(struct store_iter *it); /* visible version; borrowed; NULL: end */
struct obj *store_iter_next_newest(struct store_iter *it); /* as store_newest() */

struct obj_list {
	size_t n, cap;
	struct obj **items; /* references */
};
void obj_list_fini(struct obj_list *l);

typedef bool (*obj_keep_fn)(struct obj *o, void *arg);
struct store_page {
	const char *table;
	const char *prefix; /* NULL: all */
	const char *after;  /* rest of the last object of the page before; NULL: from the start */
	int64_t rev;	    /* as it stood at this revision; 0: now */
	size_t limit;	    /* 0: all */
	obj_keep_fn keep;   /* NULL: all */
	void *keep_arg;
};
/* Appends references to out.  *more: there are objects behind the last one; *remaining (may be NULL):
 * how many, only exact without keep.  RC_EXPIRED: rev is older than store_oldest();
 * RC_INVALID: rev lies in the future. */
MUST_CHECK enum rc store_list(struct store *s, const struct store_page *page, struct obj_list *out,
			      bool *more, size_t *remaining, struct err *err);

/* ---- writing -------------------------------------------------------------------------------- */

enum store_op { STORE_CREATE, STORE_UPDATE, STORE_DELETE };

/* Once, from the loop, after the commit (rc 0, o: what was written, borrowed) or its failure. */
typedef void (*store_done_fn)(void *arg, enum rc rc, struct obj *o, const struct err *err);

/* Queues a write.  expect: the revision of store_newest() that the caller decided on (CREATE: 0).
 * body is consumed in any case and gets metadata.resourceVersion; DELETE writes it as the last
 * version that watchers see.  done may be NULL.  *out (may be NULL) is valid until done runs.
 * RC_EXISTS, RC_NOT_FOUND, RC_CONFLICT: the newest version is not the expected one; RC_TOO_BIG;
 * RC_BUSY: too many writes wait; RC_CLOSED: see store_is_healthy(). */
MUST_CHECK enum rc store_write(struct store *s, enum store_op op, const char *key, int64_t expect,
			       struct json *body, store_done_fn done, void *arg,
			       struct store_write **out, struct err *err);
/* done will not run; the write itself goes on. */
void store_write_forget(struct store_write *w);

/* Whoever decided on store_newest() and writes nothing still must not tell before what it saw is durable: a
 * loss of power would make it untrue.  Embedded by the caller; zero: not armed. */
struct store_barrier {
	struct list link;
	int64_t rev;
	/* Once, from the loop.  False: a write that was under way then has failed. */
	void (*fn)(void *arg, bool is_durable);
	void *arg;
};
/* False: nothing is under way, and fn will not run. */
bool store_barrier_arm(struct store *s, struct store_barrier *b,
		       void (*fn)(void *arg, bool is_durable), void *arg);
void store_barrier_disarm(struct store_barrier *b); /* also of one that is not armed */

/* ---- history -------------------------------------------------------------------------------- */

enum store_event_type { STORE_ADDED, STORE_MODIFIED, STORE_DELETED };

struct store_event {
	int64_t rev;
	enum store_event_type type;
	struct obj *obj;  /* DELETED: the last version, with the revision of the deletion */
	struct obj *prev; /* NULL: ADDED */
};
typedef void (*store_event_fn)(void *arg, const struct store_event *ev);

/* One listener hears each event once, in order, as it becomes visible (before the writer's done). */
void store_listen(struct store *s, store_event_fn fn, void *arg);
/* One listener hears of each write as it is queued: store_newest(key) is `was` and becomes `is` (NULL: no
 * object); both NULL: writes of the key were lost, and it is what it was before them.  Nothing may be written
 * from inside; objects are borrowed for the call. */
typedef void (*store_newest_fn)(void *arg, const char *key, struct obj *was, struct obj *is);
void store_listen_newest(struct store *s, store_newest_fn fn, void *arg);
/* Calls fn for each event after rev that is visible, oldest first.  RC_EXPIRED: forgotten;
 * RC_INVALID: rev lies in the future. */
MUST_CHECK enum rc store_replay(struct store *s, const char *table, int64_t rev, store_event_fn fn,
				void *arg, struct err *err);

struct store_stats {
	uint64_t commits, writes, failed, checkpoints;
	uint64_t checkpoint_failures;
	struct prom_hist commit_seconds; /* queue to done */
	usec_t commit_max;		 /* longest */
	size_t objects, waiting, ring, log_rows;
	size_t wal_pages;    /* not yet in the main file */
	uint64_t text_bytes; /* of visible objects and history */
};
extern const struct prom_buckets store_commit_buckets; /* of commit_seconds */
void store_get_stats(const struct store *s, struct store_stats *out);
/* Why the last checkpoint failed; NULL: it did not.  Nothing is lost by that, but the log grows until one
 * works.  Borrowed until the loop goes on. */
const char *store_checkpoint_error(const struct store *s);

/* ---- backup --------------------------------------------------------------------------------- */

const char *store_path(const struct store *s); /* NULL: memory only */

/* Where a copy may be made that nobody keeps: what a killed server left there goes when the store is opened
 * and when the next one begins.  The caller's; NULL: memory only, or out of memory. */
char *store_backup_place(const struct store *s);

struct store_backup; /* a copy that is being made */

/* What is in a store's file that was looked at as a whole. */
struct store_file_info {
	int64_t rev;	/* newest revision */
	size_t objects; /* that exist at that revision */
	uint64_t bytes; /* size of the file */
	int format;
};

struct store_backup_opts {
	const char *path; /* must not exist (but store_backup_place()); made with mode 0600 */
	/* From the loop, after each slice; of may grow while the store is written to. */
	void (*progress)(void *arg, size_t pages, size_t of);
	/* Once, from the loop.  rc 0: the file is whole, checked and on disk, info tells what is in it
	 * (borrowed).  Otherwise the file is gone. */
	void (*done)(void *arg, enum rc rc, const struct store_file_info *info,
		     const struct err *err);
	void *arg;
};
/* Makes a consistent copy of the file while the store is written to: in slices between the commits, so that
 * no write waits for more than one slice.  It has every write that was acknowledged before the call.
 * *out is valid until done runs.  RC_UNSUPPORTED: a memory store; RC_BUSY: another backup is being made;
 * RC_EXISTS: there is such a file. */
MUST_CHECK enum rc store_backup(struct store *s, const struct store_backup_opts *opts,
				struct store_backup **out, struct err *err);
/* done will not run, and the file goes away. */
void store_backup_cancel(struct store_backup *b);

#endif
