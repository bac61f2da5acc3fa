/* What a pod, a claim or a Service uses of a quota: Kubernetes' quota evaluators. */
#include <string.h>

#include "base/str.h"
#include "cluster/apiserver/quota.h"
#include "json/json.h"

#define CLASS_MARK ".storageclass.storage.k8s.io/"
#define ONE	   ((__int128)1000 * 1000 * 1000)

static bool is_terminal(const struct json *pod)
{
	const char *phase = js_str(js_at(pod, "status", "phase", NULL));

	return str_eq(phase, "Succeeded") || str_eq(phase, "Failed");
}

__int128 usage_nano(const char *text)
{
	struct api_quantity q;

	return text && api_quantity_parse(text, &q, NULL) == RC_OK ? q.nano : 0;
}

/* ---- numbers ----------------------------------------------------------------------------------- */

static bool is_number(const struct json *v)
{
	return js_type(v) == JS_INT || js_type(v) == JS_REAL;
}

static struct json *number_text(const struct json *v)
{
	CLEANUP(sbuf_fini) struct sbuf written = SBUF_INIT(512);
	CLEANUP(sbuf_fini) struct sbuf text = SBUF_INIT(512);
	struct api_quantity q;

	js_print(v, &written, false);
	/* The schema has taken it as a quantity. */
	if (sbuf_rc(&written) || api_quantity_parse(sbuf_str(&written), &q, NULL))
		return NULL;
	api_quantity_print(&q, &text);
	return sbuf_rc(&text) ? NULL : js_new_str(sbuf_str(&text));
}

/* The amounts of owner[key]. */
static enum rc numbers_to_text(struct json *owner, const char *key)
{
	const struct json *amounts = js_get(owner, key);
	bool any = false;

	JS_FOREACH(it, amounts)
		any = any || is_number(it.value);
	if (!any)
		return RC_OK;
	CLEANUP(js_unrefp) struct json *texts = js_new_object();

	JS_FOREACH(it, amounts)
		if (js_set(texts, it.key,
			   is_number(it.value) ? number_text(it.value) : js_ref(it.value)))
			return RC_NOMEM;
	return js_set(owner, key, STEAL(texts));
}

static enum rc requests_to_text(struct json *owner)
{
	struct json *r = js_get(owner, "resources");
	enum rc rc = numbers_to_text(r, "requests");

	return rc ? rc : numbers_to_text(r, "limits");
}

enum rc usage_amounts_to_text(const char *table, struct json *obj)
{
	static const char *const lists[] = {"containers", "initContainers"};
	static const char *const maps[] = {"min", "max", "default", "defaultRequest",
					   "maxLimitRequestRatio"};
	struct json *spec = js_get(obj, "spec");
	enum rc rc = RC_OK;

	if (str_eq(table, "resourcequotas"))
		return numbers_to_text(spec, "hard");
	if (str_eq(table, "persistentvolumeclaims"))
		return requests_to_text(spec);
	for (size_t i = 0; str_eq(table, "limitranges") && i < js_len(js_get(spec, "limits")); i++)
		for (size_t k = 0; k < ARRAY_SIZE(maps) && !rc; k++)
			rc = numbers_to_text(js_item(js_get(spec, "limits"), i), maps[k]);
	if (!str_eq(table, "pods"))
		return rc;
	for (size_t k = 0; k < ARRAY_SIZE(lists); k++)
		for (size_t i = 0; i < js_len(js_get(spec, lists[k])) && !rc; i++)
			rc = requests_to_text(js_item(js_get(spec, lists[k]), i));
	return rc ? rc : numbers_to_text(spec, "overhead");
}

/* ---- names ------------------------------------------------------------------------------------- */

/* What containers ask for is also known without "requests." */
static bool is_plain_request(const char *name)
{
	return str_eq(name, "cpu") || str_eq(name, "memory") || str_eq(name, "ephemeral-storage") ||
	       str_has_prefix(name, "hugepages-");
}

static bool is_object_count(const char *name)
{
	static const char *const counted[] = {
		"pods",		 "services",   "services.nodeports",	 "services.loadbalancers",
		"secrets",	 "configmaps", "persistentvolumeclaims", "replicationcontrollers",
		"resourcequotas"};

	for (size_t i = 0; i < ARRAY_SIZE(counted); i++)
		if (str_eq(counted[i], name))
			return true;
	return str_has_prefix(name, "count/") ||
	       str_has_suffix(name, CLASS_MARK "persistentvolumeclaims");
}

bool usage_is_known(const char *name)
{
	const char *asked = str_has_prefix(name, "requests.") ? name + strlen("requests.")
			    : str_has_prefix(name, "limits.") ? name + strlen("limits.")
							      : name;

	if (is_object_count(name) || str_eq(name, "requests.storage") || is_plain_request(asked) ||
	    str_has_suffix(name, CLASS_MARK "requests.storage"))
		return true;
	/* Devices have no limits of their own: limit and request are equal. */
	return str_has_prefix(name, "requests.") && strchr(asked, '/') && *asked != '/';
}

bool usage_is_whole(const char *name)
{
	return is_object_count(name) || (str_has_prefix(name, "requests.") && strchr(name, '/'));
}

const char *usage_table(const char *name)
{
	if (str_has_prefix(name, "count/"))
		return name + strlen("count/");
	if (str_has_prefix(name, "services"))
		return "services";
	if (str_eq(name, "requests.storage") || strstr(name, CLASS_MARK))
		return "persistentvolumeclaims";
	return is_object_count(name) ? name : "pods";
}

