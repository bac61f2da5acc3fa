/* Kubernetes' protobuf bodies: what is taken is JSON that can be printed and read again. */
#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "cluster/apiserver/apisrv_int.h"
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	CLEANUP(js_unrefp) struct json *obj = NULL, *again = NULL;
	CLEANUP(mem_freep) char *text = NULL;
	struct err err = {0};
	enum rc rc = proto_decode((const char *)data, size, &obj, &err);

	assert(rc ? !obj && err.msg[0] : js_is_object(obj));
	if (rc)
		return 0;
	text = js_to_text(obj);
	assert(text);
	/* Keys of a map that are there twice, and text that is no UTF-8, are for the reader of JSON to refuse. */
	if (!js_parse(text, strlen(text), &again, NULL))
		assert(js_equal(obj, again));
	return 0;
}
