#include "cluster/apiserver/store_int.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/mem.h"
#include "cluster/apiserver/store_db.h"

enum rc db_fail(struct db *d, int code, const char *what, struct err *err)
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

enum rc db_exec(struct db *d, const char *sql, struct err *err)
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

enum rc db_query_int(struct db *d, const char *sql, int64_t *out, struct err *err)
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

/* SQLite's own lock stays with the file when it is renamed away; this one stays with the name, so that a
 * restore and a server never work on the same store. */
static enum rc take_lock(struct db *d, const char *path, struct err *err)
{
	CLEANUP(mem_freep) char *name = mem_printf("%s.lock", path);

	if (!name)
		return err_set(err, RC_NOMEM, "out of memory");
	d->lock = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (d->lock < 0)
		return err_set(err, RC_IO, "cannot open '%s': %s", name, strerror(errno));
	if (flock(d->lock, LOCK_EX | LOCK_NB) == 0)
		return RC_OK;
	if (errno == EWOULDBLOCK)
		return err_set(err, RC_CLOSED, "another process has it open");
	return err_set(err, RC_IO, "cannot lock '%s': %s", name, strerror(errno));
}

static bool has_bytes(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && st.st_size > 0;
}

/* SQLite would delete the log of an empty file, and a cluster would begin anew in silence.  No loss of power
 * leaves that: a log is only made for a file that is on disk. */
static enum rc check_log(const char *path, struct err *err)
{
	CLEANUP(mem_freep) char *wal = mem_printf("%s-wal", path);

	if (!wal)
		return err_set(err, RC_NOMEM, "out of memory");
	if (!has_bytes(path) && has_bytes(wal))
		return err_set(err, RC_IO,
			       "the file is missing or empty, but its log '%s' is there", wal);
	return RC_OK;
}

static enum rc prepare_all(struct db *d, struct err *err)
{
	enum rc rc = db_prepare(d, &d->insert, "INSERT INTO log VALUES(?,?,?,?,?,?)", err);

	if (!rc)
		rc = db_prepare(d, &d->del, "DELETE FROM log WHERE rev=?", err);
	if (!rc)
		rc = db_prepare(d, &d->compact, "UPDATE meta SET value=? WHERE name='compact_rev'",
				err);
	return rc;
}

static enum rc open_file(struct db *d, const char *path, const char *vfs, unsigned flags,
			 struct err *err)
{
	int how = SQLITE_OPEN_READWRITE | SQLITE_OPEN_FULLMUTEX |
		  (flags & DB_EXISTS ? 0 : SQLITE_OPEN_CREATE);
	int r = sqlite3_open_v2(path, &d->sql, how, vfs);

	if (r != SQLITE_OK)
		return db_fail(d, r, "database", err);
	/* Exclusive: no second process may write, and no shared-memory file is needed.  Checkpoints
	 * run between commits, never inside one. */
	return db_exec(d,
		       "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL;"
		       "PRAGMA synchronous=FULL; PRAGMA temp_store=MEMORY;"
		       "PRAGMA cache_size=-1024; PRAGMA trusted_schema=OFF;",
		       err);
}

enum rc db_open(struct db **out, const char *path, const char *vfs, unsigned flags,
		int64_t *compact_rev, struct err *err)
{
	struct db *d = mem_alloc(sizeof(*d));

	if (!d)
		return err_set(err, RC_NOMEM, "out of memory");
	d->lock = -1;
	enum rc rc = flags & DB_LOCKED ? RC_OK : take_lock(d, path, err);

	if (!rc)
		rc = check_log(path, err);
	if (!rc)
		rc = open_file(d, path, vfs, flags, err);
	if (!rc)
		rc = db_schema(d, path, flags, err);
	/* SQLite makes the names of its logs durable, not that of the file itself. */
	if (!rc)
		rc = file_sync_parent(path, err);
	if (!rc)
		rc = db_query_int(d, "SELECT value FROM meta WHERE name='compact_rev'", compact_rev,
				  err);
	if (!rc)
		rc = prepare_all(d, err);
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
	fd_close(d->lock); /* last: until here the file is in use */
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

enum rc db_settle(struct db *d, struct err *err)
{
	int r = sqlite3_wal_checkpoint_v2(d->sql, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);

	return r == SQLITE_OK ? RC_OK : db_fail(d, r, "checkpoint", err);
}
