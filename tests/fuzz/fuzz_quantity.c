/* Quantities: "1.5Gi", "500m", "1e3".  Two texts, cut at a NUL; canonical text is read as the same number, and the
 * order of two is one order. */
#include <assert.h>
#include <string.h>

#include "api/quantity.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "fuzz/fuzz.h"

static bool read_one(const char *text, struct api_quantity *q)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(256), twice = SBUF_INIT(256);
	struct api_quantity again;
	struct err err = {0};

	if (api_quantity_parse(text, q, &err)) {
		assert(err.msg[0] && !api_quantity_is_valid(text));
		assert(api_quantity_bytes(text, -7) == -7);
		return false;
	}
	assert(api_quantity_is_valid(text));
	api_quantity_print(q, &b);
	assert(!b.rc && api_quantity_parse(sbuf_str(&b), &again, NULL) == RC_OK);
	assert(api_quantity_cmp(q, &again) == 0);
	api_quantity_print(&again, &twice);
	assert(strcmp(sbuf_str(&b), sbuf_str(&twice)) == 0);
	assert(api_quantity_value(q) == api_quantity_value(&again));
	assert(api_quantity_milli(q) == api_quantity_milli(&again));
	return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	CLEANUP(mem_freep) char *a = mem_strndup((const char *)data, size);
	size_t n = strlen(a);
	CLEANUP(mem_freep)
	char *b = n + 1 < size ? mem_strndup((const char *)data + n + 1, size - n - 1)
			       : mem_strdup("1");
	struct api_quantity x, y;

	if (!read_one(a, &x) || !read_one(b, &y))
		return 0;
	int c = api_quantity_cmp(&x, &y);

	assert(c == -api_quantity_cmp(&y, &x));
	assert(api_quantity_cmp(&x, &x) == 0);
	if (c < 0)
		assert(api_quantity_value(&x) <= api_quantity_value(&y));
	struct api_quantity s = api_quantity_add(&x, &y), t = api_quantity_add(&y, &x);

	assert(api_quantity_cmp(&s, &t) == 0);
	return 0;
}
