/* src/cluster/apiserver/store_int.h - what the files of the store share; for nobody else.
 *
 * Loop thread only, apart from struct db, which one pool thread at a time uses.
 */
#ifndef APISERVER_STORE_INT_H
#define APISERVER_STORE_INT_H

#include "base/list.h"
#include "base/map.h"
#include "cluster/apiserver/store.h"

enum {
	STORE_QUEUE = 1,	   /* of the pool: whatever uses struct db */
	STORE_BATCH_ROWS = 512,	   /* writes of one commit */
	STORE_BATCH_GC = 1024,	   /* rows deleted by one commit */
	STORE_MAX_WAITING = 20000, /* writes that wait for a commit */
	STORE_WAL_SOFT = 1000,	   /* pages: checkpoint when nothing waits */
	STORE_WAL_HARD = 8,	   /* times that: checkpoint whatever waits */
	STORE_COPY_PAGES = 64,	   /* of a backup between two commits */
	LIMIT_KEY_TABLE = 256,	   /* bytes of a table's name */
};

/* ---- store_db.c: SQLite; everything blocks -------------------------------------------------- */

/* One row of the log on its way in or out of SQLite. */
struct db_row {
	int64_t rev, prev;
	const char *key;
	bool deleted;
	usec_t written;
	const char *text;
	size_t n_text;
};

/* The file format, PRAGMA user_version.  Each step from an older one stands in store_format.c. */
#define DB_FORMAT 2
/* PRAGMA application_id: "Frry" */
#define DB_APPLICATION 0x46727279

struct db;
enum db_open_flags {
	DB_LOCKED = 1,	/* the caller holds "<path>.lock"; else it is held until db_close() */
	DB_EXISTS = 2,	/* only a store that is there; else it is made */
	DB_NO_COPY = 4, /* an older format is brought up to date without keeping a copy */
	DB_AS_IS = 8,	/* an older format stays as it is */
};
/* vfs NULL: the system's. */
MUST_CHECK enum rc db_open(struct db **out, const char *path, const char *vfs, unsigned flags,
			   int64_t *compact_rev, struct err *err);
/* All of the log into the main file: db_close() leaves one file. */
MUST_CHECK enum rc db_settle(struct db *d, struct err *err);
struct db *db_close(struct db *d);
typedef enum rc (*db_row_fn)(void *arg, const struct db_row *row, struct err *err);
/* All rows, oldest first. */
MUST_CHECK enum rc db_load(struct db *d, db_row_fn fn, void *arg, struct err *err);

struct db_batch {
	size_t n_rows;
	struct db_row rows[STORE_BATCH_ROWS];
	size_t n_gc;
	int64_t gc[STORE_BATCH_GC]; /* revisions whose rows go */
	int64_t compact_rev;	    /* written when n_gc > 0 */
};
/* One transaction.  RC_BUSY: refused, nothing changed (disk full); any other failure: unknown. */
MUST_CHECK enum rc db_commit(struct db *d, const struct db_batch *b, size_t *wal_pages,
			     struct err *err);
MUST_CHECK enum rc db_checkpoint(struct db *d, struct err *err);
/* For the files of the store only. */
MUST_CHECK enum rc db_fail(struct db *d, int code, const char *what, struct err *err);
MUST_CHECK enum rc db_exec(struct db *d, const char *sql, struct err *err);
/* *out keeps its value when there is no row. */
MUST_CHECK enum rc db_query_int(struct db *d, const char *sql, int64_t *out, struct err *err);

/* ---- store_format.c -------------------------------------------------------------------------- */

/* Makes the tables, or brings older ones up to date (a copy of the file stays as "<path>.format<N>").
 * RC_UNSUPPORTED: made by a newer Ferry; RC_INVALID: not a store. */
MUST_CHECK enum rc db_schema(struct db *d, const char *path, unsigned flags, struct err *err);

/* ---- store_copy.c ---------------------------------------------------------------------------- */

struct db_copy;
MUST_CHECK enum rc db_copy_begin(struct db_copy **out, struct db *from, const char *path,
				 struct err *err);
/* Copies at most so many pages.  *end: all of it is there, and from is not needed any more. */
MUST_CHECK enum rc db_copy_step(struct db_copy *c, int pages, bool *end, struct err *err);
void db_copy_progress(const struct db_copy *c, size_t *pages, size_t *of);
/* Ends the use of from, the copy being whole or not. */
void db_copy_detach(struct db_copy *c);
/* After the end: one ordinary file, on disk, and whole (db_check_file()).  Needs no from. */
MUST_CHECK enum rc db_copy_finish(struct db_copy *c, struct store_file_info *info, struct err *err);
struct db_copy *db_copy_free(struct db_copy *c); /* removes the file unless it was finished */
DEFINE_CLEANUP(struct db_copy *, db_copy_free);

