#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "api/gen/api_types.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "ev/ev.h"
#include "json/json.h"
#include "lib/torture.h"
#include "unit/kube/fake.h"

struct fixture {
	struct loop *loop;
	struct kube *kube;
	struct fake fake;
	struct kube_call *call;
	struct kube_watch *watch;
	unsigned replies;
	enum rc rc;
	int status;
	char message[256];
	char reason[64];
	char name[64];
	usec_t retry_after;
	char events[64]; /* A, M, D, B, E */
	enum rc end_rc;
	bool free_in_callback;
};

static struct fixture fx;

static void setup(void)
{
	memset(&fx, 0, sizeof(fx));
	assert_int_equal(loop_new(&fx.loop, LOOP_VIRTUAL, NULL), RC_OK);
	assert_int_equal(kube_new_over(&fx.kube, fx.loop, &fake_transport, &fx.fake, NULL), RC_OK);
}

static void teardown(void)
{
	kube_call_free(fx.call);
	kube_watch_free(fx.watch);
	kube_free(fx.kube);
	assert_int_equal(fake_open(&fx.fake), 0);
	loop_free(fx.loop);
}

static void on_reply(const struct kube_reply *r, void *arg)
{
	const char *name = js_str(js_at(r->body, "metadata", "name", NULL));

	assert_ptr_equal(arg, &fx);
	fx.replies++;
	fx.rc = r->rc;
	fx.status = r->http_status;
	fx.retry_after = r->retry_after;
	snprintf(fx.message, sizeof(fx.message), "%s", r->err.msg);
	snprintf(fx.reason, sizeof(fx.reason), "%s", r->reason);
	snprintf(fx.name, sizeof(fx.name), "%s", name ? name : "");
	if (fx.free_in_callback)
		fx.call = kube_call_free(fx.call);
}

static void get_pod(void)
{
	fx.call = kube_call_free(fx.call);
	assert_int_equal(kube_get(fx.kube, &fx.call, &api_kind_Pod, "ns", "p", on_reply, &fx, NULL),
			 RC_OK);
}

static void answers_are_decoded(void **state)
{
	(void)state;
	setup();
	get_pod();
	assert_int_equal(fx.replies, 0); /* never from inside the call */
	fake_answer(fake_find(&fx.fake, "GET /api/v1/namespaces/ns/pods/p"), 200,
		    "{\"kind\":\"Pod\",\"metadata\":{\"name\":\"p\"}}");
	assert_int_equal(fx.replies, 1);
	assert_int_equal(fx.rc, RC_OK);
	assert_string_equal(fx.name, "p");
	assert_true(kube_call_is_done(fx.call));
	teardown();
}

static void a_status_becomes_rc_reason_and_message(void **state)
{
	static const struct {
		int status;
		const char *reason;
		enum rc rc;
	} table[] = {
		{404, "NotFound", RC_NOT_FOUND},   {409, "AlreadyExists", RC_EXISTS},
		{409, "Conflict", RC_CONFLICT},	   {410, "Expired", RC_EXPIRED},
		{422, "Invalid", RC_INVALID},	   {403, "Forbidden", RC_FORBIDDEN},
		{429, "TooManyRequests", RC_BUSY},
	};

	(void)state;
	setup();
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		get_pod();
		fake_answer(fake_find(&fx.fake, "GET "), table[i].status,
			    "{\"kind\":\"Status\",\"status\":\"Failure\",\"message\":\"pods "
			    "\\\"p\\\" say no\","
			    "\"reason\":\"%s\",\"details\":{\"retryAfterSeconds\":3}}",
			    table[i].reason);
		assert_int_equal(fx.rc, table[i].rc);
		assert_int_equal(fx.status, table[i].status);
		assert_string_equal(fx.reason, table[i].reason);
		assert_string_equal(fx.message, "pods \"p\" say no");
		assert_int_equal(fx.retry_after, 3 * USEC_PER_SEC);
	}
	get_pod();
	fake_answer(fake_find(&fx.fake, "GET "), 502, "<html>bad gateway</html>");
	assert_true(fx.rc != RC_OK);
	get_pod();
	fake_answer(fake_find(&fx.fake, "GET "), 200, "not json");
	assert_int_equal(fx.rc, RC_IO);
	get_pod();
	fake_fail(fake_find(&fx.fake, "GET "), RC_CLOSED);
	assert_int_equal(fx.rc, RC_CLOSED);
	assert_true(*fx.message);
	teardown();
}

