/* Who may do what.
 *
 * system:masters and Ferry's controllers may do everything; a node may do what its agent needs, and
 * only to what concerns it; everybody (nodes, too) may do what roles give (rbac.c).  Nodes are judged
 * twice: by resource and verb before anything is read (authorize), and by the object itself before it is
 * written (authorize_change).
 */
#include "cluster/apiserver/apisrv_int.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "api/labels.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"
#include "virt/names.h"

enum {
	R = 1 << VERB_GET | 1 << VERB_LIST | 1 << VERB_WATCH,
	GET = 1 << VERB_GET,
	CREATE = 1 << VERB_CREATE,
	MODIFY = 1 << VERB_UPDATE | 1 << VERB_PATCH,
	REMOVE = 1 << VERB_DELETE,
};

/* Is the object (old or new version, either may be NULL) this node's business? */
typedef bool (*concern_fn)(struct apisrv *s, const char *node, const struct json *obj);

struct node_rule {
	const char *table;
	const char *sub; /* "": the object itself */
	unsigned verbs;
	concern_fn concerns; /* asked for CREATE, MODIFY and REMOVE */
	const char *why;     /* refusal, after `node "x" ` */
};

static bool is_named_like(struct apisrv *s, const char *node, const struct json *obj)
{
	(void)s;
	return str_eq(json_name(obj), node);
}

static bool runs_pod(struct apisrv *s, const char *node, const struct json *obj)
{
	(void)s;
	return str_eq(js_str(js_at(obj, "spec", "nodeName", NULL)), node);
}

static bool runs_vmi(struct apisrv *s, const char *node, const struct json *vmi)
{
	const struct json *st = js_get(vmi, "status"), *mig = js_get(st, "migrationState");

	(void)s;
	if (str_eq(js_get_str(st, "nodeName"), node) ||
	    str_eq(js_get_str(mig, "sourceNode"), node) ||
	    str_eq(js_get_str(mig, "targetNode"), node))
		return true;
	JS_FOREACH(it, js_get(st, "activePods"))
		if (str_eq(js_str(it.value), node))
			return true;
	return false;
}

static bool runs_vmi_named(struct apisrv *s, const char *node, const char *ns, const char *name)
{
	CLEANUP(mem_freep)
	char *key = name ? mem_printf("virtualmachineinstances.kubevirt.io/%s/%s", ns, name) : NULL;
	struct obj *o = key ? store_newest(s->store, key) : NULL;
	CLEANUP(js_unrefp) struct json *vmi = o ? obj_json(o) : NULL;

	return vmi && runs_vmi(s, node, vmi);
}

static bool moves_vmi(struct apisrv *s, const char *node, const struct json *vmim)
{
	return runs_vmi_named(s, node, json_ns(vmim), js_str(js_at(vmim, "spec", "vmiName", NULL)));
}

/* A binding is named like its VMI; the target of a move takes it over from the source. */
static bool holds_port(struct apisrv *s, const char *node, const struct json *obj)
{
	return str_eq(js_str(js_at(obj, "spec", "nodeName", NULL)), node) ||
	       runs_vmi_named(s, node, json_ns(obj), json_name(obj));
}

static bool takes_part(struct apisrv *s, const char *node, const struct json *obj)
{
	(void)s;
	return str_eq(js_str(js_at(obj, "spec", "sourceNode", NULL)), node) ||
	       str_eq(js_str(js_at(obj, "spec", "targetNode", NULL)), node);
}

/* Depth is bounded by the parser. */
static bool mentions(const struct json *j, const char *name);

/* Only to let it go: the node that holds (or for shared storage, any that can reach) its data removes
 * them and then its finalizer. */
static bool releases_volume(struct apisrv *s, const char *node, const struct json *pv)
{
	const struct json *affinity = js_at(pv, "spec", "nodeAffinity", NULL);

	(void)s;
	return is_deleting(pv) && (!affinity || mentions(affinity, node));
}

static bool referenced_by(struct apisrv *s, const char *table, const char *ns, const char *name,
			  const char *node, concern_fn concerns);

