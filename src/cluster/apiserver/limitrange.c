/* LimitRanges: defaults and limits of single pods and claims, as Kubernetes' LimitRanger. */
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"
#include "cluster/apiserver/apisrv_int.h"
#include "cluster/apiserver/quota.h"

#define ANN_DEFAULTED "kubernetes.io/limit-ranger"

static bool is_pod_create(const struct change *ch)
{
	return ch->op == HOOK_CREATE && strcmp(ch->res->table, "pods") == 0;
}

/* Calls fn for each item of each LimitRange of the namespace. */
typedef enum rc (*item_fn)(struct change *ch, const struct json *item, struct sbuf *out);

static enum rc each_item(struct change *ch, item_fn fn, struct sbuf *out)
{
	struct store_iter it;
	enum rc rc = RC_OK;
	struct obj *o;

	store_iter_in(&it, ch->c->srv->store, "limitranges", ch->ns);
	while (!rc && (o = store_iter_next_newest(&it))) {
		CLEANUP(js_unrefp) struct json *range = obj_json(o);
		const struct json *items = js_at(range, "spec", "limits", NULL);

		rc = range ? RC_OK : RC_NOMEM;
		for (size_t i = 0; !rc && i < js_len(items); i++)
			rc = fn(ch, js_item(items, i), out);
	}
	return rc;
}

/* ---- defaults ------------------------------------------------------------------------------------- */

/* Sets what is missing in resources.<what>; tells of it: "cpu, memory request for container a". */
static enum rc set_missing(struct json *container, const char *what, const char *one,
			   const struct json *defaults, struct sbuf *note)
{
	struct json *r = js_ensure_object(container, "resources");
	struct json *have = r ? js_ensure_object(r, what) : NULL;
	const char *sep = note->n ? "; " : "";
	bool any = false, is_request = strcmp(what, "requests") == 0;

	if (!have)
		return RC_NOMEM;
	for (const char *key = js_next_key(defaults, NULL); key; key = js_next_key(defaults, key)) {
		if (js_get(have, key) || (is_request && usage_asked(container, false, key)))
			continue; /* a limit is also a request */
		if (js_set(have, key, js_ref(js_get(defaults, key))))
			return RC_NOMEM;
		sbuf_addf(note, "%s%s", any ? ", " : sep, key);
		any = true;
	}
	if (any)
		sbuf_addf(note, " %s for container %s", one, js_get_str(container, "name"));
	return RC_OK;
}

static enum rc default_containers(struct json *containers, const struct json *item,
				  struct sbuf *note)
{
	enum rc rc = RC_OK;

	for (size_t i = 0; !rc && i < js_len(containers); i++) {
		struct json *k = js_item(containers, i);

		if (js_len(js_get(item, "defaultRequest")))
			rc = set_missing(k, "requests", "request", js_get(item, "defaultRequest"),
					 note);
		if (!rc && js_len(js_get(item, "default")))
			rc = set_missing(k, "limits", "limit", js_get(item, "default"), note);
	}
	return rc;
}

static enum rc default_item(struct change *ch, const struct json *item, struct sbuf *note)
{
	struct json *spec = js_get(ch->obj, "spec");

	if (!str_eq(js_get_str(item, "type"), "Container"))
		return RC_OK;
	enum rc rc = default_containers(js_get(spec, "initContainers"), item, note);

	return rc ? rc : default_containers(js_get(spec, "containers"), item, note);
}

enum rc limitrange_default(struct change *ch)
{
	CLEANUP(sbuf_fini) struct sbuf note = SBUF_INIT(64 * KIB);

	if (!is_pod_create(ch))
		return RC_OK;
	enum rc rc = each_item(ch, default_item, &note);

	if (rc || !note.n)
		return rc;
	struct json *notes = js_ensure_object(js_get(ch->obj, "metadata"), "annotations");
	CLEANUP(mem_freep) char *text = mem_printf("LimitRanger plugin set: %s", sbuf_str(&note));

