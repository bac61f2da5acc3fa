/* A websocket joined to a stream; the stream's other end is the test's. */
#include "raw.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/mem.h"
#include "http/join.h"
#include "http/ws.h"

enum { BLOCK = 16 * 1024, PLENTY = 64 * 1024 * 1024 };

/* One end of a join. */
struct side {
	struct http_join *join;
	int fd; /* the other end of its stream */
	bool is_open, has_ended, frees, answered;
	enum rc rc;
	char text[256];
};

struct world {
	struct fixture *f;
	struct side server;
	struct http_join_config config;
	int type, theirs; /* of the server's stream; borrowed */
	/* The client, an endpoint as such. */
	struct http_ws *ws;
	bool is_open, is_closed;
	uint16_t code;
	char reason[128];
	size_t total, messages;
	unsigned sum; /* of all that came */
};

static unsigned sum_of(unsigned sum, const uint8_t *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		sum = sum * 31 + bytes[i];
	return sum;
}

static void side_open(struct http_join *j, void *arg)
{
	(void)j;
	((struct side *)arg)->is_open = true;
}

static void side_end(struct http_join *j, enum rc rc, const char *text, void *arg)
{
	struct side *s = arg;

	assert_false(s->has_ended);
	s->has_ended = true;
	s->rc = rc;
	snprintf(s->text, sizeof(s->text), "%s", text);
	if (s->frees)
		s->join = http_join_free(j);
}

static const struct http_join_ops side_ops = {.on_open = side_open, .on_end = side_end};

static void serve(struct http_req *r, void *arg)
{
	struct world *w = arg;
	struct err err = {0};
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, w->type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
	w->server.fd = pair[0];
	w->theirs = pair[1];
	if (http_join_upgrade(r, &w->server.join, pair[1], &w->config, &err)) {
		w->server.answered = true;
		http_respond(r, 400, "text/plain", err.msg, strlen(err.msg), NULL, 0);
	}
}

static void on_open(struct http_ws *ws, const char *protocol, void *arg)
{
	(void)ws;
	assert_string_equal(protocol, "plain");
	((struct world *)arg)->is_open = true;
}

static void on_message(struct http_ws *ws, bool is_text, const uint8_t *bytes, size_t n, void *arg)
{
	struct world *w = arg;

	(void)ws;
	assert_false(is_text);
	w->sum = sum_of(w->sum, bytes, n);
	w->total += n;
	w->messages++;
}

static void on_close(struct http_ws *ws, uint16_t code, const char *reason, int status,
		     const struct err *why, void *arg)
{
	struct world *w = arg;

	(void)ws;
	(void)status;
	(void)why;
	w->is_closed = true;
	w->code = code;
	snprintf(w->reason, sizeof(w->reason), "%s", reason);
}

static const struct http_ws_ops ops = {
	.on_open = on_open, .on_message = on_message, .on_close = on_close};

static void setup(struct world *w, struct fixture *f)
{
	*w = (struct world){.f = f, .type = SOCK_STREAM, .server.fd = -1};
	w->config = (struct http_join_config){.ops = &side_ops,
					      .arg = &w->server,
					      .protocol = "plain",
					      .bye = "the stream has ended",
					      .last_words = USEC_PER_SEC};
	f->handler = serve;
	f->arg = w;
}

static void dial(struct world *w)
{
	assert_int_equal(http_ws_connect(w->f->client, &w->ws, fixture_url(w->f, "/"), "plain", 0,
					 &ops, w, NULL),
			 RC_OK);
}

static void start(struct world *w, struct fixture *f)
{
	setup(w, f);
	dial(w);
	fixture_wait(f, &w->is_open);
	assert_true(http_join_is_live(w->server.join));
}

static void teardown(struct world *w)
{
	http_ws_free(w->ws);
	http_join_free(w->server.join);
	if (w->server.fd >= 0)
		close(w->server.fd);
	fixture_run_for(w->f, 2 * USEC_PER_MSEC);
}

/* n bytes of a stream's end (out NULL: their sum alone), while the loop turns; fewer: it has ended, or five seconds are
 * over. */
