#include "api/api.h"
#include "../http/fixture.h"

#include <stdio.h>

#include "../admission/fake_hooks.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "http/ws.h"
#include "lib/promcheck.h"
#include "virt/subresources/subresources.h"

/* One server plays both roles: "/v1/..." is the agent of the node, the rest the API server's front. */
struct world {
	struct fixture *f;
	struct hook_env env;
	struct hook_call call;
	struct virt_subres *subres;
	struct http_ws *agent;
	bool agent_is_busy;
	const char *query; /* of the call */
	char asked[128];   /* of the agent: path and query */
	bool agent_refuses, agent_got, agent_closed, was_cancelled, command_came;
	char agent_text[128];
	/* The client's end. */
	struct http_ws *ws;
	bool is_open, is_closed, has_message, has_all;
	uint16_t code;
	int status;
	char text[128];
	size_t total, want;
};

static void agent_message(struct http_ws *ws, bool is_text, const uint8_t *bytes, size_t n,
			  void *arg)
{
	struct world *w = arg;

	(void)is_text;
	w->agent_got = true;
	snprintf(w->agent_text, sizeof(w->agent_text), "%.*s", (int)MIN(n, (size_t)100),
		 (const char *)bytes);
	assert_int_equal(http_ws_send(ws, false, "login: ", 7), RC_OK);
}

static void agent_close(struct http_ws *ws, uint16_t code, const char *reason, int status,
			const struct err *why, void *arg)
{
	(void)ws;
	(void)code;
	(void)reason;
	(void)status;
	(void)why;
	((struct world *)arg)->agent_closed = true;
}

static const struct http_ws_ops agent_ops = {.on_message = agent_message, .on_close = agent_close};

static void agent(struct http_req *r, struct world *w)
{
	static const char *const known[] = {"plain.kubevirt.io", NULL};
	static const char text[] =
		"{\"kind\":\"Status\",\"message\":\"not now\",\"reason\":\"Conflict\"}";

	assert_string_equal(http_req_peer(r)->cn, "alice");
	snprintf(w->asked, sizeof(w->asked), "%s", http_req_target(r));
	if (w->agent_is_busy) {
		static const char busy[] =
			"{\"kind\":\"Status\",\"message\":\"Active VNC connection. "
			"Request denied.\",\"reason\":\"ServiceUnavailable\"}";

		http_respond(r, 503, "application/json", busy, strlen(busy), NULL, 0);
	} else if (w->agent_refuses) {
		http_respond(r, 409, "application/json", text, strlen(text), NULL, 0);
	} else if (str_has_suffix(http_req_path(r), "/console") ||
		   str_has_suffix(http_req_path(r), "/vnc")) {
		assert_true(str_has_prefix(http_req_path(r),
					   "/v1/namespaces/default/virtualmachineinstances/a/"));
		assert_int_equal(http_upgrade_ws(r, http_req_ws_protocol(r, known), &agent_ops, w,
						 &w->agent, NULL),
				 RC_OK);
	} else if (str_has_suffix(http_req_path(r), "/vnc/screenshot")) {
		http_respond(r, 200, "image/png", "\x89PNG\0\0xy", 8, NULL, 0);
	} else {
		w->command_came = str_eq(http_req_method(r), "PUT") &&
				  str_has_suffix(http_req_path(r), "/pause");
		http_respond(r, 200, NULL, "", 0, NULL, 0);
	}
}

static void on_front_cancel(struct http_req *r, void *arg)
{
	struct world *w = arg;

	(void)r;
	w->was_cancelled = true;
	if (w->call.cancel)
		w->call.cancel(&w->call);
}

static void serve(struct http_req *r, void *arg)
{
	struct world *w = arg;

	if (str_has_prefix(http_req_path(r), "/v1/")) {
		agent(r, w);
		return;
	}
	w->call = (struct hook_call){
		.env = &w->env, .ns = "default", .name = "a", .query = w->query, .http = r};
	http_req_on_cancel(r, on_front_cancel, w);
	for (size_t i = 0; i < n_virt_subres; i++)
		if (str_eq(virt_subres[i].at->path, http_req_path(r) + 1) &&
		    str_eq(virt_subres[i].at->resource, "virtualmachineinstances"))
			virt_subres[i].handle(&w->call);
	if (w->call.is_answered && !w->call.is_upgraded)
		http_respond(r, w->call.status, "text/plain", w->call.text, strlen(w->call.text),
			     NULL, 0);
}

