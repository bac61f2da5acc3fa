#include "virt/controller/vmi/vmi_status.h"

#include <stdarg.h>
#include <stdio.h>

#include "api/api.h"
#include "api/meta.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "base/try.h"
#include "virt/controller/kit.h"
#include "virt/names.h"

enum { MESSAGE_MAX = 32 * 1024 };

#define SET(c_, ...)                                                                         \
	TRY(API_COND_SET(&(c_)->next->status, VirtualMachineInstanceCondition, (c_)->v->now, \
			 __VA_ARGS__))
#define DEL(c_, type_) API_COND_DEL(&(c_)->next->status, VirtualMachineInstanceCondition, type_)

static bool is_ours(const char *reason)
{
	static const char *const ours[] = {"FailedCreate", "FailedPvcNotFound", "ErrImagePull",
					   "ImagePullBackOff", "FailedAllocation"};

	for (size_t i = 0; i < ARRAY_SIZE(ours); i++)
		if (str_eq(reason, ours[i]))
			return true;
	return false;
}

enum rc vmi_set_synchronized(struct vmi_ctx *c, const char *reason, const char *fmt, ...)
{
	struct api_cond now;
	char text[512];
	va_list ap;

	if (!reason) {
		if (API_COND_GET(&c->next->status, VirtualMachineInstanceCondition, "Synchronized",
				 &now) &&
		    is_ours(now.reason)) {
			DEL(c, "Synchronized");
			c->is_urgent = true;
		}
		return RC_OK;
	}
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	c->is_urgent = true;
	SET(c, .type = "Synchronized", .status = "False", .reason = reason, .message = text);
	return RC_OK;
}

/* ---- pod conditions ---- */

static enum rc copy_scheduled(struct vmi_ctx *c, const Pod *pod)
{
	struct api_cond pc;

	if (!API_COND_GET(&pod->status, PodCondition, "PodScheduled", &pc) ||
	    str_eq(pc.status, "True")) {
		DEL(c, "PodScheduled");
		return RC_OK;
	}
	CLEANUP(sbuf_fini) struct sbuf why = SBUF_INIT(MESSAGE_MAX);

	c->is_urgent = true;
	sbuf_adds(&why, pc.message ? pc.message : "");
	vmi_tell_host_disks(c->v, c->vmi, &why);
	TRY(sbuf_rc(&why));
	return API_COND_SET(&c->next->status, VirtualMachineInstanceCondition, c->v->now,
			    .type = "PodScheduled", .status = pc.status, .reason = pc.reason,
			    .message = sbuf_str(&why));
}

/* An image that cannot be pulled, of any container. */
static const ContainerStateWaiting *image_trouble(const Pod *pod)
{
	const ContainerStatus *lists[] = {pod->status.initContainerStatuses,
					  pod->status.containerStatuses};
	size_t ns[] = {pod->status.n_initContainerStatuses, pod->status.n_containerStatuses};

	for (size_t l = 0; l < ARRAY_SIZE(lists); l++) {
		for (size_t i = 0; i < ns[l]; i++) {
			const ContainerState *st = lists[l][i].state;
			const ContainerStateWaiting *w = st ? st->waiting : NULL;

			if (w && (str_eq(w->reason, "ErrImagePull") ||
				  str_eq(w->reason, "ImagePullBackOff")))
				return w;
		}
	}
	return NULL;
}

static enum rc set_ready(struct vmi_ctx *c, const char *status, const char *reason,
			 const char *message)
{
	SET(c, .type = "Ready", .status = status, .reason = reason, .message = message);
	return RC_OK;
}

static enum rc mirror_ready(struct vmi_ctx *c)
{
	const Pod *pod = c->pods.current;
	struct api_cond pc;

	if (!pod || kit_pod_is_final(pod))
		return set_ready(c, "False", "PodNotExists",
				 "virt-launcher pod has not yet been scheduled");
	if (pod->metadata.deletionTimestamp)
		return set_ready(c, "False", "PodTerminating", "virt-launcher pod is terminating");
	if (vmi_node_is_silent(c->v, pod->spec.nodeName))
		return set_ready(c, "Unknown", "NodeUnresponsive",
				 "the agent of the node is not responsive");
	if (!str_eq(c->next->status.phase, "Running"))
		return set_ready(c, "False", "GuestNotRunning",
				 "Guest VM is not reported as running");
	if (!API_COND_GET(&pod->status, PodCondition, "Ready", &pc))
		return set_ready(c, "False", "PodConditionMissing",
				 "virt-launcher pod is missing the Ready condition");
	return set_ready(c, pc.status, pc.reason, pc.message);
}

/* ---- node ---- */

