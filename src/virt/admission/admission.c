#include "virt/admission/admission_int.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/mem.h"
#include "base/str.h"
#include "json/json.h"
#include "virt/controller/kit.h"

const struct admission_hook virt_admission[] = {
	{
		.resource = "virtualmachines.kubevirt.io",
		.denied_by = "virtualmachine-validator.kubevirt.io",
		.mutate = vm_mutate, /* not its spec: that belongs to the user */
		.validate = vm_validate,
	},
	{
		.resource = "virtualmachineinstances.kubevirt.io",
		.denied_by = "virtualmachineinstances-create-validator.kubevirt.io",
		.denied_by_update = "virtualmachineinstances-update-validator.kubevirt.io",
		.mutate = vmi_mutate,
		.validate = vmi_validate,
	},
	{
		.resource = "virtualmachineinstancemigrations.kubevirt.io",
		.denied_by = "migration-create-validator.kubevirt.io",
		.denied_by_update = "migration-update-validator.kubevirt.io",
		.mutate = vmim_mutate,
		.validate = vmim_validate,
	},
	{
		.resource = "kubevirts.kubevirt.io",
		.denied_by = "kubevirt-create-validator.kubevirt.io",
		.denied_by_update = "kubevirt-update-validator.kubevirt.io",
		.denied_by_delete = "kubevirt-validator.kubevirt.io",
		.validate = kubevirt_validate,
	},
	{
		.resource = "migrationpolicies.migrations.kubevirt.io",
		.denied_by = "migration-policy-validator.kubevirt.io",
		.validate = migrationpolicy_validate,
	},
	{
		.resource = "poddisruptionbudgets.policy",
		.validate = budget_validate,
	},
	{
		.resource = "ferryconfigs.ferry.dev",
		.denied_by = "ferryconfig-validator.ferry.dev",
		.validate = ferryconfig_validate,
	},
	/* Refused in any case, so no webhook is named. */
	{
		.resource = "virtualmachinesnapshots.snapshot.kubevirt.io",
		.validate = snapshot_validate,
	},
	{
		.resource = "virtualmachinerestores.snapshot.kubevirt.io",
		.validate = restore_validate,
	},
	{
		.resource = "virtualmachineexports.export.kubevirt.io",
		.validate = export_validate,
	},
	{
		.resource = "virtualmachineclones.clone.kubevirt.io",
		.validate = clone_validate,
	},
	{
		.resource = "virtualmachineinstancepresets.kubevirt.io",
		.validate = preset_validate,
	},
	{
		.resource = "virtualmachineinstancetypes.instancetype.kubevirt.io",
		.validate = instancetype_validate,
	},
	{
		.resource = "virtualmachineclusterinstancetypes.instancetype.kubevirt.io",
		.validate = cluster_instancetype_validate,
	},
	{
		.resource = "virtualmachinepreferences.instancetype.kubevirt.io",
		.validate = preference_validate,
	},
	{
		.resource = "virtualmachineclusterpreferences.instancetype.kubevirt.io",
		.validate = cluster_preference_validate,
	},
	{
		.resource = "virtualmachineinstancereplicasets.kubevirt.io",
		.validate = replicaset_validate,
	},
	{
		.resource = "virtualmachinepools.pool.kubevirt.io",
		.validate = pool_validate,
	},
};
const size_t n_virt_admission = ARRAY_SIZE(virt_admission);

enum rc adm_add_finalizer(struct json *obj, const char *name, struct err *err)
{
	struct json *meta = js_ensure_object(obj, "metadata");
	struct json *list = js_get(meta, "finalizers");
	enum rc rc = RC_OK;

	for (size_t i = 0; i < js_len(list); i++)
		if (str_eq(js_str(js_item(list, i)), name))
			return RC_OK;
	if (!js_is_array(list)) {
		rc = meta ? js_set(meta, "finalizers", js_new_array()) : RC_NOMEM;
		list = js_get(meta, "finalizers");
	}
	if (!rc)
		rc = js_append(list, js_new_str(name));
	return rc ? err_set(err, RC_NOMEM, "cannot add the finalizer '%s'", name) : RC_OK;
}

enum rc adm_cluster_init(struct adm_cluster *c, struct hook_env *env, const struct json *config,
			 struct err *err)
{
	void *typed = NULL;
	enum rc rc;

	if (config) {
		rc = api_decode(&api_type_KubeVirtConfiguration, config, &typed, err);
	} else {
		typed = api_new(&api_type_KubeVirtConfiguration);
		rc = typed ? RC_OK : err_set(err, RC_NOMEM, "cannot allocate the configuration");
	}
	if (rc)
		return rc;
	c->config = typed;
	c->env = env;
	return RC_OK;
}

void adm_cluster_fini(struct adm_cluster *c)
{
	if (c->config)
		api_free(&api_type_KubeVirtConfiguration, c->config);
	c->config = NULL;
}

bool adm_gate(const struct adm_cluster *c, const char *gate)
{
	return kit_gate_is_on(c->config, gate);
}

static bool stop_at_first(const struct json *obj, void *arg)
{
	(void)obj;
	*(bool *)arg = true;
	return false;
}

bool adm_any(struct hook_ctx *ctx, const char *resource)
{
	bool found = false;

	hook_each(ctx->env, resource, NULL, stop_at_first, &found);
	return found;
}

bool is_one_of(const char *text, const char *const *values)
{
	for (; *values; values++)
		if (str_eq(text, *values))
			return true;
	return false;
}

const char *at(struct check *c, const char *fmt, ...)
{
	char *buf = c->paths[c->next++ % CHECK_PATHS];
	int n = snprintf(buf, sizeof(c->paths[0]), "%s.", c->root);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(buf + n, sizeof(c->paths[0]) - (size_t)n, fmt, ap);
	va_end(ap);
	return buf;
}

void adm_check_spec(const VirtualMachineInstanceSpec *spec, const ObjectMeta *meta,
		    const char *root, const struct adm_cluster *cluster, struct field_errs *fe)
{
	struct check c = {.fe = fe, .cluster = cluster, .spec = spec, .meta = meta, .root = root};

	check_memory(&c);
	check_cpu(&c);
	check_firmware(&c);
	check_lifecycle(&c);
	check_disks(&c);
	check_volumes(&c);
	check_network(&c);
	check_devices(&c);
	check_special(&c);
	check_gates(&c);
}
