#include "cluster/podruntime/netsync.h"

#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "api/gen/api_types.h"
#include "api/meta.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/try.h"
#include "cluster/podruntime/netdns.h"
#include "cluster/podruntime/nodereg.h"
#include "cluster/podruntime/podnet.h"
#include "cluster/podruntime/services.h"
#include "ev/ev.h"
#include "json/json.h"
#include "kube/kcache.h"
#include "kube/kobj.h"

#define RETRY_DELAY (1 * USEC_PER_SEC)
#define DNS_DOMAIN  "cluster.local"

enum { KINDS = 4 };

/* A copy of what the API says, for one job. */
struct net_job {
	struct netsync *s; /* NULL: its owner has gone */
	struct podnet *net;
	struct netsync_config cfg;
	struct podnet_peer *peers;
	size_t n_peers;
	struct podnet_binding *bindings;
	size_t n_bindings;
	struct service *services;
	size_t n_services;
	bool is_gateway;
	bool was_gateway;
	bool does_services;
	enum rc rc;
	struct err err;
};

struct netsync {
	struct netsync_config cfg;
	char *node_name, *dns_dir;
	struct kcache_handler *handlers[KINDS];
	struct net_job *job;
	struct ev_src *later;
	struct ev_src *retry;
	bool wants;
	bool services_dirty;
	bool is_gateway;
	bool is_ready;
};

static void job_free(struct net_job *j)
{
	for (size_t i = 0; i < j->n_services; i++) {
		struct service *s = &j->services[i];

		mem_free((char *)s->ns);
		mem_free((char *)s->name);
		for (size_t k = 0; k < s->n_ports; k++)
			mem_free((void *)s->ports[k].endpoints);
		mem_free((void *)s->ports);
	}
	mem_free(j->services);
	mem_free(j->peers);
	mem_free(j->bindings);
	mem_free(j);
}

/* --- nodes --- */

static const char *internal_ip(const Node *n)
{
	for (size_t i = 0; i < n->status.n_addresses; i++)
		if (str_eq(n->status.addresses[i].type, "InternalIP"))
			return n->status.addresses[i].address;
	return NULL;
}

static bool node_is_ready(const Node *n)
{
	return API_COND_IS(&n->status, NodeCondition, "Ready", "True");
}

/* The gateway is the first Ready node by name; without a Ready one, the first. */
static const char *gateway_of(const struct kcache *cache)
{
	const char *best = NULL;
	bool best_ready = false;
	struct kiter it;

	kcache_list(cache, &api_kind_Node, NULL, &it);
	for (const struct kobj *o; (o = kiter_next(&it));) {
		const Node *n = kobj_typed(o);
		bool ready = node_is_ready(n);

		if (!api_annotation(&n->metadata, NODE_ANN_SEGMENT))
			continue;
		if (!best || (ready && !best_ready) ||
		    (ready == best_ready && strcmp(kobj_name(o), best) < 0)) {
			best = kobj_name(o);
			best_ready = ready;
		}
	}
	return best;
}

static enum rc add_peer(struct net_job *j, size_t *cap, const Node *n, bool is_gateway)
{
	const char *segment = api_annotation(&n->metadata, NODE_ANN_SEGMENT);
	const char *ip = internal_ip(n);
	struct podnet_peer p = {.is_gateway = is_gateway};

	if (!segment || !ip || net_ip4_parse(segment, &p.segment, NULL) ||
	    net_ip4_parse(ip, &p.underlay, NULL))
		return RC_OK; /* not registered whole yet */
	if (!mem_grow((void **)&j->peers, cap, j->n_peers, sizeof(*j->peers)))
		return RC_NOMEM;
	j->peers[j->n_peers++] = p;
	return RC_OK;
}

