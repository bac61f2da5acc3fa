#include "virt/node/imgunpack.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <archive.h>
#include <archive_entry.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "json/json.h"
#include "virt/node/jail.h"

enum { PATH_LIMIT = 4096 };

struct unpack {
	const char *const *wanted;
	int dir_fd;
	const struct unpack_limits *lim;
	struct map *found;
	size_t entries;
	uint64_t bytes;
	unsigned next_file;
};

DEFINE_CLEANUP(struct archive *, archive_read_free);

/* "./a//b/" -> "a/b".  False: empty, too long, or with a ".." in it. */
static bool normal_path(const char *in, char out[PATH_LIMIT])
{
	size_t n = 0;

	while (in && *in) {
		size_t len = strcspn(in, "/");

		if (len == 2 && in[0] == '.' && in[1] == '.')
			return false;
		if (len && !(len == 1 && *in == '.')) {
			if (n + len + 2 > PATH_LIMIT)
				return false;
			if (n)
				out[n++] = '/';
			memcpy(out + n, in, len);
			n += len;
		}
		in += len + (in[len] == '/');
	}
	out[n] = '\0';
	return n > 0;
}

static bool is_wanted(const struct unpack *u, const char *path)
{
	for (const char *const *w = u->wanted; *w; w++) {
		size_t n = strlen(*w);

		if (n && (*w)[n - 1] == '/') {
			if (strncmp(path, *w, n) == 0 && path[n] && !strchr(path + n, '/'))
				return true;
		} else if (strcmp(path, *w) == 0) {
			return true;
		}
	}
	return false;
}

static void forget(struct unpack *u, const char *path)
{
	struct unpack_file *f = map_get(u->found, path);

	if (!f)
		return;
	(void)unlinkat(u->dir_fd, f->local, 0);
	u->bytes -= MIN(u->bytes, f->bytes);
	map_del(u->found, path);
}

/* Forgets path and everything below it; below only when self is false. */
static void forget_tree(struct unpack *u, const char *path, bool self)
{
	size_t n = strlen(path);

	for (size_t i = u->found->n; i-- > 0;) {
		if (i >= u->found->n)
			continue;
		char key[PATH_LIMIT];

		(void)snprintf(key, sizeof(key), "%s", u->found->items[i].key);
		bool below = n == 0 || (strncmp(key, path, n) == 0 && key[n] == '/');

		if (below || (self && strcmp(key, path) == 0))
			forget(u, key);
	}
}

/* Handles ".wh.<name>" and ".wh..wh..opq" (OCI image layer specification). True: it was one. */
static bool whiteout(struct unpack *u, const char *path)
{
	char target[PATH_LIMIT];
	const char *slash = strrchr(path, '/');
	const char *base = slash ? slash + 1 : path;
	size_t dir = slash ? (size_t)(slash - path) : 0;

	if (!str_has_prefix(base, ".wh."))
		return false;
	memcpy(target, path, dir);
	target[dir] = '\0';
	if (strcmp(base, ".wh..wh..opq") == 0) {
		forget_tree(u, target, false);
		return true;
	}
	(void)snprintf(target + dir, sizeof(target) - dir, "%s%s", dir ? "/" : "", base + 4);
	forget_tree(u, target, true);
	return true;
}

static enum rc write_at(int fd, const char *p, size_t n, int64_t at, struct err *err)
{
	while (n) {
		ssize_t k = pwrite(fd, p, n, (off_t)at);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return err_set_sys(err, errno, "cannot write the unpacked file");
		p += k;
		at += k;
		n -= (size_t)k;
	}
	return RC_OK;
}

static enum rc copy_data(struct unpack *u, struct archive *a, int fd, uint64_t size,
			 const char *path, struct err *err)
{
	const void *block;
	size_t n;
	la_int64_t at;

	for (;;) {
		int r = archive_read_data_block(a, &block, &n, &at);

		if (r == ARCHIVE_EOF)
			break;
		if (r < ARCHIVE_WARN)
			return err_set(err, RC_INVALID, "'%s' in the image cannot be read: %s",
				       path, archive_error_string(a));
		if (at < 0 || (uint64_t)at > size || n > size - (uint64_t)at)
			return err_set(err, RC_INVALID, "'%s' in the image is larger than it says",
				       path);
		enum rc rc = write_at(fd, block, n, at, err);

		if (rc)
			return rc;
	}
	if (ftruncate(fd, (off_t)size) < 0)
		return err_set_sys(err, errno, "cannot size the unpacked file");
	(void)u;
	return RC_OK;
}

