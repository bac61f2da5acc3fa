/* What is special about single kinds: one table. */
#include "cluster/apiserver/apisrv_int.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "base/b64.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"
#include "cluster/apiserver/quota.h"
#include "virt/names.h"

bool kind_is_custom(const struct api_kind *k)
{
	return strchr(k->group, '.') && !str_has_suffix(k->group, ".k8s.io");
}

static enum rc set_default(struct json *obj, const char *key, struct json *value)
{
	if (js_get(obj, key)) {
		js_unref(value);
		return RC_OK;
	}
	return js_set(obj, key, value);
}

static enum rc initial_phase(struct change *ch, const char *phase)
{
	return js_set(ch->obj, "status", js_pack("{s:s}", "phase", phase));
}

/* ---- Namespace ---------------------------------------------------------------------------------- */

static enum rc namespace_create(struct change *ch, struct err *err)
{
	struct json *labels = js_ensure_object(js_get(ch->obj, "metadata"), "labels");
	enum rc rc = js_set(ch->obj, "spec", js_pack("{s:[s]}", "finalizers", "kubernetes"));

	(void)err;
	if (!rc)
		rc = initial_phase(ch, "Active");
	if (!rc)
		rc = labels ? js_set(labels, "kubernetes.io/metadata.name", js_new_str(ch->name))
			    : RC_NOMEM;
	return rc;
}

static enum rc namespace_update(struct change *ch, struct err *err)
{
	(void)err;
	/* Only the server itself takes its finalizer away. */
	if (str_eq(ch->c->user.name, apisrv_self.name))
		return RC_OK;
	struct json *spec = js_get(ch->old, "spec");

	return spec ? js_set(ch->obj, "spec", js_ref(spec)) : RC_OK;
}

static bool namespace_may_delete(struct change *ch)
{
	static const char *const kept[] = {"default", "kube-system", "kube-public",
					   "kube-node-lease"};

	for (size_t i = 0; i < ARRAY_SIZE(kept); i++) {
		if (strcmp(ch->name, kept[i]) == 0) {
			call_forbidden(ch->c, ch->res, ch->name,
				       "this namespace may not be deleted", NULL);
			return false;
		}
	}
	return true;
}

static enum rc namespace_mark_deleted(struct json *obj)
{
	return js_set(obj, "status", js_pack("{s:s}", "phase", "Terminating"));
}

/* ---- Pod ---------------------------------------------------------------------------------------- */

static bool has_resources(const struct json *containers, const char *what, bool *all_equal)
{
	bool any = false;

	for (size_t i = 0; i < js_len(containers); i++) {
		const struct json *r = js_get(js_item(containers, i), "resources");

		if (js_len(js_get(r, what)))
			any = true;
		if (!js_equal(js_get(r, "limits"), js_get(r, "requests")) &&
		    !(js_get(r, "limits") && !js_get(r, "requests")))
			*all_equal = false;
		if (!js_at(r, "limits", "cpu", NULL) || !js_at(r, "limits", "memory", NULL))
			*all_equal = false;
	}
	return any;
}

static const char *pod_qos(const struct json *pod)
{
	const struct json *containers = js_at(pod, "spec", "containers", NULL);
	bool equal = true;
	bool requests = has_resources(containers, "requests", &equal);
	bool limits = has_resources(containers, "limits", &equal);

	if (!requests && !limits)
		return "BestEffort";
	return equal && limits ? "Guaranteed" : "Burstable";
}

static enum rc pod_create(struct change *ch, struct err *err)
{
	struct json *spec = js_ensure_object(ch->obj, "spec");
	enum rc rc = spec ? RC_OK : RC_NOMEM;

	(void)err;
	if (!rc)
		rc = set_default(spec, "terminationGracePeriodSeconds", js_new_int(30));
	if (!rc)
		rc = set_default(spec, "restartPolicy", js_new_str("Always"));
	if (!rc)
		rc = set_default(spec, "schedulerName", js_new_str("default-scheduler"));
	if (!rc)
		rc = js_set(
			ch->obj, "status",
			js_pack("{s:s, s:s}", "phase", "Pending", "qosClass", pod_qos(ch->obj)));
	return rc;
}

