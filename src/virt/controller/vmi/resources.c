#include "virt/controller/vmi/resources.h"

#include <stdlib.h>

#include "api/api.h"
#include "api/quantity.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/try.h"

#define OVERHEAD_FIXED \
	(220 * (int64_t)MIB) /* monitor 25 + launcher 100 + log 25 + driver 40 + QEMU 30 */
#define OVERHEAD_PER_CPU    (8 * (int64_t)MIB)
#define OVERHEAD_IOTHREAD   (8 * (int64_t)MIB)
#define OVERHEAD_GRAPHICS   (32 * (int64_t)MIB)
#define OVERHEAD_ARM64	    (128 * (int64_t)MIB)
#define OVERHEAD_TPM	    (53 * (int64_t)MIB)
#define OVERHEAD_PROBES	    (100 * (int64_t)MIB)
#define OVERHEAD_PROBE	    (10 * (int64_t)MIB)
#define OVERHEAD_GUARANTEED (100 * (int64_t)MIB)

static const char *requested(const VirtualMachineInstanceSpec *spec, const char *key)
{
	const ResourceRequirements *r = spec->domain.resources;

	return r ? api_map_get(&r->requests, key) : NULL;
}

static const char *limited(const VirtualMachineInstanceSpec *spec, const char *key)
{
	const ResourceRequirements *r = spec->domain.resources;

	return r ? api_map_get(&r->limits, key) : NULL;
}

int64_t vmi_vcpus(const VirtualMachineInstanceSpec *spec)
{
	const CPU *cpu = spec->domain.cpu;

	if (cpu && (API_GET(cpu, sockets, 0) || API_GET(cpu, cores, 0) || API_GET(cpu, threads, 0)))
		return MAX(API_GET(cpu, sockets, 1), 1) * MAX(API_GET(cpu, cores, 1), 1) *
		       MAX(API_GET(cpu, threads, 1), 1);
	const char *text = limited(spec, "cpu");

	if (!text)
		text = requested(spec, "cpu");
	return MAX(api_quantity_bytes(text, 1), 1);
}

int64_t vmi_guest_memory(const VirtualMachineInstanceSpec *spec)
{
	const Memory *m = spec->domain.memory;
	const char *text = m ? m->guest : NULL;

	if (!text)
		text = requested(spec, "memory");
	if (!text)
		text = limited(spec, "memory");
	return api_quantity_bytes(text, 0);
}

static bool is_exec(const Probe *p)
{
	return p && p->exec;
}

static bool is_guaranteed(const VirtualMachineInstanceSpec *spec)
{
	static const char *const keys[] = {"cpu", "memory"};

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		const char *r = requested(spec, keys[i]), *l = limited(spec, keys[i]);

		if (!r || !l || api_quantity_to_milli(r, -1) != api_quantity_to_milli(l, -2))
			return false;
	}
	return true;
}

int64_t vmi_memory_overhead(const VirtualMachineInstanceSpec *spec,
			    const KubeVirtConfiguration *cfg)
{
	const Devices *dev = &spec->domain.devices;
	int64_t sum = api_quantity_bytes(requested(spec, "memory"), 0) / 512; /* page tables */
	int probes = is_exec(spec->livenessProbe) + is_exec(spec->readinessProbe);

	sum += OVERHEAD_FIXED + OVERHEAD_PER_CPU * vmi_vcpus(spec) + OVERHEAD_IOTHREAD;
	if (API_GET(dev, autoattachGraphicsDevice, true))
		sum += OVERHEAD_GRAPHICS;
	if (str_eq(spec->architecture, "arm64"))
		sum += OVERHEAD_ARM64;
	if (probes)
		sum += OVERHEAD_PROBES + probes * OVERHEAD_PROBE;
	if (dev->tpm)
		sum += OVERHEAD_TPM;
	if (is_guaranteed(spec))
		sum += OVERHEAD_GUARANTEED;
	if (cfg && cfg->additionalGuestMemoryOverheadRatio) {
		double ratio = strtod(cfg->additionalGuestMemoryOverheadRatio, NULL);

		if (ratio >= 1.0)
			sum = (int64_t)((double)sum * ratio);
	}
	return sum;
}

static enum rc set_bytes(struct api_map *m, const char *key, int64_t bytes)
{
	CLEANUP(mem_freep)
	char *text = api_quantity_text_bytes(bytes);

