/* Making a VM's disks: fetch what the API knows of them, pull images, create and open files. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "api/meta.h"
#include "api/quantity.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/try.h"
#include "json/json.h"
#include "kube/kcache.h"
#include "kube/kobj.h"
#include "kube/kube.h"
#include "sched/snapshot.h"
#include "virt/migration/fencing.h"
#include "virt/migration/arrivals.h"
#include "virt/migration/host_disks.h"
#include "virt/migration/local_disks.h"
#include "virt/names.h"
#include "virt/node/imgref.h"
#include "virt/node/pvdata.h"
#include "virt/node/vm_int.h"
#include "virt/node/volwork.h"

#define VMI_WAIT (10 * USEC_PER_SEC)

enum { NEEDS_MAX = 4 * VM_VOLUMES_MAX, IMAGES_MAX = VM_VOLUMES_MAX };

/* One object that must be read first. */
struct need {
	enum need_kind kind;
	char *name;
	struct kobj **into;
	size_t volume;
	bool is_secret_key; /* of an image pull secret */
};

/* One image that must be here first. */
struct need_image {
	char *name;  /* of the volume, or VOLUME_KERNEL_BOOT */
	char *image; /* as the VMI has it */
	char *ref;   /* pinned, once it was resolved */
	char *path;  /* containerDisk.path; NULL: the only file below /disk */
	char *kernel, *initrd;
	enum image_policy policy;
	char *secret; /* imagePullSecret; NULL: none */
	struct kobj *secret_obj;
	struct vm_volume *volume; /* NULL: kernel boot */
};

struct vm_prep {
	struct vm *vm; /* NULL: dropped, the job that runs frees it */
	struct kobj *vmi;
	struct kobj *
		owner; /* the VirtualMachine, read where a file of this node may be its; NULL: none, or gone */
	bool is_misplaced; /* a file of the VM is on another node: no waiting helps here */
	bool is_refused; /* a file cannot come here (another one in the way, no room): the move ends with that reason */
	struct need needs[NEEDS_MAX];
	size_t n_needs, next_need;
	struct need_image images[IMAGES_MAX];
	size_t n_images, next_image;
	struct kube_call *call;
	struct ev_src *timer;
	/* The job that runs in the pool. */
	bool in_job;
	struct image_store *store;
	const char *wanted[3];
	char *wanted_text[2];
	char *auth;
	struct image_got got;
	struct vol_places places;
	size_t next_volume;
	char *disks_dir, *pod_uid;
	enum rc rc;
	struct err err;
	const char *reason;
};

static void gather(struct vm_prep *p);

struct vm_prep *vm_prep_free(struct vm_prep *p)
{
	if (!p)
		return NULL;
	p->call = kube_call_free(p->call);
	p->timer = ev_src_free(p->timer);
	if (p->in_job) {
		p->vm = NULL; /* its after-function frees it */
		return NULL;
	}
	for (size_t i = 0; i < p->n_needs; i++)
		mem_free(p->needs[i].name);
	for (size_t i = 0; i < p->n_images; i++) {
		struct need_image *m = &p->images[i];

		mem_free(m->name);
		mem_free(m->image);
		mem_free(m->ref);
		mem_free(m->path);
		mem_free(m->kernel);
		mem_free(m->initrd);
		mem_free(m->secret);
		kobj_unref(m->secret_obj);
	}
	for (size_t i = 0; i < ARRAY_SIZE(p->wanted_text); i++)
		mem_free(p->wanted_text[i]);
	mem_free(p->auth);
	image_got_fini(&p->got);
	mem_free(p->disks_dir);
	mem_free(p->pod_uid);
	kobj_unref(p->vmi);
	kobj_unref(p->owner);
	return mem_free(p);
}

static void volume_clear(struct vm_volume *v)
{
	volume_fini(&v->v);
	v->claim = kobj_unref(v->claim);
	v->pv = kobj_unref(v->pv);
	v->secret = kobj_unref(v->secret);
	v->network_secret = kobj_unref(v->network_secret);
	v->spec = NULL;
}

void vm_close_disks(struct vm *vm)
{
	for (size_t i = 0; i < vm->n_volumes; i++)
		volume_clear(&vm->volumes[i]);
	vm->n_volumes = 0;
	for (size_t i = 0; i < vm->n_images; i++)
		api_fini(&api_type_FerryImage, &vm->images[i]);
	vm->n_images = 0;
	vm->kernel_fd = fd_close(vm->kernel_fd);
	vm->initrd_fd = fd_close(vm->initrd_fd);
}

