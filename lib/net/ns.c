#include "net/ns.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <linux/magic.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/str.h"

static enum rc ns_path(const char *dir, const char *name, char out[PATH_MAX], struct err *err)
{
	if (str_is_empty(name) || strchr(name, '/') || name[0] == '.')
		return err_set(err, RC_INVALID, "'%.60s' cannot name a network namespace",
			       name ? name : "");
	if (snprintf(out, PATH_MAX, "%s/%s", dir, name) >= PATH_MAX)
		return err_set(err, RC_INVALID, "path of network namespace '%s' is too long", name);
	return RC_OK;
}

enum rc net_ns_self(int *fd, struct err *err)
{
	int f = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);

	if (f < 0)
		return err_set_sys(err, errno, "cannot open the thread's network namespace");
	*fd = f;
	return RC_OK;
}

enum rc net_ns_open(const char *dir, const char *name, int *fd, struct err *err)
{
	char path[PATH_MAX];
	struct statfs fs;
	enum rc rc = ns_path(dir, name, path, err);

	if (rc)
		return rc;

	CLEANUP(fd_closep)
	int f = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

	if (f < 0)
		return err_set_sys(err, errno, "cannot open network namespace '%s'", path);
	if (fstatfs(f, &fs) < 0 || fs.f_type != NSFS_MAGIC)
		return err_set(err, RC_NOT_FOUND, "'%s' is not a network namespace", path);
	*fd = STEAL_FD(f);
	return RC_OK;
}

enum rc net_ns_enter(int ns_fd, int *old, struct err *err)
{
	CLEANUP(fd_closep)
	int self = -1;

	*old = -1;
	if (ns_fd < 0)
		return RC_OK;

	enum rc rc = net_ns_self(&self, err);

	if (rc)
		return rc;
	if (setns(ns_fd, CLONE_NEWNET) < 0)
		return err_set_sys(err, errno, "cannot enter the network namespace");
	*old = STEAL_FD(self);
	return RC_OK;
}

void net_ns_leave(int *old)
{
	int saved = errno;

	if (*old < 0)
		return;
	if (setns(*old, CLONE_NEWNET) < 0)
		abort(); /* a pool thread in a tenant's namespace would do harm quietly */
	*old = fd_close(*old);
	errno = saved;
}

static enum rc loopback_up(struct err *err)
{
	struct ifreq r = {.ifr_name = "lo"};
	CLEANUP(fd_closep)
	int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (s < 0)
		return err_set_sys(err, errno, "cannot open a socket");
	if (ioctl(s, SIOCGIFFLAGS, &r) < 0)
		return err_set_sys(err, errno, "cannot read the loopback link's flags");
	r.ifr_flags = (short)(r.ifr_flags | IFF_UP);
	if (ioctl(s, SIOCSIFFLAGS, &r) < 0)
		return err_set_sys(err, errno, "cannot bring the loopback link up");
	return RC_OK;
}

/* In the new namespace. IPv6 is refused everywhere in Ferry so far: a link-local address that
 * answers neighbours would break a silent target's silence. */
static enum rc ns_prepare(struct err *err)
{
	static const char *const off[] = {"ipv6/conf/all/disable_ipv6",
					  "ipv6/conf/default/disable_ipv6"};

	for (size_t i = 0; i < ARRAY_SIZE(off); i++) {
		enum rc rc = net_sysctl(-1, off[i], "1", err);

		if (rc && rc != RC_NOT_FOUND) /* not found: a kernel without IPv6 */
			return rc;
	}
	err_clear(err);
	return loopback_up(err);
}

static enum rc ns_make(const char *path, struct err *err)
{
	CLEANUP(net_ns_leave)
	int old = -1;
	enum rc rc = net_ns_self(&old, err);

	if (rc)
		return rc;
	if (unshare(CLONE_NEWNET) < 0)
		return err_set_sys(err, errno, "cannot make a network namespace");
	rc = ns_prepare(err);
	if (rc)
		return rc;

	CLEANUP(fd_closep)
	int f = open(path, O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0444);

	if (f < 0)
		return err_set_sys(err, errno, "cannot make '%s'", path);
	if (mount("/proc/thread-self/ns/net", path, "none", MS_BIND, NULL) < 0) {
		int e = errno;

		unlink(path);
		return err_set_sys(err, e, "cannot name a network namespace '%s'", path);
	}
	return RC_OK;
}

enum rc net_ns_create(const char *dir, const char *name, int *fd, struct err *err)
{
	char path[PATH_MAX];
	CLEANUP(fd_closep)
	int f = -1;
	struct err e = {0};
	enum rc rc = ns_path(dir, name, path, err);

	if (!rc)
		rc = file_mkdir_p(dir, 0755, err);
	if (rc)
		return rc;
	rc = net_ns_open(dir, name, &f, &e);
	if (rc == RC_NOT_FOUND) {
		rc = ns_make(path, err);
		if (!rc)
			rc = net_ns_open(dir, name, &f, err);
	} else if (rc) {
		err_copy(err, &e);
	}
	if (rc)
		return rc;
	if (fd)
		*fd = STEAL_FD(f);
	return RC_OK;
}

enum rc net_ns_delete(const char *dir, const char *name, struct err *err)
{
	char path[PATH_MAX];
	enum rc rc = ns_path(dir, name, path, err);

