/* EndpointSlices of Services.
 *
 * One endpoint per address.  While a VM moves, two pods have its one address: together they are one
 * endpoint, ready when either is.  An address that outlives its pod is referred to by the pod's owner and
 * names no node, so a move changes nothing in the slice. */
#include <stdlib.h>

#include "api/api.h"
#include "api/labels.h"
#include "api/meta.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/try.h"
#include "cluster/controllers/controllers.h"
#include "json/json.h"

#define LABEL_SERVICE	 "kubernetes.io/service-name"
#define LABEL_MANAGED_BY "endpointslice.kubernetes.io/managed-by"
#define MANAGER		 "endpointslice-controller.k8s.io"
#define ANN_ADDRESS	 "ferry.dev/address" /* the pod's address belongs to its owner */
#define SLICE_MAX	 1000

struct backend {
	const char *ip;
	const Pod *pod; /* the one that speaks for the address: a ready one if there is any */
	bool is_ready, is_serving, is_terminating;
};

struct backends {
	struct backend *items;
	size_t n, cap;
};

static bool pod_is_ready(const Pod *pod)
{
	return API_COND_IS(&pod->status, PodCondition, "Ready", "True");
}

static bool pod_is_final(const Pod *pod)
{
	return str_eq(pod->status.phase, "Succeeded") || str_eq(pod->status.phase, "Failed");
}

static enum rc add_backend(struct backends *b, const Pod *pod)
{
	bool ready = pod_is_ready(pod), going = pod->metadata.deletionTimestamp != NULL;
	struct backend *be = NULL;

	for (size_t i = 0; i < b->n && !be; i++)
		if (str_eq(b->items[i].ip, pod->status.podIP))
			be = &b->items[i];
	if (!be) {
		if (!mem_grow((void **)&b->items, &b->cap, b->n, sizeof(*b->items)))
			return RC_NOMEM;
		be = &b->items[b->n++];
		*be = (struct backend){.ip = pod->status.podIP, .pod = pod, .is_terminating = true};
	}
	if (ready && !be->is_serving)
		be->pod = pod;
	be->is_ready |= ready && !going;
	be->is_serving |= ready;
	be->is_terminating &= going;
	return RC_OK;
}

static int by_ip(const void *a, const void *b)
{
	const struct backend *x = a, *y = b;

	return strcmp(x->ip, y->ip);
}

static enum rc collect(const struct view *v, const Service *svc, struct backends *b)
{
	CLEANUP(api_selector_freep) struct api_selector *sel = NULL;
	struct kiter it;

	TRY(api_selector_from_map(&svc->spec.selector, &sel));
	view_list(v, &api_kind_Pod, svc->metadata.namespace, &it);
	for (const Pod *pod; (pod = view_next(&it));)
		if (!pod_is_final(pod) && !str_is_empty(pod->status.podIP) &&
		    api_selector_matches(sel, &pod->metadata.labels))
			TRY(add_backend(b, pod));
	if (b->n)
		qsort(b->items, b->n, sizeof(*b->items), by_ip);
	return RC_OK;
}

/* ---- ports ---- */

static int64_t named_port(const struct backends *b, const char *name, const char *protocol)
{
	for (size_t i = 0; i < b->n; i++) {
		const PodSpec *ps = &b->items[i].pod->spec;

		for (size_t c = 0; c < ps->n_containers; c++)
			for (size_t p = 0; p < ps->containers[c].n_ports; p++) {
				const ContainerPort *cp = &ps->containers[c].ports[p];

				if (str_eq(cp->name, name) &&
				    str_eq(cp->protocol ? cp->protocol : "TCP", protocol))
					return API_GET(cp, containerPort, 0);
			}
	}
	return 0;
}

static int64_t target_port(const ServicePort *sp, const struct backends *b)
{
	const char *protocol = sp->protocol ? sp->protocol : "TCP", *name = js_str(sp->targetPort);
	int64_t n;

	if (js_type(sp->targetPort) == JS_INT && js_int(sp->targetPort, 0) > 0)
		return js_int(sp->targetPort, 0);
	if (!str_is_empty(name))
		return str_to_i64(name, 1, 65535, &n, NULL) == RC_OK
			       ? n
			       : named_port(b, name, protocol);
	return API_GET(sp, port, 0);
}

