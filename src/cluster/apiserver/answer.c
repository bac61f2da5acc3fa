/* Answers: whole bodies, Status objects in Kubernetes' words, Tables, partial objects. */
#include "cluster/apiserver/apisrv_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "api/table.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"
#include "ev/ev.h"

/* ---- what the client wants ------------------------------------------------------------------- */

/* One media range: "application/json;as=Table;v=v1;g=meta.k8s.io". */
static bool accept_one(struct apisrv_call *c, struct str range)
{
	struct str type = str_trim(str_split(&range, ';'));
	struct out_format f = {.as = OUT_OBJECT, .meta_version = "meta.k8s.io/v1"};

	if (!str_view_eq(type, "application/json") && !str_view_eq(type, "*/*") &&
	    !str_view_eq(type, "application/*"))
		return false;
	while (range.p) {
		struct str value = str_split(&range, ';');
		struct str name = str_trim(str_split(&value, '='));

		value = str_trim(value.p ? value : (struct str){"", 0});
		if (str_view_eq(name, "as")) {
			if (str_view_eq(value, "Table"))
				f.as = OUT_TABLE;
			else if (str_view_eq(value, "PartialObjectMetadata") ||
				 str_view_eq(value, "PartialObjectMetadataList"))
				f.as = OUT_PARTIAL;
			else
				return false;
		} else if (str_view_eq(name, "v")) {
			if (str_view_eq(value, "v1beta1"))
				f.meta_version = "meta.k8s.io/v1beta1";
			else if (!str_view_eq(value, "v1"))
				return false;
		} else if (str_view_eq(name, "g") && !str_view_eq(value, "meta.k8s.io")) {
			return false;
		}
	}
	c->out.as = f.as;
	c->out.meta_version = f.meta_version;
	return true;
}

bool parse_accept(struct apisrv_call *c, const char *accept)
{
	const char *include = call_param(c, "includeObject");

	c->out.meta_version = "meta.k8s.io/v1";
	c->out.pretty = call_param_bool(c, "pretty");
	if (str_eq(include, "None"))
		c->out.include = INCLUDE_NONE;
	else if (str_eq(include, "Object"))
		c->out.include = INCLUDE_OBJECT;
	if (str_is_empty(accept))
		return true;
	struct str rest = str_of(accept);

	while (rest.p)
		if (accept_one(c, str_split(&rest, ',')))
			return true;
	/* Protobuf is a choice, never a need: JSON is what every client of it reads too. */
	if (strstr(accept, "application/vnd.kubernetes.protobuf") ||
	    strstr(accept, "application/cbor") || c->res == NULL)
		return true;
	call_fail(c, 406, "NotAcceptable", NULL,
		  "only the following media types are accepted: application/json");
	return false;
}

void call_warn(struct apisrv_call *c, const char *text)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(4096);
	char *line = NULL;

	sbuf_adds(&b, "299 - \"");
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			sbuf_addc(&b, '\\');
		sbuf_addc(&b, (unsigned char)*text < 0x20 ? ' ' : *text);
	}
	sbuf_addc(&b, '"');
	/* A lost warning is not worth a failed request. */
	if (c->n_warnings >= LIMIT_FIELD_ERRORS || sbuf_take(&b, &line, NULL))
		return;
	if (!mem_grow((void **)&c->warnings, &c->cap_warnings, c->n_warnings, sizeof(char *))) {
		mem_free(line);
		return;
	}
	c->warnings[c->n_warnings++] = line;
}

/* ---- answering ------------------------------------------------------------------------------- */

static void answer_full(struct apisrv_call *c, struct apisrv_answer *a)
{
	if (c->done || c->held || call_hold(c, a))
		return;
	c->done = true;
	c->status = a->status;
	c->n_answer = a->n;
	a->n_warnings = c->n_warnings;
	a->warnings = (const char *const *)c->warnings;
	if (c->sink)
		c->sink->answer(c->arg, a);
}

void call_release(struct apisrv_call *c, struct apisrv_answer *a)
{
	answer_full(c, a);
}

void call_answer(struct apisrv_call *c, int status, const char *content_type, const char *body,
		 size_t n)
{
	struct apisrv_answer a = {
		.status = status, .content_type = content_type, .body = body, .n = n};

	answer_full(c, &a);
}

