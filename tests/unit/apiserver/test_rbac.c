/* Roles and bindings: what they give, who may give it, the standard ones, reviews, asking as another. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/str.h"
#include "cluster/apiserver/apisrv_int.h"
#include "fixture.h"
#include "virt/subresources/subresources.h"

#define CM	 "/api/v1/namespaces/default/configmaps"
#define RBAC	 "/apis/rbac.authorization.k8s.io/v1"
#define ROLES	 RBAC "/namespaces/default/roles"
#define BINDINGS RBAC "/namespaces/default/rolebindings"
#define CROLES	 RBAC "/clusterroles"
#define CBINDS	 RBAC "/clusterrolebindings"
#define VMS	 "/apis/kubevirt.io/v1/namespaces/default/virtualmachines"
#define VMIMS	 "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancemigrations"
#define SUB	 "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines"

#define SUBI	 "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances"

static struct fx f;
static struct apisrv_hooks hooks;

static int setup(void **state)
{
	(void)state;
	hooks = (struct apisrv_hooks){.subres = virt_subres, .n_subres = n_virt_subres};
	fx_up_with_roles(&f, &hooks);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fx_down(&f);
	return 0;
}

static const char *const known[] = {"system:authenticated"};
static const char *const team[] = {"team-a", "system:authenticated"};
static const struct apisrv_user jane = {.name = "jane", .n_groups = 1, .groups = known};
static const struct apisrv_user joe = {.name = "joe", .n_groups = 2, .groups = team};

#define USER(name_) \
	"{\"kind\":\"User\",\"apiGroup\":\"rbac.authorization.k8s.io\",\"name\":\"" name_ "\"}"
#define REF(kind_, name_) "\"roleRef\":{\"kind\":\"" kind_ "\",\"name\":\"" name_ "\"}"
#define BIND(own_, kind_, role_, subject_) \
	"{\"metadata\":{\"name\":\"" own_ "\"},\"subjects\":[" subject_ "]," REF(kind_, role_) "}"
#define ROLE(name_, rules_) "{\"metadata\":{\"name\":\"" name_ "\"},\"rules\":[" rules_ "]}"
#define RULE(verbs_, groups_, resources_) \
	"{\"verbs\":[" verbs_ "],\"apiGroups\":[" groups_ "],\"resources\":[" resources_ "]}"

/* Gives a user a standard role in the namespace default. */
static void bind(const char *user, const char *role)
{
	char body[512];

	snprintf(
		body, sizeof(body),
		"{\"metadata\":{\"generateName\":\"b-\"},\"subjects\":[{\"kind\":\"User\",\"name\":\"%s\"}],"
		"\"roleRef\":{\"kind\":\"ClusterRole\",\"name\":\"%s\"}}",
		user, role);
	drop(fx_do(&f, 201, "POST", BINDINGS, body));
}

/* ---- rules --------------------------------------------------------------------------------------------- */

static void a_rule_gives_these_and_no_other_rights(void **state)
{
	static const struct {
		const char *rule;
		struct authz_ask ask;
		bool allowed;
	} rows[] = {
#define ASK(verb_, group_, plural_, sub_, name_) \
	{.verb = verb_, .group = group_, .plural = plural_, .sub = sub_, .ns = "", .name = name_}
#define PATH(verb_, path_)                                                                 \
	{                                                                                  \
		.verb = verb_, .group = "", .plural = "", .sub = "", .ns = "", .name = "", \
		.path = path_                                                              \
	}
		{RULE("\"get\"", "\"\"", "\"pods\""), ASK("get", "", "pods", "", ""), true},
		{RULE("\"get\"", "\"\"", "\"pods\""), ASK("list", "", "pods", "", ""), false},
		{RULE("\"get\"", "\"\"", "\"pods\""), ASK("*", "", "pods", "", ""), false},
		{RULE("\"get\"", "\"\"", "\"pods\""), ASK("get", "apps", "pods", "", ""), false},
		{RULE("\"get\"", "\"\"", "\"pods\""), ASK("get", "", "pods", "status", ""), false},
		{RULE("\"get\"", "\"\"", "\"pods\""), ASK("get", "", "po", "", ""), false},
		{RULE("\"*\"", "\"\"", "\"pods\""), ASK("*", "", "pods", "", ""), true},
		{RULE("\"*\"", "\"\"", "\"pods\""), ASK("bind", "", "pods", "", ""), true},
		{RULE("\"get\"", "\"*\"", "\"pods\""), ASK("get", "apps", "pods", "", ""), true},
		{RULE("\"get\"", "\"\"", "\"*\""), ASK("get", "", "pods", "status", ""), true},
		{RULE("\"get\"", "\"\"", "\"*\""), ASK("get", "", "*", "", ""), true},
		{RULE("\"get\"", "\"\"", "\"pods\",\"nodes\""), ASK("get", "", "*", "", ""), false},
		{RULE("\"get\"", "\"\"", "\"pods/log\""), ASK("get", "", "pods", "log", ""), true},
		{RULE("\"get\"", "\"\"", "\"pods/log\""), ASK("get", "", "pods", "", ""), false},
		{RULE("\"get\"", "\"\"", "\"pods/log\""), ASK("get", "", "pods", "logs", ""),
		 false},
		{RULE("\"get\"", "\"a\"", "\"x/vnc/shot\""), ASK("get", "a", "x", "vnc/shot", ""),
		 true},
		{RULE("\"get\"", "\"a\"", "\"x/vnc/shot\""), ASK("get", "a", "x", "vnc", ""),
		 false},
		{RULE("\"get\"", "\"\"", "\"*/scale\""), ASK("get", "", "pods", "scale", ""), true},
		{RULE("\"get\"", "\"\"", "\"*/scale\""), ASK("get", "", "pods", "", ""), false},
		{RULE("\"get\"", "\"\"", "\"*/scale\""), ASK("get", "", "pods", "status", ""),
		 false},
		{"{\"verbs\":[\"get\"],\"apiGroups\":[\"\"],\"resources\":[\"pods\"],\"resourceNames\":["
		 "\"a\"]}",
		 ASK("get", "", "pods", "", "a"), true},
		{"{\"verbs\":[\"get\"],\"apiGroups\":[\"\"],\"resources\":[\"pods\"],\"resourceNames\":["
		 "\"a\"]}",
		 ASK("get", "", "pods", "", "b"), false},
		{"{\"verbs\":[\"get\"],\"apiGroups\":[\"\"],\"resources\":[\"pods\"],\"resourceNames\":["
		 "\"a\"]}",
		 ASK("get", "", "pods", "", ""), false},
		{"{\"verbs\":[\"get\"],\"apiGroups\":[\"\"],\"resources\":[\"pods\"],\"resourceNames\":["
		 "\"*\"]}",
		 ASK("get", "", "pods", "", "b"), false},
		{"{\"verbs\":[\"get\"],\"nonResourceURLs\":[\"/metrics\"]}",
		 PATH("get", "/metrics"), true},
		{"{\"verbs\":[\"get\"],\"nonResourceURLs\":[\"/metrics\"]}",
		 PATH("get", "/metrics/slis"), false},
		{"{\"verbs\":[\"get\"],\"nonResourceURLs\":[\"/metrics\"]}",
		 PATH("post", "/metrics"), false},
		{"{\"verbs\":[\"get\"],\"nonResourceURLs\":[\"/apis/*\"]}",
		 PATH("get", "/apis/x/y"), true},
		{"{\"verbs\":[\"get\"],\"nonResourceURLs\":[\"/apis/*\"]}", PATH("get", "/apis"),
		 false},
		{"{\"verbs\":[\"get\"],\"nonResourceURLs\":[\"*\"]}", PATH("get", "/x"), true},
		{RULE("\"*\"", "\"*\"", "\"*\""), PATH("get", "/metrics"), false},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct json *rules = NULL;
		char text[512];

		snprintf(text, sizeof(text), "[%s]", rows[i].rule);
		assert_int_equal(js_parse(text, strlen(text), &rules, NULL), RC_OK);
		struct rbac_role *role = rbac_role_new(rules);

		drop(rules);
		assert_int_equal(role->n, 1);
		if (rbac_rule_allows(&role->rules[0], &rows[i].ask) != rows[i].allowed)
			fail_msg("row %zu: %s", i, rows[i].rule);
		mem_free(role);
	}
}

