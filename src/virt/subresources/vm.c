#include "base/mem.h"
#include "virt/subresources/subres_int.h"

/* start, stop, restart and migrate of a VirtualMachine.
 *
 * Each handler looks at the newest objects, refuses or plans, and asks the API server for one change at
 * a time.  Changes of status carry the resourceVersion that was looked at; when somebody was faster the
 * handler runs again from the start, at most TRIES times.
 */
enum { TRIES = 8 };

#define RECOVERY_TEXT                                                                      \
	"VM recovery required: Volume migration failed, leaving some volumes pointing to " \
	"non-consistent targets; manual intervention is needed to reassign them to their " \
	"original "                                                                        \
	"volumes."

static const char *run_strategy(const struct json *vm)
{
	const struct json *running = js_at(vm, "spec", "running", NULL);
	const char *s = js_str(js_at(vm, "spec", "runStrategy", NULL));

	if (running)
		return js_bool(running, false) ? "Always" : "Halted";
	return s ? s : "Halted";
}

/* After the last change of a handler: done, again, or as the API server says. */
static void conclude(struct hook_call *call, int status, const struct json *obj,
		     void (*handler)(struct hook_call *))
{
	struct op *op = op_of(call);

	if (!op)
		return;
	if (status / 100 == 2)
		reply_empty(call, 202);
	else if (status == 409 && ++op->tries < TRIES)
		handler(call);
	else
		reply_as_is(call, status, obj);
}

/* spec.runStrategy, or spec.running where the user wrote that. */
static void set_running(struct hook_call *call, const struct json *vm, bool on, bool dry_run,
			hook_then_fn then)
{
	const char *rv = js_str(js_at(vm, "metadata", "resourceVersion", NULL));
	struct json *spec = js_at(vm, "spec", "running", NULL)
				    ? js_pack("{s:b}", "running", on)
				    : js_pack("{s:s}", "runStrategy", on ? "Always" : "Halted");

	patch(call, "virtualmachines", NULL, dry_run,
	      js_pack("{s:{s:s*}, s:o}", "metadata", "resourceVersion", rv, "spec", spec), then);
}

static struct json *stop_request(const struct json *vmi)
{
	return js_pack("{s:s, s:s*}", "action", "Stop", "uid",
		       js_str(js_at(vmi, "metadata", "uid", NULL)));
}

static struct json *start_request(bool paused)
{
	return paused ? js_pack("{s:s, s:{s:s}}", "action", "Start", "data", "paused", "true")
		      : js_pack("{s:s}", "action", "Start");
}

/* Queues one or two requests for the controller (b may be NULL); both are consumed.  A lone Stop
 * replaces what is queued; anything else has to wait.  Also ends a crash-loop's back-off. */
static void queue_requests(struct hook_call *call, const struct json *vm, struct json *a,
			   struct json *b, bool dry_run, hook_then_fn then)
{
	const char *rv = js_str(js_at(vm, "metadata", "resourceVersion", NULL));
	bool is_lone_stop = !b && str_eq(js_get_str(a, "action"), "Stop");
	struct json *list = js_new_array();

	if (!list || js_append(list, a) || (b && js_append(list, b))) {
		js_unref(list);
		fail_internal(call, "out of memory");
		return;
	}
	if (js_len(js_at(vm, "status", "stateChangeRequests", NULL)) && !is_lone_stop) {
		js_unref(list);
		fail_internal(call, "unable to complete request: stop/start already underway");
		return;
	}
	patch(call, "virtualmachines", "status", dry_run,
	      js_pack("{s:{s:s*}, s:{s:o, s:n}}", "metadata", "resourceVersion", rv, "status",
		      "stateChangeRequests", list, "startFailure"),
	      then);
}

/* start */

static void after_start(struct hook_call *call, int status, const struct json *obj)
{
	conclude(call, status, obj, vm_start);
}

