#include "cli/box.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "cli/cmd.h"
#include "cli/supervise.h"
#include "net/link.h"
#include "net/ns.h"

/* linux/mount.h clashes with sys/mount.h: the two numbers that are needed. */
#ifndef MOUNT_ATTR_RDONLY
#define MOUNT_ATTR_RDONLY 0x00000001
#endif
struct attr {
	uint64_t attr_set, attr_clr, propagation, userns_fd;
};

static enum rc do_mount(const char *from, const char *to, const char *type, unsigned long flags,
			const char *data, struct err *err)
{
	if (mount(from, to, type, flags, data) < 0)
		return err_set_sys(err, errno, "cannot mount %s on '%s'", type ? type : from, to);
	return RC_OK;
}

static enum rc bind_fd(int tree, const char *to, struct err *err)
{
	enum rc rc = file_mkdir_p(to, 0755, err);

	if (!rc &&
	    syscall(SYS_move_mount, tree, "", AT_FDCWD, to, 4 /* MOVE_MOUNT_F_EMPTY_PATH */) < 0)
		rc = err_set_sys(err, errno, "cannot mount '%s'", to);
	return rc;
}

/* A detached copy of the mount at path, taken before everything becomes read-only. */
static enum rc clone_tree(const char *path, int *out, struct err *err)
{
	*out = (int)syscall(SYS_open_tree, AT_FDCWD, path,
			    1 /* OPEN_TREE_CLONE */ | O_CLOEXEC | AT_RECURSIVE);
	return *out < 0 ? err_set_sys(err, errno, "cannot take '%s' into the box", path) : RC_OK;
}

/* What comes from outside, as detached trees: the mounts below would hide it. -1: not there. */
struct trees {
	int state, shared, cgroup, bin;
};

static void trees_fini(struct trees *t)
{
	fd_close(t->state);
	fd_close(t->shared);
	fd_close(t->cgroup);
	fd_close(t->bin);
}

/* Only v2 is used (docs/internals/launcher.md).  The tree of v1 is one writable tmpfs that all boxes would
 * share, and of no use to any. */
static bool has_cgroup2(void)
{
	struct statfs st;

	return statfs("/sys/fs/cgroup", &st) == 0 && st.f_type == CGROUP2_SUPER_MAGIC;
}

static enum rc clone_trees(const struct box *b, struct trees *t, struct err *err)
{
	enum rc rc = clone_tree(b->state, &t->state, err);

	if (!rc)
		rc = clone_tree(b->shared, &t->shared, err);
	if (!rc && b->bin)
		rc = clone_tree(b->bin, &t->bin, err);
	if (!rc && has_cgroup2() && clone_tree("/sys/fs/cgroup", &t->cgroup, NULL))
		log_warn("box %s: no cgroups inside, going on without", b->name);
	return rc;
}

static enum rc make_read_only(const struct trees *t, struct err *err)
{
	const struct attr read_only = {.attr_set = MOUNT_ATTR_RDONLY};
	const int flags = AT_RECURSIVE | AT_EMPTY_PATH;

	if (syscall(SYS_mount_setattr, AT_FDCWD, "/", AT_RECURSIVE, &read_only, sizeof(read_only)) <
		    0 ||
	    (t->bin >= 0 &&
	     syscall(SYS_mount_setattr, t->bin, "", flags, &read_only, sizeof(read_only)) < 0))
		return err_set_sys(err, errno,
				   "cannot make the machine's files read-only for the box");
	return RC_OK;
}

/* The box's own file systems. */
static enum rc mount_own(const struct box *b, struct err *err)
{
	static const char *const memory[] = {"/run", "/tmp", "/var/tmp", "/dev/shm"};
	enum rc rc = do_mount("tmpfs", b->cover, "tmpfs", MS_NOSUID | MS_NODEV | MS_RDONLY,
			      "size=4k", err);

	for (size_t i = 0; i < ARRAY_SIZE(memory) && !rc; i++)
		if (access(memory[i], F_OK) == 0)
			rc = do_mount("tmpfs", memory[i], "tmpfs", MS_NOSUID | MS_NODEV,
				      "mode=1777", err);
	if (!rc && chmod("/run", 0755) < 0)
		rc = err_set_sys(err, errno, "cannot set the mode of /run");
	if (!rc)
		rc = do_mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL, err);
	if (!rc)
		rc = do_mount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL,
			      err);
	return rc;
}

static enum rc make_mounts(const struct box *b, struct err *err)
{
	CLEANUP(trees_fini) struct trees t = {-1, -1, -1, -1};
	enum rc rc = do_mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL, err);

	if (!rc)
		rc = clone_trees(b, &t, err);
	if (!rc)
		rc = make_read_only(&t, err);
	if (!rc)
		rc = mount_own(b, err);
	if (!rc && t.cgroup >= 0 && bind_fd(t.cgroup, "/sys/fs/cgroup", NULL))
		log_warn("box %s: no cgroups inside, going on without", b->name);
	if (!rc)
		rc = bind_fd(t.state, BOX_STATE, err);
	if (!rc)
		rc = bind_fd(t.shared, BOX_SHARED, err);
	if (!rc)
		rc = file_mkdir_p(BOX_RUN, 0755, err);
	/* Built in a folder that the box has as its own, such as /tmp: the programs must be there too. */
	if (!rc && b->bin && access(b->bin, F_OK) < 0)
		rc = bind_fd(t.bin, b->bin, err);
	return rc;
}

