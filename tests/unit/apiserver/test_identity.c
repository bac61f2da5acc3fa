/* The keys of tokens as files: made once, turned over, and what a crash leaves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "cluster/apiserver/identity.h"
#include "cluster/apiserver/token.h"
#include "fixture.h"
#include "pki/pki.h"

#define TOKEN  "/api/v1/namespaces/default/serviceaccounts/robot/token"
#define WHOAMI "/apis/authentication.k8s.io/v1/selfsubjectreviews"
#define YEAR   ((usec_t)TOKEN_MAX_SECONDS * USEC_PER_SEC)

static const usec_t NOW = (usec_t)1767225600 * USEC_PER_SEC;
static struct fx f;
static struct tokens *tokens;
static char dir[64];

static int setup(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/ferry-identity-XXXXXX");
	assert_non_null(mkdtemp(dir));
	assert_int_equal(tokens_new(&tokens, NULL, NULL), RC_OK);
	fx_up_with_tokens(&f, tokens);
	drop(fx_do(&f, 201, "POST", "/api/v1/namespaces/default/serviceaccounts",
		   "{\"metadata\":{\"name\":\"robot\"}}"));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	f.srv = apisrv_free(f.srv);
	f.store = store_close(f.store);
	f.loop = loop_free(f.loop);
	tokens = tokens_free(tokens);
	assert_int_equal(file_remove_tree(dir, NULL), RC_OK);
	assert_int_equal(mem_live_blocks(), 0);
	return 0;
}

static void load(usec_t now)
{
	struct err err = {0};

	if (identity_token_keys(dir, now, tokens, &err))
		fail_msg("%s", err.msg);
}

static char *mint(void)
{
	struct json *j = fx_do(&f, 201, "POST", TOKEN, "{\"spec\":{}}");
	char *header = mem_printf("Bearer %s", js_str(js_at(j, "status", "token", NULL)));

	js_unref(j);
	return header;
}

static int status_with(const char *header)
{
	struct fx_answer a;

	fx_call_token(&f, &a, header, "POST", WHOAMI, "{}");
	int status = a.status;

	fx_answer_fini(&a);
	return status;
}

static void a_key_stays_over_restarts(void **state)
{
	(void)state;
	load(NOW);
	CLEANUP(mem_freep) char *header = mint();

	load(NOW + YEAR - USEC_PER_SEC);
	assert_int_equal(status_with(header), 201);
}

static void a_key_is_good_for_a_year_after_its_last_token(void **state)
{
	(void)state;
	load(NOW);
	CLEANUP(mem_freep) char *first = mint();

	load(NOW + YEAR);
	CLEANUP(mem_freep) char *second = mint();

	assert_int_equal(status_with(first), 201);
	load(NOW + YEAR + YEAR / 2);
	assert_int_equal(status_with(first), 201);
	load(NOW + 2 * YEAR + 120 * USEC_PER_SEC); /* certificates begin a minute early */
	assert_int_equal(status_with(first), 401);
	assert_int_equal(status_with(second), 201);
}

static void what_a_crash_left_is_replaced(void **state)
{
	struct pki_pair other = {0};

	(void)state;
	load(NOW);
	CLEANUP(mem_freep) char *before = mint();
	CLEANUP(mem_freep) char *path = mem_printf("%s/sa.key", dir);

	assert_int_equal(pki_ca_new(&other, "x", NOW, YEAR, NULL), RC_OK);
	assert_int_equal(file_write_durable(path, other.key, strlen(other.key), 0600, NULL), RC_OK);
	pki_pair_fini(&other);
	load(NOW);
	CLEANUP(mem_freep) char *after = mint();

	assert_int_equal(status_with(after), 201);
	assert_int_equal(status_with(before), 401);
}

static void taking_the_files_away_voids_all_tokens(void **state)
{
	(void)state;
	load(NOW);
	CLEANUP(mem_freep) char *before = mint();

	assert_int_equal(file_remove_tree(dir, NULL), RC_OK);
	load(NOW);
	assert_int_equal(status_with(before), 401);
}

/* ---- another authority -------------------------------------------------------------------------------------- */

static struct json *texts;

