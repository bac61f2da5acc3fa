/* Bodies of requests: JSON, YAML, Kubernetes' protobuf. */
#include "cluster/apiserver/apisrv_int.h"

#include <string.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"
#include "yaml/yaml.h"

enum form { FORM_JSON, FORM_YAML, FORM_PROTOBUF, FORM_UNKNOWN, FORM_NO_PATCH };

static enum form form_of(const struct apisrv_call *c)
{
	const char *t = c->content_type;

	if (str_eq(t, "application/apply-patch+yaml") && c->verb == VERB_PATCH)
		return FORM_YAML;
	if (c->verb == VERB_PATCH)
		return t && strstr(t, "+json") ? FORM_JSON : FORM_NO_PATCH;
	if (!t || strcmp(t, "application/json") == 0)
		return FORM_JSON;
	if (strcmp(t, "application/yaml") == 0)
		return FORM_YAML;
	return strcmp(t, "application/vnd.kubernetes.protobuf") == 0 ? FORM_PROTOBUF : FORM_UNKNOWN;
}

/* JSON is YAML too, but its own parser knows more of it (escapes, numbers); what only looks like JSON
 * ("{a: b}") is left to the other one. */
static enum rc parse_yaml(struct apisrv_call *c, struct js_dups *dups, struct err *err)
{
	CLEANUP(js_unrefp) struct json *docs = NULL;
	struct js_dups tried = {0};
	size_t space = strspn(c->body, " \t\r\n");
	enum rc rc = RC_BAD_REQUEST;

	if (c->body[space] == '{') {
		rc = js_parse_dups(c->body, c->n_body, &c->json, &tried, NULL);
		if (!rc)
			dups->paths = STEAL(tried.paths);
		js_unref(tried.paths);
	}
	if (rc != RC_BAD_REQUEST)
		return rc;
	rc = yaml_parse_dups(c->body, c->n_body, &docs, dups, err);
	if (!rc && js_len(docs) > 1)
		rc = err_set(err, RC_BAD_REQUEST, "the body has %zu documents, and may have one",
			     js_len(docs));
	if (!rc && js_len(docs))
		c->json = js_ref(js_item(docs, 0));
	return rc;
}

/* Who reads the body by the client's fieldValidation tells it of duplicate keys; others refuse them. */
static bool reads_leniently(const struct apisrv_call *c)
{
	return c->res && !c->subres && (!*c->sub || strcmp(c->sub, "status") == 0) &&
	       (c->verb == VERB_CREATE || c->verb == VERB_UPDATE || c->verb == VERB_PATCH);
}

static bool parse_text(struct apisrv_call *c, bool yaml)
{
	struct js_dups dups = {0};
	struct err err = {0};
	enum rc rc;

	if (yaml)
		rc = parse_yaml(c, &dups, &err);
	else
		rc = js_parse_dups(c->body, c->n_body, &c->json, reads_leniently(c) ? &dups : NULL,
				   &err);
	c->duplicates = dups.paths;
	if (rc == RC_NOMEM)
		call_nomem(c);
	else if (rc)
		call_fail(c, rc_http(rc), rc_reason(rc), NULL, "error decoding the body: %s",
			  err.msg);
	else if (c->duplicates && !reads_leniently(c))
		call_bad_request(c, "error decoding the body: duplicate field \"%s\"",
				 js_str(js_item(c->duplicates, 0)));
	else
		return true;
	return false;
}

static bool parse_protobuf(struct apisrv_call *c)
{
	struct err err = {0};
	enum rc rc = proto_decode(c->body, c->n_body, &c->json, &err);

	if (rc)
		call_fail_rc(c, rc, &err);
	return rc == RC_OK;
}

bool parse_body(struct apisrv_call *c)
{
	enum form form = form_of(c);
	bool ok;

	if (!c->n_body || form == FORM_NO_PATCH) /* serve_patch() says which ones there are */
		return true;
	if (form == FORM_UNKNOWN) {
		call_fail(
			c, 415, "UnsupportedMediaType", NULL,
			"the body of the request was in an unknown format - accepted media types include: "
			"application/json, application/yaml, application/vnd.kubernetes.protobuf");
		return false;
	}
	ok = form == FORM_PROTOBUF ? parse_protobuf(c) : parse_text(c, form == FORM_YAML);
	c->body = mem_free(c->body);
	return ok;
}
