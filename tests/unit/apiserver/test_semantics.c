/* What odd requests are answered: names, versions, patches, bodies.  One row for each thing to try. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "fixture.h"

#define CMS		"/api/v1/namespaces/default/configmaps"
#define SVCS		"/api/v1/namespaces/default/services"
#define VMS		"/apis/kubevirt.io/v1/namespaces/default/virtualmachines"
#define JSON_PATCH	"application/json-patch+json"
#define MERGE_PATCH	"application/merge-patch+json"
#define STRATEGIC_PATCH "application/strategic-merge-patch+json"
#define APPLY		"application/apply-patch+yaml"
#define YAML		"application/yaml"

static struct fx f;

static int setup(void **state)
{
	(void)state;
	fx_up(&f, NULL);
	js_unref(fx_do(
		&f, 201, "POST", CMS,
		"{\"metadata\":{\"name\":\"c\",\"labels\":{\"a\":\"b\"}},\"data\":{\"k\":\"1\"}}"));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fx_down(&f);
	return 0;
}

struct row {
	const char *name, *method, *target, *type, *body;
	int status;
	const char *text; /* part of the answer; NULL: any */
};

static void check(const struct row *r)
{
	struct fx_answer a;

	fx_call(&f, &a, &fx_admin, r->method, r->target, r->type, NULL, r->body);
	if (a.status != r->status || (r->text && !strstr(a.text, r->text)))
		fail_msg("%s: %d instead of %d: %.2000s", r->name, a.status, r->status, a.text);
	fx_answer_fini(&a);
}

static void check_all(const struct row *rows, size_t n)
{
	for (size_t i = 0; i < n; i++)
		check(&rows[i]);
}

static void names_and_places(void **state)
{
	(void)state;
	static const struct row rows[] = {
		{"uppercase", "POST", CMS, NULL, "{\"metadata\":{\"name\":\"Abc\"}}", 422,
		 "metadata.name"},
		{"dots", "POST", CMS, NULL, "{\"metadata\":{\"name\":\"..\"}}", 422,
		 "metadata.name"},
		{"trailing dot", "POST", CMS, NULL, "{\"metadata\":{\"name\":\"a.\"}}", 422,
		 "metadata.name"},
		{"look-alike", "POST", CMS, NULL, "{\"metadata\":{\"name\":\"\\u0430bc\"}}", 422,
		 "metadata.name"},
		{"slash", "POST", CMS, NULL, "{\"metadata\":{\"name\":\"a/b\"}}", 422,
		 "metadata.name"},
		{"NUL in the address", "GET", CMS "/a%00b", NULL, NULL, 400, NULL},
		{"no name", "POST", CMS, NULL, "{\"metadata\":{}}", 422, "name or generateName"},
		{"other namespace", "POST", CMS, NULL,
		 "{\"metadata\":{\"name\":\"x\",\"namespace\":\"other\"}}", 400,
		 "the namespace of the provided object does not match"},
		{"other name", "PUT", CMS "/c", NULL, "{\"metadata\":{\"name\":\"d\"}}", 400,
		 "does not match the name on the URL"},
		{"other uid", "PUT", CMS "/c", NULL,
		 "{\"metadata\":{\"name\":\"c\",\"uid\":\"u\"}}", 409, "Precondition failed: UID"},
		{"no such namespace", "POST", "/api/v1/namespaces/nowhere/configmaps", NULL,
		 "{\"metadata\":{\"name\":\"x\"}}", 404, "namespaces \\\"nowhere\\\" not found"},
	};

	check_all(rows, ARRAY_SIZE(rows));
	char body[320], name[255];

	memset(name, 'a', 254);
	name[254] = '\0';
	snprintf(body, sizeof(body), "{\"metadata\":{\"name\":\"%s\"}}", name);
	check(&(struct row){"254 chars", "POST", CMS, NULL, body, 422, "metadata.name"});
	body[strlen(body) - 4] = '"'; /* one less */
	snprintf(body, sizeof(body), "{\"metadata\":{\"name\":\"%.253s\"}}", name);
	check(&(struct row){"253 chars", "POST", CMS, NULL, body, 201, NULL});
}

