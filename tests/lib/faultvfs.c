#include "faultvfs.h"

#include <assert.h>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SECTOR = 512, MAX_FILES = 64 };

struct entry {
	enum faultvfs_op op;
	bool failed;
	bool durable; /* a deletion: the folder is synced; a creation: it will be with the first sync */
	int inode; /* which life of the file */
	int64_t offset;
	size_t n;
	uint8_t *data;
};

struct mark {
	size_t length;
	int64_t what;
};

struct faultvfs {
	sqlite3_vfs vfs;
	sqlite3_vfs *real;
	pthread_mutex_t lock;
	struct entry *log;
	size_t n, cap;
	struct mark *marks;
	size_t n_marks, cap_marks;
	/* Each creation of a name is a new inode. */
	char names[MAX_FILES][64];
	int n_inodes;
	size_t fail_in;
	int fail_code;
	bool fail_sticky, has_failed;
	enum faultvfs_op fail_only;
};

struct file {
	sqlite3_file base;
	struct faultvfs *v;
	int inode;
	sqlite3_file *real; /* behind this struct */
};

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static void *grow(void *p, size_t *cap, size_t n, size_t size)
{
	if (n < *cap)
		return p;
	*cap = *cap ? *cap * 2 : 256;
	p = realloc(p, *cap * size);
	assert(p);
	return p;
}

/* The newest life of a name, or -1. */
static int find_inode(const struct faultvfs *v, const char *name)
{
	for (int i = v->n_inodes - 1; i >= 0; i--)
		if (strcmp(v->names[i], name) == 0)
			return i;
	return -1;
}

static int new_inode(struct faultvfs *v, const char *name)
{
	assert(v->n_inodes < MAX_FILES);
	(void)snprintf(v->names[v->n_inodes], sizeof(v->names[0]), "%s", name);
	return v->n_inodes++;
}

/* Is it this operation's turn to fail?  With the lock held. */
static bool is_due(struct faultvfs *v, enum faultvfs_op op)
{
	if (!v->fail_in || (v->fail_only != FAULT_OP__MAX && v->fail_only != op))
		return false;
	if (v->fail_in > 1) {
		v->fail_in--;
		return false;
	}
	if (!v->fail_sticky)
		v->fail_in = 0;
	v->has_failed = true;
	return true;
}

static void add(struct faultvfs *v, struct entry e, const void *data)
{
	if (data) {
		e.data = malloc(e.n + 1);
		assert(e.data);
		memcpy(e.data, data, e.n);
	}
	v->log = grow(v->log, &v->cap, v->n, sizeof(*v->log));
	v->log[v->n++] = e;
}

/* ---- one file --------------------------------------------------------------------------------- */

static int f_close(sqlite3_file *f)
{
	struct file *x = (struct file *)f;

	return x->real->pMethods ? x->real->pMethods->xClose(x->real) : SQLITE_OK;
}

static int f_read(sqlite3_file *f, void *buf, int n, sqlite3_int64 off)
{
	struct file *x = (struct file *)f;

	return x->real->pMethods->xRead(x->real, buf, n, off);
}

static int f_write(sqlite3_file *f, const void *buf, int n, sqlite3_int64 off)
{
	struct file *x = (struct file *)f;
	struct faultvfs *v = x->v;
	struct entry e = {.op = FAULT_WRITE, .inode = x->inode, .offset = off, .n = (size_t)n};

	pthread_mutex_lock(&v->lock);
	bool fails = is_due(v, FAULT_WRITE);
	int code = v->fail_code;

	if (fails)
		e.n = (size_t)(n /= 2);
	int r = n ? x->real->pMethods->xWrite(x->real, buf, n, off) : SQLITE_OK;

	if (r == SQLITE_OK)
		add(v, e, buf);
	pthread_mutex_unlock(&v->lock);
	return fails ? code : r;
}

