/* What a VM is given by its specification, and how its network looks: under KubeVirt's names. */
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "api/gen/api_types.h"
#include "api/quantity.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "ctl/prom.h"
#include "ctl/prom_map.h"
#include "virt/controller/kit.h"
#include "virt/controller/metrics.h"
#include "virt/controller/vmi/resources.h"
#include "virt/names.h"

/* ---- resources ---- */

static const char REQUESTS[] = "kubevirt_vm_resource_requests",
		  LIMITS[] = "kubevirt_vm_resource_limits";

static const struct api_map none;

struct sink {
	struct sbuf *out;
	const VirtualMachine *vm;
	const char *family;
};

/* source NULL: the family has no such label. */
static void put(const struct sink *s, const char *resource, const char *unit, const char *source,
		double value)
{
	const struct prom_label labels[] = {{"name", s->vm->metadata.name},
					    {"namespace", s->vm->metadata.namespace},
					    {"resource", resource},
					    {"unit", unit},
					    {"source", source}};

	if (value > 0) /* 0: nothing is asked for */
		prom_sample(s->out, s->family, labels, source ? 5 : 4, NULL, value);
}

static double bytes_of(const char *quantity)
{
	return (double)api_quantity_bytes(quantity, 0);
}

static double cores_of(const char *quantity)
{
	return (double)api_quantity_to_milli(quantity, 0) / 1000;
}

/* KubeVirt's sources: "domain" and "guest" as the template has them, "default" where it says nothing of processors,
 * "guest_effective" what the guest gets. */
static void put_requests(const struct sink *s)
{
	const VirtualMachineInstanceSpec *spec = &s->vm->spec.template->spec;
	const ResourceRequirements *r = spec->domain.resources;
	const struct api_map *requests = r ? &r->requests : &none;
	const CPU *cpu = spec->domain.cpu;
	double cores = cores_of(api_map_get(requests, "cpu"));

	put(s, "memory", "bytes", "domain", bytes_of(api_map_get(requests, "memory")));
	if (spec->domain.memory)
		put(s, "memory", "bytes", "guest", bytes_of(spec->domain.memory->guest));
	put(s, "memory", "bytes", "guest_effective", (double)vmi_guest_memory(spec));
	if (cpu) {
		put(s, "cpu", "cores", "domain", (double)API_GET(cpu, cores, 0));
		put(s, "cpu", "threads", "domain", (double)API_GET(cpu, threads, 0));
		put(s, "cpu", "sockets", "domain", (double)API_GET(cpu, sockets, 0));
	} else if (cores <= 0) {
		put(s, "cpu", "cores", "default", 1);
		put(s, "cpu", "threads", "default", 1);
		put(s, "cpu", "sockets", "default", 1);
	}
	put(s, "cpu", "cores", "requests", cores);
	put(s, "cpu", "cores", "guest_effective", (double)vmi_vcpus(spec));
}

static void put_limits(const struct sink *s)
{
	const ResourceRequirements *r = s->vm->spec.template->spec.domain.resources;
	const struct api_map *limits = r ? &r->limits : &none;

	put(s, "memory", "bytes", NULL, bytes_of(api_map_get(limits, "memory")));
	put(s, "cpu", "cores", NULL, cores_of(api_map_get(limits, "cpu")));
}

static void print_resources(const struct view *v, const char *family, const char *help,
			    void (*put_one)(const struct sink *s), struct sbuf *out)
{
	struct kiter it;

	prom_head(out, family, "gauge", help);
	view_list(v, &api_kind_VirtualMachine, NULL, &it);
	for (const VirtualMachine *vm; (vm = view_next(&it));)
		if (vm->spec.template)
			put_one(&(struct sink){out, vm, family});
}

/* ---- disks ---- */

