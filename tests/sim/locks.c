#include <string.h>

#include "api/gen/api_types.h"
#include "base/str.h"
#include "kube/kcache.h"
#include "kube/kobj.h"
#include "sim/sim.h"
#include "virt/node/pvdata.h"
#include "virt/node/vollock.h"

/* Theory of operation
 *
 * A disk is locked as long as some QEMU has it: from its start to its end, or to the release in a move; at the target of
 * a move from the permission on.  A guest that starts does not look for the lock here, as QEMU does: that only one copy runs
 * must follow from what is asked and written.  The storage says the truth, or nothing; except when a run is to show that
 * the checker notices (--lying-lock).
 */

static bool has_lock(const struct guest *g)
{
	return g->state == G_BOOTING || g->state == G_RUNNING || g->state == G_MOVING ||
	       g->state == G_STANDS;
}

/* The volume whose disk this is; NULL: it is gone. */
static const PersistentVolume *volume_at(const struct sim *s, const char *path)
{
	struct kiter it;

	kcache_list(checker_truth(s->checker), &api_kind_PersistentVolume, NULL, &it);
	for (const struct kobj *o; (o = kiter_next(&it));) {
		const PersistentVolume *pv = kobj_typed(o);
		const char *folder;
		bool is_local;

		if (!pvdata_place(pv, &is_local, &folder, NULL) && !is_local &&
		    str_has_prefix(path, folder) && path[strlen(folder)] == '/')
			return pv;
	}
	return NULL;
}

/* Claims are named after their VM: "vm-1-data". */
static bool is_of(const PersistentVolume *pv, const struct guest *g)
{
	const char *claim = pv->spec.claimRef ? pv->spec.claimRef->name : NULL;

	return claim && g->vmi_name && str_has_prefix(claim, g->vmi_name) &&
	       str_eq(claim + strlen(g->vmi_name), "-data");
}

static bool is_locked(const struct sim *s, const PersistentVolume *pv)
{
	for (unsigned i = 0; i < SIM_NODES; i++)
		LIST_FOREACH(l, machine_guests(s->machines[i])) {
			const struct guest *g = LIST_ENTRY(l, struct guest, link);

			if (is_of(pv, g) && has_lock(g))
				return true;
		}
	return false;
}

enum rc sim_ask_lock(const struct vollock *d, bool takes, bool *is_held, void *arg, struct err *err)
{
	struct sim *s = arg;
	const PersistentVolume *pv = volume_at(s, d->path);

	if (!sim_is_calm(s) && sim_chance(s, 50))
		return err_set(err, RC_IO, "the storage is away");
	if (!pv)
		return err_set(err, RC_NOT_FOUND, "there is no '%s'", d->path);
	*is_held = is_locked(s, pv) && !(takes && s->opts.lying_lock);
	s->result->taken += takes && !*is_held;
	sim_trace(s, "storage: '%s' is %s: %s", d->path, takes ? "to be locked" : "looked at",
		  *is_held ? "held" : "free");
	return RC_OK;
}
