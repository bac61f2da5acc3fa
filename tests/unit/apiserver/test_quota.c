#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "fixture.h"

#define NS	"/api/v1/namespaces/default/"
#define PODS	NS "pods"
#define QUOTAS	NS "resourcequotas"
#define CREATED "kubevirt.io/created-by"
#define JOB	"kubevirt.io/migrationJobUID"

/* ' for ", so that JSON stays legible. */
static const char *quoted(char *text)
{
	for (char *p = text; *p; p++)
		if (*p == '\'')
			*p = '"';
	return text;
}

static struct json *post(struct fx *f, int want, const char *target, const char *fmt, ...)
	PRINTF_LIKE(4, 5);
static struct json *post(struct fx *f, int want, const char *target, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	CLEANUP(mem_freep) char *body = mem_vprintf(fmt, ap);
	va_end(ap);
	return fx_as(f, &fx_controller, want, "POST", target, quoted(body));
}

static void make_quota(struct fx *f, const char *name, const char *hard)
{
	js_unref(post(f, 201, QUOTAS, "{'metadata':{'name':'%s'},'spec':{'hard':{%s}}}", name,
		      hard));
}

/* labels: "'a':'b'" */
static struct json *make_pod(struct fx *f, int want, const char *name, const char *labels,
			     const char *requests)
{
	return post(
		f, want, PODS,
		"{'metadata':{'name':'%s','labels':{%s}},'spec':{'containers':[{'name':'compute',"
		"'image':'x','resources':{'requests':{%s}}}]}}",
		name, labels, requests);
}

/* A launcher pod of a VM; job: a migration's target. */
static struct json *make_launcher(struct fx *f, int want, const char *name, const char *vmi,
				  const char *job, const char *requests)
{
	char labels[256];

	snprintf(labels, sizeof(labels), "'" CREATED "':'%s'%s%s%s", vmi,
		 *job ? ",'" JOB "':'" : "", job, *job ? "'" : "");
	return make_pod(f, want, name, labels, requests);
}

static void end_pod(struct fx *f, const char *name, const char *phase)
{
	char target[128], body[64];

	snprintf(target, sizeof(target), PODS "/%s/status", name);
	snprintf(body, sizeof(body), "{'status':{'phase':'%s'}}", phase);
	js_unref(fx_as(f, &fx_controller, 200, "PATCH", target, quoted(body)));
}

static void delete_now(struct fx *f, const char *what, const char *name)
{
	char target[128];

	snprintf(target, sizeof(target), NS "%s/%s?gracePeriodSeconds=0", what, name);
	js_unref(fx_do(f, 200, "DELETE", target, NULL));
}

/* status.used[resource] of a quota, once everything is written. */
static void assert_used(struct fx *f, const char *quota, const char *resource, const char *want)
{
	char target[128];

	snprintf(target, sizeof(target), QUOTAS "/%s", quota);
	fx_settle(f);
	CLEANUP(js_unrefp) struct json *q = fx_do(f, 200, "GET", target, NULL);
	const char *used = js_str(js_get(js_at(q, "status", "used", NULL), resource));

	if (!used || strcmp(used, want) != 0)
		fail_msg("%s of %s: %s instead of %s", resource, quota, used ? used : "nothing",
			 want);
}

