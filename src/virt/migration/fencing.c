#include "virt/migration/fencing.h"

#include "api/api.h"
#include "base/file.h"
#include "base/str.h"
#include "virt/migration/host_disks.h"
#include "virt/migration/local_disks.h"
#include "virt/names.h"

/* Clocks agree within it; API times have whole seconds. */
#define MARGIN (5 * USEC_PER_SEC)

bool fencing_condemns(const NodeFence *f, const ObjectMeta *pod)
{
	usec_t proven, made;

	if (!f || !str_eq(f->status.state, FenceState_Proven) || !f->status.endTime ||
	    !pod->creationTimestamp || time_parse(f->status.endTime, &proven, NULL) ||
	    time_parse(pod->creationTimestamp, &made, NULL))
		return false;
	return made <= proven + MARGIN;
}

int64_t fencing_silence_seconds(const FerryConfigSpec *cfg)
{
	if (cfg && str_eq(cfg->fencing, FencingPolicy_Agent) && cfg->fenceAgent)
		return API_GET(cfg->fenceAgent, silenceSeconds, 40);
	if (cfg && str_eq(cfg->fencing, FencingPolicy_StorageLock))
		return cfg->storageLock ? API_GET(cfg->storageLock, silenceSeconds, 40) : 40;
	return 0;
}

static bool is_written(const VirtualMachineInstance *vmi, const char *volume)
{
	const Devices *dev = &vmi->spec.domain.devices;

	for (size_t i = 0; i < dev->n_disks; i++) {
		const Disk *d = &dev->disks[i];

		if (str_eq(d->name, volume) && !d->cdrom &&
		    !(d->disk && API_GET(d->disk, readonly, false)) &&
		    !(d->lun && API_GET(d->lun, readonly, false)))
			return true;
	}
	return false;
}

enum fencing_disk fencing_disk_of(const VirtualMachineInstance *vmi, const Volume *v,
				  const PersistentVolume *pv)
{
	const PersistentVolumeClaimVolumeSource *claim = v->persistentVolumeClaim;

	if (!is_written(vmi, v->name) || (claim && API_GET(claim, readOnly, false)))
		return FENCING_DISK_SCRATCH;
	if (v->hostDisk)
		return host_disk_is_own(&vmi->spec, v) ? FENCING_DISK_OWN : FENCING_DISK_SHARED;
	if (!local_disk_claim(v))
		return FENCING_DISK_SCRATCH;
	if (!pv || !pv->spec.csi)
		return FENCING_DISK_UNKNOWN;
	if (local_disk_is_local(pv))
		return FENCING_DISK_OWN;
	return str_eq(pv->spec.csi->driver, PV_DRIVER_SHARED) ? FENCING_DISK_SHARED
							      : FENCING_DISK_UNKNOWN;
}
