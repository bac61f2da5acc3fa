/* src/virt/migration/method.h - which of QEMU's ways a move takes; chosen once, before it begins.
 *
 * Pure; any thread.  What QEMU can combine at all (10.0): several connections (multifd) go with neither post-copy nor
 * XBZRLE, zstd goes with several connections only, and auto-converge, TLS and a limit on the bandwidth with everything.
 * The table is in method.c; docs/internals/migration.md shows it, and a test compares the two.
 */
#ifndef VIRT_MIGRATION_METHOD_H
#define VIRT_MIGRATION_METHOD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define METHOD_CHANNELS_MAX 8
#define METHOD_XBZRLE_BYTES \
	(64 * (int64_t)1024 * 1024) /* QEMU's default; the pod's overhead has room for it */

enum method_wish {
	METHOD_WISH_NONE,
	METHOD_WISH_PLAIN,
	METHOD_WISH_ZSTD
}; /* experimental.compression */

struct method_facts {
	bool post_copy;	    /* allowed, and so is the disruption */
	bool has_cpu_limit; /* QEMU's threads share it with the guest */
	enum method_wish compression;
	int64_t bandwidth;			      /* bytes a second; 0: line rate */
	int64_t memory;				      /* of the guest, bytes */
	int64_t cpus;				      /* of the node that has fewer; 0: not known */
	bool knows_multifd, knows_zstd, knows_xbzrle; /* both nodes do */
};

struct method {
	const char *reason;  /* one word; constant */
	const char *message; /* a sentence; constant */
	int64_t channels;    /* 0: one connection for everything */
	int64_t bandwidth; /* what QEMU is given, so that no more than what was asked for leaves; 0: line rate */
	int64_t xbzrle; /* bytes of its cache; 0: off */
	bool zstd;
};

struct method method_choose(const struct method_facts *f);

/* The rows of the table in their order, the first that holds is taken; for documents and tests.  False: no more. */
struct method_row {
	const char *reason, *when, *message;
	const char *channels; /* "0", "2", "n" */
	bool zstd, xbzrle;
};
bool method_row(size_t i, struct method_row *out);

#endif
