/* src/virt/node/cpulabels.h - what QEMU says about CPUs and machines, as node labels.
 *
 * Pure.  The probe is one JSON document (made by cpuprobe.c, kept in the state folder):
 *   {"accel": "kvm"|"tcg", "version": "10.0.2", "without": [names of features],
 *    "machines": [query-machines], "definitions": [query-cpu-definitions],
 *    "host": {props}, "models": {"<name>": {props}},
 *    "capabilities": [query-migrate-capabilities], "zstd": QEMU compresses moves with it}
 * where props are those of query-cpu-model-expansion, type static: of "host" (KVM) or "max" (TCG), and of
 * the usable named models that may stand for host-model.  "without" are the features that this node keeps
 * from its guests: host has them off, and a model that has one lists it among its unavailable features.
 *
 * host-model.  QEMU on x86 compares no models, so the rule is ours: among the usable named models that
 * are neither obsolete nor deprecated, the one that lacks the fewest of the host's features; of equals
 * the one without a version suffix, then the first in the alphabet.  What it lacks are the required
 * features: a host-model guest runs that model plus these.
 */
#ifndef NODE_CPULABELS_H
#define NODE_CPULABELS_H

#include "api/map.h"
#include "base/err.h"

struct json;

/* Everything below is borrowed from the probe unless it says otherwise. */
struct cpu_host_model {
	const char *name; /* NULL: no named model is usable */
	size_t n_required;
	const char **required; /* owned: cpu_host_model_fini(); sorted */
	bool is_obsolete;      /* only obsolete models are usable */
};

MUST_CHECK enum rc cpu_host_model_choose(const struct json *probe, struct cpu_host_model *out,
					 struct err *err);
void cpu_host_model_fini(struct cpu_host_model *m);

/* Adds the label families of facts 7.1 that concern CPU and machine types. */
MUST_CHECK enum rc cpu_labels(const struct json *probe, struct api_map *labels, struct err *err);
/* Is this label key one of the families that cpu_labels() owns (and so removes when it is stale)? */
bool cpu_label_is_ours(const char *key);

/* Can a guest be given this named model here, without a feature missing? */
bool cpu_model_is_usable(const struct json *probe, const char *name);
/* Has every guest of this node to do without it? */
bool cpu_feature_is_kept_back(const struct json *probe, const char *name);
/* The node has it, and gives it to guests. */
bool cpu_feature_is_given(const struct json *probe, const char *name);
/* What this model lacks here, of query-cpu-definitions; NULL: no such model. */
const struct json *cpu_model_lacks(const struct json *probe, const char *name);
/* Of the switches of a CPU: does this one say what the machine can do? */
bool cpu_feature_counts(const char *name);
bool cpu_model_is_obsolete(const char *name); /* facts 7.4 */
/* "pc-q35-10.0" for "q35"; the name itself when it is no alias; NULL: unknown machine type. */
const char *cpu_machine_resolve(const struct json *probe, const char *name);

#endif