/* Without what may change: the spec as it must stay. */
static struct json *frozen_pod_spec(const struct json *pod)
{
	static const char *const free_fields[] = {"tolerations", "activeDeadlineSeconds",
						  "terminationGracePeriodSeconds",
						  "schedulingGates"};
	struct json *spec = js_copy(js_get(pod, "spec"));

	for (size_t i = 0; i < ARRAY_SIZE(free_fields); i++)
		js_del(spec, free_fields[i]);
	for (size_t i = 0; i < js_len(js_get(spec, "containers")); i++)
		js_del(js_item(js_get(spec, "containers"), i), "image");
	for (size_t i = 0; i < js_len(js_get(spec, "initContainers")); i++)
		js_del(js_item(js_get(spec, "initContainers"), i), "image");
	return spec;
}

/* Whose pod it is decides what a quota charges: nobody may say that it is another VM's. */
static void check_vm_labels(struct change *ch)
{
	static const char *const labels[] = {LABEL_CREATED_BY, LABEL_MIGRATION_UID};

	if (apisrv_user_is_component(&ch->c->user))
		return;
	for (size_t i = 0; i < ARRAY_SIZE(labels); i++) {
		const char *was = js_str(js_at(ch->old, "metadata", "labels", labels[i], NULL));
		const char *is = js_str(js_at(ch->obj, "metadata", "labels", labels[i], NULL));

		if (!str_eq(was, is))
			fe_forbidden(&ch->fe, "metadata.labels",
				     "the label %s of a pod is the controllers' to set", labels[i]);
	}
}

/* A LimitRange's default may have come beside a request that is larger. */
static void check_requests(struct change *ch, const char *list)
{
	const struct json *all = js_at(ch->obj, "spec", list, NULL);
	static const char *const names[] = {"cpu", "memory"};

	for (size_t i = 0; i < js_len(all); i++)
		for (size_t k = 0; k < ARRAY_SIZE(names); k++) {
			const struct json *r = js_get(js_item(all, i), "resources");
			const char *request = js_str(js_at(r, "requests", names[k], NULL));
			const char *limit = js_str(js_at(r, "limits", names[k], NULL));
			struct api_quantity a, b;
			char path[64];

			if (!request || !limit || api_quantity_parse(request, &a, NULL) ||
			    api_quantity_parse(limit, &b, NULL) || api_quantity_cmp(&a, &b) <= 0)
				continue;
			snprintf(path, sizeof(path), "spec.%s[%zu].resources.requests", list, i);
			fe_invalid(&ch->fe, path, request,
				   "must be less than or equal to %s limit of %s", names[k], limit);
		}
}

static void pod_validate(struct change *ch)
{
	check_vm_labels(ch);
	if (ch->op == HOOK_CREATE) {
		check_requests(ch, "containers");
		check_requests(ch, "initContainers");
	}
	if (ch->op != HOOK_UPDATE || ch->status_only)
		return;
	CLEANUP(js_unrefp) struct json *was = frozen_pod_spec(ch->old);
	CLEANUP(js_unrefp) struct json *is = frozen_pod_spec(ch->obj);

	if (!was || !is)
		ch->fe.rc = RC_NOMEM;
	else if (!js_equal(was, is))
		fe_forbidden(
			&ch->fe, "spec",
			"pod updates may not change fields other than `spec.containers[*].image`,"
			"`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
			"additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to "
			"be set to 1 if it was previously negative)");
}

static int64_t pod_grace(const struct json *pod, int64_t request)
{
	const char *phase = js_str(js_at(pod, "status", "phase", NULL));

	if (request == 0)
		return 0;
	/* Nobody runs it, or it runs no more: there is nothing to wait for. */
	if (str_is_empty(js_str(js_at(pod, "spec", "nodeName", NULL))) ||
	    str_eq(phase, "Succeeded") || str_eq(phase, "Failed"))
		return 0;
	if (request > 0)
		return request;
	return js_int(js_at(pod, "spec", "terminationGracePeriodSeconds", NULL), 30);
}

