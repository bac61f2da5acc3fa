/* tests/fuzz/fuzz_api.c - objects, patches, selectors and quantities from outside.
 *
 * First byte: which kind.  Then text, cut at NUL bytes: the object, and what is done to it (a patch
 * when it is JSON, else a selector and a quantity).
 */
#include <assert.h>
#include <string.h>

#include "api/gen/api_types.h"
#include "api/labels.h"
#include "api/patch.h"
#include "api/quantity.h"
#include "api/table.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "fuzz/fuzz.h"
#include "json/json.h"

static const struct api_kind *pick(uint8_t which)
{
	size_t n = 0;

	while (api_kinds[n])
		n++;
	return api_kinds[which % n];
}

/* What was decoded survives encoding, decoding and cloning. */
static void try_codec(const struct api_type *t, const struct json *j)
{
	void *obj = NULL, *again = NULL;
	struct err err;

	if (api_decode(t, j, &obj, &err))
		return;
	CLEANUP(js_unrefp) struct json *back = api_encode(t, obj);

	assert(back);
	assert(api_decode(t, back, &again, &err) == RC_OK);
	CLEANUP(js_unrefp) struct json *twice = api_encode(t, again);

	assert(js_equal(back, twice));
	void *copy = api_clone(t, obj);

	assert(copy && api_equal(t, obj, copy));
	api_free(t, copy);
	api_free(t, again);
	api_free(t, obj);
}

static void try_check(const struct api_kind *k, const struct json *j)
{
	CLEANUP(fe_fini) struct field_errs fe = FIELD_ERRS_INIT, after = FIELD_ERRS_INIT;
	CLEANUP(sbuf_fini) struct sbuf text = SBUF_INIT(16 * 1024 * 1024);
	CLEANUP(js_unrefp) struct json *copy = js_copy(j);
	CLEANUP(js_unrefp) struct json *causes = NULL;

	api_check(k, j, 0, &fe);
	fe_summary(&fe, FE__MAX, &text);
	causes = fe_causes(&fe);
	assert(causes);
	assert(js_equal(j, copy));
	if (!js_is_object(copy))
		return;
	assert(api_prune(k, copy) == RC_OK);
	assert(api_set_defaults(k, copy) == RC_OK);
	api_check(k, copy, 0, &after);
	assert(!fe_has(&after, FE_UNKNOWN));
	api_check_update(k, j, copy, &after);
	for (size_t i = 0; i < k->n_columns; i++)
		js_unref(api_table_cell(&k->columns[i], j, 1000000));
}

static void try_patches(const struct api_kind *k, const struct json *doc, const struct json *patch)
{
	CLEANUP(js_unrefp) struct json *a = NULL, *b = NULL, *c = NULL, *diff = NULL, *again = NULL;
	CLEANUP(js_unrefp) struct json *doc_before = js_copy(doc), *patch_before = js_copy(patch);

	if (js_is_array(patch))
		ignore_rc(api_patch_json(doc, patch, &a, NULL));
	if (!js_is_object(doc) || !js_is_object(patch))
		return;
	assert(api_patch_merge(doc, patch, &b, NULL) == RC_OK);
	assert(api_patch_merge(b, patch, &c, NULL) == RC_OK);
	assert(js_equal(b, c)); /* a merge patch applied twice is applied once */
	c = js_unref(c);
	ignore_rc(api_patch_strategic(k->type, doc, patch, &c, NULL));
	assert(api_merge_diff(doc, b, &diff) == RC_OK);
	assert(api_patch_merge(doc, diff, &again, NULL) == RC_OK);
	assert(js_equal(doc, doc_before) && js_equal(patch, patch_before));
}

static void try_texts(const char *text)
{
	CLEANUP(api_selector_freep) struct api_selector *s = NULL, *same = NULL;
	CLEANUP(api_fields_freep) struct api_fields *f = NULL;
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(1024 * 1024), q_text = SBUF_INIT(128);
	struct api_quantity q, q2;
	struct err err;

	if (!api_selector_parse(text, &s, &err)) {
		api_selector_print(s, &b);
		assert(b.rc || api_selector_parse(sbuf_str(&b), &same, &err) == RC_OK);
	}
	ignore_rc(api_fields_parse(text, &f, &err));
	(void)api_path_is_valid(text);
	if (!api_quantity_parse(text, &q, &err)) {
		api_quantity_print(&q, &q_text);
		assert(api_quantity_parse(sbuf_str(&q_text), &q2, &err) == RC_OK);
		assert(api_quantity_cmp(&q, &q2) == 0);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 2)
		return 0;
	const struct api_kind *k = pick(data[0]);
	CLEANUP(mem_freep) char *text = mem_strndup((const char *)data + 1, size - 1);
	CLEANUP(js_unrefp) struct json *doc = NULL, *patch = NULL;
	size_t n = strlen(text);
	CLEANUP(mem_freep)
	char *second = n + 2 < size ? mem_strndup((const char *)data + n + 2, size - n - 2)
				    : mem_strdup("");

	try_texts(second);
	if (js_parse(text, n, &doc, NULL))
		return 0;
	try_check(k, doc);
	try_codec(k->type, doc);
	if (!js_parse(second, strlen(second), &patch, NULL))
		try_patches(k, doc, patch);
	return 0;
}
