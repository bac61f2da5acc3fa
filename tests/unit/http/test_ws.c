#include "fixture.h"

#include <linux/filter.h>
#include <stdio.h>
#include <sys/socket.h>

#include "base/limits.h"
#include "base/mem.h"
#include "http/ws_int.h"

struct end {
	struct http_ws *ws;
	bool is_open, is_closed, has_message, has_room, has_all;
	char protocol[64];
	char text[256];
	size_t total, want;
	uint16_t code;
	char reason[128];
	int status;
	struct err why;
	bool echo;
	bool free_on_message;
	bool pause_on_message;
	unsigned n_messages;
};

static void on_open(struct http_ws *ws, const char *protocol, void *arg)
{
	struct end *e = arg;

	e->is_open = true;
	snprintf(e->protocol, sizeof(e->protocol), "%s", protocol ? protocol : "-");
	assert_true(http_ws_is_open(ws));
}

static void on_message(struct http_ws *ws, bool is_text, const uint8_t *bytes, size_t n, void *arg)
{
	struct end *e = arg;

	snprintf(e->text, sizeof(e->text), "%s:%.*s", is_text ? "text" : "binary",
		 (int)MIN(n, (size_t)100), (const char *)bytes);
	e->has_message = true;
	e->total += n;
	e->n_messages++;
	e->has_all = e->want && e->total >= e->want;
	if (e->echo)
		ignore_rc(http_ws_send(ws, is_text, bytes,
				       n)); /* fails in the test of allocations only */
	if (e->pause_on_message)
		http_ws_pause(ws, true);
	if (e->free_on_message)
		e->ws = http_ws_free(e->ws);
}

static void on_room(struct http_ws *ws, void *arg)
{
	(void)ws;
	((struct end *)arg)->has_room = true;
}

static void on_close(struct http_ws *ws, uint16_t code, const char *reason, int status,
		     const struct err *why, void *arg)
{
	struct end *e = arg;

	(void)ws;
	assert_false(e->is_closed);
	e->is_closed = true;
	e->code = code;
	e->status = status;
	snprintf(e->reason, sizeof(e->reason), "%s", reason);
	if (why)
		e->why = *why;
}

static const struct http_ws_ops ops = {
	.on_open = on_open, .on_message = on_message, .on_room = on_room, .on_close = on_close};

static void upgrade(struct http_req *r, void *arg)
{
	static const char *const known[] = {"plain.kubevirt.io", NULL};
	struct end *e = arg;
	struct err err = {0};

	if (strcmp(http_req_path(r), "/refuse") == 0) {
		const char *text = "{\"message\":\"VM is not running\",\"reason\":\"Conflict\"}";

		http_respond(r, 409, "application/json", text, strlen(text), NULL, 0);
		return;
	}
	if (http_upgrade_ws(r, http_req_ws_protocol(r, known), &ops, e, &e->ws, &err))
		http_respond(r, 400, "text/plain", err.msg, strlen(err.msg), NULL, 0);
}

static void connect_ends(struct fixture *f, struct end *server, struct end *client)
{
	f->handler = upgrade;
	f->arg = server;
	assert_int_equal(http_ws_connect(f->client, &client->ws, fixture_url(f, "/console?x=1"),
					 "other, plain.kubevirt.io", 0, &ops, client, NULL),
			 RC_OK);
	fixture_wait(f, &client->is_open);
	fixture_wait(f, &server->is_open);
}

static void messages_go_both_ways(void **state)
{
	struct fixture *f = *state;
	struct end server = {.echo = true}, client = {0};

	connect_ends(f, &server, &client);
	assert_string_equal(client.protocol, "plain.kubevirt.io");
	assert_string_equal(server.protocol, "plain.kubevirt.io");
	assert_int_equal(http_ws_send(client.ws, false, "ping", 4), RC_OK);
	fixture_wait(f, &client.has_message);
	assert_string_equal(server.text, "binary:ping");
	assert_string_equal(client.text, "binary:ping");
	client.has_message = false;
	assert_int_equal(http_ws_send(server.ws, true, "hello", 5), RC_OK);
	fixture_wait(f, &client.has_message);
	assert_string_equal(client.text, "text:hello");
	http_ws_close(client.ws, HTTP_WS_NORMAL, "bye");
	assert_false(client.is_closed);
	fixture_wait(f, &client.is_closed);
	fixture_wait(f, &server.is_closed);
	assert_int_equal(server.code, 1000);
	assert_string_equal(server.reason, "bye");
	assert_int_equal(client.code, 1000);
	http_ws_free(client.ws);
	http_ws_free(server.ws);
}