static size_t take(struct world *w, int fd, void *out, size_t n, unsigned *sum)
{
	static uint8_t block[BLOCK];
	usec_t end = loop_now(w->f->loop) + 5 * USEC_PER_SEC;
	size_t got = 0;

	while (got < n && loop_now(w->f->loop) < end) {
		uint8_t *to = out ? (uint8_t *)out + got : block;
		ssize_t k = read(fd, to, out ? n - got : MIN(n - got, sizeof(block)));

		if (k == 0 || (k < 0 && errno != EAGAIN))
			break;
		if (k > 0 && sum)
			*sum = sum_of(*sum, to, (size_t)k);
		got += k > 0 ? (size_t)k : 0;
		assert_int_equal(loop_step(w->f->loop, k > 0 ? 0 : USEC_PER_MSEC, NULL, NULL),
				 RC_OK);
	}
	return got;
}

static bool has_ended(struct world *w, int fd)
{
	uint8_t byte;
	usec_t end = loop_now(w->f->loop) + 2 * USEC_PER_SEC;
	ssize_t k;

	while ((k = read(fd, &byte, 1)) < 0 && errno == EAGAIN && loop_now(w->f->loop) < end)
		assert_int_equal(loop_step(w->f->loop, USEC_PER_MSEC, NULL, NULL), RC_OK);
	return k == 0 || (k < 0 && errno != EAGAIN);
}

/* Writes until the join takes no more; returns how much, and its sum. */
static size_t fill_stream(struct world *w, unsigned *sum)
{
	static uint8_t block[BLOCK];
	size_t sent = 0;
	unsigned idle = 0;

	for (unsigned i = 0; idle < 50 && sent < PLENTY; i++) {
		memset(block, (int)(i * 7 + 1), sizeof(block));
		ssize_t k = write(w->server.fd, block, sizeof(block));

		idle = k > 0 ? 0 : idle + 1;
		if (k > 0)
			*sum = sum_of(*sum, block, (size_t)k);
		sent += k > 0 ? (size_t)k : 0;
		assert_int_equal(loop_step(w->f->loop, idle ? USEC_PER_MSEC : 0, NULL, NULL),
				 RC_OK);
	}
	return sent;
}

/* The same from the websocket's end. */
static size_t fill_websocket(struct world *w, unsigned *sum)
{
	static uint8_t block[BLOCK];
	size_t sent = 0;
	unsigned idle = 0;

	for (unsigned i = 0; idle < 50 && sent < PLENTY; i++) {
		memset(block, (int)(i * 7 + 1), sizeof(block));
		enum rc rc = http_ws_send(w->ws, false, block, sizeof(block));

		idle = rc ? idle + 1 : 0;
		if (!rc) {
			*sum = sum_of(*sum, block, sizeof(block));
			sent += sizeof(block);
		}
		assert_int_equal(loop_step(w->f->loop, idle ? USEC_PER_MSEC : 0, NULL, NULL),
				 RC_OK);
	}
	return sent;
}

static void bytes_go_both_ways_and_text_nowhere(void **state)
{
	uint8_t got[64];
	struct world w;

	start(&w, *state);
	assert_int_equal(http_ws_send(w.ws, true, "words", 5), RC_OK);
	assert_int_equal(http_ws_send(w.ws, false, "\0\xff\r\n", 4), RC_OK);
	assert_int_equal(take(&w, w.server.fd, got, 4, NULL), 4);
	assert_memory_equal(got, "\0\xff\r\n", 4);
	assert_int_equal(write(w.server.fd, "answer", 6), 6);
	for (int i = 0; i < 2000 && w.total < 6; i++)
		fixture_run_for(w.f, USEC_PER_MSEC);
	assert_int_equal(w.sum, sum_of(0, (const uint8_t *)"answer", 6));
	teardown(&w);
}

