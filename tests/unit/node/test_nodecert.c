/* A node's certificate: renewed when it is due, and whole after a crash. */
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
#include "cluster/podruntime/nodecert.h"
#include "ev/ev.h"
#include "json/json.h"
#include "kube/kube.h"
#include "pki/pki.h"

#define DAY ((usec_t)86400 * USEC_PER_SEC)

static struct loop *loop;
static struct kube *kube;
static struct pki_pair ca, other;
static const struct pki_pair *signer; /* whom the server has sign */
static const char *trusted;	      /* what it says is to be trusted */
static char dir[64];
static unsigned gets, posts, changes;
static bool is_down;

/* ---- an API server -------------------------------------------------------------------------------- */

struct op {
	struct ev_src *src;
	kube_done_fn fn;
	void *arg;
	char *text;
	int status;
};

static void answer(void *arg)
{
	struct op *op = arg;
	const struct kube_response r = {.rc = op->status ? RC_OK : RC_CLOSED,
					.status = op->status,
					.body = op->text ? op->text : "",
					.n_body = op->text ? strlen(op->text) : 0};

	op->fn(&r, op->arg);
	ev_src_free(op->src);
	mem_free(op->text);
	mem_free(op);
}

static char *signed_for(const char *body, size_t n)
{
	const struct pki_request req = {
		.cn = "system:node:n1", .use = PKI_CLIENT | PKI_SERVER, .validity = 365 * DAY};
	CLEANUP(js_unrefp) struct json *j = NULL, *out = NULL;
	CLEANUP(mem_freep) char *cert = NULL;

	assert_int_equal(js_parse(body, n, &j, NULL), RC_OK);
	assert_non_null(js_get_str(j, "certificate"));
	assert_int_equal(pki_issue_for(&cert, signer, js_get_str(j, "request"), &req,
				       loop_realtime(loop), NULL),
			 RC_OK);
	out = js_pack("{s:s, s:s}", "certificate", cert, "ca", trusted);
	return js_to_text(out);
}

static enum rc request(void *ctx, const struct kube_request *rq, kube_done_fn fn, void *arg,
		       void **handle, struct err *err)
{
	struct op *op = mem_alloc(sizeof(*op));
	bool is_post = strcmp(rq->method, "POST") == 0;

	(void)ctx;
	assert_string_equal(rq->path, "/api/v1/nodes/n1/certificate");
	*(is_post ? &posts : &gets) += 1;
	op->fn = fn;
	op->arg = arg;
	if (!is_down) {
		CLEANUP(js_unrefp) struct json *j = js_pack("{s:s}", "ca", trusted);

		op->status = is_post ? 201 : 200;
		op->text = is_post ? signed_for(rq->body, rq->n_body) : js_to_text(j);
	}
	*handle = op;
	return ev_defer(loop, &op->src, answer, op, err);
}

static void cancel(void *ctx, void *handle)
{
	struct op *op = handle;

	(void)ctx;
	ev_src_free(op->src);
	mem_free(op->text);
	mem_free(op);
}

static const struct kube_transport transport = {.request = request, .cancel = cancel};

/* ---- helpers ------------------------------------------------------------------------------------------ */

static int setup(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/ferry-nodecert-XXXXXX");
	assert_non_null(mkdtemp(dir));
	assert_int_equal(loop_new(&loop, LOOP_VIRTUAL, NULL), RC_OK);
	assert_int_equal(kube_new_over(&kube, loop, &transport, NULL, NULL), RC_OK);
	usec_t now = loop_realtime(loop);

	assert_int_equal(pki_ca_new(&ca, "ferry", now, 3650 * DAY, NULL), RC_OK);
	assert_int_equal(pki_ca_new(&other, "ferry", now, 3650 * DAY, NULL), RC_OK);
	signer = &ca;
	trusted = ca.cert;
	gets = posts = changes = 0;
	is_down = false;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	kube_free(kube);
	loop_free(loop);
	pki_pair_fini(&ca);
	pki_pair_fini(&other);
	assert_int_equal(file_remove_tree(dir, NULL), RC_OK);
	assert_int_equal(mem_live_blocks(), 0);
	return 0;
}

static void write_text(const char *name, const char *text)
{
	CLEANUP(mem_freep) char *path = mem_printf("%s/%s", dir, name);

	assert_int_equal(file_write_durable(path, text, strlen(text), 0600, NULL), RC_OK);
}

static char *read_text(const char *name)
{
	CLEANUP(mem_freep) char *path = mem_printf("%s/%s", dir, name);
	char *text = NULL;
	size_t n;

	assert_int_equal(file_read(path, 1 << 20, &text, &n, NULL), RC_OK);
	return text;
}

/* As by hand: good from now on for life. */
static void join(usec_t life)
{
	CLEANUP(pki_pair_fini) struct pki_pair p = {0};
	const struct pki_request req = {
		.cn = "system:node:n1", .use = PKI_CLIENT | PKI_SERVER, .validity = life};

	assert_int_equal(pki_issue(&p, &ca, &req, loop_realtime(loop), NULL), RC_OK);
	assert_int_equal(pki_save(&p, dir, "tls", NULL), RC_OK);
	write_text("ca.crt", ca.cert);
}

static void on_changed(void *arg)
{
	(void)arg;
	changes++;
}

static struct nodecert *keeper(void)
{
	const struct nodecert_config config = {
		.loop = loop, .kube = kube, .name = "n1", .dir = dir, .changed = on_changed};
	struct nodecert *c = NULL;

	assert_int_equal(nodecert_new(&c, &config, NULL), RC_OK);
	return c;
}

