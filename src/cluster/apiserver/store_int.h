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
	STORE_BATCH_ROWS = 512,	   /* writes of one commit */
	STORE_BATCH_GC = 1024,	   /* rows deleted by one commit */
	STORE_MAX_WAITING = 20000, /* writes that wait for a commit */
	STORE_WAL_SOFT = 1000,	   /* pages: checkpoint when nothing waits */
	STORE_WAL_HARD = 8000,	   /* pages: checkpoint whatever waits */
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

struct db;
MUST_CHECK enum rc db_open(struct db **out, const char *path, int64_t *compact_rev,
			   struct err *err);
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
MUST_CHECK enum rc db_backup(struct db *d, const char *path, struct err *err);

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
	bool running, checkpointing, broken;
	unsigned backups;
	struct ev_src *timer; /* memory store: the commit; else: try again after out of memory */
	struct db_batch *batch;
	enum rc batch_rc;
	struct err batch_err;
	size_t wal_pages;
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
