/* src/virt/controller/metrics.h - what a scrape tells of VMs, VMIs and migrations, under KubeVirt's names.
 *
 * Pure: reads the controllers' own copies of the objects; no request is made.
 * Source: KubeVirt v1.9, metrics of virt-controller.
 */
#ifndef VIRT_CONTROLLER_METRICS_H
#define VIRT_CONTROLLER_METRICS_H

#include "ctl/view.h"

struct sbuf;

/* The view must hold VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceMigration, Pod, KubeVirt and
 * PersistentVolumeClaim; with ConfigMap, the choice of kubevirt-vm-labels-config is heeded. */
void virt_metrics_print(const struct view *v, bool is_ready, struct sbuf *out);
/* Part of it (vm_metrics.c): what templates and claims ask for, labels, networks. */
void virt_vm_metrics_print(const struct view *v, struct sbuf *out);

#endif
