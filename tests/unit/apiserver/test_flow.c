/* Who waits for whom, and who is told to come later. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/api.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "cluster/apiserver/flow.h"
#include "fixture.h"

#define CMS "/api/v1/namespaces/default/configmaps"
#define SUB "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines"

enum { WATCHES = 10000 };

static struct fx f;

static const char *const readers[] = {"system:masters"};
/* Two administrators: they have all rights, and each a queue of his own. */
static const struct apisrv_user anna = {.name = "anna", .n_groups = 1, .groups = readers};
static const struct apisrv_user ben = {.name = "ben", .n_groups = 1, .groups = readers};

static void hang(struct hook_call *call)
{
	(void)call;
}

static const char *const v1[] = {"v1", NULL};
static const struct api_subresource hang_at = {.group = "subresources.kubevirt.io",
					       .versions = v1,
					       .resource = "virtualmachines",
					       .path = "hang",
					       .method = "GET"};
static const struct subres_hook subres[] = {
	{&hang_at, hang},
};
static const struct apisrv_hooks hooks = {.n_subres = ARRAY_SIZE(subres), .subres = subres};

static int setup(void **state)
{
	(void)state;
	fx_up(&f, &hooks);
	drop(fx_do(&f, 201, "POST", CMS, "{\"metadata\":{\"name\":\"c\"}}"));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fx_down(&f);
	return 0;
}

/* One request and when it was answered, counted over all. */
struct ask {
	int status, retry_after;
	unsigned turn; /* the how manieth answer; 0: none */
	struct apisrv_call *call;
	bool is_begun; /* a watch */
};

static unsigned answers;

static void on_answer(void *arg, const struct apisrv_answer *a)
{
	struct ask *k = arg;

	assert_int_equal(k->status, 0);
	k->status = a->status;
	k->retry_after = a->retry_after;
	k->turn = ++answers;
	k->call = NULL;
}

static void on_begin(void *arg, int status, const char *type, size_t backlog)
{
	struct ask *k = arg;

	(void)type;
	(void)backlog;
	k->status = status;
	k->is_begun = true;
}

static enum rc on_write(void *arg, const void *bytes, size_t n)
{
	(void)arg;
	(void)bytes;
	(void)n;
	return RC_OK;
}

static void on_end(void *arg)
{
	struct ask *k = arg;

	k->call = NULL;
	k->is_begun = false;
}

static void ask(struct ask *k, const struct apisrv_user *user, const char *method,
		const char *target, const char *accept, const char *body)
{
	static const struct apisrv_sink sink = {.answer = on_answer,
						.stream_begin = on_begin,
						.stream_write = on_write,
						.stream_end = on_end};
	struct apisrv_request r = {.method = method,
				   .target = target,
				   .accept = accept,
				   .body = body,
				   .n_body = body ? strlen(body) : 0,
				   .user = user};

	memset(k, 0, sizeof(*k));
	struct apisrv_call *c = apisrv_handle(f.srv, &r, &sink, k);

	if (!k->turn)
		k->call = c;
}

static void leave(struct ask *k, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (k[i].call)
			apisrv_cancel(k[i].call);
}

static double metric(const char *line)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(1 << 20);

	apisrv_metrics(f.srv, &b);
	const char *at = strstr(sbuf_str(&b), line);

	if (!at)
		fail_msg("there is no %s", line);
	return at ? strtod(at + strlen(line), NULL) : -1;
}

#define LEVEL(name_, level_) "apiserver_flowcontrol_" name_ "{priority_level=\"" level_ "\"} "
#define REJECTED(level_, reason_)                                                \
	"apiserver_flowcontrol_rejected_requests_total{priority_level=\"" level_ \
	"\",reason=\"" reason_ "\"} "

/* 64 connections that ask at once and again: whoever asks a little is answered at once, and of two who ask much neither
 * waits for the other's queue. */
