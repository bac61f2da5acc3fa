#include "base/failpoint.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"

static const usec_t HOLD_MAX = 300 * USEC_PER_SEC;

/* So that the socket's path fits into sun_path with the longest name of a point. */
enum { DIR_MAX = 64 };

bool failpoint_is_on;
static char dir[DIR_MAX];

enum rc failpoint_setup(struct err *err)
{
	const char *path = getenv(FAILPOINT_ENV);
	struct stat st;

	failpoint_is_on = false;
	if (!path || !*path)
		return RC_OK;
	if (path[0] != '/' || strlen(path) >= sizeof(dir))
		return err_set(err, RC_INVALID,
			       FAILPOINT_ENV
			       " '%s' must be an absolute path of less than %d characters",
			       path, DIR_MAX);
	if (lstat(path, &st) < 0)
		return err_set_sys(err, errno, FAILPOINT_ENV ": cannot look at '%s'", path);
	if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)))
		return err_set(err, RC_FORBIDDEN,
			       FAILPOINT_ENV
			       ": '%s' must be a folder of this user where nobody else may write",
			       path);
	(void)snprintf(dir, sizeof(dir), "%s", path);
	failpoint_is_on = true;
	return RC_OK;
}

/* Somebody who listens in a folder that is ours alone is us; asked all the same. */
static bool is_own(int fd)
{
	struct ucred peer;
	socklen_t n = sizeof(peer);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0 && peer.uid == geteuid();
}

/* The byte, or 0: it was closed, or the time is over. */
static char wait_for_word(int fd)
{
	usec_t until = clock_monotonic() + HOLD_MAX;
	char word = 0;

	for (;;) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		usec_t now = clock_monotonic();

		if (now >= until)
			return 0;
		int n = poll(&p, 1, (int)((until - now) / USEC_PER_MSEC) + 1);

		if (n < 0 && errno != EINTR)
			return 0;
		if (n > 0)
			return read(fd, &word, 1) == 1 ? word : 0;
	}
}

bool failpoint_hit(const char *name)
{
	struct sockaddr_un room; /* only its size is wanted */
	char path[sizeof(room.sun_path)];
	CLEANUP(fd_closep) int fd = -1;

	if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path) ||
	    file_connect_unix(path, &fd, NULL)) /* nobody wants it */
		return false;
	if (!is_own(fd))
		return false;
	log_debug("failpoint '%s': held", name);
	char word = wait_for_word(fd);

	log_debug("failpoint '%s': %s", name, word == 'f' ? "fails" : "goes on");
	return word == 'f';
}
