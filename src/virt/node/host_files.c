#include "virt/node/host_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/try.h"
#include "json/json.h"
#include "virt/node/volumes.h"
#include "virt/node/volumes_int.h"

enum { RECORD_MAX = 64 * 1024, TEMP_MAX = 160 };

#define RECORDS "%s/.host-files/%s"

/* --- the way to the file --- */

/* A file below an allowed folder, and as much of its folder as is there. */
struct place {
	const char *folder, *file; /* borrowed; file: below the folder */
	const char *name;	   /* its last part */
	int dir; /* its own folder, or the deepest that is there; -1: not even the allowed one */
	size_t n_missing; /* folders */
};

static void place_fini(struct place *w)
{
	w->dir = fd_close(w->dir);
}

static enum rc open_allowed(const char *folder, int *out, struct err *err)
{
	CLEANUP(fd_closep) int dir = -1;
	struct stat st;

	TRY(vol_open_dir(folder, &dir, err));
	if (fstat(dir, &st) < 0)
		return err_set_sys(err, errno, "cannot stat '%s'", folder);
	if (st.st_uid != geteuid() || (st.st_mode & 022))
		return err_set(err, RC_FORBIDDEN,
			       "folder '%s' has to be root's own, and nobody else's to write",
			       folder);
	*out = STEAL_FD(dir);
	return RC_OK;
}

static enum rc step_into(struct place *w, struct str part, bool may_make, struct err *err)
{
	CLEANUP(mem_freep) char *name = mem_strndup(part.p, part.n);
	int next = -1;

	if (!name)
		return err_set(err, RC_NOMEM, "out of memory");
	enum rc rc = vol_open_or_make_dir(w->dir, name, may_make, &next, err);

	if (rc)
		return rc;
	fd_close(w->dir);
	w->dir = next;
	return RC_OK;
}

/* Missing folders are made, or counted. */
static enum rc walk(struct place *w, const char *folder, const char *file, bool may_make,
		    struct err *err)
{
	const char *slash = strrchr(file, '/');
	struct str rest = {file, slash ? (size_t)(slash - file) : 0};

	*w = (struct place){
		.folder = folder, .file = file, .name = slash ? slash + 1 : file, .dir = -1};
	enum rc rc = open_allowed(folder, &w->dir, err);

	while (!rc && rest.n) {
		struct str part = str_split(&rest, '/');
		struct err why = {0};

		rc = w->n_missing ? RC_NOT_FOUND : step_into(w, part, may_make, &why);
		if (rc == RC_NOT_FOUND && !may_make) {
			w->n_missing++;
			rc = RC_OK;
		} else if (rc && err) {
			*err = why;
		}
	}
	if (rc)
		place_fini(w);
	return rc;
}

static bool find(int dir, const char *name, struct stat *st)
{
	return fstatat(dir, name, st, AT_SYMLINK_NOFOLLOW) == 0;
}