static void what_the_server_gives_is_not_taken_from_the_client(void **state)
{
	(void)state;
	struct json *j = fx_do(
		&f, 201, "POST", CMS,
		"{\"metadata\":{\"name\":\"x\",\"uid\":\"mine\",\"generation\":9,\"creationTimestamp\":"
		"\"2001-01-01T00:00:00Z\",\"deletionTimestamp\":\"2001-01-01T00:00:00Z\",\"selfLink\":\"/x\"}}");

	assert_int_equal(strlen(js_str(js_at(j, "metadata", "uid", NULL))), 36);
	assert_null(js_at(j, "metadata", "deletionTimestamp", NULL));
	assert_null(strstr(js_str(js_at(j, "metadata", "creationTimestamp", NULL)), "2001"));
	js_unref(j);
	/* status by the main path, and the rest by status */
	static const char vm[] =
		"{\"metadata\":{\"name\":\"v\"},\"spec\":{\"runStrategy\":\"Halted\",\"template\":{\"spec\":{\"domain\":{\"memory\":"
		"{\"guest\":\"64Mi\"},\"devices\":{}}}}},\"status\":{\"ready\":true}}";

	js_unref(fx_do(&f, 201, "POST", VMS, vm));
	j = fx_patch(&f, 200, "merge-patch", VMS "/v", "{\"status\":{\"ready\":true}}");
	assert_null(js_get(j, "status"));
	js_unref(j);
	j = fx_patch(
		&f, 200, "merge-patch", VMS "/v/status",
		"{\"spec\":{\"runStrategy\":\"Always\"},\"metadata\":{\"labels\":{\"x\":\"y\"}},\"status\":{\"ready\":true}}");
	assert_path(j, "Halted", "spec", "runStrategy");
	assert_null(js_at(j, "metadata", "labels", NULL));
	assert_true(js_bool(js_at(j, "status", "ready", NULL), false));
	js_unref(j);
}

static void versions(void **state)
{
	(void)state;
#define PUT_RV(rv_) "{\"metadata\":{\"name\":\"c\",\"resourceVersion\":\"" rv_ "\"},\"data\":{}}"
	static const struct row rows[] = {
		{"create with a version", "POST", CMS, NULL,
		 "{\"metadata\":{\"name\":\"x\",\"resourceVersion\":\"1\"}}", 400,
		 "resourceVersion should not be set"},
		{"update, text", "PUT", CMS "/c", NULL, PUT_RV("new"), 422,
		 "metadata.resourceVersion"},
		{"update, negative", "PUT", CMS "/c", NULL, PUT_RV("-1"), 422,
		 "metadata.resourceVersion"},
		{"update, future", "PUT", CMS "/c", NULL, PUT_RV("99999999"), 409,
		 "the object has been modified"},
		{"update, any", "PUT", CMS "/c", NULL, PUT_RV("0"), 200, NULL},
		{"list, text", "GET", CMS "?resourceVersion=x", NULL, NULL, 400, "resourceVersion"},
		{"list, negative", "GET", CMS "?resourceVersion=-1", NULL, NULL, 400,
		 "resourceVersion"},
		{"list, future", "GET", CMS "?resourceVersion=99999999", NULL, NULL, 504,
		 "Too large resource version"},
		{"list, any", "GET", CMS "?resourceVersion=0", NULL, NULL, 200, NULL},
		{"match alone", "GET", CMS "?resourceVersionMatch=Exact", NULL, NULL, 400,
		 "resourceVersionMatch is forbidden unless"},
		{"limit, negative", "GET", CMS "?limit=-1", NULL, NULL, 400, "limit"},
		{"limit, 2^31", "GET", CMS "?limit=2147483648", NULL, NULL, 400, "limit"},
		{"delete, other version", "DELETE", CMS "/c", NULL,
		 "{\"preconditions\":{\"resourceVersion\":\"1\"}}", 409,
		 "ResourceVersion in precondition"},
		{"delete, other uid", "DELETE", CMS "/c", NULL,
		 "{\"preconditions\":{\"uid\":\"u\"}}", 409, "UID in precondition"},
	};

	check_all(rows, ARRAY_SIZE(rows));
}

