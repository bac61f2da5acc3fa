#include "virt/node/migration_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "api/meta.h"
#include "api/quantity.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "base/try.h"
#include "ctl/exec.h"
#include "json/json.h"
#include "kube/kcache.h"
#include "kube/kobj.h"
#include "kube/kube.h"
#include "net/tcp.h"
#include "virt/migration/compat.h"
#include "virt/names.h"
#include "virt/migration/forecast.h"
#include "virt/node/vmspec.h"

#define ANN_AGENT_PORT "ferry.dev/agent-port"

enum { FINISH_MIN_MS = 10000, FINISH_MAX_MS = 600000, FINISH_RATE_MIN = 1024 * 1024 };

const VirtualMachineInstanceMigrationState *mig_state(const struct vm *vm)
{
	const VirtualMachineInstance *vmi = vm_vmi(vm);

	return vmi ? vmi->status.migrationState : NULL;
}

bool mig_is_alone(const struct vm *vm)
{
	const VirtualMachineInstance *vmi = vm_vmi(vm);

	return vmi && vmi->status.activePods.n == 1 &&
	       api_map_has(&vmi->status.activePods, vm->host->cfg.pods->uid(vm->pod));
}

const Handover *mig_handover(const struct vm *vm, const char *migration_uid)
{
	struct kiter it;

	kcache_list(vm->host->cfg.cache, &api_kind_Handover, vm->ns, &it);
	for (const struct kobj *o; (o = kiter_next(&it));) {
		const Handover *h = kobj_typed(o);

		if (str_eq(h->spec.migrationUID, migration_uid))
			return h;
	}
	return NULL;
}

enum rc mig_node_address(const struct vmhost *h, const char *node, struct in_addr *ip,
			 uint16_t *agent_port, struct err *err)
{
	const Node *n = kobj_typed(kcache_get(h->cfg.cache, &api_kind_Node, NULL, node));
	const char *text = NULL;
	int64_t port = h->cfg.agent_port;

	if (!n)
		return err_set(err, RC_NOT_FOUND, "node '%s' is not known", node);
	for (size_t i = 0; i < n->status.n_addresses; i++)
		if (str_eq(n->status.addresses[i].type, "InternalIP"))
			text = n->status.addresses[i].address;
	if (!text)
		return err_set(err, RC_NOT_FOUND, "node '%s' has no address", node);
	if (api_annotation(&n->metadata, ANN_AGENT_PORT))
		TRY(str_to_i64(api_annotation(&n->metadata, ANN_AGENT_PORT), 1, 65535, &port, err));
	*agent_port = (uint16_t)port;
	return net_ip4_parse(text, ip, err);
}

/* What the controller chose for this move; NULL: nothing, it was handed off by one that chooses nothing. */
static const FerryMigrationMethod *method_of(const VirtualMachineInstance *vmi)
{
	const VirtualMachineInstanceMigrationState *s = vmi->status.migrationState;
	const FerryVMIStatus *f = vmi->status.ferry;
	const FerryMigrationMethod *m = f && f->migration ? f->migration->method : NULL;

	return m && s && str_eq(m->migrationUID, s->migrationUid) ? m : NULL;
}

static enum rc add_method(struct json *options, const FerryMigrationMethod *m)
{
	TRY(js_set(options, "multifdChannels", js_new_int(API_GET(m, channels, 0))));
	TRY(js_set(options, "maxBandwidthBytes", js_new_int(API_GET(m, bandwidthBytes, 0))));
	TRY(js_set(options, "xbzrleCacheBytes", js_new_int(API_GET(m, xbzrleCacheBytes, 0))));
	return js_set(options, "compression",
		      js_new_str(str_eq(m->compression, "zstd") ? "zstd" : "none"));
}

struct json *mig_options(const VirtualMachineInstance *vmi, int64_t fixed_ms)
{
	const VirtualMachineInstanceMigrationState *s = vmi ? vmi->status.migrationState : NULL;
	const FerryMigrationMethod *method = vmi ? method_of(vmi) : NULL;
	const VMIMConfigurationOptions *c = s ? s->migrationConfiguration : NULL;
	int64_t declared = mig_pause_declared(s);
	int64_t downtime = declared ? pause_budget(declared, fixed_ms) : 300;
	int64_t bandwidth = c ? api_quantity_bytes(c->bandwidthPerMigration, 0) : 0;
	bool converge = c && API_GET(c, allowAutoConverge, false);

