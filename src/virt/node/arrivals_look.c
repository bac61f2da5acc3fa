#include "virt/node/arrivals_look.h"

#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "api/meta.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/try.h"
#include "ev/ev.h"
#include "kube/kcache.h"
#include "kube/kobj.h"
#include "virt/migration/arrivals.h"
#include "virt/migration/host_disks.h"
#include "virt/migration/local_disks.h"
#include "virt/names.h"
#include "virt/node/host_files.h"
#include "virt/node/migration.h"
#include "virt/node/pvdata.h"
#include "virt/node/volumes.h"
#include "virt/node/volwork.h"

/* A look goes through all VMs and puts what is to be asked of each storage into one job.  It ends when all jobs have come
 * back, or when they are late; a job that hangs is left to itself, and its storage is not asked again until it is back. */

struct arrivals_look {
	struct arrivals_look_config cfg;
	struct ev_src *timer; /* the next look, or the latest end of this one */
	struct map jobs;      /* root of a storage -> struct job that has not come back */
	struct map answers;   /* of this look: uid -> struct answer */
	struct api_map kept;  /* of the last one, for this one */
	unsigned n_waiting;   /* jobs of this look */
	bool is_looking;
	bool was_full;
	struct api_map facts; /* as published */
};

/* The worst of all disks of a VM is its answer. */
struct answer {
	enum arrival a;
	char text[320];
};

struct ask {
	char *uid;
	char *file; /* below the job's root; NULL: any disk in the storage for local volumes */
	uint64_t bytes;
	enum rc rc;
	struct err err;
	char owner[HOST_FILE_OWNER];
};

struct job {
	struct arrivals_look *l; /* NULL: gone */
	char *root, *local;
	struct ask *asks;
	size_t n;
	bool is_begun, is_late; /* late: its look has ended without it */
};

static void job_free(void *arg)
{
	struct job *j = arg;

	for (size_t i = 0; i < j->n; i++) {
		mem_free(j->asks[i].uid);
		mem_free(j->asks[i].file);
	}
	mem_free(j->asks);
	mem_free(j->root);
	mem_free(j->local);
	mem_free(j);
}

/* --- answers --- */

static void free_answer(void *arg)
{
	mem_free(arg);
}

static void answer(struct arrivals_look *l, const char *uid, enum arrival a, const char *text)
{
	struct answer *old = map_get(&l->answers, uid);

	if (!old || old->a >= a)
		return;
	old->a = a;
	(void)snprintf(old->text, sizeof(old->text), "%s", text);
}

static bool is_over(const Pod *pod)
{
	return str_eq(pod->status.phase, "Succeeded") || str_eq(pod->status.phase, "Failed");
}

/* A pod of this node that has not ended; by its uid, or that of its VMI. */
static bool has_pod(const struct arrivals_look *l, const char *uid, const char *vmi_uid)
{
	struct kiter it;

	kcache_list(l->cfg.cache, &api_kind_Pod, NULL, &it);
	for (const struct kobj *o; (o = kiter_next(&it));) {
		const Pod *pod = kobj_typed(o);

		if ((uid ? str_eq(pod->metadata.uid, uid)
			 : str_eq(api_label(&pod->metadata, LABEL_CREATED_BY), vmi_uid)) &&
		    !is_over(pod))
			return true;
	}
	return false;
}

static void take(struct arrivals_look *l, const struct job *j, const struct ask *q)
{
	char text[320];

	if (q->rc == RC_EXISTS && q->owner[0] && !has_pod(l, q->owner, NULL)) {
		(void)snprintf(text, sizeof(text),
			       "the file '%s/%s' that a VM has used there is not cleaned up yet",
			       j->root, q->file);
		answer(l, q->uid, ARRIVAL_LATER, text);
	} else if (q->rc == RC_NOMEM || q->rc == RC_IO) {
		answer(l, q->uid, ARRIVAL_LATER, q->err.msg);
	} else if (q->rc) {
		answer(l, q->uid, ARRIVAL_NO, q->err.msg);
	}
}

static void silent(struct arrivals_look *l, const char *root, const char *uid)
{
	const char *name = volwork_name(l->cfg.volwork, root);
	char text[320];

	(void)snprintf(text, sizeof(text), "%s does not answer", name ? name : root);
	answer(l, uid, ARRIVAL_LATER, text);
}

static void late(struct arrivals_look *l, const struct job *j)
{
	for (size_t i = 0; i < j->n; i++)
		silent(l, j->root, j->asks[i].uid);
}

static enum rc note_all(struct arrivals_look *l, struct api_map *facts)
{
	TRY(api_map_copy(facts, &l->kept));
	TRY(arrivals_note_looks(facts));
	MAP_FOREACH(it, &l->answers) {
		const struct answer *a = it->value;

		TRY(arrivals_note(facts, it->key, a->a, a->text));
	}
	return RC_OK;
}

static void begin(void *arg);

