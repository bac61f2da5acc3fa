/* The small parsers: members of serialised objects, base64, Kubernetes' protobuf. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/b64.h"
#include "base/mem.h"
#include "base/str.h"
#include "cluster/apiserver/apisrv_int.h"

static void members_are_found_as_the_parser_finds_them(void **state)
{
	(void)state;
	static const char *const docs[] = {
		"{}",
		"{\"a\":1}",
		"{\"a\":{\"labels\":{\"b\":\"}\"}},\"labels\":{\"x\":\"\\\"}{\\\\\"},\"n\":null,\"t\":true,\"z\":[1,{\"a\":2}]}",
		"{\"a\":\"\\\\\",\"b\":-1.5e3,\"c\":[],\"d\":{},\"e\":\"\\u00e9\"}",
		"{\"labels\":\"[\",\"a\":[[\"]\"],[]],\"b\":0}",
	};

	for (size_t i = 0; i < ARRAY_SIZE(docs); i++) {
		struct json *j = NULL;
		const char *v;
		size_t n, len = strlen(docs[i]);

		assert_int_equal(js_parse(docs[i], len, &j, NULL), RC_OK);
		JS_FOREACH(it, j) {
			struct json *part = NULL;

			assert_true(text_member(docs[i], len, it.key, &v, &n));
			assert_int_equal(js_parse(v, n, &part, NULL), RC_OK);
			assert_true(js_equal(part, it.value));
			js_unref(part);
		}
		assert_false(text_member(docs[i], len, "absent", &v, &n));
		/* Cut anywhere it must not run over the end. */
		for (size_t cut = 0; cut < len; cut++) {
			char *copy = mem_dup(docs[i], cut ? cut : 1);

			(void)text_member(copy, cut, "labels", &v, &n);
			mem_free(copy);
		}
		js_unref(j);
	}
}

static void an_item_is_its_object_without_kind_and_version(void **state)
{
	static const char head[] = "{\"kind\":\"Pod\",\"apiVersion\":\"v1\",";
	static const char *const docs[][2] = {
		{"{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"a\":{\"kind\":1}}",
		 "{\"a\":{\"kind\":1}}"},
		{"{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"a\":1,\"b\":2}", "{\"a\":1,\"b\":2}"},
		{"{\"a\":1,\"kind\":\"Pod\",\"b\":{\"apiVersion\":\"x\"},\"apiVersion\":\"v1\"}",
		 "{\"a\":1,\"b\":{\"apiVersion\":\"x\"}}"},
		{"{\"a\":\"\\\"kind\\\":\",\"apiVersion\":\"v1\",\"kind\":\"Pod\"}",
		 "{\"a\":\"\\\"kind\\\":\"}"},
		{"{\"kind\":\"Pod\",\"a\":1}", "{\"a\":1}"},
		{"{\"kind\":\"Pod\",\"apiVersion\":\"v1\"}", "{}"},
		{"{\"a\":1}", "{\"a\":1}"},
		{"{}", "{}"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(docs); i++) {
		char out[128];
		size_t n =
			text_add_item(out, docs[i][0], strlen(docs[i][0]), head, sizeof(head) - 1);

		assert_int_equal(n, strlen(docs[i][1]));
		assert_memory_equal(out, docs[i][1], n);
	}
}

static void broken_text_is_mended(void **state)
{
	(void)state;
	static const char *const pairs[][2] = {
		{"plain \303\244 \342\202\254 \360\237\230\200",
		 "plain \303\244 \342\202\254 \360\237\230\200"},
		{"cut \303", "cut ?"},
		{"cut \342\202", "cut ??"},
		{"over \300\200 \340\200\200", "over ?? ???"},
		{"surrogate \355\240\200", "surrogate ???"},
		{"beyond \364\220\200\200", "beyond ????"},
		{"", ""},
	};

	for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
		char *text = mem_strdup(pairs[i][0]);

		text_clean(text);
		assert_string_equal(text, pairs[i][1]);
		mem_free(text);
	}
}

