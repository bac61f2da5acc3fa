/* src/virt/controller/fence/fencer.h - runs the fence agent for the NodeFences that ask for it.
 *
 * Loop thread only.  One run at a time for a node.  Before a run: the node's lease has not been seen to
 * change for the whole time of silence by our own clock, whatever the clocks of others say; a fresh read
 * shows the same lease; and the run is in the record, durably.  Its outcome is in the record before
 * anybody acts on it.  docs/internals/fencing.md.
 */
#ifndef VIRT_CONTROLLER_FENCE_FENCER_H
#define VIRT_CONTROLLER_FENCE_FENCER_H

#include "base/err.h"

struct fencer;
struct kcache;
struct kube;
struct loop;

/* One run of the agent; texts are borrowed for the call that gets it. */
struct fence_job {
	const char *program; /* FerryConfig's name of it */
	const char *node;
	const char *address; /* the node's InternalIP; "" when not known */
	int64_t epoch;
	usec_t timeout;
};

/* exit_code 0: the node is off; -1: it was not run or took too long.  text: the last it said. */
typedef void (*fence_done_fn)(int exit_code, const char *text, void *arg);

struct fence_ops {
	/* done is called once, from the loop, unless op is freed before. */
	enum rc (*start)(void *ctx, const struct fence_job *job, fence_done_fn done, void *arg,
			 void **op, struct err *err);
	void (*free)(void *op); /* also ends what still runs */
};

/* cache must have Node, Lease, NodeFence and FerryConfig, and outlive it; ctx too. */
MUST_CHECK enum rc fencer_new(struct fencer **out, struct loop *loop, struct kube *kube,
			      struct kcache *cache, const struct fence_ops *ops, void *ctx,
			      struct err *err);
struct fencer *fencer_free(struct fencer *f);

#endif
