/* Who may what by his certificate alone: strangers, and nodes, kind by kind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "api/gen/api_types.h"
#include "api/type.h"
#include "base/mem.h"
#include "base/str.h"
#include "fixture.h"
#include "virt/subresources/subresources.h"

#define CM   "/api/v1/namespaces/default/configmaps"
#define PODS "/api/v1/namespaces/default/pods"
#define VMIS "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances"

static struct fx f;

static int setup(void **state)
{
	(void)state;
	fx_up(&f, NULL);
	return 0;
}

static int setup_with_roles(void **state)
{
	(void)state;
	fx_up_with_roles(&f, NULL);
	return 0;
}

static int setup_with_hooks(void **state)
{
	static struct apisrv_hooks hooks;

	(void)state;
	hooks = (struct apisrv_hooks){.subres = virt_subres, .n_subres = n_virt_subres};
	fx_up(&f, &hooks);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fx_down(&f);
	return 0;
}

static void strangers_are_refused_in_kubernetes_words(void **state)
{
	(void)state;
	struct json *a = fx_as(&f, &fx_nobody, 403, "GET", PODS, NULL);

	assert_msg(
		a,
		"pods is forbidden: User \"eve\" cannot list resource \"pods\" in API group \"\" in the namespace "
		"\"default\"");
	drop(a);
	a = fx_as(&f, &fx_nobody, 403, "GET", "/apis/kubevirt.io/v1/virtualmachines", NULL);
	assert_msg(
		a,
		"virtualmachines.kubevirt.io is forbidden: User \"eve\" cannot list resource \"virtualmachines\" in "
		"API group \"kubevirt.io\" at the cluster scope");
	drop(a);
	a = fx_as(&f, NULL, 403, "GET", PODS "/x", NULL);
	assert_msg(
		a,
		"pods \"x\" is forbidden: User \"system:anonymous\" cannot get resource \"pods\" in API group \"\" in "
		"the namespace \"default\"");
	drop(a);
	drop(fx_as(&f, NULL, 200, "GET", "/version", NULL));
	drop(fx_as(&f, NULL, 200, "GET", "/healthz", NULL));
	drop(fx_as(&f, NULL, 403, "GET", "/api", NULL));
	drop(fx_as(&f, &fx_nobody, 200, "GET", "/api", NULL));
	drop(fx_as(&f, &fx_nobody, 403, "GET", "/metrics", NULL));
	drop(fx_as(&f, &fx_admin, 200, "GET", "/metrics", NULL));
}

static void nodes_touch_only_their_own(void **state)
{
	(void)state;
	static const char *const mine = "{\"metadata\":{\"name\":\"node-1\"}}";
	static const char *const other = "{\"metadata\":{\"name\":\"node-2\"}}";
	struct json *a;

	drop(fx_as(&f, &fx_node1, 201, "POST", "/api/v1/nodes", mine));
	drop(fx_as(&f, &fx_node1, 403, "POST", "/api/v1/nodes", other));
	drop(fx_do(&f, 201, "POST", "/api/v1/nodes", other));
	drop(fx_as(&f, &fx_node1, 403, "PATCH", "/api/v1/nodes/node-2/status",
		   "{\"status\":{\"phase\":\"x\"}}"));
	drop(fx_as(&f, &fx_node1, 200, "PATCH", "/api/v1/nodes/node-1",
		   "{\"metadata\":{\"labels\":{\"a\":\"b\"}}}"));
	drop(fx_as(&f, &fx_node1, 403, "DELETE", "/api/v1/nodes/node-2", NULL));
	drop(fx_as(&f, &fx_node1, 403, "POST", CM, "{\"metadata\":{\"name\":\"a\"}}"));
	drop(fx_as(&f, &fx_node1, 403, "GET", "/api/v1/secrets", NULL));
	/* A VMI that runs elsewhere is none of its business; nor can it take it. */
	drop(fx_do(
		&f, 201, "POST", VMIS,
		"{\"metadata\":{\"name\":\"v\"},\"spec\":{\"domain\":{\"memory\":{\"guest\":\"64Mi\"},"
		"\"devices\":{}},\"volumes\":[{\"name\":\"c\",\"cloudInitNoCloud\":{\"secretRef\":{\"name\":"
		"\"s\"}}}]}}"));
	drop(fx_do(&f, 201, "POST", "/api/v1/namespaces/default/secrets",
		   "{\"metadata\":{\"name\":\"s\"}}"));
	drop(fx_as(&f, &fx_controller, 200, "PATCH", VMIS "/v",
		   "{\"status\":{\"nodeName\":\"node-2\"}}"));
	drop(fx_as(&f, &fx_node1, 403, "GET", "/api/v1/namespaces/default/secrets/s", NULL));
	a = fx_as(&f, &fx_node1, 403, "PATCH", VMIS "/v", "{\"status\":{\"nodeName\":\"node-1\"}}");
	assert_non_null(
		strstr(js_get_str(a, "message"),
		       "Node restriction, virt-handler is only allowed to modify VMIs it owns"));
	drop(a);
	drop(fx_as(&f, &fx_controller, 200, "PATCH", VMIS "/v",
		   "{\"status\":{\"migrationState\":{\"targetNode\":\"node-1\"}}}"));
	drop(fx_as(&f, &fx_node1, 200, "PATCH", VMIS "/v",
		   "{\"status\":{\"nodeName\":\"node-1\"}}"));
	drop(fx_as(&f, &fx_node1, 200, "GET", "/api/v1/namespaces/default/secrets/s", NULL));
	drop(fx_as(&f, &fx_node1, 403, "DELETE", VMIS "/v", NULL));
}

