#include "sched/predicates.h"

#include <stdio.h>
#include <stdlib.h>

#include "api/labels.h"
#include "api/meta.h"
#include "api/quantity.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/try.h"

#define TAINT_NOT_READY "node.kubernetes.io/not-ready"
/* The node's agent says by it that it is at work: it comes back with the agent, so waiting helps. */
#define LABEL_AT_WORK "kubevirt.io/schedulable"
#define TAINT_CORDON  "node.kubernetes.io/unschedulable"

/* ---- resources ---- */

static int64_t *extended_slot(struct sched_res *r, const char *name)
{
	for (size_t i = 0; i < r->n_extended; i++)
		if (str_eq(r->extended[i].name, name))
			return &r->extended[i].n;
	if (r->n_extended == SCHED_MAX_EXTENDED)
		return NULL;
	r->extended[r->n_extended].name = name;
	return &r->extended[r->n_extended++].n;
}

static int64_t extended_get(const struct sched_res *r, const char *name)
{
	for (size_t i = 0; i < r->n_extended; i++)
		if (str_eq(r->extended[i].name, name))
			return r->extended[i].n;
	return 0;
}

static void res_add_list(struct sched_res *r, const struct api_map *m)
{
	for (size_t i = 0; i < m->n; i++) {
		const char *name = m->items[i].key, *text = m->items[i].value;

		if (str_eq(name, "cpu")) {
			r->milli_cpu += api_quantity_to_milli(text, 0);
		} else if (str_eq(name, "memory")) {
			r->memory += api_quantity_bytes(text, 0);
		} else if (str_eq(name, "ephemeral-storage")) {
			r->storage += api_quantity_bytes(text, 0);
		} else if (str_eq(name, "pods")) {
			r->pods += api_quantity_bytes(text, 0);
		} else {
			int64_t *slot = extended_slot(r, name);

			if (slot)
				*slot += api_quantity_bytes(text, 0);
		}
	}
}

static void res_add(struct sched_res *r, const struct sched_res *more)
{
	r->milli_cpu += more->milli_cpu;
	r->memory += more->memory;
	r->storage += more->storage;
	r->pods += more->pods;
	for (size_t i = 0; i < more->n_extended; i++) {
		int64_t *slot = extended_slot(r, more->extended[i].name);

		if (slot)
			*slot += more->extended[i].n;
	}
}

static void res_max(struct sched_res *r, const struct sched_res *other)
{
	r->milli_cpu = MAX(r->milli_cpu, other->milli_cpu);
	r->memory = MAX(r->memory, other->memory);
	r->storage = MAX(r->storage, other->storage);
	for (size_t i = 0; i < other->n_extended; i++) {
		int64_t *slot = extended_slot(r, other->extended[i].name);

		if (slot)
			*slot = MAX(*slot, other->extended[i].n);
	}
}

void sched_pod_requests(const Pod *pod, struct sched_res *out)
{
	struct sched_res init = {0};

	memset(out, 0, sizeof(*out));
	for (size_t i = 0; i < pod->spec.n_containers; i++)
		if (pod->spec.containers[i].resources)
			res_add_list(out, &pod->spec.containers[i].resources->requests);
	for (size_t i = 0; i < pod->spec.n_initContainers; i++) {
		const Container *c = &pod->spec.initContainers[i];
		struct sched_res one = {0};

		if (!c->resources)
			continue;
		res_add_list(&one, &c->resources->requests);
		if (str_eq(c->restartPolicy, "Always"))
			res_add(out, &one);
		else
			res_max(&init, &one);
	}
	res_max(out, &init);
	out->pods = 1;
}

bool sched_pod_is_final(const Pod *pod)
{
	return str_eq(pod->status.phase, "Succeeded") || str_eq(pod->status.phase, "Failed");
}

/* ---- the snapshot ---- */

void sched_cluster_init(struct sched_cluster *c)
{
	memset(c, 0, sizeof(*c));
}

void sched_cluster_fini(struct sched_cluster *c)
{
	for (size_t i = 0; i < c->n_nodes; i++)
		mem_free(c->nodes[i].pods);
	mem_free(c->nodes);
	mem_free(c->namespaces);
	memset(c, 0, sizeof(*c));
}