static void add_node(struct world *w, const char *name)
{
	char node[512];

	snprintf(node, sizeof(node),
		 "{'metadata': {'name': '%s', 'annotations': {'ferry.dev/agent-port': '%u'}}, "
		 "'status':"
		 " {'addresses': [{'type': 'InternalIP', 'address': '127.0.0.1'}]}}",
		 name, http_server_port(w->f->server));
	env_add(&w->env, "nodes", node);
}

static void set_node(struct world *w, const char *node)
{
	const struct json *list = js_get(w->env.objects, "virtualmachineinstances.kubevirt.io");
	struct json *status = js_get(js_item(list, 0), "status");

	assert_int_equal(js_set(status, "nodeName", js_new_str(node)), RC_OK);
}

static void setup(struct world *w, struct fixture *f)
{
	memset(w, 0, sizeof(*w));
	w->f = f;
	f->handler = serve;
	f->arg = w;
	env_init(&w->env);
	assert_int_equal(
		virt_subres_new(&w->subres, f->loop, f->ca, f->user_crt, f->user_key, NULL), RC_OK);
	w->env.arg = w->subres;
	add_node(w, "n1");
	add_node(w, "n2");
	env_add(&w->env, "virtualmachineinstances.kubevirt.io",
		"{'metadata': {'name': 'a', 'namespace': 'default', 'uid': 'u'}, 'spec': {},"
		" 'status': {'phase': 'Running', 'nodeName': 'n1', 'ferry': {'video': 'vga'}}}");
}

static void teardown(struct world *w)
{
	http_ws_free(w->ws);
	http_ws_free(w->agent);
	fixture_run_for(w->f, 5 * USEC_PER_MSEC);
	virt_subres_free(w->subres);
	env_fini(&w->env);
}

static void client_open(struct http_ws *ws, const char *protocol, void *arg)
{
	(void)ws;
	assert_string_equal(protocol, "plain.kubevirt.io");
	((struct world *)arg)->is_open = true;
}

static void client_message(struct http_ws *ws, bool is_text, const uint8_t *bytes, size_t n,
			   void *arg)
{
	struct world *w = arg;

	(void)ws;
	assert_false(is_text);
	w->has_message = true;
	w->total += n;
	w->has_all = w->want && w->total >= w->want;
	snprintf(w->text, sizeof(w->text), "%.*s", (int)MIN(n, (size_t)100), (const char *)bytes);
}

static void client_close(struct http_ws *ws, uint16_t code, const char *reason, int status,
			 const struct err *why, void *arg)
{
	struct world *w = arg;

	(void)ws;
	(void)reason;
	w->is_closed = true;
	w->code = code;
	w->status = status;
	if (why)
		snprintf(w->text, sizeof(w->text), "%.100s", why->msg);
}

static const struct http_ws_ops client_ops = {
	.on_open = client_open, .on_message = client_message, .on_close = client_close};

static void dial_to(struct world *w, const char *path)
{
	assert_int_equal(http_ws_connect(w->f->client, &w->ws, fixture_url(w->f, path),
					 "plain.kubevirt.io", 0, &client_ops, w, NULL),
			 RC_OK);
}

static void dial(struct world *w)
{
	dial_to(w, "/console");
}

static void console_carries_bytes_both_ways(void **state)
{
	struct world w;

	setup(&w, *state);
	dial(&w);
	fixture_wait(w.f, &w.is_open);
	assert_int_equal(http_ws_send(w.ws, false, "\r", 1), RC_OK);
	fixture_wait(w.f, &w.has_message);
	assert_string_equal(w.agent_text, "\r");
	assert_string_equal(w.text, "login: ");
	http_ws_close(w.ws, HTTP_WS_NORMAL, NULL);
	fixture_wait(w.f, &w.agent_closed);
	fixture_wait(w.f, &w.is_closed);
	assert_int_equal(w.code, HTTP_WS_NORMAL);
	teardown(&w);
}

