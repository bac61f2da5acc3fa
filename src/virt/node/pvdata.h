/* src/virt/node/pvdata.h - the data of PersistentVolumes: where it is, and its removal.
 *
 * A volume of Ferry's classes carries the finalizer ferry.dev/pv-data.  When it is deleted, the agent that
 * can reach its data removes it and then the finalizer: for class "local" the node it lies on, for "shared"
 * any node (the Ready ones agree on one by the volume's name).  The copy of a local volume that a move has left
 * behind goes as soon as the volume names it: then its guest runs on the other one.
 */
#ifndef NODE_PVDATA_H
#define NODE_PVDATA_H

#include "api/gen/api_types.h"
#include "base/err.h"

struct exec;
struct kcache;
struct loop;
struct pvdata;
struct volwork;

/* Class and folder name (below the class' root) of a volume.  RC_UNSUPPORTED: not one of Ferry's. */
MUST_CHECK enum rc pvdata_place(const PersistentVolume *pv, bool *is_local, const char **folder,
				struct err *err);

/* The volume that is bound to a claim; NULL: none is known.  Borrowed. */
const PersistentVolume *pvdata_of_claim(const struct kcache *cache, const char *ns,
					const char *claim);
/* What that needs; before kcache_start(). */
MUST_CHECK enum rc pvdata_index(struct kcache *cache, struct err *err);

struct pvdata_config {
	struct loop *loop;
	struct kcache *cache; /* has PersistentVolumes and Nodes */
	struct exec *exec;
	const char *node_name;
	const char *shared_dir; /* NULL: none */
	const char *local_dir;
	struct volwork *volwork;
};

MUST_CHECK enum rc pvdata_new(struct pvdata **out, const struct pvdata_config *config,
			      struct err *err);
struct pvdata *pvdata_free(struct pvdata *p);
DEFINE_CLEANUP(struct pvdata *, pvdata_free);

#endif