static void what_would_exceed_a_quota_is_refused_in_kubernetes_words(void **state)
{
	struct fx *f = *state;

	make_quota(f, "q", "'requests.memory':'1Gi','requests.cpu':'2','pods':'10'");
	assert_used(f, "q", "requests.memory", "0");
	js_unref(make_pod(f, 201, "a", "", "'memory':'600Mi','cpu':'500m'"));
	CLEANUP(js_unrefp)
	struct json *no = make_pod(f, 403, "b", "", "'memory':'600Mi','cpu':'500m'");

	assert_msg(no,
		   "pods \"b\" is forbidden: exceeded quota: q, requested: requests.memory=600Mi, "
		   "used: requests.memory=600Mi, limited: requests.memory=1Gi");
	assert_path(no, "Forbidden", "reason");
	CLEANUP(js_unrefp)
	struct json *two = make_pod(f, 403, "b", "", "'memory':'2Gi','cpu':'4'");

	assert_msg(
		two,
		"pods \"b\" is forbidden: exceeded quota: q, requested: "
		"requests.cpu=4,requests.memory=2Gi, used: requests.cpu=500m,requests.memory=600Mi, "
		"limited: requests.cpu=2,requests.memory=1Gi");
	js_unref(make_pod(f, 409, "a", "", "'memory':'600Mi','cpu':'500m'"));
	assert_used(f, "q", "requests.memory", "600Mi");
	assert_used(f, "q", "requests.cpu", "500m");
	assert_used(f, "q", "pods", "1");
	/* What has ended, and what is gone, is given back. */
	end_pod(f, "a", "Succeeded");
	assert_used(f, "q", "requests.memory", "0");
	js_unref(make_pod(f, 201, "b", "", "'memory':'1Gi','cpu':'1'"));
	delete_now(f, "pods", "b");
	assert_used(f, "q", "pods", "0");
	js_unref(make_pod(f, 201, "c", "", "'memory':'1Gi','cpu':'1'"));
}

static void every_container_must_say_what_a_quota_limits(void **state)
{
	struct fx *f = *state;

	make_quota(f, "q", "'limits.cpu':'2','requests.memory':'1Gi'");
	CLEANUP(js_unrefp)
	struct json *no =
		post(f, 403, PODS,
		     "{'metadata':{'name':'a'},'spec':{'containers':[{'name':'x','image':'i'},"
		     "{'name':'y','image':'i','resources':{'limits':{'memory':'1Mi'}}}]}}");

	assert_msg(no,
		   "pods \"a\" is forbidden: failed quota: q: must specify limits.cpu for: x,y; "
		   "requests.memory for: x");
}

/* YAML's `pods: 2` is a number. */
static void amounts_may_be_numbers(void **state)
{
	struct fx *f = *state;

	make_quota(f, "q", "'pods':2,'requests.cpu':1.5,'requests.storage':1024");
	js_unref(make_pod(f, 201, "a", "", "'cpu':1"));
	CLEANUP(js_unrefp) struct json *no = make_pod(f, 403, "b", "", "'cpu':0.75");

	assert_msg(
		no,
		"pods \"b\" is forbidden: exceeded quota: q, requested: requests.cpu=750m, used: "
		"requests.cpu=1, limited: requests.cpu=1500m");
	js_unref(
		post(f, 403, NS "persistentvolumeclaims",
		     "{'metadata':{'name':'v'},'spec':{'accessModes':['ReadWriteOnce'],'resources':"
		     "{'requests':{'storage':2048}}}}"));
	js_unref(post(
		f, 201, NS "limitranges",
		"{'metadata':{'name':'l'},'spec':{'limits':[{'type':'Container','max':{'cpu':1}}]}}"));
	js_unref(make_pod(f, 422, "b", "", "'cpu':2")); /* the default limit is 1 */
	js_unref(make_pod(f, 201, "b", "", "'cpu':0.5"));
	assert_used(f, "q", "requests.cpu", "1500m");
	assert_used(f, "q", "pods", "2");
}

/* ---- a storm ------------------------------------------------------------------------------------- */

enum { STORM = 60 };

static void count_answer(void *arg, const struct apisrv_answer *a)
{
	unsigned *n = arg;

	assert_true(a->status == 201 || a->status == 403);
	n[a->status == 201]++;
}

static void a_storm_of_creates_never_goes_beyond_a_quota(void **state)
{
	static const struct apisrv_sink sink = {.answer = count_answer};
	unsigned n[2] = {0};
	struct fx *f = *state;

	make_quota(f, "q", "'count/configmaps':'17','pods':'5'");
	/* None is durable before the last is judged. */
	for (int i = 0; i < STORM; i++) {
		CLEANUP(mem_freep)
		char *body = mem_printf("{\"metadata\":{\"name\":\"c%d\"}}", i);
		struct apisrv_request r = {.method = "POST",
					   .target = NS "configmaps",
					   .body = body,
					   .n_body = strlen(body),
					   .user = &fx_admin};

		apisrv_handle(f->srv, &r, &sink, n);
	}
	fx_settle(f);
	assert_int_equal(n[1], 17);
	assert_int_equal(n[0], STORM - 17);
	assert_int_equal(store_count(f->store, "configmaps"), 17);
	assert_used(f, "q", "count/configmaps", "17");
}