static void end_of_the_console_reaches_the_client(void **state)
{
	struct world w;

	setup(&w, *state);
	dial(&w);
	fixture_wait(w.f, &w.is_open);
	http_ws_close(w.agent, HTTP_WS_NORMAL, "the console has ended");
	fixture_wait(w.f, &w.is_closed);
	assert_int_equal(w.code, HTTP_WS_NORMAL);
	teardown(&w);
}

static char *metrics_of(struct world *w)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(65536);
	char *text = NULL;
	size_t n;

	virt_subres_metrics(w->subres, &b);
	assert_int_equal(sbuf_take(&b, &text, &n), RC_OK);
	mem_free(prom_check(text)); /* well-formed */
	return text;
}

static void assert_counts(struct world *w, const char *samples)
{
	CLEANUP(mem_freep) char *text = metrics_of(w);
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(65536);

	for (const char *p = text; *p; p = strchr(p, '\n') + 1)
		if (*p != '#')
			sbuf_addf(&b, "%.*s", (int)(strchr(p, '\n') + 1 - p), p);
	assert_string_equal(sbuf_str(&b), samples);
}

static void what_is_open_is_counted_until_it_ends(void **state)
{
	struct http_ws *second = NULL, *its_agent = NULL;
	struct world w;

	setup(&w, *state);
	assert_counts(&w, "");
	dial(&w);
	assert_counts(&w, ""); /* the agent has not answered */
	fixture_wait(w.f, &w.is_open);
	assert_counts(&w,
		      "kubevirt_console_active_connections{namespace=\"default\",vmi=\"a\"} 1\n");
	second = STEAL(w.ws);
	its_agent = STEAL(w.agent);
	w.is_open = false;
	dial_to(&w, "/vnc");
	fixture_wait(w.f, &w.is_open);
	assert_counts(&w, "kubevirt_console_active_connections{namespace=\"default\",vmi=\"a\"} 1\n"
			  "kubevirt_vnc_active_connections{namespace=\"default\",vmi=\"a\"} 1\n");
	CLEANUP(mem_freep) char *text = metrics_of(&w);

	prom_golden("connections", text);
	http_ws_close(w.ws, HTTP_WS_NORMAL, NULL);
	fixture_wait(w.f, &w.is_closed);
	assert_counts(&w,
		      "kubevirt_console_active_connections{namespace=\"default\",vmi=\"a\"} 1\n");
	http_ws_free(second);
	http_ws_free(its_agent);
	teardown(&w);
}

static void two_consoles_of_one_vm_are_two(void **state)
{
	struct http_ws *first = NULL, *its_agent = NULL;
	struct world w;

	setup(&w, *state);
	dial(&w);
	fixture_wait(w.f, &w.is_open);
	first = STEAL(w.ws);
	its_agent = STEAL(w.agent);
	w.is_open = false;
	dial(&w);
	fixture_wait(w.f, &w.is_open);
	assert_counts(&w,
		      "kubevirt_console_active_connections{namespace=\"default\",vmi=\"a\"} 2\n");
	http_ws_free(first);
	http_ws_free(its_agent);
	teardown(&w);
}

/* The VM has moved, and the source's end of its console comes. */
static struct http_ws *end_of_the_source(struct world *w)
{
	struct http_ws *source = STEAL(w->agent);

	set_node(w, "n2");
	http_ws_close(source, HTTP_WS_NORMAL, "the console has ended");
	return source;
}

static void a_console_goes_on_where_its_vm_has_moved(void **state)
{
	struct world w;

	setup(&w, *state);
	dial(&w);
	fixture_wait(w.f, &w.is_open);
	struct http_ws *source = end_of_the_source(&w);

	for (int i = 0; i < 2000 && !w.agent; i++)
		fixture_run_for(w.f, 100);
	assert_non_null(w.agent);
	fixture_wait(w.f, &w.agent_closed);
	assert_int_equal(http_ws_send(w.ws, false, "\r", 1), RC_OK);
	fixture_wait(w.f, &w.has_message);
	assert_string_equal(w.text, "login: ");
	assert_false(w.is_closed);
	/* it has not moved any more: this is the end */
	http_ws_close(w.agent, HTTP_WS_NORMAL, "the console has ended");
	fixture_wait(w.f, &w.is_closed);
	assert_int_equal(w.code, HTTP_WS_NORMAL);
	http_ws_free(source);
	teardown(&w);
}