	/* KubeVirt asks for both; the second follows the first where it is not set */
	bool post_copy =
		c && API_GET(c, allowPostCopy, false) && API_GET(c, allowWorkloadDisruption, true);

	struct json *j = js_pack(
		"{s:I, s:I, s:b, s:b, s:I, s:I}", "downtimeLimitMs", downtime, "maxBandwidthBytes",
		bandwidth, "autoConverge", (int)converge, "postCopy", (int)post_copy, "maxPauseMs",
		mig_pause_enforced(declared, fixed_ms), "fixedPauseMs", MAX(fixed_ms, 0));

	return j && method && add_method(j, method) ? js_unref(j) : j;
}

enum rc mig_data_address(const struct vmhost *h, const VirtualMachineInstanceMigrationState *s,
			 const char *node, struct in_addr *ip, struct err *err)
{
	const VMIMConfigurationOptions *c = s ? s->migrationConfiguration : NULL;
	const Node *n = kobj_typed(kcache_get(h->cfg.cache, &api_kind_Node, NULL, node));
	uint16_t port;

	if (!c || str_is_empty(c->network))
		return mig_node_address(h, node, ip, &port, err);
	CLEANUP(mem_freep) char *key = mem_printf(LABEL_MIGRATION_NETWORK "%s", c->network);
	const char *text = n && key ? api_label(&n->metadata, key) : NULL;

	if (!key)
		return err_set(err, RC_NOMEM, "out of memory");
	if (!text)
		return err_set(err, RC_NOT_FOUND,
			       "node '%s' has no address in the migration network '%s'", node,
			       c->network);
	return net_ip4_parse(text, ip, err);
}

enum rc mig_net_init(const struct vm *vm, struct in_addr peer, struct in_addr data,
		     struct mig_net *out, struct err *err)
{
	const VirtualMachineInstance *vmi = vm_vmi(vm);
	const Interface *iface = NULL;
	const Network *net = NULL;
	struct vm_pod_net pn;

	*out = (struct mig_net){.peer = data, .ns_fd = -1};
	if (vmi)
		vmspec_pod_interface(vmi, &iface, &net);
	if (vm->address)
		TRY(net_ip4_parse(vm->address, &out->pod, err));
	out->has_net = iface != NULL && vm->address && vm->mac;
	if (!out->has_net)
		return RC_OK;
	out->has_ports_filter = iface->masquerade && iface->n_ports > 0;
	vm->host->cfg.pods->net(vm->pod, &pn);
	(void)snprintf(out->host_if, sizeof(out->host_if), "%s", pn.host_if);
	out->cfg = (struct vmnet_handover_config){.node_ns_fd = -1,
						  .host_if = out->host_if,
						  .bridge = vm->host->cfg.net.bridge,
						  .vxlan = vm->host->cfg.net.vxlan,
						  .peer = peer};
	return net_mac_parse(vm->mac, &out->cfg.mac, err);
}

void mig_net_abort(const struct mig_net *net, const char *uid)
{
	struct err err = {0};
	unsigned n = 0;

	if (net->ns_fd < 0) /* nothing was opened */
		return;
	if (net_tcp_abort(net->ns_fd, net->peer, &n, &err))
		log_warn(
			"move %s: what is left of its connections ends by the kernel's own time-outs: %s",
			uid, err.msg);
	else if (n)
		log_info("move %s: %u connections to the other side were still open, ended", uid,
			 n);
}

void mig_event(struct vm *vm, const char *type, const char *reason, const char *fmt, ...)
{
	const VirtualMachineInstance *vmi = vm_vmi(vm);
	char text[600];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (vmi)
		exec_event(vm->host->cfg.exec, &api_kind_VirtualMachineInstance, vmi, type, reason,
			   "%s", text);
}

static void on_handover(const struct kube_reply *r, void *arg)
{
	(void)arg;
	if (r->rc)
		log_warn("a hand-over record could not be written: %s", r->err.msg);
}