/* An old copy of it, which a move has left there. */
static bool has_left_on(const struct json *pv, const char *node)
{
	const char *left = js_str(js_at(pv, "metadata", "annotations", ANN_LEFT_BEHIND, NULL));
	struct str list = str_of(left);

	while (list.p) {
		struct str item = str_split(&list, ' ');

		if (str_view_eq(str_split(&item, '/'), node))
			return true;
	}
	return false;
}

/* To say where its data lie after a move: the nodes that the VM with its claim runs on, or moves between. */
static bool holds_volume(struct apisrv *s, const char *node, const struct json *pv)
{
	const struct json *ref = js_at(pv, "spec", "claimRef", NULL);
	const char *ns = js_get_str(ref, "namespace"), *claim = js_get_str(ref, "name");

	if (releases_volume(s, node, pv))
		return true;
	if (!str_eq(js_str(js_at(pv, "spec", "csi", "driver", NULL)), PV_DRIVER_LOCAL))
		return false;
	return has_left_on(pv, node) ||
	       (ns && claim &&
		referenced_by(s, "virtualmachineinstances.kubevirt.io", ns, claim, node, runs_vmi));
}

static bool is_witness(struct apisrv *s, const char *node, const struct json *obj)
{
	(void)s;
	return str_eq(js_str(js_at(obj, "spec", "witness", NULL)), node);
}

static bool owns_allocation(struct apisrv *s, const char *node, const struct json *obj)
{
	const struct json *owner = js_at(obj, "spec", "owner", NULL);

	(void)s;
	return str_eq(js_get_str(owner, "kind"), "Node") && str_eq(js_get_str(owner, "name"), node);
}

/* Also before the VMI itself says where it runs: its pod is bound here. */
static bool runs_pod_of(struct apisrv *s, const char *node, const char *ns, const char *vmi)
{
	struct store_iter it;
	struct obj *o;

	store_iter_in(&it, s->store, "pods", ns);
	while ((o = store_iter_next(&it))) {
		CLEANUP(js_unrefp) struct json *pod = obj_json(o);

		if (runs_pod(s, node, pod) &&
		    mentions(js_at(pod, "metadata", "ownerReferences", NULL), vmi))
			return true;
	}
	return false;
}

/* Of itself, and of the pods and VMIs that it runs; what is gone is nobody else's. */
static bool tells_of_own(struct apisrv *s, const char *node, const struct json *ev)
{
	const struct json *of = js_get(ev, "involvedObject");
	const char *kind = js_get_str(of, "kind"), *name = js_get_str(of, "name");
	bool is_pod = str_eq(kind, "Pod");

	if (str_eq(kind, "Node"))
		return str_eq(name, node);
	if (!name || (!is_pod && !str_eq(kind, "VirtualMachineInstance")))
		return false;
	CLEANUP(mem_freep)
	char *key = mem_printf("%s/%s/%s", is_pod ? "pods" : "virtualmachineinstances.kubevirt.io",
			       json_ns(ev), name);
	struct obj *o = key ? store_newest(s->store, key) : NULL;
	CLEANUP(js_unrefp) struct json *obj = o ? obj_json(o) : NULL;

	if (!o)
		return key != NULL;
	if (is_pod)
		return runs_pod(s, node, obj);
	return (obj && runs_vmi(s, node, obj)) || runs_pod_of(s, node, json_ns(ev), name);
}

#define OWN_PODS "can only act on pods with spec.nodeName set to itself"
#define OWN_VMIS "is only allowed to modify VMIs it owns"

