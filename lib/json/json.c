#include "json/json.h"

#include <jansson.h>
#include <stdarg.h>
#include <string.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"

/* struct json is never defined: a struct json * is a json_t *, and the casts live here and in
 * parse.c only. */
static json_t *J(const struct json *j)
{
	return (json_t *)(uintptr_t)j;
}

static struct json *W(json_t *j)
{
	return (struct json *)j;
}

/* jansson reports some failed allocations as syntax errors: remember them ourselves. */
static _Thread_local bool alloc_failed;

static void *allocate(size_t size)
{
	void *p = mem_alloc(size);

	if (!p)
		alloc_failed = true;
	return p;
}

static void release(void *p)
{
	mem_free(p);
}

void js_use_mem(void)
{
	json_set_alloc_funcs(allocate, release);
}

static int print_chunk(const char *p, size_t n, void *arg)
{
	struct sbuf *b = arg;

	sbuf_add(b, p, n);
	return b->rc ? -1 : 0;
}

static void print_flags(const struct json *j, struct sbuf *out, size_t flags)
{
	if (!j)
		sbuf_adds(out, "null");
	else if (json_dump_callback(J(j), print_chunk, out, flags | JSON_ENCODE_ANY) < 0 &&
		 !out->rc)
		out->rc = RC_NOMEM;
}

void js_print(const struct json *j, struct sbuf *out, bool sorted)
{
	print_flags(j, out, JSON_COMPACT | (sorted ? JSON_SORT_KEYS : 0));
}

void js_print_pretty(const struct json *j, struct sbuf *out, unsigned indent)
{
	print_flags(j, out, JSON_INDENT(indent));
}

char *js_to_text(const struct json *j)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(LIMIT_RESPONSE_BYTES);
	char *text = NULL;

	js_print(j, &b, false);
	return sbuf_take(&b, &text, NULL) ? NULL : text;
}

struct json *js_ref(const struct json *j)
{
	return W(json_incref(J(j)));
}

struct json *js_unref(struct json *j)
{
	json_decref(J(j));
	return NULL;
}

struct json *js_copy(const struct json *j)
{
	return j ? W(json_deep_copy(J(j))) : NULL;
}

bool js_equal(const struct json *a, const struct json *b)
{
	return a == b || (a && b && json_equal(J(a), J(b)));
}

enum js_type js_type(const struct json *j)
{
	if (!j)
		return JS_NULL;
	switch (json_typeof(J(j))) {
	case JSON_TRUE:
	case JSON_FALSE:
		return JS_BOOL;
	case JSON_INTEGER:
		return JS_INT;
	case JSON_REAL:
		return JS_REAL;
	case JSON_STRING:
		return JS_STRING;
	case JSON_ARRAY:
		return JS_ARRAY;
	case JSON_OBJECT:
		return JS_OBJECT;
	case JSON_NULL:
		break;
	}
	return JS_NULL;
}

const char *js_type_name(enum js_type t)
{
	static const char *const names[] = {
		[JS_NULL] = "null",	[JS_BOOL] = "boolean",	[JS_INT] = "integer",
		[JS_REAL] = "number",	[JS_STRING] = "string", [JS_ARRAY] = "array",
		[JS_OBJECT] = "object",
	};

	return names[t];
}

bool js_is_object(const struct json *j)
{
	return js_type(j) == JS_OBJECT;
}

bool js_is_array(const struct json *j)
{
	return js_type(j) == JS_ARRAY;
}

bool js_is_string(const struct json *j)
{
	return js_type(j) == JS_STRING;
}

bool js_is_null(const struct json *j)
{
	return js_type(j) == JS_NULL;
}

struct json *js_get(const struct json *obj, const char *key)
{
	return obj ? W(json_object_get(J(obj), key)) : NULL;
}

struct json *js_at(const struct json *obj, ...)
{
	const char *key;
	va_list ap;

	va_start(ap, obj);
	while (obj && (key = va_arg(ap, const char *)))
		obj = js_get(obj, key);
	va_end(ap);
	return W(J(obj));
}

struct json *js_item(const struct json *arr, size_t i)
{
	return arr ? W(json_array_get(J(arr), i)) : NULL;
}

size_t js_len(const struct json *j)
{
	if (!j)
		return 0;
	return js_is_array(j) ? json_array_size(J(j)) : json_object_size(J(j));
}

const char *js_next_key(const struct json *obj, const char *after)
{
	const char *next = NULL;

	JS_FOREACH(it, obj)
		if ((!after || strcmp(it.key, after) > 0) && (!next || strcmp(it.key, next) < 0))
			next = it.key;
	return next;
}

const char *js_str(const struct json *j)
{
	return j ? json_string_value(J(j)) : NULL;
}

const char *js_get_str(const struct json *obj, const char *key)
{
	return js_str(js_get(obj, key));
}

int64_t js_int(const struct json *j, int64_t fallback)
{
	return js_type(j) == JS_INT ? json_integer_value(J(j)) : fallback;
}

int64_t js_get_int(const struct json *obj, const char *key, int64_t fallback)
{
	return js_int(js_get(obj, key), fallback);
}

double js_real(const struct json *j, double fallback)
{
	return j && json_is_number(J(j)) ? json_number_value(J(j)) : fallback;
}

bool js_bool(const struct json *j, bool fallback)
{
	return js_type(j) == JS_BOOL ? json_is_true(J(j)) : fallback;
}

