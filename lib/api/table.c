#include "api/table.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/sbuf.h"
#include "base/str.h"

enum { CELL_MAX = 64 * 1024, SHOWN_MAX = 3 };

typedef void cell_fn(const struct json *obj, usec_t now, struct sbuf *out);

void api_age_print(int64_t s, char out[24])
{
	int64_t m = s / 60, h = s / 3600, d = h / 24;

	if (s < -1)
		snprintf(out, 24, "<invalid>");
	else if (s < 120)
		snprintf(out, 24, "%llds", (long long)MAX(s, 0));
	else if (m < 10 && s % 60)
		snprintf(out, 24, "%lldm%llds", (long long)m, (long long)(s % 60));
	else if (m < 180)
		snprintf(out, 24, "%lldm", (long long)m);
	else if (h < 8 && m % 60)
		snprintf(out, 24, "%lldh%lldm", (long long)h, (long long)(m % 60));
	else if (h < 48)
		snprintf(out, 24, "%lldh", (long long)h);
	else if (d < 8 && h % 24)
		snprintf(out, 24, "%lldd%lldh", (long long)d, (long long)(h % 24));
	else if (d < 730)
		snprintf(out, 24, "%lldd", (long long)d);
	else if (d < 8 * 365 && d % 365)
		snprintf(out, 24, "%lldy%lldd", (long long)(d / 365), (long long)(d % 365));
	else
		snprintf(out, 24, "%lldy", (long long)(d / 365));
}

static void print_age(const char *stamp, usec_t now, struct sbuf *out)
{
	char age[24];
	usec_t t;

	if (!stamp || time_parse(stamp, &t, NULL)) {
		sbuf_adds(out, "<unknown>");
		return;
	}
	int64_t diff = (int64_t)(now - t);

	api_age_print(diff / (int64_t)USEC_PER_SEC, age);
	sbuf_adds(out, age);
}

static void add_or_none(struct sbuf *out, const char *text)
{
	sbuf_adds(out, str_is_empty(text) ? "<none>" : text);
}

static void add_lower(struct sbuf *out, const char *text)
{
	for (; text && *text; text++)
		sbuf_addc(out, *text >= 'A' && *text <= 'Z' ? (char)(*text + 32) : *text);
}

static const char *cond_status(const struct json *conditions, const char *type)
{
	for (size_t i = 0; i < js_len(conditions); i++)
		if (str_eq(js_get_str(js_item(conditions, i), "type"), type))
			return js_get_str(js_item(conditions, i), "status");
	return NULL;
}

static bool is_deleted(const struct json *obj)
{
	return js_str(js_at(obj, "metadata", "deletionTimestamp", NULL)) != NULL;
}

/* ---- pods ---- */

static void pod_ready(const struct json *obj, usec_t now, struct sbuf *out)
{
	const struct json *st = js_at(obj, "status", "containerStatuses", NULL);
	size_t ready = 0;

	for (size_t i = 0; i < js_len(st); i++)
		ready += js_get_bool(js_item(st, i), "ready", false) &&
			 js_is_object(js_at(js_item(st, i), "state", "running", NULL));
	sbuf_addf(out, "%zu/%zu", ready, js_len(js_at(obj, "spec", "containers", NULL)));
}

/* Why a container is not running; false when nothing is to be said. */
static bool container_reason(const struct json *status, char out[128])
{
	const struct json *waiting = js_at(status, "state", "waiting", NULL);
	const struct json *ended = js_at(status, "state", "terminated", NULL);
	const char *reason = js_get_str(waiting ? waiting : ended, "reason");
	int64_t signal = js_get_int(ended, "signal", 0);

	if (!str_is_empty(reason))
		snprintf(out, 128, "%s", reason);
	else if (ended && signal)
		snprintf(out, 128, "Signal:%lld", (long long)signal);
	else if (ended)
		snprintf(out, 128, "ExitCode:%lld", (long long)js_get_int(ended, "exitCode", 0));
	else
		return false;
	return true;
}

/* The first init container that has not ended well: "Init:..."; false when all are done. */
static bool init_reason(const struct json *obj, char out[160])
{
	const struct json *st = js_at(obj, "status", "initContainerStatuses", NULL);
	size_t total = js_len(js_at(obj, "spec", "initContainers", NULL));
	char why[128];

	for (size_t i = 0; i < js_len(st); i++) {
		const struct json *s = js_item(st, i);
		const struct json *ended = js_at(s, "state", "terminated", NULL);

		if (ended && js_get_int(ended, "exitCode", 0) == 0)
			continue;
		if (container_reason(s, why) && !str_eq(why, "PodInitializing"))
			snprintf(out, 160, "Init:%s", why);
		else
			snprintf(out, 160, "Init:%zu/%zu", i, total);
		return true;
	}
	return false;
}

