#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/sbuf.h"

int fd_close(int fd)
{
	if (fd >= 0) {
		int saved = errno;

		close(fd);
		errno = saved;
	}
	return -1;
}

enum rc file_read(const char *path, size_t max, char **out, size_t *n, struct err *err)
{
	CLEANUP(fd_closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(max);
	char chunk[16384];

	if (fd < 0)
		return err_set_sys(err, errno, "cannot open '%s'", path);
	for (;;) {
		ssize_t k = read(fd, chunk, sizeof(chunk));

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return err_set_sys(err, errno, "cannot read '%s'", path);
		if (k == 0)
			break;
		sbuf_add(&b, chunk, (size_t)k);
	}
	enum rc rc = sbuf_take(&b, out, n);

	if (rc)
		return err_set(err, rc, "'%s' is larger than %zu bytes", path, max);
	return RC_OK;
}

enum rc file_connect_unix(const char *path, int *out, struct err *err)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};

	if (strlen(path) >= sizeof(addr.sun_path))
		return err_set(err, RC_INVALID, "socket path '%s' is too long", path);
	memcpy(addr.sun_path, path, strlen(path));
	CLEANUP(fd_closep)
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return err_set_sys(err, errno, "cannot make a socket");
	if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0) {
		if (errno == EAGAIN)
			return err_set(err, RC_BUSY, "'%s' has too many clients waiting", path);
		return err_set_sys(err, errno, "cannot connect to '%s'", path);
	}
	*out = STEAL_FD(fd);
	return RC_OK;
}

enum rc file_write_all(int fd, const void *bytes, size_t n, struct err *err)
{
	const char *p = bytes;

	while (n) {
		ssize_t k = write(fd, p, n);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return err_set_sys(err, errno, "cannot write");
		p += k;
		n -= (size_t)k;
	}
	return RC_OK;
}

enum rc file_sync_parent(const char *path, struct err *err)
{
	CLEANUP(mem_freep) char *dir = mem_strdup(path);
	char *slash = dir ? strrchr(dir, '/') : NULL;

	if (!dir)
		return err_set(err, RC_NOMEM, "out of memory");
	if (slash)
		slash[slash == dir] = '\0';
	CLEANUP(fd_closep) int fd = open(slash ? dir : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 || fsync(fd) < 0)
		return err_set_sys(err, errno, "cannot sync the folder of '%s'", path);
	return RC_OK;
}

enum rc file_write_durable(const char *path, const void *bytes, size_t n, mode_t mode,
			   struct err *err)
{
	CLEANUP(mem_freep)
	char *tmp = mem_printf("%s.%016llx.tmp", path, (unsigned long long)rand_u64());
	CLEANUP(fd_closep) int fd = -1;
	enum rc rc;

	if (!tmp)
		return err_set(err, RC_NOMEM, "out of memory");
	fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
	if (fd < 0)
		return err_set_sys(err, errno, "cannot create '%s'", tmp);
	rc = file_write_all(fd, bytes, n, err);
	if (!rc && fsync(fd) < 0)
		rc = err_set_sys(err, errno, "cannot sync '%s'", tmp);
	if (!rc && rename(tmp, path) < 0)
		rc = err_set_sys(err, errno, "cannot rename '%s' to '%s'", tmp, path);
	if (rc) {
		(void)unlink(tmp);
		return rc;
	}
	return file_sync_parent(path, err);
}

enum rc file_mkdir_p(const char *path, mode_t mode, struct err *err)
{
	CLEANUP(mem_freep) char *copy = mem_strdup(path);

	if (!copy)
		return err_set(err, RC_NOMEM, "out of memory");
	for (char *p = copy + 1;; p++) {
		if (*p && *p != '/')
			continue;
		char was = *p;

		*p = '\0';
		if (mkdir(copy, mode) < 0 && errno != EEXIST)
			return err_set_sys(err, errno, "cannot create folder '%s'", copy);
		*p = was;
		if (!was)
			return RC_OK;
	}
}

