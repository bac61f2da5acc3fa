/* The roles that every cluster has: Kubernetes' own for people, and KubeVirt's.
 *
 * At each start a role or binding that is missing is made; one that lacks a right, a label or a subject
 * gets it; what somebody added stays.  With the annotation rbac.authorization.kubernetes.io/autoupdate:
 * "false" it is left as it is.  So does kube-apiserver, and KubeVirt's operator for its part.
 */
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "cluster/apiserver/apisrv_int.h"
#include "http/uri.h"

#define AUTOUPDATE   "rbac.authorization.kubernetes.io/autoupdate"
#define BOOTSTRAP    "kubernetes.io/bootstrapping"
#define AGGREGATE_TO "rbac.authorization.k8s.io/aggregate-to-"

/* Lists of words, separated by commas. */
struct std_rule {
	const char *verbs, *groups, *resources;
	const char *urls; /* not NULL: instead of groups and resources */
};

struct std_role {
	const char *name;
	const char *aggregate_to; /* "view", …; NULL: to none */
	const char *gathers;	  /* the same of others; NULL: it has rules of its own */
	struct std_rule rules[14];
};

#define READ  "get,list,watch"
#define WRITE "create,delete,deletecollection,patch,update"
#define ALL   "create,delete,deletecollection,get,list,patch,update,watch"
#define MOST  "create,delete,get,list,patch,update,watch" /* without deletecollection */

#define VM_KINDS                                                                 \
	"virtualmachines,virtualmachineinstances,virtualmachineinstancepresets," \
	"virtualmachineinstancereplicasets"
#define SNAPSHOT_KINDS \
	"virtualmachinesnapshots,virtualmachinesnapshotcontents,virtualmachinerestores"
#define BACKUP_KINDS  "virtualmachinebackups,virtualmachinebackuptrackers"
#define CLUSTER_TYPES "virtualmachineclusterinstancetypes,virtualmachineclusterpreferences"
#define TYPE_KINDS    "virtualmachineinstancetypes,virtualmachinepreferences," CLUSTER_TYPES

#define CDI_GROUP     "cdi.kubevirt.io"
#define CDI_KINDS                                                                         \
	"datavolumes,dataimportcrons,datasources,volumeclonesources,volumeimportsources," \
	"volumeuploadsources"

#define VMI(sub_) "virtualmachineinstances/" sub_
#define VM(sub_)  "virtualmachines/" sub_
#define SUB_LOOK                                                                             \
	VMI("guestosinfo")                                                                   \
	"," VMI("filesystemlist") "," VMI("userlist") "," VMI("sev/fetchcertchain") "," VMI( \
		"sev/querylaunchmeasurement") "," VMI("objectgraph") "," VM("expand-spec") "," VM("objectgraph")
#define SUB_STREAM     \
	VMI("console") \
	"," VMI("vnc") "," VMI("portforward") "," VMI("usbredir") "," VM("portforward")
#define SUB_ACT                                                                                                                                                                                                             \
	VMI("pause")                                                                                                                                                                                                        \
	"," VMI("unpause") "," VMI("addvolume") "," VMI("removevolume") "," VMI("freeze") "," VMI("unfreeze") "," VMI("softreboot") "," VMI("reset") "," VMI("sev/setupsession") "," VMI("sev/injectlaunchsecret") "," VMI( \
		"evacuate/cancel") "," VM("start") "," VM("stop") "," VM("restart") "," VM("addvolume") "," VM("removevolume") "," VM("memorydump") "," VM("evacuate/cancel")

#define CORE_VIEW                                                                                    \
	"configmaps,persistentvolumeclaims,persistentvolumeclaims/status,pods,pods/log,pods/status," \
	"serviceaccounts,services,services/status,events,limitranges,resourcequotas,"                \
	"resourcequotas/status,namespaces,namespaces/status,endpoints,replicationcontrollers,bindings"

