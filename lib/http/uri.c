#include "http/uri.h"

#include <string.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"

static bool is_clean_text(const char *s, size_t n, bool controls)
{
	for (size_t i = 0; i < n;) {
		size_t len = str_utf8_len(s + i, n - i);

		if (len == 0)
			return false;
		if (!controls && len == 1 && ((unsigned char)s[i] < 0x20 || s[i] == 0x7f))
			return false;
		i += len;
	}
	return true;
}

/* Decodes one component into a fresh string. */
static enum rc decode(struct str in, bool is_query, char **out, struct err *err)
{
	CLEANUP(mem_freep)
	char *text = mem_alloc(in.n + 1);
	size_t n = 0;

	if (!text)
		return err_set(err, RC_NOMEM, "cannot allocate a part of the request's path");
	for (size_t i = 0; i < in.n; i++) {
		char c = in.p[i];

		if (c == '%') {
			bool is_whole = in.n - i > 2;
			int hi = is_whole ? str_hex_digit(in.p[i + 1]) : -1;
			int lo = is_whole ? str_hex_digit(in.p[i + 2]) : -1;

			if (hi < 0 || lo < 0)
				return err_set(err, RC_BAD_REQUEST, "the path has a bad %%-escape");
			c = (char)(hi * 16 + lo);
			if (c == '\0' || (c == '/' && !is_query))
				return err_set(err, RC_BAD_REQUEST,
					       "the path has an encoded '/' or NUL");
			i += 2;
		} else if (c == '+' && is_query) {
			c = ' ';
		}
		text[n++] = c;
	}
	text[n] = '\0';
	/* Selectors and messages in a query may hold tabs and newlines; nothing in a path may. */
	if (!is_clean_text(text, n, is_query))
		return err_set(err, RC_BAD_REQUEST, "the %s has %sbad UTF-8",
			       is_query ? "query" : "path",
			       is_query ? "" : "control characters or ");
	*out = STEAL(text);
	return RC_OK;
}

static enum rc check_segments(const char *path, struct err *err)
{
	struct str rest = str_of(path + 1);

	while (rest.p) {
		struct str seg = str_split(&rest, '/');

		if (str_view_eq(seg, ".") || str_view_eq(seg, ".."))
			return err_set(err, RC_BAD_REQUEST, "the path has a '.' or '..' segment");
	}
	return RC_OK;
}

static enum rc add_param(struct http_uri *u, struct str part, struct err *err)
{
	struct str value = part;
	struct str name = str_split(&value, '=');
	struct http_param *p = &u->params[u->n_params];

	if (u->n_params == HTTP_QUERY_MAX)
		return err_set(err, RC_BAD_REQUEST, "the query has more than %d parameters",
			       HTTP_QUERY_MAX);
	enum rc rc = decode(name, true, &p->name, err);

	if (!rc)
		rc = decode(value, true, &p->value, err);
	if (rc) {
		p->name = mem_free(p->name);
		return rc;
	}
	u->n_params++;
	return RC_OK;
}

static enum rc parse(struct http_uri *u, struct str target, struct err *err)
{
	struct str rest = target;
	struct str path = str_split(&rest, '?');
	enum rc rc;

	if (path.n == 0 || path.p[0] != '/')
		return err_set(err, RC_BAD_REQUEST, "the request's target is not a path");
	rc = decode(path, false, &u->path, err);
	if (!rc)
		rc = check_segments(u->path, err);
	while (!rc && rest.p) {
		struct str part = str_split(&rest, '&');

		if (part.n)
			rc = add_param(u, part, err);
	}
	return rc;
}

enum rc http_uri_parse(struct http_uri *out, const char *target, size_t n, struct err *err)
{
	memset(out, 0, sizeof(*out));
	if (n > LIMIT_URL_BYTES)
		return err_set(err, RC_TOO_BIG, "the request's target is longer than %u bytes",
			       LIMIT_URL_BYTES);
	enum rc rc = parse(out, (struct str){target, n}, err);

	if (rc)
		http_uri_fini(out);
	return rc;
}

void http_uri_fini(struct http_uri *u)
{
	u->path = mem_free(u->path);
	for (size_t i = 0; i < u->n_params; i++) {
		mem_free(u->params[i].name);
		mem_free(u->params[i].value);
	}
	u->n_params = 0;
}

const char *http_uri_param(const struct http_uri *u, const char *name)
{
	for (size_t i = 0; i < u->n_params; i++)
		if (str_eq(u->params[i].name, name))
			return u->params[i].value;
	return NULL;
}

static bool is_unreserved(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '-' || c == '_' || c == '.' || c == '~';
}

void http_uri_escape(struct sbuf *out, const char *text)
{
	for (const char *p = text; *p; p++) {
		if (is_unreserved(*p))
			sbuf_addc(out, *p);
		else
			sbuf_addf(out, "%%%02X", (unsigned char)*p);
	}
}
