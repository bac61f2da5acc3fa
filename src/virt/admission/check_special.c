#include <string.h>

#include "base/str.h"
#include "virt/admission/admission_int.h"

/* What KubeVirt knows and Ferry's schema refuses: its webhook's words about wrong use of it, which come before
 * "not supported".  Rules 6, 8, 9, 15, 16 and 47 of KubeVirt's VMI webhook. */

static bool quantity(const ResourceRequirements *r, bool of_limit, const char *key,
		     struct api_quantity *out)
{
	const char *text = r ? api_map_get(of_limit ? &r->limits : &r->requests, key) : NULL;

	return text && api_quantity_parse(text, out, NULL) == RC_OK && out->nano != 0;
}

/* ---- dedicated CPUs ------------------------------------------------------------------------------ */

static void check_whole_cpus(struct check *c, bool has, const struct api_quantity *q,
			     const char *which, const char *word)
{
	if (has && !api_quantity_is_integral(q))
		fe_cause(c->fe, INVALID, at(c, "domain.resources.%s.cpu", which),
			 "provided resources CPU %s must be an interger", word); /* sic */
}

static void check_dedicated(struct check *c, const CPU *cpu)
{
	const ResourceRequirements *r = c->spec->domain.resources;
	struct api_quantity rm, lm, rc, lc;
	bool has_rc = quantity(r, false, "cpu", &rc), has_lc = quantity(r, true, "cpu", &lc);
	const char *dedicated = at(c, "domain.cpu.dedicatedCpuPlacement");
	const char *requests = at(c, "domain.resources.requests.cpu");
	const char *limits = at(c, "domain.resources.limits.cpu");

	if (quantity(r, false, "memory", &rm) && quantity(r, true, "memory", &lm) &&
	    api_quantity_cmp(&rm, &lm) != 0)
		fe_cause(c->fe, INVALID, at(c, "domain.resources.requests.memory"),
			 "%s must be equal to %s", at(c, "domain.resources.requests.memory"),
			 at(c, "domain.resources.limits.memory"));
	check_whole_cpus(c, has_lc, &lc, "limits", "limits");
	check_whole_cpus(c, has_rc, &rc, "requests", "requests");
	if (has_rc && has_lc && api_quantity_cmp(&rc, &lc) != 0)
		fe_cause(c->fe, INVALID, dedicated,
			 "%s or %s must be equal when DedicatedCPUPlacement is true ", requests,
			 limits);
	/* One core is what a topology from the resources has: only more was asked for. */
	if ((has_rc || has_lc) && cpu->cores > 1)
		fe_cause(c->fe, INVALID, dedicated,
			 "%s or %s must not be provided at the same time with %s when "
			 "DedicatedCPUPlacement is true ",
			 requests, limits, at(c, "domain.cpu.cores"));
	if (cpu->threads > 2)
		fe_cause(c->fe, INVALID, at(c, "domain.cpu.threads"),
			 "Not more than two threads must be provided at %s (got %lld) when "
			 "DedicatedCPUPlacement is true",
			 at(c, "domain.cpu.threads"), (long long)cpu->threads);
}

static void check_numa(struct check *c, const CPU *cpu)
{
	const Memory *m = c->spec->domain.memory;
	const char *numa = at(c, "domain.cpu.numa.guestMappingPassthrough");

	if (!cpu->numa || !cpu->numa->guestMappingPassthrough)
		return;
	if (!cpu->dedicatedCpuPlacement)
		fe_cause(c->fe, INVALID, numa,
			 "%s must be set to true when NUMA topology strategy is set in %s",
			 at(c, "domain.cpu.dedicatedCpuPlacement"), numa);
	if (!m || !m->hugepages)
		fe_cause(c->fe, INVALID, numa,
			 "%s must be requested when NUMA topology strategy is set in %s",
			 at(c, "domain.memory.hugepages"), numa);
}

static void check_realtime(struct check *c, const CPU *cpu)
{
	const char *dedicated = at(c, "domain.cpu.dedicatedCpuPlacement");
	const char *numa = at(c, "domain.cpu.numa.guestMappingPassthrough");

	if (!cpu->realtime)
		return;
	if (!cpu->dedicatedCpuPlacement)
		fe_cause(c->fe, REQUIRED, dedicated, "%s must be set to true when %s is used",
			 dedicated, at(c, "domain.cpu.realtime"));
	if (!cpu->numa || !cpu->numa->guestMappingPassthrough)
		fe_cause(c->fe, REQUIRED, numa, "%s must be defined when %s is used", numa,
			 at(c, "domain.cpu.realtime"));
}

/* ---- launch security ------------------------------------------------------------------------------- */

static void check_efi(struct check *c, const char *type)
{
	const Firmware *f = c->spec->domain.firmware;
	const EFI *efi = f && f->bootloader ? f->bootloader->efi : NULL;
	const char *path = at(c, "domain.launchSecurity");

	if (!efi) {
		fe_cause(c->fe, INVALID, path, "%s requires OVMF (UEFI)", type);
		return;
	}
	if (API_GET(efi, secureBoot, true))
		fe_cause(c->fe, INVALID, path, "%s does not work along with SecureBoot", type);
	if (API_GET(efi, persistent, false))
		fe_cause(c->fe, INVALID, path,
			 "%s does not work along with Persistent EFI variables", type);
}