static int f_truncate(sqlite3_file *f, sqlite3_int64 size)
{
	struct file *x = (struct file *)f;
	struct faultvfs *v = x->v;
	struct entry e = {.op = FAULT_TRUNCATE, .inode = x->inode, .offset = size};

	pthread_mutex_lock(&v->lock);
	bool fails = is_due(v, FAULT_TRUNCATE);
	int r = fails ? v->fail_code : x->real->pMethods->xTruncate(x->real, size);

	if (r == SQLITE_OK)
		add(v, e, NULL);
	pthread_mutex_unlock(&v->lock);
	return r;
}

static int f_sync(sqlite3_file *f, int flags)
{
	struct file *x = (struct file *)f;
	struct faultvfs *v = x->v;
	struct entry e = {.op = FAULT_SYNC, .inode = x->inode};

	(void)flags; /* the log says what would be on disk; really syncing it would only cost time */
	pthread_mutex_lock(&v->lock);
	e.failed = is_due(v, FAULT_SYNC);
	add(v, e, NULL);
	int r = e.failed ? v->fail_code : SQLITE_OK;

	pthread_mutex_unlock(&v->lock);
	return r;
}

static int f_size(sqlite3_file *f, sqlite3_int64 *size)
{
	struct file *x = (struct file *)f;

	return x->real->pMethods->xFileSize(x->real, size);
}

static int f_lock(sqlite3_file *f, int level)
{
	struct file *x = (struct file *)f;

	return x->real->pMethods->xLock(x->real, level);
}

static int f_unlock(sqlite3_file *f, int level)
{
	struct file *x = (struct file *)f;

	return x->real->pMethods->xUnlock(x->real, level);
}

static int f_reserved(sqlite3_file *f, int *out)
{
	struct file *x = (struct file *)f;

	return x->real->pMethods->xCheckReservedLock(x->real, out);
}

static int f_control(sqlite3_file *f, int op, void *arg)
{
	struct file *x = (struct file *)f;

	return x->real->pMethods->xFileControl(x->real, op, arg);
}

static int f_sector(sqlite3_file *f)
{
	(void)f;
	return SECTOR;
}

static int f_device(sqlite3_file *f)
{
	struct file *x = (struct file *)f;

	return x->real->pMethods->xDeviceCharacteristics(x->real);
}

/* Version 1: no shared memory, no mapping.  The store needs neither. */
static const sqlite3_io_methods methods = {
	.iVersion = 1,
	.xClose = f_close,
	.xRead = f_read,
	.xWrite = f_write,
	.xTruncate = f_truncate,
	.xSync = f_sync,
	.xFileSize = f_size,
	.xLock = f_lock,
	.xUnlock = f_unlock,
	.xCheckReservedLock = f_reserved,
	.xFileControl = f_control,
	.xSectorSize = f_sector,
	.xDeviceCharacteristics = f_device,
};

/* ---- the VFS ---------------------------------------------------------------------------------- */

static int v_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *f, int flags, int *out)
{
	struct faultvfs *v = vfs->pAppData;
	struct file *x = (struct file *)f;
	int exists = 0;

	x->base.pMethods = NULL;
	x->v = v;
	x->real = (sqlite3_file *)(x + 1);
	x->real->pMethods = NULL;
	assert(name); /* temporary files are kept in memory */
	v->real->xAccess(v->real, name, SQLITE_ACCESS_EXISTS, &exists);
	pthread_mutex_lock(&v->lock);
	bool creates = !exists && flags & SQLITE_OPEN_CREATE;
	int r = creates && is_due(v, FAULT_CREATE)
			? SQLITE_CANTOPEN
			: v->real->xOpen(v->real, name, x->real, flags, out);

	if (r == SQLITE_OK) {
		x->base.pMethods = &methods;
		x->inode = creates ? -1 : find_inode(v, base_name(name));
		if (x->inode < 0) {
			x->inode = new_inode(v, base_name(name));
			/* SQLite's unix VFS syncs the folder with a new log's first sync. */
			add(v,
			    (struct entry){.op = FAULT_CREATE,
					   .inode = x->inode,
					   .durable = flags &
						      (SQLITE_OPEN_WAL | SQLITE_OPEN_MAIN_JOURNAL)},
			    NULL);
		}
	}
	pthread_mutex_unlock(&v->lock);
	return r;
}

