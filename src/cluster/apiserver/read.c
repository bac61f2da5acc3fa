/* get and list. */
#include "cluster/apiserver/apisrv_int.h"

#include <stdio.h>
#include <string.h>

#include "api/labels.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"

/* ---- filters --------------------------------------------------------------------------------- */

static bool parse_fields(struct apisrv_call *c, const char *text, struct filter *f)
{
	struct err err = {0};
	enum rc rc = api_fields_parse(text, &f->fields, &err);

	if (!rc && call_is_view(c))
		rc = view_fields(f->fields, &err);
	if (!rc)
		rc = api_fields_check(f->fields, c->res->kind, &err);
	if (rc)
		call_fail(c, rc == RC_NOMEM ? 500 : 400,
			  rc == RC_NOMEM ? "InternalError" : "BadRequest", NULL, "%s", err.msg);
	return rc == RC_OK;
}

bool filter_parse(struct apisrv_call *c, struct filter *f)
{
	const char *labels = call_param(c, "labelSelector"),
		   *fields = call_param(c, "fieldSelector");
	struct err err = {0};

	memset(f, 0, sizeof(*f));
	if (!str_is_empty(labels)) {
		enum rc rc = api_selector_parse(labels, &f->labels, &err);

		if (rc) {
			call_fail(c, rc == RC_NOMEM ? 500 : 400,
				  rc == RC_NOMEM ? "InternalError" : "BadRequest", NULL,
				  "unable to parse requirement: %s", err.msg);
			return false;
		}
	}
	if (!str_is_empty(fields) && !parse_fields(c, fields, f)) {
		filter_fini(f);
		return false;
	}
	const char *name = f->fields ? api_fields_required(f->fields, "metadata.name") : NULL;
	const char *ns = *c->ns	     ? c->ns
			 : f->fields ? api_fields_required(f->fields, "metadata.namespace")
				     : NULL;

	/* A fixed namespace or name narrows the range of keys. */
	f->is_exact = name && (ns || !c->res->kind->is_namespaced);
	if (!c->res->kind->is_namespaced)
		f->prefix = mem_strdup(name ? name : "");
	else if (ns && name)
		f->prefix = mem_printf("%s/%s", ns, name);
	else
		f->prefix = ns ? mem_printf("%s/", ns) : mem_strdup("");
	if (!f->prefix) {
		filter_fini(f);
		call_nomem(c);
		return false;
	}
	return true;
}

void filter_fini(struct filter *f)
{
	f->labels = api_selector_free(f->labels);
	f->fields = api_fields_free(f->fields);
	f->prefix = mem_free(f->prefix);
}

/* Only the labels are parsed: a list of thousands is filtered without parsing the objects. */
static bool labels_match(struct filter *f, struct obj *o)
{
	CLEANUP(js_unrefp) struct json *labels = NULL;
	const char *text, *meta, *part;
	size_t n, n_meta, n_part;

	text = obj_text(o, &n);
	if (text_member(text, n, "metadata", &meta, &n_meta) &&
	    text_member(meta, n_meta, "labels", &part, &n_part) &&
	    js_parse(part, n_part, &labels, NULL)) {
		f->nomem = true;
		return false;
	}
	return api_selector_matches_json(f->labels, labels);
}

bool filter_matches(struct filter *f, struct obj *o)
{
	if (f->is_exact ? strcmp(obj_rest(o), f->prefix) != 0
			: !str_has_prefix(obj_rest(o), f->prefix))
		return false;
	if (!f->labels && !f->fields)
		return true;
	if (!f->fields)
		return labels_match(f, o);
	CLEANUP(js_unrefp) struct json *j = obj_json(o);

	if (!j)
		f->nomem = true;
	return j &&
	       (!f->labels ||
		api_selector_matches_json(f->labels, js_at(j, "metadata", "labels", NULL))) &&
	       (!f->fields || api_fields_matches(f->fields, j));
}

static bool keep(struct obj *o, void *arg)
{
	return filter_matches(arg, o);
}

/* ---- get -------------------------------------------------------------------------------------- */

void serve_get(struct apisrv_call *c)
{
	CLEANUP(mem_freep) char *key = object_key(c->res, c->ns, c->name);
	struct obj *o = key ? store_get(c->srv->store, key) : NULL;

	if (!key)
		call_nomem(c);
	else if (!o)
		call_not_found(c, c->res, c->name);
	else
		call_answer_stored(c, 200, o);
}

