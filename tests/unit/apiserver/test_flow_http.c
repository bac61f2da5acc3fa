/* Over HTTPS: 64 connections of one user at full speed, and how much of that another one's request waits for. */
#include <stdio.h>
#include <stdlib.h>

#include "../http/raw.h"

#include "base/file.h"
#include "base/mem.h"
#include "cluster/apiserver/apisrv.h"
#include "cluster/apiserver/front.h"
#include "cluster/apiserver/store.h"
#include "json/json.h"
#include "pki/pki.h"

#define CMS   "/api/v1/namespaces/default/configmaps"
#define TABLE "Accept: application/json;as=Table;v=v1;g=meta.k8s.io\r\n"

enum { CONNECTIONS = 64, OBJECTS = 200, ROUNDS = 20 };

static void issue(const struct pki_pair *ca, const char *dir, const char *cn, unsigned use,
		  usec_t now)
{
	static const char *const orgs[] = {"system:masters"}, *const sans[] = {"127.0.0.1"};
	CLEANUP(pki_pair_fini) struct pki_pair p = {0};
	struct pki_request req = {.cn = cn, .use = use, .validity = 3600 * USEC_PER_SEC};

	if (use == PKI_CLIENT) {
		req.orgs = orgs;
		req.n_orgs = 1;
	} else {
		req.sans = sans;
		req.n_sans = 1;
	}
	assert_int_equal(pki_issue(&p, ca, &req, now, NULL), RC_OK);
	assert_int_equal(pki_save(&p, dir, cn, NULL), RC_OK);
}

static void join(struct raw *w, struct fixture *f, uint16_t port, const char *cn)
{
	char crt[128], key[128];

	snprintf(crt, sizeof(crt), "%s/%s.crt", f->dir, cn);
	snprintf(key, sizeof(key), "%s/%s.key", f->dir, cn);
	raw_connect(w, f, port, NULL);
	assert_true(raw_handshake(w, crt, key, NULL));
}

static void forget(struct raw *w)
{
	w->n = 0;
	memset(w->seen, 0, sizeof(w->seen));
}

static void make_objects(struct raw *w)
{
	char text[256], body[96];

	for (int i = 0; i < OBJECTS; i++) {
		int n = snprintf(body, sizeof(body), "{\"metadata\":{\"name\":\"c%d\"}}", i);

		snprintf(text, sizeof(text),
			 "POST " CMS " HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
			 "Content-Length: %d\r\n\r\n%s",
			 n, body);
		forget(w);
		raw_sends(w, text);
		assert_true(raw_wait(w, "201 Created", 10 * USEC_PER_SEC));
	}
	forget(w);
}

static void another_waits_for_a_few_of_them(void **state)
{
	CLEANUP(pki_pair_fini) struct pki_pair ca = {0};
	struct fixture f = {.dir = "/tmp/ferry-flow-XXXXXX"};
	struct store *store = NULL;
	struct apisrv *srv = NULL;
	struct front *front = NULL;
	struct raw *w = mem_calloc(CONNECTIONS, sizeof(*w)), *ben = mem_calloc(1, sizeof(*ben));
	char crt[128], key[128], ca_file[128];
	unsigned most = 0;

	(void)state;
	assert_non_null(mkdtemp(f.dir));
	assert_int_equal(loop_new(&f.loop, LOOP_REAL, NULL), RC_OK);
	usec_t now = loop_realtime(f.loop);

	assert_int_equal(pki_ca_new(&ca, "ca", now, 3600 * USEC_PER_SEC, NULL), RC_OK);
	assert_int_equal(pki_save(&ca, f.dir, "ca", NULL), RC_OK);
	issue(&ca, f.dir, "server", PKI_SERVER, now);
	issue(&ca, f.dir, "eve", PKI_CLIENT, now);
	issue(&ca, f.dir, "ben", PKI_CLIENT, now);
	snprintf(crt, sizeof(crt), "%s/server.crt", f.dir);
	snprintf(key, sizeof(key), "%s/server.key", f.dir);
	snprintf(ca_file, sizeof(ca_file), "%s/ca.crt", f.dir);
	assert_int_equal(store_open(&store, f.loop, NULL, NULL), RC_OK);
	struct apisrv_config ac = {.store = store};
	struct front_config fc = {
		.address = "127.0.0.1", .cert_file = crt, .key_file = key, .ca_file = ca_file};

	assert_int_equal(apisrv_new(&srv, f.loop, &ac, NULL), RC_OK);
	assert_int_equal(front_new(&front, f.loop, srv, &fc, NULL), RC_OK);
	join(ben, &f, front_port(front), "ben");
	make_objects(ben);
	for (int i = 0; i < CONNECTIONS; i++)
		join(&w[i], &f, front_port(front), "eve");
	for (int round = 0; round < ROUNDS; round++) {
		unsigned lists = 0;
		usec_t end = loop_now(f.loop) + 20 * USEC_PER_SEC;

		for (int i = 0; i < CONNECTIONS; i++) {
			forget(&w[i]);
			raw_sends(&w[i],
				  "GET " CMS "?includeObject=None HTTP/1.1\r\nHost: a\r\n" TABLE
				  "\r\n");
		}
		forget(ben);
		raw_sends(ben, "GET " CMS "/c1 HTTP/1.1\r\nHost: a\r\n\r\n");
		assert_true(raw_wait(ben, "\"name\":\"c1\"", 20 * USEC_PER_SEC));
		for (int i = 0; i < CONNECTIONS; i++) /* what is here already, no more */
			lists += raw_has(&w[i]);
		most = MAX(most, lists);
		for (int i = 0; i < CONNECTIONS; i++)
			assert_true(raw_wait(&w[i], "\"c99\"", end - loop_now(f.loop)));
	}
	print_message("         lists served before another's request: %u of %u at most\n", most,
		      CONNECTIONS);
	assert_true(most <= 16);
	for (int i = 0; i < CONNECTIONS; i++)
		raw_close(&w[i]);
	raw_close(ben);
	front_free(front);
	apisrv_free(srv);
	store_close(store);
	loop_free(f.loop);
	assert_int_equal(file_remove_tree(f.dir, NULL), RC_OK);
	mem_free(w);
	mem_free(ben);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(another_waits_for_a_few_of_them),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("flow_http", tests, NULL, NULL);
}
