#include "virt/node/witness.h"

#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "api/gen/api_types.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/try.h"
#include "ev/ev.h"
#include "json/json.h"
#include "kube/kcache.h"
#include "kube/kobj.h"
#include "kube/kube.h"
#include "virt/migration/fencing.h"
#include "virt/migration/host_disks.h"
#include "virt/migration/local_disks.h"
#include "virt/node/pvdata.h"
#include "virt/node/vollock.h"
#include "virt/node/volwork.h"

#define WITNESS	 (&api_kind_DiskWitness)
#define LEASE	 (&api_kind_Lease)
#define LEASE_NS "kube-node-lease"
#define SILENT	 "the storage of the disk does not answer"
#define DEADLINE (8 * USEC_PER_SEC) /* then it is said that the storage does not answer */
/* A lock that is not there (or, when it is to be taken, is there) may be so for a moment only. */
#define LOOK_AGAIN (10 * USEC_PER_SEC)
#define TAKE_AGAIN (2 * USEC_PER_SEC)

/* Theory of operation: one task for each record that names this node.
 *
 *   Idle -> Asking (pool: one disk after the other) -> [all taken: Reading the lease afresh] -> Telling -> Idle
 *
 * Nothing is kept: a task that begins anew asks the same of the storage, and says the same. */

enum phase { PH_IDLE, PH_ASKING, PH_READING, PH_TELLING };

struct disk {
	char *name, *root, *path;
};

struct task {
	struct witness *o; /* NULL: the owner has gone, the pool still has it */
	char *ns, *name;
	enum phase phase;
	int64_t epoch; /* of what is under way, or was done last; 0: nothing was */
	bool is_final; /* the answer to that is told, and another look would say nothing new */
	char *lease;   /* NULL: to look, not to take */
	struct disk *disks;
	witness_ask_fn ask; /* the pool reads nothing of the owner */
	void *ask_arg;
	size_t n_disks, at;
	bool is_held;
	enum rc rc;
	struct err err;
	struct kube_call *call;
	struct ev_src *timer;
};

struct witness {
	struct witness_config cfg;
	char *node_name, *shared_dir;
	struct kcache_handler *on_record;
	struct map tasks; /* "ns/name" -> struct task */
};

static void drop_disks(struct task *t)
{
	for (size_t i = 0; i < t->n_disks; i++) {
		mem_free(t->disks[i].name);
		mem_free(t->disks[i].root);
		mem_free(t->disks[i].path);
	}
	t->disks = mem_free(t->disks);
	t->n_disks = t->at = 0;
}

static void task_destroy(struct task *t)
{
	drop_disks(t);
	mem_free(t->ns);
	mem_free(t->name);
	mem_free(t->lease);
	mem_free(t);
}

/* As the map's: what the pool still uses is freed when it comes back. */
static void task_free(void *arg)
{
	struct task *t = arg;

	t->call = kube_call_free(t->call);
	t->timer = ev_src_free(t->timer);
	t->o = NULL;
	if (t->phase != PH_ASKING)
		task_destroy(t);
}

/* NULL: there is none any more that names this node. */
static const DiskWitness *record_of(const struct task *t)
{
	const DiskWitness *w = kobj_typed(kcache_get(t->o->cfg.cache, WITNESS, t->ns, t->name));

	return w && str_eq(w->spec.witness, t->o->node_name) ? w : NULL;
}

static usec_t retry_of(const struct task *t)
{
	if (t->o->cfg.retry)
		return t->o->cfg.retry;
	return t->lease ? TAKE_AGAIN : LOOK_AGAIN;
}

static void rest(struct task *t)
{
	const DiskWitness *w = record_of(t);
	bool is_new = !w || API_GET(&w->spec, epoch, 1) != t->epoch;

	t->phase = PH_IDLE;
	drop_disks(t);
	ev_timer_rearm(t->timer, is_new ? 0 : t->is_final ? USEC_INFINITY : retry_of(t));
}

/* ---- the answer ---- */

static void on_told(const struct kube_reply *r, void *arg)
{
	struct task *t = arg;
	CLEANUP(kobj_unrefp) struct kobj *o = NULL;

	t->call = kube_call_free(t->call);
	if (r->rc) {
		t->is_final = false; /* it is found, and told, again */
		log_debug("witness of '%s/%s': not told yet: %s", t->ns, t->name, r->err.msg);
	} else if (!kobj_decode(&o, WITNESS, r->body, NULL)) {
		ignore_rc(kcache_feed(t->o->cfg.cache, o, NULL)); /* the watch tells it */
	}
	if (t->phase == PH_TELLING)
		rest(t);
}

