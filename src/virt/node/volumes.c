#include "virt/node/volumes.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "base/try.h"
#include "virt/node/host_files.h"
#include "virt/node/iso.h"
#include "virt/node/volumes_int.h"

void volume_init(struct volume *v)
{
	*v = (struct volume){.top_fd = -1, .base_fd = -1};
}

void volume_fini(struct volume *v)
{
	v->top_fd = fd_close(v->top_fd);
	v->base_fd = fd_close(v->base_fd);
	v->name = mem_free(v->name);
	v->pv = mem_free(v->pv);
	v->base_path = mem_free(v->base_path);
	v->folder = mem_free(v->folder);
	v->file = mem_free(v->file);
	for (size_t i = 0; i < ARRAY_SIZE(v->seed_texts); i++)
		v->seed_texts[i] = mem_free(v->seed_texts[i]);
}

uint64_t volume_file_bytes(uint64_t capacity)
{
	/* Divide first: a capacity near the end of the range must not wrap. */
	uint64_t usable = capacity - capacity / 1000 * VOL_FS_OVERHEAD_PERMILLE -
			  capacity % 1000 * VOL_FS_OVERHEAD_PERMILLE / 1000;

	return usable / MIB * MIB;
}

/* A plain file with one name; anything else in a tenant's folder is refused. */
static enum rc check_plain(int fd, const char *name, struct stat *st, struct err *err)
{
	if (fstat(fd, st) < 0)
		return err_set_sys(err, errno, "cannot stat '%s'", name);
	if (!S_ISREG(st->st_mode))
		return err_set(err, RC_FORBIDDEN, "'%s' is not a plain file", name);
	if (st->st_nlink != 1)
		return err_set(err, RC_FORBIDDEN, "'%s' has more than one name (hard links)", name);
	return RC_OK;
}

/* Opens an existing image for QEMU: first without blocking on a fifo, then looked at, then used. */
static enum rc open_plain(int dir_fd, const char *name, bool read_only, int *out, uint64_t *bytes,
			  struct err *err)
{
	CLEANUP(fd_closep) int fd = -1;
	struct stat st;

	TRY(file_open_beneath(dir_fd, name, (read_only ? O_RDONLY : O_RDWR) | O_NONBLOCK, 0, &fd,
			      err));
	TRY(check_plain(fd, name, &st, err));
	if (fcntl(fd, F_SETFL, 0) < 0)
		return err_set_sys(err, errno, "cannot set up '%s'", name);
	*bytes = (uint64_t)st.st_size;
	*out = STEAL_FD(fd);
	return RC_OK;
}

bool vol_direct_io(int dir_fd, const char *name)
{
	CLEANUP(fd_closep) int fd = -1;

	return file_open_beneath(dir_fd, name, O_RDONLY | O_NONBLOCK | O_DIRECT, 0, &fd, NULL) ==
	       RC_OK;
}

/* How large the new file may be: all of it, or what is left when that is nearly enough. */
static enum rc fit(int dir_fd, struct volume *v, uint64_t wanted, uint64_t *out, struct err *err)
{
	struct statvfs vfs;

	if (fstatvfs(dir_fd, &vfs) < 0)
		return err_set_sys(err, errno, "cannot ask for the free space");
	uint64_t left = (uint64_t)vfs.f_bavail * vfs.f_frsize;

	*out = wanted;
	if (left >= wanted)
		return RC_OK;
	if (left < wanted / 100 * (100 - VOL_TOLERATE_PERCENT))
		return err_set(err, RC_TOO_BIG,
			       "unable to create the disk, not enough space, demanded size %llu B "
			       "is bigger "
			       "than available space %llu B, also after taking %d %% toleration "
			       "into account",
			       (unsigned long long)wanted, (unsigned long long)left,
			       VOL_TOLERATE_PERCENT);
	v->small_expected = wanted;
	v->small_found = left / MIB * MIB;
	*out = v->small_found;
	return *out ? RC_OK : err_set(err, RC_TOO_BIG, "there is no space left for the disk");
}

typedef enum rc (*fill_fn)(int fd, void *arg, struct err *err);

/* Makes dir_fd/name whole: temporary name, fill, sync, rename.  An existing one is left alone. */
static enum rc make_file(int dir_fd, const char *name, fill_fn fill, void *arg, struct err *err)
{
	CLEANUP(fd_closep) int fd = -1;
	char tmp[64];

