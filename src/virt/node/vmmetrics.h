/* src/virt/node/vmmetrics.h - what a scrape tells of this node's VMs, under KubeVirt's names.
 *
 * Pure: facts that are in memory go in, Prometheus text comes out.  Nothing is asked of a guest, of QEMU
 * or of the API server because somebody scrapes.
 * Source: KubeVirt v1.9, metrics kubevirt_vmi_* of virt-handler.
 */
#ifndef NODE_VMMETRICS_H
#define NODE_VMMETRICS_H

#include <sys/types.h>

#include "base/err.h"

struct api_map;
struct json;
struct sbuf;

/* What this machine's kernel counted for one QEMU and its link, all at one moment. */
struct vm_usage {
	usec_t at; /* monotonic; 0: never looked */
	usec_t user, system;
	uint64_t resident_bytes;
	bool has_link;
	/* As the guest sees it: received is what came to it. */
	uint64_t received[4], sent[4]; /* bytes, packets, errors, dropped */
};

/* A vCPU's thread of QEMU. */
struct vm_vcpu {
	pid_t inner;		     /* as QEMU numbers it, in its own pid namespace */
	pid_t tid;		     /* as this machine does; 0: not found yet */
	bool is_known;		     /* what follows was read */
	uint64_t run_ns, waiting_ns; /* on a processor; ready, and waiting for one */
};

enum { VM_VCPUS_MAX = 512 };

enum { VM_COUNT_BYTES, VM_COUNT_PACKETS, VM_COUNT_ERRORS, VM_COUNT_DROPPED };

/* Texts of /proc; false: not understood (the values stay). */
bool vm_usage_take_stat(struct vm_usage *u, const char *text, long ticks_per_second);
bool vm_usage_take_statm(struct vm_usage *u, const char *text, long page_size);
/* link is the node's end of the VM's link: what it sends, the guest receives. */
bool vm_usage_take_net(struct vm_usage *u, const char *text, const char *link);

/* /proc/PID/task/TID/status: the number in the innermost pid namespace; 0: not understood. */
pid_t vm_usage_inner_tid(const char *text);
/* /proc/PID/task/TID/schedstat; false: not understood, or this kernel does not count (the values stay). */
bool vm_usage_take_schedstat(struct vm_vcpu *v, const char *text);

struct vm_metrics_in {
	const char *ns, *name; /* of the VMI */
	const struct api_map *labels;
	const char *network;	      /* name of the interface; NULL: none */
	bool runs_here;		      /* false: only on its way */
	int64_t memory_bytes;	      /* of the guest; 0: not known */
	const struct vm_usage *usage; /* NULL: none, or too old to be shown */
	int64_t dirty_rate;	      /* bytes a second; -1: not known */
	const struct json *disks;     /* the launcher's answer to "usage"; NULL: none, or too old */
	size_t n_vcpus;
	const struct vm_vcpu *vcpus; /* by number */
	const struct json *move;     /* the launcher's last report; NULL: no move from here runs */
};

void vm_metrics_print(const char *node, const struct vm_metrics_in *vms, size_t n,
		      struct sbuf *out);
/* kubevirt_node_deprecated_machine_types; probe: see cpulabels.h. */
void vm_metrics_print_node(const char *node, const struct json *probe, struct sbuf *out);

#endif
