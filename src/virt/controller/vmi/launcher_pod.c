#include "virt/controller/vmi/launcher_pod.h"

#include <stdio.h>

#include "api/api.h"
#include "api/meta.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/try.h"
#include "virt/controller/kit.h"
#include "virt/names.h"

#define LAUNCHER_IMAGE "ferry.dev/launcher:" FERRY_VERSION
#define GRACE_DEFAULT  30
#define GRACE_LAUNCHER 30 /* 15 for the launcher, 15 in reserve, as KubeVirt */
#define DISKS_DIR      "/var/run/kubevirt-private/vmi-disks"
#define IMAGES_DIR     "/var/run/kubevirt-image-volume"

char *launcher_pod_name(const char *vmi_name, const char *seed)
{
	char suffix[6];

	kit_suffix(seed, suffix);
	return mem_printf("virt-launcher-%.230s-%s", vmi_name, suffix);
}

enum rc launcher_label_of(const char *name, char **out)
{
	char suffix[6];

	if (strlen(name) <= 63)
		return api_set_str(out, name);
	kit_suffix(name, suffix);
	return api_set_strf(out, "%.57s-%s", name, suffix);
}

/* The guest's host name: cut at the first dot, at most 63 characters. */
static enum rc hostname_of(const VirtualMachineInstance *vmi, char **out)
{
	const char *name = vmi->spec.hostname ? vmi->spec.hostname : vmi->metadata.name;
	size_t n = strcspn(name, ".");

	return api_set_strf(out, "%.*s", (int)MIN(n, 63), name);
}

static bool is_host_model(const VirtualMachineInstanceSpec *spec)
{
	const CPU *cpu = spec->domain.cpu;

	return !cpu || !cpu->model || str_eq(cpu->model, "host-model");
}

/* ferry.dev/… is what the node does as it is told: only the controller says it. */
static bool is_copied_annotation(const char *key)
{
	return !str_has_prefix(key, "kubectl.kubernetes.io/") &&
	       !str_has_prefix(key, "ferry.dev/") && !str_eq(key, ANN_STORAGE_VERSION) &&
	       !str_eq(key, ANN_OBSERVED_VERSION);
}

static enum rc set_meta(const struct launcher_pod_in *in, Pod *pod)
{
	const VirtualMachineInstance *vmi = in->vmi;
	ObjectMeta *m = &pod->metadata;
	CLEANUP(mem_freep)
	char *host = NULL;
	CLEANUP(mem_freep)
	char *id = NULL;

	m->name = launcher_pod_name(vmi->metadata.name, in->seed);
	if (!m->name)
		return RC_NOMEM;
	TRY(api_set_str(&m->namespace, vmi->metadata.namespace));
	TRY(api_map_merge(&m->labels, &vmi->metadata.labels));
	api_map_del(&m->labels, LABEL_NODE_NAME);
	api_map_del(&m->labels, LABEL_MIGRATION_TARGET);
	TRY(hostname_of(vmi, &host));
	TRY(launcher_label_of(vmi->metadata.name, &id));
	TRY(api_map_set(&m->labels, LABEL_ROLE, ROLE_LAUNCHER));
	TRY(api_map_set(&m->labels, LABEL_CREATED_BY, vmi->metadata.uid));
	TRY(api_map_set(&m->labels, LABEL_VM_NAME, host));
	TRY(api_map_set(&m->labels, LABEL_VMI_ID, id));
	for (size_t i = 0; i < vmi->metadata.annotations.n; i++) {
		const struct api_map_item *a = &vmi->metadata.annotations.items[i];

		if (is_copied_annotation(a->key))
			TRY(api_map_set(&m->annotations, a->key, a->value));
	}
	TRY(api_map_set(&m->annotations, ANN_DOMAIN, vmi->metadata.name));
	TRY(api_map_set(&m->annotations, "kubectl.kubernetes.io/default-container",
			CONTAINER_COMPUTE));
	TRY(api_map_set(&m->annotations, ANN_TRANSPORT_UNIX, "true"));
	TRY(api_map_set(&m->annotations, ANN_EVICT_ONLY, ""));
	TRY(api_map_setf(&m->annotations, ANN_MEMORY_OVERHEAD, "%lld",
			 (long long)vmi_memory_overhead(&vmi->spec, in->cfg)));
	if (in->cpu_baseline && is_host_model(&vmi->spec))
		TRY(api_map_set(&m->annotations, ANN_CPU_MODEL, in->cpu_baseline));
	if (in->address)
		TRY(api_map_set(&m->annotations, ANN_ADDRESS, in->address));
	if (in->mac)
		TRY(api_map_set(&m->annotations, ANN_MAC, in->mac));
	TRY(api_map_setf(&m->annotations, ANN_UID, "%lld", (long long)in->uid));
	return api_add_owner(m, &api_kind_VirtualMachineInstance, &vmi->metadata, true, true);
}

