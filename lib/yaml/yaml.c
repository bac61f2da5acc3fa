#include "yaml/yaml.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"
#include "json/json.h"

struct builder {
	yaml_document_t *doc;
	size_t nodes;
	const struct js_at *at; /* the value that is built; NULL: the top */
	struct js_dups *dups;	/* NULL: refuse duplicate keys */
	struct err *err;
};

static enum rc fail_at(struct builder *b, const yaml_node_t *node, const char *text)
{
	return err_set(b->err, RC_BAD_REQUEST, "invalid YAML at line %zu, column %zu: %s",
		       node->start_mark.line + 1, node->start_mark.column + 1, text);
}

static bool is_word(const char *s, const char *const *words)
{
	for (; *words; words++)
		if (strcasecmp(s, *words) == 0 &&
		    (islower((unsigned char)s[0]) || isupper((unsigned char)s[0])))
			return true;
	return false;
}

static const char *const true_words[] = {"true", "yes", "on", "y", NULL};
static const char *const false_words[] = {"false", "no", "off", "n", NULL};

/* Upper, lower and capitalised forms only, as YAML 1.1 says; "y" and "n" stay strings, as go-yaml has it. */
static bool is_bool(const char *s, bool *v)
{
	size_t n = strlen(s);
	bool lower = true, upper = true, capital = true;

	if (n < 2)
		return false;
	for (size_t i = 0; i < n; i++) {
		lower = lower && islower((unsigned char)s[i]);
		upper = upper && isupper((unsigned char)s[i]);
		capital = capital &&
			  (i ? islower((unsigned char)s[i]) : isupper((unsigned char)s[i]));
	}
	if (!lower && !upper && !capital)
		return false;
	*v = is_word(s, true_words);
	return *v || is_word(s, false_words);
}

static bool is_null(const char *s)
{
	return !*s || str_eq(s, "~") || str_eq(s, "null") || str_eq(s, "Null") || str_eq(s, "NULL");
}

/* The base of an integer; *s moves behind a prefix ("0x", "0o", "0b"; a plain leading 0 is octal). */
static int number_base(const char **s)
{
	static const struct {
		char letter;
		int base;
	} prefixes[] = {{'x', 16}, {'o', 8}, {'b', 2}};

	if ((*s)[0] != '0')
		return 10;
	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++)
		if ((*s)[1] == prefixes[i].letter && isxdigit((unsigned char)(*s)[2])) {
			*s += 2;
			return prefixes[i].base;
		}
	return isdigit((unsigned char)(*s)[1]) ? 8 : 10;
}

/* True: it is one, and *out its value (NULL: out of memory). */
static bool as_number(const char *s, struct json **out)
{
	const char *digits = s + (*s == '-' || *s == '+');
	const char *first = digits;
	char *end;

	if (!isdigit((unsigned char)*digits) && *digits != '.')
		return false;
	int base = number_base(&first);

	errno = 0;
	long long v = strtoll(first, &end, base);

	if (!*end && !errno) {
		*out = js_new_int(*s == '-' ? -v : v);
		return true;
	}
	for (const char *p = digits; *p; p++)
		if (!isdigit((unsigned char)*p) && !strchr(".eE+-", *p))
			return false;
	errno = 0;
	double d = strtod(s, &end);

	if (*end || errno)
		return false;
	*out = js_new_real(d);
	return true;
}

static struct json *scalar_value(const yaml_node_t *node)
{
	const char *s = (const char *)node->data.scalar.value;
	bool v;

	if (node->data.scalar.style != YAML_PLAIN_SCALAR_STYLE ||
	    str_eq((const char *)node->tag, "tag:yaml.org,2002:binary"))
		return js_new_strn(s, node->data.scalar.length);
	if (is_null(s))
		return js_new_null();
	if (is_bool(s, &v))
		return js_new_bool(v);
	struct json *number = NULL;

	return as_number(s, &number) ? number : js_new_strn(s, node->data.scalar.length);
}

/* Recursion is bounded by LIMIT_JSON_DEPTH, checked at entry. */
static enum rc build(struct builder *b, const yaml_node_t *node, unsigned depth, struct json **out);

