#include "virt/migration/local_disks.h"

#include <string.h>

#include "api/api.h"
#include "api/meta.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "base/try.h"
#include "virt/names.h"

enum { LEFT_MAX = 64 * 1024 };

bool local_disks_may_move(const FerryConfigSpec *cfg, const MigrationPolicy *policy)
{
	const FerryMigrationPolicy *own = policy ? policy->spec.ferry : NULL;

	if (own && own->has_localDiskMoves)
		return own->localDiskMoves;
	return cfg && API_GET(cfg, localDiskMoves, false);
}

const char *local_disk_claim(const Volume *v)
{
	return v->persistentVolumeClaim ? v->persistentVolumeClaim->claimName
	       : v->dataVolume		? v->dataVolume->name
					: NULL;
}

static bool is_written(const Disk *d)
{
	return !d->cdrom && !d->lun && !(d->disk && API_GET(d->disk, readonly, false)) &&
	       !API_GET(d, shareable, false);
}

bool local_disk_can_move(const VirtualMachineInstance *vmi, const Volume *v)
{
	const Devices *d = &vmi->spec.domain.devices;
	size_t n = 0;

	if (v->persistentVolumeClaim && API_GET(v->persistentVolumeClaim, readOnly, false))
		return false;
	for (size_t i = 0; i < d->n_disks; i++) {
		if (!str_eq(d->disks[i].name, v->name))
			continue;
		if (!is_written(&d->disks[i]))
			return false;
		n++;
	}
	return n == 1;
}

bool local_disk_is_local(const PersistentVolume *pv)
{
	return pv->spec.csi && str_eq(pv->spec.csi->driver, PV_DRIVER_LOCAL);
}

/* The one value of "kubernetes.io/hostname In [node]", which volumes of the class have; NULL: another affinity. */
static char **holder(const PersistentVolume *pv)
{
	const NodeSelector *ns = pv->spec.nodeAffinity ? pv->spec.nodeAffinity->required : NULL;
	const NodeSelectorTerm *t =
		ns && ns->n_nodeSelectorTerms == 1 ? &ns->nodeSelectorTerms[0] : NULL;
	const NodeSelectorRequirement *r =
		t && t->n_matchExpressions == 1 ? &t->matchExpressions[0] : NULL;

	return r && str_eq(r->key, LABEL_HOSTNAME) && str_eq(r->operator, "In") && r->n_values == 1
		       ? &r->values[0]
		       : NULL;
}

const char *local_disk_node(const PersistentVolume *pv)
{
	char **at = local_disk_is_local(pv) ? holder(pv) : NULL;

	return at ? *at : NULL;
}

char *local_disk_folder(const PersistentVolume *pv, const char *migration_uid)
{
	return mem_printf("%s.%s", pv->metadata.name, migration_uid);
}

bool local_disk_has_moved(const PersistentVolume *pv)
{
	const char *folder =
		pv->spec.csi ? api_map_get(&pv->spec.csi->volumeAttributes, "path") : NULL;
	size_t n = strlen(pv->metadata.name);

	return folder && strncmp(folder, pv->metadata.name, n) == 0 && folder[n] == '.';
}

static enum rc note_copy(PersistentVolume *pv, const char *annotation, const char *node)
{
	const char *was = api_annotation(&pv->metadata, annotation);
	const char *path = api_map_get(&pv->spec.csi->volumeAttributes, "path");
	CLEANUP(mem_freep)
	char *text = mem_printf("%s%s%s/%s", was ? was : "", was ? " " : "", node,
				path ? path : pv->metadata.name);

	return text ? api_map_set(&pv->metadata.annotations, annotation, text) : RC_NOMEM;
}

enum rc local_disk_take(PersistentVolume *pv, const char *from, const char *to,
			const char *migration_uid, bool keeps_old, struct err *err)
{
	CLEANUP(mem_freep) char *folder = local_disk_folder(pv, migration_uid);
	char **at = holder(pv);

	if (!folder)
		return err_set(err, RC_NOMEM, "out of memory");
	if (!local_disk_is_local(pv) || !at || !str_eq(*at, from))
		return err_set(err, RC_INVALID, "PersistentVolume '%s' does not lie on node '%s'",
			       pv->metadata.name, from);
	enum rc rc = note_copy(pv, keeps_old ? ANN_KEPT_ON : ANN_LEFT_BEHIND, from);

	if (!rc)
		rc = api_map_set(&pv->spec.csi->volumeAttributes, "path", folder);
	if (!rc)
		rc = api_set_str(at, to);
	return rc ? err_set(err, rc, "out of memory") : RC_OK;
}

/* "node/folder" of the list, split: false at its end. */
static bool next_left(struct str *list, struct str *node, struct str *folder)
{
	while (list->p) {
		*folder = str_split(list, ' ');
		*node = str_split(folder, '/');
		if (node->n && folder->p && folder->n)
			return true;
	}
	return false;
}

char *local_disk_left_on(const PersistentVolume *pv, const char *node)
{
	const char *text = api_annotation(&pv->metadata, ANN_LEFT_BEHIND);
	struct str list = text ? str_of(text) : (struct str){0}, at, folder;

	while (next_left(&list, &at, &folder))
		if (str_view_eq(at, node))
			return mem_strndup(folder.p, folder.n);
	return NULL;
}

enum rc local_disk_forget(PersistentVolume *pv, const char *node, const char *folder)
{
	const char *text = api_annotation(&pv->metadata, ANN_LEFT_BEHIND);
	struct str list = text ? str_of(text) : (struct str){0}, at, f;
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(LEFT_MAX);

	while (next_left(&list, &at, &f))
		if (!str_view_eq(at, node) || !str_view_eq(f, folder))
			sbuf_addf(&b, "%s%.*s/%.*s", b.n ? " " : "", (int)at.n, at.p, (int)f.n,
				  f.p);
	TRY(sbuf_rc(&b));
	if (!b.n) {
		(void)api_map_del(&pv->metadata.annotations, ANN_LEFT_BEHIND);
		return RC_OK;
	}
	return api_map_set(&pv->metadata.annotations, ANN_LEFT_BEHIND, sbuf_str(&b));
}
