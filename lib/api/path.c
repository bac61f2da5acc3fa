/* lib/api/path.c - the subset of JSON path that printer columns use. */
#include <string.h>

#include "api/table.h"
#include "base/str.h"

enum { NAME_MAX_BYTES = 256 };

enum step_kind { STEP_END, STEP_NAME, STEP_INDEX, STEP_FILTER, STEP_BAD };

struct step {
	enum step_kind kind;
	char name[NAME_MAX_BYTES];  /* STEP_NAME; STEP_FILTER: the field compared */
	char value[NAME_MAX_BYTES]; /* STEP_FILTER: what it must equal */
	uint64_t index;
};

/* Up to one of stop, backslashes removed; the result must fit.  Advances *at. */
static bool take(const char **at, const char *stop, char out[NAME_MAX_BYTES])
{
	size_t n = 0;

	for (; **at && !strchr(stop, **at); (*at)++) {
		if (**at == '\\' && (*at)[1])
			(*at)++;
		if (n + 1 >= NAME_MAX_BYTES)
			return false;
		out[n++] = **at;
	}
	out[n] = '\0';
	return n != 0;
}

static bool skip(const char **at, const char *text)
{
	size_t n = strlen(text);

	if (strncmp(*at, text, n) != 0)
		return false;
	*at += n;
	return true;
}

/* [?(@.name=='value')], after "[?" */
static bool take_filter(const char **at, struct step *s)
{
	char quote[2] = "";

	if (!skip(at, "(@.") || !take(at, "=", s->name) || !skip(at, "=="))
		return false;
	if (**at != '\'' && **at != '"')
		return false;
	quote[0] = *(*at)++;
	return take(at, quote, s->value) && skip(at, quote) && skip(at, ")]");
}

static struct step next_step(const char **at)
{
	struct step s = {.kind = STEP_BAD};
	char digits[NAME_MAX_BYTES];

	if (!**at) {
		s.kind = STEP_END;
	} else if (skip(at, ".")) {
		if (take(at, ".[", s.name))
			s.kind = STEP_NAME;
	} else if (skip(at, "[?")) {
		if (take_filter(at, &s))
			s.kind = STEP_FILTER;
	} else if (skip(at, "[")) {
		if (take(at, "]", digits) && skip(at, "]") &&
		    !str_to_u64(digits, UINT32_MAX, &s.index, NULL))
			s.kind = STEP_INDEX;
	}
	return s;
}

static const struct json *find_item(const struct json *list, const struct step *s)
{
	for (size_t i = 0; i < js_len(list); i++)
		if (str_eq(js_get_str(js_item(list, i), s->name), s->value))
			return js_item(list, i);
	return NULL;
}

const struct json *api_path_get(const struct json *obj, const char *path)
{
	for (;;) {
		struct step s = next_step(&path);

		switch (s.kind) {
		case STEP_END:
			return js_is_null(obj) ? NULL : obj;
		case STEP_NAME:
			obj = js_get(obj, s.name);
			break;
		case STEP_INDEX:
			obj = js_item(obj, s.index);
			break;
		case STEP_FILTER:
			obj = find_item(obj, &s);
			break;
		default:
			return NULL;
		}
	}
}

bool api_path_is_valid(const char *path)
{
	for (;;) {
		struct step s = next_step(&path);

		if (s.kind == STEP_END || s.kind == STEP_BAD)
			return s.kind == STEP_END;
	}
}
