/* lib/api/check.c - everything that the schema alone can say about an object.
 *
 * One walk over the JSON, guided by the tables; it changes nothing and stops at nothing: all faults go
 * to the list.  The recursion follows the schema and the JSON parser's depth limit bounds it.
 */
#include <string.h>

#include "api/api.h"
#include "api/api_int.h"
#include "api/check_int.h"
#include "api/quantity.h"
#include "base/limits.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/str.h"
#include "json/json.h"

enum { PATH_MAX_BYTES = 8192 };

static void check_object(struct check *c, const struct api_type *t, const struct json *j,
			 const struct api_path *path);

const char *check_path(struct check *c, const struct api_path *path)
{
	sbuf_reset(&c->path);
	api_path_print(path, &c->path);
	if (c->path.rc == RC_NOMEM)
		c->fe->rc = RC_NOMEM;
	return sbuf_str(&c->path);
}

static void wrong_type(struct check *c, const struct api_path *path, const char *want,
		       const struct json *j)
{
	const char *at = check_path(c, path), *have = js_type_name(js_type(j));

	fe_add(c->fe, FE_TYPE_INVALID, at,
	       "Invalid value: \"%s\": %s in body must be of type %s: \"%s\"", have, at, want,
	       have);
}

/* ---- scalars ---- */

static void check_quantity(struct check *c, const struct api_rule *r, const struct json *j,
			   const char *text, const struct api_path *path)
{
	struct api_quantity q, bound;
	struct err err;

	if (api_quantity_parse(text, &q, &err)) {
		fe_invalid_json(c->fe, check_path(c, path), j, "%s", err.msg);
		return;
	}
	if (r->is_integral && !api_quantity_is_integral(&q))
		fe_invalid_json(c->fe, check_path(c, path), j,
				"fractional byte value \"%s\" is invalid, must be an integer",
				text);
	bound = api_quantity_of(r->min, API_Q_BINARY);
	if (r->has_min && !r->is_soft && api_quantity_cmp(&q, &bound) < 0) {
		CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(64);

		api_quantity_print(&bound, &b);
		fe_invalid_json(c->fe, check_path(c, path), j,
				"must be greater than or equal to %s", sbuf_str(&b));
	}
}

static bool is_one_of(const char *const *values, const char *text)
{
	for (size_t i = 0; values[i]; i++)
		if (str_eq(values[i], text))
			return true;
	return false;
}

static void check_text(struct check *c, const struct api_field *f, const struct json *j,
		       const struct api_path *path)
{
	const struct api_rule *r = f->rule;
	const char *text = js_str(j), *why;
	size_t n;

	if (r->format == API_FMT_QUANTITY && (js_type(j) == JS_INT || js_type(j) == JS_REAL)) {
		CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(128);

		js_print(j, &b, false);
		check_quantity(c, r, j, sbuf_str(&b), path);
		return;
	}
	if (!text) {
		wrong_type(c, path, "string", j);
		return;
	}
	n = strlen(text);
	if (r->max_len && n > r->max_len)
		fe_add(c->fe, FE_TOO_LONG, check_path(c, path),
		       "Too long: may not be more than %u bytes", r->max_len);
	else if (n < r->min_len)
		fe_invalid(c->fe, check_path(c, path), text, "must be at least %u characters long",
			   r->min_len);
	if (!n && !f->is_required)
		return; /* as good as absent */
	if (r->values && !r->is_soft && !is_one_of(r->values, text))
		fe_not_supported(c->fe, check_path(c, path), text, r->values);
	if (r->format == API_FMT_QUANTITY) {
		check_quantity(c, r, j, text, path);
		return;
	}
	why = r->is_soft ? NULL : check_format(r->format, text);
	if (why)
		fe_invalid(c->fe, check_path(c, path), text, "%s", why);
}

static void check_int(struct check *c, const struct api_rule *r, const struct json *j,
		      const struct api_path *path)
{
	int64_t v = js_int(j, 0);

	if (js_type(j) != JS_INT) {
		wrong_type(c, path, "integer", j);
		return;
	}
	bool low = r->has_min && v < r->min, high = r->has_max && v > r->max;

	if (r->is_soft || (!low && !high))
		return;
	if (r->has_min && r->has_max)
		fe_invalid_json(c->fe, check_path(c, path), j,
				"must be between %lld and %lld, inclusive", (long long)r->min,
				(long long)r->max);
	else if (low)
		fe_invalid_json(c->fe, check_path(c, path), j,
				"must be greater than or equal to %lld", (long long)r->min);
	else
		fe_invalid_json(c->fe, check_path(c, path), j, "must be less than or equal to %lld",
				(long long)r->max);
}

/* ---- free-form values ---- */

static void check_json(struct check *c, const struct api_field *f, const struct json *j,
		       const struct api_path *path)
{
	enum js_type type = js_type(j);

	if (f->rule->format == API_FMT_INT_OR_STRING && type != JS_INT && type != JS_STRING)
		wrong_type(c, path, "integer or string", j);
	else if (f->rule->format == API_FMT_OBJECT && type != JS_OBJECT)
		wrong_type(c, path, "object", j);
}

