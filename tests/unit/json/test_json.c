#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"
#include "json/json.h"
#include "lib/torture.h"

static void duplicate_keys_can_be_told_instead(void **state)
{
	static const char text[] =
		"{\"a\":1,\"b\":[0,{\"c\":1,\"\\u0063\":2}],\"a\":{\"d\":1,\"d\":2},\"a\":3}";
	struct js_dups dups = {0};
	struct json *j = NULL;

	(void)state;
	assert_int_equal(js_parse_dups(text, sizeof(text) - 1, &j, &dups, NULL), RC_OK);
	CLEANUP(mem_freep) char *have = js_to_text(j);
	CLEANUP(mem_freep) char *told = js_to_text(dups.paths);

	assert_string_equal(have, "{\"a\":3,\"b\":[0,{\"c\":2}]}");
	assert_string_equal(told, "[\"b[1].c\",\"a\",\"a.d\",\"a\"]");
	js_unref(j);
	js_unref(dups.paths);
}

static void malformed_text_is_refused_with_a_place(void **state)
{
	static const char *const bad[] = {
		"",
		" ",
		"{",
		"[",
		"[1,]",
		"[1",
		"[,1]",
		"{\"a\":1,\"a\":2}",
		"{\"a\":1,\"\\u0061\":2}",
		"{'a':1}",
		"{\"a\"}",
		"{\"a\" 1}",
		"{\"a\":}",
		"{\"a\":1,}",
		"{1:2}",
		"[1}",
		"nul",
		"True",
		"1 2",
		"[]]",
		/* strings */
		"\"",
		"\"a",
		"\"\\",
		"\"\\\"",
		"\"\xff\"",
		"\"\xc3\"",
		"\"\xc0\xaf\"",
		"\"\xed\xa0\x80\"",
		"\"\xf4\x90\x80\x80\"",
		"\"\n\"",
		"\"\\x\"",
		"\"\\u12\"",
		"\"\\u12g4\"",
		"\"\\u0000\"",
		"\"\\ud800\"",
		"\"\\ud800\\u0041\"",
		"\"\\udc00\"",
		/* numbers */
		"[1e999]",
		"-",
		"01",
		"-01",
		"+1",
		"1.",
		".5",
		"1e",
		"1e+",
		"1.5.2",
		"0x10",
		"1-1",
		"9223372036854775808",
		"-9223372036854775809",
		"NaN",
		"Infinity",
	};
	struct json *j = NULL;
	struct err e;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_int_equal(js_parse(bad[i], strlen(bad[i]), &j, &e), RC_BAD_REQUEST);
		assert_non_null(strstr(e.msg, "line"));
		assert_null(j);
	}
}

static void the_place_counts_lines_and_characters(void **state)
{
	const char *text = "{\n  \"\xc3\xa9\": x\n}";
	struct json *j = NULL;
	struct err e;

	(void)state;
	assert_int_equal(js_parse(text, strlen(text), &j, &e), RC_BAD_REQUEST);
	assert_string_equal(e.msg, "invalid JSON at line 2, column 8: invalid token");
}

