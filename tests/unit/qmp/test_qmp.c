#include "qmp/qmp.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "ev/ev.h"
#include "json/json.h"
#include "lib/torture.h"

/* A scripted QEMU at the other end of a socket pair, driven by the same thread. */
#define GREETING                                                                           \
	"{\"QMP\": {\"version\": {\"qemu\": {\"micro\": 2, \"minor\": 0, \"major\": 10}, " \
	"\"package\": \"\"}, \"capabilities\": [\"oob\"]}}\r\n"

struct fake {
	struct loop *loop;
	struct qmp *q;
	int fd;
	int ready, closed, events;
	enum rc close_rc;
	char close_why[256];
	char event[64];
	usec_t event_at;
	char read[65536];
	int got_fd;
	bool free_on_event;
};

static void on_ready(const struct json *greeting, void *arg)
{
	struct fake *f = arg;

	assert_true(js_is_object(js_get(greeting, "QMP")));
	f->ready++;
}

static void on_event(const char *name, const struct json *data, usec_t at, void *arg)
{
	struct fake *f = arg;

	f->events++;
	f->event_at = at;
	snprintf(f->event, sizeof(f->event), "%s", name);
	if (f->free_on_event)
		f->q = qmp_free(f->q);
}

static void on_closed(enum rc rc, const char *why, void *arg)
{
	struct fake *f = arg;

	f->closed++;
	f->close_rc = rc;
	snprintf(f->close_why, sizeof(f->close_why), "%s", why);
}

static const struct qmp_ops ops = {on_ready, on_event, on_closed};

static enum rc fake_open(struct fake *f, usec_t handshake)
{
	int pair[2];
	enum rc rc = loop_new(&f->loop, LOOP_REAL, NULL);

	f->fd = f->got_fd = -1;
	if (rc)
		return rc;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	f->fd = pair[1];
	return qmp_new(&f->q, f->loop, pair[0], handshake, &ops, f, NULL);
}

static void fake_close(struct fake *f)
{
	f->q = qmp_free(f->q);
	f->fd = fd_close(f->fd);
	f->got_fd = fd_close(f->got_fd);
	f->loop = loop_free(f->loop);
}

static void say(struct fake *f, const char *text)
{
	ssize_t n = send(f->fd, text, strlen(text), MSG_NOSIGNAL);

	assert_true(n == (ssize_t)strlen(text) || f->closed);
}

/* Turns the loop until nothing happens. */
static void turn(struct fake *f)
{
	bool did = true;

	while (did)
		assert_int_equal(loop_step(f->loop, 0, &did, NULL), RC_OK);
}

/* Everything the client has written so far. */
static const char *hear(struct fake *f)
{
	char control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = {f->read, sizeof(f->read) - 1};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control,
			     .msg_controllen = sizeof(control)};

	turn(f);
	ssize_t n = recvmsg(f->fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	f->read[n > 0 ? n : 0] = '\0';
	for (struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&msg) : NULL; c; c = CMSG_NXTHDR(&msg, c))
		if (c->cmsg_type == SCM_RIGHTS)
			memcpy(&f->got_fd, CMSG_DATA(c), sizeof(int));
	return f->read;
}

static void handshake(struct fake *f)
{
	assert_int_equal(fake_open(f, USEC_PER_SEC), RC_OK);
	say(f, GREETING);
	assert_non_null(strstr(hear(f), "\"qmp_capabilities\""));
	say(f, "{\"return\": {}, \"id\": 1}\r\n");
	turn(f);
	assert_int_equal(f->ready, 1);
}

struct answer {
	int calls;
	enum rc rc;
	char desc[200];
	int64_t value;
	struct qmp_slot *slot;
	struct fake *free_client;
};

static void on_reply(const struct qmp_reply *r, void *arg)
{
	struct answer *a = arg;

	a->calls++;
	a->rc = r->rc;
	a->value = js_get_int(r->value, "n", -1);
	snprintf(a->desc, sizeof(a->desc), "%s", r->desc ? r->desc : "");
	a->slot = qmp_slot_free(a->slot);
	if (a->free_client)
		a->free_client->q = qmp_free(a->free_client->q);
}