/* ---- Service ------------------------------------------------------------------------------------- */

/* What the other services hold. */
struct used {
	const char *self; /* "ns/name" to leave out */
	uint32_t ip;	  /* asked about */
	int64_t port;
	bool ip_taken, port_taken;
};

static bool parse_ip(const char *text, uint32_t *out)
{
	struct in_addr a;

	if (!text || inet_pton(AF_INET, text, &a) != 1)
		return false;
	*out = ntohl(a.s_addr);
	return true;
}

static void look_at(struct used *u, const struct json *svc)
{
	const struct json *spec = js_get(svc, "spec"), *ports = js_get(spec, "ports");
	uint32_t ip;

	if (u->ip && parse_ip(js_get_str(spec, "clusterIP"), &ip) && ip == u->ip)
		u->ip_taken = true;
	for (size_t i = 0; u->port && i < js_len(ports); i++)
		if (js_get_int(js_item(ports, i), "nodePort", 0) == u->port)
			u->port_taken = true;
}

static void scan_services(struct change *ch, struct used *u)
{
	char self[2 * LIMIT_NAME_BYTES + 2];
	struct store_iter it;
	struct obj *o;

	snprintf(self, sizeof(self), "%s/%s", ch->ns, ch->name);
	store_iter_init(&it, ch->c->srv->store, "services", NULL);
	while ((o = store_iter_next_newest(&it))) {
		CLEANUP(js_unrefp) struct json *svc = obj_json(o);

		if (svc && strcmp(obj_rest(o), self) != 0)
			look_at(u, svc);
	}
}

static bool ip_is_taken(struct change *ch, uint32_t ip)
{
	struct used u = {.ip = ip};

	scan_services(ch, &u);
	return u.ip_taken;
}

/* The lowest 256 addresses are for those that name one (10.96.0.1, 10.96.0.10). */
static bool free_ip(struct change *ch, char out[INET_ADDRSTRLEN])
{
	const struct apisrv *s = ch->c->srv;
	uint32_t size = ~s->service_mask;

	for (uint32_t i = size > 1024 ? 256 : 1; i < size; i++) {
		struct in_addr a = {htonl(s->service_net + i)};

		if (ip_is_taken(ch, s->service_net + i))
			continue;
		return inet_ntop(AF_INET, &a, out, INET_ADDRSTRLEN) != NULL;
	}
	return false;
}

static enum rc service_ip(struct change *ch, struct json *spec, struct err *err)
{
	const struct apisrv *s = ch->c->srv;
	const char *want = js_get_str(spec, "clusterIP");
	char text[INET_ADDRSTRLEN];
	uint32_t ip;

	if (str_is_empty(want)) {
		if (!free_ip(ch, text))
			return err_set(err, RC_IO, "failed to allocate IP: the range is full");
		if (js_set(spec, "clusterIP", js_new_str(text)))
			return RC_NOMEM;
	} else if (strcmp(want, "None") != 0) {
		if (!parse_ip(want, &ip))
			fe_invalid(&ch->fe, "spec.clusterIPs[0]", want,
				   "must be empty, 'None', or a valid IP address");
		else if ((ip & s->service_mask) != s->service_net || ip == s->service_net)
			fe_invalid(
				&ch->fe, "spec.clusterIPs", want,
				"failed to allocate IP %s: the provided IP is not in the valid range",
				want);
		else if (ip_is_taken(ch, ip))
			fe_invalid(&ch->fe, "spec.clusterIPs", want,
				   "failed to allocate IP %s: provided IP is already allocated",
				   want);
	}
	return js_set(spec, "clusterIPs", js_pack("[s]", js_get_str(spec, "clusterIP")));
}

