/* Deadlines of what peers send and take, shares of connections and of memory. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "pki/pki.h"
#include "raw.h"

enum { MANY = 1000 };

static struct http_server *serve(struct fixture *f, struct http_server_config *c)
{
	struct http_server *s = NULL;
	struct err err = {0};

	c->address = "127.0.0.1";
	c->cert_file = f->crt;
	c->key_file = f->key;
	c->ca_file = f->ca;
	if (http_server_new(&s, f->loop, c, &err))
		fail_msg("%s", err.msg);
	return s;
}

static void hello(struct http_req *r, void *arg)
{
	(void)arg;
	http_respond(r, 200, "text/plain", "hello", 5, NULL, 0);
}

static bool is_admin(const struct http_peer *p)
{
	return p->has_cert && strcmp(p->cn, "admin") == 0;
}

static bool is_nobody(const struct http_peer *p)
{
	(void)p;
	return false;
}

static uint64_t refused(const struct http_server *s, enum http_refusal why)
{
	struct http_server_stats st;

	http_server_stats(s, &st);
	return st.refused[why];
}

static void make_admin(struct fixture *f, char crt[128], char key[128])
{
	CLEANUP(pki_pair_fini) struct pki_pair ca = {0}, p = {0};
	struct pki_request req = {
		.cn = "admin", .use = PKI_CLIENT, .validity = 3600 * USEC_PER_SEC};

	assert_int_equal(pki_load(&ca, f->dir, "ca", NULL), RC_OK);
	assert_int_equal(pki_issue(&p, &ca, &req, loop_realtime(f->loop), NULL), RC_OK);
	assert_int_equal(pki_save(&p, f->dir, "admin", NULL), RC_OK);
	snprintf(crt, 128, "%s/admin.crt", f->dir);
	snprintf(key, 128, "%s/admin.key", f->dir);
}

static struct raw *raws_new(size_t n)
{
	struct raw *w = mem_calloc(n, sizeof(*w));

	assert_non_null(w);
	for (size_t i = 0; i < n; i++)
		w[i].fd = -1;
	return w;
}

static void raws_free(struct raw *w, size_t n)
{
	for (size_t i = 0; i < n; i++)
		raw_close(&w[i]);
	mem_free(w);
}

/* ---- deadlines --------------------------------------------------------------------------------------- */

/* One byte each 50 ms for as long as the server takes them; how long that was. */
static usec_t drip(struct fixture *f, struct raw *w, usec_t max)
{
	usec_t start = loop_now(f->loop);

	while (!w->is_closed && loop_now(f->loop) < start + max) {
		raw_sends(w, "a");
		raw_wait(w, "HTTP/1.1", 50 * USEC_PER_MSEC);
	}
	return loop_now(f->loop) - start;
}

static void slow_senders_are_cut(void **state)
{
	struct fixture *f = *state;
	static const struct {
		const char *head;
		bool handshake;
		enum http_refusal why;
	} rows[] = {
		{"", false, HTTP_REFUSED_SLOW_HEAD},
		{"", true, HTTP_REFUSED_SLOW_HEAD},
		{"GET / HTTP/1.1\r\nX: ", true, HTTP_REFUSED_SLOW_HEAD},
		{"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n", true,
		 HTTP_REFUSED_SLOW_BODY},
		/* an extension of a chunk that never ends */
		{"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x=", true,
		 HTTP_REFUSED_SLOW_BODY},
	};
	struct http_server_config c = {.handler = hello,
				       .head_timeout = 400 * USEC_PER_MSEC,
				       .body_timeout = 700 * USEC_PER_MSEC};
	struct http_server *s = serve(f, &c);

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct raw w;
		uint64_t before = refused(s, rows[i].why);

		raw_connect(&w, f, http_server_port(s), NULL);
		if (rows[i].handshake)
			assert_true(raw_handshake(&w, NULL, NULL, NULL));
		raw_sends(&w, rows[i].head);
		usec_t took = rows[i].handshake
				      ? drip(f, &w, 10 * USEC_PER_SEC)
				      : (raw_wait(&w, NULL, 10 * USEC_PER_SEC), USEC_PER_SEC);

		assert_true(w.is_closed && w.n == 0);
		assert_true(took >= 200 * USEC_PER_MSEC);
		assert_int_equal(refused(s, rows[i].why), before + 1);
		raw_close(&w);
	}
	http_server_free(s);
}

