/* src/virt/node/arrivals_look.h - looks whether this node has a place for the disks of VMs that run elsewhere, and could
 * bring them here; what it finds is for the node's annotations (virt/migration/arrivals.h).
 *
 * Loop thread; what may hang runs as work on its storage.  Of a VM's disks only the places are looked at that the disks
 * would have here, and of files of this node only those below a folder that is allowed.
 */
#ifndef NODE_ARRIVALS_LOOK_H
#define NODE_ARRIVALS_LOOK_H

#include "base/err.h"

struct api_map;
struct arrivals_look;
struct kcache;
struct loop;
struct volwork;

struct arrivals_look_config {
	struct loop *loop;
	struct kcache *cache; /* as the VMs' (vm.h), and this node's Pods */
	struct volwork *volwork;
	const char *node_name, *state_dir, *local_dir;
	const char *shared_dir; /* NULL: none */
	usec_t every;		/* 0: ARRIVALS_EVERY */
	usec_t late_after;	/* 0: VOLWORK_LATE_AFTER */
	/* All that is known, whenever it is something else.  Borrowed for the call. */
	void (*publish)(const struct api_map *facts, void *arg);
	void *arg;
};

/* Files come and go without a word to anybody who could tell, so it is looked again and again. */
#define ARRIVALS_EVERY (2 * USEC_PER_SEC)
/* So many VMs; of others nothing is said. */
#define ARRIVALS_MAX 256

/* The first look is begun from the loop.  The texts of config are the caller's, and outlive it. */
MUST_CHECK enum rc arrivals_look_new(struct arrivals_look **out,
				     const struct arrivals_look_config *config, struct err *err);
struct arrivals_look *arrivals_look_free(struct arrivals_look *l);
DEFINE_CLEANUP(struct arrivals_look *, arrivals_look_free);

#endif