static void server_may_close_with_a_code(void **state)
{
	struct fixture *f = *state;
	struct end server = {0}, client = {0};

	connect_ends(f, &server, &client);
	assert_int_equal(http_ws_send(server.ws, false, "last", 4), RC_OK);
	http_ws_close(server.ws, HTTP_WS_INTERNAL, "gone");
	fixture_wait(f, &client.is_closed);
	assert_string_equal(client.text, "binary:last");
	assert_int_equal(client.code, 1011);
	assert_string_equal(client.reason, "gone");
	fixture_wait(f, &server.is_closed);
	assert_int_equal(server.code, 1011);
	assert_int_equal(http_ws_send(server.ws, false, "x", 1), RC_CLOSED);
	http_ws_free(client.ws);
	http_ws_free(server.ws);
}

static void vanished_peer_is_abnormal(void **state)
{
	struct fixture *f = *state;
	struct end server = {0}, client = {0};
	struct http_server_stats stats;

	connect_ends(f, &server, &client);
	http_ws_free(client.ws);
	fixture_wait(f, &server.is_closed);
	assert_int_equal(server.code, HTTP_WS_ABNORMAL);
	http_ws_free(server.ws);
	fixture_run_for(f, 10 * USEC_PER_MSEC);
	http_server_stats(f->server, &stats);
	assert_int_equal(stats.open_websockets, 0);
	assert_int_equal(stats.connections, 0);

	server = client = (struct end){0};
	connect_ends(f, &server, &client);
	http_ws_free(server.ws);
	fixture_wait(f, &client.is_closed);
	assert_int_equal(client.code, HTTP_WS_ABNORMAL);
	http_ws_free(client.ws);
}

static void refusal_gives_status_and_message(void **state)
{
	struct fixture *f = *state;
	struct end server = {0}, client = {0};

	f->handler = upgrade;
	f->arg = &server;
	assert_int_equal(http_ws_connect(f->client, &client.ws, fixture_url(f, "/refuse"), NULL, 0,
					 &ops, &client, NULL),
			 RC_OK);
	fixture_wait(f, &client.is_closed);
	assert_int_equal(client.status, 409);
	assert_int_equal(client.why.rc, RC_CONFLICT);
	assert_string_equal(client.why.msg, "VM is not running");
	http_ws_free(client.ws);
}

static void dead_server_is_reported(void **state)
{
	struct fixture *f = *state;
	struct end client = {0};

	assert_int_equal(http_ws_connect(f->client, &client.ws, "wss://127.0.0.1:1/", NULL, 0, &ops,
					 &client, NULL),
			 RC_OK);
	fixture_wait(f, &client.is_closed);
	assert_int_equal(client.why.rc, RC_CLOSED);
	http_ws_free(client.ws);
	client = (struct end){0};
	assert_int_not_equal(
		http_ws_connect(f->client, &client.ws, "wss://", NULL, 0, &ops, &client, NULL),
		RC_OK);
}

static void plain_request_is_not_upgraded(void **state)
{
	struct fixture *f = *state;
	struct end server = {0};
	struct got g;

	f->handler = upgrade;
	f->arg = &server;
	fixture_get(f, f->client, "/console", &g);
	assert_int_equal(g.status, 400);
	assert_string_equal(g.body, "not a websocket handshake");
}

