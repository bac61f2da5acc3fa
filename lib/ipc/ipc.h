/* lib/ipc/ipc.h - framed JSON with file descriptors over unix stream sockets.
 *
 * Loop thread only.  A frame is a 4-byte big-endian length and that many bytes of one JSON object;
 * descriptors travel with the first byte of their frame, which says how many ("fds").
 *
 *   request   {"id": 7, "method": "start", "params": {...}, "fds": 2}
 *   result    {"id": 7, "result": {...}, "fds": 0}
 *   failure   {"id": 7, "error": {"rc": "RC_CONFLICT", "message": "..."}}
 *   event     {"event": "state", "data": {...}}
 *
 * The first request must be `hello`, which lib/ipc itself sends and answers: the client lists the
 * versions it speaks, the server picks the highest common one or refuses.  A peer that breaks the
 * framing, exceeds a limit (LIMIT_IPC_BYTES, LIMIT_IPC_FDS) or calls before hello is disconnected.
 * Only root and the server's own uid may connect (SO_PEERCRED).
 *
 * Descriptors given to a sending function are consumed: closed here after they were sent, so that
 * locks which belong to the open file follow the receiver.
 */
#ifndef IPC_IPC_H
#define IPC_IPC_H

#include <sys/types.h>

#include "base/err.h"
#include "base/limits.h"

struct json;
struct loop;
struct ipc_client;
struct ipc_server;
struct ipc_peer; /* one connected client, as the server sees it */
struct ipc_call; /* one request that the server must answer */
struct ipc_slot; /* one request that the client waits for */

/* Descriptors that came with a message.  What is not taken is closed after the callback. */
struct ipc_fds {
	int fd[LIMIT_IPC_FDS];
	size_t n;
};
int ipc_fds_take(struct ipc_fds *fds, size_t i); /* -1 when absent or taken already */

/* --- client --- */

struct ipc_reply {
	enum rc rc;
	const struct json *result; /* RC_OK only; borrowed for the callback */
	const char *message;	   /* failure in words; borrowed for the callback */
	struct ipc_fds *fds;	   /* never NULL */
};
typedef void (*ipc_reply_fn)(const struct ipc_reply *r, void *arg);

struct ipc_client_ops {
	/* hello is done; result is the server's answer: {"version": 1, "name": "ferry-launcher", ...}. */
	void (*on_ready)(unsigned version, const struct json *hello, void *arg);
	void (*on_event)(const char *name, const struct json *data, void *arg);
	/* Once, after all pending calls failed with RC_CLOSED.  The client may be freed inside. */
	void (*on_closed)(enum rc rc, const char *why, void *arg);
};

struct ipc_version {
	unsigned min;
	unsigned max; /* inclusive */
};

/* Connects (never blocks) and says hello as `name`.  handshake: deadline for the answer. */
MUST_CHECK enum rc ipc_client_open(struct ipc_client **out, struct loop *loop, const char *path,
				   const char *name, struct ipc_version speaks, usec_t handshake,
				   const struct ipc_client_ops *ops, void *arg, struct err *err);
/* The same on a connected socket; takes over fd, also on failure. */
MUST_CHECK enum rc ipc_client_new(struct ipc_client **out, struct loop *loop, int fd,
				  const char *name, struct ipc_version speaks, usec_t handshake,
				  const struct ipc_client_ops *ops, void *arg, struct err *err);
struct ipc_client *ipc_client_free(struct ipc_client *c); /* pending callbacks do not run */
DEFINE_CLEANUP(struct ipc_client *, ipc_client_free);
bool ipc_client_is_ready(const struct ipc_client *c);

/* Consumes params (NULL: {}) and the n_fds descriptors, also on failure.  Calls made before on_ready
 * wait for it.  fn runs exactly once from the loop: answer, RC_TIMEOUT or RC_CLOSED.  slot as in
 * qmp_invoke(): may be NULL, and dropping it means fn does not run. */
MUST_CHECK enum rc ipc_call(struct ipc_client *c, struct ipc_slot **slot, const char *method,
			    struct json *params, const int *fds, size_t n_fds, usec_t timeout,
			    ipc_reply_fn fn, void *arg, struct err *err);
struct ipc_slot *ipc_slot_free(struct ipc_slot *s);
DEFINE_CLEANUP(struct ipc_slot *, ipc_slot_free);

/* --- server --- */

struct ipc_server_ops {
	/* Answer call with ipc_call_done() or ipc_call_fail(), now or later, exactly once.
	 * method, params and fds are borrowed for the callback. */
	void (*on_request)(struct ipc_call *call, const char *method, const struct json *params,
			   struct ipc_fds *fds, void *arg);
	/* May be NULL.  n: clients that have said hello. */
	void (*on_clients)(size_t n, void *arg);
};

struct ipc_server_config {
	const char *name; /* said in hello */
	struct ipc_version speaks;
	size_t max_clients;
	mode_t mode; /* of the socket file */
	const struct json
		*hello; /* extra members of hello's result; may be NULL; borrowed for ever */
};

/* Binds and listens at path; a stale socket file is replaced, a live server is RC_EXISTS. */
MUST_CHECK enum rc ipc_server_new(struct ipc_server **out, struct loop *loop, const char *path,
				  const struct ipc_server_config *config,
				  const struct ipc_server_ops *ops, void *arg, struct err *err);
struct ipc_server *ipc_server_free(struct ipc_server *s); /* closes all; open calls become dead */
DEFINE_CLEANUP(struct ipc_server *, ipc_server_free);
size_t ipc_server_clients(const struct ipc_server *s);

/* Each consumes call (and result, fds).  Fine when the client has gone meanwhile. */
void ipc_call_done(struct ipc_call *call, struct json *result, const int *fds, size_t n_fds);
void ipc_call_fail(struct ipc_call *call, enum rc rc, const char *fmt, ...) PRINTF_LIKE(3, 4);
void ipc_call_fail_err(struct ipc_call *call, const struct err *err);

/* To every client that has said hello.  Consumes data.  A client that does not read is dropped. */
void ipc_server_event(struct ipc_server *s, const char *name, struct json *data);

#endif