static void one_who_asks_much_makes_nobody_wait(void **state)
{
	(void)state;
	struct ask a[256], b[64], one, node;
	unsigned last_b = 0, n_before = 0;

	answers = 0;
	for (size_t i = 0; i < ARRAY_SIZE(a); i++)
		ask(&a[i], &anna, "GET", CMS "/c", NULL, NULL);
	assert_int_equal(answers, 32); /* what anna may take of one turn */
	ask(&one, &ben, "GET", CMS "/c", NULL, NULL);
	assert_int_equal(one.turn, 33);
	ask(&node, &fx_controller, "GET", CMS "/c", NULL, NULL);
	assert_int_equal(node.turn, 34);
	for (size_t i = 0; i < ARRAY_SIZE(b); i++)
		ask(&b[i], &ben, "GET", CMS "/c", NULL, NULL);
	assert_int_equal(answers, 34 + 31);
	assert_true(metric(LEVEL("current_inqueue_requests", "admin")) == 256 - 32 + 64 - 31);
	fx_settle(&f);
	assert_int_equal(answers, 256 + 64 + 2);
	for (size_t i = 0; i < ARRAY_SIZE(b); i++)
		last_b = MAX(last_b, b[i].turn);
	for (size_t i = 0; i < ARRAY_SIZE(a); i++)
		n_before += a[i].turn < last_b;
	/* Her share until then is no more than twice his. */
	assert_true(n_before <= 2 * 64 + 32);
	assert_true(metric(LEVEL("current_inqueue_requests", "admin")) == 0);
}

/* Who leaves while he waits is not served, and those behind him are. */
static void a_client_may_leave_while_it_waits(void **state)
{
	(void)state;
	struct ask a[40];

	answers = 0;
	for (size_t i = 0; i < ARRAY_SIZE(a); i++)
		ask(&a[i], &anna, "GET", CMS "/c", NULL, NULL);
	assert_int_equal(answers, 32);
	leave(&a[33], 1);
	leave(&a[39], 1);
	assert_true(metric(LEVEL("current_inqueue_requests", "admin")) == 6);
	fx_settle(&f);
	assert_int_equal(answers, 38);
	assert_int_equal(a[33].status, 0);
	assert_int_equal(a[39].status, 0);
	assert_int_equal(a[38].status, 200);
}

static void components_and_health_never_wait(void **state)
{
	(void)state;
	struct ask a[400], k;

	for (size_t i = 0; i < ARRAY_SIZE(a); i++)
		ask(&a[i], &anna, "GET", SUB "/v/hang", NULL, NULL);
	for (int i = 0; i < 1000; i++) {
		const struct apisrv_user *user = i % 2 ? &fx_controller : &fx_node1;

		ask(&k, user, "GET", i % 2 ? CMS "/c" : "/api/v1/nodes", NULL, NULL);
		assert_int_equal(k.status, 200);
	}
	ask(&k, NULL, "GET", "/healthz", NULL, NULL);
	assert_int_equal(k.status, 200);
	leave(a, ARRAY_SIZE(a));
}

/* Seats that nothing gives back: so many run, so many wait, the rest is refused, and nobody waits for ever. */
static void queues_are_bounded_in_length_and_time(void **state)
{
	(void)state;
	enum { SEATS = 90, N = SEATS + FLOW_QUEUE + 10 };
	struct ask *a = mem_calloc(N, sizeof(*a)), k;
	unsigned full = 0, late = 0;

	assert_non_null(a);
	for (size_t i = 0; i < N; i++) {
		ask(&a[i], &anna, "GET", SUB "/v/hang", NULL, NULL);
		fx_settle(&f);
	}
	assert_true(metric(LEVEL("current_executing_requests", "admin")) == SEATS);
	assert_true(metric(LEVEL("current_inqueue_requests", "admin")) == FLOW_QUEUE);
	for (size_t i = 0; i < N; i++)
		if (a[i].status) {
			assert_int_equal(a[i].status, 429);
			assert_int_equal(a[i].retry_after, 1);
			full++;
		}
	assert_int_equal(full, 10);
	/* Others of the class have seats left. */
	ask(&k, &ben, "GET", CMS "/c", NULL, NULL);
	fx_settle(&f);
	assert_int_equal(k.status, 200);
	/* A queue that stands still says how long it has. */
	fx_sleep(&f, 5 * USEC_PER_SEC);
	ask(&k, &anna, "POST", CMS, NULL, "{\"metadata\":{\"name\":\"d\"}}");
	fx_settle(&f);
	assert_int_equal(k.status, 429);
	assert_int_equal(k.retry_after, 6);
	fx_sleep(&f, 6 * USEC_PER_SEC);
	for (size_t i = 0; i < N; i++)
		late += a[i].status == 429;
	assert_int_equal(late, 10 + FLOW_QUEUE);
	assert_true(metric(REJECTED("admin", "queue-full")) == 11);
	assert_true(metric(REJECTED("admin", "time-out")) == FLOW_QUEUE);
	assert_true(metric("apiserver_dropped_requests_total{request_kind=\"readOnly\"} ") ==
		    10 + FLOW_QUEUE);
	assert_true(metric("apiserver_dropped_requests_total{request_kind=\"mutating\"} ") == 1);
	/* Who leaves gives his seat back. */
	leave(a, N);
	assert_true(metric(LEVEL("current_executing_requests", "admin")) == 0);
	ask(&k, &anna, "GET", CMS "/c", NULL, NULL);
	fx_settle(&f);
	assert_int_equal(k.status, 200);
	mem_free(a);
}

