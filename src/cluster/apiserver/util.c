/* Small things that several files of the core need. */
#include "cluster/apiserver/apisrv_int.h"

#include <string.h>

#include "base/mem.h"
#include "base/str.h"

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
static const char alphabet_url[] =
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

char *b64_encode(const void *p, size_t n, bool url)
{
	const unsigned char *in = p;
	const char *abc = url ? alphabet_url : alphabet;
	char *out = mem_alloc((n + 2) / 3 * 4 + 1), *o = out;

	if (!out)
		return NULL;
	for (size_t i = 0; i < n; i += 3) {
		uint32_t v = (uint32_t)in[i] << 16;
		size_t left = n - i;

		if (left > 1)
			v |= (uint32_t)in[i + 1] << 8;
		if (left > 2)
			v |= in[i + 2];
		*o++ = abc[v >> 18];
		*o++ = abc[v >> 12 & 63];
		if (left > 1)
			*o++ = abc[v >> 6 & 63];
		else if (!url)
			*o++ = '=';
		if (left > 2)
			*o++ = abc[v & 63];
		else if (!url)
			*o++ = '=';
	}
	return out;
}

enum rc b64_decode(const char *s, bool url, char **out, size_t *n)
{
	const char *abc = url ? alphabet_url : alphabet;
	size_t len = strlen(s), k = 0;
	uint32_t acc = 0;
	unsigned bits = 0;
	char *buf = mem_alloc(len + 1);

	if (!buf)
		return RC_NOMEM;
	while (len && s[len - 1] == '=')
		len--;
	for (size_t i = 0; i < len; i++) {
		const char *at = memchr(abc, s[i], 64);

		if (!at) {
			mem_free(buf);
			return RC_INVALID;
		}
		acc = acc << 6 | (uint32_t)(at - abc);
		bits += 6;
		if (bits >= 8) {
			bits -= 8;
			buf[k++] = (char)(acc >> bits);
		}
	}
	*out = buf;
	*n = k;
	return RC_OK;
}

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