#define PVS "/api/v1/persistentvolumes"
#define LOCAL_PV(name_, driver_, claim_)                                                        \
	"{\"metadata\":{\"name\":\"" name_ "\"},\"spec\":{\"capacity\":{\"storage\":\"1Gi\"},"  \
	"\"accessModes\":[\"ReadWriteOnce\"],\"csi\":{\"driver\":\"" driver_                    \
	"\",\"volumeHandle\":\"h\"},\"claimRef\":{\"namespace\":\"default\",\"name\":\"" claim_ \
	"\"}}}"
#define NOTE "{\"metadata\":{\"annotations\":{\"x\":\"y\"}}}"

static void a_volume_is_the_business_of_the_nodes_its_vm_moves_between(void **state)
{
	(void)state;
	drop(fx_do(&f, 201, "POST", PVS, LOCAL_PV("mine", "ferry.dev/local", "moving")));
	drop(fx_do(&f, 201, "POST", PVS, LOCAL_PV("others", "ferry.dev/local", "else")));
	drop(fx_do(&f, 201, "POST", PVS, LOCAL_PV("shared", "ferry.dev/shared", "moving")));
	drop(fx_as(&f, &fx_node1, 403, "PATCH", PVS "/mine", NOTE));
	drop(fx_do(&f, 201, "POST", VMIS,
		   "{\"metadata\":{\"name\":\"w\"},\"spec\":{\"domain\":{\"memory\":{\"guest\":"
		   "\"64Mi\"},\"devices\":{}},\"volumes\":[{\"name\":\"c\","
		   "\"persistentVolumeClaim\":{\"claimName\":\"moving\"}}]}}"));
	drop(fx_as(&f, &fx_node1, 403, "PATCH", PVS "/mine", NOTE));
	drop(fx_as(&f, &fx_controller, 200, "PATCH", VMIS "/w",
		   "{\"status\":{\"nodeName\":\"node-2\",\"migrationState\":{\"targetNode\":"
		   "\"node-1\"}}}"));
	drop(fx_as(&f, &fx_node1, 200, "PATCH", PVS "/mine", NOTE));
	drop(fx_as(&f, &fx_node1, 403, "PATCH", PVS "/others", NOTE));
	drop(fx_as(&f, &fx_node1, 403, "PATCH", PVS "/shared", NOTE));
	/* an old copy that is there has to be taken off the list, also when nothing moves any more */
	drop(fx_as(&f, &fx_controller, 200, "PATCH", PVS "/others",
		   "{\"metadata\":{\"annotations\":{\"ferry.dev/left-behind\":\"node-2/a "
		   "node-1/b\"}}}"));
	drop(fx_as(&f, &fx_node1, 200, "PATCH", PVS "/others", NOTE));
	drop(fx_as(&f, &fx_controller, 200, "PATCH", PVS "/others",
		   "{\"metadata\":{\"annotations\":{\"ferry.dev/left-behind\":\"node-11/a\"}}}"));
	drop(fx_as(&f, &fx_node1, 403, "PATCH", PVS "/others", NOTE));
}

