#include "virt/node/cpulabels.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "base/try.h"
#include "json/json.h"
#include "virt/migration/compat.h"
#include "virt/names.h"

enum { LABEL_NAME_MAX = 63 };

static const char *const obsolete[] = {
	"486",	  "pentium",  "pentium2", "pentium3",	"pentiumpro", "coreduo",
	"n270",	  "core2duo", "Conroe",	  "athlon",	"phenom",     "qemu32",
	"qemu64", "kvm32",    "kvm64",	  "Opteron_G1", "Opteron_G2",
};

/* Names that stand for "whatever there is": no model to migrate to. */
static const char *const unnamed[] = {"max", "host", "base"};

/* Switches among the properties that are no feature of a CPU, or differ from machine to machine. */
static const char *const no_feature[] = {"lmce",    "hypervisor", "check",
					 "enforce", "migratable", "pmu"};

static const char *const families[] = {
	LABEL_CPU_MODEL,      LABEL_CPU_MODEL_MIGRATION, LABEL_CPU_FEATURE,  LABEL_CPU_VENDOR,
	LABEL_HOST_MODEL_CPU, LABEL_HOST_MODEL_FEATURE,	 LABEL_MACHINE_TYPE, LABEL_QEMU,
};

static bool is_in(const char *const *list, size_t n, const char *s)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(list[i], s) == 0)
			return true;
	return false;
}

bool cpu_label_is_ours(const char *key)
{
	for (size_t i = 0; i < ARRAY_SIZE(families); i++)
		if (str_has_prefix(key, families[i]))
			return true;
	return strcmp(key, LABEL_OBSOLETE_HOST_MODEL) == 0;
}

bool cpu_model_is_obsolete(const char *name)
{
	char base[64];
	size_t n = strlen(name);

	if (n > 3 && n < sizeof(base) && strcmp(name + n - 3, "-v1") == 0) {
		memcpy(base, name, n - 3);
		base[n - 3] = '\0';
		name = base;
	}
	return is_in(obsolete, ARRAY_SIZE(obsolete), name);
}

static bool is_usable(const struct json *def)
{
	const char *name = js_get_str(def, "name");
	const struct json *missing = js_get(def, "unavailable-features");

	return name && !is_in(unnamed, ARRAY_SIZE(unnamed), name) && js_is_array(missing) &&
	       js_len(missing) == 0;
}

static const struct json *find_def(const struct json *probe, const char *name)
{
	const struct json *defs = js_get(probe, "definitions");

	for (size_t i = 0; i < js_len(defs); i++)
		if (str_eq(js_get_str(js_item(defs, i), "name"), name))
			return js_item(defs, i);
	return NULL;
}

bool cpu_model_is_usable(const struct json *probe, const char *name)
{
	const struct json *def = find_def(probe, name);

	return def && is_usable(def);
}

const char *cpu_machine_resolve(const struct json *probe, const char *name)
{
	const struct json *list = js_get(probe, "machines");

	for (size_t i = 0; i < js_len(list); i++) {
		const struct json *m = js_item(list, i);

		if (str_eq(js_get_str(m, "name"), name) || str_eq(js_get_str(m, "alias"), name))
			return js_get_str(m, "name");
	}
	return NULL;
}

bool cpu_feature_counts(const char *name)
{
	return !is_in(no_feature, ARRAY_SIZE(no_feature), name);
}

bool cpu_feature_is_kept_back(const struct json *probe, const char *name)
{
	const struct json *list = js_get(probe, "without");

	for (size_t i = 0; i < js_len(list); i++)
		if (str_eq(js_str(js_item(list, i)), name))
			return true;
	return false;
}

bool cpu_feature_is_given(const struct json *probe, const char *name)
{
	return js_get_bool(js_get(probe, "host"), name, false);
}

const struct json *cpu_model_lacks(const struct json *probe, const char *name)
{
	return js_get(find_def(probe, name), "unavailable-features");
}

static bool is_feature(const char *name, const struct json *value)
{
	return js_type(value) == JS_BOOL && js_bool(value, false) && cpu_feature_counts(name);
}

static bool has_version(const char *name)
{
	const char *dash = strrchr(name, '-');

	return dash && dash[1] == 'v' && isdigit((unsigned char)dash[2]);
}

static size_t missing_of(const struct json *host, const struct json *model, const char **out)
{
	size_t n = 0;

	JS_FOREACH(it, host)
		if (is_feature(it.key, it.value) && !js_get_bool(model, it.key, false)) {
			if (out)
				out[n] = it.key;
			n++;
		}
	return n;
}

struct candidate {
	const char *name;
	size_t missing;
	bool obsolete;
};

