/* src/cli/doctor.c - what this machine can and cannot do for Ferry, and why.
 *
 * Every line is something that was tried just now, not read from a version.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "cli/cmd.h"
#include "cli/upgrade.h"
#include "net/link.h"
#include "net/nft.h"
#include "net/ns.h"

enum verdict { GOOD, WARN, BAD };

struct report {
	bool color;
	unsigned bad;
};

static void say(struct report *r, enum verdict v, const char *what, const char *fmt, ...)
	PRINTF_LIKE(4, 5);

static void say(struct report *r, enum verdict v, const char *what, const char *fmt, ...)
{
	static const char *const marks[] = {"ok  ", "note", "FAIL"};
	static const char *const colors[] = {"\033[32m", "\033[33m", "\033[31m"};
	char text[600];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	printf("%s%s%s %-22s %s\n", r->color ? colors[v] : "", marks[v], r->color ? "\033[0m" : "",
	       what, text);
	r->bad += v == BAD;
}

bool cmd_first_line(const char *const argv[], char *out, size_t size)
{
	int p[2], status = 0;
	size_t n = 0;

	out[0] = '\0';
	if (pipe2(p, O_CLOEXEC) < 0)
		return false;
	pid_t pid = fork();

	if (pid == 0) {
		int null = open("/dev/null", O_RDWR);

		dup2(null, 0);
		dup2(p[1], 1);
		dup2(null, 2);
		execvp(argv[0], (char *const *)(uintptr_t)argv);
		_exit(127);
	}
	close(p[1]);
	for (ssize_t k; n + 1 < size && (k = read(p[0], out + n, size - 1 - n)) > 0;)
		n += (size_t)k;
	close(p[0]);
	out[n] = '\0';
	out[strcspn(out, "\n")] = '\0';
	return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
	       WEXITSTATUS(status) == 0;
}

static void check_qemu(struct report *r)
{
	static const char *const qemu[] = {"qemu-system-x86_64", "--version", NULL};
	static const char *const img[] = {"qemu-img", "--version", NULL};
	char line[256];
	int major = 0;

	if (!cmd_first_line(qemu, line, sizeof(line)))
		say(r, BAD, "QEMU",
		    "qemu-system-x86_64 is not installed (Debian: qemu-system-x86)");
	else if (sscanf(line, "QEMU emulator version %d", &major) != 1 || major < 10)
		say(r, BAD, "QEMU",
		    "%s: version 10 or newer is needed to move guests safely (7.2 corrupts guests "
		    "that move under "
		    "TCG); on Debian 12 take it from bookworm-backports",
		    line);
	else
		say(r, GOOD, "QEMU", "%s", line);
	if (cmd_first_line(img, line, sizeof(line)))
		say(r, GOOD, "qemu-img", "%s", line);
	else
		say(r, BAD, "qemu-img", "not installed (Debian: qemu-utils)");
}

static void check_tools(struct report *r)
{
	static const struct {
		const char *name, *package, *why;
		enum verdict if_missing;
	} tools[] = {
		{"dnsmasq", "dnsmasq-base", "gives guests their addresses and names", BAD},
		{"skopeo", "skopeo", "pulls containerDisk images", WARN},
		{"xorriso", "xorriso", "writes cloud-init disks", WARN},
	};
	char line[256];

	for (size_t i = 0; i < ARRAY_SIZE(tools); i++) {
		const char *const argv[] = {tools[i].name, "--version", NULL};

		if (cmd_first_line(argv, line, sizeof(line)))
			say(r, GOOD, tools[i].name, "%.90s", line);
		else
			say(r, tools[i].if_missing, tools[i].name,
			    "not installed (Debian: %s): it %s", tools[i].package, tools[i].why);
	}
}

static void check_kvm(struct report *r, const char *bin)
{
	CLEANUP(mem_freep) char *launcher = mem_printf("%s/ferry-launcher", bin);
	const char *const argv[] = {launcher, "--probe-kvm", NULL};
	char line[256] = "";

	if (access("/dev/kvm", F_OK) < 0)
		say(r, WARN, "KVM",
		    "there is no /dev/kvm: guests run under TCG, many times slower");
	else if (launcher && cmd_first_line(argv, line, sizeof(line)))
		say(r, GOOD, "KVM", "a real guest program ran");
	else
		say(r, WARN, "KVM",
		    "/dev/kvm is there, but no guest program ran (%s): guests run under TCG",
		    line[0] ? line : "no answer");
}

/* Runs in a child, in a network namespace of its own: nothing of it can stay. */
static int try_network(int out)
{
	CLEANUP(net_freep) struct net *n = NULL;
	struct net_mac mac = {{2, 0xfe, 0, 0, 0, 9}};
	struct in_addr local = {htonl(0x0a000001)};
	const struct net_vxlan vx = {.name = "t1",
				     .id = 1,
				     .port = 8472,
				     .local = local,
				     .mac = {{2, 0xfe, 0, 0, 0, 8}}};
	const struct net_veth veth = {.name = "t2", .peer = "t3", .peer_ns_fd = -1};
	struct err err = {0};
	int tap = -1;
	const char *what = "namespace";
	enum rc rc = unshare(CLONE_NEWNET) < 0 ? err_set_sys(&err, errno, "unshare") : RC_OK;

	if (!rc)
		rc = net_open(&n, -1, &err);
	if (!rc) {
		what = "bridge";
		rc = net_bridge_add(n, "t0", mac, 1500, &err);
	}
	if (!rc) {
		what = "VXLAN";
		rc = net_vxlan_add(n, &vx, &err);
	}
	if (!rc) {
		what = "veth";
		rc = net_veth_add(n, &veth, &err);
	}
	if (!rc) {
		what = "tap";
		rc = net_tap_open(-1, "t4", 0, false, 0, &tap, &err);
	}
	fd_close(tap);
	if (rc)
		dprintf(out, "%s: %s", what, err.msg);
	return rc ? 1 : 0;
}

