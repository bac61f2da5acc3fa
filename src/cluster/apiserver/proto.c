/* Kubernetes' protobuf bodies of the few kinds that kubectl sends so (create namespace, configmap, secret,
 * service, quota, role, rolebinding, serviceaccount, token; delete; drain; auth), turned into JSON.
 *
 * A field that is not in the tables is refused, never dropped: the client is told to send JSON.
 * Recursion is bounded by the tables: no message contains itself.
 */
#include "cluster/apiserver/apisrv_int.h"

#include <string.h>

#include "base/b64.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"

enum pb_type {
	PB_STR,
	PB_BYTES, /* base64 in JSON */
	PB_BOOL,
	PB_INT,
	PB_MSG,
	PB_TIME,	  /* {1: seconds} */
	PB_MAP,		  /* string to string */
	PB_BYTES_MAP,	  /* string to bytes */
	PB_QUANTITIES,	  /* string to Quantity: {1: string} */
	PB_INT_OR_STRING, /* {1: type, 2: int, 3: string} */
	PB_SKIP,	  /* written by servers only */
};

struct pb_msg;

struct pb_field {
	unsigned num;
	const char *name; /* NULL ends the table */
	enum pb_type type;
	const struct pb_msg *sub;
	bool is_list;
	bool is_pointer; /* a zero value is a value */
};

struct pb_msg {
	const char *name;
	const struct pb_field *fields;
};

static const struct pb_field owner_fields[] = {
	{1, "kind", PB_STR, NULL, false, false},
	{3, "name", PB_STR, NULL, false, false},
	{4, "uid", PB_STR, NULL, false, false},
	{5, "apiVersion", PB_STR, NULL, false, false},
	{6, "controller", PB_BOOL, NULL, false, true},
	{7, "blockOwnerDeletion", PB_BOOL, NULL, false, true},
	{0},
};
static const struct pb_msg owner_msg = {"OwnerReference", owner_fields};

static const struct pb_field meta_fields[] = {
	{1, "name", PB_STR, NULL, false, false},
	{2, "generateName", PB_STR, NULL, false, false},
	{3, "namespace", PB_STR, NULL, false, false},
	{4, "selfLink", PB_SKIP, NULL, false, false},
	{5, "uid", PB_STR, NULL, false, false},
	{6, "resourceVersion", PB_STR, NULL, false, false},
	{7, "generation", PB_SKIP, NULL, false, false},
	{8, "creationTimestamp", PB_TIME, NULL, false, false},
	{9, "deletionTimestamp", PB_TIME, NULL, false, false},
	{10, "deletionGracePeriodSeconds", PB_INT, NULL, false, true},
	{11, "labels", PB_MAP, NULL, false, false},
	{12, "annotations", PB_MAP, NULL, false, false},
	{13, "ownerReferences", PB_MSG, &owner_msg, true, false},
	{14, "finalizers", PB_STR, NULL, true, false},
	{17, "managedFields", PB_SKIP, NULL, true, false},
	{0},
};
static const struct pb_msg meta_msg = {"ObjectMeta", meta_fields};

static const struct pb_field ns_spec_fields[] = {{1, "finalizers", PB_STR, NULL, true, false}, {0}};
static const struct pb_msg ns_spec_msg = {"NamespaceSpec", ns_spec_fields};
static const struct pb_field ns_fields[] = {
	{1, "metadata", PB_MSG, &meta_msg, false, false},
	{2, "spec", PB_MSG, &ns_spec_msg, false, false},
	{3, "status", PB_SKIP, NULL, false, false},
	{0},
};

static const struct pb_field configmap_fields[] = {
	{1, "metadata", PB_MSG, &meta_msg, false, false},
	{2, "data", PB_MAP, NULL, false, false},
	{3, "binaryData", PB_BYTES_MAP, NULL, false, false},
	{4, "immutable", PB_BOOL, NULL, false, true},
	{0},
};