enum rc sched_cluster_add_node(struct sched_cluster *c, const Node *node)
{
	if (!mem_grow((void **)&c->nodes, &c->cap_nodes, c->n_nodes, sizeof(*c->nodes)))
		return RC_NOMEM;
	struct sched_node *n = &c->nodes[c->n_nodes++];

	memset(n, 0, sizeof(*n));
	n->node = node;
	res_add_list(&n->allocatable, node->status.allocatable.n ? &node->status.allocatable
								 : &node->status.capacity);
	return RC_OK;
}

enum rc sched_cluster_add_namespace(struct sched_cluster *c, const Namespace *ns)
{
	if (!mem_grow((void **)&c->namespaces, &c->cap_namespaces, c->n_namespaces,
		      sizeof(*c->namespaces)))
		return RC_NOMEM;
	c->namespaces[c->n_namespaces++] = ns;
	return RC_OK;
}

struct sched_node *sched_cluster_node(struct sched_cluster *c, const char *name)
{
	for (size_t i = 0; i < c->n_nodes; i++)
		if (str_eq(c->nodes[i].node->metadata.name, name))
			return &c->nodes[i];
	return NULL;
}

enum rc sched_cluster_assume(struct sched_cluster *c, struct sched_node *node, const Pod *pod)
{
	struct sched_res r;

	(void)c;
	if (!mem_grow((void **)&node->pods, &node->cap_pods, node->n_pods, sizeof(*node->pods)))
		return RC_NOMEM;
	node->pods[node->n_pods++] = pod;
	sched_pod_requests(pod, &r);
	res_add(&node->used, &r);
	return RC_OK;
}

enum rc sched_cluster_add_pod(struct sched_cluster *c, const Pod *pod)
{
	if (str_is_empty(pod->spec.nodeName) || sched_pod_is_final(pod))
		return RC_OK;
	struct sched_node *n = sched_cluster_node(c, pod->spec.nodeName);

	return n ? sched_cluster_assume(c, n, pod) : RC_OK;
}

/* ---- reasons ---- */

static void refuse(struct sched_verdict *v, const char *plugin, bool is_lasting, const char *text,
		   const char *detail)
{
	if (v->n == SCHED_MAX_REASONS)
		return;
	struct sched_reason *r = &v->reasons[v->n++];

	r->is_lasting = is_lasting;
	r->plugin = plugin;
	snprintf(r->text, sizeof(r->text), "%s", text);
	snprintf(r->detail, sizeof(r->detail), "%s", detail);
}

bool sched_verdict_is_lasting(const struct sched_verdict *v)
{
	for (size_t i = 0; i < v->n; i++)
		if (v->reasons[i].is_lasting)
			return true;
	return false;
}

/* ---- taints, cordon, readiness ---- */

static bool toleration_matches(const Toleration *t, const char *key, const char *value,
			       const char *effect)
{
	if (!str_is_empty(t->effect) && !str_eq(t->effect, effect))
		return false;
	if (!str_is_empty(t->key) && !str_eq(t->key, key))
		return false;
	if (str_eq(t->operator, "Exists"))
		return true;
	if (str_is_empty(t->key))
		return false; /* an empty key needs Exists */
	return str_eq(t->value ? t->value : "", value ? value : "");
}

static bool tolerates(const Pod *pod, const char *key, const char *value, const char *effect)
{
	for (size_t i = 0; i < pod->spec.n_tolerations; i++)
		if (toleration_matches(&pod->spec.tolerations[i], key, value, effect))
			return true;
	return false;
}

static bool node_is_ready(const Node *node)
{
	return API_COND_IS(&node->status, NodeCondition, "Ready", "True");
}

static void check_cordon(const struct sched_node *n, const Pod *pod, struct sched_verdict *v)
{
	if (API_GET(&n->node->spec, unschedulable, false) &&
	    !tolerates(pod, TAINT_CORDON, NULL, "NoSchedule"))
		refuse(v, "NodeUnschedulable", false, "node(s) were unschedulable",
		       "the node is cordoned");
}

