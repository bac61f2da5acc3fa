/* lib/base/try.h - return early with the callee's result.
 *
 * For straight-line builders whose locals clean themselves up (CLEANUP()).
 */
#ifndef BASE_TRY_H
#define BASE_TRY_H

#include "base/err.h"

#define TRY(call_)                      \
	do {                            \
		enum rc try_ = (call_); \
		if (try_)               \
			return try_;    \
	} while (0)

#endif