/* ---- list ------------------------------------------------------------------------------------- */

struct listing {
	struct filter filter;
	struct store_page page;
	char *after;
	int64_t shown_rev; /* resourceVersion of the answer */
};

static bool parse_continue(struct apisrv_call *c, const char *token, struct listing *l)
{
	int64_t rev = 0;
	enum rc rc = continue_parse(c, token, &rev, &l->after);

	if (rc && rc != RC_BAD_REQUEST)
		call_fail_rc(c, rc, NULL);
	else if (rc)
		call_bad_request(
			c, "continue key is not valid: not made by this server for this list");
	l->page.after = l->after;
	l->page.rev = rev > 0 ? rev : 0;
	l->shown_rev = rev > 0 ? rev : store_rev(c->srv->store);
	return rc == RC_OK;
}

static bool parse_rev(struct apisrv_call *c, const char *text, int64_t *out)
{
	struct err err = {0};

	*out = 0;
	if (str_is_empty(text) || str_to_i64(text, 0, INT64_MAX, out, &err) == RC_OK)
		return true;
	call_bad_request(c, "Invalid value: \"%s\": resourceVersion must be a non-negative number",
			 text);
	return false;
}

void call_too_large_rev(struct apisrv_call *c, int64_t rev)
{
	call_fail(c, 504, "Timeout",
		  js_pack("{s:[{s:s, s:s}], s:i}", "causes", "reason", "ResourceVersionTooLarge",
			  "message", "Too large resource version", "retryAfterSeconds", 1),
		  "Timeout: Too large resource version: %lld, current: %lld", (long long)rev,
		  (long long)store_rev(c->srv->store));
}

/* What resourceVersion and resourceVersionMatch ask for. */
static bool parse_version(struct apisrv_call *c, struct listing *l)
{
	const char *text = call_param(c, "resourceVersion"),
		   *match = call_param(c, "resourceVersionMatch");
	int64_t rev, now = store_rev(c->srv->store);

	if (!parse_rev(c, text, &rev))
		return false;
	if (!str_is_empty(match)) {
		if (l->after || str_is_empty(text)) {
			call_bad_request(
				c,
				"resourceVersionMatch is forbidden unless resourceVersion is provided, "
				"and with continue");
			return false;
		}
		if (!str_eq(match, "Exact") && !str_eq(match, "NotOlderThan")) {
			call_bad_request(
				c,
				"resourceVersionMatch: Unsupported value: \"%s\": supported values: "
				"\"Exact\", \"NotOlderThan\"",
				match);
			return false;
		}
		if (str_eq(match, "Exact") && rev == 0) {
			call_bad_request(
				c,
				"resourceVersionMatch \"Exact\" is forbidden for resourceVersion \"0\"");
			return false;
		}
	}
	if (l->after) {
		if (rev == 0)
			return true;
		call_bad_request(c,
				 "specifying resource version is not allowed when using continue");
		return false;
	}
	bool exact = str_eq(match, "Exact") || (str_is_empty(match) && rev > 0 && l->page.limit);

	if (rev > now) {
		call_too_large_rev(c, rev);
		return false;
	}
	l->page.rev = exact ? rev : 0;
	l->shown_rev = exact ? rev : now;
	return true;
}

static bool listing_parse(struct apisrv_call *c, struct listing *l)
{
	const char *limit = call_param(c, "limit"), *token = call_param(c, "continue");
	uint64_t n = 0;

	if (!filter_parse(c, &l->filter))
		return false;
	if (!str_is_empty(limit) && str_to_u64(limit, INT32_MAX, &n, NULL)) {
		call_bad_request(c, "limit: Invalid value: \"%s\": must be a non-negative number",
				 limit);
		return false;
	}
	l->page.table = c->res->table;
	l->page.prefix = l->filter.prefix;
	l->page.limit = n;
	if (l->filter.labels || l->filter.fields) {
		l->page.keep = keep;
		l->page.keep_arg = &l->filter;
	}
	if (!str_is_empty(token) && !parse_continue(c, token, l))
		return false;
	return parse_version(c, l);
}