	return notes && text ? js_set(notes, ANN_DEFAULTED, js_new_str(text)) : RC_NOMEM;
}

/* ---- limits --------------------------------------------------------------------------------------- */

/* What one object asks for of one resource; text NULL: nothing. */
struct asked {
	const char *type, *resource;
	const char *request, *limit;
};

static void fault(struct sbuf *out, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void fault(struct sbuf *out, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	CLEANUP(mem_freep) char *text = mem_vprintf(fmt, ap);
	va_end(ap);
	if (!text)
		out->rc = RC_NOMEM;
	else
		sbuf_addf(out, "%s%s", out->n ? "\n" : "", text);
}

static void check_min(const struct asked *k, const char *min, struct sbuf *out)
{
	if (!k->request)
		fault(out, "minimum %s usage per %s is %s.  No request is specified", k->resource,
		      k->type, min);
	else if (usage_nano(k->request) < usage_nano(min))
		fault(out, "minimum %s usage per %s is %s, but request is %s", k->resource, k->type,
		      min, k->request);
	else if (k->limit && usage_nano(k->limit) < usage_nano(min))
		fault(out, "minimum %s usage per %s is %s, but limit is %s", k->resource, k->type,
		      min, k->limit);
}

static void check_max(const struct asked *k, const char *max, bool has_limits, struct sbuf *out)
{
	if (has_limits && !k->limit)
		fault(out, "maximum %s usage per %s is %s.  No limit is specified", k->resource,
		      k->type, max);
	else if (has_limits && usage_nano(k->limit) > usage_nano(max))
		fault(out, "maximum %s usage per %s is %s, but limit is %s", k->resource, k->type,
		      max, k->limit);
	else if (k->request && usage_nano(k->request) > usage_nano(max))
		fault(out, "maximum %s usage per %s is %s, but request is %s", k->resource, k->type,
		      max, k->request);
}

static void check_ratio(const struct asked *k, const char *ratio, struct sbuf *out)
{
	double had = usage_nano(k->request)
			     ? (double)usage_nano(k->limit) / (double)usage_nano(k->request)
			     : 0;

	if (!usage_nano(k->request))
		fault(out,
		      "%s max limit to request ratio per %s is %s, but no request is specified or "
		      "request is 0",
		      k->resource, k->type, ratio);
	else if (!usage_nano(k->limit))
		fault(out,
		      "%s max limit to request ratio per %s is %s, but no limit is specified or "
		      "limit is 0",
		      k->resource, k->type, ratio);
	else if (had > (double)usage_nano(ratio) / 1e9)
		fault(out, "%s max limit to request ratio per %s is %s, but provided ratio is %f",
		      k->resource, k->type, ratio, had);
}

/* Something that asks for resources: a container, the sum of a pod, a claim. */
struct asker {
	const char *type;
	bool has_limits;
	/* NULL: nothing; valid until the next two calls. */
	const char *(*asked)(const struct json *obj, bool limit, const char *resource,
			     char text[64]);
};

static void check_bounds(const struct asker *a, const struct json *obj, const struct json *item,
			 struct sbuf *out)
{
	static const char *const bounds[] = {"min", "max", "maxLimitRequestRatio"};

	for (size_t i = 0; i < ARRAY_SIZE(bounds); i++)
		JS_FOREACH(it, js_get(item, bounds[i])) {
			char request[64], limit[64];
			const struct asked k = {
				.type = a->type,
				.resource = it.key,
				.request = a->asked(obj, false, it.key, request),
				.limit = a->has_limits ? a->asked(obj, true, it.key, limit) : NULL};

			if (i == 0)
				check_min(&k, js_str(it.value), out);
			else if (i == 1)
				check_max(&k, js_str(it.value), a->has_limits, out);
			else
				check_ratio(&k, js_str(it.value), out);
		}
}

static const char *container_asked(const struct json *obj, bool limit, const char *resource,
				   char text[64])
{
	(void)text;
	return usage_asked(obj, limit, resource);
}

static bool any_asks(const struct json *containers, bool limit, const char *resource)
{
	for (size_t i = 0; i < js_len(containers); i++)
		if (usage_asked(js_item(containers, i), limit, resource))
			return true;
	return false;
}

static const char *pod_asked(const struct json *obj, bool limit, const char *resource,
			     char text[64])
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(64);
	struct api_quantity q = {.nano = usage_of_pod(obj, limit, resource),
				 .format = str_eq(resource, "cpu") ? API_Q_DECIMAL : API_Q_BINARY};

	if (!any_asks(js_at(obj, "spec", "containers", NULL), limit, resource) &&
	    !any_asks(js_at(obj, "spec", "initContainers", NULL), limit, resource))
		return NULL;
	api_quantity_print(&q, &b);
	snprintf(text, 64, "%s", sbuf_str(&b));
	return text;
}

