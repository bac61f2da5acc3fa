/* src/virt/controller/vm/vm.h - the VirtualMachine controller.
 *
 * Pure reconciler.  It never writes into a VM's spec, with one exception that KubeVirt's API demands: a
 * queued Start request of a Halted VM turns its run strategy to Always.  docs/internals/vm.md has the
 * tables that the tests walk.
 */
#ifndef VIRT_CONTROLLER_VM_VM_H
#define VIRT_CONTROLLER_VM_VM_H

#include "api/gen/api_types.h"
#include "ctl/ctl.h"

enum rc vm_reconcile(const struct view *v, const char *ns, const char *name, struct plan *out,
		     struct err *err);
extern const struct ctl_def vm_ctl_def;

/* Run strategies, in the order of the table in docs/internals/vm.md. */
#define VM_STRATEGY_MAP(X)                       \
	X(VM_ALWAYS, "Always")                   \
	X(VM_RERUN_ON_FAILURE, "RerunOnFailure") \
	X(VM_MANUAL, "Manual")                   \
	X(VM_HALTED, "Halted")                   \
	X(VM_ONCE, "Once")                       \
	X(VM_WAIT_AS_RECEIVER, "WaitAsReceiver")
#define VM_STRATEGY_ENUM(code, name) code,
enum vm_strategy { VM_STRATEGY_MAP(VM_STRATEGY_ENUM) VM_STRATEGY__MAX };
#undef VM_STRATEGY_ENUM
const char *vm_strategy_name(enum vm_strategy s);
/* spec.runStrategy, else spec.running; neither: Halted (admission refuses such a VM). */
enum vm_strategy vm_strategy_of(const VirtualMachine *vm);

enum vm_action {
	VM_KEEP,	   /* nothing to do */
	VM_START,	   /* create the VMI */
	VM_STOP,	   /* delete the VMI */
	VM_STOP_AND_RERUN, /* the same, and queue a Start of our own */
	VM_FLIP,	   /* Halted with a Start request: set the strategy to Always */
};
/* What the strategy says.  vmi: the VM's own one, NULL when there is none; request: the first queued
 * state change that is not satisfied, NULL when there is none. */
enum vm_action vm_decide(const VirtualMachine *vm, const VirtualMachineInstance *vmi,
			 const VirtualMachineStateChangeRequest *request);

/* Crash loop: how long to wait after the nth failure in a row, n >= 1.  The jitter comes from a hash of
 * uid and n, so the same input gives the same delay.  10 s * n^2 up to half of it more, at most 300 s. */
usec_t vm_backoff(const char *uid, int64_t n);

/* What vm_printable_status() looks at. */
struct vm_facts {
	const VirtualMachine *vm;
	const VirtualMachineInstance *vmi; /* NULL: none */
	enum vm_strategy strategy;
	bool is_start_expected; /* it is about to be created */
	bool is_stop_expected;	/* it is about to be deleted */
	bool has_unbound_claim; /* a volume's claim exists and is not bound */
	int64_t fail_count;
};
/* The first that matches, in KubeVirt's order. */
const char *vm_printable_status(const struct vm_facts *f);

#endif
