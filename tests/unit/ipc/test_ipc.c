#include "ipc/ipc.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/str.h"
#include "ev/ev.h"
#include "json/json.h"
#include "lib/torture.h"

struct pair {
	struct loop *loop;
	struct ipc_server *server;
	struct ipc_client *client;
	char dir[64], path[80];
	int ready, closed, events, requests, replies;
	enum rc close_rc, reply_rc;
	char message[256], event[32], name[64];
	unsigned version;
	int64_t value;
	int fd; /* last one received, by either side */
	struct ipc_call *kept;
	struct ipc_slot *slot;
	bool free_client_in_reply, free_server_in_request;
};

static void on_ready(unsigned version, const struct json *hello, void *arg)
{
	struct pair *p = arg;

	p->ready++;
	p->version = version;
	snprintf(p->name, sizeof(p->name), "%s", js_get_str(hello, "name"));
}

static void on_event(const char *name, const struct json *data, void *arg)
{
	struct pair *p = arg;

	p->events++;
	p->value = js_get_int(data, "n", -1);
	snprintf(p->event, sizeof(p->event), "%s", name);
}

static void on_closed(enum rc rc, const char *why, void *arg)
{
	struct pair *p = arg;

	p->closed++;
	p->close_rc = rc;
	snprintf(p->message, sizeof(p->message), "%s", why);
}

static const struct ipc_client_ops client_ops = {on_ready, on_event, on_closed};

/* echo: gives n back, and the descriptor; fail; keep: answers later; mute: never. */
static void on_request(struct ipc_call *call, const char *method, const struct json *params,
		       struct ipc_fds *fds, void *arg)
{
	struct pair *p = arg;
	int fd = ipc_fds_take(fds, 0);

	p->requests++;
	if (p->free_server_in_request)
		p->server = ipc_server_free(p->server);
	if (str_eq(method, "echo"))
		ipc_call_done(call, js_pack("{s:I}", "n", js_get_int(params, "n", -1)), &fd,
			      fd >= 0);
	else if (str_eq(method, "fail"))
		ipc_call_fail(call, RC_CONFLICT, "it is %s", "so");
	else
		p->kept = call;
}

static const struct ipc_server_ops server_ops = {.on_request = on_request};

static void on_reply(const struct ipc_reply *r, void *arg)
{
	struct pair *p = arg;

	p->replies++;
	p->reply_rc = r->rc;
	p->value = js_get_int(r->result, "n", -1);
	p->fd = ipc_fds_take(r->fds, 0);
	snprintf(p->message, sizeof(p->message), "%s", r->message ? r->message : "");
	p->slot = ipc_slot_free(p->slot);
	if (p->free_client_in_reply)
		p->client = ipc_client_free(p->client);
}

static enum rc server_start(struct pair *p, struct ipc_version speaks)
{
	struct ipc_server_config config = {
		.name = "test", .speaks = speaks, .max_clients = 2, .mode = 0600};

	p->fd = -1;
	snprintf(p->dir, sizeof(p->dir), "/tmp/test_ipc.XXXXXX");
	assert_non_null(mkdtemp(p->dir));
	snprintf(p->path, sizeof(p->path), "%s/s", p->dir);
	enum rc rc = loop_new(&p->loop, LOOP_REAL, NULL);

	if (!rc)
		rc = ipc_server_new(&p->server, p->loop, p->path, &config, &server_ops, p, NULL);
	return rc;
}

static enum rc client_start(struct pair *p, struct ipc_version speaks, usec_t handshake)
{
	return ipc_client_open(&p->client, p->loop, p->path, "me", speaks, handshake, &client_ops,
			       p, NULL);
}

static void pair_stop(struct pair *p)
{
	p->slot = ipc_slot_free(p->slot);
	p->client = ipc_client_free(p->client);
	p->server = ipc_server_free(p->server);
	if (p->kept)
		ipc_call_fail(p->kept, RC_CLOSED, "stopped");
	fd_close(p->fd);
	loop_free(p->loop);
	unlink(p->path);
	assert_int_equal(rmdir(p->dir), 0);
}

static void turn(struct pair *p)
{
	bool did = true;

	while (did)
		assert_int_equal(loop_step(p->loop, 0, &did, NULL), RC_OK);
}

static void wait_for(struct pair *p, const int *counter)
{
	bool did;

	while (!*counter)
		assert_int_equal(loop_step(p->loop, 5 * USEC_PER_SEC, &did, NULL), RC_OK);
}

