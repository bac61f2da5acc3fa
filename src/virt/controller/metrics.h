/* src/virt/controller/metrics.h - what a scrape tells of VMs, VMIs and migrations, under KubeVirt's names.
 *
 * Pure: reads the controllers' own copies of the objects; no request is made.
 * Source: KubeVirt v1.9, metrics of virt-controller.
 */
#ifndef VIRT_CONTROLLER_METRICS_H
#define VIRT_CONTROLLER_METRICS_H

#include "ctl/view.h"

struct sbuf;

/* The view must hold VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceMigration, Pod and KubeVirt. */
void virt_metrics_print(const struct view *v, bool is_ready, struct sbuf *out);

#endif
