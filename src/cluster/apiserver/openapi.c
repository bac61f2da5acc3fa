/* /openapi/v2 (JSON and protobuf: kubectl asks for nothing else) and /openapi/v3. */
#include "cluster/apiserver/apisrv_int.h"

#include <stdio.h>
#include <string.h>

#include "api/gen/openapi_data.h"
#include "base/str.h"

static void answer_blob(struct apisrv_call *c, const char *type, struct api_blob b,
			bool is_immutable)
{
	call_answer_cached(c, type, (const char *)b.p, b.n, is_immutable);
}

/* Whatever stands first of the two. */
static bool wants_protobuf(const char *accept)
{
	const char *pb = accept ? strstr(accept, "com.github.proto-openapi.spec.v3") : NULL;
	const char *js = accept ? strstr(accept, "application/json") : NULL;

	return pb && (!js || pb < js);
}

static void serve_v2(struct apisrv_call *c, const char *accept)
{
	/* Asked for with '@', answered with '.': Go refuses '@' in a Content-Type. */
	if (accept && strstr(accept, "com.github.proto-openapi.spec.v2"))
		answer_blob(c, "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
			    api_openapi_v2_pb(), false);
	else
		answer_blob(c, "application/json", api_openapi_v2_json(), false);
}

static void hash_of(const struct api_openapi_v3 *row, char out[24])
{
	snprintf(out, 24, "%016llX", (unsigned long long)row->hash);
}

/* The hash lets clients keep a document for as long as it stays the same. */
static void serve_v3_index(struct apisrv_call *c)
{
	CLEANUP(js_unrefp) struct json *paths = js_new_object();
	const struct api_openapi_v3 *row = api_openapi_v3();

	for (; paths && row->path; row++) {
		char url[256], hash[24];

		hash_of(row, hash);
		snprintf(url, sizeof(url), "/openapi/v3/%s?hash=%s", row->path, hash);
		if (js_set(paths, row->path, js_pack("{s:s}", "serverRelativeURL", url))) {
			call_nomem(c);
			return;
		}
	}
	call_answer_cached_json(c, js_pack("{s:O*}", "paths", paths));
}

static void serve_v3(struct apisrv_call *c, const char *path, const char *accept)
{
	const struct api_openapi_v3 *row = api_openapi_v3();
	char hash[24];

	while (row->path && strcmp(row->path, path) != 0)
		row++;
	if (!row->path)
		call_fail(c, 404, "NotFound", js_new_object(),
			  "the server could not find the requested resource");
	else {
		bool pb = wants_protobuf(accept);

		hash_of(row, hash);
		/* Asked for with '@', answered with '.', as v2. */
		answer_blob(c,
			    pb ? "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
			       : "application/json",
			    pb ? row->pb : row->json, str_eq(call_param(c, "hash"), hash));
	}
}

void serve_openapi(struct apisrv_call *c, const char *what, const char *accept)
{
	if (strcmp(what, "v2") == 0)
		serve_v2(c, accept);
	else if (strcmp(what, "v3") == 0)
		serve_v3_index(c);
	else if (str_has_prefix(what, "v3/"))
		serve_v3(c, what + 3, accept);
	else
		call_fail(c, 404, "NotFound", js_new_object(),
			  "the server could not find the requested resource");
}