static void set_move(struct world *w, struct json *move)
{
	const struct json *list = js_get(w->env.objects, "virtualmachineinstances.kubevirt.io");
	struct json *status = js_get(js_item(list, 0), "status");

	assert_int_equal(js_set(status, "migrationState", move), RC_OK);
}

/* The source ends its copy before the target's word of it has been written. */
static void a_console_waits_until_its_vm_says_where_it_is(void **state)
{
	struct world w;

	setup(&w, *state);
	dial(&w);
	fixture_wait(w.f, &w.is_open);
	set_move(&w, js_pack("{s:s, s:s}", "sourceNode", "n1", "targetNode", "n2"));
	struct http_ws *source = STEAL(w.agent);

	http_ws_close(source, HTTP_WS_NORMAL, "the console has ended");
	fixture_run_for(w.f, 200 * USEC_PER_MSEC);
	assert_false(w.is_closed);
	assert_null(w.agent);
	set_node(&w, "n2");
	for (int i = 0; i < 2000 && !w.agent; i++)
		fixture_run_for(w.f, USEC_PER_MSEC);
	assert_non_null(w.agent);
	fixture_run_for(w.f, 100 * USEC_PER_MSEC);
	assert_int_equal(http_ws_send(w.ws, false, "\r", 1), RC_OK);
	fixture_wait(w.f, &w.has_message);
	assert_false(w.is_closed);
	http_ws_free(source);
	teardown(&w);
}

static void a_console_ends_when_its_vm_does_not_leave_after_all(void **state)
{
	struct world w;

	setup(&w, *state);
	dial(&w);
	fixture_wait(w.f, &w.is_open);
	set_move(&w, js_pack("{s:s, s:s}", "sourceNode", "n1", "targetNode", "n2"));
	http_ws_close(w.agent, HTTP_WS_NORMAL, "the console has ended");
	fixture_run_for(w.f, 100 * USEC_PER_MSEC);
	assert_false(w.is_closed);
	set_move(&w, js_pack("{s:s, s:b}", "sourceNode", "n1", "failed", 1));
	fixture_wait(w.f, &w.is_closed);
	assert_int_equal(w.code, HTTP_WS_NORMAL);
	teardown(&w);
}

static void a_console_that_the_target_refuses_ends(void **state)
{
	struct world w;

	setup(&w, *state);
	dial(&w);
	fixture_wait(w.f, &w.is_open);
	w.agent_refuses = true;
	struct http_ws *source = end_of_the_source(&w);

	fixture_wait(w.f, &w.is_closed);
	http_ws_free(source);
	teardown(&w);
}

static void a_client_that_leaves_while_its_vm_is_followed_leaves_nothing(void **state)
{
	struct world w;

	setup(&w, *state);
	dial(&w);
	fixture_wait(w.f, &w.is_open);
	struct http_ws *source = end_of_the_source(&w);

	fixture_wait(w.f, &w.agent_closed);
	w.ws = http_ws_free(w.ws);
	fixture_run_for(w.f, 100 * USEC_PER_MSEC);
	http_ws_free(source);
	teardown(&w);
}

static void lost_agent_is_an_abnormal_end(void **state)
{
	struct world w;

	setup(&w, *state);
	dial(&w);
	fixture_wait(w.f, &w.is_open);
	w.agent = http_ws_free(w.agent);
	fixture_wait(w.f, &w.is_closed);
	assert_int_equal(w.code, HTTP_WS_ABNORMAL);
	teardown(&w);
}

