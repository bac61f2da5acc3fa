#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "api/labels.h"
#include "json/json.h"
#include "lib/torture.h"

static struct json *labels_of(const char *text)
{
	struct json *j = NULL;

	assert_int_equal(js_parse(text, strlen(text), &j, NULL), RC_OK);
	return j;
}

static void the_query_grammar_selects_as_kubernetes_does(void **state)
{
	static const struct {
		const char *selector, *labels;
		bool matches;
	} cases[] = {
		{"", "{}", true},
		{"a=b", "{\"a\":\"b\"}", true},
		{"a==b", "{\"a\":\"b\"}", true},
		{"a=b", "{\"a\":\"c\"}", false},
		{"a=", "{\"a\":\"\"}", true},
		{"a!=b", "{}", true},
		{"a!=b", "{\"a\":\"b\"}", false},
		{"a in (x, y)", "{\"a\":\"y\"}", true},
		{"a in (x,y)", "{}", false},
		{"a notin (x,y)", "{}", true},
		{"a notin (x,y)", "{\"a\":\"x\"}", false},
		{"a", "{\"a\":\"\"}", true},
		{"!a", "{\"a\":\"\"}", false},
		{"! a", "{}", true},
		{"a=b,c!=d,e in (x,y),!f", "{\"a\":\"b\",\"e\":\"x\"}", true},
		{"a=b,c!=d,e in (x,y),!f", "{\"a\":\"b\",\"e\":\"x\",\"f\":\"1\"}", false},
		{"n>3", "{\"n\":\"4\"}", true},
		{"n>3", "{\"n\":\"3\"}", false},
		{"n<3", "{\"n\":\"x\"}", false},
		{"app.kubernetes.io/name=x", "{\"app.kubernetes.io/name\":\"x\"}", true},
		{"in in (in)", "{\"in\":\"in\"}", true},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(api_selector_freep) struct api_selector *s = NULL, *again = NULL;
		CLEANUP(js_unrefp) struct json *labels = labels_of(cases[i].labels);
		CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(1024);
		struct err err;

		if (api_selector_parse(cases[i].selector, &s, &err))
			fail_msg("'%s': %s", cases[i].selector, err.msg);
		if (api_selector_matches_json(s, labels) != cases[i].matches)
			fail_msg("'%s' on %s", cases[i].selector, cases[i].labels);
		/* what it prints selects the same */
		api_selector_print(s, &b);
		assert_int_equal(api_selector_parse(sbuf_str(&b), &again, &err), RC_OK);
		assert_int_equal(api_selector_matches_json(again, labels), cases[i].matches);
	}
}

static void malformed_selectors_are_refused(void **state)
{
	static const char *const bad[] = {"=",	 "a in",  "a in x",    "a in (x", "a,",
					  "a b", "a=b c", "a in (x))", ",",	  "a=!",
					  "-a",	 "a=b/c", "n>x",       "!",	  "a=b,,c"};
	struct api_selector *s = NULL;
	struct err err;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		if (!api_selector_parse(bad[i], &s, &err))
			fail_msg("'%s' was accepted", bad[i]);
		assert_int_equal(err.rc, RC_BAD_REQUEST);
		assert_null(s);
	}
}

static void object_selectors_have_their_own_emptiness(void **state)
{
	CLEANUP(api_selector_freep) struct api_selector *none = NULL, *all = NULL;
	CLEANUP(LabelSelector_freep) LabelSelector *sel = LabelSelector_new();
	struct api_map labels = {0};
	struct api_selector *bad = NULL;
	struct err err;

	(void)state;
	assert_int_equal(api_selector_from(NULL, &none, NULL), RC_OK);
	assert_int_equal(api_selector_from(sel, &all, NULL), RC_OK);
	assert_false(api_selector_matches(none, &labels));
	assert_true(api_selector_matches(all, &labels));
	assert_true(api_selector_is_everything(all));
	assert_false(api_selector_is_everything(none));

	LabelSelectorRequirement *r =
		api_append(&sel->matchExpressions, &sel->n_matchExpressions, sizeof(*r));

	assert_int_equal(api_set_str(&r->key, "a"), RC_OK);
	assert_int_equal(api_set_str(&r->operator, "Gt"), RC_OK); /* only node selectors have it */
	assert_int_equal(api_selector_from(sel, &bad, &err), RC_INVALID);
	assert_int_equal(api_set_str(&r->operator, "In"), RC_OK);
	assert_int_equal(api_selector_from(sel, &bad, &err), RC_INVALID); /* no values */
	assert_null(bad);
}

static void a_fixed_value_can_be_asked_for(void **state)
{
	CLEANUP(api_selector_freep) struct api_selector *s = NULL;

	(void)state;
	assert_int_equal(api_selector_parse("a=b,c in (d),e in (f,g)", &s, NULL), RC_OK);
	assert_string_equal(api_selector_required(s, "a"), "b");
	assert_string_equal(api_selector_required(s, "c"), "d");
	assert_null(api_selector_required(s, "e"));
}

static void field_selectors_look_at_paths(void **state)
{
	CLEANUP(api_fields_freep) struct api_fields *f = NULL, *other = NULL;
	CLEANUP(js_unrefp)
	struct json *pod =
		labels_of("{\"metadata\":{\"name\":\"a,b\"},\"spec\":{\"nodeName\":\"n1\"}}");
	struct err err;

	(void)state;
	assert_int_equal(
		api_fields_parse("spec.nodeName=n1,metadata.name=a\\,b,status.phase!=Running,"
				 "spec.hostNetwork=false",
				 &f, NULL),
		RC_OK);
	assert_true(api_fields_matches(f, pod));
	assert_int_equal(api_fields_check(f, &api_kind_Pod, &err), RC_OK);
	assert_string_equal(api_fields_required(f, "spec.nodeName"), "n1");
	assert_null(api_fields_required(f, "status.phase"));
	assert_int_equal(api_fields_check(f, &api_kind_VirtualMachine, &err), RC_BAD_REQUEST);
	assert_string_equal(err.msg, "field label not supported: spec.nodeName");
	assert_int_equal(api_fields_parse("=", &other, &err), RC_BAD_REQUEST);
	assert_int_equal(api_fields_parse("a", &other, &err), RC_BAD_REQUEST);
}

static enum rc parse_everything(void)
{
	CLEANUP(api_selector_freep) struct api_selector *s = NULL;
	CLEANUP(api_fields_freep) struct api_fields *f = NULL;
	enum rc rc = api_selector_parse("a=b,c in (d,e),!f", &s, NULL);

	return rc ? rc : api_fields_parse("metadata.name=a,spec.nodeName!=b", &f, NULL);
}

static void running_out_of_memory_is_reported(void **state)
{
	(void)state;
	torture(parse_everything);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_query_grammar_selects_as_kubernetes_does),
		cmocka_unit_test(malformed_selectors_are_refused),
		cmocka_unit_test(object_selectors_have_their_own_emptiness),
		cmocka_unit_test(a_fixed_value_can_be_asked_for),
		cmocka_unit_test(field_selectors_look_at_paths),
		cmocka_unit_test(running_out_of_memory_is_reported),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("api_labels", tests, NULL, NULL);
}
