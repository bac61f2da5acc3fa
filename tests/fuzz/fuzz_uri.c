/* Request targets: path, query, escapes; and escaping as the inverse. */
#include <stdlib.h>

#include "base/mem.h"
#include "base/str.h"
#include "fuzz.h"
#include "http/uri.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct http_uri u, again;

	if (http_uri_parse(&u, (const char *)data, n, NULL))
		return 0;
	/* What was decoded and is escaped again decodes to the same. */
	struct sbuf b = SBUF_INIT(1 << 20);

	sbuf_addc(&b, '/');
	for (size_t i = 0; i < u.n_params; i++) {
		sbuf_addc(&b, i ? '&' : '?');
		http_uri_escape(&b, u.params[i].name);
		sbuf_addc(&b, '=');
		http_uri_escape(&b, u.params[i].value);
	}
	if (sbuf_rc(&b) == RC_OK && http_uri_parse(&again, b.p, b.n, NULL) == RC_OK) {
		for (size_t i = 0; i < again.n_params; i++)
			if (again.n_params == u.n_params &&
			    !str_eq(again.params[i].value, u.params[i].value))
				abort();
		http_uri_fini(&again);
	}
	sbuf_fini(&b);
	http_uri_fini(&u);
	return 0;
}
