#include "virt/node/vmmetrics.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
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

pid_t vm_usage_inner_tid(const char *text)
{
	static const char key[] = "NSpid:";
	const char *p = strstr(text, key);
	long long tid = 0;

	if (!p)
		return 0;
	/* From the outside inwards. */
	for (p += sizeof(key) - 1; *p == ' ' || *p == '\t';) {
		char *end;

		tid = strtoll(p, &end, 10);
		if (end == p || tid <= 0 || tid > INT_MAX)
			return 0;
		p = end;
	}
	return (pid_t)tid;
}

bool vm_usage_take_schedstat(struct vm_vcpu *v, const char *text)
{
	uint64_t run, waiting, turns;

	if (sscanf(text, "%" SCNu64 " %" SCNu64 " %" SCNu64, &run, &waiting, &turns) != 3 || !turns)
		return false;
	v->run_ns = run;
	v->waiting_ns = waiting;
	v->is_known = true;
	return true;
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

/* The common labels, up to two more, and those of the VMI. */
static void add_sample(const char *name, const char *node, const struct vm_metrics_in *v,
		       const struct prom_label *more, size_t n, double value, struct sbuf *out)
{
	CLEANUP(sbuf_fini) struct sbuf rest = SBUF_INIT(PROM_MAP_BYTES);
	struct prom_label labels[5] = {{"node", node}, {"namespace", v->ns}, {"name", v->name}};

	for (size_t i = 0; i < n; i++)
		labels[3 + i] = more[i];
	prom_map_add(&rest, "kubernetes_vmi_label_", v->labels, NULL, NULL);
	prom_sample(out, name, labels, 3 + n, &rest, value);
}

/* KubeVirt has a move's figures without the VMI's labels. */
static void add_bare_sample(const char *name, const char *node, const struct vm_metrics_in *v,
			    double value, struct sbuf *out)
{
	const struct prom_label labels[] = {
		{"node", node}, {"namespace", v->ns}, {"name", v->name}};

	prom_sample(out, name, labels, 3, NULL, value);
}

/* --- disks and vCPUs --- */

#define NS_PER_SEC 1e9

static const struct {
	const char *name, *help, *key;
	double per_unit;
} disk_families[] = {
	{"kubevirt_vmi_storage_iops_read_total", "Reads of the disk.", "readOps", 1},
	{"kubevirt_vmi_storage_iops_write_total", "Writes to the disk.", "writeOps", 1},
	{"kubevirt_vmi_storage_read_traffic_bytes_total", "Bytes that were read of the disk.",
	 "readBytes", 1},
	{"kubevirt_vmi_storage_write_traffic_bytes_total", "Bytes that were written to the disk.",
	 "writeBytes", 1},
	{"kubevirt_vmi_storage_read_times_seconds_total", "Time that the disk's reads took.",
	 "readNs", NS_PER_SEC},
	{"kubevirt_vmi_storage_write_times_seconds_total", "Time that the disk's writes took.",
	 "writeNs", NS_PER_SEC},
	{"kubevirt_vmi_storage_flush_requests_total", "Flushes of the disk's cache.", "flushOps",
	 1},
	{"kubevirt_vmi_storage_flush_times_seconds_total",
	 "Time that flushes of the disk's cache took.", "flushNs", NS_PER_SEC},
};

static void print_disk_family(size_t f, const char *node, const struct vm_metrics_in *vms, size_t n,
			      struct sbuf *out)
{
	bool has_head = false;

	for (size_t i = 0; i < n; i++) {
		const struct json *disks = vms[i].runs_here ? js_get(vms[i].disks, "disks") : NULL;

		for (size_t k = 0; k < js_len(disks); k++) {
			const struct json *d = js_item(disks, k);
			int64_t value = js_get_int(d, disk_families[f].key, -1);
			const struct prom_label drive = {"drive", js_get_str(d, "name")};

			if (value < 0)
				continue;
			if (!has_head)
				prom_head(out, disk_families[f].name, "counter",
					  disk_families[f].help);
			has_head = true;
			add_sample(disk_families[f].name, node, &vms[i], &drive, 1,
				   (double)value / disk_families[f].per_unit, out);
		}
	}
}

/* One thread for several vCPUs (QEMU's single-threaded emulation) is none of either. */
static bool is_alone(const struct vm_metrics_in *v, size_t at)
{
	for (size_t i = 0; i < v->n_vcpus; i++)
		if (i != at && v->vcpus[i].inner == v->vcpus[at].inner)
			return false;
	return true;
}

static void print_vcpu_family(bool is_delay, const char *node, const struct vm_metrics_in *vms,
			      size_t n, struct sbuf *out)
{
	const char *name = is_delay ? "kubevirt_vmi_vcpu_delay_seconds_total"
				    : "kubevirt_vmi_vcpu_seconds_total";
	bool has_head = false;

	for (size_t i = 0; i < n; i++) {
		for (size_t k = 0; vms[i].runs_here && k < vms[i].n_vcpus; k++) {
			const struct vm_vcpu *v = &vms[i].vcpus[k];
			char id[16];
			/* libvirt's word for a vCPU that is plugged in. */
			const struct prom_label more[] = {{"id", id}, {"state", "running"}};

			if (!v->is_known || !is_alone(&vms[i], k))
				continue;
			if (!has_head)
				prom_head(
					out, name, "counter",
					is_delay ? "Time that the vCPU was ready and waited for a "
						   "processor of the node."
						 : "Time that the vCPU's thread ran on a processor "
						   "of the node.");
			has_head = true;
			(void)snprintf(id, sizeof(id), "%zu", k);
			add_sample(name, node, &vms[i], more, is_delay ? 1 : 2,
				   (double)(is_delay ? v->waiting_ns : v->run_ns) / NS_PER_SEC,
				   out);
		}
	}
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
		if (f->is_move)
			add_bare_sample(f->name, node, &vms[i], value, out);
		else
			add_sample(f->name, node, &vms[i], NULL, 0, value, out);
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
		add_sample(link_families[f].name, node, &vms[i],
			   &(struct prom_label){"interface", vms[i].network}, 1,
			   (double)counts[link_families[f].which], out);
	}
}

void vm_metrics_print(const char *node, const struct vm_metrics_in *vms, size_t n, struct sbuf *out)
{
	for (size_t i = 0; i < ARRAY_SIZE(families); i++)
		print_family(&families[i], node, vms, n, out);
	for (size_t i = 0; i < ARRAY_SIZE(link_families); i++)
		print_link_family(i, node, vms, n, out);
	for (size_t i = 0; i < ARRAY_SIZE(disk_families); i++)
		print_disk_family(i, node, vms, n, out);
	print_vcpu_family(false, node, vms, n, out);
	print_vcpu_family(true, node, vms, n, out);
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
