/* src/virt/controller/fence/fence_exec.h - fence agents that are programs of this host.
 *
 * Loop thread only.  struct fence_exec is the ctx of fence_exec_ops; the caller's, and outlives the fencer.
 */
#ifndef VIRT_CONTROLLER_FENCE_FENCE_EXEC_H
#define VIRT_CONTROLLER_FENCE_FENCE_EXEC_H

#include "virt/controller/fence/fencer.h"

struct fence_exec {
	struct loop *loop;
	const char *folder; /* NULL: there is none, and every run fails with that reason */
};

extern const struct fence_ops fence_exec_ops;

#endif
