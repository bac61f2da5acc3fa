/* Texts to values (RFC 8259).  Our own, because jansson's parser writes behind its buffer when an
 * allocation fails in the middle of a string: it drops the closing quote and searches on. */
#include "json/json.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"

enum { NUMBER_MAX = 256 };

struct parser {
	const char *text, *p, *end;
	unsigned depth;
	const struct js_at *at; /* the group that is parsed; NULL: the top */
	struct js_dups *dups;	/* NULL: refuse duplicate keys */
	const char *what;	/* why it is no JSON; NULL: out of memory */
	bool failed;
};

/* Each parse function returns a value, or NULL after fail() or nomem(). */
static void *fail(struct parser *ps, const char *what)
{
	if (!ps->failed)
		ps->what = what;
	ps->failed = true;
	return NULL;
}

static void *nomem(struct parser *ps)
{
	return fail(ps, NULL);
}

static char peek(const struct parser *ps)
{
	return ps->p < ps->end ? *ps->p : '\0';
}

static void skip_space(struct parser *ps)
{
	while (ps->p < ps->end &&
	       (*ps->p == ' ' || *ps->p == '\n' || *ps->p == '\t' || *ps->p == '\r'))
		ps->p++;
}

static bool take(struct parser *ps, char c)
{
	if (ps->p >= ps->end || *ps->p != c)
		return false;
	ps->p++;
	return true;
}

/* Strings */

static size_t utf8_put(char *out, uint32_t c)
{
	if (c < 0x80) {
		out[0] = (char)c;
		return 1;
	}
	size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
	static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};

	for (size_t i = n - 1; i > 0; i--, c >>= 6)
		out[i] = (char)(0x80 | (c & 0x3f));
	out[0] = (char)(lead[n] | c);
	return n;
}

/* Four hexadecimal digits behind "\u". */
static bool hex4(struct parser *ps, uint32_t *out)
{
	uint32_t v = 0;

	if (ps->end - ps->p < 4)
		return false;
	for (int i = 0; i < 4; i++) {
		int d = str_hex_digit(*ps->p++);

		if (d < 0)
			return false;
		v = v << 4 | (uint32_t)d;
	}
	*out = v;
	return true;
}

static bool unicode_escape(struct parser *ps, uint32_t *out)
{
	uint32_t low;

	if (!hex4(ps, out))
		return fail(ps, "invalid escape");
	if (*out == 0)
		return fail(ps, "\\u0000 is not allowed");
	if (*out < 0xd800 || *out > 0xdfff)
		return true;
	if (*out > 0xdbff || !take(ps, '\\') || !take(ps, 'u') || !hex4(ps, &low) || low < 0xdc00 ||
	    low > 0xdfff)
		return fail(ps, "half of a surrogate pair");
	*out = 0x10000 + ((*out - 0xd800) << 10) + (low - 0xdc00);
	return true;
}

/* Behind the backslash. */
static bool escape(struct parser *ps, char *out, size_t *n)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	char c = peek(ps);
	const char *at = c ? strchr(from, c) : NULL;
	uint32_t code;

	if (at) {
		ps->p++;
		out[(*n)++] = to[at - from];
		return true;
	}
	if (!take(ps, 'u'))
		return fail(ps, "invalid escape");
	if (!unicode_escape(ps, &code))
		return false;
	*n += utf8_put(out + *n, code);
	return true;
}

/* Checks one piece without escapes: up to a quote or a backslash. */
static bool plain_run(struct parser *ps)
{
	while (ps->p < ps->end && *ps->p != '"' && *ps->p != '\\') {
		if ((unsigned char)*ps->p < 0x20)
			return fail(ps, "control character in a string");
		size_t k = (unsigned char)*ps->p < 0x80
				   ? 1
				   : str_utf8_len(ps->p, (size_t)(ps->end - ps->p));

		if (!k)
			return fail(ps, "invalid UTF-8");
		ps->p += k;
	}
	return ps->p < ps->end || fail(ps, "a string does not end");
}

/* The bytes of a string, behind its opening quote.  They lie in the text itself, or, when there are
 * escapes, in *buf (the caller's to free; an escape is never shorter than what it stands for). */