bool js_get_bool(const struct json *obj, const char *key, bool fallback)
{
	return js_bool(js_get(obj, key), fallback);
}

static struct js_iter iter_at(const struct json *obj, void *at)
{
	if (!at)
		return (struct js_iter){0};
	return (struct js_iter){json_object_iter_key(at), W(json_object_iter_value(at)), obj, at};
}

struct js_iter js_iter_first(const struct json *obj)
{
	return iter_at(obj, obj ? json_object_iter(J(obj)) : NULL);
}

void js_iter_next(struct js_iter *it)
{
	*it = iter_at(it->obj, json_object_iter_next(J(it->obj), it->at));
}

struct json *js_new_object(void)
{
	return W(json_object());
}

struct json *js_new_array(void)
{
	return W(json_array());
}

struct json *js_new_str(const char *s)
{
	return s ? W(json_string(s)) : NULL;
}

struct json *js_new_strn(const char *s, size_t n)
{
	return W(json_stringn(s, n));
}

struct json *js_new_int(int64_t v)
{
	return W(json_integer(v));
}

struct json *js_new_real(double v)
{
	return W(json_real(v));
}

struct json *js_new_bool(bool v)
{
	return W(json_boolean(v));
}

struct json *js_new_null(void)
{
	return W(json_null());
}

/* jansson's *_new functions take the value also on failure, and accept NULL (as a failure). */
enum rc js_set(struct json *obj, const char *key, struct json *value)
{
	return json_object_set_new(J(obj), key, J(value)) == 0 ? RC_OK : RC_NOMEM;
}

enum rc js_append(struct json *arr, struct json *value)
{
	return json_array_append_new(J(arr), J(value)) == 0 ? RC_OK : RC_NOMEM;
}

enum rc js_insert(struct json *arr, size_t i, struct json *value)
{
	return json_array_insert_new(J(arr), i, J(value)) == 0 ? RC_OK : RC_NOMEM;
}

enum rc js_replace_item(struct json *arr, size_t i, struct json *value)
{
	return json_array_set_new(J(arr), i, J(value)) == 0 ? RC_OK : RC_NOMEM;
}

void js_del(struct json *obj, const char *key)
{
	(void)json_object_del(J(obj), key); /* absent is fine */
}

void js_del_item(struct json *arr, size_t i)
{
	(void)json_array_remove(J(arr), i); /* out of range is fine */
}

void js_clear(struct json *j)
{
	if (js_is_array(j))
		json_array_clear(J(j));
	else if (js_is_object(j))
		json_object_clear(J(j));
}

struct json *js_ensure_object(struct json *obj, const char *key)
{
	struct json *sub = js_get(obj, key);

	if (sub)
		return js_is_object(sub) ? sub : NULL;
	sub = js_new_object();
	return js_set(obj, key, sub) ? NULL : sub;
}

struct json *js_pack(const char *fmt, ...)
{
	va_list ap;
	json_error_t e;

	alloc_failed = false;
	va_start(ap, fmt);
	json_t *j = json_vpack_ex(&e, 0, fmt, ap);
	va_end(ap);
	/* An optional value that could not be allocated would be left out in silence. */
	if (j && alloc_failed) {
		json_decref(j);
		return NULL;
	}
	/* What remains is a wrong format: a bug of the caller's. */
	assert(j || alloc_failed || json_error_code(&e) == json_error_out_of_memory ||
	       json_error_code(&e) == json_error_null_value ||
	       json_error_code(&e) == json_error_invalid_utf8);
	return W(j);
}

enum rc js_pointer_token(struct str part, struct sbuf *b, struct err *err)
{
	sbuf_reset(b);
	for (size_t i = 0; i < part.n; i++) {
		char c = part.p[i];

		if (c == '~') {
			char next = i + 1 < part.n ? part.p[++i] : '\0';

			if (next != '0' && next != '1')
				return err_set(err, RC_INVALID, "bad escape in JSON pointer");
			c = next == '0' ? '~' : '/';
		}
		sbuf_addc(b, c);
	}
	return sbuf_rc(b) ? err_set(err, sbuf_rc(b), "JSON pointer is too long") : RC_OK;
}

enum rc js_pointer_get(const struct json *root, const char *pointer, struct json **out,
		       struct err *err)
{
	CLEANUP(sbuf_fini) struct sbuf token = SBUF_INIT(LIMIT_URL_BYTES);
	const struct json *at = root;
	struct str rest = str_of(pointer);

	if (rest.n && *pointer != '/')
		return err_set(err, RC_INVALID, "JSON pointer '%s' does not start with '/'",
			       pointer);
	if (rest.n)
		rest = (struct str){pointer + 1, rest.n - 1};
	else
		rest.p = NULL;
	while (rest.p) {
		enum rc rc = js_pointer_token(str_split(&rest, '/'), &token, err);
		uint64_t i;

		if (rc)
			return rc;
		if (js_is_array(at))
			at = str_to_u64(sbuf_str(&token), SIZE_MAX, &i, NULL)
				     ? NULL
				     : js_item(at, (size_t)i);
		else
			at = js_get(at, sbuf_str(&token));
		if (!at)
			return err_set(err, RC_NOT_FOUND, "nothing at '%s'", pointer);
	}
	*out = W(J(at));
	return RC_OK;
}
