#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "api/gen/api_types.h"
#include "base/mem.h"
#include "base/str.h"
#include "ev/ev.h"
#include "http/server.h"
#include "json/json.h"
#include "kube/kcache.h"
#include "kube/kobj.h"
#include "kube/kube.h"

/* The client over real sockets, against a small server on the same loop. */

struct fixture {
	struct loop *loop;
	struct http_server *server;
	struct kube *kube;
	struct http_req *stream;
	struct http_req *held;
	unsigned requests, watches, cancels;
	char last_body[512];
	char last_type[64];
	unsigned replies;
	enum rc rc;
	char name[64];
	char events[32];
	enum rc end_rc;
	bool do_hold;
};

static struct fixture fx;

static void on_cancel(struct http_req *req, void *arg)
{
	(void)arg;
	fx.cancels++;
	if (req == fx.stream)
		fx.stream = NULL;
	if (req == fx.held)
		fx.held = NULL;
}

static void answer(struct http_req *req, int status, const char *text)
{
	http_respond(req, status, "application/json", text, strlen(text), NULL, 0);
}

static void on_request(struct http_req *req, void *arg)
{
	size_t n;
	const char *body = http_req_body(req, &n);

	(void)arg;
	fx.requests++;
	snprintf(fx.last_body, sizeof(fx.last_body), "%.*s", (int)n, body);
	snprintf(fx.last_type, sizeof(fx.last_type), "%s",
		 http_req_header(req, "Content-Type") ? http_req_header(req, "Content-Type") : "");
	if (fx.do_hold) {
		fx.held = req;
		http_req_on_cancel(req, on_cancel, NULL);
		return;
	}
	if (http_req_param(req, "watch")) {
		fx.watches++;
		fx.stream = req;
		http_req_on_cancel(req, on_cancel, NULL);
		http_stream_begin(req, 200, "application/json", 65536, NULL, 0);
		return;
	}
	if (str_has_suffix(http_req_path(req), "/missing"))
		answer(req, 404,
		       "{\"kind\":\"Status\",\"reason\":\"NotFound\",\"message\":\"pods "
		       "\\\"missing\\\" not found\"}");
	else if (str_has_suffix(http_req_path(req), "/pods"))
		answer(req, 200,
		       "{\"metadata\":{\"resourceVersion\":\"5\"},\"items\":[{\"metadata\":{"
		       "\"name\":\"a\","
		       "\"namespace\":\"ns\",\"uid\":\"ua\",\"resourceVersion\":\"3\"}}]}");
	else
		answer(req, 200, "{\"kind\":\"Pod\",\"metadata\":{\"name\":\"p\"}}");
}

static void on_reply(const struct kube_reply *r, void *arg)
{
	const char *name = js_str(js_at(r->body, "metadata", "name", NULL));

	assert_ptr_equal(arg, &fx);
	fx.replies++;
	fx.rc = r->rc;
	snprintf(fx.name, sizeof(fx.name), "%s", name ? name : "");
}

static void setup(void)
{
	struct http_server_config sc = {.address = "127.0.0.1", .handler = on_request};
	char url[64];
	struct err err = {0};

	memset(&fx, 0, sizeof(fx));
	assert_int_equal(loop_new(&fx.loop, LOOP_REAL, NULL), RC_OK);
	assert_int_equal(http_server_new(&fx.server, fx.loop, &sc, &err), RC_OK);
	snprintf(url, sizeof(url), "http://127.0.0.1:%u/", http_server_port(fx.server));
	assert_int_equal(kube_new(&fx.kube, fx.loop,
				  &(struct kube_config){.server = url, .timeout = 2 * USEC_PER_SEC},
				  &err),
			 RC_OK);
}

static void teardown(void)
{
	kube_free(fx.kube);
	http_server_free(fx.server);
	loop_free(fx.loop);
}

/* Runs the loop until *count reaches want, at most for five seconds. */
static void wait_for(const unsigned *count, unsigned want)
{
	usec_t end = loop_now(fx.loop) + 5 * USEC_PER_SEC;

	while (*count < want && loop_now(fx.loop) < end)
		assert_int_equal(loop_step(fx.loop, 100 * USEC_PER_MSEC, NULL, NULL), RC_OK);
	assert_true(*count >= want);
}

static void requests_and_answers_travel(void **state)
{
	CLEANUP(js_unrefp) struct json *body = js_pack("{s:s}", "a", "b");

	(void)state;
	setup();
	assert_int_equal(kube_get(fx.kube, NULL, &api_kind_Pod, "ns", "p", on_reply, &fx, NULL),
			 RC_OK);
	wait_for(&fx.replies, 1);
	assert_int_equal(fx.rc, RC_OK);
	assert_string_equal(fx.name, "p");
	assert_int_equal(
		kube_get(fx.kube, NULL, &api_kind_Pod, "ns", "missing", on_reply, &fx, NULL),
		RC_OK);
	wait_for(&fx.replies, 2);
	assert_int_equal(fx.rc, RC_NOT_FOUND);
	assert_int_equal(kube_patch(fx.kube, NULL, &api_kind_Pod, "ns", "p", "status",
				    KUBE_PATCH_MERGE, body, on_reply, &fx, NULL),
			 RC_OK);
	wait_for(&fx.replies, 3);
	assert_int_equal(fx.rc, RC_OK);
	assert_string_equal(fx.last_body, "{\"a\":\"b\"}");
	assert_string_equal(fx.last_type, "application/merge-patch+json");
	teardown();
}