/* "\\0" in quotes: JSON texts of the API have none, and a C string would end there. */
static bool has_nul(const yaml_node_t *scalar)
{
	return memchr(scalar->data.scalar.value, '\0', scalar->data.scalar.length) != NULL;
}

/* A value could not be made of this scalar. */
static enum rc no_text(struct builder *b, const yaml_node_t *scalar)
{
	const char *p = (const char *)scalar->data.scalar.value;
	size_t left = scalar->data.scalar.length, n;

	for (; left && (n = str_utf8_len(p, left)); p += n)
		left -= n;
	return left ? fail_at(b, scalar, "the text is not valid UTF-8")
		    : err_set(b->err, RC_NOMEM, "out of memory");
}

static bool is_merge_key(const yaml_node_t *key)
{
	return key->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
	       str_eq((const char *)key->data.scalar.value, "<<");
}

/* Keys of another mapping that obj does not have itself (YAML 1.1, "merge"). */
static enum rc merge_one(struct builder *b, const yaml_node_t *from, unsigned depth,
			 struct json *obj)
{
	CLEANUP(js_unrefp) struct json *other = NULL;

	if (!from)
		return err_set(b->err, RC_BAD_REQUEST, "invalid YAML: a node is missing");
	if (from->type != YAML_MAPPING_NODE)
		return fail_at(b, from, "only mappings can be merged");
	enum rc rc = build(b, from, depth + 1, &other);

	JS_FOREACH(it, other)
		if (!rc && !js_get(obj, it.key) && js_set(obj, it.key, js_ref(it.value)))
			rc = err_set(b->err, RC_NOMEM, "out of memory");
	return rc;
}

static enum rc merge(struct builder *b, const yaml_node_t *value, unsigned depth, struct json *obj)
{
	enum rc rc = RC_OK;

	if (value->type != YAML_SEQUENCE_NODE)
		return merge_one(b, value, depth, obj);
	for (yaml_node_item_t *i = value->data.sequence.items.start;
	     i < value->data.sequence.items.top && !rc; i++)
		rc = merge_one(b, yaml_document_get_node(b->doc, *i), depth, obj);
	return rc;
}

static enum rc build_pair(struct builder *b, const yaml_node_t *key, const yaml_node_t *value_node,
			  unsigned depth, struct json *obj)
{
	const char *name = (const char *)key->data.scalar.value;
	const struct js_at at = {.up = b->at, .key = name, .n_key = key->data.scalar.length};
	struct json *value = NULL;

	if (has_nul(key))
		return fail_at(b, key, "the key has a NUL character");
	if (js_get(obj, name)) {
		if (!b->dups)
			return fail_at(b, key, "the key is there twice");
		if (js_dups_add(b->dups, &at))
			return err_set(b->err, RC_NOMEM, "out of memory");
	}
	b->at = &at;
	enum rc rc = build(b, value_node, depth + 1, &value);

	b->at = at.up;
	return !rc && js_set(obj, name, value) ? no_text(b, key) : rc;
}

static enum rc build_mapping(struct builder *b, const yaml_node_t *node, unsigned depth,
			     struct json **out)
{
	CLEANUP(js_unrefp) struct json *obj = js_new_object();
	const yaml_node_t *merged = NULL;
	enum rc rc = RC_OK;

	if (!obj)
		return err_set(b->err, RC_NOMEM, "out of memory");
	for (yaml_node_pair_t *p = node->data.mapping.pairs.start;
	     p < node->data.mapping.pairs.top && !rc; p++) {
		const yaml_node_t *key = yaml_document_get_node(b->doc, p->key);
		const yaml_node_t *value = yaml_document_get_node(b->doc, p->value);

		if (!key || key->type != YAML_SCALAR_NODE)
			return fail_at(b, node, "a key is not a scalar");
		if (!is_merge_key(key))
			rc = build_pair(b, key, value, depth, obj);
		else if (merged)
			rc = fail_at(b, key, "the key is there twice");
		else
			merged = value;
	}
	if (!rc && merged) /* last: what the mapping says itself counts more */
		rc = merge(b, merged, depth, obj);
	if (!rc)
		*out = STEAL(obj);
	return rc;
}

static enum rc build_list(struct builder *b, const yaml_node_t *node, unsigned depth,
			  struct json **out)
{
	CLEANUP(js_unrefp) struct json *arr = js_new_array();

