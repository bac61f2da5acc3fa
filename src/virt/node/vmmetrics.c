#include "virt/node/vmmetrics.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/map.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "ctl/prom.h"
#include "ctl/prom_map.h"
#include "json/json.h"

/* --- what the kernel counts --- */

bool vm_usage_take_stat(struct vm_usage *u, const char *text, long ticks_per_second)
{
	const char *p = strrchr(text, ')'); /* the name before it may hold anything */
	uint64_t user, system;

	if (!p || ticks_per_second <= 0 ||
	    sscanf(p + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %" SCNu64 " %" SCNu64,
		   &user, &system) != 2)
		return false;
	u->user = user * USEC_PER_SEC / (uint64_t)ticks_per_second;
	u->system = system * USEC_PER_SEC / (uint64_t)ticks_per_second;
	return true;
}

bool vm_usage_take_statm(struct vm_usage *u, const char *text, long page_size)
{
	uint64_t pages;

	if (page_size <= 0 || sscanf(text, "%*u %" SCNu64, &pages) != 1)
		return false;
	u->resident_bytes = pages * (uint64_t)page_size;
	return true;
}

/* "  name: bytes packets errs drop fifo frame compressed multicast bytes packets errs drop ..." */
bool vm_usage_take_net(struct vm_usage *u, const char *text, const char *link)
{
	size_t n = strlen(link);

	for (const char *p = text; p; p = strchr(p, '\n')) {
		p += strspn(p, "\n ");
		if (strncmp(p, link, n) != 0 || p[n] != ':')
			continue;
		uint64_t in[4], out[4];

		if (sscanf(p + n + 1,
			   "%" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
			   " %*u %*u %*u %*u %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64,
			   &in[0], &in[1], &in[2], &in[3], &out[0], &out[1], &out[2], &out[3]) != 8)
			return false;
		memcpy(u->sent, in, sizeof(in));
		memcpy(u->received, out, sizeof(out));
		u->has_link = true;
		return true;
	}
	return false;
}

/* --- values: false when this VM has none --- */

static bool get_memory(const struct vm_metrics_in *v, double *out)
{
	*out = (double)v->memory_bytes;
	return v->runs_here && v->memory_bytes > 0;
}

static bool get_resident(const struct vm_metrics_in *v, double *out)
{
	if (!v->runs_here || !v->usage)
		return false;
	*out = (double)v->usage->resident_bytes;
	return true;
}

static bool get_cpu(const struct vm_metrics_in *v, double *out)
{
	if (!v->runs_here || !v->usage)
		return false;
	*out = (double)(v->usage->user + v->usage->system) / (double)USEC_PER_SEC;
	return true;
}

static bool get_cpu_user(const struct vm_metrics_in *v, double *out)
{
	if (!v->runs_here || !v->usage)
		return false;
	*out = (double)v->usage->user / (double)USEC_PER_SEC;
	return true;
}

static bool get_cpu_system(const struct vm_metrics_in *v, double *out)
{
	if (!v->runs_here || !v->usage)
		return false;
	*out = (double)v->usage->system / (double)USEC_PER_SEC;
	return true;
}

static bool get_dirty_rate(const struct vm_metrics_in *v, double *out)
{
	*out = (double)v->dirty_rate;
	return v->runs_here && v->dirty_rate >= 0;
}

static int64_t disks_sum(const struct vm_metrics_in *v, const char *key)
{
	const struct json *disks = js_at(v->move, "stats", "disks", NULL);
	int64_t sum = 0;

	for (size_t i = 0; i < js_len(disks); i++)
		sum += js_get_int(js_item(disks, i), key, 0);
	return sum;
}

static const struct json *move_memory(const struct vm_metrics_in *v)
{
	return js_at(v->move, "stats", "memory", NULL);
}

static bool get_move_total(const struct vm_metrics_in *v, double *out)
{
	const struct json *m = move_memory(v);

	*out = (double)(js_get_int(m, "total", 0) + disks_sum(v, "total"));
	return m != NULL;
}

static bool get_move_left(const struct vm_metrics_in *v, double *out)
{
	const struct json *m = move_memory(v);
	int64_t disks = disks_sum(v, "total") - disks_sum(v, "done");

	*out = (double)(js_get_int(m, "remaining", 0) + MAX(disks, 0));
	return m != NULL;
}

static bool get_move_done(const struct vm_metrics_in *v, double *out)
{
	const struct json *m = move_memory(v);

	*out = (double)(js_get_int(m, "transferred", 0) + disks_sum(v, "done"));
	return m != NULL;
}

static bool get_move_dirty(const struct vm_metrics_in *v, double *out)
{
	const struct json *m = move_memory(v);

	*out = (double)js_get_int(m, "dirtyBytesPerSecond", 0);
	return m != NULL;
}

static bool get_move_rate(const struct vm_metrics_in *v, double *out)
{
	const struct json *m = move_memory(v);

	*out = (double)js_get_int(m, "bytesPerSecond", 0);
	return m != NULL;
}

/* --- families --- */