static void make_maps(unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		char body[64];

		snprintf(body, sizeof(body), "{\"metadata\":{\"name\":\"m%u\"}}", i);
		drop(fx_as(&f, &fx_controller, 201, "POST", CMS, body));
	}
}

#define TABLE "application/json;as=Table;v=v1;g=meta.k8s.io"

/* A list costs what it is long: after one large one it is others' turn, as it is between its parts. */
static void lists_cost_by_their_size(void **state)
{
	(void)state;
	struct ask a[8], b[31];

	make_maps(800);
	fx_sleep(&f, USEC_PER_SEC);
	answers = 0;
	for (size_t i = 0; i < ARRAY_SIZE(a); i++)
		ask(&a[i], &anna, "GET", CMS, TABLE, NULL);
	assert_int_equal(answers, 0);
	assert_true(metric(LEVEL("current_inqueue_requests", "admin")) == 7);
	for (size_t i = 0; i < ARRAY_SIZE(b); i++)
		ask(&b[i], &ben, "GET", CMS "/c", NULL, NULL);
	assert_int_equal(answers, 31);
	fx_settle(&f);
	assert_int_equal(answers, 8 + 31);
	/* Pages cost what they are. */
	fx_sleep(&f, USEC_PER_SEC);
	answers = 0;
	for (size_t i = 0; i < ARRAY_SIZE(a); i++)
		ask(&a[i], &anna, "GET", CMS "?limit=8", NULL, NULL);
	assert_int_equal(answers, 8);
}

static void ten_thousand_watches_of_one_user(void **state)
{
	(void)state;
	struct ask *w = mem_calloc(WATCHES, sizeof(*w)), k;
	unsigned begun = 0, refused = 0;

	assert_non_null(w);
	for (size_t i = 0; i < WATCHES; i++) {
		ask(&w[i], &anna, "GET", CMS "?watch=1&resourceVersion=1", NULL, NULL);
		if (i % 16 == 15)
			fx_settle(&f);
	}
	fx_settle(&f);
	for (size_t i = 0; i < WATCHES; i++) {
		begun += w[i].is_begun;
		refused += w[i].status == 429;
		assert_true(w[i].status != 429 ||
			    w[i].retry_after == 3); /* as often one of them ends */
	}
	assert_int_equal(begun, LIMIT_WATCHERS_USER);
	assert_int_equal(refused, WATCHES - LIMIT_WATCHERS_USER);
	assert_true(metric(REJECTED("admin", "too-many-watches")) == refused);
	/* Watches hold no seat, and others may open theirs. */
	assert_true(metric(LEVEL("current_executing_requests", "admin")) == 0);
	ask(&k, &ben, "GET", CMS "?watch=1&resourceVersion=1", NULL, NULL);
	assert_true(k.is_begun);
	leave(&k, 1);
	/* One that ends makes room for one. */
	leave(w, 1);
	memset(&w[0], 0, sizeof(w[0]));
	ask(&k, &anna, "GET", CMS "?watch=1&resourceVersion=1", NULL, NULL);
	fx_settle(&f);
	assert_true(k.is_begun);
	leave(&k, 1);
	leave(w, WATCHES);
	assert_true(metric("apiserver_registered_watchers ") == 0);
	mem_free(w);
}