	return text ? api_map_set(m, key, text) : RC_NOMEM;
}

static enum rc set_memory(const VirtualMachineInstanceSpec *spec, const KubeVirtConfiguration *cfg,
			  PodResourceRequirements *out)
{
	const ResourceRequirements *r = spec->domain.resources;
	const DeveloperConfiguration *dc = cfg ? cfg->developerConfiguration : NULL;
	int64_t overcommit = dc ? API_GET(dc, memoryOvercommit, 100) : 100;
	int64_t overhead = vmi_memory_overhead(spec, cfg);
	int64_t request = api_quantity_bytes(requested(spec, "memory"), 0);

	if (!request)
		request = vmi_guest_memory(spec) * 100 / MAX(overcommit, 1);
	if (!r || !API_GET(r, overcommitGuestOverhead, false))
		request += overhead;
	TRY(set_bytes(&out->requests, "memory", request));
	if (limited(spec, "memory"))
		TRY(set_bytes(&out->limits, "memory",
			      api_quantity_bytes(limited(spec, "memory"), 0) + overhead));
	return RC_OK;
}

static enum rc set_cpu(const VirtualMachineInstanceSpec *spec, const KubeVirtConfiguration *cfg,
		       PodResourceRequirements *out)
{
	const DeveloperConfiguration *dc = cfg ? cfg->developerConfiguration : NULL;
	int64_t ratio = dc ? API_GET(dc, cpuAllocationRatio, 10) : 10;

	if (requested(spec, "cpu")) {
		TRY(api_map_set(&out->requests, "cpu", requested(spec, "cpu")));
	} else {
		int64_t milli = vmi_vcpus(spec) * 1000 / MAX(ratio, 1);
		CLEANUP(mem_freep)
		char *text = api_quantity_text_milli(milli);

		if (!text)
			return RC_NOMEM;
		TRY(api_map_set(&out->requests, "cpu", text));
	}
	if (limited(spec, "cpu"))
		TRY(api_map_set(&out->limits, "cpu", limited(spec, "cpu")));
	return RC_OK;
}

static enum rc set_all(const VirtualMachineInstanceSpec *spec, const KubeVirtConfiguration *cfg,
		       const struct vmi_devices *dev, PodResourceRequirements *out)
{
	static const char *const skip[] = {"cpu", "memory"};
	const ResourceRequirements *r = spec->domain.resources;

	/* what else the user asked for is passed on as it is */
	for (size_t i = 0; r && i < r->requests.n; i++)
		if (!str_eq(r->requests.items[i].key, skip[0]) &&
		    !str_eq(r->requests.items[i].key, skip[1]))
			TRY(api_map_set(&out->requests, r->requests.items[i].key,
					r->requests.items[i].value));
	for (size_t i = 0; r && i < r->limits.n; i++)
		if (!str_eq(r->limits.items[i].key, skip[0]) &&
		    !str_eq(r->limits.items[i].key, skip[1]))
			TRY(api_map_set(&out->limits, r->limits.items[i].key,
					r->limits.items[i].value));
	TRY(set_cpu(spec, cfg, out));
	TRY(set_memory(spec, cfg, out));
	if (!api_map_has(&out->requests, "ephemeral-storage"))
		TRY(api_map_set(&out->requests, "ephemeral-storage", "50M"));
	if (dev->kvm) {
		TRY(api_map_set(&out->requests, "devices.kubevirt.io/kvm", "1"));
		TRY(api_map_set(&out->limits, "devices.kubevirt.io/kvm", "1"));
	}
	if (dev->tun) {
		TRY(api_map_set(&out->requests, "devices.kubevirt.io/tun", "1"));
		TRY(api_map_set(&out->limits, "devices.kubevirt.io/tun", "1"));
	}
	return RC_OK;
}

enum rc vmi_compute_resources(const VirtualMachineInstanceSpec *spec,
			      const KubeVirtConfiguration *cfg, const struct vmi_devices *dev,
			      PodResourceRequirements *out)
{
	memset(out, 0, sizeof(*out));
	enum rc rc = set_all(spec, cfg, dev, out);

	if (rc)
		api_fini(&api_type_PodResourceRequirements, out);
	return rc;
}
