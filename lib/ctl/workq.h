/* lib/ctl/workq.h - keyed work queue: a key is never reconciled twice at once.
 *
 * Loop thread only.  Keys are copied on entry.  A key returned by workq_get() is borrowed and stays
 * valid until workq_done() is called for it.
 *
 * Invariants: a key is ready at most once; a busy key is never ready; what is added while busy is
 * handed out again after workq_done().
 */
#ifndef CTL_WORKQ_H
#define CTL_WORKQ_H

#include "base/err.h"
#include "ctl/prom.h"

struct loop;
struct workq;

struct workq_opts {
	usec_t now_min;	    /* first delay of RETRY_NOW; 0: 2 ms.  Doubles up to backoff_max. */
	usec_t backoff_min; /* first delay of RETRY_BACKOFF; 0: 50 ms */
	usec_t backoff_max; /* 0: 30 s */
	uint64_t seed;	    /* of the jitter (up to a quarter more); 0: random */
};

/* opts may be NULL. */
MUST_CHECK enum rc workq_new(struct workq **out, struct loop *loop, const char *name,
			     const struct workq_opts *opts);
struct workq *workq_free(struct workq *q); /* NULL is fine; always returns NULL */
DEFINE_CLEANUP(struct workq *, workq_free);

/* fn is called from the loop (never from inside a workq call) when something became ready. */
void workq_on_ready(struct workq *q, void (*fn)(void *arg), void *arg);

MUST_CHECK enum rc workq_add(struct workq *q, const char *key);
/* Due after delay; of several, the earliest counts; workq_add() makes it due at once. */
MUST_CHECK enum rc workq_add_after(struct workq *q, const char *key, usec_t delay);
const char *workq_get(struct workq *q); /* NULL: nothing is due */
/* RETRY_NO forgets the key's failures; the others add it again after its back-off.  Never fails. */
void workq_done(struct workq *q, const char *key, enum retry how);
size_t workq_depth(const struct workq *q);			 /* ready now */
size_t workq_waiting(const struct workq *q);			 /* delayed or backing off */
size_t workq_busy(const struct workq *q);			 /* handed out */
unsigned workq_failures(const struct workq *q, const char *key); /* in a row */

/* Since the queue was made; counted as client-go counts its queues. */
struct workq_stats {
	uint64_t adds;		    /* keys that became due, repetitions of such not counted */
	uint64_t retries;	    /* keys put back for later */
	usec_t unfinished, longest; /* how long the keys in work are so: all together, the oldest */
	struct prom_hist waited, worked; /* seconds: due until handed out; handed out until done */
};
extern const struct prom_buckets workq_buckets; /* of waited and worked */
void workq_get_stats(const struct workq *q, struct workq_stats *out);

#endif
