/* /metrics under kube-apiserver's names and labels, and the pages of health. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "fixture.h"
#include "lib/promcheck.h"
#include "virt/subresources/subresources.h"

#define CM "/api/v1/namespaces/default/configmaps"

static struct fx f;
static char *text;

static int setup(void **state)
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
	text = mem_free(text);
	fx_down(&f);
	return 0;
}

static void scrape(void)
{
	struct fx_answer a;

	fx_call(&f, &a, &fx_admin, "GET", "/metrics", NULL, NULL, NULL);
	assert_int_equal(a.status, 200);
	assert_string_equal(a.content_type, "text/plain; version=0.0.4; charset=utf-8");
	mem_free(text);
	text = mem_strdup(a.text);
	assert_non_null(text);
	fx_answer_fini(&a);
	mem_free(prom_check(text));
}

static void has(const char *line)
{
	if (!strstr(text, line))
		fail_msg("missing: %s\nin\n%s", line, text);
}

#define REQ(verb_, dry_, g_, v_, res_, sub_, scope_)                             \
	"verb=\"" verb_ "\",dry_run=\"" dry_ "\",group=\"" g_ "\",version=\"" v_ \
	"\",resource=\"" res_ "\",subresource=\"" sub_ "\",scope=\"" scope_      \
	"\",component=\"apiserver\""
#define TOTAL "apiserver_request_total{"

static void send_some(void)
{
	struct fx_answer a;

	drop(fx_do(&f, 201, "POST", CM, "{\"metadata\":{\"name\":\"a\"},\"data\":{\"k\":\"v\"}}"));
	drop(fx_do(&f, 201, "POST", CM "?dryRun=All", "{\"metadata\":{\"name\":\"b\"}}"));
	drop(fx_do(&f, 200, "GET", CM "/a", NULL));
	drop(fx_do(&f, 404, "GET", CM "/none", NULL));
	drop(fx_do(&f, 200, "GET", CM, NULL));
	drop(fx_do(&f, 200, "GET", "/api/v1/configmaps", NULL));
	drop(fx_patch(&f, 200, "merge-patch", CM "/a", "{\"data\":{\"k\":\"w\"}}"));
	fx_call(&f, &a, &fx_admin, "PATCH", CM "/a?fieldManager=m&force=true",
		"application/apply-patch+yaml", NULL,
		"{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"a\"},"
		"\"data\":{\"k\":\"x\"}}");
	assert_int_equal(a.status, 200);
	fx_answer_fini(&a);
	drop(fx_do(&f, 200, "DELETE", CM "/a", NULL));
	drop(fx_do(&f, 200, "DELETE", CM, NULL));
}

static void requests_have_kubernetes_labels(void **state)
{
	(void)state;
	send_some();
	scrape();
	has(TOTAL REQ("POST", "", "", "v1", "configmaps", "", "resource") ",code=\"201\"} 1\n");
	has(TOTAL REQ("POST", "All", "", "v1", "configmaps", "", "resource") ",code=\"201\"} 1\n");
	has(TOTAL REQ("GET", "", "", "v1", "configmaps", "", "resource") ",code=\"200\"} 1\n");
	has(TOTAL REQ("GET", "", "", "v1", "configmaps", "", "resource") ",code=\"404\"} 1\n");
	has(TOTAL REQ("LIST", "", "", "v1", "configmaps", "", "namespace") ",code=\"200\"} 1\n");
	has(TOTAL REQ("LIST", "", "", "v1", "configmaps", "", "cluster") ",code=\"200\"} 1\n");
	has(TOTAL REQ("PATCH", "", "", "v1", "configmaps", "", "resource") ",code=\"200\"} 1\n");
	has(TOTAL REQ("APPLY", "", "", "v1", "configmaps", "", "resource") ",code=\"200\"} 1\n");
	has(TOTAL REQ("DELETE", "", "", "v1", "configmaps", "", "resource") ",code=\"200\"} 1\n");
	has(TOTAL REQ("DELETECOLLECTION", "", "", "v1", "configmaps", "",
		      "namespace") ",code=\"200\"} 1\n");
	has("apiserver_request_duration_seconds_count{" REQ("GET", "", "", "v1", "configmaps", "",
							    "resource") "} 2\n");
	has("apiserver_response_sizes_count{verb=\"LIST\",group=\"\",version=\"v1\",resource="
	    "\"configmaps\",subresource=\"\",scope=\"cluster\",component=\"apiserver\"} 1\n");
	has("apiserver_storage_objects{resource=\"configmaps\"} 0\n");
	has("apiserver_storage_objects{resource=\"namespaces\"} 5\n");
	has("apiserver_current_inflight_requests{request_kind=\"readOnly\"} 1\n");
	has("apiserver_current_inflight_requests{request_kind=\"mutating\"} 0\n");
	has("\nferry_store_commit_seconds_bucket{le=\"+Inf\"} ");
}

static void subresources_reviews_and_pages_are_named(void **state)
{
	(void)state;
	drop(fx_do(&f, 404, "PUT",
		   "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines/x/start",
		   "{}"));
	drop(fx_do(&f, 404, "GET", "/api/v1/namespaces/default/pods/x/status", NULL));
	drop(fx_do(&f, 501, "GET", "/api/v1/namespaces/default/pods/x/log", NULL));
	drop(fx_do(&f, 201, "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", "{}"));
	drop(fx_do(&f, 200, "GET", "/healthz", NULL));
	drop(fx_do(&f, 200, "GET", "/apis/kubevirt.io/v1alpha3/virtualmachines", NULL));
	scrape();
	has(TOTAL REQ("PUT", "", "subresources.kubevirt.io", "v1", "virtualmachines", "start",
		      "resource") ",code=\"404\"} 1\n");
	has(TOTAL REQ("GET", "", "", "v1", "pods", "log", "resource") ",code=\"501\"} 1\n");
	has(TOTAL REQ("POST", "", "authentication.k8s.io", "v1", "selfsubjectreviews", "",
		      "resource") ",code=\"201\"} 1\n");
	has("resource=\"\",subresource=\"/healthz\",scope=\"\",component=\"\",code=\"200\"} 1\n");
	has(TOTAL REQ("LIST", "", "kubevirt.io", "v1alpha3", "virtualmachines", "",
		      "cluster") ",code=\"200\"} 1\n");
}

/* Nothing that a client thinks of becomes a label. */
static void clients_choose_no_labels(void **state)
{
	static const char *const targets[] = {
		"/api/v1/namespaces/evil/evil",
		"/apis/evil.io/v1/evil",
		"/api/v1/evil/evil/evil",
		"/evil/evil",
		"/api/v1/namespaces/evil/pods/evil/evil",
		"/healthz/evil",
		"/apis/subresources.kubevirt.io/evil/namespaces/evil/virtualmachines/evil/evil",
		"/apis/authentication.k8s.io/v1/evils",
		"/apis/authentication.k8s.io/evil/selfsubjectreviews",
		"/api/v1/pods?watch=evil&dryRun=evil&evil=evil&resourceVersion=evil",
	};
	static const char *const methods[] = {"GET", "POST", "PATCH", "DELETE", "EVIL", "PUT"};
	struct fx_answer a;
	unsigned n = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(targets) / sizeof(*targets); i++)
		for (size_t k = 0; k < sizeof(methods) / sizeof(*methods); k++) {
			fx_call(&f, &a, &fx_admin, methods[k], targets[i], NULL, NULL, "{}");
			assert_true(a.status >= 200);
			fx_answer_fini(&a);
		}
	scrape();
	assert_null(strstr(text, "evil"));
	assert_null(strstr(text, "EVIL"));
	for (const char *p = text; (p = strstr(p, "\n" TOTAL)); p++)
		n++;
	assert_in_range(n, 10, 80);
}

