#include "virt/node/jail.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/str.h"

/* Between fork and exec: only async-signal-safe calls (the parent has threads). */
static NORETURN void child_fail(const char *what)
{
	const char *why = strerrorname_np(errno);

	ignore_rc(file_write_all(2, what, strlen(what), NULL));
	ignore_rc(file_write_all(2, ": ", 2, NULL));
	if (why)
		ignore_rc(file_write_all(2, why, strlen(why), NULL));
	_exit(126);
}

/* The descriptors are first moved out of the way, so that no dup2 overwrites one still needed. */
static void child_fds(const struct jail *j, int exe_fd, int moved[JAIL_FDS_MAX])
{
	exe_fd = fcntl(exe_fd, F_DUPFD_CLOEXEC, 512);
	if (exe_fd < 0)
		child_fail("cannot duplicate a descriptor");
	for (size_t i = 0; i < j->n_fds; i++) {
		moved[i] = fcntl(j->fds[i], F_DUPFD, 256);
		if (moved[i] < 0)
			child_fail("cannot duplicate a descriptor");
	}
	for (size_t i = 0; i < j->n_fds; i++)
		if (dup2(moved[i], JAIL_FD_FIRST + (int)i) < 0)
			child_fail("cannot place a descriptor");
	int last = JAIL_FD_FIRST + (int)j->n_fds;

	if (dup3(exe_fd, last, O_CLOEXEC) < 0)
		child_fail("cannot place the program");
	if (syscall(SYS_close_range, last + 1, ~0u, 0) < 0)
		child_fail("cannot close descriptors");
}

static void child_limit(int what, uint64_t max)
{
	struct rlimit r;

	if (!max)
		return;
	/* Whoever started us may have less already (sudo allows no core file at all): that stays. */
	if (getrlimit((__rlimit_resource_t)what, &r) < 0)
		child_fail("cannot read a limit");
	r.rlim_max = MIN(r.rlim_max, max);
	r.rlim_cur = r.rlim_max;
	if (setrlimit((__rlimit_resource_t)what, &r) < 0)
		child_fail("cannot set a limit");
}

static void child_mounts(const struct jail *j)
{
	if (unshare(CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS |
		    (j->has_network ? 0 : CLONE_NEWNET)) < 0)
		child_fail("cannot make namespaces");
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		child_fail("cannot make mounts private");
	if (!j->work_dir)
		return;
	if (mount(j->work_dir, "/tmp", NULL, MS_BIND, NULL) < 0)
		child_fail("cannot mount the working directory");
	if (chdir("/tmp") < 0)
		child_fail("cannot enter the working directory");
}

static NORETURN void child_main(const struct jail *j, int exe_fd, int out_fd, int err_fd,
				int null_fd)
{
	static const char *const no_env[] = {NULL};
	int moved[JAIL_FDS_MAX];
	sigset_t none;

	sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	(void)setsid();
	if (dup2(null_fd, 0) < 0 || dup2(out_fd, 1) < 0 || dup2(err_fd, 2) < 0)
		_exit(126);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	child_mounts(j);
	child_fds(j, exe_fd, moved);
	child_limit(RLIMIT_FSIZE, j->file_bytes_max);
#ifndef __SANITIZE_ADDRESS__ /* whose shadow alone is terabytes of address space */
	child_limit(RLIMIT_AS, j->memory_bytes_max);
#endif
	child_limit(RLIMIT_CORE, 1);
	child_limit(RLIMIT_NOFILE, 256);
	if (syscall(SYS_setgroups, 0, NULL) < 0 ||
	    syscall(SYS_setresgid, j->uid, j->uid, j->uid) < 0 ||
	    syscall(SYS_setresuid, j->uid, j->uid, j->uid) < 0)
		child_fail("cannot drop privileges");
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		child_fail("cannot forbid new privileges");
	(void)umask(077);
	/* By descriptor: the unprivileged child may not be able to walk to the program's folder. */
	(void)syscall(SYS_execveat, JAIL_FD_FIRST + (int)j->n_fds, "", j->argv,
		      j->env ? j->env : no_env, AT_EMPTY_PATH);
	child_fail(j->argv[0]);
}