static void values_are_read_as_rfc_8259_says(void **state)
{
	static const struct {
		const char *text, *printed;
	} good[] = {
		{" [ ] ", "[]"},
		{"\t{\r\n}", "{}"},
		{"-0", "0"},
		{"9223372036854775807", "9223372036854775807"},
		{"-9223372036854775808", "-9223372036854775808"},
		{"1.5e2", "150.0"},
		{"1E-400", "0.0"},
		{"\"\"", "\"\""},
		{"\"a\\/b\\u0041\\t\"", "\"a/bA\\t\""},
		{"\"\\u00e9\\u20ac\\ud83d\\ude00x\"", "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80x\""},
		{"\"\xed\x9f\xbf\xf4\x8f\xbf\xbf\"", "\"\xed\x9f\xbf\xf4\x8f\xbf\xbf\""},
		{"{\"\\u0061\":[true,false,null]}", "{\"a\":[true,false,null]}"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		CLEANUP(js_unrefp) struct json *j = NULL;

		assert_int_equal(js_parse(good[i].text, strlen(good[i].text), &j, NULL), RC_OK);
		CLEANUP(mem_freep) char *printed = js_to_text(j);

		assert_string_equal(printed, good[i].printed);
	}
}

static void depth_is_bounded_before_parsing(void **state)
{
	char deep[LIMIT_JSON_DEPTH * 2 + 4];
	size_t n = 0;
	struct json *j = NULL;
	struct err e;

	(void)state;
	for (int i = 0; i <= LIMIT_JSON_DEPTH; i++)
		deep[n++] = '[';
	for (int i = 0; i <= LIMIT_JSON_DEPTH; i++)
		deep[n++] = ']';
	assert_int_equal(js_parse(deep, n, &j, &e), RC_BAD_REQUEST);
	assert_int_equal(js_parse(deep + 1, n - 2, &j, &e), RC_OK);
	js_unref(j);
	/* brackets inside strings do not count */
	assert_int_equal(js_parse("\"[[[[\\\"[[[\"", 11, &j, &e), RC_OK);
	js_unref(j);
}

static void readers_accept_absent_values(void **state)
{
	(void)state;
	assert_null(js_get(NULL, "a"));
	assert_null(js_at(NULL, "a", "b", NULL));
	assert_int_equal(js_int(NULL, 5), 5);
	assert_null(js_str(NULL));
	assert_int_equal(js_len(NULL), 0);
	JS_FOREACH(it, NULL)
		fail();
}

static void iteration_can_be_left_early_and_keeps_order(void **state)
{
	CLEANUP(js_unrefp) struct json *j = js_pack("{s:i,s:i,s:i}", "z", 1, "a", 2, "m", 3);
	char seen[8] = "";

	(void)state;
	JS_FOREACH(it, j) {
		strncat(seen, it.key, 1);
		if (js_int(it.value, 0) == 2)
			break;
	}
	assert_string_equal(seen, "za");
}

static void pointers_follow_rfc_6901(void **state)
{
	const char *text = "{\"a/b\":{\"m~n\":[10,20]}}";
	struct json *at = NULL;
	struct json *j = NULL;

	(void)state;
	assert_int_equal(js_parse(text, strlen(text), &j, NULL), RC_OK);
	assert_int_equal(js_pointer_get(j, "/a~1b/m~0n/1", &at, NULL), RC_OK);
	assert_int_equal(js_int(at, 0), 20);
	assert_int_equal(js_pointer_get(j, "", &at, NULL), RC_OK);
	assert_ptr_equal(at, j);
	assert_int_equal(js_pointer_get(j, "/a~1b/x", &at, NULL), RC_NOT_FOUND);
	assert_int_equal(js_pointer_get(j, "a", &at, NULL), RC_INVALID);
	assert_int_equal(js_pointer_get(j, "/a~2", &at, NULL), RC_INVALID);
	js_unref(j);
}

static enum rc parse_and_print(void)
{
	const char *text = "{\"a\":[1,true,null,\"x\"],\"b\":{\"c\":1.5}}";
	CLEANUP(js_unrefp) struct json *j = NULL;
	CLEANUP(mem_freep) char *out = NULL;
	enum rc rc = js_parse(text, strlen(text), &j, NULL);

	if (rc)
		return rc;
	out = js_to_text(j);
	if (!out)
		return RC_NOMEM;
	return str_eq(out, text) ? RC_OK : RC_IO;
}

static void parsing_survives_any_failed_allocation(void **state)
{
	(void)state;
	torture(parse_and_print);
}

/* Strings of many lengths, with and without escapes: a buffer that grows would fail at each of its sizes. */
static unsigned long_string_length;

static enum rc parse_long_strings(void)
{
	CLEANUP(js_unrefp) struct json *j = NULL;
	char text[512] = "[\"";
	size_t n = 2;

	for (unsigned i = 0; i < long_string_length; i++)
		text[n++] = 'a';
	memcpy(text + n, "\",\"\\u00e9\\n", 11);
	n += 11;
	for (unsigned i = 0; i < long_string_length; i++)
		text[n++] = 'b';
	memcpy(text + n, "\"]", 2);
	n += 2;
	enum rc rc = js_parse(text, n, &j, NULL);

	if (rc)
		return rc;
	return strlen(js_str(js_item(j, 0))) == long_string_length &&
			       strlen(js_str(js_item(j, 1))) == long_string_length + 3
		       ? RC_OK
		       : RC_IO;
}

static void strings_of_any_length_survive_a_failed_allocation(void **state)
{
	(void)state;
	for (long_string_length = 0; long_string_length < 140; long_string_length++)
		torture(parse_long_strings);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(duplicate_keys_can_be_told_instead),
		cmocka_unit_test(malformed_text_is_refused_with_a_place),
		cmocka_unit_test(the_place_counts_lines_and_characters),
		cmocka_unit_test(values_are_read_as_rfc_8259_says),
		cmocka_unit_test(depth_is_bounded_before_parsing),
		cmocka_unit_test(readers_accept_absent_values),
		cmocka_unit_test(iteration_can_be_left_early_and_keeps_order),
		cmocka_unit_test(pointers_follow_rfc_6901),
		cmocka_unit_test(parsing_survives_any_failed_allocation),
		cmocka_unit_test(strings_of_any_length_survive_a_failed_allocation),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