static void pod_status(const struct json *obj, usec_t now, struct sbuf *out)
{
	const struct json *status = js_get(obj, "status");
	const struct json *st = js_get(status, "containerStatuses");
	const char *reason = js_get_str(status, "reason"), *phase = js_get_str(status, "phase");
	char text[160], why[128];
	bool running = false;

	snprintf(text, sizeof(text), "%s", !str_is_empty(reason) ? reason : phase ? phase : "");
	if (!init_reason(obj, text)) {
		for (size_t i = js_len(st); i-- > 0;) {
			const struct json *s = js_item(st, i);

			if (container_reason(s, why))
				snprintf(text, sizeof(text), "%s", why);
			else if (js_get_bool(s, "ready", false))
				running = true;
		}
		if (str_eq(text, "Completed") && running)
			snprintf(text, sizeof(text), "%s",
				 str_eq(cond_status(js_get(status, "conditions"), "Ready"), "True")
					 ? "Running"
					 : "NotReady");
	}
	if (is_deleted(obj))
		sbuf_adds(out, str_eq(reason, "NodeLost") ? "Unknown" : "Terminating");
	else
		sbuf_adds(out, text);
}

static void pod_restarts(const struct json *obj, usec_t now, struct sbuf *out)
{
	const struct json *st = js_at(obj, "status", "containerStatuses", NULL);
	const char *last = NULL;
	int64_t n = 0;

	for (size_t i = 0; i < js_len(st); i++) {
		const struct json *s = js_item(st, i);
		const char *end = js_str(js_at(s, "lastState", "terminated", "finishedAt", NULL));

		n += js_get_int(s, "restartCount", 0);
		if (end && (!last || strcmp(end, last) > 0))
			last = end;
	}
	sbuf_addf(out, "%lld", (long long)n);
	if (n && last) {
		sbuf_adds(out, " (");
		print_age(last, now, out);
		sbuf_adds(out, " ago)");
	}
}

static void pod_ip(const struct json *obj, usec_t now, struct sbuf *out)
{
	add_or_none(out, js_str(js_at(obj, "status", "podIP", NULL)));
}

static void pod_node(const struct json *obj, usec_t now, struct sbuf *out)
{
	add_or_none(out, js_str(js_at(obj, "spec", "nodeName", NULL)));
}

static void pod_nominated(const struct json *obj, usec_t now, struct sbuf *out)
{
	add_or_none(out, js_str(js_at(obj, "status", "nominatedNodeName", NULL)));
}

static void pod_gates(const struct json *obj, usec_t now, struct sbuf *out)
{
	const struct json *gates = js_at(obj, "spec", "readinessGates", NULL);
	const struct json *conditions = js_at(obj, "status", "conditions", NULL);
	size_t met = 0;

	for (size_t i = 0; i < js_len(gates); i++)
		met += str_eq(
			cond_status(conditions, js_get_str(js_item(gates, i), "conditionType")),
			"True");
	if (js_len(gates))
		sbuf_addf(out, "%zu/%zu", met, js_len(gates));
	else
		sbuf_adds(out, "<none>");
}

/* ---- nodes ---- */

static void node_status(const struct json *obj, usec_t now, struct sbuf *out)
{
	const char *ready = cond_status(js_at(obj, "status", "conditions", NULL), "Ready");

	sbuf_adds(out, !ready ? "Unknown" : str_eq(ready, "True") ? "Ready" : "NotReady");
	if (js_bool(js_at(obj, "spec", "unschedulable", NULL), false))
		sbuf_adds(out, ",SchedulingDisabled");
}

static void node_roles(const struct json *obj, usec_t now, struct sbuf *out)
{
	static const char prefix[] = "node-role.kubernetes.io/";
	size_t from = out->n;

	JS_FOREACH(it, js_at(obj, "metadata", "labels", NULL)) {
		const char *role = NULL;

		if (str_has_prefix(it.key, prefix))
			role = it.key + sizeof(prefix) - 1;
		else if (str_eq(it.key, "kubernetes.io/role"))
			role = js_str(it.value);
		if (!str_is_empty(role))
			sbuf_addf(out, "%s%s", out->n > from ? "," : "", role);
	}
	if (out->n == from)
		sbuf_adds(out, "<none>");
}

static void node_address(const struct json *obj, const char *type, struct sbuf *out)
{
	const struct json *list = js_at(obj, "status", "addresses", NULL);

	for (size_t i = 0; i < js_len(list); i++)
		if (str_eq(js_get_str(js_item(list, i), "type"), type)) {
			add_or_none(out, js_get_str(js_item(list, i), "address"));
			return;
		}
	sbuf_adds(out, "<none>");
}