static void put_claims(const struct view *v, const VirtualMachine *vm, struct sbuf *out)
{
	const VirtualMachineInstanceSpec *spec = &vm->spec.template->spec;

	for (size_t i = 0; i < spec->n_volumes; i++) {
		const char *name = kit_volume_claim(&spec->volumes[i]);
		const PersistentVolumeClaim *c = name ? view_get(v, &api_kind_PersistentVolumeClaim,
								 vm->metadata.namespace, name)
						      : NULL;
		const struct prom_label labels[] = {{"name", vm->metadata.name},
						    {"namespace", vm->metadata.namespace},
						    {"persistentvolumeclaim", name},
						    {"volume_mode", c ? c->spec.volumeMode : NULL},
						    {"device", spec->volumes[i].name}};

		if (c && c->spec.resources)
			prom_sample(out, "kubevirt_vm_disk_allocated_size_bytes", labels,
				    ARRAY_SIZE(labels), NULL,
				    bytes_of(api_map_get(&c->spec.resources->requests, "storage")));
	}
}

static void print_claims(const struct view *v, struct sbuf *out)
{
	struct kiter it;

	prom_head(out, "kubevirt_vm_disk_allocated_size_bytes", "gauge",
		  "How much storage the claim behind a disk asks for.");
	view_list(v, &api_kind_VirtualMachine, NULL, &it);
	for (const VirtualMachine *vm; (vm = view_next(&it));)
		if (vm->spec.template)
			put_claims(v, vm, out);
}

/* ---- labels ---- */

/* Is the word one of "a, b,c"? */
static bool lists(const char *list, const char *word)
{
	struct str rest = str_of(list);

	while (rest.p)
		if (str_view_eq(str_trim(str_split(&rest, ',')), word))
			return true;
	return false;
}

struct label_choice {
	const char *allow, *ignore; /* lists */
};

static bool is_chosen(const char *key, void *arg)
{
	const struct label_choice *c = arg;

	return !lists(c->ignore, key) && (lists(c->allow, "*") || lists(c->allow, key));
}

/* KubeVirt's ConfigMap of the installation's namespace; absent: all labels.  Where Kubernetes itself looks after
 * ConfigMaps, these controllers have no copies of them. */
static struct label_choice label_choice(const struct view *v)
{
	const ConfigMap *m =
		kcache_has_kind(v->cache, &api_kind_ConfigMap)
			? view_get(v, &api_kind_ConfigMap, KUBEVIRT_NS, "kubevirt-vm-labels-config")
			: NULL;

	return (struct label_choice){.allow = m ? api_map_get(&m->data, "allowlist") ?: "*" : "*",
				     .ignore = m ? api_map_get(&m->data, "ignorelist") ?: "" : ""};
}

static void print_labels(const struct view *v, struct sbuf *out)
{
	struct label_choice choice = label_choice(v);
	struct kiter it;

	prom_head(out, "kubevirt_vm_labels", "gauge", "The labels of the virtual machine.");
	view_list(v, &api_kind_VirtualMachine, NULL, &it);
	for (const VirtualMachine *vm; (vm = view_next(&it));) {
		CLEANUP(sbuf_fini) struct sbuf rest = SBUF_INIT(PROM_MAP_BYTES);
		const struct prom_label labels[] = {{"name", vm->metadata.name},
						    {"namespace", vm->metadata.namespace}};

		prom_map_add(&rest, "label_", &vm->metadata.labels, is_chosen, &choice);
		if (rest.n || rest.rc)
			prom_sample(out, "kubevirt_vm_labels", labels, 2, &rest, 1);
	}
}

/* ---- network ---- */

static const char *network_of(const VirtualMachineInstanceSpec *spec, const char *name)
{
	for (size_t i = 0; i < spec->n_networks; i++)
		if (str_eq(spec->networks[i].name, name))
			return spec->networks[i].pod ? "pod networking" : NULL;
	return NULL;
}