static void on_pass(void *arg)
{
	*(bool *)arg = true;
}

static void pass(usec_t t)
{
	struct ev_src *timer = NULL;
	bool done = false;

	assert_int_equal(ev_timer_after(loop, &timer, t, on_pass, &done, NULL), RC_OK);
	while (!done)
		assert_int_equal(loop_step(loop, USEC_INFINITY, NULL, NULL), RC_OK);
	ev_src_free(timer);
}

static void assert_whole(void)
{
	CLEANUP(pki_pair_fini) struct pki_pair now = {0}, next = {0};

	assert_int_equal(pki_load(&now, dir, "tls", NULL), RC_OK);
	assert_int_equal(pki_load(&next, dir, "next", NULL), RC_NOT_FOUND);
}

/* ---- tests -------------------------------------------------------------------------------------------- */

static void it_is_renewed_when_a_third_is_left(void **state)
{
	(void)state;
	join(90 * DAY);
	CLEANUP(mem_freep) char *old = read_text("tls.crt");
	struct nodecert *c = keeper();

	pass(59 * DAY);
	assert_int_equal(posts, 0);
	assert_true(gets >= 59 * 24); /* the authorities are looked at each hour */
	pass(2 * DAY);
	assert_int_equal(posts, 1);
	assert_int_equal(changes, 1);
	CLEANUP(mem_freep) char *now = read_text("tls.crt");

	assert_string_not_equal(now, old);
	assert_whole();
	pass(100 * DAY);
	assert_int_equal(posts, 1);
	nodecert_free(c);
}

static void a_short_one_is_renewed_in_time(void **state)
{
	(void)state;
	join(120 * USEC_PER_SEC);
	struct nodecert *c = keeper();

	pass(30 * USEC_PER_SEC);
	assert_int_equal(posts, 0);
	pass(60 * USEC_PER_SEC);
	assert_int_equal(posts, 1);
	nodecert_free(c);
}

static void a_server_that_is_down_is_asked_again(void **state)
{
	(void)state;
	join(20 * USEC_PER_SEC);
	is_down = true;
	struct nodecert *c = keeper();

	pass(150 * USEC_PER_SEC);
	assert_int_equal(gets, 3);
	is_down = false;
	pass(60 * USEC_PER_SEC);
	assert_int_equal(posts, 1);
	assert_int_equal(changes, 1);
	nodecert_free(c);
}

static void another_authority_is_followed(void **state)
{
	(void)state;
	join(365 * DAY);
	CLEANUP(mem_freep) char *both = mem_printf("%s%s", ca.cert, other.cert);
	CLEANUP(mem_freep) char *turned = mem_printf("%s%s", other.cert, ca.cert);
	struct nodecert *c = keeper();

	pass(USEC_PER_SEC);
	trusted = both;
	pass(3600 * USEC_PER_SEC);
	CLEANUP(mem_freep) char *first = read_text("ca.crt");

	assert_string_equal(first, both);
	assert_int_equal(changes, 1);
	assert_int_equal(posts, 0); /* the old one signs */
	trusted = turned;
	signer = &other;
	pass(3600 * USEC_PER_SEC);
	assert_int_equal(posts, 1);
	CLEANUP(mem_freep) char *cert = read_text("tls.crt");

	assert_int_equal(pki_verify(cert, other.cert, PKI_CLIENT, loop_realtime(loop), NULL),
			 RC_OK);
	nodecert_free(c);
}

static void what_does_not_verify_is_not_taken(void **state)
{
	(void)state;
	join(20 * USEC_PER_SEC);
	CLEANUP(mem_freep) char *old = read_text("tls.crt");

	signer = &other; /* and it says that ca is to be trusted */
	struct nodecert *c = keeper();

	pass(USEC_PER_SEC);
	assert_int_equal(posts, 1);
	assert_int_equal(changes, 0);
	CLEANUP(mem_freep) char *now = read_text("tls.crt");

	assert_string_equal(now, old);
	nodecert_free(c);
}

static void what_a_crash_cut_short_is_finished(void **state)
{
	CLEANUP(pki_pair_fini) struct pki_pair next = {0};
	struct err err = {0};

	(void)state;
	join(365 * DAY);
	assert_int_equal(nodecert_recover(dir, NULL), RC_OK);
	assert_int_equal(pki_ca_new(&next, "x", loop_realtime(loop), DAY, NULL), RC_OK);
	/* the key is there, the certificate not yet */
	write_text("tls.key", next.key);
	assert_int_not_equal(nodecert_recover(dir, &err), RC_OK);
	assert_non_null(strstr(err.msg, "do not belong together"));
	assert_int_equal(pki_save(&next, dir, "next", NULL), RC_OK);
	assert_int_equal(nodecert_recover(dir, NULL), RC_OK);
	assert_whole();
	CLEANUP(mem_freep) char *cert = read_text("tls.crt");

	assert_string_equal(cert, next.cert);
	/* one that was never begun to be put in place is dropped */
	assert_int_equal(pki_save(&next, dir, "next", NULL), RC_OK);
	assert_int_equal(nodecert_recover(dir, NULL), RC_OK);
	assert_whole();
}

int main(void)
{
#define T(fn_) cmocka_unit_test_setup_teardown(fn_, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(it_is_renewed_when_a_third_is_left),	 T(a_short_one_is_renewed_in_time),
		T(a_server_that_is_down_is_asked_again), T(another_authority_is_followed),
		T(what_does_not_verify_is_not_taken),	 T(what_a_crash_cut_short_is_finished),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("nodecert", tests, NULL, NULL);
}
