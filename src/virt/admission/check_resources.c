#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "json/json.h"
#include "virt/admission/admission_int.h"
#include "virt/names.h"

/* Memory and CPU: rules 1-10 and 12 of KubeVirt's VMI webhook, and unknown CPU models.  Quantities are
 * well-formed here: the schema has said so, or has reported it. */

static bool quantity(const char *text, struct api_quantity *out)
{
	return text && api_quantity_parse(text, out, NULL) == RC_OK;
}

static const char *request(const struct check *c, const char *key)
{
	const ResourceRequirements *r = c->spec->domain.resources;

	return r ? api_map_get(&r->requests, key) : NULL;
}

static const char *limit(const struct check *c, const char *key)
{
	const ResourceRequirements *r = c->spec->domain.resources;

	return r ? api_map_get(&r->limits, key) : NULL;
}

static void check_request_vs_limit(struct check *c, const char *key)
{
	struct api_quantity req, lim;

	if (!quantity(request(c, key), &req) || !quantity(limit(c, key), &lim) ||
	    api_quantity_cmp(&req, &lim) <= 0)
		return;
	const char *path = at(c, "domain.resources.requests.%s", key);

	fe_cause(c->fe, INVALID, path, "%s '%s' is greater than %s '%s'", path, request(c, key),
		 at(c, "domain.resources.limits.%s", key), limit(c, key));
}

static void check_not_negative(struct check *c, const char *path, const char *text)
{
	struct api_quantity q;

	if (quantity(text, &q) && q.nano < 0)
		fe_cause(c->fe, INVALID, path, "%s '%s': must be greater than or equal to 0.", path,
			 text);
}

/* At least the smallest amount that a guest can be given; path names the field. */
static void check_amount(struct check *c, const char *path, const char *text)
{
	struct api_quantity q, zero = api_quantity_of(0, API_Q_DECIMAL);
	struct api_quantity least = api_quantity_of(1000 * 1000, API_Q_DECIMAL);

	if (!quantity(text, &q))
		return;
	if (api_quantity_cmp(&q, &zero) < 0)
		fe_cause(c->fe, INVALID, path, "%s '%s': must be greater than or equal to 0.", path,
			 text);
	else if (api_quantity_cmp(&q, &least) < 0)
		fe_cause(c->fe, INVALID, path, "%s '%s': must be greater than or equal to 1M.",
			 path, text);
}

/* What the launcher gives a guest: from 4 MiB to 64 TiB. */
static void check_size(struct check *c, const char *path, const char *guest)
{
	struct api_quantity g;
	struct api_quantity least = api_quantity_of(4 * (int64_t)MIB, API_Q_BINARY);
	struct api_quantity most = api_quantity_of((int64_t)1 << 46, API_Q_BINARY);

	if (!quantity(guest, &g))
		return;
	if (g.nano > 0 && api_quantity_cmp(&g, &least) < 0)
		fe_cause(c->fe, INVALID, path, "%s '%s': a guest has at least 4Mi", path, guest);
	else if (api_quantity_cmp(&g, &most) > 0)
		fe_cause(c->fe, INVALID, path, "%s '%s': a guest has at most 64Ti", path, guest);
}

static void check_guest_memory(struct check *c, const char *guest)
{
	struct api_quantity g, lim;
	const char *path = at(c, "domain.memory.guest");

	check_size(c, path, guest);
	if (quantity(guest, &g) && quantity(limit(c, "memory"), &lim) &&
	    api_quantity_cmp(&g, &lim) > 0)
		fe_cause(c->fe, INVALID, path,
			 "%s '%s' must be equal to or less than the memory limit %s '%s'", path,
			 guest, at(c, "domain.resources.limits.memory"), limit(c, "memory"));
}

static void check_hugepages(struct check *c, const char *page)
{
	struct api_quantity q, req;
	struct err err = {0};
	const char *path = at(c, "domain.memory.hugepages.pageSize");

	if (api_quantity_parse(page, &q, &err)) {
		fe_cause(c->fe, INVALID, path, "%s '%s': %s", path, page, err.msg);
		return;
	}
	if (!quantity(request(c, "memory"), &req) || q.nano <= 0)
		return;
	const char *req_path = at(c, "domain.resources.requests.memory");

	if (api_quantity_cmp(&req, &q) < 0)
		fe_cause(c->fe, INVALID, req_path,
			 "%s '%s' must be equal to or larger than page size %s '%s'", req_path,
			 request(c, "memory"), path, page);
	else if (req.nano % q.nano)
		fe_cause(c->fe, INVALID, req_path,
			 "%s '%s' is not a multiple of the page size %s '%s'", req_path,
			 request(c, "memory"), path, page);
}

