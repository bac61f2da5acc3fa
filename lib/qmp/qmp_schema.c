#include <string.h>

#include "base/str.h"
#include "json/json.h"
#include "qmp/qmp.h"

/* query-qmp-schema is a flat array of entities; types refer to each other by name. */

static const struct json *entity(const struct json *schema, const char *name)
{
	for (size_t i = 0; name && i < js_len(schema); i++) {
		const struct json *e = js_item(schema, i);

		if (str_eq(js_get_str(e, "name"), name))
			return e;
	}
	return NULL;
}

static const struct json *named(const struct json *members, struct str name)
{
	for (size_t i = 0; i < js_len(members); i++) {
		const struct json *m = js_item(members, i);

		if (str_view_eq(name, js_get_str(m, "name")))
			return m;
	}
	return NULL;
}

/* Arrays stand for their elements. */
static const struct json *unwrap(const struct json *schema, const struct json *type)
{
	for (int depth = 0; type && depth < 8 && str_eq(js_get_str(type, "meta-type"), "array");
	     depth++)
		type = entity(schema, js_get_str(type, "element-type"));
	return type;
}

/* The member's type, looked for in the object and in its variants; NULL: no such member. */
static const struct json *member_type(const struct json *schema, const struct json *type,
				      struct str name)
{
	const struct json *m = named(js_get(type, "members"), name);
	const struct json *variants = js_get(type, "variants");

	for (size_t i = 0; !m && i < js_len(variants); i++) {
		const struct json *v = entity(schema, js_get_str(js_item(variants, i), "type"));

		m = named(js_get(v, "members"), name);
	}
	return m ? entity(schema, js_get_str(m, "type")) : NULL;
}

static const struct json *walk(const struct json *schema, const char *top, const char *member)
{
	const struct json *type = entity(schema, top);
	struct str rest = str_of(member);

	type = type ? entity(schema, js_get_str(type, "arg-type")) : NULL;
	while (type && rest.p) {
		struct str part = str_split(&rest, '.');

		type = member_type(schema, unwrap(schema, type), part);
	}
	return type;
}

bool qmp_schema_has(const struct json *schema, const char *command_or_event, const char *member)
{
	const struct json *e = entity(schema, command_or_event);
	const char *meta = js_get_str(e, "meta-type");

	if (!str_eq(meta, "command") && !str_eq(meta, "event"))
		return false;
	return !member || walk(schema, command_or_event, member);
}

bool qmp_schema_has_value(const struct json *schema, const char *command, const char *member,
			  const char *value)
{
	const struct json *type = unwrap(schema, walk(schema, command, member));
	const struct json *values = js_get(type, "values");

	if (!str_eq(js_get_str(type, "meta-type"), "enum"))
		return false;
	for (size_t i = 0; i < js_len(values); i++)
		if (str_eq(js_str(js_item(values, i)), value))
			return true;
	return false;
}