static void a_binding_gives_rights_in_its_namespace(void **state)
{
	(void)state;
	drop(fx_do(&f, 201, "POST", "/api/v1/namespaces", "{\"metadata\":{\"name\":\"other\"}}"));
	drop(fx_do(&f, 201, "POST", CM, "{\"metadata\":{\"name\":\"a\"}}"));
	drop(fx_as(&f, &jane, 403, "GET", CM, NULL));
	drop(fx_do(&f, 201, "POST", ROLES,
		   ROLE("reader", RULE("\"get\",\"list\",\"watch\"", "\"\"", "\"configmaps\""))));
	drop(fx_as(&f, &jane, 403, "GET", CM, NULL));
	drop(fx_do(&f, 201, "POST", BINDINGS, BIND("b", "Role", "reader", USER("jane"))));
	drop(fx_as(&f, &jane, 200, "GET", CM, NULL));
	drop(fx_as(&f, &jane, 200, "GET", CM "/a", NULL));
	drop(fx_as(&f, &jane, 403, "DELETE", CM "/a", NULL));
	drop(fx_as(&f, &jane, 403, "GET", "/api/v1/namespaces/other/configmaps", NULL));
	drop(fx_as(&f, &jane, 403, "GET", "/api/v1/configmaps", NULL));
	drop(fx_as(&f, &joe, 403, "GET", CM, NULL));
	/* the role changes, then the binding, then it goes */
	drop(fx_patch(&f, 200, "merge-patch", ROLES "/reader",
		      "{\"rules\":[" RULE("\"get\"", "\"\"", "\"configmaps\"") "]}"));
	drop(fx_as(&f, &jane, 403, "GET", CM, NULL));
	drop(fx_as(&f, &jane, 200, "GET", CM "/a", NULL));
	drop(fx_patch(&f, 200, "merge-patch", BINDINGS "/b",
		      "{\"subjects\":[{\"kind\":\"Group\",\"name\":\"team-a\"}]}"));
	drop(fx_as(&f, &jane, 403, "GET", CM "/a", NULL));
	drop(fx_as(&f, &joe, 200, "GET", CM "/a", NULL));
	drop(fx_do(&f, 200, "DELETE", BINDINGS "/b", NULL));
	drop(fx_as(&f, &joe, 403, "GET", CM "/a", NULL));
	/* everywhere */
	drop(fx_do(&f, 201, "POST", CBINDS, BIND("c", "ClusterRole", "view", USER("jane"))));
	drop(fx_as(&f, &jane, 200, "GET", "/api/v1/configmaps", NULL));
	drop(fx_as(&f, &jane, 200, "GET", "/api/v1/namespaces/other/configmaps", NULL));
	drop(fx_as(&f, &jane, 403, "GET", "/api/v1/secrets", NULL));
	fx_again(&f, &hooks);
	drop(fx_as(&f, &jane, 200, "GET", "/api/v1/configmaps", NULL));
}