static void end(struct vm_prep *p, enum rc rc, bool is_final, const char *reason,
		const char *message)
{
	struct vm *vm = p->vm;
	char text[600];

	(void)snprintf(text, sizeof(text), "%s", message ? message : "");
	vm->prep = vm_prep_free(p);
	if (rc)
		vm_close_disks(vm);
	/* What a registry says reaches the VMI by the pod; the rest is told here. */
	ignore_rc(
		api_set_str(&vm->sync_error, rc && !str_eq(reason, "ErrImagePull") ? text : NULL));
	vm_sync(vm);
	vm->host->cfg.pods->prepared(vm->pod, rc, is_final, reason, text);
}

static void end_err(struct vm_prep *p, const char *reason, const struct err *err)
{
	end(p, err->rc, false, reason, err->msg);
}

/* --- the last step: files --- */

static enum rc open_kernel(struct vm *vm, const struct image_got *g, const struct need_image *m,
			   struct err *err)
{
	for (size_t i = 0; i < g->n_files; i++) {
		bool is_kernel = str_eq(g->files[i].path, m->kernel);
		int *into = is_kernel ? &vm->kernel_fd : &vm->initrd_fd;

		if (!is_kernel && !str_eq(g->files[i].path, m->initrd))
			continue;
		fd_close(*into);
		*into = open(g->files[i].local, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
		if (*into < 0)
			return err_set_sys(err, errno, "cannot open '%s'", g->files[i].path);
	}
	if (m->kernel && vm->kernel_fd < 0)
		return err_set(err, RC_INVALID, "the image has no kernel at '/%s'", m->kernel);
	if (m->initrd && vm->initrd_fd < 0)
		return err_set(err, RC_INVALID, "the image has no initrd at '/%s'", m->initrd);
	return RC_OK;
}

/* The storage that a volume lies on; NULL: this pod's own folder. */
static const char *storage_of(const struct vm *vm, const struct volume *v)
{
	switch (v->kind) {
	case VOL_CLAIM:
		return v->is_local || v->incoming_bytes ? vm->host->local_dir
							: vm->host->cfg.shared_dir;
	case VOL_HOST_DISK:
		return v->folder;
	default:
		return NULL;
	}
}

static void open_work(void *arg)
{
	struct vm_prep *p = arg;
	struct vm *vm = p->vm; /* stays: the VM is freed after its jobs */

	struct volume *v = &vm->volumes[p->next_volume].v;

	p->rc = volume_open(v, &p->places, &p->err);
	p->is_refused = p->rc && v->kind == VOL_HOST_DISK && v->incoming_bytes;
}

/* Said, not ended: what hangs may come back, and nothing can take it away from there. */
static void on_open_late(void *arg)
{
	struct vm_prep *p = arg;
	struct vm *vm = p->vm;
	const struct volume *v = &vm->volumes[p->next_volume].v;
	const char *where = volwork_name(vm->host->cfg.volwork, storage_of(vm, v));
	CLEANUP(mem_freep)
	char *text = mem_printf("volume '%s': %s does not answer", v->name,
				where ? where : "this node's own storage");

	p->timer = ev_src_free(p->timer);
	ignore_rc(api_set_str(&vm->sync_error, text));
	vm_sync(vm);
}

static void open_next(struct vm_prep *p);

static void open_after(void *arg)
{
	struct vm_prep *p = arg;
	struct vm *vm = p->vm;

	p->in_job = false;
	p->timer = ev_src_free(p->timer);
	if (!vm_job_done(vm))
		return;
	p->next_volume++;
	if (p->rc)
		end(p, p->rc, p->is_refused, "CreateContainerError", p->err.msg);
	else
		open_next(p);
}

/* One after the other, each where no other storage that hangs can hold it up. */
static void open_next(struct vm_prep *p)
{
	struct vm *vm = p->vm;

	if (p->next_volume == vm->n_volumes) {
		end(p, RC_OK, false, NULL, NULL);
		return;
	}
	struct volume *v = &vm->volumes[p->next_volume].v;
	/* From here on p->rc and p->err are the job's: it may have ended before the call returns. */
	struct err err = {0};
	enum rc rc = volwork_run(vm->host->cfg.volwork, storage_of(vm, v), open_work, open_after, p,
				 &err);

	if (rc) {
		rc = err_prepend(&err, "volume '%s'", v->name);
		end(p, rc, false, "CreateContainerError", err.msg);
		return;
	}
	p->in_job = true;
	vm->jobs++;
	ignore_rc(ev_timer_after(vm->host->cfg.loop, &p->timer, VOLWORK_LATE_AFTER, on_open_late, p,
				 NULL)); /* nobody is told, then */
}

static void open_files(struct vm_prep *p)
{
	struct vm *vm = p->vm;
	struct err err;

	p->disks_dir = mem_printf("%s/disks", vm->host->cfg.pods->state_dir(vm->pod));
	p->pod_uid = mem_strdup(vm->host->cfg.pods->uid(vm->pod));
	p->places = (struct vol_places){.shared = vm->host->cfg.shared_dir,
					.local = vm->host->local_dir,
					.disks = p->disks_dir,
					.pod_uid = p->pod_uid};
	if (p->disks_dir && p->pod_uid) {
		open_next(p);
		return;
	}
	err_set(&err, RC_NOMEM, "out of memory");
	end_err(p, "CreateContainerError", &err);
}

/* --- images --- */

static enum rc take_image(struct vm_prep *p, const struct need_image *m)
{
	struct vm *vm = p->vm;
	const struct image_file *f;