static int v_delete(sqlite3_vfs *vfs, const char *name, int sync_dir)
{
	struct faultvfs *v = vfs->pAppData;

	pthread_mutex_lock(&v->lock);
	int r = is_due(v, FAULT_DELETE) ? v->fail_code : v->real->xDelete(v->real, name, 0);

	if (r == SQLITE_OK)
		add(v,
		    (struct entry){.op = FAULT_DELETE,
				   .inode = find_inode(v, base_name(name)),
				   .durable = sync_dir},
		    NULL);
	pthread_mutex_unlock(&v->lock);
	return r;
}

static int v_access(sqlite3_vfs *vfs, const char *name, int flags, int *out)
{
	struct faultvfs *v = vfs->pAppData;

	return v->real->xAccess(v->real, name, flags, out);
}

static int v_full_path(sqlite3_vfs *vfs, const char *name, int n, char *out)
{
	struct faultvfs *v = vfs->pAppData;

	return v->real->xFullPathname(v->real, name, n, out);
}

static int v_random(sqlite3_vfs *vfs, int n, char *out)
{
	struct faultvfs *v = vfs->pAppData;

	return v->real->xRandomness(v->real, n, out);
}

static int v_sleep(sqlite3_vfs *vfs, int usec)
{
	struct faultvfs *v = vfs->pAppData;

	return v->real->xSleep(v->real, usec);
}

static int v_time(sqlite3_vfs *vfs, double *out)
{
	struct faultvfs *v = vfs->pAppData;

	return v->real->xCurrentTime(v->real, out);
}

static int v_last_error(sqlite3_vfs *vfs, int n, char *out)
{
	struct faultvfs *v = vfs->pAppData;

	return v->real->xGetLastError(v->real, n, out);
}

struct faultvfs *faultvfs_new(const char *name)
{
	struct faultvfs *v = calloc(1, sizeof(*v));

	assert(v);
	pthread_mutex_init(&v->lock, NULL);
	v->real = sqlite3_vfs_find(NULL);
	v->vfs = (sqlite3_vfs){
		.iVersion = 1,
		.szOsFile = (int)sizeof(struct file) + v->real->szOsFile,
		.mxPathname = v->real->mxPathname,
		.zName = name,
		.pAppData = v,
		.xOpen = v_open,
		.xDelete = v_delete,
		.xAccess = v_access,
		.xFullPathname = v_full_path,
		.xRandomness = v_random,
		.xSleep = v_sleep,
		.xCurrentTime = v_time,
		.xGetLastError = v_last_error,
	};
	sqlite3_vfs_register(&v->vfs, 0);
	return v;
}

static void adopt(struct faultvfs *v, const char *path, const char *name)
{
	struct entry e = {.op = FAULT_CREATE};
	FILE *f = fopen(path, "rbe");
	size_t cap = 1 << 20;
	uint8_t *buf = malloc(cap);

	assert(f && buf);
	for (size_t n; (n = fread(buf + e.n, 1, cap - e.n, f)) > 0; e.n += n)
		if (e.n + n == cap)
			buf = grow(buf, &cap, cap, 1);
	(void)fclose(f);
	e.inode = new_inode(v, name);
	add(v, e, buf);
	free(buf);
}

void faultvfs_adopt(struct faultvfs *v, const char *dir)
{
	DIR *d = opendir(dir);
	char path[512];

	assert(d && !v->n);
	for (struct dirent *e; (e = readdir(d));) {
		(void)snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		if (e->d_type == DT_REG)
			adopt(v, path, e->d_name);
	}
	(void)closedir(d);
}

struct faultvfs *faultvfs_free(struct faultvfs *v)
{
	if (!v)
		return NULL;
	sqlite3_vfs_unregister(&v->vfs);
	for (size_t i = 0; i < v->n; i++)
		free(v->log[i].data);
	free(v->log);
	free(v->marks);
	pthread_mutex_destroy(&v->lock);
	free(v);
	return NULL;
}