static void names_and_namespaces_are_looked_at(void **state)
{
	(void)state;
	drop(fx_do(&f, 201, "POST", CM, "{\"metadata\":{\"name\":\"a\"}}"));
	drop(fx_do(
		&f, 201, "POST", ROLES,
		ROLE("one",
		     "{\"verbs\":[\"get\",\"list\",\"create\"],\"apiGroups\":[\"\"],\"resources\":["
		     "\"configmaps\"],\"resourceNames\":[\"a\"]}")));
	drop(fx_do(&f, 201, "POST", BINDINGS, BIND("b", "Role", "one", USER("jane"))));
	drop(fx_as(&f, &jane, 200, "GET", CM "/a", NULL));
	drop(fx_as(&f, &jane, 403, "GET", CM "/b", NULL));
	drop(fx_as(&f, &jane, 403, "GET", CM, NULL));
	drop(fx_as(&f, &jane, 403, "POST", CM, "{\"metadata\":{\"name\":\"a\"}}"));
	struct json *list =
		fx_as(&f, &jane, 200, "GET", CM "?fieldSelector=metadata.name%3Da", NULL);

	assert_int_equal(js_len(js_get(list, "items")), 1);
	drop(list);
	drop(fx_as(&f, &jane, 403, "GET", CM "?fieldSelector=metadata.name%3Db", NULL));
	drop(fx_as(&f, &jane, 403, "GET", CM "?fieldSelector=metadata.name!%3Da", NULL));
	/* a namespace lies in itself */
	drop(fx_as(&f, &jane, 403, "GET", "/api/v1/namespaces/default", NULL));
	bind("jane", "view");
	drop(fx_as(&f, &jane, 200, "GET", "/api/v1/namespaces/default", NULL));
	drop(fx_as(&f, &jane, 403, "GET", "/api/v1/namespaces/kube-system", NULL));
	drop(fx_as(&f, &jane, 403, "GET", "/api/v1/namespaces", NULL));
}

static void an_apply_that_creates_needs_the_right_to_create(void **state)
{
	static const char body[] =
		"{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"a\"},\"data\":{\"k\":"
		"\"v\"}}";
	struct fx_answer a;

	(void)state;
	drop(fx_do(&f, 201, "POST", ROLES,
		   ROLE("patcher", RULE("\"patch\"", "\"\"", "\"configmaps\""))));
	drop(fx_do(&f, 201, "POST", BINDINGS, BIND("b", "Role", "patcher", USER("jane"))));
	fx_call(&f, &a, &jane, "PATCH", CM "/a?fieldManager=m", "application/apply-patch+yaml",
		NULL, body);
	assert_int_equal(a.status, 403);
	assert_msg(a.json, "configmaps \"a\" is forbidden: User \"jane\" cannot create resource "
			   "\"configmaps\" in API group \"\" in the namespace \"default\"");
	fx_answer_fini(&a);
	drop(fx_do(&f, 201, "POST", CM, "{\"metadata\":{\"name\":\"a\"}}"));
	fx_call(&f, &a, &jane, "PATCH", CM "/a?fieldManager=m", "application/apply-patch+yaml",
		NULL, body);
	assert_int_equal(a.status, 200);
	fx_answer_fini(&a);
}

/* ---- form ---------------------------------------------------------------------------------------------- */

#define FOUR(x_) x_ "," x_ "," x_ "," x_

static void wrong_roles_and_bindings_are_refused(void **state)
{
	static const struct {
		const char *path, *body, *says;
	} rows[] = {
		{CROLES,
		 "{\"metadata\":{\"name\":\"x\"},\"aggregationRule\":{\"clusterRoleSelectors\":[" FOUR(
			 FOUR(FOUR("{\"matchLabels\":{\"a\":\"b\"}}"))) ",{}]}}",
		 "aggregationRule.clusterRoleSelectors: Too many: 65: must have at most 64 items"},
		{ROLES, ROLE("r", "{\"verbs\":[],\"apiGroups\":[\"\"],\"resources\":[\"pods\"]}"),
		 "rules[0].verbs: Required value: verbs must contain at least one value"},
		{ROLES, ROLE("r", "{\"verbs\":[\"get\"],\"resources\":[\"pods\"]}"),
		 "rules[0].apiGroups: Required value: resource rules must supply at least one api group"},
		{ROLES, ROLE("r", "{\"verbs\":[\"get\"],\"apiGroups\":[\"\"]}"),
		 "rules[0].resources: Required value: resource rules must supply at least one resource"},
		{ROLES, ROLE("r", "{\"verbs\":[\"get\"],\"nonResourceURLs\":[\"/x\"]}"),
		 "namespaced rules cannot apply to non-resource URLs"},
		{CROLES,
		 ROLE("r", "{\"verbs\":[\"get\"],\"nonResourceURLs\":[\"/x\"],\"apiGroups\":[\"\"],"
			   "\"resources\":[\"pods\"]}"),
		 "rules cannot apply to both regular resources and non-resource URLs"},
		{CROLES, ROLE("a%2Fb", RULE("\"get\"", "\"\"", "\"pods\"")), "may not contain '%'"},
		{CROLES, "{\"metadata\":{\"name\":\"x\"},\"aggregationRule\":{}}",
		 "at least one clusterRoleSelector required"},
		{BINDINGS, BIND("b", "Role", "", USER("x")), "roleRef.name: Required value"},
		{BINDINGS, BIND("b", "Thing", "r", USER("x")),
		 "roleRef.kind: Unsupported value: \"Thing\""},
		{CBINDS, BIND("b", "Role", "r", USER("x")),
		 "roleRef.kind: Unsupported value: \"Role\""},
		{BINDINGS, BIND("b", "ClusterRole", "view", "{\"kind\":\"Robot\",\"name\":\"x\"}"),
		 "subjects[0].kind: Unsupported value: \"Robot\""},
		{BINDINGS,
		 BIND("b", "ClusterRole", "view", "{\"kind\":\"ServiceAccount\",\"name\":\"x\"}"),
		 "subjects[0].namespace: Required value"},
		{BINDINGS, BIND("b", "ClusterRole", "view", "{\"kind\":\"User\",\"name\":\"\"}"),
		 "subjects[0].name: Required value"},
		{BINDINGS,
		 BIND("b", "ClusterRole", "view",
		      "{\"kind\":\"User\",\"name\":\"x\",\"apiGroup\":\"y\"}"),
		 "subjects[0].apiGroup: Unsupported value: \"y\""},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct json *a = fx_do(&f, 422, "POST", rows[i].path, rows[i].body);

		if (!strstr(js_get_str(a, "message"), rows[i].says))
			fail_msg("row %zu: %s", i, js_get_str(a, "message"));
		drop(a);
	}
	drop(fx_do(&f, 201, "POST", BINDINGS, BIND("b", "ClusterRole", "view", USER("x"))));
	struct json *a = fx_patch(&f, 422, "merge-patch", BINDINGS "/b",
				  "{\"roleRef\":{\"name\":\"edit\"}}");

	assert_non_null(strstr(js_get_str(a, "message"), "cannot change roleRef"));
	drop(a);
}

