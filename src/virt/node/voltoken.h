/* src/virt/node/voltoken.h - the proof that two nodes see the same storage: one writes, the other reads.
 *
 * Blocking: pool threads.  A token is a small file beside the volume's disk, named after VM and move, so that no client
 * of a network file system has looked for it before.  No link is followed.
 */
#ifndef NODE_VOLTOKEN_H
#define NODE_VOLTOKEN_H

#include "base/err.h"

struct voltoken {
	const char *root;   /* of the class */
	const char *folder; /* of the volume, below the root; "." is the root itself */
	const char *vmi_uid, *move_uid;
};

/* Durable when it returns; tokens of earlier moves of this VM go. */
MUST_CHECK enum rc voltoken_write(const struct voltoken *t, const char *text, struct err *err);
/* RC_NOT_FOUND: there is none; RC_CONFLICT: it says something else. */
MUST_CHECK enum rc voltoken_check(const struct voltoken *t, const char *text, struct err *err);
/* One that is not there is fine. */
MUST_CHECK enum rc voltoken_drop(const struct voltoken *t, struct err *err);

#endif