static enum rc add_binding(struct net_job *j, size_t *cap, const struct kcache *cache,
			   const PortBinding *b)
{
	const Node *n = kobj_typed(kcache_get(cache, &api_kind_Node, NULL, b->spec.nodeName));
	const char *ip = n ? internal_ip(n) : NULL;
	struct podnet_binding x = {.epoch = API_GET(&b->spec, epoch, 1)};

	if (!ip || net_ip4_parse(ip, &x.underlay, NULL) ||
	    net_ip4_parse(b->spec.address, &x.address, NULL) ||
	    net_mac_parse(b->spec.mac, &x.mac, NULL))
		return RC_OK;
	if (!mem_grow((void **)&j->bindings, cap, j->n_bindings, sizeof(*j->bindings)))
		return RC_NOMEM;
	j->bindings[j->n_bindings++] = x;
	return RC_OK;
}

static enum rc copy_places(struct netsync *s, struct net_job *j)
{
	const char *gateway = gateway_of(s->cfg.cache);
	size_t cap_p = 0, cap_b = 0;
	struct kiter it;

	j->is_gateway = str_eq(gateway, s->node_name);
	kcache_list(s->cfg.cache, &api_kind_Node, NULL, &it);
	for (const struct kobj *o; (o = kiter_next(&it));)
		if (strcmp(kobj_name(o), s->node_name) != 0)
			TRY(add_peer(j, &cap_p, kobj_typed(o), str_eq(gateway, kobj_name(o))));
	kcache_list(s->cfg.cache, &api_kind_PortBinding, NULL, &it);
	for (const struct kobj *o; (o = kiter_next(&it));)
		TRY(add_binding(j, &cap_b, s->cfg.cache, kobj_typed(o)));
	return RC_OK;
}

/* --- services --- */

static enum svc_proto proto_of(const char *s)
{
	return str_eq(s, "UDP") ? SVC_UDP : str_eq(s, "SCTP") ? SVC_SCTP : SVC_TCP;
}

static bool is_ready(const Endpoint *e, bool also_unready)
{
	return also_unready || !e->conditions || API_GET(e->conditions, ready, true);
}

static enum rc add_endpoints(const EndpointSlice *sl, const ServicePort *sp, bool also_unready,
			     struct svc_endpoint **list, size_t *n, size_t *cap)
{
	for (size_t p = 0; p < sl->n_ports; p++) {
		if (!str_eq(sl->ports[p].name ? sl->ports[p].name : "", sp->name ? sp->name : "") ||
		    proto_of(sl->ports[p].protocol) != proto_of(sp->protocol))
			continue;
		for (size_t e = 0; e < sl->n_endpoints; e++) {
			struct svc_endpoint x = {.port = (uint16_t)API_GET(&sl->ports[p], port, 0)};

			if (!is_ready(&sl->endpoints[e], also_unready) ||
			    !sl->endpoints[e].n_addresses ||
			    net_ip4_parse(sl->endpoints[e].addresses[0], &x.address, NULL))
				continue;
			if (!mem_grow((void **)list, cap, *n, sizeof(**list)))
				return RC_NOMEM;
			(*list)[(*n)++] = x;
		}
	}
	return RC_OK;
}

static enum rc add_port(struct netsync *s, const Service *svc, const ServicePort *sp,
			struct svc_port *out)
{
	struct svc_endpoint *list = NULL;
	size_t n = 0, cap = 0;
	struct kiter it;
	enum rc rc = RC_OK;

	out->proto = proto_of(sp->protocol);
	out->port = (uint16_t)API_GET(sp, port, 0);
	out->node_port = (uint16_t)API_GET(sp, nodePort, 0);
	kcache_list(s->cfg.cache, &api_kind_EndpointSlice, svc->metadata.namespace, &it);
	for (const struct kobj *o; !rc && (o = kiter_next(&it));) {
		const EndpointSlice *sl = kobj_typed(o);

		if (str_eq(api_label(&sl->metadata, "kubernetes.io/service-name"),
			   svc->metadata.name))
			rc = add_endpoints(sl, sp,
					   API_GET(&svc->spec, publishNotReadyAddresses, false),
					   &list, &n, &cap);
	}
	out->endpoints = list;
	out->n_endpoints = n;
	return rc;
}