static void check_bootable_nics(struct check *c, const char *type)
{
	const Devices *devs = &c->spec->domain.devices;

	for (size_t i = 0; i < devs->n_interfaces; i++)
		if (devs->interfaces[i].has_bootOrder)
			fe_cause(c->fe, INVALID, at(c, "domain.launchSecurity"),
				 "%s does not work with bootable NICs: %s", type,
				 devs->interfaces[i].name);
}

static void check_launch_security(struct check *c, const LaunchSecurity *s)
{
	const Features *f = c->spec->domain.features;
	const char *arch = c->spec->architecture, *path = at(c, "domain.launchSecurity");
	const char *type = s->tdx ? "TDX" : s->sev || s->snp ? "SEV" : NULL;
	const char *gate = s->tdx ? "WorkloadEncryptionTDX" : "WorkloadEncryptionSEV";

	if (!str_is_empty(arch) && !str_eq(arch, "amd64") && !str_eq(arch, "s390x"))
		fe_cause(c->fe, INVALID, path, "No launchSecurity support for architecture: %s",
			 arch);
	if (!!s->sev + !!s->snp + !!s->tdx > 1)
		fe_cause(c->fe, INVALID, path, "One and only one launchSecurity type can be set");
	if (!type)
		return;
	if (!adm_gate(c->cluster, gate))
		fe_cause(c->fe, INVALID, path, "%s feature gate is not enabled in kubevirt-config",
			 gate);
	check_efi(c, type);
	if (s->tdx && f && f->smm && API_GET(f->smm, enabled, true))
		fe_cause(c->fe, INVALID, path, "TDX does not work along with SMM");
	if (s->sev && s->sev->attestation && !str_eq(c->spec->startStrategy, "Paused"))
		fe_cause(c->fe, INVALID, path,
			 "SEV attestation requires VMI StartStrategy 'Paused'");
	check_bootable_nics(c, type);
}

/* ---- ACPI tables, Hyper-V ---------------------------------------------------------------------------- */

static void check_table(struct check *c, const char *field, const char *ref)
{
	const char *path = at(c, "domain.firmware.acpi.%s", field);

	if (str_is_empty(ref))
		return;
	for (size_t i = 0; i < c->spec->n_volumes; i++) {
		if (!str_eq(c->spec->volumes[i].name, ref))
			continue;
		if (!c->spec->volumes[i].secret)
			fe_cause(c->fe, INVALID, path, "%s refers to Volume of unsupported type.",
				 path);
		return;
	}
	fe_cause(c->fe, INVALID, path, "%s does not have a matching Volume.", path);
}

static void check_acpi(struct check *c, const ACPI *acpi)
{
	if (str_is_empty(acpi->slicNameRef) && str_is_empty(acpi->msdmNameRef))
		fe_cause(c->fe, INVALID, at(c, "domain.firmware.acpi"),
			 "ACPI was set but no SLIC nor MSDM volume reference was set");
	check_table(c, "slicNameRef", acpi->slicNameRef);
	check_table(c, "msdmNameRef", acpi->msdmNameRef);
}

static void check_evmcs(struct check *c)
{
	const CPU *cpu = c->spec->domain.cpu;

	for (size_t i = 0; cpu && i < cpu->n_features; i++) {
		const CPUFeature *f = &cpu->features[i];

		if (!str_eq(f->name, "vmx"))
			continue;
		if (!str_is_empty(f->policy) && !str_eq(f->policy, "require"))
			fe_cause(c->fe, INVALID, at(c, "domain.cpu.features[%zu].policy", i),
				 "vmx cpu feature has to be set to require policy");
		return;
	}
	fe_cause(c->fe, REQUIRED, at(c, "domain.cpu.features"),
		 "vmx cpu feature is required when evmcs is set");
}

static void check_hyperv(struct check *c, const Features *f)
{
	bool passes = f->hypervPassthrough && API_GET(f->hypervPassthrough, enabled, true);

	if (passes && f->hyperv)
		fe_cause(
			c->fe, INVALID, at(c, "domain.features.hyperv"),
			"Cannot explicitly set hyperV features if HypervPassthrough is being used. "
			"Please use either HyperV or HypervPassthrough.");
	if (f->hyperv && f->hyperv->evmcs && API_GET(f->hyperv->evmcs, enabled, true))
		check_evmcs(c);
}

void check_special(struct check *c)
{
	const DomainSpec *d = &c->spec->domain;

	if (d->cpu && d->cpu->dedicatedCpuPlacement)
		check_dedicated(c, d->cpu);
	if (d->cpu) {
		check_numa(c, d->cpu);
		check_realtime(c, d->cpu);
	}
	if (d->firmware && d->firmware->acpi)
		check_acpi(c, d->firmware->acpi);
	if (d->launchSecurity)
		check_launch_security(c, d->launchSecurity);
	if (d->features)
		check_hyperv(c, d->features);
}
