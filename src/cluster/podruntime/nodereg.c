#include "cluster/podruntime/nodereg.h"

#include <stdio.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "api/api.h"
#include "api/gen/api_types.h"
#include "api/meta.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/try.h"
#include "ev/ev.h"
#include "json/json.h"
#include "kube/kube.h"

#define LEASE_SECONDS	40 /* unless the cluster's settings say less */
#define LEASE_TIMES	4  /* renewals in that time */
#define HEARTBEAT_EVERY (60 * USEC_PER_SEC)
#define RETRY_MIN	(100 * USEC_PER_MSEC)
#define RETRY_MAX	(10 * USEC_PER_SEC)
#define STOP_DEADLINE	(3 * USEC_PER_SEC)

enum { SEGMENT_FIRST = 10, SEGMENT_LAST = 255, RESERVED_MIB = 256, PODS_MAX = 250 };

struct nodereg {
	struct loop *loop;
	struct kube *kube;
	char *name, *address;
	uint16_t agent_port;
	struct api_map labels, resources, facts;
	char *facts_prefix;
	bool has_facts; /* until then those of the last agent stay */
	bool (*owns_label)(const char *key);
	struct in_addr segment_net;
	unsigned segment_prefix;
	nodereg_ready_fn on_ready;
	void *arg;
	struct kube_call *call; /* registration and status, one at a time */
	struct kube_call *lease_call;
	struct ev_src *timer; /* of call */
	struct ev_src *lease_timer;
	usec_t offset;	   /* of the wall clock to the loop's then */
	usec_t renewed_at; /* the lease, the last time; 0: never */
	unsigned lease_seconds;
	usec_t backoff;
	struct json *node; /* as the API last showed it */
	struct in_addr segment;
	unsigned next_segment;
	bool is_registered;
	bool is_ready, wants_status;
	bool is_judged; /* until then nothing is said: an agent that restarts changes nothing */
	char *reason, *message;
	bool is_stopping;
	void (*stopped)(void *arg);
	void *stopped_arg;
};

static void read_node(struct nodereg *r);
static void write_status(struct nodereg *r);
static void renew_lease(struct nodereg *r);

/* --- pieces of the object --- */

static enum rc set(struct json *o, const char *key, const char *value)
{
	return js_set(o, key, value ? js_new_str(value) : js_new_null());
}

static enum rc fill_labels(const struct nodereg *r, struct json *labels)
{
	const struct json *have = js_at(r->node, "metadata", "labels", NULL);
	struct utsname u;

	(void)uname(&u);
	JS_FOREACH(it, have)
		if (r->owns_label && r->owns_label(it.key) && !api_map_has(&r->labels, it.key))
			TRY(set(labels, it.key, NULL));
	TRY(set(labels, "kubernetes.io/hostname", r->name));
	TRY(set(labels, "kubernetes.io/arch",
		strcmp(u.machine, "x86_64") == 0 ? "amd64" : u.machine));
	TRY(set(labels, "kubernetes.io/os", "linux"));
	if (r->is_judged || !r->node)
		TRY(set(labels, "kubevirt.io/schedulable", r->is_ready ? "true" : "false"));
	for (size_t i = 0; i < r->labels.n; i++)
		TRY(set(labels, r->labels.items[i].key, r->labels.items[i].value));
	return RC_OK;
}

static enum rc fill_facts(const struct nodereg *r, struct json *ann)
{
	const struct json *have = js_at(r->node, "metadata", "annotations", NULL);

	if (!r->has_facts)
		return RC_OK;
	JS_FOREACH(it, have)
		if (str_has_prefix(it.key, r->facts_prefix) && !api_map_has(&r->facts, it.key))
			TRY(set(ann, it.key, NULL));
	for (size_t i = 0; i < r->facts.n; i++)
		TRY(set(ann, r->facts.items[i].key, r->facts.items[i].value));
	return RC_OK;
}

static enum rc fill_annotations(const struct nodereg *r, struct json *ann)
{
	char text[40], ip[NET_IP4_TEXT];

	time_rfc3339(loop_realtime(r->loop), text);
	TRY(set(ann, "kubevirt.io/heartbeat", text));
	if (!net_ip4_is_none(r->segment))
		TRY(set(ann, NODE_ANN_SEGMENT, net_ip4_format(r->segment, ip)));
	TRY(fill_facts(r, ann));
	(void)snprintf(text, sizeof(text), "%u", r->agent_port);
	return set(ann, NODE_ANN_AGENT_PORT, text);
}

