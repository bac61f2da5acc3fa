/* UDP of `ferry port-forward`: local peers are this test's sockets, the server's end of each stream is an endpoint. */
#include "../http/fixture.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/str.h"
#include "cli/udpforward.h"
#include "http/ws.h"

enum { STREAMS = 64, LARGEST = 65507 };
#define NEVER (USEC_INFINITY / 2)

/* What the server has of one stream. */
struct stream {
	struct http_ws *ws;
	bool is_closed;
	unsigned messages;
	char last[32];
	size_t last_n;
};

struct world {
	struct fixture *f;
	struct udpforward *u;
	char url[128];
	struct sockaddr_in address;
	struct stream streams[STREAMS];
	unsigned n_streams, n_peers, n_errors, n_asked;
	bool refuses, has_error;
	char error[128];
};

static void on_message(struct http_ws *ws, bool is_text, const uint8_t *bytes, size_t n, void *arg)
{
	struct stream *s = arg;

	assert_false(is_text);
	s->messages++;
	s->last_n = n;
	snprintf(s->last, sizeof(s->last), "%.*s", (int)MIN(n, sizeof(s->last) - 1),
		 (const char *)bytes);
	ignore_rc(http_ws_send(ws, false, bytes,
			       n)); /* an echo; fails in the test of allocations only */
}

static void on_close(struct http_ws *ws, uint16_t code, const char *reason, int status,
		     const struct err *why, void *arg)
{
	struct stream *s = arg;

	(void)code;
	(void)reason;
	(void)status;
	(void)why;
	s->is_closed = true;
	s->ws = http_ws_free(ws);
}

static void serve(struct http_req *r, void *arg)
{
	static const struct http_ws_ops ops = {.on_message = on_message, .on_close = on_close};
	static const char *const known[] = {"plain.kubevirt.io", NULL};
	const char *text = "{\"message\":\"VMI is paused\",\"reason\":\"Conflict\"}";
	struct world *w = arg;

	w->n_asked++;
	assert_string_equal(http_req_path(r), "/portforward/53/udp");
	if (w->refuses) {
		http_respond(r, 409, "application/json", text, strlen(text), NULL, 0);
		return;
	}
	assert_true(w->n_streams < STREAMS);
	struct stream *s = &w->streams[w->n_streams];

	if (http_upgrade_ws(r, http_req_ws_protocol(r, known), &ops, s, &s->ws, NULL))
		http_respond(r, 500, "text/plain", "", 0, NULL, 0);
	else
		w->n_streams++;
}

static void on_peer(void *arg)
{
	((struct world *)arg)->n_peers++;
}

static void on_error(const char *text, void *arg)
{
	struct world *w = arg;

	w->n_errors++;
	w->has_error = true;
	snprintf(w->error, sizeof(w->error), "%s", text);
}

static int udp_socket(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	assert_true(s >= 0);
	assert_int_equal(bind(s, (struct sockaddr *)&a, sizeof(a)), 0);
	return s;
}

static enum rc start(struct world *w, struct fixture *f, unsigned peers_max, usec_t idle,
		     usec_t interval)
{
	socklen_t len = sizeof(w->address);
	struct udpforward_config config = {.client = f->client,
					   .peers_max = peers_max,
					   .idle = idle,
					   .interval = interval,
					   .on_peer = on_peer,
					   .on_error = on_error,
					   .arg = w};

	*w = (struct world){.f = f};
	f->handler = serve;
	f->arg = w;
	snprintf(w->url, sizeof(w->url), "%s", fixture_url(f, "/portforward/53/udp"));
	config.url = w->url;
	config.fd = udp_socket();
	assert_int_equal(getsockname(config.fd, (struct sockaddr *)&w->address, &len), 0);
	return udpforward_new(&w->u, &config, NULL);
}

static void teardown(struct world *w)
{
	w->u = udpforward_free(w->u);
	fixture_run_for(w->f, 5 * USEC_PER_MSEC);
	for (unsigned i = 0; i < w->n_streams; i++)
		http_ws_free(w->streams[i].ws);
}

static int local_peer(const struct world *w)
{
	int s = udp_socket();

	assert_int_equal(connect(s, (const struct sockaddr *)&w->address, sizeof(w->address)), 0);
	return s;
}

static void say(int peer, const char *text)
{
	assert_int_equal(send(peer, text, strlen(text), 0), strlen(text));
}