static void a_dry_run_is_judged_and_charges_nothing(void **state)
{
	struct fx *f = *state;

	make_quota(f, "q", "'count/configmaps':'1'");
	for (int i = 0; i < 3; i++)
		js_unref(post(f, 201, NS "configmaps?dryRun=All", "{'metadata':{'name':'a'}}"));
	js_unref(post(f, 201, NS "configmaps", "{'metadata':{'name':'a'}}"));
	js_unref(post(f, 403, NS "configmaps?dryRun=All", "{'metadata':{'name':'b'}}"));
	assert_used(f, "q", "count/configmaps", "1");
}

/* ---- moves ------------------------------------------------------------------------------------------ */

static void a_move_never_counts_a_vm_twice(void **state)
{
	struct fx *f = *state;

	make_quota(f, "q", "'requests.memory':'1Gi','limits.cpu':'8','pods':'1','count/pods':'1'");
	js_unref(post(f, 201, PODS,
		      "{'metadata':{'name':'s','labels':{'" CREATED
		      "':'vmi-1'}},'spec':{'containers':"
		      "[{'name':'compute','image':'x','resources':{'requests':{'memory':'1Gi'},"
		      "'limits':{'cpu':'1'}}}]}}"));
	/* The quota is full: another VM has no room, the target of a move needs none. */
	js_unref(make_launcher(f, 403, "o", "vmi-2", "", "'memory':'1Mi'"));
	js_unref(make_launcher(f, 201, "t1", "vmi-1", "m1", "'memory':'1Gi'"));
	assert_used(f, "q", "requests.memory", "1Gi");
	assert_used(f, "q", "pods", "1");
	assert_used(f, "q", "count/pods", "1");
	js_unref(make_launcher(f, 403, "o", "vmi-2", "", "'memory':'1Mi'"));
	/* The switch: the source's charge ends, the target's stays. */
	end_pod(f, "s", "Succeeded");
	assert_used(f, "q", "requests.memory", "1Gi");
	assert_used(f, "q", "limits.cpu", "0");
	delete_now(f, "pods", "s");
	assert_used(f, "q", "pods", "1");
	/* And again, from the pod that was a target. */
	js_unref(make_launcher(f, 201, "t2", "vmi-1", "m2", "'memory':'1Gi'"));
	assert_used(f, "q", "requests.memory", "1Gi");
	end_pod(f, "t2", "Failed"); /* the move failed */
	assert_used(f, "q", "requests.memory", "1Gi");
	end_pod(f, "t1", "Succeeded");
	assert_used(f, "q", "requests.memory", "0");
}

static void a_larger_target_is_charged_the_difference(void **state)
{
	struct fx *f = *state;

	make_quota(f, "q", "'requests.memory':'1Gi'");
	js_unref(make_launcher(f, 201, "s", "vmi-1", "", "'memory':'600Mi'"));
	CLEANUP(js_unrefp)
	struct json *no = make_launcher(f, 403, "t", "vmi-1", "m1", "'memory':'1100Mi'");

	assert_msg(no,
		   "pods \"t\" is forbidden: exceeded quota: q, requested: requests.memory=500Mi, "
		   "used: requests.memory=600Mi, limited: requests.memory=1Gi");
	js_unref(make_launcher(f, 201, "t", "vmi-1", "m1", "'memory':'1Gi'"));
	assert_used(f, "q", "requests.memory", "1Gi");
}

/* Two pods that no migration made are two pods, whoever's they are. */
static void only_a_migrations_target_is_free(void **state)
{
	struct fx *f = *state;

	make_quota(f, "q", "'requests.memory':'1Gi'");
	js_unref(make_launcher(f, 201, "a", "vmi-1", "", "'memory':'600Mi'"));
	js_unref(make_launcher(f, 403, "b", "vmi-1", "", "'memory':'600Mi'"));
}

