#include "cluster/apiserver/store_int.h"

#include <sqlite3.h>
#include <string.h>

#include "base/mem.h"

#define DB_FORMAT 1

struct db {
	sqlite3 *sql;
	sqlite3_stmt *insert, *del, *compact;
	int wal_pages; /* after the last commit */
};

static enum rc db_fail(struct db *d, int code, const char *what, struct err *err)
{
	enum rc rc = RC_IO;

	switch (code & 0xff) {
	case SQLITE_FULL:
	case SQLITE_NOMEM:
		rc = RC_BUSY;
		break;
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		rc = RC_CLOSED;
		break;
	default:
		break;
	}
	return err_set(err, rc, "%s: %s", what,
		       d->sql ? sqlite3_errmsg(d->sql) : sqlite3_errstr(code));
}

static enum rc db_exec(struct db *d, const char *sql, struct err *err)
{
	int r = sqlite3_exec(d->sql, sql, NULL, NULL, NULL);

	return r == SQLITE_OK ? RC_OK : db_fail(d, r, "database", err);
}

static enum rc db_prepare(struct db *d, sqlite3_stmt **out, const char *sql, struct err *err)
{
	int r = sqlite3_prepare_v3(d->sql, sql, -1, SQLITE_PREPARE_PERSISTENT, out, NULL);

	return r == SQLITE_OK ? RC_OK : db_fail(d, r, "database", err);
}

static int on_wal(void *arg, sqlite3 *sql, const char *name, int pages)
{
	struct db *d = arg;

	(void)sql;
	(void)name;
	d->wal_pages = pages;
	return SQLITE_OK;
}

static enum rc db_query_int(struct db *d, const char *sql, int64_t *out, struct err *err)
{
	sqlite3_stmt *st = NULL;
	enum rc rc = db_prepare(d, &st, sql, err);

	if (rc)
		return rc;
	int r = sqlite3_step(st);

	if (r == SQLITE_ROW)
		*out = sqlite3_column_int64(st, 0);
	sqlite3_finalize(st);
	return r == SQLITE_ROW || r == SQLITE_DONE ? RC_OK : db_fail(d, r, "database", err);
}

static enum rc db_schema(struct db *d, int64_t *compact_rev, struct err *err)
{
	int64_t format = 0;
	enum rc rc = db_query_int(d, "PRAGMA user_version", &format, err);

	if (rc)
		return rc;
	if (format > DB_FORMAT)
		return err_set(
			err, RC_UNSUPPORTED,
			"the store has format %lld and this Ferry knows %d: it was made by a newer one",
			(long long)format, DB_FORMAT);
	if (format == 0)
		rc = db_exec(d,
			     "BEGIN IMMEDIATE;"
			     "CREATE TABLE log(rev INTEGER PRIMARY KEY, key TEXT NOT NULL,"
			     " prev INTEGER NOT NULL, deleted INTEGER NOT NULL,"
			     " written INTEGER NOT NULL, body BLOB NOT NULL, UNIQUE(key, prev));"
			     "CREATE TABLE meta(name TEXT PRIMARY KEY, value INTEGER NOT NULL);"
			     "INSERT INTO meta VALUES('compact_rev', 0);"
			     "PRAGMA user_version=1;"
			     "COMMIT;",
			     err);
	if (rc)
		return rc;
	return db_query_int(d, "SELECT value FROM meta WHERE name='compact_rev'", compact_rev, err);
}

enum rc db_open(struct db **out, const char *path, int64_t *compact_rev, struct err *err)
{
	struct db *d = mem_alloc(sizeof(*d));

	if (!d)
		return err_set(err, RC_NOMEM, "out of memory");
	int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX;
	int r = sqlite3_open_v2(path, &d->sql, flags, NULL);
	enum rc rc = r == SQLITE_OK ? RC_OK : db_fail(d, r, "database", err);

	/* Exclusive: no second process may write, and no shared-memory file is needed.  Checkpoints
	 * run between commits, never inside one. */
	if (!rc)
		rc = db_exec(d,
			     "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL;"
			     "PRAGMA synchronous=FULL; PRAGMA temp_store=MEMORY;"
			     "PRAGMA cache_size=-1024; PRAGMA trusted_schema=OFF;",
			     err);
	if (!rc)
		rc = db_schema(d, compact_rev, err);
	if (!rc)
		rc = db_prepare(d, &d->insert, "INSERT INTO log VALUES(?,?,?,?,?,?)", err);
	if (!rc)
		rc = db_prepare(d, &d->del, "DELETE FROM log WHERE rev=?", err);
	if (!rc)
		rc = db_prepare(d, &d->compact, "UPDATE meta SET value=? WHERE name='compact_rev'",
				err);
	if (rc) {
		db_close(d);
		return err ? err_prepend(err, "store '%s'", path) : rc;
	}
	sqlite3_wal_hook(d->sql, on_wal, d); /* also turns SQLite's own checkpoints off */
	*out = d;
	return RC_OK;
}

