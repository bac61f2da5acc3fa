#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/limits.h"
#include "base/mem.h"
#include "http/uri.h"
#include "lib/torture.h"

static void targets_are_decoded(void **state)
{
	struct http_uri u;
	const char *t = "/api/v1/a%20b/c?labelSelector=a%3Db%2Cc&watch&x=1+2&&e=";

	(void)state;
	assert_int_equal(http_uri_parse(&u, t, strlen(t), NULL), RC_OK);
	assert_string_equal(u.path, "/api/v1/a b/c");
	assert_int_equal(u.n_params, 4);
	assert_string_equal(http_uri_param(&u, "labelSelector"), "a=b,c");
	assert_string_equal(http_uri_param(&u, "watch"), "");
	assert_string_equal(http_uri_param(&u, "x"), "1 2");
	assert_string_equal(http_uri_param(&u, "e"), "");
	assert_null(http_uri_param(&u, "y"));
	http_uri_fini(&u);
}

static void hostile_targets_are_refused(void **state)
{
	static const struct {
		const char *target;
		enum rc rc;
	} rows[] = {
		{"", RC_BAD_REQUEST},
		{"api", RC_BAD_REQUEST},
		{"http://host/", RC_BAD_REQUEST},
		{"/a%", RC_BAD_REQUEST},
		{"/a%4", RC_BAD_REQUEST},
		{"/a%zz", RC_BAD_REQUEST},
		{"/a%00b", RC_BAD_REQUEST},
		{"/a%2fb", RC_BAD_REQUEST},
		{"/a/../b", RC_BAD_REQUEST},
		{"/a/%2e%2e/b", RC_BAD_REQUEST},
		{"/./a", RC_BAD_REQUEST},
		{"/a%0d%0ab", RC_BAD_REQUEST},
		{"/a\x7f", RC_BAD_REQUEST},
		{"/a%ff", RC_BAD_REQUEST},
		{"/a%c0%af", RC_BAD_REQUEST},	 /* overlong '/' */
		{"/a%ed%a0%80", RC_BAD_REQUEST}, /* surrogate */
		{"/a%c3", RC_BAD_REQUEST},	 /* cut */
		{"/?a=%00", RC_BAD_REQUEST},
		{"/a%41", RC_OK},
		{"/...", RC_OK},
		{"/%c3%bc", RC_OK},
		{"/?a=%2f%0a", RC_OK},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct http_uri u;

		assert_int_equal(http_uri_parse(&u, rows[i].target, strlen(rows[i].target), NULL),
				 rows[i].rc);
		http_uri_fini(&u);
	}
}

static void length_and_number_are_bounded(void **state)
{
	struct http_uri u;
	char *t = mem_alloc(LIMIT_URL_BYTES + 2);

	(void)state;
	memset(t, 'a', LIMIT_URL_BYTES + 1);
	t[0] = '/';
	assert_int_equal(http_uri_parse(&u, t, LIMIT_URL_BYTES + 1, NULL), RC_TOO_BIG);
	assert_int_equal(http_uri_parse(&u, t, LIMIT_URL_BYTES, NULL), RC_OK);
	http_uri_fini(&u);
	strcpy(t, "/?");
	for (int i = 0; i <= HTTP_QUERY_MAX; i++)
		strcat(t, "a=1&");
	assert_int_equal(http_uri_parse(&u, t, strlen(t), NULL), RC_BAD_REQUEST);
	assert_null(u.path);
	assert_int_equal(u.n_params, 0);
	mem_free(t);
}

static void escaping_and_decoding_are_inverse(void **state)
{
	const char *text = "a/b c?d=e&f%g+h\xc3\xbc";
	struct sbuf b = SBUF_INIT(1000);
	struct http_uri u;

	(void)state;
	sbuf_adds(&b, "/x?v=");
	http_uri_escape(&b, text);
	assert_int_equal(sbuf_rc(&b), RC_OK);
	assert_int_equal(http_uri_parse(&u, b.p, b.n, NULL), RC_OK);
	assert_string_equal(http_uri_param(&u, "v"), text);
	http_uri_fini(&u);
	sbuf_fini(&b);
}

static enum rc parse_once(void)
{
	struct http_uri u;
	enum rc rc = http_uri_parse(&u, "/a/b?c=d&e=f", 12, NULL);

	http_uri_fini(&u);
	return rc;
}

static void parsing_survives_every_failed_allocation(void **state)
{
	(void)state;
	torture(parse_once);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(targets_are_decoded),
		cmocka_unit_test(hostile_targets_are_refused),
		cmocka_unit_test(length_and_number_are_bounded),
		cmocka_unit_test(escaping_and_decoding_are_inverse),
		cmocka_unit_test(parsing_survives_every_failed_allocation),
	};

	return cmocka_run_group_tests_name("http/uri", tests, NULL, NULL);
}
