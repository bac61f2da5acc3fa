/* src/cluster/podruntime/podruntime.h - runs the pods that are bound to this node.
 *
 * Loop thread only.  Watches pods, gives each a network, hands the rest to a workload (what a pod
 * runs: given by the composition root), reports status, cleans up.  The life of a pod is the table in
 * podlife.h.  What survives the agent: <state>/pods/<uid>/pod.json says that a pod was started here.
 */
#ifndef CLUSTER_PODRUNTIME_H
#define CLUSTER_PODRUNTIME_H

#include "api/gen/api_types.h"
#include "base/err.h"
#include "cluster/podruntime/podlife.h"
#include "cluster/podruntime/podnet.h"
#include "cluster/podruntime/podstatus.h"
#include "ev/ev.h"

struct exec;
struct kcache;
struct loop;
struct podrt;
struct podrt_gone;
struct podrt_pod;
struct sbuf;

/* Every step is answered exactly once by the podrt_* call named, from the loop, never from inside. */
struct podrt_workload {
	/* NULL: it can run here; else why not, a sentence. */
	const char *(*refuse)(const Pod *pod, void *arg);
	/* Volumes and images.  -> podrt_prepared() */
	void (*prepare)(struct podrt_pod *p, void *arg);
	/* Network is up and prepare is done.  -> podrt_started() */
	void (*start)(struct podrt_pod *p, void *arg);
	/* Started by an earlier agent: find it.  -> podrt_started(), RC_NOT_FOUND: there is nothing */
	void (*adopt)(struct podrt_pod *p, void *arg);
	/* End it within grace seconds (again with a shorter grace).  -> podrt_exited(), which also comes
	 * by itself when it ends */
	void (*stop)(struct podrt_pod *p, int64_t grace, void *arg);
	/* It has ended (or never started): release everything.  -> podrt_cleaned() */
	void (*cleanup)(struct podrt_pod *p, void *arg);
	/* The pod is forgotten: free podrt_pod_data(). */
	void (*forget)(struct podrt_pod *p, void *arg);
	/* Blocking, pool: leftovers of a pod of which only <state>/pods/<uid> and <run>/pods/<uid> are
	 * known: end its processes. */
	enum rc (*sweep)(const char *uid, const char *run_dir, void *arg, struct err *err);
	/* Then what it has on storage, which may take as long as it likes.  RC_OK: -> podrt_swept() */
	enum rc (*sweep_disks)(struct podrt_gone *g, const char *uid, void *arg, struct err *err);
	/* As pool_run(), for what touches <state>/pods/<uid>, whose storage may hang: neither what is removed nor what is made
	 * there holds more than one thread.  NULL: pool_run() does it. */
	enum rc (*on_storage)(bool is_removal, pool_fn work, pool_fn after, void *job, void *arg,
			      struct err *err);
};

struct podrt_config {
	struct loop *loop;
	struct exec *exec;
	struct kcache *cache; /* has a source for Pods, narrowed to this node */
	const char *node_name;
	const char *host_ip;
	const char *state_dir; /* <state>/pods/<uid> */
	const char *run_dir;   /* <run>/pods/<uid>, <run>/netns */
	struct podnet *net;    /* NULL: pods without network (tests) */
	unsigned net_queue;    /* pool queue of all calls on net */
	const struct podrt_workload *workload;
	void *arg;
};

MUST_CHECK enum rc podrt_new(struct podrt **out, const struct podrt_config *config,
			     struct err *err);
/* Call once the cache is synced: sweeps leftovers, then takes up the pods. */
MUST_CHECK enum rc podrt_start(struct podrt *rt, struct err *err);
struct podrt *podrt_free(struct podrt *rt); /* pods go on running */
DEFINE_CLEANUP(struct podrt *, podrt_free);
void podrt_metrics(const struct podrt *rt, struct sbuf *out);
size_t podrt_count(const struct podrt *rt);
struct podrt_pod *podrt_find(const struct podrt *rt, const char *uid); /* NULL: not here */

/* --- for the workload --- */

const Pod *podrt_pod_obj(
	const struct podrt_pod *p); /* as last seen; borrowed until the next event */
const char *podrt_pod_uid(const struct podrt_pod *p);
const char *podrt_pod_state_dir(const struct podrt_pod *p);
const char *podrt_pod_run_dir(const struct podrt_pod *p);
const struct podrt_config *podrt_pod_config(const struct podrt_pod *p);
const struct podnet_attached *podrt_pod_net(
	const struct podrt_pod *p); /* names are known at once */
enum pod_state podrt_pod_state(const struct podrt_pod *p);
bool podrt_pod_is_deleted(const struct podrt_pod *p);
void **podrt_pod_data(struct podrt_pod *p);
struct pod_facts *podrt_pod_facts(struct podrt_pod *p); /* change, then podrt_report() */

/* rc RC_OK, or why not: is_final false lets it be tried again, reason is what kubectl shows
 * ("ErrImagePull"). */
void podrt_prepared(struct podrt_pod *p, enum rc rc, bool is_final, const char *reason,
		    const char *message);
void podrt_started(struct podrt_pod *p, enum rc rc, const char *reason, const char *message);
void podrt_exited(struct podrt_pod *p, int exit_code, const char *reason, const char *message);
/* RC_BUSY: it waits for somebody else, and until it is over the pod's phase does not say that it has ended. */
void podrt_cleaned(struct podrt_pod *p, enum rc rc, const char *message);
/* Of a pod that is not in the API any more nothing is left but its folder; or why not: the next agent tries again. */
void podrt_swept(struct podrt_gone *g, enum rc rc, const char *message);
/* What its cleanup waits for may have come: tries again now, if it waits. */
void podrt_retry(struct podrt_pod *p);
/* Facts changed: write the status if it differs. */
void podrt_report(struct podrt_pod *p);

#endif
