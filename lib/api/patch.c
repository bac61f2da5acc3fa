#include "api/patch.h"

#include <string.h>

#include "base/limits.h"
#include "base/str.h"

enum { MAX_OPS = 10000 };

static enum rc no_memory(struct err *err)
{
	return err_set(err, RC_NOMEM, "out of memory while patching");
}

/* Levels of nesting; stops counting above the limit.  The recursion is bounded by it. */
static unsigned depth_of(const struct json *j, unsigned above)
{
	unsigned deepest = 0, d;

	if (above > LIMIT_JSON_DEPTH || (!js_is_object(j) && !js_is_array(j)))
		return 0;
	JS_FOREACH(it, j) {
		d = depth_of(it.value, above + 1);
		deepest = MAX(deepest, d);
	}
	for (size_t i = 0; js_is_array(j) && i < js_len(j); i++) {
		d = depth_of(js_item(j, i), above + 1);
		deepest = MAX(deepest, d);
	}
	return deepest + 1;
}

/* ---- RFC 6902 ---- */

struct json_patch {
	struct json *doc; /* own copy, changed in place */
	size_t copied;	  /* bytes that copy operations made so far */
	struct err *err;
};

/* A pointer split into the container that holds its target, and the last token. */
struct place {
	struct json *parent; /* NULL: the pointer is the whole document */
	struct sbuf last;
	unsigned depth;
};

static void place_fini(struct place *p)
{
	sbuf_fini(&p->last);
}

static enum rc add_token(struct sbuf *b, struct str part, struct err *err)
{
	enum rc rc = js_pointer_token(part, b, err);

	return rc == RC_INVALID ? err_set(err, RC_BAD_REQUEST, "bad escape in JSON pointer") : rc;
}

/* Array index: no sign, no leading zero.  SIZE_MAX: not an index. */
static size_t index_of(const char *token)
{
	uint64_t n;

	if (!*token || (*token == '0' && token[1]) || *token == '+' ||
	    str_to_u64(token, UINT32_MAX, &n, NULL))
		return SIZE_MAX;
	return (size_t)n;
}

static struct json *child(const struct json *j, const char *token)
{
	return js_is_array(j) ? js_item(j, index_of(token)) : js_get(j, token);
}

static enum rc missing(struct json_patch *p, const char *path)
{
	return err_set(p->err, RC_INVALID, "the patch does not apply: no such path '%.200s'", path);
}

static enum rc locate(struct json_patch *p, const char *path, struct place *out)
{
	*out = (struct place){.last = SBUF_INIT(LIMIT_URL_BYTES)};
	if (!*path)
		return RC_OK;
	if (*path != '/')
		return err_set(p->err, RC_BAD_REQUEST, "JSON pointer '%.200s' must start with '/'",
			       path);
	struct str rest = str_of(path + 1);
	struct json *at = NULL;

	while (rest.p) {
		struct str part = str_split(&rest, '/');

		at = at ? child(at, sbuf_str(&out->last)) : p->doc;
		if (!js_is_object(at) && !js_is_array(at))
			return missing(p, path);
		enum rc rc = add_token(&out->last, part, p->err);

		if (rc)
			return rc;
		out->depth++;
	}
	out->parent = at;
	return RC_OK;
}

static enum rc get(struct json_patch *p, const char *path, struct json **out)
{
	CLEANUP(place_fini) struct place at;
	enum rc rc = locate(p, path, &at);

	if (rc)
		return rc;
	*out = at.parent ? child(at.parent, sbuf_str(&at.last)) : p->doc;
	return *out ? RC_OK : missing(p, path);
}

/* Consumes value. */
static enum rc put(struct json_patch *p, const char *path, struct json *value, bool is_replace)
{
	CLEANUP(js_unrefp) struct json *v = value;
	CLEANUP(place_fini) struct place at;
	enum rc rc = locate(p, path, &at);

