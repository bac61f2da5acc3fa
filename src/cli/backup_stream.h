/* src/cli/backup_stream.h - the API server's answer to a backup: lines of JSON around the file's bytes.
 *
 * Pure but for what the callbacks do.  The form stands in src/cluster/apiserver/backup.c.
 */
#ifndef CLI_BACKUP_STREAM_H
#define CLI_BACKUP_STREAM_H

#include "base/err.h"
#include "base/sbuf.h"

struct backup_stream {
	/* The caller's. */
	MUST_CHECK enum rc (*write)(void *arg, const void *bytes, size_t n, struct err *err);
	void (*progress)(void *arg, uint64_t done,
			 uint64_t of); /* pages being copied; may be NULL */
	void *arg;

	/* What the last line said. */
	char sha256[65];
	char revision[24];
	int64_t objects, format;
	uint64_t bytes;

	/* Its own. */
	enum { BACKUP_HEAD, BACKUP_BYTES, BACKUP_LF, BACKUP_TAIL, BACKUP_DONE } state;
	uint64_t left;
	struct sbuf line;
	void *hash;
};

/* The callbacks and arg are set; everything else is zero. */
MUST_CHECK enum rc backup_stream_init(struct backup_stream *s, struct err *err);
void backup_stream_fini(struct backup_stream *s);
/* Bytes as they come.  After a failure nothing more may be fed. */
MUST_CHECK enum rc backup_stream_feed(struct backup_stream *s, const void *bytes, size_t n,
				      struct err *err);
/* The stream is over: was it whole, and are the bytes those that were sent?  RC_IO: no. */
MUST_CHECK enum rc backup_stream_end(struct backup_stream *s, struct err *err);

#endif