static const struct std_role roles[] = {
	{.name = "cluster-admin", .rules = {{"*", "*", "*"}, {"*", .urls = "*"}}},
	{.name = "system:discovery",
	 .rules = {{"get",
		    .urls = "/,/api,/api/*,/apis,/apis/*,/healthz,/livez,/openapi,/openapi/*,"
			    "/readyz,/version,/version/"}}},
	{.name = "system:public-info-viewer",
	 .rules = {{"get", .urls = "/healthz,/livez,/readyz,/version,/version/"}}},
	{.name = "system:basic-user",
	 .rules = {{"create", "authorization.k8s.io",
		    "selfsubjectaccessreviews,selfsubjectrulesreviews"},
		   {"create", "authentication.k8s.io", "selfsubjectreviews"}}},
	{.name = "system:monitoring",
	 .rules = {{"get",
		    .urls = "/healthz,/healthz/*,/livez,/livez/*,/metrics,/metrics/*,/readyz,"
			    "/readyz/*"}}},
	{.name = "system:auth-delegator",
	 .rules = {{"create", "authentication.k8s.io", "tokenreviews"},
		   {"create", "authorization.k8s.io", "subjectaccessreviews"}}},
	{.name = "system:service-account-issuer-discovery",
	 .rules = {{"get",
		    .urls = "/.well-known/openid-configuration,/.well-known/openid-configuration/,"
			    "/openid/v1/jwks,/openid/v1/jwks/"}}},
	{.name = "admin", .gathers = "admin"},
	{.name = "edit", .aggregate_to = "admin", .gathers = "edit"},
	{.name = "view", .aggregate_to = "edit", .gathers = "view"},
	{.name = "system:aggregate-to-admin",
	 .aggregate_to = "admin",
	 .rules = {{"create", "authorization.k8s.io", "localsubjectaccessreviews"},
		   {ALL, RBAC_GROUP, "roles,rolebindings"}}},
	/* Pods here are the shells of machines, made by controllers: nobody else makes, changes or deletes
	   one, which would cut a guest off or end the move of an evacuation.  They may be evicted. */
	{.name = "system:aggregate-to-edit",
	 .aggregate_to = "edit",
	 .rules = {{READ, "", "secrets"},
		   {"impersonate", "", "serviceaccounts"},
		   {"create", "", "pods/eviction,serviceaccounts/token"},
		   {WRITE, "",
		    "configmaps,persistentvolumeclaims,secrets,serviceaccounts,services,events"},
		   {WRITE, "policy", "poddisruptionbudgets"},
		   {ALL, "coordination.k8s.io", "leases"}}},
	{.name = "system:aggregate-to-view",
	 .aggregate_to = "view",
	 .rules = {{READ, "", CORE_VIEW},
		   {READ, "apps", "controllerrevisions"},
		   {READ, "policy", "poddisruptionbudgets,poddisruptionbudgets/status"},
		   {READ, "discovery.k8s.io", "endpointslices"},
		   {READ, "events.k8s.io", "events"}}},
	{.name = "kubevirt.io:admin",
	 .aggregate_to = "admin",
	 .rules = {{"get", SUBRES_GROUP, SUB_LOOK "," SUB_STREAM "," VMI("vnc/screenshot")},
		   {"update", SUBRES_GROUP, SUB_ACT ",expand-vm-spec"},
		   {ALL, "kubevirt.io", VM_KINDS},
		   {ALL, "snapshot.kubevirt.io", SNAPSHOT_KINDS},
		   {ALL, "export.kubevirt.io", "virtualmachineexports"},
		   {ALL, "clone.kubevirt.io", "virtualmachineclones"},
		   {ALL, "backup.kubevirt.io", BACKUP_KINDS},
		   {ALL, "pool.kubevirt.io", "virtualmachinepools"},
		   {ALL, "plugin.kubevirt.io", "plugins"},
		   {ALL, "instancetype.kubevirt.io", TYPE_KINDS},
		   {READ, "kubevirt.io", "virtualmachineinstancemigrations"},
		   {READ, "migrations.kubevirt.io", "migrationpolicies"}}},
	{.name = "kubevirt.io:edit",
	 .aggregate_to = "edit",
	 .rules = {{"get", SUBRES_GROUP, SUB_LOOK "," SUB_STREAM},
		   {"update", SUBRES_GROUP, SUB_ACT ",expand-vm-spec"},
		   {MOST, "kubevirt.io", VM_KINDS},
		   {MOST, "snapshot.kubevirt.io", SNAPSHOT_KINDS},
		   {MOST, "export.kubevirt.io", "virtualmachineexports"},
		   {MOST, "clone.kubevirt.io", "virtualmachineclones"},
		   {MOST, "backup.kubevirt.io", BACKUP_KINDS},
		   {MOST, "pool.kubevirt.io", "virtualmachinepools"},
		   {MOST, "instancetype.kubevirt.io", TYPE_KINDS},
		   {"get,list", "kubevirt.io", "kubevirts"},
		   {READ, "kubevirt.io", "virtualmachineinstancemigrations"},
		   {READ, "migrations.kubevirt.io", "migrationpolicies"}}},
	{.name = "kubevirt.io:view",
	 .aggregate_to = "view",
	 .rules = {{"get", SUBRES_GROUP, SUB_LOOK},
		   {"update", SUBRES_GROUP, "expand-vm-spec"},
		   {READ, "kubevirt.io", VM_KINDS ",virtualmachineinstancemigrations"},
		   {READ, "snapshot.kubevirt.io", SNAPSHOT_KINDS},
		   {READ, "export.kubevirt.io", "virtualmachineexports"},
		   {READ, "clone.kubevirt.io", "virtualmachineclones"},
		   {READ, "backup.kubevirt.io", BACKUP_KINDS},
		   {READ, "pool.kubevirt.io", "virtualmachinepools"},
		   {READ, "instancetype.kubevirt.io", TYPE_KINDS},
		   {READ, "migrations.kubevirt.io", "migrationpolicies"}}},
	{.name = "kubevirt.io:migrate",
	 .rules = {{"update", SUBRES_GROUP, VM("migrate")},
		   {ALL, "kubevirt.io", "virtualmachineinstancemigrations"}}},
	{.name = "kubevirt.io:default",
	 .rules = {{"get,list", "kubevirt.io", "kubevirts"},
		   {"get,list", SUBRES_GROUP, "version,guestfs"}}},
	/* CDI's own: who may use its kinds hears why none can be made, not that he may not. */
	{.name = "cdi.kubevirt.io:admin",
	 .aggregate_to = "admin",
	 .rules = {{ALL, CDI_GROUP, CDI_KINDS},
		   {"create", CDI_GROUP, "datavolumes/source"},
		   {"create", "upload." CDI_GROUP, "uploadtokenrequests"}}},
	{.name = "cdi.kubevirt.io:edit",
	 .aggregate_to = "edit",
	 .rules = {{MOST, CDI_GROUP, CDI_KINDS},
		   {"create", CDI_GROUP, "datavolumes/source"},
		   {"create", "upload." CDI_GROUP, "uploadtokenrequests"}}},
	{.name = "cdi.kubevirt.io:view",
	 .aggregate_to = "view",
	 .rules = {{READ, CDI_GROUP, CDI_KINDS}}},
	{.name = "cdi.kubevirt.io:config-reader",
	 .rules = {{READ, CDI_GROUP, "cdiconfigs,storageprofiles"}}},
	{.name = "instancetype.kubevirt.io:view",
	 .rules = {{READ, "instancetype.kubevirt.io", CLUSTER_TYPES}}},
};