static bool port_is_taken(struct change *ch, const struct json *ports, size_t self, int64_t port)
{
	struct used u = {.port = port};

	for (size_t i = 0; i < js_len(ports); i++)
		if (i != self && js_get_int(js_item(ports, i), "nodePort", 0) == port)
			return true;
	scan_services(ch, &u);
	return u.port_taken;
}

static enum rc node_port(struct change *ch, struct json *ports, size_t i, struct err *err)
{
	const struct apisrv *s = ch->c->srv;
	struct json *p = js_item(ports, i);
	int64_t want = js_get_int(p, "nodePort", 0);
	char field[48], text[24];

	if (!want) {
		int span = s->port_max - s->port_min + 1;
		/* Spread over the range by what asks, so that neighbours do not collide. */
		int start = (int)(str_hash(ch->name, strlen(ch->name)) % (unsigned)span);

		for (int k = 0; k < span; k++) {
			int port = s->port_min + (start + k) % span;

			if (!port_is_taken(ch, ports, i, port))
				return js_set(p, "nodePort", js_new_int(port));
		}
		return err_set(err, RC_IO, "failed to allocate a nodePort: range is full");
	}
	snprintf(field, sizeof(field), "spec.ports[%zu].nodePort", i);
	snprintf(text, sizeof(text), "%lld", (long long)want);
	if (want < s->port_min || want > s->port_max)
		fe_add(&ch->fe, FE_INVALID, field,
		       "Invalid value: %s: provided port is not in the valid range. The range of valid ports is %d-%d",
		       text, s->port_min, s->port_max);
	else if (port_is_taken(ch, ports, i, want))
		fe_add(&ch->fe, FE_INVALID, field,
		       "Invalid value: %s: provided port is already allocated", text);
	return RC_OK;
}

static enum rc service_ports(struct change *ch, struct json *spec, struct err *err)
{
	struct json *ports = js_get(spec, "ports");
	bool exposed = str_eq(js_get_str(spec, "type"), "NodePort");
	enum rc rc = RC_OK;

	for (size_t i = 0; i < js_len(ports) && !rc; i++) {
		struct json *p = js_item(ports, i);

		rc = set_default(p, "protocol", js_new_str("TCP"));
		if (!rc)
			rc = set_default(p, "targetPort", js_new_int(js_get_int(p, "port", 0)));
		if (!rc && exposed)
			rc = node_port(ch, ports, i, err);
	}
	return rc;
}

static enum rc service_common(struct change *ch, struct err *err)
{
	struct json *spec = js_ensure_object(ch->obj, "spec");
	enum rc rc = spec ? set_default(spec, "type", js_new_str("ClusterIP")) : RC_NOMEM;

	if (rc)
		return rc;
	const char *type = js_get_str(spec, "type");

	if (str_eq(type, "LoadBalancer") || str_eq(type, "ExternalName"))
		fe_invalid(&ch->fe, "spec.type", type,
			   "not supported by Ferry yet: use ClusterIP or NodePort");
	rc = service_ip(ch, spec, err);
	if (!rc)
		rc = service_ports(ch, spec, err);
	if (!rc)
		rc = set_default(spec, "sessionAffinity", js_new_str("None"));
	if (!rc)
		rc = set_default(spec, "ipFamilies", js_pack("[s]", "IPv4"));
	if (!rc)
		rc = set_default(spec, "ipFamilyPolicy", js_new_str("SingleStack"));
	if (!rc)
		rc = set_default(spec, "internalTrafficPolicy", js_new_str("Cluster"));
	if (!rc && str_eq(type, "NodePort"))
		rc = set_default(spec, "externalTrafficPolicy", js_new_str("Cluster"));
	return rc;
}

static enum rc service_create(struct change *ch, struct err *err)
{
	enum rc rc = service_common(ch, err);

	return rc ? rc : js_set(ch->obj, "status", js_pack("{s:{}}", "loadBalancer"));
}

/* A client that leaves allocated values out keeps them. */
static enum rc keep_ports(struct json *spec, const struct json *old)
{
	struct json *ports = js_get(spec, "ports"), *had = js_get(old, "ports");

