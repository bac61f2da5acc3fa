#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "api/quantity.h"
#include "base/mem.h"
#include "lib/torture.h"

static void good_texts_have_their_value_and_canonical_form(void **state)
{
	static const struct {
		const char *text;
		int64_t value, milli;
		const char *canonical;
	} cases[] = {
		{"0", 0, 0, "0"},
		{"1", 1, 1000, "1"},
		{"1024", 1024, 1024000, "1024"},
		{"1000", 1000, 1000000, "1k"},
		{"1Ki", 1024, 1024000, "1Ki"},
		{"1.5Gi", 1610612736, 1610612736000, "1536Mi"},
		{"512Mi", 536870912, 536870912000, "512Mi"},
		{"1024Mi", 1073741824, 1073741824000, "1Gi"},
		{"0.5Ki", 512, 512000, "512"},
		{"500m", 1, 500, "500m"},
		{"0.5", 1, 500, "500m"},
		{"2.5", 3, 2500, "2500m"},
		{"100u", 1, 1, "100u"},
		{"1n", 1, 1, "1n"},
		{"0.1n", 1, 1, "1n"},
		{"1e3", 1000, 1000000, "1e3"},
		{"1E3", 1000, 1000000, "1e3"},
		{"15e2", 1500, 1500000, "1500"},
		{"1e-3", 1, 1, "1e-3"},
		{"1e+3", 1000, 1000000, "1e3"},
		{"1E", 1000000000000000000, INT64_MAX, "1E"},
		{"4Ei", 4611686018427387904, INT64_MAX, "4Ei"},
		{"100Ei", INT64_MAX, INT64_MAX, "9223372036854775807"},
		{"99999999999999999999999999999", INT64_MAX, INT64_MAX, "9223372036854775807"},
		{"1e99", INT64_MAX, INT64_MAX, "9223372036854775807"},
		{"1e-99", 1, 1, "1e-9"},
		{"0e99", 0, 0, "0"},
		{"-5Mi", -5242880, -5242880000, "-5Mi"},
		{"-0.5", -1, -500, "-500m"},
		{"+1k", 1000, 1000000, "1k"},
		{".5Gi", 536870912, 536870912000, "512Mi"},
		{"1.", 1, 1000, "1"},
		{"0.000001Ki", 1, 2, "1024u"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(64);
		struct api_quantity q;

		if (api_quantity_parse(cases[i].text, &q, NULL))
			fail_msg("'%s' was refused", cases[i].text);
		api_quantity_print(&q, &b);
		if (strcmp(sbuf_str(&b), cases[i].canonical) != 0)
			fail_msg("'%s' became '%s', not '%s'", cases[i].text, sbuf_str(&b),
				 cases[i].canonical);
		if (api_quantity_value(&q) != cases[i].value)
			fail_msg("'%s' is %lld", cases[i].text, (long long)api_quantity_value(&q));
		if (api_quantity_milli(&q) != cases[i].milli)
			fail_msg("'%s' is %lld m", cases[i].text,
				 (long long)api_quantity_milli(&q));
	}
}

static void malformed_texts_are_refused_in_kubernetes_words(void **state)
{
	static const char *const format[] = {"",   "x",	 "10Gx", "1.2.3", ".",	 "+",	 "-",
					     "1 ", " 1", "1_",	 "0x10",  "NaN", "1e3x", "--1"};
	static const char *const suffix[] = {"1mm", "1e",  "1ee3", "1Gi5",	   "1i",
					     "1ki", "1mi", "1K",   "1e99999999999"};
	struct api_quantity q;
	struct err err;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(format); i++) {
		assert_int_equal(api_quantity_parse(format[i], &q, &err), RC_INVALID);
		assert_non_null(strstr(err.msg, "must match the regular expression"));
	}
	for (size_t i = 0; i < ARRAY_SIZE(suffix); i++) {
		if (!api_quantity_parse(suffix[i], &q, &err))
			fail_msg("'%s' was accepted", suffix[i]);
	}
	assert_int_equal(api_quantity_parse("1Gi5", &q, &err), RC_INVALID);
	assert_string_equal(err.msg, "unable to parse quantity's suffix");
}

static void numbers_become_text_and_add_up(void **state)
{
	CLEANUP(mem_freep) char *bytes = api_quantity_text_bytes(3 * (1 << 20));
	CLEANUP(mem_freep) char *milli = api_quantity_text_milli(1500);
	struct api_quantity a = api_quantity_of(INT64_MAX, API_Q_BINARY), sum;

	(void)state;
	assert_string_equal(bytes, "3Mi");
	assert_string_equal(milli, "1500m");
	sum = api_quantity_add(&a, &a);
	assert_true(api_quantity_value(&sum) == INT64_MAX);
	assert_int_equal(api_quantity_cmp(&sum, &a), 0);
	assert_int_equal(api_quantity_bytes("x", -7), -7);
	assert_int_equal(api_quantity_bytes(NULL, -7), -7);
	assert_int_equal(api_quantity_to_milli("250m", 0), 250);
}

static enum rc make_text(void)
{
	CLEANUP(mem_freep) char *t = api_quantity_text_bytes(1 << 30);

	return t ? RC_OK : RC_NOMEM;
}

static void running_out_of_memory_is_reported(void **state)
{
	(void)state;
	torture(make_text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(good_texts_have_their_value_and_canonical_form),
		cmocka_unit_test(malformed_texts_are_refused_in_kubernetes_words),
		cmocka_unit_test(numbers_become_text_and_add_up),
		cmocka_unit_test(running_out_of_memory_is_reported),
	};

	return cmocka_run_group_tests_name("api_quantity", tests, NULL, NULL);
}