static const struct pb_field secret_fields[] = {
	{1, "metadata", PB_MSG, &meta_msg, false, false},
	{2, "data", PB_BYTES_MAP, NULL, false, false},
	{3, "type", PB_STR, NULL, false, false},
	{4, "stringData", PB_MAP, NULL, false, false},
	{5, "immutable", PB_BOOL, NULL, false, true},
	{0},
};

static const struct pb_field port_fields[] = {
	{1, "name", PB_STR, NULL, false, false},
	{2, "protocol", PB_STR, NULL, false, false},
	{3, "port", PB_INT, NULL, false, false},
	{4, "targetPort", PB_INT_OR_STRING, NULL, false, false},
	{5, "nodePort", PB_INT, NULL, false, false},
	{6, "appProtocol", PB_STR, NULL, false, true},
	{0},
};
static const struct pb_msg port_msg = {"ServicePort", port_fields};
static const struct pb_field service_spec_fields[] = {
	{1, "ports", PB_MSG, &port_msg, true, false},
	{2, "selector", PB_MAP, NULL, false, false},
	{3, "clusterIP", PB_STR, NULL, false, false},
	{4, "type", PB_STR, NULL, false, false},
	{5, "externalIPs", PB_STR, NULL, true, false},
	{7, "sessionAffinity", PB_STR, NULL, false, false},
	{8, "loadBalancerIP", PB_STR, NULL, false, false},
	{9, "loadBalancerSourceRanges", PB_STR, NULL, true, false},
	{10, "externalName", PB_STR, NULL, false, false},
	{11, "externalTrafficPolicy", PB_STR, NULL, false, false},
	{12, "healthCheckNodePort", PB_INT, NULL, false, false},
	{13, "publishNotReadyAddresses", PB_BOOL, NULL, false, false},
	{17, "ipFamilyPolicy", PB_STR, NULL, false, true},
	{18, "clusterIPs", PB_STR, NULL, true, false},
	{19, "ipFamilies", PB_STR, NULL, true, false},
	{22, "internalTrafficPolicy", PB_STR, NULL, false, true},
	{0},
};
static const struct pb_msg service_spec_msg = {"ServiceSpec", service_spec_fields};
static const struct pb_field service_fields[] = {
	{1, "metadata", PB_MSG, &meta_msg, false, false},
	{2, "spec", PB_MSG, &service_spec_msg, false, false},
	{3, "status", PB_SKIP, NULL, false, false},
	{0},
};

static const struct pb_field scope_expr_fields[] = {
	{1, "scopeName", PB_STR, NULL, false, false},
	{2, "operator", PB_STR, NULL, false, false},
	{3, "values", PB_STR, NULL, true, false},
	{0},
};
static const struct pb_msg scope_expr_msg = {"ScopedResourceSelectorRequirement",
					     scope_expr_fields};
static const struct pb_field scope_fields[] = {
	{1, "matchExpressions", PB_MSG, &scope_expr_msg, true, false},
	{0},
};
static const struct pb_msg scope_msg = {"ScopeSelector", scope_fields};
static const struct pb_field quota_spec_fields[] = {
	{1, "hard", PB_QUANTITIES, NULL, false, false},
	{2, "scopes", PB_STR, NULL, true, false},
	{3, "scopeSelector", PB_MSG, &scope_msg, false, false},
	{0},
};
static const struct pb_msg quota_spec_msg = {"ResourceQuotaSpec", quota_spec_fields};
static const struct pb_field quota_fields[] = {
	{1, "metadata", PB_MSG, &meta_msg, false, false},
	{2, "spec", PB_MSG, &quota_spec_msg, false, false},
	{3, "status", PB_SKIP, NULL, false, false},
	{0},
};

