#include "lib/torture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/types.h>

#include <cmocka.h>

#include "base/mem.h"

enum { TORTURE_MAX = 20000 };

void torture(enum rc (*body)(void))
{
	for (unsigned nth = 1; nth < TORTURE_MAX; nth++) {
		size_t before = mem_live_blocks();

		mem_fault_arm(nth);
		enum rc rc = body();
		bool fired = mem_fault_disarm();

		if (mem_live_blocks() != before)
			fail_msg("allocation %u failed: %zd blocks leaked", nth,
				 (ssize_t)(mem_live_blocks() - before));
		if (!fired) {
			if (rc != RC_OK)
				fail_msg("no allocation failed, yet the body returned %s",
					 rc_name(rc));
			return; /* fewer than nth allocations: all were tried */
		}
		if (rc != RC_NOMEM)
			fail_msg("allocation %u failed, the body returned %s", nth, rc_name(rc));
	}
	fail_msg("more than %d allocations in one body", TORTURE_MAX);
}
