#include "virt/migration/host_disks.h"

#include <string.h>

#include "base/str.h"

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
