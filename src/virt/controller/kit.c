#include "virt/controller/kit.h"

#include "api/meta.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/try.h"
#include "virt/names.h"

void kit_suffix(const char *text, char out[6])
{
	static const char alphabet[] = "bcdfghjklmnpqrstvwxz2456789";
	uint64_t h = str_hash(text ? text : "", text ? strlen(text) : 0);

	for (int i = 0; i < 5; i++, h /= sizeof(alphabet) - 1)
		out[i] = alphabet[h % (sizeof(alphabet) - 1)];
	out[5] = '\0';
}

enum rc kit_fail(struct err *err, enum rc rc, const char *what)
{
	if (!rc || (err && err->rc == rc))
		return rc;
	return err_set(err, rc, "%s: %s", what, rc == RC_NOMEM ? "out of memory" : rc_name(rc));
}

enum rc kit_stamp(char **field, usec_t now)
{
	char text[32];

	time_rfc3339(now, text);
	return api_set_str(field, text);
}

usec_t kit_age(usec_t now, const char *stamp)
{
	usec_t t;

	if (!stamp || time_parse(stamp, &t, NULL))
		return USEC_INFINITY;
	return t < now ? now - t : 0;
}

usec_t kit_window_left(usec_t now, const char *stamp, usec_t window)
{
	usec_t age = kit_age(now, stamp);

	return age < window ? window - age : 0;
}

usec_t kit_coalesce_left(usec_t now, const char *stamp)
{
	return kit_window_left(now, stamp, KIT_COALESCE);
}

const KubeVirt *kit_kubevirt(const struct view *v)
{
	const KubeVirt *kv = view_get(v, &api_kind_KubeVirt, KUBEVIRT_NS, KUBEVIRT_NAME);
	struct kiter it;

	if (kv)
		return kv;
	view_list(v, &api_kind_KubeVirt, NULL, &it);
	return view_next(&it);
}

const KubeVirtConfiguration *kit_config(const struct view *v)
{
	const KubeVirt *kv = kit_kubevirt(v);

	return kv ? kv->spec.configuration : NULL;
}

static bool is_listed(char *const *list, size_t n, const char *text)
{
	for (size_t i = 0; i < n; i++)
		if (str_eq(list[i], text))
			return true;
	return false;
}

bool kit_gate_is_on(const KubeVirtConfiguration *cfg, const char *gate)
{
	/* Of the gates that Ferry's rules ask for, these are on by default (Beta). */
	static const char *const beta[] = {"NodeRestriction", "DeclarativeHotplugVolumes",
					   "RebootPolicy"};
	const DeveloperConfiguration *d = cfg ? cfg->developerConfiguration : NULL;

	if (d && is_listed(d->disabledFeatureGates, d->n_disabledFeatureGates, gate))
		return false;
	if (d && is_listed(d->featureGates, d->n_featureGates, gate))
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(beta); i++)
		if (str_eq(gate, beta[i]))
			return true;
	return false;
}

const FerryConfigSpec *kit_ferry_config(const struct view *v)
{
	const FerryConfig *cfg = view_get(v, &api_kind_FerryConfig, NULL, "ferry");

	return cfg ? &cfg->spec : NULL;
}

bool kit_vmi_is_final(const VirtualMachineInstance *vmi)
{
	return str_eq(vmi->status.phase, "Succeeded") || str_eq(vmi->status.phase, "Failed");
}

bool kit_vmim_is_final(const VirtualMachineInstanceMigration *m)
{
	return str_eq(m->status.phase, "Succeeded") || str_eq(m->status.phase, "Failed");
}

bool kit_pod_is_final(const Pod *pod)
{
	return str_eq(pod->status.phase, "Succeeded") || str_eq(pod->status.phase, "Failed");
}

bool kit_pod_containers_ready(const Pod *pod)
{
	if (API_COND_IS(&pod->status, PodCondition, "ContainersReady", "True"))
		return true;
	if (!pod->status.n_containerStatuses)
		return false;
	for (size_t i = 0; i < pod->status.n_containerStatuses; i++)
		if (!API_GET(&pod->status.containerStatuses[i], ready, false))
			return false;
	return true;
}

bool kit_vmi_had_phase(const VirtualMachineInstance *vmi, const char *phase)
{
	for (size_t i = 0; i < vmi->status.n_phaseTransitionTimestamps; i++)
		if (str_eq(vmi->status.phaseTransitionTimestamps[i].phase, phase))
			return true;
	return false;
}

enum rc kit_vmi_phase(VirtualMachineInstance *vmi, const char *phase, usec_t now)
{
	VirtualMachineInstanceStatus *st = &vmi->status;

	if (!kit_vmi_had_phase(vmi, phase)) {
		VirtualMachineInstancePhaseTransitionTimestamp *t =
			api_append(&st->phaseTransitionTimestamps, &st->n_phaseTransitionTimestamps,
				   sizeof(*t));
		if (!t)
			return RC_NOMEM;
		TRY(api_set_str(&t->phase, phase));
		TRY(kit_stamp(&t->phaseTransitionTimestamp, now));
	}
	return api_set_str(&st->phase, phase);
}

const char *kit_volume_claim(const Volume *vol)
{
	if (vol->persistentVolumeClaim)
		return vol->persistentVolumeClaim->claimName;
	if (vol->dataVolume)
		return vol->dataVolume->name;
	return NULL;
}