static void a_role_has_a_bounded_number_of_rights(void **state)
{
	struct sbuf b = SBUF_INIT(1 << 20);
	struct sbuf words = SBUF_INIT(1 << 20);

	(void)state;
	for (int i = 0; i < 150; i++)
		sbuf_addf(&words, "%s\"w%d\"", i ? "," : "", i);
	sbuf_addf(&b,
		  "{\"metadata\":{\"name\":\"big\"},\"rules\":[{\"verbs\":[%s],\"apiGroups\":[%s],"
		  "\"resources\":[%s]}]}",
		  sbuf_str(&words), sbuf_str(&words), sbuf_str(&words));
	struct json *a = fx_do(&f, 422, "POST", CROLES, sbuf_str(&b));

	assert_non_null(strstr(js_get_str(a, "message"), "rules: Too many"));
	drop(a);
	sbuf_fini(&b);
	sbuf_fini(&words);
}

/* ---- escalation ---------------------------------------------------------------------------------------- */

static void nobody_gives_rights_that_he_lacks(void **state)
{
	(void)state;
	bind("jane", "admin");
	drop(fx_as(&f, &jane, 201, "POST", ROLES,
		   ROLE("r", RULE("\"get\",\"update\"", "\"\"", "\"configmaps\""))));
	struct json *a = fx_as(
		&f, &jane, 403, "POST", ROLES,
		ROLE("s", RULE("\"get\",\"update\",\"create\"", "\"\"", "\"nodes\",\"services\"")));

	assert_msg(
		a,
		"roles.rbac.authorization.k8s.io \"s\" is forbidden: user \"jane\" "
		"(groups=[\"system:authenticated\"]) is attempting to grant RBAC permissions not "
		"currently held:\n{APIGroups:[\"\"], Resources:[\"nodes\"], Verbs:[\"get\", "
		"\"update\", \"create\"]}");
	drop(a);
	/* wildcards are more than all that there is */
	drop(fx_as(&f, &jane, 403, "POST", ROLES,
		   ROLE("t", RULE("\"*\"", "\"\"", "\"services\""))));
	drop(fx_as(&f, &jane, 403, "POST", ROLES,
		   ROLE("t", RULE("\"get\"", "\"*\"", "\"services\""))));
	drop(fx_as(&f, &jane, 403, "POST", ROLES, ROLE("t", RULE("\"get\"", "\"\"", "\"*\""))));
	drop(fx_as(&f, &jane, 403, "PUT", ROLES "/r?dryRun=All",
		   ROLE("r", RULE("\"get\"", "\"\"", "\"nodes\""))));
	drop(fx_as(&f, &jane, 403, "PATCH", ROLES "/r",
		   "{\"rules\":[" RULE("\"delete\"", "\"\"", "\"pods\"") "]}"));
	/* bindings: of what one has, of what one lacks, of what there is not */
	drop(fx_as(&f, &jane, 201, "POST", BINDINGS,
		   BIND("b1", "ClusterRole", "edit", USER("joe"))));
	drop(fx_as(&f, &jane, 403, "POST", BINDINGS,
		   BIND("b2", "ClusterRole", "cluster-admin", USER("joe"))));
	drop(fx_as(&f, &jane, 403, "POST", BINDINGS,
		   BIND("b2", "ClusterRole", "kubevirt.io:migrate", USER("jane"))));
	drop(fx_as(&f, &jane, 404, "POST", BINDINGS, BIND("b2", "Role", "none", USER("joe"))));
	drop(fx_as(&f, &jane, 403, "POST", CBINDS, BIND("b2", "ClusterRole", "edit", USER("joe"))));
	drop(fx_as(&f, &jane, 403, "POST", CROLES, ROLE("c", RULE("\"get\"", "\"\"", "\"pods\""))));
	/* the verbs that allow it all the same */
	drop(fx_do(&f, 201, "POST", ROLES,
		   ROLE("boss",
			"{\"verbs\":[\"escalate\",\"bind\"],\"apiGroups\":[\"rbac.authorization."
			"k8s.io\"],\"resources\":[\"roles\",\"clusterroles\"]}")));
	drop(fx_do(&f, 201, "POST", BINDINGS, BIND("b3", "Role", "boss", USER("jane"))));
	drop(fx_as(&f, &jane, 201, "POST", ROLES, ROLE("t", RULE("\"*\"", "\"*\"", "\"*\""))));
	drop(fx_as(&f, &jane, 201, "POST", BINDINGS,
		   BIND("b4", "ClusterRole", "kubevirt.io:migrate", USER("jane"))));
}

static void gathering_roles_needs_all_rights(void **state)
{
	static const char rule[] = "{\"metadata\":{\"name\":\"g\"},\"aggregationRule\":{"
				   "\"clusterRoleSelectors\":[{\"matchLabels\":{\"a\":\"b\"}}]}}";

	(void)state;
	drop(fx_do(&f, 201, "POST", CROLES,
		   ROLE("role-writer", RULE("\"create\",\"update\",\"patch\"",
					    "\"rbac.authorization.k8s.io\"", "\"clusterroles\""))));
	drop(fx_do(&f, 201, "POST", CBINDS, BIND("w", "ClusterRole", "role-writer", USER("jane"))));
	drop(fx_as(&f, &jane, 403, "POST", CROLES, rule));
	/* a label that would carry another's rights into a role of many */
	drop(fx_as(&f, &jane, 403, "PATCH", CROLES "/cluster-admin",
		   "{\"metadata\":{\"labels\":{\"rbac.authorization.k8s.io/aggregate-to-view\":"
		   "\"true\"}}}"));
	drop(fx_do(&f, 201, "POST", CBINDS,
		   BIND("x", "ClusterRole", "cluster-admin", USER("jane"))));
	drop(fx_as(&f, &jane, 201, "POST", CROLES, rule));
}