static void rest(struct arrivals_look *l)
{
	struct err err;

	l->is_looking = false;
	map_fini(&l->answers);
	api_map_fini(&l->kept);
	l->timer = ev_src_free(l->timer);
	if (ev_timer_after(l->cfg.loop, &l->timer, l->cfg.every, begin, l, &err))
		log_error("disks that would come here are not looked at any more: %s", err.msg);
}

/* What is not answered now is said to be late. */
static void end_look(void *arg)
{
	struct arrivals_look *l = arg;
	struct api_map facts = {0};

	MAP_FOREACH(it, &l->jobs) {
		struct job *j = it->value;

		if (j->is_late)
			continue;
		j->is_late = true;
		late(l, j);
	}
	if (note_all(l, &facts)) {
		api_map_fini(&facts); /* no memory: the next look tries again */
	} else if (!api_map_equal(&facts, &l->facts)) {
		api_map_fini(&l->facts);
		l->facts = facts;
		l->cfg.publish(&l->facts, l->cfg.arg);
	} else {
		api_map_fini(&facts);
	}
	rest(l);
}

/* --- the work --- */

static void work(void *arg)
{
	struct job *j = arg;

	for (size_t i = 0; i < j->n; i++) {
		struct ask *q = &j->asks[i];

		q->rc = q->file ? host_file_look(j->local, j->root, q->file, q->bytes, q->owner,
						 &q->err)
				: volume_look(j->root, q->bytes, &q->err);
	}
}

static void after(void *arg)
{
	struct job *j = arg;
	struct arrivals_look *l = j->l;

	if (!l) {
		job_free(j);
		return;
	}
	(void)map_take(&l->jobs, j->root);
	if (!j->is_late) {
		for (size_t i = 0; i < j->n; i++)
			take(l, j, &j->asks[i]);
		l->n_waiting--;
	}
	job_free(j);
	if (l->is_looking && !l->n_waiting)
		end_look(l);
}

/* --- what is to be asked --- */

static struct job *job_of(struct arrivals_look *l, const char *root)
{
	struct job *j = map_get(&l->jobs, root);

	if (j)
		return j;
	j = mem_alloc(sizeof(*j));
	if (!j)
		return NULL;
	j->l = l;
	j->root = mem_strdup(root);
	j->local = mem_strdup(l->cfg.local_dir);
	if (!j->root || !j->local || map_set(&l->jobs, root, j)) {
		job_free(j);
		return NULL;
	}
	return j;
}

static enum rc add(struct arrivals_look *l, const char *root, const char *uid, const char *file,
		   uint64_t bytes)
{
	struct job *j = job_of(l, root);

	if (!j)
		return RC_NOMEM;
	if (j->is_late)
		silent(l, root, uid);
	if (!bytes)
		answer(l, uid, ARRIVAL_LATER, "their size is not known yet");
	if (j->is_late || !bytes)
		return RC_OK;
	struct ask *asks = mem_realloc(j->asks, (j->n + 1) * sizeof(*asks));

	if (!asks)
		return RC_NOMEM;
	j->asks = asks;
	asks[j->n] = (struct ask){.uid = mem_strdup(uid), .bytes = bytes};
	if (file)
		asks[j->n].file = mem_strdup(file);
	j->n++;
	return asks[j->n - 1].uid && (!file || asks[j->n - 1].file) ? RC_OK : RC_NOMEM;
}

static enum rc add_file(struct arrivals_look *l, const VirtualMachineInstance *vmi, const Volume *v)
{
	const FerryConfig *c =
		kobj_typed(kcache_get(l->cfg.cache, &api_kind_FerryConfig, NULL, "ferry"));
	const char *path = v->hostDisk->path, *folder;
	struct err err;

	if (host_disk_place(c ? &c->spec : NULL, path, l->cfg.state_dir, l->cfg.shared_dir, &folder,
			    &err)) {
		answer(l, vmi->metadata.uid, ARRIVAL_NO, err.msg);
		return RC_OK;
	}
	return add(l, folder, vmi->metadata.uid, path + strlen(folder) + 1,
		   arrivals_bytes(vmi, v->name));
}

/* Its data lie on the node that the VM runs on. */
static bool is_local(const struct arrivals_look *l, const VirtualMachineInstance *vmi,
		     const Volume *v)
{
	const char *claim = local_disk_claim(v);
	const PersistentVolume *pv =
		claim ? pvdata_of_claim(l->cfg.cache, vmi->metadata.namespace, claim) : NULL;

	return pv && str_eq(local_disk_node(pv), vmi->status.nodeName);
}

static bool would_come(const struct arrivals_look *l, const VirtualMachineInstance *vmi,
		       const Volume *v)
{
	return local_disk_can_move(vmi, v) &&
	       (v->hostDisk ? host_disk_is_own(&vmi->spec, v) : is_local(l, vmi, v));
}

static bool has_any(const struct arrivals_look *l, const VirtualMachineInstance *vmi)
{
	for (size_t i = 0; i < vmi->spec.n_volumes; i++)
		if (would_come(l, vmi, &vmi->spec.volumes[i]))
			return true;
	return false;
}

