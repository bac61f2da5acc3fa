#include "fixture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "pki/pki.h"

/* Whole answers */

static void echo(struct http_req *r, void *arg)
{
	const struct http_peer *p = http_req_peer(r);
	struct http_header extra[] = {{"Warning", "299 - \"one\""}, {"Warning", "299 - \"two\""}};
	char text[1024];
	size_t n;
	const char *body = http_req_body(r, &n);
	int len = snprintf(text, sizeof(text), "%s %s v=%s cn=%s o=%zu:%s body=%zu:%.10s",
			   http_req_method(r), http_req_path(r), http_req_param(r, "v"),
			   p->cn ? p->cn : "-", p->n_orgs, p->n_orgs ? p->orgs[p->n_orgs - 1] : "",
			   n, body);

	(void)arg;
	http_respond(r, 200, "text/plain", text, (size_t)len, extra, 2);
}

static void request_arrives_whole_and_answer_too(void **state)
{
	struct fixture *f = *state;
	struct got g = {0};
	struct http_call call = {.method = "POST",
				 .url = fixture_url(f, "/a%20b?v=1"),
				 .body = "hello",
				 .n_body = 5,
				 .content_type = "text/plain",
				 .done = got_done,
				 .arg = &g};
	struct http_slot *slot = NULL;

	f->handler = echo;
	assert_int_equal(http_call(f->client, &slot, &call, NULL), RC_OK);
	fixture_wait(f, &g.done);
	assert_int_equal(g.status, 200);
	assert_string_equal(g.body, "POST /a b v=1 cn=alice o=2:team-b body=5:hello");
	assert_string_equal(g.warning, "299 - \"one\"\n299 - \"two\"");
	http_slot_free(slot);
}

static void connection_is_kept_alive(void **state)
{
	struct fixture *f = *state;
	struct http_server_stats stats;
	struct got g;

	f->handler = echo;
	for (int i = 0; i < 20; i++) {
		fixture_get(f, f->client, "/x", &g);
		assert_int_equal(g.status, 200);
	}
	http_server_stats(f->server, &stats);
	assert_int_equal(stats.requests, 20);
	assert_int_equal(stats.connections, 1);
	assert_int_equal(stats.open_requests, 0);
}

static void client_without_certificate_is_anonymous(void **state)
{
	struct fixture *f = *state;
	struct http_client *c = fixture_client(f, NULL, NULL);
	struct got g;

	f->handler = echo;
	fixture_get(f, c, "/x", &g);
	assert_int_equal(g.status, 200);
	assert_non_null(strstr(g.body, "cn=- o=0:"));
	http_client_free(c);
}

static void certificate_of_another_ca_is_refused(void **state)
{
	struct fixture *f = *state;
	struct http_client *c = fixture_client(f, f->stranger_crt, f->stranger_key);
	struct got g;

	f->handler = echo;
	fixture_get(f, c, "/x", &g);
	assert_int_equal(g.status, 401);
	assert_non_null(strstr(g.body, "\"reason\":\"Unauthorized\""));
	http_client_free(c);
}

static void server_of_another_ca_is_refused(void **state)
{
	struct fixture *f = *state;
	struct http_client_config config = {.ca_file = f->stranger_crt};
	struct http_client *c = NULL;
	struct got g;

	f->handler = echo;
	assert_int_equal(http_client_new(&c, f->loop, &config, NULL), RC_OK);
	fixture_get(f, c, "/x", &g);
	assert_int_equal(g.rc, RC_UNAUTHORIZED);
	assert_int_equal(g.status, 0);
	http_client_free(c);
}