static void check_taints(const struct sched_node *n, const Pod *pod, struct sched_verdict *v)
{
	const Node *node = n->node;
	char text[192];

	for (size_t i = 0; i < node->spec.n_taints; i++) {
		const Taint *t = &node->spec.taints[i];

		if (!str_eq(t->effect, "NoSchedule") && !str_eq(t->effect, "NoExecute"))
			continue;
		if (str_eq(t->key, TAINT_CORDON) && API_GET(&node->spec, unschedulable, false))
			continue; /* said by check_cordon() */
		if (tolerates(pod, t->key, t->value, t->effect))
			continue;
		snprintf(text, sizeof(text), "node(s) had untolerated taint {%s: %s}", t->key,
			 t->value ? t->value : "");
		refuse(v, "TaintToleration", false, text, text);
		return; /* the first one is named, as kube-scheduler does */
	}
	if (!node_is_ready(node) && !tolerates(pod, TAINT_NOT_READY, NULL, "NoSchedule")) {
		snprintf(text, sizeof(text), "node(s) had untolerated taint {%s: }",
			 TAINT_NOT_READY);
		refuse(v, "TaintToleration", false, text, "the node is not ready");
	}
}

/* ---- node selector and node affinity ---- */

static bool fields_match(const NodeSelectorTerm *term, const Node *node)
{
	for (size_t i = 0; i < term->n_matchFields; i++) {
		const NodeSelectorRequirement *r = &term->matchFields[i];
		bool is_in = r->n_values == 1 && str_eq(r->values[0], node->metadata.name);

		if (!str_eq(r->key, "metadata.name"))
			return false;
		if (str_eq(r->operator, "NotIn") ? is_in : !is_in)
			return false;
	}
	return true;
}

static enum rc term_matches(const NodeSelectorTerm *term, const Node *node, bool *out,
			    struct err *err)
{
	*out = false;
	if (!term->n_matchExpressions && !term->n_matchFields)
		return RC_OK; /* an empty term matches nothing */
	if (!fields_match(term, node))
		return RC_OK;
	CLEANUP(api_selector_freep)
	struct api_selector *s = NULL;

	TRY(api_selector_from_node_exprs(term->matchExpressions, term->n_matchExpressions, &s,
					 err));
	*out = api_selector_matches(s, &node->metadata.labels);
	return RC_OK;
}

static const NodeAffinity *node_affinity(const Pod *pod)
{
	return pod->spec.affinity ? pod->spec.affinity->nodeAffinity : NULL;
}

/* Names the first unmet requirement of the first term, for the detail text. */
static enum rc describe_term(const NodeSelectorTerm *term, const Node *node, char *out, size_t n,
			     struct err *err)
{
	for (size_t i = 0; i < term->n_matchExpressions; i++) {
		const NodeSelectorRequirement *r = &term->matchExpressions[i];
		CLEANUP(api_selector_freep)
		struct api_selector *s = NULL;

		TRY(api_selector_from_node_exprs(r, 1, &s, err));
		if (api_selector_matches(s, &node->metadata.labels))
			continue;
		const char *has = api_label(&node->metadata, r->key);

		snprintf(out, n, "needs label %s %s%s%s%s, the node has %s%s%s", r->key,
			 r->operator, r->n_values ? " [" : "", r->n_values ? r->values[0] : "",
			 r->n_values > 1 ? ", ...]"
			 : r->n_values	 ? "]"
					 : "",
			 has ? "'" : "", has ? has : "none", has ? "'" : "");
		return RC_OK;
	}
	snprintf(out, n, "another node is required by name");
	return RC_OK;
}

static enum rc check_affinity(const struct sched_node *n, const Pod *pod, struct sched_verdict *v,
			      struct err *err)
{
	static const char text[] = "node(s) didn't match Pod's node affinity/selector";
	const struct api_map *sel = &pod->spec.nodeSelector;
	char detail[256], passing[256] = "";