static const struct family {
	const char *name, *type, *help;
	bool (*get)(const struct vm_metrics_in *v, double *out);
	bool is_move; /* without the VMI's labels, as KubeVirt has it */
} families[] = {
	{"kubevirt_vmi_cpu_usage_seconds_total", "counter",
	 "CPU time of the VM's QEMU, in user and in kernel mode.", get_cpu},
	{"kubevirt_vmi_cpu_user_usage_seconds_total", "counter",
	 "CPU time of the VM's QEMU in user mode.", get_cpu_user},
	{"kubevirt_vmi_cpu_system_usage_seconds_total", "counter",
	 "CPU time of the VM's QEMU in kernel mode.", get_cpu_system},
	{"kubevirt_vmi_memory_domain_bytes", "gauge", "Memory that the guest was given.",
	 get_memory},
	{"kubevirt_vmi_memory_resident_bytes", "gauge",
	 "Memory of the VM's QEMU, the guest's included, that this machine holds.", get_resident},
	{"kubevirt_vmi_dirty_rate_bytes_per_second", "gauge",
	 "How much memory the guest changes in a second, as it was measured last.", get_dirty_rate},
	{"kubevirt_vmi_migration_data_bytes_total", "counter",
	 "All that the move under way has to carry over: memory, and disks that move along.",
	 get_move_total, true},
	{"kubevirt_vmi_migration_data_remaining_bytes", "gauge",
	 "What the move under way has still to carry over.", get_move_left, true},
	{"kubevirt_vmi_migration_data_processed_bytes", "gauge",
	 "What the move under way has carried over.", get_move_done, true},
	{"kubevirt_vmi_migration_dirty_memory_rate_bytes", "gauge",
	 "How much memory the moving guest changes in a second.", get_move_dirty, true},
	{"kubevirt_vmi_migration_memory_transfer_rate_bytes", "gauge",
	 "How much memory the move under way carries over in a second.", get_move_rate, true},
};

static const struct {
	const char *name, *help;
	size_t which;
	bool is_sent;
} link_families[] = {
	{"kubevirt_vmi_network_receive_bytes_total", "Bytes that came to the VM.", VM_COUNT_BYTES},
	{"kubevirt_vmi_network_transmit_bytes_total", "Bytes that the VM sent.", VM_COUNT_BYTES,
	 true},
	{"kubevirt_vmi_network_receive_packets_total", "Packets that came to the VM.",
	 VM_COUNT_PACKETS},
	{"kubevirt_vmi_network_transmit_packets_total", "Packets that the VM sent.",
	 VM_COUNT_PACKETS, true},
	{"kubevirt_vmi_network_receive_errors_total", "Packets to the VM that went wrong.",
	 VM_COUNT_ERRORS},
	{"kubevirt_vmi_network_transmit_errors_total", "Packets of the VM that went wrong.",
	 VM_COUNT_ERRORS, true},
	{"kubevirt_vmi_network_receive_packets_dropped_total",
	 "Packets to the VM that were let go.", VM_COUNT_DROPPED},
	{"kubevirt_vmi_network_transmit_packets_dropped_total",
	 "Packets of the VM that were let go.", VM_COUNT_DROPPED, true},
};

static void add_sample(const char *name, const char *node, const struct vm_metrics_in *v,
		       const char *interface, bool with_labels, double value, struct sbuf *out)
{
	CLEANUP(sbuf_fini) struct sbuf rest = SBUF_INIT(PROM_MAP_BYTES);
	const struct prom_label labels[] = {
		{"node", node}, {"namespace", v->ns}, {"name", v->name}, {"interface", interface}};

	if (with_labels)
		prom_map_add(&rest, "kubernetes_vmi_label_", v->labels, NULL, NULL);
	prom_sample(out, name, labels, interface ? 4 : 3, &rest, value);
}

/* --- all of it --- */

static void print_family(const struct family *f, const char *node, const struct vm_metrics_in *vms,
			 size_t n, struct sbuf *out)
{
	bool has_head = false;

	for (size_t i = 0; i < n; i++) {
		double value;

		if (!f->get(&vms[i], &value))
			continue;
		if (!has_head)
			prom_head(out, f->name, f->type, f->help);
		has_head = true;
		add_sample(f->name, node, &vms[i], NULL, !f->is_move, value, out);
	}
}

static void print_link_family(size_t f, const char *node, const struct vm_metrics_in *vms, size_t n,
			      struct sbuf *out)
{
	bool has_head = false;

	for (size_t i = 0; i < n; i++) {
		const struct vm_usage *u = vms[i].usage;

		if (!vms[i].runs_here || !u || !u->has_link || !vms[i].network)
			continue;
		const uint64_t *counts = link_families[f].is_sent ? u->sent : u->received;

		if (!has_head)
			prom_head(out, link_families[f].name, "counter", link_families[f].help);
		has_head = true;
		add_sample(link_families[f].name, node, &vms[i], vms[i].network, true,
			   (double)counts[link_families[f].which], out);
	}
}

void vm_metrics_print(const char *node, const struct vm_metrics_in *vms, size_t n, struct sbuf *out)
{
	for (size_t i = 0; i < ARRAY_SIZE(families); i++)
		print_family(&families[i], node, vms, n, out);
	for (size_t i = 0; i < ARRAY_SIZE(link_families); i++)
		print_link_family(i, node, vms, n, out);
}

void vm_metrics_print_node(const char *node, const struct json *probe, struct sbuf *out)
{
	const struct json *list = js_get(probe, "machines");

	prom_head(out, "kubevirt_virt_handler_ready_status", "gauge",
		  "1 when the node's agent looks after VMs.");
	prom_sample(out, "kubevirt_virt_handler_ready_status", NULL, 0, NULL, 1);
	prom_head(out, "kubevirt_node_deprecated_machine_types", "gauge",
		  "Machine types that this node's QEMU will lose.");
	for (size_t i = 0; i < js_len(list); i++) {
		const struct json *m = js_item(list, i);
		const struct prom_label labels[] = {{"machine_type", js_get_str(m, "name")},
						    {"node", node}};

		if (js_get_bool(m, "deprecated", false))
			prom_sample(out, "kubevirt_node_deprecated_machine_types", labels, 2, NULL,
				    1);
	}
}