static void every_call_has_a_deadline(void **state)
{
	(void)state;
	setup();
	get_pod();
	assert_int_equal(loop_run(fx.loop, NULL, NULL), RC_OK);
	assert_int_equal(fx.rc, RC_TIMEOUT);
	assert_int_equal(loop_now(fx.loop), KUBE_TIMEOUT);
	assert_true(fx.fake.ops[0].cancelled);
	teardown();
}

static void dropping_the_handle_cancels(void **state)
{
	(void)state;
	setup();
	get_pod();
	fx.call = kube_call_free(fx.call);
	assert_true(fx.fake.ops[0].cancelled);
	assert_int_equal(loop_run(fx.loop, NULL, NULL), RC_OK);
	assert_int_equal(fx.replies, 0);
	teardown();
}

static void a_handle_may_be_freed_in_its_callback(void **state)
{
	(void)state;
	setup();
	fx.free_in_callback = true;
	get_pod();
	fake_answer(fake_find(&fx.fake, "GET "), 200, "{}");
	assert_null(fx.call);
	get_pod();
	assert_int_equal(loop_run(fx.loop, NULL, NULL), RC_OK); /* by the deadline */
	assert_null(fx.call);
	assert_int_equal(fx.replies, 2);
	teardown();
}

static void a_client_that_goes_cancels_what_is_in_flight(void **state)
{
	(void)state;
	setup();
	get_pod();
	/* Without a handle. */
	assert_int_equal(kube_get(fx.kube, NULL, &api_kind_Pod, "ns", "q", on_reply, &fx, NULL),
			 RC_OK);
	fx.kube = kube_free(fx.kube);
	assert_int_equal(fake_open(&fx.fake), 0);
	assert_int_equal(fx.replies, 0);
	teardown(); /* frees the handle that is left */
}

