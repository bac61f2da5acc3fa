/* lib/http/uri.h - request targets: percent decoding and query parameters.
 *
 * Pure functions and a plain value; owner's thread only.  This is what meets a stranger's bytes
 * first, so everything is bounded by limits.h and nothing is guessed: a malformed escape is refused.
 */
#ifndef HTTP_URI_H
#define HTTP_URI_H

#include "base/err.h"
#include "base/sbuf.h"

enum { HTTP_QUERY_MAX = 64 }; /* parameters in one target */

struct http_param {
	char *name;
	char *value; /* "" when there is no '=' */
};

/* Embedded by callers; all text is owned and NUL-terminated. */
struct http_uri {
	char *path; /* decoded, starts with '/' */
	struct http_param params[HTTP_QUERY_MAX];
	size_t n_params;
};

/* Splits and decodes an origin-form target ("/a/b%20c?x=1&y").  '+' in the query is a space.
 * RC_BAD_REQUEST: no leading '/', bad escape, an encoded NUL or '/', control characters, invalid
 * UTF-8, a "." or ".." segment, more than HTTP_QUERY_MAX parameters; RC_TOO_BIG above LIMIT_URL_BYTES.
 * On failure *out is empty. */
MUST_CHECK enum rc http_uri_parse(struct http_uri *out, const char *target, size_t n,
				  struct err *err);
void http_uri_fini(struct http_uri *u); /* fine on zeroed memory */
/* First value of the parameter, NULL when absent; borrowed. */
const char *http_uri_param(const struct http_uri *u, const char *name);

/* Appends text so that it stands for itself in a path segment or a query value. */
void http_uri_escape(struct sbuf *out, const char *text);

#endif