/* ---- a node's rights, whole ------------------------------------------------------------------------- */

/* Letters: g get, l list, w watch, c create, u update, p patch, d delete, D deletecollection. */
struct right {
	const char *table, *sub;
	const char *own, *other, *unbound;
};

/* Every kind that is served, and every subresource.  A new one is closed to nodes (and this test fails)
 * until somebody has thought about it and written it down here. */
#define CLOSED(table_, sub_)             \
	{                                \
		table_, sub_, "", "", "" \
	}
#define READ(table_)                            \
	{                                       \
		table_, "", "glw", "glw", "glw" \
	}
static const struct right rights[] = {
	CLOSED("configmaps", ""),
	CLOSED("secrets", ""),
	CLOSED("serviceaccounts", ""),
	CLOSED("serviceaccounts", "token"),
	{"events", "", "gcup", "g", "g"},
	READ("namespaces"),
	CLOSED("namespaces", "status"),
	{"nodes", "", "glwcup", "glw", "glw"},
	{"nodes", "status", "gup", "g", "g"},
	{"nodes", "certificate", "gc", "", ""},
	READ("persistentvolumeclaims"),
	CLOSED("persistentvolumeclaims", "status"),
	{"persistentvolumes", "", "glwup", "glw", "glw"},
	CLOSED("persistentvolumes", "status"),
	{"pods", "", "glwd", "glw", "glw"},
	{"pods", "status", "gup", "g", "g"},
	CLOSED("pods", "binding"),
	CLOSED("pods", "eviction"),
	READ("services"),
	CLOSED("services", "status"),
	CLOSED("controllerrevisions.apps", ""),
	{"leases.coordination.k8s.io", "", "glwcupd", "glw", "glw"},
	READ("endpointslices.discovery.k8s.io"),
	{"allocations.ferry.dev", "", "glwcd", "glw", "glw"},
	{"diskwitnesses.ferry.dev", "", "glw", "glw", "glw"},
	{"diskwitnesses.ferry.dev", "status", "gup", "g", "g"},
	READ("ferryconfigs.ferry.dev"),
	{"handovers.ferry.dev", "", "glwcupd", "glw", "glw"},
	{"handovers.ferry.dev", "status", "gup", "g", "g"},
	READ("nodefences.ferry.dev"),
	CLOSED("nodefences.ferry.dev", "status"),
	{"portbindings.ferry.dev", "", "glwup", "glw", "glw"},
	READ("kubevirts.kubevirt.io"),
	CLOSED("kubevirts.kubevirt.io", "status"),
	{"virtualmachineinstancemigrations.kubevirt.io", "", "glw", "glw", "glw"},
	{"virtualmachineinstancemigrations.kubevirt.io", "status", "gup", "g", "g"},
	{"virtualmachineinstances.kubevirt.io", "", "glwup", "glw", "glw"},
	{"virtualmachines.kubevirt.io", "", "g", "g", "g"},
	CLOSED("virtualmachines.kubevirt.io", "status"),
	READ("migrationpolicies.migrations.kubevirt.io"),
	CLOSED("migrationpolicies.migrations.kubevirt.io", "status"),
	CLOSED("poddisruptionbudgets.policy", ""),
	CLOSED("poddisruptionbudgets.policy", "status"),
	CLOSED("clusterrolebindings.rbac.authorization.k8s.io", ""),
	CLOSED("clusterroles.rbac.authorization.k8s.io", ""),
	CLOSED("rolebindings.rbac.authorization.k8s.io", ""),
	CLOSED("roles.rbac.authorization.k8s.io", ""),
	CLOSED("limitranges", ""),
	CLOSED("resourcequotas", ""),
	CLOSED("resourcequotas", "status"),
	CLOSED("virtualmachinebackups.backup.kubevirt.io", ""),
	CLOSED("virtualmachinebackups.backup.kubevirt.io", "status"),
	CLOSED("virtualmachinebackuptrackers.backup.kubevirt.io", ""),
	CLOSED("virtualmachinebackuptrackers.backup.kubevirt.io", "status"),
	CLOSED("cdis.cdi.kubevirt.io", ""),
	CLOSED("cdis.cdi.kubevirt.io", "status"),
	CLOSED("cdiconfigs.cdi.kubevirt.io", ""),
	CLOSED("cdiconfigs.cdi.kubevirt.io", "status"),
	CLOSED("dataimportcrons.cdi.kubevirt.io", ""),
	CLOSED("dataimportcrons.cdi.kubevirt.io", "status"),
	CLOSED("datasources.cdi.kubevirt.io", ""),
	CLOSED("datasources.cdi.kubevirt.io", "status"),
	CLOSED("datavolumes.cdi.kubevirt.io", ""),
	CLOSED("datavolumes.cdi.kubevirt.io", "status"),
	CLOSED("objecttransfers.cdi.kubevirt.io", ""),
	CLOSED("objecttransfers.cdi.kubevirt.io", "status"),
	CLOSED("storageprofiles.cdi.kubevirt.io", ""),
	CLOSED("storageprofiles.cdi.kubevirt.io", "status"),
	CLOSED("volumeclonesources.cdi.kubevirt.io", ""),
	CLOSED("volumeimportsources.cdi.kubevirt.io", ""),
	CLOSED("volumeimportsources.cdi.kubevirt.io", "status"),
	CLOSED("volumeuploadsources.cdi.kubevirt.io", ""),
	CLOSED("volumeuploadsources.cdi.kubevirt.io", "status"),
	CLOSED("virtualmachineclones.clone.kubevirt.io", ""),
	CLOSED("virtualmachineclones.clone.kubevirt.io", "status"),
	CLOSED("virtualmachineexports.export.kubevirt.io", ""),
	CLOSED("virtualmachineexports.export.kubevirt.io", "status"),
	CLOSED("virtualmachineclusterinstancetypes.instancetype.kubevirt.io", ""),
	CLOSED("virtualmachineclusterpreferences.instancetype.kubevirt.io", ""),
	CLOSED("virtualmachineinstancetypes.instancetype.kubevirt.io", ""),
	CLOSED("virtualmachinepreferences.instancetype.kubevirt.io", ""),
	CLOSED("virtualmachineinstancepresets.kubevirt.io", ""),
	CLOSED("virtualmachineinstancereplicasets.kubevirt.io", ""),
	CLOSED("virtualmachineinstancereplicasets.kubevirt.io", "status"),
	CLOSED("plugins.plugin.kubevirt.io", ""),
	CLOSED("plugins.plugin.kubevirt.io", "status"),
	CLOSED("virtualmachinepools.pool.kubevirt.io", ""),
	CLOSED("virtualmachinepools.pool.kubevirt.io", "status"),
	CLOSED("virtualmachinerestores.snapshot.kubevirt.io", ""),
	CLOSED("virtualmachinerestores.snapshot.kubevirt.io", "status"),
	CLOSED("virtualmachinesnapshots.snapshot.kubevirt.io", ""),
	CLOSED("virtualmachinesnapshots.snapshot.kubevirt.io", "status"),
	CLOSED("virtualmachinesnapshotcontents.snapshot.kubevirt.io", ""),
	CLOSED("virtualmachinesnapshotcontents.snapshot.kubevirt.io", "status"),
	CLOSED("uploadtokenrequests.upload.cdi.kubevirt.io", ""),
	READ("storageclasses.storage.k8s.io"),
};