static void server_must_have_the_name_that_was_dialled(void **state)
{
	struct fixture *f = *state;
	struct http_server_config config = {.address = "127.0.0.2",
					    .cert_file = f->crt, /* for 127.0.0.1 and localhost */
					    .key_file = f->key,
					    .handler = echo};
	struct http_server *s = NULL;
	struct got g = {0};
	char url[128];
	struct http_call call = {.url = url, .done = got_done, .arg = &g};
	struct http_slot *slot = NULL;

	assert_int_equal(http_server_new(&s, f->loop, &config, NULL), RC_OK);
	snprintf(url, sizeof(url), "https://127.0.0.2:%u/", http_server_port(s));
	assert_int_equal(http_call(f->client, &slot, &call, NULL), RC_OK);
	fixture_wait(f, &g.done);
	assert_int_equal(g.rc, RC_UNAUTHORIZED);
	assert_int_equal(g.status, 0);
	http_slot_free(slot);
	http_server_free(s);
}

/* Late answers */

struct late {
	struct http_req *req;
	bool came;
	bool cancelled;
	bool is_stream;
	struct ev_src *timer;
};

static void on_cancel(struct http_req *r, void *arg)
{
	struct late *l = arg;

	assert_ptr_equal(l->req, r);
	l->cancelled = true;
	l->req = NULL;
}

static void keep(struct http_req *r, void *arg)
{
	struct late *l = arg;

	l->req = r;
	l->came = true;
	http_req_on_cancel(r, on_cancel, l);
	if (l->is_stream)
		http_stream_begin(r, 200, "application/json", 4096, NULL, 0);
}

static void answer_may_come_later(void **state)
{
	struct fixture *f = *state;
	struct late l = {0};
	struct got g = {0};
	struct http_call call = {.url = fixture_url(f, "/"), .done = got_done, .arg = &g};
	struct http_slot *slot = NULL;

	f->handler = keep;
	f->arg = &l;
	assert_int_equal(http_call(f->client, &slot, &call, NULL), RC_OK);
	fixture_wait(f, &l.came);
	fixture_run_for(f, 20 * USEC_PER_MSEC);
	assert_false(g.done);
	http_respond(l.req, 202, NULL, "late", 4, NULL, 0);
	fixture_wait(f, &g.done);
	assert_int_equal(g.status, 202);
	assert_string_equal(g.body, "late");
	assert_false(l.cancelled);
	http_slot_free(slot);
}

static void client_that_leaves_cancels_the_request(void **state)
{
	struct fixture *f = *state;
	struct late l = {0};
	struct got g = {0};
	struct http_call call = {.url = fixture_url(f, "/"), .done = got_done, .arg = &g};
	struct http_slot *slot = NULL;
	struct http_server_stats stats;

	f->handler = keep;
	f->arg = &l;
	assert_int_equal(http_call(f->client, &slot, &call, NULL), RC_OK);
	fixture_wait(f, &l.came);
	slot = http_slot_free(slot);
	fixture_wait(f, &l.cancelled);
	fixture_run_for(f, 5 * USEC_PER_MSEC);
	assert_false(g.done);
	http_server_stats(f->server, &stats);
	assert_int_equal(stats.open_requests, 0);
}

static void call_has_a_deadline(void **state)
{
	struct fixture *f = *state;
	struct late l = {0};
	struct got g = {0};
	struct http_call call = {.url = fixture_url(f, "/"),
				 .timeout = 300 * USEC_PER_MSEC,
				 .done = got_done,
				 .arg = &g};
	struct http_slot *slot = NULL;

	f->handler = keep;
	f->arg = &l;
	assert_int_equal(http_call(f->client, &slot, &call, NULL), RC_OK);
	fixture_wait(f, &g.done);
	assert_int_equal(g.rc, RC_TIMEOUT);
	fixture_wait(f, &l.cancelled);
	http_slot_free(slot);
}

/* Streams */

struct watch {
	struct http_lines lines;
	char seen[256];
	unsigned n_lines;
	bool has_line;
	usec_t at;
	struct fixture *f;
	struct http_slot *slot;
	bool drop_on_line;
	struct got g;
};

static bool on_line(const char *line, size_t n, void *arg)
{
	struct watch *w = arg;

	assert_int_equal(strlen(line), n);
	snprintf(w->seen + strlen(w->seen), sizeof(w->seen) - strlen(w->seen), "%s|", line);
	w->n_lines++;
	w->has_line = true;
	w->at = loop_now(w->f->loop);
	if (w->drop_on_line) {
		w->slot = http_slot_free(w->slot);
		return false;
	}
	return true;
}

