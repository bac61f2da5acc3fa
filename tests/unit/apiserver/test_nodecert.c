/* A node's way to a new certificate: its own, with the names that it had, and nothing that it wishes for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/str.h"
#include "fixture.h"
#include "pki/pki.h"

#define CERT  "/api/v1/nodes/node-1/certificate"
#define OTHER "/api/v1/nodes/node-2/certificate"
#define DAY   ((usec_t)86400 * USEC_PER_SEC)

static struct fx f;
static struct pki_pair ca, ca2;
static char *csr, *key;
static usec_t now;

static int make_keys(void **state)
{
	struct loop *l = NULL;

	(void)state;
	assert_int_equal(loop_new(&l, LOOP_VIRTUAL, NULL), RC_OK);
	now = loop_realtime(l);
	loop_free(l);
	assert_int_equal(pki_ca_new(&ca, "ferry", now, 3650 * DAY, NULL), RC_OK);
	assert_int_equal(pki_ca_new(&ca2, "ferry", now, 3650 * DAY, NULL), RC_OK);
	/* it wishes to be an administrator */
	assert_int_equal(pki_csr_new(&csr, &key, "kubernetes-admin", NULL), RC_OK);
	return 0;
}

static int drop_keys(void **state)
{
	(void)state;
	pki_pair_fini(&ca);
	pki_pair_fini(&ca2);
	mem_free(csr);
	mem_free(key);
	return 0;
}

static size_t blocks_before;

static int setup(void **state)
{
	(void)state;
	blocks_before = mem_live_blocks();
	fx_up_with_roles(&f, NULL);
	assert_int_equal(apisrv_set_ca(f.srv, ca.cert), RC_OK);
	assert_int_equal(apisrv_set_signer(f.srv, ca.cert, ca.key), RC_OK);
	drop(fx_do(&f, 201, "POST", "/api/v1/nodes", "{\"metadata\":{\"name\":\"node-1\"}}"));
	drop(fx_do(&f, 201, "POST", "/api/v1/nodes", "{\"metadata\":{\"name\":\"node-2\"}}"));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	f.srv = apisrv_free(f.srv);
	f.store = store_close(f.store);
	f.loop = loop_free(f.loop);
	assert_int_equal(mem_live_blocks(), blocks_before);
	return 0;
}

/* A certificate as `ferry-apiserver issue` makes it; the caller's. */
static char *issued(const struct pki_pair *by, const char *cn, usec_t from, usec_t life)
{
	static const char *const orgs[] = {"system:nodes"}, *const sans[] = {"192.0.2.1", "node-1"};
	struct pki_pair p = {0};
	const struct pki_request req = {.cn = cn,
					.orgs = orgs,
					.n_orgs = 1,
					.sans = sans,
					.n_sans = 2,
					.use = PKI_CLIENT | PKI_SERVER,
					.validity = life};

	assert_int_equal(pki_issue(&p, by, &req, from, NULL), RC_OK);
	char *cert = STEAL(p.cert);

	pki_pair_fini(&p);
	return cert;
}

static struct json *ask(const struct apisrv_user *user, int want, const char *target,
			const char *request, const char *old)
{
	CLEANUP(js_unrefp)
	struct json *j = js_pack("{s:s*, s:s*}", "request", request, "certificate", old);
	CLEANUP(mem_freep) char *body = js_to_text(j);

	return fx_as(&f, user, want, "POST", target, body);
}

static void a_node_gets_what_it_had_for_a_new_key(void **state)
{
	(void)state;
	CLEANUP(mem_freep) char *old = issued(&ca, "system:node:node-1", now, DAY);
	struct json *j = ask(&fx_node1, 201, CERT, csr, old);
	const char *cert = js_get_str(j, "certificate");
	struct pki_info i = {0};

	assert_string_equal(js_get_str(j, "ca"), ca.cert);
	assert_int_equal(pki_verify(cert, ca.cert, PKI_CLIENT | PKI_SERVER, now, NULL), RC_OK);
	assert_int_equal(pki_inspect(&i, cert, NULL), RC_OK);
	assert_string_equal(i.cn, "system:node:node-1");
	assert_int_equal(i.n_orgs, 1);
	assert_string_equal(i.orgs[0], "system:nodes");
	assert_int_equal(i.n_sans, 2);
	assert_string_equal(i.sans[0], "192.0.2.1");
	assert_string_equal(i.sans[1], "node-1");
	assert_false(i.is_ca);
	assert_true(i.not_after > now + 364 * DAY);
	pki_info_fini(&i);
	drop(j);
	j = fx_as(&f, &fx_node1, 200, "GET", CERT, NULL);
	assert_string_equal(js_get_str(j, "ca"), ca.cert);
	drop(j);
}