static struct json *metadata_patch(const struct nodereg *r)
{
	struct json *o = js_pack("{s:s, s:s, s:{s:s, s:{}, s:{}}}", "apiVersion", "v1", "kind",
				 "Node", "metadata", "name", r->name, "labels", "annotations");
	struct json *m = js_get(o, "metadata");

	if (!o || fill_labels(r, js_get(m, "labels")) ||
	    fill_annotations(r, js_get(m, "annotations")))
		return js_unref(o);
	return o;
}

static enum rc add_resource(struct json *cap, struct json *alloc, const char *name,
			    const char *have, const char *usable)
{
	TRY(set(cap, name, have));
	return set(alloc, name, usable);
}

static enum rc fill_capacity(const struct nodereg *r, struct json *cap, struct json *alloc)
{
	struct sysinfo si;
	char cpu[24], mem[32], usable[32], pods[16];

	(void)sysinfo(&si);
	uint64_t kib = (uint64_t)si.totalram * si.mem_unit / KIB;

	(void)snprintf(cpu, sizeof(cpu), "%ld", sysconf(_SC_NPROCESSORS_ONLN));
	(void)snprintf(mem, sizeof(mem), "%lluKi", (unsigned long long)kib);
	(void)snprintf(usable, sizeof(usable), "%lluKi",
		       (unsigned long long)(kib - MIN(kib, (uint64_t)RESERVED_MIB * 1024)));
	(void)snprintf(pods, sizeof(pods), "%d", PODS_MAX);
	TRY(add_resource(cap, alloc, "cpu", cpu, cpu));
	TRY(add_resource(cap, alloc, "memory", mem, usable));
	TRY(add_resource(cap, alloc, "pods", pods, pods));
	for (size_t i = 0; i < r->resources.n; i++)
		TRY(add_resource(cap, alloc, r->resources.items[i].key, r->resources.items[i].value,
				 r->resources.items[i].value));
	return RC_OK;
}

static void first_line(const char *path, const char *prefix, char *out, size_t cap)
{
	CLEANUP(mem_freep) char *text = NULL;
	size_t n = 0;

	out[0] = '\0';
	if (file_read(path, 65536, &text, &n, NULL))
		return;
	const char *p = *prefix ? strstr(text, prefix) : text;

	if (!p)
		return;
	p += strlen(prefix);
	size_t len = strcspn(p, "\n\"");

	(void)snprintf(out, cap, "%.*s", (int)MIN(len, cap - 1), p);
}

static struct json *node_info(void)
{
	char machine[64], boot[64], uuid[64], os[128];
	struct utsname u;

	(void)uname(&u);
	first_line("/etc/machine-id", "", machine, sizeof(machine));
	first_line("/proc/sys/kernel/random/boot_id", "", boot, sizeof(boot));
	first_line("/sys/class/dmi/id/product_uuid", "", uuid, sizeof(uuid));
	first_line("/etc/os-release", "PRETTY_NAME=\"", os, sizeof(os));
	return js_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "machineID", machine,
		       "systemUUID", *uuid ? uuid : machine, "bootID", boot, "kernelVersion",
		       u.release, "osImage", os, "containerRuntimeVersion",
		       "ferry://" FERRY_VERSION, "kubeletVersion", "v" FERRY_VERSION "-ferry",
		       "kubeProxyVersion", "", "operatingSystem", "linux", "architecture",
		       strcmp(u.machine, "x86_64") == 0 ? "amd64" : u.machine);
}

/* The transition time stays while the status does. */
static const char *since(const struct nodereg *r, const char *status, const char *now)
{
	const struct json *list = js_at(r->node, "status", "conditions", NULL);

	for (size_t i = 0; i < js_len(list); i++) {
		const struct json *c = js_item(list, i);

		if (str_eq(js_get_str(c, "type"), "Ready") &&
		    str_eq(js_get_str(c, "status"), status))
			return js_get_str(c, "lastTransitionTime");
	}
	return now;
}

static struct json *status_patch(const struct nodereg *r)
{
	const char *status = r->is_ready ? "True" : "False";
	char now[32];