/* The text of a file of the folder, kept until the test ends. */
static const char *text_of(const char *name)
{
	CLEANUP(mem_freep) char *path = mem_printf("%s/%s", dir, name);
	CLEANUP(mem_freep) char *text = NULL;
	size_t n;

	assert_int_equal(file_read(path, 1 << 20, &text, &n, NULL), RC_OK);
	if (!texts)
		texts = js_new_array();
	assert_int_equal(js_append(texts, js_new_str(text)), RC_OK);
	return js_str(js_item(texts, js_len(texts) - 1));
}

static void prepare_all(void)
{
	const struct identity_config config = {
		.dir = dir, .server = "https://127.0.0.1:6443", .now = NOW};
	struct err err = {0};

	if (identity_prepare(&config, &err))
		fail_msg("%s", err.msg);
}

static enum rc step(const char *name)
{
	return identity_rotate_ca(dir, name, NOW, NULL);
}

static void an_authority_is_changed_in_steps_that_overlap(void **state)
{
	(void)state;
	prepare_all();
	const char *ca = text_of("ca.crt"), *admin = text_of("admin.crt");
	const char *config = text_of("admin.kubeconfig");

	assert_int_equal(step("switch"), RC_NOT_FOUND);
	assert_int_equal(step("nonsense"), RC_INVALID);
	assert_int_equal(step("prepare"), RC_OK);
	prepare_all();
	const char *both = text_of("ca.crt");

	assert_int_equal(strncmp(both, ca, strlen(ca)), 0);
	assert_true(strlen(both) > strlen(ca));
	assert_string_equal(text_of("admin.crt"), admin);	      /* the old one signs */
	assert_string_not_equal(text_of("admin.kubeconfig"), config); /* it has both */
	assert_int_equal(step("prepare"), RC_OK);
	assert_string_equal(text_of("ca.crt"), both); /* twice is once */
	assert_int_equal(step("finish"), RC_CONFLICT);

	assert_int_equal(step("switch"), RC_OK);
	prepare_all();
	const char *turned = text_of("ca.crt"), *newer = text_of("admin.crt");

	assert_int_equal(strlen(turned), strlen(both));
	assert_string_not_equal(turned, both);
	assert_string_not_equal(newer, admin);
	assert_int_equal(pki_verify(newer, both, PKI_CLIENT, NOW, NULL), RC_OK);
	assert_int_equal(pki_verify(admin, turned, PKI_CLIENT, NOW, NULL), RC_OK);
	assert_int_equal(pki_verify(newer, ca, PKI_CLIENT, NOW, NULL), RC_UNAUTHORIZED);
	assert_int_equal(step("switch"), RC_NOT_FOUND);

	assert_int_equal(step("finish"), RC_OK);
	prepare_all();
	assert_string_equal(text_of("admin.crt"), newer);
	assert_int_equal(pki_verify(admin, text_of("ca.crt"), PKI_CLIENT, NOW, NULL),
			 RC_UNAUTHORIZED);
	texts = js_unref(texts);
}

static void a_switch_that_a_crash_cut_short_is_finished(void **state)
{
	(void)state;
	prepare_all();
	assert_int_equal(step("prepare"), RC_OK);
	CLEANUP(mem_freep) char *path = mem_printf("%s/ca.key", dir);
	const char *next = text_of("ca-next.key");

	/* the key was written, the certificates not yet */
	assert_int_equal(file_write_durable(path, next, strlen(next), 0600, NULL), RC_OK);
	assert_int_equal(step("switch"), RC_OK);
	prepare_all();
	const char *turned = text_of("ca.crt");

	assert_int_equal(pki_verify(text_of("admin.crt"), turned, PKI_CLIENT, NOW, NULL), RC_OK);
	texts = js_unref(texts);
}

int main(void)
{
#define T(fn_) cmocka_unit_test_setup_teardown(fn_, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(a_key_stays_over_restarts),
		T(a_key_is_good_for_a_year_after_its_last_token),
		T(what_a_crash_left_is_replaced),
		T(taking_the_files_away_voids_all_tokens),
		T(an_authority_is_changed_in_steps_that_overlap),
		T(a_switch_that_a_crash_cut_short_is_finished),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("identity", tests, NULL, NULL);
}
