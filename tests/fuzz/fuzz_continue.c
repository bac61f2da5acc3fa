/* Tokens of lists in pages.  First byte odd: what follows is put into base64 first.  A token that is taken is one that
 * this key makes. */
#include <assert.h>
#include <string.h>

#include "base/b64.h"
#include "base/mem.h"
#include "cluster/apiserver/apisrv_int.h"
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct apisrv srv; /* the key is all zeros */
	static const struct resource res = {.table = (char *)(uintptr_t) "configmaps"};
	struct apisrv_call call = {.srv = &srv, .res = &res, .ns = "default"};
	CLEANUP(mem_freep) char *token = NULL;
	CLEANUP(mem_freep) char *start = NULL;
	CLEANUP(mem_freep) char *made = NULL;
	CLEANUP(mem_freep) char *again = NULL;
	int64_t rev = 0, rev_again = 0;

	if (!size)
		return 0;
	token = data[0] & 1 ? b64_encode((const char *)data + 1, size - 1, true)
			    : mem_strndup((const char *)data + 1, size - 1);
	assert(token);
	enum rc rc = continue_parse(&call, token, &rev, &start);

	assert(rc ? rc == RC_BAD_REQUEST && !start : start != NULL);
	if (rc)
		return 0;
	made = continue_make(&call, rev, start);
	assert(made && continue_parse(&call, made, &rev_again, &again) == RC_OK);
	assert(rev == rev_again && strcmp(start, again) == 0);
	call.ns = "other"; /* another list's */
	mem_free(again);
	again = NULL;
	assert(continue_parse(&call, token, &rev, &again) == RC_BAD_REQUEST);
	return 0;
}