static void selectors(void **state)
{
	(void)state;
	struct sbuf b = SBUF_INIT(1 << 20);

	sbuf_adds(&b, CMS "?labelSelector=");
	for (int i = 0; i < 10000; i++)
		sbuf_addf(&b, "%sl%d%%21%%3Dx", i ? "," : "", i);
	check(&(struct row){"10,000 terms", "GET", sbuf_str(&b), NULL, NULL, 413,
			    "target is longer"});
	sbuf_fini(&b);
	static const struct row rows[] = {
		{"not a selector", "GET", CMS "?labelSelector=%2Aa%3Db", NULL, NULL, 400,
		 "unable to parse requirement"},
		{"a pattern is text", "GET", CMS "?labelSelector=a%3D%28b%2B%29%2B", NULL, NULL,
		 400, "unable to parse requirement"},
		{"unknown field", "GET", CMS "?fieldSelector=data.k%3D1", NULL, NULL, 400,
		 "field label not supported"},
	};

	check_all(rows, ARRAY_SIZE(rows));
}

static char *patch_of(int n)
{
	struct sbuf b = SBUF_INIT(LIMIT_BODY_BYTES * 4);
	char *text = NULL;

	sbuf_addc(&b, '[');
	for (int i = 0; i < n; i++)
		sbuf_addf(&b, "%s{\"op\":\"add\",\"path\":\"/data/k\",\"value\":\"%d\"}",
			  i ? "," : "", i);
	sbuf_addc(&b, ']');
	assert_int_equal(sbuf_take(&b, &text, NULL), RC_OK);
	return text;
}

static void patches(void **state)
{
	(void)state;
	static const struct row rows[] = {
		{"a test that fails", "PATCH", CMS "/c", JSON_PATCH,
		 "[{\"op\":\"test\",\"path\":\"/data/k\",\"value\":\"2\"},{\"op\":\"remove\",\"path\":\"/data\"}]",
		 422, "test"},
		{"move into itself", "PATCH", CMS "/c", JSON_PATCH,
		 "[{\"op\":\"move\",\"from\":\"/data\",\"path\":\"/data/k\"}]", 422, NULL},
		{"bad escape", "PATCH", CMS "/c", JSON_PATCH,
		 "[{\"op\":\"add\",\"path\":\"/data/~2\",\"value\":\"x\"}]", 400, "bad escape"},
		{"index 2^32", "PATCH", CMS "/c", JSON_PATCH,
		 "[{\"op\":\"add\",\"path\":\"/metadata/finalizers\",\"value\":[]},"
		 "{\"op\":\"add\",\"path\":\"/metadata/finalizers/4294967296\",\"value\":\"x/y\"}]",
		 422, NULL},
		{"no such index", "PATCH", CMS "/c", JSON_PATCH,
		 "[{\"op\":\"remove\",\"path\":\"/metadata/finalizers/0\"}]", 422, NULL},
		{"not a list", "PATCH", CMS "/c", JSON_PATCH, "{}", 400, NULL},
		{"another name", "PATCH", CMS "/c", MERGE_PATCH, "{\"metadata\":{\"name\":\"d\"}}",
		 400, "does not match the name on the URL"},
		{"null everywhere", "PATCH", CMS "/c", MERGE_PATCH,
		 "{\"metadata\":null,\"data\":null,\"kind\":null,\"apiVersion\":null}", 400, NULL},
		{"null", "PATCH", CMS "/c", MERGE_PATCH, "null", 400, NULL},
		{"unknown field, strategic", "PATCH", CMS "/c?fieldValidation=Strict",
		 STRATEGIC_PATCH, "{\"frog\":1}", 400, "unknown field \\\"frog\\\""},
		{"unknown directive", "PATCH", CMS "/c", STRATEGIC_PATCH,
		 "{\"data\":{\"$patch\":\"explode\"}}", 400, NULL},
		{"strategic, custom kind", "PATCH", VMS "/c", STRATEGIC_PATCH, "{}", 415,
		 "application/merge-patch+json"},
		{"unknown kind of patch", "PATCH", CMS "/c", "text/plain", "{}", 415,
		 "accepted media types"},
		{"apply, text", "PATCH", CMS "/c?fieldManager=m", APPLY, "just text", 400, NULL},
	};
	char *many = patch_of(100000), *most = patch_of(10000);

	check_all(rows, ARRAY_SIZE(rows));
	check(&(struct row){"100,000 operations", "PATCH", CMS "/c", JSON_PATCH, many, 413, NULL});
	check(&(struct row){"10,000 operations", "PATCH", CMS "/c", JSON_PATCH, most, 200, "9999"});
	mem_free(many);
	mem_free(most);
	struct json *j = fx_do(&f, 200, "GET", CMS "/c", NULL);

	assert_path(j, "9999", "data", "k");
	js_unref(j);
}