static const struct pb_field precondition_fields[] = {
	{1, "uid", PB_STR, NULL, false, true},
	{2, "resourceVersion", PB_STR, NULL, false, true},
	{0},
};
static const struct pb_msg precondition_msg = {"Preconditions", precondition_fields};
static const struct pb_field delete_fields[] = {
	{1, "gracePeriodSeconds", PB_INT, NULL, false, true},
	{2, "preconditions", PB_MSG, &precondition_msg, false, false},
	{3, "orphanDependents", PB_BOOL, NULL, false, true},
	{4, "propagationPolicy", PB_STR, NULL, false, true},
	{5, "dryRun", PB_STR, NULL, true, false},
	{0},
};
static const struct pb_msg delete_msg = {"DeleteOptions", delete_fields};
static const struct pb_field eviction_fields[] = {
	{1, "metadata", PB_MSG, &meta_msg, false, false},
	{2, "deleteOptions", PB_MSG, &delete_msg, false, false},
	{0},
};

static const struct pb_field attributes_fields[] = {
	{1, "namespace", PB_STR, NULL, false, false},
	{2, "verb", PB_STR, NULL, false, false},
	{3, "group", PB_STR, NULL, false, false},
	{4, "version", PB_STR, NULL, false, false},
	{5, "resource", PB_STR, NULL, false, false},
	{6, "subresource", PB_STR, NULL, false, false},
	{7, "name", PB_STR, NULL, false, false},
	{0},
};
static const struct pb_msg attributes_msg = {"ResourceAttributes", attributes_fields};
static const struct pb_field path_fields[] = {
	{1, "path", PB_STR, NULL, false, false}, {2, "verb", PB_STR, NULL, false, false}, {0}};
static const struct pb_msg path_msg = {"NonResourceAttributes", path_fields};
static const struct pb_field review_spec_fields[] = {
	{1, "resourceAttributes", PB_MSG, &attributes_msg, false, false},
	{2, "nonResourceAttributes", PB_MSG, &path_msg, false, false},
	{0},
};
static const struct pb_msg review_spec_msg = {"SelfSubjectAccessReviewSpec", review_spec_fields};
static const struct pb_field review_fields[] = {
	{1, "metadata", PB_MSG, &meta_msg, false, false},
	{2, "spec", PB_MSG, &review_spec_msg, false, false},
	{3, "status", PB_SKIP, NULL, false, false},
	{0},
};
static const struct pb_field rules_spec_fields[] = {{1, "namespace", PB_STR, NULL, false, false},
						    {0}};
static const struct pb_msg rules_spec_msg = {"SelfSubjectRulesReviewSpec", rules_spec_fields};
static const struct pb_field rules_fields[] = {
	{1, "metadata", PB_MSG, &meta_msg, false, false},
	{2, "spec", PB_MSG, &rules_spec_msg, false, false},
	{3, "status", PB_SKIP, NULL, false, false},
	{0},
};
static const struct pb_field self_fields[] = {
	{1, "metadata", PB_MSG, &meta_msg, false, false},
	{2, "status", PB_SKIP, NULL, false, false},
	{0},
};

static const struct pb_field subject_review_spec_fields[] = {
	{1, "resourceAttributes", PB_MSG, &attributes_msg, false, false},
	{2, "nonResourceAttributes", PB_MSG, &path_msg, false, false},
	{3, "user", PB_STR, NULL, false, false},
	{4, "groups", PB_STR, NULL, true, false},
	{6, "uid", PB_STR, NULL, false, false},
	{0},
};
static const struct pb_msg subject_review_spec_msg = {"SubjectAccessReviewSpec",
						      subject_review_spec_fields};
static const struct pb_field subject_review_fields[] = {
	{1, "metadata", PB_MSG, &meta_msg, false, false},
	{2, "spec", PB_MSG, &subject_review_spec_msg, false, false},
	{3, "status", PB_SKIP, NULL, false, false},
	{0},
};