static bool concerns(const struct arrivals_look *l, const VirtualMachineInstance *vmi)
{
	return str_eq(vmi->status.phase, "Running") && vmi->metadata.uid &&
	       !vmi->metadata.deletionTimestamp && !str_is_empty(vmi->status.nodeName) &&
	       !str_eq(vmi->status.nodeName, l->cfg.node_name) && has_any(l, vmi) &&
	       mig_disks_may_move(l->cfg.cache, vmi);
}

/* A pod of the VM is here, for a move: what lies there is its own, and what was said before stays. */
static enum rc keep_answer(struct arrivals_look *l, const char *uid)
{
	CLEANUP(mem_freep) char *key = mem_printf(ANN_ARRIVALS "%s", uid);

	if (!key)
		return RC_NOMEM;
	const char *said = api_map_get(&l->facts, key);

	return said ? api_map_set(&l->kept, key, said) : RC_OK;
}

static enum rc ask_for(struct arrivals_look *l, const VirtualMachineInstance *vmi)
{
	struct answer *a = mem_alloc(sizeof(*a));

	if (!a || map_set(&l->answers, vmi->metadata.uid, a)) {
		mem_free(a);
		return RC_NOMEM;
	}
	for (size_t i = 0; i < vmi->spec.n_volumes; i++) {
		const Volume *v = &vmi->spec.volumes[i];

		if (!would_come(l, vmi, v))
			continue;
		TRY(v->hostDisk ? add_file(l, vmi, v)
				: add(l, l->cfg.local_dir, vmi->metadata.uid, NULL,
				      arrivals_bytes(vmi, v->name)));
	}
	return RC_OK;
}

static enum rc ask_all(struct arrivals_look *l)
{
	bool is_full = false;
	struct kiter it;

	kcache_list(l->cfg.cache, &api_kind_VirtualMachineInstance, NULL, &it);
	for (const struct kobj *o; (o = kiter_next(&it));) {
		if (!concerns(l, kobj_typed(o)))
			continue;
		if (has_pod(l, NULL, kobj_uid(o))) {
			TRY(keep_answer(l, kobj_uid(o)));
			continue;
		}
		is_full = l->answers.n == ARRIVALS_MAX;
		if (is_full)
			break;
		TRY(ask_for(l, kobj_typed(o)));
	}
	if (is_full && !l->was_full)
		log_warn("more than %d VMs could bring disks here: of the others nothing is said "
			 "before they move",
			 ARRIVALS_MAX);
	l->was_full = is_full;
	return RC_OK;
}

/* Jobs that were made for this look and cannot be begun. */
static void drop_new(struct arrivals_look *l)
{
	for (size_t i = l->jobs.n; i-- > 0;) {
		struct job *j = l->jobs.items[i].value;

		if (j->is_begun)
			continue;
		(void)map_take(&l->jobs, j->root);
		job_free(j);
	}
}

/* One that is refused answers for its storage: it has been late for a while, with other work. */
static void begin_jobs(struct arrivals_look *l)
{
	struct err err;

	for (size_t i = 0; i < l->jobs.n; i++) {
		struct job *j = l->jobs.items[i].value;

		if (j->is_begun)
			continue;
		if (volwork_run(l->cfg.volwork, j->root, work, after, j, &err)) {
			late(l, j);
			continue;
		}
		j->is_begun = true;
		l->n_waiting++;
	}
	drop_new(l);
}

static void begin(void *arg)
{
	struct arrivals_look *l = arg;
	struct err err;

	map_init(&l->answers, free_answer);
	l->timer = ev_src_free(l->timer);
	l->n_waiting = 0;
	l->is_looking = true;
	if (ask_all(l)) { /* no memory */
		drop_new(l);
		rest(l);
		return;
	}
	begin_jobs(l);
	if (!l->n_waiting ||
	    ev_timer_after(l->cfg.loop, &l->timer, l->cfg.late_after, end_look, l, &err))
		end_look(l);
}

enum rc arrivals_look_new(struct arrivals_look **out, const struct arrivals_look_config *config,
			  struct err *err)
{
	CLEANUP(arrivals_look_freep) struct arrivals_look *l = mem_alloc(sizeof(*l));

	if (!l)
		return err_set(err, RC_NOMEM, "out of memory");
	l->cfg = *config;
	if (!l->cfg.every)
		l->cfg.every = ARRIVALS_EVERY;
	if (!l->cfg.late_after)
		l->cfg.late_after = VOLWORK_LATE_AFTER;
	map_init(&l->jobs, NULL);
	map_init(&l->answers, NULL);
	TRY(ev_defer(config->loop, &l->timer, begin, l, err));
	*out = STEAL(l);
	return RC_OK;
}

struct arrivals_look *arrivals_look_free(struct arrivals_look *l)
{
	if (!l)
		return NULL;
	for (size_t i = 0; i < l->jobs.n; i++)
		((struct job *)l->jobs.items[i].value)->l = NULL; /* after() frees it */
	map_fini(&l->jobs);
	map_fini(&l->answers);
	api_map_fini(&l->kept);
	api_map_fini(&l->facts);
	ev_src_free(l->timer);
	return mem_free(l);
}