static void refusal_of_the_agent_is_an_http_answer(void **state)
{
	struct world w;
	bool answered = false;

	setup(&w, *state);
	w.agent_refuses = true;
	dial(&w);
	for (int i = 0; i < 200 && !answered; i++) {
		fixture_run_for(w.f, USEC_PER_MSEC);
		answered = w.call.is_answered;
	}
	assert_true(answered);
	assert_int_equal(w.call.status, 409);
	assert_string_equal(w.call.text, "Operation cannot be fulfilled on "
					 "virtualmachineinstance.kubevirt.io \"a\": not now");
	http_respond(w.call.http, 409, NULL, "", 0, NULL, 0);
	fixture_wait(w.f, &w.is_closed);
	assert_int_equal(w.status, 409);
	teardown(&w);
}

static void client_that_leaves_while_dialling_leaves_nothing(void **state)
{
	struct world w;

	setup(&w, *state);
	dial(&w);
	for (int i = 0; i < 2000 && !w.call.env; i++)
		fixture_run_for(w.f, 100);
	assert_non_null(w.call.env);
	w.ws = http_ws_free(w.ws);
	fixture_run_for(w.f, 100 * USEC_PER_MSEC);
	teardown(
		&w); /* asserts inside virt_subres_free() and the leak check of the sanitizer build */
}

static void much_output_meets_back_pressure_and_arrives_whole(void **state)
{
	static char block[16 * 1024];
	struct world w;
	size_t sent = 0;

	setup(&w, *state);
	dial(&w);
	fixture_wait(w.f, &w.is_open);
	http_ws_pause(w.ws, true);
	for (int i = 0; i < 2000; i++) {
		if (http_ws_send(w.agent, false, block, sizeof(block)) == RC_OK)
			sent += sizeof(block);
		assert_int_equal(loop_step(w.f->loop, 0, NULL, NULL), RC_OK);
	}
	assert_true(sent < 2000 * sizeof(block));
	w.want = sent;
	http_ws_pause(w.ws, false);
	fixture_wait(w.f, &w.has_all);
	assert_int_equal(w.total, sent);
	teardown(&w);
}

static void pause_goes_to_the_node(void **state)
{
	struct world w;
	struct got g = {0};
	struct http_call call = {.method = "PUT", .done = got_done, .arg = &g};
	struct http_slot *slot = NULL;

	setup(&w, *state);
	call.url = fixture_url(w.f, "/pause");
	assert_int_equal(http_call(w.f->client, &slot, &call, NULL), RC_OK);
	for (int i = 0; i < 2000 && !w.call.is_answered; i++)
		fixture_run_for(w.f, 100);
	assert_true(w.command_came);
	assert_int_equal(w.call.status, 200);
	http_respond(w.call.http, 200, NULL, "", 0, NULL, 0);
	fixture_wait(w.f, &g.done);
	http_slot_free(slot);
	teardown(&w);
}

/* --- the display --- */

/* Whatever the two sides say, it is theirs: nothing here reads RFB. */
static void hostile_bytes_of_a_display_are_passed_on(void **state)
{
	static const uint8_t bytes[] = {0xff, 0x00, 'R', 'F', 'B', 0x03, 0xff, 0xff, 0xff, 0xff};
	struct world w;

	setup(&w, *state);
	w.want = 7;
	dial_to(&w, "/vnc");
	fixture_wait(w.f, &w.is_open);
	assert_string_equal(w.asked, "/v1/namespaces/default/virtualmachineinstances/a/vnc");
	assert_int_equal(http_ws_send(w.ws, true, "text is no part of it", 21), RC_OK);
	assert_int_equal(http_ws_send(w.ws, false, bytes, sizeof(bytes)), RC_OK);
	fixture_wait(w.f, &w.has_all);
	assert_memory_equal(w.agent_text, bytes, 1);
	http_ws_close(w.agent, HTTP_WS_NORMAL, "the display has ended");
	fixture_wait(w.f, &w.is_closed);
	assert_int_equal(w.code, HTTP_WS_NORMAL);
	teardown(&w);
}

/* What was agreed on is in the source's memory. */
static void a_display_ends_where_its_vm_leaves(void **state)
{
	struct world w;

	setup(&w, *state);
	dial_to(&w, "/vnc");
	fixture_wait(w.f, &w.is_open);
	struct http_ws *source = end_of_the_source(&w);

	fixture_wait(w.f, &w.is_closed);
	assert_int_equal(w.code, HTTP_WS_NORMAL);
	assert_null(w.agent); /* the target was not asked */
	http_ws_free(source);
	teardown(&w);
}

