#include "api/labels.h"

#include <string.h>

#include "api/meta.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"
#include "json/json.h"

enum op { OP_EQ, OP_NE, OP_IN, OP_NOT_IN, OP_EXISTS, OP_ABSENT, OP_GT, OP_LT };

struct req {
	char *key;
	enum op op;
	char **values;
	uint32_t n_values;
};

struct api_selector {
	struct req *reqs;
	uint32_t n;
	bool selects_nothing;
};

static void reqs_free(struct req *reqs, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		mem_free(reqs[i].key);
		for (size_t v = 0; v < reqs[i].n_values; v++)
			mem_free(reqs[i].values[v]);
		mem_free(reqs[i].values);
	}
	mem_free(reqs);
}

struct api_selector *api_selector_free(struct api_selector *s)
{
	if (s)
		reqs_free(s->reqs, s->n);
	return mem_free(s);
}

static struct req *add_req(struct api_selector *s, struct str key, enum op op)
{
	struct req *r = api_append(&s->reqs, &s->n, sizeof(*r));

	if (!r)
		return NULL;
	r->op = op;
	r->key = mem_strndup(key.p, key.n);
	return r->key ? r : NULL;
}

static enum rc add_value(struct req *r, struct str v)
{
	CLEANUP(mem_freep) char *text = mem_strndup(v.n ? v.p : "", v.n);

	return text ? api_append_str(&r->values, &r->n_values, text) : RC_NOMEM;
}

/* ---- the text form ---- */

struct scan {
	const char *at;
	struct api_selector *sel;
	struct err *err;
};

static void skip_blanks(struct scan *sc)
{
	while (*sc->at == ' ' || *sc->at == '\t')
		sc->at++;
}

static struct str take_word(struct scan *sc)
{
	skip_blanks(sc);
	const char *from = sc->at;

	sc->at += strcspn(sc->at, " \t,=!<>()");
	return (struct str){from, (size_t)(sc->at - from)};
}

static enum rc bad(struct scan *sc, const char *what)
{
	return err_set(sc->err, RC_BAD_REQUEST,
		       "unable to parse requirement: found '%.40s', expected: %s", sc->at, what);
}

static enum rc check_key(struct scan *sc, struct str key)
{
	char text[LIMIT_NAME_BYTES + 70];

	if (key.n < sizeof(text)) {
		memcpy(text, key.p, key.n);
		text[key.n] = '\0';
		if (api_is_qualified_name(text))
			return RC_OK;
	}
	return err_set(sc->err, RC_BAD_REQUEST,
		       "unable to parse requirement: '%.*s' is not a label key",
		       (int)MIN(key.n, 300), key.p);
}

static enum rc check_value(struct scan *sc, struct str v)
{
	char text[64];

	if (v.n < sizeof(text)) {
		memcpy(text, v.n ? v.p : "", v.n);
		text[v.n] = '\0';
		if (api_is_label_value(text))
			return RC_OK;
	}
	return err_set(sc->err, RC_BAD_REQUEST,
		       "unable to parse requirement: '%.*s' is not a label value",
		       (int)MIN(v.n, 300), v.n ? v.p : "");
}

static enum rc scan_value(struct scan *sc, struct req *r)
{
	struct str v = take_word(sc);
	enum rc rc = check_value(sc, v);

	return rc ? rc : add_value(r, v);
}

/* "(a,b)" after in and notin. */
static enum rc scan_set(struct scan *sc, struct req *r)
{
	skip_blanks(sc);
	if (*sc->at != '(')
		return bad(sc, "'('");
	do {
		sc->at++;
		enum rc rc = scan_value(sc, r);

		if (rc)
			return rc;
		skip_blanks(sc);
	} while (*sc->at == ',');
	if (*sc->at != ')')
		return bad(sc, "',' or ')'");
	sc->at++;
	return RC_OK;
}

/* The operator after a key; OP_EXISTS when the requirement ends there. */
static enum rc scan_op(struct scan *sc, enum op *op)
{
	skip_blanks(sc);
	if (!*sc->at || *sc->at == ',') {
		*op = OP_EXISTS;
	} else if (*sc->at == '=') {
		sc->at += sc->at[1] == '=' ? 2 : 1;
		*op = OP_EQ;
	} else if (sc->at[0] == '!' && sc->at[1] == '=') {
		sc->at += 2;
		*op = OP_NE;
	} else if (*sc->at == '>' || *sc->at == '<') {
		*op = *sc->at++ == '>' ? OP_GT : OP_LT;
	} else {
		struct str word = take_word(sc);

		if (str_view_eq(word, "in"))
			*op = OP_IN;
		else if (str_view_eq(word, "notin"))
			*op = OP_NOT_IN;
		else
			return bad(sc, "in, notin, =, ==, !=, gt, lt");
	}
	return RC_OK;
}

