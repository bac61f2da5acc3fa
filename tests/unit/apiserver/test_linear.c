/* Histories of concurrent clients over the API are linearizable, whatever loses its power in between.
 *
 * Clients call the API in this process; now and then the server dies with the machine, and goes on from what
 * the disk held (a fault VFS knows).  Each key's history is checked; then all keys together: revisions grow
 * as time goes, lists are the state at their revision, and a watch that was resumed over every crash has
 * each change once, in order.  FERRY_TEST_LONG: more and longer runs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "fixture.h"
#include "history.h"
#include "lib/linear.h"

/* ---- the checker itself ------------------------------------------------------------------------------ */

#define READ(call_, ret_, v_)                                           \
	{                                                               \
		.op = LIN_READ, .call = call_, .ret = ret_, .value = v_ \
	}
#define CREATE(call_, ret_, v_)                                           \
	{                                                                 \
		.op = LIN_CREATE, .call = call_, .ret = ret_, .value = v_ \
	}
#define NO_CREATE(call_, ret_, v_)                                                         \
	{                                                                                  \
		.op = LIN_CREATE, .call = call_, .ret = ret_, .value = v_, .refused = true \
	}
#define SWAP(call_, ret_, from_, v_)                                                     \
	{                                                                                \
		.op = LIN_SWAP, .call = call_, .ret = ret_, .expect = from_, .value = v_ \
	}
#define NO_SWAP(call_, ret_, from_, v_)                                                   \
	{                                                                                 \
		.op = LIN_SWAP, .call = call_, .ret = ret_, .expect = from_, .value = v_, \
		.refused = true                                                           \
	}
#define DELETE(call_, ret_)                                  \
	{                                                    \
		.op = LIN_DELETE, .call = call_, .ret = ret_ \
	}
#define NO_DELETE(call_, ret_)                                                \
	{                                                                     \
		.op = LIN_DELETE, .call = call_, .ret = ret_, .refused = true \
	}
#define LOST(what_, call_, end_, from_, v_)                                            \
	{                                                                              \
		.op = what_, .call = call_, .ret = end_, .expect = from_, .value = v_, \
		.unknown = true                                                        \
	}

struct example {
	const char *what;
	bool is_linear;
	struct lin_event events[6];
	size_t n;
};

static const struct example examples[] = {
	{"nothing", true, {{0}}, 0},
	{"one after the other",
	 true,
	 {CREATE(1, 2, 7), READ(3, 4, 7), SWAP(5, 6, 7, 8), READ(7, 8, 8), DELETE(9, 10),
	  READ(11, 12, 0)},
	 6},
	{"a read beside the write that it sees", true, {CREATE(1, 10, 7), READ(2, 3, 7)}, 2},
	{"a read beside the write that it does not see",
	 true,
	 {CREATE(1, 10, 7), READ(2, 3, 0)},
	 2},
	{"two reads beside a write, new and then old",
	 false,
	 {CREATE(1, 10, 7), READ(2, 3, 7), READ(4, 5, 0)},
	 3},
	{"a stale read", false, {CREATE(1, 2, 7), SWAP(3, 4, 7, 8), READ(5, 6, 7)}, 3},
	{"a read of what was never written", false, {CREATE(1, 2, 7), READ(3, 4, 9)}, 2},
	{"a read from the future", false, {READ(1, 2, 7), CREATE(3, 4, 7)}, 2},
	{"made twice", false, {CREATE(1, 5, 7), CREATE(2, 6, 8)}, 2},
	{"made twice, deleted in between",
	 true,
	 {CREATE(1, 5, 7), CREATE(2, 6, 8), DELETE(3, 4)},
	 3},
	{"two winners of one version",
	 false,
	 {CREATE(1, 2, 7), SWAP(3, 5, 7, 8), SWAP(4, 6, 7, 9)},
	 3},
	{"one winner of one version",
	 true,
	 {CREATE(1, 2, 7), SWAP(3, 5, 7, 8), NO_SWAP(4, 6, 7, 9)},
	 3},
	{"refused although it was the version",
	 false,
	 {CREATE(1, 2, 7), NO_SWAP(3, 4, 7, 9), READ(5, 6, 7)},
	 3},
	{"refused although there was nothing", false, {NO_CREATE(1, 2, 7)}, 1},
	{"deleted twice", false, {CREATE(1, 2, 7), DELETE(3, 4), DELETE(5, 6)}, 3},
	{"nothing to delete although there is", false, {CREATE(1, 2, 7), NO_DELETE(3, 4)}, 2},
	{"an acknowledged write is lost", false, {CREATE(1, 2, 7), READ(5, 6, 0)}, 2},
	{"an unanswered write is there", true, {LOST(LIN_CREATE, 1, 4, 0, 7), READ(5, 6, 7)}, 2},
	{"an unanswered write is not there",
	 true,
	 {LOST(LIN_CREATE, 1, 4, 0, 7), READ(5, 6, 0)},
	 2},
	{"an unanswered write goes away again",
	 false,
	 {LOST(LIN_CREATE, 1, 4, 0, 7), READ(5, 6, 7), READ(7, 8, 0)},
	 3},
	{"an unanswered write comes after its server's end",
	 false,
	 {LOST(LIN_CREATE, 1, 4, 0, 7), READ(5, 6, 0), READ(7, 8, 7)},
	 3},
	{"an unanswered deletion explains it",
	 true,
	 {CREATE(1, 2, 7), LOST(LIN_DELETE, 3, 4, 0, 0), READ(5, 6, 0)},
	 3},
};

