#include <stdio.h>

#include "api/api.h"
#include "api/meta.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "base/try.h"
#include "sched/snapshot.h"
#include "virt/controller/kit.h"
#include "virt/controller/migration/mig_int.h"
#include "virt/controller/vmi/launcher_pod.h"
#include "virt/migration/arrivals.h"
#include "virt/migration/compat.h"
#include "virt/migration/host_disks.h"
#include "virt/migration/local_disks.h"
#include "virt/names.h"

enum { CLAIMS_MAX = 64 * 1024 };

static bool requests(const Pod *pod, const char *resource)
{
	for (size_t i = 0; i < pod->spec.n_containers; i++)
		if (pod->spec.containers[i].resources &&
		    api_map_has(&pod->spec.containers[i].resources->requests, resource))
			return true;
	return false;
}

/* The target keeps away from the source, in the words of Kubernetes. */
static enum rc keep_apart(Pod *pod, const char *vmi_uid)
{
	Affinity *a = api_ensure(&api_type_Affinity, &pod->spec.affinity);
	PodAntiAffinity *pa = a ? api_ensure(&api_type_PodAntiAffinity, &a->podAntiAffinity) : NULL;
	PodAffinityTerm *t =
		pa ? api_append(&pa->requiredDuringSchedulingIgnoredDuringExecution,
				&pa->n_requiredDuringSchedulingIgnoredDuringExecution, sizeof(*t))
		   : NULL;
	LabelSelector *ls = t ? api_ensure(&api_type_LabelSelector, &t->labelSelector) : NULL;

	if (!ls)
		return RC_NOMEM;
	TRY(api_map_set(&ls->matchLabels, LABEL_CREATED_BY, vmi_uid));
	return api_set_str(&t->topologyKey, LABEL_HOSTNAME);
}

/* ---- the CPU that the guest has seen ---- */

static enum rc copy_prefixed(struct api_map *to, const struct api_map *from, const char *prefix,
			     bool *found)
{
	for (size_t i = 0; i < from->n; i++) {
		if (!str_has_prefix(from->items[i].key, prefix))
			continue;
		*found = true;
		TRY(api_map_set(to, from->items[i].key, from->items[i].value));
	}
	return RC_OK;
}

static enum rc require_label(struct api_map *sel, const char *prefix, const char *suffix)
{
	CLEANUP(mem_freep)
	char *key = mem_printf("%s%s", prefix, suffix);

	return key ? api_map_set(sel, key, "true") : RC_NOMEM;
}

/* host-model: the first source's requirements stick, because the guest has seen that CPU. */
static enum rc select_host_model(struct api_map *sel, const Pod *source, const Node *node)
{
	bool sticky = false;

	TRY(copy_prefixed(sel, &source->spec.nodeSelector, LABEL_CPU_MODEL_MIGRATION, &sticky));
	if (sticky)
		return copy_prefixed(sel, &source->spec.nodeSelector, LABEL_CPU_FEATURE, &sticky);
	const struct api_map *labels = &node->metadata.labels;

	for (size_t i = 0; i < labels->n; i++) {
		const char *key = labels->items[i].key;

		if (str_has_prefix(key, LABEL_HOST_MODEL_CPU))
			TRY(require_label(sel, LABEL_CPU_MODEL_MIGRATION,
					  key + strlen(LABEL_HOST_MODEL_CPU)));
		else if (str_has_prefix(key, LABEL_HOST_MODEL_FEATURE))
			TRY(require_label(sel, LABEL_CPU_FEATURE,
					  key + strlen(LABEL_HOST_MODEL_FEATURE)));
	}
	return RC_OK;
}

/* Every model: the vendor of the source, unless one is selected already. */
static enum rc select_vendor(struct api_map *sel, const Node *node)
{
	const struct api_map *labels = &node->metadata.labels;

	for (size_t i = 0; i < sel->n; i++)
		if (str_has_prefix(sel->items[i].key, LABEL_CPU_VENDOR))
			return RC_OK;
	for (size_t i = 0; i < labels->n; i++)
		if (str_has_prefix(labels->items[i].key, LABEL_CPU_VENDOR))
			return api_map_set(sel, labels->items[i].key, labels->items[i].value);
	return RC_OK;
}

/* What the guest really sees, whatever its model is called: each feature, its model, and a QEMU that is not older
 * than its own. */
static enum rc select_seen(const VirtualMachineInstance *vmi, Pod *pod)
{
	const FerryVMIStatus *fs = vmi->status.ferry;
	struct api_map *sel = &pod->spec.nodeSelector;
	int64_t level = compat_qemu_level(fs ? fs->qemuVersion : NULL);
	char text[64];
	const char *model;
	size_t n;

	for (size_t i = 0; fs && fs->cpu && i < fs->cpu->n_features; i++)
		TRY(require_label(sel, LABEL_CPU_FEATURE, fs->cpu->features[i]));
	if (compat_model(vmi, &model, &n)) {
		(void)snprintf(text, sizeof(text), "%.*s", (int)n, model);
		TRY(require_label(sel, LABEL_CPU_MODEL_MIGRATION, text));
	}
	if (!level)
		return RC_OK;
	(void)snprintf(text, sizeof(text), "%lld", (long long)level - 1);
	return launcher_pod_require(pod, LABEL_QEMU_LEVEL, "Gt", text);
}

static enum rc select_cpu(struct mig *m, Pod *pod, const Pod *source)
{
	const CPU *cpu = m->vmi->spec.domain.cpu;
	const Node *node = view_get(m->v, &api_kind_Node, NULL, m->vmi->status.nodeName);

	if (!node)
		return RC_OK;
	if (!cpu || !cpu->model || str_eq(cpu->model, "host-model"))
		TRY(select_host_model(&pod->spec.nodeSelector, source, node));
	return select_vendor(&pod->spec.nodeSelector, node);
}