static void nobody_but_controllers_says_whose_pod_it_is(void **state)
{
	static const char *const labels[] = {CREATED, JOB};
	struct fx *f = *state;

	js_unref(make_launcher(f, 201, "l", "vmi-1", "m1", "'memory':'1Mi'"));
	for (size_t i = 0; i < ARRAY_SIZE(labels); i++) {
		char body[512], want[256];

		snprintf(body, sizeof(body),
			 "{'metadata':{'name':'x','labels':{'%s':'vmi-2'}},'spec':{'containers':"
			 "[{'name':'c','image':'i'}]}}",
			 labels[i]);
		snprintf(
			want, sizeof(want),
			"Pod \"x\" is invalid: metadata.labels: Forbidden: the label %s of a pod is "
			"the controllers' to set",
			labels[i]);
		CLEANUP(js_unrefp) struct json *no = fx_do(f, 422, "POST", PODS, quoted(body));

		assert_msg(no, want);
		/* Neither to another's, nor away. */
		snprintf(body, sizeof(body), "{'metadata':{'labels':{'%s':'vmi-2'}}}", labels[i]);
		js_unref(fx_patch(f, 422, "merge-patch", PODS "/l", quoted(body)));
		snprintf(body, sizeof(body), "{'metadata':{'labels':{'%s':null}}}", labels[i]);
		js_unref(fx_patch(f, 422, "merge-patch", PODS "/l", quoted(body)));
	}
	js_unref(fx_patch(f, 200, "merge-patch", PODS "/l",
			  "{\"metadata\":{\"labels\":{\"mine\":\"x\"}}}"));
}

/* ---- what else is counted ----------------------------------------------------------------------------- */

static void objects_claims_and_services_are_counted(void **state)
{
	struct fx *f = *state;

	make_quota(
		f, "q",
		"'persistentvolumeclaims':'2','requests.storage':'3Gi','services':'1',"
		"'fast.storageclass.storage.k8s.io/requests.storage':'1Gi','services.nodeports':'0',"
		"'count/virtualmachines.kubevirt.io':'1'");
#define CLAIM(name, class, size)                                                   \
	"{'metadata':{'name':'" name "'},'spec':{'accessModes':['ReadWriteOnce']," \
	"'storageClassName':'" class "','resources':{'requests':{'storage':'" size "'}}}}"
	js_unref(post(f, 201, NS "persistentvolumeclaims", CLAIM("a", "fast", "1Gi")));
	CLEANUP(js_unrefp)
	struct json *no = post(f, 403, NS "persistentvolumeclaims", CLAIM("b", "fast", "1Gi"));

	assert_msg(no, "persistentvolumeclaims \"b\" is forbidden: exceeded quota: q, requested: "
		       "fast.storageclass.storage.k8s.io/requests.storage=1Gi, used: "
		       "fast.storageclass.storage.k8s.io/requests.storage=1Gi, limited: "
		       "fast.storageclass.storage.k8s.io/requests.storage=1Gi");
	js_unref(post(f, 201, NS "persistentvolumeclaims", CLAIM("b", "slow", "2Gi")));
	js_unref(post(f, 403, NS "persistentvolumeclaims", CLAIM("c", "slow", "0")));
#undef CLAIM
	js_unref(post(f, 201, NS "services",
		      "{'metadata':{'name':'s'},'spec':{'ports':[{'port':1}]}}"));
	CLEANUP(js_unrefp)
	struct json *grown = fx_patch(f, 403, "merge-patch", NS "services/s",
				      "{\"spec\":{\"type\":\"NodePort\"}}");

	assert_msg(grown, "services \"s\" is forbidden: exceeded quota: q, requested: "
			  "services.nodeports=1, used: services.nodeports=0, limited: "
			  "services.nodeports=0");
#define VMS "/apis/kubevirt.io/v1/namespaces/default/virtualmachines"
#define VM(name)                                                                              \
	"{'metadata':{'name':'" name "'},'spec':{'runStrategy':'Halted','template':{'spec':{" \
	"'domain':{'devices':{}}}}}}"
	js_unref(post(f, 201, VMS, VM("one")));
	CLEANUP(js_unrefp) struct json *vm = post(f, 403, VMS, VM("two"));

	assert_msg(
		vm,
		"virtualmachines.kubevirt.io \"two\" is forbidden: exceeded quota: q, requested: "
		"count/virtualmachines.kubevirt.io=1, used: "
		"count/virtualmachines.kubevirt.io=1, limited: "
		"count/virtualmachines.kubevirt.io=1");
	assert_used(f, "q", "requests.storage", "3Gi");
	assert_used(f, "q", "persistentvolumeclaims", "2");
	assert_used(f, "q", "services", "1");
	assert_used(f, "q", "count/virtualmachines.kubevirt.io", "1");
}