/* The next datagram that a peer gets, at most two seconds from now; -1: none. */
static ssize_t hear(struct world *w, int peer, char *out, size_t n)
{
	usec_t end = loop_now(w->f->loop) + 2 * USEC_PER_SEC;
	ssize_t got;

	while ((got = recv(peer, out, n, 0)) < 0 && loop_now(w->f->loop) < end)
		fixture_run_for(w->f, USEC_PER_MSEC);
	return got;
}

static void assert_hears(struct world *w, int peer, const char *text)
{
	char got[64] = "";

	assert_int_equal(hear(w, peer, got, sizeof(got)), strlen(text));
	assert_memory_equal(got, text, strlen(text));
}

/* Each has a stream of its own, and what came before that was open is not lost. */
static void peers_have_streams_of_their_own(void **state)
{
	struct world w;

	assert_int_equal(start(&w, *state, 8, NEVER, 0), RC_OK);
	int a = local_peer(&w), b = local_peer(&w);

	say(a, "a1");
	say(a, "a2");
	say(b, "b1");
	say(a, "");
	assert_hears(&w, a, "a1");
	assert_hears(&w, a, "a2");
	assert_hears(&w, a, "");
	assert_hears(&w, b, "b1");
	assert_int_equal(w.n_streams, 2);
	assert_int_equal(w.n_peers, 2);
	assert_int_equal(w.streams[0].messages, 3);
	assert_int_equal(w.streams[1].messages, 1);
	say(b, "again");
	assert_hears(&w, b, "again");
	assert_int_equal(w.n_streams, 2);
	assert_int_equal(w.n_errors, 0);
	close(a);
	close(b);
	teardown(&w);
}

static void a_datagram_is_a_message_of_any_size(void **state)
{
	static char block[LARGEST], got[LARGEST + 1];
	static const size_t sizes[] = {1, 1500, 1501, 10241, LARGEST};
	struct world w;

	assert_int_equal(start(&w, *state, 8, NEVER, 0), RC_OK);
	int a = local_peer(&w);

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		memset(block, (int)i + 1, sizes[i]);
		assert_int_equal(send(a, block, sizes[i], 0), sizes[i]);
		assert_int_equal(hear(&w, a, got, sizeof(got)), sizes[i]);
		assert_memory_equal(got, block, sizes[i]);
		assert_int_equal(w.streams[0].last_n, sizes[i]);
	}
	/* not so the server's */
	assert_int_equal(http_ws_send(w.streams[0].ws, true, "words", 5), RC_OK);
	assert_int_equal(http_ws_send(w.streams[0].ws, false, got, LARGEST + 1), RC_OK);
	fixture_wait(w.f, &w.has_error);
	assert_string_equal(w.error, "65508 bytes of the server's are no datagram");
	close(a);
	teardown(&w);
}

/* Until the echo of text is here: whoever is let go while a slow machine shakes hands says it again. */
static void talk(struct world *w, int peer, const char *text)
{
	usec_t end = loop_now(w->f->loop) + 20 * USEC_PER_SEC;
	char got[32];

	while (loop_now(w->f->loop) < end) {
		say(peer, text);
		for (int i = 0; i < 20; i++) {
			ssize_t n = recv(peer, got, sizeof(got), 0);

			if (n == (ssize_t)strlen(text) && memcmp(got, text, (size_t)n) == 0)
				return;
			fixture_run_for(w->f, 2 * USEC_PER_MSEC);
		}
	}
	fail_msg("no echo of '%s'", text);
}

static void a_silent_peer_is_let_go(void **state)
{
	struct world w;

	assert_int_equal(start(&w, *state, 8, 300 * USEC_PER_MSEC, 0), RC_OK);
	int a = local_peer(&w), b = local_peer(&w);

	talk(&w, a, "a");
	for (int i = 0; i < 5; i++) { /* the other one talks on */
		talk(&w, b, "b");
		fixture_run_for(w.f, 100 * USEC_PER_MSEC);
	}
	fixture_wait(w.f, &w.streams[0].is_closed);
	assert_int_equal(w.n_errors, 0);
	unsigned before = w.n_streams, said = w.streams[0].messages;

	talk(&w, a, "back");
	assert_true(w.n_streams > before);
	assert_int_equal(w.streams[0].messages, said);
	fixture_wait(w.f, &w.streams[1].is_closed);
	close(a);
	close(b);
	teardown(&w);
}

