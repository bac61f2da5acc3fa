#include "virt/node/vollock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/try.h"

/* RAW_LOCK_PERM_BASE and RAW_LOCK_SHARED_BASE, with room for every permission. */
enum { LOCK_FIRST = 100, LOCK_BYTES = 200 };

static enum rc open_disk(const struct vollock *d, int *out, struct err *err)
{
	CLEANUP(fd_closep)
	int root = open(d->root, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	CLEANUP(fd_closep) int fd = -1;
	struct stat st;

	if (root < 0)
		return err_set_sys(err, errno, "cannot open '%s'", d->root);
	TRY(file_open_beneath(root, d->path, O_RDWR | O_NONBLOCK, 0, &fd, err));
	if (fstat(fd, &st) < 0)
		return err_set_sys(err, errno, "cannot stat '%s'", d->path);
	if (!S_ISREG(st.st_mode))
		return err_set(err, RC_FORBIDDEN, "'%s' is not a plain file", d->path);
	*out = STEAL_FD(fd);
	return RC_OK;
}

static enum rc ask(const struct vollock *d, int cmd, bool *is_held, struct err *err)
{
	struct flock l = {.l_type = F_WRLCK,
			  .l_whence = SEEK_SET,
			  .l_start = LOCK_FIRST,
			  .l_len = LOCK_BYTES};
	CLEANUP(fd_closep) int fd = -1;

	TRY(open_disk(d, &fd, err));
	if (fcntl(fd, cmd, &l) == 0) {
		*is_held = cmd == F_OFD_GETLK && l.l_type != F_UNLCK;
		return RC_OK;
	}
	if (cmd != F_OFD_SETLK || (errno != EAGAIN && errno != EACCES))
		return err_set_sys(err, errno, "'%s' cannot be locked", d->path);
	*is_held = true;
	return RC_OK;
}

enum rc vollock_look(const struct vollock *d, bool *is_held, struct err *err)
{
	return ask(d, F_OFD_GETLK, is_held, err);
}

enum rc vollock_take(const struct vollock *d, bool *is_held, struct err *err)
{
	return ask(d, F_OFD_SETLK, is_held, err);
}