/* Bindings are called like their role. */
static const struct std_binding {
	const char *role, *group, *group2;
} bindings[] = {
	{"cluster-admin", GROUP_MASTERS, NULL},
	{"system:discovery", "system:authenticated", NULL},
	{"system:public-info-viewer", "system:authenticated", "system:unauthenticated"},
	{"system:basic-user", "system:authenticated", NULL},
	{"system:monitoring", "system:monitoring", NULL},
	{"system:service-account-issuer-discovery", "system:serviceaccounts", NULL},
	{"kubevirt.io:default", "system:authenticated", NULL},
	{"cdi.kubevirt.io:config-reader", "system:authenticated", NULL},
	{"instancetype.kubevirt.io:view", "system:authenticated", NULL},
};

/* ---- the table as objects ---------------------------------------------------------------------------- */

/* NULL: out of memory, as everywhere below. */
static struct json *word_list(const char *words)
{
	CLEANUP(js_unrefp) struct json *list = js_new_array();
	struct str rest = str_of(words);

	if (!*words)
		return js_append(list, js_new_str("")) ? NULL : STEAL(list);
	while (list && rest.p) {
		struct str w = str_split(&rest, ',');

		if (js_append(list, js_new_strn(w.p, w.n)))
			return NULL;
	}
	return STEAL(list);
}

static struct json *rule_json(const struct std_rule *r)
{
	if (r->urls)
		return js_pack("{s:o, s:o}", "verbs", word_list(r->verbs), "nonResourceURLs",
			       word_list(r->urls));
	return js_pack("{s:o, s:o, s:o}", "verbs", word_list(r->verbs), "apiGroups",
		       word_list(r->groups), "resources", word_list(r->resources));
}

static struct json *rules_json(const struct std_role *r)
{
	CLEANUP(js_unrefp) struct json *rules = js_new_array();