/* All that was said before is there, then the end with its reason. */
static void the_streams_end_comes_after_its_bytes(void **state)
{
	struct world w;
	unsigned sum = 0;
	size_t sent;

	start(&w, *state);
	w.server.frees = true;
	http_ws_pause(w.ws, true);
	sent = fill_stream(&w, &sum);
	assert_true(sent > HTTP_WS_BACKLOG / 2 && sent < PLENTY); /* it was made to wait */
	close(w.server.fd);
	w.server.fd = -1;
	fixture_run_for(w.f, 50 * USEC_PER_MSEC);
	assert_false(w.server.has_ended);
	http_ws_pause(w.ws, false);
	fixture_wait(w.f, &w.is_closed);
	assert_int_equal(w.total, sent);
	assert_int_equal(w.sum, sum);
	assert_int_equal(w.code, HTTP_WS_NORMAL);
	assert_string_equal(w.reason, "the stream has ended");
	fixture_wait(w.f, &w.server.has_ended);
	assert_int_equal(w.server.rc, RC_OK);
	assert_string_equal(w.server.text, "");
	teardown(&w);
}

static void a_slow_stream_makes_the_peer_wait(void **state)
{
	struct world w;

	start(&w, *state);
	w.server.frees = true;
	for (int i = 0; i < 2; i++) { /* again, after there was room */
		unsigned said = 0, heard = 0;
		size_t sent = fill_websocket(&w, &said);

		assert_true(sent > HTTP_JOIN_WAITING / 2 && sent < PLENTY);
		assert_int_equal(take(&w, w.server.fd, NULL, sent, &heard), sent);
		assert_int_equal(heard, said);
	}
	teardown(&w);
}

/* The client has gone: what it said is still told to whoever takes it in time, the close frame or not. */
static void last_words_are_told(void **state)
{
	static uint8_t block[BLOCK];

	for (int vanishes = 0; vanishes < 2; vanishes++) {
		struct world w;
		unsigned said = 0, heard = 0;
		size_t sent = 0;

		start(&w, *state);
		for (; sent < 4 * sizeof(block); sent += sizeof(block)) {
			memset(block, (int)(sent / sizeof(block)) + 1, sizeof(block));
			assert_int_equal(http_ws_send(w.ws, false, block, sizeof(block)), RC_OK);
			said = sum_of(said, block, sizeof(block));
		}
		while (http_ws_backlog(w.ws))
			fixture_run_for(w.f, USEC_PER_MSEC);
		if (vanishes)
			w.ws = http_ws_free(w.ws);
		else
			http_ws_close(w.ws, HTTP_WS_NORMAL, "enough");
		assert_int_equal(take(&w, w.server.fd, NULL, SIZE_MAX, &heard), sent);
		assert_int_equal(heard, said);
		fixture_wait(w.f, &w.server.has_ended);
		assert_int_equal(w.server.rc, vanishes ? RC_CLOSED : RC_OK);
		assert_string_equal(w.server.text, vanishes ? "the connection was lost" : "enough");
		teardown(&w);
	}
}

static void last_words_that_nobody_takes_have_an_end(void **state)
{
	static const uint8_t block[LIMIT_WS_BYTES];
	struct world w;
	int small = 4096;
	usec_t begin;

	setup(&w, *state);
	w.config.last_words = 100 * USEC_PER_MSEC;
	dial(&w);
	fixture_wait(w.f, &w.is_open);
	w.server.frees = true;
	assert_int_equal(setsockopt(w.theirs, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)), 0);
	assert_int_equal(http_ws_send(w.ws, false, block, sizeof(block)), RC_OK);
	while (http_ws_backlog(w.ws))
		fixture_run_for(w.f, USEC_PER_MSEC);
	fixture_run_for(w.f, 20 * USEC_PER_MSEC);
	begin = loop_now(w.f->loop);
	w.ws = http_ws_free(w.ws);
	fixture_wait(w.f, &w.server.has_ended);
	assert_true(loop_now(w.f->loop) - begin >= 100 * USEC_PER_MSEC);
	teardown(&w);
}

static void a_stream_that_breaks_ends_the_websocket(void **state)
{
	struct world w;
	unsigned sum = 0;

	start(&w, *state);
	w.server.frees = true;
	fill_websocket(&w, &sum); /* is waiting when it breaks */
	close(w.server.fd);
	w.server.fd = -1;
	fixture_wait(w.f, &w.is_closed);
	assert_int_equal(w.code, HTTP_WS_NORMAL);
	assert_string_equal(w.reason, "the stream has ended");
	fixture_wait(w.f, &w.server.has_ended);
	teardown(&w);
}