static uint32_t affinity_of(const Service *svc)
{
	if (!str_eq(svc->spec.sessionAffinity, "ClientIP"))
		return 0;
	return (uint32_t)js_int(
		js_at(svc->spec.sessionAffinityConfig, "clientIP", "timeoutSeconds", NULL), 10800);
}

static enum rc add_service(struct netsync *s, struct net_job *j, size_t *cap, const Service *svc)
{
	if (!mem_grow((void **)&j->services, cap, j->n_services, sizeof(*j->services)))
		return RC_NOMEM;
	struct service *o = &j->services[j->n_services++];
	struct svc_port *ports = NULL;

	*o = (struct service){.affinity_seconds = affinity_of(svc)};
	o->ns = mem_strdup(svc->metadata.namespace);
	o->name = mem_strdup(svc->metadata.name);
	if (svc->spec.clusterIP && !str_eq(svc->spec.clusterIP, "None"))
		ignore_rc(net_ip4_parse(svc->spec.clusterIP, &o->cluster_ip, NULL));
	if (svc->spec.n_ports) {
		ports = mem_calloc(svc->spec.n_ports, sizeof(*ports));
		TRY(ports ? RC_OK : RC_NOMEM);
		o->ports = ports;
		o->n_ports = svc->spec.n_ports;
	}
	for (size_t i = 0; i < svc->spec.n_ports; i++)
		TRY(add_port(s, svc, &svc->spec.ports[i], &ports[i]));
	return o->ns && o->name ? RC_OK : RC_NOMEM;
}

static enum rc copy_services(struct netsync *s, struct net_job *j)
{
	size_t cap = 0;
	struct kiter it;

	j->does_services = true;
	kcache_list(s->cfg.cache, &api_kind_Service, NULL, &it);
	for (const struct kobj *o; (o = kiter_next(&it));) {
		const Service *svc = kobj_typed(o);

		/* Without an address yet: it comes with the next event. */
		if (svc->spec.clusterIP)
			TRY(add_service(s, j, &cap, svc));
	}
	return RC_OK;
}

/* --- the job --- */

static enum rc do_services(struct net_job *j)
{
	const struct netsync_config *c = &j->cfg;
	struct services all = {.items = j->services,
			       .n = j->n_services,
			       .network = c->network,
			       .prefix = c->prefix,
			       .gateway = c->gateway,
			       .service_network = c->service_network,
			       .service_prefix = c->service_prefix,
			       .dns = c->dns};
	struct netdns_config dns = {.ns_fd = -1,
				    .dir = c->dns_dir,
				    .address = c->gateway,
				    .dev = c->dns_dev,
				    .domain = DNS_DOMAIN,
				    .resolv_file = "/etc/resolv.conf"};

	TRY(services_apply(-1, &all, &j->err));
	if (!j->is_gateway)
		return j->was_gateway ? netdns_stop(&dns, &j->err) : RC_OK;
	TRY(netdns_start(&dns, &j->err));
	return netdns_update(&dns, &all, &j->err);
}

static void work(void *arg)
{
	struct net_job *j = arg;

	j->rc = podnet_set_gateway(j->net, j->is_gateway, &j->err);
	if (!j->rc)
		j->rc = podnet_program(j->net, j->peers, j->n_peers, j->bindings, j->n_bindings,
				       &j->err);
	if (!j->rc && j->does_services)
		j->rc = do_services(j);
}

static void run(struct netsync *s);

static void on_retry(void *arg)
{
	struct netsync *s = arg;

	s->retry = ev_src_free(s->retry);
	run(s);
}

static void failed(struct netsync *s, const char *why)
{
	struct err err;

	log_warn("the node's network is not up to date, retrying: %s", why);
	s->services_dirty = true;
	if (!s->retry && ev_timer_after(s->cfg.loop, &s->retry, RETRY_DELAY, on_retry, s, &err))
		log_error("%s", err.msg);
}

static void after(void *arg)
{
	struct net_job *j = arg;
	struct netsync *s = j->s;

	if (s) {
		s->job = NULL;
		if (j->rc) {
			failed(s, j->err.msg);
		} else {
			s->is_gateway = j->is_gateway;
			if (!s->is_ready) {
				s->is_ready = true;
				if (s->cfg.on_ready)
					s->cfg.on_ready(s->cfg.arg);
			}
			if (s->wants)
				run(s);
		}
	}
	job_free(j);
}