void call_answer_take(struct apisrv_call *c, int status, const char *content_type, char *body,
		      size_t n)
{
	CLEANUP(mem_freep) char *own = body;
	struct apisrv_answer a = {
		.status = status, .content_type = content_type, .body = own, .owned = &own, .n = n};

	answer_full(c, &a);
}

void call_answer_cached(struct apisrv_call *c, const char *content_type, const char *body, size_t n,
			bool is_immutable)
{
	const char *has = c->if_none_match;
	char etag[24];
	struct apisrv_answer a = {.status = 200,
				  .content_type = content_type,
				  .body = body,
				  .n = n,
				  .etag = etag,
				  .is_immutable = is_immutable};

	snprintf(etag, sizeof(etag), "\"%016llX\"", (unsigned long long)str_hash(body, n));
	if (has && (strcmp(has, "*") == 0 || strstr(has, etag))) {
		a.status = 304;
		a.content_type = NULL;
		a.body = NULL;
		a.n = 0;
	}
	answer_full(c, &a);
}

void call_answer_cached_json(struct apisrv_call *c, struct json *body)
{
	CLEANUP(mem_freep) char *text = body ? js_to_text(body) : NULL;

	js_unref(body);
	if (text)
		call_answer_cached(c, "application/json", text, strlen(text), false);
	else
		call_nomem(c);
}

static void answer_json_with(struct apisrv_call *c, struct apisrv_answer *a,
			     const struct json *body)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(LIMIT_RESPONSE_BYTES);

	if (c->out.pretty)
		js_print_pretty(body, &b, 2);
	else
		js_print(body, &b, false);
	if (sbuf_rc(&b)) {
		static const char text[] =
			"{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},"
			"\"status\":\"Failure\",\"message\":\"out of memory\","
			"\"reason\":\"InternalError\",\"code\":500}";

		a->status = 500;
		a->body = text;
		a->n = sizeof(text) - 1;
	} else {
		a->body = b.p;
		a->n = b.n;
	}
	a->content_type = "application/json";
	answer_full(c, a);
}

void call_answer_json(struct apisrv_call *c, int status, struct json *body)
{
	struct apisrv_answer a = {.status = status};

	if (!body)
		call_nomem(c);
	else
		answer_json_with(c, &a, body);
	js_unref(body);
}

void call_answer_object(struct apisrv_call *c, int status, const struct json *obj)
{
	if (call_is_scale(c))
		call_answer_json(c, status, scale_of(obj));
	else if (c->out.as == OUT_TABLE && c->res)
		call_answer_json(c, status, render_table_one(c, obj));
	else if (c->out.as == OUT_PARTIAL && c->res)
		call_answer_json(c, status, render_partial(obj, c->out.meta_version));
	else
		call_answer_json(c, status, version_as_asked(c, obj));
}

void call_answer_stored(struct apisrv_call *c, int status, struct obj *o)
{
	if (c->out.as == OUT_OBJECT && !c->out.pretty && !c->alias && !call_is_scale(c)) {
		size_t n;
		const char *text = obj_text(o, &n);

		call_answer(c, status, "application/json", text, n);
		return;
	}
	CLEANUP(js_unrefp) struct json *j = obj_json(o);

	if (j)
		call_answer_object(c, status, j);
	else
		call_nomem(c);
}

void call_answer_success(struct apisrv_call *c, int status, const struct json *obj)
{
	const char *uid = js_str(js_at(obj, "metadata", "uid", NULL));
	const char *group = c->res && *c->res->kind->group ? c->res->kind->group : NULL;

	call_answer_json(c, status,
			 js_pack("{s:s, s:s, s:{}, s:s, s:{s:s*, s:s*, s:s*, s:s*}}", "kind",
				 "Status", "apiVersion", "v1", "metadata", "status", "Success",
				 "details", "name", json_name(obj), "group", group, "kind",
				 c->res ? c->res->kind->plural : NULL, "uid", uid));
}

/* ---- refusing -------------------------------------------------------------------------------- */

