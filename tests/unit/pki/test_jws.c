/* Signed JSON: what is signed opens again, and nothing else does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/b64.h"
#include "base/mem.h"
#include "json/json.h"
#include "lib/torture.h"
#include "pki/jws.h"
#include "pki/pki.h"

static const usec_t NOW = (usec_t)1767225600 * USEC_PER_SEC;
static struct pki_pair pair;
static struct pki_jws_key *signer;

static int setup(void **state)
{
	(void)state;
	assert_int_equal(pki_ca_new(&pair, "sa", NOW, USEC_PER_SEC, NULL), RC_OK);
	assert_int_equal(pki_jws_key_new(&signer, pair.cert, pair.key, NULL), RC_OK);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	signer = pki_jws_key_free(signer);
	pki_pair_fini(&pair);
	return 0;
}

/* Each 256th number of a signature begins with a zero byte, and each second one with a high bit. */
static void signatures_have_one_length(void **state)
{
	(void)state;
	for (int64_t i = 0; i < 400; i++) {
		CLEANUP(js_unrefp) struct json *claims = js_pack("{s:I}", "n", i), *back = NULL;
		CLEANUP(mem_freep) char *text = NULL;
		CLEANUP(mem_freep) char *raw = NULL;
		size_t n = 0;

		assert_int_equal(pki_jws_sign(signer, claims, &text, NULL), RC_OK);
		assert_int_equal(b64_decode(strrchr(text, '.') + 1, true, &raw, &n), RC_OK);
		assert_int_equal(n, 64);
		assert_int_equal(pki_jws_open(text, &signer, 1, &back, NULL), RC_OK);
		assert_true(js_equal(claims, back));
	}
}

static void any_changed_letter_is_found(void **state)
{
	CLEANUP(js_unrefp) struct json *claims = js_pack("{s:s}", "sub", "somebody");
	CLEANUP(mem_freep) char *text = NULL;

	(void)state;
	assert_int_equal(pki_jws_sign(signer, claims, &text, NULL), RC_OK);
	/* of the last one some bits carry nothing */
	for (size_t i = 0; text[i + 1]; i++) {
		CLEANUP(js_unrefp) struct json *back = NULL;
		char was = text[i];

		text[i] = was == 'A' ? 'B' : 'A';
		assert_int_equal(pki_jws_open(text, &signer, 1, &back, NULL), RC_UNAUTHORIZED);
		assert_null(back);
		text[i] = was;
	}
}

static void what_only_checks_does_not_sign(void **state)
{
	CLEANUP(pki_jws_key_freep) struct pki_jws_key *k = NULL;
	CLEANUP(js_unrefp) struct json *claims = js_new_object();
	CLEANUP(mem_freep) char *text = NULL;

	(void)state;
	assert_int_equal(pki_jws_key_new(&k, pair.cert, NULL, NULL), RC_OK);
	assert_string_equal(pki_jws_key_id(k), pki_jws_key_id(signer));
	assert_int_equal(pki_jws_sign(k, claims, &text, NULL), RC_INVALID);
	assert_null(text);
}

static enum rc sign_and_open(void)
{
	CLEANUP(pki_jws_key_freep) struct pki_jws_key *k = NULL;
	CLEANUP(js_unrefp) struct json *claims = NULL, *back = NULL, *jwk = NULL;
	CLEANUP(mem_freep) char *text = NULL;
	enum rc rc = pki_jws_key_new(&k, pair.cert, pair.key, NULL);

	if (rc)
		return rc;
	claims = js_pack("{s:s}", "a", "b");
	jwk = pki_jws_key_public(k);
	if (!claims || !jwk)
		return RC_NOMEM;
	rc = pki_jws_sign(k, claims, &text, NULL);
	return rc ? rc : pki_jws_open(text, &k, 1, &back, NULL);
}

static void it_survives_every_failed_allocation(void **state)
{
	(void)state;
	torture(sign_and_open);
}

static enum rc request_and_issue(void)
{
	CLEANUP(mem_freep) char *csr = NULL;
	CLEANUP(mem_freep) char *key = NULL;
	CLEANUP(mem_freep) char *cert = NULL;
	const struct pki_request req = {.cn = "x", .use = PKI_CLIENT, .validity = USEC_PER_SEC};
	enum rc rc = pki_csr_new(&csr, &key, "x", NULL);

	return rc ? rc : pki_issue_for(&cert, &pair, csr, &req, NOW, NULL);
}

static void requests_survive_every_failed_allocation(void **state)
{
	(void)state;
	torture(request_and_issue);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(signatures_have_one_length),
		cmocka_unit_test(any_changed_letter_is_found),
		cmocka_unit_test(what_only_checks_does_not_sign),
		cmocka_unit_test(it_survives_every_failed_allocation),
		cmocka_unit_test(requests_survive_every_failed_allocation),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("jws", tests, setup, teardown);
}