static bool string_bytes(struct parser *ps, char **buf, const char **s, size_t *n)
{
	const char *start = ps->p;

	if (!plain_run(ps))
		return false;
	*s = start;
	*n = (size_t)(ps->p - start);
	if (take(ps, '"'))
		return true;
	const char *close = ps->p;

	while (close < ps->end && *close != '"')
		close += *close == '\\' ? 2 : 1;
	if (close >= ps->end)
		return fail(ps, "a string does not end");
	*buf = mem_alloc((size_t)(close - start));
	if (!*buf)
		return nomem(ps);
	memcpy(*buf, start, *n);
	*s = *buf;
	while (!take(ps, '"')) {
		if (take(ps, '\\')) {
			if (!escape(ps, *buf, n))
				return false;
			continue;
		}
		const char *run = ps->p;

		if (!plain_run(ps))
			return false;
		memcpy(*buf + *n, run, (size_t)(ps->p - run));
		*n += (size_t)(ps->p - run);
	}
	return true;
}

static json_t *parse_string(struct parser *ps)
{
	CLEANUP(mem_freep) char *buf = NULL;
	const char *s;
	size_t n;

	if (!string_bytes(ps, &buf, &s, &n))
		return NULL;
	json_t *j = json_stringn_nocheck(s, n);

	return j ? j : nomem(ps);
}

/* Numbers */

static size_t count_digits(const char *s)
{
	return strspn(s, "0123456789");
}

/* "-", digits without a leading 0, a fraction, an exponent; *real: there is one of the latter two. */
static bool is_number(const char *s, bool *real)
{
	s += *s == '-';
	size_t n = count_digits(s);

	if (!n || (*s == '0' && n > 1))
		return false;
	s += n;
	*real = *s != '\0';
	if (*s == '.') {
		n = count_digits(++s);
		if (!n)
			return false;
		s += n;
	}
	if (*s == 'e' || *s == 'E') {
		s++;
		s += *s == '+' || *s == '-';
		n = count_digits(s);
		if (!n)
			return false;
		s += n;
	}
	return *s == '\0';
}

static json_t *parse_number(struct parser *ps)
{
	char text[NUMBER_MAX];
	const char *start = ps->p;
	size_t n = 0;
	bool real;
	json_t *j;

	while (ps->p < ps->end && *ps->p && strchr("+-.eE0123456789", *ps->p))
		ps->p++;
	n = (size_t)(ps->p - start);
	if (n >= sizeof(text))
		return fail(ps, "a number is too long");
	memcpy(text, start, n);
	text[n] = '\0';
	if (!is_number(text, &real))
		return fail(ps, "invalid number");
	errno = 0;
	if (real) {
		double v = strtod(text, NULL);

		if (errno == ERANGE && (v > 1 || v < -1))
			return fail(ps, "a number is too large");
		j = json_real(v);
	} else {
		long long v = strtoll(text, NULL, 10);

		if (errno)
			return fail(ps, "an integer does not fit 64 bits");
		j = json_integer(v);
	}
	return j ? j : nomem(ps);
}

/* Values.  The recursion is bounded by LIMIT_JSON_DEPTH, checked at entry of each level. */

static json_t *parse_value(struct parser *ps);

/* Duplicate keys */

static void print_at(const struct js_at *at, struct sbuf *b)
{
	const struct js_at *way[LIMIT_JSON_DEPTH + 2];
	size_t n = 0;

	for (; at && n < ARRAY_SIZE(way); at = at->up)
		way[n++] = at;
	while (n-- > 0)
		if (way[n]->key)
			sbuf_addf(b, "%s%.*s", b->n ? "." : "", (int)way[n]->n_key, way[n]->key);
		else
			sbuf_addf(b, "[%zu]", way[n]->index);
}

enum rc js_dups_add(struct js_dups *dups, const struct js_at *at)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(LIMIT_BODY_BYTES);

	if (!dups->paths)
		dups->paths = js_new_array();
	if (!dups->paths)
		return RC_NOMEM;
	if (js_len(dups->paths) >= LIMIT_FIELD_ERRORS)
		return RC_OK;
	print_at(at, &b);
	return sbuf_rc(&b) ? RC_NOMEM : js_append(dups->paths, js_new_strn(b.p, b.n));
}

/* False: the key is refused. */
static bool seen_key(struct parser *ps, const char *key, size_t n)
{
	const struct js_at at = {.up = ps->at, .key = key, .n_key = n};

	if (!ps->dups)
		return fail(ps, "duplicate object key");
	return js_dups_add(ps->dups, &at) == RC_OK || nomem(ps);
}

