/* `ferry-node probe-qemu`: what a QEMU that is not in use here could give, as one JSON document (cpulabels.h), or a
 * line that says why not and the exit code 1. */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "ev/ev.h"
#include "json/json.h"
#include "virt/node/cpuprobe.h"

#define DEADLINE (30 * USEC_PER_SEC)

static void on_probe(enum rc rc, const struct json *probe, const struct err *err, void *arg)
{
	CLEANUP(mem_freep) char *text = rc ? NULL : js_to_text(probe);
	struct loop *loop = arg;

	puts(text ? text : rc ? err->msg : "out of memory");
	loop_quit(loop, text ? 0 : 1);
}

int cpuprobe_main(int argc, char **argv)
{
	struct cpuprobe_config config = {.accel = "tcg", .timeout = DEADLINE};
	struct cpuprobe *probe = NULL;
	struct loop *loop = NULL;
	struct err err = {0};
	int code = 1;

	for (int i = 1; i + 1 < argc; i += 2) {
		if (strcmp(argv[i], "--qemu") == 0)
			config.qemu = argv[i + 1];
		else if (strcmp(argv[i], "--accel") == 0)
			config.accel = argv[i + 1];
	}
	if (!config.qemu ||
	    (strcmp(config.accel, "tcg") != 0 && strcmp(config.accel, "kvm") != 0)) {
		fprintf(stderr, "usage: ferry-node probe-qemu --qemu FILE [--accel tcg|kvm]\n");
		return 2;
	}
	enum rc rc = loop_new(&loop, LOOP_REAL, &err);

	if (!rc)
		rc = cpuprobe_start(&probe, loop, &config, on_probe, loop, &err);
	if (!rc)
		rc = loop_run(loop, &code, &err);
	if (rc)
		puts(err.msg);
	cpuprobe_free(probe);
	loop_free(loop);
	return rc ? 1 : code;
}