static void deadline_and_cancel_reach_the_server(void **state)
{
	CLEANUP(kube_call_freep) struct kube_call *call = NULL;

	(void)state;
	setup();
	fx.do_hold = true;
	assert_int_equal(kube_get(fx.kube, NULL, &api_kind_Pod, "ns", "p", on_reply, &fx, NULL),
			 RC_OK);
	wait_for(&fx.replies, 1);
	assert_int_equal(fx.rc, RC_TIMEOUT);
	assert_int_equal(kube_get(fx.kube, &call, &api_kind_Pod, "ns", "p", on_reply, &fx, NULL),
			 RC_OK);
	wait_for(&fx.requests, 2);
	call = kube_call_free(call);
	assert_int_equal(loop_step(fx.loop, 50 * USEC_PER_MSEC, NULL, NULL), RC_OK);
	assert_int_equal(fx.replies, 1);
	teardown();
}

static void nobody_there_is_closed(void **state)
{
	(void)state;
	setup();
	fx.server = http_server_free(fx.server);
	assert_int_equal(kube_get(fx.kube, NULL, &api_kind_Pod, "ns", "p", on_reply, &fx, NULL),
			 RC_OK);
	wait_for(&fx.replies, 1);
	assert_int_equal(fx.rc, RC_CLOSED);
	teardown();
}

static unsigned changes;

static void on_change(const struct kobj *old, const struct kobj *new, void *arg)
{
	size_t n = strlen(fx.events);

	(void)arg;
	changes++;
	fx.events[n] = !old ? '+' : new ? '~' : '-';
}

static void send_event(const char *type, int rv)
{
	char line[256];

	snprintf(line, sizeof(line),
		 "{\"type\":\"%s\",\"object\":{\"metadata\":{\"name\":\"a\",\"namespace\":\"ns\","
		 "\"uid\":\"ua\","
		 "\"resourceVersion\":\"%d\"}}}\n",
		 type, rv);
	assert_int_equal(http_stream_write(fx.stream, line, strlen(line)), RC_OK);
}

static void an_informer_lives_on_sockets(void **state)
{
	CLEANUP(kcache_handler_freep) struct kcache_handler *h = NULL;
	struct kcache *c = NULL;

	(void)state;
	setup();
	changes = 0;
	assert_int_equal(kcache_new(&c, fx.loop, fx.kube, &(struct kcache_opts){.seed = 1}, NULL),
			 RC_OK);
	assert_int_equal(kcache_add(c, &(struct kcache_source){.kind = &api_kind_Pod}, NULL),
			 RC_OK);
	assert_int_equal(kcache_on(c, &h, NULL, on_change, NULL, NULL), RC_OK);
	assert_int_equal(kcache_start(c, NULL), RC_OK);
	wait_for(&fx.watches, 1);
	assert_true(kcache_is_synced(c));
	send_event("MODIFIED", 6);
	wait_for(&changes, 2);
	http_stream_end(STEAL(fx.stream)); /* resumes by itself */
	wait_for(&fx.watches, 2);
	send_event("DELETED", 7);
	wait_for(&changes, 3);
	assert_string_equal(fx.events, "+~-");
	http_stream_abort(STEAL(fx.stream)); /* a broken connection */
	wait_for(&fx.watches, 3);
	h = kcache_handler_free(h);
	kcache_free(c);
	wait_for(&fx.cancels, 1); /* the server hears that nobody watches */
	teardown();
}

static void a_senseless_configuration_is_refused(void **state)
{
	struct loop *loop = NULL;
	struct kube *k = NULL;
	struct err err = {0};

	(void)state;
	assert_int_equal(loop_new(&loop, LOOP_REAL, NULL), RC_OK);
	assert_int_equal(kube_new(&k, loop, &(struct kube_config){.server = "ftp://x"}, &err),
			 RC_INVALID);
	assert_non_null(strstr(err.msg, "ftp://x"));
	assert_int_equal(kube_new(&k, loop, &(struct kube_config){.server = NULL}, &err),
			 RC_INVALID);
	assert_int_equal(kube_new(&k, loop,
				  &(struct kube_config){.server = "https://x", .cert_file = "/c"},
				  &err),
			 RC_INVALID);
	assert_null(k);
	loop_free(loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(requests_and_answers_travel),
		cmocka_unit_test(deadline_and_cancel_reach_the_server),
		cmocka_unit_test(nobody_there_is_closed),
		cmocka_unit_test(an_informer_lives_on_sockets),
		cmocka_unit_test(a_senseless_configuration_is_refused),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("kube_http", tests, NULL, NULL);
}