void mig_write_handover(struct vm *vm, const char *migration_uid, const char *state,
			const char *time_field, const char *reason)
{
	const Handover *h = mig_handover(vm, migration_uid);
	struct err err = {0};
	char now[32];

	if (!h || str_eq(h->status.state, state))
		return;
	time_rfc3339(loop_realtime(vm->host->cfg.loop), now);
	CLEANUP(js_unrefp)
	struct json *body = js_pack("{s:{s:s, s:I, s:s*}}", "status", "state", state, "epoch",
				    API_GET(&h->spec, epoch, 0), "reason", reason);

	if (body && time_field && js_set(js_get(body, "status"), time_field, js_new_str(now)))
		return;
	if (!body ||
	    kube_patch(vm->host->cfg.kube, NULL, &api_kind_Handover, vm->ns, h->metadata.name,
		       "status", KUBE_PATCH_MERGE, body, on_handover, NULL, &err))
		log_warn("a hand-over record could not be written: %s", err.msg);
}

enum rc mig_set_time(char **field, usec_t at)
{
	char text[32];

	time_rfc3339(at, text);
	return api_set_str(field, text);
}

static enum rc fill_disks(FerryMigrationStatus *out, const struct json *disks)
{
	while (out->n_disks)
		api_remove(&api_type_FerryTransfer, &out->disks, &out->n_disks, out->n_disks - 1);
	for (size_t i = 0; i < js_len(disks); i++) {
		const struct json *d = js_item(disks, i);
		FerryTransfer *t = api_append(&out->disks, &out->n_disks, sizeof(*t));
		int64_t total = js_get_int(d, "total", 0), done = js_get_int(d, "done", 0);

		if (!t)
			return RC_NOMEM;
		TRY(api_set_str(&t->name, js_get_str(d, "name")));
		API_SET(t, totalBytes, total);
		API_SET(t, transferredBytes, done);
		API_SET(t, remainingBytes, MAX(total - done, 0));
	}
	return RC_OK;
}

struct mig_transfer mig_disks_of(const struct json *data)
{
	const struct json *disks = js_at(data, "stats", "disks", NULL);
	struct mig_transfer t = {0, 0};

	for (size_t i = 0; i < js_len(disks); i++) {
		const struct json *d = js_item(disks, i);
		int64_t total = js_get_int(d, "total", 0);

		t.total += total;
		t.left += MAX(total - js_get_int(d, "done", 0), 0);
	}
	return t;
}

char *mig_figures(const char *what, const struct json *data)
{
	const struct json *m = js_at(data, "stats", "memory", NULL);
	int64_t left = js_get_int(m, "remaining", 0) + mig_disks_of(data).left;

	return mem_printf("%s: %lld MiB are left, the guest changes %lld MiB/s and %lld MiB/s go "
			  "over",
			  what, (long long)(left >> 20),
			  (long long)(js_get_int(m, "dirtyBytesPerSecond", 0) >> 20),
			  (long long)(js_get_int(m, "bytesPerSecond", 0) >> 20));
}

int64_t mig_finish_timeout(const struct json *data)
{
	const struct json *m = js_at(data, "stats", "memory", NULL);
	int64_t rate = js_get_int(m, "bytesPerSecond", 0);
	int64_t limit = js_get_int(data, "maxBandwidthBytes", 0);

	/* what QEMU tells of its first moments only fills buffers, and may be more than it will ever send */
	rate = MAX(limit ? MIN(rate, limit) : rate, FINISH_RATE_MIN);
	return MIN(FINISH_MIN_MS + 2 * 1000 * js_get_int(m, "remaining", 0) / rate, FINISH_MAX_MS);
}

bool mig_is_finishing(const struct json *data)
{
	return js_get_int(data, "downtimeLimitMs", 0) == MIG_DOWNTIME_MAX_MS;
}

static enum rc fill_forecast(FerryMigrationStatus *out, const struct json *data, usec_t age)
{
	const struct json *f = js_get(data, "forecast");
	int64_t left = js_get_int(f, "leftMs", -1), since = (int64_t)(age / USEC_PER_MSEC);

