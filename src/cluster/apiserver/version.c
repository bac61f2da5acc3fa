/* One kind under several versions.
 *
 * The versions of a kind have the same fields, so they differ in apiVersion alone: under a further
 * version the stored text is sent with another value there, and what comes in gets the stored one.
 * One is different: see eventview.c.
 */
#include "cluster/apiserver/apisrv_int.h"

#include <stdio.h>

const char *call_api_version(const struct apisrv_call *c)
{
	return c->alias ? c->alias->api_version : c->res->kind->api_version;
}

struct json *version_as_asked(const struct apisrv_call *c, const struct json *obj)
{
	if (!c->alias)
		return js_ref(obj);
	if (call_is_view(c))
		return view_of(c, obj);
	CLEANUP(js_unrefp) struct json *copy = js_copy(obj);

	if (!copy || js_set(copy, "apiVersion", js_new_str(c->alias->api_version)))
		return NULL;
	return STEAL(copy);
}

static void add_view(const struct apisrv_call *c, const char *text, size_t n, struct sbuf *out)
{
	CLEANUP(js_unrefp) struct json *obj = NULL;
	enum rc rc = js_parse(text, n, &obj, NULL);
	CLEANUP(js_unrefp) struct json *view = rc ? NULL : view_of(c, obj);

	if (view)
		js_print(view, out, false);
	else if (!out->rc)
		out->rc = RC_NOMEM;
}

void version_add_text(const struct apisrv_call *c, const char *text, size_t n, struct sbuf *out)
{
	const char *value;
	size_t n_value;

	if (c->alias && call_is_view(c)) {
		add_view(c, text, n, out);
		return;
	}
	if (!c->alias || !text_member(text, n, "apiVersion", &value, &n_value)) {
		sbuf_add(out, text, n);
		return;
	}
	const char *rest = value + n_value;

	sbuf_add(out, text, (size_t)(value - text));
	sbuf_addf(out, "\"%s\"", c->alias->api_version);
	sbuf_add(out, rest, (size_t)(text + n - rest));
}

void version_warn(struct apisrv_call *c, const struct api_kind *asked)
{
	char text[256];

	if (!asked->is_deprecated)
		return;
	/* KubeVirt's words for a version; where the kind goes with all its versions, it is named too. */
	snprintf(text, sizeof(text),
		 "%s%s%s is now deprecated and will be removed in a future release.",
		 asked->api_version, c->res->kind->is_deprecated ? " " : "",
		 c->res->kind->is_deprecated ? asked->kind : "");
	call_warn(c, text);
}