	if (rc)
		return rc;
	if (!v)
		return no_memory(p->err);
	if (at.depth + depth_of(v, 0) > LIMIT_JSON_DEPTH)
		return err_set(p->err, RC_INVALID, "the patch nests deeper than %d levels",
			       LIMIT_JSON_DEPTH);
	if (!at.parent) {
		js_unref(p->doc);
		p->doc = STEAL(v);
		return RC_OK;
	}
	const char *token = sbuf_str(&at.last);

	if (is_replace && !child(at.parent, token))
		return missing(p, path);
	if (js_is_object(at.parent))
		rc = js_set(at.parent, token, STEAL(v));
	else if (str_eq(token, "-") && !is_replace)
		rc = js_append(at.parent, STEAL(v));
	else if (is_replace)
		rc = js_replace_item(at.parent, index_of(token), STEAL(v));
	else if (index_of(token) > js_len(at.parent))
		return missing(p, path);
	else
		rc = js_insert(at.parent, index_of(token), STEAL(v));
	return rc ? no_memory(p->err) : RC_OK;
}

/* *out (may be NULL) gets the removed value. */
static enum rc drop(struct json_patch *p, const char *path, struct json **out)
{
	CLEANUP(place_fini) struct place at;
	enum rc rc = locate(p, path, &at);

	if (rc)
		return rc;
	if (!at.parent)
		return err_set(p->err, RC_INVALID, "the whole document cannot be removed");
	const char *token = sbuf_str(&at.last);
	struct json *old = child(at.parent, token);

	if (!old)
		return missing(p, path);
	if (out)
		*out = js_ref(old);
	if (js_is_object(at.parent))
		js_del(at.parent, token);
	else
		js_del_item(at.parent, index_of(token));
	return RC_OK;
}

/* A patch of copies could grow the document without bound: all copies together have a budget. */
static enum rc copy_within_budget(struct json_patch *p, const struct json *v, struct json **out)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(LIMIT_BODY_BYTES);

	js_print(v, &b, false);
	p->copied += b.n;
	if (b.rc == RC_TOO_BIG || p->copied > LIMIT_BODY_BYTES)
		return err_set(p->err, RC_TOO_BIG, "the patch copies more than %u bytes",
			       LIMIT_BODY_BYTES);
	if (sbuf_rc(&b))
		return no_memory(p->err);
	*out = js_copy(v);
	return *out ? RC_OK : no_memory(p->err);
}

static enum rc copy_or_move(struct json_patch *p, const struct json *op, const char *path,
			    bool is_move)
{
	const char *from = js_get_str(op, "from");
	struct json *v = NULL;
	enum rc rc;

	if (!from)
		return err_set(p->err, RC_BAD_REQUEST, "a copy or move needs 'from'");
	if (is_move) {
		size_t n = strlen(from);

		if (str_eq(from, path))
			return get(p, from, &v);
		if (strncmp(path, from, n) == 0 && path[n] == '/')
			return err_set(p->err, RC_INVALID, "a value cannot be moved into itself");
		rc = drop(p, from, &v);
	} else {
		const struct json *seen = NULL;

		rc = get(p, from, (struct json **)(uintptr_t)&seen);
		if (!rc)
			rc = copy_within_budget(p, seen, &v);
	}
	return rc ? rc : put(p, path, v, false);
}

static enum rc apply_op(struct json_patch *p, const struct json *op)
{
	const char *name = js_get_str(op, "op"), *path = js_get_str(op, "path");
	const struct json *value = js_get(op, "value");
	struct json *have = NULL;
	enum rc rc;