/* Whose an object is, of kinds that nodes write: %s is node-1, node-2 or nothing, name its name. */
struct sample {
	const char *table;
	const char *body; /* members behind metadata; NULL: the name alone tells */
	bool by_name;	  /* it is called like its node */
	const char *meta; /* further members of metadata */
};
static const struct sample samples[] = {
	{"nodes", .by_name = true},
	{"leases.coordination.k8s.io", .by_name = true},
	{"events",
	 ",\"involvedObject\":{\"kind\":\"VirtualMachineInstance\",\"apiVersion\":\"kubevirt.io/v1\","
	 "\"namespace\":\"default\",\"name\":\"$NAME\"},\"reason\":\"r\",\"message\":\"m\",\"type\":"
	 "\"Normal\""},
	{"pods",
	 ",\"spec\":{\"nodeName\":\"$NODE\",\"containers\":[{\"name\":\"c\",\"image\":\"i\"}]}"},
	{"persistentvolumes",
	 ",\"spec\":{\"capacity\":{\"storage\":\"1Gi\"},\"accessModes\":[\"ReadWriteOnce\"],\"csi\":{"
	 "\"driver\":\"ferry.dev/local\",\"volumeHandle\":\"h\"}}",
	 .meta = ",\"annotations\":{\"ferry.dev/left-behind\":\"$NODE/x\"}"},
	{"allocations.ferry.dev",
	 ",\"spec\":{\"type\":\"mac\",\"value\":\"$NAME\",\"owner\":{\"apiVersion\":\"v1\",\"kind\":"
	 "\"Node\",\"name\":\"$NODE\",\"uid\":\"u\"}}"},
	{"diskwitnesses.ferry.dev",
	 ",\"spec\":{\"vmiUID\":\"u\",\"podUID\":\"p\",\"nodeName\":\"n\",\"witness\":\"$NODE\","
	 "\"disks\":[\"d\"],\"epoch\":1}"},
	{"handovers.ferry.dev",
	 ",\"spec\":{\"vmiName\":\"v\",\"vmiUID\":\"u\",\"migrationUID\":\"m\",\"sourceNode\":\"$NODE\","
	 "\"targetNode\":\"elsewhere\",\"epoch\":1}"},
	{"portbindings.ferry.dev",
	 ",\"spec\":{\"network\":\"default\",\"mac\":\"02:00:00:00:00:01\",\"address\":\"10.1.1.1\",\"nodeName\":\"$NODE\","
	 "\"epoch\":1}"},
	{"virtualmachineinstancemigrations.kubevirt.io", ",\"spec\":{\"vmiName\":\"$NAME\"}"},
	{"virtualmachineinstances.kubevirt.io",
	 ",\"spec\":{\"domain\":{\"memory\":{\"guest\":\"64Mi\"},\"devices\":{}}},\"status\":{"
	 "\"nodeName\":\"$NODE\"}"},
};
enum whose { OWN, OTHER, UNBOUND, WHOSE__MAX };
static const char *const whose_node[] = {"node-1", "node-2", ""};
static const char *const whose_name[] = {"own", "other", "unbound"};

