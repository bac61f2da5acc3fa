#include "virt/node/voltoken.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/try.h"

enum { TOKEN_MAX = 128, NAME_MAX_BYTES = 200 };

#define PREFIX ".ferry-seen."

static enum rc open_folder(const struct voltoken *t, int *out, struct err *err)
{
	CLEANUP(fd_closep)
	int root = open(t->root, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (root < 0)
		return err_set_sys(err, errno, "cannot open '%s'", t->root);
	if (!str_is_dns_subdomain(t->vmi_uid) || !str_is_dns_subdomain(t->move_uid))
		return err_set(err, RC_INVALID, "'%s' or '%s' is no uid", t->vmi_uid, t->move_uid);
	return file_open_beneath(root, t->folder, O_RDONLY | O_DIRECTORY, 0, out, err);
}

static enum rc name_of(const struct voltoken *t, char out[NAME_MAX_BYTES], struct err *err)
{
	int n = snprintf(out, NAME_MAX_BYTES, PREFIX "%s.%s", t->vmi_uid, t->move_uid);

	return n < NAME_MAX_BYTES ? RC_OK : err_set(err, RC_TOO_BIG, "a uid is too long");
}

/* What an agent that died has left of this VM. */
static enum rc sweep(int dir, const char *vmi_uid, struct err *err)
{
	CLEANUP(mem_freep) char *prefix = mem_printf(PREFIX "%s.", vmi_uid);
	CLEANUP(fd_closep) int fd = -1;

	if (!prefix)
		return err_set(err, RC_NOMEM, "out of memory");
	TRY(file_open_beneath(dir, ".", O_RDONLY | O_DIRECTORY, 0, &fd, err));
	DIR *d = fdopendir(fd);

	if (!d)
		return err_set_sys(err, errno, "cannot list the volume's folder");
	fd = -1; /* the stream has it */
	for (struct dirent *e; (e = readdir(d));)
		if (str_has_prefix(e->d_name, prefix))
			(void)unlinkat(dir, e->d_name, 0);
	(void)closedir(d);
	return RC_OK;
}

enum rc voltoken_write(const struct voltoken *t, const char *text, struct err *err)
{
	CLEANUP(fd_closep) int dir = -1;
	CLEANUP(fd_closep) int fd = -1;
	char name[NAME_MAX_BYTES];

	TRY(open_folder(t, &dir, err));
	TRY(name_of(t, name, err));
	TRY(sweep(dir, t->vmi_uid, err));
	TRY(file_open_beneath(dir, name, O_WRONLY | O_CREAT | O_EXCL, 0600, &fd, err));
	enum rc rc = file_write_all(fd, text, strlen(text), err);

	if (!rc && (fsync(fd) < 0 || fsync(dir) < 0))
		rc = err_set_sys(err, errno, "cannot sync '%s'", name);
	if (rc)
		(void)unlinkat(dir, name, 0);
	return rc;
}

enum rc voltoken_check(const struct voltoken *t, const char *text, struct err *err)
{
	CLEANUP(fd_closep) int dir = -1;
	CLEANUP(fd_closep) int fd = -1;
	char name[NAME_MAX_BYTES], got[TOKEN_MAX];

	TRY(open_folder(t, &dir, err));
	TRY(name_of(t, name, err));
	TRY(file_open_beneath(dir, name, O_RDONLY | O_NONBLOCK, 0, &fd, err));
	ssize_t n = read(fd, got, sizeof(got));

	if (n < 0)
		return err_set_sys(err, errno, "cannot read '%s'", name);
	if ((size_t)n != strlen(text) || memcmp(got, text, (size_t)n) != 0)
		return err_set(err, RC_CONFLICT, "'%s' is another file", name);
	return RC_OK;
}

enum rc voltoken_drop(const struct voltoken *t, struct err *err)
{
	CLEANUP(fd_closep) int dir = -1;
	char name[NAME_MAX_BYTES];

	TRY(open_folder(t, &dir, err));
	TRY(name_of(t, name, err));
	if (unlinkat(dir, name, 0) < 0 && errno != ENOENT)
		return err_set_sys(err, errno, "cannot remove '%s'", name);
	return RC_OK;
}
