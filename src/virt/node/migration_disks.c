/* Local disks in a move: may they go along, and where their volumes are afterwards. */
#include "api/api.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/try.h"
#include "ctl/plan.h"
#include "kube/kcache.h"
#include "kube/kobj.h"
#include "virt/migration/host_disks.h"
#include "virt/migration/local_disks.h"
#include "virt/migration/migratable.h"
#include "virt/migration/policy.h"
#include "virt/node/migration.h"
#include "virt/node/migration_int.h"
#include "virt/node/pvdata.h"

/* --- may they? --- */

static const MigrationPolicy *policy_of(const struct kcache *cache,
					const VirtualMachineInstance *vmi)
{
	static const struct api_map no_labels;
	const Namespace *ns =
		kobj_typed(kcache_get(cache, &api_kind_Namespace, NULL, vmi->metadata.namespace));
	struct mig_policy_pick pick = {
		.vmi_labels = &vmi->metadata.labels,
		.ns_labels = ns ? &ns->metadata.labels : &no_labels,
	};
	struct kiter it;

	kcache_list(cache, &api_kind_MigrationPolicy, NULL, &it);
	for (const struct kobj *o; (o = kiter_next(&it));)
		mig_policy_consider(&pick, kobj_typed(o));
	return pick.best;
}

bool mig_disks_may_move(const struct kcache *cache, const VirtualMachineInstance *vmi)
{
	const FerryConfig *c = kobj_typed(kcache_get(cache, &api_kind_FerryConfig, NULL, "ferry"));

	return local_disks_may_move(c ? &c->spec : NULL, policy_of(cache, vmi));
}

/* The volume behind it, when its data lie on this node; NULL: no. */
static const PersistentVolume *local_volume(const struct vm *vm, const Volume *spec,
					    const char *node)
{
	const char *claim = local_disk_claim(spec);
	const PersistentVolume *pv =
		claim ? pvdata_of_claim(vm->host->cfg.cache, vm->ns, claim) : NULL;

	return pv && str_eq(local_disk_node(pv), node) ? pv : NULL;
}

/* Its data are this node's alone, and would have to go along. */
static bool is_own(const struct vm *vm, const VirtualMachineInstance *vmi, const Volume *spec)
{
	return (host_disk_is_own(&vmi->spec, spec) &&
		host_disk_folder(vmhost_ferry_config(vm->host), spec->hostDisk->path)) ||
	       local_volume(vm, spec, vm->host->cfg.node_name);
}

void mig_disks_judge(const struct vm *vm, const VirtualMachineInstance *vmi,
		     const char *names[VM_VOLUMES_MAX], struct migratable_in *in)
{
	size_t n = 0;

	for (size_t i = 0; i < vmi->spec.n_volumes && n < VM_VOLUMES_MAX; i++)
		if (is_own(vm, vmi, &vmi->spec.volumes[i]))
			names[n++] = vmi->spec.volumes[i].name;
	in->local_volumes = names;
	in->n_local_volumes = n;
	in->moves_local_disks = n && mig_disks_may_move(vm->host->cfg.cache, vmi);
}

bool mig_disks_come(const VirtualMachineInstance *vmi, const struct migratable_in *in)
{
	if (!in->moves_local_disks)
		return false;
	for (size_t i = 0; i < in->n_local_volumes; i++)
		for (size_t k = 0; k < vmi->spec.n_volumes; k++)
			if (str_eq(vmi->spec.volumes[k].name, in->local_volumes[i]) &&
			    local_disk_can_move(vmi, &vmi->spec.volumes[k]))
				return true;
	return false;
}

bool mig_disks_any(const struct vm *vm)
{
	const VirtualMachineInstance *vmi = vm_vmi(vm);

	for (size_t i = 0; vmi && i < vmi->spec.n_volumes; i++)
		if (is_own(vm, vmi, &vmi->spec.volumes[i]))
			return true;
	return false;
}

/* --- what changes the answer --- */

static void sync_all(struct vmhost *h, const char *ns)
{
	LIST_FOREACH(it, &h->vms) {
		struct vm *vm = LIST_ENTRY(it, struct vm, link);

		if (vm->pod && !vm->is_target && !vm->is_source_done && (!ns || str_eq(vm->ns, ns)))
			vm_sync(vm);
	}
}

static void on_setting(const struct kobj *old, const struct kobj *new, void *arg)
{
	(void)old;
	(void)new;
	sync_all(arg, NULL);
}

/* The migration network decides which nodes can be reached. */
static void on_kubevirt(const struct kobj *old, const struct kobj *new, void *arg)
{
	struct vmhost *h = arg;

	(void)old;
	(void)new;
	h->n_node_changes++;
	sync_all(h, NULL);
}

static void on_namespace(const struct kobj *old, const struct kobj *new, void *arg)
{
	const Namespace *was = old ? kobj_typed(old) : NULL, *is = new ? kobj_typed(new) : NULL;

	if (was && is && !api_map_equal(&was->metadata.labels, &is->metadata.labels))
		sync_all(arg, kobj_name(new));
}

static void on_volume(const struct kobj *old, const struct kobj *new, void *arg)
{
	const PersistentVolume *pv = kobj_typed(new ? new : old);

	if (pv->spec.claimRef && local_disk_is_local(pv))
		sync_all(arg, pv->spec.claimRef->namespace);
}

enum rc mig_disks_watch(struct vmhost *h, struct err *err)
{
	static const struct {
		const struct api_kind *kind;
		kcache_event_fn fn;
	} kinds[] = {{&api_kind_FerryConfig, on_setting},
		     {&api_kind_MigrationPolicy, on_setting},
		     {&api_kind_KubeVirt, on_kubevirt},
		     {&api_kind_Namespace, on_namespace},
		     {&api_kind_PersistentVolume, on_volume}};

	static_assert(ARRAY_SIZE(kinds) == ARRAY_SIZE(h->on_settings), "one handler for each");
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		TRY(kcache_on(h->cfg.cache, &h->on_settings[i], kinds[i].kind, kinds[i].fn, h,
			      err));
	return RC_OK;
}

/* --- where they are afterwards --- */

enum rc mig_disks_take(const struct vm *vm, const char *from, const char *to, const char *uid,
		       bool keeps_old, struct plan *plan)
{
	const VirtualMachineInstance *vmi = vm_vmi(vm);
	struct err err = {0};

	for (size_t i = 0; vmi && i < vmi->spec.n_volumes; i++) {
		const Volume *spec = &vmi->spec.volumes[i];
		const char *claim = local_disk_claim(spec);
		const PersistentVolume *pv =
			claim ? pvdata_of_claim(vm->host->cfg.cache, vm->ns, claim) : NULL;

		if (claim &&
		    !pv) /* not seen yet: the VMI must not say it runs there before the volume does */
			return RC_BUSY;
		if (!pv || !str_eq(local_disk_node(pv), from) || !local_disk_can_move(vmi, spec))
			continue;
		CLEANUP(PersistentVolume_freep)
		PersistentVolume *next = PersistentVolume_clone(pv);

		if (!next)
			return RC_NOMEM;
		TRY(local_disk_take(next, from, to, uid, keeps_old, &err));
		TRY(plan_update(plan, &api_kind_PersistentVolume, pv, STEAL(next), NULL));
	}
	return RC_OK;
}
