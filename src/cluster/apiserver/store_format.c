#include <stdio.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "cluster/apiserver/store_db.h"

/* The file's format and its history.
 *
 *  0  an empty file
 *  1  log, meta
 *  2  application_id says that it is a store of Ferry's, so that another program's database is never
 *     taken for one
 *
 * A new format gets a step from the one before it here, a line above, and a file of the old one beside the test.
 * All steps that a file needs are one transaction: it is at its old format or at the newest. */

static const char *const steps[DB_FORMAT] = {
	[0] = "CREATE TABLE log(rev INTEGER PRIMARY KEY, key TEXT NOT NULL,"
	      " prev INTEGER NOT NULL, deleted INTEGER NOT NULL,"
	      " written INTEGER NOT NULL, body BLOB NOT NULL, UNIQUE(key, prev));"
	      "CREATE TABLE meta(name TEXT PRIMARY KEY, value INTEGER NOT NULL);"
	      "INSERT INTO meta VALUES('compact_rev', 0);",
	[1] = "PRAGMA application_id=0x46727279;",
};

static enum rc run_steps(struct db *d, int64_t from, struct err *err)
{
	char last[48];
	enum rc rc = db_exec(d, "BEGIN IMMEDIATE", err);

	for (int64_t f = from; f < DB_FORMAT && !rc; f++)
		rc = db_exec(d, steps[f], err);
	snprintf(last, sizeof(last), "PRAGMA user_version=%d; COMMIT", DB_FORMAT);
	if (!rc)
		rc = db_exec(d, last, err);
	if (rc && !sqlite3_get_autocommit(d->sql))
		sqlite3_exec(d->sql, "ROLLBACK", NULL, NULL, NULL);
	return rc;
}

/* The file as it was, whole and on disk under its name before anything changes. */
static enum rc keep_copy(struct db *d, const char *path, int64_t format, struct err *err)
{
	CLEANUP(mem_freep) char *name = mem_printf("%s.format%lld", path, (long long)format);
	CLEANUP(mem_freep) char *part = name ? mem_printf("%s.part", name) : NULL;
	struct store_file_info info;
	struct db_copy *c = NULL;
	bool end = false;

	if (!part)
		return err_set(err, RC_NOMEM, "out of memory");
	unlink(part);
	enum rc rc = db_copy_begin(&c, d, part, err);

	while (!rc && !end)
		rc = db_copy_step(c, STORE_COPY_PAGES, &end, err);
	if (!rc)
		rc = db_copy_finish(c, &info, err);
	db_copy_free(c);
	if (!rc && rename(part, name) != 0) {
		unlink(part);
		rc = err_set(err, RC_IO, "cannot rename '%s'", part);
	}
	if (!rc)
		rc = file_sync_parent(name, err);
	if (rc && err)
		err_prepend(err, "cannot keep a copy before the format is changed");
	return rc;
}

/* An empty file, or one that has what each format since the first has. */
static enum rc check_is_store(struct db *d, int64_t format, struct err *err)
{
	int64_t tables = 0, ours = 0, application = 0;
	enum rc rc = db_query_int(d, "SELECT count(*) FROM sqlite_master", &tables, err);

	if (!rc)
		rc = db_query_int(d,
				  "SELECT count(*) FROM sqlite_master WHERE type='table'"
				  " AND name IN ('log', 'meta')",
				  &ours, err);
	if (!rc)
		rc = db_query_int(d, "PRAGMA application_id", &application, err);
	if (rc)
		return rc;
	bool is_store = format == 0   ? tables == 0 && application == 0
			: format == 1 ? ours == 2
				      : ours == 2 && application == DB_APPLICATION;

	return is_store ? RC_OK : err_set(err, RC_INVALID, "it is another program's database");
}

enum rc db_schema(struct db *d, const char *path, unsigned flags, struct err *err)
{
	int64_t format = 0;
	enum rc rc = db_query_int(d, "PRAGMA user_version", &format, err);

	if (!rc && format <= DB_FORMAT)
		rc = check_is_store(d, format < 0 ? DB_FORMAT : format, err);
	if (rc)
		return rc;
	if (format > DB_FORMAT)
		return err_set(
			err, RC_UNSUPPORTED,
			"the store has format %lld and this Ferry knows %d: it was made by a newer one",
			(long long)format, DB_FORMAT);
	if (format == DB_FORMAT)
		return RC_OK;
	if (format == 0 && flags & DB_EXISTS)
		return err_set(err, RC_INVALID, "it is empty");
	if (flags & DB_AS_IS)
		return RC_OK;
	if (format > 0 && !(flags & DB_NO_COPY))
		rc = keep_copy(d, path, format, err);
	return rc ? rc : run_steps(d, format, err);
}