static struct json *list_meta(const struct apisrv_call *c, const struct listing *l,
			      const struct obj_list *found, bool more, size_t remaining)
{
	CLEANUP(mem_freep) char *token = NULL;
	char rv[24];
	CLEANUP(js_unrefp) struct json *meta = NULL;

	snprintf(rv, sizeof(rv), "%lld", (long long)l->shown_rev);
	if (more && found->n) {
		token = continue_make(c, l->shown_rev, obj_rest(found->items[found->n - 1]));
		if (!token)
			return NULL;
	}
	meta = js_pack("{s:s, s:s*}", "resourceVersion", rv, "continue", token);
	if (meta && more && !l->page.keep &&
	    js_set(meta, "remainingItemCount", js_new_int((int64_t)remaining)))
		return NULL;
	return STEAL(meta);
}

void call_too_large_list(struct apisrv_call *c)
{
	call_fail(c, 413, "RequestEntityTooLarge", NULL,
		  "the list is larger than %u bytes: use limit", LIMIT_RESPONSE_BYTES);
}

/* Items of Kubernetes' own kinds have no kind and no apiVersion: the list has. */
static bool items_are_bare(const struct apisrv_call *c)
{
	return !kind_is_custom(c->alias ? c->alias : c->res->kind);
}

struct json *list_item(const struct apisrv_call *c, const struct json *obj)
{
	if (!items_are_bare(c))
		return js_ref(obj);
	CLEANUP(js_unrefp) struct json *item = js_new_object();

	JS_FOREACH(it, obj)
		if (!item || js_set(item, it.key, js_ref(it.value)))
			return NULL;
	json_drop_type(item);
	return STEAL(item);
}

/* Under another version than the stored one; only custom kinds have such (and events, see view_item()). */
static void answer_alias_items(struct apisrv_call *c, const struct json *meta,
			       const struct obj_list *found)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(LIMIT_RESPONSE_BYTES);

	sbuf_addf(&b, "{\"kind\":\"%s\",\"apiVersion\":\"%s\",\"metadata\":", c->alias->list_kind,
		  c->alias->api_version);
	js_print(meta, &b, false);
	sbuf_adds(&b, ",\"items\":[");
	for (size_t i = 0; i < found->n; i++) {
		size_t n;
		const char *text = obj_text(found->items[i], &n);

		if (i)
			sbuf_addc(&b, ',');
		version_add_text(c, text, n, &b);
	}
	sbuf_adds(&b, "]}\n");
	if (sbuf_rc(&b) == RC_NOMEM)
		call_nomem(c);
	else if (sbuf_rc(&b))
		call_too_large_list(c);
	else
		call_answer(c, 200, "application/json", b.p, b.n);
}

/* Joins the texts at p, which has room for them. */
static char *join_items(const struct apisrv_call *c, const struct obj_list *found, char *p)
{
	const struct api_kind *k = c->res->kind;
	char head[256];
	int n_head = snprintf(head, sizeof(head), "{\"kind\":\"%s\",\"apiVersion\":\"%s\",",
			      k->kind, k->api_version);
	bool bare = items_are_bare(c);
	size_t n;

	for (size_t i = 0; i < found->n; i++) {
		const char *text = obj_text(found->items[i], &n);

		if (i)
			*p++ = ',';
		if (bare)
			n = text_add_item(p, text, n, head, (size_t)n_head);
		else
			memcpy(p, text, n);
		p += n;
	}
	return p;
}

/* The stored texts are joined: nothing is parsed, and nothing is copied twice. */
static void answer_items(struct apisrv_call *c, struct json *meta, const struct obj_list *found)
{
	CLEANUP(mem_freep) char *meta_text = js_to_text(meta);
	CLEANUP(mem_freep)
	char *head = !meta_text
			     ? NULL
			     : mem_printf("{\"kind\":\"%s\",\"apiVersion\":\"%s\","
					  "\"metadata\":%s,\"items\":[",
					  c->res->kind->list_kind, call_api_version(c), meta_text);
	static const char tail[] = "]}\n";
	size_t total = head ? strlen(head) + sizeof(tail) : 0, n;

	for (size_t i = 0; i < found->n; i++) {
		obj_text(found->items[i], &n);
		total += n + 1;
	}
	if (total > LIMIT_RESPONSE_BYTES) {
		call_too_large_list(c);
		return;
	}
	char *buf = head ? mem_realloc(NULL, total) : NULL, *p = buf;

	if (!buf) {
		call_nomem(c);
		return;
	}
	n = strlen(head);
	memcpy(p, head, n);
	p = join_items(c, found, p + n);
	memcpy(p, tail, sizeof(tail));
	call_answer_take(c, 200, "application/json", buf, (size_t)(p - buf) + sizeof(tail) - 1);
}

