#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "base/log.h"
#include "base/str.h"
#include "ev/ev.h"
#include "json/json.h"
#include "virt/launcher/caps.h"
#include "virt/launcher/jail.h"
#include "virt/launcher/kvm_probe.h"
#include "virt/launcher/launcher.h"

static const char usage[] =
	"usage: ferry-launcher --dir DIR [--qemu PATH] [--cgroup-root DIR] [--kvm-cache FILE]\n"
	"       ferry-launcher --probe-kvm\n"
	"\n"
	"Looks after one QEMU: starts it in a jail, speaks QMP to it, and serves its node on\n"
	"DIR/launcher.sock (docs/internals/launcher.md). Ended or killed, it leaves the VM "
	"running;\n"
	"started again with the same DIR, it finds the VM again.\n"
	"\n"
	"  --dir DIR           the VM's runtime folder; must exist and belong to root\n"
	"  --qemu PATH         QEMU's binary (default /usr/bin/qemu-system-x86_64)\n"
	"  --cgroup-root DIR   where cgroup v2 is mounted (default: /sys/fs/cgroup, if it is v2)\n"
	"  --kvm-cache FILE    where the KVM proof is remembered until the next boot\n"
	"                      (default /run/ferry-kvm.json)\n"
	"  --probe-kvm         run the KVM proof, print its verdict, exit 0 if KVM works, else 1\n"
	"  --log-json          log lines as JSON\n"
	"  --version, --help\n"
	"\n"
	"Environment: FERRY_LOG = error, warn, info or debug.\n";

static void on_signal(int signo, void *arg)
{
	log_info("signal %d: ending; the VM goes on", signo);
	loop_quit(arg, 0);
}

static int probe(void)
{
	struct kvm_verdict v;

	kvm_probe(&v);
	printf("%s: %s\n", v.works ? "works" : "does not work", v.reason);
	return v.works ? 0 : 1;
}

static int run(const struct launcher_config *config)
{
	CLEANUP(loop_freep) struct loop *loop = NULL;
	CLEANUP(launcher_freep) struct launcher *l = NULL;
	CLEANUP(ev_src_freep) struct ev_src *term = NULL;
	CLEANUP(ev_src_freep) struct ev_src *intr = NULL;
	struct err err = {0};
	int code = 1;
	enum rc rc = loop_new(&loop, LOOP_REAL, &err);

	signal(SIGPIPE, SIG_IGN);
	if (!rc)
		rc = failpoint_setup(&err);
	if (!rc && failpoint_is_on)
		log_warn("failpoints are on: for tests only");
	failpoint("launcher.begins");
	if (!rc)
		rc = caps_enter(STAGE_START, &err);
	if (!rc)
		rc = ev_signal(loop, &term, SIGTERM, on_signal, loop, &err);
	if (!rc)
		rc = ev_signal(loop, &intr, SIGINT, on_signal, loop, &err);
	if (!rc)
		rc = launcher_new(&l, loop, config, &err);
	if (!rc)
		rc = loop_run(loop, &code, &err);
	if (rc) {
		log_error("%s", err.msg);
		return 1;
	}
	return code;
}

static int reaper(const char *config_fd)
{
	int64_t fd;

	if (str_to_i64(config_fd, 3, INT32_MAX, &fd, NULL))
		return 2;
	jail_main((int)fd);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"dir", required_argument, NULL, 'd'},
		{"qemu", required_argument, NULL, 'q'},
		{"cgroup-root", required_argument, NULL, 'c'},
		{"kvm-cache", required_argument, NULL, 'k'},
		{"probe-kvm", no_argument, NULL, 'p'},
		{"log-json", no_argument, NULL, 'j'},
		{"version", no_argument, NULL, 'v'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	struct launcher_config config = {.qemu = "/usr/bin/qemu-system-x86_64",
					 .kvm_cache = "/run/ferry-kvm.json"};
	bool json = false;
	struct stat st;
	int c;

	/* Not an option for people: the launcher starts the jail with it. */
	if (argc == 3 && str_eq(argv[1], "--reaper"))
		return reaper(argv[2]);
	js_use_mem();
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1)
		switch (c) {
		case 'd':
			config.dir = optarg;
			break;
		case 'q':
			config.qemu = optarg;
			break;
		case 'c':
			config.cgroup_root = optarg;
			break;
		case 'k':
			config.kvm_cache = optarg;
			break;
		case 'p':
			return probe();
		case 'j':
			json = true;
			break;
		case 'v':
			puts("ferry-launcher " FERRY_VERSION);
			return 0;
		case 'h':
			fputs(usage, stdout);
			return 0;
		default:
			fputs("try --help\n", stderr);
			return 2;
		}
	log_setup("ferry-launcher", LOG_LVL_INFO, json);
	if (!config.dir || config.dir[0] != '/' || stat(config.dir, &st) < 0 ||
	    !S_ISDIR(st.st_mode)) {
		log_error("--dir must name an existing folder by its absolute path (see --help)");
		return 2;
	}
	if (optind != argc) {
		log_error("'%s' is not an option (see --help)", argv[optind]);
		return 2;
	}
	return run(&config);
}