static bool is_told(const DiskWitness *w, const char *state, const char *disk, const char *text)
{
	return API_GET(&w->status, epoch, 0) == API_GET(&w->spec, epoch, 1) &&
	       str_eq(w->status.state, state) && str_eq(w->status.disk, disk) &&
	       str_eq(w->status.message, text);
}

/* False: nothing is written; it is told already, or cannot be now. */
static bool tell(struct task *t, const char *state, const char *disk, const char *text)
{
	const DiskWitness *w = record_of(t);
	struct err err = {0};
	char now[32];

	if (!w || API_GET(&w->spec, epoch, 1) != t->epoch || is_told(w, state, disk, text))
		return false;
	time_rfc3339(loop_realtime(t->o->cfg.loop), now);
	CLEANUP(js_unrefp)
	struct json *status = js_pack("{s:I, s:s, s:s, s:s, s:s}", "epoch", t->epoch, "state",
				      state, "disk", disk, "message", text, "time", now);
	CLEANUP(js_unrefp)
	struct json *body = status ? js_pack("{s:{s:s}, s:O}", "metadata", "resourceVersion",
					     w->metadata.resourceVersion, "status", status)
				   : NULL;

	t->call = kube_call_free(t->call);
	if (!body || kube_patch(t->o->cfg.kube, &t->call, WITNESS, t->ns, t->name, "status",
				KUBE_PATCH_MERGE, body, on_told, t, &err)) {
		t->is_final = false;
		return false;
	}
	log_info("VM '%s/%s': its locks, epoch %lld: %s: %s", t->ns, t->name, (long long)t->epoch,
		 state, text);
	return true;
}

static void finish(struct task *t, const char *state, const char *disk, const char *text)
{
	t->is_final = str_eq(state, t->lease ? WitnessState_Free : WitnessState_Held);
	t->phase = PH_TELLING;
	if (!tell(t, state, disk, text))
		rest(t);
}

/* ---- all were taken ---- */

static void on_lease(const struct kube_reply *r, void *arg)
{
	struct task *t = arg;
	const char *renewed = js_str(js_at(r->body, "spec", "renewTime", NULL));
	char text[300];

	t->call = kube_call_free(t->call);
	if (r->rc) {
		(void)snprintf(text, sizeof(text), "the lease of its node cannot be read: %.200s",
			       r->err.msg);
		finish(t, WitnessState_Unknown, "", text);
	} else if (!str_eq(renewed, t->lease)) {
		finish(t, WitnessState_Unknown, "", "its node was heard of again");
	} else {
		finish(t, WitnessState_Free, "", "the locks of all its disks were taken");
	}
}

static void read_lease(struct task *t)
{
	const DiskWitness *w = record_of(t);
	struct err err = {0};

	t->phase = PH_READING;
	t->call = kube_call_free(t->call);
	if (!w || kube_get(t->o->cfg.kube, &t->call, LEASE, LEASE_NS, w->spec.nodeName, on_lease, t,
			   &err))
		rest(t);
}

/* ---- the disks ---- */

static enum rc ask_disk(const struct vollock *d, bool takes, bool *is_held, void *arg,
			struct err *err)
{
	(void)arg;
	return takes ? vollock_take(d, is_held, err) : vollock_look(d, is_held, err);
}

static void work(void *arg)
{
	struct task *t = arg;
	const struct disk *d = &t->disks[t->at];
	const struct vollock lock = {.root = d->root, .path = d->path};

	t->rc = t->ask(&lock, t->lease != NULL, &t->is_held, t->ask_arg, &t->err);
}

static void after(void *arg);

static void ask_storage(struct task *t)
{
	struct err err = {0};

	t->phase = PH_ASKING;
	ev_timer_rearm(t->timer, t->o->cfg.late_after ? t->o->cfg.late_after : DEADLINE);
	enum rc rc = volwork_run(t->o->cfg.volwork, t->disks[t->at].root, work, after, t, &err);

	if (rc) /* for how long it has not is no news each time */
		finish(t, WitnessState_Unknown, t->disks[t->at].name,
		       rc == RC_TIMEOUT ? SILENT : err.msg);
}

/* What was asked for one silence is not gone on with in the next. */
static bool is_wanted(const struct task *t)
{
	const DiskWitness *w = record_of(t);

	return w && API_GET(&w->spec, epoch, 1) == t->epoch;
}