static void start_on_request(struct hook_call *call, const struct json *vm, const struct json *vmi,
			     bool paused, bool dry_run)
{
	const char *strategy = run_strategy(vm);
	const char *phase = js_str(js_at(vmi, "status", "phase", NULL));
	bool is_rerun = str_eq(strategy, "RerunOnFailure");

	if (is_rerun && str_eq(phase, "Failed")) {
		fail_conflict(call, "virtualmachine",
			      "RerunOnFailure does not support starting VM from failed state");
		return;
	}
	if (vmi && vmi_is_final(vmi))
		queue_requests(call, vm, stop_request(vmi), start_request(paused), dry_run,
			       after_start);
	else
		queue_requests(call, vm, start_request(paused), NULL, dry_run, after_start);
}

static bool may_start(struct hook_call *call, const struct json *vm, const struct json *vmi)
{
	const char *phase = js_str(js_at(vmi, "status", "phase", NULL));

	if (!vm)
		fail_not_found(call, "virtualmachine", hook_call_name(call));
	else if (vmi && !vmi_is_final(vmi) && !str_is_empty(phase) && !str_eq(phase, "Unknown"))
		fail_conflict(call, "virtualmachine", "VM is already running");
	else if (condition_is_true(vm, "ManualRecoveryRequired"))
		fail_conflict(call, "virtualmachine", RECOVERY_TEXT);
	else
		return true;
	return false;
}

void vm_start(struct hook_call *call)
{
	CLEANUP(js_unrefp) struct json *options = NULL;
	const struct json *vm = get_vm(call), *vmi = get_vmi(call);

	if (!may_start(call, vm, vmi) || !read_options(call, &options))
		return;
	const char *strategy = run_strategy(vm);
	bool paused = js_get_bool(options, "paused", false), dry_run = is_dry_run(options);

	if (str_eq(strategy, "Halted") && paused)
		queue_requests(call, vm, start_request(true), NULL, dry_run, after_start);
	else if (str_eq(strategy, "Halted"))
		set_running(call, vm, true, dry_run, after_start);
	else if (str_eq(strategy, "RerunOnFailure") || str_eq(strategy, "Manual"))
		start_on_request(call, vm, vmi, paused, dry_run);
	else
		fail_conflict(call, "virtualmachine", "%s does not support manual start requests",
			      strategy);
}

/* The grace period of the VMI, before a stop that shortens it. */

static void set_grace(struct hook_call *call, const struct json *vmi, int64_t seconds, bool dry_run,
		      hook_then_fn then)
{
	struct op *op = op_of(call);
	const struct json *old = js_at(vmi, "spec", "terminationGracePeriodSeconds", NULL);

	if (!op)
		return;
	op->had_grace = old != NULL;
	op->old_grace = js_int(old, 0);
	patch(call, "virtualmachineinstances", NULL, dry_run,
	      js_pack("{s:{s:I}}", "spec", "terminationGracePeriodSeconds", seconds), then);
}

static void after_rollback(struct hook_call *call, int status, const struct json *obj)
{
	(void)status;
	(void)obj;
	fail_internal(call, "unable to complete request: the VM could not be changed");
}

/* The VM could not be changed: the VMI gets its old grace period back. */
static void roll_back(struct hook_call *call)
{
	struct op *op = op_of(call);

	if (!op)
		return;
	patch(call, "virtualmachineinstances", NULL, false,
	      op->had_grace
		      ? js_pack("{s:{s:I}}", "spec", "terminationGracePeriodSeconds", op->old_grace)
		      : js_pack("{s:{s:n}}", "spec", "terminationGracePeriodSeconds"),
	      after_rollback);
}

static void conclude_stop(struct hook_call *call, int status, const struct json *obj,
			  void (*handler)(struct hook_call *))
{
	struct op *op = op_of(call);

	if (!op)
		return;
	if (status / 100 != 2 && op->grace_done && (status != 409 || op->tries + 1 >= TRIES))
		roll_back(call);
	else
		conclude(call, status, obj, handler);
}