static void a_display_in_use_can_be_preserved(void **state)
{
	struct world w;

	setup(&w, *state);
	w.query = "preserveSession=true";
	w.agent_is_busy = true;
	dial_to(&w, "/vnc");
	for (int i = 0; i < 2000 && !w.call.is_answered; i++)
		fixture_run_for(w.f, 100);
	assert_string_equal(
		w.asked,
		"/v1/namespaces/default/virtualmachineinstances/a/vnc?preserveSession=true");
	assert_int_equal(w.call.status, 503);
	assert_string_equal(w.call.text, "Active VNC connection. Request denied.");
	http_respond(w.call.http, 503, NULL, "", 0, NULL, 0);
	fixture_wait(w.f, &w.is_closed);
	teardown(&w);
}

static void ask_for_a_picture(struct world *w, struct got *g, struct http_slot **slot)
{
	struct http_call call = {.done = got_done, .arg = g};

	call.url = fixture_url(w->f, "/vnc/screenshot");
	assert_int_equal(http_call(w->f->client, slot, &call, NULL), RC_OK);
	for (int i = 0; i < 2000 && !w->call.is_answered; i++)
		fixture_run_for(w->f, 100);
}

static void a_picture_comes_from_the_node(void **state)
{
	struct http_slot *slot = NULL;
	struct got g = {0};
	struct world w;

	setup(&w, *state);
	w.query = "moveCursor=true";
	ask_for_a_picture(&w, &g, &slot);
	assert_string_equal(w.asked, "/v1/namespaces/default/virtualmachineinstances/a/vnc/"
				     "screenshot?moveCursor=true");
	assert_int_equal(w.call.status, 200);
	assert_int_equal(w.call.n_bytes, 8);
	assert_string_equal(w.call.text, "image/png \x89PNG");
	http_respond(w.call.http, w.call.status, NULL, "", 0, NULL, 0);
	fixture_wait(w.f, &g.done);
	http_slot_free(slot);
	teardown(&w);
}

static void a_refused_picture_has_the_nodes_code_and_text(void **state)
{
	struct http_slot *slot = NULL;
	struct got g = {0};
	struct world w;

	setup(&w, *state);
	w.agent_is_busy = true;
	ask_for_a_picture(&w, &g, &slot);
	assert_int_equal(w.call.status, 503);
	assert_string_equal(w.call.text, "Active VNC connection. Request denied.");
	http_respond(w.call.http, w.call.status, NULL, "", 0, NULL, 0);
	fixture_wait(w.f, &g.done);
	http_slot_free(slot);
	teardown(&w);
}

#define WITH(test_) cmocka_unit_test_setup_teardown(test_, fixture_setup, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH(console_carries_bytes_both_ways),
		WITH(end_of_the_console_reaches_the_client),
		WITH(what_is_open_is_counted_until_it_ends),
		WITH(two_consoles_of_one_vm_are_two),
		WITH(a_console_goes_on_where_its_vm_has_moved),
		WITH(a_console_waits_until_its_vm_says_where_it_is),
		WITH(a_console_ends_when_its_vm_does_not_leave_after_all),
		WITH(a_console_that_the_target_refuses_ends),
		WITH(a_client_that_leaves_while_its_vm_is_followed_leaves_nothing),
		WITH(lost_agent_is_an_abnormal_end),
		WITH(refusal_of_the_agent_is_an_http_answer),
		WITH(client_that_leaves_while_dialling_leaves_nothing),
		WITH(much_output_meets_back_pressure_and_arrives_whole),
		WITH(pause_goes_to_the_node),
		WITH(hostile_bytes_of_a_display_are_passed_on),
		WITH(a_display_ends_where_its_vm_leaves),
		WITH(a_display_in_use_can_be_preserved),
		WITH(a_picture_comes_from_the_node),
		WITH(a_refused_picture_has_the_nodes_code_and_text),
	};

	return cmocka_run_group_tests_name("subresources/console", tests, NULL, NULL);
}
