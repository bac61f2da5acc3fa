#include "../http/fixture.h"

#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"
#include "http/ws.h"
#include "virt/node/agent_display.h"

/* The agent's sessions and pictures; the test has the other end of QEMU's descriptor. */
struct viewer {
	struct http_ws *ws;
	bool is_open, is_closed, has_all;
	uint16_t code;
	int status;
	char reason[64], text[128];
	uint8_t got[64];
	size_t total, want;
	unsigned sum;
};

struct world {
	struct fixture *f;
	struct agent_display *d;
	int qemu; /* of the session that was opened last */
	bool preserves;
	int picture;
};

static void serve(struct http_req *r, void *arg)
{
	struct world *w = arg;
	int pair[2];

	if (str_eq(http_req_path(r), "/picture")) {
		agent_display_picture(r, w->picture);
		return;
	}
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	w->qemu = pair[0];
	agent_display_attach(w->d, r, http_req_path(r) + 1, pair[1], w->preserves);
}

static void setup(struct world *w, struct fixture *f)
{
	*w = (struct world){.f = f, .d = agent_display_new(), .qemu = -1};
	assert_non_null(w->d);
	f->handler = serve;
	f->arg = w;
}

static void teardown(struct world *w)
{
	agent_display_free(w->d);
	fixture_run_for(w->f, 5 * USEC_PER_MSEC);
}

static void on_open(struct http_ws *ws, const char *protocol, void *arg)
{
	(void)ws;
	assert_string_equal(protocol, "plain.kubevirt.io");
	((struct viewer *)arg)->is_open = true;
}

static void on_message(struct http_ws *ws, bool is_text, const uint8_t *bytes, size_t n, void *arg)
{
	struct viewer *v = arg;

	(void)ws;
	assert_false(is_text);
	memcpy(v->got, bytes, MIN(n, sizeof(v->got)));
	for (size_t i = 0; i < n; i++)
		v->sum = v->sum * 31 + bytes[i];
	v->total += n;
	v->has_all = v->want && v->total >= v->want;
}

static void on_close(struct http_ws *ws, uint16_t code, const char *reason, int status,
		     const struct err *why, void *arg)
{
	struct viewer *v = arg;

	(void)ws;
	v->is_closed = true;
	v->code = code;
	v->status = status;
	snprintf(v->reason, sizeof(v->reason), "%s", reason ? reason : "");
	snprintf(v->text, sizeof(v->text), "%s", why ? why->msg : "");
}

static const struct http_ws_ops ops = {
	.on_open = on_open, .on_message = on_message, .on_close = on_close};

static void dial(struct world *w, struct viewer *v, const char *path)
{
	*v = (struct viewer){.want = 0};
	assert_int_equal(http_ws_connect(w->f->client, &v->ws, fixture_url(w->f, path),
					 "plain.kubevirt.io", 0, &ops, v, NULL),
			 RC_OK);
}

static void view(struct world *w, struct viewer *v, const char *path)
{
	dial(w, v, path);
	fixture_wait(w->f, &v->is_open);
}

/* What QEMU's end gets, which must come within two seconds. */
static ssize_t read_at_qemu(struct world *w, int fd, void *buf, size_t n)
{
	usec_t end = loop_now(w->f->loop) + 2 * USEC_PER_SEC;
	ssize_t got;

	while ((got = recv(fd, buf, n, MSG_DONTWAIT)) < 0 && loop_now(w->f->loop) < end)
		fixture_run_for(w->f, 100);
	return got;
}

static void bytes_go_both_ways_as_they_are(void **state)
{
	static const uint8_t hostile[] = {0xff, 0xfe, 0x00, 0xff, 0xff, 0xff, 0xff, 0x00};
	uint8_t buf[64];
	struct viewer v;
	struct world w;

	setup(&w, *state);
	view(&w, &v, "/default/a");
	v.want = 12;
	assert_int_equal(send(w.qemu, "RFB 003.008\n", 12, MSG_NOSIGNAL), 12);
	fixture_wait(w.f, &v.has_all);
	assert_memory_equal(v.got, "RFB 003.008\n", 12);
	assert_int_equal(http_ws_send(v.ws, true, "words", 5), RC_OK); /* no part of it */
	assert_int_equal(http_ws_send(v.ws, false, hostile, sizeof(hostile)), RC_OK);
	assert_int_equal(read_at_qemu(&w, w.qemu, buf, sizeof(buf)), sizeof(hostile));
	assert_memory_equal(buf, hostile, sizeof(hostile));
	close(w.qemu);
	fixture_wait(w.f, &v.is_closed);
	assert_int_equal(v.code, HTTP_WS_NORMAL);
	assert_string_equal(v.reason, "the display has ended");
	http_ws_free(v.ws);
	teardown(&w);
}