/* Who takes nothing may still say something. */
static void a_deaf_stream_is_heard_out(void **state)
{
	struct world w;

	start(&w, *state);
	assert_int_equal(shutdown(w.server.fd, SHUT_RD), 0);
	assert_int_equal(http_ws_send(w.ws, false, "one", 3), RC_OK);
	fixture_run_for(w.f, 20 * USEC_PER_MSEC);
	assert_int_equal(http_ws_send(w.ws, false, "two", 3), RC_OK);
	fixture_run_for(w.f, 20 * USEC_PER_MSEC);
	assert_false(w.is_closed);
	assert_int_equal(write(w.server.fd, "farewell", 8), 8);
	close(w.server.fd);
	w.server.fd = -1;
	fixture_wait(w.f, &w.is_closed);
	assert_int_equal(w.total, 8);
	teardown(&w);
}

static void an_owner_ends_it_with_a_code(void **state)
{
	struct world w;

	start(&w, *state);
	http_join_close(w.server.join, HTTP_WS_GOING_AWAY, "replaced");
	assert_false(http_join_is_live(w.server.join));
	assert_true(has_ended(&w, w.server.fd)); /* at once */
	fixture_wait(w.f, &w.is_closed);
	assert_int_equal(w.code, HTTP_WS_GOING_AWAY);
	assert_string_equal(w.reason, "replaced");
	fixture_wait(w.f, &w.server.has_ended);
	assert_int_equal(w.server.rc, RC_OK);
	teardown(&w);
}

static void no_handshake_is_the_owners_to_answer(void **state)
{
	struct world w;
	struct got g = {0};

	setup(&w, *state);
	fixture_get(w.f, w.f->client, "/", &g);
	assert_int_equal(g.status, 400);
	assert_true(w.server.answered);
	assert_true(has_ended(&w, w.server.fd));
	assert_false(w.server.has_ended);
	teardown(&w);
}

static void a_datagram_is_a_message(void **state)
{
	struct world w;
	uint8_t got[64];

	setup(&w, *state);
	w.type = SOCK_DGRAM;
	w.config.is_datagram = true;
	dial(&w);
	fixture_wait(w.f, &w.is_open);
	assert_int_equal(http_ws_send(w.ws, false, "one", 3), RC_OK);
	assert_int_equal(http_ws_send(w.ws, false, "three", 5), RC_OK);
	fixture_run_for(w.f, 20 * USEC_PER_MSEC);
	assert_int_equal(read(w.server.fd, got, sizeof(got)), 3);
	assert_int_equal(read(w.server.fd, got, sizeof(got)), 5);
	assert_int_equal(write(w.server.fd, "a", 1), 1);
	assert_int_equal(write(w.server.fd, "bc", 2), 2);
	for (int i = 0; i < 2000 && w.messages < 2; i++)
		fixture_run_for(w.f, USEC_PER_MSEC);
	assert_int_equal(w.messages, 2);
	assert_int_equal(w.total, 3);
	teardown(&w);
}

/* --- frames as no endpoint of ours sends them --- */

static void raw_start(struct world *w, struct fixture *f, struct raw *r)
{
	setup(w, f);
	raw_connect(r, f, http_server_port(f->server), NULL);
	assert_true(raw_handshake(r, f->user_crt, f->user_key, NULL));
	raw_sends(r, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
		     "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
		     "Sec-WebSocket-Protocol: plain\r\n\r\n");
	assert_true(raw_wait(r, "\r\n\r\n", 2 * USEC_PER_SEC));
	assert_non_null(strstr(r->seen, " 101 "));
}