static void the_checker_knows_what_is_not_linearizable(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(examples) / sizeof(*examples); i++)
		if (linear_check(examples[i].events, examples[i].n) != examples[i].is_linear)
			fail_msg("'%s' is said to be %slinearizable", examples[i].what,
				 examples[i].is_linear ? "not " : "");
}

/* ---- clients over the API ---------------------------------------------------------------------------- */

enum { KEYS = 4, CLIENTS = 5, MAX_OPS = 400, MAX_KNOWN = 4000 };

#define CMS "/api/v1/namespaces/default/configmaps"

struct world;

/* A client does one thing after the other. */
struct client {
	struct world *w;
	bool busy;
	struct lin_event ev;
	int key;
	int64_t rev; /* answered */
	struct apisrv_call *call;
	/* what it believes: the version that it saw last of each key */
	int value[KEYS];
	int64_t seen[KEYS];
};

struct version {
	int64_t rev;
	int key, value; /* 0: deleted */
};

struct watcher_view {
	struct apisrv_call *call;
	int64_t rev; /* where it goes on */
	char part[1 << 16];
	size_t n_part;
	bool ended;
};

struct world {
	struct history h; /* loop, store, folder, faults */
	struct apisrv *srv;
	struct client clients[CLIENTS];
	struct watcher_view watch;
	int64_t clock;
	int next_value;
	struct lin_event ops[KEYS][MAX_OPS];
	size_t n_ops[KEYS];
	struct version known[MAX_KNOWN]; /* what the watch told, in order */
	size_t n_known;
	size_t answered, lost, refused;
	/* Of writes: the newest revision that was answered before now. */
	int64_t answered_rev;
};

static void put_down(struct client *c)
{
	struct world *w = c->w;

	assert_true(w->n_ops[c->key] < MAX_OPS);
	w->ops[c->key][w->n_ops[c->key]++] = c->ev;
	c->busy = false;
	c->call = NULL;
}

static int64_t rev_of(const struct json *obj)
{
	int64_t rev = 0;

	assert_int_equal(str_to_i64(js_str(js_at(obj, "metadata", "resourceVersion", NULL)), 1,
				    INT64_MAX, &rev, NULL),
			 RC_OK);
	return rev;
}

static int value_of(const struct json *obj)
{
	int64_t v = 0;
	const char *text = js_str(js_at(obj, "data", "v", NULL));

	return text && !str_to_i64(text, 0, INT32_MAX, &v, NULL) ? (int)v : 0;
}