struct json *status_new(int code, const char *reason, const char *message, struct json *details)
{
	return js_pack("{s:s, s:s, s:{}, s:s, s:s, s:s*, s:o*, s:i}", "kind", "Status",
		       "apiVersion", "v1", "metadata", "status", "Failure", "message", message,
		       "reason", *reason ? reason : NULL, "details", details, "code", code);
}

void call_fail(struct apisrv_call *c, int code, const char *reason, struct json *details,
	       const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	text_clean(text);
	CLEANUP(js_unrefp) struct json *st = status_new(code, reason, text, details);
	struct apisrv_answer a = {.status = code};

	if (code == 405)
		a.allow = "GET, POST, PUT, PATCH, DELETE";
	if (code == 429 || code == 503 || code == 504)
		a.retry_after = c->retry_after ? c->retry_after : 1;
	answer_json_with(c, &a, st);
}

void call_nomem(struct apisrv_call *c)
{
	call_fail(c, 500, "InternalError", NULL, "Internal error occurred: out of memory");
}

void call_fail_rc(struct apisrv_call *c, enum rc rc, const struct err *err)
{
	const char *text = err && err->msg[0] ? err->msg : rc_name(rc);

	if (rc_http(rc) == 500)
		call_fail(c, 500, "InternalError", NULL, "Internal error occurred: %s", text);
	else
		call_fail(c, rc_http(rc), rc_reason(rc), NULL, "%s", text);
}

void call_bad_request(struct apisrv_call *c, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	call_fail(c, 400, "BadRequest", NULL, "%s", text);
}

struct json *status_details(const struct resource *res, const char *name, bool by_kind)
{
	const char *group = *res->kind->group ? res->kind->group : NULL;

	return js_pack("{s:s*, s:s*, s:s}", "name", str_is_empty(name) ? NULL : name, "group",
		       group, "kind", by_kind ? res->kind->kind : res->kind->plural);
}

void call_not_found(struct apisrv_call *c, const struct resource *res, const char *name)
{
	call_fail(c, 404, "NotFound", status_details(res, name, false), "%s \"%s\" not found",
		  res->table, name);
}

void call_exists(struct apisrv_call *c, const struct resource *res, const char *name)
{
	call_fail(c, 409, "AlreadyExists", status_details(res, name, false),
		  "%s \"%s\" already exists", res->table, name);
}

void call_conflict(struct apisrv_call *c, const struct resource *res, const char *name,
		   const char *why)
{
	call_fail(c, 409, "Conflict", status_details(res, name, false),
		  "Operation cannot be fulfilled on %s \"%s\": %s", res->table, name, why);
}

void call_forbidden(struct apisrv_call *c, const struct resource *res, const char *name,
		    const char *why, struct json *causes)
{
	struct json *details = status_details(res, name, false);

	if (causes && details)
		ignore_rc(js_set(details, "causes", causes)); /* the text says it all */
	else
		js_unref(causes);
	if (str_is_empty(name))
		call_fail(c, 403, "Forbidden", details, "%s is forbidden: %s", res->table, why);
	else
		call_fail(c, 403, "Forbidden", details, "%s \"%s\" is forbidden: %s", res->table,
			  name, why);
}

/* KubeVirt joins the causes' messages, at most ten of them. */
static void denied_message(const struct field_errs *fe, const char *by, struct sbuf *out)
{
	size_t n = MIN(fe->n, (size_t)10);

	sbuf_addf(out, "admission webhook \"%s\" denied the request: ", by);
	for (size_t i = 0; i < n; i++)
		sbuf_addf(out, "%s%s", i ? ", " : "", fe->items[i].message);
	if (fe->n > n)
		sbuf_addf(out, ", and %zu more validation errors", fe->n - n);
}

void call_invalid(struct apisrv_call *c, const struct resource *res, const char *name,
		  const struct field_errs *fe, const char *denied_by)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(256 * KIB);
	struct json *details = status_details(res, name, true);

	if (denied_by) {
		denied_message(fe, denied_by, &b);
	} else {
		sbuf_addf(&b, "%s%s%s \"%s\" is invalid: ", res->kind->kind,
			  *res->kind->group ? "." : "", res->kind->group, name);
		fe_summary(fe, FE__MAX, &b);
	}
	if (!details || sbuf_rc(&b) || js_set(details, "causes", fe_causes(fe))) {
		js_unref(details);
		call_nomem(c);
		return;
	}
	CLEANUP(js_unrefp) struct json *st = status_new(422, "Invalid", sbuf_str(&b), details);
	struct apisrv_answer a = {.status = 422};

	answer_json_with(c, &a, st);
}