	if (!arr)
		return err_set(b->err, RC_NOMEM, "out of memory");
	for (yaml_node_item_t *i = node->data.sequence.items.start;
	     i < node->data.sequence.items.top; i++) {
		const struct js_at at = {.up = b->at, .index = js_len(arr)};
		struct json *value = NULL;

		b->at = &at;
		enum rc rc = build(b, yaml_document_get_node(b->doc, *i), depth + 1, &value);

		b->at = at.up;
		if (rc)
			return rc;
		if (js_append(arr, value))
			return err_set(b->err, RC_NOMEM, "out of memory");
	}
	*out = STEAL(arr);
	return RC_OK;
}

/* Only YAML's own types: whoever writes "!secret x" means more than the text. */
static bool is_known_tag(const yaml_node_t *node)
{
	static const char own[] = "tag:yaml.org,2002:";
	static const char *const types[] = {"str", "int", "float",  "bool",	"null",
					    "map", "seq", "binary", "timestamp"};
	const char *tag = (const char *)node->tag;

	if (!tag || str_eq(tag, "!"))
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(types) && str_has_prefix(tag, own); i++)
		if (str_eq(tag + sizeof(own) - 1, types[i]))
			return true;
	return false;
}

static enum rc build(struct builder *b, const yaml_node_t *node, unsigned depth, struct json **out)
{
	if (!node)
		return err_set(b->err, RC_BAD_REQUEST, "invalid YAML: a node is missing");
	if (depth > LIMIT_JSON_DEPTH)
		return fail_at(b, node, "nested too deeply");
	if (++b->nodes > LIMIT_YAML_NODES)
		return fail_at(b, node, "too many values (aliases count where they are used)");
	if (!is_known_tag(node))
		return fail_at(b, node, "a tag that is not one of YAML's own types");
	if (node->type == YAML_MAPPING_NODE)
		return build_mapping(b, node, depth, out);
	if (node->type == YAML_SCALAR_NODE) {
		if (has_nul(node))
			return fail_at(b, node, "the text has a NUL character");
		*out = scalar_value(node);
		return *out ? RC_OK : no_text(b, node);
	}
	return build_list(b, node, depth, out);
}

static enum rc fail_parser(const yaml_parser_t *parser, struct err *err)
{
	return err_set(err, parser->error == YAML_MEMORY_ERROR ? RC_NOMEM : RC_BAD_REQUEST,
		       "invalid YAML at line %zu, column %zu: %s", parser->problem_mark.line + 1,
		       parser->problem_mark.column + 1,
		       parser->problem ? parser->problem : "unreadable");
}

struct shape {
	unsigned depth;
	size_t events, docs;
};

/* One event on the way through; the limits of what build() takes. */
static enum rc check_event(struct shape *s, const yaml_event_t *e, struct err *err)
{
	if (e->type == YAML_SEQUENCE_START_EVENT || e->type == YAML_MAPPING_START_EVENT)
		s->depth++;
	if (e->type == YAML_SEQUENCE_END_EVENT || e->type == YAML_MAPPING_END_EVENT)
		s->depth--;
	s->docs += e->type == YAML_DOCUMENT_START_EVENT;
	if (s->docs > LIMIT_YAML_DOCS)
		return err_set(err, RC_TOO_BIG, "more than %d documents", LIMIT_YAML_DOCS);
	if (s->depth <= LIMIT_JSON_DEPTH && ++s->events <= 4 * LIMIT_YAML_NODES)
		return RC_OK;
	return err_set(err, RC_BAD_REQUEST, "invalid YAML at line %zu, column %zu: %s",
		       e->start_mark.line + 1, e->start_mark.column + 1,
		       s->depth > LIMIT_JSON_DEPTH ? "nested too deeply" : "too many values");
}

/* libyaml's time grows with the square of the nesting, and it builds all of a document first: so depth and
 * number are looked at before, event by event. */
static enum rc check_shape(const char *text, size_t n, struct err *err)
{
	struct shape s = {0};
	yaml_parser_t parser;
	yaml_event_t e;
	enum rc rc = RC_OK;
	bool end = false;

