#include "virt/migration/host_disks.h"

#include <string.h>

#include "api/api.h"
#include "base/str.h"
#include "base/try.h"

bool host_disk_is_within(const char *inner, const char *outer)
{
	size_t n = strlen(outer);

	return strncmp(inner, outer, n) == 0 && (inner[n] == '/' || inner[n] == '\0');
}

const char *host_disk_folder(const FerryConfigSpec *cfg, const char *path)
{
	const char *best = NULL;

	if (!cfg || !str_is_plain_path(path))
		return NULL;
	for (size_t i = 0; i < cfg->n_hostDiskPaths; i++) {
		const char *folder = cfg->hostDiskPaths[i];

		if (!str_is_plain_path(folder) || !host_disk_is_within(path, folder) ||
		    str_eq(path, folder))
			continue;
		if (!best || strlen(folder) > strlen(best))
			best = folder;
	}
	return best;
}

enum rc host_disk_place(const FerryConfigSpec *cfg, const char *path, const char *state,
			const char *shared, const char **folder, struct err *err)
{
	const char *in = host_disk_folder(cfg, path);

	if (!in)
		return err_set(err, RC_FORBIDDEN,
			       "file '%s' is not below a folder that " HOST_DISKS_SETTING " allows",
			       path);
	/* Disks of other VMs, keys. */
	if (host_disk_is_within(state, in) || (shared && host_disk_is_within(shared, in)))
		return err_set(
			err, RC_FORBIDDEN,
			"folder '%s' has the files of Ferry itself in it, whatever " HOST_DISKS_SETTING
			" says",
			in);
	*folder = in;
	return RC_OK;
}

bool host_disk_is_cdrom(const VirtualMachineInstanceSpec *spec, const char *volume)
{
	const Devices *d = &spec->domain.devices;
	bool found = false;

	for (size_t i = 0; i < d->n_disks; i++) {
		if (!str_eq(d->disks[i].name, volume))
			continue;
		if (!d->disks[i].cdrom || !API_GET(d->disks[i].cdrom, readonly, true))
			return false;
		found = true;
	}
	return found;
}

bool host_disk_is_own(const VirtualMachineInstanceSpec *spec, const Volume *v)
{
	return v->hostDisk && !API_GET(v->hostDisk, shared, false) &&
	       !host_disk_is_cdrom(spec, v->name);
}

const char *host_disk_node(const FerryHostDisk *list, size_t n, const char *path)
{
	for (size_t i = 0; i < n; i++)
		if (str_eq(list[i].path, path))
			return list[i].nodeName;
	return NULL;
}

enum rc host_disk_note(FerryHostDisk **list, uint32_t *n, const char *path, const char *node)
{
	for (size_t i = 0; i < *n; i++)
		if (str_eq((*list)[i].path, path))
			return api_set_str(&(*list)[i].nodeName, node);
	FerryHostDisk *d = api_append(list, n, sizeof(*d));

	if (!d)
		return RC_NOMEM;
	TRY(api_set_str(&d->path, path));
	return api_set_str(&d->nodeName, node);
}

bool host_disks_are_told(const VirtualMachineInstance *vmi, const char *node)
{
	const FerryVMIStatus *fs = vmi->status.ferry;

	for (size_t i = 0; i < vmi->spec.n_volumes; i++) {
		const Volume *v = &vmi->spec.volumes[i];

		if (host_disk_is_own(&vmi->spec, v) &&
		    !str_eq(host_disk_node(fs ? fs->hostDisks : NULL, fs ? fs->n_hostDisks : 0,
					   v->hostDisk->path),
			    node))
			return false;
	}
	return true;
}

static bool is_final(const VirtualMachineInstance *vmi)
{
	return str_eq(vmi->status.phase, "Succeeded") || str_eq(vmi->status.phase, "Failed");
}

enum host_disk_fate host_disk_fate(const VirtualMachineInstance *vmi, const char *path,
				   const char *node, const char *pod)
{
	const VirtualMachineInstanceMigrationState *s = vmi->status.migrationState;
	const FerryVMIStatus *fs = vmi->status.ferry;
	const char *at = fs ? host_disk_node(fs->hostDisks, fs->n_hostDisks, path) : NULL;
	bool is_over = s && API_GET(s, completed, false);

	if (!at || str_eq(at, node)) {
		bool leaves = s && str_eq(s->sourcePod, pod) && s->startTimestamp;

		return leaves && !is_over && !API_GET(s, failed, false) && !is_final(vmi)
			       ? HOST_DISK_UNDECIDED
			       : HOST_DISK_STAYS;
	}
	/* A move that was lost: the guest may have run at its target, and both copies are for people to decide on. */
	bool is_lost = s && !is_over && (str_eq(s->sourcePod, pod) || str_eq(s->targetPod, pod));

	return is_lost ? HOST_DISK_STAYS : HOST_DISK_MOVED;
}