static bool member(struct parser *ps, json_t *obj)
{
	CLEANUP(mem_freep) char *buf = NULL;
	const char *key;
	size_t n;

	skip_space(ps);
	if (!take(ps, '"'))
		return fail(ps, "expected a key in quotes");
	if (!string_bytes(ps, &buf, &key, &n))
		return false;
	if (json_object_getn(obj, key, n) && !seen_key(ps, key, n))
		return false;
	skip_space(ps);
	if (!take(ps, ':'))
		return fail(ps, "expected ':'");
	const struct js_at at = {.up = ps->at, .key = key, .n_key = n};

	ps->at = &at;
	json_t *value = parse_value(ps);

	ps->at = at.up;
	if (!value)
		return false;
	return json_object_setn_new_nocheck(obj, key, n, value) == 0 || nomem(ps);
}

static bool element(struct parser *ps, json_t *arr)
{
	const struct js_at at = {.up = ps->at, .index = json_array_size(arr)};

	ps->at = &at;
	json_t *value = parse_value(ps);

	ps->at = at.up;
	return value && (json_array_append_new(arr, value) == 0 || nomem(ps));
}

/* Behind the opening bracket. */
static json_t *parse_group(struct parser *ps, json_t *group, char close,
			   bool (*item)(struct parser *ps, json_t *group))
{
	bool more = true;

	if (!group)
		return nomem(ps);
	if (++ps->depth > LIMIT_JSON_DEPTH)
		fail(ps, "nested too deeply");
	skip_space(ps);
	if (!ps->failed && take(ps, close))
		more = false;
	while (more && !ps->failed && item(ps, group)) {
		skip_space(ps);
		more = take(ps, ',');
		if (!more && !take(ps, close))
			fail(ps, close == '}' ? "expected ',' or '}'" : "expected ',' or ']'");
	}
	ps->depth--;
	if (!ps->failed)
		return group;
	json_decref(group);
	return NULL;
}

static json_t *parse_word(struct parser *ps, const char *word, json_t *value)
{
	size_t n = strlen(word);

	if ((size_t)(ps->end - ps->p) < n || memcmp(ps->p, word, n) != 0)
		return fail(ps, "invalid token");
	ps->p += n;
	return value;
}

static json_t *parse_value(struct parser *ps)
{
	skip_space(ps);
	if (ps->p >= ps->end)
		return fail(ps, "the text ends too early");
	if (take(ps, '"'))
		return parse_string(ps);
	if (take(ps, '{'))
		return parse_group(ps, json_object(), '}', member);
	if (take(ps, '['))
		return parse_group(ps, json_array(), ']', element);
	switch (*ps->p) {
	case 't':
		return parse_word(ps, "true", json_true());
	case 'f':
		return parse_word(ps, "false", json_false());
	case 'n':
		return parse_word(ps, "null", json_null());
	default:
		return *ps->p == '-' || (*ps->p >= '0' && *ps->p <= '9')
			       ? parse_number(ps)
			       : fail(ps, "invalid token");
	}
}

static enum rc report(const struct parser *ps, struct err *err)
{
	int line = 1, column = 1;

	if (!ps->what)
		return err_set(err, RC_NOMEM, "cannot allocate a JSON value");
	for (const char *p = ps->text; p < ps->p && p < ps->end; p++) {
		bool newline = *p == '\n';

		line += newline;
		column = newline ? 1 : column + (((unsigned char)*p & 0xc0) != 0x80);
	}
	return err_set(err, RC_BAD_REQUEST, "invalid JSON at line %d, column %d: %s", line, column,
		       ps->what);
}

enum rc js_parse(const char *text, size_t n, struct json **out, struct err *err)
{
	return js_parse_dups(text, n, out, NULL, err);
}

enum rc js_parse_dups(const char *text, size_t n, struct json **out, struct js_dups *dups,
		      struct err *err)
{
	struct parser ps = {.text = text, .p = text, .end = text + n, .dups = dups};
	json_t *j = parse_value(&ps);

	skip_space(&ps);
	if (j && ps.p < ps.end)
		fail(&ps, "something follows the value");
	if (ps.failed) {
		json_decref(j);
		return report(&ps, err);
	}
	*out = (struct json *)j;
	return RC_OK;
}