bool vmi_node_is_silent(const struct view *v, const char *node)
{
	if (str_is_empty(node))
		return false;
	const Node *n = view_get(v, &api_kind_Node, NULL, node);

	return n && API_COND_IS(&n->status, NodeCondition, "Ready", "Unknown");
}

/* Marks, and nothing else: a node that does not answer may still run the guest. */
static enum rc mark_node(struct vmi_ctx *c)
{
	const char *node = c->next->status.nodeName;
	bool silent = vmi_node_is_silent(c->v, node);
	bool marked = str_eq(c->next->status.reason, "NodeUnresponsive");

	if (silent == marked || kit_vmi_is_final(c->next))
		return RC_OK;
	c->is_urgent = true;
	if (!silent)
		return api_set_str(&c->next->status.reason, NULL);
	TRY(plan_event(c->plan, &api_kind_VirtualMachineInstance, c->vmi, "Normal",
		       "NodeUnresponsive",
		       "ferry-node on node %s is not responsive, the virtual machine is left alone",
		       node));
	return api_set_str(&c->next->status.reason, "NodeUnresponsive");
}

/* ---- pods that are alive ---- */

static bool is_left_behind(const VirtualMachineInstance *vmi, const Pod *pod, const Pod *current)
{
	const VirtualMachineInstanceMigrationState *ms = vmi->status.migrationState;

	return ms && API_GET(ms, completed, false) && !API_GET(ms, failed, false) &&
	       pod != current && str_eq(ms->sourcePod, pod->metadata.name);
}

enum rc vmi_set_active_pods(struct vmi_ctx *c)
{
	struct api_map want = {0};
	enum rc rc = RC_OK;

	for (size_t i = 0; i < c->pods.n && !rc; i++) {
		const Pod *pod = c->pods.all[i];

		if (kit_pod_is_final(pod) || is_left_behind(c->vmi, pod, c->pods.current))
			continue;
		rc = api_map_set(&want, pod->metadata.uid,
				 pod->spec.nodeName ? pod->spec.nodeName : "");
	}
	if (!rc && !api_map_equal(&want, &c->next->status.activePods)) {
		api_map_fini(&c->next->status.activePods);
		c->next->status.activePods = want;
		return RC_OK;
	}
	api_map_fini(&want);
	return rc;
}

/* ---- phases ---- */

static enum rc take_node(struct vmi_ctx *c, const Pod *pod)
{
	VirtualMachineInstanceStatus *st = &c->next->status;

	if (str_is_empty(pod->spec.nodeName) || str_eq(st->nodeName, pod->spec.nodeName))
		return RC_OK;
	if (!str_is_empty(st->nodeName))
		return RC_OK; /* only a finished move changes it, and the target's agent writes that */
	c->is_urgent = true;
	TRY(api_set_str(&st->nodeName, pod->spec.nodeName));
	TRY(api_map_set(&c->next->metadata.labels, LABEL_NODE_NAME, pod->spec.nodeName));
	TRY(api_set_str(&st->migrationTransport, "Unix"));
	if (!st->has_runtimeUser) {
		int64_t uid;
		const char *text = api_annotation(&pod->metadata, ANN_UID);

		if (text && !str_to_i64(text, 0, INT32_MAX, &uid, NULL))
			API_SET(st, runtimeUser, uid);
	}
	return RC_OK;
}

bool vmi_is_moving(const VirtualMachineInstance *vmi)
{
	const VirtualMachineInstanceMigrationState *ms = vmi->status.migrationState;

	return ms && ms->startTimestamp && !API_GET(ms, completed, false) &&
	       !API_GET(ms, failed, false);
}

static enum rc end_with_pod(struct vmi_ctx *c, const Pod *pod)
{
	if (vmi_is_moving(c->vmi))
		for (size_t i = 0; i < c->pods.n; i++)
			if (!kit_pod_is_final(c->pods.all[i]))
				return RC_OK;
	c->is_urgent = true;
	if (str_eq(pod->status.phase, "Failed"))
		TRY(api_set_str(&c->next->status.reason, pod->status.reason));
	return kit_vmi_phase(c->next, pod->status.phase, c->v->now);
}

static enum rc advance(struct vmi_ctx *c, const Pod *pod)
{
	const char *phase = c->next->status.phase;
	bool early = str_is_empty(phase) || str_eq(phase, "Pending") || str_eq(phase, "Scheduling");

	/* An end is final: a pod that ends later (a target that was never used) says nothing new. */
	if (kit_vmi_is_final(c->next))
		return RC_OK;
	if (kit_pod_is_final(pod))
		return end_with_pod(c, pod);
	TRY(take_node(c, pod));
	if (!early)
		return RC_OK;
	if (!str_eq(phase, "Scheduling"))
		TRY(kit_vmi_phase(c->next, "Scheduling", c->v->now));
	if (!str_is_empty(pod->spec.nodeName) && kit_pod_containers_ready(pod))
		TRY(kit_vmi_phase(c->next, "Scheduled", c->v->now));
	return RC_OK;
}

