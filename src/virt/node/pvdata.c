#include "virt/node/pvdata.h"

#include <string.h>

#include "api/api.h"
#include "api/meta.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/try.h"
#include "ctl/exec.h"
#include "ctl/plan.h"
#include "ev/ev.h"
#include "kube/kcache.h"
#include "kube/kobj.h"
#include "virt/migration/local_disks.h"
#include "virt/names.h"
#include "virt/node/volumes.h"
#include "virt/node/volwork.h"

#define RETRY_DELAY (5 * USEC_PER_SEC)

struct pvdata {
	struct pvdata_config cfg;
	char *node_name, *shared_dir, *local_dir;
	struct kcache_handler *on_pv;
	struct map removals; /* PV name -> struct removal */
};

/* The data of one volume on its way out. */
struct removal {
	struct pvdata *p; /* NULL: the owner has gone */
	char *name, *folder;
	bool is_local;
	bool is_old; /* the copy that a move has left behind */
	bool in_pool;
	struct vol_places places;
	struct exec_run *run;
	struct ev_src *timer;
	enum rc rc;
	struct err err;
};

enum rc pvdata_place(const PersistentVolume *pv, bool *is_local, const char **folder,
		     struct err *err)
{
	const CSIPersistentVolumeSource *csi = pv->spec.csi;

	if (!csi ||
	    !(str_eq(csi->driver, PV_DRIVER_SHARED) || str_eq(csi->driver, PV_DRIVER_LOCAL)))
		return err_set(err, RC_UNSUPPORTED,
			       "PersistentVolume '%s' is of no kind that this node can use",
			       pv->metadata.name);
	const char *path = api_map_get(&csi->volumeAttributes, "path");

	*is_local = str_eq(csi->driver, PV_DRIVER_LOCAL);
	*folder = path ? path : pv->metadata.name;
	if (!str_is_dns_subdomain(*folder))
		return err_set(err, RC_INVALID,
			       "PersistentVolume '%s': '%s' is not a folder's name",
			       pv->metadata.name, *folder);
	return RC_OK;
}

#define BY_CLAIM "claim" /* index: "namespace/name" */

static void index_claim(const struct kobj *o, kcache_emit_fn emit, void *ctx)
{
	const PersistentVolume *pv = kobj_typed(o);
	const ObjectReference *ref = pv->spec.claimRef;
	CLEANUP(mem_freep)
	char *key = ref && ref->namespace && ref->name
			    ? mem_printf("%s/%s", ref->namespace, ref->name)
			    : NULL;

	if (key)
		emit(ctx, key);
}

enum rc pvdata_index(struct kcache *cache, struct err *err)
{
	return kcache_index(cache, &api_kind_PersistentVolume, BY_CLAIM, index_claim, err);
}

/* A claim of the same name may have gone a moment ago, and its volume be on its way out still. */
const PersistentVolume *pvdata_of_claim(const struct kcache *cache, const char *ns,
					const char *claim)
{
	CLEANUP(mem_freep) char *key = mem_printf("%s/%s", ns, claim);
	const PersistentVolume *found = NULL;
	struct kiter it;

	if (!key)
		return NULL;
	kcache_by(cache, &api_kind_PersistentVolume, BY_CLAIM, key, &it);
	for (const struct kobj *o; (o = kiter_next(&it));) {
		const PersistentVolume *pv = kobj_typed(o);

		if (!str_eq(pv->status.phase, "Bound"))
			continue;
		if (!found ||
		    strcmp(pv->metadata.creationTimestamp, found->metadata.creationTimestamp) > 0)
			found = pv;
	}
	return found;
}

static void removal_free(struct removal *r)
{
	r->run = exec_run_free(r->run);
	r->timer = ev_src_free(r->timer);
	mem_free(r->name);
	mem_free(r->folder);
	mem_free(r);
}

static void on_pv(const struct kobj *old, const struct kobj *new, void *arg);

static void end(struct removal *r)
{
	struct pvdata *p = r->p;
	const struct kobj *pv =
		r->is_old ? kcache_get(p->cfg.cache, &api_kind_PersistentVolume, NULL, r->name)
			  : NULL;

	ignore_rc(map_take(&p->removals, r->name) ? RC_OK : RC_NOT_FOUND);
	removal_free(r);
	if (pv) /* what had to wait for this: the next old copy, or the end of the volume */
		on_pv(NULL, pv, p);
}

