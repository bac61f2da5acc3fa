/* tests/lib/torture.h - run a test body once per allocation it makes, failing that allocation. */
#ifndef TESTS_TORTURE_H
#define TESTS_TORTURE_H

#include "base/err.h"

/* body returns RC_OK or RC_NOMEM, and frees all it took either way.  The last run, in which no
 * allocation fails, must succeed.  Fails the current cmocka test otherwise. */
void torture(enum rc (*body)(void));

#endif
