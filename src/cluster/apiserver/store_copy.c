#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/mem.h"
#include "cluster/apiserver/store_db.h"

/* SQLite's backup: pages go over in slices, and what the same connection writes meanwhile goes into the copy
 * as well, so the copy is the store as it is at its last slice. */

enum { MAX_ROUNDS = 16 }; /* times the file's size: a failing disk makes SQLite begin again */

struct db_copy {
	struct db to; /* only sql is used */
	sqlite3_backup *backup;
	char *path;
	uint64_t n_steps;
	bool is_made; /* the file is ours to remove */
};

/* ---- files ------------------------------------------------------------------------------------ */

enum rc db_fsync(const char *path, struct err *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return err_set(err, RC_IO, "cannot open '%s': %s", path, strerror(errno));
	int r = fsync(fd), e = errno;

	fd_close(fd);
	return r == 0 ? RC_OK : err_set(err, RC_IO, "cannot sync '%s': %s", path, strerror(e));
}

enum rc db_check_room(const char *path, uint64_t bytes, struct err *err)
{
	const char *slash = strrchr(path, '/');
	CLEANUP(mem_freep)
	char *dir = slash ? mem_strndup(path, (size_t)(slash - path) + 1) : mem_strdup(".");
	struct statvfs v;

	if (!dir)
		return err_set(err, RC_NOMEM, "out of memory");
	if (statvfs(dir, &v) != 0)
		return err_set(err, RC_IO, "cannot look at '%s': %s", dir, strerror(errno));
	uint64_t room = (uint64_t)v.f_bavail * v.f_frsize;

	if (room >= bytes + bytes / 4 + MIB)
		return RC_OK;
	return err_set(err, RC_BUSY, "the copy needs %llu KiB, and '%s' has %llu KiB left",
		       (unsigned long long)((bytes + bytes / 4 + MIB) / KIB), dir,
		       (unsigned long long)(room / KIB));
}

/* ---- copying ------------------------------------------------------------------------------------ */

/* Nobody reads the copy before it is whole: it needs no journal, and one sync at its end. */
static enum rc open_target(struct db_copy *c, struct err *err)
{
	int fd = open(c->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return err_set(err, errno == EEXIST ? RC_EXISTS : RC_IO, "cannot make '%s': %s",
			       c->path, strerror(errno));
	fd_close(fd);
	c->is_made = true;
	int r = sqlite3_open_v2(c->path, &c->to.sql, SQLITE_OPEN_READWRITE | SQLITE_OPEN_FULLMUTEX,
				NULL);

	if (r != SQLITE_OK)
		return db_fail(&c->to, r, "the copy", err);
	return db_exec(&c->to, "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF", err);
}

enum rc db_copy_begin(struct db_copy **out, struct db *from, const char *path, struct err *err)
{
	struct db_copy *c = mem_alloc(sizeof(*c));
	int64_t pages = 0, page_size = 0;

	if (!c || !(c->path = mem_strdup(path))) {
		mem_free(c);
		return err_set(err, RC_NOMEM, "out of memory");
	}
	enum rc rc = db_query_int(from, "PRAGMA page_count", &pages, err);

	if (!rc)
		rc = db_query_int(from, "PRAGMA page_size", &page_size, err);
	if (!rc)
		rc = db_check_room(path, (uint64_t)pages * (uint64_t)page_size, err);
	if (!rc)
		rc = open_target(c, err);
	if (!rc) {
		c->backup = sqlite3_backup_init(c->to.sql, "main", from->sql, "main");
		if (!c->backup)
			rc = db_fail(&c->to, sqlite3_errcode(c->to.sql), "the copy", err);
	}
	if (rc) {
		db_copy_free(c);
		return rc;
	}
	*out = c;
	return RC_OK;
}

void db_copy_progress(const struct db_copy *c, size_t *pages, size_t *of)
{
	int all = c->backup ? sqlite3_backup_pagecount(c->backup) : 0;
	int left = c->backup ? sqlite3_backup_remaining(c->backup) : 0;

	*of = (size_t)all;
	*pages = (size_t)(all - left);
}

enum rc db_copy_step(struct db_copy *c, int pages, bool *end, struct err *err)
{
	int r = sqlite3_backup_step(c->backup, pages);
	uint64_t all = (uint64_t)sqlite3_backup_pagecount(c->backup);