static void scopes_pick_the_pods_that_count(void **state)
{
	struct fx *f = *state;

	js_unref(post(
		f, 201, QUOTAS,
		"{'metadata':{'name':'best'},'spec':{'hard':{'pods':'1'},'scopes':['BestEffort']}}"));
	js_unref(post(f, 201, QUOTAS,
		      "{'metadata':{'name':'gold'},'spec':{'hard':{'pods':'0'},'scopeSelector':"
		      "{'matchExpressions':[{'scopeName':'PriorityClass','operator':'In','values':"
		      "['gold']}]}}}"));
	js_unref(make_pod(f, 201, "a", "", ""));
	js_unref(make_pod(f, 403, "b", "", ""));
	js_unref(make_pod(f, 201, "b", "", "'memory':'1Mi'"));
	js_unref(post(f, 403, PODS,
		      "{'metadata':{'name':'g'},'spec':{'priorityClassName':'gold','containers':"
		      "[{'name':'c','image':'i','resources':{'requests':{'cpu':'1'}}}]}}"));
	assert_used(f, "best", "pods", "1");
	assert_used(f, "gold", "pods", "0");
}

static void a_quota_follows_its_spec_and_its_namespace(void **state)
{
	struct fx *f = *state;

	js_unref(make_pod(f, 201, "early", "", "'memory':'1Gi','cpu':'1'"));
	make_quota(f, "q", "'pods':'1'");
	assert_used(f, "q", "pods", "1");
	js_unref(make_pod(f, 403, "b", "", "'memory':'1Gi','cpu':'1'"));
	js_unref(fx_patch(f, 200, "merge-patch", QUOTAS "/q",
			  "{\"spec\":{\"hard\":{\"pods\":\"2\",\"requests.cpu\":\"1500m\"}}}"));
	CLEANUP(js_unrefp) struct json *no = make_pod(f, 403, "b", "", "'cpu':'1'");

	assert_msg(no,
		   "pods \"b\" is forbidden: exceeded quota: q, requested: requests.cpu=1, used: "
		   "requests.cpu=1, limited: requests.cpu=1500m");
	assert_used(f, "q", "requests.cpu", "1");
	/* Nobody else says what is used. */
	js_unref(fx_patch(f, 200, "merge-patch", QUOTAS "/q/status",
			  "{\"status\":{\"used\":{\"requests.cpu\":\"7\"}}}"));
	assert_used(f, "q", "requests.cpu", "1");
	/* Another namespace is another account. */
	js_unref(
		post(f, 201, "/api/v1/namespaces/kube-public/pods",
		     "{'metadata':{'name':'b'},'spec':{'containers':[{'name':'c','image':'i'}]}}"));
	assert_used(f, "q", "pods", "1");
	delete_now(f, "resourcequotas", "q");
	js_unref(make_pod(f, 201, "b", "", "'cpu':'1'"));
}

static void a_new_server_counts_anew(void **state)
{
	struct fx *f = *state;
	struct err err = {0};

	make_quota(f, "q", "'pods':'2'");
	js_unref(make_pod(f, 201, "a", "", ""));
	fx_settle(f);
	/* It stopped before it could tell. */
	f->srv = apisrv_free(f->srv);
	CLEANUP(js_unrefp) struct json *old = NULL;
	struct obj *o = store_get(f->store, "resourcequotas/default/q");

	old = obj_json(o);
	struct json *lie = js_copy(old);

	assert_int_equal(js_set(js_at(lie, "status", "used", NULL), "pods", js_new_str("7")),
			 RC_OK);
	assert_int_equal(store_write(f->store, STORE_UPDATE, "resourcequotas/default/q", obj_rev(o),
				     lie, NULL, NULL, NULL, NULL),
			 RC_OK);
	struct apisrv_config c = {.store = f->store, .seed = 9};

	assert_int_equal(apisrv_new(&f->srv, f->loop, &c, &err), RC_OK);
	fx_settle(f);
	assert_used(f, "q", "pods", "1");
	js_unref(make_pod(f, 201, "b", "", ""));
	js_unref(make_pod(f, 403, "c", "", ""));
}