	if (!m->volume)
		TRY(open_kernel(vm, &p->got, m, &p->err));
	if (m->volume) {
		TRY(image_pick_disk(&p->got, m->path, &f, &p->err));
		m->volume->v.base_path = mem_strdup(f->local);
		if (!m->volume->v.base_path)
			return err_set(&p->err, RC_NOMEM, "out of memory");
	}
	FerryImage *im = &vm->images[vm->n_images];

	*im = (FerryImage){0};
	vm->n_images++;
	enum rc rc = api_set_str(&im->volumeName, m->name);

	if (!rc)
		rc = api_set_str(&im->image, m->image);
	if (!rc)
		rc = api_set_str(&im->digest, p->got.digest);
	CLEANUP(mem_freep) char *name = mem_printf("volume%s", m->name);

	if (rc || !name)
		return err_set(&p->err, RC_NOMEM, "out of memory");
	vm->host->cfg.pods->image(vm->pod, name, m->ref, p->got.id);
	return RC_OK;
}

static void next_image(struct vm_prep *p);

static void image_work(void *arg)
{
	struct vm_prep *p = arg;
	const struct need_image *m = &p->images[p->next_image];
	struct image_want w = {
		.ref = m->ref, .policy = m->policy, .wanted = p->wanted, .auth_json = p->auth};

	p->rc = image_fetch(p->store, &w, &p->got, &p->err);
}

static void image_after(void *arg)
{
	struct vm_prep *p = arg;
	struct vm *vm = p->vm;
	const struct need_image *m = &p->images[p->next_image];

	p->in_job = false;
	if (!vm_job_done(vm))
		return;
	if (!p->rc)
		p->rc = take_image(p, m);
	image_got_fini(&p->got);
	if (p->rc) {
		struct err why = {0};

		err_set(&why, p->rc, "failed to pull image \"%s\": %s", m->ref, p->err.msg);
		end_err(p, "ErrImagePull", &why);
		return;
	}
	p->next_image++;
	next_image(p);
}

static const char *strip(const char *path)
{
	while (path && *path == '/')
		path++;
	return path;
}

/* The docker config of a Secret of type kubernetes.io/dockerconfigjson. */
static enum rc pull_auth(struct vm_prep *p, const struct need_image *m)
{
	const Secret *s = kobj_typed(m->secret_obj);
	const char *text = s ? api_map_get(&s->data, ".dockerconfigjson") : NULL;
	size_t n;