static void judge(struct task *t)
{
	char name[LIMIT_NAME_BYTES + 1], text[LIMIT_NAME_BYTES + 300];

	(void)snprintf(name, sizeof(name), "%s", t->disks[t->at].name);
	if (t->rc) {
		(void)snprintf(text, sizeof(text), "disk '%s': %.200s", name, t->err.msg);
		finish(t, WitnessState_Unknown, name, text);
	} else if (t->lease && t->is_held) {
		(void)snprintf(text, sizeof(text), "disk '%s' is locked", name);
		finish(t, WitnessState_Held, name, text);
	} else if (!t->lease && !t->is_held) {
		(void)snprintf(text, sizeof(text),
			       "disk '%s' is not locked, or its storage does not show the locks of "
			       "other nodes",
			       name);
		finish(t, WitnessState_Free, name, text);
	} else if (++t->at < t->n_disks) {
		ask_storage(t);
	} else if (t->lease) {
		read_lease(t);
	} else {
		finish(t, WitnessState_Held, "", "all its disks are locked");
	}
}

static void after(void *arg)
{
	struct task *t = arg;

	t->phase = PH_IDLE;
	if (!t->o)
		task_destroy(t);
	else if (!is_wanted(t))
		rest(t);
	else
		judge(t);
}

/* ---- where they are ---- */

static enum rc place_host_disk(const struct witness *o, const Volume *v, struct disk *d,
			       struct err *err)
{
	const FerryConfig *cfg =
		kobj_typed(kcache_get(o->cfg.cache, &api_kind_FerryConfig, NULL, "ferry"));
	const char *path = v->hostDisk->path;
	const char *root = host_disk_folder(cfg ? &cfg->spec : NULL, path);

	if (!root)
		return err_set(err, RC_FORBIDDEN,
			       "disk '%s': '%s' is not below a folder that " HOST_DISKS_SETTING
			       " allows",
			       v->name, path);
	d->root = mem_strdup(root);
	d->path = mem_strdup(path + strlen(root) + 1);
	return RC_OK;
}

static enum rc place_claim(const struct witness *o, const char *ns, const Volume *v, struct disk *d,
			   struct err *err)
{
	const char *claim = local_disk_claim(v), *folder;
	const PersistentVolume *pv = claim ? pvdata_of_claim(o->cfg.cache, ns, claim) : NULL;
	bool is_local;

	if (!pv)
		return err_set(err, RC_BUSY, "disk '%s': its volume is not known to node '%s'",
			       v->name, o->node_name);
	TRY(pvdata_place(pv, &is_local, &folder, err));
	if (is_local || !o->shared_dir)
		return err_set(err, RC_UNSUPPORTED,
			       "disk '%s': node '%s' has no storage of class 'shared'", v->name,
			       o->node_name);
	d->root = mem_strdup(o->shared_dir);
	d->path = mem_printf("%s/%s", folder,
			     str_eq(pv->spec.volumeMode, "Block") ? "block.img" : "disk.img");
	return RC_OK;
}

static enum rc place(const struct task *t, const VirtualMachineInstance *vmi, const char *name,
		     struct disk *d, struct err *err)
{
	const Volume *v = NULL;

	for (size_t i = 0; i < vmi->spec.n_volumes; i++)
		if (str_eq(vmi->spec.volumes[i].name, name))
			v = &vmi->spec.volumes[i];
	if (!v)
		return err_set(err, RC_INVALID, "the VM has no volume '%s'", name);
	TRY(v->hostDisk ? place_host_disk(t->o, v, d, err) : place_claim(t->o, t->ns, v, d, err));
	d->name = mem_strdup(name);
	return d->name && d->root && d->path ? RC_OK : err_set(err, RC_NOMEM, "out of memory");
}

static enum rc place_all(struct task *t, const DiskWitness *w, struct err *err)
{
	const VirtualMachineInstance *vmi = kobj_typed(
		kcache_get(t->o->cfg.cache, &api_kind_VirtualMachineInstance, t->ns, t->name));

	if (!vmi || !str_eq(vmi->metadata.uid, w->spec.vmiUID))
		return err_set(err, RC_BUSY, "the VM is not known to node '%s' yet",
			       t->o->node_name);
	if (!w->spec.n_disks)
		return err_set(err, RC_INVALID, "the record names no disk");
	t->disks = mem_calloc(w->spec.n_disks, sizeof(*t->disks));
	if (!t->disks)
		return err_set(err, RC_NOMEM, "out of memory");
	t->n_disks = w->spec.n_disks;
	for (size_t i = 0; i < t->n_disks; i++)
		TRY(place(t, vmi, w->spec.disks[i], &t->disks[i], err));
	return RC_OK;
}

