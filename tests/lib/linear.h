/* tests/lib/linear.h - is a history of concurrent operations on one key linearizable?
 *
 * Wing and Gong's search: an order of the operations that agrees with what each one answered, in which each stands
 * between its call and its return.  One key holds one value; 0: absent.  Each write writes another value.
 *
 * An operation whose answer nobody got (the server died) may have happened at any time until the server's end, or not
 * at all.
 */
#ifndef TESTS_LINEAR_H
#define TESTS_LINEAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum lin_op {
	LIN_READ,   /* answered: value (0: not found) */
	LIN_CREATE, /* of value; answered: made, or refused because there is something */
	LIN_SWAP, /* from expect to value (0: a deletion of that version); answered: done, or refused because it
		     * is another one or gone */
	LIN_DELETE, /* whatever is there; answered: done, or refused because there is nothing */
};

struct lin_event {
	enum lin_op op;
	int64_t call,
		ret;  /* any clock that never goes back; of an unknown answer: the server's end */
	bool unknown; /* no answer */
	bool refused;
	int expect, value;
};

/* At most 512 events (more: aborts), in any order. */
bool linear_check(const struct lin_event *events, size_t n);

#endif