	for (size_t i = 0; i < sel->n; i++) {
		const char *has = api_label(&n->node->metadata, sel->items[i].key);
		bool is_passing = str_eq(sel->items[i].key, LABEL_AT_WORK);

		if (str_eq(has, sel->items[i].value))
			continue;
		snprintf(is_passing ? passing : detail, sizeof(detail),
			 "needs label %s=%s, the node has %s%s%s", sel->items[i].key,
			 sel->items[i].value, has ? "'" : "", has ? has : "none", has ? "'" : "");
		if (is_passing)
			continue;
		refuse(v, "NodeAffinity", true, text, detail);
		return RC_OK;
	}
	if (*passing) {
		refuse(v, "NodeAffinity", false, text, passing);
		return RC_OK;
	}
	const NodeAffinity *na = node_affinity(pod);
	const NodeSelector *req = na ? na->requiredDuringSchedulingIgnoredDuringExecution : NULL;

	if (!req)
		return RC_OK;
	for (size_t i = 0; i < req->n_nodeSelectorTerms; i++) {
		bool ok;

		TRY(term_matches(&req->nodeSelectorTerms[i], n->node, &ok, err));
		if (ok)
			return RC_OK;
	}
	snprintf(detail, sizeof(detail), "%s", text);
	if (req->n_nodeSelectorTerms)
		TRY(describe_term(&req->nodeSelectorTerms[0], n->node, detail, sizeof(detail),
				  err));
	refuse(v, "NodeAffinity", true, text, detail);
	return RC_OK;
}

/* ---- resources ---- */

static bool lacks(struct sched_verdict *v, const char *name, int64_t asked, int64_t used,
		  int64_t has, const char *unit, int64_t scale)
{
	char text[192], detail[256];

	if (asked <= 0 || asked <= has - used)
		return false;
	snprintf(text, sizeof(text), "Insufficient %s", name);
	snprintf(detail, sizeof(detail), "%s: needs %lld%s, %lld%s free of %lld%s", name,
		 (long long)((asked + scale - 1) / scale), unit,
		 (long long)(MAX(has - used, 0) / scale), unit, (long long)(has / scale), unit);
	refuse(v, "NodeResourcesFit", asked > has, text, detail);
	return true;
}

static void check_resources(const struct sched_node *n, const Pod *pod, struct sched_verdict *v)
{
	const struct sched_res *has = &n->allocatable, *used = &n->used;
	struct sched_res ask;

	sched_pod_requests(pod, &ask);
	if (has->pods && used->pods + 1 > has->pods) {
		char detail[256];

		snprintf(detail, sizeof(detail), "pods: %lld of %lld in use", (long long)used->pods,
			 (long long)has->pods);
		refuse(v, "NodeResourcesFit", false, "Too many pods", detail);
	}
	lacks(v, "cpu", ask.milli_cpu, used->milli_cpu, has->milli_cpu, "m", 1);
	lacks(v, "memory", ask.memory, used->memory, has->memory, "Mi", (int64_t)MIB);
	if (has->storage) /* a node that reports none does not limit it */
		lacks(v, "ephemeral-storage", ask.storage, used->storage, has->storage, "Mi",
		      (int64_t)MIB);
	for (size_t i = 0; i < ask.n_extended; i++)
		lacks(v, ask.extended[i].name, ask.extended[i].n,
		      extended_get(used, ask.extended[i].name),
		      extended_get(has, ask.extended[i].name), "", 1);
}

/* ---- volumes ---- */

static enum rc pv_allows(const PersistentVolume *pv, const Node *node, bool *out, struct err *err)
{
	const VolumeNodeAffinity *va = pv->spec.nodeAffinity;

	*out = true;
	if (!va || !va->required)
		return RC_OK;
	for (size_t i = 0; i < va->required->n_nodeSelectorTerms; i++) {
		TRY(term_matches(&va->required->nodeSelectorTerms[i], node, out, err));
		if (*out)
			return RC_OK;
	}
	*out = false;
	return RC_OK;
}