static const struct pb_field policy_rule_fields[] = {
	{1, "verbs", PB_STR, NULL, true, false},
	{2, "apiGroups", PB_STR, NULL, true, false},
	{3, "resources", PB_STR, NULL, true, false},
	{4, "resourceNames", PB_STR, NULL, true, false},
	{5, "nonResourceURLs", PB_STR, NULL, true, false},
	{0},
};
static const struct pb_msg policy_rule_msg = {"PolicyRule", policy_rule_fields};
static const struct pb_field requirement_fields[] = {
	{1, "key", PB_STR, NULL, false, false},
	{2, "operator", PB_STR, NULL, false, false},
	{3, "values", PB_STR, NULL, true, false},
	{0},
};
static const struct pb_msg requirement_msg = {"LabelSelectorRequirement", requirement_fields};
static const struct pb_field selector_fields[] = {
	{1, "matchLabels", PB_MAP, NULL, false, false},
	{2, "matchExpressions", PB_MSG, &requirement_msg, true, false},
	{0},
};
static const struct pb_msg selector_msg = {"LabelSelector", selector_fields};
static const struct pb_field aggregation_fields[] = {
	{1, "clusterRoleSelectors", PB_MSG, &selector_msg, true, false}, {0}};
static const struct pb_msg aggregation_msg = {"AggregationRule", aggregation_fields};
static const struct pb_field role_fields[] = {
	{1, "metadata", PB_MSG, &meta_msg, false, false},
	{2, "rules", PB_MSG, &policy_rule_msg, true, false},
	{0},
};
static const struct pb_field cluster_role_fields[] = {
	{1, "metadata", PB_MSG, &meta_msg, false, false},
	{2, "rules", PB_MSG, &policy_rule_msg, true, false},
	{3, "aggregationRule", PB_MSG, &aggregation_msg, false, true},
	{0},
};
static const struct pb_field subject_fields[] = {
	{1, "kind", PB_STR, NULL, false, false},
	{2, "apiGroup", PB_STR, NULL, false, false},
	{3, "name", PB_STR, NULL, false, false},
	{4, "namespace", PB_STR, NULL, false, false},
	{0},
};
static const struct pb_msg subject_msg = {"Subject", subject_fields};
static const struct pb_field role_ref_fields[] = {
	{1, "apiGroup", PB_STR, NULL, false, false},
	{2, "kind", PB_STR, NULL, false, false},
	{3, "name", PB_STR, NULL, false, false},
	{0},
};
static const struct pb_msg role_ref_msg = {"RoleRef", role_ref_fields};
static const struct pb_field role_binding_fields[] = {
	{1, "metadata", PB_MSG, &meta_msg, false, false},
	{2, "subjects", PB_MSG, &subject_msg, true, false},
	{3, "roleRef", PB_MSG, &role_ref_msg, false, false},
	{0},
};

static const struct pb_field object_ref_fields[] = {
	{1, "kind", PB_STR, NULL, false, false},
	{2, "namespace", PB_STR, NULL, false, false},
	{3, "name", PB_STR, NULL, false, false},
	{4, "uid", PB_STR, NULL, false, false},
	{5, "apiVersion", PB_STR, NULL, false, false},
	{6, "resourceVersion", PB_STR, NULL, false, false},
	{7, "fieldPath", PB_STR, NULL, false, false},
	{0},
};
static const struct pb_msg object_ref_msg = {"ObjectReference", object_ref_fields};
static const struct pb_field local_ref_fields[] = {{1, "name", PB_STR, NULL, false, false}, {0}};
static const struct pb_msg local_ref_msg = {"LocalObjectReference", local_ref_fields};
static const struct pb_field account_fields[] = {
	{1, "metadata", PB_MSG, &meta_msg, false, false},
	{2, "secrets", PB_MSG, &object_ref_msg, true, false},
	{3, "imagePullSecrets", PB_MSG, &local_ref_msg, true, false},
	{4, "automountServiceAccountToken", PB_BOOL, NULL, false, true},
	{0},
};