static void a_second_session_replaces_the_first(void **state)
{
	struct viewer a, b, other;
	struct world w;
	char buf[8];

	setup(&w, *state);
	view(&w, &other, "/default/b");
	int of_other = w.qemu;

	view(&w, &a, "/default/a");
	int first = w.qemu;

	view(&w, &b, "/default/a");
	fixture_wait(w.f, &a.is_closed);
	assert_int_equal(a.code, HTTP_WS_NORMAL);
	assert_string_equal(a.reason, "replaced by another session");
	assert_int_equal(read_at_qemu(&w, first, buf, sizeof(buf)), 0); /* QEMU has let it go */
	b.want = 1;
	assert_int_equal(send(w.qemu, "x", 1, MSG_NOSIGNAL), 1);
	fixture_wait(w.f, &b.has_all);
	assert_false(other.is_closed);
	close(first);
	close(of_other);
	close(w.qemu);
	http_ws_free(a.ws);
	http_ws_free(b.ws);
	http_ws_free(other.ws);
	teardown(&w);
}

static void a_session_in_use_is_preserved(void **state)
{
	struct viewer a, b;
	struct world w;

	setup(&w, *state);
	view(&w, &a, "/default/a");
	int first = w.qemu;

	w.preserves = true;
	dial(&w, &b, "/default/a");
	fixture_wait(w.f, &b.is_closed);
	assert_int_equal(b.status, 503);
	assert_non_null(strstr(b.text, "Active VNC connection. Request denied."));
	assert_false(a.is_closed);
	close(w.qemu);
	/* when nobody looks there is nothing to preserve */
	http_ws_free(a.ws);
	fixture_run_for(w.f, 20 * USEC_PER_MSEC);
	http_ws_free(b.ws);
	view(&w, &b, "/default/a");
	close(first);
	close(w.qemu);
	http_ws_free(b.ws);
	teardown(&w);
}

/* A picture of a screen has no part that could be left out. */
static void a_viewer_that_does_not_read_loses_nothing(void **state)
{
	static uint8_t block[32 * 1024];
	unsigned sum = 0;
	struct viewer v;
	struct world w;
	size_t sent = 0;

	setup(&w, *state);
	view(&w, &v, "/default/a");
	http_ws_pause(v.ws, true);
	for (int i = 0; i < 3000; i++) {
		memset(block, i, sizeof(block));
		ssize_t n = send(w.qemu, block, sizeof(block), MSG_NOSIGNAL | MSG_DONTWAIT);

		for (ssize_t k = 0; k < n; k++)
			sum = sum * 31 + block[k];
		sent += n > 0 ? (size_t)n : 0;
		assert_int_equal(loop_step(w.f->loop, 0, NULL, NULL), RC_OK);
	}
	assert_true(sent > 256 * 1024 && sent < 3000 * sizeof(block)); /* QEMU was made to wait */
	v.want = sent;
	http_ws_pause(v.ws, false);
	fixture_wait(w.f, &v.has_all);
	assert_int_equal(v.total, sent);
	assert_int_equal(v.sum, sum);
	close(w.qemu);
	http_ws_free(v.ws);
	teardown(&w);
}