static enum rc invoke(struct fake *f, struct answer *a, const char *command, bool oob,
		      usec_t timeout)
{
	struct qmp_call call = {
		.command = command, .oob = oob, .timeout = timeout, .fn = on_reply, .arg = a};

	return qmp_invoke(f->q, &a->slot, &call, NULL);
}

static void greeting_negotiates_oob(void **state)
{
	struct fake f = {0};
	int v[3];

	handshake(&f);
	assert_true(qmp_is_ready(f.q));
	assert_true(qmp_has_oob(f.q));
	qmp_version(f.q, v);
	assert_int_equal(v[0], 10);
	assert_int_equal(v[2], 2);
	fake_close(&f);
}

static void answers_may_come_in_any_order(void **state)
{
	struct fake f = {0};
	struct answer a = {0}, b = {0};

	handshake(&f);
	assert_int_equal(invoke(&f, &a, "query-a", false, USEC_PER_SEC), RC_OK);
	assert_int_equal(invoke(&f, &b, "query-b", false, USEC_PER_SEC), RC_OK);
	assert_int_equal(a.calls, 0);
	hear(&f);
	say(&f, "{\"return\": {\"n\": 3}, \"id\": 3}\r\n{\"return\": {\"n\": 2}, \"id\": 2}\r\n");
	turn(&f);
	assert_int_equal(a.calls, 1);
	assert_int_equal(a.value, 2);
	assert_int_equal(b.value, 3);
	fake_close(&f);
}

static void an_error_class_becomes_a_code(void **state)
{
	struct fake f = {0};
	struct answer a = {0};

	handshake(&f);
	assert_int_equal(invoke(&f, &a, "x", false, USEC_PER_SEC), RC_OK);
	say(&f, "{\"id\": 2, \"error\": {\"class\": \"CommandNotFound\", \"desc\": \"no x\"}}\r\n");
	turn(&f);
	assert_int_equal(a.rc, RC_UNSUPPORTED);
	assert_string_equal(a.desc, "no x");
	fake_close(&f);
}

static void events_carry_qemus_timestamp(void **state)
{
	struct fake f = {0};

	handshake(&f);
	say(&f, "{\"event\": \"STOP\", \"timestamp\": {\"seconds\": 5, \"microseconds\": 7}}\r\n");
	turn(&f);
	assert_int_equal(f.events, 1);
	assert_string_equal(f.event, "STOP");
	assert_int_equal(f.event_at, 5000007);
	fake_close(&f);
}

static void a_message_may_come_in_pieces(void **state)
{
	struct fake f = {0};

	handshake(&f);
	say(&f, "{\"event\": \"ST");
	turn(&f);
	assert_int_equal(f.events, 0);
	say(&f, "OP\"}\r\n\r\n");
	turn(&f);
	assert_int_equal(f.events, 1);
	assert_int_equal(f.event_at, 0);
	fake_close(&f);
}

static void end_of_stream_fails_all_pending_and_then_tells_the_owner(void **state)
{
	struct fake f = {0};
	struct answer a[6] = {{0}};

	handshake(&f);
	for (int i = 0; i < 6; i++) /* four are sent, two wait */
		assert_int_equal(invoke(&f, &a[i], "q", false, USEC_PER_SEC), RC_OK);
	f.fd = fd_close(f.fd);
	turn(&f);
	for (int i = 0; i < 6; i++) {
		assert_int_equal(a[i].calls, 1);
		assert_int_equal(a[i].rc, RC_CLOSED);
	}
	assert_int_equal(f.closed, 1);
	struct qmp_call call = {.command = "q", .timeout = 1};
	assert_int_equal(qmp_invoke(f.q, NULL, &call, NULL), RC_CLOSED);
	fake_close(&f);
	assert_int_equal(f.closed, 1);
}