static enum rc check_volumes(const struct sched_node *n, const struct sched_volume *vols,
			     size_t n_vols, struct sched_verdict *v, struct err *err)
{
	char text[192], detail[256];

	for (size_t i = 0; i < n_vols; i++) {
		bool ok = true;

		if (!vols[i].pvc) {
			snprintf(text, sizeof(text), "persistentvolumeclaim \"%s\" not found",
				 vols[i].claim);
			refuse(v, "VolumeBinding", false, text, text);
			return RC_OK;
		}
		if (!vols[i].pv) {
			if (vols[i].waits_for_consumer)
				continue;
			snprintf(detail, sizeof(detail), "claim '%s' is not bound yet",
				 vols[i].claim);
			refuse(v, "VolumeBinding", false,
			       "pod has unbound immediate PersistentVolumeClaims", detail);
			return RC_OK;
		}
		if (!vols[i].comes_along)
			TRY(pv_allows(vols[i].pv, n->node, &ok, err));
		if (ok)
			continue;
		snprintf(detail, sizeof(detail),
			 "the volume of claim '%s' is not reachable from this node", vols[i].claim);
		refuse(v, "VolumeBinding", true, "node(s) had volume node affinity conflict",
		       detail);
		return RC_OK;
	}
	return RC_OK;
}

/* ---- affinity between pods ---- */

struct term {
	const PodAffinityTerm *t;
	const char *ns; /* of the pod that has the term */
	struct api_selector *selector;
	struct api_selector *ns_selector; /* NULL: not by labels of the namespace */
	const struct sched_cluster *c;
};

static void term_fini(struct term *t)
{
	api_selector_free(t->selector);
	api_selector_free(t->ns_selector);
}

/* *t is to be given to term_fini(), also on failure. */
static enum rc term_init(struct term *t, const struct sched_cluster *c, const PodAffinityTerm *pt,
			 const Pod *pod, struct err *err)
{
	*t = (struct term){.t = pt, .ns = pod->metadata.namespace, .c = c};
	TRY(api_selector_from(pt->labelSelector, &t->selector, err));
	if (pt->namespaceSelector)
		TRY(api_selector_from(pt->namespaceSelector, &t->ns_selector, err));
	return RC_OK;
}

static bool selects_namespace(const struct term *t, const char *name)
{
	if (api_selector_is_everything(t->ns_selector))
		return true;
	for (size_t i = 0; i < t->c->n_namespaces; i++)
		if (str_eq(t->c->namespaces[i]->metadata.name, name))
			return api_selector_matches(t->ns_selector,
						    &t->c->namespaces[i]->metadata.labels);
	return false;
}

static bool term_covers(const struct term *t, const Pod *other)
{
	const char *ns = other->metadata.namespace;
	bool in_ns = !t->t->n_namespaces && !t->ns_selector && str_eq(t->ns, ns);

	for (size_t i = 0; i < t->t->n_namespaces && !in_ns; i++)
		in_ns = str_eq(t->t->namespaces[i], ns);
	if (!in_ns && t->ns_selector)
		in_ns = selects_namespace(t, ns);
	return in_ns && api_selector_matches(t->selector, &other->metadata.labels);
}

static const char *topology(const struct sched_node *n, const PodAffinityTerm *t)
{
	return api_label(&n->node->metadata, t->topologyKey);
}

/* Does a pod that the term covers run in the same topology domain as n?  any: anywhere at all. */
static bool covered_nearby(const struct sched_cluster *c, const struct sched_node *n,
			   const struct term *t, bool *any, const Pod **who)
{
	const char *here = topology(n, t->t);
	bool found = false;

	*any = false;
	for (size_t i = 0; i < c->n_nodes; i++) {
		const struct sched_node *m = &c->nodes[i];

		for (size_t k = 0; k < m->n_pods; k++) {
			if (!term_covers(t, m->pods[k]))
				continue;
			*any = true;
			if (here && str_eq(here, topology(m, t->t)) && !found) {
				found = true;
				*who = m->pods[k];
			}
		}
	}
	return found;
}

static enum rc check_own_affinity(const struct sched_cluster *c, const struct sched_node *n,
				  const Pod *pod, struct sched_verdict *v, struct err *err)
{
	const PodAffinity *pa = pod->spec.affinity ? pod->spec.affinity->podAffinity : NULL;

	if (!pa)
		return RC_OK;
	for (size_t i = 0; i < pa->n_requiredDuringSchedulingIgnoredDuringExecution; i++) {
		const PodAffinityTerm *pt = &pa->requiredDuringSchedulingIgnoredDuringExecution[i];
		CLEANUP(term_fini)
		struct term t = {0};
		const Pod *who = NULL;
		bool any;

		TRY(term_init(&t, c, pt, pod, err));

		if (covered_nearby(c, n, &t, &any, &who))
			continue;
		/* the first pod of a group that wants to be together may go anywhere */
		if (!any && topology(n, pt) && term_covers(&t, pod))
			continue;
		refuse(v, "InterPodAffinity", false, "node(s) didn't match pod affinity rules",
		       any ? "no pod of the required group runs there"
			   : "no pod of the required group runs anywhere");
		return RC_OK;
	}
	return RC_OK;
}