static enum rc check_number(struct scan *sc, const struct req *r)
{
	int64_t n;

	if (str_to_i64(r->values[0], INT64_MIN, INT64_MAX, &n, NULL))
		return err_set(sc->err, RC_BAD_REQUEST,
			       "unable to parse requirement: '%s' must be an integer",
			       r->values[0]);
	return RC_OK;
}

static enum rc scan_req(struct scan *sc)
{
	enum op op = OP_ABSENT;
	enum rc rc;

	skip_blanks(sc);
	bool negated = *sc->at == '!';

	if (negated)
		sc->at++;
	struct str key = take_word(sc);

	rc = check_key(sc, key);
	if (!rc && !negated)
		rc = scan_op(sc, &op);
	if (rc)
		return rc;
	struct req *r = add_req(sc->sel, key, op);

	if (!r)
		return RC_NOMEM;
	if (op == OP_IN || op == OP_NOT_IN)
		return scan_set(sc, r);
	if (op == OP_EXISTS || op == OP_ABSENT)
		return RC_OK;
	rc = scan_value(sc, r);
	if (!rc && (op == OP_GT || op == OP_LT))
		rc = check_number(sc, r);
	return rc;
}

enum rc api_selector_parse(const char *text, struct api_selector **out, struct err *err)
{
	CLEANUP(api_selector_freep) struct api_selector *s = mem_alloc(sizeof(*s));
	struct scan sc = {.at = text ? text : "", .sel = s, .err = err};

	if (!s)
		return err_set(err, RC_NOMEM, "out of memory while parsing a selector");
	skip_blanks(&sc);
	while (*sc.at) {
		enum rc rc = scan_req(&sc);

		if (rc == RC_NOMEM)
			return err_set(err, rc, "out of memory while parsing a selector");
		if (rc)
			return rc;
		skip_blanks(&sc);
		if (*sc.at == ',') {
			sc.at++;
			skip_blanks(&sc);
			if (!*sc.at)
				return bad(&sc, "a label key");
		} else if (*sc.at) {
			return bad(&sc, "',' or the end");
		}
	}
	*out = STEAL(s);
	return RC_OK;
}

/* ---- the object forms ---- */

static const struct {
	const char *name;
	enum op op;
} op_names[] = {
	{"In", OP_IN}, {"NotIn", OP_NOT_IN}, {"Exists", OP_EXISTS}, {"DoesNotExist", OP_ABSENT},
	{"Gt", OP_GT}, {"Lt", OP_LT},
};

static enum rc add_expr(struct api_selector *s, const char *key, const char *op_name,
			char *const *values, size_t n, size_t n_ops, struct err *err)
{
	size_t i = 0;

	while (i < n_ops && !str_eq(op_names[i].name, op_name))
		i++;
	if (i == n_ops)
		return err_set(err, RC_INVALID, "'%s' is not a valid selector operator",
			       op_name ? op_name : "");
	enum op op = op_names[i].op;
	bool wants_one = op == OP_GT || op == OP_LT,
	     wants_none = op == OP_EXISTS || op == OP_ABSENT;

	if (!key || (wants_none ? n != 0 : n == 0) || (wants_one && n != 1))
		return err_set(err, RC_INVALID, "selector on '%s': wrong number of values for %s",
			       key ? key : "", op_name);
	struct req *r = add_req(s, str_of(key), op);

	if (!r)
		return RC_NOMEM;
	for (size_t v = 0; v < n; v++)
		if (add_value(r, str_of(values[v])))
			return RC_NOMEM;
	if (wants_one) {
		struct scan sc = {.err = err};
		enum rc rc = check_number(&sc, r);

		if (rc)
			return RC_INVALID;
	}
	return RC_OK;
}

enum rc api_selector_from_map(const struct api_map *m, struct api_selector **out)
{
	CLEANUP(api_selector_freep) struct api_selector *s = mem_alloc(sizeof(*s));

	if (!s)
		return RC_NOMEM;
	for (size_t i = 0; i < m->n; i++) {
		struct req *r = add_req(s, str_of(m->items[i].key), OP_EQ);

		if (!r || add_value(r, str_of(m->items[i].value)))
			return RC_NOMEM;
	}
	*out = STEAL(s);
	return RC_OK;
}

