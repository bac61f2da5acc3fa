#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"
#include "virt/launcher/launcher_int.h"

/* What a launcher must know about a VM that another launcher started.  The writes are synchronous: one
 * VM lives in this process, and nothing may happen to it before the record is there. */

void path_in(const struct launcher *l, const char *name, char out[PATH_LEN])
{
	snprintf(out, PATH_LEN, "%s/%s", l->config.dir, name);
}

/* Whole or not at all, for whoever looks after this process has died.  Not for whoever looks after the
 * machine has: QEMU has died with it, and fsync would stand in the guest's pause. */
enum rc record_swap(const char *path, const char *text, size_t n, mode_t mode, struct err *err)
{
	char fresh[PATH_LEN + 8];

	snprintf(fresh, sizeof(fresh), "%s.new", path);
	(void)unlink(fresh);
	CLEANUP(fd_closep)
	int fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);

	if (fd < 0)
		return err_set_sys(err, errno, "cannot create '%s'", fresh);
	enum rc rc = file_write_all(fd, text, n, err);

	if (!rc && rename(fresh, path) < 0)
		rc = err_set_sys(err, errno, "cannot rename '%s' to '%s'", fresh, path);
	return rc;
}

enum rc record_write(const struct launcher *l, const char *name, const struct json *j, bool durable,
		     struct err *err)
{
	CLEANUP(mem_freep) char *text = j ? js_to_text(j) : NULL;
	char path[PATH_LEN];

	if (!text)
		return err_set(err, RC_NOMEM, "cannot print %s", name);
	path_in(l, name, path);
	return durable ? file_write_durable(path, text, strlen(text), 0600, err)
		       : record_swap(path, text, strlen(text), 0600, err);
}

enum rc record_read(const struct launcher *l, const char *name, struct json **out, struct err *err)
{
	CLEANUP(mem_freep) char *text = NULL;
	char path[PATH_LEN];
	size_t n;

	path_in(l, name, path);
	enum rc rc = file_read(path, LIMIT_FILE_BYTES, &text, &n, err);

	return rc ? rc : js_parse(text, n, out, err);
}

static void boot_id(char out[40])
{
	CLEANUP(mem_freep) char *text = NULL;
	size_t n;

	out[0] = '\0';
	if (!file_read("/proc/sys/kernel/random/boot_id", 64, &text, &n, NULL))
		snprintf(out, 40, "%.36s", text);
}

/* --- processes --- */

static bool start_of(pid_t pid, uint64_t *start)
{
	CLEANUP(mem_freep) char *text = NULL;
	char path[40];
	size_t n;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (file_read(path, 4096, &text, &n, NULL))
		return false;
	char *at = strrchr(text, ')'); /* the name may hold anything */

	/* ") S ppid ..." : the start time is the 20th field after the name */
	for (int field = 0; at && field < 20; field++)
		at = strchr(at + 1, ' ');
	struct str rest = str_of(at ? at + 1 : NULL);
	struct str number = str_split(&rest, ' ');
	char digits[24];

	if (!number.p || number.n >= sizeof(digits))
		return false;
	memcpy(digits, number.p, number.n);
	digits[number.n] = '\0';
	return str_to_u64(digits, UINT64_MAX, start, NULL) == RC_OK;
}

bool proc_identify(struct proc *p)
{
	return p->pid > 0 && start_of(p->pid, &p->start);
}

enum rc proc_open(struct proc *p, struct err *err)
{
	uint64_t start;

	if (p->pid <= 0)
		return err_set(err, RC_NOT_FOUND, "no process");
	CLEANUP(fd_closep) int fd = (int)syscall(SYS_pidfd_open, p->pid, 0);

	if (fd < 0)
		return errno == ESRCH
			       ? err_set(err, RC_NOT_FOUND, "process %d has ended", (int)p->pid)
			       : err_set_sys(err, errno, "cannot open process %d", (int)p->pid);
	/* The descriptor pins the pid; only now does its start time prove that it is the same process. */
	if (!start_of(p->pid, &start) || start != p->start)
		return err_set(err, RC_NOT_FOUND, "process %d is another one by now", (int)p->pid);
	p->pidfd = STEAL_FD(fd);
	return RC_OK;
}

