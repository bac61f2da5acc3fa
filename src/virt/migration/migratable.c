#include "virt/migration/migratable.h"

#include <stdarg.h>
#include <stdio.h>

#include "api/api.h"
#include "api/meta.h"
#include "base/str.h"
#include "base/try.h"
#include "json/json.h"
#include "virt/migration/compat.h"
#include "virt/migration/host_disks.h"
#include "virt/migration/local_disks.h"
#include "virt/names.h"

struct finding {
	const char *reason; /* NULL: passes */
	char message[768];
};

static void PRINTF_LIKE(3, 4) find(struct finding *f, const char *reason, const char *fmt, ...)
{
	va_list ap;

	f->reason = reason;
	va_start(ap, fmt);
	vsnprintf(f->message, sizeof(f->message), fmt, ap);
	va_end(ap);
}

/* ---- network ---- */

static bool plugin_migrates(const struct migratable_in *in, const char *plugin)
{
	const NetworkConfiguration *nc = in->cfg ? in->cfg->network : NULL;
	const struct json *p = nc ? js_get(nc->binding, plugin) : NULL;

	return p && js_is_object(js_get(p, "migration"));
}

static bool interface_migrates(const struct migratable_in *in, const Interface *i)
{
	if (i->masquerade || i->passtBinding)
		return true;
	if (i->bridge)
		return api_map_has(&in->vmi->metadata.annotations, ANN_ALLOW_POD_BRIDGE);
	return i->binding && i->binding->name && plugin_migrates(in, i->binding->name);
}

static void check_network(const struct migratable_in *in, struct finding *f)
{
	const VirtualMachineInstanceSpec *s = &in->vmi->spec;

	for (size_t n = 0; n < s->n_networks; n++) {
		if (!s->networks[n].pod)
			continue;
		for (size_t i = 0; i < s->domain.devices.n_interfaces; i++) {
			const Interface *iface = &s->domain.devices.interfaces[i];

			if (str_eq(iface->name, s->networks[n].name) &&
			    !interface_migrates(in, iface))
				find(f, "InterfaceNotLiveMigratable",
				     "cannot migrate VMI which does not use masquerade or a "
				     "migratable "
				     "plugin to connect to the pod network");
		}
	}
}

/* ---- CPU, devices, features ---- */

static void check_cpu(const struct migratable_in *in, struct finding *f)
{
	const CPU *cpu = in->vmi->spec.domain.cpu;

	if (cpu && str_eq(cpu->model, "host-model") && !in->has_host_model)
		find(f, "CPUModeLiveMigratable",
		     "the node \"%s\" does not allow migration with host-model",
		     in->node_name ? in->node_name : "");
}

static bool has_gate(const struct migratable_in *in, const char *gate)
{
	const DeveloperConfiguration *dc = in->cfg ? in->cfg->developerConfiguration : NULL;

	for (size_t i = 0; dc && i < dc->n_featureGates; i++)
		if (str_eq(dc->featureGates[i], gate))
			return true;
	return false;
}

static void check_devices(const struct migratable_in *in, struct finding *f)
{
	const Devices *d = &in->vmi->spec.domain.devices;

	if (d->n_hostDevices)
		find(f, "HostDeviceNotLiveMigratable",
		     "VMI specifies non-migratable generic PCI host device");
	else if (d->n_gpus > 1)
		find(f, "HostDeviceNotLiveMigratable", "VMI specifies too many GPUs");
	else if (d->n_gpus && !has_gate(in, "VGPULiveMigration"))
		find(f, "HostDeviceNotLiveMigratable",
		     "VMI specifies a GPU but feature gate VGPULiveMigration is not enabled");
	else if (d->n_gpus)
		find(f, "HostDeviceNotLiveMigratable", "VMI specifies non-migratable GPU device");
}

static void check_security(const struct migratable_in *in, struct finding *f)
{
	const LaunchSecurity *ls = in->vmi->spec.domain.launchSecurity;

	if (!ls)
		return;
	if (ls->sev || ls->snp)
		find(f, "SEVNotLiveMigratable", "VMI uses SEV");
	else if (ls->tdx)
		find(f, "TDXNotLiveMigratable", "VMI uses TDX");
	else if (str_eq(in->vmi->spec.architecture, "s390x"))
		find(f, "SecureExecutionNotLiveMigratable", "VMI uses Secure Execution");
}

static bool is_on(const FeatureState *s)
{
	return s && API_GET(s, enabled, true);
}