	p->auth = mem_free(p->auth);
	if (!s)
		return RC_OK;
	if (!text)
		return err_set(&p->err, RC_INVALID, "Secret '%s' has no .dockerconfigjson",
			       m->secret);
	return seed_base64(text, &p->auth, &n, &p->err);
}

static void set_wanted(struct vm_prep *p, const struct need_image *m)
{
	size_t n = 0;

	if (!m->volume) {
		if (m->kernel)
			p->wanted[n++] = m->kernel;
		if (m->initrd)
			p->wanted[n++] = m->initrd;
	} else {
		p->wanted[n++] = m->path ? m->path : "disk/";
	}
	p->wanted[n] = NULL;
}

static void next_image(struct vm_prep *p)
{
	struct vm *vm = p->vm;

	if (p->next_image == p->n_images) {
		open_files(p);
		return;
	}
	const struct need_image *m = &p->images[p->next_image];

	set_wanted(p, m);
	struct err err = {0};
	enum rc rc = pull_auth(p, m);

	if (rc)
		err_copy(&err, &p->err);
	else /* p->rc and p->err are the job's: it may have ended before this call returns */
		rc = pool_run_ordered(vm->host->cfg.loop, POOL_SLOW | image_queue(m->ref),
				      image_work, image_after, p, &err);
	if (rc) {
		end_err(p, "ErrImagePull", &err);
		return;
	}
	p->in_job = true;
	vm->jobs++;
}

/* --- volumes: what they are, once everything was read --- */

static int64_t capacity_of(const PersistentVolumeClaim *c, const PersistentVolume *pv)
{
	int64_t have = api_quantity_bytes(api_map_get(&pv->spec.capacity, "storage"), 0);
	int64_t asked = c->spec.resources
				? api_quantity_bytes(
					  api_map_get(&c->spec.resources->requests, "storage"), 0)
				: 0;

	return have && asked ? MIN(have, asked) : have ? have : asked;
}

/* Its data lie on another node: they come with the guest, or not at all. */
static enum rc set_incoming(struct vm_prep *p, struct vm_volume *v, struct err *err)
{
	const struct vm *vm = p->vm;
	const PersistentVolumeClaim *c = kobj_typed(v->claim);
	const PersistentVolume *pv = kobj_typed(v->pv);
	const struct vm_pod_ops *pods = vm->host->cfg.pods;

	if (!vm->is_target ||
	    !str_list_has(pods->annotation(vm->pod, SCHED_BRINGS_CLAIMS), ',', c->metadata.name))
		return err_set(err, RC_CONFLICT, "the data of claim '%s' are on node '%s'",
			       c->metadata.name, local_disk_node(pv));
	v->v.incoming_bytes = arrivals_bytes(kobj_typed(p->vmi), v->spec->name);
	if (!v->v.incoming_bytes)
		return err_set(err, RC_CONFLICT,
			       "claim '%s': its size at the source is not known: it shows there "
			       "once the VM has been started by this version of Ferry",
			       c->metadata.name);
	v->v.pv = local_disk_folder(pv, vm->migration_uid);
	return v->v.pv ? RC_OK : err_set(err, RC_NOMEM, "out of memory");
}

static enum rc set_claim(struct vm_prep *p, struct vm_volume *v, struct err *err)
{
	const PersistentVolumeClaim *c = kobj_typed(v->claim);
	const PersistentVolume *pv = kobj_typed(v->pv);
	const char *folder, *node = local_disk_node(pv);

	TRY(pvdata_place(pv, &v->v.is_local, &folder, err));
	v->v.kind = VOL_CLAIM;
	v->v.is_block = str_eq(pv->spec.volumeMode, "Block");
	v->v.capacity = (uint64_t)MAX(capacity_of(c, pv), 0);
	v->v.read_only = v->spec->persistentVolumeClaim &&
			 API_GET(v->spec->persistentVolumeClaim, readOnly, false);
	if (node && strcmp(node, p->vm->host->cfg.node_name) != 0)
		return set_incoming(p, v, err);
	v->v.must_exist = v->v.is_local && local_disk_has_moved(pv);
	v->v.pv = mem_strdup(folder);
	return v->v.pv ? RC_OK : err_set(err, RC_NOMEM, "out of memory");
}

/* KubeVirt takes both spellings of the keys. */
static const char *secret_key(const struct kobj *secret, const char *lower, const char *camel)
{
	const Secret *s = kobj_typed(secret);

	if (!s)
		return NULL;
	const char *v = api_map_get(&s->data, lower);

	return v ? v : api_map_get(&s->data, camel);
}

static const char *keep(struct volume *v, size_t i, const char *text, enum rc *rc)
{
	v->seed_texts[i] = mem_strdup(text);
	if (text && !v->seed_texts[i])
		*rc = RC_NOMEM;
	return v->seed_texts[i];
}

static enum rc set_seed(struct vm_prep *p, struct vm_volume *v, struct err *err)
{
	const VirtualMachineInstance *vmi = kobj_typed(p->vmi);
	const CloudInitNoCloudSource *c = v->spec->cloudInitNoCloud;
	struct volume *o = &v->v;
	char host[64];
	enum rc rc = RC_OK;

