/* src/virt/node/witness.h - looks at the locks of other nodes' VMs where a DiskWitness names this node.
 *
 * Loop thread; the disks themselves are opened in the pool, as their storage may hang.  Locks that are to be taken are
 * taken for one silence: only if a fresh read, after the last of them was got, shows the lease that the record names.
 * docs/internals/fencing.md.
 */
#ifndef NODE_WITNESS_H
#define NODE_WITNESS_H

#include "base/err.h"

struct kcache;
struct kube;
struct loop;
struct volwork;
struct vollock;
struct witness;

/* Looks at the locks of one disk, or takes them; on a pool thread. */
typedef enum rc (*witness_ask_fn)(const struct vollock *d, bool takes, bool *is_held, void *arg,
				  struct err *err);

struct witness_config {
	struct loop *loop;
	struct kube *kube;
	struct kcache *
		cache; /* has DiskWitnesses, VMIs, PersistentVolumes (pvdata_index()) and the FerryConfig */
	const char *node_name;
	const char *shared_dir; /* NULL: none */
	struct volwork *volwork;
	usec_t retry, late_after; /* 0: the usual times */
	witness_ask_fn
		ask; /* NULL: of the disk itself (vollock.h); another one: the simulation's */
	void *ask_arg;
};

MUST_CHECK enum rc witness_new(struct witness **out, const struct witness_config *config,
			       struct err *err);
struct witness *witness_free(struct witness *w);
DEFINE_CLEANUP(struct witness *, witness_free);

#endif