/* A frame with a mask of zeros; first: FIN and opcode. */
static void raw_frame(struct raw *r, uint8_t first, const void *bytes, size_t n, size_t said)
{
	uint8_t head[14] = {first, 0x80 | (said < 126 ? said : said < 65536 ? 126 : 127)};
	size_t at = 2;

	if (said >= 126)
		for (size_t k = said < 65536 ? 2 : 8; k > 0; k--)
			head[at++] = (uint8_t)(said >> (8 * (k - 1)));
	raw_send(r, head, at + 4);
	raw_send(r, bytes, n);
}

/* The code of the close frame that came last. */
static unsigned raw_code(struct raw *r)
{
	const uint8_t *p = (const uint8_t *)strstr(r->seen, "\r\n\r\n") + 4,
		      *end = (const uint8_t *)r->seen + r->n;

	for (; p + 4 <= end; p += 2 + (p[1] & 127))
		if (p[0] == 0x88)
			return (unsigned)p[2] << 8 | p[3];
	return 0;
}

static void fragments_are_one_stream(void **state)
{
	struct world w;
	struct raw r;
	uint8_t got[16];

	raw_start(&w, *state, &r);
	raw_frame(&r, 0x02, "one ", 4, 4);
	raw_frame(&r, 0x89, "ping", 4, 4); /* may stand between */
	raw_frame(&r, 0x00, "", 0, 0);
	raw_frame(&r, 0x80, "two", 3, 3);
	assert_int_equal(take(&w, w.server.fd, got, 7, NULL), 7);
	assert_memory_equal(got, "one two", 7);
	assert_true(raw_wait(&r, "ping", 2 * USEC_PER_SEC)); /* answered */
	/* the beginning of one, and a close in its middle */
	raw_frame(&r, 0x02, "half", 4, 4);
	raw_frame(&r, 0x88, "\x03\xe8", 2, 2);
	fixture_wait(w.f, &w.server.has_ended);
	assert_int_equal(w.server.rc, RC_OK);
	assert_int_equal(read(w.server.fd, got, sizeof(got)), 0);
	raw_close(&r);
	teardown(&w);
}

static void a_connection_that_ends_inside_a_frame_is_lost(void **state)
{
	struct world w;
	struct raw r;
	uint8_t got[16];

	raw_start(&w, *state, &r);
	raw_frame(&r, 0x82, "whole", 5, 5);
	raw_frame(&r, 0x82, "half", 4, 1000);
	assert_int_equal(take(&w, w.server.fd, got, 5, NULL), 5);
	raw_close(&r);
	fixture_wait(w.f, &w.server.has_ended);
	assert_int_equal(w.server.rc, RC_CLOSED);
	assert_string_equal(w.server.text, "the connection was lost");
	assert_int_equal(read(w.server.fd, got, sizeof(got)), 0);
	teardown(&w);
}

static void frames_that_are_wrong_end_it_with_their_code(void **state)
{
	static const struct {
		uint8_t first;
		size_t said;
		unsigned code;
	} rows[] = {
		{0x82, LIMIT_WS_BYTES + 1, HTTP_WS_TOO_BIG},
		{0x82, (size_t)1 << 40, HTTP_WS_TOO_BIG},
		{0x83, 4, HTTP_WS_PROTOCOL}, /* no such opcode */
		{0xc2, 4, HTTP_WS_PROTOCOL}, /* a bit of an extension */
		{0x80, 4, HTTP_WS_PROTOCOL}, /* goes on with nothing */
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct world w;
		struct raw r;
		uint8_t byte;

		raw_start(&w, *state, &r);
		raw_frame(&r, rows[i].first, "junk", 4, rows[i].said);
		fixture_wait(w.f, &w.server.has_ended);
		assert_true(raw_wait(&r, NULL, 2 * USEC_PER_SEC));
		assert_int_equal(raw_code(&r), rows[i].code);
		assert_int_equal(read(w.server.fd, &byte, 1), 0);
		raw_close(&r);
		teardown(&w);
	}
}

/* --- as a client --- */

static void join(struct world *w, struct side *c, usec_t last_words)
{
	const struct http_join_config config = {
		.ops = &side_ops, .arg = c, .protocol = "plain", .last_words = last_words};

	assert_int_equal(
		http_join_connect(w->f->client, &c->join, fixture_url(w->f, "/"), 0, &config, NULL),
		RC_OK);
}

