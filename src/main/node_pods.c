#include "node_pods.h"

#include "api/api.h"
#include "api/gen/api_types.h"
#include "api/meta.h"
#include "api/quantity.h"
#include "base/str.h"
#include "cluster/podruntime/podnet.h"
#include "cluster/podruntime/podruntime.h"
#include "virt/names.h"

static const char *pod_ns(const struct podrt_pod *p)
{
	return podrt_pod_obj(p)->metadata.namespace;
}

static const char *pod_name(const struct podrt_pod *p)
{
	return podrt_pod_obj(p)->metadata.name;
}

static const char *pod_label(const struct podrt_pod *p, const char *key)
{
	return api_label(&podrt_pod_obj(p)->metadata, key);
}

static const char *pod_annotation(const struct podrt_pod *p, const char *key)
{
	return api_annotation(&podrt_pod_obj(p)->metadata, key);
}

static const char *pod_image_of(const struct podrt_pod *p, const char *volume)
{
	const PodSpec *s = &podrt_pod_obj(p)->spec;

	for (size_t i = 0; i < s->n_volumes; i++)
		if (s->volumes[i].image && str_eq(s->volumes[i].name, volume))
			return s->volumes[i].image->reference;
	return NULL;
}

static int64_t pod_memory_limit(const struct podrt_pod *p)
{
	const PodSpec *s = &podrt_pod_obj(p)->spec;

	for (size_t i = 0; i < s->n_containers; i++)
		if (s->containers[i].resources && str_eq(s->containers[i].name, CONTAINER_COMPUTE))
			return api_quantity_bytes(
				api_map_get(&s->containers[i].resources->limits, "memory"), 0);
	return 0;
}

static void pod_net(const struct podrt_pod *p, struct vm_pod_net *out)
{
	const struct podnet_attached *a = podrt_pod_net(p);

	const char *address = pod_annotation(p, ANN_ADDRESS);
	struct in_addr at = {0};

	*out = (struct vm_pod_net){.ns_name = a->ns_name, .host_if = a->host_if};
	if (address && !net_ip4_parse(address, &at, NULL))
		out->mig_address = podnet_mig_address(at);
}

static struct vm *pod_get(struct podrt_pod *p)
{
	return *podrt_pod_data(p);
}

static void pod_set(struct podrt_pod *p, struct vm *vm)
{
	*podrt_pod_data(p) = vm;
}

static void pod_unpaused(struct podrt_pod *p, bool is_unpaused)
{
	struct pod_facts *f = podrt_pod_facts(p);

	if (f->is_unpaused == is_unpaused)
		return;
	f->is_unpaused = is_unpaused;
	/* Before it runs nothing is to be told: the report of the start will say it. */
	if (podrt_pod_state(p) == POD_RUNNING)
		podrt_report(p);
}

static void pod_image(struct podrt_pod *p, const char *name, const char *image, const char *id)
{
	ignore_rc(pod_facts_add_image(podrt_pod_facts(p), name, image, id)); /* shown only */
}

const struct vm_pod_ops node_pod_ops = {
	.ns = pod_ns,
	.name = pod_name,
	.uid = podrt_pod_uid,
	.label = pod_label,
	.annotation = pod_annotation,
	.image_of = pod_image_of,
	.memory_limit = pod_memory_limit,
	.state_dir = podrt_pod_state_dir,
	.run_dir = podrt_pod_run_dir,
	.net = pod_net,
	.is_deleted = podrt_pod_is_deleted,
	.get = pod_get,
	.set = pod_set,
	.prepared = podrt_prepared,
	.started = podrt_started,
	.exited = podrt_exited,
	.cleaned = podrt_cleaned,
	.retry = podrt_retry,
	.unpaused = pod_unpaused,
	.image = pod_image,
};
