/* /openapi/v2 and /openapi/v3. */
#include "cluster/apiserver/apisrv_int.h"

#include <string.h>

void serve_openapi(struct apisrv_call *c, const char *what, const char *accept)
{
	(void)what;
	(void)accept;
	call_fail(c, 404, "NotFound", js_new_object(), "this build has no OpenAPI documents");
}