static void back_pressure_bounds_the_sender(void **state)
{
	struct fixture *f = *state;
	struct end server = {.pause_on_message = true}, client = {0};
	size_t n = 16 * 1024, sent = 0;
	char *block = mem_alloc(n);

	memset(block, 'x', n);
	connect_ends(f, &server, &client);
	for (int i = 0; i < 1000; i++) {
		enum rc rc = http_ws_send(client.ws, false, block, n);

		if (rc == RC_OK)
			sent += n;
		else
			assert_int_equal(rc, RC_BUSY);
		assert_int_equal(loop_step(f->loop, 0, NULL, NULL), RC_OK);
	}
	assert_true(http_ws_backlog(client.ws) <= HTTP_WS_BACKLOG);
	assert_true(sent < 1000 * n); /* the sockets' buffers and one backlog, not more */
	assert_true(server.total < sent);
	server.pause_on_message = false;
	server.want = sent;
	http_ws_pause(server.ws, false);
	fixture_wait(f, &server.has_all);
	assert_int_equal(server.total, sent);
	fixture_wait(f, &client.has_room);
	http_ws_free(client.ws);
	http_ws_free(server.ws);
	mem_free(block);
}

static void too_big_message_closes_with_1009(void **state)
{
	struct fixture *f = *state;
	struct end server = {0}, client = {0};
	char *block = mem_alloc(LIMIT_WS_BYTES + 1);

	connect_ends(f, &server, &client);
	assert_int_equal(http_ws_send(client.ws, false, block, LIMIT_WS_BYTES + 1), RC_TOO_BIG);
	assert_int_equal(http_ws_send(client.ws, false, block, LIMIT_WS_BYTES), RC_OK);
	fixture_wait(f, &server.has_message);
	assert_int_equal(server.total, LIMIT_WS_BYTES);
	http_ws_free(client.ws);
	http_ws_free(server.ws);
	mem_free(block);
}

static void endpoint_may_be_freed_in_its_callback(void **state)
{
	struct fixture *f = *state;
	struct end server = {.free_on_message = true}, client = {0};

	connect_ends(f, &server, &client);
	assert_int_equal(http_ws_send(client.ws, false, "a", 1), RC_OK);
	assert_int_equal(http_ws_send(client.ws, false, "b", 1), RC_OK);
	fixture_wait(f, &client.is_closed);
	assert_int_equal(server.n_messages, 1);
	assert_false(server.is_closed);
	http_ws_free(client.ws);
}

static void stopping_server_closes_with_1001(void **state)
{
	struct fixture *f = *state;
	struct end server = {0}, client = {0};

	connect_ends(f, &server, &client);
	http_server_stop(f->server, USEC_PER_SEC, NULL, NULL);
	fixture_wait(f, &client.is_closed);
	assert_int_equal(client.code, HTTP_WS_GOING_AWAY);
	fixture_wait(f, &server.is_closed);
	http_ws_free(client.ws);
	http_ws_free(server.ws);
}

static void freed_server_ends_its_websockets(void **state)
{
	struct fixture *f = *state;
	struct end server = {0}, client = {0};

	connect_ends(f, &server, &client);
	http_server_free(STEAL(f->server));
	assert_true(server.is_closed);
	fixture_wait(f, &client.is_closed);
	http_ws_free(client.ws);
	http_ws_free(server.ws);
}

enum { HURRY = 50 * 1000 }; /* microseconds from ping to ping, for 20 s */

static void hurry(struct http_ws *ws)
{
	ws->ping_interval = HURRY;
	ev_timer_rearm(ws->timer, 0);
}

/* Neither says anything any more nor reads; its machine is alive. */
static void hang(struct http_ws *ws)
{
	http_ws_pause(ws, true);
	ev_timer_rearm(ws->timer, USEC_INFINITY);
}

/* Its machine takes no packet any more. */
static void kill_machine(struct http_ws *ws)
{
	struct sock_filter none = BPF_STMT(BPF_RET | BPF_K, 0);
	const struct sock_fprog program = {.len = 1, .filter = &none};

	hang(ws);
	assert_int_equal(
		setsockopt(ws->fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)), 0);
}

static void idle_peers_that_answer_stay(void **state)
{
	struct fixture *f = *state;
	struct end server = {0}, client = {0};

	connect_ends(f, &server, &client);
	hurry(server.ws);
	hurry(client.ws);
	fixture_run_for(f, 20 * (usec_t)HURRY);
	assert_false(server.is_closed);
	assert_false(client.is_closed);
	http_ws_free(client.ws);
	http_ws_free(server.ws);
}

