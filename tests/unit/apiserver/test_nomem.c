/* Each allocation of a request fails once: no crash, no leak, no half-done write, no untrue refusal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/str.h"
#include "fixture.h"

#define CM   "/api/v1/namespaces/default/configmaps"
#define SVCS "/api/v1/namespaces/default/services"
#define VMS  "/apis/kubevirt.io/v1/namespaces/default/virtualmachines"

struct step {
	const char *name, *method, *target, *type, *accept, *body;
};

static const struct step steps[] = {
	{"create", "POST", CM "?fieldValidation=Warn", NULL, NULL,
	 "{\"metadata\":{\"name\":\"new\",\"labels\":{\"a\":\"b\"},\"creationTimestamp\":null},\"data\":{\"k\":\"v\"},\"frog\":1}"},
	{"generate", "POST", CM, NULL, NULL, "{\"metadata\":{\"generateName\":\"x-\"}}"},
	{"service", "POST", SVCS, NULL, NULL,
	 "{\"metadata\":{\"name\":\"s\"},\"spec\":{\"type\":\"NodePort\",\"ports\":[{\"port\":80}]}}"},
	{"vm", "POST", VMS, NULL, NULL,
	 "{\"metadata\":{\"name\":\"v\"},\"spec\":{\"runStrategy\":\"Halted\",\"template\":{\"spec\":{\"domain\":{\"memory\":{\"guest\":"
	 "\"64Mi\"},\"devices\":{}}}}}}"},
	{"put", "PUT", CM "/old", NULL, NULL,
	 "{\"metadata\":{\"name\":\"old\"},\"data\":{\"k\":\"w\"}}"},
	{"merge patch", "PATCH", CM "/old", "application/merge-patch+json", NULL,
	 "{\"data\":{\"k\":\"w\"}}"},
	{"strategic patch", "PATCH", CM "/old", "application/strategic-merge-patch+json", NULL,
	 "{\"data\":{\"k\":\"w\"}}"},
	{"json patch", "PATCH", CM "/old", "application/json-patch+json", NULL,
	 "[{\"op\":\"replace\",\"path\":\"/data/k\",\"value\":\"w\"}]"},
	{"apply", "PATCH", CM "/old?fieldManager=m&force=true", "application/apply-patch+yaml",
	 NULL,
	 "{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"old\"},\"data\":{\"k\":\"w\"}}"},
	{"apply new", "PATCH", SVCS "/s?fieldManager=m", "application/apply-patch+yaml", NULL,
	 "{\"apiVersion\":\"v1\",\"kind\":\"Service\",\"metadata\":{\"name\":\"s\"},\"spec\":{\"ports\":[{\"port\":80}]}}"},
	{"yaml", "POST", CM, "application/yaml", NULL,
	 "metadata: {name: new}\ndata:\n  k: v\n  k: w\n"},
	{"apply yaml", "PATCH", CM "/y?fieldManager=m", "application/apply-patch+yaml", NULL,
	 "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: y}\ndata: {k: v}\n"},
	{"managed", "PATCH", CM "/old", "application/merge-patch+json", NULL,
	 "{\"metadata\":{\"managedFields\":[{\"manager\":\"a\",\"operation\":\"Update\",\"apiVersion\":\"v1\",\"fieldsV1\":"
	 "{\"f:data\":{\"f:k\":{},\".\":{}}}}]},\"data\":{\"n\":\"w\"}}"},
	{"get", "GET", CM "/old", NULL, NULL, NULL},
	{"list", "GET", CM "?labelSelector=l%3Dm&limit=5", NULL, NULL, NULL},
	{"fields", "GET", CM "?fieldSelector=metadata.name%3Dold", NULL, NULL, NULL},
	{"table", "GET", CM, NULL, "application/json;as=Table;v=v1;g=meta.k8s.io", NULL},
	{"partial", "GET", CM, NULL,
	 "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", NULL},
	{"delete", "DELETE", CM "/old", NULL, NULL, "{\"preconditions\":{}}"},
	{"foreground", "DELETE", CM "/old?propagationPolicy=Foreground", NULL, NULL, NULL},
	{"deletecollection", "DELETE", CM, NULL, NULL, NULL},
	{"discovery", "GET", "/apis", NULL, NULL, NULL},
	{"event", "POST", "/apis/events.k8s.io/v1/namespaces/default/events", NULL, NULL,
	 "{\"metadata\":{\"name\":\"e\"},\"eventTime\":\"2026-01-01T10:00:00.000000Z\","
	 "\"reportingController\":\"c\",\"reportingInstance\":\"i\",\"action\":\"a\",\"reason\":"
	 "\"r\",\"type\":\"Normal\",\"regarding\":{\"name\":\"n\"}}"},
	{"events", "GET", "/apis/events.k8s.io/v1/events?fieldSelector=regarding.name%3Dn", NULL,
	 NULL, NULL},
	{"health", "GET", "/readyz?verbose&exclude=no", NULL, NULL, NULL},
	{"resources", "GET", "/apis/kubevirt.io/v1", NULL, NULL, NULL},
	{"aggregated", "GET", "/apis", NULL,
	 "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", NULL},
	{"review", "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", NULL, NULL,
	 "{\"spec\":{\"resourceAttributes\":{\"verb\":\"get\",\"resource\":\"pods\"}}}"},
};

static bool is_whole(struct fx *f)
{
	struct store_iter it;
	struct obj *o;

	store_iter_init(&it, f->store, "configmaps", NULL);
	while ((o = store_iter_next(&it))) {
		struct json *j = NULL;
		size_t n;
		const char *text = obj_text(o, &n);

		if (js_parse(text, n, &j, NULL) || !js_at(j, "metadata", "uid", NULL))
			return false;
		js_unref(j);
	}
	return true;
}

/* False: no allocation failed any more. */
static bool run(const struct step *s, unsigned nth)
{
	struct fx f;
	struct fx_answer a;

	fx_up(&f, NULL);
	js_unref(fx_do(
		&f, 201, "POST", CM,
		"{\"metadata\":{\"name\":\"old\",\"labels\":{\"l\":\"m\"}},\"data\":{\"k\":\"v\"}}"));
	int64_t rev = store_rev(f.store);

	fx_call_nth(&f, &a, nth, s->method, s->target, s->type, s->accept, s->body);
	bool fired = a.fired;

	/* An honest answer: done, or "internal error".  Never "not found", "invalid", "conflict". */
	if (a.status >= 300 && a.status != 500)
		fail_msg("%s: allocation %u failed, the answer was %d: %s", s->name, nth, a.status,
			 a.text);
	if (!fired && a.status >= 300)
		fail_msg("%s: %d: %s", s->name, a.status, a.text);
	fx_answer_fini(&a);
	fx_settle(&f);
	assert_true(is_whole(&f));
	if (strcmp(s->method, "GET") == 0)
		assert_int_equal(store_rev(f.store), rev);
	/* The server goes on. */
	js_unref(fx_do(&f, 201, "POST", CM, "{\"metadata\":{\"name\":\"after\"}}"));
	fx_down(&f);
	return fired;
}

static void running_out_of_memory_is_said_and_nothing_else(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++)
		for (unsigned nth = 1; run(&steps[i], nth); nth++)
			assert_true(nth < 20000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(running_out_of_memory_is_said_and_nothing_else),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("nomem", tests, NULL, NULL);
}