static void on_data(const void *bytes, size_t n, void *arg)
{
	struct watch *w = arg;

	ignore_rc(http_lines_feed(&w->lines, bytes, n, on_line, w)); /* RC_CLOSED when dropped */
}

static void watch_done(const struct http_result *r, void *arg)
{
	got_done(r, &((struct watch *)arg)->g);
}

static void watch_start(struct fixture *f, struct watch *w, struct late *l)
{
	struct http_call call = {.url = fixture_url(f, "/watch"),
				 .timeout = USEC_INFINITY,
				 .on_data = on_data,
				 .done = watch_done,
				 .arg = w};

	w->f = f;
	http_lines_init(&w->lines, 1000);
	l->is_stream = true;
	f->handler = keep;
	f->arg = l;
	assert_int_equal(http_call(f->client, &w->slot, &call, NULL), RC_OK);
	fixture_wait(f, &l->came);
}

static void events_arrive_line_by_line_and_at_once(void **state)
{
	struct fixture *f = *state;
	struct late l = {0};
	struct watch w = {0};
	usec_t worst = 0, sum = 0;

	watch_start(f, &w, &l);
	fixture_run_for(f, 5 * USEC_PER_MSEC);
	assert_int_equal(http_stream_write(l.req, "{\"a\":1}\n{\"b\"", 12), RC_OK);
	fixture_wait(f, &w.has_line);
	assert_int_equal(http_stream_write(l.req, ":2}\n\n", 5), RC_OK);
	fixture_run_for(f, 5 * USEC_PER_MSEC);
	assert_string_equal(w.seen, "{\"a\":1}|{\"b\":2}|");
	for (int i = 0; i < 200; i++) {
		w.has_line = false;
		w.seen[0] = '\0';
		usec_t start = loop_now(f->loop);

		assert_int_equal(http_stream_write(l.req, "{}\n", 3), RC_OK);
		fixture_wait(f, &w.has_line);
		sum += w.at - start;
		worst = MAX(worst, w.at - start);
	}
	print_message("         stream write to line read, both ends in one loop: mean %llu us, "
		      "worst %llu us\n",
		      (unsigned long long)sum / 200, (unsigned long long)worst);
	assert_true(sum / 200 < 2000);
	http_stream_end(l.req);
	fixture_wait(f, &w.g.done);
	assert_int_equal(w.g.rc, RC_OK);
	assert_int_equal(w.g.status, 200);
	assert_false(l.cancelled);
	http_slot_free(w.slot);
	http_lines_fini(&w.lines);
}

static void watcher_that_leaves_is_noticed(void **state)
{
	struct fixture *f = *state;
	struct late l = {0};
	struct watch w = {0};

	watch_start(f, &w, &l);
	assert_int_equal(http_stream_write(l.req, "{}\n", 3), RC_OK);
	fixture_wait(f, &w.has_line);
	fixture_run_for(f, 5 * USEC_PER_MSEC);
	w.slot = http_slot_free(w.slot);
	fixture_wait(f, &l.cancelled); /* although nothing is written */
	assert_false(w.g.done);
	http_lines_fini(&w.lines);
}

static void slot_may_be_dropped_inside_the_data_callback(void **state)
{
	struct fixture *f = *state;
	struct late l = {0};
	struct watch w = {.drop_on_line = true};

	watch_start(f, &w, &l);
	assert_int_equal(http_stream_write(l.req, "{}\n{}\n", 6), RC_OK);
	fixture_wait(f, &w.has_line);
	fixture_wait(f, &l.cancelled);
	assert_int_equal(w.n_lines, 1);
	assert_false(w.g.done);
	http_lines_fini(&w.lines);
}