void proc_close(struct proc *p)
{
	p->pidfd = fd_close(p->pidfd);
}

/* --- vm.json --- */

static const char *const mode_names[] = {"run", "paused", "incoming"};
static_assert(ARRAY_SIZE(mode_names) == QEMU_MODE__MAX, "name every mode");

static struct json *proc_json(const struct proc *p)
{
	return js_pack("{s:i, s:I}", "pid", (int)p->pid, "start", (int64_t)p->start);
}

enum rc record_save(const struct launcher *l, struct err *err)
{
	CLEANUP(js_unrefp) struct json *j = NULL;
	char boot[40];

	boot_id(boot);
	j = js_pack("{s:i, s:s, s:s, s:s, s:s, s:s, s:b, s:o, s:o, s:o}", "version", 1, "bootId",
		    boot, "mode", mode_names[l->mode], "accel", l->accel, "accelReason",
		    l->accel_reason, "machine", l->machine, "cgroup", l->cgroup, "reaper",
		    proc_json(&l->reaper), "qemu", proc_json(&l->qemu), "spec",
		    launch_spec_encode(l->spec));
	return record_write(l, "vm.json", j, false, err);
}

static void copy_str(char *out, size_t n, const struct json *j, const char *key)
{
	const char *s = js_get_str(j, key);

	snprintf(out, n, "%s", s ? s : "");
}

static void load_proc(struct proc *p, const struct json *j)
{
	p->pid = (pid_t)js_get_int(j, "pid", 0);
	p->start = (uint64_t)js_get_int(j, "start", 0);
}

static bool is_reaper(pid_t pid)
{
	CLEANUP(mem_freep) char *name = NULL;
	char path[40];
	size_t n;

	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	return !file_read(path, 64, &name, &n, NULL) && str_eq(name, "ferry-reaper\n");
}

static pid_t read_pid(const char *path)
{
	CLEANUP(mem_freep) char *text = NULL;
	uint64_t pid = 0;
	size_t n;

	if (file_read(path, 256, &text, &n, NULL))
		return 0;
	text[strcspn(text, " \n")] = '\0';
	return str_to_u64(text, INT32_MAX, &pid, NULL) ? 0 : (pid_t)pid;
}

/* QEMU may have started although its pids were never recorded: the launcher died in between.  The reaper
 * wrote its own; QEMU is its only child. */
static void find_unrecorded(struct launcher *l)
{
	char path[PATH_LEN];

	path_in(l, "reaper.pid", path);
	l->reaper.pid = read_pid(path);
	if (!is_reaper(l->reaper.pid) || !proc_identify(&l->reaper)) {
		l->reaper.pid = 0;
		return;
	}
	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)l->reaper.pid,
		 (int)l->reaper.pid);
	l->qemu.pid = read_pid(path);
	if (!proc_identify(&l->qemu))
		l->qemu.pid = 0;
}

enum rc record_load(struct launcher *l, struct err *err)
{
	CLEANUP(js_unrefp) struct json *j = NULL;
	char boot[40];
	enum rc rc = record_read(l, "vm.json", &j, err);

	if (rc)
		return rc;
	if (js_get_int(j, "version", 0) != 1)
		return err_set(err, RC_UNSUPPORTED, "vm.json is of another version of Ferry");
	rc = launch_spec_decode(js_get(j, "spec"), &l->spec, err);
	if (rc)
		return rc;
	for (size_t i = 0; i < ARRAY_SIZE(mode_names); i++)
		if (str_eq(js_get_str(j, "mode"), mode_names[i]))
			l->mode = (enum qemu_mode)i;
	copy_str(l->accel, sizeof(l->accel), j, "accel");
	copy_str(l->accel_reason, sizeof(l->accel_reason), j, "accelReason");
	copy_str(l->machine, sizeof(l->machine), j, "machine");
	l->cgroup = js_get_bool(j, "cgroup", false);
	boot_id(boot);
	if (str_eq(js_get_str(j, "bootId"), boot)) { /* after a reboot the pids mean nothing */
		load_proc(&l->reaper, js_get(j, "reaper"));
		load_proc(&l->qemu, js_get(j, "qemu"));
		if (!l->reaper.pid)
			find_unrecorded(l);
	}
	return RC_OK;
}