/* True: go on.  False: a request is on its way (then calls the handler again), or it failed. */
static bool ensure_grace(struct hook_call *call, const struct json *vmi, int64_t seconds,
			 bool dry_run, hook_then_fn then)
{
	struct op *op = op_of(call);

	if (!op)
		return false;
	if (op->grace_done)
		return true;
	set_grace(call, vmi, seconds, dry_run, then);
	return false;
}

/* The grace period is written, or could not be: then the answer is that. */
static void grace_is_set(struct hook_call *call, int status, const struct json *obj,
			 void (*go_on)(struct hook_call *call))
{
	struct op *op = op_of(call);

	if (!op)
		return;
	if (status / 100 != 2) {
		reply_as_is(call, status, obj);
		return;
	}
	op->grace_done = true;
	go_on(call);
}

/* stop */

static void after_stop(struct hook_call *call, int status, const struct json *obj)
{
	conclude_stop(call, status, obj, vm_stop);
}

static void after_stop_grace(struct hook_call *call, int status, const struct json *obj)
{
	grace_is_set(call, status, obj, vm_stop);
}

static bool may_stop(struct hook_call *call, const struct json *vm, const struct json *vmi,
		     const struct json *grace)
{
	const char *strategy = run_strategy(vm);
	const struct json *old = js_at(vmi, "spec", "terminationGracePeriodSeconds", NULL);
	struct op *op = hook_call_data(call);

	if (str_eq(strategy, "Always") || str_eq(strategy, "Once"))
		return true;
	if (!vmi || vmi_is_final(vmi)) {
		fail_conflict(call, "virtualmachine", "VM is not running");
		return false;
	}
	if (!str_eq(strategy, "Halted") || (op && op->grace_done))
		return true;
	/* Without a grace period of its own the VMI has KubeVirt's 30 s. */
	if (!grace || js_int(grace, 0) >= js_int(old, 30)) {
		fail_conflict(
			call, "virtualmachine",
			"Halted only supports manual stop requests with a shorter graceperiod");
		return false;
	}
	return true;
}

void vm_stop(struct hook_call *call)
{
	CLEANUP(js_unrefp) struct json *options = NULL;
	const struct json *vm = get_vm(call), *vmi = get_vmi(call);

	if (!vm) {
		fail_not_found(call, "virtualmachine", hook_call_name(call));
		return;
	}
	if (!read_options(call, &options))
		return;
	const struct json *grace = js_get(options, "gracePeriod");
	const char *strategy = run_strategy(vm);
	bool dry_run = is_dry_run(options);

	if (grace && js_int(grace, -1) < 0) {
		fail_bad_request(call, "gracePeriod has to be greater or equal to 0");
		return;
	}
	if (!may_stop(call, vm, vmi, grace))
		return;
	if (grace && vmi && !vmi_is_final(vmi) &&
	    !ensure_grace(call, vmi, js_int(grace, 0), dry_run, after_stop_grace))
		return;
	if (str_eq(strategy, "Always") || str_eq(strategy, "Once"))
		set_running(call, vm, false, dry_run, after_stop);
	else
		queue_requests(call, vm, stop_request(vmi), NULL, dry_run, after_stop);
}

/* restart */

static void after_restart(struct hook_call *call, int status, const struct json *obj)
{
	conclude_stop(call, status, obj, vm_restart);
}

static void after_restart_grace(struct hook_call *call, int status, const struct json *obj)
{
	grace_is_set(call, status, obj, vm_restart);
}

static bool may_restart(struct hook_call *call, const struct json *vm, const struct json *vmi,
			const struct json *grace)
{
	const char *strategy = run_strategy(vm);

	if (grace && js_int(grace, 0) > 0)
		fail_bad_request(call,
				 "For force restart, only gracePeriod=0 is supported for now");
	else if (grace && js_int(grace, 0) < 0)
		fail_bad_request(call, "gracePeriod has to be greater or equal to 0");
	else if (condition_is_true(vm, "VolumesChange"))
		fail_conflict(call, "virtualmachine", RECOVERY_TEXT);
	else if (str_eq(strategy, "Halted") || str_eq(strategy, "Once"))
		fail_conflict(call, "virtualmachine",
			      "RunStategy %s does not support manual restart requests", strategy);
	else if (!vmi)
		fail_conflict(call, "virtualmachine", "VM is not running: Halted");
	else
		return true;
	return false;
}