static void node_internal_ip(const struct json *obj, usec_t now, struct sbuf *out)
{
	node_address(obj, "InternalIP", out);
}

static void node_external_ip(const struct json *obj, usec_t now, struct sbuf *out)
{
	node_address(obj, "ExternalIP", out);
}

/* ---- services and endpoint slices ---- */

static void service_external_ip(const struct json *obj, usec_t now, struct sbuf *out)
{
	const struct json *ips = js_at(obj, "spec", "externalIPs", NULL);

	for (size_t i = 0; i < js_len(ips); i++)
		sbuf_addf(out, "%s%s", i ? "," : "",
			  js_str(js_item(ips, i)) ? js_str(js_item(ips, i)) : "");
	if (!js_len(ips))
		sbuf_adds(out, "<none>");
}

static void service_ports(const struct json *obj, usec_t now, struct sbuf *out)
{
	const struct json *ports = js_at(obj, "spec", "ports", NULL);

	for (size_t i = 0; i < js_len(ports); i++) {
		const struct json *p = js_item(ports, i);
		const char *protocol = js_get_str(p, "protocol");
		int64_t node_port = js_get_int(p, "nodePort", 0);

		sbuf_addf(out, "%s%lld", i ? "," : "", (long long)js_get_int(p, "port", 0));
		if (node_port)
			sbuf_addf(out, ":%lld", (long long)node_port);
		sbuf_addf(out, "/%s", protocol ? protocol : "TCP");
	}
	if (!js_len(ports))
		sbuf_adds(out, "<none>");
}

static void service_selector(const struct json *obj, usec_t now, struct sbuf *out)
{
	const struct json *sel = js_at(obj, "spec", "selector", NULL);
	size_t from = out->n;

	JS_FOREACH(it, sel)
		sbuf_addf(out, "%s%s=%s", out->n > from ? "," : "", it.key,
			  js_str(it.value) ? js_str(it.value) : "");
	if (!js_len(sel))
		sbuf_adds(out, "<none>");
}

static void add_more(struct sbuf *out, size_t n)
{
	if (n > SHOWN_MAX)
		sbuf_addf(out, " + %zu more...", n - SHOWN_MAX);
}

static void slice_ports(const struct json *obj, usec_t now, struct sbuf *out)
{
	const struct json *ports = js_get(obj, "ports");

	for (size_t i = 0; i < MIN(js_len(ports), (size_t)SHOWN_MAX); i++) {
		int64_t port = js_get_int(js_item(ports, i), "port", 0);

		sbuf_addf(out, "%s%lld", i ? "," : "", (long long)port);
	}
	add_more(out, js_len(ports));
	if (!js_len(ports))
		sbuf_adds(out, "<unset>");
}

static void slice_endpoints(const struct json *obj, usec_t now, struct sbuf *out)
{
	const struct json *list = js_get(obj, "endpoints");
	size_t n = 0;

	for (size_t i = 0; i < js_len(list); i++) {
		const struct json *addresses = js_get(js_item(list, i), "addresses");

		for (size_t a = 0; a < js_len(addresses); a++, n++)
			if (n < SHOWN_MAX && js_is_string(js_item(addresses, a)))
				sbuf_addf(out, "%s%s", n ? "," : "", js_str(js_item(addresses, a)));
	}
	add_more(out, n);
	if (!n)
		sbuf_adds(out, "<unset>");
}

/* ---- storage ---- */

static void add_modes(const struct json *modes, struct sbuf *out)
{
	static const struct {
		const char *mode, *shown;
	} names[] = {{"ReadWriteOnce", "RWO"},
		     {"ReadOnlyMany", "ROX"},
		     {"ReadWriteMany", "RWX"},
		     {"ReadWriteOncePod", "RWOP"}};
	bool first = true;

	for (size_t m = 0; m < ARRAY_SIZE(names); m++)
		for (size_t i = 0; i < js_len(modes); i++) {
			if (!str_eq(js_str(js_item(modes, i)), names[m].mode))
				continue;
			sbuf_addf(out, "%s%s", first ? "" : ",", names[m].shown);
			first = false;
			break;
		}
}

static void pv_modes(const struct json *obj, usec_t now, struct sbuf *out)
{
	add_modes(js_at(obj, "spec", "accessModes", NULL), out);
}

static void pvc_modes(const struct json *obj, usec_t now, struct sbuf *out)
{
	add_modes(js_at(obj, "status", "accessModes", NULL), out);
}

