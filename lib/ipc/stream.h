/* lib/ipc/stream.h - one end of a connection: frames in, frames out.  Private to lib/ipc.
 *
 * Loop thread only.  Embedded by its owner.  Callbacks come from the loop only.
 */
#ifndef IPC_STREAM_H
#define IPC_STREAM_H

#include "base/list.h"
#include "base/sbuf.h"
#include "ipc/ipc.h"

struct ev_src;

/* A message ready to leave. */
struct ipc_frame {
	struct list link;
	char *bytes;
	size_t n;
	size_t written;
	int fds[LIMIT_IPC_FDS];
	size_t n_fds;
};

struct ipc_stream {
	int fd; /* -1: ended */
	struct ev_src *io;
	struct sbuf in;
	int got[2 * LIMIT_IPC_FDS]; /* descriptors received, not yet claimed by a frame */
	size_t n_got;
	struct list out;
	size_t out_bytes;
	bool want_write;
	bool *gone; /* set to true by stream_fini() when a callback is on the stack */
	enum rc why_rc;
	char why[96];
	/* msg and fds are borrowed for the callback, which may end the stream and free its owner. */
	void (*on_frame)(const struct json *msg, struct ipc_fds *fds, void *arg);
	void (*on_end)(enum rc rc, const char *why, void *arg);
	void *arg;
};

/* Takes over fd, also on failure.  The callbacks and arg are set by the caller before. */
MUST_CHECK enum rc stream_init(struct ipc_stream *st, struct loop *loop, int fd, struct err *err);
void stream_fini(struct ipc_stream *st); /* no callback afterwards; fine on a zeroed or ended one */
/* Consumes fds, also on failure. */
MUST_CHECK enum rc frame_new(struct ipc_frame **out, struct json *msg, const int *fds, size_t n_fds,
			     struct err *err);
void frame_free(struct ipc_frame *f);
/* Consumes f.  A failure to write is told by on_end, later. */
void stream_send(struct ipc_stream *st, struct ipc_frame *f);
/* on_end comes from the loop with this reason. */
void stream_break(struct ipc_stream *st, enum rc rc, const char *why);
void ipc_fds_close(struct ipc_fds *fds);

#endif