static const struct sample *sample_of(const char *table)
{
	for (size_t i = 0; i < ARRAY_SIZE(samples); i++)
		if (strcmp(samples[i].table, table) == 0)
			return &samples[i];
	return NULL;
}

/* Words $NODE and $NAME in text are replaced. */
static void fill(struct sbuf *b, const char *text, const char *node, const char *name)
{
	while (*text) {
		bool is_node = str_has_prefix(text, "$NODE"),
		     is_name = str_has_prefix(text, "$NAME");

		if (is_node || is_name)
			sbuf_adds(b, is_node ? node : name);
		else
			sbuf_addc(b, *text);
		text += is_node || is_name ? 5 : 1;
	}
}

static const char *name_of(const struct sample *s, enum whose w)
{
	return s && s->by_name && w != UNBOUND ? whose_node[w] : whose_name[w];
}

static char *body_of(const struct api_kind *k, const struct sample *s, enum whose w)
{
	struct sbuf b = SBUF_INIT(4096);
	const char *name = name_of(s, w);
	char *text = NULL;
	size_t n;

	sbuf_addf(&b, "{\"kind\":\"%s\",\"apiVersion\":\"%s\",\"metadata\":{\"name\":\"%s\"",
		  k->kind, k->api_version, name);
	if (s && s->meta)
		fill(&b, s->meta, whose_node[w], name);
	sbuf_adds(&b, "}");
	if (s && s->body)
		fill(&b, s->body, whose_node[w], name);
	sbuf_adds(&b, "}");
	assert_int_equal(sbuf_take(&b, &text, &n), RC_OK);
	return text;
}