static void start(struct removal *r);

static void on_timer(void *arg)
{
	struct removal *r = arg;

	r->timer = ev_src_free(r->timer);
	start(r);
}

static void retry(struct removal *r, const char *why)
{
	struct err err;

	log_warn("volume '%s': its data is not removed yet, retrying: %s", r->name, why);
	if (ev_timer_after(r->p->cfg.loop, &r->timer, RETRY_DELAY, on_timer, r, &err)) {
		log_error("volume '%s': %s", r->name, err.msg);
		end(r);
	}
}

static void on_released(enum rc rc, const struct err *err, void *arg)
{
	struct removal *r = arg;

	r->run = exec_run_free(r->run);
	if (rc && rc != RC_NOT_FOUND)
		retry(r, err ? err->msg : rc_name(rc));
	else
		end(r);
}

/* False: it was let go already. */
static bool let_go(const struct removal *r, PersistentVolume *pv)
{
	CLEANUP(mem_freep)
	char *left = r->is_old ? local_disk_left_on(pv, r->p->node_name) : NULL;

	if (!r->is_old)
		return api_del_finalizer(&pv->metadata, FIN_PV_DATA);
	return left && local_disk_forget(pv, r->p->node_name, r->folder) == RC_OK;
}

static void release(struct removal *r)
{
	CLEANUP(plan_fini) struct plan plan;
	const PersistentVolume *pv =
		kobj_typed(kcache_get(r->p->cfg.cache, &api_kind_PersistentVolume, NULL, r->name));
	PersistentVolume *wanted = pv ? PersistentVolume_clone(pv) : NULL;
	struct err err = {0};

	plan_init(&plan);
	if (!pv || !wanted || !let_go(r, wanted)) {
		PersistentVolume_free(wanted);
		if (pv && !wanted)
			retry(r, "out of memory");
		else
			end(r);
		return;
	}
	log_info("volume '%s': its %s removed", r->name,
		 r->is_old ? "copy from before it moved is" : "data is");
	enum rc rc = plan_update(&plan, &api_kind_PersistentVolume, pv, wanted, NULL);

	if (!rc)
		rc = exec_plan(r->p->cfg.exec, &r->run, &plan, on_released, r, &err);
	if (rc)
		retry(r, err.msg);
}

static void work(void *arg)
{
	struct removal *r = arg;

	r->rc = volume_delete_data(&r->places, r->folder, r->is_local, &r->err);
}

static void after(void *arg)
{
	struct removal *r = arg;

	r->in_pool = false;
	if (!r->p)
		removal_free(r);
	else if (r->rc)
		retry(r, r->err.msg);
	else
		release(r);
}

static void start(struct removal *r)
{
	struct err err;

	r->places = (struct vol_places){.shared = r->p->shared_dir, .local = r->p->local_dir};
	if (volwork_remove(r->p->cfg.volwork, r->is_local ? r->p->local_dir : r->p->shared_dir,
			   work, after, r, &err))
		retry(r, err.msg);
	else
		r->in_pool = true;
}

static bool is_on_node(const PersistentVolume *pv, const char *node)
{
	const NodeSelector *ns = pv->spec.nodeAffinity ? pv->spec.nodeAffinity->required : NULL;

	for (size_t t = 0; ns && t < ns->n_nodeSelectorTerms; t++)
		for (size_t i = 0; i < ns->nodeSelectorTerms[t].n_matchExpressions; i++) {
			const NodeSelectorRequirement *q =
				&ns->nodeSelectorTerms[t].matchExpressions[i];

			for (size_t k = 0; str_eq(q->key, LABEL_HOSTNAME) && k < q->n_values; k++)
				if (str_eq(q->values[k], node))
					return true;
		}
	return false;
}