static void roles_gather_the_rules_of_others(void **state)
{
	(void)state;
	bind("jane", "view");
	drop(fx_as(&f, &jane, 403, "GET",
		   "/apis/ferry.dev/v1alpha1/namespaces/default/portbindings", NULL));
	drop(fx_do(
		&f, 201, "POST", CROLES,
		"{\"metadata\":{\"name\":\"ports\",\"labels\":{\"rbac.authorization.k8s.io/aggregate-to-"
		"view\":\"true\"}},\"rules\":[" RULE("\"list\"", "\"ferry.dev\"",
						     "\"portbindings\"") "]}"));
	fx_settle(&f);
	drop(fx_as(&f, &jane, 200, "GET",
		   "/apis/ferry.dev/v1alpha1/namespaces/default/portbindings", NULL));
	/* "edit" has gathered what "view" has */
	bind("joe", "edit");
	drop(fx_as(&f, &joe, 200, "GET", "/apis/ferry.dev/v1alpha1/namespaces/default/portbindings",
		   NULL));
	drop(fx_do(&f, 200, "DELETE", CROLES "/ports", NULL));
	fx_settle(&f);
	drop(fx_as(&f, &jane, 403, "GET",
		   "/apis/ferry.dev/v1alpha1/namespaces/default/portbindings", NULL));
	drop(fx_as(&f, &joe, 403, "GET", "/apis/ferry.dev/v1alpha1/namespaces/default/portbindings",
		   NULL));
}

/* ---- the standard roles -------------------------------------------------------------------------------- */

static void standard_roles_are_mended_and_additions_kept(void **state)
{
	(void)state;
	drop(fx_do(&f, 200, "DELETE", CROLES "/kubevirt.io:migrate", NULL));
	drop(fx_do(&f, 200, "DELETE", CBINDS "/system:discovery", NULL));
	drop(fx_patch(&f, 200, "merge-patch", CROLES "/kubevirt.io:default",
		      "{\"metadata\":{\"labels\":{\"mine\":\"x\"}},\"rules\":[" RULE(
			      "\"watch\"", "\"kubevirt.io\"", "\"kubevirts\"") "]}"));
	drop(fx_patch(
		&f, 200, "merge-patch", CROLES "/system:basic-user",
		"{\"metadata\":{\"annotations\":{\"rbac.authorization.kubernetes.io/autoupdate\":"
		"\"false\"}},\"rules\":[]}"));
	drop(fx_patch(&f, 200, "merge-patch", CBINDS "/kubevirt.io:default",
		      "{\"subjects\":[{\"kind\":\"User\",\"name\":\"jane\"}]}"));
	fx_settle(&f);
	fx_again(&f, &hooks);
	drop(fx_do(&f, 200, "GET", CROLES "/kubevirt.io:migrate", NULL));
	drop(fx_do(&f, 200, "GET", CBINDS "/system:discovery", NULL));
	struct json *a = fx_do(&f, 200, "GET", CROLES "/kubevirt.io:default", NULL);

	assert_int_equal(js_len(js_get(a, "rules")), 3);
	assert_path(a, "x", "metadata", "labels", "mine");
	drop(a);
	a = fx_do(&f, 200, "GET", CROLES "/system:basic-user", NULL);
	assert_int_equal(js_len(js_get(a, "rules")), 0);
	drop(a);
	a = fx_do(&f, 200, "GET", CBINDS "/kubevirt.io:default", NULL);
	assert_int_equal(js_len(js_get(a, "subjects")), 2);
	drop(a);
	/* and then there is nothing left to do */
	int64_t rev = store_rev(f.store);

	fx_again(&f, &hooks);
	assert_int_equal(store_rev(f.store), rev);
}

#define DATAVOLUMES "/apis/cdi.kubevirt.io/v1beta1/namespaces/default/datavolumes"

/* What KubeVirt's roles give (report I4: object and subresource agree). */
static void the_roles_of_people_give_this(void **state)
{
	static const char *const roles[] = {"view", "edit", "admin", "kubevirt.io:migrate",
					    "cluster-admin"};
	static const struct {
		const char *method, *path, *body;
		bool is_sub;
		const char *may; /* v view, e edit, a admin, m migrate, c cluster-admin */
	} rows[] = {
		{"GET", VMS, NULL, false, "veac"},
		{"POST", VMS "?dryRun=All", "{}", false, "eac"},
		{"DELETE", VMS "/v?dryRun=All", NULL, false, "eac"},
		{"DELETE", VMS "?dryRun=All", NULL, false, "ac"},
		{"GET", VMIMS, NULL, false, "veamc"},
		{"POST", VMIMS "?dryRun=All", "{}", false, "mc"},
		{"DELETE", VMIMS "/m?dryRun=All", NULL, false, "mc"},
		{"DELETE", VMIMS "?dryRun=All", NULL, false, "mc"},
		{"PATCH", VMIMS "/m?dryRun=All", "{}", false, "mc"},
		{"PUT", SUB "/v/migrate", NULL, true, "mc"},
		{"PUT", SUB "/v/start", NULL, true, "eac"},
		{"PUT", SUB "/v/stop", NULL, true, "eac"},
		{"PUT", SUB "/v/restart", NULL, true, "eac"},
		{"PUT", SUB "/v/evacuate/cancel", NULL, true, "eac"},
		{"GET", SUB "/v/expand-spec", NULL, true, "veac"},
		{"GET", SUB "/v/portforward/22/tcp", NULL, true, "eac"},
		{"PUT", "/apis/subresources.kubevirt.io/v1/namespaces/default/expand-vm-spec", "{}",
		 true, "veac"},
		{"GET", SUBI "/v/console", NULL, true, "eac"},
		{"GET", SUBI "/v/vnc", NULL, true, "eac"},
		{"GET", SUBI "/v/vnc/screenshot", NULL, true, "ac"},
		{"GET", SUBI "/v/guestosinfo", NULL, true, "veac"},
		{"PUT", SUBI "/v/pause", NULL, true, "eac"},
		{"PUT", SUBI "/v/reset", NULL, true, "eac"},
		{"GET", "/api/v1/namespaces/default/secrets", NULL, false, "eac"},
		{"GET", "/api/v1/namespaces/default/pods", NULL, false, "veac"},
		{"DELETE", "/api/v1/namespaces/default/pods/p?dryRun=All", NULL, false, "c"},
		{"POST", "/api/v1/namespaces/default/pods?dryRun=All", "{}", false, "c"},
		{"POST", "/api/v1/namespaces/default/pods/p/eviction", "{}", false, "eac"},
		{"GET", DATAVOLUMES, NULL, false, "veac"},
		{"POST", DATAVOLUMES "?dryRun=All", "{}", false, "eac"},
		{"DELETE", DATAVOLUMES "?dryRun=All", NULL, false, "ac"},
		{"GET", "/apis/cdi.kubevirt.io/v1beta1/storageprofiles", NULL, false, "veamc"},
		{"GET", ROLES, NULL, false, "ac"},
		{"GET", "/api/v1/nodes", NULL, false, ""},
		{"GET", "/apis/kubevirt.io/v1/namespaces/default/kubevirts", NULL, false, "veamc"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(roles); i++)
		bind(roles[i], roles[i]);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char may[8] = "";
		size_t n = 0;

		for (size_t k = 0; k < ARRAY_SIZE(roles); k++) {
			const struct apisrv_user who = {
				.name = roles[k], .n_groups = 1, .groups = known};
			struct fx_answer a;

			fx_call(&f, &a, &who, rows[i].method, rows[i].path,
				strcmp(rows[i].method, "PATCH") == 0
					? "application/merge-patch+json"
					: NULL,
				NULL, rows[i].body);
			bool refused = a.status == (rows[i].is_sub ? 401 : 403);

			if (rows[i].is_sub && refused)
				assert_string_equal(a.content_type, "text/plain");
			if (!refused)
				may[n++] = str_has_prefix(roles[k], "kubevirt.io:") ? 'm'
										    : roles[k][0];
			fx_answer_fini(&a);
		}
		if (strcmp(may, rows[i].may) != 0)
			fail_msg("%s %s: '%s' may instead of '%s'", rows[i].method, rows[i].path,
				 may, rows[i].may);
	}
}