void check_memory(struct check *c)
{
	const Memory *m = c->spec->domain.memory;

	check_amount(c, at(c, "domain.resources.requests.memory"), request(c, "memory"));
	check_amount(c, at(c, "domain.resources.limits.memory"), limit(c, "memory"));
	check_request_vs_limit(c, "memory");
	if (m && m->guest)
		check_guest_memory(c, m->guest);
	if (m && m->hugepages && m->hugepages->pageSize)
		check_hugepages(c, m->hugepages->pageSize);
}

/* CPU */

/* Models of QEMU 10 on x86 without their versions: a name that is neither here nor on a node's label is
 * a typing error.  One that is here but on no node is left to the scheduler, which says so per node. */
static const char *const qemu_models[] = {
	"486",
	"Broadwell",
	"Broadwell-IBRS",
	"Broadwell-noTSX",
	"Broadwell-noTSX-IBRS",
	"Cascadelake-Server",
	"Cascadelake-Server-noTSX",
	"ClearwaterForest",
	"Conroe",
	"Cooperlake",
	"Denverton",
	"Dhyana",
	"EPYC",
	"EPYC-Genoa",
	"EPYC-IBPB",
	"EPYC-Milan",
	"EPYC-Rome",
	"GraniteRapids",
	"Haswell",
	"Haswell-IBRS",
	"Haswell-noTSX",
	"Haswell-noTSX-IBRS",
	"Icelake-Server",
	"Icelake-Server-noTSX",
	"IvyBridge",
	"IvyBridge-IBRS",
	"KnightsMill",
	"Nehalem",
	"Nehalem-IBRS",
	"Opteron_G1",
	"Opteron_G2",
	"Opteron_G3",
	"Opteron_G4",
	"Opteron_G5",
	"Penryn",
	"SandyBridge",
	"SandyBridge-IBRS",
	"SapphireRapids",
	"SierraForest",
	"Skylake-Client",
	"Skylake-Client-IBRS",
	"Skylake-Client-noTSX-IBRS",
	"Skylake-Server",
	"Skylake-Server-IBRS",
	"Skylake-Server-noTSX-IBRS",
	"Snowridge",
	"Westmere",
	"Westmere-IBRS",
	"YongFeng",
	"athlon",
	"core2duo",
	"coreduo",
	"kvm32",
	"kvm64",
	"n270",
	"pentium",
	"pentium2",
	"pentium3",
	"phenom",
	"qemu32",
	"qemu64",
	"max",
	"host-model",
	"host-passthrough",
	NULL,
};

enum { NEAREST = 3 };

/* The names nearest to a wrong one, best first, and whether the name itself was met. */
struct nearest {
	const char *wanted;
	size_t n_wanted; /* without "-v<n>" */
	bool is_known;
	unsigned distance[NEAREST];
	char name[NEAREST][64];
};

static void consider(struct nearest *n, const char *name)
{
	unsigned d = str_distance(n->wanted, name);
	size_t i = NEAREST;

	if (str_eq(name, n->wanted) ||
	    (strlen(name) == n->n_wanted && !strncmp(name, n->wanted, n->n_wanted)))
		n->is_known = true;
	for (size_t k = 0; k < NEAREST; k++)
		if (str_eq(n->name[k], name))
			return;
	while (i > 0 && (!n->name[i - 1][0] || d < n->distance[i - 1]))
		i--;
	if (i == NEAREST)
		return;
	memmove(&n->name[i + 1], &n->name[i], (NEAREST - 1 - i) * sizeof(n->name[0]));
	memmove(&n->distance[i + 1], &n->distance[i], (NEAREST - 1 - i) * sizeof(n->distance[0]));
	snprintf(n->name[i], sizeof(n->name[i]), "%s", name);
	n->distance[i] = d;
}

static bool consider_node(const struct json *node, void *arg)
{
	JS_FOREACH(it, js_at(node, "metadata", "labels", NULL))
		if (str_has_prefix(it.key, LABEL_CPU_MODEL))
			consider(arg, it.key + strlen(LABEL_CPU_MODEL));
	return true;
}

static size_t without_version(const char *model)
{
	size_t n = strlen(model), digits = 0;

	while (digits < n && model[n - 1 - digits] >= '0' && model[n - 1 - digits] <= '9')
		digits++;
	if (digits && n > digits + 2 && model[n - digits - 1] == 'v' &&
	    model[n - digits - 2] == '-')
		return n - digits - 2;
	return n;
}

void adm_check_cpu_model(struct hook_env *env, const char *path, const char *model,
			 struct field_errs *fe)
{
	struct nearest n = {.wanted = model, .n_wanted = without_version(model)};

	if (env)
		hook_each(env, "nodes", NULL, consider_node, &n);
	for (const char *const *m = qemu_models; *m; m++)
		consider(&n, *m);
	if (n.is_known)
		return;
	fe_cause(fe, NOT_SUPPORTED, path,
		 "unknown CPU model '%s'; the nearest names are '%s', '%s', '%s'", model, n.name[0],
		 n.name[1], n.name[2]);
}