/* Bindings that Ferry refuses have no name here. */
static void put_vnics(const char *family, const ObjectMeta *meta,
		      const VirtualMachineInstanceSpec *spec, struct sbuf *out)
{
	for (size_t i = 0; i < spec->domain.devices.n_interfaces; i++) {
		const Interface *nic = &spec->domain.devices.interfaces[i];
		const char *binding = nic->masquerade ? "masquerade"
				      : nic->bridge   ? "bridge"
						      : NULL;
		const char *network = network_of(spec, nic->name);
		const struct prom_label labels[] = {
			{"name", meta->name},
			{"namespace", meta->namespace},
			{"vnic_name", nic->name},
			{"binding_type", "core"},
			{"network", network},
			{"binding_name", binding},
			{"model", str_is_empty(nic->model) ? "<none>" : nic->model}};

		if (binding && network)
			prom_sample(out, family, labels, ARRAY_SIZE(labels), NULL, 1);
	}
}

static void print_vnics(const struct view *v, struct sbuf *out)
{
	struct kiter it;

	prom_head(out, "kubevirt_vm_vnic_info", "gauge",
		  "One sample for each interface that a virtual machine's template has.");
	view_list(v, &api_kind_VirtualMachine, NULL, &it);
	for (const VirtualMachine *vm; (vm = view_next(&it));)
		if (vm->spec.template)
			put_vnics("kubevirt_vm_vnic_info", &vm->metadata, &vm->spec.template->spec,
				  out);
	prom_head(out, "kubevirt_vmi_vnic_info", "gauge",
		  "One sample for each interface of an instance.");
	view_list(v, &api_kind_VirtualMachineInstance, NULL, &it);
	for (const VirtualMachineInstance *vmi; (vmi = view_next(&it));)
		put_vnics("kubevirt_vmi_vnic_info", &vmi->metadata, &vmi->spec, out);
}

/* The guest's agent may tell of several interfaces in the same words: one series, once. */
static bool stands_before(const VirtualMachineInstanceStatus *st, size_t at)
{
	const VirtualMachineInstanceNetworkInterface *a = &st->interfaces[at], *b;

	for (size_t i = 0; i < at; i++) {
		b = &st->interfaces[i];
		if (str_eq(a->name ?: "", b->name ?: "") &&
		    str_eq(a->interfaceName ?: "", b->interfaceName ?: "") &&
		    str_eq(a->ipAddress ?: "", b->ipAddress ?: ""))
			return true;
	}
	return false;
}

static void put_addresses(const VirtualMachineInstance *vmi, struct sbuf *out)
{
	for (size_t i = 0; i < vmi->status.n_interfaces; i++) {
		const VirtualMachineInstanceNetworkInterface *nic = &vmi->status.interfaces[i];
		bool has_address = !str_is_empty(nic->ipAddress);
		const struct prom_label labels[] = {
			{"node", vmi->status.nodeName},
			{"namespace", vmi->metadata.namespace},
			{"name", vmi->metadata.name},
			{"vnic_name", nic->name},
			{"interface_name", nic->interfaceName},
			{"address", nic->ipAddress},
			{"type", has_address ? "ExternalInterface" : "SystemInterface"}};

		if ((has_address || !str_is_empty(nic->name) ||
		     !str_is_empty(nic->interfaceName)) &&
		    !stands_before(&vmi->status, i))
			prom_sample(out, "kubevirt_vmi_status_addresses", labels,
				    ARRAY_SIZE(labels), NULL, 1);
	}
}

static void print_addresses(const struct view *v, struct sbuf *out)
{
	struct kiter it;

	prom_head(out, "kubevirt_vmi_status_addresses", "gauge",
		  "One sample for each interface in an instance's status, with its address.");
	view_list(v, &api_kind_VirtualMachineInstance, NULL, &it);
	for (const VirtualMachineInstance *vmi; (vmi = view_next(&it));)
		put_addresses(vmi, out);
}

void virt_vm_metrics_print(const struct view *v, struct sbuf *out)
{
	print_resources(v, REQUESTS,
			"What a virtual machine asks for, as its template says and as it comes to.",
			put_requests, out);
	print_resources(v, LIMITS, "The limits in a virtual machine's template.", put_limits, out);
	print_claims(v, out);
	print_labels(v, out);
	print_vnics(v, out);
	print_addresses(v, out);
}