/* All users together leave some for nodes and controllers. */
static void watches_are_kept_for_components(void **state)
{
	(void)state;
	struct ask *w = mem_calloc(LIMIT_WATCHERS, sizeof(*w)), k;
	char name[16];
	struct apisrv_user user = {.name = name, .n_groups = 1, .groups = readers};
	unsigned begun = 0;

	assert_non_null(w);
	for (size_t i = 0; i < LIMIT_WATCHERS; i++) {
		snprintf(name, sizeof(name), "u%zu", i / 500);
		ask(&w[i], &user, "GET", CMS "?watch=1&resourceVersion=1", NULL, NULL);
		if (i % 16 == 15)
			fx_settle(&f);
	}
	fx_settle(&f);
	for (size_t i = 0; i < LIMIT_WATCHERS; i++)
		begun += w[i].is_begun;
	assert_int_equal(begun, LIMIT_WATCHERS - LIMIT_WATCHERS_KEPT);
	ask(&k, &fx_controller, "GET", CMS "?watch=1&resourceVersion=1", NULL, NULL);
	assert_true(k.is_begun);
	leave(&k, 1);
	leave(w, LIMIT_WATCHERS);
	mem_free(w);
}

/* As many writes wait for the disk as the store takes: a collection waits with the rest of its deletions. */
static void a_collection_never_ends_half_way(void **state)
{
	(void)state;
	enum { MANY = 20000, MAPS = 300 };
	struct ask *w = mem_calloc(MANY, sizeof(*w)), gone;
	char body[64];
	unsigned busy = 0;

	assert_non_null(w);
	make_maps(MAPS);
	for (unsigned i = 0; i < MANY; i++) {
		snprintf(body, sizeof(body), "{\"metadata\":{\"name\":\"x%u\"}}", i);
		ask(&w[i], &fx_controller, "POST", "/api/v1/namespaces/kube-public/configmaps",
		    NULL, body);
		if (i == MANY - 40)
			ask(&gone, &anna, "DELETE", CMS, NULL, NULL);
	}
	fx_settle(&f);
	for (unsigned i = 0; i < MANY; i++)
		busy += w[i].status == 429;
	assert_true(busy > 0); /* the store was full indeed */
	fx_sleep(&f, 2 * USEC_PER_SEC);
	assert_int_equal(gone.status, 200);
	struct json *left = fx_do(&f, 200, "GET", CMS, NULL);

	assert_int_equal(js_len(js_get(left, "items")), 0);
	js_unref(left);
	mem_free(w);
}

static void users_that_are_gone_are_forgotten(void **state)
{
	(void)state;
	char name[32];
	struct apisrv_user user = {.name = name, .n_groups = 1, .groups = readers};
	struct ask k;
	size_t before = 0, after;

	for (int i = 0; i < 20000; i++) {
		snprintf(name, sizeof(name), "visitor-%d", i);
		ask(&k, &user, "GET", CMS "/c", NULL, NULL);
		assert_int_equal(k.status, 200);
		if (i == 1000)
			before = mem_live_blocks();
	}
	after = mem_live_blocks();
	assert_true(after < before + 2000);
}

int main(void)
{
#define T(fn_) cmocka_unit_test_setup_teardown(fn_, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(one_who_asks_much_makes_nobody_wait),
		T(a_client_may_leave_while_it_waits),
		T(components_and_health_never_wait),
		T(queues_are_bounded_in_length_and_time),
		T(lists_cost_by_their_size),
		T(ten_thousand_watches_of_one_user),
		T(watches_are_kept_for_components),
		T(a_collection_never_ends_half_way),
		T(users_that_are_gone_are_forgotten),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("flow", tests, NULL, NULL);
}