	/* The number tells it from others whatever the name's length; the name is for people. */
	(void)snprintf(tmp, sizeof(tmp), ".%.32s.%016llx.tmp", name,
		       (unsigned long long)rand_u64());
	TRY(file_open_beneath(dir_fd, tmp, O_RDWR | O_CREAT | O_EXCL, 0600, &fd, err));
	enum rc rc = fill(fd, arg, err);

	if (!rc && fsync(fd) < 0)
		rc = err_set_sys(err, errno, "cannot sync the new disk");
	if (!rc && renameat2(dir_fd, tmp, dir_fd, name, RENAME_NOREPLACE) < 0 && errno != EEXIST)
		rc = err_set_sys(err, errno, "cannot rename the new disk");
	(void)unlinkat(dir_fd, tmp, 0); /* still there after a failure or a lost race */
	return rc;
}

static enum rc fill_raw(int fd, void *arg, struct err *err)
{
	if (ftruncate(fd, (off_t) * (uint64_t *)arg) < 0)
		return err_set_sys(err, errno, "cannot size the new disk");
	return RC_OK;
}

static enum rc fill_qcow2(int fd, void *arg, struct err *err)
{
	return qcow2_format(fd, *(uint64_t *)arg, err);
}

static enum rc fill_bytes(int fd, void *arg, struct err *err)
{
	struct sbuf *b = arg;

	return file_write_all(fd, b->p, b->n, err);
}

enum rc vol_open_dir(const char *path, int *out, struct err *err)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return err_set_sys(err, errno, "cannot open '%s'", path);
	*out = fd;
	return RC_OK;
}

#define INCOMING ".incoming" /* no volume's folder begins with a dot */

static char *incoming_path(const char *local, const char *pod_uid)
{
	return mem_printf("%s/" INCOMING "/%s", local, pod_uid);
}

static enum rc open_incoming(const struct vol_places *p, int *out, struct err *err)
{
	if (!p->pod_uid || !str_is_dns_subdomain(p->pod_uid))
		return err_set(err, RC_INVALID, "no pod brings this volume");
	CLEANUP(mem_freep) char *path = incoming_path(p->local, p->pod_uid);

	if (!path)
		return err_set(err, RC_NOMEM, "out of memory");
	TRY(file_mkdir_p(path, 0711, err));
	return vol_open_dir(path, out, err);
}

static enum rc open_root(const struct volume *v, const struct vol_places *p, int *out,
			 struct err *err)
{
	if (v->incoming_bytes)
		return open_incoming(p, out, err);
	if (!v->is_local && !p->shared)
		return err_set(err, RC_UNSUPPORTED, "this node has no storage of class 'shared'");
	return vol_open_dir(v->is_local ? p->local : p->shared, out, err);
}

enum rc vol_open_or_make_dir(int root, const char *name, bool may_make, int *out, struct err *err)
{
	enum rc rc = file_open_beneath(root, name, O_RDONLY | O_DIRECTORY, 0, out, err);

	if (rc != RC_NOT_FOUND || !may_make)
		return rc;
	if (mkdirat(root, name, 0755) < 0 && errno != EEXIST)
		return err_set_sys(err, errno, "cannot make the folder '%s'", name);
	return file_open_beneath(root, name, O_RDONLY | O_DIRECTORY, 0, out, err);
}

/* The volume's folder below its class' root, made if missing. */
static enum rc open_pv_dir(const struct volume *v, const struct vol_places *p, int *out,
			   struct err *err)
{
	CLEANUP(fd_closep) int root_fd = -1;
	const char *pv = v->pv;

	if (!str_is_dns_subdomain(pv))
		return err_set(err, RC_INVALID, "'%s' is not a volume's name", pv);
	TRY(open_root(v, p, &root_fd, err));
	return vol_open_or_make_dir(root_fd, pv, true, out, err);
}

enum rc vol_room(int dir, uint64_t *left, struct err *err)
{
	struct statvfs vfs;

	if (fstatvfs(dir, &vfs) < 0)
		return err_set_sys(err, errno, "cannot ask for the free space");
	*left = (uint64_t)vfs.f_bavail * vfs.f_frsize;
	return RC_OK;
}

enum rc vol_check_room(int dir, uint64_t bytes, struct err *err)
{
	uint64_t left = 0;

	TRY(vol_room(dir, &left, err));
	if (left < bytes)
		return err_set(err, RC_TOO_BIG,
			       "not enough space for a disk that moves here: it has %llu B, %llu B "
			       "are left",
			       (unsigned long long)bytes, (unsigned long long)left);
	return RC_OK;
}