static const struct node_rule node_rules[] = {
	{"nodes", "", R | CREATE | MODIFY, is_named_like, "is not allowed to modify other nodes"},
	{"nodes", "status", GET | MODIFY, is_named_like, "is not allowed to modify other nodes"},
	/* Its own alone: nodecert.c. */
	{"nodes", "certificate", GET | CREATE, NULL, NULL},
	{"leases.coordination.k8s.io", "", R | CREATE | MODIFY | REMOVE, is_named_like,
	 "is not allowed to modify other nodes' leases"},
	{"pods", "", R | REMOVE, runs_pod, OWN_PODS},
	{"pods", "status", GET | MODIFY, runs_pod, OWN_PODS},
	{"virtualmachineinstances.kubevirt.io", "", R | MODIFY, runs_vmi, OWN_VMIS},
	{"virtualmachines.kubevirt.io", "", GET, NULL, NULL},
	{"virtualmachineinstancemigrations.kubevirt.io", "", R, NULL, NULL},
	{"virtualmachineinstancemigrations.kubevirt.io", "status", GET | MODIFY, moves_vmi,
	 OWN_VMIS},
	{"portbindings.ferry.dev", "", R | MODIFY, holds_port, "does not hold this port"},
	{"portbindings.ferry.dev", "status", GET | MODIFY, holds_port, "does not hold this port"},
	{"handovers.ferry.dev", "", R | CREATE | MODIFY | REMOVE, takes_part,
	 "takes no part in this hand-over"},
	{"handovers.ferry.dev", "status", GET | MODIFY, takes_part,
	 "takes no part in this hand-over"},
	{"events", "", GET | CREATE | MODIFY, tells_of_own,
	 "may only tell of itself and of what it runs"},
	{"persistentvolumes", "", R | MODIFY, holds_volume,
	 "may only modify volumes that it holds: deleted ones, and those of a VM that moves"},
	{"persistentvolumeclaims", "", R, NULL, NULL},
	{"storageclasses.storage.k8s.io", "", R, NULL, NULL},
	{"services", "", R, NULL, NULL},
	{"endpointslices.discovery.k8s.io", "", R, NULL, NULL},
	{"namespaces", "", R, NULL, NULL},
	{"kubevirts.kubevirt.io", "", R, NULL, NULL},
	{"ferryconfigs.ferry.dev", "", R, NULL, NULL},
	{"migrationpolicies.migrations.kubevirt.io", "", R, NULL, NULL},
	{"nodefences.ferry.dev", "", R, NULL, NULL},
	{"diskwitnesses.ferry.dev", "", R, NULL, NULL},
	{"diskwitnesses.ferry.dev", "status", GET | MODIFY, is_witness,
	 "is not the witness of this VM"},
	{"allocations.ferry.dev", "", R | CREATE | REMOVE, owns_allocation,
	 "may only allocate for itself"},
	/* Only what a VM or pod of this node names: see is_referenced(). */
	{"secrets", "", GET, NULL, NULL},
	{"configmaps", "", GET, NULL, NULL},
};

const char *authz_node_of(const struct apisrv_user *u)
{
	if (!apisrv_user_in_group(u, GROUP_NODES) || !str_has_prefix(u->name, NODE_USER_PREFIX))
		return NULL;
	return u->name + sizeof(NODE_USER_PREFIX) - 1;
}

bool authz_may_do_all(const struct apisrv_user *u)
{
	return apisrv_user_in_group(u, GROUP_MASTERS) || apisrv_user_in_group(u, GROUP_CONTROLLERS);
}

static const struct node_rule *node_rule(const char *table, const char *sub)
{
	for (size_t i = 0; i < ARRAY_SIZE(node_rules); i++)
		if (strcmp(node_rules[i].table, table) == 0 && strcmp(node_rules[i].sub, sub) == 0)
			return &node_rules[i];
	return NULL;
}

/* Does any string below j equal name? */
static bool mentions(const struct json *j, const char *name)
{
	if (js_is_string(j))
		return strcmp(js_str(j), name) == 0;
	for (size_t i = 0; js_is_array(j) && i < js_len(j); i++)
		if (mentions(js_item(j, i), name))
			return true;
	if (js_is_object(j))
		JS_FOREACH(it, j)
			if (mentions(it.value, name))
				return true;
	return false;
}

static bool referenced_by(struct apisrv *s, const char *table, const char *ns, const char *name,
			  const char *node, concern_fn concerns)
{
	struct store_iter it;
	struct obj *o;

	store_iter_in(&it, s->store, table, ns);
	while ((o = store_iter_next(&it))) {
		CLEANUP(js_unrefp) struct json *j = obj_json(o);

		if (j && concerns(s, node, j) && mentions(js_get(j, "spec"), name))
			return true;
	}
	return false;
}

/* A secret or configmap is shown to the nodes that run something which names it. */
static bool is_referenced(struct apisrv *s, const char *ns, const char *name, const char *node)
{
	return referenced_by(s, "pods", ns, name, node, runs_pod) ||
	       referenced_by(s, "virtualmachineinstances.kubevirt.io", ns, name, node, runs_vmi);
}