static enum rc set_ports(EndpointSlice *s, const Service *svc, const struct backends *b)
{
	for (size_t i = 0; i < svc->spec.n_ports; i++) {
		const ServicePort *sp = &svc->spec.ports[i];
		int64_t port = target_port(sp, b);

		if (!port)
			continue; /* a name that no backend has */
		EndpointPort *p = api_append(&s->ports, &s->n_ports, sizeof(*p));

		if (!p)
			return RC_NOMEM;
		TRY(api_set_str(&p->name, sp->name ? sp->name : ""));
		TRY(api_set_str(&p->protocol, sp->protocol ? sp->protocol : "TCP"));
		TRY(api_set_str(&p->appProtocol, sp->appProtocol));
		API_SET(p, port, port);
	}
	return RC_OK;
}

/* ---- endpoints ---- */

static enum rc set_target(Endpoint *e, const Pod *pod)
{
	const OwnerReference *o = api_controller_of(&pod->metadata);
	bool moves = o && api_map_has(&pod->metadata.annotations, ANN_ADDRESS);
	ObjectReference *ref = api_ensure(&api_type_ObjectReference, &e->targetRef);

	if (!ref)
		return RC_NOMEM;
	if (!moves)
		TRY(api_set_str(&e->nodeName, pod->spec.nodeName));
	TRY(api_set_str(&ref->kind, moves ? o->kind : "Pod"));
	TRY(api_set_str(&ref->namespace, pod->metadata.namespace));
	TRY(api_set_str(&ref->name, moves ? o->name : pod->metadata.name));
	return api_set_str(&ref->uid, moves ? o->uid : pod->metadata.uid);
}

static enum rc add_endpoint(EndpointSlice *s, const Service *svc, const struct backend *be)
{
	bool publish = API_GET(&svc->spec, publishNotReadyAddresses, false);
	Endpoint *e = api_append(&s->endpoints, &s->n_endpoints, sizeof(*e));
	EndpointConditions *c = e ? api_ensure(&api_type_EndpointConditions, &e->conditions) : NULL;

	if (!c)
		return RC_NOMEM;
	TRY(api_append_str(&e->addresses, &e->n_addresses, be->ip));
	API_SET(c, ready, be->is_ready || publish);
	API_SET(c, serving, be->is_serving || publish);
	API_SET(c, terminating, be->is_terminating);
	if (svc->spec.clusterIP && str_eq(svc->spec.clusterIP, "None"))
		TRY(api_set_str(&e->hostname,
				be->pod->spec.subdomain ? be->pod->spec.hostname : NULL));
	return set_target(e, be->pod);
}

static enum rc slice_name(const Service *svc, size_t i, char **out)
{
	CLEANUP(mem_freep) char *seed = mem_printf("%s/%zu", svc->metadata.uid, i);
	char suffix[6];

	if (!seed)
		return RC_NOMEM;
	cc_suffix(seed, suffix);
	*out = mem_printf("%.240s-%s", svc->metadata.name, suffix);
	return *out ? RC_OK : RC_NOMEM;
}

static enum rc fill_slice(EndpointSlice *s, const Service *svc, const struct backends *b, size_t i)
{
	size_t from = i * SLICE_MAX, to = MIN(b->n, from + SLICE_MAX);

	TRY(api_map_set(&s->metadata.labels, LABEL_SERVICE, svc->metadata.name));
	TRY(api_map_set(&s->metadata.labels, LABEL_MANAGED_BY, MANAGER));
	TRY(api_set_str(&s->addressType, "IPv4"));
	TRY(set_ports(s, svc, b));
	for (size_t k = from; k < to; k++)
		TRY(add_endpoint(s, svc, &b->items[k]));
	return RC_OK;
}

