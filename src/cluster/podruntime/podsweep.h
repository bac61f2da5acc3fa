/* src/cluster/podruntime/podsweep.h - what is left of pods that are not in the API any more; how a pod's folder goes.
 *
 * Loop thread.  At an agent's start processes, links and names of such pods go before anything else begins; what they
 * have on storage goes meanwhile, for as long as that takes.  <state>/pods/<uid> goes last: by it the next agent knows
 * that there is something left.
 */
#ifndef PODSWEEP_H
#define PODSWEEP_H

#include "base/err.h"
#include "ev/ev.h"

struct podrt_config;
struct podrt_workload;
struct podsweep;
struct Pod;

/* podrt_workload.on_storage, or pool_run(), if it has none; workload_arg is podrt_config.arg.  Errors: theirs. */
MUST_CHECK enum rc podsweep_on_storage(const struct podrt_workload *w, void *workload_arg,
				       struct loop *loop, bool is_removal, pool_fn work,
				       pool_fn after, void *job, struct err *err);

/* config has to live until the agent's end. */
MUST_CHECK enum rc podsweep_new(struct podsweep **out, const struct podrt_config *config,
				struct err *err);
struct podsweep *podsweep_free(struct podsweep *s);
DEFINE_CLEANUP(struct podsweep *, podsweep_free);
/* A pod that is in the API. */
MUST_CHECK enum rc podsweep_spare(struct podsweep *s, const struct Pod *pod, struct err *err);
/* done runs once, from the loop, when pods may begin; what could not be swept is logged.  RC_OK: it takes s over. */
MUST_CHECK enum rc podsweep_run(struct podsweep *s, void (*done)(void *arg), void *arg,
				struct err *err);

#endif