/* ---- where it may run ---- */

static enum rc require_label(struct api_map *sel, const char *family, const char *name)
{
	CLEANUP(mem_freep)
	char *key = mem_printf("%s%s", family, name);

	return key ? api_map_set(sel, key, "true") : RC_NOMEM;
}

static enum rc select_cpu(const struct launcher_pod_in *in, struct api_map *sel)
{
	const CPU *cpu = in->vmi->spec.domain.cpu;

	if (is_host_model(&in->vmi->spec)) {
		if (in->cpu_baseline)
			TRY(require_label(sel, LABEL_CPU_MODEL_MIGRATION, in->cpu_baseline));
	} else if (!str_eq(cpu->model, "host-passthrough")) {
		TRY(require_label(sel, LABEL_CPU_MODEL, cpu->model));
	}
	for (size_t i = 0; cpu && i < cpu->n_features; i++) {
		const CPUFeature *f = &cpu->features[i];

		if (str_is_empty(f->policy) || str_eq(f->policy, "require"))
			TRY(require_label(sel, LABEL_CPU_FEATURE, f->name));
	}
	return RC_OK;
}

static enum rc select_machine(const VirtualMachineInstance *vmi, struct api_map *sel)
{
	const char *type = vmi->status.machine ? vmi->status.machine->type : NULL;

	if (str_is_empty(type) && vmi->spec.domain.machine)
		type = vmi->spec.domain.machine->type;
	if (str_is_empty(type))
		return RC_OK;
	CLEANUP(mem_freep)
	char *key = mem_printf(LABEL_MACHINE_TYPE "%s", type);

	return key ? api_map_set(sel, key, "true") : RC_NOMEM;
}

static enum rc set_node_selector(const struct launcher_pod_in *in, Pod *pod)
{
	const VirtualMachineInstanceSpec *spec = &in->vmi->spec;
	struct api_map *sel = &pod->spec.nodeSelector;

	TRY(api_map_set(sel, LABEL_SCHEDULABLE, "true"));
	TRY(api_map_set(sel, LABEL_ARCH, spec->architecture ? spec->architecture : "amd64"));
	if (in->cfg && in->cfg->developerConfiguration)
		TRY(api_map_merge(sel, &in->cfg->developerConfiguration->nodeSelectors));
	TRY(select_cpu(in, sel));
	TRY(select_machine(in->vmi, sel));
	return api_map_merge(sel, &spec->nodeSelector); /* the user's value wins */
}

static enum rc require_in_term(NodeSelectorTerm *t, const char *key, const char *op,
			       const char *value)
{
	NodeSelectorRequirement *r =
		api_append(&t->matchExpressions, &t->n_matchExpressions, sizeof(*r));

	if (!r)
		return RC_NOMEM;
	TRY(api_set_str(&r->key, key));
	TRY(api_set_str(&r->operator, op));
	return value ? api_append_str(&r->values, &r->n_values, value) : RC_OK;
}

bool launcher_pod_is_outdated(const Pod *pod)
{
	for (size_t i = 0; i < pod->spec.n_containers; i++)
		if (str_eq(pod->spec.containers[i].name, CONTAINER_COMPUTE))
			return !str_eq(pod->spec.containers[i].image, LAUNCHER_IMAGE);
	return false;
}

enum rc launcher_pod_require(Pod *pod, const char *key, const char *op, const char *value)
{
	Affinity *a = api_ensure(&api_type_Affinity, &pod->spec.affinity);
	NodeAffinity *na = a ? api_ensure(&api_type_NodeAffinity, &a->nodeAffinity) : NULL;
	NodeSelector *ns = na ? api_ensure(&api_type_NodeSelector,
					   &na->requiredDuringSchedulingIgnoredDuringExecution)
			      : NULL;

	if (!ns)
		return RC_NOMEM;
	if (!ns->n_nodeSelectorTerms &&
	    !api_append(&ns->nodeSelectorTerms, &ns->n_nodeSelectorTerms, sizeof(NodeSelectorTerm)))
		return RC_NOMEM;
	for (size_t i = 0; i < ns->n_nodeSelectorTerms; i++)
		TRY(require_in_term(&ns->nodeSelectorTerms[i], key, op, value));
	return RC_OK;
}