static void path_of(char out[256], const struct api_kind *k, const char *name, const char *sub)
{
	snprintf(out, 256, "%s%s/%s%s/%s%s%s%s%s", *k->group ? "/apis/" : "/api", k->group,
		 k->version, k->is_namespaced ? "/namespaces/default" : "", k->plural,
		 name ? "/" : "", name ? name : "", sub && *sub ? "/" : "", sub ? sub : "");
}

/* What he is answered; a watch that begins counts as 200. */
struct outcome {
	int status;
};

static void on_answer(void *arg, const struct apisrv_answer *a)
{
	((struct outcome *)arg)->status = a->status;
}

static void on_begin(void *arg, int status, const char *type, size_t backlog)
{
	(void)type;
	(void)backlog;
	((struct outcome *)arg)->status = status;
}

static enum rc on_write(void *arg, const void *bytes, size_t n)
{
	(void)arg;
	(void)bytes;
	(void)n;
	return RC_OK;
}

static void on_end(void *arg)
{
	(void)arg;
}

static int ask(const struct apisrv_user *user, const char *method, const char *target,
	       const char *body)
{
	static const struct apisrv_sink sink = {.answer = on_answer,
						.stream_begin = on_begin,
						.stream_write = on_write,
						.stream_end = on_end};
	struct outcome out = {0};
	struct apisrv_request r = {.method = method,
				   .target = target,
				   .user = user,
				   .content_type = strcmp(method, "PATCH") == 0
							   ? "application/merge-patch+json"
							   : NULL,
				   .body = body,
				   .n_body = body ? strlen(body) : 0};
	struct apisrv_call *call = apisrv_handle(f.srv, &r, &sink, &out);

	for (int i = 0; i < 10000 && !out.status; i++)
		assert_int_equal(loop_step(f.loop, 0, NULL, NULL), RC_OK);
	assert_int_not_equal(out.status, 0);
	if (call && strstr(target, "watch="))
		apisrv_cancel(call);
	return out.status;
}

static bool is_refused(int status)
{
	return status == 403 || status == 401;
}

static const struct {
	char letter;
	const char *method, *query;
	bool on_collection;
} asks[] = {{'g', "GET", "", false},
	    {'l', "GET", "", true},
	    {'w', "GET", "?watch=1", true},
	    {'c', "POST", "?dryRun=All", true},
	    {'u', "PUT", "?dryRun=All", false},
	    {'p', "PATCH", "?dryRun=All", false},
	    {'d', "DELETE", "?dryRun=All", false},
	    {'D', "DELETE", "?dryRun=All", true}};

/* The stored object, with a change. */
static char *changed_object(const char *path)
{
	struct fx_answer a;
	char *text = NULL;

	fx_call(&f, &a, &fx_admin, "GET", path, NULL, NULL, NULL);
	if (a.status == 200) {
		struct json *meta = js_get(a.json, "metadata");

		assert_int_equal(
			js_set(js_ensure_object(meta, "annotations"), "x", js_new_str("y")), RC_OK);
		text = js_to_text(a.json);
	}
	fx_answer_fini(&a);
	return text ? text : mem_strdup("{}");
}