static const struct pb_field bound_fields[] = {
	{1, "kind", PB_STR, NULL, false, false},
	{2, "apiVersion", PB_STR, NULL, false, false},
	{3, "name", PB_STR, NULL, false, false},
	{4, "uid", PB_STR, NULL, false, false},
	{0},
};
static const struct pb_msg bound_msg = {"BoundObjectReference", bound_fields};
static const struct pb_field token_spec_fields[] = {
	{1, "audiences", PB_STR, NULL, true, false},
	{3, "boundObjectRef", PB_MSG, &bound_msg, false, false},
	{4, "expirationSeconds", PB_INT, NULL, false, true},
	{0},
};
static const struct pb_msg token_spec_msg = {"TokenRequestSpec", token_spec_fields};
static const struct pb_field token_request_fields[] = {
	{1, "metadata", PB_MSG, &meta_msg, false, false},
	{2, "spec", PB_MSG, &token_spec_msg, false, false},
	{3, "status", PB_SKIP, NULL, false, false},
	{0},
};
static const struct pb_field token_review_spec_fields[] = {
	{1, "token", PB_STR, NULL, false, false},
	{2, "audiences", PB_STR, NULL, true, false},
	{0},
};
static const struct pb_msg token_review_spec_msg = {"TokenReviewSpec", token_review_spec_fields};
static const struct pb_field token_review_fields[] = {
	{1, "metadata", PB_MSG, &meta_msg, false, false},
	{2, "spec", PB_MSG, &token_review_spec_msg, false, false},
	{3, "status", PB_SKIP, NULL, false, false},
	{0},
};

static const struct pb_msg kinds[] = {
	{"Namespace", ns_fields},
	{"ConfigMap", configmap_fields},
	{"Secret", secret_fields},
	{"Service", service_fields},
	{"ResourceQuota", quota_fields},
	{"ServiceAccount", account_fields},
	{"TokenRequest", token_request_fields},
	{"TokenReview", token_review_fields},
	{"DeleteOptions", delete_fields},
	{"Eviction", eviction_fields},
	{"SelfSubjectAccessReview", review_fields},
	{"SelfSubjectReview", self_fields},
	{"SelfSubjectRulesReview", rules_fields},
	{"SubjectAccessReview", subject_review_fields},
	{"LocalSubjectAccessReview", subject_review_fields},
	{"Role", role_fields},
	{"ClusterRole", cluster_role_fields},
	{"RoleBinding", role_binding_fields},
	{"ClusterRoleBinding", role_binding_fields},
};

/* ---- wire ------------------------------------------------------------------------------------------------ */

struct wire {
	const unsigned char *p;
	size_t n;
};

/* One field: varints in value, length-delimited ones in bytes. */
struct item {
	unsigned num, type;
	uint64_t value;
	struct wire bytes;
};

static bool get_varint(struct wire *w, uint64_t *out)
{
	uint64_t v = 0;

	for (unsigned shift = 0; shift < 64 && w->n; shift += 7) {
		unsigned char c = *w->p++;

		w->n--;
		v |= (uint64_t)(c & 0x7f) << shift;
		if (!(c & 0x80)) {
			*out = v;
			return true;
		}
	}
	return false;
}

static bool get_item(struct wire *w, struct item *it)
{
	uint64_t tag, len;

	if (!get_varint(w, &tag) || tag >> 3 == 0 || tag >> 3 > 0x1fffffff)
		return false;
	it->num = (unsigned)(tag >> 3);
	it->type = (unsigned)(tag & 7);
	if (it->type == 0)
		return get_varint(w, &it->value);
	if (it->type == 2) {
		if (!get_varint(w, &len) || len > w->n)
			return false;
		it->bytes = (struct wire){w->p, len};
		w->p += len;
		w->n -= len;
		return true;
	}
	return false; /* Kubernetes' types use no fixed-width fields here */
}

/* ---- values ----------------------------------------------------------------------------------------------- */

static enum rc decode_msg(const struct pb_msg *m, struct wire w, struct json **out,
			  struct err *err);

static enum rc broken(struct err *err)
{
	return err_set(err, RC_BAD_REQUEST, "the protobuf body is malformed");
}

static struct json *bytes_json(struct wire w)
{
	CLEANUP(mem_freep) char *text = b64_encode(w.p, w.n, false);