bool usage_needs_content(const char *name)
{
	return !is_object_count(name) || strstr(name, CLASS_MARK) ||
	       str_has_prefix(name, "services.") || str_eq(usage_table(name), "pods");
}

/* ---- pods -------------------------------------------------------------------------------------- */

const char *usage_asked(const struct json *container, bool limit, const char *name)
{
	const struct json *r = js_get(container, "resources");
	const char *most = js_str(js_get(js_get(r, "limits"), name));
	const char *sure = js_str(js_get(js_get(r, "requests"), name));

	return limit || !sure ? most : sure;
}

__int128 usage_of_pod(const struct json *pod, bool limit, const char *name)
{
	const struct json *spec = js_get(pod, "spec"), *all = js_get(spec, "containers");
	const struct json *first = js_get(spec, "initContainers");
	__int128 sum = 0;

	for (size_t i = 0; i < js_len(all); i++)
		sum += usage_nano(usage_asked(js_item(all, i), limit, name));
	for (size_t i = 0; i < js_len(first); i++)
		sum = MAX(sum, usage_nano(usage_asked(js_item(first, i), limit, name)));
	/* As Kubernetes: the overhead of a pod without a limit is no limit. */
	if (!limit || sum)
		sum += usage_nano(js_str(js_get(js_get(spec, "overhead"), name)));
	return sum;
}

static __int128 pod_usage(const char *name, const struct json *pod)
{
	if (str_eq(name, "count/pods"))
		return ONE;
	if (is_terminal(pod))
		return 0;
	if (str_eq(name, "pods"))
		return ONE;
	if (str_has_prefix(name, "limits."))
		return usage_of_pod(pod, true, name + strlen("limits."));
	if (str_has_prefix(name, "requests."))
		return usage_of_pod(pod, false, name + strlen("requests."));
	return is_plain_request(name) ? usage_of_pod(pod, false, name) : 0;
}

/* ---- claims and Services ------------------------------------------------------------------------ */

static __int128 claim_usage(const char *name, const struct json *claim)
{
	const char *mark = strstr(name, CLASS_MARK), *what = name;
	const char *class = js_str(js_at(claim, "spec", "storageClassName", NULL));

	if (mark) {
		size_t n = (size_t)(mark - name);

		if (!class || strlen(class) != n || memcmp(class, name, n) != 0)
			return 0;
		what = mark + strlen(CLASS_MARK);
	}
	if (!str_eq(what, "requests.storage"))
		return ONE;
	return usage_nano(js_str(js_at(claim, "spec", "resources", "requests", "storage", NULL)));
}

static __int128 service_usage(const char *name, const struct json *svc)
{
	const char *type = js_str(js_at(svc, "spec", "type", NULL));

	if (str_eq(name, "services.loadbalancers"))
		return str_eq(type, "LoadBalancer") ? ONE : 0;
	if (str_eq(name, "services.nodeports"))
		return str_eq(type, "NodePort")
			       ? ONE * (__int128)js_len(js_at(svc, "spec", "ports", NULL))
			       : 0;
	return ONE;
}

__int128 usage_of(const char *name, const struct json *obj)
{
	const char *table = usage_table(name);

	if (!usage_needs_content(name))
		return ONE;
	if (str_eq(table, "persistentvolumeclaims"))
		return claim_usage(name, obj);
	if (str_eq(table, "services"))
		return service_usage(name, obj);
	return pod_usage(name, obj);
}

/* ---- scopes -------------------------------------------------------------------------------------- */

static bool asks_for_nothing(const struct json *containers)
{
	for (size_t i = 0; i < js_len(containers); i++) {
		const struct json *r = js_get(js_item(containers, i), "resources");

		if (js_len(js_get(r, "requests")) || js_len(js_get(r, "limits")))
			return false;
	}
	return true;
}

static bool in_scope(const char *scope, const struct json *pod)
{
	const struct json *spec = js_get(pod, "spec");
	bool ends = js_get(spec, "activeDeadlineSeconds") != NULL;
	bool best = asks_for_nothing(js_get(spec, "containers")) &&
		    asks_for_nothing(js_get(spec, "initContainers"));

	if (str_eq(scope, "Terminating"))
		return ends;
	if (str_eq(scope, "NotTerminating"))
		return !ends;
	if (str_eq(scope, "BestEffort"))
		return best;
	if (str_eq(scope, "NotBestEffort"))
		return !best;
	return js_get_str(spec, "priorityClassName") != NULL; /* PriorityClass */
}

static bool meets(const struct json *expr, const struct json *pod)
{
	const char *op = js_get_str(expr, "operator"), *scope = js_get_str(expr, "scopeName");
	const char *class = js_str(js_at(pod, "spec", "priorityClassName", NULL));
	const struct json *values = js_get(expr, "values");
	bool found = false;

	if (str_eq(op, "Exists"))
		return in_scope(scope, pod);
	if (str_eq(op, "DoesNotExist"))
		return !in_scope(scope, pod);
	for (size_t i = 0; class && i < js_len(values); i++)
		found = found || str_eq(js_str(js_item(values, i)), class);
	return str_eq(op, "In") ? found : !found;
}

bool usage_in_scope(const struct json *spec, const struct json *pod)
{
	const struct json *scopes = js_get(spec, "scopes");
	const struct json *exprs = js_at(spec, "scopeSelector", "matchExpressions", NULL);

	for (size_t i = 0; i < js_len(scopes); i++)
		if (!in_scope(js_str(js_item(scopes, i)), pod))
			return false;
	for (size_t i = 0; i < js_len(exprs); i++)
		if (!meets(js_item(exprs, i), pod))
			return false;
	return true;
}
