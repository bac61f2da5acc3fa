#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"
#include "json/json.h"
#include "virt/launcher/caps.h"
#include "virt/launcher/jail.h"

/* Stage one, the reaper, and the last steps before QEMU.  One thread, no event loop: each step either
 * works or is reported with its name, and the process ends.
 */

struct setup {
	const char *dir;
	uid_t uid;
	gid_t gid;
	int netns, kernel, initrd, cgroup, err_fd, status, dir_fd;
	bool kvm;
	long oom;
	char **argv;
	int keep[JAIL_MAX_FDS];
	size_t n_keep;
	int boot_mount[2]; /* detached mounts of kernel and initrd; -1: copy instead */
};

NORETURN static void die(const struct setup *s, const char *fmt, ...) PRINTF_LIKE(2, 3);
NORETURN static void die(const struct setup *s, const char *fmt, ...)
{
	int saved = errno;
	char text[280] = "error ";
	va_list ap;

	va_start(ap, fmt);
	int n = vsnprintf(text + 6, 200, fmt, ap);

	va_end(ap);
	snprintf(text + 6 + MIN(n, 199), sizeof(text) - 206, ": %s", strerror(saved));
	send(s->status, text, strlen(text), MSG_NOSIGNAL);
	_exit(126);
}

static void say(const struct setup *s, const char *text)
{
	if (send(s->status, text, strlen(text), MSG_NOSIGNAL) < 0)
		_exit(126); /* nobody listens: the launcher died while starting us */
}

/* --- configuration --- */

static int int_of(const struct json *j, const char *key)
{
	return (int)js_get_int(j, key, -1);
}

static void read_config(struct setup *s, int config_fd)
{
	static struct json *j; /* lives as long as the process */
	static char text[LIMIT_IPC_BYTES];
	ssize_t n = pread(config_fd, text, sizeof(text), 0);

	js_use_mem();
	if (n <= 0 || js_parse(text, (size_t)n, &j, NULL))
		_exit(125);
	s->dir = js_get_str(j, "dir");
	s->uid = (uid_t)js_get_int(j, "uid", 0);
	s->gid = (gid_t)js_get_int(j, "gid", 0);
	s->netns = int_of(j, "netns");
	s->kernel = int_of(j, "kernel");
	s->initrd = int_of(j, "initrd");
	s->cgroup = int_of(j, "cgroup");
	s->err_fd = int_of(j, "stderr");
	s->status = int_of(j, "status");
	s->kvm = js_get_bool(j, "kvm", false);
	s->oom = (long)js_get_int(j, "oom", 0);
	s->n_keep = js_len(js_get(j, "keep"));
	s->argv = mem_calloc(js_len(js_get(j, "argv")) + 1, sizeof(char *));
	if (!s->argv || !s->dir || !s->uid || !s->gid || s->n_keep > JAIL_MAX_FDS)
		_exit(125);
	for (size_t i = 0; i < s->n_keep; i++)
		s->keep[i] = (int)js_int(js_item(js_get(j, "keep"), i), -1);
	for (size_t i = 0; i < js_len(js_get(j, "argv")); i++)
		s->argv[i] = (char *)js_str(js_item(js_get(j, "argv"), i));
	fcntl(s->status, F_SETFD, FD_CLOEXEC);
	close(config_fd);
}

/* --- the view --- */

static void make_dir(const struct setup *s, const char *path)
{
	char part[256];

	for (size_t i = 1; path[i - 1]; i++) {
		if (path[i] != '/' && path[i] != '\0')
			continue;
		snprintf(part, sizeof(part), "%.*s", (int)i, path);
		if (mkdir(part, 0755) < 0 && errno != EEXIST)
			die(s, "cannot make '%s' in the jail", path);
	}
}

static void make_file(const struct setup *s, const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);

	if (fd < 0)
		die(s, "cannot make '%s' in the jail", path);
	close(fd);
}

/* Bind source (absolute) to target (relative to the new root), read-only.  A missing source is fine. */
static void bind_read_only(const struct setup *s, const char *source, const char *target)
{
	struct stat st;

	if (stat(source, &st) < 0)
		return;
	if (S_ISDIR(st.st_mode)) {
		make_dir(s, target);
	} else {
		char parent[256];
		const char *slash = strrchr(target, '/');

		snprintf(parent, sizeof(parent), "%.*s", (int)(slash ? slash - target : 0), target);
		make_dir(s, parent);
		make_file(s, target);
	}
	if (mount(source, target, NULL, MS_BIND, NULL) < 0 ||
	    mount(NULL, target, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV,
		  NULL) < 0)
		die(s, "cannot bind '%s' into the jail", source);
}