	if (!yaml_parser_initialize(&parser))
		return err_set(err, RC_NOMEM, "out of memory");
	yaml_parser_set_input_string(&parser, (const unsigned char *)text, n);
	while (!rc && !end) {
		if (!yaml_parser_parse(&parser, &e)) {
			rc = fail_parser(&parser, err);
			break;
		}
		rc = check_event(&s, &e, err);
		end = e.type == YAML_STREAM_END_EVENT;
		yaml_event_delete(&e);
	}
	yaml_parser_delete(&parser);
	return rc;
}

static enum rc parse_docs(yaml_parser_t *parser, struct json *docs, struct js_dups *dups,
			  struct err *err)
{
	struct builder b = {.dups = dups, .err = err};

	for (;;) {
		yaml_document_t doc;
		struct json *value = NULL;
		enum rc rc = RC_OK;

		if (!yaml_parser_load(parser, &doc))
			return fail_parser(parser, err);
		const yaml_node_t *root = yaml_document_get_root_node(&doc);

		if (!root) {
			yaml_document_delete(&doc);
			return RC_OK;
		}
		b.doc = &doc;
		rc = build(&b, root, 0, &value);
		yaml_document_delete(&doc);
		if (rc)
			return rc;
		if (js_is_null(value))
			js_unref(value); /* an empty document between two separators */
		else if (js_append(docs, value))
			return err_set(err, RC_NOMEM, "out of memory");
	}
}

enum rc yaml_parse(const char *text, size_t n, struct json **out, struct err *err)
{
	return yaml_parse_dups(text, n, out, NULL, err);
}

enum rc yaml_parse_dups(const char *text, size_t n, struct json **out, struct js_dups *dups,
			struct err *err)
{
	CLEANUP(js_unrefp) struct json *docs = js_new_array();
	yaml_parser_t parser;
	enum rc rc = check_shape(text, n, err);

	if (rc)
		return rc;
	if (!docs || !yaml_parser_initialize(&parser))
		return err_set(err, RC_NOMEM, "out of memory");
	yaml_parser_set_input_string(&parser, (const unsigned char *)text, n);
	rc = parse_docs(&parser, docs, dups, err);

	yaml_parser_delete(&parser);
	if (!rc)
		*out = STEAL(docs);
	return rc;
}

/* Printing */

/* Some reader takes this text for something else than a string. */
static bool reads_as_other_type(const char *s)
{
	static const char *const words[] = {"y", "n", "Y", "N", "=", "<<"};
	bool b;

	if (is_null(s) || is_bool(s, &b))
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		if (str_eq(s, words[i]))
			return true;
	CLEANUP(js_unrefp) struct json *number = NULL;

	/* digits with : or - may be a time or base 60 */
	return as_number(s, &number) ||
	       (isdigit((unsigned char)*s) && (strchr(s, ':') || strchr(s, '-')));
}

/* The code point at s when it has to be escaped: what YAML takes for a line break, a byte order mark or not
 * printable.  0: it can stand as it is. */
static unsigned needs_escape(const char *s)
{
	const unsigned char *u = (const unsigned char *)s;

	if (u[0] < 0x20 || u[0] == 0x7f)
		return u[0];
	if (u[0] == 0xc2 && u[1] < 0xa0)
		return u[1];
	if (u[0] == 0xe2 && u[1] == 0x80 && (u[2] == 0xa8 || u[2] == 0xa9))
		return 0x2000u | (u[2] & 0x3f);
	if (u[0] == 0xef && (u[1] == 0xbb || u[1] == 0xbf) && u[2] >= (u[1] == 0xbb ? 0xbf : 0xbe))
		return 0xf000u | (u[1] & 0x3fu) << 6 | (u[2] & 0x3fu);
	return 0;
}

static bool is_plain_safe(const char *s)
{
	if (reads_as_other_type(s) || strchr("-?:,[]{}#&*!|>'\"%@` ", *s) ||
	    str_has_prefix(s, "...") || s[strlen(s) - 1] == ' ' || s[strlen(s) - 1] == ':')
		return false;
	for (const char *p = s; *p; p++)
		if (needs_escape(p) || (*p == ':' && p[1] == ' ') || (*p == ' ' && p[1] == '#'))
			return false;
	return true;
}