static void watches_are_counted_while_they_are_open(void **state)
{
	struct fx_watch *w = mem_alloc(sizeof(*w));

	(void)state;
	assert_non_null(w);
	fx_watch_start(&f, w, CM "?watch=1", NULL);
	drop(fx_do(&f, 201, "POST", CM, "{\"metadata\":{\"name\":\"a\"}}"));
	scrape();
	has("apiserver_longrunning_requests{verb=\"WATCH\",group=\"\",version=\"v1\",resource="
	    "\"configmaps\",subresource=\"\",scope=\"namespace\",component=\"apiserver\"} 1\n");
	has("apiserver_registered_watchers 1\n");
	has("apiserver_watch_events_total{group=\"\",version=\"v1\",kind=\"ConfigMap\"} 1\n");
	has("apiserver_watch_events_sizes_count{group=\"\",version=\"v1\",kind=\"ConfigMap\"} "
	    "1\n");
	fx_watch_stop(w);
	scrape();
	assert_null(strstr(text, "apiserver_longrunning_requests{"));
	/* The client ended it, as clients do. */
	has(TOTAL REQ("WATCH", "", "", "v1", "configmaps", "", "namespace") ",code=\"200\"} 1\n");
	w = mem_alloc(sizeof(*w));
	assert_non_null(w);
	w->max_frames = 1;
	fx_watch_start(&f, w, CM "?watch=1", NULL);
	drop(fx_do(&f, 201, "POST", CM, "{\"metadata\":{\"name\":\"b\"}}"));
	drop(fx_do(&f, 201, "POST", CM, "{\"metadata\":{\"name\":\"c\"}}"));
	scrape();
	has("apiserver_terminated_watchers_total{resource=\"configmaps\"} 1\n");
	fx_watch_stop(w);
}

