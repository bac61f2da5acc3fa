#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "json/json.h"
#include "virt/admission/admission_int.h"

/* Kinds that Ferry refuses as a whole: what KubeVirt's webhooks say of such an object by itself, so that one answer has
 * all that is wrong with it.  Source: KubeVirt v1.9's validators of snapshots, restores, exports, clones, presets,
 * instance types and preferences.  What the schema says (required, enumerations, limits) is not said here. */

static const char CORE[] = "kubevirt.io", SNAPSHOTS[] = "snapshot.kubevirt.io";

enum { QUOTE_MAX = 200 }; /* of a client's text in an answer */

/* What an older server left can be changed and deleted (obj NULL) whatever it says. */
static bool is_new(const struct hook_ctx *ctx)
{
	return ctx->op == HOOK_CREATE && !*ctx->subresource;
}

/* ---- snapshots ---- */

/* The VM that is meant; false: it is none. */
static bool check_vm_reference(const TypedLocalObjectReference *r, const char *path,
			       struct field_errs *fe)
{
	char field[64];
	const char *last = "apiGroup";

	if (r->apiGroup && str_eq(r->apiGroup, CORE)) {
		if (str_eq(r->kind, "VirtualMachine"))
			return true;
		last = "kind";
	}
	(void)snprintf(field, sizeof(field), "%s.%s", path, last);
	if (r->apiGroup)
		fe_cause(fe, INVALID, field, "invalid %s", last);
	else
		fe_cause(fe, NOT_FOUND, field, "missing apiGroup");
	return false;
}

enum rc snapshot_validate(struct hook_ctx *ctx, const void *obj, const void *old,
			  struct field_errs *fe, struct err *err)
{
	const VirtualMachineSnapshot *s = obj;

	if (is_new(ctx) && s->spec.source)
		(void)check_vm_reference(s->spec.source, "spec.source", fe);
	return RC_OK;
}

/* ---- restores ---- */

static bool begins_with_one_of(const char *text, size_t n, const char *const *starts)
{
	for (; *starts; starts++)
		if (n >= strlen(*starts) && memcmp(text, *starts, strlen(*starts)) == 0)
			return true;
	return false;
}

static void trim(const char **text, size_t *n)
{
	while (*n && strchr(" \t\r\n", **text)) {
		++*text;
		--*n;
	}
	while (*n && strchr(" \t\r\n", (*text)[*n - 1]))
		--*n;
}

/* `"path": "/spec/x"`, as KubeVirt takes a patch apart: at every comma and colon. */
static void check_patch_member(const char *member, size_t n, struct field_errs *fe)
{
	static const char *const known[] = {"\"/metadata/labels/", "\"/metadata/annotations/",
					    "\"/spec/", NULL};
	const char *colon = memchr(member, ':', n), *key = member, *value;
	int shown = (int)MIN(n, (size_t)QUOTE_MAX);

	if (!colon || memchr(colon + 1, ':', n - (size_t)(colon + 1 - member))) {
		fe_cause(
			fe, INVALID, "spec.patches",
			"patch format is not valid - one \":\" expected in a single key-value json "
			"patch: %.*s",
			shown, member);
		return;
	}
	size_t n_key = (size_t)(colon - member), n_value = n - n_key - 1;

	value = colon + 1;
	trim(&key, &n_key);
	trim(&value, &n_value);
	if (n_key == 6 && memcmp(key, "\"path\"", 6) == 0 &&
	    !begins_with_one_of(value, n_value, known))
		fe_cause(fe, INVALID, "spec.patches",
			 "patching is valid only for elements under /spec/ only: %.*s", shown,
			 member);
}

static void check_restore_patch(const char *patch, struct field_errs *fe)
{
	const char *end = patch + strlen(patch);

	while (patch < end && strchr("{}", *patch))
		patch++;
	while (end > patch && strchr("{}", end[-1]))
		end--;
	for (const char *p = patch;; p++) {
		const char *comma = memchr(p, ',', (size_t)(end - p));

		check_patch_member(p, (size_t)((comma ? comma : end) - p), fe);
		if (!comma)
			return;
		p = comma;
	}
}

static void check_override(const VolumeRestoreOverride *o, size_t i, struct field_errs *fe)
{
	char field[64];

	(void)snprintf(field, sizeof(field), "spec.volumeRestoreOverrides[%zu].volumeName", i);
	if (str_is_empty(o->volumeName))
		fe_cause(fe, REQUIRED, field, "must provide a volume name");
	*strrchr(field, '.') = '\0';
	if (str_is_empty(o->restoreName) && !o->labels.n && !o->annotations.n)
		fe_cause(fe, REQUIRED, field, "must provide at least one overriden field");
}