/* Is a the better host-model? See the header. */
static bool is_better(const struct candidate *a, const struct candidate *b)
{
	if (!b->name)
		return true;
	if (a->obsolete != b->obsolete)
		return !a->obsolete;
	if (a->missing != b->missing)
		return a->missing < b->missing;
	if (has_version(a->name) != has_version(b->name))
		return !has_version(a->name);
	return strcmp(a->name, b->name) < 0;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

enum rc cpu_host_model_choose(const struct json *probe, struct cpu_host_model *out, struct err *err)
{
	const struct json *host = js_get(probe, "host");
	const struct json *models = js_get(probe, "models");
	struct candidate best = {0};

	JS_FOREACH(it, models) {
		const struct json *def = find_def(probe, it.key);
		struct candidate c = {.name = it.key,
				      .missing = missing_of(host, it.value, NULL),
				      .obsolete = cpu_model_is_obsolete(it.key) ||
						  js_get_bool(def, "deprecated", false)};

		if (def && is_usable(def) && is_better(&c, &best))
			best = c;
	}
	*out = (struct cpu_host_model){.name = best.name, .is_obsolete = best.obsolete};
	if (!best.name || !best.missing)
		return RC_OK;
	out->required = mem_calloc(best.missing, sizeof(*out->required));
	if (!out->required)
		return err_set(err, RC_NOMEM, "out of memory");
	out->n_required = missing_of(host, js_get(models, best.name), out->required);
	qsort(out->required, out->n_required, sizeof(*out->required), by_text);
	return RC_OK;
}

void cpu_host_model_fini(struct cpu_host_model *m)
{
	m->required = mem_free(m->required);
	m->n_required = 0;
}

/* QEMU's names may hold characters that a label may not ("Opteron_G5" is fine, "sse4.1" too). */
static bool is_label_name(const char *s)
{
	size_t n = strlen(s);

	if (!n || n > LABEL_NAME_MAX || !isalnum((unsigned char)*s) ||
	    !isalnum((unsigned char)s[n - 1]))
		return false;
	for (; *s; s++)
		if (!isalnum((unsigned char)*s) && !strchr("._-", *s))
			return false;
	return true;
}

static enum rc add(struct api_map *labels, const char *family, const char *name)
{
	char key[160];

	if (!is_label_name(name))
		return RC_OK;
	(void)snprintf(key, sizeof(key), "%s%s", family, name);
	return api_map_set(labels, key, "true");
}

static const char *vendor_name(const char *vendor)
{
	if (str_eq(vendor, "GenuineIntel"))
		return "Intel";
	if (str_eq(vendor, "AuthenticAMD"))
		return "AMD";
	if (str_eq(vendor, "HygonGenuine"))
		return "Hygon";
	return vendor;
}

static enum rc add_models(const struct json *probe, struct api_map *labels)
{
	const struct json *defs = js_get(probe, "definitions");
	enum rc rc = RC_OK;

	for (size_t i = 0; !rc && i < js_len(defs); i++) {
		const struct json *d = js_item(defs, i);
		const char *name = js_get_str(d, "name");

		if (!is_usable(d))
			continue;
		rc = add(labels, LABEL_CPU_MODEL_MIGRATION, name);
		if (!rc && !cpu_model_is_obsolete(name))
			rc = add(labels, LABEL_CPU_MODEL, name);
	}
	return rc;
}

static enum rc add_machines(const struct json *probe, struct api_map *labels)
{
	const struct json *list = js_get(probe, "machines");
	enum rc rc = RC_OK;

	for (size_t i = 0; !rc && i < js_len(list); i++) {
		const char *name = js_get_str(js_item(list, i), "name");
		const char *alias = js_get_str(js_item(list, i), "alias");

		if (name && strcmp(name, "none") != 0)
			rc = add(labels, LABEL_MACHINE_TYPE, name);
		if (!rc && alias)
			rc = add(labels, LABEL_MACHINE_TYPE, alias);
	}
	return rc;
}

static enum rc add_host_model(const struct json *probe, struct api_map *labels, struct err *err)
{
	struct cpu_host_model hm = {0};
	enum rc rc = cpu_host_model_choose(probe, &hm, err);

	if (!rc && hm.name) {
		rc = add(labels, LABEL_HOST_MODEL_CPU, hm.name);
		if (!rc)
			rc = add(labels, LABEL_CPU_MODEL_MIGRATION, hm.name);
		if (!rc && hm.is_obsolete)
			rc = api_map_set(labels, LABEL_OBSOLETE_HOST_MODEL, "true");
	}
	for (size_t i = 0; !rc && i < hm.n_required; i++)
		rc = add(labels, LABEL_HOST_MODEL_FEATURE, hm.required[i]);
	cpu_host_model_fini(&hm);
	return rc;
}

static enum rc add_qemu(const struct json *probe, struct api_map *labels)
{
	const char *version = js_get_str(probe, "version");
	int64_t level = compat_qemu_level(version);

	if (!level)
		return RC_OK;
	TRY(api_map_set(labels, LABEL_QEMU_VERSION, version));
	return api_map_setf(labels, LABEL_QEMU_LEVEL, "%lld", (long long)level);
}

static enum rc add_ways(const struct json *probe, struct api_map *labels)
{
	static const struct {
		const char *capability, *label;
	} ways[] = {{"multifd", LABEL_QEMU_MULTIFD}, {"xbzrle", LABEL_QEMU_XBZRLE}};
	const struct json *list = js_get(probe, "capabilities");

	for (size_t i = 0; i < js_len(list); i++)
		for (size_t k = 0; k < ARRAY_SIZE(ways); k++)
			if (str_eq(js_get_str(js_item(list, i), "capability"), ways[k].capability))
				TRY(api_map_set(labels, ways[k].label, "true"));
	return js_get_bool(probe, "zstd", false) ? api_map_set(labels, LABEL_QEMU_ZSTD, "true")
						 : RC_OK;
}

enum rc cpu_labels(const struct json *probe, struct api_map *labels, struct err *err)
{
	const struct json *host = js_get(probe, "host");
	const char *vendor = vendor_name(js_get_str(host, "vendor"));
	enum rc rc = add_models(probe, labels);

	JS_FOREACH(it, host)
		if (!rc && is_feature(it.key, it.value))
			rc = add(labels, LABEL_CPU_FEATURE, it.key);
	if (!rc && vendor)
		rc = add(labels, LABEL_CPU_VENDOR, vendor);
	if (!rc)
		rc = add_host_model(probe, labels, err);
	if (!rc)
		rc = add_machines(probe, labels);
	if (!rc)
		rc = add_qemu(probe, labels);
	if (!rc)
		rc = add_ways(probe, labels);
	return rc ? err_set(err, rc, "cannot list the node's labels") : RC_OK;
}