static void volume_status(const struct json *obj, usec_t now, struct sbuf *out)
{
	const char *phase = js_str(js_at(obj, "status", "phase", NULL));

	sbuf_adds(out, is_deleted(obj) ? "Terminating" : phase ? phase : "");
}

static void pv_claim(const struct json *obj, usec_t now, struct sbuf *out)
{
	const struct json *ref = js_at(obj, "spec", "claimRef", NULL);
	const char *ns = js_get_str(ref, "namespace"), *name = js_get_str(ref, "name");

	if (name)
		sbuf_addf(out, "%s/%s", ns ? ns : "", name);
}

static void sc_expansion(const struct json *obj, usec_t now, struct sbuf *out)
{
	sbuf_adds(out, js_get_bool(obj, "allowVolumeExpansion", false) ? "true" : "false");
}

/* ---- RBAC ---- */

static void binding_role(const struct json *obj, usec_t now, struct sbuf *out)
{
	const struct json *ref = js_get(obj, "roleRef");
	const char *kind = js_get_str(ref, "kind"), *name = js_get_str(ref, "name");

	sbuf_addf(out, "%s/%s", kind ? kind : "", name ? name : "");
}

/* ---- the rest ---- */

static void data_count(const struct json *obj, usec_t now, struct sbuf *out)
{
	sbuf_addf(out, "%zu", js_len(js_get(obj, "data")) + js_len(js_get(obj, "binaryData")));
}

static void sa_secrets(const struct json *obj, usec_t now, struct sbuf *out)
{
	sbuf_addf(out, "%zu", js_len(js_get(obj, "secrets")));
}

static void event_last_seen(const struct json *obj, usec_t now, struct sbuf *out)
{
	const char *t = js_str(js_at(obj, "series", "lastObservedTime", NULL));

	if (!t)
		t = js_get_str(obj, "lastTimestamp");
	print_age(t ? t : js_get_str(obj, "eventTime"), now, out);
}

static void event_first_seen(const struct json *obj, usec_t now, struct sbuf *out)
{
	const char *t = js_get_str(obj, "firstTimestamp");

	print_age(t ? t : js_get_str(obj, "eventTime"), now, out);
}

static void event_object(const struct json *obj, usec_t now, struct sbuf *out)
{
	const struct json *ref = js_get(obj, "involvedObject");
	const char *name = js_get_str(ref, "name");

	add_lower(out, js_get_str(ref, "kind"));
	sbuf_addf(out, "/%s", name ? name : "");
}

static void event_source(const struct json *obj, usec_t now, struct sbuf *out)
{
	const char *component = js_str(js_at(obj, "source", "component", NULL));
	const char *host = js_str(js_at(obj, "source", "host", NULL));

	if (!component)
		component = js_get_str(obj, "reportingComponent");
	sbuf_adds(out, component ? component : "");
	if (!str_is_empty(host))
		sbuf_addf(out, ", %s", host);
}

static void event_message(const struct json *obj, usec_t now, struct sbuf *out)
{
	struct str text = str_trim(str_of(js_get_str(obj, "message")));

	sbuf_add(out, text.p ? text.p : "", text.n);
}

static void event_count(const struct json *obj, usec_t now, struct sbuf *out)
{
	int64_t n = js_int(js_at(obj, "series", "count", NULL), js_get_int(obj, "count", 1));

	sbuf_addf(out, "%lld", (long long)MAX(n, 1));
}

static void revision_controller(const struct json *obj, usec_t now, struct sbuf *out)
{
	const struct json *owners = js_at(obj, "metadata", "ownerReferences", NULL);

	for (size_t i = 0; i < js_len(owners); i++) {
		const struct json *o = js_item(owners, i);
		const char *version = js_get_str(o, "apiVersion"), *name = js_get_str(o, "name");
		const char *slash = version ? strchr(version, '/') : NULL;

		if (!js_get_bool(o, "controller", false))
			continue;
		add_lower(out, js_get_str(o, "kind"));
		if (slash)
			sbuf_addf(out, ".%.*s", (int)(slash - version), version);
		sbuf_addf(out, "/%s", name ? name : "");
		return;
	}
	sbuf_adds(out, "<none>");
}

static void allocation_owner(const struct json *obj, usec_t now, struct sbuf *out)
{
	const struct json *o = js_at(obj, "spec", "owner", NULL);
	const char *ns = js_get_str(o, "namespace"), *name = js_get_str(o, "name");

	add_lower(out, js_get_str(o, "kind"));
	if (ns)
		sbuf_addf(out, "/%s", ns);
	sbuf_addf(out, "/%s", name ? name : "");
}