enum rc restore_validate(struct hook_ctx *ctx, const void *obj, const void *old,
			 struct field_errs *fe, struct err *err)
{
	const VirtualMachineRestore *r = obj;

	if (!is_new(ctx) || !r->spec.target ||
	    !check_vm_reference(r->spec.target, "spec.target", fe))
		return RC_OK;
	for (size_t i = 0; i < r->spec.n_patches; i++)
		check_restore_patch(r->spec.patches[i], fe);
	for (size_t i = 0; i < r->spec.n_volumeRestoreOverrides; i++)
		check_override(&r->spec.volumeRestoreOverrides[i], i, fe);
	return RC_OK;
}

/* ---- exports ---- */

enum rc export_validate(struct hook_ctx *ctx, const void *obj, const void *old,
			struct field_errs *fe, struct err *err)
{
	static const struct {
		const char *kind, *group, *no_name, *bad_group;
	} known[] = {
		{"PersistentVolumeClaim", "", "PVC name must not be empty",
		 "PVC API group must be missing or blank"},
		{"VirtualMachineSnapshot", SNAPSHOTS, "VMSnapshot name must not be empty",
		 "VMSnapshot API group must be snapshot.kubevirt.io"},
		{"VirtualMachine", CORE, "Virtual Machine name must not be empty",
		 "VM API group must be kubevirt.io"},
		/* Of these nothing more is known here. */
		{"VirtualMachineBackup"},
		{"VirtualMachineTemplate"},
	};
	const VirtualMachineExport *e = obj;
	const TypedLocalObjectReference *r = is_new(ctx) ? e->spec.source : NULL;

	if (!r)
		return RC_OK;
	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		if (!str_eq(r->kind, known[i].kind))
			continue;
		if (known[i].group && str_is_empty(r->name))
			fe_cause(fe, INVALID, "spec.source.name", "%s", known[i].no_name);
		if (known[i].group && !str_eq(r->apiGroup ?: "", known[i].group))
			fe_cause(fe, INVALID, "spec.source.APIGroup", "%s", known[i].bad_group);
		return RC_OK;
	}
	fe_cause(fe, INVALID, "spec.source.kind", "invalid kind");
	return RC_OK;
}

/* ---- clones ---- */

static void check_filter(const char *filter, const char *field, struct field_errs *fe)
{
	size_t n = strlen(filter);

	if (n == 1 && *filter == '!')
		fe_cause(fe, INVALID, field, "a negation character is not a valid filter");
	if (n < 2)
		return;
	if (strchr(filter + 1, '!'))
		fe_cause(
			fe, INVALID, field,
			"%s filter %.*s is invalid: cannot contain a negation character (!); "
			"FilterRules: NegationChar can be only used at the beginning of the filter",
			field, QUOTE_MAX, filter);
	if (memchr(filter, '*', n - 1))
		fe_cause(fe, INVALID, field,
			 "%s filter %.*s is invalid: cannot contain a wildcard character (*); "
			 "FilterRules: WildcardChar can be only at the end of the filter",
			 field, QUOTE_MAX, filter);
}

static void check_filters(char *const *filters, size_t n, const char *field, struct field_errs *fe)
{
	for (size_t i = 0; i < n; i++)
		check_filter(filters[i], field, fe);
}

static void check_clone_ends(const TypedLocalObjectReference *from,
			     const TypedLocalObjectReference *to, struct field_errs *fe)
{
	static const char *const sources[] = {"VirtualMachine", "VirtualMachineSnapshot", NULL};

	if (from && !is_one_of(from->kind, sources))
		fe_cause(fe, INVALID, "spec.Source.Kind", "Source kind is not supported");
	if (to && !str_eq(to->kind, "VirtualMachine"))
		fe_cause(fe, INVALID, "spec.Target.Kind", "Target kind is not supported");
	if (!from)
		return; /* the schema says so */
	if (str_is_empty(from->apiGroup))
		fe_cause(fe, INVALID, "spec.Source.APIGroup", "Source's APIGroup cannot be empty");
	if (str_is_empty(from->kind))
		fe_cause(fe, INVALID, "spec.Source", "Source's Kind cannot be empty");
	if (str_is_empty(from->name))
		fe_cause(fe, INVALID, "spec.Source.Name", "Source's name cannot be empty");
	if (to && str_eq(from->kind, "VirtualMachine") && str_eq(to->kind, "VirtualMachine") &&
	    str_eq(from->name, to->name))
		fe_cause(
			fe, INVALID, "spec.target.name",
			"Target name cannot be equal to source name when both are VirtualMachines");
}

static bool is_json(const char *text)
{
	struct json *j = NULL;
	enum rc rc = js_parse(text, strlen(text), &j, NULL);

	js_unref(j);
	return rc == RC_OK || rc == RC_NOMEM;
}