/* An object's data of n keys. */
static char *big_body(int n, size_t value)
{
	struct sbuf b = SBUF_INIT(LIMIT_BODY_BYTES * 2);
	char *text = NULL, *fill = mem_alloc(value + 1);

	memset(fill, 'x', value);
	sbuf_adds(
		&b,
		"{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"big\"},\"data\":{");
	for (int i = 0; i < n; i++)
		sbuf_addf(&b, "%s\"k%d\":\"%s\"", i ? "," : "", i, fill);
	sbuf_adds(&b, "}}");
	mem_free(fill);
	assert_int_equal(sbuf_take(&b, &text, NULL), RC_OK);
	return text;
}

static void sizes(void **state)
{
	(void)state;
	char *keys = big_body(10000, 1), *large = big_body(1, LIMIT_OBJECT_BYTES + 1);
	char *largest = big_body(1, LIMIT_OBJECT_BYTES - 1000);

	check(&(struct row){"10,000 managed fields", "PATCH", CMS "/big?fieldManager=m", APPLY,
			    keys, 201, "\"f:k9999\""});
	check(&(struct row){"again", "PATCH", CMS "/big?fieldManager=m", APPLY, keys, 200, NULL});
	check(&(struct row){"one byte more than an object may have", "PUT", CMS "/big", NULL, large,
			    413, NULL});
	check(&(struct row){"as large as may be", "PUT", CMS "/big", NULL, largest, 200, NULL});
	mem_free(keys);
	mem_free(large);
	mem_free(largest);
}

static void deletions(void **state)
{
	(void)state;
	static const struct row rows[] = {
		{"in the body", "DELETE", CMS "/c", NULL, "{\"dryRun\":[\"All\"]}", 200, NULL},
		{"in the address", "DELETE", CMS "/c?dryRun=All", NULL, NULL, 200, NULL},
		{"a word nobody knows", "DELETE", CMS "/c", NULL, "{\"dryRun\":[\"Some\"]}", 422,
		 "supported values"},
		{"the same", "DELETE", CMS "/c?dryRun=Some", NULL, NULL, 422, "supported values"},
		{"not a list", "DELETE", CMS "/c", NULL, "{\"dryRun\":\"All\"}", 422, NULL},
		{"all of them", "DELETE", CMS, NULL, "{\"dryRun\":[\"All\"]}", 200, NULL},
		{"all, a word nobody knows", "DELETE", CMS "?dryRun=Some", NULL, NULL, 422, NULL},
		{"policy", "DELETE", CMS "/c?propagationPolicy=Maybe", NULL, NULL, 422,
		 "propagationPolicy"},
		{"grace", "DELETE", CMS "/c?gracePeriodSeconds=x", NULL, NULL, 400,
		 "gracePeriodSeconds"},
		{"still there", "GET", CMS "/c", NULL, NULL, 200, NULL},
	};

	check_all(rows, ARRAY_SIZE(rows));
	/* a finalizer that nobody takes away */
	js_unref(fx_patch(&f, 200, "merge-patch", CMS "/c",
			  "{\"metadata\":{\"finalizers\":[\"a.b/c\"]}}"));
	struct json *first = fx_do(&f, 200, "DELETE", CMS "/c", NULL);
	struct json *again = fx_do(&f, 200, "DELETE", CMS "/c", NULL);

	assert_non_null(js_at(first, "metadata", "deletionTimestamp", NULL));
	assert_true(js_equal(first, again));
	js_unref(first);
	js_unref(again);
	check(&(struct row){"one more finalizer", "PATCH", CMS "/c", MERGE_PATCH,
			    "{\"metadata\":{\"finalizers\":[\"a.b/c\",\"d.e/f\"]}}", 422,
			    "no new finalizers can be added"});
	js_unref(
		fx_patch(&f, 200, "merge-patch", CMS "/c", "{\"metadata\":{\"finalizers\":null}}"));
	check(&(struct row){"gone", "GET", CMS "/c", NULL, NULL, 404, NULL});
}