/* ---- the account and the truth ------------------------------------------------------------------------- */

enum { N_PODS = 12 };

struct truth {
	bool is_there, has_ended, moves;
	int vmi, mem;
};

static int expected(const struct truth *t)
{
	int sum = 0;

	for (int v = 0; v < 3; v++) {
		int others = 0, moving = 0;

		for (int i = 0; i < N_PODS; i++) {
			if (!t[i].is_there || t[i].has_ended || t[i].vmi != v)
				continue;
			if (t[i].moves)
				moving = MAX(moving, t[i].mem);
			else
				others += t[i].mem;
		}
		sum += MAX(others, moving);
	}
	return sum;
}

static void the_account_agrees_with_a_count_after_any_history(void **state)
{
	struct truth t[N_PODS] = {0};
	struct fx *f = *state;
	unsigned seed = 5;

	make_quota(f, "q", "'requests.memory':'1000Mi'");
	for (int step = 0; step < 400; step++) {
		int i = rand_r(&seed) % N_PODS;
		char name[8], requests[32], vmi[8], want[24];

		snprintf(name, sizeof(name), "p%d", i);
		if (!t[i].is_there) {
			t[i] = (struct truth){.is_there = true,
					      .vmi = rand_r(&seed) % 3,
					      .moves = rand_r(&seed) % 2,
					      .mem = 1 + rand_r(&seed) % 200};
			snprintf(requests, sizeof(requests), "'memory':'%dMi'", t[i].mem);
			snprintf(vmi, sizeof(vmi), "v%d", t[i].vmi);
			bool fits = expected(t) <= 1000;

			js_unref(make_launcher(f, fits ? 201 : 403, name, vmi,
					       t[i].moves ? "m" : "", requests));
			t[i].is_there = fits;
		} else if (!t[i].has_ended && rand_r(&seed) % 2) {
			end_pod(f, name, "Failed");
			t[i].has_ended = true;
		} else {
			delete_now(f, "pods", name);
			t[i].is_there = false;
		}
		snprintf(want, sizeof(want), expected(t) ? "%dMi" : "%d", expected(t));
		assert_used(f, "q", "requests.memory", want);
	}
}

/* False: no allocation failed any more. */
static bool create_with_nth(unsigned nth)
{
	static const char pod[] =
		"{\"metadata\":{\"name\":\"b\"},\"spec\":{\"containers\":[{\"name\":\"c\",\"image\":\"i\","
		"\"resources\":{\"requests\":{\"memory\":\"1Mi\"}}}]}}";
	struct fx f;
	struct fx_answer a;

	fx_up(&f, NULL);
	make_quota(&f, "q", "'requests.memory':'2Mi'");
	js_unref(post(
		&f, 201, NS "limitranges",
		"{'metadata':{'name':'l'},'spec':{'limits':[{'type':'Container','max':{'memory':"
		"'1Mi'}}]}}"));
	js_unref(make_pod(&f, 201, "a", "", "'memory':'1Mi'"));
	fx_settle(&f);
	fx_call_nth(&f, &a, nth, "POST", PODS, NULL, NULL, pod);
	bool fired = a.fired;

	if (a.status != 201 && a.status != 500)
		fail_msg("allocation %u failed, the answer was %d: %s", nth, a.status, a.text);
	fx_answer_fini(&a);
	fx_sleep(&f, 3 * USEC_PER_SEC); /* statuses are tried again */
	bool is_there = store_get(f.store, "pods/default/b") != NULL;

	assert_used(&f, "q", "requests.memory", is_there ? "2Mi" : "1Mi");
	js_unref(make_pod(&f, is_there ? 403 : 201, "c", "", "'memory':'1Mi'"));
	fx_down(&f);
	return fired;
}

static void without_memory_nothing_is_miscounted(void **state)
{
	(void)state;
	for (unsigned nth = 1; create_with_nth(nth); nth++)
		assert_true(nth < 5000);
}

/* ---- the object itself ----------------------------------------------------------------------------------- */

