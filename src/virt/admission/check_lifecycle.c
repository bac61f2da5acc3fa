#include <string.h>

#include "base/str.h"
#include "json/json.h"
#include "virt/admission/admission_int.h"

/* Firmware, scheduling and life-cycle: rules 13, 14, 17-22 of KubeVirt's VMI webhook. */

static void check_kernel_boot(struct check *c, const KernelBoot *k)
{
	const KernelBootContainer *box = k->container;
	const char *path = at(c, "domain.firmware.kernelBoot.container");

	if (!box) {
		if (!str_is_empty(k->kernelArgs))
			fe_cause(c->fe, REQUIRED, at(c, "domain.firmware.kernelBoot.kernelArgs"),
				 "kernel arguments cannot be provided without an external kernel");
		return;
	}
	if (str_is_empty(box->image))
		fe_cause(c->fe, REQUIRED, path, "%s must be defined with an image", path);
	if (str_is_empty(box->kernelPath) && str_is_empty(box->initrdPath))
		fe_cause(c->fe, REQUIRED, path,
			 "%s must be defined with at least one of the following: kernelPath, "
			 "initrdPath",
			 path);
	if (!str_is_empty(k->kernelArgs) && str_is_empty(box->kernelPath))
		fe_cause(c->fe, REQUIRED, at(c, "domain.firmware.kernelBoot.kernelArgs"),
			 "kernel arguments cannot be provided without an external kernel");
}

static void check_bootloader(struct check *c, const Bootloader *b)
{
	const Features *f = c->spec->domain.features;
	bool has_smm = f && f->smm && API_GET(f->smm, enabled, true);
	const char *path = at(c, "domain.firmware.bootloader");

	if (b->bios && b->efi)
		fe_cause(c->fe, INVALID, path,
			 "%s has both EFI and BIOS configured, but they are mutually exclusive.",
			 path);
	if (b->efi && API_GET(b->efi, secureBoot, true) && !has_smm)
		fe_cause(c->fe, INVALID, at(c, "domain"),
			 "%s has EFI SecureBoot enabled. SecureBoot requires SMM, which is "
			 "currently disabled.",
			 at(c, "domain"));
}

/* What QEMU is given as it is: the launcher's limits, told before the VM starts. */
enum { SMBIOS_MAX = 256, KERNEL_ARGS_MAX = 2048 };

static void check_plain_text(struct check *c, const char *text, size_t max, const char *path)
{
	const char *s = text ? text : "";

	if (strlen(s) > max)
		fe_cause(c->fe, INVALID, path, "%s must be at most %zu bytes long", path, max);
	for (; *s; s++)
		if ((unsigned char)*s < 0x20 || *s == 0x7f) {
			fe_cause(c->fe, INVALID, path, "%s must not have control characters", path);
			return;
		}
}

static void check_smbios(struct check *c)
{
	const Firmware *f = c->spec->domain.firmware;
	const Chassis *k = c->spec->domain.chassis;

	if (f) /* its length is the schema's */
		check_plain_text(c, f->serial, SIZE_MAX, at(c, "domain.firmware.serial"));
	if (!k)
		return;
	check_plain_text(c, k->manufacturer, SMBIOS_MAX, at(c, "domain.chassis.manufacturer"));
	check_plain_text(c, k->version, SMBIOS_MAX, at(c, "domain.chassis.version"));
	check_plain_text(c, k->serial, SMBIOS_MAX, at(c, "domain.chassis.serial"));
	check_plain_text(c, k->asset, SMBIOS_MAX, at(c, "domain.chassis.asset"));
	check_plain_text(c, k->sku, SMBIOS_MAX, at(c, "domain.chassis.sku"));
}

void check_firmware(struct check *c)
{
	const Firmware *f = c->spec->domain.firmware;

	check_smbios(c);
	if (f && f->kernelBoot)
		check_plain_text(c, f->kernelBoot->kernelArgs, KERNEL_ARGS_MAX,
				 at(c, "domain.firmware.kernelBoot.kernelArgs"));

	if (f && f->bootloader)
		check_bootloader(c, f->bootloader);
	if (f && f->kernelBoot)
		check_kernel_boot(c, f->kernelBoot);
}

static void check_strategies(struct check *c)
{
	static const char *const evict[] = {"None", "LiveMigrate", "LiveMigrateIfPossible",
					    "External", NULL};
	const VirtualMachineInstanceSpec *s = c->spec;

	if (!str_is_empty(s->evictionStrategy) && !is_one_of(s->evictionStrategy, evict))
		fe_cause(c->fe, INVALID, at(c, "evictionStrategy"),
			 "%s is set with an unrecognized option: %s", at(c, "evictionStrategy"),
			 s->evictionStrategy);
	if (s->startStrategy && !str_eq(s->startStrategy, "Paused"))
		fe_cause(c->fe, INVALID, at(c, "startStrategy"),
			 "%s is set with an unrecognized option: %s", at(c, "startStrategy"),
			 s->startStrategy);
	else if (s->startStrategy && s->livenessProbe)
		fe_cause(c->fe, INVALID, at(c, "startStrategy"),
			 "either %s or %s should be provided.Pausing VMI with LivenessProbe is not "
			 "supported",
			 at(c, "startStrategy"), at(c, "livenessProbe"));
}