enum rc volume_look(const char *local, uint64_t bytes, struct err *err)
{
	CLEANUP(fd_closep) int dir = -1;
	uint64_t left = 0;

	TRY(vol_open_dir(local, &dir, err));
	TRY(vol_room(dir, &left, err));
	return left >= bytes
		       ? RC_OK
		       : err_set(err, RC_TOO_BIG,
				 "its storage for local volumes has no room for a disk of %llu B",
				 (unsigned long long)bytes);
}

static enum rc make_incoming(struct volume *v, int dir, const char *name, struct err *err)
{
	TRY(vol_check_room(dir, v->incoming_bytes, err));
	return make_file(dir, name, fill_raw, &v->incoming_bytes, err);
}

enum rc vol_make_raw(struct volume *v, int dir, const char *name, uint64_t bytes, struct err *err)
{
	TRY(fit(dir, v, bytes, &bytes, err));
	return make_file(dir, name, fill_raw, &bytes, err);
}

static enum rc make_disk(struct volume *v, int dir, const char *name, struct err *err)
{
	uint64_t bytes = v->is_block ? v->capacity / MIB * MIB : volume_file_bytes(v->capacity);

	if (v->incoming_bytes)
		return make_incoming(v, dir, name, err);
	if (v->must_exist)
		return err_set(err, RC_NOT_FOUND,
			       "its data came with a move of the VM, and '%s/%s' is not there",
			       v->pv, name);
	if (!bytes)
		return err_set(err, RC_INVALID, "a volume of %llu bytes is too small for a disk",
			       (unsigned long long)v->capacity);
	return vol_make_raw(v, dir, name, bytes, err);
}

enum rc vol_open_raw(struct volume *v, int dir, const char *name,
		     enum rc (*make)(struct volume *v, int dir, const char *name, struct err *err),
		     struct err *err)
{
	if (faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		TRY(make(v, dir, name, err));
	TRY(open_plain(dir, name, v->read_only, &v->top_fd, &v->virtual_bytes, err));
	if (!v->virtual_bytes)
		return err_set(err, RC_INVALID, "'%s' is empty", name);
	v->top_format = IMAGE_RAW; /* never guessed: the guest writes its first bytes */
	v->has_direct_io = vol_direct_io(dir, name);
	return RC_OK;
}

static enum rc open_claim(struct volume *v, const struct vol_places *p, struct err *err)
{
	CLEANUP(fd_closep) int dir = -1;

	TRY(open_pv_dir(v, p, &dir, err));
	return vol_open_raw(v, dir, v->is_block ? "block.img" : "disk.img", make_disk, err);
}

static enum rc open_overlay(struct volume *v, int dir, struct err *err)
{
	CLEANUP(fd_closep) int base = open(v->base_path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	struct image_info info;
	char name[160];
	uint64_t bytes;

	if (base < 0)
		return err_set_sys(err, errno, "cannot open the image's disk");
	TRY(image_probe(base, &info, err));
	(void)snprintf(name, sizeof(name), "%s.qcow2", v->name);
	TRY(make_file(dir, name, fill_qcow2, &info.virtual_bytes, err));
	TRY(open_plain(dir, name, v->read_only, &v->top_fd, &bytes, err));
	v->base_fd = STEAL_FD(base);
	v->base_format = info.format;
	v->top_format = IMAGE_QCOW2;
	v->virtual_bytes = info.virtual_bytes;
	v->has_direct_io = vol_direct_io(dir, name);
	return RC_OK;
}

static enum rc open_empty(struct volume *v, int dir, struct err *err)
{
	uint64_t bytes = v->capacity / MIB * MIB, file_bytes;
	char name[160];

	if (!bytes)
		return err_set(err, RC_INVALID, "an empty disk needs at least 1Mi");
	(void)snprintf(name, sizeof(name), "%s.qcow2", v->name);
	TRY(make_file(dir, name, fill_qcow2, &bytes, err));
	TRY(open_plain(dir, name, v->read_only, &v->top_fd, &file_bytes, err));
	v->top_format = IMAGE_QCOW2;
	v->virtual_bytes = bytes;
	v->has_direct_io = vol_direct_io(dir, name);
	return RC_OK;
}

static enum rc open_seed(struct volume *v, int dir, struct err *err)
{
	CLEANUP(sbuf_fini) struct sbuf iso = SBUF_INIT((size_t)4 * ISO_BYTES_MAX);
	char name[160];