/* Tables are called as kubectl does: "pods", "virtualmachines.kubevirt.io". */
static const struct node_rule *node_rule_for(const struct authz_ask *ask)
{
	char table[160];
	int n = snprintf(table, sizeof(table), "%s%s%s", ask->plural, *ask->group ? "." : "",
			 ask->group);

	return n > 0 && (size_t)n < sizeof(table) ? node_rule(table, ask->sub) : NULL;
}

static bool node_may(struct apisrv *s, const char *node, const struct authz_ask *ask)
{
	const struct node_rule *r = ask->path ? NULL : node_rule_for(ask);

	if (!r || !(r->verbs & 1u << verb_of(ask->verb)))
		return false;
	if (strcmp(r->table, "secrets") == 0 || strcmp(r->table, "configmaps") == 0)
		return is_referenced(s, ask->ns, ask->name, node);
	return true;
}

unsigned authz_node_verbs(const struct apisrv_user *u, const struct resource *res)
{
	const struct node_rule *r = authz_node_of(u) ? node_rule(res->table, "") : NULL;

	return r ? r->verbs : 0;
}

bool authz_allows(struct apisrv *s, const struct apisrv_user *u, const struct authz_ask *ask,
		  struct rbac_grant *why)
{
	const char *node = authz_node_of(u);

	if (authz_may_do_all(u) || (ask->path && is_public_path(ask->path)))
		return true;
	return (node && node_may(s, node, ask)) || rbac_allows(s->rbac, u, ask, why);
}

/* Whoever cannot be judged for want of memory is not told that he may not. */
static bool could_judge(struct apisrv_call *c)
{
	if (rbac_is_ready(c->srv->rbac))
		return true;
	call_nomem(c);
	return false;
}

/* `cannot list resource "pods" in API group "" in the namespace "x"` */
static void refuse(struct apisrv_call *c, const struct authz_ask *ask)
{
	char why[1024], where[LIMIT_NAME_BYTES + 32];

	if (*ask->ns)
		snprintf(where, sizeof(where), "in the namespace \"%s\"", ask->ns);
	else
		snprintf(where, sizeof(where), "at the cluster scope");
	int n = snprintf(why, sizeof(why),
			 "User \"%s\" cannot %s resource \"%s%s%s\" in API group \"%s\" %s",
			 c->user.name, ask->verb, ask->plural, *ask->sub ? "/" : "", ask->sub,
			 ask->group, where);

	if (strcmp(ask->group, SUBRES_GROUP) == 0) {
		/* as KubeVirt's own API server answers: docs/design/0009-denied-subresources.md */
		text_clean(why);
		call_answer(c, 401, "text/plain", why, MIN((size_t)n, sizeof(why) - 1));
	} else if (c->res) {
		call_forbidden(c, c->res, ask->name, why, NULL);
	} else {
		call_fail(c, 403, "Forbidden",
			  js_pack("{s:s*, s:s*, s:s}", "name", *ask->name ? ask->name : NULL,
				  "group", *ask->group ? ask->group : NULL, "kind", ask->plural),
			  "%s%s%s is forbidden: %s", ask->plural, *ask->group ? "." : "",
			  ask->group, why);
	}
}

/* A list of one name is held to roles that name it.  *fields keeps the name. */
static const char *listed_name(const struct apisrv_call *c, struct api_fields **fields)
{
	const char *text = call_param(c, "fieldSelector"), *name;

	if (c->verb != VERB_LIST && c->verb != VERB_WATCH && c->verb != VERB_DELETECOLLECTION)
		return "";
	if (str_is_empty(text) || api_fields_parse(text, fields, NULL))
		return ""; /* what is wrong with it is said later, to whom may list at all */
	name = api_fields_required(*fields, "metadata.name");
	return name ? name : "";
}