/* At either end; 0, 1: the peer hangs, 2, 3: its machine is dead, 4, 5: and we are paused. */
static void a_dead_peer_is_noticed(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < 6; i++) {
		struct end server = {0}, client = {0};
		struct end *alive = i % 2 ? &server : &client, *dead = i % 2 ? &client : &server;
		usec_t begin;

		connect_ends(f, &server, &client);
		fixture_run_for(f, 20 * USEC_PER_MSEC);
		if (i < 2)
			hang(dead->ws);
		else
			kill_machine(dead->ws);
		if (i >= 4)
			http_ws_pause(alive->ws, true);
		begin = loop_now(f->loop);
		hurry(alive->ws);
		fixture_wait(f, &alive->is_closed);
		assert_int_equal(alive->code, HTTP_WS_ABNORMAL);
		assert_int_equal(alive->why.rc, RC_TIMEOUT);
		assert_true(loop_now(f->loop) - begin >= (i >= 4 ? 9 : 3) * (usec_t)HURRY);
		http_ws_free(client.ws);
		http_ws_free(server.ws);
	}
}

/* Its machine confirms what is sent: it may be as slow as we are. */
static void who_is_paused_waits_for_a_peer_that_hangs(void **state)
{
	struct fixture *f = *state;
	struct end server = {0}, client = {0};

	connect_ends(f, &server, &client);
	hang(client.ws);
	http_ws_pause(server.ws, true);
	hurry(server.ws);
	fixture_run_for(f, 30 * (usec_t)HURRY);
	assert_false(server.is_closed);
	/* and goes on with it */
	http_ws_pause(client.ws, false);
	http_ws_pause(server.ws, false);
	assert_int_equal(http_ws_send(client.ws, false, "x", 1), RC_OK);
	fixture_wait(f, &server.has_message);
	http_ws_free(client.ws);
	http_ws_free(server.ws);
}

/* A handshake and one echo during which one allocation fails: both ends hear of an end, or all is well. */
static bool echo_with_fault(struct fixture *f, unsigned nth)
{
	struct end server = {.echo = true}, client = {0};
	usec_t end = loop_now(f->loop) + 100 * USEC_PER_MSEC;

	f->handler = upgrade;
	f->arg = &server;
	mem_fault_arm(nth);
	if (http_ws_connect(f->client, &client.ws, fixture_url(f, "/console"), NULL, 0, &ops,
			    &client, NULL) == RC_OK) {
		while (loop_now(f->loop) < end && !client.is_closed && !client.has_message) {
			if (client.is_open && !client.total && http_ws_backlog(client.ws) == 0)
				ignore_rc(http_ws_send(client.ws, false, "x", 1)); /* may fail */
			assert_int_equal(loop_step(f->loop, USEC_PER_MSEC, NULL, NULL), RC_OK);
		}
	}
	bool delivered = mem_fault_disarm();

	http_ws_free(client.ws);
	http_ws_free(server.ws);
	fixture_run_for(f, 2 * USEC_PER_MSEC);
	return delivered;
}

static void failed_allocation_costs_at_most_its_websocket(void **state)
{
	fixture_with_faults(*state, echo_with_fault, 10);
}

#define WITH(test_) cmocka_unit_test_setup_teardown(test_, fixture_setup, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH(messages_go_both_ways),
		WITH(server_may_close_with_a_code),
		WITH(vanished_peer_is_abnormal),
		WITH(refusal_gives_status_and_message),
		WITH(dead_server_is_reported),
		WITH(plain_request_is_not_upgraded),
		WITH(back_pressure_bounds_the_sender),
		WITH(too_big_message_closes_with_1009),
		WITH(endpoint_may_be_freed_in_its_callback),
		WITH(stopping_server_closes_with_1001),
		WITH(freed_server_ends_its_websockets),
		WITH(idle_peers_that_answer_stay),
		WITH(a_dead_peer_is_noticed),
		WITH(who_is_paused_waits_for_a_peer_that_hangs),
		WITH(failed_allocation_costs_at_most_its_websocket),
	};

	return cmocka_run_group_tests_name("http/ws", tests, NULL, NULL);
}