static void garbage_ends_the_connection(void **state)
{
	static const char *const bad[] = {"hello\r\n", "[1]\r\n", "{\"a\": \r\n", "{} {}\r\n",
					  "\xff\xfe\r\n"};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct fake f = {0};

		handshake(&f);
		say(&f, bad[i]);
		turn(&f);
		assert_int_equal(f.closed, 1);
		assert_int_equal(f.close_rc, RC_BAD_REQUEST);
		fake_close(&f);
	}
}

static void what_is_no_greeting_ends_the_connection(void **state)
{
	struct fake f = {0};

	assert_int_equal(fake_open(&f, USEC_PER_SEC), RC_OK);
	say(&f, "{\"return\": {}}\r\n");
	turn(&f);
	assert_int_equal(f.closed, 1);
	assert_int_equal(f.ready, 0);
	fake_close(&f);
}

static void an_endless_message_is_cut(void **state)
{
	struct fake f = {0};
	char block[65536];

	handshake(&f);
	memset(block, ' ', sizeof(block));
	fcntl(f.fd, F_SETFL, O_NONBLOCK);
	for (int i = 0; i < 1000 && !f.closed; i++) {
		ignore_rc((enum rc)(send(f.fd, block, sizeof(block), MSG_NOSIGNAL) <
				    0)); /* full: turn first */
		turn(&f);
	}
	assert_int_equal(f.close_rc, RC_TOO_BIG);
	fake_close(&f);
}

static void no_greeting_is_a_timeout(void **state)
{
	struct fake f = {0};
	bool did;

	assert_int_equal(fake_open(&f, 5000), RC_OK);
	while (!f.closed)
		assert_int_equal(loop_step(f.loop, USEC_PER_SEC, &did, NULL), RC_OK);
	assert_int_equal(f.close_rc, RC_TIMEOUT);
	assert_non_null(strstr(f.close_why, "greeting"));
	fake_close(&f);
}

static void a_late_answer_is_thrown_away(void **state)
{
	struct fake f = {0};
	struct answer a = {0}, b = {0};
	bool did;

	handshake(&f);
	assert_int_equal(invoke(&f, &a, "slow", false, 2000), RC_OK);
	while (!a.calls)
		assert_int_equal(loop_step(f.loop, USEC_PER_SEC, &did, NULL), RC_OK);
	assert_int_equal(a.rc, RC_TIMEOUT);
	assert_non_null(strstr(a.desc, "'slow'"));
	assert_int_equal(invoke(&f, &b, "next", false, USEC_PER_SEC), RC_OK);
	say(&f, "{\"return\": {\"n\": 1}, \"id\": 2}\r\n{\"return\": {\"n\": 9}, \"id\": 3}\r\n");
	turn(&f);
	assert_int_equal(a.calls, 1);
	assert_int_equal(b.value, 9);
	fake_close(&f);
}

static void a_waiting_command_past_its_deadline_is_never_sent(void **state)
{
	struct fake f = {0};
	struct answer a[4] = {{0}}, late = {0};
	bool did;

	handshake(&f);
	for (int i = 0; i < 4; i++)
		assert_int_equal(invoke(&f, &a[i], "q", false, USEC_PER_SEC), RC_OK);
	assert_int_equal(invoke(&f, &late, "unsent", false, 2000), RC_OK);
	while (!late.calls)
		assert_int_equal(loop_step(f.loop, USEC_PER_SEC, &did, NULL), RC_OK);
	assert_int_equal(late.rc, RC_TIMEOUT);
	say(&f, "{\"return\": {}, \"id\": 2}\r\n");
	turn(&f);
	assert_null(strstr(hear(&f), "unsent"));
	fake_close(&f);
	for (int i = 0; i < 4; i++)
		qmp_slot_free(a[i].slot);
}

