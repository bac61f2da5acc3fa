#include "cli/supervise.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"

static const usec_t RESTART_FIRST = 100 * USEC_PER_MSEC;
static const usec_t RESTART_MOST = 5 * USEC_PER_SEC;
static const usec_t RESTART_CALM = 10 * USEC_PER_SEC;

static pid_t start(char *const argv[], const sigset_t *old)
{
	pid_t pid = fork();

	if (pid == 0) {
		sigprocmask(SIG_SETMASK, old, NULL);
		execv(argv[0], argv);
		log_error("cannot run '%s': %s", argv[0], strerror(errno));
		_exit(127);
	}
	if (pid < 0)
		log_error("cannot fork: %s", strerror(errno));
	return pid;
}

/* Waits for one of the signals; 0 when the time is over first. */
static int wait_signal(const sigset_t *set, usec_t timeout)
{
	struct timespec t = {.tv_sec = (time_t)(timeout / USEC_PER_SEC),
			     .tv_nsec = (long)(timeout % USEC_PER_SEC) * 1000};
	int s = timeout == USEC_INFINITY ? sigwaitinfo(set, NULL) : sigtimedwait(set, NULL, &t);

	return s < 0 ? 0 : s;
}

static bool reap(pid_t main_pid, int *status)
{
	bool main_ended = false;
	int st;
	pid_t pid;

	while ((pid = waitpid(-1, &st, WNOHANG)) > 0)
		if (pid == main_pid) {
			main_ended = true;
			*status = st;
		}
	return main_ended;
}

static void stop_child(pid_t pid, const sigset_t *set, usec_t grace)
{
	usec_t deadline = clock_monotonic() + grace;
	int status;

	if (pid <= 0)
		return;
	kill(pid, SIGTERM);
	while (!reap(pid, &status)) {
		usec_t now = clock_monotonic();

		if (now >= deadline) {
			kill(pid, SIGKILL);
			deadline = USEC_INFINITY;
			continue;
		}
		wait_signal(set, deadline == USEC_INFINITY ? USEC_PER_SEC : deadline - now);
	}
}

static const char *how_it_ended(int status, char *text, size_t n)
{
	if (WIFSIGNALED(status))
		(void)snprintf(text, n, "killed by signal %d", WTERMSIG(status));
	else
		(void)snprintf(text, n, "exit code %d", WEXITSTATUS(status));
	return text;
}

int supervise(char *const argv[], usec_t grace)
{
	sigset_t set, old;
	usec_t delay = RESTART_FIRST;
	usec_t started = 0, due = 0;
	pid_t pid = 0;
	int status = 0;
	char text[64];

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, &old);
	for (;;) {
		usec_t now = clock_monotonic();

		if (pid <= 0 && now >= due) {
			started = now;
			pid = start(argv, &old);
			if (pid < 0)
				due = now + delay;
		}
		int s = wait_signal(&set, pid > 0 ? USEC_INFINITY : due > now ? due - now : 0);

		if (s == SIGTERM || s == SIGINT) {
			stop_child(pid, &set, grace);
			return 0;
		}
		if (!reap(pid, &status))
			continue;
		now = clock_monotonic();
		delay = now - started > RESTART_CALM ? RESTART_FIRST : MIN(delay * 2, RESTART_MOST);
		due = now + delay;
		pid = 0;
		log_warn("'%s' ended (%s), starting it again in %llu ms", argv[0],
			 how_it_ended(status, text, sizeof(text)),
			 (unsigned long long)(delay / 1000));
	}
}

/* Field 22 of /proc/PID/stat: start time in clock ticks since boot; 0: no such process. */
static uint64_t start_time(pid_t pid)
{
	char path[64];
	CLEANUP(mem_freep) char *text = NULL;
	uint64_t v = 0;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	if (file_read(path, LIMIT_FILE_BYTES, &text, NULL, NULL))
		return 0;
	char *p = strrchr(text, ')'); /* the name may hold blanks */

	if (!p || p[2] == 'Z')
		return 0;
	struct str rest = str_of(p + 2);

	for (int field = 3; rest.p; field++) {
		struct str word = str_split(&rest, ' ');
		char number[24];

		if (field != 22 || word.n >= sizeof(number))
			continue;
		memcpy(number, word.p, word.n);
		number[word.n] = '\0';
		if (str_to_u64(number, UINT64_MAX, &v, NULL))
			return 0;
		break;
	}
	return v;
}

enum rc pidfile_write(const char *path, pid_t pid, struct err *err)
{
	char text[64];
	int n = snprintf(text, sizeof(text), "%d %llu\n", pid, (unsigned long long)start_time(pid));

	return file_write_durable(path, text, (size_t)n, 0644, err);
}

pid_t pidfile_read(const char *path)
{
	CLEANUP(mem_freep) char *text = NULL;
	int pid = 0;
	unsigned long long when = 0;

	if (file_read(path, 64, &text, NULL, NULL) || sscanf(text, "%d %llu", &pid, &when) != 2 ||
	    pid <= 1)
		return 0;
	return start_time(pid) == when ? pid : 0;
}

bool pidfile_stop(const char *path, usec_t grace)
{
	pid_t pid = pidfile_read(path);
	int fd = pid ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;

	if (fd >= 0 && pidfile_read(path) == pid) {
		struct pollfd p = {.fd = fd, .events = POLLIN};

		syscall(SYS_pidfd_send_signal, fd, SIGTERM, NULL, 0);
		if (poll(&p, 1, (int)(grace / USEC_PER_MSEC)) == 0) {
			syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
			poll(&p, 1, 5000);
		}
		waitpid(pid, NULL, WNOHANG); /* in case it is our own child */
	}
	fd_close(fd);
	bool gone = pidfile_read(path) == 0;

	if (gone)
		(void)unlink(path);
	return gone;
}
