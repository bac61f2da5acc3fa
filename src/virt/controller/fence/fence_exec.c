/* The fence agent as a program of this host: found in one folder, run in a process group of its own, killed
 * when its time is over, judged by its exit code alone. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "ev/ev.h"
#include "virt/controller/fence/fence_exec.h"
#include "virt/controller/fence/fencer.h"

enum { SAID_MAX = 400 };

struct run {
	struct ev_src *child, *timer, *io;
	pid_t pid; /* 0: reaped */
	int fd;
	bool timed_out;
	char said[SAID_MAX + 1]; /* the last of what it printed */
	size_t n_said;
	fence_done_fn done;
	void *arg;
};

static void run_free(void *op)
{
	struct run *r = op;

	if (!r)
		return;
	/* Its group too: what it started must not go on without it. */
	if (r->pid > 0)
		(void)kill(-r->pid, SIGKILL);
	ev_src_free(r->io);
	ev_src_free(r->timer);
	ev_src_free(r->child);
	fd_close(r->fd);
	mem_free(r);
}

static void keep_said(struct run *r, const char *bytes, size_t n)
{
	if (n > SAID_MAX) {
		bytes += n - SAID_MAX;
		n = SAID_MAX;
	}
	size_t over = r->n_said + n > SAID_MAX ? r->n_said + n - SAID_MAX : 0;

	memmove(r->said, r->said + over, r->n_said - over);
	r->n_said -= over;
	for (size_t i = 0; i < n; i++) /* it goes into an object: plain text only */
		r->said[r->n_said++] = bytes[i] >= ' ' && bytes[i] < 127 ? bytes[i] : ' ';
}

static void read_said(struct run *r)
{
	char chunk[1024];
	ssize_t n;

	while (r->fd >= 0 && (n = read(r->fd, chunk, sizeof(chunk))) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return;
		keep_said(r, chunk, (size_t)n);
	}
	r->io = ev_src_free(r->io); /* end of file */
}

static void on_io(uint32_t revents, void *arg)
{
	(void)revents;
	read_said(arg);
}

static void on_timeout(void *arg)
{
	struct run *r = arg;

	r->timed_out = true;
	if (r->pid > 0)
		(void)kill(-r->pid, SIGKILL);
}

static void on_child(pid_t pid, int status, void *arg)
{
	struct run *r = arg;
	char text[SAID_MAX + 64];
	int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;

	(void)kill(-pid, SIGKILL); /* whatever it left behind */
	r->pid = 0;
	read_said(r);
	r->said[r->n_said] = '\0';
	if (r->timed_out)
		code = -1; /* also when it ended well in the same moment: nothing is proven late */
	struct str said = str_trim(str_of(r->said));

	if (r->timed_out)
		(void)snprintf(text, sizeof(text), "it took too long and was killed");
	else if (!WIFEXITED(status))
		(void)snprintf(text, sizeof(text), "killed by signal %d", WTERMSIG(status));
	else
		(void)snprintf(text, sizeof(text), "%.*s", (int)said.n, said.n ? said.p : "");
	r->done(code, text, r->arg);
}

/* Whoever may write the program decides what is proven. */
static enum rc check_program(const char *path, struct err *err)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return err_set_sys(err, errno, "cannot find the fence agent '%s'", path);
	if (!S_ISREG(st.st_mode) || !(st.st_mode & 0111))
		return err_set(err, RC_INVALID, "the fence agent '%s' is no program", path);
	if (st.st_mode & 022)
		return err_set(err, RC_FORBIDDEN,
			       "the fence agent '%s' can be written by others than its owner",
			       path);
	return RC_OK;
}

static enum rc spawn(struct run *r, const char *path, const char *node, char *const env[],
		     struct err *err)
{
	const char *argv[] = {path, node, NULL};
	posix_spawn_file_actions_t fa;
	posix_spawnattr_t attr;
	sigset_t none;
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0)
		return err_set_sys(err, errno, "cannot make a pipe");
	r->fd = ends[0];
	(void)fcntl(r->fd, F_SETFL, O_NONBLOCK);
	sigemptyset(&none);
	posix_spawn_file_actions_init(&fa);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setpgroup(&attr, 0);
	posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&fa, ends[1], 1);
	posix_spawn_file_actions_adddup2(&fa, ends[1], 2);
	int rc = posix_spawn(&r->pid, path, &fa, &attr, (char *const *)(uintptr_t)argv, env);

	posix_spawn_file_actions_destroy(&fa);
	posix_spawnattr_destroy(&attr);
	(void)close(ends[1]);
	if (rc) {
		r->pid = 0;
		return err_set_sys(err, rc, "cannot run '%s'", path);
	}
	return RC_OK;
}

static enum rc start_run(struct run *r, struct loop *loop, const char *path,
			 const struct fence_job *job, struct err *err)
{
	CLEANUP(mem_freep) char *node = mem_printf("FERRY_NODE=%s", job->node);
	CLEANUP(mem_freep) char *address = mem_printf("FERRY_NODE_ADDRESS=%s", job->address);
	CLEANUP(mem_freep)
	char *epoch = mem_printf("FERRY_FENCE_EPOCH=%lld", (long long)job->epoch);
	char *env[] = {(char *)(uintptr_t) "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:"
					   "/sbin:/bin",
		       node, address, epoch, NULL};
	enum rc rc = node && address && epoch ? spawn(r, path, job->node, env, err)
					      : err_set(err, RC_NOMEM, "out of memory");

	if (!rc)
		rc = ev_child(loop, &r->child, r->pid, on_child, r, err);
	if (!rc)
		rc = ev_timer_after(loop, &r->timer, job->timeout, on_timeout, r, err);
	return rc ? rc : ev_io(loop, &r->io, r->fd, EPOLLIN, on_io, r, err);
}

static enum rc start(void *ctx, const struct fence_job *job, fence_done_fn done, void *arg,
		     void **op, struct err *err)
{
	const struct fence_exec *x = ctx;
	CLEANUP(mem_freep) char *path = NULL;

	if (!x->folder)
		return err_set(err, RC_UNSUPPORTED,
			       "this controller was given no folder of fence agents "
			       "(--fence-agents)");
	if (strchr(job->program, '/') || job->program[0] == '.')
		return err_set(err, RC_INVALID, "'%s' is no name of a file", job->program);
	path = mem_printf("%s/%s", x->folder, job->program);
	struct run *r = mem_alloc(sizeof(*r));

	if (!r || !path) {
		mem_free(r);
		return err_set(err, RC_NOMEM, "out of memory");
	}
	r->fd = -1;
	r->done = done;
	r->arg = arg;
	enum rc rc = check_program(path, err);

	if (!rc)
		rc = start_run(r, x->loop, path, job, err);
	if (rc)
		run_free(r);
	else
		*op = r;
	return rc;
}

const struct fence_ops fence_exec_ops = {.start = start, .free = run_free};