static void check_tsc(const struct migratable_in *in, struct finding *f)
{
	const Features *ft = in->vmi->spec.domain.features;
	const TopologyHints *hints = in->vmi->status.topologyHints;

	if (ft && ft->hyperv && is_on(ft->hyperv->reenlightenment) &&
	    !(hints && hints->has_tscFrequency))
		find(f, "NoTSCFrequencyNotLiveMigratable",
		     "HyperV Reenlightenment VMIs cannot migrate when TSC Frequency is not exposed "
		     "on the "
		     "cluster: guest timers might be inconsistent");
}

static void check_hyperv_passthrough(const struct migratable_in *in, struct finding *f)
{
	const Features *ft = in->vmi->spec.domain.features;

	if (ft && ft->hypervPassthrough && API_GET(ft->hypervPassthrough, enabled, false))
		find(f, "HypervPassthroughNotLiveMigratable", "VMI uses hyperv passthrough");
}

/* ---- disks ---- */

static bool is_moved_along(const VirtualMachineInstance *vmi, const char *volume)
{
	for (size_t i = 0; i < vmi->status.n_migratedVolumes; i++)
		if (str_eq(vmi->status.migratedVolumes[i].volumeName, volume))
			return true;
	return false;
}

static bool is_shared_folder(const VirtualMachineInstance *vmi, const char *volume)
{
	const Devices *d = &vmi->spec.domain.devices;

	for (size_t i = 0; i < d->n_filesystems; i++)
		if (str_eq(d->filesystems[i].name, volume))
			return true;
	return false;
}

static const PersistentVolumeClaimInfo *claim_info(const VirtualMachineInstance *vmi,
						   const char *volume)
{
	for (size_t i = 0; i < vmi->status.n_volumeStatus; i++)
		if (str_eq(vmi->status.volumeStatus[i].name, volume))
			return vmi->status.volumeStatus[i].persistentVolumeClaimInfo;
	return NULL;
}

static bool is_shared(const PersistentVolumeClaimInfo *info)
{
	for (size_t i = 0; i < info->n_accessModes; i++)
		if (str_eq(info->accessModes[i], "ReadWriteMany"))
			return true;
	return false;
}

static bool is_local(const struct migratable_in *in, const char *volume)
{
	for (size_t i = 0; i < in->n_local_volumes; i++)
		if (str_eq(in->local_volumes[i], volume))
			return true;
	return false;
}

/* What would have to be otherwise for its data to go along; KubeVirt has no such choice. */
static const char *local_hint(const struct migratable_in *in, const Volume *v)
{
	if (!is_local(in, v->name))
		return "";
	if (!local_disk_can_move(in->vmi, v))
		return "; its data lie on this node and cannot go along, because no disk writes "
		       "them, or more than one may";
	return in->moves_local_disks
		       ? ""
		       : "; its data lie on this node, and go along only if " LOCAL_DISKS_SETTING
			 " says so";
}

static bool goes_along(const struct migratable_in *in, const Volume *v)
{
	return in->moves_local_disks && is_local(in, v->name) && local_disk_can_move(in->vmi, v);
}

static void check_claim(const struct migratable_in *in, const Volume *v, struct finding *f)
{
	const PersistentVolumeClaimInfo *info = claim_info(in->vmi, v->name);
	const char *claim = local_disk_claim(v);

	if (!info)
		find(f, "DisksNotLiveMigratable",
		     "cannot migrate VMI: Unable to determine if PVC %s is shared, live migration "
		     "requires "
		     "that all PVCs must be shared (using ReadWriteMany access mode)",
		     claim);
	else if (!is_shared(info))
		find(f, "DisksNotLiveMigratable",
		     "cannot migrate VMI: PVC %s is not shared, live migration requires that all "
		     "PVCs must "
		     "be shared (using ReadWriteMany access mode)%s",
		     claim, local_hint(in, v));
}

/* Also decides whether disks must be copied. */
static void check_disks(const struct migratable_in *in, struct finding *f, bool *must_copy)
{
	const VirtualMachineInstance *vmi = in->vmi;

	*must_copy = false;
	for (size_t i = 0; i < vmi->spec.n_volumes && !f->reason; i++) {
		const Volume *v = &vmi->spec.volumes[i];

		if (is_shared_folder(vmi, v->name) || host_disk_is_cdrom(&vmi->spec, v->name))
			continue;
		if (is_moved_along(vmi, v->name))
			*must_copy = true;
		else if (goes_along(in, v))
			*must_copy = true;
		else if (local_disk_claim(v))
			check_claim(in, v, f);
		else if (v->hostDisk && !API_GET(v->hostDisk, shared, false))
			find(f, "DisksNotLiveMigratable",
			     "cannot migrate VMI with non-shared HostDisk%s", local_hint(in, v));
		else if (!v->hostDisk)
			*must_copy = true;
	}
}