/* ---- tables and partial objects --------------------------------------------------------------- */

static struct json *column_def(const char *name, const char *type, const char *format,
			       const char *doc, int priority)
{
	return js_pack("{s:s, s:s, s:s, s:s, s:i}", "name", name, "type", type, "format",
		       format ? format : "", "description", doc ? doc : "", "priority", priority);
}

/* Events have names that nobody reads: theirs comes last, and only when asked for width. */
static bool name_is_last(const struct api_kind *k)
{
	return !*k->group && strcmp(k->plural, "events") == 0;
}

static enum rc add_name_def(struct json *defs, const struct api_kind *k, bool last)
{
	if (name_is_last(k) != last)
		return RC_OK;
	return js_append(defs, column_def("Name", "string", "name",
					  "Name must be unique within a namespace.", last ? 1 : 0));
}

static struct json *column_defs(const struct api_kind *k)
{
	CLEANUP(js_unrefp) struct json *defs = js_new_array();

	if (!defs || add_name_def(defs, k, false))
		return NULL;
	for (size_t i = 0; i < k->n_columns; i++) {
		const struct api_column *col = &k->columns[i];

		if (js_append(defs, column_def(col->name, col->type, col->format, col->doc,
					       col->priority)))
			return NULL;
	}
	return add_name_def(defs, k, true) ? NULL : STEAL(defs);
}

struct json *render_partial(const struct json *obj, const char *meta_version)
{
	return js_pack("{s:s, s:s, s:O}", "kind", "PartialObjectMetadata", "apiVersion",
		       meta_version, "metadata", js_get(obj, "metadata"));
}

struct json *render_row(const struct apisrv_call *c, const struct json *obj, usec_t now)
{
	const struct api_kind *k = c->res->kind;
	CLEANUP(js_unrefp) struct json *cells = js_new_array();
	CLEANUP(js_unrefp) struct json *row = js_new_object();
	const char *name = json_name(obj);

	if (!cells || !row || (!name_is_last(k) && js_append(cells, js_new_str(name ? name : ""))))
		return NULL;
	for (size_t i = 0; i < k->n_columns; i++)
		if (js_append(cells, api_table_cell(&k->columns[i], obj, now)))
			return NULL;
	if (name_is_last(k) && js_append(cells, js_new_str(name ? name : "")))
		return NULL;
	if (js_set(row, "cells", STEAL(cells)))
		return NULL;
	struct json *ref = NULL;

	if (c->out.include == INCLUDE_OBJECT)
		ref = version_as_asked(c, obj);
	else if (c->out.include == INCLUDE_METADATA)
		ref = render_partial(obj, c->out.meta_version);
	if (c->out.include != INCLUDE_NONE && js_set(row, "object", ref))
		return NULL;
	return STEAL(row);
}

static struct json *table_shell(const struct apisrv_call *c, struct json *meta, struct json *rows)
{
	return js_pack("{s:s, s:s, s:o, s:o, s:o}", "kind", "Table", "apiVersion",
		       c->out.meta_version, "metadata", meta, "columnDefinitions",
		       column_defs(c->res->kind), "rows", rows);
}

struct json *render_table(const struct apisrv_call *c, struct json *list_meta)
{
	return table_shell(c, list_meta, js_new_array());
}

struct json *render_table_one(const struct apisrv_call *c, const struct json *obj)
{
	CLEANUP(js_unrefp) struct json *rows = js_new_array();
	struct json *meta = js_pack("{s:s*}", "resourceVersion",
				    js_str(js_at(obj, "metadata", "resourceVersion", NULL)));

	if (!rows || js_append(rows, render_row(c, obj, loop_realtime(c->srv->loop)))) {
		js_unref(meta);
		return NULL;
	}
	return table_shell(c, meta, STEAL(rows));
}