	time_rfc3339(loop_realtime(r->loop), now);
	const char *from = since(r, status, now);
	struct json *o = js_pack("{s:s, s:s, s:{s:s}, s:{s:{}, s:{}, s:[{s:s, s:s, s:s, s:s, s:s, "
				 "s:s}], s:[{s:s, s:s}, {s:s, "
				 "s:s}], s:o}}",
				 "apiVersion", "v1", "kind", "Node", "metadata", "name", r->name,
				 "status", "capacity", "allocatable", "conditions", "type", "Ready",
				 "status", status, "reason", r->reason ? r->reason : "", "message",
				 r->message ? r->message : "", "lastHeartbeatTime", now,
				 "lastTransitionTime", from ? from : now, "addresses", "type",
				 "InternalIP", "address", r->address, "type", "Hostname", "address",
				 r->name, "nodeInfo", node_info());
	struct json *s = js_get(o, "status");

	if (!o || fill_capacity(r, js_get(s, "capacity"), js_get(s, "allocatable")))
		return js_unref(o);
	return o;
}

/* --- registration --- */

static void on_retry(void *arg)
{
	struct nodereg *r = arg;

	r->timer = ev_src_free(r->timer);
	if (r->is_registered)
		write_status(r);
	else
		read_node(r);
}

static void retry(struct nodereg *r, const char *what, const char *why)
{
	struct err err;

	r->backoff = MIN(MAX(r->backoff * 2, RETRY_MIN), RETRY_MAX);
	log_warn("node '%s': %s, retrying: %s", r->name, what, why);
	if (!r->timer && ev_timer_after(r->loop, &r->timer, r->backoff, on_retry, r, &err))
		log_error("node '%s': %s", r->name, err.msg);
}

static void keep_node(struct nodereg *r, const struct json *body)
{
	js_unref(r->node);
	r->node = js_ref(body);
}

static void on_registered(const struct kube_reply *rep, void *arg)
{
	struct nodereg *r = arg;

	r->call = kube_call_free(r->call);
	if (rep->rc) {
		retry(r, "cannot register", rep->err.msg);
		return;
	}
	keep_node(r, rep->body);
	r->backoff = 0;
	r->is_registered = true;
	log_info("node '%s' is registered", r->name);
	renew_lease(r);
	if (r->on_ready)
		r->on_ready(r->segment, r->arg);
	write_status(r);
}

static void put_node(struct nodereg *r)
{
	CLEANUP(js_unrefp) struct json *body = metadata_patch(r);
	struct err err = {0};
	enum rc rc;

	if (!body)
		rc = err_set(&err, RC_NOMEM, "out of memory");
	else if (r->node)
		rc = kube_patch(r->kube, &r->call, &api_kind_Node, NULL, r->name, NULL,
				KUBE_PATCH_MERGE, body, on_registered, r, &err);
	else
		rc = kube_create(r->kube, &r->call, &api_kind_Node, NULL, body, on_registered, r,
				 &err);
	if (rc)
		retry(r, "cannot register", err.msg);
}

/* --- the address on the segment: creating the Allocation is what decides --- */

static void try_segment(struct nodereg *r);

static void take_segment(struct nodereg *r, struct in_addr a)
{
	r->segment = a;
	put_node(r);
}

static void on_other_owner(const struct kube_reply *rep, void *arg)
{
	struct nodereg *r = arg;
	const struct json *owner = js_at(rep->body, "spec", "owner", NULL);

	r->call = kube_call_free(r->call);
	if (!rep->rc && str_eq(js_get_str(owner, "kind"), "Node") &&
	    str_eq(js_get_str(owner, "name"), r->name)) {
		take_segment(r, net_ip4_nth(r->segment_net, r->segment_prefix, r->next_segment));
		return;
	}
	if (rep->rc && rep->rc != RC_NOT_FOUND) {
		retry(r, "cannot read an allocation", rep->err.msg);
		return;
	}
	r->next_segment++;
	try_segment(r);
}

static void allocation_name(const struct nodereg *r, char text[NET_IP4_TEXT], char name[40])
{
	net_ip4_format(net_ip4_nth(r->segment_net, r->segment_prefix, r->next_segment), text);
	(void)snprintf(name, 40, "address-%s", text);
	for (char *p = name; *p; p++)
		if (*p == '.')
			*p = '-';
}