static const char *claim_asked(const struct json *obj, bool limit, const char *resource,
			       char text[64])
{
	(void)limit;
	(void)text;
	return js_str(js_get(js_at(obj, "spec", "resources", "requests", NULL), resource));
}

static const struct asker a_container = {"Container", true, container_asked};
static const struct asker a_pod = {"Pod", true, pod_asked};
static const struct asker a_claim = {"PersistentVolumeClaim", false, claim_asked};

static enum rc check_item(struct change *ch, const struct json *item, struct sbuf *out)
{
	const char *type = js_get_str(item, "type");
	bool is_pod = strcmp(ch->res->table, "pods") == 0;
	const struct json *first = js_at(ch->obj, "spec", "initContainers", NULL);
	const struct json *all = js_at(ch->obj, "spec", "containers", NULL);

	if (!is_pod && str_eq(type, a_claim.type))
		check_bounds(&a_claim, ch->obj, item, out);
	if (is_pod && str_eq(type, a_pod.type))
		check_bounds(&a_pod, ch->obj, item, out);
	for (size_t i = 0; is_pod && str_eq(type, a_container.type) && i < js_len(first); i++)
		check_bounds(&a_container, js_item(first, i), item, out);
	for (size_t i = 0; is_pod && str_eq(type, a_container.type) && i < js_len(all); i++)
		check_bounds(&a_container, js_item(all, i), item, out);
	return out->rc;
}

/* One fault as it is; several as Kubernetes joins them: "[a, b]". */
static void refuse(struct change *ch, const struct sbuf *faults)
{
	CLEANUP(sbuf_fini) struct sbuf why = SBUF_INIT(256 * KIB);
	bool many = strchr(sbuf_str(faults), '\n') != NULL;

	if (many)
		sbuf_addc(&why, '[');
	for (const char *p = sbuf_str(faults); *p; p++)
		if (*p == '\n')
			sbuf_adds(&why, ", ");
		else
			sbuf_addc(&why, *p);
	if (many)
		sbuf_addc(&why, ']');
	if (sbuf_rc(&why))
		call_nomem(ch->c);
	else
		call_forbidden(ch->c, ch->res, ch->name, sbuf_str(&why), NULL);
}

bool limitrange_admit(struct change *ch)
{
	CLEANUP(sbuf_fini) struct sbuf faults = SBUF_INIT(128 * KIB);
	bool is_claim = strcmp(ch->res->table, "persistentvolumeclaims") == 0;

	if (ch->status_only || !(is_pod_create(ch) || is_claim))
		return true;
	if (each_item(ch, check_item, &faults) || sbuf_rc(&faults)) {
		call_nomem(ch->c);
		return false;
	}
	if (faults.n)
		refuse(ch, &faults);
	return !faults.n;
}

/* ---- the object itself ---------------------------------------------------------------------------- */

static enum rc fill(struct json *item, const char *key, const struct json *from)
{
	struct json *have = js_len(from) ? js_ensure_object(item, key) : NULL;

	if (!js_len(from))
		return RC_OK;
	if (!have)
		return RC_NOMEM;
	JS_FOREACH(it, from)
		if (!js_get(have, it.key) && js_set(have, it.key, js_ref(it.value)))
			return RC_NOMEM;
	return RC_OK;
}