static void check_names(struct check *c)
{
	const VirtualMachineInstanceSpec *s = c->spec;

	if (!str_is_empty(s->hostname) && !str_is_dns_label(s->hostname))
		fe_cause(c->fe, INVALID, at(c, "hostname"),
			 "%s does not conform to the kubernetes DNS_LABEL rules : "
			 "a lowercase RFC 1123 label must consist of lower case alphanumeric "
			 "characters or '-', "
			 "and must start and end with an alphanumeric character (e.g. 'my-name',  "
			 "or '123-abc', "
			 "regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
			 at(c, "hostname"));
	if (!str_is_empty(s->subdomain) && !str_is_dns_subdomain(s->subdomain))
		fe_cause(c->fe, INVALID, at(c, "subdomain"),
			 "%s does not conform to the kubernetes DNS_SUBDOMAIN rules : "
			 "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric "
			 "characters, "
			 "'-' or '.', and must start and end with an alphanumeric character (e.g. "
			 "'example.com', "
			 "regex used for validation is "
			 "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
			 at(c, "subdomain"));
}

static void check_dns(struct check *c)
{
	static const char *const policies[] = {"ClusterFirstWithHostNet", "ClusterFirst", "Default",
					       "None", NULL};
	const VirtualMachineInstanceSpec *s = c->spec;
	const PodDNSConfig *d = s->dnsConfig;
	size_t chars = 0;

	if (!str_is_empty(s->dnsPolicy) && !is_one_of(s->dnsPolicy, policies))
		fe_cause(c->fe, INVALID, at(c, "dnsPolicy"),
			 "DNSPolicy: %s is not supported, valid values: [ClusterFirstWithHostNet "
			 "ClusterFirst "
			 "Default None ]",
			 s->dnsPolicy);
	if (str_eq(s->dnsPolicy, "None") && (!d || d->n_nameservers == 0))
		fe_cause(c->fe, REQUIRED, at(c, "dnsConfig"),
			 "must provide `dnsConfig` when `dnsPolicy` is None");
	if (!d)
		return;
	if (d->n_nameservers > 3)
		fe_cause(c->fe, INVALID, at(c, "dnsConfig.nameservers"),
			 "must not have more than 3 nameservers: %u", d->n_nameservers);
	if (d->n_searches > 6)
		fe_cause(c->fe, INVALID, at(c, "dnsConfig.searches"),
			 "must not have more than 6 search paths");
	for (size_t i = 0; i < d->n_searches; i++)
		chars += strlen(d->searches[i]) + (i ? 1 : 0);
	if (chars > 256)
		fe_cause(c->fe, INVALID, at(c, "dnsConfig.searches"),
			 "must not have more than 256 characters (including spaces) in the search "
			 "list");
}

static bool has_pod_network(const VirtualMachineInstanceSpec *s)
{
	for (size_t i = 0; i < s->n_networks; i++)
		if (s->networks[i].pod)
			return true;
	return false;
}

static void check_probe(struct check *c, const Probe *p, const char *name)
{
	const char *path = at(c, "%s", name);
	int n;

	if (!p)
		return;
	n = !!p->exec + !!p->guestAgentPing + !!p->httpGet + !!p->tcpSocket;
	if (n > 1)
		fe_cause(c->fe, INVALID, path, "%s must have exactly one probe type set", path);
	else if (n == 0)
		fe_cause(c->fe, INVALID, path,
			 "either %s.tcpSocket, %s.exec or %s.httpGet must be set if a %s is "
			 "specified",
			 path, path, path, path);
	if (!has_pod_network(c->spec) && p->httpGet)
		fe_cause(c->fe, INVALID, at(c, "%s.httpGet", name),
			 "%s.httpGet is only allowed if the Pod Network is attached", path);
	if (!has_pod_network(c->spec) && p->tcpSocket)
		fe_cause(c->fe, INVALID, at(c, "%s.tcpSocket", name),
			 "%s.tcpSocket is only allowed if the Pod Network is attached", path);
}

void check_lifecycle(struct check *c)
{
	const char *arch = c->spec->architecture;

	check_strategies(c);
	check_names(c);
	check_dns(c);
	check_probe(c, c->spec->readinessProbe, "readinessProbe");
	check_probe(c, c->spec->livenessProbe, "livenessProbe");
	/* KubeVirt also knows arm64 and s390x; Ferry's nodes are amd64. */
	if (!str_is_empty(arch) && !str_eq(arch, "amd64"))
		fe_cause(c->fe, INVALID, at(c, "architecture"), "unsupported architecture: %s",
			 arch);
}
