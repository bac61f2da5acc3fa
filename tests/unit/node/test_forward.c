/* Ports of a guest over the agent's websocket; the guest is a socket of this test's. */
#include "../http/fixture.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/str.h"
#include "http/ws.h"
#include "virt/node/agent_forward.h"

struct world {
	struct fixture *f;
	struct forwards *forwards;
	const char *address;
	int listen_fd, fd; /* the guest's */
	uint16_t port;
	struct http_ws *ws;
	bool is_open, is_closed, is_refused;
	int status;
	uint16_t code;
	char text[256];
	size_t total, messages;
};

static void serve(struct http_req *r, void *arg)
{
	struct world *w = arg;
	char path[128], *save = NULL;

	snprintf(path, sizeof(path), "%s", http_req_path(r));
	char *port = strtok_r(path, "/", &save), *protocol = strtok_r(NULL, "/", &save);

	forward_open(w->forwards, r, w->address, port, protocol);
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
	w->total += n;
	w->messages++;
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
		snprintf(w->text, sizeof(w->text), "%s", why->msg);
}

static const struct http_ws_ops client_ops = {
	.on_open = client_open, .on_message = client_message, .on_close = client_close};

static void setup(struct world *w, struct fixture *f, int type)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(a);

	*w = (struct world){.f = f, .address = "127.0.0.1", .fd = -1};
	f->handler = serve;
	f->arg = w;
	w->forwards = forwards_new(f->loop);
	assert_non_null(w->forwards);
	w->listen_fd = socket(AF_INET, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(w->listen_fd, (struct sockaddr *)&a, sizeof(a)), 0);
	if (type == SOCK_STREAM)
		assert_int_equal(listen(w->listen_fd, 4), 0);
	assert_int_equal(getsockname(w->listen_fd, (struct sockaddr *)&a, &len), 0);
	w->port = ntohs(a.sin_port);
}

static void teardown(struct world *w)
{
	http_ws_free(w->ws);
	fixture_run_for(w->f, 5 * USEC_PER_MSEC);
	forwards_free(w->forwards);
	close(w->listen_fd);
	if (w->fd >= 0)
		close(w->fd);
}

static void dial(struct world *w, const char *path)
{
	assert_int_equal(http_ws_connect(w->f->client, &w->ws, fixture_url(w->f, path),
					 "plain.kubevirt.io", 0, &client_ops, w, NULL),
			 RC_OK);
}