static void check_clone_rest(const VirtualMachineCloneSpec *s, struct field_errs *fe)
{
	char field[512];

	for (size_t i = 0; i < s->newMacAddresses.n; i++) {
		const struct api_map_item *m = &s->newMacAddresses.items[i];

		(void)snprintf(field, sizeof(field), "spec.newMacAddresses.%s", m->key);
		if (*m->value && !adm_mac_is_valid(m->value))
			fe_cause(fe, INVALID, field,
				 "interface %.*s has malformed MAC address (%.*s).", QUOTE_MAX,
				 m->key, QUOTE_MAX, m->value);
	}
	for (size_t i = 0; i < s->n_patches; i++) {
		(void)snprintf(field, sizeof(field), "spec.patches[%zu]", i);
		if (!is_json(s->patches[i]))
			fe_cause(fe, INVALID, field, "patch is not valid JSON (%.*s)", QUOTE_MAX,
				 s->patches[i]);
	}
}

enum rc clone_validate(struct hook_ctx *ctx, const void *obj, const void *old,
		       struct field_errs *fe, struct err *err)
{
	if (!is_new(ctx))
		return RC_OK;
	const VirtualMachineCloneSpec *s = &((const VirtualMachineClone *)obj)->spec;

	check_filters(s->annotationFilters, s->n_annotationFilters, "spec.annotations", fe);
	check_filters(s->labelFilters, s->n_labelFilters, "spec.labels", fe);
	if (s->template) {
		check_filters(s->template->annotationFilters, s->template->n_annotationFilters,
			      "spec.template.annotations", fe);
		check_filters(s->template->labelFilters, s->template->n_labelFilters,
			      "spec.template.labels", fe);
	}
	check_clone_ends(s->source, s->target, fe);
	check_clone_rest(s, fe);
	return RC_OK;
}

/* ---- presets ---- */

enum rc preset_validate(struct hook_ctx *ctx, const void *obj, const void *old,
			struct field_errs *fe, struct err *err)
{
	const VirtualMachineInstancePreset *p = obj;

	if (is_new(ctx) && !p->spec.domain)
		fe_cause(fe, REQUIRED, "spec.domain", "missing domain.");
	return RC_OK;
}

/* ---- instance types and preferences; those of the cluster have the same layout ---- */

static void check_instancetype(const VirtualMachineInstancetypeSpec *s, struct field_errs *fe)
{
	const MemoryInstancetype *m = s->memory;

	if (m && m->hugepages && API_GET(m, overcommitPercent, 0) != 0)
		fe_cause(fe, INVALID, "spec.memory.overcommitPercent",
			 "spec.memory.overcommitPercent and spec.memory.hugepages should not be "
			 "requested together.");
}

enum rc instancetype_validate(struct hook_ctx *ctx, const void *obj, const void *old,
			      struct field_errs *fe, struct err *err)
{
	if (is_new(ctx))
		check_instancetype(&((const VirtualMachineInstancetype *)obj)->spec, fe);
	return RC_OK;
}

enum rc cluster_instancetype_validate(struct hook_ctx *ctx, const void *obj, const void *old,
				      struct field_errs *fe, struct err *err)
{
	if (is_new(ctx))
		check_instancetype(&((const VirtualMachineClusterInstancetype *)obj)->spec, fe);
	return RC_OK;
}

static void check_preference(const VirtualMachinePreferenceSpec *s, struct field_errs *fe)
{
	static const char *const spreads[] = {"spread", "preferSpread", NULL};
	const SpreadOptions *o = s->cpu ? s->cpu->spreadOptions : NULL;
	int64_t ratio = API_GET(s, preferSpreadSocketToCoreRatio, 0);

	if (o && o->has_ratio)
		ratio = o->ratio;
	if (o && is_one_of(s->cpu->preferredCPUTopology, spreads) &&
	    str_eq(o->across, "CoresThreads") && ratio != 0 && ratio != 2)
		fe_cause(
			fe, INVALID, "spec.cpu.spreadOptions.ratio",
			"only a ratio of 2 (1 core 2 threads) is allowed when spreading vCPUs over "
			"cores and threads");
}

enum rc preference_validate(struct hook_ctx *ctx, const void *obj, const void *old,
			    struct field_errs *fe, struct err *err)
{
	if (is_new(ctx))
		check_preference(&((const VirtualMachinePreference *)obj)->spec, fe);
	return RC_OK;
}

enum rc cluster_preference_validate(struct hook_ctx *ctx, const void *obj, const void *old,
				    struct field_errs *fe, struct err *err)
{
	if (is_new(ctx))
		check_preference(&((const VirtualMachineClusterPreference *)obj)->spec, fe);
	return RC_OK;
}