/* ---- other nodes ---- */

/* Beyond KubeVirt: there are other nodes, and none could ever take what this guest has.  Without any other node a
 * VM counts as migratable, as it does there; so does one whose move only lacks an address or a place for its disks. */
static void check_nodes(const struct migratable_in *in, struct finding *f)
{
	const struct compat_summary *s = in->nodes;

	if (s && s->n_others && !s->n_suitable)
		find(f, REASON_NO_NODE_FITS, "no other node can take the guest: %s", s->text);
}

static enum rc set_targets(const struct migratable_in *in, VirtualMachineInstance *vmi, usec_t now)
{
	const struct compat_summary *s = in->nodes;
	const char *reason = s->n_fit ? "NodesFit" : s->n_others ? "NoNodeFits" : "OnlyOneNode";
	char text[800];

	if (s->n_others)
		(void)snprintf(text, sizeof(text), "%zu of %zu other nodes can take the guest%s%s",
			       s->n_fit, s->n_others, *s->text ? ": " : "", s->text);
	else
		(void)snprintf(text, sizeof(text), "there is no other node");
	return API_COND_SET(&vmi->status, VirtualMachineInstanceCondition, now,
			    .type = COND_MIGRATION_TARGETS, .status = s->n_fit ? "True" : "False",
			    .reason = reason, .message = text);
}

/* ---- both conditions ---- */

typedef void (*check_fn)(const struct migratable_in *in, struct finding *f);
static const check_fn checks[] = {check_network,  check_cpu, check_devices,
				  check_security, check_tsc, check_hyperv_passthrough};

void migratable_check(const struct migratable_in *in, struct migratable *out)
{
	struct finding f = {0}, disks = {0};
	bool must_copy;

	check_disks(in, &disks, &must_copy);
	memset(out, 0, sizeof(*out));
	out->method = must_copy ? "BlockMigration" : "LiveMigration";
	for (size_t i = 0; i < ARRAY_SIZE(checks) && !f.reason; i++)
		checks[i](in, &f);
	if (!f.reason)
		f = disks;
	if (!f.reason)
		check_nodes(in, &f);
	out->ok = !f.reason;
	out->reason = f.reason;
	snprintf(out->message, sizeof(out->message), "%s", f.message);
}

static bool uses_reservation(const VirtualMachineInstance *vmi)
{
	const Devices *d = &vmi->spec.domain.devices;

	for (size_t i = 0; i < d->n_disks; i++)
		if (d->disks[i].lun && API_GET(d->disks[i].lun, reservation, false))
			return true;
	return false;
}

static void append(struct migratable *out, const struct finding *f)
{
	size_t n = strlen(out->message);

	snprintf(out->message + n, sizeof(out->message) - n, "%s%s: %s", n ? ", " : "", f->reason,
		 f->message);
}

void migratable_check_storage(const struct migratable_in *in, struct migratable *out)
{
	memset(out, 0, sizeof(*out));
	for (size_t i = 0; i < ARRAY_SIZE(checks); i++) {
		struct finding f = {0};

		checks[i](in, &f);
		if (f.reason)
			append(out, &f);
	}
	if (uses_reservation(in->vmi)) {
		struct finding f = {0};

		find(&f, "PersistentReservationNotLiveMigratable",
		     "VMI uses SCSI persistent reservation");
		append(out, &f);
	}
	out->ok = !out->message[0];
	out->reason = out->ok ? NULL : "NotMigratable";
}

enum rc migratable_apply(const struct migratable_in *in, VirtualMachineInstance *vmi, usec_t now)
{
	struct migratable live, storage;

	migratable_check(in, &live);
	migratable_check_storage(in, &storage);
	TRY(API_COND_SET(&vmi->status, VirtualMachineInstanceCondition, now,
			 .type = "LiveMigratable", .status = live.ok ? "True" : "False",
			 .reason = live.reason, .message = live.ok ? NULL : live.message));
	TRY(API_COND_SET(&vmi->status, VirtualMachineInstanceCondition, now,
			 .type = "StorageLiveMigratable", .status = storage.ok ? "True" : "False",
			 .reason = storage.reason, .message = storage.ok ? NULL : storage.message));
	if (in->nodes)
		TRY(set_targets(in, vmi, now));
	return api_set_str(&vmi->status.migrationMethod, live.method);
}

const char *migratable_event(const VirtualMachineInstance *vmi, const struct migratable *m,
			     char *text, size_t n)
{
	if (m->ok || !str_eq(vmi->spec.evictionStrategy, "LiveMigrate"))
		return NULL;
	snprintf(text, n, "EvictionStrategy is set but vmi is not migratable; %s", m->message);
	return text;
}
