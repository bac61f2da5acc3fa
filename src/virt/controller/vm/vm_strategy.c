#include "api/api.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "virt/controller/kit.h"
#include "virt/controller/vm/vm.h"

#define BACKOFF_STEP		     (10 * USEC_PER_SEC)
#define BACKOFF_MAX		     (300 * USEC_PER_SEC)

#define VM_STRATEGY_NAME(code, name) [code] = name,
static const char *const names[] = {VM_STRATEGY_MAP(VM_STRATEGY_NAME)};
#undef VM_STRATEGY_NAME
static_assert(ARRAY_SIZE(names) == VM_STRATEGY__MAX, "name every strategy");

const char *vm_strategy_name(enum vm_strategy s)
{
	assert(s < VM_STRATEGY__MAX);
	return names[s];
}

enum vm_strategy vm_strategy_of(const VirtualMachine *vm)
{
	if (!str_is_empty(vm->spec.runStrategy)) {
		for (enum vm_strategy s = 0; s < VM_STRATEGY__MAX; s++)
			if (str_eq(vm->spec.runStrategy, names[s]))
				return s;
		return VM_HALTED;
	}
	return API_GET(&vm->spec, running, false) ? VM_ALWAYS : VM_HALTED;
}

static bool asks(const VirtualMachineStateChangeRequest *r, const char *action)
{
	return r && str_eq(r->action, action);
}

/* The strategy was set after it had been another one (or never acted on). */
static bool is_newly_set(const VirtualMachine *vm, enum vm_strategy s)
{
	return !str_eq(vm->status.runStrategy, names[s]);
}

static enum vm_action decide_without_vmi(const VirtualMachine *vm, enum vm_strategy s,
					 bool wants_start)
{
	switch (s) {
	case VM_ALWAYS:
		return VM_START;
	case VM_RERUN_ON_FAILURE:
		return wants_start || is_newly_set(vm, s) ? VM_START : VM_KEEP;
	case VM_MANUAL:
		return wants_start ? VM_START : VM_KEEP;
	case VM_ONCE:
		return is_newly_set(vm, s) ? VM_START : VM_KEEP;
	case VM_HALTED:
		return wants_start ? VM_FLIP : VM_KEEP;
	case VM_WAIT_AS_RECEIVER: /* needs a migration between clusters, which is refused by name */
	case VM_STRATEGY__MAX:
		break;
	}
	return VM_KEEP;
}

static enum vm_action decide_with_final(const VirtualMachineInstance *vmi, enum vm_strategy s)
{
	switch (s) {
	case VM_ALWAYS:
	case VM_HALTED:
		return VM_STOP;
	case VM_RERUN_ON_FAILURE:
		return str_eq(vmi->status.phase, "Failed") ? VM_STOP_AND_RERUN : VM_STOP;
	case VM_MANUAL:
	case VM_ONCE:
	case VM_WAIT_AS_RECEIVER:
	case VM_STRATEGY__MAX:
		break;
	}
	return VM_KEEP;
}

enum vm_action vm_decide(const VirtualMachine *vm, const VirtualMachineInstance *vmi,
			 const VirtualMachineStateChangeRequest *request)
{
	enum vm_strategy s = vm_strategy_of(vm);

	if (!vmi)
		return decide_without_vmi(vm, s, asks(request, "Start"));
	if (vmi->metadata.deletionTimestamp)
		return VM_KEEP; /* it is going; what comes next is decided when it is gone */
	if (s == VM_HALTED)
		return asks(request, "Start") ? VM_FLIP : VM_STOP;
	if (asks(request, "Stop"))
		return VM_STOP;
	if (kit_vmi_is_final(vmi))
		return decide_with_final(vmi, s);
	return VM_KEEP;
}

usec_t vm_backoff(const char *uid, int64_t n)
{
	char text[96];
	usec_t d = BACKOFF_MAX;

	if (n < 1)
		return 0;
	if (n < 6)
		d = BACKOFF_STEP * (usec_t)(n * n);
	size_t len = strlen(uid);

	len = MIN(len, (size_t)64);
	memcpy(text, uid, len);
	memcpy(text + len, &n, sizeof(n));
	return MIN(d + str_hash(text, len + sizeof(n)) % (d / 2 + 1), BACKOFF_MAX);
}