	vmspec_hostname(vmi, host);
	o->kind = VOL_CLOUD_INIT;
	o->seed = (struct seed_source){
		.instance_id = keep(o, 0, vmspec_uuid(vmi), &rc),
		.hostname = keep(o, 1, host, &rc),
		.user_data = keep(o, 2, c->userData, &rc),
		.user_data_base64 = keep(o, 3, c->userDataBase64, &rc),
		.network_data = keep(o, 4, c->networkData, &rc),
		.network_data_base64 = keep(o, 5, c->networkDataBase64, &rc),
		.secret_user_data = keep(o, 6, secret_key(v->secret, "userdata", "userData"), &rc),
		.secret_network_data = keep(
			o, 7, secret_key(v->network_secret, "networkdata", "networkData"), &rc),
	};
	/* A guest that moves here brings the seed it was started with: only the size must be right.  A
	 * read-only one is not copied: it is built again and must be as large as it was. */
	o->read_only = vmspec_disk_is_read_only(vmspec_disk_of(vmi, v->spec->name));
	if (p->vm->is_target)
		o->seed_bytes = arrivals_bytes(vmi, v->spec->name);
	return rc ? err_set(err, rc, "out of memory") : RC_OK;
}

/* The node that has this file, by the VM's record; NULL: it has none.  Asked of the API server itself, and the record is
 * written before the last VMI goes: a pod that an old view has put elsewhere is found out here, before it opens or makes
 * anything. */
static const char *recorded_node(const struct vm_prep *p, const char *path)
{
	const VirtualMachineInstance *vmi = kobj_typed(p->vmi);
	const VirtualMachine *vm = kobj_typed(p->owner);
	const FerryVMStatus *fs = vm ? vm->status.ferry : NULL;

	return fs && api_is_owned_by(&vmi->metadata, vm->metadata.uid)
		       ? host_disk_node(fs->hostDisks, fs->n_hostDisks, path)
		       : NULL;
}

/* It comes with the guest, or not at all. */
static enum rc set_incoming_file(const struct vm_prep *p, struct vm_volume *v, struct err *err)
{
	const struct vm *vm = p->vm;

	if (!str_list_has(vm->host->cfg.pods->annotation(vm->pod, ANN_BRINGS_HOST_DISKS), ',',
			  v->spec->name))
		return err_set(err, RC_CONFLICT, "the file '%s' is on another node",
			       v->spec->hostDisk->path);
	v->v.incoming_bytes = arrivals_bytes(kobj_typed(p->vmi), v->spec->name);
	return v->v.incoming_bytes
		       ? RC_OK
		       : err_set(err, RC_CONFLICT,
				 "the size of file '%s' at the source is not known: it shows there once the "
				 "VM has been started by this version of Ferry",
				 v->spec->hostDisk->path);
}

static enum rc set_own_file(struct vm_prep *p, struct vm_volume *v, struct err *err)
{
	const char *path = v->spec->hostDisk->path, *node = recorded_node(p, path);

	v->v.is_local = true;
	if (p->vm->is_target)
		return set_incoming_file(p, v, err);
	p->is_misplaced = node && strcmp(node, p->vm->host->cfg.node_name) != 0;
	if (p->is_misplaced)
		return err_set(
			err, RC_CONFLICT,
			"the file '%s' of this VM is on node '%s' (status.ferry.hostDisks of the "
			"VirtualMachine)",
			path, node);
	v->v.must_exist = node != NULL;
	return RC_OK;
}

static enum rc set_host_disk(struct vm_prep *p, struct vm_volume *v, struct err *err)
{
	const struct vmhost *h = p->vm->host;
	const VirtualMachineInstance *vmi = kobj_typed(p->vmi);
	const HostDisk *d = v->spec->hostDisk;
	const char *folder;