static enum rc check_own_anti_affinity(const struct sched_cluster *c, const struct sched_node *n,
				       const Pod *pod, struct sched_verdict *v, struct err *err)
{
	const PodAntiAffinity *pa = pod->spec.affinity ? pod->spec.affinity->podAntiAffinity : NULL;
	char detail[256];

	if (!pa)
		return RC_OK;
	for (size_t i = 0; i < pa->n_requiredDuringSchedulingIgnoredDuringExecution; i++) {
		const PodAffinityTerm *pt = &pa->requiredDuringSchedulingIgnoredDuringExecution[i];
		CLEANUP(term_fini)
		struct term t = {0};
		const Pod *who = NULL;
		bool any;

		TRY(term_init(&t, c, pt, pod, err));

		if (!covered_nearby(c, n, &t, &any, &who))
			continue;
		snprintf(detail, sizeof(detail), "pod '%s' runs in the same %s", who->metadata.name,
			 pt->topologyKey);
		refuse(v, "InterPodAffinity", false, "node(s) didn't match pod anti-affinity rules",
		       detail);
		return RC_OK;
	}
	return RC_OK;
}

/* Does a required anti-affinity of other (on node m) forbid pod on node n? */
static enum rc other_forbids(const struct sched_cluster *c, const struct sched_node *n,
			     const struct sched_node *m, const Pod *other, const Pod *pod,
			     bool *out, struct err *err)
{
	const PodAntiAffinity *pa =
		other->spec.affinity ? other->spec.affinity->podAntiAffinity : NULL;

	*out = false;
	if (!pa)
		return RC_OK;
	for (size_t i = 0; i < pa->n_requiredDuringSchedulingIgnoredDuringExecution; i++) {
		const PodAffinityTerm *pt = &pa->requiredDuringSchedulingIgnoredDuringExecution[i];
		CLEANUP(term_fini)
		struct term t = {0};
		const char *here = topology(n, pt);

		if (!here || !str_eq(here, topology(m, pt)))
			continue;
		TRY(term_init(&t, c, pt, other, err));

		if (term_covers(&t, pod)) {
			*out = true;
			return RC_OK;
		}
	}
	return RC_OK;
}

static enum rc check_others_anti_affinity(const struct sched_cluster *c, const struct sched_node *n,
					  const Pod *pod, struct sched_verdict *v, struct err *err)
{
	char detail[256];

	for (size_t i = 0; i < c->n_nodes; i++) {
		for (size_t k = 0; k < c->nodes[i].n_pods; k++) {
			const Pod *other = c->nodes[i].pods[k];
			bool no;

			TRY(other_forbids(c, n, &c->nodes[i], other, pod, &no, err));
			if (!no)
				continue;
			snprintf(detail, sizeof(detail), "pod '%s' does not want it near",
				 other->metadata.name);
			refuse(v, "InterPodAffinity", false,
			       "node(s) didn't satisfy existing pods anti-affinity rules", detail);
			return RC_OK;
		}
	}
	return RC_OK;
}

/* ---- topology spread ---- */

struct spread {
	const struct sched_cluster *c;
	const TopologySpreadConstraint *t;
	const Pod *pod;
	struct api_selector *selector;
};

static int64_t count_matching(const struct spread *s, const struct sched_node *n)
{
	int64_t count = 0;

	for (size_t k = 0; k < n->n_pods; k++)
		count += str_eq(n->pods[k]->metadata.namespace, s->pod->metadata.namespace) &&
			 !n->pods[k]->metadata.deletionTimestamp &&
			 api_selector_matches(s->selector, &n->pods[k]->metadata.labels);
	return count;
}