static void requests_look_as_the_api_wants_them(void **state)
{
	const struct kube_delete_opts del = {.grace_seconds = 0,
					     .propagation = "Foreground",
					     .uid = "u1",
					     .resource_version = "7"};
	const struct kube_list_opts list = {.label_selector = "a in (b,c)",
					    .limit = 5,
					    .continue_ = "x=",
					    .field_selector = "spec.nodeName=n"};
	CLEANUP(js_unrefp) struct json *body = js_pack("{s:s}", "a", "b");
	struct fake_op *op;

	(void)state;
	setup();
	assert_int_equal(
		kube_list(fx.kube, NULL, &api_kind_VirtualMachine, NULL, &list, NULL, NULL, NULL),
		RC_OK);
	op = fake_find(&fx.fake, "GET /apis/kubevirt.io/v1/virtualmachines?");
	assert_string_equal(op->path,
			    "/apis/kubevirt.io/v1/virtualmachines?labelSelector=a%20in%20%28b%2Cc"
			    "%29&fieldSelector=spec.nodeName%3Dn&continue=x%3D&limit=5");
	assert_int_equal(kube_patch(fx.kube, NULL, &api_kind_Node, "ignored", "n1", "status",
				    KUBE_PATCH_STRATEGIC, body, NULL, NULL, NULL),
			 RC_OK);
	op = fake_find(&fx.fake, "PATCH /api/v1/nodes/n1/status");
	assert_string_equal(op->type, "application/strategic-merge-patch+json");
	assert_string_equal(op->body, "{\"a\":\"b\"}");
	assert_int_equal(
		kube_delete(fx.kube, NULL, &api_kind_Pod, "ns", "p", &del, NULL, NULL, NULL),
		RC_OK);
	op = fake_find(&fx.fake, "DELETE /api/v1/namespaces/ns/pods/p");
	assert_string_equal(op->body,
			    "{\"apiVersion\":\"v1\",\"kind\":\"DeleteOptions\","
			    "\"gracePeriodSeconds\":0,\"propagationPolicy\":\"Foreground\","
			    "\"preconditions\":{\"uid\":\"u1\",\"resourceVersion\":\"7\"}}");
	assert_int_equal(kube_post(fx.kube, NULL, &api_kind_Pod, "ns", "p", "binding", body, NULL,
				   NULL, NULL),
			 RC_OK);
	fake_find(&fx.fake, "POST /api/v1/namespaces/ns/pods/p/binding");
	assert_int_equal(
		kube_update(fx.kube, NULL, &api_kind_Pod, "ns", "p", NULL, body, NULL, NULL, NULL),
		RC_OK);
	fake_find(&fx.fake, "PUT /api/v1/namespaces/ns/pods/p");
	assert_int_equal(kube_delete_collection(fx.kube, NULL, &api_kind_Pod, "ns",
						&(struct kube_list_opts){.label_selector = "a=b"},
						NULL, NULL, NULL, NULL),
			 RC_OK);
	op = fake_find(&fx.fake, "DELETE /api/v1/namespaces/ns/pods?labelSelector=a%3Db");
	assert_string_equal(op->body, "{\"apiVersion\":\"v1\",\"kind\":\"DeleteOptions\"}");
	assert_int_equal(kube_raw(fx.kube, NULL, "GET", "/version", NULL, NULL, 0, USEC_PER_SEC,
				  NULL, NULL, NULL),
			 RC_OK);
	fake_find(&fx.fake, "GET /version");
	assert_int_equal(kube_get(fx.kube, NULL, &api_kind_Pod, "ns", "", NULL, NULL, NULL),
			 RC_INVALID);
	teardown();
}

/* Watches */

static void on_event(const struct kube_event *e, void *arg)
{
	static const char letters[] = {[KUBE_ADDED] = 'A',
				       [KUBE_MODIFIED] = 'M',
				       [KUBE_DELETED] = 'D',
				       [KUBE_BOOKMARK] = 'B',
				       [KUBE_END] = 'E'};
	size_t n = strlen(fx.events);

	assert_ptr_equal(arg, &fx);
	fx.events[n] = letters[e->type];
	if (e->type == KUBE_END)
		fx.end_rc = e->rc;
	if (fx.free_in_callback)
		fx.watch = kube_watch_free(fx.watch);
}

static struct fake_op *watch_pods(void)
{
	fx.watch = kube_watch_free(fx.watch);
	assert_int_equal(kube_watch(fx.kube, &fx.watch, &api_kind_Pod, NULL,
				    &(struct kube_watch_opts){.resource_version = "5"}, on_event,
				    &fx, NULL),
			 RC_OK);
	return fake_find(&fx.fake,
			 "GET /api/v1/pods?watch=true&allowWatchBookmarks=true&resourceVersion=5"
			 "&timeoutSeconds=300");
}

static void events_arrive_in_any_slices(void **state)
{
	const char text[] =
		"{\"type\":\"ADDED\",\"object\":{}}\n\n{\"type\":\"MODIFIED\",\"object\":{}}\n"
		"{\"type\":\"BOOKMARK\",\"object\":{}}\n{\"type\":\"DELETED\",\"object\":{}}\n";
	struct fake_op *op;

	(void)state;
	setup();
	op = watch_pods();
	for (const char *p = text; *p; p++)
		fake_bytes(op, (char[]){*p, '\0'});
	assert_string_equal(fx.events, "AMBD");
	fake_end(op);
	assert_string_equal(fx.events, "AMBDE");
	assert_int_equal(fx.end_rc, RC_OK);
	teardown();
}