static void on_extra(void *arg, const struct apisrv_answer *a)
{
	int *status = arg;

	*status = a->status;
}

/* All that were there when it began go; none that came later is touched, and nothing is left half done. */
static void a_collection_goes_in_a_storm_of_creates(void **state)
{
	(void)state;
	static const struct apisrv_sink sink = {.answer = on_extra};
	int made[40] = {0}, gone = 0;

	for (int i = 0; i < 40; i++) {
		char body[64];

		if (i == 20) {
			struct apisrv_request r = {
				.method = "DELETE", .target = CMS, .user = &fx_admin};

			apisrv_handle(f.srv, &r, &sink, &gone);
		}
		snprintf(body, sizeof(body), "{\"metadata\":{\"name\":\"s%d\"}}", i);
		struct apisrv_request r = {.method = "POST",
					   .target = CMS,
					   .body = body,
					   .n_body = strlen(body),
					   .user = &fx_admin};

		apisrv_handle(f.srv, &r, &sink, &made[i]);
	}
	fx_settle(&f);
	struct json *left = fx_do(&f, 200, "GET", CMS, NULL);

	assert_int_equal(gone, 200);
	for (int i = 0; i < 40; i++)
		assert_int_equal(made[i], 201);
	/* what was acknowledged before it began is gone; the rest may be either */
	for (size_t i = 0; i < js_len(js_get(left, "items")); i++)
		assert_true(strcmp(js_str(js_at(js_item(js_get(left, "items"), i), "metadata",
						"name", NULL)),
				   "c") != 0);
	js_unref(left);
}

