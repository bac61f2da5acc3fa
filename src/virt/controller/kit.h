/* src/virt/controller/kit.h - small pure helpers that the three controllers share.
 *
 * No state.
 */
#ifndef VIRT_CONTROLLER_KIT_H
#define VIRT_CONTROLLER_KIT_H

#include "api/api.h"
#include "api/gen/api_types.h"
#include "base/err.h"
#include "ctl/view.h"

/* Facts that become true within this time may share one write; each keeps its own timestamp.  API
 * times have whole seconds, so an age measured from one is up to a second too old: the real wait is
 * between a quarter and one and a quarter seconds. */
#define KIT_COALESCE (1250 * USEC_PER_MSEC)

/* Five characters of Kubernetes' name alphabet from a text: the same text, the same name, so that a
 * stale cache cannot make two objects of one. */
void kit_suffix(const char *text, char out[6]);

/* Returns rc; gives err a text when what failed left none. */
enum rc kit_fail(struct err *err, enum rc rc, const char *what);

/* *field = now as RFC 3339. */
MUST_CHECK enum rc kit_stamp(char **field, usec_t now);
/* How long ago an API time was; 0 for the future, USEC_INFINITY when absent or malformed. */
usec_t kit_age(usec_t now, const char *stamp);
/* The rest of a window that began at stamp; 0: it is over. */
usec_t kit_window_left(usec_t now, const char *stamp, usec_t window);
/* The same for the usual window. */
usec_t kit_coalesce_left(usec_t now, const char *stamp);

/* The installation's KubeVirt object; NULL before it exists. */
const KubeVirt *kit_kubevirt(const struct view *v);
const KubeVirtConfiguration *kit_config(const struct view *v); /* NULL: all defaults */
/* Is the feature gate on, by KubeVirt's rule (GA, Beta on; Alpha off unless listed)?  cfg NULL: all defaults. */
bool kit_gate_is_on(const KubeVirtConfiguration *cfg, const char *gate);
const FerryConfigSpec *kit_ferry_config(const struct view *v); /* NULL: all defaults */

bool kit_vmi_is_final(const VirtualMachineInstance *vmi);
bool kit_pod_is_final(const Pod *pod);
/* All containers report ready; the readiness gates do not matter here. */
bool kit_pod_containers_ready(const Pod *pod);
bool kit_vmim_is_final(const VirtualMachineInstanceMigration *m);

/* Adds the phase's entry to a VMI's phaseTransitionTimestamps (first time only) and sets the phase. */
MUST_CHECK enum rc kit_vmi_phase(VirtualMachineInstance *vmi, const char *phase, usec_t now);
bool kit_vmi_had_phase(const VirtualMachineInstance *vmi, const char *phase);

/* The claim behind a volume (persistentVolumeClaim or dataVolume); NULL: no claim. */
const char *kit_volume_claim(const Volume *vol);

#endif
