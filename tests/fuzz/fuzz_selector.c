/* Label and field selectors.  What is printed is read again as the same, and matches the same labels. */
#include <assert.h>
#include <string.h>

#include "api/api.h"
#include "api/labels.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "fuzz/fuzz.h"
#include "json/json.h"

static const char *const labels[] = {
	"{}",
	"{\"a\":\"b\"}",
	"{\"a\":\"c\",\"app\":\"web\"}",
	"{\"app\":\"web\",\"tier\":\"\",\"kubevirt.io/nodeName\":\"n1\"}",
};
static const char object[] =
	"{\"metadata\":{\"name\":\"x\",\"namespace\":\"default\"},\"spec\":{\"nodeName\":\"n1\"},"
	"\"status\":{\"phase\":\"Running\"}}";

static void try_labels(const char *text)
{
	CLEANUP(api_selector_freep) struct api_selector *s = NULL, *again = NULL;
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(1024 * 1024);

	if (api_selector_parse(text, &s, NULL))
		return;
	api_selector_print(s, &b);
	if (b.rc)
		return;
	assert(api_selector_parse(sbuf_str(&b), &again, NULL) == RC_OK);
	for (size_t i = 0; i < ARRAY_SIZE(labels); i++) {
		CLEANUP(js_unrefp) struct json *j = NULL;

		assert(js_parse(labels[i], strlen(labels[i]), &j, NULL) == RC_OK);
		bool matches = api_selector_matches_json(s, j);

		assert(matches == api_selector_matches_json(again, j));
		assert(matches || !api_selector_is_everything(s));
		const char *need = api_selector_required(s, "app");

		assert(!matches || !need ||
		       strcmp(js_get_str(j, "app") ? js_get_str(j, "app") : "", need) == 0);
	}
}

static void try_fields(const char *text)
{
	CLEANUP(api_fields_freep) struct api_fields *fields = NULL;
	CLEANUP(js_unrefp) struct json *j = NULL;

	if (api_fields_parse(text, &fields, NULL))
		return;
	assert(js_parse(object, sizeof(object) - 1, &j, NULL) == RC_OK);
	(void)api_fields_matches(fields, j);
	for (size_t i = 0; api_kinds[i]; i++)
		ignore_rc(api_fields_check(fields, api_kinds[i], NULL));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	CLEANUP(mem_freep) char *text = mem_strndup((const char *)data, size);

	try_labels(text);
	try_fields(text);
	return 0;
}
