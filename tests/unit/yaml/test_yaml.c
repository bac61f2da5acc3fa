#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"
#include "json/json.h"
#include "lib/torture.h"
#include "yaml/yaml.h"

static struct json *parse(const char *text, struct js_dups *dups, enum rc want, struct err *err)
{
	struct json *docs = NULL;
	enum rc rc = yaml_parse_dups(text, strlen(text), &docs, dups, err);

	if (rc != want)
		fail_msg("'%s': rc %d instead of %d: %s", text, rc, want, err->msg);
	return docs;
}

static void texts_become_values(void **state)
{
	static const char *const rows[][2] = {
		{"a: b", "[{\"a\":\"b\"}]"},
		{"a: yes\nb: off\nc: y\nd: 'no'",
		 "[{\"a\":true,\"b\":false,\"c\":\"y\",\"d\":\"no\"}]"},
		{"a: 0644\nb: 0x10\nc: 1e3\nd: '7'",
		 "[{\"a\":420,\"b\":16,\"c\":1000.0,\"d\":\"7\"}]"},
		{"a: ~\nb:\nc: null", "[{\"a\":null,\"b\":null,\"c\":null}]"},
		{"--- {a: 1}\n---\n--- [1, 2]", "[{\"a\":1},[1,2]]"},
		{"\xef\xbb\xbf"
		 "a: 1",
		 "[{\"a\":1}]"},
		{"a: &x {b: 1}\nc: *x", "[{\"a\":{\"b\":1},\"c\":{\"b\":1}}]"},
		{"a: !!str x", "[{\"a\":\"x\"}]"},
		/* merge keys, YAML 1.1 */
		{"x: &x {b: 1, c: 2}\ny: {<<: *x, c: 3}",
		 "[{\"x\":{\"b\":1,\"c\":2},\"y\":{\"c\":3,\"b\":1}}]"},
		{"x: &x {b: 1}\nz: &z {b: 2, d: 4}\ny: {<<: [*x, *z]}",
		 "[{\"x\":{\"b\":1},\"z\":{\"b\":2,\"d\":4},\"y\":{\"b\":1,\"d\":4}}]"},
		{"'<<': 1", "[{\"<<\":1}]"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct err err = {0};
		struct json *docs = parse(rows[i][0], NULL, RC_OK, &err);
		char *have = js_to_text(docs);

		assert_string_equal(have, rows[i][1]);
		mem_free(have);
		js_unref(docs);
	}
}

static void faults_have_a_place(void **state)
{
	static const char *const rows[][2] = {
		{"a: 1\na: 2", "line 2, column 1: the key is there twice"},
		{"a: !secret x", "line 1, column 4: a tag that is not one of YAML's own types"},
		{"? [a]\n: b", "a key is not a scalar"},
		{"a: *nobody", "line 1"},
		{"a: \"\\0\"", "the text has a NUL character"},
		{"a:\n\t- b", "line 2"},
		{"<<: 1", "only mappings can be merged"},
		{"x: &x {a: 1}\ny: {<<: *x, <<: *x}", "the key is there twice"},
		{"a: b: c", "line 1"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct err err = {0};

		assert_null(parse(rows[i][0], NULL, RC_BAD_REQUEST, &err));
		if (!strstr(err.msg, rows[i][1]))
			fail_msg("'%s': %s", rows[i][0], err.msg);
	}
}

static void duplicate_keys_are_told_by_their_path(void **state)
{
	struct js_dups dups = {0};
	struct err err = {0};
	struct json *docs = parse("a: 1\nb: [{c: 1}, {c: 1, c: 2}]\na: 3", &dups, RC_OK, &err);
	char *have = js_to_text(docs), *told = js_to_text(dups.paths);

	(void)state;
	assert_string_equal(have, "[{\"a\":3,\"b\":[{\"c\":1},{\"c\":2}]}]");
	assert_string_equal(told, "[\"b[1].c\",\"a\"]");
	mem_free(have);
	mem_free(told);
	js_unref(docs);
	js_unref(dups.paths);
}

/* Nine levels of nine references each: half a kilobyte that stands for 387 million values. */
static void bombs_are_bounded(void **state)
{
	struct sbuf b = SBUF_INIT(1 << 20);
	struct json *docs = NULL;
	struct err err = {0};

	(void)state;
	sbuf_adds(&b, "a0: &a0 [x,x,x,x,x,x,x,x,x]\n");
	for (int i = 1; i < 9; i++) {
		sbuf_addf(&b, "a%d: &a%d [", i, i);
		for (int k = 0; k < 9; k++)
			sbuf_addf(&b, "%s*a%d", k ? "," : "", i - 1);
		sbuf_adds(&b, "]\n");
	}
	assert_int_equal(yaml_parse(b.p, b.n, &docs, &err), RC_BAD_REQUEST);
	assert_non_null(strstr(err.msg, "too many values"));
	sbuf_fini(&b);
	for (int i = 0; i < LIMIT_YAML_DOCS + 1; i++)
		sbuf_adds(&b, "--- 1\n");
	assert_int_equal(yaml_parse(b.p, b.n, &docs, &err), RC_TOO_BIG);
	sbuf_fini(&b);
	/* libyaml alone takes minutes for this */
	for (int i = 0; i < 1000000; i++)
		sbuf_addc(&b, '[');
	assert_int_equal(yaml_parse(b.p, b.n, &docs, &err), RC_BAD_REQUEST);
	assert_non_null(strstr(err.msg, "nested too deeply"));
	sbuf_fini(&b);
	/* a value inside itself */
	assert_null(parse("a: &a [*a]", NULL, RC_BAD_REQUEST, &err));
}

static enum rc parse_all(void)
{
	static const char text[] = "x: &x {b: [1, 'two'], b: 2}\ny: {<<: *x, c: 3}";
	struct js_dups dups = {0};
	struct json *docs = NULL;

	enum rc rc = yaml_parse_dups(text, sizeof(text) - 1, &docs, &dups, NULL);

	assert_int_equal(js_len(docs), rc ? 0 : 1);
	js_unref(docs);
	js_unref(dups.paths);
	return rc;
}

static void every_allocation_may_fail(void **state)
{
	(void)state;
	torture(parse_all);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(texts_become_values),
		cmocka_unit_test(faults_have_a_place),
		cmocka_unit_test(duplicate_keys_are_told_by_their_path),
		cmocka_unit_test(bombs_are_bounded),
		cmocka_unit_test(every_allocation_may_fail),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("yaml", tests, NULL, NULL);
}