static void a_denied_subresource_is_a_401_with_text(void **state)
{
	struct fx_answer a;

	(void)state;
	fx_call(&f, &a, &jane, "PUT", SUB "/v/migrate", NULL, NULL, NULL);
	assert_int_equal(a.status, 401);
	assert_string_equal(a.content_type, "text/plain");
	assert_string_equal(
		a.text, "User \"jane\" cannot update resource \"virtualmachines/migrate\" in API "
			"group \"subresources.kubevirt.io\" in the namespace \"default\"");
	fx_answer_fini(&a);
}

/* Report I4: whoever may migrate cannot hold up a drain by its migrations. */
static void a_tenant_cannot_stop_an_evacuation(void **state)
{
	static const char vmim[] =
		"{\"metadata\":{\"name\":\"%s\"%s},\"spec\":{\"vmiName\":\"v\"}}";
	static const char mark[] =
		",\"annotations\":{\"kubevirt.io/evacuationMigration\":\"node-1\"}";
	char own[256], evac[256];

	(void)state;
	bind("jane", "admin");
	bind("jane", "kubevirt.io:migrate");
	snprintf(own, sizeof(own), vmim, "own", "");
	snprintf(evac, sizeof(evac), vmim, "evac", mark);
	drop(fx_as(&f, &jane, 403, "POST", VMIMS, evac));
	drop(fx_as(&f, &fx_controller, 201, "POST", VMIMS, evac));
	drop(fx_as(&f, &jane, 201, "POST", VMIMS, own));
	drop(fx_as(&f, &jane, 200, "GET", VMIMS "/evac", NULL));
	drop(fx_as(
		&f, &jane, 403, "PATCH", VMIMS "/own",
		"{\"metadata\":{\"annotations\":{\"kubevirt.io/evacuationMigration\":\"node-1\"}}}"));
	drop(fx_as(&f, &jane, 403, "PATCH", VMIMS "/evac",
		   "{\"metadata\":{\"annotations\":{\"kubevirt.io/evacuationMigration\":null}}}"));
	struct json *a = fx_as(&f, &jane, 403, "DELETE", VMIMS "/evac", NULL);

	assert_msg(
		a,
		"virtualmachineinstancemigrations.kubevirt.io \"evac\" is forbidden: this migration "
		"belongs to the evacuation of a node, and only those who may update nodes may "
		"create, change or delete it");
	drop(a);
	/* a deletion of all runs as the caller, object by object */
	drop(fx_as(&f, &jane, 403, "DELETE", VMIMS, NULL));
	drop(fx_do(&f, 200, "GET", VMIMS "/evac", NULL));
	/* whoever empties nodes may */
	drop(fx_do(&f, 201, "POST", CROLES,
		   ROLE("drainer", RULE("\"update\"", "\"\"", "\"nodes\""))));
	drop(fx_do(&f, 201, "POST", CBINDS, BIND("d", "ClusterRole", "drainer", USER("jane"))));
	drop(fx_as(&f, &jane, 200, "DELETE", VMIMS "/evac", NULL));
}

/* ---- reviews ------------------------------------------------------------------------------------------- */

#define REVIEWS "/apis/authorization.k8s.io/v1"

static bool review(const struct apisrv_user *u, const char *path, const char *spec,
		   const char *reason)
{
	char body[1024];

	snprintf(body, sizeof(body), "{\"spec\":%s}", spec);
	struct json *a = fx_as(&f, u, 201, "POST", path, body);
	bool allowed = js_bool(js_at(a, "status", "allowed", NULL), false);

	if (reason)
		assert_path(a, reason, "status", "reason");
	drop(a);
	return allowed;
}