/* What node-1 may do with the object.  Nothing is really changed. */
static void letters_of(const struct api_kind *k, const char *table, const char *sub, enum whose w,
		       char may[16])
{
	const struct sample *s = sample_of(table);
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(asks); i++) {
		bool whole = asks[i].on_collection && !*sub;
		char path[256], target[300];
		char *body = NULL;

		if (*sub && asks[i].on_collection && asks[i].letter != 'c')
			continue;
		path_of(path, k, whole ? NULL : name_of(s, w), sub);
		snprintf(target, sizeof(target), "%s%s", path, asks[i].query);
		if (asks[i].letter == 'c')
			body = body_of(k, s, w);
		else if (asks[i].letter == 'u')
			body = changed_object(path);
		else if (asks[i].letter == 'p')
			body = mem_strdup("{\"metadata\":{\"annotations\":{\"x\":\"y\"}}}");
		if (!is_refused(ask(&fx_node1, asks[i].method, target, body)))
			may[n++] = asks[i].letter;
		mem_free(body);
	}
	may[n] = '\0';
}

static const struct api_kind *kind_of_table(const char *table)
{
	const char *dot = strchr(table, '.'), *group = dot ? dot + 1 : "";
	size_t n = strcspn(table, ".");

	for (size_t i = 0; api_kinds[i]; i++)
		if (strcmp(api_kinds[i]->group, group) == 0 && strlen(api_kinds[i]->plural) == n &&
		    strncmp(api_kinds[i]->plural, table, n) == 0)
			return api_kinds[i];
	fail_msg("%s: there is no such kind", table);
	return api_kinds[0];
}

static void make_samples(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(samples); i++) {
		const struct api_kind *k = kind_of_table(samples[i].table);

		for (enum whose w = OWN; w < WHOSE__MAX; w++) {
			char path[256];
			char *body = body_of(k, &samples[i], w);

			path_of(path, k, NULL, NULL);
			drop(fx_as(&f, &fx_controller, 201, "POST", path, body));
			mem_free(body);
		}
	}
}

static const struct right *right_of(const char *table, const char *sub)
{
	for (size_t i = 0; i < ARRAY_SIZE(rights); i++)
		if (strcmp(rights[i].table, table) == 0 && strcmp(rights[i].sub, sub) == 0)
			return &rights[i];
	fail_msg("%s/%s: nobody has decided what a node may do with it", table, sub);
	return NULL;
}

static void check_rights(const struct api_kind *k, const char *sub)
{
	char table[160];

	snprintf(table, sizeof(table), "%s%s%s", k->plural, *k->group ? "." : "", k->group);
	const struct right *r = right_of(table, sub);
	const char *const want[] = {r->own, r->other, r->unbound};

	for (enum whose w = OWN; w < WHOSE__MAX; w++) {
		char may[16];

		letters_of(k, table, sub, w, may);
		if (strcmp(may, want[w]) != 0)
			fail_msg("%s/%s (%s): a node may '%s' instead of '%s'", table, sub,
				 whose_name[w], may, want[w]);
	}
}

static void a_node_may_this_and_no_more_with_each_kind(void **state)
{
	size_t n = 0;

	(void)state;
	make_samples();
	for (size_t i = 0; api_kinds[i]; i++) {
		const struct api_kind *k = api_kinds[i];

		if (str_is_empty(k->plural) || strcmp(k->plural, "bindings") == 0)
			continue;
		check_rights(k, "");
		n++;
		if (k->subresources & API_SUB_STATUS) {
			check_rights(k, "status");
			n++;
		}
		if (strcmp(k->plural, "nodes") == 0) {
			check_rights(k, "certificate");
			n++;
		}
		if (strcmp(k->plural, "serviceaccounts") == 0) {
			check_rights(k, "token");
			n++;
		}
		if (strcmp(k->plural, "pods") == 0) {
			check_rights(k, "binding");
			check_rights(k, "eviction");
			n += 2;
		}
	}
	/* a line of the table that nothing asks for would prove nothing */
	assert_int_equal(n, ARRAY_SIZE(rights));
}