static void aborted_stream_is_not_a_whole_one(void **state)
{
	struct fixture *f = *state;
	struct late l = {0};
	struct watch w = {0};

	watch_start(f, &w, &l);
	assert_int_equal(http_stream_write(l.req, "{}\n", 3), RC_OK);
	fixture_wait(f, &w.has_line);
	http_stream_abort(l.req);
	fixture_wait(f, &w.g.done);
	assert_int_equal(w.g.rc, RC_CLOSED);
	http_slot_free(w.slot);
	http_lines_fini(&w.lines);
}

static void room(struct http_req *r, void *arg)
{
	(void)r;
	*(bool *)arg = true;
}

static void slow_watcher_meets_a_bound(void **state)
{
	struct fixture *f = *state;
	struct late l = {0};
	struct watch w = {0};
	char big[1024];
	bool has_room = false;
	int n = 0;

	memset(big, '\n', sizeof(big));
	watch_start(f, &w, &l);
	http_stream_on_room(l.req, 1024, room, &has_room);
	/* The loop does not run: nothing leaves the queue of 4096 bytes. */
	while (http_stream_write(l.req, big, sizeof(big)) == RC_OK)
		n++;
	assert_int_equal(n, 4);
	assert_int_equal(http_stream_backlog(l.req), 4096);
	fixture_wait(f, &has_room);
	assert_int_equal(http_stream_write(l.req, big, sizeof(big)), RC_OK);
	http_stream_end(l.req);
	fixture_wait(f, &w.g.done);
	http_slot_free(w.slot);
	http_lines_fini(&w.lines);
}

/* Limits and broken requests */

static void oversize_body_is_413(void **state)
{
	struct fixture *f = *state;
	size_t n = 200000;
	char *body = mem_alloc(n);
	struct got g = {0};
	struct http_call call = {.method = "POST",
				 .url = fixture_url(f, "/"),
				 .body = body,
				 .n_body = n,
				 .done = got_done,
				 .arg = &g};
	struct http_slot *slot = NULL;

	f->handler = echo;
	assert_int_equal(http_call(f->client, &slot, &call, NULL), RC_OK);
	fixture_wait(f, &g.done);
	assert_int_equal(g.rc, RC_OK);
	assert_int_equal(g.status, 413);
	assert_non_null(strstr(g.body, "RequestEntityTooLarge"));
	http_slot_free(slot);
	mem_free(body);
}

static void oversize_answer_is_refused_by_the_client(void **state)
{
	struct fixture *f = *state;
	struct got g = {0};
	struct http_call call = {
		.url = fixture_url(f, "/"), .response_max = 10, .done = got_done, .arg = &g};
	struct http_slot *slot = NULL;

	f->handler = echo;
	assert_int_equal(http_call(f->client, &slot, &call, NULL), RC_OK);
	fixture_wait(f, &g.done);
	assert_int_equal(g.rc, RC_TOO_BIG);
	http_slot_free(slot);
}

/* Sends raw bytes to a plain server on the same loop, returns what came until the end. */
static void raw_exchange(struct fixture *f, const char *request, char *answer, size_t max)
{
	struct http_server_config config = {
		.address = "127.0.0.1", .body_max = 1000, .handler = echo};
	struct http_server *s = NULL;
	struct sockaddr_in sa = {.sin_family = AF_INET};
	usec_t end = loop_now(f->loop) + USEC_PER_SEC;
	size_t n = 0;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(http_server_new(&s, f->loop, &config, NULL), RC_OK);
	sa.sin_port = htons(http_server_port(s));
	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	assert_int_equal(send(fd, request, strlen(request), 0), strlen(request));
	while (loop_now(f->loop) < end) {
		assert_int_equal(loop_step(f->loop, USEC_PER_MSEC, NULL, NULL), RC_OK);
		ssize_t r = recv(fd, answer + n, max - n - 1, MSG_DONTWAIT);

		if (r == 0)
			break;
		if (r > 0)
			n += (size_t)r;
		else if (errno != EAGAIN)
			break;
		if (r > 0 && strncmp(request, "GET /keep", 9) == 0)
			break;
	}
	answer[n] = '\0';
	close(fd);
	http_server_free(s);
}