static int64_t count_domain(const struct spread *s, const char *domain)
{
	int64_t count = 0;

	for (size_t i = 0; i < s->c->n_nodes; i++)
		if (str_eq(api_label(&s->c->nodes[i].node->metadata, s->t->topologyKey), domain))
			count += count_matching(s, &s->c->nodes[i]);
	return count;
}

/* The emptiest domain among nodes that the pod's own selectors allow; -1: none. */
static enum rc emptiest(const struct spread *s, int64_t *out, struct err *err)
{
	*out = -1;
	for (size_t i = 0; i < s->c->n_nodes; i++) {
		const struct sched_node *n = &s->c->nodes[i];
		const char *domain = api_label(&n->node->metadata, s->t->topologyKey);
		struct sched_verdict v = {0};

		if (!domain)
			continue;
		TRY(check_affinity(n, s->pod, &v, err));
		if (v.n)
			continue;
		int64_t count = count_domain(s, domain);

		if (*out < 0 || count < *out)
			*out = count;
	}
	return RC_OK;
}

static enum rc check_one_spread(const struct spread *s, const struct sched_node *n,
				struct sched_verdict *v, struct err *err)
{
	const char *domain = api_label(&n->node->metadata, s->t->topologyKey);
	int64_t least, self = api_selector_matches(s->selector, &s->pod->metadata.labels);
	char detail[256];

	if (!domain) {
		snprintf(detail, sizeof(detail), "the node has no label %s", s->t->topologyKey);
		refuse(v, "PodTopologySpread", true,
		       "node(s) didn't match pod topology spread constraints (missing required "
		       "label)",
		       detail);
		return RC_OK;
	}
	TRY(emptiest(s, &least, err));
	int64_t skew = count_domain(s, domain) + self - MAX(least, 0);

	if (skew <= API_GET(s->t, maxSkew, 1))
		return RC_OK;
	snprintf(detail, sizeof(detail),
		 "%s '%s' would have %lld more than the emptiest, at most %lld may be",
		 s->t->topologyKey, domain, (long long)skew, (long long)API_GET(s->t, maxSkew, 1));
	refuse(v, "PodTopologySpread", false,
	       "node(s) didn't match pod topology spread constraints", detail);
	return RC_OK;
}

static enum rc check_spread(const struct sched_cluster *c, const struct sched_node *n,
			    const Pod *pod, struct sched_verdict *v, struct err *err)
{
	for (size_t i = 0; i < pod->spec.n_topologySpreadConstraints && !v->n; i++) {
		const TopologySpreadConstraint *t = &pod->spec.topologySpreadConstraints[i];
		CLEANUP(api_selector_freep)
		struct api_selector *sel = NULL;

		if (str_eq(t->whenUnsatisfiable, "ScheduleAnyway"))
			continue;
		TRY(api_selector_from(t->labelSelector, &sel, err));
		struct spread s = {c, t, pod, sel};

		TRY(check_one_spread(&s, n, v, err));
	}
	return RC_OK;
}

/* ---- the whole check ---- */

enum rc sched_check(const struct sched_cluster *c, const struct sched_node *n, const Pod *pod,
		    const struct sched_volume *vols, size_t n_vols, enum sched_depth depth,
		    struct sched_verdict *out, struct err *err)
{
	out->n = 0;
#define STOP() (depth == SCHED_FIRST && out->n)
	check_cordon(n, pod, out);
	if (!STOP())
		check_taints(n, pod, out);
	if (!STOP())
		TRY(check_affinity(n, pod, out, err));
	if (!STOP())
		check_resources(n, pod, out);
	if (!STOP())
		TRY(check_volumes(n, vols, n_vols, out, err));
	if (!STOP())
		TRY(check_others_anti_affinity(c, n, pod, out, err));
	if (!STOP())
		TRY(check_own_affinity(c, n, pod, out, err));
	if (!STOP())
		TRY(check_own_anti_affinity(c, n, pod, out, err));
	if (!STOP())
		TRY(check_spread(c, n, pod, out, err));
#undef STOP
	return RC_OK;
}

/* ---- scores ---- */

static int64_t share_free(int64_t has, int64_t used, int64_t ask)
{
	if (has <= 0 || used + ask >= has)
		return 0;
	return (has - used - ask) * 1000 / has;
}

