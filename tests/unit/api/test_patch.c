#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "api/gen/api_types.h"
#include "api/patch.h"
#include "base/limits.h"
#include "base/mem.h"
#include "lib/torture.h"

/* Single quotes for readability. */
static struct json *J(const char *text)
{
	CLEANUP(mem_freep) char *copy = mem_strdup(text);
	struct json *j = NULL;
	struct err err;

	for (char *p = copy; *p; p++)
		if (*p == '\'')
			*p = '"';
	if (js_parse(copy, strlen(copy), &j, &err))
		fail_msg("%s: %s", copy, err.msg);
	return j;
}

static void expect(const struct json *have, const char *want, const char *what)
{
	CLEANUP(js_unrefp) struct json *w = J(want);
	CLEANUP(mem_freep) char *text = js_to_text(have);

	if (!js_equal(have, w))
		fail_msg("%s gave %s", what, text);
}

static void json_patches_apply(void **state)
{
	static const struct {
		const char *doc, *ops, *want;
	} cases[] = {
		{"{'a':1}", "[{'op':'add','path':'/b','value':2}]", "{'a':1,'b':2}"},
		{"{'a':[1,2]}", "[{'op':'add','path':'/a/1','value':9}]", "{'a':[1,9,2]}"},
		{"{'a':[1]}", "[{'op':'add','path':'/a/-','value':2}]", "{'a':[1,2]}"},
		{"{'a':[1]}", "[{'op':'add','path':'/a/1','value':2}]", "{'a':[1,2]}"},
		{"{'a':1}", "[{'op':'add','path':'/a','value':null}]", "{'a':null}"},
		{"{'a':1,'b':2}", "[{'op':'remove','path':'/a'}]", "{'b':2}"},
		{"{'a':[1,2,3]}", "[{'op':'remove','path':'/a/1'}]", "{'a':[1,3]}"},
		{"{'a':1}", "[{'op':'replace','path':'/a','value':{'x':1}}]", "{'a':{'x':1}}"},
		{"{'a':1}", "[{'op':'replace','path':'','value':[1]}]", "[1]"},
		{"{'a':{'b':1},'c':{}}", "[{'op':'move','from':'/a/b','path':'/c/d'}]",
		 "{'a':{},'c':{'d':1}}"},
		{"{'a':[1,2,3]}", "[{'op':'move','from':'/a/0','path':'/a/2'}]", "{'a':[2,3,1]}"},
		{"{'a':{'x':1}}",
		 "[{'op':'copy','from':'/a','path':'/b'},"
		 "{'op':'replace','path':'/b/x','value':2}]",
		 "{'a':{'x':1},'b':{'x':2}}"},
		{"{'a':1}", "[{'op':'test','path':'/a','value':1},{'op':'remove','path':'/a'}]",
		 "{}"},
		{"{'m':{'a/b':1,'c~d':2}}",
		 "[{'op':'remove','path':'/m/a~1b'},{'op':'replace','path':'/m/c~0d','value':3}]",
		 "{'m':{'c~d':3}}"},
		{"{'':1}", "[{'op':'replace','path':'/','value':2}]", "{'':2}"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(js_unrefp) struct json *doc = J(cases[i].doc), *ops = J(cases[i].ops);
		CLEANUP(js_unrefp) struct json *before = js_copy(doc), *out = NULL;
		struct err err;

		if (api_patch_json(doc, ops, &out, &err))
			fail_msg("%s: %s", cases[i].ops, err.msg);
		expect(out, cases[i].want, cases[i].ops);
		assert_true(js_equal(doc, before)); /* the input is untouched */
	}
}

static void json_patches_that_do_not_fit_change_nothing(void **state)
{
	static const struct {
		const char *ops;
		enum rc rc;
	} cases[] = {
		{"{}", RC_BAD_REQUEST},
		{"[{'path':'/a'}]", RC_BAD_REQUEST},
		{"[{'op':'frob','path':'/a'}]", RC_BAD_REQUEST},
		{"[{'op':'add','path':'/a'}]", RC_BAD_REQUEST},
		{"[{'op':'add','path':'a','value':1}]", RC_BAD_REQUEST},
		{"[{'op':'copy','path':'/a'}]", RC_BAD_REQUEST},
		{"[{'op':'remove','path':'/z'}]", RC_INVALID},
		{"[{'op':'remove','path':''}]", RC_INVALID},
		{"[{'op':'replace','path':'/z','value':1}]", RC_INVALID},
		{"[{'op':'add','path':'/l/4','value':1}]", RC_INVALID},
		{"[{'op':'add','path':'/l/01','value':1}]", RC_INVALID},
		{"[{'op':'add','path':'/z/y','value':1}]", RC_INVALID},
		{"[{'op':'test','path':'/a','value':2}]", RC_INVALID},
		{"[{'op':'move','from':'/o','path':'/o/x'}]", RC_INVALID},
		{"[{'op':'remove','path':'/o/~2'}]", RC_BAD_REQUEST},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(js_unrefp) struct json *doc = J("{'a':1,'l':[1,2],'o':{}}");
		CLEANUP(js_unrefp) struct json *ops = J(cases[i].ops);
		struct json *out = NULL;
		struct err err = {0};

		if (api_patch_json(doc, ops, &out, &err) != cases[i].rc)
			fail_msg("%s gave %s", cases[i].ops, rc_name(err.rc));
		assert_null(out);
		assert_true(*err.msg);
		expect(doc, "{'a':1,'l':[1,2],'o':{}}", "the document");
	}
}

static void a_json_patch_cannot_blow_a_document_up(void **state)
{
	CLEANUP(js_unrefp)
	struct json *doc = J("{'a':['xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx']}");
	CLEANUP(js_unrefp) struct json *ops = js_new_array(), *deep = js_new_array();
	struct json *out = NULL;
	struct err err;

	(void)state;
	for (int i = 0; i < 64; i++)
		assert_int_equal(js_append(ops, js_pack("{s:s,s:s,s:s}", "op", "copy", "from", "",
							"path", "/a/-")),
				 RC_OK);
	assert_int_not_equal(api_patch_json(doc, ops, &out, &err), RC_OK);
	assert_null(out);
	for (int i = 0; i < LIMIT_JSON_DEPTH + 8; i++)
		assert_int_equal(js_append(deep, js_pack("{s:s,s:s,s:{}}", "op", "add", "path",
							 "/a", "value")),
				 RC_OK);
	for (int i = 0; i < LIMIT_JSON_DEPTH + 8; i++)
		assert_int_equal(js_append(deep, js_pack("{s:s,s:s,s:s}", "op", "copy", "from",
							 "/a", "path", "/a/b")),
				 RC_OK);
	assert_int_equal(api_patch_json(doc, deep, &out, &err), RC_INVALID);
	assert_non_null(strstr(err.msg, "nests deeper"));
}

static void merge_patches_follow_the_rfc(void **state)
{
	static const struct {
		const char *doc, *patch, *want;
	} cases[] = {
		{"{'a':'b'}", "{'a':'c'}", "{'a':'c'}"},
		{"{'a':'b'}", "{'b':'c'}", "{'a':'b','b':'c'}"},
		{"{'a':'b','b':'c'}", "{'a':null}", "{'b':'c'}"},
		{"{'a':['b']}", "{'a':'c'}", "{'a':'c'}"},
		{"{'a':'c'}", "{'a':['b']}", "{'a':['b']}"},
		{"{'a':{'b':'c'}}", "{'a':{'b':'d','c':null}}", "{'a':{'b':'d'}}"},
		{"{'a':[{'b':'c'}]}", "{'a':[1]}", "{'a':[1]}"},
		{"{'e':null}", "{'a':1}", "{'e':null,'a':1}"},
		{"{}", "{'a':{'bb':{'ccc':null}}}", "{'a':{'bb':{}}}"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(js_unrefp) struct json *doc = J(cases[i].doc), *patch = J(cases[i].patch);
		CLEANUP(js_unrefp) struct json *out = NULL;

		assert_int_equal(api_patch_merge(doc, patch, &out, NULL), RC_OK);
		expect(out, cases[i].want, cases[i].patch);
		expect(doc, cases[i].doc, "the document");
	}
}

static void a_difference_turns_old_into_new(void **state)
{
	static const struct {
		const char *old, *new_, *diff;
	} cases[] = {
		{"{'a':1,'b':{'c':[1]}}", "{'a':1,'b':{'c':[1]}}", "{}"},
		{"{'a':1}", "{'b':{'x':1}}", "{'a':null,'b':{'x':1}}"},
		{"{'a':{'x':1,'y':2}}", "{'a':{'x':1,'y':3}}", "{'a':{'y':3}}"},
		{"{'a':[1,2]}", "{'a':[2]}", "{'a':[2]}"},
		{"{'a':1}", "{'a':{}}", "{'a':{}}"},
		{"{'a':{'b':1}}", "{'a':{}}", "{'a':{'b':null}}"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(js_unrefp) struct json *old = J(cases[i].old), *new_ = J(cases[i].new_);
		CLEANUP(js_unrefp) struct json *diff = NULL, *out = NULL;

		assert_int_equal(api_merge_diff(old, new_, &diff), RC_OK);
		expect(diff, cases[i].diff, cases[i].new_);
		assert_int_equal(api_patch_merge(old, diff, &out, NULL), RC_OK);
		assert_true(js_equal(out, new_));
	}
}

static void strategic_patches_merge_by_key(void **state)
{
	static const struct {
		const char *doc, *patch, *want;
	} cases[] = {
		{"{'spec':{'containers':[{'name':'a','image':'x'},{'name':'b'}]}}",
		 "{'spec':{'containers':[{'name':'b','image':'y'},{'name':'c'}]}}",
		 "{'spec':{'containers':[{'name':'a','image':'x'},{'name':'b','image':'y'},{'name':'c'}]}}"},
		{"{'spec':{'containers':[{'name':'a'},{'name':'b'}]}}",
		 "{'spec':{'containers':[{'$patch':'delete','name':'a'}]}}",
		 "{'spec':{'containers':[{'name':'b'}]}}"},
		{"{'spec':{'containers':[{'name':'a'},{'name':'b'}]}}",
		 "{'spec':{'containers':[{'$patch':'replace'},{'name':'z'}]}}",
		 "{'spec':{'containers':[{'name':'z'}]}}"},
		{"{'spec':{'containers':[{'name':'a'},{'name':'b'},{'name':'c'}]}}",
		 "{'spec':{'$setElementOrder/containers':[{'name':'c'},{'name':'a'}],"
		 "'containers':[{'name':'a','image':'x'}]}}",
		 "{'spec':{'containers':[{'name':'b'},{'name':'c'},{'name':'a','image':'x'}]}}"},
		{"{'spec':{'containers':[{'name':'a'},{'name':'b'}]}}",
		 "{'spec':{'$setElementOrder/containers':[{'name':'b'},{'name':'a'}]}}",
		 "{'spec':{'containers':[{'name':'b'},{'name':'a'}]}}"},
		{"{'spec':{'tolerations':[{'key':'a'}]}}", "{'spec':{'tolerations':[{'key':'b'}]}}",
		 "{'spec':{'tolerations':[{'key':'b'}]}}"},
		{"{'metadata':{'finalizers':['a','b']}}", "{'metadata':{'finalizers':['c','b']}}",
		 "{'metadata':{'finalizers':['a','b','c']}}"},
		{"{'metadata':{'finalizers':['a','b']}}",
		 "{'metadata':{'$deleteFromPrimitiveList/finalizers':['a']}}",
		 "{'metadata':{'finalizers':['b']}}"},
		{"{'metadata':{'labels':{'a':'1','b':'2'}}}",
		 "{'metadata':{'labels':{'$patch':'replace','c':'3'}}}",
		 "{'metadata':{'labels':{'c':'3'}}}"},
		{"{'metadata':{'labels':{'a':'1'}}}", "{'metadata':{'labels':{'a':null,'b':'2'}}}",
		 "{'metadata':{'labels':{'b':'2'}}}"},
		{"{'metadata':{'labels':{'a':'1'}}}", "{'metadata':{'labels':{'$patch':'delete'}}}",
		 "{'metadata':{'labels':{}}}"},
		{"{'spec':{'volumes':[{'name':'v','emptyDir':{}}]}}",
		 "{'spec':{'volumes':[{'$retainKeys':['name','secret'],'name':'v','secret':{'secretName':'s'}}]}}",
		 "{'spec':{'volumes':[{'name':'v','secret':{'secretName':'s'}}]}}"},
		{"{}", "{'spec':{'nodeName':null,'containers':[{'name':'a','image':null}]}}",
		 "{'spec':{'containers':[{'name':'a'}]}}"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(js_unrefp) struct json *doc = J(cases[i].doc), *patch = J(cases[i].patch);
		CLEANUP(js_unrefp) struct json *out = NULL;
		struct err err;

		if (api_patch_strategic(&api_type_Pod, doc, patch, &out, &err))
			fail_msg("%s: %s", cases[i].patch, err.msg);
		expect(out, cases[i].want, cases[i].patch);
		expect(doc, cases[i].doc, "the document");
	}
}

static void malformed_strategic_patches_are_refused(void **state)
{
	static const char *const bad[] = {
		"[]",
		"{'spec':{'containers':[{'image':'x'}]}}",
		"{'spec':{'containers':['a']}}",
		"{'metadata':{'$patch':'frob'}}",
		"{'spec':{'$setElementOrder/tolerations':[]}}",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		CLEANUP(js_unrefp)
		struct json *doc =
			J("{'spec':{'containers':[{'name':'a'}],'tolerations':[{'key':'a'}]}}");
		CLEANUP(js_unrefp) struct json *patch = J(bad[i]);
		struct json *out = NULL;
		struct err err;

		if (api_patch_strategic(&api_type_Pod, doc, patch, &out, &err) != RC_BAD_REQUEST)
			fail_msg("%s was accepted", bad[i]);
		assert_null(out);
	}
}

static const struct json *t_doc, *t_ops, *t_merge, *t_strategic;

static enum rc patch_everything(void)
{
	CLEANUP(js_unrefp) struct json *a = NULL, *b = NULL, *c = NULL, *d = NULL;
	enum rc rc = api_patch_json(t_doc, t_ops, &a, NULL);

	if (!rc)
		rc = api_patch_merge(t_doc, t_merge, &b, NULL);
	if (!rc)
		rc = api_patch_strategic(&api_type_Pod, t_doc, t_strategic, &c, NULL);
	if (!rc)
		rc = api_merge_diff(t_doc, c, &d);
	return rc;
}

static void running_out_of_memory_is_reported(void **state)
{
	CLEANUP(js_unrefp)
	struct json *doc = J(
		"{'metadata':{'finalizers':['a']},'spec':{'containers':[{'name':'a'},{'name':'b'}]}}");
	CLEANUP(js_unrefp)
	struct json *ops = J(
		"[{'op':'add','path':'/x','value':{'y':1}},{'op':'copy','from':'/x','path':'/z'}]");
	CLEANUP(js_unrefp) struct json *merge = J("{'spec':{'x':{'y':null,'z':1}}}");
	CLEANUP(js_unrefp)
	struct json *strategic =
		J("{'spec':{'$setElementOrder/containers':[{'name':'b'},{'name':'a'}],"
		  "'containers':[{'name':'a','image':'x'}]}}");

	(void)state;
	t_doc = doc, t_ops = ops, t_merge = merge, t_strategic = strategic;
	torture(patch_everything);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(json_patches_apply),
		cmocka_unit_test(json_patches_that_do_not_fit_change_nothing),
		cmocka_unit_test(a_json_patch_cannot_blow_a_document_up),
		cmocka_unit_test(merge_patches_follow_the_rfc),
		cmocka_unit_test(a_difference_turns_old_into_new),
		cmocka_unit_test(strategic_patches_merge_by_key),
		cmocka_unit_test(malformed_strategic_patches_are_refused),
		cmocka_unit_test(running_out_of_memory_is_reported),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("api_patch", tests, NULL, NULL);
}