static void base64_goes_round(void **state)
{
	(void)state;
	static const unsigned char bytes[] = {0, 255, 3, 128, 77, 254, 10, 9};

	for (size_t n = 0; n <= sizeof(bytes); n++)
		for (int url = 0; url < 2; url++) {
			char *text = b64_encode(bytes, n, url), *back = NULL;
			size_t m = 0;

			assert_int_equal(b64_decode(text, url, &back, &m), RC_OK);
			assert_int_equal(m, n);
			assert_memory_equal(back, bytes, n);
			mem_free(text);
			mem_free(back);
		}
	char *back = NULL;
	size_t n;

	assert_int_equal(b64_decode("a*b", false, &back, &n), RC_INVALID);
}

/* Namespace "foo" with a label, as kubectl sends it. */
static const unsigned char ns_body[] = {
	'k', '8', 's',	0,   0x0a, 0x0f, 0x0a, 2,    'v',  '1',	 0x12, 9,    'N', 'a',
	'm', 'e', 's',	'p', 'a',  'c',	 'e',  0x12, 0x1b, 0x0a, 0x15, 0x0a, 3,	  'f',
	'o', 'o', 0x12, 0,   0x1a, 0,	 0x42, 0,    0x5a, 6,	 0x0a, 1,    'a', 0x12,
	1,   'b', 0x12, 0,   0x12, 0,	 0x1a, 0,    0x1a, 0,	 0x22, 0};

static void protobuf_becomes_json(void **state)
{
	(void)state;
	struct json *j = NULL;
	struct err err = {0};

	if (proto_decode((const char *)ns_body, sizeof(ns_body), &j, &err))
		fail_msg("%s", err.msg);
	CLEANUP(mem_freep) char *text = js_to_text(j);

	assert_string_equal(
		text,
		"{\"metadata\":{\"name\":\"foo\",\"labels\":{\"a\":\"b\"}},\"spec\":{},\"kind\":\"Namespace\","
		"\"apiVersion\":\"v1\"}");
	js_unref(j);
}

/* A quota as kubectl sends it: {name: q, spec: {hard: {pods: 1}, scopes: [BestEffort]}} */
static const unsigned char quota_body[] =
	"k8s\0"
	"\x0a\x13\x0a\x02v1\x12\x0d"
	"ResourceQuota"
	"\x12\x20\x0a\x03\x0a\x01q\x12\x19\x0a\x0b\x0a\x04pods\x12\x03\x0a\x01\x31\x12\x0a"
	"BestEffort";

static void a_quota_in_protobuf_has_amounts(void **state)
{
	struct json *j = NULL;
	struct err err = {0};

	(void)state;
	if (proto_decode((const char *)quota_body, sizeof(quota_body) - 1, &j, &err))
		fail_msg("%s", err.msg);
	assert_string_equal(js_str(js_at(j, "spec", "hard", "pods", NULL)), "1");
	assert_string_equal(js_str(js_item(js_at(j, "spec", "scopes", NULL), 0)), "BestEffort");
	js_unref(j);
}

static void broken_protobuf_is_refused(void **state)
{
	(void)state;
	uint64_t seed = 1;

	for (size_t cut = 0; cut < sizeof(ns_body); cut++) {
		char *copy = mem_dup(ns_body, cut ? cut : 1);
		struct json *j = NULL;

		if (proto_decode(copy, cut, &j, NULL) == RC_OK)
			js_unref(j);
		mem_free(copy);
	}
	for (int i = 0; i < 20000; i++) {
		char *copy = mem_dup(ns_body, sizeof(ns_body));
		struct json *j = NULL;

		for (int k = 0; k < 3; k++) {
			seed = seed * 6364136223846793005u + 1442695040888963407u;
			copy[4 + (seed >> 33) % (sizeof(ns_body) - 4)] = (char)(seed >> 56);
		}
		if (proto_decode(copy, sizeof(ns_body), &j, NULL) == RC_OK)
			js_unref(j);
		mem_free(copy);
	}
	assert_int_equal(mem_live_blocks(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(members_are_found_as_the_parser_finds_them),
		cmocka_unit_test(an_item_is_its_object_without_kind_and_version),
		cmocka_unit_test(broken_text_is_mended),
		cmocka_unit_test(base64_goes_round),
		cmocka_unit_test(protobuf_becomes_json),
		cmocka_unit_test(a_quota_in_protobuf_has_amounts),
		cmocka_unit_test(broken_protobuf_is_refused),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("util", tests, NULL, NULL);
}
