/* src/virt/node/volwork.h - work on storage that may hang, in the pool: what hangs holds a thread that nothing can free.
 *
 * Loop thread.  A storage is known by its root folder.  It holds at most two threads, whatever is asked of it: one for
 * opening, making and proving, one after the other, and one for removing.  All storages together leave one to the rest.
 */
#ifndef NODE_VOLWORK_H
#define NODE_VOLWORK_H

#include "ev/ev.h"

struct volwork;

struct volwork_config {
	struct loop *loop;
	const char *node_name;
	const char *shared_dir, *local_dir; /* how they are called; NULL: none */
	usec_t late_after;		    /* 0: VOLWORK_LATE_AFTER */
};

/* What does not answer within it is late. */
#define VOLWORK_LATE_AFTER (5 * USEC_PER_SEC)

MUST_CHECK enum rc volwork_new(struct volwork **out, const struct volwork_config *config,
			       struct err *err);
/* Nothing may be under way: after pool_end(). */
struct volwork *volwork_free(struct volwork *w);
DEFINE_CLEANUP(struct volwork *, volwork_free);

/* As pool_run(); root NULL: on this node's own disk.  RC_TIMEOUT: what was asked of this storage before has not come
 * back for seconds, so this is not begun; the text names the storage. */
MUST_CHECK enum rc volwork_run(struct volwork *w, const char *root, pool_fn work, pool_fn after,
			       void *arg, struct err *err);
/* The same for removing, which waits for as long as it takes. */
MUST_CHECK enum rc volwork_remove(struct volwork *w, const char *root, pool_fn work, pool_fn after,
				  void *arg, struct err *err);

/* How people call the storage, once something was asked of it; NULL: not yet.  Borrowed. */
const char *volwork_name(const struct volwork *w, const char *root);

#endif