	return text ? js_new_str(text) : NULL;
}

/* The text inside a Quantity; false: malformed. */
static bool quantity_text(struct wire *w)
{
	struct wire rest = *w;
	struct item it;

	*w = (struct wire){0};
	while (rest.n) {
		if (!get_item(&rest, &it) || it.type != 2)
			return false;
		if (it.num == 1)
			*w = it.bytes;
	}
	return true;
}

static enum rc decode_map(struct json *obj, const struct pb_field *f, struct wire w,
			  struct err *err)
{
	struct wire value = {0};
	CLEANUP(mem_freep) char *key = NULL;
	struct item it;

	while (w.n) {
		if (!get_item(&w, &it) || it.type != 2)
			return broken(err);
		if (it.num == 1) {
			mem_free(key);
			key = mem_strndup((const char *)it.bytes.p, it.bytes.n);
		} else if (it.num == 2) {
			value = it.bytes;
		}
	}
	if (f->type == PB_QUANTITIES && !quantity_text(&value))
		return broken(err);
	struct json *map = js_ensure_object(obj, f->name);
	struct json *v = f->type == PB_BYTES_MAP ? bytes_json(value)
						 : js_new_strn((const char *)value.p, value.n);

	if (!map || js_set(map, key ? key : "", v))
		return err_set(err, RC_NOMEM, "out of memory");
	return RC_OK;
}

static enum rc decode_time(struct wire w, struct json **out, struct err *err)
{
	int64_t seconds = 0;
	char text[32];
	struct item it;

	while (w.n) {
		if (!get_item(&w, &it))
			return broken(err);
		if (it.num == 1 && it.type == 0)
			seconds = (int64_t)it.value;
	}
	if (seconds <= 0) /* Go's zero time */
		return RC_OK;
	time_rfc3339((usec_t)seconds * USEC_PER_SEC, text);
	*out = js_new_str(text);
	return *out ? RC_OK : err_set(err, RC_NOMEM, "out of memory");
}

static enum rc decode_int_or_string(struct wire w, struct json **out, struct err *err)
{
	struct wire text = {0};
	bool is_text = false;
	int64_t number = 0;
	struct item it;

	while (w.n) {
		if (!get_item(&w, &it))
			return broken(err);
		if (it.num == 1)
			is_text = it.value != 0;
		else if (it.num == 2)
			number = (int32_t)it.value;
		else if (it.num == 3)
			text = it.bytes;
	}
	if (!is_text && !number)
		return RC_OK;
	*out = is_text ? js_new_strn((const char *)text.p, text.n) : js_new_int(number);
	return *out ? RC_OK : err_set(err, RC_NOMEM, "out of memory");
}

/* *out stays NULL for a value that means "absent". */
static enum rc decode_value(const struct pb_field *f, const struct item *it, struct json **out,
			    struct err *err)
{
	bool is_number = f->type == PB_BOOL || f->type == PB_INT;

	if (it->type != (is_number ? 0 : 2))
		return broken(err);
	switch (f->type) {
	case PB_BOOL:
	case PB_INT:
		if (!it->value && !f->is_pointer)
			return RC_OK;
		*out = f->type == PB_BOOL ? js_new_bool(it->value) : js_new_int((int64_t)it->value);
		break;
	case PB_STR:
		if (!it->bytes.n && !f->is_pointer && !f->is_list)
			return RC_OK;
		*out = js_new_strn((const char *)it->bytes.p, it->bytes.n);
		break;
	case PB_BYTES:
		*out = bytes_json(it->bytes);
		break;
	case PB_MSG:
		return decode_msg(f->sub, it->bytes, out, err);
	case PB_TIME:
		return decode_time(it->bytes, out, err);
	case PB_INT_OR_STRING:
		return decode_int_or_string(it->bytes, out, err);
	default:
		return RC_OK;
	}
	return *out ? RC_OK
		    : err_set(err, RC_BAD_REQUEST, "text in the protobuf body is not UTF-8");
}