static bool is_same(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static enum rc sync_dir(const struct place *w, struct err *err)
{
	return fsync(w->dir) < 0
		       ? err_set_sys(err, errno, "cannot sync the folder of '%s'", w->file)
		       : RC_OK;
}

/* --- records --- */

struct record {
	struct json *j; /* owns the texts */
	bool is_incoming, is_elsewhere;
	const char *folder, *file;
	int64_t n_made; /* folders that were missing */
	int64_t ino;	/* used */
};

static enum rc record_path(const char *local, const char *pod_uid, const char *volume, char **out,
			   struct err *err)
{
	if (!pod_uid || !str_is_dns_subdomain(pod_uid) || !str_is_dns_subdomain(volume) ||
	    strchr(volume, '.'))
		return err_set(err, RC_INVALID, "'%s' of pod '%s' is no volume's name", volume,
			       pod_uid ? pod_uid : "");
	*out = mem_printf(RECORDS "/%s", local, pod_uid, volume);
	return *out ? RC_OK : err_set(err, RC_NOMEM, "out of memory");
}

static enum rc record_write(const char *local, const char *pod_uid, const char *volume,
			    const struct record *r, struct err *err)
{
	CLEANUP(mem_freep) char *path = NULL;
	CLEANUP(mem_freep) char *dir = mem_printf(RECORDS, local, pod_uid);
	CLEANUP(js_unrefp)
	struct json *j = js_pack("{s:b, s:b, s:s, s:s, s:I, s:I}", "incoming", (int)r->is_incoming,
				 "elsewhere", (int)r->is_elsewhere, "folder", r->folder, "file",
				 r->file, "made", r->n_made, "ino", r->ino);
	CLEANUP(mem_freep) char *text = j ? js_to_text(j) : NULL;

	if (!dir || !text)
		return err_set(err, RC_NOMEM, "out of memory");
	TRY(record_path(local, pod_uid, volume, &path, err));
	TRY(file_mkdir_p(dir, 0700, err));
	return file_write_durable(path, text, strlen(text), 0600, err);
}

/* RC_NOT_FOUND: there is none. */
static enum rc record_read(const char *path, struct record *r, struct err *err)
{
	CLEANUP(mem_freep) char *text = NULL;
	size_t n = 0;

	*r = (struct record){0};
	TRY(file_read(path, RECORD_MAX, &text, &n, err));
	TRY(js_parse(text, n, &r->j, err));
	r->is_incoming = js_get_bool(r->j, "incoming", false);
	r->is_elsewhere = js_get_bool(r->j, "elsewhere", false);
	r->folder = js_get_str(r->j, "folder");
	r->file = js_get_str(r->j, "file");
	r->n_made = js_get_int(r->j, "made", 0);
	r->ino = js_get_int(r->j, "ino", 0);
	return r->folder && r->file ? RC_OK
				    : err_set(err, RC_INVALID, "'%s' is no record of a file", path);
}

static void record_fini(struct record *r)
{
	js_unref(r->j);
	*r = (struct record){0};
}

typedef enum rc (*record_fn)(const char *path, const char *pod_uid, const char *volume,
			     const struct record *r, void *arg, struct err *err);

struct records {
	const char *dir, *pod_uid;
	record_fn fn;
	void *arg;
};

/* A dot in its name: what a write has left that did not end. */
static enum rc one_record(const char *volume, void *arg, struct err *err)
{
	const struct records *s = arg;
	CLEANUP(mem_freep) char *path = mem_printf("%s/%s", s->dir, volume);
	CLEANUP(record_fini) struct record r = {0};

	if (!path)
		return err_set(err, RC_NOMEM, "out of memory");
	if (strchr(volume, '.'))
		return RC_OK;
	enum rc rc = record_read(path, &r, err);

	if (rc) /* gone meanwhile: its pod has ended */
		return rc == RC_NOT_FOUND ? RC_OK : rc;
	return s->fn(path, s->pod_uid, volume, &r, s->arg, err);
}

/* Of a pod, all of them. */
static enum rc each_record(const char *local, const char *pod_uid, record_fn fn, void *arg,
			   struct err *err)
{
	if (!str_is_dns_subdomain(pod_uid))
		return err_set(err, RC_INVALID, "'%s' is not a pod's uid", pod_uid);
	CLEANUP(mem_freep) char *dir = mem_printf(RECORDS, local, pod_uid);
	struct records s = {.dir = dir, .pod_uid = pod_uid, .fn = fn, .arg = arg};

	return dir ? file_each(dir, one_record, &s, err) : err_set(err, RC_NOMEM, "out of memory");
}

/* --- what comes --- */

static void temp_name(const char *pod_uid, const char *volume, char out[TEMP_MAX])
{
	(void)snprintf(out, TEMP_MAX, ".ferry-incoming.%s.%s", pod_uid, volume);
}

/* Those that were missing before the file came, from the deepest up; one that is not empty stays, with all above. */
static void drop_folders(const struct record *r)
{
	CLEANUP(mem_freep) char *path = mem_strdup(r->file);

	for (int64_t i = 0; path && i < r->n_made; i++) {
		char *slash = strrchr(path, '/');
		struct place w;

		if (!slash)
			return;
		*slash = '\0'; /* the folder itself is now the last part */
		if (walk(&w, r->folder, path, false, NULL))
			return;
		int failed = w.n_missing ? 1 : unlinkat(w.dir, w.name, AT_REMOVEDIR);

		place_fini(&w);
		if (failed)
			return;
	}
}

/* The name that only this pod gives proves what is its own.  It goes last, so that this may be cut off anywhere. */
static enum rc drop_incoming(const char *pod_uid, const char *volume, const struct record *r,
			     struct err *err)
{
	CLEANUP(place_fini) struct place w = {.dir = -1};
	struct stat own, named;
	char temp[TEMP_MAX];
	enum rc rc = walk(&w, r->folder, r->file, false, err);

	if (rc == RC_NOT_FOUND)
		return RC_OK; /* not even the allowed folder is there */
	TRY(rc);
	temp_name(pod_uid, volume, temp);
	if (w.n_missing || !find(w.dir, temp, &own))
		return RC_OK;
	if (find(w.dir, w.name, &named) && is_same(&own, &named) && unlinkat(w.dir, w.name, 0) < 0)
		return err_set_sys(err, errno, "cannot remove '%s/%s'", r->folder, r->file);
	if (unlinkat(w.dir, temp, 0) < 0)
		return err_set_sys(err, errno, "cannot remove '%s' beside '%s/%s'", temp, r->folder,
				   r->file);
	log_info("file '%s/%s': what came for a guest that did not is removed", r->folder, r->file);
	TRY(sync_dir(&w, err));
	drop_folders(r);
	return RC_OK;
}

/* The pod tries again: what its last try has left goes first. */
static enum rc drop_last_try(const struct volume *v, const struct vol_places *p, struct err *err)
{
	CLEANUP(mem_freep) char *path = NULL;
	CLEANUP(record_fini) struct record r = {0};

	TRY(record_path(p->local, p->pod_uid, v->name, &path, err));
	enum rc rc = record_read(path, &r, err);

	return rc == RC_NOT_FOUND ? RC_OK : rc ? rc : drop_incoming(p->pod_uid, v->name, &r, err);
}

static enum rc in_the_way(const struct volume *v, struct err *err)
{
	return err_set(
		err, RC_EXISTS,
		"there is a file '%s/%s' on this node already, and a disk that moves here is "
		"never written over one",
		v->folder, v->file);
}

static enum rc make_named(struct volume *v, const struct vol_places *p, const struct place *w,
			  struct err *err)
{
	CLEANUP(fd_closep) int fd = -1;
	char temp[TEMP_MAX];

	temp_name(p->pod_uid, v->name, temp);
	TRY(vol_check_room(w->dir, v->incoming_bytes, err));
	TRY(file_open_beneath(w->dir, temp, O_RDWR | O_CREAT | O_EXCL, 0600, &fd, err));
	if (ftruncate(fd, (off_t)v->incoming_bytes) < 0 || fsync(fd) < 0)
		return err_set_sys(err, errno, "cannot size the new disk");
	if (linkat(w->dir, temp, w->dir, w->name, 0) < 0)
		return errno == EEXIST
			       ? in_the_way(v, err)
			       : err_set_sys(err, errno, "cannot name '%s/%s'", v->folder, v->file);
	TRY(sync_dir(w, err));
	v->has_direct_io = vol_direct_io(w->dir, temp);
	v->top_format = IMAGE_RAW;
	v->virtual_bytes = v->incoming_bytes;
	v->top_fd = STEAL_FD(fd);
	return RC_OK;
}

static enum rc refuse_same(const char *path, const char *pod_uid, const char *volume,
			   const struct record *r, void *arg, struct err *err)
{
	const struct volume *v = arg;

	(void)path;
	(void)volume;
	return strcmp(r->folder, v->folder) == 0 && strcmp(r->file, v->file) == 0
		       ? err_set(err, RC_EXISTS,
				 "the file '%s/%s' that pod '%s' has used on this node is not cleaned up "
				 "yet",
				 v->folder, v->file, pod_uid)
		       : RC_OK;
}

struct newcomer {
	const struct volume *v;
	const struct vol_places *p;
};

static enum rc refuse_if_used(const char *pod_uid, void *arg, struct err *err)
{
	const struct newcomer *n = arg;

	return strcmp(pod_uid, n->p->pod_uid) == 0
		       ? RC_OK
		       : each_record(n->p->local, pod_uid, refuse_same, (void *)n->v, err);
}

/* A record of another pod could be carried out late, and take the new file for the old one: inodes are used again. */
static enum rc check_others(const struct volume *v, const struct vol_places *p, struct err *err)
{
	CLEANUP(mem_freep) char *dir = mem_printf(RECORDS, p->local, "");
	struct newcomer n = {.v = v, .p = p};

	return dir ? file_each(dir, refuse_if_used, &n, err)
		   : err_set(err, RC_NOMEM, "out of memory");
}

static enum rc open_incoming(struct volume *v, const struct vol_places *p, struct err *err)
{
	struct record r = {.is_incoming = true, .folder = v->folder, .file = v->file};
	CLEANUP(place_fini) struct place w = {.dir = -1};
	struct stat st;

	TRY(drop_last_try(v, p, err));
	TRY(check_others(v, p, err));
	TRY(walk(&w, v->folder, v->file, false, err));
	if (!w.n_missing && find(w.dir, w.name, &st))
		return in_the_way(v, err);
	r.n_made = (int64_t)w.n_missing;
	TRY(record_write(p->local, p->pod_uid, v->name, &r, err));
	place_fini(&w);
	enum rc rc = walk(&w, v->folder, v->file, true, err);

	if (!rc)
		rc = make_named(v, p, &w, err);
	if (rc)
		ignore_rc(drop_incoming(p->pod_uid, v->name, &r,
					NULL)); /* the pod's end does it too */
	return rc;
}

/* --- what is here --- */

static enum rc make(struct volume *v, int dir, const char *name, struct err *err)
{
	uint64_t bytes = v->capacity / MIB * MIB;

	if (v->must_exist)
		return err_set(
			err, RC_NOT_FOUND,
			"there is no file '%s/%s' on this node, where the VM has used it: it is not "
			"made anew while status.ferry.hostDisks of the VirtualMachine names it",
			v->folder, v->file);
	if (!v->may_make)
		return err_set(err, RC_NOT_FOUND, "there is no file '%s/%s' on this node",
			       v->folder, v->file);
	if (!bytes)
		return err_set(err, RC_INVALID,
			       "there is no file '%s/%s', and without a capacity it cannot be made",
			       v->folder, v->file);
	return vol_make_raw(v, dir, name, bytes, err);
}

static enum rc note_used(const struct volume *v, const struct vol_places *p, struct err *err)
{
	struct record r = {.folder = v->folder, .file = v->file};
	struct stat st;

	if (fstat(v->top_fd, &st) < 0)
		return err_set_sys(err, errno, "cannot stat '%s/%s'", v->folder, v->file);
	r.ino = (int64_t)st.st_ino;
	return record_write(p->local, p->pod_uid, v->name, &r, err);
}

enum rc host_file_open(struct volume *v, const struct vol_places *p, struct err *err)
{
	CLEANUP(place_fini) struct place w = {.dir = -1};

	if (v->incoming_bytes)
		return open_incoming(v, p, err);
	TRY(walk(&w, v->folder, v->file, v->may_make && !v->must_exist, err));
	if (w.n_missing) /* none was to be made, nor is the file */
		return make(v, w.dir, w.name, err);
	TRY(vol_open_raw(v, w.dir, w.name, make, err));
	return v->is_local ? note_used(v, p, err) : RC_OK;
}

/* --- what would be in the way --- */

struct look {
	const char *folder, *file, *local;
	char *owner;
};

static enum rc look_same(const char *path, const char *pod_uid, const char *volume,
			 const struct record *r, void *arg, struct err *err)
{
	const struct look *l = arg;

	(void)path;
	(void)volume;
	(void)err;
	if (strcmp(r->folder, l->folder) == 0 && strcmp(r->file, l->file) == 0)
		(void)snprintf(l->owner, HOST_FILE_OWNER, "%s", pod_uid);
	return RC_OK;
}

static enum rc look_pod(const char *pod_uid, void *arg, struct err *err)
{
	const struct look *l = arg;

	return each_record(l->local, pod_uid, look_same, arg, err);
}

enum rc host_file_look(const char *local, const char *folder, const char *file, uint64_t bytes,
		       char owner[HOST_FILE_OWNER], struct err *err)
{
	const struct volume v = {.folder = (char *)folder, .file = (char *)file};
	struct look l = {.folder = folder, .file = file, .local = local, .owner = owner};
	CLEANUP(mem_freep) char *records = mem_printf(RECORDS, local, "");
	CLEANUP(place_fini) struct place w = {.dir = -1};
	struct stat st;
	uint64_t left = 0;

	owner[0] = '\0';
	if (!records)
		return err_set(err, RC_NOMEM, "out of memory");
	TRY(file_each(records, look_pod, &l, err));
	TRY(walk(&w, folder, file, false, err));
	if (owner[0] || (!w.n_missing && find(w.dir, w.name, &st)))
		return in_the_way(&v, err);
	TRY(vol_room(w.dir, &left, err));
	return left >= bytes
		       ? RC_OK
		       : err_set(err, RC_TOO_BIG, "folder '%s' has no room for a disk of %llu B",
				 folder, (unsigned long long)bytes);
}

/* --- what it becomes --- */

static enum rc keep_one(const char *path, const char *pod_uid, const char *volume,
			const struct record *r, void *arg, struct err *err)
{
	CLEANUP(place_fini) struct place w = {.dir = -1};
	struct record used = {.folder = r->folder, .file = r->file};
	struct stat own, named;
	char temp[TEMP_MAX];

	(void)path;
	if (!r->is_incoming)
		return RC_OK;
	TRY(walk(&w, r->folder, r->file, false, err));
	temp_name(pod_uid, volume, temp);
	bool has_two = !w.n_missing && find(w.dir, temp, &own);

	if (w.n_missing || !find(w.dir, w.name, &named) || (has_two && !is_same(&own, &named)))
		return err_set(err, RC_CONFLICT,
			       "file '%s/%s' that came with the move has been replaced", r->folder,
			       r->file);
	if (has_two && unlinkat(w.dir, temp, 0) < 0)
		return err_set_sys(err, errno, "cannot keep '%s/%s'", r->folder, r->file);
	TRY(sync_dir(&w, err));
	used.ino = (int64_t)named.st_ino;
	return record_write(arg, pod_uid, volume, &used, err);
}

enum rc host_files_keep(const char *local, const char *pod_uid, struct err *err)
{
	return each_record(local, pod_uid, keep_one, (void *)local, err);
}

struct moved {
	const char *local;
	char *const *paths;
	size_t n;
};

static bool has_moved(const struct moved *m, const struct record *r)
{
	size_t n = strlen(r->folder);

	for (size_t i = 0; i < m->n; i++)
		if (strncmp(m->paths[i], r->folder, n) == 0 && m->paths[i][n] == '/' &&
		    strcmp(m->paths[i] + n + 1, r->file) == 0)
			return true;
	return false;
}

static enum rc note_moved(const char *path, const char *pod_uid, const char *volume,
			  const struct record *r, void *arg, struct err *err)
{
	const struct moved *m = arg;
	struct record moved = *r;

	(void)path;
	if (r->is_incoming || r->is_elsewhere || !has_moved(m, r))
		return RC_OK;
	moved.is_elsewhere = true;
	return record_write(m->local, pod_uid, volume, &moved, err);
}

enum rc host_files_note_moved(const char *local, const char *pod_uid, char *const *moved,
			      size_t n_moved, struct err *err)
{
	struct moved m = {.local = local, .paths = moved, .n = n_moved};

	return each_record(local, pod_uid, note_moved, &m, err);
}

/* A pod that has come since may run on it: somebody has given it back to the VM. */
static enum rc is_free(const char *local, const char *pod_uid, const struct record *r, bool *out,
		       struct err *err)
{
	const struct volume v = {.folder = (char *)r->folder, .file = (char *)r->file};
	const struct vol_places p = {.local = local, .pod_uid = pod_uid};
	enum rc rc = check_others(&v, &p, err);

	*out = rc == RC_OK;
	return rc == RC_EXISTS ? RC_OK : rc;
}

/* The VM runs on a copy of it elsewhere. */
static enum rc drop_used(const char *local, const char *pod_uid, const struct record *r,
			 struct err *err)
{
	CLEANUP(place_fini) struct place w = {.dir = -1};
	struct err why = {0};
	struct stat st;
	bool free_now;
	enum rc rc = is_free(local, pod_uid, r, &free_now, &why);

	if (rc || !free_now) {
		if (rc && err)
			*err = why;
		return rc;
	}
	rc = walk(&w, r->folder, r->file, false, err);

	if (rc == RC_NOT_FOUND)
		return RC_OK;
	TRY(rc);
	if (w.n_missing || !find(w.dir, w.name, &st))
		return RC_OK;
	if (!S_ISREG(st.st_mode) || st.st_nlink != 1 || (int64_t)st.st_ino != r->ino) {
		log_warn("file '%s/%s': another file than the guest used stays here", r->folder,
			 r->file);
		return RC_OK;
	}
	failpoint("agent.drops-file");
	if (unlinkat(w.dir, w.name, 0) < 0)
		return err_set_sys(err, errno, "cannot remove '%s/%s'", r->folder, r->file);
	log_info("file '%s/%s': its VM has moved away with it, the old copy is removed", r->folder,
		 r->file);
	return sync_dir(&w, err);
}

struct ended {
	const char *local, *folder;
};

static enum rc end_one(const char *path, const char *pod_uid, const char *volume,
		       const struct record *r, void *arg, struct err *err)
{
	const struct ended *e = arg;

	if (strcmp(r->folder, e->folder) != 0)
		return RC_OK;
	if (r->is_incoming)
		TRY(drop_incoming(pod_uid, volume, r, err));
	else if (r->is_elsewhere)
		TRY(drop_used(e->local, pod_uid, r, err));
	return unlink(path) < 0 && errno != ENOENT
		       ? err_set_sys(err, errno, "cannot remove '%s'", path)
		       : RC_OK;
}

enum rc host_files_end(const char *local, const char *pod_uid, const char *folder, struct err *err)
{
	struct ended e = {.local = local, .folder = folder};

	return each_record(local, pod_uid, end_one, &e, err);
}

static enum rc first_folder(const char *path, const char *pod_uid, const char *volume,
			    const struct record *r, void *arg, struct err *err)
{
	char **folder = arg;

	(void)path;
	(void)pod_uid;
	(void)volume;
	if (*folder)
		return RC_OK;
	*folder = mem_strdup(r->folder);
	return *folder ? RC_OK : err_set(err, RC_NOMEM, "out of memory");
}

enum rc host_files_next(const char *local, const char *pod_uid, char **folder, struct err *err)
{
	CLEANUP(mem_freep) char *dir = mem_printf(RECORDS, local, pod_uid);
	CLEANUP(mem_freep) char *found = NULL;

	TRY(each_record(local, pod_uid, first_folder, &found, err));
	if (!dir)
		return err_set(err, RC_NOMEM, "out of memory");
	if (!found)
		TRY(file_remove_tree(dir, err));
	*folder = STEAL(found);
	return RC_OK;
}
