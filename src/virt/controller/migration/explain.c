#include "virt/controller/migration/explain.h"

#include "api/api.h"
#include "base/mem.h"
#include "base/try.h"
#include "virt/controller/kit.h"
#include "virt/controller/migration/mig_int.h"

const struct api_kind *const mig_explain_reads[] = {
	&api_kind_Node,
	&api_kind_Namespace,
	&api_kind_Pod,
	&api_kind_PersistentVolumeClaim,
	&api_kind_PersistentVolume,
	&api_kind_StorageClass,
	&api_kind_KubeVirt,
	&api_kind_FerryConfig,
	&api_kind_MigrationPolicy,
	NULL,
};

static enum rc explain(struct mig *m)
{
	CLEANUP(Pod_freep)
	Pod *pod = NULL;
	struct mig_placement place;

	TRY(mig_set_up(m));
	if (!m->vmi)
		return RC_OK;
	if (!mig_vmi_is_ready(m))
		return mig_show_stage(m, "WaitingForVirtualMachine");
	TRY(mig_target_pod(m, &pod));
	TRY(mig_place(m, pod, &place));
	if (!place.is_hopeless)
		return RC_OK;
	TRY(api_set_str(&m->next->status.ferry->reason, place.reason));
	return api_set_str(&m->next->status.ferry->message, place.message);
}

enum rc mig_explain(const struct view *v, VirtualMachineInstanceMigration *vmim, struct err *err)
{
	/* Nothing steps here, so what is stored and what is wished for may be the same object. */
	struct mig m = {.v = v, .old = vmim, .next = vmim, .err = err};
	enum rc rc = explain(&m);

	mem_free(m.target_name);
	return kit_fail(err, rc, "cannot tell where the virtual machine could go");
}