static bool authorize_as(struct apisrv_call *c, const char *verb)
{
	CLEANUP(api_fields_freep) struct api_fields *fields = NULL;
	bool is_namespace = !*c->group && strcmp(c->plural, "namespaces") == 0;
	const struct authz_ask ask = {
		.verb = verb,
		.group = c->group,
		.plural = c->plural,
		.sub = c->subres && *c->sub ? c->subres->at->path : c->sub, /* without the port */
		.ns = is_namespace ? c->name : c->ns, /* a namespace lies in itself */
		.name = *c->name ? c->name : listed_name(c, &fields)};

	struct rbac_grant why = {0};
	bool is_allowed = authz_allows(c->srv, &c->user, &ask, &why);

	audit_judged(c, is_allowed, &why);
	if (is_allowed)
		return true;
	if (could_judge(c))
		refuse(c, &ask);
	return false;
}

bool authorize(struct apisrv_call *c)
{
	if (!authz_may_do_all(&c->user) && !(c->subres && c->subres->at->is_public))
		return authorize_as(c, verb_name(c->verb));
	audit_judged(c, true, NULL);
	return true;
}

bool authorize_verb(struct apisrv_call *c, const char *verb)
{
	return authz_may_do_all(&c->user) || authorize_as(c, verb);
}

bool authorize_path(struct apisrv_call *c, const char *path)
{
	char verb[sizeof(c->method)];
	const struct authz_ask ask = {.verb = verb,
				      .group = "",
				      .plural = "",
				      .sub = "",
				      .ns = "",
				      .name = "",
				      .path = path};

	for (size_t i = 0; i < sizeof(verb); i++)
		verb[i] = (char)tolower((unsigned char)c->method[i]);
	struct rbac_grant why = {0};
	bool is_allowed = authz_allows(c->srv, &c->user, &ask, &why);

	audit_judged(c, is_allowed, &why);
	if (is_allowed)
		return true;
	if (could_judge(c))
		call_fail(c, 403, "Forbidden", js_new_object(),
			  "forbidden: User \"%s\" cannot %s path \"%s\"", c->user.name, verb, path);
	return false;
}

/* The migrations of an evacuation end by the will of whoever may empty nodes: a tenant with rights on
 * migrations could hold a drain up for ever. */
static bool may_touch_evacuation(struct change *ch)
{
	static const struct authz_ask ask = {
		.verb = "update", .group = "", .plural = "nodes", .sub = "", .ns = "", .name = ""};
	struct apisrv_call *c = ch->c;

	if (strcmp(ch->res->table, "virtualmachineinstancemigrations.kubevirt.io") != 0 ||
	    ch->status_only ||
	    (!js_at(ch->old, "metadata", "annotations", ANN_EVACUATION, NULL) &&
	     !js_at(ch->obj, "metadata", "annotations", ANN_EVACUATION, NULL)) ||
	    authz_allows(c->srv, &c->user, &ask, NULL))
		return true;
	if (could_judge(c))
		call_forbidden(
			c, ch->res, ch->name,
			"this migration belongs to the evacuation of a node, and only those who may "
			"update nodes may create, change or delete it",
			NULL);
	return false;
}

static bool concerns_node(struct change *ch, const char *node)
{
	struct apisrv_call *c = ch->c;
	const struct node_rule *r = node_rule(ch->res->table, c->sub);

	if (!r || !r->concerns)
		return true; /* authorize() has judged the verb */
	/* The stored version decides: nobody makes an object his own by writing his name into it.  An
	 * event may not be turned into one of somebody else either. */
	if (r->concerns(c->srv, node, ch->old ? ch->old : ch->obj) &&
	    (r->concerns != tells_of_own || tells_of_own(c->srv, node, ch->obj)))
		return true;
	char why[512];

	if (strcmp(r->why ? r->why : "", OWN_VMIS) == 0)
		snprintf(why, sizeof(why),
			 "Node restriction, virt-handler is only allowed to modify VMIs it owns");
	else
		snprintf(why, sizeof(why), "node \"%s\" %s", node,
			 r->why ? r->why : "may not do this");
	call_forbidden(c, ch->res, ch->name, why, NULL);
	return false;
}

bool authorize_change(struct change *ch)
{
	const char *node = authz_node_of(&ch->c->user);

	if (authz_may_do_all(&ch->c->user))
		return true;
	return (!node || concerns_node(ch, node)) && may_touch_evacuation(ch) && rbac_may_grant(ch);
}