static enum rc take_file(struct unpack *u, struct archive *a, struct archive_entry *e,
			 const char *path, struct err *err)
{
	int64_t size = archive_entry_size(e);

	if (archive_entry_hardlink(e) || archive_entry_filetype(e) != AE_IFREG)
		return err_set(err, RC_INVALID, "'/%s' in the image is not a regular file", path);
	if (size < 0 || (uint64_t)size > u->lim->bytes_max - MIN(u->bytes, u->lim->bytes_max))
		return err_set(err, RC_TOO_BIG, "the files of the image exceed %llu bytes",
			       (unsigned long long)u->lim->bytes_max);
	if (u->found->n >= u->lim->files_max)
		return err_set(err, RC_TOO_BIG, "the image has more than %zu files in the folder",
			       u->lim->files_max);
	CLEANUP(mem_freep) struct unpack_file *f = mem_alloc(sizeof(*f));

	if (!f)
		return err_set(err, RC_NOMEM, "out of memory");
	(void)snprintf(f->local, sizeof(f->local), "f%u", u->next_file++);
	f->bytes = (uint64_t)size;
	CLEANUP(fd_closep)
	int fd = openat(u->dir_fd, f->local, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
			0600);

	if (fd < 0)
		return err_set_sys(err, errno, "cannot create the unpacked file");
	u->bytes += f->bytes;
	enum rc rc = copy_data(u, a, fd, f->bytes, path, err);

	if (rc)
		return rc;
	if (fsync(fd) < 0)
		return err_set_sys(err, errno, "cannot sync the unpacked file");
	if (map_set(u->found, path, f))
		return err_set(err, RC_NOMEM, "out of memory");
	f = NULL; /* the map's */
	return RC_OK;
}

static enum rc take_entry(struct unpack *u, struct archive *a, struct archive_entry *e,
			  struct err *err)
{
	char path[PATH_LIMIT];

	if (++u->entries > u->lim->entries_max)
		return err_set(err, RC_TOO_BIG, "the image has more than %zu entries",
			       u->lim->entries_max);
	if (!normal_path(archive_entry_pathname(e), path) || whiteout(u, path))
		return RC_OK;
	if (archive_entry_filetype(e) == AE_IFDIR)
		return RC_OK;
	/* A file where a folder was (or the reverse) hides what lay below it. */
	forget_tree(u, path, true);
	return is_wanted(u, path) ? take_file(u, a, e, path, err) : RC_OK;
}

static enum rc unpack_one(struct unpack *u, int fd, struct err *err)
{
	CLEANUP(archive_read_freep) struct archive *a = archive_read_new();
	struct archive_entry *e;

	if (!a || archive_read_support_format_tar(a) != ARCHIVE_OK ||
	    archive_read_support_filter_gzip(a) != ARCHIVE_OK ||
	    archive_read_support_filter_zstd(a) != ARCHIVE_OK)
		return err_set(err, RC_NOMEM, "cannot set up the tar reader");
	if (archive_read_open_fd(a, fd, 65536) != ARCHIVE_OK)
		return err_set(err, RC_INVALID, "a layer of the image is not a tar archive: %s",
			       archive_error_string(a));
	for (;;) {
		int r = archive_read_next_header(a, &e);

		if (r == ARCHIVE_EOF)
			return RC_OK;
		if (r < ARCHIVE_WARN)
			return err_set(err, RC_INVALID, "a layer of the image cannot be read: %s",
				       archive_error_string(a));
		enum rc rc = take_entry(u, a, e, err);

		if (rc)
			return rc;
	}
}

static void free_file(void *p)
{
	mem_free(p);
}

enum rc unpack_layers(const int *fds, size_t n, const char *const *wanted, int out_dir_fd,
		      const struct unpack_limits *lim, struct map *found, struct err *err)
{
	struct unpack u = {.wanted = wanted, .dir_fd = out_dir_fd, .lim = lim, .found = found};

	map_init(found, free_file);
	for (size_t i = 0; i < n; i++) {
		enum rc rc = unpack_one(&u, fds[i], err);

		if (rc)
			return rc;
	}
	return RC_OK;
}

static enum rc print_found(const struct map *found, struct sbuf *out)
{
	CLEANUP(js_unrefp) struct json *j = js_new_object();

	MAP_FOREACH(it, found) {
		const struct unpack_file *f = it->value;

		if (js_set(j, it->key,
			   js_pack("{s:s, s:I}", "file", f->local, "bytes", (int64_t)f->bytes)))
			return RC_NOMEM;
	}
	js_print(j, out, true);
	return sbuf_rc(out);
}

int imgunpack_main(int argc, char **argv)
{
	struct unpack_limits lim = {.entries_max = UNPACK_ENTRIES_MAX,
				    .files_max = UNPACK_FILES_MAX};
	CLEANUP(sbuf_fini) struct sbuf out = SBUF_INIT(JAIL_OUTPUT_MAX);
	struct map found = {0};
	struct err err = {0};
	int fds[JAIL_FDS_MAX];
	uint64_t n = 0;

	enum rc rc = argc < 4 ? err_set(&err, RC_INVALID, "usage: LAYERS BYTES WANTED…")
			      : str_to_u64(argv[1], JAIL_FDS_MAX, &n, &err);
	if (!rc)
		rc = str_to_u64(argv[2], UINT64_MAX, &lim.bytes_max, &err);
	for (size_t i = 0; i < n; i++)
		fds[i] = JAIL_FD_FIRST + (int)i;
	CLEANUP(fd_closep) int dir = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (!rc && dir < 0)
		rc = err_set_sys(&err, errno, "cannot open the output folder");
	if (!rc)
		rc = unpack_layers(fds, n, (const char *const *)argv + 3, dir, &lim, &found, &err);
	if (!rc && print_found(&found, &out))
		rc = err_set(&err, RC_NOMEM, "out of memory");
	if (!rc)
		rc = file_write_all(1, sbuf_str(&out), out.n, &err);
	if (rc)
		(void)dprintf(2, "%s\n", err.msg);
	map_fini(&found);
	return rc ? 1 : 0;
}