static void out_of_band_overtakes_a_full_queue(void **state)
{
	struct fake f = {0};
	struct answer a[6] = {{0}}, y = {0};

	handshake(&f);
	for (int i = 0; i < 6; i++)
		assert_int_equal(invoke(&f, &a[i], "q", false, USEC_PER_SEC), RC_OK);
	assert_int_equal(invoke(&f, &y, "yank", true, USEC_PER_SEC), RC_OK);
	const char *sent = hear(&f);

	assert_non_null(strstr(sent, "{\"exec-oob\":\"yank\",\"id\":8}"));
	assert_non_null(strstr(sent, "\"id\":5}"));
	assert_null(strstr(sent, "\"id\":6}"));
	say(&f, "{\"return\": {\"n\": 8}, \"id\": 8}\r\n{\"return\": {}, \"id\": 2}\r\n");
	turn(&f);
	assert_int_equal(y.value, 8);
	assert_non_null(strstr(hear(&f), "\"id\":6}"));
	fake_close(&f);
	for (int i = 0; i < 6; i++)
		qmp_slot_free(a[i].slot);
}

static void a_dropped_slot_means_no_callback(void **state)
{
	struct fake f = {0};
	struct answer a = {0};

	handshake(&f);
	assert_int_equal(invoke(&f, &a, "q", false, USEC_PER_SEC), RC_OK);
	a.slot = qmp_slot_free(a.slot);
	say(&f, "{\"return\": {}, \"id\": 2}\r\n");
	turn(&f);
	assert_int_equal(a.calls, 0);
	assert_int_equal(invoke(&f, &a, "q", false, USEC_PER_SEC), RC_OK);
	f.q = qmp_free(f.q);
	assert_int_equal(a.calls, 0);
	a.slot = qmp_slot_free(a.slot); /* outlives the client */
	fake_close(&f);
}

static void the_client_may_be_freed_in_its_callbacks(void **state)
{
	struct fake f = {.free_on_event = true}, g = {0};
	struct answer a = {.free_client = &g}, b = {0};

	handshake(&f);
	say(&f, "{\"event\": \"STOP\"}\r\n{\"event\": \"RESUME\"}\r\n");
	turn(&f);
	assert_int_equal(f.events, 1);
	fake_close(&f);

	handshake(&g);
	assert_int_equal(invoke(&g, &a, "q", false, USEC_PER_SEC), RC_OK);
	assert_int_equal(invoke(&g, &b, "q", false, USEC_PER_SEC), RC_OK);
	say(&g, "{\"return\": {}, \"id\": 2}\r\n{\"return\": {}, \"id\": 3}\r\n");
	turn(&g);
	assert_int_equal(a.calls, 1);
	assert_int_equal(b.calls, 0);
	qmp_slot_free(b.slot);
	fake_close(&g);
}

static void a_descriptor_travels_with_its_command_and_is_closed_here(void **state)
{
	struct fake f = {0};
	int pair[2];
	char c;

	handshake(&f);
	assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
	struct qmp_call call = {.command = "getfd",
				.timeout = USEC_PER_SEC,
				.fd = pair[1],
				.args = js_pack("{s:s}", "fdname", "x")};

	assert_int_equal(qmp_invoke(f.q, NULL, &call, NULL), RC_OK);
	assert_non_null(strstr(hear(&f), "getfd"));
	assert_true(f.got_fd >= 0);
	/* Closed by the sender: its number was free for the copy that we just received. */
	assert_int_equal(f.got_fd, pair[1]);
	assert_int_equal(write(f.got_fd, "x", 1), 1);
	assert_int_equal(read(pair[0], &c, 1), 1);
	close(pair[0]);
	fake_close(&f);
}

static void too_many_waiting_commands_are_refused(void **state)
{
	struct fake f = {0};
	struct qmp_call call = {.command = "q", .timeout = USEC_PER_SEC};
	enum rc rc = RC_OK;
	int n = 0;

	handshake(&f);
	for (; !rc && n < 10000; n++)
		rc = qmp_invoke(f.q, NULL, &call, NULL);
	assert_int_equal(rc, RC_BUSY);
	assert_int_equal(n - 1, QMP_MAX_IN_BAND + QMP_MAX_QUEUED);
	fake_close(&f);
}