/* ---- when ---- */

static bool is_answered(const DiskWitness *w)
{
	return API_GET(&w->status, epoch, 0) == API_GET(&w->spec, epoch, 1) &&
	       str_eq(w->status.state, w->spec.lease ? WitnessState_Free : WitnessState_Held);
}

static void begin(struct task *t, const DiskWitness *w)
{
	struct err err = {0};

	t->epoch = API_GET(&w->spec, epoch, 1);
	t->is_final = is_answered(w);
	t->lease = mem_free(t->lease);
	if (t->is_final)
		return;
	if (w->spec.lease) {
		t->lease = mem_strdup(w->spec.lease);
		if (!t->lease) { /* never to be taken for a look */
			t->epoch = 0;
			ev_timer_rearm(t->timer, TAKE_AGAIN);
			return;
		}
	}
	drop_disks(t);
	if (place_all(t, w, &err))
		finish(t, WitnessState_Unknown, "", err.msg);
	else
		ask_storage(t);
}

static void on_timer(void *arg)
{
	struct task *t = arg;
	const DiskWitness *w = record_of(t);

	if (t->phase == PH_ASKING) { /* it is waited for on; nothing could end it */
		const char *name = t->disks[t->at].name;

		(void)tell(t, WitnessState_Unknown, name, SILENT);
		return;
	}
	if (t->phase != PH_IDLE)
		return;
	if (w) {
		begin(t, w);
		return;
	}
	CLEANUP(mem_freep) char *key = mem_printf("%s/%s", t->ns, t->name);

	if (key)
		(void)map_del(&t->o->tasks, key); /* frees t */
}

static struct task *task_new(struct witness *o, const char *key, const DiskWitness *w)
{
	struct task *t = mem_alloc(sizeof(*t));

	if (!t || ev_timer_after(o->cfg.loop, &t->timer, USEC_INFINITY, on_timer, t, NULL)) {
		mem_free(t);
		return NULL;
	}
	t->o = o;
	t->ask = o->cfg.ask;
	t->ask_arg = o->cfg.ask_arg;
	t->ns = mem_strdup(w->metadata.namespace);
	t->name = mem_strdup(w->metadata.name);
	if (!t->ns || !t->name || map_set(&o->tasks, key, t)) {
		task_free(t);
		return NULL;
	}
	return t;
}

/* A record says something new: looked at from the loop, after the cache's event is through. */
static void on_record(const struct kobj *old, const struct kobj *new, void *arg)
{
	struct witness *o = arg;
	const DiskWitness *w = kobj_typed(new ? new : old);
	CLEANUP(mem_freep)
	char *key = mem_printf("%s/%s", w->metadata.namespace, w->metadata.name);
	struct task *t = key ? map_get(&o->tasks, key) : NULL;
	bool is_ours = new &&str_eq(w->spec.witness, o->node_name);

	if (key && !t && is_ours)
		t = task_new(o, key, w);
	if (t && old && new && !str_eq(kobj_uid(old), kobj_uid(new)))
		t->epoch = 0; /* another one of this name */
	if (t && t->phase == PH_IDLE && (!is_ours || t->epoch != API_GET(&w->spec, epoch, 1)))
		ev_timer_rearm(t->timer, 0);
}

enum rc witness_new(struct witness **out, const struct witness_config *config, struct err *err)
{
	CLEANUP(witness_freep) struct witness *o = mem_alloc(sizeof(*o));

	if (!o)
		return err_set(err, RC_NOMEM, "out of memory");
	map_init(&o->tasks, task_free);
	o->cfg = *config;
	o->cfg.ask = config->ask ? config->ask : ask_disk;
	o->node_name = mem_strdup(config->node_name);
	o->shared_dir = mem_strdup(config->shared_dir);
	if (!o->node_name || (config->shared_dir && !o->shared_dir))
		return err_set(err, RC_NOMEM, "out of memory");
	TRY(kcache_on(config->cache, &o->on_record, WITNESS, on_record, o, err));
	*out = STEAL(o);
	return RC_OK;
}

struct witness *witness_free(struct witness *w)
{
	if (!w)
		return NULL;
	kcache_handler_free(w->on_record);
	map_fini(&w->tasks);
	mem_free(w->node_name);
	mem_free(w->shared_dir);
	return mem_free(w);
}