static void bodies(void **state)
{
	(void)state;
#define META "\"metadata\":{\"name\":\"x\"}"
	static const struct row rows[] = {
		{"empty", "POST", CMS, NULL, "", 400, "the body is empty"},
		{"trailing bytes", "POST", CMS, NULL, "{" META "} x", 400, "something follows"},
		{"byte order mark", "POST", CMS, NULL, "\xef\xbb\xbf{" META "}", 400,
		 "invalid token"},
		{"half a pair", "POST", CMS, NULL, "{" META ",\"data\":{\"k\":\"\\ud800\"}}", 400,
		 "surrogate"},
		{"1e400", "POST", CMS, NULL, "{" META ",\"x\":1e400}", 400, "too large"},
		{"2^63", "POST", CMS, NULL, "{" META ",\"x\":9223372036854775808}", 400, "64 bits"},
		{"2^64", "POST", CMS, NULL, "{" META ",\"x\":18446744073709551616}", 400,
		 "64 bits"},
		{"1e-400, -0", "POST", CMS "?dryRun=All", NULL, "{" META ",\"x\":1e-400,\"y\":-0}",
		 201, NULL},
		{"overlong UTF-8", "POST", CMS, NULL, "{" META ",\"data\":{\"k\":\"\xc0\xaf\"}}",
		 400, "UTF-8"},
		{"CBOR", "POST", CMS, "application/cbor", "\xa1", 415, "accepted media types"},
		{"text", "POST", CMS, "text/plain", "{" META "}", 415, "accepted media types"},
		{"protobuf that is none", "POST", CMS, "application/vnd.kubernetes.protobuf", "{}",
		 400, NULL},
		{"a list", "POST", CMS, NULL, "[]", 400, "not a JSON object"},
		/* duplicate keys go by fieldValidation */
		{"twice, strict", "POST", CMS "?fieldValidation=Strict&dryRun=All", NULL,
		 "{" META ",\"data\":{\"k\":\"1\",\"k\":\"2\"},\"frog\":1}", 400,
		 "strict decoding error: duplicate field \\\"data.k\\\", unknown field \\\"frog\\\""},
		{"twice, ignored", "POST", CMS "?fieldValidation=Ignore&dryRun=All", NULL,
		 "{" META ",\"data\":{\"k\":\"1\",\"k\":\"2\"}}", 201, "\"data\":{\"k\":\"2\"}"},
		{"twice in a patch, strict", "PATCH", CMS "/c?fieldValidation=Strict", MERGE_PATCH,
		 "{\"data\":{\"k\":\"1\",\"k\":\"2\"}}", 400, "duplicate field \\\"data.k\\\""},
		{"twice in options", "DELETE", CMS "/c", NULL,
		 "{\"dryRun\":[],\"dryRun\":[\"All\"]}", 400, "duplicate object key"},
		/* YAML */
		{"yaml", "POST", CMS "?dryRun=All", YAML,
		 "metadata: {name: x}\ndata:\n  k: 'no'\n  l: \"1\"\n", 201,
		 "\"data\":{\"k\":\"no\",\"l\":\"1\"}"},
		{"yaml, a word that is no text", "POST", CMS, YAML,
		 "metadata: {name: x}\ndata: {k: no}", 422, "data[k]"},
		{"yaml, octal", "POST", CMS, YAML, "metadata: {name: x}\ndata: {k: 0644}", 422,
		 "data[k]"},
		{"yaml, tab", "POST", CMS, YAML, "metadata:\n\tname: x", 400, "line 2"},
		{"yaml, a tag of one's own", "POST", CMS, YAML, "metadata: !run {name: x}", 400,
		 "tag"},
		{"yaml, merge key", "POST", CMS "?dryRun=All", YAML,
		 "metadata: {name: x}\ndata: {<<: {k: a, l: b}, k: c}", 201, "\"k\":\"c\""},
		{"yaml, binary", "POST", "/api/v1/namespaces/default/secrets?dryRun=All", YAML,
		 "metadata: {name: x}\ndata: {k: !!binary aGFsbG8=}", 201, "\"k\":\"aGFsbG8=\""},
		{"yaml, two documents", "POST", CMS, YAML, "metadata: {name: x}\n---\nkind: X", 400,
		 "2 documents"},
		{"yaml, none", "POST", CMS, YAML, "# nothing\n", 400, "the body is empty"},
		{"yaml, twice, strict", "POST", CMS "?fieldValidation=Strict", YAML,
		 "metadata: {name: x}\ndata:\n  k: a\n  k: b", 400,
		 "duplicate field \\\"data.k\\\""},
		{"yaml, JSON with escapes", "POST", CMS "?dryRun=All", YAML,
		 "{" META ",\"data\":{\"k\":\"\\ud83d\\ude00\\/\"}}", 201, "\xf0\x9f\x98\x80/"},
		{"yaml, flow without quotes", "POST", CMS "?dryRun=All", YAML,
		 "{metadata: {name: x}, data: {k: v}}", 201, "\"k\":\"v\""},
		{"yaml, UTF-16 that is none", "POST", CMS, YAML, "\xff\xfe{", 400, NULL},
		{"apply in yaml", "PATCH", CMS "/y?fieldManager=m", APPLY,
		 "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: y\ndata:\n  k: v\n", 201,
		 "\"f:data\":{\"f:k\":{}}"},
		{"apply in yaml, twice", "PATCH", CMS "/y?fieldManager=m&fieldValidation=Strict",
		 APPLY,
		 "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: y\ndata:\n  k: v\n  k: w\n",
		 400, "duplicate field \\\"data.k\\\""},
		{"a patch is no yaml", "PATCH", CMS "/c", YAML, "data: {k: v}", 415, NULL},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		check(&rows[i]);
	struct fx_answer a;

	fx_call(&f, &a, &fx_admin, "POST", CMS "?dryRun=All", NULL, NULL,
		"{" META ",\"data\":{\"k\":\"1\",\"k\":\"2\"},\"frog\":1}");
	assert_int_equal(a.status, 201);
	assert_int_equal(a.n_warnings, 2);
	assert_string_equal(a.warnings[0], "299 - \"duplicate field \\\"data.k\\\"\"");
	assert_string_equal(a.warnings[1], "299 - \"unknown field \\\"frog\\\"\"");
	fx_answer_fini(&a);
}

static char *nested(const char *open, int n)
{
	struct sbuf b = SBUF_INIT(LIMIT_BODY_BYTES * 4);
	char *text = NULL;

	for (int i = 0; i < n; i++)
		sbuf_adds(&b, open);
	assert_int_equal(sbuf_take(&b, &text, NULL), RC_OK);
	return text;
}

static void bombs(void **state)
{
	(void)state;
	char *deep = nested("[", 1000000), *deep_yaml = nested("- ", 100000);
	char *keys = big_body(150000, 1), *docs = nested("---\na: 1\n", 100000);

	check(&(struct row){"a million levels", "POST", CMS, NULL, deep, 400, "nested too deeply"});
	check(&(struct row){"a million levels, yaml", "POST", CMS, YAML, deep, 400, NULL});
	check(&(struct row){"100,000 levels, yaml", "POST", CMS, YAML, deep_yaml, 400, NULL});
	check(&(struct row){"150,000 keys", "POST", CMS, NULL, keys, 413, NULL});
	check(&(struct row){"100,000 documents", "POST", CMS, YAML, docs, 413, "documents"});
	check(&(struct row){
		"anchors", "POST", CMS, YAML,
		"a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\n"
		"c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\n"
		"e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e,*e,*e]",
		400, "too many values"});
	mem_free(deep);
	mem_free(deep_yaml);
	mem_free(keys);
	mem_free(docs);
}

static char *token_of(const char *target)
{
	struct json *j = fx_do(&f, 200, "GET", target, NULL);
	char *token = mem_strdup(js_str(js_at(j, "metadata", "continue", NULL)));

	assert_non_null(token);
	js_unref(j);
	return token;
}

static void check_token(const char *name, const char *target, const char *token, int want)
{
	char full[1200];

	snprintf(full, sizeof(full), "%s%scontinue=%s", target, strchr(target, '?') ? "&" : "?",
		 token);
	check(&(struct row){name, "GET", full, NULL, NULL, want,
			    want == 400 ? "continue key" : NULL});
}

static void tokens_are_good_for_their_own_list(void **state)
{
	(void)state;
	for (int i = 0; i < 5; i++) {
		char body[96];

		snprintf(body, sizeof(body),
			 "{\"metadata\":{\"name\":\"t%d\",\"labels\":{\"a\":\"b\"}}}", i);
		js_unref(fx_do(&f, 201, "POST", CMS, body));
		js_unref(fx_do(&f, 201, "POST", "/api/v1/namespaces/default/secrets", body));
	}
	char *token = token_of(CMS "?limit=2&labelSelector=a%3Db");

	check_token("its own", CMS "?limit=2&labelSelector=a%3Db", token, 200);
	check_token("another limit", CMS "?limit=1&labelSelector=a%3Db", token, 200);
	check_token("without the selector", CMS "?limit=2", token, 400);
	check_token("another selector", CMS "?labelSelector=a%21%3Dc", token, 400);
	check_token("another namespace",
		    "/api/v1/namespaces/kube-system/configmaps?labelSelector=a%3Db", token, 400);
	check_token("all namespaces", "/api/v1/configmaps?labelSelector=a%3Db", token, 400);
	check_token("another resource", "/api/v1/namespaces/default/secrets?labelSelector=a%3Db",
		    token, 400);
	for (size_t i = 0, n = strlen(token); i < n; i += 7) {
		char was = token[i];

		token[i] = was == 'A' ? 'Z' : 'A';
		check_token("forged", CMS "?limit=2&labelSelector=a%3Db", token, 400);
		token[i] = was;
	}
	mem_free(token);
	check_token("no token", CMS, "abc", 400);
	/* {"v":"meta.k8s.io/v1","rv":1,"start":"default/a"}: right but for the signature */
	check_token("not signed", CMS,
		    "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJkZWZhdWx0L2EifQ", 400);
}

struct kept {
	int status;
	size_t n;
	char etag[32];
	bool is_immutable, has_type;
};

static void on_kept(void *arg, const struct apisrv_answer *a)
{
	struct kept *k = arg;

	k->status = a->status;
	k->n = a->n;
	k->is_immutable = a->is_immutable;
	k->has_type = a->content_type != NULL;
	snprintf(k->etag, sizeof(k->etag), "%s", a->etag ? a->etag : "");
}

static struct kept get_if_new(const char *target, const char *accept, const char *have)
{
	static const struct apisrv_sink sink = {.answer = on_kept};
	struct kept k = {0};
	struct apisrv_request r = {.method = "GET",
				   .target = target,
				   .accept = accept,
				   .if_none_match = have,
				   .user = &fx_admin};

	apisrv_handle(f.srv, &r, &sink, &k);
	fx_settle(&f);
	return k;
}

#define AGGREGATED "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

#define V3_PROTO   "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"

static void openapi_v3_is_there_in_both_forms(void **state)
{
	static const char *const rows[][2] = {
		{V3_PROTO, "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"},
		{V3_PROTO ",application/json",
		 "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"},
		{"application/json," V3_PROTO, "application/json"},
		{"*/*", "application/json"},
		{NULL, "application/json"},
	};
	struct fx_answer a;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		fx_call(&f, &a, &fx_admin, "GET", "/openapi/v3/apis/kubevirt.io/v1", NULL,
			rows[i][0], NULL);
		assert_int_equal(a.status, 200);
		assert_string_equal(a.content_type, rows[i][1]);
		/* A document begins with its version, field 1 and five bytes. */
		assert_memory_equal(a.text, i < 2 ? "\n\0053.0.0" : "{\"openapi", 7);
		fx_answer_fini(&a);
	}
}

