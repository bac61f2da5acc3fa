/* tests/fuzz/fuzz_api.c - objects from outside.
 *
 * First byte: which kind.  Then the object's text, up to a NUL.
 */
#include <assert.h>
#include <string.h>

#include "api/gen/api_types.h"
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
	assert(n > 0);
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 2)
		return 0;
	const struct api_kind *k = pick(data[0]);
	CLEANUP(mem_freep) char *text = mem_strndup((const char *)data + 1, size - 1);
	CLEANUP(js_unrefp) struct json *doc = NULL;

	if (js_parse(text, strlen(text), &doc, NULL))
		return 0;
	try_check(k, doc);
	try_codec(k->type, doc);
	return 0;
}