static void print_quoted(const char *s, struct sbuf *out)
{
	sbuf_addc(out, '"');
	for (; *s; s++) {
		unsigned odd = needs_escape(s);

		if (*s == '"' || *s == '\\')
			sbuf_addf(out, "\\%c", *s);
		else if (*s == '\n')
			sbuf_adds(out, "\\n");
		else if (*s == '\t')
			sbuf_adds(out, "\\t");
		else if (odd)
			sbuf_addf(out, "\\u%04x", odd);
		else
			sbuf_addc(out, *s);
		s += odd > 0x7ff ? 2 : odd > 0x7f ? 1 : 0;
	}
	sbuf_addc(out, '"');
}

static void indent_by(struct sbuf *out, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		sbuf_addc(out, ' ');
}

static bool is_block_text(const char *s)
{
	if (!strchr(s, '\n') || s[0] == ' ' || s[0] == '\n')
		return false;
	for (; *s; s++)
		if (needs_escape(s) && *s != '\n' && *s != '\t')
			return false;
	return true;
}

static void print_block_text(const char *s, struct sbuf *out, unsigned indent)
{
	size_t n = strlen(s);
	struct str rest = {s, n};

	sbuf_adds(out, s[n - 1] != '\n' ? "|-\n" : n > 1 && s[n - 2] == '\n' ? "|+\n" : "|\n");
	while (rest.p && rest.n) {
		struct str line = str_split(&rest, '\n');

		if (line.n)
			indent_by(out, indent);
		sbuf_add(out, line.p, line.n);
		sbuf_addc(out, '\n');
	}
}

static void print_scalar(const struct json *j, struct sbuf *out, unsigned indent)
{
	const char *s = js_str(j);

	if (!s) {
		js_print(j, out, true);
		sbuf_addc(out, '\n');
	} else if (indent && is_block_text(s)) { /* at the margin, "---" would end the document */
		print_block_text(s, out, indent);
	} else {
		if (is_plain_safe(s))
			sbuf_adds(out, s);
		else
			print_quoted(s, out);
		sbuf_addc(out, '\n');
	}
}

static int by_key(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void print_value(const struct json *j, struct sbuf *out, unsigned indent, bool in_line);

static void print_object(const struct json *j, struct sbuf *out, unsigned indent, bool in_line)
{
	size_t n = 0;
	CLEANUP(mem_freep) const char **keys = mem_calloc(js_len(j), sizeof(*keys));

	if (!keys) {
		out->rc = RC_NOMEM;
		return;
	}
	JS_FOREACH(it, j)
		keys[n++] = it.key;
	qsort(keys, n, sizeof(*keys), by_key);
	for (size_t i = 0; i < n; i++) {
		const struct json *v = js_get(j, keys[i]);

		if (i || !in_line)
			indent_by(out, indent);
		if (*keys[i] && is_plain_safe(keys[i]))
			sbuf_adds(out, keys[i]);
		else
			print_quoted(keys[i], out);
		sbuf_addc(out, ':');
		if ((js_is_object(v) || js_is_array(v)) && js_len(v)) {
			sbuf_addc(out, '\n');
			print_value(v, out, js_is_array(v) ? indent : indent + 2, false);
		} else {
			sbuf_addc(out, ' ');
			print_value(v, out, indent + 2, true);
		}
	}
}

/* Recursion follows a parsed value, whose depth is bounded. */
static void print_value(const struct json *j, struct sbuf *out, unsigned indent, bool in_line)
{
	if (js_is_object(j) && js_len(j)) {
		print_object(j, out, indent, in_line);
	} else if (js_is_array(j) && js_len(j)) {
		for (size_t i = 0; i < js_len(j); i++) {
			if (i || !in_line)
				indent_by(out, indent);
			sbuf_adds(out, "- ");
			print_value(js_item(j, i), out, indent + 2, true);
		}
	} else if (js_is_object(j) || js_is_array(j)) {
		sbuf_adds(out, js_is_object(j) ? "{}\n" : "[]\n");
	} else {
		print_scalar(j, out, indent);
	}
}

void yaml_print(const struct json *j, struct sbuf *out)
{
	print_value(j, out, 0, false);
}