static void on_allocated(const struct kube_reply *rep, void *arg)
{
	struct nodereg *r = arg;
	char text[NET_IP4_TEXT], name[40];
	struct err err;

	r->call = kube_call_free(r->call);
	if (!rep->rc) {
		take_segment(r, net_ip4_nth(r->segment_net, r->segment_prefix, r->next_segment));
		return;
	}
	if (rep->rc != RC_EXISTS) {
		retry(r, "cannot allocate an address", rep->err.msg);
		return;
	}
	allocation_name(r, text, name);
	if (kube_get(r->kube, &r->call, &api_kind_Allocation, NULL, name, on_other_owner, r, &err))
		retry(r, "cannot read an allocation", err.msg);
}

static void try_segment(struct nodereg *r)
{
	char text[NET_IP4_TEXT], name[40];
	struct err err = {0};

	if (r->next_segment > SEGMENT_LAST) {
		r->next_segment = SEGMENT_FIRST;
		retry(r, "no address for a node is free", "all are taken");
		return;
	}
	allocation_name(r, text, name);
	CLEANUP(js_unrefp)
	struct json *body = js_pack("{s:s, s:s, s:{s:s}, s:{s:s, s:s, s:{s:s, s:s}}}", "apiVersion",
				    "ferry.dev/v1alpha1", "kind", "Allocation", "metadata", "name",
				    name, "spec", "type", "address", "value", text, "owner", "kind",
				    "Node", "name", r->name);

	if (kube_create(r->kube, &r->call, &api_kind_Allocation, NULL, body, on_allocated, r, &err))
		retry(r, "cannot allocate an address", err.msg);
}

static void on_node(const struct kube_reply *rep, void *arg)
{
	struct nodereg *r = arg;

	r->call = kube_call_free(r->call);
	if (rep->rc && rep->rc != RC_NOT_FOUND) {
		retry(r, "cannot read its Node object", rep->err.msg);
		return;
	}
	r->node = js_unref(r->node);
	if (!rep->rc)
		keep_node(r, rep->body);
	const struct json *ann = js_at(r->node, "metadata", "annotations", NULL);
	const char *have = js_get_str(ann, NODE_ANN_SEGMENT);

	if (have && !net_ip4_parse(have, &r->segment, NULL)) {
		put_node(r);
		return;
	}
	r->next_segment = SEGMENT_FIRST;
	try_segment(r);
}

static void read_node(struct nodereg *r)
{
	struct err err;

	if (kube_get(r->kube, &r->call, &api_kind_Node, NULL, r->name, on_node, r, &err))
		retry(r, "cannot read its Node object", err.msg);
}

/* --- status and heartbeat --- */

static void heartbeat(void *arg)
{
	struct nodereg *r = arg;

	r->timer = ev_src_free(r->timer);
	write_status(r);
}

static void after_status(struct nodereg *r)
{
	struct err err;

	if (r->wants_status) {
		write_status(r);
		return;
	}
	if (!r->timer && ev_timer_after(r->loop, &r->timer, HEARTBEAT_EVERY, heartbeat, r, &err))
		log_error("node '%s': %s", r->name, err.msg);
}

static void on_labelled(const struct kube_reply *rep, void *arg)
{
	struct nodereg *r = arg;

	r->call = kube_call_free(r->call);
	if (rep->rc) {
		retry(r, "cannot write its heartbeat", rep->err.msg);
		return;
	}
	keep_node(r, rep->body);
	r->backoff = 0;
	after_status(r);
}

static void on_status(const struct kube_reply *rep, void *arg)
{
	struct nodereg *r = arg;
	CLEANUP(js_unrefp) struct json *body = NULL;
	struct err err = {0};

	r->call = kube_call_free(r->call);
	if (rep->rc == RC_NOT_FOUND) { /* somebody removed the Node: it is made again */
		r->is_registered = false;
		r->on_ready = NULL;
		read_node(r);
		return;
	}
	if (rep->rc) {
		retry(r, "cannot write its status", rep->err.msg);
		return;
	}
	keep_node(r, rep->body);
	body = metadata_patch(r);
	if (!body || kube_patch(r->kube, &r->call, &api_kind_Node, NULL, r->name, NULL,
				KUBE_PATCH_MERGE, body, on_labelled, r, &err))
		retry(r, "cannot write its heartbeat", body ? err.msg : "out of memory");
}

static void write_status(struct nodereg *r)
{
	CLEANUP(js_unrefp) struct json *body = NULL;
	struct err err = {0};

	r->wants_status = r->call != NULL || !r->is_registered;
	if (r->wants_status || r->is_stopping || !r->is_judged)
		return;
	r->timer = ev_src_free(r->timer);
	body = status_patch(r);
	if (!body || kube_patch(r->kube, &r->call, &api_kind_Node, NULL, r->name, "status",
				KUBE_PATCH_MERGE, body, on_status, r, &err))
		retry(r, "cannot write its status", body ? err.msg : "out of memory");
}