static void connected(struct pair *p)
{
	assert_int_equal(server_start(p, (struct ipc_version){1, 2}), RC_OK);
	assert_int_equal(client_start(p, (struct ipc_version){1, 5}, USEC_PER_SEC), RC_OK);
	turn(p);
	assert_int_equal(p->ready, 1);
}

static enum rc call(struct pair *p, const char *method, int n, const int *fds, size_t n_fds,
		    usec_t timeout)
{
	struct json *params = js_pack("{s:i}", "n", n);

	if (!params)
		return RC_NOMEM;
	return ipc_call(p->client, &p->slot, method, params, fds, n_fds, timeout, on_reply, p,
			NULL);
}

static void the_highest_common_version_is_picked(void **state)
{
	struct pair p = {0};

	connected(&p);
	assert_int_equal(p.version, 2);
	assert_string_equal(p.name, "test");
	assert_int_equal(ipc_server_clients(p.server), 1);
	pair_stop(&p);
}

static void no_common_version_ends_the_connection(void **state)
{
	struct pair p = {0};

	assert_int_equal(server_start(&p, (struct ipc_version){1, 2}), RC_OK);
	assert_int_equal(client_start(&p, (struct ipc_version){3, 5}, USEC_PER_SEC), RC_OK);
	turn(&p);
	assert_int_equal(p.ready, 0);
	assert_int_equal(p.close_rc, RC_UNSUPPORTED);
	assert_non_null(strstr(p.message, "no common version"));
	pair_stop(&p);
}

static void calls_made_before_hello_is_answered_wait(void **state)
{
	struct pair p = {0};

	assert_int_equal(server_start(&p, (struct ipc_version){1, 1}), RC_OK);
	assert_int_equal(client_start(&p, (struct ipc_version){1, 1}, USEC_PER_SEC), RC_OK);
	assert_int_equal(call(&p, "echo", 4, NULL, 0, USEC_PER_SEC), RC_OK);
	turn(&p);
	assert_int_equal(p.replies, 1);
	assert_int_equal(p.value, 4);
	pair_stop(&p);
}

static void a_failure_carries_its_code_and_text(void **state)
{
	struct pair p = {0};

	connected(&p);
	assert_int_equal(call(&p, "fail", 0, NULL, 0, USEC_PER_SEC), RC_OK);
	turn(&p);
	assert_int_equal(p.reply_rc, RC_CONFLICT);
	assert_string_equal(p.message, "it is so");
	pair_stop(&p);
}

static void descriptors_go_both_ways_and_are_closed_by_the_sender(void **state)
{
	struct pair p = {0};
	int pipefd[2];
	char c = 0;

	connected(&p);
	assert_int_equal(pipe2(pipefd, O_CLOEXEC), 0);
	assert_int_equal(call(&p, "echo", 1, &pipefd[1], 1, USEC_PER_SEC), RC_OK);
	turn(&p);
	assert_true(p.fd >= 0);
	assert_int_equal(write(p.fd, "x", 1), 1);
	assert_int_equal(read(pipefd[0], &c, 1), 1);
	fd_close(p.fd);
	p.fd = -1;
	assert_int_equal(read(pipefd[0], &c, 1), 0); /* no copy is left anywhere */
	close(pipefd[0]);
	pair_stop(&p);
}