static void run(struct netsync *s)
{
	struct net_job *j;
	struct err err = {0};

	s->wants = s->job != NULL;
	if (s->job || s->retry)
		return;
	j = mem_alloc(sizeof(*j));
	enum rc rc = j ? RC_OK : RC_NOMEM;

	if (!rc) {
		j->s = s;
		j->net = s->cfg.net;
		j->cfg = s->cfg;
		j->was_gateway = s->is_gateway;
		rc = copy_places(s, j);
	}
	if (!rc && (s->services_dirty || j->is_gateway != s->is_gateway))
		rc = copy_services(s, j);
	if (!rc)
		rc = pool_run_ordered(s->cfg.loop, s->cfg.queue, work, after, j, &err);
	if (rc) {
		if (j)
			job_free(j);
		failed(s, "out of memory");
		return;
	}
	s->services_dirty = false;
	s->job = j;
}

static void on_later(void *arg)
{
	struct netsync *s = arg;

	s->later = ev_src_free(s->later);
	run(s);
}

/* Several events of one turn of the loop make one job. */
void netsync_poke(struct netsync *s)
{
	if (!s->later && ev_defer(s->cfg.loop, &s->later, on_later, s, NULL))
		failed(s, "out of memory");
}

static void on_place(const struct kobj *old, const struct kobj *new, void *arg)
{
	(void)old;
	(void)new;
	netsync_poke(arg);
}

static void on_service(const struct kobj *old, const struct kobj *new, void *arg)
{
	struct netsync *s = arg;

	(void)old;
	(void)new;
	s->services_dirty = true;
	netsync_poke(s);
}

/* Heartbeats change nothing here. */
static void on_node(const struct kobj *old, const struct kobj *new, void *arg)
{
	const Node *a = kobj_typed(old);
	const Node *b = kobj_typed(new);

	if (a && b && node_is_ready(a) == node_is_ready(b) &&
	    str_eq(api_annotation(&a->metadata, NODE_ANN_SEGMENT),
		   api_annotation(&b->metadata, NODE_ANN_SEGMENT)) &&
	    str_eq(internal_ip(a), internal_ip(b)))
		return;
	netsync_poke(arg);
}

enum rc netsync_new(struct netsync **out, const struct netsync_config *config, struct err *err)
{
	CLEANUP(netsync_freep) struct netsync *s = mem_alloc(sizeof(*s));

	if (!s)
		return err_set(err, RC_NOMEM, "out of memory");
	s->cfg = *config;
	s->node_name = mem_strdup(config->node_name);
	s->dns_dir = mem_strdup(config->dns_dir);
	if (!s->node_name || !s->dns_dir)
		return err_set(err, RC_NOMEM, "out of memory");
	s->cfg.dns_dir = s->dns_dir;
	s->services_dirty = true;
	s->is_gateway = podnet_is_gateway(config->net);
	TRY(kcache_on(config->cache, &s->handlers[0], &api_kind_Node, on_node, s, err));
	TRY(kcache_on(config->cache, &s->handlers[1], &api_kind_PortBinding, on_place, s, err));
	TRY(kcache_on(config->cache, &s->handlers[2], &api_kind_Service, on_service, s, err));
	TRY(kcache_on(config->cache, &s->handlers[3], &api_kind_EndpointSlice, on_service, s, err));
	netsync_poke(s);
	*out = STEAL(s);
	return RC_OK;
}

struct netsync *netsync_free(struct netsync *s)
{
	if (!s)
		return NULL;
	for (int i = 0; i < KINDS; i++)
		kcache_handler_free(s->handlers[i]);
	ev_src_free(s->later);
	ev_src_free(s->retry);
	if (s->job)
		s->job->s = NULL;
	mem_free(s->node_name);
	if (!s->job)
		mem_free(s->dns_dir); /* else the job that runs still reads it */
	return mem_free(s);
}
