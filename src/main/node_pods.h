/* src/main/node_pods.h - the pod runtime's pods as the VM side of a node sees them.
 *
 * Loop thread only.
 */
#ifndef MAIN_NODE_PODS_H
#define MAIN_NODE_PODS_H

#include "virt/node/vm.h"

extern const struct vm_pod_ops node_pod_ops;

#endif