static void on_written(struct client *c, int status, const struct json *obj)
{
	struct world *w = c->w;

	if (status >= 300) {
		assert_true(status == 404 || status == 409);
		c->ev.refused = true;
		c->value[c->key] = 0;
		c->seen[c->key] = 0;
		w->refused++;
		return;
	}
	int64_t rev = c->ev.op == LIN_DELETE || !c->ev.value ? 0 : rev_of(obj);

	if (!rev) {
		c->value[c->key] = 0;
		c->seen[c->key] = 0;
		return;
	}
	/* A revision that is answered is greater than every one that was answered before this call began. */
	assert_true(rev > c->rev);
	w->answered_rev = rev > w->answered_rev ? rev : w->answered_rev;
	c->value[c->key] = c->ev.value;
	c->seen[c->key] = rev;
}

static void on_answer(void *arg, const struct apisrv_answer *a)
{
	struct client *c = arg;
	struct json *j = NULL;

	assert_int_equal(js_parse(a->body, a->n, &j, NULL), RC_OK);
	c->ev.ret = ++c->w->clock;
	c->w->answered++;
	if (c->ev.op == LIN_READ) {
		c->ev.value = a->status == 200 ? value_of(j) : 0;
		assert_true(a->status == 200 || a->status == 404);
		c->value[c->key] = c->ev.value;
		c->seen[c->key] = a->status == 200 ? rev_of(j) : 0;
	} else {
		on_written(c, a->status, j);
	}
	js_unref(j);
	put_down(c);
}

static const struct apisrv_sink client_sink = {.answer = on_answer};

static void begin(struct client *c)
{
	struct world *w = c->w;
	char target[128], body[256] = "";
	const char *method = "GET";
	unsigned what = (unsigned)(hist_rnd(&w->h) % 10);

	c->key = (int)(hist_rnd(&w->h) % KEYS);
	c->rev = w->answered_rev;
	c->busy = true;
	c->ev = (struct lin_event){.op = LIN_READ, .call = ++w->clock};
	snprintf(target, sizeof(target), CMS "/k%d", c->key);
	if (what >= 3 && !c->seen[c->key]) {
		c->ev.op = LIN_CREATE;
		c->ev.value = ++w->next_value;
		method = "POST";
		snprintf(target, sizeof(target), CMS);
		snprintf(
			body, sizeof(body),
			"{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"k%d\"},\"data\":{\"v\":\"%d\"}}",
			c->key, c->ev.value);
	} else if (what >= 3 && what < 8) {
		c->ev.op = LIN_SWAP;
		c->ev.expect = c->value[c->key];
		c->ev.value = ++w->next_value;
		method = "PUT";
		snprintf(
			body, sizeof(body),
			"{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"k%d\",\"resourceVersion\":\"%lld\"},"
			"\"data\":{\"v\":\"%d\"}}",
			c->key, (long long)c->seen[c->key], c->ev.value);
	} else if (what == 8) {
		c->ev.op = LIN_DELETE;
		method = "DELETE";
	} else if (what == 9) {
		c->ev.op = LIN_SWAP; /* a deletion of the version that it saw */
		c->ev.expect = c->value[c->key];
		method = "DELETE";
		snprintf(
			body, sizeof(body),
			"{\"kind\":\"DeleteOptions\",\"apiVersion\":\"v1\",\"preconditions\":{\"resourceVersion\":\"%lld\"}}",
			(long long)c->seen[c->key]);
	}
	struct apisrv_request r = {.method = method,
				   .target = target,
				   .body = body,
				   .n_body = strlen(body),
				   .user = &fx_admin};

	c->call = apisrv_handle(w->srv, &r, &client_sink, c);
	if (!c->busy)
		c->call = NULL;
}

/* ---- one watch over everything ------------------------------------------------------------------------ */

static void on_change(struct world *w, const char *line, size_t n)
{
	struct json *j = NULL;

	assert_int_equal(js_parse(line, n, &j, NULL), RC_OK);
	const struct json *obj = js_get(j, "object");
	const char *type = js_get_str(j, "type");
	int64_t rev = rev_of(obj), key = 0;

	if (!str_eq(type, "BOOKMARK")) {
		assert_true(rev > w->watch.rev); /* never twice, never backwards */
		const char *name = js_str(js_at(obj, "metadata", "name", NULL));

		assert_int_equal(str_to_i64(name + 1, 0, KEYS - 1, &key, NULL), RC_OK);
		assert_true(w->n_known < MAX_KNOWN);
		w->known[w->n_known++] = (struct version){
			rev, (int)key, str_eq(type, "DELETED") ? 0 : value_of(obj)};
		if (w->h.v) /* somebody knows it now */
			faultvfs_mark(w->h.v, rev);
	}
	w->watch.rev = rev;
	js_unref(j);
}