static enum rc set_affinity(const struct launcher_pod_in *in, Pod *pod)
{
	const VirtualMachineInstanceSpec *spec = &in->vmi->spec;
	const CPU *cpu = spec->domain.cpu;

	if (spec->affinity) {
		pod->spec.affinity = api_clone(&api_type_Affinity, spec->affinity);
		if (!pod->spec.affinity)
			return RC_NOMEM;
	}
	if (cpu && str_eq(cpu->model, "host-model") && !in->cpu_baseline)
		TRY(launcher_pod_require(pod, LABEL_OBSOLETE_HOST_MODEL, "DoesNotExist", NULL));
	for (size_t i = 0; cpu && i < cpu->n_features; i++) {
		CLEANUP(mem_freep)
		char *key = NULL;

		if (!str_eq(cpu->features[i].policy, "forbid"))
			continue;
		key = mem_printf(LABEL_CPU_FEATURE "%s", cpu->features[i].name);
		if (!key)
			return RC_NOMEM;
		TRY(launcher_pod_require(pod, key, "DoesNotExist", NULL));
	}
	return RC_OK;
}

static enum rc set_tolerations(const VirtualMachineInstanceSpec *spec, Pod *pod)
{
	for (size_t i = 0; i < spec->n_tolerations; i++) {
		Toleration *t =
			api_append(&pod->spec.tolerations, &pod->spec.n_tolerations, sizeof(*t));

		if (!t)
			return RC_NOMEM;
		TRY(api_copy(&api_type_Toleration, t, &spec->tolerations[i]));
	}
	return RC_OK;
}

static enum rc set_spread(const VirtualMachineInstanceSpec *spec, Pod *pod)
{
	for (size_t i = 0; i < spec->n_topologySpreadConstraints; i++) {
		TopologySpreadConstraint *t =
			api_append(&pod->spec.topologySpreadConstraints,
				   &pod->spec.n_topologySpreadConstraints, sizeof(*t));

		if (!t)
			return RC_NOMEM;
		TRY(api_copy(&api_type_TopologySpreadConstraint, t,
			     &spec->topologySpreadConstraints[i]));
	}
	return RC_OK;
}

/* ---- containers and volumes ---- */

static enum rc add_claim(const struct launcher_pod_in *in, size_t i, Pod *pod, Container *c)
{
	const Volume *vol = &in->vmi->spec.volumes[i];
	const PersistentVolumeClaim *pvc = in->claims ? in->claims[i] : NULL;
	PodVolume *pv = api_append(&pod->spec.volumes, &pod->spec.n_volumes, sizeof(*pv));

	if (!pv)
		return RC_NOMEM;
	TRY(api_set_str(&pv->name, vol->name));
	PodPersistentVolumeClaimVolumeSource *src = api_ensure(
		&api_type_PodPersistentVolumeClaimVolumeSource, &pv->persistentVolumeClaim);

	if (!src)
		return RC_NOMEM;
	TRY(api_set_str(&src->claimName, kit_volume_claim(vol)));
	if (pvc && str_eq(pvc->spec.volumeMode, "Block")) {
		VolumeDevice *d = api_append(&c->volumeDevices, &c->n_volumeDevices, sizeof(*d));

		if (!d)
			return RC_NOMEM;
		TRY(api_set_str(&d->name, vol->name));
		return api_set_strf(&d->devicePath, "/dev/%s", vol->name);
	}
	VolumeMount *m = api_append(&c->volumeMounts, &c->n_volumeMounts, sizeof(*m));

	if (!m)
		return RC_NOMEM;
	TRY(api_set_str(&m->name, vol->name));
	return api_set_strf(&m->mountPath, DISKS_DIR "/%s", vol->name);
}

static enum rc add_image(const struct launcher_pod_in *in, size_t i, Pod *pod, Container *c)
{
	const Volume *vol = &in->vmi->spec.volumes[i];
	PodVolume *pv = api_append(&pod->spec.volumes, &pod->spec.n_volumes, sizeof(*pv));

	if (!pv)
		return RC_NOMEM;
	TRY(api_set_str(&pv->name, vol->name));
	ImageVolumeSource *src = api_ensure(&api_type_ImageVolumeSource, &pv->image);

	if (!src)
		return RC_NOMEM;
	TRY(api_set_str(&src->reference, vol->containerDisk->image));
	TRY(api_set_str(&src->pullPolicy, vol->containerDisk->imagePullPolicy));
	VolumeMount *m = api_append(&c->volumeMounts, &c->n_volumeMounts, sizeof(*m));