	if (!name || !path)
		return err_set(p->err, RC_BAD_REQUEST,
			       "a JSON patch operation needs 'op' and 'path'");
	if (str_eq(name, "remove"))
		return drop(p, path, NULL);
	if (str_eq(name, "move") || str_eq(name, "copy"))
		return copy_or_move(p, op, path, *name == 'm');
	if (!str_eq(name, "add") && !str_eq(name, "replace") && !str_eq(name, "test"))
		return err_set(p->err, RC_BAD_REQUEST, "unknown JSON patch operation '%.40s'",
			       name);
	if (!value)
		return err_set(p->err, RC_BAD_REQUEST, "'%s' needs a value", name);
	if (*name != 't')
		return put(p, path, js_copy(value), *name == 'r');
	rc = get(p, path, &have);
	if (rc)
		return rc;
	if (!js_equal(have, value))
		return err_set(p->err, RC_INVALID,
			       "the patch does not apply: test of '%.200s' failed", path);
	return RC_OK;
}

enum rc api_patch_json(const struct json *doc, const struct json *ops, struct json **out,
		       struct err *err)
{
	struct json_patch p = {.err = err};
	enum rc rc = RC_OK;

	if (!js_is_array(ops))
		return err_set(err, RC_BAD_REQUEST, "a JSON patch must be an array of operations");
	if (js_len(ops) > MAX_OPS)
		return err_set(err, RC_TOO_BIG,
			       "The allowed maximum operations in a JSON patch is %d, got %zu",
			       MAX_OPS, js_len(ops));
	p.doc = js_copy(doc);
	if (!p.doc)
		return no_memory(err);
	for (size_t i = 0; !rc && i < js_len(ops); i++) {
		rc = apply_op(&p, js_item(ops, i));
		if (rc && err)
			err_prepend(err, "operation %zu", i);
	}
	if (rc) {
		js_unref(p.doc);
		return rc;
	}
	*out = p.doc;
	return RC_OK;
}

/* ---- RFC 7386 ---- */

static enum rc merge(const struct json *doc, const struct json *patch, struct json **out)
{
	if (!js_is_object(patch)) {
		*out = js_ref(patch);
		return RC_OK;
	}
	CLEANUP(js_unrefp) struct json *to = js_new_object();

	if (!to)
		return RC_NOMEM;
	JS_FOREACH(it, doc) {
		const struct json *p = js_get(patch, it.key);

		if (p && js_is_null(p))
			continue;
		/* a value that the patch replaces below keeps its place */
		enum rc rc = js_set(to, it.key, p ? js_new_null() : js_ref(it.value));

		if (rc)
			return rc;
	}
	JS_FOREACH(it, patch) {
		struct json *v = NULL;

		if (js_is_null(it.value))
			continue;
		enum rc rc = merge(js_get(doc, it.key), it.value, &v);

		if (!rc)
			rc = js_set(to, it.key, v);
		if (rc)
			return rc;
	}
	*out = STEAL(to);
	return RC_OK;
}

enum rc api_patch_merge(const struct json *doc, const struct json *patch, struct json **out,
			struct err *err)
{
	if (!js_is_object(patch))
		return err_set(err, RC_BAD_REQUEST, "a merge patch must be an object");
	return merge(doc, patch, out) ? no_memory(err) : RC_OK;
}

static enum rc diff(const struct json *old, const struct json *new_, struct json **out)
{
	CLEANUP(js_unrefp) struct json *to = js_new_object();
	enum rc rc = to ? RC_OK : RC_NOMEM;

	if (rc)
		return rc;
	JS_FOREACH(it, old)
		if (!js_get(new_, it.key)) {
			rc = js_set(to, it.key, js_new_null());
			if (rc)
				return rc;
		}
	JS_FOREACH(it, new_) {
		const struct json *was = js_get(old, it.key);
		struct json *v = NULL;

		if (js_equal(was, it.value))
			continue;
		if (js_is_object(was) && js_is_object(it.value))
			rc = diff(was, it.value, &v);
		else
			v = js_ref(it.value);
		if (!rc)
			rc = js_set(to, it.key, v);
		if (rc)
			return rc;
	}
	*out = STEAL(to);
	return RC_OK;
}

enum rc api_merge_diff(const struct json *old, const struct json *new_, struct json **out)
{
	return diff(old, new_, out);
}