	for (size_t i = 0; i < js_len(ports); i++) {
		struct json *p = js_item(ports, i);
		const char *proto = js_get_str(p, "protocol");

		for (size_t k = 0; k < js_len(had) && !js_get_int(p, "nodePort", 0); k++) {
			const struct json *h = js_item(had, k);

			if (js_get_int(h, "port", 0) == js_get_int(p, "port", -1) &&
			    str_eq(js_get_str(h, "protocol"), proto ? proto : "TCP") &&
			    js_get(h, "nodePort") &&
			    js_set(p, "nodePort", js_ref(js_get(h, "nodePort"))))
				return RC_NOMEM;
		}
	}
	return RC_OK;
}

static void drop_ports(struct json *spec)
{
	struct json *ports = js_get(spec, "ports");

	for (size_t i = 0; i < js_len(ports); i++)
		js_del(js_item(ports, i), "nodePort");
	js_del(spec, "externalTrafficPolicy");
}

static enum rc service_update(struct change *ch, struct err *err)
{
	struct json *spec = js_ensure_object(ch->obj, "spec");
	const struct json *old = js_get(ch->old, "spec");
	const char *had = js_get_str(old, "clusterIP"), *want = js_get_str(spec, "clusterIP");
	enum rc rc = spec ? RC_OK : RC_NOMEM;

	if (ch->status_only)
		return RC_OK;
	if (!rc && str_is_empty(want) && had)
		rc = js_set(spec, "clusterIP", js_new_str(had));
	else if (!rc && !str_eq(want, had))
		fe_add(&ch->fe, FE_INVALID, "spec.clusterIPs[0]",
		       "Invalid value: [\"%s\"]: may not change once set", want);
	if (!rc && str_eq(js_get_str(spec, "type"), "NodePort"))
		rc = keep_ports(spec, old);
	else if (!rc && str_eq(js_get_str(old, "type"), "NodePort"))
		drop_ports(spec);
	return rc ? rc : service_common(ch, err);
}

/* ---- Secret -------------------------------------------------------------------------------------- */

static enum rc secret_canonical(struct json *obj)
{
	struct json *plain = js_get(obj, "stringData");

	JS_FOREACH(it, plain) {
		const char *text = js_str(it.value);
		CLEANUP(mem_freep) char *b64 = text ? b64_encode(text, strlen(text), false) : NULL;
		struct json *data = js_ensure_object(obj, "data");

		if (text && (!b64 || !data || js_set(data, it.key, js_new_str(b64))))
			return RC_NOMEM;
	}
	js_del(obj, "stringData");
	return RC_OK;
}

static enum rc secret_fold(struct change *ch, struct err *err)
{
	enum rc rc = set_default(ch->obj, "type", js_new_str("Opaque"));

	(void)err;
	return rc ? rc : secret_canonical(ch->obj);
}

static void data_validate(struct change *ch)
{
	if (ch->op != HOOK_UPDATE || !js_get_bool(ch->old, "immutable", false))
		return;
	if (!js_equal(js_get(ch->old, "data"), js_get(ch->obj, "data")))
		fe_forbidden(&ch->fe, "data", "field is immutable when `immutable` is set");
	if (!js_get_bool(ch->obj, "immutable", false))
		fe_forbidden(&ch->fe, "immutable", "field is immutable when `immutable` is set");
}

#define SA_TOKEN "kubernetes.io/service-account-token"

static void secret_validate(struct change *ch)
{
	data_validate(ch);
	if (ch->op == HOOK_CREATE && str_eq(js_get_str(ch->obj, "type"), SA_TOKEN))
		fe_invalid(
			&ch->fe, "type", SA_TOKEN,
			"not supported by Ferry: a token in a Secret never ends; ask for one that "
			"does with `kubectl create token`");
	if (ch->op == HOOK_UPDATE && !js_equal(js_get(ch->old, "type"), js_get(ch->obj, "type")))
		fe_invalid(&ch->fe, "type", js_get_str(ch->obj, "type"), "field is immutable");
}