enum rc vmi_status_from_pod(struct vmi_ctx *c)
{
	const Pod *pod = c->pods.current;
	const ContainerStateWaiting *w;

	TRY(advance(c, pod));
	TRY(vmi_set_active_pods(c));
	if (kit_vmi_is_final(c->next)) {
		DEL(c, "PodScheduled");
		return mirror_ready(c);
	}
	TRY(copy_scheduled(c, pod));
	w = image_trouble(pod);
	if (w)
		TRY(vmi_set_synchronized(c, w->reason, "%s", w->message ? w->message : w->reason));
	else
		TRY(vmi_set_synchronized(c, NULL, "%s", ""));
	TRY(mark_node(c));
	return mirror_ready(c);
}

/* A mark names the node that is to be left; it has no meaning once the VMI is elsewhere. */
static bool is_mark_stale(const VirtualMachineInstance *vmi)
{
	const VirtualMachineInstanceStatus *st = &vmi->status;

	return !str_is_empty(st->evacuationNodeName) && !str_is_empty(st->nodeName) &&
	       !str_eq(st->evacuationNodeName, st->nodeName);
}

enum rc vmi_status_common(struct vmi_ctx *c)
{
	if (is_mark_stale(c->next))
		TRY(api_set_str(&c->next->status.evacuationNodeName, NULL));
	if (str_is_empty(c->next->status.evacuationNodeName)) {
		DEL(c, "EvictionRequested");
		return RC_OK;
	}
	SET(c, .type = "EvictionRequested", .status = "True", .reason = "EvictionRequested",
	    .message = "VMI is marked for eviction");
	return RC_OK;
}

/* ---- volumes ---- */

static VolumeStatus *volume_status(VirtualMachineInstanceStatus *st, const char *name)
{
	for (size_t i = 0; i < st->n_volumeStatus; i++)
		if (str_eq(st->volumeStatus[i].name, name))
			return &st->volumeStatus[i];
	VolumeStatus *vs = api_append(&st->volumeStatus, &st->n_volumeStatus, sizeof(*vs));

	if (!vs || api_set_str(&vs->name, name) || api_set_str(&vs->target, ""))
		return NULL;
	/* sorted by name, as KubeVirt keeps it */
	for (size_t i = st->n_volumeStatus - 1;
	     i > 0 && strcmp(st->volumeStatus[i].name, st->volumeStatus[i - 1].name) < 0; i--) {
		VolumeStatus swap = st->volumeStatus[i];

		st->volumeStatus[i] = st->volumeStatus[i - 1];
		st->volumeStatus[i - 1] = swap;
		vs = &st->volumeStatus[i - 1];
	}
	return vs;
}

static enum rc fill_claim_info(PersistentVolumeClaimInfo *info, const PersistentVolumeClaim *pvc)
{
	bool is_block = str_eq(pvc->spec.volumeMode, "Block");

	TRY(api_set_str(&info->claimName, pvc->metadata.name));
	for (size_t i = 0; i < pvc->spec.n_accessModes; i++)
		TRY(api_append_str(&info->accessModes, &info->n_accessModes,
				   pvc->spec.accessModes[i]));
	TRY(api_set_str(&info->volumeMode, is_block ? "Block" : "Filesystem"));
	TRY(api_map_copy(&info->capacity, &pvc->status.capacity));
	if (pvc->spec.resources)
		TRY(api_map_copy(&info->requests, &pvc->spec.resources->requests));
	return api_set_str(&info->filesystemOverhead, is_block ? "0" : "0.055");
}

enum rc vmi_volume_status(struct vmi_ctx *c, const PersistentVolumeClaim *const *claims)
{
	for (size_t i = 0; i < c->next->spec.n_volumes; i++) {
		VolumeStatus *vs = volume_status(&c->next->status, c->next->spec.volumes[i].name);

		if (!vs)
			return RC_NOMEM;
		if (!claims[i])
			continue;
		CLEANUP(PersistentVolumeClaimInfo_freep)
		PersistentVolumeClaimInfo *info = PersistentVolumeClaimInfo_new();

		if (!info)
			return RC_NOMEM;
		TRY(fill_claim_info(info, claims[i]));
		if (vs->persistentVolumeClaimInfo &&
		    PersistentVolumeClaimInfo_equal(info, vs->persistentVolumeClaimInfo))
			continue;
		PersistentVolumeClaimInfo_free(vs->persistentVolumeClaimInfo);
		vs->persistentVolumeClaimInfo = STEAL(info);
	}
	return RC_OK;
}