	for (size_t i = 0; i < ARRAY_SIZE(r->rules) && r->rules[i].verbs; i++)
		if (js_append(rules, rule_json(&r->rules[i])))
			return NULL;
	return STEAL(rules);
}

static struct json *meta_json(const char *name, const char *aggregate_to)
{
	bool is_kubevirt = strstr(name, "kubevirt.io:") != NULL;
	CLEANUP(js_unrefp)
	struct json *meta =
		js_pack("{s:s, s:{s:s}, s:{s:s}}", "name", name, "annotations", AUTOUPDATE, "true",
			"labels", is_kubevirt ? "kubevirt.io" : BOOTSTRAP,
			is_kubevirt ? "" : "rbac-defaults");
	char label[64];

	snprintf(label, sizeof(label), AGGREGATE_TO "%s", aggregate_to ? aggregate_to : "");
	if (meta && aggregate_to && js_set(js_get(meta, "labels"), label, js_new_str("true")))
		return NULL;
	return STEAL(meta);
}

static struct json *role_json(const struct std_role *r)
{
	CLEANUP(js_unrefp)
	struct json *j = js_pack("{s:s, s:s, s:o, s:o}", "kind", "ClusterRole", "apiVersion",
				 RBAC_GROUP "/v1", "metadata", meta_json(r->name, r->aggregate_to),
				 "rules", rules_json(r));
	char label[64];

	snprintf(label, sizeof(label), AGGREGATE_TO "%s", r->gathers ? r->gathers : "");
	if (j && r->gathers &&
	    js_set(j, "aggregationRule",
		   js_pack("{s:[{s:{s:s}}]}", "clusterRoleSelectors", "matchLabels", label,
			   "true")))
		return NULL;
	return STEAL(j);
}

static struct json *group_json(const char *name)
{
	return js_pack("{s:s, s:s, s:s}", "kind", "Group", "apiGroup", RBAC_GROUP, "name", name);
}

static struct json *binding_json(const struct std_binding *b)
{
	CLEANUP(js_unrefp)
	struct json *j =
		js_pack("{s:s, s:s, s:o, s:[o], s:{s:s, s:s, s:s}}", "kind", "ClusterRoleBinding",
			"apiVersion", RBAC_GROUP "/v1", "metadata", meta_json(b->role, NULL),
			"subjects", group_json(b->group), "roleRef", "apiGroup", RBAC_GROUP, "kind",
			"ClusterRole", "name", b->role);

	if (j && b->group2 && js_append(js_get(j, "subjects"), group_json(b->group2)))
		return NULL;
	return STEAL(j);
}

/* ---- mending ------------------------------------------------------------------------------------------ */

/* Labels and annotations: what we say wins, what others said stays. */
static enum rc mend_map(struct json *meta, const struct json *want, const char *key)
{
	struct json *have = js_ensure_object(meta, key);

	JS_FOREACH(it, js_get(want, key))
		if (!have || js_set(have, it.key, js_ref(it.value)))
			return RC_NOMEM;
	return RC_OK;
}

static bool has_item(const struct json *list, const struct json *item)
{
	for (size_t i = 0; i < js_len(list); i++)
		if (js_equal(js_item(list, i), item))
			return true;
	return false;
}

/* Does the word stand in the list, or one for all? */
static bool has_word(const struct json *list, const char *word)
{
	for (size_t i = 0; i < js_len(list); i++) {
		const char *w = js_str(js_item(list, i));

		if (str_eq(w, "*") || str_eq(w, word))
			return true;
	}
	return false;
}

static bool has_words(const struct json *list, const struct json *want)
{
	for (size_t i = 0; i < js_len(want); i++)
		if (!has_word(list, js_str(js_item(want, i))))
			return false;
	return true;
}

/* Does one of the rules give all of it? */
static bool is_covered(const struct json *rules, const struct json *want)
{
	static const char *const lists[] = {"verbs", "apiGroups", "resources", "nonResourceURLs"};

	for (size_t i = 0; i < js_len(rules); i++) {
		const struct json *have = js_item(rules, i);
		bool covers = !js_len(js_get(have, "resourceNames"));

		for (size_t k = 0; k < ARRAY_SIZE(lists) && covers; k++)
			covers = has_words(js_get(have, lists[k]), js_get(want, lists[k]));
		if (covers)
			return true;
	}
	return false;
}

typedef bool (*present_fn)(const struct json *list, const struct json *item);