void vm_restart(struct hook_call *call)
{
	CLEANUP(js_unrefp) struct json *options = NULL;
	const struct json *vm = get_vm(call), *vmi = get_vmi(call);

	if (!vm) {
		fail_not_found(call, "virtualmachine", hook_call_name(call));
		return;
	}
	if (!read_options(call, &options))
		return;
	const struct json *grace = js_get(options, "gracePeriodSeconds");
	bool dry_run = is_dry_run(options);

	if (!may_restart(call, vm, vmi, grace))
		return;
	if (js_len(js_at(vm, "status", "stateChangeRequests", NULL))) {
		fail_internal(call, "unable to complete request: stop/start already underway");
		return;
	}
	/* Forced: one second instead of the VMI's grace period. */
	if (grace && !ensure_grace(call, vmi, 1, dry_run, after_restart_grace))
		return;
	queue_requests(call, vm, stop_request(vmi), start_request(false), dry_run, after_restart);
}

/* migrate */

static void after_migrate(struct hook_call *call, int status, const struct json *obj)
{
	const char *text = js_get_str(obj, "message");

	if (status / 100 == 2)
		reply_empty(call, 202);
	else
		fail_internal(call, "%s", text ? text : "cannot create a migration");
}

void vm_migrate(struct hook_call *call)
{
	CLEANUP(js_unrefp) struct json *options = NULL;
	const struct json *vm = get_vm(call), *vmi = get_vmi(call);

	if (!vm) {
		fail_not_found(call, "virtualmachine", hook_call_name(call));
		return;
	}
	if (!vmi) {
		fail_not_found(call, "virtualmachineinstance", hook_call_name(call));
		return;
	}
	if (!vmi_is_running(vmi)) {
		fail_conflict(call, "virtualmachine", "VM is not running");
		return;
	}
	if (!read_options(call, &options))
		return;
	const struct json *selector = js_get(options, "addedNodeSelector");
	struct json *spec = js_pack("{s:s, s:O*}", "vmiName", hook_call_name(call),
				    "addedNodeSelector", js_len(selector) ? selector : NULL);

	create(call, "virtualmachineinstancemigrations", is_dry_run(options),
	       js_pack("{s:s, s:s, s:{s:s, s:s}, s:o}", "apiVersion", "kubevirt.io/v1", "kind",
		       "VirtualMachineInstanceMigration", "metadata", "generateName",
		       "kubevirt-migrate-vm-", "namespace", hook_call_ns(call), "spec", spec),
	       after_migrate);
}

/* Instancetypes do not exist in Ferry (a VM that names one is refused), so a spec is expanded as it is. */

void vm_expand_spec(struct hook_call *call)
{
	const struct json *vm = get_vm(call);

	if (vm)
		reply_as_is(call, 200, vm);
	else
		fail_not_found(call, "virtualmachine", hook_call_name(call));
}

void ns_expand_vm_spec(struct hook_call *call)
{
	CLEANUP(js_unrefp) struct json *vm = NULL;
	const char *ns;

	if (!read_options(call, &vm))
		return;
	ns = js_str(js_at(vm, "metadata", "namespace", NULL));
	if (!str_eq(js_get_str(vm, "kind"), "VirtualMachine") ||
	    !js_at(vm, "spec", "template", NULL))
		fail_bad_request(call, "Object is not a valid VirtualMachine");
	else if (js_at(vm, "spec", "instancetype", NULL) || js_at(vm, "spec", "preference", NULL))
		refuse_unsupported(call);
	else if (ns && !str_eq(ns, hook_call_ns(call)))
		fail_bad_request(call, "VM namespace must be %s", hook_call_ns(call));
	else
		reply_as_is(call, 200, vm);
}
