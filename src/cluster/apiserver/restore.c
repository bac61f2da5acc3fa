#include "cluster/apiserver/restore.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/mem.h"
#include "cluster/apiserver/store_db.h"

/* How far behind the newest known revision the restored store goes on.  Of a store that can be read the newest
 * revision is known.  Otherwise clients may have seen any number: at 10,000 writes in a second
 * the large step lasts for three years. */
#define STEP_KNOWN   1000000LL
#define STEP_UNKNOWN 1000000000000LL

struct restore {
	const char *store;
	int lock;		 /* "<store>.lock", as db_open() takes it */
	char *fresh, *fresh_wal; /* the restored store until it has its name */
	char *wal, *kept, *kept_wal;
};

static enum rc take_lock(struct restore *r, struct err *err)
{
	CLEANUP(mem_freep) char *name = mem_printf("%s.lock", r->store);

	if (!name)
		return err_set(err, RC_NOMEM, "out of memory");
	r->lock = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (r->lock < 0)
		return err_set(err, RC_IO, "cannot open '%s': %s", name, strerror(errno));
	if (flock(r->lock, LOCK_EX | LOCK_NB) != 0)
		return err_set(err, RC_CLOSED, "a server has '%s' open: stop ferry-apiserver first",
			       r->store);
	return RC_OK;
}

static enum rc make_names(struct restore *r, const char *store, usec_t now, struct err *err)
{
	time_t t = (time_t)(now / USEC_PER_SEC);
	struct tm tm;
	char stamp[32];

	gmtime_r(&t, &tm);
	strftime(stamp, sizeof(stamp), "%Y%m%dT%H%M%SZ", &tm);
	r->store = store;
	r->wal = mem_printf("%s-wal", store);
	r->fresh = mem_printf("%s.restored", store);
	r->fresh_wal = mem_printf("%s.restored-wal", store);
	r->kept = mem_printf("%s.before-restore-%s", store, stamp);
	r->kept_wal = r->kept ? mem_printf("%s-wal", r->kept) : NULL;
	return r->wal && r->fresh && r->fresh_wal && r->kept_wal
		       ? RC_OK
		       : err_set(err, RC_NOMEM, "out of memory");
}

static void remove_fresh(const struct restore *r)
{
	unlink(r->fresh);
	unlink(r->fresh_wal);
}

/* ---- the backup ----------------------------------------------------------------------------------- */

static enum rc copy_bytes(int in, int out, const char *from, struct err *err)
{
	CLEANUP(mem_freep) char *buf = mem_alloc(256 * KIB);
	ssize_t n = 1;
	enum rc rc = buf ? RC_OK : err_set(err, RC_NOMEM, "out of memory");

	while (!rc && n > 0) {
		n = read(in, buf, 256 * KIB);
		if (n < 0 && errno == EINTR)
			n = 1;
		else if (n < 0)
			rc = err_set(err, RC_IO, "cannot read '%s': %s", from, strerror(errno));
		else if (n > 0)
			rc = file_write_all(out, buf, (size_t)n, err);
	}
	return rc;
}

/* A missing file is RC_NOT_FOUND. */
static enum rc copy_file(const char *from, const char *to, struct err *err)
{
	CLEANUP(fd_closep) int in = open(from, O_RDONLY | O_CLOEXEC);
	struct stat st;

	if (in < 0)
		return err_set(err, errno == ENOENT ? RC_NOT_FOUND : RC_IO, "'%s': %s", from,
			       strerror(errno));
	if (fstat(in, &st) != 0 || !S_ISREG(st.st_mode))
		return err_set(err, RC_INVALID, "'%s' is not a file", from);
	enum rc rc = db_check_room(to, (uint64_t)st.st_size, err);

	if (rc)
		return rc;
	CLEANUP(fd_closep)
	int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (out < 0)
		return err_set(err, RC_IO, "cannot make '%s': %s", to, strerror(errno));
	return copy_bytes(in, out, from, err);
}

/* A copy of it beside the store, of today's format, whole. */
static enum rc bring_in(struct restore *r, const char *file, struct db **out,
			struct store_file_info *info, struct err *err)
{
	CLEANUP(mem_freep) char *file_wal = mem_printf("%s-wal", file);
	int64_t mark = 0;

	if (!file_wal)
		return err_set(err, RC_NOMEM, "out of memory");
	remove_fresh(r);
	enum rc rc = copy_file(file, r->fresh, err);