static enum rc preferred_nodes(const struct sched_node *n, const Pod *pod, int64_t *sum,
			       struct err *err)
{
	const NodeAffinity *na = node_affinity(pod);

	for (size_t i = 0; na && i < na->n_preferredDuringSchedulingIgnoredDuringExecution; i++) {
		const PreferredSchedulingTerm *p =
			&na->preferredDuringSchedulingIgnoredDuringExecution[i];
		bool ok = false;

		TRY(term_matches(&p->preference, n->node, &ok, err));
		if (ok)
			*sum += API_GET(p, weight, 1);
	}
	return RC_OK;
}

static enum rc preferred_pods(const struct sched_cluster *c, const struct sched_node *n,
			      const Pod *pod, const WeightedPodAffinityTerm *terms, size_t n_terms,
			      int sign, int64_t *sum, struct err *err)
{
	for (size_t i = 0; i < n_terms; i++) {
		const PodAffinityTerm *pt = &terms[i].podAffinityTerm;
		CLEANUP(term_fini)
		struct term t = {0};
		const Pod *who = NULL;
		bool any;

		TRY(term_init(&t, c, pt, pod, err));

		if (covered_nearby(c, n, &t, &any, &who))
			*sum += sign * API_GET(&terms[i], weight, 1);
	}
	return RC_OK;
}

enum rc sched_score(const struct sched_cluster *c, const struct sched_node *n, const Pod *pod,
		    int64_t *out, struct err *err)
{
	const Affinity *a = pod->spec.affinity;
	struct sched_res ask;
	int64_t preferred = 0;

	sched_pod_requests(pod, &ask);
	TRY(preferred_nodes(n, pod, &preferred, err));
	if (a && a->podAffinity)
		TRY(preferred_pods(
			c, n, pod, a->podAffinity->preferredDuringSchedulingIgnoredDuringExecution,
			a->podAffinity->n_preferredDuringSchedulingIgnoredDuringExecution, 1,
			&preferred, err));
	if (a && a->podAntiAffinity)
		TRY(preferred_pods(
			c, n, pod,
			a->podAntiAffinity->preferredDuringSchedulingIgnoredDuringExecution,
			a->podAntiAffinity->n_preferredDuringSchedulingIgnoredDuringExecution, -1,
			&preferred, err));
	/* a preference of weight 1 outweighs a tenth of a node's free share */
	*out = preferred * 200 +
	       share_free(n->allocatable.milli_cpu, n->used.milli_cpu, ask.milli_cpu) +
	       share_free(n->allocatable.memory, n->used.memory, ask.memory);
	return RC_OK;
}

/* ---- summary ---- */

struct tally {
	const char *text;
	unsigned n;
};

static int tally_cmp(const void *a, const void *b)
{
	const struct tally *x = a, *y = b;
	char xs[224], ys[224];

	/* kube-scheduler sorts the finished phrases, counts included */
	snprintf(xs, sizeof(xs), "%u %s", x->n, x->text);
	snprintf(ys, sizeof(ys), "%u %s", y->n, y->text);
	return strcmp(xs, ys);
}

void sched_summary(const struct sched_verdict *verdicts, size_t n, struct sbuf *out)
{
	struct tally tallies[64];
	size_t n_tallies = 0;

	for (size_t i = 0; i < n; i++) {
		for (size_t k = 0; k < verdicts[i].n; k++) {
			const char *text = verdicts[i].reasons[k].text;
			size_t t = 0;

			while (t < n_tallies && !str_eq(tallies[t].text, text))
				t++;
			if (t == n_tallies && n_tallies == ARRAY_SIZE(tallies))
				continue;
			if (t == n_tallies)
				tallies[n_tallies++] = (struct tally){text, 0};
			tallies[t].n++;
		}
	}
	qsort(tallies, n_tallies, sizeof(tallies[0]), tally_cmp);
	if (!n) {
		sbuf_adds(out, "no nodes available to schedule pods");
		return;
	}
	sbuf_addf(out, "0/%zu nodes are available", n);
	for (size_t i = 0; i < n_tallies; i++)
		sbuf_addf(out, "%s %u %s", i ? "," : ":", tallies[i].n, tallies[i].text);
	sbuf_addc(out, '.');
}