static void a_node_has_no_right_on_subresources_of_virtual_machines(void **state)
{
	size_t n = 0;

	(void)state;
	make_samples();
	for (size_t i = 0; i < n_virt_subres; i++) {
		const struct api_subresource *h = virt_subres[i].at;
		char target[256];

		if (!*h->group || h->is_public)
			continue;
		snprintf(target, sizeof(target),
			 "/apis/subresources.kubevirt.io/v1/namespaces/default/%s%s%s%s",
			 h->resource, *h->resource ? "/own/" : "", h->path,
			 h->takes_rest ? "/22/tcp" : "");
		int status = ask(&fx_node1, h->method, target, NULL);

		if (status != 401)
			fail_msg("%s %s: %d", h->method, target, status);
		n++;
	}
	assert_true(n > 20);
}

static void a_node_tells_events_of_its_own_only(void **state)
{
	static const char fmt[] = "{\"metadata\":{\"generateName\":\"e\"},\"involvedObject\":{"
				  "\"kind\":\"%s\",\"namespace\":\"default\",\"name\":\"%s\"},"
				  "\"reason\":\"r\",\"message\":\"m\",\"type\":\"Normal\"}";
	static const struct {
		const char *kind, *name;
		int status;
	} rows[] = {
		{"Node", "node-1", 201},
		{"Node", "node-2", 403},
		{"Pod", "own", 201},
		{"Pod", "other", 403},
		{"Pod", "gone", 201},
		{"VirtualMachineInstance", "own", 201},
		{"VirtualMachineInstance", "other", 403},
		{"VirtualMachineInstance", "gone", 201},
		{"VirtualMachineInstance", "unbound", 403},
		{"VirtualMachine", "own", 403},
		{"Namespace", "default", 403},
	};
	char body[512];

	(void)state;
	make_samples();
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		snprintf(body, sizeof(body), fmt, rows[i].kind, rows[i].name);
		drop(fx_as(&f, &fx_node1, rows[i].status, "POST",
			   "/api/v1/namespaces/default/events", body));
	}
	/* nor is one made another's */
	snprintf(body, sizeof(body), fmt, "Node", "node-1");
	struct json *own =
		fx_as(&f, &fx_node1, 201, "POST", "/api/v1/namespaces/default/events", body);
	char path[128];

	snprintf(path, sizeof(path), "/api/v1/namespaces/default/events/%s",
		 js_str(js_at(own, "metadata", "name", NULL)));
	drop(own);
	drop(fx_as(&f, &fx_node1, 200, "PATCH", path, "{\"count\":2}"));
	drop(fx_as(&f, &fx_node1, 403, "PATCH", path,
		   "{\"involvedObject\":{\"name\":\"node-2\"}}"));
	/* its pod is bound here: the VMI will say so next */
	drop(fx_as(
		&f, &fx_controller, 200, "PATCH", PODS "/own",
		"{\"metadata\":{\"ownerReferences\":[{\"apiVersion\":\"kubevirt.io/v1\",\"kind\":"
		"\"VirtualMachineInstance\",\"name\":\"unbound\",\"uid\":\"u\"}]}}"));
	snprintf(body, sizeof(body), fmt, "VirtualMachineInstance", "unbound");
	drop(fx_as(&f, &fx_node1, 201, "POST", "/api/v1/namespaces/default/events", body));
}

int main(void)
{
#define T(fn_, setup_) cmocka_unit_test_setup_teardown(fn_, setup_, teardown)
	const struct CMUnitTest tests[] = {
		T(strangers_are_refused_in_kubernetes_words, setup_with_roles),
		T(nodes_touch_only_their_own, setup),
		T(a_volume_is_the_business_of_the_nodes_its_vm_moves_between, setup),
		T(a_node_may_this_and_no_more_with_each_kind, setup),
		T(a_node_has_no_right_on_subresources_of_virtual_machines, setup_with_hooks),
		T(a_node_tells_events_of_its_own_only, setup),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("rights", tests, NULL, NULL);
}