static enum rc remove_below(int dir_fd, dev_t dev, int depth, struct err *err)
{
	DIR *d = fdopendir(dir_fd); /* takes dir_fd */
	struct dirent *e;
	enum rc rc = RC_OK;

	if (!d) {
		int saved = errno;

		close(dir_fd);
		return err_set_sys(err, saved, "cannot list a folder");
	}
	while (!rc && (e = readdir(d))) {
		struct stat st;

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue; /* gone meanwhile */
		if (S_ISDIR(st.st_mode) && st.st_dev == dev && depth < LIMIT_TREE_DEPTH) {
			int sub = openat(dirfd(d), e->d_name,
					 O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

			if (sub >= 0)
				rc = remove_below(sub, dev, depth + 1, err);
		}
		if (!rc &&
		    unlinkat(dirfd(d), e->d_name, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0) < 0 &&
		    errno != ENOENT)
			rc = err_set_sys(err, errno, "cannot remove '%s'", e->d_name);
	}
	closedir(d);
	return rc;
}

enum rc file_each(const char *dir, file_each_fn fn, void *arg, struct err *err)
{
	DIR *d = opendir(dir);
	enum rc rc = RC_OK;

	if (!d && errno == ENOENT)
		return RC_OK;
	if (!d)
		return err_set_sys(err, errno, "cannot list '%s'", dir);
	for (struct dirent *e = readdir(d); e && !rc; e = readdir(d))
		if (e->d_name[0] != '.')
			rc = fn(e->d_name, arg, err);
	closedir(d);
	return rc;
}

enum rc file_remove_tree(const char *path, struct err *err)
{
	struct stat st;

	if (lstat(path, &st) < 0)
		return errno == ENOENT ? RC_OK : err_set_sys(err, errno, "cannot stat '%s'", path);
	if (S_ISDIR(st.st_mode)) {
		int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

		if (fd < 0)
			return err_set_sys(err, errno, "cannot open '%s'", path);
		enum rc rc = remove_below(fd, st.st_dev, 0, err);

		if (rc)
			return err ? err_prepend(err, "'%s'", path) : rc;
	}
	if ((S_ISDIR(st.st_mode) ? rmdir(path) : unlink(path)) < 0 && errno != ENOENT)
		return err_set_sys(err, errno, "cannot remove '%s'", path);
	return RC_OK;
}

enum rc file_open_beneath(int dir_fd, const char *path, int flags, mode_t mode, int *out,
			  struct err *err)
{
	struct open_how how = {
		.flags = (uint64_t)(flags | O_CLOEXEC | O_NOFOLLOW),
		.mode = mode,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};
	long fd = syscall(SYS_openat2, dir_fd, path, &how, sizeof(how));

