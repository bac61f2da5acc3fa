#include "virt/launcher/jail.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"
#include "ev/ev.h"
#include "json/json.h"

/* The launcher's side.  Stage one and the reaper report over a seqpacket pair whose other end has
 * SO_PASSCRED: the kernel says which process speaks, translated into our pid namespace.
 *
 *   "reaper"            the sender is pid 1 of the new namespace
 *   "qemu"              the sender is about to become QEMU
 *   "error <what>"      and then it exits
 *   end of file         the last copy is gone: QEMU was exec'ed, or everybody died
 */

struct jail_start {
	struct loop *loop;
	int fd;
	pid_t stage_one;
	pid_t reaper, qemu;
	struct ev_src *io;
	struct ev_src *deadline;
	struct ev_src *child;
	bool failed;
	char message[320];
	jail_fn fn;
	void *arg;
};

struct jail_start *jail_start_free(struct jail_start *j)
{
	if (!j)
		return NULL;
	ev_src_free(j->io);
	ev_src_free(j->deadline);
	ev_src_free(j->child);
	fd_close(j->fd);
	return mem_free(j);
}

static void finish(struct jail_start *j, enum rc rc)
{
	struct jail_result r = {
		.rc = rc, .reaper = j->reaper, .qemu = j->qemu, .message = j->message};
	jail_fn fn = j->fn;

	j->io = ev_src_free(j->io);
	j->deadline = ev_src_free(j->deadline);
	j->fn = NULL;
	if (fn)
		fn(&r, j->arg); /* may free j */
}

static void on_late(void *arg)
{
	struct jail_start *j = arg;

	if (j->reaper > 0)
		kill(j->reaper, SIGKILL);
	snprintf(j->message, sizeof(j->message), "the jail was not ready in time");
	finish(j, RC_TIMEOUT);
}

static void take_message(struct jail_start *j, const char *text, pid_t sender)
{
	if (str_eq(text, "reaper"))
		j->reaper = sender;
	else if (str_eq(text, "qemu"))
		j->qemu = sender;
	else if (str_has_prefix(text, "error ")) {
		j->failed = true;
		snprintf(j->message, sizeof(j->message), "%s", text + strlen("error "));
	}
}

static void on_status(uint32_t revents, void *arg)
{
	struct jail_start *j = arg;
	char text[300];
	union {
		char buf[CMSG_SPACE(sizeof(struct ucred))];
		struct cmsghdr align;
	} control;

	for (;;) {
		struct iovec iov = {text, sizeof(text) - 1};
		struct msghdr msg = {.msg_iov = &iov,
				     .msg_iovlen = 1,
				     .msg_control = control.buf,
				     .msg_controllen = sizeof(control.buf)};
		ssize_t n = recvmsg(j->fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		struct ucred cred = {0};

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0)
			break;
		text[n] = '\0';
		struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

		if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_CREDENTIALS)
			memcpy(&cred, CMSG_DATA(c), sizeof(cred));
		take_message(j, text, cred.pid);
	}
	if (!j->failed && !j->qemu) {
		j->failed = true;
		snprintf(j->message, sizeof(j->message), "the jail's set-up ended without a word");
	}
	finish(j, j->failed ? RC_IO : RC_OK);
}

static void on_stage_one(pid_t pid, int status, void *arg)
{
	struct jail_start *j = arg;

	j->child = ev_src_free(j->child); /* reaped; what it had to say came over the pair */
}

static struct json *numbers(const int *v, size_t n)
{
	struct json *arr = js_new_array();

	for (size_t i = 0; arr && i < n; i++)
		if (js_append(arr, js_new_int(v[i])))
			arr = js_unref(arr);
	return arr;
}

static struct json *config_json(const struct jail_config *c, int status_fd)
{
	struct json *argv = js_new_array();

