/* Manifests: YAML to JSON, printed as YAML, read again: the same value. */
#include <stdlib.h>

#include "yaml/yaml.h"
#include "fuzz.h"
#include "json/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct json *docs = NULL;

	if (yaml_parse((const char *)data, n, &docs, NULL))
		return 0;
	for (size_t i = 0; i < js_len(docs); i++) {
		struct sbuf out = SBUF_INIT(1 << 20);
		struct json *again = NULL;

		yaml_print(js_item(docs, i), &out);
		if (sbuf_rc(&out) == RC_OK) {
			if (yaml_parse(out.p, out.n, &again, NULL))
				abort();
			if (js_len(again) != 1 || !js_equal(js_item(again, 0), js_item(docs, i)))
				abort();
		}
		sbuf_fini(&out);
		js_unref(again);
	}
	js_unref(docs);
	return 0;
}