size_t faultvfs_length(struct faultvfs *v)
{
	pthread_mutex_lock(&v->lock);
	size_t n = v->n;

	pthread_mutex_unlock(&v->lock);
	return n;
}

enum faultvfs_op faultvfs_op_at(struct faultvfs *v, size_t i)
{
	return v->log[i].op;
}

void faultvfs_mark(struct faultvfs *v, int64_t what)
{
	v->marks = grow(v->marks, &v->cap_marks, v->n_marks, sizeof(*v->marks));
	v->marks[v->n_marks++] = (struct mark){faultvfs_length(v), what};
}

int64_t faultvfs_mark_at(struct faultvfs *v, size_t length)
{
	int64_t what = 0;

	for (size_t i = 0; i < v->n_marks && v->marks[i].length <= length; i++)
		what = v->marks[i].what;
	return what;
}

void faultvfs_fail(struct faultvfs *v, size_t n, int code, bool sticky, enum faultvfs_op only)
{
	pthread_mutex_lock(&v->lock);
	v->fail_in = n;
	v->fail_code = code;
	v->fail_sticky = sticky;
	v->fail_only = only;
	v->has_failed = false;
	pthread_mutex_unlock(&v->lock);
}

bool faultvfs_has_failed(struct faultvfs *v)
{
	pthread_mutex_lock(&v->lock);
	bool has = v->has_failed;

	pthread_mutex_unlock(&v->lock);
	return has;
}

/* ---- loss of power ----------------------------------------------------------------------------- */

struct bytes {
	uint8_t *p;
	size_t n, cap;
};

/* One life of a file on the way through the log. */
struct inode {
	struct bytes disk; /* what is certainly there */
	size_t *pending;   /* entries that are not */
	size_t n, cap;
	size_t n_orphans; /* of these, the first ones: a failed sync was asked for them */
	bool syncs_dir;	  /* its next sync makes all names durable */
};

struct world {
	struct faultvfs *v;
	struct inode *inodes;
	int *now,
		*disk; /* by inode of first appearance of a name: its life now, and on disk; -1: none */
};

static void put(struct bytes *b, size_t offset, const uint8_t *p, size_t n)
{
	if (offset + n > b->cap) {
		b->cap = (offset + n) * 2;
		b->p = realloc(b->p, b->cap);
		assert(b->p);
	}
	if (offset > b->n)
		memset(b->p + b->n, 0, offset - b->n);
	memcpy(b->p + offset, p, n);
	b->n = offset + n > b->n ? offset + n : b->n;
}

static void cut(struct bytes *b, size_t size)
{
	static const uint8_t zero;

	if (size <= b->n)
		b->n = size;
	else
		put(b, size - 1, &zero, 1);
}