	TRY(host_disk_place(vmhost_ferry_config(h), d->path, h->cfg.state_dir, h->cfg.shared_dir,
			    &folder, err));
	v->v.kind = VOL_HOST_DISK;
	v->v.capacity = (uint64_t)MAX(api_quantity_bytes(d->capacity, 0), 0);
	/* What moves here is a file that both nodes see. */
	v->v.may_make = str_eq(d->type, HostDiskType_DiskOrCreate) && !p->vm->is_target;
	v->v.folder = mem_strdup(folder);
	v->v.file = mem_strdup(d->path + strlen(folder) + 1);
	if (!v->v.folder || !v->v.file)
		return err_set(err, RC_NOMEM, "out of memory");
	return host_disk_is_own(&vmi->spec, v->spec) ? set_own_file(p, v, err) : RC_OK;
}

static enum rc set_volume(struct vm_prep *p, struct vm_volume *v, struct err *err)
{
	if (v->claim)
		return set_claim(p, v, err);
	if (v->spec->cloudInitNoCloud)
		return set_seed(p, v, err);
	if (v->spec->hostDisk)
		return set_host_disk(p, v, err);
	if (v->spec->emptyDisk) {
		v->v.kind = VOL_EMPTY_DISK;
		v->v.capacity =
			(uint64_t)MAX(api_quantity_bytes(v->spec->emptyDisk->capacity, 0), 0);
		return RC_OK;
	}
	v->v.kind = VOL_CONTAINER_DISK;
	return RC_OK;
}

static void have_objects(struct vm_prep *p)
{
	struct vm *vm = p->vm;
	struct err err = {0};

	for (size_t i = 0; i < vm->n_volumes; i++) {
		struct vm_volume *v = &vm->volumes[i];

		if (set_volume(p, v, &err)) {
			ignore_rc(err_prepend(&err, "volume '%s'", v->spec->name));
			end(p, err.rc, p->is_misplaced, "CreateContainerConfigError", err.msg);
			return;
		}
		/* A cdrom of whatever volume is opened as the guest sees it. */
		v->v.read_only |=
			vmspec_disk_is_read_only(vmspec_disk_of(kobj_typed(p->vmi), v->spec->name));
	}
	next_image(p);
}

/* --- reading objects --- */

static const struct api_kind *kind_of(enum need_kind k)
{
	return k == NEED_CLAIM ? &api_kind_PersistentVolumeClaim
	       : k == NEED_PV  ? &api_kind_PersistentVolume
	       : k == NEED_VM  ? &api_kind_VirtualMachine
			       : &api_kind_Secret;
}

static enum rc add_need(struct vm_prep *p, enum need_kind kind, const char *name, size_t volume,
			struct kobj **into)
{
	if (p->n_needs == NEEDS_MAX)
		return RC_TOO_BIG;
	struct need *n = &p->needs[p->n_needs++];

	*n = (struct need){.kind = kind, .name = mem_strdup(name), .into = into, .volume = volume};
	return n->name ? RC_OK : RC_NOMEM;
}

static enum rc took_object(struct vm_prep *p, const struct need *n, struct err *err)
{
	const PersistentVolumeClaim *c = kobj_typed(*n->into);

