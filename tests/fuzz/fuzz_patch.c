/* JSON, merge and strategic merge patches.  First byte: which kind; then two JSON texts, cut at a NUL: object, patch. */
#include <assert.h>
#include <string.h>

#include "api/api.h"
#include "api/patch.h"
#include "base/mem.h"
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

/* Applied to what it made, a merge patch changes nothing; the difference of two objects makes one of the other. */
static void try_merge(const struct json *doc, const struct json *patch)
{
	CLEANUP(js_unrefp) struct json *a = NULL, *b = NULL, *diff = NULL, *again = NULL;

	assert(api_patch_merge(doc, patch, &a, NULL) == RC_OK);
	assert(api_patch_merge(a, patch, &b, NULL) == RC_OK);
	assert(js_equal(a, b));
	assert(api_merge_diff(doc, a, &diff) == RC_OK);
	assert(api_patch_merge(doc, diff, &again, NULL) == RC_OK);
	/* null in the object is the one thing that a merge patch cannot say */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	CLEANUP(js_unrefp)
	struct json *doc = NULL, *patch = NULL, *out = NULL, *doc0 = NULL, *patch0 = NULL;

	if (size < 3)
		return 0;
	const char *text = (const char *)data + 1, *cut = memchr(text, 0, size - 1);

	if (!cut || js_parse(text, (size_t)(cut - text), &doc, NULL) ||
	    js_parse(cut + 1, size - 2 - (size_t)(cut - text), &patch, NULL))
		return 0;
	doc0 = js_copy(doc);
	patch0 = js_copy(patch);
	if (js_is_array(patch))
		ignore_rc(api_patch_json(doc, patch, &out, NULL));
	out = js_unref(out);
	if (js_is_object(doc) && js_is_object(patch)) {
		try_merge(doc, patch);
		ignore_rc(api_patch_strategic(pick(data[0])->type, doc, patch, &out, NULL));
	}
	assert(js_equal(doc, doc0) && js_equal(patch, patch0)); /* inputs are only read */
	return 0;
}