static bool in_child(int (*fn)(int), char *text, size_t size)
{
	int p[2], status = 1;
	ssize_t n;

	text[0] = '\0';
	if (pipe2(p, O_CLOEXEC) < 0)
		return false;
	pid_t pid = fork();

	if (pid == 0)
		_exit(fn(p[1]));
	close(p[1]);
	n = read(p[0], text, size - 1);
	text[n > 0 ? n : 0] = '\0';
	close(p[0]);
	return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
	       WEXITSTATUS(status) == 0;
}

static void check_kernel(struct report *r)
{
	struct utsname u;
	char text[400];

	if (uname(&u) == 0)
		say(r, GOOD, "kernel", "%s %s", u.sysname, u.release);
	if (geteuid() != 0)
		say(r, WARN, "root",
		    "not root: network, namespaces and KVM were not tried (use sudo)");
	else if (in_child(try_network, text, sizeof(text)))
		say(r, GOOD, "network", "namespaces, bridges, VXLAN, veth and tap devices work");
	else
		say(r, BAD, "network", "%s", text);
	if (access("/sys/fs/cgroup/cgroup.controllers", R_OK) == 0)
		say(r, GOOD, "cgroups", "v2");
	else
		say(r, WARN, "cgroups",
		    "no cgroup v2 at /sys/fs/cgroup: guests' memory and CPU limits are not "
		    "enforced");
	if (access("/dev/userfaultfd", F_OK) == 0)
		say(r, GOOD, "userfaultfd", "there, as post-copy needs it");
	else
		say(r, WARN, "userfaultfd", "no /dev/userfaultfd: post-copy will not be offered");
}

/* Then a machine that comes back after its locks were given away writes on as if nothing had been. */
static void check_nfs(struct report *r)
{
	CLEANUP(mem_freep) char *text = NULL;
	size_t n = 0;

	if (!file_read("/sys/module/nfs/parameters/recover_lost_locks", 64, &text, &n, NULL) && n &&
	    text[0] == 'Y')
		say(r, WARN, "NFS locks",
		    "nfs.recover_lost_locks is on: with FerryConfig's fencing StorageLock two copies "
		    "of a VM could write");
}

static void check_machine(struct report *r, const char *state)
{
	struct statfs fs;
	long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);

	say(r, GOOD, "memory", "%.1f GiB, %ld processors",
	    (double)pages * (double)size / (double)GIB, sysconf(_SC_NPROCESSORS_ONLN));
	if (statfs(state, &fs) < 0 && statfs("/var/lib", &fs) < 0)
		return;
	double free_gib = (double)fs.f_bavail * (double)fs.f_bsize / (double)GIB;

	say(r, free_gib < 2 ? WARN : GOOD, "disk", "%.1f GiB free%s", free_gib,
	    free_gib < 2 ? ": little room for disks and images" : "");
}

static int doctor_run(const struct cmd *c, int argc, char **argv)
{
	const char *state = getenv("FERRY_STATE");
	const char *kubeconfig = NULL, *qemu = "/usr/bin/qemu-system-x86_64";
	bool upgrade = false;
	const struct opt opts[] = {{.name = "--state", .value = &state},
				   {.name = "--upgrade", .is_flag = true, .flag = &upgrade},
				   {.name = "--qemu", .value = &qemu},
				   {.name = "--kubeconfig", .value = &kubeconfig},
				   {0}};
	struct report r = {.color = isatty(STDOUT_FILENO)};
	char bin[4096], node[sizeof(bin) + 16];
	ssize_t n = readlink("/proc/self/exe", bin, sizeof(bin) - 1);
	int rest;
	bool help;

	if (!cmd_parse(c, argc, argv, opts, &rest, &help))
		return help ? EXIT_OK : EXIT_USAGE;
	bin[n > 0 ? n : 0] = '\0';
	if (strrchr(bin, '/'))
		*strrchr(bin, '/') = '\0';
	if (upgrade) {
		(void)snprintf(node, sizeof(node), "%s/ferry-node", bin);
		return upgrade_run(kubeconfig, qemu, node);
	}
	check_kernel(&r);
	check_nfs(&r);
	check_machine(&r, state ? state : "/var/lib/ferry");
	check_qemu(&r);
	if (geteuid() == 0)
		check_kvm(&r, bin);
	check_tools(&r);
	printf("\n%s\n", r.bad ? "Ferry cannot run here until the lines marked FAIL are mended."
			       : "Ferry can run here.");
	return r.bad ? EXIT_FAIL : EXIT_OK;
}

const struct cmd cmd_doctor = {
	.name = "doctor",
	.args = "[--upgrade [--qemu FILE]]",
	.summary = "Try what this machine can do for Ferry, and say what is missing and why.",
	.help = "  --upgrade     instead: which running VMs could not move to a node with another QEMU\n"
		"  --qemu FILE   that QEMU (default /usr/bin/qemu-system-x86_64 of this machine)\n\n"
		"--upgrade compares machine type, CPU model, the CPU features that each guest sees,\n"
		"and QEMU's version.  The exit code is 1 when a VM would be stranded.\n",
	.run = doctor_run,
};