	(void)snprintf(name, sizeof(name), "%s.iso", v->name);
	if (v->seed_bytes && !v->read_only) {
		TRY(make_file(dir, name, fill_raw, &v->seed_bytes, err));
	} else {
		TRY(seed_build(&v->seed, &iso, err));
		if (v->seed_bytes && v->seed_bytes != iso.n)
			return err_set(err, RC_CONFLICT,
				       "its cloud-init data has changed since the VM started");
		TRY(make_file(dir, name, fill_bytes, &iso, err));
	}
	TRY(open_plain(dir, name, v->read_only, &v->top_fd, &v->virtual_bytes, err));
	v->top_format = IMAGE_RAW;
	v->has_direct_io = vol_direct_io(dir, name);
	return RC_OK;
}

static enum rc open_own(struct volume *v, const struct vol_places *p, struct err *err)
{
	CLEANUP(fd_closep) int dir = -1;

	if (strlen(v->name) > 100 || strchr(v->name, '/'))
		return err_set(err, RC_INVALID, "the volume's name is too long");
	TRY(file_mkdir_p(p->disks, 0700, err));
	TRY(vol_open_dir(p->disks, &dir, err));
	switch (v->kind) {
	case VOL_CONTAINER_DISK:
		return open_overlay(v, dir, err);
	case VOL_EMPTY_DISK:
		return open_empty(v, dir, err);
	default:
		return open_seed(v, dir, err);
	}
}

enum rc volume_open(struct volume *v, const struct vol_places *p, struct err *err)
{
	enum rc rc = v->kind == VOL_CLAIM	? open_claim(v, p, err)
		     : v->kind == VOL_HOST_DISK ? host_file_open(v, p, err)
						: open_own(v, p, err);

	if (!rc)
		return RC_OK;
	v->top_fd = fd_close(v->top_fd);
	v->base_fd = fd_close(v->base_fd);
	if (err)
		return err_prepend(err, "volume '%s'", v->name);
	return rc;
}

enum rc volume_delete_data(const struct vol_places *p, const char *pv, bool is_local,
			   struct err *err)
{
	const char *root = is_local ? p->local : p->shared;

	if (!root)
		return RC_OK;
	if (!str_is_dns_subdomain(pv))
		return err_set(err, RC_INVALID, "'%s' is not a volume's name", pv);
	CLEANUP(mem_freep) char *path = mem_printf("%s/%s", root, pv);

	return path ? file_remove_tree(path, err) : err_set(err, RC_NOMEM, "out of memory");
}

static enum rc keep_one(int from, int to, const char *name, struct err *err)
{
	if (!renameat2(from, name, to, name, RENAME_NOREPLACE))
		return RC_OK;
	if (errno == EEXIST)
		return err_set(err, RC_CONFLICT,
			       "a folder '%s' is there already: the volume that came with the move "
			       "cannot be kept",
			       name);
	return err_set_sys(err, errno, "cannot keep the volume '%s'", name);
}

enum rc volume_keep_incoming(const char *local, const char *pod_uid, struct err *err)
{
	CLEANUP(mem_freep) char *path = incoming_path(local, pod_uid);
	CLEANUP(fd_closep) int to = -1;
	enum rc rc = RC_OK;

	if (!path)
		return err_set(err, RC_NOMEM, "out of memory");
	DIR *d = opendir(path);

	if (!d)
		return errno == ENOENT ? RC_OK : err_set_sys(err, errno, "cannot open '%s'", path);
	rc = vol_open_dir(local, &to, err);
	for (struct dirent *e; !rc && (e = readdir(d));)
		if (*e->d_name != '.')
			rc = keep_one(dirfd(d), to, e->d_name, err);
	if (!rc && (fsync(to) < 0 || fsync(dirfd(d)) < 0))
		rc = err_set_sys(err, errno, "cannot sync '%s'", local);
	(void)closedir(d);
	if (!rc)
		(void)rmdir(path); /* the pod's end would do it as well */
	return rc;
}

enum rc volume_drop_incoming(const char *local, const char *pod_uid, struct err *err)
{
	if (!str_is_dns_subdomain(pod_uid))
		return err_set(err, RC_INVALID, "'%s' is not a pod's uid", pod_uid);
	CLEANUP(mem_freep) char *path = incoming_path(local, pod_uid);

	return path ? file_remove_tree(path, err) : err_set(err, RC_NOMEM, "out of memory");
}
