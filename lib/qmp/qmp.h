/* lib/qmp/qmp.h - asynchronous client of QEMU's monitor (QMP).
 *
 * Loop thread only.  The client reads the greeting, negotiates out-of-band execution, and then tells
 * its owner that it is ready.  Every command has a slot and a deadline; its callback runs exactly
 * once, from the loop, never from inside the call that made it.  Dropping the slot cancels the
 * callback (QEMU still runs the command; its late answer is thrown away).  When the connection ends,
 * all pending commands fail first, then on_closed runs.
 *
 * QEMU stops reading a monitor with eight commands in its queue, out-of-band ones included, so at most
 * QMP_MAX_IN_BAND ordinary ones are sent at a time; the rest wait here, in order.  Out-of-band ones
 * overtake them.
 *
 * Reference: QEMU docs/interop/qmp-spec.rst.
 */
#ifndef QMP_QMP_H
#define QMP_QMP_H

#include "base/err.h"

struct json;
struct loop;
struct qmp;
struct qmp_slot; /* one command; owned by the caller until its callback has run */

enum { QMP_MAX_IN_BAND = 4, QMP_MAX_QUEUED = 256 };

struct qmp_reply {
	enum rc rc; /* RC_OK, RC_TIMEOUT (deadline), RC_CLOSED, or what QEMU's error class means */
	const struct json *value; /* RC_OK: the "return" value, borrowed for the callback */
	const char *
		error_class; /* QEMU's error class ("GenericError", ...), NULL when not QEMU's answer */
	const char *desc; /* failure in words, borrowed for the callback; never NULL unless RC_OK */
};

typedef void (*qmp_reply_fn)(const struct qmp_reply *r, void *arg);

struct qmp_ops {
	/* Capabilities are negotiated: commands flow.  greeting is borrowed ({"QMP": ...}). */
	void (*on_ready)(const struct json *greeting, void *arg);
	/* at: QEMU's own timestamp, microseconds since the epoch (0: it had none).  data may be NULL. */
	void (*on_event)(const char *name, const struct json *data, usec_t at, void *arg);
	/* Once, after all pending commands have failed.  The client may be freed inside. */
	void (*on_closed)(enum rc rc, const char *why, void *arg);
};

/* Takes over fd (also on failure), a connected stream socket.  handshake: deadline for the greeting and
 * the negotiation together; past it on_closed runs with RC_TIMEOUT. */
MUST_CHECK enum rc qmp_new(struct qmp **out, struct loop *loop, int fd, usec_t handshake,
			   const struct qmp_ops *ops, void *arg, struct err *err);
/* Connects to the unix socket at path first (never blocks: a full backlog is RC_BUSY). */
MUST_CHECK enum rc qmp_open(struct qmp **out, struct loop *loop, const char *path, usec_t handshake,
			    const struct qmp_ops *ops, void *arg, struct err *err);
/* Pending callbacks do not run; accepts NULL; returns NULL; safe inside any callback of this client. */
struct qmp *qmp_free(struct qmp *q);
DEFINE_CLEANUP(struct qmp *, qmp_free);

bool qmp_is_ready(const struct qmp *q);
bool qmp_has_oob(const struct qmp *q);
/* Commands given to this client so far, its own negotiation included. */
uint64_t qmp_n_commands(const struct qmp *q);
/* {major, minor, micro} from the greeting; zeros before it. */
void qmp_version(const struct qmp *q, int out[3]);

struct qmp_call {
	const char *command;
	struct json *args; /* consumed, also on failure; NULL: none */
	usec_t timeout;	   /* from now; 0 is a caller's bug */
	bool oob;	 /* execute out of band; refused with RC_UNSUPPORTED when not negotiated */
	int fd;		 /* sent with the command (getfd, add-fd); consumed; 0 or less: none */
	qmp_reply_fn fn; /* NULL: the answer does not matter (a failure is logged at debug) */
	void *arg;
};

/* slot may be NULL: then the command cannot be cancelled.  *slot must be NULL before; set it to
 * NULL (qmp_slot_free) in the callback.  RC_CLOSED when not connected (q may be NULL then), RC_BUSY when too many wait. */
MUST_CHECK enum rc qmp_invoke(struct qmp *q, struct qmp_slot **slot, const struct qmp_call *call,
			      struct err *err);
struct qmp_slot *qmp_slot_free(struct qmp_slot *s); /* cancels if still pending; returns NULL */
DEFINE_CLEANUP(struct qmp_slot *, qmp_slot_free);

/* Looks into the value of query-qmp-schema: does this command / event exist, and does a command take
 * this argument ("migrate-set-parameters", "zero-page-detection")?  Nested names with '.'; an enum's
 * value is found as member "arg.member" or, for arrays of structs, through the element type. */
bool qmp_schema_has(const struct json *schema, const char *command_or_event, const char *member);
/* Does the enum that the named argument takes have this value? */
bool qmp_schema_has_value(const struct json *schema, const char *command, const char *member,
			  const char *value);

#endif