static void check_scalar(struct check *c, const struct api_field *f, enum api_base base,
			 const struct json *j, const struct api_path *path)
{
	switch (base) {
	case API_STRING:
		check_text(c, f, j, path);
		break;
	case API_BOOL:
		if (js_type(j) != JS_BOOL)
			wrong_type(c, path, "boolean", j);
		break;
	case API_INT:
		check_int(c, f->rule, j, path);
		break;
	case API_REAL:
		if (js_type(j) != JS_INT && js_type(j) != JS_REAL)
			wrong_type(c, path, "number", j);
		break;
	case API_STRUCT:
		if (js_is_object(j))
			check_object(c, f->type, j, path);
		else
			wrong_type(c, path, "object", j);
		break;
	default:
		check_json(c, f, j, path);
	}
}

/* ---- maps and lists ---- */

static void check_resource(struct check *c, const struct api_field *f, const char *key,
			   const struct json *v, const struct api_path *path)
{
	bool is_bytes = str_eq(key, "memory") || str_eq(key, "storage") ||
			str_eq(key, "ephemeral-storage") || str_has_prefix(key, "hugepages-");
	const struct api_rule strict = {
		.format = API_FMT_QUANTITY,
		.has_min = !f->rule->is_soft,
		.is_integral = is_bytes && !f->rule->is_soft,
	};
	const struct api_field as = {.name = f->name, .rule = &strict, .base = API_STRING};
	const char *why = check_format(API_FMT_QUALIFIED, key);

	if (why)
		fe_invalid(c->fe, check_path(c, path), key, "%s", why);
	check_text(c, &as, v, path);
}

static void check_map(struct check *c, const struct api_field *f, const struct json *j,
		      const struct api_path *path)
{
	if (!js_is_object(j)) {
		wrong_type(c, path, "object", j);
		return;
	}
	JS_FOREACH(it, j) {
		const struct api_path at = {.up = path, .key = it.key};

		if (js_is_null(it.value))
			continue;
		if (f->rule->is_resources)
			check_resource(c, f, it.key, it.value, &at);
		else
			check_scalar(c, f, f->value_base, it.value, &at);
	}
}

/* What must be unique among the items: the value of a set, the keys of a map list. */
static void print_identity(const struct api_field *f, const struct json *item, struct sbuf *out)
{
	const char *const *keys = f->rule->list_keys;

	if (f->rule->list == API_LIST_SET) {
		js_print(item, out, true);
		return;
	}
	if (keys && keys[0] && !keys[1]) {
		js_print(js_get(item, keys[0]), out, true);
		return;
	}
	sbuf_addc(out, '{');
	for (size_t i = 0; keys && keys[i]; i++) {
		sbuf_addf(out, "%s\"%s\":", i ? "," : "", keys[i]);
		js_print(js_get(item, keys[i]), out, true);
	}
	sbuf_addc(out, '}');
}

static void check_unique(struct check *c, const struct api_field *f, const struct json *j,
			 const struct api_path *path)
{
	CLEANUP(sbuf_fini) struct sbuf id = SBUF_INIT(LIMIT_BODY_BYTES);
	CLEANUP(map_fini) struct map seen = {0};
	static char mark;

	for (size_t i = 0; i < js_len(j); i++) {
		const char *key = f->rule->list == API_LIST_MAP && !f->rule->list_keys[1]
					  ? f->rule->list_keys[0]
					  : NULL;
		const struct api_path item = {.up = path, .index = i};
		const struct api_path at = {.up = &item, .name = key};

		sbuf_reset(&id);
		print_identity(f, js_item(j, i), &id);
		if (sbuf_rc(&id) || str_eq(sbuf_str(&id), "null"))
			continue;
		if (map_get(&seen, sbuf_str(&id)))
			fe_add(c->fe, FE_DUPLICATE, check_path(c, key ? &at : &item),
			       "Duplicate value: %s", sbuf_str(&id));
		else if (map_set(&seen, sbuf_str(&id), &mark))
			c->fe->rc = RC_NOMEM;
	}
}

static void check_list(struct check *c, const struct api_field *f, const struct json *j,
		       const struct api_path *path)
{
	const struct api_rule *r = f->rule;
	size_t n = js_len(j);

	if (!js_is_array(j)) {
		wrong_type(c, path, "array", j);
		return;
	}
	if (r->max_items && n > r->max_items) {
		fe_add(c->fe, FE_TOO_MANY, check_path(c, path),
		       "Too many: %zu: must have at most %u items", n, r->max_items);
		return;
	}
	if (n < r->min_items) {
		fe_required(c->fe, check_path(c, path), NULL);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		const struct api_path at = {.up = path, .index = i};

		check_scalar(c, f, f->base, js_item(j, i), &at);
	}
	if (r->list != API_LIST_ATOMIC)
		check_unique(c, f, j, path);
}

/* ---- objects ---- */