/* Reads both pipes until they close or the deadline passes; false at the deadline. */
static bool drain(int out_fd, int err_fd, struct sbuf *out, struct sbuf *err_text, usec_t deadline)
{
	struct pollfd p[2] = {{.fd = out_fd, .events = POLLIN}, {.fd = err_fd, .events = POLLIN}};
	char chunk[4096];

	while (p[0].fd >= 0 || p[1].fd >= 0) {
		usec_t now = clock_monotonic();

		if (now >= deadline)
			return false;
		usec_t left_ms = (deadline - now + 999) / 1000;

		if (poll(p, 2, (int)MIN(left_ms, 60000)) < 0 && errno != EINTR)
			return false;
		for (int i = 0; i < 2; i++) {
			if (p[i].fd < 0 || !p[i].revents)
				continue;
			ssize_t n = read(p[i].fd, chunk, sizeof(chunk));

			if (n < 0 && errno == EINTR)
				continue;
			if (n <= 0)
				p[i].fd = -1;
			else if (i == 0 && out)
				sbuf_add(out, chunk, (size_t)n);
			else if (i == 1 && err_text->n + (size_t)n <= JAIL_OUTPUT_MAX)
				sbuf_add(err_text, chunk, (size_t)n);
		}
	}
	return true;
}

/* The last line that says something, without control characters. */
static void last_line(const struct sbuf *text, char *out, size_t cap)
{
	const char *p = sbuf_str(text);
	size_t end = strlen(p);

	while (end && (p[end - 1] == '\n' || p[end - 1] == ' '))
		end--;
	size_t start = end;

	while (start && p[start - 1] != '\n')
		start--;
	size_t n = MIN(end - start, cap - 1);

	for (size_t i = 0; i < n; i++)
		out[i] = (unsigned char)p[start + i] < 0x20 ? ' ' : p[start + i];
	out[n] = '\0';
}

static enum rc reap(pid_t pid, const struct jail *j, bool in_time, const struct sbuf *text,
		    int *status, struct err *err)
{
	char why[300];
	int st = 0;

	if (!in_time)
		(void)kill(-pid, SIGKILL), (void)kill(pid, SIGKILL);
	while (waitpid(pid, &st, 0) < 0)
		if (errno != EINTR)
			return err_set_sys(err, errno, "cannot wait for '%s'", j->argv[0]);
	if (!in_time)
		return err_set(err, RC_TIMEOUT, "'%s' did not end within %llu s", j->argv[0],
			       (unsigned long long)(j->timeout / USEC_PER_SEC));
	if (status)
		*status = st;
	if (WIFEXITED(st) && WEXITSTATUS(st) == 0)
		return RC_OK;
	last_line(text, why, sizeof(why));
	if (WIFSIGNALED(st))
		return err_set(err, RC_IO, "'%s' was ended by signal %d %s", j->argv[0],
			       WTERMSIG(st), why);
	return err_set(err, RC_IO, "%s", *why ? why : "the helper failed without a message");
}

static void close_now(int *fd)
{
	*fd = fd_close(*fd);
}

enum rc jail_run(const struct jail *j, int *status, struct err *err)
{
	CLEANUP(fd_closep) int out_r = -1;
	CLEANUP(fd_closep) int out_w = -1;
	CLEANUP(fd_closep) int err_r = -1;
	CLEANUP(fd_closep) int err_w = -1;
	CLEANUP(fd_closep) int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	CLEANUP(sbuf_fini) struct sbuf text = SBUF_INIT(2 * JAIL_OUTPUT_MAX);
	CLEANUP(fd_closep) int exe_fd = open(j->argv[0], O_PATH | O_CLOEXEC);
	int p[2];

	assert(j->n_fds <= JAIL_FDS_MAX);
	if (null_fd < 0)
		return err_set_sys(err, errno, "cannot open /dev/null");
	if (exe_fd < 0)
		return err_set_sys(err, errno, "cannot find the program '%s'", j->argv[0]);
	if (pipe2(p, O_CLOEXEC) < 0)
		return err_set_sys(err, errno, "cannot make a pipe");
	out_r = p[0];
	out_w = p[1];
	if (pipe2(p, O_CLOEXEC) < 0)
		return err_set_sys(err, errno, "cannot make a pipe");
	err_r = p[0];
	err_w = p[1];

	pid_t pid = fork();

	if (pid < 0)
		return err_set_sys(err, errno, "cannot start '%s'", j->argv[0]);
	if (pid == 0)
		child_main(j, exe_fd, out_w, err_w, null_fd);
	close_now(&out_w); /* the child has these ends: its end is theirs */
	close_now(&err_w);

	bool in_time = drain(out_r, err_r, j->out, &text, clock_monotonic() + j->timeout);
	enum rc rc = reap(pid, j, in_time, &text, status, err);

	if (!rc && j->out && sbuf_rc(j->out))
		return err_set(err, sbuf_rc(j->out), "'%s' printed too much", j->argv[0]);
	return rc;
}