static void reviews_say_what_requests_are_answered(void **state)
{
	static const char get_cm[] =
		"{\"resourceAttributes\":{\"verb\":\"get\",\"resource\":\"configmaps\","
		"\"namespace\":\"default\"}}";

	(void)state;
	assert_false(review(&jane, REVIEWS "/selfsubjectaccessreviews", get_cm, NULL));
	drop(fx_do(&f, 201, "POST", BINDINGS, BIND("b", "ClusterRole", "view", USER("jane"))));
	assert_true(
		review(&jane, REVIEWS "/selfsubjectaccessreviews", get_cm,
		       "RBAC: allowed by RoleBinding \"default/b\" of ClusterRole \"view\" to User "
		       "\"jane\""));
	assert_true(review(
		&jane, REVIEWS "/selfsubjectaccessreviews",
		"{\"resourceAttributes\":{\"verb\":\"get\",\"group\":\"subresources.kubevirt.io\","
		"\"resource\":\"virtualmachines\",\"subresource\":\"expand-spec\",\"namespace\":"
		"\"default\"}}",
		NULL));
	assert_false(review(&jane, REVIEWS "/selfsubjectaccessreviews",
			    "{\"resourceAttributes\":{\"verb\":\"*\",\"resource\":\"configmaps\","
			    "\"namespace\":\"default\"}}",
			    NULL));
	/* paths, truly */
	assert_false(review(&jane, REVIEWS "/selfsubjectaccessreviews",
			    "{\"nonResourceAttributes\":{\"verb\":\"get\",\"path\":\"/metrics\"}}",
			    NULL));
	assert_true(review(&jane, REVIEWS "/selfsubjectaccessreviews",
			   "{\"nonResourceAttributes\":{\"verb\":\"get\",\"path\":\"/api\"}}",
			   NULL));
	assert_true(review(&fx_admin, REVIEWS "/selfsubjectaccessreviews",
			   "{\"nonResourceAttributes\":{\"verb\":\"get\",\"path\":\"/metrics\"}}",
			   NULL));
	/* about others, for whoever may ask */
	drop(fx_as(&f, &jane, 403, "POST", REVIEWS "/subjectaccessreviews", "{}"));
	drop(fx_as(&f, NULL, 403, "POST", REVIEWS "/selfsubjectaccessreviews", "{}"));
	assert_true(
		review(&fx_admin, REVIEWS "/subjectaccessreviews",
		       "{\"user\":\"jane\",\"resourceAttributes\":{\"verb\":\"get\",\"resource\":"
		       "\"configmaps\",\"namespace\":\"default\"}}",
		       NULL));
	assert_false(review(&fx_admin, REVIEWS "/subjectaccessreviews",
			    "{\"user\":\"joe\",\"groups\":[\"x\"],\"extra\":{\"a\":[\"b\"]},"
			    "\"resourceAttributes\":{\"verb\":\"get\",\"resource\":\"configmaps\","
			    "\"namespace\":\"default\"}}",
			    NULL));
	assert_true(
		review(&fx_admin, REVIEWS "/subjectaccessreviews",
		       "{\"user\":\"x\",\"groups\":[\"system:masters\"],\"nonResourceAttributes\":{"
		       "\"verb\":\"get\",\"path\":\"/metrics\"}}",
		       NULL));
	bind("joe", "admin");
	assert_true(
		review(&joe, REVIEWS "/namespaces/default/localsubjectaccessreviews",
		       "{\"user\":\"jane\",\"resourceAttributes\":{\"verb\":\"get\",\"resource\":"
		       "\"configmaps\",\"namespace\":\"default\"}}",
		       NULL));
	drop(fx_as(&f, &joe, 403, "POST",
		   REVIEWS "/namespaces/kube-system/localsubjectaccessreviews", "{}"));
	struct json *a = fx_do(
		&f, 422, "POST", REVIEWS "/namespaces/default/localsubjectaccessreviews",
		"{\"spec\":{\"resourceAttributes\":{\"verb\":\"get\",\"namespace\":\"other\"}}}");

	assert_non_null(strstr(js_get_str(a, "message"), "must match metadata.namespace"));
	assert_non_null(strstr(js_get_str(a, "message"), "at least one of user or group"));
	drop(a);
	drop(fx_do(&f, 422, "POST", REVIEWS "/selfsubjectaccessreviews", "{}"));
}

static void ones_rules_are_listed(void **state)
{
	static const char body[] = "{\"spec\":{\"namespace\":\"default\"}}";
	struct json *a;

	(void)state;
	a = fx_as(&f, &jane, 201, "POST", REVIEWS "/selfsubjectrulesreviews", body);
	size_t n = js_len(js_at(a, "status", "resourceRules", NULL));

	/* Oneself twice, KubeVirt and its version, CDI's settings, instance types. */
	assert_int_equal(n, 6);
	assert_true(js_len(js_at(a, "status", "nonResourceRules", NULL)) >= 2);
	drop(a);
	bind("jane", "kubevirt.io:migrate");
	a = fx_as(&f, &jane, 201, "POST", REVIEWS "/selfsubjectrulesreviews", body);
	assert_int_equal(js_len(js_at(a, "status", "resourceRules", NULL)), n + 2);
	drop(a);
	a = fx_do(&f, 201, "POST", REVIEWS "/selfsubjectrulesreviews", body);
	assert_string_equal(
		js_str(js_item(
			js_at(js_item(js_at(a, "status", "resourceRules", NULL), 0), "verbs", NULL),
			0)),
		"*");
	drop(a);
	a = fx_as(&f, &fx_node1, 201, "POST", REVIEWS "/selfsubjectrulesreviews", body);
	assert_true(js_len(js_at(a, "status", "resourceRules", NULL)) > 20);
	assert_true(js_bool(js_at(a, "status", "incomplete", NULL), false));
	drop(a);
	drop(fx_do(&f, 400, "POST", REVIEWS "/selfsubjectrulesreviews", "{}"));
}

/* ---- asking as another --------------------------------------------------------------------------------- */

static int ask_as(const struct apisrv_user *user, const struct apisrv_user *as, const char *method,
		  const char *target, const char *body, struct json **out)
{
	struct fx_answer a;

	fx_call_as(&f, &a, user, as, method, target, body);
	int status = a.status;

	if (out)
		*out = js_ref(a.json);
	fx_answer_fini(&a);
	return status;
}