	if (fd < 0)
		return err_set_sys(err, errno, "cannot open '%s'", path);
	*out = (int)fd;
	return RC_OK;
}

static uint64_t rand_state; /* 0: the kernel's randomness */

void rand_fix(uint64_t seed)
{
	rand_state = seed;
}

/* splitmix64 */
static uint64_t next_fixed(void)
{
	uint64_t z = rand_state += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

void rand_bytes(void *out, size_t n)
{
	char *p = out;

	while (rand_state && n) { /* tests only */
		uint64_t v = next_fixed();
		size_t k = MIN(n, sizeof(v));

		memcpy(p, &v, k);
		p += k;
		n -= k;
	}
	while (n) {
		ssize_t k = getrandom(p, n, 0);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			abort(); /* weak ids and keys would be worse than no process */
		p += k;
		n -= (size_t)k;
	}
}

uint64_t rand_u64(void)
{
	uint64_t v;

	rand_bytes(&v, sizeof(v));
	return v;
}

void rand_uuid(char out[37])
{
	unsigned char b[16];

	rand_bytes(b, sizeof(b));
	b[6] = (unsigned char)((b[6] & 0x0f) | 0x40);
	b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
	(void)snprintf(out, 37,
		       "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
		       b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12],
		       b[13], b[14], b[15]);
}

void rand_name(char *out, size_t n)
{
	static const char alphabet[] = "bcdfghjklmnpqrstvwxz2456789";

	for (size_t i = 0; i < n; i++)
		out[i] = alphabet[rand_u64() % (sizeof(alphabet) - 1)];
	out[n] = '\0';
}

void time_rfc3339(usec_t realtime, char out[32])
{
	time_t t = (time_t)(realtime / USEC_PER_SEC);
	struct tm tm;

	gmtime_r(&t, &tm);
	(void)strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

void time_rfc3339_micro(usec_t realtime, char out[40])
{
	time_t t = (time_t)(realtime / USEC_PER_SEC);
	struct tm tm;

	gmtime_r(&t, &tm);
	size_t n = strftime(out, 40, "%Y-%m-%dT%H:%M:%S", &tm);

	(void)snprintf(out + n, 40 - n, ".%06uZ", (unsigned)(realtime % USEC_PER_SEC));
}

static bool digits(const char **s, unsigned n, int min, int max, int *out)
{
	int v = 0;

	for (unsigned i = 0; i < n; i++, (*s)++) {
		if (**s < '0' || **s > '9')
			return false;
		v = v * 10 + (**s - '0');
	}
	*out = v;
	return v >= min && v <= max;
}

static bool skip(const char **s, char c)
{
	if (**s != c)
		return false;
	(*s)++;
	return true;
}

static bool date(const char **s, struct tm *tm)
{
	return digits(s, 4, 1, 9999, &tm->tm_year) && skip(s, '-') &&
	       digits(s, 2, 1, 12, &tm->tm_mon) && skip(s, '-') &&
	       digits(s, 2, 1, 31, &tm->tm_mday);
}

static bool time_of_day(const char **s, struct tm *tm)
{
	return digits(s, 2, 0, 23, &tm->tm_hour) && skip(s, ':') &&
	       digits(s, 2, 0, 59, &tm->tm_min) && skip(s, ':') && digits(s, 2, 0, 60, &tm->tm_sec);
}

static unsigned fraction_usec(const char **s)
{
	unsigned frac = 0, scale = 100000;

	if (**s == '.')
		for ((*s)++; **s >= '0' && **s <= '9'; (*s)++, scale /= 10)
			frac += (unsigned)(**s - '0') * scale;
	return frac;
}

/* "Z", "+01:00", "-00:30" */
static bool zone(const char **s, long *offset_seconds)
{
	int hour, minute;

	*offset_seconds = 0;
	if (skip(s, 'Z') || skip(s, 'z'))
		return true;
	long sign = **s == '+' ? 1 : -1;

	if (!(skip(s, '+') || skip(s, '-')) || !digits(s, 2, 0, 23, &hour) || !skip(s, ':') ||
	    !digits(s, 2, 0, 59, &minute))
		return false;
	*offset_seconds = sign * (hour * 3600L + minute * 60L);
	return true;
}

enum rc time_parse(const char *s, usec_t *out, struct err *err)
{
	const char *p = s ? s : "";
	struct tm tm = {0};
	unsigned frac = 0;
	long offset = 0;

	bool ok = date(&p, &tm) && (skip(&p, 'T') || skip(&p, 't')) && time_of_day(&p, &tm);

	if (ok)
		frac = fraction_usec(&p);
	if (!ok || !zone(&p, &offset) || *p)
		return err_set(err, RC_INVALID, "'%s' is not an RFC 3339 time", s ? s : "");
	tm.tm_year -= 1900;
	tm.tm_mon -= 1;
	time_t t = timegm(&tm) - offset;

	if (t < 0)
		return err_set(err, RC_INVALID, "'%s' is before 1970", s);
	*out = (usec_t)t * USEC_PER_SEC + frac;
	return RC_OK;
}
