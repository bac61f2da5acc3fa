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

bool host_disk_is_own(const Volume *v)
{
	return v->hostDisk && !API_GET(v->hostDisk, shared, false);
}

const char *host_disk_node(const FerryHostDisk *list, size_t n, const char *path)
{
	for (size_t i = 0; i < n; i++)
		if (str_eq(list[i].path, path))
			return list[i].nodeName;
	return NULL;
}

enum rc host_disk_note(FerryHostDisk **list, size_t *n, const char *path, const char *node)
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

		if (host_disk_is_own(v) &&
		    !str_eq(host_disk_node(fs ? fs->hostDisks : NULL, fs ? fs->n_hostDisks : 0,
					   v->hostDisk->path),
			    node))
			return false;
	}
	return true;
}