	if (n->kind != NEED_CLAIM)
		return RC_OK;
	if (str_is_empty(c->spec.volumeName))
		return err_set(err, RC_BUSY, "PersistentVolumeClaim '%s' is not bound yet",
			       n->name);
	return add_need(p, NEED_PV, c->spec.volumeName, n->volume, &p->vm->volumes[n->volume].pv);
}

static const char *failure_of(enum need_kind k)
{
	return k == NEED_SECRET ? "FailedMount"
	       : k == NEED_VM	? "CreateContainerConfigError"
				: "FailedPvcNotFound";
}

static void on_object(const struct kube_reply *r, void *arg)
{
	struct vm_prep *p = arg;
	const struct need *n = &p->needs[p->next_need];
	const struct api_kind *kind = kind_of(n->kind);
	struct err err = {0};

	p->call = kube_call_free(p->call);
	enum rc rc = r->rc;

	if (rc == RC_NOT_FOUND && n->kind == NEED_VM) { /* deleted meanwhile: the VMI goes too */
		p->next_need++;
		gather(p);
		return;
	}
	if (rc == RC_NOT_FOUND && n->kind == NEED_CLAIM)
		err_set(&err, rc, "didn't find PVC %s", n->name);
	else if (rc)
		err_copy(&err, &r->err);
	else
		rc = kobj_decode(n->into, kind, r->body, &err);
	if (!rc)
		rc = took_object(p, n, &err);
	if (rc) {
		err.rc = rc;
		end_err(p, failure_of(n->kind), &err);
		return;
	}
	p->next_need++;
	gather(p);
}

static void gather(struct vm_prep *p)
{
	struct vm *vm = p->vm;
	struct err err = {0};

	if (p->next_need == p->n_needs) {
		have_objects(p);
		return;
	}
	const struct need *n = &p->needs[p->next_need];

	if (kube_get(vm->host->cfg.kube, &p->call, kind_of(n->kind), vm->ns, n->name, on_object, p,
		     &err))
		end_err(p, "FailedMount", &err);
}

/* The digest that this VM's image was resolved to when it started. */
static const char *pinned(const VirtualMachineInstance *vmi, const char *volume, const char *image)
{
	const FerryVMIStatus *fs = vmi->status.ferry;

	for (size_t i = 0; fs && i < fs->n_images; i++)
		if (str_eq(fs->images[i].volumeName, volume) && str_eq(fs->images[i].image, image))
			return fs->images[i].digest;
	return NULL;
}

static enum rc set_ref(struct vm_prep *p, struct need_image *m, const char *image)
{
	const VirtualMachineInstance *vmi = kobj_typed(p->vmi);
	const char *from_pod = p->vm->host->cfg.pods->image_of(p->vm->pod, m->name);
	const char *digest = pinned(vmi, m->name, image);
	struct imgref r;
	struct err err;

	if (digest && !imgref_parse(image, &r, &err)) {
		m->ref = imgref_pinned(&r, digest);
		imgref_fini(&r);
	} else {
		m->ref = mem_strdup(from_pod ? from_pod : image);
	}
	return m->ref ? RC_OK : RC_NOMEM;
}

static enum rc add_image(struct vm_prep *p, const char *name, const char *image, const char *policy,
			 const char *secret, struct need_image **out)
{
	if (p->n_images == IMAGES_MAX)
		return RC_TOO_BIG;
	struct need_image *m = &p->images[p->n_images++];

	m->name = mem_strdup(name);
	m->image = mem_strdup(image);
	m->secret = mem_strdup(secret);
	m->policy = image_policy_of(policy, image);
	*out = m;
	TRY(m->name && m->image && (!secret || m->secret) ? RC_OK : RC_NOMEM);
	TRY(set_ref(p, m, image));
	return secret ? add_need(p, NEED_SECRET, secret, 0, &m->secret_obj) : RC_OK;
}

static bool is_known(const Volume *v)
{
	return local_disk_claim(v) || v->cloudInitNoCloud || v->emptyDisk || v->containerDisk ||
	       v->hostDisk;
}

static enum rc list_volume(struct vm_prep *p, const Volume *spec, struct err *err)
{
	struct vm *vm = p->vm;
	const CloudInitNoCloudSource *ci = spec->cloudInitNoCloud;
	const char *claim = local_disk_claim(spec);
	size_t i = vm->n_volumes;
	struct need_image *m;

	if (!is_known(spec))
		return err_set(err, RC_UNSUPPORTED, "volume '%s': its source is not supported",
			       spec->name);
	if (i == VM_VOLUMES_MAX)
		return err_set(err, RC_TOO_BIG, "more than %d volumes", VM_VOLUMES_MAX);
	struct vm_volume *v = &vm->volumes[vm->n_volumes++];

	*v = (struct vm_volume){.spec = spec};
	volume_init(&v->v);
	TRY(api_set_str(&v->v.name, spec->name));
	if (claim)
		return add_need(p, NEED_CLAIM, claim, i, &v->claim);
	if (ci && ci->secretRef)
		TRY(add_need(p, NEED_SECRET, ci->secretRef->name, i, &v->secret));
	if (ci && ci->networkDataSecretRef)
		TRY(add_need(p, NEED_SECRET, ci->networkDataSecretRef->name, i,
			     &v->network_secret));
	if (!spec->containerDisk)
		return RC_OK;
	const ContainerDiskSource *cd = spec->containerDisk;

	TRY(add_image(p, spec->name, cd->image, cd->imagePullPolicy, cd->imagePullSecret, &m));
	m->volume = v;
	return cd->path ? api_set_str(&m->path, strip(cd->path)) : RC_OK;
}

static enum rc list_owner(struct vm_prep *p, const VirtualMachineInstance *vmi)
{
	const OwnerReference *o = api_controller_of(&vmi->metadata);

