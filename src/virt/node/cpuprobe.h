/* src/virt/node/cpuprobe.h - asks QEMU which CPU models, features and machine types this node has.
 *
 * Loop thread only.  One short-lived QEMU without a machine; its answers are kept in a file and asked
 * for again only when the QEMU binary, the accelerator or the kernel changes.
 */
#ifndef NODE_CPUPROBE_H
#define NODE_CPUPROBE_H

#include "base/err.h"

struct cpuprobe;
struct json;
struct loop;

struct cpuprobe_config {
	const char *qemu;	/* "/usr/bin/qemu-system-x86_64" */
	const char *accel;	/* "kvm" (proven by the caller) or "tcg" */
	const char *cache_file; /* NULL: none */
	const char *without;	/* features that no guest shall have, comma-separated; NULL: none */
	usec_t timeout;		/* of the whole probe */
};

/* probe: see cpulabels.h; NULL on failure; borrowed for the call. */
typedef void (*cpuprobe_fn)(enum rc rc, const struct json *probe, const struct err *err, void *arg);

/* fn runs exactly once from the loop unless the probe is freed before. */
MUST_CHECK enum rc cpuprobe_start(struct cpuprobe **out, struct loop *loop,
				  const struct cpuprobe_config *config, cpuprobe_fn fn, void *arg,
				  struct err *err);
/* `ferry-node probe-qemu --qemu FILE [--accel tcg|kvm]`: the document on standard output; an exit code. */
int cpuprobe_main(int argc, char **argv);
struct cpuprobe *cpuprobe_free(struct cpuprobe *p); /* kills QEMU if it still runs; returns NULL */
DEFINE_CLEANUP(struct cpuprobe *, cpuprobe_free);

#endif