static void watch_begin(void *arg, int status, const char *type, size_t backlog)
{
	(void)arg;
	(void)type;
	(void)backlog;
	assert_int_equal(status, 200);
}

static enum rc watch_write(void *arg, const void *bytes, size_t n)
{
	struct world *w = arg;
	struct watcher_view *v = &w->watch;

	assert_true(v->n_part + n < sizeof(v->part));
	memcpy(v->part + v->n_part, bytes, n);
	v->n_part += n;
	for (char *lf; (lf = memchr(v->part, '\n', v->n_part));) {
		size_t used = (size_t)(lf - v->part) + 1;

		on_change(w, v->part, used - 1);
		memmove(v->part, v->part + used, v->n_part - used);
		v->n_part -= used;
	}
	return RC_OK;
}

static void watch_end(void *arg)
{
	struct world *w = arg;

	w->watch.ended = true;
}

static void watch_answer(void *arg, const struct apisrv_answer *a)
{
	struct world *w = arg;

	fail_msg("watch from %lld: %.*s", (long long)w->watch.rev, (int)a->n, a->body);
}

static const struct apisrv_sink watch_sink = {.answer = watch_answer,
					      .stream_begin = watch_begin,
					      .stream_write = watch_write,
					      .stream_end = watch_end};

static void start_watch(struct world *w)
{
	char target[128];

	snprintf(target, sizeof(target), "/api/v1/configmaps?watch=1&resourceVersion=%lld",
		 (long long)w->watch.rev);
	struct apisrv_request r = {.method = "GET", .target = target, .user = &fx_admin};

	w->watch.n_part = 0;
	w->watch.call = apisrv_handle(w->srv, &r, &watch_sink, w);
}

/* ---- life and death of the server ---------------------------------------------------------------------- */

static void serve(struct world *w)
{
	struct apisrv_config config = {.store = NULL, .seed = 7};
	struct err err = {0};

	if (hist_open(&w->h, NULL, "fault", &err))
		fail_msg("%s", err.msg);
	config.store = w->h.s;
	if (apisrv_new(&w->srv, w->h.loop, &config, &err))
		fail_msg("%s", err.msg);
	while (!store_is_idle(w->h.s))
		assert_int_equal(loop_step(w->h.loop, 0, NULL, NULL), RC_OK);
	if (!w->watch.rev)
		w->watch.rev = store_rev(w->h.s);
	start_watch(w);
}

static void forget_answers(struct world *w)
{
	for (size_t i = 0; i < CLIENTS; i++) {
		struct client *c = &w->clients[i];

		if (!c->busy)
			continue;
		apisrv_cancel(c->call);
		c->ev.unknown = true;
		c->ev.ret = w->clock;
		w->lost++;
		if (c->ev.op != LIN_READ) {
			c->seen[c->key] = 0;
			c->value[c->key] = 0;
		}
		put_down(c);
	}
}

static void stop(struct world *w)
{
	w->clock++;
	forget_answers(w);
	apisrv_cancel(w->watch.call);
	w->srv = apisrv_free(w->srv);
}

/* The machine goes: what was synced stays, of the rest anything. */
static void lose_power(struct world *w)
{
	char next[160];
	size_t length = faultvfs_length(w->h.v);

	stop(w);
	snprintf(next, sizeof(next), "%s.next", w->h.dir);
	hist_clean_dir(next);
	faultvfs_replay(w->h.v, length, hist_rnd(&w->h) % LOSS__MAX, hist_rnd(&w->h), next);
	w->h.s = store_close(w->h.s);
	faultvfs_free(w->h.v);
	w->h.v = faultvfs_new("fault");
	assert_int_equal(file_remove_tree(w->h.dir, NULL), RC_OK);
	assert_int_equal(rename(next, w->h.dir), 0);
	faultvfs_adopt(w->h.v, w->h.dir);
	serve(w);
}