static void faults_of_a_quota_come_all_at_once(void **state)
{
	struct fx *f = *state;

	CLEANUP(js_unrefp)
	struct json *no = post(
		f, 422, QUOTAS,
		"{'metadata':{'name':'q'},'spec':{'hard':{'gold':'1','pods':'1500m','services':"
		"'1'},'scopes':['BestEffort','NotBestEffort','Odd']}}");

	assert_msg(
		no,
		"ResourceQuota \"q\" is invalid: [spec.hard[gold]: Invalid value: \"gold\": must be a "
		"standard resource for quota, spec.hard[pods]: Invalid value: \"1500m\": must be an "
		"integer, spec.scopes[1]: Invalid value: \"NotBestEffort\": conflicting scopes, "
		"spec.scopes[2]: Invalid value: \"Odd\": unsupported scope, spec.hard: Invalid "
		"value: \"services\": unsupported scope applied to resource]");
	make_quota(f, "q", "'pods':'1'");
	CLEANUP(js_unrefp)
	struct json *kept = fx_patch(f, 422, "merge-patch", QUOTAS "/q",
				     "{\"spec\":{\"scopes\":[\"BestEffort\"]}}");

	assert_msg(kept, "ResourceQuota \"q\" is invalid: spec.scopes: Invalid value: "
			 "[\"BestEffort\"]: field is immutable");
	CLEANUP(sbuf_fini) struct sbuf many = SBUF_INIT(256 * KIB);

	for (int i = 0; i < 1024; i++)
		sbuf_addf(&many, "%s'count/a%d':'1'", i ? "," : "", i);
	CLEANUP(js_unrefp)
	struct json *full = post(f, 422, QUOTAS, "{'metadata':{'name':'r'},'spec':{'hard':{%s}}}",
				 sbuf_str(&many));

	assert_msg(full, "ResourceQuota \"r\" is invalid: spec.hard: Forbidden: all quotas of a "
			 "namespace together may name 1024 resources, not 1025");
}

/* ---- LimitRanges ------------------------------------------------------------------------------------------- */

static void a_limit_range_gives_defaults_and_keeps_bounds(void **state)
{
	struct fx *f = *state;

	CLEANUP(js_unrefp)
	struct json *range = post(
		f, 201, NS "limitranges",
		"{'metadata':{'name':'l'},'spec':{'limits':[{'type':'Container','min':{'memory':'64Mi'},"
		"'max':{'memory':'1Gi','cpu':'2'},'defaultRequest':{'cpu':'100m'},"
		"'maxLimitRequestRatio':{'cpu':'10'}},{'type':'Pod','max':{'memory':'1536Mi'}},"
		"{'type':'PersistentVolumeClaim','max':{'storage':'1Gi'}}]}}");
	const struct json *item = js_item(js_at(range, "spec", "limits", NULL), 0);

	assert_path(item, "1Gi", "default", "memory");
	assert_path(item, "1Gi", "defaultRequest", "memory");
	assert_path(item, "100m", "defaultRequest", "cpu");
	CLEANUP(js_unrefp)
	struct json *pod = make_pod(f, 201, "a", "", "'cpu':'1','memory':'64Mi'");
	const struct json *r =
		js_get(js_item(js_at(pod, "spec", "containers", NULL), 0), "resources");

	assert_path(r, "1", "requests", "cpu");
	assert_path(r, "2", "limits", "cpu");
	assert_path(r, "1Gi", "limits", "memory");
	assert_path(pod, "LimitRanger plugin set: cpu, memory limit for container compute",
		    "metadata", "annotations", "kubernetes.io/limit-ranger");
	CLEANUP(js_unrefp) struct json *no = make_pod(f, 403, "b", "", "'memory':'1Mi'");

	assert_msg(no, "pods \"b\" is forbidden: [minimum memory usage per Container is 64Mi, but "
		       "request is 1Mi, cpu max limit to request ratio per Container is 10, but "
		       "provided ratio is 20.000000]");
	CLEANUP(js_unrefp)
	struct json *sum =
		post(f, 403, PODS,
		     "{'metadata':{'name':'c'},'spec':{'containers':[{'name':'x','image':'i',"
		     "'resources':{'limits':{'cpu':'1'}}},{'name':'y','image':'i','resources':"
		     "{'limits':{'cpu':'1'}}}]}}");

	assert_msg(sum,
		   "pods \"c\" is forbidden: maximum memory usage per Pod is 1536Mi, but limit is "
		   "2Gi");
	CLEANUP(js_unrefp) struct json *big = make_pod(f, 422, "d", "", "'memory':'2Gi','cpu':'1'");

	assert_msg(big,
		   "Pod \"d\" is invalid: spec.containers[0].resources.requests: Invalid value: "
		   "\"2Gi\": must be less than or equal to memory limit of 1Gi");
	CLEANUP(js_unrefp)
	struct json *claim =
		post(f, 403, NS "persistentvolumeclaims",
		     "{'metadata':{'name':'v'},'spec':{'accessModes':['ReadWriteOnce'],"
		     "'resources':{'requests':{'storage':'2Gi'}}}}");

	assert_msg(claim, "persistentvolumeclaims \"v\" is forbidden: maximum storage usage per "
			  "PersistentVolumeClaim is 1Gi, but request is 2Gi");
}

