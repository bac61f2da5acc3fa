/* src/virt/admission/admission_int.h - what the rules share. */
#ifndef VIRT_ADMISSION_INT_H
#define VIRT_ADMISSION_INT_H

#include "api/api.h"
#include "api/fielderr.h"
#include "api/quantity.h"
#include "virt/admission/admission.h"

/* Reasons of causes. */
#define INVALID	      "FieldValueInvalid"
#define REQUIRED      "FieldValueRequired"
#define DUPLICATE     "FieldValueDuplicate"
#define NOT_SUPPORTED "FieldValueNotSupported"
#define NOT_FOUND     "FieldValueNotFound"

enum { CHECK_PATHS = 16 };

struct check {
	struct field_errs *fe;
	const struct adm_cluster *cluster;
	const VirtualMachineInstanceSpec *spec;
	const ObjectMeta *meta; /* labels and annotations of the VMI to be */
	const char *root;
	char paths[CHECK_PATHS][256]; /* used in turn by at() */
	unsigned next;
};

/* "<root>.<formatted>"; valid until CHECK_PATHS further calls. */
const char *at(struct check *c, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Is the feature gate on, by KubeVirt's rule (GA, Beta on; Alpha off unless listed)? */
bool adm_gate(const struct adm_cluster *c, const char *gate);
/* Has text any of the values (NULL-terminated)? */
bool is_one_of(const char *text, const char *const *values);

/* check_*.c: one subject each. */
void check_memory(struct check *c);
void check_cpu(struct check *c);
void check_firmware(struct check *c);
void check_lifecycle(struct check *c);
void check_disks(struct check *c);
void check_volumes(struct check *c);
void check_network(struct check *c);
void check_devices(struct check *c);
void check_special(struct check *c);
void check_gates(struct check *c);

/* The hooks, one file per kind. */
enum rc vmi_mutate(struct hook_ctx *ctx, struct json *obj, struct err *err);
enum rc vmi_validate(struct hook_ctx *ctx, const void *obj, const void *old, struct field_errs *fe,
		     struct err *err);
enum rc vm_validate(struct hook_ctx *ctx, const void *obj, const void *old, struct field_errs *fe,
		    struct err *err);
enum rc vm_mutate(struct hook_ctx *ctx, struct json *obj, struct err *err);
/* metadata.finalizers gets name, once. */
MUST_CHECK enum rc adm_add_finalizer(struct json *obj, const char *name, struct err *err);
enum rc vmim_mutate(struct hook_ctx *ctx, struct json *obj, struct err *err);
enum rc vmim_validate(struct hook_ctx *ctx, const void *obj, const void *old, struct field_errs *fe,
		      struct err *err);
/* May this migration be created? */
MUST_CHECK enum rc vmim_check_create(struct hook_ctx *ctx, const VirtualMachineInstanceMigration *m,
				     struct field_errs *fe, struct err *err);
/* Adds to a migration that is created as a dry run what the controller would find: status.ferry, as
 * mig_explain() fills it, and a warning where it would fail at once.  One that is about to be refused
 * stays as it is. */
MUST_CHECK enum rc vmim_dry_run(struct hook_ctx *ctx, struct json *obj, struct err *err);
/* Is there any object of the resource ("nodes", "kubevirts.kubevirt.io")? */
bool adm_any(struct hook_ctx *ctx, const char *resource);
/* A model that neither QEMU nor a node knows is a fault of path, with the nearest names.  env NULL: no
 * nodes are asked. */
void adm_check_cpu_model(struct hook_env *env, const char *path, const char *model,
			 struct field_errs *fe);
enum rc budget_validate(struct hook_ctx *ctx, const void *obj, const void *old,
			struct field_errs *fe, struct err *err);
enum rc ferryconfig_validate(struct hook_ctx *ctx, const void *obj, const void *old,
			     struct field_errs *fe, struct err *err);
enum rc kubevirt_validate(struct hook_ctx *ctx, const void *obj, const void *old,
			  struct field_errs *fe, struct err *err);
enum rc migrationpolicy_validate(struct hook_ctx *ctx, const void *obj, const void *old,
				 struct field_errs *fe, struct err *err);
/* Six bytes in hexadecimal digits, with ':' or '-' between. */
bool adm_mac_is_valid(const char *mac);
/* A VM's spec at that path, as a create would be judged; RC_NOMEM alone is an error. */
MUST_CHECK enum rc adm_check_vm_spec(struct hook_ctx *ctx, const VirtualMachineSpec *spec,
				     const char *root, struct field_errs *fe, struct err *err);
/* A VMI's template with its defaults; root: where its spec is. */
MUST_CHECK enum rc adm_check_vmi_template(struct hook_ctx *ctx,
					  const VirtualMachineInstanceTemplateSpec *t,
					  const char *root, struct field_errs *fe, struct err *err);

/* Kinds that are refused as a whole (refused.c, refused_sets.c). */
#define REFUSED_HOOK(kind_)                                                              \
	enum rc kind_##_validate(struct hook_ctx *ctx, const void *obj, const void *old, \
				 struct field_errs *fe, struct err *err)
REFUSED_HOOK(snapshot);
REFUSED_HOOK(restore);
REFUSED_HOOK(export);
REFUSED_HOOK(clone);
REFUSED_HOOK(preset);
REFUSED_HOOK(instancetype);
REFUSED_HOOK(cluster_instancetype);
REFUSED_HOOK(preference);
REFUSED_HOOK(cluster_preference);
REFUSED_HOOK(replicaset);
REFUSED_HOOK(pool);

/* A changed maxDowntimeMs (old NULL: there was none) is a fault of path without its gate. */
void adm_check_max_downtime(const struct adm_cluster *c, const char *path, const int64_t *now,
			    const int64_t *old, struct field_errs *fe);

#endif