static void smuggled_and_malformed_requests_are_refused(void **state)
{
	struct fixture *f = *state;
	static const struct {
		const char *request, *answer;
	} rows[] = {
		{"GET /keep?v=1 HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200"},
		{"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: "
		 "chunked\r\n\r\n0\r\n\r\n",
		 "HTTP/1.1 400"},
		{"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
		 "HTTP/1.1 400"},
		{"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10000000\r\n\r\n", "HTTP/1.1 413"},
		{"GET /../etc HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "HTTP/1.1 400"},
		{"GET /a%00b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "HTTP/1.1 400"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char answer[2048];

		raw_exchange(f, rows[i].request, answer, sizeof(answer));
		if (strncmp(answer, rows[i].answer, strlen(rows[i].answer)))
			fail_msg("row %zu: %s", i, answer);
	}
}

static void too_long_target_is_414(void **state)
{
	struct fixture *f = *state;
	char path[9000];
	char url[9100];
	struct got g = {0};
	struct http_call call = {.url = url, .done = got_done, .arg = &g};
	struct http_slot *slot = NULL;

	memset(path, 'a', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	snprintf(url, sizeof(url), "https://127.0.0.1:%u/%s", http_server_port(f->server), path);
	f->handler = echo;
	assert_int_equal(http_call(f->client, &slot, &call, NULL), RC_OK);
	fixture_wait(f, &g.done);
	assert_int_equal(g.status, 414);
	http_slot_free(slot);
}

/* Cancel, reload, stop */

static void drop_own_slot(const struct http_result *r, void *arg)
{
	struct watch *w = arg;

	w->slot = http_slot_free(w->slot);
	got_done(r, &w->g); /* still readable */
}

static void slot_may_be_dropped_inside_done(void **state)
{
	struct fixture *f = *state;
	struct watch w = {0};
	struct http_call call = {.url = fixture_url(f, "/"), .done = drop_own_slot, .arg = &w};

	f->handler = echo;
	assert_int_equal(http_call(f->client, &w.slot, &call, NULL), RC_OK);
	fixture_wait(f, &w.g.done);
	assert_int_equal(w.g.status, 200);
	assert_null(w.slot);
}

static void refused_connection_is_reported_once(void **state)
{
	struct fixture *f = *state;
	struct got g = {0};
	struct http_call call = {.url = "https://127.0.0.1:1/", .done = got_done, .arg = &g};
	struct http_slot *slot = NULL;

	assert_int_equal(http_call(f->client, &slot, &call, NULL), RC_OK);
	assert_false(g.done);
	fixture_wait(f, &g.done);
	assert_int_equal(g.rc, RC_CLOSED);
	assert_int_equal(g.times, 1);
	http_slot_free(slot);
}

static void new_ca_counts_from_the_next_request(void **state)
{
	struct fixture *f = *state;
	CLEANUP(pki_pair_fini) struct pki_pair ca = {0};
	usec_t now = loop_realtime(f->loop);
	struct got g;

	f->handler = echo;
	fixture_get(f, f->client, "/", &g);
	assert_int_equal(g.status, 200);
	assert_int_equal(pki_ca_new(&ca, "test-ca", now, 3600 * USEC_PER_SEC, NULL), RC_OK);
	assert_int_equal(file_write_durable(f->ca, ca.cert, strlen(ca.cert), 0644, NULL), RC_OK);
	assert_int_equal(http_server_reload_tls(f->server, NULL), RC_OK);
	fixture_get(f, f->client, "/", &g); /* the same connection */
	assert_int_equal(g.status, 401);
	/* A broken file changes nothing. */
	assert_int_equal(file_write_durable(f->crt, "x", 1, 0644, NULL), RC_OK);
	assert_int_equal(http_server_reload_tls(f->server, NULL), RC_INVALID);
}

static void set_flag(void *arg)
{
	*(bool *)arg = true;
}

static void stop_lets_requests_finish_and_ends_streams(void **state)
{
	struct fixture *f = *state;
	struct late l = {0}, slow = {0};
	struct watch w = {0};
	struct got g = {0};
	struct http_call call = {.url = fixture_url(f, "/slow"), .done = got_done, .arg = &g};
	struct http_slot *slot = NULL;
	bool stopped = false;

	watch_start(f, &w, &l);
	fixture_run_for(f, 5 * USEC_PER_MSEC);
	f->arg = &slow;
	assert_int_equal(http_call(f->client, &slot, &call, NULL), RC_OK);
	fixture_wait(f, &slow.came);
	http_server_stop(f->server, USEC_PER_SEC, set_flag, &stopped);
	assert_true(l.cancelled);
	fixture_wait(f, &w.g.done);
	assert_int_equal(w.g.rc, RC_OK);
	assert_false(stopped);
	http_respond(slow.req, 200, NULL, "ok", 2, NULL, 0);
	fixture_wait(f, &g.done);
	assert_int_equal(g.status, 200);
	fixture_wait(f, &stopped);
	http_slot_free(slot);
	http_slot_free(w.slot);
	http_lines_fini(&w.lines);
}

static void grace_period_ends(void **state)
{
	struct fixture *f = *state;
	struct late slow = {0};
	struct got g = {0};
	struct http_call call = {.url = fixture_url(f, "/slow"), .done = got_done, .arg = &g};
	struct http_slot *slot = NULL;
	bool stopped = false;

	f->handler = keep;
	f->arg = &slow;
	assert_int_equal(http_call(f->client, &slot, &call, NULL), RC_OK);
	fixture_wait(f, &slow.came);
	http_server_stop(f->server, 30 * USEC_PER_MSEC, set_flag, &stopped);
	fixture_wait(f, &stopped);
	assert_true(slow.cancelled);
	fixture_wait(f, &g.done);
	assert_int_equal(g.rc, RC_CLOSED);
	http_slot_free(slot);
}

static void unix_socket_tells_the_peers_uid(void **state)
{
	struct fixture *f = *state;
	char path[128], text[64];
	struct http_server_config config = {.unix_path = path, .handler = echo};
	struct http_client_config cc = {.unix_path = path};
	struct http_server *s = NULL;
	struct http_client *c = NULL;
	struct got g = {0};
	struct http_call call = {.url = "http://unix/x?v=2", .done = got_done, .arg = &g};
	struct http_slot *slot = NULL;

	snprintf(path, sizeof(path), "%s/s", f->dir);
	assert_int_equal(http_server_new(&s, f->loop, &config, NULL), RC_OK);
	assert_int_equal(http_client_new(&c, f->loop, &cc, NULL), RC_OK);
	assert_int_equal(http_call(c, &slot, &call, NULL), RC_OK);
	fixture_wait(f, &g.done);
	assert_int_equal(g.status, 200);
	snprintf(text, sizeof(text), "GET /x v=2 cn=-");
	assert_memory_equal(g.body, text, strlen(text));
	http_slot_free(slot);
	http_client_free(c);
	http_server_free(s);
}

static void server_may_go_with_requests_open(void **state)
{
	struct fixture *f = *state;
	struct late l = {0};
	struct watch w = {0};

	watch_start(f, &w, &l);
	http_server_free(STEAL(f->server));
	assert_true(l.cancelled);
	fixture_wait(f, &w.g.done);
	http_slot_free(w.slot);
	http_lines_fini(&w.lines);
}

/* Memory */

/* A request during which one allocation fails, on either side: it ends, somehow. */
static bool request_with_fault(struct fixture *f, unsigned nth)
{
	struct got g = {0};
	struct http_call call = {.method = "POST",
				 .url = fixture_url(f, "/a?v=1"),
				 .body = "hello",
				 .n_body = 5,
				 .timeout = USEC_PER_SEC,
				 .done = got_done,
				 .arg = &g};
	struct http_slot *slot = NULL;

	mem_fault_arm(nth);
	if (http_call(f->client, &slot, &call, NULL) == RC_OK)
		fixture_wait(f, &g.done);
	else
		g.done = true;
	http_slot_free(slot);
	return mem_fault_disarm();
}

static void failed_allocation_costs_at_most_its_request(void **state)
{
	struct fixture *f = *state;
	struct got g;
	unsigned nth = 1;

	f->handler = echo;
	fixture_get(f, f->client, "/", &g); /* the connection is there */
	while (request_with_fault(f, nth)) {
		nth++;
		fixture_get(f, f->client, "/x?v=2", &g);
		assert_int_equal(g.status, 200);
	}
	assert_true(nth > 10);
}

static bool stream_with_fault(struct fixture *f, unsigned nth)
{
	struct late l = {.is_stream = true};
	struct watch w = {.f = f};
	struct http_call call = {.url = fixture_url(f, "/watch"),
				 .timeout = USEC_PER_SEC,
				 .on_data = on_data,
				 .done = watch_done,
				 .arg = &w};
	usec_t end = loop_now(f->loop) + 50 * USEC_PER_MSEC;

	f->arg = &l;
	http_lines_init(&w.lines, 1000);
	mem_fault_arm(nth);
	if (http_call(f->client, &w.slot, &call, NULL) == RC_OK) {
		while (loop_now(f->loop) < end && !w.g.done && !w.has_line) {
			assert_int_equal(loop_step(f->loop, USEC_PER_MSEC, NULL, NULL), RC_OK);
			if (l.req && !w.has_line && http_stream_backlog(l.req) == 0 &&
			    http_stream_write(l.req, "{}\n", 3) && l.req)
				http_stream_abort(STEAL(l.req));
		}
	}
	bool delivered = mem_fault_disarm();

	http_slot_free(w.slot);
	for (int i = 0; i < 200 && l.req; i++) /* the server hears of it */
		fixture_run_for(f, USEC_PER_MSEC);
	assert_null(l.req);
	http_lines_fini(&w.lines);
	return delivered;
}

static void failed_allocation_costs_at_most_its_stream(void **state)
{
	struct fixture *f = *state;
	struct got g;
	unsigned nth = 1;

	for (;;) {
		f->handler = echo;
		fixture_get(f, f->client, "/", &g);
		assert_int_equal(g.status, 200);
		f->handler = keep;
		if (!stream_with_fault(f, nth))
			break;
		nth++;
	}
	assert_true(nth > 10);
}

#define WITH(test_) cmocka_unit_test_setup_teardown(test_, fixture_setup, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH(request_arrives_whole_and_answer_too),
		WITH(connection_is_kept_alive),
		WITH(client_without_certificate_is_anonymous),
		WITH(certificate_of_another_ca_is_refused),
		WITH(server_of_another_ca_is_refused),
		WITH(server_must_have_the_name_that_was_dialled),
		WITH(answer_may_come_later),
		WITH(client_that_leaves_cancels_the_request),
		WITH(call_has_a_deadline),
		WITH(events_arrive_line_by_line_and_at_once),
		WITH(watcher_that_leaves_is_noticed),
		WITH(slot_may_be_dropped_inside_the_data_callback),
		WITH(aborted_stream_is_not_a_whole_one),
		WITH(slow_watcher_meets_a_bound),
		WITH(oversize_body_is_413),
		WITH(oversize_answer_is_refused_by_the_client),
		WITH(smuggled_and_malformed_requests_are_refused),
		WITH(too_long_target_is_414),
		WITH(slot_may_be_dropped_inside_done),
		WITH(refused_connection_is_reported_once),
		WITH(new_ca_counts_from_the_next_request),
		WITH(stop_lets_requests_finish_and_ends_streams),
		WITH(grace_period_ends),
		WITH(unix_socket_tells_the_peers_uid),
		WITH(server_may_go_with_requests_open),
		WITH(failed_allocation_costs_at_most_its_request),
		WITH(failed_allocation_costs_at_most_its_stream),
	};

	return cmocka_run_group_tests_name("http", tests, NULL, NULL);
}