static void schema_is_asked_by_name(void **state)
{
	static const char text[] =
		"[{\"name\":\"migrate-set\",\"meta-type\":\"command\",\"arg-type\":\"1\",\"ret-"
		"type\":\"0\"},"
		"{\"name\":\"1\",\"meta-type\":\"object\",\"members\":[{\"name\":\"caps\",\"type\":"
		"\"[2]\"}]},"
		"{\"name\":\"[2]\",\"meta-type\":\"array\",\"element-type\":\"2\"},"
		"{\"name\":\"2\",\"meta-type\":\"object\",\"members\":[{\"name\":\"capability\","
		"\"type\":\"3\"}]},"
		"{\"name\":\"3\",\"meta-type\":\"enum\",\"values\":[\"events\",\"xbzrle\"]},"
		"{\"name\":\"STOP\",\"meta-type\":\"event\",\"arg-type\":\"0\"}]";
	CLEANUP(js_unrefp) struct json *j = NULL;

	assert_int_equal(js_parse(text, strlen(text), &j, NULL), RC_OK);
	assert_true(qmp_schema_has(j, "migrate-set", NULL));
	assert_true(qmp_schema_has(j, "STOP", NULL));
	assert_false(qmp_schema_has(j, "1", NULL));
	assert_true(qmp_schema_has(j, "migrate-set", "caps.capability"));
	assert_false(qmp_schema_has(j, "migrate-set", "caps.other"));
	assert_true(qmp_schema_has_value(j, "migrate-set", "caps.capability", "events"));
	assert_false(qmp_schema_has_value(j, "migrate-set", "caps.capability", "none"));
	assert_false(qmp_schema_has(NULL, "x", "y"));
}

static enum rc exchange(void)
{
	struct fake f = {0};
	struct answer a = {0};
	enum rc rc = fake_open(&f, USEC_PER_SEC);

	if (!rc) {
		say(&f, GREETING);
		hear(&f);
		say(&f, "{\"return\": {}, \"id\": 1}\r\n");
		turn(&f);
		rc = f.closed ? f.close_rc : invoke(&f, &a, "q", false, USEC_PER_SEC);
	}
	if (!rc) {
		say(&f, "{\"return\": {\"n\": 1}, \"id\": 2}\r\n{\"event\": \"STOP\"}\r\n");
		turn(&f);
		rc = f.closed ? f.close_rc : RC_OK;
	}
	a.slot = qmp_slot_free(a.slot);
	fake_close(&f);
	return rc;
}

static void no_memory_leaks_when_allocations_fail(void **state)
{
	js_use_mem();
	torture(exchange);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(greeting_negotiates_oob),
		cmocka_unit_test(answers_may_come_in_any_order),
		cmocka_unit_test(an_error_class_becomes_a_code),
		cmocka_unit_test(events_carry_qemus_timestamp),
		cmocka_unit_test(a_message_may_come_in_pieces),
		cmocka_unit_test(end_of_stream_fails_all_pending_and_then_tells_the_owner),
		cmocka_unit_test(garbage_ends_the_connection),
		cmocka_unit_test(what_is_no_greeting_ends_the_connection),
		cmocka_unit_test(an_endless_message_is_cut),
		cmocka_unit_test(no_greeting_is_a_timeout),
		cmocka_unit_test(a_late_answer_is_thrown_away),
		cmocka_unit_test(a_waiting_command_past_its_deadline_is_never_sent),
		cmocka_unit_test(out_of_band_overtakes_a_full_queue),
		cmocka_unit_test(a_dropped_slot_means_no_callback),
		cmocka_unit_test(the_client_may_be_freed_in_its_callbacks),
		cmocka_unit_test(a_descriptor_travels_with_its_command_and_is_closed_here),
		cmocka_unit_test(too_many_waiting_commands_are_refused),
		cmocka_unit_test(schema_is_asked_by_name),
		cmocka_unit_test(no_memory_leaks_when_allocations_fail),
	};

	return cmocka_run_group_tests_name("qmp", tests, NULL, NULL);
}