/* A number, a share, or neither: as kubectl shows it. */
static void number_or_share(const struct json *v, struct sbuf *out)
{
	if (js_type(v) == JS_INT)
		sbuf_addf(out, "%lld", (long long)js_int(v, 0));
	else
		sbuf_adds(out, js_is_string(v) ? js_str(v) : "N/A");
}

static void pdb_min_available(const struct json *obj, usec_t now, struct sbuf *out)
{
	number_or_share(js_at(obj, "spec", "minAvailable", NULL), out);
}

static void pdb_max_unavailable(const struct json *obj, usec_t now, struct sbuf *out)
{
	number_or_share(js_at(obj, "spec", "maxUnavailable", NULL), out);
}

/* "used/hard" of what a quota counts, limits and the rest apart. */
static void quota_used(const struct json *obj, bool is_limit, struct sbuf *out)
{
	const struct json *hard = js_at(obj, "status", "hard", NULL);
	const struct json *used = js_at(obj, "status", "used", NULL);
	const char *sep = "";

	for (const char *k = js_next_key(hard, NULL); k; k = js_next_key(hard, k)) {
		const char *u = js_get_str(used, k), *h = js_get_str(hard, k);

		if ((strstr(k, "limits.") != NULL) != is_limit)
			continue;
		sbuf_addf(out, "%s%s: %s/%s", sep, k, u ? u : "0", h ? h : "0");
		sep = ", ";
	}
}

static void quota_requests(const struct json *obj, usec_t now, struct sbuf *out)
{
	quota_used(obj, false, out);
}

static void quota_limits(const struct json *obj, usec_t now, struct sbuf *out)
{
	quota_used(obj, true, out);
}

static const struct {
	const char *name;
	cell_fn *fn;
} computed[] = {
	{"allocation-owner", allocation_owner},
	{"data-count", data_count},
	{"event-count", event_count},
	{"event-first-seen", event_first_seen},
	{"event-last-seen", event_last_seen},
	{"event-message", event_message},
	{"event-object", event_object},
	{"event-source", event_source},
	{"node-external-ip", node_external_ip},
	{"node-internal-ip", node_internal_ip},
	{"node-roles", node_roles},
	{"node-status", node_status},
	{"pdb-max-unavailable", pdb_max_unavailable},
	{"pdb-min-available", pdb_min_available},
	{"pod-ip", pod_ip},
	{"pod-node", pod_node},
	{"pod-nominated-node", pod_nominated},
	{"pod-readiness-gates", pod_gates},
	{"pod-ready", pod_ready},
	{"pod-restarts", pod_restarts},
	{"pod-status", pod_status},
	{"pv-access-modes", pv_modes},
	{"pv-claim", pv_claim},
	{"pv-status", volume_status},
	{"pvc-access-modes", pvc_modes},
	{"pvc-status", volume_status},
	{"quota-limits", quota_limits},
	{"quota-requests", quota_requests},
	{"revision-controller", revision_controller},
	{"rolebinding-role", binding_role},
	{"sa-secrets", sa_secrets},
	{"service-external-ip", service_external_ip},
	{"service-ports", service_ports},
	{"service-selector", service_selector},
	{"slice-endpoints", slice_endpoints},
	{"slice-ports", slice_ports},
	{"storageclass-expansion", sc_expansion},
};

bool api_table_is_computed(const char *fn)
{
	for (size_t i = 0; i < ARRAY_SIZE(computed); i++)
		if (str_eq(computed[i].name, fn))
			return true;
	return false;
}

static struct json *computed_cell(const char *name, const struct json *obj, usec_t now)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(CELL_MAX);

	for (size_t i = 0; i < ARRAY_SIZE(computed); i++)
		if (str_eq(computed[i].name, name))
			computed[i].fn(obj, now, &b);
	if (b.rc == RC_NOMEM)
		return NULL;
	return js_new_str(b.p ? b.p : "");
}

struct json *api_table_cell(const struct api_column *c, const struct json *obj, usec_t now)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(CELL_MAX);
	const struct json *v;

	if (c->fn)
		return computed_cell(c->fn, obj, now);
	v = api_path_get(obj, c->path);
	if (str_eq(c->type, "date")) {
		print_age(js_str(v), now, &b);
		return b.rc ? NULL : js_new_str(sbuf_str(&b));
	}
	if (!v || js_is_null(v))
		return js_new_null();
	if (str_eq(c->type, "string") && !js_is_string(v)) {
		js_print(v, &b, false);
		return b.rc == RC_NOMEM ? NULL : js_new_str(b.p ? b.p : "");
	}
	return js_ref(v);
}
