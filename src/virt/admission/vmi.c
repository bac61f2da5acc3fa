#include <stdio.h>
#include <string.h>

#include "api/map.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "json/json.h"
#include "virt/admission/admission_int.h"
#include "virt/names.h"

/* VirtualMachineInstance: defaults at creation, and who may change what afterwards. */

static const char NODE_USER[] = "system:node:";

/* Every key of `from` replaces obj's; obj stays the same value for its owner. */
static enum rc replace(struct json *obj, const struct json *from)
{
	enum rc rc = from ? RC_OK : RC_NOMEM;

	if (rc)
		return rc;
	js_clear(obj);
	JS_FOREACH(it, from)
		if (!rc)
			rc = js_set(obj, it.key, js_copy(it.value));
	return rc;
}

/* A VMI begins with nothing but what the server knows; whatever status a client sent is dropped. */
static enum rc first_status(VirtualMachineInstance *vmi, usec_t now)
{
	const CPU *cpu = vmi->spec.domain.cpu;
	const Memory *mem = vmi->spec.domain.memory;
	VirtualMachineInstanceStatus *st = &vmi->status;
	VirtualMachineInstancePhaseTransitionTimestamp *t;
	CPUTopology *topo;
	char text[32];

	api_fini(&api_type_VirtualMachineInstanceStatus, st);
	time_rfc3339(now, text);
	t = api_append(&st->phaseTransitionTimestamps, &st->n_phaseTransitionTimestamps,
		       sizeof(*t));
	topo = api_ensure(&api_type_CPUTopology, &st->currentCPUTopology);
	if (!t || !topo || api_set_str(&t->phase, "Pending") ||
	    api_set_str(&t->phaseTransitionTimestamp, text) || api_set_str(&st->phase, "Pending"))
		return RC_NOMEM;
	if (cpu) {
		API_SET(topo, cores, MAX(cpu->cores, 1));
		API_SET(topo, sockets, MAX(cpu->sockets, 1));
		API_SET(topo, threads, MAX(cpu->threads, 1));
	}
	if (mem && mem->guest) {
		MemoryStatus *m = api_ensure(&api_type_MemoryStatus, &st->memory);

		if (!m || api_set_str(&m->guestAtBoot, mem->guest) ||
		    api_set_str(&m->guestCurrent, mem->guest) ||
		    api_set_str(&m->guestRequested, mem->guest))
			return RC_NOMEM;
	}
	return RC_OK;
}

static enum rc mutate_create(struct hook_ctx *ctx, struct json *obj, struct err *err)
{
	CLEANUP(js_unrefp) struct json *out = NULL;
	struct adm_cluster c = {0};
	void *typed = NULL;
	VirtualMachineInstance *vmi;
	enum rc rc = adm_cluster_init(&c, ctx->env, hook_kubevirt_config(ctx->env), err);

	if (!rc)
		rc = api_decode(&api_type_VirtualMachineInstance, obj, &typed, err);
	vmi = typed;
	if (!rc)
		rc = adm_vmi_defaults(vmi, &c, err);
	if (!rc &&
	    (api_map_set(&vmi->metadata.annotations, "kubevirt.io/pci-topology-version", "v3") ||
	     first_status(vmi, hook_now(ctx->env))))
		rc = err_set(err, RC_NOMEM, "cannot allocate a VMI");
	if (!rc) {
		out = api_encode(&api_type_VirtualMachineInstance, vmi);
		if (replace(obj, out))
			rc = err_set(err, RC_NOMEM, "cannot allocate a VMI");
	}
	VirtualMachineInstance_free(vmi);
	adm_cluster_fini(&c);
	return rc;
}

/* A manifest that is applied again has lost the defaults inside its lists: they come back, so that the
 * same file twice is no change. */
static enum rc restore_defaults(struct hook_ctx *ctx, struct json *obj, struct err *err)
{
	struct adm_cluster c = {0};
	void *typed = NULL;
	VirtualMachineInstance *vmi;
	enum rc rc;

	if (*ctx->subresource || js_equal(js_get(obj, "spec"), js_get(ctx->old, "spec")))
		return RC_OK;
	rc = adm_cluster_init(&c, ctx->env, hook_kubevirt_config(ctx->env), err);
	if (!rc)
		rc = api_decode(&api_type_VirtualMachineInstance, obj, &typed, err);
	vmi = typed;
	if (!rc)
		rc = adm_vmi_defaults(vmi, &c, err);
	if (!rc &&
	    js_set(obj, "spec", api_encode(&api_type_VirtualMachineInstanceSpec, &vmi->spec)))
		rc = err_set(err, RC_NOMEM, "cannot allocate a VMI");
	VirtualMachineInstance_free(vmi);
	adm_cluster_fini(&c);
	return rc;
}

enum rc vmi_mutate(struct hook_ctx *ctx, struct json *obj, struct err *err)
{
	struct json *status;
	enum rc rc;