static void nobody_gets_one_for_another(void **state)
{
	(void)state;
	CLEANUP(mem_freep) char *old = issued(&ca, "system:node:node-1", now, DAY);
	CLEANUP(mem_freep) char *other = issued(&ca, "system:node:node-2", now, DAY);
	struct json *j = ask(&fx_node1, 403, OTHER, csr, other);

	assert_non_null(strstr(js_get_str(j, "message"),
			       "only the node itself has to do with its certificate"));
	drop(j);
	drop(ask(&fx_admin, 403, CERT, csr, old));
	drop(ask(&fx_controller, 403, CERT, csr, old));
	drop(ask(&fx_nobody, 403, CERT, csr, old));
	drop(fx_as(&f, &fx_node1, 403, "GET", OTHER, NULL));
	/* nor itself with another's names */
	j = ask(&fx_node1, 403, CERT, csr, other);
	assert_non_null(
		strstr(js_get_str(j, "message"), "the certificate is not that of the node"));
	drop(j);
}

static void what_is_not_right_is_refused(void **state)
{
	(void)state;
	CLEANUP(mem_freep) char *old = issued(&ca, "system:node:node-1", now, DAY);
	CLEANUP(mem_freep) char *strange = issued(&ca2, "system:node:node-1", now, DAY);
	CLEANUP(mem_freep) char *over = issued(&ca, "system:node:node-1", now - 2 * DAY, DAY);
	CLEANUP(mem_freep) char *huge = mem_printf("%020000d", 0);
	CLEANUP(mem_freep) char *broken = mem_strdup(csr);

	broken[strlen(broken) / 2] = broken[strlen(broken) / 2] == 'A' ? 'B' : 'A';
	const struct {
		const char *request, *old;
		int status;
	} rows[] = {
		{csr, NULL, 400},   {csr, "", 400},	 {csr, "x", 403},  {csr, strange, 403},
		{csr, over, 403},   {NULL, old, 400},	 {"", old, 400},   {"x", old, 400},
		{broken, old, 400}, {ca.cert, old, 400}, {huge, old, 400}, {csr, huge, 400},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		drop(ask(&fx_node1, rows[i].status, CERT, rows[i].request, rows[i].old));
	drop(fx_as(&f, &fx_node1, 400, "POST", CERT, "[]"));
	drop(fx_as(&f, &fx_node1, 403, "DELETE", CERT, NULL));
	/* a node that was removed has no way back */
	drop(fx_do(&f, 200, "DELETE", "/api/v1/nodes/node-1", NULL));
	drop(ask(&fx_node1, 404, CERT, csr, old));
}

static void two_authorities_overlap(void **state)
{
	(void)state;
	CLEANUP(mem_freep) char *both = mem_printf("%s%s", ca2.cert, ca.cert);
	CLEANUP(mem_freep) char *old = issued(&ca, "system:node:node-1", now, 365 * DAY);

	assert_int_equal(apisrv_set_ca(f.srv, both), RC_OK);
	assert_int_equal(apisrv_set_signer(f.srv, ca2.cert, ca2.key), RC_OK);
	assert_int_equal(pki_verify(old, both, PKI_CLIENT, now, NULL), RC_OK);
	assert_true(pki_needs_rotation(old, both, now)); /* the first one signs now */
	struct json *j = ask(&fx_node1, 201, CERT, csr, old);
	const char *cert = js_get_str(j, "certificate");

	assert_string_equal(js_get_str(j, "ca"), both);
	assert_int_equal(pki_verify(cert, ca2.cert, PKI_CLIENT, now, NULL), RC_OK);
	assert_int_equal(pki_verify(cert, ca.cert, PKI_CLIENT, now, NULL), RC_UNAUTHORIZED);
	assert_false(pki_needs_rotation(cert, both, now));
	drop(j);
	/* and then the old one is gone */
	assert_int_equal(apisrv_set_ca(f.srv, ca2.cert), RC_OK);
	drop(ask(&fx_node1, 403, CERT, csr, old));
}

int main(void)
{
#define T(fn_) cmocka_unit_test_setup_teardown(fn_, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(a_node_gets_what_it_had_for_a_new_key),
		T(nobody_gets_one_for_another),
		T(what_is_not_right_is_refused),
		T(two_authorities_overlap),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("nodecert", tests, make_keys, drop_keys);
}