	if (!rc) {
		rc = copy_file(file_wal, r->fresh_wal, err);
		rc = rc == RC_NOT_FOUND ? RC_OK : rc;
	}
	if (!rc)
		rc = db_open(out, r->fresh, NULL, DB_LOCKED | DB_EXISTS | DB_NO_COPY, &mark, err);
	if (!rc)
		rc = db_check(*out, info, err);
	if (rc && rc != RC_NOMEM && err)
		err_prepend(err, "'%s' cannot be restored", file);
	return rc;
}

/* SQLite takes the log beside an empty file for rubbish and deletes it: such a file is not shown to it. */
static bool is_sqlite(const char *path)
{
	static const char magic[16] = "SQLite format 3";
	CLEANUP(fd_closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
	char head[sizeof(magic)];

	return fd >= 0 && read(fd, head, sizeof(head)) == (ssize_t)sizeof(head) &&
	       memcmp(head, magic, sizeof(magic)) == 0;
}

/* ---- the old store -------------------------------------------------------------------------------- */

/* Its newest revision, and its log written into its file; 0: there is none, or it cannot be read.
 * RC_CLOSED: a server that knows nothing of the lock has it open. */
static enum rc settle_old(struct restore *r, int64_t *rev, struct err *err)
{
	struct db *d = NULL;
	struct err why = {0};
	int64_t mark = 0, newest = 0;

	*rev = 0;
	if (!is_sqlite(r->store))
		return RC_OK;
	enum rc rc = db_open(&d, r->store, NULL, DB_LOCKED | DB_EXISTS | DB_AS_IS, &mark, &why);

	if (rc == RC_CLOSED || rc == RC_NOMEM)
		return err_copy(err, &why);
	if (!rc)
		rc = db_query_int(d, "SELECT max(rev) FROM log", &newest, &why);
	db_close(d);
	if (!rc)
		*rev = MAX(newest, mark);
	return RC_OK;
}

/* The old files get a second name; the first one goes to the restored store in one step. */
static enum rc swap(struct restore *r, struct store_restore_info *info, struct err *err)
{
	if (access(r->store, F_OK) == 0) {
		if (link(r->store, r->kept) != 0)
			return err_set(err, RC_IO, "cannot keep the old store as '%s': %s", r->kept,
				       strerror(errno));
		snprintf(info->kept, sizeof(info->kept), "%s", r->kept);
	}
	/* Only a store that could not be opened still has a log.  It must not be taken for the new one's. */
	if (access(r->wal, F_OK) == 0 && rename(r->wal, r->kept_wal) != 0)
		return err_set(err, RC_IO, "cannot keep '%s': %s", r->wal, strerror(errno));
	enum rc rc = file_sync_parent(r->store, err);

	if (rc)
		return rc;
	if (rename(r->fresh, r->store) != 0)
		return err_set(err, RC_IO, "cannot rename '%s': %s", r->fresh, strerror(errno));
	rc = file_sync_parent(r->store, err);
	if (rc && err)
		err_prepend(err, "it is restored, but may not survive a loss of power");
	return rc;
}

static enum rc raise_revision(struct db *d, int64_t rev, struct err *err)
{
	char sql[96];

	snprintf(sql, sizeof(sql), "UPDATE meta SET value=%lld WHERE name='compact_rev'",
		 (long long)rev);
	return db_exec(d, sql, err);
}

static enum rc run(struct restore *r, const char *file, struct store_restore_info *info,
		   struct err *err)
{
	struct store_file_info content = {0};
	struct db *d = NULL;
	enum rc rc = take_lock(r, err);

	if (!rc)
		rc = settle_old(r, &info->old_rev, err);
	if (!rc)
		rc = bring_in(r, file, &d, &content, err);
	info->backup_rev = content.rev;
	info->objects = content.objects;
	info->rev = MAX(content.rev, info->old_rev) + (info->old_rev ? STEP_KNOWN : STEP_UNKNOWN);
	if (!rc)
		rc = raise_revision(d, info->rev, err);
	if (!rc)
		rc = db_settle(d, err);
	db_close(d);
	if (!rc)
		rc = db_fsync(r->fresh, err);
	return rc ? rc : swap(r, info, err);
}

enum rc store_restore(const char *file, const char *store, usec_t now,
		      struct store_restore_info *info, struct err *err)
{
	struct restore r = {.lock = -1};
	enum rc rc = make_names(&r, store, now, err);

	*info = (struct store_restore_info){0};
	if (!rc)
		rc = run(&r, file, info, err);
	if (r.lock >= 0)
		remove_fresh(&r);
	fd_close(r.lock);
	mem_free(r.wal);
	mem_free(r.fresh);
	mem_free(r.fresh_wal);
	mem_free(r.kept);
	mem_free(r.kept_wal);
	return rc;
}