	for (size_t i = 0; argv && c->argv[i]; i++)
		if (js_append(argv, js_new_str(c->argv[i])))
			argv = js_unref(argv);
	return js_pack("{s:s, s:I, s:I, s:i, s:b, s:i, s:i, s:i, s:i, s:I, s:i, s:o, s:o}", "dir",
		       c->dir, "uid", c->uid, "gid", c->gid, "netns", c->netns_fd, "kvm", c->kvm,
		       "kernel", c->kernel_fd, "initrd", c->initrd_fd, "cgroup", c->cgroup_fd,
		       "stderr", c->stderr_fd, "oom", c->oom_score_adj, "status", status_fd, "argv",
		       argv, "keep", numbers(c->keep, c->n_keep));
}

static enum rc config_memfd(const struct jail_config *c, int status_fd, int *out, struct err *err)
{
	CLEANUP(js_unrefp) struct json *j = config_json(c, status_fd);
	CLEANUP(mem_freep) char *text = j ? js_to_text(j) : NULL;
	CLEANUP(fd_closep) int fd = -1;

	if (!text)
		return err_set(err, RC_NOMEM, "cannot build the jail's configuration");
	fd = memfd_create("ferry-jail", MFD_CLOEXEC);
	if (fd < 0)
		return err_set_sys(err, errno, "cannot make a memfd");
	enum rc rc = file_write_all(fd, text, strlen(text), err);

	if (!rc)
		*out = STEAL_FD(fd);
	return rc;
}

static void keep_over_exec(int fd)
{
	if (fd >= 0)
		fcntl(fd, F_SETFD, 0);
}

/* Only async-signal-safe calls: other threads may hold locks. */
NORETURN static void become_stage_one(const struct jail_config *c, int config_fd, int status_fd,
				      char *number)
{
	char *const argv[] = {(char *)"ferry-reaper", (char *)"--reaper", number, NULL};
	char *const envp[] = {NULL};
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	keep_over_exec(config_fd);
	keep_over_exec(status_fd);
	keep_over_exec(c->netns_fd);
	keep_over_exec(c->kernel_fd);
	keep_over_exec(c->initrd_fd);
	keep_over_exec(c->cgroup_fd);
	keep_over_exec(c->stderr_fd);
	for (size_t i = 0; i < c->n_keep; i++)
		keep_over_exec(c->keep[i]);
	execve("/proc/self/exe", argv, envp);
	_exit(127);
}

enum rc jail_start(struct jail_start **out, struct loop *loop, const struct jail_config *c,
		   usec_t timeout, jail_fn fn, void *arg, struct err *err)
{
	CLEANUP(jail_start_freep) struct jail_start *j = mem_alloc(sizeof(*j));
	CLEANUP(fd_closep) int theirs = -1;
	CLEANUP(fd_closep) int config_fd = -1;
	int pair[2], on = 1;
	char number[16];
	enum rc rc;

	if (!j)
		return err_set(err, RC_NOMEM, "cannot allocate the jail");
	j->loop = loop;
	j->fn = fn;
	j->arg = arg;
	j->fd = -1;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_set_sys(err, errno, "cannot make a socket pair");
	j->fd = pair[0];
	theirs = pair[1];
	if (setsockopt(j->fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0)
		return err_set_sys(err, errno, "cannot ask for credentials");
	rc = config_memfd(c, theirs, &config_fd, err);
	if (!rc)
		rc = ev_io(loop, &j->io, j->fd, EPOLLIN, on_status, j, err);
	if (!rc)
		rc = ev_timer_after(loop, &j->deadline, timeout, on_late, j, err);
	if (rc)
		return rc;
	snprintf(number, sizeof(number), "%d", config_fd);
	j->stage_one = fork();
	if (j->stage_one < 0)
		return err_set_sys(err, errno, "cannot fork");
	if (j->stage_one == 0)
		become_stage_one(c, config_fd, theirs, number);
	rc = ev_child(loop, &j->child, j->stage_one, on_stage_one, j, err);
	if (rc)
		return rc;
	*out = STEAL(j);
	return RC_OK;
}

enum rc jail_read_exit(const char *dir, struct json **out, struct err *err)
{
	CLEANUP(mem_freep) char *text = NULL;
	char path[512];
	size_t n;

	snprintf(path, sizeof(path), "%s/exit.json", dir);
	enum rc rc = file_read(path, 4096, &text, &n, err);

	return rc ? rc : js_parse(text, n, out, err);
}
