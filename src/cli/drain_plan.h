/* src/cli/drain_plan.h - what becomes of each VM on a node that is to be emptied, and when that is over.
 *
 * Pure: objects as the API server gave them go in, a verdict and a sentence come out.
 */
#ifndef CLI_DRAIN_PLAN_H
#define CLI_DRAIN_PLAN_H

#include "base/err.h"

struct json;
struct sbuf;

enum drain_verdict {
	DRAIN_MOVES,	/* it moves, or is about to */
	DRAIN_WAITS,	/* it would move, but for the moment it cannot */
	DRAIN_SHUTDOWN, /* its strategy has it shut down by an eviction */
	DRAIN_STAYS,	/* it cannot go, and no waiting helps */
	DRAIN_LEAVES,	/* it is going away already */
	DRAIN_ARRIVES,	/* a move brings it here */
	DRAIN__MAX
};
const char *drain_verdict_name(enum drain_verdict v); /* "Moves" */

/* What is known of one VM.  All borrowed; NULL: there is none. */
struct drain_facts {
	const char *node;
	const struct json *pod; /* its launcher pod on the node */
	const struct json *vmi;
	const struct json *open;   /* its migration that has not ended */
	const struct json *ended;  /* the newest that has */
	const struct json *answer; /* of a migration created as a dry run: where it could go */
	const char *refusal;	   /* why the server refused that */
	bool was_asked;		   /* this drain's eviction marked it */
	const char *ended_before;  /* uid of what "ended" was then; NULL: there was none */
};

struct drain_row {
	const char *ns, *name; /* borrowed */
	enum drain_verdict verdict;
	char reason[400];
};

/* Verdict and reason; ns and name are the caller's. */
void drain_judge(const struct drain_facts *f, struct drain_row *out);
/* Only a VM that could move is asked for, where: strategy and LiveMigratable allow it, it runs, and no
 * migration is open. */
bool drain_wants_answer(const struct drain_facts *f);
/* An eviction now does no harm and helps: it is marked, or (with force) shut down.  Never true for a VM
 * that an eviction would shut down, without force. */
bool drain_may_evict(const struct drain_facts *f, const struct drain_row *row, bool force);

/* It goes, or may yet go.  False: it stays, or is left alone. */
bool drain_can_go(const struct drain_row *row, bool force);
/* The widest "namespace/name". */
size_t drain_width(const struct drain_row *rows, size_t n);
/* A row per VM. */
void drain_print(const struct drain_row *rows, size_t n, bool force, struct sbuf *out);

enum drain_end { DRAIN_EMPTY, DRAIN_GOES_ON, DRAIN_BLOCKED };
/* Blocked: some are left, and none of them is on its way or could be. */
enum drain_end drain_end_of(const struct drain_row *rows, size_t n, bool force);
/* Nothing would stay: what `--dry-run` answers. */
bool drain_all_can_go(const struct drain_row *rows, size_t n, bool force);

#endif