void nodereg_set_ready(struct nodereg *r, bool is_ready, const char *reason, const char *message)
{
	bool changed = !r->is_judged || r->is_ready != is_ready || !str_eq(r->reason, reason);

	r->is_judged = true;
	r->is_ready = is_ready;
	ignore_rc(api_set_str(&r->reason, reason));
	ignore_rc(api_set_str(&r->message, message));
	if (changed)
		write_status(r);
}

/* --- lease --- */

static usec_t lease_every(const struct nodereg *r)
{
	return r->lease_seconds * USEC_PER_SEC / LEASE_TIMES;
}

static void on_lease_timer(void *arg)
{
	renew_lease(arg);
}

static void on_lease(const struct kube_reply *rep, void *arg);

static struct json *lease_body(const struct nodereg *r)
{
	char now[40];

	time_rfc3339_micro(loop_realtime(r->loop), now);
	return js_pack("{s:s, s:s, s:{s:s, s:s}, s:{s:s, s:i, s:s}}", "apiVersion",
		       "coordination.k8s.io/v1", "kind", "Lease", "metadata", "name", r->name,
		       "namespace", NODE_LEASE_NS, "spec", "holderIdentity", r->name,
		       "leaseDurationSeconds", (int)r->lease_seconds, "renewTime", now);
}

static void next_lease(struct nodereg *r, usec_t delay)
{
	struct err err;

	if (r->lease_timer)
		ev_timer_rearm(r->lease_timer, delay);
	else if (ev_timer_after(r->loop, &r->lease_timer, delay, on_lease_timer, r, &err))
		log_error("node '%s': %s", r->name, err.msg);
}

static void on_lease_ns(const struct kube_reply *rep, void *arg)
{
	struct nodereg *r = arg;

	r->lease_call = kube_call_free(r->lease_call);
	next_lease(r, rep->rc && rep->rc != RC_EXISTS ? USEC_PER_SEC : 0);
}

static void on_lease_made(const struct kube_reply *rep, void *arg)
{
	struct nodereg *r = arg;
	CLEANUP(js_unrefp) struct json *ns = NULL;
	struct err err;

	r->lease_call = kube_call_free(r->lease_call);
	if (rep->rc != RC_NOT_FOUND) {
		next_lease(r, rep->rc ? USEC_PER_SEC : lease_every(r));
		return;
	}
	ns = js_pack("{s:s, s:s, s:{s:s}}", "apiVersion", "v1", "kind", "Namespace", "metadata",
		     "name", NODE_LEASE_NS);
	if (!ns || kube_create(r->kube, &r->lease_call, &api_kind_Namespace, NULL, ns, on_lease_ns,
			       r, &err))
		next_lease(r, USEC_PER_SEC);
}

/* After a silence that others may have taken for an end, what they made of it is put right at once.  A wall clock that
 * was turned looks like one to them. */
static void lease_renewed(struct nodereg *r)
{
	const usec_t limit = r->lease_seconds * USEC_PER_SEC;
	usec_t now = loop_now(r->loop), offset = loop_realtime(r->loop) - now;
	usec_t turned = offset > r->offset ? offset - r->offset : r->offset - offset;

	if (r->renewed_at && (now - r->renewed_at >= limit || turned >= limit))
		write_status(r);
	r->renewed_at = now;
	r->offset = offset;
}

static void on_lease(const struct kube_reply *rep, void *arg)
{
	struct nodereg *r = arg;
	CLEANUP(js_unrefp) struct json *body = NULL;
	struct err err;

	r->lease_call = kube_call_free(r->lease_call);
	if (rep->rc == RC_NOT_FOUND) {
		body = lease_body(r);
		if (body && !kube_create(r->kube, &r->lease_call, &api_kind_Lease, NODE_LEASE_NS,
					 body, on_lease_made, r, &err))
			return;
	}
	if (rep->rc)
		log_warn("node '%s': cannot renew its lease, retrying: %s", r->name, rep->err.msg);
	else
		lease_renewed(r);
	next_lease(r, rep->rc ? USEC_PER_SEC : lease_every(r));
}