/* Looks at all of an open file: SQLite's structure, format, every row; all of info but bytes.
 * RC_INVALID: not a store, or damaged; RC_UNSUPPORTED: made by a newer Ferry. */
MUST_CHECK enum rc db_check(struct db *d, struct store_file_info *info, struct err *err);
/* The same of a file that db_copy_finish() left, opened for reading alone. */
MUST_CHECK enum rc db_check_file(const char *path, struct store_file_info *info, struct err *err);
MUST_CHECK enum rc db_fsync(const char *path, struct err *err);
/* Is there room for a file of so many bytes beside path, and some to spare?  RC_BUSY: no. */
MUST_CHECK enum rc db_check_room(const char *path, uint64_t bytes, struct err *err);

/* ---- in memory ------------------------------------------------------------------------------- */

/* One key.  In its table from its first write until the tombstone's row is deleted. */
struct entry {
	unsigned refs;	  /* one per object, one for the table */
	unsigned pending; /* writes on their way */
	struct table *table;
	struct obj *cur;    /* visible; NULL: none */
	struct obj *newest; /* while pending > 0: the last of them */
	int64_t last_rev;   /* newest row in the log; 0: none */
	int64_t tail_rev;   /* the same, pending writes included */
	size_t n_table;	    /* length of the table's name in key */
	char key[];
};

struct table {
	struct store *store;
	char *name;
	size_t n, cap;
	struct entry **entries; /* sorted by key */
	size_t live;
};

struct obj {
	unsigned refs;
	bool deleted;
	int64_t rev;
	usec_t written;
	struct entry *entry;
	char *text;
	size_t n_text;
	struct json *json; /* NULL: not parsed */
	struct list lru;   /* linked while json is kept */
	struct list gc;	   /* linked while its row waits for deletion; holds a reference */
};

struct ring {
	struct store_event *items;
	size_t cap, first, n;
	size_t bytes, max_bytes; /* superseded text */
};

struct store_write {
	struct list link;
	struct obj *obj;
	int64_t prev;
	store_done_fn done;
	void *arg;
};

struct store {
	struct loop *loop;
	char *path;    /* NULL: memory only */
	struct db *db; /* NULL: memory only */
	struct map tables;
	int64_t rev;	  /* visible */
	int64_t next_rev; /* given out */
	int64_t compact_rev;
	struct ring ring;

	struct list waiting; /* struct store_write */
	size_t n_waiting;
	struct list flying;
	struct list gc, gc_flying; /* struct obj by .gc */
	struct list barriers;	   /* struct store_barrier, by revision */
	bool running, checkpointing, broken;
	struct store_backup *backup; /* NULL: none */
	struct ev_src *timer; /* memory store: the commit; else: try again after out of memory */
	struct db_batch *batch;
	enum rc batch_rc;
	struct err batch_err;
	size_t wal_pages, wal_soft;
	bool checkpoint_failing; /* the last one did */
	enum rc checkpoint_rc;	 /* of the one that runs: the pool's */
	struct err checkpoint_err;
	char checkpoint_text[256];
	usec_t batch_start;

	struct list lru; /* struct obj by .lru, most recent first */
	size_t n_json, max_json;
	size_t json_text, max_json_text; /* bytes of text of what is parsed */

	void (*on_broken)(void *arg);
	void *broken_arg;
	store_event_fn listener;
	void *listener_arg;
	store_newest_fn newest_listener;
	void *newest_arg;
	struct store_stats stats;
};

/* The backup that is being made, if any, ends soon and tells nobody. */
void store_backup_end(struct store *s);
/* Removes what a killed server left at store_backup_place(). */
MUST_CHECK enum rc store_backup_sweep(struct store *s);

struct table *store_table(struct store *s, const char *name, size_t n); /* NULL: none */
struct entry *table_find(const struct table *t, const char *key);
size_t table_lower_bound(const struct table *t, const char *rest, bool after);
/* Finds or makes; RC_INVALID: no table in the key. */
MUST_CHECK enum rc store_entry(struct store *s, const char *key, struct entry **out,
			       struct err *err);
void entry_remove(struct entry *e);
struct entry *entry_unref(struct entry *e);
/* text is consumed, also on failure. */
MUST_CHECK enum rc obj_new(struct obj **out, struct entry *e, char *text, size_t n);
void obj_keep_json(struct obj *o, struct json *json); /* consumes */

MUST_CHECK enum rc ring_init(struct ring *r, size_t cap, size_t max_bytes);
/* Makes o the visible version of its key and remembers the event.  Allocates nothing.  Consumes the
 * reference. */
void store_apply(struct store *s, struct obj *o, struct store_event *ev);
void ring_fini(struct store *s);
/* History from rev on is promised to nobody. */
void store_forget_before(struct store *s, int64_t rev);
/* Index of the first event after rev. */
size_t ring_after(const struct ring *r, int64_t rev);
const struct store_event *ring_at(const struct ring *r, size_t i);

#endif