static void these_metrics_and_no_others(void **state)
{
	struct fx_watch *w = mem_alloc(sizeof(*w)), *slow = mem_alloc(sizeof(*slow));

	(void)state;
	assert_true(w && slow);
	send_some();
	slow->max_frames = 1;
	fx_watch_start(&f, w, CM "?watch=1", NULL);
	fx_watch_start(&f, slow, CM "?watch=1", NULL);
	send_some();
	scrape();
	prom_golden("apiserver", text);
	fx_watch_stop(w);
	fx_watch_stop(slow);
}

static void page(int status, const char *target, const char *want)
{
	struct fx_answer a;

	fx_call(&f, &a, &fx_nobody, "GET", target, NULL, NULL, NULL);
	assert_string_equal(a.text, want);
	assert_int_equal(a.status, status);
	assert_string_equal(a.content_type, "text/plain; charset=utf-8");
	fx_answer_fini(&a);
}

static void health_speaks_as_kube_apiserver(void **state)
{
	(void)state;
	page(200, "/healthz", "ok");
	page(200, "/livez", "ok");
	page(200, "/readyz", "ok");
	page(200, "/livez?verbose", "[+]ping ok\n[+]store ok\nlivez check passed\n");
	page(200, "/healthz?verbose=1", "[+]ping ok\n[+]store ok\nhealthz check passed\n");
	page(200, "/readyz?verbose&exclude=store&exclude=ping",
	     "[+]ping excluded: ok\n[+]store excluded: ok\n[+]store-log ok\n[+]shutdown ok\n"
	     "readyz check passed\n");
	page(200, "/readyz?exclude=etcd", "ok");
	page(200, "/livez?verbose&exclude=etcd&exclude=store-log",
	     "[+]ping ok\n[+]store ok\n"
	     "warn: some health checks cannot be excluded: no matches for \"etcd\",\"store-log\"\n"
	     "livez check passed\n");
	page(200, "/livez/ping", "ok");
	page(200, "/readyz/store-log", "ok");
	page(404, "/livez/store-log", "404 page not found\n");
	page(404, "/readyz/none", "404 page not found\n");
	page(404, "/readyz/ping/more", "404 page not found\n");
	/* A server that goes away is not ready, and alive. */
	apisrv_drain(f.srv);
	page(500, "/readyz",
	     "[+]ping ok\n[+]store ok\n[+]store-log ok\n[-]shutdown failed: process is shutting down\n"
	     "readyz check failed\n");
	page(500, "/readyz/shutdown", "internal server error: process is shutting down\n");
	page(200, "/readyz?exclude=shutdown", "ok");
	page(200, "/livez", "ok");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(requests_have_kubernetes_labels, setup, teardown),
		cmocka_unit_test_setup_teardown(subresources_reviews_and_pages_are_named, setup,
						teardown),
		cmocka_unit_test_setup_teardown(clients_choose_no_labels, setup, teardown),
		cmocka_unit_test_setup_teardown(watches_are_counted_while_they_are_open, setup,
						teardown),
		cmocka_unit_test_setup_teardown(these_metrics_and_no_others, setup, teardown),
		cmocka_unit_test_setup_teardown(health_speaks_as_kube_apiserver, setup, teardown),
	};

	js_use_mem();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
