/* src/virt/node/pvdata.h - the data of PersistentVolumes: where it is, and its removal.
 *
 * A volume of Ferry's classes carries the finalizer ferry.dev/pv-data.  When it is deleted, the agent that
 * can reach its data removes it and then the finalizer: for class "local" the node it lies on, for "shared"
 * any node (the Ready ones agree on one by the volume's name).
 */
#ifndef NODE_PVDATA_H
#define NODE_PVDATA_H

#include "api/gen/api_types.h"
#include "base/err.h"

#define PV_DRIVER_SHARED "ferry.dev/shared"
#define PV_DRIVER_LOCAL	 "ferry.dev/local"

struct exec;
struct kcache;
struct loop;
struct pvdata;

/* Class and folder name (below the class' root) of a volume.  RC_UNSUPPORTED: not one of Ferry's. */
MUST_CHECK enum rc pvdata_place(const PersistentVolume *pv, bool *is_local, const char **folder,
				struct err *err);

struct pvdata_config {
	struct loop *loop;
	struct kcache *cache; /* has PersistentVolumes and Nodes */
	struct exec *exec;
	const char *node_name;
	const char *shared_dir; /* NULL: none */
	const char *local_dir;
};

MUST_CHECK enum rc pvdata_new(struct pvdata **out, const struct pvdata_config *config,
			      struct err *err);
struct pvdata *pvdata_free(struct pvdata *p);
DEFINE_CLEANUP(struct pvdata *, pvdata_free);

#endif