/* Called inside the new network namespace; `outside` is the machine's. */
static enum rc plug_cable(const struct box *b, int outside, struct err *err)
{
	CLEANUP(net_freep) struct net *out = NULL;
	CLEANUP(net_freep) struct net *in = NULL;
	CLEANUP(fd_closep) int here = -1;
	struct in_addr a, gw;
	unsigned prefix;
	enum rc rc = net_ns_self(&here, err);

	if (!rc)
		rc = net_cidr_parse(b->address, &a, &prefix, err);
	if (!rc)
		rc = net_ip4_parse(b->gateway, &gw, err);
	if (!rc)
		rc = net_open(&out, outside, err);
	if (!rc)
		rc = net_open(&in, here, err);
	if (rc)
		return rc;
	const struct net_veth v = {.name = b->link, .peer = "eth0", .peer_ns_fd = here};
	const struct net_link_set plug = {.up = NET_ON, .master = BOX_BRIDGE};
	const struct net_link_set up = {.up = NET_ON};
	const struct net_route def = {.via = gw, .dev = "eth0"};

	rc = net_veth_add(out, &v, err);
	if (!rc)
		rc = net_link_set(out, b->link, &plug, err);
	if (!rc)
		rc = net_link_set(in, "lo", &up, err);
	if (!rc)
		rc = net_link_set(in, "eth0", &up, err);
	if (!rc)
		rc = net_addr_add(in, "eth0", a, prefix, err);
	if (!rc)
		rc = net_route_set(in, &def, err);
	return rc;
}

static pid_t inside;

static void pass_on(int signo)
{
	if (inside > 0)
		kill(inside, signo);
}

/* The process outside: it only passes signals on and carries the exit code out. */
static NORETURN void wait_outside(const char *pidfile, int go)
{
	struct sigaction sa = {.sa_handler = pass_on};
	struct err err;
	int status = 0;

	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGINT, &sa, NULL);
	if (pidfile_write(pidfile, inside, &err))
		log_error("%s", err.msg);
	fd_close(go);
	while (waitpid(inside, &status, 0) < 0 && errno == EINTR)
		continue;
	(void)unlink(pidfile);
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

enum rc box_enter(const struct box *b, const char *pidfile, struct err *err)
{
	CLEANUP(fd_closep) int outside = -1;
	int go[2];
	char byte;
	enum rc rc = net_ns_self(&outside, err);

	if (!rc)
		rc = file_mkdir_p(b->state, 0755, err);
	if (rc)
		return rc;
	if (unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID) < 0)
		return err_set_sys(err, errno, "cannot make namespaces");
	rc = plug_cable(b, outside, err);
	if (rc)
		return rc;
	if (pipe2(go, O_CLOEXEC) < 0)
		return err_set_sys(err, errno, "cannot make a pipe");
	inside = fork();
	if (inside < 0)
		return err_set_sys(err, errno, "cannot fork");
	if (inside > 0) {
		fd_close(go[0]);
		wait_outside(pidfile, go[1]);
	}
	/* The pid file is written in this mount namespace too: nothing may be open for writing when its
	 * mounts become read-only. */
	fd_close(go[1]);
	if (read(go[0], &byte, 1) < 0)
		return err_set_sys(err, errno, "cannot wait for the process outside");
	fd_close(go[0]);
	if (sethostname(b->name, strlen(b->name)) < 0)
		return err_set_sys(err, errno, "cannot set the host name");
	return make_mounts(b, err);
}

/* ferry _box: what `ferry up` starts for each process that it keeps running. */

static enum rc redirect_output(const char *log, struct err *err)
{
	CLEANUP(fd_closep) int out = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	CLEANUP(fd_closep) int in = open("/dev/null", O_RDONLY | O_CLOEXEC);

	if (out < 0 || in < 0)
		return err_set_sys(err, errno, "cannot open '%s'", log);
	if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
		return err_set_sys(err, errno, "cannot redirect the output");
	return RC_OK;
}

static int box_run(const struct cmd *c, int argc, char **argv)
{
	const char *log = NULL, *pidfile = NULL;
	struct box b = {0};
	const struct opt opts[] = {
		{.name = "--log", .value = &log},
		{.name = "--pidfile", .value = &pidfile},
		{.name = "--name", .value = &b.name},
		{.name = "--state", .value = &b.state},
		{.name = "--shared", .value = &b.shared},
		{.name = "--cover", .value = &b.cover},
		{.name = "--link", .value = &b.link},
		{.name = "--address", .value = &b.address},
		{.name = "--gateway", .value = &b.gateway},
		{0},
	};
	struct err err = {0};
	int n;
	bool help;

	if (!cmd_parse(c, argc, argv, opts, &n, &help))
		return help ? EXIT_OK : EXIT_USAGE;
	if (n < 1 || !log)
		return cmd_usage(c, "--log FILE and a program are needed");
	argv[n] = NULL;
	(void)setsid(); /* fails only when we lead a session already */
	log_setup("ferry-up", LOG_LVL_INFO, false);
	enum rc rc = redirect_output(log, &err);
	CLEANUP(mem_freep) char *bin = mem_strdup(argv[0]);
	char *slash = bin ? strrchr(bin, '/') : NULL;

	if (slash && slash > bin) {
		*slash = '\0';
		b.bin = bin;
	}

	if (!rc && b.name)
		rc = box_enter(&b, pidfile, &err);
	if (rc) {
		log_error("%s", err.msg);
		return EXIT_FAIL;
	}
	return supervise(argv, 5 * USEC_PER_SEC);
}

const struct cmd cmd_box = {
	.name = "_box",
	.args = "--log FILE [node options] -- PROGRAM ARG...",
	.summary = "Keep a program running, in namespaces of its own when node options are given.",
	.hidden = true,
	.run = box_run,
};