static void descriptors_that_nobody_takes_are_closed(void **state)
{
	struct pair p = {0};
	int pipefd[2], both[2];
	char c = 0;

	connected(&p);
	assert_int_equal(pipe2(pipefd, O_CLOEXEC), 0);
	both[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	both[1] = pipefd[1];
	assert_int_equal(call(&p, "echo", 1, both, 2, USEC_PER_SEC),
			 RC_OK); /* gives the first one back */
	turn(&p);
	assert_int_equal(p.replies, 1);
	assert_int_equal(read(pipefd[0], &c, 1), 0);
	close(pipefd[0]);
	pair_stop(&p);
}

static void events_reach_clients_that_said_hello(void **state)
{
	struct pair p = {0};

	connected(&p);
	ipc_server_event(p.server, "state", js_pack("{s:i}", "n", 8));
	turn(&p);
	assert_int_equal(p.events, 1);
	assert_string_equal(p.event, "state");
	assert_int_equal(p.value, 8);
	pair_stop(&p);
}

static void an_answer_after_the_deadline_is_nobodys(void **state)
{
	struct pair p = {0};

	connected(&p);
	assert_int_equal(call(&p, "keep", 0, NULL, 0, 3000), RC_OK);
	wait_for(&p, &p.replies);
	assert_int_equal(p.reply_rc, RC_TIMEOUT);
	ipc_call_done(p.kept, js_new_object(), NULL, 0);
	p.kept = NULL;
	turn(&p);
	assert_int_equal(p.replies, 1);
	assert_int_equal(p.closed, 0);
	pair_stop(&p);
}

static void a_dropped_slot_means_no_callback(void **state)
{
	struct pair p = {0};

	connected(&p);
	assert_int_equal(call(&p, "echo", 0, NULL, 0, USEC_PER_SEC), RC_OK);
	p.slot = ipc_slot_free(p.slot);
	turn(&p);
	assert_int_equal(p.requests, 1);
	assert_int_equal(p.replies, 0);
	pair_stop(&p);
}

static void the_servers_end_fails_what_is_pending(void **state)
{
	struct pair p = {0};

	connected(&p);
	assert_int_equal(call(&p, "keep", 0, NULL, 0, USEC_PER_SEC), RC_OK);
	turn(&p);
	p.server = ipc_server_free(p.server);
	turn(&p);
	assert_int_equal(p.replies, 1);
	assert_int_equal(p.reply_rc, RC_CLOSED);
	assert_int_equal(p.closed, 1);
	pair_stop(&p);
}

static void answering_a_client_that_has_gone_is_fine(void **state)
{
	struct pair p = {0};

	connected(&p);
	assert_int_equal(call(&p, "keep", 0, NULL, 0, USEC_PER_SEC), RC_OK);
	turn(&p);
	p.slot = ipc_slot_free(p.slot);
	p.client = ipc_client_free(p.client);
	turn(&p);
	assert_int_equal(ipc_server_clients(p.server), 0);
	ipc_call_done(p.kept, js_new_object(), NULL, 0);
	p.kept = NULL;
	pair_stop(&p);
}

static void either_side_may_be_freed_in_its_callback(void **state)
{
	struct pair p = {.free_client_in_reply = true}, q = {.free_server_in_request = true};

	connected(&p);
	assert_int_equal(call(&p, "echo", 0, NULL, 0, USEC_PER_SEC), RC_OK);
	turn(&p);
	assert_int_equal(p.replies, 1);
	pair_stop(&p);

	connected(&q);
	assert_int_equal(call(&q, "echo", 0, NULL, 0, USEC_PER_SEC), RC_OK);
	turn(&q);
	assert_int_equal(q.reply_rc, RC_CLOSED);
	pair_stop(&q);
}

static void a_live_socket_is_not_replaced_and_a_stale_one_is(void **state)
{
	struct pair p = {0};
	struct ipc_server *second = NULL;
	struct ipc_server_config config = {
		.name = "b", .speaks = {1, 1}, .max_clients = 1, .mode = 0600};

	assert_int_equal(server_start(&p, (struct ipc_version){1, 1}), RC_OK);
	assert_int_equal(ipc_server_new(&second, p.loop, p.path, &config, &server_ops, &p, NULL),
			 RC_EXISTS);
	p.server = ipc_server_free(p.server);
	/* a file left by a dead process */
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	memcpy(a.sun_path, p.path, strlen(p.path));
	assert_int_equal(bind(s, (struct sockaddr *)&a, sizeof(a)), 0);
	close(s);
	assert_int_equal(ipc_server_new(&p.server, p.loop, p.path, &config, &server_ops, &p, NULL),
			 RC_OK);
	struct stat st;

	assert_int_equal(stat(p.path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	pair_stop(&p);
}

static int raw_connect(struct pair *p)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	memcpy(a.sun_path, p->path, strlen(p->path));
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	return fd;
}

static void raw_frame(int fd, const char *text)
{
	uint32_t be = htonl((uint32_t)strlen(text));

	assert_int_equal(send(fd, &be, 4, MSG_NOSIGNAL), 4);
	assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

static void peers_that_break_the_rules_are_disconnected(void **state)
{
	static const char *const bad[] = {
		"{\"id\": 1, \"method\": \"echo\"}", /* before hello */
		"{\"id\": 1}",
		"[]",
		"{",
		"",
		"{\"id\": 1, \"method\": \"hello\", \"fds\": 3}", /* descriptors that did not come */
		"{\"id\": -1, \"method\": \"hello\"}",
		"{\"id\": 1, \"method\": \"hello\", \"params\": 3}",
	};
	struct pair p = {0};
	char c;

	assert_int_equal(server_start(&p, (struct ipc_version){1, 1}), RC_OK);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		int fd = raw_connect(&p);

		raw_frame(fd, bad[i]);
		turn(&p);
		assert_int_equal(recv(fd, &c, 1, MSG_DONTWAIT), 0);
		close(fd);
		turn(&p);
	}
	int fd = raw_connect(&p);

	assert_int_equal(send(fd, "\xff\xff\xff\xff", 4, MSG_NOSIGNAL), 4);
	turn(&p);
	assert_int_equal(recv(fd, &c, 1, MSG_DONTWAIT), 0);
	close(fd);
	turn(&p);
	assert_int_equal(p.requests, 0);
	pair_stop(&p);
}

static void more_clients_than_allowed_are_refused(void **state)
{
	struct pair p = {0};
	int fd[3];
	char c;

	assert_int_equal(server_start(&p, (struct ipc_version){1, 1}), RC_OK);
	for (int i = 0; i < 3; i++)
		fd[i] = raw_connect(&p);
	turn(&p);
	assert_int_equal(recv(fd[2], &c, 1, MSG_DONTWAIT), 0);
	for (int i = 0; i < 3; i++)
		close(fd[i]);
	turn(&p);
	pair_stop(&p);
}

static void a_client_that_never_reads_is_dropped(void **state)
{
	struct pair p = {0};
	int fd;
	char *big = calloc(1, 500001);

	assert_int_equal(server_start(&p, (struct ipc_version){1, 1}), RC_OK);
	fd = raw_connect(&p);
	raw_frame(
		fd,
		"{\"id\":0,\"method\":\"hello\",\"params\":{\"versions\":{\"min\":1,\"max\":1}}}");
	turn(&p);
	assert_int_equal(ipc_server_clients(p.server), 1);
	memset(big, 'x', 500000);
	for (int i = 0; i < 20; i++)
		ipc_server_event(p.server, "e", js_pack("{s:s}", "t", big));
	turn(&p);
	assert_int_equal(ipc_server_clients(p.server), 0);
	free(big);
	close(fd);
	pair_stop(&p);
}

static enum rc round_trip(void)
{
	struct pair p = {0};
	enum rc rc = server_start(&p, (struct ipc_version){1, 1});

	if (!rc)
		rc = client_start(&p, (struct ipc_version){1, 1}, USEC_PER_SEC);
	if (!rc)
		rc = call(&p, "echo", 4, NULL, 0, USEC_PER_SEC);
	if (!rc) {
		turn(&p);
		rc = p.replies == 1 && p.reply_rc == RC_OK ? RC_OK : RC_NOMEM;
	}
	pair_stop(&p);
	return rc;
}

static void no_memory_leaks_when_allocations_fail(void **state)
{
	js_use_mem();
	torture(round_trip);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_highest_common_version_is_picked),
		cmocka_unit_test(no_common_version_ends_the_connection),
		cmocka_unit_test(calls_made_before_hello_is_answered_wait),
		cmocka_unit_test(a_failure_carries_its_code_and_text),
		cmocka_unit_test(descriptors_go_both_ways_and_are_closed_by_the_sender),
		cmocka_unit_test(descriptors_that_nobody_takes_are_closed),
		cmocka_unit_test(events_reach_clients_that_said_hello),
		cmocka_unit_test(an_answer_after_the_deadline_is_nobodys),
		cmocka_unit_test(a_dropped_slot_means_no_callback),
		cmocka_unit_test(the_servers_end_fails_what_is_pending),
		cmocka_unit_test(answering_a_client_that_has_gone_is_fine),
		cmocka_unit_test(either_side_may_be_freed_in_its_callback),
		cmocka_unit_test(a_live_socket_is_not_replaced_and_a_stale_one_is),
		cmocka_unit_test(peers_that_break_the_rules_are_disconnected),
		cmocka_unit_test(more_clients_than_allowed_are_refused),
		cmocka_unit_test(a_client_that_never_reads_is_dropped),
		cmocka_unit_test(no_memory_leaks_when_allocations_fail),
	};

	return cmocka_run_group_tests_name("ipc", tests, NULL, NULL);
}