/* One of the Ready nodes, the same on each: by rendezvous hashing. */
static bool is_chosen(const struct pvdata *p, const char *pv)
{
	const char *best = NULL;
	uint64_t best_score = 0;
	struct kiter it;

	kcache_list(p->cfg.cache, &api_kind_Node, NULL, &it);
	for (const struct kobj *o; (o = kiter_next(&it));) {
		const Node *n = kobj_typed(o);
		uint64_t a = str_hash(kobj_name(o), strlen(kobj_name(o)));
		uint64_t pair[2] = {a, str_hash(pv, strlen(pv))};
		uint64_t score = str_hash(pair, sizeof(pair));

		if (!API_COND_IS(&n->status, NodeCondition, "Ready", "True"))
			continue;
		if (!best || score > best_score) {
			best = kobj_name(o);
			best_score = score;
		}
	}
	return str_eq(best, p->node_name);
}

static bool is_mine(const struct pvdata *p, const PersistentVolume *pv, bool is_local)
{
	if (is_local)
		return is_on_node(pv, p->node_name);
	return p->shared_dir && is_chosen(p, pv->metadata.name);
}

static void remove_data(struct pvdata *p, const PersistentVolume *pv, const char *folder,
			bool is_local, bool is_old)
{
	struct removal *r = mem_alloc(sizeof(*r));

	if (!r)
		return;
	r->p = p;
	r->is_local = is_local;
	r->is_old = is_old;
	r->name = mem_strdup(pv->metadata.name);
	r->folder = mem_strdup(folder);
	if (!r->name || !r->folder || map_set(&p->removals, r->name, r)) {
		removal_free(r);
		return;
	}
	start(r);
}

/* The copy that the volume calls its own is none that was left behind, whatever the list says. */
static bool is_here(const struct pvdata *p, const PersistentVolume *pv, const char *folder,
		    const char *left)
{
	return is_on_node(pv, p->node_name) && str_eq(folder, left);
}

static void on_pv(const struct kobj *old, const struct kobj *new, void *arg)
{
	struct pvdata *p = arg;
	const PersistentVolume *pv = kobj_typed(new);
	const char *folder;
	bool is_local;

	(void)old;
	if (!pv || map_get(&p->removals, pv->metadata.name) ||
	    pvdata_place(pv, &is_local, &folder, NULL))
		return;
	CLEANUP(mem_freep) char *left = local_disk_left_on(pv, p->node_name);

	if (left && is_local && !is_here(p, pv, folder, left)) {
		remove_data(p, pv, left, true, true);
		return;
	}
	if (!kobj_is_going(new) || !api_has_finalizer(&pv->metadata, FIN_PV_DATA) ||
	    !is_mine(p, pv, is_local))
		return;
	/* Other finalizers (a claim that still uses it) come first, and so do old copies: with the volume goes what is
	 * known of them. */
	if (pv->metadata.n_finalizers > 1 || api_annotation(&pv->metadata, ANN_LEFT_BEHIND))
		return;
	remove_data(p, pv, folder, is_local, false);
}

enum rc pvdata_new(struct pvdata **out, const struct pvdata_config *config, struct err *err)
{
	CLEANUP(pvdata_freep) struct pvdata *p = mem_alloc(sizeof(*p));

	if (!p)
		return err_set(err, RC_NOMEM, "out of memory");
	map_init(&p->removals, NULL);
	p->cfg = *config;
	p->node_name = mem_strdup(config->node_name);
	p->shared_dir = mem_strdup(config->shared_dir);
	p->local_dir = mem_strdup(config->local_dir);
	if (!p->node_name || !p->local_dir || (config->shared_dir && !p->shared_dir))
		return err_set(err, RC_NOMEM, "out of memory");
	TRY(kcache_on(config->cache, &p->on_pv, &api_kind_PersistentVolume, on_pv, p, err));
	*out = STEAL(p);
	return RC_OK;
}

struct pvdata *pvdata_free(struct pvdata *p)
{
	if (!p)
		return NULL;
	kcache_handler_free(p->on_pv);
	while (p->removals.n) {
		struct removal *r = map_take(&p->removals, p->removals.items[0].key);

		if (r->in_pool) { /* what it reads must live */
			r->p = NULL;
			r->run = exec_run_free(r->run);
			r->timer = ev_src_free(r->timer);
		} else {
			removal_free(r);
		}
	}
	map_fini(&p->removals);
	mem_free(p->node_name);
	mem_free(p->shared_dir);
	mem_free(p->local_dir);
	return mem_free(p);
}