static void documents_are_sent_once(void **state)
{
	(void)state;
	static const char *const rows[][2] = {
		{"/api", NULL},
		{"/apis", NULL},
		{"/api", AGGREGATED},
		{"/apis", AGGREGATED},
		{"/api/v1", NULL},
		{"/apis/kubevirt.io", NULL},
		{"/openapi/v2", NULL},
		{"/apis/kubevirt.io/v1", NULL},
		{"/openapi/v3", NULL},
		{"/openapi/v3/api/v1", NULL},
		{"/openapi/v3/api/v1", V3_PROTO},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct kept first = get_if_new(rows[i][0], rows[i][1], NULL);
		struct kept again = get_if_new(rows[i][0], rows[i][1], first.etag);
		struct kept other = get_if_new(rows[i][0], rows[i][1], "\"0\", W/\"1\"");

		assert_int_equal(first.status, 200);
		assert_int_equal(strlen(first.etag), 18);
		assert_int_equal(again.status, 304);
		assert_int_equal(again.n, 0);
		assert_false(again.has_type);
		assert_string_equal(again.etag, first.etag);
		assert_int_equal(other.status, 200);
	}
	/* one address, two documents */
	struct kept old = get_if_new("/apis", NULL, NULL);

	assert_int_equal(get_if_new("/apis", AGGREGATED, old.etag).status, 200);
	old = get_if_new("/openapi/v3/api/v1", NULL, NULL);
	assert_int_equal(get_if_new("/openapi/v3/api/v1", V3_PROTO, old.etag).status, 200);
	/* objects are never kept */
	assert_string_equal(get_if_new(CMS "/c", NULL, NULL).etag, "");
	/* what has its hash in the address never changes */
	struct json *index = fx_do(&f, 200, "GET", "/openapi/v3", NULL);
	const char *url =
		js_str(js_at(index, "paths", "apis/kubevirt.io/v1", "serverRelativeURL", NULL));

	assert_true(get_if_new(url, NULL, NULL).is_immutable);
	assert_false(get_if_new("/openapi/v3/apis/kubevirt.io/v1?hash=0", NULL, NULL).is_immutable);
	js_unref(index);
}

int main(void)
{
#define T(fn_) cmocka_unit_test_setup_teardown(fn_, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(names_and_places),
		T(what_the_server_gives_is_not_taken_from_the_client),
		T(versions),
		T(selectors),
		T(patches),
		T(sizes),
		T(deletions),
		T(a_collection_goes_in_a_storm_of_creates),
		T(bodies),
		T(bombs),
		T(tokens_are_good_for_their_own_list),
		T(documents_are_sent_once),
		T(openapi_v3_is_there_in_both_forms),
	};

	js_use_mem();
	return cmocka_run_group_tests_name("semantics", tests, NULL, NULL);
}