static void a_watch_ends_once_with_its_reason(void **state)
{
	(void)state;
	setup();
	fake_event(watch_pods(), "ERROR",
		   "{\"kind\":\"Status\",\"code\":410,\"reason\":\"Expired\"}");
	assert_int_equal(fx.end_rc, RC_EXPIRED);
	fake_bytes(watch_pods(), "garbage\n{\"type\":\"ADDED\",\"object\":{}}\n");
	assert_int_equal(fx.end_rc, RC_IO);
	fake_answer(watch_pods(), 410, "{\"kind\":\"Status\",\"reason\":\"Gone\"}");
	assert_int_equal(fx.end_rc, RC_EXPIRED);
	fake_fail(watch_pods(), RC_CLOSED);
	assert_int_equal(fx.end_rc, RC_CLOSED);
	watch_pods();
	assert_int_equal(loop_run(fx.loop, NULL, NULL), RC_OK); /* silent for ever */
	assert_int_equal(fx.end_rc, RC_TIMEOUT);
	assert_string_equal(fx.events, "EEEEE");
	teardown();
}

static void a_watch_may_be_freed_in_its_callback(void **state)
{
	struct fake_op *op;

	(void)state;
	setup();
	fx.free_in_callback = true;
	op = watch_pods();
	fake_bytes(op, "{\"type\":\"ADDED\",\"object\":{}}\n{\"type\":\"ADDED\",\"object\":{}}\n");
	assert_string_equal(fx.events, "A"); /* nothing after it */
	assert_true(op->cancelled);
	fake_end(watch_pods());
	assert_string_equal(fx.events, "AE");
	teardown();
}

static enum rc use_once(void)
{
	enum rc rc = RC_OK;

	memset(&fx, 0, sizeof(fx));
	rc = loop_new(&fx.loop, LOOP_VIRTUAL, NULL);
	if (!rc)
		rc = kube_new_over(&fx.kube, fx.loop, &fake_transport, &fx.fake, NULL);
	if (!rc)
		rc = kube_delete(fx.kube, &fx.call, &api_kind_Pod, "ns", "p", NULL, on_reply, &fx,
				 NULL);
	if (!rc) {
		fake_answer(&fx.fake.ops[0], 200, "{\"metadata\":{\"name\":\"p\"}}");
		rc = fx.rc;
	}
	if (!rc)
		rc = kube_watch(fx.kube, &fx.watch, &api_kind_Pod, NULL, NULL, on_event, &fx, NULL);
	if (!rc) {
		fake_bytes(&fx.fake.ops[1], "{\"type\":\"ADDED\",\"object\":{\"a\":\"b\"}}\n");
		rc = fx.end_rc;
	}
	kube_call_free(fx.call);
	kube_watch_free(fx.watch);
	kube_free(fx.kube);
	loop_free(fx.loop);
	return rc;
}

static void every_allocation_may_fail(void **state)
{
	(void)state;
	torture(use_once);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(answers_are_decoded),
		cmocka_unit_test(a_status_becomes_rc_reason_and_message),
		cmocka_unit_test(every_call_has_a_deadline),
		cmocka_unit_test(dropping_the_handle_cancels),
		cmocka_unit_test(a_handle_may_be_freed_in_its_callback),
		cmocka_unit_test(a_client_that_goes_cancels_what_is_in_flight),
		cmocka_unit_test(requests_look_as_the_api_wants_them),
		cmocka_unit_test(events_arrive_in_any_slices),
		cmocka_unit_test(a_watch_ends_once_with_its_reason),
		cmocka_unit_test(a_watch_may_be_freed_in_its_callback),
		cmocka_unit_test(every_allocation_may_fail),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("kube", tests, NULL, NULL);
}