enum rc api_selector_from(const LabelSelector *sel, struct api_selector **out, struct err *err)
{
	static const struct api_map none;
	CLEANUP(api_selector_freep) struct api_selector *s = NULL;
	enum rc rc = api_selector_from_map(sel ? &sel->matchLabels : &none, &s);

	for (size_t i = 0; !rc && sel && i < sel->n_matchExpressions; i++) {
		const LabelSelectorRequirement *e = &sel->matchExpressions[i];

		rc = add_expr(s, e->key, e->operator, e->values, e->n_values, 4, err);
	}
	if (rc)
		return rc == RC_NOMEM ? err_set(err, rc, "out of memory in a selector") : rc;
	s->selects_nothing = !sel;
	*out = STEAL(s);
	return RC_OK;
}

enum rc api_selector_from_node_exprs(const NodeSelectorRequirement *reqs, size_t n,
				     struct api_selector **out, struct err *err)
{
	CLEANUP(api_selector_freep) struct api_selector *s = mem_alloc(sizeof(*s));
	enum rc rc = s ? RC_OK : RC_NOMEM;

	for (size_t i = 0; !rc && i < n; i++)
		rc = add_expr(s, reqs[i].key, reqs[i].operator, reqs[i].values, reqs[i].n_values,
			      ARRAY_SIZE(op_names), err);
	if (rc)
		return rc == RC_NOMEM ? err_set(err, rc, "out of memory in a selector") : rc;
	*out = STEAL(s);
	return RC_OK;
}

/* ---- matching ---- */

static bool has_value(const struct req *r, const char *v)
{
	for (size_t i = 0; i < r->n_values; i++)
		if (str_eq(r->values[i], v))
			return true;
	return false;
}

static bool compares(const struct req *r, const char *v)
{
	int64_t have, want;

	if (str_to_i64(v, INT64_MIN, INT64_MAX, &have, NULL) ||
	    str_to_i64(r->values[0], INT64_MIN, INT64_MAX, &want, NULL))
		return false;
	return r->op == OP_GT ? have > want : have < want;
}

static bool req_matches(const struct req *r, const char *v)
{
	switch (r->op) {
	case OP_EQ:
	case OP_IN:
		return v && has_value(r, v);
	case OP_NE:
	case OP_NOT_IN:
		return !v || !has_value(r, v);
	case OP_EXISTS:
		return v;
	case OP_ABSENT:
		return !v;
	default:
		return v && compares(r, v);
	}
}

bool api_selector_matches(const struct api_selector *s, const struct api_map *labels)
{
	for (size_t i = 0; i < s->n; i++)
		if (!req_matches(&s->reqs[i], api_map_get(labels, s->reqs[i].key)))
			return false;
	return !s->selects_nothing;
}

bool api_selector_matches_json(const struct api_selector *s, const struct json *labels)
{
	for (size_t i = 0; i < s->n; i++)
		if (!req_matches(&s->reqs[i], js_get_str(labels, s->reqs[i].key)))
			return false;
	return !s->selects_nothing;
}

bool api_selector_is_everything(const struct api_selector *s)
{
	return !s->n && !s->selects_nothing;
}

const char *api_selector_required(const struct api_selector *s, const char *key)
{
	for (size_t i = 0; i < s->n; i++) {
		const struct req *r = &s->reqs[i];

		if ((r->op == OP_EQ || r->op == OP_IN) && r->n_values == 1 && str_eq(r->key, key))
			return r->values[0];
	}
	return NULL;
}

void api_selector_print(const struct api_selector *s, struct sbuf *out)
{
	static const char *const signs[] = {
		[OP_EQ] = "=",	  [OP_NE] = "!=",   [OP_IN] = " in (", [OP_NOT_IN] = " notin (",
		[OP_EXISTS] = "", [OP_ABSENT] = "", [OP_GT] = ">",     [OP_LT] = "<"};

	for (size_t i = 0; i < s->n; i++) {
		const struct req *r = &s->reqs[i];

		sbuf_addf(out, "%s%s%s%s", i ? "," : "", r->op == OP_ABSENT ? "!" : "", r->key,
			  signs[r->op]);
		for (size_t v = 0; v < r->n_values; v++)
			sbuf_addf(out, "%s%s", v ? "," : "", r->values[v]);
		if (r->op == OP_IN || r->op == OP_NOT_IN)
			sbuf_addc(out, ')');
	}
}