static void faults_of_a_limit_range_come_all_at_once(void **state)
{
	struct fx *f = *state;

	CLEANUP(js_unrefp)
	struct json *no = post(
		f, 422, NS "limitranges",
		"{'metadata':{'name':'l'},'spec':{'limits':[{'type':'Container','min':{'memory':'2Gi'},"
		"'max':{'memory':'1Gi'},'defaultRequest':{'memory':'1Gi'},'default':{'memory':'2Gi'},"
		"'maxLimitRequestRatio':{'memory':'500m'}},{'type':'Container'},"
		"{'type':'Pod','default':{'cpu':'1'}},{'type':'PersistentVolumeClaim'}]}}");

	assert_msg(
		no,
		"LimitRange \"l\" is invalid: [spec.limits[0].min[memory]: Invalid value: \"2Gi\": min "
		"value 2Gi is greater than max value 1Gi, spec.limits[0].default[memory]: Invalid value: "
		"\"2Gi\": default value 2Gi is greater than max value 1Gi, spec.limits[0].min[memory]: "
		"Invalid value: \"2Gi\": min value 2Gi is greater than defaultRequest value 1Gi, "
		"spec.limits[0].maxLimitRequestRatio[memory]: Invalid value: \"500m\": ratio 500m is less "
		"than 1, spec.limits[1].type: Duplicate value: \"Container\", spec.limits[2].default: "
		"Forbidden: may not be specified when `type` is 'Pod', spec.limits[3]: Required value: "
		"either minimum or maximum storage value is required, but neither was provided]");
}

static int up(void **state)
{
	static struct fx f;

	fx_up(&f, NULL);
	*state = &f;
	return 0;
}

static int down(void **state)
{
	fx_down(*state);
	return 0;
}

#define IN_SERVER(test) cmocka_unit_test_setup_teardown(test, up, down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_SERVER(what_would_exceed_a_quota_is_refused_in_kubernetes_words),
		IN_SERVER(every_container_must_say_what_a_quota_limits),
		IN_SERVER(amounts_may_be_numbers),
		IN_SERVER(a_storm_of_creates_never_goes_beyond_a_quota),
		IN_SERVER(a_dry_run_is_judged_and_charges_nothing),
		IN_SERVER(a_move_never_counts_a_vm_twice),
		IN_SERVER(a_larger_target_is_charged_the_difference),
		IN_SERVER(only_a_migrations_target_is_free),
		IN_SERVER(nobody_but_controllers_says_whose_pod_it_is),
		IN_SERVER(objects_claims_and_services_are_counted),
		IN_SERVER(scopes_pick_the_pods_that_count),
		IN_SERVER(a_quota_follows_its_spec_and_its_namespace),
		IN_SERVER(a_new_server_counts_anew),
		IN_SERVER(the_account_agrees_with_a_count_after_any_history),
		cmocka_unit_test(without_memory_nothing_is_miscounted),
		IN_SERVER(faults_of_a_quota_come_all_at_once),
		IN_SERVER(a_limit_range_gives_defaults_and_keeps_bounds),
		IN_SERVER(faults_of_a_limit_range_come_all_at_once),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("quota", tests, NULL, NULL);
}