/* After a first request, too: bytes do not renew the time of a connection that is kept. */
static void kept_connections_are_no_way_around(void **state)
{
	struct fixture *f = *state;
	struct http_server_config c = {.handler = hello, .head_timeout = 400 * USEC_PER_MSEC};
	struct http_server *s = serve(f, &c);
	struct raw w;

	raw_connect(&w, f, http_server_port(s), NULL);
	assert_true(raw_handshake(&w, NULL, NULL, NULL));
	raw_sends(&w, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
	assert_true(raw_wait(&w, "hello", 5 * USEC_PER_SEC));
	raw_sends(&w, "GET / HTTP/1.1\r\nX: ");
	w.n = 0;
	w.seen[0] = '\0';
	drip(f, &w, 10 * USEC_PER_SEC);
	assert_true(w.is_closed);
	assert_int_equal(refused(s, HTTP_REFUSED_SLOW_HEAD), 1);
	raw_close(&w);
	http_server_free(s);
}

static void a_body_that_comes_at_the_floors_rate_is_taken(void **state)
{
	struct fixture *f = *state;
	struct http_server_config c = {.handler = hello, .body_timeout = 300 * USEC_PER_MSEC};
	struct http_server *s = serve(f, &c);
	struct raw w;
	char block[2048];

	memset(block, 'x', sizeof(block));
	raw_connect(&w, f, http_server_port(s), NULL);
	assert_true(raw_handshake(&w, NULL, NULL, NULL));
	raw_sends(&w, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 24576\r\n\r\n");
	for (int i = 0; i < 12; i++) { /* 20 KiB a second: four times the time-out in all */
		raw_send(&w, block, sizeof(block));
		raw_wait(&w, "HTTP", 100 * USEC_PER_MSEC);
	}
	assert_true(raw_wait(&w, "hello", 5 * USEC_PER_SEC));
	raw_close(&w);
	http_server_free(s);
}

static void large(struct http_req *r, void *arg)
{
	char *text = mem_realloc(NULL, 20 << 20);

	(void)arg;
	assert_non_null(text);
	memset(text, 'x', 20 << 20);
	http_respond_take(r, 200, "text/plain", text, 20 << 20, NULL, 0);
}

static void a_reader_that_stands_still_is_cut(void **state)
{
	struct fixture *f = *state;
	struct http_server_config c = {.handler = large,
				       .body_timeout = 400 * USEC_PER_MSEC,
				       .head_timeout = 400 * USEC_PER_MSEC};
	struct http_server *s = serve(f, &c);
	struct http_server_stats st;
	struct raw w;

	raw_connect(&w, f, http_server_port(s), NULL);
	assert_true(raw_handshake(&w, f->user_crt, f->user_key, NULL));
	raw_sends(&w, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
	usec_t end = loop_now(f->loop) + 20 * USEC_PER_SEC;

	do {
		fixture_run_for(f, 20 * USEC_PER_MSEC);
		http_server_stats(s, &st);
	} while (st.connections && loop_now(f->loop) < end);
	assert_int_equal(st.connections, 0);
	assert_int_equal(st.answer_bytes, 0);
	assert_int_equal(refused(s, HTTP_REFUSED_SLOW_READER), 1);
	raw_close(&w);
	http_server_free(s);
}

/* ---- shares of connections --------------------------------------------------------------------------- */

static void a_thousand_that_only_hold_a_place_keep_nobody_out(void **state)
{
	struct fixture *f = *state;
	struct http_server_config c = {
		.handler = hello, .connections_max = 256, .is_trusted = is_admin};
	struct http_server *s = serve(f, &c);
	struct raw *w = raws_new(MANY), admin, user;
	char crt[128], key[128];
	struct http_server_stats st;

	make_admin(f, crt, key);
	for (size_t i = 0; i < MANY; i++) {
		raw_connect(&w[i], f, http_server_port(s), NULL);
		if (i % 16 == 15)
			fixture_run_for(f, USEC_PER_MSEC);
	}
	fixture_run_for(f, 50 * USEC_PER_MSEC);
	http_server_stats(s, &st);
	assert_true(st.connections <= 128 && st.strangers <= 128);
	/* from the same address, with and without a name */
	raw_connect(&admin, f, http_server_port(s), NULL);
	assert_true(raw_handshake(&admin, crt, key, NULL));
	raw_sends(&admin, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
	assert_true(raw_wait(&admin, "hello", 5 * USEC_PER_SEC));
	raw_connect(&user, f, http_server_port(s), NULL);
	assert_true(raw_handshake(&user, NULL, NULL, NULL));
	raw_sends(&user, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
	assert_true(raw_wait(&user, "hello", 5 * USEC_PER_SEC));
	http_server_stats(s, &st);
	assert_int_equal(st.trusted, 1);
	raw_close(&admin);
	raw_close(&user);
	raws_free(w, MANY);
	http_server_free(s);
}

static void keep_open(struct http_req *r, void *arg)
{
	(void)arg;
	http_stream_begin(r, 200, "text/plain", 4096, NULL, 0);
}

/* Watches of one user: as many as are his, then 429; others get in, and who is trusted always. */
static void one_user_takes_no_more_than_his_share(void **state)
{
	struct fixture *f = *state;
	struct http_server_config c = {
		.handler = keep_open, .connections_max = 64, .is_trusted = is_admin};
	struct http_server *s = serve(f, &c);
	struct raw *w = raws_new(21), admin, other;
	char crt[128], key[128];

	make_admin(f, crt, key);
	for (size_t i = 0; i < 21; i++) {
		raw_connect(&w[i], f, http_server_port(s), NULL);
		assert_true(raw_handshake(&w[i], f->user_crt, f->user_key, NULL));
		raw_sends(&w[i], "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
		assert_true(raw_wait(&w[i], i < 20 ? "HTTP/1.1 200" : "HTTP/1.1 429",
				     5 * USEC_PER_SEC));
	}
	assert_non_null(strstr(w[20].seen, "Retry-After: 5"));
	assert_non_null(strstr(w[20].seen, "\"reason\":\"TooManyRequests\""));
	assert_true(raw_wait(&w[20], NULL, 5 * USEC_PER_SEC)); /* and closed */
	assert_int_equal(refused(s, HTTP_REFUSED_USER), 1);
	raw_connect(&other, f, http_server_port(s), "127.0.0.9");
	assert_true(raw_handshake(&other, NULL, NULL, NULL));
	raw_sends(&other, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
	assert_true(raw_wait(&other, "HTTP/1.1 200", 5 * USEC_PER_SEC));
	raw_connect(&admin, f, http_server_port(s), NULL);
	assert_true(raw_handshake(&admin, crt, key, NULL));
	raw_sends(&admin, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
	assert_true(raw_wait(&admin, "HTTP/1.1 200", 5 * USEC_PER_SEC));
	raw_close(&admin);
	raw_close(&other);
	raws_free(w, 21);
	http_server_free(s);
}

/* Idle connections make room; busy ones do not. */
static void an_idle_connection_makes_room(void **state)
{
	struct fixture *f = *state;
	struct http_server_config c = {
		.handler = hello, .connections_max = 64, .is_trusted = is_nobody};
	struct http_server *s = serve(f, &c);
	struct raw *w = raws_new(60);
	struct http_server_stats st;

	for (size_t i = 0; i < 60; i++) {
		char from[16];

		snprintf(from, sizeof(from), "127.0.1.%zu", i / 10 + 1);
		raw_connect(&w[i], f, http_server_port(s), from);
		assert_true(raw_handshake(&w[i], NULL, NULL, NULL));
		raw_sends(&w[i], "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
		assert_true(raw_wait(&w[i], "hello", 5 * USEC_PER_SEC));
	}
	fixture_run_for(f, 20 * USEC_PER_MSEC);
	http_server_stats(s, &st);
	assert_int_equal(st.connections, 40);
	assert_int_equal(refused(s, HTTP_REFUSED_CONNECTIONS), 20);
	raws_free(w, 60);
	http_server_free(s);
}

/* ---- memory ------------------------------------------------------------------------------------------ */

static void bodies_and_answers_have_a_total(void **state)
{
	struct fixture *f = *state;
	struct http_server_config c = {.handler = large,
				       .is_trusted = is_nobody,
				       .bodies_max = 1 << 20,
				       .answers_max = 64 << 20};
	struct http_server *s = serve(f, &c);
	struct raw *w = raws_new(8);
	struct http_server_stats st;
	char block[16384];
	char url[64];
	struct got g = {0};
	struct http_slot *slot = NULL;

	/* Half of what is for all who are not trusted: 384 KiB of 1 MiB. */
	memset(block, 'x', sizeof(block));
	for (size_t i = 0; i < 8; i++) {
		raw_connect(&w[i], f, http_server_port(s), NULL);
		assert_true(raw_handshake(&w[i], f->user_crt, f->user_key, NULL));
		raw_sends(&w[i], "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 131072\r\n\r\n");
		for (int k = 0; k < 7; k++) /* all but the last block */
			raw_send(&w[i], block, sizeof(block));
		fixture_run_for(f, 5 * USEC_PER_MSEC);
		http_server_stats(s, &st);
		assert_true(st.body_bytes <= 384 << 10);
	}
	assert_true(refused(s, HTTP_REFUSED_BODIES) >= 1);
	raw_send(&w[7], block, sizeof(block));
	assert_true(raw_wait(&w[7], "HTTP/1.1 503", 5 * USEC_PER_SEC));
	assert_true(raw_wait(&w[7], "Retry-After: 5", 5 * USEC_PER_SEC));
	/* Answers that nobody reads: 24 MiB of 64 are one's own, so the second one is refused. */
	raw_send(&w[0], block, sizeof(block));
	fixture_run_for(f, 50 * USEC_PER_MSEC);
	http_server_stats(s, &st);
	assert_int_equal(st.answer_bytes, 20 << 20);
	raw_send(&w[1], block, sizeof(block));
	assert_true(raw_wait(&w[1], "HTTP/1.1 503", 5 * USEC_PER_SEC));
	assert_int_equal(refused(s, HTTP_REFUSED_ANSWERS), 1);
	raws_free(w, 8);
	fixture_run_for(f, 50 * USEC_PER_MSEC);
	http_server_stats(s, &st);
	assert_int_equal(st.body_bytes, 0);
	assert_int_equal(st.answer_bytes, 0);
	snprintf(url, sizeof(url), "https://127.0.0.1:%u/", http_server_port(s));
	struct http_call call = {.url = url, .done = got_done, .arg = &g};

	assert_int_equal(http_call(f->client, &slot, &call, NULL), RC_OK);
	fixture_wait(f, &g.done);
	assert_int_equal(g.status, 200);
	http_slot_free(slot);
	http_server_free(s);
}

static size_t resident_kib(void)
{
	CLEANUP(mem_freep) char *text = NULL;
	size_t n = 0;

	assert_int_equal(file_read("/proc/self/status", 65536, &text, &n, NULL), RC_OK);
	return strtoul(strstr(text, "VmRSS:") + 6, NULL, 10);
}

/* 200 connections with 1 MiB of a body each, then with a 20 MiB answer each that nobody reads: measured, the process
 * grows by what it may, not by the 200 MiB and 4 GiB. */
static void memory_is_bounded_under_abuse(void **state)
{
	enum { N = 200 };
	struct fixture *f = *state;
	struct http_server_config c = {.handler = large,
				       .is_trusted = is_nobody,
				       .body_max = 2 << 20,
				       .bodies_max = 8 << 20,
				       .answers_max = 64 << 20};
	struct http_server *s = serve(f, &c);
	struct raw *w = raws_new(N);
	struct http_server_stats st;
	char *block = mem_calloc(1, 64 << 10);
	size_t before, grown;

	assert_non_null(block);
	for (size_t i = 0; i < N; i++) {
		char from[20];

		snprintf(from, sizeof(from), "127.0.2.%zu", i / 4 + 1);
		raw_connect(&w[i], f, http_server_port(s), from);
		assert_true(raw_handshake(&w[i], NULL, NULL, NULL));
	}
	before = resident_kib();
	for (size_t i = 0; i < N; i++) {
		raw_sends(&w[i], "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1100000\r\n\r\n");
		for (int k = 0; k < 16; k++)
			raw_send(&w[i], block, 64 << 10);
	}
	usec_t end = loop_now(f->loop) + 20 * USEC_PER_SEC;

	do {
		fixture_run_for(f, 10 * USEC_PER_MSEC);
		http_server_stats(s, &st);
		assert_true(st.body_bytes <= 6 << 20);
	} while (st.refused[HTTP_REFUSED_BODIES] < N - 12 && loop_now(f->loop) < end);
	assert_true(st.refused[HTTP_REFUSED_BODIES] >= N - 12);
	for (size_t i = 0; i < N; i++)
		raw_send(&w[i], block, 1100000 - (1 << 20));
	fixture_run_for(f, 100 * USEC_PER_MSEC);
	/* Who was refused asks for an answer only. */
	for (size_t i = 0; i < N; i++)
		if (!w[i].is_closed && w[i].n == 0 && i % 2)
			raw_sends(&w[i], "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
	fixture_run_for(f, 200 * USEC_PER_MSEC);
	http_server_stats(s, &st);
	assert_true(st.answer_bytes <= 48 << 20);
	grown = resident_kib() - before;
#ifndef __SANITIZE_ADDRESS__ /* which keeps what was freed */
	if (grown > 160 << 10)
		fail_msg("%zu MiB more", grown >> 10);
#endif
	print_message("         200 connections: %zu MiB more at the end\n", grown >> 10);
	raws_free(w, N);
	mem_free(block);
	http_server_free(s);
}

struct begun {
	struct http_req *req;
	bool is_over;
};

static void on_gone(struct http_req *r, void *arg)
{
	struct begun *b = arg;

	(void)r;
	b->is_over = true;
}

static void begin(struct http_req *r, void *arg)
{
	struct begun *b = arg;
	char block[1024];

	memset(block, 'x', sizeof(block));
	b->req = r;
	http_req_on_cancel(r, on_gone, b);
	http_stream_begin(r, 200, "text/plain", 1 << 20, NULL, 0);
	for (int i = 0; i < 200; i++)
		assert_int_equal(http_stream_write(r, block, sizeof(block)), RC_OK);
	http_stream_settle(r, 10 << 10);
	for (int i = 0; i < 10; i++)
		assert_int_equal(http_stream_write(r, block, sizeof(block)), RC_OK);
	assert_int_equal(http_stream_write(r, block, sizeof(block)), RC_BUSY);
}

/* What a stream begins with does not count against what may wait later, nor makes room for it. */
static void a_stream_is_bounded_by_what_waits_really(void **state)
{
	struct fixture *f = *state;
	struct begun b = {0};
	struct http_server_config c = {.handler = begin, .arg = &b};
	struct http_server *s = serve(f, &c);
	struct http_server_stats st;
	struct raw w;
	char block[11 << 10];

	memset(block, 'y', sizeof(block));
	raw_connect(&w, f, http_server_port(s), NULL);
	assert_true(raw_handshake(&w, NULL, NULL, NULL));
	raw_sends(&w, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
	usec_t end = loop_now(f->loop) + 10 * USEC_PER_SEC;

	do {
		raw_wait(&w, NULL, 5 * USEC_PER_MSEC);
		http_server_stats(s, &st);
	} while ((!b.req || st.answer_bytes) && loop_now(f->loop) < end);
	assert_int_equal(st.answer_bytes, 0); /* all of it was read */
	assert_int_equal(http_stream_write(b.req, block, sizeof(block)), RC_BUSY);
	assert_int_equal(http_stream_write(b.req, block, 10 << 10), RC_OK);
	raw_close(&w);
	fixture_wait(f, &b.is_over);
	http_server_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(slow_senders_are_cut, fixture_setup,
						fixture_teardown),
		cmocka_unit_test_setup_teardown(kept_connections_are_no_way_around, fixture_setup,
						fixture_teardown),
		cmocka_unit_test_setup_teardown(a_body_that_comes_at_the_floors_rate_is_taken,
						fixture_setup, fixture_teardown),
		cmocka_unit_test_setup_teardown(a_reader_that_stands_still_is_cut, fixture_setup,
						fixture_teardown),
		cmocka_unit_test_setup_teardown(a_thousand_that_only_hold_a_place_keep_nobody_out,
						fixture_setup, fixture_teardown),
		cmocka_unit_test_setup_teardown(one_user_takes_no_more_than_his_share,
						fixture_setup, fixture_teardown),
		cmocka_unit_test_setup_teardown(an_idle_connection_makes_room, fixture_setup,
						fixture_teardown),
		cmocka_unit_test_setup_teardown(bodies_and_answers_have_a_total, fixture_setup,
						fixture_teardown),
		cmocka_unit_test_setup_teardown(memory_is_bounded_under_abuse, fixture_setup,
						fixture_teardown),
		cmocka_unit_test_setup_teardown(a_stream_is_bounded_by_what_waits_really,
						fixture_setup, fixture_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
