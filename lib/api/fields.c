/* lib/api/fields.c - field selectors. */
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "api/labels.h"
#include "base/mem.h"
#include "base/str.h"
#include "json/json.h"

struct field_req {
	char *path;
	char *value;
	bool is_negated;
};

struct api_fields {
	struct field_req *reqs;
	uint32_t n;
};

struct api_fields *api_fields_free(struct api_fields *f)
{
	if (!f)
		return NULL;
	for (size_t i = 0; i < f->n; i++) {
		mem_free(f->reqs[i].path);
		mem_free(f->reqs[i].value);
	}
	mem_free(f->reqs);
	return mem_free(f);
}

/* Removes the backslashes that protect ',', '=' and '\'. */
static char *unescape(struct str s)
{
	char *out = mem_alloc(s.n + 1);
	size_t n = 0;

	for (size_t i = 0; out && i < s.n; i++) {
		if (s.p[i] == '\\' && i + 1 < s.n)
			i++;
		out[n++] = s.p[i];
	}
	return out;
}

/* Index of the first c that no backslash protects; n when there is none. */
static size_t find_plain(struct str s, char c)
{
	for (size_t i = 0; i < s.n; i++) {
		if (s.p[i] == '\\')
			i++;
		else if (s.p[i] == c)
			return i;
	}
	return s.n;
}

static enum rc parse_one(struct api_fields *f, struct str term, struct err *err)
{
	size_t eq = find_plain(term, '=');

	if (eq == term.n || eq == 0)
		return err_set(err, RC_BAD_REQUEST,
			       "invalid selector: '%.*s'; can't understand '%.*s'",
			       (int)MIN(term.n, 200), term.p, (int)MIN(term.n, 200), term.p);
	bool negated = term.p[eq - 1] == '!';
	struct str path = {term.p, eq - negated};
	size_t from = eq + 1 + (eq + 1 < term.n && term.p[eq + 1] == '=' && !negated);
	struct field_req *r = api_append(&f->reqs, &f->n, sizeof(*r));

	if (!r)
		return RC_NOMEM;
	r->is_negated = negated;
	r->path = unescape(str_trim(path));
	r->value = unescape((struct str){term.p + from, term.n - from});
	return r->path && r->value ? RC_OK : RC_NOMEM;
}

enum rc api_fields_parse(const char *text, struct api_fields **out, struct err *err)
{
	CLEANUP(api_fields_freep) struct api_fields *f = mem_alloc(sizeof(*f));
	struct str rest = str_of(text ? text : "");
	enum rc rc = f ? RC_OK : RC_NOMEM;

	while (!rc && rest.n) {
		size_t end = find_plain(rest, ',');

		if (end)
			rc = parse_one(f, (struct str){rest.p, end}, err);
		end = MIN(end + 1, rest.n);
		rest = (struct str){rest.p + end, rest.n - end};
	}
	if (rc)
		return rc == RC_NOMEM ? err_set(err, rc, "out of memory in a field selector") : rc;
	*out = STEAL(f);
	return RC_OK;
}

static const struct {
	const char *kind;
	const char *path;
} known[] = {
	{"Pod", "spec.nodeName"},
	{"Pod", "spec.restartPolicy"},
	{"Pod", "spec.schedulerName"},
	{"Pod", "spec.serviceAccountName"},
	{"Pod", "spec.hostNetwork"},
	{"Pod", "status.phase"},
	{"Pod", "status.podIP"},
	{"Pod", "status.nominatedNodeName"},
	{"Node", "spec.unschedulable"},
	{"Namespace", "status.phase"},
	{"Secret", "type"},
	{"Service", "spec.clusterIP"},
	{"Service", "spec.type"},
	{"Event", "involvedObject.kind"},
	{"Event", "involvedObject.namespace"},
	{"Event", "involvedObject.name"},
	{"Event", "involvedObject.uid"},
	{"Event", "involvedObject.apiVersion"},
	{"Event", "involvedObject.resourceVersion"},
	{"Event", "involvedObject.fieldPath"},
	{"Event", "reason"},
	{"Event", "reportingComponent"},
	{"Event", "source"},
	{"Event", "type"},
};

static bool is_known(const struct api_kind *k, const char *path)
{
	if (str_eq(path, "metadata.name") ||
	    (str_eq(path, "metadata.namespace") && k->is_namespaced))
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (!*k->group && str_eq(known[i].kind, k->kind) && str_eq(known[i].path, path))
			return true;
	return false;
}

enum rc api_fields_check(const struct api_fields *f, const struct api_kind *k, struct err *err)
{
	for (size_t i = 0; i < f->n; i++)
		if (!is_known(k, f->reqs[i].path))
			return err_set(err, RC_BAD_REQUEST, "field label not supported: %s",
				       f->reqs[i].path);
	return RC_OK;
}

enum rc api_fields_map(struct api_fields *f, const char *const map[][2], struct err *err)
{
	for (size_t i = 0; i < f->n; i++) {
		size_t k = 0;

		while (map[k][0] && !str_eq(map[k][0], f->reqs[i].path))
			k++;
		if (!map[k][0])
			return err_set(err, RC_BAD_REQUEST, "field label not supported: %s",
				       f->reqs[i].path);
		char *path = mem_strdup(map[k][1]);

		if (!path)
			return err_set(err, RC_NOMEM, "out of memory in a field selector");
		mem_free(f->reqs[i].path);
		f->reqs[i].path = path;
	}
	return RC_OK;
}

/* The scalar at a dotted path as text ("" when absent), in buf if it is no string. */
static const char *text_at(const struct json *obj, const char *path, char buf[32])
{
	struct str rest = str_of(str_eq(path, "source") ? "source.component" : path);
	char name[128];

	while (rest.p) {
		struct str part = str_split(&rest, '.');

		if (part.n >= sizeof(name))
			return "";
		memcpy(name, part.p, part.n);
		name[part.n] = '\0';
		obj = js_get(obj, name);
	}
	if (js_type(obj) == JS_BOOL)
		return js_bool(obj, false) ? "true" : "false";
	if (js_type(obj) == JS_INT) {
		snprintf(buf, 32, "%lld", (long long)js_int(obj, 0));
		return buf;
	}
	return js_str(obj) ? js_str(obj) : "";
}

/* Kubernetes shows an absent bool as "false". */
static bool is_bool_path(const char *path)
{
	return str_eq(path, "spec.unschedulable") || str_eq(path, "spec.hostNetwork");
}

bool api_fields_matches(const struct api_fields *f, const struct json *obj)
{
	char buf[32];

	for (size_t i = 0; i < f->n; i++) {
		const char *have = text_at(obj, f->reqs[i].path, buf);

		if (!*have && is_bool_path(f->reqs[i].path))
			have = "false";
		if (str_eq(have, f->reqs[i].value) == f->reqs[i].is_negated)
			return false;
	}
	return true;
}

const char *api_fields_required(const struct api_fields *f, const char *path)
{
	for (size_t i = 0; i < f->n; i++)
		if (!f->reqs[i].is_negated && str_eq(f->reqs[i].path, path))
			return f->reqs[i].value;
	return NULL;
}