	if (!m)
		return RC_NOMEM;
	TRY(api_set_str(&m->name, vol->name));
	API_SET(m, readOnly, true);
	return api_set_strf(&m->mountPath, IMAGES_DIR "/disk_%zu", i);
}

/* Ports of the guest's interfaces, so that Services can name them. */
static enum rc add_ports(const VirtualMachineInstanceSpec *spec, Container *c)
{
	for (size_t i = 0; i < spec->domain.devices.n_interfaces; i++) {
		const Interface *iface = &spec->domain.devices.interfaces[i];

		for (size_t k = 0; k < iface->n_ports; k++) {
			ContainerPort *p = api_append(&c->ports, &c->n_ports, sizeof(*p));

			if (!p)
				return RC_NOMEM;
			TRY(api_set_str(&p->name, iface->ports[k].name));
			TRY(api_set_str(&p->protocol, iface->ports[k].protocol
							      ? iface->ports[k].protocol
							      : "TCP"));
			API_SET(p, containerPort, API_GET(&iface->ports[k], port, 0));
		}
	}
	return RC_OK;
}

static enum rc set_compute(const struct launcher_pod_in *in, Pod *pod)
{
	const VirtualMachineInstanceSpec *spec = &in->vmi->spec;
	Container *c = api_append(&pod->spec.containers, &pod->spec.n_containers, sizeof(*c));

	if (!c)
		return RC_NOMEM;
	TRY(api_set_str(&c->name, CONTAINER_COMPUTE));
	TRY(api_set_str(&c->image, LAUNCHER_IMAGE));
	TRY(api_set_str(&c->imagePullPolicy, "IfNotPresent"));
	TRY(api_append_str(&c->command, &c->n_command, "ferry-launcher"));
	c->resources = api_new(&api_type_PodResourceRequirements);
	if (!c->resources)
		return RC_NOMEM;
	TRY(vmi_compute_resources(spec, in->cfg, &in->devices, c->resources));
	TRY(add_ports(spec, c));
	for (size_t i = 0; i < spec->n_volumes; i++) {
		if (kit_volume_claim(&spec->volumes[i]))
			TRY(add_claim(in, i, pod, c));
		else if (spec->volumes[i].containerDisk)
			TRY(add_image(in, i, pod, c));
	}
	return RC_OK;
}

static enum rc set_spec(const struct launcher_pod_in *in, Pod *pod)
{
	const VirtualMachineInstanceSpec *spec = &in->vmi->spec;
	PodSpec *ps = &pod->spec;

	TRY(set_node_selector(in, pod));
	TRY(set_affinity(in, pod));
	TRY(set_tolerations(spec, pod));
	TRY(set_spread(spec, pod));
	TRY(set_compute(in, pod));
	TRY(api_set_str(&ps->restartPolicy, "Never"));
	API_SET(ps, terminationGracePeriodSeconds,
		API_GET(spec, terminationGracePeriodSeconds, GRACE_DEFAULT) + GRACE_LAUNCHER);
	API_SET(ps, automountServiceAccountToken, false);
	API_SET(ps, enableServiceLinks, false);
	TRY(hostname_of(in->vmi, &ps->hostname));
	TRY(api_set_str(&ps->subdomain, spec->subdomain));
	TRY(api_set_str(&ps->schedulerName, spec->schedulerName));
	TRY(api_set_str(&ps->priorityClassName, spec->priorityClassName));
	PodReadinessGate *gate =
		api_append(&ps->readinessGates, &ps->n_readinessGates, sizeof(*gate));

	if (!gate)
		return RC_NOMEM;
	TRY(api_set_str(&gate->conditionType, GATE_UNPAUSED));
	PodSecurityContext *sc = api_ensure(&api_type_PodSecurityContext, &ps->securityContext);

	if (!sc)
		return RC_NOMEM;
	API_SET(sc, runAsUser, in->uid);
	API_SET(sc, runAsGroup, in->uid);
	API_SET(sc, runAsNonRoot, true);
	API_SET(sc, fsGroup, in->uid);
	return RC_OK;
}

enum rc launcher_pod_build(const struct launcher_pod_in *in, Pod **out, struct err *err)
{
	CLEANUP(Pod_freep)
	Pod *pod = Pod_new();

	if (!pod)
		return err_set(err, RC_NOMEM, "out of memory");
	enum rc rc = set_meta(in, pod);

	if (!rc)
		rc = set_spec(in, pod);
	if (rc)
		return err_set(err, rc, "cannot build the launcher pod of '%s'",
			       in->vmi->metadata.name);
	*out = STEAL(pod);
	return RC_OK;
}
