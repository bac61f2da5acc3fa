/* lib/json/json.h - JSON values, bounded parsing, stable printing, building.
 *
 * A value is counted and not thread-safe; a value that is shared between owners is never changed
 * (js_copy() it first).  jansson underneath, hidden.
 *
 * NULL is accepted as "absent" by every reader: js_get(NULL, "a") is NULL, js_str(NULL) is NULL,
 * so paths can be chained without checks.
 */
#ifndef JSON_JSON_H
#define JSON_JSON_H

#include "base/err.h"
#include "base/sbuf.h"
#include "base/str.h"

struct json;

enum js_type { JS_NULL, JS_BOOL, JS_INT, JS_REAL, JS_STRING, JS_ARRAY, JS_OBJECT };

/* Whole text, UTF-8, no duplicate keys, depth at most LIMIT_JSON_DEPTH.  Any top-level value.
 * RC_BAD_REQUEST with line and column in err. */
MUST_CHECK enum rc js_parse(const char *text, size_t n, struct json **out, struct err *err);

/* Keys that are there twice, for who does not refuse them: paths as Kubernetes writes them
 * ("spec.ports[0].name"), at most LIMIT_FIELD_ERRORS of them. */
struct js_dups {
	struct json *paths; /* array of strings, the caller's; NULL: none */
};
/* Where a parser stands: from the innermost key or index outward, on the parser's own stack. */
struct js_at {
	const struct js_at *up;
	const char *key; /* NULL: index counts */
	size_t n_key, index;
};
/* js_parse(), but the last of several equal keys is taken, and dups told (NULL: they are refused). */
MUST_CHECK enum rc js_parse_dups(const char *text, size_t n, struct json **out,
				 struct js_dups *dups, struct err *err);
/* For parsers of other texts: at is the key that is there twice. */
MUST_CHECK enum rc js_dups_add(struct js_dups *dups, const struct js_at *at);

/* Compact text appended; keys in insertion order (sorted = true: sorted).  Errors stick to the sbuf. */
void js_print(const struct json *j, struct sbuf *out, bool sorted);
void js_print_pretty(const struct json *j, struct sbuf *out, unsigned indent);
/* Compact text, owned by the caller; NULL when out of memory. */
char *js_to_text(const struct json *j);

struct json *js_ref(
	const struct json *j); /* NULL in, NULL out; the result is still shared: do not change it */
struct json *js_unref(struct json *j); /* returns NULL */
DEFINE_CLEANUP(struct json *, js_unref);
struct json *js_copy(const struct json *j); /* deep; NULL when out of memory */
bool js_equal(const struct json *a,
	      const struct json *b); /* 1 and 1.0 differ; key order does not matter */

/* Readers; the results are borrowed from j. */
enum js_type js_type(const struct json *j); /* NULL pointer: JS_NULL */
const char *js_type_name(enum js_type t);   /* "string", "integer", … */
bool js_is_object(const struct json *j);
bool js_is_array(const struct json *j);
bool js_is_string(const struct json *j);
bool js_is_null(const struct json *j);			      /* a JSON null or a NULL pointer */
struct json *js_get(const struct json *obj, const char *key); /* NULL: absent or not an object */
/* Walks keys: js_at(j, "metadata", "name", NULL). */
struct json *js_at(const struct json *obj, ...) __attribute__((sentinel));
struct json *js_item(const struct json *arr, size_t i); /* NULL: out of range or not an array */
size_t js_len(const struct json *j);			/* items or keys; 0 for anything else */
/* The key that follows after (NULL: the first one) in the order of their bytes; NULL: none.  Borrowed. */
const char *js_next_key(const struct json *obj, const char *after);
const char *js_str(const struct json *j);			 /* NULL unless a string */
const char *js_get_str(const struct json *obj, const char *key); /* js_str(js_get()) */
int64_t js_int(const struct json *j, int64_t fallback);		 /* integers only */
int64_t js_get_int(const struct json *obj, const char *key, int64_t fallback);
double js_real(const struct json *j, double fallback); /* integers and reals */
bool js_bool(const struct json *j, bool fallback);
bool js_get_bool(const struct json *obj, const char *key, bool fallback);

/* Object iteration in insertion order; the object must not change meanwhile:
 *   JS_FOREACH(it, obj)
 *           use(it.key, it.value); */
struct js_iter {
	const char *key; /* NULL at the end */
	struct json *value;
	const struct json *obj;
	void *at;
};
struct js_iter js_iter_first(const struct json *obj);
void js_iter_next(struct js_iter *it);
#define JS_FOREACH(it_, obj_) \
	for (struct js_iter it_ = js_iter_first(obj_); it_.key; js_iter_next(&it_))

/* Builders: NULL when out of memory. */
struct json *js_new_object(void);
struct json *js_new_array(void);
struct json *js_new_str(const char *s);
struct json *js_new_strn(const char *s, size_t n);
struct json *js_new_int(int64_t v);
struct json *js_new_real(double v);
struct json *js_new_bool(bool v);
struct json *js_new_null(void);
/* Consume value (also on failure; NULL value: RC_NOMEM, so that builders nest without checks). */
MUST_CHECK enum rc js_set(struct json *obj, const char *key, struct json *value);
MUST_CHECK enum rc js_append(struct json *arr, struct json *value);
MUST_CHECK enum rc js_insert(struct json *arr, size_t i, struct json *value);
MUST_CHECK enum rc js_replace_item(struct json *arr, size_t i, struct json *value);
void js_del(struct json *obj, const char *key);
void js_del_item(struct json *arr, size_t i);
void js_clear(struct json *j);
/* The object under key, made when absent; NULL when out of memory or of another type. Borrowed. */
struct json *js_ensure_object(struct json *obj, const char *key);

/* Build a whole value from a format (jansson's json_pack letters): "{s:s, s:i, s:b, s:[s,s], s:o}".
 * 'o' consumes a struct json *; 'O' references it; "s*" leaves out the key of a NULL string;
 * "o*" that of a NULL value.  'I' takes int64_t.  NULL when out of memory, when a string is not UTF-8,
 * or when the format is wrong (asserts in debug builds). */
struct json *js_pack(const char *fmt, ...);

/* RFC 6901 pointer lookup ("" is the root). RC_NOT_FOUND / RC_INVALID. */
MUST_CHECK enum rc js_pointer_get(const struct json *root, const char *pointer, struct json **out,
				  struct err *err);
/* One reference token of a pointer, unescaped (~1 is '/', ~0 is '~'), into b, which is emptied first.
 * RC_INVALID: a bad escape. */
MUST_CHECK enum rc js_pointer_token(struct str part, struct sbuf *b, struct err *err);

/* Let jansson allocate through lib/base/mem.h, so that faults reach it and running out of memory is
 * told from bad syntax.  Each program calls it first in main(), before any value is made. */
void js_use_mem(void);

#endif