struct db *db_close(struct db *d)
{
	if (!d)
		return NULL;
	sqlite3_finalize(d->insert);
	sqlite3_finalize(d->del);
	sqlite3_finalize(d->compact);
	sqlite3_close(d->sql);
	return mem_free(d);
}

enum rc db_load(struct db *d, db_row_fn fn, void *arg, struct err *err)
{
	sqlite3_stmt *st = NULL;
	enum rc rc = db_prepare(
		d, &st, "SELECT rev, key, prev, deleted, written, body FROM log ORDER BY rev", err);
	int r = SQLITE_DONE;

	while (!rc && (r = sqlite3_step(st)) == SQLITE_ROW) {
		struct db_row row = {
			.rev = sqlite3_column_int64(st, 0),
			.key = (const char *)sqlite3_column_text(st, 1),
			.prev = sqlite3_column_int64(st, 2),
			.deleted = sqlite3_column_int(st, 3) != 0,
			.written = (usec_t)sqlite3_column_int64(st, 4),
			.text = sqlite3_column_blob(st, 5),
			.n_text = (size_t)sqlite3_column_bytes(st, 5),
		};

		if (!row.key || !row.text)
			rc = err_set(err, RC_IO, "revision %lld of the store is damaged",
				     (long long)row.rev);
		else
			rc = fn(arg, &row, err);
	}
	if (!rc && r != SQLITE_DONE)
		rc = db_fail(d, r, "database", err);
	sqlite3_finalize(st);
	return rc;
}

static int insert_row(struct db *d, const struct db_row *row)
{
	sqlite3_stmt *st = d->insert;

	sqlite3_bind_int64(st, 1, row->rev);
	sqlite3_bind_text(st, 2, row->key, -1, SQLITE_STATIC);
	sqlite3_bind_int64(st, 3, row->prev);
	sqlite3_bind_int(st, 4, row->deleted);
	sqlite3_bind_int64(st, 5, (int64_t)row->written);
	sqlite3_bind_blob64(st, 6, row->text, row->n_text, SQLITE_STATIC);
	int r = sqlite3_step(st);

	sqlite3_reset(st);
	sqlite3_clear_bindings(st);
	return r;
}

static int run_int64(sqlite3_stmt *st, int64_t v)
{
	sqlite3_bind_int64(st, 1, v);
	int r = sqlite3_step(st);

	sqlite3_reset(st);
	return r;
}

static int write_batch(struct db *d, const struct db_batch *b)
{
	int r = SQLITE_DONE;

	/* Deletions first: a key may be made anew with the prev of a row that goes. */
	for (size_t i = 0; i < b->n_gc && r == SQLITE_DONE; i++)
		r = run_int64(d->del, b->gc[i]);
	if (b->n_gc && r == SQLITE_DONE)
		r = run_int64(d->compact, b->compact_rev);
	for (size_t i = 0; i < b->n_rows && r == SQLITE_DONE; i++)
		r = insert_row(d, &b->rows[i]);
	return r;
}

enum rc db_commit(struct db *d, const struct db_batch *b, size_t *wal_pages, struct err *err)
{
	int r = sqlite3_exec(d->sql, "BEGIN IMMEDIATE", NULL, NULL, NULL);

	if (r != SQLITE_OK)
		return db_fail(d, r, "cannot begin", err);
	r = write_batch(d, b);
	if (r != SQLITE_DONE) {
		enum rc rc = db_fail(d, r, "cannot write", err);

		if (!sqlite3_get_autocommit(d->sql) &&
		    sqlite3_exec(d->sql, "ROLLBACK", NULL, NULL, NULL) != SQLITE_OK)
			rc = RC_IO;
		return rc;
	}
	r = sqlite3_exec(d->sql, "COMMIT", NULL, NULL, NULL);
	if (r != SQLITE_OK) {
		enum rc rc = db_fail(d, r, "cannot commit", err);

		/* A full disk is found while frames are written, before the one that counts. */
		if (!sqlite3_get_autocommit(d->sql) &&
		    sqlite3_exec(d->sql, "ROLLBACK", NULL, NULL, NULL) != SQLITE_OK)
			rc = RC_IO;
		return rc;
	}
	*wal_pages = (size_t)d->wal_pages;
	return RC_OK;
}

enum rc db_checkpoint(struct db *d, struct err *err)
{
	int r = sqlite3_wal_checkpoint_v2(d->sql, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);

	return r == SQLITE_OK ? RC_OK : db_fail(d, r, "checkpoint", err);
}

enum rc db_backup(struct db *d, const char *path, struct err *err)
{
	sqlite3_stmt *st = NULL;
	enum rc rc = db_prepare(d, &st, "VACUUM INTO ?", err);

	if (rc)
		return rc;
	sqlite3_bind_text(st, 1, path, -1, SQLITE_STATIC);
	int r = sqlite3_step(st);

	sqlite3_finalize(st);
	return r == SQLITE_DONE ? RC_OK : db_fail(d, r, "backup", err);
}