static void a_qemu_that_does_not_read_stops_the_viewer(void **state)
{
	static uint8_t block[16 * 1024], buf[64 * 1024];
	struct viewer v;
	struct world w;
	size_t sent = 0, got = 0;

	setup(&w, *state);
	view(&w, &v, "/default/a");
	for (int i = 0; i < 3000; i++) {
		if (http_ws_send(v.ws, false, block, sizeof(block)) == RC_OK)
			sent += sizeof(block);
		assert_int_equal(loop_step(w.f->loop, 0, NULL, NULL), RC_OK);
	}
	assert_true(sent < 3000 * sizeof(block));
	assert_false(v.is_closed);
	while (got < sent) {
		ssize_t n = read_at_qemu(&w, w.qemu, buf, sizeof(buf));

		assert_true(n > 0);
		got += (size_t)n;
	}
	assert_int_equal(got, sent);
	close(w.qemu);
	http_ws_free(v.ws);
	teardown(&w);
}

/* Blocked on one side, gone on the other: told when there is room, and no loop without pause until then. */
static void an_end_is_told_when_the_viewer_reads_again(void **state)
{
	static uint8_t block[32 * 1024];
	unsigned turns = 0;
	struct viewer v;
	struct world w;

	setup(&w, *state);
	view(&w, &v, "/default/a");
	http_ws_pause(v.ws, true);
	for (int i = 0; i < 3000; i++) {
		ssize_t n = send(w.qemu, block, sizeof(block), MSG_NOSIGNAL | MSG_DONTWAIT);

		(void)n; /* until it is full */
		assert_int_equal(loop_step(w.f->loop, 0, NULL, NULL), RC_OK);
	}
	close(w.qemu);
	for (usec_t end = loop_now(w.f->loop) + 100 * USEC_PER_MSEC; loop_now(w.f->loop) < end;) {
		assert_int_equal(loop_step(w.f->loop, 10 * USEC_PER_MSEC, NULL, NULL), RC_OK);
		turns++;
	}
	assert_true(turns < 100);
	http_ws_pause(v.ws, false);
	fixture_wait(w.f, &v.is_closed);
	assert_int_equal(v.code, HTTP_WS_NORMAL);
	http_ws_free(v.ws);
	teardown(&w);
}

static void a_viewer_that_leaves_is_let_go_at_qemu(void **state)
{
	struct viewer v;
	struct world w;
	char buf[8];

	setup(&w, *state);
	view(&w, &v, "/default/a");
	http_ws_free(v.ws); /* without a word */
	assert_int_equal(read_at_qemu(&w, w.qemu, buf, sizeof(buf)), 0);
	close(w.qemu);
	teardown(&w);
}

static void what_is_no_handshake_is_answered(void **state)
{
	struct world w;
	struct got g = {0};

	setup(&w, *state);
	fixture_get(w.f, w.f->client, "/default/a", &g);
	assert_int_equal(g.status, 400);
	close(w.qemu);
	teardown(&w);
}

static void a_picture_is_answered_whole_or_refused(void **state)
{
	static const off_t sizes[] = {0, (off_t)LIMIT_PICTURE_BYTES + 1};
	struct world w;
	struct got g = {0};

	setup(&w, *state);
	w.picture = memfd_create("picture", MFD_CLOEXEC);
	assert_int_equal(write(w.picture, "\x89PNG\0\0xyz", 9), 9);
	fixture_get(w.f, w.f->client, "/picture", &g);
	assert_int_equal(g.status, 200);
	assert_int_equal(g.n, 9);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		w.picture = memfd_create("picture", MFD_CLOEXEC);
		assert_int_equal(ftruncate(w.picture, sizes[i]), 0);
		g = (struct got){0};
		fixture_get(w.f, w.f->client, "/picture", &g);
		assert_int_equal(g.status, 413);
	}
	teardown(&w);
}

#define WITH(test_) cmocka_unit_test_setup_teardown(test_, fixture_setup, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH(bytes_go_both_ways_as_they_are),
		WITH(a_second_session_replaces_the_first),
		WITH(a_session_in_use_is_preserved),
		WITH(a_viewer_that_does_not_read_loses_nothing),
		WITH(a_qemu_that_does_not_read_stops_the_viewer),
		WITH(an_end_is_told_when_the_viewer_reads_again),
		WITH(a_viewer_that_leaves_is_let_go_at_qemu),
		WITH(what_is_no_handshake_is_answered),
		WITH(a_picture_is_answered_whole_or_refused),
	};

	return cmocka_run_group_tests_name("node/display", tests, NULL, NULL);
}