/* Asking for nothing is granted: false (unless true is the default), "" and []. */
static bool is_nothing(const struct api_field *f, const struct json *j)
{
	switch (js_type(j)) {
	case JS_BOOL:
		return !js_bool(j, true) && !str_eq(f->rule->default_, "true");
	case JS_STRING:
		return !*js_str(j);
	case JS_ARRAY:
		return !js_len(j);
	default:
		return false;
	}
}

/* False: do not look further into the value. */
static bool check_support(struct check *c, const struct api_field *f, const struct json *j,
			  const struct api_path *path)
{
	if (f->rule->support == API_WORKS || c->in_status || (c->flags & API_CHECK_NO_SUPPORT))
		return true;
	if (is_nothing(f, j))
		return true;
	if (f->rule->support == API_NOOP) {
		fe_warn(c->fe, "%s: has no effect here: %s", check_path(c, path), f->rule->why);
		return true;
	}
	fe_rejected(c->fe, check_path(c, path), f->rule->why);
	return false;
}

static void check_field(struct check *c, const struct api_field *f, const struct json *j,
			const struct api_path *path)
{
	if (!check_support(c, f, j, path))
		return;
	if (f->base == API_MAP || f->is_json_map)
		check_map(c, f, j, path);
	else if (f->is_list)
		check_list(c, f, j, path);
	else
		check_scalar(c, f, f->base, j, path);
}

static bool is_skipped(const struct check *c, const struct api_path *path)
{
	if (path->up || !c->kind)
		return false;
	if (str_eq(path->name, "status"))
		return c->flags & API_CHECK_SKIP_STATUS;
	return (c->flags & API_CHECK_ONLY_STATUS) && !str_eq(path->name, "metadata");
}

static bool is_type_meta(const struct check *c, const struct api_path *path)
{
	return !path->up && c->kind &&
	       (str_eq(path->name, "apiVersion") || str_eq(path->name, "kind"));
}

static void check_object(struct check *c, const struct api_type *t, const struct json *j,
			 const struct api_path *path)
{
	JS_FOREACH(it, j) {
		const struct api_field *f = api_field_find(t, it.key);
		const struct api_path at = {.up = path, .name = it.key};
		bool outer = c->in_status;

		if (is_type_meta(c, &at) || is_skipped(c, &at))
			continue;
		if (!f) {
			fe_unknown(c->fe, check_path(c, &at));
			continue;
		}
		if (js_is_null(it.value))
			continue;
		c->in_status |= !path && c->kind && str_eq(it.key, "status");
		check_field(c, f, it.value, &at);
		c->in_status = outer;
	}
	for (uint32_t i = 0; i < t->n_fields; i++) {
		const struct api_path at = {.up = path, .name = t->fields[i].name};

		if (t->fields[i].is_required && js_is_null(js_get(j, at.name)) &&
		    !is_skipped(c, &at))
			fe_required(c->fe, check_path(c, &at), NULL);
	}
}

void api_check_type(const struct api_type *t, const struct json *obj, unsigned flags,
		    struct field_errs *fe)
{
	struct check c = {.fe = fe, .flags = flags, .path = SBUF_INIT(PATH_MAX_BYTES)};

	if (js_is_object(obj))
		check_object(&c, t, obj, NULL);
	else
		wrong_type(&c, NULL, "object", obj);
	sbuf_fini(&c.path);
}

void api_check(const struct api_kind *k, const struct json *obj, unsigned flags,
	       struct field_errs *fe)
{
	struct check c = {.fe = fe, .kind = k, .flags = flags, .path = SBUF_INIT(PATH_MAX_BYTES)};

	if (js_is_object(obj)) {
		check_meta(&c, js_get(obj, "metadata"));
		check_object(&c, k->type, obj, NULL);
	} else {
		wrong_type(&c, NULL, "object", obj);
	}
	sbuf_fini(&c.path);
}

/* ---- updates ---- */

static void check_immutable(struct check *c, const struct api_type *t, const struct json *old,
			    const struct json *j, const struct api_path *path)
{
	for (uint32_t i = 0; i < t->n_fields; i++) {
		const struct api_field *f = &t->fields[i];
		const struct json *was = js_get(old, f->name), *is = js_get(j, f->name);
		const struct api_path at = {.up = path, .name = f->name};

		if (!path && str_eq(f->name, "status"))
			continue;
		if (f->rule->is_immutable && !js_is_null(was) && !js_equal(was, is))
			fe_invalid_json(c->fe, check_path(c, &at), is, "field is immutable");
		else if (f->base == API_STRUCT && !f->is_list && js_is_object(was) &&
			 js_is_object(is))
			check_immutable(c, f->type, was, is, &at);
	}
}

void api_check_update(const struct api_kind *k, const struct json *old, const struct json *obj,
		      struct field_errs *fe)
{
	struct check c = {.fe = fe, .kind = k, .path = SBUF_INIT(PATH_MAX_BYTES)};

	check_immutable(&c, k->type, old, obj, NULL);
	sbuf_fini(&c.path);
}