/* What the launcher lets stand between commas on QEMU's command line. */
static const char word[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";

static void check_features(struct check *c, const CPU *cpu)
{
	static const char *const policies[] = {"force",	 "require", "optional", "disable",
					       "forbid", "",	    NULL};
	for (size_t i = 0; i < cpu->n_features; i++) {
		const CPUFeature *f = &cpu->features[i];

		if (f->name &&
		    (!*f->name || strlen(f->name) > 64 || strspn(f->name, word) != strlen(f->name)))
			fe_cause(c->fe, INVALID, at(c, "domain.cpu.features[%zu].name", i),
				 "%s must be made up of at most 64 of the characters "
				 "[A-Za-z0-9_.-]",
				 at(c, "domain.cpu.features[%zu].name", i));
		if (f->policy && !is_one_of(f->policy, policies))
			fe_cause(c->fe, INVALID, at(c, "domain.cpu.features[%zu].policy", i),
				 "CPU feature %s uses policy %s that is not supported.", f->name,
				 f->policy);
	}
}

/* The launcher's and QEMU's limit on this machine type. */
enum { VCPUS_MAX = 288 };

static void check_topology(struct check *c, const CPU *cpu)
{
	int64_t sockets = MAX(cpu->sockets, 1), cores = MAX(cpu->cores, 1),
		threads = MAX(cpu->threads, 1);

	if (cpu->has_maxSockets && cpu->maxSockets && cpu->sockets > cpu->maxSockets)
		fe_cause(c->fe, INVALID, at(c, "domain.cpu.sockets"),
			 "Number of sockets in CPU topology is greater than the maximum sockets "
			 "allowed");
	if (sockets > VCPUS_MAX || cores > VCPUS_MAX || threads > VCPUS_MAX ||
	    sockets * cores * threads > VCPUS_MAX)
		fe_cause(c->fe, INVALID, at(c, "domain.cpu"),
			 "%s has more than %d vCPUs in its topology", at(c, "domain.cpu"),
			 VCPUS_MAX);
}

static bool machine_is_allowed(const struct adm_cluster *c, const char *type, char *allowed,
			       size_t n)
{
	static char *const defaults[] = {(char *)(uintptr_t) "q35*", (char *)(uintptr_t) "pc-q35*"};
	const ArchConfiguration *arch = c->config->architectureConfiguration;
	char *const *globs = defaults;
	size_t n_globs = ARRAY_SIZE(defaults), at_ = 0;
	bool ok = false;

	if (arch && arch->amd64 && arch->amd64->n_emulatedMachines) {
		globs = arch->amd64->emulatedMachines;
		n_globs = arch->amd64->n_emulatedMachines;
	} else if (c->config->n_emulatedMachines) {
		globs = c->config->emulatedMachines;
		n_globs = c->config->n_emulatedMachines;
	}
	for (size_t i = 0; i < n_globs; i++) {
		int put = snprintf(allowed + at_, n - at_, "%s%s", i ? " " : "", globs[i]);

		ok |= fnmatch(globs[i], type, 0) == 0;
		at_ = put > 0 && at_ + (size_t)put < n ? at_ + (size_t)put : n - 1;
	}
	return ok;
}

void check_cpu(struct check *c)
{
	const CPU *cpu = c->spec->domain.cpu;
	const Machine *m = c->spec->domain.machine;
	char allowed[256] = "";

	check_not_negative(c, at(c, "domain.resources.requests.cpu"), request(c, "cpu"));
	check_not_negative(c, at(c, "domain.resources.limits.cpu"), limit(c, "cpu"));
	check_request_vs_limit(c, "cpu");
	if (cpu) {
		check_features(c, cpu);
		check_topology(c, cpu);
		if (!str_is_empty(cpu->model))
			adm_check_cpu_model(c->cluster->env, at(c, "domain.cpu.model"), cpu->model,
					    c->fe);
		if (cpu->isolateEmulatorThread && !cpu->dedicatedCpuPlacement)
			fe_cause(c->fe, INVALID, at(c, "domain.cpu.isolateEmulatorThread"),
				 "IsolateEmulatorThread should be only set in combination with "
				 "DedicatedCPUPlacement");
	}
	/* A glob allows what QEMU would take for more options. */
	if (m && !str_is_empty(m->type) &&
	    (!machine_is_allowed(c->cluster, m->type, allowed, sizeof(allowed)) ||
	     strlen(m->type) > 64 || strspn(m->type, word) != strlen(m->type)))
		fe_cause(c->fe, INVALID, at(c, "domain.machine.type"),
			 "%s is not supported: %s (allowed values: [%s])",
			 at(c, "domain.machine.type"), m->type, allowed);
}
