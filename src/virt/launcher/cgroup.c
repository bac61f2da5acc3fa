#include "virt/launcher/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/file.h"

static const char *find_root(const char *root)
{
	struct statfs st;

	if (root)
		return root;
	return statfs("/sys/fs/cgroup", &st) == 0 && st.f_type == CGROUP2_SUPER_MAGIC
		       ? "/sys/fs/cgroup"
		       : NULL;
}

/* errno of the write, 0 when it worked. */
static int write_knob(const char *dir, const char *knob, const char *text)
{
	char path[600];

	snprintf(path, sizeof(path), "%s/%s", dir, knob);
	CLEANUP(fd_closep) int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return errno;
	return write(fd, text, strlen(text)) < 0 ? errno : 0;
}

/* Makes the path below root, handing the controllers down at each step; a controller that the kernel
 * refuses is met again when its limit is written. */
static enum rc make_path(const char *root, const char *path, char *dir, size_t size,
			 struct err *err)
{
	static const char *const controllers[] = {"+memory", "+cpu", "+pids"};
	size_t n = (size_t)snprintf(dir, size, "%s", root);

	for (const char *at = path; *at;) {
		size_t part = strcspn(at, "/");

		for (size_t i = 0; i < ARRAY_SIZE(controllers); i++)
			write_knob(dir, "cgroup.subtree_control", controllers[i]);
		if (n + part + 2 > size)
			return err_set(err, RC_INVALID, "the cgroup's path is too long");
		n += (size_t)snprintf(dir + n, size - n, "/%.*s", (int)part, at);
		if (mkdir(dir, 0755) < 0 && errno != EEXIST)
			return err_set_sys(err, errno, "cannot make the cgroup '%s'", dir);
		at += part + (at[part] == '/');
	}
	return RC_OK;
}

static enum rc set_limit(const char *dir, const char *knob, const char *text, struct err *err)
{
	int e = write_knob(dir, knob, text);

	if (e == ENOENT || e == EACCES)
		return err_set(err, RC_UNSUPPORTED,
			       "the cgroup '%s' has no %s: its controller is not enabled there",
			       dir, knob);
	return e ? err_set_sys(err, e, "cannot write %s of the cgroup '%s'", knob, dir) : RC_OK;
}

enum rc cgroup_prepare(const char *root, const struct launch_cgroup *c, int *procs_fd,
		       struct err *err)
{
	char dir[512], text[64], procs[600];
	enum rc rc = RC_OK;

	root = find_root(root);
	if (!root || !c->path) {
		*procs_fd = -1;
		return RC_OK;
	}
	rc = make_path(root, c->path, dir, sizeof(dir), err);
	if (!rc && c->memory_max) {
		snprintf(text, sizeof(text), "%" PRId64 "\n", c->memory_max);
		rc = set_limit(dir, "memory.max", text, err);
	}
	if (!rc && c->cpu_weight) {
		snprintf(text, sizeof(text), "%" PRId64 "\n", c->cpu_weight);
		rc = set_limit(dir, "cpu.weight", text, err);
	}
	if (!rc && c->cpu_quota_us) {
		snprintf(text, sizeof(text), "%" PRId64 " 100000\n", c->cpu_quota_us);
		rc = set_limit(dir, "cpu.max", text, err);
	}
	if (rc)
		return rc;
	snprintf(procs, sizeof(procs), "%s/cgroup.procs", dir);
	int fd = open(procs, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return err_set_sys(err, errno, "cannot open '%s'", procs);
	*procs_fd = fd;
	return RC_OK;
}

bool cgroup_remove(const char *root, const struct launch_cgroup *c)
{
	char dir[512];

	root = find_root(root);
	if (!root || !c->path)
		return true;
	snprintf(dir, sizeof(dir), "%s/%s", root, c->path);
	return rmdir(dir) == 0 || errno == ENOENT;
}