static enum rc mend_list(struct json *of, const char *key, const struct json *want, present_fn has)
{
	struct json *list = js_get(of, key);
	enum rc rc = RC_OK;

	if (js_len(want) && !js_is_array(list)) {
		list = js_new_array();
		rc = js_set(of, key, list);
	}
	for (size_t i = 0; i < js_len(want) && !rc; i++)
		if (!has(list, js_item(want, i)))
			rc = js_append(list, js_ref(js_item(want, i)));
	return rc;
}

/* obj gets what it lacks of want. */
static enum rc mend(struct json *obj, const struct json *want)
{
	struct json *meta = js_get(obj, "metadata");
	enum rc rc = mend_map(meta, js_get(want, "metadata"), "labels");

	if (!rc)
		rc = mend_map(meta, js_get(want, "metadata"), "annotations");
	if (!rc && js_get(want, "aggregationRule")) {
		struct json *rule = js_ensure_object(obj, "aggregationRule");

		rc = rule ? mend_list(rule, "clusterRoleSelectors",
				      js_at(want, "aggregationRule", "clusterRoleSelectors", NULL),
				      has_item)
			  : RC_NOMEM;
	}
	if (!rc)
		rc = mend_list(obj, "rules", js_get(want, "rules"), is_covered);
	return rc ? rc : mend_list(obj, "subjects", js_get(want, "subjects"), has_item);
}

/* ---- into the store ------------------------------------------------------------------------------------- */

static void on_done(void *arg, int status, const struct json *obj)
{
	(void)arg;
	if (status >= 400 && status != 409)
		log_error("cannot make a standard role or its binding: %s",
			  js_get_str(obj, "message"));
}

/* body is consumed. */
static enum rc send(struct apisrv *s, const char *method, const char *plural, const char *name,
		    struct json *body, struct err *err)
{
	CLEANUP(sbuf_fini) struct sbuf target = SBUF_INIT(4096);

	sbuf_addf(&target, "/apis/" RBAC_GROUP "/v1/%s%s", plural, name ? "/" : "");
	if (name)
		http_uri_escape(&target, name);
	if (!body || sbuf_rc(&target)) {
		js_unref(body);
		return err_set(err, RC_NOMEM, "out of memory");
	}
	return apisrv_inner(s, NULL, &apisrv_self, method, sbuf_str(&target), NULL, body, on_done,
			    NULL, err);
}

/* want is consumed; NULL: out of memory. */
static enum rc reconcile(struct apisrv *s, const char *plural, struct json *want, struct err *err)
{
	CLEANUP(js_unrefp) struct json *new_ = want;
	const char *name = json_name(want);
	CLEANUP(mem_freep)
	char *key = want ? mem_printf("%s." RBAC_GROUP "/%s", plural, name) : NULL;
	struct obj *o = key ? store_newest(s->store, key) : NULL;

	if (!key)
		return err_set(err, RC_NOMEM, "out of memory");
	if (!o)
		return send(s, "POST", plural, NULL, STEAL(new_), err);
	CLEANUP(js_unrefp) struct json *have = obj_json(o);
	CLEANUP(js_unrefp) struct json *mended = have ? js_copy(have) : NULL;

	if (!mended)
		return err_set(err, RC_NOMEM, "out of memory");
	if (str_eq(js_str(js_at(have, "metadata", "annotations", AUTOUPDATE, NULL)), "false") ||
	    is_deleting(have))
		return RC_OK;
	const struct json *ref = js_get(want, "roleRef");

	if (ref && !js_equal(ref, js_get(have, "roleRef"))) {
		/* It cannot be changed: the binding is made anew, as Kubernetes does. */
		enum rc rc = send(s, "DELETE", plural, name, js_new_object(), err);

		return rc ? rc : send(s, "POST", plural, NULL, STEAL(new_), err);
	}
	if (mend(mended, want))
		return err_set(err, RC_NOMEM, "out of memory");
	return js_equal(mended, have) ? RC_OK : send(s, "PUT", plural, name, STEAL(mended), err);
}

enum rc rbac_bootstrap(struct apisrv *s, struct err *err)
{
	enum rc rc = RC_OK;

	for (size_t i = 0; i < ARRAY_SIZE(roles) && !rc; i++)
		rc = reconcile(s, "clusterroles", role_json(&roles[i]), err);
	for (size_t i = 0; i < ARRAY_SIZE(bindings) && !rc; i++)
		rc = reconcile(s, "clusterrolebindings", binding_json(&bindings[i]), err);
	return rc;
}
