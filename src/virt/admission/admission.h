/* src/virt/admission/admission.h - defaults and validation of the kubevirt.io kinds.
 *
 * Pure functions of the objects, the cluster's configuration and lookups; loop thread only.  Texts,
 * field paths and webhook names are KubeVirt v1.9's; what goes beyond it says so in docs/internals.
 */
#ifndef VIRT_ADMISSION_ADMISSION_H
#define VIRT_ADMISSION_ADMISSION_H

#include "api/gen/api_types.h"
#include "hook/hook.h"

/* For struct apisrv_hooks. */
extern const struct admission_hook virt_admission[];
extern const size_t n_virt_admission;

/* What the rules need to know of the cluster; made by adm_cluster_init(). */
struct adm_cluster {
	KubeVirtConfiguration *config; /* never NULL after init */
	struct hook_env *env;	       /* NULL: no lookups (unknown CPU models are not noticed) */
};

/* config: spec.configuration as JSON, NULL: empty. */
MUST_CHECK enum rc adm_cluster_init(struct adm_cluster *c, struct hook_env *env,
				    const struct json *config, struct err *err);
void adm_cluster_fini(struct adm_cluster *c);

/* Writes KubeVirt's defaults into a VMI's spec: what a VirtualMachine's template becomes when its VMI
 * is created.  Idempotent. */
MUST_CHECK enum rc adm_vmi_defaults(VirtualMachineInstance *vmi, const struct adm_cluster *c,
				    struct err *err);
/* Every fault of a spec that has its defaults; root: "spec" or "spec.template.spec". */
void adm_check_spec(const VirtualMachineInstanceSpec *spec, const ObjectMeta *meta,
		    const char *root, const struct adm_cluster *c, struct field_errs *fe);

#endif