/* ---- volumes -------------------------------------------------------------------------------------- */

static enum rc volume_create(struct change *ch, struct err *err)
{
	struct json *spec = js_ensure_object(ch->obj, "spec");

	(void)err;
	enum rc rc = spec ? set_default(spec, "volumeMode", js_new_str("Filesystem")) : RC_NOMEM;

	return rc ? rc : initial_phase(ch, "Pending");
}

/* ---- VirtualMachineInstance ----------------------------------------------------------------------- */

/* It has no status subresource: its status is the components' to write, through the main resource. */
static enum rc vmi_create(struct change *ch, struct err *err)
{
	(void)err;
	if (!apisrv_user_is_component(&ch->c->user))
		js_del(ch->obj, "status");
	return RC_OK;
}

static enum rc vmi_update(struct change *ch, struct err *err)
{
	const struct json *had = js_get(ch->old, "status");

	(void)err;
	if (apisrv_user_is_component(&ch->c->user))
		return RC_OK;
	js_del(ch->obj, "status");
	return had ? js_set(ch->obj, "status", js_ref(had)) : RC_OK;
}

static void vmi_validate(struct change *ch)
{
	/* The admission hook, where there is one, words it as KubeVirt's webhook does. */
	if (ch->op != HOOK_UPDATE || ch->res->hook || apisrv_user_is_component(&ch->c->user))
		return;
	if (!js_equal(js_get(ch->old, "spec"), js_get(ch->obj, "spec")))
		fe_cause(&ch->fe, "FieldValueNotSupported", "spec",
			 "update of VMI object is restricted");
}

/* ---- the table -------------------------------------------------------------------------------------- */

static const struct strategy strategies[] = {
	{.table = "namespaces",
	 .prepare_create = namespace_create,
	 .prepare_update = namespace_update,
	 .may_delete = namespace_may_delete,
	 .mark_deleted = namespace_mark_deleted},
	{.table = "pods",
	 .prepare_create = pod_create,
	 .validate = pod_validate,
	 .grace = pod_grace,
	 .returns_deleted = true},
	{.table = "services",
	 .prepare_create = service_create,
	 .prepare_update = service_update,
	 .returns_deleted = true},
	{.table = "storageclasses.storage.k8s.io", .returns_deleted = true},
	{.table = "secrets",
	 .prepare_create = secret_fold,
	 .prepare_update = secret_fold,
	 .validate = secret_validate,
	 .canonical = secret_canonical},
	{.table = "configmaps", .validate = data_validate},
	{.table = "events", .validate = view_validate},
	{.table = "resourcequotas", .validate = quota_validate},
	{.table = "limitranges",
	 .prepare_create = limitrange_prepare,
	 .prepare_update = limitrange_prepare,
	 .validate = limitrange_validate},
	{.table = "persistentvolumeclaims",
	 .prepare_create = volume_create,
	 .returns_deleted = true},
	{.table = "persistentvolumes", .prepare_create = volume_create, .returns_deleted = true},
	{.table = "virtualmachineinstances.kubevirt.io",
	 .prepare_create = vmi_create,
	 .prepare_update = vmi_update,
	 .validate = vmi_validate},
	{.table = TABLE_ROLES, .validate = rbac_validate},
	{.table = TABLE_CLUSTER_ROLES, .validate = rbac_validate},
	{.table = TABLE_BINDINGS,
	 .prepare_create = rbac_prepare,
	 .prepare_update = rbac_prepare,
	 .validate = rbac_validate},
	{.table = TABLE_CLUSTER_BINDS,
	 .prepare_create = rbac_prepare,
	 .prepare_update = rbac_prepare,
	 .validate = rbac_validate},
};

const struct strategy *strategy_find(const char *table)
{
	static const struct strategy plain = {0};

	for (size_t i = 0; i < ARRAY_SIZE(strategies); i++)
		if (strcmp(strategies[i].table, table) == 0)
			return &strategies[i];
	return &plain;
}