static void make_device(const struct setup *s, const char *host, const char *path, bool own)
{
	struct stat st;

	if (stat(host, &st) < 0 || !S_ISCHR(st.st_mode))
		return;
	if (mknod(path, S_IFCHR | (own ? 0600 : 0666), st.st_rdev) == 0) {
		if (chmod(path, own ? 0600 : 0666) < 0 || (own && chown(path, s->uid, s->gid) < 0))
			die(s, "cannot own '%s'", path);
		return;
	}
	/* Device nodes may be forbidden here (a container): then the host's own node is shown. */
	make_file(s, path);
	if (mount(host, path, NULL, MS_BIND, NULL) < 0)
		die(s, "cannot give the jail '%s'", host);
}

static void copy_file(const struct setup *s, int from, const char *path)
{
	int to = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0444);
	off_t at = 0;
	struct stat st;

	if (to < 0 || fchmod(to, 0444) < 0 || fstat(from, &st) < 0)
		die(s, "cannot copy into '%s'", path);
	while (at < st.st_size) {
		ssize_t n = copy_file_range(from, &at, to, NULL, (size_t)(st.st_size - at), 0);

		if (n <= 0) {
			static char chunk[65536];

			n = pread(from, chunk, sizeof(chunk), at);
			if (n <= 0 || file_write_all(to, chunk, (size_t)n, NULL))
				die(s, "cannot copy into '%s'", path);
			at += n;
		}
	}
	close(to);
}

static bool may_read(const struct setup *s, const struct stat *st)
{
	return (st->st_mode & 0004) || (st->st_uid == s->uid && (st->st_mode & 0400)) ||
	       (st->st_gid == s->gid && (st->st_mode & 0040));
}

/* A detached mount of the file behind fd, made while we are still in the namespace it was opened in;
 * -1 when that cannot be done or the VM's uid could not read it: then it is copied. */
static int detached_mount(const struct setup *s, int fd)
{
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || !may_read(s, &st))
		return -1;
	return (int)syscall(SYS_open_tree, fd, "",
			    1 /* OPEN_TREE_CLONE */ | O_CLOEXEC | 0x1000 /* AT_EMPTY_PATH */);
}

static void place_boot_file(const struct setup *s, int fd, int tree, const char *path)
{
	if (fd < 0)
		return;
	if (tree >= 0) {
		make_file(s, path);
		if (syscall(SYS_move_mount, tree, "", AT_FDCWD, path,
			    4 /* MOVE_MOUNT_F_EMPTY_PATH */) == 0 &&
		    mount(NULL, path, NULL,
			  MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC,
			  NULL) == 0)
			return;
		umount2(path, MNT_DETACH);
		unlink(path);
	}
	copy_file(s, fd, path);
}

/* A QEMU that somebody has installed beside the system's (<prefix>/bin/qemu-...) looks for its firmware in its own
 * <prefix>/share/qemu. */
static void bind_own_firmware(const struct setup *s)
{
	const char *slash = strrchr(s->argv[0], '/');
	size_t n = slash ? (size_t)(slash - s->argv[0]) : 0;
	char path[256];

	if (n <= strlen("/bin") || strncmp(slash - strlen("/bin"), "/bin", strlen("/bin")) != 0)
		return;
	n -= strlen("/bin");
	if (n == strlen("/usr") && strncmp(s->argv[0], "/usr", n) == 0)
		return; /* every jail has it */
	if ((size_t)snprintf(path, sizeof(path), "%.*s/share/qemu", (int)n, s->argv[0]) <
	    sizeof(path))
		bind_read_only(s, path, path + 1);
}

