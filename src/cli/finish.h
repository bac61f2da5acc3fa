/* src/cli/finish.h - "finish it now, I accept the pause": is there anything to ask of a move, and what comes of it.
 *
 * Pure.
 */
#ifndef CLI_FINISH_H
#define CLI_FINISH_H

#include "base/err.h"

struct json;
struct sbuf;

/* A migration that has not ended, and its VMI (NULL: not known); a sentence without an end of line goes into out.
 * RC_OK: ask.  RC_EXISTS: there is nothing to ask for, all is as it should be.  RC_CONFLICT: it is being cancelled. */
MUST_CHECK enum rc finish_look(const struct json *vmim, const struct json *vmi, struct sbuf *out);

#endif