/* Standard input and output: bytes go both ways, and the end of the input ends it. */
static void a_pair_of_pipes_is_joined(void **state)
{
	struct world w;
	struct side c = {0};
	int in[2], out[2];
	uint8_t got[32];

	setup(&w, *state);
	join(&w, &c, USEC_INFINITY);
	fixture_wait(w.f, &c.is_open);
	assert_int_equal(write(w.server.fd, "early", 5), 5); /* before anybody listens */
	fixture_run_for(w.f, 20 * USEC_PER_MSEC);
	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	assert_int_equal(fcntl(out[0], F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(http_join_attach(c.join, in[0], out[1], NULL), RC_OK);
	assert_int_equal(take(&w, out[0], got, 5, NULL), 5);
	assert_memory_equal(got, "early", 5);
	assert_int_equal(write(in[1], "typed", 5), 5);
	assert_int_equal(take(&w, w.server.fd, got, 5, NULL), 5);
	assert_memory_equal(got, "typed", 5);
	close(in[1]);
	fixture_wait(w.f, &c.has_ended);
	assert_int_equal(c.rc, RC_OK);
	assert_true(has_ended(&w, w.server.fd));
	assert_true(has_ended(&w, out[0]));
	close(out[0]);
	http_join_free(c.join);
	teardown(&w);
}

/* The reader of a pipe that takes its time gets everything, though the server has closed long ago. */
static void a_slow_pipe_gets_all_of_it(void **state)
{
	struct world w;
	struct side c = {0};
	int in[2], out[2];
	unsigned said = 0, heard = 0;
	size_t sent;

	setup(&w, *state);
	join(&w, &c, USEC_INFINITY);
	fixture_wait(w.f, &c.is_open);
	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	assert_int_equal(fcntl(out[0], F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(http_join_attach(c.join, in[0], out[1], NULL), RC_OK);
	sent = fill_stream(&w, &said);
	assert_true(sent > HTTP_JOIN_WAITING && sent < PLENTY);
	close(w.server.fd);
	w.server.fd = -1;
	fixture_run_for(w.f, 50 * USEC_PER_MSEC);
	assert_false(c.has_ended);
	assert_int_equal(take(&w, out[0], NULL, sent, &heard), sent);
	assert_int_equal(heard, said);
	fixture_wait(w.f, &c.has_ended);
	assert_int_equal(c.rc, RC_OK);
	assert_string_equal(c.text, "the stream has ended");
	close(in[1]);
	close(out[0]);
	http_join_free(c.join);
	teardown(&w);
}

static void a_pipe_that_nobody_reads_any_more_ends_it(void **state)
{
	struct world w;
	struct side c = {0};
	int in[2], out[2];

	setup(&w, *state);
	join(&w, &c, USEC_INFINITY);
	fixture_wait(w.f, &c.is_open);
	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	assert_int_equal(http_join_attach(c.join, in[0], out[1], NULL), RC_OK);
	close(out[0]);
	assert_int_equal(write(w.server.fd, "x", 1), 1);
	fixture_wait(w.f, &c.has_ended);
	assert_int_equal(c.rc, RC_OK);
	assert_true(has_ended(&w, w.server.fd));
	close(in[1]);
	http_join_free(c.join);
	teardown(&w);
}

static void a_stream_that_cannot_be_watched_is_an_error(void **state)
{
	struct world w;
	struct side c = {.frees = true};
	struct err err = {0};
	int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), out[2];

	setup(&w, *state);
	join(&w, &c, USEC_INFINITY);
	fixture_wait(w.f, &c.is_open);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	assert_int_not_equal(http_join_attach(c.join, file, out[1], &err), RC_OK);
	assert_string_not_equal(err.msg, "");
	http_join_free(c.join);
	assert_true(has_ended(&w, w.server.fd));
	close(out[0]);
	teardown(&w);
}

static void refuse(struct http_req *r, void *arg)
{
	const char *text = "{\"message\":\"VMI is paused\",\"reason\":\"Conflict\"}";

	(void)arg;
	http_respond(r, 409, "application/json", text, strlen(text), NULL, 0);
}

static void a_refusal_is_told(void **state)
{
	struct world w;
	struct side c = {.frees = true};

	setup(&w, *state);
	w.f->handler = refuse;
	join(&w, &c, 0);
	fixture_wait(w.f, &c.has_ended);
	assert_false(c.is_open);
	assert_int_equal(c.rc, RC_CONFLICT);
	assert_string_equal(c.text, "VMI is paused");
	teardown(&w);
}

/* --- no memory --- */

/* Bytes both ways through both kinds of joins while one allocation fails: all is well, or both hear of an end. */
static bool talk_with_fault(struct fixture *f, unsigned nth)
{
	static uint8_t block[2 * BLOCK];
	struct world w;
	struct side c = {.frees = true, .fd = -1};
	const struct http_join_config config = {
		.ops = &side_ops, .arg = &c, .protocol = "plain", .last_words = 0};
	size_t heard = 0, answered = 0;
	int pair[2];

	setup(&w, f);
	w.server.frees = true;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair),
			 0);
	c.fd = pair[0];
	assert_int_equal(write(c.fd, block, sizeof(block)), sizeof(block));
	mem_fault_arm(nth);
	if (http_join_connect(f->client, &c.join, fixture_url(f, "/"), 0, &config, NULL)) {
		close(pair[1]);
	} else {
		usec_t end = loop_now(f->loop) + 5 * USEC_PER_SEC;
		bool attached = false;

		while (!c.has_ended && answered < sizeof(block) && loop_now(f->loop) < end) {
			if (c.is_open && !attached) {
				attached = true;
				if (http_join_attach(c.join, pair[1], pair[1], NULL))
					break;
			}
			ssize_t k = w.server.fd >= 0 ? read(w.server.fd, block, sizeof(block)) : -1;

			if (k > 0 && write(w.server.fd, block, (size_t)k) == k)
				heard += (size_t)k;
			k = read(c.fd, block, sizeof(block));
			answered += k > 0 ? (size_t)k : 0;
			assert_int_equal(loop_step(f->loop, USEC_PER_MSEC, NULL, NULL), RC_OK);
		}
		assert_true(loop_now(f->loop) < end);
		if (!attached)
			close(pair[1]);
	}
	bool delivered = mem_fault_disarm();

	/* a part that is missing would be followed by more */
	assert_true(answered <= heard && heard <= sizeof(block));
	http_join_free(c.join);
	close(c.fd);
	if (w.server.fd >= 0 && w.server.join)
		fixture_wait(f, &w.server.has_ended);
	teardown(&w);
	return delivered;
}

static void without_memory_it_ends_and_misses_nothing(void **state)
{
	fixture_with_faults(*state, talk_with_fault, 20);
}

#define WITH(test_) cmocka_unit_test_setup_teardown(test_, fixture_setup, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH(bytes_go_both_ways_and_text_nowhere),
		WITH(the_streams_end_comes_after_its_bytes),
		WITH(a_slow_stream_makes_the_peer_wait),
		WITH(last_words_are_told),
		WITH(last_words_that_nobody_takes_have_an_end),
		WITH(a_stream_that_breaks_ends_the_websocket),
		WITH(a_deaf_stream_is_heard_out),
		WITH(an_owner_ends_it_with_a_code),
		WITH(no_handshake_is_the_owners_to_answer),
		WITH(a_datagram_is_a_message),
		WITH(fragments_are_one_stream),
		WITH(a_connection_that_ends_inside_a_frame_is_lost),
		WITH(frames_that_are_wrong_end_it_with_their_code),
		WITH(a_pair_of_pipes_is_joined),
		WITH(a_slow_pipe_gets_all_of_it),
		WITH(a_pipe_that_nobody_reads_any_more_ends_it),
		WITH(a_stream_that_cannot_be_watched_is_an_error),
		WITH(a_refusal_is_told),
		WITH(without_memory_it_ends_and_misses_nothing),
	};

	return cmocka_run_group_tests_name("http/join", tests, NULL, NULL);
}