enum rc limitrange_prepare(struct change *ch, struct err *err)
{
	const struct json *items = js_at(ch->obj, "spec", "limits", NULL);
	enum rc rc = RC_OK;

	for (size_t i = 0; !rc && i < js_len(items); i++) {
		struct json *item = js_item(items, i);

		if (!str_eq(js_get_str(item, "type"), "Container"))
			continue;
		rc = fill(item, "default", js_get(item, "max"));
		if (!rc)
			rc = fill(item, "defaultRequest", js_get(item, "default"));
		if (!rc)
			rc = fill(item, "defaultRequest", js_get(item, "min"));
	}
	return rc ? err_set(err, rc, "out of memory") : RC_OK;
}

/* a must not be more than b, where both say something. */
static void check_order(struct change *ch, const struct json *item, size_t i, const char *a,
			const char *b)
{
	char path[LIMIT_NAME_BYTES * 2 + 64];

	JS_FOREACH(it, js_get(item, a)) {
		const char *x = js_str(it.value), *y = js_str(js_get(js_get(item, b), it.key));

		if (!y || usage_nano(x) <= usage_nano(y))
			continue;
		snprintf(path, sizeof(path), "spec.limits[%zu].%s[%s]", i, a, it.key);
		fe_invalid(&ch->fe, path, x, "%s value %s is greater than %s value %s",
			   str_eq(a, "defaultRequest") ? "default request" : a, x, b, y);
	}
}

static void check_absent(struct change *ch, const struct json *item, size_t i, const char *key)
{
	char path[64];

	if (!js_len(js_get(item, key)))
		return;
	snprintf(path, sizeof(path), "spec.limits[%zu].%s", i, key);
	fe_forbidden(&ch->fe, path, "may not be specified when `type` is '%s'",
		     js_get_str(item, "type"));
}

static void check_limit_item(struct change *ch, const struct json *item, size_t i)
{
	const char *type = js_get_str(item, "type");
	char path[64];

	if (!str_eq(type, "Container")) {
		check_absent(ch, item, i, "default");
		check_absent(ch, item, i, "defaultRequest");
	}
	snprintf(path, sizeof(path), "spec.limits[%zu]", i);
	if (str_eq(type, "PersistentVolumeClaim") && !js_at(item, "min", "storage", NULL) &&
	    !js_at(item, "max", "storage", NULL))
		fe_required(&ch->fe, path,
			    "either minimum or maximum storage value is required, but neither was "
			    "provided");
	check_order(ch, item, i, "min", "max");
	check_order(ch, item, i, "defaultRequest", "max");
	check_order(ch, item, i, "default", "max");
	check_order(ch, item, i, "defaultRequest", "default");
	check_order(ch, item, i, "min", "default");
	check_order(ch, item, i, "min", "defaultRequest");
	JS_FOREACH(it, js_get(item, "maxLimitRequestRatio"))
		if (usage_nano(js_str(it.value)) < 1000 * 1000 * 1000) {
			char at[LIMIT_NAME_BYTES * 2 + 64];

			snprintf(at, sizeof(at), "spec.limits[%zu].maxLimitRequestRatio[%s]", i,
				 it.key);
			fe_invalid(&ch->fe, at, js_str(it.value), "ratio %s is less than 1",
				   js_str(it.value));
		}
}

void limitrange_validate(struct change *ch)
{
	const struct json *items = js_at(ch->obj, "spec", "limits", NULL);

	for (size_t i = 0; i < js_len(items); i++) {
		const char *type = js_get_str(js_item(items, i), "type");

		for (size_t k = 0; k < i; k++)
			if (str_eq(js_get_str(js_item(items, k), "type"), type)) {
				char path[64];

				snprintf(path, sizeof(path), "spec.limits[%zu].type", i);
				fe_duplicate(&ch->fe, path, type);
				break;
			}
		check_limit_item(ch, js_item(items, i), i);
	}
}
