/* src/virt/launcher/qmp_seq.h - QMP commands one after the other.
 *
 * Loop thread only.  done() runs once: after the last command, or at the first failure of one that must
 * not fail.  Freeing the sequence (or the client going away) means: nothing more is sent.
 */
#ifndef VIRT_LAUNCHER_QMP_SEQ_H
#define VIRT_LAUNCHER_QMP_SEQ_H

#include "qmp/qmp.h"

struct qmp_seq;

struct qmp_seq_result {
	enum rc rc;
	const char *command;	  /* the one that failed; NULL on RC_OK */
	const char *desc;	  /* why */
	const struct json *value; /* RC_OK: what the last command returned */
};
typedef void (*qmp_seq_fn)(const struct qmp_seq_result *r, void *arg);

enum qmp_seq_flags { SEQ_MUST = 0, SEQ_MAY_FAIL = 1 };

MUST_CHECK enum rc qmp_seq_new(struct qmp_seq **out, usec_t timeout_each, struct err *err);
/* Consumes args (also on failure).  wants_args: NULL args mean that they could not be built.  Errors
 * stick and come out of qmp_seq_run(). */
void qmp_seq_add(struct qmp_seq *s, const char *command, struct json *args,
		 enum qmp_seq_flags flags);
void qmp_seq_add_plain(struct qmp_seq *s, const char *command,
		       enum qmp_seq_flags flags); /* no arguments */
/* *slot holds the sequence while it runs and is NULL again when done() is called.  Consumes s. */
MUST_CHECK enum rc qmp_seq_run(struct qmp_seq *s, struct qmp_seq **slot, struct qmp *q,
			       qmp_seq_fn done, void *arg, struct err *err);
struct qmp_seq *qmp_seq_free(struct qmp_seq *s);
DEFINE_CLEANUP(struct qmp_seq *, qmp_seq_free);

#endif