static const struct pb_field *find_field(const struct pb_msg *m, unsigned num)
{
	for (const struct pb_field *f = m->fields; f->name; f++)
		if (f->num == num)
			return f;
	return NULL;
}

static enum rc decode_field(const struct pb_msg *m, const struct item *it, struct json *obj,
			    struct err *err)
{
	const struct pb_field *f = find_field(m, it->num);
	struct json *v = NULL;

	if (!f)
		return err_set(
			err, RC_MEDIA,
			"field %u of %s is not known in protobuf here: send application/json",
			it->num, m->name);
	if (f->type == PB_SKIP)
		return RC_OK;
	if (f->type == PB_MAP || f->type == PB_BYTES_MAP || f->type == PB_QUANTITIES)
		return it->type == 2 ? decode_map(obj, f, it->bytes, err) : broken(err);
	enum rc rc = decode_value(f, it, &v, err);

	if (rc || !v)
		return rc;
	if (f->is_list) {
		struct json *list = js_get(obj, f->name);

		if (!list) {
			list = js_new_array();
			if (js_set(obj, f->name, list)) {
				js_unref(v);
				return err_set(err, RC_NOMEM, "out of memory");
			}
		}
		rc = js_append(list, v);
	} else {
		rc = js_set(obj, f->name, v);
	}
	return rc ? err_set(err, rc, "out of memory") : RC_OK;
}

static enum rc decode_msg(const struct pb_msg *m, struct wire w, struct json **out, struct err *err)
{
	CLEANUP(js_unrefp) struct json *obj = js_new_object();
	struct item it;

	if (!obj)
		return err_set(err, RC_NOMEM, "out of memory");
	while (w.n) {
		if (!get_item(&w, &it))
			return broken(err);
		enum rc rc = decode_field(m, &it, obj, err);

		if (rc)
			return rc;
	}
	*out = STEAL(obj);
	return RC_OK;
}

/* ---- envelope --------------------------------------------------------------------------------------------- */

static enum rc decode_type(struct wire w, char **api_version, char **kind, struct err *err)
{
	struct item it;

	while (w.n) {
		if (!get_item(&w, &it) || it.type != 2)
			return broken(err);
		char **field = it.num == 1 ? api_version : it.num == 2 ? kind : NULL;

		if (!field)
			continue;
		mem_free(*field);
		*field = mem_strndup((const char *)it.bytes.p, it.bytes.n);
		if (!*field)
			return err_set(err, RC_NOMEM, "out of memory");
	}
	return RC_OK;
}

enum rc proto_decode(const char *body, size_t n, struct json **out, struct err *err)
{
	CLEANUP(mem_freep) char *api_version = NULL;
	CLEANUP(mem_freep) char *kind = NULL;
	struct wire w = {(const unsigned char *)body + 4, n - 4}, raw = {0};
	struct json *obj = NULL;
	struct item it;

	if (n < 4 || memcmp(body, "k8s", 4) != 0)
		return err_set(err, RC_BAD_REQUEST, "the body is not Kubernetes' protobuf");
	while (w.n) {
		if (!get_item(&w, &it))
			return broken(err);
		if (it.num == 1 && it.type == 2 && decode_type(it.bytes, &api_version, &kind, err))
			return broken(err);
		if (it.num == 2 && it.type == 2)
			raw = it.bytes;
	}
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		if (!str_eq(kinds[i].name, kind))
			continue;
		enum rc rc = decode_msg(&kinds[i], raw, &obj, err);

		if (rc)
			return rc;
		if (js_set(obj, "kind", js_new_str(kind)) ||
		    (!str_is_empty(api_version) &&
		     js_set(obj, "apiVersion", js_new_str(api_version)))) {
			js_unref(obj);
			return err_set(err, RC_NOMEM, "out of memory");
		}
		*out = obj;
		return RC_OK;
	}
	return err_set(err, RC_MEDIA, "%s is not known in protobuf here: send application/json",
		       kind ? kind : "this kind");
}