static void who_may_asks_as_another(void **state)
{
	static const char *const groups[] = {"team-a"}, *const masters[] = {"system:masters"};
	static const char *const scopes[] = {"view"};
	static const struct apisrv_extra extra[] = {{"scopes", 1, scopes}};
	static const struct apisrv_user as_joe = {.name = "joe"};
	static const struct apisrv_user as_team = {.name = "joe", .n_groups = 1, .groups = groups};
	static const struct apisrv_user as_master = {
		.name = "joe", .n_groups = 1, .groups = masters};
	static const struct apisrv_user as_all = {.name = "joe",
						  .n_groups = 1,
						  .groups = groups,
						  .uid = "u-1",
						  .n_extra = 1,
						  .extra = extra};
	static const struct apisrv_user nameless = {.n_groups = 1, .groups = masters};
	static const struct apisrv_user as_sa = {.name = "system:serviceaccount:default:robot"};
	static const char who[] = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
	struct json *a;

	(void)state;
	assert_int_equal(ask_as(&fx_admin, NULL, "GET", CM, NULL, NULL), 200);
	assert_int_equal(ask_as(&fx_admin, &as_joe, "GET", CM, NULL, NULL), 403);
	bind("joe", "view");
	assert_int_equal(ask_as(&fx_admin, &as_joe, "GET", CM, NULL, NULL), 200);
	assert_int_equal(ask_as(&fx_admin, &as_joe, "POST", CM, "{}", NULL), 403);
	/* nobody else may, nor for a subresource or a path */
	assert_int_equal(ask_as(&jane, &as_joe, "GET", CM, NULL, &a), 403);
	assert_msg(
		a,
		"users \"joe\" is forbidden: User \"jane\" cannot impersonate resource \"users\" in API "
		"group \"\" at the cluster scope");
	drop(a);
	assert_int_equal(ask_as(&jane, &as_joe, "GET", "/version", NULL, NULL), 403);
	assert_int_equal(ask_as(&fx_admin, &nameless, "GET", CM, NULL, NULL), 400);
	drop(fx_do(
		&f, 201, "POST", CROLES,
		ROLE("as-joe",
		     "{\"verbs\":[\"impersonate\"],\"apiGroups\":[\"\"],\"resources\":[\"users\"],"
		     "\"resourceNames\":[\"joe\"]}")));
	drop(fx_do(&f, 201, "POST", CBINDS, BIND("i", "ClusterRole", "as-joe", USER("jane"))));
	assert_int_equal(ask_as(&jane, &as_joe, "GET", CM, NULL, NULL), 200);
	assert_int_equal(ask_as(&jane, &as_team, "GET", CM, NULL, NULL), 403);
	assert_int_equal(ask_as(&jane, &as_master, "GET", CM, NULL, NULL), 403);
	assert_int_equal(ask_as(&jane, &as_all, "GET", CM, NULL, &a), 403);
	drop(a);
	/* all of a user, and the standard groups */
	assert_int_equal(ask_as(&fx_admin, &as_all, "POST", who, "{}", &a), 201);
	const struct json *info = js_at(a, "status", "userInfo", NULL);

	assert_path(info, "joe", "username");
	assert_path(info, "u-1", "uid");
	assert_string_equal(js_str(js_item(js_get(info, "groups"), 1)), "system:authenticated");
	assert_string_equal(js_str(js_item(js_at(info, "extra", "scopes", NULL), 0)), "view");
	drop(a);
	/* a service account is one */
	assert_int_equal(ask_as(&jane, &as_sa, "GET", CM, NULL, &a), 403);
	assert_non_null(
		strstr(js_get_str(a, "message"),
		       "cannot impersonate resource \"serviceaccounts\" in API group \"\" in the "
		       "namespace \"default\""));
	drop(a);
	bind("jane", "edit");
	assert_int_equal(ask_as(&jane, &as_sa, "POST", who, "{}", &a), 201);
	assert_string_equal(js_str(js_item(js_at(a, "status", "userInfo", "groups", NULL), 1)),
			    "system:serviceaccounts:default");
	drop(a);
}

/* ---- memory -------------------------------------------------------------------------------------------- */

/* Whatever allocation fails: no right appears, none is lost for good. */
static void rights_survive_the_want_of_memory(void **state)
{
	(void)state;
	drop(fx_do(&f, 201, "POST", CM, "{\"metadata\":{\"name\":\"a\"}}"));
	for (unsigned nth = 1; nth < 400; nth++) {
		struct fx_answer a;
		bool fired;

		fx_call_nth(&f, &a, nth, "POST", BINDINGS, NULL, NULL,
			    BIND("b", "ClusterRole", "view", USER("jane")));
		fired = a.fired;
		bool made = a.status == 201;

		fx_answer_fini(&a);
		fx_settle(&f);
		struct fx_answer g;

		fx_call(&f, &g, &jane, "GET", CM "/a", NULL, NULL, NULL);
		struct fx_answer there;

		fx_call(&f, &there, &fx_admin, "GET", BINDINGS "/b", NULL, NULL, NULL);
		assert_int_equal(g.status, there.status == 200 ? 200 : 403);
		if (there.status == 200)
			drop(fx_do(&f, 200, "DELETE", BINDINGS "/b", NULL));
		else
			assert_false(made);
		fx_answer_fini(&g);
		fx_answer_fini(&there);
		if (!fired)
			return;
	}
	fail_msg("the request needs more allocations than were tried");
}

int main(void)
{
#define T(fn_) cmocka_unit_test_setup_teardown(fn_, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(a_rule_gives_these_and_no_other_rights),
		T(a_binding_gives_rights_in_its_namespace),
		T(names_and_namespaces_are_looked_at),
		T(an_apply_that_creates_needs_the_right_to_create),
		T(wrong_roles_and_bindings_are_refused),
		T(a_role_has_a_bounded_number_of_rights),
		T(nobody_gives_rights_that_he_lacks),
		T(gathering_roles_needs_all_rights),
		T(roles_gather_the_rules_of_others),
		T(standard_roles_are_mended_and_additions_kept),
		T(the_roles_of_people_give_this),
		T(a_denied_subresource_is_a_401_with_text),
		T(a_tenant_cannot_stop_an_evacuation),
		T(reviews_say_what_requests_are_answered),
		T(ones_rules_are_listed),
		T(who_may_asks_as_another),
		T(rights_survive_the_want_of_memory),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("rbac", tests, NULL, NULL);
}