/* Current directory: the new root. */
static void fill_view(const struct setup *s)
{
	static const char *const trees[] = {"/usr/share/qemu", "/usr/share/seabios",
					    "/usr/lib/ipxe", "/usr/lib64"};
	struct stat st;
	char creds[512];

	bind_read_only(s,
		       stat("/usr/lib/x86_64-linux-gnu", &st) == 0 ? "/usr/lib/x86_64-linux-gnu"
								   : "/usr/lib",
		       stat("/usr/lib/x86_64-linux-gnu", &st) == 0 ? "usr/lib/x86_64-linux-gnu"
								   : "usr/lib");
	for (size_t i = 0; i < ARRAY_SIZE(trees); i++)
		bind_read_only(s, trees[i], trees[i] + 1);
	if (symlink("usr/lib", "lib") < 0 || symlink("usr/lib64", "lib64") < 0)
		die(s, "cannot make links in the jail");
	bind_read_only(s, s->argv[0], s->argv[0] + 1);
	bind_own_firmware(s);
	snprintf(creds, sizeof(creds), "%s/creds", s->dir);
	bind_read_only(s, creds, "creds");
	make_dir(s, "boot");
	place_boot_file(s, s->kernel, s->boot_mount[0], "boot/kernel");
	place_boot_file(s, s->initrd, s->boot_mount[1], "boot/initrd");
	make_dir(s, "dev");
	if (mount("ferry-dev", "dev", "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=0755,size=64k") < 0)
		die(s, "cannot mount the jail's /dev");
	make_device(s, "/dev/null", "dev/null", false);
	make_device(s, "/dev/zero", "dev/zero", false);
	make_device(s, "/dev/urandom", "dev/urandom", false);
	make_device(s, "/dev/userfaultfd", "dev/userfaultfd", true);
	if (s->kvm)
		make_device(s, "/dev/kvm", "dev/kvm", true);
	if (mount(NULL, "dev", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NOEXEC,
		  NULL) < 0)
		die(s, "cannot close the jail's /dev");
}

