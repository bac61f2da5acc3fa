#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/mem.h"
#include "pki/pki.h"

static void make_certificates(struct fixture *f)
{
	static const char *const sans[] = {"127.0.0.1", "localhost"};
	static const char *const orgs[] = {"team-a", "team-b"};
	CLEANUP(pki_pair_fini) struct pki_pair ca = {0}, other = {0}, p = {0};
	struct pki_request req = {.cn = "server",
				  .sans = sans,
				  .n_sans = 2,
				  .use = PKI_SERVER,
				  .validity = 3600 * USEC_PER_SEC};
	usec_t now = loop_realtime(f->loop);

	assert_int_equal(pki_ca_new(&ca, "test-ca", now, req.validity, NULL), RC_OK);
	/* The same name, so that clients offer the stranger's certificate. */
	assert_int_equal(pki_ca_new(&other, "test-ca", now, req.validity, NULL), RC_OK);
	assert_int_equal(pki_save(&ca, f->dir, "ca", NULL), RC_OK);
	assert_int_equal(pki_issue(&p, &ca, &req, now, NULL), RC_OK);
	assert_int_equal(pki_save(&p, f->dir, "server", NULL), RC_OK);
	pki_pair_fini(&p);
	req.cn = "alice";
	req.orgs = orgs;
	req.n_orgs = 2;
	req.n_sans = 0;
	req.use = PKI_CLIENT;
	assert_int_equal(pki_issue(&p, &ca, &req, now, NULL), RC_OK);
	assert_int_equal(pki_save(&p, f->dir, "user", NULL), RC_OK);
	pki_pair_fini(&p);
	assert_int_equal(pki_issue(&p, &other, &req, now, NULL), RC_OK);
	assert_int_equal(pki_save(&p, f->dir, "stranger", NULL), RC_OK);
}

static void dispatch(struct http_req *r, void *arg)
{
	struct fixture *f = arg;

	f->handler(r, f->arg);
}

struct http_client *fixture_client(struct fixture *f, const char *cert, const char *key)
{
	struct http_client_config config = {.ca_file = f->ca, .cert_file = cert, .key_file = key};
	struct http_client *c = NULL;

	assert_int_equal(http_client_new(&c, f->loop, &config, NULL), RC_OK);
	return c;
}

int fixture_setup(void **state)
{
	struct fixture *f = mem_alloc(sizeof(*f));

	strcpy(f->dir, "/tmp/ferry-http-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	assert_int_equal(loop_new(&f->loop, LOOP_REAL, NULL), RC_OK);
	snprintf(f->ca, sizeof(f->ca), "%s/ca.crt", f->dir);
	snprintf(f->crt, sizeof(f->crt), "%s/server.crt", f->dir);
	snprintf(f->key, sizeof(f->key), "%s/server.key", f->dir);
	snprintf(f->user_crt, sizeof(f->user_crt), "%s/user.crt", f->dir);
	snprintf(f->user_key, sizeof(f->user_key), "%s/user.key", f->dir);
	snprintf(f->stranger_crt, sizeof(f->stranger_crt), "%s/stranger.crt", f->dir);
	snprintf(f->stranger_key, sizeof(f->stranger_key), "%s/stranger.key", f->dir);
	make_certificates(f);
	struct http_server_config config = {.address = "127.0.0.1",
					    .cert_file = f->crt,
					    .key_file = f->key,
					    .ca_file = f->ca,
					    .body_max = 100000,
					    .handler = dispatch,
					    .arg = f};
	struct err err = {0};

	if (http_server_new(&f->server, f->loop, &config, &err))
		fail_msg("%s", err.msg);
	f->client = fixture_client(f, f->user_crt, f->user_key);
	*state = f;
	return 0;
}

int fixture_teardown(void **state)
{
	struct fixture *f = *state;

	http_client_free(f->client);
	http_server_free(f->server);
	loop_free(f->loop);
	assert_int_equal(file_remove_tree(f->dir, NULL), RC_OK);
	mem_free(f);
	return 0;
}

const char *fixture_url(const struct fixture *f, const char *path)
{
	static char url[512];

	snprintf(url, sizeof(url), "https://127.0.0.1:%u%s", http_server_port(f->server), path);
	return url;
}

void fixture_wait(struct fixture *f, const bool *flag)
{
	usec_t end = loop_now(f->loop) + 2 * USEC_PER_SEC;

	while (!*flag) {
		if (loop_now(f->loop) > end)
			fail_msg("nothing happened for two seconds");
		assert_int_equal(loop_step(f->loop, 50 * USEC_PER_MSEC, NULL, NULL), RC_OK);
	}
}

void fixture_run_for(struct fixture *f, usec_t time)
{
	usec_t end = loop_now(f->loop) + time;

	while (loop_now(f->loop) < end)
		assert_int_equal(loop_step(f->loop, USEC_PER_MSEC, NULL, NULL), RC_OK);
}

void got_done(const struct http_result *r, void *arg)
{
	struct got *g = arg;

	g->done = true;
	g->times++;
	g->rc = r->rc;
	g->status = r->status;
	g->n = r->n;
	snprintf(g->body, sizeof(g->body), "%s", r->body);
	snprintf(g->text, sizeof(g->text), "%s", r->err ? r->err->msg : "");
	snprintf(g->warning, sizeof(g->warning), "%s", r->warning ? r->warning : "");
}

void fixture_get(struct fixture *f, struct http_client *c, const char *path, struct got *out)
{
	struct http_call call = {.url = fixture_url(f, path), .done = got_done, .arg = out};
	struct http_slot *slot = NULL;

	memset(out, 0, sizeof(*out));
	assert_int_equal(http_call(c, &slot, &call, NULL), RC_OK);
	assert_false(out->done); /* never from inside the call */
	fixture_wait(f, &out->done);
	assert_int_equal(out->times, 1);
	http_slot_free(slot);
}

void fixture_with_faults(struct fixture *f, bool (*talk)(struct fixture *f, unsigned nth),
			 unsigned at_least)
{
	struct http_server_stats stats;
	unsigned nth = 1;

	while (talk(f, nth))
		nth++;
	assert_true(nth > at_least);
	fixture_run_for(f, 20 * USEC_PER_MSEC);
	http_server_stats(f->server, &stats);
	assert_int_equal(stats.open_websockets, 0);
	assert_int_equal(stats.open_requests, 0);
}
