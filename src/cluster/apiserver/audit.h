/* src/cluster/apiserver/audit.h - who did what, as lines of JSON in a file.
 *
 * Loop thread only; the file is written by the pool.  A line is an Event of audit.k8s.io/v1 of level Metadata:
 * no bodies, no headers but the client's name, no tokens.  Nothing waits for the file: what does not
 * fit into the buffer is counted and lost.
 */
#ifndef APISERVER_AUDIT_H
#define APISERVER_AUDIT_H

#include "base/err.h"

struct audit;
struct loop;
struct sbuf;

enum { AUDIT_BUFFER_BYTES = 4 << 20 };

struct audit_config {
	const char *path;   /* beside it: <path>.1, the file before, and so on */
	uint64_t max_bytes; /* a file that grew larger is put aside */
	unsigned keep;	    /* files put aside that stay, the newest ones; 0: none */
};

/* The file is made (0600) or continued at the first line.  RC_IO, RC_FORBIDDEN...: it cannot be opened. */
MUST_CHECK enum rc audit_new(struct audit **out, struct loop *loop,
			     const struct audit_config *config, struct err *err);
/* Writes what is left, blocking.  Legal while the pool still writes. */
struct audit *audit_free(struct audit *a);
DEFINE_CLEANUP(struct audit *, audit_free);
/* One line, without its end.  Never blocks. */
void audit_line(struct audit *a, const char *text, size_t n);
void audit_lose(struct audit *a); /* a line that could not be made */
/* Prometheus text, appended. */
void audit_metrics(const struct audit *a, struct sbuf *out);

#endif
