/* Small things that several files of the core need. */
#include "cluster/apiserver/apisrv_int.h"

#include <string.h>

#include "base/mem.h"
#include "base/str.h"

void text_clean(char *text)
{
	while (*text) {
		size_t n = str_utf8_len(text, strnlen(text, 4));

		if (!n)
			*text = '?';
		text += n ? n : 1;
	}
}

/* Depth is bounded by the parser (LIMIT_JSON_DEPTH). */
void json_drop_nulls(struct json *j)
{
	if (js_type(j) == JS_ARRAY) {
		for (size_t i = 0; i < js_len(j); i++)
			json_drop_nulls(js_item(j, i));
		return;
	}
	if (js_type(j) != JS_OBJECT)
		return;
	for (bool again = true; again;) {
		again = false;
		JS_FOREACH(it, j) {
			if (js_is_null(it.value)) {
				js_del(j, it.key);
				again = true;
				break;
			}
		}
	}
	JS_FOREACH(it, j)
		json_drop_nulls(it.value);
}

void json_drop_type(struct json *obj)
{
	if (!obj)
		return;
	js_del(obj, "kind");
	js_del(obj, "apiVersion");
}

const char *json_name(const struct json *obj)
{
	return js_str(js_at(obj, "metadata", "name", NULL));
}

const char *json_ns(const struct json *obj)
{
	const char *ns = js_str(js_at(obj, "metadata", "namespace", NULL));

	return ns ? ns : "";
}

/* ---- looking into serialised objects without parsing them ------------------------------------------ */

/* Behind the string that starts at p (at its quote). */
static const char *skip_string(const char *p, const char *end)
{
	for (p++; p < end && *p != '"'; p++)
		if (*p == '\\')
			p++;
	return p < end ? p + 1 : end;
}

/* Behind the object, array or string that starts at p. */
static const char *skip_value(const char *p, const char *end)
{
	size_t depth = 0;

	while (p < end) {
		if (*p == '"') {
			p = skip_string(p, end);
		} else {
			if (*p == '{' || *p == '[')
				depth++;
			else if (*p == '}' || *p == ']')
				depth--;
			p++;
		}
		if (!depth)
			return p;
	}
	return end;
}

bool text_member(const char *text, size_t n, const char *key, const char **value, size_t *n_value)
{
	const char *p = text, *end = text + n;
	size_t n_key = strlen(key);

	if (!n || *p != '{')
		return false;
	for (p++; p < end && *p == '"';) {
		const char *name = p + 1;

		p = skip_string(p, end);
		bool found = (size_t)(p - 1 - name) == n_key && memcmp(name, key, n_key) == 0;

		if (p >= end || *p != ':')
			return false;
		const char *start = ++p;

		if (p >= end)
			return false;
		if (*p == '{' || *p == '[' || *p == '"')
			p = skip_value(p, end);
		else
			while (p < end && *p != ',' && *p != '}')
				p++;
		if (found) {
			*value = start;
			*n_value = (size_t)(p - start);
			return true;
		}
		if (p < end && *p == ',')
			p++;
	}
	return false;
}

/* From the quote of key up to the next member, or up to the end of the object. */
static bool member_span(const char *text, size_t n, const char *key, size_t *at, size_t *end)
{
	const char *value;
	size_t n_value;

	if (!text_member(text, n, key, &value, &n_value))
		return false;
	*at = (size_t)(value - text) - strlen(key) - 3; /* "key": */
	*end = (size_t)(value - text) + n_value;
	if (*end < n && text[*end] == ',')
		(*end)++;
	return true;
}

static size_t cut(char *text, size_t n, const char *key)
{
	size_t at, end;

	if (!member_span(text, n, key, &at, &end))
		return n;
	if (text[end - 1] != ',' && text[at - 1] == ',') /* it is the last one */
		at--;
	memmove(text + at, text + end, n - end);
	return n - (end - at);
}

size_t text_add_item(char *to, const char *text, size_t n, const char *head, size_t n_head)
{
	if (n > n_head && memcmp(text, head, n_head) == 0) {
		*to = '{';
		memcpy(to + 1, text + n_head, n - n_head);
		return n - n_head + 1;
	}
	memcpy(to, text, n);
	return cut(to, cut(to, n, "kind"), "apiVersion");
}