static struct json *partial_item(const struct apisrv_call *c, const struct json *obj, usec_t now)
{
	(void)now;
	return render_partial(obj, c->out.meta_version);
}

/* Under a version that has other fields. */
static struct json *view_item(const struct apisrv_call *c, const struct json *obj, usec_t now)
{
	struct json *item = version_as_asked(c, obj);

	(void)now;
	if (items_are_bare(c))
		json_drop_type(item);
	return item;
}

/* The list without its items, in the form that they are asked for in; meta is consumed. */
static struct json *list_shell(const struct apisrv_call *c, struct json *meta)
{
	if (c->out.as == OUT_TABLE)
		return render_table(c, meta);
	bool is_partial = c->out.as == OUT_PARTIAL;

	return js_pack("{s:s, s:s, s:o, s:[]}", "kind",
		       is_partial ? "PartialObjectMetadataList" : c->alias->list_kind, "apiVersion",
		       is_partial ? c->out.meta_version : c->alias->api_version, "metadata", meta,
		       "items");
}

static void answer_expired(struct apisrv_call *c, const struct listing *l, const struct err *err)
{
	if (!l->after) {
		call_fail(c, 410, "Expired", NULL,
			  "The resourceVersion for the provided list is too old: %s", err->msg);
		return;
	}
	/* With this token the client may go on, at the price of an inconsistent list. */
	CLEANUP(mem_freep) char *token = continue_make(c, -1, l->after);
	struct json *st = status_new(
		410, "Expired",
		"The provided continue parameter is too old to display a consistent list "
		"result. You can start a new list without the continue parameter, or use the "
		"continue token in this response to retrieve the remainder of the results. "
		"Continuing with the provided token results in an inconsistent list - objects "
		"that were created, modified, or deleted between the time the first chunk was "
		"returned and now may show up in the list.",
		NULL);

	if (!st || !token ||
	    js_set(js_ensure_object(st, "metadata"), "continue", js_new_str(token))) {
		js_unref(st);
		call_nomem(c);
		return;
	}
	call_answer_json(c, 410, st);
}

static void answer_found(struct apisrv_call *c, struct json *meta, struct obj_list *found)
{
	if (c->out.as == OUT_TABLE)
		serve_slices(c, list_shell(c, js_ref(meta)), found, render_row);
	else if (c->out.as == OUT_PARTIAL)
		serve_slices(c, list_shell(c, js_ref(meta)), found, partial_item);
	else if (call_is_view(c))
		serve_slices(c, list_shell(c, js_ref(meta)), found, view_item);
	else if (c->alias)
		answer_alias_items(c, meta, found);
	else
		answer_items(c, meta, found);
}

static void list_answer(struct apisrv_call *c, struct listing *l)
{
	struct obj_list found = {0};
	struct err err = {0};
	size_t remaining = 0;
	bool more = false;
	enum rc rc = store_list(c->srv->store, &l->page, &found, &more, &remaining, &err);
	struct json *meta = rc ? NULL : list_meta(c, l, &found, more, remaining);

	bool is_joined = c->out.as == OUT_OBJECT && !call_is_view(c);

	flow_charge(c, found.n / (is_joined ? TEXTS_PER_UNIT : FORMS_PER_UNIT));
	if (l->page.keep) /* all were looked at */
		flow_charge(c, store_count(c->srv->store, c->res->table) / TEXTS_PER_UNIT);
	if (rc == RC_EXPIRED)
		answer_expired(c, l, &err);
	else if (l->filter.nomem)
		call_nomem(c);
	else if (rc)
		call_fail_rc(c, rc, &err);
	else if (!meta)
		call_nomem(c);
	else
		answer_found(c, meta, &found);
	js_unref(meta);
	obj_list_fini(&found);
}

void serve_list(struct apisrv_call *c)
{
	struct listing l = {0};

	if (listing_parse(c, &l))
		list_answer(c, &l);
	filter_fini(&l.filter);
	mem_free(l.after);
}
