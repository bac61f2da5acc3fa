/* src/virt/launcher/qga.h - client of the guest agent at the other end of a channel (qemu-ga's protocol).
 *
 * Loop thread only.  The other end is the guest: nothing it says is trusted, and what it may say is bounded.  Commands
 * run one after the other; before each of them both sides throw away what is left of earlier ones, by
 * guest-sync-delimited with a number that was not used before.  So an answer that nobody asked for, a late one, or one
 * with another number is never taken for an answer.
 *
 * Reference: QEMU docs/interop/qemu-ga-ref.rst.
 */
#ifndef VIRT_LAUNCHER_QGA_H
#define VIRT_LAUNCHER_QGA_H

#include "base/err.h"

struct json;
struct loop;
struct qga;

enum { QGA_MAX_QUEUED = 16, QGA_DESC_MAX = 200 };

struct qga_reply {
	enum rc rc; /* RC_OK; RC_TIMEOUT; RC_CLOSED; RC_TOO_BIG; RC_INVALID: no answer of an agent's;
		     * RC_NOT_FOUND: it has no such command; RC_REFUSED_BY_AGENT for its other errors */
	const struct json *
		value; /* RC_OK: the "return" value, borrowed; NULL for a command that need not answer */
	const char *desc; /* failure in words, printable; never NULL unless RC_OK */
};
#define RC_REFUSED_BY_AGENT RC_CONFLICT

typedef void (*qga_reply_fn)(const struct qga_reply *r, void *arg);

struct qga_ops {
	/* Once, after all commands failed: the channel ended, or its guest says more than LIMIT_QGA_BYTES for one
	 * command (RC_TOO_BIG).  The client may be freed inside. */
	void (*on_closed)(enum rc rc, const char *why, void *arg);
};

/* Takes over fd (also on failure), a connected stream socket.  seed: where the numbers begin; another one than
 * that of an earlier client of this guest. */
MUST_CHECK enum rc qga_new(struct qga **out, struct loop *loop, int fd, uint64_t seed,
			   const struct qga_ops *ops, void *arg, struct err *err);
/* Pending callbacks do not run; accepts NULL; returns NULL; safe inside any callback of this client. */
struct qga *qga_free(struct qga *q);
DEFINE_CLEANUP(struct qga *, qga_free);

struct qga_call {
	const char *command;
	struct json *args;  /* consumed, also on failure; NULL: none */
	usec_t timeout;	    /* from now; 0 is a caller's bug */
	bool may_be_silent; /* no answer in time is RC_OK: guest-shutdown has none */
	qga_reply_fn fn;    /* runs exactly once, from the loop, unless qga_free() comes first */
	void *arg;
};
/* RC_BUSY: QGA_MAX_QUEUED commands wait. */
MUST_CHECK enum rc qga_invoke(struct qga *q, const struct qga_call *call, struct err *err);

/* The command that is under way has been sent itself, not only what puts both sides in step before it. */
bool qga_was_sent(const struct qga *q);

/* Text of a guest's as people may see it: at most n - 1 bytes, no control characters, whole UTF-8. */
void qga_printable(const char *s, char *out, size_t n);

#endif