	if (ctx->op == HOOK_CREATE)
		return mutate_create(ctx, obj, err);
	if (ctx->op != HOOK_UPDATE || apisrv_user_is_component(ctx->user))
		return RC_OK;
	rc = restore_defaults(ctx, obj, err);
	if (rc)
		return rc;
	/* Only the cluster's own components report status; others keep what is stored. */
	status = js_get(ctx->old, "status");
	if (!status) {
		js_del(obj, "status");
		return RC_OK;
	}
	return js_set(obj, "status", js_copy(status))
		       ? err_set(err, RC_NOMEM, "cannot copy a status")
		       : RC_OK;
}

/* Validation */

static void check_labels(const VirtualMachineInstance *vmi, const VirtualMachineInstance *old,
			 struct field_errs *fe)
{
	static const char *const reserved[] = {LABEL_CREATED_BY,
					       LABEL_MIGRATION_UID,
					       LABEL_NODE_NAME,
					       LABEL_MIGRATION_TARGET,
					       LABEL_SCHEDULABLE,
					       "kubevirt.io/install-strategy",
					       NULL};

	for (const char *const *l = reserved; *l; l++) {
		const char *now = api_map_get(&vmi->metadata.labels, *l);
		const char *before = old ? api_map_get(&old->metadata.labels, *l) : NULL;

		if (str_eq(now, before))
			continue;
		fe_cause(fe, NOT_SUPPORTED, "metadata.labels",
			 "%s of the following reserved kubevirt.io/ labels on a VMI object is "
			 "prohibited",
			 old ? "modification" : "creation");
		return;
	}
}

static void check_create(struct hook_ctx *ctx, const VirtualMachineInstance *vmi,
			 const struct adm_cluster *c, struct field_errs *fe)
{
	const DomainSpec *d = &vmi->spec.domain;

	if (!d->memory || str_is_empty(d->memory->guest))
		fe_cause(fe, REQUIRED, "spec.domain.memory",
			 "no memory requested, at least one of 'spec.domain.memory.guest', "
			 "'spec.domain.memory.hugepages.pageSize' or "
			 "'spec.domain.resources.requests.memory' "
			 "must be set");
	adm_check_spec(&vmi->spec, &vmi->metadata, "spec", c, fe);
	if (!apisrv_user_is_component(ctx->user))
		check_labels(vmi, NULL, fe);
}

/* May this node write this VMI?  It runs there, or is moving from or to there. */
static bool is_nodes_vmi(const VirtualMachineInstance *vmi, const char *node)
{
	const VirtualMachineInstanceMigrationState *m = vmi->status.migrationState;

	return str_eq(vmi->status.nodeName, node) ||
	       str_eq(api_map_get(&vmi->metadata.labels, LABEL_NODE_NAME), node) ||
	       str_eq(api_map_get(&vmi->metadata.labels, LABEL_MIGRATION_TARGET), node) ||
	       (m && (str_eq(m->sourceNode, node) || str_eq(m->targetNode, node)));
}

static enum rc check_node(struct hook_ctx *ctx, const VirtualMachineInstance *old,
			  const struct adm_cluster *c, struct err *err)
{
	const char *user = ctx->user->name;

	if (!adm_gate(c, "NodeRestriction") || !str_has_prefix(user, NODE_USER) ||
	    is_nodes_vmi(old, user + strlen(NODE_USER)))
		return RC_OK;
	return err_set(err, RC_BAD_REQUEST,
		       "Node restriction, virt-handler is only allowed to modify VMIs it owns");
}

static void check_update(struct hook_ctx *ctx, const VirtualMachineInstance *vmi,
			 const VirtualMachineInstance *old, struct field_errs *fe)
{
	const CPU *a = vmi->spec.domain.cpu, *b = old->spec.domain.cpu;
	const Memory *ma = vmi->spec.domain.memory, *mb = old->spec.domain.memory;
	bool is_component = apisrv_user_is_component(ctx->user);

	if (!is_component &&
	    !api_equal(&api_type_VirtualMachineInstanceSpec, &vmi->spec, &old->spec)) {
		fe_cause(fe, NOT_SUPPORTED, "", "update of VMI object is restricted");
		return;
	}
	if (!is_component)
		check_labels(vmi, old, fe);
	if ((a ? a->maxSockets : 0) != (b ? b->maxSockets : 0))
		fe_cause(fe, NOT_SUPPORTED, "spec.domain.cpu.maxSockets",
			 "CPU topology maxSockets changed");
	if (!str_eq(ma ? ma->maxGuest : NULL, mb ? mb->maxGuest : NULL))
		fe_cause(fe, NOT_SUPPORTED, "spec.domain.memory.maxGuest",
			 "Memory maxGuest changed");
}

enum rc vmi_validate(struct hook_ctx *ctx, const void *obj, const void *old, struct field_errs *fe,
		     struct err *err)
{
	struct adm_cluster c = {0};
	enum rc rc;

	if (ctx->op == HOOK_DELETE)
		return RC_OK;
	rc = adm_cluster_init(&c, ctx->env, hook_kubevirt_config(ctx->env), err);
	if (rc)
		return rc;
	if (ctx->op == HOOK_CREATE)
		check_create(ctx, obj, &c, fe);
	else
		rc = check_node(ctx, old, &c, err);
	if (!rc && ctx->op == HOOK_UPDATE && !*ctx->subresource)
		check_update(ctx, obj, old, fe);
	adm_cluster_fini(&c);
	return rc;
}