/* An orderly restart: a commit that runs is let end. */
static void restart(struct world *w)
{
	stop(w);
	w->h.s = store_close(w->h.s);
	serve(w);
}

/* ---- all keys together ---------------------------------------------------------------------------------- */

/* A list is the state at its revision, as the watch tells it. */
static void check_list(struct world *w)
{
	struct fx f = {.loop = w->h.loop, .store = w->h.s, .srv = w->srv};
	struct json *list = fx_do(&f, 200, "GET", CMS, NULL);
	int64_t rev = rev_of(list);
	int want[KEYS] = {0}, got[KEYS] = {0};

	assert_true(rev >= w->answered_rev); /* no write that was answered is missing */
	for (size_t i = 0; i < w->n_known && w->known[i].rev <= rev; i++)
		want[w->known[i].key] = w->known[i].value;
	for (size_t i = 0; i < js_len(js_get(list, "items")); i++) {
		const struct json *obj = js_item(js_get(list, "items"), i);
		int64_t key = 0;

		assert_int_equal(str_to_i64(js_str(js_at(obj, "metadata", "name", NULL)) + 1, 0,
					    KEYS - 1, &key, NULL),
				 RC_OK);
		got[key] = value_of(obj);
	}
	for (int k = 0; k < KEYS; k++)
		assert_int_equal(got[k], want[k]);
	js_unref(list);
}

static struct {
	size_t answered, refused, lost, changes;
} total;

static void run(uint64_t seed, int turns, int crashes)
{
	static struct world w;
	int every = turns / (crashes + 1);

	memset(&w, 0, sizeof(w));
	hist_up(&w.h, seed, "fault");
	w.h.ring = 4096; /* the watch must be able to go on over every crash */
	for (size_t i = 0; i < CLIENTS; i++)
		w.clients[i].w = &w;
	serve(&w);
	for (int turn = 1; turn <= turns; turn++) {
		for (size_t i = 0; i < CLIENTS; i++)
			if (!w.clients[i].busy && hist_rnd(&w.h) % 3)
				begin(&w.clients[i]);
		unsigned steps = (unsigned)(hist_rnd(&w.h) % 4);

		while (steps--)
			assert_int_equal(loop_step(w.h.loop, 0, NULL, NULL), RC_OK);
		if (turn % every == 0 && crashes-- > 0) {
			if (crashes % 3)
				lose_power(&w);
			else
				restart(&w);
		}
		if (turn % 25 == 0)
			check_list(&w);
	}
	for (bool did = true; did;)
		assert_int_equal(loop_step(w.h.loop, 0, &did, NULL), RC_OK);
	check_list(&w);
	stop(&w);
	for (int k = 0; k < KEYS; k++)
		if (!linear_check(w.ops[k], w.n_ops[k]))
			fail_msg(
				"seed %llu: the history of key %d (%zu operations) is not linearizable",
				(unsigned long long)seed, k, w.n_ops[k]);
	total.answered += w.answered;
	total.refused += w.refused;
	total.lost += w.lost;
	total.changes += w.n_known;
	hist_down(&w.h);
	assert_int_equal(mem_live_blocks(), 0);
}

static void histories_over_crashes_are_linearizable(void **state)
{
	(void)state;
	int runs = getenv("FERRY_TEST_LONG") ? 200 : 8;

	for (int i = 1; i <= runs; i++)
		run((uint64_t)i * 104729, 200, 8);
	printf("  %zu answers (%zu refusals), %zu lost with the power, %zu changes seen by the watch\n",
	       total.answered, total.refused, total.lost, total.changes);
	/* every kind was among them, or this would prove little */
	assert_true(total.refused > 50 && total.lost > 20 && total.changes > 200);
}

int main(void)
{
	js_use_mem();
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_checker_knows_what_is_not_linearizable),
		cmocka_unit_test(histories_over_crashes_are_linearizable),
	};

	return cmocka_run_group_tests_name("linear", tests, NULL, NULL);
}