static void renew_lease(struct nodereg *r)
{
	CLEANUP(js_unrefp) struct json *body = lease_body(r);
	struct err err;

	if (r->lease_call)
		return;
	if (!body || kube_patch(r->kube, &r->lease_call, &api_kind_Lease, NODE_LEASE_NS, r->name,
				NULL, KUBE_PATCH_MERGE, body, on_lease, r, &err))
		next_lease(r, USEC_PER_SEC);
}

void nodereg_set_facts(struct nodereg *r, const struct api_map *facts)
{
	struct api_map copy = {0};

	assert(r->facts_prefix);
	if (api_map_copy(&copy, facts)) {
		log_warn("node '%s': out of memory, its annotations stay as they are", r->name);
		api_map_fini(&copy);
		return;
	}
	api_map_fini(&r->facts);
	r->facts = copy;
	r->has_facts = true;
	write_status(r);
}

void nodereg_set_lease(struct nodereg *r, unsigned seconds)
{
	bool is_shorter;

	seconds = MIN(MAX(seconds, 1u), (unsigned)LEASE_SECONDS);
	is_shorter = seconds < r->lease_seconds;
	r->lease_seconds = seconds;
	if (is_shorter && r->lease_timer) /* what waits would wait too long */
		ev_timer_rearm(r->lease_timer, 0);
}

/* --- stop --- */

static void stop_done(struct nodereg *r)
{
	void (*fn)(void *) = r->stopped;

	r->stopped = NULL;
	r->call = kube_call_free(r->call);
	r->timer = ev_src_free(r->timer);
	if (fn)
		fn(r->stopped_arg);
}

static void on_stopped(const struct kube_reply *rep, void *arg)
{
	(void)rep;
	stop_done(arg);
}

static void on_stop_timeout(void *arg)
{
	stop_done(arg);
}

void nodereg_stop(struct nodereg *r, void (*done)(void *arg), void *arg)
{
	CLEANUP(js_unrefp)
	struct json *body =
		js_pack("{s:{s:{s:s}}}", "metadata", "labels", "kubevirt.io/schedulable", "false");
	struct err err;

	r->is_stopping = true;
	r->stopped = done;
	r->stopped_arg = arg;
	r->call = kube_call_free(r->call);
	r->timer = ev_src_free(r->timer);
	if (!body || ev_timer_after(r->loop, &r->timer, STOP_DEADLINE, on_stop_timeout, r, &err) ||
	    kube_patch(r->kube, &r->call, &api_kind_Node, NULL, r->name, NULL, KUBE_PATCH_MERGE,
		       body, on_stopped, r, &err))
		stop_done(r);
}

enum rc nodereg_new(struct nodereg **out, const struct nodereg_config *c, nodereg_ready_fn on_ready,
		    void *arg, struct err *err)
{
	CLEANUP(nodereg_freep) struct nodereg *r = mem_alloc(sizeof(*r));

	if (!r)
		return err_set(err, RC_NOMEM, "out of memory");
	r->loop = c->loop;
	r->kube = c->kube;
	r->agent_port = c->agent_port;
	r->owns_label = c->owns_label;
	r->segment_net = c->segment_net;
	r->segment_prefix = c->segment_prefix;
	r->lease_seconds = LEASE_SECONDS;
	r->on_ready = on_ready;
	r->arg = arg;
	r->name = mem_strdup(c->name);
	r->address = mem_strdup(c->address);
	r->facts_prefix = mem_strdup(c->facts);
	if (!r->name || !r->address || (c->facts && !r->facts_prefix) ||
	    api_map_copy(&r->labels, c->labels) || api_map_copy(&r->resources, c->resources) ||
	    api_set_str(&r->reason, "Starting") ||
	    api_set_str(&r->message, "the node's network is being made"))
		return err_set(err, RC_NOMEM, "out of memory");
	read_node(r);
	*out = STEAL(r);
	return RC_OK;
}

struct nodereg *nodereg_free(struct nodereg *r)
{
	if (!r)
		return NULL;
	kube_call_free(r->call);
	kube_call_free(r->lease_call);
	ev_src_free(r->timer);
	ev_src_free(r->lease_timer);
	js_unref(r->node);
	api_map_fini(&r->labels);
	api_map_fini(&r->resources);
	api_map_fini(&r->facts);
	mem_free(r->facts_prefix);
	mem_free(r->name);
	mem_free(r->address);
	mem_free(r->reason);
	mem_free(r->message);
	return mem_free(r);
}