	if (!f)
		return RC_OK;
	TRY(api_set_str(&out->forecast, js_get_str(f, "verdict")));
	API_SET(out, expectedPauseMs, js_get_int(f, "pauseMs", 0));
	if (left >= 0) /* to the nearest second, as of now */
		API_SET(out, secondsLeft, (MAX(left - since, 0) + 500) / 1000);
	else
		out->has_secondsLeft = false;
	return RC_OK;
}

/* Of memory and disks together; it never goes back, and is 100 at the end only. */
static void fill_percent(FerryMigrationStatus *out, int64_t total, int64_t left)
{
	int64_t percent = MIN(100 * (total - MIN(left, total)) / total, 99);

	API_SET(out, percent, MAX(percent, API_GET(out, percent, 0)));
}

static void fill_limits(FerryMigrationStatus *out, const struct json *data)
{
	const struct json *m = js_at(data, "stats", "memory", NULL);

	if (js_get_int(m, "throttlePercent", 0))
		API_SET(out, throttlePercent, js_get_int(m, "throttlePercent", 0));
	if (js_get(data, "downtimeLimitMs"))
		API_SET(out, pauseLimitMs, js_get_int(data, "downtimeLimitMs", 0));
	if (out->method && js_get(data, "maxBandwidthBytes"))
		API_SET(out->method, maxBandwidthBytes, js_get_int(data, "maxBandwidthBytes", 0));
}

enum rc mig_fill_stats(FerryMigrationStatus *out, const struct json *data, int64_t memory_bytes,
		       usec_t age)
{
	const struct json *stats = js_get(data, "stats");
	const struct json *m = js_get(stats, "memory");
	int64_t total = js_get_int(m, "total", 0), left = js_get_int(m, "remaining", 0);
	struct mig_transfer disks = mig_disks_of(data);

	if (js_get_str(data, "phase"))
		TRY(api_set_str(&out->stage, js_get_str(data, "phase")));
	if (total)
		fill_percent(out, total + disks.total, left + disks.left);
	else if (disks.total)
		fill_percent(out, memory_bytes + disks.total, memory_bytes + disks.left);
	if (m && total) {
		FerryTransfer *t = api_ensure(&api_type_FerryTransfer, &out->memory);

		if (!t)
			return RC_NOMEM;
		API_SET(t, totalBytes, total);
		API_SET(t, transferredBytes, js_get_int(m, "transferred", 0));
		API_SET(t, remainingBytes, left);
		API_SET(out, dirtyBytesPerSecond, js_get_int(m, "dirtyBytesPerSecond", 0));
		API_SET(out, linkBytesPerSecond, js_get_int(m, "bytesPerSecond", 0));
		API_SET(out, passes, js_get_int(m, "passes", 0));
	}
	fill_limits(out, data);
	TRY(fill_forecast(out, data, age));
	if (js_get(data, "downtimeMs"))
		API_SET(out, qemuDowntimeMs, js_get_int(data, "downtimeMs", 0));
	return js_get(stats, "disks") ? fill_disks(out, js_get(stats, "disks")) : RC_OK;
}

static bool shows(const struct json *cpu, const char *feature)
{
	const struct json *list = js_get(cpu, "features");

	for (size_t i = 0; i < js_len(list); i++)
		if (str_eq(js_str(js_item(list, i)), feature))
			return true;
	return false;
}

bool mig_cpu_lacks(const struct vm *vm, char *why, size_t size)
{
	const VirtualMachineInstance *vmi = vm_vmi(vm);
	const FerryGuestCPU *seen = vmi && vmi->status.ferry ? vmi->status.ferry->cpu : NULL;
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(4096);
	const char *missing[64];
	size_t n = 0;

	if (!seen || !vm->cpu)
		return false;
	for (size_t i = 0; i < seen->n_features && n < ARRAY_SIZE(missing); i++)
		if (!shows(vm->cpu, seen->features[i]))
			missing[n++] = seen->features[i];
	if (!n)
		return false;
	compat_print_names(missing, n, &b);
	(void)snprintf(why, size, "QEMU on node %s lacks the CPU feature%s %s, which the guest has",
		       vm->host->cfg.node_name, n > 1 ? "s" : "", sbuf_str(&b));
	return true;
}