static uint64_t rnd(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

/* torn: each sector of a write is there or not. */
static void apply(struct bytes *b, const struct entry *e, bool torn, uint64_t *seed)
{
	if (e->op == FAULT_TRUNCATE) {
		cut(b, (size_t)e->offset);
		return;
	}
	for (size_t at = 0; at < e->n;) {
		size_t offset = (size_t)e->offset + at;
		size_t piece = SECTOR - offset % SECTOR;

		if (!torn)
			piece = e->n;
		if (piece > e->n - at)
			piece = e->n - at;
		if (!torn || rnd(seed) & 1)
			put(b, offset, e->data + at, piece);
		at += piece;
	}
}

static int slot(const struct faultvfs *v, int inode)
{
	for (int i = 0; i < inode; i++)
		if (strcmp(v->names[i], v->names[inode]) == 0)
			return i;
	return inode;
}

static void sync_inode(struct world *w, const struct entry *e)
{
	struct inode *x = &w->inodes[e->inode];
	uint64_t unused = 1;

	if (e->failed) {
		x->n_orphans = x->n;
		return;
	}
	for (size_t i = x->n_orphans; i < x->n; i++)
		apply(&x->disk, &w->v->log[x->pending[i]], false, &unused);
	x->n = x->n_orphans = 0;
	/* A file that has lost its name is synced without it. */
	if (w->now[slot(w->v, e->inode)] == e->inode)
		w->disk[slot(w->v, e->inode)] = e->inode;
	if (x->syncs_dir)
		memcpy(w->disk, w->now, MAX_FILES * sizeof(int));
	x->syncs_dir = false;
}

static void step(struct world *w, size_t i)
{
	const struct entry *e = &w->v->log[i];
	struct inode *x = e->inode >= 0 ? &w->inodes[e->inode] : NULL;

	if (!x)
		return;
	switch (e->op) {
	case FAULT_CREATE:
		w->now[slot(w->v, e->inode)] = e->inode;
		x->syncs_dir = e->durable;
		if (e->data) { /* adopted */
			put(&x->disk, 0, e->data, e->n);
			w->disk[slot(w->v, e->inode)] = e->inode;
		}
		break;
	case FAULT_DELETE:
		w->now[slot(w->v, e->inode)] = -1;
		if (e->durable)
			memcpy(w->disk, w->now, MAX_FILES * sizeof(int));
		break;
	case FAULT_SYNC:
		sync_inode(w, e);
		break;
	default:
		x->pending = grow(x->pending, &x->cap, x->n, sizeof(*x->pending));
		x->pending[x->n++] = i;
		break;
	}
}

static void world_init(struct world *w, struct faultvfs *v, size_t length)
{
	w->v = v;
	w->inodes = calloc(MAX_FILES, sizeof(*w->inodes));
	w->now = malloc(MAX_FILES * sizeof(int));
	w->disk = malloc(MAX_FILES * sizeof(int));
	assert(w->inodes && w->now && w->disk);
	for (int i = 0; i < MAX_FILES; i++)
		w->now[i] = w->disk[i] = -1;
	assert(length <= v->n);
	for (size_t i = 0; i < length; i++)
		step(w, i);
}

static void world_fini(struct world *w)
{
	for (int i = 0; i < MAX_FILES; i++) {
		free(w->inodes[i].disk.p);
		free(w->inodes[i].pending);
	}
	free(w->inodes);
	free(w->now);
	free(w->disk);
}

static void write_file(const char *dir, const char *name, const struct bytes *b)
{
	char path[512];

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	assert(fd >= 0);
	for (size_t at = 0; at < b->n;) {
		ssize_t n = write(fd, b->p + at, b->n - at);

		assert(n > 0);
		at += (size_t)n;
	}
	close(fd);
}

void faultvfs_replay(struct faultvfs *v, size_t length, enum faultvfs_loss loss, uint64_t seed,
		     const char *dir)
{
	struct world w;
	uint64_t s = seed * 0x9e3779b97f4a7c15u + 1;

	world_init(&w, v, length);
	for (int i = 0; i < v->n_inodes; i++) {
		bool keeps = loss == LOSS_NOTHING || (loss != LOSS_UNSYNCED && rnd(&s) & 1);
		int life = keeps ? w.now[i] : w.disk[i];

		if (slot(v, i) != i || life < 0)
			continue;
		struct inode *x = &w.inodes[life];

		for (size_t k = 0; k < x->n && loss != LOSS_UNSYNCED; k++)
			if (loss != LOSS_SOME || rnd(&s) & 1)
				apply(&x->disk, &v->log[x->pending[k]], loss == LOSS_TORN, &s);
		write_file(dir, v->names[i], &x->disk);
	}
	world_fini(&w);
}

bool faultvfs_is_settled(struct faultvfs *v, size_t length)
{
	struct world w;
	bool is = true;

	world_init(&w, v, length);
	for (int i = 0; i < v->n_inodes; i++)
		if (slot(v, i) == i)
			is = is && w.now[i] == w.disk[i] && (w.now[i] < 0 || !w.inodes[w.now[i]].n);
	world_fini(&w);
	return is;
}