static void peers_are_bounded(void **state)
{
	for (int talks = 0; talks < 2; talks++) {
		struct world w;

		assert_int_equal(start(&w, *state, 2, NEVER, talks ? NEVER : 0), RC_OK);
		int a = local_peer(&w), b = local_peer(&w), c = local_peer(&w);

		say(a, "a");
		assert_hears(&w, a, "a");
		say(b, "b");
		assert_hears(&w, b, "b");
		say(a, "a");
		assert_hears(&w, a, "a");
		for (int i = 0; i < 5; i++)
			say(c, "c");
		if (talks) { /* nobody has been silent for long: told once */
			fixture_wait(w.f, &w.has_error);
			fixture_run_for(w.f, 20 * USEC_PER_MSEC);
			assert_string_equal(w.error, "2 peers are talking already");
			assert_int_equal(w.n_errors, 1);
			assert_int_equal(w.n_streams, 2);
		} else { /* the one that has been silent for longest goes */
			assert_hears(&w, c, "c");
			fixture_wait(w.f, &w.streams[1].is_closed);
			assert_false(w.streams[0].is_closed);
			assert_int_equal(w.n_streams, 3);
			assert_int_equal(w.n_errors, 0);
		}
		close(a);
		close(b);
		close(c);
		teardown(&w);
	}
}

/* A refusal is told, and not asked for again with each datagram. */
static void what_is_refused_is_asked_once_in_an_interval(void **state)
{
	for (int again = 0; again < 2; again++) {
		struct world w;

		assert_int_equal(start(&w, *state, 8, NEVER, again ? 0 : NEVER), RC_OK);
		int a = local_peer(&w);

		w.refuses = true;
		say(a, "x");
		fixture_wait(w.f, &w.has_error);
		assert_string_equal(w.error, "VMI is paused");
		w.refuses = false;
		say(a, "now");
		if (again) {
			assert_hears(&w, a, "now");
		} else {
			fixture_run_for(w.f, 50 * USEC_PER_MSEC);
			assert_int_equal(w.n_asked, 1);
			assert_int_equal(w.n_errors, 1);
		}
		close(a);
		teardown(&w);
	}
}

static void a_stream_that_ends_is_made_again(void **state)
{
	struct world w;

	assert_int_equal(start(&w, *state, 8, NEVER, 0), RC_OK);
	int a = local_peer(&w);

	say(a, "one");
	assert_hears(&w, a, "one");
	http_ws_close(w.streams[0].ws, HTTP_WS_NORMAL, "the guest has closed the connection");
	fixture_wait(w.f, &w.has_error);
	assert_string_equal(w.error, "the guest has closed the connection");
	say(a, "two");
	assert_hears(&w, a, "two");
	assert_int_equal(w.n_streams, 2);
	w.has_error = false;
	w.streams[1].ws = http_ws_free(w.streams[1].ws); /* without a word */
	fixture_wait(w.f, &w.has_error);
	assert_string_equal(w.error, "the connection was lost");
	close(a);
	teardown(&w);
}

/* One allocation fails: a datagram may be lost, and a later one arrives. */
static bool talk_with_fault(struct fixture *f, unsigned nth)
{
	struct world w;
	char got[8];
	ssize_t n = -1;

	mem_fault_arm(nth);
	if (start(&w, f, 2, NEVER, 0))
		return mem_fault_disarm();
	int a = local_peer(&w);
	usec_t end = loop_now(f->loop) + 20 * USEC_PER_SEC;

	while (n < 0 && loop_now(f->loop) < end) {
		say(a, "x");
		for (int i = 0; i < 20 && (n = recv(a, got, sizeof(got), 0)) < 0; i++)
			fixture_run_for(f, 2 * USEC_PER_MSEC);
	}
	bool delivered = mem_fault_disarm();

	assert_int_equal(n, 1);
	close(a);
	teardown(&w);
	return delivered;
}

static void without_memory_only_datagrams_are_lost(void **state)
{
	unsigned nth = 1;

	while (talk_with_fault(*state, nth))
		nth++;
	assert_true(nth > 10);
}

#define WITH(test_) cmocka_unit_test_setup_teardown(test_, fixture_setup, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH(peers_have_streams_of_their_own),
		WITH(a_datagram_is_a_message_of_any_size),
		WITH(a_silent_peer_is_let_go),
		WITH(peers_are_bounded),
		WITH(what_is_refused_is_asked_once_in_an_interval),
		WITH(a_stream_that_ends_is_made_again),
		WITH(without_memory_only_datagrams_are_lost),
	};

	return cmocka_run_group_tests_name("cli/udpforward", tests, NULL, NULL);
}