	if (!o || !str_eq(o->kind, api_kind_VirtualMachine.kind))
		return RC_OK;
	for (size_t i = 0; i < vmi->spec.n_volumes; i++)
		if (host_disk_is_own(&vmi->spec, &vmi->spec.volumes[i]))
			return add_need(p, NEED_VM, o->name, 0, &p->owner);
	return RC_OK;
}

static enum rc list_needs(struct vm_prep *p, struct err *err)
{
	const VirtualMachineInstance *vmi = kobj_typed(p->vmi);
	const Firmware *fw = vmi->spec.domain.firmware;
	const KernelBootContainer *kc = fw && fw->kernelBoot ? fw->kernelBoot->container : NULL;
	struct need_image *m;

	for (size_t i = 0; i < vmi->spec.n_volumes; i++)
		TRY(list_volume(p, &vmi->spec.volumes[i], err));
	TRY(list_owner(p, vmi));
	if (!kc)
		return RC_OK;
	TRY(add_image(p, VOLUME_KERNEL_BOOT, kc->image, kc->imagePullPolicy, kc->imagePullSecret,
		      &m));
	TRY(api_set_str(&m->kernel, strip(kc->kernelPath)));
	return api_set_str(&m->initrd, strip(kc->initrdPath));
}

static void on_no_vmi(void *arg)
{
	struct vm_prep *p = arg;

	end(p, RC_NOT_FOUND, true, "VMINotFound",
	    "the VirtualMachineInstance of this pod does not exist");
}

static void have_vmi(struct vm_prep *p, const struct kobj *o)
{
	struct err err = {0};

	p->timer = ev_src_free(p->timer);
	p->vmi = kobj_ref(o);
	enum rc rc = list_needs(p, &err);

	if (rc) {
		if (!err.rc)
			err_set(&err, rc, "out of memory");
		end(p, rc, rc == RC_UNSUPPORTED, "CreateContainerConfigError", err.msg);
		return;
	}
	gather(p);
}

void vm_poke_prepare(struct vm *vm)
{
	struct vm_prep *p = vm->prep;
	const struct kobj *o;

	if (!p || p->vmi || !vm_vmi(vm))
		return;
	o = kcache_get(vm->host->cfg.cache, &api_kind_VirtualMachineInstance, vm->ns, vm->name);
	have_vmi(p, o);
}

/* The proof may be about to take this pod away: whoever was to be started here is started elsewhere. */
static bool was_fenced(const struct vm *vm)
{
	const struct vmhost_config *cfg = &vm->host->cfg;
	const NodeFence *f =
		kobj_typed(kcache_get(cfg->cache, &api_kind_NodeFence, NULL, cfg->node_name));

	const Pod *pod = kobj_typed(kcache_get(cfg->cache, &api_kind_Pod, cfg->pods->ns(vm->pod),
					       cfg->pods->name(vm->pod)));

	return pod && fencing_condemns(f, &pod->metadata);
}

static void start_prepare(void *arg)
{
	struct vm_prep *p = arg;
	struct err err;

	p->timer = ev_src_free(p->timer);
	if (was_fenced(p->vm)) {
		end(p, RC_FORBIDDEN, true, "NodeFenced",
		    "its node was proven to be off since the pod was made: the virtual machine may run "
		    "elsewhere");
		return;
	}
	if (vm_vmi(p->vm)) {
		vm_poke_prepare(p->vm);
		return;
	}
	/* The watch of VMIs may lag behind that of pods: wait for it. */
	if (ev_timer_after(p->vm->host->cfg.loop, &p->timer, VMI_WAIT, on_no_vmi, p, &err))
		end_err(p, "CreateContainerError", &err);
}

void vm_prepare(struct vm *vm)
{
	struct vm_prep *p = mem_alloc(sizeof(*p));
	struct err err = {0};

	vm_close_disks(vm);
	if (!p || ev_defer(vm->host->cfg.loop, &p->timer, start_prepare, p, &err)) {
		mem_free(p);
		log_error("VM '%s/%s': out of memory", vm->ns, vm->name);
		return;
	}
	p->vm = vm;
	p->store = (struct image_store *)vm->host->cfg.images;
	vm->prep = p;
}