	if (rc)
		return rc;
	/* More than one mount may lie on it when two starts raced; EINVAL: none (any more). */
	while (umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) == 0)
		;
	if (errno != EINVAL && errno != ENOENT)
		return err_set_sys(err, errno, "cannot unmount network namespace '%s'", path);
	if (unlink(path) < 0 && errno != ENOENT)
		return err_set_sys(err, errno, "cannot remove '%s'", path);
	return RC_OK;
}

enum rc net_sysctl(int ns_fd, const char *path, const char *value, struct err *err)
{
	CLEANUP(net_ns_leave)
	int old = -1;
	char full[PATH_MAX];
	enum rc rc = net_ns_enter(ns_fd, &old, err);

	if (rc)
		return rc;
	/* /proc/net and /proc/sys/net show the namespace of the thread that opens them. */
	if (snprintf(full, sizeof(full), "/proc/sys/net/%s", path) >= (int)sizeof(full))
		return err_set(err, RC_INVALID, "sysctl path is too long");

	CLEANUP(fd_closep)
	int fd = open(full, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return err_set_sys(err, errno, "cannot open sysctl '%s'", path);
	rc = file_write_all(fd, value, strlen(value), err);
	return rc ? err_prepend(err, "sysctl '%s'", path) : RC_OK;
}

/* ---- programs ---- */

/* Between fork and exec in a process with threads: system calls only. */
static NORETURN void child_exec(const char *const argv[], int ns_fd, int out)
{
	static const char *const dirs[] = {"/usr/sbin", "/usr/bin", "/sbin", "/bin"};
	static char *const env[] = {(char *)"PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL};
	char path[512];
	sigset_t none;
	int null = open("/dev/null", O_RDWR);

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (ns_fd >= 0 && setns(ns_fd, CLONE_NEWNET) < 0)
		_exit(126);
	if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(out, 2) < 0)
		_exit(126);
	if (syscall(SYS_close_range, 3, ~0U, 0) < 0)
		_exit(126);
	if (argv[0][0] == '/')
		execve(argv[0], (char *const *)argv, env);
	for (size_t i = 0; argv[0][0] != '/' && i < ARRAY_SIZE(dirs); i++) {
		size_t nd = strlen(dirs[i]), np = strlen(argv[0]);

		if (nd + np + 2 > sizeof(path))
			continue;
		memcpy(path, dirs[i], nd);
		path[nd] = '/';
		memcpy(path + nd + 1, argv[0], np + 1);
		execve(path, (char *const *)argv, env);
	}
	_exit(127);
}

/* Waits for the child's end; takes what it says meanwhile. */
static bool child_wait(pid_t pid, int pidfd, int out, usec_t timeout, char *said, size_t max,
		       int *status)
{
	usec_t deadline = clock_monotonic() + timeout;
	size_t n = 0;

	for (;;) {
		struct pollfd p[2] = {{.fd = pidfd, .events = POLLIN},
				      {.fd = out, .events = POLLIN}};
		usec_t now = clock_monotonic();
		char buf[256];

		if (now >= deadline ||
		    (poll(p, 2, (int)((deadline - now) / 1000) + 1) < 0 && errno != EINTR))
			return false;
		if (p[1].revents) {
			ssize_t got = read(out, buf, sizeof(buf));

			if (got <= 0)
				out = -1;
			for (ssize_t i = 0; i < got && n + 1 < max; i++)
				said[n++] = buf[i] == '\n' ? ' ' : buf[i];
			said[n] = '\0';
			continue; /* all it said first */
		}
		if (p[0].revents)
			return waitpid(pid, status, 0) == pid;
	}
}

enum rc net_ns_run(int ns_fd, const char *const argv[], usec_t timeout, struct err *err)
{
	CLEANUP(fd_closep)
	int rd = -1;
	CLEANUP(fd_closep)
	int wr = -1;
	char said[400] = "";
	int pipefd[2], status = 0;

	if (pipe2(pipefd, O_CLOEXEC) < 0)
		return err_set_sys(err, errno, "cannot make a pipe");
	rd = pipefd[0];
	wr = pipefd[1];

	pid_t pid = fork();

	if (pid < 0)
		return err_set_sys(err, errno, "cannot start '%s'", argv[0]);
	if (pid == 0)
		child_exec(argv, ns_fd, wr);
	(void)fd_close(STEAL_FD(wr));

	CLEANUP(fd_closep)
	int pidfd = pidfd_open(pid, 0);

	if (pidfd < 0 || !child_wait(pid, pidfd, rd, timeout, said, sizeof(said), &status)) {
		kill(pid, SIGKILL);
		waitpid(pid, &status, 0);
		return err_set(err, RC_TIMEOUT, "'%s' did not end within %llu ms", argv[0],
			       (unsigned long long)(timeout / 1000));
	}
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return RC_OK;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 127 && !said[0])
		return err_set(err, RC_NOT_FOUND, "program '%s' is not installed", argv[0]);
	return err_set(err, RC_IO, "'%s' failed (%s %d)%s%s", argv[0],
		       WIFEXITED(status) ? "exit code" : "signal",
		       WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status),
		       said[0] ? ": " : "", said);
}