static void dial_port(struct world *w, const char *protocol)
{
	char path[64];

	snprintf(path, sizeof(path), "/%u/%s", w->port, protocol);
	dial(w, path);
	fixture_wait(w->f, &w->is_open);
	if (strcmp(protocol, "tcp") == 0)
		w->fd = accept4(w->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

static size_t read_guest(struct world *w, char *out, size_t n, size_t want)
{
	size_t got = 0;

	for (int i = 0; i < 5000 && got < want; i++) {
		ssize_t k = recv(w->fd, out + got, n - got, 0);

		if (k > 0)
			got += (size_t)k;
		fixture_run_for(w->f, USEC_PER_MSEC);
	}
	return got;
}

static void bytes_go_both_ways(void **state)
{
	struct world w;
	char got[64] = "";

	setup(&w, *state, SOCK_STREAM);
	dial_port(&w, "tcp");
	assert_true(w.fd >= 0);
	assert_int_equal(http_ws_send(w.ws, false, "hello", 5), RC_OK);
	assert_int_equal(http_ws_send(w.ws, true, "text is no part of it", 21), RC_OK);
	assert_int_equal(read_guest(&w, got, sizeof(got), 5), 5);
	assert_memory_equal(got, "hello", 5);
	assert_int_equal(send(w.fd, "answer", 6, 0), 6);
	for (int i = 0; i < 1000 && w.total < 6; i++)
		fixture_run_for(w.f, USEC_PER_MSEC);
	assert_string_equal(w.text, "answer");
	close(w.fd);
	w.fd = -1;
	fixture_wait(w.f, &w.is_closed);
	assert_int_equal(w.code, HTTP_WS_NORMAL);
	teardown(&w);
}

/* What a side that does not read is sent waits, and nothing of it is lost, the last words included. */
static void a_slow_side_loses_nothing(void **state)
{
	enum { TOTAL = 3 * 1024 * 1024, PIECE = 32 * 1024 };
	static char bytes[TOTAL];
	struct world w;
	size_t sent = 0, got = 0;

	setup(&w, *state, SOCK_STREAM);
	dial_port(&w, "tcp");
	for (int i = 0; i < 20000 && got < TOTAL; i++) {
		if (sent < TOTAL && http_ws_send(w.ws, false, bytes, PIECE) == RC_OK)
			sent += PIECE;
		if (sent == TOTAL && http_ws_is_open(w.ws) && !http_ws_backlog(w.ws))
			http_ws_close(w.ws, HTTP_WS_NORMAL, NULL);
		fixture_run_for(w.f, 100);
		ssize_t k = i < 200 ? 0 : recv(w.fd, bytes, sizeof(bytes), 0);

		if (k > 0)
			got += (size_t)k;
	}
	assert_int_equal(got, TOTAL);
	teardown(&w);
	/* The other way. */
	setup(&w, *state, SOCK_STREAM);
	dial_port(&w, "tcp");
	for (sent = 0; sent < TOTAL;) {
		ssize_t k = send(w.fd, bytes + sent, TOTAL - sent, MSG_NOSIGNAL);

		if (k > 0)
			sent += (size_t)k;
		fixture_run_for(w.f, 500);
	}
	for (int i = 0; i < 5000 && w.total < TOTAL; i++)
		fixture_run_for(w.f, USEC_PER_MSEC);
	assert_int_equal(w.total, TOTAL);
	teardown(&w);
}

static void a_datagram_is_a_message(void **state)
{
	struct world w;
	struct sockaddr_in from;
	socklen_t len = sizeof(from);
	char got[64];
	ssize_t n = -1;

	setup(&w, *state, SOCK_DGRAM);
	dial_port(&w, "udp");
	assert_int_equal(http_ws_send(w.ws, false, "one", 3), RC_OK);
	assert_int_equal(http_ws_send(w.ws, false, "three", 5), RC_OK);
	for (int i = 0; i < 1000 && n < 0; i++) {
		fixture_run_for(w.f, USEC_PER_MSEC);
		n = recvfrom(w.listen_fd, got, sizeof(got), 0, (struct sockaddr *)&from, &len);
	}
	assert_int_equal(n, 3);
	assert_int_equal(sendto(w.listen_fd, "a", 1, 0, (struct sockaddr *)&from, len), 1);
	assert_int_equal(sendto(w.listen_fd, "bc", 2, 0, (struct sockaddr *)&from, len), 2);
	for (int i = 0; i < 1000 && w.messages < 2; i++)
		fixture_run_for(w.f, USEC_PER_MSEC);
	assert_int_equal(w.messages, 2);
	assert_string_equal(w.text, "bc");
	teardown(&w);
}

/* What waits for a guest that may have gone: proc(5)'s table of connections has the seconds until it is asked. */
static void an_idle_guest_is_probed(void **state)
{
	struct world w;
	char line[256];
	unsigned long when = 0;
	unsigned local, remote, status, timer = 0;

	setup(&w, *state, SOCK_STREAM);
	dial_port(&w, "tcp");
	FILE *table = fopen("/proc/self/net/tcp", "re");

	assert_non_null(table);
	while (fgets(line, sizeof(line), table)) {
		int n = sscanf(line, " %*u: %*x:%x %*x:%x %x %*x:%*x %x:%lx", &local, &remote,
			       &status, &timer, &when);

		if (n == 5 && remote == w.port && status == 1)
			break;
		timer = 0;
	}
	assert_int_equal(fclose(table), 0);
	assert_int_equal(timer, 2); /* keep-alive */
	assert_true(when > 0 && when <= 15ul * (unsigned long)sysconf(_SC_CLK_TCK));
	teardown(&w);
}

/* Empty ones and the largest that there are; one byte more is no datagram. */
static void datagrams_have_any_size_up_to_the_largest(void **state)
{
	enum { LARGEST = 65507 };
	static char block[LARGEST + 1], got[LARGEST + 1];
	static const size_t sizes[] = {0, 1, 1500, 10240, LARGEST};
	struct world w;
	struct sockaddr_in from;

	setup(&w, *state, SOCK_DGRAM);
	dial_port(&w, "udp");
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		socklen_t len = sizeof(from);
		ssize_t n = -1;

		assert_int_equal(http_ws_send(w.ws, false, block, sizes[i]), RC_OK);
		for (int k = 0; k < 2000 && n < 0; k++) {
			fixture_run_for(w.f, USEC_PER_MSEC);
			n = recvfrom(w.listen_fd, got, sizeof(got), 0, (struct sockaddr *)&from,
				     &len);
		}
		assert_int_equal(n, sizes[i]);
		w.messages = w.total = 0;
		assert_int_equal(
			sendto(w.listen_fd, block, sizes[i], 0, (struct sockaddr *)&from, len),
			sizes[i]);
		for (int k = 0; k < 2000 && !w.messages; k++)
			fixture_run_for(w.f, USEC_PER_MSEC);
		assert_int_equal(w.messages, 1);
		assert_int_equal(w.total, sizes[i]);
	}
	assert_int_equal(http_ws_send(w.ws, false, block, LARGEST + 1), RC_OK);
	fixture_wait(w.f, &w.is_closed);
	assert_int_equal(w.code, HTTP_WS_TOO_BIG);
	teardown(&w);
}

static void what_cannot_be_dialled_is_an_answer(void **state)
{
	static const struct {
		const char *path, *address;
		int status;
		const char *text;
	} rows[] = {
		{"/0/tcp", "127.0.0.1", 400, "a port in 1..65535, then tcp or udp"},
		{"/65536/tcp", "127.0.0.1", 400, "a port in 1..65535, then tcp or udp"},
		{"/22/icmp", "127.0.0.1", 400, "a port in 1..65535, then tcp or udp"},
		{"/22x/tcp", "127.0.0.1", 400, "a port in 1..65535, then tcp or udp"},
		{"/22/tcp", NULL, 400, "no network interfaces are present"},
		{"/22/tcp", "localhost", 400, "no network interfaces are present"},
		{NULL, "127.0.0.1", 500, "connect"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct world w;
		char path[64];

		setup(&w, *state, SOCK_DGRAM); /* nobody listens at its TCP port */
		w.address = rows[i].address;
		snprintf(path, sizeof(path), "/%u/tcp", w.port);
		dial(&w, rows[i].path ? rows[i].path : path);
		fixture_wait(w.f, &w.is_closed);
		assert_false(w.is_open);
		assert_int_equal(w.status, rows[i].status);
		teardown(&w);
	}
}

static void a_client_that_leaves_before_the_answer_leaves_nothing(void **state)
{
	struct world w;

	setup(&w, *state, SOCK_STREAM);
	w.address = "192.0.2.1"; /* answers nobody */
	dial(&w, "/22/tcp");
	fixture_run_for(w.f, 20 * USEC_PER_MSEC);
	w.ws = http_ws_free(w.ws);
	fixture_run_for(w.f, 20 * USEC_PER_MSEC);
	teardown(&w);
}

#define WITH(t_) cmocka_unit_test_setup_teardown(t_, fixture_setup, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH(bytes_go_both_ways),
		WITH(a_slow_side_loses_nothing),
		WITH(an_idle_guest_is_probed),
		WITH(a_datagram_is_a_message),
		WITH(datagrams_have_any_size_up_to_the_largest),
		WITH(what_cannot_be_dialled_is_an_answer),
		WITH(a_client_that_leaves_before_the_answer_leaves_nothing),
	};

	return cmocka_run_group_tests_name("forward", tests, NULL, NULL);
}
