/* src/cluster/apiserver/store_int.h - what store.c and store_db.c share; for nobody else. */
#ifndef APISERVER_STORE_INT_H
#define APISERVER_STORE_INT_H

#include "base/list.h"
#include "base/map.h"
#include "cluster/apiserver/store.h"

struct obj {
	unsigned refs;
	bool deleted;
	int64_t rev;
	usec_t written;
	struct table *table;
	struct entry *entry; /* valid while the revision stands in the log */
	char *text;
	size_t n_text;
	struct json *json;  /* NULL: not parsed; counted in table->store->n_json */
	struct list lru;    /* linked while json is kept */
	struct list gc;	    /* linked while its row waits for deletion */
	size_t n_table;	    /* length of the table's name in key */
	char key[];
};

/* One row of the log on its way in or out of SQLite. */
struct db_row {
	int64_t rev, prev;
	const char *key;
	bool deleted;
	usec_t written;
	const char *text;
	size_t n_text;
};

/* ---- store_db.c: SQLite; everything blocks.  Used by one thread at a time. -------------------- */

struct db;
MUST_CHECK enum rc db_open(struct db **out, const char *path, int64_t *compact_rev, struct err *err);
struct db *db_close(struct db *d);
typedef enum rc (*db_row_fn)(void *arg, const struct db_row *row, struct err *err);
/* All rows, oldest first. */
MUST_CHECK enum rc db_load(struct db *d, db_row_fn fn, void *arg, struct err *err);

struct db_batch {
	size_t n_rows;
	struct db_row *rows;
	size_t n_gc;
	int64_t *gc;		/* revisions whose rows go */
	int64_t compact_rev;	/* written when n_gc > 0 */
};
/* One transaction.  RC_BUSY: refused, nothing changed (disk full); any other failure: unknown. */
MUST_CHECK enum rc db_commit(struct db *d, const struct db_batch *b, size_t *wal_pages, struct err *err);
MUST_CHECK enum rc db_checkpoint(struct db *d, struct err *err);
MUST_CHECK enum rc db_backup(struct db *d, const char *path, struct err *err);

#endif