	*end = r == SQLITE_DONE;
	if (r != SQLITE_OK && r != SQLITE_DONE)
		return err_set(err, (r & 0xff) == SQLITE_FULL ? RC_BUSY : RC_IO, "the copy: %s",
			       sqlite3_errstr(r));
	if (!*end && ++c->n_steps * (uint64_t)pages > MAX_ROUNDS * (all + (uint64_t)pages))
		return err_set(err, RC_BUSY, "the store fails again and again while it is copied");
	return RC_OK;
}

void db_copy_detach(struct db_copy *c)
{
	sqlite3_backup_finish(c->backup);
	c->backup = NULL;
}

enum rc db_copy_finish(struct db_copy *c, struct store_file_info *info, struct err *err)
{
	db_copy_detach(c);
	/* The original's mark of a file with a log beside it came along. */
	enum rc rc = db_exec(&c->to, "PRAGMA journal_mode=DELETE", err);

	sqlite3_close(c->to.sql);
	c->to.sql = NULL;
	if (!rc)
		rc = db_fsync(c->path, err);
	if (!rc)
		rc = file_sync_parent(c->path, err);
	if (!rc)
		rc = db_check_file(c->path, info, err);
	if (!rc)
		c->is_made = false;
	return rc;
}

struct db_copy *db_copy_free(struct db_copy *c)
{
	if (!c)
		return NULL;
	db_copy_detach(c);
	sqlite3_close(c->to.sql);
	if (c->is_made)
		unlink(c->path);
	mem_free(c->path);
	return mem_free(c);
}

/* ---- checking ----------------------------------------------------------------------------------- */

static enum rc check_row(void *arg, const struct db_row *row, struct err *err)
{
	struct store_file_info *info = arg;

	if (row->rev <= info->rev)
		return err_set(err, RC_INVALID, "revision %lld is out of order",
			       (long long)row->rev);
	info->rev = row->rev;
	return RC_OK;
}

static int on_integrity(void *arg, int n, char **values, char **names)
{
	struct err *err = arg;

	(void)names;
	if (n != 1 || strcmp(values[0], "ok") != 0)
		err_set(err, RC_INVALID, "it is damaged: %.300s", n ? values[0] : "");
	return 0;
}

enum rc db_check(struct db *d, struct store_file_info *info, struct err *err)
{
	struct err found = {0};
	int64_t format = 0, application = 0, n = 0, mark = 0;

	*info = (struct store_file_info){0};
	enum rc rc = db_query_int(d, "PRAGMA user_version", &format, err);

	if (!rc)
		rc = db_query_int(d, "PRAGMA application_id", &application, err);
	if (rc)
		return rc;
	if (format > DB_FORMAT)
		return err_set(err, RC_UNSUPPORTED,
			       "it has format %lld and this Ferry knows %d: a newer one made it",
			       (long long)format, DB_FORMAT);
	if (format < 1 || (format > 1 && application != DB_APPLICATION))
		return err_set(err, RC_INVALID, "it is not a store of Ferry's");
	info->format = (int)format;
	if (sqlite3_exec(d->sql, "PRAGMA integrity_check(1)", on_integrity, &found, NULL))
		return db_fail(d, sqlite3_errcode(d->sql), "it cannot be checked", err);
	if (found.rc)
		return err_copy(err, &found);
	rc = db_load(d, check_row, info, err);
	if (!rc)
		rc = db_query_int(d, "SELECT value FROM meta WHERE name='compact_rev'", &mark, err);
	/* The newest row of a key is its state. */
	if (!rc)
		rc = db_query_int(d,
				  "SELECT count(*) FROM log WHERE deleted=0 AND rev IN"
				  " (SELECT max(rev) FROM log GROUP BY key)",
				  &n, err);
	info->rev = MAX(info->rev, mark);
	info->objects = (size_t)n;
	return rc;
}

enum rc db_check_file(const char *path, struct store_file_info *info, struct err *err)
{
	struct db d = {.lock = -1};
	struct stat st;

	if (stat(path, &st) != 0)
		return err_set(err, errno == ENOENT ? RC_NOT_FOUND : RC_IO, "'%s': %s", path,
			       strerror(errno));
	int r = sqlite3_open_v2(path, &d.sql, SQLITE_OPEN_READONLY, NULL);
	enum rc rc = r == SQLITE_OK ? RC_OK : db_fail(&d, r, "database", err);

	if (!rc)
		rc = db_exec(&d, "PRAGMA trusted_schema=OFF; PRAGMA cell_size_check=ON", err);
	if (!rc)
		rc = db_check(&d, info, err);
	if (!rc)
		info->bytes = (uint64_t)st.st_size;
	sqlite3_close(d.sql);
	if (rc && err)
		err_prepend(err, "'%s'", path);
	return rc;
}
