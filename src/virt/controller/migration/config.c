#include "api/api.h"
#include "api/quantity.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/try.h"
#include "virt/controller/kit.h"
#include "virt/controller/migration/mig_int.h"
#include "virt/controller/vmi/resources.h"
#include "virt/migration/policy.h"
#include "virt/migration/progress.h"
#include "virt/names.h"

#define PER_CLUSTER	   5
#define PER_NODE	   2
#define COMPLETION_PER_GIB 150
#define PROGRESS_TIMEOUT   150
#define UTILITY_TIMEOUT	   150
#define MAX_DOWNTIME_MS	   900
#define MAX_PER_GIB	   INT32_MAX /* 68 years: no product of it overflows */

static const MigrationConfiguration *configured(const struct view *v)
{
	const KubeVirtConfiguration *cfg = kit_config(v);

	return cfg ? cfg->migrations : NULL;
}

enum rc mig_network_label(const struct view *v, char **out)
{
	const MigrationConfiguration *mc = configured(v);

	*out = NULL;
	if (!mc || str_is_empty(mc->network))
		return RC_OK;
	*out = mem_printf(LABEL_MIGRATION_NETWORK "%s", mc->network);
	return *out ? RC_OK : RC_NOMEM;
}

int64_t mig_limit_cluster(const struct view *v)
{
	const MigrationConfiguration *mc = configured(v);

	return mc ? MAX(API_GET(mc, parallelMigrationsPerCluster, PER_CLUSTER), 1) : PER_CLUSTER;
}

int64_t mig_limit_node(const struct view *v)
{
	const MigrationConfiguration *mc = configured(v);

	return mc ? MAX(API_GET(mc, parallelOutboundMigrationsPerNode, PER_NODE), 1) : PER_NODE;
}

static enum rc fill(VMIMConfigurationOptions *o, const MigrationConfiguration *mc, bool may_stall)
{
	static const MigrationConfiguration none;

	if (!mc)
		mc = &none;
	bool post_copy = API_GET(mc, allowPostCopy, false);

	TRY(api_set_str(&o->nodeDrainTaintKey,
			mc->nodeDrainTaintKey ? mc->nodeDrainTaintKey : "kubevirt.io/drain"));
	TRY(api_set_str(&o->bandwidthPerMigration,
			mc->bandwidthPerMigration ? mc->bandwidthPerMigration : "0Mi"));
	TRY(api_set_str(&o->network, mc->network));
	API_SET(o, parallelMigrationsPerCluster,
		API_GET(mc, parallelMigrationsPerCluster, PER_CLUSTER));
	API_SET(o, parallelOutboundMigrationsPerNode,
		API_GET(mc, parallelOutboundMigrationsPerNode, PER_NODE));
	API_SET(o, completionTimeoutPerGiB,
		API_GET(mc, completionTimeoutPerGiB, COMPLETION_PER_GIB));
	API_SET(o, progressTimeout, API_GET(mc, progressTimeout, PROGRESS_TIMEOUT));
	API_SET(o, utilityVolumesTimeout, API_GET(mc, utilityVolumesTimeout, UTILITY_TIMEOUT));
	/* Counts only with its gate; without it the agents keep QEMU's own 300. */
	if (may_stall)
		API_SET(o, maxDowntimeMs, API_GET(mc, maxDowntimeMs, MAX_DOWNTIME_MS));
	API_SET(o, allowAutoConverge, API_GET(mc, allowAutoConverge, false));
	API_SET(o, allowPostCopy, post_copy);
	API_SET(o, allowWorkloadDisruption, API_GET(mc, allowWorkloadDisruption, post_copy));
	API_SET(o, unsafeMigrationOverride, API_GET(mc, unsafeMigrationOverride, false));
	if (mc->has_disableTLS)
		API_SET(o, disableTLS, mc->disableTLS);
	if (mc->has_matchSELinuxLevelOnMigration)
		API_SET(o, matchSELinuxLevelOnMigration, mc->matchSELinuxLevelOnMigration);
	return RC_OK;
}

const MigrationPolicy *mig_policy_of(const struct view *v, const VirtualMachineInstance *vmi)
{
	static const struct api_map no_labels;
	const Namespace *ns = view_get(v, &api_kind_Namespace, NULL, vmi->metadata.namespace);
	struct mig_policy_pick pick = {
		.vmi_labels = &vmi->metadata.labels,
		.ns_labels = ns ? &ns->metadata.labels : &no_labels,
	};
	struct kiter it;

	view_list(v, &api_kind_MigrationPolicy, NULL, &it);
	for (const MigrationPolicy *p; (p = view_next(&it));)
		mig_policy_consider(&pick, p);
	return pick.best;
}

enum rc mig_effective_config(const struct view *v, const MigrationPolicy *policy,
			     VMIMConfigurationOptions **out)
{
	bool may_stall = kit_gate_is_on(kit_config(v), "MigrationStallDetection");
	CLEANUP(VMIMConfigurationOptions_freep)
	VMIMConfigurationOptions *o = VMIMConfigurationOptions_new();

	if (!o)
		return RC_NOMEM;
	TRY(fill(o, configured(v), may_stall));
	if (policy)
		TRY(mig_policy_apply(&policy->spec, may_stall, o));
	o->completionTimeoutPerGiB = MIN(o->completionTimeoutPerGiB, MAX_PER_GIB);
	*out = STEAL(o);
	return RC_OK;
}

usec_t mig_acceptable_time(const MigState *s, const VirtualMachineInstance *vmi)
{
	const VMIMConfigurationOptions *o = s->migrationConfiguration;
	int64_t per_gb =
		o ? API_GET(o, completionTimeoutPerGiB, COMPLETION_PER_GIB) : COMPLETION_PER_GIB;
	const FerryMigrationStatus *f = vmi->status.ferry ? vmi->status.ferry->migration : NULL;
	int64_t disks = 0;

	for (size_t i = 0; f && i < f->n_disks; i++)
		disks += API_GET(&f->disks[i], totalBytes, 0);
	int64_t gb = mig_gigabytes(vmi_guest_memory(&vmi->spec), disks);

	return per_gb <= 0 ? 0 : (usec_t)(per_gb * gb) * USEC_PER_SEC;
}
