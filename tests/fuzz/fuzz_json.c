/* JSON texts: parse, print, parse again, compare. */
#include <stdlib.h>

#include "fuzz.h"
#include "json/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct json *a = NULL, *b = NULL;
	struct sbuf out = SBUF_INIT(1 << 20);

	if (js_parse((const char *)data, n, &a, NULL))
		return 0;
	js_print(a, &out, false);
	if (sbuf_rc(&out) == RC_OK) {
		if (js_parse(out.p, out.n, &b, NULL))
			abort();
		if (!js_equal(a, b))
			abort();
	}
	sbuf_fini(&out);
	js_unref(a);
	js_unref(b);
	return 0;
}