static void enter_view(const struct setup *s)
{
	char root[512];

	snprintf(root, sizeof(root), "%s/root", s->dir);
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		die(s, "cannot make the mounts private");
	if (mount("ferry-jail", root, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=512m") < 0 ||
	    chdir(root) < 0)
		die(s, "cannot mount the jail's root");
	fill_view(s);
	/* The new root is put over the old one, which is then let go. */
	if (syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
		die(s, "cannot pivot into the jail");
	if (mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL) <
	    0)
		die(s, "cannot close the jail's root");
}

/* --- QEMU --- */

static int by_number(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

/* Closes everything above stderr but the kept ones and the status socket (which closes at exec). */
static void close_others(const struct setup *s)
{
	int keep[JAIL_MAX_FDS + 1];
	size_t n = s->n_keep;
	unsigned from = 3;

	memcpy(keep, s->keep, n * sizeof(int));
	keep[n++] = s->status;
	qsort(keep, n, sizeof(int), by_number);
	for (size_t i = 0; i < n; i++) {
		if (keep[i] > (int)from)
			close_range(from, (unsigned)keep[i] - 1, 0);
		from = MAX(from, (unsigned)keep[i] + 1);
	}
	close_range(from, ~0u, 0);
}

NORETURN static void become_qemu(struct setup *s)
{
	static char *const env[] = {(char *)"PATH=/usr/bin", (char *)"LANG=C", NULL};
	struct rlimit none = {0, 0}, files = {0, 0};
	struct err err = {0};

	say(s, "qemu");
	if (dup2(s->err_fd, STDOUT_FILENO) < 0 || dup2(s->err_fd, STDERR_FILENO) < 0)
		die(s, "cannot redirect QEMU's output");
	close_others(s);
	/* Enough for many disks and channels, and never more than was allowed to us. */
	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		die(s, "cannot read the limits");
	files.rlim_max = MIN(files.rlim_max, (rlim_t)65536);
	files.rlim_cur = files.rlim_max;
	if (setrlimit(RLIMIT_CORE, &none) < 0 || setrlimit(RLIMIT_NOFILE, &files) < 0)
		die(s, "cannot set QEMU's limits");
	if (setgroups(0, NULL) < 0 || setresgid(s->gid, s->gid, s->gid) < 0)
		die(s, "cannot change to the VM's gid");
	/* Before the uid changes: shrinking the bounding set takes a capability. */
	for (int c = 0; c < 64; c++)
		if (prctl(PR_CAPBSET_DROP, c, 0, 0, 0) < 0 && errno != EINVAL)
			die(s, "cannot shrink QEMU's capability bounding set");
	if (setresuid(s->uid, s->uid, s->uid) < 0)
		die(s, "cannot change to the VM's uid");
	if (caps_enter(STAGE_NONE, &err))
		die(s, "%s", err.msg);
	for (int sig = 1; sig < 32; sig++)
		signal(sig, SIG_DFL);
	umask(0077);
	execve(s->argv[0], s->argv, env);
	die(s, "cannot run '%s'", s->argv[0]);
}

/* --- the reaper --- */

static void write_exit(int dir_fd, int status)
{
	unsigned long long at = clock_realtime();
	char text[160];
	int n = WIFSIGNALED(status)
			? snprintf(text, sizeof(text), "{\"signal\": %d, \"at\": %llu}\n",
				   WTERMSIG(status), at)
			: snprintf(text, sizeof(text),
				   "{\"exited\": true, \"code\": %d, \"at\": %llu}\n",
				   WEXITSTATUS(status), at);
	int fd = openat(dir_fd, "exit.json.new",
			O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);

	if (fd < 0)
		return; /* the folder is gone: nobody wants to know any more */
	if (write(fd, text, (size_t)n) == n && fsync(fd) == 0 &&
	    renameat(dir_fd, "exit.json.new", dir_fd, "exit.json") == 0)
		fsync(dir_fd);
	close(fd);
}

NORETURN static void reap(int dir_fd, pid_t qemu)
{
	for (;;) {
		int status;
		pid_t pid = waitpid(-1, &status, 0);

		if (pid < 0 && errno == EINTR)
			continue;
		if (pid == qemu)
			write_exit(dir_fd, status);
		if (pid == qemu || pid < 0)
			_exit(0);
	}
}

/* Our pid as the node sees it: /proc is still the node's.  For a launcher that finds a VM whose pids were
 * never recorded, because its predecessor died in between. */
static void write_pid(const struct setup *s)
{
	char pid[24];
	ssize_t n = readlink("/proc/self", pid, sizeof(pid));
	int fd = openat(s->dir_fd, "reaper.pid",
			O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (n <= 0 || fd < 0 || write(fd, pid, (size_t)n) != n)
		die(s, "cannot write reaper.pid");
	close(fd);
}

NORETURN static void become_reaper(struct setup *s)
{
	int null_fd;
	struct err err = {0};

	prctl(PR_SET_NAME, "ferry-reaper");
	for (int sig = 1; sig < 32; sig++)
		if (sig != SIGCHLD)
			signal(sig, SIG_IGN);
	say(s, "reaper");
	write_pid(s);
	enter_view(s);
	if (sethostname("vm", 2) < 0)
		die(s, "cannot name the jail");
	null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null_fd < 0 || dup2(null_fd, STDIN_FILENO) < 0)
		die(s, "cannot open /dev/null");
	pid_t qemu = fork();

	if (qemu < 0)
		die(s, "cannot fork");
	if (qemu == 0)
		become_qemu(s);
	dup2(null_fd, STDOUT_FILENO);
	dup2(null_fd, STDERR_FILENO);
	/* Whoever hands descriptors over closes its copies: only the folder stays. */
	int dir_fd = dup2(s->dir_fd, 3);

	close_range(4, ~0u, 0);
	if (dir_fd < 0 || caps_enter(STAGE_REAPER, &err))
		_exit(126);
	reap(dir_fd, qemu);
}

static void join_cgroup(const struct setup *s)
{
	if (s->cgroup >= 0 && write(s->cgroup, "0\n", 2) != 2)
		die(s, "cannot join the VM's cgroup");
}

static void set_oom_score(const struct setup *s)
{
	char text[16];
	int n = snprintf(text, sizeof(text), "%ld\n", s->oom);
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, (size_t)n) != n)
		die(s, "cannot set the OOM score");
	close(fd);
}

void jail_main(int config_fd)
{
	struct setup s = {.dir_fd = -1};

	read_config(&s, config_fd);
	prctl(PR_SET_PDEATHSIG, 0);
	setsid();
	umask(0022);
	s.dir_fd = open(s.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (s.dir_fd < 0 || chdir("/") < 0)
		die(&s, "cannot open '%s'", s.dir);
	join_cgroup(&s);
	set_oom_score(&s);
	s.boot_mount[0] = detached_mount(&s, s.kernel);
	s.boot_mount[1] = detached_mount(&s, s.initrd);
	if (s.netns >= 0 && setns(s.netns, CLONE_NEWNET) < 0)
		die(&s, "cannot enter the pod's network namespace");
	if (unshare(CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWPID) < 0)
		die(&s, "cannot make namespaces");
	pid_t pid = fork();

	if (pid < 0)
		die(&s, "cannot fork");
	if (pid == 0)
		become_reaper(&s);
	_exit(0);
}