static enum rc sync_slice(const struct view *v, const Service *svc, const struct backends *b,
			  size_t i, struct plan *out)
{
	CLEANUP(mem_freep) char *name = NULL;
	CLEANUP(EndpointSlice_freep) EndpointSlice *next = NULL;

	TRY(slice_name(svc, i, &name));
	const EndpointSlice *old =
		view_get(v, &api_kind_EndpointSlice, svc->metadata.namespace, name);

	next = old ? EndpointSlice_clone(old) : EndpointSlice_new();
	if (!next)
		return RC_NOMEM;
	while (next->n_endpoints)
		api_remove(&api_type_Endpoint, &next->endpoints, &next->n_endpoints,
			   next->n_endpoints - 1);
	while (next->n_ports)
		api_remove(&api_type_EndpointPort, &next->ports, &next->n_ports, next->n_ports - 1);
	TRY(fill_slice(next, svc, b, i));
	if (old)
		return plan_update(out, &api_kind_EndpointSlice, old, STEAL(next), NULL);
	TRY(api_set_str(&next->metadata.namespace, svc->metadata.namespace));
	TRY(api_set_str(&next->metadata.name, name));
	TRY(api_add_owner(&next->metadata, &api_kind_Service, &svc->metadata, true, true));
	return plan_create(out, &api_kind_EndpointSlice, STEAL(next));
}

/* Slices of ours beyond the ones that are needed. */
static enum rc drop_rest(const struct view *v, const Service *svc, size_t needed, struct plan *out)
{
	struct kiter it;

	view_children(v, &api_kind_EndpointSlice, svc->metadata.uid, &it);
	for (const EndpointSlice *s; (s = view_next(&it));) {
		bool keep = false;

		for (size_t i = 0; i < needed && !keep; i++) {
			CLEANUP(mem_freep) char *name = NULL;

			TRY(slice_name(svc, i, &name));
			keep = str_eq(name, s->metadata.name);
		}
		if (!keep && !s->metadata.deletionTimestamp)
			TRY(plan_delete(out, &api_kind_EndpointSlice, s->metadata.namespace,
					s->metadata.name, s->metadata.uid, -1, NULL));
	}
	return RC_OK;
}

static enum rc sync(const struct view *v, const Service *svc, struct backends *b, struct plan *out)
{
	TRY(collect(v, svc, b));
	size_t needed = MAX((b->n + SLICE_MAX - 1) / SLICE_MAX, 1);

	for (size_t i = 0; i < needed; i++)
		TRY(sync_slice(v, svc, b, i, out));
	return drop_rest(v, svc, needed, out);
}

static enum rc endpoints_reconcile(const struct view *v, const char *ns, const char *name,
				   struct plan *out, struct err *err)
{
	const Service *svc = view_get(v, &api_kind_Service, ns, name);
	struct backends b = {0};

	if (!svc || svc->metadata.deletionTimestamp || !svc->spec.selector.n)
		return RC_OK; /* slices of a Service without selector are its owner's business */
	enum rc rc = sync(v, svc, &b, out);

	mem_free(b.items);
	return rc ? err_set(err, rc, "cannot list the endpoints of service '%s'", name) : RC_OK;
}

static void map_pod(const struct view *v, const struct kobj *obj, ctl_emit_fn emit, void *ctx)
{
	const Pod *pod = kobj_typed(obj);
	struct kiter it;

	view_list(v, &api_kind_Service, kobj_ns(obj), &it);
	for (const Service *svc; (svc = view_next(&it));) {
		bool matches = svc->spec.selector.n > 0;

		for (size_t i = 0; i < svc->spec.selector.n && matches; i++)
			matches = str_eq(api_label(&pod->metadata, svc->spec.selector.items[i].key),
					 svc->spec.selector.items[i].value);
		if (matches)
			emit(ctx, svc->metadata.namespace, svc->metadata.name);
	}
}

static const struct ctl_map maps[] = {
	{&api_kind_Pod, map_pod},
	{&api_kind_EndpointSlice, NULL},
	{NULL, NULL},
};

const struct ctl_def endpoints_ctl_def = {
	.name = "endpoints",
	.primary = &api_kind_Service,
	.reconcile = endpoints_reconcile,
	.maps = maps,
};