/* ---- disks that come along ---- */

/* Only those that the VM writes, and only while the settings allow it: all others keep to their node. */
static bool comes_along(const struct mig *m, const Volume *v, const PersistentVolumeClaim *pvc)
{
	const PersistentVolume *pv =
		pvc && !str_is_empty(pvc->spec.volumeName)
			? view_get(m->v, &api_kind_PersistentVolume, NULL, pvc->spec.volumeName)
			: NULL;

	return pv && str_eq(local_disk_node(pv), m->vmi->status.nodeName) &&
	       local_disk_can_move(m->vmi, v);
}

static enum rc bring_host_disks(struct mig *m, Pod *pod)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(CLAIMS_MAX);

	for (size_t i = 0; i < m->vmi->spec.n_volumes; i++) {
		const Volume *v = &m->vmi->spec.volumes[i];

		if (host_disk_is_own(&m->vmi->spec, v) && local_disk_can_move(m->vmi, v))
			sbuf_addf(&b, "%s%s", b.n ? "," : "", v->name);
	}
	TRY(sbuf_rc(&b));
	return b.n ? api_map_set(&pod->metadata.annotations, ANN_BRINGS_HOST_DISKS, sbuf_str(&b))
		   : RC_OK;
}

static enum rc bring_claims(struct mig *m, const PersistentVolumeClaim *const *claims, Pod *pod)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(CLAIMS_MAX);

	if (!local_disks_may_move(kit_ferry_config(m->v), mig_policy_of(m->v, m->vmi)))
		return RC_OK;
	TRY(bring_host_disks(m, pod));
	for (size_t i = 0; i < m->vmi->spec.n_volumes; i++)
		if (comes_along(m, &m->vmi->spec.volumes[i], claims[i]))
			sbuf_addf(&b, "%s%s", b.n ? "," : "", claims[i]->metadata.name);
	TRY(sbuf_rc(&b));
	return b.n ? api_map_set(&pod->metadata.annotations, SCHED_BRINGS_CLAIMS, sbuf_str(&b))
		   : RC_OK;
}

bool mig_brings_disks(const Pod *pod)
{
	return api_annotation(&pod->metadata, ANN_BRINGS_HOST_DISKS) ||
	       api_annotation(&pod->metadata, SCHED_BRINGS_CLAIMS);
}

/* Not to nodes that have said no.  By name, as there is one answer for each VM; who changes what is in the way there
 * helps the next move. */
static enum rc avoid_refusing(const struct mig *m, Pod *pod)
{
	struct kiter it;

	if (!mig_brings_disks(pod))
		return RC_OK;
	view_list(m->v, &api_kind_Node, NULL, &it);
	for (const Node *n; (n = view_next(&it));) {
		const char *name = api_label(&n->metadata, LABEL_HOSTNAME);
		struct compat c = {0};

		arrivals_check(m->vmi, n, &c);
		if (name && c.reason && !c.may_pass)
			TRY(launcher_pod_require(pod, LABEL_HOSTNAME, "NotIn", name));
	}
	return RC_OK;
}

static enum rc require_network(const struct mig *m, Pod *pod)
{
	CLEANUP(mem_freep)
	char *label = NULL;

	TRY(mig_network_label(m->v, &label));
	return label ? launcher_pod_require(pod, label, "Exists", NULL) : RC_OK;
}

static enum rc adapt(struct mig *m, Pod *pod, const Pod *source)
{
	const struct api_map *added = &m->old->spec.addedNodeSelector;

	TRY(api_map_set(&pod->metadata.labels, LABEL_MIGRATION_UID, m->old->metadata.uid));
	TRY(api_map_set(&pod->metadata.annotations, ANN_MIGRATION_NAME, m->old->metadata.name));
	TRY(keep_apart(pod, m->vmi->metadata.uid));
	TRY(select_cpu(m, pod, source));
	TRY(select_seen(m->vmi, pod));
	TRY(require_network(m, pod));
	for (size_t i = 0; i < added->n; i++) /* it can only narrow: the VM's own value wins */
		if (!api_map_has(&pod->spec.nodeSelector, added->items[i].key))
			TRY(api_map_set(&pod->spec.nodeSelector, added->items[i].key,
					added->items[i].value));
	return RC_OK;
}

enum rc mig_target_pod(struct mig *m, Pod **out)
{
	const Pod *source = m->pods.current;
	CLEANUP(mem_freep)
	const PersistentVolumeClaim **claims = NULL;
	CLEANUP(Pod_freep)
	Pod *pod = NULL;
	const char *missing;
	int64_t uid = 0;

	if (!source)
		return err_set(m->err, RC_BUSY, "the source pod is not known yet");
	TRY(vmi_claims(m->v, m->vmi, &claims, &missing));
	const char *text = api_annotation(&source->metadata, ANN_UID);

	if (text)
		TRY(str_to_i64(text, 0, INT32_MAX, &uid, m->err));
	struct launcher_pod_in in = {
		.vmi = m->vmi,
		.cfg = kit_config(m->v),
		.seed = m->old->metadata.uid,
		.address = api_annotation(&source->metadata, ANN_ADDRESS),
		.mac = api_annotation(&source->metadata, ANN_MAC),
		.uid = uid,
		.devices = {requests(source, "devices.kubevirt.io/kvm"),
			    requests(source, "devices.kubevirt.io/tun")},
		.claims = claims,
	};

	TRY(launcher_pod_build(&in, &pod, m->err));
	TRY(adapt(m, pod, source));
	TRY(bring_claims(m, claims, pod));
	TRY(avoid_refusing(m, pod));
	*out = STEAL(pod);
	return RC_OK;
}
